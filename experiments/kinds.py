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
        caption: what it shows.
        points: what is drawn; its CSV.
        draw: draws the points, and writes the figure's files.
        name: added to the artifact's.
    """

    caption: str
    points: pd.DataFrame
    draw: Draw
    name: str = ""


@dataclass(frozen=True)
class Shown:
    """What is shown of an artifact's rows.

    Attributes:
        table: below the figures.
        extra: further tables, by what is added to the artifact's name.
        measured: the rows that numbers are compared from, each with its key; None: the table.
        notes: sentences for the report.
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
        """What the rows go through; it is known before anything is trained."""
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
    """A key for each combination, the last column changing fastest."""
    return [dict(zip(columns, values, strict=True)) for values in product(*columns.values())]


def wide(
    rows: pd.DataFrame,
    about: Sequence[str],
    column: str,
    value: str,
    wanted: Iterable[Any],
    name: str,
) -> pd.DataFrame:
    """A row for each distinct ``about``; beside it ``value`` at each wanted ``column``, under
    ``name``; NaN: no such.
    """
    values = rows.set_index([*about, column])[value]
    cells = values.unstack(sort=False).reindex(columns=list(wanted))
    return cells.rename(columns=name.format).reset_index().rename_axis(columns=None)
