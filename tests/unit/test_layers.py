"""Bound rules, one by one: exact arithmetic for tiny cases, samples for larger ones, and what has no rule."""

from collections import OrderedDict
from fractions import Fraction

import numpy as np
import pytest
import torch
from synthetic import random_interval
from torch import nn

from agt.bounds.interval import Interval
from agt.bounds.rounding import EXACT, PRODUCTS, Products, Rounding
from agt.bounds.rules import LinearRule, ReluRule, rules_for
from agt.errors import ConfigError

DTYPES = ("float64", "float32")


def rounding(*ks: int, dtype: str = "float64") -> Rounding:
    return Rounding.of(ks, getattr(torch, dtype), torch.device("cpu"))


def exact_linear(x: Interval, w: Interval, b: Interval) -> tuple[list[Fraction], list[Fraction]]:
    """Bounds of each output in rational arithmetic, for the numbers as given. x [1, n, in], w [1, out, in], b [1, out]."""
    lows, highs = [], []
    for s in range(x.shape[1]):
        for j in range(w.shape[1]):
            low, high = Fraction(b.lower[0, j].item()), Fraction(b.upper[0, j].item())
            for i in range(w.shape[2]):
                ends = [
                    Fraction(t[0, s, i].item()) * Fraction(v[0, j, i].item())
                    for t in (x.lower, x.upper)
                    for v in (w.lower, w.upper)
                ]
                low, high = low + min(ends), high + max(ends)
            lows.append(low)
            highs.append(high)
    return lows, highs


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", ["point", "nonnegative", "signed"])
@pytest.mark.parametrize("scale", [1.0, 1e-150, 1e15])
def test_linear_forward_holds_the_exact_bounds_and_little_more(form: str, dtype: str, scale: float) -> None:
    if dtype == "float32" and scale == 1e-150:
        scale = 1e-36
    rng = np.random.default_rng(0)
    x, w, b = (random_interval(rng, 1, *s, dtype=dtype) for s in ((4, 3), (2, 3), (2,)))
    x = Interval(x.lower * scale, x.upper * scale)
    if form == "point":
        x = Interval.point(x.lower)
    if form == "nonnegative":
        x = Interval(x.lower.clamp(min=0), x.upper.clamp(min=0))
    bound = LinearRule("0", True).bound(x, {"0.weight": w, "0.bias": b}, rounding(0, dtype=dtype), EXACT)
    lows, highs = exact_linear(x, w, b)
    slack = 2000 * torch.finfo(w.lower.dtype).eps * max(scale, 1)
    for low, high, lower, upper in zip(
        lows, highs, bound.lower.flatten().tolist(), bound.upper.flatten().tolist(), strict=True
    ):
        assert low - Fraction(slack) <= Fraction(lower) <= low
        assert high <= Fraction(upper) <= high + Fraction(slack)


def test_relus_nominal_derivative_at_0_is_0() -> None:
    x = torch.tensor([[-1.0, 0.0, -0.0, 1e-300]], dtype=torch.float64)
    assert ReluRule("1").nominal_back(torch.ones_like(x), x, {}).tolist() == [[0, 0, 0, 1]]


# -- reading a head ------------------------------------------------------------------------------------------------------


class Doubled(nn.Linear):
    """A subclass may compute something else."""


def linear() -> nn.Linear:
    return nn.Linear(2, 2)


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (nn.Sequential(linear(), nn.Mish()), "no bound rule for layer 1 .Mish."),
        (nn.Sequential(linear(), nn.ReLU6(), linear()), "did you mean 'ReLU'"),
        (nn.Sequential(Doubled(2, 2)), "no bound rule"),
        (nn.Sequential(nn.Sequential(linear())), "no bound rule"),
        (
            nn.Sequential(linear(), nn.Flatten(), linear()),
            r"layer 1 .Flatten. takes images, and layer 0 .Linear. leaves rows",
        ),
        (nn.Sequential(nn.Flatten(), nn.AvgPool2d(2), linear()), r"layer 0 .Flatten. leaves rows: put nn.Unflatten"),
        (
            nn.Sequential(nn.AvgPool2d(2), nn.AvgPool2d(2), linear()),
            r"layer 2 .Linear. takes rows, and layer 1 .AvgPool2d. leaves",
        ),
        (
            nn.Sequential(nn.Conv2d(1, 1, 2), nn.ReLU(), linear()),
            r"layer 1 .ReLU. leaves images: put nn.Flatten\(\) between",
        ),
        (nn.Sequential(nn.Flatten(), nn.Tanh(), nn.Conv2d(1, 1, 2)), r"layer 2 .Conv2d. takes images"),
        (nn.Sequential(nn.Flatten(2), linear()), r"use plain nn.Flatten"),
        (nn.Sequential(nn.Unflatten(1, (1, -1, 2)), nn.Flatten(), linear()), r"layer 0 .Unflatten. is supported as"),
        (nn.Sequential(nn.utils.parametrizations.weight_norm(linear())), "no bound rule"),
    ],
)
def test_a_layer_without_a_rule_is_refused(head: nn.Sequential, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        rules_for(head)


@pytest.mark.parametrize("products", PRODUCTS.values(), ids=PRODUCTS)
def test_convolutions_take_no_images_as_well(products: Products) -> None:
    """As of an empty file of queries."""
    rule = rules_for(nn.Sequential(nn.Conv2d(2, 4, 2, groups=2)))[0]
    box = {
        "0.weight": random_interval(np.random.default_rng(0), 2, 4, 1, 2, 2),
        "0.bias": random_interval(np.random.default_rng(1), 2, 4),
    }
    x = torch.zeros(0, 2, 3, 3, dtype=torch.float64)
    point = {name: interval.lower[0] for name, interval in box.items()}
    assert rule.nominal(x, point).shape == (0, 4, 2, 2)
    bound = rule.bound(Interval.point(x[None]), box, rounding(0, 1), products)
    assert bound.shape == (2, 0, 4, 2, 2)
    assert rule.bound_back(bound, Interval.point(x[None]), box, rounding(0, 1), products).shape == (2, 0, 2, 3, 3)


def test_a_layer_used_twice_counts_twice() -> None:
    relu = nn.ReLU()
    rules = rules_for(nn.Sequential(linear(), relu, linear(), relu, linear()))
    assert [type(r) for r in rules] == [LinearRule, ReluRule] * 2 + [LinearRule]


def test_shared_parameters_are_refused() -> None:
    shared, tied, other = linear(), linear(), linear()
    tied.weight = other.weight
    for head in (nn.Sequential(shared, nn.ReLU(), shared), nn.Sequential(tied, nn.ReLU(), other)):
        with pytest.raises(ConfigError, match="share a parameter"):
            rules_for(head)


def test_names_come_from_the_head() -> None:
    head = nn.Sequential(OrderedDict(first=linear(), act=nn.ReLU(), last=nn.Linear(2, 2, bias=False)))
    assert rules_for(head) == (LinearRule("first", True), ReluRule("act"), LinearRule("last", False, nonnegative=True))
