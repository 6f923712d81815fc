"""Kinds about the steps of certified removal: bounds on the gradient's residual beside the residual
(003 Fig 2), which records are hard to remove (Fig 3), and times (Table 1).
"""

import math
import time
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass
from functools import partial
from typing import Annotated

import numpy as np
import pandas as pd
from pydantic import Field

from agt.errors import ConfigError
from agt.models.model import accuracy
from agt.settings import Accounting, Count, keyword_schema
from agt.unlearning.newton import worst_step_increase
from agt_cli.runs.prepare import Prepared, RunSettings

from .certified import Variants
from .entry import Entry, Key, Overrides, once
from .experiment import AtLeastTwo
from .figures import lines, pictures
from .kinds import EVERY, Figure, Kind, Shown, grid
from .removable_head import GAMMA, Removing, column_of, published, removing

BOUNDS_NOTES = (
    "Hessian and spectral norm are formed anew for each step, except where they are kept up. "
    "paper: 003's theorems 1 and 4 and corollaries 1 and 2, sums that start at 0; the residual is "
    "what these steps leave, measured.",
    "ours: on the same steps with exact constants, from the optimiser's residual on; with a "
    "Hessian that is kept up in O(d^2) a record, its drift charged; and with that, polished and "
    "measured after each in a few O(n d) passes.",
)


ONE_AT_A_TIME = "one at a time"


@keyword_schema
class RemovalBounds(Kind):
    """Bounds on the gradient's residual, and the residual, against the number of records removed
    (003 Fig 2).

    Attributes:
        run: overrides of a head with certificate=removal.
        removals: how many records go, one at a time and ``batch`` at a time; a point for ``every``
            so many.
    """

    run: Overrides
    removals: AtLeastTwo = 500
    batch: AtLeastTwo = 10
    every: Count = 10
    index = ("profile", "way", "removed")

    @property
    def many(self) -> str:
        """How removals in batches are called."""
        return f"{self.batch} at a time"

    @property
    def ways(self) -> Mapping[str, tuple[str, ...]]:
        """The ways of bounding that each accounting has."""
        return {
            "paper": (
                f"worst case, {ONE_AT_A_TIME}",
                f"worst case, {self.many}",
                f"bound, {ONE_AT_A_TIME}",
                f"bound, {self.many}",
                f"residual, {ONE_AT_A_TIME}",
            ),
            "rigorous": (
                f"bound, {ONE_AT_A_TIME}",
                f"bound, Hessian kept up, {ONE_AT_A_TIME}",
                f"measured after each, {ONE_AT_A_TIME}",
            ),
        }

    @property
    def counts(self) -> range:
        """After how many removals there is a point: both ways of removing have been there."""
        step = math.lcm(self.every, self.batch)
        return range(step, self.removals + 1, step)

    @property
    def keys(self) -> list[Key]:
        keys: list[Key] = []
        for name, profile in self.profiles.items():
            keys += grid(profile=[name], way=self.ways[profile.accounting])
        return keys

    def _bounds_and_residuals(self, prepared: Prepared, settings: RunSettings) -> list[Key]:
        """Return every bound and residual at each of ``counts``."""
        trained = removing(prepared, settings, "removal_bounds")
        if self.removals >= len(trained.x):
            raise ConfigError(
                f"removals={self.removals} exceeds {len(trained.x)}, the number of training records"
            )
        bounds = [
            *_bounds_of_new_matrices(trained, self.removals, 1, ONE_AT_A_TIME),
            *_bounds_of_new_matrices(trained, self.removals, self.batch, self.many),
            *_bounds_of_updated_matrices(trained, self.removals),
        ]
        return [asdict(bound) for bound in bounds if bound.removed in self.counts]

    def rows(self, entry: Entry) -> pd.DataFrame:
        on = f"bounds {self.removals} {self.batch} {self.every}"
        words = f"removing {self.removals} records"
        found = once(
            entry, next(iter(self.profiles)), self.run, words, self._bounds_and_residuals, on
        )
        every_way = pd.DataFrame(found)
        chosen = []
        for name, profile in self.profiles.items():
            of_profile = every_way[every_way["accounting"] == profile.accounting]
            of_ways = of_profile[of_profile["way"].isin(self.ways[profile.accounting])]
            chosen.append(of_ways.drop(columns="accounting").assign(profile=name))
        return pd.concat(chosen, ignore_index=True)

    def shown(self, rows: pd.DataFrame) -> Shown:
        shown_as = {
            f"worst case, {ONE_AT_A_TIME}": "worst-case bound, single removals",
            f"worst case, {self.many}": f"worst-case bound, batches of {self.batch}",
            f"bound, {ONE_AT_A_TIME}": "data-dependent bound, single removals",
            f"bound, {self.many}": f"data-dependent bound, batches of {self.batch}",
            f"residual, {ONE_AT_A_TIME}": "residual, single removals",
            f"bound, Hessian kept up, {ONE_AT_A_TIME}": (
                "data-dependent bound, Hessian updated in place"
            ),
            f"measured after each, {ONE_AT_A_TIME}": "residual measured after further Newton steps",
        }
        series = rows["way"].map(shown_as) + " (" + rows["profile"] + ")"
        points = rows.assign(series=series)[["removed", "series", "residual"]]
        draw = lines(
            "removed",
            "residual",
            "records removed",
            "norm of the gradient's residual",
            log=False,
            ylog=True,
        )
        caption = (
            "Bounds on the norm of the gradient's residual, summed over removals, and the "
            "residual as measured."
        )
        last = rows[rows["removed"] == rows["removed"].max()]
        return Shown(last, [Figure(caption, points, draw)], BOUNDS_NOTES, extra={"_all": rows})


@dataclass(frozen=True)
class ResidualBound:
    """A bound on the norm of the gradient's residual, or its norm, after some removals.

    Attributes:
        accounting: the accounting of the profiles that show it.
        way: how it is bounded or measured.
        removed: the number of records that were removed.
        residual: the bound, or the norm.
    """

    accounting: Accounting
    way: str
    removed: int
    residual: float


def _bounds_of_new_matrices(
    trained: Removing, removals: int, batch: int, batches: str
) -> Iterator[ResidualBound]:
    """Yield bounds of removals for each of which the Hessian is formed again, as 003 does.

    After each batch these are 003's two bounds, the norm of the residual, and our bound.

    Args:
        trained: the head, and the records that it was trained on.
        removals: how many records are removed.
        batch: how many of them are removed in one step.
        batches: what the ways call such steps.
    """
    head = trained.head
    objective = trained.objective
    removed_rows = trained.drawn(removals)
    worst_case = 0.0
    data_dependent = 0.0
    for removed in range(batch, removals + 1, batch):
        rows = removed_rows[removed - batch : removed]
        remaining = trained.left(removed_rows[:removed])
        step = head.remove(trained.x[rows], trained.targets[rows], remaining=remaining[0])
        worst_case += 4 * worst_step_increase(GAMMA, batch, head.count, objective.strength)
        yield ResidualBound("paper", f"worst case, {batches}", removed, worst_case)
        data_dependent += published(step, objective)
        yield ResidualBound("paper", f"bound, {batches}", removed, data_dependent)
        residual = objective.gradient(head.weight, *remaining, head.tilt).norm_bound
        yield ResidualBound("paper", f"residual, {batches}", removed, residual)
        yield ResidualBound("rigorous", f"bound, {batches}", removed, head.residual)


def _bounds_of_updated_matrices(trained: Removing, removals: int) -> Iterator[ResidualBound]:
    """Yield bounds of removals, one at a time, for which the Hessian is updated in place.

    After each there are two: our bound, and the residual that is measured after further Newton
    steps.

    Args:
        trained: the head, and the records that it was trained on.
        removals: how many records are removed.
    """
    head = trained.head
    polished = trained.head
    removed_rows = trained.drawn(removals)
    for removed, row in enumerate(removed_rows, start=1):
        features = trained.x[[row]]
        targets = trained.targets[[row]]
        head.remove(features, targets)
        way = f"bound, Hessian kept up, {ONE_AT_A_TIME}"
        yield ResidualBound("rigorous", way, removed, head.residual)
        polished.remove(features, targets)
        polished.repeat_newton_steps(*trained.left(removed_rows[:removed]))
        way = f"measured after each, {ONE_AT_A_TIME}"
        yield ResidualBound("rigorous", way, removed, polished.residual)


@keyword_schema
class RemovalDifficulty(Kind):
    """The training images whose removal moves the weights most, and least (003 Fig 3).

    Attributes:
        run: overrides of a head with certificate=removal, on square images.
        images: how many of each.
    """

    run: Overrides
    images: Annotated[int, Field(ge=1, le=20)] = 10
    index = ("profile", "side", "rank")

    @property
    def keys(self) -> list[Key]:
        return grid(profile=[EVERY], side=["hardest", "easiest"], rank=range(1, self.images + 1))

    def _hardest_and_easiest(self, prepared: Prepared, settings: RunSettings) -> list[Key]:
        """Return the images of the two ends, ordered by how far their removal moves the weights."""
        trained = removing(prepared, settings, "removal_difficulty")
        lengths = []
        for x, targets in zip(trained.x[:, None], trained.targets[:, None], strict=True):
            step = deepcopy(trained.head).remove(x, targets)
            lengths.append(step.length)
        moved = np.array(lengths)
        labels = trained.targets.argmax(axis=1)
        if trained.targets.shape[1] == 1:
            labels = trained.targets[:, 0] > 0
        side = math.isqrt(trained.x.shape[1])  # beside the pixels there is the bias
        pixels = [f"p{index}" for index in range(side * side)]
        from_easiest = np.argsort(moved)
        rows_of_end = {
            "hardest": from_easiest[::-1][: self.images],
            "easiest": from_easiest[: self.images],
        }
        found = []
        for end, rows in rows_of_end.items():
            for rank, row in enumerate(rows, start=1):
                image = dict(zip(pixels, trained.x[row].tolist(), strict=False))
                found.append(
                    {
                        "profile": EVERY,
                        "side": end,
                        "rank": rank,
                        "digit": prepared.dataset.classes[int(labels[row])],
                        "moved": moved[row],
                        **image,
                    }
                )
        return found

    def rows(self, entry: Entry) -> pd.DataFrame:
        found = once(
            entry,
            next(iter(self.profiles)),
            self.run,
            "every removal alone",
            self._hardest_and_easiest,
            f"difficulty {self.images}",
        )
        return pd.DataFrame(found)

    def shown(self, rows: pd.DataFrame) -> Shown:
        caption = (
            f"The {self.images} training images whose removal moves the weights most (atypical), "
            "and least (prototypical); below each, its class and by how much."
        )
        draw = partial(
            pictures,
            rows="side",
            titles={"hardest": "atypical", "easiest": "prototypical"},
            order="rank",
            value="moved",
            classes="digit",
            words="class\nweights move by",
        )
        return Shown(
            rows[["profile", "side", "rank", "digit", "moved"]], [Figure(caption, rows, draw)]
        )


TIMES_NOTES = (
    "Training: Newton's method to a gradient of 1e-5 or less, from vectors or pixels on, with all "
    "that removals need. 003 trains by L-BFGS on another machine. Removal: the median of several.",
    "paper: the Hessian of the records that are left is formed for each removal; ours: it is kept "
    "up, O(d^2) a record.",
)


@keyword_schema
class RemovalTimes(Kind):
    """Seconds of one removal beside seconds of training (003 Table 1).

    Attributes:
        timed: runs of certificate=removal, each with the data that it is on in words.
        removals: how many are timed; the median counts. Of ``anew`` where the Hessian is formed for
            each, as in 003.
    """

    timed: Variants
    removals: Count = 50
    anew: Count = 3
    index = ("profile", "row")

    @property
    def by_label(self) -> Mapping[str, Overrides]:
        """The overrides of each run, by its label."""
        return {row.label: row.run for row in self.timed}

    @property
    def keys(self) -> list[Key]:
        return [
            {"profile": name, "row": row.label, "data": row.data}
            for row in self.timed
            for name in self.profiles
        ]

    def _seconds_of_removals(self, prepared: Prepared, settings: RunSettings) -> list[Key]:
        """Return the seconds of one removal in either profile, beside those of training."""
        trained = removing(prepared, settings, "removal_times")
        records, features = trained.x.shape
        outputs = trained.targets.shape[1]
        size = {"records": records, "features": features, "outputs": outputs}
        paper = _median_seconds_of_removal(trained, self.anew, forms_hessian=True)
        ours = _median_seconds_of_removal(trained, self.removals, forms_hessian=False)
        found = {"training": trained.seconds, "paper": paper, "ours": ours}
        return [{**size, **found, "accuracy": accuracy(trained.model, prepared.dataset.test)}]

    def measure(self, entry: Entry, key: Key) -> Iterator[Key]:
        row = key["row"]
        on = f"times {self.removals} {self.anew}"
        first = next(iter(self.profiles))
        (found,) = once(
            entry, first, self.by_label[row], f"times: {row}", self._seconds_of_removals, on
        )
        each = {name: found.pop(name) for name in ("paper", "ours")}
        removal = each[column_of(self.profiles[key["profile"]])]
        yield {**found, "removal": removal, "training / removal": found["training"] / removal}

    def shown(self, rows: pd.DataFrame) -> Shown:
        return Shown(rows, notes=TIMES_NOTES)

    def compared(self, key: Key) -> Key:
        return {f"{key['row']}: seconds of {what}": what for what in ("removal", "training")}


def _median_seconds_of_removal(trained: Removing, removals: int, forms_hessian: bool) -> float:
    """Return the median of the seconds that it takes to remove one record.

    Args:
        trained: the head, and the records that it was trained on.
        removals: how many removals are timed.
        forms_hessian: True: the Hessian of the remaining records is formed for each removal.
            False: it is updated in place.
    """
    head = trained.head
    seconds = []
    removed_rows = trained.drawn(removals)
    for count, row in enumerate(removed_rows, start=1):
        remaining = None
        if forms_hessian:
            remaining, _ = trained.left(removed_rows[:count])
        started = time.perf_counter()
        head.remove(trained.x[[row]], trained.targets[[row]], remaining)
        seconds.append(time.perf_counter() - started)
    return float(np.median(seconds))
