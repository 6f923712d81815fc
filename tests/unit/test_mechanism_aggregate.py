"""K_q: 1-Lipschitz, and its noise exactly two-sided geometric."""

import numpy as np
import pytest
from releasing import judged_number, reserve_and_draw

import agt
from agt.errors import ConfigError
from agt.mechanisms.guarantees import PureDP
from agt.mechanisms.quantile import (
    CertifiedQuantile,
    certified_quantile,
    release_quantile,
    two_sided_geometric,
)
from agt.models.model import Model
from agt.numeric import SeededRandomness, SystemRandomness


def test_definition() -> None:
    draw = np.random.default_rng(0)
    for n in (1, 2, 7, 100):
        distances = draw.integers(0, 30, n)
        for fraction in (0.01, 0.5, 0.55, 0.9, 0.95, 1.0):
            k = certified_quantile(distances, fraction)
            assert (distances >= k).sum() >= fraction * n - 1e-9
            assert (distances >= k + 1).sum() < fraction * n - 1e-9


def test_a_fraction_is_the_decimal_it_prints_as() -> None:
    """.55 of 100 queries is 55, though the double is a little more than .55."""
    assert certified_quantile(np.array([5] * 55 + [0] * 45), 0.55) == 5
    assert certified_quantile(np.array([5] * 54 + [0] * 46), 0.55) == 0


def test_lipschitz() -> None:
    draw = np.random.default_rng(1)
    moved = 0
    for _ in range(3000):
        distances = draw.integers(0, 12, 20)
        neighbour = np.maximum(distances + draw.integers(-1, 2, 20), 0)
        fraction = float(draw.choice([0.1, 0.5, 0.95, 1.0]))
        change = abs(
            certified_quantile(distances, fraction) - certified_quantile(neighbour, fraction)
        )
        assert change <= 1
        moved += change
    assert moved > 100


@pytest.mark.sampled(3)
@pytest.mark.parametrize("eps", [0.1, 1.0, 3.0])
def test_noise(eps: float) -> None:
    """8,000 draws: each |z| up to 5 within 5 standard errors of (1-a)/(1+a) a^|z|, and the far
    tail in all.
    """
    n = 8_000
    source = SeededRandomness(5)
    draws = np.array([two_sided_geometric(eps, source) for _ in range(n)])
    a = np.exp(-eps)
    for z in range(-5, 6):
        p = (1 - a) / (1 + a) * a ** abs(z)
        assert abs((draws == z).mean() - p) < 5 * np.sqrt(p / n)
    beyond = 2 * a**6 / (1 + a)
    assert abs((abs(draws) > 5).mean() - beyond) < 5 * np.sqrt(beyond / n) + 1e-9


def test_release_stays_on_the_grid() -> None:
    source = SeededRandomness(0)
    released = [
        release_quantile(np.array([1, 2, 3]), 0.5, 4, PureDP(0.2), source) for _ in range(200)
    ]
    assert set(released) == {0, 1, 2, 3, 4}
    assert 0 <= release_quantile(np.array([1, 2, 3]), 0.5, 4, PureDP(0.2), SystemRandomness()) <= 4


def test_bad_input() -> None:
    with pytest.raises(ConfigError, match="aggregate: "):
        certified_quantile(np.zeros(0, int), 0.5)
    for fraction in (0.0, 1.5, float("nan")):
        with pytest.raises(ConfigError, match="fraction"):
            certified_quantile(np.ones(3, int), fraction)


def test_a_quantile_beyond_the_grid_is_released() -> None:
    """A linear head knows distances beyond its grid: they count, and one record moves K_q by 1
    at most.
    """
    draw = np.random.default_rng(3)
    y = draw.integers(0, 2, 300)
    x = np.where(y, 0.9, -0.9)[:, None] * draw.random((300, 1)) + draw.normal(size=(300, 2)) * 0.1
    queries = x[:40]
    declared = agt.Declared(classes=[0, 1], size=300, features=True, settings=True)

    def distances(rows: np.ndarray) -> tuple[Model, np.ndarray]:
        fitted = agt.fit(x[rows], y[rows], declared=declared, ks=2, certificate="stability")
        return fitted.model, fitted.certify(queries).stable_distance

    everybody = np.arange(len(x))
    model, known = distances(everybody)
    neighbours = [distances(np.delete(everybody, row))[1] for row in range(0, len(x), 25)]
    for fraction in (0.1, 0.5, 0.9):
        k = certified_quantile(known, fraction)
        assert model.max_distance >= k
        assert all(abs(certified_quantile(other, fraction) - k) <= 1 for other in neighbours)
    middle = certified_quantile(known, 0.5)
    assert middle > 2, "beyond the grid"
    numbers = [
        reserve_and_draw(
            judged_number(
                model,
                queries,
                CertifiedQuantile(eps=50.0),
                accounting="paper",
                randomness=randomness,
            )
        )
        for randomness in (SeededRandomness(1), SystemRandomness())
    ]
    assert numbers[0] == middle
    assert numbers[1] > 2
