"""The strongly convex problem whose minimiser certified removal keeps up: its gradient and Hessian, in streams over rows.

L_b(w) = sum_i l(w.x_i, t_i) + (strength / 2) |w|^2 + b.w, one w for each output (method.md section 7). ``strength`` is
lambda B with B the run's public normaliser, not lambda n: a removal then leaves the regulariser alone.

Sources: Guo, Goldstein, Hannun, van der Maaten (2020) [003]; Chaudhuri, Monteleoni, Sarwate (2011) for b.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import expit

LossName = Literal["logistic", "least_squares"]
ROWS = 8192  # of a block: a few MB for features of some hundred numbers


@dataclass(frozen=True)
class Objective:
    """A loss and a strength; J outputs, each with a problem of its own (one-vs-all), d features.

    Attributes:
        loss: logistic: log(1 + exp(f)) - t f; least_squares: (f - t)^2 / 2; targets t in {0, 1}.
        strength: lambda B > 0.
    """

    loss: LossName
    strength: float

    @property
    def gamma(self) -> float:
        """Lipschitz constant of l'' in the logit: max |sigma''| of the logistic function's derivative; 0 for squares."""
        return 0.0 if self.loss == "least_squares" else 1 / (6 * math.sqrt(3))

    def slopes(self, logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """l' at [n, J] logits."""
        return (logits if self.loss == "least_squares" else expit(logits)) - targets

    def curvatures(self, logits: np.ndarray) -> np.ndarray:
        """l'' at [n, J] logits."""
        if self.loss == "least_squares":
            return np.ones_like(logits)
        up = expit(logits)
        return up * (1 - up)

    def gradient(self, weight: np.ndarray, features: np.ndarray, targets: np.ndarray, tilt: np.ndarray) -> np.ndarray:
        """Of L_b. [J, d] float64.

        Args:
            weight, tilt: w and b, [J, d].
            features: [n, d], |x_i| <= 1; read in blocks, so it may be memory-mapped.
            targets: [n, J].
        """
        total = self.strength * weight + tilt
        for rows in blocks(len(features)):
            x = np.asarray(features[rows], dtype=np.float64)
            total += self.slopes(x @ weight.T, targets[rows]).T @ x
        return total

    def hessian(self, weight: np.ndarray, features: np.ndarray) -> np.ndarray:
        """Of L_b. [J, d, d] float64."""
        outputs, width = weight.shape
        total = np.zeros((outputs, width, width))
        for rows in blocks(len(features)):
            x = np.asarray(features[rows], dtype=np.float64)
            curvatures = self.curvatures(x @ weight.T)
            for output in range(outputs):
                total[output] += x.T @ (curvatures[:, output : output + 1] * x)
        return total + self.strength * np.eye(width)


def blocks(rows: int) -> Iterator[slice]:
    """Slices of a block's rows each."""
    return (slice(start, start + ROWS) for start in range(0, rows, ROWS))
