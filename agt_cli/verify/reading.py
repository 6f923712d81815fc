"""Files that anybody may have written, read without being trusted.

Nothing is imported, unpickled or followed: links, pipes and devices are named and not opened; a file is read through a
handle that is known to be of a plain file, up to a size; JSON has no key twice, no number that is none and no depth that
a reader cannot take; YAML has no aliases, which a few lines can blow up to gigabytes.
"""

import json
import math
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO

import yaml  # type: ignore[import-untyped]

from agt.manifest import Broken

MOST_ENTRIES, MOST_DEPTH = 100_000, 12  # of a folder
LARGEST = 2**36  # bytes of a file that is hashed
TEXT = 2**24  # bytes of a file that is parsed
SETTINGS = 2**20  # bytes of YAML, whose reader is slow
_PIECE = 2**20
_FLAGS = os.O_RDONLY | sum(getattr(os, f"O_{name}", 0) for name in ("NOFOLLOW", "NONBLOCK", "CLOEXEC", "NOCTTY", "BINARY"))


@dataclass(frozen=True)
class Inventory:
    """What lies in a folder, at any depth; nothing of it was opened.

    Attributes:
        files: the plain files, by their paths with forward slashes.
        others: path -> what else is there: a link, a pipe, a folder that cannot be listed.
    """

    files: frozenset[str]
    others: Mapping[str, str]

    @classmethod
    def of(cls, folder: Path) -> "Inventory":
        """List a folder.

        Raises:
            Broken: there is more in it than any run's folder holds.
        """
        files, others, waiting = set[str](), dict[str, str](), [("", 0)]
        while waiting:
            inside, depth = waiting.pop()
            try:
                entries = list(os.scandir(folder / inside))
            except OSError as error:
                others[inside or "."] = f"a folder that cannot be listed ({error.strerror or error})"
                continue
            for entry in entries:
                name = f"{inside}/{entry.name}" if inside else entry.name
                kind = _kind(entry)
                if kind == "a folder" and depth < MOST_DEPTH:
                    waiting.append((name, depth + 1))
                elif kind:
                    others[name] = kind
                else:
                    files.add(name)
            if len(files) + len(others) + len(waiting) > MOST_ENTRIES:
                raise Broken(f"the folder holds more than {MOST_ENTRIES:,} files: no run's does")
        return cls(frozenset(files), others)


def _kind(entry: "os.DirEntry[str]") -> str:
    """Empty for a plain file."""
    try:
        return _words(entry.stat(follow_symlinks=False).st_mode)
    except OSError as error:
        return f"something that cannot be looked at ({error.strerror or error})"


def _words(mode: int) -> str:
    known = {stat.S_IFREG: "", stat.S_IFDIR: "a folder", stat.S_IFLNK: "a link", stat.S_IFIFO: "a pipe"}
    return known.get(stat.S_IFMT(mode), "a device or a socket")


def read(path: Path, most: int = TEXT) -> bytes:
    """The bytes of a plain file.

    Raises:
        Broken: it is gone, no plain file, larger than ``most``, or cannot be read; says so of it by its name.
    """
    with _plain(path, most) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise Broken(f"{path.name} grew while it was read")
    return content


def begins_with(path: Path, start: bytes) -> bool:
    """Whether a plain file begins so. Raises Broken as ``read`` does."""
    with _plain(path, LARGEST) as file:
        return bool(file.read(len(start)) == start)


def check_plain(path: Path, most: int) -> None:
    """Raise Broken, as ``read`` does, unless there is a plain file of at most so many bytes."""
    with _plain(path, most):
        pass


def file_sha256(path: Path) -> str:
    """The SHA-256 of a plain file, as hexadecimal digits. Raises Broken as ``read`` does."""
    digest, left = sha256(), LARGEST
    with _plain(path, LARGEST) as file:
        while left > 0 and (piece := file.read(_PIECE)):
            digest.update(piece)
            left -= len(piece)
    return digest.hexdigest()


@contextmanager
def _plain(path: Path, most: int) -> Iterator[BinaryIO]:
    """A plain file, open; what it is, is asked of the handle, so that nothing can be put in its place in between."""
    try:
        handle = os.open(path, _FLAGS)
    except OSError as error:
        raise Broken(f"{path.name} {'is a link, and is not followed' if os.path.islink(path) else _gone(error)}") from None
    try:
        status = os.fstat(handle)
        if kind := _words(status.st_mode):
            raise Broken(f"{path.name} is {kind}, where a file is expected")
        if status.st_size > most:
            raise Broken(f"{path.name} is of {status.st_size:,} bytes, more than {most:,}: it is not read")
        with open(handle, "rb", closefd=False) as file:
            yield file
    except OSError as error:
        raise Broken(f"{path.name} cannot be read ({error.strerror or error})") from None
    finally:
        os.close(handle)


def _gone(error: OSError) -> str:
    gone = isinstance(error, FileNotFoundError | NotADirectoryError)
    return "is gone" if gone else f"cannot be read ({error.strerror or error})"


def parsed(content: bytes, name: str) -> dict[str, Any]:
    """A JSON object.

    Args:
        name: of the file, for messages.

    Raises:
        Broken: it is none, has a key twice or a number that is none, or is nested beyond measure.
    """
    value = parsed_any(content, name)
    if not isinstance(value, dict):
        raise Broken(f"{name} does not hold a JSON object")
    return value


def parsed_any(content: bytes, name: str) -> Any:
    """Any JSON. Raises Broken as ``parsed``."""
    try:
        return json.loads(
            content.decode(), object_pairs_hook=_once, parse_constant=_no_number, parse_float=_finite, parse_int=_whole
        )
    except RecursionError:
        raise Broken(f"{name} is nested beyond measure") from None
    except ValueError as error:
        raise Broken(f"{name} is no proper JSON ({error})") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("a key stands in it twice, so that two readers may read two things")
    return value


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is no number")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits[:20]} is beyond every float")
    return value


def _whole(digits: str) -> int:
    if len(digits) > 40:
        raise ValueError("a whole number of more than 40 digits")
    return int(digits)


class _Loader(yaml.SafeLoader):
    """Plain YAML: no aliases, no key twice."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("it has an alias, which no record of agt's has")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        value: dict[Any, Any] = super().construct_mapping(node, deep)
        if len(value) < len(node.value):
            raise yaml.YAMLError("a key stands in it twice")
        return value


def settings(content: bytes, name: str) -> dict[str, Any]:
    """A mapping from YAML; interpolations stay text, as nothing of this machine belongs into them.

    Raises:
        Broken: it is none, or holds what a record's never does.
    """
    try:
        if len(content) > SETTINGS:
            raise ValueError(f"of {len(content):,} bytes")
        value = yaml.load(content.decode(), _Loader)
    except RecursionError:
        raise Broken(f"{name} is nested beyond measure") from None
    except (ValueError, TypeError, yaml.YAMLError) as error:
        raise Broken(f"{name} cannot be read ({' '.join(str(error).split())[:200]})") from None
    if not isinstance(value, dict):
        raise Broken(f"{name} does not hold a mapping")
    return {str(key): node for key, node in value.items()}
