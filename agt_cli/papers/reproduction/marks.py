"""Marks with a range, one line for each category: how a table of a few categories is drawn."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from agt_cli.report.curves import LINES
from agt_cli.report.figures import drawing, ends, headline, keys
from agt_cli.report.record import RunRecord


@dataclass(frozen=True)
class Marks:
    """What one figure shows.

    Attributes:
        x: the column of the marks' places; ``low`` and ``high`` hold their ranges.
        y: of the categories, from the top down.
        series: of the marks' looks.
        panels: one panel each, titled as ``panel`` says.
        xlabel: words.
        name, title, finding, log: as of ``Curves``.
    """

    x: str
    y: str
    series: str
    panels: str
    xlabel: str
    panel: str
    name: str = ""
    title: str = ""
    finding: str = ""
    log: bool = False


def marks(record: RunRecord, what: Marks, data: pd.DataFrame) -> None:
    """Draw ``data``'s marks, side by side in panels."""
    categories, parts = list(data[what.y].unique()), list(data.groupby(what.panels, sort=False))
    with drawing(record, what.name, data, (2.2 + 2.3 * len(parts), 1.6 + 0.42 * len(categories))) as figure:
        places = figure.subplots(1, len(parts), squeeze=False, sharey=True, sharex=True)[0]
        for axes, (panel, part) in zip(places, parts, strict=True):
            _panel(axes, what, part, categories)
            axes.set(title=what.panel.format(panel), xlabel=what.xlabel, xscale="log" if what.log else "linear")
        places[0].set_ylim(len(categories) - 0.5, -0.5)  # from the top down; they share it
        if what.log:
            places[0].xaxis.set_major_locator(LogLocator())
            places[0].xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
            places[0].xaxis.set_minor_formatter(NullFormatter())
        else:
            places[0].xaxis.set_major_locator(MaxNLocator(3))
        ends(places, "x")
        keys(figure, places)
        headline(figure, what.finding, what.title)


def _panel(axes: Axes, what: Marks, data: pd.DataFrame, categories: list[str]) -> None:
    series = list(data.groupby(what.series, sort=False))
    for position, (name, part) in enumerate(series):
        place = np.array([categories.index(one) for one in part[what.y]]) + 0.18 * (position - (len(series) - 1) / 2)
        span = np.stack([part[what.x] - part["low"], part["high"] - part[what.x]])
        style = LINES[position]
        axes.errorbar(
            part[what.x], place, xerr=span, linestyle="none", capsize=2, linewidth=1, markersize=4, label=str(name),
            color=style["color"], marker=style["marker"],
        )  # fmt: skip
    axes.set_yticks(range(len(categories)), categories)
