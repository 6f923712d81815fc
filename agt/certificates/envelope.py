"""How far a margin can move, and not only whether its sign can: what a margin vote needs of each member of an ensemble.

Formal guarantees that every ``Envelope`` owes, and that margin_votes.py rests on
    Let D, D' be neighbours, one k of the relation apart, or one of the halves that a shard sees of such an edit (one unit
    gone and none come; relations.py, "One side alone"). With m(D) the margin as it is computed, bit for bit,
        lower(D, k_1) <= m(D') <= upper(D, k_1),
        lower(D, k_j) <= lower(D', k_{j-1})  and  upper(D', k_{j-1}) <= upper(D, k_j)   for j >= 2.
    By induction lower(D, k_j) <= m(D'') <= upper(D, k_j) for every D'' that is k_j of the relation away or nearer. Where
    nothing is known the bounds are infinite, which keeps both lines.
    On ks = 1, 2, ... j counts records (or what one k is). On any other increasing ks it counts steps; a bound at k holds at
    the values of k below it as well, of which ``by_record`` makes bounds for each number of records: sound, but on such a
    grid only the steps keep the second line (method.md section 3a).
"""

from dataclasses import dataclass

import numpy as np

from agt.errors import UnsoundError

REACH = 2**10
"""As many edits as a margin vote looks at; a public constant."""


@dataclass(frozen=True)
class Envelope:
    """Margins of queries with their bounds; two classes, class 1 where the margin is > 0.

    Attributes:
        ks: [K] the values of k >= 1 that the bounds are about, increasing; beyond the last nothing is known.
        margin: [n] float64; infinite where it overflowed.
        lower, upper: [K, n] float64, infinite where nothing is known.

    Raises:
        UnsoundError: shapes do not fit, or a margin lies outside its bounds.
    """

    ks: tuple[int, ...]
    margin: np.ndarray
    lower: np.ndarray
    upper: np.ndarray

    def __post_init__(self) -> None:
        shape = (len(self.ks), len(self.margin))
        if self.lower.shape != shape or self.upper.shape != shape:
            raise UnsoundError(f"an envelope's bounds are {self.lower.shape} and {self.upper.shape}, and {shape} is needed")
        if not ((self.lower <= self.margin) & (self.margin <= self.upper)).all():
            raise UnsoundError("a query's margin is NaN, or lies outside of its bounds")

    def by_record(self, most: int) -> "Envelope":
        """The same for each of k = 1, 2, ..., up to its last value or ``most``: the bound of the next k that has one."""
        each = np.arange(1, min(most, self.ks[-1] if self.ks else 0) + 1)
        rows = np.searchsorted(self.ks, each)
        return Envelope(tuple(each.tolist()), self.margin, self.lower[rows], self.upper[rows])
