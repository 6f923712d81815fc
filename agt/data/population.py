"""Whether queries are of the population that a model was trained for: values outside the
declared ranges and lists.
"""

from collections.abc import Iterable
from dataclasses import dataclass

FEW_VALUES = 20
"""Fewer values of a column of queries than this show little: only those far outside count."""

MIN_UNLISTED = 2
"""Of few words, as many in no list are a sign; one of them counts as other."""

MAX_RATE_OUTSIDE = 0.2
"""A column of queries with more values outside looks like another population's."""


@dataclass(frozen=True)
class Outside:
    """Values of one column of queries that lie outside what was declared public of it.

    Attributes:
        column: its name.
        count, total: how many of how many values; 0 of 0: the column has none.
        declared: the range or list, in words.
        seen: what was met, in words.
        far: how many of them are in no list, or farther from the range than it is wide.
        is_list: whether a list was declared, in which no further word has to be.
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
        """The share of values outside; 1 where there are none at all."""
        return self.count / self.total if self.total else 1.0


def population_mismatches(outside: Iterable[Outside], queries: int) -> list[str]:
    """Why queries look like another population's than was declared, in words; empty: they do not.

    More than a fifth of a column's values lie outside its range or list. Of fewer than 20 values
    only those count that are in no list, or farther from the range than it is wide, because one of
    them may well be a little outside; so a single query can be judged. A word in no list counts as
    "other", as was declared, so a single one of a column is no sign, unless more than half of all
    words of the queries are in no list. It depends on the queries and the declared constants alone.

    Args:
        outside: of each column.
        queries: how many there are.
    """
    parts = list(outside)
    lists = [part for part in parts if part.is_list]
    unlisted = sum(part.count for part in lists)
    words = sum(part.total for part in lists)
    mostly_unlisted = unlisted >= MIN_UNLISTED and 2 * unlisted > words
    mismatches = []
    for part in parts:
        counted = part.count if part.total >= FEW_VALUES else part.far
        if part.is_list and counted < MIN_UNLISTED and not mostly_unlisted:
            counted = 0
        empty = not part.total and queries >= FEW_VALUES
        if empty or counted > MAX_RATE_OUTSIDE * part.total:
            values = f"{counted:,} of {part.total:,} values of column '{part.column}'"
            mismatches.append(
                f"{values} lie outside {part.declared}, so these queries may come from "
                "another population than the training records"
            )
    return mismatches
