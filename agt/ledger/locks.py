"""Locks on files and folders, which keep other processes out while one of them writes."""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from agt.errors import AgtError, Busy


def acquire_lock(
    handle: int, seconds: float, name: str, try_lock: Callable[[int], object] | None = None
) -> None:
    """Lock an open file or folder against other processes, until it is closed.

    Args:
        handle: the file descriptor of the file or folder.
        seconds: the number of seconds to wait for the lock.
        name: the file or folder, as the beginning of the message.
        try_lock: called with ``handle`` until it returns: it locks the file, or raises
            BlockingIOError or PermissionError if another process has a conflicting lock. None: an
            exclusive lock of the whole file.

    Raises:
        Busy: another process held the lock for all of this time.
        AgtError: the file system has no locks.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            if try_lock is not None:
                try_lock(handle)
            else:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except (BlockingIOError, PermissionError):  # fcntl raises the second on some systems
            if time.monotonic() > deadline:
                raise Busy(
                    f"{name}: another process has locked this file for {seconds:g} s, so nothing "
                    "was written: check whether a suspended process still uses the ledger (the "
                    "command fuser -v lists such processes)"
                ) from None
            time.sleep(0.001)
        except OSError as error:  # such as ENOLCK of a network file system
            raise AgtError(
                f"{name}: this file cannot be locked ({error.strerror}), so nothing was written: "
                "keep it on a local disk, whose file system has locks"
            ) from error


@contextmanager
def locked_folder(folder: Path, seconds: float = 60.0) -> Iterator[None]:
    """Lock a folder for a block, against other processes that lock it with this function.

    It is locked while a ledger or a copy is created there, and while a table is admitted.

    Args:
        folder: the folder.
        seconds: the number of seconds to wait for the lock.

    Raises:
        Busy: another process held the lock for all of this time.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        acquire_lock(handle, seconds, f"ledger: {folder}")
        yield
    finally:
        os.close(handle)
