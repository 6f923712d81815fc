"""What a privacy loss means to somebody who guesses: how sure one may become, and how often one is right.

    advantage(1.0, 1e-5)            no test tells "used" from "not used" with TPR - FPR above .462
    gaussian_advantage(0.5)         the same of mu-Gaussian-DP, and the best test reaches it
    posterior(0.5, 1.0)             whoever was 50 % sure is at most 73 % sure afterwards

Formal guarantees
    Two neighbouring datasets, one with the record and one without; a test calls "used" with probability t where it was, and
    with probability f where it was not.

    advantage. (eps, delta)-DP of both orders says t <= e^eps f + delta, and 1 - f <= e^eps (1 - t) + delta of the other
    answer. Added, (1 + e^eps)(t - f) <= e^eps - 1 + 2 delta. The mechanism that tells all with probability delta and else
    is randomized response reaches it: t - f = delta + (1 - delta)(e^eps - 1)/(e^eps + 1).

    gaussian_advantage. mu-GDP says Phi^-1(t) - Phi^-1(f) <= mu, and t - f is largest where the threshold lies in the
    middle: 2 Phi(mu/2) - 1 (Dong et al. 2022), which the Gaussian mechanism itself reaches.

    posterior. Of pure eps, Bayes' rule multiplies the odds of any answer, or of any set of answers, by at most e^eps. For
    delta > 0 the pair of output distributions is a function of one that tells the truth with probability delta and else has
    loss eps (Kairouz et al. 2015): but for an event of that probability, the same holds. In the other direction: if
    (eps, delta)-DP is violated by a test, then t > e^eps f + delta or 1 - f > e^eps (1 - t) + delta, so one of its two
    answers multiplies the odds by more than e^eps, whatever delta is: somebody was seen to become that sure.
"""

import math

from scipy.special import expit, logit
from scipy.stats import norm


def advantage(eps: float, delta: float = 0.0) -> float:
    """(e^eps - 1 + 2 delta)/(e^eps + 1): the most that TPR - FPR of a test can be under (eps, delta)-DP."""
    return min(1.0, math.tanh(eps / 2) + 2 * delta * float(expit(-eps)))


def gaussian_advantage(mu: float) -> float:
    """2 Phi(mu/2) - 1: the most that TPR - FPR of a test can be under mu-Gaussian-DP."""
    return float(2 * norm.cdf(mu / 2) - 1)


def posterior(prior: float, eps: float) -> float:
    """e^eps p/(e^eps p + 1 - p): how sure an answer of loss eps makes somebody who was sure to ``prior``.

    Args:
        prior: in (0, 1).
    """
    return float(expit(logit(prior) + eps))
