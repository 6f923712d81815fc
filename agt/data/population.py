"""Whether queries fit the declared ranges and lists of the training data.

Queries with many values outside of them may come from another population, for which the model was
not trained. ``numbers_outside`` and ``words_outside`` count such values in one column of a file or
of a block, ``sum_over_blocks`` adds up blocks, and ``population_mismatches`` judges the columns.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

import numpy as np

from agt.errors import few

FEW_VALUES = 20
"""Of fewer values of a column, only those far outside count, because so few show little."""

MIN_UNLISTED = 2
"""A single word that is not listed is read as "other", as was declared, and is no mismatch."""

MAX_RATE_OUTSIDE = 0.2
"""A column of queries is a mismatch if a larger share of its values is outside."""


@dataclass(frozen=True)
class Outside:
    """Values of one column of queries that lie outside what was declared public of it.

    Attributes:
        column: its name.
        count, total: the number of values outside, and of all values; total 0: the column has none.
        declared: the range or list, as text.
        seen: the values of the column, as text: their range, or examples of unlisted words.
        far: the number of values that are not listed, or farther from the range than it is wide.
        is_list: whether a list was declared.
    """

    column: str
    count: int
    total: int
    declared: str
    seen: str
    far: int = 0
    is_list: bool = False

    @property
    def rate(self) -> float:
        """The share of values outside; 1 if the column has no values."""
        return self.count / self.total if self.total else 1.0


def numbers_outside(
    column: str, numbers: np.ndarray, limits: Sequence[float], as_text: Callable[[float], str]
) -> Outside:
    """Count the numbers of a column that are outside of its range.

    Args:
        column: its name.
        numbers: [n] float64, NaN where missing.
        limits: the range, its ends first and last.
        as_text: writes a number of this column for people.
    """
    low = limits[0]
    high = limits[-1]
    present = numbers[~np.isnan(numbers)]
    outside = present[(present < low) | (present > high)]
    with np.errstate(over="ignore"):
        distance = np.maximum(low - outside, outside - high)
    seen = "no value"
    if len(present):
        seen = f"{as_text(present.min())} to {as_text(present.max())}"
    return Outside(
        column,
        count=len(outside),
        total=len(present),
        declared=f"[{as_text(low)}, {as_text(high)}]",
        seen=seen,
        far=int((distance > high - low).sum()),
    )


def words_outside(column: str, words: np.ndarray, listed: Sequence[str]) -> Outside:
    """Count the words of a column that are not in its list.

    Args:
        column: its name.
        words: [n] text, None where missing.
        listed: the values of the list, as text.
    """
    rows_with = Counter(words.tolist())  # words as they occur first
    missing = rows_with.pop(None, 0)
    known = set(listed)
    unlisted = {word: rows for word, rows in rows_with.items() if word not in known}
    count = sum(unlisted.values())
    seen = few(map(repr, unlisted)) if rows_with else "no value"
    return Outside(
        column,
        count=count,
        total=len(words) - missing,
        declared=f"the {len(listed)} listed",
        seen=seen,
        far=count,
        is_list=True,
    )


def population_mismatches(outside: Iterable[Outside], queries: int) -> list[str]:
    """Return sentences on columns that look like another population's; empty: no column does.

    A column is a mismatch if more than a fifth of its values are outside its range or list. Of
    fewer than 20 values, only those count that are not listed, or that are farther from the range
    than it is wide, because a single value may well be a little outside; so even one query can be
    judged. A single unlisted word of a column is no mismatch, because it is read as "other", unless
    more than half of all words of the queries are unlisted. The result depends on the queries and
    the declared constants alone.

    Args:
        outside: the values outside, for each column.
        queries: the number of queries.
    """
    columns = list(outside)
    lists = [column for column in columns if column.is_list]
    unlisted = sum(column.count for column in lists)
    words = sum(column.total for column in lists)
    mostly_unlisted = unlisted >= MIN_UNLISTED and 2 * unlisted > words
    mismatches = []
    for column in columns:
        counted = column.count if column.total >= FEW_VALUES else column.far
        if column.is_list and counted < MIN_UNLISTED and not mostly_unlisted:
            counted = 0
        is_empty = not column.total and queries >= FEW_VALUES
        if is_empty or counted > MAX_RATE_OUTSIDE * column.total:
            values = f"{counted:,} of {column.total:,} values of column '{column.column}'"
            mismatches.append(
                f"{values} lie outside {column.declared}, so these queries may come from "
                "another population than the training records"
            )
    return mismatches


def sum_over_blocks(parts: Iterable[Outside]) -> tuple[Outside, ...]:
    """Return the values outside of the declarations for a whole file, from those of its blocks.

    The counts of a column are added. The values that are named are those of the block that has
    most of them.

    Args:
        parts: one for each column and block.

    Returns:
        One for each column, without columns all of whose values fit.
    """
    blocks_of_column: dict[str, list[Outside]] = {}
    for part in parts:
        blocks_of_column.setdefault(part.column, []).append(part)
    sums = []
    for blocks in blocks_of_column.values():
        count = sum(block.count for block in blocks)
        total = sum(block.total for block in blocks)
        far = sum(block.far for block in blocks)
        if total and not count:
            continue
        largest = max(blocks, key=attrgetter("count"))
        seen = largest.seen
        if sum(block.count > 0 for block in blocks) > 1:
            seen += ", among others"
        sums.append(replace(largest, count=count, total=total, far=far, seen=seen))
    return tuple(sums)
