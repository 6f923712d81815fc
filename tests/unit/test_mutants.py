"""tests/mutants.yaml fits the sources and the tests; make mutants is what runs it."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_each_mutant_can_be_planted_and_has_its_killers() -> None:
    done = subprocess.run([sys.executable, "scripts/mutants.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert not done.returncode, done.stdout + done.stderr
