"""The GPU kernel: Triton. Sums are here, one program for each (k, tile of outputs, tile of inputs, slice of records);
selections in gpu_select.py. Either is one launch for all k of a fragment.

Each program adds its integers to the result atomically; integers, so the order does not matter. A program's own sum is an
integer of at most 2^41 in size, exact in float64; indices of records are int32, at most 2^30 + 2^11, and addresses int64.

Cost. For each k, record and weight: two products, two comparisons, two clips of two, two roundings of two and two
additions, 14 operations of float64, and next to no memory traffic: a program reads OUT + IN factors for OUT x IN products.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from agt.bounds.interval import Interval
from agt.kernels.contract import Extremes
from agt.kernels.gpu_products import MAGIC, factors_of, record, tile
from agt.kernels.gpu_select import GpuExtremes, room
from agt.kernels.reference import ReferenceKernel

_LANES = 1024  # parameters for each program
_SLICE = 2048  # records for each program, at most: 2^11 * 2^30 stays exact in float64
_SHORT = 64  # ... and at least, where there are fewer programs than keep a GPU busy:
_PROGRAMS = 2048


@triton.jit
def _sum_kernel(  # type: ignore[no-untyped-def]
    d_lower, d_upper, x_lower, x_upper, low, high, n, outputs, width, x_stride, size, slices,
    BIAS: tl.constexpr, POINT: tl.constexpr, RUMP: tl.constexpr, OUT: tl.constexpr, IN: tl.constexpr,
):  # fmt: skip
    """d: [K, n, out]; x: [K or 1, n, in] with ``x_stride`` elements between k; low, high: int64 [K, out, in].

    ``size`` records for each of ``slices`` programs.
    """
    k = (tl.program_id(0) // slices).to(tl.int64)
    start = (tl.program_id(0) % slices) * size
    j = tl.program_id(1) * OUT + tl.arange(0, OUT)
    i = tl.program_id(2) * IN + tl.arange(0, IN)
    in_j, in_i = j < outputs, i < width
    sum_low = tl.zeros((OUT, IN), dtype=tl.float64)
    sum_high = tl.zeros((OUT, IN), dtype=tl.float64)
    for s in range(start, min(start + size, n)):
        row = k * n + s
        d_at, x_at = row * outputs, k * x_stride + (row - k * n) * width  # row is int64, as addresses must be
        least, greatest = record(
            d_lower + d_at, d_upper + d_at, x_lower + x_at, x_upper + x_at, j, i, in_j, in_i, 1.0, BIAS, POINT, RUMP
        )
        sum_low += least - MAGIC
        sum_high += greatest - MAGIC
    at = (k * outputs + j[:, None]) * width + i[None, :]
    inside = in_j[:, None] & in_i[None, :]
    tl.atomic_add(low + at, sum_low.to(tl.int64), mask=inside)
    tl.atomic_add(high + at, sum_high.to(tl.int64), mask=inside)


class GpuKernel(ReferenceKernel):
    """The reference kernel with sums and selections by Triton."""

    name = "gpu"

    def bound_sum(self, d: Interval, x: Interval | None, product: str) -> tuple[Tensor, Tensor]:
        ks, n, outputs = d.shape
        width = 1 if x is None else x.shape[2]
        shape = (ks, outputs) if x is None else (ks, outputs, width)
        low = torch.zeros(shape, dtype=torch.int64, device=d.lower.device)
        high = torch.zeros_like(low)
        out, inputs = tile(outputs, width, _LANES)
        # The first axis may be 2^31 long, the others 65,535; a longer one is refused by the driver.
        tiles = triton.cdiv(outputs, out), triton.cdiv(width, inputs)
        slices = max(1, min(_PROGRAMS // (ks * tiles[0] * tiles[1]), n // _SHORT), triton.cdiv(n, _SLICE))
        size = triton.cdiv(n, slices)
        factors, stride = factors_of(d, x)
        _sum_kernel[(ks * slices, *tiles)](
            *factors, low, high, n, outputs, width, stride, size, slices,
            BIAS=x is None, POINT=x is None or x.is_point, RUMP=product == "rump",
            OUT=out, IN=inputs, enable_fp_fusion=False,
        )  # fmt: skip
        return low, high

    def extremes(self, counts: Tensor, shape: tuple[int, ...], capped: bool, product: str) -> Extremes:
        return GpuExtremes(counts, shape, capped, product)

    def kept_bytes(self, rows: int) -> int:
        return 8 * room(rows)
