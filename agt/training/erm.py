"""The minimiser of a regularised loss on a linear head, and how far one record moves it.

The objective is F(theta) = (1/B) sum_i l(y_i, theta.phi_i) + (weight_decay/2) |theta|^2 with a
public normaliser B. The losses are those of training/sensitivity.py. Releasing the minimiser with
noise is output perturbation (Chaudhuri, Monteleoni and Sarwate 2011). Proofs:
docs/proofs/minimiser.md.
"""

import math
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from agt.data.records import Records
from agt.errors import ConfigError, UnsoundError
from agt.messages import Message
from agt.numeric import COVER, UNIT, next_up
from agt.training.acceleration import (
    ITERATIONS_FACTOR,
    accelerated_step,
    sufficient_iterations,
)
from agt.training.batches import check_unit_rows
from agt.training.checkpoint import NO_CHECKPOINTS, Checkpoints
from agt.training.linear import REPORT_STEPS, LinearTrained, gradient_sum
from agt.training.loop import OnProgress, Progress, ignore_progress
from agt.training.sensitivity import (
    LinearLoss,
    LinearSetting,
    Sensitivity,
    gradient_sum_rounding,
    records_per_edit,
)
from agt.training.settings import check_minimiser_settings
from agt.training.setup import TrainingSetup


def erm_sensitivity(setting: LinearSetting, tolerance: float) -> Sensitivity:
    """Bound how far one record moves the computed minimiser of the regularised loss.

    Args:
        setting: the public settings of the run: loss, number of features, batches, relation.
        tolerance: public bound on the gradient's norm at the computed solution, rounding included.
            For ``one_vs_all`` it bounds the norm of each class's gradient.

    Formal guarantees:
        - The computed minimisers of two datasets that are k edits apart have weights at most k
          ``per_k`` apart in l2 norm, for every k >= 1. What one edit is depends on the relation.
        - Two computed minimisers of the same dataset are at most ``rounding`` apart.
        - Both hold for any solver and any step sizes, as long as the solutions meet the tolerance.

    Raises:
        ConfigError: weight_decay is 0, there is momentum or more than one batch, the relation is
            not covered, or the tolerance is below four times the rounding error of a computed
            gradient.
    """
    edited_records = records_per_edit(setting.relation, setting.loss)
    check_minimiser_settings(setting.training)
    plan = setting.plan
    strength = setting.training.weight_decay
    # next_up after each operation keeps the result an upper bound.
    weight_per_record = next_up(setting.loss.derivative_bound / strength)
    # Lemma 1 of docs/proofs/minimiser.md: one record more moves the exact minimiser by at most
    # derivative_bound / (weight_decay B).
    rho = next_up(weight_per_record / plan.normalizer)
    # Lemma 2 of docs/proofs/minimiser.md: a point whose gradient meets the tolerance is at most
    # tolerance / weight_decay away from the exact minimiser.
    solver_distance = next_up(tolerance / strength)
    # Lemma 3 of docs/proofs/minimiser.md: the exact minimiser has norm at most
    # n_max derivative_bound / (weight_decay B).
    records_share = next_up(plan.n_max / plan.normalizer)
    minimiser_norm = next_up(weight_per_record * records_share)
    radius = next_up(minimiser_norm + solver_distance)
    rounding = gradient_rounding(setting, radius)
    if tolerance < 4 * rounding:
        raise ConfigError(
            Message(
                "{config:certificate.tolerance}={tolerance:g}: this is too small, because "
                "rounding limits the precision of a gradient to {rounding:.2g}; use "
                "{usable:.2g} or more",
                tolerance=tolerance,
                rounding=rounding,
                usable=4.01 * rounding,  # slightly above the limit
            )
        )
    solutions_distance = next_up(2 * solver_distance)
    return Sensitivity(
        rho=rho,
        rounding=solutions_distance,
        radius=radius,
        rate_limit=None,  # no step size enters the bound
        records_per_edit=edited_records,
    )


def gradient_rounding(setting: LinearSetting, radius: float) -> float:
    """Return a bound on the l2 rounding error of a computed gradient of the objective F.

    Only public numbers enter, so the bound holds for every dataset of at most n_max records.

    Args:
        setting: the public settings of the run.
        radius: bound on the l2 norm of the weights at which the gradient is computed.
    """
    # The tolerance of Lemma 2 of docs/proofs/minimiser.md is for the exact gradient, so the
    # rounding of the computed one is needed.
    sum_rounding = gradient_sum_rounding(setting, radius)
    loss_rounding = next_up(sum_rounding / setting.plan.normalizer)
    # A few roundings: the product with weight_decay, the mean, and their sum.
    regulariser_rounding = 4 * UNIT * setting.training.weight_decay * radius
    # COVER (slightly above 1) covers the roundings of this bound itself.
    return next_up(next_up(loss_rounding + regulariser_rounding) * COVER)


def train_erm(
    setup: TrainingSetup,
    records: Records,
    tolerance: float,
    on_progress: OnProgress = ignore_progress,
    checkpoints: Checkpoints = NO_CHECKPOINTS,
) -> LinearTrained:
    """Train a linear head by minimising the regularised loss from weights 0.

    The solver is Nesterov's accelerated gradient descent. It stops at the first iterate whose
    gradient provably meets the tolerance.

    Args:
        setup: the settings of the training. Of its training settings, the loss, the clip level,
            weight_decay and the batch's public sizes are read.
        records: labels, and public features [n, w] whose rows have norm at most 1.
        tolerance: bound on the gradient's norm at the result, rounding included. For ``one_vs_all``
            it bounds the norm of each class's gradient.
        on_progress: called every ``REPORT_STEPS`` iterations.
        checkpoints: where the state of a run that was stopped is found, and where the state of this
            run is stored.

    Returns:
        The trained head, with the bound on how far one record moves it (``erm_sensitivity``).

    Raises:
        ConfigError: ``erm_sensitivity`` refuses the settings, there are more than n_max records, or
            a unit has more rows than the relation allows.
        UnsoundError: the tolerance was not met in ``ITERATIONS_FACTOR`` times the number of
            iterations that suffice in exact arithmetic. That number is public.
    """
    width = records.features.shape[1]
    setting = LinearSetting.from_training_setup(setup, len(records), width)
    loss = setting.loss
    plan = replace(setting.plan, epochs=1)
    strength = setup.training.weight_decay
    if records.units_named:  # else each record is a separate unit, and ids do not repeat
        check_unit_rows(records.units, setup.relation.unit_rows)
    sensitivity = erm_sensitivity(setting, tolerance)
    # The exact gradient's norm may exceed the computed one by the rounding error, so the computed
    # norm must be below the tolerance by as much.
    goal = tolerance - gradient_rounding(setting, sensitivity.radius)
    smoothness = loss.smoothness * plan.n_max / plan.normalizer + strength
    (rows,) = plan.batches(records.units)  # one batch that holds every record
    iterate = torch.zeros((loss.outputs, width), dtype=torch.float64)
    extrapolated = iterate  # Nesterov's extrapolated point, where the gradient is computed
    expected_steps = iterations_to_tolerance(setting, tolerance)
    steps_done = 0
    state = checkpoints.last_state()
    if state:
        iterate = state.tensors["x"]
        extrapolated = state.tensors["y"]
        steps_done = state.step
    for step in range(steps_done, ITERATIONS_FACTOR * expected_steps):
        mean_gradient = gradient_sum(loss, extrapolated, records, rows) / plan.normalizer
        gradient = mean_gradient + extrapolated * strength
        is_solved = norm_per_problem(loss, gradient) <= goal
        # The bound on rounding holds only for weights of norm at most the radius.
        if is_solved and norm_per_problem(loss, extrapolated) <= sensitivity.radius:
            # ``partial``: a function that returns the tensors, called only if a save is due.
            solution = partial(dict[str, Tensor], x=iterate, y=extrapolated)
            checkpoints.save_if_due(step, solution, is_last_step=True)
            return LinearTrained(extrapolated, loss, plan, sensitivity, setup.training)
        iterate, extrapolated = accelerated_step(
            iterate, extrapolated, gradient, smoothness, strength
        )
        checkpoints.save_if_due(step + 1, partial(dict, x=iterate, y=extrapolated))
        if step % REPORT_STEPS == 0:
            shown_step = min(step + 1, expected_steps)
            on_progress(Progress.of_steps(shown_step, expected_steps))
    norm = norm_per_problem(loss, gradient)
    raise _tolerance_not_reached(tolerance, ITERATIONS_FACTOR * expected_steps, norm)


def _tolerance_not_reached(tolerance: float, iterations: int, norm: float) -> UnsoundError:
    """Return the error of a training whose gradient's norm stayed above the tolerance.

    Args:
        tolerance: the norm to reach.
        iterations: the number of iterations that were made.
        norm: the norm of the last gradient.
    """
    return UnsoundError(
        Message(
            "{config:certificate.tolerance}={tolerance:g} was not reached in {iterations} "
            "iterations (the gradient's norm is {norm:.3g}), so nothing is certified: "
            "raise the tolerance, or {config:training.weight_decay}",
            tolerance=tolerance,
            iterations=iterations,
            norm=norm,
        )
    )


def iterations_to_tolerance(setting: LinearSetting, tolerance: float) -> int:
    """Return a number of iterations of Nesterov's method that meets a tolerance on any dataset.

    The method starts from weights 0, and the count holds in exact arithmetic.

    Args:
        setting: the public settings of the run. n_max bounds the number of records.
        tolerance: the gradient norm to reach, above 0.

    Raises:
        ConfigError: the number is not finite.
    """
    # Lemma 4 of docs/proofs/minimiser.md: 1 + ceil(sqrt(L / lambda) ln(2 L G / tolerance^2)) steps
    # suffice, with L the smoothness of F, and G at least F(0) - F(theta*) plus the regulariser at
    # the minimiser theta*.
    loss = setting.loss
    strength = setting.training.weight_decay
    records_share = setting.plan.n_max / setting.plan.normalizer
    smoothness = loss.smoothness * records_share + strength
    loss_at_zero = records_share * math.log(max(2, loss.outputs))
    # At the minimiser the regulariser is at most (C n_max / B)^2 / (2 weight_decay).
    regulariser_gap = (records_share * loss.derivative_bound) ** 2 / (2 * strength)
    value_gap = loss_at_zero + regulariser_gap
    try:
        return sufficient_iterations(smoothness, strength, value_gap, tolerance)
    except (OverflowError, ZeroDivisionError):  # a denormal setting
        raise ConfigError(
            Message(
                "{config:training.weight_decay}={strength:g} with "
                "{config:certificate.tolerance}={tolerance:g}: no finite number of iterations "
                "reaches this tolerance: give a larger {config:training.weight_decay}, such as "
                "0.001",
                strength=strength,
                tolerance=tolerance,
            )
        ) from None


def norm_per_problem(loss: LinearLoss, value: Tensor) -> float:
    """Return an upper bound on the l2 norm of weights or of a gradient [J, w].

    For ``one_vs_all`` it is the largest norm of a row, because each class is a separate problem.
    For the other losses it is the norm of the whole matrix.
    """
    if loss.kind == "one_vs_all":
        norm = torch.linalg.vector_norm(value, dim=1).max()
    else:
        norm = torch.linalg.vector_norm(value)
    return float(norm) * (1 + 2.0**-30)  # more than the rounding of a computed norm
