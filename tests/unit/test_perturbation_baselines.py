"""Private logistic regression by output and objective perturbation."""

from dataclasses import replace

import numpy as np
import pytest
from agt_cli._experiments.bench import Bench
from agt_cli._experiments.perturbation import Perturbation
from scipy.stats import kstest
from synthetic import ball, make_records, make_training, refused
from torch import nn

from agt.errors import ConfigError
from agt.numeric import gaussian_mu
from agt.training.erm_with_linear_term import ErmWithLinearTerm, solve

CLAMPS = (1.0, 0.5, 0.3)


def minimiser(x: np.ndarray, y: np.ndarray, strength: float, clamp: float) -> np.ndarray:
    return solve(ErmWithLinearTerm.from_labels(x, y, strength, clamp), 1e-10)


def linear_bench(x: np.ndarray, y: np.ndarray) -> Bench:
    head = nn.Sequential(nn.Linear(x.shape[1], 1, bias=False))
    return Bench(head, 2, make_records(x, y), len(x), make_training(loss="binary_cross_entropy"))


def fitted(
    config: Perturbation, x: np.ndarray, y: np.ndarray, eps: float, delta: float, seed: int
) -> np.ndarray:
    return config.fit(linear_bench(x, y), eps, delta, seed)["0.weight"][0].numpy()


@pytest.mark.parametrize("clamp", CLAMPS)
def test_retraining_on_neighbours_never_exceeds_the_sensitivity(clamp: float) -> None:
    config = Perturbation("output", 0.8, clamp)
    x, y = ball(24, 2)
    base = minimiser(x, y, 0.8, clamp)
    fewer = [
        minimiser(np.delete(x, row, axis=0), np.delete(y, row), 0.8, clamp) for row in range(24)
    ]
    assert 0 < max(np.linalg.norm(theta - base) for theta in fewer) <= config.sensitivity


def test_the_sensitivity_is_attained() -> None:
    """A record on the wrong side of a clamped loss, alone in the data."""
    one = np.array([[0.6, 0.8]])
    a = minimiser(one, np.array([1]), 100, 0.4)
    b = minimiser(one[:0], np.array([]), 100, 0.4)
    assert np.linalg.norm(a - b) == pytest.approx(
        Perturbation("output", 100, 0.4, tolerance=1e-9).sensitivity, rel=1e-6
    )


def test_the_conditions() -> None:
    (x, y), config = ball(10, 2), Perturbation("output", 1.0)
    refused(
        (
            ConfigError,
            r"norm 1\.1, ",
            lambda: fitted(
                config, 1.1 * x / np.linalg.norm(x, axis=1, keepdims=True), y, 1.0, 1e-5, 0
            ),
        ),
        (ConfigError, "two classes", lambda: fitted(config, x, 2 * y, 1.0, 1e-5, 0)),
    )


def test_output_perturbation_adds_the_noise_of_its_sensitivity() -> None:
    x, y = ball(60, 4)
    config = Perturbation("output", 3.0)
    theta = minimiser(x, y, 3.0, 1.0)
    noise = np.array([fitted(config, x, y, 2.0, 1e-5, seed) - theta for seed in range(300)])
    assert (
        kstest(noise.ravel() / (config.sensitivity / gaussian_mu(2.0, 1e-5)), "norm").pvalue > 1e-3
    )


def test_a_head_with_two_outputs_says_the_same() -> None:
    (x, y), config = ball(60, 4), Perturbation("objective", 3.0)
    one = linear_bench(x, y)
    two = replace(linear_bench(x, y), training=make_training(loss="cross_entropy"))
    weights = [here.labels(config.fit(here, 2.0, 1e-5, 0), x) for here in (one, two)]
    assert (weights[0] == weights[1]).all()
