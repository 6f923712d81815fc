"""Members of ``certificate=votes``: linear classifiers to the same bits whatever else is computed
beside them.

``ridge``: a member minimises sum_i |W x_i - y_i|^2 + strength |W|^2 over the records of its shard,
W = A^T (A A^T + strength I)^-1 Y or (A^T A + strength I)^-1 A^T Y, whichever system is smaller.
Targets y are +-1 for two classes, else one-hot.
``logistic``: sum_i log(1 + exp(-s_i W x_i)) + strength |W|^2, s = +-1 for each class against the
others. ``STEPS`` times W becomes the minimiser of a quadratic function that lies above this one and
touches it at W (Boehning and Lindsay 1988): a ridge regression of strength 8 strength on the
targets W x_i + 4 s_i / (1 + exp(s_i W x_i)), of the same matrix each time.

Formal guarantees
    One shard, one result. Features are taken in multiples of 2^-22, of norm at most 1: rows are
    integers of length below 2^22 (1 + 2^-9). Entries of A A^T are sums of products of integers, at
    most 2^45 by Cauchy-Schwarz, and so is each partial sum: below 2^53 they are exact, whatever
    order, blocking, fused operations or threads a library takes. Those of A^T A and A^T Y are exact
    within ``EXACT`` rows, whose sums are then added one after another. Everything else (``_solve``,
    ``_combined``) is compiled without reassociation or contraction: each operation is rounded
    alone, in an order that the shapes decide. So W is a function of the shard's rows in their
    order, on any IEEE 754 machine.
    It exists. The computed system is a positive semidefinite matrix rounded once an entry, plus
    strength >= 1e-6 on the diagonal, of a trace of n (at most 2^20 rows or coordinates): errors of
    a Cholesky factor are below (m + 1)^2 2^-53 max_ii (m its size), and where a pivot is not
    positive all the same, the weights are 0: again a function of the shard alone. A shard without
    records has W = 0.
    ``logistic`` adds nothing to trust: its inverse is a solution by the same ``_solve``, its
    products are ``_combined``, and all else is +, -, *, / and comparisons of one number at a time,
    each rounded alone, exponentials included (``_pulls``), in an order that the shapes decide.
    Scores are cut off at 64 in size, so that no shard overflows, and what is not finite all the
    same counts as 0 (``on_lattice``).
    Scores are exact. W times a power of two that W decides is rounded to integers whose rows are
    shorter than 2^28; queries are integers of length below 2^22 (1 + 2^-9): their products are
    exact, in any shape. Which class scores most, the smaller one of equals, is thus a function of W
    and of the query, whatever members and queries stand beside them.

Formal guarantees of ``pulls``
    W = Y^T A for targets Y [n, J], A = (X X^T + strength I)^-1 X = X (X^T X + strength I)^-1, of
    which labels are no part. ``pulls`` is A times a power of two that A decides, cut off to
    integers, as above a function of the shard's features in their order. The power is such that the
    lengths of the rows A_i, each at most sqrt(w) times its greatest entry, sum up to S < 2^29, but
    for roundings 2^29 (1 + 2^-20): cutting off only shortens.
    Under relation=flip the member *is* sign or argmax of Y^T A q, with these integers. For a query
    q, shorter than 2^22 (1 + 2^-9), |A_i q| <= |A_i| |q| and sum_i |A_i q| < 2^51.1: each A_i q,
    every sum of them and twice that are exact.
    So is W = Y^T A, each row of it shorter than S, and a label that changes moves a score by whole
    multiples of A_i q.

Source: method.md sections 12 and 14.
"""

import math

import numpy as np
from numba import njit

EXACT = 256  # rows whose products of coordinates add up exactly: 2^8 times 2^45 is 2^53
GRAIN = -22  # features are multiples of 2 to this
LENGTH = 28  # rows of integer weights are shorter than 2 to this
TOTAL = 29  # rows of ``pulls`` have lengths whose sum is below 2 to this
STEPS = 100  # of ``logistic``
FARTHEST = 64.0  # that its scores go


def targets_of(labels: np.ndarray, classes: int) -> np.ndarray:
    """[n, J] float64: +-1 of two classes (J = 1), else one-hot (J = classes); ``labels`` [n] are
    0..classes-1.
    """
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
        return on_lattice(_combined(rows, _solve(_gram(rows), targets, strength)))
    sums = np.ldexp(_products(rows, targets), GRAIN)
    return on_lattice(np.ascontiguousarray(_solve(_gram(rows), sums, strength).T))


def logistic(rows: np.ndarray, targets: np.ndarray, strength: float) -> np.ndarray:
    """The same of a logistic regression, one class against the others each."""
    x, signs, bound = np.ldexp(rows, GRAIN), np.where(targets > 0, 1.0, -1.0), 8 * strength
    inverse, scores = _solve(gram := _gram(rows), np.eye(len(gram)), bound), np.zeros_like(signs)
    for _ in range(STEPS):
        working = scores + _pulls(scores, signs)
        if len(rows) <= rows.shape[1]:  # scores are A A^T (A A^T + bound I)^-1 working
            dual = _combined(inverse, working).T
            weight, scores = _combined(x, dual), working - bound * dual
        else:
            weight = _combined(inverse, _combined(x, working).T)
            scores = _combined(x.T, weight.T).T
        scores = np.clip(scores, -FARTHEST, FARTHEST)
    return on_lattice(weight)


def pulls(rows: np.ndarray, strength: float) -> np.ndarray:
    """[n, w] int32: what a record's target of 1 adds to ``ridge``'s weights, up to one positive
    factor.
    """
    n, width = rows.shape
    inverse = _solve(_gram(rows), np.eye(min(n, width)), strength)
    if n <= width:
        moves = _combined(rows, inverse)
    else:  # some rows at a time, which stay in the cache
        parts = [rows[at : at + EXACT].T for at in range(0, n, EXACT)]
        moves = np.concatenate([_combined(inverse, np.ascontiguousarray(part)) for part in parts])
    moves = np.nan_to_num(moves, nan=0.0, posinf=0.0, neginf=0.0)
    return np.trunc(np.ldexp(moves, TOTAL - math.frexp(lengths(moves))[1])).astype(np.int32)


def lengths(moves: np.ndarray) -> float:
    """No less than the lengths of the rows [n, w] together, but for rounding: each is sqrt(w)
    times its greatest entry.
    """
    return math.fsum(np.abs(moves).max(axis=1, initial=0.0)) * math.sqrt(moves.shape[1])


LEARNERS = {"ridge": ridge, "logistic": logistic}
"""``certificate.learner`` -> what trains one member."""


def _gram(rows: np.ndarray) -> np.ndarray:
    """A A^T or A^T A of the features A, whichever is smaller, summed exactly or in the order of
    the rows.
    """
    gram = rows @ rows.T if len(rows) <= rows.shape[1] else _products(rows, rows)
    return np.ldexp(gram, 2 * GRAIN)


def _products(rows: np.ndarray, right: np.ndarray) -> np.ndarray:
    """rows^T right, exact within ``EXACT`` rows, whose sums are added one after another."""
    total = np.zeros((rows.shape[1], right.shape[1]))
    for start in range(0, len(rows), EXACT):
        total += rows[start : start + EXACT].T @ right[start : start + EXACT]
    return total


def on_lattice(weight: np.ndarray) -> np.ndarray:
    """[J, w] int32: ``weight``, 0 where not finite, times a power of two of its own, rounded,
    rows shorter than 2^28.
    """
    weight = np.nan_to_num(weight, nan=0.0, posinf=0.0, neginf=0.0)
    longest = float(np.abs(weight).max()) * math.sqrt(weight.shape[1])
    return np.rint(np.ldexp(weight, LENGTH - 1 - math.frexp(longest)[1])).astype(np.int32)


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
    return np.ascontiguousarray(scores.reshape(-1, members, outputs).argmax(axis=2).T).astype(
        np.int16
    )


@njit(cache=True)
def _solve(matrix, right, strength):  # type: ignore[no-untyped-def]
    """(matrix + strength I)^-1 right by Cholesky; zeros where a pivot is not positive.

    ``matrix`` is used up.
    """
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


@njit(cache=True)
def _pulls(scores, signs):  # type: ignore[no-untyped-def]
    """[n, J]: 4 s / (1 + exp(s f)) of scores f within +-64. exp is that of f / 2^10 by its
    series, squared ten times.
    """
    pulls = np.empty_like(scores)
    for i in range(scores.shape[0]):
        for c in range(scores.shape[1]):
            part, power = signs[i, c] * scores[i, c] * 2.0**-10, 1.0
            for term in range(8, 0, -1):
                power = 1.0 + part * power / term
            for _ in range(10):
                power = power * power
            pulls[i, c] = 4.0 * signs[i, c] / (1.0 + power)
    return pulls
