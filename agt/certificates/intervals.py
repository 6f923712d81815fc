"""Certified intervals of numbers: order statistics of the answers of an ensemble's members.

T members answer a query with integers from 0 to N, the points of a public lattice. The answer is
the member's of public rank h. One edit of the training data changes at most m members, so that k
edits cannot move the answer out of the order statistics of ranks h - m k and h + m k. The proofs
are in docs/proofs/numbers.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agt.training.lattice import LATTICE_STEPS


def median_rank(members: int) -> int:
    """Return h, the rank of the answer among T sorted members, counted from 0: (T - 1) // 2."""
    return (members - 1) // 2


@dataclass(frozen=True)
class OrderedAnswers:
    """The sorted answers of T members to n queries, with the intervals that follow from them.

    Everything here depends on private records, so it is for the data owner only.

    Formal guarantees
        - ``bounds(k)`` contains the answer of every dataset within k edits (Lemma 3 of
          docs/proofs/numbers.md).
        - ``bounds(k)`` of a neighbour is contained in ``bounds(k + 1)`` (Lemma 4 of
          docs/proofs/numbers.md).

    Attributes:
        points: [T, n] int32, the members' answers to each query in increasing order.
        touches: m, the number of members that one edit can change.
    """

    points: np.ndarray
    touches: int

    @classmethod
    def from_members(cls, answers: np.ndarray, touches: int) -> "OrderedAnswers":
        """Return the ordered answers of the members.

        Args:
            answers: [T, n] integers from 0 to ``LATTICE_STEPS``, in the order of the members.
            touches: m, the number of members that one edit can change.
        """
        return cls(np.sort(answers, axis=0), touches)

    @property
    def median(self) -> np.ndarray:
        """[n] int32, the answer to each query: that of rank ``median_rank``."""
        answer: np.ndarray = self.points[median_rank(len(self.points))]
        return answer

    @property
    def max_k(self) -> int:
        """The smallest k at which every interval is the whole range."""
        members = len(self.points)
        rank = median_rank(members)
        # k edits reach ``touches`` * k ranks down and up. From the rank of the answer it takes
        # rank + 1 to get below the first member, and members - rank to get above the last one.
        ranks_to_both_ends = max(rank + 1, members - rank)
        return -(-ranks_to_both_ends // self.touches)  # divided and rounded up

    def bounds(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the interval in which each query's answer stays after any k edits.

        Args:
            k: the number of edits, at least 0.

        Returns:
            ([n], [n]) int32, the lower and the upper end: the order statistics of ranks h - m k and
            h + m k, with 0 below the first rank and ``LATTICE_STEPS`` above the last.
        """
        members = len(self.points)
        rank = median_rank(members)
        low_rank = rank - self.touches * k
        high_rank = rank + self.touches * k
        # Lemma 3 of docs/proofs/numbers.md: a rank beyond the members is the end of the range.
        lower = np.zeros_like(self.median)
        if low_rank >= 0:
            lower = self.points[low_rank]
        upper = np.full_like(self.median, LATTICE_STEPS)
        if high_rank < members:
            upper = self.points[high_rank]
        return lower, upper

    @classmethod
    def concatenate(cls, parts: Sequence["OrderedAnswers"]) -> "OrderedAnswers":
        """Return the ordered answers to all queries of several parts, at least one."""
        points = np.concatenate([part.points for part in parts], axis=1)
        return cls(points, parts[0].touches)
