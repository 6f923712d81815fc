"""Curves of the papers' figures: accuracy against budgets, flips against distance.

Same style as the command's own figures (agt_cli/report/figures.py).
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from pandas.api.types import is_integer_dtype, is_numeric_dtype

from agt_cli.report.figures import (
    CURVE_GID,
    DASHES,
    PANELS_PER_ROW,
    WIDTH,
    draw_legend,
    end_axes_at_data,
    end_axes_at_ticks,
    legend_columns,
    line_styles,
    panels_in_order,
    saved_figure,
    set_log_ticks,
    widen_covered_curves,
    wrap_text,
)
from agt_cli.report.record import RunRecord

MOST_ACROSS = 3  # panels in one row
WIDTHS = {1: 6.8, 2: 6.8, 3: 8.6}  # inches, by the number of panels in a row
LONGEST_BESIDE = 36  # characters of a name at the right of a panel; longer ones stand below it
JOINED = " =\n"  # between the names of curves that are equal
VARIANT = re.compile(r"(?P<method>.+?)(?P<before>, | \()(?P<variant>T = \d+|[^()]*)(?P<after>\)?)")
"""A series that is a variant of a method: "DP-SGD, T = 25", "DP-SGD (ours)"."""


Looks = dict[str, dict[str, Any]]
"""Name of a series -> matplotlib's arguments of its line."""


@dataclass(frozen=True)
class Curves:
    """What one figure shows.

    Attributes:
        name: of its files.
        x, y: column names of the data; ``series`` names the curve of each row. A column ``low`` and
            ``high``, where there is one, is drawn as a band: something was sampled. Where there
            are columns ``method``, ``members`` or ``profile``, they decide how a curve looks.
        xlabel, ylabel: words.
        log, ylog: logarithmic axes.
        level, level_name: a horizontal line to compare with, and what it is.
        panels: the column that names the panel of each row.
        order: of the panels, by their names; empty: as they come.

        steps: between two places a curve has the value of the next: of a certified fraction, which
            can only fall, a bound.
        words: a series' name -> what its line goes by.
        beside: what each line is stands at the right of one panel, and not below it, unless a name
            is long.
        upright: columns whose values, alike in all rows, are drawn as vertical lines that go by
            their names.
        looks: the name of a series -> what differs in how its line looks, as matplotlib's
            arguments of a line: {"marker": ""} for a curve that is exact and not measured.
        share: the y axis is a share and goes from 0 to 1, whatever the data.
        inside: the lines' names stand in the upper right corner of the first panel.
    """

    name: str
    x: str
    y: str
    xlabel: str
    ylabel: str

    log: bool = True
    ylog: bool = False
    level: float | None = None
    level_name: str = "noise-free"
    panels: str | None = None
    order: tuple[str, ...] = ()

    steps: bool = False
    words: Callable[[str], str] = str
    beside: bool = False
    upright: tuple[str, ...] = ()
    looks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    share: bool = False
    inside: bool = False

    @property
    def levels(self) -> tuple[str, ...]:
        """The names of the straight lines that are drawn to compare with."""
        return self.upright if self.level is None else (self.level_name, *self.upright)


def curves(record: RunRecord, chart: Curves, data: pd.DataFrame) -> None:
    """Draw ``data``'s curves, in panels where ``chart.panels`` names a column.

    Curves that are equal all along, to what print can show, are one curve with all their names.
    Where one runs on another over a part of its way, the one below is wider.
    """
    drawn_data, first_names = _with_equal_curves_joined(chart, data)
    parts: list[tuple[Any, pd.DataFrame]] = [("", drawn_data)]
    if chart.panels is not None:
        parts = panels_in_order(list(drawn_data.groupby(chart.panels, sort=False)), chart.order)
    style = {}
    for name, look in _styles(drawn_data).items():
        style[name] = {**look, **chart.looks.get(first_names[name], {})}
    across = len(parts) if len(parts) <= MOST_ACROSS else PANELS_PER_ROW
    names = [*map(chart.words, style), *chart.levels]
    name_lines = [line for name in names for line in name.split("\n")]
    short = max(map(len, name_lines)) <= LONGEST_BESIDE
    beside = chart.beside and across == 1 and short
    down = math.ceil(len(parts) / across)
    width = WIDTHS[across] if across > 1 or beside else WIDTH
    legend = 0.0
    if not (beside or chart.inside):
        legend = 0.2 * math.ceil(len(name_lines) / legend_columns(names, width))
    with saved_figure(record, chart.name, data, (width, 1.1 + 2.7 * down + legend)) as figure:
        panels = figure.subplots(down, across, squeeze=False, sharey=True, sharex=True)
        places = panels.ravel().tolist()
        for axes, (panel, part) in zip(places, parts, strict=False):
            _panel(axes, chart, part, style)
            axes.set_title(chart.words(str(panel)))
        _ticks(places[0], chart, data)
        drawn = places[: len(parts)]
        end_axes_at_data(drawn, "x")
        if chart.share:
            for axes in drawn:
                axes.set_ylim(-0.02, 1.02)
                axes.set_yticks(np.linspace(0, 1, 6))
                axes.spines["left"].set_bounds(0, 1)
        elif chart.ylog:
            end_axes_at_data(drawn, "y")
        else:
            end_axes_at_ticks(drawn, "y")
        widen_covered_curves(drawn)
        for axes in places[len(parts) :]:
            axes.set_axis_off()
        for axes in drawn[-across:]:
            axes.tick_params(labelbottom=True)
            axes.set_xlabel(chart.xlabel)
        for axes in drawn[::across]:
            axes.set_ylabel(wrap_text(chart.ylabel, 3))
        if chart.inside:
            drawn[0].legend(loc="upper right")
        else:
            draw_legend(figure, drawn, beside)


def _with_equal_curves_joined(
    chart: Curves, data: pd.DataFrame
) -> tuple[pd.DataFrame, dict[str, str]]:
    """Return the data with one series for all curves that nobody could tell apart, and the first of
    its curves by the name of each series, whose looks it keeps.

    A curve with a band around it, because it was sampled, is left as it is.
    """
    place = [chart.x] if chart.panels is None else [chart.panels, chart.x]
    values = data.pivot_table(index=place, columns="series", values=chart.y, sort=False)
    if chart.ylog:  # print shows ratios
        values = values.where(values > 0).map(np.log)
    span = 0.0
    if values.notna().any(axis=None):
        span = float(np.nanmax(values) - np.nanmin(values))
    sampled: set[str] = set()
    if "low" in data:
        sampled = set(data.loc[data["low"].notna(), "series"])
    groups: dict[str, list[str]] = {}  # the first of equal curves -> all of them
    for name in map(str, values):
        alike = name
        if name not in sampled:
            others = (other for other in groups if other not in sampled)
            alike = next((other for other in others if _alike(values, other, name, span)), name)
        groups.setdefault(alike, []).append(name)
    joined = {first: _joined_name(group) for first, group in groups.items()}
    first = data[data["series"].isin(list(joined))]
    first_names = {name: first_name for first_name, name in joined.items()}
    return first.assign(series=first["series"].map(joined)), first_names


def _joined_name(names: list[str]) -> str:
    """Return one name of curves that are equal.

    Where every method is there in every variant, each is named once: "one (a and b)".
    """
    parts = [VARIANT.fullmatch(name) for name in names]
    matches = [part for part in parts if part is not None]
    methods = list(dict.fromkeys(part["method"] for part in matches))
    variants = list(dict.fromkeys(part["variant"] for part in matches))
    signs = {(part["before"], part["after"]) for part in matches}
    every_combination = len(matches) == len(names) == len(methods) * len(variants)
    if not every_combination or len(signs) != 1:
        return JOINED.join(names)
    ((before, after),) = signs
    sign = "T = " if variants[0].startswith("T = ") else ""
    values = " and ".join(variant.removeprefix(sign) for variant in variants)
    return f"{JOINED.join(methods)}{before}{sign}{values}{after}"


def _alike(values: pd.DataFrame, one: str, other: str, span: float) -> bool:
    """Return whether two curves have their points at the same places, a thousandth of the figure's
    height apart at most.
    """
    allowed = 1e-3 * span
    return np.allclose(values[one], values[other], rtol=0, atol=allowed, equal_nan=True)


def _styles(data: pd.DataFrame) -> Looks:
    """Return how each series looks, the same in every figure.

    Colour and marker are the method's, dashes say how many members vote, and the published rules
    have empty markers.
    """
    if "method" not in data:
        return line_styles([str(name) for name in dict.fromkeys(data["series"])])
    by_method = line_styles([str(name) for name in dict.fromkeys(data["method"])])
    sizes = sorted(set(data["members"]) - {0}) if "members" in data else []
    styles: Looks = {}
    for row in data.drop_duplicates("series").to_dict("records"):
        style = dict(by_method[str(row["method"])])
        published = row.get("profile") == "paper"
        if sizes and row["members"]:
            style["linestyle"] = DASHES[sizes.index(row["members"]) % len(DASHES)]
        elif sizes:
            style["linestyle"] = (0, (7, 1.5, 1, 1.5, 1, 1.5))  # of no ensemble
        elif "profile" in row:
            style["linestyle"] = "--" if published else "-"
        if published:
            style["markerfacecolor"] = "white"
        styles[str(row["series"])] = style
    return styles


def _ticks(axes: Axes, chart: Curves, data: pd.DataFrame) -> None:
    """Few and round, with numbers as people write them; whole ones where the data is whole."""
    for axis, column, log in ((axes.xaxis, chart.x, chart.log), (axes.yaxis, chart.y, chart.ylog)):
        if log:
            set_log_ticks(axis, data[column])
        elif is_numeric_dtype(data[column]):
            axis.set_major_locator(
                MaxNLocator(
                    6,
                    steps=[1, 2, 2.5, 5, 10],
                    integer=is_integer_dtype(data[column]),
                    min_n_ticks=3,
                )
            )


def _panel(axes: Axes, chart: Curves, part: pd.DataFrame, style: Looks) -> None:
    steps: dict[str, Any] = {"drawstyle": "steps-pre"} if chart.steps else {}
    for name, rows in part.sort_values(chart.x, kind="stable").groupby("series", sort=False):
        marks: dict[str, Any] = {
            "markersize": 3.5,
            "markevery": max(1, len(rows) // 10),
            "linewidth": 1.4,
            "gid": CURVE_GID,
        }
        look = {**marks, **steps, **style[str(name)]}
        axes.plot(rows[chart.x], rows[chart.y], label=chart.words(str(name)), **look)
        if "low" in rows and rows["low"].notna().any():
            colour = style[str(name)]["color"]
            axes.fill_between(
                rows[chart.x],
                rows["low"],
                rows["high"],
                color=colour,
                alpha=0.15,
                linewidth=0,
                step="pre" if chart.steps else None,
            )
    if chart.level is not None:
        dotted = (0, (1, 2))
        axes.axhline(
            chart.level, color="black", linewidth=0.8, linestyle=dotted, label=chart.level_name
        )
    for place, name in enumerate(chart.upright):
        axes.axvline(
            part[name].iloc[0],
            color="0.5",
            linewidth=0.8,
            linestyle=DASHES[1 + place % 3],
            label=name,
        )
    if chart.log:
        axes.set_xscale("log")
    if chart.ylog:
        axes.set_yscale("log")
        # the line alone, which has no scale of its own
        if chart.level is not None and part[chart.y].isna().all():
            axes.set_ylim(chart.level / 10, chart.level * 2)
