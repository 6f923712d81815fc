"""Every number of agt/numeric.py against high precision or brute force, and the same checks against broken variants."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from agt import numeric
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
Bisect = Callable[..., tuple[Any, Any]]


def caught(check: Callable[..., None], broken: Callable[..., Any]) -> None:
    """The check passes over no such variant."""
    with pytest.raises(AssertionError):
        check(broken)


# -- rounding ----------------------------------------------------------------------------------------------------------


def check_next_up(function: Callable[[float], float]) -> None:
    """It is greater, and half way to it rounds to an end: nothing lies between."""
    for number in (0.0, -0.0, 5e-324, 1e-310, 0.1, 1.0, 2.0**60, -1.0, -5e-324):
        bound = function(number)
        assert bound > number
        assert float((Fraction(number) + Fraction(bound)) / 2) in (number, bound)


def test_the_next_float() -> None:
    check_next_up(next_up)
    assert next_up(math.inf) == math.inf
    caught(check_next_up, lambda number: number * (1 + 2 * UNIT))
    caught(check_next_up, lambda number: math.nextafter(number, 0.0))


def test_the_unit_roundoff_is_half_of_what_separates_one_from_the_next() -> None:
    assert next_up(1.0) == 1 + 2 * UNIT
    assert 1 + UNIT == 1.0
    assert next_up(0.0) + 1 == 1.0 < COVER


def exact_gamma(n: int) -> Fraction:
    return n * Fraction(UNIT) / (1 - n * Fraction(UNIT))


COUNTS = (1, 2, 3, 7, 100, 12345, 10**6, 2**26 - 1, 10**9, 2**43)


def check_gamma(function: Callable[[int], float]) -> None:
    for n in COUNTS:
        assert abs(Fraction(function(n)) - exact_gamma(n)) <= 2 * Fraction(UNIT) * exact_gamma(n)


def check_gamma_up(function: Callable[[int], float]) -> None:
    for n in COUNTS:
        ratio = Fraction(function(n)) / exact_gamma(n)
        assert 1 + 12 * Fraction(UNIT) <= ratio <= 1 + Fraction(1, 2**19)


def test_gamma_to_nearest_and_rounded_up() -> None:
    check_gamma(gamma)
    check_gamma_up(gamma_up)
    caught(check_gamma, lambda n: n * UNIT)
    caught(check_gamma, gamma_up)
    caught(check_gamma_up, gamma)


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=40))
def test_gamma_bounds_the_error_of_a_sum(numbers: list[float]) -> None:
    total = 0.0
    for number in numbers:
        total += number
    error = abs(Fraction(total) - sum(map(Fraction, numbers)))
    assert error <= Fraction(gamma_up(len(numbers) - 1)) * sum(abs(Fraction(number)) for number in numbers)


# -- bisection ---------------------------------------------------------------------------------------------------------


def check_bisect(function: Bisect) -> None:
    """Each number of calls and the two ends, for every place where a condition may change; the ends are not asked."""
    for size in (1, 2, 3, 10, 33):
        for last in range(size):
            asked: list[int] = []

            def holds(value: int, last: int = last, asked: list[int] = asked) -> bool:
                asked.append(value)
                return value <= last

            assert function(holds, 0, size, whole_midpoint) == (last, last + 1)
            assert len(asked) <= math.ceil(math.log2(size))
            assert all(0 < value < size for value in asked)
    for change in (0.1, 1 / 3, 0.7, 1e-12):
        assert function(lambda value, change=change: value <= change, 0.0, 1.0, midpoint) == (change, next_up(change))


def check_the_ends(function: Bisect) -> None:
    """Of a condition that is not monotone: the first end held, the second failed."""
    for seed in range(50):
        kinds = np.random.default_rng(seed).random(100) < 0.5
        low, high = function(lambda value, kinds=kinds: bool(kinds[value]), 0, 99, whole_midpoint)
        assert high == low + 1
        assert low == 0 or kinds[low]
        assert high == 99 or not kinds[high]


def upside_down(holds: Callable[[Any], bool], low: Any, high: Any, middle: Callable[..., Any]) -> tuple[Any, Any]:
    return bisect(lambda value: not holds(value), low, high, middle)


def one_off(holds: Callable[[Any], bool], low: Any, high: Any, middle: Callable[..., Any]) -> tuple[Any, Any]:
    low, high = bisect(holds, low, high, middle)
    return high, high


def test_bisection_finds_the_change_and_its_ends_were_asked() -> None:
    check_bisect(bisect)
    check_the_ends(bisect)
    for broken in (upside_down, one_off):
        caught(check_bisect, broken)
        caught(check_the_ends, broken)


def test_bisection_ends_where_no_number_fits_between(monkeypatch: pytest.MonkeyPatch) -> None:
    assert bisect(lambda value: False, 0.0, 1.0, midpoint) == (0.0, 2.0**-200)
    assert bisect(lambda value: True, 1.0, next_up(1.0), midpoint) == (1.0, next_up(1.0))
    monkeypatch.setattr(numeric, "HALVINGS", 20)
    caught(check_bisect, bisect)


# -- the Gaussian mechanism --------------------------------------------------------------------------------------------


def exact(epsilon: float, mu: float) -> mpmath.mpf:
    with mpmath.workdps(60):
        e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
        return mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)


def check_curve(function: Callable[[float, float], float]) -> None:
    """Never below the curve, and close to it where both forms are."""
    for mu in (1e-3, 0.02, 0.3, 1.0, 5.0):
        for epsilon in EPSILONS:
            value, true = function(epsilon, mu), exact(epsilon, mu)
            assert true <= value + 1e-300
            assert value == pytest.approx(float(true), rel=1e-8, abs=1e-300)


def check_small_mu(function: Callable[[float, float], float]) -> None:
    """Within ``UP``, and mu for mu < 10^-4, of the curve down to the smallest budgets."""
    for mu in (1e-15, 1e-9, 9e-5, 1e-4, 1e-3):
        for x in (0, 2, 8, 30):
            epsilon = mu * mu / 2 + x * mu
            true = exact(epsilon, mu)
            assert true <= function(epsilon, mu) <= true * (1 + 2 * UP + (mu if mu < 1e-4 else 0)) + mpmath.mpf(1e-305)


def difference(epsilon: float, mu: float) -> float:
    """The formula as it stands: rounding may lose all of it."""
    ends = [mpmath.ncdf(sign * mu / 2 - epsilon / mu) for sign in (1, -1)]
    return float(ends[0]) - math.exp(epsilon) * float(ends[1])


def swapped(epsilon: float, mu: float) -> float:
    return mills_delta(mu, epsilon) if epsilon else mills_delta(epsilon, mu)


def test_delta_is_the_exact_curve_from_above() -> None:
    check_curve(gaussian_delta)
    check_curve(mills_delta)
    check_small_mu(mills_delta)
    for broken in (difference, swapped, lambda epsilon, mu: mills_delta(epsilon, mu) * (1 - 2 * UP)):
        caught(check_curve, broken)
    caught(check_small_mu, gaussian_delta)  # safe there too, and not sharp: why there are two
    assert gaussian_delta(0.0, 0.0) == 0


def check_mu(function: Callable[[float, float], float]) -> None:
    for epsilon in EPSILONS:
        for delta in (1e-12, 1e-7, 1e-5, 0.3):
            mu = function(epsilon, delta)
            assert exact(epsilon, mu) <= delta
            assert exact(epsilon, mu * (1 + (1e-2 if delta < 1e-9 else 1e-6))) > delta


def test_mu_meets_its_target_and_hardly_more_would_not() -> None:
    check_mu(gaussian_mu)
    caught(check_mu, lambda epsilon, delta: gaussian_mu(epsilon, delta) * (1 + 1e-5))
    caught(check_mu, lambda epsilon, delta: gaussian_mu(epsilon, delta) * (1 - 2e-2))


def check_epsilon(function: Callable[[float, float], float]) -> None:
    for mu in (0.02, 0.3, 1.0, 5.0, 30.0):
        for delta in (1e-12, 1e-7, 1e-5):
            epsilon = function(mu, delta)
            assert exact(epsilon, mu) <= delta
            assert exact(epsilon * (1 - 1e-6), mu) > delta


def test_epsilon_meets_its_target_and_hardly_less_would_not() -> None:
    check_epsilon(gaussian_epsilon)
    caught(check_epsilon, lambda mu, delta: gaussian_epsilon(mu, delta) * (1 - 1e-7))
    caught(check_epsilon, lambda mu, delta: gaussian_epsilon(mu, delta) * (1 + 1e-5))
    assert gaussian_epsilon(1e-6, 1e-5) == 2.0**-200  # none is needed


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(1.0, 0.0), (1.0, 1.0), (-1.0, 0.1), (float("inf"), 0.1), (float("nan"), 0.1)]
)
def test_no_gaussian_gives_that(epsilon: float, delta: float) -> None:
    with pytest.raises(ConfigError, match="Gaussian noise needs"):
        gaussian_mu(epsilon, delta)


# -- labels and margins ------------------------------------------------------------------------------------------------

# From few values, so that ties are common.
LOGITS = [np.random.default_rng(j).choice([-1.5, 0.0, 1e-300, 0.25, 3.0], (60, j)) for j in (1, 2, 3, 5)]


def check_labels(function: Callable[[Any], Any]) -> None:
    for logits in LOGITS:
        every = [[0.0, *row] if len(row) == 1 else list(row) for row in logits]
        expected = [min(c for c, logit in enumerate(row) if logit == max(row)) for row in every]
        labels, tensors = function(logits), function(torch.from_numpy(logits))
        assert labels.dtype == np.int64
        assert tensors.dtype == torch.int64
        assert labels.tolist() == tensors.tolist() == expected


def last_of_equals(logits: Any) -> Any:
    classes = logits.shape[1]
    return labels_of(logits) if classes == 1 else classes - 1 - logits[:, list(range(classes))[::-1]].argmax(1)


def test_labels_are_the_first_of_the_greatest_in_both_libraries() -> None:
    check_labels(labels_of)
    caught(check_labels, lambda logits: (logits[:, 0] >= 0) * 1 if logits.shape[1] == 1 else logits.argmax(1))
    caught(check_labels, lambda logits: logits.argmax(1))
    caught(check_labels, last_of_equals)


def test_labels_of_nothing_and_of_what_is_no_number() -> None:
    assert labels_of(np.empty((0, 3))).tolist() == labels_of(np.empty((0, 1))).tolist() == []
    assert labels_of(np.array([[math.nan]])).tolist() == labels_of(torch.tensor([[math.nan]])).tolist() == [0]
    odd = np.array([[1.0, math.nan, math.inf], [-math.inf, -math.inf, -math.inf]])
    assert labels_of(odd).tolist() == labels_of(torch.from_numpy(odd)).tolist() == [1, 0]


def check_signed(function: Callable[[np.ndarray], np.ndarray]) -> None:
    for logits in LOGITS:
        margins = function(logits)
        for row, line in zip(logits, margins.T, strict=True):
            others = [max(v for i, v in enumerate(row) if i != c) for c in range(len(row))] if len(row) > 1 else []
            every = [value - other for value, other in zip(row, others, strict=False)]
            assert line.tolist() == (every[1:] if len(row) == 2 else every or row.tolist())


def check_margins(function: Callable[[np.ndarray], np.ndarray]) -> None:
    for logits in LOGITS:
        labels = labels_of(logits)
        for row, label, margin in zip(logits, labels, function(logits), strict=True):
            lead = abs(row[0]) if len(row) == 1 else row[label] - max(np.delete(row, label))
            assert margin == lead >= 0


def test_margins_are_leads_over_the_best_other() -> None:
    check_signed(signed_margins)
    check_margins(margins_of)
    caught(check_signed, lambda logits: logits.T - logits.max(axis=1))
    caught(check_signed, lambda logits: -signed_margins(logits))
    caught(check_margins, lambda logits: signed_margins(logits).max(axis=0))  # a negative logit's
    caught(check_margins, lambda logits: np.ptp(logits, axis=1))  # over the least, not the next
    assert margins_of(np.array([[1.0, 3.0, 2.5]])).tolist() == [0.5]
