"""Arithmetic whose last bits are a record's own: lengths, exact products, exponentials, roots of public matrices.

Formal guarantees
    Each alone. ``bring`` and ``falling`` are compiled without reassociation or contraction: each operation is rounded
    alone, and no record takes part in another's. A matrix product would add in an order that depends on how many records
    stand beside it, so the operands of ``product`` are integers: a record is rounded to multiples of 2^-22 of its length, a
    public matrix to integers with columns of length below 2^29. By Cauchy-Schwarz every partial sum stays below
    2^23 * 2^29 < 2^53: the product is exact in any order, fused or not. So two runs that hold the same record hold the same
    bits.
    The same matrix. ``inverse_root`` is LAPACK's and BLAS's work: given the same bytes, in one thread, it runs the same
    instructions on the same machine with the same libraries. Another machine may make another matrix, so a run keeps its
    own and never makes it again, and of several processes all take the first one's.
"""

import math

import numpy as np
from numba import njit
from threadpoolctl import threadpool_limits

from agt.distributed import group
from agt.errors import ConfigError

GRAIN = 22  # a record's coordinates are multiples of 2^-22 of its length where a matrix follows
COLUMN = 29  # a public matrix's columns are shorter than 2^29
_SINGULAR = 2.0**-43  # of the largest eigenvalue: smaller ones are rounding
_GONE = 700.0  # exp(-700): beyond it 0
_POWERS = np.ldexp(1.0, -np.arange(1024))
_TAYLOR = np.array([(-1.0) ** n / math.factorial(n) for n in range(13, -1, -1)])
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10  # multiples of the first up to 1,024 are exact


@njit(cache=True)
def bring(v, radius, length):  # type: ignore[no-untyped-def]
    """Rows of v [n, w] scaled to ``length``; with radius > 0 a row shorter than it keeps its share of it. 0 stays 0."""
    out = np.empty_like(v)
    for row in range(v.shape[0]):
        most = 0.0
        for i in range(v.shape[1]):
            most = max(most, abs(v[row, i]))
        if most == 0.0:
            out[row] = np.abs(v[row]) * 0.0  # 0; and NaN, which no comparison above saw, stays NaN for check_norms
            continue
        total = 0.0
        for i in range(v.shape[1]):
            share = v[row, i] / most
            total += share * share
        norm = math.sqrt(total)
        if most * norm < radius:
            for i in range(v.shape[1]):
                out[row, i] = v[row, i] / radius * length
        else:
            for i in range(v.shape[1]):
                out[row, i] = v[row, i] / most / norm * length
    return out


@njit(cache=True)
def falling(t):  # type: ignore[no-untyped-def]
    """exp(-t) for t [n, m] >= 0, to within 4 u of itself; 0 beyond 700, and NaN of NaN.

    exp(-t) = 2^-n exp(-r) with r = t - n ln 2, |r| <= 0.35: a Taylor polynomial of degree 13 leaves less than 1e-17.
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


def whole(v: np.ndarray) -> np.ndarray:
    """v [n, w] of norm at most 1 in units of 2^-22, rounded to integers."""
    rounded: np.ndarray = np.rint(np.ldexp(v, GRAIN))
    return rounded


def product(v: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """v [n, w] of norm at most 1, to multiples of 2^-22, times integers [w, m]: exact (see above)."""
    return np.ldexp(whole(v) @ matrix, -GRAIN)


def integers(matrix: np.ndarray) -> np.ndarray:
    """``matrix`` times a power of two, rounded to integers, every column shorter than 2^29."""
    longest = float(np.linalg.norm(matrix, axis=0).max())
    scaled: np.ndarray = np.rint(np.ldexp(matrix, COLUMN - 1 - math.frexp(longest)[1]))
    return scaled


def inverse_root(matrix: np.ndarray, power: float, ridge: float, fault: str) -> np.ndarray:
    """Integers proportional to (matrix + ridge * mean eigenvalue)^(-power/2).

    Args:
        matrix: [n, n] symmetric, no eigenvalue below 0 but for rounding.
        fault: what to say where rounding alone keeps it from being singular.

    Raises:
        ConfigError: it does.
    """
    with threadpool_limits(1, user_api="blas"):
        values, vectors = np.linalg.eigh(matrix)
        values = np.maximum(values, 0.0) + ridge * max(float(values.mean()), 1e-12)
        if values.min() <= _SINGULAR * values.max():
            raise ConfigError(f"certificate.features.ridge={ridge:g}: {fault}")
        return group().sent(integers((vectors * values ** (-power / 2)) @ vectors.T))
