"""What the owner of a model is warned about: answers without certificates, and where it says so."""

import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import agt
from agt.certificates.box import Certificates
from agt.errors import DataError, Doubtful, PrivacySumWarning
from agt.fit_settings import FIT_ARGUMENTS
from agt.models.doubts import SAMPLE_ROWS, CertifiedCounts
from agt_cli.report.quality import Quality


def settings(dtype: str = "float64", covers_every_k: bool = False, unit_rows: int = 1) -> Any:
    return SimpleNamespace(
        relation=SimpleNamespace(unit_rows=unit_rows),
        training=SimpleNamespace(dtype=dtype, clip=0.5),
        certificate=SimpleNamespace(covers_every_k=covers_every_k),
    )


def certainty(certified: list[list[bool]], dtype: str = "float64") -> CertifiedCounts:
    array = np.array(certified)
    prediction = np.zeros(array.shape[1], dtype=np.int64)
    certificates = Certificates(tuple(range(len(array))), "add_remove", prediction, array)
    return CertifiedCounts.from_certificates(certificates, settings(dtype))


def test_answers_that_are_not_certified_at_k_0_are_doubted_with_float64_as_remedy() -> None:
    doubt = certainty([[True, False], [True, False]], "float32").rounding_warning
    assert doubt is not None
    assert "training.dtype=float64" in str(doubt)
    assert 'dtype="float64"' in doubt.text(FIT_ARGUMENTS)


def test_certified_answers_raise_no_doubt() -> None:
    found = certainty([[True, True], [True, True]])
    assert (found.rounding_warning, found.distance_warning) == (None, None)


@pytest.mark.parametrize(("stable", "doubted"), [([True, False], True), ([True, True], False)])
def test_half_of_the_answers_at_distance_0_are_doubted(stable: list[bool], doubted: bool) -> None:
    assert (certainty([[True, True], stable]).distance_warning is not None) == doubted


@pytest.mark.parametrize(("unit_rows", "unit"), [(1, "record changes"), (3, "person's records")])
def test_what_a_stable_distance_counts_is_named(unit_rows: int, unit: str) -> None:
    doubt = CertifiedCounts(4, 0, 1, settings(unit_rows=unit_rows)).distance_warning
    assert f"even one {unit}" in str(doubt)


def test_half_of_the_clip_level_is_named_as_users_of_a_network_type_it() -> None:
    doubt = certainty([[True, True], [True, False]]).distance_warning
    assert doubt is not None
    assert "training.clip_elementwise=0.25" in str(doubt)
    assert "(clip=0.25)" in doubt.text(FIT_ARGUMENTS)


@pytest.mark.parametrize(("dtype", "is_remedy"), [("float32", True), ("float64", False)])
def test_float64_is_the_first_remedy_of_a_float32_network_whose_grid_does_not_show_rounding(
    dtype: str, is_remedy: bool
) -> None:
    certificates = Certificates((1, 5), "add_remove", np.zeros(3, np.int64), np.zeros((2, 3), bool))
    counts = CertifiedCounts.from_certificates(certificates, settings(dtype))
    assert counts.rounding_warning is None
    assert counts.distance_warning is not None
    text = str(counts.distance_warning)
    assert ("training.dtype=float64" in text) == is_remedy
    assert "model=linear" in text


def test_what_is_not_certified_at_k_0_comes_first() -> None:
    labels = np.arange(40) % 2
    judged = Quality(("no", "yes"), "records", labels, labels * 0, rounding_warning="Rounding.")
    verdict = judged.verdict
    assert verdict.startswith("Rounding. ")
    assert "always certified" not in verdict


def test_a_network_of_float32_whose_margins_are_rounding_is_doubted() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(10, 4))
    y = np.arange(10) % 2
    given: dict[str, Any] = {"network": (32,) * 4, "epochs": 1, "lr": 1e-3, "clip": 0.06}
    with pytest.warns(Doubtful) as seen:
        agt.fit(x, y, **given, activation="tanh", dtype="float32", ks=1)
    assert 'dtype="float64"' in str(seen[0].message)


def a_size_doubt(size: int, method: Any) -> list[str]:
    """Return the warnings about the declared size of a model of 200 records."""
    x = np.random.default_rng(0).normal(size=(200, 2))
    declared = agt.Declared(classes=[0, 1], size=size, features=True, settings=True)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        method(x, np.arange(200) % 2, declared)
    return [str(warning.message) for warning in seen if "declared.size" in str(warning.message)]


@pytest.mark.parametrize(
    "method",
    [
        lambda x, y, declared: agt.fit(x, y, declared=declared),
        lambda x, y, declared: agt.CertifiedClassifier(declared=declared).fit(x, y),
        lambda x, y, declared: agt.PrivateClassifier(epsilon=1, declared=declared).fit(x, y),
    ],
    ids=["fit", "CertifiedClassifier", "PrivateClassifier"],
)
def test_a_declared_size_that_may_have_been_counted_is_doubted_once(method: Any) -> None:
    assert len(a_size_doubt(200, method)) == 1
    assert a_size_doubt(210, method) == []


@pytest.mark.parametrize(("size", "doubted"), [(1999, 0), (2000, 1)])
def test_a_declared_size_of_ten_times_the_records_is_doubted(size: int, doubted: int) -> None:
    def fit(x: Any, y: Any, declared: Any) -> None:
        agt.fit(x, y, declared=declared)

    assert len(a_size_doubt(size, fit)) == doubted


def test_a_warning_about_a_sample_says_that_there_are_more_records() -> None:
    count = SAMPLE_ROWS + 200
    x = np.random.default_rng(0).normal(size=(count, 2))
    declared = agt.Declared(classes=[0, 1], size=1500, features=True, settings=True)
    with pytest.warns(Doubtful) as seen:
        agt.fit(x, (np.arange(count) % 10 == 0).astype(int), declared=declared)
    sampled = f"a sample of {SAMPLE_ROWS} of the {count} training records"
    assert any(sampled in str(warning.message) for warning in seen)


@pytest.mark.parametrize(
    ("labels", "classes", "conversion"), [("01", [0, 1], "int"), ([0, 1], ["0", "1"], "str")]
)
def test_labels_of_another_type_than_the_classes_are_told_how_to_be_converted(
    labels: Any, classes: Any, conversion: str
) -> None:
    x = np.random.default_rng(0).normal(size=(200, 2))
    declared = agt.Declared(classes=classes, size=190, features=True, settings=True)
    with pytest.raises(DataError, match=rf"y\.astype\({conversion}\)") as raised:
        agt.fit(x, np.array([*labels] * 100), declared=declared)
    assert "did you mean" not in str(raised.value)


def test_labels_in_the_place_of_features_are_told_the_order() -> None:
    x = np.random.default_rng(0).normal(size=(200, 2))
    with pytest.raises(DataError, match="Features come first"):
        agt.fit(np.arange(200) % 2, x)


def test_warnings_name_the_line_of_the_user() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 2))
    y = np.arange(200) % 2
    declared = agt.Declared(classes=[0, 1], size=200, features=True, settings=True)
    model = agt.fit(x + 3 * y[:, None], y, declared=declared)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(2):
            model.release(x[:2], agt.RandomizedResponse(eps=30))
    assert {warning.category for warning in seen} == {Doubtful, PrivacySumWarning}
    assert {warning.filename for warning in seen} == {__file__}


NETWORK: dict[str, Any] = {"network": (4,), "epochs": 1, "lr": 1, "clip": 0.1}
EVERYTHING = agt.Declared(classes=[0, 1], size=60, features=True, settings=True)


@pytest.mark.parametrize(
    ("ks", "declared", "doubted"),
    [
        ([1, 3], EVERYTHING, True),
        ([0, 1, 2, 3], EVERYTHING, False),
        (3, EVERYTHING, False),
        ([1, 3], agt.Declared(classes=[0, 1], size=60), False),
    ],
    ids=["gaps", "listed without gaps", "one number", "no release is planned"],
)
def test_a_grid_that_no_release_takes_is_doubted_by_fit(
    ks: Any, declared: agt.Declared, doubted: bool
) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        model = agt.fit(x, np.arange(60) % 2, ks=ks, declared=declared, **NETWORK)
    doubts = [str(warning.message) for warning in seen]
    assert any("train with ks=3, one number" in doubt for doubt in doubts) == doubted
    if doubted:  # both remedies are what the message says that they are
        response = agt.RandomizedResponse(eps=1)
        with pytest.raises(agt.ConfigError, match="condition a"):
            model.release(x[:1] + 9, response)
        model.release(x[:1] + 9, response, counting="index", seed=0)


def test_a_declared_size_of_people_is_named_where_rows_are_too_many() -> None:
    x = np.random.default_rng(0).normal(size=(200, 2))
    declared = agt.Declared(classes=[0, 1], size=60)
    with pytest.raises(agt.ConfigError) as refused:
        agt.fit(x, np.arange(200) % 2, declared=declared, **NETWORK)
    text = str(refused.value)
    assert "a batch has 200 records, but by declared.size" in text
    assert "about 60, and at most 113" in text
    assert "rows, not people" in text


def test_a_cap_on_a_batch_that_was_given_is_named_itself() -> None:
    x = np.random.default_rng(0).normal(size=(200, 2))
    batch = {"normalizer": 60, "n_max": 100}
    with pytest.raises(agt.ConfigError, match=r'batch\["n_max"\]=100 allows fewer: raise n_max'):
        agt.fit(x, np.arange(200) % 2, batch=batch, **NETWORK)
