"""A linear head's strongly convex objective: gradient and Hessian, with bounds on rounding.

For each output, with weights w, records x_i of norm at most 1 and targets t_i,

    L_b(w) = sum_i l(w.x_i, t_i) + (strength / 2) |w|^2 + b.w.

Certified removal keeps the minimiser of L_b up to date (training/removal.py, unlearning/newton.py).
``strength`` does not depend on the number of records, so a removal leaves the regulariser alone.
Proofs: docs/proofs/objective_gradient.md.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy.linalg.blas import dsyrk
from scipy.special import expit

from agt.numeric import COVER, UNIT, gamma_up
from agt.training.row_sums import BLOCK_ROWS, float64_rows, row_blocks, sum_over_rows

ConvexLossName = Literal["logistic", "least_squares"]

# Rows of one product of a gradient: the fewer, the smaller the bound on its rounding.
GRADIENT_PIECE_ROWS = 512

# Coordinates of one product of a logit, likewise.
LOGIT_CHUNK_COORDINATES = 64

# More than underflow takes of a norm, since squares of numbers below 1e-162 vanish.
SQUARE_UNDERFLOW_ALLOWANCE = 1e-150


@dataclass(frozen=True)
class ComputedGradient:
    """A computed gradient, with a bound on its rounding error.

    Attributes:
        value: [J, d] float64.
        error: bound on the l2 distance between ``value`` and the exact gradient, over all outputs.
    """

    value: np.ndarray
    error: float

    @property
    def norm_bound(self) -> float:
        """Upper bound on the exact gradient's l2 norm, over all outputs."""
        computed_norm = float(np.linalg.norm(self.value))
        return (computed_norm + self.error) * COVER


@dataclass(frozen=True)
class Objective:
    """The loss and the regulariser of J outputs, each with weights and a problem of its own.

    Attributes:
        loss: ``logistic``: log(1 + exp(f)) - t f for targets t in {0, 1}; ``least_squares``:
            (f - t)^2 / 2 for targets in {-1, 1}; f is the logit w.x.
        strength: factor of |w|^2 / 2, above 0.
    """

    loss: ConvexLossName
    strength: float

    @property
    def curvature_lipschitz(self) -> float:
        """The Lipschitz constant of l'' in the logit, rounded up; 0 for least squares."""
        if self.loss == "least_squares":
            return 0.0
        # The largest second derivative of the logistic function.
        lipschitz = 1 / (6 * math.sqrt(3))
        return lipschitz * (1 + 8 * UNIT)

    @property
    def smoothness(self) -> float:
        """The largest l'': 1 for least squares, 1/4 for the logistic loss."""
        return 1.0 if self.loss == "least_squares" else 0.25

    def targets(self, labels: np.ndarray, classes: int) -> np.ndarray:
        """Encode labels as targets: one output for two classes, else one for each class.

        Args:
            labels: [n] integers, 0 to classes - 1.
            classes: the number of classes.

        Returns:
            [n, J] float64: 1 where a record is of the output's class (class 1 if there are two),
            else 0; for least squares 1 and -1.
        """
        negative = -1.0 if self.loss == "least_squares" else 0.0
        class_of_output = np.arange(1, 2) if classes == 2 else np.arange(classes)
        return np.where(labels[:, None] == class_of_output, 1.0, negative)

    def first_derivatives(self, logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return l', the loss's derivative at each logit; all arrays are [n, J]."""
        if self.loss == "least_squares":
            return logits - targets
        return expit(logits) - targets

    def curvatures(self, logits: np.ndarray) -> np.ndarray:
        """Return l'', the loss's second derivative at each of the [n, J] logits."""
        if self.loss == "least_squares":
            return np.ones_like(logits)
        probability = expit(logits)
        return probability * (1 - probability)

    def values(
        self, weight: np.ndarray, features: np.ndarray, targets: np.ndarray, tilt: np.ndarray
    ) -> np.ndarray:
        """Return [J] the value of L_b for each output, without a bound on its rounding.

        Args:
            weight, tilt: [J, d] float64, w and b.
            features, targets: the records, as for ``gradient``.
        """

        def sum_of_losses(rows: slice) -> tuple[np.ndarray]:
            logits = float64_rows(features, rows) @ weight.T
            block_targets = targets[rows]
            if self.loss == "least_squares":
                losses = (logits - block_targets) ** 2 / 2
            else:
                losses = np.logaddexp(0, logits) - block_targets * logits
            return (losses.sum(axis=0),)

        factor_of_weight = 0.5 * self.strength * weight + tilt
        without_records: np.ndarray = np.einsum("jd,jd->j", factor_of_weight, weight)
        (losses,) = sum_over_rows(len(features), sum_of_losses)
        return without_records + losses

    def gradient(
        self, weight: np.ndarray, features: np.ndarray, targets: np.ndarray, tilt: np.ndarray
    ) -> ComputedGradient:
        """Compute the gradient of L_b at some weights, with a bound on its rounding error.

        Args:
            weight, tilt: [J, d] float64, w and b.
            features: [n, d] float32 or float64, rows of norm at most 1, which the caller has
                checked; read once, in blocks, so it may be memory-mapped.
            targets: [n, J] as ``targets`` returns them.

        Formal guarantees:
            - The exact gradient at exactly these weights is within ``error`` of ``value``, in any
              order of summation (Lemma 1 of docs/proofs/objective_gradient.md).
            - The weights are within ``norm_bound`` / strength of the minimiser, whatever made them
              (Lemma 2 of docs/proofs/objective_gradient.md).
            - No records (n = 0) are allowed: the gradient is that of the regulariser and of b.

        Raises:
            ValueError: targets are of another shape than [n, J], which numpy might broadcast.
        """
        if targets.shape != (len(features), len(weight)):
            raise ValueError(
                f"the targets have shape {targets.shape}, but need "
                f"{(len(features), len(weight))}: one row per record, one column per output"
            )
        count, width = features.shape

        def sum_of_gradients(rows: slice) -> tuple[np.ndarray, np.ndarray]:
            gradients = np.zeros_like(weight)
            sizes = np.zeros(len(weight))
            for piece in row_blocks(rows.stop - rows.start, GRADIENT_PIECE_ROWS, rows.start):
                x = float64_rows(features, piece)
                logits = chunked_logits(x, weight)
                derivatives = self.first_derivatives(logits, targets[piece])
                sizes += np.abs(derivatives).sum(axis=0)
                gradients += derivatives.T @ x
            return gradients, sizes

        loss_gradient, sizes = sum_over_rows(count, sum_of_gradients)
        gradient = self.strength * weight + tilt + loss_gradient
        lengths = np.linalg.norm(weight, axis=1)
        tilt_lengths = np.linalg.norm(tilt, axis=1)
        without_records = self.strength * lengths + tilt_lengths
        errors = self.gradient_rounding(lengths, without_records, sizes, count, width)
        return ComputedGradient(gradient, float(np.linalg.norm(errors)))

    def loss_gradient(
        self, weight: np.ndarray, features: np.ndarray, targets: np.ndarray
    ) -> ComputedGradient:
        """Compute the sum of the records' loss gradients, without the regulariser and b.

        Args:
            weight, features, targets: as for ``gradient``.
        """
        without_regulariser = replace(self, strength=0.0)
        no_tilt = np.zeros_like(weight)
        return without_regulariser.gradient(weight, features, targets, no_tilt)

    def gradient_rounding(
        self,
        lengths: np.ndarray,
        without_records: np.ndarray,
        sizes: np.ndarray,
        count: int,
        width: int,
    ) -> np.ndarray:
        """Bound the rounding error of a computed gradient, for each output.

        Args:
            lengths: [J] |w|.
            without_records: [J] strength |w| + |b|.
            sizes: [J] sum over the records of |l'|.
            count: n, the number of records.
            width: d, the number of features.

        Returns:
            [J] bounds on the l2 error of each output's gradient.
        """
        # Lemma 1 of docs/proofs/objective_gradient.md
        logit_error = gamma_up(_logit_roundings(width)) * lengths
        logistic_error = 0.0 if self.loss == "least_squares" else 8 * UNIT
        derivative_error = self.smoothness * logit_error + logistic_error
        derivative_errors = count * derivative_error + UNIT * sizes
        pieces_of_block = BLOCK_ROWS // GRADIENT_PIECE_ROWS
        pieces = min(math.ceil(count / GRADIENT_PIECE_ROWS), pieces_of_block)
        blocks = math.ceil(count / BLOCK_ROWS)
        additions = min(count, GRADIENT_PIECE_ROWS) + pieces + blocks + 2
        sum_error = gamma_up(additions) * (sizes + without_records)
        return (sum_error + derivative_errors) * COVER + SQUARE_UNDERFLOW_ALLOWANCE

    def hessian(self, weight: np.ndarray, features: np.ndarray) -> np.ndarray:
        """Compute the Hessian of L_b.

        Args:
            weight: [J, d] float64.
            features: as for ``gradient``.

        Returns:
            [J, d, d] float64, symmetric; [1, d, d] for least squares, whose Hessian does not
            depend on the output. ``hessian_rounding`` bounds its error.
        """
        if self.loss == "least_squares":
            weight = weight[:1]
        outputs, width = weight.shape

        def sum_of_hessians(rows: slice) -> tuple[np.ndarray]:
            x = float64_rows(features, rows)
            logits = chunked_logits(x, weight)
            roots = np.sqrt(self.curvatures(logits))
            products = [lower_gram(x * roots[:, output : output + 1]) for output in range(outputs)]
            return (np.stack(products),)

        (total,) = sum_over_rows(len(features), sum_of_hessians)
        for matrix in total:
            fill_upper_triangle(matrix)
            matrix[np.diag_indices(width)] += self.strength
        return total

    def hessian_rounding(self, weight: np.ndarray, count: int) -> float:
        """Bound the Frobenius error of each output's computed Hessian.

        Args:
            weight: [J, d] where the Hessian was taken.
            count: the number of records.
        """
        # Lemma 3 of docs/proofs/objective_gradient.md
        width = weight.shape[1]
        lengths = np.linalg.norm(weight, axis=1)
        max_length = float(lengths.max(initial=0.0))
        curvature_error = 0.0
        if self.curvature_lipschitz:
            growth = gamma_up(_logit_roundings(width))
            curvature_error = self.curvature_lipschitz * growth * max_length + 16 * UNIT
        largest_curvature = self.smoothness + curvature_error
        blocks = math.ceil(count / BLOCK_ROWS)
        additions = min(count, BLOCK_ROWS) + blocks + 8
        sum_error = gamma_up(additions) * largest_curvature * count
        diagonal_error = 2 * UNIT * math.sqrt(width) * self.strength
        error = count * curvature_error + (sum_error + diagonal_error)
        return error * COVER + SQUARE_UNDERFLOW_ALLOWANCE


def gram(features: np.ndarray) -> np.ndarray:
    """Compute X'X, the Gram matrix of the features.

    Args:
        features: [n, d] as for ``Objective.gradient``.

    Returns:
        [d, d] float64, symmetric. ``gram_rounding`` bounds its error.
    """

    def gram_of_rows(rows: slice) -> tuple[np.ndarray]:
        return (lower_gram(float64_rows(features, rows)),)

    (total,) = sum_over_rows(len(features), gram_of_rows)
    fill_upper_triangle(total)
    return total


def gram_rounding(count: int) -> float:
    """Bound the Frobenius error of the computed Gram matrix of ``count`` records.

    Each record must have norm at most 1.
    """
    # Lemma 4 of docs/proofs/objective_gradient.md
    blocks = math.ceil(count / BLOCK_ROWS)
    additions = min(count, BLOCK_ROWS) + blocks + 2
    return gamma_up(additions) * count * COVER + SQUARE_UNDERFLOW_ALLOWANCE


def chunked_logits(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Compute logits, ``LOGIT_CHUNK_COORDINATES`` coordinates at a time, which rounds less.

    Args:
        x: [n, d] float64.
        weight: [J, d] float64.

    Returns:
        [n, J] float64.
    """
    total = np.zeros((len(x), len(weight)))
    for chunk in row_blocks(x.shape[1], LOGIT_CHUNK_COORDINATES):
        total += x[:, chunk] @ weight[:, chunk].T
    return total


def _logit_roundings(width: int) -> int:
    """Return how many roundings one term of a logit takes part in (``chunked_logits``)."""
    return LOGIT_CHUNK_COORDINATES + math.ceil(width / LOGIT_CHUNK_COORDINATES)


def lower_gram(x: np.ndarray) -> np.ndarray:
    """Compute the lower triangle of x'x, with zeros above, in half the time of a full product.

    The product is a fresh matrix. Accumulated by BLAS into a total, each of its panels would round
    all of the total.

    Args:
        x: [n, d] float64.

    Returns:
        [d, d] float64.
    """
    return dsyrk(1.0, x.T).T


def fill_upper_triangle(matrix: np.ndarray) -> None:
    """Copy the lower triangle of a square matrix to the upper one, in place."""
    # Row by row, so that no second matrix is needed.
    for row in range(len(matrix)):
        matrix[row, row + 1 :] = matrix[row + 1 :, row]
