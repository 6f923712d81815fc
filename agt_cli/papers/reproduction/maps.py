"""Kinds drawn over the plane: certified regions (000 Fig 1), and the bound on smooth sensitivity (001 Fig 3)."""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, Colormap, ListedColormap
from pydantic import Field
from pydantic.dataclasses import dataclass as validated

from agt.data.dataset import Plane
from agt.relations import RELATIONS
from agt.settings import STRICT, validate
from agt_cli.papers.reproduction.kinds import Context, Made, kind
from agt_cli.papers.reproduction.runs import Finished
from agt_cli.report.figures import COLOURS, DARKEST, MARKERS, Grid, drawing
from agt_cli.runs.prepare import Prepared


@validated(frozen=True, config=STRICT)
class Panel:
    """One map: its title and the overrides of its run."""

    title: str
    run: tuple[str, ...] = ()


@validated(frozen=True, config=STRICT)
class MapsConfig:
    """Settings of both kinds.

    Attributes:
        panels: the maps of each profile.
        levels: the distances that the regions tell apart; public round numbers.
        resolution: points along each axis.
        eps: of the smooth sensitivity, beta = eps / 6.
    """

    panels: Annotated[tuple[Panel, ...], Field(min_length=1)]
    levels: tuple[int, ...] = (1, 5, 10, 20, 50, 100, 150)
    resolution: Annotated[int, Field(ge=8, le=400)] = 100
    eps: Annotated[float, Field(gt=0)] = 1.0


@dataclass(frozen=True)
class Map:
    """One panel, computed: the run on its test records, the same on the grid, and the plane it lies in."""

    profile: str
    title: str
    tested: Finished
    gridded: Finished
    grid: Grid
    plane: Plane
    labels: np.ndarray


@kind
def plane_maps(context: Context, settings: dict[str, Any]) -> Made:
    """Regions of the plane by stable distance, one map for each panel and profile (000 Fig 1)."""
    config = validate(MapsConfig, settings, context.artifact.id)
    maps = _maps(context, config)
    edges = [0, *config.levels]
    colours = ListedColormap(mpl.colormaps[COLOURS](np.linspace(0, DARKEST, len(edges))))
    norm = BoundaryNorm([*edges, edges[-1] + 1], len(edges))
    names = ["< 1" if config.levels[0] == 1 else f"< {config.levels[0]}", *(f"{k} or more" for k in config.levels)]
    _draw(context, config, maps, lambda run: run.distance, colours, norm, "stable distance, in k", names)
    rows = []
    for map_ in maps:
        counts = RELATIONS[map_.tested.relation].ball
        fractions = {f"certified at k = {k}": float((map_.tested.distance >= k).mean()) for k in config.levels}
        panel = {"profile": map_.profile, "panel": map_.title, "k counts": counts, "accuracy": map_.tested.accuracy}
        rows.append({**panel, **fractions})
    caption = "Regions of the plane by how many records would have to change before the label could; black: decision line."
    return Made({}, pd.DataFrame(rows), {context.artifact.id: caption})


@kind
def sensitivity_maps(context: Context, settings: dict[str, Any]) -> Made:
    """The bound exp(-beta L) on the smooth sensitivity over the plane (001 Fig 3)."""
    config = validate(MapsConfig, settings, context.artifact.id)
    maps, beta = _maps(context, config), config.eps / 6
    reach = max(int(map_.gridded.distance.max()) for map_ in maps)
    least = max(1e-12, math.exp(-beta * max(reach, 1)))
    edges = np.geomspace(least, 1.0, 9)
    colours = ListedColormap(mpl.colormaps[COLOURS](np.linspace(DARKEST, 0, 8)))
    norm = BoundaryNorm(edges, 8)
    names = [f"{edge:.2g}" for edge in edges]
    what = f"bound on smooth sensitivity\n(eps = {config.eps:g}, beta = eps/6)"
    _draw(context, config, maps, lambda run: np.exp(-beta * run.distance), colours, norm, what, names, ticks=edges)
    rows = [
        {
            "profile": map_.profile,
            "panel": map_.title,
            "k counts": RELATIONS[map_.tested.relation].ball,
            "mean bound, test records": float(np.exp(-beta * map_.tested.distance).mean()),
            "least bound on the map": float(np.exp(-beta * map_.gridded.distance).min()),
        }
        for map_ in maps
    ]
    caption = "Bound on the smooth sensitivity of the label; darker: less noise is needed; black: decision line."
    return Made({}, pd.DataFrame(rows), {context.artifact.id: caption})


def _maps(context: Context, config: MapsConfig) -> list[Map]:
    found = []
    for name, profile in context.profiles.items():
        for panel in config.panels:
            overrides = context.overrides(profile, panel.run)
            prepared = context.runs.prepared(overrides)
            plane = prepared.dataset.plane
            if plane is None:
                raise TypeError(f"{context.artifact.id}: {prepared.dataset.name} does not lie in a plane")
            grid, what = Grid.around(plane.points, config.resolution), f"{context.artifact.source}, {name}: {panel.title}"

            def points(prepared: Prepared, grid: Grid = grid, plane: Plane = plane) -> np.ndarray:
                return plane.lift(grid.points).astype(prepared.dataset.train.features.dtype)

            gridded = context.runs.finished(overrides, f"{what} (map)", f"map{config.resolution}", points)
            tested = context.runs.finished(overrides, what)
            labels = prepared.dataset.train.labels
            found.append(Map(name, panel.title, tested, gridded, grid, plane, labels))
    return found


def _draw(
    context: Context,
    config: MapsConfig,
    maps: list[Map],
    value: Any,
    colours: Colormap,
    norm: BoundaryNorm,
    what: str,
    names: list[str],
    ticks: Any = None,
) -> None:
    columns, rows = len(config.panels), len(context.profiles)
    data = pd.concat(
        [
            pd.DataFrame(map_.grid.points, columns=["x1", "x2"]).assign(
                profile=map_.profile,
                panel=map_.title,
                prediction=map_.gridded.frame["prediction"],
                stable_distance=map_.gridded.distance,
            )
            for map_ in maps
        ]
    )
    with drawing(context.record, context.artifact.id, data, (1.2 + 2.3 * columns, 0.6 + 2.3 * rows)) as figure:
        axes = figure.subplots(rows, columns, squeeze=False, sharex="col", sharey="col")
        for place, map_ in zip(axes.ravel(), maps, strict=True):
            _panel(place, map_, value(map_.gridded), colours, norm)
        bar = figure.colorbar(ScalarMappable(norm, colours), ax=axes, shrink=0.8, spacing="uniform")
        if ticks is None:
            edges = norm.boundaries
            bar.set_ticks([(low + high) / 2 for low, high in pairwise(edges)])
        else:
            bar.set_ticks(ticks)
        bar.ax.set_yticklabels(names)
        bar.ax.minorticks_off()
        bar.ax.tick_params(length=0)
        bar.set_label(what)


def _panel(axes: Axes, map_: Map, values: np.ndarray, colours: Colormap, norm: BoundaryNorm) -> None:
    grid, shape = map_.grid, map_.grid.shape
    image = values.reshape(shape)
    axes.pcolormesh(grid.x, grid.y, image, cmap=colours, norm=norm, shading="nearest", rasterized=True)
    label = map_.gridded.frame["prediction"].to_numpy().reshape(shape)
    for c in range(1, int(label.max()) + 1):
        axes.contour(grid.x, grid.y, (label == c).astype(float), levels=[0.5], colors="black", linewidths=1.2)
    some = np.linspace(0, len(map_.labels) - 1, min(250, len(map_.labels))).astype(int)
    for c, (marker, face, edge) in zip(np.unique(map_.labels), MARKERS, strict=False):
        here = map_.plane.points[some][map_.labels[some] == c]
        axes.scatter(here[:, 0], here[:, 1], s=4, marker=marker, facecolors=face, edgecolors=edge, linewidths=0.25)
    axes.set_title(f"{map_.profile}: {map_.title}", fontsize=6.5)
    axes.set(aspect="equal", xlim=grid.x[[0, -1]], ylim=grid.y[[0, -1]])
    axes.tick_params(labelsize=7)
