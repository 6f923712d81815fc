"""A kind turns the runs of one artifact into a tidy table, and says how the table is shown.

A kind is a subclass of ``Kind``, entered under the name that experiments/NAME.yaml gives. Its
``rows`` are one for each point, with named columns, for all profiles. ``rendering.render`` writes
files of them, for every kind alike.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, ClassVar

import pandas as pd

from agt.settings import keyword_schema

from .entry import Entry, Key, Profiles
from .figures import Draw

EVERY = "every profile"  # in the column ``profile``: measured once, for all of them


@dataclass(frozen=True)
class Figure:
    """One figure.

    Attributes:
        caption: a sentence that says what it shows.
        points: the data that is drawn, which becomes the figure's CSV file.
        draw: draws the points, and writes the figure's files.
        name: the end of the figure's name, after that of the artifact.
    """

    caption: str
    points: pd.DataFrame
    draw: Draw
    name: str = ""


@dataclass(frozen=True)
class Shown:
    """What is shown of an artifact's rows.

    Attributes:
        table: the table below the figures.
        figures: the figures.
        notes: sentences for the report.
        measured: the rows that are compared with published numbers, each with its key; None: those
            of the table.
        extra: further tables, by the end of their names, after that of the artifact.
    """

    table: pd.DataFrame
    figures: Sequence[Figure] = ()
    notes: tuple[str, ...] = ()
    measured: pd.DataFrame | None = None
    extra: Mapping[str, pd.DataFrame] = field(default_factory=dict)


@keyword_schema
class Kind:
    """One kind of figure or table: a subclass's fields are its settings in experiments/NAME.yaml.

    A kind says what is computed (``keys``, ``measure`` or ``rows``), what is shown of it
    (``shown``), and which published numbers stand beside it (``compared``).

    Attributes:
        profiles: those asked for, by name; they are given by the experiment, not by settings.
        index: the columns that tell the rows apart, the profile among them.
    """

    profiles: Profiles
    index: ClassVar[tuple[str, ...]]

    @property
    def keys(self) -> list[Key]:
        """The keys of the rows, in their order, which are known before anything is trained."""
        raise NotImplementedError

    def measure(self, entry: Entry, key: Key) -> Iterable[Key]:
        """Return the points at one key: columns by name, without those of the key."""
        raise NotImplementedError

    def rows(self, entry: Entry) -> pd.DataFrame:
        """Return the tidy table of an artifact: the points of every key."""
        return tidy(self.keys, lambda key: self.measure(entry, key))

    def shown(self, rows: pd.DataFrame) -> Shown:
        """Return what is shown of ``rows``, of which there is at least one."""
        return Shown(rows)

    def compared(self, key: Key) -> Mapping[str, str]:
        """Return, for a measured row, which column stands beside which published number.

        Args:
            key: the row, of which only the columns of a key are read.
        """
        return {}


def tidy(keys: Iterable[Key], measure: Callable[[Key], Iterable[Key]]) -> pd.DataFrame:
    """Return a table with a row for each point that ``measure`` returns for each key."""
    return pd.DataFrame([{**key, **point} for key in keys for point in measure(key)])


def grid(**columns: Iterable[Any]) -> list[Key]:
    """Return a key for each combination of values, the last column changing fastest."""
    return [dict(zip(columns, values, strict=True)) for values in product(*columns.values())]


def wide(
    rows: pd.DataFrame,
    about: Sequence[str],
    column: str,
    value: str,
    wanted: Iterable[Any],
    name: str,
) -> pd.DataFrame:
    """Return a table in which several rows of another one are columns beside one another.

    Args:
        rows: the table.
        about: the columns that tell the new rows apart.
        column: the column whose values become columns.
        value: the column whose numbers become the cells; a number that is missing becomes NaN.
        wanted: which values of ``column`` become columns.
        name: a format string that makes the title of a column from its value.
    """
    values = rows.set_index([*about, column])[value]
    cells = values.unstack(sort=False).reindex(columns=list(wanted))
    return cells.rename(columns=name.format).reset_index().rename_axis(columns=None)
