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

_NETWORK_FILE_SYSTEMS = ("nfs", "nfs4", "lustre")
_LOCAL_LOCK_OPTIONS = {"nolock", "local_lock=flock", "local_lock=all", "localflock"}
"""Options of network file systems by which locks stay on this machine."""
_LOCK_ATTEMPTS = 5
_SECONDS_BETWEEN_ATTEMPTS = 0.02


class Lock:
    """A lock on a file, which the operating system frees when its process ends, however it ends.

    So a process that holds the lock is alive: on this machine, or on another one that shares the
    file system and its locks.

    Attributes:
        works: False where the system or the file system has no locks. Then the lock says nothing
            about other processes. Known once ``acquire`` was called.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle = -1
        self.works = True

    def acquire(self) -> bool:
        """Take the lock if no other process holds it.

        Returns:
            True if the lock is this process's now, or if there are no locks here (``works``).

        Raises:
            OSError: the file of the lock cannot be opened.
        """
        # A failed attempt may mean no more than that another process asks just now who holds the
        # lock, or is about to remove the file.
        for _ in range(_LOCK_ATTEMPTS):
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
            is_locked_now = _try_to_lock(handle)
            if is_locked_now and _is_same_file(handle, self._path):
                self._handle = handle
                return True
            os.close(handle)
            if is_locked_now is None:
                self.works = False
                self._path.unlink(missing_ok=True)  # it would look like a dead process's
                return True
            time.sleep(_SECONDS_BETWEEN_ATTEMPTS)
        return False

    def release(self) -> None:
        """Free the lock and remove its file. Without a lock, do nothing."""
        if self._handle >= 0:
            self._path.unlink(missing_ok=True)
            self.abandon()

    def abandon(self) -> None:
        """Free the lock as a killed process would: its file stays."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def __del__(self) -> None:
        self.abandon()


def is_locked(path: Path) -> bool | None:
    """Return whether a living process holds the lock of a file.

    Returns:
        None if the file does not exist, or if the system cannot tell.
    """
    with suppress(OSError), path.open("rb") as file:
        is_locked_now = _try_to_lock(file.fileno(), shared=True)
        return None if is_locked_now is None else not is_locked_now
    return None


def _try_to_lock(handle: int, shared: bool = False) -> bool | None:
    """Take the lock of an open file, if it is free.

    Args:
        handle: the open file.
        shared: whether to take a lock that other processes can share, to find out whether an
            exclusive lock exists.

    Returns:
        True if the lock was taken, False if another process holds it, None if there are no locks
        here.
    """
    if fcntl is None or _has_local_locks(os.fstat(handle).st_dev):
        return None
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        return None
    return True


@cache
def _has_local_locks(device: int, mounts: str = "/proc/self/mountinfo") -> bool:
    """Return whether a network's file system is mounted so that locks stay on this machine.

    Such locks say nothing about processes of other machines. Linux tells it, in
    proc_pid_mountinfo(5); elsewhere the answer is False.

    Args:
        device: the number of the device, as ``os.stat`` gives it.
        mounts: the list of mounts.
    """
    device_number = f"{os.major(device)}:{os.minor(device)}"
    with suppress(OSError):
        for line in Path(mounts).read_text(errors="replace").splitlines():
            mount, _, file_system = line.partition(" - ")
            if mount.split()[2] != device_number:
                continue
            if file_system.split()[0] in _NETWORK_FILE_SYSTEMS:
                options = set(file_system.split()[2].split(","))
                return bool(_LOCAL_LOCK_OPTIONS & options)
    return False


def _is_same_file(handle: int, path: Path) -> bool:
    """Return whether a path still leads to the file that was opened under it."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False
