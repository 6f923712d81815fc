"""The strongly convex problem of two classes with a linear term, solved to a gradient norm that is verified.

F(theta) = sum_i l(y_i theta.x_i) + (strength/2) |theta|^2 + tilt.theta, over records with |x_i| <= 1 and y_i = +-1, where l
is the logistic loss whose derivative is clamped to [-C, 0], so that l is linear where the margin is below log((1-C)/C).
No number of records enters: adding a record adds a term. With strength = lambda B and no tilt it is B times the loss of
training/erm.py.

Formal guarantees
    ``rounding`` bounds what a computed gradient errs by, in l2, with u = 2^-53, g(n) = n u / (1 - n u), d coordinates:
      - a margin errs by g(d + 4) |theta|, the loss's derivative by a quarter of that and 8 u more;
      - the sum over n records errs by g(K) (n C + strength |theta| + |tilt|), K the longest chain of additions;
      - features that are known up to ``slack`` (models/features.py) add n (C + |theta| / 4) slack: the gradient is then
        about the features that each record alone determines.
    Norms up to 1 + NORM_SLACK are covered, and so are the roundings of the bound itself.
    ``solve`` returns theta with |grad F(theta)| <= tolerance, verified on the gradient as computed and this bound, whatever
    made it: F is strength-strongly convex, so theta is within tolerance / strength of the minimiser.
    The minimiser has (strength/2) |theta|^2 - |tilt| |theta| <= F(theta) <= F(0) <= n log 2, as l >= 0 and l(0) <= log 2
    for every C, so that |theta| <= ``radius``, a function of n, |tilt| and strength alone.
    A solution is found on any data (in exact arithmetic): if Newton's steps, a fixed number, have not met the tolerance,
    Nesterov's method from 0 does within ``iterations``, a function of a bound on n, of |tilt| and of constants (the proof
    is in training/erm.py: at 0 the gradient is at most n C + |tilt|). So that there is no answer is no event that tells
    anything about the records, where the tolerance is at least ``least_tolerance``.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit

from agt.errors import AgtError, ConfigError
from agt.numeric import COVER, UNIT, gamma_up, next_up
from agt.training.erm import ITERATIONS, accelerated
from agt.training.objective import features_in, summed

NORM_SLACK = 1e-9  # how far beyond 1 a norm may be: rounding of the normalisation; charged to the sensitivity
_ROWS = 1024  # rows summed at once: also what keeps the rounding bound small
_STEPS = 50  # of Newton's method
_ENOUGH = 4  # a step that divides the gradient by so much may be followed by one with the same Hessian


@dataclass(frozen=True)
class TiltedErm:
    """The objective.

    Attributes:
        x: [n, d] float32 or float64, the records, norms at most 1 + NORM_SLACK.
        y: [n] float64, +-1.
        strength: of the regulariser, against the sum of the losses.
        clamp: C, 0 < C <= 1; 1: the logistic loss itself.
        tilt: [d], the linear term.
        slack: bound on how far features are from a function of each record alone.

    Raises:
        ConfigError: a record longer than 1, or a label other than 0 and 1 (in ``of``).
    """

    x: np.ndarray
    y: np.ndarray
    strength: float
    clamp: float
    tilt: np.ndarray
    slack: float = 0.0

    @classmethod
    def of(cls, features: np.ndarray, labels: np.ndarray, strength: float, clamp: float, slack: float = 0.0) -> "TiltedErm":
        """The objective for labels 0 and 1, without tilt."""
        x = features if features.dtype in (np.float32, np.float64) else features.astype(np.float64)
        longest = math.sqrt(max((float(np.einsum("ij,ij->i", part, part).max()) for part in _wide(x)), default=0.0))
        if not longest <= 1 + NORM_SLACK / 2:
            raise ConfigError(
                f"perturbed ERM needs records of norm at most 1, and the longest has {longest:.6g}: "
                "scale the features by a public constant or to unit norm"
            )
        if not np.isin(labels, (0, 1)).all():
            raise ConfigError("perturbed ERM takes two classes, labelled 0 and 1")
        return cls(x, 2.0 * labels - 1, strength, clamp, np.zeros(x.shape[1]), slack)

    def value(self, theta: np.ndarray) -> float:
        """F(theta)."""
        turn = _turn(self.clamp)

        def lost(x: np.ndarray, y: np.ndarray) -> np.ndarray:
            margin = y * (x @ theta)
            steep = self.clamp * np.maximum(turn - margin, 0).sum(keepdims=True)
            return np.logaddexp(0, -np.maximum(margin, turn)).sum(keepdims=True) + steep

        return float(self._summed(lost)[0] + self.strength / 2 * theta @ theta + self.tilt @ theta)

    def gradient(self, theta: np.ndarray) -> np.ndarray:
        """[d]."""
        force = self._summed(lambda x, y: x.T @ (y * np.minimum(expit(-y * (x @ theta)), self.clamp)))
        return self.strength * theta + self.tilt - force

    def hessian(self, theta: np.ndarray) -> np.ndarray:
        """[d, d], positive definite; at the clamp's kink, one of its generalised derivatives."""

        def curved(x: np.ndarray, y: np.ndarray) -> np.ndarray:
            p = expit(-y * (x @ theta))
            return (x.T * np.where(p < self.clamp, p * (1 - p), 0)) @ x

        return self._summed(curved) + self.strength * np.eye(len(theta))

    def gradient_norm(self, theta: np.ndarray, gradient: np.ndarray | None = None) -> float:
        """An upper bound of |grad F(theta)|: the computed norm plus all that rounding can hide.

        Args:
            gradient: as computed there; None: compute it.
        """
        n, d = self.x.shape
        g = self.gradient(theta) if gradient is None else gradient
        pull, length = float(np.linalg.norm(self.tilt)), float(np.linalg.norm(theta))
        error = rounding(n, d, self.clamp, self.strength, pull, length, self.slack)
        return float((np.linalg.norm(g) + error) * (1 + gamma_up(d + 4)))

    def _summed(self, of: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> np.ndarray:
        """The sum of ``of`` over blocks of records, in float64, and their labels."""
        return summed(len(self.x), lambda rows: (of(features_in(self.x, rows), self.y[rows]),), _ROWS)[0]


def solve(erm: TiltedErm, tolerance: float, start: np.ndarray | None = None, most: int = 0) -> np.ndarray:
    """theta with |grad F(theta)| <= tolerance, proved: within tolerance/strength of the minimiser.

    Args:
        start: [d], where the search begins; None: at 0.
        most: public bound on the number of records, for the number of iterations; less: the actual one.

    Raises:
        AgtError: the tolerance was not met; nothing may be released then.
    """
    theta, least, factor = np.zeros(erm.x.shape[1]) if start is None else start, math.inf, None
    for _ in range(_STEPS):
        gradient = erm.gradient(theta)
        size = erm.gradient_norm(theta, gradient)
        if size <= tolerance:
            return theta
        if factor is None or size > least / _ENOUGH:
            factor = cho_factor(erm.hessian(theta))
        direction, least = -cho_solve(factor, gradient), min(size, least)
        theta = _search(erm, theta, direction, float(gradient @ direction))
    return _descend(erm, tolerance, max(most, len(erm.x)))


def smoothness(clamp: float) -> float:
    """beta, the largest second derivative of l: 1/4 or, where the clamp cuts the steepest part away, C (1 - C)."""
    return 0.25 if clamp >= 0.5 else clamp * (1 - clamp)


def radius(records: int, strength: float, pull: float) -> float:
    """Bound on the norm of the minimiser of so many records with a tilt of norm at most ``pull``."""
    return (pull + math.sqrt(pull**2 + 2 * strength * records)) / strength * COVER


def rounding(
    records: int, width: int, clamp: float, strength: float, pull: float, length: float, slack: float = 0.0
) -> float:
    """Bound on what the gradient of so many records, as computed, errs by, l2.

    Args:
        pull: |tilt|.
        length: |theta|.
    """
    chain = min(records, _ROWS) + -(-records // _ROWS) + 8
    each = gamma_up(width + 4) * length / 4 + 8 * UNIT + (clamp + length / 4) * slack
    total = gamma_up(chain) * (records * clamp + strength * length + pull) + records * each
    return total * (1 + NORM_SLACK) ** 2 * COVER


def least_tolerance(records: int, width: int, clamp: float, strength: float, pull: float, slack: float) -> float:
    """A tolerance that rounding leaves room for whatever the data: four times what any gradient near a solution errs by.

    Args:
        records, pull: bounds, all of it public.
    """
    return next_up(4 * rounding(records, width, clamp, strength, pull, 2 * radius(records, strength, pull), slack))


def iterations(records: int, clamp: float, strength: float, pull: float, tolerance: float) -> int:
    """Steps of Nesterov's method from 0 after which the tolerance is met on any such data, in exact arithmetic."""
    steep, start = smoothness(clamp) * records + strength, (records * clamp + pull) ** 2 / strength
    return 1 + math.ceil(math.sqrt(steep / strength) * math.log(max(2.0, 2 * steep * start / tolerance**2)))


def _descend(erm: TiltedErm, tolerance: float, most: int) -> np.ndarray:
    """Nesterov's method, from 0."""
    pull, size = float(np.linalg.norm(erm.tilt)), math.inf
    steep, x = smoothness(erm.clamp) * (1 + NORM_SLACK) ** 2 * most + erm.strength, np.zeros(erm.x.shape[1])
    y = x
    for _ in range(ITERATIONS * iterations(most, erm.clamp, erm.strength, pull, tolerance)):
        gradient = erm.gradient(y)
        size = erm.gradient_norm(y, gradient)
        if size <= tolerance:
            return y
        x, y = accelerated(x, y, gradient, steep, erm.strength)
    raise AgtError(
        f"regularised ERM: the gradient's norm stayed at {size:.3g}, above tolerance={tolerance:g} "
        "(rounding counts too): raise the tolerance or the strength; nothing is released"
    )


def _wide(x: np.ndarray) -> Iterator[np.ndarray]:
    """The rows in float64, a few at a time."""
    return (x[start : start + _ROWS].astype(np.float64, copy=False) for start in range(0, len(x), _ROWS))


def _search(erm: TiltedErm, theta: np.ndarray, direction: np.ndarray, slope: float) -> np.ndarray:
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
