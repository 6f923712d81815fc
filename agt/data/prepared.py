"""Folders of arrays that ``agt data prepare`` made, which say so themselves (``prepared.json``).

Condition b of a privacy guarantee (each record is processed by itself) rests on what the
preparation says, and on its arrays being the ones it made: so that
file carries a checksum of itself and the SHA-256 of each array. Both are checked before anything is
read: once in a process, since arrays may be gigabytes.
"""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from agt.data.suffixes import arrays_in
from agt.errors import DataError, DataMissing
from agt.facts import Fact, not_held, proved
from agt.store.reading import file_sha256
from agt.store.sealed import unseal

FORMAT = 2
"""The format of prepared folders that this version writes and reads."""
PREPARED = "prepared.json"
"""The file of a finished folder that says how its arrays were made."""
PROGRESS = "progress.json"
"""The file of a folder whose preparation has not ended."""
_REMEDY = "delete the folder and prepare the data again with `agt data prepare`"


def part_of(folder: Path) -> Path:
    """Return the folder that holds a folder's files until all of them are written."""
    return folder.with_name(f"{folder.name}.part")


def read_prepared(folder: Path) -> dict[str, Any]:
    """Return the content of ``prepared.json`` of a finished folder, its arrays checked.

    Raises:
        DataError: there is none, or it has another format or is damaged or edited; or an array is
            missing, not listed, or not the one that was made (the message names it).
    """
    path = folder / PREPARED
    try:
        prepared = unseal(path.read_bytes())
        form = prepared["format"]
        if form != FORMAT:
            raise DataError(
                f"{path}: the file has format {form}, but this version of agt reads format "
                f"{FORMAT}: {_REMEDY}"
            )
        arrays = prepared["arrays"]
    except FileNotFoundError:
        raise DataError(
            f"{folder}: the file {PREPARED} is missing, so this folder was not made by `agt data "
            "prepare`: choose another folder, or delete this one"
        ) from None
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{path}: agt cannot read this file ({error}): {_REMEDY}") from None
    for name, array in arrays.items():
        array_path = folder / f"{name}.npy"
        _check_array(array_path, tuple(array["shape"]), np.dtype(array["dtype"]), array["sha256"])
    unlisted = [file for file in arrays_in(folder) if file.stem not in arrays]
    if unlisted:
        raise DataError(
            f"{unlisted[0]}: this array was not written by `agt data prepare`, because {PREPARED} "
            "does not list it: move it out of the folder"
        )
    return prepared


@lru_cache(maxsize=256)
def _sha256_of_state(path: Path, size: int, modified_ns: int, inode: int) -> str:
    """Return the SHA-256 of a file, which is read once as long as its state stays the same.

    Args:
        path: the file.
        size: its size in bytes.
        modified_ns: the time at which the file last changed, in nanoseconds.
        inode: its number in the file system, which changes when another file takes its name.
    """
    return file_sha256(path)


def _check_array(path: Path, shape: tuple[int, ...], dtype: np.dtype, sha256: str) -> None:
    """Raise DataError unless a file holds the array that ``prepared.json`` lists.

    Args:
        path: the npy file.
        shape: the listed shape.
        dtype: the listed type.
        sha256: the listed hash of the file, in hexadecimal.
    """
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise DataError(
            f"{path}: this file of an array is missing, truncated or of another format "
            f"({error}): {_REMEDY}"
        ) from None
    if array.shape != shape or array.dtype != dtype:
        raise DataError(
            f"{path}: this array has type {array.dtype} and shape {array.shape}, but {PREPARED} "
            f"states type {dtype} and shape {shape}: {_REMEDY}"
        )
    status = path.stat()
    actual = _sha256_of_state(path.resolve(), status.st_size, status.st_mtime_ns, status.st_ino)
    if actual != sha256:
        raise DataError(
            f"{path}: this array changed after `agt data prepare` wrote it (its SHA-256 is not "
            f"the one in {PREPARED}): {_REMEDY}"
        )


def require_finished(path: Path, obtain: str | None) -> None:
    """Check a folder that may have been prepared, before anything in it is read.

    Args:
        path: a folder or file of data.
        obtain: the command that makes the file; None: no command makes it.

    Raises:
        DataMissing: it is unfinished, or absent and ``obtain`` is given. (Without ``obtain``, an
            absent file is refused by the code that opens it.)
        DataError: the prepared folder cannot be used (see ``read_prepared``).
    """
    is_unfinished_in_place = (path / PROGRESS).exists() and not (path / PREPARED).exists()
    unfinished = path if is_unfinished_in_place else part_of(path)
    # A finished folder may have an unfinished successor beside it, which does not matter.
    if unfinished.is_dir() and (is_unfinished_in_place or not path.exists()):
        again = obtain or "agt data prepare NAME"
        raise DataMissing(
            f"{unfinished}: `agt data prepare` was interrupted before this file was complete. To "
            f"continue, type the same command again: {again}"
        )
    if obtain and not path.exists():
        raise DataMissing(
            f"{path} does not exist: create this file with {obtain}. If you have the file at "
            "another place, change dataset.path or data_dir"
        )
    if (path / PREPARED).exists():
        read_prepared(path)  # called because it raises DataError for damaged or edited files


def separate_preparation_fact(path: Path, units: bool) -> Fact | None:
    """Return the fact whether each record was prepared without reading others.

    It is evidence for condition b of a privacy guarantee (each record is processed by itself), and
    states whether the arrays of a record (or of a unit) depend on that record (or unit) alone.

    Args:
        path: a folder or file of data.
        units: True if an edit adds or removes units, False if it adds or removes rows.

    Returns:
        None for data that no preparation made.

    Raises:
        DataError: the prepared folder cannot be used (see ``read_prepared``).
    """
    if not (path / PREPARED).exists():
        return None
    prepared = read_prepared(path)
    edited = "units" if units else "rows"
    alone = prepared.get("alone", {}).get(edited)
    if not isinstance(alone, Mapping):
        return not_held("preparation_silent", file=PREPARED)
    text = str(alone["why"])  # the program that prepared the folder says why
    if alone.get("held") is True:
        return proved("prepared_alone", text=text)
    return not_held("prepared_together", text=text)
