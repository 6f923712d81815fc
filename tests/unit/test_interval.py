"""The Interval value: what it refuses, and its few operations."""

import pytest
import torch

from agt.bounds.interval import Interval
from agt.errors import UnsoundError


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize(
    ("lower", "upper"),
    [
        (tensor(0, 1), tensor(0, 0.5)),
        (tensor(0, float("nan")), tensor(1, 1)),
        (tensor(0, 0), tensor(1, float("nan"))),
        (tensor(0, float("-inf")), tensor(1, 1)),
        (tensor(0, 0), tensor(float("inf"), 1)),
        (tensor(0, float("inf")), tensor(1, float("inf"))),
        (tensor(float("-inf"), 0), tensor(float("-inf"), 0)),
        (tensor(-1.7e308), tensor(1.7e308)),  # finite, and its width is not: refused rather than trusted
        (tensor(0, 0), tensor(1)),
        (tensor(0), tensor(1).float()),
        (tensor(1 + 2**-52), tensor(1)),
    ],
)
def test_what_is_no_interval_is_refused(lower: torch.Tensor, upper: torch.Tensor) -> None:
    with pytest.raises(UnsoundError):
        Interval(lower, upper)


@pytest.mark.parametrize("broken", [float("nan"), float("inf"), float("-inf")])
def test_a_point_that_is_not_finite_is_refused(broken: float) -> None:
    with pytest.raises(UnsoundError):
        Interval.point(tensor(0, broken, 1))


@pytest.mark.parametrize("size", [1, 7, 64, 1000])
@pytest.mark.parametrize("at", [0, -1])
def test_nan_is_found_wherever_it_stands(size: int, at: int) -> None:
    """The check is one vectorised pass: the last, incomplete vector counts too."""
    upper = torch.ones(size)
    upper[at] = float("nan")
    with pytest.raises(UnsoundError):
        Interval(torch.zeros(size), upper)


def test_an_empty_interval_holds_everything() -> None:
    assert Interval(torch.zeros(0, 3), torch.zeros(0, 3)).shape == (0, 3)


def test_operations() -> None:
    a, b = Interval(tensor(-3, 1), tensor(2, 4)), Interval(tensor(-1, 0), tensor(1, 5))
    assert (a - b).lower.tolist() == [-4, -4]
    assert (a - b).upper.tolist() == [3, 4]
    assert a.magnitude().tolist() == [3, 4]
    assert a.inf_norm().tolist() == [4]
    assert Interval(tensor(-3, -2), tensor(-1, -1)).inf_norm().tolist() == [3]
    assert a[1:].lower.tolist() == [1]


@pytest.mark.parametrize(
    ("value", "held"), [((-3, 4), True), ((2, 1), True), ((2.5, 1), False), ((float("nan"), 1), False)]
)
def test_contains(value: tuple[float, ...], held: bool) -> None:
    assert Interval(tensor(-3, 1), tensor(2, 4)).contains(tensor(*value)) is held


def test_points_stay_points() -> None:
    point = Interval.point(tensor(1, -2).float())
    assert point.is_point
    assert point[:1].is_point
    assert point.double().is_point
    assert point.double().lower.dtype == torch.float64
    assert point.magnitude().tolist() == [1, 2]
    assert not Interval(tensor(1), tensor(1)).is_point
