"""Linear classifiers that depend on their training records only, to the last bit.

They are the members of ``certificate=votes``: a member's weights and answers have the same bits
whatever other members, queries or threads there are, on any IEEE 754 machine. Features come as
integers in units of 2^-22. Weights are rounded to integers, so scores are exact. Proofs:
docs/proofs/ridge.md.
"""

import math
from typing import NamedTuple

import numpy as np

from agt.data.arrays import block_slices, rows_in

# Rows over which products of two features add up exactly: each product is at most 2^45, and
# float64 holds sums up to 2^8 2^45 = 2^53.
EXACT_SUM_ROWS = 256
FEATURE_EXPONENT = -22  # features are integers times 2^-22
WEIGHT_BITS = 28  # rows of integer weights have l2 norm below 2^28
INFLUENCE_BITS = 29  # the norms of the rows of ``label_influence`` add up to less than 2^29
LOGISTIC_STEPS = 100  # iterations of ``fit_logistic``
SCORES_BLOCK_BYTES = 2**24  # of the scores of ``predict_labels`` that are held at once
SCORE_LIMIT = 64.0  # ``fit_logistic`` clips scores to [-64, 64], so that exp does not overflow


def encode_targets(labels: np.ndarray, classes: int) -> np.ndarray:
    """Return the regression targets of class labels, one column for each output.

    Args:
        labels: [n] integers, from 0 to classes - 1.
        classes: the number of classes, at least 2.

    Returns:
        [n, J] float64. For two classes J = 1, with 1 for class 1 and -1 for class 0. For more
        classes J = classes, and each row is one-hot.
    """
    if classes == 2:
        return np.where(labels == 1, 1.0, -1.0)[:, None]
    return (labels[:, None] == np.arange(classes)).astype(np.float64)


def fit_ridge(rows: np.ndarray, targets: np.ndarray, strength: float) -> np.ndarray:
    """Fit ridge regression to one shard's records, and round the weights to integers.

    It minimises sum_i |W x_i - y_i|^2 + strength |W|^2 over W. A shard is the part of the training
    records that one member of the ensemble is trained on.

    Args:
        rows: [n, w] features x in units of 2^-22: integers stored as float64, in the order of the
            shard. n may be 0.
        targets: [n, J] float64 targets y (``encode_targets``).
        strength: factor of the regulariser, at least 1e-6; a public constant.

    Returns:
        [J, w] int32, W times a positive factor, rounded. The factor does not change which class has
        the largest score.

    Formal guarantees:
        - The result depends only on the arguments, to the last bit (Lemma 2 of
          docs/proofs/ridge.md).
        - It is all zeros if there are no records, or if the computed linear system is singular.
    """
    return round_to_lattice(_ridge_weights(rows, targets, strength).array)


class ScaledArray(NamedTuple):
    """Numbers that are a power of two times the entries of an array.

    Attributes:
        array: the entries.
        exponent: e; the numbers are 2^e times the entries.
    """

    array: np.ndarray
    exponent: int


def fit_number_ridge(rows: np.ndarray, targets: np.ndarray, strength: float) -> ScaledArray:
    """Fit ridge regression of numbers to one shard's records, with weights rounded to integers.

    It minimises sum_i (W x_i - y_i)^2 + strength |W|^2, as ``fit_ridge``, and returns the factor by
    which the integers were scaled, because a number, unlike a label, depends on it.

    Args:
        rows: [n, w] features x in units of 2^-22: integers stored as float64, in the order of the
            shard. n may be 0.
        targets: [n] the numbers y, from -1 to 1.
        strength: factor of the regulariser, at least 1e-6; a public constant.

    Returns:
        Q [w] int32 and e, where the prediction at a query with integer features z is
        2^e (Q . z). The result depends only on the arguments, to the last bit (Lemma 1 of
        docs/proofs/numbers.md). Q is all zeros if there are no records.
    """
    # Integers, so that the products with features are exact.
    integer_targets = np.rint(np.ldexp(targets, -FEATURE_EXPONENT))[:, None]
    weight = _ridge_weights(rows, integer_targets, strength)
    rounded = _round_scaled(weight.array)
    # The weight is in units of the targets, and a query's features are integers: 2^-22 each.
    exponent = weight.exponent + rounded.exponent + 2 * FEATURE_EXPONENT
    return ScaledArray(rounded.array[0], exponent)


def predict_numbers(queries: np.ndarray, weight: np.ndarray, exponents: np.ndarray) -> np.ndarray:
    """Return each member's number for each query, where -1 and 1 are the ends of the range.

    Scores are exact integers, so a number does not depend on the other members and queries of the
    call (Lemma 1 of docs/proofs/numbers.md).

    Args:
        queries: [n, w] features in units of 2^-22: integers stored as float64.
        weight: [T, w] int32, the weights of T members (``fit_number_ridge``).
        exponents: [T] the exponents of the members' weights.

    Returns:
        [T, n] float64; infinite where an exponent is too large.
    """
    scores = weight.astype(np.float64) @ queries.T
    with np.errstate(over="ignore"):
        return np.ldexp(scores, exponents[:, None])


def _ridge_weights(rows: np.ndarray, targets: np.ndarray, strength: float) -> ScaledArray:
    """Solve a ridge regression, and return its weights before they are rounded to integers.

    Args:
        rows: [n, w] features in units of 2^-22: integers stored as float64.
        targets: [n, J] the targets.
        strength: factor of the regulariser.

    Returns:
        The weights, of an array [J, w] float64.
    """
    from agt.training.ridge_compiled import combine_rows, solve_positive_definite

    count, width = rows.shape
    if count <= width:
        # W^T = A^T (A A^T + strength I)^-1 Y is the solution from the smaller linear system.
        dual = solve_positive_definite(_smaller_gram(rows), targets, strength)
        return ScaledArray(combine_rows(rows, dual), FEATURE_EXPONENT)
    # W^T = (A^T A + strength I)^-1 A^T Y. Features enter A^T Y once, so it is scaled once.
    integer_sums = _blocked_product(rows, targets)
    feature_target_sums = np.ldexp(integer_sums, FEATURE_EXPONENT)
    solution = solve_positive_definite(_smaller_gram(rows), feature_target_sums, strength)
    return ScaledArray(np.ascontiguousarray(solution.T), 0)


def fit_logistic(rows: np.ndarray, targets: np.ndarray, strength: float) -> np.ndarray:
    """Fit logistic regression to one shard's records, and round the weights to integers.

    It minimises sum_i log(1 + exp(-s_i W x_i)) + strength |W|^2 for each output, where s_i is the
    sign of record i's target. With several classes, each output is one class against the others.
    ``LOGISTIC_STEPS`` times, W becomes the minimiser of a quadratic upper bound that touches the
    objective at W (Boehning and Lindsay 1988), which is a ridge regression of strength 8
    ``strength``.

    Args:
        rows: [n, w] features in units of 2^-22: integers stored as float64. n may be 0.
        targets: [n, J] targets (``encode_targets``), of which only the sign counts.
        strength: factor of the regulariser, at least 1e-6; a public constant.

    Returns:
        [J, w] int32, W times a positive factor, rounded. It depends only on the arguments, to the
        last bit (Lemma 3 of docs/proofs/ridge.md).
    """
    from agt.training.ridge_compiled import (
        combine_rows,
        scaled_residuals,
        solve_positive_definite,
    )

    x = np.ldexp(rows, FEATURE_EXPONENT)
    signs = np.where(targets > 0, 1.0, -1.0)
    ridge_strength = 8 * strength
    gram = _smaller_gram(rows)
    identity = np.eye(len(gram))
    inverse = solve_positive_definite(gram, identity, ridge_strength)
    scores = np.zeros_like(signs)
    for _ in range(LOGISTIC_STEPS):
        working_targets = scores + scaled_residuals(scores, signs)
        if len(rows) <= rows.shape[1]:  # the inverse is of A A^T, which is the smaller matrix
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
    """Return the addend of each record's target to the weights of ``fit_ridge``, as integers.

    The ridge weights are W = Y^T P for targets Y, and the result is P times one positive factor.
    Row i is what a target of 1 at record i adds to the weights. No label enters P.

    Args:
        rows: [n, w] features in units of 2^-22: integers stored as float64. n may be 0.
        strength: factor of the regulariser, at least 1e-6; a public constant.

    Returns:
        [n, w] int32. The lengths of its rows add up to less than 2^29 (1 + 2^-20) (Lemma 5 of
        docs/proofs/ridge.md).

    Formal guarantees:
        - Changing one label changes a query's score by a whole multiple of the dot product of the
          record's row with the query, without rounding (Lemma 6 of docs/proofs/ridge.md).
        - The result depends only on the arguments, to the last bit.
    """
    from agt.training.ridge_compiled import combine_rows, solve_positive_definite

    count, width = rows.shape
    identity = np.eye(min(count, width))
    inverse = solve_positive_definite(_smaller_gram(rows), identity, strength)
    if count <= width:
        influence = combine_rows(rows, inverse)
    else:
        # The product is taken over a block of rows at a time, because a block stays in the cache.
        parts = []
        for block_rows in block_slices(count, EXACT_SUM_ROWS):
            block = rows[block_rows]
            parts.append(combine_rows(inverse, np.ascontiguousarray(block.T)))
        influence = np.concatenate(parts)
    influence = np.nan_to_num(influence, nan=0.0, posinf=0.0, neginf=0.0)
    _, norm_exponent = math.frexp(sum_of_row_lengths(influence))
    scaled = np.ldexp(influence, INFLUENCE_BITS - norm_exponent)
    # Truncated towards 0, because rounding to nearest could make rows longer than the bound.
    return np.trunc(scaled).astype(np.int32)


def sum_of_row_lengths(influence: np.ndarray) -> float:
    """Return an upper bound, to rounding, on the sum of the l2 norms of the rows.

    The norm of a row is at most sqrt(w) times its largest absolute entry. Maxima and ``math.fsum``
    have the same bits on every machine, whereas the sum of squares in a norm may be rounded
    differently.

    Args:
        influence: [n, w], a matrix, as ``label_influence`` returns it.
    """
    largest_entries = np.abs(influence).max(axis=1, initial=0.0)
    return math.fsum(largest_entries) * math.sqrt(influence.shape[1])


LEARNERS = {"ridge": fit_ridge, "logistic": fit_logistic}
"""``certificate.learner`` -> the function that trains one member."""


def _smaller_gram(rows: np.ndarray) -> np.ndarray:
    """Return the Gram matrix A A^T or A^T A of the features A, whichever is smaller.

    A A^T is exact. A^T A is summed exactly within blocks of ``EXACT_SUM_ROWS`` rows, and the blocks
    are added in the order of the rows (Lemma 1 of docs/proofs/ridge.md).

    Args:
        rows: [n, w] A in units of 2^-22: integers stored as float64.

    Returns:
        [n, n] float64 if n <= w; else [w, w].
    """
    count, width = rows.shape
    gram = rows @ rows.T if count <= width else _blocked_product(rows, rows)
    return np.ldexp(gram, 2 * FEATURE_EXPONENT)


def _blocked_product(rows: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return rows^T right, summed exactly within blocks of ``EXACT_SUM_ROWS`` rows.

    The sums of the blocks are added in the order of the rows, so the result has the same bits on
    every machine.

    Args:
        rows: [n, w] integers stored as float64.
        right: [n, m] integers stored as float64.

    Returns:
        [w, m] float64.
    """
    total = np.zeros((rows.shape[1], right.shape[1]))
    for block in block_slices(len(rows), EXACT_SUM_ROWS):
        total += rows[block].T @ right[block]
    return total


def round_to_lattice(weight: np.ndarray) -> np.ndarray:
    """Scale weights by a power of two, and round them to integers.

    The power of two depends only on the largest absolute weight.

    Args:
        weight: [J, w] float64. NaN and infinite entries become 0.

    Returns:
        [J, w] int32, whose rows have l2 norm below 2^28 (Lemma 4 of docs/proofs/ridge.md).
    """
    return _round_scaled(weight).array


def _round_scaled(weight: np.ndarray) -> ScaledArray:
    """Return weights as integers of ``round_to_lattice`` times a power of two, up to rounding.

    Args:
        weight: [J, w] float64. NaN and infinite entries become 0.
    """
    finite = np.where(np.isfinite(weight), weight, 0.0)
    largest_entry = float(np.abs(finite).max())
    _, norm_exponent = math.frexp(largest_entry * math.sqrt(weight.shape[1]))
    shift = WEIGHT_BITS - 1 - norm_exponent
    return ScaledArray(np.rint(np.ldexp(finite, shift)).astype(np.int32), -shift)


def predict_labels(queries: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return each member's label of each query.

    Scores are exact integers, so a label does not depend on the other members and queries of the
    call (Lemma 4 of docs/proofs/ridge.md). If scores are equal, the smaller class wins.

    Args:
        queries: [n, w] features in units of 2^-22: integers stored as float64.
        weight: [T, J, w] int32, the weights of T members (``fit_ridge``, ``fit_logistic``).

    Returns:
        [T, n] int16, from 0 to classes - 1.
    """
    members, outputs, width = weight.shape
    all_rows = weight.reshape(-1, width).astype(np.float64)
    labels = np.empty((members, len(queries)), dtype=np.int16)
    block_rows = rows_in(SCORES_BLOCK_BYTES, 8 * len(all_rows))
    for block in block_slices(len(queries), block_rows):
        scores = queries[block] @ all_rows.T  # [block_rows, T J]
        if outputs == 1:
            labels[:, block] = (scores > 0).T
        else:
            member_scores = scores.reshape(-1, members, outputs)
            labels[:, block] = member_scores.argmax(axis=2).T  # the first of equal scores
    return labels
