"""Choosing, ordering and comparing runs by what their records hold."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agt.errors import ConfigError
from agt_cli.commands.runs import RunsConfig, check_known, conditions, moment, named, ordered, refresh, run as list_runs
from agt_cli.report.console import Console
from agt_cli.report.finished import Run, runs_below


@pytest.fixture
def outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path("outputs")


def record(place: str, started: str = "2026-01-01T00:00:00+00:00", lr: object = 0.5, **metrics: Any) -> Run:
    folder = Path("outputs") / place
    folder.mkdir(parents=True)
    (folder / "status.json").write_text(json.dumps({"command": "train", "state": "done", "started": started}))
    (folder / "metrics.json").write_text(json.dumps(metrics))
    (folder / "manifest.json").write_text(place)
    (folder / "config.yaml").write_text(f"training:\n  lr: {lr}\n  nesterov: true\n  loss: cross_entropy\n")
    return Run.at(folder)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("test_accuracy>0.8", True),
        ("test_accuracy>=0.9 and training.lr=0.5", True),
        ("test_accuracy>0.8, training.lr<0.5", False),
        ("training.loss=cross_entropy", True),
        ("training.loss != cross_entropy", False),
        ("training.nesterov=true", True),
        ("command=train", True),
        ("nothing=1", False),
        ("nothing!=1", False),
        ("training.loss>3", False),
    ],
)
def test_a_condition_holds_of_what_a_run_has(outputs: Path, text: str, holds: bool) -> None:
    run = record("train/a", test_accuracy=0.9)
    assert all(condition.holds(run) for condition in conditions(text)) == holds


@pytest.mark.parametrize(
    ("text", "names"), [("", "''"), ("accuracy", "'accuracy'"), ("a>1 and", "a>1 and: only numbers"), ("a>b", "a>b")]
)
def test_what_is_no_comparison_is_named(text: str, names: str) -> None:
    with pytest.raises(ConfigError, match="where: ") as error:
        conditions(text)
    assert names in str(error.value)


def test_the_largest_first_then_the_newest_and_those_without_last(outputs: Path) -> None:
    runs = [
        record("train/low", "2026-01-03T00:00:00+00:00", test_accuracy=0.5),
        record("train/old", "2026-01-01T00:00:00+00:00", test_accuracy=0.9),
        record("train/new", "2026-01-02T00:00:00+00:00", test_accuracy=0.9),
        record("train/none", "2026-01-04T00:00:00+00:00"),
        record("train/word", "2026-01-05T00:00:00+00:00", test_accuracy="high"),
    ]
    assert [run.folder.name for run in ordered(runs, "started")] == ["word", "none", "low", "new", "old"]
    assert [run.folder.name for run in ordered(runs, "test_accuracy")] == ["new", "old", "low", "word", "none"]


def test_a_name_that_no_run_has_is_told_with_the_nearest(outputs: Path) -> None:
    runs = [record("train/a", test_accuracy=0.9)]
    check_known(runs, ["test_accuracy", "training.lr", "state"], "sort")
    check_known([], ["anything"], "sort")
    with pytest.raises(ConfigError, match="sort: none of these 1 runs has 'tets_accuracy'; did you mean 'test_accuracy'"):
        check_known(runs, ["tets_accuracy"], "sort")


def test_runs_are_named_by_folder_end_and_digest(outputs: Path) -> None:
    runs = [record("train/a"), record("train/s_sweep/0"), record("train/t_sweep/0")]
    assert named("a", runs) == named("outputs/train/a", []) == named(runs[0].digest, runs) == runs[0]
    assert named(runs[1].digest[7:15], runs) == named("s_sweep/0", runs) == runs[1]
    for text, words in {"0": "2 runs", "b": "no run here", "sha256:": "no run here"}.items():
        with pytest.raises(ConfigError, match=words):
            named(text, runs)


def test_a_day_and_a_time() -> None:
    assert moment("2026-01-31T12:00+01:00") == datetime(2026, 1, 31, 11, tzinfo=UTC)
    assert moment("2026-01-31") < moment("2026-01-31T12:00")
    with pytest.raises(ConfigError, match="since=yesterday"):
        moment("yesterday")


def test_whatever_lies_there_is_listed_and_harms_nobody(outputs: Path) -> None:
    whole = record("train/whole")
    for place, content in {
        "torn": b"{",
        "list": b"[]",
        "bytes": bytes(range(256)),
        "odd": b'{"state": 3, "started": 5}',
    }.items():
        folder = outputs / "train" / place
        folder.mkdir()
        for name in ("status.json", "metrics.json", "env.json", "config.yaml"):
            (folder / name).write_bytes(content)
    (outputs / "train" / "folder" / "status.json").mkdir(parents=True)
    (outputs / "train" / "nothing").mkdir()
    (outputs / "file").touch()
    runs = {run.folder.name: run for run in runs_below(outputs)}
    assert set(runs) == {"whole", "torn", "list", "bytes", "odd", "folder"}
    assert {run.state for name, run in runs.items() if name not in ("whole", "odd")} == {"unreadable"}
    for run in ordered(runs.values(), "started"):
        json.dumps(run.as_json())
    assert ordered(runs.values(), "started")[0].folder == whole.folder


def test_records_that_rest_on_each_other_are_listed_without_a_model(outputs: Path) -> None:
    """One whose env.json names itself, and a circle of two: in the list, in a comparison and in the page of all runs."""
    places = {"predict/itself": "predict/itself", "predict/one": "certify/other", "certify/other": "predict/one"}
    for place, trained in places.items():
        run = record(place)
        (run.folder / "status.json").write_text(json.dumps({"command": place.split("/")[0], "state": "done"}))
        (run.folder / "env.json").write_text(json.dumps({"trained_run": str((outputs / trained).resolve())}))
    assert [run.model for run in runs_below(outputs)] == [""] * 3
    assert list_runs(RunsConfig(outputs, kind="box"), Console(json=True))["total"] == 0
    list_runs(RunsConfig(outputs, compare=tuple(str(outputs / place) for place in places)), Console(json=True))
    assert "itself" in refresh(outputs).read_text()


@pytest.mark.parametrize("totals", [True, -1, {"a": 1}, [], ["eps"]])
def test_totals_of_any_form_are_listed(outputs: Path, totals: object) -> None:
    run = record("predict/odd", proved=True)
    (run.folder / "status.json").write_text(json.dumps({"command": "predict", "state": "done"}))
    (run.folder / "spent.json").write_text(json.dumps({"totals": totals}))
    known = "eps" if totals == ["eps"] else "labels of weights released earlier"
    assert Run.at(run.folder).result == known
    assert known in refresh(outputs).read_text()


def test_a_folder_whose_name_is_no_text_is_linked_by_its_bytes(outputs: Path) -> None:
    record("train/text").folder.rename(outputs / "train/\udcff")
    page = refresh(outputs).read_text()
    assert 'href="train/%FF/"' in page or 'href="train/%FF"' in page
    assert "\\udcff" in page
