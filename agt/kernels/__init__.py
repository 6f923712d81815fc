"""Kernels: sums of per-record gradients over a batch; several implementations of one contract."""
