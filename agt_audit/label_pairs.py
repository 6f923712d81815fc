"""Attacks on labels that a mechanism releases, at two inputs that neighbouring datasets can have.

A mechanism's input for one query is the label and its evidence (stable distance, step of the grid,
or gap between votes). A ``NeighbourPair`` is its input on two neighbouring datasets.

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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import partial
from itertools import combinations, pairwise
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from agt.mechanisms.enclosures import ROUND_UP as UPWARDS
from agt.mechanisms.guarantees import GaussianDP
from agt.mechanisms.mechanism import Mechanism
from agt.numeric import UP, Randomness, printed_decimal
from agt_audit.claims import Claimed
from agt_audit.trials import Exact, TrialPlan, claim_to_test, judge_by_draws, subject_of
from agt_cli.report.findings import Finding

Probabilities = tuple[Fraction, Fraction]
"""P(S) and P'(S) of a set S of labels, with the laws of the released label on the two sides."""


NO_DATA_USED = (
    "no data were used: the audit made up two inputs that differ as much as those of "
    "neighbouring datasets can"
)


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
    """

    first: Side
    second: Side

    def __str__(self) -> str:
        return f"{self.first} against {self.second}"


def exact_loss(mechanism: Mechanism, pair: NeighbourPair) -> Exact:
    """Return the privacy loss of one pair, from the probabilities that the mechanism states.

    These are ``Mechanism.exact_flip``. Nothing is drawn, so nothing is said of what it draws.
    """
    guarantee = mechanism.guarantee
    probabilities = list(_set_probabilities(mechanism, pair))
    if isinstance(guarantee, GaussianDP):
        return _exact_mu(probabilities, guarantee.mu)
    claimed = Claimed.of(guarantee)
    return _exact_epsilon(probabilities, claimed.value, claimed.delta)


def _exact_mu(probabilities: Sequence[Probabilities], claimed_mu: float) -> Exact:
    """Return the least mu that covers all sets, compared with the claimed one."""
    mu = max(_normal_quantile(p) - _normal_quantile(q) for p, q in probabilities)
    if not np.isfinite(mu):
        return Exact(None, exceeds=True)
    return Exact(max(0.0, mu), mu > claimed_mu * (1 + UP) + UP)


def _exact_epsilon(
    probabilities: Sequence[Probabilities], claimed_eps: float, claimed_delta: float
) -> Exact:
    """Return the least epsilon that covers all sets at the claimed delta, and compare the claim.

    The loss is rounded up; whether it exceeds the claim is computed in rational numbers.
    """
    # a claim is the double or the decimal that it prints as, whichever is greater
    eps = max(Decimal(claimed_eps), printed_decimal(claimed_eps))
    delta = Fraction(max(Decimal(claimed_delta), printed_decimal(claimed_delta)))
    factor = Fraction(UPWARDS.next_plus(UPWARDS.exp(eps)))  # at least e^eps
    loss = 0.0
    exceeds = False
    for p, q in probabilities:
        if p <= delta:  # every epsilon covers this set
            continue
        if not q:  # no finite epsilon does
            return Exact(None, exceeds=True)
        exceeds |= p > factor * q + delta
        ratio = (p - delta) / q
        quotient = UPWARDS.divide(Decimal(ratio.numerator), Decimal(ratio.denominator))
        loss = max(loss, float(UPWARDS.ln(quotient)))
    return Exact(loss, exceeds)


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


class PairFindings(NamedTuple):
    """The findings about a mechanism at one pair of inputs.

    Attributes:
        exact: of the exact loss, by the mechanism's stated probabilities.
        drawn: from draws (``judge_by_draws``).
    """

    exact: Finding
    drawn: Finding


def audit_pair(
    mechanism: Mechanism, pair: NeighbourPair, plan: TrialPlan, farthest: int
) -> PairFindings:
    """Audit a mechanism at one pair: by its stated probabilities, and by draws.

    Args:
        mechanism: a mechanism that releases labels.
        pair: its input on both sides.
        plan: how many labels to draw, and how.
        farthest: the public number that no evidence exceeds.
    """
    table = table_finding(
        mechanism,
        exact_loss(mechanism, pair),
        f"probabilities from the mechanism's own table were compared, for {pair}",
    )
    draw_first = partial(_draw_labels, mechanism, pair.first, farthest, plan.source)
    draw_second = partial(_draw_labels, mechanism, pair.second, farthest, plan.source)
    subject = labels_subject(mechanism)
    claim = claim_to_test(subject, mechanism.guarantee, str(pair), NO_DATA_USED, plan)
    drawn = judge_by_draws((draw_first, draw_second), claim, plan, "labels")
    return PairFindings(table, drawn)


def audit_synthetic_pairs(
    mechanism: Mechanism, values: Sequence[int], plan: TrialPlan
) -> tuple[Finding, ...]:
    """Audit a mechanism without a run, at all inputs that neighbouring datasets can have.

    The exact loss is computed for every pair. Labels are drawn from one or two pairs only: the
    first one whose labels differ, and the one with the largest ``expected_bound``.

    Args:
        mechanism: a mechanism that releases labels.
        values: the values that evidence can have, increasing from 0.
        plan: how many labels to draw, and how. Its error probability is shared among the pairs from
            which labels are drawn.

    Returns:
        The finding of the largest exact loss, and then those of the draws.
    """
    pairs = list(neighbouring_pairs(mechanism, values))
    losses = [exact_loss(mechanism, pair) for pair in pairs]
    worst = max(range(len(pairs)), key=lambda index: losses[index].rank)
    table = table_finding(
        mechanism,
        losses[worst],
        f"probabilities from the mechanism's own table were compared for all {len(pairs)} pairs "
        f"of neighbouring inputs. The worst pair is {pairs[worst]}",
    )
    differing = next(pair for pair in pairs if pair.first.label != pair.second.label)
    best = max(pairs, key=lambda pair: expected_bound(mechanism, pair, plan))
    drawn_pairs = (differing,) if best == differing else (differing, best)
    shared = plan.shared_among(len(drawn_pairs))
    drawn = [audit_pair(mechanism, pair, shared, values[-1]).drawn for pair in drawn_pairs]
    return (table, *drawn)


def table_finding(mechanism: Mechanism, exact: Exact, attack: str) -> Finding:
    """Return the finding of an exact loss, from the mechanism's own table of probabilities.

    Args:
        mechanism: a mechanism that releases labels.
        exact: the loss of the pair that is reported.
        attack: what was compared, in words.
    """
    subject = f"{labels_subject(mechanism)}: its table"
    return exact.finding(subject, mechanism.guarantee, attack, NO_DATA_USED)


def labels_subject(mechanism: Mechanism) -> str:
    """Return the name of a mechanism with its budget, and more than two classes, for findings."""
    subject = subject_of(mechanism.name, mechanism.guarantee)
    if mechanism.classes == 2:
        return subject
    return f"{subject}, {mechanism.classes} classes"


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


def _set_probabilities(mechanism: Mechanism, pair: NeighbourPair) -> Iterator[Probabilities]:
    """Yield the two probabilities of every set S of labels that could be the worst, in both orders.

    All labels that neither side's model gives have the same two probabilities, so they are in S
    together or not at all. The empty set and the set of all labels are left out.
    """
    named = sorted({pair.first.label, pair.second.label})
    first_law = _law_of_groups(mechanism, pair.first, named)
    second_law = _law_of_groups(mechanism, pair.second, named)
    groups = list(zip(first_law, second_law, strict=True))
    for size in range(1, len(groups)):
        for members in combinations(groups, size):
            p = sum((first for first, _ in members), Fraction(0))
            q = sum((second for _, second in members), Fraction(0))
            yield p, q
            yield q, p


def _law_of_groups(mechanism: Mechanism, side: Side, named: Sequence[int]) -> list[Fraction]:
    """Return the probability of each of some labels on one side, and of all others together.

    Args:
        mechanism: releases the side's own label, or flips it to any other with equal probability.
        side: the mechanism's input.
        named: the labels, among them the side's own. If these are all, nothing is added for others.
    """
    flip = mechanism.exact_flip(side.evidence)
    flip_to_one = flip / (mechanism.classes - 1)
    law = [1 - flip if label == side.label else flip_to_one for label in named]
    others = mechanism.classes - len(named)
    if others:
        law.append(others * flip_to_one)
    return law


def _normal_quantile(p: Fraction) -> float:
    """Return Phi^-1(p), accurate also for p near 1; -inf for 0, and inf for 1."""
    if p <= Fraction(1, 2):
        return float(ndtri(float(p)))
    return -float(ndtri(float(1 - p)))
