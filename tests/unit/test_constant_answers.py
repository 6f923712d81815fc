"""Models that answer (nearly) every query alike, and vectors that point in one direction."""

import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import agt
from agt.errors import Doubtful
from agt.fit_settings import FIT_ARGUMENTS
from agt.models.box import BoxKind
from agt.models.constant_answers import (
    constant_answer_remedy,
    is_nearly_constant,
    mean_cosine,
    one_sided_warning,
)
from agt.models.kind import CertificateKind
from agt.models.own_votes import OwnVotesKind
from agt.models.stability import StabilityKind
from agt.models.votes import VotesKind
from agt.settings import FeaturesConfig
from agt_cli.report.quality import Quality


def answers(*counts: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return (prediction, labels) with so many records of each (answer, label, records)."""
    prediction = np.repeat([count[0] for count in counts], [count[2] for count in counts])
    labels = np.repeat([count[1] for count in counts], [count[2] for count in counts])
    return prediction, labels


@pytest.mark.parametrize(
    ("counts", "constant"),
    [
        ([(0, 0, 760), (0, 1, 240)], True),
        ([(0, 0, 760), (0, 1, 230), (1, 1, 10)], True),  # better, but 10 of 240 are found
        ([(0, 0, 1990), (0, 1, 1), (1, 1, 9)], False),  # a rare class, nearly all of it found
        ([(0, 0, 700), (1, 1, 200), (0, 1, 100)], False),
        ([(0, 0, 10), (0, 1, 5)], False),  # too few records
    ],
)
def test_which_answers_are_nearly_constant(
    counts: list[tuple[int, int, int]], constant: bool
) -> None:
    prediction, labels = answers(*counts)
    assert is_nearly_constant(prediction, labels) is constant
    quality = Quality(("a", "b"), "test records", labels, prediction)
    assert quality.constant is constant, "the command line and Python have one rule"
    assert bool(quality.constant_note) is constant


def test_a_table_marks_a_constant_answer_beside_its_certified_shares() -> None:
    prediction, labels = answers((0, 0, 76), (0, 1, 24))
    judged = Quality(
        ("a", "b"),
        "test records",
        labels,
        prediction,
        distance=np.full(100, 5),
        ks=(5,),
        grid_end=5,
    )
    section = "\n".join(judged.section())
    row = next(line for line in section.splitlines() if line.startswith("| all"))
    assert row.rstrip(" |").endswith("constant answer")


def test_the_mean_cosine_by_hand() -> None:
    assert mean_cosine(np.array([[1.0, 0], [0, 2], [0, 0]])) == pytest.approx(2**-0.5)
    assert mean_cosine(np.array([[3.0, 4], [6, 8]])) == pytest.approx(1)
    assert mean_cosine(np.zeros((3, 2))) == 0
    assert mean_cosine(np.zeros((0, 2))) == 0


def pixels(seed: int = 0, count: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """Return records of numbers from 0.4 to 1, and labels that a few of them show."""
    rng = np.random.default_rng(seed)
    labels = (rng.random(count) < 0.85).astype(np.int64)
    x = 0.7 + 0.1 * rng.standard_normal((count, 30))
    x[:, :5] += 0.15 * (labels[:, None] - 0.5)
    return x.clip(0.4, 1), labels


def test_vectors_on_one_side_are_named_with_a_public_remedy() -> None:
    x, _ = pixels()
    warning = one_sided_warning(x)
    assert warning is not None
    assert "dataset.center=0.5 dataset.public_scaling=true" in str(warning)
    assert "x - 0.5" in warning.text(FIT_ARGUMENTS)
    assert f"{x.mean():.1f}" not in str(warning), "a private mean is no constant to subtract"
    assert one_sided_warning(x - x.mean(axis=0)) is None
    assert one_sided_warning(x[:5]) is None
    signs = np.where(np.arange(30) % 2, 1.0, -1.0)
    public = one_sided_warning(x * signs)
    assert public is not None
    assert "dataset.center=KEY" in str(public)
    assert "0.5" not in str(public), "the middle of a range does not help signed vectors"


@pytest.mark.parametrize(
    ("covers_every_k", "one_sided", "named"),
    [
        (True, True, ["dataset.center=0.5", "training.caution=0.25"]),
        (True, False, ["training.caution=0.25"]),
        (False, False, ["certificate=stability model=linear"]),
    ],
)
def test_the_remedy_for_a_constant_model_fits_its_kind(
    covers_every_k: bool, one_sided: bool, named: list[str]
) -> None:
    settings: Any = SimpleNamespace(
        training=SimpleNamespace(caution=1.0),
        certificate=SimpleNamespace(covers_every_k=covers_every_k),
    )
    remedy = str(constant_answer_remedy(settings, is_one_sided=one_sided))
    assert all(setting in remedy for setting in named)
    assert ("model=linear" in remedy) is not covers_every_k, "no linear head names itself"


def test_a_smaller_caution_is_not_proposed_again_and_its_price_is_said() -> None:
    certificate = SimpleNamespace(covers_every_k=True)
    first: Any = SimpleNamespace(training=SimpleNamespace(caution=1.0), certificate=certificate)
    again: Any = SimpleNamespace(training=SimpleNamespace(caution=0.25), certificate=certificate)
    assert "no private answers" in str(constant_answer_remedy(first, is_one_sided=False))
    assert "training.caution" not in str(constant_answer_remedy(again, is_one_sided=False))


def fitted_warnings(x: np.ndarray, y: np.ndarray, **settings: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        agt.CertifiedClassifier(**settings).fit(x, y)
    return [str(warning.message) for warning in caught if warning.category is Doubtful]


def test_python_warns_of_one_sided_vectors_and_of_the_constant_model_that_they_give() -> None:
    x, y = pixels()
    found = fitted_warnings(x, y)
    assert any("x - 0.5" in text and "nearly the same direction" in text for text in found)
    assert any("nearly constant" in text and "caution=0.25" in text for text in found)
    assert not any("np.int64" in text for text in found)
    centred = fitted_warnings(x - 0.7, y)
    assert not any("nearly the same direction" in text for text in centred)


@pytest.mark.parametrize(
    ("certificate", "normalises"),
    [
        (StabilityKind(), True),
        (StabilityKind(features=FeaturesConfig(map="relu", count=8)), True),
        (StabilityKind(features=FeaturesConfig(map="scattering")), True),
        (StabilityKind(features=FeaturesConfig(map="scattering", public="train")), False),
        (VotesKind(), True),
        (OwnVotesKind(learner={"_target_": "my.Learner"}), False),
        (BoxKind(), False),
    ],
)
def test_which_kinds_see_directions_only(certificate: CertificateKind, normalises: bool) -> None:
    assert certificate.normalises_records is normalises


@pytest.mark.parametrize(
    "settings", [{"lr": np.float64(-1)}, {"members": np.int64(-1)}, {"seed": np.int64(-1)}]
)
def test_errors_show_numbers_of_numpy_as_numbers(settings: dict[str, Any]) -> None:
    x, y = pixels(count=20)
    with pytest.raises(agt.ConfigError) as error:
        agt.fit(x, y, **settings)
    assert "np." not in str(error.value)
    assert "-1" in str(error.value)
