"""Private prediction attacked: claims, events, queries and trials."""

from dataclasses import replace
from decimal import Decimal
from itertools import count, islice
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from agt.api import fit
from agt.audit.estimates import Claimed, Mistakes
from agt.audit.mechanism import unpaid
from agt.audit.neighbours import retrained, without
from agt.data.dataset import CONTENT
from agt.data.labelled import Declared
from agt.errors import ConfigError
from agt.mechanisms.claims import Labelling
from agt.mechanisms.composition import ApproximateDP, GaussianDP, Guarantee, Lot, PureDP
from agt.mechanisms.optimal import GaussianMargin, RandomizedResponse
from agt.models.model import Model
from agt.training.ensemble import EnsembleConfig, shards
from agt_cli.audit.prediction import (
    LabelEvent,
    LabellingPair,
    Poisoner,
    aims,
    alike,
    between_roots,
    edited,
    event_of,
    event_of_sum,
    names_into,
)
from agt_cli.audit.selftest import COMPUTE, crowd, fitted

ONE = Claimed.of(PureDP(1.0))


# -- claims and events -------------------------------------------------------------------------------------------------


def response(eps: float, labels: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """The laws of a label that differs on both sides."""
    law = np.exp(eps * np.eye(labels)[:2])
    return tuple(law / law.sum(axis=1, keepdims=True))  # type: ignore[return-value]


@pytest.mark.parametrize("labels", [2, 5])
def test_an_event_loses_what_the_mechanism_does(labels: int) -> None:
    event = event_of(*response(1.5, labels))
    assert event.labels == (0,)
    assert event.loss(ONE) == pytest.approx(1.5)
    assert event_of(*response(0.0, labels)).loss(ONE) == 0


def test_mistakes_are_counted_by_trial() -> None:
    event = LabelEvent((1,), answers=2, least=2, alarm=0.1, hit=0.5)
    mistakes = event.mistakes(np.array([1, 1, 1, 0, 1, 1, 1]), np.array([0, 1, 1, 1, 0, 0, 1]))
    assert mistakes == Mistakes(alarms=1, without=3, misses=1, having=3)


def test_a_sum_tells_more_than_one_answer() -> None:
    one, limit = event_of(*response(1.0)), Claimed("epsilon", 4.0)
    together = event_of_sum(one, 4, limit, 2500, 0.95, 1)
    assert together.expected(limit, 2500, 0.95, 1) > 2 * one.expected(ONE, 10_000, 0.95, 1)


COSTS: list[tuple[Guarantee, int, dict[str, float], bool]] = [
    *((guarantee, size, {}, False) for guarantee in (PureDP(0.1), PureDP(8.0), ApproximateDP(1.0, 1e-6), GaussianDP(0.5))
      for size in (1, 3, 1000)),
    (PureDP(1.0), 8, {"pure": 0.5}, True),
    (PureDP(1.0), 8, {"square": 0.5}, True),
    *((PureDP(eps), size, {"square": share}, True)
      for eps, share in ((0.1, 0.98), (1.0, 0.98), (1.0, 1.02)) for size in (1, 8, 100)),
    (ApproximateDP(1.0, 1e-6), 8, {"leak": 0.5}, True),
    (GaussianDP(1.0), 8, {"square": 0.5}, True),
    (GaussianDP(1.0), 8, {"square": 1.0001}, True),
]  # fmt: skip


@pytest.mark.parametrize(("guarantee", "size", "times", "wrong"), COSTS)
def test_a_debit_is_the_cost_by_a_formula_of_the_auditors_own(
    guarantee: Guarantee, size: int, times: dict[str, float], wrong: bool
) -> None:
    cost = Lot(guarantee, size).cost
    spent = replace(cost, **{name: getattr(cost, name) * Decimal(share) for name, share in times.items()})
    assert unpaid(spent, (guarantee, size)) is wrong
    other = Lot(PureDP(2.0), 2).cost
    assert wrong or not unpaid(spent.plus(other), (guarantee, size), (PureDP(2.0), 2))


# -- queries -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def heads() -> tuple[Model, Model, np.ndarray]:
    """A linear head, the same without a record, and natural queries."""
    x, y = crowd(0, 120)
    model = fitted(x, y, ks=5)
    return model, retrained(model.problem, without(model.problem.dataset.train, np.array([3]))), x[:50] / 2


def pair(heads: tuple[Model, Model, np.ndarray]) -> LabellingPair:
    return LabellingPair(*(Labelling.of(model, RandomizedResponse(eps=1.0)) for model in heads[:2]))


def test_trials_are_distinct_and_seen_alike(heads: tuple[Model, Model, np.ndarray]) -> None:
    models = pair(heads)
    queries = between_roots(models, heads[2], np.random.default_rng(0))[:1]
    rows = alike(models, queries, 500, np.random.default_rng(1))
    assert len(np.unique(rows, axis=0)) == 500
    assert (models.seen(rows) == models.seen(queries)).all()


def test_a_query_whose_neighbourhood_is_not_alike_is_refused() -> None:
    """Something else is seen of every query."""
    numbers = count()
    restless = SimpleNamespace(seen=lambda queries: np.array([[next(numbers) for _ in queries]] * 4))
    with pytest.raises(ConfigError, match="last digits"):
        alike(restless, np.ones((1, 3)), 10, np.random.default_rng(0))  # type: ignore[arg-type]


def test_the_law_is_the_mechanisms(heads: tuple[Model, Model, np.ndarray]) -> None:
    mechanism = GaussianMargin(mu=1.0)
    models = LabellingPair(*(Labelling.of(model, mechanism) for model in heads[:2]))
    seen = models.seen(heads[2])
    having, _ = models.laws(seen)
    assert having.sum(axis=1) == pytest.approx(np.ones(50))
    assert having[np.arange(50), 1 - seen[0]] == pytest.approx(mechanism.flip_probability(seen[1]))


# -- poisoned neighbours: where names go, who has influence, and one record that decides a natural query ----------------


N, WIDTH = 90, 4


def trained(classes: int = 2, members: int = 1, relation: str = "add_remove", certificate: str = "stability") -> Model:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, WIDTH))
    y = (x[:, :classes] + 0.8 * rng.normal(size=(N, classes))).argmax(axis=1)
    how: dict[str, Any] = {"relation": relation, "members": members, "certificate": certificate, "compute": COMPUTE}
    known = Declared(classes=list(range(classes)), size=N, features=True, settings=True)
    return fit(x, y, declared=known, ks=3, **how).model


QUERIES = np.random.default_rng(1).normal(size=(40, WIDTH))


@pytest.mark.parametrize("hashes", [False, True])
def test_names_go_where_they_are_meant_to(hashes: bool) -> None:
    config = EnsembleConfig(members=7)
    names = list(islice(names_into("poison", 3, config, hashes), 40))
    assert len(set(names)) == 40
    assert (shards(np.array(names), config) == 3).all()
    assert all(bool(CONTENT.fullmatch(name)) is hashes for name in names)


@pytest.mark.parametrize("relation", ["add_remove", "substitute"])
def test_an_edit_is_within_one_k(relation: str) -> None:
    model = trained(members=3, relation=relation)
    records, config = model.problem.dataset.train, model.problem.settings.ensemble
    other = edited(model.problem, records, 5)
    gone, come = set(records.units) - set(other.units), set(other.units) - set(records.units)
    assert gone == {records.units[5]}
    assert len(come) == (relation == "substitute")
    moved = shards(np.array([*gone, *come]), config)
    assert len(set(moved.tolist())) == len(moved)


KINDS = [(2, 3, "stability"), (3, 1, "box"), (2, 5, "votes"), (3, 5, "votes")]


@pytest.mark.parametrize(("classes", "members", "certificate"), KINDS)
def test_one_record_decides_a_natural_query_among_poisons(classes: int, members: int, certificate: str) -> None:
    model = trained(classes, members, certificate=certificate)
    found = Poisoner(model, QUERIES, allowance=12, retrainings=60).search()
    assert found.decided
    assert found.trained <= 60
    labels = [int(retrained(model.problem, side).predict(found.query)[0]) for side in (found.having, found.lacking)]
    assert labels[0] != labels[1]
    assert len(found.having) == N + 12
    assert len(found.lacking) == N + 11
    assert (found.query == QUERIES).all(axis=1).any()
    names = found.having.units[~np.isin(found.having.units, model.problem.dataset.train.units)]
    gone = found.having.units[~np.isin(found.having.units, found.lacking.units)]
    config = model.problem.settings.ensemble
    assert set(shards(names, config)) == set(shards(gone, config))


def test_poisons_that_are_too_few_say_how_many_would_do() -> None:
    model = trained()
    far = QUERIES[np.argsort(np.abs(model.margins(QUERIES)[0]))[-3:]]
    found = Poisoner(model, far, allowance=1, retrainings=20).search()
    assert not found.decided
    assert found.needed > 1


def test_an_ensemble_is_aimed_at_where_one_member_decides() -> None:
    model = trained(members=3)
    for aim in aims(model, model.problem.dataset.train, QUERIES, 4):
        labels = [int(member.predict(QUERIES[[aim.query]])[0]) for member in model.members]  # type: ignore[attr-defined]
        assert sum(label == labels[aim.member] for label in labels) == 2
