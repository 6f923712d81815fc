"""What may be concluded of a mechanism that was run once, from how many of its canaries' coins were guessed.

The game: each of m canaries is in the data by its own fair coin; the mechanism runs once; a guesser who sees what it gave
out, and no coin, guesses at most r coins; C guesses are right. Neighbours differ in one canary. Every bound below is a
number that P[C >= v] does not exceed where the claim is true; a claim is refused at error p where the bound is at most p.
None supposes anything of the guesser, who may have looked at all scores before he chose; r is fixed before that.

Formal guarantees
    One coin at a time. Let M be (eps, delta)-DP. For every phi: {1, ..., r} -> [0, 1]

        E[C phi(C)] <= e^eps E[(r - C) phi(C + 1)] + m delta.                                                          (1)

    Fix coins u and a canary i, and let u' differ from u in i alone. "i is guessed, rightly for u, and phi(C(u)) accepts" is
    one event of what M gives out, of probability P under M(u), Q under M(u'), P <= e^eps Q + delta. For u' the same event
    reads "i is guessed, wrongly, and phi(C(u') + 1) accepts", as all other guesses are as right as before. u and u'
    are both uniform: averaged over u and summed over i, P gives E[C phi(C)], and Q gives E[(wrong guesses) phi(C + 1)].

    The best bound for (eps, delta) (ours). Let B be binomial of r trials at q = e^eps / (1 + e^eps), b its mass function,
    beta = P[B >= v], 1 <= v <= r. Then

        P[C >= v] <= beta + m delta K,   K = beta (1 - beta) / (v b(v)) = (1 - q) / (E[B | B >= v] - E[B | B < v]).    (2)

    Put y(c) = P[B >= max(c, v)] P[B < min(c, v)] / (c b(c)) for 1 <= c <= r, y(r + 1) = 0. As (c + 1) b(c + 1) =
    e^eps (r - c) b(c), c y(c) - e^eps (r - c) y(c + 1) = 1[c >= v] - beta for every c from 0 to r (Stein's equation). b is
    log-concave, so P[B < c] / b(c - 1) grows with c and P[B >= c] / b(c) falls: y is greatest at v, where it is K. By (1)
    with phi = y / K, P[C >= v] - beta = E[C y(C) - e^eps (r - C) y(C + 1)] <= m delta K. For the second form of K, sum
    c b(c) = e^eps (r - c + 1) b(c - 1) over c >= v: v b(v) = (1 + e^eps) E[(B - r q) 1[B >= v]].
    It is attained, so no bound from (m, r, v) alone is smaller: with x = m delta beta / (v b(v)) <= 1 (else the bound is 1)
    take r canaries by chance, C of law p(c) = (1 - x) b(c) + x b(c) 1[c >= v] / beta, and give out guesses of which C, by
    chance, are right. P[C >= v] is (2). It is (eps, delta)-DP: the events above have densities c p(c) / m and
    (r - c + 1) p(c - 1) / m, which exceed each other's e^eps-fold by delta in all (at c = v) and by nothing.

    Steinke, Nasr, Jagielski 2023, Theorem 5.2: P[C >= v] <= beta + 2 m delta M, M = max_i P[v - i <= B < v] / i. It follows
    from (2) wherever beta <= 1/2, which is all that an audit asks: E[B | B >= v] >= v, so K <= (1 - q) / d with
    d = E[v - B | B < v]. As P[v - i <= B < v] <= M i, (1 - beta) d = sum_{i >= 0} P[B < v - i] >= sum (1 - beta - M i)^+
    >= (1 - beta)^2 / (2 M). So K <= 2 M (1 - q) / (1 - beta) <= 2 M. (The half of it would do.)

    Curves: the bound of Mahloujifar, Melis and Chaudhuri 2025. Let g(x) be the best power, at false alarm x, of any test
    between neighbours that the claim allows; G_mu has g(x) = Phi(Phi^-1(x) + mu). g is concave and grows, so the argument
    of (1), Jensen's inequality in place of the sum, gives

        E[C; C >= t] <= m g(E[(r - C); C >= t - 1] / m)   for t = 1, ..., r.                                           (3)

    With S(t) = P[C >= t] the left side is t S(t) + sum_{c > t} S(c), and the right side's mean is (r - t + 1) S(t - 1) -
    sum_{c >= t} S(c). So S(t - 1) >= (m g^-1((t S(t) + sum_{c > t} S(c)) / m) + sum_{c >= t} S(c)) / (r - t + 1), which
    grows with each S: put S(v) >= p and S(c) >= 0 beyond, and a lower bound of S(0) follows, which grows with p. Where it
    exceeds 1, P[C >= v] < p. For mu-GDP and 100 or 200 canaries it refused at least nine tenths of the greatest mu that any
    bound from (m, r, v) does, which a linear program finds. A claim of several (eps, delta) at once has
    g^-1(a) >= e^-eps (a - delta) and >= 1 - delta - e^eps (1 - a), for the test and for its opposite.

    Canaries that do not meet: the order statistics of Xiang and others 2025, summed exactly. Suppose besides that all that
    the guesser sees is a randomized function of m independent draws, the i-th from P or Q as its coin says, and that the
    curve of P against Q is the claimed one, and symmetric. (Gaussian noise in orthogonal directions, one a canary, is such
    a thing over any number of steps, also where what is added besides depends on earlier ones: a canary's draws are one for
    each step, a step makes its sum of them, or, where the canary counts less, of less and more noise.) Then to know the
    draws themselves is better. Given them the coins are independent, and the guess of coin i is right with probability at
    most 1 / (1 + e^-|L_i|), L_i its log likelihood ratio: the r draws with the greatest |L_i|, equal ones in an order drawn
    by chance, dominate any other choice. Given which share u of all draws comes before the (r + 1)-st, the first r are
    independent, each right with probability a / u: half of that share says P, with power a at false alarm x = g^-1(a), and
    a + x = u, as the curve is symmetric. u is Beta(r + 1, m - r). So P[C >= v] <= E[P[Bin(r, a / u) >= v]], which only
    grows where g^-1 is bounded from below.
    The condition is needed: a mechanism that draws |L| once for all canaries is mu-GDP, and guessed far better than that
    with the probability that |L| is great. It cannot be told from the guesses: it is declared, or the bound is not used.
"""

from collections.abc import Callable

import numpy as np
from scipy.special import betainc, betainccinv, betaincinv, expit, ndtr, ndtri
from scipy.stats import binom

from agt.numeric import UP, bisect, midpoint

CELLS = 500  # of the integral over the share, each at its greater end
_CUT = 1e-12  # the probability of shares beyond the integral's ends, added
Alarm = Callable[[float | np.ndarray], np.ndarray]  # elementwise, from [0, 1] to [0, 1], growing


def steinke(right: int, guesses: int, canaries: int, epsilon: float, delta: float) -> float:
    """Theorem 5.2 of Steinke, Nasr and Jagielski 2023, for every (epsilon, delta)-DP mechanism (proof above).

    Returns:
        an upper bound of the probability of ``right`` right guesses or more, where B's tail is at most one half; else it
        exceeds one half, which is all that an audit at a confidence of one half or more asks.
    """
    tail = _tail(right, guesses, epsilon)
    shift = 2 * canaries * delta * _greatest_mean(right, guesses, float(expit(epsilon))) if delta and right else 0.0
    return min(1.0, tail + shift)


def exact(right: int, guesses: int, canaries: int, epsilon: float, delta: float) -> float:
    """The least bound that counts allow for every (epsilon, delta)-DP mechanism (ours, proof above)."""
    tail = _tail(right, guesses, epsilon)
    if not delta or not right:
        return tail
    mass = float(binom.pmf(right, guesses, expit(epsilon)))
    if mass < 1e-290:  # no ratio; beyond B's mean b falls by this factor and more from count to count
        fall = (guesses - right) / (right + 1) * float(np.exp(min(epsilon, 700.0)))
        return 1.0 if right <= guesses * expit(epsilon) else min(1.0, tail + canaries * delta / (right * (1 - fall)))
    extra = canaries * delta * tail / (right * mass)
    return 1.0 if extra >= 1 else tail + extra * (1 - tail)


def refuses(right: int, guesses: int, canaries: int, alarm: Alarm, error: float) -> bool:
    """Whether ``right`` right guesses or more have at most probability ``error`` under every mechanism of a curve: by the
    bound of Mahloujifar, Melis and Chaudhuri 2025 (proof above).

    Args:
        alarm: the curve as g^-1: a power -> the least false alarm, or a lower bound of it that grows with the power.
    """
    total, hits = error, right * error  # lower bounds of P[C >= t], E[C; C >= t]
    misses, mass = (guesses - right) * error, error  # of E[r - C; C >= t], P[C = t]
    for count in range(right - 1, -1, -1):
        needed = canaries * float(alarm(min(1.0, hits / canaries)))
        mass = max(0.0, (needed - misses) / (guesses - count))
        total, hits, misses = total + mass, hits + count * mass, misses + (guesses - count) * mass
        if total > 1 + UP or not mass:  # once nothing is needed, nothing is later
            break
    return total > 1 + UP


def gaussian_alarm(mu: float) -> Alarm:
    """g^-1 of ``mu``-GDP."""
    return lambda power: np.asarray(ndtr(ndtri(power) - mu))


def alarm_of(epsilons: np.ndarray, deltas: np.ndarray) -> Alarm:
    """g^-1 of what is (epsilon, delta)-DP for each of these pairs."""
    shrink, grow = np.exp(-epsilons), np.exp(np.minimum(epsilons, 700))

    def alarm(power: float | np.ndarray) -> np.ndarray:
        a = np.asarray(power)[..., None]
        lines: np.ndarray = np.maximum(shrink * (a - deltas), 1 - deltas - grow * (1 - a))
        return np.maximum(0, lines.max(axis=-1))

    return alarm


def independent(right: int, guesses: int, canaries: int, alarm: Alarm) -> float:
    """The order statistics' bound for a symmetric curve and canaries that do not meet, which it cannot check (proof above).

    Args:
        alarm: as of ``refuses``.
    """
    if guesses == canaries:
        return float(binom.sf(right - 1, guesses, _power(1.0, alarm)))
    shape = guesses + 1, canaries - guesses
    low, high = (_power(float(share), alarm) for share in (betaincinv(*shape, _CUT), betainccinv(*shape, _CUT)))
    powers = np.linspace(low, high, CELLS + 1)
    shares = powers + alarm(powers)
    tails = binom.sf(right - 1, guesses, (powers / shares)[:-1])  # they fall as the share grows
    return min(1.0, float(np.diff(betainc(*shape, shares)) @ tails) + 2 * _CUT)


def mean_right(guesses: int, canaries: int, alarm: Alarm) -> float:
    """How many guesses are right in the mean, of the surest ones, on canaries that do not meet and spend all of a curve."""
    return canaries * _power(guesses / canaries, alarm)


def _power(share: float, alarm: Alarm) -> float:
    """a with a + g^-1(a) = ``share``, from above."""
    return bisect(lambda power: power + float(alarm(power)) < share, share / 2, share, midpoint)[1]


def _tail(right: int, guesses: int, epsilon: float) -> float:
    """P[B >= right]."""
    return float(betainc(right, guesses - right + 1, expit(epsilon))) if right else 1.0


def _greatest_mean(right: int, guesses: int, rate: float) -> float:
    """max over i of P[right - i <= B < right] / i: the mean of b over the i counts below ``right``.

    b rises to its mode and falls on the way down, so the mean rises until b has fallen below it, and never again.
    """
    width = 64
    while True:
        counts = np.arange(right - 1, max(-1, right - 1 - width), -1)
        masses = binom.pmf(counts, guesses, rate)
        means = np.cumsum(masses) / np.arange(1, len(masses) + 1)
        passed = counts[-1] <= rate * (guesses + 1) - 1 and masses[-1] < means[-1]
        if passed or len(masses) == right:
            return float(means.max())
        width *= 4
