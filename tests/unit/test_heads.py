"""Heads: the activation that the settings name, and what has a bound rule."""

from typing import get_args

import pytest
import torch
from synthetic import make_head, make_training
from torch import nn

from agt.bounds.rules import RULES, rules_for
from agt.errors import ConfigError
from agt.models.heads import ACTIVATIONS, ActivationName, HeadConfig
from agt.settings import validate


@pytest.mark.parametrize("name", get_args(ActivationName))
def test_every_activation_has_a_rule_and_stands_between_linear_layers(name: str) -> None:
    head = make_head(make_training(), 3, 2, (5, 4), activation=name)
    kinds = [type(layer) for layer in head]
    assert kinds == [nn.Linear, ACTIVATIONS[name], nn.Linear, ACTIVATIONS[name], nn.Linear]
    assert len(rules_for(head)) == 5
    assert ACTIVATIONS[name].__name__.lower() == name.replace("_", "")


def test_every_rule_of_an_activation_has_a_name_for_the_settings() -> None:
    assert set(ACTIVATIONS.values()) == set(RULES) - {nn.Linear, nn.Flatten, nn.AvgPool2d}


def test_the_activation_changes_no_initial_parameter() -> None:
    heads = [make_head(make_training(), 3, 2, (5,), activation=name).state_dict() for name in ("relu", "gelu")]
    assert all(torch.equal(heads[0][n], heads[1][n]) for n in heads[0])


def test_older_settings_without_an_activation_mean_relu() -> None:
    model = validate(HeadConfig, {"hidden": [4]}, "model")
    assert isinstance(model.build((3,), 2, make_training())[1], nn.ReLU)


def test_an_unknown_activation_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"model.activation: unknown value 'gellu'; did you mean 'gelu'"):
        validate(HeadConfig, {"hidden": [4], "activation": "gellu"}, "model")
