"""How well scores tell members from non-members: the curve, its area, rates at few false alarms.

Each number has its confidence. ``Roc`` is exact in ties: records of one score are called alike. A
member is called one at or above a threshold.

Formal guarantees
    ``Roc.at``: the threshold is a function of the non-members' scores alone. Members are drawn
    apart from them, so given the threshold the number of members above it is binomial, and its
    Clopper-Pearson limits hold as they stand. (Records of one training are taken for independent
    draws of one population, given the model.) ``Roc.area_limits``: DeLong et al. 1988: asymptotic.
    A few records, or ones that are nearly all tied, may show no variance where there is some: each
    side is counted with two records more, one that is placed best and one worst, as Agresti and
    Coull do for a rate. That changes nothing in the limit; in simulations of 1 to 100 records a
    side, tied or not, the area was missed at most about as often as it may be. Where the sample
    separates perfectly, members and non-members are paired off, each in one pair: as many
    independent pairs as the smaller side has, all in order, which Clopper-Pearson bounds at any
    number of records.

Sources: DeLong, DeLong and Clarke-Pearson 1988; Agresti and Coull 1998; Sun and Xu 2014 (midranks).
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.stats import norm, rankdata

from agt.errors import ConfigError
from agt_audit.estimates import Mistakes, lower_limit, upper_limit


@dataclass(frozen=True)
class RocPoint:
    """What one threshold does.

    Attributes:
        threshold: at or above which a record is called a member.
        mistakes: counts of both sides.
        confidence: of the limits, each pair of them by itself.
    """

    threshold: float
    mistakes: Mistakes
    confidence: float

    @property
    def found(self) -> int:
        """Members called so."""
        return self.mistakes.trials_with - self.mistakes.misses

    @property
    def tpr(self) -> float:
        """The share of members that are called so."""
        return self.found / self.mistakes.trials_with

    @property
    def fpr(self) -> float:
        """The share of non-members that are called members."""
        return self.mistakes.alarms / self.mistakes.trials_without

    @property
    def tpr_limits(self) -> tuple[float, float]:
        """Clopper-Pearson."""
        return _limits(self.found, self.mistakes.trials_with, self.confidence)

    @property
    def advantage_limits(self) -> tuple[float, float]:
        """Of a threshold that was fixed before: each rate's Clopper-Pearson limit at half the
        error probability.
        """
        half = (1 + self.confidence) / 2
        tpr = _limits(self.found, self.mistakes.trials_with, half)
        fpr = _limits(self.mistakes.alarms, self.mistakes.trials_without, half)
        return tpr[0] - fpr[1], tpr[1] - fpr[0]


@dataclass(frozen=True)
class Roc:
    """Scores of members and non-members.

    Attributes:
        scores: [n] finite or infinite; higher: rather a member.
        member: [n] bool.

    Raises:
        ConfigError: no members, no non-members, or a score that is NaN.
    """

    scores: np.ndarray
    member: np.ndarray

    def __post_init__(self) -> None:
        if np.isnan(self.scores).any():
            raise ConfigError("a score is NaN")
        members, others = int(self.member.sum()), int((~self.member).sum())
        if not members or not others:
            raise ConfigError(
                "a ROC curve needs both members and non-members, but there are "
                f"{members} members and {others} non-members. Give at least one of each"
            )

    @cached_property
    def _sides(self) -> tuple[np.ndarray, np.ndarray]:
        return np.sort(self.scores[self.member]), np.sort(self.scores[~self.member])

    @cached_property
    def curve(self) -> np.ndarray:
        """[T + 1, 3] (threshold, false alarms, members found), counts, at every distinct score;
        first (inf, 0, 0).
        """
        having, without = self._sides
        levels = np.unique(self.scores)[::-1]
        counts = [
            len(side) - np.searchsorted(side, levels, side="left") for side in (without, having)
        ]
        return np.vstack([[math.inf, 0, 0], np.stack([levels, *counts], axis=1)])

    @cached_property
    def area(self) -> float:
        """The probability that a member's score is above a non-member's, ties counted half."""
        above, _ = self._placements
        return float(above.mean())

    def area_limits(self, confidence: float) -> tuple[float, float]:
        """Of the area, two-sided."""
        above, below = self._placements
        if self.area in (0.0, 1.0):
            pairs = min(len(above), len(below))
            return _limits(round(self.area * pairs), pairs, confidence)
        spread = sum(np.append(part, (0, 1)).var(ddof=1) / len(part) for part in (above, below))
        reach = float(norm.ppf((1 + confidence) / 2)) * math.sqrt(spread)
        return max(0.0, self.area - reach), min(1.0, self.area + reach)

    @cached_property
    def _placements(self) -> tuple[np.ndarray, np.ndarray]:
        """Of each member, the share of non-members below it; of each non-member, the share of
        members above it.
        """
        having, without = self._sides
        ranks = rankdata(np.concatenate([having, without]))
        above = (ranks[: len(having)] - rankdata(having)) / len(without)
        below = 1 - (ranks[len(having) :] - rankdata(without)) / len(having)
        return above, below

    def at(self, rate: float, confidence: float) -> RocPoint:
        """The lowest threshold whose share of false alarms among the non-members here is at most
        ``rate``.
        """
        allowed = self.curve[self.curve[:, 1] <= rate * len(self._sides[1])]
        return self.beyond(float(allowed[-1, 0]), confidence)

    def beyond(self, threshold: float, confidence: float) -> RocPoint:
        """At a threshold that was fixed before."""
        having, without = (
            len(side) - int(np.searchsorted(side, threshold)) for side in self._sides
        )
        members, others = map(len, self._sides)
        return RocPoint(threshold, Mistakes(without, others, members - having, members), confidence)

    @property
    def best(self) -> float:
        """The threshold of the largest advantage here: to be used on other records than these."""
        members, others = map(len, self._sides)
        gain = self.curve[:, 2] / members - self.curve[:, 1] / others
        return float(self.curve[int(gain.argmax()), 0])


def _limits(events: int, trials: int, confidence: float) -> tuple[float, float]:
    """Two-sided Clopper-Pearson."""
    error = (1 - confidence) / 2
    return lower_limit(events, trials, error), upper_limit(events, trials, error)


def fewest(rate: float, others: int) -> str:
    """A caveat where there are too few non-members for a rate of false alarms; empty: there are
    enough.
    """
    least = math.ceil(1 / rate)
    return (
        ""
        if others >= least
        else (
            f"{others} non-members are too few to measure a false alarm rate of {100 * rate:g} %: "
            f"at least {least:,} are needed"
        )
    )
