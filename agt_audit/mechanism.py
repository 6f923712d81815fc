"""agt audit mechanism: what a mechanism's labels, or its number, show of two neighbours, told apart
(reference.md section 8).

    certain, verdict, *others = audit_pair(mechanism, pair, TrialPlan(trials=10_000), farthest=50)
    certain         the loss that the mechanism's own table implies
    verdict         the bound from what it drew; others: other estimates of the same counts
    search(labelling, goal, anchors, count, width, seed)      the query and the neighbour at which
                                                              most can be told

Every query of the search lies on a segment between two records of different labels. On it the
evidence crosses some level (the label changes, or the stable distance reaches a value). The
crossings of two neighbours are apart by what one unit moves, and halving the segment while both
sides agree ends between them, if they differ at all: there the label differs, or the distance
falls. Nothing rests on how good the search is: it only decides how hard an audit is. Bisection asks
both models, so it finds the crossing of a jump as well, which no argument about slopes would.

Formal guarantees
    Of a label two numbers are reported. Certain: P(S) <= e^eps P'(S) + delta for every set S of
    labels and both directions, in rational numbers from the flip probabilities that the mechanism
    says it draws with; e^eps is rounded up, and eps is the double or the decimal that it prints as,
    whichever is greater, so that only a true violation is called one. Of GaussianDP, Phi^-1(P(S)) -
    Phi^-1(P'(S)) in double precision, and more than ``UP`` beyond the claim is a violation.
    Confident: of labels that were drawn, on one event, fixed beforehand or chosen on other draws
    (estimates.py); this one sees what the mechanism does, whatever it says of itself. Several pairs
    have their share of it each.
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

CLOSE = 1e-9  # of a cost in decimals to one in floats
MU_CLOSE, MU_ERROR = 1e-7, 1e-10  # of mu: the accountant rounds up; and in double precision
LOTS = (1, 8, 100)  # answers whose costs are worked out again


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
        first, second: both sides.
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
    """The loss of one pair of evidence, certain: of what the mechanism says it draws with
    (``exact_flip``).
    """
    guarantee, chances = mechanism.guarantee, list(_chances(mechanism, pair))
    if isinstance(guarantee, GaussianDP):
        value = max(_normal(p) - _normal(q) for p, q in chances)
        if not np.isfinite(value):
            return Exact(None, exceeds=True)
        return Exact(max(0.0, value), value > guarantee.mu * (1 + UP) + UP)
    claimed = Claimed.of(guarantee)
    eps, delta = (
        max(Decimal(number), printed_decimal(number)) for number in (claimed.value, claimed.delta)
    )
    most, slack = Fraction(UPWARDS.next_plus(UPWARDS.exp(eps))), Fraction(delta)
    exceeds = any(p > most * q + slack for p, q in chances)
    if any(p > slack and not q for p, q in chances):
        return Exact(None, exceeds=True)
    ratios = [(p - slack) / q for p, q in chances if q]
    parts = (
        (Decimal(ratio.numerator), Decimal(ratio.denominator)) for ratio in ratios if ratio > 0
    )
    return Exact(max([0.0, *(float(UPWARDS.ln(UPWARDS.divide(*each))) for each in parts)]), exceeds)


def unpaid(spent: Cost, *lots: tuple[Guarantee, int]) -> bool:
    """Say whether a ledger was debited anything but what so many answers of each guarantee cost.

    The auditor's own formulas: n answers cost n eps and n delta; n Gaussian ones n mu^2, and
    infinitely much pure eps; the square of n eps-DP ones is ``square_of_responses``.
    """
    due = np.zeros(3)
    for guarantee, size in lots:
        eps, mu = getattr(guarantee, "eps", math.inf), getattr(guarantee, "mu", None)
        square = square_of_responses(eps, size) if mu is None else size * mu**2
        due += np.array([size * eps, size * getattr(guarantee, "delta", 0.0), square])
    same = np.isclose([float(spent.pure), float(spent.leak)], due[:2], rtol=CLOSE, atol=0).all()
    mu, paid = math.sqrt(due[2]), math.sqrt(spent.square)
    return not (same and math.isclose(paid, mu, rel_tol=MU_CLOSE, abs_tol=MU_ERROR))


def square_of_responses(eps: float, size: int) -> float:
    """mu^2 for which ``size`` randomized responses together are just mu-GDP, within ``MU_ERROR`` of
    mu.

    Of the tests "at least j of the answers are true" the one that tells most. Tails of the binomial
    are summed in ``Decimal``, of 60 digits, with no code of the accountant's.

    Args:
        eps: of each response.
        size: how many, up to 1,000, of which the accountant makes one block.
    """
    with localcontext(prec=60):
        odds = Decimal(eps).exp()
        terms = [math.comb(size, truths) * odds**truths for truths in range(size, -1, -1)]
        *above, whole = accumulate(terms)
        *below, _ = accumulate(reversed(terms))
        logs = [[float((some / whole).ln()) for some in sums] for sums in (above, below[::-1])]
    # Of two tails that make 1 the smaller says where they meet: the other may be 1 to the last
    # digit.
    tails = zip(*map(ndtri_exp, logs), strict=True)
    points = [float(min(tail, 0) - min(rest, 0)) for tail, rest in tails]
    return max(map(float.__add__, points, reversed(points))) ** 2


def audit_debits(mechanism: Mechanism) -> Finding:
    """Hold what a ledger is debited for some answers against the auditor's own formula."""
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
    """The pairs of evidence that two neighbours can have, where evidence takes these values and no
    others between them.

    Args:
        values: increasing, from 0: every integer, or those of a grid with gaps, which is not
            1-Lipschitz.
    """
    if mechanism.needs == "votes":  # n1 - n0 moves in steps of 2
        yield NeighbourPair(Side(1, 1), Side(0, 1))
        yield NeighbourPair(Side(1, 2), Side(0, 0))
        yield from (NeighbourPair(Side(1, gap + 2), Side(1, gap)) for gap in values[:-2] if gap)
        yield NeighbourPair(Side(0, 2), Side(0, 0))
        return
    yield NeighbourPair(Side(1, 0), Side(0, 0))
    if mechanism.needs != "nothing":
        yield from (
            NeighbourPair(Side(1, above), Side(1, below)) for below, above in pairwise(values)
        )


def check_audited(mechanism: object) -> None:
    """Raise ConfigError for noise on the counts of several classes, which has no table whose
    entries could be compared.
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
    """Both findings of one pair.

    Args:
        farthest: the public number that no evidence exceeds.
    """
    first, second = (
        partial(_labels, mechanism, side, farthest, plan.source)
        for side in (pair.first, pair.second)
    )
    table = table_finding(
        mechanism,
        exact_loss(mechanism, pair),
        f"probabilities from the mechanism's own table were compared, for {pair}",
        pair.where,
    )
    claim = tested(words_of(mechanism), mechanism.guarantee, str(pair), pair.where, plan)
    return (table, *attacked((first, second), claim, plan, mechanism.classes))


def audit_quantile(
    mechanism: CertifiedQuantile,
    distances: tuple[np.ndarray, np.ndarray],
    farthest: int,
    plan: TrialPlan,
    where: str,
) -> tuple[Finding, ...]:
    """Both findings of K_q released from two neighbours' distances, [n] each."""
    k, other = (certified_quantile(side, mechanism.fraction) for side in distances)

    def draw(side: np.ndarray, count: int) -> np.ndarray:
        one = partial(
            release_quantile, side, mechanism.fraction, farthest, mechanism.guarantee, plan.source
        )
        return np.array([one() for _ in range(count)])

    subject, sides = (
        f"certified_quantile with eps={mechanism.eps:g}",
        f"the certified quantile (of the queries' stable distances) is {k} on one dataset and "
        f"{other} on its neighbour",
    )
    exact, guarantee = (
        Exact(mechanism.eps * abs(k - other), abs(k - other) > 1),
        mechanism.guarantee,
    )
    law = exact.finding(
        f"{subject}: its table",
        guarantee,
        f"the exact distributions of the noisy quantile on two datasets were compared: {sides}",
        where,
    )
    claim = tested(subject, guarantee, sides, where, plan)
    return (
        law,
        *attacked((partial(draw, distances[0]), partial(draw, distances[1])), claim, plan, None),
    )


def audit_alone(
    mechanism: Mechanism, values: Sequence[int], plan: TrialPlan
) -> tuple[tuple[Finding, ...], list[tuple[NeighbourPair, Exact]]]:
    """Audit a mechanism at the evidence that neighbours can have, whatever data it comes from.

    Its table at every pair; and draws from two: labels that differ, and the pair where most is to
    be expected of draws.

    Args:
        values: that evidence takes, as of ``neighbouring_pairs``.

    Returns:
        (findings of its table at all pairs, of what it drew, of what is debited; the losses of all
        pairs).
    """
    losses = [(pair, exact_loss(mechanism, pair)) for pair in neighbouring_pairs(mechanism, values)]
    worst, exact = max(losses, key=lambda one: one[1].rank)
    differing = next(pair for pair, _ in losses if pair.first.label != pair.second.label)
    best = max((pair for pair, _ in losses), key=lambda pair: expected_bound(mechanism, pair, plan))
    pairs = (differing,) if best == differing else (differing, best)
    plan = replace(plan, confidence=1 - (1 - plan.confidence) / len(pairs))
    table = table_finding(
        mechanism,
        exact,
        f"probabilities from the mechanism's own table were compared for all {len(losses)} pairs "
        f"of neighbouring inputs. The worst pair is {worst}",
        worst.where,
    )
    drawn = (
        finding for pair in pairs for finding in audit_pair(mechanism, pair, plan, values[-1])[1:]
    )
    return (table, *drawn, audit_debits(mechanism)), losses


def table_finding(mechanism: Mechanism, exact: Exact, attack: str, effort: str) -> Finding:
    """What the mechanism's table says of a pair, or of the worst of many."""
    return exact.finding(f"{words_of(mechanism)}: its table", mechanism.guarantee, attack, effort)


def words_of(mechanism: Mechanism) -> str:
    """A mechanism with its budget."""
    given = ", ".join(f"{name}={value:g}" for name, value in mechanism.guarantee.parameters.items())
    classes = f", {mechanism.classes} classes" if mechanism.classes > 2 else ""
    return f"{mechanism.name} with {given}{classes}"


def expected_bound(mechanism: Mechanism, pair: NeighbourPair, plan: TrialPlan) -> float:
    """The bound that is to be expected on a pair: it may be less on a pair of greater loss,
    whose event is never met.
    """
    claimed, n = Claimed.of(mechanism.guarantee), plan.trials
    chances = ((float(p), float(q)) for p, q in _chances(mechanism, pair))
    counts = (Mistakes(round(n * q), n, round(n * (1 - p)), n) for p, q in chances)
    return max(claimed.bound(count, plan.confidence) for count in counts)


def _labels(
    mechanism: Mechanism, side: Side, farthest: int, source: Randomness, count: int
) -> np.ndarray:
    """[count] labels, each drawn as agt predict draws one."""
    return mechanism.release(
        np.full(count, side.label), np.full(count, side.evidence), source, farthest
    )


def _chances(mechanism: Mechanism, pair: NeighbourPair) -> Iterator[tuple[Fraction, Fraction]]:
    """(P(S), P'(S)) of the sets S of labels, in both directions: those of equal probabilities go
    together.
    """
    sides, others = (pair.first, pair.second), mechanism.classes - 1
    flips = [mechanism.exact_flip(side.evidence) for side in sides]
    named = sorted({side.label for side in sides})

    def chance(label: int, at: int) -> Fraction:
        return 1 - flips[at] if sides[at].label == label else flips[at] / others

    groups = [(chance(label, 0), chance(label, 1)) for label in named]
    if rest := mechanism.classes - len(named):
        groups.append((flips[0] / others * rest, flips[1] / others * rest))
    for size in range(1, len(groups)):
        for some in combinations(groups, size):
            p, q = (sum(values, Fraction(0)) for values in zip(*some, strict=True))
            yield p, q
            yield q, p


def _normal(p: Fraction) -> float:
    """Phi^-1(p), exact in either tail."""
    return float(ndtri(float(p))) if p <= Fraction(1, 2) else -float(ndtri(float(1 - p)))


def search(
    labelling: Labelling,
    worth: Callable[[NeighbourPair], float],
    anchors: np.ndarray,
    count: int,
    width: int,
    seed: int,
) -> NeighbourPair | None:
    """What a mechanism sees of the query and the neighbour that are worth most; None: no neighbour
    differs anywhere.

    Args:
        labelling: the run's model and mechanism, judged.
        anchors: [n, ...] features, between which queries are looked for.
        count: how many neighbouring datasets are trained.
        width: how many segments between records of different labels they are made at; eight times
            as many are searched.
        seed: of the segments.
    """
    rng, model = np.random.default_rng(seed), labelling.model
    a, b = segments(model, anchors, width, rng)
    best: NeighbourPair | None = None
    for edit, other in (
        neighbours(model, on_line(a, b, bisected(model.predict, a, b)[1]), count) if len(a) else ()
    ):
        sides = LabellingPair(labelling, replace(labelling, model=other))
        queries = between_roots(sides, anchors, rng, 8 * width)
        for label, evidence, theirs, away in np.unique(sides.evidence(queries), axis=1).T:
            where = f"two datasets were used: the run's own data, and the same data {edit}"
            pair = NeighbourPair(
                Side(int(label), int(evidence)), Side(int(theirs), int(away)), where
            )
            best = pair if best is None or worth(pair) > worth(best) else best
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
    """Of labels that are classes."""

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
        """Attack the query and the neighbour at which most can be told."""
        check_audited(self.mechanism)
        labelling = cast(Labelling, self.judged(opened, given))
        worth, anchors = (
            partial(expected_bound, labelling.mechanism, plan=plan),
            opened.queries.features,
        )
        audit = self.audit
        found = search(labelling, worth, anchors, audit.neighbours, audit.segments, given.seed)
        if found is None:
            return labelling.claim, None
        max_distance = opened.model.max_distance
        return labelling.claim, audit_pair(labelling.mechanism, found, plan, max_distance)

    def without_data(self, plan: TrialPlan) -> Audited:
        """Attack at all evidence that neighbours can have."""
        audit = self.audit
        values = range(audit.farthest + 1) if audit.values is None else sorted({0, *audit.values})
        findings, losses = audit_alone(self.mechanism, values, plan)
        return _alone(self.mechanism, findings, losses)


class QuantileAttack(Attack):
    """Of one released number: a quantile of stable distances."""

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
        """Attack the release of a file of one query, whose distance is K_q."""
        mechanism, audit, model = self.mechanism, self.audit, opened.model
        accounting, counting = given.config["accounting"], given.config["counting"]
        how = {"conditions": opened.conditions, "accounting": accounting, "counting": counting}
        anchors = opened.queries.features
        claim = NumberRelease.judged(model, anchors, mechanism, ReleaseTerms(**how)).claim
        # reads the same evidence
        reader = RandomizedResponse(eps=mechanism.eps, classes=model.problem.classes)
        labelling = Labelling.judged(
            model, reader, **{**how, "accounting": "rigorous" if claim.proved else "paper"}
        )
        found = search(
            labelling,
            lambda pair: pair.moved,
            anchors,
            audit.neighbours,
            audit.segments,
            given.seed,
        )
        if found is None or not found.moved:
            return claim, None
        sides = np.array([found.first.evidence]), np.array([found.second.evidence])
        return claim, audit_quantile(mechanism, sides, model.max_distance, plan, found.where)

    def without_data(self, plan: TrialPlan) -> Audited:
        """Attack two quantiles that differ by 1."""
        middle = self.audit.farthest // 2
        sides, where = (
            (np.array([middle]), np.array([middle + 1])),
            "no data were used: the audit made up two inputs whose certified quantiles (of "
            "the queries' stable distances) differ by 1, the most that neighbouring "
            "datasets allow",
        )
        farthest = max(self.audit.farthest, 1)
        audited = audit_quantile(self.mechanism, sides, farthest, plan, where)
        return Audited(self.mechanism.name, None, audited)


class NumberAttack(Attack):
    """Of labels that are numbers."""

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
        """Refuse a mechanism without a budget, and settings that have no effect."""
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
        """Find a pair, draw, and hold what was counted against the claim."""
        plan = TrialPlan(self.trials, given.confidence, self.choosing)
        if given.run is None:
            return attack_of(given.mechanism().mechanism(2, 1), self).without_data(plan)
        opened = given.open_with_data(record, console, WITHOUT_RUN)
        classes = opened.dataset.target.class_count
        mechanism = given.mechanism().mechanism(classes, len(opened.queries))
        attack = attack_of(mechanism, self)
        claim, audited = attack.of_run(opened, given, plan)
        nowhere = no_pair_found(mechanism, self.neighbours, attack.sought)
        findings = (nowhere,) if audited is None else audited
        notes = (
            claim.text,
            f"models were trained on at most {self.neighbours} of all possible neighbouring "
            "datasets",
        )
        return Audited.of(opened.trained.finished, findings, notes)
