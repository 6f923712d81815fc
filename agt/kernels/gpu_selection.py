"""Selections on a GPU: for each number of a parameter, the c most extreme bounds of a batch.

One program handles one k, one side (upper bounds, or lower bounds negated) and one tile of numbers,
and goes through a fragment's records in order. Each number has slots for c values and as many more.
A bound below the number's threshold goes into its next free slot. When a number may run out of
slots, the program keeps its c smallest values and lowers its threshold. One launch handles all k of
a fragment and a parameter. The proofs are in docs/proofs/selections.md, with what it costs.
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

_PROGRAM_LANES = 512  # numbers of a parameter for each program
_PROGRAM_INPUTS = 64  # inputs of them, at most
# Records between two checks of how many slots are left.
_RECORDS_BETWEEN_CHECKS = tl.constexpr(32)
_SLOTS_AT_ONCE = tl.constexpr(4)  # slots that are read one after the other, without waiting
_MAX_SPARE_SLOTS = 1 << 20
_CLIP = tl.constexpr(QUANTA)
_ABOVE_ALL = tl.constexpr(QUANTA + 1)  # above every value


def slots_for(count: int) -> int:
    """Return how many slots a number has on each side if ``count`` values are selected."""
    if not count:
        return 0
    return count + min(max(count, _RECORDS_BETWEEN_CHECKS.value), _MAX_SPARE_SLOTS)


@triton.jit
def _find_level(slots, held, count, step, OUT: tl.constexpr, IN: tl.constexpr):  # type: ignore[no-untyped-def]
    """Find a level between the ``count`` smallest values of each number and the others.

    Lemma 5 of docs/proofs/selections.md.

    Args:
        slots: [OUT, IN], the address of each number's first slot; the others are ``step`` apart.
        held: int32 [OUT, IN], how many values each number holds.

    Returns:
        int32 [OUT, IN]. For a number that holds more than ``count`` values, a level t with exactly
        ``count`` of them below t, or fewer below t and more at or below it. Otherwise a number
        above all values.
    """
    low = tl.full((OUT, IN), -_CLIP, dtype=tl.int64)
    high = tl.where(held > count, low + 2 * _CLIP, low)
    most_held = tl.max(held)
    while tl.max(high - low) > 0:
        # Three pivots quarter the interval in each pass over the values.
        width = high - low
        m1 = low + (width >> 2)
        m2 = low + (width >> 1)
        m3 = low + ((3 * width) >> 2)
        n1 = tl.full((OUT, IN), 0, dtype=tl.int32)
        n2 = n1
        n3 = n1
        for start in range(0, most_held, _SLOTS_AT_ONCE):
            for offset in tl.static_range(_SLOTS_AT_ONCE):
                s = start + offset
                v = tl.load(slots + tl.cast(s, tl.int64) * step, mask=s < held, other=_ABOVE_ALL)
                n1 += (v <= m1).to(tl.int32)
                n2 += (v <= m2).to(tl.int32)
                n3 += (v <= m3).to(tl.int32)
        exact = tl.where(n1 == count, m1, tl.where(n2 == count, m2, m3)) + 1
        low = tl.where(
            n3 <= count, m3 + 1, tl.where(n2 <= count, m2 + 1, tl.where(n1 <= count, m1 + 1, low))
        )
        high = tl.where(n1 > count, m1, tl.where(n2 > count, m2, tl.where(n3 > count, m3, high)))
        done = (n1 == count) | (n2 == count) | (n3 == count)
        low = tl.where(done, exact, low)
        high = tl.where(done, exact, high)
    return tl.where(held > count, low, _ABOVE_ALL).to(tl.int32)


@triton.jit
def _keep_smallest(slots, held, threshold, count, step, OUT: tl.constexpr, IN: tl.constexpr):  # type: ignore[no-untyped-def]
    """Keep the ``count`` smallest values of each number that holds more.

    Lemma 3 of docs/proofs/selections.md. Arguments as for ``_find_level``.

    Returns:
        How many values each number holds now, and the thresholds now.
    """
    # A slot is written by one thread and may be read by another: barriers stand before slots are
    # read, and after values have moved.
    tl.debug_barrier()
    level = _find_level(slots, held, count, step, OUT, IN)
    filled = tl.full((OUT, IN), 0, dtype=tl.int32)
    # A slot is overwritten only after the values before and at it were read, as ``filled`` counts
    # those that were kept.
    for s in range(0, tl.max(held)):
        v = tl.load(slots + tl.cast(s, tl.int64) * step, mask=s < held, other=_ABOVE_ALL)
        below = (s < held) & (v < level)
        tl.store(slots + filled.to(tl.int64) * step, v, mask=below)
        filled += below.to(tl.int32)
    remaining = tl.minimum(held, count)
    for s in range(tl.min(filled), count):
        missing = (filled <= s) & (s < remaining)
        tl.store(slots + tl.cast(s, tl.int64) * step, level, mask=missing)
    tl.debug_barrier()
    return remaining, tl.minimum(threshold, level)


@triton.jit
def update_kernel(  # type: ignore[no-untyped-def]
    d_lower, d_upper, x_lower, x_upper, values, held, thresholds, counts, slot_counts, first_slots,
    n, outputs, width, parameters, x_stride, ks, slots_of_a_side,
    X: tl.constexpr, CAPPED: tl.constexpr, OUT: tl.constexpr, IN: tl.constexpr,
):  # fmt: skip
    """Add the bounds of a fragment's records to the selections.

    Args:
        d_lower, d_upper: [K, n, out].
        x_lower, x_upper: [K or 1, n, in], with ``x_stride`` numbers between k.
        values: int32, for each side ``slots_of_a_side`` arrays [out, in]; those of k begin at the
            ``first_slots[k]``-th.
        held, thresholds: int32 [2, K, out, in].
        counts, slot_counts, first_slots: int64 [K].
        X: the kind of x, from ``input_kind``.
        CAPPED: whether to select from min(bound, 0).
        OUT, IN: the tile of a program.
    """
    k = (tl.program_id(0) // 2).to(tl.int64)
    side = (tl.program_id(0) % 2).to(tl.int64)
    j = tl.program_id(1) * OUT + tl.arange(0, OUT)
    i = tl.program_id(2) * IN + tl.arange(0, IN)
    inside = (j < outputs)[:, None] & (i < width)[None, :]
    # Lanes outside read what is there.
    j = tl.minimum(j, outputs - 1)
    i = tl.minimum(i, width - 1)
    parameter = j.to(tl.int64)[:, None] * width + i[None, :]
    state = (side * ks + k) * parameters + parameter
    slots = values + (side * slots_of_a_side + tl.load(first_slots + k)) * parameters + parameter
    count = tl.load(counts + k).to(tl.int32)
    # Lemma 4 of docs/proofs/selections.md: a number with at most this many values has room for
    # the records until the next check.
    limit = tl.load(slot_counts + k).to(tl.int32) - _RECORDS_BETWEEN_CHECKS
    holding = tl.load(held + state, mask=inside, other=0)
    threshold = tl.load(thresholds + state, mask=inside, other=_ABOVE_ALL)
    turn = 1.0 - 2.0 * side.to(tl.float64)  # Lemma 1 of docs/proofs/selections.md
    stop = tl.where(count > 0, n, 0)
    for start in range(0, stop, _RECORDS_BETWEEN_CHECKS):
        if tl.max(holding) > limit:
            holding, threshold = _keep_smallest(
                slots, holding, threshold, count, parameters, OUT, IN
            )
        for s in range(start, tl.minimum(start + _RECORDS_BETWEEN_CHECKS, stop)):
            row = k * n + s
            d_offset = row * outputs
            x_offset = k * x_stride + (row - k * n) * width
            v = gradient_bounds(
                d_lower + d_offset, d_upper + d_offset, x_lower + x_offset, x_upper + x_offset,
                j, i, turn, X,
            )[1]  # fmt: skip
            v = tl.broadcast_to(v.to(tl.int32), (OUT, IN))
            if CAPPED:
                v = tl.minimum(v, 0)
            # Lemma 2 of docs/proofs/selections.md: a value that is not below is not needed.
            below = inside & (v < threshold)
            tl.store(slots + holding.to(tl.int64) * parameters, v, mask=below)
            holding += below.to(tl.int32)
    tl.store(held + state, holding, mask=inside)
    tl.store(thresholds + state, threshold, mask=inside)


@triton.jit
def result_kernel(  # type: ignore[no-untyped-def]
    values, held, counts, first_slots, sums, outputs, width, parameters, ks, slots_of_a_side,
    OUT: tl.constexpr, IN: tl.constexpr,
):  # fmt: skip
    """Sum the ``counts[k]`` smallest values that each number holds; all of them if fewer.

    Args:
        values, held, counts, first_slots, slots_of_a_side: as for ``update_kernel``.
        sums: int64 [2, K, out, in], the result.
    """
    k = (tl.program_id(0) // 2).to(tl.int64)
    side = (tl.program_id(0) % 2).to(tl.int64)
    j = tl.program_id(1) * OUT + tl.arange(0, OUT)
    i = tl.program_id(2) * IN + tl.arange(0, IN)
    inside = (j < outputs)[:, None] & (i < width)[None, :]
    parameter = j.to(tl.int64)[:, None] * width + i[None, :]
    state = (side * ks + k) * parameters + parameter
    slots = values + (side * slots_of_a_side + tl.load(first_slots + k)) * parameters + parameter
    holding = tl.load(held + state, mask=inside, other=0)
    count = tl.load(counts + k).to(tl.int32)
    level = _find_level(slots, holding, count, parameters, OUT, IN)
    total = tl.full((OUT, IN), 0, dtype=tl.int64)
    below = tl.full((OUT, IN), 0, dtype=tl.int32)
    for s in range(0, tl.max(holding)):
        v = tl.load(slots + tl.cast(s, tl.int64) * parameters, mask=s < holding, other=_ABOVE_ALL)
        is_below = (s < holding) & (v < level)
        total += tl.where(is_below, v, 0).to(tl.int64)
        below += is_below.to(tl.int32)
    # Lemma 6 of docs/proofs/selections.md: the level itself fills up the sum.
    total += (tl.minimum(holding, count) - below).to(tl.int64) * level
    tl.store(sums + state, total, mask=inside)


@dataclass
class GpuSelection:
    """The selection of the GPU kernel; it takes 16 c bytes for each number and k.

    Attributes:
        counts, shape, capped, product: as for ``ReferenceKernel.start_selection``.
    """

    counts: Tensor
    shape: tuple[int, ...]
    capped: bool
    product: str
    # The arrays that ``update_kernel`` takes.
    _values: Tensor = field(init=False)
    _held: Tensor = field(init=False)
    _thresholds: Tensor = field(init=False)
    _slot_counts: Tensor = field(init=False)
    _first_slots: Tensor = field(init=False)

    def __post_init__(self) -> None:
        slot_counts = [slots_for(count) for count in self.counts.tolist()]
        self._slot_counts = self.counts.new_tensor(slot_counts)
        self._first_slots = self._slot_counts.cumsum(0) - self._slot_counts
        self._slots_of_a_side = sum(slot_counts)
        self._values = self._new((2, self._slots_of_a_side, *self.shape), torch.int32)
        self._held = torch.zeros(
            (2, len(slot_counts), *self.shape), dtype=torch.int32, device=self.counts.device
        )
        self._thresholds = torch.full_like(self._held, QUANTA + 1)

    def update(self, d: Interval, x: Interval | None) -> None:
        """Add the records of one fragment, as ``BoundSelection.update``."""
        factors, x_stride = contiguous_factors(d, x)
        grid, sizes, tile = self._launch_settings()
        outputs, width, parameters, ks, slots_of_a_side = sizes
        update_kernel[grid](
            *factors, self._values, self._held, self._thresholds,
            self.counts, self._slot_counts, self._first_slots,
            d.shape[1], outputs, width, parameters, x_stride, ks, slots_of_a_side,
            X=input_kind(x, self.product), CAPPED=self.capped,
            **tile, enable_fp_fusion=False,
        )  # fmt: skip

    def selected_values(self) -> tuple[Tensor, Tensor]:
        """Return the selected bounds so far, as ``BoundSelection.selected_values``."""
        shape = (2, len(self.counts), *self.shape, int(self.counts.max()))
        selected = torch.full(shape, EMPTY_SLOT, dtype=torch.int32, device=self.counts.device)
        slots_of_k = (t.tolist() for t in (self.counts, self._first_slots, self._slot_counts))
        for k, (count, first, size) in enumerate(zip(*slots_of_k, strict=True)):
            for side in (0, 1):
                values = self._values[side, first : first + size].movedim(0, -1)
                is_held = torch.arange(size, device=values.device) < self._held[side, k][..., None]
                smallest = torch.where(is_held, values, EMPTY_SLOT).topk(count, largest=False)
                selected[side, k, ..., :count] = smallest.values
        return selected[1], selected[0]

    def result(self) -> tuple[Tensor, Tensor]:
        """Return the sums of the selected bounds, as ``BoundSelection.result``."""
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
        """Return how both kernels are launched.

        Returns:
            The grid; (outputs, width, parameters, ks, slots_of_a_side); the tile of a program.
        """
        outputs = self.shape[0]
        width = self.shape[1] if len(self.shape) > 1 else 1
        out, inputs = program_tile(outputs, width, _PROGRAM_LANES, _PROGRAM_INPUTS)
        ks = len(self.counts)
        grid = (2 * ks, triton.cdiv(outputs, out), triton.cdiv(width, inputs))
        sizes = [outputs, width, outputs * width, ks, self._slots_of_a_side]
        return grid, sizes, {"OUT": out, "IN": inputs}
