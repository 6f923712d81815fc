"""SGD with momentum, Nesterov steps, decoupled weight decay and a learning-rate schedule.

The same code updates nominal parameters and the ends of their bounds (method.md sections 1 and 2).
"""

from dataclasses import dataclass, field

from torch import Tensor

from agt.settings import TrainingConfig

BufferKey = tuple[str | int, ...]
"""What a momentum buffer is of: a side ("nominal", "lower" or "upper"), a parameter's name, ..."""


def learning_rate(config: TrainingConfig, step: int) -> float:
    """Return the learning rate of a step, max(lr / (1 + decay step), lr_min).

    Args:
        config: ``lr``, ``decay`` and ``lr_min``.
        step: the number of the step, counted from 0 over all epochs.
    """
    return max(config.lr / (1 + config.decay * step), config.lr_min)


@dataclass
class Sgd:
    """The momentum buffers of one run.

    Attributes:
        config: ``momentum``, ``dampening`` and ``nesterov``.
        buffers: the buffer of each key that was updated; none where there is no momentum.
    """

    config: TrainingConfig
    buffers: dict[BufferKey, Tensor] = field(default_factory=dict)

    def update(self, key: BufferKey, gradient: Tensor) -> Tensor:
        """Take in a gradient, and return what the learning rate multiplies.

        Formal guarantees
            * Every rounded operation is elementwise and monotone in the gradients given so far, so
              lower bounds on these give a lower bound on the result, and upper bounds an upper one
              (Lemma 2 of docs/proofs/training.md).

        Args:
            key: of the momentum buffer.
            gradient: the descent direction of this step.

        Returns:
            The gradient itself without momentum; else the new buffer v = momentum v + (1 -
            dampening) gradient, or gradient + momentum v for Nesterov steps. The first gradient
            becomes the buffer undampened, as in PyTorch.
        """
        momentum = self.config.momentum
        if not momentum:
            return gradient
        buffer = gradient
        if key in self.buffers:
            buffer = self.buffers[key] * momentum + gradient * (1 - self.config.dampening)
        self.buffers[key] = buffer
        return gradient + buffer * momentum if self.config.nesterov else buffer


def descend(config: TrainingConfig, lr: float, theta: Tensor, update: Tensor) -> Tensor:
    """Return the parameters after a step, (1 - lr weight_decay) theta - lr update.

    Formal guarantees
        * The result grows with ``theta`` and falls with ``update``, as rounded, so a lower bound
          comes from theta's lower bound and the update's upper bound (Lemma 2 of
          docs/proofs/training.md).

    Args:
        config: ``weight_decay``; settings see to it that lr weight_decay is at most 1.
        lr: the learning rate of the step.
        theta: the parameters, or one end of their bounds.
        update: what ``Sgd.update`` returned.
    """
    return theta * (1 - lr * config.weight_decay) - update * lr
