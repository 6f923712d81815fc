"""The range that is proposed for a column of numbers: round ends around all but outliers."""

import math

import numpy as np

_RANGE_STEPS = 20
_TAIL_SHARE = 0.1  # of the distinct numbers, on each side of their middle
_OUTLIER_WIDTHS = 10.0  # widths of the middle between it and an outlier
_LEAST_DISTINCT = 13  # of fewer different numbers, which may be codes, none is an outlier
_MAX_OUTLIER_ROWS = 0.05  # share of the rows; more are no exceptions


def outliers(numbers: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return which numbers of a column lie so far from the others that a range should leave them
    out.

    A range is coded in equal parts (``agt.data.table``), 20 by default. So a range that reaches to
    one typing error, or to 9999 for "unknown", has nearly all other numbers in one part. A number
    is an outlier if it is farther from the middle 80 % of the distinct numbers than ten times
    their width. Distinct ones are taken so that neither a column that is 0 in most rows nor a
    frequent 9999 moves the middle.

    What is left out counts as the nearest end of the range, so no guarantee depends on this rule.

    Args:
        numbers: [n] the distinct numbers, finite, in any order.
        counts: [n] how many rows have each.

    Returns:
        [n] bool; nothing is an outlier where there are fewer than 13 numbers, or where more than
        5 % of the rows would have one (a file of such queries would not fit the range).
    """
    distinct = np.unique(numbers)
    none = np.zeros(len(numbers), dtype=bool)
    if len(distinct) < _LEAST_DISTINCT:
        return none
    last = len(distinct) - 1
    low = distinct[math.ceil(_TAIL_SHARE * last)]
    high = distinct[math.floor((1 - _TAIL_SHARE) * last)]
    with np.errstate(over="ignore"):  # an infinite distance is no outlier's
        reach = _OUTLIER_WIDTHS * (high - low)
        found: np.ndarray = (numbers < low - reach) | (numbers > high + reach)
    if counts[found].sum() > _MAX_OUTLIER_ROWS * counts.sum():
        return none
    return found


def round_range(numbers: np.ndarray, exact: bool = False) -> tuple[float, float]:
    """Return a range around numbers, [low, high], at multiples of a round step.

    Args:
        numbers: at least one, all finite.
        exact: the least and the greatest number are the range.
    """
    low = float(numbers.min())
    high = float(numbers.max())
    if low == high:
        return (min(low, 0.0), max(high, 0.0)) if low else (0.0, 1.0)
    step = (high - low) / _RANGE_STEPS
    if exact or not (math.isfinite(step) and step):
        return low, high
    power = 10.0 ** math.floor(math.log10(step))
    round_steps = [factor * power for factor in (1.0, 2.0, 5.0, 10.0)]
    step = next(round_step for round_step in round_steps if round_step >= step * (1 - 1e-9))
    rounded_low = _tidy(math.floor(low / step) * step)
    rounded_high = _tidy(math.ceil(high / step) * step)
    # digits beyond those of a double may be lost
    if rounded_low <= low < high <= rounded_high:
        return rounded_low, rounded_high
    return low, high


def _tidy(number: float) -> float:
    """Return a number without last digits of arithmetic: 0.3 for 0.30000000000000004."""
    return float(f"{number:.12g}") + 0.0


def number(value: float) -> str:
    """Return a number as a person writes it, and as a configuration reads it."""
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
