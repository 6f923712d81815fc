"""Kinds drawn over the plane: certified regions (000 Fig 1), and the bound on smooth sensitivity (001 Fig 3).

Their rows are points of the plane, of the map and of the training data, so they are drawn in a way of their own.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, ListedColormap
from pydantic import Field
from pydantic.dataclasses import dataclass as validated

from agt.settings import STRICT, Positive
from agt_cli.papers.reproduction.kinds import Entry, Figure, Key, Kind, Overrides, Profiles, kind
from agt_cli.report.figures import COLOURS, DARKEST, MARKERS, Grid, between, drawing, headline, percent
from agt_cli.report.record import RunRecord

Resolution = Annotated[int, Field(ge=8, le=400)]  # points along each axis
Facts = Callable[[np.ndarray, np.ndarray], dict[str, float]]  # distances of test records, of the map's points -> columns
TRAINING_POINTS = 250  # drawn on a map, at most


@validated(frozen=True, config=STRICT)
class Panel:
    """One map of each profile: its title and the overrides of its run."""

    title: str
    run: Overrides = ()


Panels = Annotated[tuple[Panel, ...], Field(min_length=1)]


@dataclass(frozen=True)
class Planes:
    """How maps are drawn: a row of panels for each profile, a colour for each interval of values.

    Attributes:
        label: of the colour bar.
        value: the rows' stable distances -> what is coloured.
        scale: all values -> the intervals' ends, and where the bar has which names.
        shades: of the first and the last interval, 0 the lightest.
        name, title, finding: as of ``Curves``.
    """

    label: str
    value: Callable[[pd.Series], pd.Series]
    scale: Callable[[pd.Series], tuple[list[float], dict[float, str]]]
    shades: tuple[float, float]
    name: str = ""
    title: str = ""
    finding: str = ""


@kind
def plane_maps(
    profiles: Profiles,
    panels: Panels,
    levels: tuple[int, ...] = (1, 5, 10, 20, 50, 100, 150),
    resolution: Resolution = 100,
    eps: Positive = 1.0,
) -> Kind:
    """Regions of the plane by stable distance, told apart at public ``levels`` (000 Fig 1)."""

    def facts(tested: np.ndarray, mapped: np.ndarray) -> dict[str, float]:
        return {f"certified at k = {k}": float((tested >= k).mean()) for k in levels}

    def scale(values: pd.Series) -> tuple[list[float], dict[float, str]]:
        ends: list[float] = [0, *levels, levels[-1] + 1]
        names = [f"< {levels[0]}", *(f"{k} or more" for k in levels)]
        return ends, {(low + high) / 2: name for (low, high), name in zip(pairwise(ends), names, strict=True)}

    def finding(rows: pd.DataFrame) -> str:
        mapped = rows[rows["point"] == "map"]
        kept = (mapped["stable_distance"] >= middle).groupby([mapped["profile"], mapped["panel"]]).mean()
        return f"{between(kept, percent)} of the plane keeps its label at k = {middle}"

    middle = levels[len(levels) // 2]
    drawn = Planes("stable distance, in k", lambda distance: distance, scale, (0, DARKEST))
    caption = "Regions of the plane by how many records would have to change before the label could; black: decision line."
    figure = Figure(caption, lambda rows: rows, drawn, finding, draw=_draw)
    return _maps(profiles, panels, resolution, ["accuracy"], facts, figure)


@kind
def sensitivity_maps(
    profiles: Profiles,
    panels: Panels,
    levels: tuple[int, ...] = (),
    resolution: Resolution = 100,
    eps: Positive = 1.0,
) -> Kind:
    """The bound exp(-beta L) on the smooth sensitivity over the plane, beta = eps/6 (001 Fig 3)."""

    def facts(tested: np.ndarray, mapped: np.ndarray) -> dict[str, float]:
        mean, least = np.exp(-eps / 6 * tested).mean(), np.exp(-eps / 6 * mapped).min()
        return {"mean bound, test records": float(mean), "least bound on the map": float(least)}

    def scale(values: pd.Series) -> tuple[list[float], dict[float, str]]:
        ends = np.geomspace(max(1e-12, min(values.min(), math.exp(-eps / 6))), 1.0, 9).tolist()
        return ends, {end: f"{end:.2g}" for end in ends}

    def finding(rows: pd.DataFrame) -> str:
        means = rows.drop_duplicates(["profile", "panel"])["mean bound, test records"]
        return f"At the test records the bound is {between(means, '{:.2g}'.format)} in the mean; 1 says nothing"

    label = f"bound on smooth sensitivity\n(eps = {eps:g}, beta = eps/6)"
    drawn = Planes(label, lambda distance: np.exp(-eps / 6 * distance), scale, (DARKEST, 0))
    caption = "Bound on the smooth sensitivity of the label; darker: less noise is needed; black: decision line."
    return _maps(profiles, panels, resolution, [], facts, Figure(caption, lambda rows: rows, drawn, finding, draw=_draw))


def _maps(profiles: Profiles, panels: Panels, resolution: int, columns: list[str], facts: Facts, figure: Figure) -> Kind:
    """Maps of the plane, one for each panel and profile, and a table with ``columns`` and ``facts`` of the test records."""
    own = {panel.title: panel.run for panel in panels}
    keys = [{"profile": name, "panel": panel} for name in profiles for panel in own]

    def measure(entry: Entry, key: Key) -> pd.DataFrame:
        name, panel = key["profile"], key["panel"]
        dataset = entry.data(name, own[panel])[0].dataset
        if dataset.plane is None:
            raise TypeError(f"{entry.artifact.id}: {dataset.name} does not lie in a plane")
        grid = Grid.around(dataset.plane.points, resolution)
        points = dataset.plane.lift(grid.points).astype(dataset.train.features.dtype)
        mapped = entry.run(name, own[panel], f"{panel} (map)", f"map{resolution}", points)
        tested = entry.run(name, own[panel], panel)
        few = np.linspace(0, len(dataset.train) - 1, min(TRAINING_POINTS, len(dataset.train))).astype(int)
        parts = [
            pd.DataFrame(grid.points, columns=["x1", "x2"]).assign(
                point="map", prediction=mapped.frame["prediction"], stable_distance=mapped.distance
            ),
            pd.DataFrame(dataset.plane.points[few], columns=["x1", "x2"]).assign(
                point="training", prediction=dataset.train.labels[few]
            ),
        ]
        about: Key = {"k counts": tested.counts, "accuracy": tested.accuracy, **facts(tested.distance, mapped.distance)}
        return pd.concat(parts).assign(**key, **about)

    def rows(entry: Entry) -> pd.DataFrame:
        return pd.concat([measure(entry, key) for key in keys], ignore_index=True)

    def table(rows: pd.DataFrame) -> pd.DataFrame:
        measured = facts(np.zeros(1), np.zeros(1))
        return rows[["profile", "panel", "k counts", *columns, *measured]].drop_duplicates()

    return Kind(keys, rows, ("profile", "panel", "point", "x1", "x2"), (figure,), table)


def _draw(record: RunRecord, planes: Planes, rows: pd.DataFrame) -> None:
    """One panel for each profile and panel of the rows, and one colour bar."""
    mapped = rows[rows["point"] == "map"]
    ends, names = planes.scale(planes.value(mapped["stable_distance"]))
    norm = BoundaryNorm(ends, len(ends) - 1)
    colours = ListedColormap(mpl.colormaps[COLOURS](np.linspace(*planes.shades, len(ends) - 1)))
    columns = ["x1", "x2", "profile", "panel", "prediction", "stable_distance"]
    data, across, down = (
        mapped[columns].astype({"stable_distance": int}),
        rows["panel"].nunique(),
        rows["profile"].nunique(),
    )
    with drawing(record, planes.name, data, (1.5 + 2.3 * across, 0.7 + 2.3 * down)) as figure:
        axes = figure.subplots(down, across, squeeze=False, sharex="col", sharey="col")
        for place, ((profile, panel), part) in zip(
            axes.ravel(), rows.groupby(["profile", "panel"], sort=False), strict=True
        ):
            _panel(place, planes, part, colours, norm)
            place.set_title(f"{profile}: {panel}", fontsize=8)
        bar = figure.colorbar(ScalarMappable(norm, colours), ax=axes, shrink=0.8, spacing="uniform")
        bar.set_ticks(list(names), labels=list(names.values()))
        bar.ax.minorticks_off()
        bar.ax.tick_params(length=0)
        bar.set_label(planes.label)
        headline(figure, planes.finding, planes.title)


def _panel(axes: Axes, planes: Planes, part: pd.DataFrame, colours: ListedColormap, norm: BoundaryNorm) -> None:
    """Colours, the decision line, and some training points by class."""
    mapped, training = part[part["point"] == "map"], part[part["point"] == "training"]
    x, y = mapped["x1"].unique(), mapped["x2"].unique()
    image = planes.value(mapped["stable_distance"]).to_numpy().reshape(len(y), len(x))
    axes.pcolormesh(x, y, image, cmap=colours, norm=norm, shading="nearest", rasterized=True)
    label = mapped["prediction"].to_numpy().reshape(len(y), len(x))
    for c in range(1, int(label.max()) + 1):
        axes.contour(x, y, (label == c).astype(float), levels=[0.5], colors="black", linewidths=1.2)
    for (_, here), (marker, face, edge) in zip(training.groupby("prediction"), MARKERS, strict=False):
        axes.scatter(here["x1"], here["x2"], s=9, marker=marker, facecolors=face, edgecolors=edge, linewidths=0.35)
    axes.set(aspect="equal", xlim=x[[0, -1]], ylim=y[[0, -1]])
    axes.tick_params(labelsize=8)
