"""The scikit-learn estimator: its own checks, pipelines, errors."""

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import SkipTestWarning
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

import agt

RNG = np.random.default_rng(3)
Y = np.arange(80) % 2
X = RNG.normal(size=(80, 4)) + 1.5 * Y[:, None]
ESTIMATORS: dict[str, dict[str, Any]] = {
    "linear, stability": {},
    "linear, minimiser": {"certificate": "erm"},
    "network, boxes": {"network": (16,), "ks": 3, "epochs": 4, "lr": 2.0, "clip": 0.06},
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ESTIMATORS)
def test_it_passes_every_check_of_the_ecosystem(kind: str) -> None:
    """The exceptions: none.

    (scikit-learn skips its check of array API input where SCIPY_ARRAY_API is not set.)
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkipTestWarning)
        results = check_estimator(agt.CertifiedClassifier(**ESTIMATORS[kind]), on_fail=None)
    assert len(results) > 40
    assert [r["check_name"] for r in results if r["status"] == "failed"] == []
    assert [r["check_name"] for r in results if r["status"] == "skipped"] in (
        [],
        ["check_array_api_input"],
    )


def test_it_certifies_at_the_end_of_a_pipeline() -> None:
    pipeline = make_pipeline(FunctionTransformer(lambda x: x / 2), agt.CertifiedClassifier())
    assert cross_val_score(pipeline, X, Y, cv=3).mean() > 0.6
    pipeline.fit(X, Y)
    answers = pipeline[-1].certify(X / 2)
    assert (answers.labels == pipeline.predict(X)).all()
    assert (answers.stable_distance == agt.fit(X / 2, Y).certify(X / 2).stable_distance).all()


def test_settings_reach_the_training_and_a_wrong_one_is_a_value_error() -> None:
    given = {
        "epochs": 3,
        "lr": 0.5,
        "batches": 2,
        "weight_decay": 0.1,
        "clip": 0.25,
        "dtype": "float32",
    }
    estimator = clone(agt.CertifiedClassifier(network=(3,), ks=[0, 4], **given)).fit(X, Y)
    settings = estimator.model_.model.problem.settings
    assert (settings.training.epochs, settings.training.lr, settings.training.batch.count) == (
        3,
        0.5,
        2,
    )
    assert (settings.training.clip, settings.training.dtype, settings.kgrid.ks) == (
        0.25,
        "float32",
        (0, 4),
    )
    with pytest.raises(ValueError, match="relation: unknown value 'swap'"):
        agt.CertifiedClassifier(relation="swap").fit(X, Y)


def test_margins_say_what_is_predicted() -> None:
    for y in (Y, np.arange(80) % 3):
        estimator = agt.CertifiedClassifier().fit(X, y)
        scores = estimator.decision_function(X)
        labels = estimator.predict(X)
        told = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        assert (told == labels).all()
