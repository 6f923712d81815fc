"""Logistic regression of two classes with an L2 regulariser and a linear term, and its solver.

The solver verifies that the gradient at the result meets a tolerance, rounding included.
The loss's derivative is clamped to [-C, 0], so the loss is linear at small margins. Objective
perturbation releases the minimiser for a random linear term (mechanisms/objective.py). The
regulariser does not depend on the number of records, so one record more adds one term to the
objective. Proofs: docs/proofs/erm_with_linear_term.md.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit

from agt.data.arrays import block_slices
from agt.errors import AgtError, ConfigError
from agt.numeric import COVER, UNIT, gamma_up, next_up
from agt.training.acceleration import (
    ITERATIONS_FACTOR,
    accelerated_step,
    sufficient_iterations,
)
from agt.training.row_sums import float64_rows, sum_over_rows

# A record's norm may exceed 1 by this much, because normalising a row rounds. Bounds on the
# sensitivity include it.
NORM_SLACK = 1e-9

# Rows of one block of a sum. Fewer rows give a smaller bound on rounding.
ERM_BLOCK_ROWS = 1024

NEWTON_STEPS = 50  # the largest number of Newton steps before Nesterov's method takes over

# After a step that divided the gradient's norm by at least this factor, the next step reuses the
# Hessian, which saves the time of computing and factorising it.
REUSE_HESSIAN_FACTOR = 4

SMALLEST_STEP = 1e-6  # the line search shortens a step no further
SUFFICIENT_DECREASE = 1e-4  # share of the decrease that the gradient predicts (Armijo)
RESOLVED_DECREASE = 1e-9  # smallest relative decrease of the value that rounding does not hide


@dataclass(frozen=True)
class ErmWithLinearTerm:
    """The objective sum_i l(y_i theta.x_i) + (strength/2) |theta|^2 + tilt.theta, to be minimised.

    It is L2-regularised logistic regression of two classes with an additional linear term. l is the
    logistic loss of a margin, with its derivative clamped to [-clamp, 0].

    Attributes:
        x: [n, d] float32 or float64, the records' features, of norm at most 1 + ``NORM_SLACK``.
        y: [n] float64, the labels as +1 or -1.
        strength: factor of the regulariser; above 0. The losses are summed, not averaged.
        clamp: C in (0, 1]. With 1 the loss is the logistic loss itself.
        tilt: [d] float64, the linear term b.
    """

    x: np.ndarray
    y: np.ndarray
    strength: float
    clamp: float
    tilt: np.ndarray

    @classmethod
    def from_labels(
        cls, features: np.ndarray, labels: np.ndarray, strength: float, clamp: float
    ) -> "ErmWithLinearTerm":
        """Return the objective of labelled records, with a linear term of 0.

        Args:
            features: [n, d], rows of norm at most 1. Other types than float32 become float64.
            labels: [n] integers, 0 or 1.
            strength: factor of the regulariser; above 0.
            clamp: bound on the loss's absolute derivative, in (0, 1].

        Raises:
            ConfigError: a record is longer than 1 or NaN, or a label is neither 0 nor 1.
        """
        is_float = features.dtype in (np.float32, np.float64)
        x = features if is_float else features.astype(np.float64)
        max_norm = _max_row_norm(x)
        # Half of the slack is left for the rounding of the norm itself. A NaN is refused, too.
        if not max_norm <= 1 + NORM_SLACK / 2:
            raise ConfigError(
                f"the longest record has norm {max_norm:.6g}, but perturbed ERM needs norms of at "
                "most 1; scale the features by a public constant or to unit norm"
            )
        if not np.isin(labels, (0, 1)).all():
            raise ConfigError("perturbed ERM needs two classes, with the labels 0 and 1")
        signs = 2.0 * labels - 1
        no_linear_term = np.zeros(x.shape[1])
        return cls(x, signs, strength, clamp, no_linear_term)

    def value(self, theta: np.ndarray) -> float:
        """Return the value of the objective, without a bound on its rounding.

        Args:
            theta: [d] the weights.
        """
        kink = _kink_margin(self.clamp)

        def sum_of_losses(block_features: np.ndarray, block_signs: np.ndarray) -> np.ndarray:
            """Return the sum of the clamped logistic losses of a block of records, as [1]."""
            margins = block_signs * (block_features @ theta)
            # Below the kink, the loss is its value at the kink plus clamp times the distance.
            below_kink = np.maximum(kink - margins, 0)
            linear_part = self.clamp * below_kink.sum(keepdims=True)
            losses = np.logaddexp(0, -np.maximum(margins, kink))
            return losses.sum(keepdims=True) + linear_part

        (losses,) = self._sum_over_records(sum_of_losses)
        regulariser = self.strength / 2 * theta @ theta
        return float(losses + regulariser + self.tilt @ theta)

    def gradient(self, theta: np.ndarray) -> np.ndarray:
        """Return the gradient of the objective, [d], as computed.

        ``gradient_norm_bound`` bounds the norm of the exact gradient, rounding included.

        Args:
            theta: [d] the weights.
        """

        def negative_gradients(block_features: np.ndarray, block_signs: np.ndarray) -> np.ndarray:
            """Return minus the sum of the loss gradients of a block of records, [d]."""
            # The loss's derivative in the margin is -expit(-margin), clamped to [-clamp, 0].
            derivatives = expit(-block_signs * (block_features @ theta))
            return block_features.T @ (block_signs * np.minimum(derivatives, self.clamp))

        negative_loss_gradient = self._sum_over_records(negative_gradients)
        return self.strength * theta + self.tilt - negative_loss_gradient

    def hessian(self, theta: np.ndarray) -> np.ndarray:
        """Return a generalised Hessian of the objective, [d, d], which is positive definite.

        At the margin where the clamp begins, the loss has no second derivative. There the second
        derivative of the linear side counts, which is 0.

        Args:
            theta: [d] the weights.
        """

        def sum_of_hessians(block_features: np.ndarray, block_signs: np.ndarray) -> np.ndarray:
            """Return the sum of the loss Hessians of a block of records, [d, d]."""
            probabilities = expit(-block_signs * (block_features @ theta))
            is_curved = probabilities < self.clamp  # elsewhere the clamped loss is linear
            curvatures = np.where(is_curved, probabilities * (1 - probabilities), 0)
            return (block_features.T * curvatures) @ block_features

        loss_hessian = self._sum_over_records(sum_of_hessians)
        return loss_hessian + self.strength * np.eye(len(theta))

    def gradient_norm_bound(self, theta: np.ndarray, gradient: np.ndarray | None = None) -> float:
        """Return an upper bound on the l2 norm of the exact gradient, rounding included.

        Args:
            theta: [d] the weights.
            gradient: [d] the gradient as ``gradient`` computes it at ``theta``; None: compute it
                here.
        """
        records, width = self.x.shape
        computed = self.gradient(theta) if gradient is None else gradient
        tilt_norm = float(np.linalg.norm(self.tilt))
        theta_norm = float(np.linalg.norm(theta))
        # Lemma 1 of docs/proofs/erm_with_linear_term.md bounds the gradient's rounding error.
        error = erm_gradient_rounding(
            records, width, self.clamp, self.strength, tilt_norm, theta_norm
        )
        norm = np.linalg.norm(computed)
        own_rounding = 1 + gamma_up(width + 4)  # of the norm, and of its sum with the error
        return float((norm + error) * own_rounding)

    def _sum_over_records(
        self, sum_of_block: Callable[[np.ndarray, np.ndarray], np.ndarray]
    ) -> np.ndarray:
        """Return the sum over all records of a function that is computed a block at a time.

        Args:
            sum_of_block: takes the features [b, d] float64 and the labels [b] of a block of
                records, and returns their sum as an array.
        """

        def sum_of_rows(rows: slice) -> tuple[np.ndarray]:
            """Return the sum over the records of ``rows``, as the only array of a tuple."""
            return (sum_of_block(float64_rows(self.x, rows), self.y[rows]),)

        (total,) = sum_over_rows(len(self.x), sum_of_rows, ERM_BLOCK_ROWS)
        return total


def solve(
    erm: ErmWithLinearTerm, tolerance: float, start: np.ndarray | None = None, max_records: int = 0
) -> np.ndarray:
    """Return weights at which the exact gradient has l2 norm at most ``tolerance``.

    Newton's method with a line search comes first. If it does not meet the tolerance within
    ``NEWTON_STEPS`` steps, Nesterov's method from 0 follows.

    Args:
        erm: the objective.
        tolerance: bound on the gradient's norm, rounding included. Use at least
            ``smallest_tolerance``; a smaller one may be out of reach because of rounding.
        start: [d] the weights to start from; None: 0.
        max_records: public bound on the number of records, from which the number of iterations
            follows. If there are more records, their number is used.

    Returns:
        [d] the weights theta, within tolerance / strength of the minimiser.

    Formal guarantees:
        - The tolerance is verified on the computed gradient plus a bound on its rounding, so it
          holds however theta was found.
        - In exact arithmetic a solution is found on any data (Lemma 3 of
          docs/proofs/erm_with_linear_term.md), so a failure says nothing about the records.

    Raises:
        AgtError: the tolerance was not met. Then nothing may be released.
    """
    theta = np.zeros(erm.x.shape[1]) if start is None else start
    smallest_norm = math.inf
    factor = None
    for _ in range(NEWTON_STEPS):
        gradient = erm.gradient(theta)
        norm = erm.gradient_norm_bound(theta, gradient)
        if norm <= tolerance:
            return theta
        if factor is None or norm > smallest_norm / REUSE_HESSIAN_FACTOR:
            factor = cho_factor(erm.hessian(theta))
        direction = -cho_solve(factor, gradient)
        smallest_norm = min(norm, smallest_norm)
        slope = float(gradient @ direction)
        theta = _line_search(erm, theta, direction, slope)
    max_records = max(max_records, len(erm.x))
    return _solve_by_acceleration(erm, tolerance, max_records)


def clamped_logistic_smoothness(clamp: float) -> float:
    """Return the largest second derivative of the clamped logistic loss.

    It is 1/4. For a clamp C below 1/2 it is C (1 - C), because the clamp removes the part of the
    loss where the second derivative is larger.

    Args:
        clamp: C, the bound on the loss's absolute derivative, in (0, 1].
    """
    return 0.25 if clamp >= 0.5 else clamp * (1 - clamp)


def minimiser_norm_bound(records: int, strength: float, tilt_norm: float) -> float:
    """Return an upper bound on the l2 norm of the minimiser, from public numbers.

    Args:
        records: the number of records, or an upper bound on it.
        strength: factor of the regulariser; above 0.
        tilt_norm: upper bound on the norm of the linear term b ("tilt").
    """
    # Lemma 2 of docs/proofs/erm_with_linear_term.md: the norm is at most
    # (|tilt| + sqrt(|tilt|^2 + 2 strength n)) / strength for n records.
    root = math.sqrt(tilt_norm**2 + 2 * strength * records)
    # COVER (slightly above 1) covers the roundings of this bound itself.
    return (tilt_norm + root) / strength * COVER


def erm_gradient_rounding(
    records: int, width: int, clamp: float, strength: float, tilt_norm: float, theta_norm: float
) -> float:
    """Return an upper bound on the l2 rounding error of a computed gradient.

    Args:
        records: the number of records, or an upper bound on it.
        width: the number of features.
        clamp: bound on the loss's absolute derivative.
        strength: factor of the regulariser.
        tilt_norm: upper bound on the norm of the linear term b ("tilt").
        theta_norm: upper bound on the norm of the weights.
    """
    # Lemma 1 of docs/proofs/erm_with_linear_term.md: the error is at most gamma_up(additions) times
    # the summed norms of all terms, plus the errors of the records' derivatives. ``additions`` is
    # the longest chain of additions that a term goes through.
    blocks = math.ceil(records / ERM_BLOCK_ROWS)
    additions = min(records, ERM_BLOCK_ROWS) + blocks + 8
    # gamma_up(n): the relative error of n roundings in a row, rounded up.
    margin_error = gamma_up(width + 4) * theta_norm
    derivative_error = margin_error / 4 + 8 * UNIT
    sum_of_norms = records * clamp + strength * theta_norm + tilt_norm
    error = gamma_up(additions) * sum_of_norms + records * derivative_error
    # COVER (slightly above 1) covers the roundings of this bound itself.
    return error * (1 + NORM_SLACK) ** 2 * COVER


def smallest_tolerance(
    records: int, width: int, clamp: float, strength: float, tilt_norm: float
) -> float:
    """Return the smallest tolerance that ``solve`` should be asked for on any data.

    It is four times the largest rounding error of a gradient near a solution, so rounding cannot
    keep the solver from meeting it.

    Args:
        records: public upper bound on the number of records.
        width: the number of features.
        clamp: bound on the loss's absolute derivative.
        strength: factor of the regulariser.
        tilt_norm: public upper bound on the norm of the linear term b ("tilt").
    """
    # Weights near a solution have at most twice the minimiser's norm.
    theta_norm = 2 * minimiser_norm_bound(records, strength, tilt_norm)
    rounding = erm_gradient_rounding(records, width, clamp, strength, tilt_norm, theta_norm)
    return next_up(4 * rounding)


def nesterov_iterations(
    records: int, clamp: float, strength: float, tilt_norm: float, tolerance: float
) -> int:
    """Return a number of steps of Nesterov's method from 0 that meets a tolerance on any data.

    The count holds in exact arithmetic.

    Args:
        records: public upper bound on the number of records.
        clamp: bound on the loss's absolute derivative.
        strength: factor of the regulariser.
        tilt_norm: public upper bound on the norm of the linear term b ("tilt").
        tolerance: the gradient norm to reach, above 0.
    """
    # Lemma 3 of docs/proofs/erm_with_linear_term.md: 1 + ceil(sqrt(L / strength) ln(2 L G / tol^2))
    # steps suffice, with L the smoothness of the objective F, and G = (n C + |tilt|)^2 / strength.
    # G is at least F(0) - F(theta*) + (strength/2) |theta*|^2 for the minimiser theta*.
    smoothness = clamped_logistic_smoothness(clamp) * records + strength
    value_gap = (records * clamp + tilt_norm) ** 2 / strength
    return sufficient_iterations(smoothness, strength, value_gap, tolerance)


def _solve_by_acceleration(
    erm: ErmWithLinearTerm, tolerance: float, max_records: int
) -> np.ndarray:
    """Return weights of gradient norm at most ``tolerance``, by Nesterov's method from 0.

    Args:
        erm: the objective.
        tolerance: bound on the gradient's norm, rounding included.
        max_records: upper bound on the number of records, from which step size and number of steps
            follow.

    Raises:
        AgtError: the tolerance was not met in ``ITERATIONS_FACTOR`` times ``nesterov_iterations``
            steps.
    """
    tilt_norm = float(np.linalg.norm(erm.tilt))
    norm = math.inf
    loss_curvature = clamped_logistic_smoothness(erm.clamp) * (1 + NORM_SLACK) ** 2
    smoothness = loss_curvature * max_records + erm.strength
    iterate = np.zeros(erm.x.shape[1])
    extrapolated = iterate  # Nesterov's extrapolated point, where the gradient is computed
    steps = nesterov_iterations(max_records, erm.clamp, erm.strength, tilt_norm, tolerance)
    for _ in range(ITERATIONS_FACTOR * steps):
        gradient = erm.gradient(extrapolated)
        norm = erm.gradient_norm_bound(extrapolated, gradient)
        if norm <= tolerance:
            return extrapolated
        iterate, extrapolated = accelerated_step(
            iterate, extrapolated, gradient, smoothness, erm.strength
        )
    raise AgtError(
        f"regularised ERM: the solver stopped at gradient norm {norm:.3g} (rounding included), "
        f"above tolerance={tolerance:g}, so nothing is released; raise the tolerance or the "
        "strength of regularisation"
    )


def _max_row_norm(features: np.ndarray) -> float:
    """Return the largest l2 norm of a row of an [n, d] array, computed in float64.

    It is 0 if there are no rows, and NaN if any entry is NaN.
    """
    max_squares = []
    for rows in block_slices(len(features), ERM_BLOCK_ROWS):
        block = features[rows].astype(np.float64, copy=False)
        squared_norms = np.einsum("ij,ij->i", block, block)
        max_squares.append(float(squared_norms.max()))
    # NumPy's maximum is NaN if any number is NaN, but Python's need not be.
    return math.sqrt(np.max(max_squares, initial=0.0))


def _line_search(
    erm: ErmWithLinearTerm, theta: np.ndarray, direction: np.ndarray, slope: float
) -> np.ndarray:
    """Return theta plus a step along ``direction``, shortened until the objective decreases enough.

    The step is halved until the decrease is at least ``SUFFICIENT_DECREASE`` times what the slope
    predicts (Armijo's rule), or the step is below ``SMALLEST_STEP``.

    Args:
        erm: the objective.
        theta: [d] the weights to start from.
        direction: [d] the full Newton step.
        slope: the derivative of the objective along ``direction`` at ``theta``; below 0.
    """
    value = erm.value(theta)
    if -slope < RESOLVED_DECREASE * abs(value):
        # So small a decrease is hidden by rounding of the value, so no comparison is possible. The
        # full Newton step is right close to the minimum.
        return theta + direction
    step = 1.0
    while step > SMALLEST_STEP:
        sufficient = value + SUFFICIENT_DECREASE * step * slope
        if not erm.value(theta + step * direction) > sufficient:
            break
        step /= 2
    return theta + step * direction


def _kink_margin(clamp: float) -> float:
    """Return the margin below which the clamped loss is linear; -infinity without a clamp.

    There the absolute derivative of the logistic loss, 1 / (1 + exp(margin)), reaches the clamp.

    Args:
        clamp: C in (0, 1].
    """
    return -np.inf if clamp == 1 else float(np.log((1 - clamp) / clamp))
