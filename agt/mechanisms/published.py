"""Label mechanisms and a vote of earlier papers, kept to reproduce their results.

Each replaces a query's label by another one with a flip probability. None of them flips less often
than randomized_response at any distance and budget (docs/proofs/optimal.md), so ``agt plan`` shows
them only on request. Released labels are drawn from tables that have the guarantee by construction;
docs/proofs/published.md proves the formulas here.
"""

import math
from typing import TYPE_CHECKING

import numpy as np

from agt.errors import ConfigError
from agt.mechanism_settings import (
    ExponentialMechanismSettings,
    GlobalSensitivitySettings,
    InverseSensitivitySettings,
    ProposeTestReleaseSettings,
    SmoothCauchySettings,
    SmoothLaplaceSettings,
)
from agt.mechanisms.guarantees import ApproximateDP
from agt.mechanisms.mechanism import Mechanism
from agt.messages import Message
from agt.settings import keyword_schema

if TYPE_CHECKING:
    from agt.certificates.votes import Vote
    from agt.training.settings import EnsembleConfig

MORE_NOISE = (
    "{name} needs more noise than randomized_response, whatever the stable distance and the budget"
)


@keyword_schema
class SmoothCauchy(SmoothCauchySettings, Mechanism):
    """The smooth sensitivity mechanism with Cauchy noise: eps-DP labels of two classes.

    It adds Cauchy noise of scale 6 S / eps to the label 0 or 1 and rounds, where S = exp(-eps L /
    6) is the smooth sensitivity at the stable distance L (the number of edits of the dataset up to
    which the label provably stays the same). It is not eps-DP for distances that neighbouring
    datasets change by more than 1, such as those from a sparse grid of k (docs/proofs/published.md,
    "Sparse grids").

    Attributes:
        eps: the epsilon of one query.

    Source: 001 Corollary 5.2; Nissim, Raskhodnikova and Smith (2007).
    """

    def _flip(self, distance: np.ndarray) -> np.ndarray:
        """Return the probability that the other label is released: atan(12 S / eps) / pi.

        The noise turns label 0 into 1 if it exceeds 1/2. S = exp(-eps L / 6) is the smooth
        sensitivity, and 6 S / eps is the scale of the Cauchy noise.

        Args:
            distance: float64 of any shape, at least 0: L, the stable distance of each query (the
                number of edits of the dataset up to which its label provably stays the same).
        """
        # Lemma 1 of docs/proofs/published.md: with this probability labels are eps-DP.
        smooth_sensitivity = np.exp(-self.eps / 6 * distance)
        # Cauchy noise exceeds x with probability atan(scale / x) / pi, here with x = 1/2.
        return np.arctan(12 / self.eps * smooth_sensitivity) / math.pi


@keyword_schema
class SmoothLaplace(SmoothLaplaceSettings, Mechanism):
    """The smooth sensitivity mechanism with Laplace noise: (eps, delta)-DP labels of two classes.

    It adds Laplace noise of scale 2 S / eps to the label 0 or 1 and rounds, where S = exp(-beta L)
    is the smooth sensitivity at the stable distance L (the number of edits of the dataset up to
    which the label provably stays the same), and beta = eps / (2 ln(2 / delta)).

    Attributes:
        eps: the epsilon of one query.
        delta: the delta of one query.

    Raises:
        ConfigError: beta > 1.25, for which the guarantee is not proved. It fails for beta of 1.61
            and more.

    Source: Nissim, Raskhodnikova and Smith (2007).
    """

    spends = ApproximateDP

    @property
    def _beta(self) -> float:
        """The rate at which the smooth sensitivity exp(-beta L) decays with the distance L."""
        return self.eps / (2 * math.log(2 / self.delta))

    def _flip(self, distance: np.ndarray) -> np.ndarray:
        """Return the probability that the other label is released: exp(-eps / (4 S)) / 2.

        The noise turns label 0 into 1 if it exceeds 1/2. S = exp(-beta L) is the smooth
        sensitivity, and 2 S / eps is the scale of the Laplace noise.

        Args:
            distance: float64 of any shape, at least 0: L, the stable distance of each query (the
                number of edits of the dataset up to which its label provably stays the same).
        """
        # At large distances 1 / S overflows to infinity and the probability is 0, as intended. The
        # table from which labels are drawn has a positive least probability.
        with np.errstate(over="ignore", under="ignore"):
            inverse_sensitivity = np.exp(self._beta * distance)  # 1 / S
            # Laplace noise exceeds x with probability exp(-x / scale) / 2, here with x = 1/2.
            return np.exp(-self.eps / 4 * inverse_sensitivity) / 2


@keyword_schema
class ProposeTestRelease(ProposeTestReleaseSettings, Mechanism):
    """The propose-test-release mechanism: (eps, delta)-DP labels of two classes.

    It tests whether the stable distance L (the number of edits of the dataset up to which the label
    provably stays the same) plus Laplace noise of scale 1 / eps exceeds ln(1 / (2 delta)) / eps. If
    so, the model's label is released, else 0 or 1 with probability 1/2 each.

    Attributes:
        eps: the epsilon of one query.
        delta: the delta of one query.

    Source: Dwork and Lei (2009).
    """

    spends = ApproximateDP

    def _flip(self, distance: np.ndarray) -> np.ndarray:
        """Return the probability that the other label is released.

        It is half of the probability that the test fails, because then each label is released with
        probability 1/2.

        Args:
            distance: float64 of any shape, at least 0: L, the stable distance of each query (the
                number of edits of the dataset up to which its label provably stays the same).
        """
        # Lemma 3 of docs/proofs/published.md. The test fails if L + noise / eps is at most
        # ln(1 / (2 delta)) / eps, for Laplace noise of scale 1.
        failure_bound = -math.log(2 * self.delta) - self.eps * distance
        with np.errstate(over="ignore", under="ignore"):
            # The distribution function of Laplace noise, for arguments below and above 0.
            below_zero = np.exp(np.minimum(failure_bound, 0)) / 2
            above_zero = 1 - np.exp(-np.maximum(failure_bound, 0)) / 2
            failure_probability = np.where(failure_bound < 0, below_zero, above_zero)
            return failure_probability / 2


@keyword_schema
class GlobalSensitivity(GlobalSensitivitySettings, Mechanism):
    """The Laplace mechanism for the label 0 or 1, rounded: eps-DP labels of two classes.

    Its noise has the scale 1 / eps, as the label has sensitivity 1. It needs no certificate.

    Attributes:
        eps: the epsilon of one query.

    Source: 001 section 3.2.
    """

    def _flip(self, distance: np.ndarray) -> np.ndarray:
        """Return the probability that the other label is released: exp(-eps / 2) / 2.

        It is the probability that Laplace noise of scale 1 / eps exceeds 1/2.

        Args:
            distance: float64 of any shape. Only the shape is used: the probability is the same at
                every stable distance.
        """
        # Lemma 4 of docs/proofs/published.md: this is post-processing of the Laplace mechanism.
        flip = math.exp(-self.eps / 2) / 2
        return np.full_like(distance, flip)


@keyword_schema
class ExponentialMechanism(ExponentialMechanismSettings, Mechanism):
    """The exponential mechanism with score 1 for the model's label and 0 for the other labels.

    It needs no certificate and supports any number of classes.

    Attributes:
        eps: the epsilon of one query.
    """

    def _flip(self, distance: np.ndarray) -> np.ndarray:
        """Return the probability that another label is released: (C - 1) / (C - 1 + exp(eps / 2)).

        C is the number of classes.

        Args:
            distance: float64 of any shape. Only the shape is used: the probability is the same at
                every stable distance.
        """
        # Lemma 5 of docs/proofs/published.md: scores are divided by twice their sensitivity, 1.
        advantage = np.full_like(distance, self.eps / 2)
        return _other_labels_share(self.classes, advantage)


@keyword_schema
class InverseSensitivity(InverseSensitivitySettings, Mechanism):
    """The inverse sensitivity mechanism: an exponential mechanism that scores labels by distances.

    A label's score is minus the number of edits of the dataset that it would take to make the model
    answer with it: 0 for the model's label, and -(L + 1) for the others at a stable distance L (the
    number of edits up to which the label provably stays the same).

    Attributes:
        eps: the epsilon of one query.
    """

    def _flip(self, distance: np.ndarray) -> np.ndarray:
        """Return the probability of another label, (C - 1) / (C - 1 + exp(eps (L + 1) / 2)).

        C is the number of classes.

        Args:
            distance: float64 of any shape, at least 0: L, the stable distance of each query (the
                number of edits of the dataset up to which its label provably stays the same).
        """
        # Lemma 5 of docs/proofs/published.md: one edit changes a score by at most 1.
        advantage = self.eps / 2 * (distance + 1)
        return _other_labels_share(self.classes, advantage)


def _other_labels_share(classes: int, advantage: np.ndarray) -> np.ndarray:
    """Return the probability that an exponential mechanism draws a label other than the best one.

    Args:
        classes: C, the number of labels.
        advantage: the exponent of the best label minus that of each other label, at least 0; any
            shape.

    Returns:
        (C - 1) / (C - 1 + exp(advantage)), of the shape of ``advantage``.
    """
    # Numerator and denominator are multiplied by exp(-advantage), because exp(advantage) may
    # overflow.
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
    """Return an ensemble's majority votes with the stable distances of 001 Theorem 5.3.

    With n0 and n1 votes for the two classes, m = ceil(|n1 - n0| / 2) members must change their
    label to change the majority. The distance is the sum of the m smallest stable distances of all
    T members.

    It is only for ``accounting=paper``, because one edit may change it by more than 1: if a member
    joins the majority, m may grow, and another member's distance is added at once.

    Args:
        labels: [T, n] int, each member's label for each query, 0 or 1.
        distances: [T, n] int, each member's stable distance for each query (the number of edits of
            its records up to which its label provably stays the same).

    Returns:
        The votes for the n queries. A tie gives label 0 with distance 0.

    Source: the proof in 001, appendix D.7.
    """
    # These modules load torch, which programs that only add up guarantees do not need.
    from agt.certificates.vote_costs import count_votes
    from agt.certificates.votes import Vote, check_members

    labels, distances = check_members(labels, distances, 2)
    counts = count_votes(labels, 2)  # [2, n]
    gap = abs(counts[1] - counts[0])
    members_to_flip = (gap + 1) // 2  # m = ceil(gap / 2)
    ascending_sums = np.sort(distances, axis=0).cumsum(axis=0)
    no_member = np.zeros((1, labels.shape[1]), dtype=np.int64)
    sums = np.concatenate([no_member, ascending_sums])  # [T + 1, n]: row m sums the m smallest
    distance = np.take_along_axis(sums, members_to_flip[None], axis=0)[0]
    return Vote(counts.argmax(axis=0), distance)


def check_published_vote(config: "EnsembleConfig", classes: int) -> None:
    """Raise ConfigError if the published vote (001 Theorem 5.3) does not cover an ensemble.

    Args:
        config: the ensemble's settings, of which ``vote`` is used.
        classes: the number of classes.

    Raises:
        ConfigError: there are more than two classes, or members vote by margins.
    """
    if classes > 2:
        raise ConfigError(
            Message(
                "{config:unproved=allow}: the published vote of an ensemble (Theorem 5.3 of "
                "'Certification for Differentially Private Prediction in Gradient-Based "
                "Training') only covers two classes, but the model has {classes}: use "
                "{config:unproved=refuse}",
                classes=classes,
            )
        )
    if config.vote == "margins":
        raise ConfigError(
            Message(
                "{config:unproved=allow}: the published vote of an ensemble (Theorem 5.3 of "
                "'Certification for Differentially Private Prediction in Gradient-Based "
                "Training') counts labels, but this ensemble adds margins "
                "(ensemble.vote=margins): use {config:unproved=refuse}, or train with "
                "ensemble.vote=labels"
            )
        )
