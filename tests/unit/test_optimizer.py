"""SGD against torch.optim.SGD, the published schedule, and boxes that hold every sequence of gradients within them."""

import numpy as np
import pytest
import torch
from synthetic import make_training

from agt.training.loop import Sgd, descend, learning_rate

SETTINGS = [
    {},
    {"momentum": 0.9},
    {"momentum": 0.9, "nesterov": True},
    {"momentum": 0.7, "dampening": 0.3},
    {"momentum": 0.5, "weight_decay": 0.4},
    {"momentum": 0.6, "nesterov": True, "weight_decay": 0.2, "decay": 0.5, "lr_min": 0.02},
    {"weight_decay": 10.0},  # lr * wd = 1: the parameters are forgotten
]


def walk(config, theta: torch.Tensor, gradients: list[torch.Tensor]) -> torch.Tensor:  # type: ignore[no-untyped-def]
    sgd = Sgd(config)
    for step, g in enumerate(gradients):
        theta = descend(config, learning_rate(config, step), theta, sgd.update(("p", 0), g))
    return theta


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_box_holds_every_sequence_of_gradients_bitwise(settings: dict, dtype: torch.dtype) -> None:
    config = make_training(**settings)
    rng = np.random.default_rng(0)
    theta = torch.from_numpy(rng.normal(size=7)).to(dtype)
    ends = [torch.from_numpy(rng.normal(size=(25, 7))).to(dtype) for _ in range(2)]
    low, high = torch.minimum(*ends), torch.maximum(*ends)
    lower, upper, down, up = theta, theta, Sgd(config), Sgd(config)
    for step in range(25):
        lr = learning_rate(config, step)
        # As in training: theta's lower bound takes the update's upper one.
        updates = down.update(("p", 0), low[step]), up.update(("p", 0), high[step])
        lower, upper = descend(config, lr, lower, updates[1]), descend(config, lr, upper, updates[0])
    for index in range(200):
        share = torch.from_numpy(rng.integers(0, 2, (25, 7)) if index % 2 else rng.random((25, 7))).to(dtype)
        inside = torch.minimum(torch.maximum(low + share * (high - low), low), high)
        end = walk(config, theta, list(inside))
        assert ((lower <= end) & (end <= upper)).all()


def test_the_schedule() -> None:
    config = make_training(lr=2.0, decay=0.5, lr_min=0.3)
    assert [learning_rate(config, n) for n in (0, 1, 2, 100)] == [2.0, 2.0 / 1.5, 1.0, 0.3]
    assert learning_rate(make_training(lr=0.1), 10**6) == 0.1


def test_groups_of_k_keep_their_own_buffers() -> None:
    sgd = Sgd(make_training(momentum=0.5))
    one = torch.ones(2)
    sgd.update(("p", 0), one)
    assert sgd.update(("p", 3), one).tolist() == [1, 1]
    assert sgd.update(("q", 0), one).tolist() == [1, 1]
    assert sgd.update(("p", 0), one).tolist() == [1.5, 1.5]
