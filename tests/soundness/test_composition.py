"""Mechanisms and budgets: against linear programs, adaptive adversaries, and every order of outputs."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.special import logsumexp, ndtr
from scipy.stats import binom, chisquare, norm
from synthetic import refused

from agt.errors import ConfigError
from agt.mechanisms.composition import (
    Allowance,
    ApproximateDP,
    Cost,
    GaussianDP,
    Guarantee,
    Lot,
    PureDP,
    delta_of,
    squared_mu,
)
from agt.mechanisms.optimal import GaussianMargin, RandomizedResponse
from agt.mechanisms.published import ProposeTestRelease, SmoothCauchy
from agt.mechanisms.tuning import ORDERS, Trials, TunedWeights, count_right, trial_budget, tuned_eps
from agt.numeric import SeededRandomness, mills_delta

# -- mechanism optimal -------------------------------------------------------------------------------------------------


def best_total(classes: int, k_max: int, levels: list[tuple[float, float]]) -> float:
    """The most that the P(nominal label) of all states (label, L), L = 0..k_max, can sum to.

    Variables: P(o | label, L) and, for every pair of neighbours and level, slacks t_o >= P(o) - exp(eps) P'(o), t_o >= 0,
    whose sum may be delta: the worst event is the set of o where the difference is positive.
    """
    states = [(label, k) for label in range(classes) for k in range(k_max + 1)]
    pairs = [((y, k), (y, k + 1)) for y in range(classes) for k in range(k_max)]
    pairs += [((y, 0), (z, 0)) for y in range(classes) for z in range(y)]
    directed = [
        (a, b, eps, delta) for one, other in pairs for a, b in ((one, other), (other, one)) for eps, delta in levels
    ]
    index = {state: place for place, state in enumerate(states)}
    p, slack = len(states) * classes, len(directed) * classes
    rows, limits = [], []
    for place, (a, b, eps, delta) in enumerate(directed):
        total = np.zeros(p + slack)
        for o in range(classes):
            row = np.zeros(p + slack)
            row[index[a] * classes + o], row[index[b] * classes + o] = 1, -np.exp(eps)
            row[p + place * classes + o] = -1
            total[p + place * classes + o] = 1
            rows.append(row)
            limits.append(0.0)
        rows.append(total)
        limits.append(delta)
    sums = np.zeros((len(states), p + slack))
    gain = np.zeros(p + slack)
    for (label, k), place in index.items():
        sums[place, place * classes : (place + 1) * classes] = 1
        gain[index[label, k] * classes + label] = -1
    found = linprog(gain, A_ub=np.array(rows), b_ub=limits, A_eq=sums, b_eq=np.ones(len(states)), bounds=(0, 1))
    assert found.success
    return float(-found.fun)


@pytest.mark.parametrize(
    ("eps", "delta", "classes", "k_max"),
    [
        (0.1, 0.0, 2, 6),
        (1.0, 0.0, 2, 4),
        (0.02, 0.05, 2, 12),
        (0.3, 0.01, 2, 6),
        (1.5, 0.1, 2, 3),
        (0.2, 0.0, 3, 6),
        (0.4, 0.0, 4, 4),
        (0.3, 0.02, 3, 5),
        (0.1, 0.05, 4, 5),
        (0.05, 0.0, 5, 4),
    ],
)
def test_randomized_response(eps: float, delta: float, classes: int, k_max: int) -> None:
    flip = RandomizedResponse(eps=eps, delta=delta, classes=classes).flip_probability(np.arange(k_max + 1))
    ours = classes * float((1 - flip).sum())
    assert best_total(classes, k_max, [(eps, delta)]) == pytest.approx(ours, abs=1e-7)


def test_what_is_not_optimal_is_found_out() -> None:
    """The same program beats the published mechanisms by far."""
    distance = np.arange(7)
    for mechanism, level in (
        (SmoothCauchy(eps=0.3), (0.3, 0.0)),
        (ProposeTestRelease(eps=0.3, delta=0.01), (0.3, 0.01)),
    ):
        ours = 2 * float((1 - mechanism.flip_probability(distance)).sum())
        assert best_total(2, 6, [level]) > ours + 0.1


@pytest.mark.parametrize("mu", [0.2, 0.8])
def test_gaussian_margin(mu: float) -> None:
    """mu-GDP is (eps, delta(eps))-DP for every eps: with many eps the program comes down to our value."""
    k_max = 5
    guarantee = GaussianDP(mu)
    levels = [(float(eps), delta_of(guarantee, 1, float(eps))) for eps in np.linspace(0, mu * mu * (k_max + 2), 60)]
    ours = 2 * float((1 - GaussianMargin(mu=mu).flip_probability(np.arange(k_max + 1))).sum())
    best = best_total(2, k_max, levels)
    assert ours - 1e-7 <= best <= ours + 1e-3


# -- filter ------------------------------------------------------------------------------------------------------------


BINS = 41
State = tuple[tuple[Lot, ...], Cost]
Rule = Callable[[State, Lot], bool]


def outcomes(lot: Lot) -> np.ndarray:
    """[n, 2]: the probabilities of what one lot says, for both neighbours: the worst mechanism with its guarantee, or, for
    GDP, that in ``BINS`` bins."""
    guarantee, size = lot.guarantee, lot.size
    if isinstance(guarantee, GaussianDP):
        mu = guarantee.mu * math.sqrt(size)
        edges = np.concatenate(([-np.inf], np.linspace(-4, 4 + mu, BINS - 1), [np.inf]))
        return np.diff(np.stack([ndtr(edges - mu), ndtr(edges)], axis=1), axis=0)
    truth = 1 / (1 + math.exp(-guarantee.eps))
    heads = np.arange(size + 1)
    told = np.stack([binom.pmf(heads, size, truth), binom.pmf(heads, size, 1 - truth)], axis=1)
    leak = 1 - (1 - getattr(guarantee, "delta", 0.0)) ** size
    return np.concatenate([(1 - leak) * told, [[leak, 0.0], [0.0, leak]]]) if leak else told


def best(menu: Sequence[Lot], admits: Rule, eps: float, depth: int) -> float:
    """sup of P(S) - e^eps P'(S) over adversaries who choose up to ``depth`` admitted lots of the menu, each by what the
    earlier ones said: at every leaf the event takes what is positive."""
    worth, tables = math.exp(eps), {lot: outcomes(lot) for lot in menu}

    def value(p: float, q: float, state: State, left: int) -> float:
        gains = [max(0.0, p - worth * q)]
        if left and p:
            for lot in menu:
                if admits(state, lot):
                    after = ((*state[0], lot), state[1].plus(lot.cost))
                    gains.append(math.fsum(value(p * a, q * b, after, left - 1) for a, b in tables[lot].tolist()))
        return max(gains)

    return value(1.0, 1.0, ((), Cost()), depth)


def filtered(allowance: Allowance) -> Rule:
    return lambda state, lot: allowance.admits(state[1], lot)


# -- as it is ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Game:
    allowance: Allowance
    menu: tuple[Lot, ...]
    depth: int
    least: float  # of the budget's delta that the best adversary must reach, so that the game says something


def half(allowance: Allowance, parts: int = 2) -> GaussianDP:
    return GaussianDP(allowance.mu / math.sqrt(parts))


WIDE = Allowance(1.0, 0.05, 0.4)
GAMES = {
    "responses": Game(
        Allowance(0.6, 0.1, 0.0), tuple(Lot(PureDP(e), q) for e in (0.1, 0.2, 0.3, 0.6) for q in (1, 2)), 3, 0.4
    ),
    "pure": Game(Allowance(0.6), tuple(Lot(PureDP(e)) for e in (0.1, 0.2, 0.3)), 4, 0.0),
    "leaks and responses": Game(
        WIDE, (Lot(ApproximateDP(0.3, 0.01), 2), Lot(ApproximateDP(0.5, 0.004)), Lot(PureDP(0.4), 2)), 3, 0.3
    ),
    "leaks and Gaussians": Game(WIDE, (Lot(half(WIDE)), Lot(ApproximateDP(1e-9, 0.02)), Lot(PureDP(0.5))), 3, 0.7),
    "basic or Gaussian": Game(WIDE, (Lot(half(WIDE, 3)), Lot(PureDP(0.5)), Lot(ApproximateDP(0.5, 0.01))), 3, 0.3),
}


@pytest.mark.parametrize("name", GAMES)
def test_no_adversary_gets_more_than_the_budget(name: str) -> None:
    game = GAMES[name]
    lost = best(game.menu, filtered(game.allowance), game.allowance.eps, game.depth)
    assert game.least * game.allowance.delta <= lost <= game.allowance.delta + 1e-12


@pytest.mark.parametrize("eps", [0.0, 0.3, 0.8, 1.5])
def test_nor_more_than_the_budget_s_curve(eps: float) -> None:
    for game in GAMES.values():
        assert best(game.menu, filtered(game.allowance), eps, min(game.depth, 3)) <= game.allowance.delta_of(eps) + 1e-12


def test_the_first_lot_by_its_own_total_stays_the_only_one() -> None:
    """1,000 responses that composition.py affords: more than the sums allow, so nothing follows, of any kind."""
    allowance, lot = Allowance(1.0, 1e-5), Lot(PureDP(0.00848), 1000)
    assert not allowance.holds(lot.cost)
    assert allowance.admits(Cost(), lot)
    assert delta_of(lot.guarantee, lot.size, 1.0) <= 1e-5
    for guarantee in (PureDP(1e-15), GaussianDP(1e-15), ApproximateDP(1e-15, 1e-300)):
        assert not allowance.admits(lot.cost, Lot(guarantee))


# -- one lot is as Gaussian as it says -----------------------------------------------------------------------------------


def exceeds(mu: float, eps: float, size: int) -> bool:
    """Whether some test between neighbours beats G_mu on ``size`` randomized responses: every vertex, in 40 digits."""
    with mpmath.workdps(40):
        p = 1 / (1 + mpmath.exp(mpmath.mpf(eps)))
        mass = [mpmath.binomial(size, j) * p**j * (1 - p) ** (size - j) for j in range(size + 1)]
        tail = [mpmath.fsum(mass[j:]) for j in range(size + 2)]
        return any(_quantile(tail[j]) + _quantile(tail[size - j + 1]) > mpmath.mpf(mu) for j in range(1, size + 1))


def _quantile(p: mpmath.mpf) -> mpmath.mpf:
    """-Phi^-1(p), by the smaller of the two tails."""
    if 2 * p > 1:
        return -_quantile(1 - p)
    start = mpmath.sqrt(-2 * mpmath.log(p)) if p < 0.4 else mpmath.mpf(0)
    return mpmath.findroot(lambda z: mpmath.log(mpmath.erfc(z / mpmath.sqrt(2)) / 2) - mpmath.log(p), start)


SIZES = [(0.01, 1), (0.3, 2), (0.1, 7), (1.0, 12), (4.0, 5), (100.0, 3), (0.05, 60)]


@pytest.mark.parametrize(("eps", "size"), SIZES)
def test_a_lot_is_as_gaussian_as_it_says(eps: float, size: int) -> None:
    mu = math.sqrt(squared_mu(eps, size))
    assert not exceeds(mu * (1 + 1e-15), eps, size)
    assert exceeds(mu * (1 - 1e-8), eps, size)


@pytest.mark.parametrize(("eps", "size"), [(0.01, 1), (0.3, 2), (0.1, 7)])
def test_the_limit_for_many_would_be_too_little(eps: float, size: int) -> None:
    assert exceeds(2 * math.sinh(eps / 2) * math.sqrt(size), eps, size)


# -- broken on purpose ---------------------------------------------------------------------------------------------------


def test_one_delta_for_leaks_and_gaussians_is_beaten() -> None:
    """Leaks up to what M has left of delta: after half of M^2 whoever learnt nothing takes leaks, the others Gaussians."""
    eps, delta = 1.0, 1e-3
    whole = Allowance(eps, delta, 0.0)

    def shared(state: State, lot: Lot) -> bool:
        cost = state[1].plus(lot.cost)
        return float(cost.leak) + mills_delta(eps, math.sqrt(cost.square) * (1 - 1e-9)) <= delta

    gaussian = Lot(half(whole))
    leak = Lot(ApproximateDP(1e-15, (delta - mills_delta(eps, gaussian.guarantee.mu)) * (1 - 1e-6)))
    assert best((gaussian, leak), shared, eps, 2) > 1.5 * delta
    assert best((gaussian, leak), filtered(whole), eps, 2) <= delta
    fixed = Allowance(eps, delta, 0.5)
    assert best((gaussian, leak, Lot(half(fixed)), Lot(ApproximateDP(1e-15, delta / 2))), filtered(fixed), eps, 3) <= delta


def test_the_total_of_what_was_chosen_is_beaten() -> None:
    """Kairouz, Oh and Viswanath's total of the lots chosen so far, as if their number had been fixed: no filter."""
    eps, menu = 0.8, tuple(Lot(PureDP(e)) for e in (0.19, 0.51, 0.99))
    small, middle, _ = menu
    delta = fixed_delta((small, middle, middle, middle), eps) * (1 + 1e-12)

    def merged(state: State, lot: Lot) -> bool:
        return fixed_delta((*state[0], lot), eps) <= delta

    assert best(menu, merged, eps, 4) > 1.3 * delta
    assert best(menu, filtered(Allowance(eps, delta, 0.0)), eps, 4) <= delta


def fixed_delta(lots: Sequence[Lot], eps: float) -> float:
    """delta of lots fixed beforehand, exactly: all outcomes."""
    pairs = np.ones((1, 2))
    for lot in lots:
        pairs = (pairs[:, None, :] * outcomes(lot)[None]).reshape(-1, 2)
    return float(np.maximum(0, pairs[:, 0] - math.exp(eps) * pairs[:, 1]).sum())


def test_the_greatest_leak_instead_of_the_sum_is_beaten() -> None:
    allowance, leaky = Allowance(0.5, 0.02, 0.5), Lot(ApproximateDP(1e-3, 0.01))

    def greatest(state: State, lot: Lot) -> bool:
        cost = state[1].plus(lot.cost)
        leak = max(each.cost.leak for each in (*state[0], lot))
        return allowance.holds(Cost(cost.pure, cost.square, leak))

    assert best((leaky,), greatest, 0.5, 4) > allowance.delta
    assert best((leaky,), filtered(allowance), 0.5, 4) <= allowance.delta


def test_a_lot_that_counts_once_is_beaten() -> None:
    """mu^2 of one release for all of the lot."""
    allowance, lot = Allowance(0.5, 0.02, 0.0), Lot(PureDP(0.2), 12)

    def once(state: State, lot: Lot) -> bool:
        single = Lot(lot.guarantee).cost
        return allowance.holds(state[1].plus(single))

    assert not allowance.admits(Cost(), lot)
    assert best((lot,), once, 0.5, 1) > allowance.delta


def test_two_filters_with_a_delta_each_are_not_one() -> None:
    """Basic composition with all of delta for leaks, or Gaussian sums with all of delta."""
    eps, delta = 1.0, 1e-3
    basic, gaussian = Allowance(eps, delta, 1.0), Allowance(eps, delta, 0.0)

    def union(state: State, lot: Lot) -> bool:
        cost = state[1].plus(lot.cost)
        return basic.holds(cost) or gaussian.holds(cost)

    first = Lot(PureDP(0.1))
    rest = math.sqrt(float(gaussian.square - first.cost.square)) * (1 - 1e-9)
    menu = (first, Lot(GaussianDP(rest)), Lot(ApproximateDP(0.1, delta)))
    assert best(menu, union, eps, 2) > 1.05 * delta
    for sound in (basic, gaussian, Allowance(eps, delta, 0.5)):
        assert best(menu, filtered(sound), eps, 2) <= delta * (1 + 1e-12)


# -- what it costs beside exact totals -----------------------------------------------------------------------------------


def guarantees() -> Sequence[Guarantee]:
    return (PureDP(0.02), GaussianDP(0.03), ApproximateDP(0.02, 1e-9))


@pytest.mark.parametrize("guarantee", guarantees(), ids=str)
def test_lots_of_one_kind_are_admitted_almost_as_far_as_if_they_had_been_fixed(guarantee: Guarantee) -> None:
    """Never further; and no more than a tenth less."""
    allowance, spent, count = Allowance(1.0, 1e-5), Cost(), 0
    while fit := allowance.fitting(spent, guarantee, 20):
        spent, count = spent.plus(Lot(guarantee, fit).cost), count + fit
    assert delta_of(guarantee, count, 1.0) <= 1e-5
    assert delta_of(guarantee, math.ceil(count * 1.1), 1.0) > 1e-5
    assert spent.leak <= Decimal("1e-6")


# -- tuning mechanism --------------------------------------------------------------------------------------------------


LAWS = [Trials(mean=m, eta=eta) for m in (1.5, 4.0, 20.0) for eta in (0.0, 0.4, 1.0, None)]
ids = pytest.mark.parametrize("trials", LAWS, ids=lambda t: f"mean {t.mean:g}, eta {t.eta}")


def pmf(trials: Trials, most: int = 3000) -> np.ndarray:
    """[most] P(K = 0), P(K = 1), ..., from the definition of the law."""
    if trials.eta is None:
        logs = [k * math.log(trials.mean) - trials.mean - math.lgamma(k + 1) for k in range(most)]
        return np.exp(logs)
    each = [1.0]
    for k in range(1, most - 1):
        each.append(each[-1] * (1 - trials.gamma) * (k + trials.eta) / (k + 1))
    return np.concatenate([[0.0], np.array(each) / math.fsum(each)])


def best_of(trials: Trials, q: np.ndarray) -> np.ndarray:
    """The distribution of the best of K trials, each with distribution q, the outputs in increasing order; first: none ran.

    By enumeration: P(best <= y) = sum over k of P(K = k) q(<= y)^k.
    """
    law, reached = pmf(trials), np.minimum(np.cumsum(q), 1.0)
    below = law[1:] @ reached[None, :] ** np.arange(1, len(law))[:, None]
    return np.concatenate([[law[0]], np.diff(np.concatenate([[0.0], below]))])


def gaussians(mu: float, order: str) -> tuple[np.ndarray, np.ndarray]:
    """N(0, 1) and N(mu, 1) seen through bins: mu-GDP, by post-processing. The order of outputs is as adverse as can be."""
    edges = np.concatenate([[-np.inf], np.linspace(-4, 4 + mu, 60), [np.inf]])
    q, other = (np.array([norm.cdf(b - m) - norm.cdf(a - m) for a, b in pairwise(edges)]) for m in (0.0, mu))
    places = {"up": np.arange(len(q)), "down": np.arange(len(q))[::-1]}
    place = places.get(order, np.random.default_rng(len(order)).permutation(len(q)))
    return q[place], other[place]


def renyi(a: np.ndarray, b: np.ndarray, order: float) -> float:
    kept = a > 0
    return float(logsumexp(order * np.log(a[kept]) + (1 - order) * np.log(b[kept])) / (order - 1))


def losses(trials: Trials, mu: float) -> list[tuple[np.ndarray, np.ndarray]]:
    """The tuned mechanism on both neighbours, either way round, for three orders of outputs."""
    pairs = []
    for order in ("up", "down", "any"):
        q, other = gaussians(mu, order)
        first, second = best_of(trials, q), best_of(trials, other)
        pairs += [(first, second), (second, first)]
    return pairs


@ids
@pytest.mark.parametrize("mu", [0.05, 0.3, 1.0])
def test_no_order_of_outputs_loses_more_than_is_claimed(trials: Trials, mu: float) -> None:
    """delta(eps) of the tuned mechanism, exactly, at the eps that is claimed for delta; and every Renyi divergence."""
    pairs = losses(trials, mu)
    for delta in (0.2, 0.01, 1e-4):
        eps = tuned_eps(trials, mu, delta)
        assert max(float(np.maximum(a - math.exp(eps) * b, 0).sum()) for a, b in pairs) <= delta
    claimed = trials.renyi(mu)
    for place in range(0, len(ORDERS), 6):
        if ORDERS[place] < 200:
            assert max(renyi(a, b, ORDERS[place]) for a, b in pairs) <= claimed[place] + 1e-9


def worst(trials: Trials, mu: float, claimed: np.ndarray) -> float:
    """By how much the exact divergences exceed a claim about them, at most."""
    places = [place for place, order in enumerate(ORDERS) if 1.1 < order < 100][::2]
    return max(renyi(a, b, ORDERS[place]) - claimed[place] for a, b in losses(trials, mu) for place in places)


def no_cost(trials: Trials, mu: float) -> np.ndarray:
    return ORDERS * mu * mu / 2


def without_the_mean(trials: Trials, mu: float) -> np.ndarray:
    return trials.renyi(mu) - math.log(trials.mean) / (ORDERS - 1)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("broken", [no_cost, without_the_mean])
@pytest.mark.parametrize("eta", [0.0, None])
def test_the_comparison_catches_a_price_that_is_too_low(
    broken: Callable[[Trials, float], np.ndarray], eta: float | None
) -> None:
    found = [
        (worst(trials, mu, broken(trials, mu)), worst(trials, mu, trials.renyi(mu)))
        for trials in (Trials(mean=1.5, eta=eta), Trials(mean=20.0, eta=eta))
        for mu in (0.02, 0.1)
    ]
    assert max(exceeded for exceeded, _ in found) > 1e-3
    assert max(exceeded for _, exceeded in found) <= 1e-9


@pytest.mark.sampled(4)
@ids
def test_the_number_of_trials_has_its_law(trials: Trials) -> None:
    source = SeededRandomness(5)
    drawn = np.array([trials.draw(source) for _ in range(500)])
    law = pmf(trials)
    assert float(law @ np.arange(len(law))) == pytest.approx(trials.mean, rel=1e-6)
    edges = [k for k in range(1, 60) if law[k] * len(drawn) > 8]
    first, last = min(edges), max(edges)
    bins = [np.sum(drawn < first), *(np.sum(drawn == k) for k in range(first, last)), np.sum(drawn >= last)]
    expected = np.array([law[:first].sum(), *law[first:last], 1 - law[:last].sum()])
    kept = expected > 0
    assert np.array(bins)[~kept].sum() == 0
    assert chisquare(np.array(bins)[kept], expected[kept] / expected[kept].sum() * len(drawn)).pvalue > 1e-4


@ids
def test_a_trial_gets_what_the_whole_can_bear(trials: Trials) -> None:
    mu = trial_budget(trials, 1.0, 1e-5).mu
    assert tuned_eps(trials, mu, 1e-5) <= 1.0
    assert tuned_eps(trials, mu * 1.001, 1e-5) > 1.0
    assert mu < TunedWeights(1.0, 1e-5, trials, trial_budget(trials, 1.0, 1e-5), False).weights.mu * (1 + 1e-12)


def test_weights_and_score_together_spend_one_trial() -> None:
    mechanism = TunedWeights.of(Trials(), 1.0, 1e-5, private_score=True)
    assert math.hypot(mechanism.weights.mu, mechanism.score.mu) <= mechanism.trial.mu
    assert TunedWeights.of(Trials(), 1.0, 1e-5, private_score=False).weights == mechanism.trial
    assert "(1, 1e-05)" in mechanism.price(3)[1]


def test_a_budget_that_leaves_nothing_is_refused() -> None:
    refused(
        (ConfigError, r"total\.eps=1e-05", lambda: trial_budget(Trials(mean=100), 1e-5, 1e-5)),
        (ConfigError, r"total\.delta=0", lambda: trial_budget(Trials(), 1.0, 0.0)),
    )


def test_a_record_is_right_or_wrong_whatever_stands_beside_it() -> None:
    """To the last bit: the number right of all is the sum of the numbers right of each alone."""
    rng = np.random.default_rng(0)
    for outputs in (1, 3):
        phi, weight = rng.normal(size=(500, 37)), rng.normal(size=(outputs, 37))
        phi[:50] = np.round(phi[:50]) * 0  # ties
        labels = rng.integers(0, max(2, outputs), 500)
        each = [count_right(phi[i : i + 1], weight, labels[i : i + 1]) for i in range(500)]
        assert set(each) == {0, 1}
        assert count_right(phi, weight, labels) == sum(each)
