"""Plain SGD for a linear head on public features, whose certificates are in closed form.

The batches, learning rates and decoupled weight decay are those of training with boxes
(training/loop.py). Weights start at 0 and there is no momentum. Weights and sums are float64
whatever ``training.dtype`` says, because the rounding of a float32 sum over a large batch would
count like many records. ``float32`` only halves the memory of the features.
"""

from collections.abc import Iterator
from dataclasses import dataclass
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
from agt.training.checkpoint import NO_CHECKPOINTS, Checkpoints
from agt.training.loop import OnProgress, Progress, ignore_progress
from agt.training.sensitivity import (
    LinearLoss,
    LinearSetting,
    Sensitivity,
    StepCoefficients,
    sgd_sensitivity,
)
from agt.training.setup import TrainingSetup

# Records of one matrix product. Their features are used twice, and stay in the cache in between.
GRADIENT_BLOCK_ROWS = 1024

# PyTorch's own memory begins at a multiple of this many bytes.
ALIGNMENT_BYTES = 64

REPORT_STEPS = 16  # steps between two reports of progress


@dataclass(frozen=True)
class LinearTrained:
    """A trained linear head, with the bound on how far one record moves it.

    Attributes:
        weight: [J, w] float64, one row of weights for each of the J logits.
        loss: the loss that the head was trained with, and its constants.
        plan: the batches that were used.
        sensitivity: bound on how far one record moves ``weight`` in l2 norm.
        training: the training settings, with every default replaced by its number.

    Raises:
        UnsoundError: a weight is NaN or infinite.
    """

    weight: Tensor
    loss: LinearLoss
    plan: BatchPlan
    sensitivity: Sensitivity
    training: TrainingConfig

    def __post_init__(self) -> None:
        """Raise UnsoundError if a weight is NaN or infinite."""
        if not bool(torch.isfinite(self.weight).all()):
            raise UnsoundError(
                "a parameter of the linear head is NaN or infinite: lower training.lr, or "
                "scale the features by public constants"
            )


def train_linear(
    setup: TrainingSetup,
    records: Records,
    average: int = 1,
    on_progress: OnProgress = ignore_progress,
    checkpoints: Checkpoints = NO_CHECKPOINTS,
) -> LinearTrained:
    """Train a linear head by plain SGD from weights 0.

    Args:
        setup: the settings of the training: loss, learning rates, batches, relation. Its grid of k
            (numbers of edits that are certified) is not read.
        records: labels, and public features [n, w] whose rows have norm at most 1.
        average: the trained weights are the mean of the last ``average`` iterates. 1 takes the last
            iterate.
        on_progress: called every ``REPORT_STEPS`` steps and after the last step.
        checkpoints: where the state of a run that was stopped is found, and where the state of this
            run is stored.

    Returns:
        The trained head, with the bound on how far one record moves it (``sgd_sensitivity``).

    Formal guarantees:
        - The l2 distance between a computed step and the exact step is within the bound of Lemma 4
          of docs/proofs/sensitivity.md, in any order of summation.
        - A run that continues from a checkpoint gives the same bits as a run that was never
          stopped.

    Raises:
        ConfigError: no sensitivity is proved for these settings, a batch has more than n_max
            records, or a unit has more rows than the relation allows.
        UnsoundError: a weight became NaN or infinite.
    """
    width = records.features.shape[1]
    setting = LinearSetting.from_training_setup(setup, len(records), width)
    loss = setting.loss
    plan = setting.plan
    if records.units_named:  # else each record is a separate unit, and ids do not repeat
        check_unit_rows(records.units, setup.relation.unit_rows)
    sensitivity = sgd_sensitivity(setting, average)
    theta = torch.zeros((loss.outputs, width), dtype=torch.float64)
    iterate_sum = torch.zeros_like(theta)
    steps_done = 0
    state = checkpoints.last_state()
    if state:
        theta = state.tensors["theta"]
        iterate_sum = state.tensors["total"]
        steps_done = state.step
    remaining_batches = islice(plan.batches(records.units), steps_done, None)
    for step, rows in enumerate(remaining_batches, start=steps_done):
        coefficients = StepCoefficients.at_step(setup.training, plan, step)
        gradient = gradient_sum(loss, theta, records, rows)
        update = gradient * coefficients.step_size
        theta = theta * coefficients.decay_factor - update
        if step >= plan.steps - average:
            iterate_sum += theta
        steps_done = step + 1
        is_last = steps_done == plan.steps
        # ``partial``: a function that returns the tensors, called only if a save is due.
        state_tensors = partial(dict[str, Tensor], theta=theta, total=iterate_sum)
        checkpoints.save_if_due(steps_done, state_tensors, is_last_step=is_last)
        if step % REPORT_STEPS == 0 or is_last:
            on_progress(Progress.of_steps(steps_done, plan.steps))
    weight = iterate_sum / average
    return LinearTrained(weight, loss, plan, sensitivity, setup.training)


def gradient_sum(loss: LinearLoss, theta: Tensor, records: Records, rows: np.ndarray) -> Tensor:
    """Return the sum of the loss's gradients over some records, without the regulariser.

    In a group of processes, each process sums a part of the rows. All get the same bits.

    Args:
        loss: the loss. Its derivative is clamped as ``loss_derivative`` describes.
        theta: [J, w] float64 weights.
        records: labels, and public features [n, w].
        rows: increasing row numbers of the records that are summed over.

    Returns:
        [J, w] float64; zeros if there are no rows.
    """

    def sum_over_span(span: slice) -> tuple[Tensor]:
        """Return the gradient sum over the rows at positions ``span`` of ``rows``."""
        total = torch.zeros_like(theta)
        for features, labels in iterate_record_blocks(records, rows[span]):
            derivatives = loss_derivative(loss, features @ theta.T, labels)
            total += derivatives.T @ features
        return (total,)

    row_spans = spans(len(rows), GRADIENT_BLOCK_ROWS)
    (total,) = group().sum_spans(row_spans, sum_over_span)
    return total


def loss_derivative(loss: LinearLoss, logits: Tensor, labels: Tensor) -> Tensor:
    """Return the derivative of each record's loss with respect to its logits.

    Args:
        loss: the loss. The derivative is clamped to [-C, C] with C = ``loss.derivative_bound``,
            except for a softmax, which is never clamped.
        logits: [n, J]; or [n, J, m] for m heads that are evaluated together.
        labels: [n] int64, from 0 to classes - 1.

    Returns:
        A tensor of the shape of ``logits``.
    """
    if loss.kind == "binary":
        target = labels[:, None].double()
    else:
        target = torch.nn.functional.one_hot(labels, loss.outputs).double()
    head_axes = [1] * (logits.dim() - 2)
    target = target.reshape(*target.shape, *head_axes)  # [n, J] or [n, J, 1]: for all heads
    if loss.kind == "softmax":
        return torch.softmax(logits, dim=1) - target
    unclamped = torch.sigmoid(logits) - target
    return unclamped.clamp_(-loss.derivative_bound, loss.derivative_bound)


def iterate_record_blocks(records: Records, rows: np.ndarray) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the features and labels of some records, a block of rows at a time.

    Args:
        records: labels, and public features [n, w], which may be computed on demand.
        rows: increasing row numbers of the records.

    Yields:
        (features [b, w] float64, labels [b]) of at most ``GRADIENT_BLOCK_ROWS`` records. The
        features begin at a memory address that is a multiple of ``ALIGNMENT_BYTES``, because a
        matrix product may round differently at another address.
    """
    labels = torch.from_numpy(records.labels)
    # ``Mapped`` computes rows when they are read; it is no array that PyTorch could take whole.
    is_mapped = isinstance(records.features, Mapped)
    features: Any = records.features if is_mapped else torch.from_numpy(records.features)
    # Consecutive rows are taken as a slice, which copies nothing.
    are_consecutive = len(rows) > 0 and rows[-1] - rows[0] + 1 == len(rows)
    block_ends = sorted({*range(0, len(rows), GRADIENT_BLOCK_ROWS), len(rows)})
    for start, stop in pairwise(block_ends):
        block_rows: np.ndarray | slice = rows[start:stop]
        if are_consecutive:
            block_rows = slice(rows[start], rows[stop - 1] + 1)
        block = features[block_rows]
        if is_mapped:
            block = torch.from_numpy(block)
        block = block.double()
        if block.data_ptr() % ALIGNMENT_BYTES != 0:
            block = block.clone()  # PyTorch allocates aligned memory
        yield block, labels[block_rows]
