"""Gradients of the losses in the outputs, nominal and bounded (method.md section 1). A new loss is
an entry of ``LOSSES``.

A sigmoid or softmax is widened by an absolute margin (method.md section 6) and then cut back to [0,
1], where both the exact and the computed probability lie. A squared error's gradient is monotone as
computed and needs no margin.

Formal guarantees, which tests/contract/test_losses.py checks for every entry: with outputs in their
bounds, what ``nominal`` computes lies in ``bound``; and inner bounds for k-1 give inner bounds.
"""

from typing import Protocol

import torch
from torch import Tensor

from agt.bounds.interval import Interval
from agt.bounds.rounding import Rounding
from agt.errors import ConfigError, nearest


class Loss(Protocol):
    """The gradient of a loss in the logits.

    Attributes:
        one_output: the head has one output, for two classes; else one for each class.
        threshold: one output above it means class 1.
        difference: with two classes and two outputs, the same loss as a function of their
            difference; None: it is none.
    """

    @property
    def one_output(self) -> bool: ...
    @property
    def threshold(self) -> float: ...
    @property
    def difference(self) -> "Loss | None": ...

    def nominal(self, logits: Tensor, labels: Tensor) -> Tensor: ...
    def bound(self, logits: Interval, labels: Tensor, rounding: Rounding) -> Interval: ...


class BinaryCrossEntropy:
    """On one logit f (or a two-class head's logit difference): sigmoid(f) - y, increasing in f."""

    one_output, threshold, difference = True, 0.0, None

    def nominal(self, logits: Tensor, labels: Tensor) -> Tensor:
        """[n, 1], labels [n] in {0, 1} -> [n, 1]."""
        return torch.sigmoid(logits) - labels[:, None].to(logits.dtype)

    def bound(self, logits: Interval, labels: Tensor, rounding: Rounding) -> Interval:
        """[K, n, 1] -> [K, n, 1]."""
        bounds = (torch.sigmoid(logits.lower), torch.sigmoid(logits.upper))
        p = rounding.widen(bounds, 8 * rounding.unit_roundoff)
        target = labels[:, None].to(p.lower.dtype)
        return Interval(p.lower.clamp(min=0) - target, p.upper.clamp(max=1) - target)


class CrossEntropy:
    """Softmax over C logits: p - onehot(y)."""

    one_output, threshold, difference = False, 0.0, BinaryCrossEntropy()

    def nominal(self, logits: Tensor, labels: Tensor) -> Tensor:
        """[n, C], labels [n] -> [n, C]."""
        return torch.softmax(logits, dim=-1) - torch.nn.functional.one_hot(
            labels, logits.shape[-1]
        ).to(logits.dtype)

    def bound(self, logits: Interval, labels: Tensor, rounding: Rounding) -> Interval:
        """[K, n, C] -> [K, n, C]. p_i is least at f_i = l_i, f_j = u_j, and greatest the other way
        round.

        An overflowing exp gives 1/inf = 0, a valid lower bound. On the upper side the sum is at
        least 1.
        """
        lower = self._probabilities(logits.lower, logits.upper)
        upper = self._probabilities(logits.upper, logits.lower)
        classes = logits.shape[-1]
        p = rounding.widen((lower, upper), (classes + 8) * rounding.unit_roundoff)
        target = torch.nn.functional.one_hot(labels, classes).to(p.lower.dtype)
        return Interval(p.lower.clamp(min=0) - target, p.upper.clamp(max=1) - target)

    @staticmethod
    def _probabilities(logits: Tensor, rivals: Tensor) -> Tensor:
        """1 / sum_j exp(rival_j - logit_i) for each i, the term j = i being exp(0) = 1; both
        [..., C].
        """
        own = torch.eye(logits.shape[-1], dtype=torch.bool, device=logits.device)
        return 1.0 / torch.exp(rivals[..., None, :] - logits[..., :, None]).masked_fill(
            own, 1.0
        ).sum(dim=-1)


class SquaredError:
    """(f - y)^2 on one output, regression on the class labels 0 and 1: 2 (f - y), increasing in f;
    1/2 parts the classes.

    One rounded subtraction and an exact doubling, the same for bounds and nominal value: monotone
    as computed.
    """

    one_output, threshold, difference = True, 0.5, None

    def nominal(self, logits: Tensor, labels: Tensor) -> Tensor:
        """[n, 1], labels [n] in {0, 1} -> [n, 1]."""
        return 2 * (logits - labels[:, None].to(logits.dtype))

    def bound(self, logits: Interval, labels: Tensor, rounding: Rounding) -> Interval:
        """[K, n, 1] -> [K, n, 1]."""
        target = labels[:, None].to(logits.lower.dtype)
        return Interval(2 * (logits.lower - target), 2 * (logits.upper - target))


LOSSES: dict[str, Loss] = {
    "binary_cross_entropy": BinaryCrossEntropy(),
    "cross_entropy": CrossEntropy(),
    "squared_error": SquaredError(),
}


def find_loss(name: str, classes: int) -> Loss:
    """The loss of this name.

    Raises:
        ConfigError: there is none, or it does not fit the number of classes.
    """
    if name not in LOSSES:
        raise ConfigError(f"training.loss: unknown value '{name}'{nearest(name, LOSSES)}")
    loss = LOSSES[name]
    if loss.one_output and classes != 2:
        raise ConfigError(
            f"training.loss={name} needs two classes and the data has {classes}: "
            "use training.loss=cross_entropy, or map the classes to two"
        )
    return loss
