"""Events that an attacker of released answers counts, and how often each is to be expected.

The attacker guesses "with the unit" if at least some number of the released answers lie in a set.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri
from scipy.stats import binom

from agt_audit.estimates import Claimed, Mistakes


@dataclass(frozen=True, kw_only=True)
class AnswerEvent(ABC):
    """What an attack calls "with the unit": enough of the released answers of a trial are in a set.

    Attributes:
        answers: how many answers one trial has.
        minimum: how many of them must be in the set, at least.
        alarm: the event's probability without the unit, if the release is what it says.
        hit: its probability with the unit, likewise.
    """

    answers: int = 1
    minimum: int = 1
    alarm: float
    hit: float

    @abstractmethod
    def holds(self, released: np.ndarray) -> np.ndarray:
        """Return which released answers [n] are in the set, [n] bool."""

    @property
    @abstractmethod
    def words(self) -> str:
        """The event in words, without the labels or the threshold, which may be private."""

    def mistakes(self, with_unit: np.ndarray, without_unit: np.ndarray) -> Mistakes:
        """Count the mistakes on answers that were drawn on each side.

        Answers that do not make up a whole trial are not counted.

        Args:
            with_unit: [n] answers of the side with the unit.
            without_unit: [n] answers of the side without it.
        """
        hits = self._holds_in_trials(with_unit)
        alarms = self._holds_in_trials(without_unit)
        return Mistakes(int(alarms.sum()), len(alarms), int((~hits).sum()), len(hits))

    def _holds_in_trials(self, released: np.ndarray) -> np.ndarray:
        """Return in which trials the event holds, [n // answers] bool, of released answers [n]."""
        whole_trials = len(released) // self.answers * self.answers
        in_set = self.holds(released[:whole_trials])
        holds: np.ndarray = in_set.reshape(-1, self.answers).sum(axis=1) >= self.minimum
        return holds

    def expected(self, claimed: Claimed, trials: int, confidence: float, events: int) -> float:
        """Return the lower bound on the loss that trials would show if they fell as expected.

        Args:
            claimed: in which measure.
            trials: how many there are on each side.
            confidence: of the bound.
            events: how many events share the error probability.
        """
        alarms = min(math.ceil(self.alarm * trials), trials)
        misses = min(math.ceil((1 - self.hit) * trials), trials)
        return claimed.bound(Mistakes(alarms, trials, misses, trials), confidence, events)

    def loss(self, claimed: Claimed) -> float:
        """Return the privacy loss of this event, if the release is what it says.

        No number of trials can show more.

        Args:
            claimed: in which measure, and at which delta.
        """
        if claimed.measure == "mu":
            return max(0.0, float(ndtri(self.hit) - ndtri(self.alarm)))
        delta = claimed.delta
        of_event = _log_ratio(self.hit - delta, self.alarm)
        of_opposite = _log_ratio(1 - self.alarm - delta, 1 - self.hit)
        return max(0.0, of_event, of_opposite)


@dataclass(frozen=True)
class LabelEvent(AnswerEvent):
    """Released labels are among some classes.

    Attributes:
        labels: the classes.
    """

    labels: tuple[int, ...]

    def holds(self, released: np.ndarray) -> np.ndarray:
        """Return which released labels [n] are among the classes, [n] bool."""
        return np.isin(released, self.labels)

    @property
    def words(self) -> str:
        """The event in words, without the labels' names, which may be private."""
        if self.answers == 1:
            return (
                "the attacker guesses that the unit (person) is in the training data if the "
                "released label is more likely with the unit's records than without them"
            )
        return (
            "the attacker guesses that the unit (person) is in the training data if at least "
            f"{self.minimum} of {self.answers} released labels are more likely with the unit's "
            "records than without them"
        )


@dataclass(frozen=True)
class ThresholdEvent(AnswerEvent):
    """Released numbers lie on the side of a threshold where the unit's records move them.

    Attributes:
        threshold: a number; it counts as above.
        above: the side.
    """

    threshold: float
    above: bool

    def holds(self, released: np.ndarray) -> np.ndarray:
        """Return which released numbers [n] lie on the side, [n] bool."""
        return (released >= self.threshold) == self.above

    @property
    def words(self) -> str:
        """The event in words, without the threshold, which is private."""
        if self.answers == 1:
            return (
                "the attacker guesses that the unit (person) is in the training data if the "
                "released number lies on that side of a threshold to which the unit's records "
                "move the answer"
            )
        return (
            "the attacker guesses that the unit (person) is in the training data if at least "
            f"{self.minimum} of {self.answers} released numbers lie on that side of a threshold "
            "to which the unit's records move the answer"
        )


def _log_ratio(more: float, less: float) -> float:
    """Return ln(more / less); 0 if ``more`` is not positive, infinite if only ``less`` is not."""
    if more <= 0:
        return 0.0
    return math.log(more / less) if less > 0 else math.inf


def event_of(with_unit: np.ndarray, without_unit: np.ndarray) -> LabelEvent:
    """Return the event that tells one released label's two laws apart best.

    Args:
        with_unit: [C] the probability of each label with the unit.
        without_unit: [C] the same without it.
    """
    likelier = np.flatnonzero(with_unit > without_unit).tolist()
    if not likelier:  # both laws are the same, so any label will do
        likelier = [int(with_unit.argmax())]
    return LabelEvent(
        tuple(likelier),
        alarm=float(without_unit[likelier].sum()),
        hit=float(with_unit[likelier].sum()),
    )


def event_of_sum(
    one: AnswerEvent, answers: int, claimed: Claimed, trials: int, confidence: float, events: int
) -> AnswerEvent:
    """Return the event about several answers of which most is expected.

    Args:
        one: the event about a single answer.
        answers: how many answers one trial has.
        claimed: in which measure.
        trials: how many there are on each side.
        confidence: of the bound.
        events: how many events share the error probability.
    """
    candidates = []
    for minimum in range(1, answers + 1):
        # the number of answers in the set is binomial
        alarm = binom.sf(minimum - 1, answers, one.alarm)
        hit = binom.sf(minimum - 1, answers, one.hit)
        candidates.append(replace(one, answers=answers, minimum=minimum, alarm=alarm, hit=hit))
    return max(candidates, key=lambda event: event.expected(claimed, trials, confidence, events))
