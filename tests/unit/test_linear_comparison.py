"""A network that a linear classifier beats is named, and no other model."""

import warnings
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import agt
from agt.errors import Doubtful
from agt.models.box import BoxModel
from agt.models.linear_comparison import (
    CLEAR_GAP,
    LinearComparison,
    compare_with_linear_classifier,
)
from agt_cli.networks import linear_line

RNG = np.random.default_rng(3)
Y = np.arange(400) % 2
X = RNG.normal(size=(400, 3)) + 2 * Y[:, None]
UNTRAINED = {"network": (4,), "ks": 1, "epochs": 1, "lr": 1e-9, "clip": 0.1}
TRAINED = {"network": (4,), "ks": 1, "epochs": 20, "lr": 2.0, "clip": 0.1}


def fitted(**settings: Any) -> agt.Fitted:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Doubtful)
        return agt.fit(X, Y, **settings)


def comparison(**settings: Any) -> LinearComparison | None:
    return compare_with_linear_classifier(fitted(**settings).model)


def test_a_network_that_a_linear_classifier_beats_is_named_with_both_shares() -> None:
    compared = comparison(**UNTRAINED)
    assert compared is not None
    assert compared.linear_correct > 0.8 * compared.records > compared.network_correct
    assert compared.is_linear_better
    assert compared.warning is not None
    with pytest.warns(Doubtful, match=r"plain linear classifier labels 0\.[89].*network=\(\)"):
        agt.fit(X, Y, **UNTRAINED)


def test_a_network_as_good_as_a_linear_classifier_is_not_named() -> None:
    compared = comparison(**TRAINED)
    assert compared is not None
    assert compared.warning is None


def test_few_test_records_are_compared_together_with_the_training_records() -> None:
    model = fitted(**UNTRAINED).model
    dataset = model.problem.dataset
    few = replace(dataset, test=dataset.train.take(np.arange(8)))
    assert isinstance(model, BoxModel)
    compared = compare_with_linear_classifier(
        replace(model, problem=model.problem.with_dataset(few))
    )
    assert compared is not None
    assert compared.records == len(dataset.train) + 8
    assert compared.is_linear_better


def test_a_network_that_is_good_on_its_training_records_only_is_compared_on_test_records() -> None:
    model = fitted(**UNTRAINED).model
    train = model.problem.dataset.train
    test = train.take(np.arange(40))
    answers = {len(test): 1 - test.labels}

    def predict(features: np.ndarray) -> np.ndarray:
        """Only the test records are labelled wrongly."""
        right = (features.mean(axis=1) > 1).astype(np.int64)
        return answers.get(len(features), right)

    dataset = replace(model.problem.dataset, test=test)
    problem = model.problem.with_dataset(dataset)
    overfitted: Any = SimpleNamespace(problem=problem, predict=predict)
    compared = compare_with_linear_classifier(overfitted)
    assert compared is not None
    assert (compared.records, compared.network_correct) == (40, 0)


def test_a_linear_classifier_that_only_learns_by_heart_is_not_better() -> None:
    """With as many features as records, it labels all that it was fitted to correctly."""
    x = np.random.default_rng(0).normal(size=(80, 100))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Doubtful)
        model = agt.fit(x, RNG.permutation(80) % 2, **UNTRAINED).model
    compared = compare_with_linear_classifier(model)
    assert compared is not None
    assert compared.linear_correct < 0.7 * compared.records


@pytest.mark.parametrize("settings", [{}, {"members": 2, **UNTRAINED}])
def test_linear_heads_and_ensembles_are_not_compared(settings: dict[str, Any]) -> None:
    declared = agt.Declared(classes=[0, 1], size=400)
    assert comparison(declared=declared, **settings) is None


@pytest.mark.parametrize(
    ("linear_correct", "p_value", "is_better"),
    [(90, 0.01, True), (90, 0.2, False), (70 + 1, 0.01, False), (60, 0.01, False)],
)
def test_a_linear_classifier_is_better_only_if_clearly_and_not_by_chance(
    linear_correct: int, p_value: float, is_better: bool
) -> None:
    assert CLEAR_GAP * 100 == 2
    compared = LinearComparison(100, 70, linear_correct, p_value)
    assert compared.is_linear_better == is_better
    assert (compared.warning is not None) == is_better


def test_the_command_to_compare_has_the_data_and_no_setting_of_the_network() -> None:
    typed = (
        "train dataset=mine dataset.declared_size=90 model=custom model._target_=net.make "
        "+model.width=3 certificate=box training=generic training.lr=1 kgrid.max=5 seed=3"
    )
    assert linear_line(typed.split()) == (
        "agt train dataset=mine dataset.declared_size=90 seed=3 model=linear "
        "certificate=stability training=recipe"
    )
