"""Loops over one record at a time, of the features that need any: imported there, since Numba takes
half a second.

All are compiled without reassociation or contraction, so each operation is rounded alone, in an
order that the arrays' sizes decide: what is made of a record is a function of that record and of
public constants, to the last bit.
"""

import math

import numpy as np
from numba import njit, prange

_GONE = 700.0  # exp(-700): beyond it 0
_POWERS = np.ldexp(1.0, -np.arange(1024))
_TAYLOR = np.array([(-1.0) ** n / math.factorial(n) for n in range(13, -1, -1)])
# multiples of the first up to 1,024 are exact
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10


@njit(cache=True)
def falling(t):  # type: ignore[no-untyped-def]
    """exp(-t) for t [n, m] >= 0, to within 4 u of itself; 0 beyond 700, and NaN of NaN.

    exp(-t) = 2^-n exp(-r) with r = t - n ln 2, |r| <= 0.35: a Taylor polynomial of degree 13 leaves
    less than 1e-17.
    """
    out = np.empty_like(t)
    for row in range(t.shape[0]):
        for i in range(t.shape[1]):
            at = t[row, i]
            if at <= _GONE:
                n = math.floor(at / math.log(2.0) + 0.5)
                r = (at - n * _LN2_HIGH) - n * _LN2_LOW
                total = 0.0
                for c in _TAYLOR:
                    total = total * r + c
                out[row, i] = total * _POWERS[int(n)]
            else:
                out[row, i] = at - at if at != at else 0.0
    return out


@njit(parallel=True, cache=True)
def scattered(planes, fine, coarse, first, second):  # type: ignore[no-untyped-def]
    """[n, 81, s/4, s/4] of planes [n, s, s]."""
    n, side, angles = len(planes), planes.shape[1], len(fine)
    out = np.empty((n, 1 + 2 * angles + angles * angles, side // 4, side // 4))
    for row in prange(n):
        image = planes[row]
        out[row, 0] = filtered(image, first, 4)
        for a in range(angles):
            wave = modulus(image, fine[a], 1)
            out[row, 1 + a] = filtered(wave, first, 4)
            out[row, 1 + angles + a] = filtered(modulus(image, coarse[a], 2), second, 2)
            for b in range(angles):
                place = 1 + 2 * angles + a * angles + b
                out[row, place] = filtered(modulus(wave, coarse[b], 2), second, 2)
    return out


@njit(cache=True)
def modulus(image, wave, stride):  # type: ignore[no-untyped-def]
    """|image * wave| at every ``stride``-th place; wave [2, k, k]."""
    real, imaginary = filtered(image, wave[0], stride), filtered(image, wave[1], stride)
    for y in range(len(real)):
        for x in range(real.shape[1]):
            real[y, x] = math.sqrt(real[y, x] * real[y, x] + imaginary[y, x] * imaginary[y, x])
    return real


@njit(cache=True)
def filtered(image, kernel, stride):  # type: ignore[no-untyped-def]
    """[s / stride, s / stride] sums of kernel [k, k] times the image around its places, mirrored
    at the edges.
    """
    size, reach = len(image), len(kernel) // 2
    places = size // stride
    columns = (size + 2 * reach + stride - 1) // stride
    # those of every stride-th column beside each other
    mirrored = np.zeros((stride, size + 2 * reach, columns))
    for y in range(size + 2 * reach):
        from_y = y - reach
        from_y = -from_y if from_y < 0 else from_y
        from_y = 2 * (size - 1) - from_y if from_y >= size else from_y
        for x in range(size + 2 * reach):
            from_x = x - reach
            from_x = -from_x if from_x < 0 else from_x
            from_x = 2 * (size - 1) - from_x if from_x >= size else from_x
            mirrored[x % stride, y, x // stride] = image[from_y, from_x]
    out = np.zeros((places, places))
    for y in range(places):
        sums = out[y]
        for dy in range(len(kernel)):
            for dx in range(len(kernel)):
                factor, line, start = (
                    kernel[dy, dx],
                    mirrored[dx % stride, y * stride + dy],
                    dx // stride,
                )
                for x in range(places):
                    sums[x] += factor * line[start + x]
    return out
