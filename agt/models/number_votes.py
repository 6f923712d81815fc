"""Models of votes whose labels are numbers: certified intervals by the median of the members.

A member's vote on a query is a point of a public lattice, 0 to ``LATTICE_STEPS``, whose ends are
those of the declared range. The proofs are in docs/proofs/numbers.md.
"""

from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from agt.certificates.intervals import OrderedAnswers
from agt.data.arrays import gathered
from agt.data.target import NumericTarget
from agt.errors import ConfigError
from agt.models.linear import LinearModel
from agt.models.model import map_queries
from agt.models.number_head import NumberHead
from agt.models.voting import Votes
from agt.settings import RelationName
from agt.training.lattice import LATTICE_STEPS
from agt.training.loop import OnProgress, ignore_progress


@dataclass(frozen=True)
class ToleranceDistances:
    """The number of edits that leave each answer within a tolerance; for the data owner only.

    It is no stable distance: between neighbours it can change by more than 1, because the answer
    that the tolerance is measured from moves as well. So no mechanism takes it, and it must not be
    released.

    Attributes:
        tolerance: t, in the unit of the labels.
        max_k: [n] int64, the largest k for which no dataset within k edits gives an answer that
            differs by more than t.
    """

    tolerance: float
    max_k: np.ndarray


@dataclass(frozen=True, repr=False)
class NumberCertificates:
    """The answers to n queries, and the intervals that edits of the training data cannot leave.

    Everything here depends on private records, so it is for the data owner only.

    Formal guarantees:
        - ``bounds(k)`` contains the answer of the same training on every dataset within k edits of
          the training data (Lemma 3 of docs/proofs/numbers.md).

    Attributes:
        relation: the neighbour relation, which says what one edit is.
        target: the range of the labels.
        ordered: the members' answers in increasing order.
    """

    relation: RelationName
    target: NumericTarget
    ordered: OrderedAnswers

    def __repr__(self) -> str:
        """Return the number of queries, the relation, and from which k on nothing is proved."""
        queries = self.ordered.points.shape[1]
        return (
            f"agt.NumberCertificates of {queries} queries under relation={self.relation}; for "
            f"k = {self.max_k} or more, every interval is the whole range, so nothing is proved"
        )

    @property
    def prediction(self) -> np.ndarray:
        """[n] float64, the answers that the model itself gives."""
        return self._numbers(self.ordered.median)

    @property
    def max_k(self) -> int:
        """The smallest k at which every interval is the whole range."""
        return self.ordered.max_k

    def bounds(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the ends of the interval in which each query's answer stays after any k edits.

        Args:
            k: the number of edits, at least 0.

        Returns:
            ([n], [n]) float64, the lower and the upper ends.

        Raises:
            ConfigError: k is no whole number of at least 0.
        """
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 0:
            raise ConfigError(f"k={k!r}: give a whole number of at least 0")
        lower, upper = self.ordered.bounds(k)
        return self._numbers(lower), self._numbers(upper)

    def width(self, k: int) -> np.ndarray:
        """Return the width of the interval in which an answer stays after k edits, [n] float64."""
        lower, upper = self.bounds(k)
        return upper - lower

    def within(self, tolerance: float) -> ToleranceDistances:
        """Return up to how many edits each answer stays within a tolerance of itself.

        Args:
            tolerance: t, at least 0, in the unit of the labels.

        Raises:
            ConfigError: the tolerance is negative, or no number.
        """
        if not (isinstance(tolerance, Real) and tolerance >= 0):
            raise ConfigError(f"tolerance={tolerance}: give a number of at least 0")
        answer = self.prediction
        max_k = np.full(len(answer), self.max_k, dtype=np.int64)
        still_within = np.ones(len(answer), dtype=bool)
        for k in range(1, self.max_k + 1):
            lower, upper = self.bounds(k)
            stays = _at_most(answer, lower, tolerance) & _at_most(upper, answer, tolerance)
            max_k[still_within & ~stays] = k - 1
            still_within &= stays
            if not still_within.any():
                break
        return ToleranceDistances(tolerance, max_k)

    def _numbers(self, points: np.ndarray) -> np.ndarray:
        """Return points of the lattice as numbers of the range, float64."""
        return self.target.at(points / LATTICE_STEPS)


def _at_most(larger: np.ndarray, smaller: np.ndarray, limit: float) -> np.ndarray:
    """Return whether larger - smaller <= limit holds exactly, without rounding, [n] bool.

    The difference is rounded to nearest. Where it is rounded to the limit itself, the sign of its
    rounding error decides, which is itself a float and is computed exactly.

    Args:
        larger, smaller: [n] float64, the first not less than the second.
        limit: a float of at least 0.
    """
    difference = larger - smaller
    part_of_smaller = difference - larger
    error = (larger - (difference - part_of_smaller)) - (smaller + part_of_smaller)
    return (difference < limit) | ((difference == limit) & (error <= 0))


class NumberVotes(Votes):
    """A model of T members whose ``labels`` are points of the lattice of a range of numbers.

    Its answer is the median of the members. The methods of classes (margins, shares, logits) raise
    ConfigError.
    """

    @property
    def number_votes(self) -> "NumberVotes":
        """This model, because its answers are numbers."""
        return self

    @property
    def target(self) -> NumericTarget:
        """The range of the labels."""
        target = self.problem.dataset.target.numeric
        assert target is not None  # such a model is only made for numeric labels
        return target

    @property
    def constants(self) -> dict[str, Any]:
        """The public constants that votes.json records, by name, the range among them."""
        return {**super().constants, "low": self.target.low, "high": self.target.high}

    @property
    def release_head(self) -> LinearModel | None:
        """The untrained linear head on the same records and feature map, for noisy sums.

        The members are not used.
        """
        return NumberHead.untrained_for(self.problem, self.features)

    def predict(self, features: np.ndarray) -> np.ndarray:
        """Return the answer to each query, [n] float64, without noise.

        Args:
            features: [n, ...] the queries.
        """
        return self.certify(features).prediction

    def certify(  # type: ignore[override]  # numbers have intervals, not stable distances
        self,
        features: np.ndarray,
        ks: tuple[int, ...] | None = None,
        on_progress: OnProgress = ignore_progress,
    ) -> NumberCertificates:
        """Return the answers to queries, and intervals that contain the answers after k edits.

        Args:
            features: [n, ...] the queries.
            ks: not used, because the result has intervals for every k.
            on_progress: called with the number of finished queries.
        """

        def ordered_answers(queries: np.ndarray) -> OrderedAnswers:
            """Return the sorted answers to a block of the queries."""
            answers = self.labels_of_queries(queries)
            return OrderedAnswers.from_members(answers, self.members_per_edit)

        parts = map_queries(features, ordered_answers, on_progress)
        ordered = OrderedAnswers.concatenate(list(parts))
        return NumberCertificates(self.settings.relation.name, self.target, ordered)

    def sums(self, features: np.ndarray, on_progress: OnProgress = ignore_progress) -> np.ndarray:
        """Return the sum of the members' answers to each query, [n] int64, from 0 to T N.

        One edit moves each sum by at most ``members_per_edit`` N, where N = ``LATTICE_STEPS``
        (Lemma 5 of docs/proofs/numbers.md).

        Args:
            features: [n, ...] the queries.
            on_progress: called with the number of finished queries.
        """

        def sums_of_block(queries: np.ndarray) -> np.ndarray:
            """Return the sums for a block of the queries."""
            return self.labels_of_queries(queries).sum(axis=0, dtype=np.int64)

        sums_of_blocks = map_queries(features, sums_of_block, on_progress)
        return gathered(sums_of_blocks, len(features))

    def mean_of(self, sums: np.ndarray) -> np.ndarray:
        """Return the numbers that sums of the members' answers stand for, [n] float64.

        Args:
            sums: [n] int64, from 0 to T N.
        """
        return self.target.at(sums / (self.settings.ensemble.members * LATTICE_STEPS))
