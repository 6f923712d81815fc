"""Certificates: how many edits of the training data every query's label withstands."""
