"""The scripts under examples/ run, and print what their pages promise."""

import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def run_example(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], str]:
    """Runs a script in an empty folder, in this process; returns what it prints."""
    monkeypatch.chdir(tmp_path)

    def run(name: str) -> str:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", [name])
        runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")
        return capsys.readouterr().out

    return run


def test_every_example_has_a_test() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    scripts = {path.name for path in (ROOT / "examples").glob("*.py")}
    assert scripts == set(re.findall(r'run_example\("(\w+\.py)"', text))


def test_a_credit_table_becomes_private_labels_that_a_ledger_counts(
    run_example: Callable[[str], str], tmp_path: Path
) -> None:
    printed = run_example("credit_table.py")
    accuracy, majority = map(float, re.findall(r"\d\.\d{3}", printed.partition("\n")[0]))
    assert accuracy > majority + 0.05
    assert (tmp_path / "ledgers" / "loans.ledger").is_file()


def test_images_become_certified_votes(run_example: Callable[[str], str]) -> None:
    printed = run_example("images_to_votes.py")
    rows = re.findall(r"^ +(\d+) +(\S+) +(\S+)$", printed, re.MULTILINE)
    certified = [float(share) for _, share, _ in rows]
    assert certified == sorted(certified, reverse=True)
    assert certified[0] == 1
    assert certified[-1] > 0.5


def test_an_audit_finds_the_planted_fault_and_no_other(run_example: Callable[[str], str]) -> None:
    printed = run_example("audit_finds_a_fault.py")
    assert re.findall(r"contradicts .*: (\w+)", printed) == ["no", "yes"]
