"""Draw curves of one figure that cover one another so that each of them is seen."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, cast

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D
from matplotlib.patheffects import Stroke

CURVE_GID = "curve"  # the gid of lines that others may cover
MIN_DISTANCE = 0.01  # of the height of all curves: those that are nearer run on one another
MIN_OVERLAP = 0.15  # of their width: those that are so near for less only meet
LAYER_WIDTH = 2.6  # points by which the band along a curve is wider for each that runs on it
LUMINANCE = np.array([0.299, 0.587, 0.114])  # of red, green and blue, as print in grey shows them
TINT_LUMINANCE = 0.82  # luminance within a band
BAND_EDGE = 0.5  # points


def show_covered_parts(panels: Sequence[Axes]) -> None:
    """Draw a curve as a band where later curves cover it, so that each curve is seen.

    The band replaces the curve there. It has the curve's dashes, its colour at the edges, and a
    light tint of the colour inside, so that the later curves have contrast in grey. It is wider
    where several curves cover this one. Where curves only meet or cross, there is no band. Curves
    are the lines whose gid is ``CURVE_GID``.

    Args:
        panels: axes that share their scales, with all of their curves.
    """
    curves = [[line for line in axes.get_lines() if line.get_gid() == CURVE_GID] for axes in panels]
    all_curves = [line for lines in curves for line in lines]
    max_distance = MIN_DISTANCE * _extent([_axis_positions(line, "y") for line in all_curves])
    min_width = MIN_OVERLAP * _extent([_axis_positions(line, "x") for line in all_curves])
    for axes, lines in zip(panels, curves, strict=True):
        for index, line in enumerate(lines):
            line.set_zorder(2 + 0.01 * index)
            later = lines[index + 1 :]
            if later:
                covered_by = [
                    _covered_points(line, other, max_distance, min_width) for other in later
                ]
                covered = np.array(covered_by)
                _draw_bands(axes, line, covered)
                _enlarge_markers(axes, line, covered)


def _draw_bands(axes: Axes, line: Line2D, covered: np.ndarray) -> None:
    """Draw the bands along a curve, over it and below the later curves.

    Args:
        axes: of the curve.
        line: the curve.
        covered: [later curves, points] whether a later curve covers a point.
    """
    x = np.asarray(line.get_xdata())
    y = np.asarray(line.get_ydata())
    tint = _tint(line.get_color())
    layers_to_next = (covered[:, :-1] & covered[:, 1:]).sum(axis=0)
    for start, stop in _runs_of_equal_values(layers_to_next):
        layers = int(layers_to_next[start])
        if layers:
            width = line.get_linewidth() + LAYER_WIDTH * layers
            edge_effects = [
                Stroke(foreground=line.get_color()),
                Stroke(linewidth=width - 2 * BAND_EDGE),
            ]
            # the curve itself would be seen between the band's dashes
            white_line: dict[str, Any] = {
                "color": "white",
                "linewidth": line.get_linewidth() + BAND_EDGE,
            }
            band_style: dict[str, Any] = {
                "color": tint,
                "linewidth": width,
                "linestyle": line.get_linestyle(),
                "path_effects": edge_effects,
            }
            for style in (white_line, band_style):
                axes.plot(
                    x[start : stop + 1],
                    y[start : stop + 1],
                    solid_capstyle="butt",
                    drawstyle=line.get_drawstyle(),
                    zorder=line.get_zorder() + 0.003,
                    label=f"_{line.get_label()}",
                    **style,
                )


def _enlarge_markers(axes: Axes, line: Line2D, covered: np.ndarray) -> None:
    """Draw larger markers of a curve, over its bands, where later curves cover it.

    Args:
        axes: of the curve.
        line: the curve.
        covered: [later curves, points] whether a later curve covers a point.
    """
    x = np.asarray(line.get_xdata())
    y = np.asarray(line.get_ydata())
    marked = np.zeros(len(x), dtype=bool)
    marked[:: cast("int | None", line.get_markevery())] = True
    layers_at = covered.sum(axis=0)
    for layers in np.unique(layers_at[marked & (layers_at > 0)]):
        is_drawn = marked & (layers_at == layers)
        axes.plot(
            x[is_drawn],
            y[is_drawn],
            color=line.get_color(),
            linestyle="",
            marker=line.get_marker(),
            markersize=line.get_markersize() + LAYER_WIDTH * int(layers),
            markerfacecolor=_tint(line.get_markerfacecolor()),
            markeredgewidth=2 * BAND_EDGE,
            clip_on=False,
            zorder=line.get_zorder() + 0.006,
            label=f"_{line.get_label()}",
        )


def _tint(colour: Any) -> tuple[float, float, float]:
    """Return a colour blended with white, so light that a curve on it has contrast in grey."""
    rgb = np.array(to_rgb(colour))
    luminance = float(rgb @ LUMINANCE)
    white = 0.0
    if luminance < TINT_LUMINANCE:
        white = (TINT_LUMINANCE - luminance) / (1 - luminance)
    red, green, blue = rgb + white * (1 - rgb)
    return float(red), float(green), float(blue)


def _covered_points(
    line: Line2D, other: Line2D, max_distance: float, min_width: float
) -> np.ndarray:
    """Return whether another line covers each point of a line, [points] bool.

    Args:
        line, other: the lines.
        max_distance: the largest vertical distance at which the other line covers a point.
        min_width: the smallest horizontal length of a covered part. A shorter part counts only if
            it is the whole line.
    """
    x = np.asarray(line.get_xdata(orig=False), dtype=float)
    other_x = np.asarray(other.get_xdata(orig=False), dtype=float)
    other_y = np.interp(x, other_x, _axis_positions(other, "y"), left=np.nan, right=np.nan)
    covered = np.asarray(np.abs(_axis_positions(line, "y") - other_y) <= max_distance)
    x_positions = _axis_positions(line, "x")
    for start, stop in _runs_of_equal_values(covered):
        is_wide = x_positions[stop - 1] - x_positions[start] >= min_width
        if not is_wide and stop - start < len(x):
            covered[start:stop] = False
    return covered


def _runs_of_equal_values(values: np.ndarray) -> list[tuple[int, int]]:
    """Return the first index of each run of equal values, and the one after its last."""
    if not len(values):
        return []
    changes = np.flatnonzero(values[1:] != values[:-1]) + 1
    return list(pairwise([0, *changes.tolist(), len(values)]))


def _axis_positions(line: Line2D, name: str) -> np.ndarray:
    """Return a line's values as positions on an axis, x or y: their logarithms if the axis is
    logarithmic.
    """
    values = np.asarray(getattr(line, f"get_{name}data")(orig=False), dtype=float)
    if line.axes is not None and getattr(line.axes, f"get_{name}scale")() == "log":
        return np.log10(np.where(values > 0, values, np.nan))
    return values


def _extent(positions: Sequence[np.ndarray]) -> float:
    """Return the difference between the largest and the smallest finite value; 0 if there is
    none.
    """
    values = np.concatenate([*positions, np.empty(0)])
    finite = values[np.isfinite(values)]
    return float(np.ptp(finite)) if len(finite) else 0.0
