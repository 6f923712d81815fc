"""Numba functions that compute public features: an exponential, and the scattering transform.

They are imported where they are used, because Numba takes half a second to import. They process one
record at a time, and are compiled without reassociation or contraction, so each operation is
rounded separately, in an order that depends only on array sizes. A record's features are thus a
function of that record and of public constants, to the last bit (Lemma 3 of
docs/proofs/features.md).
"""

import math

import numpy as np
from numba import njit

_UNDERFLOW = 700.0  # exp(-t) is returned as 0 for larger t; up to it, results are normal floats
_POWERS_OF_HALF = np.ldexp(1.0, -np.arange(1024))  # 2^-n at index n
# The coefficients of exp(-r) = sum of (-r)^n / n!, from n = 13 down to 0.
_TAYLOR = np.array([(-1.0) ** n / math.factorial(n) for n in range(13, -1, -1)])
# ln 2 as a sum of two numbers. The first has few digits: its multiples up to 1,024 are exact.
_LN2_HIGH = 6.93147180369123816490e-01
_LN2_LOW = 1.90821492927058770002e-10


@njit(cache=True)
def exp_of_minus(t):  # type: ignore[no-untyped-def]
    """Return exp(-t) for each entry, with a relative error of at most 2^-51.

    It is used instead of a library's exponential, whose last bits may depend on the machine.

    | t           | result      |
    |-------------|-------------|
    | 0           | 1           |
    | 0 .. 700    | exp(-t)     |
    | above 700   | 0           |
    | NaN         | NaN         |

    Args:
        t: [n, m] float64, each entry at least 0, infinite or NaN.

    Returns:
        [n, m] float64. Lemma 4 of docs/proofs/features.md bounds the error.
    """
    out = np.empty_like(t)
    for row in range(t.shape[0]):
        for column in range(t.shape[1]):
            value = t[row, column]
            if value <= _UNDERFLOW:
                # exp(-t) = 2^-n exp(-r), where n is the integer nearest to t / ln 2.
                n = math.floor(value / math.log(2.0) + 0.5)
                r = (value - n * _LN2_HIGH) - n * _LN2_LOW
                # Horner's scheme for the Taylor polynomial of exp(-r).
                total = 0.0
                for coefficient in _TAYLOR:
                    total = total * r + coefficient
                out[row, column] = total * _POWERS_OF_HALF[int(n)]
            else:
                # NaN (the only value that differs from itself) stays NaN. Numbers above 700 and
                # infinity give 0.
                out[row, column] = value - value if value != value else 0.0
    return out


@njit(nogil=True, cache=True)
def scatter_planes(first, stop, planes, fine, coarse, average, half_average, out):  # type: ignore[no-untyped-def]
    """Write the scattering transform of single-channel images: local averages of wavelet moduli.

    For an image x of side s there are 81 maps of side s / 4, where * is a convolution:

    | map      | local average of                                         |
    |----------|----------------------------------------------------------|
    | 0        | x                                                        |
    | 1 .. 8   | the modulus of x * w, for each of the 8 fine wavelets w  |
    | 9 .. 16  | the modulus of x * v, for each of the 8 coarse wavelets v|
    | 17 .. 80 | the modulus of (the modulus of x * w) * v, for each w, v |

    Args:
        first, stop: the images that this call transforms, from ``first`` to ``stop`` - 1, so that
            several threads can share the work (``agt.kernels.threads``).
        planes: [n, s, s] float64, each one channel of an image; s is a multiple of 4.
        fine: [8, 2, k, k] wavelets of the finer scale, the real part and the imaginary part.
        coarse: [8, 2, l, l] wavelets of the coarser scale.
        average: [m, m] the averaging kernel for maps of the image's resolution.
        half_average: [j, j] the averaging kernel for maps of half the resolution.
        out: [n, 81, s / 4, s / 4] float64, overwritten with the maps of these images.
    """
    angles = len(fine)
    for row in range(first, stop):
        image = planes[row]
        out[row, 0] = convolve(image, average, 4)
        for a in range(angles):
            wave = convolve_modulus(image, fine[a], 1)
            # A coarse wavelet has no fine detail, so every second pixel is enough.
            coarse_wave = convolve_modulus(image, coarse[a], 2)
            out[row, 1 + a] = convolve(wave, average, 4)
            out[row, 1 + angles + a] = convolve(coarse_wave, half_average, 2)
            for b in range(angles):
                index = 1 + 2 * angles + a * angles + b
                out[row, index] = convolve(convolve_modulus(wave, coarse[b], 2), half_average, 2)
    return out


@njit(cache=True)
def convolve_modulus(image, wave, stride):  # type: ignore[no-untyped-def]
    """Return the modulus of an image convolved with a complex wavelet, at every stride-th pixel.

    Args:
        image: [s, s] float64, a square image.
        wave: [2, k, k] the wavelet's real part and imaginary part; k is odd and at most 2 s - 1.
        stride: pixels between two results on each axis; it divides s.

    Returns:
        [s / stride, s / stride] float64.
    """
    real = convolve(image, wave[0], stride)
    imaginary = convolve(image, wave[1], stride)
    for y in range(len(real)):
        for x in range(real.shape[1]):
            real[y, x] = math.sqrt(real[y, x] * real[y, x] + imaginary[y, x] * imaginary[y, x])
    return real


@njit(cache=True)
def convolve(image, kernel, stride):  # type: ignore[no-untyped-def]
    """Return the cross-correlation of an image and a kernel at every stride-th pixel of each axis.

    As in PyTorch's convolutions, the kernel is not flipped. The image is padded by reflection: it
    is mirrored at its edges without repeating the edge pixels.

    Args:
        image: [s, s] float64, a square image.
        kernel: [k, k] float64; k is odd and at most 2 s - 1.
        stride: pixels between two results on each axis; it divides s.

    Returns:
        [s / stride, s / stride] float64.
    """
    size = len(image)
    padding = len(kernel) // 2  # pixels on each side
    results = size // stride
    columns = (size + 2 * padding + stride - 1) // stride  # rounded up
    # The padded image. Its column x is stored at [x % stride, :, x // stride], so that the columns
    # which successive results multiply by one kernel entry are adjacent in memory.
    mirrored = np.zeros((stride, size + 2 * padding, columns))
    for y in range(size + 2 * padding):
        # The row of the image that is mirrored to row y: at the upper edge, then at the lower one.
        from_y = y - padding
        from_y = -from_y if from_y < 0 else from_y
        from_y = 2 * (size - 1) - from_y if from_y >= size else from_y
        for x in range(size + 2 * padding):
            from_x = x - padding  # the same for columns
            from_x = -from_x if from_x < 0 else from_x
            from_x = 2 * (size - 1) - from_x if from_x >= size else from_x
            mirrored[x % stride, y, x // stride] = image[from_y, from_x]
    # One kernel entry after another is added to all results of a row, in a fixed order: each
    # result is the same bits for the same image.
    out = np.zeros((results, results))
    for y in range(results):
        sums = out[y]
        for dy in range(len(kernel)):
            for dx in range(len(kernel)):
                factor = kernel[dy, dx]
                mirrored_row = mirrored[dx % stride, y * stride + dy]
                start = dx // stride
                for x in range(results):
                    sums[x] += factor * mirrored_row[start + x]
    return out
