"""The network of a tube: public output weights, public first weights, and sums of gradients over records.

Formal guarantees
    See setting.py: what is computed here is within ``Rounding`` of the exact, whatever order the sums take.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from agt.data.dataset import Records
from agt.distributed import group, spans
from agt.errors import ConfigError
from agt.numeric import UNIT
from agt.training.linear import blocks_of, derivative
from agt.training.sensitivity import LinearLoss
from agt.tube.activations import Activation

_ROWS = 512  # records at once, so that what one layer makes of them stays in the cache


@dataclass(frozen=True)
class Part:
    """A block of records, as the network sees them at some weights.

    Attributes:
        x: [b, d] features.
        pull: [b, m] u = A^T q.
        slope, bend: [b, m] s'(W x), s''(W x).
    """

    x: Tensor
    pull: Tensor
    slope: Tensor
    bend: Tensor


@dataclass(frozen=True)
class TubeNetwork:
    """f(x; W) = A s(W x).

    Attributes:
        loss: of one logit, or a softmax.
        activation: s.
        outputs: A, [J, m] float64.
    """

    loss: LinearLoss
    activation: Activation
    outputs: Tensor

    @classmethod
    def of(cls, loss: LinearLoss, activation: Activation, units: int, length: float, seed: int) -> "TubeNetwork":
        """With output weights of random signs from a public seed; those of the second half are the first's, turned.

        Args:
            units: m, even.
            length: of the output weights of one logit.

        Raises:
            ConfigError: two classes have the same output weights, which nothing can tell apart then.
        """
        signs = np.random.default_rng((seed, 1)).integers(0, 2, (loss.outputs, units // 2)) * 2.0 - 1
        if len(np.unique(signs, axis=0)) < loss.outputs:
            raise ConfigError(
                f"model.hidden=[{units}]: two classes get the same output weights from training.seed={seed}: nothing could "
                "tell them apart: give more units, or another seed"
            )
        half = torch.from_numpy(signs * (length / units**0.5))
        return cls(loss, activation, torch.cat([half, -half], dim=1))

    def initial(self, width: int, spread: float, seed: int) -> Tensor:
        """[m, d] W_0 from a public seed: unit j and unit j + m/2 alike, so that every logit begins at 0.

        Args:
            spread: standard deviation of each weight, so of W x for a record of length 1.
        """
        half = torch.from_numpy(np.random.default_rng((seed, 0)).standard_normal((self.outputs.shape[1] // 2, width)))
        return torch.cat([half, half]) * spread

    def logits(self, weight: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """([n, J] f, [n, m] s'(W x)) of features [n, d], float64."""
        value, slope, _ = self.activation.at(x @ weight.T)
        return value @ self.outputs.T, slope

    def gradient_sum(self, weight: Tensor, records: Records, rows: np.ndarray) -> Tensor:
        """[m, d] the sum over the records at ``rows``, and nothing of how curved the loss is there."""
        return self.summed(weight, records, rows, lambda part: ((part.pull * part.slope).T @ part.x,), (weight.shape,))[0]

    def summed(
        self,
        weight: Tensor,
        records: Records,
        rows: np.ndarray,
        of: Callable[[Part], tuple[Tensor, ...]],
        shapes: tuple[tuple[int, ...], ...],
    ) -> tuple[Tensor, ...]:
        """The sums of ``of``, float64 of these shapes, over blocks of the records at ``rows``, each one process's."""

        def part(span: slice) -> tuple[Tensor, ...]:
            totals = tuple(torch.zeros(shape, dtype=torch.float64) for shape in shapes)
            for block in self.parts(weight, records, rows[span]):
                for total, each in zip(totals, of(block), strict=True):
                    total += each
            return totals

        return group().summed(spans(len(rows), _ROWS), part)

    def parts(self, weight: Tensor, records: Records, rows: np.ndarray) -> Iterator[Part]:
        """The records at ``rows``, a few at a time."""
        for x, labels in blocks_of(records, rows, _ROWS):
            value, slope, bend = self.activation.at(x @ weight.T)
            q = derivative(self.loss, value @ self.outputs.T, labels)
            yield Part(x, q @ self.outputs, slope, bend)


def start_norm(weight: Tensor) -> float:
    """|W|, Frobenius, rounded up."""
    return float(torch.linalg.vector_norm(weight)) * (1 + 2 * (weight.numel() + 4) * UNIT)
