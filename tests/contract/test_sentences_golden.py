"""No sentence of ours is read back in golden chains, nor by agt verify over the records that they
leave.

These are the chains with most kinds of records; ``make golden-guard`` runs all of them.
"""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
CHAINS = ("ledger", "weights", "removal", "sisa", "audit")


@pytest.mark.sweep
def test_golden_chains_read_no_sentence_back() -> None:
    """In one process, which imports and guards everything once, and forks each command."""
    command = [sys.executable, str(SCRIPTS / "golden.py"), "--guard", "--jobs", "1", "--only"]
    done = subprocess.run([*command, *CHAINS], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
