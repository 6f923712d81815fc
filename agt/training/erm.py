"""The minimiser of a regularised loss on a linear head, and how far one record moves it.

It minimises F(theta) = (1/B) sum_i l(y_i, theta.phi_i) + (weight_decay/2) |theta|^2 with a public
normaliser B. Releasing it with noise is the output perturbation of 002. The losses are those of
training/sensitivity.py. Proofs: docs/proofs/minimiser.md.
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
from agt.settings import TrainingConfig
from agt.training.acceleration import ITERATIONS_FACTOR, accelerated_step
from agt.training.batches import check_unit_rows
from agt.training.checkpoint import NOWHERE, Checkpoints
from agt.training.linear import REPORT_STEPS, LinearTrained, gradient_sum
from agt.training.loop import OnProgress, Progress
from agt.training.sensitivity import (
    LinearLoss,
    LinearSetting,
    Sensitivity,
    check_no_momentum,
    gradient_sum_rounding,
    rows_moved,
)
from agt.training.setup import TrainingSetup


def erm_sensitivity(setting: LinearSetting, tolerance: float) -> Sensitivity:
    """Bound how far one record moves the minimiser that is computed.

    Args:
        setting: the public settings of the run.
        tolerance: public bound on the gradient's norm at the solution (of each class's gradient,
            for one_vs_all).

    Formal guarantees:
        - Two computed minimisers whose records are k apart under the relation have weights at most
          k ``per_k`` apart, for every k >= 1; two on the same records at most ``rounding``.
        - Neither the solver nor its step sizes matter, only that the tolerance was met.

    Raises:
        ConfigError: weight_decay is 0, there are several batches, momentum, or a relation that is
            not covered, or the tolerance is below four times what rounding may hide.
    """
    rows = rows_moved(setting.relation, setting.loss)
    check_minimiser_settings(setting.training)
    plan = setting.plan
    strength = setting.training.weight_decay
    weight_per_record = next_up(setting.loss.derivative_bound / strength)
    # Lemma 1 of docs/proofs/minimiser.md
    rho = next_up(weight_per_record / plan.normalizer)
    # Lemma 2 of docs/proofs/minimiser.md
    solver_distance = next_up(tolerance / strength)
    # Lemma 3 of docs/proofs/minimiser.md
    records_share = next_up(plan.n_max / plan.normalizer)
    minimiser_norm = next_up(weight_per_record * records_share)
    radius = next_up(minimiser_norm + solver_distance)
    rounding = gradient_rounding(setting, radius)
    if tolerance < 4 * rounding:
        raise ConfigError(
            Message(
                "{config:certificate.tolerance}={tolerance:g}: a gradient is only known to "
                "{rounding:.2g}, because of rounding; use {usable:.2g} or more",
                tolerance=tolerance,
                rounding=rounding,
                usable=4.01 * rounding,
            )
        )
    return Sensitivity(rho, next_up(2 * solver_distance), radius, rate_limit=None, rows=rows)


def check_minimiser_settings(training: TrainingConfig, certificate: str = "erm") -> None:
    """Refuse training settings that do not describe one strongly convex problem.

    Args:
        training: the settings; a weight_decay that is left to the recipe is accepted.
        certificate: the name of the certificate, for the message.

    Raises:
        ConfigError: there is momentum, no weight decay, or more than one batch.
    """
    check_no_momentum(training)
    if not training.weight_decay and "weight_decay" not in training.by_recipe:
        raise ConfigError(
            Message(
                "{config:training.weight_decay}=0: certificate={certificate} divides by the "
                "weight decay; give a positive public constant, like 1e-4",
                certificate=certificate,
            )
        )
    if training.batch.count != 1:
        raise ConfigError(
            Message(
                "{config:training.batch.count}={count}: certificate={certificate} uses all "
                "records at once, in a single batch; set it to 1",
                count=training.batch.count,
                certificate=certificate,
            )
        )


def gradient_rounding(setting: LinearSetting, radius: float) -> float:
    """Bound the rounding error of a computed gradient of F, in norm, from public numbers.

    Args:
        setting: the public settings of the run.
        radius: bound on the norm of the weights at which the gradient is taken.
    """
    # Lemma 2 of docs/proofs/minimiser.md
    sum_rounding = gradient_sum_rounding(setting, radius)
    loss_rounding = next_up(sum_rounding / setting.plan.normalizer)
    regulariser_rounding = 4 * UNIT * setting.training.weight_decay * radius
    return next_up(next_up(loss_rounding + regulariser_rounding) * COVER)


def train_erm(
    setup: TrainingSetup,
    records: Records,
    tolerance: float,
    on_progress: OnProgress = lambda progress: None,
    checkpoints: Checkpoints = NOWHERE,
) -> LinearTrained:
    """Minimise the regularised loss by Nesterov's accelerated gradient descent from 0.

    Args:
        setup: how to train; of its training settings the loss, the clip, weight_decay and the
            batch's public sizes are read.
        records: labels, and public features [n, w] of norm at most 1.
        tolerance: bound on the gradient's norm at the result (of each class's gradient, for
            one_vs_all), rounding included.
        on_progress: called every few iterations.
        checkpoints: where a killed run's state is found, and this one's is stored.

    Returns:
        The head with its sensitivity (``erm_sensitivity``).

    Raises:
        ConfigError: as ``erm_sensitivity``; or there are more than n_max records, or a unit with
            too many rows.
        UnsoundError: the tolerance was not met in the public number of iterations.
    """
    width = records.features.shape[1]
    setting = LinearSetting.from_training_setup(setup, len(records), width)
    loss = setting.loss
    plan = replace(setting.plan, epochs=1)
    strength = setup.training.weight_decay
    check_unit_rows(records.units, setup.relation.unit_rows)
    sensitivity = erm_sensitivity(setting, tolerance)
    # What is computed may be off by its rounding, so the computed norm must be smaller by as much.
    goal = tolerance - gradient_rounding(setting, sensitivity.radius)
    smoothness = loss.smoothness * plan.n_max / plan.normalizer + strength
    (rows,) = plan.batches(records.units)
    x = torch.zeros((loss.outputs, width), dtype=torch.float64)
    y = x
    expected_steps = iterations_to_tolerance(setting, tolerance)
    steps_done = 0
    state = checkpoints.last()
    if state:
        x = state.tensors["x"]
        y = state.tensors["y"]
        steps_done = state.step
    for step in range(steps_done, ITERATIONS_FACTOR * expected_steps):
        mean_gradient = gradient_sum(loss, y, records, rows) / plan.normalizer
        gradient = mean_gradient + y * strength
        is_solved = norm_per_problem(loss, gradient) <= goal
        # The bound on rounding holds within the radius only.
        if is_solved and norm_per_problem(loss, y) <= sensitivity.radius:
            checkpoints.offer(step, partial(dict, x=x, y=y), last=True)
            return LinearTrained(y, loss, plan, sensitivity, setup.training)
        x, y = accelerated_step(x, y, gradient, smoothness, strength)
        checkpoints.offer(step + 1, partial(dict, x=x, y=y))
        if step % REPORT_STEPS == 0:
            shown_step = min(step + 1, expected_steps)
            on_progress(Progress(shown_step, expected_steps, shown_step, expected_steps))
    raise UnsoundError(
        Message(
            "{config:certificate.tolerance}={tolerance:g} was not reached in {iterations} "
            "iterations (the gradient's norm is {norm:.3g}), so nothing is certified: "
            "raise the tolerance, or {config:training.weight_decay}",
            tolerance=tolerance,
            iterations=ITERATIONS_FACTOR * expected_steps,
            norm=norm_per_problem(loss, gradient),
        )
    )


def iterations_to_tolerance(setting: LinearSetting, tolerance: float) -> int:
    """Return after how many iterations any data's gradient norm is below a tolerance.

    This is in exact arithmetic, for Nesterov's method from 0. ``tolerance`` is above 0.
    """
    # Lemma 4 of docs/proofs/minimiser.md
    loss = setting.loss
    strength = setting.training.weight_decay
    records_share = setting.plan.n_max / setting.plan.normalizer
    smoothness = loss.smoothness * records_share + strength
    loss_at_zero = records_share * math.log(max(2, loss.outputs))
    regulariser_gap = (records_share * loss.derivative_bound) ** 2 / (2 * strength)
    value_gap = loss_at_zero + regulariser_gap
    ratio = max(2.0, 2 * smoothness * value_gap / tolerance**2)
    root_condition = math.sqrt(smoothness / strength)
    return 1 + math.ceil(root_condition * math.log(ratio))


def norm_per_problem(loss: LinearLoss, value: Tensor) -> float:
    """Return the l2 norm of [J, w] weights or gradients, rounded up.

    For one_vs_all it is the largest norm of a row, because each class is a problem of its own.
    """
    if loss.kind == "one_vs_all":
        norm = torch.linalg.vector_norm(value, dim=1).max()
    else:
        norm = torch.linalg.vector_norm(value)
    return float(norm) * (1 + 2.0**-30)
