"""ROC curves of membership attacks: the area under the curve, and rates at few false alarms.

A record is classified as a member if its score is at least the threshold.

Formal guarantees
    * ``Roc.at_false_alarm_rate``: the threshold depends on the non-members' scores only. Members
      are drawn independently of them, so given the threshold the number of members above it is
      binomial, and its Clopper-Pearson limits hold. (Records of one training are taken for
      independent draws of one population, given the model.)
    * ``Roc.area_limits`` is asymptotic (DeLong et al. 1988). A few records, or ones that are nearly
      all tied, may show no variance where there is some, so each side is counted with two records
      more, one placed best and one worst, as Agresti and Coull do for a rate.
    * If the sample separates perfectly, members and non-members are paired off: as many independent
      pairs as the smaller side has, all in order, which Clopper-Pearson bounds at any number.

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
    """The results of classifying records with one threshold.

    Attributes:
        threshold: a record with at least this score is classified as a member.
        mistakes: the counts of mistakes and of trials.
        confidence: the probability with which a rate lies between its two limits.
    """

    threshold: float
    mistakes: Mistakes
    confidence: float

    @property
    def found(self) -> int:
        """The number of members that are classified as members."""
        return self.mistakes.trials_with - self.mistakes.misses

    @property
    def tpr(self) -> float:
        """The share of members that are classified as members, the true positive rate."""
        return self.found / self.mistakes.trials_with

    @property
    def fpr(self) -> float:
        """The share of non-members that are classified as members, the false positive rate."""
        return self.mistakes.alarms / self.mistakes.trials_without

    @property
    def tpr_limits(self) -> tuple[float, float]:
        """The two Clopper-Pearson limits of ``tpr``, lower and upper."""
        return _limits(self.found, self.mistakes.trials_with, self.confidence)

    @property
    def advantage_limits(self) -> tuple[float, float]:
        """The lower and upper limit of TPR - FPR.

        They hold if the threshold does not depend on the scores that are counted. Each rate has
        Clopper-Pearson limits at half the error probability.
        """
        half = (1 + self.confidence) / 2
        tpr = _limits(self.found, self.mistakes.trials_with, half)
        fpr = _limits(self.mistakes.alarms, self.mistakes.trials_without, half)
        return tpr[0] - fpr[1], tpr[1] - fpr[0]


@dataclass(frozen=True)
class Roc:
    """Scores of members and non-members, and the ROC curve of an attack that uses them.

    Attributes:
        scores: [n] finite or infinite; a higher score says that a record is rather a member.
        member: [n] bool, whether the record is a member.

    Raises:
        ConfigError: no members, no non-members, or a score that is NaN.
    """

    scores: np.ndarray
    member: np.ndarray

    def __post_init__(self) -> None:
        if np.isnan(self.scores).any():
            raise ConfigError("a score is NaN")
        members = int(self.member.sum())
        others = int((~self.member).sum())
        if not members or not others:
            raise ConfigError(
                "a ROC curve needs both members and non-members, but there are "
                f"{members} members and {others} non-members. Give at least one of each"
            )

    @cached_property
    def _members(self) -> np.ndarray:
        """The members' scores, sorted."""
        return np.sort(self.scores[self.member])

    @cached_property
    def _others(self) -> np.ndarray:
        """The non-members' scores, sorted."""
        return np.sort(self.scores[~self.member])

    @cached_property
    def curve(self) -> np.ndarray:
        """[T + 1, 3]: threshold, false alarms and members found, for T distinct scores.

        Thresholds fall from row to row; the first row is (inf, 0, 0).
        """
        thresholds = np.unique(self.scores)[::-1]
        alarms = len(self._others) - np.searchsorted(self._others, thresholds, side="left")
        detected = len(self._members) - np.searchsorted(self._members, thresholds, side="left")
        return np.vstack([[math.inf, 0, 0], np.stack([thresholds, alarms, detected], axis=1)])

    @cached_property
    def _advantages(self) -> np.ndarray:
        """TPR - FPR at each row of ``curve``, [T + 1]."""
        tpr = self.curve[:, 2] / len(self._members)
        fpr = self.curve[:, 1] / len(self._others)
        advantages: np.ndarray = tpr - fpr
        return advantages

    @property
    def best_accuracy(self) -> float:
        """The balanced accuracy at the threshold that is best for these records."""
        return float(1 + self._advantages.max()) / 2

    @cached_property
    def area(self) -> float:
        """The AUC: how often a member's score is above a non-member's; a tie counts half."""
        above, _ = self._placements
        return float(above.mean())

    def area_limits(self, confidence: float) -> tuple[float, float]:
        """Return the lower and upper limit of the area, from DeLong's variance.

        If the area is 0 or 1, they are Clopper-Pearson limits from independent pairs.

        Args:
            confidence: the probability with which the true area is between them (asymptotic,
                except from pairs).
        """
        above, below = self._placements
        if self.area in (0.0, 1.0):
            pairs = min(len(above), len(below))
            return _limits(round(self.area * pairs), pairs, confidence)
        variance = 0.0
        for placements in (above, below):
            with_best_and_worst = np.append(placements, (0, 1))
            variance += with_best_and_worst.var(ddof=1) / len(placements)
        half_width = float(norm.ppf((1 + confidence) / 2)) * math.sqrt(variance)
        return max(0.0, self.area - half_width), min(1.0, self.area + half_width)

    @cached_property
    def _placements(self) -> tuple[np.ndarray, np.ndarray]:
        """For each member the share of non-members below, for each non-member of members above.

        Both arrays are in order of scores; a tie counts half.
        """
        members = self._members
        others = self._others
        ranks = rankdata(np.concatenate([members, others]))
        above = (ranks[: len(members)] - rankdata(members)) / len(others)
        below = 1 - (ranks[len(members) :] - rankdata(others)) / len(members)
        return above, below

    def at_false_alarm_rate(self, rate: float, confidence: float) -> RocPoint:
        """Return the results at the lowest threshold with at most a given rate of false alarms.

        Args:
            rate: the largest share of these non-members that may be classified as members.
            confidence: the confidence level of the limits.
        """
        # the factor allows for the rounding of the product
        max_alarms = rate * len(self._others) * (1 + 1e-12)
        allowed = self.curve[self.curve[:, 1] <= max_alarms]
        lowest_threshold = float(allowed[-1, 0])
        return self.at_threshold(lowest_threshold, confidence)

    def at_threshold(self, threshold: float, confidence: float) -> RocPoint:
        """Return the results at a given threshold.

        Args:
            threshold: a record with at least this score is classified as a member.
            confidence: the confidence level of the limits, which hold if the threshold was fixed
                beforehand.
        """
        members = len(self._members)
        others = len(self._others)
        misses = int(np.searchsorted(self._members, threshold))
        alarms = others - int(np.searchsorted(self._others, threshold))
        return RocPoint(threshold, Mistakes(alarms, others, misses, members), confidence)

    @property
    def best(self) -> float:
        """The threshold with the largest TPR - FPR; its limits hold on other records only."""
        best_row = int(self._advantages.argmax())
        return float(self.curve[best_row, 0])


def _limits(events: int, trials: int, confidence: float) -> tuple[float, float]:
    """Return the two-sided Clopper-Pearson limits of the rate events/trials, lower and upper."""
    error = (1 - confidence) / 2
    return lower_limit(events, trials, error), upper_limit(events, trials, error)


def too_few_non_members(rate: float, others: int) -> str:
    """Return a clause that says why a rate of false alarms cannot be measured; "": it can.

    It can if a single false alarm among all non-members is a share of at most ``rate``.

    Args:
        rate: of false alarms, above 0.
        others: how many non-members there are.
    """
    needed = math.ceil(1 / rate)
    if others >= needed:
        return ""
    return (
        f"{others} non-members are too few to measure a false alarm rate of {100 * rate:g} %: "
        f"at least {needed:,} are needed"
    )
