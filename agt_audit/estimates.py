"""From an attack's mistakes to a lower bound on the privacy loss, and to what is said of a claim.

A false alarm is a trial without the record that the attack calls "in"; a miss is a trial with the
record that it calls "out". Four estimates are computed from their counts:

| estimate        | of      | what it means                                                        |
|-----------------|---------|----------------------------------------------------------------------|
| Clopper-Pearson | epsilon | confident: exceeds the truth at most as often as was asked for       |
| Katz-log        | epsilon | asymptotic: so in the limit of many trials                           |
| Bayesian        | epsilon | credible: a quantile under Jeffreys' prior; no confidence bound      |
| Gaussian DP     | mu      | confident, of the mu of a mechanism that is mu-GDP; contradicts such |
|                 |         | a claim only                                                         |

Formal guarantees
    * With the confidence asked for, a confident bound is at most the true epsilon or mu, at any
      number of trials (Lemma 1 of docs/proofs/attack_bounds.md).
    * That holds for events that do not depend on the trials that are counted: an event is chosen
      on other trials (``choose_event``), or the error probability is shared among all events that
      were looked at (``events``; Lemma 2 of docs/proofs/attack_bounds.md).
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.special import betaincc, betainccinv, betaincinv, expit, logit, ndtr, ndtri

from agt.mechanisms.guarantees import ApproximateDP, GaussianDP, Guarantee
from agt.numeric import bisect, midpoint, whole_midpoint
from agt_cli.report.findings import Estimate, Finding, Outcome, Strength, least, number

# of the posterior of beta; more change epsilon by less than 0.002, at confidence .999999 too
NODES = 256
MOST_TRIALS = 10**15  # what is looked for when trials are too few
MAX_THRESHOLDS = 200  # of numbers that are looked at on the draws that choose
MAX_HALVINGS = 64  # of 1, to the finest grain of released numbers that is looked at
SHOWN_DELTA = 1e-5  # at which epsilon is shown beside a claimed mu
MEANS = {
    Strength.CONFIDENT: (
        "This bound is rigorous: it comes from the false alarms and misses of the same trials"
    ),
    Strength.ASYMPTOTIC: (
        "This bound is valid only as the number of trials goes to infinity, so it cannot "
        "contradict the claim"
    ),
    Strength.CREDIBLE: (
        "This is a Bayesian credible bound under Jeffreys' prior, so it cannot contradict the claim"
    ),
}
_TAIL = 8.0  # of a normal law; what lies beyond is less than 10^-14
_LARGEST = 100.0  # epsilon and mu that are told apart

Measure = Literal["epsilon", "mu"]


@dataclass(frozen=True)
class Mistakes:
    """How often an attack was wrong.

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
        """The rate of false alarms plus the rate of misses; 1 if the attack guesses blindly."""
        return self.alarms / self.trials_without + self.misses / self.trials_with


# -- bounds
# --------------------------------------------------------------------------------------------------


def upper_limit(events: Any, trials: Any, error: float) -> Any:
    """Return the Clopper-Pearson upper limit of a rate, or of each of many.

    Args:
        events: how often the event happened: a number or an array.
        trials: of how many trials.
        error: the probability with which the limit is below the true rate.

    Returns:
        The limit, in the shape of the counts; 1 where there are no trials.
    """
    # where all trials are events, the limit is 1; the other counts are kept away from 0
    others = np.maximum(trials - events, 0.5)
    limits = np.where(events < trials, betainccinv(events + 1, others, error), 1.0)
    return limits[()]  # a number for a number


def lower_limit(events: Any, trials: Any, error: float) -> Any:
    """Return the Clopper-Pearson lower limit of a rate; 0 where there are no trials.

    Arguments as of ``upper_limit``; the limit is above the true rate with probability ``error``.
    """
    some_events = np.maximum(events, 0.5)
    limits = np.where(events > 0, betaincinv(some_events, trials - events + 1, error), 0.0)
    return limits[()]


def epsilon_bound(mistakes: Mistakes, delta: float, confidence: float, events: int = 1) -> float:
    """Return a lower bound on epsilon at ``delta``; 0 if the mistakes show nothing.

    Args:
        mistakes: the counts of the attack.
        delta: at least 0 and below 1.
        confidence: the probability with which the bound holds.
        events: how many events were looked at before the best was taken: the error probability is
            shared among them.
    """
    alpha, beta = _limits(mistakes, (1 - confidence) / events)
    # Lemma 1 of docs/proofs/attack_bounds.md: both inequalities, from the same two limits
    return max(0.0, _epsilon(alpha, beta, delta), _epsilon(beta, alpha, delta))


def mu_bound(mistakes: Mistakes, confidence: float, events: int = 1) -> float:
    """Return a lower bound on mu of Gaussian differential privacy; 0 if nothing is shown.

    It contradicts only the claim that a mechanism is mu-GDP, and no (eps, delta) that was not
    derived from a mu. Arguments as of ``epsilon_bound``.
    """
    alpha, beta = _limits(mistakes, (1 - confidence) / events)
    if alpha >= 1 or beta >= 1:
        return 0.0
    return max(0.0, float(-ndtri(alpha) - ndtri(beta)))


def katz_bound(mistakes: Mistakes, delta: float, confidence: float, events: int = 1) -> float:
    """Return the Katz-log lower bound on epsilon, which is asymptotic.

    Where a count is 0, the bound of Clopper and Pearson takes its place. Arguments as of
    ``epsilon_bound``.
    """
    error = (1 - confidence) / events
    alpha, beta = _limits(mistakes, error)
    false_positives = (mistakes.alarms, mistakes.trials_without)
    true_positives = (mistakes.trials_with - mistakes.misses, mistakes.trials_with)
    false_negatives = (mistakes.misses, mistakes.trials_with)
    true_negatives = (mistakes.trials_without - mistakes.alarms, mistakes.trials_without)
    # Lemma 3 of docs/proofs/attack_bounds.md: two inequalities, each at half the error
    of_positives = _katz(
        true_positives, false_positives, delta, error / 2, _epsilon(alpha, beta, delta)
    )
    of_negatives = _katz(
        true_negatives, false_negatives, delta, error / 2, _epsilon(beta, alpha, delta)
    )
    return max(0.0, of_positives, of_negatives)


def posterior_bound(mistakes: Mistakes, delta: float, confidence: float, events: int = 1) -> float:
    """Return the number that the posterior of epsilon exceeds with probability ``confidence``.

    It is credible, not confident. Arguments as of ``epsilon_bound``.
    """
    error = (1 - confidence) / events
    # Lemma 4 of docs/proofs/attack_bounds.md: an integral over beta, as a sum over ``NODES`` parts
    edges = np.linspace(-_TAIL, _TAIL, NODES + 1)
    part_probability = np.diff(ndtr(edges))
    part_quantile = ndtr((edges[1:] + edges[:-1]) / 2)
    beta = betaincinv(
        0.5 + mistakes.misses, 0.5 + mistakes.trials_with - mistakes.misses, part_quantile
    )
    alarms = 0.5 + mistakes.alarms
    no_alarms = 0.5 + mistakes.trials_without - mistakes.alarms

    def is_below(epsilon: float) -> bool:
        """Return whether the true epsilon is at most this with a probability of at most error."""
        from_first = math.exp(-epsilon) * (1 - delta - beta)
        from_second = 1 - delta - math.exp(epsilon) * beta
        least_alpha = np.clip(np.maximum(from_first, from_second), 0, 1)
        probability = float(betaincc(alarms, no_alarms, least_alpha) @ part_probability)
        return probability <= error

    if not is_below(0.0):
        return 0.0
    return bisect(is_below, 0.0, _LARGEST, midpoint)[0]


def estimates(
    mistakes: Mistakes, delta: float, confidence: float, events: int = 1
) -> tuple[Estimate, ...]:
    """Return all four estimates; the first and the last are rigorous.

    Arguments as of ``epsilon_bound``.
    """
    rigorous = epsilon_bound(mistakes, delta, confidence, events)
    asymptotic = katz_bound(mistakes, delta, confidence, events)
    credible = posterior_bound(mistakes, delta, confidence, events)
    mu = mu_bound(mistakes, confidence, events)
    return (
        Estimate("Clopper-Pearson", "epsilon", rigorous, Strength.CONFIDENT),
        Estimate("Katz-log", "epsilon", asymptotic, Strength.ASYMPTOTIC),
        Estimate("Bayesian (Jeffreys)", "epsilon", credible, Strength.CREDIBLE),
        Estimate("Gaussian DP", "mu", mu, Strength.CONFIDENT),
    )


def _limits(mistakes: Mistakes, error: float) -> tuple[float, float]:
    """Return upper limits of the rates of false alarms and misses, each at half the error."""
    alarm_rate = upper_limit(mistakes.alarms, mistakes.trials_without, error / 2)
    miss_rate = upper_limit(mistakes.misses, mistakes.trials_with, error / 2)
    return alarm_rate, miss_rate


def _epsilon(alpha: float, beta: float, delta: float) -> float:
    """Return ln((1 - delta - beta) / alpha), and 0 where that is no number."""
    if 1 - delta - beta <= 0 or alpha <= 0:
        return 0.0
    return math.log((1 - delta - beta) / alpha)


def _katz(
    hits: tuple[int, int], alarms: tuple[int, int], delta: float, error: float, instead: float
) -> float:
    """Return the Katz-log lower bound on ln((p1 - delta) / p2) of two independent rates.

    Args:
        hits: (n1, N1), events and trials of the side with the rate p1.
        alarms: (n2, N2), events and trials of the side with the rate p2.
        delta: what is subtracted from p1.
        error: the probability with which the bound is too large, in the limit.
        instead: what is returned where a count is 0.
    """
    hit_count, hit_trials = hits
    alarm_count, alarm_trials = alarms
    if not hit_count or not alarm_count:
        return instead
    p1 = hit_count / hit_trials
    p2 = alarm_count / alarm_trials
    if p1 <= delta:
        return 0.0
    variance = p1 * (1 - p1) / (hit_trials * (p1 - delta) ** 2) + (1 - p2) / (alarm_trials * p2)
    return math.log((p1 - delta) / p2) + float(ndtri(error)) * math.sqrt(variance)


# -- claims
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Claimed:
    """A claimed privacy loss that mistakes of an attack can contradict.

    Attributes:
        measure: what is claimed, epsilon or mu.
        value: the loss is at most this.
        delta: beside a claimed epsilon; 0 for pure differential privacy.
    """

    measure: Measure
    value: float
    delta: float = 0.0

    @classmethod
    def of(cls, guarantee: Guarantee) -> "Claimed":
        """Return what a guarantee claims: its mu, or its epsilon with its delta."""
        if isinstance(guarantee, GaussianDP):
            return cls("mu", guarantee.mu)
        delta = guarantee.delta if isinstance(guarantee, ApproximateDP) else 0.0
        return cls("epsilon", guarantee.eps, delta)

    @property
    def shown_delta(self) -> float | None:
        """The delta that a finding shows; None beside a mu."""
        return None if self.measure == "mu" else self.delta

    @property
    def words(self) -> str:
        """The measure, with its delta if there is one."""
        return f"{self.measure} at delta {self.delta:g}" if self.delta else self.measure

    def bound(self, mistakes: Mistakes, confidence: float, events: int = 1) -> float:
        """Return the rigorous lower bound on the loss, against which the claim is held.

        Args:
            mistakes: the counts of the attack; any number of trials will do.
            confidence: the probability with which the bound holds.
            events: how many events share the error probability.
        """
        if self.measure == "mu":
            return mu_bound(mistakes, confidence, events)
        return epsilon_bound(mistakes, self.delta, confidence, events)

    def needed(self, confidence: float, events: int = 1) -> int:
        """Return how many trials a side it takes to contradict the claim at best.

        After so many, an attack that is never wrong shows more than what is claimed; fewer cannot
        contradict the claim, whatever they count. Arguments as of ``bound``.

        Returns:
            The least such number; ``MOST_TRIALS`` stands for that and more.
        """

        def too_few(trials: int) -> bool:
            no_mistakes = Mistakes(0, trials, 0, trials)
            return self.bound(no_mistakes, confidence, events) <= self.value

        if too_few(MOST_TRIALS):
            return MOST_TRIALS
        return bisect(too_few, 0, MOST_TRIALS, whole_midpoint)[1]

    def noticed(self, trials: int, confidence: float, events: int = 1) -> float | None:
        """Return the least true loss that the best test detects in about half of all audits.

        It is computed from the counts that are to be expected of the best test that is wrong
        equally often on both sides.

        Args:
            trials: how many there are on each side.
            confidence: the probability with which bounds hold.
            events: how many events share the error probability.

        Returns:
            The loss, in the claim's measure; None: none up to 100, because the trials are too few.
        """

        def is_hidden(true: float) -> bool:
            # both mistakes are equally likely: of N(0, 1) and N(mu, 1), or of randomized response
            if self.measure == "mu":
                mistake_rate = ndtr(-true / 2)
            else:
                mistake_rate = (1 - self.delta) / (1 + math.exp(true))
            count = math.ceil(trials * mistake_rate)
            expected = Mistakes(count, trials, count, trials)
            return self.bound(expected, confidence, events) <= self.value

        if is_hidden(_LARGEST):
            return None
        return bisect(is_hidden, self.value, _LARGEST, midpoint)[1]


@dataclass(frozen=True)
class TestedClaim:
    """What was attacked, and how: it turns the counts of an attack into findings about a claim.

    Attributes:
        subject: what was attacked, as of ``Finding``.
        claim: what is claimed, in words.
        attack: what was done.
        effort: how much of it was done.
        claimed: what the counts are held against.
        confidence: of the bound.
        events: how many events, or pairs, share the error probability.
        together: how many of ``audit.trials`` make one trial.
    """

    __test__ = False  # no test, whatever its name begins with

    subject: str
    claim: str
    attack: str
    effort: str
    claimed: Claimed
    confidence: float
    events: int = 1
    together: int = 1

    def finding(self, outcome: Outcome, meaning: str, **facts: object) -> Finding:
        """Return a finding about this claim.

        Args:
            outcome: what became of the claim.
            meaning: what was found, in words.
            facts: further fields of the finding, which replace those of the claim.
        """
        fields: dict[str, object] = {
            "measure": self.claimed.measure,
            "confidence": self.confidence,
            "claimed": self.claimed.value,
            "delta": self.claimed.shown_delta,
            **facts,
        }
        about = (self.subject, self.claim, self.attack, self.effort)
        return Finding(*about, outcome, meaning, **fields)  # type: ignore[arg-type]

    def findings(self, mistakes: Mistakes) -> tuple[Finding, ...]:
        """Return the verdict, which rests on the rigorous bound in the claim's own measure.

        The other estimates of the same counts follow, unless there are too few trials for a
        verdict.
        """
        verdict = self.judge(mistakes)
        if verdict.found is None:
            return (verdict,)
        return (verdict, *self._others(mistakes))

    def _others(self, mistakes: Mistakes) -> Iterator[Finding]:
        """Yield a finding for each estimate that is not the verdict."""
        delta = SHOWN_DELTA if self.claimed.measure == "mu" else self.claimed.delta
        for estimate in estimates(mistakes, delta, self.confidence, self.events):
            in_claimed_measure = estimate.measure == self.claimed.measure
            if in_claimed_measure and estimate.strength is Strength.CONFIDENT:
                continue  # that is the verdict
            is_epsilon = estimate.measure == "epsilon"
            quantity = f"epsilon at delta {delta:g}" if is_epsilon and delta else estimate.measure
            bound = least(estimate.found)
            reliability = MEANS[estimate.strength]
            yield self.finding(
                Outcome.REPORTED,
                f"{estimate.estimator}: {quantity} is at least {bound}. {reliability}",
                measure=estimate.measure,
                found=estimate.found,
                strength=estimate.strength,
                estimator=estimate.estimator,
                claimed=self.claimed.value if in_claimed_measure else None,
                delta=delta if is_epsilon else None,
            )

    def judge(self, mistakes: Mistakes) -> Finding:
        """Return the verdict: the rigorous lower bound held against the claim."""
        claimed = self.claimed
        trials = min(mistakes.trials_without, mistakes.trials_with)
        bound = claimed.bound(mistakes, self.confidence, self.events)
        needed = claimed.needed(self.confidence, self.events)
        if bound > claimed.value:
            outcome = Outcome.VIOLATED
        elif trials >= needed:
            outcome = Outcome.STANDS
        else:
            outcome = Outcome.UNTESTED
        noticed = claimed.noticed(trials, self.confidence, self.events)
        return self.finding(
            outcome,
            self._meaning(bound, outcome, mistakes, needed),
            found=None if outcome is Outcome.UNTESTED else bound,
            noticeable=_noticeable(claimed.measure, noticed, needed),
            estimator="Clopper-Pearson",
            noticed=noticed,
        )

    def _meaning(self, bound: float, outcome: Outcome, mistakes: Mistakes, needed: int) -> str:
        """Return the verdict in words.

        Args:
            bound: the lower bound on the loss.
            outcome: what became of the claim.
            mistakes: the counts behind the bound.
            needed: the least number of trials a side that can contradict the claim.
        """
        claimed_value = self.claimed.value
        quantity = self.claimed.words
        confidence = 100 * self.confidence
        lower_bound = least(bound, claimed_value)
        trials_needed = _enough(needed)
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
    """Return what a lower bound says of a claim, in words.

    Args:
        claimed: what is claimed, such as "epsilon of 1".
    """
    if violated:
        return f"this bound exceeds the claimed {claimed}"
    return f"this bound does not contradict the claimed {claimed} (but does not prove it either)"


def _noticeable(measure: Measure, noticed: float | None, needed: int) -> str:
    """Return what an audit detects, in words.

    Args:
        measure: of the claim.
        noticed: the least true loss that is detected in half of all audits; None: none is.
        needed: the least number of trials a side that can contradict the claim.
    """
    if noticed is None:
        return f"this audit detects nothing: {_enough(needed)}"
    detected = number(noticed, up=True)
    return (
        "if the best attack makes false alarms and misses equally often, about half of all audits "
        f"detect a true {measure} of {detected}, and more than half detect a larger one. If one "
        f"kind of mistake is rare, only a larger {measure} is detected as often"
    )


def _enough(needed: int) -> str:
    """Return in words how many trials a side it takes to contradict a claim."""
    if needed >= MOST_TRIALS:
        return "no feasible number of trials can contradict this claim"
    return f"at least {needed:,} trials with the record and as many without it are needed"


# -- events
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Event:
    """A set of outputs that an attack calls "in".

    Attributes:
        words: what the set is.
        holds: [n] outputs -> [n] bool, which of them are in the set.
    """

    words: str
    holds: Callable[[np.ndarray], np.ndarray]

    def mistakes(self, first: np.ndarray, second: np.ndarray) -> Mistakes:
        """Count the mistakes of calling an output the first side's where the event holds.

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
    words = f"the released label is {listed}"
    if len(labels) > 1:
        words = f"the released label is one of {listed}"
    return Event(words, lambda outputs: np.isin(outputs, labels))


def tail_event(threshold: float, above: bool) -> Event:
    """Return the event that the released number lies on one side of a threshold.

    The threshold itself counts as above.
    """
    comparison = "at least" if above else "below"
    words = f"the released number is {comparison} {threshold:g}"
    return Event(words, lambda outputs: (outputs >= threshold) == above)


def grain_event(halvings: int, finer: bool) -> Event:
    """Return the event that the released number is a multiple of 2^-halvings.

    How fine the last bits of floating-point noise are depends on the number that it is added to
    (Mironov 2012), so they may tell the two sides apart.

    Args:
        halvings: how often 1 is halved.
        finer: True for the opposite event: the number is no such multiple.
    """

    def holds(outputs: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore", invalid="ignore"):  # infinite: no multiple
            scaled = np.ldexp(outputs.astype(np.float64), halvings)
            is_whole: np.ndarray = scaled == np.rint(scaled)
        return (is_whole & np.isfinite(scaled)) != finer

    negation = "not " if finer else ""
    return Event(f"the released number is {negation}a multiple of 2^-{halvings}", holds)


Outputs = Literal["labels", "released numbers", "scores"]
"""What is drawn of two sides: labels; numbers exactly as they are released; or scores, which the
attacker computes, and whose last bits therefore tell nothing about what is released.
"""


def choose_event(
    first: np.ndarray, second: np.ndarray, claimed: Claimed, confidence: float, outputs: Outputs
) -> Event:
    """Return the event that tells the draws of two sides apart best.

    It must be counted on other draws (Lemma 2 of docs/proofs/attack_bounds.md). Of events that
    tell as much, which may be nothing, it is the one that is wrong least often.

    Args:
        first: [n] outputs of one side.
        second: [n] outputs of the other side.
        claimed: the claim, which says in which measure they are told apart.
        confidence: of each bound.
        outputs: what is drawn.
    """
    if outputs == "labels":
        events = _label_events(first, second)
    elif outputs == "released numbers":
        events = _number_events(np.concatenate([first, second]))
    else:
        events = _tails(np.concatenate([first, second]))

    def strength(event: Event) -> tuple[float, float]:
        mistakes = event.mistakes(first, second)
        return claimed.bound(mistakes, confidence), -mistakes.rate

    return max(events, key=strength)


def _label_events(first: np.ndarray, second: np.ndarray) -> list[Event]:
    """Return events about labels, among them the best tests there are (Neyman and Pearson).

    These are the labels that are likelier on the first side than on the second by more than some
    factor, for every factor; and their complements.

    Args:
        first: [n] labels of one side.
        second: [n] labels of the other side.
    """
    labels = np.unique(np.concatenate([first, second]))
    # half a count more, so that no ratio is 0 or infinite
    first_counts = np.array([(first == label).sum() for label in labels]) + 0.5
    second_counts = np.array([(second == label).sum() for label in labels]) + 0.5
    likeliest_first = labels[np.argsort(-(first_counts / second_counts), kind="stable")].tolist()
    events = []
    for cut in range(1, max(len(likeliest_first), 2)):
        for part in (likeliest_first[:cut], likeliest_first[cut:]):
            if part:
                events.append(label_event(tuple(sorted(part))))
    return events


def _number_events(outputs: np.ndarray) -> list[Event]:
    """Return events about released numbers [n]: thresholds, and how fine their last bits are.

    Numbers that are all whole have no fine bits.
    """
    if (outputs == np.rint(outputs)).all():
        return _tails(outputs)
    events = _tails(outputs)
    for halvings in range(MAX_HALVINGS):
        events += [grain_event(halvings, finer=False), grain_event(halvings, finer=True)]
    return events


def _tails(outputs: np.ndarray) -> list[Event]:
    """Return both sides of thresholds at the outputs [n], or at quantiles if these are many."""
    thresholds = np.unique(outputs)
    if len(thresholds) > MAX_THRESHOLDS:
        thresholds = np.unique(np.quantile(outputs, np.linspace(0, 1, MAX_THRESHOLDS)))
    events = []
    for threshold in thresholds:
        events += [tail_event(float(threshold), above) for above in (True, False)]
    return events


# -- what a loss means to somebody who guesses
# -------------------------------------------------------------------------


def advantage(eps: float, delta: float = 0.0) -> float:
    """Return the most that TPR - FPR of a test can be under (eps, delta)-DP.

    It is (e^eps - 1 + 2 delta)/(e^eps + 1) (Lemma 5 of docs/proofs/attack_bounds.md).
    """
    return min(1.0, math.tanh(eps / 2) + 2 * delta * float(expit(-eps)))


def gaussian_advantage(mu: float) -> float:
    """Return the most that TPR - FPR of a test can be under mu-GDP: 2 Phi(mu/2) - 1."""
    return float(2 * ndtr(mu / 2) - 1)


def posterior(prior: float, eps: float) -> float:
    """Return how sure an answer of loss ``eps`` can make an attacker who was sure to ``prior``.

    It is e^eps p/(e^eps p + 1 - p) (Lemma 6 of docs/proofs/attack_bounds.md).

    Args:
        prior: in (0, 1).
        eps: the loss, in natural logarithms.
    """
    return float(expit(logit(prior) + eps))
