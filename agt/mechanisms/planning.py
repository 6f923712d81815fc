"""What private answers will cost: each mechanism's expected accuracy for given budgets.

    plan(model, features, labels, eps=[1.0], delta=1e-5, queries=[100]).offers

Expectations are over a mechanism's own coins, in closed form; nothing is drawn. Those of weights
mechanisms may be to first order in the noise, or simulated: ``WeightsMechanism.accuracy_method``
says which. A plan reads private data (method.md section 3), so it is for the data owner.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from agt.certificates.box import Certificates
from agt.certificates.vote_certificates import VoteCertificates
from agt.errors import ConfigError
from agt.mechanisms.claims import Counting
from agt.mechanisms.composition import BOUNDS, per_query
from agt.mechanisms.guarantees import GaussianDP, Guarantee
from agt.mechanisms.labelling import evidence_of
from agt.mechanisms.mechanism import MECHANISMS, Mechanism
from agt.mechanisms.published import PUBLISHED
from agt.mechanisms.weights_mechanism import AccuracyMethod, WeightsMechanism, weights_mechanisms
from agt.messages import Message
from agt.models.model import Model
from agt.numeric import bisect, whole_midpoint
from agt.relations import RELATIONS
from agt.training.loop import OnProgress

ACCURACY_TOLERANCE = 0.01  # advice calls "as good" what is within a point of the best
BestLabels = tuple[int, str]  # (how many queries, by which mechanism)


@dataclass(frozen=True)
class QueryEvidence:
    """What mechanisms read of queries whose true labels are known: private.

    Attributes:
        labels: [n] the true labels.
        prediction: [n] the nominal labels.
        distance: [n] the stable distances, or steps of the grid (``counting=index``).
        classes: C.
        tally: an ensemble's votes (``VoteCertificates.tally``); None: there is no ensemble.
        votes: [n] the label that most of its members give; None: there is no ensemble.
        touches: how many of its members one k can change.
    """

    labels: np.ndarray
    prediction: np.ndarray
    distance: np.ndarray
    classes: int
    tally: np.ndarray | None = None
    votes: np.ndarray | None = None
    touches: int = 1

    @classmethod
    def from_certificates(
        cls,
        certificates: Certificates,
        labels: np.ndarray,
        classes: int,
        counting: Counting = "distance",
    ) -> "QueryEvidence":
        """Return the evidence of queries that were certified.

        Args:
            certificates: of n queries.
            labels: [n] their true labels.
            classes: C.
            counting: what distances count: records, or steps of the grid.
        """
        distance = evidence_of(certificates, counting)
        if not isinstance(certificates, VoteCertificates):
            return cls(labels, certificates.prediction, distance, classes)
        return cls(
            labels,
            certificates.prediction,
            distance,
            classes,
            certificates.tally,
            certificates.plurality,
            RELATIONS[certificates.relation].touches,
        )

    @property
    def accuracy(self) -> float:
        """The accuracy of the nominal labels, without noise."""
        return float((self.prediction == self.labels).mean())

    @property
    def majority(self) -> float:
        """The accuracy of always answering the most frequent of the true labels."""
        return float(np.bincount(self.labels).max() / len(self.labels))

    @property
    def useful(self) -> bool:
        """Whether the labels are right more often than one answer to all, or always."""
        return self.accuracy > self.majority or self.accuracy == 1

    def expected_accuracy(self, mechanism: Mechanism) -> float:
        """Return the expected accuracy of the labels that a mechanism releases.

        Raises:
            ConfigError: the mechanism needs votes, and there is no ensemble.
        """
        if mechanism.needs != "votes":
            return mechanism.expected_accuracy(self.prediction, self.distance, self.labels)
        if self.tally is None or self.votes is None:
            raise ConfigError(
                Message(
                    "mechanism={name} needs the votes of an ensemble, but this run is a "
                    "single model: train with {config:ensemble.members}=T",
                    name=mechanism.name,
                )
            )
        covering = mechanism.covering(self.touches)
        return covering.expected_accuracy(self.votes, self.tally, self.labels)


@dataclass(frozen=True)
class Budget:
    """A total over a fixed number of queries.

    Attributes:
        eps: all queries together are (eps, delta)-DP.
        delta: see ``eps``.
        queries: how many there are.
    """

    eps: float
    delta: float
    queries: int


@dataclass(frozen=True)
class PlannedRelease:
    """One mechanism at one budget.

    Attributes:
        mechanism: its name.
        budget: the total; weights spend it once, whatever the number of queries.
        guarantee: what the total affords one query, or the one release of weights.
        accuracy: the expected accuracy.
    """

    mechanism: str
    budget: Budget
    guarantee: Guarantee
    accuracy: float


@dataclass(frozen=True)
class WeightsOption:
    """A weights mechanism that takes a model's head, and its expected accuracy on some queries.

    Attributes:
        kind: the mechanism.
        expectation: a mechanism of this kind -> the expected accuracy of labels from its weights.
    """

    kind: type[WeightsMechanism]
    expectation: Callable[[Any], float]

    def planned(self, budget: Budget) -> PlannedRelease:
        """Return what one release that spends all of a budget gives.

        Raises:
            ConfigError: no guarantee is within the budget, or it is too little for the head.
        """
        mechanism = self.kind.within(budget.eps, budget.delta)
        accuracy = self.expectation(mechanism)
        return PlannedRelease(mechanism.name, budget, mechanism.guarantee, accuracy)


def weights_options(
    model: Model, features: np.ndarray, labels: np.ndarray
) -> dict[str, WeightsOption]:
    """Return every weights mechanism that can release from a model, by name.

    Args:
        model: a fitted model; of one without a linear head nothing is returned.
        features: [n, ...] queries.
        labels: [n] their true labels.
    """
    options = {}
    for name, kind in weights_mechanisms().items():
        try:
            head = kind.releasable_head(model)
            kind.check_head(head)
        except ConfigError:
            continue
        # A plan says of the model's own conditions whether they hold, and of no other head's.
        if head is model or all(condition.held for condition in head.conditions):
            options[name] = WeightsOption(kind, kind.expectation(head, features, labels))
    return options


def applicable(evidence: QueryEvidence, published: bool = False) -> tuple[str, ...]:
    """Return the names of the mechanisms that can answer these queries.

    Args:
        evidence: of the queries.
        published: include those of agt/mechanisms/published.py, none of which can be the best.
    """
    names = []
    for name, mechanism in MECHANISMS.items():
        takes_classes = evidence.classes == 2 or mechanism.any_classes
        has_evidence = mechanism.needs != "votes" or evidence.tally is not None
        if takes_classes and has_evidence and (published or name not in PUBLISHED):
            names.append(name)
    return tuple(names)


def afford(
    mechanism: type[Mechanism], budget: Budget, classes: int, bounds: Sequence[str] = BOUNDS
) -> Mechanism:
    """Return the mechanism with the largest guarantee per query that a total allows.

    Args:
        mechanism: the class, such as RandomizedResponse.
        budget: the total.
        classes: how many labels there are.
        bounds: which composition bounds may be used.

    Raises:
        ConfigError: nothing fits (a Gaussian mechanism with delta = 0, say).
    """
    guarantee = _guarantee_per_query(mechanism.spends, budget, tuple(bounds))  # type: ignore[arg-type]
    return mechanism.of(guarantee, classes)


# Mechanisms of one kind share out a budget alike, and a search asks for the same ones again.
@lru_cache(maxsize=1024)
def _guarantee_per_query(
    kind: type[GaussianDP], budget: Budget, bounds: tuple[str, ...]
) -> Guarantee:
    """Return the largest guarantee per query that a total allows."""
    return per_query(kind, budget.eps, budget.delta, budget.queries, bounds)


def planned_release(evidence: QueryEvidence, name: str, budget: Budget) -> PlannedRelease | None:
    """Return what labels by a mechanism give at a budget; None: the budget allows none."""
    try:
        mechanism = afford(MECHANISMS[name], budget, evidence.classes)
    except ConfigError:
        return None
    accuracy = evidence.expected_accuracy(mechanism)
    return PlannedRelease(name, budget, mechanism.guarantee, accuracy)


def planned_weights(
    options: Mapping[str, WeightsOption], budgets: Sequence[Budget]
) -> list[PlannedRelease]:
    """Return each way to release weights at each budget that it can meet."""
    planned = []
    for option in options.values():
        for budget in budgets:
            with suppress(ConfigError):
                planned.append(option.planned(budget))
    return planned


def max_queries_at_accuracy(
    evidence: QueryEvidence,
    name: str,
    eps: float,
    delta: float,
    accuracy: float,
    limit: int = 10**6,
) -> int:
    """Return the largest number of queries at which an expected accuracy is still reached.

    Args:
        evidence: of the queries.
        name: the mechanism.
        eps: of the total.
        delta: of the total.
        accuracy: which the expected accuracy has to be at least.
        limit: up to how many queries it is looked for.

    Returns:
        A number from 0, where not one query reaches it, to ``limit``.
    """

    def is_accurate(queries: int) -> bool:
        planned = planned_release(evidence, name, Budget(eps, delta, queries))
        return planned is not None and planned.accuracy >= accuracy

    if not is_accurate(1):
        return 0
    low = 1
    high = 2
    while high <= limit and is_accurate(high):
        low = high
        high = 2 * high
    high = min(high, limit + 1)
    return bisect(is_accurate, low, high, _geometric_midpoint)[0]


def _geometric_midpoint(low: int, high: int) -> int:
    """Return a whole number between two: the geometric mean where they are far apart."""
    return math.isqrt(low * high) if high > 4 * low else whole_midpoint(low, high)


@dataclass(frozen=True)
class Plan:
    """What private answers to labelled queries would cost.

    Attributes:
        evidence: of the queries.
        names: the mechanisms that were compared.
        delta: of every total.
        offers: every mechanism at every budget that it can meet.
        weights: (total eps, expected accuracy, mechanism) of weights, released in the best way;
            None: none can be released.
        singly: total eps -> how many queries can be answered one by one almost as accurately as the
            model (``best_for_one_query``), and by which mechanism; budgets at which not one can are
            left out.
        methods: weights mechanism -> how its expected accuracies were computed.
    """

    evidence: QueryEvidence
    names: tuple[str, ...]
    delta: float
    offers: tuple[PlannedRelease, ...]
    weights: tuple[tuple[float, float, str], ...] | None
    singly: Mapping[float, BestLabels]
    methods: Mapping[str, AccuracyMethod]

    @property
    def useful_weights(self) -> list[tuple[float, float, str]]:
        """Those of ``weights`` that are right more often than one answer to all, or always."""
        majority = self.evidence.majority
        return [row for row in self.weights or () if row[1] > majority or row[1] == 1]


def plan(
    model: Model,
    features: np.ndarray,
    labels: np.ndarray,
    eps: Sequence[float],
    delta: float,
    queries: Sequence[int],
    *,
    names: Sequence[str] | None = None,
    published: bool = False,
    counting: Counting = "distance",
    on_progress: OnProgress = lambda progress: None,
) -> Plan:
    """Return what every mechanism gives at every total budget and number of queries.

    Args:
        model: a fitted model.
        features: [n, ...] queries, as the head takes them.
        labels: [n] their true labels.
        eps: of the totals.
        delta: of every total.
        queries: how many queries may share a total.
        names: which mechanisms; None: all that the model can use.
        published: compare those of agt/mechanisms/published.py too, where ``names`` is None.
        counting: what evidence counts: records, or steps of the grid.
        on_progress: called as queries are certified.

    Raises:
        ConfigError: features alone move, so that no mechanism takes the certificates.
    """
    RELATIONS[model.problem.settings.relation.name].check_plan()
    certificates = model.certify(features, on_progress=on_progress)
    evidence = QueryEvidence.from_certificates(
        certificates, labels, model.problem.classes, counting
    )
    options = weights_options(model, features, labels)
    names = applicable(evidence, published) if names is None else tuple(names)
    best_labels = {}
    best_weights = []
    for total_eps in eps:
        best = best_for_one_query(evidence, names, total_eps, delta)
        if best is not None:
            best_labels[total_eps] = best
        releases = planned_weights(options, [Budget(total_eps, delta, 1)])
        if releases:
            best_release = max(releases, key=lambda release: release.accuracy)
            best_weights.append((total_eps, best_release.accuracy, best_release.mechanism))
    budgets = [Budget(total_eps, delta, count) for total_eps in eps for count in queries]
    planned_labels = [
        planned_release(evidence, name, budget) for name in names for budget in budgets
    ]
    return Plan(
        evidence=evidence,
        names=names,
        delta=delta,
        offers=(*filter(None, planned_labels), *planned_weights(options, budgets)),
        weights=tuple(best_weights) if options else None,
        singly=best_labels,
        methods={name: option.kind.accuracy_method for name, option in options.items()},
    )


def best_for_one_query(
    evidence: QueryEvidence, names: Sequence[str], eps: float, delta: float
) -> BestLabels | None:
    """Return how many queries can be answered almost as accurately as the model answers them.

    Almost is within ``ACCURACY_TOLERANCE`` of the nominal accuracy.

    Args:
        evidence: of the queries.
        names: the mechanisms to choose from.
        eps: of the total.
        delta: of the total.

    Returns:
        (the largest number of queries, the mechanism that reaches it); None: not one query can be
        answered so, or one answer to all queries is as good as the model.
    """
    if not evidence.useful:
        return None
    accuracy = evidence.accuracy - ACCURACY_TOLERANCE
    counts = [
        (max_queries_at_accuracy(evidence, name, eps, delta, accuracy), name) for name in names
    ]
    count, name = max(counts, key=lambda counted: counted[0], default=(0, ""))
    return (count, name) if count else None
