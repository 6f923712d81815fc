"""What every kernel computes: sums over records of clipped per-record gradients, in whole quanta.

``reference.ReferenceKernel`` is the contract in code; the others inherit from it and do some of it faster, with the same
numbers, bit for bit.

The gradient of weight (j, i) for one record is d_j x_i. Training clips it to [-gamma, gamma] and rounds it to the nearest
multiple of one quantum, gamma / 2^30: this is the gradient the certified algorithm uses, nominal and bounded alike. So a
sum over records is a sum of integers: exact, and the same in any order, on any device, over any split into fragments.

Formal guarantees
    q(v) = round(clip(v, -2^30, 2^30)) is monotone, and so is each elementwise product as rounded. With d in [d_l, d_u],
    x in [x_l, x_u], all already scaled, q(d x) lies between q of the least and q of the greatest corner product,
    bit for bit. The sums of these integers therefore contain the nominal sum, and grow by inclusion.

    Range. |q| <= 2^30, and a batch holds at most 2^30 records (settings.MOST_ROWS, checked as batches are planned): every
    sum over records, and over those that a selection takes, is at most 2^60 in size, which int64 holds. What a relation
    adds for the rows at stake is at most as much again (relations.py). Counts of records fit int32.
"""

from typing import Protocol

from torch import Tensor

from agt.bounds.interval import Interval

QUANTA = 2**30  # quanta in one clip level gamma
NONE = 2**31 - 1  # where a selection keeps nothing yet: int32, beyond any bound


class Extremes(Protocol):
    """The sum of the c least upper bounds and of the c greatest lower bounds, per parameter, over a whole batch."""

    def update(self, d: Interval, x: Interval | None) -> None:
        """Take in a fragment: d [K, n, out], x [K or 1, n, in]; x None for a bias."""
        ...

    def kept(self) -> tuple[Tensor, Tensor]:
        """(the greatest lower bounds, negated; the least upper bounds), int32, [K, out, in, c] or [K, out, c].

        In any order. c: as many as are wanted at the k that wants most; ``NONE`` where there are fewer. To be read alone.
        """
        ...

    def result(self) -> tuple[Tensor, Tensor]:
        """(sum of the greatest lower bounds, sum of the least upper bounds), int64, [K, out, in] or [K, out]."""
        ...
