"""Files that appear whole or not at all, and stay: what every record and every release is written with."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import get_ident


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
                _put(self._part, bytes(size), "wb")

    def write(self, content: bytes) -> None:
        """Write the file, durably."""
        with self._cleared():
            _put(self._part, content, "r+b" if self._part.exists() else "wb")
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


def _put(path: Path, content: bytes, mode: str) -> None:
    with path.open(mode) as file:
        file.write(content)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other processes out of what a file, which is made and stays, or a folder stands for.

    The lock is the system's own (flock): it ends with the process, however that ends.

    Raises:
        BlockingIOError: another process has it.
        OSError: the file cannot be opened, or its file system has no locks.
    """
    import fcntl  # not on Windows, where all the rest of this module works

    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def is_locked(path: Path) -> bool:
    """Whether a living process has the lock of a file; also where that cannot be found out."""
    import fcntl

    try:
        handle = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: two that look do not stand in each other's way
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


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
