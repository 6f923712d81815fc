"""The public link from released scores to probabilities."""

import numpy as np
import pytest
from sklearn.metrics import log_loss

import agt
from agt.mechanisms.link import MAX_SLOPE, MIN_SLOPE, ReleasedSums, link_slope
from agt.models.shares import logistic_shares

RNG = np.random.default_rng(11)


def blobs(n: int, classes: int, spread: float, width: int) -> tuple[np.ndarray, np.ndarray]:
    y = np.arange(n) % classes
    x = np.eye(classes, width)[y] + spread * RNG.normal(size=(n, width))
    return x / np.sqrt(1 + spread**2 * width), y


@pytest.mark.parametrize(
    ("classes", "spread", "width", "epsilon"),
    [(2, 0.6, 6, 1.0), (2, 1.5, 6, 8.0), (4, 0.5, 6, 8.0), (2, 0.5, 60, 1.0)],
)
def test_its_slope_is_near_the_best_one_of_all(
    classes: int, spread: float, width: int, epsilon: float
) -> None:
    x, y = blobs(6000, classes, spread, width)
    declared = agt.Declared(classes=range(classes), size=4000, features=True, settings=True)
    private = agt.PrivateClassifier(epsilon=epsilon, declared=declared).fit(x[:4000], y[:4000])
    margins = private.released_.margins(x[4000:])
    losses = [
        log_loss(y[4000:], logistic_shares(slope * margins)) for slope in np.geomspace(0.1, 100, 60)
    ]
    proba = private.predict_proba(x[4000:])
    assert log_loss(y[4000:], proba) < min(losses) * 1.15 + 0.01
    assert ((proba > 0) & (proba < 1)).all()
    assert (private.classes_[proba.argmax(axis=1)] == private.predict(x[4000:])).all()


def released(u: np.ndarray, y: np.ndarray, weight: np.ndarray) -> ReleasedSums:
    return ReleasedSums(u.T @ u, u.T @ np.eye(2)[y], weight)


def test_where_scores_say_nothing_or_everything_it_ends() -> None:
    u = np.concatenate([RNG.normal(size=(1000, 1)), np.full((1000, 1), 0.3)], axis=1)
    y = (u[:, 0] > 0).astype(int)
    for direction, bound in ((-1.0, MIN_SLOPE), (1.0, MAX_SLOPE)):
        weight = np.array([[-direction, 0.0], [direction, 0.0]])
        sums = released(np.where(u > 0, u * 0 + u, u), y, weight)
        if direction > 0:
            sums = released(np.stack([2.0 * y - 1, np.full(1000, 0.3)], axis=1), y, weight)
        slope = link_slope(sums, sums.gram, 0.3, lambda rng, sums=sums: sums)
        assert slope == bound


def test_it_is_a_function_of_what_was_released_alone() -> None:
    """The same released sums give the same slope: it draws from a public seed."""
    u = np.concatenate([RNG.normal(size=(500, 2)), np.full((500, 1), 0.3)], axis=1)
    y = (u[:, 0] + RNG.normal(size=500) > 0).astype(int)
    sums = released(u, y, np.array([[-0.3, 0, 0], [0.3, 0, 0]]))
    noisy = [
        link_slope(
            sums, sums.gram, 0.3, lambda rng: released(u + rng.normal(size=u.shape), y, sums.weight)
        )
        for _ in "ab"
    ]
    assert noisy[0] == noisy[1]
