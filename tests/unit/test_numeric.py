"""Every number of agt/numeric.py against high precision or brute force."""

import math
from collections.abc import Callable
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from agt.errors import ConfigError
from agt.numeric import (
    COVER,
    UNIT,
    UP,
    bisect,
    gamma,
    gamma_up,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    labels_of,
    margins_of,
    midpoint,
    mills_delta,
    next_up,
    signed_margins,
    whole_midpoint,
)

EPSILONS = (0.0, 1e-6, 0.01, 0.1, 1.0, 10.0, 50.0)


# -- rounding
# --------------------------------------------------------------------------------------------------


def test_the_next_float() -> None:
    """It is greater, and half way to it rounds to an end: nothing lies between."""
    for number in (0.0, -0.0, 5e-324, 1e-310, 0.1, 1.0, 2.0**60, -1.0, -5e-324):
        bound = next_up(number)
        assert bound > number
        assert float((Fraction(number) + Fraction(bound)) / 2) in (number, bound)
    assert next_up(math.inf) == math.inf


def test_the_unit_roundoff_is_half_of_what_separates_one_from_the_next() -> None:
    assert next_up(1.0) == 1 + 2 * UNIT
    assert 1 + UNIT == 1.0
    assert next_up(0.0) + 1 == 1.0 < COVER


@pytest.mark.parametrize("n", [1, 2, 3, 7, 100, 12345, 10**6, 2**26 - 1, 10**9, 2**43])
def test_gamma_to_nearest_and_rounded_up(n: int) -> None:
    exact = n * Fraction(UNIT) / (1 - n * Fraction(UNIT))
    assert abs(Fraction(gamma(n)) - exact) <= 2 * Fraction(UNIT) * exact
    assert 1 + 12 * Fraction(UNIT) <= Fraction(gamma_up(n)) / exact <= 1 + Fraction(1, 2**19)


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=40))
def test_gamma_bounds_the_error_of_a_sum(numbers: list[float]) -> None:
    total = 0.0
    for number in numbers:
        total += number
    error = abs(Fraction(total) - sum(map(Fraction, numbers)))
    assert error <= Fraction(gamma_up(len(numbers) - 1)) * sum(
        abs(Fraction(number)) for number in numbers
    )


# -- bisection
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 10, 33])
def test_bisection_finds_the_change(size: int) -> None:
    """For every place where a condition may change, by so many calls; the ends are not asked."""
    for last in range(size):
        asked: list[int] = []

        def holds(value: int, last: int = last, asked: list[int] = asked) -> bool:
            asked.append(value)
            return value <= last

        assert bisect(holds, 0, size, whole_midpoint) == (last, last + 1)
        assert len(asked) <= math.ceil(math.log2(size))
        assert all(0 < value < size for value in asked)


@pytest.mark.parametrize("change", [0.1, 1 / 3, 0.7, 1e-12])
def test_bisection_ends_at_neighbours(change: float) -> None:
    assert bisect(lambda value: value <= change, 0.0, 1.0, midpoint) == (change, next_up(change))


@pytest.mark.parametrize("seed", range(50))
def test_the_ends_of_a_bisection_were_asked(seed: int) -> None:
    """Of a condition that is not monotone: the first end held, the second failed."""
    kinds = np.random.default_rng(seed).random(100) < 0.5
    low, high = bisect(lambda value: bool(kinds[value]), 0, 99, whole_midpoint)
    assert high == low + 1
    assert low == 0 or kinds[low]
    assert high == 99 or not kinds[high]


def test_bisection_ends_where_no_number_fits_between() -> None:
    assert bisect(lambda value: False, 0.0, 1.0, midpoint) == (0.0, 2.0**-200)
    assert bisect(lambda value: True, 1.0, next_up(1.0), midpoint) == (1.0, next_up(1.0))


# -- the Gaussian mechanism
# --------------------------------------------------------------------------------------------


def exact(epsilon: float, mu: float) -> mpmath.mpf:
    with mpmath.workdps(60):
        e = mpmath.mpf(epsilon)
        m = mpmath.mpf(mu)
        return mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)


@pytest.mark.parametrize("function", [gaussian_delta, mills_delta])
def test_delta_is_the_exact_curve_from_above(function: Callable[[float, float], float]) -> None:
    """Never below the curve, and close to it where both forms are."""
    for mu in (1e-3, 0.02, 0.3, 1.0, 5.0):
        for epsilon in EPSILONS:
            value = function(epsilon, mu)
            true = exact(epsilon, mu)
            assert true <= value + 1e-300
            assert value == pytest.approx(float(true), rel=1e-8, abs=1e-300)
    assert gaussian_delta(0.0, 0.0) == 0


@pytest.mark.parametrize("mu", [1e-15, 1e-9, 9e-5, 1e-4, 1e-3])
def test_delta_by_mills_ratios_is_sharp_for_small_mu(mu: float) -> None:
    """Within ``UP``, and mu for mu < 10^-4, of the curve down to the smallest budgets."""
    for x in (0, 2, 8, 30):
        epsilon = mu * mu / 2 + x * mu
        true = exact(epsilon, mu)
        assert (
            true
            <= mills_delta(epsilon, mu)
            <= true * (1 + 2 * UP + (mu if mu < 1e-4 else 0)) + mpmath.mpf(1e-305)
        )


@pytest.mark.parametrize("delta", [1e-12, 1e-7, 1e-5, 0.3])
def test_mu_meets_its_target_and_hardly_more_would_not(delta: float) -> None:
    for epsilon in EPSILONS:
        mu = gaussian_mu(epsilon, delta)
        assert exact(epsilon, mu) <= delta
        assert exact(epsilon, mu * (1 + (1e-2 if delta < 1e-9 else 1e-6))) > delta


@pytest.mark.parametrize("delta", [1e-12, 1e-7, 1e-5])
def test_epsilon_meets_its_target_and_hardly_less_would_not(delta: float) -> None:
    for mu in (0.02, 0.3, 1.0, 5.0, 30.0):
        epsilon = gaussian_epsilon(mu, delta)
        assert exact(epsilon, mu) <= delta
        assert exact(epsilon * (1 - 1e-6), mu) > delta
    assert gaussian_epsilon(1e-6, 1e-5) == 2.0**-200  # none is needed


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [(1.0, 0.0), (1.0, 1.0), (-1.0, 0.1), (float("inf"), 0.1), (float("nan"), 0.1)],
)
def test_no_gaussian_gives_that(epsilon: float, delta: float) -> None:
    with pytest.raises(ConfigError, match=r"epsilon=.*delta="):
        gaussian_mu(epsilon, delta)


# -- labels and margins
# ------------------------------------------------------------------------------------------------

# From few values, so that ties are common.
LOGITS = [
    np.random.default_rng(j).choice([-1.5, 0.0, 1e-300, 0.25, 3.0], (60, j)) for j in (1, 2, 3, 5)
]


@pytest.mark.parametrize("logits", LOGITS)
def test_labels_are_the_first_of_the_greatest_in_both_libraries(logits: np.ndarray) -> None:
    every = [[0.0, *row] if len(row) == 1 else list(row) for row in logits]
    expected = [min(c for c, logit in enumerate(row) if logit == max(row)) for row in every]
    labels = labels_of(logits)
    tensors = labels_of(torch.from_numpy(logits))
    assert labels.dtype == np.int64
    assert tensors.dtype == torch.int64
    assert labels.tolist() == tensors.tolist() == expected


def test_labels_of_nothing_and_of_what_is_no_number() -> None:
    assert labels_of(np.empty((0, 3))).tolist() == labels_of(np.empty((0, 1))).tolist() == []
    assert (
        labels_of(np.array([[math.nan]])).tolist()
        == labels_of(torch.tensor([[math.nan]])).tolist()
        == [0]
    )
    odd = np.array([[1.0, math.nan, math.inf], [-math.inf, -math.inf, -math.inf]])
    assert labels_of(odd).tolist() == labels_of(torch.from_numpy(odd)).tolist() == [1, 0]


@pytest.mark.parametrize("logits", LOGITS)
def test_margins_are_leads_over_the_best_other(logits: np.ndarray) -> None:
    for row, label, line, margin in zip(
        logits, labels_of(logits), signed_margins(logits).T, margins_of(logits), strict=True
    ):
        others = [max(np.delete(row, c)) for c in range(len(row))] if len(row) > 1 else []
        every = [value - other for value, other in zip(row, others, strict=False)]
        assert line.tolist() == (every[1:] if len(row) == 2 else every or row.tolist())
        assert margin == (every[label] if every else abs(row[0])) >= 0
