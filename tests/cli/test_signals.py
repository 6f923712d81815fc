"""A run that is killed or interrupted in the middle of training."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .conftest import Agt

LONG = ("model.hidden=[512,512]", "training.epochs=200", "kgrid.max=100", "compute.kernel=reference")


def listen_to_interrupts() -> None:
    """Whoever starts the tests in the background may have told them, and so their children, to ignore interrupts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def start(folder: Path) -> tuple[subprocess.Popen[str], Path]:
    """A long run, and its record once it has one."""
    command = [sys.executable, "-m", "agt_cli", "train", *LONG]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    run = subprocess.Popen(command, cwd=folder, text=True, preexec_fn=listen_to_interrupts, **pipes)  # type: ignore[call-overload]
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and run.poll() is None:
        found = list(folder.glob("outputs/train/*/env.json"))
        if found and "data_digest" in found[0].read_text():
            return run, found[0].parent
        time.sleep(0.05)
    run.kill()
    raise AssertionError(f"no record appeared: {run.communicate()[1]}")


def test_a_killed_run_is_not_a_finished_run(agt: Agt, tmp_path: Path) -> None:
    run, record = start(tmp_path)
    run.kill()
    run.communicate()
    assert json.loads((record / "status.json").read_text())["state"] == "running"
    said = agt("certify", f"run={record}")
    assert said.code == 2
    assert "'running'" in said.err


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_ctrl_c_ends_with_130_and_a_failed_record(tmp_path: Path) -> None:
    run, record = start(tmp_path)
    run.send_signal(signal.SIGINT)
    _, err = run.communicate(timeout=60)
    assert run.returncode == 130
    assert err.splitlines()[-1] == "agt: error: interrupted"
    assert "Traceback" not in err
    status = json.loads((record / "status.json").read_text())
    assert (status["state"], status["error"]) == ("failed", "interrupted")
