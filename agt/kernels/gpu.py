"""The GPU kernel: Triton, one program for each (k, tile of outputs, tile of inputs, slice of records).

Products and roundings are float64, in the reference's own order: fusing a product with the addition that rounds it is
switched off, for the bounds would then be rounded differently from the nominal gradient. Each program adds its integers
to the result atomically; integers, so the order does not matter. A program's own sum is an integer of at most 2^41 in size,
exact in float64; indices of records are int32, at most 2^30 + 2^11, and all addresses int64.

Selections (the k least per parameter) stay with the reference kernel, which runs on the GPU.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from agt.bounds.interval import Interval
from agt.kernels.contract import QUANTA
from agt.kernels.reference import ReferenceKernel

_TILE_OUT, _TILE_IN = 16, 64
_SLICE = 2048  # records for each program: 2^11 * 2^30 stays exact in float64
_MAGIC = tl.constexpr(1.5 * 2.0**52)  # adding and subtracting it rounds to the nearest integer, ties to even
_Q = tl.constexpr(float(QUANTA))


@triton.jit
def _quantise(v):  # type: ignore[no-untyped-def]
    return (tl.minimum(tl.maximum(v, -_Q), _Q) + _MAGIC) - _MAGIC


@triton.jit
def _sum_kernel(  # type: ignore[no-untyped-def]
    d_lower, d_upper, x_lower, x_upper, low, high, n, outputs, width, x_stride, slices,
    POINT: tl.constexpr, SLICE: tl.constexpr, OUT: tl.constexpr, IN: tl.constexpr,
):  # fmt: skip
    """d: [K, n, out]; x: [K or 1, n, in] with ``x_stride`` elements between k; low, high: int64 [K, out, in]."""
    k = (tl.program_id(0) // slices).to(tl.int64)
    start = (tl.program_id(0) % slices) * SLICE
    j = tl.program_id(1) * OUT + tl.arange(0, OUT)
    i = tl.program_id(2) * IN + tl.arange(0, IN)
    in_j, in_i = j < outputs, i < width
    sum_low = tl.zeros((OUT, IN), dtype=tl.float64)
    sum_high = tl.zeros((OUT, IN), dtype=tl.float64)
    for s in range(start, min(start + SLICE, n)):
        row = k * n + s
        p = tl.load(d_lower + row * outputs + j, mask=in_j, other=0.0)[:, None]
        q = tl.load(d_upper + row * outputs + j, mask=in_j, other=0.0)[:, None]
        at = k * x_stride + (row - k * n) * width + i  # row is int64, as the address must be
        a = tl.load(x_lower + at, mask=in_i, other=0.0)[None, :]
        c1, c2 = a * p, a * q
        least, greatest = tl.minimum(c1, c2), tl.maximum(c1, c2)
        if not POINT:
            b = tl.load(x_upper + at, mask=in_i, other=0.0)[None, :]
            c3, c4 = b * p, b * q
            least, greatest = tl.minimum(least, tl.minimum(c3, c4)), tl.maximum(greatest, tl.maximum(c3, c4))
        sum_low += _quantise(least)
        sum_high += _quantise(greatest)
    at = (k * outputs + j[:, None]) * width + i[None, :]
    inside = in_j[:, None] & in_i[None, :]
    tl.atomic_add(low + at, sum_low.to(tl.int64), mask=inside)
    tl.atomic_add(high + at, sum_high.to(tl.int64), mask=inside)


class GpuKernel(ReferenceKernel):
    """The reference kernel with sums by Triton; it keeps biases and Rump's products of scalars."""

    name = "gpu"

    def bound_sum(self, d: Interval, x: Interval | None, product: str) -> tuple[Tensor, Tensor]:
        if x is None or (product == "rump" and not x.is_point):
            return super().bound_sum(d, x, product)
        ks, n, outputs = d.shape
        width = x.shape[2]
        shape = (ks, outputs, width)
        low = torch.zeros(shape, dtype=torch.int64, device=d.lower.device)
        high = torch.zeros_like(low)
        slices = triton.cdiv(n, _SLICE)
        # The first axis may be 2^31 long, the others 65,535.
        grid = (ks * slices, triton.cdiv(outputs, _TILE_OUT), triton.cdiv(width, _TILE_IN))
        factors = [t.contiguous() for t in (d.lower, d.upper, x.lower, x.upper)]
        stride = n * width if x.shape[0] > 1 else 0
        _sum_kernel[grid](
            *factors, low, high, n, outputs, width, stride, slices,
            POINT=x.is_point, SLICE=_SLICE, OUT=_TILE_OUT, IN=_TILE_IN, enable_fp_fusion=False,
        )  # fmt: skip
        return low, high
