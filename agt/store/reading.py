"""Plain files, read as if anybody may have put something else in their place."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import file_digest
from io import BufferedReader
from pathlib import Path

MAX_FILE_BYTES = 2**36  # of a file that is hashed
MAX_TEXT_BYTES = 2**24  # of a file that is parsed
READ_FLAGS = os.O_RDONLY | sum(
    getattr(os, f"O_{name}", 0) for name in ("NOFOLLOW", "NONBLOCK", "CLOEXEC", "NOCTTY", "BINARY")
)


class Broken(Exception):
    """A file is not what was recorded; the message names it, relative to its folder, and says
    what is wrong.
    """


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file, read in pieces, as hexadecimal digits; links are followed.

    Raises OSError.
    """
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


@contextmanager
def open_plain(path: Path, limit: int = MAX_FILE_BYTES, name: str = "") -> Iterator[BufferedReader]:
    """A plain file, open; what it is, is asked of the handle, so that nothing can be put in its
    place in between.

    Args:
        limit: bytes that it may have.
        name: for messages; empty: its own.

    Raises:
        Broken: it is gone, no plain file, larger than ``limit``, or cannot be read.
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
    """The bytes of a plain file. Arguments and errors as ``open_plain``."""
    with open_plain(path, limit, name) as file:
        size = os.fstat(file.fileno()).st_size
        content = file.read(size + 1)
    if len(content) > size:
        raise Broken(
            f"{name or path.name} grew while agt was reading the file, so another process is "
            "writing it: wait for that process, and type the command again"
        )
    return content


def file_kind(mode: int) -> str:
    """What a file's mode says that it is, in words; empty: a plain file."""
    kinds = {
        stat.S_IFREG: "",
        stat.S_IFDIR: "a folder",
        stat.S_IFLNK: "a link",
        stat.S_IFIFO: "a pipe",
    }
    return kinds.get(stat.S_IFMT(mode), "a device or a socket")


def _why_not_opened(path: Path, error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return "is gone"
    if isinstance(error, ValueError):  # a NUL in its name
        return f"cannot be read ({error})"
    return (
        "is a link, which agt does not follow: replace the link by the file itself"
        if os.path.islink(path)
        else f"cannot be read ({error.strerror or error})"
    )
