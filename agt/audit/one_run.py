"""Audits in one run: many canaries, each put in by its own coin, and what guessing the coins says of epsilon.

guesses_from(scores, included, k, l)    scores of canaries -> how many of the surest guesses are right
one_run_epsilon(..., bound="exact")     a lower bound on epsilon from them, by one of ``BOUNDS``
contradicts(guesses, epsilons, ...)     whether they contradict all of a claimed privacy curve
planned_guesses(...)                    how many guesses to make, fixed before the run
canaries_needed(...)                    how many canaries could contradict a claim at all

Formal guarantees: agt/audit/one_run_bounds.py has the statements and their proofs. They need fair coins, drawn apart from
each other and from everything else, and a number of guesses that was fixed before the coins were known. A half that is
drawn to be exactly half, or canaries in the order of their coins, are not that.

BOUNDS
    steinke      every (epsilon, delta)-DP mechanism
    exact        every (epsilon, delta)-DP mechanism; no bound from the counts alone is greater
    gdp          every mechanism that is mu-GDP; epsilon is that of mu at delta: it says nothing of an (epsilon, delta) that
                 was not derived from a mu
    independent  the same, and canaries that do not meet, which the auditor declares: false without
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from agt.audit import one_run_bounds as bounds
from agt.numeric import UP, bisect, gaussian_epsilon, gaussian_mu, midpoint, whole_midpoint

MOST = 2**24  # canaries
_CLOSE = 1e-6  # how near the bound's end is sought: of a number between 0 and some tens


@dataclass(frozen=True)
class Guesses:
    """How a guesser did in one run.

    Attributes:
        right: guesses that were.
        made: guesses; the other canaries were left out.
        canaries: each in by its own fair coin.

    Raises:
        ValueError: no guesses, more right than made, or more made than canaries.
    """

    right: int
    made: int
    canaries: int

    def __post_init__(self) -> None:
        if not 0 <= self.right <= self.made <= self.canaries or not self.made:
            raise ValueError(
                f"{self.right} right of {self.made} guesses on {self.canaries} canaries: "
                "need 1 <= made <= canaries, 0 <= right <= made"
            )


def guesses_from(scores: np.ndarray, included: np.ndarray, positive: int, negative: int) -> Guesses:
    """The ``positive`` canaries with the highest scores are guessed to be in, the ``negative`` with the lowest to be out.

    Equal scores come in an order that is drawn from a fixed seed: neither the coins nor the canaries' places decide.

    Args:
        scores: [m] float, higher: rather in.
        included: [m] bool: the coins.
        positive, negative: numbers of guesses, fixed before the coins were known.

    Raises:
        ValueError: lengths differ, a score that is NaN, or more guesses than canaries.
    """
    m = len(scores)
    if len(included) != m or np.isnan(scores).any():
        raise ValueError(f"{m} scores of canaries, {np.isnan(scores).sum()} of them NaN, for {len(included)} coins")
    if positive < 0 or negative < 0 or positive + negative > m:
        raise ValueError(f"{positive} guesses of in and {negative} of out on {m} canaries")
    order = np.lexsort((np.random.default_rng(0).permutation(m), scores))
    coins = np.asarray(included, bool)[order]
    right = int(coins[m - positive :].sum() + (~coins[:negative]).sum())
    return Guesses(right, positive + negative, m)


Bound = Callable[[Guesses, float, float], float]  # guesses, delta, error -> epsilon


def steinke(guesses: Guesses, delta: float, error: float) -> float:
    """Steinke, Nasr and Jagielski 2023, Theorem 5.2: P[right >= v] <= P[B >= v] + 2 m delta max_i P[v > B >= v - i] / i for
    every (epsilon, delta)-DP mechanism, B binomial of r trials at e^eps / (1 + e^eps). Proof: one_run_bounds.py."""
    return _greatest(lambda epsilon: _at_most(bounds.steinke(*_counts(guesses), epsilon, delta), error))


def exact(guesses: Guesses, delta: float, error: float) -> float:
    """Ours: P[right >= v] <= beta + m delta beta (1 - beta) / (v b(v)) for every (epsilon, delta)-DP mechanism, with
    beta = P[B >= v], b(v) = P[B = v]; one of them attains it. Proof: one_run_bounds.py."""
    return _greatest(lambda epsilon: _at_most(bounds.exact(*_counts(guesses), epsilon, delta), error))


def gdp(guesses: Guesses, delta: float, error: float) -> float:
    """Mahloujifar, Melis and Chaudhuri 2025 for the curves of mu-GDP: E[C; C >= t] <= m g(E[(r - C); C >= t - 1] / m) for
    every t, g(x) = Phi(Phi^-1(x) + mu). Proof: one_run_bounds.py.

    Returns:
        epsilon of the greatest mu that is refused, at ``delta``, within 10^-8.
    """
    return _of_mu(_greatest(lambda mu: bounds.refuses(*_counts(guesses), bounds.gaussian_alarm(mu), error)), delta)


def independent(guesses: Guesses, delta: float, error: float) -> float:
    """Xiang and others 2025 for the curves of mu-GDP and canaries that do not meet: of m independent draws from N(0, 1) or
    N(mu, 1) the r surest are guessed, summed exactly. Proof, and why the condition is needed: one_run_bounds.py.

    Returns:
        epsilon of the greatest mu that is refused, at ``delta``, within 10^-8.
    """
    return _of_mu(
        _greatest(lambda mu: _at_most(bounds.independent(*_counts(guesses), bounds.gaussian_alarm(mu)), error)), delta
    )


BOUNDS: dict[str, Bound] = {"steinke": steinke, "exact": exact, "gdp": gdp, "independent": independent}


def one_run_epsilon(
    right: int, guesses: int, canaries: int, delta: float, confidence: float, bound: str, events: int = 1
) -> float:
    """A lower bound on epsilon at ``delta``; 0 where nothing is shown. With ``right = guesses`` it is the most that so many
    guesses could ever show.

    Args:
        right: guesses that were right.
        guesses: how many were made, fixed before the coins were known.
        canaries: each in by its own fair coin.
        confidence: that the bound holds, at least one half.
        bound: a name of ``BOUNDS``, which says for which mechanisms it holds.
        events: how many numbers of guesses, guessers or bounds were tried before the best was taken: the error probability
            is shared among them.

    Raises:
        ValueError: counts that contradict themselves, delta outside [0, 1), no delta for a Gaussian curve, a confidence
            below one half, or another bound.
    """
    if bound not in BOUNDS:
        raise ValueError(f"bound={bound}: choose from {', '.join(BOUNDS)}")
    if not 0 <= delta < 1 or not 0.5 <= confidence < 1 or events < 1:
        raise ValueError(f"delta={delta}, confidence={confidence}, events={events}: need [0, 1), [0.5, 1) and 1 or more")
    if not delta and BOUNDS[bound] in (gdp, independent):
        raise ValueError(f"bound={bound} needs delta > 0: Gaussian noise has no pure epsilon")
    return BOUNDS[bound](Guesses(right, guesses, canaries), delta, (1 - confidence) / events)


def contradicts(
    guesses: Guesses,
    epsilons: np.ndarray,
    deltas: np.ndarray,
    confidence: float,
    events: int = 1,
    *,
    independent: bool = False,
) -> bool:
    """Whether a mechanism is not (epsilon, delta)-DP for every pair of a claimed curve: by the bound of ``gdp`` for the
    curve that they make, which sees more than any pair of them alone.

    Args:
        epsilons, deltas: [n] the pairs, epsilon >= 0; each holds for records added and removed.
        independent: the auditor declares that the canaries do not meet; then by the bound of that name.
    """
    alarm, error = bounds.alarm_of(epsilons, deltas), (1 - confidence) / events
    if independent:
        return _at_most(bounds.independent(*_counts(guesses), alarm), error)
    return bounds.refuses(*_counts(guesses), alarm, error)


def planned_guesses(
    canaries: int, epsilon: float, delta: float, confidence: float, bound: str, contradicting: bool = False
) -> int:
    """How many guesses show the most, on canaries that do not meet, of a mechanism that spends all of its claim.

    It rests on the claim alone, so it may be asked before the run. Where the claim has no delta, all: randomized response
    is as sure of each canary as of any other.

    Args:
        contradicting: only of the numbers that contradict the claim if all guesses are right, where there are any: less is
            shown of a mechanism that holds, and more can be of one that does not.
    """
    if not delta:
        return canaries
    alarm = bounds.gaussian_alarm(gaussian_mu(epsilon, delta))
    numbers = sorted({max(1, round(canaries * 2 ** (-halves / 2))) for halves in range(2 * canaries.bit_length())})

    def shown(right: int, number: int) -> float:
        return one_run_epsilon(right, number, canaries, delta, confidence, bound)

    if contradicting:
        numbers = [number for number in numbers if shown(number, number) > epsilon] or [canaries]
    return max(numbers, key=lambda number: shown(int(bounds.mean_right(number, canaries, alarm)), number))


def canaries_needed(epsilon: float, delta: float, confidence: float, bound: str) -> int:
    """The least number of canaries that contradict a claim if all of them are guessed, and rightly; ``MOST`` stands for
    that and more."""

    def short(canaries: int) -> bool:
        return one_run_epsilon(canaries, canaries, canaries, delta, confidence, bound) <= epsilon

    high = 1
    while high < MOST and short(high):
        high *= 2
    return MOST if high >= MOST else bisect(short, high // 2, high, whole_midpoint)[1]


def _counts(guesses: Guesses) -> tuple[int, int, int]:
    return guesses.right, guesses.made, guesses.canaries


def _at_most(probability: float, error: float) -> bool:
    return probability * (1 + UP) <= error


def _greatest(refused: Callable[[float], bool]) -> float:
    """The greatest number that is refused, from below, given that all below it are; 0 where none is."""
    high = 1.0
    while refused(high):
        high *= 2
    return bisect(refused, 0.0, high, lambda a, b: midpoint(a, b) if b - a > _CLOSE else a)[0]


def _of_mu(mu: float, delta: float) -> float:
    return gaussian_epsilon(mu, delta) if mu else 0.0
