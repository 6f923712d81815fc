"""Private tuning against brute force: the best of K trials on finite outputs, its loss worked out exactly; and rules broken
on purpose, which the same comparison must catch."""

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import chisquare, norm

from agt.errors import ConfigError
from agt.mechanisms.tuning import ORDERS, Trials, TunedWeights, count_right, trial_budget, tuned_eps
from agt.numeric import SeededRandomness

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


def published(trials: Trials, mu: float) -> np.ndarray:
    """Papernot and Steinke 2022, theorems 2 and 6, at the best second order, for comparison."""
    one, others = ORDERS * mu * mu / 2, np.geomspace(1, 1e5, 4000)
    assert trials.eta is not None
    more = (1 + trials.eta) * ((1 - 1 / others) * others * mu * mu / 2 - math.log(trials.gamma) / others)
    return one + more.min() + math.log(trials.mean) / (ORDERS - 1)


@pytest.mark.parametrize("trials", [law for law in LAWS if law.eta is not None], ids=lambda t: f"{t.mean:g}, {t.eta}")
def test_the_price_is_never_above_the_published_theorem(trials: Trials) -> None:
    """For Poisson trials it is the published one, and the outcome that none ran."""
    for mu in (0.05, 0.3, 1.0):
        assert (trials.renyi(mu) <= published(trials, mu) * (1 + 1e-6) + 0.01 / (1 - 1 / ORDERS)).all()
        assert trials.renyi(mu)[75] < published(trials, mu)[75]


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
    with pytest.raises(ConfigError, match=r"total\.eps=1e-05"):
        trial_budget(Trials(mean=100), 1e-5, 1e-5)
    with pytest.raises(ConfigError, match=r"total\.delta=0"):
        trial_budget(Trials(), 1.0, 0.0)


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
