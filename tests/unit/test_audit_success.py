"""What a privacy loss means to somebody who guesses: the formulas against every test of small mechanisms."""

import math
from itertools import product

import numpy as np
import pytest
from scipy.stats import norm

from agt.audit.success import advantage, gaussian_advantage, posterior

PRIORS = (0.5, 0.01, 0.9)
EVERY_TEST = np.array(list(product((0, 1), repeat=5)))  # of five outputs: for which of them it says "used"


def pairs(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two laws of five outputs."""
    used, unused = np.random.default_rng(seed).dirichlet(np.full(5, 0.5), 2)
    return used, unused


def delta_of(used: np.ndarray, unused: np.ndarray, eps: float) -> float:
    """The least delta at which both orders are (eps, delta)-DP."""
    return max(float(np.maximum(p - math.exp(eps) * q, 0).sum()) for p, q in ((used, unused), (unused, used)))


def optimal(eps: float, delta: float) -> tuple[np.ndarray, np.ndarray]:
    """The pair that every (eps, delta)-DP one is a function of: the truth, a flipped coin twice, the truth again."""
    coin = (1 - delta) / (1 + math.exp(eps))
    used = np.array([delta, math.exp(eps) * coin, coin, 0.0, 0.0])
    return used, used[[3, 2, 1, 0, 4]]


@pytest.mark.parametrize("eps", [0.0, 0.3, 1.0, 3.0])
def test_no_test_has_more_advantage_and_one_has_it(eps: float) -> None:
    for seed in range(200):
        used, unused = pairs(seed)
        best = (EVERY_TEST @ (used - unused)).max()
        assert best <= advantage(eps, delta_of(used, unused, eps)) + 1e-12
    for delta in (0.0, 1e-5, 0.2):
        used, unused = optimal(eps, delta)
        assert delta_of(used, unused, eps) == pytest.approx(delta, abs=1e-12)
        assert (EVERY_TEST @ (used - unused)).max() == pytest.approx(advantage(eps, delta), abs=1e-12)


def test_a_formula_that_forgets_delta_is_caught() -> None:
    used, unused = optimal(1.0, 0.2)
    assert (EVERY_TEST @ (used - unused)).max() > advantage(1.0) + 0.1


@pytest.mark.parametrize("mu", [0.0, 0.2, 1.0, 4.0])
def test_the_best_threshold_of_a_gaussian(mu: float) -> None:
    thresholds = np.linspace(-6, 10, 16_001)
    assert (norm.sf(thresholds - mu) - norm.sf(thresholds)).max() == pytest.approx(gaussian_advantage(mu), abs=1e-6)


@pytest.mark.parametrize("prior", PRIORS)
def test_no_answer_of_a_pure_mechanism_makes_anybody_surer(prior: float) -> None:
    for seed in range(200):
        used, unused = pairs(seed)
        eps = float(np.abs(np.log(used / unused)).max())
        tests = EVERY_TEST[1:]
        sure = prior * tests @ used / (prior * tests @ used + (1 - prior) * tests @ unused)
        assert sure.max() <= posterior(prior, eps) + 1e-12
    used, unused = optimal(1.0, 0.0)
    assert prior * used[1] / (prior * used[1] + (1 - prior) * unused[1]) == pytest.approx(posterior(prior, 1.0))


@pytest.mark.parametrize("prior", PRIORS)
def test_but_for_the_event_of_delta_nobody_is_surer(prior: float) -> None:
    """Of the optimal pair the event is the outputs that only one side has: of probability delta on each."""
    used, unused = optimal(1.0, 0.2)
    told = (used == 0) | (unused == 0)
    assert used[told].sum() == pytest.approx(0.2)
    assert unused[told].sum() == pytest.approx(0.2)
    sure = prior * used[~told] / (prior * used[~told] + (1 - prior) * unused[~told])
    assert sure.max() == pytest.approx(posterior(prior, 1.0))


@pytest.mark.parametrize("delta", [0.0, 0.01])
def test_a_test_that_violates_a_claim_makes_somebody_that_sure(delta: float) -> None:
    broken = 0
    for seed in range(100):
        used, unused = pairs(seed)
        for t, f in zip(EVERY_TEST[1:-1] @ used, EVERY_TEST[1:-1] @ unused, strict=True):
            for high, low in ((t, f), (1 - f, 1 - t)):
                if high > math.exp(1.0) * low + delta:
                    broken += 1
                    assert high / (high + low) > posterior(0.5, 1.0)
    assert broken > 100


def test_extremes_are_numbers() -> None:
    assert (advantage(0.0), advantage(1e4), advantage(1.0, 1.0)) == (0.0, 1.0, 1.0)
    assert (posterior(0.5, 0.0), posterior(0.01, 1e4), gaussian_advantage(0.0)) == (0.5, 1.0, 0.0)
    assert posterior(0.5, 1.0) == pytest.approx(0.731, abs=1e-3)
    assert posterior(0.01, 1.0) == pytest.approx(0.0267, abs=1e-4)
