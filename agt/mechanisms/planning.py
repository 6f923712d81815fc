"""What private answers will cost: the exact expected accuracy of each mechanism for given budgets,
before any release.

Only expectations over a mechanism's own coin flips are taken, in closed form; nothing is drawn.
Those of weights mechanisms may be to first order in the noise, or simulated:
``WeightsMechanism.accuracy_method`` says which. The inputs are diagnostics about private data
(method.md section 3), so a plan is for the data owner.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from agt.certificates.box import Certificates
from agt.certificates.votes import VoteCertificates
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

WITHIN = 0.01  # advice calls "as good" what is within a point of the best


@dataclass(frozen=True)
class Evidence:
    """What mechanisms see of some queries whose true labels are known.

    Attributes:
        labels: [n] the true labels.
        prediction: [n] the nominal labels.
        distance: [n] the stable distances, or steps of the grid (``counting=index``).
        classes: C.
        tally: of an ensemble's votes (``VoteCertificates.tally``); None without one.
        votes: [n] the label that most of its members give.
        touches: how many of them one k can change.
    """

    labels: np.ndarray
    prediction: np.ndarray
    distance: np.ndarray
    classes: int
    tally: np.ndarray | None = None
    votes: np.ndarray | None = None
    touches: int = 1

    @classmethod
    def of(
        cls,
        certificates: Certificates,
        labels: np.ndarray,
        classes: int,
        counting: Counting = "distance",
    ) -> "Evidence":
        """What certificates say of labelled queries."""
        distance = evidence_of(certificates, counting)
        touches = RELATIONS[certificates.relation].touches
        if isinstance(certificates, VoteCertificates):
            tally, votes = certificates.tally, certificates.plurality
            return cls(labels, certificates.prediction, distance, classes, tally, votes, touches)
        return cls(labels, certificates.prediction, distance, classes)

    @property
    def accuracy(self) -> float:
        """Of the nominal labels, without noise."""
        return float((self.prediction == self.labels).mean())

    @property
    def majority(self) -> float:
        """What always answering the most frequent of the true labels would reach."""
        return float(np.bincount(self.labels).max() / len(self.labels))

    @property
    def useful(self) -> bool:
        """Whether the labels are right more often than one answer to all, or always."""
        return self.accuracy > self.majority or self.accuracy == 1

    def expected(self, mechanism: Mechanism) -> float:
        """The exact expected accuracy of the labels that ``mechanism`` releases.

        Raises:
            ConfigError: it needs votes, and there is no ensemble.
        """
        if mechanism.needs != "votes":
            return mechanism.expected_accuracy(self.prediction, self.distance, self.labels)
        if self.tally is None or self.votes is None:
            raise ConfigError(
                Message(
                    "mechanism={name} needs an ensemble's votes: train with "
                    "{config:ensemble.members}=T",
                    name=mechanism.name,
                )
            )
        return mechanism.covering(self.touches).expected_accuracy(
            self.votes, self.tally, self.labels
        )


@dataclass(frozen=True)
class Budget:
    """A total over a fixed number of queries."""

    eps: float
    delta: float
    queries: int


@dataclass(frozen=True)
class PlannedRelease:
    """One mechanism at one budget.

    Attributes:
        mechanism: its name.
        budget: the total; weights spend it once, whatever the number of queries.
        each: the guarantee of one query that the total affords; of the one release, for weights.
        accuracy: expected.
    """

    mechanism: str
    budget: Budget
    each: Guarantee
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
        """Return what one release of all of a budget gives.

        Raises:
            ConfigError: no guarantee is within the budget, or it is too little for the head.
        """
        mechanism = self.kind.within(budget.eps, budget.delta)
        accuracy = self.expectation(mechanism)
        return PlannedRelease(mechanism.name, budget, mechanism.guarantee, accuracy)


def weights_options(
    model: Model, features: np.ndarray, labels: np.ndarray
) -> dict[str, WeightsOption]:
    """Return every weights mechanism that can release from a model, by name; none where none can.

    Args:
        features: [n, ...] queries.
        labels: [n] their true labels.
    """
    options = {}
    for name, kind in weights_mechanisms().items():
        try:
            head = kind.head_of(model)
            kind.check_head(head)
        except ConfigError:
            continue
        # A plan says of the model's own conditions whether they hold, and of no other head's.
        if head is model or all(condition.held for condition in head.conditions):
            options[name] = WeightsOption(kind, kind.expectation(head, features, labels))
    return options


def applicable(evidence: Evidence, published: bool = False) -> tuple[str, ...]:
    """Return the names of the mechanisms that can answer these queries.

    Args:
        published: those of agt/mechanisms/published.py too, none of which can be the best.
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
    """The mechanism with the largest budget per query that the total allows.

    Raises:
        ConfigError: nothing fits (a Gaussian mechanism with delta = 0, say).
    """
    each = _each(mechanism.spends, budget, tuple(bounds))  # type: ignore[arg-type]
    return mechanism.of(each, classes)


# mechanisms of one kind share out a budget alike, and a search asks for the same ones again
@lru_cache(maxsize=1024)
def _each(kind: type[GaussianDP], budget: Budget, bounds: tuple[str, ...]) -> Guarantee:
    """What a total leaves of one query."""
    return per_query(kind, budget.eps, budget.delta, budget.queries, bounds)


def planned_release(evidence: Evidence, name: str, budget: Budget) -> PlannedRelease | None:
    """Return what labels by a mechanism give at a budget; None: the budget allows none."""
    try:
        mechanism = afford(MECHANISMS[name], budget, evidence.classes)
    except ConfigError:
        return None
    return PlannedRelease(name, budget, mechanism.guarantee, evidence.expected(mechanism))


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


def answerable(
    evidence: Evidence, name: str, eps: float, delta: float, accuracy: float, most: int = 10**6
) -> int:
    """The largest number of queries, up to ``most``, at which the expected accuracy is still at
    least ``accuracy``.
    """

    def enough(queries: int) -> bool:
        planned = planned_release(evidence, name, Budget(eps, delta, queries))
        return planned is not None and planned.accuracy >= accuracy

    if not enough(1):
        return 0
    low, high = 1, 2
    while high <= most and enough(high):
        low, high = high, 2 * high
    high = min(high, most + 1)
    return bisect(
        enough, low, high, lambda a, b: math.isqrt(a * b) if b > 4 * a else whole_midpoint(a, b)
    )[0]


@dataclass(frozen=True)
class Plan:
    """What private answers to labelled queries would cost.

    Attributes:
        evidence: of the queries.
        names: the mechanisms.
        delta: of every total.
        offers: every mechanism at every budget that it can meet.
        weights: (total eps, expected accuracy, mechanism) of weights, released in the best way;
            None: none can be released.
        singly: total eps -> (how many queries, by which mechanism) can be answered one by one
            within ``WITHIN`` of the nominal accuracy; budgets at which not one can are left out,
            and so are all where a constant is as good.
        methods: weights mechanism -> how its expected accuracies were worked out.
    """

    evidence: Evidence
    names: tuple[str, ...]
    delta: float
    offers: tuple[PlannedRelease, ...]
    weights: tuple[tuple[float, float, str], ...] | None
    singly: Mapping[float, tuple[int, str]]
    methods: Mapping[str, AccuracyMethod]

    @property
    def useful_weights(self) -> list[tuple[float, float, str]]:
        """Of the weights, those that are right more often than one answer to all."""
        return [row for row in self.weights or () if row[1] > self.evidence.majority or row[1] == 1]


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
    """Every mechanism at every total budget and number of queries.

    Args:
        features: [n, ...] queries, as the head takes them.
        labels: [n] their true labels.
        eps, delta: of the totals.
        queries: how many may share a total.
        names: which mechanisms; None: all that the model can use.
        published: compare those of agt/mechanisms/published.py too, where ``names`` is None.
        on_progress: called as queries are certified.

    Raises:
        ConfigError: features alone move, so that no mechanism takes the certificates.
    """
    RELATIONS[model.problem.settings.relation.name].check_plan()
    evidence = Evidence.of(
        model.certify(features, on_progress=on_progress), labels, model.problem.classes, counting
    )
    options = weights_options(model, features, labels)
    names = applicable(evidence, published) if names is None else tuple(names)
    singly = {}
    best_weights = []
    for total_eps in eps:
        best_label = best_for_one_query(evidence, names, total_eps, delta)
        if best_label is not None:
            singly[total_eps] = best_label
        reached = planned_weights(options, [Budget(total_eps, delta, 1)])
        if reached:
            best = max(reached, key=lambda release: release.accuracy)
            best_weights.append((total_eps, best.accuracy, best.mechanism))
    budgets = [Budget(total_eps, delta, count) for total_eps in eps for count in queries]
    labels_planned = [
        planned_release(evidence, name, budget) for name in names for budget in budgets
    ]
    offers = (*filter(None, labels_planned), *planned_weights(options, budgets))
    methods = {name: option.kind.accuracy_method for name, option in options.items()}
    weights = tuple(best_weights) if options else None
    return Plan(evidence, names, delta, offers, weights, singly, methods)


def best_for_one_query(
    evidence: Evidence, names: Sequence[str], eps: float, delta: float
) -> tuple[int, str] | None:
    """Return (how many queries, by which mechanism) can be answered almost as the model answers.

    Almost: within ``WITHIN`` of its accuracy. None: not one can, or one answer to all is as good.
    """
    if not evidence.useful:
        return None
    least = evidence.accuracy - WITHIN
    counts = [(answerable(evidence, name, eps, delta, least), name) for name in names]
    count, name = max(counts, key=lambda counted: counted[0], default=(0, ""))
    return (count, name) if count else None
