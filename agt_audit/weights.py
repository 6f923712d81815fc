"""agt audit weights: whether released weights distinguish two neighbouring datasets better than
their guarantee allows.

No run is used: weights and training problems are made up. A mechanism either adds Gaussian noise to
trained weights (agt_audit/added_noise.py), or trains with a random linear term, which is called
objective perturbation (agt_audit/objective.py). The attacker knows the weights, or the training
problems, of both datasets.
"""

from collections.abc import Callable, Mapping
from typing import Any, cast

from agt.mechanism_settings import NoiseLaw
from agt.mechanisms.objective import ObjectiveNoises, ObjectivePerturbation, ProblemConstants
from agt.mechanisms.weights import ReleaseWeights
from agt.mechanisms.weights_mechanism import WeightsMechanism
from agt.settings import schema
from agt_audit.added_noise import WeightPair, audit_weights
from agt_audit.job import Audited, AuditInputs, AuditKind
from agt_audit.kind_settings import WeightsAuditSettings
from agt_audit.objective import audit_line, audit_objective, pair_with_largest_loss
from agt_audit.trials import TrialPlan
from agt_cli.report.console import Console
from agt_cli.report.record import RunRecord

DEFAULT_STRENGTH = 10.0  # of the regularisation, Lambda


def attack_added_noise(mechanism: ReleaseWeights, width: int, plan: TrialPlan) -> Audited:
    """Attack two synthetic models with ``width`` weights, whose distance is the sensitivity."""
    findings = audit_weights(mechanism, WeightPair.without_data(width), plan)
    return Audited(mechanism.name, None, findings)


def attack_linear_term(mechanism: ObjectivePerturbation, width: int, plan: TrialPlan) -> Audited:
    """Attack synthetic problems with ``width`` weights, whose records lie on one line."""
    guarantee = mechanism.guarantee
    shape = ProblemConstants(mechanism.weight_decay or DEFAULT_STRENGTH, 1.0, 1, width)
    noises = ObjectiveNoises.from_budget(shape, guarantee.eps, guarantee.delta)
    problems = pair_with_largest_loss(shape, noises, guarantee)
    exact = audit_line(guarantee, problems, noises)
    drawn = audit_objective(guarantee, problems, noises, plan)
    note = (
        "no run and no data were used: the records are made up. The regularisation strength is "
        f"Lambda = {shape.strength:g} (set by mechanism.weight_decay, for gradient sums that are "
        "divided by B = 1). Gradients are clamped at C = 1"
    )
    return Audited(mechanism.name, None, (exact, *drawn), (note,))


ATTACKS: Mapping[NoiseLaw, Callable[[Any, int, TrialPlan], Audited]] = {
    NoiseLaw.ADDED_GAUSSIAN: attack_added_noise,
    NoiseLaw.LINEAR_TERM: attack_linear_term,
}
"""The law of a mechanism's noise -> (mechanism, number of weights, plan) -> the audit's results."""


@schema
class WeightsAudit(WeightsAuditSettings, AuditKind):
    """Attacks a mechanism that releases weights, by itself, without a run.

    Attributes:
        trials: how many releases of each side are counted. Each draws exact noise for every weight,
            which takes about 40 microseconds.
        width: how many weights there are.
    """

    def carry_out(self, given: AuditInputs, record: RunRecord, console: Console) -> Audited:
        """Attack releases of synthetic weights."""
        # ``check`` refused everything else
        mechanism = cast(WeightsMechanism, given.mechanism().mechanism(2, 1))
        attack = ATTACKS[mechanism.noise_law]
        return attack(mechanism, self.width, TrialPlan(self.trials, given.confidence))
