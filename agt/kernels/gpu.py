"""The GPU kernel, in Triton: sums of gradients here, selections in ``gpu_selection``.

One launch handles all k of a fragment, with a program for each (k, tile of outputs, tile of inputs,
slice of records). Programs add their integers to the result atomically; these are integers, so that
the order does not matter. Record indices are int32, at most 2^30 + 2^11, and addresses int64.

The proofs, and what it costs, are in docs/proofs/sums.md.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from agt.bounds.interval import Interval
from agt.kernels.gpu_gradient import (
    MAGIC_BITS,
    contiguous_factors,
    gradient_bounds,
    input_kind,
    program_tile,
)
from agt.kernels.gpu_selection import GpuSelection, slots_for
from agt.kernels.reference import BoundSelection, ReferenceKernel

_PROGRAM_LANES = 1024  # numbers of a parameter for each program
_PROGRAM_INPUTS = 256  # inputs of them, at most
_MAX_SLICE_RECORDS = 2048  # for each program
_MIN_SLICE_RECORDS = 64  # for each program, where there are too few to keep a GPU busy
_BUSY_PROGRAMS = 2048  # that keep a GPU busy


@triton.jit
def sum_kernel(  # type: ignore[no-untyped-def]
    d_lower, d_upper, x_lower, x_upper, low, high, n, outputs, width, x_stride, size, slices,
    X: tl.constexpr, OUT: tl.constexpr, IN: tl.constexpr,
):  # fmt: skip
    """Add the bounds of a slice of records to the sums.

    Args:
        d_lower, d_upper: [K, n, out].
        x_lower, x_upper: [K or 1, n, in], with ``x_stride`` numbers between k.
        low, high: int64 [K, out, in], the sums.
        size: records for each of the ``slices`` programs of a tile.
        X: the kind of x, from ``input_kind``.
        OUT, IN: the tile of a program.
    """
    k = (tl.program_id(0) // slices).to(tl.int64)
    start = (tl.program_id(0) % slices) * size
    j = tl.program_id(1) * OUT + tl.arange(0, OUT)
    i = tl.program_id(2) * IN + tl.arange(0, IN)
    inside = (j < outputs)[:, None] & (i < width)[None, :]
    # Lanes outside read what is there.
    j = tl.minimum(j, outputs - 1)
    i = tl.minimum(i, width - 1)
    sum_low = tl.zeros((OUT, IN), dtype=tl.int64)
    sum_high = tl.zeros((OUT, IN), dtype=tl.int64)
    stop = min(start + size, n)
    for s in range(start, stop):
        row = k * n + s  # int64, as k is and addresses must be
        d_offset = row * outputs
        x_offset = k * x_stride + (row - k * n) * width
        smallest, largest = gradient_bounds(
            d_lower + d_offset, d_upper + d_offset, x_lower + x_offset, x_upper + x_offset,
            j, i, 1.0, X,
        )  # fmt: skip
        sum_low += smallest
        sum_high += largest
    # Lemma 4 of docs/proofs/sums.md: the bits of MAGIC, once for each record, modulo 2^64.
    magics = (stop - start).to(tl.int64) * MAGIC_BITS
    index = (k * outputs + j[:, None]) * width + i[None, :]
    tl.atomic_add(low + index, sum_low - magics, mask=inside)
    tl.atomic_add(high + index, sum_high - magics, mask=inside)


class GpuKernel(ReferenceKernel):
    """The kernel for GPUs, with the contract of ``ReferenceKernel``.

    Bound sums and selections are in Triton; everything else is the reference kernel's, in PyTorch.
    """

    name = "gpu"

    def bound_sum(self, d: Interval, x: Interval | None, product: str) -> tuple[Tensor, Tensor]:
        """Return the sums over records of the bounds on their gradients."""
        ks, n, outputs = d.shape
        width = 1 if x is None else x.shape[2]
        shape = (ks, outputs) if x is None else (ks, outputs, width)
        low = torch.zeros(shape, dtype=torch.int64, device=d.lower.device)
        high = torch.zeros_like(low)
        out, inputs = program_tile(outputs, width, _PROGRAM_LANES, _PROGRAM_INPUTS)
        # The first axis of a grid may be 2^31 long, the others 65,535; the driver refuses more.
        tiles = triton.cdiv(outputs, out), triton.cdiv(width, inputs)
        slices_for_a_busy_gpu = _BUSY_PROGRAMS // (ks * tiles[0] * tiles[1])
        slices = max(
            1,
            min(slices_for_a_busy_gpu, n // _MIN_SLICE_RECORDS),
            triton.cdiv(n, _MAX_SLICE_RECORDS),
        )
        size = max(1, triton.cdiv(n, slices))
        slices = max(1, triton.cdiv(n, size))  # no slice begins after the last record
        factors, x_stride = contiguous_factors(d, x)
        sum_kernel[(ks * slices, *tiles)](
            *factors, low, high, n, outputs, width, x_stride, size, slices,
            X=input_kind(x, product), OUT=out, IN=inputs, enable_fp_fusion=False,
        )  # fmt: skip
        return low, high

    def start_selection(
        self, counts: Tensor, shape: tuple[int, ...], capped: bool, product: str
    ) -> BoundSelection:
        """Start a selection of the most extreme bounds of each number of a parameter."""
        return GpuSelection(counts, shape, capped, product)

    def selection_bytes(self, rows: int) -> int:
        """Return the memory of a selection of ``rows`` bounds, for one number and one k."""
        return 8 * slots_for(rows)
