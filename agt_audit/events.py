"""Events that an attacker of released answers counts, and how often each is to be expected.

The attacker guesses "with the unit" if at least some number of the released answers lie in a set.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import binom

from agt_audit.claims import Claimed, TestedClaim
from agt_audit.estimates import Mistakes
from agt_audit.output_events import Event, label_event
from agt_cli.report.findings import Finding

LIKELIER_LABEL = "the released label is more likely with the unit's records than without them"
MOVED_NUMBER = (
    "the released number lies on that side of a threshold to which the unit's records move the "
    "answer"
)


@dataclass(frozen=True)
class AnswerEvent:
    """The event that at least ``minimum`` of a trial's released answers are in a set.

    If it holds, the attacker guesses that the unit is in the training data.

    Attributes:
        one: the set of a single answer. Its words name no labels or thresholds, which may be
            private.
        alarm: the event's probability without the unit, if the release draws as it states.
        hit: the event's probability with the unit, if the release draws as it states.
        answers: how many released answers one trial has.
        minimum: how many of them must be in the set.
    """

    one: Event
    alarm: float
    hit: float
    answers: int = 1
    minimum: int = 1

    @property
    def sentence(self) -> str:
        """A sentence about the event, without labels or thresholds, which may be private."""
        how_often = ""
        if self.answers > 1:
            how_often = (
                f"the following holds for at least {self.minimum} of {self.answers} answers: "
            )
        return (
            "the attacker guesses that the unit (person) is in the training data if "
            f"{how_often}{self.one.clause}"
        )

    def mistakes(self, with_unit: np.ndarray, without_unit: np.ndarray) -> Mistakes:
        """Count the attacker's mistakes on labels that were released with and without the unit.

        Each ``answers`` consecutive labels are one trial; an incomplete last trial is not counted.

        Args:
            with_unit: [n] labels released by the model that was trained with the unit.
            without_unit: [n] labels released by the model that was trained without it.
        """
        in_trials = Event(self.sentence, self._holds_in_trials)
        return in_trials.mistakes(self._trials(with_unit), self._trials(without_unit))

    def _trials(self, released: np.ndarray) -> np.ndarray:
        """Return released labels [n] as trials, [n // answers, answers]."""
        whole_trials = len(released) // self.answers * self.answers
        return released[:whole_trials].reshape(-1, self.answers)

    def _holds_in_trials(self, trials: np.ndarray) -> np.ndarray:
        """Return in which trials [n, answers] the event holds, [n] bool."""
        holds: np.ndarray = self.one.holds(trials).sum(axis=1) >= self.minimum
        return holds

    def judge(self, claim: TestedClaim, with_unit: np.ndarray, without_unit: np.ndarray) -> Finding:
        """Count the event in labels released with and without the unit, and judge a claim by it.

        Args:
            claim: the claim; sentences about the event and the numbers of trials are added to it.
            with_unit: [n] labels released by the model that was trained with the unit, drawn after
                the event was fixed.
            without_unit: [n] labels of the model without it, drawn in the same way.
        """
        mistakes = self.mistakes(with_unit, without_unit)
        effort = f"{len(with_unit):,} labels were drawn from each of the two models"
        if self.answers > 1:
            effort = (
                f"{effort}; the labels were counted in {mistakes.trials_with:,} trials of "
                f"{self.answers} labels each"
            )
        attack = f"{claim.attack}; {self.sentence}"
        return replace(claim, attack=attack, effort=effort).judge(mistakes)

    def expected(self, claimed: Claimed, trials: int, confidence: float) -> float:
        """Return the lower bound on the loss from the expected counts of this event.

        Args:
            claimed: the claim, in whose measure (epsilon or mu) the bound is.
            trials: how many trials there are on each side.
            confidence: the probability with which the bound holds.
        """
        return claimed.expected_bound(self.alarm, 1 - self.hit, trials, confidence)

    def strength(self, claimed: Claimed, trials: int, confidence: float) -> tuple[float, float]:
        """Return the numbers by which events are compared: ``expected``, and then the advantage.

        The advantage, hit - alarm, decides between equal bounds, which may all be 0.
        """
        return self.expected(claimed, trials, confidence), self.hit - self.alarm


def event_of(with_unit: np.ndarray, without_unit: np.ndarray) -> AnswerEvent:
    """Return the event about one released label with the largest advantage, hit - alarm.

    It holds for the labels that are more probable with the unit. If there is none, both sides
    have the same probabilities, and it holds for the most probable label.

    Args:
        with_unit: [C] the probability of each label with the unit.
        without_unit: [C] the same without it.
    """
    likelier = np.flatnonzero(with_unit > without_unit).tolist()
    if not likelier:
        likelier = [int(with_unit.argmax())]
    return AnswerEvent(
        Event(LIKELIER_LABEL, label_event(tuple(likelier)).holds),
        alarm=float(without_unit[likelier].sum()),
        hit=float(with_unit[likelier].sum()),
    )


def event_of_sum(
    single_answer: AnswerEvent, answers: int, claimed: Claimed, trials: int, confidence: float
) -> AnswerEvent:
    """Return the event about several released labels with the largest expected bound on the loss.

    An event is that at least ``minimum`` of a trial's ``answers`` labels are in the set of
    ``single_answer``; every ``minimum`` from 1 to ``answers`` is tried. The labels of a trial are
    independent and have the same distribution, given the dataset.

    Args:
        single_answer: the event about a single answer.
        answers: how many released labels one trial has, at least 1.
        claimed: the claim, in whose measure (epsilon or mu) bounds are.
        trials: how many trials there are on each side.
        confidence: the probability with which a bound holds.
    """
    candidates = []
    for minimum in range(1, answers + 1):
        # the number of a trial's labels in the set has a binomial distribution
        alarm = binom.sf(minimum - 1, answers, single_answer.alarm)
        hit = binom.sf(minimum - 1, answers, single_answer.hit)
        candidates.append(
            replace(single_answer, answers=answers, minimum=minimum, alarm=alarm, hit=hit)
        )
    return max(candidates, key=lambda event: event.expected(claimed, trials, confidence))
