"""What the recipe settles from public constants alone, and that nothing trains before it is
settled.
"""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import agt
from agt.errors import ConfigError, UnsoundError
from agt.settings import BatchConfig, KGridConfig, RelationConfig, TrainingConfig, validate
from agt.training.sensitivity import LinearSetting, sgd_sensitivity
from agt.training.setup import TrainingSetup
from agt.training.strength import (
    RECORDS_PER_STRENGTH,
    ROOT_FACTOR,
    recipe_strength,
    resolve_minimiser,
    resolve_sgd,
)

OPEN: dict[str, Any] = dict.fromkeys(("lr", "epochs", "weight_decay"), "recipe") | {
    "loss": "binary_cross_entropy",
    "clip": 0.5,
    "batch": {"count": "recipe"},
}
SIZES = (1, 40, 150, 569, 5000, 24_000, 45_000, 10**6, 10**9)


def opened(**settings: object) -> TrainingConfig:
    config: TrainingConfig = validate(TrainingConfig, OPEN | settings, "training")
    return config


def test_strength_grows_and_slowly() -> None:
    assert recipe_strength(500, 2) == 500 / RECORDS_PER_STRENGTH
    assert recipe_strength(40_000, 2) == ROOT_FACTOR * 200
    assert recipe_strength(40_000, 2, caution=3) == pytest.approx(3 * ROOT_FACTOR * 200)
    assert recipe_strength(40_000, 11) == recipe_strength(40_000, 2) / 10
    forces = [recipe_strength(size, 2) for size in SIZES]
    assert all(one < other for one, other in pairwise(forces))
    assert all(
        force / size >= more / other
        for (size, force), (other, more) in pairwise(zip(SIZES, forces, strict=True))
    )


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("classes", [2, 10])
@pytest.mark.parametrize("unit_rows", [1, 5])
def test_sgd_goes_as_far_as_the_strength_says_in_steps_that_are_allowed(
    size: float, classes: int, unit_rows: int
) -> None:
    training = resolve_sgd(opened(), classes, size, unit_rows)
    assert (training.by_recipe, training.weight_decay) == ((), 0)
    steps = training.epochs * training.batch.count
    assert training.lr * steps == pytest.approx(size / recipe_strength(size, classes), rel=1e-9)
    setup = TrainingSetup(
        classes, training, RelationConfig("add_remove"), KGridConfig(max=1), declared_size=size
    )
    setting = LinearSetting.from_training_setup(setup, 0, width=3)
    assert training.lr <= setting.rate_limit
    if training.batch.count > 1:  # a single batch holds everybody, however units fall
        assert setting.plan.n_max - setting.plan.normalizer > 6 * np.sqrt(
            setting.plan.normalizer * unit_rows
        )
    if steps < 2000:
        rho = sgd_sensitivity(setting).rho
        assert rho == pytest.approx(training.clip / recipe_strength(size, classes), rel=1e-9), (
            "the distance that Lambda means"
        )


@pytest.mark.parametrize("size", SIZES)
def test_erm_takes_the_same_strength(size: float) -> None:
    training = resolve_minimiser(opened(), 2, size)
    assert training.weight_decay * size == pytest.approx(recipe_strength(size, 2))
    assert (training.epochs, training.batch.count) == (1, 1)


def test_what_is_given_as_a_number_stays() -> None:
    given = opened(weight_decay=0.01, epochs=7, batch={"count": 3})
    assert given.by_recipe == ("lr",)
    training = resolve_sgd(given, 2, 6000)
    assert (training.weight_decay, training.epochs, training.batch.count) == (0.01, 7, 3)
    closed = resolve_minimiser(opened(weight_decay=0.01), 2, 6000)
    assert closed.weight_decay == 0.01
    plain = TrainingConfig("binary_cross_entropy", 3, 0.5, 0.5)
    assert resolve_sgd(plain, 2, 6000) is plain


def test_caution_trades_along_the_curve() -> None:
    near, far = (resolve_sgd(opened(caution=caution), 2, 24_000) for caution in (1.0, 2.0))
    assert near.lr * near.epochs * near.batch.count == pytest.approx(
        2 * far.lr * far.epochs * far.batch.count
    )


def test_nothing_trains_before_it_is_settled() -> None:
    with pytest.raises(UnsoundError, match="lr"):
        TrainingSetup(
            2, opened(), RelationConfig("add_remove"), KGridConfig(max=1), declared_size=100
        )
    x = np.eye(4)
    y = np.array([0, 1, 0, 1])
    with pytest.raises(
        ConfigError,
        match=r"lr=recipe: .*linear head",
    ):
        agt.fit(x, y, certificate="box", lr="recipe")


def test_settings_read_back_as_they_were_written() -> None:
    from dataclasses import asdict

    config = opened(caution=2.0)
    assert validate(TrainingConfig, asdict(config), "training") == config
    assert replace(config, batch=BatchConfig(count=2)).by_recipe == config.by_recipe


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("certificate", ["stability", "erm"])
def test_a_saved_model_keeps_what_was_settled(tmp_path, members: int, certificate: str) -> None:  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(0)
    y = np.arange(300) % 2
    x = rng.normal(size=(300, 3)) + y[:, None]
    declared = agt.Declared(classes=[0, 1], size=300)
    model = agt.fit(
        x, y, declared=declared, members=members, certificate=certificate, compute={"threads": 1}
    )
    model.save(tmp_path / "model")
    again = agt.load(tmp_path / "model")
    assert (again.certify(x).stable_distance == model.certify(x).stable_distance).all()
    size = 300 / members
    expected = recipe_strength(size, 2) / size if certificate == "erm" else 0.0
    assert (
        model.model.metrics["recipe.weight_decay"]
        == again.model.metrics["recipe.weight_decay"]
        == pytest.approx(expected)
    )


@pytest.mark.parametrize("size", [200, None])
def test_a_neighbour_settles_alike_where_the_size_is_declared(size: int | None) -> None:
    """Else B counts the records, which one more changes: condition c says that it does not hold."""
    x = np.random.default_rng(0).normal(size=(201, 3))
    y = np.arange(201) % 2
    known = [agt.fit(x[:n], y[:n], declared=agt.Declared(size=size)) for n in (200, 201)]
    one, other = (
        {k: v for k, v in m.model.metrics.items() if k.startswith("recipe.")} for m in known
    )
    assert (one == other) is (size is not None)
    (constants,) = (condition for condition in known[0].conditions if condition.letter == "c")
    assert constants.held is (size is not None)


def test_constants_that_changed_since_are_noticed(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:  # type: ignore[no-untyped-def]
    model = agt.fit(np.eye(20), np.arange(20) % 2, declared=agt.Declared(size=20))
    model.save(tmp_path / "model")
    monkeypatch.setattr("agt.training.strength.RECORDS_PER_STRENGTH", 999.0)
    with pytest.raises(UnsoundError, match=r"model/stability\.json: "):
        agt.load(tmp_path / "model")
