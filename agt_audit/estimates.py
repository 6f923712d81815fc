"""From an attack's mistakes to a lower bound on the privacy loss, and to findings about a claim.

A false alarm is a trial without the record that the attack calls "in"; a miss is a trial with the
record that it calls "out". Their counts give a lower bound on epsilon, or on mu of a mechanism that
is mu-GDP. Both bounds are rigorous: each rate is replaced by its Clopper-Pearson upper limit.

Formal guarantees
    * With the confidence asked for, a bound is at most the true epsilon or mu, at any number of
      trials (Lemma 1 of docs/proofs/attack_bounds.md).
    * That holds for events that do not depend on the trials that are counted: an event is chosen
      on other trials (``choose_event``), or the error probability is shared among all events that
      were looked at (``events``; Lemma 2 of docs/proofs/attack_bounds.md).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.special import betainccinv, betaincinv, expit, logit, ndtr, ndtri

from agt.mechanisms.guarantees import ApproximateDP, GaussianDP, Guarantee
from agt.numeric import bisect, midpoint, whole_midpoint
from agt_cli.report.findings import Finding, Outcome, format_bound, format_lower_bound

MOST_TRIALS = 10**15  # the largest number of trials that is searched for or recommended
MAX_THRESHOLDS = 200  # thresholds among which an event is chosen
MAX_HALVINGS = 64  # events about multiples of 2^-h are tried for h below it
_MAX_LOSS = 100.0  # the largest epsilon, or mu, that bisections search for

Measure = Literal["epsilon", "mu"]


@dataclass(frozen=True)
class Mistakes:
    """Counts of an attack's mistakes, and of its trials.

    Attributes:
        alarms: false alarms, trials without the record that the attack calls "in".
        trials_without: how many trials without the record there were.
        misses: trials with the record that the attack calls "out".
        trials_with: how many trials with the record there were.

    Raises:
        ValueError: no trials, or more mistakes than trials.
    """

    alarms: int
    trials_without: int
    misses: int
    trials_with: int

    def __post_init__(self) -> None:
        alarms_possible = 0 <= self.alarms <= self.trials_without
        misses_possible = 0 <= self.misses <= self.trials_with
        both_sides_tried = self.trials_without and self.trials_with
        if not (alarms_possible and misses_possible and both_sides_tried):
            raise ValueError(
                f"the counts {self} are not possible: there must be at least 1 trial with and 1 "
                "without the record, and no more mistakes than trials"
            )

    @property
    def rate(self) -> float:
        """The rate of false alarms plus the rate of misses; 1 is that of random guessing."""
        return self.alarms / self.trials_without + self.misses / self.trials_with


# -- bounds
# --------------------------------------------------------------------------------------------------


def upper_limit(events: Any, trials: Any, error: float) -> Any:
    """Return the Clopper-Pearson upper limit of a rate, or of each of several.

    Args:
        events: how often the event happened: an integer, or an array of integers.
        trials: how many trials there were, in a shape that broadcasts with that of ``events``.
        error: the largest probability with which the limit is below the true rate.

    Returns:
        A number if both counts are numbers, otherwise an array. It is 1 where every trial is an
        event, so also where there are no trials.
    """
    # where every trial is an event, this is replaced by 1, but betainccinv needs a number above 0
    non_events = np.maximum(trials - events, 0.5)
    limits = np.where(events < trials, betainccinv(events + 1, non_events, error), 1.0)
    return limits[()]  # a number instead of an array without axes


def lower_limit(events: Any, trials: Any, error: float) -> Any:
    """Return the Clopper-Pearson lower limit of a rate, or of each of several.

    Arguments and shapes as of ``upper_limit``. The limit exceeds the true rate with probability
    ``error`` at most. It is 0 where there are no events, so also where there are no trials.
    """
    # where there are no events, this is replaced by 0, but betaincinv needs a number above 0
    positive_events = np.maximum(events, 0.5)
    limits = np.where(events > 0, betaincinv(positive_events, trials - events + 1, error), 0.0)
    return limits[()]


def epsilon_bound(mistakes: Mistakes, delta: float, confidence: float, events: int = 1) -> float:
    """Return the Clopper-Pearson lower bound on epsilon at ``delta``, at least 0.

    Args:
        mistakes: the counts of the attack.
        delta: at least 0 and below 1.
        confidence: the probability with which the bound holds.
        events: how many events were fixed beforehand and counted, of which this one is the best.
            The error probability ``1 - confidence`` is divided by it.
    """
    alpha, beta = _limits(mistakes, (1 - confidence) / events)
    # Lemma 1 of docs/proofs/attack_bounds.md: both inequalities, from the same two limits
    return max(0.0, _epsilon(alpha, beta, delta), _epsilon(beta, alpha, delta))


def mu_bound(mistakes: Mistakes, confidence: float, events: int = 1) -> float:
    """Return a Clopper-Pearson lower bound on mu of Gaussian differential privacy, at least 0.

    It can contradict a claim of mu-GDP, but not a claim of (eps, delta)-DP that was made without
    one. Arguments as of ``epsilon_bound``.
    """
    alpha, beta = _limits(mistakes, (1 - confidence) / events)
    if alpha >= 1 or beta >= 1:
        return 0.0
    return max(0.0, float(-ndtri(alpha) - ndtri(beta)))


def _limits(mistakes: Mistakes, error: float) -> tuple[float, float]:
    """Return (alpha, beta): upper limits of the rates of false alarms and of misses.

    Args:
        mistakes: the counts of the attack.
        error: the largest probability with which one of the limits is wrong; each has half of it.
    """
    alarm_rate = upper_limit(mistakes.alarms, mistakes.trials_without, error / 2)
    miss_rate = upper_limit(mistakes.misses, mistakes.trials_with, error / 2)
    return alarm_rate, miss_rate


def _epsilon(alpha: float, beta: float, delta: float) -> float:
    """Return ln((1 - delta - beta) / alpha); 0 if the numerator or alpha is not positive."""
    if 1 - delta - beta <= 0 or alpha <= 0:
        return 0.0
    return math.log((1 - delta - beta) / alpha)


# -- claims
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Claimed:
    """A claimed upper bound on the privacy loss, which an attack can contradict.

    Attributes:
        measure: the measure of the loss, epsilon or mu.
        value: the claimed bound.
        delta: of a claim of (epsilon, delta)-DP; 0 for pure DP, and for a mu.
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
        subject: what was attacked, as of ``Finding``.
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
            self.subject,
            self.claim,
            self.attack,
            self.effort,
            outcome,
            meaning,
            self.claimed.measure,
            self.claimed.value,
            self.claimed.shown_delta,
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
            needed: as of ``Claimed.needed``.
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
        noticed: as of ``Claimed.noticed``.
        needed: as of ``Claimed.needed``.
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
        needed: as of ``Claimed.needed``.
    """
    if needed >= MOST_TRIALS:
        return "no feasible number of trials can contradict this claim"
    return f"at least {needed:,} trials with the record and as many without it are needed"


# -- events
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Event:
    """A set of outputs; of an output in the set, an attack says that the record was there ("in").

    Attributes:
        clause: a clause that describes the set, such as "the released label is 1".
        holds: [n] outputs -> [n] bool, which of them are in the set.
    """

    clause: str
    holds: Callable[[np.ndarray], np.ndarray]

    def mistakes(self, first: np.ndarray, second: np.ndarray) -> Mistakes:
        """Count the mistakes of an attack that says "in" exactly where the event holds.

        Args:
            first: [n] outputs of the side with the record.
            second: [n] outputs of the side without it.
        """
        misses = int((~self.holds(first)).sum())
        alarms = int(self.holds(second).sum())
        return Mistakes(alarms, len(second), misses, len(first))


def label_event(labels: tuple[int, ...]) -> Event:
    """Return the event that the released label is one of these."""
    listed = ", ".join(map(str, labels))
    clause = f"the released label is {listed}"
    if len(labels) > 1:
        clause = f"the released label is one of {listed}"
    return Event(clause, lambda outputs: np.isin(outputs, labels))


def tail_event(threshold: float, above: bool) -> Event:
    """Return the event that the released number lies on one side of a threshold.

    The threshold itself counts as above.
    """
    comparison = "at least" if above else "below"
    clause = f"the released number is {comparison} {threshold:g}"
    return Event(clause, lambda outputs: (outputs >= threshold) == above)


def grain_event(halvings: int, finer: bool) -> Event:
    """Return the event that the released number is a multiple of 2^-halvings.

    How fine the last bits of floating-point noise are depends on the number that it is added to
    (Mironov 2012), so they may tell the two sides apart.

    Args:
        halvings: the negative exponent; 0 for whole numbers.
        finer: True for the opposite event: the number is not such a multiple. Infinite numbers
            and NaN are none.
    """

    def holds(outputs: np.ndarray) -> np.ndarray:
        # a number that overflows is treated as infinite: it is no multiple
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = np.ldexp(outputs.astype(np.float64), halvings)
            is_whole: np.ndarray = scaled == np.rint(scaled)
        return (is_whole & np.isfinite(scaled)) != finer

    negation = "not " if finer else ""
    return Event(f"the released number is {negation}a multiple of 2^-{halvings}", holds)


Outputs = Literal["labels", "released numbers", "scores"]
"""What is drawn from the two sides: labels; numbers exactly as they are released; or scores, which
the attacker computes. The last bits of scores come from that computation, so no event is about
them.
"""


def choose_event(
    first: np.ndarray, second: np.ndarray, claimed: Claimed, confidence: float, outputs: Outputs
) -> Event:
    """Return the event whose counts on these draws give the largest lower bound on the loss.

    Of events with equal bounds (all may be 0), it is the one with the smallest rate of mistakes.

    The event must be counted on other draws: on these, its bound does not hold (Lemma 2 of
    docs/proofs/attack_bounds.md).

    Args:
        first: [n] outputs of the side with the record.
        second: [n] outputs of the side without it.
        claimed: the claim, whose measure the bounds have.
        confidence: the probability with which each bound holds.
        outputs: what the outputs are, which decides which events are tried.
    """
    if outputs == "labels":
        events = _label_events(first, second)
    elif outputs == "released numbers":
        events = _number_events(np.concatenate([first, second]))
    else:
        events = _tail_events(np.concatenate([first, second]))

    def strength(event: Event) -> tuple[float, float]:
        mistakes = event.mistakes(first, second)
        return claimed.bound(mistakes, confidence), -mistakes.rate

    return max(events, key=strength)


def _label_events(first: np.ndarray, second: np.ndarray) -> list[Event]:
    """Return events about labels, among them the most powerful tests (Neyman and Pearson).

    For every factor, one event is that the label is more frequent on the first side than on the
    second by more than that factor; another is its complement.

    Args:
        first: [n] labels of one side.
        second: [n] labels of the other side.
    """
    labels = np.unique(np.concatenate([first, second]))
    # half a count is added, so that no ratio is 0 or infinite
    first_counts = np.array([(first == label).sum() for label in labels]) + 0.5
    second_counts = np.array([(second == label).sum() for label in labels]) + 0.5
    likeliest_first = labels[np.argsort(-(first_counts / second_counts), kind="stable")].tolist()
    events = []
    # a single label is an event too, whose complement is empty
    for count in range(1, max(len(likeliest_first), 2)):
        for part in (likeliest_first[:count], likeliest_first[count:]):
            if part:
                events.append(label_event(tuple(sorted(part))))
    return events


def _number_events(outputs: np.ndarray) -> list[Event]:
    """Return events about released numbers: thresholds, and multiples of powers of 2.

    The latter are left out if all numbers are whole.

    Args:
        outputs: [n] released numbers of both sides.
    """
    events = _tail_events(outputs)
    if (outputs == np.rint(outputs)).all():
        return events
    for halvings in range(MAX_HALVINGS):
        events += [grain_event(halvings, finer=False), grain_event(halvings, finer=True)]
    return events


def _tail_events(outputs: np.ndarray) -> list[Event]:
    """Return the two events of each threshold: above it, and below it.

    Thresholds are the distinct outputs, or ``MAX_THRESHOLDS`` quantiles if there are more.

    Args:
        outputs: [n] numbers or scores of both sides.
    """
    thresholds = np.unique(outputs)
    if len(thresholds) > MAX_THRESHOLDS:
        thresholds = np.unique(np.quantile(outputs, np.linspace(0, 1, MAX_THRESHOLDS)))
    events = []
    for threshold in thresholds:
        events += [tail_event(float(threshold), above) for above in (True, False)]
    return events


# -- what a privacy loss allows an attacker who guesses
# --------------------------------------------------------------------------------------------------


def advantage(eps: float, delta: float = 0.0) -> float:
    """Return the largest advantage, TPR - FPR, that any test can have under (eps, delta)-DP.

    It is (e^eps - 1 + 2 delta)/(e^eps + 1) (Lemma 5 of docs/proofs/attack_bounds.md).
    """
    return min(1.0, math.tanh(eps / 2) + 2 * delta * float(expit(-eps)))


def gaussian_advantage(mu: float) -> float:
    """Return the largest advantage, TPR - FPR, of any test under mu-GDP: 2 Phi(mu/2) - 1."""
    return float(2 * ndtr(mu / 2) - 1)


def posterior(prior: float, eps: float) -> float:
    """Return the largest posterior probability of a guess after a release with loss ``eps``.

    It is e^eps p/(e^eps p + 1 - p) (Lemma 6 of docs/proofs/attack_bounds.md).

    Args:
        prior: p, the probability that the attacker gave to the guess before; in (0, 1).
        eps: the privacy loss of the release, pure epsilon-DP.
    """
    return float(expit(logit(prior) + eps))
