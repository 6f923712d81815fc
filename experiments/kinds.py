"""A kind turns the runs of one artifact into a tidy table, and says how the table is shown.

A kind is a function: the profiles come first, its other parameters are the settings in
experiments/NAME.yaml. It returns a ``Kind``: how to get the rows (one for each point, with named
columns, for all profiles), and what is shown of them. ``rendering.render`` does the rest, for every
kind alike.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass
from inspect import signature
from itertools import product
from typing import Any, get_type_hints

import pandas as pd
from pydantic.dataclasses import dataclass as validated

from agt.settings import STRICT, validate

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


@dataclass(frozen=True)
class Kind:
    """A kind with its settings.

    Attributes:
        keys: the settings that the rows go through, the profile among them: known before anything
            is trained.
        index: the columns that tell the rows apart.
        rows: the tidy table.
        shown: of the rows, unless there are none.
        compared: of a measured row, from its key alone: published number -> column that stands
            beside it.
    """

    keys: Sequence[Key]
    index: tuple[str, ...]
    rows: Callable[[Entry], pd.DataFrame]
    shown: Callable[[pd.DataFrame], Shown] = Shown
    compared: Callable[[Key], Mapping[str, str]] = lambda key: {}


KINDS: dict[str, Callable[[Profiles, Mapping[str, Any], str], Kind]] = {}


def kind(function: Callable[..., Kind]) -> Callable[..., Kind]:
    """Enter a function in ``KINDS`` by its name: profiles, settings as a definition gives them and
    their key -> kind.

    There, a setting that is no parameter of it, or not of its type, is a ConfigError that names its
    key.
    """
    hints = get_type_hints(function, include_extras=True)
    _, *parameters = signature(function).parameters.values()
    fields: list[Any] = []
    for parameter in parameters:
        about = (parameter.name, hints[parameter.name])
        if parameter.default is parameter.empty:
            fields.append(about)
        else:
            fields.append((*about, field(default=parameter.default)))
    unchecked = make_dataclass(function.__name__, fields, kw_only=True, frozen=True)
    settings = validated(frozen=True, config=STRICT)(unchecked)

    def typed(profiles: Profiles, node: Mapping[str, Any], where: str) -> Kind:
        return function(profiles, **vars(validate(settings, node, where)))

    KINDS[function.__name__] = typed
    return function


def grid(**columns: Iterable[Any]) -> list[Key]:
    """A key for each combination, the last column changing fastest."""
    return [dict(zip(columns, values, strict=True)) for values in product(*columns.values())]


def through(
    keys: Iterable[Key], measure: Callable[[Entry, Key], Iterable[Key]]
) -> Callable[[Entry], pd.DataFrame]:
    """Rows that go through ``keys``: at each, the points that ``measure`` finds there."""

    def rows(entry: Entry) -> pd.DataFrame:
        found = []
        for key in keys:
            found += [{**key, **row} for row in measure(entry, key)]
        return pd.DataFrame(found)

    return rows


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
