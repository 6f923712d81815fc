"""The mechanisms to use: no other that sees only (label, L), treats labels alike and has the
guarantee flips less often.

Formal guarantees
    mechanism.py proves the tables private. They ask for no flips at all (wish 0), so each entry is
    the least that privacy allows given the one before. That is optimal at every L at once: the
    least s[L+1] that the inequalities allow grows with s[L], so the least s[0] gives the least
    s[1], and so on (tests compare with a linear program). It holds up to the table's own rounding,
    and among mechanisms whose wrong labels are equally likely.
"""

import math
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field
from scipy.special import ndtr

from agt.mechanisms.guarantees import ApproximateDP, GaussianDP, Guarantee, PureDP
from agt.mechanisms.mechanism import Epsilon, Mechanism, Mu
from agt.settings import keyword_schema


@keyword_schema
class RandomizedResponse(Mechanism):
    """Randomized response whose noise falls with the stable distance: eps-DP, or (eps, delta)-DP
    with delta > 0.

    With E = exp(eps) and w = P(flip), the least that the inequalities allow (method.md section 4,
    extended to delta > 0 for any number of classes C):
        w(0) = (C-1)(1-delta) / (C-1+E),    w(L+1) = max(0, (w - delta)/E, 1 - delta - E(1-w)).
    The last term rules while P(right) <= (1-delta)/(1+E), that is for the first ``_early`` steps,
    and never if C = 2. Each regime is affine and solved in closed form around its fixed point, with
    c = delta/(E-1).
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
        early, offset = self._early, self.delta / math.expm1(self.eps)
        right = self._right_after(np.minimum(distance, early))
        others = (self.classes - 1) * math.exp(-self.eps)  # w(0) is divided through by E
        start = 1 - self._right_after(early) if early else others * (1 - self.delta) / (1 + others)
        late = -self.eps * np.maximum(distance - early, 0)
        wrong = np.maximum(start * np.exp(late) + offset * np.expm1(late), 0)
        return np.where(distance < early, 1 - right, wrong)

    def _right_after(self, steps: Any) -> Any:
        offset = self.delta / math.expm1(self.eps)
        return self._right * np.exp(self.eps * steps) + offset * np.expm1(self.eps * steps)

    @property
    def _right(self) -> float:
        """1 - w(0)."""
        inverse = math.exp(-self.eps)
        return ((self.classes - 1) * self.delta * inverse + 1) / (1 + (self.classes - 1) * inverse)

    @property
    def _early(self) -> float:
        """How many steps the last term of the recursion rules: until P(right) passes
        (1-delta)/(1+E).
        """
        if self.classes == 2:
            return 0.0
        inverse = math.exp(-self.eps)
        gap = (1 - self.delta) * inverse / (1 + inverse) - self._right
        if gap < 0:
            return 0.0
        return (
            math.floor(
                math.log1p(gap / (self._right + self.delta / math.expm1(self.eps))) / self.eps
            )
            + 1.0
        )

    @property
    def _floor(self) -> float:
        return 0.0 if self.delta else super()._floor

    def _wish(self, distance: int) -> int:
        return 0


@keyword_schema
class GaussianMargin(Mechanism):
    """The label's margin L + 1/2 plus Gaussian noise, and its sign: mu-GDP, flip probability
    Phi(-mu (L + 1/2)).

    It composes without loss over many queries: Q of them are mu sqrt(Q)-GDP. Two classes.
    """

    mu: Mu

    name: ClassVar[str] = "gaussian_margin"
    spends: ClassVar[type[GaussianDP]] = GaussianDP

    def _flip(self, distance: np.ndarray) -> np.ndarray:
        return ndtr(-self.mu * (distance + 0.5))

    def _wish(self, distance: int) -> int:
        return 0
