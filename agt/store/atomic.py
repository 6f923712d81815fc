"""Files that appear whole or not at all, also after a power cut."""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import get_ident
from typing import BinaryIO

_RESERVED_BLOCK_BYTES = 2**20
_PARTIAL_FILE = re.compile(r"\.part\d+-\d+$")
_NO_FOLDER_SYNC = (
    errno.EINVAL,
    errno.ENOTSUP,
    errno.EBADF,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
)
"""Errors by which a platform or a file system says that it cannot sync a folder."""


def write_atomic(path: Path, content: bytes) -> None:
    """Write a file so that it has either all of ``content`` or its previous content.

    That is true after a power cut, too.

    Raises:
        OSError: the file cannot be written. ``filename`` is set, also where the system names no
            file (a full disk).
    """
    Pending(path).write(content)


class Pending:
    """A file that is about to be written, for which space on the disk can be reserved.

    The content is first written to a partial file in the same folder, which takes the name ``path``
    when it is whole.

    Args:
        path: the file.
        size: the number of bytes to reserve at once, so that a disk that is too full is noticed
            now. A file system that copies on writing may still run full later.

    Raises:
        OSError: the file cannot be written (see ``write_atomic``).
    """

    def __init__(self, path: Path, size: int = 0) -> None:
        """Create the folder of the file, and reserve the space; an error frees it again."""
        self.path = path
        # The process and the thread are in the name, so that two writers never share a file.
        self._partial_path = path.with_name(f"{path.name}.part{os.getpid()}-{get_ident()}")
        with self._discarding_on_error():
            missing_folders = [folder for folder in path.parents if not folder.exists()]
            path.parent.mkdir(parents=True, exist_ok=True)
            for folder in missing_folders:
                sync_folder(folder.parent)
            if size:
                self._reserve(size)

    def _reserve(self, size: int) -> None:
        """Fill the partial file with ``size`` zero bytes, durably."""
        with self._partial_path.open("wb") as file:
            for start in range(0, size, _RESERVED_BLOCK_BYTES):
                file.write(bytes(min(_RESERVED_BLOCK_BYTES, size - start)))
            file.flush()
            os.fsync(file.fileno())

    def write(self, content: bytes) -> None:
        """Write the whole file, durably.

        Raises:
            OSError: the file cannot be written (see ``write_atomic``).
        """
        with self.opened() as file:
            file.write(content)

    @contextmanager
    def opened(self) -> Iterator[BinaryIO]:
        """Open the file for writing piece by piece.

        It appears, durably, at the end of the block. If the block fails, nothing of it remains.

        Raises:
            OSError: the file cannot be written (see ``write_atomic``).
        """
        with self._discarding_on_error():
            mode = "r+b" if self._partial_path.exists() else "wb"  # r+b keeps what was reserved
            with self._partial_path.open(mode) as file:
                yield file  # type: ignore[misc]  # both modes are binary
                file.truncate()
                file.flush()
                os.fsync(file.fileno())
            self._partial_path.replace(self.path)
            sync_folder(self.path.parent)

    def discard(self) -> None:
        """Remove the partial file, and with it the reserved space, if there is one."""
        with suppress(OSError):
            self._partial_path.unlink(missing_ok=True)

    @contextmanager
    def _discarding_on_error(self) -> Iterator[None]:
        """Remove the partial file if the block fails, and name the file in an ``OSError``."""
        try:
            yield
        except BaseException as error:
            self.discard()
            if isinstance(error, OSError):
                reason = error.strerror or str(error)
                raise OSError(error.errno, reason, str(self.path)) from error
            raise


def remove_parts(folder: Path) -> None:
    """Remove the partial files that killed processes left in a folder and in those below it."""
    for path in folder.rglob("*.part*"):
        if _PARTIAL_FILE.search(path.name):
            path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable, where the platform and the file system can do that.

    Raises:
        OSError: the disk failed.
    """
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows opens no folders
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise
    finally:
        os.close(handle)
