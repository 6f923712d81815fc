"""How answers of classes are scored: accuracy, and the recall of the rarest class."""

import numpy as np
import pytest

from agt.mechanisms.planning import Plan, QueryEvidence
from agt_cli.report.scoring import ClassScoring
from agt_cli.start.ledger_proposal import LedgerProposal
from agt_cli.start.plan import describe_ways

SCORING = ClassScoring(("no", "maybe", "yes"))
LABELS = np.repeat([0, 2], [92, 8])


def answers(found: int) -> np.ndarray:
    """Answers that are right for every 'no', and for this number of the 8 records with 'yes'."""
    given = np.zeros(100, dtype=int)
    given[92 : 92 + found] = 2
    return given


@pytest.mark.parametrize("found", [0, 1, 8])
def test_the_recall_is_of_the_class_with_the_fewest_labels_that_occur(found: int) -> None:
    accuracy, recall = SCORING.scores(answers(found), LABELS)
    assert accuracy is not None
    assert recall is not None
    assert (accuracy.value, recall.value) == (0.92 + found / 100, found / 8)
    assert "'yes' (8 of 100 rows)" in SCORING.legend(LABELS)


def test_of_one_class_alone_there_is_no_rarest_one() -> None:
    labels = np.zeros(5, dtype=int)
    _, recall = SCORING.scores(labels, labels)
    assert recall is None
    assert SCORING.legend(labels) == SCORING.warning(labels, labels) == ""


@pytest.mark.parametrize(("found", "warned"), [(0, True), (1, False), (8, False)])
def test_a_model_that_hardly_finds_the_rarest_class_is_warned_of(found: int, warned: bool) -> None:
    warning = SCORING.warning(answers(found), LABELS)
    assert ("'yes'" in warning) == warned


def test_of_very_few_records_of_a_class_nobody_is_warned() -> None:
    labels = np.repeat([0, 2], [97, 3])
    assert SCORING.warning(np.zeros(100, dtype=int), labels) == ""


@pytest.mark.parametrize(("found", "reason"), [(8, "worse than"), (0, "not better than")])
def test_a_way_that_gives_no_answers_names_the_reason(found: int, reason: str) -> None:
    evidence = QueryEvidence(LABELS, answers(found), np.zeros(100, dtype=int), classes=3)
    planned = Plan(evidence, (), 1e-5, (), weights=None, one_by_one={}, methods={})
    weights, single, _ = describe_ways(
        planned,
        SCORING,
        LedgerProposal(),
        1.0,
        unmet=(),
        unit_name="people",
        measures_first=False,
    )
    assert "none, because no mechanism" in weights
    assert "none, because" in single
    assert reason in single
