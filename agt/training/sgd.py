"""SGD with momentum, Nesterov steps, decoupled weight decay and a learning-rate schedule.

The same code updates the nominal parameters (those of ordinary training) and the ends of the bounds
on them (reference.md sections 1 and 2).
"""

from dataclasses import dataclass, field

from torch import Tensor

from agt.settings import TrainingConfig

BufferKey = tuple[str | int, ...]
"""Names a momentum buffer: ("nominal", parameter) or ("lower" or "upper", parameter, group)."""


def learning_rate(config: TrainingConfig, step: int) -> float:
    """Return the learning rate of a step: lr / (1 + decay * step), but at least lr_min.

    Args:
        config: the training settings, of which ``lr``, ``decay`` and ``lr_min`` are used.
        step: the number of the step, counted from 0 over all epochs.
    """
    return max(config.lr / (1 + config.decay * step), config.lr_min)


@dataclass
class Sgd:
    """SGD's momentum, with one buffer for each tensor that is updated.

    Attributes:
        config: the training settings, of which ``momentum``, ``dampening`` and ``nesterov`` are
            used.
        buffers: key -> momentum buffer, of each key that was updated; empty without momentum.
    """

    config: TrainingConfig
    buffers: dict[BufferKey, Tensor] = field(default_factory=dict)

    def update(self, key: BufferKey, gradient: Tensor) -> Tensor:
        """Return a gradient with momentum, and store the new momentum buffer under ``key``.

        Formal guarantees
            * Every operation is elementwise and, rounding included, monotone in the gradients given
              so far. So lower bounds on all of these give a lower bound on the result, and upper
              bounds give an upper bound (Lemma 2 of docs/proofs/training.md).

        Args:
            key: the key of the momentum buffer; use one key for each tensor that is updated.
            gradient: the gradient of this step, or one end of its bounds.

        Returns:
            The tensor that the learning rate multiplies: ``gradient`` itself if there is no
            momentum; with momentum the buffer v = momentum * v + (1 - dampening) * gradient; with
            Nesterov steps gradient + momentum * v. The first gradient becomes the buffer without
            dampening, as in PyTorch.
        """
        momentum = self.config.momentum
        if not momentum:
            return gradient
        buffer = gradient  # of the first step
        if key in self.buffers:
            buffer = self.buffers[key] * momentum + gradient * (1 - self.config.dampening)
        self.buffers[key] = buffer
        if self.config.nesterov:
            return gradient + buffer * momentum
        return buffer


def descend(config: TrainingConfig, lr: float, parameter: Tensor, update: Tensor) -> Tensor:
    """Return a parameter after a step of SGD: (1 - lr * weight_decay) * parameter - lr * update.

    Formal guarantees
        * Rounding included, the result increases with ``parameter`` and decreases with ``update``.
          So the lower bound on a parameter has to be called with the upper bound on the update, and
          vice versa (Lemma 2 of docs/proofs/training.md).

    Args:
        config: the training settings, of which ``weight_decay`` is used. Their validation ensures
            that lr * weight_decay is at most 1.
        lr: the learning rate of the step.
        parameter: the parameter before the step, or one end of its bounds.
        update: the gradient with momentum (``Sgd.update``), or one end of its bounds.
    """
    return parameter * (1 - lr * config.weight_decay) - update * lr
