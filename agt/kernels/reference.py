"""The reference kernel: sums of per-record gradients as exact integers, in plain PyTorch.

``ReferenceKernel`` is the contract in code. Other kernels inherit from it and compute some of it
faster, with the same numbers, bit for bit. The proofs are in docs/proofs/sums.md.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from agt.bounds import rounding
from agt.bounds.interval import Interval
from agt.bounds.products import PRODUCTS, Bounds, Products, corners
from agt.settings import QUANTA

EMPTY_SLOT = 2**31 - 1  # int32, beyond every bound: a selection has no value here
RUMP_ROUNDINGS = 64  # in units of eps |d| |x|; Lemma 3 of docs/proofs/sums.md
_BOUNDS_BLOCK_NUMBERS = 1 << 21  # of a [K, records, out, in] block of bounds


class BoundSelection(Protocol):
    """A selection of the most extreme bounds of each parameter, over all records of a batch.

    It selects the c least upper bounds and the c greatest lower bounds, with c for each k.
    """

    def update(self, d: Interval, x: Interval | None) -> None:
        """Add the records of one fragment of the batch.

        Args:
            d: [K, n, out], scaled to quanta.
            x: [K or 1, n, in]; None for a bias.
        """

    def selected_values(self) -> tuple[Tensor, Tensor]:
        """Return the selected bounds so far, in any order.

        Returns:
            (greatest lower bounds, negated; least upper bounds), int32, [K, out, in, c] or
            [K, out, c] for a bias. Here c is the largest of all k; ``EMPTY_SLOT`` fills up the
            rest. The tensors may be views of the selection's own memory: only read them.
        """

    def result(self) -> tuple[Tensor, Tensor]:
        """Return the sums of the selected bounds; of all bounds where there were fewer than c.

        Returns:
            (sum of the greatest lower bounds, sum of the least upper bounds), int64, [K, out, in]
            or [K, out] for a bias.
        """


def quantise(value: Tensor) -> Tensor:
    """Clip to [-QUANTA, QUANTA] and round to the nearest integer, ties to even; a float result."""
    return value.clamp(-QUANTA, QUANTA).round_()


def gradient_bounds(d: Interval, x: Interval | None, product: str) -> Interval:
    """Bound each record's gradient in a parameter, clipped and rounded to whole quanta.

    Args:
        d: [K, n, out], scaled to quanta.
        x: [K or 1, n, in]; None for a bias, whose gradient is d.
        product: "exact" or "rump", how an interval d is multiplied by an interval x.

    Returns:
        [K, n, out, in], or the shape of d for a bias. A midpoint-radius product that overflows is
        bounded by the clip alone, [-QUANTA, QUANTA].
    """
    if x is None:
        return Interval(quantise(d.lower), quantise(d.upper))
    # Lemma 1 of docs/proofs/sums.md: products, the clip and rounding are all monotone.
    column = d[..., :, None]
    row = x[..., None, :]
    if x.is_point:
        a = column.lower * row.lower
        b = column.upper * row.lower
        low, high = torch.minimum(a, b), torch.maximum(a, b)
    elif product == "rump":
        low, high = _rump(column, row)
    else:
        low, high = corners(column, row)
    return Interval(quantise(low), quantise(high))


def _rump(a: Interval, b: Interval) -> Bounds:
    """Return the elementwise midpoint-radius product, widened for its own rounding."""
    a_middle = (a.lower + a.upper) / 2
    b_middle = (b.lower + b.upper) / 2
    a_radius = (a.upper - a.lower) / 2
    b_radius = (b.upper - b.lower) / 2
    centre = a_middle * b_middle
    spread = a_middle.abs() * b_radius + a_radius * (b_middle.abs() + b_radius)
    # Lemma 3 of docs/proofs/sums.md.
    spread = spread + (a.magnitude() * b.magnitude()) * (
        RUMP_ROUNDINGS * torch.finfo(spread.dtype).eps
    )
    # False for a NaN too. Where the centre overflows, so does the spread, which includes |a| |b|.
    bounded = spread < torch.inf
    lower = torch.where(bounded, centre - spread, -torch.inf)
    upper = torch.where(bounded, centre + spread, torch.inf)
    return lower, upper


def gradient_bounds_in_blocks(d: Interval, x: Interval | None, product: str) -> Iterator[Interval]:
    """Yield ``gradient_bounds`` of some records at a time, in order, so that memory is bounded."""
    numbers_per_record = d.shape[0] * d.shape[2] * (1 if x is None else x.shape[2])
    step = max(1, _BOUNDS_BLOCK_NUMBERS // numbers_per_record)
    for start in range(0, d.shape[1], step):
        block = slice(start, start + step)
        yield gradient_bounds(d[:, block], None if x is None else x[:, block], product)


class ReferenceKernel:
    """Sums and selections of clipped per-record gradients, in whole quanta, on any device.

    The gradient of one record in weight (j, i) is d_j x_i. It is clipped to [-gamma, gamma] and
    rounded to the nearest of the quanta gamma / 2^30; nominal and bounded gradients alike. Factors
    arrive in float64, and ``d`` multiplied by QUANTA / gamma, so that quanta are integers.

    Formal guarantees:
        - Sums are exact, and so the same in any order, on any device, over any fragments.
        - Sums of bounds contain the nominal sum, and grow by inclusion.
        - Every sum fits int64, for a batch of at most 2^30 records.
    """

    name = "reference"

    def nominal_sum(self, d: Tensor, x: Tensor | None) -> Tensor:
        """Return the sum over records of their clipped gradients, in quanta.

        Args:
            d: [n, out], scaled to quanta.
            x: [n, in]; None for a bias.

        Returns:
            int64 [out, in], or [out] for a bias.
        """
        point = Interval.point(d[None])
        return self.bound_sum(point, None if x is None else Interval.point(x[None]), "exact")[0][0]

    def bound_sum(self, d: Interval, x: Interval | None, product: str) -> tuple[Tensor, Tensor]:
        """Return the sums over records of the lower and of the upper bounds on their gradients.

        Args:
            d: [K, n, out], scaled to quanta.
            x: [K or 1, n, in]; None for a bias.
            product: "exact" or "rump", how an interval d is multiplied by an interval x.

        Returns:
            Two int64 tensors [K, out, in], or [K, out] for a bias.
        """
        shape = (d.shape[0], d.shape[2]) if x is None else (d.shape[0], d.shape[2], x.shape[2])
        lower = torch.zeros(shape, dtype=torch.int64, device=d.lower.device)
        upper = torch.zeros_like(lower)
        # Each bound becomes an int64 before it is added: Lemma 2 of docs/proofs/sums.md.
        for bounds in gradient_bounds_in_blocks(d, x, product):
            lower += bounds.lower.to(torch.int64).sum(dim=1)
            upper += bounds.upper.to(torch.int64).sum(dim=1)
        return lower, upper

    def start_selection(
        self, counts: Tensor, shape: tuple[int, ...], capped: bool, product: str
    ) -> BoundSelection:
        """Start a selection of the most extreme bounds of each number of a parameter.

        Args:
            counts: int [K], how many bounds to select for each k; at most the records to come.
            shape: of the parameter, (out, in) or (out,).
            capped: whether to select from min(upper bound, 0) and max(lower bound, 0) instead.
            product: as for ``bound_sum``.
        """
        return ReferenceSelection(counts, shape, capped, product)

    def selection_bytes(self, rows: int) -> int:
        """Return the memory of a selection of ``rows`` bounds, for one number and one k."""
        return 16 * (rows + 1)

    def products(self, product: str) -> Products:
        """Return the interval products of this name, a key of ``PRODUCTS``.

        Kernels replace some of them by faster implementations.
        """
        return PRODUCTS[product]

    def widen_by(self, lower: Tensor, upper: Tensor, slack: Tensor) -> Interval:
        """Return [lower - slack, upper + slack], overwriting both, as ``rounding.widen_by``."""
        return rounding.widen_by(lower, upper, slack)


@dataclass
class ReferenceSelection:
    """The selection of the reference kernel, which stores all selected values.

    Attributes:
        counts, shape, capped, product: as for ``ReferenceKernel.start_selection``.
    """

    counts: Tensor
    shape: tuple[int, ...]
    capped: bool
    product: str
    # For each k the selected values, [at most c, *shape], in any order.
    _smallest_upper: list[Tensor] = field(default_factory=list)
    _largest_lower: list[Tensor] = field(default_factory=list)

    def update(self, d: Interval, x: Interval | None) -> None:
        """Add the records of one fragment, as ``BoundSelection.update``."""
        for bounds in gradient_bounds_in_blocks(d, x, self.product):
            lower = bounds.lower.to(torch.int64)
            upper = bounds.upper.to(torch.int64)
            if self.capped:
                lower = lower.clamp(min=0)
                upper = upper.clamp(max=0)
            for k, count in enumerate(self.counts.tolist()):
                if k == len(self._smallest_upper):
                    self._smallest_upper.append(upper.new_empty((0, *self.shape)))
                    self._largest_lower.append(lower.new_empty((0, *self.shape)))
                self._smallest_upper[k] = self._select(
                    self._smallest_upper[k], upper[k], count, largest=False
                )
                self._largest_lower[k] = self._select(
                    self._largest_lower[k], lower[k], count, largest=True
                )

    @staticmethod
    def _select(selected: Tensor, added: Tensor, count: int, largest: bool) -> Tensor:
        """Return the ``count`` most extreme of two sets of values, along the first axis."""
        values = torch.cat([selected, added])
        if len(values) <= count:
            return values
        return values.topk(count, dim=0, largest=largest, sorted=False).values

    def selected_values(self) -> tuple[Tensor, Tensor]:
        """Return the selected bounds so far, as ``BoundSelection.selected_values``."""
        shape = (2, len(self.counts), *self.shape, int(self.counts.max()))
        values = torch.full(shape, EMPTY_SLOT, dtype=torch.int32, device=self.counts.device)
        selected = zip(self._largest_lower, self._smallest_upper, strict=True)
        for k, (lower, upper) in enumerate(selected):
            values[0, k, ..., : len(lower)] = -lower.movedim(0, -1)
            values[1, k, ..., : len(upper)] = upper.movedim(0, -1)
        return values[0], values[1]

    def result(self) -> tuple[Tensor, Tensor]:
        """Return the sums of the selected bounds, as ``BoundSelection.result``."""
        if not self._smallest_upper:  # no record came
            shape = (len(self.counts), *self.shape)
            zeros = torch.zeros(shape, dtype=torch.int64, device=self.counts.device)
            return zeros, zeros.clone()
        lower = torch.stack([values.sum(dim=0) for values in self._largest_lower])
        upper = torch.stack([values.sum(dim=0) for values in self._smallest_upper])
        return lower, upper
