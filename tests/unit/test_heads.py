"""Heads: the activation that the settings name, and what has a bound rule."""

from typing import get_args

import pytest
import torch
from synthetic import make_head, make_training
from torch import nn

from agt.bounds.rules import RULES, rules_for
from agt.errors import ConfigError
from agt.models.heads import ACTIVATIONS, ActivationName, ConvConfig, HeadConfig, layers_of
from agt.settings import validate


@pytest.mark.parametrize("name", get_args(ActivationName))
def test_every_activation_has_a_rule_and_stands_between_linear_layers(name: str) -> None:
    head = make_head(make_training(), 3, 2, (5, 4), activation=name)
    kinds = [type(layer) for layer in head]
    assert kinds == [nn.Linear, ACTIVATIONS[name], nn.Linear, ACTIVATIONS[name], nn.Linear]
    assert len(rules_for(head)) == 5
    assert ACTIVATIONS[name].__name__.lower() == name.replace("_", "")


def test_every_rule_of_an_activation_has_a_name_for_the_settings() -> None:
    assert set(ACTIVATIONS.values()) == set(RULES) - {nn.Linear, nn.Flatten, nn.Unflatten, nn.AvgPool2d, nn.Conv2d}


def test_the_activation_changes_no_initial_parameter() -> None:
    heads = [make_head(make_training(), 3, 2, (5,), activation=name).state_dict() for name in ("relu", "gelu")]
    assert all(torch.equal(heads[0][n], heads[1][n]) for n in heads[0])


def test_older_settings_without_an_activation_mean_relu() -> None:
    model = validate(HeadConfig, {"hidden": [4]}, "model")
    assert isinstance(model.build((3,), 2, make_training())[1], nn.ReLU)


def test_an_unknown_activation_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"model.activation: unknown value 'gellu'; did you mean 'gelu'"):
        validate(HeadConfig, {"hidden": [4], "activation": "gellu"}, "model")


def test_convolutions_of_the_papers_network() -> None:
    head = ConvConfig(hidden=(100,)).build((1, 28, 28), 2, make_training(loss="binary_cross_entropy"))
    assert [type(layer) for layer in head] == [
        nn.Conv2d, nn.ReLU, nn.Conv2d, nn.ReLU, nn.Flatten, nn.Linear, nn.ReLU, nn.Linear,
    ]  # fmt: skip
    assert [tuple(p.shape) for p in head.parameters() if p.dim() > 1] == [
        (16, 1, 4, 4), (32, 16, 4, 4), (100, 3200), (1, 100),
    ]  # fmt: skip
    again = ConvConfig(hidden=(100,)).build((1, 28, 28), 2, make_training(loss="binary_cross_entropy"))
    assert layers_of(head) == layers_of(again)
    assert all(torch.equal(a, b) for a, b in zip(head.parameters(), again.parameters(), strict=True))
    pooled = ConvConfig(pools=(2, 1), activation="tanh").build((3, 28, 28), 5, make_training())
    assert [type(layer) for layer in pooled][:4] == [nn.Conv2d, nn.Tanh, nn.AvgPool2d, nn.Conv2d]
    assert pooled(torch.zeros(2, 3, 28, 28, dtype=torch.float64)).shape == (2, 5)


def test_where_convolutions_start() -> None:
    training = make_training(loss="binary_cross_entropy")
    usual = ConvConfig(hidden=(8,)).build((1, 28, 28), 2, training)
    he = ConvConfig(hidden=(8,), start="he", output_scale=0.5).build((1, 28, 28), 2, training)
    for (name, a), (_, b) in zip(usual.named_parameters(), he.named_parameters(), strict=True):
        scale = (6**0.5 if name.endswith("weight") else 0.0) * (0.5 if name.startswith("7.") else 1.0)
        assert torch.allclose(b, a * scale, rtol=1e-15, atol=0), name
    assert float(he[2].weight.detach().var() * 16 * 4 * 4) == pytest.approx(2, rel=0.05)  # 8,192 weights
    flat = ConvConfig(output_scale=0.0).build((1, 28, 28), 2, training)
    assert not flat(torch.rand(3, 1, 28, 28, dtype=torch.float64)).any()


@pytest.mark.parametrize(
    ("settings", "shape", "message"),
    [
        ({"kernels": (4,)}, (1, 28, 28), "model.kernels: 1 given for 2 channels|kernels: 1 given for 2 channels"),
        ({"encoder": {}}, (1, 28, 28), "give model=small_cnn for a frozen encoder"),
        ({}, (784,), r"convolutions take images \[channels, height, width\], and a record has shape \(784,\)"),
        ({}, (1, 7, 7), r"its layers take no record of shape \(1, 7, 7\)"),
    ],
)
def test_convolutions_that_cannot_be_made_are_refused(settings: dict, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        validate(ConvConfig, settings, "model").build(shape, 2, make_training())
