"""Scattering features: against a transform written down plainly, and to the same bits wherever a
record stands.
"""

import math

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from agt.errors import ConfigError
from agt.models.features import FeatureMap
from agt.models.scattering import filters, outputs_of, scattering, shape_of
from agt.settings import FeaturesConfig

SCATTERING = FeaturesConfig(map="scattering")


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
    fine, coarse, (first, second) = filters()
    given = images(2, channels, side)
    planes = given.reshape(2, channels, side, side)
    zero, one, two = [], [], []
    for plane in planes.reshape(-1, side, side):
        edges = [modulus(plane, wave, 1) for wave in fine]
        zero.append(plain(plane, first, 4))
        one += [plain(edge, first, 4) for edge in edges]
        one += [plain(modulus(plane, wave, 2), second, 2) for wave in coarse]
        two += [plain(modulus(edge, wave, 2), second, 2) for edge in edges for wave in coarse]
    for found, expected in zip(scattering(given), (zero, one, two), strict=True):
        assert found == pytest.approx(np.array(expected).reshape(2, -1), abs=1e-12)


def test_wavelets_ignore_brightness_and_turn_with_their_angle() -> None:
    fine, coarse, averages = filters()
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
