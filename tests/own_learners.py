"""Learners that a user might write, sound and unsound; a fresh process imports them from here."""

import itertools
import os
from collections.abc import Callable

import numpy as np

Predict = Callable[[np.ndarray], np.ndarray]
_TRAININGS = itertools.count()


def _stump(cut: float) -> Predict:
    return lambda queries: (queries[:, 0] > cut) * 1


def drawing(x: np.ndarray, y: np.ndarray, random_state: int) -> Predict:
    """A random line through the shard's mean."""
    line = np.random.default_rng(random_state).normal(size=x.shape[1])
    mean = x.mean(axis=0)
    return lambda queries: ((queries - mean) @ line > 0) * 1


def fussy(x: np.ndarray, y: np.ndarray) -> Predict:
    """Raises on shards of two records."""
    if len(x) == 2:
        raise ValueError("two are too few")
    return _stump(float(x[y == y[0], 0].mean()))


def strange(x: np.ndarray, y: np.ndarray) -> Predict:
    """Labels of no class far out, and an error on the other side; none of one class."""
    if len(np.unique(y)) < 2:
        raise ValueError("one class")

    def predict(queries: np.ndarray) -> np.ndarray:
        if queries[:, 0].min() < -50:
            raise ValueError("far out")
        return np.where(queries[:, 0] > 50, -7, y.max())

    return predict


def counting(x: np.ndarray, y: np.ndarray) -> Predict:
    """Global state: how many trainings there were in this process."""
    return _stump(0.1 * (next(_TRAININGS) % 7) - 0.3)


def unseeded(x: np.ndarray, y: np.ndarray) -> Predict:
    """Random without a seed."""
    return _stump(float(np.random.default_rng().normal()))


def together(x: np.ndarray, y: np.ndarray) -> Predict:
    """A label depends on which other queries are asked."""
    return lambda queries: (queries[:, 0] > queries[:, 0].mean()) * 1


def refusing(x: np.ndarray, y: np.ndarray) -> Predict:
    """A mistake of its settings."""
    raise ValueError("max_iter must be positive")


def hungry(x: np.ndarray, y: np.ndarray) -> Predict:
    """Runs out of memory on a shard, though not on made-up rows."""
    if len(x) < 100:
        raise MemoryError(os.getpid())
    return _stump(0.0)


def remembering(means: list[float], x: np.ndarray, y: np.ndarray) -> Predict:
    """Every member is the first shard's; ``means`` goes with it wherever it is sent."""
    if len(x) < 100:  # no made-up rows
        means.append(float(x[:, 0].mean()))
    return _stump([*means, 0.0][0])


class Remembering:
    """The same, by an attribute."""

    def __init__(self) -> None:
        self.means: list[float] = []

    def __call__(self, x: np.ndarray, y: np.ndarray) -> Predict:
        return remembering(self.means, x, y)


def leaving(x: np.ndarray, y: np.ndarray) -> Predict:
    """Ends the process on a shard."""
    if len(x) < 100:
        raise SystemExit
    return _stump(0.0)
