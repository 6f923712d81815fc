"""Where the files lie that a user names."""

import os
from pathlib import Path

from agt.errors import DataMissing


def expand_home(path: Path) -> Path:
    """Return ``path`` with ``~`` replaced by the home directory.

    ``~name`` stays as it is if no user has that name.
    """
    return Path(os.path.expanduser(path))


def resolve(path: Path, data_dir: Path) -> Path:
    """Return where something is to be written: ``path``, relative to ``data_dir`` unless absolute.

    Args:
        path: as the user gave it, perhaps with ``~``.
        data_dir: the folder of the data, perhaps with ``~``.
    """
    return expand_home(data_dir) / expand_home(path)


def possible_paths(path: Path, data_dir: Path) -> tuple[Path, ...]:
    """Return where a user's file may lie: in the working directory first, then in ``data_dir``.

    For an absolute path that is one place.

    Args:
        path: as the user gave it, perhaps with ``~``.
        data_dir: the folder of the data, perhaps with ``~``.
    """
    return tuple(dict.fromkeys((expand_home(path), resolve(path, data_dir))))


def locate(path: Path, data_dir: Path, setting: str) -> Path:
    """Return the first of the ``possible_paths`` where a file or folder exists.

    Args:
        path: as the user gave it, perhaps with ``~``.
        data_dir: the folder of the data, perhaps with ``~``.
        setting: the setting that named the path, for the message.

    Raises:
        DataMissing: none exists. The message names all of them.
    """
    tried = possible_paths(path, data_dir)
    for place in tried:
        if place.exists():
            return place
    nor = "".join(f", and {place} does not exist either" for place in tried[1:])
    raise DataMissing(f"{tried[0]} does not exist{nor}: put the file there, or change {setting}")
