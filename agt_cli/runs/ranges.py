"""The range that is proposed for a column of numbers: round ends around all but outliers."""

import math
import sys

import numpy as np

_RANGE_STEPS = 20
_MIN_WHOLE_STEP = 10.0  # to which whole numbers are rounded
_TAIL_SHARE = 0.1  # of the distinct numbers, on each side of their middle
_OUTLIER_WIDTHS = 10.0  # widths of the middle between it and an outlier
_MIN_DISTINCT = 13  # of fewer different numbers, which may be codes, none is an outlier
_MAX_OUTLIER_ROWS = 0.05  # share of the rows; more are no exceptions


def outliers(numbers: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return which numbers of a column lie so far from the others that a range should leave them
    out.

    A range is coded in equal parts (``agt.data.encoding``), 20 by default. So a range that reaches
    to one typing error, or to 9999 for "unknown", has nearly all other numbers in one part. A
    number is an outlier if it is farther from the middle 80 % of the distinct numbers than ten
    times their width. Distinct ones are taken so that neither a column that is 0 in most rows nor a
    frequent 9999 moves the middle.

    What is left out is replaced by the nearest end of the range, so no guarantee depends on this
    rule.

    Args:
        numbers: [n] the distinct numbers, finite, in any order.
        counts: [n] how many rows have each.

    Returns:
        [n] bool; nothing is an outlier where there are fewer than 13 numbers, or where more than
        5 % of the rows would have one (a file of such queries would not fit the range).
    """
    distinct = np.unique(numbers)
    none = np.zeros(len(numbers), dtype=bool)
    if len(distinct) < _MIN_DISTINCT:
        return none
    last = len(distinct) - 1
    low = distinct[math.ceil(_TAIL_SHARE * last)]
    high = distinct[math.floor((1 - _TAIL_SHARE) * last)]
    with np.errstate(over="ignore"):  # an infinite distance is no outlier's
        max_distance = _OUTLIER_WIDTHS * (high - low)
        is_outlier: np.ndarray = (numbers < low - max_distance) | (numbers > high + max_distance)
    if counts[is_outlier].sum() > _MAX_OUTLIER_ROWS * counts.sum():
        return none
    return is_outlier


def round_range(numbers: np.ndarray, exact: bool = False) -> tuple[float, float]:
    """Return a range around numbers, [low, high], at multiples of a round step.

    No end but 0 is one of the numbers, because an end that one record alone has would reveal this
    record. Whole numbers are rounded to tens at least, so 0 to 13 become [0, 20].

    Args:
        numbers: the numbers, at least one, all finite.
        exact: the least and the greatest number are the range.

    Returns:
        The range; [0, 1] of numbers that are all 0 or 1. The numbers' own ends if these are
        farther apart than the largest double.
    """
    low = float(numbers.min())
    high = float(numbers.max())
    if np.isin(numbers, (0.0, 1.0)).all():
        return 0.0, 1.0
    if low == high:
        low = min(low, 0.0)
        high = max(high, 0.0)
    width = high - low
    if exact or not math.isfinite(width):
        return low, high
    step = _round_step(width / _RANGE_STEPS)
    if (numbers == np.rint(numbers)).all():
        step = max(step, _MIN_WHOLE_STEP)
    rounded_low = low if low == 0 else _drop_rounding_digits((math.ceil(low / step) - 1) * step)
    rounded_high = (
        high if high == 0 else _drop_rounding_digits((math.floor(high / step) + 1) * step)
    )
    if _is_range_inside(rounded_low, rounded_high, low, high):
        return rounded_low, rounded_high
    # Digits beyond those of a double were lost.
    wide_low = low if low == 0 else low - width
    wide_high = high if high == 0 else high + width
    return wide_low, wide_high


def _round_step(min_step: float) -> float:
    """Return the first of 1, 2, 5, 10, 20, ... or of their tenths that is not below ``min_step``.

    Returns:
        The step; ``min_step`` itself where it is too small to be rounded.
    """
    if min_step < sys.float_info.min:
        return sys.float_info.min
    power = 10.0 ** math.floor(math.log10(min_step))
    round_steps = [factor * power for factor in (1.0, 2.0, 5.0, 10.0)]
    return next(step for step in round_steps if step >= min_step * (1 - 1e-9))


def _is_range_inside(rounded_low: float, rounded_high: float, low: float, high: float) -> bool:
    """Return whether a rounded range ends beyond both ends of another, 0 excepted."""
    low_is_beyond = rounded_low < low or rounded_low == low == 0
    high_is_beyond = rounded_high > high or rounded_high == high == 0
    return low_is_beyond and high_is_beyond and math.isfinite(rounded_high - rounded_low)


def _drop_rounding_digits(number: float) -> float:
    """Return a number without last digits of arithmetic: 0.3 for 0.30000000000000004."""
    return float(f"{number:.12g}") + 0.0


def number(value: float) -> str:
    """Return a number as a person writes it, and as a configuration reads it."""
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
