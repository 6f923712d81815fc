"""Mechanisms and a vote that are kept to reproduce papers: smooth sensitivity, its comparisons.

Each needs more noise than randomized_response at every distance and budget: none that sees only a
label and its stable distance flips less often than that (optimal.py). So ``agt plan`` leaves them
out unless they are asked for. Each docstring proves the guarantee of the closed form for
1-Lipschitz distances. The tables that are sampled from hold the guarantee by construction, whatever
the closed form (mechanism.py).

``accounting=paper`` runs as published where a condition does not hold, and says that nothing is
proved. Of an ensemble it takes the vote of 001 Theorem 5.3, which is for two classes.

Smooth sensitivity with distances read off a sparse grid (001 Corollary 5.2) is not eps-DP: a
neighbour may drop by a whole gap of the grid, and with it the noise. Even where nesting holds, and
so only the index in the grid moves by at most 1, the loss of one query at eps = 1 on the grid
{0, 50} is 6.25 (method.md section 3; tests compute it).
"""

import math
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from agt.errors import ConfigError
from agt.mechanisms.guarantees import ApproximateDP
from agt.mechanisms.mechanism import Delta, Epsilon, Mechanism, Need, PureMechanism
from agt.settings import keyword_schema

if TYPE_CHECKING:
    from agt.certificates.votes import Vote
    from agt.training.ensemble import EnsembleConfig

MORE_NOISE = "needs more noise than randomized_response at every distance and budget"


@keyword_schema
class _Approximate(Mechanism):
    eps: Epsilon
    delta: Delta

    spends: ClassVar[type[ApproximateDP]] = ApproximateDP


@keyword_schema
class SmoothCauchy(PureMechanism):
    """The label plus Cauchy noise of scale 6 S/eps, S = exp(-beta L), beta = eps/6, rounded (001
    Corollary 5.2).

    p(L) = 1/2 - atan(eps exp(beta L)/12)/pi = atan(12 exp(-beta L)/eps)/pi. For 1-Lipschitz L it is
    eps-DP (Nissim, Raskhodnikova, Smith 2007); directly: atan(y)/y falls, so p(L) <= exp(beta)
    p(L+1). For L from a grid with gaps it is not.
    """

    name: ClassVar[str] = "smooth_cauchy"

    def _flip(self, distance: np.ndarray) -> np.ndarray:
        return np.arctan(12 / self.eps * np.exp(-self.eps / 6 * distance)) / math.pi


@keyword_schema
class SmoothLaplace(_Approximate):
    """The label plus Laplace noise of scale 2 S/eps, S = exp(-beta L), beta = eps/(2 ln(2/delta)),
    rounded.

    p(L) = exp(-eps exp(beta L)/4)/2. The published proof (Nissim, Raskhodnikova, Smith 2007) loses
    a factor on delta that matters at large eps, so here is one for a label, with M = ln(2/delta), a
    = eps exp(beta L)/4 and beta <= 1.25: p(L) <= exp(eps) p(L+1) + delta is clear if p(L) <= delta;
    otherwise a < ln(1/(2 delta)) < M, and a (exp(beta) - 1) <= M * 2 beta = eps, because exp(beta)
    - 1 <= 2 beta there; so p(L) <= exp(eps) p(L+1). Where the label differs: exp(eps) p(0) + p(0) =
    (exp(3x) + exp(-x))/2 >= 1 with x = eps/4. The events of the nominal label follow as p <= 1/2.

    Raises:
        ConfigError: beta > 1.25, where the guarantee is not proved (and fails from beta = 1.61 on).
    """

    name: ClassVar[str] = "smooth_laplace"

    def __post_init__(self) -> None:
        super().__post_init__()
        most = 2.5 * math.log(2 / self.delta)
        if self.eps > most:
            raise ConfigError(
                f"mechanism.eps: smooth_laplace is proved for eps <= 2.5 ln(2/delta) = {most:.4g} "
                "at delta = "
                f"{self.delta:g}, got {self.eps:g}: lower eps, or use mechanism=randomized_response"
            )

    @property
    def _beta(self) -> float:
        return self.eps / (2 * math.log(2 / self.delta))

    def _flip(self, distance: np.ndarray) -> np.ndarray:
        # exp(-inf) = 0 is what is meant; the table's floor follows
        with np.errstate(over="ignore", under="ignore"):
            return np.exp(-self.eps / 4 * np.exp(self._beta * distance)) / 2


@keyword_schema
class ProposeTestRelease(_Approximate):
    """The exact label if L + Lap(1/eps) > t = ln(1/(2 delta))/eps, else a fair coin (Dwork, Lei
    2009).

    p(L) = P(Lap(1/eps) <= t - L)/2: half of the coins show the nominal label. Where labels agree
    the output is a post-processing of the eps-DP L + Lap(1/eps). Where they differ L = 0 on both
    sides: the exact label comes out with probability delta, everything else is the same coin.
    """

    name: ClassVar[str] = "propose_test_release"

    def _flip(self, distance: np.ndarray) -> np.ndarray:
        u = -math.log(2 * self.delta) - self.eps * distance
        with np.errstate(over="ignore", under="ignore"):
            return (
                np.where(u < 0, np.exp(np.minimum(u, 0)) / 2, 1 - np.exp(-np.maximum(u, 0)) / 2) / 2
            )


@keyword_schema
class GlobalSensitivity(PureMechanism):
    """The label 0 or 1 plus Laplace noise of scale 1/eps, rounded (001 section 3.2): p =
    exp(-eps/2)/2 at every distance.

    eps-DP as post-processing of the Laplace mechanism with sensitivity 1. It uses no certificate.
    """

    name: ClassVar[str] = "global_sensitivity"
    needs: ClassVar[Need] = "nothing"

    def _flip(self, distance: np.ndarray) -> np.ndarray:
        return np.full_like(distance, math.exp(-self.eps / 2) / 2)


@keyword_schema
class ExponentialMechanism(PureMechanism):
    """The exponential mechanism with the score 1 for the model's label and 0 for the others; it
    uses no certificate.

    p = (C-1) / (C-1 + exp(eps/2)).
    """

    name: ClassVar[str] = "exponential_mechanism"
    needs: ClassVar[Need] = "nothing"
    any_classes: ClassVar[bool] = True

    def _flip(self, distance: np.ndarray) -> np.ndarray:
        return _softmax(self.classes, np.full_like(distance, self.eps / 2))


@keyword_schema
class InverseSensitivity(PureMechanism):
    """Inverse sensitivity: a label's score is minus the number of records that must change before
    it is the answer.

    0 for the nominal label; for the others the certified -(L + 1), which one record changes by at
    most 1, as it does the score of a label that stops being the answer (0 to -1, L = 0 on both
    sides). p = (C-1) / (C-1 + exp(eps (L+1)/2)).
    """

    name: ClassVar[str] = "inverse_sensitivity"
    any_classes: ClassVar[bool] = True

    def _flip(self, distance: np.ndarray) -> np.ndarray:
        return _softmax(self.classes, self.eps / 2 * (distance + 1))


def _softmax(classes: int, advantage: np.ndarray) -> np.ndarray:
    """(C-1) / (C-1 + exp(advantage)), without overflow."""
    with np.errstate(under="ignore"):
        others = (classes - 1) * np.exp(-advantage)
    return others / (1 + others)


PUBLISHED = frozenset(
    kind.name
    for kind in (
        SmoothCauchy,
        SmoothLaplace,
        ProposeTestRelease,
        GlobalSensitivity,
        ExponentialMechanism,
        InverseSensitivity,
    )
)
"""Names of the mechanisms of this module."""


COVERED = (
    "; proved although accounting=paper: every condition that the mechanism rests on holds here"
)
NO_LIPSCHITZ = (
    "the published ensemble distance (001 Theorem 5.3) sums over all members and is not 1-Lipschitz"
)


def published_vote(labels: np.ndarray, distances: np.ndarray) -> "Vote":
    """The vote of two classes with the distance of 001 Theorem 5.3: for ``accounting=paper`` alone.

    m = ceil(|n1 - n0| / 2) and the sum of the m least distances over ALL members. Not 1-Lipschitz:
    a member that voted against joining the majority raises m and so adds a whole distance at once.
    Read off the proof in appendix D.7.
    """
    # Loads torch, which those who only add up guarantees do without.
    from agt.certificates.vote_costs import count_votes
    from agt.certificates.votes import Vote, check_members

    labels, distances = check_members(labels, distances, 2)
    counts = count_votes(labels, 2)
    flips = (abs(counts[1] - counts[0]) + 1) // 2
    sums = np.vstack(
        [np.zeros(labels.shape[1], dtype=np.int64), np.sort(distances, axis=0).cumsum(axis=0)]
    )
    return Vote(
        counts.argmax(axis=0), np.take_along_axis(sums, flips[None], axis=0)[0], lipschitz=False
    )


def check_published_vote(config: "EnsembleConfig", classes: int) -> None:
    """Raise ConfigError where the published vote is not for such members or so many classes."""
    if classes > 2:
        raise ConfigError(
            "accounting=paper: the published vote of an ensemble (001 Theorem 5.3) is of two "
            "classes and the model "
            f"has {classes}: use accounting=rigorous, whose certified vote takes any number"
        )
    if config.vote == "margins":
        raise ConfigError(
            "accounting=paper: the published vote of an ensemble (001 Theorem 5.3) is of labels "
            "and this one is of margins "
            "(ensemble.vote=margins): use accounting=rigorous, or train with ensemble.vote=labels"
        )
