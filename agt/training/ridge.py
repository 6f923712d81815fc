"""Linear classifiers that are a function of their training records to the last bit.

The members of ``certificate=votes``. Whatever other members, queries or threads are around, a
member's weights and answers have the same bits, on any IEEE 754 machine. Features come as
integers, multiples of 2^-22. Weights are rounded to integers, so scores are exact. Proofs:
docs/proofs/ridge.md.
"""

import math

import numpy as np
from numba import njit

EXACT_SUM_ROWS = 256  # rows whose products of coordinates add up exactly: 2^8 times 2^45 is 2^53
FEATURE_EXPONENT = -22  # features are multiples of 2 to this
WEIGHT_BITS = 28  # rows of integer weights are shorter than 2 to this
INFLUENCE_BITS = 29  # rows of ``label_influence`` have lengths whose sum is below 2 to this
LOGISTIC_STEPS = 100
SCORE_LIMIT = 64.0  # of ``fit_logistic``'s scores in size


def encode_targets(labels: np.ndarray, classes: int) -> np.ndarray:
    """Encode labels as regression targets.

    Args:
        labels: [n] integers, 0 to classes - 1.
        classes: the number of classes.

    Returns:
        [n, J] float64: for two classes J = 1 and +1 or -1; else J = classes and one-hot rows.
    """
    if classes == 2:
        return np.where(labels == 1, 1.0, -1.0)[:, None]
    return (labels[:, None] == np.arange(classes)).astype(np.float64)


def fit_ridge(rows: np.ndarray, targets: np.ndarray, strength: float) -> np.ndarray:
    """Minimise sum_i |W x_i - y_i|^2 + strength |W|^2, and round W to integers.

    Args:
        rows: [n, w] float64 features x in multiples of 2^-22, as integers, in the order of the
            shard; n may be 0.
        targets: [n, J] float64 targets y (``encode_targets``).
        strength: of the regulariser, at least 1e-6, a public constant.

    Returns:
        [J, w] int32 weights, up to a positive factor.

    Formal guarantees:
        - The result is a function of the arguments alone, to the last bit (Lemma 2 of
          docs/proofs/ridge.md).
        - Without records it is all zeros; so it is where the computed system is singular.
    """
    count, width = rows.shape
    if count <= width:
        # W = A^T (A A^T + strength I)^-1 Y: the smaller system
        dual = solve_positive_definite(_smaller_gram(rows), targets, strength)
        return round_to_lattice(combine_rows(rows, dual))
    integer_sums = _blocked_product(rows, targets)
    feature_target_sums = np.ldexp(integer_sums, FEATURE_EXPONENT)
    solution = solve_positive_definite(_smaller_gram(rows), feature_target_sums, strength)
    return round_to_lattice(np.ascontiguousarray(solution.T))


def fit_logistic(rows: np.ndarray, targets: np.ndarray, strength: float) -> np.ndarray:
    """Minimise sum_i log(1 + exp(-s_i W x_i)) + strength |W|^2, one class against the others each.

    ``LOGISTIC_STEPS`` times W becomes the minimiser of a quadratic function that lies above this
    one and touches it at W (Boehning and Lindsay 1988): a ridge regression of strength 8
    ``strength``.

    Args:
        rows, targets, strength: as for ``fit_ridge``; s is the sign of a target.

    Returns:
        [J, w] int32 weights, up to a positive factor; with the guarantees of ``fit_ridge`` (Lemma 3
        of docs/proofs/ridge.md).
    """
    x = np.ldexp(rows, FEATURE_EXPONENT)
    signs = np.where(targets > 0, 1.0, -1.0)
    ridge_strength = 8 * strength
    gram = _smaller_gram(rows)
    identity = np.eye(len(gram))
    inverse = solve_positive_definite(gram, identity, ridge_strength)
    scores = np.zeros_like(signs)
    for _ in range(LOGISTIC_STEPS):
        working_targets = scores + scaled_residuals(scores, signs)
        if len(rows) <= rows.shape[1]:
            # Scores are A A^T (A A^T + ridge_strength I)^-1 working_targets.
            dual = combine_rows(inverse, working_targets).T
            weight = combine_rows(x, dual)
            scores = working_targets - ridge_strength * dual
        else:
            feature_target_sums = combine_rows(x, working_targets).T
            weight = combine_rows(inverse, feature_target_sums)
            scores = combine_rows(x.T, weight.T).T
        scores = np.clip(scores, -SCORE_LIMIT, SCORE_LIMIT)
    return round_to_lattice(weight)


def label_influence(rows: np.ndarray, strength: float) -> np.ndarray:
    """Return what each record's target of 1 adds to the weights of ``fit_ridge``, as integers.

    The ridge weights are W = Y^T P for targets Y, and this is P up to one positive factor. No label
    enters P.

    Args:
        rows, strength: as for ``fit_ridge``.

    Returns:
        [n, w] int32, whose rows have lengths that add up to less than 2^29, to rounding (Lemma 5
        of docs/proofs/ridge.md).

    Formal guarantees:
        - A label that changes moves a query's score by a whole multiple of the row's product with
          the query, without rounding (Lemma 6 of docs/proofs/ridge.md).
        - The result is a function of the arguments alone, to the last bit.
    """
    count, width = rows.shape
    identity = np.eye(min(count, width))
    inverse = solve_positive_definite(_smaller_gram(rows), identity, strength)
    if count <= width:
        influence = combine_rows(rows, inverse)
    else:
        # A block of rows at a time, which stays in the cache.
        parts = []
        for start in range(0, count, EXACT_SUM_ROWS):
            block = rows[start : start + EXACT_SUM_ROWS]
            parts.append(combine_rows(inverse, np.ascontiguousarray(block.T)))
        influence = np.concatenate(parts)
    influence = np.nan_to_num(influence, nan=0.0, posinf=0.0, neginf=0.0)
    _, length_exponent = math.frexp(sum_of_row_lengths(influence))
    scaled = np.ldexp(influence, INFLUENCE_BITS - length_exponent)
    # Cutting off, not rounding: rows may only become shorter.
    return np.trunc(scaled).astype(np.int32)


def sum_of_row_lengths(influence: np.ndarray) -> float:
    """Bound the sum of the lengths of the rows [n, w] from above, to rounding.

    Each row is counted as sqrt(w) times its largest entry in size.
    """
    largest_entries = np.abs(influence).max(axis=1, initial=0.0)
    return math.fsum(largest_entries) * math.sqrt(influence.shape[1])


LEARNERS = {"ridge": fit_ridge, "logistic": fit_logistic}
"""``certificate.learner`` -> the function that trains one member."""


def _smaller_gram(rows: np.ndarray) -> np.ndarray:
    """Return A A^T or A^T A of the [n, w] features A, whichever is smaller.

    A A^T is exact, and so are sums of A^T A within ``EXACT_SUM_ROWS`` rows, which are added in the
    order of the rows (Lemma 1 of docs/proofs/ridge.md).
    """
    count, width = rows.shape
    gram = rows @ rows.T if count <= width else _blocked_product(rows, rows)
    return np.ldexp(gram, 2 * FEATURE_EXPONENT)


def _blocked_product(rows: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return rows^T right, exact within ``EXACT_SUM_ROWS`` rows, whose sums are added in order.

    Args:
        rows: [n, w] integers in float64.
        right: [n, m] integers in float64.

    Returns:
        [w, m] float64.
    """
    total = np.zeros((rows.shape[1], right.shape[1]))
    for start in range(0, len(rows), EXACT_SUM_ROWS):
        block = slice(start, start + EXACT_SUM_ROWS)
        total += rows[block].T @ right[block]
    return total


def round_to_lattice(weight: np.ndarray) -> np.ndarray:
    """Scale weights by a power of two that they decide, and round them to integers.

    Args:
        weight: [J, w] float64; entries that are not finite count as 0.

    Returns:
        [J, w] int32, whose rows are shorter than 2^28 (Lemma 4 of docs/proofs/ridge.md).
    """
    weight = np.nan_to_num(weight, nan=0.0, posinf=0.0, neginf=0.0)
    largest_entry = float(np.abs(weight).max())
    _, length_exponent = math.frexp(largest_entry * math.sqrt(weight.shape[1]))
    scaled = np.ldexp(weight, WEIGHT_BITS - 1 - length_exponent)
    return np.rint(scaled).astype(np.int32)


def predict_labels(queries: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return each member's label of each query, ties going to the smaller class.

    Args:
        queries: [n, w] float64 features in multiples of 2^-22, as integers.
        weight: [T, J, w] int32, of T members (``round_to_lattice``).

    Returns:
        [T, n] int16. Scores are exact, so a label is the same whatever other members and queries
        are computed with it (Lemma 4 of docs/proofs/ridge.md).
    """
    members, outputs, width = weight.shape
    all_rows = weight.reshape(-1, width)
    scores = queries @ all_rows.T.astype(np.float64)
    if outputs == 1:
        labels = (scores > 0).T
        return np.ascontiguousarray(labels).astype(np.int16)
    member_scores = scores.reshape(-1, members, outputs)
    labels = member_scores.argmax(axis=2).T
    return np.ascontiguousarray(labels).astype(np.int16)


@njit(cache=True)
def solve_positive_definite(matrix, right, strength):  # type: ignore[no-untyped-def]
    """Return (matrix + strength I)^-1 right by Cholesky, each operation rounded alone.

    Args:
        matrix: [m, m] positive semidefinite; it is overwritten.
        right: [m, p].
        strength: added to the diagonal.

    Returns:
        [m, p]; zeros if a pivot is not positive.
    """
    size = len(matrix)
    columns = right.shape[1]
    for j in range(size):
        matrix[j, j] += strength
    # The upper factor is written row by row, since rows are contiguous in memory.
    for j in range(size):
        pivot = matrix[j, j]
        if not pivot > 0.0:  # nor where it is NaN
            return np.zeros_like(right)
        root = math.sqrt(pivot)
        for i in range(j, size):
            matrix[j, i] /= root
        for i in range(j + 1, size):
            factor = matrix[j, i]
            for c in range(i, size):
                matrix[i, c] -= factor * matrix[j, c]
    # Forward substitution with the transposed factor.
    solution = right.copy()
    for j in range(size):
        for c in range(columns):
            solution[j, c] /= matrix[j, j]
        for i in range(j + 1, size):
            for c in range(columns):
                solution[i, c] -= matrix[j, i] * solution[j, c]
    # Back substitution with the factor.
    for j in range(size - 1, -1, -1):
        for c in range(columns):
            for i in range(j + 1, size):
                solution[j, c] -= matrix[j, i] * solution[i, c]
            solution[j, c] /= matrix[j, j]
    return solution


@njit(cache=True)
def combine_rows(rows, coefficients):  # type: ignore[no-untyped-def]
    """Return [J, w] coefficients^T rows, summed one row after another.

    Args:
        rows: [n, w].
        coefficients: [n, J].
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
    """Return [n, J] 4 s / (1 + exp(s f)) of scores f and signs s, each operation rounded alone.

    Args:
        scores: [n, J] of size at most 64.
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
