"""Losses: the gradient of each in the network's outputs, and interval bounds on this gradient.

``LOSSES`` is the registry; a new loss is a class here and an entry there.
"""

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from agt.bounds.interval import Interval
from agt.bounds.rounding import Rounding
from agt.errors import ConfigError
from agt.messages import Message

# The allowance for the error of a computed sigmoid, in units of roundoff: twice its largest error,
# so that half of it also covers the rounding of the widening (Lemma 1 of docs/proofs/losses.md).
_SIGMOID_ERROR = 8.0


class Loss(ABC):
    """The base class of losses, each given by its gradient in the logits of a record.

    Formal guarantees (tests/contract/test_losses.py checks them for every entry of ``LOSSES``):
        - Containment: if logits lie in their bounds, the floating-point result of ``nominal`` lies
          in ``bound``.
        - Nesting: narrower logit intervals at k - 1 give bounds within those of wider logit
          intervals at k.

    Attributes:
        one_output: True, the default: the network has one output, for two classes; False: it has
            one output for each class.
        threshold: if the network has one output, the logit above which class 1 is predicted; by
            default 0.
        difference: the loss that equals this loss for two classes, if it has one output per class,
            and takes the single logit f_1 - f_0 (the logit difference); None, the default: there is
            none.
    """

    one_output: ClassVar[bool] = True
    threshold: ClassVar[float] = 0.0
    difference: ClassVar["Loss | None"] = None

    @abstractmethod
    def nominal(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the gradient of the loss with respect to each record's logits.

        Args:
            logits: [n, outputs], the outputs of the network.
            labels: int64 [n], class indices.

        Returns:
            [n, outputs].
        """

    @abstractmethod
    def bound(self, logits: Interval, labels: Tensor, rounding: Rounding) -> Interval:
        """Bound the gradient of the loss over all logits in an interval.

        Args:
            logits: bounds on the logits, [K, n, outputs].
            labels: int64 [n], class indices.
            rounding: the widening by which bounds cover floating-point error, for each k.

        Returns:
            [K, n, outputs].
        """


class BinaryCrossEntropy(Loss):
    """The cross entropy of two classes, whose class 1 has the probability sigmoid(logit).

    Its gradient in the logit is sigmoid(logit) - label.
    """

    def nominal(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the gradient sigmoid(logits) - label.

        Args:
            logits: [n, 1], the outputs of the network.
            labels: int64 [n], each 0 or 1.

        Returns:
            [n, 1].
        """
        return torch.sigmoid(logits) - labels[:, None].to(logits.dtype)

    def bound(self, logits: Interval, labels: Tensor, rounding: Rounding) -> Interval:
        """Bound the gradient sigmoid(logit) - label over all logits in an interval.

        Args:
            logits: bounds on the logits, [K, n, 1].
            labels: int64 [n], each 0 or 1.
            rounding: the widening by which bounds cover floating-point error, for each k.

        Returns:
            [K, n, 1].
        """
        # The sigmoid is increasing, so its extremes are at the ends of the logit's interval.
        ends = (torch.sigmoid(logits.lower), torch.sigmoid(logits.upper))
        probability = rounding.widen(ends, _SIGMOID_ERROR * rounding.unit_roundoff)
        return _subtract_target(probability, labels[:, None])


class CrossEntropy(Loss):
    """The cross entropy of C classes, whose probabilities are the softmax of C logits.

    Its gradient in the logits is softmax(logits) - onehot(label).
    """

    one_output = False
    difference = BinaryCrossEntropy()

    def nominal(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the gradient softmax(logits) - onehot(label).

        Args:
            logits: [n, C], the outputs of the network.
            labels: int64 [n], each in 0 .. C - 1.

        Returns:
            [n, C].
        """
        target = torch.nn.functional.one_hot(labels, logits.shape[-1]).to(logits.dtype)
        return torch.softmax(logits, dim=-1) - target

    def bound(self, logits: Interval, labels: Tensor, rounding: Rounding) -> Interval:
        """Bound the gradient softmax(logits) - onehot(label) over all logits in an interval.

        Args:
            logits: bounds on the logits, [K, n, C].
            labels: int64 [n], each in 0 .. C - 1.
            rounding: the widening by which bounds cover floating-point error, for each k.

        Returns:
            [K, n, C].
        """
        # Lemma 2 of docs/proofs/losses.md: the probability of a class is smallest where its own
        # logit is smallest and all others are largest, and largest the other way round.
        smallest = self._probabilities(logits.lower, logits.upper)
        largest = self._probabilities(logits.upper, logits.lower)
        classes = logits.shape[-1]
        # Lemma 3 of docs/proofs/losses.md: a softmax of C classes, as computed in any order of
        # summation, errs by less than (C + 8) units of roundoff.
        error_bound = (classes + 8) * rounding.unit_roundoff
        probability = rounding.widen((smallest, largest), error_bound)
        return _subtract_target(probability, torch.nn.functional.one_hot(labels, classes))

    @staticmethod
    def _probabilities(logits: Tensor, other_logits: Tensor) -> Tensor:
        """Return the probability of each class for its own logit and other logits of the others.

        Args:
            logits: [..., C]; entry i is the logit of class i in the probability of class i.
            other_logits: [..., C]; entry j is the logit of class j in the probability of every
                class i != j.

        Returns:
            [..., C]; entry i is 1 / (1 + sum of exp(other_logits_j - logits_i) over j != i). An exp
            that overflows to infinity gives 0, which is a valid lower bound of a probability.
        """
        own_class = torch.eye(logits.shape[-1], dtype=torch.bool, device=logits.device)
        ratios = torch.exp(other_logits[..., None, :] - logits[..., :, None])  # [..., i, j]
        # The class itself (i = j) contributes exp(0) = 1 to the sum.
        ratios = ratios.masked_fill(own_class, 1.0)
        return 1.0 / ratios.sum(dim=-1)


def _subtract_target(probability: Interval, target: Tensor) -> Interval:
    """Bound the difference of a probability and its target.

    Args:
        probability: bounds on the probability, [K, n, outputs], which may exceed [0, 1].
        target: integers 0 or 1, [n, outputs].
    """
    # A probability lies in [0, 1], so clamping the widened bounds loses nothing.
    target = target.to(probability.lower.dtype)
    lower = probability.lower.clamp(min=0) - target
    upper = probability.upper.clamp(max=1) - target
    return Interval(lower, upper)


class SquaredError(Loss):
    """The squared error (output - label)^2 of one output, with the labels 0 and 1 as targets.

    Its gradient 2 (output - label) is one rounded subtraction and an exact doubling. So it is
    monotone in the output as computed, and its bounds need no widening.
    """

    threshold = 0.5  # halfway between the two targets

    def nominal(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the gradient 2 (output - label).

        Args:
            logits: the network's outputs, [n, 1].
            labels: int64 [n], each 0 or 1.

        Returns:
            [n, 1].
        """
        return 2 * (logits - labels[:, None].to(logits.dtype))

    def bound(self, logits: Interval, labels: Tensor, rounding: Rounding) -> Interval:
        """Bound the gradient 2 (output - label) over all outputs in an interval.

        Args:
            logits: bounds on the network's outputs, [K, n, 1].
            labels: int64 [n], each 0 or 1.
            rounding: not used, because the gradient is monotone as computed.

        Returns:
            [K, n, 1].
        """
        # The gradient increases with the output, so its bounds are at the ends of the interval.
        target = labels[:, None].to(logits.lower.dtype)
        lower = 2 * (logits.lower - target)
        upper = 2 * (logits.upper - target)
        return Interval(lower, upper)


LOSSES: dict[str, Loss] = {
    "binary_cross_entropy": BinaryCrossEntropy(),
    "cross_entropy": CrossEntropy(),
    "squared_error": SquaredError(),
}


def find_loss(name: str, classes: int) -> Loss:
    """Return the loss of a given name, after checking that it fits the number of classes.

    Args:
        name: a key of ``LOSSES``, the value of the setting ``training.loss``.
        classes: the number of classes of the data.

    Raises:
        ConfigError: the loss has one output, which is enough for two classes only, and the data
            have another number of classes.
    """
    loss = LOSSES[name]
    if loss.one_output and classes != 2:
        raise ConfigError(
            Message(
                "{config:training.loss}={name} needs data with two classes, but the data has "
                "{classes}: use {config:training.loss}=cross_entropy, or map the classes to two",
                name=name,
                classes=classes,
            )
        )
    return loss
