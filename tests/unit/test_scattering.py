"""Scattering features: against a transform written down plainly, and to the same bits wherever a
record stands.
"""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from synthetic import make_records
from threadpoolctl import threadpool_limits

from agt.data.dataset import Dataset
from agt.data.target import ClassTarget
from agt.errors import ConfigError, UnsoundError
from agt.facts import Standing, evidence, proved
from agt.models.features import CENTERED_RADIUS, MAX_PUBLIC_ROWS, FeatureMap
from agt.models.scattering import filters, outputs_of, scattering, shape_of
from agt.settings import FeaturesConfig

SCATTERING = FeaturesConfig(map="scattering")
HELD = evidence(proved("own_words", text="for a test"))


def images(n: int, channels: int = 1, side: int = 8) -> np.ndarray:
    return np.random.default_rng(n).random((n, channels * side * side))


def plain(image: np.ndarray, kernel: np.ndarray, stride: int) -> np.ndarray:
    """Sums around every ``stride``-th place of an image that is mirrored at its edges, by
    NumPy's own padding.
    """
    reach = len(kernel) // 2
    padded = np.pad(image, reach, mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, kernel.shape)[::stride, ::stride]
    return np.einsum("yxab,ab->yx", windows, kernel)


def modulus(image: np.ndarray, wave: np.ndarray, stride: int) -> np.ndarray:
    return np.hypot(plain(image, wave[0], stride), plain(image, wave[1], stride))


@pytest.mark.parametrize(("channels", "side"), [(1, 8), (1, 28), (3, 12)])
def test_it_is_the_transform(channels: int, side: int) -> None:
    fine, coarse, first, second = filters()
    given = images(2, channels, side)
    planes = given.reshape(2, channels, side, side)
    zero = []
    one = []
    two = []
    for plane in planes.reshape(-1, side, side):
        edges = [modulus(plane, wave, 1) for wave in fine]
        zero.append(plain(plane, first, 4))
        one += [plain(edge, first, 4) for edge in edges]
        one += [plain(modulus(plane, wave, 2), second, 2) for wave in coarse]
        two += [plain(modulus(edge, wave, 2), second, 2) for edge in edges for wave in coarse]
    for found, expected in zip(scattering(given), (zero, one, two), strict=True):
        assert found == pytest.approx(np.array(expected).reshape(2, -1), abs=1e-12)


def test_wavelets_ignore_brightness_and_turn_with_their_angle() -> None:
    fine, coarse, *averages = filters()
    for waves in (fine, coarse):
        assert np.abs(waves.sum(axis=(2, 3))).max() < 1e-4
        assert waves[4, 0] == pytest.approx(waves[0, 0].T, abs=1e-6), "a quarter turn"
        assert waves * 2**20 == pytest.approx(np.rint(waves * 2**20), abs=0)
    assert [float(average.sum()) for average in averages] == pytest.approx([1, 1], abs=1e-4)


def test_a_record_has_the_same_bits_in_any_batch_and_place_and_with_any_threads() -> None:
    x = images(40, 3, 12)
    made = FeatureMap(SCATTERING, x.shape[1])
    whole = made(x)
    assert np.array_equal(np.concatenate([made(x[at : at + 1]) for at in range(40)]), whole)
    order = np.random.default_rng(0).permutation(40)
    assert np.array_equal(made(x[order]), whole[order])
    with threadpool_limits(1):
        assert np.array_equal(made(x), whole)


def test_rows_are_of_length_1_also_of_dark_and_of_huge_images() -> None:
    x = np.concatenate([images(3), np.zeros((1, 64)), np.full((1, 64), 1e-200), images(1) * 1e200])
    phi = FeatureMap(SCATTERING, 64)(x)
    assert phi.shape == (6, outputs_of(64) + 1) == (6, 81 * 4 + 1)
    lengths = np.linalg.norm(phi, axis=1)
    assert (lengths <= 1).all()
    assert lengths[[0, 1, 2, 4, 5]] == pytest.approx(np.ones(5))
    assert lengths[3] == pytest.approx(0.1 / math.sqrt(1.01)), "of an image that is 0 only the bias"


@pytest.mark.parametrize(
    ("width", "shape"),
    [(784, (1, 28)), (2352, (3, 28)), (64, (1, 8)), (12, None), (100, None), (785, None)],
)
def test_shapes(width: int, shape: tuple[int, int] | None) -> None:
    assert shape_of(width) == shape
    if shape is None:
        with pytest.raises(ConfigError, match="square"):
            FeatureMap(SCATTERING, width)


# -- their mean over public rows is subtracted
# --------------------------------------------------------------------------------------------------

CENTERED = replace(SCATTERING, public="test")


def of_images(train: np.ndarray, public: np.ndarray) -> Dataset:
    """Images to train on, and test records whose features are public."""
    records = make_records(train, np.arange(len(train)) % 2)
    queries = make_records(public, np.arange(len(public)) % 2, prefix="t")
    size = len(train)
    return Dataset("images", ClassTarget(("a", "b")), records, queries, size, {}, HELD, HELD)


def test_the_center_is_the_mean_of_the_public_rows_features() -> None:
    public = images(30)
    made = FeatureMap.from_dataset(CENTERED, of_images(images(4), public))
    plain = FeatureMap(replace(SCATTERING, bias=0.0), 64)(public)[:, :-1]
    mean = plain.mean(axis=0, keepdims=True)
    assert made.matrices["center"] * 2.0**-22 == pytest.approx(mean, abs=1e-6)


def test_the_center_depends_on_no_training_record() -> None:
    public = images(30)
    centers = [
        FeatureMap.from_dataset(CENTERED, of_images(train, public)).matrices["center"]
        for train in (images(4), images(9), np.zeros((1, 64)))
    ]
    assert centers[0].tobytes() == centers[1].tobytes() == centers[2].tobytes()


def test_the_center_has_the_same_bits_in_any_order_of_the_public_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    public = images(40)
    center = FeatureMap.from_dataset(CENTERED, of_images(images(4), public)).matrices["center"]
    monkeypatch.setattr("agt.models.features._CHUNK_ROWS", 7)
    other = FeatureMap.from_dataset(CENTERED, of_images(images(4), public[::-1]))
    assert other.matrices["center"].tobytes() == center.tobytes()


def test_centered_features_are_the_difference_and_those_far_from_the_center_have_length_1() -> None:
    public = images(30)
    far = np.zeros((1, 64))
    far[0, :8] = 1.0
    rows = np.concatenate([public, far])
    made = FeatureMap.from_dataset(replace(CENTERED, bias=0.0), of_images(images(4), public))
    plain = FeatureMap(replace(SCATTERING, bias=0.0), 64)(rows)[:, :-1]
    difference = plain - made.matrices["center"] * 2.0**-22
    lengths = np.linalg.norm(difference, axis=1, keepdims=True)
    assert lengths[0] < CENTERED_RADIUS < lengths[-1]
    expected = difference / np.maximum(lengths, CENTERED_RADIUS)
    assert made(rows)[:, :-1] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_centered_features_have_a_norm_of_at_most_1_in_exact_arithmetic(dtype: str) -> None:
    rows = np.concatenate([images(5), np.zeros((1, 64)), np.eye(64), images(2) * 1e200])
    made = FeatureMap.from_dataset(CENTERED, of_images(images(4), images(30)))
    squares = [sum(Fraction(float(v)) ** 2 for v in row) for row in made(rows, dtype)]
    assert max(squares) <= 1


def test_a_record_has_the_same_centered_features_in_any_batch() -> None:
    rows = images(40)
    made = FeatureMap.from_dataset(CENTERED, of_images(images(4), images(30)))
    alone = [made(rows[place : place + 1]) for place in range(len(rows))]
    assert np.array_equal(np.concatenate(alone), made(rows))


def test_a_claim_says_that_the_center_is_of_rows_declared_public() -> None:
    made = FeatureMap.from_dataset(CENTERED, of_images(images(4), images(30)))
    (fact,) = [fact for fact in made.facts if fact.standing is Standing.DECLARED]
    assert fact.code == "centering_rows_public"
    assert fact.values["public"] == "test"
    assert fact.broken_by


def test_a_stored_center_is_read_back_and_another_shape_is_no_center() -> None:
    made = FeatureMap.from_dataset(CENTERED, of_images(images(4), images(30)))
    assert made.shapes == {"center": (1, outputs_of(64))}
    again = FeatureMap(CENTERED, 64).with_matrices(made.matrices)
    assert np.array_equal(again(images(5)), made(images(5)))


def test_one_public_row_makes_no_center() -> None:
    with pytest.raises(ConfigError, match="a center needs at least 2 public rows"):
        FeatureMap.from_dataset(CENTERED, of_images(images(4), images(1)))


def test_public_rows_that_are_not_finite_make_no_center() -> None:
    with pytest.raises(UnsoundError, match="NaN or infinite"):
        FeatureMap(CENTERED, 64)._with_center(np.full((5, 64), np.nan))


def test_more_public_rows_than_add_up_exactly_make_no_center() -> None:
    with pytest.raises(ConfigError, match="exact over at most"):
        FeatureMap(CENTERED, 64)._with_center(np.broadcast_to(0.0, (MAX_PUBLIC_ROWS + 1, 64)))


def test_public_rows_of_a_map_that_whitens_are_not_subtracted() -> None:
    whitened = replace(CENTERED, whiten=0.5)
    made = FeatureMap.from_dataset(whitened, of_images(images(4), images(100)))
    assert set(made.matrices) == {"whitening"}
