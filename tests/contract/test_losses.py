"""What every loss owes (bounds/losses.py), for each entry of the registry: a new entry inherits
this suite.

No tolerance where the claims are about numbers as computed. Each check counts violations: none for
the losses as they are, some for each loss broken on purpose.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any, get_args

import mpmath
import numpy as np
import pytest
import torch
from synthetic import make_head, make_training, random_interval, sample
from torch import Tensor, nn
from torch.nn import functional as F

from agt.bounds.interval import Interval
from agt.bounds.losses import LOSSES, Loss
from agt.bounds.network import Network
from agt.bounds.rounding import Rounding
from agt.certificates.box import certify_labels
from agt.errors import ConfigError
from agt.models.heads import HeadConfig
from agt.settings import LossName
from agt.training.sensitivity import LinearLoss

KS = (0, 3, 40)
DTYPES = ("float64", "float32")
SCALES = (0.0, 1e-12, 1.0, 30.0, 1e4)
PYTORCHS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {  # summed over records
    "binary_cross_entropy": lambda f, y: F.binary_cross_entropy_with_logits(
        f[:, 0], y.to(f.dtype), reduction="sum"
    ),
    "cross_entropy": lambda f, y: F.cross_entropy(f, y, reduction="sum"),
    "squared_error": lambda f, y: F.mse_loss(f[:, 0], y.to(f.dtype), reduction="sum"),
}
losses = pytest.mark.parametrize("name", list(LOSSES))
dtypes = pytest.mark.parametrize("dtype", DTYPES)


def setting(name: str, scale: float, dtype: str, n: int = 40) -> tuple[Loss, Interval, Tensor]:
    """A loss, bounds of outputs [K, n, outputs] whose width ``scale`` multiplies, and labels."""
    rng = np.random.default_rng(0)
    outputs = 1 if LOSSES[name].one_output else 4
    around = random_interval(rng, len(KS), n, outputs, radius=2.0, dtype=dtype)
    spread = (around.upper - around.lower) * scale
    labels = torch.from_numpy(rng.integers(0, max(outputs, 2), n))
    return LOSSES[name], Interval(around.lower - spread, around.lower + spread), labels


def rounding(dtype: str, more: int = 0) -> Rounding:
    return Rounding.for_grid([k + more for k in KS], getattr(torch, dtype), torch.device("cpu"))


def outside(loss: Loss, f: Interval, labels: Tensor, dtype: str) -> int:
    """Computed gradients outside their bounds, each also computed for one record alone."""
    rng = np.random.default_rng(1)
    count = 0
    bound = loss.bound(f, labels, rounding(dtype))
    for index in range(40):
        values = sample(rng, f, corners=index % 2 == 0)
        for k in range(len(KS)):
            for rows in (slice(None), slice(0, 1)):
                d = loss.nominal(values[k, rows], labels[rows])
                count += int((~((bound.lower[k, rows] <= d) & (d <= bound.upper[k, rows]))).sum())
    return count


def unnested(loss: Loss, f: Interval, labels: Tensor, dtype: str) -> int:
    """Ends of bounds for k - 1 and inner outputs beyond those for k."""
    rng = np.random.default_rng(2)
    ends = sample(rng, f), sample(rng, f)
    inner = Interval(torch.minimum(*ends), torch.maximum(*ends))
    wide = loss.bound(f, labels, rounding(dtype, 1))
    count = 0
    for rows in (slice(None), slice(0, 1)):
        narrow = loss.bound(inner[:, rows], labels[rows], rounding(dtype))
        count += int(
            (wide.lower[:, rows] > narrow.lower).sum() + (narrow.upper > wide.upper[:, rows]).sum()
        )
    return count


def test_the_settings_the_registry_and_this_suite_name_the_same_losses() -> None:
    assert set(get_args(LossName)) == set(LOSSES) == set(PYTORCHS)


@dtypes
@pytest.mark.parametrize("scale", SCALES)
@losses
def test_computed_gradients_lie_within_their_bounds_and_bounds_nest(
    name: str, scale: float, dtype: str
) -> None:
    loss, f, labels = setting(name, scale, dtype)
    assert outside(loss, f, labels, dtype) == 0
    assert unnested(loss, f, labels, dtype) == 0


@dtypes
@losses
def test_the_nominal_gradient_is_autograds(name: str, dtype: str) -> None:
    loss, f, labels = setting(name, 1.0, dtype)
    at = f.lower[0].clone().requires_grad_()
    PYTORCHS[name](at, labels).backward()
    tolerance = 1e-12 if dtype == "float64" else 1e-6
    torch.testing.assert_close(
        loss.nominal(f.lower[0], labels), at.grad, rtol=tolerance, atol=tolerance
    )


@losses
def test_bounds_are_the_extremes_over_all_corners(name: str) -> None:
    loss, f, labels = setting(name, 1.0, "float64", n=12)
    bound = loss.bound(f, labels, rounding("float64"))
    ends = torch.stack([f.lower[0], f.upper[0]])
    columns = torch.arange(f.shape[-1])
    corners = torch.stack(
        [ends[torch.tensor(c), :, columns].mT for c in product((0, 1), repeat=f.shape[-1])]
    )
    values = torch.stack([loss.nominal(corner, labels) for corner in corners])
    torch.testing.assert_close(bound.lower[0], values.amin(0), rtol=0, atol=1e-13)
    torch.testing.assert_close(bound.upper[0], values.amax(0), rtol=0, atol=1e-13)


@losses
def test_a_difference_is_the_same_loss(name: str) -> None:
    """Two classes and two outputs: the gradient in the outputs is (-delta, +delta), delta that
    of the difference.
    """
    loss = LOSSES[name]
    if loss.difference is None:
        return
    f = torch.randn(30, 2, dtype=torch.float64)
    labels = torch.arange(30) % 2
    d = loss.nominal(f, labels)
    delta = loss.difference.nominal(f[:, 1:] - f[:, :1], labels)
    torch.testing.assert_close(d, torch.cat([-delta, delta], dim=1))


@losses
def test_the_threshold_parts_the_classes(name: str) -> None:
    """Predictions, and labels held over a box: on the threshold class 0, and nothing is held
    there.
    """
    loss = LOSSES[name]
    if not loss.one_output:
        return
    network = Network.from_head(nn.Sequential(nn.Linear(1, 1)).double(), name, 2)
    x = torch.tensor([[-1.0], [0.0], [1.0]], dtype=torch.float64)
    point = {
        "0.weight": torch.ones(1, 1, dtype=torch.float64),
        "0.bias": torch.full((1,), loss.threshold).double(),
    }
    assert network.predict(x, point).tolist() == [0, 0, 1]
    box = {n: Interval(p[None] - 0.25, p[None] + 0.25) for n, p in point.items()}
    at = Rounding.for_grid((0,), torch.float64, torch.device("cpu"))
    assert certify_labels(network, x, torch.tensor([0, 0, 1]), box, at).tolist() == [
        [True, False, True]
    ]
    # Each class's own target is on its side of the threshold.
    nearest = [
        loss.nominal(torch.tensor([[loss.threshold]]), torch.tensor([y])).sign().item()
        for y in (0, 1)
    ]
    assert nearest == [1, -1]


@losses
def test_heads_have_the_outputs_that_the_loss_needs(name: str) -> None:
    one = LOSSES[name].one_output
    head = make_head(make_training(loss=name), 3, 2, (4,))
    assert head[-1].out_features == (1 if one else 2)
    assert Network.from_head(head, name, 2).outputs == 1
    if one:
        with pytest.raises(ConfigError, match=f"training.loss={name} .*3"):
            Network.from_head(head, name, 3)
    wrong = HeadConfig().build((3,), 5, make_training(loss="cross_entropy"))
    with pytest.raises(ConfigError, match=f"training.loss={name} .*5"):
        Network.from_head(wrong, name, 2)


# -- the machine's exponentials


def one_k(dtype: str) -> Rounding:
    return Rounding.for_grid((0,), getattr(torch, dtype), torch.device("cpu"))


@dtypes
def test_the_machines_sigmoid_is_within_its_margin(dtype: str) -> None:
    """reference.md section 6: 8u, absolute; bounds hold the exact value with room to spare."""
    rng = np.random.default_rng(0)
    logits = np.concatenate(
        [
            rng.normal(size=300) * 10.0 ** rng.integers(-8, 4, 300),
            [0.0, -745.2, 1e300 if dtype == "float64" else 1e30],
        ]
    )
    f = torch.from_numpy(logits).to(getattr(torch, dtype))
    exact = [1 / (1 + mpmath.exp(-mpmath.mpf(v))) for v in f.tolist()]
    unit = torch.finfo(f.dtype).eps / 2
    errors = [abs(mpmath.mpf(p) - e) for p, e in zip(torch.sigmoid(f).tolist(), exact, strict=True)]
    assert max(errors) <= 8 * unit
    bound = LOSSES["binary_cross_entropy"].bound(
        Interval.point(f.view(1, -1, 1)), torch.zeros(len(f), dtype=torch.int64), one_k(dtype)
    )
    for low, e, high in zip(
        bound.lower.flatten().tolist(), exact, bound.upper.flatten().tolist(), strict=True
    ):
        assert low <= e <= high
        assert high - low <= 40 * unit


@dtypes
@pytest.mark.parametrize("classes", [3, 10, 100])
def test_the_machines_softmax_is_within_its_margin(dtype: str, classes: int) -> None:
    rng = np.random.default_rng(classes)
    scales = 10.0 ** rng.integers(-3, 3, size=(12, 1))
    f = torch.from_numpy(rng.normal(size=(12, classes)) * scales).to(getattr(torch, dtype))
    unit = torch.finfo(f.dtype).eps / 2
    bound = LOSSES["cross_entropy"].bound(
        Interval.point(f[None]), torch.zeros(12, dtype=torch.int64), one_k(dtype)
    )
    target = torch.nn.functional.one_hot(torch.zeros(12, dtype=torch.int64), classes)
    for row in range(12):
        terms = [mpmath.exp(mpmath.mpf(v)) for v in f[row].tolist()]
        for c in range(classes):
            exact = terms[c] / sum(terms)
            assert (
                abs(mpmath.mpf(torch.softmax(f, 1)[row, c].item()) - exact) <= (classes + 8) * unit
            )
            exact -= int(target[row, c])
            assert bound.lower[0, row, c].item() <= exact <= bound.upper[0, row, c].item()


@dtypes
def test_overflowing_exponentials_give_sound_bounds(dtype: str) -> None:
    """exp overflows to inf and 1/inf is 0; no NaN, no failure."""
    huge = 1e300 if dtype == "float64" else 1e30
    lower = torch.tensor([[[-huge, 0.0, 1.0]]], dtype=getattr(torch, dtype))
    upper = torch.tensor([[[huge, 0.0, 2.0]]], dtype=getattr(torch, dtype))
    bound = LOSSES["cross_entropy"].bound(Interval(lower, upper), torch.tensor([1]), one_k(dtype))
    assert bound.lower.flatten().tolist() == [0, -1, 0]
    assert bound.upper[0, 0, 0] == 1
    assert -0.8 < bound.upper[0, 0, 1] < -0.7  # p_1 at most 1 / (1 + e) beside a logit of 1


def test_closed_forms_refuse_a_squared_error() -> None:
    """Its gradient grows with the output, so no public constant bounds what one record moves."""
    with pytest.raises(ConfigError, match=r"training\.loss=squared_error"):
        LinearLoss.from_settings(make_training(loss="squared_error"), 2)


# -- broken on purpose


@dataclass(frozen=True)
class Broken:
    """A loss whose bounds are those of the outputs' lower ends, or for another label."""

    loss: Loss
    how: str

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loss, name)

    def bound(self, f: Interval, labels: Tensor, at: Rounding) -> Interval:
        if self.how == "width":
            f = Interval(f.lower, f.lower.clone())
        if self.how == "label":
            labels = (labels + 1) % max(2, f.shape[-1])
        return self.loss.bound(f, labels, at)


@pytest.mark.parametrize("how", ["width", "label"])
@losses
def test_the_checks_catch(name: str, how: str) -> None:
    loss, f, labels = setting(name, 1.0, "float64")
    assert outside(Broken(loss, how), f, labels, "float64") > 0  # type: ignore[arg-type]
