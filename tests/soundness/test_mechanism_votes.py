"""Certified votes: 1-Lipschitz between neighbouring ensembles, and no vote changes within its
distance.
"""

from itertools import combinations, product

import numpy as np
import pytest
from checks import Edits, edits_to_another, one_after_another, torn
from scipy.special import ndtri
from synthetic import refused

from agt.certificates.stability import MAX_STABLE_DISTANCE
from agt.certificates.votes import certified_vote
from agt.errors import ConfigError
from agt.mechanisms.argmax import GaussianArgmax, NoisyArgmax
from agt.mechanisms.guarantees import GaussianDP, PureDP
from agt.mechanisms.published import published_vote
from agt.numeric import SeededRandomness

rng = np.random.default_rng


def ensembles(
    members: int, classes: int, n: int, seed: int, top: int = 4
) -> tuple[np.ndarray, np.ndarray]:
    draw = rng(seed)
    lean = draw.random((1, n))  # near-unanimous queries and ties alike
    labels = np.where(draw.random((members, n)) < lean, 0, draw.integers(0, classes, (members, n)))
    return labels, draw.integers(0, draw.integers(1, top + 1, (1, n)), (members, n))


def brute_force(labels: np.ndarray, distances: np.ndarray, classes: int) -> int:
    """F - 1 by trying every vote vector."""

    def winner(votes: np.ndarray) -> int:
        return int(np.bincount(votes, minlength=classes).argmax())

    now = winner(labels)
    costs = (
        int((distances + 1)[np.array(votes) != labels].sum())
        for votes in product(range(classes), repeat=len(labels))
        if winner(np.array(votes)) != now
    )
    return min(costs) - 1


@pytest.mark.parametrize(
    ("members", "classes"), [(1, 2), (2, 2), (5, 2), (6, 2), (4, 3), (5, 3), (4, 4)]
)
def test_against_every_vote_vector(members: int, classes: int) -> None:
    labels, distances = ensembles(members, classes, 60, seed=3)
    vote = certified_vote(labels, distances, classes, touches=1)
    expected = [brute_force(labels[:, q], distances[:, q], classes) for q in range(labels.shape[1])]
    assert vote.distance.tolist() == expected
    assert vote.prediction.tolist() == [
        int(np.bincount(labels[:, q], minlength=classes).argmax()) for q in range(60)
    ]


def priced(
    members: int, classes: int, n: int, seed: int, top: int = 9
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels and distances [T, n], and prices [C, T, n], some of which are more than twice the
    least and some less.
    """
    labels, _ = ensembles(members, classes, n, seed)
    prices = rng(seed + 1).integers(1, top + 1, (classes, members, n))
    own = np.arange(classes)[:, None, None] == labels
    return labels, np.where(own, top, prices).min(axis=0) - 1, np.where(own, 0, prices)


@pytest.mark.parametrize(
    ("members", "classes"), [(1, 3), (2, 3), (4, 3), (5, 3), (6, 3), (4, 4), (5, 4)]
)
def test_prices_of_each_class_against_every_vote_vector(members: int, classes: int) -> None:
    labels, distances, prices = priced(members, classes, 120, seed=members)
    vote = certified_vote(labels, distances, classes, touches=1, edits_to_win=prices)
    every = np.array([*product(range(classes), repeat=members)])
    won = (every[..., None] == np.arange(classes)).sum(axis=1).argmax(axis=1)
    for q in range(labels.shape[1]):
        costs = prices[every, np.arange(members), q].sum(axis=1)[won != vote.prediction[q]]
        assert vote.distance[q] == costs.min() - 1
    assert (
        vote.distance > certified_vote(labels, distances, classes, touches=1).distance
    ).any() == (members > 1)


@pytest.mark.parametrize("touches", [1, 2])
def test_neighbours_of_priced_votes(touches: int) -> None:
    """Prices move by one, and the label goes to a class whose price comes to 0: distances move
    by one, labels turn at 0.
    """
    draw = rng(5)
    n = 20_000
    members = 4
    classes = 3
    labels, distances, prices = priced(members, classes, n, seed=7, top=3)
    near = prices.copy()
    for member in draw.permuted(np.tile(np.arange(members), (n, 1)), axis=1)[:, :touches].T:
        here = near[:, member, np.arange(n)]
        at = np.arange(n)
        moved = np.clip(here + draw.integers(-1, 2, here.shape), 1, None)
        # whose price may come to 0
        may = np.where(here <= 1, draw.random(here.shape), -1).argmax(axis=0)
        moved[may, at] = 0
        near[:, member, at] = np.where(abs(moved - here) <= 1, moved, here)
    after = near.argmin(axis=0)
    assert ((near == 0).sum(axis=0) == 1).all()
    least = np.where(np.arange(classes)[:, None, None] == after, 99, near).min(axis=0) - 1
    one = certified_vote(labels, distances, classes, touches=touches, edits_to_win=prices)
    other = certified_vote(after, least, classes, touches=touches, edits_to_win=near)
    turned = one.prediction != other.prediction
    assert turned.any()
    assert abs(one.distance - other.distance).max() == 1
    assert not one.distance[turned].any()
    assert not other.distance[turned].any()


def test_method_rule_for_two_classes() -> None:
    """m = ceil((n1-n0)/2) or floor((n0-n1)/2)+1 cheapest majority voters, minus 1 (reference.md
    section 4).
    """
    labels, distances = ensembles(9, 2, 500, seed=5, top=30)
    vote = certified_vote(labels, distances, touches=1)
    for q in range(labels.shape[1]):
        n1 = int(labels[:, q].sum())
        n0 = len(labels) - n1
        m = -(-(n1 - n0) // 2) if n1 > n0 else (n0 - n1) // 2 + 1
        costs = np.sort((distances + 1)[labels[:, q] == int(n1 > n0), q])
        assert vote.distance[q] == costs[:m].sum() - 1


# -- edits that change several members at once


def tables(members: int, classes: int, top: int) -> tuple[np.ndarray, np.ndarray]:
    """([T, n] labels, [T, n] distances): every vote of ``members`` whose distances are at most
    ``top``.
    """
    states = np.array(list(product(range(classes * (top + 1)), repeat=members))).T
    return states // (top + 1), states % (top + 1)


def edits(members: int, classes: int, top: int, touches: int) -> Edits:
    """Of the columns of ``tables``, for each way to choose members and what they do.

    A member's distance moves by 1 at most; its label turns only at 0, and then both sides'
    distances are 0.
    """
    labels, distances = tables(members, classes, top)
    base = (classes * (top + 1)) ** np.arange(members)[::-1, None]
    found = []
    for chosen in combinations(range(members), touches):
        for moves in product([-1, 0, 1, *(f"to {c}" for c in range(classes))], repeat=touches):
            new = labels.copy()
            far = distances.copy()
            possible = np.ones(labels.shape[1], dtype=bool)
            for member, move in zip(chosen, moves, strict=True):
                if isinstance(move, str):
                    possible &= distances[member] == 0
                    new[member] = int(move[3:])
                else:
                    far[member] += move
                    possible &= (far[member] >= 0) & (far[member] <= top)
            to = (base * (new * (top + 1) + far)).sum(axis=0)
            found.append((np.flatnonzero(possible), to[possible]))
    return found


@pytest.mark.parametrize(
    ("members", "classes", "top"),
    [(1, 2, 4), (2, 2, 3), (3, 2, 2), (4, 2, 1), (3, 3, 1), (3, 4, 1)],
)
@pytest.mark.parametrize("touches", [1, 2, 3])
def test_every_edit_of_every_small_vote(members: int, classes: int, top: int, touches: int) -> None:
    """Sound, 1-Lipschitz, labels that turn only at 0: over all votes and all ways to change
    ``touches`` members.
    """
    joined = edits(members, classes, top, min(touches, members))
    vote = certified_vote(*tables(members, classes, top), classes, touches=touches)
    away = edits_to_another(vote.prediction, joined)
    assert (away > vote.distance).all()
    assert vote.distance.max() > 0
    if touches <= members:
        assert (away == vote.distance + 1).any()  # and not by much
    assert torn(vote, joined) == 0


@pytest.mark.parametrize(
    ("members", "classes", "top"), [(1, 2, 6), (2, 2, 4), (3, 2, 2), (4, 2, 1), (3, 3, 1)]
)
def test_every_replacement_of_every_small_vote(members: int, classes: int, top: int) -> None:
    """Distances that count single edits: a replacement is two of them, in two shards or in one,
    and nothing is lost.
    """
    joined = one_after_another(edits(members, classes, top, 1), (classes * (top + 1)) ** members)
    vote = certified_vote(*tables(members, classes, top), classes, touches=2)
    away = edits_to_another(vote.prediction, joined)
    assert vote.distance.tolist() == (away - 1).tolist()
    assert vote.distance.max() > 0
    assert torn(vote, joined) == 0


@pytest.mark.parametrize(
    ("members", "classes", "top"), [(2, 2, 3), (3, 2, 2), (4, 2, 1), (3, 3, 1)]
)
def test_counting_one_member_where_an_edit_changes_two_breaks(
    members: int, classes: int, top: int
) -> None:
    joined = edits(members, classes, top, touches=2)
    vote = certified_vote(*tables(members, classes, top), classes, touches=1)
    assert (edits_to_another(vote.prediction, joined) <= vote.distance).any()
    assert torn(vote, joined) > 0


def test_the_longest_distances_of_the_largest_ensemble() -> None:
    """10,000 members at the cap: the price of a vote is that of whole numbers, far from the end
    of int64.
    """
    labels = np.zeros((10_000, 2), dtype=int)
    distances = np.full((10_000, 2), MAX_STABLE_DISTANCE)
    labels[:4000, 1] = 1
    for touches in (1, 2):
        vote = certified_vote(labels, distances, touches=touches)
        assert vote.distance.tolist() == [
            -(-m * (MAX_STABLE_DISTANCE + 1) // touches) - 1 for m in (5001, 1001)
        ]
    with pytest.raises(ConfigError, match=str(MAX_STABLE_DISTANCE)):
        certified_vote(labels, distances + 1, touches=1)


def test_touches_must_be_said() -> None:
    labels = np.zeros((2, 1), dtype=int)
    refused(
        (TypeError, "touches", lambda: certified_vote(labels, labels)),
        (
            ConfigError,
            r"touches=0\b.*at least 1\b",
            lambda: certified_vote(labels, labels, touches=0),
        ),
    )


def test_published_example() -> None:
    """Votes (1, 1, 0) at distances (5, 5, 0); the third member turns: its distance jumps from 0
    to 5, ours from 5 to 11.
    """
    distances = np.array([[5], [5], [0]])
    before = np.array([[1], [1], [0]])
    after = np.array([[1], [1], [1]])
    assert published_vote(before, distances).distance.item() == 0
    assert published_vote(after, distances).distance.item() == 5
    assert certified_vote(before, distances, touches=1).distance.item() == 5
    assert certified_vote(after, distances, touches=1).distance.item() == 6


def test_one_member_is_itself() -> None:
    labels, distances = ensembles(1, 4, 200, seed=2)
    vote = certified_vote(labels, distances, 4, touches=1)
    assert (vote.prediction == labels[0]).all()
    assert (vote.distance == distances[0]).all()


@pytest.mark.parametrize(
    ("labels", "distances", "match"),
    [
        (np.zeros((2, 3), int), np.zeros((3, 3), int), "members, queries"),
        (np.zeros(3, int), np.zeros(3, int), "members, queries"),
        (np.zeros((0, 3), int), np.zeros((0, 3), int), "at least one member"),
        (np.zeros((2, 3)), np.zeros((2, 3), int), "integers"),
        (np.zeros((2, 3), int), np.full((2, 3), np.nan), "integers"),
        (np.full((2, 3), 2), np.zeros((2, 3), int), r"labels .*between 0 and 1\b"),
        (np.zeros((2, 3), int), np.full((2, 3), -1), "stable distances"),
    ],
)
def test_bad_input(labels: np.ndarray, distances: np.ndarray, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        certified_vote(labels, distances, touches=1)


# -- noise on the counts of several classes


def law(counts: tuple[int, ...], rate: float) -> np.ndarray:
    """P(each class is the argmax) of counts plus two-sided geometric noise, ties to the smaller,
    by every value of it.
    """
    reach = np.arange(-int(30 / rate) - max(counts), int(30 / rate) + max(counts) + 1)
    mass = np.stack([np.exp(-rate * abs(reach - count)) * np.tanh(rate / 2) for count in counts])
    upto = mass.cumsum(axis=1)
    below = upto - mass
    parts = [
        mass[c]
        * np.prod([below[r] if r < c else upto[r] for r in range(len(counts)) if r != c], axis=0)
        for c in range(len(counts))
    ]
    return np.stack(parts).sum(axis=1)


def moved(counts: tuple[int, ...], votes: int) -> set[tuple[int, ...]]:
    """All counts that so many changed votes lead to."""
    found = {counts}
    for _ in range(votes):
        found |= {
            tuple(n - (c == a) + (c == b) for c, n in enumerate(one))
            for one in found
            for a, b in product(range(len(one)), repeat=2)
            if one[a]
        }
    return found


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("moves", "eps"), [(1, 0.5), (1, 2.0), (2, 0.5), (2, 2.0)])
def test_noisy_counts_of_several_classes_are_private_and_drawn_as_they_say(
    moves: int, eps: float
) -> None:
    """Every event of the argmax, between all counts of five voters; the frequencies are those of
    that noise.
    """
    mechanism = NoisyArgmax(eps=eps, classes=3).for_changed_votes(moves)
    everyone = [counts for counts in product(range(6), repeat=3) if sum(counts) == 5]
    laws = {counts: law(counts, eps / (2 * moves)) for counts in everyone}
    losses = [
        np.log(laws[one] / laws[other]).max() for one in everyone for other in moved(one, moves)
    ]
    assert 0.5 * eps < max(losses) <= eps * (1 + 1e-9)
    counts = np.repeat([(3, 1, 1), (2, 2, 1), (0, 1, 4)], 400, axis=0)
    released = mechanism.release(counts.argmax(axis=1), counts, SeededRandomness(1))
    for each in np.unique(counts, axis=0):
        seen = np.bincount(released[(counts == each).all(axis=1)], minlength=3) / 400
        assert abs(seen - laws[tuple(each.tolist())]).max() < 5 * 0.5 / np.sqrt(400)
    for label in range(3):
        right = np.array([laws[tuple(each)][label] for each in everyone]).mean()
        labels = np.full(len(everyone), label)
        assert mechanism.expected_accuracy(labels, np.array(everyone), labels) == pytest.approx(
            right, abs=1e-9
        )


class _Silent(NoisyArgmax):
    """No more noise than its table needs: no name of its own."""

    def _requested_entry(self, distance: int) -> int:
        return 0


class _SilentGaussian(GaussianArgmax):
    """The same."""

    def _requested_entry(self, distance: int) -> int:
        return 0


@pytest.mark.parametrize("kind", [_Silent, _SilentGaussian], ids=lambda kind: kind.name)
def test_a_table_covers_two_votes(kind: type[NoisyArgmax] | type[GaussianArgmax]) -> None:
    """Of two classes: two votes that change lose what is claimed, though formulas ask for no
    noise at all.
    """
    loss = np.log if kind is _Silent else lambda p: -ndtri(1 - p)
    mechanism = kind.with_guarantee(
        PureDP(0.5) if kind is _Silent else GaussianDP(0.5)
    ).for_changed_votes(2)
    for odd in (0, 1):
        ones = [float(mechanism.exact_flip(gap)) for gap in range(odd, 40, 2)]  # of the wrong label
        assert max(loss(a) - loss(b) for a, b in zip(ones, ones[2:], strict=False)) <= 0.5 * (
            1 + 1e-9
        )
        assert max(loss(a) - loss(b) for a, b in zip(ones, ones[2:], strict=False)) > 0.49


@pytest.mark.sampled(2)
@pytest.mark.parametrize("moves", [1, 2])
def test_gaussian_noise_on_counts_of_several_classes(moves: int) -> None:
    """As long as m changed votes are in l2, over mu; two of three classes far ahead are those of
    two.
    """
    mechanism = GaussianArgmax(mu=0.5, classes=3).for_changed_votes(moves)
    farthest = max(np.linalg.norm(np.subtract(one, (4, 4, 4))) for one in moved((4, 4, 4), moves))
    assert farthest / 0.5 <= mechanism._sigma < farthest / 0.5 * (1 + 1e-12)
    counts = np.tile([200, 203, 0], (500, 1))
    ones = (mechanism.release(counts.argmax(axis=1), counts, SeededRandomness(2)) == 1).mean()
    two = 1 - GaussianArgmax(mu=0.5).for_changed_votes(moves).flip_probability(np.array([3])).item()
    assert abs(ones - two) < 5 * 0.5 / np.sqrt(500)
    labels = np.ones(500, dtype=int)
    assert mechanism.expected_accuracy(labels, counts, labels) == pytest.approx(two, abs=1e-6)


def test_the_noise_of_many_queries_is_integrated_closely() -> None:
    """At scales whose values are too many to list."""
    mechanism = NoisyArgmax(eps=0.002, classes=3)
    counts = np.array([[700, 200, 100], [400, 500, 100]])
    exact = np.array([law(tuple(each), 0.001)[0] for each in counts.tolist()]).mean()
    labels = np.zeros(2, dtype=int)
    assert mechanism.expected_accuracy(labels, counts, labels) == pytest.approx(exact, abs=1e-3)


@pytest.mark.parametrize(
    "counts", [np.zeros((2, 2), int), np.zeros(2, int), np.zeros((2, 3)), np.full((2, 3), -1)]
)
def test_what_are_no_counts_of_three_classes_is_refused(counts: np.ndarray) -> None:
    with pytest.raises(ConfigError, match=r"\(2, 3\)"):
        NoisyArgmax(eps=1.0, classes=3).release(np.zeros(2, int), counts, SeededRandomness(0))
