"""The mechanisms of the papers and of the literature on smooth sensitivity, for two classes.

Each docstring proves the guarantee of the closed form for 1-Lipschitz distances. The tables that are sampled from hold the
guarantee by construction, whatever the closed form (thresholds.py).
"""

import math
from typing import ClassVar

import numpy as np

from agt.errors import ConfigError
from agt.mechanisms.guarantee import ApproximateDP, Guarantee, PureDP
from agt.mechanisms.mechanism import Delta, Epsilon, Mechanism, Need
from agt.mechanisms.thresholds import Table, rule_of
from agt.settings import keyword_schema


@keyword_schema
class _Pure(Mechanism):
    eps: Epsilon

    @property
    def guarantee(self) -> Guarantee:
        """PureDP."""
        return PureDP(self.eps)


@keyword_schema
class _Approximate(Mechanism):
    eps: Epsilon
    delta: Delta

    spends: ClassVar[type[ApproximateDP]] = ApproximateDP

    @property
    def guarantee(self) -> Guarantee:
        """ApproximateDP."""
        return ApproximateDP(self.eps, self.delta)


@keyword_schema
class SmoothCauchy(_Pure):
    """The label plus Cauchy noise of scale 6 S/eps, S = exp(-beta L), beta = eps/6, rounded (001 Corollary 5.2).

    p(L) = 1/2 - atan(eps exp(beta L)/12)/pi = atan(12 exp(-beta L)/eps)/pi. For 1-Lipschitz L it is eps-DP (Nissim,
    Raskhodnikova, Smith 2007); directly: atan(y)/y falls, so p(L) <= exp(beta) p(L+1). For L from a grid with gaps it is
    not: exposure.py computes the true loss.
    """

    name: ClassVar[str] = "smooth_cauchy"

    def _flip(self, distance: np.ndarray) -> np.ndarray:
        return np.arctan(12 / self.eps * np.exp(-self.eps / 6 * distance)) / math.pi


@keyword_schema
class SmoothLaplace(_Approximate):
    """The label plus Laplace noise of scale 2 S/eps, S = exp(-beta L), beta = eps/(2 ln(2/delta)), rounded.

    p(L) = exp(-eps exp(beta L)/4)/2. The published proof (Nissim, Raskhodnikova, Smith 2007) loses a factor on delta that
    matters at large eps, so here is one for a label, with M = ln(2/delta), a = eps exp(beta L)/4 and beta <= 1.25:
    p(L) <= exp(eps) p(L+1) + delta is clear if p(L) <= delta; otherwise a < ln(1/(2 delta)) < M, and a (exp(beta) - 1)
    <= M * 2 beta = eps, because exp(beta) - 1 <= 2 beta there; so p(L) <= exp(eps) p(L+1). Where the label differs:
    exp(eps) p(0) + p(0) = (exp(3x) + exp(-x))/2 >= 1 with x = eps/4. The events of the nominal label follow as p <= 1/2.

    Raises:
        ConfigError: beta > 1.25, where the guarantee is not proved (and fails from beta = 1.61 on).
    """

    name: ClassVar[str] = "smooth_laplace"

    def __post_init__(self) -> None:
        super().__post_init__()
        most = 2.5 * math.log(2 / self.delta)
        if self.eps > most:
            raise ConfigError(
                f"mechanism.eps: smooth_laplace is proved for eps <= 2.5 ln(2/delta) = {most:.4g} at delta = "
                f"{self.delta:g}, got {self.eps:g}: lower eps, or use mechanism=randomized_response"
            )

    @property
    def _beta(self) -> float:
        return self.eps / (2 * math.log(2 / self.delta))

    def _flip(self, distance: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore", under="ignore"):  # exp(-inf) = 0 is what is meant; the table's floor follows
            return np.exp(-self.eps / 4 * np.exp(self._beta * distance)) / 2


@keyword_schema
class ProposeTestRelease(_Approximate):
    """The exact label if L + Lap(1/eps) > t = ln(1/(2 delta))/eps, else a fair coin (Dwork, Lei 2009).

    p(L) = P(Lap(1/eps) <= t - L)/2: half of the coins show the nominal label. Where labels agree the output is a
    post-processing of the eps-DP L + Lap(1/eps). Where they differ L = 0 on both sides: the exact label comes out with
    probability delta, everything else is the same coin.
    """

    name: ClassVar[str] = "propose_test_release"

    def _flip(self, distance: np.ndarray) -> np.ndarray:
        u = -math.log(2 * self.delta) - self.eps * distance
        with np.errstate(over="ignore", under="ignore"):
            return np.where(u < 0, np.exp(np.minimum(u, 0)) / 2, 1 - np.exp(-np.maximum(u, 0)) / 2) / 2


@keyword_schema
class GlobalSensitivity(_Pure):
    """The label 0 or 1 plus Laplace noise of scale 1/eps, rounded (001 section 3.2): p = exp(-eps/2)/2 at every distance.

    eps-DP as post-processing of the Laplace mechanism with sensitivity 1. It uses no certificate.
    """

    name: ClassVar[str] = "global_sensitivity"
    needs: ClassVar[Need] = "nothing"

    def _flip(self, distance: np.ndarray) -> np.ndarray:
        return np.full_like(distance, math.exp(-self.eps / 2) / 2)


@keyword_schema
class NoisyArgmax(_Pure):
    """The larger of two vote counts, each plus Laplace noise of scale 2/eps (PATE; 001 equation 7). Needs an ensemble.

    The evidence is |n1 - n0|; the nominal label is 1 if n1 > n0, else 0. p = exp(-x)(1 + x/2)/2, x = eps |n1-n0|/2: the
    tail of a difference of two Laplace variables. One record is in one shard, so it changes one vote: the counts change by
    2 in l1 norm, and the output is eps-DP.

    Formal guarantees
        n1 - n0 moves in steps of 2 between neighbours and keeps its parity (the number of members is public). For each
        parity |n1 - n0| // 2 is a distance in the sense of thresholds.py, with a table of its own; for an even number of
        members the label differs between n1 - n0 = 0 and 2 rather than across 0, and p(0) = 1/2 makes that a step of
        the table like any other.
    """

    name: ClassVar[str] = "noisy_argmax"
    needs: ClassVar[Need] = "votes"

    def _flip(self, distance: np.ndarray) -> np.ndarray:
        x = self.eps / 2 * distance
        return np.exp(-x) * (1 + x / 2) / 2

    def _thresholds(self, evidence: int) -> int:
        step, odd = divmod(evidence, 2)
        if odd not in self._tables:
            rule = rule_of(self.guarantee, 2)
            self._tables[odd] = Table(rule, lambda j: self._wish(2 * j + odd))
        return self._tables[odd].upto(step)[step]

    @property
    def _tables(self) -> dict[int, Table]:
        return self.__dict__.setdefault("_by_parity", {})
