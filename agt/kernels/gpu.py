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
_MAX_SLICE_RECORDS = 2048  # records of each program
_MIN_SLICE_RECORDS = 64  # records of each program, where there are too few to keep a GPU busy
_BUSY_PROGRAMS = 2048  # programs that keep a GPU busy


@triton.jit
def sum_kernel(  # type: ignore[no-untyped-def]
    gradient_lower, gradient_upper, inputs_lower, inputs_upper, sum_lower, sum_upper,
    n, outputs, width, inputs_stride, slice_records, slices,
    INPUT_KIND: tl.constexpr, TILE_OUTPUTS: tl.constexpr, TILE_INPUTS: tl.constexpr,
):  # fmt: skip
    """Add the gradient bounds of one slice of records to one tile of the sums.

    A program handles one k, one slice of records, and a tile of [TILE_OUTPUTS, TILE_INPUTS]
    entries of the parameter.

    Args:
        gradient_lower, gradient_upper: float64 [K, n, out], bounds on the gradients of the loss in
            the layer's output, in quanta (units of clip level / 2^30).
        inputs_lower, inputs_upper: float64 [K or 1, n, in], bounds on the layer's inputs; not read
            for a bias.
        sum_lower, sum_upper: int64 [K, out, in], the sums in quanta (clip level / 2^30); updated.
        n, outputs, width: the numbers of records, of outputs and of inputs.
        inputs_stride: the numbers between the inputs of one k and the next; 0 if all k share them.
        slice_records: how many records each of the ``slices`` programs of a tile handles.
        slices: how many slices the records are divided into.
        INPUT_KIND: how a gradient is multiplied by an input, from ``input_kind``.
        TILE_OUTPUTS, TILE_INPUTS: the sizes of a tile, from ``program_tile``.
    """
    k = (tl.program_id(0) // slices).to(tl.int64)
    start = (tl.program_id(0) % slices) * slice_records
    j = tl.program_id(1) * TILE_OUTPUTS + tl.arange(0, TILE_OUTPUTS)
    i = tl.program_id(2) * TILE_INPUTS + tl.arange(0, TILE_INPUTS)
    inside = (j < outputs)[:, None] & (i < width)[None, :]
    # Lanes outside of the parameter read its last entry, and write nothing.
    j = tl.minimum(j, outputs - 1)
    i = tl.minimum(i, width - 1)
    total_lower = tl.zeros((TILE_OUTPUTS, TILE_INPUTS), dtype=tl.int64)
    total_upper = tl.zeros((TILE_OUTPUTS, TILE_INPUTS), dtype=tl.int64)
    stop = min(start + slice_records, n)
    for s in range(start, stop):
        row = k * n + s  # int64, as k is and addresses must be
        gradient_offset = row * outputs
        inputs_offset = k * inputs_stride + (row - k * n) * width
        smallest, largest = gradient_bounds(
            gradient_lower + gradient_offset, gradient_upper + gradient_offset,
            inputs_lower + inputs_offset, inputs_upper + inputs_offset,
            j, i, 1.0, INPUT_KIND,
        )  # fmt: skip
        total_lower += smallest
        total_upper += largest
    # Every bound came with the bits of MAGIC added to it, which are subtracted once for each record
    # (modulo 2^64: Lemma 4 of docs/proofs/sums.md).
    magics = (stop - start).to(tl.int64) * MAGIC_BITS
    index = (k * outputs + j[:, None]) * width + i[None, :]
    tl.atomic_add(sum_lower + index, total_lower - magics, mask=inside)
    tl.atomic_add(sum_upper + index, total_upper - magics, mask=inside)


class GpuKernel(ReferenceKernel):
    """The kernel for GPUs: each method returns the numbers of ``ReferenceKernel``, bit for bit.

    Sums of bounds and selections are in Triton. Everything else is the reference kernel's, in
    PyTorch.
    """

    name = "gpu"

    def bound_sum(
        self, output_gradient: Interval, inputs: Interval | None, product: str
    ) -> tuple[Tensor, Tensor]:
        """Return the sums over records of the lower and of the upper bounds on their gradients.

        Args:
            output_gradient: [K, n, out] bounds on the gradients of the loss in the layer's output,
                for K numbers of edits, in quanta (units of clip level / 2^30).
            inputs: [K or 1, n, in] bounds on the layer's inputs; None for a bias.
            product: how two intervals are multiplied: "exact" (the four corners) or "rump"
                (midpoint and radius, which is wider).

        Returns:
            (sum of lower bounds, sum of upper bounds) in quanta (clip level / 2^30), both int64
            [K, out, in], or [K, out] for a bias.
        """
        ks, n, outputs = output_gradient.shape
        width = 1  # a bias is the weight of one input, which is always 1
        shape: tuple[int, ...] = (ks, outputs)
        if inputs is not None:
            width = inputs.shape[2]
            shape = (ks, outputs, width)
        low = torch.zeros(shape, dtype=torch.int64, device=output_gradient.lower.device)
        high = torch.zeros_like(low)
        tile_outputs, tile_inputs = program_tile(outputs, width, _PROGRAM_LANES, _PROGRAM_INPUTS)
        # The first axis of a grid may be 2^31 long, the others 65,535; the driver refuses more.
        tiles = triton.cdiv(outputs, tile_outputs), triton.cdiv(width, tile_inputs)
        # Records are divided into as many slices as keep the GPU busy, but not into tiny ones, nor
        # into slices of more than _MAX_SLICE_RECORDS. Any number of slices gives the same sums.
        slices_for_a_busy_gpu = _BUSY_PROGRAMS // (ks * tiles[0] * tiles[1])
        slices = max(
            1,
            min(slices_for_a_busy_gpu, n // _MIN_SLICE_RECORDS),
            triton.cdiv(n, _MAX_SLICE_RECORDS),
        )
        slice_records = max(1, triton.cdiv(n, slices))
        slices = max(1, triton.cdiv(n, slice_records))  # no slice begins after the last record
        factors, inputs_stride = contiguous_factors(output_gradient, inputs)
        sum_kernel[(ks * slices, *tiles)](
            *factors, low, high, n, outputs, width, inputs_stride, slice_records, slices,
            INPUT_KIND=input_kind(inputs, product),
            TILE_OUTPUTS=tile_outputs, TILE_INPUTS=tile_inputs, enable_fp_fusion=False,
        )  # fmt: skip
        return low, high

    def start_selection(
        self, counts: Tensor, shape: tuple[int, ...], capped: bool, product: str
    ) -> BoundSelection:
        """Return an empty selection of the most extreme bounds of each entry of a parameter.

        For each k it selects the c smallest upper bounds and the c largest lower bounds of a
        batch's records, whose sums bound what c records can contribute to the batch's gradient.

        Args:
            counts: int64 [K] on the GPU, c for each number of edits k; at most the number of
                records to come.
            shape: the parameter's shape, (out, in) or (out,).
            capped: True to select from min(upper bound, 0) and max(lower bound, 0), so that the
                results are extreme sums over at most c records instead of exactly c.
            product: "exact" or "rump", how two intervals are multiplied.
        """
        return GpuSelection(counts, shape, capped, product)

    def selection_bytes(self, rows: int) -> int:
        """Return the bytes that a selection takes for one entry of a parameter and one k.

        Args:
            rows: how many upper bounds and how many lower bounds are selected.
        """
        return 8 * slots_for(rows)  # an int32 in each slot, on each of the two sides
