"""Listing and comparing runs by what their records hold."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agt import sentences
from agt.errors import ConfigError
from agt_cli.commands.runs import RunsConfig, find_run, parse_time, run as list_runs
from agt_cli.report.console import Console
from agt_cli.report.finished import Run
from agt_cli.report.found import runs_below


@pytest.fixture
def outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path("outputs")


def record(
    place: str, started: str = "2026-01-01T00:00:00+00:00", lr: object = 0.5, **metrics: Any
) -> Run:
    folder = Path("outputs") / place
    folder.mkdir(parents=True)
    (folder / "status.json").write_text(
        json.dumps({"command": "train", "state": "done", "started": started})
    )
    (folder / "metrics.json").write_text(json.dumps(metrics))
    (folder / "manifest.json").write_text(place)
    (folder / "config.yaml").write_text(
        f"training:\n  lr: {lr}\n  nesterov: true\n  loss: cross_entropy\n"
    )
    return Run.at(folder)


def test_runs_are_named_by_folder_end_and_digest(outputs: Path) -> None:
    runs = [record("train/a"), record("train/s_sweep/0"), record("train/t_sweep/0")]
    assert (
        find_run("a", runs)
        == find_run("outputs/train/a", [])
        == find_run(runs[0].digest, runs)
        == runs[0]
    )
    assert find_run(runs[1].digest[7:15], runs) == find_run("s_sweep/0", runs) == runs[1]
    for text, words in {"0": "2 runs", "b": "no run here", "sha256:": "no run here"}.items():
        with pytest.raises(ConfigError, match=words):
            find_run(text, runs)


def test_a_day_and_a_time() -> None:
    assert parse_time("2026-01-31T12:00+01:00") == datetime(2026, 1, 31, 11, tzinfo=UTC)
    assert parse_time("2026-01-31") < parse_time("2026-01-31T12:00")
    with pytest.raises(ConfigError, match="since=yesterday"):
        parse_time("yesterday")


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
    assert {run.state for name, run in runs.items() if name not in ("whole", "odd")} == {
        "unreadable"
    }
    listed = list_runs(RunsConfig(outputs), Console(json=True))["runs"]
    assert len(json.loads(json.dumps(listed))) == len(runs)
    assert listed[0]["run"] == str(whole.folder)


def test_records_that_rest_on_each_other_are_listed_without_a_model(outputs: Path) -> None:
    """One whose env.json names itself, and a circle of two: in the list and in a comparison."""
    places = {
        "predict/itself": "predict/itself",
        "predict/one": "certify/other",
        "certify/other": "predict/one",
    }
    for place, trained in places.items():
        run = record(place)
        (run.folder / "status.json").write_text(
            json.dumps({"command": place.split("/")[0], "state": "done"})
        )
        (run.folder / "env.json").write_text(
            json.dumps({"trained_run": str((outputs / trained).resolve())})
        )
    assert [run.model for run in runs_below(outputs)] == [""] * 3
    assert list_runs(RunsConfig(outputs, kind="box"), Console(json=True))["total"] == 0
    list_runs(
        RunsConfig(outputs, compare=tuple(str(outputs / place) for place in places)),
        Console(json=True),
    )
    listed = list_runs(RunsConfig(outputs), Console(json=True))["runs"]
    assert {run["run"] for run in listed} == {str(outputs / place) for place in places}


@pytest.mark.parametrize("totals", [True, -1, {"a": 1}, [], ["eps"], [{}]])
def test_totals_of_any_form_are_listed(outputs: Path, totals: object) -> None:
    run = record("predict/odd", proved=True)
    (run.folder / "status.json").write_text(json.dumps({"command": "predict", "state": "done"}))
    (run.folder / "spent.json").write_text(json.dumps({"totals": totals}))
    assert Run.at(run.folder).result.startswith("labels")


@pytest.mark.parametrize(
    "guarantee", [None, 1, [], {}, {"kind": "pure"}, {"kind": "pure", "eps": "1"}]
)
def test_a_guarantee_of_any_form_is_listed(outputs: Path, guarantee: object) -> None:
    run = record("predict/odd", proved=True)
    (run.folder / "status.json").write_text(json.dumps({"command": "predict", "state": "done"}))
    (run.folder / "spent.json").write_text(
        json.dumps({"totals": [], "guarantee": guarantee, "what": "labels"})
    )
    assert Run.at(run.folder).result.startswith("labels")


def test_what_was_spent_is_told_from_its_fields(outputs: Path) -> None:
    run = record("predict/now", proved=True)
    (run.folder / "status.json").write_text(json.dumps({"command": "predict", "state": "done"}))
    total = {"eps": 0.5, "delta": 0.0, "bound": "basic"}
    spent = {
        "what": "labels",
        "queries": 5,
        "guarantee": {"kind": "pure", "eps": 0.1},
        "totals": [total],
    }
    (run.folder / "spent.json").write_text(json.dumps(spent))
    assert Run.at(run.folder).result == sentences.spent_line(5, sentences.total(**total))


def test_a_folder_whose_name_is_no_text_is_listed(
    outputs: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    record("train/text").folder.rename(outputs / "train/\udcff")
    assert list_runs(RunsConfig(outputs), Console())["total"] == 1
    assert "\\udcff" in capfd.readouterr().out
