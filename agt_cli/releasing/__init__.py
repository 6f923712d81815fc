"""Releases from a trained run: who pays, what is told on disk, what is drawn and written, in
this order.
"""
