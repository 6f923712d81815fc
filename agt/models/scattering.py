"""Scattering features of images: local averages of moduli of wavelet transforms, without learning.

There are two scales and eight angles. A channel x of side s gives 81 averages at each of (s / 4)^2
places: of x itself, of |x * w| for the 16 wavelets w, and of ||x * w| * v| for the 8 fine w and the
8 coarse v. ``FeatureMap`` normalises each of the three groups.

Sources: Mallat (2012); Bruna, Mallat (2013), the wavelets; Tramèr, Boneh (2021), private learning.
"""

import math
from functools import cache
from typing import NamedTuple

import numpy as np

PLACE_PIXELS = 4  # pixels between two neighbouring places where averages are taken
AVERAGES = 81  # at each place of a channel: 1 + 16 + 64
_ANGLES = 8
_FINE_SIGMA = 0.8  # standard deviation of the fine wavelets' envelope along the wave, in pixels
_SLANT = 0.5  # width of a wavelet along its wave, as a fraction of its width across
_FREQUENCY = 0.75 * math.pi  # of the fine wavelets, in radians per pixel
_GRAIN = 20  # filters are multiples of 2^-20
_FINE_RADIUS = 3  # pixels of a fine filter on each side of its centre
_COARSE_RADIUS = 6  # pixels of a coarse filter on each side of its centre


def shape_of(width: int) -> tuple[int, int] | None:
    """Return the channels and the side of square images that consist of ``width`` numbers.

    Images have 1 channel (gray) or 3 (colour). The side must be a multiple of 4, and at least 8.

    Args:
        width: the number of features of a record: channels times side squared.

    Returns:
        (channels, side) in pixels; None if no such image has this many numbers.
    """
    for channels in (1, 3):
        side = math.isqrt(width // channels)
        is_square = channels * side * side == width
        if is_square and side % PLACE_PIXELS == 0 and side >= 2 * PLACE_PIXELS:
            return channels, side
    return None


def outputs_of(width: int) -> int:
    """Return the number of scattering features of an image that consists of ``width`` numbers.

    It is 0 if no square image has this many numbers (``shape_of``).
    """
    shape = shape_of(width)
    if shape is None:
        return 0
    channels, side = shape
    return channels * AVERAGES * (side // PLACE_PIXELS) ** 2


class Filters(NamedTuple):
    """The filters of the scattering transform, as multiples of 2^-20.

    Attributes:
        fine: [8, 2, 7, 7] the fine wavelets, by angle and then real part and imaginary part.
        coarse: [8, 2, 13, 13] the coarse wavelets, in the same order.
        average: [11, 11] the averaging filter at the resolution of the image.
        half_average: [7, 7] the averaging filter at half of this resolution.
    """

    fine: np.ndarray
    coarse: np.ndarray
    average: np.ndarray
    half_average: np.ndarray


@cache
def filters() -> Filters:
    """Return the wavelets and the averaging filters, rounded to multiples of 2^-20.

    The rounding is far coarser than the errors of a library's exponentials, sines and cosines, so
    that the filters are equal on every machine (Lemma 3 of docs/proofs/features.md).
    """
    angles = [math.pi * index / _ANGLES for index in range(_ANGLES)]
    fine = [_morlet(_FINE_SIGMA, _FREQUENCY, angle, _FINE_RADIUS) for angle in angles]
    coarse = [_morlet(_FINE_SIGMA * 2, _FREQUENCY / 2, angle, _COARSE_RADIUS) for angle in angles]
    return Filters(
        fine=np.stack(fine),
        coarse=np.stack(coarse),
        average=_gauss(sigma=1.6, radius=5),
        half_average=_gauss(sigma=0.8, radius=3),
    )


def _morlet(sigma: float, frequency: float, angle: float, radius: int) -> np.ndarray:
    """Return a Morlet wavelet of mean 0, [2, 2 radius + 1, 2 radius + 1], real part first.

    It is a plane wave under a Gaussian envelope.

    Args:
        sigma: the standard deviation of the envelope along the wave, in pixels.
        frequency: the frequency of the wave, in radians per pixel.
        angle: the direction of the wave, in radians.
        radius: the number of pixels on each side of the wavelet's centre.
    """
    along, across = _rotated_grid(angle, radius)
    squared_distance = along**2 + (_SLANT * across) ** 2
    envelope = np.exp(-squared_distance / (2 * sigma**2))
    wave = envelope * np.exp(1j * frequency * along)
    # Subtracting this multiple of the envelope makes the mean 0.
    mean = wave.sum() / envelope.sum()
    norm = _SLANT / (2 * math.pi * sigma**2)
    wave = (wave - envelope * mean) * norm
    return _round_to_grain(np.stack([wave.real, wave.imag]))


def _rotated_grid(angle: float, radius: int) -> tuple[np.ndarray, np.ndarray]:
    """Return each pixel's coordinates along and across a direction, from the centre of a square.

    Args:
        angle: the direction, in radians.
        radius: the number of pixels on each side of the square's centre.

    Returns:
        Two arrays [2 radius + 1, 2 radius + 1], in pixels.
    """
    y, x = np.mgrid[-radius : radius + 1, -radius : radius + 1]
    along = y * math.cos(angle) + x * math.sin(angle)
    across = x * math.cos(angle) - y * math.sin(angle)
    return along, across


def _gauss(sigma: float, radius: int) -> np.ndarray:
    """Return a Gaussian averaging filter, [2 radius + 1, 2 radius + 1], which sums to about 1.

    Args:
        sigma: the standard deviation, in pixels.
        radius: the number of pixels on each side of the filter's centre.
    """
    along, across = _rotated_grid(0.0, radius)
    squared_distance = along**2 + across**2
    envelope = np.exp(-squared_distance / (2 * sigma**2))
    return _round_to_grain(envelope / envelope.sum())


def _round_to_grain(values: np.ndarray) -> np.ndarray:
    """Round values to the nearest multiples of 2^-20."""
    return np.ldexp(np.rint(np.ldexp(values, _GRAIN)), -_GRAIN)


def scattering(images: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compute the scattering features of images, in three groups by the number of wavelets.

    Formal guarantees
        * The features of an image depend only on this image, to the last bit, in any batch and with
          any number of threads (Lemma 3 of docs/proofs/features.md).

    Args:
        images: [n, width] float64, flattened square images (``shape_of``). A colour image has its
            channels one after another.

    Returns:
        For images of c channels with p places each: the averages of the image [n, c p], those after
        one wavelet [n, 16 c p], and those after two wavelets [n, 64 c p].
    """
    from agt.kernels.threads import run_jobs
    from agt.models.compiled import scatter_planes

    shape = shape_of(images.shape[1])
    assert shape is not None, (
        "a record has another number of features than the records for which this feature map "
        "was made"
    )
    channels, side = shape
    planes = np.ascontiguousarray(images, dtype=np.float64).reshape(-1, side, side)
    side_of_map = side // PLACE_PIXELS
    averages = np.empty((len(planes), AVERAGES, side_of_map, side_of_map))
    # Several threads share the planes, and write their maps into ``averages``.
    run_jobs(scatter_planes, len(planes), planes, *filters(), averages)
    of_images = averages.reshape(len(images), channels, AVERAGES, -1)
    # The 81 averages of a channel: 1 of the image, 16 after one wavelet, 64 after two.
    without_wavelet = np.ascontiguousarray(of_images[:, :, :1])
    after_one = np.ascontiguousarray(of_images[:, :, 1:17])
    after_two = np.ascontiguousarray(of_images[:, :, 17:])
    count = len(images)
    return (
        without_wavelet.reshape(count, -1),
        after_one.reshape(count, -1),
        after_two.reshape(count, -1),
    )
