"""Files that appear whole or not at all, also after a power cut."""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import get_ident
from typing import BinaryIO

_BLOCK_BYTES = 2**20
_PART = re.compile(r"\.part\d+-\d+$")


def write_atomic(path: Path, content: bytes) -> None:
    """Write ``content`` so that ``path`` holds either all of it or what it held before, also after
    a power cut.

    Raises:
        OSError: with ``filename`` set, also where the system names no file (a full disk).
    """
    Pending(path).write(content)


class Pending:
    """A file that is about to be written, with room for it on the disk.

    Args:
        path: of the file, which appears when it is whole.
        size: bytes to take hold of at once, so that a disk too full for them is found out now. A
            file system that copies on writing may still run full later.

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
                    for start in range(0, size, _BLOCK_BYTES):
                        file.write(bytes(min(_BLOCK_BYTES, size - start)))
                    file.flush()
                    os.fsync(file.fileno())

    def write(self, content: bytes) -> None:
        """Write the file, durably."""
        with self.opened() as file:
            file.write(content)

    @contextmanager
    def opened(self) -> Iterator[BinaryIO]:
        """Write the file part after part; it appears, durably, when all of them are written, and
        not if that fails.
        """
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
        if error.errno not in (
            errno.EINVAL,
            errno.ENOTSUP,
            errno.EBADF,
            errno.EACCES,
            errno.EPERM,
            errno.EROFS,
        ):
            raise
    finally:
        os.close(handle)
