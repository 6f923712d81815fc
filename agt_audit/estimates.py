"""From an attack's mistakes to a lower bound on the privacy loss; and what a loss allows.

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
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import betainccinv, betaincinv, expit, logit, ndtr, ndtri


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

    Args:
        events: how often the event happened: an integer, or an array of integers.
        trials: how many trials there were, in a shape that broadcasts with that of ``events``.
        error: the largest probability with which the limit is above the true rate.

    Returns:
        A number if both counts are numbers, otherwise an array. It is 0 where there are no events,
        so also where there are no trials.
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
    one.

    Args:
        mistakes: the counts of the attack.
        confidence: the probability with which the bound holds.
        events: how many events were fixed beforehand and counted, of which this one is the best.
            The error probability ``1 - confidence`` is divided by it.
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
