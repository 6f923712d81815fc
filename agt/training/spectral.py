"""Proved upper bounds on the largest eigenvalue of a symmetric matrix.

Certificates need a bound. A power iteration gives an estimate that may be too small, so here an
estimate is only a guess: a Cholesky factorisation of guess * I - matrix that completes proves a
bound close to the guess. Proofs: docs/proofs/spectral.md.
"""

import numpy as np
from scipy.linalg import LinAlgError, cholesky, eigh

from agt.numeric import COVER, UNIT, gamma_up, next_up

# Added for what underflow may lose, which is less; it is negligible beside any usual eigenvalue.
UNDERFLOW_ALLOWANCE = 1e-290

# Relative amounts by which the estimate is raised; the first that can be proved is taken.
RELATIVE_INCREASES = (1e-9, 1e-6, 1e-3, 0.1, 1.0)


def largest_eigenvalue(matrix: np.ndarray, error: float = 0.0) -> float:
    """Return a proved upper bound on the largest eigenvalue of a positive semidefinite matrix.

    Args:
        matrix: [d, d] symmetric and finite, d at least 1; only its lower triangle and its diagonal
            are read. It may be an approximation of the positive semidefinite matrix in question.
        error: a bound on the spectral norm of the approximation's error, at least 0.

    Returns:
        The bound. It usually exceeds the largest eigenvalue by a relative 1e-9, plus ``error``.

    Formal guarantees, rounding included:
        - The bound holds for every positive semidefinite matrix within ``error`` of ``matrix`` in
          spectral norm.
        - It is at most 1 + 2^-20 times (the sum of the diagonal's absolute values + d ``error``),
          plus 1e-290.
        - It is above 0, also for a matrix of zeros.
    """
    width = len(matrix)
    diagonal = np.abs(np.diagonal(matrix))
    # Lemma 3 of docs/proofs/spectral.md: the trace bounds the largest eigenvalue, as no eigenvalue
    # is negative. The factor COVER = 1 + 2^-20 exceeds all roundings here.
    trace = float(diagonal.sum()) + width * error
    trace_bound = trace * COVER + UNDERFLOW_ALLOWANCE
    estimate = _estimate_largest_eigenvalue(matrix)
    for increase in RELATIVE_INCREASES:
        guess = estimate * (1 + increase)
        bound = prove_eigenvalue_bound(matrix, guess)
        if bound is not None:
            return min((bound + error) * COVER, trace_bound)
    return trace_bound


def _estimate_largest_eigenvalue(matrix: np.ndarray) -> float:
    """Return the largest eigenvalue of a symmetric matrix as LAPACK computes it.

    The result may be below the true value: it is an estimate without a guarantee.

    Args:
        matrix: [d, d] symmetric and finite; only its lower triangle and its diagonal are read.
    """
    last = len(matrix) - 1  # eigenvalues come in increasing order
    try:
        values, _ = eigh(matrix, check_finite=False, subset_by_index=[last, last])
    except LinAlgError:
        values = np.empty(0)
    if not len(values):
        # For some small matrices of integers LAPACK's search for one eigenvalue returns none. The
        # slower driver, which computes all eigenvalues, does return them.
        values, _ = eigh(matrix, check_finite=False, driver="evd")
    return float(values[-1])


def prove_eigenvalue_bound(matrix: np.ndarray, guess: float) -> float | None:
    """Return a proved upper bound on the largest eigenvalue, slightly above a guess, or None.

    If the Cholesky factorisation of guess * I - matrix completes, this matrix is positive definite
    up to rounding, so no eigenvalue of ``matrix`` exceeds the guess by more than rounding.

    Args:
        matrix: [d, d] symmetric and finite; only its lower triangle and its diagonal are read.
        guess: a number that is expected to be at least the largest eigenvalue.

    Returns:
        The guess plus a bound on all roundings, rounded up; None if the factorisation breaks down,
        as nothing is proved then.
    """
    shifted = -matrix
    shifted[np.diag_indices_from(shifted)] += guess
    diagonal = np.diagonal(shifted)
    try:
        # The factor is not used: it is enough that the factorisation completes.
        cholesky(shifted, lower=True, check_finite=False)
    except LinAlgError:
        return None
    # Lemma 1 of docs/proofs/spectral.md: the least eigenvalue of the shifted matrix is at least
    # -trace * g / (1 - g), where g bounds the relative rounding of the factorisation.
    # Lemma 2 of docs/proofs/spectral.md: computing the shift rounds each diagonal entry once.
    growth = gamma_up(2 * len(matrix) + 16)
    shift_rounding = UNIT * float(np.abs(diagonal).max())
    factor_rounding = growth / (1 - growth) * float(diagonal.sum())
    overhead = (shift_rounding + factor_rounding) * COVER + UNDERFLOW_ALLOWANCE
    return next_up(guess + overhead)
