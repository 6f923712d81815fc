"""Private prediction attacked: claims, events, queries and trials; votes that count one member are caught."""

from collections.abc import Iterator

import numpy as np
import pytest

from agt.api import fit
from agt.audit.estimates import Claimed, Mistakes
from agt.audit.findings import Finding, Outcome
from agt.audit.neighbours import retrained, without
from agt.audit.planted import votes
from agt.audit.prediction import Event, Pair, alike, between_roots, event_of, event_of_sum, judged, most_telling
from agt.audit.verdict import Attacked
from agt.data.arrays import Declared
from agt.errors import ConfigError
from agt.mechanisms.guarantee import PureDP
from agt.mechanisms.optimal import GaussianMargin, RandomizedResponse
from agt.mechanisms.published import NoisyArgmax
from agt.mechanisms.release import Labelling
from agt.models.model import Model

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
    event = Event((1,), answers=2, least=2, alarm=0.1, hit=0.5)
    mistakes = event.mistakes(np.array([1, 1, 1, 0, 1, 1, 1]), np.array([0, 1, 1, 1, 0, 0, 1]))
    assert mistakes == Mistakes(alarms=1, without=3, misses=1, having=3)


def test_a_sum_tells_more_than_one_answer() -> None:
    one, limit = event_of(*response(1.0)), Claimed("epsilon", 4.0)
    together = event_of_sum(one, 4, limit, 2500, 0.95, 1)
    assert together.expected(limit, 2500, 0.95, 1) > 2 * one.expected(ONE, 10_000, 0.95, 1)


def verdict(event: Event, having: np.ndarray, lacking: np.ndarray) -> Finding:
    return judged(Attacked("a mechanism", "a claim", "nobody", "", ONE, 0.95), event, having, lacking)


def drawn(rng: np.random.Generator, law: np.ndarray, n: int) -> np.ndarray:
    return rng.choice(len(law), size=n, p=law)


def test_a_true_claim_is_called_false_once_in_twenty_times_at_most() -> None:
    laws = response(1.0)
    event, wrong = event_of(*laws), 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        wrong += verdict(event, *(drawn(rng, law, 400) for law in laws)).violated
    assert wrong <= 11


def test_a_false_claim_is_called_false_and_too_few_trials_say_nothing() -> None:
    laws, rng = response(1.4), np.random.default_rng(0)
    event = event_of(*laws)
    found = verdict(event, *(drawn(rng, law, 5000) for law in laws))
    assert found.violated
    assert found.found is not None
    assert 1 < found.found < 1.4
    few = verdict(event, *(drawn(rng, law, 5) for law in laws))
    assert few.outcome is Outcome.UNTESTED
    assert "too few trials" in few.meaning


# -- queries -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def heads() -> tuple[Model, Model, np.ndarray]:
    """A linear head, the same without its most telling record, and natural queries."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 4))
    y = (x[:, 0] + rng.normal(size=120) > 0).astype(int)
    known = Declared(classes=[0, 1], size=120, features=True, settings=True)
    model = fit(x, y, declared=known, ks=5, compute={"threads": 1}).model
    return model, retrained(model.problem, without(model.problem.dataset.train, np.array([3]))), rng.normal(size=(50, 4))


def pair(heads: tuple[Model, Model, np.ndarray]) -> Pair:
    return Pair(*(Labelling.of(model, RandomizedResponse(eps=1.0)) for model in heads[:2]))


def test_chosen_queries_lie_between_both_decision_lines(heads: tuple[Model, Model, np.ndarray]) -> None:
    models, limit = pair(heads), ONE
    queries = between_roots(models, heads[2], np.random.default_rng(0))
    at, event = most_telling(models, queries, limit, 10_000, 0.95)
    seen = models.seen(queries[at : at + 1])[:, 0]
    assert seen[0] != seen[2]
    assert event.loss(limit) == pytest.approx(1.0)
    _, natural = most_telling(models, heads[2], limit, 10_000, 0.95)
    assert natural.expected(limit, 10_000, 0.95, 1) < event.expected(limit, 10_000, 0.95, 1)


def test_trials_are_distinct_and_seen_alike(heads: tuple[Model, Model, np.ndarray]) -> None:
    models = pair(heads)
    queries = between_roots(models, heads[2], np.random.default_rng(0))[:1]
    rows = alike(models, queries, 500, np.random.default_rng(1))
    assert len(np.unique(rows, axis=0)) == 500
    assert (models.seen(rows) == models.seen(queries)).all()


class Restless:
    """Sees another thing of every query."""

    def __init__(self) -> None:
        self.numbers: Iterator[int] = iter(range(10**9))

    def seen(self, queries: np.ndarray) -> np.ndarray:
        return np.array([[next(self.numbers) for _ in queries]] * 4)


def test_a_query_whose_neighbourhood_is_not_alike_is_refused() -> None:
    with pytest.raises(ConfigError, match="last digits"):
        alike(Restless(), np.ones((1, 3)), 10, np.random.default_rng(0))  # type: ignore[arg-type]


def test_the_law_is_the_mechanisms(heads: tuple[Model, Model, np.ndarray]) -> None:
    mechanism = GaussianMargin(mu=1.0)
    models = Pair(*(Labelling.of(model, mechanism) for model in heads[:2]))
    seen = models.seen(heads[2])
    having, _ = models.laws(seen)
    assert having.sum(axis=1) == pytest.approx(np.ones(50))
    assert having[np.arange(50), 1 - seen[0]] == pytest.approx(mechanism.flip_probability(seen[1]))


# -- an ensemble whose edit moves two votes ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", votes.PLANTED)
@pytest.mark.parametrize("seed", range(2))
def test_votes_that_count_one_member_are_caught(name: str, seed: int) -> None:
    assert votes.PLANTED[name](seed).violated


def test_votes_that_count_two_stand_at_the_same_query_and_the_gate_refuses_the_other() -> None:
    for seed in range(2):
        moved = votes.moved_by(seed)
        found = votes.audited(moved.having, moved.lacking, RandomizedResponse(eps=1.0), moved.query, seed)
        assert found.outcome is Outcome.STANDS
        assert found.found is not None
        assert found.found > 0.8
    with pytest.raises(ConfigError, match="one edit may take a record out of one shard and put one into another"):
        Labelling.of(moved.having, NoisyArgmax(eps=1.0))
