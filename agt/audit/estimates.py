"""From an attack's mistakes to a lower bound on the privacy loss (method.md section 8).

Formal guarantees
    A false alarm is a trial on the side without the record that the attack calls "in"; a miss is one on the side with it
    that it calls "out". With alpha, beta their rates, (eps, delta)-DP means alpha + e^eps beta >= 1 - delta and
    e^eps alpha + beta >= 1 - delta for every test (Kairouz et al. 2015), and mu-GDP means
    Phi^-1(1 - alpha) - Phi^-1(beta) <= mu (Dong et al. 2022). Each rate is replaced by its upper Clopper-Pearson limit, at
    half the error probability each, so that both hold together with the confidence asked for, at any number of trials.
    Events are fixed before trials are drawn: a threshold that was chosen on the same trials needs a correction.
"""

import math
from dataclasses import dataclass

from scipy.special import ndtri
from scipy.stats import beta as beta_law


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


def upper_limit(events: int, trials: int, error: float) -> float:
    """The Clopper-Pearson upper limit of a rate: above the true one but with probability ``error``."""
    return 1.0 if events == trials else float(beta_law.ppf(1 - error, events + 1, trials - events))


def lower_limit(events: int, trials: int, error: float) -> float:
    """The Clopper-Pearson lower limit of a rate."""
    return 0.0 if events == 0 else float(beta_law.ppf(error, events, trials - events + 1))


def epsilon_bound(mistakes: Mistakes, delta: float, confidence: float, events: int = 1) -> float:
    """A lower bound on epsilon at ``delta``; 0 where nothing is shown.

    Args:
        confidence: that the bound holds.
        events: how many were looked at before the best was taken: the error probability is shared among them.
    """
    alpha, beta = _limits(mistakes, (1 - confidence) / events)
    pairs = ((1 - delta - beta, alpha), (1 - delta - alpha, beta))
    return max([0.0, *(math.log(hit / miss) for hit, miss in pairs if hit > 0 and miss > 0)])


def mu_bound(mistakes: Mistakes, confidence: float, events: int = 1) -> float:
    """A lower bound on mu of Gaussian differential privacy; 0 where nothing is shown. It says nothing of an (eps, delta)
    that was not derived from a mu: only of the claim that the mechanism is mu-GDP."""
    alpha, beta = _limits(mistakes, (1 - confidence) / events)
    return max(0.0, float(-ndtri(alpha) - ndtri(beta))) if alpha < 1 and beta < 1 else 0.0


def _limits(mistakes: Mistakes, error: float) -> tuple[float, float]:
    alpha = upper_limit(mistakes.alarms, mistakes.without, error / 2)
    return alpha, upper_limit(mistakes.misses, mistakes.having, error / 2)
