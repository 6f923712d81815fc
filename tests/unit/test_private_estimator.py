"""Private estimators: scikit-learn's checks, what a published one holds, refusals; and the
certified one's newer doors.
"""

import pickle
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import SkipTestWarning
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import check_estimator

import agt
from agt.numeric import SeededRandomness

RNG = np.random.default_rng(5)
Y = np.arange(600) % 3
X = RNG.normal(size=(600, 4)) + 4 * np.eye(4)[Y]


def said(y: np.ndarray, size: int = 600, ids: bool = False) -> agt.Declared:
    return agt.Declared(
        classes=np.unique(y).tolist(), size=size, features=True, settings=True, ids=ids
    )


class AsGiven(agt.PrivateClassifier):
    """For scikit-learn's checks, whose data have classes and sizes of many kinds: declares what
    it is given.
    """

    def fit(self, X: Any, y: Any, units: Any = None) -> agt.PrivateClassifier:
        kept = self.declared
        labels = np.asarray(y)
        try:
            self.declared = (
                said(labels, len(labels)) if labels.ndim and len(np.unique(labels)) > 1 else None
            )
            return super().fit(X, y, units)
        finally:
            self.declared = kept


class SameNoise(SeededRandomness):
    """Draws alike at every fit, which some of the checks compare; and passes for no simulation."""

    simulated = False


def test_it_passes_every_check_of_the_ecosystem(monkeypatch: pytest.MonkeyPatch) -> None:
    """With fresh noise three fail, as they have to, since they fit twice and compare:
    check_fit_idempotent, check_supervised_y_2d, check_classifier_data_not_an_array.
    """
    monkeypatch.setattr("agt.fitted.SystemRandomness", lambda: SameNoise(0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkipTestWarning)
        warnings.simplefilter("ignore", agt.PrivacySumWarning)
        results = check_estimator(AsGiven(epsilon=100.0), on_fail=None)
    assert len(results) > 40
    assert [(r["check_name"], r["exception"]) for r in results if r["status"] == "failed"] == []


@pytest.mark.parametrize("classes", [2, 3])
def test_what_is_published_holds_no_records_and_answers_the_same(classes: int) -> None:
    x = X[classes > Y]
    y = np.array(["no", "yes", "maybe"])[Y[classes > Y]]
    order = ["yes", "no", "maybe"][:classes]
    declared = agt.Declared(classes=order, size=600, features=True, settings=True)
    private = agt.PrivateClassifier(epsilon=4.0, declared=declared).fit(x, y)
    assert private.score(x, y) > 0.85
    content = pickle.dumps(private)
    assert not any(row.tobytes() in content for row in x)
    assert len(content) < 8000, "weights and words, nothing as long as the data"
    again = pickle.loads(content)
    proba = again.predict_proba(x)
    assert proba.sum(axis=1) == pytest.approx(np.ones(len(x)))
    assert (again.classes_[proba.argmax(axis=1)] == private.predict(x)).all()
    assert private.classes_.tolist() == sorted(order)
    assert "differentially private" in private.guarantee_[0]
    assert any("(4, 1e-05)-differentially private" in line for line in private.guarantee_)
    assert any("declared.features=True" in line for line in private.guarantee_)


@pytest.mark.filterwarnings("ignore::agt.errors.PrivacySumWarning")
def test_no_claim_without_declarations_and_small_budgets_work() -> None:
    with pytest.raises(ValueError, match=r"(?s)condition c.*declared\.settings=True"):
        agt.PrivateClassifier().fit(X, Y)
    two = Y < 2
    for relation in ("add_remove", "substitute"):
        weak = agt.PrivateClassifier(epsilon=0.01, declared=said(Y[two]), relation=relation).fit(
            X[two], Y[two]
        )
        assert f"for {relation} neighbours" in weak.guarantee_[0]
    with pytest.raises(ValueError, match=r"(?i)eps"):
        agt.PrivateClassifier(epsilon=-1.0, declared=said(Y)).fit(X, Y)


def test_searches_over_public_rows_work_on_both() -> None:
    public = replace(said(Y), public=True)
    private = agt.PrivateClassifier(declared=public, epsilon=8.0)
    certified = agt.CertifiedClassifier(declared=said(Y))
    for estimator, grid in (
        (private, {"features": [None, {"map": "relu", "count": 32}]}),
        (certified, {"caution": [0.5, 2.0]}),
    ):
        search = GridSearchCV(estimator, grid, cv=2, error_score="raise").fit(X, Y)
        assert search.best_score_ > 0.8


@pytest.mark.parametrize("settings", [{}, {"learner": "ridge", "members": 5}, {"members": 5}])
@pytest.mark.parametrize("classes", [2, 3])
def test_shares_say_what_is_predicted_and_labels_may_be_released(
    classes: int, settings: dict[str, Any]
) -> None:
    x = X[classes > Y]
    y = Y[classes > Y]
    model = agt.CertifiedClassifier(declared=said(y), **settings).fit(x, y)
    proba = model.predict_proba(x)
    assert proba.sum(axis=1) == pytest.approx(np.ones(len(x)))
    assert (proba[np.arange(len(x)), model.predict(x)] >= proba.max(axis=1) - 1e-12).all()
    if "members" in settings:
        assert abs(proba * 5 - np.rint(proba * 5)).max() < 1e-9
    released = model.release(x[:9], agt.RandomizedResponse(eps=1.0, classes=classes))
    assert released.claim.proved
    assert released.labels.shape == (9,)
    assert "array(" not in repr(model.model_.model.problem.dataset)


@pytest.mark.filterwarnings("ignore::agt.errors.PrivacySumWarning")
def test_units_are_told_apart_and_capped(tmp_path: Path) -> None:
    """People of several rows: the claim speaks of them, too many rows are refused, and a file's
    unit is not passed over.
    """
    people = np.arange(600) // 3
    y = (Y > 0).astype(int)
    declared = said(y, ids=True)
    private = agt.PrivateClassifier(declared=declared, unit_rows=3).fit(X, y, units=people)
    assert any("3 records" in line for line in private.guarantee_)
    for learner in (agt.PrivateClassifier, agt.CertifiedClassifier):
        with pytest.raises(ValueError, match="has 3 rows, but unit_rows is 2"):
            learner(declared=declared, unit_rows=2).fit(X, y, units=people)
    with pytest.raises(ValueError, match="has 3 rows, but unit_rows is 2"):
        agt.CertifiedClassifier(declared=declared, unit_rows=2, certificate="votes").fit(
            X, y, units=people
        )
    frame = pd.DataFrame({"day": pd.date_range("2024-01-01", periods=600), "person": people})
    file = tmp_path / "people.yaml"
    file.write_text("numeric: {day: [2024-01-01, 2026-01-01]}\nunit: person\n")
    learner = agt.PrivateClassifier(declared=declared, columns=file, unit_rows=3)
    with pytest.raises(ValueError, match=r"columns=.*'person'.*units="):
        learner.fit(frame, y)
    assert learner.fit(frame, y, units=people).n_features_in_ == 2
    (tmp_path / "fewer.yaml").write_text(
        "defaults: [people, _self_]\nnumeric: {day: [2024-01-01, 2026-01-01]}\n"
    )
    with pytest.raises(ValueError, match=r"columns=.*fewer\.yaml.*people"):
        agt.PrivateClassifier(declared=declared, columns=tmp_path / "fewer.yaml").fit(frame, y)


@pytest.mark.filterwarnings("ignore::agt.errors.PrivacySumWarning")
def test_large_features_are_warned_of_and_leave_nothing_in_what_is_published() -> None:
    private = agt.PrivateClassifier(epsilon=4.0, declared=said(Y))
    private.fit(X, Y)
    attributes = set(vars(private))
    with pytest.warns(agt.Doubtful, match=r"agt\.Columns") as seen:
        private.fit(X * 1000, Y)
    largest = f"{np.abs(X * 1000).max():g}"
    assert largest in " ".join(str(warning.message) for warning in seen)
    assert set(vars(private)) == attributes
    assert largest.encode() not in pickle.dumps(private)


@pytest.mark.filterwarnings("error::agt.errors.Doubtful")
def test_large_features_are_warned_of_before_anything_is_released() -> None:
    declared = agt.Declared(size=600, features=True, settings=True)
    regressor = agt.PrivateRegressor(range=(0.0, 2.0), declared=declared)
    with pytest.raises(agt.Doubtful):
        regressor.fit(X * 1000, Y)
    assert not hasattr(regressor, "released_")
