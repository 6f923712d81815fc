"""Intervals of numbers and private means against brute force: every edit of small universes."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest

import agt
from agt.certificates.intervals import OrderedAnswers
from agt.data.records import Records
from agt.data.target import NumericTarget
from agt.mechanisms import laplace_mean
from agt.mechanisms.laplace_mean import LaplaceMean
from agt.models.number_votes import NumberVotes
from agt.numeric import SeededRandomness
from agt.training.lattice import LATTICE_STEPS, MIDDLE, to_lattice
from agt.training.learners import Learner, Shard

# Two records with the same features and label, labels beyond both ends, and a tie.
FEATURES = np.array([[0.9, 0.1], [0.9, 0.1], [-0.8, 0.5], [0.1, -0.9], [0.5, 0.5], [-0.2, -0.4]])
LABELS = np.array([4.0, 4.0, -50.0, 700.0, 4.0, 9.5])
QUERIES = np.array([[0.9, 0.1], [-5.0, 3.0], [0.3, -0.2], [0.0, 0.0]])
RANGE = (0.0, 10.0)
MEMBERS = 3


def model(relation: str = "add_remove", members: int = MEMBERS) -> NumberVotes:
    fitted = agt.fit(
        FEATURES,
        LABELS,
        target="numeric",
        range=RANGE,
        ids=np.array(list("abcdef")),
        relation=relation,  # type: ignore[arg-type]
        certificate={"name": "votes", "strength": 1e-3},
        members=members,
    )
    votes = fitted.model.number_votes
    assert votes is not None
    return votes


def subsets(count: int) -> list[tuple[int, ...]]:
    return [rows for size in range(count + 1) for rows in combinations(range(count), size)]


def edits(one: tuple[int, ...], other: tuple[int, ...], relation: str) -> int | None:
    """The number of edits between two subsets; None: no number of edits leads there."""
    removed = len(set(one) - set(other))
    added = len(set(other) - set(one))
    if relation == "add_remove":
        return removed + added
    return removed if removed == added else None


def answers_on_every_subset(votes: NumberVotes) -> dict[tuple[int, ...], np.ndarray]:
    records: Records = votes.problem.dataset.train
    found = {}
    for rows in subsets(len(records)):
        retrained: Any = votes.retrained(records.take(np.array(rows, dtype=np.int64)))
        found[rows] = retrained.labels(votes.phi(QUERIES))
    return found


def check_every_pair(
    answers: dict[tuple[int, ...], np.ndarray], relation: str, touches: int
) -> tuple[int, int]:
    """Check containment, nesting and the sum's sensitivity; returns pairs and changed answers."""
    ordered = {
        rows: OrderedAnswers.from_members(points, touches) for rows, points in answers.items()
    }
    pairs = changed = 0
    for one, other in ((a, b) for a in answers for b in answers):
        distance = edits(one, other, relation)
        if distance is None:
            continue
        pairs += 1
        lower, upper = ordered[one].bounds(distance)
        median = ordered[other].median
        assert ((lower <= median) & (median <= upper)).all()
        changed += int((median != ordered[one].median).sum())
        for k in range(ordered[one].max_k + 2):
            inner_lower, inner_upper = ordered[other].bounds(k)
            outer_lower, outer_upper = ordered[one].bounds(k + distance)
            assert ((outer_lower <= inner_lower) & (inner_upper <= outer_upper)).all()
        sums = answers[one].sum(axis=0, dtype=np.int64)
        moved = np.abs(answers[other].sum(axis=0, dtype=np.int64) - sums)
        assert (moved <= distance * touches * LATTICE_STEPS).all()
    return pairs, changed


@pytest.mark.parametrize(("relation", "touches"), [("add_remove", 1), ("substitute", 2)])
def test_every_edit_of_a_small_universe(relation: str, touches: int) -> None:
    votes = model(relation)
    assert votes.members_per_edit == touches
    answers = answers_on_every_subset(votes)
    assert len(answers[()]) == MEMBERS
    pairs, changed = check_every_pair(answers, relation, votes.members_per_edit)
    assert pairs > 900
    assert changed > 500  # the test would show nothing if answers never moved


def test_an_answer_can_reach_both_ends_of_its_interval() -> None:
    """A tighter interval than that of ranks h - m k and h + m k would be wrong."""
    points = np.array([[1], [2], [3], [4], [5]], dtype=np.int32)
    ordered = OrderedAnswers.from_members(points, touches=1)
    lower, upper = ordered.bounds(1)
    reached = set()
    for member in range(5):
        for answer in (0, LATTICE_STEPS):
            edited = points.copy()
            edited[member] = answer
            reached.add(int(OrderedAnswers.from_members(edited, 1).median[0]))
    assert (min(reached), max(reached)) == (lower[0], upper[0])


def broken(rows: np.ndarray, labels: np.ndarray) -> Any:
    """A learner that raises, gives NaN, infinities, or numbers far beyond the range."""
    if labels[0] == RANGE[1]:
        raise ValueError("a label at the end of the range comes first")
    if len(rows) == 3:
        return lambda queries: np.full(len(queries), np.nan)
    if labels.min() <= RANGE[0]:
        return lambda queries: np.array([1e300, -np.inf, -1e300, np.inf])
    return lambda queries: 100 * queries[:, 0] * (-1) ** len(rows)


@pytest.mark.parametrize(("relation", "touches"), [("add_remove", 1), ("substitute", 2)])
def test_every_edit_with_a_learner_that_fails(relation: str, touches: int) -> None:
    target = NumericTarget(*RANGE)
    learner = Learner.wrap(broken)
    shards = np.array([0, 0, 1, 0, 1, 2])
    labels = target.clip(LABELS)
    answers = {}
    for rows in subsets(len(FEATURES)):
        members = []
        for member in range(MEMBERS):
            own = [row for row in rows if shards[row] == member]
            shard = Shard(FEATURES[own], labels[own], 0, target)
            members.append(learner.train_member(shard).labels(QUERIES))
        answers[rows] = np.stack(members)
    assert (answers[()] == MIDDLE).all()
    pairs, changed = check_every_pair(answers, relation, touches)
    assert pairs > 900
    assert changed > 100


def test_a_member_without_records_counts_as_a_member() -> None:
    votes = model(members=50)  # 6 records: most shards are empty
    assert votes.labels(votes.phi(QUERIES)).shape == (50, len(QUERIES))
    assert (votes.labels(votes.phi(QUERIES)) == MIDDLE).any(axis=1).sum() >= 44
    sums = votes.sums(QUERIES)
    exact = votes.labels(votes.phi(QUERIES)).mean(axis=0) / LATTICE_STEPS * 10
    assert votes.mean_of(sums) == pytest.approx(exact)


def test_every_float_has_a_point_and_order_is_kept() -> None:
    numbers = np.array([-np.inf, -1e300, -1.0, -0.5, -0.0, 0.5, 1.0, 1.1, np.inf, np.nan])
    points = to_lattice(numbers)
    assert points.min() >= 0
    assert points.max() <= LATTICE_STEPS
    finite = points[1:8]
    assert (np.diff(finite) >= 0).all()
    assert points[[0, 8, 9]].tolist() == [MIDDLE] * 3
    target = NumericTarget(-3.7, 1e9)
    values = target.at(np.linspace(0, 1, 10_001))
    assert (np.diff(values) >= 0).all()
    assert (values[0], values[-1]) == (-3.7, 1e9)


@pytest.mark.parametrize("touches", [1, 2])
def test_the_law_of_a_private_sum(touches: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a lattice of 4 steps: exact exponents of every ratio, and draws with these frequencies."""
    steps = 4
    members = 3
    eps = 1.5
    monkeypatch.setattr(laplace_mean, "LATTICE_STEPS", steps)
    largest = members * steps
    decay = np.exp(-eps / (touches * steps))
    # The law of a clamped sum, from P(Z = z) = (1 - d) / (1 + d) d^|z| and its tails.
    outputs = np.arange(largest + 1)
    law = {}
    for exact in range(largest + 1):
        probability = (1 - decay) / (1 + decay) * decay ** np.abs(outputs - exact)
        probability[0] = decay**exact / (1 + decay)
        probability[-1] = decay ** (largest - exact) / (1 + decay)
        assert probability.sum() == pytest.approx(1)
        law[exact] = probability
    for exact, other in ((a, b) for a in law for b in law if abs(a - b) <= touches * steps):
        assert (law[exact] <= law[other] * np.exp(eps) * (1 + 1e-12)).all()
    draws = 2000
    for exact in (0, 5, largest):
        sums = np.full(draws, exact)
        released = LaplaceMean(eps=eps).release(sums, members, touches, SeededRandomness(exact + 1))
        frequency = np.bincount(released, minlength=largest + 1) / draws
        spread = np.sqrt(law[exact] * (1 - law[exact]) / draws)
        assert (np.abs(frequency - law[exact]) <= 5 * spread).all()


@pytest.mark.parametrize("eps", [0.02, 0.3, 20.0])
def test_the_expected_error_is_that_of_many_releases(eps: float) -> None:
    members = 10
    largest = members * LATTICE_STEPS
    means = np.repeat([0.0, 0.1, 0.5, 1.0], 500)
    numbers = np.repeat([0.7, 0.1, 0.4, 1.0], 500)
    mechanism = LaplaceMean(eps=eps)
    sums = np.rint(means * largest).astype(np.int64)
    errors = mechanism.release(sums, members, 2, SeededRandomness(3)) / largest - numbers
    expected = mechanism.expected_rmse(means, numbers, members, 2)
    assert np.sqrt((errors**2).mean()) == pytest.approx(expected, rel=0.05)


def test_noise_covers_two_members_under_substitute() -> None:
    middle = np.array([0.5])
    one = LaplaceMean(eps=5.0).expected_rmse(middle, middle, 100, 1)
    assert one == pytest.approx(np.sqrt(2) / (100 * 5.0), rel=1e-4)
    assert LaplaceMean(eps=5.0).expected_rmse(middle, middle, 100, 2) == pytest.approx(2 * one)


def test_tolerance_is_exact_and_no_mechanism_takes_it() -> None:
    votes = model(members=5)
    certificates = votes.certify(QUERIES)
    answer = certificates.prediction
    for tolerance in (0.0, 1.0, 20.0):
        within = certificates.within(tolerance)
        assert not isinstance(within, np.ndarray)
        for query, max_k in enumerate(within.max_k.tolist()):
            for k in range(certificates.max_k + 1):
                lower, upper = certificates.bounds(k)
                farthest = max(answer[query] - lower[query], upper[query] - answer[query])
                assert (k <= max_k) == (farthest <= tolerance)
