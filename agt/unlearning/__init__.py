"""Erasure: what is owed when records must go, and what each way of removing them guarantees."""
