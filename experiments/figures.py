"""The ways in which a table becomes a figure: lines, marks with a range, small images, maps of the
plane.

Each takes the data, whose columns are those of the figure's CSV, and the name of its files. What a
figure shows of the data is chosen before, by ``functools.partial`` or ``lines``. As in a paper,
what it is of stands in the caption and not in the picture, and series go by their names in the
field.
"""

import math
import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.ticker import NullLocator, StrMethodFormatter

from agt_cli.report.figures import (
    CLASS_MARKERS,
    COLOUR_MAP,
    PANELS_PER_ROW,
    SERIES_STYLES,
    draw_legend,
    end_axes_at_ticks,
    saved_figure,
    set_log_ticks,
    wrap_text,
)
from agt_cli.report.record import RunRecord

from .curves import MOST_ACROSS, Curves, curves

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
    "gamma": "clip",
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
    whole_numbers: bool = False,
    start: str = "",
    start_name: str = "",
    mark_name: str = "",
) -> None:
    """Marks with a range, or with an arrow that leads to them, one line for each category.

    Args:
        x: the column of the marks' places; ``low`` and ``high`` hold their ranges.
        start: the column of where the arrows start, in place of ranges; NaN: no arrow.
        start_name: what the legend calls the places where arrows start.
        mark_name: what it calls the marks, if all are of one series.
        y: of the categories, from the top down.
        series: of the marks' looks.
        panels: one panel each, titled as ``panel`` says.
        whole_numbers: whether the marks' places are counts, without ticks between whole numbers.
    """
    categories = list(data[y].unique())
    parts = list(data.groupby(panels, sort=False))
    several = data[series].nunique() > 1
    beside = several and len(parts) == 1
    across = len(parts) if len(parts) <= MOST_ACROSS else PANELS_PER_ROW
    down = math.ceil(len(parts) / across)
    width = 2.2 + 2.3 * across + 1.6 * beside
    height = 0.6 + down * (1.0 + 0.42 * len(categories))
    with saved_figure(record, name, data, (width, height)) as figure:
        grid = figure.subplots(down, across, squeeze=False, sharey=True, sharex=True)
        places = list(grid.ravel())[: len(parts)]
        for axes in grid.ravel()[len(parts) :]:
            axes.set_axis_off()
        for axes, (value, part) in zip(places, parts, strict=True):
            heights = [categories.index(one) for one in part[y]]
            _draw_marks(axes, part, x, heights, series, start)
            if start:
                axes.plot([], [], "|", color="black", markersize=9, label=start_name)
            names = [in_words(str(one)) for one in categories]
            axes.set_yticks(range(len(categories)), names)
            axes.set_title(wrap_text(panel.format(value), 2.2))
            axes.set_xscale("log" if log else "linear")
        for axes in places[-across:]:
            axes.tick_params(labelbottom=True)
            axes.set_xlabel(xlabel)
        places[0].set_ylim(len(categories) - 0.5, -0.5)  # from the top down; they share it
        if log:
            set_log_ticks(places[0].xaxis, data[x])
        end_axes_at_ticks(places, "x", 4, whole_numbers=whole_numbers)
        if start and not several:
            places[0].lines[0].set_label(mark_name)
            for axes in places[1:]:
                axes.lines[0].set_label("_in the first panel")
        if several or start:
            draw_legend(figure, places, beside)


def _draw_marks(
    axes: Axes, data: pd.DataFrame, x: str, heights: list[int], series: str, start: str
) -> None:
    placed = data.assign(height=heights)
    names = list(placed[series].unique())
    # beside one another only where several are in one line
    number_of_series = placed[series].map(names.index)
    rank = number_of_series.groupby(placed["height"]).rank("dense") - 1
    highest_rank = rank.groupby(placed["height"]).transform("max")
    placed["place"] = placed["height"] + 0.18 * (rank - highest_rank / 2)
    for position, (name, part) in enumerate(placed.groupby(series, sort=False)):
        place = part["place"]
        style = {key: SERIES_STYLES[position][key] for key in ("color", "marker")}
        label = in_words(str(name))
        if start or (part["low"] == part["high"]).all():
            axes.plot(part[x], place, linestyle="none", markersize=4, label=label, **style)
        if start:
            _draw_arrows(axes, part[start], part[x], place, style["color"])
        elif (part["low"] != part["high"]).any():
            below = part[x] - part["low"]
            above = part["high"] - part[x]
            span = np.stack([below, above])
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


def batches_by_depth(record: RunRecord, data: pd.DataFrame, name: str, size: float) -> None:
    """Draw the smallest batch against the number of hidden layers, a line for each series.

    Series have their ranges as bars; where bars or marks of one depth would meet, the series lie
    beside one another.

    Args:
        record: into which it is drawn.
        data: of the columns depth, series, batch, low and high; a batch of NaN is an empty mark on
            the line of all records, which are not enough.
        name: of the files.
        size: how many records there are.
    """
    groups = list(data.groupby("series", sort=False))
    apart = 0.09 if _meet(data, size) else 0.0
    with saved_figure(record, name, data, (6.8, 3.8)) as figure:
        axes = figure.subplots()
        for position, (series, part) in enumerate(groups):
            middle = (len(groups) - 1) / 2
            places = part["depth"] + apart * (position - middle)
            _draw_batches(axes, part, places, in_words(str(series)), SERIES_STYLES[position], size)
        axes.axhline(size, color="black", linewidth=0.8, linestyle=(0, (1, 2)))
        if data["batch"].isna().any():
            label = "empty mark: all records\nare not enough"
            axes.plot([], [], "o", color="black", markerfacecolor="white", label=label)
        axes.annotate(
            f"all {size:,.0f} training records in one batch",
            (0, size),
            xycoords=("axes fraction", "data"),
            xytext=(4, 8),
            textcoords="offset points",
            fontsize=8,
        )
        axes.set_yscale("log")
        ends = [data["batch"], data["low"], data["high"], pd.Series([size])]
        known = pd.concat(ends).dropna()
        limits = (known.min() / 1.3, 1.8 * size)
        axes.set(xlabel="hidden layers", ylabel="smallest batch (records)", ylim=limits)
        axes.set_xticks(sorted(set(data["depth"])))
        set_log_ticks(axes.yaxis, known)
        draw_legend(figure, [axes], at_right=True)


def _meet(data: pd.DataFrame, size: float) -> bool:
    """Return whether the bars or marks of two series at one depth would meet.

    Args:
        data: as of ``batches_by_depth``.
        size: where marks of batches not found are drawn.
    """
    found = data["batch"].fillna(size)
    mark_height = 1.15  # of a mark on a logarithmic axis, as a factor
    low = data["low"].fillna(found).clip(upper=found) / mark_height
    high = data["high"].fillna(found).clip(lower=found) * mark_height
    bars = pd.DataFrame({"depth": data["depth"], "low": low, "high": high})
    bars = bars.sort_values("low")
    highs = bars.groupby("depth")["high"]
    highest_before = highs.transform(lambda seen: seen.cummax().shift())
    return bool((bars["low"] <= highest_before).any())


def _draw_batches(
    axes: Axes,
    part: pd.DataFrame,
    places: pd.Series,
    label: str,
    line: dict[str, Any],
    size: float,
) -> None:
    """Draw one series of batches at their places, with bars and marks of batches not found."""
    axes.plot(places, part["batch"], markersize=5, linewidth=1, label=label, **line)
    axes.vlines(places, part["low"], part["high"], color=line["color"], linewidth=1.6)
    missing = places[part["batch"].isna()]
    empty = {"marker": line["marker"], "color": line["color"], "markerfacecolor": "white"}
    axes.plot(
        missing, np.full(len(missing), size), markersize=7, linestyle="none", zorder=3, **empty
    )


def named_points(
    record: RunRecord,
    data: pd.DataFrame,
    name: str,
    *,
    x: str,
    y: str,
    names: tuple[str, ...],
    xlabel: str,
    ylabel: str,
) -> None:
    """Draw a line for each value of ``series``, with the settings of each point beside it.

    Args:
        record: into which it is drawn.
        data: also of the columns ``series``, ``low`` and ``high``.
        name: of the files.
        x: a column of counts; its axis is logarithmic, from 1 on if there is a count of 0.
        y: a column of measurements.
        names: the columns whose values are written beside a point.
        xlabel: words; ``ylabel``: as well.
    """
    with saved_figure(record, name, data, (7.2, 4.6)) as figure:
        axes = figure.subplots()
        groups = list(data.groupby("series", sort=False))
        for position, (series, part) in enumerate(groups):
            points = part.sort_values(x)
            line = SERIES_STYLES[position]
            axes.plot(points[x], points[y], markersize=4, label=in_words(str(series)), **line)
            axes.fill_between(
                points[x],
                points["low"],
                points["high"],
                color=line["color"],
                alpha=0.12,
                linewidth=0,
            )
            _write_names(axes, points, (x, y), names, line["color"], below=position % 2 == 0)
        _scale_of_counts(axes, data[x])
        axes.set(xlabel=xlabel, ylabel=ylabel)
        end_axes_at_ticks([axes], "y", margin=0.08)
        legend = figure.legend(
            loc="outside right upper", title=f"beside a point:\n{', '.join(names)}"
        )
        legend.get_title().set_multialignment("center")


def _scale_of_counts(axes: Axes, counts: pd.Series) -> None:
    """Give an x axis of counts a logarithmic scale that ends with them, on the left at 0 or more.

    Some room remains at both ends for what is written beside the points.
    """
    low = float(counts.min())
    high = float(counts.max())
    if low > 0:
        first = 10.0 ** math.floor(math.log10(low))
        last = 10.0 ** math.ceil(math.log10(high))
        axes.set(xscale="log", xlim=(first, max(last, 10 * first)))
    else:
        axes.set_xscale("symlog", linthresh=1, linscale=0.4)
        axes.set_xlim(-0.6, 3 * max(1.0, high))
        digits = len(str(int(high)))
        axes.set_xticks([0, *(10**power for power in range(digits))])
        axes.spines["bottom"].set_bounds(0, axes.get_xlim()[1])
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.xaxis.set_minor_locator(NullLocator())


def _write_names(
    axes: Axes,
    points: pd.DataFrame,
    place: tuple[str, str],
    names: tuple[str, ...],
    colour: str,
    below: bool,
) -> None:
    """Write the values of the columns ``names`` beside each point, on one side of a line that
    falls: below and at the left, or above and at the right.

    Every second one is farther away, so that those of near points do not meet.
    """
    direction = -1 if below else 1
    side: dict[str, Any] = {"ha": "left", "va": "bottom"}
    if below:
        side = {"ha": "right", "va": "top"}
    for index, point in enumerate(points.to_dict("records")):
        distance = 15 if index % 2 else 4
        words = ", ".join(f"{point[column]:g}" for column in names)
        at = (point[place[0]], point[place[1]])
        axes.annotate(
            words,
            at,
            xytext=(4 * direction, distance * direction),
            textcoords="offset points",
            fontsize=9,
            color=colour,
            **side,
        )


def pictures(
    record: RunRecord,
    data: pd.DataFrame,
    name: str,
    *,
    rows: str,
    titles: Mapping[str, str],
    order: str,
    value: str,
    classes: str,
    words: str,
) -> None:
    """Small square images, dark on white; columns p0, p1, ... hold their pixels.

    Args:
        rows: of the rows of images; ``order``: of the images in one.
        titles: a value of ``rows`` -> the title of its row.
        classes: the column of the class that is written below each image.
        value: the column of a number below the class.
        words: what both are, at the left of each row.
    """
    groups = data.groupby(rows, sort=False)
    parts = {str(line): part.sort_values(order) for line, part in groups}
    pixels = [column for column in map(str, data) if re.fullmatch("p[0-9]+", column)]
    side = math.isqrt(len(pixels))
    across = max(map(len, parts.values()))
    with saved_figure(record, name, data, (0.72 * across + 1.1, 1.05 * len(parts) + 0.1)) as figure:
        places = figure.subplots(len(parts), across, squeeze=False)
        for axes in places.ravel():
            axes.set_axis_off()
        for line, (words_of_line, part) in zip(places, parts.items(), strict=True):
            images = part[pixels].to_numpy(dtype=float)
            for axes, image, name_of_class, number in zip(
                line, images, part[classes], part[value], strict=False
            ):
                axes.imshow(image.reshape(side, side), cmap="Greys", interpolation="nearest")
                below: dict[str, Any] = {"transform": axes.transAxes, "va": "top", "ha": "center"}
                axes.text(0.5, -0.06, f"{name_of_class}\n{number:.2g}", fontsize=8, **below)
            beside: dict[str, Any] = {"transform": line[0].transAxes, "ha": "right"}
            line[0].text(-0.15, 0.5, titles[words_of_line], fontsize=9, va="center", **beside)
            line[0].text(-0.15, -0.06, words, fontsize=8, va="top", **beside)


def regions(levels: tuple[int, ...]) -> tuple[list[float], dict[float, str]]:
    """The intervals' ends of stable distances told apart at ``levels``, and where a colour bar
    has which names.
    """
    ends: list[float] = [0, *levels, levels[-1] + 1]
    names = [f"< {levels[0]}", *(f"{k} or more" for k in levels)]
    middles = [(low + high) / 2 for low, high in pairwise(ends)]
    return ends, dict(zip(middles, names, strict=True))


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
    first, last = shades
    steps = np.linspace(0, 1, len(ends) - 1)
    if first < last:  # pale shades are harder to tell apart than dark ones
        steps = steps**0.7
    shade_of_step = first + (last - first) * steps
    colours = ListedColormap(mpl.colormaps[COLOUR_MAP](shade_of_step))
    columns = ["x1", "x2", "profile", "claim", "panel", "prediction", "stable_distance"]
    mapped = data.loc[data["point"] == "map", columns].astype({"stable_distance": int})
    panels = list(data["panel"].unique())
    lines = list(data.groupby(["profile", "claim"], sort=False))
    with saved_figure(
        record, name, mapped, (1.8 + 1.7 * len(panels), 0.9 + 1.45 * len(lines))
    ) as figure:
        axes = figure.subplots(len(lines), len(panels), squeeze=False, sharex="col", sharey="col")
        for places, ((profile, claim), of_line) in zip(axes, lines, strict=True):
            for place, panel in zip(places, panels, strict=True):
                _draw_plane(place, of_line[of_line["panel"] == panel], value, colours, norm)
            places[0].set_ylabel("x2", fontsize=8)
            # what the row is of, at the left of its first panel, beside the axis' name
            places[0].annotate(
                f"{claim},\n{in_words(str(profile))}",
                (0, 0.5),
                xycoords=places[0].yaxis.label,
                xytext=(-4, 0),
                textcoords="offset points",
                rotation="vertical",
                ha="right",
                va="center",
                multialignment="center",
                fontsize=8,
                fontweight="bold",
            )
        for place, panel in zip(axes[0], panels, strict=True):
            place.set_title(wrap_text(panel, 2), fontsize=8)
        for place in axes[-1]:
            place.set_xlabel("x1", fontsize=8)
        draw_legend(figure, list(axes.ravel()), markerscale=1.6, fontsize=8)
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
    mapped = part[part["point"] == "map"]
    training = part[part["point"] == "training"]
    x = mapped["x1"].unique()
    y = mapped["x2"].unique()
    image = value(mapped["stable_distance"]).to_numpy().reshape(len(y), len(x))
    axes.pcolormesh(x, y, image, cmap=colours, norm=norm, shading="nearest", rasterized=True)
    label = mapped["prediction"].to_numpy().reshape(len(y), len(x))
    for c in range(1, int(label.max()) + 1):
        axes.contour(x, y, (label == c).astype(float), levels=[0.5], colors="black", linewidths=1.2)
    for (label_of_class, here), (marker, face, edge) in zip(
        training.groupby("prediction"), CLASS_MARKERS, strict=False
    ):
        axes.scatter(
            here["x1"],
            here["x2"],
            s=9,
            marker=marker,
            facecolors=face,
            edgecolors=edge,
            linewidths=0.35,
            label=f"training records of class {label_of_class}",
        )
    axes.set(aspect="equal", xlim=x[[0, -1]], ylim=y[[0, -1]])
    axes.tick_params(labelsize=8)
