"""Ranges that are proposed for columns of numbers."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from agt_cli.runs.ranges import outliers, round_range

AGES = np.arange(17.0, 91.0)


def found(numbers: list[float], counts: list[int]) -> list[float]:
    column = np.append(AGES, numbers)
    rows = np.append(np.full(len(AGES), 100), counts)
    return column[outliers(column, rows)].tolist()


@pytest.mark.parametrize("number", [1e9, -1e9, 9999.0, 999.0, -999.0, 1.7e308, -1.7e308])
def test_one_number_far_from_all_others_is_an_outlier(number: float) -> None:
    assert found([number], [1]) == [number]


@pytest.mark.parametrize("number", [0.0, 120.0, 150.0, -1.0, 99.0])
def test_a_number_near_the_others_is_none(number: float) -> None:
    assert found([number], [1]) == []


def test_an_outlier_in_many_rows_belongs_to_the_range() -> None:
    few_rows = 300  # of 7,700
    many_rows = 500
    assert found([9999.0], [few_rows]) == [9999.0]
    assert found([9999.0], [many_rows]) == [], "queries with it would not fit the range"


def test_zeros_in_nearly_all_rows_make_no_outliers_of_the_others() -> None:
    gains = np.append(0.0, np.round(np.exp(np.linspace(np.log(114), np.log(99999), 118))))
    counts = np.append(30_000, np.full(118, 20))
    assert not outliers(gains, counts).any()


def test_of_few_different_numbers_none_is_an_outlier() -> None:
    codes = np.append(np.arange(11.0), 1e9)
    assert not outliers(codes, np.full(12, 100)).any()


@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=60, unique=True), st.data())
@settings(max_examples=200, deadline=None)
def test_never_more_than_a_twentieth_of_the_rows_is_outside_of_the_range(
    values: list[float], data: st.DataObject
) -> None:
    numbers = np.array(values)
    counts = np.array(
        data.draw(st.lists(st.integers(1, 50), min_size=len(values), max_size=len(values)))
    )
    low, high = round_range(numbers[~outliers(numbers, counts)])
    outside = counts[(numbers < low) | (numbers > high)].sum()
    assert outside <= 0.05 * counts.sum()


@given(
    st.lists(
        st.floats(-1e12, 1e12, allow_subnormal=False).map(lambda x: float(f"{x:.6g}")),
        min_size=2,
        max_size=80,
        unique=True,
    )
)
@settings(max_examples=60, deadline=None)
def test_a_range_ends_beyond_every_number_but_0(values: list[float]) -> None:
    low, high = round_range(np.array(values))
    assert low < min(values) or low == min(values) == 0 or {*values} <= {0, 1}
    assert high > max(values) or high == max(values) == 0 or {*values} <= {0, 1}


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        (range(14), (0, 20)),
        ([19_200, 250_000, 1_100_000], (0, 1_200_000)),
        ([17, 40, 90], (10, 100)),
        ([0.2, 1.0, 5.01], (0, 5.5)),
        ([-13, -2], (-20, 0)),
        ([0, 1], (0, 1)),
        ([7], (0, 10)),
        ([0.5, 1.0], (0.45, 1.05)),
    ],
)
def test_a_range_is_rounded_beyond_its_extremes(
    numbers: Any, expected: tuple[float, float]
) -> None:
    assert round_range(np.array([*numbers], dtype=float)) == expected


@pytest.mark.parametrize(
    "numbers", [1732770000123456.0 + np.arange(300), np.arange(5) * 5e-324, [-1e308, 1e308]]
)
def test_a_range_beyond_the_digits_of_a_double_holds_every_number(numbers: np.ndarray) -> None:
    low, high = round_range(np.asarray(numbers, dtype=float))
    assert low <= min(numbers) < max(numbers) <= high
