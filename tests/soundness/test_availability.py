"""Queries answered while erasure requests wait: against every vote of the unknown, and every answer after retraining."""

from itertools import product

import numpy as np
import pytest

from agt.certificates.votes import certified_vote
from agt.unlearning.sisa import answerable, availability, spread_requests


def winner(votes: np.ndarray, classes: int) -> int:
    return int(np.bincount(votes, minlength=classes).argmax())


def certain(distances: np.ndarray, labels: np.ndarray, pending: np.ndarray, classes: int) -> bool:
    """By trying every vote of every member that may change, for one query."""
    options = [[y] if k <= d else range(classes) for y, d, k in zip(labels, distances, pending, strict=True)]
    return len({winner(np.array(votes), classes) for votes in product(*options)}) == 1


def cases(seed: int, classes: int, members: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    shape = (members, 40)
    return rng.integers(0, 4, shape), rng.integers(0, classes, shape), rng.integers(0, 4, members)


def agrees(rule: object, seed: int, classes: int, members: int) -> bool:
    distances, labels, pending = cases(seed, classes, members)
    mask = rule(distances, labels, pending, classes)  # type: ignore[operator]
    return all(certain(distances[:, q], labels[:, q], pending, classes) == mask[q] for q in range(labels.shape[1]))


@pytest.mark.parametrize("classes", [2, 3, 4])
@pytest.mark.parametrize("members", [1, 2, 3, 5])
def test_a_query_is_answered_if_and_only_if_no_vote_of_the_unknown_changes_it(classes: int, members: int) -> None:
    assert all(agrees(answerable, seed, classes, members) for seed in range(20))


@pytest.mark.parametrize("classes", [2, 3])
def test_it_takes_in_what_the_votes_own_distance_allows(classes: int) -> None:
    more = 0
    for seed in range(60):
        distances, labels, pending = cases(seed, classes, 5)
        allowed = certified_vote(labels, distances, classes, touches=1).distance >= pending.sum()
        mask = answerable(distances, labels, pending, classes)
        assert mask[allowed].all()
        more += int((mask & ~allowed).sum())
    assert more > 0, "and more than that"


def test_one_request_a_shard_takes_an_ensemble_offline_unless_it_is_certified() -> None:
    labels, home = np.zeros((4, 10), dtype=int), np.repeat(np.arange(4), 25)
    everywhere = spread_requests(4, 4)
    assert everywhere.tolist() == [1, 1, 1, 1]
    assert not answerable(np.zeros_like(labels), labels, everywhere).any()
    assert answerable(np.ones_like(labels), labels, everywhere).all()
    assert spread_requests(4, 6).tolist() == [2, 2, 1, 1]
    rng = np.random.default_rng(0)
    counts = [0, 1, 4, 100]
    offline = availability(np.zeros_like(labels), labels, home, counts, rng)
    online = availability(np.full_like(labels, 25), labels, home, counts, rng)
    assert offline[0] == offline[1] == 1 > offline[2] > offline[3] == 0
    assert (online == 1).all()


def test_counts_that_are_none_are_refused() -> None:
    labels = np.zeros((3, 2), dtype=int)
    for pending in ([1, 1], [1, -1, 0]):
        with pytest.raises(ValueError, match="one count for each of 3 members"):
            answerable(labels, labels, np.array(pending))
