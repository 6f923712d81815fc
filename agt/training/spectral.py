"""How much longer than v the vector X v can be: upper bounds of spectral norms that are proved, not
estimated.

A power iteration comes from below, and may see nothing of the largest eigenvalue for long: it stops
too low, and whatever is certified with it is void. Here an estimate t is only a guess, and a
Cholesky factorisation of t I - K its proof.

Formal guarantees
    Let A be symmetric, of width d, with floating point entries. If its Cholesky factorisation runs
    to its end in floating point, the factor R satisfies R'R = A + E, |E| <= g |R'||R| entry by
    entry, g = g(d + 1) (Higham 2002, theorem 10.3; any order of summation, so blocks too). Then
    |E|_2 <= g |R|_F^2 = g sum_j |r_j|^2, and (1 - g) |r_j|^2 <= a_jj from the diagonal, so that
        lambda_min(A) >= -|E|_2 >= -trace(A) g / (1 - g),
    as R'R is positive semidefinite (Rump 2006). With A = t I - K up to a rounding of u |t - k_jj|
        on the diagonal, lambda_max(K) <= t + u max |t - k_jj| + trace(A) g / (1 - g).
    ``g`` counts 2 d + 16 roundings: libraries multiply by reciprocals where the theorem divides.
    Underflow loses less than ``TINY``, which is added. Where no guess below the trace is proved,
    the trace is the bound: what is meant is positive semidefinite. A matrix within ``error`` of K,
    in the spectral norm, has a largest eigenvalue that is larger by ``error`` at most, and a trace
    larger by d times as much.

Sources: Rump (2006), Verification of positive definiteness, BIT 46; Higham (2002), Accuracy and
stability, chapter 10.
"""

import numpy as np
from scipy.linalg import LinAlgError, cholesky, eigh

from agt.numeric import COVER, UNIT, gamma_up, next_up

TINY = 1e-290  # far above anything that underflow loses, far below anything that matters

SLACKS = (1e-9, 1e-6, 1e-3, 0.1, 1.0)  # added to a guess, relative, until it is proved


def largest_eigenvalue(matrix: np.ndarray, error: float = 0.0) -> float:
    """An upper bound, of this matrix and of every positive semidefinite one within ``error`` of it.

    Args:
        matrix: [d, d] K, symmetric and finite; of its entries the lower triangle is read.
        error: bound on the spectral norm of what separates K from the matrix that is meant, >= 0.
    """
    width = len(matrix)
    trace = (float(np.abs(np.diagonal(matrix)).sum()) + width * error) * COVER + TINY
    guess = _top(matrix)
    for slack in SLACKS:
        bound = proved(matrix, guess * (1 + slack))
        if bound is not None:
            return min((bound + error) * COVER, trace)
    return trace


def _top(matrix: np.ndarray) -> float:
    """The greatest eigenvalue, to rounding.

    LAPACK's search for one of them alone finds none of some small matrices of whole numbers; the
    one for all does.
    """
    last = len(matrix) - 1
    try:
        values, _ = eigh(matrix, check_finite=False, subset_by_index=[last, last])
    except LinAlgError:
        values = np.empty(0)
    if not len(values):
        values, _ = eigh(matrix, check_finite=False, driver="evd")
    return float(values[-1])


def proved(matrix: np.ndarray, guess: float) -> float | None:
    """The bound that a completed factorisation of ``guess`` I - matrix proves; None: it broke
    down.
    """
    shifted = -matrix
    shifted[np.diag_indices_from(shifted)] += guess
    diagonal = np.diagonal(shifted)
    try:
        cholesky(shifted, lower=True, check_finite=False)
    except LinAlgError:
        return None
    g = gamma_up(2 * len(matrix) + 16)
    overhead = (
        UNIT * float(np.abs(diagonal).max()) + g / (1 - g) * float(diagonal.sum())
    ) * COVER + TINY
    return next_up(guess + overhead)
