"""Mechanisms and a vote that are kept to reproduce papers: smooth sensitivity and its comparisons.

None flips less often than randomized_response at any distance and budget (docs/proofs/optimal.md),
so ``agt plan`` leaves them out unless they are asked for. Labels are sampled from tables that hold
the guarantee by construction; docs/proofs/published.md proves the closed forms themselves.

``accounting=paper`` runs as published where a condition does not hold, and says that nothing is
proved. Of an ensemble it takes the vote of 001 Theorem 5.3, which is for two classes.
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
class _ApproximateMechanism(Mechanism):
    """A mechanism whose parameters are the eps and the delta of one query."""

    eps: Epsilon
    delta: Delta

    spends: ClassVar[type[ApproximateDP]] = ApproximateDP


@keyword_schema
class SmoothCauchy(PureMechanism):
    """The label plus Cauchy noise of scale 6 S / eps, rounded; S = exp(-eps L / 6).

    The flip probability is atan(12 exp(-eps L / 6) / eps) / pi. Of distances from a sparse grid,
    which are not 1-Lipschitz, it is not eps-DP (docs/proofs/published.md, "Sparse grids").

    Attributes:
        eps: of one query.

    Source: 001 Corollary 5.2; Nissim, Raskhodnikova and Smith (2007).
    """

    name: ClassVar[str] = "smooth_cauchy"

    def _flip(self, distance: np.ndarray) -> np.ndarray:
        # Lemma 1 of docs/proofs/published.md
        smooth = np.exp(-self.eps / 6 * distance)  # S
        return np.arctan(12 / self.eps * smooth) / math.pi


@keyword_schema
class SmoothLaplace(_ApproximateMechanism):
    """The label plus Laplace noise of scale 2 S / eps, rounded; S = exp(-beta L).

    With beta = eps / (2 ln(2 / delta)) the flip probability is exp(-eps exp(beta L) / 4) / 2.

    Attributes:
        eps: of one query.
        delta: of one query.

    Raises:
        ConfigError: beta > 1.25, where the guarantee is not proved (and fails from beta = 1.61 on).

    Source: Nissim, Raskhodnikova and Smith (2007).
    """

    name: ClassVar[str] = "smooth_laplace"

    def __post_init__(self) -> None:
        super().__post_init__()
        # Lemma 2 of docs/proofs/published.md takes beta <= 1.25
        largest_eps = 2.5 * math.log(2 / self.delta)
        if self.eps > largest_eps:
            raise ConfigError(
                "mechanism.eps: smooth_laplace is only proved for eps <= 2.5 ln(2/delta) = "
                f"{largest_eps:.4g} at delta = {self.delta:g}, but eps is {self.eps:g}: lower "
                "it, or use mechanism=randomized_response"
            )

    @property
    def _beta(self) -> float:
        """How fast the noise falls with the stable distance."""
        return self.eps / (2 * math.log(2 / self.delta))

    def _flip(self, distance: np.ndarray) -> np.ndarray:
        # exp(-inf) = 0 is what is meant; the table has a least probability of its own
        with np.errstate(over="ignore", under="ignore"):
            inverse_smooth = np.exp(self._beta * distance)  # 1 / S
            return np.exp(-self.eps / 4 * inverse_smooth) / 2


@keyword_schema
class ProposeTestRelease(_ApproximateMechanism):
    """The exact label if L + Lap(1 / eps) > ln(1 / (2 delta)) / eps, else a fair coin.

    The flip probability is half of the probability that the test fails, as half of the coins show
    the nominal label.

    Attributes:
        eps: of one query.
        delta: of one query.

    Source: Dwork and Lei (2009).
    """

    name: ClassVar[str] = "propose_test_release"

    def _flip(self, distance: np.ndarray) -> np.ndarray:
        # Lemma 3 of docs/proofs/published.md; Lap(1) <= u is that the test fails
        u = -math.log(2 * self.delta) - self.eps * distance
        with np.errstate(over="ignore", under="ignore"):
            below_zero = np.exp(np.minimum(u, 0)) / 2
            above_zero = 1 - np.exp(-np.maximum(u, 0)) / 2
            return np.where(u < 0, below_zero, above_zero) / 2


@keyword_schema
class GlobalSensitivity(PureMechanism):
    """The label 0 or 1 plus Laplace noise of scale 1 / eps, rounded.

    The flip probability is exp(-eps / 2) / 2 at every distance: it uses no certificate.

    Attributes:
        eps: of one query.

    Source: 001 section 3.2.
    """

    name: ClassVar[str] = "global_sensitivity"
    needs: ClassVar[Need] = "nothing"

    def _flip(self, distance: np.ndarray) -> np.ndarray:
        # Lemma 4 of docs/proofs/published.md
        flip = math.exp(-self.eps / 2) / 2
        return np.full_like(distance, flip)


@keyword_schema
class ExponentialMechanism(PureMechanism):
    """The exponential mechanism with score 1 for the model's label and 0 for the others.

    The flip probability is (C - 1) / (C - 1 + exp(eps / 2)): it uses no certificate.

    Attributes:
        eps: of one query.
    """

    name: ClassVar[str] = "exponential_mechanism"
    needs: ClassVar[Need] = "nothing"
    any_classes: ClassVar[bool] = True

    def _flip(self, distance: np.ndarray) -> np.ndarray:
        # Lemma 5 of docs/proofs/published.md
        advantage = np.full_like(distance, self.eps / 2)
        return _other_labels_share(self.classes, advantage)


@keyword_schema
class InverseSensitivity(PureMechanism):
    """The exponential mechanism whose score is how many records must change for a label.

    The score is 0 for the nominal label and -(L + 1) for the others. The flip probability is
    (C - 1) / (C - 1 + exp(eps (L + 1) / 2)).

    Attributes:
        eps: of one query.
    """

    name: ClassVar[str] = "inverse_sensitivity"
    any_classes: ClassVar[bool] = True

    def _flip(self, distance: np.ndarray) -> np.ndarray:
        # Lemma 5 of docs/proofs/published.md
        advantage = self.eps / 2 * (distance + 1)
        return _other_labels_share(self.classes, advantage)


def _other_labels_share(classes: int, advantage: np.ndarray) -> np.ndarray:
    """Return (C - 1) / (C - 1 + exp(advantage)), without overflow."""
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


def published_vote(labels: np.ndarray, distances: np.ndarray) -> "Vote":
    """Return the vote of two classes with the distance of 001 Theorem 5.3.

    The distance is the sum of the m least distances over all members, m = ceil(|n1 - n0| / 2). It
    is not 1-Lipschitz: a member that voted against joining the majority raises m, and so adds a
    whole distance at once. So it is for ``accounting=paper`` alone. Read off the proof in appendix
    D.7.

    Args:
        labels: [T, n] each member's label of each query, 0 or 1.
        distances: [T, n] their stable distances.

    Returns:
        The vote of n queries. A tie is label 0, with distance 0.
    """
    # Loads torch, which those who only add up guarantees do without.
    from agt.certificates.vote_costs import count_votes
    from agt.certificates.votes import Vote, check_members

    labels, distances = check_members(labels, distances, 2)
    counts = count_votes(labels, 2)
    gap = abs(counts[1] - counts[0])
    members_to_flip = (gap + 1) // 2
    ascending_sums = np.sort(distances, axis=0).cumsum(axis=0)
    no_member = np.zeros((1, labels.shape[1]), dtype=np.int64)
    sums = np.concatenate([no_member, ascending_sums])  # [T + 1, n], of the m least distances
    distance = np.take_along_axis(sums, members_to_flip[None], axis=0)[0]
    return Vote(counts.argmax(axis=0), distance, lipschitz=False)


def check_published_vote(config: "EnsembleConfig", classes: int) -> None:
    """Raise ConfigError where the published vote is not for these members or classes."""
    if classes > 2:
        raise ConfigError(
            "accounting=paper: the published vote of an ensemble (001 Theorem 5.3) is for "
            f"two classes, but the model has {classes}: use accounting=rigorous, whose "
            "certified vote takes any number of classes"
        )
    if config.vote == "margins":
        raise ConfigError(
            "accounting=paper: the published vote of an ensemble (001 Theorem 5.3) counts "
            "labels, but this ensemble adds margins (ensemble.vote=margins): use "
            "accounting=rigorous, or train with ensemble.vote=labels"
        )
