"""How Gaussian a number of releases is that are each eps-DP: the least mu for which all of them
together are mu-GDP.

Formal guarantees
    Q releases, each eps-DP given what the others said, are a post-processing of Q randomized
    responses, each of which says the truth with probability 1/(1 + e^-eps) (Kairouz, Oh and
    Viswanath 2015). Let J ~ Bin(Q, 1/(1 + e^eps)). The tradeoff function of Q randomized responses
    is piecewise linear with the vertices (1, 0), (0, 1) and, for j = 1..Q, (a_j, b_j), a_j = P(J >=
    j), b_j = P(J >= Q - j + 1): Neyman and Pearson's tests are "at least j of them say so", and the
    second error of one is the first error of its mirror image. G_mu is convex: it lies below that
    function if and only if it does at the vertices, that is if mu >= z(a_j) + z(b_j) for every j, z
    = -Phi^-1. Of Q > ``BLOCK``, blocks compose: mu^2 of all of them is at most the sum of each
    block's (Dong, Roth and Su 2022, Corollary 2). That costs .03 % of mu. Rounding. Tails are sums
    of logarithms of binomial probabilities, none left out however small. Each of the fewer than 16
    roundings of a term is of a number of at most T, each of the Q sums' of one of at most M
    (``_tails``); what is wrong with a logarithm moves z by at most R(0) = 1.2533 times as much, as
    R = (1-Phi)/phi falls and z >= 0 for the smaller of two tails. Where eps is so small that this
    outweighs mu, Q times one release's mu^2 is less, and taken.
"""

import math
from functools import lru_cache

import numpy as np
from scipy.special import erfinv, gammaln, ndtri_exp

from agt.numeric import UNIT, UP, next_up

BLOCK = 1024  # a tenth of a millisecond

_INVERSE = 1e-11  # relative, of Phi^-1(exp(x)); tests find less than 10^-12


def squared_mu(eps: float, size: int) -> float:
    """mu^2, rounded up, for which ``size`` eps-DP releases are together mu-GDP; at most size times
    that of one.

    Args:
        eps: in [1e-15, 100].
        size: >= 1.
    """
    blocks, rest = divmod(size, BLOCK)
    parts = [blocks * _block(eps, BLOCK)] if blocks else []
    return next_up(math.fsum([*parts, _block(eps, rest)] if rest else parts)) * (1 + 4 * UNIT)


def single_mu(eps: float) -> float:
    """The least mu for which every eps-DP release is mu-GDP, rounded up: 2 Phi^-1(e^eps / (1 +
    e^eps)).
    """
    # Phi(x) = (1 + erf(x / sqrt 2)) / 2: exact to the last places, also where eps is below them
    if eps < 1:
        return 2 * math.sqrt(2) * float(erfinv(math.tanh(eps / 2))) * (1 + UP)
    return -2 * float(ndtri_exp(-eps - math.log1p(math.exp(-eps)))) * (1 + UP)


@lru_cache(maxsize=8192)
def _block(eps: float, size: int) -> float:
    """mu^2 of up to ``BLOCK`` releases, rounded up: the greatest z(a_j) + z(b_j) over j,
    squared, or that of one by one.
    """
    z, error = _tails(eps, size)
    mirrored = z[::-1]
    vertices = next_up(
        float((z + mirrored + _INVERSE * (np.abs(z) + np.abs(mirrored))).max()) + 2.6 * error
    )
    return next_up(next_up(min(size * single_mu(eps) ** 2, vertices**2)))


def _tails(eps: float, size: int) -> tuple[np.ndarray, float]:
    """(z(a_j) for j = 1..Q, [Q]; how far each logarithm of a tail may be off)."""
    said, not_said = (
        -eps - math.log1p(math.exp(-eps)),
        -math.log1p(math.exp(-eps)),
    )  # logarithms of 1/(1+e^eps), 1/(1+e^-eps)
    j = np.arange(size + 1)
    factorial = gammaln(j + 1)
    terms = factorial[-1] - factorial - factorial[::-1] + j * said + (size - j) * not_said
    above = np.logaddexp.accumulate(terms[::-1])[::-1][1:]  # log P(J >= j)
    below = np.logaddexp.accumulate(terms)[:-1]  # log P(J < j)
    largest, longest = 3 * float(factorial[-1]) - size * said, float(np.abs(terms).max())  # T, M
    error = UNIT * (16 * (largest + 1) + 4 * size * (longest + 1))
    return np.where(
        above < below, -ndtri_exp(np.minimum(above, 0)), ndtri_exp(np.minimum(below, 0))
    ), error
