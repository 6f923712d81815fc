"""The Gaussian mechanism: mu-GDP and (epsilon, delta), both ways, exactly (Dong, Roth and Su 2022; Balle and Wang 2018)."""

import math

from scipy.special import log_ndtr

from agt.errors import ConfigError

_ROUNDING = 2.0**-48  # relative, of a logarithm of Phi: 32 units in the last place


def gaussian_delta(epsilon: float, mu: float) -> float:
    """delta(epsilon) = Phi(-epsilon/mu + mu/2) - e^epsilon Phi(-epsilon/mu - mu/2) of a mu-GDP mechanism.

    Args:
        epsilon: >= 0.
        mu: sensitivity over standard deviation; 0: nothing is learnt, delta = 0.

    Returns:
        delta, rounded up: what the difference may have lost to rounding is added.
    """
    if mu == 0:
        return 0.0
    first = float(log_ndtr(mu / 2 - epsilon / mu))
    second = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    lost = _ROUNDING * (1 + epsilon + abs(first) + abs(second))
    return math.exp(first) * (lost - math.expm1(min(second - first, 0.0)))


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The largest mu whose mechanism is (epsilon, delta)-private, rounded down; by bisection: delta grows with mu.

    Raises:
        ConfigError: epsilon < 0, or delta outside (0, 1): Gaussian noise gives no pure epsilon.
    """
    if not epsilon >= 0 or not math.isfinite(epsilon) or not 0 < delta < 1:
        raise ConfigError(
            f"epsilon={epsilon:g}, delta={delta:g}: Gaussian noise needs a finite epsilon >= 0 and 0 < delta < 1"
        )
    low, high = 0.0, 1.0
    while gaussian_delta(epsilon, high) <= delta:
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian_delta(epsilon, middle) <= delta else (low, middle)
    return low
