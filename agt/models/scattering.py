"""Scattering features of images: averages of moduli of wavelet transforms. Nothing is learnt.

There are two scales and eight angles. A channel x of side s gives 81 averages at (s / 4)^2 places:
that of x, those of |x * w| for the 16 wavelets w, and those of ||x * w| * v| for the finer w and
the coarser v. ``FeatureMap`` brings each of the three groups to length 1, and then all of them.

Sources: Mallat (2012); Bruna, Mallat (2013), whose wavelets these are; Tramèr, Boneh (2021), on
privacy.
"""

import math
from functools import cache

import numpy as np

PLACE_PIXELS = 4  # pixels between two places
AVERAGES = 81
_ANGLES = 8
_FINE_SIGMA = 0.8  # pixels
_SLANT = 0.5  # how wide a wavelet is along its wave, as a share of its width across
_FREQUENCY = 0.75 * math.pi  # radians a pixel, of the finer wavelets
_GRAIN = 20  # filters are multiples of 2^-20
_FINE_REACH = 3  # pixels
_COARSE_REACH = 6  # pixels


def shape_of(width: int) -> tuple[int, int] | None:
    """Return (channels, side) of square images with so many numbers; None: there are none.

    Images are gray (1 channel) or in colour (3), with a side of a multiple of 4, at least 8.
    """
    for channels in (1, 3):
        side = math.isqrt(width // channels)
        is_square = channels * side * side == width
        if is_square and side % PLACE_PIXELS == 0 and side >= 2 * PLACE_PIXELS:
            return channels, side
    return None


def outputs_of(width: int) -> int:
    """Return how many features a record of so many numbers has; 0: it is no image as above."""
    shape = shape_of(width)
    if shape is None:
        return 0
    channels, side = shape
    return channels * AVERAGES * (side // PLACE_PIXELS) ** 2


@cache
def filters() -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Return the public filters, whose numbers are multiples of 2^-20.

    That is far coarser than any error of a library's exponentials, sines and cosines, so the
    filters are the same numbers everywhere (Lemma 3 of docs/proofs/features.md).

    Returns:
        (fine wavelets [8, 2, 7, 7], coarse wavelets [8, 2, 13, 13], (the average at the image's
        resolution [11, 11], the average at half of it [7, 7])); a wavelet has its real part first.
    """
    angles = [math.pi * index / _ANGLES for index in range(_ANGLES)]
    fine = [_morlet(_FINE_SIGMA, _FREQUENCY, angle, _FINE_REACH) for angle in angles]
    coarse = [_morlet(_FINE_SIGMA * 2, _FREQUENCY / 2, angle, _COARSE_REACH) for angle in angles]
    averages = (_gauss(sigma=1.6, reach=5), _gauss(sigma=0.8, reach=3))
    return np.stack(fine), np.stack(coarse), averages


def _morlet(sigma: float, frequency: float, angle: float, reach: int) -> np.ndarray:
    """Return a Morlet wavelet of mean 0, [2, 2 reach + 1, 2 reach + 1], real part first.

    Args:
        sigma: the standard deviation of its envelope along the wave, in pixels.
        frequency: in radians a pixel.
        angle: of the wave, in radians.
        reach: how many pixels it has on each side of its centre.
    """
    along, across = _rotated_grid(angle, reach)
    envelope = np.exp(-(along**2 + (_SLANT * across) ** 2) / (2 * sigma**2))
    wave = envelope * np.exp(1j * frequency * along)
    mean = wave.sum() / envelope.sum()
    wave = (wave - envelope * mean) * (_SLANT / (2 * math.pi * sigma**2))
    return _round_to_grain(np.stack([wave.real, wave.imag]))


def _rotated_grid(angle: float, reach: int) -> tuple[np.ndarray, np.ndarray]:
    """Return each pixel's coordinates along and across a direction, in pixels from the centre."""
    y, x = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    along = y * math.cos(angle) + x * math.sin(angle)
    across = x * math.cos(angle) - y * math.sin(angle)
    return along, across


def _gauss(sigma: float, reach: int) -> np.ndarray:
    """Return a Gaussian average, [2 reach + 1, 2 reach + 1], which sums to 1 up to rounding."""
    along, across = _rotated_grid(0.0, reach)
    envelope = np.exp(-(along**2 + across**2) / (2 * sigma**2))
    return _round_to_grain(envelope / envelope.sum())


def _round_to_grain(values: np.ndarray) -> np.ndarray:
    """Return the nearest multiples of 2^-20."""
    return np.ldexp(np.rint(np.ldexp(values, _GRAIN)), -_GRAIN)


def scattering(images: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the three groups of averages of each image.

    Formal guarantees
        * An image's averages are a function of that image alone, to the last bit, in any batch and
          with any number of threads (Lemma 3 of docs/proofs/features.md).

    Args:
        images: [n, width] float64, each square (``shape_of``) and, if in colour, one channel after
            another.

    Returns:
        For c channels and p places: [n, c p] of the image itself, [n, 16 c p] of one wavelet, and
        [n, 64 c p] of two.
    """
    from agt.models.compiled import scatter_planes

    shape = shape_of(images.shape[1])
    assert shape is not None, "a feature map refuses records of another size before this point"
    channels, side = shape
    planes = np.ascontiguousarray(images, dtype=np.float64).reshape(-1, side, side)
    fine, coarse, (first, second) = filters()
    averages = scatter_planes(planes, fine, coarse, first, second)
    of_images = averages.reshape(len(images), channels, AVERAGES, -1)
    groups = (of_images[:, :, :1], of_images[:, :, 1:17], of_images[:, :, 17:])
    one, two, three = (np.ascontiguousarray(group).reshape(len(images), -1) for group in groups)
    return one, two, three
