"""Kind plane_maps: what is drawn over the plane, certified regions (000 Fig 1) and the bound on
smooth sensitivity (001 Fig 3).
"""

import math
from collections.abc import Mapping
from functools import partial
from itertools import product
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import Field

from agt.settings import Positive, keyword_schema
from agt_cli.report.figures import DARKEST_COLOUR, Grid, format_power_of_ten

from .certified import Claims, Variants
from .entry import Entry, Key, Overrides
from .figures import planes, regions
from .kinds import Figure, Kind, Shown, grid

Resolution = Annotated[int, Field(ge=8, le=400)]  # points along each axis
TRAINING_POINTS = 250  # drawn on a map, at most


@keyword_schema
class PlaneMaps(Kind):
    """Regions of the plane by stable distance, told apart at public ``levels`` (000 Fig 1).

    Attributes:
        panels: one map each, for each claim and profile; one run is asked about the plane and about
            its test records.
        eps: colour the plane by the bound exp(-beta L) on the smooth sensitivity instead, beta =
            eps/6 (001 Fig 3).
    """

    panels: Variants
    claims: Claims = ("privacy",)
    levels: tuple[int, ...] = (1, 5, 10, 20, 50, 100, 150)
    resolution: Resolution = 100
    eps: Positive | None = None
    index = ("profile", "claim", "panel", "point", "x1", "x2")

    @property
    def own(self) -> Mapping[str, Overrides]:
        """The overrides of each panel, by its label."""
        return {panel.label: panel.run for panel in self.panels}

    @property
    def keys(self) -> list[Key]:
        return grid(profile=self.profiles, claim=self.claims, panel=self.own)

    def _sensitivity_bound(self, distance: Any) -> Any:
        """Return the bound on the smooth sensitivity at a stable distance."""
        return np.exp(-(self.eps or 0) / 6 * distance)

    def _facts(self, tested: np.ndarray, mapped: np.ndarray) -> Key:
        """Return what the table says of the stable distances of test records and of the map."""
        if self.eps:
            return {
                "mean bound, test records": self._sensitivity_bound(tested).mean(),
                "least bound on the map": self._sensitivity_bound(mapped).min(),
            }
        return {f"certified at k = {k}": (tested >= k).mean() for k in self.levels}

    def _map(self, entry: Entry, key: Key) -> pd.DataFrame:
        """Return the points of one map, and some training records, with what the table says.

        Raises:
            TypeError: the dataset is not two-dimensional.
        """
        name = key["profile"]
        run = (*self.own[key["panel"]], f"relation=@{key['claim']}")
        dataset = entry.data(name, run)[0].dataset
        if dataset.plane is None:
            raise TypeError(
                f"{entry.artifact.id}: {dataset.name} is not two-dimensional, so it has no map"
            )
        points = Grid.around(dataset.plane.points, self.resolution).points
        lifted = dataset.plane.lift(points).astype(dataset.train.features.dtype)
        asked = np.concatenate([lifted, dataset.test.features.astype(lifted.dtype)])
        label = f"{key['claim']}, {key['panel']}"
        found = entry.run(name, run, label, f"map{self.resolution} and test", asked)
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
        return pd.concat(parts).assign(**key, **about, **self._facts(tested, mapped))

    def rows(self, entry: Entry) -> pd.DataFrame:
        return pd.concat([self._map(entry, key) for key in self.keys], ignore_index=True)

    def shown(self, rows: pd.DataFrame) -> Shown:
        if self.eps:
            least = min(
                self._sensitivity_bound(rows["stable_distance"]).min(), self._sensitivity_bound(1)
            )
            draw = partial(
                planes,
                value=self._sensitivity_bound,
                scale=_scale_of_bounds(least),
                shades=(DARKEST_COLOUR, 0.0),
                label=f"bound on smooth sensitivity\n(eps = {self.eps:g}, beta = eps/6)",
            )
            what = "Bound on the smooth sensitivity of the label; darker: less noise is needed;"
        else:
            draw = partial(
                planes,
                value=lambda distance: distance,
                scale=regions(self.levels),
                shades=(0.0, DARKEST_COLOUR),
                label="stable distance, in k",
            )
            what = (
                "Regions of the plane by how many records would have to change before the label "
                "could;"
            )
        table = rows.drop(
            columns=["point", "x1", "x2", "prediction", "stable_distance"]
        ).drop_duplicates()
        return Shown(table, [Figure(f"{what} black: decision line.", rows, draw)])


def _scale_of_bounds(least: float) -> tuple[list[float], dict[float, str]]:
    """Return the ends of a logarithmic scale of bounds, from below ``least`` to 1, and their text.

    The scale starts at 1e-12 or later, and has 1, 2 and 5 in each decade where it is short.
    """
    power = math.floor(math.log10(max(1e-12, least)))
    lowest_power = min(-1, max(-12, power))
    within_decade = (1, 2, 5) if lowest_power >= -3 else (1,)
    powers = [10.0**power for power in range(lowest_power, 0)]
    ends = [step * power for power, step in product(powers, within_decade)]
    ends.append(1.0)
    in_words = format_power_of_ten if lowest_power < -4 else "{:g}".format
    return ends, {end: in_words(end) for end in ends}
