"""Gradients of the losses in the logits, nominal and bounded (method.md section 1).

A sigmoid or softmax is widened by an absolute margin (method.md section 6) and then cut back to [0, 1], where both the
exact and the computed probability lie.
"""

from typing import Protocol

import torch
from torch import Tensor

from agt.bounds.interval import Interval
from agt.bounds.rounding import Rounding


class Loss(Protocol):
    """The gradient of a loss in the logits."""

    def nominal(self, logits: Tensor, labels: Tensor) -> Tensor: ...
    def bound(self, logits: Interval, labels: Tensor, rounding: Rounding) -> Interval: ...


class BinaryCrossEntropy:
    """On one logit f (or a two-class head's logit difference): sigmoid(f) - y, increasing in f."""

    def nominal(self, logits: Tensor, labels: Tensor) -> Tensor:
        """[n, 1], labels [n] in {0, 1} -> [n, 1]."""
        return torch.sigmoid(logits) - labels[:, None].to(logits.dtype)

    def bound(self, logits: Interval, labels: Tensor, rounding: Rounding) -> Interval:
        """[K, n, 1] -> [K, n, 1]."""
        bounds = (torch.sigmoid(logits.lower), torch.sigmoid(logits.upper))
        p = rounding.widen(bounds, 8 * rounding.unit)
        target = labels[:, None].to(p.lower.dtype)
        return Interval(p.lower.clamp(min=0) - target, p.upper.clamp(max=1) - target)


class CrossEntropy:
    """Softmax over C logits: p - onehot(y)."""

    def nominal(self, logits: Tensor, labels: Tensor) -> Tensor:
        """[n, C], labels [n] -> [n, C]."""
        return torch.softmax(logits, dim=-1) - torch.nn.functional.one_hot(labels, logits.shape[-1]).to(logits.dtype)

    def bound(self, logits: Interval, labels: Tensor, rounding: Rounding) -> Interval:
        """[K, n, C] -> [K, n, C]. p_i is least at f_i = l_i, f_j = u_j, and greatest the other way round.

        An overflowing exp gives 1/inf = 0, a valid lower bound. On the upper side the sum is at least 1.
        """
        lower = self._probability(logits.lower, logits.upper)
        upper = self._probability(logits.upper, logits.lower)
        classes = logits.shape[-1]
        p = rounding.widen((lower, upper), (classes + 8) * rounding.unit)
        target = torch.nn.functional.one_hot(labels, classes).to(p.lower.dtype)
        return Interval(p.lower.clamp(min=0) - target, p.upper.clamp(max=1) - target)

    @staticmethod
    def _probability(own: Tensor, others: Tensor) -> Tensor:
        # gaps[..., i, j] = others_j - own_i, the term j = i being exp(0) = 1.
        gaps = others[..., None, :] - own[..., :, None]
        terms = torch.exp(gaps)
        terms.diagonal(dim1=-2, dim2=-1).fill_(1.0)
        return 1.0 / terms.sum(dim=-1)
