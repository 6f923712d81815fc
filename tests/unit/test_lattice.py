"""Gaussian noise on a lattice: the sampler, the rounding, and what double precision gives away."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chisquare, kstest, norm

from agt.errors import UnsoundError
from agt.numeric import (
    SeededRandomness,
    SystemRandomness,
    _nearest_multiple,
    noisy,
    standard_normal,
    step_of,
)


def draws(n: int, seed: int = 0) -> np.ndarray:
    source = SeededRandomness(seed)
    values = []
    for _ in range(n):
        sign, k, x = standard_normal(source)
        while x.known < 64:
            x.refine()
        values.append(sign * (k + math.ldexp(x.digits, -x.known)))
    return np.array(values)


def test_the_sampler_is_normal() -> None:
    values = draws(4000)
    assert kstest(values, norm.cdf).pvalue > 1e-3
    # the rejection steps for k >= 2, which the centre hardly shows
    beyond = (np.abs(values) > 2).mean()
    assert beyond == pytest.approx(2 * norm.sf(2), abs=4 * math.sqrt(0.0455 / 4000))


@pytest.mark.parametrize("sigma", [1.0, 0.01, 3e-7, 1e9])
def test_the_lattice_is_a_power_of_two_that_sigma_alone_decides(sigma: float) -> None:
    step = step_of(sigma)
    assert math.frexp(step)[0] == 0.5
    assert sigma * 2**-25 < step <= sigma * 2**-24
    values = sigma * np.random.default_rng(0).normal(size=50) * 1e3
    assert not np.fmod(noisy(values, sigma, SystemRandomness()), step).any()


def test_the_law_is_that_of_a_rounded_gaussian() -> None:
    """A value far from a multiple, against the continuous law on cells of its own."""
    value = 0.123456789
    sigma = 0.7
    cells = 20
    drawn = (noisy(np.full(2000, value), sigma, SeededRandomness(5)) - value) / sigma
    edges = norm.ppf(np.linspace(0, 1, cells + 1)[1:-1])
    counts = np.bincount(np.searchsorted(edges, drawn), minlength=cells)
    assert chisquare(counts).pvalue > 1e-3


def test_rounding_is_exact_where_a_float_would_err() -> None:
    """floor(q + 1/2) of rational q, against fractions; among them halves, and numbers of more
    than 53 digits.
    """
    rng = np.random.default_rng(1)
    for _ in range(300):
        top, bottom, exponent = (
            int(n)
            for n in (rng.integers(-(2**62), 2**62), 2 ** rng.integers(0, 61), rng.integers(-40, 9))
        )
        assert _nearest_multiple(top, bottom, exponent) == math.floor(
            Fraction(top, bottom) / Fraction(2) ** exponent + Fraction(1, 2)
        )


def test_the_last_digits_tell_nothing_and_those_of_floating_point_do() -> None:
    """Noise added in floating point shows what it was added to: sums near 3/4 end at 2^-53
    (Mironov 2012).
    """
    sigma = 0.01
    values = (0.0, 0.75)
    floats = [value + sigma * np.random.default_rng(2).normal(size=500) for value in values]
    exact = [noisy(np.full(500, value), sigma, SeededRandomness(2)) for value in values]
    assert [bool(np.fmod(drawn, 2.0**-53).any()) for drawn in floats] == [True, False]
    assert not any(np.fmod(drawn, step_of(sigma)).any() for drawn in exact)


def test_draws_are_the_same_whatever_the_value() -> None:
    """A seed's noise moves with the value by whole steps: digits are drawn before it is looked
    at.
    """
    values = np.random.default_rng(3).normal(size=300)
    sigma = 0.2
    one, two = (noisy(values + shift, sigma, SeededRandomness(4)) for shift in (0.0, 0.37))
    assert np.abs(two - one - 0.37).max() <= 1.01 * step_of(sigma)


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e300])
def test_what_is_no_number_is_refused(value: float) -> None:
    with pytest.raises(UnsoundError):
        noisy(np.array([0.0, value]), 1.0, SeededRandomness(0))
