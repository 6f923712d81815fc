"""Approximate weights of a minimiser without each person's records, by one Newton step each.

The weights of ``certificate=erm`` minimise a strongly convex loss. For each person, one Newton step
from them gives approximate weights without the person's records, and a radius bounds the distance
from these to the weights that training again gives. The steps of all people are computed at once,
from matrices of the size of the weights. Proofs: docs/proofs/influence.md.
"""

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit

from agt.data.arrays import block_slices
from agt.models.linear import LinearModel
from agt.numeric import COVER, UNIT, gamma_up, labels_of
from agt.training.linear import loss_derivative
from agt.training.objective import (
    fill_upper_triangle,
    gram,
    gram_rounding,
    lower_gram,
    sum_rounding,
)
from agt.training.row_sums import BLOCK_ROWS, float64_rows, sum_over_rows
from agt.training.sensitivity import LinearLoss

# How often the solution of a linear system is refined. Each time its error is multiplied by the
# leverage of the person's records.
REFINEMENTS = 4
MAX_THIRD_DERIVATIVE = 1 / (6 * math.sqrt(3))  # of the logistic loss in the logit
MAX_SECOND_DERIVATIVE = 0.25  # of the logistic loss in the logit
# More than the rounding error of a computed sigmoid and of the operations after it.
SIGMOID_ROUNDING = 8 * UNIT
PEOPLE_AT_ONCE = 256  # the number of people whose logits of all queries are in memory together


@dataclass(frozen=True)
class LabelsWithout:
    """Labels of queries without each person's records.

    Attributes:
        labels: [P, n] int64, the label that w plus the person's step gives each query.
        is_proved: [P, n] bool, whether training without the person's records provably gives it.
    """

    labels: np.ndarray
    is_proved: np.ndarray


@dataclass(frozen=True)
class MinimisersWithout:
    """Approximate weights of a linear head without each person's records, with their errors.

    Attributes:
        weight: [J, d] float64, w, the trained weights of the J outputs.
        steps: [P, J, d] float64, the Newton step from w for each of P people.
        radii: [P, J], for each person and output, a bound on the l2 distance between w plus the
            step and the weights that training without the person's records gives.
    """

    weight: np.ndarray
    steps: np.ndarray
    radii: np.ndarray

    @classmethod
    def from_head(
        cls,
        head: LinearModel,
        features: np.ndarray,
        labels: np.ndarray,
        people: Sequence[np.ndarray],
    ) -> "MinimisersWithout":
        """Compute a step and its radius for each person.

        Formal guarantees:
            - For each output, the weights that training without a person's records returns are
              within the radius of w plus the step (Lemma 3 of docs/proofs/influence.md). This
              holds if that training has the same loss, strength and normaliser. It does not depend
              on how w was computed, because the gradient at w is measured.

        Args:
            head: the trained head, of a kind with a ``minimiser_tolerance``; its loss has to be
                covered (``is_loss_covered``).
            features: [n, d] public features of all training records, rows of norm at most 1.
            labels: [n] int64, their labels.
            people: an array for each person, with the row numbers of the person's records.

        Raises:
            ValueError: the head is of a kind without a ``minimiser_tolerance``.
        """
        tolerance = head.settings.certificate.minimiser_tolerance
        if tolerance is None:
            raise ValueError("the head was not trained to a tolerance, so its radius is not known")
        weight = head.trained.weight.numpy()
        outputs, width = weight.shape
        steps = np.zeros((len(people), outputs, width))
        radii = np.zeros((len(people), outputs))
        gram_matrix = gram(features)
        counts = np.array([len(rows) for rows in people], dtype=np.int64)
        removed = np.concatenate(people)
        owners = np.repeat(np.arange(len(people)), counts)
        for output in range(outputs):
            problem = _OutputProblem.from_head(
                head, features, labels, output=output, gram_matrix=gram_matrix, tolerance=tolerance
            )
            removed_rows = _RemovedRows(
                features=np.asarray(features[removed], dtype=np.float64),
                slopes=problem.slopes[removed],
                curvatures=problem.curvatures[removed],
                owners=owners,
                counts=counts,
            )
            gradients = removed_rows.sum_by_person(removed_rows.slopes) - problem.gradient
            steps_of_output = problem.newton_steps(gradients, removed_rows)
            steps[:, output] = steps_of_output
            radii[:, output] = problem.radii(steps_of_output, gradients, removed_rows)
        return cls(weight, steps, radii)

    def labels(self, phi: np.ndarray) -> LabelsWithout:
        """Return each query's label without each person's records, and where it is proved.

        Proof: Lemma 4 of docs/proofs/influence.md.

        Args:
            phi: [n, d] the public features of the queries, rows of norm at most 1.
        """
        queries = phi.astype(np.float64, copy=False)
        people = len(self.steps)
        labels = np.zeros((people, len(queries)), dtype=np.int64)
        is_proved = np.zeros((people, len(queries)), dtype=bool)
        trained_logits = queries @ self.weight.T  # [n, J]
        norms = np.linalg.norm(queries, axis=1) * COVER
        error_bounds = self._logit_error_bounds()
        for chunk in block_slices(people, PEOPLE_AT_ONCE):
            changes = np.einsum("nd,pjd->pnj", queries, self.steps[chunk], optimize=True)
            logits = trained_logits + changes
            errors = norms[:, None] * error_bounds[chunk][:, None, :]
            labels[chunk] = _labels_of_people(logits)
            is_proved[chunk] = _are_certain(logits, errors, labels[chunk])
        return LabelsWithout(labels, is_proved)

    def _logit_error_bounds(self) -> np.ndarray:
        """Return bounds [P, J] on the error of a logit at features of norm 1.

        The error is the distance between two computed logits: that of w plus the step, and that of
        the weights that training without the person's records gives.
        """
        # Lemma 4 of docs/proofs/influence.md: the radius, plus the rounding of both logits.
        width = self.weight.shape[1]
        lengths = np.linalg.norm(self.weight, axis=1) + np.linalg.norm(self.steps, axis=2)
        rounding = 2 * gamma_up(width + 4) * (lengths + self.radii)
        error_bounds: np.ndarray = (self.radii + rounding) * COVER
        return error_bounds


def is_loss_covered(loss: LinearLoss) -> bool:
    """Return whether the radius is proved for a loss: for logistic losses, clamped or not."""
    return loss.kind in ("binary", "one_vs_all")


def _labels_of_people(logits: np.ndarray) -> np.ndarray:
    """Return the labels, [P, n] int64, of logits [P, n, J] of n queries for each of P people."""
    people, count, outputs = logits.shape
    return labels_of(logits.reshape(-1, outputs)).reshape(people, count)


def _are_certain(logits: np.ndarray, errors: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return whether all logits within some errors have the same label, [P, n] bool.

    Args:
        logits: [P, n, J], for each person the logits of the queries.
        errors: [P, n, J] bounds on how far the exact logits may be from these.
        labels: [P, n] the labels of the logits.
    """
    if logits.shape[2] == 1:
        return np.abs(logits[..., 0]) > errors[..., 0]
    winner = labels[..., None]
    lowest_winner = np.take_along_axis(logits - errors, winner, axis=2)[..., 0]
    highest_others = logits + errors
    np.put_along_axis(highest_others, winner, -np.inf, axis=2)
    return lowest_winner > highest_others.max(axis=2)


@dataclass(frozen=True)
class _RemovedRows:
    """The records of all people, as seen by one output; a record of two people has two rows.

    Attributes:
        features: [m, d] float64, the public features of the m rows.
        slopes: [m] the first derivatives of their losses in the logit, at the trained weights.
        curvatures: [m] the second derivatives.
        owners: [m] the index of the person that each record belongs to.
        counts: [P], the numbers of records of the people.
    """

    features: np.ndarray
    slopes: np.ndarray
    curvatures: np.ndarray
    owners: np.ndarray
    counts: np.ndarray

    def sum_by_person(self, factors: np.ndarray) -> np.ndarray:
        """Return, for each person, the sum of factor times features over the person's rows, [P, d].

        Args:
            factors: [m], one for each row.
        """
        total = np.zeros((len(self.counts), self.features.shape[1]))
        np.add.at(total, self.owners, factors[:, None] * self.features)
        return total

    def curvature_times(self, steps: np.ndarray) -> np.ndarray:
        """Return, for each person, the Hessian of the person's losses times a vector, [P, d].

        Args:
            steps: [P, d], a vector for each person.
        """
        logit_changes = np.einsum("md,md->m", self.features, steps[self.owners])
        return self.sum_by_person(self.curvatures * logit_changes)


@dataclass(frozen=True)
class _OutputProblem:
    """The minimisation problem of one output over all records, expanded at the trained weights w.

    The objective is F(w) = sum_j l(y_j, w.x_j) + (s / 2) |w|^2, the sum over all training records.
    "As computed" means with rounding errors, which the attribute after it bounds.

    Attributes:
        strength: s.
        tolerance: a bound on the norm of the gradient at the weights of training again.
        gradient: [d] the gradient of F at w, as computed.
        gradient_error: a bound on the l2 norm of its error.
        slopes: [n] l'_j, the first derivatives of the records' losses in the logit.
        curvatures: [n] l''_j, the second derivatives; 0 where the derivative is clamped.
        slope_error: a bound on the error of each computed slope.
        curvature_error: a bound on the error of each computed curvature, except where the logit may
            be on the other side of a kink, which ``kink_distances`` takes into account.
        hessian: [d, d] of F at w, as computed.
        hessian_error: a bound on the Frobenius norm of its error.
        gram_matrix: [d, d] the sum of x_j x_j'.
        gram_error: a bound on the Frobenius norm of its error.
        kink_distances: [k], ascending: for each record whose logit may reach a kink of the clamped
            loss, the length of the shortest step at which it may.
        kink_squares: [k + 1], item i is a bound on the sum of |x_j|^2 over the first i of these
            records.
    """

    strength: float
    tolerance: float
    gradient: np.ndarray
    gradient_error: float
    slopes: np.ndarray
    curvatures: np.ndarray
    slope_error: float
    curvature_error: float
    hessian: np.ndarray
    hessian_error: float
    gram_matrix: np.ndarray
    gram_error: float
    kink_distances: np.ndarray
    kink_squares: np.ndarray

    @classmethod
    def from_head(
        cls,
        head: LinearModel,
        features: np.ndarray,
        labels: np.ndarray,
        output: int,
        gram_matrix: np.ndarray,
        tolerance: float,
    ) -> "_OutputProblem":
        """Compute the quantities that the steps of all people share.

        Args:
            head: the trained head.
            features: [n, d] public features of all training records.
            labels: [n] int64, their labels.
            output: the index of the output.
            gram_matrix: [d, d] ``gram`` of the features.
            tolerance: the bound on the norm of the gradient at which training stops, for the mean
                loss over the normaliser.
        """
        trained = head.trained
        count, width = features.shape
        weight = trained.weight.numpy()
        logits, squares = _logits_and_squares(features, weight)
        derivatives = loss_derivative(
            trained.loss, torch.from_numpy(logits), torch.from_numpy(labels)
        )
        slopes = derivatives.numpy()[:, output]
        sigmoids = expit(logits[:, output])
        bound = trained.loss.derivative_bound
        # Where the derivative is clamped, it is constant, so the second derivative is 0.
        curvatures = np.where(np.abs(slopes) < bound, sigmoids * (1 - sigmoids), 0.0)
        strength = trained.training.weight_decay * trained.plan.normalizer
        hessian = _weighted_gram(features, curvatures)
        hessian[np.diag_indices(width)] += strength
        gradient = strength * weight[output] + _weighted_sum(features, slopes)
        # Bounds on rounding: of the logits, and of all that is computed from them.
        length = float(np.linalg.norm(weight[output])) * COVER
        logit_error = gamma_up(width + 2) * length
        slope_error = MAX_SECOND_DERIVATIVE * logit_error + SIGMOID_ROUNDING
        curvature_error = MAX_THIRD_DERIVATIVE * logit_error + SIGMOID_ROUNDING
        sizes = float(np.abs(slopes).sum()) + strength * length
        gradient_error = (sum_rounding(count) + 2 * UNIT) * sizes + count * slope_error
        hessian_error = gram_rounding(count) + count * (curvature_error + 4 * UNIT)
        hessian_error += 2 * UNIT * float(np.linalg.norm(hessian))
        gram_error = gram_rounding(count)
        gram_error += gamma_up(2 * width + 4) * float(np.linalg.norm(gram_matrix))
        # Lower bounds on the distances of logits from the kinks of the loss, where clamping begins.
        distances = _kink_distances(logits[:, output], labels, bound, output, head.problem.classes)
        distances = distances * (1 - SIGMOID_ROUNDING) - logit_error - SIGMOID_ROUNDING
        kink_steps, kink_squares = _kinks_by_step(np.maximum(distances, 0.0), squares)
        return cls(
            strength=strength,
            # A bound on the gradient of the mean over the normaliser, turned into one of the sum.
            tolerance=tolerance * trained.plan.normalizer * COVER,
            gradient=gradient,
            gradient_error=gradient_error * COVER,
            slopes=slopes,
            curvatures=curvatures,
            slope_error=slope_error,
            curvature_error=curvature_error,
            hessian=hessian,
            hessian_error=hessian_error * COVER,
            gram_matrix=gram_matrix,
            gram_error=gram_error * COVER,
            kink_distances=kink_steps,
            kink_squares=kink_squares,
        )

    def newton_steps(self, gradients: np.ndarray, removed: _RemovedRows) -> np.ndarray:
        """Return a Newton step for each person, [P, d].

        If the Hessian is not positive definite in floating point, the steps are 0.

        Args:
            gradients: [P, d], for each person minus the gradient, at the trained weights, of the
                problem without the person's records.
            removed: the records of all people.
        """
        # All people share one factorisation, of the Hessian with their records. The refinement
        # corrects for each person's part of it.
        steps = np.zeros_like(gradients)
        with contextlib.suppress(np.linalg.LinAlgError):
            factor = cho_factor(self.hessian, check_finite=False)
            for _ in range(REFINEMENTS):
                remainders = self._remainders(steps, gradients, removed)
                steps = steps + cho_solve(factor, remainders.T, check_finite=False).T
        return steps

    def _remainders(
        self, steps: np.ndarray, gradients: np.ndarray, removed: _RemovedRows
    ) -> np.ndarray:
        """Return g - H D for each person, [P, d]: what the step D leaves of the gradient g.

        H is the Hessian without the person's records. The arguments are those of ``radii``.
        """
        return gradients - steps @ self.hessian + removed.curvature_times(steps)

    def radii(self, steps: np.ndarray, gradients: np.ndarray, removed: _RemovedRows) -> np.ndarray:
        """Return bounds [P] on the distances from the steps to training without each person.

        They are valid for any steps.

        Args:
            steps: [P, d], a step of the weights for each person.
            gradients: [P, d], minus the gradients that the steps should undo, as computed.
            removed: the records of all people.
        """
        counts = removed.counts
        remainders = np.linalg.norm(self._remainders(steps, gradients, removed), axis=1)
        lengths = np.linalg.norm(steps, axis=1) * COVER
        # Lemma 2 of docs/proofs/influence.md: the Hessian changes along the step by at most the
        # third derivative, and where a record reaches a kink by at most the second one.
        quadratic_forms = np.einsum("pd,pd->p", steps @ self.gram_matrix, steps)
        quadratic_forms = quadratic_forms + self.gram_error * lengths**2
        reached = np.searchsorted(self.kink_distances, lengths, side="right")
        curvature_change = MAX_THIRD_DERIVATIVE / 2 * np.maximum(quadratic_forms, 0.0)
        kink_change = MAX_SECOND_DERIVATIVE * lengths * self.kink_squares[reached]
        # Lemma 3 of docs/proofs/influence.md: what rounding hides in the remainder.
        width = steps.shape[1]
        size = float(np.linalg.norm(self.hessian))
        terms = size * lengths + counts * (2 + lengths) + 2 * np.linalg.norm(gradients, axis=1)
        rounding = gamma_up(width + counts.max(initial=0) + 9) * terms
        rounding = rounding + self.hessian_error * lengths
        rounding = rounding + counts * (self.slope_error + self.curvature_error * lengths)
        remaining_gradient = self.tolerance + self.gradient_error + remainders + rounding
        gradient_bound = remaining_gradient + curvature_change + kink_change
        radii: np.ndarray = gradient_bound / self.strength * COVER
        return radii


def _logits_and_squares(features: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the logits [n, J] of records, and the squared lengths [n] of their features.

    Args:
        features: [n, d], the features of the records.
        weight: [J, d], one row for each logit.
    """
    count = len(features)
    logits = np.zeros((count, len(weight)))
    squares = np.zeros(count)
    for rows in block_slices(count, BLOCK_ROWS):
        block = float64_rows(features, rows)
        logits[rows] = block @ weight.T
        squares[rows] = np.einsum("nd,nd->n", block, block)
    return logits, squares


def _kinks_by_step(distances: np.ndarray, squares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the lengths of a step from which on each record may reach a kink of its clamped loss.

    A step D changes the logit of a record x by at most |D| |x|.

    Args:
        distances: [n] lower bounds on the distance of each record's logit from a kink; infinite for
            a loss without one.
        squares: [n] |x_j|^2, as computed.

    Returns:
        (``kink_distances`` [k], ``kink_squares`` [k + 1]), as ``_OutputProblem`` has them.
    """
    lengths = np.sqrt(squares) * COVER
    may_reach = np.isfinite(distances) & (lengths > 0)
    min_steps = distances[may_reach] / lengths[may_reach] / COVER
    order = np.argsort(min_steps)
    sums = np.cumsum(squares[may_reach][order])
    sum_bounds = np.concatenate([[0.0], sums]) * (COVER + gamma_up(len(squares)))
    return min_steps[order], sum_bounds


def _weighted_gram(features: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the sum of weight_j x_j x_j' over records x_j, [d, d].

    Args:
        features: [n, d] float32 or float64; may be memory-mapped.
        weights: [n], at least 0.
    """
    roots = np.sqrt(weights)

    def gram_of_rows(rows: slice) -> tuple[np.ndarray]:
        """Return the part of the sum over some rows, as a lower triangle."""
        return (lower_gram(float64_rows(features, rows) * roots[rows, None]),)

    (total,) = sum_over_rows(len(features), gram_of_rows)
    fill_upper_triangle(total)
    return total


def _weighted_sum(features: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the sum of weight_j x_j over records x_j, [d].

    ``sum_rounding`` bounds the rounding error.

    Args:
        features: [n, d] float32 or float64; may be memory-mapped.
        weights: [n], a factor for each record.
    """

    def sum_of_rows(rows: slice) -> tuple[np.ndarray]:
        """Return the part of the sum over some rows."""
        return (weights[rows] @ float64_rows(features, rows),)

    (total,) = sum_over_rows(len(features), sum_of_rows)
    return total


def _kink_distances(
    logits: np.ndarray, labels: np.ndarray, bound: float, output: int, classes: int
) -> np.ndarray:
    """Return a lower bound on the distance of each record's logit from a kink of its loss.

    The bound is 0 if the computed derivative may be that of the other side of the kink.

    Args:
        logits: [n] of one output.
        labels: [n] int64, the labels of the records.
        bound: C, at which the derivative sigmoid(f) - t is clamped.
        output: the index of the output, which is its class if there are more than two.
        classes: the number of classes.

    Returns:
        [n] distances, at least 0; infinite if C is at least 1, because then nothing is clamped.
    """
    if bound >= 1:
        return np.full(len(logits), np.inf)
    target_class = 1 if classes == 2 else output
    # sigmoid(f) is C for records of target 0, and 1 - C for records of target 1.
    kink = math.log(bound / (1 - bound))
    kinks = np.where(labels == target_class, -kink, kink)
    # A computed sigmoid may lie on the other side of C although the logit is this far from the
    # kink, because the sigmoid's slope there is only C (1 - C).
    sigmoid_error = 2 * SIGMOID_ROUNDING / (bound * (1 - bound))
    distances: np.ndarray = np.maximum(np.abs(logits - kinks) - sigmoid_error, 0.0)
    return distances
