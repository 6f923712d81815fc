"""Kind plane_maps: what is drawn over the plane, certified regions (000 Fig 1) and the bound on
smooth sensitivity (001 Fig 3).
"""

import math
from functools import partial
from itertools import product
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import Field

from agt.settings import Positive
from agt_cli.report.figures import DARKEST_COLOUR, Grid, format_power_of_ten

from .certified import Claims, Variants
from .entry import Entry, Key, Profiles
from .figures import planes, regions
from .kinds import Figure, Kind, Shown, grid, kind

Resolution = Annotated[int, Field(ge=8, le=400)]  # points along each axis
TRAINING_POINTS = 250  # drawn on a map, at most


@kind
def plane_maps(
    profiles: Profiles,
    panels: Variants,
    claims: Claims = ("privacy",),
    levels: tuple[int, ...] = (1, 5, 10, 20, 50, 100, 150),
    resolution: Resolution = 100,
    eps: Positive | None = None,
) -> Kind:
    """Regions of the plane by stable distance, told apart at public ``levels`` (000 Fig 1).

    Args:
        panels: one map each, for each claim and profile; one run is asked about the plane and about
            its test records.
        eps: colour the plane by the bound exp(-beta L) on the smooth sensitivity instead, beta =
            eps/6 (001 Fig 3).
    """
    own = {panel.label: panel.run for panel in panels}
    keys = grid(profile=profiles, claim=claims, panel=own)

    def bound(distance: Any) -> Any:
        return np.exp(-(eps or 0) / 6 * distance)

    def facts(tested: np.ndarray, mapped: np.ndarray) -> Key:
        if eps:
            return {
                "mean bound, test records": bound(tested).mean(),
                "least bound on the map": bound(mapped).min(),
            }
        return {f"certified at k = {k}": (tested >= k).mean() for k in levels}

    def measure(entry: Entry, key: Key) -> pd.DataFrame:
        name = key["profile"]
        panel = key["panel"]
        run = (*own[key["panel"]], f"relation=@{key['claim']}")
        dataset = entry.data(name, run)[0].dataset
        if dataset.plane is None:
            raise TypeError(
                f"{entry.artifact.id}: {dataset.name} is not two-dimensional, so it has no map"
            )
        points = Grid.around(dataset.plane.points, resolution).points
        lifted = dataset.plane.lift(points).astype(dataset.train.features.dtype)
        asked = np.concatenate([lifted, dataset.test.features.astype(lifted.dtype)])
        found = entry.run(name, run, f"{key['claim']}, {panel}", f"map{resolution} and test", asked)
        labels = found.frame["prediction"].to_numpy()
        mapped, tested = np.split(found.distance, [len(lifted)])
        records = len(dataset.train)
        few = np.linspace(0, records - 1, min(TRAINING_POINTS, records)).astype(int)
        on_map: Key = {
            "point": "map",
            "prediction": labels[: len(lifted)],
            "stable_distance": mapped,
        }
        known: Key = {"point": "training", "prediction": dataset.train.labels[few]}
        map_points = pd.DataFrame(points, columns=["x1", "x2"])
        training_points = pd.DataFrame(dataset.plane.points[few], columns=["x1", "x2"])
        parts = [map_points.assign(**on_map), training_points.assign(**known)]
        is_right = labels[len(lifted) :] == dataset.test.labels
        about: Key = {"k counts": found.counts, "accuracy": float(is_right.mean())}
        return pd.concat(parts).assign(**key, **about, **facts(tested, mapped))

    def rows(entry: Entry) -> pd.DataFrame:
        return pd.concat([measure(entry, key) for key in keys], ignore_index=True)

    def shown(rows: pd.DataFrame) -> Shown:
        scale = regions(levels)
        shades = (0.0, DARKEST_COLOUR)
        label = "stable distance, in k"
        what = (
            "Regions of the plane by how many records would have to change before the label could;"
        )
        if eps:
            least = min(bound(rows["stable_distance"]).min(), bound(1))
            power = math.floor(math.log10(max(1e-12, least)))
            lowest_power = min(-1, max(-12, power))
            within_decade = (1, 2, 5) if lowest_power >= -3 else (1,)
            powers = [10.0**power for power in range(lowest_power, 0)]
            ends = [step * power for power, step in product(powers, within_decade)]
            ends.append(1.0)
            in_words = format_power_of_ten if lowest_power < -4 else "{:g}".format
            scale = (ends, {end: in_words(end) for end in ends})
            shades = (DARKEST_COLOUR, 0.0)
            label = f"bound on smooth sensitivity\n(eps = {eps:g}, beta = eps/6)"
            what = "Bound on the smooth sensitivity of the label; darker: less noise is needed;"
        value = bound if eps else lambda at: at
        draw = partial(planes, value=value, scale=scale, shades=shades, label=label)
        table = rows.drop(
            columns=["point", "x1", "x2", "prediction", "stable_distance"]
        ).drop_duplicates()
        return Shown(table, [Figure(f"{what} black: decision line.", rows, draw)])

    return Kind(keys, ("profile", "claim", "panel", "point", "x1", "x2"), rows, shown)
