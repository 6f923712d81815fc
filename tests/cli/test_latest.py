"""run=latest: the newest finished training run by recorded time."""

import json
import os
import shutil
from pathlib import Path

import pytest

from agt_cli.report.found import newest_run, runs_of_command

from .conftest import Agt


def kept(
    folder: str,
    state: str = "done",
    started: str = "2026-01-02T00:00:00+00:00",
    command: str = "train",
) -> Path:
    """A run folder of which there is nothing but its status."""
    path = Path(folder)
    path.mkdir(parents=True)
    (path / "status.json").write_text(
        json.dumps({"command": command, "state": state, "started": started, "error": "why"})
    )
    return path


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path("outputs/train")


def test_time_as_recorded_decides_and_neither_names_nor_files_times(home: Path) -> None:
    old = kept("outputs/train/z_last_by_name", started="2026-01-01T12:00:00.000001+00:00")
    new = kept("outputs/train/a_first_by_name", started="2026-01-01T12:00:00.000002+00:00")
    os.utime(old / "status.json", (2e9, 2e9))
    assert newest_run(home, "train").folder == new  # type: ignore[union-attr]
    # an hour later in UTC
    elsewhere = kept("outputs/train/zone", started="2026-01-01T14:00:00.5+01:00")
    assert newest_run(home, "train").folder == elsewhere  # type: ignore[union-attr]


def test_names_settle_what_the_record_leaves_open_jobs_of_sweeps_by_number(home: Path) -> None:
    kept("outputs/train/2026-01-01_09-00-00-000009")
    sweep = [kept(f"outputs/train/2026-01-01_10-00-00-000000_sweep/{job}") for job in (2, 10, 9)]
    assert newest_run(home, "train").folder == sweep[1]  # type: ignore[union-attr]
    assert [run.folder.name for run in runs_of_command(home, "train")][:3] == ["10", "9", "2"]


def test_other_commands_and_broken_records_do_not_count(home: Path) -> None:
    assert newest_run(home, "train") is None
    kept("outputs/train/other", command="certify")
    for name, content in {
        "empty": b"",
        "list": b"[]",
        "binary": b"\xff\x00",
        "dateless": b'{"command": "train"}',
    }.items():
        (home / name).mkdir()
        (home / name / "status.json").write_bytes(content)
    assert runs_of_command(home, "train") == []


def test_where_none_is_finished_the_newest_is_named_with_its_reason(agt: Agt, home: Path) -> None:
    kept("outputs/train/broken", state="failed")
    agt("certify", "run=latest").ended(2, "outputs/train/broken")
    agt("certify", "run=latest", "output_dir=other").ended(2, "other/train")


def test_latest_is_recorded_as_the_folder_it_was(agt: Agt, trained: Path) -> None:
    copy = trained.with_name("2025-01-01_00-00-00-000000")
    shutil.copytree(trained, copy)  # the same record: the time in its name is older
    kept("outputs/train/broken", state="failed", started="2999-01-01T12:00:00+00:00")
    said = agt("certify", "run=latest", "map_resolution=0", "--json").ended(0)
    first = said.err.splitlines()[0]
    assert first.startswith(f"run=latest is {trained} ("), "a second training may be meant"
    assert "linear" in first
    assert "outputs/train/broken" in said.err.splitlines()[1], "newer runs that are not finished"
    assert said.json["trained_run"] == str(trained)
    config = (Path(said.json["run"]) / "config.yaml").read_text()
    assert f"run: {trained}\n" in config
    environment = json.loads((Path(said.json["run"]) / "env.json").read_text())
    assert environment["trained_run"] == str(trained.resolve())
