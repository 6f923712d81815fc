"""A network's missing settings are named all at once."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from agt.errors import ConfigError
from agt.models.heads import CustomNetwork, HeadConfig
from agt.models.kinds import default_certificate
from agt.settings import TrainingConfig
from agt_cli.networks import NEEDED, NETWORK_CERTIFICATE, missing_path, missing_words

HEAD = "agt.models.heads.HeadConfig"
RECIPE = {"lr": "recipe", "epochs": "recipe", "clip": 1.0, "batch": {"count": "recipe"}}


def words(model: dict[str, Any], certificate: str = "box", **training: Any) -> list[str]:
    return missing_words(
        {
            "model": model,
            "certificate": {"name": certificate},
            "training": {**RECIPE, **training},
        }
    )


ALL = ["training.epochs=NUMBER", "training.lr=NUMBER", "training.clip_elementwise=NUMBER"]


@pytest.mark.parametrize("model", [{"_target_": HEAD, "hidden": [64]}, {"_target_": "net.make"}])
def test_everything_that_a_network_needs_is_named(model: dict[str, Any]) -> None:
    assert words(model, "stability") == ["certificate=box", "training=generic", *ALL]
    assert words(model) == ["training=generic", *ALL]


def test_what_was_given_is_not_named() -> None:
    model = {"_target_": HEAD, "hidden": [64]}
    assert words(model, epochs=4) == ["training=generic", *ALL[1:]]


def test_a_linear_head_and_settings_of_ones_own_need_nothing() -> None:
    assert words({"_target_": HEAD, "hidden": []}) == []
    own = {"lr": 1.0, "epochs": 1, "batch": {"count": 1}}
    assert words({"_target_": HEAD, "hidden": [64]}, **own) == []


def test_what_is_named_is_what_the_certificate_of_a_network_asks_for() -> None:
    network = HeadConfig(hidden=(4,))
    certificate = default_certificate(network)
    assert certificate.name == NETWORK_CERTIFICATE
    assert certificate.missing_training_settings(network, {}) == NEEDED


def test_a_network_in_the_present_folder_is_looked_for_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "net_of_mine.py").write_text("")
    monkeypatch.chdir(tmp_path)
    assert "PYTHONPATH=." in missing_path({"_target_": "net_of_mine.make"})
    assert missing_path({"_target_": "net_that_is_elsewhere.make"}) == ""
    assert missing_path({"_target_": HEAD}) == ""
    monkeypatch.syspath_prepend(tmp_path)
    assert missing_path({"_target_": "net_of_mine.make"}) == ""


class Wrapped(nn.Module):
    """A module whose forward() only calls the network inside."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.body(x)
        return output


class Scaled(Wrapped):
    """The same with a parameter beside it, so that the inner network is another model."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.ones(()))


def test_a_module_around_one_sequential_is_refused_with_its_name() -> None:
    with pytest.raises(ConfigError, match=r"nn\.Sequential.*Wrapped\(\)\.body"):
        CustomNetwork.from_network(Wrapped())  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"dividing by 255.*dataset\.scale=NUMBER"):
        CustomNetwork.from_network(Wrapped())  # type: ignore[arg-type]
    with pytest.raises(ConfigError) as error:
        CustomNetwork.from_network(Scaled())  # type: ignore[arg-type]
    assert "body" not in str(error.value), "its bounds would be those of another network"


@pytest.mark.parametrize(
    ("widths", "named"),
    [((5, 8, 8, 2), "its first layer must take 4 features"), ((4, 8, 9, 2), "its layer 2, Linear")],
)
def test_the_layer_that_does_not_fit_is_named(widths: tuple[int, ...], named: str) -> None:
    taken, inner, given, outputs = widths
    network = nn.Sequential(nn.Linear(taken, inner), nn.ReLU(), nn.Linear(given, outputs))
    training = TrainingConfig("cross_entropy", 3, 0.5, 0.5)
    with pytest.raises(ConfigError, match=named):
        CustomNetwork.from_network(network).build((4,), 2, training)
