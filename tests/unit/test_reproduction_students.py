"""Students: what each teacher sells, to whom, at which price, and what is learnt from it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agt.errors import ConfigError
from agt.mechanisms.catalogue import MECHANISMS
from agt.mechanisms.composition import PUBLISHED
from agt.mechanisms.planning import Budget, afford
from agt.settings import validate
from agt_cli.papers.reproduction import students as module
from agt_cli.papers.reproduction.definition import Artifact, Experiment, Profile
from agt_cli.papers.reproduction.kinds import Context
from agt_cli.papers.reproduction.runs import Runs
from agt_cli.papers.reproduction.students import StudentsConfig, _per_query, students
from agt_cli.report.console import Console
from agt_cli.report.record import RunRecord

BLOBS = (
    "dataset=blobs",
    "dataset.n_train=160",
    "dataset.test_fraction=0.5",
    "model.hidden=[6]",
    "kgrid=dense",
    "kgrid.max=6",
)
PROFILES = {"paper": Profile(accounting="paper", many="smooth_cauchy"), "ours": Profile()}
STUDENT = {"epochs": 20, "lr": 0.3}


@pytest.fixture
def context(tmp_path: Path) -> Iterator[Context]:
    """On well separated blobs, with two profiles."""
    artifact = Artifact("table", "a table", "what it shows", "students")
    experiment = Experiment("title", "synthetic blobs", (artifact,), PROFILES, BLOBS)
    with RunRecord(tmp_path / "record", "reproduce", {}) as record:
        runs = Runs(tmp_path / "runs", ("compute.threads=1",), Console(quiet=True))
        yield Context(experiment, artifact, PROFILES, runs, record)


def settings(mechanism: str, profile: str = "ours", teacher: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """One teacher, few draws."""
    row = {"label": "the teacher", "mechanisms": {profile: mechanism}, **(teacher or {})}
    return {"teachers": [row], "queries": [10], "draws": 3, "student": STUDENT, **more}


def test_a_rich_budget_buys_the_teachers_labels_and_a_poor_one_noise(context: Context) -> None:
    rich = students(context, settings("global_sensitivity", eps=100.0, queries=[10, 2])).table
    assert rich["labels right, expected"].tolist() == pytest.approx([rich["teacher, noise-free"][0]] * 2, abs=0.01)
    assert rich["student"][0] > 0.95
    poor = students(context, settings("global_sensitivity", eps=0.01, delta=1e-9)).table
    assert poor["labels right, expected"][0] == pytest.approx(0.5, abs=0.01)
    assert poor["low"][0] < 0.7
    assert (context.record.folder / "figures" / "table.png").is_file()


def test_the_papers_accounting_composes_as_the_papers_do(context: Context) -> None:
    table = students(context, settings("many", profile="paper", eps=5.0)).table
    evidence = context.run("paper", ()).evidence("certified")
    published = afford(MECHANISMS["smooth_cauchy"], Budget(5.0, 1e-5, 10), 2, PUBLISHED)
    assert table["mechanism"].tolist() == ["smooth_cauchy"]
    assert table["labels right, expected"][0] == evidence.expected(published)
    assert evidence.expected(published) < evidence.expected(afford(MECHANISMS["smooth_cauchy"], Budget(5.0, 1e-5, 10), 2))


def test_students_learn_from_queries_and_are_judged_on_the_others(context: Context) -> None:
    config = validate(StudentsConfig, settings("global_sensitivity"), "students")
    prepared, chosen = context.runs.prepared(list(BLOBS)), context.runs.settings(list(BLOBS))[1]
    test, asked = prepared.dataset.test, []

    def wrong(rows: np.ndarray, draw: int) -> np.ndarray:
        asked.append(rows)
        return 1 - test.labels[rows]

    found = module._taught(prepared, chosen, config, 40, wrong)
    assert found.max() < 0.1  # a student of a liar, judged by the truth
    assert [len(rows) for rows in asked] == [40] * 3
    assert not np.array_equal(asked[0], asked[1])
    with pytest.raises(ConfigError, match="queries=80"):
        module._taught(prepared, chosen, config, len(test), wrong)


def test_draws_differ_and_repeat(context: Context) -> None:
    config = validate(StudentsConfig, settings("global_sensitivity", eps=1.0), "students")
    evidence = context.run("ours", ()).evidence()
    _, answers = _per_query(evidence, "global_sensitivity", config, PUBLISHED).sold(10)
    rows = np.arange(80)
    assert np.array_equal(answers(rows, 0), answers(rows, 0))
    assert not np.array_equal(answers(rows, 0), answers(rows, 1))


def test_votes_and_the_private_trainings(context: Context) -> None:
    linear = ("model.hidden=[]", "training=imdb_linear", "training.lr=5.0", "certificate=stability")
    teachers = [
        {"label": "votes", "members": 3, "mechanisms": {"paper": "noisy_argmax"}},
        {"label": "DP-SGD", "mechanisms": {"paper": "dpsgd"}},
        {"label": "weights", "mechanisms": {"ours": "release_weights"}, "run": linear},
    ]
    dpsgd = {"batch": 160, "lr": 2.0, "clip": 1.0, "epochs": 4}
    made = students(context, {**settings("many"), "teachers": teachers, "dpsgd": dpsgd, "trained": 1})
    table = made.table.set_index("teacher")
    assert table["mechanism"].to_dict() == {"votes": "noisy_argmax", "DP-SGD": "dpsgd", "weights": "release_weights"}
    assert table["profile"].to_dict() == {"votes": "paper", "DP-SGD": "paper", "weights": "ours"}
    assert table.loc["DP-SGD", "labels right, expected"] > 0.9
    assert table.loc["weights", "labels right, expected"] > 0.9
    assert made.values["weights"] == {"ours": table.loc["weights", "student"]}


@pytest.mark.parametrize(
    ("mechanism", "message"),
    [
        ("noisy_argmax", "members"),
        ("dpsgd", "dpsgd"),
        ("release_weights", "certificate=stability"),
        ("smooth_cuchy", "smooth_cauchy"),
    ],
)
def test_teachers_that_cannot_be_are_refused(context: Context, mechanism: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        students(context, settings(mechanism))
