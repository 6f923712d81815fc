"""Lower bounds on epsilon from one run with many canaries, by how many coins were guessed rightly.

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

_TOLERANCE = 1e-6  # of bisections for epsilon or mu, which are between 0 and some tens
OneRunBound = Literal["exact", "gdp"]
BOUNDS: tuple[OneRunBound, ...] = get_args(OneRunBound)


def right_guesses(scores: np.ndarray, included: np.ndarray, positive: int, negative: int) -> int:
    """Count the right guesses of which canaries were included.

    The ``positive`` canaries with the highest scores are guessed to be in, and the ``negative``
    canaries with the lowest scores to be out. Canaries with equal scores are ordered by a fixed
    permutation, which depends neither on the coins nor on the canaries' order.

    Args:
        scores: [m] float, none of them NaN; a higher score says that the canary is rather in.
        included: [m] bool, the coins.
        positive: number of guesses "in", fixed before the coins were known.
        negative: number of guesses "out", likewise; both together are at most m.
    """
    canaries = len(scores)
    tie_break = np.random.default_rng(0).permutation(canaries)
    by_score = np.lexsort((tie_break, scores))  # the lowest score first
    coins = np.asarray(included, bool)[by_score]
    right_in = coins[canaries - positive :].sum()
    right_out = (~coins[:negative]).sum()
    return int(right_in + right_out)


# -- which claims the counts contradict
# --------------------------------------------------------------------------------------------------


def exact(right: int, guesses: int, canaries: int, epsilon: float, delta: float) -> float:
    """Return an upper bound on the probability of ``right`` or more right guesses.

    It holds for every (epsilon, delta)-DP mechanism, so it is a p-value of that claim; and no
    bound from these counts is smaller (Lemma 2 of docs/proofs/one_run.md).

    Args:
        right: how many guesses were right, v.
        guesses: how many were made, r.
        canaries: how many canaries there were, m.
        epsilon: the epsilon of the claim.
        delta: the delta of the claim.
    """
    share = expit(epsilon)  # q: the largest probability of a right guess, if delta is 0
    tail = float(betainc(right, guesses - right + 1, share)) if right else 1.0
    if not delta or not right:
        return tail
    mass = float(binom.pmf(right, guesses, share))
    if mass < 1e-290:  # too small to divide by
        if right <= guesses * share:
            return 1.0
        # above its mean, the mass function falls at least by this factor from count to count
        factor = (guesses - right) / (right + 1) * float(np.exp(min(epsilon, 700.0)))
        return min(1.0, tail + canaries * delta / (right * (1 - factor)))
    # what delta adds, by Lemma 1 of docs/proofs/one_run.md
    extra = canaries * delta * tail / (right * mass)
    if extra >= 1:
        return 1.0
    return tail + extra * (1 - tail)


def refuses(right: int, guesses: int, canaries: int, mu: float, error: float) -> bool:
    """Return whether so many right guesses contradict the claim of mu-GDP.

    They do if ``right`` or more right guesses have at most probability ``error``, by the bound of
    Mahloujifar, Melis and Chaudhuri 2025 (Lemma 3 of docs/proofs/one_run.md).

    Args:
        right: how many guesses were right, v.
        guesses: how many were made, r.
        canaries: how many canaries there were, m.
        mu: the mu of the claim.
        error: the largest probability with which True is wrong.
    """
    # lower bounds, with t counting down from ``right``, supposing that P[C >= right] is ``error``:
    total = error  # of P[C >= t]
    hits = right * error  # of E[C; C >= t]
    misses = (guesses - right) * error  # of E[r - C; C >= t]
    for count in range(right - 1, -1, -1):
        needed_misses = canaries * float(_alarm(min(1.0, hits / canaries), mu))
        mass = max(0.0, (needed_misses - misses) / (guesses - count))  # of P[C = count]
        total += mass
        hits += count * mass
        misses += (guesses - count) * mass
        # a probability above 1 is a contradiction; after a mass of 0, all further ones are 0
        if total > 1 + UP or not mass:
            break
    return total > 1 + UP


def mean_right(guesses: int, canaries: int, mu: float) -> float:
    """Return the expected number of right guesses among the canaries with the extreme scores.

    It supposes that no canary changes another's score, and that each has the full privacy loss.

    Args:
        guesses: how many canaries are guessed, those whose scores are the clearest.
        canaries: how many canaries there are.
        mu: the mu of the mechanism.
    """
    share = guesses / canaries

    def guesses_too_few(power: float) -> bool:
        return power + _alarm(power, mu) < share

    power = bisect(guesses_too_few, share / 2, share, midpoint)[1]
    return canaries * power


def _alarm(power: float, mu: float) -> float:
    """Return the least false alarm rate of a test with this power, under mu-GDP.

    It is the inverse of g in docs/proofs/one_run.md.
    """
    return float(ndtr(ndtri(power) - mu))


# -- audits
# --------------------------------------------------------------------------------------------------


def one_run_epsilon(
    right: int, guesses: int, canaries: int, delta: float, confidence: float, bound: OneRunBound
) -> float:
    """Return a lower bound on epsilon at ``delta``, at least 0.

    With ``right = guesses`` it is the largest bound that so many guesses can give.

    Args:
        right: how many guesses were right, at most ``guesses``.
        guesses: how many were made, at least 1; fixed before the coins were known.
        canaries: how many canaries there were, at least ``guesses``; each was included by a fair
            separate coin.
        delta: at least 0 and below 1.
        confidence: the probability with which the bound holds, at least 0.5 and below 1.
        bound: "exact" for every mechanism, "gdp" only for those that are mu-GDP.

    Raises:
        ValueError: ``delta`` is 0 with the bound "gdp".
    """
    error = 1 - confidence
    if bound == "exact":

        def epsilon_refused(epsilon: float) -> bool:
            return exact(right, guesses, canaries, epsilon, delta) * (1 + UP) <= error

        return _largest_refused(epsilon_refused)
    if not delta:
        raise ValueError(
            f"bound={bound} needs delta > 0, because Gaussian noise is not "
            "epsilon-differentially private with delta = 0"
        )
    mu = _largest_refused(lambda mu: refuses(right, guesses, canaries, mu, error))
    return epsilon_of_mu(mu, delta)


def epsilon_of_mu(mu: float, delta: float) -> float:
    """Return the least epsilon for which mu-GDP implies (epsilon, delta)-DP; 0 for mu = 0."""
    return gaussian_epsilon(mu, delta) if mu else 0.0


def planned_guesses(
    canaries: int, epsilon: float, delta: float, confidence: float, bound: OneRunBound
) -> int:
    """Return the number of guesses with the largest expected bound, if the claim is tight.

    It depends on the claim only, so it may be computed before the run. It supposes that no canary
    changes another's score.

    Without delta, all canaries are guessed, because randomized response is equally sure of each.
    Otherwise only numbers are considered that contradict the claim if all guesses are right, if
    there are such: the expected bound may then be smaller if the claim holds, but a violated claim
    can be contradicted.

    Args:
        canaries: how many canaries there are.
        epsilon: the epsilon of the claim.
        delta: the delta of the claim.
        confidence: the probability with which the bound holds.
        bound: "exact" for every mechanism, "gdp" only for those that are mu-GDP.
    """
    if not delta:
        return canaries
    mu = gaussian_mu(epsilon, delta)
    halvings = range(2 * canaries.bit_length())  # of sqrt(2) each
    candidates = sorted({max(1, round(canaries * 2 ** (-half / 2))) for half in halvings})

    def shown_epsilon(right: int, guesses: int) -> float:
        return one_run_epsilon(right, guesses, canaries, delta, confidence, bound)

    # with these numbers, some outcome contradicts the claim
    sufficient = [guesses for guesses in candidates if shown_epsilon(guesses, guesses) > epsilon]

    def expected_epsilon(guesses: int) -> float:
        return shown_epsilon(int(mean_right(guesses, canaries, mu)), guesses)

    return max(sufficient or [canaries], key=expected_epsilon)


def _largest_refused(is_refused: Callable[[float], bool]) -> float:
    """Return the largest number that is refused, up to ``_TOLERANCE`` below it; 0 if none is.

    Args:
        is_refused: number -> whether it is refused. All numbers below a refused one must be
            refused, and some number must not be.
    """
    high = 1.0
    while is_refused(high):
        high *= 2

    def next_middle(low: float, high: float) -> float:
        if high - low > _TOLERANCE:
            return midpoint(low, high)
        return low  # ends the bisection

    return bisect(is_refused, 0.0, high, next_middle)[0]
