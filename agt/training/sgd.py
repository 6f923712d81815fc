"""SGD, on a point and on a box: momentum, Nesterov, decoupled weight decay, the published schedule
(method.md 1, 2).

Formal guarantees
    Every coefficient applied to a gradient or a buffer is nonnegative, so bounds pair directly: the
    buffer's lower bound comes from lower bounds, and theta's lower bound from the buffer's upper
    one. Each operation is one rounded elementwise operation, identical for nominal and bounds,
    hence monotone: containment and nesting hold bit for bit.
"""

from dataclasses import dataclass, field

from torch import Tensor

from agt.settings import TrainingConfig

DrawKey = tuple[str | int, ...]


def learning_rate(config: TrainingConfig, step: int) -> float:
    """lr_n = max(lr / (1 + decay n), lr_min), n = 0, 1, ... counted per batch."""
    return max(config.lr / (1 + config.decay * step), config.lr_min)


@dataclass
class Sgd:
    """The momentum buffers of one run.

    Attributes:
        config: momentum, dampening, Nesterov.
        buffers: what tells parameters apart (a side of a box, a name) -> its buffer. Empty at
            first: the first gradient becomes the buffer, undampened (PyTorch's convention).
    """

    config: TrainingConfig
    buffers: dict[DrawKey, Tensor] = field(default_factory=dict)

    def update(self, key: DrawKey, gradient: Tensor) -> Tensor:
        """What lr multiplies: v, or g + momentum * v (Nesterov); ``gradient`` is the descent
        direction's value.
        """
        m = self.config.momentum
        if not m:
            return gradient
        if key in self.buffers:
            self.buffers[key] = self.buffers[key] * m + gradient * (1 - self.config.dampening)
        else:
            self.buffers[key] = gradient
        return gradient + self.buffers[key] * m if self.config.nesterov else self.buffers[key]


def descend(config: TrainingConfig, lr: float, theta: Tensor, update: Tensor) -> Tensor:
    """theta' = (1 - lr wd) theta - lr update.

    A lower bound of theta takes an upper bound of the update.
    """
    return theta * (1 - lr * config.weight_decay) - update * lr
