"""The minimiser of the regularised loss, and how far one record moves it (002's output perturbation).

theta* = argmin F(theta) = (1/B) sum_i l(y_i, theta.phi_i) + (lambda/2) |theta|^2, with the losses and the notation of
training/sensitivity.py, lambda = training.weight_decay and B a public constant.

Formal guarantees
    F is lambda-strongly convex. With one record more, grad F' - grad F = c(z) phi_z / B, of norm at most C / B everywhere,
    so lambda |theta*' - theta*| <= C / B: rho = C / (lambda B). (Replacing a record moves it by twice that: 002's
    2 C / (lambda n).) No step size enters.
    The solver returns some theta with |grad F(theta)| <= tolerance, a public constant, verified on the gradient as computed
    plus a bound on its rounding; so |theta - theta*| <= tolerance / lambda, and two runs differ by 2 tolerance / lambda
    beyond rho. How the solver got there is irrelevant.
    |theta*| <= n_max C / (lambda B), since grad F(theta*) = 0.
    Nesterov's method with a constant momentum has F(x_t) - F* <= (F(0) - F* + lambda |theta*|^2 / 2) (1 - 1/sqrt kappa)^t,
    kappa = (h n_max / B + lambda) / lambda, so a public number of iterations reaches any tolerance on any data (in exact
    arithmetic): stopping without an answer is no event that tells anything about the records. ``ITERATIONS`` times as many
    are allowed before the run gives up.

Sources: 002; Chaudhuri, Monteleoni, Sarwate (2011); Nesterov (2004), theorem 2.2.3.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from agt.data.dataset import Records
from agt.errors import ConfigError, UnsoundError
from agt.numeric import COVER, UNIT, Array, next_up
from agt.settings import TrainingConfig
from agt.training.batches import check_unit_rows
from agt.training.checkpoint import NOWHERE, Checkpoints
from agt.training.linear import LinearTrained, gradient_sum
from agt.training.loop import Progress
from agt.training.recipe import Recipe
from agt.training.sensitivity import LinearLoss, LinearSetting, Sensitivity, check_optimizer, rows_moved, sum_rounding

ITERATIONS = 4
_REPORT = 16


def erm_sensitivity(setting: LinearSetting, tolerance: float) -> Sensitivity:
    """The constants of a minimiser.

    Args:
        tolerance: public bound on the gradient's norm at the solution.

    Raises:
        ConfigError: lambda = 0, several batches, a tolerance that rounding alone exceeds.
    """
    rows = rows_moved(setting.relation)
    check_erm(setting.training)
    plan, reach, strength = setting.plan, setting.loss.reach, setting.training.weight_decay
    rho = next_up(next_up(reach / strength) / plan.normalizer)
    away = next_up(tolerance / strength)
    radius = next_up(next_up(next_up(reach / strength) * next_up(plan.n_max / plan.normalizer)) + away)
    least = gradient_rounding(setting, radius)
    if tolerance < 4 * least:
        raise ConfigError(
            f"certificate.tolerance={tolerance:g}: a gradient is only known to {least:.2g}: use {4.01 * least:.2g} or more"
        )
    return Sensitivity(rho, next_up(2 * away), radius, None, rows)


def check_erm(training: TrainingConfig, certificate: str = "erm") -> None:
    """Raise ConfigError if the settings do not describe one strongly convex problem."""
    check_optimizer(training)
    if not training.weight_decay and "weight_decay" not in training.by_recipe:
        raise ConfigError(
            f"training.weight_decay=0: certificate={certificate} divides by it; give a positive public constant, like 1e-4"
        )
    if training.batch.count != 1:
        raise ConfigError(
            f"training.batch.count={training.batch.count}: certificate={certificate} takes all records at once: use 1"
        )


def gradient_rounding(setting: LinearSetting, radius: float) -> float:
    """Bound on how far the computed gradient of F is from the exact one, of the exact features, where |theta| <= radius."""
    part = next_up(sum_rounding(setting, radius) / setting.plan.normalizer)
    return next_up(next_up(part + 4 * UNIT * setting.training.weight_decay * radius) * COVER)


def train_erm(
    recipe: Recipe,
    records: Records,
    slack: float,
    tolerance: float,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    checkpoints: Checkpoints = NOWHERE,
) -> LinearTrained:
    """Minimise F by accelerated gradient descent from 0.

    Args:
        recipe, records, slack, checkpoints: as for ``train_linear``.
        tolerance: the gradient's norm to reach (each class's, for one_vs_all).

    Raises:
        ConfigError: as ``erm_sensitivity``, or more records than n_max.
        UnsoundError: the tolerance was not reached.
    """
    setting = LinearSetting.of(recipe, len(records), records.features.shape[1], slack)
    loss, plan, strength = setting.loss, replace(setting.plan, epochs=1), recipe.training.weight_decay
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
        f"certificate.tolerance={tolerance:g} was not reached in {ITERATIONS * most} iterations (the gradient's norm is "
        f"{size_of(loss, gradient):.3g}), so nothing is certified: raise the tolerance, or training.weight_decay"
    )


def accelerated(x: Array, y: Array, gradient: Array, smoothness: float, strength: float) -> tuple[Array, Array]:
    """The next (x, y) of Nesterov's method with a constant momentum, from the gradient at y."""
    root = math.sqrt(strength / smoothness)
    ahead = y - gradient / smoothness
    return ahead, ahead + (ahead - x) * ((1 - root) / (1 + root))


def iterations(setting: LinearSetting, tolerance: float) -> int:
    """Iterations after which the gradient's norm is below the tolerance on any data, in exact arithmetic."""
    loss, strength, share = setting.loss, setting.training.weight_decay, setting.plan.n_max / setting.plan.normalizer
    smoothness = loss.smoothness * share + strength
    start = share * math.log(max(2, loss.outputs)) + (share * loss.reach) ** 2 / (2 * strength)
    return 1 + math.ceil(math.sqrt(smoothness / strength) * math.log(max(2.0, 2 * smoothness * start / tolerance**2)))


def size_of(loss: LinearLoss, value: Tensor) -> float:
    """The norm: of the whole, or of the largest class's part under one_vs_all; rounded up."""
    norm = torch.linalg.vector_norm(value, dim=1).max() if loss.kind == "one_vs_all" else torch.linalg.vector_norm(value)
    return float(norm) * (1 + 2.0**-30)
