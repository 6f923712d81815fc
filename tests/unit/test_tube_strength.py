"""What the recipe settles for a tube, and what the Python API makes of one where little is given."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import agt
from agt.settings import TrainingConfig, TubeConfig, validate
from agt.training.linear import strength
from agt.tube.network import SMOOTH, SWAY, settled

OPEN: dict[str, Any] = dict.fromkeys(("lr", "epochs", "weight_decay"), "recipe") | {
    "loss": "binary_cross_entropy", "clip": 0.5, "batch": {"count": "recipe"},
}  # fmt: skip


def opened(**settings: object) -> TrainingConfig:
    config: TrainingConfig = validate(TrainingConfig, OPEN | settings, "training")
    return config


def way(training: TrainingConfig, length: float = 16.0, units: int = 256, size: float = 3000) -> float:
    """What the rates add up to, in rates of a linear head."""
    made = settled(training, TubeConfig(length=length), SMOOTH["tanh"], units, 2, size)
    assert (made.by_recipe, made.batch.count, made.weight_decay) == ((), 1, 0)
    assert made.lr * (length**2 / 4) <= 2, "no step swings beyond"
    return made.lr * made.epochs * length**2


def test_rates_add_up_to_a_linear_heads_or_to_what_curvature_allows() -> None:
    assert way(opened()) == pytest.approx(3000 / strength(3000, 2), rel=1e-6)
    assert way(opened(caution=2.0)) == pytest.approx(way(opened()) / 2, rel=1e-6)
    pull = 0.5 * SMOOTH["tanh"].bend / 16  # of 256 units that are 1 long
    assert way(opened(), length=1.0) == pytest.approx(SWAY / pull, rel=1e-6)
    ways = [way(opened(), length=1.0, units=units) for units in (16, 64, 256, 1024)]
    assert all(one < other for one, other in pairwise(ways)), "wide networks bend less"


def test_what_is_given_stays() -> None:
    made = settled(opened(lr=0.5, epochs=3), TubeConfig(), SMOOTH["gelu"], 64, 2, 100)
    assert (made.lr, made.epochs) == (0.5, 3)
    plain = opened(lr=0.5, epochs=3, weight_decay=0.0, batch={"count": 1})
    assert settled(plain, TubeConfig(), SMOOTH["gelu"], 64, 2, 100) is plain


def fit(classes: int = 2, **given: Any) -> Any:
    rng = np.random.default_rng(0)
    x, declared = rng.normal(size=(40, 3)), agt.Declared(classes=range(classes), size=40, features=True, settings=True)
    return agt.fit(x, np.arange(40) % classes, declared=declared, compute={"threads": 1}, ks=2, **given).model


def test_a_tube_brings_its_network_its_activation_and_its_loss() -> None:
    model = fit(certificate="tube", caution=50.0)
    assert (model.settings.model.hidden, model.settings.model.activation) == ((256,), "tanh")
    model = fit(3, certificate="tube", network=(8,), caution=50.0)
    assert (model.settings.model.activation, model.settings.training.loss) == ("tanh", "cross_entropy")
    assert fit(network=(8,), epochs=1).settings.model.activation == "relu", "of boxes it is as before"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"network": (8,), "activation": "relu"}, "model.activation=relu: certificate=tube"),
        ({"network": (8, 8)}, "model.hidden"),
        ({"network": (8,), "relation": "paper_privacy"}, "add_remove, substitute or remove"),
        ({"network": (8,), "momentum": 0.5}, "training.momentum=0.5: every certificate but box"),
    ],
)
def test_what_no_tube_is_proved_for_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(agt.ConfigError, match=message):
        fit(certificate="tube", **given)
