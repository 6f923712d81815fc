"""Hurtful input at the front door: neighbours, networks and arguments that once came through."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.model_selection import cross_val_score
from torch import nn

import agt
from agt.data.in_memory import query_records

RNG = np.random.default_rng(7)
Y = np.arange(60) % 2
X = RNG.normal(size=(60, 3)) + 0.7 * Y[:, None]
QUERIES = RNG.normal(size=(2000, 3)) + 0.35
SAID = agt.Declared(classes=[0, 1], size=60, features=True, settings=True)


def fit(x: Any = X, y: Any = Y, **settings: Any) -> agt.Fitted:
    return agt.fit(x, y, **({"declared": SAID} | settings))


STEPS = {"epochs": 4, "lr": 2.0, "clip": 0.06}  # of a network, which has no defaults


def plain() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.LeakyReLU(0.2), nn.Linear(4, 2))


def hidden(values: np.ndarray) -> np.ma.MaskedArray:
    """The same values, of which the last is masked."""
    return np.ma.masked_array(values, mask=np.arange(values.size).reshape(values.shape) == 59)


MASKED: dict[str, Callable[[], object]] = {
    "fit, x": lambda: fit(hidden(X)),
    "fit, a list of rows": lambda: fit([*hidden(X)]),
    "fit, lists of lists of rows": lambda: fit([[row] for row in hidden(X)]),
    "fit, a list of queries": lambda: fit().certify([*hidden(X)]),
    "fit, y": lambda: fit(y=hidden(Y)),
    "fit, ids": lambda: fit(ids=hidden(np.arange(60))),
    "fit, units": lambda: fit(units=hidden(np.arange(60))),
    "fit, public": lambda: fit(public=hidden(Y == 0)),
    "fit, queries": lambda: fit().certify(hidden(X)),
    "fit, classes": lambda: fit(declared=agt.Declared(classes=hidden(np.arange(60)))),
    "certified, X": lambda: agt.CertifiedClassifier().fit(hidden(X), Y),
    "certified, y": lambda: agt.CertifiedClassifier().fit(X, hidden(Y)),
    "certified, queries": lambda: agt.CertifiedClassifier().fit(X, Y).certify(hidden(X)),
    "private, X": lambda: agt.PrivateClassifier(declared=SAID).fit(hidden(X), Y),
    "private, y": lambda: agt.PrivateClassifier(declared=SAID).fit(X, hidden(Y)),
    "private, units": lambda: agt.PrivateClassifier(declared=SAID).fit(
        X, Y, units=hidden(np.arange(60))
    ),
    "numbers, y": lambda: agt.PrivateRegressor(range=(0, 1), declared=SAID).fit(X, hidden(Y)),
}


@pytest.mark.parametrize("case", MASKED)
def test_masked_values_are_refused_and_not_read_below_their_mask(case: str) -> None:
    with pytest.raises((agt.DataError, ValueError), match="has masked values"):
        MASKED[case]()


class Odd(np.ndarray):
    """An array whose methods and operators answer something else."""

    def astype(self, *given: Any, **named: Any) -> np.ndarray:
        return np.zeros(self.shape)

    def copy(self, *given: Any) -> np.ndarray:
        return np.zeros(self.shape)

    def __array_ufunc__(self, *given: Any, **named: Any) -> Any:
        return np.zeros(self.shape)


LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "byte-swapped": lambda x: x.astype(x.dtype.newbyteorder()),
    "columns first": np.asfortranarray,
    "negative strides": lambda x: x[::-1].copy()[::-1],
    "every other": lambda x: np.repeat(x, 2, axis=0)[::2],
    "no strides": lambda x: np.broadcast_to(x[:1], x.shape),
    "subclass": lambda x: x.view(Odd),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_layout_of_an_array_changes_neither_ids_nor_bounds(layout: str) -> None:
    given = LAYOUTS[layout](X)
    models = [fit(given), fit(np.asarray(given).astype(np.float64))]
    datasets = [model.model.problem.dataset for model in models]
    assert datasets[0].digest == datasets[1].digest
    np.testing.assert_array_equal(*(dataset.train.ids for dataset in datasets))
    np.testing.assert_array_equal(*(model.certify(QUERIES).stable_distance for model in models))


def test_what_its_owner_edits_in_an_array_after_fit_has_begun_changes_nothing() -> None:
    x = X.copy()
    y = Y.copy()
    ids = np.arange(60)

    def edit(*_: object) -> None:
        x[:] = 0
        y[:] = 1 - y
        ids[:] = 7

    edited = fit(x, y, ids=ids, on_progress=edit)
    edit()
    whole = fit(ids=np.arange(60))
    np.testing.assert_array_equal(
        *(model.certify(QUERIES).stable_distance for model in (edited, whole))
    )
    assert edited.unfit([3])[1].records == 1


def test_queries_are_copied_so_that_label_and_distance_are_of_the_same_numbers() -> None:
    x = X.copy()
    queries = query_records(x)
    x[:] = 0
    np.testing.assert_array_equal(queries.features, X)


# -- false certificates
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("network", [(), (4,)])
def test_reduced_precision_is_refused_however_it_is_asked_for(network: tuple[int, ...]) -> None:
    settings: dict[str, Any] = {
        "network": network,
        "certificate": "box",
        "activation": "tanh",
        "ks": 1,
        **STEPS,
    }
    model = fit(dtype="float32", **settings)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with pytest.raises(agt.ConfigError):
            fit(dtype="float32", **settings)
        with pytest.raises(agt.ConfigError):
            model.certify(QUERIES[:9])
        with pytest.raises(agt.ConfigError):
            model.predict(QUERIES[:9])


# -- false claims
# --------------------------------------------------------------------------------------------------


STRANGE: dict[str, Callable[[Any], object]] = {
    "its own forward": lambda n: setattr(
        n[2], "forward", lambda x: -nn.functional.linear(x, n[2].weight, n[2].bias)
    ),
    "a hook of a tensor": lambda n: next(n.parameters()).register_hook(lambda gradient: -gradient),
    "a buffer": lambda n: n[0].register_buffer("mask", torch.ones(4)),
    "a parameter more": lambda n: n.register_parameter("scale", nn.Parameter(torch.ones(2))),
    "a hole": lambda n: n._modules.update({"1": None}),
    "one bias": lambda n: setattr(n[0], "bias", nn.Parameter(torch.zeros(1))),
    "a tensor for its slope": lambda n: n._modules.update({"1": nn.LeakyReLU(torch.tensor(0.2))}),  # type: ignore[arg-type]
    "more weights than outputs": lambda n: setattr(n[2], "weight", nn.Parameter(torch.ones(3, 4))),
}


@pytest.mark.parametrize("case", STRANGE)
def test_a_network_that_is_not_what_its_layers_say_is_refused(case: str) -> None:
    network = plain().double()
    STRANGE[case](network)
    with pytest.raises(agt.ConfigError):
        fit(network=network, ks=1, **STEPS)


# -- saved models
# --------------------------------------------------------------------------------------------------


def test_a_model_can_be_saved_whatever_became_of_the_network_given(tmp_path: Path) -> None:
    network = plain()
    model = fit(network=network, ks=1, **STEPS)
    network[1].negative_slope = 0.5  # type: ignore[assignment]
    model.save(tmp_path / "model")
    assert (agt.load(tmp_path / "model").predict(QUERIES) == model.predict(QUERIES)).all()


def test_dates_are_not_saved(tmp_path: Path) -> None:
    dates = np.array(["2020-01-01", "2020-01-02"], dtype="datetime64[ns]")[Y]
    with pytest.raises(agt.ConfigError, match=r"datetime64\[ns\]"):
        fit(y=dates, declared=None).save(tmp_path / "model")


# -- the estimator
# --------------------------------------------------------------------------------------------------


def test_scores_do_not_depend_on_the_order_in_which_classes_are_declared() -> None:
    words = np.array(["no", "yes"])[Y]
    scores = [
        cross_val_score(
            agt.CertifiedClassifier(declared=agt.Declared(classes=classes)),
            X,
            words,
            scoring="roc_auc",
            cv=2,
        ).mean()
        for classes in (["no", "yes"], ["yes", "no"])
    ]
    assert scores[0] > 0.5
    assert scores[1] > 0.5


def test_certify_of_the_estimator_raises_value_errors() -> None:
    estimator = agt.CertifiedClassifier(network=(3,), ks=1, dtype="float32", **STEPS).fit(X, Y)
    with pytest.raises(ValueError, match="float32"):
        estimator.certify(np.full((2, 3), 1e300))
    with pytest.raises(ValueError, match="float32"):
        estimator.predict(np.full((2, 3), 1e300))


# -- words
# --------------------------------------------------------------------------------------------------


WRONG: dict[str, dict[str, Any]] = {
    "masked values, which are missing": {"x": np.ma.masked_array(X, mask=X > 1)},
    "more axes and no flatten": {"x": X[:, None], "network": plain(), "ks": 1, **STEPS},
    "a unit is missing": {
        "units": np.array([None if row == 5 else f"p{row}" for row in range(60)], dtype=object)
    },
    "ragged x": {"x": [[1, 2], [3]]},
    "tensor with a gradient": {"x": torch.tensor(X, requires_grad=True)},
    "missing text label": {"y": pd.Series(["a", None] * 30, dtype="string"), "declared": None},
    "labels that are lists": {"y": np.array([[1], [2, 3]] * 30, dtype=object), "declared": None},
    "declared is a mapping": {"declared": {"size": 60}},
    "network is a number": {"network": 64},
    "network is text": {"network": "64"},
    "network is None": {"network": None},
    "certificate is a mapping of another kind": {"certificate": {"kind": "stability"}},
    "certificate is a number": {"certificate": 3},
    "no members": {"members": 0},
    "members is None": {"members": None},
    "members is text": {"members": "two"},
}


def test_classes_that_are_no_list_are_named() -> None:
    with pytest.raises(agt.ConfigError, match=r"declared\.classes=5"):
        agt.Declared(classes=5)  # type: ignore[arg-type]


def test_whoever_wants_no_progress_may_say_so() -> None:
    assert fit(on_progress=None, network=(3,), ks=1, **STEPS).classes.tolist() == [0, 1]


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments_are_named(case: str) -> None:
    with pytest.raises(agt.AgtError):
        fit(**WRONG[case])


@pytest.mark.parametrize(
    ("mechanism", "settings", "more"),
    [
        *(
            (mechanism, {}, {})
            for mechanism in ("randomized_response", agt.RandomizedResponse, None)
        ),
        *((agt.RandomizedResponse, {"eps": 1.0}, {"seed": seed}) for seed in ("a", 1.5, [1])),
        *((agt.RandomizedResponse, settings, {}) for settings in ({"eps": "a"}, {"eps": -1.0})),
        (agt.RandomizedResponse, {"eps": 1.0}, {"accounting": "rigourous"}),
    ],
)
def test_a_release_of_wrong_arguments_is_refused(
    mechanism: Any, settings: dict[str, Any], more: dict[str, Any]
) -> None:
    with pytest.raises(agt.AgtError):
        fit().release(QUERIES[:3], mechanism(**settings) if settings else mechanism, **more)


@pytest.mark.parametrize(
    "settings", [{}, {"network": (3,), "ks": 1, **STEPS}, {"members": 2, "compute": {"threads": 1}}]
)
def test_no_queries_are_no_answers(settings: dict[str, Any]) -> None:
    model = fit(**settings)
    assert len(model.predict(QUERIES[:0])) == 0
    assert len(model.certify(QUERIES[:0]).labels) == 0


def test_a_digest_is_read_as_the_command_line_reads_it(tmp_path: Path) -> None:
    digest = fit().save(tmp_path / "model")
    agt.load(tmp_path / "model", digest.removeprefix("sha256:"))
    agt.load(tmp_path / "model", f"{digest.upper()}\n")
