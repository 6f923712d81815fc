"""The label mechanisms to use by default: among comparable ones they flip labels least often.

They are compared with all mechanisms that read only a label and its stable distance, treat all
labels in the same way, and have the same guarantee (docs/proofs/optimal.md). Tables of integers,
from which labels are drawn, add a rounding error.
"""

import math

import numpy as np
import scipy  # whose parts load when they are first used
from numpy.typing import ArrayLike

from agt.mechanism_settings import GaussianMarginSettings, RandomizedResponseSettings
from agt.mechanisms.guarantees import ApproximateDP, GaussianDP, Guarantee, PureDP
from agt.mechanisms.mechanism import Mechanism
from agt.settings import keyword_schema


@keyword_schema
class RandomizedResponse(RandomizedResponseSettings, Mechanism):
    """Randomized response that flips stable labels less often: eps-DP or (eps, delta)-DP.

    The stable distance of a query is how many edits of the training data certainly leave its label
    unchanged. At eps = 1 and two classes, 27 % of the labels with stable distance 0 are flipped, 10
    % at distance 1 and 0.2 % at distance 5. Any number of classes.

    Attributes:
        eps: the eps of one query.
        delta: the delta of one query; 0: eps-DP, otherwise (eps, delta)-DP.

    Formal guarantees
        - Each label is eps-DP or (eps, delta)-DP (``Mechanism``).
        - At every stable distance the flip probability is the least that the guarantee allows
          (Lemma 1 of docs/proofs/optimal.md).
    """

    @property
    def guarantee(self) -> Guarantee:
        """PureDP, or ApproximateDP if delta > 0."""
        if self.delta > 0:
            return ApproximateDP(self.eps, self.delta)
        return PureDP(self.eps)

    def _flip(self, distance: np.ndarray) -> np.ndarray:
        """Return the least flip probability that the guarantee allows, in closed form.

        It solves w(L + 1) = max(0, (w(L) - delta) / e^eps, 1 - delta - e^eps (1 - w(L))). For the
        first steps (``_early_steps``) the last term is the largest, and from then on the second.

        Args:
            distance: float64 of any shape, at least 0: stable distances L.
        """
        # Lemma 2 of docs/proofs/optimal.md: the flip probability follows one affine recursion for
        # the early steps and another one after them, each of which is solved by powers of e^eps.
        early_steps = self._early_steps
        # Both solutions are computed for every distance. Each is used where its recursion holds.
        right_if_early = self._right_after(np.minimum(distance, early_steps))
        late_steps = np.maximum(distance - early_steps, 0)  # since the late recursion began
        exponent = -self.eps * late_steps
        # w = w_start e^(-eps steps) + c (e^(-eps steps) - 1) with c = delta / (e^eps - 1)
        wrong_if_late = self._late_start * np.exp(exponent) + self._fixed_point * np.expm1(exponent)
        wrong_if_late = np.maximum(wrong_if_late, 0)  # with delta > 0 it reaches 0
        return np.where(distance < early_steps, 1 - right_if_early, wrong_if_late)

    @property
    def _fixed_point(self) -> float:
        """delta / (exp(eps) - 1), the constant c in the solution of the recursion."""
        return self.delta / math.expm1(self.eps)

    @property
    def _right_at_zero(self) -> float:
        """The probability of releasing the nominal label at stable distance 0."""
        # r(0) = ((C - 1) delta + e^eps) / (C - 1 + e^eps), with both divided by e^eps
        wrong_labels = self.classes - 1
        inverse = math.exp(-self.eps)
        return (wrong_labels * self.delta * inverse + 1) / (1 + wrong_labels * inverse)

    @property
    def _late_start(self) -> float:
        """The flip probability at distance ``_early_steps``, where the late recursion starts."""
        if self._early_steps:
            return float(1 - self._right_after(self._early_steps))
        # w(0) = (C - 1) (1 - delta) / (C - 1 + e^eps), with both divided by e^eps
        others = (self.classes - 1) * math.exp(-self.eps)
        return others * (1 - self.delta) / (1 + others)

    def _right_after(self, steps: ArrayLike) -> np.ndarray:
        """Return the probability of releasing the nominal label at early distances.

        It is r(L) = r(0) e^(eps L) + c (e^(eps L) - 1) with c = delta / (e^eps - 1).

        Args:
            steps: stable distances L, at most ``_early_steps``.
        """
        exponent = self.eps * np.asarray(steps)
        growth = np.exp(exponent)
        return self._right_at_zero * growth + self._fixed_point * np.expm1(exponent)

    @property
    def _early_steps(self) -> float:
        """The number of early distances, at which the nominal label's growth is the limit.

        At them, privacy bounds how fast the probability of the nominal label may grow with the
        stable distance. Later it bounds how fast the probability of the other labels may fall. 0
        for two classes.
        """
        if self.classes == 2:
            return 0.0
        inverse = math.exp(-self.eps)
        # Lemma 2 of docs/proofs/optimal.md: a distance is early while the probability of the
        # nominal label is at most (1 - delta) / (1 + e^eps).
        largest_early = (1 - self.delta) * inverse / (1 + inverse)
        gap = largest_early - self._right_at_zero
        if gap < 0:  # not even distance 0 is early
            return 0.0
        # r(L) = r(0) e^(eps L) + c (e^(eps L) - 1) reaches the limit where eps L is this logarithm.
        logarithm = math.log1p(gap / (self._right_at_zero + self._fixed_point))
        return math.floor(logarithm / self.eps) + 1.0

    @property
    def _minimum_flip(self) -> float:
        """The smallest flip probability of a release; 0 if delta > 0, which allows it."""
        if self.delta > 0:
            return 0.0
        return super()._minimum_flip

    def _requested_entry(self, distance: int) -> int:
        """Return 0, so that every table entry is the least that privacy allows."""
        return 0


@keyword_schema
class GaussianMargin(GaussianMarginSettings, Mechanism):
    """The sign of the label's margin L + 1/2 plus Gaussian noise: mu-GDP, for two classes.

    L is the stable distance of a query: the number of edits that certainly leave its predicted
    label unchanged. The flip probability is Phi(-mu (L + 1/2)): at mu = 1, 31 % at L = 0 and 7 % at
    L = 1. Q queries together are mu sqrt(Q)-GDP.

    Attributes:
        mu: the mu of one query.

    Formal guarantees
        - Each label is mu-GDP (``Mechanism``).
        - At every stable distance the flip probability is the least that the guarantee allows
          (Lemma 1 of docs/proofs/optimal.md).
    """

    spends = GaussianDP

    def _flip(self, distance: np.ndarray) -> np.ndarray:
        """Return Phi(-mu (L + 1/2)), the probability that Gaussian noise changes the margin's sign.

        Args:
            distance: float64 of any shape, at least 0: stable distances L.
        """
        return scipy.special.ndtr(-self.mu * (distance + 0.5))

    def _requested_entry(self, distance: int) -> int:
        """Return 0, so that every table entry is the least that privacy allows."""
        return 0
