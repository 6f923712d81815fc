"""Curvature tubes by retraining (agt/tube): every neighbour lies within its radius, radii nest, distances move by one.

Each claim is also tested with a mistake planted, which the same check must catch. Retraining seldom comes to the worst
case: test_tube_pieces.py takes the proof apart.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest
from checks import halved
from tubes import CASES, KS, WIDTH, TubeCase

from agt import relations
from agt.audit.neighbours import Edited, Editor, Target
from agt.certificates.stability import ClosedForm
from agt.data.dataset import Records
from agt.tube import radius, training
from agt.tube.radius import Radii
from agt.tube.training import TubeTrained

EDITS = 40
CASE = {case.name: case for case in CASES}
NESTING = [
    CASE[name]
    for name in (
        "tanh, exact", "softplus", "batches", "batches decay, gelu", "decays", "replaced", "replaced, batches",
        "units of two rows", "softmax of batches, gelu, exact", "fourier",
    )
]  # fmt: skip
names = {"ids": lambda case: case.name}


@dataclass
class Seen:
    """What a check saw.

    Attributes:
        retrained, outside: neighbours, and those beyond their radius.
        farthest: the most of its radius that one of them moved.
        certified, turned: labels certified for a neighbour, and those that it turned.
    """

    retrained: int = 0
    outside: int = 0
    farthest: float = 0.0
    certified: int = 0
    turned: int = 0


def walk(editor: Editor, data: Records, k: int, known: ClosedForm, queries: np.ndarray) -> Records:
    """A neighbour within k, each edit after the label of a query; rows in another order."""
    edited, rng = Edited(data), editor.rng
    for _ in range(k):
        row = int(rng.integers(len(queries)))
        edited = editor.step(edited, Target(queries[row], int(known.prediction[row])))
    records = edited.records
    return records.take(rng.permutation(len(records)))


def edits(case: TubeCase, count: int, seed: int = 0) -> Seen:
    """Train, then retrain ``count`` neighbours at 0 to 4 edits by the formulas alone."""
    rng, seen = np.random.default_rng(seed), Seen()
    data, queries, editor = case.data(rng), rng.normal(size=(40, WIDTH)), case.editor(rng)
    here = case.train(data)
    known, weight = case.certify(here, queries), here.weight.numpy()
    assert np.isfinite(here.radii).all()
    for edit in range(count):
        k = edit % len(KS)
        there = case.retrain(walk(editor, data, k, known, queries))
        moved, held = float(np.linalg.norm(there - weight)), known.certified[k]
        seen.retrained += 1
        seen.outside += not moved <= here.radii[k]
        if seen.outside:
            break
        seen.farthest = max(seen.farthest, moved / here.radii[k] if k else 0.0)
        seen.certified += int(held.sum()) if k else 0
        seen.turned += int((case.labels(there, queries) != known.prediction)[held].sum())
    return seen


@pytest.mark.parametrize("case", CASES, **names)
def test_no_edit_moves_farther_than_its_radius_and_some_come_near(case: TubeCase) -> None:
    seen = edits(case, EDITS)
    assert (seen.outside, seen.turned) == (0, 0)
    assert case.near < seen.farthest < 1
    assert seen.certified > 0, "a check of nothing would not show"


@dataclass
class Pairs:
    """What neighbouring trainings were seen to break: radii that do not nest, distances more than 1 apart, early turns."""

    unnested: int = 0
    apart: int = 0
    early: int = 0
    differ: int = 0

    @property
    def violations(self) -> int:
        return self.unnested + self.apart + self.early


def unnested(case: TubeCase, outer: TubeTrained, inner: TubeTrained) -> int:
    """At how many k the ball of ``inner`` for k - 1 is not part of that of ``outer`` for k."""
    apart = float(np.linalg.norm(outer.weight.numpy() - inner.weight.numpy()))
    return int((~(outer.radii[1:] >= inner.radii[:-1] + apart)).sum())


def thresholds(case: TubeCase, rng: np.random.Generator, trained: TubeTrained, lines: int = 8) -> np.ndarray:
    """[2 lines, WIDTH] queries a rounding away from where a label or a distance changes."""

    def key(x: np.ndarray) -> np.ndarray:
        known = case.certify(trained, x)
        return known.stable_distance * 100 + known.prediction

    low, high = rng.normal(size=(2, 100, WIDTH))
    chosen = np.flatnonzero(key(low) != key(high))[:lines]
    return halved(key, low[chosen], high[chosen])


def steps(case: TubeCase, rng: np.random.Generator, count: int) -> Iterator[tuple[TubeTrained, TubeTrained]]:
    """Neighbours one edit apart, trained, each the last's neighbour."""
    data, editor = case.data(rng), case.editor(rng)
    here = case.train(data)
    for _ in range(count):
        queries = rng.normal(size=(10, WIDTH))
        data = walk(editor, data, 1, case.certify(here, queries), queries)
        there = case.train(data)
        yield here, there
        here = there


def pairs(case: TubeCase, count: int, seed: int = 1) -> Pairs:
    """Compare neighbours' radii, and their distances at queries where one's are about to change."""
    rng, seen = np.random.default_rng(seed), Pairs()
    for here, there in steps(case, rng, count):
        seen.unnested += unnested(case, here, there) + unnested(case, there, here)
        queries = np.concatenate([thresholds(case, rng, here), thresholds(case, rng, there), rng.normal(size=(20, WIDTH))])
        one, two = case.certify(here, queries), case.certify(there, queries)
        near, far = one.stable_distance, two.stable_distance
        seen.apart += int((abs(near - far) > 1).sum())
        seen.early += int(((one.prediction != two.prediction) & ((near > 0) | (far > 0))).sum())
        seen.differ += int((near != far).sum())
    return seen


@pytest.mark.parametrize("case", NESTING, **names)
def test_radii_nest_and_distances_move_by_one(case: TubeCase) -> None:
    seen = pairs(case, 3)
    assert seen.violations == 0
    assert seen.differ > 0


def test_the_same_records_in_another_order_are_within_the_radius_of_k_0() -> None:
    for case in (CASE["tanh, exact"], CASE["batches decay, gelu"], CASE["softmax"]):
        rng = np.random.default_rng(3)
        data = case.data(rng)
        here, there = case.train(data), case.train(data.take(rng.permutation(len(data))))
        apart = float(np.linalg.norm(here.weight.numpy() - there.weight.numpy()))
        assert 0 < apart <= here.radii[0]
        assert unnested(case, here, there) == 0


# -- mistakes planted ------------------------------------------------------------------------------------------------------

Plant = Callable[[pytest.MonkeyPatch], None]


def one_epoch(patch: pytest.MonkeyPatch) -> None:
    """What earlier epochs added is forgotten."""
    patch.setattr(Radii, "epoch_over", lambda self: self)


def one_row(patch: pytest.MonkeyPatch) -> None:
    """A unit counts as one record."""
    patch.setattr(TubeCase, "counts", np.array(KS))


def replaced_as_added(patch: pytest.MonkeyPatch) -> None:
    """A replaced record counts as one that comes."""
    rule = relations.RELATIONS["substitute"]
    patch.setitem(relations.RELATIONS, "substitute", replace(rule, touches=1))


def least_gradients(patch: pytest.MonkeyPatch) -> None:
    """The records whose gradients are shortest go."""
    whole = training.greatest
    patch.setattr(training, "greatest", lambda lengths, counts: whole(np.full_like(lengths, lengths.min()), counts))


def gradients_halved(patch: pytest.MonkeyPatch) -> None:
    """The clamp is taken to be half as wide."""
    whole = Radii.batch

    def batch(self: Radii, curvature, public, rho, gram, added=None):  # type: ignore[no-untyped-def]
        return whole(self, replace(curvature, gradient=curvature.gradient / 2), public, rho, gram, added)

    patch.setattr(Radii, "batch", batch)


def no_rounding(patch: pytest.MonkeyPatch) -> None:
    """Steps are taken to be exact."""
    patch.setattr(radius, "_UP", 1.0)
    whole = training.schedule

    def schedule(setting: object) -> object:
        publics, reach = whole(setting)  # type: ignore[arg-type]
        return [replace(public, tau=0.0) for public in publics], reach

    patch.setattr(training, "schedule", schedule)


@pytest.mark.parametrize(
    ("plant", "case"),
    [
        (one_epoch, CASE["batches, softplus, exact"]),
        (one_row, TubeCase("units of five rows", unit_rows=5, n=8, training={"clip": 0.05})),
        (replaced_as_added, CASE["replaced"]),
        (gradients_halved, CASE["clamped hard"]),
        (least_gradients, TubeCase("removed", relation="remove", training={"epochs": 3})),
        (no_rounding, CASE["tanh"]),
    ],
)
def test_radii_with_a_mistake_in_them_are_too_short(plant: Plant, case: TubeCase, monkeypatch: pytest.MonkeyPatch) -> None:
    assert edits(case, 12).outside == 0
    plant(monkeypatch)
    vars(case).pop("counts", None)
    try:
        assert edits(case, 60).outside > 0
    finally:
        vars(case).pop("counts", None)
