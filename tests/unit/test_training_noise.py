"""Noise inside certified training: its sensitivity, its plan and its draws."""

import numpy as np
import pytest
import torch
from synthetic import make_head, make_recipe, make_records, make_training

from agt.errors import ConfigError
from agt.relations import RELATIONS
from agt.training.loop import train
from agt.training.noise import NoisePlan, draw_noise, noise_seed, plan_noise
from agt.training.settings import NoiseConfig, read_noise_config

CLIP = 0.1
NORMALIZER = 8.0
LR = 0.5


def certified_step(features: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """All weights after one step of certified training."""
    training = make_training(lr=LR, clip=CLIP)
    records = make_records(features, labels)
    head = make_head(training, features.shape[1], 2, (5,))
    with torch.no_grad():
        for p in head.parameters():
            p.fill_(0.5)
        head[2].weight[0] = -0.5  # every unit passes a gradient of one sign
    trained = train(
        head, make_recipe(training, declared_size=8, threads=1, kernel="reference"), records
    )
    return torch.cat([t.flatten() for t in trained.nominal.values()]).numpy()


def direction_change(features: np.ndarray, labels: np.ndarray, rows: np.ndarray) -> float:
    """How far, in l2, leaving out all but ``rows`` moves the step's direction."""
    return float(
        np.linalg.norm(
            certified_step(features, labels) - certified_step(features[rows], labels[rows])
        )
        / LR
    )


def test_a_saturating_record_attains_the_sensitivity() -> None:
    x = np.array([[0.1, 0.2, -0.1], [100.0, 100.0, 100.0]])
    parameters = 4 * 5 + 6 * 2
    expected = RELATIONS["add_remove"].step_sensitivity(CLIP, parameters, NORMALIZER)
    assert expected == pytest.approx(CLIP * np.sqrt(32) / 8)
    assert direction_change(x, np.array([0, 0]), np.array([0])) == pytest.approx(expected, rel=1e-9)
    assert expected > 5 * CLIP / NORMALIZER  # an l2 sensitivity of gamma/B would be false


def test_no_record_exceeds_it() -> None:
    rng = np.random.default_rng(0)
    bound = RELATIONS["add_remove"].step_sensitivity(CLIP, 32, NORMALIZER)
    for _ in range(12):
        x = rng.normal(size=(6, 3)) * 10.0 ** rng.integers(-1, 3)
        assert direction_change(x, rng.integers(0, 2, 6), np.arange(5)) <= bound * (1 + 1e-12)


@pytest.mark.parametrize(
    ("epsilon", "delta", "epochs"), [(0.1, 1e-5, 1), (1.0, 1e-5, 3), (10.0, 1e-9, 200)]
)
def test_the_plan_meets_its_target(epsilon: float, delta: float, epochs: int) -> None:
    plan = plan_noise(NoiseConfig(epsilon=epsilon, delta=delta), 0.02, epochs)
    assert delta * (1 - 1e-5) < plan.delta(epsilon) <= delta
    assert plan.mu == pytest.approx(np.sqrt(epochs) * 0.02 / plan.sigma)
    assert plan_noise(
        NoiseConfig(epsilon=epsilon, delta=delta), 0.02, 4 * epochs
    ).sigma == pytest.approx(2 * plan.sigma)


def test_draws_have_the_shape_the_spread_and_a_memory() -> None:
    plan = NoisePlan(sensitivity=1.0, sigma=0.3, epochs=1)
    parameters = {
        "w": torch.zeros(100, 300, dtype=torch.float32),
        "b": torch.zeros(7, dtype=torch.float64),
    }
    noise = draw_noise(parameters, plan, 5, 2)
    assert {n: (z.shape, z.dtype) for n, z in noise.items()} == {
        n: (p.shape, torch.float64) for n, p in parameters.items()
    }
    assert float(noise["w"].std()) == pytest.approx(0.3, rel=0.02)
    again = draw_noise(parameters, plan, 5, 2)
    assert all(torch.equal(noise[n], again[n]) for n in noise)
    for seed, step in ((5, 3), (6, 2), (2, 5)):
        other = draw_noise(parameters, plan, seed, step)["w"]
        assert (
            abs(float(torch.corrcoef(torch.stack([other.flatten(), noise["w"].flatten()]))[0, 1]))
            < 0.03
        )


def test_seeds() -> None:
    assert noise_seed(NoiseConfig(epsilon=1, delta=1e-5, seed=3)) == 3
    assert noise_seed(NoiseConfig(epsilon=1, delta=1e-5)) != noise_seed(
        NoiseConfig(epsilon=1, delta=1e-5)
    )
    seeds = [noise_seed(NoiseConfig(epsilon=1, delta=1e-5)) for _ in range(40)]
    assert 2**120 < max(seeds) < 2**128  # every bit of the key is secret
    plan = NoisePlan(sensitivity=1.0, sigma=1.0, epochs=1)
    parameters = {"w": torch.zeros(4)}
    low, high = (draw_noise(parameters, plan, seed, 0)["w"] for seed in (5, 5 + 2**100))
    assert not torch.equal(low, high)


def test_releasing_only_inside_the_box_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^noise: "):
        read_noise_config({"epsilon": 1, "release": "inside_box"})


def test_settings_without_an_epsilon_are_no_noise() -> None:
    assert read_noise_config(None) is None
    assert read_noise_config({"epsilon": None, "delta": 1e-5}) is None
    assert read_noise_config({"epsilon": 2}) == NoiseConfig(epsilon=2, delta=1e-5)
    ignored = (
        {"epsilon": None, "delta": 1e-6},
        {"epsilon": None, "seed": 3},
        {"epsilon": None, "release": "inside_box"},
    )
    for wrong in (
        {"epsilon": 0},
        {"epsilon": 1e300},
        {"epsilon": 1, "delta": 1},
        {"epsilom": 1},
        3,
        *ignored,
    ):
        with pytest.raises(ConfigError, match="noise"):
            read_noise_config(wrong)
