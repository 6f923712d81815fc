"""A run that is killed or interrupted in the middle of training."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

LONG = (
    "model.hidden=[512,512]",
    "training.epochs=200",
    "kgrid.max=100",
    "compute.kernel=reference",
)


def listen_to_interrupts() -> None:
    """Whoever starts the tests in the background may have told them, and so their children, to
    ignore them.
    """
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@contextmanager
def running(folder: Path, *more: str) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A long run, and its record once it has one; whatever the test finds, it does not outlive
    it. A setting in ``more`` replaces that of ``LONG``.
    """
    replaced = {word.partition("=")[0] for word in more}
    words = [word for word in LONG if word.partition("=")[0] not in replaced]
    command = [sys.executable, "-m", "agt_cli", "train", *words, *more]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(
        command, cwd=folder, text=True, preexec_fn=listen_to_interrupts, **pipes
    ) as run:  # type: ignore[call-overload]
        try:
            yield run, record_of(run, folder)
        finally:
            run.kill()


def record_of(run: subprocess.Popen[str], folder: Path) -> Path:
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and run.poll() is None:
        found = list(folder.glob("outputs/train/*/env.json"))
        if found and "data_digest" in found[0].read_text():
            return found[0].parent
        time.sleep(0.05)
    run.kill()
    raise AssertionError(f"no record appeared: {run.communicate()[1]}")


@pytest.mark.sweep
@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.parametrize(
    ("number", "code", "error"),
    [
        (signal.SIGTERM, 143, "terminated by signal 15"),
        (signal.SIGHUP, 129, "terminated by signal 1"),
        (signal.SIGINT, 130, "interrupted"),  # in this process: test_mistakes
    ],
)
def test_a_signal_that_ends_a_run_leaves_a_record(
    tmp_path: Path, number: signal.Signals, code: int, error: str
) -> None:
    with running(tmp_path) as (run, record):
        # whoever asks twice does not cut the record short
        for _ in range(1 if number == signal.SIGINT else 2):
            run.send_signal(number)
        _, err = run.communicate(timeout=300)
    assert run.returncode == code
    assert err.splitlines()[-1] == f"agt: error: {error}"
    assert "Traceback" not in err
    status = json.loads((record / "status.json").read_text())
    assert (status["state"], status["exit_code"], status["error"]) == ("failed", code, error)
    assert not (record / "lock").exists()


def children(process: int) -> list[int]:
    """The workers of an ensemble, from the kernel itself: ``ps`` cuts a long command line where
    COLUMNS says so.
    """
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it may end while it is looked at
            parent = (folder / "stat").read_text().rsplit(")", 1)[1].split()[1]
            if int(parent) == process and b"popen_loky" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


def until(happens: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 300
    while not happens() and time.monotonic() < deadline:
        time.sleep(0.05)
    return happens()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.sweep
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_an_ensemble_s_workers_end_with_it(tmp_path: Path, number: signal.Signals) -> None:
    """By a word from their parent, or because they find that it is gone."""
    more = (
        "ensemble.members=2",
        "compute.threads=2",
        "compute.checkpoint_seconds=0.01",
        "model.hidden=[8]",
    )
    with running(tmp_path, *more, "training.epochs=10000", "kgrid.max=2") as (run, record):
        assert until(lambda: len(list(record.glob("checkpoint/members/*/step=*"))) >= 2)
        workers = children(run.pid)
        assert len(workers) == 2
        run.send_signal(number)
        run.communicate(timeout=300)
    assert until(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers))
    state = json.loads((record / "status.json").read_text())["state"]
    assert state == ("failed" if number == signal.SIGTERM else "running")
