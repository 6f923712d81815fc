"""Figures that read well in print and in grey, each as pdf and png with its data as csv beside it.

The map of the plane follows 001 Fig 3 and 000 Fig 1. Each function draws one figure and returns its caption by its name.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from itertools import cycle, pairwise
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure

from agt.certificates.box import Certificates
from agt_cli.report.certified import Subject
from agt_cli.report.record import RunRecord, csv_bytes

STYLE: dict[str, Any] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "pdf.fonttype": 42,
    "savefig.bbox": "tight",
    "hatch.linewidth": 0.4,
}
COLOURS = "YlGnBu"  # monotone from light (fragile) to dark (stable), so that grey print keeps the order
DARKEST = 0.72  # points stay visible on it
MARKERS = (("o", "white", "black"), ("^", "black", "white"), ("s", "0.5", "white"), ("D", "0.8", "black"))
LEVELS = 8
BINS = 12
DPI = 200


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
        """A square around the points, with a margin of a tenth."""
        middle = (points.max(axis=0) + points.min(axis=0)) / 2
        half = 0.55 * float((points.max(axis=0) - points.min(axis=0)).max())
        x, y = (np.linspace(centre - half, centre + half, resolution) for centre in middle)
        return cls(x, y)

    @property
    def points(self) -> np.ndarray:
        """[m * m, 2], rows of equal y together."""
        x, y = np.meshgrid(self.x, self.y)
        return np.stack([x.ravel(), y.ravel()], axis=1)

    @property
    def shape(self) -> tuple[int, int]:
        """(len(y), len(x))."""
        return len(self.y), len(self.x)


def curve(record: RunRecord, subject: Subject, table: pd.DataFrame) -> dict[str, str]:
    """Certified fraction against k, with nominal, worst-case and best-case accuracy where labels are known."""
    with drawing(record, "certified_fraction", table, (5.2, 3.4)) as figure:
        axes = figure.subplots()
        k = table["k"]
        marks: dict[str, Any] = {"marker": "o", "markersize": 3} if len(k) < 25 else {}
        if subject.labelled:
            axes.fill_between(k, table["worst_accuracy"], table["best_accuracy"], color="0.9", linewidth=0)
            axes.plot(k, table["best_accuracy"], color="0.45", linestyle=":", label="best-case accuracy", **marks)
            axes.plot(k, table["nominal_accuracy"], color="0.3", linestyle="--", label="nominal accuracy")
            axes.plot(k, table["worst_accuracy"], color="0.45", linestyle="-.", label="worst-case accuracy", **marks)
        axes.plot(k, table["certified_fraction"], color="#08306b", linewidth=2, label="certified fraction", **marks)
        axes.set(xlabel=f"k: {subject.ball}", ylabel=f"fraction of {subject.queries}", ylim=(-0.02, 1.02))
        axes.margins(x=0.01)
        axes.legend(loc="best")
        _title(axes, subject)
    return {"certified_fraction": f"Certified fraction against k ({subject.ball})."}


def histogram(record: RunRecord, subject: Subject, labels: np.ndarray | None) -> dict[str, str]:
    """How many queries have which stable distance; wrong predictions apart, where labels are known."""
    stable = subject.certificates.stable_distance
    edges = _edges((0, *subject.certificates.ks), BINS)
    right = np.ones(len(stable), dtype=bool) if labels is None else subject.certificates.prediction == labels
    counts = [np.histogram(stable[rows], [*edges, np.inf])[0] for rows in (right, ~right)]
    data = pd.DataFrame({"stable_distance_from": edges, "right": counts[0], "wrong": counts[1]})
    if labels is None:
        data = data.rename(columns={"right": "queries"}).drop(columns="wrong")
    with drawing(record, "stable_distances", data, (5.2, 3.0)) as figure:
        axes = figure.subplots()
        position = np.arange(len(edges))
        axes.bar(position, counts[0], 0.85, color="#2c7fb8", label="right" if labels is not None else None)
        some = counts[1] > 0
        if labels is not None and some.any():  # an empty bar chart would still enter the legend, in a colour of its own
            style: dict[str, Any] = {"color": "white", "edgecolor": "0.2", "hatch": "////", "label": "wrong"}
            axes.bar(position[some], counts[1][some], 0.85, bottom=counts[0][some], **style)
        if labels is not None:
            axes.legend(title="prediction")
        axes.set_xticks(position, _names(edges), rotation=30)
        axes.set(xlabel=f"stable distance, in k: {subject.ball}", ylabel=subject.queries)
        _title(axes, subject)
    return {"stable_distances": "How many queries have which stable distance."}


def plane_map(
    record: RunRecord,
    subject: Subject,
    grid: Grid,
    certificates: Certificates,
    margins: np.ndarray,
    points: np.ndarray,
    labels: np.ndarray,
) -> dict[str, str]:
    """Regions of equal stable distance, the decision line, and the training points by class.

    Args:
        certificates: of ``grid.points``, in their order, at the values of k that ``map_levels`` chose.
        margins: [lines, m * m] the nominal model's signed margins; a decision line is where one is 0.
        points: [n, 2] training points.
        labels: [n] their classes.
    """
    data = pd.DataFrame(grid.points, columns=["x1", "x2"])
    data["prediction"], data["certified_up_to"] = certificates.prediction, certificates.stable_distance
    edges = sorted({0, *certificates.ks})
    with drawing(record, "plane_map", data, (5.0, 4.4)) as figure:
        axes = figure.subplots()
        colours = ListedColormap(mpl.colormaps[COLOURS](np.linspace(0, DARKEST, len(edges))))
        norm = BoundaryNorm([*edges, edges[-1] + 1], len(edges))
        stable = certificates.stable_distance.reshape(grid.shape)
        image = axes.pcolormesh(grid.x, grid.y, stable, cmap=colours, norm=norm, shading="nearest", rasterized=True)
        for margin in margins:
            axes.contour(grid.x, grid.y, margin.reshape(grid.shape), levels=[0], colors="black", linewidths=1.6)
        for label, (marker, face, edge) in zip(range(len(subject.classes)), cycle(MARKERS), strict=False):
            here = points[labels == label]
            style: dict[str, Any] = {"s": 7, "marker": marker, "facecolors": face, "edgecolors": edge, "linewidths": 0.3}
            axes.scatter(*here.T, label=f"training points: {subject.classes[label]}", **style)
        _colour_bar(figure, image, axes, edges, subject)
        axes.set(xlabel="x1", ylabel="x2", aspect="equal", xlim=grid.x[[0, -1]], ylim=grid.y[[0, -1]])
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2, markerscale=1.8)
        _title(axes, subject, "stable distance over the plane; black: decision line")
    return {"plane_map": "Regions of equal stable distance, the decision line and the training points."}


def map_levels(ks: tuple[int, ...]) -> tuple[int, ...]:
    """The values of k that the map tells apart: round ones of the grid, and its ends."""
    return tuple(k for k in _edges((0, *ks), LEVELS) if k in ks)


def _colour_bar(figure: Figure, image: ScalarMappable, axes: Axes, edges: list[int], subject: Subject) -> None:
    centres = [(low + high) / 2 for low, high in zip(edges, [*edges[1:], edges[-1] + 1], strict=True)]
    bar = figure.colorbar(image, ax=axes, ticks=centres, spacing="uniform", shrink=0.9)
    bar.ax.set_yticklabels(_names(edges))
    bar.ax.tick_params(length=0)
    bar.ax.minorticks_off()
    bar.set_label(f"stable distance, in k:\n{subject.ball}")


def _edges(ks: tuple[int, ...], most: int) -> list[int]:
    """Where intervals of stable distance start: 0 and at most about ``most`` round values of the grid, its last too."""
    values = sorted(set(ks))
    if len(values) <= most:
        return values
    steps = [1, 2, 5, *(step * 10**power for power in range(9) for step in (10, 20, 25, 50))]
    step = next(step for step in steps if values[-1] / step <= most)
    wanted = [1, *range(step, values[-1] + 1, step), values[-1]]
    on_grid = {min((value for value in values if value >= want), default=values[-1]) for want in wanted}
    return sorted({0, *on_grid})


def _names(edges: list[int]) -> list[str]:
    """Names like 0, 1–9, ...; the last interval, which is censored by the end of the grid, as "at least"."""
    spans = [str(low) if high == low + 1 else f"{low}–{high - 1}" for low, high in pairwise(edges)]
    return [*spans, f"≥ {edges[-1]}"]


def _title(axes: Axes, subject: Subject, extra: str = "") -> None:
    axes.set_title(f"{subject.dataset} · neighbours: {subject.relation.name}" + (f"\n{extra}" if extra else ""))


@contextmanager
def drawing(record: RunRecord, name: str, data: pd.DataFrame, size: tuple[float, float]) -> Iterator[Figure]:
    """A figure that is written to figures/NAME.{pdf,png,csv} when it is drawn."""
    with mpl.rc_context(STYLE):  # type: ignore[arg-type]
        figure = Figure(figsize=size, layout="constrained")  # no pyplot: no global state, no display
        yield figure
        for kind in ("pdf", "png"):
            buffer = BytesIO()
            figure.savefig(buffer, format=kind, dpi=DPI)
            record.write(f"figures/{name}.{kind}", buffer.getvalue())
    record.write(f"figures/{name}.csv", csv_bytes(data))
