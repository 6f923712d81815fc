"""Released weights: exact Gaussian noise, the lattice, the expected accuracy, and who may not be
released.
"""

import math

import numpy as np
import pytest
from scipy.stats import kstest, norm

from agt.certificates.conditions import Condition
from agt.errors import ConfigError, UnsoundError
from agt.facts import evidence, proved
from agt.mechanisms.guarantees import GaussianDP
from agt.mechanisms.weights import (
    ReleaseWeights,
    expected_accuracy,
    noise_scale,
    release_weights,
    weights_budget,
)
from agt.numeric import SeededRandomness, SystemRandomness, mills_delta

WEIGHTS = ReleaseWeights(mu=1.0)
HELD = tuple(
    Condition(letter, "x", evidence(proved("own_words", text="y"))) for letter in "abcdefg"
)


def test_released_weights_are_on_the_lattice_and_spread_as_stated() -> None:
    theta = np.linspace(-40, 40, 3000).reshape(3, 1000)
    released = release_weights(theta, 0.03, GaussianDP(0.5), SeededRandomness(1))
    noise = released.weight - theta
    assert released.noise["sigma"] >= 0.06
    assert released.noise["sigma"] == pytest.approx(0.06)
    assert released.noise["step"] <= released.noise["sigma"] * 2**-24
    assert (
        np.rint(released.weight / released.noise["step"]) * released.noise["step"]
        == released.weight
    ).all()
    assert kstest((noise / released.noise["sigma"]).ravel(), norm.cdf).pvalue > 1e-3
    assert released.simulated
    assert not release_weights(theta[:1, :2], 0.03, GaussianDP(0.5), SystemRandomness()).simulated


@pytest.mark.parametrize("shape", [(1,), (1, 3), (4, 5)])
def test_every_weight_has_noise_of_its_own(shape: tuple[int, ...]) -> None:
    """Not one of them is the head's, and no two have the same."""
    theta = np.full(shape, 0.25)
    noise = release_weights(theta, 1.0, GaussianDP(1.0), SeededRandomness(3)).weight - theta
    assert (noise != 0).all()
    assert len(np.unique(noise)) == noise.size


def test_rounding_is_to_the_nearest_multiple() -> None:
    """The same draws for a weight and for one that is a whole number of steps more: released as
    many steps apart.
    """
    theta = np.array([0.1])
    one = release_weights(theta, 1.0, GaussianDP(1.0), SeededRandomness(7))
    two = release_weights(theta + 5 * one.noise["step"], 1.0, GaussianDP(1.0), SeededRandomness(7))
    assert two.weight[0] - one.weight[0] == 5 * one.noise["step"]
    third = release_weights(
        theta + one.noise["step"] / 8, 1.0, GaussianDP(1.0), SeededRandomness(7)
    )
    assert abs(third.weight[0] - one.weight[0]) <= one.noise["step"]


def test_expected_accuracy_of_two_classes_is_what_draws_give() -> None:
    rng = np.random.default_rng(0)
    phi = rng.normal(size=(200, 4))
    theta = rng.normal(size=(1, 4))
    labels = rng.integers(0, 2, 200)
    sigma = 0.8
    exact = expected_accuracy(phi @ theta.T, np.linalg.norm(phi, axis=1), labels, sigma)
    noisy = theta + sigma * rng.normal(size=(4000, 1, 4))
    drawn = (((phi @ noisy[:, 0].T) > 0) == labels[:, None]).mean()
    assert exact == pytest.approx(drawn, abs=0.005)


def test_expected_accuracy_of_several_classes_is_what_draws_give() -> None:
    rng = np.random.default_rng(0)
    phi = rng.normal(size=(60, 4))
    theta = rng.normal(size=(5, 4))
    labels = rng.integers(0, 5, 60)
    exact = expected_accuracy(phi @ theta.T, np.linalg.norm(phi, axis=1), labels, 0.5)
    noisy = theta + 0.5 * rng.normal(size=(6000, 5, 4))
    drawn = (np.einsum("nd,tjd->tnj", phi, noisy).argmax(axis=2) == labels).mean()
    assert exact == pytest.approx(drawn, abs=0.006)
    nominal = ((phi @ theta.T).argmax(axis=1) == labels).mean()
    assert expected_accuracy(
        phi @ theta.T, np.linalg.norm(phi, axis=1), labels, 1e-9
    ) == pytest.approx(nominal)


@pytest.mark.parametrize(
    ("eps", "delta", "mu"), [(1.0, 1e-5, 0.2680), (0.1, 1e-5, 0.0324), (10.0, 1e-5, 2.0)]
)
def test_the_budget_spends_what_it_is_given_and_no_more(
    eps: float, delta: float, mu: float
) -> None:
    budget = weights_budget(eps, delta)
    assert mills_delta(eps, budget.mu) <= delta
    assert mills_delta(eps, budget.mu * (1 + 1e-6)) > delta * (1 - 1e-6)
    assert budget.mu == pytest.approx(mu, rel=0.1)


@pytest.mark.parametrize("moves", [0.0, -1.0, math.nan, math.inf])
def test_a_bound_that_is_no_positive_number_is_refused(moves: float) -> None:
    with pytest.raises(ConfigError, match="moves"):
        noise_scale(moves, GaussianDP(1.0))


@pytest.mark.parametrize("weight", [math.nan, math.inf, 1e300])
def test_weights_that_are_no_numbers_are_refused(weight: float) -> None:
    with pytest.raises(UnsoundError):
        release_weights(np.array([0.0, weight]), 1.0, GaussianDP(1.0), SeededRandomness(0))


@pytest.mark.parametrize("weight", [1.9, 2.1, 1e30])
def test_large_weights_are_released_as_small_ones_are(weight: float) -> None:
    """Refusing them would depend on private weights: a limit relative to the noise was crossed
    at 2 here.
    """
    released = release_weights(
        np.array([weight, 0.0]), 1e-6, GaussianDP(100.0), SeededRandomness(0)
    )
    assert released.weight[0] == pytest.approx(weight, rel=1e-7)
    assert abs(released.weight[1]) < 1e-6
