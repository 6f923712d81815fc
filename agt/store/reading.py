"""Plain files, read as if anybody may have put something else in their place."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import file_digest
from io import BufferedReader
from pathlib import Path

MAX_FILE_BYTES = 2**36
"""The largest size of a file that is hashed."""
MAX_TEXT_BYTES = 2**24
"""The largest size of a file that is parsed."""
_READ_FLAG_NAMES = ("NOFOLLOW", "NONBLOCK", "CLOEXEC", "NOCTTY", "BINARY")
READ_FLAGS = os.O_RDONLY | sum(getattr(os, f"O_{name}", 0) for name in _READ_FLAG_NAMES)
"""Flags of ``os.open`` that follow no link and wait for no pipe, where the platform has them."""


class Broken(Exception):
    """A file is not what was recorded.

    The message names the file, relative to its folder, and says what is wrong.
    """


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file as hexadecimal digits. Links are followed.

    The file is read in pieces.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


@contextmanager
def open_plain(path: Path, limit: int = MAX_FILE_BYTES, name: str = "") -> Iterator[BufferedReader]:
    """Open a regular file for reading.

    Its kind and size are read from the open handle, so that no other file can take its place after
    the check.

    Args:
        path: the file.
        limit: the largest number of bytes that it may have.
        name: the name of the file in messages; empty: its own name.

    Raises:
        Broken: the file is gone, is not a regular file, is larger than ``limit``, or cannot be
            read.
    """
    name = name or path.name
    try:
        handle = os.open(path, READ_FLAGS)
    except (OSError, ValueError) as error:
        raise Broken(f"{name} {_why_not_opened(path, error)}") from None
    try:
        status = os.fstat(handle)
        if kind := file_kind(status.st_mode):
            raise Broken(
                f"{name} is {kind}, but must be a regular file: put a regular file in its place"
            )
        if status.st_size > limit:
            raise Broken(
                f"{name} was not read, because it has {status.st_size:,} bytes, more than the "
                f"limit of {limit:,}"
            )
        with open(handle, "rb", closefd=False) as file:
            yield file
    except OSError as error:
        raise Broken(f"{name} cannot be read ({error.strerror or error})") from None
    finally:
        os.close(handle)


def read_file(path: Path, limit: int = MAX_TEXT_BYTES, name: str = "") -> bytes:
    """Return the bytes of a regular file.

    Args:
        path: the file.
        limit: the largest number of bytes that it may have.
        name: the name of the file in messages; empty: its own name.

    Raises:
        Broken: the file cannot be opened (see ``open_plain``), or it grew while it was read.
    """
    with open_plain(path, limit, name) as file:
        size = os.fstat(file.fileno()).st_size
        content = file.read(size + 1)  # one byte more, which is there only if the file grew
    if len(content) > size:
        raise Broken(
            f"{name or path.name} grew while agt was reading the file, so another process is "
            "writing it: wait for that process, and type the command again"
        )
    return content


def file_kind(mode: int) -> str:
    """Return in words what kind of file a mode says; empty for a regular file.

    Args:
        mode: ``st_mode`` of ``os.stat``.
    """
    kinds = {
        stat.S_IFREG: "",
        stat.S_IFDIR: "a folder",
        stat.S_IFLNK: "a link",
        stat.S_IFIFO: "a pipe",
    }
    return kinds.get(stat.S_IFMT(mode), "a device or a socket")


def _why_not_opened(path: Path, error: OSError | ValueError) -> str:
    """Return in words why ``os.open`` refused a path."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return "is gone"
    if isinstance(error, ValueError):  # there is a NUL in the name
        return f"cannot be read ({error})"
    if os.path.islink(path):
        return "is a link, which agt does not follow: replace the link by the file itself"
    return f"cannot be read ({error.strerror or error})"
