"""Regularised logistic regression, solved to a gradient norm that is verified, rounding included.

F(theta) = sum_i l(y_i theta.x_i) + (strength/2) |theta|^2 + tilt.theta, over records with |x_i| <= 1 and y_i = +-1, where l
is the logistic loss whose derivative is clamped to [-C, 0], so that l is linear where the margin is below log((1-C)/C).
No number of records enters: adding a record adds a term.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit

from agt.errors import AgtError, ConfigError
from agt.numeric import UNIT, gamma

NORM_SLACK = 1e-9  # how far beyond 1 a norm may be: rounding of the normalisation; charged to the sensitivity
_ROWS = 1024  # rows summed at once: also what keeps the rounding bound small
_STEPS = 100


@dataclass(frozen=True)
class Erm:
    """The objective.

    Attributes:
        x: [n, d] float64, the records, norms at most 1 + NORM_SLACK.
        y: [n] float64, +-1.
        strength: of the regulariser, against the sum of the losses.
        clamp: C, 0 < C <= 1; 1: the logistic loss itself.
        tilt: [d], the linear term.

    Raises:
        ConfigError: a record longer than 1, or a label other than 0 and 1 (in ``of``).
    """

    x: np.ndarray
    y: np.ndarray
    strength: float
    clamp: float
    tilt: np.ndarray

    @classmethod
    def of(cls, features: np.ndarray, labels: np.ndarray, strength: float, clamp: float) -> "Erm":
        """The objective for labels 0 and 1, without tilt."""
        x = np.ascontiguousarray(features, dtype=np.float64)
        longest = float(np.sqrt(np.einsum("ij,ij->i", x, x).max(initial=0)))
        if not longest <= 1 + NORM_SLACK / 2:
            raise ConfigError(
                f"perturbed ERM needs records of norm at most 1, and the longest has {longest:.6g}: "
                "scale the features by a public constant or to unit norm"
            )
        if not np.isin(labels, (0, 1)).all():
            raise ConfigError("perturbed ERM takes two classes, labelled 0 and 1")
        return cls(x, 2.0 * labels - 1, strength, clamp, np.zeros(x.shape[1]))

    def value(self, theta: np.ndarray) -> float:
        """F(theta)."""
        turn = _turn(self.clamp)
        total = 0.0
        for x, y in self._blocks():
            margin = y * (x @ theta)
            total += np.logaddexp(0, -np.maximum(margin, turn)).sum() + self.clamp * np.maximum(turn - margin, 0).sum()
        return float(total + self.strength / 2 * theta @ theta + self.tilt @ theta)

    def gradient(self, theta: np.ndarray) -> np.ndarray:
        """[d]."""
        g = np.zeros(len(theta))
        for x, y in self._blocks():
            g -= x.T @ (y * np.minimum(expit(-y * (x @ theta)), self.clamp))
        return g + self.strength * theta + self.tilt

    def hessian(self, theta: np.ndarray) -> np.ndarray:
        """[d, d], positive definite; at the clamp's kink, one of its generalised derivatives."""
        h = self.strength * np.eye(len(theta))
        for x, y in self._blocks():
            p = expit(-y * (x @ theta))
            h += (x.T * np.where(p < self.clamp, p * (1 - p), 0)) @ x
        return h

    def gradient_norm(self, theta: np.ndarray) -> float:
        """An upper bound of |grad F(theta)|: the computed norm plus all that rounding can hide (method.md section 6).

        Per record, the margin errs by g_(d+1) |x| |theta|, and the loss's derivative by a quarter of that and 8u more;
        the sums err by g_K sum_i C |x_i|, K the longest chain of additions.
        """
        n, d = self.x.shape
        length = float(np.linalg.norm(theta))
        g = self.gradient(theta)
        parts = n * self.clamp + self.strength * length + float(np.linalg.norm(self.tilt))
        chain = min(n, _ROWS) + -(-n // _ROWS) + 8
        per_record = gamma(d + 4) * length / 4 + 8 * UNIT
        return float((np.linalg.norm(g) + n * per_record + gamma(chain) * parts) * (1 + NORM_SLACK) * (1 + gamma(d + 4)))

    def _blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for start in range(0, len(self.x), _ROWS):
            yield self.x[start : start + _ROWS], self.y[start : start + _ROWS]


def solve(erm: Erm, tolerance: float) -> np.ndarray:
    """theta with |grad F(theta)| <= tolerance, proved: within tolerance/strength of the minimiser by strong convexity.

    Damped Newton steps from zero on a convex function whose gradient is piecewise smooth.

    Raises:
        AgtError: the tolerance was not met; nothing may be released then.
    """
    theta = np.zeros(erm.x.shape[1])
    for _ in range(_STEPS):
        if erm.gradient_norm(theta) <= tolerance:
            return theta
        gradient = erm.gradient(theta)
        direction = -cho_solve(cho_factor(erm.hessian(theta)), gradient)
        theta = _search(erm, theta, direction, float(gradient @ direction))
    raise AgtError(
        f"regularised ERM: the gradient's norm stayed at {erm.gradient_norm(theta):.3g}, above tolerance={tolerance:g} "
        "(rounding counts too): raise the tolerance or the strength; nothing is released"
    )


def smoothness(clamp: float) -> float:
    """beta, the largest second derivative of l: 1/4 or, where the clamp cuts the steepest part away, C (1 - C)."""
    return 0.25 if clamp >= 0.5 else clamp * (1 - clamp)


def _search(erm: Erm, theta: np.ndarray, direction: np.ndarray, slope: float) -> np.ndarray:
    """Halve the step until F falls enough; a full step once F cannot resolve the difference."""
    here = erm.value(theta)
    if -slope < 1e-9 * abs(here):
        return theta + direction
    step = 1.0
    while erm.value(theta + step * direction) > here + 1e-4 * step * slope and step > 1e-6:
        step /= 2
    return theta + step * direction


def _turn(clamp: float) -> float:
    """The margin below which the clamped loss is linear."""
    return -np.inf if clamp == 1 else float(np.log((1 - clamp) / clamp))
