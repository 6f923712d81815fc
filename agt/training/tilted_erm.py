"""Two-class regularised logistic regression with a linear term, solved to a verified gradient norm.

The loss's derivative is clamped to [-C, 0], so the loss is linear at small margins. Objective
perturbation releases such minimisers with a random linear term (mechanisms/objective.py), and
audits compare with them. No number of records enters the objective, so one record more is one term
more. Proofs: docs/proofs/tilted_erm.md.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit

from agt.errors import AgtError, ConfigError
from agt.numeric import COVER, UNIT, gamma_up, next_up
from agt.training.acceleration import ITERATIONS_FACTOR, accelerated_step
from agt.training.row_sums import float64_rows, row_blocks, sum_over_rows

# How far beyond 1 a record's norm may be: the rounding of a normalisation. It is charged to the
# sensitivity.
NORM_SLACK = 1e-9

# Rows that are summed at once: few, which keeps the bound on rounding small.
TILTED_BLOCK_ROWS = 1024

NEWTON_STEPS = 50

# After a step that divided the gradient's norm by at least this much, the next one takes the same
# Hessian.
REUSE_HESSIAN_FACTOR = 4

SMALLEST_STEP = 1e-6  # of the line search
SUFFICIENT_DECREASE = 1e-4  # share of the decrease that the gradient predicts (Armijo)
RESOLVED_DECREASE = 1e-9  # relative: what rounding of the value still resolves


@dataclass(frozen=True)
class TiltedErm:
    """The objective sum_i l(y_i theta.x_i) + (strength/2) |theta|^2 + tilt.theta.

    l is the logistic loss with its derivative clamped to [-clamp, 0].

    Attributes:
        x: [n, d] float32 or float64, the records, of norm at most 1 + ``NORM_SLACK``.
        y: [n] float64, +1 or -1.
        strength: of the regulariser, against the sum of the losses; above 0.
        clamp: C in (0, 1]; 1: the logistic loss itself.
        tilt: [d] float64, the linear term.
    """

    x: np.ndarray
    y: np.ndarray
    strength: float
    clamp: float
    tilt: np.ndarray

    @classmethod
    def from_labels(
        cls, features: np.ndarray, labels: np.ndarray, strength: float, clamp: float
    ) -> "TiltedErm":
        """Return the objective of labelled records, without a linear term.

        Args:
            features: [n, d], rows of norm at most 1; other types than float32 become float64.
            labels: [n], 0 or 1.
            strength, clamp: as the attributes.

        Raises:
            ConfigError: a record is longer than 1, or a label is neither 0 nor 1.
        """
        is_float = features.dtype in (np.float32, np.float64)
        x = features if is_float else features.astype(np.float64)
        max_norm = _max_row_norm(x)
        if not max_norm <= 1 + NORM_SLACK / 2:  # nor where it is NaN
            raise ConfigError(
                f"the longest record has norm {max_norm:.6g}, but perturbed ERM needs norms of at "
                "most 1; scale the features by a public constant or to unit norm"
            )
        if not np.isin(labels, (0, 1)).all():
            raise ConfigError("perturbed ERM needs two classes, with the labels 0 and 1")
        signs = 2.0 * labels - 1
        no_tilt = np.zeros(x.shape[1])
        return cls(x, signs, strength, clamp, no_tilt)

    def value(self, theta: np.ndarray) -> float:
        """Return the objective at ``theta`` [d], without a bound on its rounding."""
        kink = _kink_margin(self.clamp)

        def sum_of_losses(x: np.ndarray, y: np.ndarray) -> np.ndarray:
            margins = y * (x @ theta)
            below_kink = np.maximum(kink - margins, 0)
            linear_part = self.clamp * below_kink.sum(keepdims=True)
            losses = np.logaddexp(0, -np.maximum(margins, kink))
            return losses.sum(keepdims=True) + linear_part

        (losses,) = self._sum_over_records(sum_of_losses)
        regulariser = self.strength / 2 * theta @ theta
        return float(losses + regulariser + self.tilt @ theta)

    def gradient(self, theta: np.ndarray) -> np.ndarray:
        """Return [d] the gradient at ``theta`` [d] as it is computed."""

        def sum_of_pulls(x: np.ndarray, y: np.ndarray) -> np.ndarray:
            derivatives = expit(-y * (x @ theta))
            return x.T @ (y * np.minimum(derivatives, self.clamp))

        pull_of_records = self._sum_over_records(sum_of_pulls)
        return self.strength * theta + self.tilt - pull_of_records

    def hessian(self, theta: np.ndarray) -> np.ndarray:
        """Return [d, d] a generalised Hessian at ``theta`` [d], positive definite.

        At the clamp's kink, where the loss has no second derivative, the linear side's counts.
        """

        def sum_of_hessians(x: np.ndarray, y: np.ndarray) -> np.ndarray:
            probabilities = expit(-y * (x @ theta))
            is_curved = probabilities < self.clamp
            curvatures = np.where(is_curved, probabilities * (1 - probabilities), 0)
            return (x.T * curvatures) @ x

        loss_hessian = self._sum_over_records(sum_of_hessians)
        return loss_hessian + self.strength * np.eye(len(theta))

    def gradient_norm(self, theta: np.ndarray, gradient: np.ndarray | None = None) -> float:
        """Bound the norm of the exact gradient at ``theta`` from above, rounding included.

        Args:
            theta: [d].
            gradient: [d] the gradient as computed there; None: compute it.
        """
        records, width = self.x.shape
        computed = self.gradient(theta) if gradient is None else gradient
        tilt_norm = float(np.linalg.norm(self.tilt))
        theta_norm = float(np.linalg.norm(theta))
        # Lemma 1 of docs/proofs/tilted_erm.md
        error = tilted_rounding(records, width, self.clamp, self.strength, tilt_norm, theta_norm)
        norm = np.linalg.norm(computed)
        own_rounding = 1 + gamma_up(width + 4)
        return float((norm + error) * own_rounding)

    def _sum_over_records(
        self, sum_of_block: Callable[[np.ndarray, np.ndarray], np.ndarray]
    ) -> np.ndarray:
        """Return the sum over blocks of records of a function of (x in float64, y)."""

        def sum_of_rows(rows: slice) -> tuple[np.ndarray]:
            return (sum_of_block(float64_rows(self.x, rows), self.y[rows]),)

        (total,) = sum_over_rows(len(self.x), sum_of_rows, TILTED_BLOCK_ROWS)
        return total


def solve(
    erm: TiltedErm, tolerance: float, start: np.ndarray | None = None, max_records: int = 0
) -> np.ndarray:
    """Find a point whose exact gradient has norm at most ``tolerance``.

    Newton's method with a line search comes first; if it has not met the tolerance after
    ``NEWTON_STEPS`` steps, Nesterov's method from 0 does.

    Args:
        erm: the objective.
        tolerance: for the gradient's norm, rounding included; at least ``smallest_tolerance``, or
            there may be no answer.
        start: [d] where the search begins; None: at 0.
        max_records: public bound on the number of records, which the number of iterations follows
            from; the actual number is taken if it is larger.

    Returns:
        [d] theta, within tolerance / strength of the minimiser.

    Formal guarantees:
        - The tolerance is verified on the gradient as computed plus a bound on its rounding, so it
          holds whatever made theta.
        - In exact arithmetic there is an answer on any data (Lemma 3 of
          docs/proofs/tilted_erm.md), so a failure says nothing about the records.

    Raises:
        AgtError: the tolerance was not met; then nothing may be released.
    """
    theta = np.zeros(erm.x.shape[1]) if start is None else start
    smallest_norm = math.inf
    factor = None
    for _ in range(NEWTON_STEPS):
        gradient = erm.gradient(theta)
        norm = erm.gradient_norm(theta, gradient)
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


def tilted_smoothness(clamp: float) -> float:
    """Return the largest second derivative of the clamped logistic loss.

    It is 1/4, or C (1 - C) where the clamp removes the part of largest curvature.
    """
    return 0.25 if clamp >= 0.5 else clamp * (1 - clamp)


def minimiser_norm(records: int, strength: float, tilt_norm: float) -> float:
    """Bound the norm of the minimiser from public numbers.

    Args:
        records: the number of records, or a bound on it.
        strength: of the regulariser.
        tilt_norm: bound on the norm of the linear term.
    """
    # Lemma 2 of docs/proofs/tilted_erm.md
    root = math.sqrt(tilt_norm**2 + 2 * strength * records)
    return (tilt_norm + root) / strength * COVER


def tilted_rounding(
    records: int, width: int, clamp: float, strength: float, tilt_norm: float, theta_norm: float
) -> float:
    """Bound the l2 rounding error of a computed gradient.

    Args:
        records: the number of records, or a bound on it.
        width: the number of features.
        clamp, strength: of the objective.
        tilt_norm, theta_norm: bounds on the norms of the linear term and of theta.
    """
    # Lemma 1 of docs/proofs/tilted_erm.md
    blocks = math.ceil(records / TILTED_BLOCK_ROWS)
    additions = min(records, TILTED_BLOCK_ROWS) + blocks + 8
    margin_error = gamma_up(width + 4) * theta_norm
    derivative_error = margin_error / 4 + 8 * UNIT
    sum_of_norms = records * clamp + strength * theta_norm + tilt_norm
    error = gamma_up(additions) * sum_of_norms + records * derivative_error
    return error * (1 + NORM_SLACK) ** 2 * COVER


def smallest_tolerance(
    records: int, width: int, clamp: float, strength: float, tilt_norm: float
) -> float:
    """Return a tolerance that rounding leaves room for on any data.

    It is four times what any gradient near a solution errs by.

    Args:
        records: public bound on the number of records.
        width: the number of features.
        clamp, strength: of the objective.
        tilt_norm: public bound on the norm of the linear term.
    """
    theta_norm = 2 * minimiser_norm(records, strength, tilt_norm)
    rounding = tilted_rounding(records, width, clamp, strength, tilt_norm, theta_norm)
    return next_up(4 * rounding)


def tilted_iterations(
    records: int, clamp: float, strength: float, tilt_norm: float, tolerance: float
) -> int:
    """Return after how many steps Nesterov's method from 0 meets a tolerance on any data.

    This is in exact arithmetic; arguments are public, as for ``smallest_tolerance``.
    """
    # Lemma 3 of docs/proofs/tilted_erm.md
    smoothness = tilted_smoothness(clamp) * records + strength
    value_gap = (records * clamp + tilt_norm) ** 2 / strength
    condition = math.sqrt(smoothness / strength)
    ratio = max(2.0, 2 * smoothness * value_gap / tolerance**2)
    return 1 + math.ceil(condition * math.log(ratio))


def _solve_by_acceleration(erm: TiltedErm, tolerance: float, max_records: int) -> np.ndarray:
    """Find a point of gradient norm at most ``tolerance`` by Nesterov's method from 0.

    Raises:
        AgtError: it was not met in ``ITERATIONS_FACTOR`` times ``tilted_iterations`` steps.
    """
    tilt_norm = float(np.linalg.norm(erm.tilt))
    norm = math.inf
    loss_curvature = tilted_smoothness(erm.clamp) * (1 + NORM_SLACK) ** 2
    smoothness = loss_curvature * max_records + erm.strength
    x = np.zeros(erm.x.shape[1])
    y = x
    steps = tilted_iterations(max_records, erm.clamp, erm.strength, tilt_norm, tolerance)
    for _ in range(ITERATIONS_FACTOR * steps):
        gradient = erm.gradient(y)
        norm = erm.gradient_norm(y, gradient)
        if norm <= tolerance:
            return y
        x, y = accelerated_step(x, y, gradient, smoothness, erm.strength)
    raise AgtError(
        f"regularised ERM: the solver stopped at gradient norm {norm:.3g} (rounding included), "
        f"above tolerance={tolerance:g}, so nothing is released; "
        "raise the tolerance or the strength"
    )


def _max_row_norm(x: np.ndarray) -> float:
    """Return the largest norm of a row, in float64; 0 of no rows, NaN if any is NaN."""
    max_squares = []
    for rows in row_blocks(len(x), TILTED_BLOCK_ROWS):
        block = x[rows].astype(np.float64, copy=False)
        squared_norms = np.einsum("ij,ij->i", block, block)
        max_squares.append(float(squared_norms.max()))
    # NumPy's maximum is NaN if any is; Python's is not.
    return math.sqrt(np.max(max_squares, initial=0.0))


def _line_search(
    erm: TiltedErm, theta: np.ndarray, direction: np.ndarray, slope: float
) -> np.ndarray:
    """Return theta plus the direction, halved until the objective decreases enough.

    Args:
        erm: the objective.
        theta, direction: [d].
        slope: the objective's derivative along ``direction``, below 0.
    """
    value = erm.value(theta)
    if -slope < RESOLVED_DECREASE * abs(value):
        # The value cannot resolve such a decrease any more: close to the minimum a full Newton step
        # is right.
        return theta + direction
    step = 1.0
    while step > SMALLEST_STEP:
        sufficient = value + SUFFICIENT_DECREASE * step * slope
        if not erm.value(theta + step * direction) > sufficient:
            break
        step /= 2
    return theta + step * direction


def _kink_margin(clamp: float) -> float:
    """Return the margin below which the clamped loss is linear; -infinity without a clamp."""
    return -np.inf if clamp == 1 else float(np.log((1 - clamp) / clamp))
