"""Answers without one person's records: against training again from the arrays without them.

Brute force on purpose: it shares nothing with what it checks but ``agt.fit``.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from joblib import parallel_config

from agt.api import Declared, Fitted, fit
from agt.data.records import UNANSWERED
from agt.models.model import Model
from agt.training import ensemble as training_ensemble
from agt.unlearning.influence import AnsweredModel, Influence, Neighbour, Outcome

PEOPLE = 30
QUERIES = np.random.default_rng(7).normal(size=(300, 3)) * 0.25


def people(classes: int, seed: int = 0, rows: int = 2) -> dict[str, np.ndarray]:
    """Records of ``PEOPLE`` people, up to ``rows`` each, whose classes overlap."""
    rng = np.random.default_rng(seed)
    owners = np.repeat(np.arange(PEOPLE), rng.integers(1, rows + 1, PEOPLE))
    x = rng.normal(size=(len(owners), 3)) * 0.4
    noisy = x[:, 0] + x[:, 1] / 2 + rng.normal(size=len(owners)) * 0.3
    y = np.digitize(noisy, [0.0] if classes == 2 else [-0.2, 0.2])
    return {
        "x": x,
        "y": y,
        "ids": np.array([f"r{row}" for row in range(len(owners))]),
        "units": np.array([f"p{owner}" for owner in owners]),
    }


def trained(data: dict[str, np.ndarray], **settings: Any) -> Fitted:
    """A model of these records; under ``flip`` each record is a unit of its own."""
    named = {"ids": data["ids"]}
    if settings.get("relation") != "flip":
        named["units"] = data["units"]
        settings["unit_rows"] = 2
    return fit(data["x"], data["y"], **named, declared=Declared(size=45), **settings)


def without_rows(data: dict[str, np.ndarray], rows: np.ndarray) -> dict[str, np.ndarray]:
    kept = np.ones(len(data["y"]), dtype=bool)
    kept[rows] = False
    return {name: values[kept] for name, values in data.items()}


def rows_of_people(model: Model) -> list[np.ndarray]:
    units = model.problem.dataset.train.units
    return [np.flatnonzero(units == unit) for unit in np.unique(units)[:PEOPLE]]


def influences(model: Model, reads_no_constants: bool = True) -> list[Influence]:
    """What is said of each person alone."""

    def neighbour_of(rows: np.ndarray) -> Neighbour:
        dataset = model.problem.dataset
        kept = np.ones(len(dataset.train), dtype=bool)
        kept[rows] = False
        remaining = replace(dataset, train=dataset.train.take(kept), plane=None)
        return Neighbour(replace(model.problem, dataset=remaining), QUERIES, untouched=True)

    answered = AnsweredModel(model.problem, model, None, QUERIES)
    return answered.influences(rows_of_people(model), neighbour_of, reads_no_constants)


KINDS = {
    "votes": {"certificate": "votes", "members": 7},
    "logistic votes": {"certificate": {"name": "votes", "learner": "logistic"}, "members": 5},
    "flips": {"certificate": "votes", "members": 3, "relation": "flip"},
    "erm": {"certificate": "erm", "weight_decay": 0.1},
    "erm, not clamped": {"certificate": "erm", "weight_decay": 0.05, "clip": 1.0},
    "erm, softmax": {
        **{"certificate": "erm", "weight_decay": 0.1},
        **{"loss": "cross_entropy", "clip": 1.0},
    },
    "stability": {"certificate": "stability", "epochs": 5, "lr": 0.5},
    "removal": {
        "certificate": {
            **{"name": "removal", "loss": "least_squares"},
            **{"masking": "none", "sigma": 0},
        },
        "weight_decay": 0.1,
    },
    "box": {
        **{"certificate": "box", "network": (), "ks": 1},
        **{"epochs": 4, "lr": 2.0, "clip": 0.5},
    },
    "ensemble": {"certificate": "stability", "members": 3, "epochs": 3, "lr": 0.5},
}


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members are trained one after another, because processes for them take seconds to start."""
    sequential = lambda *given: parallel_config("sequential")  # noqa: E731
    monkeypatch.setattr(training_ensemble, "worker_processes", sequential)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_whatever_is_said_of_an_answer_is_what_training_again_gives(
    kind: str, classes: int
) -> None:
    data = people(classes)
    fitted = trained(data, **KINDS[kind])
    labels = fitted.model.predict(QUERIES)
    changed = 0
    said = influences(fitted.model)
    for rows, found in zip(rows_of_people(fitted.model), said, strict=True):
        again = trained(without_rows(data, rows), **KINDS[kind]).model.predict(QUERIES)
        is_shown = found.outcomes != Outcome.NOT_SHOWN
        is_same = found.outcomes == Outcome.SAME
        assert (is_same == (again == labels))[is_shown].all()
        assert (found.labels == np.where(is_shown, again, UNANSWERED)).all()
        changed += found.count(Outcome.CHANGED)
    assert changed > 0  # the comparison has something to find
