"""Plain SGD: no clip, no bounds, no privacy. The batch plan, schedule and optimizer are those of the certified run."""

import copy
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from agt.data.dataset import Records
from agt.errors import ConfigError, UnsoundError
from agt.settings import TrainingConfig
from agt.training.batches import BatchPlan
from agt.training.optimizer import Sgd, descend, learning_rate

LOSSES: dict[str, Callable[..., Tensor]] = {
    "binary_cross_entropy": F.binary_cross_entropy_with_logits,
    "cross_entropy": F.cross_entropy,
}
_ROWS = 65_536  # rows handled at once


def one_hot(labels: np.ndarray, classes: int, loss: str) -> np.ndarray:
    """[n] class indices as the loss's targets, float64: [n, 1] under binary cross-entropy, else [n, classes].

    Raises:
        ConfigError: a label that is no class, or a loss that no baseline takes.
    """
    if loss not in LOSSES:
        raise ConfigError(f"training.loss={loss}: the baselines take {' or '.join(LOSSES)}")
    if len(labels) and not 0 <= labels.min() <= labels.max() < classes:
        raise ConfigError(f"labels run from {labels.min()} to {labels.max()}, expected 0..{classes - 1}")
    if loss == "binary_cross_entropy":
        return labels[:, None].astype(np.float64)
    return np.eye(classes)[labels]


def train_sgd(
    head: nn.Sequential,
    classes: int,
    records: Records,
    declared_size: int | None,
    training: TrainingConfig,
    targets: np.ndarray | None = None,
    mean: bool = False,
) -> dict[str, Tensor]:
    """Train ``head``; ``training.clip`` is not applied.

    Args:
        head: initial parameters and layers; left unchanged.
        classes: number of classes.
        records: the training records.
        declared_size: the public constant the normaliser comes from; None: the number of records.
        training: losses, steps, batches, schedule.
        targets: [n, outputs], in place of the records' labels; the losses are linear in them, so any real numbers will do.
        mean: divide by the actual batch, as the papers' relations do, in place of the plan's normaliser.

    Returns:
        name -> trained parameters, on the CPU.

    Raises:
        ConfigError: a label that is no class, targets of another shape, or a batch above n_max.
        UnsoundError: a parameter became NaN or infinite.
    """
    head = copy.deepcopy(head).to(getattr(torch, training.dtype))
    targets = one_hot(records.labels, classes, training.loss) if targets is None else targets
    if targets.shape != (len(records), _outputs(head)):
        raise ConfigError(f"targets have shape {targets.shape}, expected {(len(records), _outputs(head))}")
    plan = BatchPlan.of(training.batch, training.epochs, declared_size, len(records))
    sgd = Sgd(training)
    for step, rows in enumerate(plan.batches(records.units)):
        head.zero_grad(set_to_none=False)
        for x, target in blocks(records.features, targets, rows, training.dtype):
            LOSSES[training.loss](head(x), target, reduction="sum").backward()
        divisor = max(len(rows), 1) if mean else plan.normalizer
        with torch.no_grad():
            for name, p in head.named_parameters():
                gradient = torch.zeros_like(p) if p.grad is None else p.grad / divisor
                update = sgd.update(name, gradient)
                p.copy_(descend(training, learning_rate(training, step), p, update))
    return finite({name: p.detach() for name, p in head.named_parameters()})


def blocks(features: np.ndarray, targets: np.ndarray, rows: np.ndarray, dtype: str) -> Iterator[tuple[Tensor, Tensor]]:
    """(features, targets) of the rows as tensors, a bounded number at a time; no block for no rows."""
    for start in range(0, len(rows), _ROWS):
        part = rows[start : start + _ROWS]
        yield torch.from_numpy(features[part].astype(dtype)), torch.from_numpy(targets[part].astype(dtype))


def finite(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights, or UnsoundError naming what became NaN or infinite."""
    for name, weight in weights.items():
        if not torch.isfinite(weight).all():
            raise UnsoundError(f"plain SGD diverged: {name} is NaN or infinite; lower training.lr")
    return weights


def _outputs(head: nn.Sequential) -> int:
    return next(layer.out_features for layer in reversed(head) if isinstance(layer, nn.Linear))
