"""Records that a program sends as JSON, as columns."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from agt.data.cell_values import as_word
from agt.data.column_reader import ColumnReader
from agt.errors import DataError

_LARGEST_PIXEL = 255


def columns_of(rows: Sequence[Mapping[str, object]], name: str) -> ColumnReader:
    """Return the columns of records that a program sends as JSON.

    A value is read by itself, as everywhere: numbers are numbers and text is text, as in a parquet
    file. Where a column has both, each number becomes the text that a csv would have, from which
    the same number is read again.

    Args:
        rows: a mapping for each record: column -> a number, text, true or false, None, or (nested)
            lists of numbers.
        name: the name of the origin of the queries in messages.

    Raises:
        DataError: there are no records, or a column is not in all of them. A column that cannot be
            read is refused when it is asked for.
    """
    if not rows:
        raise DataError(f"{name}: there are no queries; at least one is needed")
    for record_number, row in enumerate(rows, start=1):
        different = row.keys() ^ rows[0].keys()
        if different:
            raise DataError(
                f"{name}: record 1 and record {record_number} have different keys (only one of "
                f"these records has '{min(different)}'): give every record the same keys"
            )

    def read(key: str) -> np.ndarray | pa.Array:
        return _column_of_values([row[key] for row in rows], f"{name}: '{key}'")

    def numbers(key: str) -> pa.Array:
        return pa.array([_number_or_none(row[key]) for row in rows], pa.float64())

    return ColumnReader(
        Path(name), tuple(rows[0]), read, is_from_json=True, numbers_among_text=numbers
    )


def _number_or_none(value: object) -> float | None:
    """Return a number as a float; None for everything else.

    A whole number beyond float64 is treated as text, which is refused later as such.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    with suppress(OverflowError):
        return float(value)
    return None


def _column_of_values(values: list[Any], where: str) -> np.ndarray | pa.Array:
    """Return the values of one column: numbers or truth values, text, or an array of vectors.

    Args:
        values: [n] the column's value in each record.
        where: the name of the column in messages.

    Raises:
        DataError: a value has no such type, or types are mixed that cannot be one column.
    """
    kinds = {type(value) for value in values} - {type(None)}
    if list in kinds:
        return _array_of_lists(values, where)
    if not kinds <= {str, bool, int, float}:
        raise DataError(f"{where}: this must be a number, text, true, false or null")
    if bool in kinds and len(kinds) > 1:
        raise DataError(
            f"{where}: true or false is mixed with other values: write all values in one form"
        )
    try:
        if kinds and str not in kinds:
            # Whole numbers too large for 64 bits raise, and become text.
            with suppress(pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
                return pa.array(values)
        return pa.array([as_word(value) for value in values], pa.string())
    except UnicodeEncodeError:
        raise DataError(
            f"{where}: the text contains half a character (a lone surrogate), so it is not valid "
            "text: correct or remove it"
        ) from None


def _array_of_lists(values: list[Any], where: str) -> np.ndarray:
    """Return (nested) lists of numbers as one array [n, ...].

    Whole numbers from 0 to 255 become uint8, because they are pixels.

    Args:
        values: [n] the list of each record.
        where: the name of the column in messages.

    Raises:
        DataError: lengths differ, or something is not a number.
    """
    try:
        array = np.array(values)
    except (ValueError, OverflowError):
        raise DataError(
            f"{where}: the lists have different lengths: give lists of the same length"
        ) from None
    # NumPy turns true into 1, so truth values are looked for among the Python objects.
    entries = np.array(values, dtype=object).ravel().tolist()
    if bool in set(map(type, entries)):
        raise DataError(f"{where}: lists of numbers are needed, but true and false are not numbers")
    are_whole = array.dtype.kind == "i" and array.size > 0
    if are_whole and array.min() >= 0 and array.max() <= _LARGEST_PIXEL:
        return array.astype(np.uint8)
    if array.dtype.kind not in "if":
        raise DataError(f"{where}: give lists of numbers, all of the same length")
    return array
