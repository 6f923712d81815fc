"""Claimed privacy losses, and what the counts of an attack say of them: verdicts and sentences."""

import math
from dataclasses import dataclass
from typing import Any, Literal

from scipy.special import ndtr

from agt.mechanisms.guarantees import ApproximateDP, GaussianDP, Guarantee
from agt.numeric import bisect, midpoint, whole_midpoint
from agt_audit.estimates import Mistakes, epsilon_bound, mu_bound
from agt_cli.report.findings import Finding, Outcome, format_bound, format_lower_bound

MOST_TRIALS = 10**15  # the largest number of trials that is searched for or recommended
_MAX_LOSS = 100.0  # the largest epsilon, or mu, that bisections search for

Measure = Literal["epsilon", "mu"]


@dataclass(frozen=True)
class Claimed:
    """A claimed upper bound on the privacy loss, which an attack can contradict.

    Attributes:
        measure: the measure of the loss, epsilon or mu.
        value: the claimed bound.
        delta: the delta of a claim of (epsilon, delta)-DP; 0 for pure DP, and for a mu.
    """

    measure: Measure
    value: float
    delta: float = 0.0

    @classmethod
    def of(cls, guarantee: Guarantee) -> "Claimed":
        """Return the claim of a guarantee: its mu, or its epsilon with its delta, if it has one."""
        if isinstance(guarantee, GaussianDP):
            return cls("mu", guarantee.mu)
        delta = guarantee.delta if isinstance(guarantee, ApproximateDP) else 0.0
        return cls("epsilon", guarantee.eps, delta)

    @property
    def shown_delta(self) -> float | None:
        """The delta that a finding shows; None if the claim is a mu, which has none."""
        return None if self.measure == "mu" else self.delta

    @property
    def words(self) -> str:
        """The measure in words, with its delta if that is not 0."""
        if self.delta:
            return f"{self.measure} at delta {self.delta:g}"
        return self.measure

    def bound(self, mistakes: Mistakes, confidence: float, events: int = 1) -> float:
        """Return the rigorous lower bound on the true loss, in the claim's measure.

        The claim is contradicted if the bound exceeds ``value``. Arguments as of
        ``epsilon_bound``.
        """
        if self.measure == "mu":
            return mu_bound(mistakes, confidence, events)
        return epsilon_bound(mistakes, self.delta, confidence, events)

    def expected_bound(
        self, alarm_rate: float, miss_rate: float, trials: int, confidence: float, events: int = 1
    ) -> float:
        """Return the lower bound from the expected counts of an attack, which are rounded up.

        Args:
            alarm_rate: the probability of a false alarm.
            miss_rate: the probability of a miss.
            trials: how many trials there are on each side.
            confidence: the probability with which bounds hold.
            events: how many events share the error probability.
        """
        alarms = min(math.ceil(alarm_rate * trials), trials)
        misses = min(math.ceil(miss_rate * trials), trials)
        return self.bound(Mistakes(alarms, trials, misses, trials), confidence, events)

    def needed(self, confidence: float, events: int = 1) -> int:
        """Return the least number of trials on each side with which the claim can be contradicted.

        With so many, the bound of an attack that is never wrong exceeds the claim. With fewer, no
        counts of any attack can contradict it.

        Args:
            confidence: the probability with which bounds hold.
            events: how many events share the error probability.

        Returns:
            The number; ``MOST_TRIALS`` stands for that many or more.
        """

        def too_few(trials: int) -> bool:
            no_mistakes = Mistakes(0, trials, 0, trials)
            return self.bound(no_mistakes, confidence, events) <= self.value

        if too_few(MOST_TRIALS):
            return MOST_TRIALS
        return bisect(too_few, 0, MOST_TRIALS, whole_midpoint)[1]

    def noticed(self, trials: int, confidence: float, events: int = 1) -> float | None:
        """Return the least true loss that the best test detects in about half of all audits.

        It is the least loss with which the claim is contradicted if the best test makes its
        expected number of mistakes, at the threshold where false alarms and misses are equally
        frequent.

        Args:
            trials: how many trials there are on each side.
            confidence: the probability with which bounds hold.
            events: how many events share the error probability.

        Returns:
            The loss, in the claim's measure; None if no loss up to 100 is detected, because there
            are too few trials.
        """

        def is_undetected(true_loss: float) -> bool:
            # the test between N(0, 1) and N(mu, 1), or that of randomized response
            if self.measure == "mu":
                mistake_rate = ndtr(-true_loss / 2)
            else:
                mistake_rate = (1 - self.delta) / (1 + math.exp(true_loss))
            bound = self.expected_bound(mistake_rate, mistake_rate, trials, confidence, events)
            return bound <= self.value

        if is_undetected(_MAX_LOSS):
            return None
        return bisect(is_undetected, self.value, _MAX_LOSS, midpoint)[1]


@dataclass(frozen=True)
class TestedClaim:
    """A claim that was attacked: it turns the counts of the attack into findings.

    Attributes:
        subject: what was attacked, in words.
        claim: what is claimed, in words.
        attack: what was done, in words.
        effort: how often it was done, in words.
        claimed: the claimed loss, with which bounds are compared.
        confidence: the probability with which bounds hold.
        events: how many events, or pairs of datasets, share the error probability.
        together: how many of the setting ``audit.trials`` make one trial; a sentence that asks
            for more trials counts in that setting.
    """

    __test__ = False  # keeps pytest from collecting it because of its name

    subject: str
    claim: str
    attack: str
    effort: str
    claimed: Claimed
    confidence: float
    events: int = 1
    together: int = 1

    def finding(self, outcome: Outcome, meaning: str, **facts: Any) -> Finding:
        """Return a finding about this claim.

        Args:
            outcome: whether the claim was contradicted.
            meaning: what was found, in words.
            facts: further fields of the finding.
        """
        return Finding(
            subject=self.subject,
            claim=self.claim,
            attack=self.attack,
            effort=self.effort,
            outcome=outcome,
            meaning=meaning,
            measure=self.claimed.measure,
            claimed=self.claimed.value,
            delta=self.claimed.shown_delta,
            confidence=self.confidence,
            **facts,
        )

    def judge(self, mistakes: Mistakes) -> Finding:
        """Return the verdict: a comparison of the claim with the rigorous lower bound.

        The claim is violated if the bound exceeds it. It is untested, and ``found`` is None, if it
        is not violated and there are too few trials to contradict it.
        """
        claimed = self.claimed
        trials = min(mistakes.trials_without, mistakes.trials_with)
        bound = claimed.bound(mistakes, self.confidence, self.events)
        needed = claimed.needed(self.confidence, self.events)
        if bound > claimed.value:
            outcome = Outcome.VIOLATED
        elif trials >= needed:
            outcome = Outcome.NOT_CONTRADICTED
        else:
            outcome = Outcome.UNTESTED
        noticed = claimed.noticed(trials, self.confidence, self.events)
        return self.finding(
            outcome,
            self._verdict_sentence(bound, outcome, mistakes, needed),
            found=None if outcome is Outcome.UNTESTED else bound,
            noticeable=power_sentence(claimed.measure, noticed, needed),
            estimator="Clopper-Pearson",
            noticed=noticed,
        )

    def _verdict_sentence(
        self, bound: float, outcome: Outcome, mistakes: Mistakes, needed: int
    ) -> str:
        """Return the verdict in words: the counts, the bound, and what it says of the claim.

        If the claim is untested, it says how many trials are needed, and which setting to raise.

        Args:
            bound: the lower bound on the loss.
            outcome: violated, stands or untested.
            mistakes: the counts from which the bound was computed.
            needed: the least number of trials on each side with which the claim can be
                contradicted.
        """
        claimed_value = self.claimed.value
        quantity = self.claimed.words
        confidence = 100 * self.confidence
        lower_bound = format_lower_bound(bound, claimed_value)
        trials_needed = _needed_trials_text(needed)
        counts = (
            f"the attack was wrong in {mistakes.alarms:,} of {mistakes.trials_without:,} trials "
            f"without the record and in {mistakes.misses:,} of {mistakes.trials_with:,} trials "
            f"with it. So {quantity} is at least {lower_bound}, with {confidence:.12g} % confidence"
        )
        if outcome is not Outcome.UNTESTED:
            verdict = verdict_words(outcome is Outcome.VIOLATED, f"value of {claimed_value:g}")
            return f"{counts}; {verdict}"
        too_few = (
            f"{counts}; the trials are too few to contradict the claimed value of "
            f"{claimed_value:g}, whatever their results: {trials_needed}"
        )
        if needed >= MOST_TRIALS:  # no number of trials helps
            return too_few
        if self.together > 1:
            return f"{too_few}. Set audit.trials={self.together * needed} or more"
        return f"{too_few}. Raise audit.trials (for `agt audit unlearning`, raise audit.releases)"


def verdict_words(violated: bool, claimed: str) -> str:
    """Return a clause that says whether a lower bound contradicts a claim.

    Args:
        violated: whether the bound exceeds the claim.
        claimed: the claimed value with its measure, such as "epsilon of 1".
    """
    if violated:
        return f"this bound exceeds the claimed {claimed}"
    return f"this bound does not contradict the claimed {claimed} (but does not prove it either)"


def power_sentence(measure: Measure, noticed: float | None, needed: int) -> str:
    """Return a sentence about which true losses an audit detects.

    Args:
        measure: the claim's measure.
        noticed: the least true loss that the best test detects in about half of all audits; None:
            none is detected.
        needed: the least number of trials on each side with which the claim can be contradicted.
    """
    if noticed is None:
        return f"this audit detects nothing: {_needed_trials_text(needed)}"
    detected = format_bound(noticed, up=True)
    return (
        "if the best attack makes false alarms and misses equally often, about half of all audits "
        f"detect a true {measure} of {detected}, and more than half detect a larger one. If one "
        f"kind of mistake is rare, only a larger {measure} is detected as often"
    )


def _needed_trials_text(needed: int) -> str:
    """Return a clause that says how many trials on each side can contradict a claim.

    Args:
        needed: the least number of trials on each side with which the claim can be contradicted.
    """
    if needed >= MOST_TRIALS:
        return "no feasible number of trials can contradict this claim"
    return f"at least {needed:,} trials with the record and as many without it are needed"
