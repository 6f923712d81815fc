"""The scripts under examples/ run, and print what their pages promise."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_example(name: str, folder: Path) -> str:
    """Run a script in a folder, with a list of ledgers of its own; return what it prints."""
    environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state"), "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        [sys.executable, ROOT / "examples" / name],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_every_example_has_a_test() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    scripts = {path.name for path in (ROOT / "examples").glob("*.py")}
    assert scripts == set(re.findall(r'run_example\("(\w+\.py)"', text))


def test_a_credit_table_becomes_private_labels_that_a_ledger_counts(tmp_path: Path) -> None:
    printed = run_example("credit_table.py", tmp_path)
    accuracy, majority = map(float, re.findall(r"\d\.\d{3}", printed.partition("\n")[0]))
    assert accuracy > majority + 0.05
    assert (tmp_path / "ledgers" / "loans.ledger").is_file()


def test_images_become_certified_votes(tmp_path: Path) -> None:
    printed = run_example("images_to_votes.py", tmp_path)
    rows = re.findall(r"^ +(\d+) +(\S+) +(\S+)$", printed, re.MULTILINE)
    certified = [float(share) for _, share, _ in rows]
    assert certified == sorted(certified, reverse=True)
    assert certified[0] == 1
    assert certified[-1] > 0.5


def test_an_audit_finds_the_planted_fault_and_no_other(tmp_path: Path) -> None:
    printed = run_example("audit_finds_a_fault.py", tmp_path)
    assert re.findall(r"contradicts .*: (\w+)", printed) == ["no", "yes"]
