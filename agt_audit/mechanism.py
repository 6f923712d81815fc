"""agt audit mechanism: whether a mechanism's labels, or its number, tell two neighbours apart.

A pair (``NeighbourPair``) is what a mechanism sees of one query on two neighbouring datasets: the
label and the evidence (stable distance, step of the grid, or gap between votes) of each. With a
run, pairs are searched: each query lies on a segment between two records of different labels, where
the two models' answers change at different places. Nothing rests on how good the search is: it only
decides how hard an audit is. Without a run, all pairs that neighbours can have are made up.

Formal guarantees
    * ``exact_loss`` is certain: P(S) <= e^eps P'(S) + delta for every set S of labels and both
      directions, in rational numbers from the probabilities that the mechanism says it draws with.
      e^eps is rounded up, and eps is the double or the decimal that it prints as, whichever is
      greater, so that only a true violation is called one. Of GaussianDP, Phi^-1(P(S)) -
      Phi^-1(P'(S)) in double precision; more than ``UP`` beyond the claim is a violation.
    * The bound from draws sees what the mechanism does, whatever it says of itself
      (agt_audit/estimates.py). Several pairs share the error probability.

docs/reference.md section 8.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
from agt.release import NumberRelease, ReleaseTerms, judge_labelling
from agt.settings import Accounting, Counting, check_choice, schema
from agt_audit.estimates import Claimed, Mistakes
from agt_audit.job import Audited, AuditInputs, AuditKind, no_pair_found
from agt_audit.neighbours import bisected, on_line
from agt_audit.numbers import audit_sums, audit_sums_alone, search_sums
from agt_audit.pairs import LabellingPair, between_roots, neighbours, segments
from agt_audit.trials import Choosing, Exact, TrialPlan, attacked, tested
from agt_cli.report.console import Console
from agt_cli.report.findings import Finding, counterexamples
from agt_cli.report.record import RunRecord
from agt_cli.runs.queries import OpenedRun

CLOSE = 1e-9  # relative, of a cost in decimals to one in floats
MU_CLOSE, MU_ERROR = 1e-7, 1e-10  # of mu: the accountant rounds up; and in double precision
LOTS = (1, 8, 100)  # numbers of answers whose costs are computed again


@dataclass(frozen=True)
class Side:
    """What a mechanism sees of a query on one of two datasets.

    Attributes:
        label: the nominal one.
        evidence: the stable distance, step of the grid or gap between votes.
    """

    label: int
    evidence: int

    def __str__(self) -> str:
        return f"label {self.label} with evidence (stable distance or vote margin) {self.evidence}"


@dataclass(frozen=True)
class NeighbourPair:
    """A query's evidence on two neighbouring datasets.

    Attributes:
        first: on one of them.
        second: on the other.
        where: which datasets and query, in words.
    """

    first: Side
    second: Side
    where: str = (
        "no data were used: the audit made up two inputs that differ as much as those of "
        "neighbouring datasets can"
    )

    @property
    def moved(self) -> int:
        """By how much the evidence differs."""
        return abs(self.first.evidence - self.second.evidence)

    def __str__(self) -> str:
        return f"{self.first} against {self.second}"


# -- one pair
# --------------------------------------------------------------------------------------------------


def exact_loss(mechanism: Mechanism, pair: NeighbourPair) -> Exact:
    """Return the loss of one pair, by the probabilities that the mechanism says it draws with.

    These are ``Mechanism.exact_flip``, so the loss is certain of what is said.
    """
    guarantee = mechanism.guarantee
    probabilities = list(_set_probabilities(mechanism, pair))
    if isinstance(guarantee, GaussianDP):
        mu = max(_normal(p) - _normal(q) for p, q in probabilities)
        if not np.isfinite(mu):
            return Exact(None, exceeds=True)
        return Exact(max(0.0, mu), mu > guarantee.mu * (1 + UP) + UP)
    claimed = Claimed.of(guarantee)
    eps = max(Decimal(claimed.value), printed_decimal(claimed.value))
    delta = Fraction(max(Decimal(claimed.delta), printed_decimal(claimed.delta)))
    factor = Fraction(UPWARDS.next_plus(UPWARDS.exp(eps)))  # at least e^eps
    exceeds = any(p > factor * q + delta for p, q in probabilities)
    if any(p > delta and not q for p, q in probabilities):
        return Exact(None, exceeds=True)
    losses = [0.0]
    for p, q in probabilities:
        if q and p > delta:
            ratio = (p - delta) / q
            quotient = UPWARDS.divide(Decimal(ratio.numerator), Decimal(ratio.denominator))
            losses.append(float(UPWARDS.ln(quotient)))
    return Exact(max(losses), exceeds)


def unpaid(spent: Cost, *lots: tuple[Guarantee, int]) -> bool:
    """Return whether a ledger was debited anything but what its answers cost.

    The auditor's own formulas: n answers cost n eps and n delta; n Gaussian ones n mu^2, and
    infinitely much pure eps; the square of n eps-DP ones is ``square_of_responses``.

    Args:
        spent: what was debited.
        lots: each guarantee with the number of its answers.
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
    same_pure = np.isclose(float(spent.pure), pure, rtol=CLOSE, atol=0)
    same_leak = np.isclose(float(spent.leak), leak, rtol=CLOSE, atol=0)
    same_mu = math.isclose(
        math.sqrt(spent.square), math.sqrt(square), rel_tol=MU_CLOSE, abs_tol=MU_ERROR
    )
    return not (same_pure and same_leak and same_mu)


def square_of_responses(eps: float, size: int) -> float:
    """Return mu^2 for which some randomized responses together are just mu-GDP.

    It is that of the most telling test among "at least j of the answers are true", within
    ``MU_ERROR`` of mu. Tails of the binomial are summed in ``Decimal``, of 60 digits, with no code
    of the accountant's.

    Args:
        eps: of each response.
        size: how many, up to 1,000, of which the accountant makes one block.
    """
    with localcontext(prec=60):
        odds = Decimal(eps).exp()
        # of ``truths`` true answers, up to a factor: first that of all true ones
        terms = [math.comb(size, truths) * odds**truths for truths in range(size, -1, -1)]
        *at_least, total = accumulate(terms)
        *at_most, _ = accumulate(reversed(terms))
        log_upper = [float((tail / total).ln()) for tail in at_least]
        log_lower = [float((tail / total).ln()) for tail in reversed(at_most)]
    # Two tails make 1. The smaller one says where they meet, as the other may be 1 to the last
    # digit.
    points = []
    for upper, lower in zip(ndtri_exp(log_upper), ndtri_exp(log_lower), strict=True):
        points.append(float(min(upper, 0) - min(lower, 0)))
    mu = max(point + opposite for point, opposite in zip(points, reversed(points), strict=True))
    return mu**2


def audit_debits(mechanism: Mechanism) -> Finding:
    """Return whether a ledger is debited for some answers what the auditor's own formula says."""
    guarantee = mechanism.guarantee
    numbers = ", ".join(map(str, LOTS))
    wrong = sum(unpaid(Lot(guarantee, size).cost, (guarantee, size)) for size in LOTS)
    return counterexamples(
        f"{mechanism.name}: the privacy cost that is charged to a ledger",
        "for each answer, a ledger is charged the privacy cost that the answer's guarantee "
        f"states: {guarantee}",
        f"the privacy costs of {numbers} answers were computed again with the auditor's own "
        "formulas",
        "nothing was drawn",
        "differences",
        float(wrong),
        f"{wrong} of {len(LOTS)} privacy costs differ from those that the auditor computed",
        "this audit detects a privacy cost with a relative error of 1e-6",
    )


def neighbouring_pairs(mechanism: Mechanism, values: Sequence[int]) -> Iterator[NeighbourPair]:
    """Yield the pairs of evidence that two neighbours can have.

    Args:
        mechanism: which evidence it reads.
        values: those that evidence takes, increasing, from 0: every integer, or those of a grid
            with gaps, which is not 1-Lipschitz.
    """
    if mechanism.needs == "votes":  # n1 - n0 moves in steps of 2
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
    """Raise ConfigError for noise on the counts of several classes.

    It has no table whose entries could be compared.
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
    """Return what the mechanism's table says of one pair, then what draws say.

    Args:
        mechanism: that releases labels.
        pair: the evidence of both sides.
        plan: of the draws.
        farthest: the public number that no evidence exceeds.
    """
    table = table_finding(
        mechanism,
        exact_loss(mechanism, pair),
        f"probabilities from the mechanism's own table were compared, for {pair}",
        pair.where,
    )
    draw_first = partial(_labels, mechanism, pair.first, farthest, plan.source)
    draw_second = partial(_labels, mechanism, pair.second, farthest, plan.source)
    claim = tested(words_of(mechanism), mechanism.guarantee, str(pair), pair.where, plan)
    return (table, *attacked((draw_first, draw_second), claim, plan, mechanism.classes))


def audit_quantile(
    mechanism: CertifiedQuantile,
    distances: tuple[np.ndarray, np.ndarray],
    farthest: int,
    plan: TrialPlan,
    where: str,
) -> tuple[Finding, ...]:
    """Return what is known exactly of a released quantile, then what draws say.

    Args:
        mechanism: that releases the quantile of stable distances.
        distances: [n] of each of two neighbours.
        farthest: the public number that no distance exceeds.
        plan: of the draws.
        where: which datasets, in words.
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


def audit_alone(
    mechanism: Mechanism, values: Sequence[int], plan: TrialPlan
) -> tuple[tuple[Finding, ...], list[tuple[NeighbourPair, Exact]]]:
    """Audit a mechanism at the evidence that neighbours can have, whatever data it comes from.

    Its table is compared at every pair. Draws come from two pairs: one with labels that differ,
    and the one where most is to be expected of draws.

    Args:
        mechanism: that releases labels.
        values: that evidence takes, as of ``neighbouring_pairs``.
        plan: of the draws.

    Returns:
        The findings (of the table, of draws, of what is debited), and the losses of all pairs.
    """
    losses = [(pair, exact_loss(mechanism, pair)) for pair in neighbouring_pairs(mechanism, values)]
    pairs = [pair for pair, _ in losses]
    worst, worst_loss = max(losses, key=lambda pair_and_loss: pair_and_loss[1].rank)
    table = table_finding(
        mechanism,
        worst_loss,
        f"probabilities from the mechanism's own table were compared for all {len(losses)} pairs "
        f"of neighbouring inputs. The worst pair is {worst}",
        worst.where,
    )
    differing = next(pair for pair in pairs if pair.first.label != pair.second.label)
    best = max(pairs, key=lambda pair: expected_bound(mechanism, pair, plan))
    drawn_pairs = (differing,) if best == differing else (differing, best)
    shared = replace(plan, confidence=1 - (1 - plan.confidence) / len(drawn_pairs))
    drawn: list[Finding] = []
    for pair in drawn_pairs:
        _, *of_draws = audit_pair(mechanism, pair, shared, values[-1])
        drawn += of_draws
    return (table, *drawn, audit_debits(mechanism)), losses


def table_finding(mechanism: Mechanism, exact: Exact, attack: str, effort: str) -> Finding:
    """Return what the mechanism's table says of a pair, or of the worst of many.

    Args:
        mechanism: that releases labels.
        exact: the loss of the pair.
        attack: what was compared, in words.
        effort: of which datasets, in words.
    """
    return exact.finding(f"{words_of(mechanism)}: its table", mechanism.guarantee, attack, effort)


def words_of(mechanism: Mechanism) -> str:
    """Return a mechanism with its budget, in words."""
    given = ", ".join(f"{name}={value:g}" for name, value in mechanism.guarantee.parameters.items())
    classes = f", {mechanism.classes} classes" if mechanism.classes > 2 else ""
    return f"{mechanism.name} with {given}{classes}"


def expected_bound(mechanism: Mechanism, pair: NeighbourPair, plan: TrialPlan) -> float:
    """Return the bound that is to be expected of draws from a pair.

    It may be less on a pair of greater loss, if the event of that loss is hardly ever met.
    """
    claimed = Claimed.of(mechanism.guarantee)
    trials = plan.trials
    bounds = []
    for p, q in _set_probabilities(mechanism, pair):
        alarms = round(trials * float(q))
        misses = round(trials * (1 - float(p)))
        bounds.append(claimed.bound(Mistakes(alarms, trials, misses, trials), plan.confidence))
    return max(bounds)


def _labels(
    mechanism: Mechanism, side: Side, farthest: int, source: Randomness, count: int
) -> np.ndarray:
    """Return labels [count], each drawn as agt predict draws one."""
    labels = np.full(count, side.label)
    evidence = np.full(count, side.evidence)
    return mechanism.release(labels, evidence, source, farthest)


def _set_probabilities(
    mechanism: Mechanism, pair: NeighbourPair
) -> Iterator[tuple[Fraction, Fraction]]:
    """Yield P(S) and P'(S) for the sets S of labels that matter, in both directions.

    Labels that neither side names have equal probabilities, so they are in S together or not at
    all.
    """
    other_labels = mechanism.classes - 1
    first_flip = mechanism.exact_flip(pair.first.evidence)
    second_flip = mechanism.exact_flip(pair.second.evidence)
    named = sorted({pair.first.label, pair.second.label})
    groups = []
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


def _normal(p: Fraction) -> float:
    """Return Phi^-1(p), exact in either tail."""
    if p <= Fraction(1, 2):
        return float(ndtri(float(p)))
    return -float(ndtri(float(1 - p)))


def search(
    labelling: Labelling,
    worth: Callable[[NeighbourPair], float],
    anchors: np.ndarray,
    count: int,
    width: int,
    seed: int,
) -> NeighbourPair | None:
    """Return the pair of a query and a neighbour that is worth most; None: no pair was made.

    Args:
        labelling: the run's model and mechanism, judged.
        worth: how much a pair is worth.
        anchors: [n, ...] features, between which queries are looked for.
        count: how many neighbouring datasets are trained.
        width: how many segments between records of different labels they are made at; eight times
            as many are searched.
        seed: of the segments.
    """
    rng = np.random.default_rng(seed)
    model = labelling.model
    begin, end = segments(model, anchors, width, rng)
    if not len(begin):
        return None
    _, change = bisected(model.predict, begin, end)
    best: NeighbourPair | None = None
    for edit, other in neighbours(model, on_line(begin, end, change), count):
        where = f"two datasets were used: the run's own data, and the same data {edit}"
        sides = LabellingPair(labelling, replace(labelling, model=other))
        queries = between_roots(sides, anchors, rng, 8 * width)
        distinct = np.unique(sides.evidence(queries), axis=1).T.tolist()
        for label, evidence, other_label, other_evidence in distinct:
            pair = NeighbourPair(Side(label, evidence), Side(other_label, other_evidence), where)
            if best is None or worth(pair) > worth(best):
                best = pair
    return best


# -- the audit
# --------------------------------------------------------------------------------------------------

Natural = Annotated[int, Field(ge=0, le=65_536)]
WITHOUT_RUN = (
    "you can audit the mechanism by itself: type `agt audit mechanism mechanism=NAME "
    "mechanism.eps=EPS`, without run=..."
)
MAX_PAIRS_SHOWN = 1000
LINES_PER_SEGMENT = 8  # queries of numbers that are tried, for each setting audit.segments


class Attack(ABC):
    """How one kind of mechanism is attacked.

    Args:
        mechanism: that releases.
        audit: the settings.

    Attributes:
        sought: what is looked for on a run's neighbours, in words.
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
        """Raise ConfigError where ``audit.values`` or ``audit.farthest`` has no effect."""

    @abstractmethod
    def of_run(
        self, opened: OpenedRun, given: AuditInputs, plan: TrialPlan
    ) -> tuple[Claim, tuple[Finding, ...] | None]:
        """Attack releases of a run.

        Returns:
            What a release claims, and the findings; None: no two neighbours differ.
        """

    @abstractmethod
    def without_data(self, plan: TrialPlan) -> Audited:
        """Attack the mechanism on made-up inputs."""

    def judged(self, opened: OpenedRun, given: AuditInputs) -> AnyLabelling:
        """Return what answers the run's queries, with its claim."""
        terms = ReleaseTerms(
            conditions=opened.conditions,
            accounting=given.config["accounting"],
            counting=given.config["counting"],
        )
        return judge_labelling(opened.model, self.mechanism, terms)


class LabelAttack(Attack):
    """How mechanisms are attacked that release classes."""

    def check_values(self) -> None:
        """Raise ConfigError where ``audit.values`` is given for votes."""
        if self.audit.values is not None and self.mechanism.needs == "votes":
            raise ConfigError(
                f"mechanism={self.mechanism.name} uses the votes of ensemble members, so "
                "audit.values=... has no effect. Give audit.farthest=NUMBER_OF_MEMBERS instead"
            )

    def of_run(
        self, opened: OpenedRun, given: AuditInputs, plan: TrialPlan
    ) -> tuple[Claim, tuple[Finding, ...] | None]:
        """Attack the query and the neighbour of which most is expected."""
        check_audited(self.mechanism)
        labelling = cast(Labelling, self.judged(opened, given))
        pair = search(
            labelling,
            partial(expected_bound, labelling.mechanism, plan=plan),
            opened.queries.features,
            self.audit.neighbours,
            self.audit.segments,
            given.seed,
        )
        if pair is None:
            return labelling.claim, None
        max_distance = opened.model.max_distance
        return labelling.claim, audit_pair(labelling.mechanism, pair, plan, max_distance)

    def without_data(self, plan: TrialPlan) -> Audited:
        """Attack at all evidence that neighbours can have."""
        values: Sequence[int] = range(self.audit.farthest + 1)
        if self.audit.values is not None:
            values = sorted({0, *self.audit.values})
        findings, losses = audit_alone(self.mechanism, values, plan)
        return _alone(self.mechanism, findings, losses)


class QuantileAttack(Attack):
    """How a mechanism is attacked that releases one number: a quantile of stable distances."""

    def check_values(self) -> None:
        """Raise ConfigError where ``audit.values`` is given."""
        if self.audit.values is not None:
            raise ConfigError(
                "audit.values=... has no effect on mechanism=certified_quantile: the audit "
                "makes up two quantiles that differ by 1. Leave audit.values=... out"
            )

    def of_run(
        self, opened: OpenedRun, given: AuditInputs, plan: TrialPlan
    ) -> tuple[Claim, tuple[Finding, ...] | None]:
        """Attack the release of a file of one query, whose stable distance is the quantile."""
        mechanism = self.mechanism
        model = opened.model
        anchors = opened.queries.features
        accounting = given.config["accounting"]
        counting = given.config["counting"]
        terms = ReleaseTerms(conditions=opened.conditions, accounting=accounting, counting=counting)
        claim = NumberRelease.judged(model, anchors, mechanism, terms).claim
        # any mechanism of labels that reads the same evidence will do for the search
        labelling = Labelling.judged(
            model,
            RandomizedResponse(eps=mechanism.eps, classes=model.problem.classes),
            conditions=opened.conditions,
            accounting="rigorous" if claim.proved else "paper",
            counting=counting,
        )
        pair = search(
            labelling,
            lambda pair: pair.moved,
            anchors,
            self.audit.neighbours,
            self.audit.segments,
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
    """How mechanisms are attacked that release numbers, one for each query."""

    sought: ClassVar[str] = (
        "a query for which two neighbouring datasets give different sums of the members' answers"
    )

    def check_values(self) -> None:
        """Raise ConfigError where ``audit.values`` is given, or there is no member."""
        if self.audit.values is not None or not self.audit.farthest:
            raise ConfigError(
                f"mechanism={self.mechanism.name} uses the answers of ensemble members, so "
                "audit.values=... has no effect. Give audit.farthest=NUMBER_OF_MEMBERS (1 or more)"
            )

    def of_run(
        self, opened: OpenedRun, given: AuditInputs, plan: TrialPlan
    ) -> tuple[Claim, tuple[Finding, ...] | None]:
        """Attack the query and the neighbour whose sums differ most."""
        labelling = cast(NumberLabelling, self.judged(opened, given))
        audit = self.audit
        anchors = opened.queries.features
        lines = LINES_PER_SEGMENT * audit.segments
        found = search_sums(opened.model, labelling, anchors, audit.neighbours, lines, given.seed)
        if found is None:
            return labelling.claim, None
        return labelling.claim, audit_sums(labelling.mechanism, found, plan)

    def without_data(self, plan: TrialPlan) -> Audited:
        """Attack the sums of made-up members that are farthest apart."""
        findings, losses = audit_sums_alone(self.mechanism, self.audit.farthest, plan)
        return _alone(self.mechanism, (*findings, audit_debits(self.mechanism)), losses)


ATTACKS: Mapping[type, type[Attack]] = {
    Mechanism: LabelAttack,
    CertifiedQuantile: QuantileAttack,
    LaplaceMean: NumberAttack,
}
"""What releases -> how it is attacked."""


def attack_of(mechanism: AnyMechanism, audit: "MechanismAudit") -> Attack:
    """Return the attack on a mechanism."""
    kind = next(ATTACKS[each] for each in type(mechanism).__mro__ if each in ATTACKS)
    return kind(mechanism, audit)


def _alone(
    mechanism: AnyMechanism, findings: tuple[Finding, ...], losses: Sequence[tuple[object, Exact]]
) -> Audited:
    """Return what was found of a mechanism without a run, with a table of its losses."""
    rows = [
        {"pair": str(pair), "loss": loss.rank, "exceeds": loss.exceeds}
        for pair, loss in losses[:MAX_PAIRS_SHOWN]
    ]
    return Audited(mechanism.name, None, findings, tables={"pairs": pd.DataFrame(rows)})


@schema
class MechanismAudit(AuditKind):
    """Attacks one mechanism.

    Attributes:
        trials: releases a side that are counted.
        choosing: split: as many more choose the event; fixed: each label is one, and they share the
            error probability.
        neighbours: with a run: how many neighbouring datasets are trained.
        segments: with a run: how many segments between records are searched for a query.
        farthest: without a run: evidence is every integer up to this; of mechanisms that count
            members' answers, the number of members.
        values: without a run: the values that evidence takes, as of a grid with gaps; null: every
            integer.
    """

    trials: Annotated[int, Field(ge=1, le=10_000_000)] = 10_000
    choosing: Choosing = "split"
    neighbours: Annotated[int, Field(ge=1)] = 4
    segments: Annotated[int, Field(ge=1)] = 8
    farthest: Natural = 100
    values: tuple[Natural, ...] | None = None

    name: ClassVar[str] = "mechanism"

    def check(self, given: AuditInputs) -> None:
        """Refuse a mechanism without a budget, and settings that have no effect.

        Raises:
            ConfigError: by key.
        """
        node = given.config.get("mechanism")
        if node is not None:
            kind = mechanism_kind(node)
            if kind.output is Output.WEIGHTS:  # before anything about its budget
                raise ConfigError(
                    f"mechanism={kind.name}: `agt audit mechanism` cannot audit released "
                    "weights. Use `agt audit weights` or `agt audit replay`"
                )
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
        """Find a pair, draw, and hold what was counted against the claim.

        Raises:
            DataMissing: the run's data is not there.
            ConfigError: the data is not what it was.
        """
        plan = TrialPlan(self.trials, given.confidence, self.choosing)
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
