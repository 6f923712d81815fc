"""The objective of certified removal: gradient and Hessian by brute force, and bounds on what
rounding hides.
"""

from pathlib import Path

import numpy as np
import pytest

from agt.training import objective, row_sums
from agt.training.objective import ConvexLossName, Objective, gram, gram_rounding

LOSSES: tuple[ConvexLossName, ...] = ("logistic", "least_squares")
RNG = np.random.default_rng(5)


def rows(n: int, width: int, spread: float = 1.0, dtype: str = "float64") -> np.ndarray:
    """[n, width] of norm at most 1; with a spread, coordinates of sizes from 1 down to 1 /
    spread.
    """
    x = RNG.normal(size=(n, width)) * np.geomspace(1, 1 / spread, width)
    return (x / np.linalg.norm(x, axis=1, keepdims=True) * (1 - 1e-6)).astype(dtype)


def exact(
    of: Objective, weight: np.ndarray, x: np.ndarray, t: np.ndarray, tilt: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(gradient [J, d], Hessians [J, d, d]) in extended precision, all rows at once."""
    w, x, t, b = (np.asarray(value, dtype=np.longdouble) for value in (weight, x, t, tilt))
    f = x @ w.T
    up = 1 / (1 + np.exp(-np.maximum(f, -11_000))) if of.loss == "logistic" else f
    curve = up * (1 - up) if of.loss == "logistic" else np.ones_like(f)
    ridge = of.strength * np.eye(x.shape[1], dtype=np.longdouble)
    return (up - t).T @ x + of.strength * w + b, np.stack(
        [x.T @ (c[:, None] * x) + ridge for c in curve.T]
    )


def case(
    loss: ConvexLossName,
    classes: int = 2,
    n: int = 600,
    width: int = 70,
    size: float = 3.0,
    **how: object,
) -> tuple[Objective, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    # type: ignore[arg-type]
    of = Objective(loss, 0.7)
    x = rows(n, width, **how)
    t = of.targets(RNG.integers(0, classes, n), classes)
    weight, tilt = RNG.normal(size=(2, t.shape[1], width))
    return of, size * weight, x, t, tilt


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("classes", [2, 3])
def test_gradient_and_hessian_are_those_of_the_values(loss: ConvexLossName, classes: int) -> None:
    of, w, x, t, b = case(loss, classes, n=40, width=3, size=1.0)
    slope = of.gradient(w, x, t, b).value
    hessian = of.hessian(w, x)
    step = 1e-5
    assert slope.shape == w.shape == (1 if classes == 2 else 3, 3)
    assert hessian.shape == (1 if loss == "least_squares" else len(w), 3, 3)
    for j in range(3):
        ahead = w.copy()
        behind = w.copy()
        ahead[:, j] += step
        behind[:, j] -= step
        rise = (of.values(ahead, x, t, b) - of.values(behind, x, t, b)) / (2 * step)
        turn = (of.gradient(ahead, x, t, b).value - of.gradient(behind, x, t, b).value) / (2 * step)
        np.testing.assert_allclose(slope[:, j], rise, rtol=1e-7, atol=1e-7)
        np.testing.assert_allclose(
            np.broadcast_to(hessian[:, j], turn.shape), turn, rtol=1e-6, atol=1e-6
        )


ILL = (
    {},
    {"dtype": "float32"},
    {"spread": 1e12},
    {"size": 1e6},
    {"size": 1e-9},
    {"n": 9000, "width": 5},
    {"n": 1},
)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("how", ILL, ids=str)
def test_a_gradient_is_never_further_off_than_its_error_says(
    loss: ConvexLossName, how: dict[str, object]
) -> None:
    of, w, x, t, b = case(loss, 3, **how)  # type: ignore[arg-type]
    slope, (gradient, _) = of.gradient(w, x, t, b), exact(of, w, x, t, b)
    off = float(np.linalg.norm((slope.value - gradient).astype(float)))
    assert off <= slope.error
    assert float(np.linalg.norm(gradient.astype(float))) <= slope.norm_bound
    assert slope.error <= 1e-11 * (1 + len(x)) * (1 + np.linalg.norm(w)), (
        "a bound that large says nothing"
    )


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("how", ILL, ids=str)
def test_hessian_and_gram_are_symmetric_and_within_their_rounding(
    loss: ConvexLossName, how: dict[str, object]
) -> None:
    of, w, x, t, b = case(loss, **how)  # type: ignore[arg-type]
    hessian, (_, true) = of.hessian(w, x), exact(of, w, x, t, b)
    products = gram(x)
    wide = x.astype(np.longdouble)
    assert np.array_equal(hessian, hessian.transpose(0, 2, 1))
    assert np.array_equal(products, products.T)
    assert np.linalg.norm((hessian[0] - true[0]).astype(float)) <= of.hessian_rounding(w, len(x))
    assert np.linalg.norm((products - wide.T @ wide).astype(float)) <= gram_rounding(len(x))


def test_products_of_many_blocks_are_within_their_rounding() -> None:
    """One record 20 million times: a block that is added to the total as it goes rounds it at
    each of its panels.
    """
    n = 20_000_000
    value = 0.999999
    true = n * np.longdouble(value) ** 2
    assert abs(float(gram(np.broadcast_to(value, (n, 1)))[0, 0] - true)) <= gram_rounding(n)


def test_gamma_is_the_lipschitz_constant_of_the_curvature_and_no_smaller_number_is() -> None:
    def holds(gamma: float) -> bool:
        f = np.linspace(-8, 8, 20_001)
        curve = Objective("logistic", 1.0).curvatures(f[:, None])[:, 0]
        return bool((np.abs(np.diff(curve)) <= gamma * np.diff(f) + 1e-16).all())

    gamma = Objective("logistic", 1.0).curvature_lipschitz
    assert holds(gamma)
    assert not holds(0.999 * gamma), "the check cannot tell a constant that is too small"
    assert Objective("least_squares", 1.0).curvature_lipschitz == 0


def test_mapped_features_give_the_same_bits_and_blocks_do_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of, w, x, t, b = case("logistic", n=1500, width=20, dtype="float32")
    x.tofile(tmp_path / "x")
    mapped = np.memmap(tmp_path / "x", dtype="float32", mode="r", shape=x.shape)
    assert np.array_equal(of.gradient(w, x, t, b).value, of.gradient(w, mapped, t, b).value)
    assert np.array_equal(of.hessian(w, x), of.hessian(w, mapped))
    whole = of.gradient(w, x, t, b)
    hessian = of.hessian(w, x)
    monkeypatch.setattr(objective, "BLOCK_ROWS", 512)
    monkeypatch.setattr(row_sums.sum_over_rows, "__defaults__", (512,))
    parts = of.gradient(w, x, t, b)
    assert np.linalg.norm(parts.value - whole.value) <= parts.error + whole.error
    np.testing.assert_allclose(of.hessian(w, x), hessian, rtol=1e-12, atol=1e-12)
