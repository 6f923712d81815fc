"""Curves of private prediction: accuracy against budgets, flips against distance. Same style as report/figures.py.

Each curve has its own dash and marker beside its colour, so that grey print keeps them apart.
"""

import math
import re
from dataclasses import dataclass
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter
from pandas.api.types import is_integer_dtype, is_numeric_dtype

from agt_cli.report.figures import WIDTH, columns_of, drawing, ends, headline, keys
from agt_cli.report.record import RunRecord

# Each mechanism looks the same in every figure; ours are dark and blue, those of the papers warm, comparisons grey.
STYLES: dict[str, dict[str, Any]] = {
    "release_weights": {"color": "black", "linestyle": "-", "marker": "P"},
    "release_weights mechanism.shrink=true": {"color": "0.25", "linestyle": "--", "marker": "p"},
    "randomized_response": {"color": "#08306b", "linestyle": "-", "marker": "o"},
    "gaussian_margin": {"color": "#2171b5", "linestyle": "--", "marker": "s"},
    "smooth_cauchy": {"color": "#d94801", "linestyle": "-", "marker": "v"},
    "smooth_laplace": {"color": "#fd8d3c", "linestyle": "--", "marker": "<"},
    "global_sensitivity": {"color": "#8c2d04", "linestyle": "-.", "marker": "x"},
    "noisy_argmax": {"color": "#238b45", "linestyle": "-.", "marker": "D"},
    "propose_test_release": {"color": "#74c476", "linestyle": ":", "marker": "^"},
    "inverse_sensitivity": {"color": "0.45", "linestyle": "--", "marker": "*"},
    "exponential_mechanism": {"color": "0.65", "linestyle": ":", "marker": "+"},
    "DP-SGD": {"color": "#6a51a3", "linestyle": "-", "marker": "h"},
}
ACROSS = 2  # panels side by side, at most
DASHES = ("-", "--", ":", "-.")
LINES: tuple[dict[str, Any], ...] = (
    {"color": "#08306b", "linestyle": "-", "marker": "o"},
    {"color": "#d94801", "linestyle": "--", "marker": "v"},
    {"color": "#2171b5", "linestyle": "-.", "marker": "s"},
    {"color": "#238b45", "linestyle": ":", "marker": "D"},
    {"color": "0.35", "linestyle": "--", "marker": "x"},
    {"color": "#fd8d3c", "linestyle": "-", "marker": "^"},
    {"color": "0.6", "linestyle": "-.", "marker": "+"},
    {"color": "black", "linestyle": ":", "marker": "*"},
)


@dataclass(frozen=True)
class Curves:
    """What one figure shows.

    Attributes:
        name: of its files.
        x, y: column names of the data; ``series`` names the curve of each row. A column ``low`` and ``high``, where there
            is one, is drawn as a band: something was sampled.
        xlabel, ylabel: words.
        title: what the data is.
        log, ylog: logarithmic axes.
        level, level_name: a horizontal line to compare with, and what it is.
        panels: the column that names the panel of each row; numbered panels stand in the order of their numbers.
        finding: what the figure shows, in a sentence.
        floor, floor_name: another, which takes no skill to reach.
        upright: columns whose values, alike in all rows, are drawn as vertical lines that go by their names.
    """

    name: str
    x: str
    y: str
    xlabel: str
    ylabel: str
    title: str
    log: bool = True
    ylog: bool = False
    level: float | None = None
    level_name: str = "noise-free"
    panels: str | None = None
    finding: str = ""
    floor: float | None = None
    floor_name: str = "majority"
    upright: tuple[str, ...] = ()

    @property
    def levels(self) -> list[str]:
        """The names of the straight lines that are drawn to compare with."""
        known = ((self.level, self.level_name), (self.floor, self.floor_name))
        return [*(name for at, name in known if at is not None), *self.upright]


def curves(record: RunRecord, chart: Curves, data: pd.DataFrame) -> None:
    """Draw ``data``'s curves, in panels where ``chart.panels`` names a column."""
    parts = [("", data)] if chart.panels is None else ordered(list(data.groupby(chart.panels, sort=False)))
    style = _styles([str(name) for name in dict.fromkeys(data["series"])])
    across = min(ACROSS, len(parts))
    down, width = math.ceil(len(parts) / across), WIDTH if across == 1 else 6.8
    names = [*style, *chart.levels]
    legend = 0.2 * math.ceil(len(names) / columns_of(names, width))
    with drawing(record, chart.name, data, (width, 1.1 + 2.7 * down + legend)) as figure:
        places = figure.subplots(down, across, squeeze=False, sharey=True, sharex=True).ravel().tolist()
        for axes, (panel, part) in zip(places, parts, strict=False):
            _panel(axes, chart, part, style)
            axes.set_title(str(panel))
        _ticks(places[0], chart, data)
        drawn = places[: len(parts)]
        ends(drawn)
        for axes in places[len(parts) :]:
            axes.set_axis_off()
        for axes in drawn[-across:]:
            axes.tick_params(labelbottom=True)
            axes.set_xlabel(chart.xlabel)
        for axes in drawn[::across]:
            axes.set_ylabel(fill(chart.ylabel, 36))
        keys(figure, drawn)
        headline(figure, chart.finding, chart.title)


def ordered(panels: list[tuple[Any, pd.DataFrame]]) -> list[tuple[Any, pd.DataFrame]]:
    """Panels that are numbered (``eps = 0.5``) by their numbers; any others as they came."""
    numbers = [re.match(r"\D*?([\d.]+(?:e-?\d+)?)", str(name)) for name, _ in panels]
    if not all(numbers):
        return panels
    return [panels[at] for at in sorted(range(len(panels)), key=lambda at: float(numbers[at][1]))]  # type: ignore[index]


def _ticks(axes: Axes, chart: Curves, data: pd.DataFrame) -> None:
    """Few and round, with numbers as people write them; whole ones where the data is whole."""
    for axis, column, log in ((axes.xaxis, chart.x, chart.log), (axes.yaxis, chart.y, chart.ylog)):
        if log:
            axis.set_major_locator(LogLocator(subs=(1,) if _decades(data[column]) > 2 else (1, 2, 5)))
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
            axis.set_minor_formatter(NullFormatter())
        elif is_numeric_dtype(data[column]):
            axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10], integer=is_integer_dtype(data[column])))


def _decades(values: pd.Series) -> float:
    return float(np.log10(values.max() / values.min()))


def _styles(names: list[str]) -> dict[str, dict[str, Any]]:
    """A style for each series: its mechanism's, where the name begins with one; a second series of one in other dashes."""
    styles: dict[str, dict[str, Any]] = {}
    used: dict[str, int] = {}
    for index, name in enumerate(names):
        known = next((mechanism for mechanism in STYLES if name.startswith(mechanism)), None)
        if known is None:
            styles[name] = LINES[index % len(LINES)]
            continue
        turn = used.setdefault(known, 0)
        used[known] += 1
        base = STYLES[known]
        dashes = [base["linestyle"], *(dash for dash in DASHES if dash != base["linestyle"])]
        face = {} if turn == 0 else {"markerfacecolor": "white"}
        styles[name] = {**base, "linestyle": dashes[turn % len(dashes)], **face}
    return styles


def _panel(axes: Axes, chart: Curves, part: pd.DataFrame, style: dict[str, dict[str, Any]]) -> None:
    for name, rows in part.groupby("series", sort=False):
        rows = rows.sort_values(chart.x)
        marks: dict[str, Any] = {"markersize": 3.5, "markevery": max(1, len(rows) // 10), "linewidth": 1.4}
        axes.plot(rows[chart.x], rows[chart.y], label=str(name), **style[str(name)], **marks)
        if "low" in rows and rows["low"].notna().any():
            axes.fill_between(
                rows[chart.x], rows["low"], rows["high"], color=style[str(name)]["color"], alpha=0.15, linewidth=0
            )
    if chart.level is not None:
        axes.axhline(chart.level, color="black", linewidth=0.8, linestyle=(0, (1, 2)), label=chart.level_name)
    if chart.floor is not None:
        axes.axhline(chart.floor, color="0.5", linewidth=0.8, linestyle=(0, (6, 2)), label=chart.floor_name)
    for place, name in enumerate(chart.upright):
        axes.axvline(part[name].iloc[0], color="0.5", linewidth=0.8, linestyle=DASHES[1 + place % 3], label=name)
    if chart.log:
        axes.set_xscale("log")
    if chart.ylog:
        axes.set_yscale("log")
        if chart.level is not None and part[chart.y].isna().all():  # the line alone, which has no scale of its own
            axes.set_ylim(chart.level / 10, chart.level * 2)
