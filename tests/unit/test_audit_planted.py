"""What is planted is caught, its sound twins are not accused; and auditors that are broken,
which the catalogue notices.
"""

from collections.abc import Callable

import numpy as np
import pytest

from agt_audit import certificate_attacks, claims, estimates
from agt_audit.estimates import Mistakes
from agt_audit.model_bounds import BoxBounds
from agt_audit.selftest import PLANTED, SOUND
from agt_cli.report.findings import Outcome

# Others: make audit, which .ci/run carries out as well, audits all of them.
SAMPLED_FAULTS = [
    *list(PLANTED)[::3],
    "fault: released weights whose noise is 20 % too small",
    "fault: stable distances that are 5 % too large",
    "fault: gradient sums divided by the number of private records",
]


@pytest.mark.parametrize("name", list(dict.fromkeys(SAMPLED_FAULTS)))
def test_planted_violation_is_caught(name: str) -> None:
    finding = PLANTED[name](1)
    assert finding.outcome is Outcome.VIOLATED, finding.meaning


@pytest.mark.parametrize("seed", [2, 12, 13, 14])
def test_members_outside_of_the_range_are_caught_with_every_seed(seed: int) -> None:
    plant = PLANTED["fault: private numbers whose members leave the declared range"]
    assert plant(seed).violated


@pytest.mark.parametrize("name", list(SOUND)[::3])
def test_sound_twin_is_let_pass(name: str) -> None:
    finding = SOUND[name](1)
    assert finding.outcome is Outcome.NOT_CONTRADICTED, finding.meaning


def bounds_far_above_claims(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(claims, "epsilon_bound", lambda *given, **named: 99.0)


def rates_instead_of_limits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        estimates, "upper_limit", lambda events, trials, error: max(events / trials, 1e-12)
    )


def limits_swapped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(estimates, "upper_limit", estimates.lower_limit)


def error_not_shared(patch: pytest.MonkeyPatch) -> None:
    honest = estimates.epsilon_bound

    def of_one(mistakes: Mistakes, delta: float, confidence: float, events: int = 1) -> float:
        return honest(mistakes, delta, confidence)

    patch.setattr(claims, "epsilon_bound", of_one)


def every_neighbour_held_for_one_k(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(certificate_attacks, "edit_distance", lambda edit, relation: 1)


def distances_not_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        certificate_attacks,
        "inconsistent_distances",
        lambda own, other, symmetric: np.zeros(len(own[0]), bool),
    )


def boxes_not_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BoxBounds, "ends_outside", staticmethod(lambda outer, inner: (0, 1)))


@pytest.mark.parametrize(
    ("broken", "name"),
    [
        (
            bounds_far_above_claims,
            "control: randomized response that draws labels with the budget that it claims",
        ),
        (
            rates_instead_of_limits,
            "control: randomized response that draws labels with the budget that it claims",
        ),
        (
            limits_swapped,
            "control: randomized response that draws labels with the budget that it claims",
        ),
        (error_not_shared, "control: an attack that is counted as the best of 1,000 events"),
        (every_neighbour_held_for_one_k, "control: parameter bounds as agt computes them"),
        (distances_not_compared, "fault: stable distances that jump between neighbouring datasets"),
        (
            boxes_not_compared,
            "fault: parameter bounds that do not lie within those of a neighbouring dataset",
        ),
    ],
)
def test_broken_auditor_is_noticed(
    broken: Callable[[pytest.MonkeyPatch], None], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)
    assert (
        PLANTED[name](0).outcome is Outcome.NOT_CONTRADICTED
        if name in PLANTED
        else SOUND[name](0).violated
    )
