"""The least mu for which a number of eps-DP releases are together mu-GDP.

squared_mu(0.1, 100)                1.0046: 100 releases at eps = 0.1 are together 1.0023-GDP
"""

import math
from functools import lru_cache

import numpy as np
from scipy.special import erfinv, gammaln, ndtri_exp

from agt.numeric import UNIT, UP, next_up

BLOCK_RELEASES = 1024  # releases that are looked at together, in a tenth of a millisecond
_QUANTILE_ERROR = 1e-11  # relative, of Phi^-1(exp(x)); tests find less than 10^-12


def squared_mu(eps: float, releases: int) -> float:
    """Return mu^2 for which eps-DP releases are together mu-GDP, rounded up.

    Args:
        eps: of each release, whatever the others said; in [1e-15, 100].
        releases: Q, how many there are, at least 1.

    Formal guarantees
        - The result is never below the least mu^2, and at most Q times that of one release.
        - Beyond 1,024 releases it exceeds the least by some 0.06 %, as blocks are added up.
    """
    # Lemma 2 of docs/proofs/gaussian_equivalent.md
    full_blocks, rest = divmod(releases, BLOCK_RELEASES)
    parts = []
    if full_blocks:
        parts.append(full_blocks * _squared_mu_of_block(eps, BLOCK_RELEASES))
    if rest:
        parts.append(_squared_mu_of_block(eps, rest))
    return next_up(math.fsum(parts)) * (1 + 4 * UNIT)


def single_mu(eps: float) -> float:
    """Return the least mu for which every eps-DP release is mu-GDP, rounded up.

    It is 2 Phi^-1(e^eps / (1 + e^eps)).
    """
    if eps < 1:
        # Phi(x) = (1 + erf(x / sqrt 2)) / 2, so that no digit of a small eps is lost.
        half_mu = math.sqrt(2) * float(erfinv(math.tanh(eps / 2)))
        return 2 * half_mu * (1 + UP)
    log_false_rate = _log_true_rate(eps) - eps
    return -2 * float(ndtri_exp(log_false_rate)) * (1 + UP)


@lru_cache(maxsize=8192)
def _squared_mu_of_block(eps: float, releases: int) -> float:
    """Return mu^2 of up to ``BLOCK_RELEASES`` releases, rounded up.

    It is that of the tradeoff function's vertices or, where rounding outweighs that, the sum of
    single releases'.
    """
    # Lemma 1 of docs/proofs/gaussian_equivalent.md gives the vertices, and Lemma 3 of
    # docs/proofs/gaussian_equivalent.md the factor 2.6 of the error.
    quantiles, error = _tail_quantiles(eps, releases)
    mirrored = quantiles[::-1]
    inversion_error = _QUANTILE_ERROR * (np.abs(quantiles) + np.abs(mirrored))
    largest = float((quantiles + mirrored + inversion_error).max())
    mu_of_vertices = next_up(largest + 2.6 * error)
    squared_one_by_one = releases * single_mu(eps) ** 2
    return next_up(next_up(min(squared_one_by_one, mu_of_vertices**2)))


def _tail_quantiles(eps: float, releases: int) -> tuple[np.ndarray, float]:
    """Return the normal quantiles of the first errors at the vertices.

    Returns:
        ([Q] z(P(J >= j)) for j = 1..Q, how far the logarithm of each tail may be off).
    """
    log_true_rate = _log_true_rate(eps)
    log_false_rate = log_true_rate - eps  # of 1 / (1 + e^eps)
    j = np.arange(releases + 1)
    log_factorial = gammaln(j + 1)
    log_binomial = log_factorial[-1] - log_factorial - log_factorial[::-1]
    terms = log_binomial + j * log_false_rate + (releases - j) * log_true_rate
    log_above = np.logaddexp.accumulate(terms[::-1])[::-1][1:]  # P(J >= j)
    log_below = np.logaddexp.accumulate(terms)[:-1]  # P(J < j)
    # Lemma 3 of docs/proofs/gaussian_equivalent.md: T and M
    largest_part = 3 * float(log_factorial[-1]) - releases * log_false_rate
    largest_term = float(np.abs(terms).max())
    roundings = 16 * (largest_part + 1) + 4 * releases * (largest_term + 1)
    # The smaller of two tails is the more exact one.
    from_above = -ndtri_exp(np.minimum(log_above, 0))
    from_below = ndtri_exp(np.minimum(log_below, 0))
    quantiles = np.where(log_above < log_below, from_above, from_below)
    return quantiles, UNIT * roundings


def _log_true_rate(eps: float) -> float:
    """Return the logarithm of 1 / (1 + e^-eps), how often randomized response says the truth."""
    return -math.log1p(math.exp(-eps))
