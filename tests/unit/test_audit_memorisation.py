"""Memorisation and influence: against all subsets of tiny data; intervals cover; estimators that are wrong are caught."""

from itertools import product

import numpy as np
import pytest

import agt
from agt.audit.memorisation import Contrast, influence, left_out, memorisation, needed, strongest
from agt.errors import ConfigError
from agt.models.model import Model

N = 6
RNG = np.random.default_rng(3)
POINTS, LABELS = RNG.normal(size=(N, 2)), np.array([0, 1, 0, 1, 1, 0])


def answers(subset: np.ndarray) -> np.ndarray:
    """[n] bool: whether the nearest neighbour in the subset, of a tiny world, has each point's label; none says 0."""
    if not subset.any():
        return LABELS == 0
    away = np.linalg.norm(POINTS[:, None] - POINTS[subset][None], axis=2)
    right: np.ndarray = LABELS[subset][away.argmin(axis=1)] == LABELS
    return right


def every_subset() -> tuple[np.ndarray, np.ndarray]:
    included = np.array(list(product([False, True], repeat=N)))
    return included, np.stack([answers(subset) for subset in included])


def sampled(rng: np.random.Generator, models: int, paired: bool = False) -> tuple[np.ndarray, np.ndarray]:
    included = rng.random((models, N)) < 0.5
    if paired:
        included[1::2] = ~included[::2]
    return included, np.stack([answers(subset) for subset in included])


EXACT = memorisation(*every_subset()).value
ALL = influence(*every_subset(), np.arange(N), np.arange(N)).value


def test_all_subsets_give_the_definition() -> None:
    included, right = every_subset()
    for j in range(N):
        assert EXACT[j] == pytest.approx(right[included[:, j], j].mean() - right[~included[:, j], j].mean())
    for i, t in ((0, 3), (4, 2)):
        out = ~included[:, t]
        with_i, without = out & included[:, i], out & ~included[:, i]
        assert ALL[i, t] == pytest.approx(right[with_i, t].mean() - right[without, t].mean())
    assert EXACT.max() > 0.3


@pytest.mark.parametrize("paired", [False, True])
def test_the_estimator_is_unbiased_and_its_interval_covers(paired: bool) -> None:
    rng, values, covered, together = np.random.default_rng(0), [], [], []
    for _ in range(300):
        contrast = memorisation(*sampled(rng, 40, paired))
        low, high = contrast.bounds(0.9)
        values.append(contrast.value)
        covered.append((low <= EXACT) & (high >= EXACT))
        low, high = contrast.bounds(0.9, looks=N)
        together.append(((low <= EXACT) & (high >= EXACT)).all())
    spread = np.std(values, axis=0) / np.sqrt(len(values))
    assert (np.abs(np.mean(values, axis=0) - EXACT) <= 4 * spread + 1e-9).all()
    assert (np.mean(covered, axis=0) >= 0.9).all()
    assert np.mean(together) >= 0.9


def test_influence_is_unbiased_and_its_interval_covers() -> None:
    rng, values, covered = np.random.default_rng(1), [], []
    for _ in range(150):
        included, right = sampled(rng, 60)
        contrast = influence(included, right, np.arange(N), np.arange(N))
        low, high = contrast.bounds(0.9)
        values.append(contrast.value)
        covered.append((low <= ALL) & (high >= ALL))
    off = ~np.eye(N, dtype=bool)
    spread = np.std(values, axis=0) / np.sqrt(len(values))
    assert (np.abs(np.mean(values, axis=0) - ALL)[off] <= 4 * spread[off] + 1e-9).all()
    assert (np.mean(covered, axis=0)[off] >= 0.9).all()


def test_the_standard_error_is_that_of_many_repetitions() -> None:
    rng = np.random.default_rng(2)
    contrasts = [memorisation(*sampled(rng, 60)) for _ in range(300)]
    assert np.mean([c.error for c in contrasts], axis=0) == pytest.approx(
        np.std([c.value for c in contrasts], axis=0), rel=0.2
    )


def test_sides_that_are_exchanged_are_caught() -> None:
    included, right = sampled(np.random.default_rng(0), 400)
    low, high = memorisation(~included, right).bounds(0.99, looks=N)
    assert not ((low <= EXACT) & (high >= EXACT)).all()


def test_the_diagonal_is_left_out() -> None:
    included, right = sampled(np.random.default_rng(0), 200)
    assert np.isnan(influence(included, right, np.arange(N), np.arange(N)).value.diagonal()).all()
    pairs, decided = strongest(included, right, np.arange(N), np.arange(N), 50)
    assert len(pairs) == N * (N - 1) == len(decided.value)
    assert (pairs[:, 0] != pairs[:, 1]).all()
    assert (np.diff(decided.value) <= 1e-12).all()
    had = included.astype(float)  # an estimator that asks models with the target, too: its diagonal is memorisation
    wrong = had.T @ right / had.sum(axis=0)[:, None] - (1 - had).T @ right / (1 - had).sum(axis=0)[:, None]
    assert np.abs(wrong.diagonal() - EXACT).max() < 0.2
    assert np.abs(wrong - ALL)[~np.eye(N, dtype=bool)].max() > 0.2, (
        "and its pairs are not those of models without the target"
    )


def test_too_few_models_are_told() -> None:
    fewest = needed(1_000, 0.95)
    for count, shown in ((fewest, True), (fewest - 1, False)):
        perfect = Contrast(np.array([count]), np.array([count]), np.array([0]), np.array([count]))
        assert (perfect.bounds(0.95, looks=1_000)[0][0] > 0) is np.bool_(shown)


def test_a_record_in_every_model_has_no_estimate() -> None:
    contrast = memorisation(np.ones((5, 2), dtype=bool), np.ones((5, 2), dtype=bool))
    assert np.isnan(contrast.value).all()
    low, high = contrast.bounds(0.95)
    assert (low <= 0).all()
    assert (high == 1).all()


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match="one shape"):
        memorisation(np.ones((5, 2), dtype=bool), np.ones((5, 3), dtype=bool))


def test_left_out_is_training_again_and_certified_records_are_not_memorised() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 2))
    y = (x[:, 0] + rng.normal(size=400) / 2 > 0).astype(int)
    declared = agt.Declared(classes=[0, 1], size=400, features=True, settings=True)

    def trained(x: np.ndarray, y: np.ndarray) -> Model:
        return agt.fit(x, y, declared=declared, certificate="stability", ks=3, caution=0.3).model

    model = trained(x, y)
    distance = model.certify(x).stable_distance
    rows = np.argsort(distance, kind="stable")[::4]
    gone = left_out(model, rows.tolist())
    for place in range(0, 100, 25):
        j = rows[place]
        other = trained(np.delete(x, j, 0), np.delete(y, j))
        right = int(model.predict(x[j : j + 1])[0] == y[j]) - int(other.predict(x[j : j + 1])[0] == y[j])
        assert gone.value[place] == right
    certified = distance[rows] >= 1
    assert certified.any()
    assert not gone.value[certified].any()
    assert not gone.changed[certified].any()
