"""A head's passes against autograd, a network computed by hand, the two-class head, and margins."""

import numpy as np
import pytest
import torch
from synthetic import make_head, make_training, random_interval
from torch import nn

from agt.bounds.interval import Interval
from agt.bounds.network import Network
from agt.bounds.rounding import EXACT, Products, Rounding
from agt.errors import ConfigError


def rounding(*ks: int) -> Rounding:
    return Rounding.of(ks, torch.float64, torch.device("cpu"))


def setting(loss: str, classes: int, hidden: tuple[int, ...], products: Products = EXACT, n: int = 12):  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(3)
    head = make_head(make_training(loss=loss), 6, classes, hidden)
    x, y = torch.from_numpy(rng.normal(size=(n, 6))), torch.from_numpy(rng.integers(0, classes, n))
    return rng, head, Network.of(head, loss, classes, products), x, y


def test_two_layers_by_hand() -> None:
    """x = 1, w1 in [1/2, 3/2], b1 in [-1/4, 1/4]; w2 in [-3/8, 1/8], b2 in [-1/2, 1/4]; y = 0."""
    head = nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 1)).double()
    network = Network.of(head, "binary_cross_entropy", 2)
    ends = {"0.weight": (0.5, 1.5), "0.bias": (-0.25, 0.25), "2.weight": (-0.375, 0.125), "2.bias": (-0.5, 0.25)}
    shapes = {n: p.shape for n, p in head.named_parameters()}
    box = {n: Interval(*(torch.full((1, *shapes[n]), e, dtype=torch.float64) for e in pair)) for n, pair in ends.items()}
    x, y = torch.ones(1, 1, dtype=torch.float64), torch.zeros(1, dtype=torch.int64)
    logits = network.bound_logits(x, box, rounding(0))
    # The hidden value lies in [1/4, 7/4]; f in [-3/8 * 7/4 - 1/2, 1/8 * 7/4 + 1/4].
    assert logits.lower.item() == pytest.approx(-1.15625, abs=1e-13)
    assert logits.upper.item() == pytest.approx(0.46875, abs=1e-13)
    last, first = network.factors(x, y, box, rounding(0))
    low, high = 1 / (1 + np.exp(1.15625)), 1 / (1 + np.exp(-0.46875))
    assert (last.d.lower.item(), last.d.upper.item()) == pytest.approx((low, high), abs=1e-13)
    assert (last.x.lower.item(), last.x.upper.item()) == pytest.approx((0.25, 1.75), abs=1e-13)
    # ReLU is active throughout: d_hidden = w2 d.
    assert (first.d.lower.item(), first.d.upper.item()) == pytest.approx((-0.375 * high, 0.125 * high), abs=1e-13)
    assert (first.x.lower.item(), first.x.upper.item()) == (1, 1)


def test_the_two_class_head_is_never_looser_than_two_logits() -> None:
    rng, head, network, x, _ = setting("cross_entropy", 2, (5,))
    separate = Network(network.rules, network.loss, False, EXACT, 2)
    box = {n: random_interval(rng, 1, *p.shape, radius=0.3) for n, p in head.state_dict().items()}
    difference = network.bound_logits(x, box, rounding(0))
    both = separate.bound_logits(x, box, rounding(0))
    assert (difference.lower[..., 0] >= both.lower[..., 1] - both.upper[..., 0] - 1e-12).all()
    assert (difference.upper[..., 0] <= both.upper[..., 1] - both.lower[..., 0] + 1e-12).all()
    assert (difference.upper - difference.lower).sum() < 0.99 * (both.upper - both.lower).sum()


def test_expand_is_the_gradient_in_both_rows() -> None:
    _, _, network, _, _ = setting("cross_entropy", 2, (5,))
    lower, upper = torch.tensor([[[-1, 2]]]), torch.tensor([[[3, 5]]])
    low, high = network.expand("2.weight", lower, upper)
    assert low.tolist() == [[[-3, -5], [-1, 2]]]
    assert high.tolist() == [[[1, -2], [3, 5]]]
    assert network.expand("0.weight", lower, upper) == (lower, upper)


def test_prediction_of_a_tie_is_class_0() -> None:
    for loss, classes in (("binary_cross_entropy", 2), ("cross_entropy", 2), ("cross_entropy", 3)):
        _, head, network, x, _ = setting(loss, classes, ())
        zero = {n: torch.zeros_like(p) for n, p in head.state_dict().items()}
        assert network.predict(x, zero).tolist() == [0] * len(x)


def test_the_last_layer_must_be_linear() -> None:
    relu = nn.ReLU()
    for layers in ([], [nn.Linear(2, 2), nn.ReLU()], [nn.Linear(2, 2), relu, nn.Linear(2, 2), relu]):
        with pytest.raises(ConfigError, match="last layer must be linear"):
            Network.of(nn.Sequential(*layers), "cross_entropy", 2)
