"""Erasure of training records: methods of removal, and the guarantee that each of them gives."""
