"""Events that an attacker of released answers counts, and how often each is to be expected."""

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri
from scipy.stats import binom

from agt_audit.estimates import Claimed, Mistakes


@dataclass(frozen=True)
class LabelEvent:
    """What the attack calls "with the unit": at least ``least`` of ``answers`` labels are among
    ``labels``.

    Attributes:
        labels: classes.
        answers: Q, how many answers one trial has.
        least: of them.
        alarm, hit: its probability without and with the unit, if the release is what it says.
    """

    labels: tuple[int, ...]
    answers: int
    least: int
    alarm: float
    hit: float

    def mistakes(self, having: np.ndarray, lacking: np.ndarray) -> Mistakes:
        """Of labels that were drawn on each side, [n] each; what is left of the last trial is
        not counted.
        """
        alarms, hits = self._seen(lacking), self._seen(having)
        return Mistakes(int(alarms.sum()), len(alarms), int((~hits).sum()), len(hits))

    def _seen(self, labels: np.ndarray) -> np.ndarray:
        whole = len(labels) // self.answers * self.answers
        return (
            np.isin(labels[:whole], self.labels).reshape(-1, self.answers).sum(axis=1) >= self.least
        )

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

    @property
    def words(self) -> str:
        """What it is, without the labels' names, which may be private."""
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


def event_of(having: np.ndarray, lacking: np.ndarray) -> LabelEvent:
    """The most telling set of one label: [C] probabilities on each side."""
    likelier = np.flatnonzero(having > lacking).tolist() or [int(having.argmax())]
    return LabelEvent(
        tuple(likelier), 1, 1, float(lacking[likelier].sum()), float(having[likelier].sum())
    )


def event_of_sum(
    one: LabelEvent, answers: int, claimed: Claimed, trials: int, confidence: float, events: int
) -> LabelEvent:
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
