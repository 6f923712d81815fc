"""A second opinion on composition.py: privacy loss distributions of the dp-accounting library.

The library discretises the privacy loss and rounds it up (pessimistic), so its eps is an upper
bound too. Its RandomizedResponseDpEvent is not used: in version 0.6 it ignores the count.
"""

import math

from dp_accounting.pld import common, privacy_loss_distribution

from agt.mechanisms.guarantees import GaussianDP, Guarantee

_CELLS = 200_000  # cells of the total's loss distribution, at most


def pld_total(guarantee: Guarantee, queries: int, delta: float) -> float:
    """eps of ``queries`` releases at ``delta``, by convolution of privacy loss distributions.

    Args:
        guarantee: of one query; eps-DP and (eps, delta)-DP through their dominating pair, mu-GDP as
            a Gaussian mechanism.
    """
    cell = _cell(guarantee, queries)
    if isinstance(guarantee, GaussianDP):
        one = privacy_loss_distribution.from_gaussian_mechanism(
            1 / guarantee.mu, value_discretization_interval=cell, use_connect_dots=True
        )
    else:
        parameters = common.DifferentialPrivacyParameters(
            guarantee.eps, getattr(guarantee, "delta", 0.0)
        )
        one = privacy_loss_distribution.from_privacy_parameters(
            parameters, value_discretization_interval=cell
        )
    return float(one.self_compose(queries).get_epsilon_for_delta(delta))


def _cell(guarantee: Guarantee, queries: int) -> float:
    """The width of a cell: a whole fraction of eps, where the loss takes the values -eps and eps
    alone.
    """
    if isinstance(guarantee, GaussianDP):
        spread = guarantee.mu * math.sqrt(queries) * (20 + guarantee.mu * math.sqrt(queries))
        return max(spread / _CELLS, guarantee.mu / 1000)
    return guarantee.eps
