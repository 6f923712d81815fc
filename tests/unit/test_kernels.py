"""The kernels' contract: every kernel gives the integers that brute force gives, whatever the
split and the threads.
"""

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from synthetic import KERNELS, random_interval, refused, sample

from agt.bounds.interval import Interval, ReluGradient, ReluOutput, recording_overflow
from agt.bounds.products import (
    PRODUCTS,
    Products,
    add_bias,
    affine_point,
    linear_corners,
    linear_nonnegative,
    linear_point,
    linear_relu_backward,
    relu_backward,
)
from agt.bounds.rounding import widen_by
from agt.errors import ConfigError, UnsoundError
from agt.kernels import cpu_compiled, select, selftest
from agt.kernels.cpu import CASES_OF, CpuKernel
from agt.kernels.reference import BoundSelection, ReferenceKernel
from agt.kernels.select import pick_device, pick_kernel
from agt.settings import QUANTA, ComputeConfig


@cache
def fully_tested(name: str) -> ReferenceKernel:
    """A kernel that passed its whole self-test, as ``agt doctor`` asks for."""
    kernel = pick_kernel(ComputeConfig(kernel=name))  # type: ignore[arg-type]
    selftest.check_kernel(kernel, "cpu")
    return kernel


@pytest.fixture(params=KERNELS)
def kernel(request: pytest.FixtureRequest) -> ReferenceKernel:
    return fully_tested(request.param)


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def scaled(interval: Interval, size: float = 1.0) -> Interval:
    """In quanta, ``size`` clip levels large: some beyond the clip, some halves of a quantum,
    some 0 as behind a ReLU.
    """
    alive = torch.arange(interval.lower.numel()).view(interval.lower.shape) % 5 != 1
    lower = interval.lower * size * QUANTA * alive
    upper = interval.upper * size * QUANTA * alive
    halves = torch.arange(lower.numel()).view(lower.shape) % 7 == 3
    lower = torch.where(halves, lower.floor() + 0.5, lower)
    return Interval(torch.minimum(lower, upper), torch.maximum(lower, upper))


def inputs(rng: np.random.Generator, kind: str, ks: int, n: int, width: int) -> Interval | None:
    """x of each kind that the contract allows."""
    if kind == "bias":
        return None
    if kind == "point":
        return Interval.point(torch.from_numpy(rng.normal(size=(1, n, width))))
    x = random_interval(rng, 1 if kind == "shared" else ks, n, width)
    return Interval(x.lower.clamp(min=0), x.upper.clamp(min=0)) if kind == "rectified" else x


def quantise(values: np.ndarray) -> np.ndarray:
    return np.rint(np.clip(values, -QUANTA, QUANTA)).astype(np.int64)


def brute(d: Interval, x: Interval | None) -> tuple[np.ndarray, np.ndarray]:
    """Quantised exact bounds of every record's gradient, [K, n, out, in] (in = 1 for a bias), by
    numpy.
    """
    ends = [t.numpy()[:, :, :, None] for t in (d.lower, d.upper)]
    others = (
        [np.ones((1, d.shape[1], 1, 1))]
        if x is None
        else [t.numpy()[:, :, None, :] for t in (x.lower, x.upper)]
    )
    corners = np.stack([a * b for a in ends for b in others])
    return quantise(corners.min(axis=0)), quantise(corners.max(axis=0))


KINDS = ("bias", "point", "shared", "per k", "rectified")
# K, records, outputs, inputs
SHAPES = [(1, 1, 1, 1), (3, 10, 2, 4), (2, 37, 5, 9), (4, 300, 3, 1), (2, 50, 20, 6)]


@pytest.mark.parametrize(
    "size", [1e-8, 1.0, 40.0], ids=["a few quanta", "about the clip", "far beyond it"]
)
@pytest.mark.parametrize("kind", KINDS)
def test_bound_sums_are_brute_forces(
    kernel: ReferenceKernel, kind: str, size: float, threads: int
) -> None:
    rng = np.random.default_rng(0)
    for ks, n, outputs, width in SHAPES:
        d = scaled(random_interval(rng, ks, n, outputs), size)
        x = inputs(rng, kind, ks, n, width)
        low, high = brute(d, x)
        ours = kernel.bound_sum(d, x, "exact")
        for mine, theirs in zip(ours, (low, high), strict=True):
            assert mine.dtype == torch.int64
            assert np.array_equal(mine.numpy().reshape(ks, outputs, -1), theirs.sum(axis=1))


@pytest.mark.parametrize("size", [1e-8, 1.0, 40.0])
@pytest.mark.parametrize("bias", [False, True])
def test_nominal_sums_are_brute_forces(
    kernel: ReferenceKernel, bias: bool, size: float, threads: int
) -> None:
    rng = np.random.default_rng(1)
    for _, n, outputs, width in SHAPES:
        d = scaled(random_interval(rng, 1, n, outputs), size).lower[0]
        x = None if bias else torch.from_numpy(rng.normal(size=(n, width)))
        expected = quantise(
            d.numpy()[:, :, None] * (1 if x is None else x.numpy()[:, None, :])
        ).sum(axis=0)
        assert np.array_equal(kernel.nominal_sum(d, x).numpy().reshape(outputs, -1), expected)


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("kind", KINDS)
def test_sums_and_selections_hold_every_nominal_gradient(
    kernel: ReferenceKernel, kind: str, product: str
) -> None:
    """From samples of the factors: sums within sums, and the c most extreme within the c most
    extreme, bit for bit.
    """
    rng = np.random.default_rng(2)
    n = 15
    outputs = 3
    width = 1 if kind == "bias" else 4
    count = 4
    d = scaled(random_interval(rng, 1, n, outputs), 0.5)
    x = inputs(rng, kind, 1, n, width)
    lower, upper = (t.numpy().reshape(outputs, width) for t in kernel.bound_sum(d, x, product))
    selector = kernel.start_selection(
        torch.tensor([count]), (outputs,) if x is None else (outputs, width), False, product
    )
    selector.update(d, x)
    greatest, least = (t.numpy().reshape(outputs, width) for t in selector.result())
    for index in range(100):
        corner = index % 2 == 0
        xi = torch.ones(n, 1, dtype=torch.float64) if x is None else sample(rng, x, corner)[0]
        values = quantise(sample(rng, d, corner)[0].numpy()[:, :, None] * xi.numpy()[:, None, :])
        assert (lower <= values.sum(axis=0)).all()
        assert (values.sum(axis=0) <= upper).all()
        ordered = np.sort(values, axis=0)
        assert (greatest <= ordered[-count:].sum(axis=0)).all()
        assert (ordered[:count].sum(axis=0) <= least).all()


# -- selections
# --------------------------------------------------------------------------------------------------


def select_in(
    kernel: ReferenceKernel,
    d: Interval,
    x: Interval | None,
    cuts: Sequence[int],
    counts: Sequence[int],
    capped: bool,
):  # type: ignore[no-untyped-def]
    """Run a selection over fragments that end at ``cuts``; [K, out, in] numpy arrays."""
    shape = (d.shape[2],) if x is None else (d.shape[2], x.shape[2])
    selector = kernel.start_selection(torch.tensor(counts), shape, capped, "exact")
    edges = sorted({0, *cuts, d.shape[1]})
    for start, stop in pairwise(edges):
        selector.update(d[:, start:stop], None if x is None else x[:, start:stop])
    return tuple(t.numpy().reshape(len(counts), d.shape[2], -1) for t in selector.result())


def brute_selection(d: Interval, x: Interval | None, counts: Sequence[int], capped: bool):  # type: ignore[no-untyped-def]
    low, high = brute(d, x)
    if capped:
        low = np.maximum(low, 0)
        high = np.minimum(high, 0)
    low = np.sort(low, axis=1)
    high = np.sort(high, axis=1)
    n = d.shape[1]
    greatest = np.stack([low[k, n - c :].sum(axis=0) for k, c in enumerate(counts)])
    least = np.stack([high[k, :c].sum(axis=0) for k, c in enumerate(counts)])
    return greatest, least


@pytest.mark.parametrize("capped", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "cuts", [(), range(50), (1, 2, 30), (49,)], ids=["whole", "singly", "uneven", "one last"]
)
def test_selections_are_brute_forces(
    kernel: ReferenceKernel, cuts: Sequence[int], kind: str, capped: bool, threads: int
) -> None:
    rng = np.random.default_rng(4)
    counts = (0, 1, 7, 49, 50)
    d = scaled(random_interval(rng, 5, 50, 3))
    x = inputs(rng, kind, 5, 50, 4)
    for ours, theirs in zip(
        select_in(kernel, d, x, cuts, counts, capped),
        brute_selection(d, x, counts, capped),
        strict=True,
    ):
        assert np.array_equal(ours, theirs)


@given(
    st.lists(
        st.sampled_from([-2 * QUANTA, -QUANTA, -3, -0.5, 0, 0.5, 1.5, QUANTA - 1, QUANTA]),
        min_size=1,
        max_size=40,
    ),
    st.data(),
)
def test_selections_with_ties(values: list[float], data: st.DataObject) -> None:
    """Many equal values, for any count and any split."""
    n = len(values)
    count = data.draw(st.integers(0, n))
    cuts = data.draw(st.lists(st.integers(0, n), max_size=5))
    ends = torch.tensor(values, dtype=torch.float64).view(1, n, 1)
    d = Interval(ends, ends.clone())
    for name in KERNELS:
        kernel = pick_kernel(ComputeConfig(kernel=name))  # type: ignore[arg-type]
        for capped in (False, True):
            expected = brute_selection(d, None, (count,), capped)
            for ours, theirs in zip(
                select_in(kernel, d, None, cuts, (count,), capped), expected, strict=True
            ):
                assert np.array_equal(ours, theirs)


LARGE = 2600  # records: fragments beyond 1,024 are filtered by a threshold guessed from a sample


@pytest.mark.parametrize(
    "order",
    [
        "random",
        "rising",
        "falling",
        "high then low",
        "low then high",
        "constant",
        "periodic",
        "two values",
        "often clipped",
        "a few clipped",
        "first clipped on one side",
        "first clipped on the other side",
    ],
)
@pytest.mark.parametrize("cuts", [(), (100,), (1300,), (100, 1400), (2000,)], ids=str)
def test_large_fragments_are_selected_exactly(
    kernel: ReferenceKernel, order: str, cuts: tuple[int, ...]
) -> None:
    """Whatever the guess was: values kept from earlier fragments may lie above it, and those
    left out below them.
    """
    rng = np.random.default_rng(5)
    values = rng.integers(-QUANTA, QUANTA, LARGE).astype(float)
    values = {
        "random": values,
        "rising": np.sort(values),
        "falling": np.sort(values)[::-1].copy(),
        "high then low": np.where(np.arange(LARGE) < 150, np.abs(values), -np.abs(values)),
        "low then high": np.where(np.arange(LARGE) < 150, -np.abs(values), np.abs(values)),
        "constant": np.full(LARGE, 5.0),
        # in step with the sample
        "periodic": np.where(np.arange(LARGE) % 10 == 0, np.abs(values), -np.abs(values)),
        "two values": np.where(rng.random(LARGE) < 0.07, -3.0, 4.0),
        # a selection is final where enough bounds of both sides are at the clip level
        "often clipped": (4 * values).clip(-QUANTA, QUANTA),
        "a few clipped": np.where(np.arange(LARGE) < 40, QUANTA * np.sign(values), values / 2),
        # full and clipped on one side: later records still change the other one
        "first clipped on one side": np.where(np.arange(LARGE) < 1250, -QUANTA, values),
        "first clipped on the other side": np.where(np.arange(LARGE) < 1250, QUANTA, values),
    }[order]
    counts = (1, 101, 182, 200, 1000, LARGE - 1)
    ends = torch.from_numpy(values).view(1, LARGE, 1).expand(len(counts), LARGE, 1).contiguous()
    d = Interval(ends, ends.clone())
    expected = brute_selection(d, None, counts, False)
    for ours, theirs in zip(select_in(kernel, d, None, cuts, counts, False), expected, strict=True):
        assert np.array_equal(ours, theirs)


def test_sums_beyond_32_bits(kernel: ReferenceKernel) -> None:
    d = Interval.point(torch.full((1, 5000, 1), 10.0 * QUANTA, dtype=torch.float64))
    assert kernel.bound_sum(d, None, "exact")[1].item() == 5000 * QUANTA
    assert (
        kernel.bound_sum(d, Interval.point(-torch.ones(1, 5000, 1, dtype=torch.float64)), "exact")[
            0
        ].item()
        == -5000 * QUANTA
    )


def test_selected_sums_beyond_32_bits(kernel: ReferenceKernel) -> None:
    """Every bound at one end of the clip, as far from 0 as a quantum count goes, negated or not."""
    for sign in (-1.0, 1.0):
        d = Interval.point(torch.full((1, 5000, 1), sign * 10 * QUANTA, dtype=torch.float64))
        one = Interval.point(torch.ones((1, 5000, 1), dtype=torch.float64))
        for x in (None, one):
            extremes = kernel.start_selection(
                torch.tensor([4999]), (1,) if x is None else (1, 1), False, "exact"
            )
            extremes.update(d[:, :3000], None if x is None else x[:, :3000])
            extremes.update(d[:, 3000:], None if x is None else x[:, 3000:])
            assert [end.item() for end in extremes.result()] == [int(sign) * 4999 * QUANTA] * 2


@pytest.mark.parametrize("outputs", [1, 2])
def test_running_sums_are_exact_up_to_their_last_record(outputs: int) -> None:
    """Beyond 2^53, where float64 would round them: odd values just below the clip level, in more
    records than 2^23.
    """
    n = 2**23 + 1
    value = QUANTA - 1
    ones = torch.ones((1, n, 1), dtype=torch.float64)
    d = (ones * value).expand(1, n, outputs)
    kernel = pick_kernel(ComputeConfig(kernel="cpu"))
    assert kernel.nominal_sum(d[0], ones[0]).unique().tolist() == [n * value]
    lower, upper = kernel.bound_sum(Interval.point(d), Interval.point(ones), "exact")
    assert lower.unique().tolist() == upper.unique().tolist() == [n * value]


def test_gates_hold_every_product_with_the_derivative(kernel: ReferenceKernel) -> None:
    rng = np.random.default_rng(1)
    d = random_interval(rng, 3, 40, 6)
    x = random_interval(rng, 3, 40, 6)
    # some bounds at 0 itself, where the derivative is 0
    edges = torch.from_numpy(rng.integers(0, 4, x.shape))
    ends = torch.where(edges == 1, 0.0, x.lower), torch.where(edges == 2, 0.0, x.upper)
    x = Interval(torch.minimum(*ends), torch.maximum(*ends))
    slopes = [torch.where(end > 0, 1.0, 0.0) for end in (x.lower, x.upper)]
    products = torch.stack([end * slope for end in (d.lower, d.upper) for slope in slopes])
    least = products.amin(dim=0)
    greatest = products.amax(dim=0)
    lower, upper = kernel.products("exact").relu_backward(
        Interval(d.lower.clone(), d.upper.clone()), x
    )
    assert torch.equal(lower, least)
    assert torch.equal(upper, greatest)


def test_outward_widens_and_refuses_what_is_not_finite(kernel: ReferenceKernel) -> None:
    rng = np.random.default_rng(2)
    interval = random_interval(rng, 2, 30, 5)
    slack = torch.from_numpy(rng.random((2, 30, 1)))
    widened = kernel.widen_by(interval.lower.clone(), interval.upper.clone(), slack)
    assert torch.equal(widened.lower, interval.lower - slack)
    assert torch.equal(widened.upper, interval.upper + slack)
    for end, value in ((0, np.nan), (1, np.nan), (0, -np.inf), (1, np.inf), (0, np.inf), (0, 1e9)):
        ends = interval.lower.clone(), interval.upper.clone()
        ends[end][1, 7, 3] = value
        with pytest.raises(UnsoundError):
            kernel.widen_by(*ends, slack)


def known_inputs_of_a_layer(
    rng: np.random.Generator, width: int
) -> tuple[torch.Tensor, Interval, Interval, torch.Tensor]:
    """Inputs [1, 70, width] with zeros, and bounds on weights, bias and rounding for two k."""
    inputs = torch.from_numpy(rng.normal(size=(1, 70, width)) * rng.integers(0, 2, (1, 70, width)))
    weights = random_interval(rng, 2, 5, width)
    bias = random_interval(rng, 2, 5)
    slack = torch.from_numpy(rng.random((2, 70, 1)) * 1e-12)
    return inputs, weights, bias, slack


@pytest.mark.parametrize("width", [1, 2, 3, 6, 15])
def test_outputs_for_known_inputs_are_added_input_by_input_then_bias_then_slack(
    width: int,
) -> None:
    """The order of the roundings is part of the result, so the oracle has each one by itself."""
    inputs, weights, bias, slack = known_inputs_of_a_layer(np.random.default_rng(3), width)
    lower = upper = torch.zeros((2, 70, 5), dtype=torch.float64)
    for i in range(width):
        products = [
            inputs[..., i, None] * end[:, None, :, i] for end in (weights.lower, weights.upper)
        ]
        lower = lower + torch.minimum(*products)
        upper = upper + torch.maximum(*products)
    lower = (lower + bias.lower[:, None]) - slack
    upper = (upper + bias.upper[:, None]) + slack
    outputs = CpuKernel().point_affine(inputs, weights, bias, slack, with_relu=False)
    assert torch.equal(outputs.lower, lower)
    assert torch.equal(outputs.upper, upper)
    rectified = CpuKernel().point_affine(inputs, weights, bias, slack, with_relu=True)
    assert torch.equal(rectified.lower, lower.clamp(min=0))
    assert torch.equal(rectified.upper, upper.clamp(min=0))
    assert torch.equal(rectified.inf_norm(), upper.clamp(min=0).amax(dim=-1, keepdim=True))


@pytest.mark.parametrize("with_relu", [False, True])
@pytest.mark.parametrize("width", [6, 20])
def test_outputs_for_known_inputs_are_those_of_the_single_operations(
    kernel: ReferenceKernel, width: int, with_relu: bool
) -> None:
    inputs, weights, bias, slack = known_inputs_of_a_layer(np.random.default_rng(4), width)
    products = kernel.products("exact")
    bounds = products.forward(Interval.point(inputs), weights)
    expected = kernel.widen_by(*add_bias(*bounds, bias), slack)
    if with_relu:
        expected = Interval(expected.lower.clamp(min=0), expected.upper.clamp(min=0))
    outputs = kernel.point_affine(inputs, weights, bias, slack, with_relu)
    assert isinstance(outputs, ReluOutput) == with_relu
    assert torch.equal(outputs.lower, expected.lower)
    assert torch.equal(outputs.upper, expected.upper)
    assert torch.equal(outputs.inf_norm(), expected.inf_norm())


@pytest.mark.parametrize("with_relu", [False, True])
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, 1e9])
def test_outputs_for_known_inputs_that_are_not_finite_or_in_order_are_refused(
    kernel: ReferenceKernel, number: float, with_relu: bool
) -> None:
    """Also behind a ReLU, which would make 0 of some of these bounds."""
    inputs, weights, bias, slack = known_inputs_of_a_layer(np.random.default_rng(5), 6)
    wrong = bias.lower.clone()
    wrong[1, 3] = number  # 1e9 is above the upper bound
    with pytest.raises(UnsoundError):
        kernel.point_affine(
            inputs, weights, Interval.unchecked(wrong, bias.upper), slack, with_relu
        )


def gradients_behind_a_relu(
    rng: np.random.Generator, outputs: int
) -> tuple[Interval, Interval, torch.Tensor, Interval]:
    """What ``linear_relu_backward`` takes, for 70 records, 6 inputs of the layer and two k."""
    gradient = random_interval(rng, 2, 70, outputs)
    weights = random_interval(rng, 2, 6, outputs)
    slack = torch.from_numpy(rng.random((2, 70, 1)) * 1e-2)
    inputs = random_interval(rng, 2, 70, 6)
    # dead where all of the interval is at most 0, open where only its lower end is
    return gradient, weights, slack, Interval(inputs.lower.clamp(min=0), inputs.upper.clamp(min=0))


@pytest.mark.parametrize("outputs", [1, 3, 5])
def test_gradients_before_a_relu_are_those_of_the_single_operations(outputs: int) -> None:
    """Few outputs are summed one by one in both; for five the kernel's own product is the oracle,
    because the order of its terms is its own.
    """
    kernel = CpuKernel()
    gradient, weights, slack, inputs = gradients_behind_a_relu(np.random.default_rng(6), outputs)
    product = linear_corners if outputs < 4 else kernel.corner_product
    lower, upper = product(gradient, weights)
    expected = relu_backward(Interval(lower - slack, upper + slack), inputs)
    bounds = kernel.linear_relu_backward(gradient, weights, slack, inputs)
    assert torch.equal(bounds.lower, expected[0])
    assert torch.equal(bounds.upper, expected[1])


@pytest.mark.parametrize("number", [np.nan, np.inf, -1e9])
def test_gradients_before_a_relu_are_refused_where_they_are_not_finite_or_in_order(
    number: float,
) -> None:
    """Even where the ReLU is dead, so that the result would be 0."""
    gradient, weights, slack, inputs = gradients_behind_a_relu(np.random.default_rng(7), 1)
    slack[1, 3] = number  # -1e9 moves the lower bound above the upper one
    dead = Interval.point(torch.zeros_like(inputs.lower))
    with pytest.raises(UnsoundError):
        CpuKernel().linear_relu_backward(gradient, weights, slack, dead)


# -- choosing
# --------------------------------------------------------------------------------------------------


def test_a_kernel_that_does_not_run_on_the_device_is_refused() -> None:
    refused(
        (
            ConfigError,
            "does not run on",
            lambda: pick_device(ComputeConfig(device="cpu", kernel="gpu")),
        ),
        (
            ConfigError,
            "does not run on",
            lambda: pick_device(ComputeConfig(device="cuda", kernel="cpu")),
        ),
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_named() -> None:
    with pytest.raises(ConfigError, match=r"compute\.device=cuda"):
        pick_device(ComputeConfig(device="cuda"))


class Bent(ReferenceKernel):
    """The reference kernel, but for one case of the self-test: there one number is off by the
    least that shows.
    """

    name = "cpu"

    def __init__(self, case: str) -> None:
        self.case = case

    def bend(self, case: str, numbers: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        if case == self.case:
            last = numbers[-1].flatten()[-1:]
            last.copy_(last + 1 if last.dtype == torch.int64 else last.nextafter(last + 1))
        return numbers

    def nominal_sum(self, d: torch.Tensor, x: torch.Tensor | None) -> torch.Tensor:
        return self.bend(
            "gradients of biases" if x is None else "gradients of weights",
            (super().nominal_sum(d, x),),
        )[0]

    def bound_sum(self, d: Interval, x: Interval | None, product: str) -> tuple[torch.Tensor, ...]:
        few = x is not None and x.shape[2] < 16
        kind = "interval inputs"
        if x is not None and x.is_point:
            kind = "narrow layer" if few else "wide layer"
        elif x is not None and bool((x.lower >= 0).all()):
            kind = "nonnegative inputs"
        if product == "rump":
            kind = "midpoint-radius inputs"
        case = "gradient bounds of biases" if x is None else f"gradient bounds, {kind}"
        return self.bend(case, super().bound_sum(d, x, product))

    def start_selection(
        self, counts: torch.Tensor, shape: tuple[int, ...], capped: bool, product: str
    ) -> BoundSelection:
        bend = self.bend
        true = super().start_selection(counts, shape, capped, product)

        class BentExtremes:
            def update(self, d: Interval, x: Interval | None) -> None:
                kind = (
                    "capped"
                    if capped
                    else "point x"
                    if x is not None and x.is_point
                    else "interval x"
                )
                self.case = "selection of a bias" if x is None else f"selection, {kind}"
                self.case += ", midpoint-radius" if product == "rump" else ""
                true.update(d, x)

            def result(self) -> tuple[torch.Tensor, ...]:
                return bend(self.case, true.result())

        return BentExtremes()  # type: ignore[return-value]

    def products(self, product: str) -> Products:
        return replace(
            PRODUCTS[product],
            corners=lambda x, weights: self.bend("corner product", linear_corners(x, weights)),  # type: ignore[arg-type,return-value]
            nonnegative=lambda x, weights: self.bend(
                "nonnegative product", linear_nonnegative(x, weights)
            ),  # type: ignore[arg-type,return-value]
            point=lambda x, weights: self.bend("point product", linear_point(x, weights)),  # type: ignore[arg-type,return-value]
            relu_backward=lambda d, x: self.bend("relu backward", relu_backward(d, x)),  # type: ignore[arg-type,return-value]
            linear_relu_backward=self.linear_relu_backward,
        )

    def linear_relu_backward(self, *arguments: Any) -> ReluGradient:
        true = linear_relu_backward(*arguments)
        return ReluGradient(*self.bend("linear and relu backward", (true.lower, true.upper)))

    def point_affine(self, *arguments: Any, with_relu: bool) -> Interval:
        true = affine_point(*arguments, with_relu)
        return Interval(*self.bend("point affine", (true.lower, true.upper)))

    def widen_by(self, lower: torch.Tensor, upper: torch.Tensor, slack: torch.Tensor) -> Interval:
        true = widen_by(lower, upper, slack)
        return Interval(*self.bend("outward", (true.lower, true.upper)))


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[object], None]]:
    """Makes ``kernel=cpu`` another kernel: an instance, or an exception that loading it raises."""
    load = select.load_kernel

    def use(kernel: object) -> None:
        def loading(name: str) -> ReferenceKernel:
            if name == "cpu" and isinstance(kernel, Exception):
                raise kernel
            return kernel if name == "cpu" else load(name)  # type: ignore[return-value]

        monkeypatch.setattr(select, "load_kernel", loading)
        select._first_working.cache_clear()

    yield use
    select._first_working.cache_clear()


@pytest.mark.parametrize("case", selftest.CASES)
def test_a_kernel_that_gives_other_numbers_is_fatal_and_named(
    case: str, loaded: Callable[[object], None]
) -> None:
    loaded(Bent(case))
    for kernel in ("auto", "cpu"):
        with pytest.raises(UnsoundError, match=rf"compute\.kernel=cpu .*'{re.escape(case)}'"):
            pick_kernel(ComputeConfig(kernel=kernel))  # type: ignore[arg-type]


def test_the_self_test_passes_what_is_right(loaded: Callable[[object], None]) -> None:
    loaded(Bent("nothing"))
    assert isinstance(pick_kernel(ComputeConfig()), Bent)
    for name in ("reference", "cpu"):
        select.check_kernel(pick_kernel(ComputeConfig(kernel=name)), "cpu")  # type: ignore[arg-type]


@pytest.mark.parametrize("fault", ["import", "launch", "numbers that are none"])
def test_only_a_kernel_that_is_not_there_is_replaced(
    fault: str, loaded: Callable[[object], None]
) -> None:
    class NoLaunch(Bent):
        def bound_sum(
            self, d: Interval, x: Interval | None, product: str
        ) -> tuple[torch.Tensor, ...]:
            raise RuntimeError("no kernel image")

    class Broken(Bent):
        def widen_by(
            self, lower: torch.Tensor, upper: torch.Tensor, slack: torch.Tensor
        ) -> Interval:
            return Interval(upper + slack, lower - slack)

    if fault == "numbers that are none":
        loaded(Broken("nothing"))
        with pytest.raises(UnsoundError, match=r"\binterval\b"):
            pick_kernel(ComputeConfig())
        return
    loaded(ImportError("no numba") if fault == "import" else NoLaunch("nothing"))
    with pytest.warns(UserWarning, match="kernel=cpu does not work here"):
        assert type(pick_kernel(ComputeConfig())) is ReferenceKernel


# -- functions that are tested when they are first used
# --------------------------------------------------------------------------------------------------

Function = Callable[..., Any]


def name_of(function: Function) -> str:
    return function.__name__


def use(function: Function, kernel: ReferenceKernel) -> tuple[torch.Tensor, ...]:
    """Do what a run does that needs the function, with small inputs."""
    return selftest.CASES[CASES_OF[function][0]](kernel, selftest.Probe("cpu"))


@pytest.fixture
def replaced(monkeypatch: pytest.MonkeyPatch) -> Callable[[Function, Function], None]:
    """Puts a function in the place of a compiled one, with its cases of the self-test."""

    def replace_by(function: Function, other: Function) -> None:
        monkeypatch.setattr(cpu_compiled, name_of(function), other)
        monkeypatch.setitem(CASES_OF, other, CASES_OF[function])

    return replace_by


def bent(function: Function) -> Function:
    """The function, but for the last number of one of its results."""
    overwrites_its_arguments = function in (
        cpu_compiled.relu_backward_in_place,
        cpu_compiled.widen_in_place,
    )
    result = 0 if overwrites_its_arguments else -1

    def bend(first: int, stop: int, *arguments: Any) -> object:
        returned = function(first, stop, *arguments)
        arguments[result].reshape(-1)[-1] -= 1
        return returned

    return bend


@pytest.mark.parametrize("function", CASES_OF, ids=name_of)
def test_a_function_that_gives_other_numbers_is_fatal_at_its_first_use(
    function: Function, replaced: Callable[[Function, Function], None]
) -> None:
    replaced(function, bent(function))
    kernel = CpuKernel()
    for _ in range(2):  # and at every later one
        with pytest.raises(UnsoundError, match=r"compute\.kernel=cpu "):
            use(function, kernel)


def test_a_function_that_gives_other_numbers_overwrites_nothing_of_the_run(
    replaced: Callable[[Function, Function], None],
) -> None:
    function = cpu_compiled.relu_backward_in_place
    replaced(function, bent(function))
    probe = selftest.Probe("cpu")
    gradient = Interval(probe.interval.lower.clone(), probe.interval.upper.clone())
    with pytest.raises(UnsoundError):
        CpuKernel().products("exact").relu_backward(gradient, probe.interval)
    assert torch.equal(gradient.lower, probe.interval.lower)
    assert torch.equal(gradient.upper, probe.interval.upper)


def test_a_first_use_while_overflows_are_recorded_records_the_run_alone() -> None:
    ends = torch.ones((1, 15, 2), dtype=torch.float64)
    weights = Interval.point(torch.ones((1, 3, 2), dtype=torch.float64))
    with warnings.catch_warnings(), recording_overflow() as mask:
        warnings.simplefilter("error")  # a test that fails would be a warning
        CpuKernel().products("exact").corners(Interval(-ends, ends), weights)
    assert mask.finite is not None
    assert mask.finite.shape == (1, 15)


@pytest.mark.parametrize("function", CASES_OF, ids=name_of)
def test_a_function_that_does_not_compile_is_replaced_by_the_reference_kernel(
    function: Function, replaced: Callable[[Function, Function], None]
) -> None:
    calls = []

    def failing(*arguments: object) -> None:
        calls.append(arguments)
        raise RuntimeError("no compiler")

    replaced(function, failing)
    kernel = CpuKernel()
    with pytest.warns(UserWarning, match="kernel=cpu does not work here"):
        numbers = use(function, kernel)
    expected = use(function, ReferenceKernel())
    assert all(torch.equal(a, b) for a, b in zip(numbers, expected, strict=True))
    tried = len(calls)
    use(function, kernel)
    assert len(calls) == tried  # not tried again


@pytest.mark.parametrize("function", CASES_OF, ids=name_of)
def test_other_functions_are_neither_compiled_nor_tested(
    function: Function, replaced: Callable[[Function, Function], None]
) -> None:
    def unused(*arguments: object) -> None:
        raise AssertionError

    for other in tuple(CASES_OF):
        if other is not function:
            replaced(other, unused)
    use(function, CpuKernel())


def test_every_case_that_runs_a_function_tests_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: dict[Function, set[str]] = {function: set() for function in CASES_OF}
    kernel = CpuKernel(is_under_test=True)
    for case, compute in selftest.CASES.items():
        monkeypatch.setattr(kernel, "_require", lambda function, case=case: ran[function].add(case))
        compute(kernel, selftest.Probe("cpu"))
    assert ran == {function: set(cases) for function, cases in CASES_OF.items()}


@pytest.mark.parametrize("name", KERNELS)
def test_products_that_overflow_are_bounded_by_the_clip_alone(name: str) -> None:
    """A midpoint-radius product of huge factors is inf - inf: NaN would empty a whole sum, or
    sort nowhere.
    """
    kernel = pick_kernel(ComputeConfig(kernel=name))
    # [1, 2, 2]
    huge = torch.tensor([[[1e200, -3.0]], [[2.0, 1e200]]], dtype=torch.float64).transpose(0, 1)
    d = Interval(-huge.abs(), huge.abs() * 2)
    x = Interval(
        torch.full((1, 2, 3), -1e200, dtype=torch.float64),
        torch.full((1, 2, 3), 3e200, dtype=torch.float64),
    )
    for product in ("rump", "exact"):
        low, high = kernel.bound_sum(d, x, product)
        assert (low.abs() <= 2 * QUANTA).all()
        assert (low <= high).all()
        extremes = kernel.start_selection(torch.tensor([1]), (2, 3), False, product)
        extremes.update(d, x)
        greatest, least = extremes.result()
        assert (greatest.abs() <= QUANTA).all()
        assert (least.abs() <= QUANTA).all()
    low, high = kernel.bound_sum(d[..., :1], x, "rump")
    assert (low == -2 * QUANTA).all()
    assert (high == 2 * QUANTA).all()
