"""The minimiser of the regularised loss, and how far one record moves it (002's output
perturbation).

theta* = argmin F(theta) = (1/B) sum_i l(y_i, theta.phi_i) + (lambda/2) |theta|^2, with the losses
and the notation of training/linear.py, lambda = training.weight_decay and B a public constant.

Formal guarantees
    F is lambda-strongly convex. With one record more, grad F' - grad F = c(z) phi_z / B, of norm at
    most C / B everywhere, so lambda |theta*' - theta*| <= C / B: rho = C / (lambda B). (Replacing a
    record moves it by twice that: 002's 2 C / (lambda n).) No step size enters. Under another label
    of one record grad F moves by r C / B, r as in training/linear.py, "One label".
    The solver returns some theta with |grad F(theta)| <= tolerance, a public constant, verified on
    the gradient as computed plus a bound on its rounding; so |theta - theta*| <= tolerance /
    lambda, and two runs differ by 2 tolerance / lambda beyond rho. How the solver got there is
    irrelevant.
    |theta*| <= n_max C / (lambda B), since grad F(theta*) = 0.
    Nesterov's method with a constant momentum has F(x_t) - F* <= (F(0) - F* + lambda |theta*|^2 /
    2) (1 - 1/sqrt kappa)^t, kappa = (h n_max / B + lambda) / lambda, so a public number of
    iterations reaches any tolerance on any data (in exact arithmetic): stopping without an answer
    is no event that tells anything about the records. ``ITERATIONS`` times as many are allowed
    before the run gives up.

Sources: 002; Chaudhuri, Monteleoni, Sarwate (2011); Nesterov (2004), theorem 2.2.3.

The strongly convex problem whose minimiser certified removal keeps up: its gradient and Hessian, in
streams over rows.

L_b(w) = sum_i l(w.x_i, t_i) + (strength / 2) |w|^2 + b.w, one w for each output (method.md section
7). ``strength`` is lambda B with B the run's public normaliser, not lambda n: a removal then leaves
the regulariser alone.

Formal guarantees
    What a computed gradient errs by (``Slope.error``), in l2 over all outputs. With u = 2^-53, g(n)
    = n u / (1 - n u),
    |x_i| <= 1, and any order of summation, fused or not, inside one product:
      - a logit is a sum of products over ``CHUNK`` coordinates at a time, then over the c chunks:
        it errs by at most e = g(CHUNK + c) |w|, since sum_j |w_j x_ij| <= |w|;
      - a slope l' moves by at most h e, h = max l''; the logistic function is computed to 8 u, and
        the subtraction rounds once: e_i = h e + 8 u + u |s_i|, s_i the slope as computed (no 8 u
        for squares);
      - s_i x_i is summed over ``PIECE`` rows in one product, over the ROWS / PIECE pieces of a
        block and over the m blocks, along a tree of them (agt/distributed.py), whose depth is below
        m:
        each term takes part in at most PIECE + ROWS / PIECE + m + 2 roundings, so that the sum errs
        by g(PIECE + ROWS / PIECE + m + 2) (sum_i |s_i| + strength |w| + |b|): each coordinate by g
        sum_i |s_i||x_ij|, and the norm of a sum is at most the sum of norms; the regulariser and b
        enter it with three roundings of their own;
      - the errors of the slopes add sum_i e_i.
    The dozen roundings of the bound itself are covered by a factor 1 + 2^-20, underflow by
    ``TINY``. So |grad L_b(w)| <= ``Slope.bound``, whatever made w; and |w - w*| <= bound /
    strength, as L_b is strength-strongly convex.
    A computed Hessian errs in the Frobenius norm (``hessian_rounding``): a curvature by gamma e +
    16 u, gamma the Lipschitz constant of l''; its root and the product with a coordinate round
    twice for each factor; the sum over a block and the blocks as above, with sum_i |x_i|^2 <= n in
    place of sum_i |s_i|.

Sources: Guo, Goldstein, Hannun, van der Maaten (2020) [003]; Chaudhuri, Monteleoni, Sarwate (2011)
for b.

The strongly convex problem of two classes with a linear term, solved to a gradient norm that is
verified.

F(theta) = sum_i l(y_i theta.x_i) + (strength/2) |theta|^2 + tilt.theta, over records with |x_i| <=
1 and y_i = +-1, where l is the logistic loss whose derivative is clamped to [-C, 0], so that l is
linear where the margin is below log((1-C)/C). No number of records enters: adding a record adds a
term. With strength = lambda B and no tilt it is B times the loss of training/erm.py.

Formal guarantees
    ``rounding`` bounds what a computed gradient errs by, in l2, with u = 2^-53, g(n) = n u / (1 - n
    u), d coordinates:
      - a margin errs by g(d + 4) |theta|, the loss's derivative by a quarter of that and 8 u more;
      - the sum over n records errs by g(K) (n C + strength |theta| + |tilt|), K the longest chain
        of additions.
    Norms up to 1 + NORM_SLACK are covered, and so are the roundings of the bound itself.
    ``solve`` returns theta with |grad F(theta)| <= tolerance, verified on the gradient as computed
    and this bound, whatever made it: F is strength-strongly convex, so theta is within tolerance /
    strength of the minimiser.
    The minimiser has (strength/2) |theta|^2 - |tilt| |theta| <= F(theta) <= F(0) <= n log 2, as l
    >= 0 and l(0) <= log 2 for every C, so that |theta| <= ``radius``, a function of n, |tilt| and
    strength alone.
    A solution is found on any data (in exact arithmetic): if Newton's steps, a fixed number, have
    not met the tolerance, Nesterov's method from 0 does within ``iterations``, a function of a
    bound on n, of |tilt| and of constants (the proof is in training/erm.py: at 0 the gradient is at
    most n C + |tilt|). So that there is no answer is no event that tells anything about the
    records, where the tolerance is at least ``least_tolerance``.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
import torch
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.blas import dsyrk
from scipy.special import expit
from torch import Tensor

from agt.data.records import Records
from agt.distributed import group, spans
from agt.errors import AgtError, ConfigError, UnsoundError
from agt.messages import Message
from agt.numeric import COVER, UNIT, Array, gamma_up, next_up
from agt.settings import TrainingConfig
from agt.training.batches import check_unit_rows
from agt.training.checkpoint import NOWHERE, Checkpoints
from agt.training.linear import LinearTrained, gradient_sum
from agt.training.loop import OnProgress, Progress
from agt.training.recipe import Recipe
from agt.training.sensitivity import (
    LinearLoss,
    LinearSetting,
    Sensitivity,
    check_optimizer,
    rows_moved,
    sum_rounding,
)

ITERATIONS = 4
_REPORT = 16


def erm_sensitivity(setting: LinearSetting, tolerance: float) -> Sensitivity:
    """The constants of a minimiser.

    Args:
        tolerance: public bound on the gradient's norm at the solution.

    Raises:
        ConfigError: lambda = 0, several batches, a tolerance that rounding alone exceeds.
    """
    rows = rows_moved(setting.relation, setting.loss)
    check_erm(setting.training)
    plan, reach, strength = setting.plan, setting.loss.reach, setting.training.weight_decay
    rho = next_up(next_up(reach / strength) / plan.normalizer)
    away = next_up(tolerance / strength)
    radius = next_up(
        next_up(next_up(reach / strength) * next_up(plan.n_max / plan.normalizer)) + away
    )
    least = gradient_rounding(setting, radius)
    if tolerance < 4 * least:
        raise ConfigError(
            Message(
                "{config:certificate.tolerance}={tolerance:g}: a gradient is only known to "
                "{least:.2g}: use {usable:.2g} or more",
                tolerance=tolerance,
                least=least,
                usable=4.01 * least,
            )
        )
    return Sensitivity(rho, next_up(2 * away), radius, None, rows)


def check_erm(training: TrainingConfig, certificate: str = "erm") -> None:
    """Raise ConfigError if the settings do not describe one strongly convex problem."""
    check_optimizer(training)
    if not training.weight_decay and "weight_decay" not in training.by_recipe:
        raise ConfigError(
            Message(
                "{config:training.weight_decay}=0: certificate={certificate} divides by it; "
                "give a positive public constant, like 1e-4",
                certificate=certificate,
            )
        )
    if training.batch.count != 1:
        raise ConfigError(
            Message(
                "{config:training.batch.count}={count}: certificate={certificate} takes all "
                "records at once: use 1",
                count=training.batch.count,
                certificate=certificate,
            )
        )


def gradient_rounding(setting: LinearSetting, radius: float) -> float:
    """Bound on how far the computed gradient of F is from the exact one, of the exact features,
    where |theta| <= radius.
    """
    part = next_up(sum_rounding(setting, radius) / setting.plan.normalizer)
    return next_up(next_up(part + 4 * UNIT * setting.training.weight_decay * radius) * COVER)


def train_erm(
    recipe: Recipe,
    records: Records,
    tolerance: float,
    on_progress: OnProgress = lambda progress: None,
    checkpoints: Checkpoints = NOWHERE,
) -> LinearTrained:
    """Minimise F by accelerated gradient descent from 0.

    Args:
        recipe, records, checkpoints: as for ``train_linear``.
        tolerance: the gradient's norm to reach (each class's, for one_vs_all).

    Raises:
        ConfigError: as ``erm_sensitivity``, or more records than n_max.
        UnsoundError: the tolerance was not reached.
    """
    setting = LinearSetting.of(recipe, len(records), records.features.shape[1])
    loss, plan, strength = (
        setting.loss,
        replace(setting.plan, epochs=1),
        recipe.training.weight_decay,
    )
    check_unit_rows(records.units, recipe.relation.unit_rows)
    sensitivity = erm_sensitivity(setting, tolerance)
    goal = tolerance - gradient_rounding(setting, sensitivity.radius)
    smoothness = loss.smoothness * plan.n_max / plan.normalizer + strength
    (rows,) = plan.batches(records.units)
    x = y = torch.zeros((loss.outputs, setting.width), dtype=torch.float64)
    most, taken = iterations(setting, tolerance), 0
    if state := checkpoints.last():
        x, y, taken = state.tensors["x"], state.tensors["y"], state.step
    for step in range(taken, ITERATIONS * most):
        gradient = gradient_sum(loss, y, records, rows) / plan.normalizer + y * strength
        if size_of(loss, gradient) <= goal and size_of(loss, y) <= sensitivity.radius:
            checkpoints.offer(step, partial(dict, x=x, y=y), last=True)
            return LinearTrained(y, loss, plan, sensitivity, recipe.training)
        x, y = accelerated(x, y, gradient, smoothness, strength)
        checkpoints.offer(step + 1, partial(dict, x=x, y=y))
        if step % _REPORT == 0:
            on_progress(Progress(min(step + 1, most), most, min(step + 1, most), most))
    raise UnsoundError(
        Message(
            "{config:certificate.tolerance}={tolerance:g} was not reached in {iterations} "
            "iterations (the gradient's norm is {length:.3g}), so nothing is certified: "
            "raise the tolerance, or {config:training.weight_decay}",
            tolerance=tolerance,
            iterations=ITERATIONS * most,
            length=size_of(loss, gradient),
        )
    )


def accelerated(
    x: Array, y: Array, gradient: Array, smoothness: float, strength: float
) -> tuple[Array, Array]:
    """The next (x, y) of Nesterov's method with a constant momentum, from the gradient at y."""
    root = math.sqrt(strength / smoothness)
    ahead = y - gradient / smoothness
    return ahead, ahead + (ahead - x) * ((1 - root) / (1 + root))


def iterations(setting: LinearSetting, tolerance: float) -> int:
    """Iterations after which the gradient's norm is below the tolerance on any data, in exact
    arithmetic.
    """
    loss, strength, share = (
        setting.loss,
        setting.training.weight_decay,
        setting.plan.n_max / setting.plan.normalizer,
    )
    smoothness = loss.smoothness * share + strength
    start = share * math.log(max(2, loss.outputs)) + (share * loss.reach) ** 2 / (2 * strength)
    return 1 + math.ceil(
        math.sqrt(smoothness / strength) * math.log(max(2.0, 2 * smoothness * start / tolerance**2))
    )


def size_of(loss: LinearLoss, value: Tensor) -> float:
    """The norm: of the whole, or of the largest class's part under one_vs_all; rounded up."""
    norm = (
        torch.linalg.vector_norm(value, dim=1).max()
        if loss.kind == "one_vs_all"
        else torch.linalg.vector_norm(value)
    )
    return float(norm) * (1 + 2.0**-30)


ErmLossName = Literal["logistic", "least_squares"]
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
        """Upper bound on the exact gradient's norm, l2 over all outputs: the residual of the
        point it was taken at.
        """
        return (float(np.linalg.norm(self.gradient)) + self.error) * COVER


@dataclass(frozen=True)
class Objective:
    """A loss and a strength; J outputs, each with a problem of its own (one-vs-all), d features.

    Attributes:
        loss: logistic: log(1 + exp(f)) - t f, t in {0, 1}; least_squares: (f - t)^2 / 2, t in {-1,
            1}.
        strength: lambda B > 0.
    """

    loss: ErmLossName
    strength: float

    @property
    def gamma(self) -> float:
        """Lipschitz constant of l'' in the logit: max |sigma''| of the logistic function's
        derivative; 0 for squares.

        Rounded up.
        """
        return 0.0 if self.loss == "least_squares" else 1 / (6 * math.sqrt(3)) * (1 + 8 * UNIT)

    @property
    def smoothness(self) -> float:
        """h: l'' is at most this."""
        return 1.0 if self.loss == "least_squares" else 0.25

    def targets(self, labels: np.ndarray, classes: int) -> np.ndarray:
        """[n, J] float64: of two classes one output, for class 1; of more, one for each class
        against the others.
        """
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

    def values(
        self, weight: np.ndarray, features: np.ndarray, targets: np.ndarray, tilt: np.ndarray
    ) -> np.ndarray:
        """[J] L_b of each output, to rounding. Arguments as for ``slope``."""

        def lost(rows: slice) -> tuple[np.ndarray]:
            f, t = features_in(features, rows) @ weight.T, targets[rows]
            each = (f - t) ** 2 / 2 if self.loss == "least_squares" else np.logaddexp(0, f) - t * f
            return (each.sum(axis=0),)

        still: np.ndarray = np.einsum("jd,jd->j", 0.5 * self.strength * weight + tilt, weight)
        return still + summed(len(features), lost)[0]

    def slope(
        self, weight: np.ndarray, features: np.ndarray, targets: np.ndarray, tilt: np.ndarray
    ) -> Slope:
        """The gradient of L_b, and how far off it may be. One pass.

        Args:
            weight, tilt: w and b, [J, d] float64.
            features: [n, d], |x_i| <= 1, float32 or float64; read in blocks, so it may be
                memory-mapped.
            targets: [n, J], as ``targets`` makes them.

        Raises:
            ValueError: targets of another shape, which numpy might stretch.
        """
        if targets.shape != (len(features), len(weight)):
            raise ValueError(
                f"targets are {targets.shape}, expected {(len(features), len(weight))}"
            )
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
        return Slope(
            gradient,
            float(np.linalg.norm(self.rounding(lengths, still, sizes, count, weight.shape[1]))),
        )

    def force(self, weight: np.ndarray, features: np.ndarray, targets: np.ndarray) -> Slope:
        """The sum of the losses' gradients alone, without regulariser and b.

        Arguments as for ``slope``.
        """
        return replace(self, strength=0.0).slope(weight, features, targets, np.zeros_like(weight))

    def rounding(
        self, lengths: np.ndarray, still: np.ndarray, sizes: np.ndarray, count: int, width: int
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
        summed = gamma_up(min(count, PIECE) + pieces + math.ceil(count / ROWS) + 2) * (
            sizes + still
        )
        return (summed + moved) * COVER + TINY

    def hessian(self, weight: np.ndarray, features: np.ndarray) -> np.ndarray:
        """Of L_b, symmetric. [J, d, d] float64; [1, d, d] for squares, where it is the same for
        every output.
        """
        weight = weight[:1] if self.loss == "least_squares" else weight
        outputs, width = weight.shape

        def squares(rows: slice) -> tuple[np.ndarray]:
            x = features_in(features, rows)
            roots = np.sqrt(self.curvatures(logits_in(x, weight)))
            return (
                np.stack([square(x * roots[:, output : output + 1]) for output in range(outputs)]),
            )

        (total,) = summed(len(features), squares)
        for matrix in total:
            fill(matrix)
            matrix[np.diag_indices(width)] += self.strength
        return total

    def hessian_rounding(self, weight: np.ndarray, count: int) -> float:
        """Bound on |H as computed - H|, Frobenius, for each output; the strength's own rounding
        in it.
        """
        width = weight.shape[1]
        length = float(np.linalg.norm(weight, axis=1).max(initial=0.0))
        curve = (
            0.0
            if not self.gamma
            else self.gamma * gamma_up(CHUNK + math.ceil(width / CHUNK)) * length + 16 * UNIT
        )
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


def summed(
    count: int, part: Callable[[slice], tuple[np.ndarray, ...]], block: int = ROWS
) -> tuple[np.ndarray, ...]:
    """The sums of ``part`` over blocks of ``count`` rows, each one process's; of an empty one
    where there are none.
    """

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
    return dsyrk(1.0, x.T).T


def fill(matrix: np.ndarray) -> None:
    """Copy the lower triangle to the upper, a row at a time: no second matrix."""
    for row in range(len(matrix)):
        matrix[row, row + 1 :] = matrix[row + 1 :, row]


# how far beyond 1 a norm may be: rounding of the normalisation; charged to the sensitivity
NORM_SLACK = 1e-9
_ROWS = 1024  # rows summed at once: also what keeps the rounding bound small
_STEPS = 50  # of Newton's method
# a step that divides the gradient by so much may be followed by one with the same Hessian
_ENOUGH = 4


@dataclass(frozen=True)
class TiltedErm:
    """The objective.

    Attributes:
        x: [n, d] float32 or float64, the records, norms at most 1 + NORM_SLACK.
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
    def of(
        cls, features: np.ndarray, labels: np.ndarray, strength: float, clamp: float
    ) -> "TiltedErm":
        """The objective for labels 0 and 1, without tilt."""
        x = features if features.dtype in (np.float32, np.float64) else features.astype(np.float64)
        longest = math.sqrt(
            max((float(np.einsum("ij,ij->i", part, part).max()) for part in _wide(x)), default=0.0)
        )
        if not longest <= 1 + NORM_SLACK / 2:
            raise ConfigError(
                "perturbed ERM needs records of norm at most 1, and the longest has "
                f"{longest:.6g}: "
                "scale the features by a public constant or to unit norm"
            )
        if not np.isin(labels, (0, 1)).all():
            raise ConfigError("perturbed ERM takes two classes, labelled 0 and 1")
        return cls(x, 2.0 * labels - 1, strength, clamp, np.zeros(x.shape[1]))

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
        force = self._summed(
            lambda x, y: x.T @ (y * np.minimum(expit(-y * (x @ theta)), self.clamp))
        )
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
        error = rounding(n, d, self.clamp, self.strength, pull, length)
        return float((np.linalg.norm(g) + error) * (1 + gamma_up(d + 4)))

    def _summed(self, of: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> np.ndarray:
        """The sum of ``of`` over blocks of records, in float64, and their labels."""
        return summed(
            len(self.x), lambda rows: (of(features_in(self.x, rows), self.y[rows]),), _ROWS
        )[0]


def solve(
    erm: TiltedErm, tolerance: float, start: np.ndarray | None = None, most: int = 0
) -> np.ndarray:
    """theta with |grad F(theta)| <= tolerance, proved: within tolerance/strength of the minimiser.

    Args:
        start: [d], where the search begins; None: at 0.
        most: public bound on the number of records, for the number of iterations; less: the actual
            one.

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
    """beta, the largest second derivative of l: 1/4 or, where the clamp cuts the steepest part
    away, C (1 - C).
    """
    return 0.25 if clamp >= 0.5 else clamp * (1 - clamp)


def radius(records: int, strength: float, pull: float) -> float:
    """Bound on the norm of the minimiser of so many records with a tilt of norm at most
    ``pull``.
    """
    return (pull + math.sqrt(pull**2 + 2 * strength * records)) / strength * COVER


def rounding(
    records: int, width: int, clamp: float, strength: float, pull: float, length: float
) -> float:
    """Bound on what the gradient of so many records, as computed, errs by, l2.

    Args:
        pull: |tilt|.
        length: |theta|.
    """
    chain = min(records, _ROWS) + -(-records // _ROWS) + 8
    each = gamma_up(width + 4) * length / 4 + 8 * UNIT
    total = gamma_up(chain) * (records * clamp + strength * length + pull) + records * each
    return total * (1 + NORM_SLACK) ** 2 * COVER


def least_tolerance(records: int, width: int, clamp: float, strength: float, pull: float) -> float:
    """A tolerance that rounding leaves room for whatever the data: four times what any gradient
    near a solution errs by.

    Args:
        records, pull: bounds, all of it public.
    """
    return next_up(
        4 * rounding(records, width, clamp, strength, pull, 2 * radius(records, strength, pull))
    )


def tilted_iterations(
    records: int, clamp: float, strength: float, pull: float, tolerance: float
) -> int:
    """Steps of Nesterov's method from 0 after which the tolerance is met on any such data, in
    exact arithmetic.
    """
    steep, start = smoothness(clamp) * records + strength, (records * clamp + pull) ** 2 / strength
    return 1 + math.ceil(
        math.sqrt(steep / strength) * math.log(max(2.0, 2 * steep * start / tolerance**2))
    )


def _descend(erm: TiltedErm, tolerance: float, most: int) -> np.ndarray:
    """Nesterov's method, from 0."""
    pull, size = float(np.linalg.norm(erm.tilt)), math.inf
    steep, x = (
        smoothness(erm.clamp) * (1 + NORM_SLACK) ** 2 * most + erm.strength,
        np.zeros(erm.x.shape[1]),
    )
    y = x
    for _ in range(ITERATIONS * tilted_iterations(most, erm.clamp, erm.strength, pull, tolerance)):
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
    return (
        x[start : start + _ROWS].astype(np.float64, copy=False) for start in range(0, len(x), _ROWS)
    )


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
