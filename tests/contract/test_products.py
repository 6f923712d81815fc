"""What every interval product owes (bounds/products.py), for each entry of the registry, alone and
with a kernel's parts.

Numbers are small multiples of 1/8, so that products, their sums and midpoints are exact in both
dtypes: containment and nesting are checked without tolerance, against exact rational arithmetic,
and a new entry inherits this suite.
"""

from collections.abc import Callable
from fractions import Fraction
from itertools import product as cartesian
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from synthetic import KERNELS, random_interval

from agt.bounds import products as interval_products
from agt.bounds.interval import Interval
from agt.bounds.products import EXACT, PRODUCTS, Bounds, Products
from agt.bounds.rounding import Rounding
from agt.errors import UnboundedError
from agt.kernels.select import pick_kernel
from agt.settings import ComputeConfig, TrainingConfig

Q = Fraction
WIDTH = 5
OUTPUTS = 4
# than the exact product, at most; a new entry adds its number
WIDER = {"exact": Q(1), "rump": Q(3, 2)}
FORMS = ("point", "nonnegative", "signed", "back")
eighths = st.integers(-40, 40).map(lambda i: i / 8)
intervals = st.tuples(eighths, eighths).map(sorted)
names = pytest.mark.parametrize("name", PRODUCTS)
kernels = pytest.mark.parametrize("kernel", [None, *KERNELS], ids=lambda kernel: kernel or "alone")
dtypes = pytest.mark.parametrize("dtype", ["float64", "float32"])


def products_of(name: str, kernel: str | None) -> Products:
    if kernel is None:
        return PRODUCTS[name]
    return pick_kernel(ComputeConfig(kernel=kernel)).products(name)  # type: ignore[arg-type]


def exact_dot(x: list[list[float]], w: list[list[float]]) -> tuple[Fraction, Fraction]:
    """The least and the greatest x . w, by brute force over the corners of each term."""
    terms = [[Q(a) * Q(b) for a, b in cartesian(xi, wi)] for xi, wi in zip(x, w, strict=True)]
    return sum(map(min, terms), Q(0)), sum(map(max, terms), Q(0))


def as_interval(rows: list[list[float]]) -> Interval:
    """[[l, u], ...] -> [1, 1, n]."""
    ends = torch.tensor(rows, dtype=torch.float64)
    return Interval(ends[None, None, :, 0], ends[None, None, :, 1])


def drawn(rng: np.random.Generator, within: Interval) -> torch.Tensor:
    """A multiple of 1/8 in each interval, ends as often as others."""
    steps = ((within.upper - within.lower) * 8).to(torch.int64).numpy()
    share = np.where(
        rng.random(steps.shape) < 0.5,
        steps * rng.integers(0, 2, steps.shape),
        rng.integers(0, steps + 1),
    )
    return within.lower + torch.from_numpy(share).to(within.lower.dtype) / 8


def operands(rng: np.random.Generator, form: str, dtype: str) -> tuple[Interval, Interval]:
    """x or d [2, 20, WIDTH] and weights [2, OUTPUTS, WIDTH]."""
    x, w = (
        Interval(
            *(
                torch.from_numpy(e).to(getattr(torch, dtype)) / 8
                for e in np.sort(rng.integers(-40, 41, (2, 2, *s)), 0)
            )
        )
        for s in ((20, WIDTH), (OUTPUTS, WIDTH))
    )
    if form == "point":
        x = Interval.point(x.lower[:1])
    if form == "nonnegative":
        x = Interval(x.lower.abs(), x.lower.abs() + (x.upper - x.lower))
    return x, w


def multiply(kind: Products, form: str, x: Interval, w: Interval) -> Bounds:
    return (kind.backward if form == "back" else kind.forward)(x, w)


def violations(kind: Products, form: str, dtype: str) -> tuple[int, int]:
    """(products of sampled values outside the bounds, bounds of inner intervals outside them)."""
    rng = np.random.default_rng(1)
    outside = 0
    unnested = 0
    x, w = operands(rng, form, dtype)
    lower, upper = multiply(kind, form, x, w)
    for _ in range(40):
        values = [drawn(rng, x), drawn(rng, w)]
        value = values[0] @ values[1].mT
        outside += int((~((lower <= value) & (value <= upper))).sum())
        others = [drawn(rng, x), drawn(rng, w)]
        inner = [
            Interval(torch.minimum(a, b), torch.maximum(a, b))
            for a, b in zip(values, others, strict=True)
        ]
        low, high = multiply(kind, form, x if form == "point" else inner[0], inner[1])
        unnested += int((low < lower).sum() + (high > upper).sum())
    return outside, unnested


# -- the contract


def test_the_settings_the_registry_and_this_suite_name_the_same_products() -> None:
    assert (
        set(get_args(TrainingConfig.__dataclass_fields__["product"].type))
        == set(PRODUCTS)
        == set(WIDER)
    )


@dtypes
@pytest.mark.parametrize("form", FORMS)
@kernels
@names
def test_products_hold_what_is_multiplied_and_grow_by_inclusion(
    name: str, kernel: str | None, form: str, dtype: str
) -> None:
    assert violations(products_of(name, kernel), form, dtype) == (0, 0)


@kernels
@names
@given(terms=st.lists(st.tuples(intervals, intervals), min_size=1, max_size=4))
def test_products_hold_the_exact_one_and_are_little_wider(
    name: str, kernel: str | None, terms: list[tuple[list[float], list[float]]]
) -> None:
    kind = products_of(name, kernel)
    x = [t[0] for t in terms]
    w = [t[1] for t in terms]
    low, high = exact_dot(x, w)
    for form in ("signed", "back"):
        lower, upper = (
            Q(end.item()) for end in multiply(kind, form, as_interval(x), as_interval(w))
        )
        assert lower <= low <= high <= upper
        assert upper - lower <= WIDER[name] * (high - low)
    point = [[t[0]] * 2 for t in x]
    lower, upper = kind.forward(Interval.point(as_interval(point).lower), as_interval(w))
    assert (Q(lower.item()), Q(upper.item())) == exact_dot(point, w), "a point has one exact form"


@kernels
@dtypes
@names
@pytest.mark.parametrize("shared", [False, True], ids=["x per k", "x shared"])
def test_kernels_agree(name: str, dtype: str, kernel: str | None, shared: bool) -> None:
    """Up to the order of sums, which the widening covers; in float64 and float32, of every
    shape.
    """
    rng = np.random.default_rng(0)
    for n, width, outputs in ((1, 1, 1), (3, 5, 2), (150, 9, 33)):
        x = random_interval(rng, 1 if shared else 3, n, width, dtype=dtype)
        w = random_interval(rng, 3, outputs, width, dtype=dtype)
        for a, b in zip(
            products_of(name, kernel).forward(x, w), PRODUCTS[name].forward(x, w), strict=True
        ):
            assert a.dtype == b.dtype
            torch.testing.assert_close(a, b, rtol=0, atol=1e-12 if dtype == "float64" else 1e-4)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_record_has_the_same_corner_product_alone_and_in_company(kernel: str) -> None:
    """Fixed order of summation: the kernels' corner products agree to the last bit whatever the
    batch.
    """
    rng = np.random.default_rng(3)
    corner_product = products_of("exact", kernel).corners
    x = random_interval(rng, 2, 131, 37)
    w = random_interval(rng, 2, 19, 37)
    many = corner_product(x, w)
    for row in range(0, 131, 13):
        for a, b in zip(corner_product(x[:, row : row + 1], w), many, strict=True):
            assert torch.equal(a, b[:, row : row + 1])


def test_in_single_precision_corner_products_are_summed_in_double() -> None:
    """Rounded once, at the end: the terms' own sums in float32, as of the reference, are further
    away.
    """
    rng = np.random.default_rng(4)
    x, w = (random_interval(rng, 2, rows, 200, dtype="float32") for rows in (40, 24))
    exact = interval_products.linear_corners(x.double(), w.double())
    far = {
        name: max(
            float(((a.double() - b).abs() / b.abs()).max())
            for a, b in zip(ends, exact, strict=True)
        )
        for name, ends in (
            ("cpu", products_of("exact", "cpu").corners(x, w)),
            ("reference", interval_products.linear_corners(x, w)),
        )
    }
    assert far["cpu"] <= 2.0**-24 * (1 + 1e-6) < far["reference"]


@kernels
@dtypes
@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_what_is_no_number_is_refused_by_the_widening(
    kernel: str | None, dtype: str, number: float
) -> None:
    """A kernel that sorts inputs by their signs leaves a NaN out: tau, made of the same inputs,
    does not.
    """
    rng = np.random.default_rng(5)
    x, w = (random_interval(rng, 1, rows, 20, dtype=dtype) for rows in (3, 18))
    wrong = x.lower.clone()
    wrong[0, 1, 7] = number
    x = Interval.unchecked(wrong, wrong.clone())
    rounding = Rounding.for_grid([0], wrong.dtype, wrong.device)
    with pytest.raises(UnboundedError):
        rounding.widen(products_of("exact", kernel).corners(x, w), rounding.dot_error(x, w))


def test_the_nonnegative_form_is_used_for_nonnegative_inputs_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used = []
    original = interval_products.linear_nonnegative
    monkeypatch.setattr(
        interval_products, "linear_nonnegative", lambda x, w: used.append(1) or original(x, w)
    )
    w = as_interval([[-1, 1], [-2, 3]])
    EXACT.forward(as_interval([[0, 1], [2, 3]]), w, nonnegative=True)
    assert used
    used.clear()
    lower, upper = EXACT.forward(as_interval([[-1, 1], [2, 3]]), w)
    assert not used
    assert (lower.item(), upper.item()) == (-7, 10)
    EXACT.forward(as_interval([[0, 1], [2, 3]]), w)
    assert not used, "what the numbers happen to be decides nothing"
    PRODUCTS["rump"].forward(as_interval([[0, 1], [2, 3]]), w, nonnegative=True)
    assert not used


# -- broken on purpose


def ends_with_ends(x: Interval, w: Interval) -> Bounds:
    """Lower times lower, upper times upper, whatever the signs."""
    ends = x.lower @ w.lower.mT, x.upper @ w.upper.mT
    return torch.minimum(*ends), torch.maximum(*ends)


def without_the_product_of_radii(x: Interval, w: Interval) -> Bounds:
    """Rump's product less its last term."""
    middles, radii = zip(
        *(((i.lower + i.upper) / 2, (i.upper - i.lower) / 2) for i in (x, w)), strict=True
    )
    centre = middles[0] @ middles[1].mT
    spread = middles[0].abs() @ radii[1].mT + radii[0] @ middles[1].abs().mT
    return centre - spread, centre + spread


def wider_where_narrower(x: Interval, w: Interval) -> Bounds:
    """A product that gives away more the narrower its operands are: sound, and useless for
    privacy.
    """
    lower, upper = interval_products.linear_corners(x, w)
    slack = 40 / (1 + (w.upper - w.lower).sum())
    return lower - slack, upper + slack


@dtypes
@pytest.mark.parametrize("form", ["signed", "back"])
@pytest.mark.parametrize(
    ("broken", "contains"),
    [
        (interval_products.linear_nonnegative, False),
        (ends_with_ends, False),
        (without_the_product_of_radii, False),
        (wider_where_narrower, True),
    ],
)
def test_the_checks_catch(
    broken: Callable[[Interval, Interval], Bounds], contains: bool, form: str, dtype: str
) -> None:
    outside, unnested = violations(Products(broken), form, dtype)
    assert (outside == 0) == contains
    assert unnested > 0 or not contains
