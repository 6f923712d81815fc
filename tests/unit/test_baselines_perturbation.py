"""Perturbed ERM: the solver against its own bound, sensitivities by retraining, privacy by integrating exact densities."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import kstest
from synthetic import make_records, make_training
from torch import nn

from agt.errors import AgtError, ConfigError
from agt.numeric import gaussian_delta, gaussian_mu
from agt_cli.papers.baselines.erm import Erm, smoothness, solve
from agt_cli.papers.baselines.perturbation import SOLVER_SHARE, Perturbation
from agt_cli.papers.baselines.released import Bench

CLAMPS = (1.0, 0.5, 0.3)


def ball(n: int, d: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Records in the unit ball, half of them on its surface."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    x[::2] *= rng.random((len(x[::2]), 1))
    return x, rng.integers(0, 2, n)


def minimiser(x: np.ndarray, y: np.ndarray, strength: float, clamp: float) -> np.ndarray:
    return solve(Erm.of(x, y, strength, clamp), 1e-10)


@pytest.mark.parametrize("clamp", CLAMPS)
def test_gradient_and_hessian_are_the_values_derivatives(clamp: float) -> None:
    x, y = ball(40, 3)
    erm = Erm(x, 2.0 * y - 1, 0.7, clamp, np.array([0.1, -2.0, 0.3]))
    rng = np.random.default_rng(1)
    for _ in range(5):
        theta, step = 3 * rng.normal(size=3), 1e-5
        ends = [(theta + step * e, theta - step * e) for e in np.eye(3)]
        slope = [(erm.value(a) - erm.value(b)) / (2 * step) for a, b in ends]
        curve = [(erm.gradient(a) - erm.gradient(b)) / (2 * step) for a, b in ends]
        np.testing.assert_allclose(erm.gradient(theta), slope, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(erm.hessian(theta), curve, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("clamp", CLAMPS)
def test_the_losses_bounds(clamp: float) -> None:
    p = expit(np.linspace(-20, 20, 100_001))
    assert np.where(p < clamp, p * (1 - p), 0).max() == pytest.approx(smoothness(clamp), rel=1e-3)
    assert np.where(p < clamp, p * (1 - p), 0).max() <= smoothness(clamp)


@pytest.mark.parametrize("clamp", CLAMPS)
def test_the_gradients_norm_is_bounded_above_rounding_included(clamp: float) -> None:
    x, y = ball(3000, 5)
    erm = Erm(x, 2.0 * y - 1, 0.5, clamp, np.full(5, 0.2))
    theta = solve(erm, 1e-9)
    wide, t = x.astype(np.longdouble), theta.astype(np.longdouble)
    assert np.finfo(np.longdouble).eps < 1e-18
    weight = np.minimum(1 / (1 + np.exp(erm.y * (wide @ t))), np.longdouble(clamp))
    exact = np.linalg.norm((-(wide.T @ (erm.y * weight)) + 0.5 * t + erm.tilt).astype(float))
    assert exact <= erm.gradient_norm(theta) <= 1e-9
    assert erm.gradient_norm(theta + 0.01) > 1e-3


def test_a_tolerance_that_rounding_forbids_releases_nothing() -> None:
    x, y = ball(500, 3)
    with pytest.raises(AgtError, match="nothing is released"):
        solve(Erm.of(x, y, 1.0, 1.0), 1e-16)


def bench(x: np.ndarray, y: np.ndarray) -> Bench:
    head = nn.Sequential(nn.Linear(x.shape[1], 1, bias=False))
    return Bench(head, 2, make_records(x, y), len(x), make_training(loss="binary_cross_entropy"))


def fitted(config: Perturbation, x: np.ndarray, y: np.ndarray, eps: float, delta: float, seed: int) -> np.ndarray:
    return config.fit(bench(x, y), eps, delta, seed)["0.weight"][0].numpy()


@pytest.mark.parametrize("clamp", CLAMPS)
def test_retraining_on_neighbours_never_exceeds_the_sensitivity(clamp: float) -> None:
    config = Perturbation("output", 0.8, clamp)
    x, y = ball(24, 2)
    base = minimiser(x, y, 0.8, clamp)
    fewer = [minimiser(np.delete(x, row, axis=0), np.delete(y, row), 0.8, clamp) for row in range(24)]
    assert 0 < max(np.linalg.norm(theta - base) for theta in fewer) <= config.sensitivity


def test_the_sensitivity_is_attained() -> None:
    """A record on the wrong side of a clamped loss, alone in the data."""
    one = np.array([[0.6, 0.8]])
    a, b = minimiser(one, np.array([1]), 100, 0.4), minimiser(one[:0], np.array([]), 100, 0.4)
    assert np.linalg.norm(a - b) == pytest.approx(Perturbation("output", 100, 0.4, tolerance=1e-9).sensitivity, rel=1e-6)


def density(x: np.ndarray, y: np.ndarray, config: Perturbation, sigma: float, grid: np.ndarray) -> np.ndarray:
    """The exact density of objective perturbation's minimiser at the points of ``grid`` [m, d]."""
    signs, margins = 2.0 * y - 1, (2.0 * y - 1) * (grid @ x.T)
    p = expit(-margins)
    tilt = np.minimum(p, config.clamp) * signs @ x - config.strength * grid
    curvature = np.where(p < config.clamp, p * (1 - p), 0)
    hessian = np.einsum("mn,ni,nj->mij", curvature, x, x) + config.strength * np.eye(x.shape[1])
    return np.exp(-(np.linalg.norm(tilt, axis=1) ** 2) / (2 * sigma**2)) * np.linalg.det(hessian)


def hockey_stick(one: np.ndarray, other: np.ndarray, epsilon: float) -> float:
    return float(np.maximum(one - np.exp(epsilon) * other, 0).sum())


def worst(config: Perturbation, scale: float, epsilon: float) -> float:
    """The largest delta at ``epsilon`` over neighbours of small datasets in one and two dimensions, both directions."""
    found = 0.0
    for d, points, n in ((1, 20_001, 0), (1, 20_001, 3), (2, 301, 2)):
        reach = (9 * scale + n + 1) / config.strength
        axis = np.linspace(-reach, reach, points)
        grid = np.stack(np.meshgrid(*[axis] * d, indexing="ij"), axis=-1).reshape(-1, d)
        x, y = ball(n, d, seed=n)
        p = density(x, y, config, scale, grid)
        for angle, label in product((0.0, 0.7, np.pi), (0, 1)):
            z = np.array([[np.cos(angle), np.sin(angle)][:d]])
            q = density(np.vstack([x, z / np.linalg.norm(z)]), np.append(y, label), config, scale, grid)
            a, b = p / p.sum(), q / q.sum()
            found = max(found, hockey_stick(a, b, epsilon), hockey_stick(b, a, epsilon))
    return found


@pytest.mark.parametrize(
    ("clamp", "epsilon", "strength"), [(1.0, 1.0, 1.0), (0.5, 1.0, 0.5), (0.5, 0.3, 2.0), (0.3, 2.0, 0.2)]
)
def test_objective_perturbation_is_private(clamp: float, epsilon: float, strength: float) -> None:
    config = Perturbation("objective", strength, clamp)
    sigma, share = config.tilt_noise(epsilon, 0.01), 1 - SOLVER_SHARE
    target = share * 0.01
    assert gaussian_delta(share * epsilon - config.determinant_loss, clamp / sigma) == pytest.approx(target, rel=1e-6)
    assert worst(config, sigma, share * epsilon) <= target
    assert worst(config, sigma / 2, share * epsilon) > target  # half the noise is caught


def test_the_conditions() -> None:
    with pytest.raises(ConfigError, match=r"needs strength above 2\.402, got 2"):
        Perturbation("objective", 2.0).tilt_noise(0.1, 1e-5)
    assert Perturbation("objective", 2.41).tilt_noise(0.1, 1e-5) > 0
    x, y = ball(10, 2)
    config = Perturbation("output", 1.0)
    with pytest.raises(ConfigError, match=r"norm at most 1, and the longest has 1\.1"):
        fitted(config, 1.1 * x / np.linalg.norm(x, axis=1, keepdims=True), y, 1.0, 1e-5, 0)
    with pytest.raises(ConfigError, match="two classes"):
        fitted(config, x, 2 * y, 1.0, 1e-5, 0)


def test_output_perturbation_adds_the_noise_of_its_sensitivity() -> None:
    x, y = ball(60, 4)
    config, theta = Perturbation("output", 3.0), minimiser(x, y, 3.0, 1.0)
    noise = np.array([fitted(config, x, y, 2.0, 1e-5, seed) - theta for seed in range(300)])
    assert kstest(noise.ravel() / (config.sensitivity / gaussian_mu(2.0, 1e-5)), "norm").pvalue > 1e-3


def test_a_head_with_two_outputs_says_the_same() -> None:
    (x, y), config = ball(60, 4), Perturbation("objective", 3.0)
    one, two = bench(x, y), replace(bench(x, y), training=make_training(loss="cross_entropy"))
    weights = [here.labels(config.fit(here, 2.0, 1e-5, 0), x) for here in (one, two)]
    assert (weights[0] == weights[1]).all()


def test_on_the_real_embeddings(shared_data: Callable[[str], Path]) -> None:
    file = np.load(shared_data("imdb_minilm.npz"))
    rows = slice(0, 12_000)
    x = file["x"][rows].astype(np.float64) - file["center"]
    x = np.hstack([x / np.linalg.norm(x, axis=1, keepdims=True), np.full((len(x), 1), 0.1)]) / np.sqrt(1.01)
    y, test = file["y"][rows].astype(int), file["is_test"][rows] == 1
    theta = fitted(Perturbation("objective", 10, 0.5), x[~test], y[~test], 1.0, 1e-5, 0)
    assert ((x[test] @ theta > 0) == y[test]).mean() > 0.75
