"""Selections on a GPU: for each entry of a parameter, the c most extreme bounds of a batch.

One program handles one k, one side (upper bounds, or lower bounds with the sign reversed) and one
tile of entries, and goes through a fragment's records in order. Each entry has slots for c values
and as many more. A bound below the entry's threshold goes into its next free slot. When slots may
run out, the program keeps the c smallest values and lowers the threshold. One launch handles all k
of a fragment and a parameter. The proofs are in docs/proofs/selections.md, with what it costs.
"""

from dataclasses import dataclass, field

import torch
import triton
import triton.language as tl
from torch import Tensor

from agt.bounds.interval import Interval
from agt.kernels.gpu_gradient import (
    contiguous_factors,
    gradient_bounds,
    input_kind,
    program_tile,
)
from agt.kernels.reference import EMPTY_SLOT
from agt.settings import QUANTA

_PROGRAM_LANES = 512  # entries of a parameter for each program
_PROGRAM_INPUTS = 64  # inputs of them, at most
# Records between two checks of how many slots are left.
_RECORDS_BETWEEN_CHECKS = tl.constexpr(32)
_SLOTS_AT_ONCE = tl.constexpr(4)  # slots that are read one after the other, without waiting
_MAX_SPARE_SLOTS = 1 << 20
_CLIP = tl.constexpr(QUANTA)
_ABOVE_ALL = tl.constexpr(QUANTA + 1)  # above every value


def slots_for(count: int) -> int:
    """Return how many slots (int32 numbers in memory) an entry of a parameter has on one side.

    A side is the selection of upper bounds, or that of lower bounds. ``count`` slots are for the
    selected values. About as many are spare, for bounds that may turn out not to be among the
    selected ones: at least the records between two checks of how many are left. More spare slots
    save time, as the values of an entry are reduced to ``count`` less often.

    Args:
        count: how many values are selected.
    """
    if count == 0:
        return 0
    spare_slots = min(max(count, _RECORDS_BETWEEN_CHECKS.value), _MAX_SPARE_SLOTS)
    return count + spare_slots


@triton.jit
def _find_level(slots, held, count, step, TILE_OUTPUTS: tl.constexpr, TILE_INPUTS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return a level for each entry, which separates its ``count`` smallest values from the others.

    A level is a number t with exactly ``count`` values below it, or with fewer below it and more at
    or below it. So the ``count`` smallest values are those below t, filled up with copies of t. It
    is found by bisection on the integers with three pivots (Lemma 5 of docs/proofs/selections.md).

    Args:
        slots: [TILE_OUTPUTS, TILE_INPUTS], the address of each entry's first slot, of int32 values.
        held: int32 [TILE_OUTPUTS, TILE_INPUTS], how many values each entry holds.
        count: how many values are selected.
        step: how many int32 numbers lie between two slots of one entry.
        TILE_OUTPUTS, TILE_INPUTS: the sizes of the tile of entries.

    Returns:
        int32 [TILE_OUTPUTS, TILE_INPUTS]; a number above all values for an entry that holds at most
        ``count`` values.
    """
    # The level lies in [low, high]; an empty interval ends the search of entries with few values.
    low = tl.full((TILE_OUTPUTS, TILE_INPUTS), -_CLIP, dtype=tl.int64)
    high = tl.where(held > count, low + 2 * _CLIP, low)
    max_held = tl.max(held)
    while tl.max(high - low) > 0:
        # Three pivots quarter the interval in each pass over the values.
        width = high - low
        m1 = low + (width >> 2)
        m2 = low + (width >> 1)
        m3 = low + ((3 * width) >> 2)
        # n1, n2, n3: how many values are at most the pivots m1, m2, m3.
        n1 = tl.full((TILE_OUTPUTS, TILE_INPUTS), 0, dtype=tl.int32)
        n2 = n1
        n3 = n1
        for start in range(0, max_held, _SLOTS_AT_ONCE):
            for offset in tl.static_range(_SLOTS_AT_ONCE):
                s = start + offset
                v = tl.load(slots + tl.cast(s, tl.int64) * step, mask=s < held, other=_ABOVE_ALL)
                n1 += (v <= m1).to(tl.int32)
                n2 += (v <= m2).to(tl.int32)
                n3 += (v <= m3).to(tl.int32)
        # Exactly ``count`` values are at most a pivot m: then m + 1 is a level.
        exact = tl.where(n1 == count, m1, tl.where(n2 == count, m2, m3)) + 1
        # The answer is above every pivot with at most ``count`` values, and not above the others.
        low = tl.where(
            n3 <= count, m3 + 1, tl.where(n2 <= count, m2 + 1, tl.where(n1 <= count, m1 + 1, low))
        )
        high = tl.where(n1 > count, m1, tl.where(n2 > count, m2, tl.where(n3 > count, m3, high)))
        done = (n1 == count) | (n2 == count) | (n3 == count)
        low = tl.where(done, exact, low)
        high = tl.where(done, exact, high)
    return tl.where(held > count, low, _ABOVE_ALL).to(tl.int32)


@triton.jit
def _keep_smallest(  # type: ignore[no-untyped-def]
    slots, held, threshold, count, step, TILE_OUTPUTS: tl.constexpr, TILE_INPUTS: tl.constexpr
):
    """Reduce each entry with more than ``count`` values to the ``count`` smallest, in its slots.

    Entries with at most ``count`` values stay unchanged. A reduced entry's threshold falls to the
    level that separates the kept values from the others: later values at or above it are not needed
    (Lemma 3 of docs/proofs/selections.md).

    Args:
        slots: [TILE_OUTPUTS, TILE_INPUTS], the address of each entry's first slot, of int32 values;
            the values are rearranged in memory.
        held: int32 [TILE_OUTPUTS, TILE_INPUTS], how many values each entry holds.
        threshold: int32 [TILE_OUTPUTS, TILE_INPUTS], the number that each entry's new values must
            be below.
        count: how many values are selected.
        step: how many int32 numbers lie between two slots of one entry.
        TILE_OUTPUTS, TILE_INPUTS: the sizes of the tile of entries.

    Returns:
        (how many values each entry holds now, the thresholds now), each int32
        [TILE_OUTPUTS, TILE_INPUTS].
    """
    # A slot is written by one thread and may be read by another: barriers stand before slots are
    # read, and after values have moved.
    tl.debug_barrier()
    level = _find_level(slots, held, count, step, TILE_OUTPUTS, TILE_INPUTS)
    filled = tl.full((TILE_OUTPUTS, TILE_INPUTS), 0, dtype=tl.int32)
    # A slot is overwritten only after the values before and at it were read, as ``filled`` counts
    # those that were kept.
    for s in range(0, tl.max(held)):
        v = tl.load(slots + tl.cast(s, tl.int64) * step, mask=s < held, other=_ABOVE_ALL)
        below = (s < held) & (v < level)
        tl.store(slots + filled.to(tl.int64) * step, v, mask=below)
        filled += below.to(tl.int32)
    # The values below the level are kept; copies of the level fill up to ``count``.
    remaining = tl.minimum(held, count)
    for s in range(tl.min(filled), count):
        missing = (filled <= s) & (s < remaining)
        tl.store(slots + tl.cast(s, tl.int64) * step, level, mask=missing)
    tl.debug_barrier()
    return remaining, tl.minimum(threshold, level)


@triton.jit
def update_kernel(  # type: ignore[no-untyped-def]
    gradient_lower, gradient_upper, inputs_lower, inputs_upper,
    values, held, thresholds, counts, slot_counts, first_slots,
    n, outputs, width, entries, inputs_stride, ks, slots_of_one_side,
    INPUT_KIND: tl.constexpr, CAPPED: tl.constexpr,
    TILE_OUTPUTS: tl.constexpr, TILE_INPUTS: tl.constexpr,
):  # fmt: skip
    """Add the gradient bounds of some records to the selections of one tile of entries.

    A program handles one k, one side, and a tile of [TILE_OUTPUTS, TILE_INPUTS] entries of the
    parameter. Side 0 selects the smallest upper bounds. Side 1 selects the largest lower bounds, as
    the smallest upper bounds on the gradients with the sign reversed.

    Args:
        gradient_lower, gradient_upper: float64 [K, n, out], bounds on the gradients of the loss in
            the layer's output, in quanta (units of clip level / 2^30).
        inputs_lower, inputs_upper: float64 [K or 1, n, in], bounds on the layer's inputs; not read
            for a bias.
        values: int32 [2, slots_of_one_side, out, in], the slots; those of one k begin at index
            ``first_slots[k]`` of each side; updated.
        held: int32 [2, K, out, in], how many slots of each entry hold a value; updated.
        thresholds: int32 [2, K, out, in], the number that new values must be below; updated.
        counts: int64 [K], how many values are selected.
        slot_counts: int64 [K], how many slots each entry has, from ``slots_for``.
        first_slots: int64 [K], where the slots of each k begin.
        n, outputs, width: the numbers of records, of outputs and of inputs.
        entries: outputs * width.
        inputs_stride: the numbers between the inputs of one k and the next; 0 if all k share them.
        ks: K.
        slots_of_one_side: the sum of all slot counts.
        INPUT_KIND: how a gradient is multiplied by an input, from ``input_kind``.
        CAPPED: whether to select from min(value, 0), in whole quanta.
        TILE_OUTPUTS, TILE_INPUTS: the sizes of a tile, from ``program_tile``.
    """
    k = (tl.program_id(0) // 2).to(tl.int64)
    side = (tl.program_id(0) % 2).to(tl.int64)
    j = tl.program_id(1) * TILE_OUTPUTS + tl.arange(0, TILE_OUTPUTS)
    i = tl.program_id(2) * TILE_INPUTS + tl.arange(0, TILE_INPUTS)
    inside = (j < outputs)[:, None] & (i < width)[None, :]
    # Lanes outside of the parameter read its last entry, and write nothing.
    j = tl.minimum(j, outputs - 1)
    i = tl.minimum(i, width - 1)
    entry = j.to(tl.int64)[:, None] * width + i[None, :]
    state = (side * ks + k) * entries + entry
    slots = values + (side * slots_of_one_side + tl.load(first_slots + k)) * entries + entry
    count = tl.load(counts + k).to(tl.int32)
    # An entry with at most this many values has room for all records until the next check, by
    # Lemma 4 of docs/proofs/selections.md.
    limit = tl.load(slot_counts + k).to(tl.int32) - _RECORDS_BETWEEN_CHECKS
    holding = tl.load(held + state, mask=inside, other=0)
    threshold = tl.load(thresholds + state, mask=inside, other=_ABOVE_ALL)
    # 1 or -1: the largest lower bounds are the smallest upper bounds with the sign reversed, by
    # Lemma 1 of docs/proofs/selections.md.
    sign = 1.0 - 2.0 * side.to(tl.float64)
    stop = tl.where(count > 0, n, 0)
    for start in range(0, stop, _RECORDS_BETWEEN_CHECKS):
        if tl.max(holding) > limit:
            holding, threshold = _keep_smallest(
                slots, holding, threshold, count, entries, TILE_OUTPUTS, TILE_INPUTS
            )
        for s in range(start, tl.minimum(start + _RECORDS_BETWEEN_CHECKS, stop)):
            row = k * n + s
            gradient_offset = row * outputs
            inputs_offset = k * inputs_stride + (row - k * n) * width
            v = gradient_bounds(
                gradient_lower + gradient_offset, gradient_upper + gradient_offset,
                inputs_lower + inputs_offset, inputs_upper + inputs_offset,
                j, i, sign, INPUT_KIND,
            )[1]  # fmt: skip
            # The low 32 bits are the bound in quanta (Lemma 4 of docs/proofs/sums.md).
            v = tl.broadcast_to(v.to(tl.int32), (TILE_OUTPUTS, TILE_INPUTS))
            if CAPPED:
                v = tl.minimum(v, 0)
            # A value that is not below the threshold is not among the ``count`` smallest, by
            # Lemma 2 of docs/proofs/selections.md.
            below = inside & (v < threshold)
            tl.store(slots + holding.to(tl.int64) * entries, v, mask=below)
            holding += below.to(tl.int32)
    tl.store(held + state, holding, mask=inside)
    tl.store(thresholds + state, threshold, mask=inside)


@triton.jit
def result_kernel(  # type: ignore[no-untyped-def]
    values, held, counts, first_slots, sums, outputs, width, entries, ks, slots_of_one_side,
    TILE_OUTPUTS: tl.constexpr, TILE_INPUTS: tl.constexpr,
):  # fmt: skip
    """Write the sum of the ``counts[k]`` smallest values of each entry; of all values if fewer.

    A program handles one k, one side, and a tile of [TILE_OUTPUTS, TILE_INPUTS] entries.

    Args:
        values: int32 [2, slots_of_one_side, out, in], the slots; those of one k begin at index
            ``first_slots[k]`` of each side.
        held: int32 [2, K, out, in], how many slots of each entry hold a value.
        counts: int64 [K], how many values are selected.
        first_slots: int64 [K], where the slots of each k begin.
        sums: int64 [2, K, out, in], overwritten with the sums.
        outputs, width, entries: the numbers of outputs and of inputs, and their product.
        ks: K.
        slots_of_one_side: the sum of all slot counts.
        TILE_OUTPUTS, TILE_INPUTS: the sizes of a tile, from ``program_tile``.
    """
    k = (tl.program_id(0) // 2).to(tl.int64)
    side = (tl.program_id(0) % 2).to(tl.int64)
    j = tl.program_id(1) * TILE_OUTPUTS + tl.arange(0, TILE_OUTPUTS)
    i = tl.program_id(2) * TILE_INPUTS + tl.arange(0, TILE_INPUTS)
    inside = (j < outputs)[:, None] & (i < width)[None, :]
    entry = j.to(tl.int64)[:, None] * width + i[None, :]
    state = (side * ks + k) * entries + entry
    slots = values + (side * slots_of_one_side + tl.load(first_slots + k)) * entries + entry
    holding = tl.load(held + state, mask=inside, other=0)
    count = tl.load(counts + k).to(tl.int32)
    level = _find_level(slots, holding, count, entries, TILE_OUTPUTS, TILE_INPUTS)
    total = tl.full((TILE_OUTPUTS, TILE_INPUTS), 0, dtype=tl.int64)
    below = tl.full((TILE_OUTPUTS, TILE_INPUTS), 0, dtype=tl.int32)
    for s in range(0, tl.max(holding)):
        v = tl.load(slots + tl.cast(s, tl.int64) * entries, mask=s < holding, other=_ABOVE_ALL)
        is_below = (s < holding) & (v < level)
        total += tl.where(is_below, v, 0).to(tl.int64)
        below += is_below.to(tl.int32)
    # The selected values that are not below the level are copies of it, by
    # Lemma 6 of docs/proofs/selections.md.
    total += (tl.minimum(holding, count) - below).to(tl.int64) * level
    tl.store(sums + state, total, mask=inside)


@dataclass
class GpuSelection:
    """The selection of the GPU kernel, which holds bounds as int32 values in slots on the GPU.

    It takes about 16 bytes for each selected pair of bounds, c of them for each entry and each k.

    Attributes:
        counts: int64 [K] on the GPU, how many bounds to select for each number of edits k.
        shape: the parameter's shape, (out, in) or (out,).
        capped: whether to select from min(upper bound, 0) and max(lower bound, 0).
        product: "exact" or "rump", how two intervals are multiplied.
    """

    counts: Tensor
    shape: tuple[int, ...]
    capped: bool
    product: str
    # The arrays that ``update_kernel`` takes. The first axis is the side: 0 for upper bounds, 1 for
    # lower bounds with the sign reversed.
    _values: Tensor = field(init=False)  # int32 [2, slots of all k, *shape]
    _held: Tensor = field(init=False)  # int32 [2, K, *shape], how many slots hold a value
    _thresholds: Tensor = field(init=False)  # int32 [2, K, *shape], new values must be below
    _slot_counts: Tensor = field(init=False)  # int64 [K]
    _first_slots: Tensor = field(init=False)  # int64 [K], the sum of the slot counts before

    def __post_init__(self) -> None:
        """Allocate the slots, all of them free, with thresholds above every bound."""
        slot_counts = [slots_for(count) for count in self.counts.tolist()]
        self._slot_counts = self.counts.new_tensor(slot_counts)
        self._first_slots = self._slot_counts.cumsum(0) - self._slot_counts
        self._slots_of_one_side = sum(slot_counts)
        self._values = self._new((2, self._slots_of_one_side, *self.shape), torch.int32)
        self._held = torch.zeros(
            (2, len(slot_counts), *self.shape), dtype=torch.int32, device=self.counts.device
        )
        self._thresholds = torch.full_like(self._held, QUANTA + 1)

    def update(self, output_gradient: Interval, inputs: Interval | None) -> None:
        """Add the gradient bounds of some more records of the batch to the selection.

        Args:
            output_gradient: [K, n, out] bounds on the gradients of the loss in the layer's output,
                in quanta (units of clip level / 2^30).
            inputs: [K or 1, n, in] bounds on the layer's inputs; None for a bias.
        """
        factors, inputs_stride = contiguous_factors(output_gradient, inputs)
        grid, sizes, tile = self._launch_settings()
        outputs, width, entries, ks, slots_of_one_side = sizes
        update_kernel[grid](
            *factors, self._values, self._held, self._thresholds,
            self.counts, self._slot_counts, self._first_slots,
            output_gradient.shape[1], outputs, width, entries, inputs_stride, ks, slots_of_one_side,
            INPUT_KIND=input_kind(inputs, self.product), CAPPED=self.capped,
            **tile, enable_fp_fusion=False,
        )  # fmt: skip

    def selected_values(self) -> tuple[Tensor, Tensor]:
        """Return the bounds that are selected so far, in any order.

        Returns:
            (largest lower bounds with the sign reversed, smallest upper bounds), both int32
            [K, *shape, c] with c the largest of all counts; ``EMPTY_SLOT`` where there is no value.
        """
        shape = (2, len(self.counts), *self.shape, int(self.counts.max()))
        selected = torch.full(shape, EMPTY_SLOT, dtype=torch.int32, device=self.counts.device)
        slots_of_ks = zip(
            self.counts.tolist(),
            self._first_slots.tolist(),
            self._slot_counts.tolist(),
            strict=True,
        )
        for k_index, (count, first, size) in enumerate(slots_of_ks):
            for side in (0, 1):  # 0: upper bounds; 1: lower bounds with the sign reversed
                slots = self._values[side, first : first + size].movedim(0, -1)  # [*shape, size]
                slot_numbers = torch.arange(size, device=slots.device)
                is_held = slot_numbers < self._held[side, k_index][..., None]
                values = torch.where(is_held, slots, EMPTY_SLOT)
                smallest = values.topk(count, largest=False)
                selected[side, k_index, ..., :count] = smallest.values
        return selected[1], selected[0]

    def result(self) -> tuple[Tensor, Tensor]:
        """Return the sums of the selected bounds; zeros where no record came.

        Returns:
            (sum of the largest lower bounds, sum of the smallest upper bounds), both int64 [K,
            *shape].
        """
        sums = self._new((2, len(self.counts), *self.shape), torch.int64)
        grid, sizes, tile = self._launch_settings()
        result_kernel[grid](
            self._values, self._held, self.counts, self._first_slots, sums, *sizes, **tile
        )
        return sums[1].neg(), sums[0]

    def _new(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Return an uninitialised tensor on the device of the selection."""
        return torch.empty(shape, dtype=dtype, device=self.counts.device)

    def _launch_settings(self) -> tuple[tuple[int, int, int], list[int], dict[str, int]]:
        """Return the grid, the sizes and the tile that both Triton kernels are launched with.

        Returns:
            (the numbers of programs along each axis of the grid; [outputs, width, entries, ks,
            slots_of_one_side], the positional arguments of these names; the tile's sizes as keyword
            arguments).
        """
        outputs = self.shape[0]
        width = 1  # a bias is the weight of one input
        if len(self.shape) > 1:
            width = self.shape[1]
        tile_outputs, tile_inputs = program_tile(outputs, width, _PROGRAM_LANES, _PROGRAM_INPUTS)
        ks = len(self.counts)
        grid = (2 * ks, triton.cdiv(outputs, tile_outputs), triton.cdiv(width, tile_inputs))
        sizes = [outputs, width, outputs * width, ks, self._slots_of_one_side]
        return grid, sizes, {"TILE_OUTPUTS": tile_outputs, "TILE_INPUTS": tile_inputs}
