"""What each of several jobs at once gets of one machine: a part of its threads, and a GPU that nobody else of them uses.

A job takes its GPU when it begins and keeps it as long as its process lives, by a lock that the operating system lets go of
however that ends (agt/disk.py): a killed job's GPU is free again. The locks lie in the machine's own folder of temporary
files, so that two sweeps of one user share its GPUs, too. Where a scheduler gives out GPUs, nothing of this is used.
"""

import os
import stat
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agt.disk import Lock
from agt.errors import ConfigError

VISIBLE = "CUDA_VISIBLE_DEVICES"
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
_ASK = 0.5  # seconds between two looks for a free one
_kept: dict[str, Lock] = {}  # at most one, until this process ends: CUDA looks once what it may see


@dataclass(frozen=True)
class Share:
    """One job's part of its machine.

    Attributes:
        threads: it computes with, where nobody says how many; None: as many as it finds.
        devices: GPUs, as CUDA_VISIBLE_DEVICES names them, of which it takes one; empty: it keeps those that it sees.
    """

    threads: int | None = None
    devices: tuple[str, ...] = ()

    def take(self, config: Any, note: Callable[[str], None]) -> None:
        """Give it to this process, before anything that computes is loaded or asks for GPUs.

        Args:
            config: the job's, whose ``compute.threads`` is filled in where it is null.
            note: takes a line where it has to wait.
        """
        compute = config.get("compute") or {}
        if self.threads and "threads" in compute and compute["threads"] is None:
            compute["threads"] = self.threads
            for name in THREADS:
                os.environ.setdefault(name, str(self.threads))
        if self.devices and compute.get("device") == "cuda":
            os.environ[VISIBLE] = taken(self.devices, note)


def divided(jobs: int, devices: Sequence[str] = ()) -> Share:
    """The share of each of so many jobs at once; threads are left alone where OMP_NUM_THREADS says how many."""
    from joblib import cpu_count  # what this process may use: its affinity and its container's quota

    threads = None if os.environ.get(THREADS[0]) else max(1, cpu_count() // jobs)
    return Share(threads, tuple(devices))


def visible() -> tuple[str, ...]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    given = os.environ.get(VISIBLE)
    if given is None:
        import torch

        return tuple(map(str, range(torch.cuda.device_count())))
    names = [name.strip() for name in given.split(",")]
    last = next((place for place, name in enumerate(names) if name in ("", "-1")), len(names))  # CUDA reads no further
    return tuple(names[:last])


def taken(devices: Sequence[str], note: Callable[[str], None]) -> str:
    """The GPU that is this process' from now on: the one that it has, or the first that is free; waits for one.

    Args:
        devices: at least one; one that stands twice is for two jobs at once.
        note: takes a line if it waits.
    """
    places = {f"{name}{_apart()}-{devices[:at].count(name)}".replace("/", "_"): name for at, name in enumerate(devices)}
    folder, waiting = _locks(), False
    while not _kept:
        free = ((place, lock) for place in places if (lock := Lock(folder / place)).take())
        _kept.update([first] if (first := next(free, None)) else [])
        if not _kept and not waiting:
            note(f"waits for a GPU: other jobs are at work on {', '.join(dict.fromkeys(devices))}")
            waiting = True
        time.sleep(0 if _kept else _ASK)
    return places[next(iter(_kept))]


def _apart() -> str:
    """Inside a scheduler's job GPUs are numbered anew: its 0 is not the 0 of another one on the same machine."""
    job = os.environ.get("SLURM_JOB_ID", "")
    return f".{job}" if job else ""


def _locks() -> Path:
    """A folder of this machine and of this user alone.

    Raises:
        ConfigError: somebody else made it.
    """
    user = os.getuid() if hasattr(os, "getuid") else 0
    folder = Path(tempfile.gettempdir()) / f"agt-devices-{user}"
    folder.mkdir(mode=0o700, exist_ok=True)
    about = folder.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != user:
        raise ConfigError(f"{folder}: is not yours, and jobs keep there who uses which GPU: give TMPDIR another folder")
    return folder
