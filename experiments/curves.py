"""Curves of the papers' figures: accuracy against budgets, flips against distance.

Same style as the command's own figures (agt_cli/report/figures.py).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from textwrap import fill
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from pandas.api.types import is_integer_dtype, is_numeric_dtype

from agt_cli.report.figures import (
    ACROSS,
    DASHES,
    WIDTH,
    columns_of,
    drawing,
    ends,
    headline,
    keys,
    line_styles,
    log_ticks,
    ordered,
)
from agt_cli.report.record import RunRecord


@dataclass(frozen=True)
class Curves:
    """What one figure shows.

    Attributes:
        name: of its files.
        x, y: column names of the data; ``series`` names the curve of each row. A column ``low`` and
            ``high``, where there is one, is drawn as a band: something was sampled.
        xlabel, ylabel: words.
        title: what the data is.
        log, ylog: logarithmic axes.
        level, level_name: a horizontal line to compare with, and what it is.
        panels: the column that names the panel of each row.
        order: of the panels, by their names; empty: as they come.
        finding: what the figure shows, in a sentence.
        floor, floor_name: another, which takes no skill to reach.
        steps: between two places a curve has the value of the next: of a certified fraction, which
            can only fall, a bound.
        words: a series' name -> what its line goes by.
        beside: what each line is stands at the right of one panel, and not below it.
        upright: columns whose values, alike in all rows, are drawn as vertical lines that go by
            their names.
    """

    name: str
    x: str
    y: str
    xlabel: str
    ylabel: str
    title: str = ""
    log: bool = True
    ylog: bool = False
    level: float | None = None
    level_name: str = "noise-free"
    panels: str | None = None
    order: tuple[str, ...] = ()
    finding: str = ""
    floor: float | None = None
    floor_name: str = "majority"
    steps: bool = False
    words: Callable[[str], str] = str
    beside: bool = False
    upright: tuple[str, ...] = ()

    @property
    def levels(self) -> list[str]:
        """The names of the straight lines that are drawn to compare with."""
        known = ((self.level, self.level_name), (self.floor, self.floor_name))
        return [*(name for at, name in known if at is not None), *self.upright]


def curves(record: RunRecord, chart: Curves, data: pd.DataFrame) -> None:
    """Draw ``data``'s curves, in panels where ``chart.panels`` names a column."""
    parts = (
        [("", data)]
        if chart.panels is None
        else ordered(list(data.groupby(chart.panels, sort=False)), chart.order)
    )
    style = line_styles([str(name) for name in dict.fromkeys(data["series"])])
    across = min(ACROSS, len(parts))
    beside = chart.beside and across == 1
    down, width = math.ceil(len(parts) / across), 6.8 if beside or across > 1 else WIDTH
    names = [*map(chart.words, style), *chart.levels]
    legend = 0 if beside else 0.2 * math.ceil(len(names) / columns_of(names, width))
    with drawing(record, chart.name, data, (width, 1.1 + 2.7 * down + legend)) as figure:
        places = (
            figure.subplots(down, across, squeeze=False, sharey=True, sharex=True).ravel().tolist()
        )
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
        keys(figure, drawn, beside)
        headline(figure, chart.finding, chart.title)


def _ticks(axes: Axes, chart: Curves, data: pd.DataFrame) -> None:
    """Few and round, with numbers as people write them; whole ones where the data is whole."""
    for axis, column, log in ((axes.xaxis, chart.x, chart.log), (axes.yaxis, chart.y, chart.ylog)):
        if log:
            log_ticks(axis, data[column])
        elif is_numeric_dtype(data[column]):
            axis.set_major_locator(
                MaxNLocator(6, steps=[1, 2, 2.5, 5, 10], integer=is_integer_dtype(data[column]))
            )


def _panel(axes: Axes, chart: Curves, part: pd.DataFrame, style: dict[str, dict[str, Any]]) -> None:
    step: Any = "pre" if chart.steps else None
    for name, rows in part.sort_values(chart.x).groupby("series", sort=False):
        marks: dict[str, Any] = {
            "markersize": 3.5,
            "markevery": max(1, len(rows) // 10),
            "linewidth": 1.4,
        }
        marks |= {"drawstyle": "steps-pre"} if chart.steps else {}
        axes.plot(
            rows[chart.x], rows[chart.y], label=chart.words(str(name)), **style[str(name)], **marks
        )
        if "low" in rows and rows["low"].notna().any():
            colour = style[str(name)]["color"]
            axes.fill_between(
                rows[chart.x],
                rows["low"],
                rows["high"],
                color=colour,
                alpha=0.15,
                linewidth=0,
                step=step,
            )
    levels = (
        (chart.level, chart.level_name, "black", (1, 2)),
        (chart.floor, chart.floor_name, "0.5", (6, 2)),
    )
    for level, words, colour, dashes in levels:
        if level is not None:
            axes.axhline(level, color=colour, linewidth=0.8, linestyle=(0, dashes), label=words)
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
