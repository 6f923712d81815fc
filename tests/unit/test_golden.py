"""scripts/golden.py: a changed byte and a missing file are found; pages and messages may change,
and hashes after them.
"""

import sqlite3
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
import golden


def kinds(before: Path, after: Path) -> dict[str, str]:
    return {found.name: found.kind for found in golden.compare(before, after)}


@pytest.fixture
def trees(tmp_path: Path) -> tuple[Path, Path]:
    """Two folders with the same files."""
    for name in ("before", "after"):
        (tmp_path / name / "run").mkdir(parents=True)
        (tmp_path / name / "run" / "metrics.json").write_text(
            '{"accuracy": 0.5, "verdict": "good"}'
        )
        (tmp_path / name / "run" / "manifest.json").write_text(f'{{"metrics.json": "{"a" * 64}"}}')
        (tmp_path / name / "run" / "report.md").write_text("good")
        with sqlite3.connect(tmp_path / name / "people.ledger") as database:
            database.execute("create table entries (eps real)")
            database.execute("insert into entries values (1.0)")
    return tmp_path / "before", tmp_path / "after"


def test_what_differs_is_found(
    trees: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = trees
    assert not golden.compare(before, after)
    (after / "run" / "report.md").write_text("in other words")
    assert not golden.compare(before, after)
    (after / "run" / "metrics.json").write_text('{"accuracy": 0.5000001, "verdict": "good"}')
    (after / "new.csv").touch()
    (after / "run" / "report.md").unlink()
    with sqlite3.connect(after / "people.ledger") as database:
        database.execute("update entries set eps = 2.0")
    wrong = {
        "new.csv": "new",
        "run/report.md": "missing",
        "run/metrics.json": "differs",
        "people.ledger": "differs",
    }
    assert kinds(before, after) == wrong
    assert golden.report("chain", golden.compare(before, after))
    assert "0.5000001" in capsys.readouterr().out


def test_jobs_of_a_sweep_are_compared_by_their_numbers(trees: tuple[Path, Path]) -> None:
    """Their folders' names depend on the code."""
    for tree, name in zip(trees, ("b1" * 12, "0123456789abcdef01234567"), strict=True):
        (tree / "sweep" / name).mkdir(parents=True)
        (tree / "sweep" / "sweep.csv").write_text(f"run,job\n{name},0\n")
        (tree / "sweep" / name / "metrics.json").write_text("{}")
    assert golden.compare(*trees) == []
    (trees[1] / "sweep" / name / "metrics.json").write_text("1")
    assert kinds(*trees) == {"sweep/0/metrics.json": "differs"}


def test_hashes_may_follow_from_messages_and_from_nothing_else(trees: tuple[Path, Path]) -> None:
    before, after = trees
    (after / "run" / "manifest.json").write_text(f'{{"metrics.json": "{"b" * 64}"}}')
    assert golden.report("chain", golden.compare(before, after))
    (after / "run" / "metrics.json").write_text('{"accuracy": 0.5, "verdict": "in other words"}')
    assert kinds(before, after) == {"run/metrics.json": "may change", "run/manifest.json": "hash"}
    assert not golden.report("chain", golden.compare(before, after))
