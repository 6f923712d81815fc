"""Private prediction attacked: claims, events, queries and trials."""

from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from agt.api import fit
from agt.data.ids import CONTENT
from agt.data.in_memory import Declared
from agt.errors import ConfigError
from agt.mechanisms.guarantees import PureDP
from agt.mechanisms.labelling import Labelling
from agt.mechanisms.optimal import GaussianMargin, RandomizedResponse
from agt.models.model import Model
from agt.training.ensemble import assign_shards
from agt.training.settings import EnsembleConfig
from agt_audit.claims import Claimed
from agt_audit.edited_records import without
from agt_audit.estimates import Mistakes
from agt_audit.events import AnswerEvent, event_of, event_of_sum
from agt_audit.influence import influential_units, name_in_shard, unit_edited, units_by_influence
from agt_audit.neighbours import retrained
from agt_audit.output_events import label_event
from agt_audit.pairs import LabellingPair, between_roots, similar_queries
from agt_audit.selftest import COMPUTE, synthetic_records, train_small_model

ONE = Claimed.of(PureDP(1.0))


# -- claims and events
# -------------------------------------------------------------------------------------------------


def response(eps: float, labels: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """The laws of a label that differs on both sides."""
    law = np.exp(eps * np.eye(labels)[:2])
    return tuple(law / law.sum(axis=1, keepdims=True))  # type: ignore[return-value]


@pytest.mark.parametrize("labels", [2, 5])
def test_an_event_loses_what_the_mechanism_does(labels: int) -> None:
    event = event_of(*response(1.5, labels))
    assert event.one.holds(np.arange(labels)).tolist() == [True, *[False] * (labels - 1)]
    assert np.log(event.hit / event.alarm) == pytest.approx(1.5)
    nothing = event_of(*response(0.0, labels))
    assert nothing.hit == nothing.alarm


def test_mistakes_are_counted_by_trial() -> None:
    event = AnswerEvent(label_event((1,)), alarm=0.1, hit=0.5, answers=2, minimum=2)
    mistakes = event.mistakes(np.array([1, 1, 1, 0, 1, 1, 1]), np.array([0, 1, 1, 1, 0, 0, 1]))
    assert mistakes == Mistakes(alarms=1, trials_without=3, misses=1, trials_with=3)


def test_a_sum_tells_more_than_one_answer() -> None:
    one = event_of(*response(1.0))
    limit = Claimed("epsilon", 4.0)
    together = event_of_sum(one, 4, limit, 2500, 0.95)
    assert together.expected(limit, 2500, 0.95) > 2 * one.expected(ONE, 10_000, 0.95)


# -- queries
# --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def heads() -> tuple[Model, Model, np.ndarray]:
    """A linear head, the same without a record, and natural queries."""
    x, y = synthetic_records(0, 120)
    model = train_small_model(x, y, ks=5)
    return (
        model,
        retrained(model.problem, without(model.problem.dataset.train, np.array([3]))),
        x[:50] / 2,
    )


def pair(heads: tuple[Model, Model, np.ndarray]) -> LabellingPair:
    return LabellingPair(
        *(Labelling.judged(model, RandomizedResponse(eps=1.0)) for model in heads[:2])
    )


def test_trials_are_distinct_and_seen_alike(heads: tuple[Model, Model, np.ndarray]) -> None:
    models = pair(heads)
    queries = between_roots(models, heads[2], np.random.default_rng(0))[:1]
    rows = similar_queries(models, queries, 500, np.random.default_rng(1))
    assert len(np.unique(rows, axis=0)) == 500
    assert (models.evidence(rows) == models.evidence(queries)).all()


def test_a_query_whose_neighbourhood_is_not_alike_is_refused() -> None:
    """Something else is seen of every query."""
    numbers = count()
    restless = SimpleNamespace(
        evidence=lambda queries: np.array([[next(numbers) for _ in queries]] * 4)
    )
    with pytest.raises(ConfigError, match="last digits"):
        similar_queries(restless, np.ones((1, 3)), 10, np.random.default_rng(0))  # type: ignore[arg-type]


def test_the_law_is_the_mechanisms(heads: tuple[Model, Model, np.ndarray]) -> None:
    mechanism = GaussianMargin(mu=1.0)
    models = LabellingPair(*(Labelling.judged(model, mechanism) for model in heads[:2]))
    seen = models.evidence(heads[2])
    having, _ = models.laws(seen)
    assert having.sum(axis=1) == pytest.approx(np.ones(50))
    assert having[np.arange(50), 1 - seen[0]] == pytest.approx(mechanism.flip_probability(seen[1]))


# -- neighbours: where names go, and who has influence
# ------------------------------------------------------------------


N = 90
WIDTH = 4


def trained(
    classes: int = 2, members: int = 1, relation: str = "add_remove", certificate: str = "stability"
) -> Model:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, WIDTH))
    y = (x[:, :classes] + 0.8 * rng.normal(size=(N, classes))).argmax(axis=1)
    how: dict[str, Any] = {
        "relation": relation,
        "members": members,
        "certificate": certificate,
        "compute": COMPUTE,
    }
    known = Declared(classes=list(range(classes)), size=N, features=True, settings=True)
    return fit(x, y, declared=known, ks=3, **how).model


QUERIES = np.random.default_rng(1).normal(size=(40, WIDTH))


@pytest.mark.parametrize("like", ["r17", "0123456789abcdef" * 2])
def test_a_name_goes_where_it_is_meant_to_and_looks_like_others(like: str) -> None:
    config = EnsembleConfig(members=7)
    names = [name_in_shard(shard, config, like) for shard in range(7)]
    assert assign_shards(np.array(names), config).tolist() == list(range(7))
    looks_like_hash = CONTENT.fullmatch(like) is not None
    assert all((CONTENT.fullmatch(name) is not None) == looks_like_hash for name in names)


@pytest.mark.parametrize("relation", ["add_remove", "substitute"])
def test_an_edit_is_within_one_k(relation: str) -> None:
    model = trained(members=3, relation=relation)
    records = model.problem.dataset.train
    config = model.problem.settings.ensemble
    other = unit_edited(model.problem, records, 5)
    gone = set(records.units) - set(other.units)
    come = set(other.units) - set(records.units)
    assert gone == {records.units[5]}
    assert len(come) == (relation == "substitute")
    moved = assign_shards(np.array([*gone, *come]), config)
    assert len(set(moved.tolist())) == len(moved)


@pytest.mark.parametrize("certificate", ["stability", "votes"])
def test_the_units_of_an_ensemble_are_of_a_member_whose_vote_decides(certificate: str) -> None:
    """Of three votes on two classes a member decides where one of the others votes as it does,
    and one does not.
    """
    model = trained(members=3, certificate=certificate)
    config = model.problem.settings.ensemble
    labels = (model.member_margins(QUERIES)[:, 0] > 0).astype(int)
    decides = (labels == labels[:, None]).sum(axis=1) == 2  # [T, n]
    contested = np.flatnonzero(decides.any(axis=0))
    assert 0 < len(contested) < len(QUERIES)
    for row in contested:
        units = units_by_influence(model, QUERIES[row])
        assert decides[assign_shards(np.array(units[:1]), config)[0], row]


def test_no_unit_is_chosen_twice() -> None:
    model = trained()
    units = list(influential_units(model, np.repeat(QUERIES[:1], N + 5, axis=0)))
    assert len(units) == len(set(units)) == N
    assert units == units_by_influence(model, QUERIES[0])
