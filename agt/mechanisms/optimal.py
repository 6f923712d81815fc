"""The label mechanisms to use: no other one flips less often.

"No other" is of mechanisms that see only a label and its stable distance, that treat labels alike,
and that have the guarantee; it holds up to the rounding of tables (docs/proofs/optimal.md).
"""

import math
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from pydantic import Field
from scipy.special import ndtr

from agt.mechanisms.guarantees import ApproximateDP, GaussianDP, Guarantee, PureDP
from agt.mechanisms.mechanism import Epsilon, Mechanism, Mu
from agt.settings import keyword_schema


@keyword_schema
class RandomizedResponse(Mechanism):
    """Randomized response whose noise falls with the stable distance; any number of classes.

    At eps = 1 and two classes, it flips 27 % of the labels of stable distance 0, 10 % of distance 1
    and 0.2 % of distance 5.

    Attributes:
        eps: of one query.
        delta: of one query; 0: eps-DP, otherwise (eps, delta)-DP.

    Formal guarantees
        - Each label is eps-DP or (eps, delta)-DP (``Mechanism``).
        - At every stable distance the flip probability is the least that the guarantee allows
          (Lemma 1 of docs/proofs/optimal.md).
    """

    eps: Epsilon
    delta: Annotated[float, Field(ge=0, lt=0.5)] = 0.0

    name: ClassVar[str] = "randomized_response"
    any_classes: ClassVar[bool] = True

    @property
    def guarantee(self) -> Guarantee:
        """PureDP, or ApproximateDP if delta > 0."""
        return ApproximateDP(self.eps, self.delta) if self.delta else PureDP(self.eps)

    def _flip(self, distance: np.ndarray) -> np.ndarray:
        # Lemma 2 of docs/proofs/optimal.md: two affine recursions, one after the other
        early_steps = self._early_steps
        early_right = self._right_after(np.minimum(distance, early_steps))
        exponent = -self.eps * np.maximum(distance - early_steps, 0)
        decay = np.exp(exponent)
        late_wrong = self._late_start * decay + self._fixed_point * np.expm1(exponent)
        late_wrong = np.maximum(late_wrong, 0)
        return np.where(distance < early_steps, 1 - early_right, late_wrong)

    @property
    def _fixed_point(self) -> float:
        """delta / (exp(eps) - 1)."""
        return self.delta / math.expm1(self.eps)

    @property
    def _right_at_zero(self) -> float:
        """The probability of the nominal label at stable distance 0."""
        wrong_labels = self.classes - 1
        inverse = math.exp(-self.eps)
        return (wrong_labels * self.delta * inverse + 1) / (1 + wrong_labels * inverse)

    @property
    def _late_start(self) -> float:
        """The flip probability after the early steps."""
        if self._early_steps:
            return float(1 - self._right_after(self._early_steps))
        others = (self.classes - 1) * math.exp(-self.eps)  # w(0), divided through by exp(eps)
        return others * (1 - self.delta) / (1 + others)

    def _right_after(self, steps: ArrayLike) -> np.ndarray:
        """Return the probability of the nominal label after ``steps`` early steps."""
        exponent = self.eps * np.asarray(steps)
        growth = np.exp(exponent)
        return self._right_at_zero * growth + self._fixed_point * np.expm1(exponent)

    @property
    def _early_steps(self) -> float:
        """How many steps the bound on the nominal label is the stronger one; 0 of two classes."""
        if self.classes == 2:
            return 0.0
        inverse = math.exp(-self.eps)
        late_right = (1 - self.delta) * inverse / (1 + inverse)
        gap = late_right - self._right_at_zero
        if gap < 0:
            return 0.0
        growth = math.log1p(gap / (self._right_at_zero + self._fixed_point))
        return math.floor(growth / self.eps) + 1.0

    @property
    def _least_flip(self) -> float:
        return 0.0 if self.delta else super()._least_flip

    def _requested_entry(self, distance: int) -> int:
        return 0  # the least that privacy allows


@keyword_schema
class GaussianMargin(Mechanism):
    """The sign of the label's margin L + 1/2 plus Gaussian noise; two classes.

    The flip probability is Phi(-mu (L + 1/2)): at mu = 1, 31 % at stable distance 0 and 7 % at
    distance 1. Many queries compose without loss: Q of them are mu sqrt(Q)-GDP.

    Attributes:
        mu: of one query.

    Formal guarantees
        - Each label is mu-GDP (``Mechanism``).
        - At every stable distance the flip probability is the least that the guarantee allows
          (Lemma 1 of docs/proofs/optimal.md).
    """

    mu: Mu

    name: ClassVar[str] = "gaussian_margin"
    spends: ClassVar[type[GaussianDP]] = GaussianDP

    def _flip(self, distance: np.ndarray) -> np.ndarray:
        return ndtr(-self.mu * (distance + 0.5))

    def _requested_entry(self, distance: int) -> int:
        return 0  # the least that privacy allows
