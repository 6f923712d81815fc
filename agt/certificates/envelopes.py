"""Envelopes: how far the margin of a query can move within k edits. Margin votes need them."""

from dataclasses import dataclass

import numpy as np

from agt.errors import UnsoundError

MAX_MARGIN_EDITS = 2**10
"""The number of edits up to which a margin vote looks, a public constant."""


@dataclass(frozen=True)
class Envelope:
    """The margins of queries, with bounds on the margins of neighbouring trainings.

    The margin is that of two classes: a query is labelled 1 where it is positive, else 0.

    Formal guarantees, which everything that makes envelopes owes:
        - The margin of every training within k edits lies in the bounds at k, bit for bit as it is
          computed (Lemma 4 of docs/proofs/boxes.md).
        - The bounds of a neighbour at one k lie within the bounds at the next k.
        - Where nothing is known, the bounds are infinite.

    Attributes:
        ks: [K] the values of k >= 1 of the bounds, increasing; beyond the last nothing is known.
        margin: [n] float64; infinite where it overflowed.
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
        """Check the shapes, and that every margin lies in its bounds."""
        shape = (len(self.ks), len(self.margin))
        if self.lower.shape != shape or self.upper.shape != shape:
            raise UnsoundError(
                "the envelope (margin bounds for each number of changed records) needs "
                f"bounds of shape {shape}, but they have the shapes {self.lower.shape} and "
                f"{self.upper.shape}"
            )
        if not ((self.lower <= self.margin) & (self.margin <= self.upper)).all():
            raise UnsoundError("the margin of a query is NaN, or lies outside of its own bounds")

    def at_every_k(self, max_k: int) -> "Envelope":
        """Return the envelope at each k = 1, 2, ..., up to ``max_k`` or to its own last k.

        At a k without bounds the next greater k's are taken, which hold there as well (Lemma 5 of
        docs/proofs/boxes.md).
        """
        own_last_k = self.ks[-1] if self.ks else 0
        every_k = np.arange(1, min(max_k, own_last_k) + 1)
        rows = np.searchsorted(self.ks, every_k)
        ks = tuple(every_k.tolist())
        return Envelope(ks, self.margin, self.lower[rows], self.upper[rows])
