"""Compiled loops over one record at a time, for the public features that need any.

They are imported where they are used, because Numba takes half a second to import. All are compiled
without reassociation or contraction, so each operation is rounded alone, in an order that the
arrays' sizes decide: what is made of a record is a function of that record and of public constants,
to the last bit (Lemma 3 of docs/proofs/features.md).
"""

import math

import numpy as np
from numba import njit, prange

_UNDERFLOW = 700.0  # exp(-t) is returned as 0 for t beyond this
_POWERS_OF_HALF = np.ldexp(1.0, -np.arange(1024))
# The coefficients of exp(-r) = sum of (-r)^n / n!, from n = 13 down to 0.
_TAYLOR = np.array([(-1.0) ** n / math.factorial(n) for n in range(13, -1, -1)])
# ln 2 as a sum of two numbers; multiples of the first are exact up to 1,024.
_LN2_HIGH = 6.93147180369123816490e-01
_LN2_LOW = 1.90821492927058770002e-10


@njit(cache=True)
def exp_of_minus(t):  # type: ignore[no-untyped-def]
    """Return exp(-t), [n, m] float64, to within 4 u of itself for the unit roundoff u = 2^-53.

    | t           | result      |
    |-------------|-------------|
    | 0           | 1           |
    | 0 .. 700    | exp(-t)     |
    | above 700   | 0           |
    | NaN         | NaN         |

    The accuracy is Lemma 4 of docs/proofs/features.md.

    Args:
        t: [n, m] float64, at least 0.
    """
    out = np.empty_like(t)
    for row in range(t.shape[0]):
        for column in range(t.shape[1]):
            value = t[row, column]
            if value <= _UNDERFLOW:
                n = math.floor(value / math.log(2.0) + 0.5)
                r = (value - n * _LN2_HIGH) - n * _LN2_LOW
                total = 0.0
                for coefficient in _TAYLOR:
                    total = total * r + coefficient
                out[row, column] = total * _POWERS_OF_HALF[int(n)]
            else:
                # NaN - NaN is NaN; a number beyond 700 underflows, infinity as well.
                out[row, column] = value - value if value != value else 0.0
    return out


@njit(parallel=True, cache=True)
def scatter_planes(planes, fine, coarse, first, second):  # type: ignore[no-untyped-def]
    """Return the averages of a scattering transform, [n, 81, s / 4, s / 4] float64.

    Of the 81, the first is the plane's average, the next 16 are averages of the moduli |x * w| for
    fine and then coarse wavelets w, and the last 64 of ||x * w| * v| for fine w and coarse v.

    Args:
        planes: [n, s, s] float64, each one channel of an image.
        fine: [8, 2, k, k] wavelets of the finer scale, real and imaginary parts.
        coarse: [8, 2, l, l] wavelets of the coarser scale.
        first: [m, m] the average at the plane's resolution.
        second: [j, j] the average at half of it.
    """
    n, side, angles = len(planes), planes.shape[1], len(fine)
    out = np.empty((n, 1 + 2 * angles + angles * angles, side // 4, side // 4))
    for row in prange(n):
        image = planes[row]
        out[row, 0] = convolve(image, first, 4)
        for a in range(angles):
            wave = convolve_modulus(image, fine[a], 1)
            coarse_wave = convolve_modulus(image, coarse[a], 2)
            out[row, 1 + a] = convolve(wave, first, 4)
            out[row, 1 + angles + a] = convolve(coarse_wave, second, 2)
            for b in range(angles):
                index = 1 + 2 * angles + a * angles + b
                out[row, index] = convolve(convolve_modulus(wave, coarse[b], 2), second, 2)
    return out


@njit(cache=True)
def convolve_modulus(image, wave, stride):  # type: ignore[no-untyped-def]
    """Return |image * wave| at every ``stride``-th pixel of each axis, [s / stride, s / stride].

    Args:
        image: [s, s] float64.
        wave: [2, k, k] real and imaginary parts of a complex wavelet, k odd.
        stride: pixels between two results; it divides s.
    """
    real = convolve(image, wave[0], stride)
    imaginary = convolve(image, wave[1], stride)
    for y in range(len(real)):
        for x in range(real.shape[1]):
            real[y, x] = math.sqrt(real[y, x] * real[y, x] + imaginary[y, x] * imaginary[y, x])
    return real


@njit(cache=True)
def convolve(image, kernel, stride):  # type: ignore[no-untyped-def]
    """Return sums of a kernel times the image around every ``stride``-th pixel of each axis.

    The image is mirrored at its edges, without repeating the edge itself.

    Args:
        image: [s, s] float64.
        kernel: [k, k] float64, k odd and at most 2 s - 1; it is not turned around.
        stride: pixels between two results; it divides s.

    Returns:
        [s / stride, s / stride] float64.
    """
    size = len(image)
    reach = len(kernel) // 2
    results = size // stride
    columns = (size + 2 * reach + stride - 1) // stride
    # The columns that one result after another needs lie next to each other in memory.
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
    out = np.zeros((results, results))
    for y in range(results):
        sums = out[y]
        for dy in range(len(kernel)):
            for dx in range(len(kernel)):
                factor = kernel[dy, dx]
                line = mirrored[dx % stride, y * stride + dy]
                start = dx // stride
                for x in range(results):
                    sums[x] += factor * line[start + x]
    return out
