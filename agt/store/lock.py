"""Locks on files, which tell a living process from one that was killed.

A process holds the lock of its folder as long as it lives, and the operating system frees the lock
when the process ends, however it ends.
"""

import errno
import os
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


_NETWORK = ("nfs", "nfs4", "lustre")
_LOCAL = {"nolock", "local_lock=flock", "local_lock=all", "localflock"}  # options of theirs


class Lock:
    """A lock on a file, which the operating system lets go of when its process ends, however it
    ends.

    A process that holds it is alive: on this machine, or on another that shares the file system and
    its locks.

    Attributes:
        works: False where the system or the file system keeps no locks: then it tells nothing.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._file, self.works = path, -1, True

    def take(self) -> bool:
        """Take it if nobody has it; True: it is ours, or there are no locks here.

        Raises OSError as opening a file does.
        """
        # somebody may just be asking who holds it, or be about to remove the file
        for _ in range(5):
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
            got = _flock(handle)
            if got and _same(handle, self._path):
                self._file = handle
                return True
            os.close(handle)
            if got is None:
                self.works = False
                self._path.unlink(missing_ok=True)  # it would look like a dead process's
                return True
            time.sleep(0.02)
        return False

    def release(self) -> None:
        """Let it go, and leave no file of it. Twice is as good as once."""
        if self._file >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._file)
            self._file = -1

    def abandon(self) -> None:
        """Let it go as a killed process would: the file stays."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __del__(self) -> None:
        self.abandon()


def is_locked(path: Path) -> bool | None:
    """Whether a living process holds the lock of this file; None: there is no such file, or
    nobody can tell.
    """
    with suppress(OSError), path.open("rb") as file:
        got = _flock(file.fileno(), shared=True)
        return None if got is None else not got
    return None


def _flock(handle: int, shared: bool = False) -> bool | None:
    """Take the lock of an open file, if it is free; None: there are no locks here."""
    if fcntl is None or _apart(os.fstat(handle).st_dev):
        return None
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        return False if error.errno in (errno.EWOULDBLOCK, errno.EACCES) else None
    return True


@cache
def _apart(device: int, mounts: str = "/proc/self/mountinfo") -> bool:
    """Whether a network's file system is mounted here so that its locks stay on this machine: they
    tell nothing of others.

    Linux says so, in proc_pid_mountinfo(5); elsewhere nobody asks.
    """
    place = f"{os.major(device)}:{os.minor(device)}"
    with suppress(OSError):
        for line in Path(mounts).read_text(errors="replace").splitlines():
            mount, _, system = line.partition(" - ")
            if mount.split()[2] == place and system.split()[0] in _NETWORK:
                return bool(_LOCAL & set(system.split()[2].split(",")))
    return False


def _same(handle: int, path: Path) -> bool:
    """Whether the file is still what its name stands for."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False
