"""The gradient of each loss in the network's outputs, nominal and bounded.

``LOSSES`` is the registry; a new loss is a class here and an entry there.
"""

from typing import Protocol

import torch
from torch import Tensor

from agt.bounds.interval import Interval
from agt.bounds.rounding import Rounding
from agt.errors import ConfigError, nearest
from agt.messages import Message

_SIGMOID_ERROR = 8.0  # units of roundoff; Lemma 1 of docs/proofs/losses.md


class Loss(Protocol):
    """The gradient of a loss in the logits of each record.

    Formal guarantees (tests/contract/test_losses.py checks them for every entry of ``LOSSES``):
        - Containment: if logits lie in their bounds, ``nominal`` lies in ``bound``, as computed.
        - Nesting: bounds for k - 1 of inner logits lie within bounds for k of outer ones.

    Attributes:
        one_output: True if the network has one output for two classes; False if it has one output
            for each class.
        threshold: with one output, the logit above which class 1 is predicted.
        difference: for a loss of one output per class, the equal loss of two classes as a function
            of the difference of their logits, f_1 - f_0; None if there is none.
    """

    @property
    def one_output(self) -> bool: ...
    @property
    def threshold(self) -> float: ...
    @property
    def difference(self) -> "Loss | None": ...

    def nominal(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the gradient in each record's logits.

        Args:
            logits: [n, outputs].
            labels: int64 [n], class indices.

        Returns:
            [n, outputs].
        """

    def bound(self, logits: Interval, labels: Tensor, rounding: Rounding) -> Interval:
        """Bound the gradient over all logits in an interval.

        Args:
            logits: [K, n, outputs].
            labels: int64 [n], class indices.
            rounding: the widening for each of the K distances.

        Returns:
            [K, n, outputs].
        """


class BinaryCrossEntropy:
    """The cross entropy of a sigmoid of one logit f; its gradient is sigmoid(f) - label."""

    one_output = True
    threshold = 0.0
    difference = None

    def nominal(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the gradient [n, 1] of logits [n, 1], with labels [n] in {0, 1}."""
        return torch.sigmoid(logits) - labels[:, None].to(logits.dtype)

    def bound(self, logits: Interval, labels: Tensor, rounding: Rounding) -> Interval:
        """Bound the gradient [K, n, 1] of logits [K, n, 1]."""
        # The sigmoid increases, so its extremes are at the ends of the logit.
        ends = (torch.sigmoid(logits.lower), torch.sigmoid(logits.upper))
        probability = rounding.widen(ends, _SIGMOID_ERROR * rounding.unit_roundoff)
        target = labels[:, None].to(probability.lower.dtype)
        lower = probability.lower.clamp(min=0) - target
        upper = probability.upper.clamp(max=1) - target
        return Interval(lower, upper)


class CrossEntropy:
    """The cross entropy of a softmax of C logits; its gradient is softmax(f) - onehot(label)."""

    one_output = False
    threshold = 0.0
    difference = BinaryCrossEntropy()

    def nominal(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the gradient [n, C] of logits [n, C], with labels [n] in 0 .. C - 1."""
        target = torch.nn.functional.one_hot(labels, logits.shape[-1]).to(logits.dtype)
        return torch.softmax(logits, dim=-1) - target

    def bound(self, logits: Interval, labels: Tensor, rounding: Rounding) -> Interval:
        """Bound the gradient [K, n, C] of logits [K, n, C]."""
        # Lemma 2 of docs/proofs/losses.md: where a probability is smallest and largest.
        smallest = self._probabilities(logits.lower, logits.upper)
        largest = self._probabilities(logits.upper, logits.lower)
        classes = logits.shape[-1]
        # Lemma 3 of docs/proofs/losses.md: what a softmax errs by, as computed.
        error = (classes + 8) * rounding.unit_roundoff
        probability = rounding.widen((smallest, largest), error)
        target = torch.nn.functional.one_hot(labels, classes).to(probability.lower.dtype)
        lower = probability.lower.clamp(min=0) - target
        upper = probability.upper.clamp(max=1) - target
        return Interval(lower, upper)

    @staticmethod
    def _probabilities(logits: Tensor, rivals: Tensor) -> Tensor:
        """Return the probability of each class where the other classes have other logits.

        Args:
            logits: [..., C], the logit of a class in its own probability.
            rivals: [..., C], its logit in the probabilities of the other classes.

        Returns:
            [..., C], 1 / (1 + sum of exp(rival_j - logit_i) over j != i) for class i. An exp that
            overflows gives 0, which is a valid lower bound.
        """
        own_class = torch.eye(logits.shape[-1], dtype=torch.bool, device=logits.device)
        ratios = torch.exp(rivals[..., None, :] - logits[..., :, None])
        return 1.0 / ratios.masked_fill(own_class, 1.0).sum(dim=-1)


class SquaredError:
    """The loss (f - label)^2 of one output, with class indices 0 and 1 as targets.

    Its gradient 2 (f - label) is one rounded subtraction and an exact doubling, so it is monotone
    as computed and needs no widening.
    """

    one_output = True
    threshold = 0.5  # halfway between the two targets
    difference = None

    def nominal(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the gradient [n, 1] of outputs [n, 1], with labels [n] in {0, 1}."""
        return 2 * (logits - labels[:, None].to(logits.dtype))

    def bound(self, logits: Interval, labels: Tensor, rounding: Rounding) -> Interval:
        """Bound the gradient [K, n, 1] of outputs [K, n, 1]; ``rounding`` is not needed."""
        target = labels[:, None].to(logits.lower.dtype)
        return Interval(2 * (logits.lower - target), 2 * (logits.upper - target))


LOSSES: dict[str, Loss] = {
    "binary_cross_entropy": BinaryCrossEntropy(),
    "cross_entropy": CrossEntropy(),
    "squared_error": SquaredError(),
}


def find_loss(name: str, classes: int) -> Loss:
    """Return the loss that ``training.loss`` names.

    Args:
        name: a key of ``LOSSES``.
        classes: the number of classes of the data.

    Raises:
        ConfigError: no loss has this name, or it has one output and there are not two classes.
    """
    if name not in LOSSES:
        raise ConfigError(
            Message(
                "{config:training.loss}: unknown value '{name}'{hint}",
                name=name,
                hint=nearest(name, LOSSES),
            )
        )
    loss = LOSSES[name]
    if loss.one_output and classes != 2:
        raise ConfigError(
            Message(
                "{config:training.loss}={name} needs two classes and the data has {classes}: "
                "use {config:training.loss}=cross_entropy, or map the classes to two",
                name=name,
                classes=classes,
            )
        )
    return loss
