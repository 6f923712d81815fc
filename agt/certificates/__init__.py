"""Certificates: how many edits of the training data cannot change a query's label."""
