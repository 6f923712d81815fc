"""Answers without one person's records: against training again from the arrays without them.

Brute force on purpose: it shares nothing with what it checks but ``agt.fit``.
"""

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from joblib import parallel_config

from agt.api import fit
from agt.data.in_memory import Declared
from agt.data.records import UNANSWERED
from agt.errors import CheckError
from agt.fitted import Fitted
from agt.models.linear import LinearModel
from agt.models.model import Model
from agt.numeric import labels_of
from agt.training import ensemble as training_ensemble
from agt.unlearning import influence, minimiser_influence
from agt.unlearning.influence import AnsweredModel, Influence, Neighbour, Outcome
from agt.unlearning.minimiser_influence import MinimisersWithout

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


def influences(model: Model, constants_are_public: bool = True) -> list[Influence]:
    """What is said of each person alone."""

    def make_neighbour(rows: np.ndarray) -> Neighbour:
        dataset = model.problem.dataset
        kept = np.ones(len(dataset.train), dtype=bool)
        kept[rows] = False
        remaining = replace(dataset, train=dataset.train.take(kept), plane=None)
        return Neighbour(replace(model.problem, dataset=remaining), QUERIES, same_features=True)

    answered = AnsweredModel(model.problem, model, None, QUERIES)
    return answered.influences(rows_of_people(model), make_neighbour, constants_are_public)


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


def minimiser_case(classes: int, clip: float) -> SimpleNamespace:
    """A trained minimiser on 300 records, and steps without each of 25 people of two records."""
    rng = np.random.default_rng(classes)
    x = rng.normal(size=(300, 3)) * 0.4
    noisy = x[:, 0] + x[:, 1] / 2 + rng.normal(size=300) * 0.3
    y = np.digitize(noisy, [0.0] if classes == 2 else [-0.2, 0.2])
    ids = np.array([f"r{row:03}" for row in range(300)])
    settings = {"certificate": "erm", "weight_decay": 0.02, "clip": clip}
    declared = Declared(size=300)

    def train(kept: np.ndarray) -> LinearModel:
        model = fit(x[kept], y[kept], ids=ids[kept], declared=declared, **settings).model
        assert isinstance(model, LinearModel)
        return model

    head = train(np.ones(300, dtype=bool))
    people = [np.array([row, row + 100]) for row in range(25)]
    phi = np.asarray(head.phi_of_records(x))
    steps = MinimisersWithout.from_head(head, phi, y, people)
    exact = []
    for rows in people:
        kept = np.ones(300, dtype=bool)
        kept[rows] = False
        exact.append(train(kept).trained.weight.numpy())
    return SimpleNamespace(
        head=head, phi=phi, y=y, people=people, steps=steps, exact=np.stack(exact)
    )


MINIMISERS = [(2, 0.5), (2, 1.0), (3, 0.5), (3, 1.0)]


@pytest.mark.parametrize(("classes", "clip"), MINIMISERS)
def test_training_again_is_within_the_radius_of_the_step(classes: int, clip: float) -> None:
    case = minimiser_case(classes, clip)
    distances = np.linalg.norm(case.exact - case.steps.weight - case.steps.steps, axis=2)
    assert (distances <= case.steps.radii).all()
    moved = np.linalg.norm(case.exact - case.steps.weight, axis=2)
    assert (case.steps.radii < moved).mean() > 0.75  # the radius is worth something


@pytest.mark.parametrize(("classes", "clip"), MINIMISERS)
def test_weights_that_are_no_minimiser_are_measured_and_not_believed(
    classes: int, clip: float
) -> None:
    case = minimiser_case(classes, clip)
    moved = replace(case.head.trained, weight=case.head.trained.weight + 0.1)
    head = replace(case.head, trained=moved)
    steps = MinimisersWithout.from_head(head, case.phi, case.y, case.people)
    distances = np.linalg.norm(case.exact - steps.weight - steps.steps, axis=2)
    assert (distances <= steps.radii).all()


def test_without_a_usable_hessian_the_step_is_0_and_the_radius_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def not_positive_definite(*given: object, **named: object) -> None:
        raise np.linalg.LinAlgError

    case = minimiser_case(2, 1.0)
    monkeypatch.setattr(minimiser_influence, "cho_factor", not_positive_definite)
    steps = MinimisersWithout.from_head(case.head, case.phi, case.y, case.people)
    assert not steps.steps.any()
    assert (np.linalg.norm(case.exact - steps.weight, axis=2) <= steps.radii).all()


@pytest.mark.parametrize("pairs", [40, 150])
def test_the_radius_covers_records_at_a_kink_of_the_clamped_loss(pairs: int) -> None:
    x = np.repeat(np.random.default_rng(0).normal(size=(pairs, 3)) * 0.4, 2, axis=0)
    y = np.tile([0, 1], pairs)  # each record once with each class: every logit is about 0
    ids = np.array([f"r{row:03}" for row in range(2 * pairs)])
    settings = {"certificate": "erm", "weight_decay": 0.02, "clip": 0.5}
    declared = Declared(size=2 * pairs)
    head = fit(x, y, ids=ids, declared=declared, **settings).model
    people = [np.array([row]) for row in range(10)]
    steps = MinimisersWithout.from_head(head, head.phi_of_records(x), y, people)
    for person, rows in enumerate(people):
        kept = np.delete(np.arange(2 * pairs), rows)
        again = fit(x[kept], y[kept], ids=ids[kept], declared=declared, **settings).model
        exact = again.trained.weight.numpy()
        distance = np.linalg.norm(exact - steps.weight - steps.steps[person])
        assert distance <= steps.radii[person, 0]


@pytest.mark.parametrize("label", [0, 1])
def test_a_logit_whose_sigmoid_rounds_to_the_clamp_counts_as_at_the_kink(label: int) -> None:
    bound = 1 - 1e-14
    logits = np.linspace(31, 34, 30_001) * (1 if label == 0 else -1)
    target = float(label)
    computed = np.abs(torch.sigmoid(torch.from_numpy(logits)).numpy() - target) >= bound
    is_beyond = np.abs(logits) >= math.log(bound / (1 - bound))
    labels = np.full(len(logits), label)
    distances = minimiser_influence._kink_distances(logits, labels, bound, 0, 2)
    assert (computed != is_beyond).any()  # rounding matters here
    assert (distances[computed != is_beyond] == 0).all()


@pytest.mark.parametrize(("classes", "clip"), MINIMISERS)
def test_queries_between_the_step_and_training_again_are_not_shown_wrongly(
    classes: int, clip: float
) -> None:
    case = minimiser_case(classes, clip)
    wrong = 0
    for person, exact in enumerate(case.exact):
        stepped = case.steps.weight + case.steps.steps[person]
        # Two logits, or the one and 0, which are equal on a query's boundary.
        normal = exact[0] if classes == 2 else exact[0] - exact[1]
        stepped_normal = stepped[0] if classes == 2 else stepped[0] - stepped[1]
        error = normal - stepped_normal
        across = error - normal * (error @ normal) / (normal @ normal)
        across /= np.linalg.norm(across)
        # Halfway between the two boundaries, far along them.
        query = across + normal * (across @ error) / 2 / (normal @ normal)
        query /= np.linalg.norm(query) * (1 + 1e-9)
        queries = np.stack([query, -query])
        without = case.steps.labels(queries)
        again = labels_of(queries @ exact.T)
        is_right = without.labels[person] == again
        wrong += int((~is_right).sum())
        assert is_right[without.is_proved[person]].all()
    assert wrong > 0  # the queries are hard enough that the step alone is wrong


def test_without_a_declared_size_a_minimiser_is_trained_again() -> None:
    data = people(2)
    fitted = fit(
        data["x"],
        data["y"],
        ids=data["ids"],
        units=data["units"],
        unit_rows=2,
        certificate="erm",
        weight_decay=0.1,
    )
    assert {found.method for found in influences(fitted.model)} == {"retraining"}


def test_where_constants_are_read_off_records_a_minimiser_is_trained_again() -> None:
    model = trained(people(2), **KINDS["erm"]).model
    assert {found.method for found in influences(model, False)} == {"retraining"}


def test_a_minimiser_is_not_trained_again_for_many_people(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(influence, "MAX_RETRAINED_PEOPLE", 0)
    model = trained(people(2), **KINDS["erm"]).model
    found = influences(model)
    assert {each.method for each in found} == {"newton"}
    assert sum(each.count(Outcome.NOT_SHOWN) for each in found) > 0
    assert sum(each.count(Outcome.SAME) for each in found) > 0


def test_a_person_without_training_records_changes_nothing() -> None:
    model = trained(people(2), **KINDS["votes"]).model
    answered = AnsweredModel(model.problem, model, None, QUERIES)
    (found,) = answered.influences([np.empty(0, dtype=np.int64)], pytest.fail, True)
    assert found.method == "nothing"
    assert found.count(Outcome.SAME) == len(QUERIES)


@pytest.mark.parametrize("kind", ["votes", "stability"])
def test_a_model_that_training_does_not_give_again_is_not_compared(kind: str) -> None:
    model = trained(people(2), **KINDS[kind]).model
    other = trained(people(2, seed=5), **KINDS[kind]).model
    with pytest.raises(CheckError):
        influences(replace(other, problem=model.problem))
