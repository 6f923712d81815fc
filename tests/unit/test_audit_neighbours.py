"""Neighbours of a run: trained by its own constants, whatever its records."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import agt
from agt.audit.neighbours import retrained, with_added, without
from agt.models.model import Model, fit

COMPUTE = {"threads": 1, "kernel": "reference"}
KINDS: dict[str, dict[str, Any]] = {
    "box": {"certificate": "box", "network": (3,), "ks": 2, "batch": {"count": 2}, "epochs": 2},
    "stability": {"certificate": "stability"},
    "erm": {"certificate": "erm", "weight_decay": 0.1},
    "boxes vote": {"certificate": "box", "members": 3, "ks": 1, "epochs": 1},
    "heads vote": {"certificate": "stability", "members": 3},
}


def made(kind: str, declared: bool, n: int = 40) -> Model:
    """A run of ``kind``, of a declared size or a counted one."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 3))
    size = agt.Declared(classes=[0, 1], size=n + 5, features=True, settings=True)
    ids = np.array([f"r{i}" for i in range(n)])
    model = agt.fit(x, (x[:, 0] > 0).astype(int), declared=size, ids=ids, compute=COMPUTE, **KINDS[kind]).model
    problem = model.problem
    return model if declared else fit(problem.on(replace(problem.dataset, declared_size=None)))


def heads(model: Any) -> list[torch.Tensor]:
    """All parameters of a model, members one after another."""
    members = getattr(model, "members", (model,))
    return [tensor for m in members for tensor in (m.box.nominal.values() if hasattr(m, "box") else [m.trained.weight])]


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_records_give_the_same_bits(kind: str, declared: bool) -> None:
    model = made(kind, declared)
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
    problem = made("box", True).problem
    train = problem.dataset.train
    assert len(without(train, train.labels == 1)) < len(train)
    for rows in (train.labels == 1, np.ones(len(train), dtype=bool)):
        assert len(retrained(problem, without(train, rows)).problem.dataset.train) == (~rows).sum()
    part, rest = without(train, np.arange(5)), without(train, np.arange(5, len(train)))
    assert sorted(with_added(part, rest).ids) == sorted(train.ids)
