"""Curvature tubes by retraining (agt/tube): every neighbour lies within its radius, radii nest, distances move by one.

Each claim is also tested with a mistake planted, which the same check must catch. Retraining seldom comes to the worst
case: test_tube_pieces.py takes the proof apart.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from adversary import assault
from adversary_settings import Setting
from checks import Case
from tubes import CASES, KS, WIDTH, TubeCase

from agt import relations
from agt.audit.neighbours import Edited, Editor, Target
from agt.certificates.stability import ClosedForm
from agt.data.dataset import Records
from agt.settings import TubeConfig
from agt.tube import radius, training
from agt.tube.radius import Radii

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


def setting_of(case: TubeCase) -> Setting:
    """As the adversary has it."""
    loss = "binary_cross_entropy" if case.classes == 2 else "cross_entropy"
    batch = {
        "count": 1,
        "normalizer": float(case.n * case.unit_rows),
        "n_max": 8 * case.n,
        **case.training.get("batch", {}),
    }
    training = {"loss": loss, "clip": case.config.clip, "epochs": 6, "lr": 1.0, **case.training, "batch": batch}
    how = {"n": case.n, "unit_rows": case.unit_rows, "activation": case.activation, "training": training}
    norms = "exact" if case.exact else "cheap"
    tube = TubeConfig(features=case.features, length=case.length, norms=norms)  # type: ignore[arg-type]
    return Setting(Case(case.name, (case.hidden,), case.classes, **how), case.relation, "tube", certificate=tube)


@pytest.mark.parametrize("case", NESTING, **names)
def test_radii_nest_and_distances_move_by_one(case: TubeCase) -> None:
    """Also of the same records in another order."""
    report = assault(setting_of(case), 1, 12)
    assert not report.escapes, "\n".join(map(str, report.escapes))
    assert report.reorders == report.apart == 1
    assert report.ends > 0


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
