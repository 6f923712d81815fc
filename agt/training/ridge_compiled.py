"""Numba functions that train linear classifiers with the same bits on every machine.

They are imported where they are used, because Numba takes half a second to import. They are
compiled without reassociation or contraction, so each operation is rounded separately, in an order
that depends only on array sizes. Proofs: docs/proofs/ridge.md.
"""

import math

import numpy as np
from numba import njit


@njit(cache=True)
def solve_positive_definite(matrix, right, strength):  # type: ignore[no-untyped-def]
    """Solve (matrix + strength I) X = right by Cholesky decomposition, and return X.

    It is compiled without reordered or fused operations, so each operation is rounded on its own
    and the result has the same bits on every machine.

    Args:
        matrix: [m, m] positive semidefinite; it is overwritten.
        right: [m, p], the right sides, as columns.
        strength: added to the diagonal.

    Returns:
        [m, p]; all zeros if a pivot is not positive.
    """
    size = len(matrix)
    columns = right.shape[1]
    for j in range(size):
        matrix[j, j] += strength
    # The upper factor R, for which the matrix is R^T R, is written over the matrix row by row,
    # because rows are contiguous in memory.
    for j in range(size):
        pivot = matrix[j, j]
        if not pivot > 0.0:  # a NaN pivot ends here, too
            return np.zeros_like(right)
        root = math.sqrt(pivot)
        for i in range(j, size):
            matrix[j, i] /= root
        for i in range(j + 1, size):
            factor = matrix[j, i]
            for c in range(i, size):
                matrix[i, c] -= factor * matrix[j, c]
    # Forward substitution: solve R^T Y = right.
    solution = right.copy()
    for j in range(size):
        for c in range(columns):
            solution[j, c] /= matrix[j, j]
        for i in range(j + 1, size):
            for c in range(columns):
                solution[i, c] -= matrix[j, i] * solution[j, c]
    # Back substitution: solve R X = Y.
    for j in range(size - 1, -1, -1):
        for c in range(columns):
            for i in range(j + 1, size):
                solution[j, c] -= matrix[j, i] * solution[i, c]
            solution[j, c] /= matrix[j, j]
    return solution


@njit(cache=True)
def combine_rows(rows, coefficients):  # type: ignore[no-untyped-def]
    """Return coefficients^T rows, [J, w], with the rows added one after another.

    The fixed order gives the same bits on every machine, which a BLAS product would not.

    Args:
        rows: [n, w], the rows to combine.
        coefficients: [n, J], for each row its factor in each of J sums.
    """
    combined = np.zeros((coefficients.shape[1], rows.shape[1]))
    for i in range(len(rows)):
        for output in range(coefficients.shape[1]):
            factor = coefficients[i, output]
            for j in range(rows.shape[1]):
                combined[output, j] += factor * rows[i, j]
    return combined


@njit(cache=True)
def scaled_residuals(scores, signs):  # type: ignore[no-untyped-def]
    """Return 4 s / (1 + exp(s f)) for scores f and signs s, [n, J].

    It is the step of the logistic loss's quadratic upper bound: minus the loss's derivative over
    the largest curvature, 1/4. The exponential is computed from additions, products and divisions,
    because those give the same bits on every machine.

    Args:
        scores: [n, J] of absolute value at most 64.
        signs: [n, J], +1 or -1.
    """
    residuals = np.empty_like(scores)
    for i in range(scores.shape[0]):
        for c in range(scores.shape[1]):
            # exp(s f) is exp(s f / 2^10), by its series, squared ten times.
            part = signs[i, c] * scores[i, c] * 2.0**-10
            power = 1.0
            for term in range(8, 0, -1):
                power = 1.0 + part * power / term
            for _ in range(10):
                power = power * power
            residuals[i, c] = 4.0 * signs[i, c] / (1.0 + power)
    return residuals
