"""The curve of Gaussian noise on Poisson batches, against other accountants, and what contradicts it."""

import math
import warnings

import numpy as np
import pytest
from scipy.special import ndtr

from agt.audit.subsampled import Curve, least_epsilon, least_from_steps, noise_for

CASES = [(1.0, 0.1, 50), (0.6, 0.05, 40), (2.0, 0.25, 100), (0.8, 0.5, 1)]


@pytest.mark.parametrize(("noise", "rate", "steps"), CASES)
def test_epsilon_is_opacus(noise: float, rate: float, steps: int) -> None:
    pytest.importorskip("opacus")
    from opacus.accountants import PRVAccountant

    accountant = PRVAccountant()
    accountant.history = [(noise, rate, steps)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = accountant.get_epsilon(1e-5, eps_error=1e-3)
    assert Curve(noise, rate, steps).epsilon(1e-5) == pytest.approx(theirs, abs=3e-3)


@pytest.mark.parametrize(("noise", "rate", "steps"), CASES[:2])
def test_deltas_are_another_librarys(noise: float, rate: float, steps: int) -> None:
    pytest.importorskip("dp_accounting")
    from dp_accounting import dp_event, pld

    accountant = pld.PLDAccountant(value_discretization_interval=1e-3)
    accountant.compose(dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(noise)), steps)
    for epsilon in (0.5, 2.0, 5.0):
        ours, theirs = Curve(noise, rate, steps).delta(epsilon), accountant.get_delta(epsilon)
        assert ours == pytest.approx(theirs, rel=0.1)


def test_one_step_is_exact() -> None:
    """delta(0) of one step is the total variation: q (2 Phi(1/(2z)) - 1)."""
    assert Curve(1.3, 0.2, 1).delta(0) == pytest.approx(0.2 * (2 * ndtr(0.5 / 1.3) - 1), rel=1e-3)


def test_sampling_with_rate_one_is_the_gaussian_mechanism() -> None:
    full, nearly = Curve(3.0, 1.0, 9), Curve(3.0, 0.999999, 9)
    assert full.gaussian == 1.0
    assert nearly.epsilon(1e-5) == pytest.approx(full.epsilon(1e-5), abs=5e-3)
    rates = np.array([0.2, 0.2]), np.array([0.6, 0.1])
    assert full.excludes(*rates).tolist() == nearly.excludes(*rates).tolist() == [False, True]


@pytest.mark.parametrize("rate", [0.2, 1.0])
def test_noise_for_a_budget(rate: float) -> None:
    noise = noise_for(2.0, 1e-5, rate, 20)
    assert Curve(noise, rate, 20).epsilon(1e-5) <= 2.0 + 1e-9
    assert Curve(0.99 * noise, rate, 20).epsilon(1e-5) > 2.0


def test_the_best_attack_on_a_step_is_allowed_and_a_better_one_is_not() -> None:
    """Of P against Q themselves: likelihood ratio tests attain the curve, and nothing beats it."""
    noise, rate = 0.7, 0.3
    levels = np.linspace(-1, 2, 13)
    alphas = 1 - ndtr(levels / noise)
    betas = (1 - rate) * ndtr(levels / noise) + rate * ndtr((levels - 1) / noise)
    curve = Curve(noise, rate, 1)
    assert not curve.excludes(alphas + 1e-3, betas + 1e-3).any()
    assert curve.excludes(alphas[5:9] - 5e-3, betas[5:9] - 5e-3).all()
    epsilon, best = least_epsilon(alphas, betas, rate, 1, 1e-5)
    assert epsilon == pytest.approx(curve.epsilon(1e-5), rel=0.05)
    assert 0 <= best < len(levels)


def test_steps_guessed_as_often_as_the_noise_allows_give_its_epsilon() -> None:
    right = 0.5 + 0.25 * (ndtr(0.5 / 1.2) - 0.5)
    assert least_from_steps(right, 0.25, 10, 1e-5) == pytest.approx(Curve(1.2, 0.25, 10).epsilon(1e-5), rel=1e-3)
    assert least_from_steps(0.5, 0.25, 10, 1e-5) == 0
    assert least_from_steps(0.7, 0.25, 10, 1e-5) > 50  # no noise allows it: half of a quarter is the most


@pytest.mark.parametrize("values", [(0.0, 0.5, 1), (1.0, 0.0, 1), (1.0, 1.1, 1), (1.0, 0.5, 0)])
def test_no_mechanism(values: tuple[float, float, int]) -> None:
    with pytest.raises(ValueError, match="no mechanism"):
        Curve(*values)


def test_nothing_is_shown_by_guessing() -> None:
    assert least_epsilon(0.5, 0.5, 0.2, 5, 1e-5)[0] == 0
    assert least_epsilon(0.6, 0.6, 1.0, 5, 1e-5)[0] == 0
    assert math.isfinite(least_epsilon(1e-9, 1e-9, 0.2, 5, 1e-5)[0])
