"""Events that an attacker of released answers counts, and how often each is to be expected."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri
from scipy.stats import binom

from agt_audit.estimates import Claimed, Mistakes


@dataclass(frozen=True, kw_only=True)
class AnswerEvent(ABC):
    """What an attack calls "with the unit": at least ``least`` of ``answers`` released answers are
    in a set.

    Attributes:
        answers: Q, how many answers one trial has.
        least: how many of them must be in the set.
        alarm, hit: its probability without and with the unit, if the release is what it says.
    """

    answers: int = 1
    least: int = 1
    alarm: float
    hit: float

    @abstractmethod
    def holds(self, released: np.ndarray) -> np.ndarray:
        """Return which released answers [n] are in the set, [n] bool."""

    @property
    @abstractmethod
    def words(self) -> str:
        """The event in words, without the labels or the threshold, which may be private."""

    def mistakes(self, having: np.ndarray, lacking: np.ndarray) -> Mistakes:
        """Count the mistakes on answers that were drawn on each side, [n] each.

        What is left of the last trial is not counted.
        """
        alarms, hits = self._seen(lacking), self._seen(having)
        return Mistakes(int(alarms.sum()), len(alarms), int((~hits).sum()), len(hits))

    def _seen(self, released: np.ndarray) -> np.ndarray:
        whole = len(released) // self.answers * self.answers
        in_set = self.holds(released[:whole])
        seen: np.ndarray = in_set.reshape(-1, self.answers).sum(axis=1) >= self.least
        return seen

    def expected(self, claimed: Claimed, trials: int, confidence: float, events: int) -> float:
        """What so many trials would show if they fell as expected."""
        alarms, misses = math.ceil(self.alarm * trials), math.ceil((1 - self.hit) * trials)
        return claimed.bound(
            Mistakes(min(alarms, trials), trials, min(misses, trials), trials), confidence, events
        )

    def loss(self, claimed: Claimed) -> float:
        """What any number of trials could show: the loss of this event, if the release is what
        it says.
        """
        if claimed.measure == "mu":
            return max(0.0, float(ndtri(self.hit) - ndtri(self.alarm)))
        pairs = (
            (self.hit - claimed.delta, self.alarm),
            (1 - self.alarm - claimed.delta, 1 - self.hit),
        )
        return max(
            [
                0.0,
                *(
                    math.log(more / less) if less > 0 else math.inf
                    for more, less in pairs
                    if more > 0
                ),
            ]
        )


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
            f"{self.least} of {self.answers} released labels are more likely with the unit's "
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
            f"{self.least} of {self.answers} released numbers lie on that side of a threshold to "
            "which the unit's records move the answer"
        )


def event_of(having: np.ndarray, lacking: np.ndarray) -> LabelEvent:
    """The most telling set of one label: [C] probabilities on each side."""
    likelier = np.flatnonzero(having > lacking).tolist() or [int(having.argmax())]
    return LabelEvent(
        tuple(likelier), alarm=float(lacking[likelier].sum()), hit=float(having[likelier].sum())
    )


def event_of_sum(
    one: AnswerEvent, answers: int, claimed: Claimed, trials: int, confidence: float, events: int
) -> AnswerEvent:
    """How many of ``answers`` labels must be in the event's set: the number of which most is
    expected.
    """
    made = [
        replace(
            one,
            answers=answers,
            least=t,
            alarm=binom.sf(t - 1, answers, one.alarm),
            hit=binom.sf(t - 1, answers, one.hit),
        )
        for t in range(1, answers + 1)
    ]
    return max(made, key=lambda event: event.expected(claimed, trials, confidence, events))
