"""The ways in which a table becomes a figure: lines, marks with a range, small images, maps of the
plane.

Each takes the data, whose columns are those of the figure's CSV, and the name of its files. What a
figure shows of the data is chosen before, by ``functools.partial`` or ``lines``. As in a paper,
what it is of stands in the caption and not in the picture, and series go by their names in the
field.
"""

import math
import re
from collections.abc import Callable
from itertools import pairwise
from textwrap import fill
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.ticker import MaxNLocator

from agt_cli.report.figures import COLOURS, LINES, MARKERS, drawing, ends, keys, log_ticks
from agt_cli.report.record import RunRecord

from .curves import Curves, curves

Draw = Callable[[RunRecord, pd.DataFrame, str], None]
"""Called with the record, the data and the name of the files."""
IN_WORDS = {
    "smooth_cauchy": "smooth sensitivity",
    "global_sensitivity": "global sensitivity",
    "noisy_argmax": "subsample and aggregate",
    "randomized_response": "randomised response",
    "gaussian_margin": "Gaussian margin",
    "release_weights": "released weights",
    "paper": "published rules",
    "newton": "Newton step",
    "sisa": "SISA",
    "retrain": "trained again",
}
CODED = re.compile(r"\b(" + "|".join(IN_WORDS) + r")\b")


def in_words(name: str) -> str:
    """A series by its names in the field: mechanisms and profiles go by codes in tables."""
    return CODED.sub(lambda found: IN_WORDS[found[0]], name)


def lines(x: str, y: str, xlabel: str, ylabel: str, **look: Any) -> Draw:
    """A curve for each value of the column ``series``; ``look``: as of ``Curves``."""

    def draw(record: RunRecord, data: pd.DataFrame, name: str) -> None:
        curves(
            record, Curves(name, x, y, xlabel, ylabel, words=in_words, beside=True, **look), data
        )

    return draw


def marks(
    record: RunRecord,
    data: pd.DataFrame,
    name: str,
    *,
    x: str,
    y: str,
    series: str,
    panels: str,
    xlabel: str,
    panel: str,
    log: bool = False,
    start: str = "",
) -> None:
    """Marks with a range, or with an arrow that leads to them, one line for each category.

    Args:
        x: the column of the marks' places; ``low`` and ``high`` hold their ranges.
        start: the column of where the arrows start, in place of ranges; NaN: no arrow.
        y: of the categories, from the top down.
        series: of the marks' looks.
        panels: one panel each, titled as ``panel`` says.
    """
    categories, parts = list(data[y].unique()), list(data.groupby(panels, sort=False))
    several = data[series].nunique() > 1
    beside = several and len(parts) == 1
    width = 2.2 + 2.3 * len(parts) + 1.6 * beside
    with drawing(record, name, data, (width, 1.6 + 0.42 * len(categories))) as figure:
        places = figure.subplots(1, len(parts), squeeze=False, sharey=True, sharex=True)[0]
        for axes, (value, part) in zip(places, parts, strict=True):
            heights = [categories.index(one) for one in part[y]]
            _draw_marks(axes, part, x, heights, series, start)
            axes.set_yticks(range(len(categories)), [in_words(str(one)) for one in categories])
            axes.set(
                title=fill(panel.format(value), 26),
                xlabel=xlabel,
                xscale="log" if log else "linear",
            )
        places[0].set_ylim(len(categories) - 0.5, -0.5)  # from the top down; they share it
        whole = bool((data[x] % 1 == 0).all())
        if log:
            log_ticks(places[0].xaxis, data[x])
        else:
            places[0].xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10], integer=whole))
        ends(places, "x")
        if several:
            keys(figure, places, beside)


def _draw_marks(
    axes: Axes, data: pd.DataFrame, x: str, heights: list[int], series: str, start: str
) -> None:
    groups = list(data.assign(height=heights).groupby(series, sort=False))
    for position, (name, part) in enumerate(groups):
        place = part["height"] + 0.18 * (position - (len(groups) - 1) / 2)
        style = {key: LINES[position][key] for key in ("color", "marker")}
        label = in_words(str(name))
        if start or (part["low"] == part["high"]).all():
            axes.plot(part[x], place, linestyle="none", markersize=4, label=label, **style)
        if start:
            _draw_arrows(axes, part[start], part[x], place, style["color"])
        elif (part["low"] != part["high"]).any():
            span = np.stack([part[x] - part["low"], part["high"] - part[x]])
            axes.errorbar(
                part[x],
                place,
                xerr=span,
                linestyle="none",
                capsize=2,
                linewidth=1,
                markersize=4,
                label=label,
                **style,
            )


def _draw_arrows(
    axes: Axes, starts: pd.Series, ends: pd.Series, heights: pd.Series, colour: str
) -> None:
    """Draw an arrow from each start to each end, with a vertical stroke where it starts."""
    known = starts.notna()
    axes.plot(
        starts[known], heights[known], linestyle="none", marker="|", markersize=9, color=colour
    )
    for from_x, to_x, height in zip(starts[known], ends[known], heights[known], strict=True):
        arrow = {"arrowstyle": "->", "color": colour, "linewidth": 1, "shrinkA": 0, "shrinkB": 3}
        axes.annotate("", xy=(to_x, height), xytext=(from_x, height), arrowprops=arrow)


def pictures(
    record: RunRecord,
    data: pd.DataFrame,
    name: str,
    *,
    rows: str,
    order: str,
    value: str,
    words: str,
) -> None:
    """Small square images, dark on white; columns p0, p1, ... hold their pixels.

    Args:
        rows: of the rows of images, titled by its values; ``order``: of the images in one.
        value: a number below each image; ``words``: what it is.
    """
    parts = {str(line): part.sort_values(order) for line, part in data.groupby(rows, sort=False)}
    pixels = [column for column in map(str, data) if column[:1] == "p" and column[1:].isdigit()]
    side, across = math.isqrt(len(pixels)), max(map(len, parts.values()))
    with drawing(record, name, data, (0.72 * across + 0.8, 1.15 * len(parts) + 0.7)) as figure:
        places = figure.subplots(len(parts), across, squeeze=False)
        for axes in places.ravel():
            axes.set_axis_off()
        for line, (words_of_line, part) in zip(places, parts.items(), strict=True):
            for axes, image, number in zip(
                line, part[pixels].to_numpy(dtype=float), part[value], strict=False
            ):
                axes.imshow(image.reshape(side, side), cmap="Greys", interpolation="nearest")
                axes.set_title(f"{number:.2g}", fontsize=8, y=-0.32, loc="center")
            line[0].text(
                -0.15,
                0.5,
                words_of_line,
                transform=line[0].transAxes,
                rotation=90,
                va="center",
                ha="right",
            )
        figure.supxlabel(words, fontsize=9)


def regions(levels: tuple[int, ...]) -> tuple[list[float], dict[float, str]]:
    """The intervals' ends of stable distances told apart at ``levels``, and where a colour bar
    has which names.
    """
    ends: list[float] = [0, *levels, levels[-1] + 1]
    names = [f"< {levels[0]}", *(f"{k} or more" for k in levels)]
    return ends, {
        (low + high) / 2: name for (low, high), name in zip(pairwise(ends), names, strict=True)
    }


def planes(
    record: RunRecord,
    data: pd.DataFrame,
    name: str,
    *,
    value: Callable[[pd.Series], pd.Series],
    scale: tuple[list[float], dict[float, str]],
    shades: tuple[float, float],
    label: str,
) -> None:
    """Maps: a row of panels for each profile and claim, a colour for each interval of values, one
    colour bar.

    Args:
        data: of the columns point ("map" or "training"), x1, x2, profile, claim, panel, prediction,
            stable_distance.
        value: stable distances -> what is coloured.
        scale: the intervals' ends, and where the bar has which names.
        shades: of the first and the last interval, 0 the lightest.
        label: of the colour bar.
    """
    ends, names = scale
    norm = BoundaryNorm(ends, len(ends) - 1)
    colours = ListedColormap(mpl.colormaps[COLOURS](np.linspace(*shades, len(ends) - 1)))
    columns = ["x1", "x2", "profile", "claim", "panel", "prediction", "stable_distance"]
    mapped = data.loc[data["point"] == "map", columns].astype({"stable_distance": int})
    panels, lines = (
        list(data["panel"].unique()),
        list(data.groupby(["profile", "claim"], sort=False)),
    )
    with drawing(
        record, name, mapped, (1.5 + 1.7 * len(panels), 0.45 + 1.45 * len(lines))
    ) as figure:
        axes = figure.subplots(len(lines), len(panels), squeeze=False, sharex="col", sharey="col")
        for places, ((profile, claim), of_line) in zip(axes, lines, strict=True):
            for place, panel in zip(places, panels, strict=True):
                _draw_plane(place, of_line[of_line["panel"] == panel], value, colours, norm)
            places[0].set_ylabel(f"{claim}\n{in_words(str(profile))}", fontsize=8)
        for place, panel in zip(axes[0], panels, strict=True):
            place.set_title(fill(panel, 22), fontsize=8)
        bar = figure.colorbar(ScalarMappable(norm, colours), ax=axes, shrink=0.8, spacing="uniform")
        bar.set_ticks(list(names), labels=list(names.values()))
        bar.ax.minorticks_off()
        bar.ax.tick_params(length=0, labelsize=8)
        bar.set_label(label, fontsize=8)


def _draw_plane(
    axes: Axes,
    part: pd.DataFrame,
    value: Callable[[pd.Series], pd.Series],
    colours: ListedColormap,
    norm: BoundaryNorm,
) -> None:
    """Colours, the decision line, and some training points by class."""
    mapped, training = part[part["point"] == "map"], part[part["point"] == "training"]
    x, y = mapped["x1"].unique(), mapped["x2"].unique()
    image = value(mapped["stable_distance"]).to_numpy().reshape(len(y), len(x))
    axes.pcolormesh(x, y, image, cmap=colours, norm=norm, shading="nearest", rasterized=True)
    label = mapped["prediction"].to_numpy().reshape(len(y), len(x))
    for c in range(1, int(label.max()) + 1):
        axes.contour(x, y, (label == c).astype(float), levels=[0.5], colors="black", linewidths=1.2)
    for (_, here), (marker, face, edge) in zip(
        training.groupby("prediction"), MARKERS, strict=False
    ):
        axes.scatter(
            here["x1"],
            here["x2"],
            s=9,
            marker=marker,
            facecolors=face,
            edgecolors=edge,
            linewidths=0.35,
        )
    axes.set(aspect="equal", xlim=x[[0, -1]], ylim=y[[0, -1]])
    axes.tick_params(labelsize=8)
