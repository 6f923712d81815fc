"""Mechanisms and budgets: against linear programs, adaptive adversaries, and every order of
outputs.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal

import mpmath
import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.special import ndtr
from scipy.stats import binom

from agt.mechanisms.budget import Allowance, Cost, Lot
from agt.mechanisms.composition import delta_of
from agt.mechanisms.gaussian_equivalent import squared_mu
from agt.mechanisms.guarantees import ApproximateDP, GaussianDP, Guarantee, PureDP
from agt.mechanisms.optimal import GaussianMargin, RandomizedResponse
from agt.mechanisms.published import ProposeTestRelease, SmoothCauchy
from agt.numeric import mills_delta

# -- mechanism optimal


def best_total(classes: int, k_max: int, levels: list[tuple[float, float]]) -> float:
    """The most that the P(nominal label) of all states (label, L), L = 0..k_max, can sum to.

    Variables: P(o | label, L) and, for every pair of neighbours and level, slacks t_o >= P(o) -
    exp(eps) P'(o), t_o >= 0, whose sum may be delta: the worst event is the set of o where the
    difference is positive.
    """
    states = [(label, k) for label in range(classes) for k in range(k_max + 1)]
    pairs = [((y, k), (y, k + 1)) for y in range(classes) for k in range(k_max)]
    pairs += [((y, 0), (z, 0)) for y in range(classes) for z in range(y)]
    directed = [
        (a, b, eps, delta)
        for one, other in pairs
        for a, b in ((one, other), (other, one))
        for eps, delta in levels
    ]
    index = {state: place for place, state in enumerate(states)}
    p = len(states) * classes
    slack = len(directed) * classes
    rows = []
    limits = []
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
    found = linprog(
        gain, A_ub=np.array(rows), b_ub=limits, A_eq=sums, b_eq=np.ones(len(states)), bounds=(0, 1)
    )
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
    flip = RandomizedResponse(eps=eps, delta=delta, classes=classes).flip_probability(
        np.arange(k_max + 1)
    )
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
    """mu-GDP is (eps, delta(eps))-DP for every eps: with many eps the program comes down to our
    value.
    """
    k_max = 5
    guarantee = GaussianDP(mu)
    levels = [
        (float(eps), delta_of(guarantee, 1, float(eps)))
        for eps in np.linspace(0, mu * mu * (k_max + 2), 60)
    ]
    ours = 2 * float((1 - GaussianMargin(mu=mu).flip_probability(np.arange(k_max + 1))).sum())
    best = best_total(2, k_max, levels)
    assert ours - 1e-7 <= best <= ours + 1e-3


# -- filter


BINS = 41
State = tuple[tuple[Lot, ...], Cost]
Rule = Callable[[State, Lot], bool]


def outcomes(lot: Lot) -> np.ndarray:
    """[n, 2]: the probabilities of what one lot says, for both neighbours: the worst mechanism with
    its guarantee, or, for GDP, that in ``BINS`` bins.
    """
    guarantee = lot.guarantee
    size = lot.size
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
    """sup of P(S) - e^eps P'(S) over adversaries who choose up to ``depth`` admitted lots of the
    menu, each by what the earlier ones said: at every leaf the event takes what is positive.
    """
    worth = math.exp(eps)
    tables = {lot: outcomes(lot) for lot in menu}

    def value(p: float, q: float, state: State, left: int) -> float:
        gains = [max(0.0, p - worth * q)]
        if left and p:
            for lot in menu:
                if admits(state, lot):
                    after = ((*state[0], lot), state[1].plus(lot.cost))
                    gains.append(
                        math.fsum(
                            value(p * a, q * b, after, left - 1) for a, b in tables[lot].tolist()
                        )
                    )
        return max(gains)

    return value(1.0, 1.0, ((), Cost()), depth)


def filtered(allowance: Allowance) -> Rule:
    return lambda state, lot: allowance.admits(state[1], lot)


# -- as it is


@dataclass(frozen=True)
class Game:
    allowance: Allowance
    menu: tuple[Lot, ...]
    depth: int
    # of the budget's delta that the best adversary must reach, so that the game says something
    least: float


def half(allowance: Allowance, parts: int = 2) -> GaussianDP:
    return GaussianDP(allowance.mu_limit / math.sqrt(parts))


WIDE = Allowance(1.0, 0.05, 0.4)
GAMES = {
    "responses": Game(
        Allowance(0.6, 0.1, 0.0),
        tuple(Lot(PureDP(e), q) for e in (0.1, 0.2, 0.3, 0.6) for q in (1, 2)),
        3,
        0.4,
    ),
    "pure": Game(Allowance(0.6), tuple(Lot(PureDP(e)) for e in (0.1, 0.2, 0.3)), 4, 0.0),
    "leaks and responses": Game(
        WIDE,
        (Lot(ApproximateDP(0.3, 0.01), 2), Lot(ApproximateDP(0.5, 0.004)), Lot(PureDP(0.4), 2)),
        3,
        0.3,
    ),
    "leaks and Gaussians": Game(
        WIDE, (Lot(half(WIDE)), Lot(ApproximateDP(1e-9, 0.02)), Lot(PureDP(0.5))), 3, 0.7
    ),
    "basic or Gaussian": Game(
        WIDE, (Lot(half(WIDE, 3)), Lot(PureDP(0.5)), Lot(ApproximateDP(0.5, 0.01))), 3, 0.3
    ),
}


@pytest.mark.parametrize("name", GAMES)
def test_no_adversary_gets_more_than_the_budget(name: str) -> None:
    game = GAMES[name]
    lost = best(game.menu, filtered(game.allowance), game.allowance.eps, game.depth)
    assert game.least * game.allowance.delta <= lost <= game.allowance.delta + 1e-12


@pytest.mark.parametrize("eps", [0.0, 0.3, 0.8, 1.5])
def test_nor_more_than_the_budget_s_curve(eps: float) -> None:
    for game in GAMES.values():
        assert (
            best(game.menu, filtered(game.allowance), eps, min(game.depth, 3))
            <= game.allowance.delta_of(eps) + 1e-12
        )


def test_the_first_lot_by_its_own_total_stays_the_only_one() -> None:
    """1,000 responses that composition.py affords: more than the sums allow, so nothing follows,
    of any kind.
    """
    allowance = Allowance(1.0, 1e-5)
    lot = Lot(PureDP(0.00848), 1000)
    assert not allowance.holds(lot.cost)
    assert allowance.admits(Cost(), lot)
    assert delta_of(lot.guarantee, lot.size, 1.0) <= 1e-5
    for guarantee in (PureDP(1e-15), GaussianDP(1e-15), ApproximateDP(1e-15, 1e-300)):
        assert not allowance.admits(lot.cost, Lot(guarantee))


# -- one lot is as Gaussian as it says


def exceeds(mu: float, eps: float, size: int) -> bool:
    """Whether some test between neighbours beats G_mu on ``size`` randomized responses: every
    vertex, in 40 digits.
    """
    with mpmath.workdps(40):
        p = 1 / (1 + mpmath.exp(mpmath.mpf(eps)))
        mass = [mpmath.binomial(size, j) * p**j * (1 - p) ** (size - j) for j in range(size + 1)]
        tail = [mpmath.fsum(mass[j:]) for j in range(size + 2)]
        return any(
            _quantile(tail[j]) + _quantile(tail[size - j + 1]) > mpmath.mpf(mu)
            for j in range(1, size + 1)
        )


def _quantile(p: mpmath.mpf) -> mpmath.mpf:
    """-Phi^-1(p), by the smaller of the two tails."""
    if 2 * p > 1:
        return -_quantile(1 - p)
    start = mpmath.sqrt(-2 * mpmath.log(p)) if p < 0.4 else mpmath.mpf(0)
    return mpmath.findroot(
        lambda z: mpmath.log(mpmath.erfc(z / mpmath.sqrt(2)) / 2) - mpmath.log(p), start
    )


SIZES = [(0.01, 1), (0.3, 2), (0.1, 7), (1.0, 12), (4.0, 5), (100.0, 3), (0.05, 60)]


@pytest.mark.parametrize(("eps", "size"), SIZES)
def test_a_lot_is_as_gaussian_as_it_says(eps: float, size: int) -> None:
    mu = math.sqrt(squared_mu(eps, size))
    assert not exceeds(mu * (1 + 1e-15), eps, size)
    assert exceeds(mu * (1 - 1e-8), eps, size)


@pytest.mark.parametrize(("eps", "size"), [(0.01, 1), (0.3, 2), (0.1, 7)])
def test_the_limit_for_many_would_be_too_little(eps: float, size: int) -> None:
    assert exceeds(2 * math.sinh(eps / 2) * math.sqrt(size), eps, size)


# -- broken on purpose


def test_one_delta_for_leaks_and_gaussians_is_beaten() -> None:
    """Leaks up to what M has left of delta: after half of M^2 whoever learnt nothing takes
    leaks, the others Gaussians.
    """
    eps = 1.0
    delta = 1e-3
    whole = Allowance(eps, delta, 0.0)

    def shared(state: State, lot: Lot) -> bool:
        cost = state[1].plus(lot.cost)
        return float(cost.leak) + mills_delta(eps, math.sqrt(cost.square) * (1 - 1e-9)) <= delta

    gaussian = Lot(half(whole))
    leak = Lot(ApproximateDP(1e-15, (delta - mills_delta(eps, gaussian.guarantee.mu)) * (1 - 1e-6)))
    assert best((gaussian, leak), shared, eps, 2) > 1.5 * delta
    assert best((gaussian, leak), filtered(whole), eps, 2) <= delta
    fixed = Allowance(eps, delta, 0.5)
    assert (
        best(
            (gaussian, leak, Lot(half(fixed)), Lot(ApproximateDP(1e-15, delta / 2))),
            filtered(fixed),
            eps,
            3,
        )
        <= delta
    )


def test_the_total_of_what_was_chosen_is_beaten() -> None:
    """Kairouz, Oh and Viswanath's total of the lots chosen so far, as if their number had been
    fixed: no filter.
    """
    eps = 0.8
    menu = tuple(Lot(PureDP(e)) for e in (0.19, 0.51, 0.99))
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
    allowance = Allowance(0.5, 0.02, 0.5)
    leaky = Lot(ApproximateDP(1e-3, 0.01))

    def greatest(state: State, lot: Lot) -> bool:
        cost = state[1].plus(lot.cost)
        leak = max(each.cost.leak for each in (*state[0], lot))
        return allowance.holds(Cost(cost.pure, cost.square, leak))

    assert best((leaky,), greatest, 0.5, 4) > allowance.delta
    assert best((leaky,), filtered(allowance), 0.5, 4) <= allowance.delta


def test_a_lot_that_counts_once_is_beaten() -> None:
    """mu^2 of one release for all of the lot."""
    allowance = Allowance(0.5, 0.02, 0.0)
    lot = Lot(PureDP(0.2), 12)

    def once(state: State, lot: Lot) -> bool:
        single = Lot(lot.guarantee).cost
        return allowance.holds(state[1].plus(single))

    assert not allowance.admits(Cost(), lot)
    assert best((lot,), once, 0.5, 1) > allowance.delta


def test_two_filters_with_a_delta_each_are_not_one() -> None:
    """Basic composition with all of delta for leaks, or Gaussian sums with all of delta."""
    eps = 1.0
    delta = 1e-3
    basic = Allowance(eps, delta, 1.0)
    gaussian = Allowance(eps, delta, 0.0)

    def union(state: State, lot: Lot) -> bool:
        cost = state[1].plus(lot.cost)
        return basic.holds(cost) or gaussian.holds(cost)

    first = Lot(PureDP(0.1))
    rest = math.sqrt(float(gaussian.squared_mu_limit - first.cost.square)) * (1 - 1e-9)
    menu = (first, Lot(GaussianDP(rest)), Lot(ApproximateDP(0.1, delta)))
    assert best(menu, union, eps, 2) > 1.05 * delta
    for sound in (basic, gaussian, Allowance(eps, delta, 0.5)):
        assert best(menu, filtered(sound), eps, 2) <= delta * (1 + 1e-12)


# -- what it costs beside exact totals


def guarantees() -> Sequence[Guarantee]:
    return (PureDP(0.02), GaussianDP(0.03), ApproximateDP(0.02, 1e-9))


@pytest.mark.parametrize("guarantee", guarantees(), ids=str)
def test_lots_of_one_kind_are_admitted_almost_as_far_as_if_they_had_been_fixed(
    guarantee: Guarantee,
) -> None:
    """Never further; and no more than a tenth less."""
    allowance = Allowance(1.0, 1e-5)
    spent = Cost()
    count = 0
    while fit := allowance.max_lot_size(spent, guarantee, 20):
        spent = spent.plus(Lot(guarantee, fit).cost)
        count = count + fit
    assert delta_of(guarantee, count, 1.0) <= 1e-5
    assert delta_of(guarantee, math.ceil(count * 1.1), 1.0) > 1e-5
    assert spent.leak <= Decimal("1e-6")
