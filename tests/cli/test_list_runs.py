"""agt runs: what was run, chosen, side by side."""

import json
import time
from pathlib import Path

import pandas as pd
import pytest

from agt_cli.cli import main
from agt_cli.commands import train

from .conftest import TINY, Agt, Said


def names(said: Said) -> list[str]:
    """Folders below outputs; of the sweep's jobs, their rate."""
    found = []
    for run in said.json["runs"]:
        if run["overrides"]:
            rate = run["overrides"][-1].removeprefix("training.lr=")
            found.append(f"the sweep's {rate}")
        else:
            found.append(run["run"].removeprefix("outputs/"))
    return found


def job(rate: str) -> str:
    """The folder of the sweep's job with this rate."""
    table = pd.read_csv("outputs/train/rates_sweep/sweep.csv", dtype=str)
    return f"outputs/train/rates_sweep/{table.set_index('training.lr')['run'][rate]}"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep of two, a run that failed, one that was killed, a certificate of the first, and
    folders that are no runs.
    """
    home = tmp_path_factory.mktemp("history")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        assert (
            main(["train", "-m", *TINY, "training.lr=0.5,0.25", "sweep=rates", "-q", "--json"]) == 0
        )
        run = f"run={job('0.5')}"
        assert (
            main(
                [
                    "certify",
                    run,
                    "map_resolution=0",
                    "hydra.run.dir=outputs/certify/map",
                    "-q",
                    "--json",
                ]
            )
            == 0
        )
        patch.setattr(train, "fit", None)
        assert main(["train", *TINY, "hydra.run.dir=outputs/train/failed", "-q", "--json"]) == 1
    statuses = {
        "train/killed": {"command": "train", "state": "running", "started": "2020-01-01T00:00"},
        "other/torn": [],
    }
    for place, status in statuses.items():
        folder = home / "outputs" / place
        folder.mkdir(parents=True)
        (folder / "status.json").write_text(json.dumps(status))
    (home / "outputs/other/foreign").mkdir()
    return home


@pytest.fixture
def history(agt: Agt, home: Path, monkeypatch: pytest.MonkeyPatch) -> Agt:
    """Runs agt runs there, with --json."""
    monkeypatch.chdir(home)
    return lambda *arguments: agt("runs", *arguments, "--json")


ALL = [
    "train/failed",
    "certify/map",
    "the sweep's 0.25",
    "the sweep's 0.5",
    "train/killed",
    "other/torn",
]


def test_a_killed_training_is_listed_with_the_command_that_continues_it(
    agt: Agt, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    assert "agt train resume=outputs/train/killed" in agt("runs").ended(0).err
    assert "resume" not in agt("runs", "state=done").ended(0).err


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", ALL),
        ("reverse=true limit=2", ["other/torn", "train/killed"]),
        ("command=certify", ["certify/map"]),
        ("state=killed", ["train/killed"]),
        ("state=unreadable", ["other/torn"]),
        ("sweep=rates", ALL[2:4]),
        ("since=2025-01-01 command=train state=failed", ["train/failed"]),
        ("data=BLOBS state=done", ["certify/map", *ALL[2:4]]),
        ("kind=linear state=done command=certify", ["certify/map"]),
    ],
)
def test_what_was_run_is_listed_and_chosen(history: Agt, line: str, expected: list[str]) -> None:
    before = sorted(Path().rglob("*"))
    said = history(*line.split()).ended(0)
    assert names(said) == expected
    assert sorted(Path().rglob("*")) == before, "nothing is written"


def test_the_table_says_what_became_of_each(history: Agt, agt: Agt) -> None:
    said = agt("runs", "limit=4").ended(0)
    assert "1 failed, 3 done" in said.out
    assert "limit=6" in said.err
    assert "nowhere" in agt("runs", "output_dir=nowhere").ended(0).out


def test_one_run_or_a_sweep_is_not_compared_and_says_what_to_type(history: Agt, agt: Agt) -> None:
    for one in ("latest", "[latest]"):
        assert "compare=[FOLDER,FOLDER]" in history(f"compare={one}").ended(2).json["error"]
    said = history("compare=[rates_sweep,killed]").ended(2)
    assert "agt runs sweep=rates lists" in said.json["error"]


@pytest.mark.parametrize(
    ("command", "typed", "remedy"),
    [
        ("measure", "run=latest", "dataset=NAME"),
        ("train", "run=latest", "env.json"),
        ("certify", "k=3", "kgrid.max"),
    ],
)
def test_a_setting_of_another_command_is_refused_with_what_to_type(
    agt: Agt, command: str, typed: str, remedy: str
) -> None:
    assert remedy in agt(command, typed).ended(2).err


def test_runs_are_compared(history: Agt, agt: Agt) -> None:
    first = job("0.5")
    second = job("0.25")
    end = first.removeprefix("outputs/train/")
    said = history(f"compare=[{end},{second}]").ended(0)
    assert said.json["compared"] == [first, second]
    assert said.json["settings"]["training.lr"] == [0.5, 0.25]
    assert set(said.json["settings"]) == {"training.lr"}
    assert said.json["made_with"] == {}
    assert "settings\n" in agt("runs", f"compare=[{end},{second}]").out
    history(f"compare=[{end},killed]").ended(0)


def test_two_thousand_runs_are_listed_in_seconds(agt: Agt) -> None:
    for number in range(2000):
        folder = Path(f"outputs/train/{number}")
        folder.mkdir(parents=True)
        status = {
            "command": "train",
            "state": "done",
            "started": f"2026-01-01T00:{number // 60 % 60:02}:{number % 60:02}+00:00",
        }
        (folder / "status.json").write_text(json.dumps(status))
        (folder / "metrics.json").write_text(json.dumps({"test_accuracy": number / 2000}))
    began = time.perf_counter()
    said = agt("runs", "limit=1", "--json")
    assert (said.json["total"], names(said)) == (2000, ["train/1999"])
    assert time.perf_counter() - began < 10
