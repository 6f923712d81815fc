"""Interval products against exact rational arithmetic, and Rump's against the exact ones."""

from fractions import Fraction
from itertools import product as cartesian

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from synthetic import KERNELS, random_interval, sample

from agt.bounds import products
from agt.bounds.interval import Interval
from agt.bounds.products import EXACT, Products
from agt.kernels.select import pick_kernel
from agt.settings import ComputeConfig

Q = Fraction
eighths = st.integers(-40, 40).map(lambda i: i / 8)  # products and their sums of a few terms are exact in float64
intervals = st.tuples(eighths, eighths).map(sorted)


def exact_dot(x: list[list[float]], w: list[list[float]]) -> tuple[Fraction, Fraction]:
    """The least and the greatest x . w, by brute force over the corners of each term."""
    terms = [[Q(a) * Q(b) for a, b in cartesian(xi, wi)] for xi, wi in zip(x, w, strict=True)]
    return sum(map(min, terms), Q(0)), sum(map(max, terms), Q(0))


def as_interval(rows: list[list[float]]) -> Interval:
    """[[l, u], ...] -> [1, 1, n]."""
    ends = torch.tensor(rows, dtype=torch.float64)
    return Interval(ends[None, None, :, 0], ends[None, None, :, 1])


@given(st.lists(st.tuples(intervals, intervals), min_size=1, max_size=4))
def test_exact_products_are_exact(terms: list[tuple[list[float], list[float]]]) -> None:
    x, w = [t[0] for t in terms], [t[1] for t in terms]
    expected = exact_dot(x, w)
    results = {"corners": products.linear_corners(as_interval(x), as_interval(w))}
    for kernel in KERNELS:
        results[kernel] = (
            pick_kernel(ComputeConfig(kernel=kernel)).products("exact").corners(as_interval(x), as_interval(w))
        )  # type: ignore[arg-type]
    if min(min(t) for t in x) >= 0:
        results["nonnegative"] = products.linear_nonnegative(as_interval(x), as_interval(w))
    for name, (lower, upper) in results.items():
        assert (Q(lower.item()), Q(upper.item())) == expected, name
    point = torch.tensor([[t[0] for t in x]], dtype=torch.float64)[None]
    lower, upper = products.linear_point(point, as_interval(w))
    assert (Q(lower.item()), Q(upper.item())) == exact_dot([[t[0]] for t in x], w)


@given(st.lists(st.tuples(intervals, intervals), min_size=1, max_size=4))
def test_rump_contains_the_exact_product_and_is_at_most_half_as_wide_again(
    terms: list[tuple[list[float], list[float]]],
) -> None:
    x, w = [t[0] for t in terms], [t[1] for t in terms]
    low, high = exact_dot(x, w)
    lower, upper = products.linear_rump(as_interval(x), as_interval(w))
    assert Q(lower.item()) <= low
    assert high <= Q(upper.item())
    assert Q(upper.item()) - Q(lower.item()) <= Q(3, 2) * (high - low)


@given(intervals, intervals)
def test_corners_of_two_numbers(a: list[float], b: list[float]) -> None:
    lower, upper = products.corners(as_interval([a]), as_interval([b]))
    assert (Q(lower.item()), Q(upper.item())) == exact_dot([a], [b])


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("shared", [False, True], ids=["x per k", "x shared"])
def test_the_kernels_corner_products_agree(kernel: str, dtype: str, shared: bool) -> None:
    rng = np.random.default_rng(0)
    for n, width, outputs in ((1, 1, 1), (3, 5, 2), (150, 9, 33)):
        x = random_interval(rng, 1 if shared else 3, n, width, dtype=dtype)
        w = random_interval(rng, 3, outputs, width, dtype=dtype)
        ours = pick_kernel(ComputeConfig(kernel=kernel)).products("exact").corners(x, w)  # type: ignore[arg-type]
        for a, b in zip(ours, products.linear_corners(x, w), strict=True):
            assert a.dtype == b.dtype
            torch.testing.assert_close(a, b, rtol=0, atol=1e-12 if dtype == "float64" else 1e-4)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_record_has_the_same_corner_product_alone_and_in_company(kernel: str) -> None:
    """Fixed order of summation: the kernels' corner products agree to the last bit whatever the batch."""
    rng = np.random.default_rng(3)
    multiply = pick_kernel(ComputeConfig(kernel=kernel)).products("exact").corners  # type: ignore[arg-type]
    x, w = random_interval(rng, 2, 131, 37), random_interval(rng, 2, 19, 37)
    many = multiply(x, w)
    for row in range(0, 131, 13):
        for a, b in zip(multiply(x[:, row : row + 1], w), many, strict=True):
            assert torch.equal(a, b[:, row : row + 1])


@pytest.mark.parametrize(
    "kind", [EXACT, Products(rump=True), pick_kernel(ComputeConfig()).products("exact")], ids=["exact", "rump", "cpu"]
)
@pytest.mark.parametrize("form", ["point", "nonnegative", "signed", "back"])
def test_products_contain_samples_and_grow_by_inclusion(kind: Products, form: str) -> None:
    rng = np.random.default_rng(1)
    slack = 1e-12  # these bounds are not widened yet
    x, w = random_interval(rng, 1, 40, 6), random_interval(rng, 1, 5, 6)
    if form == "point":
        x = Interval.point(x.lower)
    if form == "nonnegative":
        x = Interval(x.lower.clamp(min=0), x.upper.clamp(min=0))
    multiply = kind.back if form == "back" else kind.forward
    lower, upper = multiply(x, w)
    for index in range(50):
        corner = index % 2 == 0
        value = sample(rng, x, corner) @ sample(rng, w, corner).mT
        assert ((lower - slack <= value) & (value <= upper + slack)).all()
        inner_w = _inside(rng, w)
        inner = multiply(x if form == "point" else _inside(rng, x), inner_w)
        assert ((lower - slack <= inner[0]) & (inner[1] <= upper + slack)).all()


def _inside(rng: np.random.Generator, interval: Interval) -> Interval:
    ends = sample(rng, interval), sample(rng, interval)
    return Interval(torch.minimum(*ends), torch.maximum(*ends))


def test_the_nonnegative_form_is_used_for_nonnegative_inputs_only(monkeypatch: pytest.MonkeyPatch) -> None:
    used = []
    original = products.linear_nonnegative
    monkeypatch.setattr(products, "linear_nonnegative", lambda x, w: used.append(1) or original(x, w))
    w = as_interval([[-1, 1], [-2, 3]])
    EXACT.forward(as_interval([[0, 1], [2, 3]]), w)
    assert used
    used.clear()
    lower, upper = EXACT.forward(as_interval([[-1, 1], [2, 3]]), w)
    assert not used
    assert (lower.item(), upper.item()) == (-7, 10)
    Products(rump=True).forward(as_interval([[0, 1], [2, 3]]), w)
    assert not used
