"""The least mu for which a number of eps-DP releases are together mu-GDP.

squared_mu(0.1, 100)                1.0046: 100 releases at eps = 0.1 are together 1.0023-GDP
"""

import math
from functools import lru_cache

import numpy as np
import scipy  # whose parts load when they are first used

from agt.numeric import UNIT, UP, next_up

BLOCK_RELEASES = 1024  # releases whose tradeoff function is computed, in a tenth of a millisecond
_QUANTILE_ERROR = 1e-11  # relative error of scipy's Phi^-1(exp(x)); tests find less than 10^-12


def squared_mu(eps: float, releases: int) -> float:
    """Return mu^2 for which a number of eps-DP releases together are mu-GDP, rounded up.

    Args:
        eps: the eps of each release, whatever the others released; in [1e-15, 100].
        releases: Q, the number of releases, at least 1.

    Formal guarantees
        - The result is never below the least such mu^2, and at most Q times that of one release.
        - Beyond 1,024 releases it exceeds the least by about 0.06 %, because mu^2 is computed for
          blocks of 1,024 releases and added.
    """
    # Lemma 2 of docs/proofs/gaussian_equivalent.md: mu^2 of all releases is at most the sum over
    # blocks of them.
    full_blocks, remaining_releases = divmod(releases, BLOCK_RELEASES)
    parts = []
    if full_blocks > 0:
        parts.append(full_blocks * _squared_mu_of_block(eps, BLOCK_RELEASES))
    if remaining_releases > 0:
        parts.append(_squared_mu_of_block(eps, remaining_releases))
    # fsum rounds once, to nearest; the factor covers the products.
    return next_up(math.fsum(parts)) * (1 + 4 * UNIT)


def single_mu(eps: float) -> float:
    """Return the least mu for which every eps-DP release is mu-GDP, rounded up.

    It is 2 Phi^-1(e^eps / (1 + e^eps)), where Phi is the standard normal distribution function.

    Args:
        eps: the eps of the release, in [1e-15, 100].
    """
    if eps < 1:
        # Phi(x) = (1 + erf(x / sqrt 2)) / 2 gives x = sqrt(2) erfinv(tanh(eps / 2)), in which no
        # digit of a small eps is lost.
        half_mu = math.sqrt(2) * float(scipy.special.erfinv(math.tanh(eps / 2)))
        return 2 * half_mu * (1 + UP)
    log_false_rate = _log_true_rate(eps) - eps  # log(1 / (1 + e^eps))
    return -2 * float(scipy.special.ndtri_exp(log_false_rate)) * (1 + UP)


@lru_cache(maxsize=8192)
def _squared_mu_of_block(eps: float, releases: int) -> float:
    """Return mu^2 for which a block of eps-DP releases together are mu-GDP, rounded up.

    mu is the least one whose Gaussian tradeoff function lies below that of as many randomized
    responses. If eps is so small that rounding errors outweigh mu, mu^2 is the sum of the single
    releases' mu^2.

    Args:
        eps: the eps of each release, in [1e-15, 100].
        releases: the number of releases, from 1 to ``BLOCK_RELEASES``.
    """
    # Lemma 1 of docs/proofs/gaussian_equivalent.md: the releases are mu-GDP if mu is at least the
    # sum of the quantiles of both errors at every vertex; the second error of a vertex is the first
    # error of its mirror image.
    quantiles, logarithm_error = _tail_quantiles(eps, releases)
    mirrored = quantiles[::-1]
    inversion_error = _QUANTILE_ERROR * (np.abs(quantiles) + np.abs(mirrored))
    largest = float((quantiles + mirrored + inversion_error).max())
    # Lemma 3 of docs/proofs/gaussian_equivalent.md: an error t of the logarithms moves the sum of
    # two quantiles by at most 2.6 t.
    mu_of_vertices = next_up(largest + 2.6 * logarithm_error)
    squared_one_by_one = releases * single_mu(eps) ** 2
    return next_up(next_up(min(squared_one_by_one, mu_of_vertices**2)))


def _tail_quantiles(eps: float, releases: int) -> tuple[np.ndarray, float]:
    """Return normal quantiles of binomial tails, and a bound on their logarithms' rounding errors.

    The tails are the type I errors at the vertices of the tradeoff function of Q randomized
    responses: P(J >= j) for J ~ Bin(Q, 1 / (1 + e^eps)).

    Args:
        eps: the eps of each randomized response.
        releases: Q, the number of releases.

    Returns:
        ([Q] quantiles -Phi^-1(P(J >= j)) for j = 1..Q, the bound).
    """
    log_true_rate = _log_true_rate(eps)
    log_false_rate = log_true_rate - eps  # of 1 / (1 + e^eps)
    j = np.arange(releases + 1)
    log_factorial = scipy.special.gammaln(j + 1)
    log_binomial = log_factorial[-1] - log_factorial - log_factorial[::-1]
    terms = log_binomial + j * log_false_rate + (releases - j) * log_true_rate  # log P(J = j)
    sums_from_above = np.logaddexp.accumulate(terms[::-1])[::-1]
    log_above = sums_from_above[1:]  # log P(J >= j) for j = 1..Q
    log_below = np.logaddexp.accumulate(terms)[:-1]  # log P(J < j) for j = 1..Q
    # Lemma 3 of docs/proofs/gaussian_equivalent.md: a logarithm errs by at most
    # u (16 (T + 1) + 4 Q (M + 1)), where T is the largest number rounded within a term, and M the
    # largest term.
    largest_part = 3 * float(log_factorial[-1]) - releases * log_false_rate
    largest_term = float(np.abs(terms).max())
    roundings = 16 * (largest_part + 1) + 4 * releases * (largest_term + 1)
    # P(J >= j) and P(J < j) have the same quantile up to the sign. The smaller of the two is the
    # more exact one.
    from_above = -scipy.special.ndtri_exp(np.minimum(log_above, 0))
    from_below = scipy.special.ndtri_exp(np.minimum(log_below, 0))
    quantiles = np.where(log_above < log_below, from_above, from_below)
    return quantiles, UNIT * roundings


def _log_true_rate(eps: float) -> float:
    """Return log(1 / (1 + e^-eps)), the log-probability that randomized response is true."""
    return -math.log1p(math.exp(-eps))
