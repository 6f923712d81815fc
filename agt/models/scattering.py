"""Scattering: moduli of wavelet transforms of an image, two of them one after another, averaged.
Nothing is learnt.

Two scales, eight angles. Of one channel of side s: its average; the averages of |x * w| for the 16
Morlet wavelets w; those of ||x * w| * v| for the finer w and the coarser v: 81 averages at (s /
4)^2 places. Each of these three groups is brought to length 1, and so is the whole.

Formal guarantees
    Each alone. ``compiled.scattered`` walks one record at a time: each operation is rounded alone,
    in an order that the image's side decides. Filters are multiples of 2^-20, far coarser than what
    a library's exponentials, sines and cosines may err by. So a record's features are a function of
    that record and of public constants, to the last bit, in any batch, at any place, with any
    number of threads.

Sources: Mallat (2012); Bruna, Mallat (2013), whose wavelets these are; Tramèr, Boneh (2021), on
privacy.
"""

import math
from functools import cache

import numpy as np

APART = 4  # pixels between two places
AVERAGES = 81
_ANGLES, _FINE, _SLANT, _FREQUENCY = 8, 0.8, 0.5, 0.75 * math.pi
_LATTICE = 20
_REACH = (3, 6)  # of the finer and the coarser wavelets, in pixels of the image
# (standard deviation, reach) of the average, in pixels of the image, and of half as many
_SMOOTH = ((1.6, 5), (0.8, 3))


def shape_of(width: int) -> tuple[int, int] | None:
    """(channels, side) of square gray or colour images with so many numbers, their side a
    multiple of 4, at least 8.
    """
    for channels in (1, 3):
        side = math.isqrt(width // channels)
        if channels * side * side == width and side % APART == 0 and side >= 2 * APART:
            return channels, side
    return None


def outputs_of(width: int) -> int:
    """How many features there are; 0 for records that are no such images."""
    shape = shape_of(width)
    return 0 if shape is None else shape[0] * AVERAGES * (shape[1] // APART) ** 2


@cache
def filters() -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """(fine, coarse, averages): wavelets [8, 2, k, k], real and imaginary parts, and [m, m] for
    each resolution.
    """
    fine, coarse = (
        np.stack(
            [
                _morlet(_FINE * 2**scale, _FREQUENCY / 2**scale, math.pi * at / _ANGLES, reach)
                for at in range(_ANGLES)
            ]
        )
        for scale, reach in enumerate(_REACH)
    )
    first, second = (_gauss(*smooth) for smooth in _SMOOTH)
    return fine, coarse, (first, second)


def _morlet(sigma: float, frequency: float, angle: float, reach: int) -> np.ndarray:
    along, across = _turned(angle, reach)
    hull = np.exp(-(along**2 + (_SLANT * across) ** 2) / (2 * sigma**2))
    wave = hull * np.exp(1j * frequency * along)
    # of mean 0
    wave = (wave - hull * (wave.sum() / hull.sum())) * (_SLANT / (2 * math.pi * sigma**2))
    return _rounded(np.stack([wave.real, wave.imag]))


def _turned(angle: float, reach: int) -> tuple[np.ndarray, np.ndarray]:
    y, x = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    return y * math.cos(angle) + x * math.sin(angle), x * math.cos(angle) - y * math.sin(angle)


def _gauss(sigma: float, reach: int) -> np.ndarray:
    along, across = _turned(0.0, reach)
    hull = np.exp(-(along**2 + across**2) / (2 * sigma**2))
    return _rounded(hull / hull.sum())


def _rounded(values: np.ndarray) -> np.ndarray:
    return np.ldexp(np.rint(np.ldexp(values, _LATTICE)), -_LATTICE)


def scattering(images: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The three groups of averages, [n, c p], [n, 16 c p] and [n, 64 c p] for p places.

    Args:
        images: [n, width] float64, each square and, if in colour, one channel after another
            (``shape_of``).
    """
    from agt.models.compiled import scattered

    shape = shape_of(images.shape[1])
    assert shape is not None, "FeatureMap refuses other records"
    channels, side = shape
    planes = np.ascontiguousarray(images, dtype=np.float64).reshape(-1, side, side)
    fine, coarse, (first, second) = filters()
    whole = scattered(planes, fine, coarse, first, second).reshape(
        len(images), channels, AVERAGES, -1
    )
    parts = (whole[:, :, :1], whole[:, :, 1:17], whole[:, :, 17:])
    one, two, three = (np.ascontiguousarray(part).reshape(len(images), -1) for part in parts)
    return one, two, three
