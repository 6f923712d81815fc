"""What settings of several datasets have in common: words and names as tables have them, ranges.

Nothing here imports NumPy, pandas or PyArrow, so that a mistake in a setting is answered at once.
"""

import math
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any

from pydantic import BeforeValidator

from agt.errors import ConfigError
from agt.messages import Message

MAX_FEATURES = 2**16
CLASSES = "classes"
"""The name of the list of classes in ``from_data`` and ``MeasurementNote.of``."""
SIZE = "size"
"""The name of the declared size in ``MeasurementNote.of``."""
DECLARED_SIZE = "declared_size"
"""The name of the declared size in ``proposed_from_rows``."""


def is_far_size(size: float, count: int) -> bool:
    """Return whether a declared size is ten times a number of records or more, or at most a tenth.

    Args:
        size: the declared size.
        count: the number of records that it should be near.
    """
    return not count < 10 * size < 100 * count


def _refuse_bool(value: object) -> object:
    """Return the value, or raise ValueError if it is true or false, which text must quote."""
    if isinstance(value, bool):
        raise ValueError(f"{value!r} is not text: put this value in quotes, written as in the data")
    return value


LabelWord = Annotated[str | int, BeforeValidator(_refuse_bool)]
"""A value of the data in a configuration. True and false are refused, because they would become 1
and 0.
"""


def _name_as_text(value: object) -> object:
    """Return a number as text, and everything else unchanged."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return value


ColumnName = Annotated[str, BeforeValidator(_name_as_text)]
"""A column's name in a configuration, where 2 without quotes is a number."""


def as_number(value: Any) -> Any:
    """Return a date as days since 1970-01-01, and everything else unchanged."""
    if isinstance(value, str) and re.match(r"\d{4}-\d", value):
        from agt.data.formats import days  # here, because PyArrow takes long to load

        return days(value)
    return value


Limits = tuple[Annotated[float, BeforeValidator(as_number)], ...]


def check_edges(name: str, edges: Sequence[float]) -> None:
    """Raise ValueError unless the numbers increase, and span a range that can be scaled without
    overflow.
    """
    for low, high in pairwise(edges):
        if low >= high:
            raise ValueError(
                f"{name}: the limits of a range, or the edges of bins, must increase, but "
                f"{low:g} is followed by {high:g}"
            )
    if not math.isfinite(2 * (edges[-1] - edges[0])):
        wide = [edges[0], edges[-1]]
        raise ValueError(
            f"{name}: the range {wide} is too wide to compute with: give the range in which the "
            "values really are"
        )


MAX_LABEL = 1e100
"""The largest number that labels may be: sums of squared errors of larger ones overflow."""


def check_label_range(low: float, high: float) -> None:
    """Raise ConfigError unless two numbers are the ends of a range of numeric labels.

    Args:
        low, high: the ends; they and their difference must be finite, neither may be beyond
            ``MAX_LABEL``, and a float must lie between them as their middle, because labels are
            scaled by their distance to it.
    """
    if not all(map(math.isfinite, (low, high, high - low))):
        raise ConfigError(
            Message(
                "{config:dataset.range}=[{low:g}, {high:g}]: give two finite numbers whose "
                "difference is finite too",
                low=low,
                high=high,
            )
        )
    if max(abs(low), abs(high)) > MAX_LABEL:
        raise ConfigError(
            Message(
                "{config:dataset.range}=[{low:g}, {high:g}]: numbers above {largest:g} in absolute "
                "value are too large to square, which errors are, so give labels in a larger unit",
                low=low,
                high=high,
                largest=MAX_LABEL,
            )
        )
    if not low < high:
        raise ConfigError(
            Message(
                "{config:dataset.range}=[{low:g}, {high:g}]: the range must have a width above 0, "
                "so give a lower end that is below the upper one",
                low=low,
                high=high,
            )
        )
    if not low < low + (high - low) / 2 < high:
        raise ConfigError(
            Message(
                "{config:dataset.range}=[{low!r}, {high!r}]: no floating-point number is the "
                "middle of this range, so give a wider one",
                low=float(low),
                high=float(high),
            )
        )
