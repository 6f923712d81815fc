"""From an attack's mistakes to a lower bound on the privacy loss, and to what is said of a claim
(reference.md section 8).

| estimate        | of      | what it means                                                        |
|-----------------|---------|----------------------------------------------------------------------|
| Clopper-Pearson | epsilon | confident: it exceeds the truth at most as often as was asked for,   |
|                 |         | at any number                                                        |
| Katz-log        | epsilon | asymptotic: so in the limit of many trials, and off where a count is |
|                 |         | small                                                                |
| Bayesian        | epsilon | credible: a quantile of what Jeffreys' prior makes of the counts; no |
|                 |         | confidence bound                                                     |
| Gaussian DP     | mu      | confident, of the mu of a mechanism that is mu-GDP; it contradicts   |
|                 |         | such a claim alone                                                   |

Formal guarantees
    A false alarm is a trial on the side without the record that the attack calls "in"; a miss is
    one on the side with it that it calls "out". With alpha, beta their rates, (eps, delta)-DP means
    alpha + e^eps beta >= 1 - delta and e^eps alpha + beta >= 1 - delta for every test (Kairouz et
    al. 2015), and mu-GDP means Phi^-1(1 - alpha) - Phi^-1(beta) <= mu (Dong et al. 2022). Each rate
    is replaced by its upper Clopper-Pearson limit, at half the error probability each, so that both
    hold together with the confidence asked for, at any number of trials.
    The limits are of one side: a bound from below on epsilon and mu needs no lower limits. Both
    numbers fall as either rate grows, so the upper limits' are at most the true rates' wherever
    both limits hold. The greater of the two inequalities costs nothing more: both follow from the
    same two limits.
    Events are fixed before trials are drawn: a threshold that was chosen on the same trials needs a
    correction, which is ``events``, the error probability shared among all that were looked at; or
    other trials to choose on (``chosen``). Katz-log. For one inequality, p1 = 1 - beta and p2 =
    alpha are rates of independent counts n1 of N1 and n2 of N2: true positives and false positives;
    for the other, true and false negatives. By the delta method the logarithm of (p1 - delta)/p2 is
    asymptotically normal with variance p1 (1 - p1)/(N1 (p1 - delta)^2) + (1 - p2)/(N2 p2), which
    for delta = 0 is Katz's 1/n1 - 1/N1 + 1/n2 - 1/N2. Two inequalities, each at half the error
    probability.
    Bayesian. With independent posteriors alpha ~ Beta(.5 + n, .5 + N - n), beta likewise, eps is at
    most x where alpha >= max(e^-x (1 - delta - beta), 1 - delta - e^x beta): the probability of
    that is an integral over beta, here a sum over ``NODES`` parts between quantiles that are those
    of a normal law at even steps, so that both tails are seen. Deterministic.

    Events. A bound is about an event that does not depend on the draws that are counted. ``chosen``
    picks one on draws of its own (a split), and costs no confidence: given those, the event is
    fixed, and the others are independent of them. Whoever lists events that no draw decides and
    takes the best of them shares the error probability among all, by Bonferroni's inequality
    (``events``).

    What a loss means to somebody who guesses. Two neighbouring datasets, one with the record and
    one without; a test calls "used" with probability t where it was, and with probability f where
    it was not.

    advantage. (eps, delta)-DP of both orders says t <= e^eps f + delta, and 1 - f <= e^eps (1 - t)
    + delta of the other answer. Added, (1 + e^eps)(t - f) <= e^eps - 1 + 2 delta. The mechanism
    that tells all with probability delta and else is randomized response reaches it: t - f = delta
    + (1 - delta)(e^eps - 1)/(e^eps + 1).

    gaussian_advantage. mu-GDP says Phi^-1(t) - Phi^-1(f) <= mu, and t - f is largest where the
    threshold lies in the middle: 2 Phi(mu/2) - 1 (Dong et al. 2022), which the Gaussian mechanism
    itself reaches.

    posterior. Of pure eps, Bayes' rule multiplies the odds of any answer, or of any set of answers,
    by at most e^eps. For delta > 0 the pair of output distributions is a function of one that tells
    the truth with probability delta and else has loss eps (Kairouz et al. 2015): but for an event
    of that probability, the same holds. In the other direction: if (eps, delta)-DP is violated by a
    test, then t > e^eps f + delta or 1 - f > e^eps (1 - t) + delta, so one of its two answers
    multiplies the odds by more than e^eps, whatever delta is: somebody was seen to become that
    sure.

How this differs from the sources. Lecture 004 writes Katz's interval for p1/p2 without its
logarithm, and takes false positives and true negatives for its counts, which are of one side and
whose ratio bounds no epsilon; it is two-sided and of one inequality, where both are used; and it
has no delta. Its mu has the lower limit of beta where the upper one belongs: with the lower, mu
would be overstated. reference.md section 8 has it right.
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
        alarms, without: false alarms, of so many trials without the record.
        misses, having: misses, of so many trials with it.

    Raises:
        ValueError: no trials, or more mistakes than trials.
    """

    alarms: int
    without: int
    misses: int
    having: int

    def __post_init__(self) -> None:
        if not (
            0 <= self.alarms <= self.without
            and 0 <= self.misses <= self.having
            and self.without
            and self.having
        ):
            raise ValueError(
                f"the counts {self} are not possible: there must be at least 1 trial with and 1 "
                "without the record, and no more mistakes than trials"
            )

    @property
    def rate(self) -> float:
        """The sum of both sides' shares of mistakes; 1 of who guesses."""
        return self.alarms / self.without + self.misses / self.having


# -- bounds
# --------------------------------------------------------------------------------------------------


def upper_limit(events: Any, trials: Any, error: float) -> Any:
    """The Clopper-Pearson upper limit of a rate, or of each of many: above the true one but with
    probability ``error``; of no trials 1.
    """
    return np.where(
        events < trials, betainccinv(events + 1, np.maximum(trials - events, 0.5), error), 1.0
    )[()]


def lower_limit(events: Any, trials: Any, error: float) -> Any:
    """The Clopper-Pearson lower limit, likewise; of no trials 0."""
    return np.where(
        events > 0, betaincinv(np.maximum(events, 0.5), trials - events + 1, error), 0.0
    )[()]


def epsilon_bound(mistakes: Mistakes, delta: float, confidence: float, events: int = 1) -> float:
    """A lower bound on epsilon at ``delta``; 0 where nothing is shown.

    Args:
        confidence: that the bound holds.
        events: how many were looked at before the best was taken: the error probability is shared
            among them.
    """
    alpha, beta = _limits(mistakes, (1 - confidence) / events)
    return max(0.0, _epsilon(alpha, beta, delta), _epsilon(beta, alpha, delta))


def mu_bound(mistakes: Mistakes, confidence: float, events: int = 1) -> float:
    """A lower bound on mu of Gaussian differential privacy; 0 where nothing is shown. It says
    nothing of an (eps, delta) that was not derived from a mu: only of the claim that the mechanism
    is mu-GDP.
    """
    alpha, beta = _limits(mistakes, (1 - confidence) / events)
    return max(0.0, float(-ndtri(alpha) - ndtri(beta))) if alpha < 1 and beta < 1 else 0.0


def katz_bound(mistakes: Mistakes, delta: float, confidence: float, events: int = 1) -> float:
    """The Katz-log lower bound on epsilon, asymptotic; where a count is 0, Clopper-Pearson's.

    Arguments as above.
    """
    error, m = (1 - confidence) / events, mistakes
    alpha, beta = _limits(mistakes, error)
    hits, rejected = (m.having - m.misses, m.having), (m.without - m.alarms, m.without)
    one = _katz(hits, (m.alarms, m.without), delta, error / 2, _epsilon(alpha, beta, delta))
    return max(
        0.0,
        one,
        _katz(rejected, (m.misses, m.having), delta, error / 2, _epsilon(beta, alpha, delta)),
    )


def posterior_bound(mistakes: Mistakes, delta: float, confidence: float, events: int = 1) -> float:
    """What epsilon's posterior exceeds with probability ``confidence``: credible.

    Arguments as above.
    """
    error, steps = (1 - confidence) / events, np.linspace(-_TAIL, _TAIL, NODES + 1)
    weight, part = np.diff(ndtr(steps)), ndtr((steps[1:] + steps[:-1]) / 2)
    beta = betaincinv(0.5 + mistakes.misses, 0.5 + mistakes.having - mistakes.misses, part)
    alarms, rest = 0.5 + mistakes.alarms, 0.5 + mistakes.without - mistakes.alarms

    def below(x: float) -> bool:
        """Whether epsilon is at most x with a probability of at most the error."""
        lowest = np.maximum(math.exp(-x) * (1 - delta - beta), 1 - delta - math.exp(x) * beta)
        return float(betaincc(alarms, rest, np.clip(lowest, 0, 1)) @ weight) <= error

    return bisect(below, 0.0, _LARGEST, midpoint)[0] if below(0.0) else 0.0


def estimates(
    mistakes: Mistakes, delta: float, confidence: float, events: int = 1
) -> tuple[Estimate, ...]:
    """All four, side by side; the first and the last are rigorous."""
    given = (mistakes, delta, confidence, events)
    return (
        Estimate("Clopper-Pearson", "epsilon", epsilon_bound(*given), Strength.CONFIDENT),
        Estimate("Katz-log", "epsilon", katz_bound(*given), Strength.ASYMPTOTIC),
        Estimate("Bayesian (Jeffreys)", "epsilon", posterior_bound(*given), Strength.CREDIBLE),
        Estimate("Gaussian DP", "mu", mu_bound(mistakes, confidence, events), Strength.CONFIDENT),
    )


def _limits(mistakes: Mistakes, error: float) -> tuple[float, float]:
    alpha = upper_limit(mistakes.alarms, mistakes.without, error / 2)
    return alpha, upper_limit(mistakes.misses, mistakes.having, error / 2)


def _epsilon(alpha: float, beta: float, delta: float) -> float:
    """ln((1 - delta - beta) / alpha); 0 where there is none."""
    return math.log((1 - delta - beta) / alpha) if 1 - delta - beta > 0 and alpha > 0 else 0.0


def _katz(
    first: tuple[int, int], second: tuple[int, int], delta: float, error: float, instead: float
) -> float:
    """Of the rates of (events, trials) on each side; ``instead`` where a count is 0."""
    (n1, of1), (n2, of2) = first, second
    if not n1 or not n2:
        return instead
    p1, p2 = n1 / of1, n2 / of2
    if p1 <= delta:
        return 0.0
    spread = p1 * (1 - p1) / (of1 * (p1 - delta) ** 2) + (1 - p2) / (of2 * p2)
    return math.log((p1 - delta) / p2) + float(ndtri(error)) * math.sqrt(spread)


# -- claims
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Claimed:
    """A claimed number that mistakes can contradict.

    Attributes:
        measure: what is claimed.
        value: at most this.
        delta: beside a claimed epsilon; 0 for none.
    """

    measure: Measure
    value: float
    delta: float = 0.0

    @classmethod
    def of(cls, guarantee: Guarantee) -> "Claimed":
        """What a guarantee claims, by its own parameters."""
        if isinstance(guarantee, GaussianDP):
            return cls("mu", guarantee.mu)
        return cls(
            "epsilon",
            guarantee.eps,
            guarantee.delta if isinstance(guarantee, ApproximateDP) else 0.0,
        )

    @property
    def shown_delta(self) -> float | None:
        """As a finding has it: None beside a mu."""
        return None if self.measure == "mu" else self.delta

    @property
    def words(self) -> str:
        """The measure, with its delta if there is one."""
        return f"{self.measure} at delta {self.delta:g}" if self.delta else self.measure

    def bound(self, mistakes: Mistakes, confidence: float, events: int = 1) -> float:
        """The lower bound, rigorous at any number of trials, that the claim is held against."""
        if self.measure == "mu":
            return mu_bound(mistakes, confidence, events)
        return epsilon_bound(mistakes, self.delta, confidence, events)

    def needed(self, confidence: float, events: int = 1) -> int:
        """The least number of trials a side after which an attack that is never wrong shows more
        than what is claimed.

        Fewer cannot contradict the claim, whatever they count. ``MOST_TRIALS`` stands for that and
        more.
        """

        def short(trials: int) -> bool:
            return self.bound(Mistakes(0, trials, 0, trials), confidence, events) <= self.value

        return (
            MOST_TRIALS if short(MOST_TRIALS) else bisect(short, 0, MOST_TRIALS, whole_midpoint)[1]
        )

    def noticed(self, trials: int, confidence: float, events: int = 1) -> float | None:
        """The least true value that the best test tells from the claimed one about every second
        time: by the counts that are to be expected, where it is wrong as often on either side.

        None: none up to 100; the trials are too few.
        """

        def hidden(true: float) -> bool:
            """Of randomized response, or of N(0, 1) and N(mu, 1), where both mistakes are as
            likely.
            """
            rate = (
                ndtr(-true / 2) if self.measure == "mu" else (1 - self.delta) / (1 + math.exp(true))
            )
            count = math.ceil(trials * rate)
            return (
                self.bound(Mistakes(count, trials, count, trials), confidence, events) <= self.value
            )

        return None if hidden(_LARGEST) else bisect(hidden, self.value, _LARGEST, midpoint)[1]


@dataclass(frozen=True)
class TestedClaim:
    """What was attacked, and how: from the counts of an attack to what is said of a claim.

    Attributes:
        subject, claim, attack, effort: as of ``Finding``.
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
        """A finding of this claim and attack."""
        given: dict[str, object] = {"measure": self.claimed.measure, "confidence": self.confidence}
        given |= {"claimed": self.claimed.value, "delta": self.claimed.shown_delta, **facts}
        about = (self.subject, self.claim, self.attack, self.effort)
        return Finding(*about, outcome, meaning, **given)  # type: ignore[arg-type]

    def findings(self, mistakes: Mistakes) -> tuple[Finding, ...]:
        """The verdict, by the rigorous bound in the claim's own measure; then the other
        estimates of the same counts.
        """
        verdict = self.judge(mistakes)
        return (verdict,) if verdict.found is None else (verdict, *self._others(mistakes))

    def _others(self, mistakes: Mistakes) -> Iterator[Finding]:
        delta = SHOWN_DELTA if self.claimed.measure == "mu" else self.claimed.delta
        for estimate in estimates(mistakes, delta, self.confidence, self.events):
            same, epsilon = estimate.measure == self.claimed.measure, estimate.measure == "epsilon"
            if same and estimate.strength is Strength.CONFIDENT:
                continue  # that is the verdict
            quantity = f"epsilon at delta {delta:g}" if epsilon and delta else estimate.measure
            bound = least(estimate.found)
            reliability = MEANS[estimate.strength]
            meaning = f"{estimate.estimator}: {quantity} is at least {bound}. {reliability}"
            numbers = {
                "claimed": self.claimed.value if same else None,
                "delta": delta if epsilon else None,
            }
            yield self.finding(
                Outcome.REPORTED,
                meaning,
                measure=estimate.measure,
                found=estimate.found,
                strength=estimate.strength,
                estimator=estimate.estimator,
                **numbers,
            )

    def judge(self, mistakes: Mistakes) -> Finding:
        """Hold the rigorous lower bound against the claim."""
        claimed, trials = self.claimed, min(mistakes.without, mistakes.having)
        bound = claimed.bound(mistakes, self.confidence, self.events)
        needed = claimed.needed(self.confidence, self.events)
        outcome = (
            Outcome.VIOLATED
            if bound > claimed.value
            else Outcome.STANDS
            if trials >= needed
            else Outcome.UNTESTED
        )
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
        claimed_value = self.claimed.value
        quantity = self.claimed.words
        confidence = 100 * self.confidence
        lower_bound = least(bound, claimed_value)
        trials_needed = _enough(needed)
        counts = (
            f"the attack was wrong in {mistakes.alarms:,} of {mistakes.without:,} trials without "
            f"the record and in {mistakes.misses:,} of {mistakes.having:,} trials with it. So "
            f"{quantity} is at least {lower_bound}, with {confidence:.12g} % confidence"
        )
        remedy = ""
        if needed < MOST_TRIALS and self.together > 1:
            remedy = f"Set audit.trials={self.together * needed} or more"
        elif needed < MOST_TRIALS:
            remedy = "Raise audit.trials (for `agt audit unlearning`, raise audit.releases)"
        if outcome is Outcome.UNTESTED:
            short = (
                f"{counts}; the trials are too few to contradict the claimed value of "
                f"{claimed_value:g}, whatever their results: {trials_needed}"
            )
            return f"{short}. {remedy}" if remedy else short
        verdict = verdict_words(outcome is Outcome.VIOLATED, f"value of {claimed_value:g}")
        return f"{counts}; {verdict}"


def verdict_words(violated: bool, claimed: str) -> str:
    """Return what a lower bound says of a claim, in words.

    Args:
        claimed: what is claimed, such as "epsilon of 1".
    """
    if violated:
        return f"this bound exceeds the claimed {claimed}"
    return f"this bound does not contradict the claimed {claimed} (but does not prove it either)"


def _noticeable(measure: Measure, noticed: float | None, needed: int) -> str:
    if noticed is None:
        return f"this audit detects nothing: {_enough(needed)}"
    detected = number(noticed, up=True)
    return (
        "if the best attack makes false alarms and misses equally often, about half of all audits "
        f"detect a true {measure} of {detected}, and more than half detect a larger one. If one "
        f"kind of mistake is rare, only a larger {measure} is detected as often"
    )


def _enough(needed: int) -> str:
    if needed >= MOST_TRIALS:
        return "no feasible number of trials can contradict this claim"
    return f"at least {needed:,} trials with the record and as many without it are needed"


# -- events
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Event:
    """What an attack calls "in".

    Attributes:
        words: what it is.
        holds: [n] outputs -> [n] bool.
    """

    words: str
    holds: Callable[[np.ndarray], np.ndarray]

    def mistakes(self, first: np.ndarray, second: np.ndarray) -> Mistakes:
        """Those of who says that an output is the first side's where the event holds, else the
        second's.
        """
        return Mistakes(
            int(self.holds(second).sum()), len(second), int((~self.holds(first)).sum()), len(first)
        )


def of_labels(labels: tuple[int, ...]) -> Event:
    """The released label is one of these."""
    listed = ", ".join(map(str, labels))
    words = f"the released label is {listed}"
    if len(labels) > 1:
        words = f"the released label is one of {listed}"
    return Event(
        words,
        lambda outputs: np.isin(outputs, labels),
    )


def of_tail(threshold: float, above: bool) -> Event:
    """The released number lies on one side of a threshold, which counts as above."""
    comparison = "at least" if above else "below"
    words = f"the released number is {comparison} {threshold:g}"
    return Event(words, lambda outputs: (outputs >= threshold) == above)


def of_grain(halvings: int, finer: bool) -> Event:
    """The released number is a multiple of 2^-halvings; or finer than that.

    How fine the last bits of floating-point noise are depends on the number that it is added to
    (Mironov 2012).
    """

    def holds(outputs: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore", invalid="ignore"):  # infinite: no multiple
            multiples = np.ldexp(outputs.astype(np.float64), halvings)
            whole: np.ndarray = multiples == np.rint(multiples)
        return (whole & np.isfinite(multiples)) != finer

    negation = "not " if finer else ""
    return Event(f"the released number is {negation}a multiple of 2^-{halvings}", holds)


Outputs = Literal["labels", "released numbers", "scores"]
"""What is drawn of two sides: labels; numbers exactly as they are released; or scores, which the
attacker computes, and whose last bits therefore tell nothing about what is released.
"""


def chosen(
    first: np.ndarray, second: np.ndarray, claimed: Claimed, confidence: float, outputs: Outputs
) -> Event:
    """Return the event that tells the draws of two sides apart best.

    It must be counted on other draws. Of events that tell as much, which may be nothing, it is the
    one that is wrong least often.

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
    counts = [(event, event.mistakes(first, second)) for event in events]
    return max(counts, key=lambda one: (claimed.bound(one[1], confidence), -one[1].rate))[0]


def _label_events(first: np.ndarray, second: np.ndarray) -> list[Event]:
    """The labels that are likelier on the first side than on the second by more than some factor,
    for every factor: the best tests there are (Neyman and Pearson); and their complements.
    """
    values = np.unique(np.concatenate([first, second]))
    counts = [
        np.array([(side == value).sum() for value in values]) + 0.5 for side in (first, second)
    ]
    ordered = values[np.argsort(-(counts[0] / counts[1]), kind="stable")].tolist()
    cuts = range(1, len(ordered)) or range(1, 2)
    parts = [tuple(sorted(part)) for cut in cuts for part in (ordered[:cut], ordered[cut:])]
    return [of_labels(part) for part in parts if part]


def _number_events(outputs: np.ndarray) -> list[Event]:
    """Thresholds; and of numbers that are not all whole, how fine their last bits are."""
    if (outputs == np.rint(outputs)).all():
        return _tails(outputs)
    grains = [
        of_grain(halvings, finer) for halvings in range(MAX_HALVINGS) for finer in (False, True)
    ]
    return [*_tails(outputs), *grains]


def _tails(outputs: np.ndarray) -> list[Event]:
    places = np.unique(outputs)
    if len(places) > MAX_THRESHOLDS:
        places = np.unique(np.quantile(outputs, np.linspace(0, 1, MAX_THRESHOLDS)))
    return [of_tail(float(place), above) for place in places for above in (True, False)]


# -- what a loss means to somebody who guesses
# -------------------------------------------------------------------------


def advantage(eps: float, delta: float = 0.0) -> float:
    """(e^eps - 1 + 2 delta)/(e^eps + 1): the most that TPR - FPR of a test can be under (eps,
    delta)-DP.
    """
    return min(1.0, math.tanh(eps / 2) + 2 * delta * float(expit(-eps)))


def gaussian_advantage(mu: float) -> float:
    """2 Phi(mu/2) - 1: the most that TPR - FPR of a test can be under mu-Gaussian-DP."""
    return float(2 * ndtr(mu / 2) - 1)


def posterior(prior: float, eps: float) -> float:
    """e^eps p/(e^eps p + 1 - p): how sure an answer of loss eps makes somebody who was sure to
    ``prior``.

    Args:
        prior: in (0, 1).
    """
    return float(expit(logit(prior) + eps))
