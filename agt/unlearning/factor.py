"""A Hessian that is kept up while records go: the matrix, something close to its inverse, and how far each may be off.

The matrix H~ loses c_r x_r x_r' for each record r that goes, and P, its inverse by Cholesky, follows by Woodbury's formula,
in O(d^2) for each: the thousandth removal costs as the first. P is used to find a step v, and is trusted with nothing: what
the step leaves, |H v - force|, is worked out with the matrix, and charged. Where P has become so poor that it no longer
refines a step to rounding, it is made anew from the matrix.

Formal guarantees
    Let H be the exact matrix over the records that are left, and ``error`` a bound on |H~ - H|, Frobenius.
    Removing. H~ loses what is computed for the records, which errs by ``off`` (the caller's bound), and the subtraction
        rounds by u |H~'|_F. What the records leave behind in H~ is within ``error``: rounding.
    Size. 0 <= H' <= H as quadratic forms give |H'|_F <= |H|_F: a bound on the Frobenius norm stays one, plus the errors.
    Solving. For any v at all, with g(n) = n u / (1 - n u) and r the computed H~ v - force,
        |H v - force| <= |r| + g(d + 2) |H~|_F |v| + error |v| + u (|r| + |force|),
        in any order of summation. How v was found is irrelevant.

Source: Higham (2002), Accuracy and stability, sections 3.5 and 12.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from agt.errors import UnsoundError
from agt.numeric import COVER, UNIT, gamma_up
from agt.training.objective import blocks

REFINEMENTS = 4
_MANY = 8  # of width / _MANY records at once, Woodbury's formula is no cheaper than a new inverse


@dataclass
class Kept:
    """A symmetric positive semidefinite matrix that loses terms, and how far it may be from the exact one.

    Attributes:
        matrix: [d, d] float64.
        error: bound on |matrix - exact|, Frobenius.
        size: bound on the Frobenius norm of both, now and later.
    """

    matrix: np.ndarray
    error: float
    size: float

    @classmethod
    def of(cls, matrix: np.ndarray, error: float) -> "Kept":
        """Of a matrix as it was formed."""
        return cls(matrix, error, (float(np.linalg.norm(matrix)) + error) * COVER)

    def remove(self, rows: np.ndarray, off: float) -> None:
        """Subtract the sum of r r' over [m, d] rows; ``off``: bound on how far the computed sum is from what is
        meant; it is summed as ``training.objective.gram_rounding`` charges it, in blocks."""
        self.matrix = self.matrix - sum(rows[part].T @ rows[part] for part in blocks(len(rows)))
        self.error = (self.error + off + UNIT * self.size) * COVER
        self.size += self.error

    def times(self, vector: np.ndarray) -> tuple[np.ndarray, float]:
        """(the product as computed, bound on how far the exact matrix's product is from it)."""
        error = gamma_up(len(vector) + 2) * self.size + self.error
        return self.matrix @ vector, error * float(np.linalg.norm(vector)) * COVER

    def length(self, vector: np.ndarray) -> float:
        """An upper bound on sqrt(v'Kv), K the exact matrix."""
        product, off = self.times(vector)
        form = float(vector @ product)
        sizes = float(np.linalg.norm(vector)) * (off + gamma_up(len(vector) + 2) * float(np.linalg.norm(product)))
        return math.sqrt(max(0.0, form) + sizes * COVER) * COVER


@dataclass
class Factor:
    """A matrix that is kept, with something close to its inverse.

    Attributes:
        kept: the matrix H~.
        inverse: [d, d] P, nothing rests on how close it is; None: not needed yet.
        made: how often P was made from the matrix.
    """

    kept: Kept
    inverse: np.ndarray | None = None
    made: int = 0

    def remove(self, rows: np.ndarray, off: float) -> None:
        """Take r r' of [m, d] rows out of both; ``off`` as for ``Kept.remove``."""
        self.kept.remove(rows, off)
        if self.inverse is None or len(rows) * _MANY > rows.shape[1]:
            self.inverse = None
            return
        moved = self.inverse @ rows.T
        try:
            inner = cho_factor(np.eye(len(rows)) - rows @ moved, check_finite=False)
        except LinAlgError:  # P is no longer close to the inverse of anything positive
            self.inverse = None
            return
        self.inverse = self.inverse + moved @ cho_solve(inner, moved.T, check_finite=False)

    def solve(self, force: np.ndarray) -> tuple[np.ndarray, float]:
        """(v, bound on |H v - force| for the exact H): v = P force, refined until rounding is most of what is left.

        Args:
            force: [d].

        Raises:
            UnsoundError: the matrix is not positive definite in floating point.
        """
        step, left, floor = self._refined(force)
        if left > floor:
            self.inverse = None
            step, left, floor = self._refined(force)
        return step, (left + floor) * COVER

    def _refined(self, force: np.ndarray) -> tuple[np.ndarray, float, float]:
        """(v, |r| as computed, what rounding and the matrix's own error may add to it)."""
        if self.inverse is None:
            self.inverse, self.made = _inverse(self.kept.matrix), self.made + 1
        step = np.zeros_like(force)
        rest, left, floor = force, math.inf, 0.0
        for _ in range(REFINEMENTS):
            better = step + self.inverse @ rest
            product, off = self.kept.times(better)
            rest = force - product
            now = float(np.linalg.norm(rest)) * COVER
            if not now < left / 2:
                break
            step, left, floor = better, now, (off + UNIT * (now + float(np.linalg.norm(force)))) * COVER
            if left <= floor:
                break
        return step, left, floor


def _inverse(matrix: np.ndarray) -> np.ndarray:
    """By Cholesky."""
    try:
        inverse: np.ndarray = cho_solve(cho_factor(matrix, check_finite=False), np.eye(len(matrix)), check_finite=False)
    except LinAlgError:
        raise UnsoundError(
            "the Hessian is not positive definite in floating point: training.weight_decay is too small for this data"
        ) from None
    return inverse
