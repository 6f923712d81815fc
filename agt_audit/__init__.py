"""Attacks on one's own guarantees: what was claimed, what was tried against it, how hard, and
what was found.
"""
