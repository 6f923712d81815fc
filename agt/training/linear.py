"""Plain SGD for a linear head on public features: the run whose stability gives certificates in
closed form.

Same plan of batches, schedule and decoupled weight decay as the loop with bounds; theta starts at
0, and there is no momentum. Parameters and sums are float64 whatever ``training.dtype`` says: a
float32 sum over a large batch would be worth many records of rounding. ``float32`` halves the
memory of the features alone.

Formal guarantees
    See below: each computed step is within tau of the exact one, whatever order the sums take.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from agt.data.arrays import Mapped
from agt.data.records import Records
from agt.distributed import group, spans
from agt.errors import UnsoundError
from agt.settings import TrainingConfig
from agt.training.batches import BatchPlan, check_unit_rows
from agt.training.checkpoint import NOWHERE, Checkpoints
from agt.training.loop import OnProgress, Progress
from agt.training.recipe import Recipe
from agt.training.sensitivity import (
    LinearLoss,
    LinearSetting,
    Schedule,
    Sensitivity,
    sgd_sensitivity,
)

BLOCK = 1024  # records at once: their features stay in the cache between the two products

_REPORT = 16  # steps between two reports of progress


@dataclass(frozen=True)
class LinearTrained:
    """The outcome of a run.

    Attributes:
        weight: [J, w] float64.
        loss: which loss, with its constants.
        plan: the batch plan used.
        sensitivity: how far one record moves ``weight``.
        training: the schedule it was trained by, nothing left to the recipe.

    Raises:
        UnsoundError: a parameter is NaN or infinite.
    """

    weight: Tensor
    loss: LinearLoss
    plan: BatchPlan
    sensitivity: Sensitivity
    training: TrainingConfig

    def __post_init__(self) -> None:
        if not bool(torch.isfinite(self.weight).all()):
            raise UnsoundError("a parameter of the linear head is NaN or infinite")


def train_linear(
    recipe: Recipe,
    records: Records,
    average: int = 1,
    on_progress: OnProgress = lambda progress: None,
    checkpoints: Checkpoints = NOWHERE,
) -> LinearTrained:
    """Train a linear head by SGD.

    Args:
        recipe: how to train; boxes alone have a use for its grid.
        records: labels, and public features [n, w] of norm at most 1.
        average: the model is the mean of this many last iterates.
        on_progress: called every few steps.
        checkpoints: what a killed run goes on from (training/checkpoint.py).

    Raises:
        ConfigError: a setting under which the sensitivity is not proved, a batch above n_max, or
            a unit with too many rows.
        UnsoundError: a parameter became NaN or infinite.
    """
    setting = LinearSetting.of(recipe, len(records), records.features.shape[1])
    loss, plan = setting.loss, setting.plan
    check_unit_rows(records.units, recipe.relation.unit_rows)
    sensitivity = sgd_sensitivity(setting, average)
    theta = torch.zeros((loss.outputs, setting.width), dtype=torch.float64)
    total, taken = torch.zeros_like(theta), 0
    if state := checkpoints.last():
        theta, total, taken = state.tensors["theta"], state.tensors["total"], state.step
    for step, rows in enumerate(islice(batches_of(plan, records.units), taken, None), start=taken):
        at = Schedule.at(recipe.training, plan, step)
        theta = theta * at.keep - gradient_sum(loss, theta, records, rows) * at.step
        if step >= plan.steps - average:
            total += theta
        checkpoints.offer(
            step + 1, partial(dict, theta=theta, total=total), last=step == plan.steps - 1
        )
        if step % _REPORT == 0 or step == plan.steps - 1:
            on_progress(Progress(step + 1, plan.steps, step + 1, plan.steps))
    return LinearTrained(total / average, loss, plan, sensitivity, recipe.training)


def batches_of(plan: BatchPlan, units: np.ndarray) -> Iterator[np.ndarray]:
    """The rows of each step's batch; a single batch per epoch is everyone, and is not drawn anew
    each time.
    """
    if plan.count > 1:
        yield from plan.batches(units)
    else:
        (everyone,) = replace(plan, epochs=1).batches(units)
        yield from (everyone for _ in range(plan.epochs))


def gradient_sum(loss: LinearLoss, theta: Tensor, records: Records, rows: np.ndarray) -> Tensor:
    """[J, w] the sum over the records at ``rows`` of c (x) phi."""

    def part(span: slice) -> tuple[Tensor]:
        total = torch.zeros_like(theta)
        for phi, labels in blocks_of(records, rows[span]):
            total += derivative(loss, phi @ theta.T, labels).T @ phi
        return (total,)

    return group().summed(spans(len(rows), BLOCK), part)[0]


def derivative(loss: LinearLoss, logits: Tensor, labels: Tensor) -> Tensor:
    """[n, J, ...] c, the loss's derivative in the logits, clamped for one logit per class.

    Args:
        logits: [n, J], or [n, J, m] of m heads.
    """
    target = labels[:, None].double() if loss.kind == "binary" else _one_hot(labels, loss.outputs)
    target = target.reshape(*target.shape, *[1] * (logits.dim() - 2))
    if loss.kind == "softmax":
        return torch.softmax(logits, dim=1) - target
    return (torch.sigmoid(logits) - target).clamp_(-loss.reach, loss.reach)


def blocks_of(records: Records, rows: np.ndarray) -> Iterator[tuple[Tensor, Tensor]]:
    """(features in float64, labels) of the records at ``rows``, a few at a time.

    At a multiple of 64 bytes, where PyTorch's own memory begins: a product may round otherwise at
    another address.
    """
    made, labels = isinstance(records.features, Mapped), torch.from_numpy(records.labels)
    features: Any = records.features if made else torch.from_numpy(records.features)
    unbroken = len(rows) > 0 and rows[-1] - rows[0] + 1 == len(rows)  # rows increase
    for start, stop in pairwise(sorted({*range(0, len(rows), BLOCK), len(rows)})):
        part = slice(rows[start], rows[stop - 1] + 1) if unbroken else rows[start:stop]
        x = features[part]
        wide = (torch.from_numpy(x) if made else x).double()
        yield wide if wide.data_ptr() % 64 == 0 else wide.clone(), labels[part]


def _one_hot(labels: Tensor, classes: int) -> Tensor:
    return torch.nn.functional.one_hot(labels, classes).double()
