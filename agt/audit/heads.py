"""Per-record gradients of a head at many parameters at once: in closed form for one linear layer, by torch.func otherwise.

An audit trains thousands of times. R runs stand side by side: parameters [R, P], flat, in the order of the module's own.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn import functional as F

from agt.errors import ConfigError

LOSSES: dict[str, Callable[..., Tensor]] = {
    "binary_cross_entropy": F.binary_cross_entropy_with_logits,
    "cross_entropy": F.cross_entropy,
}
_NUMBERS = 2**24  # of all runs' per-record gradients at once


class Gradients(Protocol):
    """The records' gradients at R parameters."""

    @property
    def norms(self) -> np.ndarray:
        """[R, n] their l2 norms."""
        ...

    @property
    def losses(self) -> np.ndarray:
        """[R, n]."""
        ...

    def sum(self, weights: np.ndarray) -> np.ndarray:
        """[R, P]: the gradients' sum, times weights [R, n]."""
        ...

    def last(self, count: int) -> np.ndarray:
        """[R, count, P]: those of the last records."""
        ...


class AuditHead(Protocol):
    """What is trained."""

    @property
    def initial(self) -> np.ndarray:
        """[P] float64."""
        ...

    @property
    def runs(self) -> int:
        """How many may stand side by side."""
        ...

    def on(self, features: np.ndarray, labels: np.ndarray) -> Callable[[np.ndarray], Gradients]:
        """Parameters [R, P] -> the gradients of these records there."""
        ...


def head_for(module: nn.Sequential, loss: str, records: int) -> AuditHead:
    """The head as audits train it.

    Args:
        records: how many there will be.

    Raises:
        ConfigError: a loss that has no gradients here.
    """
    if loss not in LOSSES:
        raise ConfigError(f"training.loss={loss}: DP-SGD is audited with {' or '.join(LOSSES)}")
    layers = [layer for layer in module if not isinstance(layer, nn.Flatten)]
    initial = np.concatenate([p.detach().double().numpy().ravel() for p in module.parameters()])
    if len(layers) == 1 and isinstance(layers[0], nn.Linear) and layers[0].bias is not None:
        return Linear(initial, layers[0].out_features, _NUMBERS // max(1, records * layers[0].out_features))
    return Network(initial, module.double(), loss, max(1, _NUMBERS // (len(initial) * max(1, records))))


@dataclass(frozen=True)
class Linear:
    """One linear layer with a bias: a record's gradient is (prediction - label) times (features, 1)."""

    initial: np.ndarray
    outputs: int
    runs: int

    def on(self, features: np.ndarray, labels: np.ndarray) -> Callable[[np.ndarray], Gradients]:
        """As ``AuditHead.on``."""
        flat = features.reshape(len(features), math.prod(features.shape[1:])).astype(np.float64)
        targets = labels[:, None].astype(float) if self.outputs == 1 else np.eye(self.outputs)[labels]
        lengths = np.sqrt((flat**2).sum(1) + 1)

        def at(theta: np.ndarray) -> Gradients:
            weight = theta[:, : -self.outputs].reshape(len(theta), self.outputs, -1)
            logits = np.moveaxis(np.tensordot(weight, flat, (2, 1)), 1, 2) + theta[:, None, -self.outputs :]
            errors, losses = _errors(logits, targets)
            return _LinearGradients(errors, losses, flat, np.linalg.norm(errors, axis=2) * lengths)

        return at


@dataclass(frozen=True)
class _LinearGradients:
    errors: np.ndarray  # [R, n, outputs]
    losses: np.ndarray
    features: np.ndarray
    norms: np.ndarray

    def sum(self, weights: np.ndarray) -> np.ndarray:
        weighed = self.errors * weights[:, :, None]
        into = np.tensordot(weighed, self.features, (1, 0))  # [R, outputs, d]
        return np.concatenate([into.reshape(len(into), -1), weighed.sum(1)], axis=1)

    def last(self, count: int) -> np.ndarray:
        errors, rows = self.errors[:, -count:], self.features[-count:]
        into = errors[:, :, :, None] * rows[None, :, None, :]
        return np.concatenate([into.reshape(*errors.shape[:2], -1), errors], axis=2)


def _errors(logits: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The loss's derivative by the logits [R, n, outputs], and the loss [R, n]."""
    if logits.shape[2] == 1:
        signed = (2 * targets - 1) * logits
        return -(2 * targets - 1) / (1 + np.exp(np.minimum(signed, 700))), np.logaddexp(0, -signed)[:, :, 0]
    shifted = logits - logits.max(axis=2, keepdims=True)
    odds = np.exp(shifted)
    total = odds.sum(axis=2, keepdims=True)
    return odds / total - targets, np.log(total[:, :, 0]) - (shifted * targets).sum(2)


@dataclass(frozen=True)
class Network:
    """Any module, by torch.func: one run after another, the records of each at once."""

    initial: np.ndarray
    module: nn.Sequential
    loss: str
    runs: int

    def on(self, features: np.ndarray, labels: np.ndarray) -> Callable[[np.ndarray], Gradients]:
        """As ``AuditHead.on``."""
        x, y = torch.from_numpy(features.astype(np.float64)), torch.from_numpy(labels)
        sizes = [p.numel() for p in self.module.parameters()]
        shapes = {name: p.shape for name, p in self.module.named_parameters()}

        def loss(flat: Tensor, row: Tensor, label: Tensor) -> Tensor:
            parts = zip(shapes.items(), flat.split(sizes), strict=True)
            logits = functional_call(self.module, {name: part.view(shape) for (name, shape), part in parts}, (row[None],))
            binary = self.loss == "binary_cross_entropy"
            return LOSSES[self.loss](logits, label.to(logits.dtype).view(1, 1) if binary else label.view(1))

        each = vmap(grad_and_value(loss), in_dims=(None, 0, 0))

        def at(theta: np.ndarray) -> Gradients:
            pairs = [each(one, x, y) for one in torch.from_numpy(theta)]
            gradients = np.stack([gradient.numpy() for gradient, _ in pairs])
            losses = np.stack([value.numpy() for _, value in pairs])
            return _DenseGradients(gradients, losses, np.linalg.norm(gradients, axis=2))

        return at


@dataclass(frozen=True)
class _DenseGradients:
    gradients: np.ndarray  # [R, n, P]
    losses: np.ndarray
    norms: np.ndarray

    def sum(self, weights: np.ndarray) -> np.ndarray:
        total: np.ndarray = (weights[:, None, :] @ self.gradients)[:, 0]
        return total

    def last(self, count: int) -> np.ndarray:
        return self.gradients[:, -count:]
