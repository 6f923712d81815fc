"""Two estimates of epsilon that lecture 004 has beside the bound of Clopper and Pearson.

Neither is a confidence bound at a finite number of trials, so `agt audit` uses neither.
"""

import math

import numpy as np
from scipy.special import betaincc, betaincinv, ndtr, ndtri

from agt.numeric import bisect, midpoint
from agt_audit.estimates import Mistakes, upper_limit

# parts of the integral over the posterior of beta; with more of them, epsilon changes by less than
# 0.002, also at confidence 0.999999
NODES = 256
_NORMAL_TAIL = 8.0  # standard deviations; a normal number is farther out with less than 10^-14
_MAX_LOSS = 100.0  # the largest epsilon that is searched for


def katz_bound(mistakes: Mistakes, delta: float, confidence: float) -> float:
    """Return the Katz-log lower bound on epsilon, at least 0, which is asymptotic.

    Args:
        mistakes: the counts of the attack.
        delta: at least 0 and below 1.
        confidence: the probability with which the bound holds, in the limit of many trials.
    """
    error = (1 - confidence) / 2  # of each of the two inequalities
    false_positives = (mistakes.alarms, mistakes.trials_without)
    true_positives = (mistakes.trials_with - mistakes.misses, mistakes.trials_with)
    false_negatives = (mistakes.misses, mistakes.trials_with)
    true_negatives = (mistakes.trials_without - mistakes.alarms, mistakes.trials_without)
    # Lemma 3 of docs/proofs/attack_bounds.md
    bound_from_positives = _katz(true_positives, false_positives, delta, error)
    bound_from_negatives = _katz(true_negatives, false_negatives, delta, error)
    return max(0.0, bound_from_positives, bound_from_negatives)


def _katz(hits: tuple[int, int], alarms: tuple[int, int], delta: float, error: float) -> float:
    """Return the Katz-log lower bound on ln((p1 - delta) / p2) of two independent rates.

    The bound is not defined if one of the counts is 0. That of Clopper and Pearson is returned
    then, which is rigorous.

    Args:
        hits: (n1, N1), events and trials of the side with the rate p1.
        alarms: (n2, N2), events and trials of the side with the rate p2.
        delta: what is subtracted from p1.
        error: the probability with which the bound is too large, in the limit of many trials.

    Returns:
        The bound; 0 if the rate n1/N1 is at most ``delta``.
    """
    hit_count, hit_trials = hits
    alarm_count, alarm_trials = alarms
    if not hit_count or not alarm_count:
        p1 = 1 - upper_limit(hit_trials - hit_count, hit_trials, error)
        p2 = upper_limit(alarm_count, alarm_trials, error)
        return math.log((p1 - delta) / p2) if p1 > delta else 0.0
    p1 = hit_count / hit_trials
    p2 = alarm_count / alarm_trials
    if p1 <= delta:
        return 0.0
    variance_of_hits = p1 * (1 - p1) / (hit_trials * (p1 - delta) ** 2)
    variance_of_alarms = (1 - p2) / (alarm_trials * p2)
    deviation = math.sqrt(variance_of_hits + variance_of_alarms)
    return math.log((p1 - delta) / p2) + float(ndtri(error)) * deviation


def posterior_bound(mistakes: Mistakes, delta: float, confidence: float) -> float:
    """Return the number that epsilon exceeds with posterior probability ``confidence``.

    It is at least 0 and at most 100. The prior of both rates is Jeffreys'. It is a credible bound,
    not a confidence bound. Arguments as of ``katz_bound``.
    """
    # Lemma 4 of docs/proofs/attack_bounds.md: an integral over beta, as a sum over ``NODES`` parts
    edges = np.linspace(-_NORMAL_TAIL, _NORMAL_TAIL, NODES + 1)
    part_probability = np.diff(ndtr(edges))
    part_quantile = ndtr((edges[1:] + edges[:-1]) / 2)
    beta = betaincinv(
        0.5 + mistakes.misses, 0.5 + mistakes.trials_with - mistakes.misses, part_quantile
    )
    alarms = 0.5 + mistakes.alarms
    no_alarms = 0.5 + mistakes.trials_without - mistakes.alarms

    def is_bound(epsilon: float) -> bool:
        """Return whether the true epsilon is at most ``epsilon`` with a small probability."""
        from_first = math.exp(-epsilon) * (1 - delta - beta)
        from_second = 1 - delta - math.exp(epsilon) * beta
        least_alpha = np.clip(np.maximum(from_first, from_second), 0, 1)
        probability = float(betaincc(alarms, no_alarms, least_alpha) @ part_probability)
        return probability <= 1 - confidence

    if not is_bound(0.0):
        return 0.0
    return bisect(is_bound, 0.0, _MAX_LOSS, midpoint)[0]
