"""The tilted problem: its solver against its own bound, and within its public number of iterations."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit
from synthetic import ball

from agt.errors import AgtError
from agt.training import erm as erm_module
from agt.training.erm import TiltedErm, least_tolerance, radius, smoothness, solve

CLAMPS = (1.0, 0.5, 0.3)


@pytest.mark.parametrize("clamp", CLAMPS)
def test_gradient_and_hessian_are_the_values_derivatives(clamp: float) -> None:
    x, y = ball(40, 3)
    erm = TiltedErm(x, 2.0 * y - 1, 0.7, clamp, np.array([0.1, -2.0, 0.3]))
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
    erm = TiltedErm(x, 2.0 * y - 1, 0.5, clamp, np.full(5, 0.2))
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
        solve(TiltedErm.of(x, y, 1.0, 1.0), 1e-16)


@pytest.mark.parametrize("clamp", CLAMPS)
def test_where_newtons_steps_do_not_do_the_public_number_of_others_does(
    clamp: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = ball(300, 4)
    for strength, pull in ((0.3, 0.0), (5.0, 30.0)):
        tilt = np.full(4, pull / 2)
        erm = replace(TiltedErm.of((0.999 * x).astype(np.float32), y, strength, clamp), tilt=tilt)
        least = least_tolerance(330, 4, clamp, strength, pull, 0.0)
        by_newton = solve(erm, least, np.ones(4))
        with monkeypatch.context() as patched:
            patched.setattr(erm_module, "_STEPS", 0)
            other = solve(erm, least, most=330)
        assert np.linalg.norm(by_newton - other) <= 2 * least / strength < 1e-9
        assert np.linalg.norm(other) <= radius(300, strength, pull)


def test_features_that_are_not_known_to_the_last_bit_are_in_the_bound() -> None:
    x, y = ball(50, 3)
    erm, theta = TiltedErm.of(x, y, 1.0, 1.0), np.array([1.0, -2.0, 2.0])
    vague = replace(erm, slack=1e-6)
    more = vague.gradient_norm(theta) - erm.gradient_norm(theta)
    assert more == pytest.approx(50 * (1 + 3 / 4) * 1e-6, rel=1e-3)
    moved = replace(erm, x=x + 1e-6 / np.sqrt(3))
    assert np.linalg.norm(moved.gradient(theta) - erm.gradient(theta)) <= more
