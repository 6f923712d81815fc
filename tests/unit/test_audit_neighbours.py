"""Neighbours of a run: trained by its own constants, whatever its records."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import agt
from agt.audit.edits import Edited, Editor, Target, Terms
from agt.audit.neighbours import retrained, with_added, without
from agt.audit.retraining import Refused, neighbours_of
from agt.models.model import Model, fit

FEW = {"epochs": 3, "lr": 0.5}
COMPUTE = {"threads": 1, "kernel": "reference"}
KINDS: dict[str, dict[str, Any]] = {
    "box": {"certificate": "box", "network": (3,), "ks": 2, "batch": {"count": 2}, "epochs": 2},
    "stability": {"certificate": "stability", **FEW},
    "erm": {"certificate": "erm", "weight_decay": 0.1},
    "tube": {"certificate": "tube", "network": (6,), "ks": 2, "caution": 20.0},
    "boxes vote": {"certificate": "box", "members": 3, "ks": 1, "epochs": 1},
    "heads vote": {"certificate": "stability", "members": 3, **FEW},
    "convolution": {
        "certificate": "box",
        "network": nn.Sequential(
            nn.Unflatten(1, (1, 1, 3)), nn.Conv2d(1, 2, (1, 2)), nn.Tanh(), nn.Flatten(), nn.Linear(4, 2)
        ),
        "ks": 2,
        "batch": {"count": 2},
        "epochs": 2,
    },
    "tubes vote": {"certificate": "tube", "network": (4,), "ks": 1, "members": 2, "caution": 20.0},
}


def made(settings: dict[str, Any], declared: bool, n: int = 40) -> Model:
    """A run, of a declared size or a counted one."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 3))
    size = agt.Declared(classes=[0, 1], size=n + 5, features=True, settings=True)
    ids = np.array([f"r{i}" for i in range(n)])
    model = agt.fit(x, (x[:, 0] > 0).astype(int), declared=size, ids=ids, compute=COMPUTE, **settings).model
    problem = model.problem
    return model if declared else fit(problem.on(replace(problem.dataset, declared_size=None)))


def heads(model: Any) -> list[torch.Tensor]:
    """All parameters of a model, members one after another."""
    members = getattr(model, "members", (model,))
    return [tensor for m in members for tensor in (m.box.nominal.values() if hasattr(m, "box") else [m.trained.weight])]


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_records_give_the_same_bits(kind: str, declared: bool) -> None:
    model = made(KINDS[kind], declared)
    train = model.problem.dataset.train
    again = retrained(model.problem, train)
    assert all(torch.equal(a, b) for a, b in zip(heads(model), heads(again), strict=True))
    fewer = retrained(model.problem, without(train, np.array([0, 7, 9])), (0,))
    assert any(not torch.equal(a, b) for a, b in zip(heads(model), heads(fewer), strict=True))
    mine, theirs = (getattr(m, "members", (m,)) for m in (model, fewer))
    assert [m.plan for m in mine] == [m.plan for m in theirs] or not declared
    assert [m.plan.normalizer for m in mine] == [m.plan.normalizer for m in theirs]
    assert [m.plan.n_max for m in mine] == [m.plan.n_max for m in theirs]


def test_nobody_and_one_class_train_too() -> None:
    problem = made(KINDS["box"], True).problem
    train = problem.dataset.train
    assert len(without(train, train.labels == 1)) < len(train)
    for rows in (train.labels == 1, np.ones(len(train), dtype=bool)):
        assert len(retrained(problem, without(train, rows)).problem.dataset.train) == (~rows).sum()
    part, rest = without(train, np.arange(5)), without(train, np.arange(5, len(train)))
    assert sorted(with_added(part, rest).ids) == sorted(train.ids)


SHARED: dict[str, dict[str, Any]] = {
    **KINDS,
    "momentum": {**KINDS["box"], "momentum": 0.5, "nesterov": True, "weight_decay": 0.1, "dampening": 0.0},
    "float32": {**KINDS["box"], "dtype": "float32"},
    "substitute": {**KINDS["box"], "relation": "substitute"},
    "mean": {**KINDS["box"], "relation": "paper_privacy", "epochs": 1},
    "softmax head": {"certificate": "stability", "loss": "cross_entropy", "clip": 1.0, **FEW},
    "softmax minimum": {"certificate": "erm", "loss": "cross_entropy", "clip": 1.0, "weight_decay": 0.1},
    "average": {"certificate": {"name": "stability", "average": 2}, "batch": {"count": 3}, **FEW},
    "tube of batches": {"certificate": "tube", "network": (6,), "ks": 2, "batch": {"count": 3}, "caution": 20.0},
    "removal": {"certificate": {"name": "removal", "seed": 1}, "weight_decay": 0.1},
    "minima vote": {"certificate": "erm", "members": 2, "weight_decay": 0.1},
}


@pytest.mark.parametrize("kind", SHARED)
def test_neighbours_trained_together_are_those_trained_alone(kind: str) -> None:
    model = made(SHARED[kind], True)
    train, rng = model.problem.dataset.train, np.random.default_rng(1)
    editor, target = Editor(Terms.of(model.problem), rng), Target(rng.normal(size=3), 1)
    edits = [Edited(train, np.array([row])) for row in range(6)]
    for _ in range(8):
        edit = editor.step(Edited(train), target)
        edits += [edit, editor.step(edit, target)]
    done: list[int] = []
    (one, *_) = getattr(model, "members", (model,))
    allowed = 1e-6 if kind == "float32" else 1e-13
    if hasattr(one, "trained"):
        allowed = one.trained.radii[0] if hasattr(one.trained, "radii") else one.trained.sensitivity.rounding
    for edit, together in zip(edits, neighbours_of(model, edits, done.append), strict=True):
        alone = retrained(model.problem, edit.records, (0,))
        assert not isinstance(together, Refused)
        for mine, theirs in zip(heads(together), heads(alone), strict=True):
            assert (mine - theirs).abs().max() <= allowed, edit.story
    assert done


def test_a_batch_above_n_max_is_refused_as_training_refuses_it() -> None:
    model = made({**KINDS["box"], "batch": {"count": 1, "n_max": 50, "normalizer": 40.0}}, True, n=50)
    newcomer = replace(model.problem.dataset.train.take(np.array([0])), ids=np.array(["new"]), units=np.array(["new"]))
    one_more, one_less = neighbours_of(
        model, [Edited(model.problem.dataset.train, come=(newcomer,)), Edited(model.problem.dataset.train, np.array([3]))]
    )
    assert isinstance(one_more, Refused)
    assert "n_max" in one_more.why
    assert not isinstance(one_less, Refused)
