"""What each of several jobs at once gets of a machine: threads, a GPU of its own, and locks that
other machines can see.
"""

import os
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agt.store.lock import _has_local_locks
from agt_cli import launchers
from agt_cli.launchers import MachineShare, run_at_once, set_resources, threads_per_job
from agt_cli.process import visible_gpus


@pytest.mark.parametrize(
    ("given", "names"),
    [("2,5", ("2", "5")), ("GPU-ab, 3", ("GPU-ab", "3")), ("", ()), ("1,-1,2", ("1",))],
)
def test_gpus_are_those_that_the_call_sees(
    monkeypatch: pytest.MonkeyPatch, given: str, names: tuple[str, ...]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    assert visible_gpus() == names


def test_threads_are_divided_unless_somebody_said_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launchers, "cpu_count", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert [threads_per_job(jobs) for jobs in (1, 3, 100)] == [8, 2, 1]
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert threads_per_job(2) is None
    config = {"compute": {"threads": 5, "device": "cpu"}}
    set_resources(config, 2, "0")
    assert (config["compute"]["threads"], os.environ["OMP_NUM_THREADS"]) == (5, "3")


def at_work(card: str, folder: Path) -> dict[str, Any]:
    """A job: which card it was given, and whether another was at work on it."""
    set_resources({"compute": {"device": "cuda"}}, None, card)
    seen = os.environ["CUDA_VISIBLE_DEVICES"]
    mark = folder / seen
    mark.touch(exist_ok=False)
    time.sleep(0.2)
    mark.unlink()
    return {"card": seen}


def test_job_n_runs_on_gpu_n_modulo_their_number_and_no_two_jobs_on_one(tmp_path: Path) -> None:
    tasks = [partial(at_work, "7" if number % 2 == 0 else "8", tmp_path) for number in range(5)]
    ended = run_at_once(tasks, MachineShare(2, gpus=("7", "8")))
    assert [job["card"] for job in ended] == ["7", "8", "7", "8", "7"]


def test_locks_that_stay_on_one_machine_tell_nothing(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    options = (
        "nfs4 a:/ rw,local_lock=none",
        "nfs a:/ rw,nolock,local_lock=all",
        "lustre a rw,localflock",
        "ext4 /a rw,nolock",
    )
    mounts.write_text(
        "".join(f"3{at} 2 0:{at} / /m{at} rw - {words}\n" for at, words in enumerate(options))
    )
    assert [_has_local_locks(os.makedev(0, at), str(mounts)) for at in range(5)] == [
        False,
        True,
        True,
        False,
        False,
    ]
