"""Jobs on several threads: each is done once, none is left running, and a fork starts anew."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
import torch

from agt.kernels.threads import run_jobs


@pytest.fixture(autouse=True)
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def jobs_done(first: int, stop: int) -> tuple[int, ...]:
    return tuple(range(first, stop))


@pytest.mark.parametrize("jobs", [0, 1, 2, 3, 10])
def test_each_job_is_done_once_and_in_order(jobs: int) -> None:
    parts = run_jobs(jobs_done, jobs)
    assert [job for part in parts for job in part] == list(range(jobs))
    assert len(parts) == min(jobs, 3)


def test_threads_work_at_the_same_time() -> None:
    barrier = threading.Barrier(3, timeout=30)
    assert run_jobs(lambda first, stop: barrier.wait() >= 0, 3) == [True] * 3


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_an_error_is_raised_after_all_calls_have_ended(failing: int) -> None:
    ended = []

    def work(first: int, stop: int) -> None:
        if first == failing:
            raise MemoryError
        time.sleep(0.05 * (1 + first))
        ended.append(first)

    with pytest.raises(MemoryError):
        run_jobs(work, 3)
    assert sorted(ended) == sorted({0, 1, 2} - {failing})
    assert len(run_jobs(jobs_done, 3)) == 3  # the threads still work


def test_jobs_within_jobs_are_done_and_wait_for_nobody() -> None:
    """In a process of its own, which a wait for ever cannot hold up."""
    code = """
import torch
from agt.kernels.threads import run_jobs

torch.set_num_threads(3)

def outer(first, stop):
    return [run_jobs(lambda first, stop: list(range(first, stop)), 5) for _ in range(first, stop)]

inner = [job for part in run_jobs(outer, 9) for parts in part for jobs in parts for job in jobs]
assert sorted(inner) == sorted([*range(5)] * 9)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_one_thread_is_the_caller() -> None:
    torch.set_num_threads(1)
    assert run_jobs(lambda first, stop: threading.get_ident(), 5) == [threading.get_ident()]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_process_has_threads_of_its_own() -> None:
    run_jobs(jobs_done, 3)
    process = os.fork()
    if not process:
        done = run_jobs(jobs_done, 3)
        os._exit(0 if done == [(0,), (1,), (2,)] else 1)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            assert os.waitstatus_to_exitcode(status) == 0
            return
        time.sleep(0.01)
    os.kill(process, 9)
    os.waitpid(process, 0)
    pytest.fail("the forked process waits for threads that it does not have")


INTERRUPTED_START = """
import threading
import torch
from agt.kernels.threads import run_jobs

torch.set_num_threads(2)
start = threading.Thread.start


def start_and_interrupt(thread):
    start(thread)
    threading.Thread.start = start
    raise KeyboardInterrupt


threading.Thread.start = start_and_interrupt
try:
    run_jobs(lambda first, stop: first, 2)
except KeyboardInterrupt:
    print(run_jobs(lambda first, stop: first, 2))
"""


def test_a_process_that_is_interrupted_while_a_thread_starts_can_end() -> None:
    """As by SIGTERM: Python waits at its end for each thread, also for one that no pool knows."""
    command = [sys.executable, "-c", INTERRUPTED_START]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "[0, 1]\n"
