"""What a prepared folder says about itself (``prepared.json``), for whoever reads it.

Condition b rests on what the preparation says, and on its arrays being the ones it made. So the file carries a checksum
of itself and the SHA-256 of each array, and both are checked before anything is read: once in a process, since arrays may
be gigabytes.
"""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from agt.data.dataset import DataError
from agt.errors import DataMissing
from agt.facts import Fact, proved, void
from agt.sealed import file_sha256, unseal

FORMAT = 2
PREPARED = "prepared.json"
PROGRESS = "progress.json"


def part_of(folder: Path) -> Path:
    """Where a folder lies until it is whole."""
    return folder.with_name(f"{folder.name}.part")


def read_prepared(folder: Path) -> dict[str, Any]:
    """``prepared.json`` of a finished folder, its arrays checked against it.

    Raises:
        DataError: there is none, it is of another format, damaged or edited; or an array is missing, not listed, or not
            the one that was made: it is named.
    """
    path = folder / PREPARED
    try:
        prepared = unseal(path.read_bytes())
        form = prepared["format"]
        arrays = prepared["arrays"] if form == FORMAT else {}
    except FileNotFoundError:
        raise DataError(f"{folder}: no {PREPARED} in it, so no prepared folder: choose another, or delete it") from None
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{path}: damaged, edited, or made by another version of agt ({error}): {_again(folder)}") from None
    if form != FORMAT:
        raise DataError(f"{path}: of format {form}, and this version of agt reads {FORMAT}: {_again(folder)}")
    for name, array in arrays.items():
        _check_array(folder / f"{name}.npy", tuple(array["shape"]), np.dtype(array["dtype"]), array["sha256"])
    stray = sorted(file.name for file in folder.glob("*.npy") if file.stem not in arrays)
    if stray:
        raise DataError(
            f"{folder / stray[0]}: not an array that was prepared, and what {PREPARED} says does not cover it: take it away"
        )
    return prepared


def _again(folder: Path) -> str:
    return f"delete {folder} and prepare the data again"


@lru_cache(maxsize=256)
def _sha256_once(path: Path, *state: int) -> str:
    """The file's hash, computed again only if ``state`` (size, time of change, place) is another."""
    return file_sha256(path)


def _check_array(path: Path, shape: tuple[int, ...], dtype: np.dtype, sha256: str) -> None:
    remedy = _again(path.parent)
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise DataError(f"{path} is gone, and {PREPARED} lists it: {remedy}") from None
    except (ValueError, EOFError, OSError) as error:
        raise DataError(f"{path}: truncated or not an array ({error}): {remedy}") from None
    if array.shape != shape or array.dtype != dtype:
        raise DataError(f"{path}: {array.dtype} {array.shape}, and {PREPARED} says {dtype} {shape}: {remedy}")
    state = path.stat()
    if _sha256_once(path.resolve(), state.st_size, state.st_mtime_ns, state.st_ino) != sha256:
        raise DataError(f"{path}: its content is not what was prepared (another SHA-256 than {PREPARED} has): {remedy}")


def require_finished(path: Path, obtain: str | None) -> None:
    """Check a folder that may have been prepared, before anything of it is read.

    Args:
        path: a folder or file of data.
        obtain: the command that makes it, if there is one.

    Raises:
        DataMissing: it is absent (where ``obtain`` is given; otherwise whoever opens it says so), or unfinished.
        DataError: as ``read_prepared``.
    """
    unfinished = path if (path / PROGRESS).exists() and not (path / PREPARED).exists() else part_of(path)
    if unfinished.is_dir() and (unfinished == path or not path.exists()):
        again = obtain or "agt data prepare NAME"
        raise DataMissing(f"{unfinished}: a preparation that has not finished; the same command goes on with it: {again}")
    if obtain and not path.exists():
        raise DataMissing(f"{path} is not there: make it with: {obtain}; or change dataset.path or data_dir")
    if (path / PREPARED).exists():
        read_prepared(path)


def alone_fact(path: Path, units: bool) -> Fact | None:
    """Condition b as far as the preparation goes: whether a record's arrays depend on that record (or unit) alone.

    Args:
        path: a folder or file of data.
        units: whether units, not rows, are what may come and go.

    Returns:
        None if nothing is said: data that no preparation made.

    Raises:
        DataError: as ``read_prepared``.
    """
    if not (path / PREPARED).exists():
        return None
    prepared = read_prepared(path)
    alone = prepared.get("alone", {}).get("units" if units else "rows")
    if not isinstance(alone, Mapping):
        return void(f"{PREPARED} does not say whether records were prepared each on its own")
    return proved(str(alone["why"])) if alone.get("held") is True else void(str(alone["why"]))
