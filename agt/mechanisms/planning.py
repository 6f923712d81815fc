"""What private answers will cost: the exact expected accuracy of each mechanism for given budgets, before any release.

Only expectations over a mechanism's own coin flips are taken, in closed form; nothing is drawn. The inputs are diagnostics
about private data (method.md section 3), so a plan is for the data owner.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from agt.errors import ConfigError
from agt.mechanisms.catalogue import MECHANISMS
from agt.mechanisms.composition import BOUNDS, per_query
from agt.mechanisms.guarantee import ApproximateDP, GaussianDP, Guarantee, PureDP
from agt.mechanisms.mechanism import Mechanism
from agt.numeric import bisect, whole_midpoint


@dataclass(frozen=True)
class Evidence:
    """What mechanisms see of some queries whose true labels are known.

    Attributes:
        labels: [n] the true labels.
        prediction: [n] the nominal labels.
        distance: [n] the stable distances, or steps of the grid (``counting=index``).
        classes: C.
        gap: [n] |n1 - n0| of an ensemble's votes; None without one.
        votes: [n] the ensemble's plain vote.
    """

    labels: np.ndarray
    prediction: np.ndarray
    distance: np.ndarray
    classes: int
    gap: np.ndarray | None = None
    votes: np.ndarray | None = None

    @property
    def accuracy(self) -> float:
        """Of the nominal labels, without noise."""
        return float((self.prediction == self.labels).mean())

    def expected(self, mechanism: Mechanism) -> float:
        """The exact expected accuracy of the labels that ``mechanism`` releases.

        Raises:
            ConfigError: it needs votes, and there is no ensemble.
        """
        if mechanism.needs != "votes":
            return mechanism.expected_accuracy(self.prediction, self.distance, self.labels)
        if self.gap is None or self.votes is None:
            raise ConfigError(f"mechanism={mechanism.name} needs an ensemble's votes: train with ensemble.members=T")
        return mechanism.expected_accuracy(self.votes, self.gap, self.labels)


@dataclass(frozen=True)
class Budget:
    """A total over a fixed number of queries."""

    eps: float
    delta: float
    queries: int


@dataclass(frozen=True)
class Offer:
    """One mechanism at one budget.

    Attributes:
        mechanism: its name.
        budget: the total.
        each: the guarantee of one query that the total affords; of the one release, for weights.
        accuracy: expected.
    """

    mechanism: str
    budget: Budget
    each: Guarantee
    accuracy: float


def kind_of(mechanism: type[Mechanism]) -> type[PureDP] | type[ApproximateDP] | type[GaussianDP]:
    """The kind of guarantee that a mechanism spends its budget in."""
    return mechanism.spends


def applicable(evidence: Evidence) -> tuple[str, ...]:
    """The mechanisms that can answer these queries at all."""
    return tuple(
        name
        for name, mechanism in MECHANISMS.items()
        if (evidence.classes == 2 or mechanism.any_classes) and (mechanism.needs != "votes" or evidence.gap is not None)
    )


def afford(mechanism: type[Mechanism], budget: Budget, classes: int, bounds: Sequence[str] = BOUNDS) -> Mechanism:
    """The mechanism with the largest budget per query that the total allows.

    Raises:
        ConfigError: nothing fits (a Gaussian mechanism with delta = 0, say).
    """
    kind: type[GaussianDP] = kind_of(mechanism)  # type: ignore[assignment]
    return mechanism.of(per_query(kind, budget.eps, budget.delta, budget.queries, bounds), classes)


def offers(evidence: Evidence, names: Iterable[str], budgets: Sequence[Budget]) -> list[Offer]:
    """Each mechanism at each budget that it can meet; one that cannot meet a budget is left out of it."""
    found = []
    for name in names:
        for budget in budgets:
            try:
                mechanism = afford(MECHANISMS[name], budget, evidence.classes)
            except ConfigError:
                continue
            found.append(Offer(name, budget, mechanism.guarantee, evidence.expected(mechanism)))
    return found


def weight_offers(expected: Callable[[float], float], budgets: Sequence[Budget]) -> list[Offer]:
    """``release_weights`` at each total: spent once, whatever the number of queries.

    Args:
        expected: mu -> the exact expected accuracy of the released weights' labels.
    """
    found = []
    for budget in budgets:
        if budget.delta:
            each = per_query(GaussianDP, budget.eps, budget.delta, 1)
            found.append(Offer("release_weights", budget, each, expected(each.mu)))
    return found


def answerable(
    evidence: Evidence, mechanism: type[Mechanism], eps: float, delta: float, accuracy: float, most: int = 10**6
) -> int:
    """The largest number of queries, up to ``most``, at which the expected accuracy is still at least ``accuracy``."""

    def enough(queries: int) -> bool:
        try:
            afforded = afford(mechanism, Budget(eps, delta, queries), evidence.classes)
        except ConfigError:
            return False
        return evidence.expected(afforded) >= accuracy

    if not enough(1):
        return 0
    low, high = 1, 2
    while high <= most and enough(high):
        low, high = high, 2 * high
    high = min(high, most + 1)
    return bisect(enough, low, high, lambda a, b: math.isqrt(a * b) if b > 4 * a else whole_midpoint(a, b))[0]
