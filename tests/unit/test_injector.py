"""scripts/injector.py stops a command at each of its changes, and finds what was planted."""

import subprocess
import sys
from pathlib import Path
from shutil import which

import pytest

HERE = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or not which("gcc"), reason="Linux and gcc"
)


@pytest.mark.parametrize(
    ("case", "modes", "fault"),
    [
        ("paid_first", ("killed", "torn", "data", "names", "full"), ""),
        ("answered_first", ("killed",), "answered, and not paid"),
        ("renamed_unsynced", ("data",), "answered, and not paid"),
        ("names_unsynced", ("names",), "answered, and not paid"),
    ],
)
def test_a_command_is_stopped_at_each_change(case: str, modes: tuple[str, ...], fault: str) -> None:
    command = [sys.executable, str(HERE / "stopping.py"), "--only", case, "--modes", *modes]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    lines = [line for line in done.stdout.splitlines() if line.startswith("|")]
    assert len(lines) == len(modes), done.stdout + done.stderr
    for line in lines:
        stopped, _, trials = line.split("stopped ")[1].split(" |")[0].partition(" of ")
        assert int(stopped) == int(trials) >= 2, line
    found = fault in done.stdout if fault else "FAULT" in done.stdout
    assert (done.returncode, found) == ((1, True) if fault else (0, False)), done.stdout
