"""Kinds about the steps of certified removal: bounds on the gradient's residual beside the residual (003 Fig 2), which
records are hard to remove (Fig 3), and times (Table 1)."""

import math
import time
from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import Field
from pydantic.dataclasses import dataclass as validated

from agt.errors import ConfigError
from agt.models.model import accuracy
from agt.settings import STRICT
from agt.unlearning.newton import worst_case
from agt_cli.papers.reproduction.budgets import Count
from agt_cli.papers.reproduction.kinds import EVERY, Entry, Figure, Key, Kind, Overrides, Profiles, kind, through
from agt_cli.papers.reproduction.pictures import Pictures, pictures
from agt_cli.papers.reproduction.removing import CODE, GAMMA, Removing, published, removing
from agt_cli.report.curves import Curves
from agt_cli.runs.prepare import Prepared, RunSettings

Line = tuple[str, str, int, float]  # accounting, way, records removed, a bound on the residual


@kind
def removal_bounds(
    profiles: Profiles,
    run: Overrides,
    removals: Annotated[int, Field(ge=2)] = 500,
    batch: Annotated[int, Field(ge=2)] = 10,
    every: Count = 10,
) -> Kind:
    """Bounds on the gradient's residual, and the residual, against the number of records removed (003 Fig 2).

    Args:
        run: overrides of a head with certificate=removal.
        removals: how many records go, one at a time and ``batch`` at a time; a point for ``every`` so many.
    """
    each, many = "one at a time", f"{batch} at a time"
    ways = {
        "paper": (f"worst case, {each}", f"worst case, {many}", f"bound, {each}", f"bound, {many}", f"residual, {each}"),
        "rigorous": (f"bound, {each}", f"bound, Hessian kept up, {each}", f"measured after each, {each}"),
    }
    keys = [{"profile": name, "way": way} for name, profile in profiles.items() for way in ways[profile.accounting]]
    step = math.lcm(every, batch)
    marks = range(step, removals + 1, step)

    def rows(entry: Entry) -> pd.DataFrame:
        def make(prepared: Prepared, settings: RunSettings) -> tuple[pd.DataFrame, dict[str, Any]]:
            trained = removing(prepared, settings, entry.artifact.id)
            if removals >= len(trained.x):
                raise ConfigError(f"{entry.artifact.id}: removals={removals}: there are {len(trained.x)} training records")
            found = [
                *_anew(trained, removals, 1, each, marks),
                *_anew(trained, removals, batch, many, marks),
                *_kept(trained, removals, each, marks),
            ]
            return pd.DataFrame(found, columns=["accounting", "way", "removed", "residual"]), {}

        overrides, words = entry.overrides(next(iter(profiles)), run), f"removing {removals} records"
        found, _ = entry.runs.once(overrides, words, make, f"bounds {removals} {batch} {every}", modules=(*CODE, __name__))
        parts = [
            found[(found["accounting"] == profile.accounting) & found["way"].isin(ways[profile.accounting])].assign(
                profile=name
            )
            for name, profile in profiles.items()
        ]
        return pd.concat(parts, ignore_index=True).drop(columns="accounting")

    def finding(rows: pd.DataFrame) -> str:
        ends = last(rows)
        if "paper" in set(ends["profile"]):
            published = ends[ends["profile"] == "paper"].set_index("way")["residual"]
            times = published[f"worst case, {each}"] / published[f"bound, {each}"]
            return (
                f"After {rows['removed'].max()} removals the bound from the data is {times:,.0f} times below the worst case"
            )
        return f"After {rows['removed'].max()} removals the residual is measured as {ends['residual'].min():.1g}"

    def series(rows: pd.DataFrame) -> pd.DataFrame:
        return rows.assign(series=rows["way"] + " (" + rows["profile"] + ")")[["removed", "series", "residual"]]

    def last(rows: pd.DataFrame) -> pd.DataFrame:
        return rows[rows["removed"] == rows["removed"].max()]

    figure = Figure(
        "Bounds on the norm of the gradient's residual, summed over removals, and the residual as measured.",
        series,
        Curves("", "removed", "residual", "records removed", "norm of the gradient's residual", "", log=False, ylog=True),
        finding,
    )
    notes = (
        "Hessian and spectral norm are formed anew for each step, except where they are kept up. paper: 003's theorems 1 "
        "and 4 and corollaries 1 and 2, sums that start at 0; the residual is what these steps leave, measured.",
        "ours: on the same steps with exact constants, from the optimiser's residual on; with a Hessian that is kept up in "
        "O(d^2) a record, its drift charged; and with that, polished and measured after each in a few O(n d) passes.",
    )
    return Kind(
        keys,
        rows,
        ("profile", "way", "removed"),
        (figure,),
        last,
        extra={"_all": lambda rows: rows},
        notes=lambda rows: notes,
    )


def _anew(trained: Removing, removals: int, size: int, words: str, marks: range) -> Iterator[Line]:
    """With matrices formed anew for each step, as 003 does: its bounds, ours on the same steps, and what they leave."""
    head, objective, gone = trained.head, trained.objective, trained.drawn(removals)
    worst = bound = 0.0
    for start in range(0, removals - size + 1, size):
        rows, left = gone[start : start + size], trained.left(gone[: start + size])
        step = head.remove(trained.x[rows], trained.targets[rows], remaining=left[0])
        worst += 4 * worst_case(GAMMA, size, head.count, objective.strength)
        bound += published(step, objective)
        if (removed := start + size) in marks:
            yield "paper", f"worst case, {words}", removed, worst
            yield "paper", f"bound, {words}", removed, bound
            yield "paper", f"residual, {words}", removed, objective.slope(head.weight, *left, head.tilt, head.slack).bound
            yield "rigorous", f"bound, {words}", removed, head.residual


def _kept(trained: Removing, removals: int, words: str, marks: range) -> Iterator[Line]:
    """With matrices that are kept up, one record at a time; and with the residual measured after each."""
    head, polished, gone = trained.head, trained.head, trained.drawn(removals)
    for removed, row in enumerate(gone, start=1):
        for one in (head, polished):
            one.remove(trained.x[[row]], trained.targets[[row]])
        polished.polish(*trained.left(gone[:removed]))
        if removed in marks:
            yield "rigorous", f"bound, Hessian kept up, {words}", removed, head.residual
            yield "rigorous", f"measured after each, {words}", removed, polished.residual


@kind
def removal_difficulty(profiles: Profiles, run: Overrides, shown: Annotated[int, Field(ge=1, le=20)] = 10) -> Kind:
    """The training images whose removal moves the weights most, and least (003 Fig 3).

    Args:
        run: overrides of a head with certificate=removal, on square images.
        shown: how many of each.
    """
    keys = [
        {"profile": EVERY, "side": side, "rank": rank} for side in ("hardest", "easiest") for rank in range(1, shown + 1)
    ]

    def rows(entry: Entry) -> pd.DataFrame:
        name = next(iter(profiles))

        def make(prepared: Prepared, settings: RunSettings) -> tuple[pd.DataFrame, dict[str, Any]]:
            trained, dataset = removing(prepared, settings, entry.artifact.id), prepared.dataset
            head = trained.head
            moved = np.array(
                [head.copy().remove(trained.x[[row]], trained.targets[[row]]).moved for row in range(len(trained.x))]
            )
            order = np.argsort(moved)
            places = {"hardest": order[::-1][:shown], "easiest": order[:shown]}
            found = [
                {"profile": EVERY, "side": side, "rank": rank, "digit": dataset.classes[_label(trained.targets[row])],
                 "moved": moved[row], **_pixels(trained.x[row])}
                for side, chosen in places.items()
                for rank, row in enumerate(chosen, start=1)
            ]  # fmt: skip
            return pd.DataFrame(found), {}

        return entry.runs.once(
            entry.overrides(name, run), "every removal alone", make, f"difficulty {shown}", modules=(*CODE, __name__)
        )[0]

    def ends(rows: pd.DataFrame) -> str:
        most, least = (rows[rows["side"] == side]["moved"] for side in ("hardest", "easiest"))
        return f"The hardest record moves the weights {most.max() / least.min():,.0f} times as far as the easiest"

    caption = f"The {shown} training images whose removal moves the weights most (above), and least (below)."
    drawing = Pictures("side", "rank", "moved", "weights move by")
    return Kind(
        keys,
        rows,
        ("profile", "side", "rank"),
        (Figure(caption, lambda rows: rows, drawing, ends, draw=pictures),),
        lambda rows: rows[["profile", "side", "rank", "digit", "moved"]],
    )


def _label(targets: np.ndarray) -> int:
    """The class of one record's targets."""
    return int(targets[0] > 0) if len(targets) == 1 else int(targets.argmax())


def _pixels(x: np.ndarray) -> dict[str, float]:
    """The pixels of one record: its features without the bias."""
    side = math.isqrt(len(x))
    return {f"p{at}": float(value) for at, value in enumerate(x[: side * side])}


@validated(frozen=True, config=STRICT)
class Timed:
    """A row of Table 1: what it is called, which data it is on in words, and the overrides of its run."""

    label: str
    data: str
    run: Overrides = ()


@kind
def removal_times(
    profiles: Profiles, rows: Annotated[tuple[Timed, ...], Field(min_length=1)], removals: Count = 50, anew: Count = 3
) -> Kind:
    """Seconds of one removal beside seconds of training (003 Table 1).

    Args:
        rows: runs of certificate=removal.
        removals: how many are timed; the median counts. Of ``anew`` where the Hessian is formed for each, as in 003.
    """
    by_label = {row.label: row.run for row in rows}
    keys = [{"profile": name, "row": row.label, "data": row.data} for row in rows for name in profiles]

    def measure(entry: Entry, key: Key) -> Iterator[Key]:
        def make(prepared: Prepared, settings: RunSettings) -> tuple[pd.DataFrame, dict[str, Any]]:
            trained, test = removing(prepared, settings, entry.artifact.id), prepared.dataset.test
            size = {"records": len(trained.x), "features": trained.x.shape[1], "outputs": trained.targets.shape[1]}
            found = {
                "training": trained.seconds,
                "paper": _timed(trained, anew, True),
                "ours": _timed(trained, removals, False),
            }
            return pd.DataFrame([{**size, **found, "accuracy": accuracy(trained.model, test)}]), {}

        name, row = key["profile"], key["row"]
        overrides = entry.overrides(next(iter(profiles)), by_label[row])
        frame, _ = entry.runs.once(overrides, f"times: {row}", make, f"times {removals} {anew}", modules=(*CODE, __name__))
        found = frame.to_dict("records")[0]
        paper, ours = found.pop("paper"), found.pop("ours")
        removal = paper if profiles[name].accounting == "paper" else ours
        yield {**found, "removal": removal, "training / removal": found["training"] / removal}

    def compared(key: Key) -> Key:
        return {f"{key['row']}: seconds of {what}": what for what in ("removal", "training")}

    notes = (
        "Training: Newton's method to a gradient of 1e-5 or less, from vectors or pixels on, with all that removals need. "
        "003 trains by L-BFGS on another machine. Removal: the median of several.",
        "paper: the Hessian of the records that are left is formed for each removal; ours: it is kept up, O(d^2) a record.",
        "LSUN (003: .48 s against 124 s) is not reproduced: its images are not to be had.",
    )
    index = ("profile", "row")
    return Kind(keys, through(keys, measure), index, (), compared=compared, notes=lambda found: notes)


def _timed(trained: Removing, removals: int, anew: bool) -> float:
    """The median of the seconds that one record's removal takes, the Hessian formed ``anew`` for each or kept up."""
    head, taken, gone = trained.head, [], trained.drawn(removals)
    for count, row in enumerate(gone, start=1):
        remaining = trained.left(gone[:count])[0] if anew else None
        started = time.perf_counter()
        head.remove(trained.x[[row]], trained.targets[[row]], remaining)
        taken.append(time.perf_counter() - started)
    return float(np.median(taken))
