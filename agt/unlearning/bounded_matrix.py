"""Symmetric matrices and linear systems in floating point, with bounds on the rounding errors.

A Hessian is kept as computed, with a bound on its error, while terms are subtracted from it.
Systems with it are solved by an approximate inverse, and what the solution leaves is measured, so
that the bound on the error does not depend on how good the inverse is. Proofs:
docs/proofs/removal.md.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from agt.data.arrays import block_slices
from agt.errors import UnsoundError
from agt.numeric import COVER, UNIT, gamma_up
from agt.training.row_sums import BLOCK_ROWS

MAX_REFINEMENTS = 4  # steps of iterative refinement for one linear system
# With more removed rows than width / 8, a new inverse is as cheap as an update by Woodbury's
# formula.
_MIN_WIDTH_PER_ROW = 8


class BoundedProduct(NamedTuple):
    """A computed product of a matrix with a vector.

    Attributes:
        vector: [d] the product, as computed.
        error: a bound on its l2 distance from the exact matrix's product.
    """

    vector: np.ndarray
    error: float


class Solution(NamedTuple):
    """An approximate solution v of a linear system H v = r.

    Attributes:
        vector: [d] v.
        error: a bound on |H v - r| for the exact H.
    """

    vector: np.ndarray
    error: float


class _RefinedSolution(NamedTuple):
    """An approximate solution v of a linear system H v = r, with the parts of its error.

    Attributes:
        vector: [d] v.
        computed_error: the norm of H v - r as computed.
        rounding: a bound on what rounding and the error of the computed H add to it.
    """

    vector: np.ndarray
    computed_error: float
    rounding: float


@dataclass
class BoundedMatrix:
    """A symmetric positive semidefinite matrix with error bounds; terms can be subtracted.

    Attributes:
        matrix: [d, d] float64, as computed.
        error: bound on the Frobenius norm of the computed minus the exact matrix.
        size: bound on the Frobenius norm of both, now and after any removal.
    """

    matrix: np.ndarray
    error: float
    size: float

    @classmethod
    def from_matrix(cls, matrix: np.ndarray, error: float) -> "BoundedMatrix":
        """Return a computed matrix with the bounds that follow from its error.

        Args:
            matrix: [d, d] float64, as computed.
            error: bound on the Frobenius norm of the computed minus the exact matrix.
        """
        # COVER (slightly above 1) covers the roundings of this bound itself.
        size = (float(np.linalg.norm(matrix)) + error) * COVER
        return cls(matrix, error, size)

    def remove(self, rows: np.ndarray, sum_error: float) -> None:
        """Subtract the sum of the outer products r r' over rows r, and update all attributes.

        Args:
            rows: [m, d] float64, the rows to remove.
            sum_error: a bound on the Frobenius norm of the error of the computed sum, if it is
                computed in the blocks that ``training.objective.gram_rounding`` describes.
        """
        # Lemma 9 of docs/proofs/removal.md: the error grows by that of the subtracted sum and by
        # the rounding of the subtraction.
        blocks = [rows[block] for block in block_slices(len(rows), BLOCK_ROWS)]
        self.matrix = self.matrix - sum(block.T @ block for block in blocks)
        # COVER (slightly above 1) covers the roundings of this bound itself.
        self.error = (self.error + sum_error + UNIT * self.size) * COVER
        # The exact matrix only loses positive semidefinite terms, so its norm does not grow. The
        # computed one differs from it by at most the error.
        self.size += self.error

    def multiply(self, vector: np.ndarray) -> BoundedProduct:
        """Return the computed product of the matrix with a vector [d], and a bound on its error."""
        # Lemma 10 of docs/proofs/removal.md: the error is at most (gamma_up(d + 2) size + error)
        # times the vector's norm, in any order of summation.
        relative_error = gamma_up(len(vector) + 2) * self.size + self.error
        product_error = relative_error * float(np.linalg.norm(vector)) * COVER
        return BoundedProduct(self.matrix @ vector, product_error)

    def bound_norm(self, vector: np.ndarray) -> float:
        """Return an upper bound on sqrt(v' K v) for the exact matrix K and a vector v.

        Args:
            vector: [d], the vector v.
        """
        product, product_error = self.multiply(vector)
        quadratic_form = float(vector @ product)
        inner_product_error = gamma_up(len(vector) + 2) * float(np.linalg.norm(product))
        form_error = float(np.linalg.norm(vector)) * (product_error + inner_product_error)
        # COVER (slightly above 1) covers the roundings of this bound itself.
        return math.sqrt(max(0.0, quadratic_form) + form_error * COVER) * COVER


@dataclass
class Factor:
    """A Hessian with an approximate inverse, with which linear systems are solved.

    Attributes:
        hessian: the Hessian H, with its error bounds.
        inverse: [d, d] an approximate inverse. Error bounds hold however far it is from the exact
            inverse. None: the inverse is computed when it is needed.
        inversions: the number of times that the inverse was computed from the matrix.
    """

    hessian: BoundedMatrix
    inverse: np.ndarray | None = None
    inversions: int = 0

    def remove(self, rows: np.ndarray, sum_error: float) -> None:
        """Subtract the outer products r r' of rows r from the Hessian, and update the inverse.

        The inverse is set to None if an update would cost as much as a new inverse, or fails.

        Args:
            rows: [m, d] float64, the rows to remove.
            sum_error: a bound on the Frobenius norm of the error of the computed sum, as for
                ``BoundedMatrix.remove``.
        """
        self.hessian.remove(rows, sum_error)
        if self.inverse is None or len(rows) * _MIN_WIDTH_PER_ROW > rows.shape[1]:
            self.inverse = None  # computed again when it is needed
            return
        # Woodbury's formula: (H - R'R)^-1 = P + P R' (I - R P R')^-1 R P, with R the rows and P the
        # inverse of H.
        inverse_times_rows = self.inverse @ rows.T
        try:
            inner = cho_factor(np.eye(len(rows)) - rows @ inverse_times_rows, check_finite=False)
        except LinAlgError:  # P is no longer close to the inverse of a positive definite matrix
            self.inverse = None
            return
        solved_rows = cho_solve(inner, inverse_times_rows.T, check_finite=False)
        self.inverse = self.inverse + inverse_times_rows @ solved_rows

    def solve(self, right_side: np.ndarray) -> Solution:
        """Solve H v = right_side approximately, with a bound on the error that remains.

        The solution is refined until most of its error is rounding. If the inverse is too
        inaccurate for that, after many updates, it is computed again and stored.

        Args:
            right_side: [d], the right side of the linear system.

        Raises:
            UnsoundError: the matrix is not positive definite in floating point.
        """
        refined = self._solve_with_refinement(right_side)
        if refined.computed_error > refined.rounding:
            # After many updates the inverse is too inaccurate, so it is computed again.
            self.inverse = None
            refined = self._solve_with_refinement(right_side)
        # COVER (slightly above 1) covers the roundings of this bound itself.
        return Solution(refined.vector, (refined.computed_error + refined.rounding) * COVER)

    def _solve_with_refinement(self, right_side: np.ndarray) -> _RefinedSolution:
        """Solve H v = right_side by iterative refinement with the approximate inverse.

        If ``inverse`` is None, it is computed and stored first, which ``inversions`` counts.

        Args:
            right_side: [d], the right side of the linear system.

        Raises:
            UnsoundError: the matrix is not positive definite in floating point.
        """
        if self.inverse is None:
            self.inverse = _invert(self.hessian.matrix)
            self.inversions += 1
        right_side_norm = float(np.linalg.norm(right_side))
        solution = np.zeros_like(right_side)
        remainder = right_side
        error = math.inf
        rounding = 0.0
        for _ in range(MAX_REFINEMENTS):
            refined = solution + self.inverse @ remainder
            product, product_error = self.hessian.multiply(refined)
            remainder = right_side - product
            refined_error = float(np.linalg.norm(remainder)) * COVER
            if not refined_error < error / 2:  # a NaN ends here, too
                break
            solution = refined
            error = refined_error
            # COVER (slightly above 1) covers the roundings of this bound itself.
            rounding = (product_error + UNIT * (refined_error + right_side_norm)) * COVER
            if error <= rounding:
                break
        return _RefinedSolution(solution, error, rounding)


def _invert(matrix: np.ndarray) -> np.ndarray:
    """Return the inverse of a positive definite matrix [d, d], by Cholesky decomposition.

    Raises:
        UnsoundError: the matrix is not positive definite in floating point.
    """
    try:
        factor = cho_factor(matrix, check_finite=False)
    except LinAlgError:
        raise UnsoundError(
            "training.weight_decay is too small for these data (the Hessian is not positive "
            "definite in floating point): give a larger one"
        ) from None
    inverse: np.ndarray = cho_solve(factor, np.eye(len(matrix)), check_finite=False)
    return inverse
