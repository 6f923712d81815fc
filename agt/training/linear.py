"""Plain SGD for a linear head on public features: the run whose stability gives certificates in closed form.

Same plan of batches, schedule and decoupled weight decay as the loop with bounds; theta starts at 0, and there is no
momentum. Parameters and sums are float64 whatever ``training.dtype`` says: a float32 sum over a large batch would be worth
many records of rounding. ``float32`` halves the memory of the features alone.

Formal guarantees
    See training/sensitivity.py: each computed step is within tau of the exact one, whatever order the sums take.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from agt.errors import UnsoundError
from agt.settings import RelationConfig, TrainingConfig
from agt.training.batches import BatchPlan, check_unit_rows
from agt.training.loop import Progress
from agt.training.sensitivity import LinearLoss, Schedule, Sensitivity, sgd_sensitivity

_ROWS = 1024  # records at once: their features stay in the cache between the two products
_REPORT = 16  # steps between two reports of progress


@dataclass(frozen=True)
class Examples:
    """What training sees of the records.

    Attributes:
        phi: [n, w] features of norm at most 1, float64 or float32.
        labels: [n] int64.
        units: [n] str: a record's batch is a hash of its unit.

    Raises:
        ValueError: lengths disagree.
    """

    phi: np.ndarray
    labels: np.ndarray
    units: np.ndarray

    def __post_init__(self) -> None:
        if not len(self.phi) == len(self.labels) == len(self.units):
            raise ValueError(f"{len(self.phi)} rows, {len(self.labels)} labels, {len(self.units)} units")

    def __len__(self) -> int:
        return len(self.phi)


@dataclass(frozen=True)
class LinearTrained:
    """The outcome of a run.

    Attributes:
        weight: [J, w] float64.
        loss: which loss, with its constants.
        plan: the batch plan used.
        sensitivity: how far one record moves ``weight``.

    Raises:
        UnsoundError: a parameter is NaN or infinite.
    """

    weight: Tensor
    loss: LinearLoss
    plan: BatchPlan
    sensitivity: Sensitivity

    def __post_init__(self) -> None:
        if not bool(torch.isfinite(self.weight).all()):
            raise UnsoundError("a parameter of the linear head is NaN or infinite")


def train_linear(
    examples: Examples,
    classes: int,
    declared_size: float | None,
    training: TrainingConfig,
    relation: RelationConfig,
    slack: float = 0.0,
    average: int = 1,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> LinearTrained:
    """Train a linear head by SGD.

    Args:
        examples: features of norm at most 1, and labels.
        declared_size: the public constant the normaliser comes from; None: taken from the data (condition c not held).
        slack: bound on how far the features are from a function of each record alone.
        average: the model is the mean of this many last iterates.
        on_progress: called every few steps.

    Raises:
        ConfigError: a setting under which the sensitivity is not proved (training/sensitivity.py), a batch above n_max, or
            a unit with too many rows.
        UnsoundError: a parameter became NaN or infinite.
    """
    loss = LinearLoss.of(training, classes)
    plan = BatchPlan.of(training.batch, training.epochs, declared_size, len(examples))
    check_unit_rows(examples.units, relation.unit_rows)
    sensitivity = sgd_sensitivity(loss, examples.phi.shape[1], training, plan, relation, slack, average)
    theta = torch.zeros((loss.outputs, examples.phi.shape[1]), dtype=torch.float64)
    total = torch.zeros_like(theta)
    for step, rows in enumerate(_batches(plan, examples.units)):
        at = Schedule.at(training, plan, step)
        theta = theta * at.keep - gradient_sum(loss, theta, examples, rows) * at.step
        if step >= plan.steps - average:
            total += theta
        if step % _REPORT == 0 or step == plan.steps - 1:
            on_progress(Progress(step + 1, plan.steps, step + 1, plan.steps))
    return LinearTrained(total / average, loss, plan, sensitivity)


def _batches(plan: BatchPlan, units: np.ndarray) -> Iterator[np.ndarray]:
    """The rows of each step's batch; a single batch per epoch is everyone, and is not drawn anew each time."""
    if plan.count > 1:
        yield from plan.batches(units)
    else:
        (everyone,) = replace(plan, epochs=1).batches(units)
        yield from (everyone for _ in range(plan.epochs))


def gradient_sum(loss: LinearLoss, theta: Tensor, examples: Examples, rows: np.ndarray) -> Tensor:
    """[J, w] the sum over the records at ``rows`` of c (x) phi."""
    total = torch.zeros_like(theta)
    for phi, labels in blocks(examples, rows):
        total += derivative(loss, phi @ theta.T, labels).T @ phi
    return total


def derivative(loss: LinearLoss, logits: Tensor, labels: Tensor) -> Tensor:
    """[n, J] c, the loss's derivative in the logits (training/sensitivity.py), clamped for one logit per class."""
    if loss.kind == "softmax":
        return torch.softmax(logits, dim=1) - _one_hot(labels, loss.outputs)
    target = labels[:, None].double() if loss.kind == "binary" else _one_hot(labels, loss.outputs)
    return (torch.sigmoid(logits) - target).clamp(-loss.reach, loss.reach)


def blocks(examples: Examples, rows: np.ndarray) -> Iterator[tuple[Tensor, Tensor]]:
    """(features in float64, labels) of the records at ``rows``, a few at a time."""
    unbroken = len(rows) > 0 and rows[-1] - rows[0] + 1 == len(rows)  # rows increase
    for start, stop in pairwise(sorted({*range(0, len(rows), _ROWS), len(rows)})):
        part = slice(rows[start], rows[stop - 1] + 1) if unbroken else rows[start:stop]
        yield torch.from_numpy(examples.phi[part]).double(), torch.from_numpy(examples.labels[part])


def _one_hot(labels: Tensor, classes: int) -> Tensor:
    return torch.nn.functional.one_hot(labels, classes).double()
