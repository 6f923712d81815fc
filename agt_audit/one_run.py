"""What may be concluded of a mechanism that was run once, from how many of its canaries' coins were
guessed.

    right_guesses(scores, included, k, l)       scores of canaries -> how many of the surest guesses
                                                are right
    one_run_epsilon(..., bound="exact")         a lower bound on epsilon from them, by one of
                                                ``BOUNDS``
    planned_guesses(...)                        how many guesses to make, fixed before the run

| bound | of which mechanisms                                                                      |
|-------|------------------------------------------------------------------------------------------|
| exact | every (epsilon, delta)-DP mechanism; no bound from the counts alone is greater           |
| gdp   | every mechanism that is mu-GDP; epsilon is that of mu at delta: it says nothing of an    |
|       | (epsilon, delta) that was                                                                |
|       | not derived from a mu                                                                    |

They need fair coins, drawn apart from each other and from everything else, and a number of guesses
that was fixed before the coins were known. A half that is drawn to be exactly half, or canaries in
the order of their coins, are not that.

The game: each of m canaries is in the data by its own fair coin; the mechanism runs once; a guesser
who sees what it gave out, and no coin, guesses at most r coins; C guesses are right. Neighbours
differ in one canary. Every bound below is a number that P[C >= v] does not exceed where the claim
is true; a claim is refused at error p where the bound is at most p. None supposes anything of the
guesser, who may have looked at all scores before he chose; r is fixed before that.

Formal guarantees
    One coin at a time. Let M be (eps, delta)-DP. For every phi: {1, ..., r} -> [0, 1]

        E[C phi(C)] <= e^eps E[(r - C) phi(C + 1)] + m delta.                                    (1)

    Fix coins u and a canary i, and let u' differ from u in i alone. "i is guessed, rightly for u,
    and phi(C(u)) accepts" is one event of what M gives out, of probability P under M(u), Q under
    M(u'), P <= e^eps Q + delta. For u' the same event reads "i is guessed, wrongly, and phi(C(u') +
    1) accepts", as all other guesses are as right as before. u and u' are both uniform: averaged
    over u and summed over i, P gives E[C phi(C)], and Q gives E[(wrong guesses) phi(C + 1)].

    The best bound for (eps, delta) (ours). Let B be binomial of r trials at q = e^eps / (1 +
    e^eps), b its mass function, beta = P[B >= v], 1 <= v <= r. Then

        P[C >= v] <= beta + m delta K,                                                           (2)
        K = beta (1 - beta) / (v b(v)) = (1 - q) / (E[B | B >= v] - E[B | B < v]).

    Put y(c) = P[B >= max(c, v)] P[B < min(c, v)] / (c b(c)) for 1 <= c <= r, y(r + 1) = 0. As (c +
    1) b(c + 1) = e^eps (r - c) b(c), c y(c) - e^eps (r - c) y(c + 1) = 1[c >= v] - beta for every c
    from 0 to r (Stein's equation). b is log-concave, so P[B < c] / b(c - 1) grows with c and P[B >=
    c] / b(c) falls: y is greatest at v, where it is K. By (1) with phi = y / K, P[C >= v] - beta =
    E[C y(C) - e^eps (r - C) y(C + 1)] <= m delta K. For the second form of K, sum c b(c) = e^eps (r
    - c + 1) b(c - 1) over c >= v: v b(v) = (1 + e^eps) E[(B - r q) 1[B >= v]].
    It is attained, so no bound from (m, r, v) alone is smaller: with x = m delta beta / (v b(v)) <=
    1 (else the bound is 1) take r canaries by chance, C of law p(c) = (1 - x) b(c) + x b(c) 1[c >=
    v] / beta, and give out guesses of which C, by chance, are right. P[C >= v] is (2). It is (eps,
    delta)-DP: the events above have densities c p(c) / m and (r - c + 1) p(c - 1) / m, which exceed
    each other's e^eps-fold by delta in all (at c = v) and by nothing.

    Curves: the bound of Mahloujifar, Melis and Chaudhuri 2025. Let g(x) be the best power, at false
    alarm x, of any test between neighbours that the claim allows; G_mu has g(x) = Phi(Phi^-1(x) +
    mu). g is concave and grows, so the argument of (1), Jensen's inequality in place of the sum,
    gives

        E[C; C >= t] <= m g(E[(r - C); C >= t - 1] / m)   for t = 1, ..., r.                     (3)

    With S(t) = P[C >= t] the left side is t S(t) + sum_{c > t} S(c), and the right side's mean is
    (r - t + 1) S(t - 1) - sum_{c >= t} S(c). So S(t - 1) >= (m g^-1((t S(t) + sum_{c > t} S(c)) /
    m) + sum_{c >= t} S(c)) / (r - t + 1), which grows with each S: put S(v) >= p and S(c) >= 0
    beyond, and a lower bound of S(0) follows, which grows with p. Where it exceeds 1, P[C >= v] <
    p. For mu-GDP and 100 or 200 canaries it refused at least nine tenths of the greatest mu that
    any bound from (m, r, v) does, which a linear program finds. A claim of several (eps, delta) at
    once has g^-1(a) >= e^-eps (a - delta) and >= 1 - delta - e^eps (1 - a), for the test and for
    its opposite.

``mean_right`` says how many guesses are right in the mean on canaries that do not meet (Gaussian
noise in orthogonal directions, one a canary): it plans how many guesses to make, and no bound rests
on it.

Sources: Steinke, Nasr and Jagielski 2023 (the game); Mahloujifar, Melis and Chaudhuri 2025.
"""

from collections.abc import Callable
from typing import Literal, get_args

import numpy as np
from scipy.special import betainc, expit, ndtr, ndtri
from scipy.stats import binom

from agt.numeric import UP, bisect, gaussian_epsilon, gaussian_mu, midpoint

_CLOSE = 1e-6  # how near the bound's end is sought: of a number between 0 and some tens
OneRunBound = Literal["exact", "gdp"]
BOUNDS: tuple[OneRunBound, ...] = get_args(OneRunBound)


def right_guesses(scores: np.ndarray, included: np.ndarray, positive: int, negative: int) -> int:
    """How many guesses are right: the ``positive`` canaries with the highest scores are guessed to
    be in, the ``negative`` with the lowest to be out.

    Equal scores come in an order that is drawn from a fixed seed: neither the coins nor the
    canaries' places decide.

    Args:
        scores: [m] float, higher: rather in.
        included: [m] bool: the coins.
        positive, negative: numbers of guesses, fixed before the coins were known.

    Raises:
        ValueError: lengths differ, a score that is NaN, or more guesses than canaries.
    """
    m = len(scores)
    nan_scores = int(np.isnan(scores).sum())
    if len(included) != m or nan_scores:
        raise ValueError(
            f"there are {m} scores, {nan_scores} of them NaN, and {len(included)} coins, each of "
            "which says whether a canary was included. Give one score that is not NaN for each coin"
        )
    if positive < 0 or negative < 0 or positive + negative > m:
        raise ValueError(
            f"positive={positive} and negative={negative}: both numbers of guesses must be at "
            f"least 0, and their sum at most {m} (the number of canaries)"
        )
    order = np.lexsort((np.random.default_rng(0).permutation(m), scores))
    coins = np.asarray(included, bool)[order]
    return int(coins[m - positive :].sum() + (~coins[:negative]).sum())


# -- what is refused
# --------------------------------------------------------------------------------------------------


def exact(right: int, guesses: int, canaries: int, epsilon: float, delta: float) -> float:
    """The least bound on the probability of ``right`` right guesses or more that counts allow for
    every (epsilon, delta)-DP mechanism (ours, proof above).
    """
    tail = float(betainc(right, guesses - right + 1, expit(epsilon))) if right else 1.0
    if not delta or not right:
        return tail
    mass = float(binom.pmf(right, guesses, expit(epsilon)))
    # no ratio; beyond B's mean b falls by this factor and more from count to count
    if mass < 1e-290:
        fall = (guesses - right) / (right + 1) * float(np.exp(min(epsilon, 700.0)))
        return (
            1.0
            if right <= guesses * expit(epsilon)
            else min(1.0, tail + canaries * delta / (right * (1 - fall)))
        )
    extra = canaries * delta * tail / (right * mass)
    return 1.0 if extra >= 1 else tail + extra * (1 - tail)


def refuses(right: int, guesses: int, canaries: int, mu: float, error: float) -> bool:
    """Whether ``right`` right guesses or more have at most probability ``error`` under every mu-GDP
    mechanism: by the bound of Mahloujifar, Melis and Chaudhuri 2025 (proof above).
    """
    total, hits = error, right * error  # lower bounds of P[C >= t], E[C; C >= t]
    misses, mass = (guesses - right) * error, error  # of E[r - C; C >= t], P[C = t]
    for count in range(right - 1, -1, -1):
        needed = canaries * float(_alarm(min(1.0, hits / canaries), mu))
        mass = max(0.0, (needed - misses) / (guesses - count))
        total, hits, misses = total + mass, hits + count * mass, misses + (guesses - count) * mass
        if total > 1 + UP or not mass:  # once nothing is needed, nothing is later
            break
    return total > 1 + UP


def mean_right(guesses: int, canaries: int, mu: float) -> float:
    """How many guesses are right in the mean, of the surest ones, on canaries that do not meet
    and spend all of a mu.
    """
    share = guesses / canaries
    return (
        canaries
        * bisect(lambda power: power + _alarm(power, mu) < share, share / 2, share, midpoint)[1]
    )


def _alarm(power: float, mu: float) -> float:
    """g^-1 of mu-GDP: the least false alarm of that power."""
    return float(ndtr(ndtri(power) - mu))


# -- audits
# --------------------------------------------------------------------------------------------------


def one_run_epsilon(
    right: int, guesses: int, canaries: int, delta: float, confidence: float, bound: OneRunBound
) -> float:
    """A lower bound on epsilon at ``delta``; 0 where nothing is shown. With ``right = guesses`` it
    is the most that so many guesses could ever show.

    Args:
        right: guesses that were right, at most ``guesses``.
        guesses: how many were made, at least 1, fixed before the coins were known.
        canaries: each in by its own fair coin; at least ``guesses``.
        delta: at least 0 and below 1.
        confidence: that the bound holds, at least one half and below 1.
        bound: says for which mechanisms it holds.

    Raises:
        ValueError: no delta for a Gaussian curve.
    """
    counts, error = (right, guesses, canaries), 1 - confidence
    if bound == "exact":
        return _greatest(lambda epsilon: exact(*counts, epsilon, delta) * (1 + UP) <= error)
    if not delta:
        raise ValueError(
            f"bound={bound} needs delta > 0, because Gaussian noise is not "
            "epsilon-differentially private with delta = 0"
        )
    mu = _greatest(lambda mu: refuses(*counts, mu, error))
    return gaussian_epsilon(mu, delta) if mu else 0.0


def planned_guesses(
    canaries: int, epsilon: float, delta: float, confidence: float, bound: OneRunBound
) -> int:
    """How many guesses show the most, on canaries that do not meet, of a mechanism that spends all
    of its claim.

    It rests on the claim alone, so it may be asked before the run. Where the claim has no delta,
    all: randomized response is as sure of each canary as of any other. Else one of the numbers that
    contradict the claim if all guesses are right, where there are any: less is shown of a mechanism
    that holds, and more can be of one that does not.
    """
    if not delta:
        return canaries
    mu = gaussian_mu(epsilon, delta)
    numbers = sorted(
        {
            max(1, round(canaries * 2 ** (-halves / 2)))
            for halves in range(2 * canaries.bit_length())
        }
    )

    def shown(right: int, number: int) -> float:
        return one_run_epsilon(right, number, canaries, delta, confidence, bound)

    numbers = [number for number in numbers if shown(number, number) > epsilon] or [canaries]
    return max(numbers, key=lambda number: shown(int(mean_right(number, canaries, mu)), number))


def _greatest(refused: Callable[[float], bool]) -> float:
    """The greatest number that is refused, from below, given that all below it are; 0 where none
    is.
    """
    high = 1.0
    while refused(high):
        high *= 2
    return bisect(refused, 0.0, high, lambda a, b: midpoint(a, b) if b - a > _CLOSE else a)[0]
