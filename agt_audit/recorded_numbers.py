"""The numbers that a run recorded, compared with those of another training on the same records."""

from dataclasses import dataclass

from agt.models.model import Model
from agt_audit.model_bounds import bounds_of
from agt_cli.report.findings import Finding, Outcome, Strength

ALLOWED_DRIFT = {"float64": 1e-6, "float32": 2e-3}
"""Dtype -> the largest difference, in widths of a box, between ends of boxes that were trained on
two processors.
"""


@dataclass(frozen=True)
class _ComparedNumbers:
    """How the numbers of a run differ from those of training again.

    Attributes:
        compared: how many numbers were compared.
        differ: how many of them differ.
        largest_deviation: the largest deviation of a parameter, as a share of what the bounds for
            k = 0 allow.
        largest_drift: the largest difference between ends of boxes, in widths of a box.
    """

    compared: int
    differ: int
    largest_deviation: float
    largest_drift: float


def recorded_numbers_finding(
    model: Model, again: Model, on_record: str, other_code: str
) -> Finding:
    """Return the finding of a comparison of a run's numbers with those of training again.

    They should be equal. Differences that the bounds for k = 0 and ``ALLOWED_DRIFT`` allow are
    reported without a verdict, because another processor can cause them.

    Args:
        model: the model as it was saved.
        again: the model that training again on the same records gave.
        on_record: what the numbers are, in words.
        other_code: a clause that says which other version of agt made the run, so that its boxes
            may differ; "": the same version did.
    """
    numbers = _compare_numbers(model, again)
    allowed_drift = ALLOWED_DRIFT[model.problem.settings.training.dtype]
    drifted = numbers.largest_drift > allowed_drift and not other_code
    outcome = Outcome.NOT_CONTRADICTED
    meaning = (
        f"{numbers.differ:,} of {numbers.compared:,} numbers stored in the run's folder differ "
        "from those that training again gives"
    )
    if numbers.differ and (numbers.largest_deviation > 1 or drifted):
        outcome = Outcome.VIOLATED
        meaning = (
            f"{meaning}. The run was altered or damaged after training: restore it from a backup, "
            "or train again"
        )
    elif numbers.differ:
        outcome = Outcome.REPORTED
        reason = other_code or (
            "another processor or another number of threads can cause such differences. If "
            "env.json names the same processor and number of threads for the run and for this "
            "audit, the run was altered or damaged"
        )
        meaning = (
            f"{meaning}, but the parameters differ by no more than the allowed rounding: {reason}"
        )
    noticeable = "this audit detects any change of the stored numbers beyond rounding"
    if other_code:
        noticeable = "this audit detects parameters that differ by more than the allowed rounding"
    return Finding(
        subject=f"{on_record} on record",
        claim=(
            "training with the run's settings on the run's records gives the numbers that are "
            "stored in the run's folder"
        ),
        attack="the run was trained again on the same records, and its bounds were computed again",
        effort=f"{numbers.compared:,} numbers compared",
        outcome=outcome,
        meaning=meaning,
        measure="numbers that differ",
        claimed=0.0,
        found=float(numbers.differ),
        strength=Strength.EXACT,
        noticeable=noticeable,
    )


def _compare_numbers(model: Model, again: Model) -> _ComparedNumbers:
    """Compare the parameters and the bounds of a model with those of training again.

    Arguments as of ``recorded_numbers_finding``.
    """
    compared = 0
    differ = 0
    largest_deviation = 0.0
    largest_drift = 0.0
    for own, other in zip(model.member_models, again.member_models, strict=True):
        bounds = bounds_of(own)
        own_tensors = [*bounds.parameters(own).values(), *bounds.bound_tensors(own)]
        other_tensors = [*bounds.parameters(other).values(), *bounds.bound_tensors(other)]
        for stored, fresh in zip(own_tensors, other_tensors, strict=True):
            compared += stored.numel()
            differ += int((stored != fresh).sum())
        deviations = bounds.deviations(own, other, 0) or {}
        largest_deviation = max(largest_deviation, *deviations.values(), 0.0)
        largest_drift = max(largest_drift, bounds.largest_drift(own, other))
    return _ComparedNumbers(compared, differ, largest_deviation, largest_drift)
