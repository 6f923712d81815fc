"""The exponential mechanism on labels, with two scores, as comparisons (002; Asi and Duchi 2020). Any number of classes.

P(y) is proportional to exp(eps score(y) / 2) for a score that one record changes by at most 1, hence eps-DP (002).
"""

from typing import ClassVar

import numpy as np

from agt.mechanisms.guarantee import Guarantee, PureDP
from agt.mechanisms.mechanism import Epsilon, Mechanism, Need
from agt.settings import keyword_schema


@keyword_schema
class ExponentialMechanism(Mechanism):
    """The exponential mechanism with the score 1 for the model's label and 0 for the others; it uses no certificate.

    p = (C-1) / (C-1 + exp(eps/2)).
    """

    eps: Epsilon

    name: ClassVar[str] = "exponential_mechanism"
    needs: ClassVar[Need] = "nothing"
    any_classes: ClassVar[bool] = True

    @property
    def guarantee(self) -> Guarantee:
        """PureDP."""
        return PureDP(self.eps)

    def _flip(self, distance: np.ndarray) -> np.ndarray:
        return _softmax(self.classes, np.full_like(distance, self.eps / 2))


@keyword_schema
class InverseSensitivity(Mechanism):
    """Inverse sensitivity: a label's score is minus the number of records that must change before it is the answer.

    0 for the nominal label; for the others the certified -(L + 1), which one record changes by at most 1, as it does the
    score of a label that stops being the answer (0 to -1, L = 0 on both sides). p = (C-1) / (C-1 + exp(eps (L+1)/2)).
    """

    eps: Epsilon

    name: ClassVar[str] = "inverse_sensitivity"
    any_classes: ClassVar[bool] = True

    @property
    def guarantee(self) -> Guarantee:
        """PureDP."""
        return PureDP(self.eps)

    def _flip(self, distance: np.ndarray) -> np.ndarray:
        return _softmax(self.classes, self.eps / 2 * (distance + 1))


def _softmax(classes: int, advantage: np.ndarray) -> np.ndarray:
    """(C-1) / (C-1 + exp(advantage)), without overflow."""
    with np.errstate(under="ignore"):
        others = (classes - 1) * np.exp(-advantage)
    return others / (1 + others)
