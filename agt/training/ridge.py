"""Ridge regression in closed form, to the same bits whatever else is computed beside it: members of ``certificate=votes``.

A member minimises sum_i |W x_i - y_i|^2 + strength |W|^2 over the records of its shard, W = A^T (A A^T + strength I)^-1 Y
or (A^T A + strength I)^-1 A^T Y, whichever system is smaller. Targets y are +-1 for two classes, else one-hot.

Formal guarantees
    One shard, one result. Features are taken in multiples of 2^-22, of norm at most 1: rows are integers of length below
    2^22 (1 + 2^-9). Entries of A A^T are sums of products of integers, at most 2^45 by Cauchy-Schwarz, and so is each
    partial sum: below 2^53 they are exact, whatever order, blocking, fused operations or threads a library takes. Those of
    A^T A and A^T Y are exact within ``EXACT`` rows, whose sums are then added one after another. Everything else
    (``_solve``, ``_combined``) is compiled without reassociation or contraction: each operation is rounded alone, in an
    order that the shapes decide. So W is a function of the shard's rows in their order, on any IEEE 754 machine.
    It exists. The computed system is a positive semidefinite matrix rounded once an entry, plus strength >= 1e-6 on the
    diagonal, of a trace of n (at most 2^20 rows or coordinates): errors of a Cholesky factor are below
    (m + 1)^2 2^-53 max_ii (m its size), and where a pivot is not positive all the same, the weights are 0: again a function
    of the shard alone. A shard without records has W = 0.
    Scores are exact. W times a power of two that W decides is rounded to integers whose rows are shorter than 2^28; queries
    are integers of length below 2^22 (1 + 2^-9): their products are exact, in any shape. Which class scores most, the
    smaller one of equals, is thus a function of W and of the query, whatever members and queries stand beside them.

Source: method.md section 12.
"""

import math

import numpy as np
from numba import njit

EXACT = 256  # rows whose products of coordinates add up exactly: 2^8 times 2^45 is 2^53
GRAIN = -22  # features are multiples of 2 to this
LENGTH = 28  # rows of integer weights are shorter than 2 to this


def targets_of(labels: np.ndarray, classes: int) -> np.ndarray:
    """[n, J] float64: +-1 of two classes (J = 1), else one-hot (J = classes); ``labels`` [n] are 0..classes-1."""
    if classes == 2:
        return np.where(labels == 1, 1.0, -1.0)[:, None]
    return (labels[:, None] == np.arange(classes)).astype(np.float64)


def ridge(rows: np.ndarray, targets: np.ndarray, strength: float) -> np.ndarray:
    """[J, w] int32 weights, up to a positive factor.

    Args:
        rows: [n, w] float64 features in multiples of 2^-22, as integers; n may be 0.
        targets: [n, J] float64.
        strength: at least 1e-6, a public constant.
    """
    n, width = rows.shape
    if n <= width:
        solution = _solve(np.ldexp(rows @ rows.T, 2 * GRAIN), targets, strength)
        return on_lattice(_combined(rows, solution))
    gram, sums = np.zeros((width, width)), np.zeros((width, targets.shape[1]))
    for start in range(0, n, EXACT):
        some = rows[start : start + EXACT]
        gram += some.T @ some
        sums += some.T @ targets[start : start + EXACT]
    return on_lattice(np.ascontiguousarray(_solve(np.ldexp(gram, 2 * GRAIN), np.ldexp(sums, GRAIN), strength).T))


def on_lattice(weight: np.ndarray) -> np.ndarray:
    """[J, w] int32: ``weight`` times a power of two of its own, rounded, each row shorter than 2^28."""
    longest = float(np.abs(weight).max()) * math.sqrt(weight.shape[1])
    lattice: np.ndarray = np.rint(np.ldexp(weight, LENGTH - 1 - math.frexp(longest)[1])).astype(np.int32)
    return lattice


def labels(queries: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """[T, n] int16: each member's label of each query.

    Args:
        queries: [n, w] float64 features, as integers.
        weight: [T, J, w] int32.
    """
    members, outputs, width = weight.shape
    scores = queries @ weight.reshape(-1, width).T.astype(np.float64)
    if outputs == 1:
        return np.ascontiguousarray((scores > 0).T).astype(np.int16)
    return np.ascontiguousarray(scores.reshape(-1, members, outputs).argmax(axis=2).T).astype(np.int16)


@njit(cache=True)
def _solve(matrix, right, strength):  # type: ignore[no-untyped-def]
    """(matrix + strength I)^-1 right by Cholesky; zeros where a pivot is not positive. ``matrix`` is used up."""
    size, many = len(matrix), right.shape[1]
    for j in range(size):
        matrix[j, j] += strength
    for j in range(size):
        pivot = matrix[j, j]
        if not pivot > 0.0:
            return np.zeros_like(right)
        root = math.sqrt(pivot)
        for i in range(j, size):  # row j of the upper factor: rows lie one after another in memory
            matrix[j, i] /= root
        for i in range(j + 1, size):
            factor = matrix[j, i]
            for c in range(i, size):
                matrix[i, c] -= factor * matrix[j, c]
    solution = right.copy()
    for j in range(size):
        for c in range(many):
            solution[j, c] /= matrix[j, j]
        for i in range(j + 1, size):
            for c in range(many):
                solution[i, c] -= matrix[j, i] * solution[j, c]
    for j in range(size - 1, -1, -1):
        for c in range(many):
            for i in range(j + 1, size):
                solution[j, c] -= matrix[j, i] * solution[i, c]
            solution[j, c] /= matrix[j, j]
    return solution


@njit(cache=True)
def _combined(rows, solution):  # type: ignore[no-untyped-def]
    """[J, w]: solution^T rows, one row after another."""
    weight = np.zeros((solution.shape[1], rows.shape[1]))
    for i in range(len(rows)):
        for c in range(solution.shape[1]):
            factor = solution[i, c]
            for at in range(rows.shape[1]):
                weight[c, at] += factor * rows[i, at]
    return weight
