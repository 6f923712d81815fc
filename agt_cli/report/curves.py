"""Curves of private prediction: accuracy against budgets, flips against distance. Same style as report/figures.py.

Each curve has its own dash and marker beside its colour, so that grey print keeps them apart.
"""

from dataclasses import dataclass
from textwrap import fill
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from agt_cli.report.figures import drawing
from agt_cli.report.record import RunRecord

# Each mechanism looks the same in every figure; ours are dark and blue, those of the papers warm, comparisons grey.
STYLES: dict[str, dict[str, Any]] = {
    "release_weights": {"color": "black", "linestyle": "-", "marker": "P"},
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
LETTER = 0.072  # inches of a letter in the legend
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
        xlabel, ylabel, title: words.
        log, ylog: logarithmic axes.
        level, level_name: a horizontal line to compare with, and what it is.
        floor, floor_name: another, which takes no skill to reach.
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
    floor: float | None = None
    floor_name: str = "majority"


def curves(record: RunRecord, chart: Curves, data: pd.DataFrame) -> None:
    """Draw ``data``'s curves, side by side in panels where ``chart.panels`` names a column."""
    parts = [("", data)] if chart.panels is None else list(data.groupby(chart.panels, sort=False))
    style = _styles([str(name) for name in dict.fromkeys(data["series"])])
    legend = 0.6 + LETTER * max(
        len(name) for name in (*style, chart.level_name, *([chart.floor_name] if chart.floor is not None else []))
    )
    width = legend + 3.6 * len(parts)
    with drawing(record, chart.name, data, (width, 3.6)) as figure:
        for position, (axes, (panel, part)) in enumerate(
            zip(figure.subplots(1, len(parts), squeeze=False, sharey=True)[0], parts, strict=True)
        ):
            _panel(axes, chart, part, style)
            axes.set_title(str(panel) if panel else fill(chart.title, int(12 * width)))
            if position:
                axes.set_ylabel("")
        handles, names = axes.get_legend_handles_labels()
        figure.legend(handles, names, loc="outside right center")
        if chart.panels is not None:
            figure.suptitle(fill(chart.title, int(14 * width)), fontsize=9, x=0.01, ha="left")


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
    if chart.log:
        axes.set_xscale("log")
    if chart.ylog:
        axes.set_yscale("log")
    axes.set(xlabel=chart.xlabel, ylabel=chart.ylabel)
    axes.margins(x=0.02)
