"""Margin votes: sound, 1-Lipschitz between neighbouring ensembles, and the best allocation of edits
over members.

A member is a walker on a line whose places have margins, any numbers one after another; an edit
moves one walker by a place. So all datasets there are can be listed, with the edits between them,
and every claim is held against all of them.
"""

from collections.abc import Callable
from itertools import combinations, product

import numpy as np
import pytest
from checks import Edits, edits_to_another, one_after_another, torn
from synthetic import refused

from agt.certificates import margin_votes, margin_votes_compiled
from agt.certificates.envelopes import MAX_MARGIN_EDITS, Envelope
from agt.certificates.margin_votes import (
    MARGIN_QUANTA,
    margin_labels,
    margin_vote,
    quantise_margins,
)
from agt.certificates.votes import Vote, certified_vote
from agt.errors import ConfigError, UnsoundError

CLIP = 4.0
Rule = Callable[[list[Envelope], float, int], Vote]


def as_it_is(members: list[Envelope], clip: float, touches: int) -> Vote:
    return margin_vote(members, clip, touches=touches)


# -- walkers


def tables(members: int, places: int, seed: int) -> np.ndarray:
    """[T, P] margins of each member's places: falls that are neither convex nor concave, ties,
    and some beyond the clip.
    """
    steps = np.random.default_rng(seed).choice([-1, 0, 0, 1, 2, 3], size=(members, places))
    walks = steps.cumsum(axis=1)
    return (walks - np.median(walks, axis=1, keepdims=True)).astype(np.float64)


def states(members: int, places: int) -> np.ndarray:
    """[T, P^T]: every place of every walker."""
    return np.array(list(product(range(places), repeat=members))).T


def envelopes(margins: np.ndarray, at: np.ndarray) -> list[Envelope]:
    """Of each member in each state, exactly: the least and the greatest margin within j places."""
    count, places = margins.shape
    ks = tuple(range(1, places))
    known = []
    for member in range(count):
        within = [[margins[member, max(x - j, 0) : x + j + 1] for x in range(places)] for j in ks]
        lower, upper = (
            np.array([[end(part) for part in row] for row in within]) for end in (min, max)
        )
        known.append(
            Envelope(ks, margins[member, at[member]], lower[:, at[member]], upper[:, at[member]])
        )
    return known


def edits(members: int, places: int, touches: int) -> Edits:
    """For each way to choose members and where they go."""
    at = states(members, places)
    base = places ** np.arange(members)[::-1, None]
    joined = []
    for chosen in combinations(range(members), touches):
        for moves in product((-1, 0, 1), repeat=touches):
            new = at.copy()
            new[list(chosen)] += np.array(moves)[:, None]
            possible = np.flatnonzero(((new >= 0) & (new < places)).all(axis=0))
            joined.append((possible, (base * new).sum(axis=0)[possible]))
    return joined


def violations(
    rule: Rule, touches: int = 1, members: int = 3, places: int = 9, seeds: int = 3
) -> tuple[int, int]:
    """(labels that fewer edits turn than the distance says, edits that tear labels or distances)
    over all states.
    """
    unsound = tears = 0
    joined = edits(members, places, touches)
    at = states(members, places)
    for seed in range(seeds):
        vote = rule(envelopes(tables(members, places, seed), at), CLIP, touches)
        unsound += int((edits_to_another(vote.prediction, joined) <= vote.distance).sum())
        tears += torn(vote, joined)
    return unsound, tears


@pytest.mark.parametrize(("members", "places"), [(1, 15), (2, 12), (3, 7)])
@pytest.mark.parametrize("touches", [1, 2])
def test_every_edit_of_every_state(members: int, places: int, touches: int) -> None:
    joined = edits(members, places, min(touches, members))
    at = states(members, places)
    for seed in range(3):
        vote = margin_vote(envelopes(tables(members, places, seed), at), CLIP, touches=touches)
        least = edits_to_another(vote.prediction, joined)
        assert torn(vote, joined) == 0
        assert (least > vote.distance).all()
        assert vote.distance[least < 99].max() > 0
        if touches == 1:  # and nothing is given away: walkers can go where the envelopes say
            assert (vote.distance[least < 99] == least[least < 99] - 1).all()
            assert (vote.distance[least == 99] == MAX_MARGIN_EDITS).all() or not (least == 99).any()


@pytest.mark.parametrize(("members", "places"), [(1, 15), (2, 9), (3, 5)])
def test_every_replacement_of_every_state(members: int, places: int) -> None:
    """Envelopes of single edits: a replacement is two of them, of two members or of one, and
    nothing is lost.
    """
    joined = one_after_another(edits(members, places, 1), places**members)
    for seed in range(3):
        vote = margin_vote(
            envelopes(tables(members, places, seed), states(members, places)), CLIP, touches=2
        )
        least = edits_to_another(vote.prediction, joined)
        assert torn(vote, joined) == 0
        assert vote.distance[least < 99].tolist() == (least[least < 99] - 1).tolist()
        assert vote.distance[least < 99].max() > 0


def test_one_member_is_itself() -> None:
    margins = tables(1, 15, 4)
    vote = margin_vote(envelopes(margins, states(1, 15)), CLIP, touches=1)
    assert vote.prediction.tolist() == (margins[0] > 0).astype(int).tolist()
    others = [np.flatnonzero((margins[0] > 0) != (margins[0, x] > 0)) for x in range(15)]
    assert vote.distance.tolist() == [abs(other - x).min() - 1 for x, other in enumerate(others)]


# -- the best allocation


def ensembles(members: int, ks: tuple[int, ...], n: int, seed: int) -> list[Envelope]:
    """Members whose bounds fall by anything at each k, also by nothing and beyond the clip."""
    draw = np.random.default_rng(seed)
    lean = draw.normal(size=n)
    known = []
    for _ in range(members):
        margin = lean * 2 + draw.normal(size=n)
        falls = draw.exponential(size=(2, len(ks), n)) * draw.integers(0, 2, (2, len(ks), n))
        lower = margin - falls[0].cumsum(axis=0)
        upper = margin + falls[1].cumsum(axis=0)
        upper[-1, ::7] = np.inf
        known.append(Envelope(ks, margin, lower, upper))
    return known


def brute_force(members: list[Envelope], query: int, most: int) -> int:
    """How many edits the sum withstands, by trying every allocation of up to ``most``."""
    rounds = [quantise_margins(np.array([m.margin[query]]), CLIP)[0] for m in members]
    sign, least = (1, 1) if sum(rounds) > 0 else (-1, 0)
    left = []
    for one, m in zip(rounds, members, strict=True):
        bounds = quantise_margins((m.lower if sign > 0 else m.upper)[:, query], CLIP)
        left.append([sign * int(one), *(sign * bounds).tolist()] + [-MARGIN_QUANTA] * most)
    worst = [0] * (most + 1)
    for allocation in product(range(most + 1), repeat=len(members)):
        if sum(allocation) <= most:
            total = sum(each[j] for each, j in zip(left, allocation, strict=True))
            worst[sum(allocation)] = min(worst[sum(allocation)], total - least)
    return next((b for b in range(most + 1) if worst[b] < 0), most + 1) - 1


@pytest.mark.parametrize(("members", "longest"), [(1, 6), (2, 5), (3, 4), (4, 2)])
def test_against_every_allocation(members: int, longest: int) -> None:
    n = 60 // members
    known = ensembles(members, tuple(range(1, longest + 1)), n, seed=members)
    for touches in (1, 2):
        vote = margin_vote(known, CLIP, touches=touches)
        most = (longest + 1) * members
        assert vote.distance.tolist() == [brute_force(known, q, most) // touches for q in range(n)]
        assert len(set(vote.distance.tolist())) > 2


def test_longer_than_what_is_looked_at_first_and_at_all() -> None:
    """64 edits are tried, then 256 and all: wherever the sum gives way."""
    for slope in (1.0, 0.05, 0.01, 1e-3):
        ks = tuple(range(1, MAX_MARGIN_EDITS + 1))
        walk = np.arange(1, MAX_MARGIN_EDITS + 1)[:, None] * slope
        member = Envelope(
            ks, np.array([2.0, -2.0]), np.array([2.0, -2.0]) - walk, np.array([2.0, -2.0]) + walk
        )
        vote = margin_vote([member] * 3, CLIP, touches=1)
        exact = np.ceil(6 / slope) - 1
        assert vote.prediction.tolist() == [1, 0]
        assert (abs(vote.distance - min(exact, MAX_MARGIN_EDITS)) <= 1).all()
        assert (
            margin_vote([member] * 3, CLIP, touches=2).distance.tolist()
            == (vote.distance // 2).tolist()
        )


def test_a_grid_with_gaps_counts_the_bound_of_the_next_k() -> None:
    margin = np.array([3.0])
    sparse = Envelope((2, 5), margin, np.array([[2.0], [1.0]]), np.array([[4.0], [5.0]]))
    each = sparse.at_every_k(MAX_MARGIN_EDITS)
    assert each.ks == (1, 2, 3, 4, 5)
    assert each.lower[:, 0].tolist() == [2.0, 2.0, 1.0, 1.0, 1.0]
    assert sparse.at_every_k(3).ks == (1, 2, 3)
    assert margin_vote([each], CLIP, touches=1).distance.item() == 5, "in records"
    assert margin_vote([sparse], CLIP, touches=1).distance.item() == 2, "in steps"


def test_labels_are_the_sign_of_the_sum_and_ties_are_0() -> None:
    margins = [np.array([5.0, 1.0, 0.0, np.inf]), np.array([-1.0, -1.0, 0.0, -9.0])]
    labels, mean = margin_labels(margins, CLIP)
    assert labels.tolist() == [1, 0, 0, 0]
    assert mean.tolist() == [(4 - 1) / 8, 0, 0, 0]
    assert (
        quantise_margins(-margins[0], CLIP).tolist()
        == (-quantise_margins(margins[0], CLIP)).tolist()
    )


def test_sums_of_the_largest_ensemble_are_exact() -> None:
    """10,000 members at the clip, in 32 bits: every edit takes all of one away."""
    margin = np.array([9.0])
    vote = margin_vote(
        [Envelope((1,), margin, -margin[None] * 2, margin[None])] * 10_000, CLIP, touches=1
    )
    assert vote.distance.item() == MAX_MARGIN_EDITS
    vote = margin_vote(
        [Envelope((), margin, np.empty((0, 1)), np.empty((0, 1)))] * 1001, CLIP, touches=1
    )
    assert vote.distance.item() == 500


def test_what_fits_together_is_checked() -> None:
    margin = np.zeros(2)
    one = Envelope((1,), margin, margin[None] - 1, margin[None] + 1)
    refused(
        (
            ConfigError,
            "the same kgrid",
            lambda: margin_vote(
                [one, Envelope((2,), margin, one.lower, one.upper)], CLIP, touches=1
            ),
        ),
        (ConfigError, "the same kgrid", lambda: margin_vote([], CLIP, touches=1)),
        (
            UnsoundError,
            "outside of the bounds that were computed",
            lambda: Envelope((1,), margin, margin[None] + 1, margin[None] + 2),
        ),
        (
            UnsoundError,
            "NaN",
            lambda: Envelope((1,), margin * np.nan, margin[None] - 1, margin[None] + 2),
        ),
        (
            UnsoundError,
            r"\(1, 2\).*\(2,\)",
            lambda: Envelope((1,), margin, margin - 1, margin + 1),
        ),
    )


# -- broken on purpose


def labels_vote(members: list[Envelope], touches: int) -> Vote:
    """The vote of labels from the same envelopes."""
    labels = np.stack([(m.margin > 0) * 1 for m in members])
    held = [np.where(m.margin > 0, m.lower > 0, m.upper <= 0) for m in members]
    distances = np.stack([np.logical_and.accumulate(h, axis=0).sum(axis=0) for h in held])
    return certified_vote(labels, distances, touches=touches)


def greedy(members: list[Envelope], clip: float, touches: int) -> Vote:
    """Each edit where it takes most at once: right where falls are concave, wrong where a member
    resists at first.
    """
    label, _ = margin_labels([m.margin for m in members], clip)
    distance = np.zeros(len(label), dtype=np.int64)
    for q, y in enumerate(label):
        left = [
            [
                *(
                    quantise_margins(
                        np.array([m.margin[q], *(m.lower if y else -m.upper)[:, q]]), clip
                    )
                ),
                -MARGIN_QUANTA,
                -MARGIN_QUANTA,
            ]
            for m in members
        ]
        for each in left:
            each[0] *= 1 if y else -1
        at = [0] * len(left)
        b = -1
        while (
            sum(int(each[j]) for each, j in zip(left, at, strict=True)) >= y
            and b < MAX_MARGIN_EDITS
        ):
            b += 1
            falls = [
                int(each[j] - each[min(j + 1, len(each) - 1)])
                for each, j in zip(left, at, strict=True)
            ]
            chosen = int(np.argmax(falls))
            at[chosen] = min(at[chosen] + 1, len(left[chosen]) - 1)
        distance[q] = max(b, 0)
    return Vote(label, distance)


def the_other_votes_distance(members: list[Envelope], clip: float, touches: int) -> Vote:
    return Vote(
        margin_vote(members, clip, touches=touches).prediction,
        labels_vote(members, touches).distance,
    )


def one_member_counted(members: list[Envelope], clip: float, touches: int) -> Vote:
    return margin_vote(members, clip, touches=1)


def unclipped_distance(members: list[Envelope], clip: float, touches: int) -> Vote:
    """Labels of clipped margins, distances of margins that are not."""
    clipped, whole = (margin_vote(members, each, touches=touches) for each in (clip, 99.0))
    return Vote(clipped.prediction, whole.distance)


def larger(members: list[Envelope], clip: float, touches: int) -> Vote:
    """Where both votes agree the larger distance; else the label whose distance is."""
    a = labels_vote(members, touches)
    b = margin_vote(members, clip, touches=touches)
    mine = a.distance > b.distance
    agree = a.prediction == b.prediction
    distance = np.where(
        agree, np.maximum(a.distance, b.distance), np.where(mine, a.distance, b.distance)
    )
    return Vote(np.where(mine, a.prediction, b.prediction), distance)


def test_the_check_of_all_states_passes_what_is_right() -> None:
    assert violations(as_it_is) == (0, 0)
    assert violations(as_it_is, touches=2, seeds=1) == (0, 0)
    assert violations(lambda members, clip, touches: labels_vote(members, touches)) == (0, 0)


@pytest.mark.parametrize(
    ("rule", "touches"),
    [
        (greedy, 1),
        (the_other_votes_distance, 1),
        (unclipped_distance, 1),
        (one_member_counted, 2),
        (larger, 1),
    ],
)
def test_what_is_wrong_is_caught(rule: Rule, touches: int) -> None:
    unsound, tears = violations(rule, touches)
    assert unsound > 0
    assert tears > 0


def test_ties_that_do_not_lose_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum of 0 turns a 1: as it stands, whichever the label is, distances are too long."""
    real = margin_votes_compiled.count_survived_edits
    monkeypatch.setattr(
        margin_votes_compiled,
        "count_survived_edits",
        lambda left, least, most, edits: real(left, 0 * least, most, edits),
    )
    unsound, tears = violations(as_it_is)
    assert unsound > 0
    assert tears > 0


def test_rounding_that_is_not_monotone_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut at the clip to 0, as an outlier would be thrown away."""
    real = margin_votes.quantise_margins
    monkeypatch.setattr(
        margin_votes,
        "quantise_margins",
        lambda m, clip: np.where(abs(m) > clip, 0, real(m, clip)).astype(np.int32),
    )
    assert sum(violations(as_it_is)) > 0
