"""What makes two jobs the same: settings and contents, not places, speed or order."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agt.errors import AgtError
from agt_cli.runs.signature import signature

CONFIG: dict[str, Any] = {
    "dataset": {"_target_": "agt.data.blobs.Blobs", "n_train": 80, "path": "table.csv", "data_dir": "data"},
    "training": {"lr": 0.5, "seed": 0},
    "compute": {"kernel": "auto", "threads": None},
    "output_dir": "outputs",
    "data_dir": "data",
    "resume": None,
}


def changed(**parts: Any) -> dict[str, Any]:
    """The configuration with some settings of its parts, or some top-level values, replaced."""
    return {**CONFIG, **{k: {**CONFIG[k], **v} if isinstance(v, dict) and k in CONFIG else v for k, v in parts.items()}}


@pytest.fixture(autouse=True)
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "data" / "table.csv"
    path.parent.mkdir()
    path.write_text("a,b\n1,2\n")
    return path


@pytest.mark.parametrize(
    "same",
    [
        {"compute": {"kernel": "reference", "threads": 2}},
        {"output_dir": "elsewhere", "resume": "outputs/train/killed"},
        {"training": {"seed": 0, "lr": 0.5}},
    ],
)
def test_places_speed_and_order_do_not_count(same: dict[str, Any]) -> None:
    assert signature("train", changed(**same)) == signature("train", dict(reversed(CONFIG.items())))


@pytest.mark.parametrize(
    "other",
    [
        {"training": {"lr": 0.25}},
        {"training": {"seed": 1}},
        {"dataset": {"n_train": 81}},
        {"dataset": {"path": "other.csv"}},
        {"dataset": {"_target_": "agt.data.digits.Digits"}},
    ],
)
def test_settings_and_code_count(other: dict[str, Any]) -> None:
    assert signature("train", changed(**other)) != signature("train", CONFIG)


def test_the_command_counts() -> None:
    assert signature("tune", CONFIG) != signature("train", CONFIG)


def test_a_file_counts_by_its_content_wherever_it_lies(table: Path) -> None:
    before = signature("train", CONFIG)
    moved = table.with_name("moved.csv")
    table.rename(moved)
    assert signature("train", changed(dataset={"path": str(moved)})) == before
    moved.write_text("a,b\n1,3\n")
    assert signature("train", changed(dataset={"path": str(moved)})) != before


def test_a_relative_path_is_looked_for_where_its_own_part_says(table: Path) -> None:
    other = table.parent.with_name("other")
    other.mkdir()
    config = changed(dataset={"data_dir": "other"})
    (other / table.name).write_text(table.read_text())
    assert signature("train", config) == signature("train", CONFIG)
    (other / table.name).write_text("a,b\n0,0\n")
    assert signature("train", config) != signature("train", CONFIG)


def test_a_folder_in_which_a_dataset_finds_its_own_files_counts_by_its_place() -> None:
    one, other = (changed(dataset={"path": None, "data_dir": name}) for name in ("data", "other"))
    assert signature("train", one) != signature("train", other)


def touch(folder: Path) -> None:
    os.utime(folder / "x.npy", ns=(1, 1))


@pytest.mark.parametrize("change", [touch, lambda folder: (folder / "y.npy").write_bytes(b"1")])
def test_a_folder_counts_by_its_files(table: Path, change: Callable[[Path], object]) -> None:
    folder = table.with_name("arrays")
    folder.mkdir()
    (folder / "x.npy").write_bytes(b"0")
    config = changed(dataset={"path": "arrays"})
    before = signature("train", config)
    assert signature("train", config) == before
    change(folder)
    assert signature("train", config) != before


def test_a_run_counts_by_its_manifest(tmp_path: Path) -> None:
    first, copy = tmp_path / "first", tmp_path / "copy"
    for folder in (first, copy):
        folder.mkdir()
        (folder / "manifest.json").write_text("{}")
    (copy / "status.json").write_text("{}")
    assert signature("certify", {"run": str(first)}) == signature("certify", {"run": str(copy)})
    (copy / "manifest.json").write_text("{ }")
    assert signature("certify", {"run": str(first)}) != signature("certify", {"run": str(copy)})


def test_a_ledger_that_jobs_write_counts_by_its_name(tmp_path: Path) -> None:
    ledger = tmp_path / "people.ledger"
    ledger.write_text("one entry")
    before = signature("predict", {"ledger": str(ledger)})
    ledger.write_text("two entries")
    assert signature("predict", {"ledger": str(ledger)}) == before


def test_code_that_is_not_to_be_found_is_an_error() -> None:
    with pytest.raises(AgtError, match="nowhere"):
        signature("train", changed(dataset={"_target_": "nowhere.at.All"}))
