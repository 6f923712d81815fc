"""Data frames of pandas and polars, one way."""

from typing import TYPE_CHECKING, Any, TypeAlias, Union

import numpy as np
import pandas as pd

from agt.errors import ConfigError

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
