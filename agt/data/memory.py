"""Records that a program sends, as the columns of a file of them: what reads files of queries then reads these.

A value is read by itself, as everywhere (files.py): numbers are numbers and text is text, as in a parquet file; where a
column has both, each number becomes the text that a csv would have, from which the same number is read again.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from agt.data.dataset import DataError
from agt.data.files import Columns, as_word


def columns_of(rows: Sequence[Mapping[str, object]], name: str) -> Columns:
    """One row for each record, which all have the same columns.

    Args:
        rows: column -> a number, text, true or false, None, or (nested) lists of numbers.
        name: what messages call where they come from.

    Raises:
        DataError: no records, or columns that are not in all of them.
    """
    if not rows:
        raise DataError(f"{name}: no records: at least one query is needed")
    names = tuple(rows[0])
    for place, row in enumerate(rows, start=1):
        for key in (*names, *row):
            if key not in row or key not in rows[0]:
                has, lacks = (1, place) if key not in row else (place, 1)
                raise DataError(f"{name}: record {has} has '{key}', and record {lacks} has not")

    def read(column: str) -> np.ndarray | pa.Array:
        return _column([row[column] for row in rows], f"{name}: '{column}'")

    return Columns(Path(name), names, read)


def _column(values: list[object], where: str) -> np.ndarray | pa.Array:
    if any(isinstance(value, list) for value in values):
        return _array(values, where)
    if not all(value is None or isinstance(value, str | int | float) for value in values):
        raise DataError(f"{where}: expected a number, text, true, false or null")
    if any(isinstance(value, str) for value in values) or not any(value is not None for value in values):
        if any(isinstance(value, bool) for value in values):
            raise DataError(f"{where}: true or false among text: write all of them in one form")
        try:
            return pa.array([as_word(value) for value in values], pa.string())
        except UnicodeEncodeError:
            raise DataError(f"{where}: text with half a character (a lone surrogate)") from None
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):  # whole numbers too large for 64 bits, or true among them
        if any(isinstance(value, bool) for value in values):
            raise DataError(f"{where}: true or false among numbers: write all of them in one form") from None
        return pa.array([None if value is None else str(value) for value in values], pa.string())


def _array(values: list[object], where: str) -> np.ndarray:
    """[n, ...]; whole numbers that fit a byte are pixels."""
    try:
        array = np.array(values)
    except (ValueError, OverflowError):
        raise DataError(f"{where}: lists of different lengths") from None
    if array.dtype.kind == "i" and array.size and array.min() >= 0 and array.max() <= 255:
        return array.astype(np.uint8)
    if array.dtype.kind not in "if":
        raise DataError(f"{where}: expected lists of numbers, all of one length")
    return array
