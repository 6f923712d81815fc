"""What a plan says of scores that are no better than a constant answer's."""

import numpy as np
import pytest

from agt.mechanisms.planning import (
    Budget,
    Evidence,
    NumberEvidence,
    Plan,
    PlannedRelease,
    QueryEvidence,
)
from agt.mechanisms.statistics import NoisyStatistics
from agt_cli.commands.plan import offer_table, score_cells
from agt_cli.report.quality import format_rate
from agt_cli.report.scoring import ClassScoring
from agt_cli.start.ledger_proposal import LedgerProposal
from agt_cli.start.plan import describe_ways

LABELS = np.repeat([0, 1], [7, 3])
CONSTANT = 0.7
NEXT_ABOVE = float(np.nextafter(CONSTANT, 1))  # as a mean of simulated draws may come out


def planned(*rates: float) -> Plan[Evidence]:
    """A plan of weights with these expected accuracies, for total eps = 1, 2, ..."""
    evidence = QueryEvidence(LABELS, LABELS, np.zeros(10, dtype=int), classes=2)
    guarantee = NoisyStatistics.within(1.0, 1e-5).guarantee
    releases = tuple(
        PlannedRelease("noisy_statistics", Budget(eps, 1e-5, 1), guarantee, rate)
        for eps, rate in enumerate(rates, 1)
    )
    return Plan(evidence, (), 1e-5, releases, weights=(), one_by_one={}, methods={})


@pytest.mark.parametrize("rate", [CONSTANT, NEXT_ABOVE])
def test_an_accuracy_that_equals_the_constant_one_is_not_worthwhile(rate: float) -> None:
    evidence = planned().evidence
    assert not evidence.is_worthwhile(rate)
    assert evidence.is_worthwhile(CONSTANT + 0.001)


def test_an_rmse_that_equals_the_constant_one_is_not_worthwhile() -> None:
    labels = np.array([0.1, 0.2, 0.4])
    evidence = NumberEvidence(None, labels, labels)  # type: ignore[arg-type]
    constant = evidence.constant_score
    assert not evidence.is_worthwhile(constant)
    assert not evidence.is_worthwhile(float(np.nextafter(constant, 0)))
    assert evidence.is_worthwhile(0.9 * constant)
    assert evidence.is_worthwhile(0.0)


def test_a_row_of_the_plan_that_is_not_better_than_a_constant_answer_says_so() -> None:
    plan = planned(NEXT_ABOVE, 0.9)
    _, rows = score_cells(plan, offer_table(plan), "majority class 'no'", format_rate)
    names = [name for _, name, _ in rows]
    assert names[0] == "noisy_statistics (not better than majority class 'no')"
    assert names[1] == "noisy_statistics"


@pytest.mark.parametrize(("rate", "is_said"), [(0.5, True), (NEXT_ABOVE, True), (0.9, False)])
def test_weights_that_are_not_better_than_a_constant_answer_are_named_so_by_start(
    rate: float, is_said: bool
) -> None:
    scoring = ClassScoring(("no", "yes"))
    weights, *_ = describe_ways(
        planned(rate),
        scoring,
        LedgerProposal(),
        1.0,
        unmet=(),
        unit_name="people",
        measures_first=False,
    )
    assert ("not more accurate than" in weights) == is_said
