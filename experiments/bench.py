"""What baselines share: what they are fitted on, what they release, and plain SGD.

Plain SGD has no clip, no bounds and no privacy. Its batch plan, schedule and optimizer are those of
the certified run. Every draw of a baseline comes from a seed: these are simulations for comparison,
and protect nobody who is in them.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from agt.data.records import Records
from agt.errors import ConfigError, UnsoundError
from agt.numeric import labels_of
from agt.settings import ComputeConfig, TrainingConfig
from agt.training.batches import BatchPlan
from agt.training.sgd import Sgd, descend, learning_rate

RECORD = "one record added or removed"
LABEL = "one record's label changed; its features, and which records there are, are not protected"
Weights = dict[str, Tensor]


@dataclass(frozen=True)
class Bench:
    """What every baseline is fitted on.

    Attributes:
        head: layers and initial parameters; left unchanged.
        classes: their number.
        records: the private training records. Each row is one: a person with several rows is not
            protected as one.
        size: the public number of records, from which sampling rates and normalisers come.
        training: the loss, and the settings of whoever trains by plain SGD.
        compute: how to compute.
    """

    head: nn.Sequential
    classes: int
    records: Records
    size: int
    training: TrainingConfig
    compute: ComputeConfig = field(default_factory=ComputeConfig)

    @property
    def single(self) -> Records:
        """The records in single precision."""
        return replace(self.records, features=self.records.features.astype(np.float32))

    def labels(self, weights: Weights, queries: np.ndarray) -> np.ndarray:
        """[n] what the head with these weights says of queries [n, ...], computed in their
        dtype.
        """
        x = torch.from_numpy(np.ascontiguousarray(queries))
        parameters = {name: weight.detach().to(x.dtype) for name, weight in weights.items()}
        with torch.no_grad():
            logits = torch.func.functional_call(self.head, parameters, (x,))
        return labels_of(logits).numpy()

    def accuracy(self, weights: Weights, test: Records) -> float:
        """Of the head with these weights on test records, in single precision."""
        is_right = self.labels(weights, test.features.astype(np.float32)) == test.labels
        return float(is_right.mean())


def finite(weights: Weights) -> Weights:
    """The weights, or UnsoundError naming what became NaN or infinite."""
    for name, weight in weights.items():
        if not torch.isfinite(weight).all():
            raise UnsoundError(
                f"training diverged, because the weights {name} became NaN or infinite: lower "
                "the learning rate"
            )
    return weights


LOSSES: dict[str, Callable[..., Tensor]] = {
    "binary_cross_entropy": F.binary_cross_entropy_with_logits,
    "cross_entropy": F.cross_entropy,
}

_ROWS = 65_536  # rows handled at once


def one_hot(labels: np.ndarray, classes: int, loss: str) -> np.ndarray:
    """[n] class indices as the loss's targets, float64: [n, 1] under binary cross-entropy, else [n,
    classes].

    Raises:
        ConfigError: a label that is no class, or a loss that no baseline takes.
    """
    if loss not in LOSSES:
        raise ConfigError(
            f"training.loss={loss}: the baselines can only use training.loss={' or '.join(LOSSES)}"
        )
    if len(labels) and not 0 <= labels.min() <= labels.max() < classes:
        raise ConfigError(
            f"labels must be from 0 to {classes - 1}, but they are from {labels.min()} to "
            f"{labels.max()}"
        )
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
    training = bench.training
    dtype = bench.training.dtype
    head = copy.deepcopy(bench.head).to(getattr(torch, dtype))
    targets = one_hot(records.labels, bench.classes, training.loss)
    plan = BatchPlan.from_settings(training.batch, training.epochs, bench.size, len(records))
    sgd = Sgd(training)
    for step, rows in enumerate(plan.batches(records.units)):
        head.zero_grad(set_to_none=False)
        for start in range(0, len(rows), _ROWS):
            part = rows[start : start + _ROWS]
            x = torch.from_numpy(records.features[part].astype(dtype))
            y = torch.from_numpy(targets[part].astype(dtype))
            LOSSES[training.loss](head(x), y, reduction="sum").backward()
        with torch.no_grad():
            for name, p in head.named_parameters():
                gradient = torch.zeros_like(p) if p.grad is None else p.grad / plan.normalizer
                update = sgd.update((name,), gradient)
                p.copy_(descend(training, learning_rate(training, step), p, update))
    return finite({name: p.detach() for name, p in head.named_parameters()})
