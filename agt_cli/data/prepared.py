"""What a prepared folder says about itself (``prepared.json``), for whoever reads it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from agt_cli.data.dataset import DataError
from agt_cli.errors import DataMissing
from agt_cli.facts import Fact, proved, void

PREPARED = "prepared.json"
PROGRESS = "progress.json"


def part_of(folder: Path) -> Path:
    """Where a folder lies until it is whole."""
    return folder.with_name(f"{folder.name}.part")


def read_prepared(folder: Path) -> dict[str, Any]:
    """``prepared.json`` of a finished folder, its arrays checked against it.

    Raises:
        DataError: there is none or it cannot be read, or an array is missing, truncated or of another shape: it is named.
    """
    path = folder / PREPARED
    try:
        prepared: dict[str, Any] = json.loads(path.read_text())
        arrays = {str(n): (tuple(a["shape"]), np.dtype(a["dtype"])) for n, a in prepared["arrays"].items()}
    except FileNotFoundError:
        raise DataError(f"{folder}: no {PREPARED} in it, so no prepared folder: choose another, or delete it") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: cannot be read ({error}): prepare the data again") from None
    for name, expected in arrays.items():
        _check_array(folder / f"{name}.npy", *expected)
    return prepared


def _check_array(path: Path, shape: tuple[int, ...], dtype: np.dtype) -> None:
    remedy = f"delete {path.parent} and prepare the data again"
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise DataError(f"{path} is gone, and {PREPARED} lists it: {remedy}") from None
    except (ValueError, EOFError, OSError) as error:
        raise DataError(f"{path}: truncated or not an array ({error}): {remedy}") from None
    if array.shape != shape or array.dtype != dtype:
        raise DataError(f"{path}: {array.dtype} {array.shape}, and {PREPARED} says {dtype} {shape}: {remedy}")


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
    said = prepared.get("alone", {}).get("units" if units else "rows")
    if not isinstance(said, Mapping):
        return void(f"{PREPARED} does not say whether records were prepared each on its own")
    return proved(str(said["why"])) if said.get("held") is True else void(str(said["why"]))
