"""Perturbed ERM: the solver against its own bound, sensitivities by retraining, privacy by integrating exact densities."""

from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import gamma, kstest

from agt.errors import AgtError, ConfigError
from agt.numeric import gaussian_delta, gaussian_mu
from agt.settings import validate
from agt_cli.papers.baselines.erm import Erm, smoothness, solve
from agt_cli.papers.baselines.perturbation import (
    SOLVER_SHARE,
    PerturbationConfig,
    _noise,
    determinant_loss,
    output_sensitivity,
    tilt_noise,
    train_perturbed,
)

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


@pytest.mark.parametrize(("relation", "clamp"), list(product(("add_remove", "substitute"), CLAMPS)))
def test_retraining_on_neighbours_never_exceeds_the_sensitivity(relation: str, clamp: float) -> None:
    strength = 0.8
    config = PerturbationConfig(method="output", epsilon=1, strength=strength, clamp=clamp, relation=relation)  # type: ignore[arg-type]
    x, y = ball(24, 2)
    base = minimiser(x, y, strength, clamp)
    others, labels = ball(24, 2, seed=5)
    moves = []
    for row in range(24):
        left_x, left_y = np.delete(x, row, axis=0), np.delete(y, row)
        if relation == "substitute":
            left_x, left_y = np.vstack([left_x, others[row : row + 1]]), np.append(left_y, labels[row])
        moves.append(np.linalg.norm(minimiser(left_x, left_y, strength, clamp) - base))
    assert 0 < max(moves) <= output_sensitivity(config)


@pytest.mark.parametrize("relation", ["add_remove", "substitute"])
def test_the_sensitivity_is_attained(relation: str) -> None:
    """A record on the wrong side of a clamped loss, alone in the data."""
    config = PerturbationConfig(method="output", epsilon=1, strength=100, clamp=0.4, relation=relation, tolerance=1e-9)  # type: ignore[arg-type]
    one = np.array([[0.6, 0.8]])
    a = minimiser(one, np.array([1]), 100, 0.4)
    b = minimiser(one, np.array([0]), 100, 0.4) if relation == "substitute" else minimiser(one[:0], np.array([]), 100, 0.4)
    assert np.linalg.norm(a - b) == pytest.approx(output_sensitivity(config), rel=1e-6)


def density(x: np.ndarray, y: np.ndarray, config: PerturbationConfig, scale: float, grid: np.ndarray) -> np.ndarray:
    """The exact density of objective perturbation's minimiser at the points of ``grid`` [m, d]."""
    signs, margins = 2.0 * y - 1, (2.0 * y - 1) * (grid @ x.T)
    p = expit(-margins)
    tilt = np.minimum(p, config.clamp) * signs @ x - config.strength * grid
    curvature = np.where(p < config.clamp, p * (1 - p), 0)
    hessian = np.einsum("mn,ni,nj->mij", curvature, x, x) + config.strength * np.eye(x.shape[1])
    length = np.linalg.norm(tilt, axis=1)
    noise = np.exp(-(length**2) / (2 * scale**2)) if config.delta else np.exp(-length / scale)
    return noise * np.linalg.det(hessian)


def hockey_stick(one: np.ndarray, other: np.ndarray, epsilon: float) -> float:
    return float(np.maximum(one - np.exp(epsilon) * other, 0).sum())


def worst(config: PerturbationConfig, scale: float, epsilon: float) -> float:
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
    config = PerturbationConfig(method="objective", epsilon=epsilon, delta=0.01, strength=strength, clamp=clamp)
    sigma, share = tilt_noise(config), 1 - SOLVER_SHARE
    target = share * config.delta
    assert gaussian_delta(share * epsilon - determinant_loss(config), clamp / sigma) == pytest.approx(target, rel=1e-6)
    assert worst(config, sigma, share * epsilon) <= target
    assert worst(config, sigma / 2, share * epsilon) > target  # half the noise is caught


@pytest.mark.parametrize(("clamp", "epsilon", "strength"), [(1.0, 1.0, 1.0), (0.3, 0.5, 2.0)])
def test_pure_objective_perturbation_is_private(clamp: float, epsilon: float, strength: float) -> None:
    config = PerturbationConfig(method="objective", epsilon=epsilon, strength=strength, clamp=clamp)
    scale, share = tilt_noise(config), 1 - SOLVER_SHARE
    assert worst(config, scale, share * epsilon) <= 1e-6  # what the grid's cut-off tails leave
    assert worst(config, scale / 2, share * epsilon) > 1e-3


def test_the_conditions() -> None:
    strict = PerturbationConfig(method="objective", epsilon=0.1, delta=1e-5, strength=2.0)
    with pytest.raises(ConfigError, match=r"needs strength above 2\.402, got 2"):
        tilt_noise(strict)
    assert tilt_noise(PerturbationConfig(method="objective", epsilon=0.1, delta=1e-5, strength=2.41)) > 0
    with pytest.raises(ConfigError, match="use method=output for substitute"):
        validate(
            PerturbationConfig,
            {"method": "objective", "epsilon": 1, "strength": 1, "relation": "substitute"},
            "perturbation",
        )
    x, y = ball(10, 2)
    config = PerturbationConfig(method="output", epsilon=1.0, strength=1.0, seed=0)
    with pytest.raises(ConfigError, match=r"norm at most 1, and the longest has 1\.1"):
        train_perturbed(1.1 * x / np.linalg.norm(x, axis=1, keepdims=True), y, config)
    with pytest.raises(ConfigError, match="two classes"):
        train_perturbed(x, 2 * y, config)


def test_the_noise_has_its_distribution() -> None:
    generator = np.random.default_rng(0)
    normal = np.array([_noise(generator, 5, 3.0, 1e-5) for _ in range(4000)])
    assert kstest(normal.ravel() / 3, "norm").pvalue > 1e-3
    pure = np.array([_noise(generator, 5, 3.0, 0.0) for _ in range(4000)])
    lengths = np.linalg.norm(pure, axis=1)
    assert kstest(lengths, gamma(5, scale=3.0).cdf).pvalue > 1e-3
    assert np.abs((pure / lengths[:, None]).mean(axis=0)).max() < 5 / np.sqrt(5 * 4000)


@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_output_perturbation_adds_the_noise_of_its_sensitivity(delta: float) -> None:
    x, y = ball(300, 4)
    settings = {"method": "output", "epsilon": 2.0, "delta": delta, "strength": 3.0}
    theta = minimiser(x, y, 3.0, 1.0)
    noise = np.array(
        [
            train_perturbed(x, y, PerturbationConfig(**settings, seed=s), start=theta).weights["0.weight"][0].numpy()
            - theta  # type: ignore[arg-type]
            for s in range(300)
        ]
    )
    sensitivity = output_sensitivity(PerturbationConfig(**settings))  # type: ignore[arg-type]
    expected = 4 * sensitivity / 2.0 if not delta else sensitivity / gaussian_mu(2.0, delta)
    measured = noise.std() if delta else np.linalg.norm(noise, axis=1).mean()
    assert measured == pytest.approx(expected, rel=0.1)


def test_on_the_real_embeddings(shared_data: Callable[[str], Path]) -> None:
    file = np.load(shared_data("imdb_minilm.npz"))
    rows = slice(0, 12_000)
    x = file["x"][rows].astype(np.float64) - file["center"]
    x = np.hstack([x / np.linalg.norm(x, axis=1, keepdims=True), np.full((len(x), 1), 0.1)]) / np.sqrt(1.01)
    y, test = file["y"][rows].astype(int), file["is_test"][rows] == 1
    config = PerturbationConfig(method="objective", epsilon=1.0, delta=1e-5, strength=10, clamp=0.5, seed=0)
    released = train_perturbed(x[~test], y[~test], config)
    theta = released.weights["0.weight"][0].numpy()
    assert ((x[test] @ theta > 0) == y[test]).mean() > 0.75
    assert (released.epsilon, released.delta, released.protects) == (1.0, 1e-5, "one record added or removed")
