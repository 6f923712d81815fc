"""Compiled functions on several threads: each thread does some of a function's jobs."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import lru_cache
from typing import TypeVar

import torch

Result = TypeVar("Result")
_WORKER_PREFIX = "kernel"  # the names of worker threads begin with it


def run_jobs(function: Callable[..., Result], jobs: int, *arguments: object) -> list[Result]:
    """Do a function's jobs on as many threads as PyTorch uses, and wait for all of them.

    Each thread does a range of consecutive jobs. The function must give the same result however the
    jobs are divided, and must release the global interpreter lock, or nothing is gained. It may
    call ``run_jobs`` itself: a worker thread does all jobs of such a call alone.

    Args:
        function: called as function(first, stop, *arguments); it does the jobs ``first`` to
            ``stop`` - 1.
        jobs: the number of jobs.
        arguments: the further arguments of the function.

    Returns:
        What each call returned, in the order of the jobs; an empty list if there are no jobs.

    Raises:
        Exception: the error of the first call that failed, after all calls have ended.
    """
    threads = torch.get_num_threads()
    parts = min(threads, jobs)
    if threading.current_thread().name.startswith(_WORKER_PREFIX):
        # A worker that waited for other workers could wait for itself.
        parts = min(1, jobs)
    # (first job, job after the last one) of each part; all parts are about equally long.
    ranges = [(jobs * part // parts, jobs * (part + 1) // parts) for part in range(parts)]
    if parts <= 1:
        return [function(first, stop, *arguments) for first, stop in ranges]
    workers = _workers(os.getpid(), threads - 1)
    futures: list[Future[Result]] = []
    try:
        try:
            for first, stop in ranges[1:]:
                futures.append(workers.submit(function, first, stop, *arguments))
        except BaseException:
            # A signal may have come while a thread started, which the pool then does not know. It
            # would wait for work for ever, and Python for its end, if the pool were not closed.
            workers.shutdown(wait=False)
            _workers.cache_clear()
            raise
        first, stop = ranges[0]
        result = function(first, stop, *arguments)  # this thread works, too
    finally:
        wait(futures)  # no call may still write to an array that the caller gets back
    return [result, *(future.result() for future in futures)]


@lru_cache(maxsize=1)
def _workers(process: int, threads: int) -> ThreadPoolExecutor:
    """Return the process's worker threads, which are started when needed and then wait for work.

    Args:
        process: the id of this process. A forked process inherits no threads, so it starts its own.
        threads: the number of worker threads.
    """
    return ThreadPoolExecutor(threads, thread_name_prefix=_WORKER_PREFIX)
