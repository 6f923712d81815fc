"""Lower bounds on epsilon from one run with many canaries, by how many of their coins were guessed.

Each of m canaries (records or gradients that the audit adds) is in the data by its own fair coin.
The mechanism runs once, and a guesser who sees its output, but no coin, guesses some of the coins.

| bound | of which mechanisms                                                                      |
|-------|------------------------------------------------------------------------------------------|
| exact | every (epsilon, delta)-DP mechanism; no bound from the counts alone is greater           |
| gdp   | every mechanism that is mu-GDP; epsilon is that of mu at delta: it says nothing of an    |
|       | (epsilon, delta) that was not derived from a mu                                          |

Formal guarantees
    * If the coins are fair and drawn apart from each other and from everything else, and the
      number of guesses was fixed before the coins were known, a bound exceeds the true epsilon with
      at most the error probability (Lemmas 2 and 3 of docs/proofs/one_run.md). Nothing is supposed
      of the guesser, who may have looked at all scores.
    * A half that is drawn to be exactly half, or canaries in the order of their coins, are no fair
      coins, so nothing holds for them.

``mean_right`` only plans how many guesses to make; no bound rests on it.

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
    """Return how many guesses are right.

    The ``positive`` canaries with the highest scores are guessed to be in, and the ``negative``
    canaries with the lowest scores to be out. Equal scores come in an order that is drawn from a
    fixed seed, so neither the coins nor the canaries' places decide.

    Args:
        scores: [m] float; a higher score says that the canary is rather in.
        included: [m] bool, the coins.
        positive: number of guesses "in", fixed before the coins were known.
        negative: number of guesses "out", likewise.

    Raises:
        ValueError: lengths differ, a score that is NaN, or more guesses than canaries.
    """
    canaries = len(scores)
    nan_scores = int(np.isnan(scores).sum())
    if len(included) != canaries or nan_scores:
        raise ValueError(
            f"there are {canaries} scores, {nan_scores} of them NaN, and {len(included)} coins, "
            "each of which says whether a canary was included. Give one score that is not NaN for "
            "each coin"
        )
    if positive < 0 or negative < 0 or positive + negative > canaries:
        raise ValueError(
            f"positive={positive} and negative={negative}: both numbers of guesses must be at "
            f"least 0, and their sum at most {canaries} (the number of canaries)"
        )
    tie_break = np.random.default_rng(0).permutation(canaries)
    by_score = np.lexsort((tie_break, scores))  # the lowest score first
    coins = np.asarray(included, bool)[by_score]
    right_in = coins[canaries - positive :].sum()
    right_out = (~coins[:negative]).sum()
    return int(right_in + right_out)


# -- what counts refuse
# --------------------------------------------------------------------------------------------------


def exact(right: int, guesses: int, canaries: int, epsilon: float, delta: float) -> float:
    """Return the least bound on the probability of ``right`` or more right guesses.

    It holds for every (epsilon, delta)-DP mechanism, and no bound from these counts is smaller
    (Lemma 2 of docs/proofs/one_run.md).

    Args:
        right: how many guesses were right, v.
        guesses: how many were made, r.
        canaries: how many canaries there were, m.
        epsilon: of the claim.
        delta: of the claim.
    """
    share = expit(epsilon)  # q: how often a guess is right at best, if delta is 0
    tail = float(betainc(right, guesses - right + 1, share)) if right else 1.0
    if not delta or not right:
        return tail
    mass = float(binom.pmf(right, guesses, share))
    if mass < 1e-290:  # too small to divide by
        if right <= guesses * share:
            return 1.0
        # beyond its mean, the mass function falls by this factor and more from count to count
        fall = (guesses - right) / (right + 1) * float(np.exp(min(epsilon, 700.0)))
        return min(1.0, tail + canaries * delta / (right * (1 - fall)))
    # what delta adds, by Lemma 1 of docs/proofs/one_run.md
    extra = canaries * delta * tail / (right * mass)
    if extra >= 1:
        return 1.0
    return tail + extra * (1 - tail)


def refuses(right: int, guesses: int, canaries: int, mu: float, error: float) -> bool:
    """Return whether so many right guesses contradict every mu-GDP mechanism.

    They do if ``right`` or more right guesses have at most probability ``error``, by the bound of
    Mahloujifar, Melis and Chaudhuri 2025 (Lemma 3 of docs/proofs/one_run.md).

    Args:
        right: how many guesses were right, v.
        guesses: how many were made, r.
        canaries: how many canaries there were, m.
        mu: of the claim.
        error: the probability with which the answer may be a false alarm.
    """
    # lower bounds, with t counting down from ``right``, given that P[C >= right] is ``error``:
    total = error  # of P[C >= t]
    hits = right * error  # of E[C; C >= t]
    misses = (guesses - right) * error  # of E[r - C; C >= t]
    for count in range(right - 1, -1, -1):
        needed_misses = canaries * float(_alarm(min(1.0, hits / canaries), mu))
        mass = max(0.0, (needed_misses - misses) / (guesses - count))  # of P[C = count]
        total += mass
        hits += count * mass
        misses += (guesses - count) * mass
        # a probability above 1 is a contradiction; once nothing is needed, nothing is later
        if total > 1 + UP or not mass:
            break
    return total > 1 + UP


def mean_right(guesses: int, canaries: int, mu: float) -> float:
    """Return how many of the surest guesses are right in the mean.

    The canaries are orthogonal, so none moves another's score, and each spends all of ``mu``.
    """
    share = guesses / canaries

    def guesses_too_few(power: float) -> bool:
        return power + _alarm(power, mu) < share

    power = bisect(guesses_too_few, share / 2, share, midpoint)[1]
    return canaries * power


def _alarm(power: float, mu: float) -> float:
    """Return the least false alarm rate of a test of this power between neighbours, under mu-GDP.

    It is the inverse of g in docs/proofs/one_run.md.
    """
    return float(ndtr(ndtri(power) - mu))


# -- audits
# --------------------------------------------------------------------------------------------------


def one_run_epsilon(
    right: int, guesses: int, canaries: int, delta: float, confidence: float, bound: OneRunBound
) -> float:
    """Return a lower bound on epsilon at ``delta``; 0 if nothing is shown.

    With ``right = guesses`` it is the most that so many guesses could ever show.

    Args:
        right: guesses that were right, at most ``guesses``.
        guesses: how many were made, at least 1, fixed before the coins were known.
        canaries: each in by its own fair coin; at least ``guesses``.
        delta: at least 0 and below 1.
        confidence: that the bound holds, at least one half and below 1.
        bound: for which mechanisms it holds.

    Raises:
        ValueError: no delta for a Gaussian curve.
    """
    error = 1 - confidence
    if bound == "exact":

        def epsilon_refused(epsilon: float) -> bool:
            return exact(right, guesses, canaries, epsilon, delta) * (1 + UP) <= error

        return _greatest(epsilon_refused)
    if not delta:
        raise ValueError(
            f"bound={bound} needs delta > 0, because Gaussian noise is not "
            "epsilon-differentially private with delta = 0"
        )
    mu = _greatest(lambda mu: refuses(right, guesses, canaries, mu, error))
    return gaussian_epsilon(mu, delta) if mu else 0.0


def planned_guesses(
    canaries: int, epsilon: float, delta: float, confidence: float, bound: OneRunBound
) -> int:
    """Return the number of guesses that shows most of a mechanism that spends all of its claim.

    It rests on the claim only, so it may be asked before the run. It supposes that no canary moves
    another's score. If the claim has no delta, all canaries are guessed: randomized response is as
    sure of each canary as of any other. Otherwise it is one of the numbers that contradict the
    claim if all guesses are right, if there are such: it shows less of a mechanism that holds, and
    can show more of one that does not.

    Args:
        canaries: how many there are.
        epsilon: of the claim.
        delta: of the claim.
        confidence: of the bound.
        bound: for which mechanisms it holds.
    """
    if not delta:
        return canaries
    mu = gaussian_mu(epsilon, delta)
    halvings = range(2 * canaries.bit_length())  # of sqrt(2) each
    candidates = sorted({max(1, round(canaries * 2 ** (-half / 2))) for half in halvings})

    def shown_epsilon(right: int, guesses: int) -> float:
        return one_run_epsilon(right, guesses, canaries, delta, confidence, bound)

    able = [guesses for guesses in candidates if shown_epsilon(guesses, guesses) > epsilon]

    def expected_epsilon(guesses: int) -> float:
        return shown_epsilon(int(mean_right(guesses, canaries, mu)), guesses)

    return max(able or [canaries], key=expected_epsilon)


def _greatest(is_refused: Callable[[float], bool]) -> float:
    """Return the greatest number that is refused, from below; 0 if none is.

    Args:
        is_refused: number -> whether it is refused; all numbers below a refused one are.
    """
    high = 1.0
    while is_refused(high):
        high *= 2

    def next_middle(low: float, high: float) -> float:
        return midpoint(low, high) if high - low > _CLOSE else low  # ``low`` ends the search

    return bisect(is_refused, 0.0, high, next_middle)[0]
