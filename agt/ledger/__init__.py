"""The account of one population's releases: an append-only chain of entries in SQLite, and a
head file elsewhere.
"""
