"""Gradients of the losses: brute force over corners, high precision for the margin, and extreme logits."""

from itertools import product

import mpmath
import numpy as np
import pytest
import torch
from synthetic import random_interval, sample

from agt.bounds.interval import Interval
from agt.bounds.losses import BinaryCrossEntropy, CrossEntropy
from agt.bounds.rounding import Rounding

DTYPES = ("float64", "float32")


def rounding(dtype: str, k: int = 0) -> Rounding:
    return Rounding.of((k,), getattr(torch, dtype), torch.device("cpu"))


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_machines_sigmoid_is_within_its_margin(dtype: str) -> None:
    """method.md section 6: 8u, absolute; bounds hold the exact value with room to spare."""
    rng = np.random.default_rng(0)
    logits = np.concatenate(
        [rng.normal(size=300) * 10.0 ** rng.integers(-8, 4, 300), [0.0, -745.2, 1e300 if dtype == "float64" else 1e30]]
    )
    f = torch.from_numpy(logits).to(getattr(torch, dtype))
    exact = [1 / (1 + mpmath.exp(-mpmath.mpf(v))) for v in f.tolist()]
    unit = torch.finfo(f.dtype).eps / 2
    errors = [abs(mpmath.mpf(p) - e) for p, e in zip(torch.sigmoid(f).tolist(), exact, strict=True)]
    assert max(errors) <= 8 * unit
    bound = BinaryCrossEntropy().bound(
        Interval.point(f.view(1, -1, 1)), torch.zeros(len(f), dtype=torch.int64), rounding(dtype)
    )
    for low, e, high in zip(bound.lower.flatten().tolist(), exact, bound.upper.flatten().tolist(), strict=True):
        assert low <= e <= high
        assert high - low <= 40 * unit


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("classes", [3, 10, 100])
def test_the_machines_softmax_is_within_its_margin(dtype: str, classes: int) -> None:
    rng = np.random.default_rng(classes)
    scales = 10.0 ** rng.integers(-3, 3, size=(12, 1))
    f = torch.from_numpy(rng.normal(size=(12, classes)) * scales).to(getattr(torch, dtype))
    unit = torch.finfo(f.dtype).eps / 2
    bound = CrossEntropy().bound(Interval.point(f[None]), torch.zeros(12, dtype=torch.int64), rounding(dtype))
    target = torch.nn.functional.one_hot(torch.zeros(12, dtype=torch.int64), classes)
    for row in range(12):
        terms = [mpmath.exp(mpmath.mpf(v)) for v in f[row].tolist()]
        for c in range(classes):
            exact = terms[c] / sum(terms)
            assert abs(mpmath.mpf(torch.softmax(f, 1)[row, c].item()) - exact) <= (classes + 8) * unit
            exact -= int(target[row, c])
            assert bound.lower[0, row, c].item() <= exact <= bound.upper[0, row, c].item()


@pytest.mark.parametrize("dtype", DTYPES)
def test_softmax_bounds_are_the_extremes_over_all_corners(dtype: str) -> None:
    rng = np.random.default_rng(0)
    for classes in (2, 3, 4):
        logits = random_interval(rng, 1, 1, classes, radius=3.0, dtype=dtype)
        labels = torch.tensor([classes - 1])
        bound = CrossEntropy().bound(logits, labels, rounding(dtype))
        ends = torch.stack([logits.lower[0, 0], logits.upper[0, 0]])
        corners = torch.stack([ends[list(c), range(classes)] for c in product((0, 1), repeat=classes)])
        values = CrossEntropy().nominal(corners, labels.expand(len(corners)))
        assert bound.contains(values)
        margin = 100 * torch.finfo(logits.lower.dtype).eps
        torch.testing.assert_close(bound.lower[0, 0], values.amin(0), rtol=0, atol=margin)
        torch.testing.assert_close(bound.upper[0, 0], values.amax(0), rtol=0, atol=margin)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("loss", "outputs"), [(BinaryCrossEntropy(), 1), (CrossEntropy(), 3), (CrossEntropy(), 7)])
@pytest.mark.parametrize("scale", [1.0, 30.0, 1e4])
def test_a_thousand_computed_gradients_lie_within_their_bounds(loss, outputs: int, dtype: str, scale: float) -> None:  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(0)
    logits = random_interval(rng, 1, 20, outputs, dtype=dtype)
    logits = Interval(logits.lower * scale, logits.upper * scale)
    labels = torch.from_numpy(rng.integers(0, max(outputs, 2), 20))
    bound = loss.bound(logits, labels, rounding(dtype))
    assert (bound.lower >= -1).all()
    assert (bound.upper <= 1).all()
    for index in range(50):
        assert bound.contains(loss.nominal(sample(rng, logits, index % 2 == 0)[0], labels))


@pytest.mark.parametrize("dtype", DTYPES)
def test_overflowing_exponentials_give_sound_bounds(dtype: str) -> None:
    """exp overflows to inf and 1/inf is 0; no NaN, no failure."""
    huge = 1e300 if dtype == "float64" else 1e30
    lower = torch.tensor([[[-huge, 0.0, 1.0]]], dtype=getattr(torch, dtype))
    upper = torch.tensor([[[huge, 0.0, 2.0]]], dtype=getattr(torch, dtype))
    bound = CrossEntropy().bound(Interval(lower, upper), torch.tensor([1]), rounding(dtype))
    assert bound.lower.flatten().tolist() == [0, -1, 0]
    assert bound.upper[0, 0, 0] == 1
    assert -0.8 < bound.upper[0, 0, 1] < -0.7  # p_1 at most 1 / (1 + e) beside a logit of 1


def test_wider_logits_give_wider_gradients() -> None:
    rng = np.random.default_rng(4)
    for loss, outputs in ((BinaryCrossEntropy(), 1), (CrossEntropy(), 4)):
        logits = random_interval(rng, 1, 200, outputs, radius=2.0)
        ends = sample(rng, logits), sample(rng, logits)
        inner = Interval(torch.minimum(*ends), torch.maximum(*ends))
        labels = torch.zeros(200, dtype=torch.int64)
        wide, narrow = loss.bound(logits, labels, rounding("float64", 3)), loss.bound(inner, labels, rounding("float64", 2))
        assert (wide.lower <= narrow.lower).all()
        assert (narrow.upper <= wide.upper).all()
