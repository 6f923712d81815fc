"""What private answers will cost: the expected score of each mechanism for given budgets.

The score is the accuracy of classes, or the RMSE of numbers.

    plan(model, features, labels, eps=[1.0], delta=1e-5, queries=[100]).releases

Nothing is drawn: expectations over a mechanism's noise have closed forms. Those of weights
mechanisms may be first-order approximations or simulated (``WeightsMechanism.accuracy_method``). A
plan reads private data, so it is only for the data owner.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import product
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np

from agt.certificates.box import Certificates
from agt.certificates.vote_certificates import VoteCertificates
from agt.errors import ConfigError
from agt.mechanisms.composition import BOUNDS, per_query
from agt.mechanisms.guarantees import Guarantee
from agt.mechanisms.labelling import evidence_of
from agt.mechanisms.laplace_mean import LaplaceMean
from agt.mechanisms.mechanism import MECHANISMS, Mechanism
from agt.mechanisms.published import PUBLISHED
from agt.mechanisms.weights_mechanism import AccuracyMethod, WeightsMechanism, weights_mechanisms
from agt.models.linear import LinearModel
from agt.models.model import Model
from agt.models.number_votes import NumberVotes
from agt.numeric import bisect, whole_midpoint
from agt.parameters import explaining_parameters
from agt.relations import RELATIONS
from agt.release_settings import no_votes
from agt.settings import Counting
from agt.training.loop import OnProgress, ignore_progress

ACCURACY_TOLERANCE = 0.01  # a difference of accuracies up to which advice says "as good"
RMSE_TOLERANCE = 0.05  # a relative difference of RMSEs up to which advice says "as good"
SCORE_ROUNDING = 1e-9  # relative: more than rounding adds to a mean of simulated draws
M = TypeVar("M", Mechanism, LaplaceMean)


class BestLabels(NamedTuple):
    """The label mechanism that can answer most queries almost as well as the model does.

    Attributes:
        queries: the largest number of queries, at least 1.
        mechanism: the mechanism's name.
    """

    queries: int
    mechanism: str


@explaining_parameters
@dataclass(frozen=True)
class Budget:
    """A total privacy budget for a fixed number of queries.

    Attributes:
        eps: all queries together are (eps, delta)-DP.
        delta: see ``eps``.
        queries: the number of queries.
    """

    eps: float
    delta: float
    queries: int


class Evidence(ABC):
    """The evidence of queries whose true labels are known, and the scoring of their answers.

    All of it is private.

    Attributes:
        score: the name of the score of answers: ``accuracy`` or ``rmse``.
    """

    score: ClassVar[str]

    @property
    @abstractmethod
    def nominal_score(self) -> float:
        """The score of the model's own answers, without any noise."""

    @property
    @abstractmethod
    def constant_score(self) -> float:
        """The best score of a constant answer (the same answer to every query)."""

    @property
    def is_useful(self) -> bool:
        """Whether the model's answers without noise score above a constant answer, or perfectly."""
        return self.is_worthwhile(self.nominal_score)

    @abstractmethod
    def merit(self, score: float) -> float:
        """Return a number that is larger for a better score, so that scores can be compared."""

    @abstractmethod
    def is_worthwhile(self, score: float) -> bool:
        """Return whether a score is better than ``constant_score``, or perfect."""

    @property
    @abstractmethod
    def score_limit(self) -> float:
        """The limit of the scores that advice calls "as good" as the answers without noise."""

    def is_almost_nominal(self, score: float) -> bool:
        """Return whether a score is at least as good as ``score_limit``."""
        return self.merit(score) >= self.merit(self.score_limit)

    @abstractmethod
    def supported_mechanisms(self, published: bool = False) -> tuple[str, ...]:
        """Return the names of the mechanisms that can answer these queries one by one.

        Args:
            published: include those of agt/mechanisms/published.py, which are never better than
                the rest.
        """

    @abstractmethod
    def mechanism_within(self, name: str, budget: Budget) -> Any:
        """Return the mechanism with the largest guarantee per query that a budget allows.

        Args:
            name: one of ``supported_mechanisms``.
            budget: the total, and the number of queries among which it is divided.

        Raises:
            ConfigError: no guarantee fits.
        """

    @abstractmethod
    def expected(self, mechanism: Any) -> float:
        """Return the expected score of the answers that a mechanism would release.

        Args:
            mechanism: a mechanism that ``mechanism_within`` returned.

        Raises:
            ConfigError: the mechanism does not support these queries.
        """


@dataclass(frozen=True)
class QueryEvidence(Evidence):
    """The evidence of queries whose true classes are known; all of it is private.

    Attributes:
        labels: [n] the true labels.
        prediction: [n] the nominal labels: those of the trained model.
        distance: [n] how many edits of the training data certainly leave each label unchanged, or,
            if counting="index", how many values of the grid of such numbers are certified.
        classes: C, the number of labels.
        tally: an ensemble's votes: [n] the gaps between two classes' counts, or [n, C] the counts
            of more classes; None: the model is no ensemble.
        votes: [n] the label that most members of the ensemble give; None: the model is no ensemble.
        changed_votes: the number of members' votes that one edit of the training data can change.
    """

    labels: np.ndarray
    prediction: np.ndarray
    distance: np.ndarray
    classes: int
    tally: np.ndarray | None = None
    votes: np.ndarray | None = None
    changed_votes: int = 1

    score = "accuracy"

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
            certificates: the certificates of n queries.
            labels: [n] their true labels.
            classes: C, the number of labels.
            counting: what distances count: "distance": edits of the training data; "index": values
                of the grid of such numbers.
        """
        prediction = certificates.prediction
        distance = evidence_of(certificates, counting)
        if not isinstance(certificates, VoteCertificates):  # there is no ensemble
            return cls(labels, prediction, distance, classes)
        return cls(
            labels,
            prediction,
            distance,
            classes,
            tally=certificates.tally,
            votes=certificates.plurality,
            changed_votes=RELATIONS[certificates.relation].members_changed_per_edit,
        )

    @property
    def nominal_score(self) -> float:
        """The accuracy of the nominal labels (those of the trained model), without any noise."""
        return float((self.prediction == self.labels).mean())

    @property
    def constant_score(self) -> float:
        """The accuracy of a constant answer: always the most frequent of the true labels."""
        largest_class = np.bincount(self.labels).max()  # how many queries it has
        return float(largest_class / len(self.labels))

    def merit(self, score: float) -> float:
        """Return the accuracy itself, because a larger one is better."""
        return score

    def is_worthwhile(self, score: float) -> bool:
        """Return whether an accuracy is above that of a constant answer, or equal to 1.

        A mean of simulated accuracies that equals the constant one may differ from it by rounding,
        so a difference of ``SCORE_ROUNDING`` counts as none.
        """
        return score > self.constant_score * (1 + SCORE_ROUNDING) or score == 1

    @property
    def score_limit(self) -> float:
        """The nominal accuracy minus ``ACCURACY_TOLERANCE``."""
        return self.nominal_score - ACCURACY_TOLERANCE

    def supported_mechanisms(self, published: bool = False) -> tuple[str, ...]:
        """Return the names of the label mechanisms that can answer these queries.

        Left out are those that do not support the number of classes, or need an ensemble's votes
        if there is no ensemble.

        Args:
            published: include those of agt/mechanisms/published.py, which are never better than
                the rest.
        """
        names = []
        for name, mechanism in MECHANISMS.items():
            takes_classes = self.classes == 2 or mechanism.any_classes
            has_evidence = mechanism.needs != "votes" or self.tally is not None
            if takes_classes and has_evidence and (published or name not in PUBLISHED):
                names.append(name)
        return tuple(names)

    def mechanism_within(self, name: str, budget: Budget) -> Mechanism:
        """Return the label mechanism with the largest guarantee per query that a budget allows.

        Args:
            name: one of ``supported_mechanisms``.
            budget: the total, and the number of queries among which it is divided.

        Raises:
            ConfigError: no guarantee fits.
        """
        return afford(MECHANISMS[name], budget, self.classes)

    def expected(self, mechanism: Mechanism) -> float:
        """Return the expected accuracy of the labels that a mechanism would release.

        Args:
            mechanism: a label mechanism for as many classes.

        Raises:
            ConfigError: the mechanism needs votes, and there is no ensemble.
        """
        if mechanism.needs != "votes":
            return mechanism.expected_accuracy(self.prediction, self.distance, self.labels)
        if self.tally is None or self.votes is None:
            raise no_votes(mechanism.name)
        # The noise has to cover all votes that one edit can change.
        covering_mechanism = mechanism.for_changed_votes(self.changed_votes)
        return covering_mechanism.expected_accuracy(self.votes, self.tally, self.labels)


@dataclass(frozen=True)
class NumberEvidence(Evidence):
    """The evidence of queries whose true numbers are known; all of it is private.

    Attributes:
        model: the ensemble that answers.
        labels: [n] the true numbers.
        answers: [n] the means of its members, which are released with noise.
    """

    model: NumberVotes
    labels: np.ndarray
    answers: np.ndarray

    score = "rmse"

    @cached_property
    def nominal_score(self) -> float:
        """The RMSE of the means of the members."""
        return _rmse(self.answers - self.labels)

    @cached_property
    def constant_score(self) -> float:
        """The RMSE of always answering the median of the true numbers."""
        return _rmse(np.median(self.labels) - self.labels)

    def merit(self, score: float) -> float:
        """Return minus the RMSE, because a smaller one is better."""
        return -score

    def is_worthwhile(self, score: float) -> bool:
        """Return whether an RMSE is below that of a constant answer, or equal to 0.

        A difference of ``SCORE_ROUNDING`` counts as none.
        """
        return score < self.constant_score * (1 - SCORE_ROUNDING) or score == 0

    @property
    def score_limit(self) -> float:
        """The nominal RMSE times 1 + ``RMSE_TOLERANCE``."""
        return self.nominal_score * (1 + RMSE_TOLERANCE)

    def supported_mechanisms(self, published: bool = False) -> tuple[str, ...]:
        """Return the name of the one mechanism for numbers.

        Args:
            published: not read, because none was published before.
        """
        return (LaplaceMean.name,)

    def mechanism_within(self, name: str, budget: Budget) -> LaplaceMean:
        """Return the mechanism for numbers with the largest guarantee per query in a budget.

        Args:
            name: not read, because there is one mechanism for numbers.
            budget: the total, and the number of queries among which it is divided.

        Raises:
            ConfigError: no guarantee fits.
        """
        no_classes = 0
        return afford(LaplaceMean, budget, no_classes)

    def expected(self, mechanism: LaplaceMean) -> float:
        """Return the expected RMSE of the numbers that the mechanism would release."""
        return mechanism.expected_rmse_of(self.model, self.answers, self.labels)


def _rmse(errors: np.ndarray) -> float:
    """Return the root mean square of errors [n]."""
    return math.sqrt(float(np.mean(np.square(errors))))


def collect_evidence(
    model: Model,
    features: np.ndarray,
    labels: np.ndarray,
    counting: Counting,
    on_progress: OnProgress,
) -> Evidence:
    """Let a model answer queries, and return its answers with the evidence for mechanisms.

    Args:
        model: a fitted model.
        features: [n, ...] the queries, as the model takes them.
        labels: [n] their true labels.
        counting: the unit of stable distances (``QueryEvidence``); not used if labels are numbers.
        on_progress: called while the model answers.
    """
    votes = model.number_votes
    if votes is not None:
        sums = votes.sums(features, on_progress)
        return NumberEvidence(votes, labels, answers=votes.mean_of(sums))
    certificates = model.certify(features, on_progress=on_progress)
    return QueryEvidence.from_certificates(certificates, labels, model.problem.classes, counting)


@dataclass(frozen=True)
class PlannedRelease:
    """The guarantee and the expected score of one mechanism at one budget.

    Attributes:
        mechanism: the mechanism's name.
        budget: the total. Weights spend it in one release, whatever the number of queries.
        guarantee: the guarantee that the total leaves for one query, or for the one release of
            weights.
        expected: the expected score (accuracy, or RMSE) of the released answers, or of answers from
            the weights.
    """

    mechanism: str
    budget: Budget
    guarantee: Guarantee
    expected: float


@dataclass(frozen=True)
class WeightsOption:
    """A mechanism that can release a model's weights, and the score to expect of them.

    Attributes:
        kind: the mechanism's class.
        expectation: maps a mechanism of this class (that is, a budget) to the expected score, on
            some queries, of answers computed from the weights that it releases.
    """

    kind: type[WeightsMechanism]
    expectation: Callable[[Any], float]

    def planned(self, budget: Budget) -> PlannedRelease:
        """Return the guarantee and expected score of one release that spends a whole budget.

        Args:
            budget: the total; its number of queries is not read.

        Raises:
            ConfigError: no guarantee is within the budget, or it is too small for the model's head.
        """
        mechanism = self.kind.within(budget.eps, budget.delta)
        expected = self.expectation(mechanism)
        return PlannedRelease(mechanism.name, budget, mechanism.guarantee, expected)


def weights_options(
    model: Model, features: np.ndarray, labels: np.ndarray
) -> dict[str, WeightsOption]:
    """Return every mechanism that can release weights of a model, by name.

    A mechanism is left out if it does not support the model's head, or if it releases another head
    than the model's own and that head does not meet every condition of the privacy proof.

    Args:
        model: a fitted model; for one without a linear head the result is empty.
        features: [n, ...] queries, for expected scores.
        labels: [n] their true labels.
    """
    kinds = weights_mechanisms()
    options = {}
    for name, head in releasable_heads(model).items():
        kind = kinds[name]
        options[name] = WeightsOption(kind, kind.expectation(head, features, labels))
    return options


def releasable_heads(model: Model) -> dict[str, LinearModel]:
    """Return the head whose weights each mechanism can release, by the mechanism's name.

    A mechanism is left out as ``weights_options`` says. Nothing is computed about queries.
    """
    heads = {}
    for name, kind in weights_mechanisms().items():
        try:
            head = kind.releasable_head(model)
            kind.check_head(head)
        except ConfigError:
            continue
        # A plan reports which conditions of the privacy proof the model itself meets. Those of
        # another head (an ensemble's extra head, say) are not reported, so all have to hold.
        if head is model or all(condition.held for condition in head.conditions):
            heads[name] = head
    return heads


# Cached because all mechanisms with the same type of guarantee ask for the same budgets.
_cached_per_query = lru_cache(maxsize=1024)(per_query)


def afford(mechanism: type[M], budget: Budget, classes: int, bounds: Sequence[str] = BOUNDS) -> M:
    """Return the label mechanism with the largest guarantee per query that a total allows.

    Args:
        mechanism: the class, such as RandomizedResponse.
        budget: the total, and the number of queries among which it is divided.
        classes: the number of labels; not read by mechanisms of numbers.
        bounds: names of the composition bounds that may be used.

    Raises:
        ConfigError: no guarantee fits (a Gaussian mechanism with delta = 0, say).
    """
    guarantee = _cached_per_query(
        mechanism.spends,  # type: ignore[arg-type]
        budget.eps,
        budget.delta,
        budget.queries,
        tuple(bounds),
    )
    return mechanism.with_guarantee(guarantee, classes)


def planned_release(evidence: Evidence, name: str, budget: Budget) -> PlannedRelease | None:
    """Return the guarantee and expected score of answers from one mechanism at a budget.

    Args:
        evidence: the labels and the evidence that mechanisms read, for each query.
        name: the mechanism's name, one of ``evidence.supported_mechanisms``.
        budget: the total, and the number of queries among which it is divided.

    Returns:
        The planned release; None: the budget leaves no guarantee per query.
    """
    try:
        mechanism = evidence.mechanism_within(name, budget)
    except ConfigError:
        return None
    expected = evidence.expected(mechanism)
    return PlannedRelease(name, budget, mechanism.guarantee, expected)


def planned_weights(
    options: Mapping[str, WeightsOption],
    eps: Sequence[float],
    delta: float,
    on_planned: Callable[[int, int], None] = lambda done, total: None,
) -> list[PlannedRelease]:
    """Return the guarantee and expected score of each weights mechanism at each total eps.

    A pair of a mechanism and a budget that is too small for it is left out.

    Args:
        options: the mechanisms by name (``weights_options``).
        eps: total budgets, each spent by one release.
        delta: the delta of every total.
        on_planned: called with how many of how many pairs are done; a simulated one may take a
            minute.
    """
    planned = []
    pairs = list(product(options.values(), eps))
    for number, (option, total_eps) in enumerate(pairs, 1):
        with suppress(ConfigError):  # raised if the budget is too small
            planned.append(option.planned(Budget(total_eps, delta, queries=1)))
        on_planned(number, len(pairs))
    return planned


MAX_PLANNED_QUERIES = 10**6


def max_queries_almost_nominal(evidence: Evidence, name: str, eps: float, delta: float) -> int:
    """Return the number of queries that a mechanism can answer about as well as the model.

    More queries leave less budget, and so a worse score, for each. The number is searched for by
    doubling, and then by bisection.

    Args:
        evidence: the labels and the evidence that mechanisms read, for each query.
        name: the mechanism's name.
        eps: the eps of all queries together.
        delta: the delta of all queries together.

    Returns:
        A number from 0 (one query is already answered worse) to ``MAX_PLANNED_QUERIES``.
    """

    def is_accurate(queries: int) -> bool:
        """Return whether so many queries can share the budget and be answered well enough."""
        planned = planned_release(evidence, name, Budget(eps, delta, queries))
        return planned is not None and evidence.is_almost_nominal(planned.expected)

    if not is_accurate(1):
        return 0
    low = 1  # accurate
    high = 2  # after the loop: not accurate, or beyond the limit
    while high <= MAX_PLANNED_QUERIES and is_accurate(high):
        low = high
        high = 2 * high
    high = min(high, MAX_PLANNED_QUERIES + 1)
    largest_accurate, _ = bisect(is_accurate, low, high, _geometric_midpoint)
    return largest_accurate


def _geometric_midpoint(low: int, high: int) -> int:
    """Return a whole number between two: their geometric mean if they are far apart."""
    if high > 4 * low:
        return math.isqrt(low * high)
    return whole_midpoint(low, high)


E = TypeVar("E", bound=Evidence, covariant=True)


@dataclass(frozen=True)
class Plan(Generic[E]):
    """The expected scores of private answers to queries with known labels; itself private.

    Attributes:
        evidence: the labels and the evidence that mechanisms read, for each query.
        names: the label mechanisms that were compared.
        delta: the delta of every total budget.
        releases: the guarantee and the expected score of every mechanism at every budget that is
            large enough for it.
        weights: the best release of weights for each total eps that is large enough for one; None:
            no mechanism can release this model's weights.
        one_by_one: total eps -> the mechanism that can answer most queries one by one with almost
            the model's score. A total eps that suffices for no query is left out.
        methods: name of a weights mechanism -> how its expected score is computed.
    """

    evidence: E
    names: tuple[str, ...]
    delta: float
    releases: tuple[PlannedRelease, ...]
    weights: tuple[PlannedRelease, ...] | None
    one_by_one: Mapping[float, BestLabels]
    methods: Mapping[str, AccuracyMethod]

    @property
    def useful_weights(self) -> list[PlannedRelease]:
        """The entries of ``weights`` whose score is better than a constant answer's, or perfect."""
        if self.weights is None:
            return []
        return [best for best in self.weights if self.evidence.is_worthwhile(best.expected)]


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
    on_progress: OnProgress = ignore_progress,
    on_weights: Callable[[int, int], None] = lambda done, total: None,
) -> Plan[Evidence]:
    """Return the expected scores of every mechanism at every total budget and number of queries.

    Args:
        model: a fitted model.
        features: [n, ...] queries, as the model takes them.
        labels: [n] their true labels.
        eps: the total budgets to compare, each for all queries together.
        delta: the delta of every total.
        queries: the numbers of queries to compare, among which a total is divided.
        names: the label mechanisms to compare; None: all that the model supports.
        published: compare those of agt/mechanisms/published.py, too; only if ``names`` is None.
        counting: what the evidence counts: "distance": edits of the training data; "index": values
            of the grid of such numbers.
        on_progress: called while queries are certified.
        on_weights: called with how many of how many releases of weights were planned.

    Raises:
        ConfigError: no mechanism may use the certificates of the model's relation, under which an
            edit changes only features.
    """
    RELATIONS[model.problem.settings.relation.name].check_plan()
    evidence = collect_evidence(model, features, labels, counting, on_progress)
    options = weights_options(model, features, labels)
    names = evidence.supported_mechanisms(published) if names is None else tuple(names)
    best_labels = {}
    for total_eps in eps:
        best = mechanism_for_most_queries(evidence, names, total_eps, delta)
        if best is not None:
            best_labels[total_eps] = best
    budgets = [Budget(total_eps, delta, count) for total_eps in eps for count in queries]
    planned_labels = [
        planned_release(evidence, name, budget) for name in names for budget in budgets
    ]
    weights = planned_weights(options, eps, delta, on_weights)
    # One release of weights answers any number of queries, so its score is that of each number.
    weights_by_queries = [
        replace(release, budget=replace(release.budget, queries=count))
        for release in weights
        for count in queries
    ]
    return Plan(
        evidence=evidence,
        names=names,
        delta=delta,
        releases=(*filter(None, planned_labels), *weights_by_queries),
        weights=_best_for_each_eps(evidence, weights, eps) if options else None,
        one_by_one=best_labels,
        methods={name: option.kind.accuracy_method for name, option in options.items()},
    )


def _best_for_each_eps(
    evidence: Evidence, releases: Sequence[PlannedRelease], eps: Sequence[float]
) -> tuple[PlannedRelease, ...]:
    """Return, for each total budget, the release of weights with the best expected score.

    Args:
        evidence: the queries, which decide how scores are compared.
        releases: the releases to choose from; of several with the same score, the first is taken.
        eps: the total budgets; one that no release fits has no entry in the result.
    """
    best_releases = []
    for total_eps in eps:
        fitting = [release for release in releases if release.budget.eps == total_eps]
        if fitting:
            best = max(fitting, key=lambda release: evidence.merit(release.expected))
            best_releases.append(best)
    return tuple(best_releases)


def mechanism_for_most_queries(
    evidence: Evidence, names: Sequence[str], eps: float, delta: float
) -> BestLabels | None:
    """Return the mechanism that can answer most queries almost as well as the model does.

    Args:
        evidence: the labels and the evidence that mechanisms read, for each query;
            ``is_almost_nominal`` says what "almost" means.
        names: the mechanisms to choose from.
        eps: the eps of all queries together.
        delta: the delta of all queries together.

    Returns:
        The mechanism with the number of queries; of several with the same number, the first of
        ``names``. None: not even one query can be answered so well, or the model itself is not
        better than a constant answer.
    """
    if not evidence.is_useful:
        return None
    best = None
    max_queries = 0
    for name in names:
        queries = max_queries_almost_nominal(evidence, name, eps, delta)
        if queries > max_queries:
            max_queries = queries
            best = BestLabels(queries, name)
    return best
