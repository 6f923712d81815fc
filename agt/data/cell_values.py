"""Values of a column as text: one value by itself, whatever the others are."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from agt.data.arrays import ROWS, block_slices

NULLS = ["", "NA", "N/A", "NaN", "nan", "null", "NULL"]
"""What in a csv stands for a missing value."""
_CAST_TO_TEXT = (
    *(pa.types.is_binary, pa.types.is_fixed_size_binary),
    *(pa.types.is_binary_view, pa.types.is_string_view),
)


def is_text(column: pa.Array) -> bool:
    """Return whether a column holds text."""
    return pa.types.is_string(column.type) or pa.types.is_large_string(column.type)


def to_plain_type(column: pa.Array) -> pa.Array:
    """Return the same values in one of the types that every function of Arrow takes.

    Bytes become text, and half precision becomes double (as a number that is read from it always
    did).

    Raises:
        ArrowInvalid: some bytes are not text in UTF-8.
    """
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        if kind.extension_name == "arrow.uuid":
            return to_text(column)
        if kind.extension_name == "arrow.bool8":
            return column.storage.cast(pa.bool_())
        if kind.extension_name == "arrow.json":
            return to_plain_type(column.storage)
        return column  # what an unknown type stores (of a period, its number) is not what it says
    if pa.types.is_float16(kind):
        return column.cast(pa.float64())
    if pa.types.is_large_binary(kind):
        return column.cast(pa.large_string())
    if any(is_kind(kind) for is_kind in _CAST_TO_TEXT):
        return column.cast(pa.string())
    return column


def as_word(value: object) -> str | None:
    """Return a value as text, a whole number without a decimal point; None if it is missing.

    Args:
        value: a cell as Python has it; None or NaN is missing.
    """
    if value is None or value != value:
        return None
    if isinstance(value, Decimal):
        # Arrow writes as many decimals as the whole column has, so trailing zeros say nothing.
        digits, _, decimals = f"{value:f}".partition(".")
        if not decimals:
            return digits
        return f"{digits}.{decimals}".rstrip("0").rstrip(".")
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def to_text(column: pa.Array) -> pa.Array:
    """Return each value of a column as text, as ``as_word`` writes it; missing ones are null."""
    return pa.array([as_word(value) for value in column.to_pylist()], pa.string())


def missing_word(word: str | None) -> bool:
    """Return whether text means a missing value: None, blank, or one of the ``NULLS``."""
    return word is None or word.strip() in NULLS


def to_numpy_text(words: pa.Array) -> np.ndarray:
    """Return text as a NumPy array [n] of str, whose width is that of the longest value.

    Args:
        words: text, none missing. It is copied in pieces, because there may be millions.
    """
    width = pc.max(pc.utf8_length(words)).as_py() or 1
    names = np.empty(len(words), f"U{width}")
    for rows in block_slices(len(words), ROWS):
        names[rows] = words[rows].to_numpy(zero_copy_only=False)
    return names
