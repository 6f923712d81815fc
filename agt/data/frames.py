"""Data frames of pandas and polars, and their columns."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Union

import numpy as np
import pandas as pd
import pyarrow as pa

from agt.data.column_reader import ColumnReader
from agt.errors import ConfigError, DataError

if TYPE_CHECKING:
    import polars as pl

Features: TypeAlias = Union[np.ndarray, pd.DataFrame, "pl.DataFrame"]
"""Records or queries: an array [n, ...], or a data frame of n rows."""


def as_pandas(x: Any) -> Any:
    """Return a polars frame as a pandas one, and any other value unchanged.

    Raises:
        ConfigError: a lazy frame, of which there are no rows yet.
    """
    kind = type(x)
    if kind.__module__.partition(".")[0] != "polars":
        return x
    if kind.__name__ == "LazyFrame":
        raise ConfigError(
            "x: a lazy frame of polars has not computed its rows yet: give x.collect()"
        )
    return x.to_pandas() if kind.__name__ == "DataFrame" else x.to_numpy()


def columns_of_frame(frame: object) -> ColumnReader:
    """Return a reader of the columns of a data frame; raises ConfigError if it is none."""
    if not isinstance(frame, pd.DataFrame):
        raise ConfigError(
            f"columns=agt.Columns(...) needs a pandas data frame, but got {type(frame).__name__}"
        )
    names = tuple(map(str, frame.columns))
    index_of = {name: index for index, name in enumerate(names)}

    def read(name: str) -> pa.Array:
        return _to_arrow(frame.iloc[:, index_of[name]], name)

    return ColumnReader(Path("data frame"), names, read)


def _to_arrow(column: pd.Series, name: str) -> pa.Array:
    """Return the values of a column of a data frame as an array of Arrow.

    Arrow reads a column of objects as if all were of the type of the first, so values of several
    types are refused.

    Args:
        column: [n] values, a column of a data frame.
        name: the column, for the message.

    Raises:
        DataError: the values have several types.
    """
    is_categorical = isinstance(column.dtype, pd.CategoricalDtype)
    values = column.cat.categories if is_categorical else column
    if values.dtype == object:
        types = {_type_in_words(value) for value in values[~pd.isna(values)]}
        if len(types) > 1:
            raise DataError(
                f"data frame: column '{name}' contains {' and '.join(sorted(types)[:2])}: write "
                "all values in one form"
            )
    array = pa.array(column, from_pandas=True)
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _type_in_words(value: Any) -> str:
    """Return the name of a value's type in messages; times differ by their time zones."""
    if isinstance(value, str):
        return "text"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "numbers"
    zone = getattr(value, "tzinfo", None)
    return f"{type(value).__name__} of {zone}" if zone else type(value).__name__
