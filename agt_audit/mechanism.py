"""agt audit mechanism: whether labels or numbers that a mechanism releases distinguish two
neighbouring datasets better than its guarantee allows.

A mechanism's input for one query is the label and its evidence (stable distance, step of the grid,
or gap between votes). A ``NeighbourPair`` is its input on two neighbouring datasets. With a run,
pairs are searched: queries lie on segments between two records of different labels, where the
answers of the two models change at different places. No guarantee depends on the search: it only
decides how much an audit can detect. Without a run, all pairs that neighbours can have are made up.

Formal guarantees
    * ``exact_loss`` tests P(S) <= e^eps P'(S) + delta for every set S of labels in both directions,
      in rational numbers, with the probabilities that the mechanism states. e^eps is rounded up,
      and eps is the double or the decimal that it prints as, whichever is greater, so only a true
      violation is reported. For GaussianDP it computes Phi^-1(P(S)) - Phi^-1(P'(S)) in double
      precision; more than ``UP`` (relative) above the claim is a violation.
    * Bounds from draws test what the mechanism draws, whatever probabilities it states
      (agt_audit/estimates.py). If draws come from several pairs, these share the error probability.

docs/reference.md section 8.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import partial
from itertools import accumulate, combinations, pairwise
from typing import Annotated, Any, ClassVar, cast

import numpy as np
import pandas as pd
from pydantic import Field
from scipy.special import ndtri, ndtri_exp

from agt.errors import ConfigError
from agt.mechanisms.budget import Cost, Lot
from agt.mechanisms.claims import Claim
from agt.mechanisms.enclosures import ROUND_UP as UPWARDS
from agt.mechanisms.guarantees import GaussianDP, Guarantee
from agt.mechanisms.labelling import AnyLabelling, Labelling
from agt.mechanisms.laplace_mean import LaplaceMean, NumberLabelling
from agt.mechanisms.mechanism import Mechanism
from agt.mechanisms.mechanism_config import AnyMechanism, mechanism_kind
from agt.mechanisms.optimal import RandomizedResponse
from agt.mechanisms.output import Output
from agt.mechanisms.quantile import CertifiedQuantile, certified_quantile, release_quantile
from agt.numeric import UP, Randomness, printed_decimal
from agt.release import NumberRelease, judge_labelling
from agt.settings import Accounting, Counting, check_choice, schema
from agt_audit.early_checks import weights_not_audited
from agt_audit.estimates import Claimed
from agt_audit.job import Audited, AuditInputs, AuditKind, no_pair_found
from agt_audit.numbers import audit_made_up_sums, audit_sums, search_sums
from agt_audit.pairs import neighbouring_pairs_of
from agt_audit.trials import Exact, TrialPlan, attacked, tested
from agt_cli.report.console import Console
from agt_cli.report.findings import Finding, exact_finding
from agt_cli.report.record import RunRecord
from agt_cli.runs.queries import OpenedRun

COST_TOLERANCE = 1e-9  # relative difference of a cost in decimals from the same cost in floats
MU_TOLERANCE = 1e-7  # relative; the accountant rounds mu up
MU_ERROR = 1e-10  # absolute error of mu in double precision
LOT_SIZES = (1, 8, 100)  # numbers of answers whose costs are computed again


@dataclass(frozen=True)
class Side:
    """A mechanism's input for a query on one of two datasets.

    Attributes:
        label: the label that the model gives to the query.
        evidence: the label's stable distance, step of the grid, or gap between votes.
    """

    label: int
    evidence: int

    def __str__(self) -> str:
        return f"label {self.label} with evidence (stable distance or vote margin) {self.evidence}"


@dataclass(frozen=True)
class NeighbourPair:
    """A mechanism's input for a query on two neighbouring datasets.

    Attributes:
        first: the input on one dataset.
        second: the input on the other.
        where: a sentence that says which datasets these are; by default, that they are made up.
    """

    first: Side
    second: Side
    where: str = (
        "no data were used: the audit made up two inputs that differ as much as those of "
        "neighbouring datasets can"
    )

    @property
    def moved(self) -> int:
        """The absolute difference of the evidence on the two datasets."""
        return abs(self.first.evidence - self.second.evidence)

    def __str__(self) -> str:
        return f"{self.first} against {self.second}"


# -- one pair
# --------------------------------------------------------------------------------------------------


def exact_loss(mechanism: Mechanism, pair: NeighbourPair) -> Exact:
    """Return the privacy loss of one pair, from the probabilities that the mechanism states.

    These are ``Mechanism.exact_flip``. Nothing is drawn, so nothing is said of what it draws.
    """
    guarantee = mechanism.guarantee
    probabilities = list(_set_probabilities(mechanism, pair))
    if isinstance(guarantee, GaussianDP):
        mu = max(_normal_quantile(p) - _normal_quantile(q) for p, q in probabilities)
        if not np.isfinite(mu):
            return Exact(None, exceeds=True)
        return Exact(max(0.0, mu), mu > guarantee.mu * (1 + UP) + UP)
    claimed = Claimed.of(guarantee)
    eps = max(Decimal(claimed.value), printed_decimal(claimed.value))
    delta = Fraction(max(Decimal(claimed.delta), printed_decimal(claimed.delta)))
    factor = Fraction(UPWARDS.next_plus(UPWARDS.exp(eps)))  # at least e^eps
    exceeds = any(p > factor * q + delta for p, q in probabilities)
    if any(p > delta and not q for p, q in probabilities):  # no finite eps covers this set
        return Exact(None, exceeds=True)
    losses = [0.0]
    for p, q in probabilities:
        if q and p > delta:
            ratio = (p - delta) / q
            quotient = UPWARDS.divide(Decimal(ratio.numerator), Decimal(ratio.denominator))
            losses.append(float(UPWARDS.ln(quotient)))
    return Exact(max(losses), exceeds)


def is_wrong_cost(cost: Cost, *lots: tuple[Guarantee, int]) -> bool:
    """Return whether a ledger's cost of some answers differs from the cost by the audit's formulas.

    n answers that are (eps, delta)-DP cost n eps and n delta, and ``square_of_responses`` as their
    square. n answers that are mu-GDP cost infinite eps, and n mu^2 as their square.

    Args:
        cost: the cost that the ledger charges for all answers together.
        lots: (the guarantee of each answer, how many answers), for answers of each guarantee.
    """
    pure = 0.0
    leak = 0.0
    square = 0.0
    for guarantee, size in lots:
        eps = getattr(guarantee, "eps", math.inf)
        mu = getattr(guarantee, "mu", None)
        pure += size * eps
        leak += size * getattr(guarantee, "delta", 0.0)
        square += square_of_responses(eps, size) if mu is None else size * mu**2
    same_pure = np.isclose(float(cost.pure), pure, rtol=COST_TOLERANCE, atol=0)
    same_leak = np.isclose(float(cost.leak), leak, rtol=COST_TOLERANCE, atol=0)
    same_mu = math.isclose(
        math.sqrt(cost.square), math.sqrt(square), rel_tol=MU_TOLERANCE, abs_tol=MU_ERROR
    )
    return not (same_pure and same_leak and same_mu)


def square_of_responses(eps: float, size: int) -> float:
    """Return the least mu^2 for which some randomized responses together are mu-GDP.

    It is that of the most powerful test among "at least j of the answers are true"; mu has an error
    of ``MU_ERROR``. Binomial tails are summed in ``Decimal``, with 60 digits, and without code of
    the accountant.

    Args:
        eps: the epsilon of each response.
        size: how many responses, 1 to 1,000, which the accountant composes as one block.
    """
    with localcontext(prec=60):
        odds = Decimal(eps).exp()
        # probabilities of the numbers of true answers, up to one factor; the largest number first
        terms = [math.comb(size, truths) * odds**truths for truths in range(size, -1, -1)]
        *at_least, total = accumulate(terms)
        *at_most, _ = accumulate(reversed(terms))
        log_upper = [float((tail / total).ln()) for tail in at_least]
        log_lower = [float((tail / total).ln()) for tail in reversed(at_most)]
    # Two complementary tails add up to 1. The smaller one gives the accurate quantile, because the
    # other one may be rounded to 1.
    points = []
    for upper, lower in zip(ndtri_exp(log_upper), ndtri_exp(log_lower), strict=True):
        points.append(float(min(upper, 0) - min(lower, 0)))
    mu = max(point + opposite for point, opposite in zip(points, reversed(points), strict=True))
    return mu**2


def audit_debits(mechanism: Mechanism) -> Finding:
    """Return the finding about whether a ledger charges the cost that the audit computes itself."""
    guarantee = mechanism.guarantee
    numbers = ", ".join(map(str, LOT_SIZES))
    wrong = sum(is_wrong_cost(Lot(guarantee, size).cost, (guarantee, size)) for size in LOT_SIZES)
    return exact_finding(
        f"{mechanism.name}: the privacy cost that is charged to a ledger",
        "for each answer, a ledger is charged the privacy cost that the answer's guarantee "
        f"states: {guarantee}",
        f"the privacy costs of {numbers} answers were computed again with the auditor's own "
        "formulas",
        "nothing was drawn",
        "differences",
        float(wrong),
        f"{wrong} of {len(LOT_SIZES)} privacy costs differ from those that the auditor computed",
        "this audit detects a privacy cost with a relative error of 1e-6",
    )


def neighbouring_pairs(mechanism: Mechanism, values: Sequence[int]) -> Iterator[NeighbourPair]:
    """Yield the pairs of inputs that two neighbouring datasets can have, up to symmetry.

    Args:
        mechanism: the mechanism, whose ``needs`` says what its evidence is.
        values: the values that evidence can have, increasing from 0: every integer, or those of a
            grid with gaps. Neighbouring values are taken for evidence of neighbouring datasets, so
            over a gap the evidence changes by more than 1.
    """
    if mechanism.needs == "votes":  # the gap n1 - n0 changes by 2 if one vote changes
        yield NeighbourPair(Side(1, 1), Side(0, 1))
        yield NeighbourPair(Side(1, 2), Side(0, 0))
        for gap in values[:-2]:
            if gap:
                yield NeighbourPair(Side(1, gap + 2), Side(1, gap))
        yield NeighbourPair(Side(0, 2), Side(0, 0))
        return
    yield NeighbourPair(Side(1, 0), Side(0, 0))
    if mechanism.needs == "nothing":
        return
    for below, above in pairwise(values):
        yield NeighbourPair(Side(1, above), Side(1, below))


def check_audited(mechanism: object) -> None:
    """Raise ConfigError if a mechanism adds noise to the vote counts of more than two classes.

    Such a mechanism has no table of probabilities that could be compared.
    """
    if isinstance(mechanism, Mechanism) and mechanism.needs == "votes" and mechanism.classes > 2:
        raise ConfigError(
            f"mechanism={mechanism.name}: this audit cannot test noise on the votes of "
            f"{mechanism.classes} classes, because it compares probabilities from a table. Give "
            "a run with two classes, or leave run=... out"
        )


def audit_pair(
    mechanism: Mechanism, pair: NeighbourPair, plan: TrialPlan, farthest: int
) -> tuple[Finding, ...]:
    """Audit a mechanism at one pair: by its stated probabilities, and by draws.

    Args:
        mechanism: a mechanism that releases labels.
        pair: its input on both sides.
        plan: how many labels to draw, and how.
        farthest: the public number that no evidence exceeds.

    Returns:
        The finding of the exact loss, then the findings from draws (``attacked``).
    """
    table = table_finding(
        mechanism,
        exact_loss(mechanism, pair),
        f"probabilities from the mechanism's own table were compared, for {pair}",
        pair.where,
    )
    draw_first = partial(_draw_labels, mechanism, pair.first, farthest, plan.source)
    draw_second = partial(_draw_labels, mechanism, pair.second, farthest, plan.source)
    claim = tested(subject_of(mechanism), mechanism.guarantee, str(pair), pair.where, plan)
    return (table, *attacked((draw_first, draw_second), claim, plan, mechanism.classes))


def audit_quantile(
    mechanism: CertifiedQuantile,
    distances: tuple[np.ndarray, np.ndarray],
    farthest: int,
    plan: TrialPlan,
    where: str,
) -> tuple[Finding, ...]:
    """Audit the release of a quantile of stable distances on two neighbouring datasets.

    Args:
        mechanism: the mechanism that releases the quantile.
        distances: [n] the queries' stable distances on one dataset, and [n] on the other.
        farthest: the public number that no distance exceeds.
        plan: how many quantiles to draw, and how.
        where: a sentence that says which datasets these are.

    Returns:
        The finding of the exact loss, then the findings from draws (``attacked``).
    """
    guarantee = mechanism.guarantee

    def draw(side: np.ndarray, count: int) -> np.ndarray:
        released = [
            release_quantile(side, mechanism.fraction, farthest, guarantee, plan.source)
            for _ in range(count)
        ]
        return np.array(released)

    first, second = distances
    quantile = certified_quantile(first, mechanism.fraction)
    other_quantile = certified_quantile(second, mechanism.fraction)
    moved = abs(quantile - other_quantile)
    subject = f"certified_quantile with eps={mechanism.eps:g}"
    sides = (
        f"the certified quantile (of the queries' stable distances) is {quantile} on one dataset "
        f"and {other_quantile} on its neighbour"
    )
    # the noise covers a quantile that moves by 1, and its loss grows in proportion
    law = Exact(mechanism.eps * moved, moved > 1).finding(
        f"{subject}: its table",
        guarantee,
        f"the exact distributions of the noisy quantile on two datasets were compared: {sides}",
        where,
    )
    claim = tested(subject, guarantee, sides, where, plan)
    draws = (partial(draw, first), partial(draw, second))
    return (law, *attacked(draws, claim, plan, None))


def audit_made_up_pairs(
    mechanism: Mechanism, values: Sequence[int], plan: TrialPlan
) -> tuple[tuple[Finding, ...], list[tuple[NeighbourPair, Exact]]]:
    """Audit a mechanism without a run, at all inputs that neighbouring datasets can have.

    The exact loss is computed for every pair. Labels are drawn from one or two pairs only: the
    first one whose labels differ, and the one with the largest ``expected_bound``.

    Args:
        mechanism: a mechanism that releases labels.
        values: the values that evidence can have, as of ``neighbouring_pairs``.
        plan: how many labels to draw, and how. Its error probability is shared among the pairs from
            which labels are drawn.

    Returns:
        The findings: of the largest exact loss, of the draws, and of the costs that a ledger
        charges. And (pair, loss) for every pair.
    """
    losses = [(pair, exact_loss(mechanism, pair)) for pair in neighbouring_pairs(mechanism, values)]
    pairs = [pair for pair, _ in losses]
    worst_pair, worst_loss = max(losses, key=lambda pair_and_loss: pair_and_loss[1].rank)
    table = table_finding(
        mechanism,
        worst_loss,
        f"probabilities from the mechanism's own table were compared for all {len(losses)} pairs "
        f"of neighbouring inputs. The worst pair is {worst_pair}",
        worst_pair.where,
    )
    differing = next(pair for pair in pairs if pair.first.label != pair.second.label)
    best = max(pairs, key=lambda pair: expected_bound(mechanism, pair, plan))
    drawn_pairs = (differing,) if best == differing else (differing, best)
    shared = plan.shared_among(len(drawn_pairs))
    drawn: list[Finding] = []
    for pair in drawn_pairs:
        _, *from_draws = audit_pair(mechanism, pair, shared, values[-1])
        drawn += from_draws
    return (table, *drawn, audit_debits(mechanism)), losses


def table_finding(mechanism: Mechanism, exact: Exact, attack: str, effort: str) -> Finding:
    """Return the finding of an exact loss, from the mechanism's own table of probabilities.

    Args:
        mechanism: a mechanism that releases labels.
        exact: the loss of the pair that is reported.
        attack: what was compared, in words.
        effort: a sentence that says which datasets these are.
    """
    subject = f"{subject_of(mechanism)}: its table"
    return exact.finding(subject, mechanism.guarantee, attack, effort)


def subject_of(mechanism: Mechanism) -> str:
    """Return the name of a mechanism with its budget and number of classes, for findings."""
    budget = ", ".join(
        f"{name}={value:g}" for name, value in mechanism.guarantee.parameters.items()
    )
    classes = f", {mechanism.classes} classes" if mechanism.classes > 2 else ""
    return f"{mechanism.name} with {budget}{classes}"


def expected_bound(mechanism: Mechanism, pair: NeighbourPair, plan: TrialPlan) -> float:
    """Return the largest lower bound that expected counts of draws from a pair give.

    It compares pairs before anything is drawn. A pair with a larger loss may have a smaller
    expected bound, if the event that shows the loss is rare.

    Args:
        mechanism: the mechanism, whose stated probabilities give the expected counts.
        pair: its input on both sides.
        plan: how many labels would be drawn, and the confidence of the bound.
    """
    claimed = Claimed.of(mechanism.guarantee)
    return max(
        claimed.expected_bound(float(q), float(1 - p), plan.trials, plan.confidence)
        for p, q in _set_probabilities(mechanism, pair)
    )


def _draw_labels(
    mechanism: Mechanism, side: Side, farthest: int, source: Randomness, count: int
) -> np.ndarray:
    """Return labels [count] that the mechanism releases for one input, as in `agt predict`.

    Args:
        mechanism: the mechanism.
        side: its input.
        farthest: the public number that no evidence exceeds.
        source: the randomness of the releases.
        count: how many labels to draw.
    """
    labels = np.full(count, side.label)
    evidence = np.full(count, side.evidence)
    return mechanism.release(labels, evidence, source, farthest)


def _set_probabilities(
    mechanism: Mechanism, pair: NeighbourPair
) -> Iterator[tuple[Fraction, Fraction]]:
    """Yield (P(S), P'(S)) and (P'(S), P(S)) for every set S of labels that could be the worst.

    P is the law of the released label on the first side of the pair, and P' that on the second. All
    labels that neither side's model gives have the same two probabilities, so they are in S
    together or not at all. The empty set and the set of all labels are left out.
    """
    other_labels = mechanism.classes - 1
    first_flip = mechanism.exact_flip(pair.first.evidence)
    second_flip = mechanism.exact_flip(pair.second.evidence)
    named = sorted({pair.first.label, pair.second.label})
    groups = []  # (probability on the first side, on the second) of labels that belong together
    for label in named:
        first = 1 - first_flip if label == pair.first.label else first_flip / other_labels
        second = 1 - second_flip if label == pair.second.label else second_flip / other_labels
        groups.append((first, second))
    unnamed = mechanism.classes - len(named)
    if unnamed:
        groups.append((first_flip / other_labels * unnamed, second_flip / other_labels * unnamed))
    for size in range(1, len(groups)):
        for members in combinations(groups, size):
            p = sum((first for first, _ in members), Fraction(0))
            q = sum((second for _, second in members), Fraction(0))
            yield p, q
            yield q, p


def _normal_quantile(p: Fraction) -> float:
    """Return Phi^-1(p), accurate also for p near 1; -inf for 0, and inf for 1."""
    if p <= Fraction(1, 2):
        return float(ndtri(float(p)))
    return -float(ndtri(float(1 - p)))


def search(
    labelling: Labelling,
    score: Callable[[NeighbourPair], float],
    anchors: np.ndarray,
    count: int,
    lines: int,
    seed: int,
) -> NeighbourPair | None:
    """Search neighbouring datasets and queries for the pair of inputs with the largest score.

    Args:
        labelling: releases of the run's model by the mechanism.
        score: computes the score of a pair.
        anchors: [n, ...] features of records; queries are searched on lines between them.
        count: how many neighbouring datasets to train on.
        lines: on how many lines queries are searched, as of ``LabellingPair.chosen_queries``.
        seed: of the choice of neighbours and lines.

    Returns:
        The pair; None: no query was found.
    """
    found = []
    searched = neighbouring_pairs_of(labelling, anchors, count, lines, np.random.default_rng(seed))
    for sides, queries, where in searched:
        distinct = np.unique(sides.evidence(queries), axis=1).T.tolist()
        for label, evidence, other_label, other_evidence in distinct:
            sides_of_query = (Side(label, evidence), Side(other_label, other_evidence))
            found.append(NeighbourPair(*sides_of_query, where))
    return max(found, key=score, default=None)


# -- the audit
# --------------------------------------------------------------------------------------------------

Natural = Annotated[int, Field(ge=0, le=65_536)]
WITHOUT_RUN = (
    "you can audit the mechanism by itself: type `agt audit mechanism mechanism=NAME "
    "mechanism.eps=EPS`, without run=..."
)
MAX_PAIRS_SHOWN = 1000
LINES_PER_SEGMENT = 8  # lines on which queries are searched, for each of audit.segments


class Attack(ABC):
    """The attack on one kind of mechanism.

    Args:
        mechanism: the mechanism that is audited.
        audit: the settings of the audit.

    Attributes:
        sought: what is searched on neighbouring datasets of a run, as a noun phrase.
    """

    sought: ClassVar[str] = (
        "a query for which two neighbouring datasets give different evidence (stable distance or "
        "votes)"
    )

    def __init__(self, mechanism: Any, audit: "MechanismAudit") -> None:
        self.mechanism = mechanism
        self.audit = audit

    @abstractmethod
    def check_values(self) -> None:
        """Check ``audit.values`` and ``audit.farthest``, which are used only without a run.

        Raises:
            ConfigError: one of them has no effect, or no possible value, for this mechanism.
        """

    @abstractmethod
    def of_run(
        self, opened: OpenedRun, given: AuditInputs, plan: TrialPlan
    ) -> tuple[Claim, tuple[Finding, ...] | None]:
        """Search a pair of inputs on neighbouring datasets of a run, and attack releases of it.

        Args:
            opened: the run.
            given: the settings that all kinds of audit share.
            plan: how many releases to draw, and how.

        Returns:
            The claim of a release from the run, and the findings; None in place of the findings:
            no pair was found on which the inputs differ.
        """

    @abstractmethod
    def without_data(self, plan: TrialPlan) -> Audited:
        """Attack the mechanism on made-up inputs, without a run."""

    def labelling(self, opened: OpenedRun, given: AuditInputs) -> AnyLabelling:
        """Return releases of the run's answers by the mechanism, with their claim."""
        return judge_labelling(opened.model, self.mechanism, given.release_terms(opened))


class LabelAttack(Attack):
    """The attack on mechanisms that release classes."""

    def check_values(self) -> None:
        """Raise ConfigError if ``audit.values`` is given for a mechanism that uses votes."""
        if self.audit.values is not None and self.mechanism.needs == "votes":
            raise ConfigError(
                f"mechanism={self.mechanism.name} uses the votes of ensemble members, so "
                "audit.values=... has no effect. Give audit.farthest=NUMBER_OF_MEMBERS instead"
            )

    def of_run(
        self, opened: OpenedRun, given: AuditInputs, plan: TrialPlan
    ) -> tuple[Claim, tuple[Finding, ...] | None]:
        """Attack the pair of inputs with the largest ``expected_bound``; as of ``Attack``."""
        check_audited(self.mechanism)
        labelling = cast(Labelling, self.labelling(opened, given))
        pair = search(
            labelling,
            partial(expected_bound, labelling.mechanism, plan=plan),
            opened.queries.features,
            self.audit.neighbours,
            LINES_PER_SEGMENT * self.audit.segments,
            given.seed,
        )
        if pair is None:
            return labelling.claim, None
        max_distance = opened.model.max_distance
        return labelling.claim, audit_pair(labelling.mechanism, pair, plan, max_distance)

    def without_data(self, plan: TrialPlan) -> Audited:
        """Attack all pairs of inputs that neighbouring datasets can have."""
        values: Sequence[int] = range(self.audit.farthest + 1)
        if self.audit.values is not None:
            values = sorted({0, *self.audit.values})
        findings, losses = audit_made_up_pairs(self.mechanism, values, plan)
        return _audited_without_run(self.mechanism, findings, losses)


class QuantileAttack(Attack):
    """The attack on the mechanism that releases one number: a quantile of stable distances."""

    def check_values(self) -> None:
        """Raise ConfigError if ``audit.values`` is given."""
        if self.audit.values is not None:
            raise ConfigError(
                "audit.values=... has no effect on mechanism=certified_quantile: the audit "
                "makes up two quantiles that differ by 1. Leave audit.values=... out"
            )

    def of_run(
        self, opened: OpenedRun, given: AuditInputs, plan: TrialPlan
    ) -> tuple[Claim, tuple[Finding, ...] | None]:
        """Attack the release of a file with a single query; as of ``Attack``.

        The quantile is then the stable distance of this query.
        """
        mechanism = self.mechanism
        model = opened.model
        anchors = opened.queries.features
        terms = given.release_terms(opened)
        claim = NumberRelease.judged(model, anchors, mechanism, terms).claim
        # the search needs a mechanism of labels, and any one with the same evidence will do
        labelling = Labelling.judged(
            model,
            RandomizedResponse(eps=mechanism.eps, classes=model.problem.classes),
            conditions=opened.conditions,
            accounting="rigorous" if claim.proved else "paper",
            counting=terms.counting,
        )
        pair = search(
            labelling,
            lambda pair: pair.moved,
            anchors,
            self.audit.neighbours,
            LINES_PER_SEGMENT * self.audit.segments,
            given.seed,
        )
        if pair is None or not pair.moved:
            return claim, None
        distances = (np.array([pair.first.evidence]), np.array([pair.second.evidence]))
        return claim, audit_quantile(mechanism, distances, model.max_distance, plan, pair.where)

    def without_data(self, plan: TrialPlan) -> Audited:
        """Attack two quantiles that differ by 1."""
        middle = self.audit.farthest // 2
        distances = (np.array([middle]), np.array([middle + 1]))
        where = (
            "no data were used: the audit made up two inputs whose certified quantiles (of "
            "the queries' stable distances) differ by 1, the most that neighbouring "
            "datasets allow"
        )
        farthest = max(self.audit.farthest, 1)
        findings = audit_quantile(self.mechanism, distances, farthest, plan, where)
        return Audited(self.mechanism.name, None, findings)


class NumberAttack(Attack):
    """The attack on mechanisms that release a number for each query."""

    sought: ClassVar[str] = (
        "a query for which two neighbouring datasets give different sums of the members' answers"
    )

    def check_values(self) -> None:
        """Raise ConfigError if ``audit.values`` is given, or ``audit.farthest`` is 0 members."""
        if self.audit.values is not None or not self.audit.farthest:
            raise ConfigError(
                f"mechanism={self.mechanism.name} uses the answers of ensemble members, so "
                "audit.values=... has no effect. Give audit.farthest=NUMBER_OF_MEMBERS (1 or more)"
            )

    def of_run(
        self, opened: OpenedRun, given: AuditInputs, plan: TrialPlan
    ) -> tuple[Claim, tuple[Finding, ...] | None]:
        """Attack the query and the neighbour whose sums differ most; as of ``Attack``."""
        labelling = cast(NumberLabelling, self.labelling(opened, given))
        audit = self.audit
        anchors = opened.queries.features
        lines = LINES_PER_SEGMENT * audit.segments
        found = search_sums(labelling, anchors, audit.neighbours, lines, given.seed)
        if found is None:
            return labelling.claim, None
        return labelling.claim, audit_sums(labelling.mechanism, found, plan)

    def without_data(self, plan: TrialPlan) -> Audited:
        """Attack made-up sums that differ as much as one edit allows."""
        findings, losses = audit_made_up_sums(self.mechanism, self.audit.farthest, plan)
        findings = (*findings, audit_debits(self.mechanism))
        return _audited_without_run(self.mechanism, findings, losses)


ATTACKS: Mapping[type, type[Attack]] = {
    Mechanism: LabelAttack,
    CertifiedQuantile: QuantileAttack,
    LaplaceMean: NumberAttack,
}
"""Class of a mechanism -> the class of attacks on it and on its subclasses."""


def attack_of(mechanism: AnyMechanism, audit: "MechanismAudit") -> Attack:
    """Return the attack on a mechanism, as of the nearest of its classes in ``ATTACKS``."""
    attack_class = next(ATTACKS[base] for base in type(mechanism).__mro__ if base in ATTACKS)
    return attack_class(mechanism, audit)


def _audited_without_run(
    mechanism: AnyMechanism, findings: tuple[Finding, ...], losses: Sequence[tuple[object, Exact]]
) -> Audited:
    """Return the results of an audit without a run, with a table of the first pairs and losses."""
    rows = [
        {"pair": str(pair), "loss": loss.rank, "exceeds": loss.exceeds}
        for pair, loss in losses[:MAX_PAIRS_SHOWN]
    ]
    return Audited(mechanism.name, None, findings, tables={"pairs": pd.DataFrame(rows)})


@schema
class MechanismAudit(AuditKind):
    """Attacks one mechanism, with the data of a run or without.

    Attributes:
        trials: how many releases of each side are counted.
        neighbours: with a run: how many neighbouring datasets to train on.
        segments: with a run: on how many segments between records queries are searched.
        farthest: without a run: the largest evidence; for mechanisms that count members' answers,
            the number of members.
        values: without a run: the values that evidence can have, as in a grid with gaps; None:
            every integer from 0 to ``farthest``.
    """

    trials: Annotated[int, Field(ge=1, le=10_000_000)] = 10_000
    neighbours: Annotated[int, Field(ge=1)] = 4
    segments: Annotated[int, Field(ge=1)] = 8
    farthest: Natural = 100
    values: tuple[Natural, ...] | None = None

    name: ClassVar[str] = "mechanism"

    def check(self, given: AuditInputs) -> None:
        """Check the mechanism and its budget, and the settings that depend on it.

        Raises:
            ConfigError: the mechanism cannot be audited here or has no budget, or a setting is
                wrong or has no effect; the error names the key.
        """
        node = given.config.get("mechanism")
        if node is not None:
            kind = mechanism_kind(node)
            if kind.output is Output.WEIGHTS:  # before anything about its budget
                raise weights_not_audited(kind.name)
        mechanism = given.mechanism()
        for key, choices in (("accounting", Accounting), ("counting", Counting)):
            check_choice(given.config.get(key), choices, key)
        if given.run is None:
            attack_of(mechanism.mechanism(2, 1), self).check_values()
            return
        if self.values is not None:
            raise ConfigError(
                "audit.values=... cannot be given with run=..., because the run itself has a "
                "list of possible distances. Leave audit.values=... out"
            )
        given.check_run()

    def carry_out(self, given: AuditInputs, record: RunRecord, console: Console) -> Audited:
        """Attack the mechanism: on neighbouring datasets of the run, or on made-up inputs.

        Raises:
            DataMissing: the run's data is missing.
            ConfigError: the data was changed.
        """
        plan = TrialPlan(self.trials, given.confidence)
        if given.run is None:
            return attack_of(given.mechanism().mechanism(2, 1), self).without_data(plan)
        opened = given.open_with_data(record, console, WITHOUT_RUN)
        classes = opened.dataset.target.class_count
        mechanism = given.mechanism().mechanism(classes, len(opened.queries))
        attack = attack_of(mechanism, self)
        claim, findings = attack.of_run(opened, given, plan)
        if findings is None:
            findings = (no_pair_found(mechanism, self.neighbours, attack.sought),)
        notes = (
            claim.text,
            f"models were trained on at most {self.neighbours} of all possible neighbouring "
            "datasets",
        )
        return Audited.of(opened.trained.finished, findings, notes)
