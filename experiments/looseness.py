"""Kind looseness: how many records must change before a label does: certified from below, exact,
attacked from above.

Exact: of few records, every edit of so many is made and trained, smaller ones first: any records
go, and those come that the attack adds. Attacked: a greedy adversary who knows everything, and
trains after each of his steps.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations, combinations_with_replacement, product
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import softplus

from agt.data.records import Records
from agt.errors import AgtError
from agt.models.fitting import fit
from agt.models.model import Model
from agt.settings import Count, keyword_schema
from agt_audit.edited_records import EditedRecords, attack_records
from agt_audit.model_bounds import bounds_of, label_leads, lead_gradient
from agt_audit.neighbours import neighbours_of
from agt_audit.relation_edits import EditKind, kinds_of
from agt_cli.runs.prepare import Prepared, RunSettings

from .certified import Variants
from .entry import Entry, Key, Overrides, once
from .experiment import ProfileName
from .figures import marks
from .kinds import Figure, Kind, Shown, grid

PART = 4  # a step of the attack is such a part of what it has edited so far
STEP = 1e-4  # of a difference quotient
SCALES = (1, 30)  # of a newcomer's features, in units of the query's
SMALL = ""
LARGE = "_large"
SERIES = {"certified": "at least (certified)", "attacked": "at most (attacked)", "exact": "exactly"}


@keyword_schema
class Looseness(Kind):
    """How many records it takes to change each label: certified, exact, attacked.

    Attributes:
        small: runs of so few records that every change of fewer than the attack's can be tried.
        large: runs of any size, without what is exact. All are of one model: boxes, or a linear
            head.
        queries: the first of the test records.
        only: the profiles that it is for; none: all.
    """

    small: Variants
    large: Variants
    queries: Count = 5
    only: tuple[ProfileName, ...] = ()
    index = ("profile", "panel", "query")

    @property
    def panels(self) -> Mapping[str, tuple[str, Overrides]]:
        """The size and the overrides of each panel, by its label."""
        small = {panel.label: (SMALL, panel.run) for panel in self.small}
        large = {panel.label: (LARGE, panel.run) for panel in self.large}
        return small | large

    @property
    def keys(self) -> list[Key]:
        names = [name for name in self.profiles if not self.only or name in self.only]
        return grid(profile=names, panel=self.panels)

    def measure(self, entry: Entry, key: Key) -> Iterator[Key]:
        size, run = self.panels[key["panel"]]
        make = partial(compared, count=self.queries, exact=size == SMALL)
        on = f"looseness of {self.queries}{size}"
        rows = once(entry, key["profile"], run, key["panel"], make, on)
        return ({"size": size, **row} for row in rows)

    def shown(self, rows: pd.DataFrame) -> Shown:
        figures = []
        for size, part in rows.groupby("size", sort=False):
            long = part.melt(["panel", "query"], list(SERIES), "series", "k").dropna()
            long["series"] = long["series"].map(SERIES)
            points = long.sort_values("query", kind="stable")
            points = points.assign(low=points["k"], high=points["k"])
            draw = partial(
                marks,
                x="k",
                y="query",
                series="series",
                panels="panel",
                xlabel="records changed",
                panel="{}",
                log=size == LARGE,
                whole_numbers=True,
            )
            figures.append(Figure(CAPTIONS[str(size)], points, draw, str(size)))
        return Shown(rows.drop(columns="size"), figures, NOTES)


CAPTIONS = {
    SMALL: "How many records must change before the label of each query can: at least (certified), "
    "at most (found by a greedy attack), and exactly (every set of removals and of added "
    "records like the query was tried).",
    LARGE: "How many records must change before the label of each query can: at least (certified) "
    "and at most (found by a greedy attack). The truth lies between.",
}
NOTES = (
    "Certified: the stable distance, plus 1. Attacked: the fewest changes that a greedy adversary "
    "found; a better one may need fewer. Exact: the least of all changes that remove any records "
    "and, where records may come, add some like the "
    f"query, {SCALES[0]} or {SCALES[1]} times as long, under another label; with other newcomers "
    "it may be less.",
    "One more than the number of records means: no such change was found.",
)


def compared(prepared: Prepared, settings: RunSettings, count: int, exact: bool) -> list[Key]:
    """A row for each query: how many edits change its label; one more than there are records:
    none is known.
    """
    model = fit(prepared.problem(settings))
    rows = list[Key]()
    test = prepared.dataset.test
    queries = np.asarray(test.features[:count])
    never = len(prepared.dataset.train) + 1
    for row, distance in enumerate(model.certify(queries).stable_distance.tolist()):
        one = queries[row : row + 1]
        most = attacked(model, one, never)
        least = enumerated(model, one, most) if exact else math.nan
        certified = min(distance + 1, never)
        about = {"query": f"query {row + 1}", "certified": certified}
        rows.append({**about, "exact": least, "attacked": most})
    is_right = model.predict(test.features) == test.labels
    about = {"records": never - 1, "accuracy": float(is_right.mean())}
    return [{**row, **about} for row in rows]


def enumerated(model: Model, query: np.ndarray, most: int) -> int:
    """The least number of edits that change a query's label, of which ``most`` do: all sets of
    fewer are tried.
    """
    label = model.predict(query)
    for size in range(1, most):
        others = neighbours_of(model, list(every_edit(model, query, size)), processes=False)
        if any(
            other.predict(query) != label for other in others if not isinstance(other, AgtError)
        ):
            return size
    return most


def every_edit(model: Model, query: np.ndarray, size: int) -> Iterator[EditedRecords]:
    """Of so many records, that the relation allows: any may go, and those come that the attack
    adds.
    """
    train = model.problem.dataset.train
    kinds = kinds_of_newcomers(model, query)
    for come in range(size + 1 if kinds else 1):
        for gone in combinations(range(len(train)), size - come):
            for added in combinations_with_replacement(kinds, come):
                removed_rows = np.array(gone, dtype=np.int64)
                yield EditedRecords(train, removed_rows, newcomers(train, query, added, ""), size)


# -- the attack
# --------------------------------------------------------------------------------------------------


def attacked(model: Model, query: np.ndarray, never: int) -> int:
    """The fewest edits found that change a query's label: greedy, in steps that grow, and shrink
    once one did it.

    Args:
        query: [1, ...].
        never: returned where no fewer do it.
    """
    label = torch.from_numpy(model.predict(query))
    edit = EditedRecords(model.problem.dataset.train)
    now = model
    found = never
    bounds: Any = bounds_of(model)

    def lead(of: Model) -> float:
        return float(label_leads(bounds.logits(of, query, bounds.parameters(of)), label))

    while step := min(max(1, edit.distance // PART), (found - edit.distance) // 2):
        edits = list(further(edit, now, query, label, step))
        pairs = zip(edits, neighbours_of(model, edits, processes=False), strict=True)
        made = [(next_edit, other) for next_edit, other in pairs if not isinstance(other, AgtError)]
        if not made:
            break
        best, other = min(made, key=lambda pair: lead(pair[1]))
        if other.predict(query) != label.numpy():
            found = best.distance
        else:
            edit = best
            now = other
    return found


def further(
    of: EditedRecords, model: Model, query: np.ndarray, label: Tensor, step: int
) -> Iterator[EditedRecords]:
    """So many edits more, all of one manner: the records go that hold the label most; or
    newcomers of one kind come.
    """
    distance = of.distance + step
    there = np.setdiff1d(np.arange(len(of.original)), of.removed_rows)
    if len(there) >= step:
        influence = influences(model, of.original.take(there), query, label)
        strongest = there[np.argsort(influence, kind="stable")[:step]]
        removed_rows = np.union1d(of.removed_rows, strongest)
        yield replace(of, removed_rows=removed_rows, distance=distance)
    for each in kinds_of_newcomers(model, query):
        come = newcomers(of.original, query, [each] * step, f"{distance}.")
        yield replace(of, added=(*of.added, *come), distance=distance)


def kinds_of_newcomers(model: Model, query: np.ndarray) -> list[tuple[int, int]]:
    """(scale of the features, label): like the query, under another label; none where records
    only go.
    """
    if EditKind.COMES not in kinds_of(model.problem.settings.relation.name):
        return []
    own_label = model.predict(query)
    labels = [label for label in range(model.problem.classes) if label != own_label]
    return list(product(SCALES, labels))


def newcomers(
    base: Records, query: np.ndarray, kinds: Sequence[tuple[int, int]], prefix: str
) -> tuple[Records, ...]:
    """One of each of these kinds, under names that begin so."""
    if not kinds:
        return ()
    scales, labels = np.array(kinds, dtype=np.int64).T
    scale_of_row = scales.reshape(-1, *[1] * (query.ndim - 1))
    names = np.array([f"{prefix}{at}" for at in range(len(kinds))])
    return (attack_records(query * scale_of_row, labels, names, like=base),)


def influences(model: Any, records: Records, query: np.ndarray, label: Tensor) -> np.ndarray:
    """[n] by how much each record's loss falls as parameters move to where the label leads by more,
    most first when sorted: a small step of training without it goes the other way.
    """
    bounds = bounds_of(model)
    up = lead_gradient(model, query, label)
    labels = torch.from_numpy(records.labels)
    features = np.asarray(records.features)

    def losses(step: float) -> np.ndarray:
        parameters = bounds.parameters(model)
        moved = {name: parameter + step * up[name] for name, parameter in parameters.items()}
        with torch.no_grad():
            leads = label_leads(bounds.logits(model, features, moved), labels)
            return softplus(-leads).numpy()

    return losses(STEP) - losses(-STEP)
