"""Usual learners beside a model of vectors, and what is said of their accuracy."""

from pathlib import Path

import numpy as np
import pytest

from agt.data.dataset import Dataset
from agt.data.embeddings import Embeddings
from agt_cli.report.console import Console
from agt_cli.report.scoring import ClassScoring, scoring_of
from agt_cli.runs import usual_learners
from agt_cli.runs.usual_learners import scores_on_vectors

QUIET = Console(quiet=True)


def vectors(folder: Path, width: int, rows: int = 200) -> Dataset:
    """Three classes that a line tells apart by the first two features."""
    rng = np.random.default_rng(0)
    label = rng.integers(0, 3, rows)
    x = rng.normal(size=(rows, width)).astype(np.float32)
    x[:, 0] += 8 * (label == 1)
    x[:, 1] += 8 * (label == 2)
    np.savez(folder / "v.npz", x=x, label=label)
    return Embeddings(path=folder / "v.npz").load()


def test_few_features_are_given_to_logistic_regression_and_boosting(tmp_path: Path) -> None:
    data = vectors(tmp_path, 4)
    found = scores_on_vectors(data, scoring_of(data.target), QUIET)
    assert [*found.scores] == ["LogisticRegression", "boosting"]
    first = found.scores["LogisticRegression"][0]
    assert first is not None
    assert first.value > 0.9
    assert found.records_seen == len(data.train)


def test_each_learner_is_named_before_it_is_trained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = vectors(tmp_path, 4)
    scores_on_vectors(data, scoring_of(data.target), Console())
    shown = capsys.readouterr()
    assert not shown.out
    for name in ("LogisticRegression (1 of 2", "boosting (2 of 2"):
        assert f"comparing with {name}" in shown.err


def test_many_features_are_not_boosted(tmp_path: Path) -> None:
    data = vectors(tmp_path, usual_learners.MAX_BOOSTED_FEATURES + 1)
    assert [*scores_on_vectors(data, scoring_of(data.target), QUIET).scores] == [
        "LogisticRegression"
    ]


def test_of_many_numbers_the_first_records_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usual_learners, "MAX_TRAINING_NUMBERS", 50 * 4 * 3)
    data = vectors(tmp_path, 4)
    assert scores_on_vectors(data, scoring_of(data.target), QUIET).records_seen == 50


SCORING = ClassScoring(("no", "yes"))


@pytest.mark.parametrize(
    ("usual", "ahead"),
    [
        ({}, ""),
        ({"LogisticRegression": 0.809}, ""),
        ({"LogisticRegression": 0.82, "boosting": 0.81}, "LogisticRegression"),
        ({"LogisticRegression": 0.7, "boosting": 0.85}, "boosting"),
    ],
)
def test_the_best_of_usual_learners_is_named_where_it_is_ahead(
    usual: dict[str, float], ahead: str
) -> None:
    said = SCORING.shortfall(0.8, usual)
    assert said.startswith(ahead)
    assert bool(said) == bool(ahead)
