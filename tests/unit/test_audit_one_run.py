"""Audits in one run: the bounds against every guesser of small mechanisms, and against canaries
that conspire.
"""

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.optimize import linprog
from scipy.special import expit, ndtri
from scipy.stats import binom, norm

from agt.numeric import gaussian_delta
from agt_audit import one_run as bounds
from agt_audit.one_run import BOUNDS, one_run_epsilon, planned_guesses, right_guesses

Table = np.ndarray  # [2^m, outputs]: what a mechanism gives out, by the coins


def coins(m: int) -> np.ndarray:
    """[2^m, m] bool."""
    return np.array(list(itertools.product((False, True), repeat=m)))


def leak(table: Table, epsilon: float) -> float:
    """The least delta at which the mechanism is (epsilon, delta)-DP: every neighbour asked."""
    m = int(math.log2(len(table)))
    pairs = ((u, u ^ 1 << i) for u in range(len(table)) for i in range(m))
    return float(
        max(np.maximum(table[u] - math.exp(epsilon) * table[w], 0).sum() for u, w in pairs)
    )


def best_guesser(table: Table, guesses: int, right: int) -> float:
    """P[C >= right] of the guesser who is best at just that: every answer to every output, any
    coins left out.
    """
    all_coins = coins(int(math.log2(len(table))))
    answers = [
        a
        for a in itertools.product((0, 1, None), repeat=all_coins.shape[1])
        if sum(x is not None for x in a) == guesses
    ]
    hit = np.array(
        [
            [
                sum(x == bool(c) for x, c in zip(a, u, strict=True) if x is not None)
                for u in all_coins
            ]
            for a in answers
        ]
    )
    return float(((hit >= right) @ table).max(axis=0).sum() / len(table))


def randomized_response(m: int, epsilon: float) -> Table:
    wrong = (coins(m)[:, None] != coins(m)[None]).sum(axis=2)
    return expit(epsilon) ** (m - wrong) * expit(-epsilon) ** wrong


def correlated(m: int) -> Table:
    """The number of ones with Gaussian noise, rounded: all canaries in one dimension."""
    edges = np.linspace(-3, m + 3, 24)
    at = norm.cdf((edges[None] - coins(m).sum(axis=1)[:, None]) / 0.8)
    return np.diff(np.hstack([np.zeros((2**m, 1)), at, np.ones((2**m, 1))]))


def mechanisms(m: int) -> Iterator[Table]:
    rng = np.random.default_rng(m)
    response = randomized_response(m, 1.0)
    told = np.eye(2**m)
    yield from (response, correlated(m))
    yield np.hstack([0.9 * response, 0.1 * told])  # now and then all is told
    # one level for all canaries
    yield np.hstack([0.5 * randomized_response(m, 0.1), 0.5 * randomized_response(m, 2.0)])
    yield from (rng.dirichlet(np.full(6, 0.7), size=2**m) for _ in range(4))


@pytest.mark.parametrize("m", [2, 3])
def test_no_guesser_of_any_small_mechanism_beats_the_bounds(m: int) -> None:
    for table, epsilon in itertools.product(mechanisms(m), (0.0, 0.7, 1.5)):
        delta = leak(table, epsilon)
        for guesses in range(1, m + 1):
            for right in range(1, guesses + 1):
                truth = best_guesser(table, guesses, right)
                assert truth <= bounds.exact(right, guesses, m, epsilon, delta) + 1e-12


def symmetric(law: np.ndarray, m: int) -> Table:
    """Of r of m canaries by chance, C ~ law guessed rightly, chosen by chance: its guesses (0,
    1, and 2: left out).
    """
    r = len(law) - 1
    outputs = np.array(
        [o for o in itertools.product((0, 1, 2), repeat=m) if sum(x < 2 for x in o) == r]
    )
    hits = (outputs[None] == coins(m)[:, None]).sum(axis=2)
    return (law / [math.comb(r, c) for c in range(r + 1)])[hits] / math.comb(m, r)


@pytest.mark.parametrize(("right", "guesses", "m"), [(4, 5, 5), (3, 5, 5), (2, 2, 5), (3, 3, 4)])
def test_the_exact_bound_is_attained_and_nothing_less_would_hold(
    right: int, guesses: int, m: int
) -> None:
    epsilon = 0.8
    delta = 0.02
    law = binom.pmf(np.arange(guesses + 1), guesses, expit(epsilon))
    share = m * delta * law[right:].sum() / (right * law[right])
    law = (1 - share) * law + share * np.where(np.arange(guesses + 1) >= right, law, 0) / law[
        right:
    ].sum()
    assert leak(symmetric(law, m), epsilon) == pytest.approx(delta)
    truth = law[right:].sum()
    assert bounds.exact(right, guesses, m, epsilon, delta) == pytest.approx(truth)
    for broken in (0.0, delta * (m - 1) / m):  # delta left out, or counted for all canaries but one
        assert bounds.exact(right, guesses, m, epsilon, broken) < truth - 1e-5


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_the_bounds_stand_in_order(data: st.DataObject) -> None:
    m = data.draw(st.integers(1, 5000))
    guesses = data.draw(st.integers(1, m))
    right = data.draw(st.integers(0, guesses))
    delta = data.draw(st.sampled_from([1e-9, 1e-5, 1e-3]))
    found = {name: one_run_epsilon(right, guesses, m, delta, 0.95, name) for name in BOUNDS}
    # all right, and e^eps guesses to each wrong one
    assert found["exact"] <= math.log(guesses / 0.05) + 1e-5
    if right:
        assert all(
            found[name] >= one_run_epsilon(right - 1, guesses, m, delta, 0.95, name) - 1e-5
            for name in BOUNDS
        )


# -- curves
# --------------------------------------------------------------------------------------------------


def mu_of(law: np.ndarray, m: int) -> float:
    """The least mu for which ``symmetric(law, m)`` is mu-GDP: by all tests of likelihood ratios."""
    r = len(law) - 1
    c = np.arange(1, len(law))
    hit = c * law[1:] / m
    miss = (r - c + 1) * law[:-1] / m
    p = np.append(np.concatenate([hit, miss]), 1 - r / m)
    q = np.append(np.concatenate([miss, hit]), 1 - r / m)
    order = np.argsort(-np.divide(p, q, out=np.full_like(p, np.inf), where=q > 0))
    power = np.cumsum(p[order])[:-1]
    alarms = np.cumsum(q[order])[:-1]
    inside = (power > 1e-12) & (alarms < 1 - 1e-12)
    return float((ndtri(power[inside]) - ndtri(alarms[inside])).max())


def worst_law(right: int, r: int, m: int, mu: float) -> np.ndarray:
    """[r + 1] the law of C with the greatest P[C >= right] that fifteen tangents of G_mu allow:
    a linear program.
    """
    tangents = np.linspace(0, 5 * mu + mu * mu, 15)
    c = np.arange(1, r + 1)
    rows = []
    limits = []
    for k, epsilon in enumerate(tangents):
        block = np.zeros((r + 1, r + 1 + 15 * r))
        block[c - 1, c], block[c - 1, c - 1] = c, -math.exp(epsilon) * (r - c + 1)
        block[c - 1, r + k * r + c] = -1
        block[r, r + 1 + k * r : r + 1 + (k + 1) * r] = 1
        rows.append(block)
        limits.append(np.append(np.zeros(r), m * gaussian_delta(float(epsilon), mu)))
    total = np.append(np.ones(r + 1), np.zeros(15 * r))[None]
    aim = -((np.arange(r + 1 + 15 * r) >= right) & (np.arange(r + 1 + 15 * r) <= r)).astype(float)
    found = linprog(aim, np.vstack(rows), np.concatenate(limits), total, [1.0], method="highs")
    return np.maximum(found.x[: r + 1], 0) / np.maximum(found.x[: r + 1], 0).sum()


@pytest.mark.parametrize(("right", "r", "m"), [(9, 9, 9), (11, 12, 12), (5, 5, 12), (16, 20, 20)])
def test_the_worst_of_all_laws_does_not_beat_the_bound_for_gdp_and_comes_near_it(
    right: int, r: int, m: int
) -> None:
    law = worst_law(right, r, m, 1.0)
    mu = mu_of(law, m)
    truth = float(law[right:].sum())
    assert not bounds.refuses(right, r, m, mu, truth * (1 - 1e-9))
    assert bounds.refuses(right, r, m, mu, 1.5 * truth)


# -- guesses and what is made of them
# ------------------------------------------------------------------------------------


def test_the_surest_are_guessed() -> None:
    scores = np.array([3.0, -1.0, 0.5, 9.0, -4.0])
    inside = np.array([True, False, True, False, True])
    assert right_guesses(scores, inside, 2, 1) == 1
    assert right_guesses(scores, inside, 0, 2) == 1


def test_equal_scores_tell_nothing_whatever_the_order_of_canaries() -> None:
    inside = np.arange(1000) >= 500  # a place would tell all
    assert abs(right_guesses(np.zeros(1000), inside, 300, 300) - 300) < 60
    assert abs(right_guesses(np.zeros(1000), ~inside, 300, 300) - 300) < 60


def test_a_gaussian_curve_needs_a_delta() -> None:
    with pytest.raises(ValueError, match="delta"):
        one_run_epsilon(9, 10, 100, 0.0, 0.95, "gdp")


def test_nothing_is_shown_by_guesses_no_better_than_chance() -> None:
    assert [one_run_epsilon(50, 100, 100, 1e-5, 0.95, bound) for bound in BOUNDS] == [0.0] * 2
    assert [one_run_epsilon(0, 1, 1, 1e-5, 0.95, bound) for bound in BOUNDS] == [0.0] * 2


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize(("canaries", "epsilon"), [(20, 1.0), (100, 2.0), (1000, 4.0)])
def test_a_plan_can_contradict_the_claim_where_any_number_can(
    bound: str, canaries: int, epsilon: float
) -> None:
    planned = planned_guesses(canaries, epsilon, 1e-5, 0.95, bound)
    assert one_run_epsilon(planned, planned, canaries, 1e-5, 0.95, bound) > epsilon


def test_more_canaries_guessed_as_well_show_more() -> None:
    """Also where the probability of one count is below what a double holds."""
    for share in (0.9, 1.0):
        counts = [1000, 4000, 16_384, 100_000]
        shown = [one_run_epsilon(int(share * m), m, m, 1e-5, 0.95, "exact") for m in counts]
        assert shown == sorted(shown)
        assert shown[-1] > 2
