"""Students learn from the labels that a private teacher sold."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agt_cli._experiments.entry import Entry
from agt_cli._experiments.experiment import Profile
from agt_cli._experiments.students import Student, taught
from reproducing import an_entry, made, rows_of, values

from agt.errors import ConfigError
from agt.mechanisms.composition import PUBLISHED_BOUNDS
from agt.mechanisms.mechanism import MECHANISMS
from agt.mechanisms.planning import Budget, afford

FAR_BLOBS = (
    "dataset=blobs",
    "dataset.n_train=160",
    "dataset.test_fraction=0.5",
    "model.hidden=[6]",
    "kgrid=dense",
    "kgrid.max=6",
)
STUDENT = {"epochs": 20, "lr": 0.3}


@pytest.fixture
def students(tmp_path: Path) -> Entry:
    """On well separated blobs, with two profiles."""
    return an_entry(
        "students",
        tmp_path,
        FAR_BLOBS,
        {"paper": Profile(accounting="paper", many="smooth_cauchy"), "ours": Profile()},
    )


def settings(mechanism: str, profile: str = "ours", **more: Any) -> dict[str, Any]:
    """One teacher, few draws."""
    row = {"label": "the teacher", "mechanisms": {profile: mechanism}}
    return {"teachers": [row], "queries": [10], "draws": 3, "student": STUDENT, **more}


def test_a_rich_budget_buys_the_teachers_labels_and_a_poor_one_noise(
    students: Entry, tmp_path: Path
) -> None:
    rich = made(
        students, tmp_path / "r", **settings("global_sensitivity", eps=100.0, queries=[10, 2])
    ).table
    assert rich["labels right, expected"].tolist() == pytest.approx(
        [rich["teacher, noise-free"][0]] * 2, abs=0.01
    )
    assert rich["student"][0] > 0.95
    poor = rows_of(students, **settings("global_sensitivity", eps=0.01, delta=1e-9))
    assert poor["labels right, expected"][0] == pytest.approx(0.5, abs=0.01)
    assert poor["low"][0] < 0.7
    assert (tmp_path / "r" / "figures" / "figure.png").is_file()


def test_the_papers_accounting_composes_as_the_papers_do(students: Entry) -> None:
    table = rows_of(students, **settings("many", profile="paper", eps=5.0))
    evidence = students.run("paper", ()).evidence("certified")
    published = afford(MECHANISMS["smooth_cauchy"], Budget(5.0, 1e-5, 10), 2, PUBLISHED_BOUNDS)
    assert table["mechanism"].tolist() == ["smooth_cauchy"]
    assert table["labels right, expected"][0] == evidence.expected(published)
    assert evidence.expected(published) < evidence.expected(
        afford(MECHANISMS["smooth_cauchy"], Budget(5.0, 1e-5, 10), 2)
    )


def test_students_learn_from_queries_and_are_judged_on_the_others(students: Entry) -> None:
    test = students.data("ours", ())[0].dataset.test
    asked = []

    def wrong(rows: np.ndarray, draw: int) -> np.ndarray:
        asked.append(rows)
        return 1 - test.labels[rows]

    found = taught(students, "ours", (), Student(**STUDENT), 40, 3, wrong)  # type: ignore[arg-type]
    assert found.max() < 0.1  # a student of a liar, judged by the truth
    assert [len(rows) for rows in asked] == [40] * 3
    assert not np.array_equal(asked[0], asked[1])
    with pytest.raises(ConfigError, match="queries=80"):
        taught(students, "ours", (), Student(), len(test), 3, wrong)


def test_draws_differ_and_repeat(students: Entry) -> None:
    one, again = (rows_of(students, **settings("global_sensitivity", eps=1.0)) for _ in range(2))
    assert one.equals(again)
    assert one["low"][0] < one["high"][0]


@pytest.mark.sweep
def test_votes_and_the_private_trainings(students: Entry, tmp_path: Path) -> None:
    linear = ("model.hidden=[]", "training=imdb_linear", "training.lr=5.0", "certificate=stability")
    teachers = [
        {"label": "votes", "members": 3, "mechanisms": {"paper": "noisy_argmax"}},
        {"label": "DP-SGD", "mechanisms": {"paper": "dpsgd"}},
        {"label": "weights", "mechanisms": {"ours": "release_weights"}, "run": linear},
    ]
    dpsgd = {"batch": 160, "lr": 2.0, "clip": 1.0, "epochs": 4}
    section = made(
        students, tmp_path / "r", **settings("many", teachers=teachers, dpsgd=dpsgd, trained=1)
    )
    table = section.table.set_index("teacher")
    assert table["mechanism"].to_dict() == {
        "votes": "noisy_argmax",
        "DP-SGD": "dpsgd",
        "weights": "release_weights",
    }
    assert table["profile"].to_dict() == {"votes": "paper", "DP-SGD": "paper", "weights": "ours"}
    assert table.loc["DP-SGD", "labels right, expected"] > 0.9
    assert table.loc["weights", "labels right, expected"] > 0.9
    assert values(section)["weights"]["ours"] == table.loc["weights", "student"]
    assert np.isnan(values(section)["weights"]["paper"])


@pytest.mark.parametrize(
    ("mechanism", "message"),
    [
        ("noisy_argmax", "members"),
        ("dpsgd", "dpsgd"),
        ("release_weights", "certificate=stability"),
        ("smooth_cuchy", "smooth_cauchy"),
    ],
)
def test_teachers_that_cannot_be_are_refused(students: Entry, mechanism: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        rows_of(students, **settings(mechanism))
