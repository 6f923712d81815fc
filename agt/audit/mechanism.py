"""Audits of release mechanisms: what they put out for two neighbours' evidence, told apart (method.md section 8).

    audited = audit_pair(mechanism, pair, Plan(trials=10_000), farthest=50)
    audited.certain         the loss that the mechanism's own table implies
    audited.verdict         the bound from what it drew; audited.drawn: with other estimates of the same counts

Formal guarantees
    Of a label two numbers are reported. Certain: P(S) <= e^eps P'(S) + delta for every set S of labels and both directions,
    in rational numbers from the flip probabilities that the mechanism says it draws with; e^eps is rounded up, and eps is
    the double or the decimal that it prints as, whichever is greater, so that only a true violation is called one. Of
    GaussianDP, Phi^-1(P(S)) - Phi^-1(P'(S)) in double precision, and more than ``UP`` beyond the claim is a violation.
    Confident: of labels that were drawn, on one event, fixed beforehand or chosen on other draws (events.py); this one
    sees what the mechanism does, whatever it says of itself. Several pairs have their share of it each.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from functools import partial
from itertools import combinations, pairwise
from typing import Literal

import numpy as np
from scipy.special import ndtri

from agt.audit.estimates import Claimed, Mistakes
from agt.audit.events import chosen, counted, each
from agt.audit.findings import Finding, Outcome, Strength
from agt.audit.verdict import Attacked
from agt.audit.written import least
from agt.errors import ConfigError
from agt.mechanisms.aggregate import CertifiedQuantile, certified_quantile, release_quantile
from agt.mechanisms.enclosure import UP as UPWARDS
from agt.mechanisms.guarantee import GaussianDP, Guarantee
from agt.mechanisms.mechanism import Mechanism
from agt.numeric import UP, next_up, written
from agt.randomness import Randomness, SystemRandomness

Choosing = Literal["split", "fixed"]
Draw = Callable[[int], np.ndarray]


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
        return f"label {self.label} with evidence {self.evidence}"


@dataclass(frozen=True)
class Pair:
    """A query's evidence on two neighbouring datasets.

    Attributes:
        first, second: both sides.
        where: which datasets and query, in words.
    """

    first: Side
    second: Side
    where: str = "no data: neighbouring evidence by the definition"

    @property
    def moved(self) -> int:
        """By how much the evidence differs."""
        return abs(self.first.evidence - self.second.evidence)

    def __str__(self) -> str:
        return f"{self.first} against {self.second}"


@dataclass(frozen=True)
class Plan:
    """How hard to attack.

    Attributes:
        trials: releases a side that are counted.
        confidence: of all bounds together.
        choosing: split: as many releases more choose the event; fixed: each label, and the error probability is shared.
        source: of the draws.
    """

    trials: int = 10_000
    confidence: float = 0.95
    choosing: Choosing = "split"
    source: Randomness = field(default_factory=SystemRandomness)


@dataclass(frozen=True)
class Target:
    """What is attacked, in words, and what is claimed of it.

    Attributes:
        subject, where: as of a finding; which datasets.
        guarantee: the claim.
        sides: what the two sides are.
        classes: how many labels there are; None: outputs are numbers.
    """

    subject: str
    guarantee: Guarantee
    sides: str
    where: str
    classes: int | None


@dataclass(frozen=True)
class AuditedPair:
    """What an attack on one pair found.

    Attributes:
        certain: by what the mechanism says it draws with.
        drawn: from what it drew: the verdict, then other estimates of the same counts.
    """

    certain: Finding
    drawn: tuple[Finding, ...]

    @property
    def verdict(self) -> Finding:
        """What draws say of the claim."""
        return self.drawn[0]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All of them."""
        return (self.certain, *self.drawn)


@dataclass(frozen=True)
class Exact:
    """The loss of a pair, from the mechanism's table.

    Attributes:
        value: the least eps (at the claim's delta) or mu for this pair; None: none is enough.
        exceeds: whether it is more than claimed, beyond doubt.
    """

    value: float | None
    exceeds: bool

    @property
    def rank(self) -> float:
        """To compare pairs by."""
        return float("inf") if self.value is None else self.value

    def within(self, claimed: float) -> float | None:
        """The value, on the side of the claim that the exact comparison says: a float of it may be on the other."""
        if self.value is None:
            return None
        return max(self.value, next_up(claimed)) if self.exceeds else min(self.value, claimed)


def exact_loss(mechanism: Mechanism, pair: Pair) -> Exact:
    """The loss of one pair of evidence, certain: of what the mechanism says it draws with (``exact_flip``)."""
    guarantee, chances = mechanism.guarantee, list(_chances(mechanism, pair))
    if isinstance(guarantee, GaussianDP):
        value = max(_normal(p) - _normal(q) for p, q in chances)
        if not np.isfinite(value):
            return Exact(None, exceeds=True)
        return Exact(max(0.0, value), value > guarantee.mu * (1 + UP) + UP)
    claimed = Claimed.of(guarantee)
    eps, delta = (max(Decimal(number), written(number)) for number in (claimed.value, claimed.delta))
    most, slack = Fraction(UPWARDS.next_plus(UPWARDS.exp(eps))), Fraction(delta)
    exceeds = any(p > most * q + slack for p, q in chances)
    if any(p > slack and not q for p, q in chances):
        return Exact(None, exceeds=True)
    ratios = [(p - slack) / q for p, q in chances if q]
    return Exact(max(0.0, *map(_logarithm, (ratio for ratio in ratios if ratio > 0))) if ratios else 0.0, exceeds)


def neighbouring(mechanism: Mechanism, values: Sequence[int]) -> Iterator[Pair]:
    """The pairs of evidence that two neighbours can have, where evidence takes these values and no others between them.

    Args:
        values: increasing, from 0: every integer, or those of a grid with gaps, which is not 1-Lipschitz.
    """
    if mechanism.needs == "votes":  # n1 - n0 moves in steps of 2
        yield Pair(Side(1, 1), Side(0, 1))
        yield Pair(Side(1, 2), Side(0, 0))
        yield from (Pair(Side(1, gap + 2), Side(1, gap)) for gap in values[:-2] if gap)
        yield Pair(Side(0, 2), Side(0, 0))
        return
    yield Pair(Side(1, 0), Side(0, 0))
    if mechanism.needs != "nothing":
        yield from (Pair(Side(1, above), Side(1, below)) for below, above in pairwise(values))


def audit_pair(mechanism: Mechanism, pair: Pair, plan: Plan, farthest: int) -> AuditedPair:
    """Both findings of one pair.

    Args:
        farthest: the public number that no evidence exceeds.
    """
    exact, sides = exact_loss(mechanism, pair), (pair.first, pair.second)
    first, second = (partial(_labels, mechanism, side, farthest, plan.source) for side in sides)
    subject = subject_of(mechanism)
    target = Target(subject, mechanism.guarantee, str(pair), pair.where, mechanism.classes)
    table = certain_finding(mechanism, exact, f"the mechanism's own table at {pair}", pair.where)
    return AuditedPair(table, attacked((first, second), target, plan))


def audit_quantile(
    mechanism: CertifiedQuantile, distances: tuple[np.ndarray, np.ndarray], k_max: int, plan: Plan, where: str
) -> AuditedPair:
    """Both findings of K_q released from two neighbours' distances, [n] each."""
    k, other = (certified_quantile(side, mechanism.fraction) for side in distances)

    def draw(side: np.ndarray, count: int) -> np.ndarray:
        one = partial(release_quantile, side, mechanism.fraction, k_max, mechanism.guarantee, plan.source)
        return np.array([one() for _ in range(count)])

    draws = partial(draw, distances[0]), partial(draw, distances[1])
    subject, sides = f"certified_quantile with eps={mechanism.eps:g}", f"K_q = {k} against K_q = {other}"
    exact = Exact(mechanism.eps * abs(k - other), abs(k - other) > 1)
    law = certain(subject, mechanism.guarantee, exact, f"the noise's own law at {sides}", where)
    return AuditedPair(law, attacked(draws, Target(subject, mechanism.guarantee, sides, where, None), plan))


def certain_finding(mechanism: Mechanism, exact: Exact, attack: str, effort: str) -> Finding:
    """What the mechanism's table says of a pair, or of the worst of many."""
    return certain(subject_of(mechanism), mechanism.guarantee, exact, attack, effort)


def subject_of(mechanism: Mechanism) -> str:
    """A mechanism in words."""
    given = ", ".join(f"{name}={value:g}" for name, value in mechanism.guarantee.parameters.items())
    classes = f", {mechanism.classes} classes" if mechanism.classes > 2 else ""
    return f"{mechanism.name} with {given}{classes}"


def expected_bound(mechanism: Mechanism, pair: Pair, plan: Plan) -> float:
    """The bound that is to be expected on a pair: it may be less on a pair of greater loss, whose event is never met."""
    claimed, n = Claimed.of(mechanism.guarantee), plan.trials
    chances = ((float(p), float(q)) for p, q in _chances(mechanism, pair))
    counts = (Mistakes(round(n * q), n, round(n * (1 - p)), n) for p, q in chances)
    return max(claimed.bound(count, plan.confidence) for count in counts)


@dataclass(frozen=True)
class Alone:
    """What an audit of a mechanism without any data found.

    Attributes:
        findings: of its table at all pairs, then of what it drew.
        losses: of all pairs.
    """

    findings: tuple[Finding, ...]
    losses: tuple[tuple[Pair, Exact], ...]


def audit_alone(mechanism: Mechanism, values: Sequence[int], plan: Plan) -> Alone:
    """Audit a mechanism at the evidence that neighbours can have, whatever data it comes from.

    Its table at every pair; and draws from two: labels that differ, and the pair where most is to be expected of draws.

    Args:
        values: that evidence takes, as of ``neighbouring``.
    """
    losses = tuple((pair, exact_loss(mechanism, pair)) for pair in neighbouring(mechanism, values))
    worst, exact = max(losses, key=lambda one: one[1].rank)
    differing = next(pair for pair, _ in losses if pair.first.label != pair.second.label)
    best = max((pair for pair, _ in losses), key=lambda pair: expected_bound(mechanism, pair, plan))
    pairs = (differing,) if best == differing else (differing, best)
    plan = replace(plan, confidence=1 - (1 - plan.confidence) / len(pairs))
    audited = tuple(audit_pair(mechanism, pair, plan, values[-1]) for pair in pairs)
    table = certain_finding(mechanism, exact, f"its table at all {len(losses)} pairs; the worst: {worst}", worst.where)
    return Alone((table, *(finding for one in audited for finding in one.drawn)), losses)


def attacked(draws: tuple[Draw, Draw], target: Target, plan: Plan) -> tuple[Finding, ...]:
    """Draw, count, and hold against the claim.

    Args:
        draws: of either side: how many -> [n] outputs, labels or numbers.
    """
    claimed, trials, shared = Claimed.of(target.guarantee), plan.trials, 1
    if plan.choosing == "fixed":
        if target.classes is None:
            raise ConfigError("audit.choosing=fixed: a number has too many events to fix: use audit.choosing=split")
        events, shared = each(target.classes), target.classes
        first, second = (draw(trials) for draw in draws)
        event = max(events, key=lambda one: claimed.bound(counted(one, first, second), plan.confidence, shared))
        how = f"{shared} events fixed beforehand, each label, which share the error probability; the best: {event}"
    else:
        event = chosen(draws[0](trials), draws[1](trials), claimed, plan.confidence, target.classes is not None)
        first, second = (draw(trials) for draw in draws)
        how = f"the event was chosen on {trials:,} releases a side, and counted on others: {event}"
    judged = Attacked(
        target.subject,
        str(target.guarantee),
        f"{target.sides}; {how}",
        f"{trials:,} releases a side; {target.where}",
        claimed,
        plan.confidence,
        shared,
    )
    return judged.findings(counted(event, first, second))


def _labels(mechanism: Mechanism, side: Side, farthest: int, source: Randomness, count: int) -> np.ndarray:
    """[count] labels, each drawn as agt predict draws one."""
    return mechanism.release(np.full(count, side.label), np.full(count, side.evidence), source, farthest)


def certain(subject: str, guarantee: Guarantee, exact: Exact, attack: str, effort: str) -> Finding:
    """What is known of a pair without a draw."""
    claimed = Claimed.of(guarantee)
    at, value = f" at delta {claimed.delta:g}" if claimed.delta else "", exact.within(claimed.value)
    loss = (
        f"no {claimed.measure}{at} is enough"
        if value is None
        else f"{claimed.measure}{at} is {least(value, claimed.value)}"
    )
    held = "more than" if exact.exceeds else "which is not more than"
    return Finding(
        subject=f"{subject}: its table",
        claim=str(guarantee),
        attack=attack,
        effort=effort,
        outcome=Outcome.VIOLATED if exact.exceeds else Outcome.STANDS,
        meaning=f"worked out, without chance: {loss}, {held} the {claimed.value:g} claimed",
        measure=claimed.measure,
        claimed=claimed.value,
        delta=None if claimed.measure == "mu" else claimed.delta,
        found=value,
        strength=Strength.CERTAIN,
        noticeable="any excess on this pair, in what the mechanism says it draws with; not what it draws",
    )


def _chances(mechanism: Mechanism, pair: Pair) -> Iterator[tuple[Fraction, Fraction]]:
    """(P(S), P'(S)) of the sets S of labels, in both directions: those of equal probabilities go together."""
    sides, others = (pair.first, pair.second), mechanism.classes - 1
    flips = [mechanism.exact_flip(side.evidence) for side in sides]
    named = sorted({side.label for side in sides})

    def chance(label: int, at: int) -> Fraction:
        return 1 - flips[at] if sides[at].label == label else flips[at] / others

    groups = [(chance(label, 0), chance(label, 1)) for label in named]
    rest = mechanism.classes - len(named)
    if rest:
        groups.append((flips[0] / others * rest, flips[1] / others * rest))
    for size in range(1, len(groups)):
        for chosen_groups in combinations(groups, size):
            p, q = (sum(values, Fraction(0)) for values in zip(*chosen_groups, strict=True))
            yield p, q
            yield q, p


def _normal(p: Fraction) -> float:
    """Phi^-1(p), exact in either tail."""
    return float(ndtri(float(p))) if p <= Fraction(1, 2) else -float(ndtri(float(1 - p)))


def _logarithm(ratio: Fraction) -> float:
    return float(UPWARDS.ln(UPWARDS.divide(Decimal(ratio.numerator), Decimal(ratio.denominator))))
