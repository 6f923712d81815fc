"""Figures for print, in grey and on a phone; each is written as pdf and png, with its data as csv.

The finding is written above the axes, and below it what the figure is of. Legends are below the
axes, where there is no line. The lines of axes end where the data ends, or at the ticks around it.
The map of the plane follows 001 Fig 3 and 000 Fig 1. Each function ``draw_*`` of a figure returns
its caption by its name.

Each curve has a dash and marker of its own besides its colour, so that it is recognized in grey.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from itertools import cycle, pairwise
from textwrap import fill
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter

from agt.certificates.box import Certificates
from agt_cli.report.certification_md import LabelCertification
from agt_cli.report.markdown import DPI, shorten
from agt_cli.report.number_md import NumberCertification
from agt_cli.report.quality import NO_BREAK, format_rate
from agt_cli.report.record import RunRecord, csv_bytes

STYLE: dict[str, Any] = {
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "pdf.fonttype": 42,
    "text.parse_math": False,  # a name with two dollars is no formula
    "savefig.bbox": "tight",
    "hatch.linewidth": 0.4,
}
# monotone from light (fragile) to dark (stable), so that grey print keeps the order
COLOUR_MAP = "YlGnBu"
DARKEST_COLOUR = 0.72  # points stay visible on it
HEADLINE_K = 20  # the k that findings speak of, where the grid goes so far
# of the lines in the order in which they are drawn: the thick one below
CURVE_STYLES: dict[str, dict[str, Any]] = {
    "certified_fraction": {"color": "#4292c6", "linewidth": 4},
    "nominal_accuracy": {"color": "black", "linewidth": 1, "linestyle": "--"},
    "worst_accuracy": {"color": "#d94801", "linewidth": 1.6},
    "best_accuracy": {"color": "#238b45", "linewidth": 1.8, "linestyle": ":"},
}
LINE_NAMES = {
    "certified_fraction": "certified fraction",
    "nominal_accuracy": "accuracy as trained",
    "worst_accuracy": "lowest possible accuracy",
    "best_accuracy": "highest possible accuracy",
}
"""What legends call the columns of tables/certified.csv, in the words of its titles."""
CLASS_MARKERS = (
    ("o", "white", "black"),
    ("^", "black", "white"),
    ("s", "0.5", "white"),
    ("D", "0.8", "black"),
)
MAP_LEVELS = 8
HISTOGRAM_BINS = 12
TRAINING_POINTS = 400  # drawn on a map, at most: the colours behind them stay visible
WIDTH = 5.2  # inches: as wide as a phone shows without scrolling
LETTERS_PER_INCH = 12  # of text along a figure
LEGEND_MARK_LETTERS = 8  # the width of the line beside a name in a legend, and of the gaps
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
CURVE_GID = "curve"  # the gid of lines that others may cover
COVERING_DISTANCE = 0.01  # of a panel's height: curves that are nearer run on one another
COVERED_LENGTH = 0.15  # of a panel's width: curves that are so near for less only meet
COVERED_EXTRA_WIDTH = 2.0  # points by which a curve is wider for each that runs on it


LineStyles = dict[str, dict[str, Any]]
"""The name of a line -> the arguments of Matplotlib that draw it."""


@dataclass(frozen=True)
class Grid:
    """A regular grid over a part of the plane.

    Attributes:
        x, y: [m] coordinates along the axes.
    """

    x: np.ndarray
    y: np.ndarray

    @classmethod
    def around(cls, points: np.ndarray, resolution: int) -> "Grid":
        """Return a grid over a square around points [n, 2], with a margin of a tenth."""
        middle = (points.max(axis=0) + points.min(axis=0)) / 2
        half = 0.55 * float((points.max(axis=0) - points.min(axis=0)).max())
        x, y = (np.linspace(centre - half, centre + half, resolution) for centre in middle)
        return cls(x, y)

    @property
    def points(self) -> np.ndarray:
        """The points of the grid, [m * m, 2]; those of one y are together."""
        x, y = np.meshgrid(self.x, self.y)
        return np.stack([x.ravel(), y.ravel()], axis=1)

    @property
    def shape(self) -> tuple[int, int]:
        """The number of y and of x, as arrays over the grid are shaped."""
        return len(self.y), len(self.x)


def draw_certified_fraction(
    record: RunRecord, certification: LabelCertification, table: pd.DataFrame
) -> dict[str, str]:
    """Draw the certified fraction against k; return the caption by its name.

    If labels are known, the accuracy as trained and the lowest and highest possible ones are drawn
    as well. The axis ends where all of them stay the same.

    Args:
        record: into which it is drawn.
        certification: the certified answers.
        table: certified counts by k.
    """
    drawn_rows = _rows_until_constant(table)
    hidden_from = int(table["k"].iloc[drawn_rows - 1])
    largest_k = int(table["k"].iloc[-1])
    is_cut = drawn_rows < len(table)
    table = table.iloc[:drawn_rows]
    k = table["k"]
    with saved_figure(record, "certified_fraction", table, (WIDTH, 4.2)) as figure:
        axes = figure.subplots()
        if certification.labelled:
            axes.fill_between(
                k,
                table["worst_accuracy"],
                table["best_accuracy"],
                color="0.9",
                linewidth=0,
                label="accuracies that are possible",
            )
        for column, name in _curve_names(table).items():
            marker_style: dict[str, Any] = {"marker": "o", "markersize": 3} if len(k) < 25 else {}
            axes.plot(k, table[column], label=name, **CURVE_STYLES[column], **marker_style)
        axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
        axes.set(
            xlabel=wrap_text(f"k: {certification.edits}", WIDTH),
            ylabel=f"fraction of {certification.queries_description}",
            ylim=(0, 1.02),
        )
        end_axes_at_data([axes], "x")
        draw_legend(figure, [axes])
        row = table[table["k"] <= max(HEADLINE_K, table["k"].iloc[:2].max())].iloc[-1]
        share = _percent(float(row["certified_fraction"]))
        finding = f"Certified at k = {int(row['k']):,}: {share} of the predictions"
        draw_headline(figure, finding, certification.figure_subtitle)
    changes = certification.edits
    caption = f"Fraction of the answers that are certified, against k ({changes})."
    if is_cut:
        share = format_rate(float(table["certified_fraction"].iloc[-1]))
        caption += f" It is {share} from k = {hidden_from:,} to the largest k, {largest_k:,}."
    return {"certified_fraction": caption}


def _rows_until_constant(table: pd.DataFrame) -> int:
    """Return how many rows are drawn of a table by k: those before its columns stop changing.

    The first row of the constant part is among them. All rows are returned if that part has fewer
    than three rows.

    Args:
        table: certified counts by k, with the columns that are drawn.
    """
    values = table[[column for column in CURVE_STYLES if column in table]].to_numpy()
    differs = np.flatnonzero((values != values[-1]).any(axis=1))
    changing = int(differs[-1]) + 1 if len(differs) else 0
    drawn_rows = max(changing + 1, 2)
    return drawn_rows if len(table) - drawn_rows >= 2 else len(table)


def draw_intervals(
    record: RunRecord,
    certification: NumberCertification,
    table: pd.DataFrame,
    labels: np.ndarray | None,
) -> dict[str, str]:
    """Draw the median and mean width of intervals against k; return the caption by its name.

    If labels are known, they are drawn against answers as well.

    Args:
        record: into which it is drawn.
        certification: the certified answers.
        table: widths by k.
        labels: [n] the true numbers; None: not known.
    """
    prediction = certification.certificates.prediction
    with saved_figure(
        record, "intervals", table, (WIDTH, 4.2 if labels is None else 7.6)
    ) as figure:
        panels = figure.subplots(1 if labels is None else 2, squeeze=False)[:, 0]
        panels[0].plot(table["k"], table["width_median"], "o-", color="black", label="median")
        panels[0].plot(table["k"], table["width_mean"], "v--", color="#d94801", label="mean")
        xlabel = wrap_text(f"k: {certification.edits}", WIDTH)
        panels[0].set(xlabel=xlabel, ylabel="width of the interval")
        panels[0].legend()
        if labels is not None:
            shown = np.linspace(0, len(labels) - 1, min(len(labels), TRAINING_POINTS))
            rows = shown.astype(np.int64)
            panels[1].plot(labels[rows], prediction[rows], ".", color="#2171b5", alpha=0.5)
            ends_of_range = [
                certification.certificates.target.low,
                certification.certificates.target.high,
            ]
            panels[1].plot(ends_of_range, ends_of_range, color="0.6", linewidth=1)
            panels[1].set(xlabel="true label", ylabel="answer")
        last = table.iloc[-1]
        finding = f"At k = {int(last['k'])}, half of the intervals are at most "
        finding += f"{last['width_median']:.4g} wide"
        draw_headline(figure, finding, certification.figure_subtitle)
    return {
        "intervals": (
            f"Width of the certified intervals against k ({certification.edits}), and answers "
            "against true labels, where these are known."
        )
    }


def _curve_names(table: pd.DataFrame) -> dict[str, str]:
    """Return the name of each line, by its column, the last drawn on top.

    Lines that run on one another are one, with both names.
    """
    lines: dict[str, str] = {}
    for column in CURVE_STYLES:
        if column not in table:
            continue
        name = LINE_NAMES[column]
        same = next((other for other in lines if np.array_equal(table[other], table[column])), None)
        if same is None:
            lines[column] = name
        else:
            lines[same] = f"{lines[same]} = {name}"
    return lines


def _percent(share: float) -> str:
    """Return a share in percent, for a heading: "38.7%"; "100%" is all and no less."""
    return f"{float(format_rate(share)):.1%}".replace(".0%", "%")


def draw_distance_histogram(
    record: RunRecord, certification: LabelCertification, labels: np.ndarray | None
) -> dict[str, str]:
    """Draw how many queries have which stable distance; return the caption by its name.

    Wrong predictions have separate bars if labels are known.

    Args:
        record: into which it is drawn.
        certification: the certified answers.
        labels: [n] the true ones; None: not known.
    """
    stable = certification.certificates.stable_distance
    largest = int(stable.max(initial=0))
    ks = certification.certificates.ks
    # The first k beyond all distances is the end of the last bin that is drawn.
    drawn_ks = [k for k in ks if k <= largest] + [k for k in ks if k > largest][:1]
    edges = _bin_starts((0, *drawn_ks), HISTOGRAM_BINS)
    is_right = np.ones(len(stable), dtype=bool)
    if labels is not None:
        is_right = certification.certificates.prediction == labels
    bins = [*edges, np.inf]
    right, _ = np.histogram(stable[is_right], bins)
    wrong, _ = np.histogram(stable[~is_right], bins)
    data = pd.DataFrame({"stable_distance_from": edges, "right": right, "wrong": wrong})
    if labels is None:
        data = data.rename(columns={"right": "queries"}).drop(columns="wrong")
    filled = np.flatnonzero(right + wrong)
    drawn_bins = slice(filled[0], filled[-1] + 1) if len(filled) else slice(1)
    names = _bin_names(edges)[drawn_bins]
    with saved_figure(record, "stable_distances", data, (WIDTH, 2.3 + 0.22 * len(names))) as figure:
        axes = figure.subplots()
        _draw_bars(
            axes,
            right[drawn_bins],
            wrong[drawn_bins],
            None if labels is None else "right prediction",
        )
        axes.set_yticks(np.arange(len(names)), names)
        axes.set(
            ylabel="stable distance, in k",
            xlabel=f"number of {certification.queries_description}",
        )
        end_axes_at_data([axes], "x")
        if labels is not None:
            draw_legend(figure, [axes])
        median = f"{np.median(stable):,.1f}".removesuffix(".0")
        about = f"{certification.figure_subtitle} · k: {certification.edits}"
        draw_headline(figure, f"Median stable distance: k = {median}", about)
    return {"stable_distances": "Number of queries at each stable distance."}


def _draw_bars(axes: Axes, right: np.ndarray, wrong: np.ndarray, label: str | None) -> None:
    """Draw a bar for each bin, the wrong predictions behind the right ones, with its number.

    Args:
        axes: where.
        right: [bins] numbers of right predictions.
        wrong: [bins] numbers of wrong ones.
        label: the label of the right predictions in the legend; None: right and wrong ones are
            drawn alike.
    """
    heights = np.arange(len(right))
    bars = axes.barh(heights, right, 0.8, color="#2c7fb8", label=label)
    # an empty bar chart would still enter the legend, in a colour of its own
    if wrong.any():
        edge_widths = np.where(wrong > 0, 1.0, 0.0)  # no stroke where there is no bar
        bars = axes.barh(
            heights,
            wrong,
            0.8,
            left=right,
            color="white",
            edgecolor="black",
            linewidth=edge_widths,
            hatch="/////",
            label="wrong prediction",
        )
    axes.bar_label(bars, [f"{number:,}" for number in right + wrong], padding=3, fontsize=8)


def draw_plane_map(
    record: RunRecord,
    certification: LabelCertification,
    grid: Grid,
    certificates: Certificates,
    margins: np.ndarray,
    points: np.ndarray,
    labels: np.ndarray,
) -> dict[str, str]:
    """Draw regions of equal stable distance, the decision line, and the training points by class.

    Args:
        record: into which it is drawn.
        certification: the certified answers.
        grid: the grid of the plane.
        certificates: the certificates of ``grid.points``, in their order, at the values of k that
            ``plane_map_ks`` chose.
        margins: [lines, m * m] the nominal model's signed margins; a decision line is where one is
            0.
        points: [n, 2] training points.
        labels: [n] their classes.

    Returns:
        The caption by its name.
    """
    data = pd.DataFrame(grid.points, columns=["x1", "x2"])
    data["prediction"] = certificates.prediction
    data["certified_up_to"] = certificates.stable_distance
    edges = sorted({0, *certificates.ks})
    with saved_figure(record, "plane_map", data, (WIDTH, 4.5)) as figure:
        axes = figure.subplots()
        colours = ListedColormap(
            mpl.colormaps[COLOUR_MAP](np.linspace(0, DARKEST_COLOUR, len(edges)))
        )
        norm = BoundaryNorm([*edges, edges[-1] + 1], len(edges))
        stable = certificates.stable_distance.reshape(grid.shape)
        image = axes.pcolormesh(
            grid.x, grid.y, stable, cmap=colours, norm=norm, shading="nearest", rasterized=True
        )
        for margin in margins:
            line = margin.reshape(grid.shape)
            axes.contour(grid.x, grid.y, line, levels=[0], colors="black", linewidths=1.6)
        _draw_points(axes, certification, points, labels)
        _draw_colour_bar(figure, image, axes, edges, certification)
        axes.set(
            xlabel="x1", ylabel="x2", aspect="equal", xlim=grid.x[[0, -1]], ylim=grid.y[[0, -1]]
        )
        draw_legend(figure, [axes], markerscale=1.6)
        level = next(edge for edge in edges if edge >= min(HEADLINE_K, edges[-1]))
        share = _percent(float((certificates.stable_distance >= level).mean()))
        draw_headline(
            figure, f"Certified at k = {level:,}: {share} of the plane shown", certification.dataset
        )
    return {
        "plane_map": (
            "Regions of equal stable distance, the decision boundary, and the training points."
        )
    }


def _draw_points(
    axes: Axes, certification: LabelCertification, points: np.ndarray, labels: np.ndarray
) -> None:
    """Draw some of the training points [n, 2], with a marker for each class of labels [n]."""
    shown = np.unique(np.linspace(0, len(points) - 1, TRAINING_POINTS).astype(int))
    points = points[shown]
    labels = labels[shown]
    for label, (marker, face, edge) in zip(
        range(len(certification.classes)), cycle(CLASS_MARKERS), strict=False
    ):
        x, y = points[labels == label].T
        axes.scatter(
            x,
            y,
            s=11,
            marker=marker,
            facecolors=face,
            edgecolors=edge,
            linewidths=0.4,
            label=f"trained on: {shorten(certification.classes[label])}",
        )


def plane_map_ks(ks: tuple[int, ...]) -> tuple[int, ...]:
    """Return the values of k at which the map changes its colour: round ones of the grid, and its
    ends.
    """
    return tuple(k for k in _bin_starts((0, *ks), MAP_LEVELS) if k in ks)


def _draw_colour_bar(
    figure: Figure,
    image: ScalarMappable,
    axes: Axes,
    edges: list[int],
    certification: LabelCertification,
) -> None:
    """Draw the legend of the colours, which are stable distances."""
    centres = [
        (low + high) / 2 for low, high in zip(edges, [*edges[1:], edges[-1] + 1], strict=True)
    ]
    bar = figure.colorbar(image, ax=axes, ticks=centres, spacing="uniform", shrink=0.75)
    bar.ax.set_yticklabels(_bin_names(edges))
    bar.ax.tick_params(length=0)
    bar.ax.minorticks_off()
    bar.set_label(f"stable distance\n{wrap_text(f'(k: {certification.edits})', 3)}")


def _bin_starts(ks: tuple[int, ...], max_bins: int) -> list[int]:
    """Return where bins of stable distance start: 0, and round values of the grid with its last.

    Args:
        ks: the grid.
        max_bins: about how many there are at most.
    """
    values = sorted(set(ks))
    if len(values) <= max_bins:
        return values
    last = values[-1]
    steps = [1, 2, 5, *(step * 10**power for power in range(9) for step in (10, 20, 25, 50))]
    step = next(step for step in steps if last / step <= max_bins)
    edges = {0}
    for round_value in [1, *range(step, last + 1, step), last]:
        # the first value of the grid from there on
        edges.add(min((value for value in values if value >= round_value), default=last))
    return sorted(edges)


def _bin_names(edges: list[int]) -> list[str]:
    """Return names of bins, like 0, 1–9, ...

    The last bin, which is cut off by the end of the grid, is named "≥".
    """
    spans = [str(low) if high == low + 1 else f"{low}–{high - 1}" for low, high in pairwise(edges)]
    return [*spans, f"≥ {edges[-1]}"]


def wrap_text(text: str, inches: float) -> str:
    """Return text in lines of so many inches, none of which breaks an equation such as k = 25."""
    unbroken = text.replace(" = ", f"{NO_BREAK}={NO_BREAK}")
    return fill(unbroken, int(LETTERS_PER_INCH * inches))


def draw_headline(figure: Figure, finding: str, about: str) -> None:
    """Write the figure's finding and its title above the axes.

    Both are drawn as text, even if they contain signs of TeX.
    """
    lines = [wrap_text(line, figure.get_figwidth()) for line in (finding, about) if line]
    if lines:
        figure.suptitle("\n".join(lines), fontsize=10, x=0.01, ha="left")


def legend_columns(names: Iterable[str], width: float) -> int:
    """Return how many columns a legend has below a figure of this width in inches, at least 1.

    Args:
        names: the entries of the legend; a name may have several lines.
        width: the width of the figure in inches.
    """
    longest_line = max(len(shorten(line)) for name in names for line in name.split("\n"))
    return max(1, int(width * LETTERS_PER_INCH / (LEGEND_MARK_LETTERS + longest_line)))


def draw_legend(
    figure: Figure, panels: Sequence[Axes], at_right: bool = False, **style: Any
) -> None:
    """Draw the legend of a figure below its axes, or at their right.

    Its entries have the order in which lines end at the right: the highest first.

    Args:
        figure: the figure.
        panels: the axes whose lines and marks are entered; a name that several have is one entry.
        at_right: False: below the axes.
        style: further arguments of ``Figure.legend``.
    """
    labels = {
        name: handle
        for axes in panels
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    shown = sorted(labels.items(), key=lambda item: -_last_height(item[1]))
    names = ["\n".join(shorten(line, 60) for line in name.split("\n")) for name, _ in shown]
    columns = 1 if at_right else legend_columns(names, figure.get_figwidth())
    location: Any = "outside right upper" if at_right else "outside lower left"
    figure.legend([handle for _, handle in shown], names, loc=location, ncols=columns, **style)


def _last_height(handle: Any) -> float:
    """Return the last height of a line; 0 of anything else, which keeps its place."""
    if not hasattr(handle, "get_ydata"):
        return 0.0
    heights = np.asarray(handle.get_ydata(), dtype=float)
    heights = heights[np.isfinite(heights)]
    return float(heights[-1]) if len(heights) else -math.inf


def end_axes_at_data(panels: Sequence[Axes], axis_names: str) -> None:
    """Let the lines of axes end where the data ends.

    Args:
        panels: axes that share their scales, with their ticks set.
        axis_names: x, y or both.
    """
    for name in axis_names:
        spans = np.array([_data_limits(axes, name) for axes in panels])
        low = float(spans[:, 0].min())
        high = float(spans[:, 1].max())
        if not np.isfinite(spans).all():
            continue
        if math.isclose(low, high, rel_tol=1e-6):
            _only_tick(panels, name, low)
            continue
        for axes in panels:
            _end_axis(axes, name, low, high)


def end_axes_at_ticks(
    panels: Sequence[Axes],
    name: str,
    max_steps: int = 6,
    margin: float = 0.0,
    whole_numbers: bool = False,
) -> None:
    """Let the lines of axes end at the ticks around the data, so that every value is between ticks.

    Args:
        panels: axes that share their scales; logarithmic ones with their ticks set.
        name: x or y.
        max_steps: the approximate number of steps between the first tick and the last.
        margin: the part of the data's height that remains at both ends of a linear axis.
        whole_numbers: whether the values are counts, so that no tick is between whole numbers.
    """
    spans = np.array([_data_limits(axes, name) for axes in panels])
    if not np.isfinite(spans).all():
        return
    low = float(spans[:, 0].min())
    high = float(spans[:, 1].max())
    axis = getattr(panels[0], f"{name}axis")
    if axis.get_scale() == "log":
        if math.isclose(low, high, rel_tol=1e-6):
            _only_tick(panels, name, low)
            return
        located = np.asarray(axis.get_major_locator().tick_values(low, high))
        ticks = _ticks_around(located[located > 0], low, high)
        factor = (ticks[-1] / ticks[0]) ** 0.03
        limits = (ticks[0] / factor, ticks[-1] * factor)
    else:
        margin_width = margin * (high - low)
        ticks = covering_ticks(low, high, max_steps, margin_width, whole_numbers)
        room = 0.03 * (ticks[-1] - ticks[0])
        limits = (ticks[0] - room, ticks[-1] + room)
    for axes in panels:
        axes.set(**{f"{name}lim": limits})
        axes.spines["bottom" if name == "x" else "left"].set_bounds(ticks[0], ticks[-1])
        getattr(axes, f"{name}axis").set_ticks(ticks)


def covering_ticks(
    low: float,
    high: float,
    max_steps: int = 6,
    margin: float = 0.0,
    whole_numbers: bool = False,
) -> np.ndarray:
    """Return at least three round ticks, the first at most ``low`` and the last at least ``high``.

    Shares stay shares: if both are between 0 and 1, no tick is below 0 or above 1. Two successive
    whole numbers have two ticks.

    Args:
        low, high: the ends of the data.
        max_steps: the approximate number of steps between the first tick and the last.
        margin: the least distance by which the ticks exceed the data on each side.
        whole_numbers: whether the data are counts, so that no tick is between whole numbers.
    """
    is_share = low >= 0 and high <= 1
    if math.isclose(low, high, rel_tol=1e-6):
        margin = max(margin, 0.02 * (abs(low) or 1))
    low -= margin
    high += margin
    if is_share:
        low = max(low, 0.0)
        high = min(high, 1.0)
    for steps in (max_steps, max_steps + 1, max_steps + 2):
        locator = MaxNLocator(steps, steps=[1, 2, 2.5, 5, 10], min_n_ticks=1, integer=whole_numbers)
        ticks = _ticks_around(np.asarray(locator.tick_values(low, high)), low, high)
        if len(ticks) >= 3:
            break
    return ticks


def _ticks_around(ticks: np.ndarray, low: float, high: float) -> np.ndarray:
    """Return the ticks from the last at or below ``low`` to the first at or above ``high``.

    All from the lowest on (to the highest) are returned if none is so low (so high).
    """
    slack = 1e-9 * (high - low)
    first = ticks[ticks <= low + slack].max(initial=ticks.min())
    last = ticks[ticks >= high - slack].min(initial=ticks.max())
    return np.asarray(ticks[(ticks >= first) & (ticks <= last)])


def _data_limits(axes: Axes, name: str) -> tuple[float, float]:
    """Return the least and the greatest value along an axis, x or y, that its scale can show."""
    low, high = getattr(axes.dataLim, f"interval{name}")
    if getattr(axes, f"{name}axis").get_scale() == "log" and low <= 0:
        low = getattr(axes.dataLim, f"minpos{name}")
    return float(low), float(high)


def _end_axis(axes: Axes, name: str, low: float, high: float) -> None:
    """End the line of an axis at two values, and remove the ticks outside of them.

    The limits of the axis are a little wider, so that marks at the ends are not cut off.

    Args:
        axes: it is changed.
        name: the name of the axis, x or y.
        low, high: the smallest and the largest value of the data; positive on a logarithmic axis.
    """
    axis = getattr(axes, f"{name}axis")
    if axis.get_scale() == "linear":
        margin = 0.02 * (high - low)
        limits = (low - margin, high + margin)
        rounding = 1e-9 * (high - low)
    else:
        factor = (high / low) ** 0.02
        limits = (low / factor, high * factor)
        rounding = 1e-9 * low
    axes.set(**{f"{name}lim": limits})
    axes.spines["bottom" if name == "x" else "left"].set_bounds(low, high)
    for minor in (False, True):
        ticks = axis.get_ticklocs(minor=minor)
        remaining_ticks = [tick for tick in ticks if low - rounding <= tick <= high + rounding]
        axis.set_ticks(remaining_ticks, minor=minor)


def _only_tick(panels: Sequence[Axes], name: str, value: float) -> None:
    """Give an axis on which everything has one value that value as its only tick.

    Args:
        name: the name of the axis, x or y.
    """
    for axes in panels:
        axis = getattr(axes, f"{name}axis")
        if axis.get_scale() == "log":
            axes.set(**{f"{name}lim": (value / 2, value * 2)})
        axis.set_ticks([value], labels=[f"{value:,.4g}" if value < 1000 else f"{value:,.0f}"])
        axis.set_ticks([], minor=True)


@contextmanager
def saved_figure(
    record: RunRecord, name: str, data: pd.DataFrame, size: tuple[float, float]
) -> Iterator[Figure]:
    """Yield a figure that is written to figures/NAME.{pdf,png,csv} when it is drawn.

    Args:
        record: into which it is written.
        name: the name of the figure.
        data: the data that the figure shows, which become NAME.csv.
        size: width and height in inches.
    """
    with mpl.rc_context(STYLE):  # type: ignore[arg-type]
        # no pyplot: no global state, no display
        figure = Figure(figsize=size, layout="constrained")
        yield figure
        for kind in ("pdf", "png"):
            buffer = BytesIO()
            figure.savefig(buffer, format=kind, dpi=DPI)
            record.write(f"figures/{name}.{kind}", buffer.getvalue())
    record.write(f"figures/{name}.csv", csv_bytes(data))


# Each mechanism looks the same in every figure; ours are dark and blue, those of the papers warm,
# comparisons grey.
MECHANISM_STYLES: dict[str, dict[str, Any]] = {
    "release_weights": {"color": "black", "linestyle": "-", "marker": "P"},
    "noisy_statistics": {"color": "black", "linestyle": "-.", "marker": "X"},
    "randomized_response": {"color": "#08306b", "linestyle": "-", "marker": "o"},
    "gaussian_margin": {"color": "#2171b5", "linestyle": "--", "marker": "s"},
    "smooth_cauchy": {"color": "#d94801", "linestyle": "-", "marker": "v"},
    "smooth_laplace": {"color": "#fd8d3c", "linestyle": "--", "marker": "<"},
    "global_sensitivity": {"color": "#8c2d04", "linestyle": "-.", "marker": "x"},
    "noisy_argmax": {"color": "#238b45", "linestyle": "-.", "marker": "D"},
    "gaussian_argmax": {"color": "#00441b", "linestyle": "--", "marker": "d"},
    "propose_test_release": {"color": "#74c476", "linestyle": ":", "marker": "^"},
    "inverse_sensitivity": {"color": "0.45", "linestyle": "--", "marker": "*"},
    "exponential_mechanism": {"color": "0.65", "linestyle": ":", "marker": "+"},
    "DP-SGD": {"color": "#6a51a3", "linestyle": "-", "marker": ">"},
}
PANELS_PER_ROW = 2  # panels side by side, at most
DASHES = ("-", "--", ":", "-.")
SERIES_STYLES: tuple[dict[str, Any], ...] = (
    {"color": "#08306b", "linestyle": "-", "marker": "o"},
    {"color": "#d94801", "linestyle": "--", "marker": "v"},
    {"color": "#2171b5", "linestyle": "-.", "marker": "s"},
    {"color": "#238b45", "linestyle": ":", "marker": "D"},
    {"color": "0.35", "linestyle": "--", "marker": "x"},
    {"color": "#fd8d3c", "linestyle": "-", "marker": "^"},
    {"color": "0.6", "linestyle": "-.", "marker": "+"},
    {"color": "black", "linestyle": ":", "marker": "*"},
)


def draw_accuracy_by_queries(
    record: RunRecord,
    name: str,
    data: pd.DataFrame,
    noise_free: float,
    majority: float,
    order: Sequence[str],
    finding: str,
    title: str,
) -> None:
    """Draw accuracy against the number of queries, a panel for each total budget (``agt plan``).

    Args:
        name: the name of the figure's files.
        data: columns ``queries``, ``accuracy``, ``series`` (the curve of a point) and ``panel``
            (its total budget).
        noise_free, majority: accuracies that are drawn as straight lines to compare with.
        order: the names of the panels, in their order.
        finding: a sentence that says what the figure shows.
        title: a phrase that says what the data is.
    """
    panels = panels_in_order(list(data.groupby("panel", sort=False)), order)
    styles = line_styles([str(series) for series in dict.fromkeys(data["series"])])
    columns = min(PANELS_PER_ROW, len(panels))
    rows = math.ceil(len(panels) / columns)
    width = 6.8 if columns > 1 else WIDTH
    names = [*styles, "noise-free", "majority"]
    legend = 0.2 * math.ceil(len(names) / legend_columns(names, width))
    with saved_figure(record, name, data, (width, 1.1 + 2.7 * rows + legend)) as figure:
        grid = figure.subplots(rows, columns, squeeze=False, sharey=True, sharex=True)
        all_axes = grid.ravel().tolist()
        for axes, (panel, part) in zip(all_axes, panels, strict=False):
            axes.set_title(str(panel))
            _draw_accuracy_curves(axes, part, styles)
            _draw_reference_lines(axes, noise_free, majority)
        set_log_ticks(all_axes[0].xaxis, data["queries"])
        used_axes = all_axes[: len(panels)]
        end_axes_at_data(used_axes, "x")
        end_axes_at_ticks(used_axes, "y")
        widen_covered_curves(used_axes)
        for axes in all_axes[len(panels) :]:
            axes.set_axis_off()
        for axes in used_axes[-columns:]:
            axes.tick_params(labelbottom=True)
            axes.set_xlabel("queries")
        for axes in used_axes[::columns]:
            axes.set_ylabel("expected accuracy")
        draw_legend(figure, used_axes)
        draw_headline(figure, finding, title)


def _draw_accuracy_curves(axes: Axes, data: pd.DataFrame, styles: LineStyles) -> None:
    """Draw a curve of accuracy against the number of queries for each series.

    Args:
        axes: the axes of the panel for one total budget.
        data: the points of this budget, with columns ``queries``, ``accuracy`` and ``series`` (the
            curve of a point).
        styles: the style of each series, by name.
    """
    axes.set_xscale("log")
    for series, points in data.sort_values("queries").groupby("series", sort=False):
        axes.plot(
            points["queries"],
            points["accuracy"],
            label=series,
            gid=CURVE_GID,
            markersize=3.5,
            markevery=max(1, len(points) // 10),
            linewidth=1.4,
            **styles[str(series)],
        )


def _draw_reference_lines(axes: Axes, noise_free: float, majority: float) -> None:
    """Draw the accuracy without noise, and that of the most frequent class, as straight lines."""
    dotted = (0, (1, 2))
    dashed = (0, (6, 2))
    axes.axhline(noise_free, color="black", linewidth=0.8, linestyle=dotted, label="noise-free")
    axes.axhline(majority, color="0.5", linewidth=0.8, linestyle=dashed, label="majority")


def widen_covered_curves(panels: Sequence[Axes]) -> None:
    """Draw a curve and its markers wider for each later curve that runs on it.

    So each curve is seen, and so is each of several single points at one place.

    Curves are the lines whose gid is ``CURVE_GID``. Each is drawn over the earlier ones.

    Args:
        panels: axes with all of their curves, whose limits are set.
    """
    for axes in panels:
        curves = [line for line in axes.get_lines() if line.get_gid() == CURVE_GID]
        for index, curve in enumerate(curves):
            covering = [later for later in curves[index + 1 :] if _runs_on(axes, later, curve)]
            extra_width = COVERED_EXTRA_WIDTH * len(covering)
            curve.set_linewidth(curve.get_linewidth() + extra_width)
            curve.set_markersize(curve.get_markersize() + extra_width)
            curve.set_zorder(2 + 0.01 * index)


def _runs_on(axes: Axes, later: Line2D, curve: Line2D) -> bool:
    """Return whether one line of some axes covers another as a whole, or along COVERED_LENGTH."""
    to_panel = axes.transData - axes.transAxes
    x, y = to_panel.transform(curve.get_xydata()).T
    later_x, later_y = to_panel.transform(later.get_xydata()).T
    y_of_later = np.interp(x, later_x, later_y, left=np.nan, right=np.nan)
    is_near = np.abs(y - y_of_later) <= COVERING_DISTANCE
    covered_length = np.diff(x)[is_near[1:] & is_near[:-1]].sum()
    return bool(is_near.all() or covered_length >= COVERED_LENGTH)


def panels_in_order(
    panels: list[tuple[Any, pd.DataFrame]], order: Sequence[str]
) -> list[tuple[Any, pd.DataFrame]]:
    """Return panels sorted by an order of their names; if the order is empty, unchanged."""
    if not order:
        return panels
    panel_by_name = dict(panels)
    return [(name, panel_by_name[name]) for name in order if name in panel_by_name]


def set_log_ticks(axis: Axis, values: pd.Series) -> None:
    """Set few and round ticks of a logarithmic axis, with numbers as people write them.

    Ticks are powers of ten where the values are more than a hundredfold apart. Otherwise they are
    multiples of these by 1, 2 and 5, or by more numbers, so that at least three are among the
    values (at least two, by 1 and 3 or 1, 2 and 5, if a value is below 0.01, because such labels
    are wide); where no such multiples are, the ticks are two to four equally spaced round numbers.
    """
    positive = values[values > 0]
    low = float(positive.min())
    high = float(positive.max())
    if high / low > 100:
        choices = [_round_multiples(low, high, (1,))]
        min_ticks = 2
    elif low < 0.01:  # few ticks, because labels such as 0.0005 and 0.001 are wide
        choices = [_round_multiples(low, high, m) for m in ((1, 3), (1, 2, 5))]
        min_ticks = 2
    else:
        choices = [_round_multiples(low, high, m) for m in ((1, 2, 5), (1, 1.5, 2, 3, 5, 7))]
        min_ticks = 3
    few = MaxNLocator(2, steps=[1, 2, 2.5, 5, 10], min_n_ticks=2)
    ticks = np.asarray(few.tick_values(low, high))
    for choice in choices:
        if ((choice >= low) & (choice <= high)).sum() >= min_ticks:
            ticks = choice
            break
    axis.set_major_locator(FixedLocator(ticks.tolist()))
    format_tick = format_power_of_ten if low < 1e-4 else "{:,.10g}".format
    axis.set_major_formatter(FuncFormatter(lambda value, _: format_tick(value)))
    axis.set_minor_formatter(NullFormatter())


def _round_multiples(low: float, high: float, multiples: Sequence[float]) -> np.ndarray:
    """Return the multiples of powers of ten from at most ``low`` to at least ``high``, in order."""
    first = math.floor(math.log10(low))
    last = math.ceil(math.log10(high))
    powers = 10.0 ** np.arange(first, last + 1)
    return np.outer(powers, multiples).ravel()


def format_power_of_ten(value: float) -> str:
    """Return a positive number by its power of ten: "10⁻⁵", "2·10⁻⁵"."""
    mantissa, exponent = f"{value:.10e}".split("e")
    power = "10" + str(int(exponent)).translate(SUPERSCRIPTS)
    return power if float(mantissa) == 1 else f"{float(mantissa):g}·{power}"


def line_styles(names: list[str]) -> LineStyles:
    """Return a style for each series, by its name.

    It is the mechanism's if the name begins with one; a second series of one has other dashes.
    """
    styles: LineStyles = {}
    used: Counter[str] = Counter()
    for index, name in enumerate(names):
        mechanism = next((known for known in MECHANISM_STYLES if name.startswith(known)), "")
        style = MECHANISM_STYLES.get(mechanism) or SERIES_STYLES[index % len(SERIES_STYLES)]
        if not mechanism and index >= len(SERIES_STYLES):
            style = style | {"markerfacecolor": "white"}
        if mechanism and used[mechanism]:
            dashes = [style["linestyle"], *(dash for dash in DASHES if dash != style["linestyle"])]
            linestyle = dashes[used[mechanism] % len(dashes)]
            style = style | {"linestyle": linestyle, "markerfacecolor": "white"}
        styles[name] = dict(style)
        used[mechanism] += 1
    return styles
