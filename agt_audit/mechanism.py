"""agt audit mechanism: whether labels or numbers that a mechanism releases distinguish two
neighbouring datasets better than its guarantee allows.

No run is used. A mechanism's input for one query is the label and its evidence (stable distance,
step of the grid, or gap between votes). A ``NeighbourPair`` is its input on two neighbouring
datasets, and all pairs that neighbours can have are made up.

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

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import partial
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtri

from agt.mechanisms.enclosures import ROUND_UP as UPWARDS
from agt.mechanisms.guarantees import GaussianDP
from agt.mechanisms.laplace_mean import LaplaceMean
from agt.mechanisms.mechanism import Mechanism
from agt.mechanisms.mechanism_config import AnyMechanism
from agt.mechanisms.quantile import CertifiedQuantile, release_quantile
from agt.numeric import UP, Randomness, printed_decimal
from agt.settings import schema
from agt_audit.estimates import Claimed
from agt_audit.job import Audited, AuditInputs, AuditKind
from agt_audit.kind_settings import MechanismAuditSettings
from agt_audit.numbers import audit_made_up_sums
from agt_audit.trials import Exact, TrialPlan, claim_to_test, judge_by_draws
from agt_cli.report.console import Console
from agt_cli.report.findings import Finding
from agt_cli.report.record import RunRecord


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
        datasets_note: a sentence that says which datasets these are; by default, that they are
            made up.
    """

    first: Side
    second: Side
    datasets_note: str = (
        "no data were used: the audit made up two inputs that differ as much as those of "
        "neighbouring datasets can"
    )

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


def audit_pair(
    mechanism: Mechanism, pair: NeighbourPair, plan: TrialPlan, farthest: int
) -> tuple[Finding, Finding]:
    """Audit a mechanism at one pair: by its stated probabilities, and by draws.

    Args:
        mechanism: a mechanism that releases labels.
        pair: its input on both sides.
        plan: how many labels to draw, and how.
        farthest: the public number that no evidence exceeds.

    Returns:
        The finding of the exact loss, and the one from draws (``judge_by_draws``).
    """
    table = table_finding(
        mechanism,
        exact_loss(mechanism, pair),
        f"probabilities from the mechanism's own table were compared, for {pair}",
        pair.datasets_note,
    )
    draw_first = partial(_draw_labels, mechanism, pair.first, farthest, plan.source)
    draw_second = partial(_draw_labels, mechanism, pair.second, farthest, plan.source)
    claim = claim_to_test(
        subject_of(mechanism), mechanism.guarantee, str(pair), pair.datasets_note, plan
    )
    return table, judge_by_draws((draw_first, draw_second), claim, plan, "labels")


def audit_quantile(
    mechanism: CertifiedQuantile, quantiles: tuple[int, int], farthest: int, plan: TrialPlan
) -> tuple[Finding, Finding]:
    """Audit the release of a quantile of stable distances on two made-up neighbouring datasets.

    Each dataset has a single query, whose stable distance is the quantile.

    Args:
        mechanism: the mechanism that releases the quantile.
        quantiles: the exact quantile on one dataset, and on the other.
        farthest: the public number that no distance exceeds.
        plan: how many quantiles to draw, and how.

    Returns:
        The finding of the exact loss, and the one from draws (``judge_by_draws``).
    """
    guarantee = mechanism.guarantee

    def draw(quantile: int, count: int) -> np.ndarray:
        distances = np.array([quantile])
        released = [
            release_quantile(distances, mechanism.fraction, farthest, guarantee, plan.source)
            for _ in range(count)
        ]
        return np.array(released)

    first, second = quantiles
    moved = abs(first - second)
    subject = f"certified_quantile with eps={mechanism.eps:g}"
    datasets_note = (
        "no data were used: the audit made up two inputs whose certified quantiles (of the "
        f"queries' stable distances) differ by {moved}"
    )
    sides = (
        f"the certified quantile (of the queries' stable distances) is {first} on one dataset "
        f"and {second} on its neighbour"
    )
    # the noise covers a quantile that moves by 1, and its loss grows in proportion
    law = Exact(mechanism.eps * moved, moved > 1).finding(
        f"{subject}: its table",
        guarantee,
        f"the exact distributions of the noisy quantile on two datasets were compared: {sides}",
        datasets_note,
    )
    claim = claim_to_test(subject, guarantee, sides, datasets_note, plan)
    draws = (partial(draw, first), partial(draw, second))
    return law, judge_by_draws(draws, claim, plan, "released numbers")


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
        The findings: of the largest exact loss, and of the draws. And (pair, loss) for every pair.
    """
    losses = [(pair, exact_loss(mechanism, pair)) for pair in neighbouring_pairs(mechanism, values)]
    pairs = [pair for pair, _ in losses]
    worst_pair, worst_loss = max(losses, key=lambda pair_and_loss: pair_and_loss[1].rank)
    table = table_finding(
        mechanism,
        worst_loss,
        f"probabilities from the mechanism's own table were compared for all {len(losses)} pairs "
        f"of neighbouring inputs. The worst pair is {worst_pair}",
        worst_pair.datasets_note,
    )
    differing = next(pair for pair in pairs if pair.first.label != pair.second.label)
    best = max(pairs, key=lambda pair: expected_bound(mechanism, pair, plan))
    drawn_pairs = (differing,) if best == differing else (differing, best)
    shared = plan.shared_among(len(drawn_pairs))
    drawn = [audit_pair(mechanism, pair, shared, values[-1])[1] for pair in drawn_pairs]
    return (table, *drawn), losses


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


# -- the audit
# --------------------------------------------------------------------------------------------------

Attacked = tuple[tuple[Finding, ...], Sequence[tuple[object, Exact]]]
"""The findings of an attack; and (pair, loss) for each pair whose exact loss was computed."""
MAX_PAIRS_SHOWN = 1000


@schema
class MechanismAudit(MechanismAuditSettings, AuditKind):
    """Attacks one mechanism by itself, without a run.

    Attributes:
        trials: how many releases of each side are counted.
        farthest: the largest evidence; for mechanisms that count members' answers, the number of
            members.
        values: the values that evidence can have, as in a grid with gaps; None: every integer from
            0 to ``farthest``.
    """

    def check(self, given: AuditInputs) -> None:
        """Check the mechanism and its budget, and the settings that depend on it.

        Raises:
            ConfigError: a run is given, the mechanism cannot be audited here or has no budget, or a
                setting is wrong or has no effect; the error names the key.
        """
        super().check(given)
        self.check_kind_of_mechanism(type(_audited_mechanism(given)))

    def carry_out(self, given: AuditInputs, record: RunRecord, console: Console) -> Audited:
        """Attack the mechanism on made-up inputs; its table ``pairs`` has the exact losses."""
        mechanism = _audited_mechanism(given)
        attack = next(ATTACKS[base] for base in type(mechanism).__mro__ if base in ATTACKS)
        findings, losses = attack(mechanism, self, TrialPlan(self.trials, given.confidence))
        rows = [
            {"pair": str(pair), "loss": loss.rank, "exceeds": loss.exceeds}
            for pair, loss in losses[:MAX_PAIRS_SHOWN]
        ]
        return Audited(mechanism.name, None, findings, tables={"pairs": pd.DataFrame(rows)})


def _audited_mechanism(given: AuditInputs) -> AnyMechanism:
    """Return the given mechanism, with two classes and the budget of one query.

    Raises:
        ConfigError: no mechanism is given, it has no budget, or a setting of it is wrong.
    """
    return given.mechanism().mechanism(2, 1)


def _attack_labels(mechanism: Mechanism, audit: MechanismAudit, plan: TrialPlan) -> Attacked:
    """Attack a mechanism that releases classes, on all inputs that neighbours can have."""
    values: Sequence[int] = range(audit.farthest + 1)
    if audit.values is not None:
        values = sorted({0, *audit.values})
    return audit_made_up_pairs(mechanism, values, plan)


def _attack_quantile(
    mechanism: CertifiedQuantile, audit: MechanismAudit, plan: TrialPlan
) -> Attacked:
    """Attack two quantiles that differ by 1, the most that neighbouring datasets allow."""
    middle = audit.farthest // 2
    farthest = max(audit.farthest, 1)
    return audit_quantile(mechanism, (middle, middle + 1), farthest, plan), []


def _attack_numbers(mechanism: LaplaceMean, audit: MechanismAudit, plan: TrialPlan) -> Attacked:
    """Attack made-up sums of members' answers that differ as much as one edit allows."""
    return audit_made_up_sums(mechanism, audit.farthest, plan)


ATTACKS: Mapping[type, Callable[[Any, MechanismAudit, TrialPlan], Attacked]] = {
    Mechanism: _attack_labels,
    CertifiedQuantile: _attack_quantile,
    LaplaceMean: _attack_numbers,
}
"""Class of a mechanism -> the attack on it and on its subclasses."""
