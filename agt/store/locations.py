"""Where the files lie that a user names."""

import os
from collections.abc import Iterable
from contextlib import suppress
from difflib import get_close_matches
from itertools import islice
from pathlib import Path

from agt.errors import DataMissing

MAX_NAMES_COMPARED = 2_000
"""Of a folder, the largest number of names that are compared with one that is not there."""


def expand_home(path: Path) -> Path:
    """Return ``path`` with ``~`` replaced by the home directory.

    ``~name`` stays unchanged if no user has that name.
    """
    return Path(os.path.expanduser(path))


def resolve(path: Path, data_dir: Path) -> Path:
    """Return the path to write to: ``path``, relative to ``data_dir`` unless it is absolute.

    Args:
        path: the path that the user gave, perhaps with ``~``.
        data_dir: the folder of the data, perhaps with ``~``.
    """
    return expand_home(data_dir) / expand_home(path)


def possible_paths(path: Path, data_dir: Path) -> tuple[Path, ...]:
    """Return the possible paths of a user's file: in the working directory, then in ``data_dir``.

    For an absolute path that is one place.

    Args:
        path: the path that the user gave, perhaps with ``~``.
        data_dir: the folder of the data, perhaps with ``~``.
    """
    return tuple(dict.fromkeys((expand_home(path), resolve(path, data_dir))))


def locate(path: Path, data_dir: Path, setting: str) -> Path:
    """Return the first of the ``possible_paths`` where a file or folder exists.

    Args:
        path: the path that the user gave, perhaps with ``~``.
        data_dir: the folder of the data, perhaps with ``~``.
        setting: the setting that named the path, for the message.

    Raises:
        DataMissing: none exists. The message names all of them.
    """
    candidates = possible_paths(path, data_dir)
    for candidate in candidates:
        if candidate.exists():
            return candidate
    others = "".join(f", and {other} does not exist either" for other in candidates[1:])
    raise DataMissing(
        f"{candidates[0]} does not exist{others}: put the file there, or change "
        f"{setting}{_similar(candidates)}"
    )


def require(path: Path, setting: str) -> None:
    """Raise DataMissing unless ``path`` is a file.

    Args:
        path: the file.
        setting: the setting that named it, for the message.
    """
    if not path.is_file():
        raise DataMissing(
            f"{path} does not exist, or is not a file: put the file there, or change "
            f"{setting}{_similar((path,))}"
        )


def _similar(candidates: Iterable[Path]) -> str:
    """Return the end of a message about a missing file: the existing file with a similar name.

    Capitals do not count, and a file with another suffix, or with one, is similar.

    Args:
        candidates: the paths at which the file was looked for.

    Returns:
        For example ``; did you mean 'people.csv'?``; empty if no name there is similar.
    """
    for path in candidates:
        with suppress(OSError):  # there is no such folder, or it may not be listed
            neighbours = [other.name for other in islice(path.parent.iterdir(), MAX_NAMES_COMPARED)]
            # Names that differ in capitals, or that only lack their suffix, are the same to many.
            names = {name.casefold(): name for name in neighbours}
            typed = path.name.casefold()
            close = get_close_matches(typed, names, n=1, cutoff=0.75)
            close += [name for name in names if Path(name).stem == Path(typed).stem]
            if close:
                return f"; did you mean '{path.with_name(names[close[0]])}'?"
    return ""
