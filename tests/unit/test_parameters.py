"""Keyword arguments that do not exist are answered with those that do."""

import inspect
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import agt

X = np.zeros((4, 2))
Y = np.array([0, 1, 0, 1])


def fit(**parameters: Any) -> Any:
    return agt.fit(X, Y, **parameters)


@pytest.mark.parametrize(
    ("call", "given", "meant"),
    [
        (agt.PrivateClassifier, "eps", "epsilon"),
        (agt.PrivateRegressor, "eps", "epsilon"),
        (agt.PrivateClassifier, "max_rows", "unit_rows"),
        (agt.Budget, "epsilon", "eps"),
        (agt.Ledger.create, "epsilon", "eps"),
        (agt.RandomizedResponse, "epsilon", "eps"),
        (agt.CertifiedClassifier, "n_estimators", "members"),
        (agt.CertifiedClassifier, "learning_rate", "lr"),
        (agt.Declared, "clases", "classes"),
        (fit, "learning_rate", "lr"),
        (fit, "n_members", "members"),
        (fit, "hidden", "network"),
        (fit, "model", "network"),
        (fit, "declared_size", "declared"),
        (fit, "momentun", "momentum"),
    ],
)
def test_an_unknown_parameter_is_answered_with_the_one_that_was_meant(
    call: Callable[..., Any], given: str, meant: str
) -> None:
    with pytest.raises(TypeError) as caught:
        call(**{given: 1})
    assert isinstance(caught.value, agt.ConfigError)
    assert f"'{meant}'" in str(caught.value)


@pytest.mark.parametrize("given", ["network", "hidden", "model"])
def test_a_network_for_private_weights_is_answered_with_what_trains_one(given: str) -> None:
    with pytest.raises(agt.ConfigError, match=r"agt\.fit\(x, y, network=\.\.\.\)"):
        agt.PrivateClassifier(**{given: (64,)})


@pytest.mark.parametrize("call", [fit, agt.CertifiedClassifier, agt.CertifiedRegressor])
@pytest.mark.parametrize("given", ["eps", "epsilon", "delta"])
def test_a_budget_for_training_is_answered_with_the_calls_that_spend_one(
    call: Callable[..., Any], given: str
) -> None:
    with pytest.raises(agt.ConfigError, match=r"agt\.PrivateClassifier\(epsilon=1\)"):
        call(**{given: 1.0})


@pytest.mark.parametrize(
    "release",
    [
        lambda model: model.release(X, eps=1.0),
        lambda model: model.release_weights(epsilon=1.0),
        lambda model: model.release(X, agt.RandomizedResponse(eps=1.0), epsilon=1.0),
    ],
)
def test_a_budget_beside_a_mechanism_belongs_into_it(release: Callable[[Any], Any]) -> None:
    model = object.__new__(agt.Fitted)
    with pytest.raises(TypeError, match=r"agt\.RandomizedResponse\(eps=1\)"):
        release(model)


@pytest.mark.parametrize(
    ("build", "named"),
    [
        (lambda: agt.PrivateClassifier(1.0), "epsilon"),  # type: ignore[misc]
        (lambda: agt.Declared([0, 1]), "classes"),  # type: ignore[misc]
        (lambda: agt.Budget(eps=1.0), "'delta'"),  # type: ignore[call-arg]
    ],
)
def test_arguments_without_a_name_and_missing_ones_are_said_with_the_names(
    build: Callable[[], Any], named: str
) -> None:
    with pytest.raises(TypeError, match=named) as caught:
        build()
    assert isinstance(caught.value, agt.ConfigError)


def test_columns_of_another_type_are_told_their_form() -> None:
    with pytest.raises(agt.ConfigError, match=r"agt\.Columns\(numeric="):
        fit(columns=["age"])


def test_a_data_frame_with_words_names_its_columns() -> None:
    frame = pd.DataFrame({"age": [1, 2, 3, 4], "town": [*"abab"]})
    with pytest.raises(ValueError, match=r"'town'.*agt\.Columns"):
        agt.PrivateClassifier().fit(frame, Y)


@pytest.mark.parametrize(
    ("name", "meant"), [("train", "fit"), ("PrivateClasifier", "PrivateClass")]
)
def test_a_name_that_agt_does_not_have_is_answered_with_one_that_it_has(
    name: str, meant: str
) -> None:
    with pytest.raises(AttributeError, match=meant):
        getattr(agt, name)


def test_names_that_agt_alone_writes_are_not_proposed() -> None:
    with pytest.raises(agt.ConfigError) as caught:
        agt.Columns(foo=1)  # type: ignore[call-arg]
    assert "missing_values" in str(caught.value)
    assert "measurement" not in str(caught.value)


@pytest.mark.parametrize(
    "call", [agt.PrivateClassifier, agt.CertifiedClassifier, agt.Budget, agt.Declared, agt.Ledger]
)
def test_signatures_still_list_the_parameters(call: Callable[..., Any]) -> None:
    kinds = {parameter.kind for parameter in inspect.signature(call).parameters.values()}
    assert inspect.Parameter.VAR_KEYWORD not in kinds


def test_estimators_are_cloned_and_pickled_with_their_parameters() -> None:
    classifier = agt.PrivateClassifier(epsilon=2.0)
    assert clone(classifier).get_params() == classifier.get_params()
    assert pickle.loads(pickle.dumps(classifier)).epsilon == 2.0
