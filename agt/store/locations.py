"""Where the files lie that a user names."""

import os
from pathlib import Path

from agt.errors import DataMissing


def expand_home(path: Path) -> Path:
    """``path`` with ~ as the expand_home directory; where nobody has that name, it is a name as any
    other.
    """
    return Path(os.path.expanduser(path))


def resolve(path: Path, data_dir: Path) -> Path:
    """``path``, taken relative to ``data_dir`` unless absolute: where something is to be
    written.
    """
    return expand_home(data_dir) / expand_home(path)


def possible_paths(path: Path, data_dir: Path) -> tuple[Path, ...]:
    """Where a person's file may lie, first the working directory and then ``data_dir``; an
    absolute path is one place.
    """
    return tuple(dict.fromkeys((expand_home(path), resolve(path, data_dir))))


def locate(path: Path, data_dir: Path, setting: str) -> Path:
    """The first of its ``possible_paths`` where a file or folder is.

    Raises DataMissing naming all of them.
    """
    tried = possible_paths(path, data_dir)
    there = next((place for place in tried if place.exists()), None)
    if there is None:
        nor = "".join(f", and {place} does not exist either" for place in tried[1:])
        raise DataMissing(
            f"{tried[0]} does not exist{nor}: put the file there, or change {setting}"
        )
    return there
