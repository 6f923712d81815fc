"""What private answers will cost: the exact expected accuracy of each mechanism for given budgets, before any release.

Only expectations over a mechanism's own coin flips are taken, in closed form; nothing is drawn. Some are not exact:
objective perturbation's is to first order in its noise (objective.py, ``expected_deviations``). Weights
of noisy statistics, of which no closed form is known, are simulated. The inputs are diagnostics about
private data (method.md section 3), so a plan is for the data owner.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np

from agt.certificates.box import Certificates
from agt.certificates.stability import upper_lengths
from agt.certificates.votes import VoteCertificates
from agt.errors import ConfigError
from agt.mechanisms.claims import Counting, evidence_of, head_of
from agt.mechanisms.composition import BOUNDS, per_query
from agt.mechanisms.guarantees import GaussianDP, Guarantee
from agt.mechanisms.mechanism import MECHANISMS, Mechanism
from agt.mechanisms.objective import ObjectivePerturbation, check_possible, expected_deviations
from agt.mechanisms.published import PUBLISHED
from agt.mechanisms.statistics import NoisyStatistics
from agt.mechanisms.weights import ReleaseWeights, expected_accuracy, noise_scale
from agt.models.linear import LinearModel
from agt.models.model import Model
from agt.numeric import bisect, labels_of, logits_of, whole_midpoint
from agt.relations import RELATIONS
from agt.training.loop import OnProgress

WITHIN = 0.01  # advice calls "as good" what is within a point of the best
SOLVED_DRAWS = 8  # simulated releases of noisy statistics that stand for what is expected of them


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
        cls, certificates: Certificates, labels: np.ndarray, classes: int, counting: Counting = "distance"
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
            raise ConfigError(f"mechanism={mechanism.name} needs an ensemble's votes: train with ensemble.members=T")
        return mechanism.covering(self.touches).expected_accuracy(self.votes, self.tally, self.labels)


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


@dataclass(frozen=True)
class Weighing:
    """A way to release weights, once.

    Attributes:
        afford: (total eps, total delta) -> the guarantee of the one release. Raises ConfigError: none fits.
        accuracy: the guarantee's parameters -> the expected accuracy of the labels.
    """

    afford: Callable[[float, float], Guarantee]
    accuracy: Callable[..., float]

    def expected(self, guarantee: Guarantee) -> float:
        """The expected accuracy of one release. Raises ConfigError: the guarantee is too strong for this way."""
        return self.accuracy(*guarantee.parameters.values())


def weights_accuracy(model: Model, features: np.ndarray, labels: np.ndarray) -> Callable[[float], float] | None:
    """mu -> the exact expected accuracy of released weights on these queries; None where weights cannot be released."""
    head = model.linear_head
    if head is None:
        return None
    phi, moves = head.phi(features), head.moves
    logits, lengths = logits_of(head.trained.weight, phi), upper_lengths(phi)
    return lambda mu: expected_accuracy(logits, lengths, labels, noise_scale(moves, GaussianDP(mu)))


def weights_on_offer(
    model: Model, features: np.ndarray, labels: np.ndarray, weight_decay: float | None = None
) -> Mapping[str, Weighing]:
    """Every way to release the weights once, by the mechanism's name; none, where they cannot be released.

    Objective perturbation's accuracy is to first order in its noise, and refused where epsilon is too little.

    Args:
        weight_decay: of objective perturbation; None: the model's own.
    """
    added = weights_accuracy(model, features, labels)
    ways = {ReleaseWeights.name: Weighing(ReleaseWeights.afford, added)} if added else {}
    for kind, check in ((ObjectivePerturbation, check_possible), (NoisyStatistics, NoisyStatistics(mu=1.0).check)):
        try:
            head = head_of(model, kind.name)
            check(head)
        except ConfigError:
            continue
        if head is not model and not all(condition.held for condition in head.conditions):
            continue  # a plan says of the model's own conditions whether they hold, and of no other head's
        phi = head.phi(features)
        solved = kind is NoisyStatistics
        accuracy = sums_accuracy(head, phi, labels) if solved else tilted_accuracy(head, phi, labels, weight_decay)
        ways[kind.name] = Weighing(kind.afford, accuracy)
    return ways


def tilted_accuracy(
    head: LinearModel, phi: np.ndarray, labels: np.ndarray, weight_decay: float | None
) -> Callable[[float, float], float]:
    """(eps, delta) -> the accuracy of objective perturbation on queries of these features, to first order."""
    mean, deviations = expected_deviations(head, phi, weight_decay)
    return lambda eps, delta: expected_accuracy(mean, deviations(eps, delta), labels, 1.0)


def sums_accuracy(head: LinearModel, phi: np.ndarray, labels: np.ndarray) -> Callable[[float], float]:
    """mu -> the accuracy of weights from noisy statistics on queries of these features, a mean over simulations."""
    records = cache(lambda: NoisyStatistics(mu=1.0).records(head))  # which no mu changes

    @cache
    def accuracy(mu: float) -> float:
        mechanism, normal = NoisyStatistics(mu=mu), np.random.default_rng(0).standard_normal
        noises, right = mechanism.noises(head), 0.0

        def draw(values: np.ndarray, sigma: float) -> np.ndarray:
            return values + sigma * normal(values.shape)

        centre = mechanism.centre(head, draw(records().total, noises.mean))  # one for all: sums over it take time
        known = records().statistics(centre)
        for _ in range(SOLVED_DRAWS):
            logits = phi @ mechanism.carried(head, centre, known.noisy(noises, draw).solved(noises)).T
            right += float((labels_of(logits) == labels).mean())
        return right / SOLVED_DRAWS

    return accuracy


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


def afford(mechanism: type[Mechanism], budget: Budget, classes: int, bounds: Sequence[str] = BOUNDS) -> Mechanism:
    """The mechanism with the largest budget per query that the total allows.

    Raises:
        ConfigError: nothing fits (a Gaussian mechanism with delta = 0, say).
    """
    each = _each(mechanism.spends, budget, tuple(bounds))  # type: ignore[arg-type]
    return mechanism.of(each, classes)


@lru_cache(maxsize=1024)  # mechanisms of one kind share out a budget alike, and a search asks for the same ones again
def _each(kind: type[GaussianDP], budget: Budget, bounds: tuple[str, ...]) -> Guarantee:
    """What a total leaves of one query."""
    return per_query(kind, budget.eps, budget.delta, budget.queries, bounds)


def offer(evidence: Evidence, weights: Mapping[str, Weighing], name: str, budget: Budget) -> Offer | None:
    """What a mechanism, or a way to release weights, gives at a budget; None: nothing that it gives is within it.

    Args:
        weights: the ways, as ``weights_on_offer`` has them, which spend theirs once whatever the number of queries.
    """
    try:
        if name in weights:
            each = weights[name].afford(budget.eps, budget.delta)
            return Offer(name, budget, each, weights[name].expected(each))
        mechanism = afford(MECHANISMS[name], budget, evidence.classes)
    except ConfigError:
        return None
    return Offer(name, budget, mechanism.guarantee, evidence.expected(mechanism))


def offers(
    evidence: Evidence, names: Iterable[str], weights: Mapping[str, Weighing], budgets: Sequence[Budget]
) -> tuple[Offer, ...]:
    """Each mechanism and each way to release weights at each budget that it can meet."""
    made = (offer(evidence, weights, name, budget) for name in (*names, *weights) for budget in budgets)
    return tuple(filter(None, made))


def answerable(evidence: Evidence, name: str, eps: float, delta: float, accuracy: float, most: int = 10**6) -> int:
    """The largest number of queries, up to ``most``, at which the expected accuracy is still at least ``accuracy``."""

    def enough(queries: int) -> bool:
        offered = offer(evidence, {}, name, Budget(eps, delta, queries))
        return offered is not None and offered.accuracy >= accuracy

    if not enough(1):
        return 0
    low, high = 1, 2
    while high <= most and enough(high):
        low, high = high, 2 * high
    high = min(high, most + 1)
    return bisect(enough, low, high, lambda a, b: math.isqrt(a * b) if b > 4 * a else whole_midpoint(a, b))[0]


@dataclass(frozen=True)
class Plan:
    """What private answers to labelled queries would cost.

    Attributes:
        evidence: of the queries.
        names: the mechanisms.
        delta: of every total.
        offers: every mechanism at every budget that it can meet.
        weights: (total eps, expected accuracy, mechanism) of weights, released in the best way; None: none can be released.
        singly: total eps -> (how many queries, by which mechanism) can be answered one by one within ``WITHIN`` of the
            nominal accuracy; budgets at which not one can are left out, and so are all where a constant is as good.
    """

    evidence: Evidence
    names: tuple[str, ...]
    delta: float
    offers: tuple[Offer, ...]
    weights: tuple[tuple[float, float, str], ...] | None
    singly: Mapping[float, tuple[int, str]]

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
    evidence = Evidence.of(model.certify(features, on_progress=on_progress), labels, model.problem.classes, counting)
    weights = weights_on_offer(model, features, labels)
    names = applicable(evidence, published) if names is None else tuple(names)
    singly, gained = {}, list[tuple[float, float, str]]()
    for e in eps:
        asked = names if evidence.useful else ()
        counts = {name: answerable(evidence, name, e, delta, evidence.accuracy - WITHIN) for name in asked}
        best = max(counts, key=lambda name: counts[name], default=None)
        if best is not None and counts[best]:
            singly[e] = counts[best], best
        reached = offers(evidence, (), weights, [Budget(e, delta, 1)])
        if reached:
            most = max(reached, key=lambda offer: offer.accuracy)
            gained.append((e, most.accuracy, most.mechanism))
    made = offers(evidence, names, weights, [Budget(e, delta, count) for e in eps for count in queries])
    return Plan(evidence, names, delta, made, tuple(gained) if weights else None, singly)
