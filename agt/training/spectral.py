"""How much longer than v the vector X v can be: upper bounds of spectral norms that are proved, not estimated.

A power iteration comes from below, and may see nothing of the largest eigenvalue for long: it stops too low, and whatever
is certified with it is void. Here an estimate t is only a guess, and a Cholesky factorisation of t I - K its proof.

Formal guarantees
    Let A be symmetric, of width d, with floating point entries. If its Cholesky factorisation runs to its end in floating
    point, the factor R satisfies R'R = A + E, |E| <= g |R'||R| entry by entry, g = g(d + 1) (Higham 2002, theorem 10.3; any
    order of summation, so blocks too). Then |E|_2 <= g |R|_F^2 = g sum_j |r_j|^2, and (1 - g) |r_j|^2 <= a_jj from the
    diagonal, so that
        lambda_min(A) >= -|E|_2 >= -trace(A) g / (1 - g),
    as R'R is positive semidefinite (Rump 2006). With A = t I - K up to a rounding of u |t - k_jj| on the diagonal,
        lambda_max(K) <= t + u max |t - k_jj| + trace(A) g / (1 - g).
    ``g`` counts 2 d + 16 roundings: libraries multiply by reciprocals where the theorem divides. Underflow loses less than
    ``TINY``, which is added. Where no guess below the trace is proved, the trace is the bound: what is meant is positive
    semidefinite. A matrix within ``error`` of K, in the spectral norm, has a largest eigenvalue that is larger by ``error``
    at most, and a trace larger by d times as much.
    ``eigenvalue_within`` is no more than ``gap`` above lambda_max(K), whatever K is, where |K|_F <= S: a Rayleigh quotient
    of the computed vector v, q = v'Kv / v'v, is at most lambda_max(K), and errs by 4 g(d + 8) |K|_F at most as computed
    (Kv by g(d)|K|_F|v|, then a product and a quotient). What is proved lies within gap / 2 and the proof's overhead of it,
    u max |t - k_jj| + g / (1 - g) trace(t I - K) + TINY <= 2 g (d + 2)(2 S + gap) + TINY, g = g(2 d + 16): at most a
    quarter of ``eigenvalue_gap``, as is the quotient's error. An eigenvector so bad that gap / 2 above its quotient is not
    proved stops the run: libraries' are not (backward stability).

Sources: Rump (2006), Verification of positive definiteness, BIT 46; Higham (2002), Accuracy and stability, chapter 10.
"""

import numpy as np
from scipy.linalg import LinAlgError, cholesky, eigh

from agt.errors import UnsoundError
from agt.numeric import COVER, UNIT, gamma_up, next_up
from agt.training.sensitivity import TINY

SLACKS = (1e-9, 1e-6, 1e-3, 0.1, 1.0)  # added to a guess, relative, until it is proved


def largest_eigenvalue(matrix: np.ndarray, error: float = 0.0) -> float:
    """An upper bound, of this matrix and of every positive semidefinite one within ``error`` of it.

    Args:
        matrix: [d, d] K, symmetric and finite; of its entries the lower triangle is read.
        error: bound on the spectral norm of what separates K from the matrix that is meant, >= 0.
    """
    width = len(matrix)
    trace = (float(np.abs(np.diagonal(matrix)).sum()) + width * error) * COVER + TINY
    guess = _top(matrix)[0]
    for slack in SLACKS:
        bound = proved(matrix, guess * (1 + slack))
        if bound is not None:
            return min((bound + error) * COVER, trace)
    return trace


def _top(matrix: np.ndarray, alone: bool = True) -> tuple[float, np.ndarray]:
    """The greatest eigenvalue and its vector, to rounding.

    LAPACK's search for one of them alone finds none of some small matrices of whole numbers; the one for all does.

    Args:
        alone: search for it alone, which is faster, and for all only where that finds none.
    """
    last = len(matrix) - 1
    if alone:
        try:
            values, vectors = eigh(matrix, check_finite=False, subset_by_index=[last, last])
        except LinAlgError:
            values = np.empty(0)
    if not alone or not len(values):
        values, vectors = eigh(matrix, check_finite=False, driver="evd")
    return float(values[-1]), vectors[:, -1]


def proved(matrix: np.ndarray, guess: float) -> float | None:
    """The bound that a completed factorisation of ``guess`` I - matrix proves; None: it broke down."""
    shifted = -matrix
    shifted[np.diag_indices_from(shifted)] += guess
    diagonal = np.diagonal(shifted)
    try:
        cholesky(shifted, lower=True, check_finite=False)
    except LinAlgError:
        return None
    g = gamma_up(2 * len(matrix) + 16)
    overhead = (UNIT * float(np.abs(diagonal).max()) + g / (1 - g) * float(diagonal.sum())) * COVER + TINY
    return next_up(guess + overhead)


def eigenvalue_gap(width: int, size: float) -> float:
    """How far ``eigenvalue_within`` may lie above the largest eigenvalue: a function of public numbers.

    Args:
        size: bound on the matrix's Frobenius norm, such as its rows' number times what each adds at most.
    """
    return 32 * gamma_up(2 * width + 16) * (width + 2) * size * COVER + 8 * TINY


def eigenvalue_within(matrix: np.ndarray, gap: float) -> float:
    """The largest eigenvalue of a symmetric matrix, from above, by at most ``gap``.

    Args:
        matrix: [d, d], both triangles, finite, indefinite or not.
        gap: of ``eigenvalue_gap``.

    Raises:
        UnsoundError: the matrix is not finite, or the library's eigenvector is not one.
    """
    if not bool(np.isfinite(matrix).all()):
        raise UnsoundError("a matrix of second derivatives is not finite: the features, or the weights, are out of range")
    for alone in (True, False):
        v = _top(matrix, alone)[1]
        quotient = float(v @ (matrix @ v)) / float(v @ v)
        bound = proved(matrix, quotient + gap / 2)
        if bound is not None and bound <= quotient + 3 * gap / 4:
            return bound
    raise UnsoundError(f"an eigenvalue of {quotient:g} could not be confirmed to within {gap:g}: nothing is certified")
