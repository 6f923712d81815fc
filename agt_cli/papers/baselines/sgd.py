"""Plain SGD: no clip, no bounds, no privacy. The batch plan, schedule and optimizer are those of the certified run."""

import copy
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from agt.data.dataset import Records
from agt.errors import ConfigError
from agt.training.batches import BatchPlan
from agt.training.optimizer import Sgd, descend, learning_rate
from agt_cli.papers.baselines.released import Bench, Weights, finite

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


def train_sgd(bench: Bench, records: Records) -> Weights:
    """Train the bench's head on ``records`` in place of its own; ``training.clip`` is not applied.

    Returns:
        name -> trained parameters, in ``training.dtype``.

    Raises:
        ConfigError: a label that is no class, or a batch above n_max.
        UnsoundError: a parameter became NaN or infinite.
    """
    training, dtype = bench.training, bench.training.dtype
    head = copy.deepcopy(bench.head).to(getattr(torch, dtype))
    targets = one_hot(records.labels, bench.classes, training.loss)
    plan = BatchPlan.of(training.batch, training.epochs, bench.size, len(records))
    sgd = Sgd(training)
    for step, rows in enumerate(plan.batches(records.units)):
        head.zero_grad(set_to_none=False)
        for start in range(0, len(rows), _ROWS):
            part = rows[start : start + _ROWS]
            x, y = (torch.from_numpy(values[part].astype(dtype)) for values in (records.features, targets))
            LOSSES[training.loss](head(x), y, reduction="sum").backward()
        with torch.no_grad():
            for name, p in head.named_parameters():
                gradient = torch.zeros_like(p) if p.grad is None else p.grad / plan.normalizer
                update = sgd.update((name,), gradient)
                p.copy_(descend(training, learning_rate(training, step), p, update))
    return finite({name: p.detach() for name, p in head.named_parameters()})
