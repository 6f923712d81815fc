"""agt audit mechanism: whether labels or numbers that a mechanism releases distinguish two
neighbouring datasets better than its guarantee allows.

No run is used: all pairs of inputs that neighbouring datasets can have are made up. Labels are
attacked in agt_audit/label_pairs.py, numbers in agt_audit/numbers.py.

docs/reference.md section 8.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from agt.mechanisms.laplace_mean import LaplaceMean
from agt.mechanisms.mechanism import Mechanism
from agt.mechanisms.mechanism_config import AnyMechanism
from agt.mechanisms.quantile import CertifiedQuantile, release_quantile
from agt.settings import schema
from agt_audit.job import Audited, AuditInputs, AuditKind
from agt_audit.kind_settings import MechanismAuditSettings
from agt_audit.label_pairs import PairFindings, audit_synthetic_pairs
from agt_audit.numbers import audit_synthetic_sums
from agt_audit.trials import Exact, TrialPlan, claim_to_test, judge_by_draws, subject_of
from agt_cli.report.console import Console
from agt_cli.report.findings import Finding
from agt_cli.report.record import RunRecord


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
        _audited_mechanism(given)  # called because it raises if the mechanism cannot be made

    def carry_out(self, given: AuditInputs, record: RunRecord, console: Console) -> Audited:
        """Attack the mechanism on synthetic inputs."""
        mechanism = _audited_mechanism(given)
        attack = next(ATTACKS[base] for base in type(mechanism).__mro__ if base in ATTACKS)
        findings = attack(mechanism, self, TrialPlan(self.trials, given.confidence))
        return Audited(mechanism.name, None, findings)


def _audited_mechanism(given: AuditInputs) -> AnyMechanism:
    """Return the given mechanism, with two classes and the budget of one query.

    Raises:
        ConfigError: no mechanism is given, it has no budget, or a setting of it is wrong.
    """
    return given.mechanism().mechanism(2, 1)


def audit_quantile(
    mechanism: CertifiedQuantile, quantiles: tuple[int, int], farthest: int, plan: TrialPlan
) -> PairFindings:
    """Audit the release of a quantile of stable distances on two synthetic neighbouring datasets.

    Each dataset has a single query, whose stable distance is the quantile.

    Args:
        mechanism: the mechanism that releases the quantile.
        quantiles: the exact quantile on one dataset, and on the other.
        farthest: the public number that no distance exceeds.
        plan: how many quantiles to draw, and how.
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
    difference = abs(first - second)
    subject = subject_of(mechanism.name, guarantee)
    datasets_note = (
        "no data were used: the audit made up two inputs whose certified quantiles (of the "
        f"queries' stable distances) differ by {difference}"
    )
    sides = (
        f"the certified quantile (of the queries' stable distances) is {first} on one dataset "
        f"and {second} on its neighbour"
    )
    # the noise covers a quantile that moves by 1, and its loss grows in proportion
    law = Exact(mechanism.eps * difference, difference > 1).finding(
        f"{subject}: its table",
        guarantee,
        f"the exact distributions of the noisy quantile on two datasets were compared: {sides}",
        datasets_note,
    )
    claim = claim_to_test(subject, guarantee, sides, datasets_note, plan)
    draws = (partial(draw, first), partial(draw, second))
    return PairFindings(law, judge_by_draws(draws, claim, plan, "released numbers"))


def _attack_labels(
    mechanism: Mechanism, audit: MechanismAudit, plan: TrialPlan
) -> tuple[Finding, ...]:
    """Attack a mechanism that releases classes, on all inputs that neighbours can have."""
    values: Sequence[int] = range(audit.farthest + 1)
    if audit.values is not None:
        values = sorted({0, *audit.values})
    return audit_synthetic_pairs(mechanism, values, plan)


def _attack_quantile(
    mechanism: CertifiedQuantile, audit: MechanismAudit, plan: TrialPlan
) -> tuple[Finding, ...]:
    """Attack two quantiles that differ by 1, the most that neighbouring datasets allow."""
    middle = audit.farthest // 2
    farthest = max(audit.farthest, 1)
    return audit_quantile(mechanism, (middle, middle + 1), farthest, plan)


def _attack_numbers(
    mechanism: LaplaceMean, audit: MechanismAudit, plan: TrialPlan
) -> tuple[Finding, ...]:
    """Attack synthetic sums of members' answers that differ as much as one edit allows."""
    return audit_synthetic_sums(mechanism, audit.farthest, plan)


ATTACKS: Mapping[type, Callable[[Any, MechanismAudit, TrialPlan], tuple[Finding, ...]]] = {
    Mechanism: _attack_labels,
    CertifiedQuantile: _attack_quantile,
    LaplaceMean: _attack_numbers,
}
"""Class of a mechanism -> the attack on it and on its subclasses."""
