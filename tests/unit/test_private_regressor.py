"""PrivateRegressor: scikit-learn's checks, what a published one holds, and what is refused."""

import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import SkipTestWarning
from sklearn.linear_model import Ridge
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import check_estimator

import agt
from agt.numeric import SeededRandomness

RNG = np.random.default_rng(5)
X = RNG.uniform(-1.0, 1.0, size=(3000, 4))
Y = 50.0 + 20.0 * X[:, 0] - 5.0 * X[:, 1] + RNG.normal(size=3000)
RANGE = (0.0, 100.0)
DECLARED = agt.Declared(size=3000, features=True, settings=True)


class SameNoise(SeededRandomness):
    """Noise that is the same at every fit, which some of the checks compare."""

    simulated = False


class DeclaringAll(agt.PrivateRegressor):
    """For scikit-learn's checks: declares the size and the range of the data that it is given."""

    def fit(self, X: Any, y: Any, units: Any = None) -> agt.PrivateRegressor:
        earlier = self.declared, self.range
        try:
            labels = np.asarray(y)
            if labels.size and labels.dtype.kind in "fi" and np.isfinite(labels).all():
                self.range = float(labels.min()) - 1.0, float(labels.max()) + 1.0
            self.declared = agt.Declared(size=max(labels.size, 1), features=True, settings=True)
            return super().fit(X, y, units)
        finally:
            self.declared, self.range = earlier


@pytest.fixture
def same_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw the same noise at every fit."""
    monkeypatch.setattr("agt.fitted.SystemRandomness", lambda: SameNoise(0))


def fitted(eps: float = 2.0, **settings: Any) -> agt.PrivateRegressor:
    """Return a regressor that is fitted on the data of this module."""
    given = {"range": RANGE, "declared": DECLARED, **settings}
    return agt.PrivateRegressor(epsilon=eps, **given).fit(X, Y)


@pytest.mark.usefixtures("same_noise")
def test_it_passes_every_check_of_the_ecosystem() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkipTestWarning)
        warnings.simplefilter("ignore", agt.PrivacySumWarning)
        regressor = DeclaringAll(epsilon=100.0, range=(0.0, 1.0))
        results = check_estimator(regressor, on_fail=None)
    failed = [(r["check_name"], r["exception"]) for r in results if r["status"] == "failed"]
    assert len(results) > 35
    assert failed == []


@pytest.mark.filterwarnings("ignore::agt.errors.PrivacySumWarning")
def test_it_answers_nearly_as_well_as_ridge() -> None:
    usual = np.sqrt(np.mean((Ridge().fit(X, Y).predict(X) - Y) ** 2))
    private = np.sqrt(np.mean((fitted(eps=8.0).predict(X) - Y) ** 2))
    assert private < 1.1 * usual


@pytest.mark.filterwarnings("ignore::agt.errors.PrivacySumWarning")
@pytest.mark.parametrize("factor", [0.1, 1.0, 2.0])
def test_the_unit_of_the_features_hardly_matters(factor: float) -> None:
    regressor = agt.PrivateRegressor(epsilon=8.0, range=RANGE, declared=DECLARED)
    answers = regressor.fit(X * factor, Y).predict(X * factor)
    assert np.sqrt(np.mean((answers - Y) ** 2)) < 2.0


@pytest.mark.filterwarnings("ignore::agt.errors.PrivacySumWarning")
def test_answers_stay_within_the_range() -> None:
    far = np.full((1, 4), 1e300) * [[1.0, -1.0, 1.0, 1.0]]
    answers = fitted().predict(np.concatenate([far, -far, np.zeros((1, 4))]))
    assert ((answers >= RANGE[0]) & (answers <= RANGE[1])).all()


@pytest.mark.filterwarnings("ignore::agt.errors.PrivacySumWarning")
def test_what_is_published_holds_no_records_and_answers_the_same() -> None:
    private = fitted()
    content = pickle.dumps(private)
    assert not any(row.tobytes() in content for row in X)
    assert len(content) < 8000
    assert (pickle.loads(content).predict(X) == private.predict(X)).all()


@pytest.mark.filterwarnings("ignore::agt.errors.PrivacySumWarning")
def test_the_guarantee_names_the_range_that_was_declared() -> None:
    guarantee = fitted().guarantee_
    assert any("(2, 1e-05)-differentially private" in line for line in guarantee)
    assert any("[0, 100]" in line and "(range)" in line for line in guarantee)


@pytest.mark.filterwarnings("ignore::agt.errors.PrivacySumWarning")
def test_the_released_folder_answers_as_the_regressor_does(tmp_path: Path) -> None:
    released = fitted().released_
    assert released.classes == ()
    assert released.slope is None
    with pytest.raises(agt.ConfigError, match="numeric"):
        released.labels(X)
    with pytest.raises(agt.ConfigError, match="classes"):
        fitted_classes().numbers(X)


def fitted_classes() -> agt.Portable:
    """Return released weights of two classes."""
    declared = agt.Declared(classes=[0, 1], size=3000, features=True, settings=True)
    return agt.PrivateClassifier(declared=declared).fit(X, (Y > 50).astype(int)).released_


def a_row_with(value: float) -> np.ndarray:
    """Return the labels with one replaced."""
    labels = Y.copy()
    labels[7] = value
    return labels


@pytest.mark.filterwarnings("ignore::agt.errors.Doubtful")
@pytest.mark.filterwarnings("ignore::agt.errors.PrivacySumWarning")
@pytest.mark.usefixtures("same_noise")
@pytest.mark.parametrize("value", [100.5, 1e6, 1e308])
def test_a_label_outside_counts_as_the_nearer_end(value: float) -> None:
    regressor = agt.PrivateRegressor(range=RANGE, declared=DECLARED)
    at_the_end = regressor.fit(X, a_row_with(100.0)).predict(X)
    assert (regressor.fit(X, a_row_with(value)).predict(X) == at_the_end).all()


@pytest.mark.filterwarnings("ignore::agt.errors.PrivacySumWarning")
def test_labels_outside_are_counted_for_the_owner() -> None:
    regressor = agt.PrivateRegressor(range=(0.0, 60.0), declared=DECLARED)
    outside = int((Y > 60.0).sum())
    with pytest.warns(agt.Doubtful, match=f"{outside:,} of 3,000"):
        regressor.fit(X, Y)


REFUSED: dict[str, tuple[dict[str, Any], Callable[[], np.ndarray], str]] = {
    "no range": ({"range": None}, lambda: Y, r"range=\(a, b\): give the smallest"),
    "zero width": ({"range": (5.0, 5.0)}, lambda: Y, "width above 0"),
    "reversed": ({"range": (9.0, 1.0)}, lambda: Y, "width above 0"),
    "infinite": ({"range": (0.0, np.inf)}, lambda: Y, "finite"),
    "NaN end": ({"range": (np.nan, 1.0)}, lambda: Y, "finite"),
    "too wide": ({"range": (-1.7e308, 1.7e308)}, lambda: Y, "finite"),
    "one number": ({"range": 5.0}, lambda: Y, "two numbers"),
    "text ends": ({"range": ("a", "b")}, lambda: Y, "two numbers"),
    "text target": ({}, lambda: np.array(["low", "high"] * 1500), "y: .*needs numbers|convert"),
    "NaN label": ({}, lambda: a_row_with(np.nan), "NaN"),
    "infinite label": ({}, lambda: a_row_with(np.inf), "infinity"),
    "epsilon of 0": ({"epsilon": 0.0}, lambda: Y, "(?i)eps"),
    "epsilon of text": ({"epsilon": "1"}, lambda: Y, "epsilon='1'"),
    "nothing declared": ({"declared": None}, lambda: Y, r"declared\.settings=True"),
    "flipped labels": ({"relation": "flip"}, lambda: Y, "(?i)flip"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_released_is_refused_and_spends_nothing(case: str, tmp_path: Path) -> None:
    settings, labels, message = REFUSED[case]
    ledger = agt.Ledger.create(tmp_path / "people.ledger", unit="one person", eps=8.0, delta=1e-4)
    given = {"range": RANGE, "declared": DECLARED, "ledger": ledger, **settings}
    with pytest.raises(ValueError, match=message):
        agt.PrivateRegressor(**given).fit(X, labels())
    assert ledger.spent.eps == 0


@pytest.mark.filterwarnings("ignore::agt.errors.PrivacySumWarning")
@pytest.mark.parametrize("constant", [0.0, 37.0, 100.0])
def test_a_constant_target_is_answered(constant: float) -> None:
    regressor = agt.PrivateRegressor(epsilon=8.0, range=RANGE, declared=DECLARED)
    answers = regressor.fit(X, np.full(3000, constant)).predict(X)
    assert answers == pytest.approx(np.full(3000, constant), abs=2.0)


@pytest.mark.parametrize("rows", [1, 2])
def test_so_few_records_give_answers_within_the_range(rows: int) -> None:
    declared = agt.Declared(size=rows, features=True, settings=True)
    regressor = agt.PrivateRegressor(range=RANGE, declared=declared)
    answers = regressor.fit(X[:rows], Y[:rows]).predict(X)
    assert ((answers >= 0.0) & (answers <= 100.0)).all()


@pytest.mark.filterwarnings("ignore::agt.errors.PrivacySumWarning")
def test_columns_of_a_data_frame_are_coded() -> None:
    frame = pd.DataFrame({"age": 50 + 30 * X[:, 0], "place": np.where(X[:, 1] > 0, "a", "b")})
    columns = agt.Columns(numeric={"age": (0, 100)}, categorical={"place": ("a", "b")})
    regressor = agt.PrivateRegressor(epsilon=8.0, range=RANGE, declared=DECLARED, columns=columns)
    assert regressor.fit(frame, Y).score(frame, Y) > 0.8


def test_a_search_over_private_rows_is_refused() -> None:
    regressor = agt.PrivateRegressor(range=RANGE, declared=DECLARED)
    with pytest.raises(agt.PrivacySumError):
        cross_val_score(regressor, X, Y, cv=3, error_score="raise")
