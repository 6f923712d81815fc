"""Released weights drawn in: less risk whatever the weights are, the release unchanged, and where there is no way."""

from dataclasses import replace

import numpy as np
import pytest
from synthetic import make_records, make_training

from agt.certificates.conditions import Condition
from agt.data.dataset import Dataset
from agt.errors import ConfigError
from agt.facts import grounds, proved
from agt.mechanisms.claims import labels_from, prepare_weights
from agt.mechanisms.planning import shrunk_accuracy
from agt.mechanisms.weights import ReleaseWeights
from agt.models.heads import HeadConfig
from agt.models.linear import LinearModel
from agt.models.shrinkage import BLOCK, PrincipalAxes, answering, james_stein
from agt.numeric import SeededRandomness
from agt.problem import Problem, Settings
from agt.settings import ComputeConfig, FeaturesConfig, KGridConfig, RelationConfig, StabilityConfig
from agt.training.ensemble import EnsembleConfig

HELD = grounds(proved("for a test"))
HELD_ALL = tuple(Condition(letter, "x", HELD) for letter in "abcdefg")
WIDTHS = (1, 2, 3, 23, 24, 50, 96)
TRUTHS = {
    "nothing": lambda width: np.zeros(width),
    "one coordinate": lambda width: np.eye(width)[0] * 8,
    "all alike": lambda width: np.ones(width),
    "falling": lambda width: 3.0 ** -np.arange(width) * 5,
    "far": lambda width: np.full(width, 40.0),
}


def gain(truth: np.ndarray, deviations: np.ndarray, draws: int = 4000) -> tuple[float, float]:
    """(by how much drawing in lowers the mean squared error, its standard error)."""
    rng = np.random.default_rng(len(truth))
    noisy = truth + deviations * rng.standard_normal((draws, len(truth)))
    saved = ((noisy - truth) ** 2).sum(axis=1) - ((james_stein(noisy, deviations**2) - truth) ** 2).sum(axis=1)
    return float(saved.mean()), float(saved.std() / np.sqrt(draws))


def losses(unequal: bool = False) -> list[tuple[int, str, float]]:
    """Where drawing in makes the risk greater, beyond what the draws explain."""
    found = []
    for width in WIDTHS:
        deviations = np.linspace(1, 2, width) if unequal else np.ones(width)
        for name, truth in TRUTHS.items():
            saved, error = gain(truth(width), deviations)
            if saved < -4 * error - 1e-9:
                found.append((width, name, saved))
    return found


@pytest.mark.parametrize("unequal", [False, True])
def test_the_risk_is_never_greater(unequal: bool) -> None:
    assert losses(unequal) == []


def test_where_there_is_nothing_but_noise_nearly_all_of_it_goes() -> None:
    saved, _ = gain(np.zeros(96), np.ones(96))
    assert saved > 0.9 * 96
    assert (james_stein(np.zeros((3, 48)), 1.0) == 0).all()


def test_each_block_is_drawn_in_by_its_own_noise() -> None:
    values = np.concatenate([np.full(BLOCK, 100.0), np.full(BLOCK, 0.1)])
    drawn = james_stein(values, 1.0)
    assert drawn[:BLOCK] == pytest.approx(100, rel=1e-3)
    assert (drawn[BLOCK:] == 0).all()


def mapped(whiten: float = 0.5, kind: str = "none", width: int = 30) -> LinearModel:
    """A head on features whitened by public rows of unequal spread."""
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((400, width)) * np.geomspace(3, 0.1, width)).astype(np.float32)
    y = (x[:, 0] + x[:, 1] + rng.standard_normal(400) > 0).astype(np.int64)
    train, test = make_records(x[:200], y[:200]), make_records(x[200:], y[200:], prefix="t")
    data = Dataset("uneven (synthetic)", ("a", "b"), train, test, 200, {}, HELD, HELD)
    count = None if kind == "none" else 8
    features = FeaturesConfig(map=kind, count=count, whiten=whiten, public="test" if whiten else None)  # type: ignore[arg-type]
    batch = {"normalizer": 200.0, "n_max": 300}
    training = make_training(loss="binary_cross_entropy", epochs=20, lr=5.0, clip=0.5, batch=batch)
    settings = Settings(
        model=HeadConfig(hidden=()),
        training=training,
        relation=RelationConfig(name="add_remove"),
        kgrid=KGridConfig(max=3),
        compute=ComputeConfig(),
        certificate=StabilityConfig(features=features),
        ensemble=EnsembleConfig(),
        noise=None,
        choices=proved("for a test"),
    )
    return LinearModel.fit(Problem(data, settings))


def test_the_axes_are_the_public_rows_widest_first() -> None:
    model = mapped()
    axes = PrincipalAxes.of(model.features)
    assert axes is not None
    rows = model.problem.dataset.test.features.astype(np.float64)
    along = (rows / np.linalg.norm(rows, axis=1, keepdims=True)) @ axes.vectors
    spread = along.var(axis=0)
    assert (np.diff(spread) <= 1e-6).all()
    assert axes.vectors.T @ axes.vectors == pytest.approx(np.eye(30), abs=1e-12)


def test_what_is_released_is_the_same_and_answers_come_from_it_alone() -> None:
    model = mapped()
    plain, drawn_in = (
        prepare_weights(model, ReleaseWeights(mu=0.5, shrink=shrink), conditions=HELD_ALL).draw(SeededRandomness(3))
        for shrink in (False, True)
    )
    assert plain.weight.tobytes() == drawn_in.weight.tobytes()
    assert plain.guarantee == drawn_in.guarantee
    assert answering(plain.weight, plain.sigma, False, model.features) is plain.weight
    other = replace(model, trained=replace(model.trained, weight=model.trained.weight * 0))
    queries = model.problem.dataset.test.features
    assert (labels_from(model, queries)(drawn_in) == labels_from(other, queries)(drawn_in)).all()
    shrunk = answering(drawn_in.weight, drawn_in.sigma, True, model.features)
    theta = model.trained.weight.numpy()
    assert np.linalg.norm(shrunk - theta) < np.linalg.norm(plain.weight - theta)
    assert shrunk[:, -1] == plain.weight[:, -1], "the bias stays"


@pytest.mark.parametrize(("whiten", "kind"), [(0.0, "none"), (0.5, "relu")])
def test_without_axes_it_is_refused_before_anything_is_drawn(whiten: float, kind: str) -> None:
    model = mapped(whiten, kind)
    assert PrincipalAxes.of(model.features) is None
    with pytest.raises(ConfigError, match=r"mechanism\.shrink=true.*certificate\.features\.whiten"):
        prepare_weights(model, ReleaseWeights(mu=0.5, shrink=True), conditions=HELD_ALL)
    queries = model.problem.dataset.test
    assert shrunk_accuracy(model, queries.features, queries.labels) is None


def test_the_expected_accuracy_is_that_of_releases() -> None:
    model, mechanism = mapped(), ReleaseWeights(mu=0.3, shrink=True)
    queries = model.problem.dataset.test
    gain = shrunk_accuracy(model, queries.features, queries.labels)
    assert gain is not None
    release, answers = prepare_weights(model, mechanism, conditions=HELD_ALL), labels_from(model, queries.features)
    reached = [(answers(release.draw(SeededRandomness(seed))) == queries.labels).mean() for seed in range(40)]
    assert gain(0.3) == pytest.approx(np.mean(reached), abs=4 * np.std(reached) / np.sqrt(40) + 0.01)
