"""Files that appear whole or not at all, and stay: what every record and every release is written with.

And a lock that a folder's process holds as long as it lives, so that a dead one's folder is told from a living one's.
"""

import errno
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from threading import get_ident
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_NETWORK = ("nfs", "nfs4", "lustre")
_LOCAL = {"nolock", "local_lock=flock", "local_lock=all", "localflock"}  # options of theirs
_AT_ONCE = 2**20  # bytes
_PART = re.compile(r"\.part\d+-\d+$")


def write_atomic(path: Path, content: bytes) -> None:
    """Write ``content`` so that ``path`` holds either all of it or what it held before, also after a power cut.

    Raises:
        OSError: with ``filename`` set, also where the system names no file (a full disk).
    """
    Pending(path).write(content)


class Pending:
    """A file that is about to be written, with room for it on the disk.

    Args:
        path: of the file, which appears when it is whole.
        size: bytes to take hold of at once, so that a disk too full for them is found out now. A file system that copies
            on writing may still run full later.

    Raises:
        OSError: as ``write_atomic``.
    """

    def __init__(self, path: Path, size: int = 0) -> None:
        self.path, self._part = path, path.with_name(f"{path.name}.part{os.getpid()}-{get_ident()}")
        with self._cleared():
            made = [folder for folder in path.parents if not folder.exists()]
            path.parent.mkdir(parents=True, exist_ok=True)
            for folder in made:
                sync_folder(folder.parent)
            if size:
                with self._part.open("wb") as file:
                    for start in range(0, size, _AT_ONCE):
                        file.write(bytes(min(_AT_ONCE, size - start)))
                    file.flush()
                    os.fsync(file.fileno())

    def write(self, content: bytes) -> None:
        """Write the file, durably."""
        with self.opened() as file:
            file.write(content)

    @contextmanager
    def opened(self) -> Iterator[BinaryIO]:
        """Write the file part after part; it appears, durably, when all of them are written, and not if that fails."""
        with self._cleared():
            with self._part.open("r+b" if self._part.exists() else "wb") as file:
                yield file
                file.truncate()
                file.flush()
                os.fsync(file.fileno())
            self._part.replace(self.path)
            sync_folder(self.path.parent)

    def discard(self) -> None:
        """Give the room back, if the file was not written."""
        with suppress(OSError):
            self._part.unlink(missing_ok=True)

    @contextmanager
    def _cleared(self) -> Iterator[None]:
        """Leave nothing half written behind, and name the file."""
        try:
            yield
        except BaseException as error:
            self.discard()
            if isinstance(error, OSError):
                raise OSError(error.errno, error.strerror or str(error), str(self.path)) from error
            raise


def remove_parts(folder: Path) -> None:
    """Remove what killed processes left half written in a folder, and in those below it."""
    for path in folder.rglob("*.part*"):
        if _PART.search(path.name):
            path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable; nothing where the platform or the file system cannot."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows opens no folders
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES, errno.EPERM, errno.EROFS):
            raise
    finally:
        os.close(handle)


class Lock:
    """A lock on a file, which the operating system lets go of when its process ends, however it ends.

    A process that holds it is alive: on this machine, or on another that shares the file system and its locks.

    Attributes:
        works: False where the system or the file system keeps no locks: then it tells nothing.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._file, self.works = path, -1, True

    def take(self) -> bool:
        """Take it if nobody has it; True: it is ours, or there are no locks here. Raises OSError as opening a file does."""
        for _ in range(5):  # somebody may just be asking who holds it, or be about to remove the file
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

    def __del__(self) -> None:
        if self._file >= 0:
            os.close(self._file)  # as a killed process would: the file stays


def is_locked(path: Path) -> bool | None:
    """Whether a living process holds the lock of this file; None: there is no such file, or nobody can tell."""
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
    """Whether a network's file system is mounted here so that its locks stay on this machine: they tell nothing of others.

    Linux says so, in proc_pid_mountinfo(5); elsewhere nobody asks.
    """
    place = f"{os.major(device)}:{os.minor(device)}"
    with suppress(OSError):
        for line in Path(mounts).read_text().splitlines():
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
