"""Upper bounds of the largest eigenvalue of a symmetric matrix that are proved, not estimated.

The residual of a removable head needs a bound on how much longer X v can be than v. A power
iteration comes from below and may miss the largest eigenvalue for long, so whatever is certified
with it would be void. Here an estimate is only a guess, and a completed Cholesky factorisation is
its proof. Proofs: docs/proofs/spectral.md.
"""

import numpy as np
from scipy.linalg import LinAlgError, cholesky, eigh

from agt.numeric import COVER, UNIT, gamma_up, next_up

# Far above anything that underflow loses, far below anything that matters.
UNDERFLOW_ALLOWANCE = 1e-290

# Relative amounts by which a guess is raised, one after another, until it is proved.
RELATIVE_SLACKS = (1e-9, 1e-6, 1e-3, 0.1, 1.0)


def largest_eigenvalue(matrix: np.ndarray, error: float = 0.0) -> float:
    """Bound the largest eigenvalue of a positive semidefinite matrix from above.

    Args:
        matrix: [d, d] symmetric and finite, d >= 1; only its lower triangle and its diagonal are
            read.
        error: bound on the spectral norm of the difference between ``matrix`` and the matrix that
            is meant, at least 0.

    Returns:
        The bound. It is usually within 1e-9 of the largest eigenvalue, relative.

    Formal guarantees:
        - It holds for every positive semidefinite matrix within ``error`` of ``matrix``.
        - It is never above the trace of ``matrix`` (diagonal in absolute value) plus d ``error``,
          roundings included.
        - A zero matrix has a bound above 0, of the size of the underflow allowance.
    """
    width = len(matrix)
    diagonal = np.abs(np.diagonal(matrix))
    # Lemma 3 of docs/proofs/spectral.md
    trace = float(diagonal.sum()) + width * error
    trace_bound = trace * COVER + UNDERFLOW_ALLOWANCE
    guess = _estimate_largest_eigenvalue(matrix)
    for slack in RELATIVE_SLACKS:
        raised_guess = guess * (1 + slack)
        bound = prove_eigenvalue_bound(matrix, raised_guess)
        if bound is not None:
            return min((bound + error) * COVER, trace_bound)
    return trace_bound


def _estimate_largest_eigenvalue(matrix: np.ndarray) -> float:
    """Return the largest eigenvalue as LAPACK computes it, without any guarantee."""
    last = len(matrix) - 1
    try:
        values, _ = eigh(matrix, check_finite=False, subset_by_index=[last, last])
    except LinAlgError:
        values = np.empty(0)
    if not len(values):
        # LAPACK's search for one eigenvalue finds none of some small matrices of integers; its
        # search for all of them does.
        values, _ = eigh(matrix, check_finite=False, driver="evd")
    return float(values[-1])


def prove_eigenvalue_bound(matrix: np.ndarray, guess: float) -> float | None:
    """Try to prove an upper bound of the largest eigenvalue near a guess.

    Args:
        matrix: [d, d] symmetric and finite.
        guess: about the largest eigenvalue.

    Returns:
        A number slightly above ``guess`` that no eigenvalue of ``matrix`` exceeds; None if the
        Cholesky factorisation of ``guess`` I - ``matrix`` breaks down, so that nothing is proved.
    """
    shifted = -matrix
    shifted[np.diag_indices_from(shifted)] += guess
    diagonal = np.diagonal(shifted)
    try:
        # Only that it runs to its end matters: the factor itself is not used.
        cholesky(shifted, lower=True, check_finite=False)
    except LinAlgError:
        return None
    # Lemma 1 of docs/proofs/spectral.md for the factor, Lemma 2 of docs/proofs/spectral.md for
    # the shift.
    growth = gamma_up(2 * len(matrix) + 16)
    shift_rounding = UNIT * float(np.abs(diagonal).max())
    factor_rounding = growth / (1 - growth) * float(diagonal.sum())
    overhead = (shift_rounding + factor_rounding) * COVER + UNDERFLOW_ALLOWANCE
    return next_up(guess + overhead)
