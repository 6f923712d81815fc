"""What keeps a figure from being read in print, found in where its parts are drawn."""

from collections.abc import Iterable, Iterator
from itertools import combinations, pairwise

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text

PIXEL = 1.0  # boxes that share no more than this do not overlap
SEEN = 0.25  # of the pixels that a curve has alone: if fewer are seen, the others hide it
PIXEL_STEP = 40  # of 255, in one channel
TICKS = 3  # on a linear axis, at least
GREY_STEP = 0.15  # luminance: lines that differ by less look alike in grey
NO_MARKER = ("", " ", "None", "none", None)


def faults(figure: Figure) -> list[str]:
    """Return what cannot be read in a figure; empty: all of it can.

    Checked are texts that overlap or leave the figure, empty panels, axes without a name, with too
    few ticks or with values beyond their ticks, legends over curves, curves that look alike in
    grey or that others hide, marks beside their place where nothing is in the way, and headings
    that are broken within an equation.
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
        elif not is_colour_bar:
            yield from _tick_faults(axis, panel)
    lines = [handle for handle in axes.get_legend_handles_labels()[0] if isinstance(handle, Line2D)]
    yield from _covered_lines(axes, lines, panel)
    yield from _hidden_lines(axes, lines, panel)
    yield from _shifted_lines(axes, lines, panel)
    for one, other in combinations(lines, 2):
        if _looks(one) == _looks(other) and abs(_grey(one) - _grey(other)) < GREY_STEP:
            yield f"{panel}: {one.get_label()!r} looks like {other.get_label()!r} in grey"


def _tick_faults(axis: Axis, panel: str) -> Iterator[str]:
    """Find a linear axis of different values with too few ticks, or a y axis with values beyond.

    An x axis may end with the data, between two ticks.
    """
    low, high = axis.get_data_interval()
    if axis.get_scale() != "linear" or np.isclose(low, high):
        return
    view_low, view_high = sorted(axis.get_view_interval())
    ticks = [tick for tick in axis.get_majorticklocs() if view_low <= tick <= view_high]
    is_of_whole_numbers = all(float(tick).is_integer() for tick in ticks)
    few_values = is_of_whole_numbers and high - low < TICKS - 1  # 1 and 2 layers
    if len(ticks) < TICKS and not few_values:
        yield f"{panel}: the {axis.axis_name} axis has few ticks, {ticks}"
    room = 0.02 * (view_high - view_low)
    is_beyond = len(ticks) and (low < min(ticks) - room or high > max(ticks) + room)
    ends_anywhere = axis.axes.get_aspect() != "auto" or axis.axes.patches  # maps, bars
    if axis.axis_name == "y" and is_beyond and not ends_anywhere:
        yield f"{panel}: values from {low:g} to {high:g} are beyond the ticks, {ticks}"


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


def _hidden_lines(axes: Axes, lines: list[Line2D], panel: str) -> Iterator[str]:
    """Find curves of which others leave nearly no pixel to be seen.

    Straight lines to compare with may be covered: they go on at both sides.
    """
    if len(lines) < 2:
        return
    every = _pixels(axes)
    for line in [line for line in lines if line.get_transform() == axes.transData]:
        background = axes.patch
        others = [one for one in axes.get_children() if one not in (line, background)]
        others = [one for one in others if one.get_visible()]
        _show([line], False)
        seen = _count_differences(every, _pixels(axes))
        _show(others, False)
        nothing = _pixels(axes)
        _show([line], True)
        # As large as those that nothing covers: a covered one is larger, so that its rim is seen.
        width = line.get_linewidth()
        size = line.get_markersize()
        line.set_linewidth(min(one.get_linewidth() for one in lines))
        line.set_markersize(min(one.get_markersize() for one in lines))
        whole = _count_differences(nothing, _pixels(axes))
        line.set_linewidth(width)
        line.set_markersize(size)
        _show([line, *others], True)
        if seen < SEEN * whole:
            yield f"{panel}: {line.get_label()!r} is hidden, {seen} of {whole} pixels are seen"


def _show(artists: Iterable[Artist], visible: bool) -> None:
    for artist in artists:
        artist.set_visible(visible)


def _pixels(axes: Axes) -> np.ndarray:
    """Return the pixels of one panel, drawn alone: [height, width, 4]."""
    canvas = FigureCanvasAgg(axes.figure)
    renderer = canvas.get_renderer()
    renderer.clear()
    axes.draw(renderer)
    return np.asarray(renderer.buffer_rgba()).copy()


def _count_differences(one: np.ndarray, other: np.ndarray) -> int:
    """Return in how many pixels the eye sees a difference: not only in a blended edge."""
    distance = np.abs(one.astype(np.int16) - other.astype(np.int16)).max(axis=-1)
    return int((distance > PIXEL_STEP).sum())


def _shifted_lines(axes: Axes, lines: list[Line2D], panel: str) -> Iterator[str]:
    """Find curves that are a little beside one another though none of their marks would meet."""
    marked = [line for line in lines if line.get_marker() not in NO_MARKER]
    for one, other in combinations(marked, 2):
        points = [line.get_xydata() for line in (one, other)]
        if len(points[0]) != len(points[1]) or not len(points[0]):
            continue
        steps = points[1][:, 0] - points[0][:, 0]
        places = np.unique(points[0][:, 0])
        gap = float(np.diff(places).min()) if len(places) > 1 else 1.0
        is_shifted = np.allclose(steps, steps[0]) and 0 < abs(steps[0]) < gap / 2
        if is_shifted and not _heights_meet(axes, one, other):
            yield f"{panel}: {one.get_label()!r} and {other.get_label()!r} are off their places"


def _heights_meet(axes: Axes, one: Line2D, other: Line2D) -> bool:
    """Return whether marks or bars of two curves meet, if they were at the same places."""
    spans = zip(_heights(axes, one), _heights(axes, other), strict=True)
    return any(
        low <= other_high and other_low <= high for (low, high), (other_low, other_high) in spans
    )


def _heights(axes: Axes, line: Line2D) -> Iterable[tuple[float, float]]:
    """Yield the lowest and the highest pixel of each mark of a curve, with the bar through it."""
    bars = [
        segment
        for collection in axes.collections
        if isinstance(collection, LineCollection)
        for segment in collection.get_segments()
        if len(segment)
    ]
    half = line.get_markersize() * axes.figure.dpi / 72
    for x, y in line.get_xydata():
        values = [y, *(end for bar in bars if np.isclose(bar[0][0], x) for end in bar[:, 1])]
        finite = [value for value in values if np.isfinite(value)]
        pixels = [axes.transData.transform((x, value))[1] for value in finite]
        yield (min(pixels) - half, max(pixels) + half) if pixels else (np.nan, np.nan)


def _looks(line: Line2D) -> tuple[object, ...]:
    marker = "" if line.get_marker() in NO_MARKER else line.get_marker()
    is_empty = bool(marker) and line.get_markerfacecolor() == "white"
    return line.get_linestyle(), marker, is_empty, line.get_linewidth()


def _grey(line: Line2D) -> float:
    return float(np.dot(to_rgb(line.get_color()), (0.299, 0.587, 0.114)))
