"""From an attack's mistakes to a lower bound on the privacy loss (method.md section 8).

| estimate        | of      | what it means                                                                         |
|-----------------|---------|---------------------------------------------------------------------------------------|
| Clopper-Pearson | epsilon | confident: it exceeds the truth at most as often as was asked for, at any number      |
| Katz-log        | epsilon | asymptotic: so in the limit of many trials, and off where a count is small            |
| Bayesian        | epsilon | credible: a quantile of what Jeffreys' prior makes of the counts; no confidence bound |
| Gaussian DP     | mu      | confident, of the mu of a mechanism that is mu-GDP; it contradicts such a claim alone |

Formal guarantees
    A false alarm is a trial on the side without the record that the attack calls "in"; a miss is one on the side with it
    that it calls "out". With alpha, beta their rates, (eps, delta)-DP means alpha + e^eps beta >= 1 - delta and
    e^eps alpha + beta >= 1 - delta for every test (Kairouz et al. 2015), and mu-GDP means
    Phi^-1(1 - alpha) - Phi^-1(beta) <= mu (Dong et al. 2022). Each rate is replaced by its upper Clopper-Pearson limit, at
    half the error probability each, so that both hold together with the confidence asked for, at any number of trials.
    The limits are of one side: a bound from below on epsilon and mu needs no lower limits. Both numbers fall as either rate
    grows, so the upper limits' are at most the true rates' wherever both limits hold. The greater of the two inequalities
    costs nothing more: both follow from the same two limits.
    Events are fixed before trials are drawn: a threshold that was chosen on the same trials needs a correction, which is
    ``events``, the error probability shared among all that were looked at; or other trials to choose on (events.py).
    Katz-log. For one inequality, p1 = 1 - beta and p2 = alpha are rates of independent counts n1 of N1 and n2 of N2: true
    positives and false positives; for the other, true and false negatives. By the delta method the logarithm of
    (p1 - delta)/p2 is asymptotically normal with variance p1 (1 - p1)/(N1 (p1 - delta)^2) + (1 - p2)/(N2 p2), which for
    delta = 0 is Katz's 1/n1 - 1/N1 + 1/n2 - 1/N2. Two inequalities, each at half the error probability.
    Bayesian. With independent posteriors alpha ~ Beta(.5 + n, .5 + N - n), beta likewise, eps is at most x where alpha >=
    max(e^-x (1 - delta - beta), 1 - delta - e^x beta): the probability of that is an integral over beta, here a sum over
    ``NODES`` parts between quantiles that are those of a normal law at even steps, so that both tails are seen.
    Deterministic.

How this differs from the sources. Lecture 004 writes Katz's interval for p1/p2 without its logarithm, and takes false
positives and true negatives for its counts, which are of one side and whose ratio bounds no epsilon; it is two-sided and of
one inequality, where both are used; and it has no delta. Its mu has the lower limit of beta where the upper one belongs:
with the lower, mu would be overstated. method.md section 8 has it right.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import betaincc, betainccinv, betaincinv, ndtr, ndtri

from agt.audit.findings import Strength
from agt.mechanisms.guarantee import ApproximateDP, GaussianDP, Guarantee
from agt.numeric import bisect, midpoint, whole_midpoint

NODES = 256  # of the posterior of beta; more change epsilon by less than 0.002, at confidence .999999 too
_TAIL = 8.0  # of a normal law; what lies beyond is less than 10^-14
MOST_TRIALS = 10**15  # what is looked for when trials are too few
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
        if not (0 <= self.alarms <= self.without and 0 <= self.misses <= self.having and self.without and self.having):
            raise ValueError(f"{self} counts no trials")

    @property
    def rate(self) -> float:
        """The sum of both sides' shares of mistakes; 1 of who guesses."""
        return self.alarms / self.without + self.misses / self.having

    @property
    def mirrored(self) -> "Mistakes":
        """With the sides exchanged, and what is called in and out: the other inequality's counts."""
        return Mistakes(self.misses, self.having, self.alarms, self.without)


@dataclass(frozen=True)
class Estimate:
    """One number that the same counts give.

    Attributes:
        name: of the method.
        measure, value: what is at least so much; 0: nothing is shown.
        strength: what that means.
    """

    name: str
    measure: Measure
    value: float
    strength: Strength


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
        return cls("epsilon", guarantee.eps, guarantee.delta if isinstance(guarantee, ApproximateDP) else 0.0)

    def bound(self, mistakes: Mistakes, confidence: float, events: int = 1) -> float:
        """The lower bound, rigorous at any number of trials, that the claim is held against."""
        if self.measure == "mu":
            return mu_bound(mistakes, confidence, events)
        return epsilon_bound(mistakes, self.delta, confidence, events)

    def needed(self, confidence: float, events: int = 1) -> int:
        """How many trials a side an attack that is never wrong needs to show more than what is claimed."""
        return trials_needed(self, confidence, events)

    def noticed(self, trials: int, confidence: float, events: int = 1) -> float | None:
        """The least true value that the best test tells from the claimed one about every second time: by the counts that
        are to be expected, where it is wrong as often on either side.

        None: none up to 100; the trials are too few.
        """
        if not self._tells(_LARGEST, trials, confidence, events):
            return None
        return bisect(lambda true: not self._tells(true, trials, confidence, events), self.value, _LARGEST, midpoint)[1]

    def _tells(self, true: float, trials: int, confidence: float, events: int) -> bool:
        """Of randomized response, or of N(0, 1) and N(mu, 1), where both mistakes are as likely."""
        rate = ndtr(-true / 2) if self.measure == "mu" else (1 - self.delta) / (1 + math.exp(true))
        count = math.ceil(trials * rate)
        return self.bound(Mistakes(count, trials, count, trials), confidence, events) > self.value


def upper_limit(events: int, trials: int, error: float) -> float:
    """The Clopper-Pearson upper limit of a rate: above the true one but with probability ``error``."""
    return 1.0 if events == trials else float(betainccinv(events + 1, trials - events, error))


def lower_limit(events: int, trials: int, error: float) -> float:
    """The Clopper-Pearson lower limit of a rate."""
    return 0.0 if events == 0 else float(betaincinv(events, trials - events + 1, error))


def epsilon_bound(mistakes: Mistakes, delta: float, confidence: float, events: int = 1) -> float:
    """A lower bound on epsilon at ``delta``; 0 where nothing is shown.

    Args:
        confidence: that the bound holds.
        events: how many were looked at before the best was taken: the error probability is shared among them.
    """
    alpha, beta = _limits(mistakes, (1 - confidence) / events)
    return max(0.0, _epsilon(alpha, beta, delta), _epsilon(beta, alpha, delta))


def mu_bound(mistakes: Mistakes, confidence: float, events: int = 1) -> float:
    """A lower bound on mu of Gaussian differential privacy; 0 where nothing is shown. It says nothing of an (eps, delta)
    that was not derived from a mu: only of the claim that the mechanism is mu-GDP."""
    alpha, beta = _limits(mistakes, (1 - confidence) / events)
    return max(0.0, float(-ndtri(alpha) - ndtri(beta))) if alpha < 1 and beta < 1 else 0.0


def katz_bound(mistakes: Mistakes, delta: float, confidence: float, events: int = 1) -> float:
    """The Katz-log lower bound on epsilon, asymptotic; where a count is 0, Clopper-Pearson's. Arguments as above."""
    error = (1 - confidence) / events
    alpha, beta = _limits(mistakes, error)
    exact = _epsilon(alpha, beta, delta), _epsilon(beta, alpha, delta)
    pairs = zip((mistakes, mistakes.mirrored), exact, strict=True)
    return max(0.0, *(_katz(counts, delta, error / 2, instead) for counts, instead in pairs))


def posterior_bound(mistakes: Mistakes, delta: float, confidence: float, events: int = 1) -> float:
    """What epsilon's posterior exceeds with probability ``confidence``: credible. Arguments as above."""
    error, steps = (1 - confidence) / events, np.linspace(-_TAIL, _TAIL, NODES + 1)
    weight, part = np.diff(ndtr(steps)), ndtr((steps[1:] + steps[:-1]) / 2)
    beta = betaincinv(0.5 + mistakes.misses, 0.5 + mistakes.having - mistakes.misses, part)
    alarms, rest = 0.5 + mistakes.alarms, 0.5 + mistakes.without - mistakes.alarms

    def below(x: float) -> bool:
        """Whether epsilon is at most x with a probability of at most the error."""
        least = np.maximum(math.exp(-x) * (1 - delta - beta), 1 - delta - math.exp(x) * beta)
        return float(betaincc(alarms, rest, np.clip(least, 0, 1)) @ weight) <= error

    return bisect(below, 0.0, _LARGEST, midpoint)[0] if below(0.0) else 0.0


def estimates(mistakes: Mistakes, delta: float, confidence: float, events: int = 1) -> tuple[Estimate, ...]:
    """All four, side by side; the first and the last are rigorous."""
    given = (mistakes, delta, confidence, events)
    return (
        Estimate("Clopper-Pearson", "epsilon", epsilon_bound(*given), Strength.CONFIDENT),
        Estimate("Katz-log", "epsilon", katz_bound(*given), Strength.ASYMPTOTIC),
        Estimate("Bayesian (Jeffreys)", "epsilon", posterior_bound(*given), Strength.CREDIBLE),
        Estimate("Gaussian DP", "mu", mu_bound(mistakes, confidence, events), Strength.CONFIDENT),
    )


def trials_needed(claimed: Claimed, confidence: float, events: int = 1) -> int:
    """The least number of trials a side after which an attack that is never wrong shows more than what is claimed.

    Fewer cannot contradict the claim, whatever they count. ``MOST_TRIALS`` stands for that and more.
    """

    def short(trials: int) -> bool:
        return claimed.bound(Mistakes(0, trials, 0, trials), confidence, events) <= claimed.value

    if short(MOST_TRIALS):
        return MOST_TRIALS
    return bisect(short, 0, MOST_TRIALS, whole_midpoint)[1]


def _limits(mistakes: Mistakes, error: float) -> tuple[float, float]:
    alpha = upper_limit(mistakes.alarms, mistakes.without, error / 2)
    return alpha, upper_limit(mistakes.misses, mistakes.having, error / 2)


def _epsilon(alpha: float, beta: float, delta: float) -> float:
    """ln((1 - delta - beta) / alpha); 0 where there is none."""
    return math.log((1 - delta - beta) / alpha) if 1 - delta - beta > 0 and alpha > 0 else 0.0


def _katz(mistakes: Mistakes, delta: float, error: float, instead: float) -> float:
    hits, alarms = mistakes.having - mistakes.misses, mistakes.alarms
    if not hits or not alarms:
        return instead
    p1, p2 = hits / mistakes.having, alarms / mistakes.without
    if p1 <= delta:
        return 0.0
    spread = p1 * (1 - p1) / (mistakes.having * (p1 - delta) ** 2) + (1 - p2) / (mistakes.without * p2)
    return math.log((p1 - delta) / p2) + float(ndtri(error)) * math.sqrt(spread)
