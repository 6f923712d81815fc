"""A linear head's strongly convex objective: gradient and Hessian, with bounds on rounding.

For each output, with weights w, records x_i of norm at most 1 and targets t_i, the objective is

    L_b(w) = sum_i l(w.x_i, t_i) + (strength / 2) |w|^2 + b.w.

b is the linear term, named ``tilt`` in the code. Certified removal keeps the minimiser of L_b up to
date (training/removal.py, unlearning/newton.py). ``strength`` does not depend on the number of
records, so a removal does not change the regulariser. Proofs: docs/proofs/objective_gradient.md.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy.linalg.blas import dsyrk
from scipy.special import expit

from agt.data.arrays import block_slices
from agt.numeric import COVER, UNIT, gamma_up
from agt.training.row_sums import BLOCK_ROWS, float64_rows, sum_over_rows

ConvexLossName = Literal["logistic", "least_squares"]

# Rows of one product of a gradient. Fewer rows give a smaller bound on its rounding.
GRADIENT_PIECE_ROWS = 512

# Features of one product of a logit. Fewer features give a smaller bound on its rounding.
LOGIT_CHUNK_COORDINATES = 64

# More than a computed norm can lose by underflow: squares of numbers below 1e-162 are 0.
SQUARE_UNDERFLOW_ALLOWANCE = 1e-150


@dataclass(frozen=True)
class ComputedGradient:
    """A computed gradient of J outputs, with a bound on its rounding error.

    Attributes:
        value: [J, d] float64, one row for each output.
        error: bound on the l2 distance between ``value`` and the exact gradient, over all outputs
            together.
    """

    value: np.ndarray
    error: float

    @property
    def norm_bound(self) -> float:
        """Upper bound on the l2 norm of the exact gradient, over all outputs together."""
        computed_norm = float(np.linalg.norm(self.value))
        # COVER (slightly above 1) covers the roundings of this bound itself.
        return (computed_norm + self.error) * COVER


@dataclass(frozen=True)
class Objective:
    """A regularised loss L_b of J outputs, each of which is a separate minimisation problem.

    The logit of a record x is f = w.x, and t is its target.

    Attributes:
        loss: ``logistic``: log(1 + exp(f)) - t f for targets t in {0, 1}. ``least_squares``: (f -
            t)^2 / 2 for targets in {-1, 1}.
        strength: factor of the regulariser |w|^2 / 2; above 0.
    """

    loss: ConvexLossName
    strength: float

    @property
    def curvature_lipschitz(self) -> float:
        """A Lipschitz constant of the loss's second derivative in the logit, rounded up.

        It is 1 / (6 sqrt 3) for the logistic loss, and 0 for least squares.
        """
        if self.loss == "least_squares":
            return 0.0
        # The largest second derivative of the logistic function.
        lipschitz = 1 / (6 * math.sqrt(3))
        return lipschitz * (1 + 8 * UNIT)  # more than the roundings of the line above

    @property
    def smoothness(self) -> float:
        """The largest second derivative of the loss in the logit.

        It is 1 for least squares, and 1/4 for the logistic loss.
        """
        return 1.0 if self.loss == "least_squares" else 0.25

    def targets(self, labels: np.ndarray, classes: int) -> np.ndarray:
        """Return the regression targets of class labels, one column for each output.

        Two classes have one output, for class 1. More classes have one output each.

        Args:
            labels: [n] integers, from 0 to classes - 1.
            classes: the number of classes, at least 2.

        Returns:
            [n, J] float64: 1 where the record is of the output's class. Elsewhere 0 for the
                logistic loss, -1 for least squares.
        """
        negative = -1.0 if self.loss == "least_squares" else 0.0
        class_of_output = np.arange(1, 2) if classes == 2 else np.arange(classes)
        return np.where(labels[:, None] == class_of_output, 1.0, negative)

    def first_derivatives(self, logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return the derivative of the loss at each logit.

        Args:
            logits: [n, J], one logit for each record and output.
            targets: [n, J] as ``targets`` returns them.

        Returns:
            [n, J]: f - t for least squares, sigmoid(f) - t for the logistic loss.
        """
        if self.loss == "least_squares":
            return logits - targets
        return expit(logits) - targets

    def curvatures(self, logits: np.ndarray) -> np.ndarray:
        """Return the loss's second derivatives, [n, J], at logits [n, J]."""
        if self.loss == "least_squares":
            return np.ones_like(logits)
        probability = expit(logits)
        return probability * (1 - probability)

    def values(
        self, weight: np.ndarray, features: np.ndarray, targets: np.ndarray, tilt: np.ndarray
    ) -> np.ndarray:
        """Return the value of each output's objective, [J], without a bound on its rounding.

        Args:
            weight: [J, d] float64, w.
            features: [n, d] the records' features.
            targets: [n, J] as ``targets`` returns them.
            tilt: [J, d] float64, the linear term b.
        """

        def sum_of_losses(rows: slice) -> tuple[np.ndarray]:
            """Return each output's sum of losses over some rows of the records."""
            logits = float64_rows(features, rows) @ weight.T
            block_targets = targets[rows]
            if self.loss == "least_squares":
                losses = (logits - block_targets) ** 2 / 2
            else:
                losses = np.logaddexp(0, logits) - block_targets * logits
            return (losses.sum(axis=0),)

        # For each output ((strength / 2) w + b).w, the regulariser plus the linear term.
        factor_of_weight = 0.5 * self.strength * weight + tilt
        terms_without_records: np.ndarray = np.einsum("jd,jd->j", factor_of_weight, weight)
        (losses,) = sum_over_rows(len(features), sum_of_losses)
        return terms_without_records + losses

    def gradient(
        self, weight: np.ndarray, features: np.ndarray, targets: np.ndarray, tilt: np.ndarray
    ) -> ComputedGradient:
        """Compute the objective's gradient at some weights, with a bound on its rounding error.

        Args:
            weight: [J, d] float64, w.
            features: [n, d] float32 or float64, the records. The caller must have checked that rows
                have norm at most 1. They are read once, in blocks, so the array may be
                memory-mapped. n may be 0.
            targets: [n, J] as ``targets`` returns them.
            tilt: [J, d] float64, the linear term b.

        Formal guarantees:
            - The exact gradient at these weights is within ``error`` of ``value``, in any order of
              summation (Lemma 1 of docs/proofs/objective_gradient.md).
            - The weights are within ``norm_bound`` / strength of the minimiser, however they were
              found (Lemma 2 of docs/proofs/objective_gradient.md).

        Raises:
            ValueError: targets are of another shape than [n, J], which numpy might broadcast.
        """
        expected = (len(features), len(weight))
        if targets.shape != expected:
            raise ValueError(
                f"the targets have shape {targets.shape}, but should have shape {expected}: one "
                "row per record, one column per output"
            )
        count, width = features.shape

        def sum_of_gradients(rows: slice) -> tuple[np.ndarray, np.ndarray]:
            """Return loss gradients [J, d] and absolute derivatives [J], summed over rows."""
            gradients = np.zeros_like(weight)
            derivative_sums = np.zeros(len(weight))
            for piece in block_slices(rows.stop - rows.start, GRADIENT_PIECE_ROWS, rows.start):
                piece_features = float64_rows(features, piece)
                logits = chunked_logits(piece_features, weight)
                derivatives = self.first_derivatives(logits, targets[piece])
                derivative_sums += np.abs(derivatives).sum(axis=0)
                gradients += derivatives.T @ piece_features
            return gradients, derivative_sums

        loss_gradient, derivative_sums = sum_over_rows(count, sum_of_gradients)
        gradient = self.strength * weight + tilt + loss_gradient
        weight_norms = np.linalg.norm(weight, axis=1)
        tilt_norms = np.linalg.norm(tilt, axis=1)
        regulariser_sizes = self.strength * weight_norms + tilt_norms
        errors = self.gradient_rounding(
            weight_norms, regulariser_sizes, derivative_sums, count, width
        )
        return ComputedGradient(gradient, float(np.linalg.norm(errors)))

    def loss_gradient(
        self, weight: np.ndarray, features: np.ndarray, targets: np.ndarray
    ) -> ComputedGradient:
        """Compute the sum of the records' loss gradients: no regulariser and no linear term.

        Args:
            weight: [J, d] float64, the weights, a row for each output.
            features: [n, d] the records' features.
            targets: [n, J] as ``targets`` returns them.
        """
        without_regulariser = replace(self, strength=0.0)
        no_linear_term = np.zeros_like(weight)
        return without_regulariser.gradient(weight, features, targets, no_linear_term)

    def gradient_rounding(
        self,
        weight_norms: np.ndarray,
        regulariser_sizes: np.ndarray,
        derivative_sums: np.ndarray,
        count: int,
        width: int,
    ) -> np.ndarray:
        """Bound the l2 rounding error of a computed gradient, for each of the J outputs.

        Args:
            weight_norms: [J] |w|.
            regulariser_sizes: [J] strength |w| + |b|, the size of the terms that no record enters.
            derivative_sums: [J] the sum over the records of the loss's absolute first derivatives.
            count: n, the number of records.
            width: d, the number of features.

        Returns:
            [J] upper bounds, one for each output.
        """
        # Lemma 1 of docs/proofs/objective_gradient.md: the error is at most gamma_up(additions)
        # times the summed sizes of all terms, plus the errors of the records' derivatives.
        # ``additions`` is the longest chain of additions that a term goes through.
        # gamma_up(n): the relative error of n roundings in a row, rounded up.
        logit_error = gamma_up(_logit_roundings(width)) * weight_norms
        logistic_error = 0.0 if self.loss == "least_squares" else 8 * UNIT  # of one sigmoid
        derivative_error = self.smoothness * logit_error + logistic_error
        derivative_errors = count * derivative_error + UNIT * derivative_sums
        pieces_of_block = BLOCK_ROWS // GRADIENT_PIECE_ROWS
        pieces = min(math.ceil(count / GRADIENT_PIECE_ROWS), pieces_of_block)
        blocks = math.ceil(count / BLOCK_ROWS)
        additions = min(count, GRADIENT_PIECE_ROWS) + pieces + blocks + 2
        sum_error = gamma_up(additions) * (derivative_sums + regulariser_sizes)
        # COVER (slightly above 1) covers the roundings of this bound itself.
        return (sum_error + derivative_errors) * COVER + SQUARE_UNDERFLOW_ALLOWANCE

    def hessian(self, weight: np.ndarray, features: np.ndarray) -> np.ndarray:
        """Compute the Hessian of the objective at some weights.

        ``hessian_rounding`` bounds the rounding error.

        Args:
            weight: [J, d] float64, the weights, a row for each output.
            features: [n, d] the records' features.

        Returns:
            [J, d, d] float64, symmetric. For least squares [1, d, d], because that Hessian is the
            same for all outputs.
        """
        if self.loss == "least_squares":
            weight = weight[:1]  # every output has the same Hessian
        outputs, width = weight.shape

        def sum_of_hessians(rows: slice) -> tuple[np.ndarray]:
            """Return the losses' Hessians [J, d, d] summed over rows, only the lower triangles."""
            block_features = float64_rows(features, rows)
            logits = chunked_logits(block_features, weight)
            # sum_i l''_i x_i x_i' is the Gram matrix of the rows sqrt(l''_i) x_i.
            roots = np.sqrt(self.curvatures(logits))
            products = []
            for output in range(outputs):
                scaled_rows = block_features * roots[:, output : output + 1]
                products.append(lower_gram(scaled_rows))
            return (np.stack(products),)

        (total,) = sum_over_rows(len(features), sum_of_hessians)
        for matrix in total:
            fill_upper_triangle(matrix)
            matrix[np.diag_indices(width)] += self.strength
        return total

    def hessian_rounding(self, weight: np.ndarray, count: int) -> float:
        """Bound the rounding error of each output's computed Hessian, in the Frobenius norm.

        Args:
            weight: [J, d] the weights at which the Hessian was computed.
            count: the number of records.
        """
        # Lemma 3 of docs/proofs/objective_gradient.md: the error is at most n times the error of a
        # second derivative, plus the rounding of the sum and of its diagonal.
        width = weight.shape[1]
        weight_norms = np.linalg.norm(weight, axis=1)
        max_norm = float(weight_norms.max(initial=0.0))
        curvature_error = 0.0
        if self.curvature_lipschitz:
            # gamma_up(n): the relative error of n roundings in a row, rounded up.
            growth = gamma_up(_logit_roundings(width))
            curvature_error = self.curvature_lipschitz * growth * max_norm + 16 * UNIT
        largest_curvature = self.smoothness + curvature_error
        blocks = math.ceil(count / BLOCK_ROWS)
        additions = min(count, BLOCK_ROWS) + blocks + 8
        sum_error = gamma_up(additions) * largest_curvature * count
        diagonal_error = 2 * UNIT * math.sqrt(width) * self.strength
        error = count * curvature_error + (sum_error + diagonal_error)
        # COVER (slightly above 1) covers the roundings of this bound itself.
        return error * COVER + SQUARE_UNDERFLOW_ALLOWANCE


def gram(features: np.ndarray) -> np.ndarray:
    """Compute the Gram matrix X'X of the features X.

    ``gram_rounding`` bounds the rounding error.

    Args:
        features: [n, d] float32 or float64; may be memory-mapped.

    Returns:
        [d, d] float64, symmetric.
    """

    def gram_of_rows(rows: slice) -> tuple[np.ndarray]:
        """Return the lower triangle of the Gram matrix of some rows, as the only array."""
        return (lower_gram(float64_rows(features, rows)),)

    (total,) = sum_over_rows(len(features), gram_of_rows)
    fill_upper_triangle(total)
    return total


def gram_rounding(count: int) -> float:
    """Return a bound on the Frobenius norm of the rounding error of a computed Gram matrix.

    Args:
        count: the number of records. Each must have norm at most 1.
    """
    # Lemma 4 of docs/proofs/objective_gradient.md: each of the n terms x x' has norm at most 1.
    # COVER (slightly above 1) covers the roundings of this bound itself.
    return sum_rounding(count) * count * COVER + SQUARE_UNDERFLOW_ALLOWANCE


def sum_rounding(count: int) -> float:
    """Return a bound on the rounding error of a sum by ``sum_over_rows``.

    Each term is one product. The bound is relative to the summed sizes of all terms; ``gram`` adds
    products of blocks in this way.

    Args:
        count: the number of records.
    """
    # Lemma 4 of docs/proofs/objective_gradient.md: no term goes through more additions than these.
    blocks = math.ceil(count / BLOCK_ROWS)
    additions = min(count, BLOCK_ROWS) + blocks + 2
    return gamma_up(additions)


def chunked_logits(features: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Compute logits as a sum over chunks of ``LOGIT_CHUNK_COORDINATES`` features.

    Its rounding error is smaller than that of one product over all features.

    Args:
        features: [n, d] float64, the features of the records.
        weight: [J, d] float64, the weights, a row for each output.

    Returns:
        [n, J] float64.
    """
    total = np.zeros((len(features), len(weight)))
    for chunk in block_slices(features.shape[1], LOGIT_CHUNK_COORDINATES):
        total += features[:, chunk] @ weight[:, chunk].T
    return total


def _logit_roundings(width: int) -> int:
    """Return the number of roundings of one product of a logit in ``chunked_logits``.

    They are the additions of its own chunk, and those of the chunks' sums.

    Args:
        width: the number of features.
    """
    return LOGIT_CHUNK_COORDINATES + math.ceil(width / LOGIT_CHUNK_COORDINATES)


def lower_gram(rows: np.ndarray) -> np.ndarray:
    """Compute the lower triangle of the Gram matrix of rows, with zeros above the diagonal.

    It takes half the time of a full product.

    Args:
        rows: [n, d] float64, the rows whose outer products are summed.

    Returns:
        [d, d] float64, newly made. (BLAS could also add the product to an existing total, but would
        then round the whole total once for each of its internal panels.)
    """
    # ``dsyrk`` computes the upper triangle of A A' for A = rows'. Its transpose is the lower one.
    return dsyrk(1.0, rows.T).T


def fill_upper_triangle(matrix: np.ndarray) -> None:
    """Copy the lower triangle of a square matrix to its upper triangle, in place."""
    # Row by row, because a whole transpose would need memory for a second matrix.
    for row in range(len(matrix)):
        matrix[row, row + 1 :] = matrix[row + 1 :, row]
