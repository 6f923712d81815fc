"""Records that a program sends as JSON, as columns."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from agt.data.cell_values import as_word
from agt.data.column_reader import ColumnReader
from agt.errors import DataError


def columns_of(rows: Sequence[Mapping[str, object]], name: str) -> ColumnReader:
    """The columns of records that a program sends as JSON, which all have the same ones.

    A value is read by itself, as everywhere: numbers are numbers and text is text, as in a parquet
    file; where a column has both, each number becomes the text that a csv would have, from which
    the same number is read again.

    Args:
        rows: column -> a number, text, true or false, None, or (nested) lists of numbers.
        name: what messages call where they come from.

    Raises:
        DataError: no records, or columns that are not in all of them.
    """
    if not rows:
        raise DataError(f"{name}: there are no queries; at least one is needed")
    for place, row in enumerate(rows, start=1):
        different = row.keys() ^ rows[0].keys()
        if different:
            raise DataError(
                f"{name}: record 1 and record {place} have different keys (only one of these "
                f"records has '{min(different)}'): give every record the same keys"
            )

    def read(key: str) -> np.ndarray | pa.Array:
        return _sent([row[key] for row in rows], f"{name}: '{key}'")

    def numbers(key: str) -> pa.Array:
        return pa.array([_number_sent(row[key]) for row in rows], pa.float64())

    return ColumnReader(Path(name), tuple(rows[0]), read, sent=True, numbers_among_text=numbers)


def _number_sent(value: object) -> float | None:
    # A number, and None for text; one beyond float64 stays text, which is refused as one.
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    with suppress(OverflowError):
        return float(value)
    return None


def _sent(values: list[Any], where: str) -> np.ndarray | pa.Array:
    kinds = {type(value) for value in values} - {type(None)}
    if list in kinds:
        return _sent_lists(values, where)
    if not kinds <= {str, bool, int, float}:
        raise DataError(f"{where}: this must be a number, text, true, false or null")
    if bool in kinds and len(kinds) > 1:
        raise DataError(
            f"{where}: true or false is mixed with other values: write all values in one form"
        )
    try:
        if kinds and str not in kinds:
            # whole numbers too large for 64 bits
            with suppress(pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
                return pa.array(values)
        return pa.array([as_word(value) for value in values], pa.string())
    except UnicodeEncodeError:
        raise DataError(
            f"{where}: the text contains half a character (a lone surrogate), so it is not valid "
            "text: correct or remove it"
        ) from None


def _sent_lists(values: list[Any], where: str) -> np.ndarray:
    # [n, ...]; whole numbers that fit a byte are pixels.
    try:
        array = np.array(values)
    except (ValueError, OverflowError):
        raise DataError(
            f"{where}: the lists have different lengths: give lists of the same length"
        ) from None
    if bool in set(map(type, np.array(values, dtype=object).ravel().tolist())):
        raise DataError(f"{where}: lists of numbers are needed, but true and false are not numbers")
    if array.dtype.kind == "i" and array.size and array.min() >= 0 and array.max() <= 255:
        return array.astype(np.uint8)
    if array.dtype.kind not in "if":
        raise DataError(f"{where}: give lists of numbers, all of the same length")
    return array
