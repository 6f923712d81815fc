"""The reference kernel: plain torch, streaming over records in blocks of bounded size. On any
device.

Each quantised bound becomes an int64 before it is added to another: sums are in range, as below.

What every kernel computes: sums over records of clipped per-record gradients, in whole quanta.

``reference.ReferenceKernel`` is the contract in code; the others inherit from it and do some of it
faster, with the same numbers, bit for bit.

The gradient of weight (j, i) for one record is d_j x_i. Training clips it to [-gamma, gamma] and
rounds it to the nearest multiple of one quantum, gamma / 2^30: this is the gradient the certified
algorithm uses, nominal and bounded alike. So a sum over records is a sum of integers: exact, and
the same in any order, on any device, over any split into fragments.

Formal guarantees
    q(v) = round(clip(v, -2^30, 2^30)) is monotone, and so is each elementwise product as rounded.
    With d in [d_l, d_u], x in [x_l, x_u], all already scaled, q(d x) lies between q of the least
    and q of the greatest corner product, bit for bit. The sums of these integers therefore contain
    the nominal sum, and grow by inclusion.

    Range. |q| <= 2^30, and a batch holds at most 2^30 records (settings.MOST_ROWS, checked as
    batches are planned): every sum over records, and over those that a selection takes, is at most
    2^60 in size, which int64 holds. What a relation adds for the rows at stake is at most as much
    again (agt/relations/relation.py). Counts of records fit int32.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from agt.bounds import rounding
from agt.bounds.interval import Interval
from agt.bounds.products import PRODUCTS, Products, corners
from agt.settings import QUANTA

EMPTY_SLOT = 2**31 - 1  # where a selection keeps nothing yet: int32, beyond any bound


class Extremes(Protocol):
    """The sum of the c least upper bounds and of the c greatest lower bounds, per parameter,
    over a whole batch.
    """

    def update(self, d: Interval, x: Interval | None) -> None:
        """Take in a fragment: d [K, n, out], x [K or 1, n, in]; x None for a bias."""

    def selected_values(self) -> tuple[Tensor, Tensor]:
        """(the greatest lower bounds, negated; the least upper bounds), int32, [K, out, in, c] or
        [K, out, c].

        In any order. c: as many as are wanted at the k that wants most; ``EMPTY_SLOT`` where there are
            fewer. To be read alone.
        """

    def result(self) -> tuple[Tensor, Tensor]:
        """(sum of the greatest lower bounds, sum of the least upper bounds), int64, [K, out, in]
        or [K, out].
        """


_BLOCK = 1 << 21  # elements of a [K, records, out, in] block
RUMP_ROUNDINGS = 64  # in units of eps |d||x|: past every rounding of a midpoint-radius product


def quantise(value: Tensor) -> Tensor:
    """q: clip to [-QUANTA, QUANTA] and round to the nearest integer, kept as a float."""
    return value.clamp(-QUANTA, QUANTA).round_()


def outer(d: Interval, x: Interval | None, product: str) -> Interval:
    """Quantised bounds on each record's gradient. d [K, n, out], x [K or 1, n, in] -> [K, n, out,
    in] (or d's shape).

    Midpoint-radius products are widened past their own rounding: four roundings of at most 3
    |d||x|. One that overflows is bounded by nothing but the clip: the quanta's ends.
    """
    if x is None:
        return Interval(quantise(d.lower), quantise(d.upper))
    left, right = d[..., :, None], x[..., None, :]
    if x.is_point:
        a, b = left.lower * right.lower, left.upper * right.lower
        low, high = torch.minimum(a, b), torch.maximum(a, b)
    elif product == "rump":
        low, high = _rump(left, right)
    else:
        low, high = corners(left, right)
    return Interval(quantise(low), quantise(high))


def _rump(a: Interval, b: Interval) -> tuple[Tensor, Tensor]:
    a_mid, b_mid = (a.lower + a.upper) / 2, (b.lower + b.upper) / 2
    a_rad, b_rad = (a.upper - a.lower) / 2, (b.upper - b.lower) / 2
    centre = a_mid * b_mid
    spread = a_mid.abs() * b_rad + a_rad * (b_mid.abs() + b_rad)
    spread = spread + (a.magnitude() * b.magnitude()) * (
        RUMP_ROUNDINGS * torch.finfo(spread.dtype).eps
    )
    # false for NaN too; where the centre overflows, so does the spread, which takes in |a||b|
    bounded = spread < torch.inf
    return torch.where(bounded, centre - spread, -torch.inf), torch.where(
        bounded, centre + spread, torch.inf
    )


def gradient_bounds_in_blocks(d: Interval, x: Interval | None, product: str) -> Iterator[Interval]:
    """``outer`` of a few records at a time, so that a [K, records, out, in] block is of bounded
    size.
    """
    per_record = d.shape[0] * d.shape[2] * (1 if x is None else x.shape[2])
    step = max(1, _BLOCK // per_record)
    for start in range(0, d.shape[1], step):
        block = slice(start, start + step)
        yield outer(d[:, block], None if x is None else x[:, block], product)


class ReferenceKernel:
    """What a kernel does.

    Factors of gradients arrive in float64, and ``d`` scaled by QUANTA / gamma.
    """

    name = "reference"

    def nominal_sum(self, d: Tensor, x: Tensor | None) -> Tensor:
        """Sum over records of q(d_j x_i). d [n, out], x [n, in] or None (bias) -> int64 [out,
        in] or [out].
        """
        point = Interval.point(d[None])
        return self.bound_sum(point, None if x is None else Interval.point(x[None]), "exact")[0][0]

    def bound_sum(self, d: Interval, x: Interval | None, product: str) -> tuple[Tensor, Tensor]:
        """Sums of the least and of the greatest q. d [K, n, out], x [K or 1, n, in] or None -> two
        int64 [K, out, in].

        Args:
            product: "exact" or "rump": how an interval d meets an interval x.
        """
        shape = (d.shape[0], d.shape[2]) if x is None else (d.shape[0], d.shape[2], x.shape[2])
        lower = torch.zeros(shape, dtype=torch.int64, device=d.lower.device)
        upper = torch.zeros_like(lower)
        for bounds in gradient_bounds_in_blocks(d, x, product):
            lower += bounds.lower.to(torch.int64).sum(dim=1)
            upper += bounds.upper.to(torch.int64).sum(dim=1)
        return lower, upper

    def extremes(
        self, counts: Tensor, shape: tuple[int, ...], capped: bool, product: str
    ) -> Extremes:
        """Select ``counts`` [K] records for each parameter of ``shape`` (out, in) or (out,).

        Args:
            counts: how many to select, at most the number of records that will be seen.
            shape: the parameter's shape without K.
            capped: select from min(q_u, 0) and max(q_l, 0) instead of q_u and q_l.
            product: as for ``bound_sum``.
        """
        return ReferenceExtremes(counts, shape, capped, product)

    def selection_bytes(self, rows: int) -> int:
        """What a selection of ``rows`` records keeps, for each parameter and k."""
        return 16 * (rows + 1)

    def products(self, product: str) -> Products:
        """The interval products of this name, where this kernel has faster ones with those."""
        return PRODUCTS[product]

    def widen_by(self, lower: Tensor, upper: Tensor, slack: Tensor) -> Interval:
        """bounds/rounding.py's ``outward``."""
        return rounding.widen_by(lower, upper, slack)


@dataclass
class ReferenceExtremes:
    """Keeps, per parameter, the c most extreme values seen so far: exact for every c, K c
    |parameters| memory.
    """

    counts: Tensor
    shape: tuple[int, ...]
    capped: bool
    product: str
    # per k: [c, *shape], the least upper bounds so far
    _least: list[Tensor] = field(default_factory=list)
    _greatest: list[Tensor] = field(default_factory=list)

    def update(self, d: Interval, x: Interval | None) -> None:
        for bounds in gradient_bounds_in_blocks(d, x, self.product):
            lower, upper = bounds.lower.to(torch.int64), bounds.upper.to(torch.int64)
            if self.capped:
                lower, upper = lower.clamp(min=0), upper.clamp(max=0)
            for k, count in enumerate(self.counts.tolist()):
                if k == len(self._least):
                    self._least.append(upper.new_empty((0, *self.shape)))
                    self._greatest.append(lower.new_empty((0, *self.shape)))
                self._least[k] = self._keep(self._least[k], upper[k], count, largest=False)
                self._greatest[k] = self._keep(self._greatest[k], lower[k], count, largest=True)

    @staticmethod
    def _keep(kept: Tensor, fresh: Tensor, count: int, largest: bool) -> Tensor:
        pool = torch.cat([kept, fresh])
        return (
            pool.topk(count, dim=0, largest=largest, sorted=False).values
            if len(pool) > count
            else pool
        )

    def selected_values(self) -> tuple[Tensor, Tensor]:
        shape = (2, len(self.counts), *self.shape, int(self.counts.max()))
        kept = torch.full(shape, EMPTY_SLOT, dtype=torch.int32, device=self.counts.device)
        for k, (greatest, least) in enumerate(zip(self._greatest, self._least, strict=True)):
            kept[0, k, ..., : len(greatest)] = -greatest.movedim(0, -1)
            kept[1, k, ..., : len(least)] = least.movedim(0, -1)
        return kept[0], kept[1]

    def result(self) -> tuple[Tensor, Tensor]:
        zeros = torch.zeros(
            (len(self.counts), *self.shape), dtype=torch.int64, device=self.counts.device
        )
        if not self._least:
            return zeros, zeros.clone()
        return torch.stack([t.sum(dim=0) for t in self._greatest]), torch.stack(
            [t.sum(dim=0) for t in self._least]
        )
