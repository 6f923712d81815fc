"""How curved the loss is at the weights reached: eigenvalues of -R and of sum x x^T, from above and by little (section 9).

A step drives two runs apart where the Hessian is negative, and of its two parts only R can be: what counts is dip(R) =
max(0, lambda_max(-R)), at most |R|. What a radius takes must move from neighbour to neighbour as dip(R) does, so an upper
bound alone is not enough: it lies within a PUBLIC slack of a quantity that one record moves by pull, and W by twist.

Formal guarantees
    exact: dip(R) = max_j dip(R_j), R being block diagonal; an eigenvalue moves by no more than the norm of what is added,
    and so does its maximum with others and with 0. cheap: M = sum_i max_j max(0, -u_ij s''_ij) x_i x_i^T. Each -R_j <= M as
    quadratic forms, so dip(R) <= lambda_max(M). One record moves M by a matrix of norm pull; W moves it by twist, since
    each weight moves so (setting.py) and a maximum of numbers that move by e moves by e.
    Rounding. What is computed errs by ``TubeSetting.matrix_rounding`` in norm, call it e, and ``eigenvalue_within`` adds
    between 0 and gap: so value + e lies in [true, true + 2 e + gap]. (The sum is rounded up; gap holds room for that.) The
    slack 2 e + gap is public: n_max, widths and a public bound on |W| decide it.

Source: method.md section 9.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from agt.data.dataset import Records
from agt.distributed import group, spans
from agt.numeric import next_up
from agt.training.linear import BLOCK, blocks_of
from agt.training.objective import fill, square
from agt.training.spectral import eigenvalue_gap, eigenvalue_within
from agt.tube.network import Part, TubeNetwork
from agt.tube.setting import TubeSetting

_UNITS = 16  # blocks R_j at once


@dataclass(frozen=True)
class Bound:
    """An upper bound of an eigenvalue, and how far above it can lie: a public number."""

    value: float
    slack: float


@dataclass(frozen=True)
class Meter:
    """Bounds eigenvalues for one setting.

    Attributes:
        setting: the public numbers.
        network: whose R it is.
    """

    setting: TubeSetting
    network: TubeNetwork

    def gram(self, records: Records, rows: np.ndarray) -> Bound:
        """lambda_max(sum x x^T) over the records at ``rows``."""

        def part(span: slice) -> tuple[Tensor]:
            total = torch.zeros((self.setting.width,) * 2, dtype=torch.float64)
            for x, _ in blocks_of(records, rows[span]):
                total += torch.from_numpy(square(x.numpy()))
            return (total,)

        return self._top([group().summed(spans(len(rows), BLOCK), part)[0].numpy()], 1.0, 0.0)

    def share(self, part: Part) -> Tensor:
        """[d, d] a block's part of M, in its lower triangle."""
        weights = (part.pull * part.bend).neg_().amax(dim=1).clamp_(min=0)
        return torch.from_numpy(square((part.x * weights.sqrt_()[:, None]).numpy()))

    def cheap(self, total: np.ndarray, radius: float) -> Bound:
        """Of dip(R): lambda_max(M).

        Args:
            total: M, the sum of every block's ``share``.
            radius: public bound on |W|.
        """
        return self._top([total], self.setting.curvature.pull, self.setting.rounding(radius).weight)

    def exact(self, weight: Tensor, records: Records, rows: np.ndarray, radius: float, units: range | None = None) -> Bound:
        """Of dip(R), block by block: m eigenvalue problems, and m n d^2 operations.

        Args:
            units: over these alone; None: all.
        """
        pull, error = self.setting.curvature.pull, self.setting.rounding(radius).weight
        some = units or range(self.setting.units)

        def work(part: slice) -> Bound:
            return self._top([*-self._blocks(weight, records, rows, some[part.start])], pull, error)

        return max(group().shared(len(some), _UNITS, work), key=lambda bound: bound.value)

    def _blocks(self, weight: Tensor, records: Records, rows: np.ndarray, first: int) -> np.ndarray:
        """[up to _UNITS, d, d] R_j of the units from ``first`` on."""
        units, total = slice(first, first + _UNITS), None
        for part in self.network.parts(weight, records, rows):
            weights = (part.pull[:, units] * part.bend[:, units]).T
            blocks = (part.x.T[None] * weights[:, None]) @ part.x
            total = blocks if total is None else total + blocks
        if total is None:
            return np.zeros((1, self.setting.width, self.setting.width))
        return total.numpy()

    def _top(self, matrices: "list[np.ndarray]", heaviest: float, error: float) -> Bound:
        width, away = self.setting.width, self.setting.matrix_rounding(heaviest, error)
        gap = eigenvalue_gap(width, self.setting.plan.n_max * (heaviest + error))
        for matrix in matrices:
            fill(matrix)
        top = max(eigenvalue_within(matrix, gap) for matrix in matrices)
        return Bound(next_up(max(top, 0.0) + away), 2 * away + gap)
