"""Memorisation and influence, against all subsets of tiny data."""

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from agt_audit.memorisation import InOutCounts, influence, memorisation, strongest

N = 6
RNG = np.random.default_rng(3)
POINTS = RNG.normal(size=(N, 2))
LABELS = np.array([0, 1, 0, 1, 1, 0])


def answers(subset: np.ndarray) -> np.ndarray:
    """[n] bool: whether the nearest neighbour in the subset, of a tiny world, has each point's
    label; none says 0.
    """
    if not subset.any():
        return LABELS == 0
    away = np.linalg.norm(POINTS[:, None] - POINTS[subset][None], axis=2)
    right: np.ndarray = LABELS[subset][away.argmin(axis=1)] == LABELS
    return right


def every_subset() -> tuple[np.ndarray, np.ndarray]:
    included = np.array(list(product([False, True], repeat=N)))
    return included, np.stack([answers(subset) for subset in included])


def sampled(
    rng: np.random.Generator, models: int, paired: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    included = rng.random((models, N)) < 0.5
    if paired:
        included[1::2] = ~included[::2]
    return included, np.stack([answers(subset) for subset in included])


EXACT = memorisation(*every_subset()).value
ALL = influence(*every_subset(), np.arange(N), np.arange(N)).value


def test_all_subsets_give_the_definition() -> None:
    included, right = every_subset()
    for j in range(N):
        assert EXACT[j] == pytest.approx(
            right[included[:, j], j].mean() - right[~included[:, j], j].mean()
        )
    for i, t in ((0, 3), (4, 2)):
        out = ~included[:, t]
        with_i = out & included[:, i]
        without = out & ~included[:, i]
        assert ALL[i, t] == pytest.approx(right[with_i, t].mean() - right[without, t].mean())
    assert EXACT.max() > 0.3


def pairwise(included: np.ndarray, right: np.ndarray) -> InOutCounts:
    """Influences of each on each other, the diagonal, which is undefined, left out."""
    return influence(included, right, np.arange(N), np.arange(N)).take(
        np.flatnonzero(~np.eye(N, dtype=bool))
    )


@pytest.mark.parametrize(
    ("estimate", "truth", "paired"),
    [
        (memorisation, EXACT, False),
        (memorisation, EXACT, True),
        (pairwise, ALL[~np.eye(N, dtype=bool)], False),
    ],
)
def test_estimates_are_unbiased_and_their_intervals_cover(
    estimate: Callable[[np.ndarray, np.ndarray], InOutCounts], truth: np.ndarray, paired: bool
) -> None:
    rng = np.random.default_rng(0)
    values = []
    covered = []
    together = []
    for _ in range(100):
        contrast = estimate(*sampled(rng, 60, paired))
        low, high = contrast.bounds(0.9)
        values.append(contrast.value)
        covered.append((low <= truth) & (high >= truth))
        low, high = contrast.bounds(0.9, comparisons=len(truth))
        together.append(((low <= truth) & (high >= truth)).all())
    spread = np.std(values, axis=0) / np.sqrt(len(values))
    assert (np.abs(np.mean(values, axis=0) - truth) <= 4 * spread + 1e-9).all()
    assert (np.mean(covered, axis=0) >= 0.9).all()
    assert np.mean(together) >= 0.9


def test_the_diagonal_is_left_out() -> None:
    included, right = sampled(np.random.default_rng(0), 200)
    assert np.isnan(influence(included, right, np.arange(N), np.arange(N)).value.diagonal()).all()
    pairs = strongest(included, right, np.arange(N), np.arange(N), 50)
    assert len(pairs.sources) == N * (N - 1) == len(pairs.counts.value)
    assert (pairs.sources != pairs.targets).all()
    assert (np.diff(pairs.counts.value) <= 1e-12).all()
