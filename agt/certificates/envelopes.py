"""Envelopes: bounds on the margin of a query under every training within k edits.

Margin votes need them.
"""

from dataclasses import dataclass

import numpy as np

from agt.errors import UnsoundError

MAX_MARGIN_EDITS = 2**10
"""The largest number of edits of all members together that a margin vote counts up to.

It is a public constant, so that counting up to it depends on no data.
"""


@dataclass(frozen=True)
class Envelope:
    """The margins of queries of two classes, with bounds for each number of edits k.

    The margin of a query is a number whose sign is the label: 1 where it is positive, else 0. An
    edit is what the neighbour relation counts, for example one record added or removed.

    Formal guarantees, which every function that makes an envelope must keep:
        - lower[k] <= margin of every training within k edits <= upper[k], bit for bit as the
          margin is computed (Lemma 4 of docs/proofs/boxes.md).
        - After one edit of the data, the new bounds at one k lie within the old bounds at the next.
        - Where nothing is known, the bounds are infinite.

    Attributes:
        ks: [K] the numbers of edits, from 1 on and increasing. Nothing is known beyond the last.
        margin: [n] float64, of the training without edits; infinite where it overflowed.
        lower: [K, n] float64, -infinite where nothing is known.
        upper: [K, n] float64, infinite where nothing is known.

    Raises:
        UnsoundError: shapes do not fit, or a margin is NaN or lies outside of its bounds.
    """

    ks: tuple[int, ...]
    margin: np.ndarray
    lower: np.ndarray
    upper: np.ndarray

    def __post_init__(self) -> None:
        """Raise UnsoundError unless shapes fit and lower <= margin <= upper everywhere."""
        shape = (len(self.ks), len(self.margin))
        if self.lower.shape != shape or self.upper.shape != shape:
            raise UnsoundError(
                "the envelope (margin bounds for each number of changed records) needs bounds of "
                f"shape {shape}, but they have the shapes {self.lower.shape} and "
                f"{self.upper.shape}: give lower and upper bounds of the needed shape"
            )
        # False for a NaN, which must not count as within the bounds.
        is_within = (self.lower <= self.margin) & (self.margin <= self.upper)
        if not is_within.all():
            raise UnsoundError(
                "the margin of a query is NaN, or lies outside of the bounds that were computed "
                "for it, so these bounds are wrong: correct the code that computed them; if it is "
                "a part of agt, please report this"
            )

    def at_every_k(self, max_k: int) -> "Envelope":
        """Return the envelope for every k = 1, 2, ..., also between the values of its grid.

        A k that the grid skips gets the bounds of the next larger k of the grid. They hold there
        too, because a dataset within k edits is also within any larger number of edits (Lemma 5 of
        docs/proofs/boxes.md).

        Args:
            max_k: the largest k of the result, which ends earlier if the grid does.
        """
        last_k_of_grid = max(self.ks, default=0)
        last_k = min(max_k, last_k_of_grid)
        every_k = np.arange(1, last_k + 1)
        rows = np.searchsorted(self.ks, every_k)  # of the first k of the grid that is >= k
        ks = tuple(every_k.tolist())
        return Envelope(ks, self.margin, self.lower[rows], self.upper[rows])
