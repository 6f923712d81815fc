"""What keeps a figure from being read in print, found in where its parts are drawn."""

from collections.abc import Iterator
from itertools import combinations, pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text

PIXEL = 1.0  # boxes that share no more than this do not overlap
GREY_STEP = 0.15  # luminance: lines that differ by less look alike in grey
NO_MARKER = ("", " ", "None", "none", None)


def faults(figure: Figure) -> list[str]:
    """Return what cannot be read in a figure; empty: all of it can.

    Checked are texts that overlap or leave the figure, empty panels, axes without a name or with
    one tick, legends over curves, curves that look alike in grey, and headings that are broken
    within an equation.
    """
    figure.draw_without_rendering()
    found = [*_text_faults(figure), *_heading_faults(figure)]
    for axes in figure.axes:
        if axes.axison:
            found += _panel_faults(axes)
    return found


def _text_faults(figure: Figure) -> Iterator[str]:
    boxes = [(text.get_text(), text.get_window_extent()) for text in _drawn_texts(figure)]
    for (one, box), (other, other_box) in combinations(boxes, 2):
        width = min(box.x1, other_box.x1) - max(box.x0, other_box.x0)
        height = min(box.y1, other_box.y1) - max(box.y0, other_box.y0)
        if min(width, height) > PIXEL:
            yield f"{one!r} overlaps {other!r}"
    page = figure.bbox.padded(PIXEL)
    for text, box in boxes:
        if not (page.contains(box.x0, box.y0) and page.contains(box.x1, box.y1)):
            yield f"{text!r} leaves the figure"


def _drawn_texts(figure: Figure) -> list[Text]:
    hidden = set[Text]()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            labels = {*axis.get_ticklabels(), *axis.get_ticklabels(minor=True)}
            hidden |= labels - {*_tick_labels(axis)}
            if not axes.axison:
                hidden |= {axis.label, axis.offsetText}
    texts = figure.findobj(Text)
    return [t for t in texts if t.get_visible() and t.get_text().strip() and t not in hidden]


def _tick_labels(axis: Axis) -> list[Text]:
    """Return an axis' tick labels that are drawn: ticks outside of its limits are not."""
    if not axis.axes.axison:
        return []
    low, high = sorted(axis.get_view_interval())
    slack = 1e-9 * (high - low)
    ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
    inside = [tick for tick in ticks if low - slack <= tick.get_loc() <= high + slack]
    labels = [tick.label1 for tick in inside if tick.label1.get_visible()]
    return [label for label in labels if label.get_text().strip()]


def _heading_faults(figure: Figure) -> Iterator[str]:
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    for heading in (figure.get_suptitle(), *titles):
        for line in heading.split("\n"):
            if line.strip().startswith("=") or line.strip().endswith("="):
                yield f"a line of a heading is broken at an equals sign: {line!r}"


def _panel_faults(axes: Axes) -> Iterator[str]:
    panel = f"panel {axes.get_title(loc='left')!r}"
    is_colour_bar = axes.get_label() == "<colorbar>"
    if not axes.has_data() and not is_colour_bar:
        yield f"{panel} is empty"
    for axis in (axes.xaxis, axes.yaxis):
        labels = [label.get_text() for label in _tick_labels(axis)]
        is_of_words = any(any(letter.isalpha() for letter in label) for label in labels)
        if is_of_words or not labels:
            continue
        if not any(other.label.get_text() for other in _axes_alongside(axis)):
            yield f"{panel}: the {axis.axis_name} axis has no name"
        low, high = axis.get_data_interval()
        if len(labels) < 2 and not np.isclose(low, high) and not is_colour_bar:
            yield f"{panel}: the {axis.axis_name} axis has one tick, {labels}"
    lines = [handle for handle in axes.get_legend_handles_labels()[0] if isinstance(handle, Line2D)]
    yield from _covered_lines(axes, lines, panel)
    for one, other in combinations(lines, 2):
        if _looks(one) == _looks(other) and abs(_grey(one) - _grey(other)) < GREY_STEP:
            yield f"{panel}: {one.get_label()!r} looks like {other.get_label()!r} in grey"


def _axes_alongside(axis: Axis) -> list[Axis]:
    """Return the axis and those of the panels in its row (of a y axis) or column (of an x axis)."""
    is_x = axis.axis_name == "x"
    place = axis.axes.get_position().intervalx if is_x else axis.axes.get_position().intervaly
    found = []
    for axes in axis.axes.figure.axes:
        other = axes.get_position().intervalx if is_x else axes.get_position().intervaly
        if np.allclose(place, other):
            found.append(axes.xaxis if is_x else axes.yaxis)
    return found


def _covered_lines(axes: Axes, lines: list[Line2D], panel: str) -> Iterator[str]:
    legend = axes.get_legend()
    if legend is None:
        return
    box = legend.get_window_extent()
    for line in lines:
        points = line.get_transform().transform(np.asarray(line.get_xydata(), dtype=float))
        points = points[np.isfinite(points).all(axis=1)]
        between = [np.linspace(a, b, 20) for a, b in pairwise(points)]
        points = np.concatenate([points, *between])
        if any(box.contains(x, y) for x, y in points):
            yield f"{panel}: the legend covers {line.get_label()!r}"


def _looks(line: Line2D) -> tuple[object, ...]:
    marker = "" if line.get_marker() in NO_MARKER else line.get_marker()
    is_empty = bool(marker) and line.get_markerfacecolor() == "white"
    return line.get_linestyle(), marker, is_empty, line.get_linewidth()


def _grey(line: Line2D) -> float:
    return float(np.dot(to_rgb(line.get_color()), (0.299, 0.587, 0.114)))
