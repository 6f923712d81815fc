"""The strongly convex problem whose minimiser certified removal keeps up: its gradient and Hessian, in streams over rows.

L_b(w) = sum_i l(w.x_i, t_i) + (strength / 2) |w|^2 + b.w, one w for each output (method.md section 7). ``strength`` is
lambda B with B the run's public normaliser, not lambda n: a removal then leaves the regulariser alone.

Formal guarantees
    What a computed gradient errs by (``Slope.error``), in l2 over all outputs. With u = 2^-53, g(n) = n u / (1 - n u),
    |x_i| <= 1, and any order of summation, fused or not, inside one product:
      - a logit is a sum of products over ``CHUNK`` coordinates at a time, then over the c chunks: it errs by at most
        e = g(CHUNK + c) |w|, since sum_j |w_j x_ij| <= |w|;
      - a slope l' moves by at most h e, h = max l''; the logistic function is computed to 8 u, and the subtraction rounds
        once: e_i = h e + 8 u + u |s_i|, s_i the slope as computed (no 8 u for squares);
      - s_i x_i is summed over ``PIECE`` rows in one product, over the ROWS / PIECE pieces of a block and over the m blocks,
        along a tree of them (distributed.py), whose depth is below m:
        each term takes part in at most PIECE + ROWS / PIECE + m + 2 roundings, so that the sum errs by
        g(PIECE + ROWS / PIECE + m + 2) (sum_i |s_i| + strength |w| + |b|): each coordinate by g sum_i |s_i||x_ij|, and the
        norm of a sum is at most the sum of norms; the regulariser and b enter it with three roundings of their own;
      - the errors of the slopes add sum_i e_i;
      - features that are known up to ``slack`` (models/features.py) add sum_i (|s_i| + e_i + h |w|) slack: the gradient is
        then about the features that the record alone determines, and not about these bits.
    The dozen roundings of the bound itself are covered by a factor 1 + 2^-20, underflow by ``TINY``. So |grad L_b(w)| <=
    ``Slope.bound``, whatever made w; and |w - w*| <= bound / strength, as L_b is strength-strongly convex.
    A computed Hessian errs in the Frobenius norm (``hessian_rounding``): a curvature by gamma e + 16 u, gamma the Lipschitz
    constant of l''; its root and the product with a coordinate round twice for each factor; the sum over a block and the
    blocks as above, with sum_i |x_i|^2 <= n in place of sum_i |s_i|.

Sources: Guo, Goldstein, Hannun, van der Maaten (2020) [003]; Chaudhuri, Monteleoni, Sarwate (2011) for b.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from scipy.linalg.blas import dsyrk
from scipy.special import expit

from agt.distributed import group, spans
from agt.numeric import COVER, UNIT, gamma_up

LossName = Literal["logistic", "least_squares"]
ROWS = 8192  # of a block: a few MB for features of some hundred numbers
PIECE = 512  # rows of a gradient's product: the fewer, the less the bound on its rounding
CHUNK = 64  # coordinates of a logit's product, likewise
TINY = 1e-150  # more than underflow takes of a norm: squares of numbers below 1e-162 vanish


@dataclass(frozen=True)
class Slope:
    """A computed gradient.

    Attributes:
        gradient: [J, d] float64.
        error: bound on its distance from the exact one, l2 over all outputs.
    """

    gradient: np.ndarray
    error: float

    @property
    def bound(self) -> float:
        """Upper bound on the exact gradient's norm, l2 over all outputs: the residual of the point it was taken at."""
        return (float(np.linalg.norm(self.gradient)) + self.error) * COVER


@dataclass(frozen=True)
class Objective:
    """A loss and a strength; J outputs, each with a problem of its own (one-vs-all), d features.

    Attributes:
        loss: logistic: log(1 + exp(f)) - t f, t in {0, 1}; least_squares: (f - t)^2 / 2, t in {-1, 1}.
        strength: lambda B > 0.
    """

    loss: LossName
    strength: float

    @property
    def gamma(self) -> float:
        """Lipschitz constant of l'' in the logit: max |sigma''| of the logistic function's derivative; 0 for squares.

        Rounded up.
        """
        return 0.0 if self.loss == "least_squares" else 1 / (6 * math.sqrt(3)) * (1 + 8 * UNIT)

    @property
    def smoothness(self) -> float:
        """h: l'' is at most this."""
        return 1.0 if self.loss == "least_squares" else 0.25

    def targets(self, labels: np.ndarray, classes: int) -> np.ndarray:
        """[n, J] float64: of two classes one output, for class 1; of more, one for each class against the others."""
        low, high = (-1.0, 1.0) if self.loss == "least_squares" else (0.0, 1.0)
        wanted = np.arange(1, 2) if classes == 2 else np.arange(classes)
        return np.where(labels[:, None] == wanted, high, low)

    def slopes(self, logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """l' at [n, J] logits."""
        return (logits if self.loss == "least_squares" else expit(logits)) - targets

    def curvatures(self, logits: np.ndarray) -> np.ndarray:
        """l'' at [n, J] logits."""
        if self.loss == "least_squares":
            return np.ones_like(logits)
        up = expit(logits)
        return up * (1 - up)

    def values(self, weight: np.ndarray, features: np.ndarray, targets: np.ndarray, tilt: np.ndarray) -> np.ndarray:
        """[J] L_b of each output, to rounding. Arguments as for ``slope``."""

        def lost(rows: slice) -> tuple[np.ndarray]:
            f, t = features_in(features, rows) @ weight.T, targets[rows]
            each = (f - t) ** 2 / 2 if self.loss == "least_squares" else np.logaddexp(0, f) - t * f
            return (each.sum(axis=0),)

        still: np.ndarray = np.einsum("jd,jd->j", 0.5 * self.strength * weight + tilt, weight)
        return still + summed(len(features), lost)[0]

    def slope(
        self, weight: np.ndarray, features: np.ndarray, targets: np.ndarray, tilt: np.ndarray, slack: float = 0.0
    ) -> Slope:
        """The gradient of L_b, and how far off it may be. One pass.

        Args:
            weight, tilt: w and b, [J, d] float64.
            features: [n, d], |x_i| <= 1, float32 or float64; read in blocks, so it may be memory-mapped.
            targets: [n, J], as ``targets`` makes them.
            slack: bound on how far features are from a function of each record alone.

        Raises:
            ValueError: targets of another shape, which numpy might stretch.
        """
        if targets.shape != (len(features), len(weight)):
            raise ValueError(f"targets are {targets.shape}, expected {(len(features), len(weight))}")
        count = len(features)

        def pulls(rows: slice) -> tuple[np.ndarray, np.ndarray]:
            part, sizes = np.zeros_like(weight), np.zeros(len(weight))
            for piece in blocks(rows.stop - rows.start, PIECE, rows.start):
                x = features_in(features, piece)
                slopes = self.slopes(logits_in(x, weight), targets[piece])
                sizes += np.abs(slopes).sum(axis=0)
                part += slopes.T @ x
            return part, sizes

        force, sizes = summed(count, pulls)
        gradient = self.strength * weight + tilt + force
        lengths = np.linalg.norm(weight, axis=1)
        still = self.strength * lengths + np.linalg.norm(tilt, axis=1)
        return Slope(gradient, float(np.linalg.norm(self.rounding(lengths, still, sizes, count, weight.shape[1], slack))))

    def force(self, weight: np.ndarray, features: np.ndarray, targets: np.ndarray, slack: float = 0.0) -> Slope:
        """The sum of the losses' gradients alone, without regulariser and b. Arguments as for ``slope``."""
        return replace(self, strength=0.0).slope(weight, features, targets, np.zeros_like(weight), slack)

    def rounding(
        self, lengths: np.ndarray, still: np.ndarray, sizes: np.ndarray, count: int, width: int, slack: float = 0.0
    ) -> np.ndarray:
        """[J] bounds on what each output's computed gradient errs by (see above).

        Args:
            lengths: [J] |w|.
            still: [J] strength |w| + |b|.
            sizes: [J] sum_i |s_i|.
            count, width: n and d.
        """
        logit = gamma_up(CHUNK + math.ceil(width / CHUNK)) * lengths
        exact = 0.0 if self.loss == "least_squares" else 8 * UNIT
        moved = count * (self.smoothness * logit + exact) + UNIT * sizes
        pieces = min(math.ceil(count / PIECE), ROWS // PIECE)
        summed = gamma_up(min(count, PIECE) + pieces + math.ceil(count / ROWS) + 2) * (sizes + still)
        unknown = (sizes + moved + count * self.smoothness * lengths) * slack
        bound: np.ndarray = (summed + moved + unknown) * COVER + TINY
        return bound

    def hessian(self, weight: np.ndarray, features: np.ndarray) -> np.ndarray:
        """Of L_b, symmetric. [J, d, d] float64; [1, d, d] for squares, where it is the same for every output."""
        weight = weight[:1] if self.loss == "least_squares" else weight
        outputs, width = weight.shape

        def squares(rows: slice) -> tuple[np.ndarray]:
            x = features_in(features, rows)
            roots = np.sqrt(self.curvatures(logits_in(x, weight)))
            return (np.stack([square(x * roots[:, output : output + 1]) for output in range(outputs)]),)

        (total,) = summed(len(features), squares)
        for matrix in total:
            fill(matrix)
            matrix[np.diag_indices(width)] += self.strength
        return total

    def hessian_rounding(self, weight: np.ndarray, count: int) -> float:
        """Bound on |H as computed - H|, Frobenius, for each output; the strength's own rounding in it."""
        width = weight.shape[1]
        length = float(np.linalg.norm(weight, axis=1).max(initial=0.0))
        curve = 0.0 if not self.gamma else self.gamma * gamma_up(CHUNK + math.ceil(width / CHUNK)) * length + 16 * UNIT
        h = self.smoothness + curve
        summed = (
            gamma_up(min(count, ROWS) + math.ceil(count / ROWS) + 8) * h * count
            + 2 * UNIT * math.sqrt(width) * self.strength
        )
        return (count * curve + summed) * COVER + TINY


def gram(features: np.ndarray) -> np.ndarray:
    """K = X'X, symmetric. [d, d] float64; the features as for ``Objective.slope``."""
    (total,) = summed(len(features), lambda rows: (square(features_in(features, rows)),))
    fill(total)
    return total


def gram_rounding(count: int) -> float:
    """Bound on |K as computed - X'X|, Frobenius, of ``count`` records."""
    return gamma_up(min(count, ROWS) + math.ceil(count / ROWS) + 2) * count * COVER + TINY


def summed(count: int, part: Callable[[slice], tuple[np.ndarray, ...]], block: int = ROWS) -> tuple[np.ndarray, ...]:
    """The sums of ``part`` over blocks of ``count`` rows, each one process's; of an empty one where there are none."""

    def span_sum(span: slice) -> tuple[torch.Tensor, ...]:
        first, *others = blocks(span.stop - span.start, block, span.start) or [span]
        totals = part(first)
        for rows in others:
            for total, each in zip(totals, part(rows), strict=True):
                total += each
        return tuple(map(torch.from_numpy, totals))

    return tuple(total.numpy() for total in group().summed(spans(count, block), span_sum))


def blocks(rows: int, size: int = ROWS, start: int = 0) -> list[slice]:
    """Slices of ``size`` rows each, the last one shorter, from ``start`` on."""
    stop = start + rows
    return [slice(at, min(at + size, stop)) for at in range(start, stop, size)]


def features_in(features: np.ndarray, rows: slice) -> np.ndarray:
    """Some rows in float64: the only part of them that is in memory of its own."""
    return np.ascontiguousarray(features[rows], dtype=np.float64)


def logits_in(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """[n, J] of rows in float64, summed ``CHUNK`` coordinates at a time."""
    total = np.zeros((len(x), len(weight)))
    for part in blocks(x.shape[1], CHUNK):
        total += x[:, part] @ weight[:, part].T
    return total


def square(x: np.ndarray) -> np.ndarray:
    """[d, d] x'x in the lower triangle, zeros above: half the work of a product.

    Formed by itself: added to a total as it goes, each of its panels would round all of the total.
    """
    product: np.ndarray = dsyrk(1.0, x.T).T
    return product


def fill(matrix: np.ndarray) -> None:
    """Copy the lower triangle to the upper, a row at a time: no second matrix."""
    for row in range(len(matrix)):
        matrix[row, row + 1 :] = matrix[row + 1 :, row]
