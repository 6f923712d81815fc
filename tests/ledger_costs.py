"""What answers cost, by formulas that share no code with the accountant of a ledger."""

import math
from decimal import Decimal, localcontext
from itertools import accumulate

import numpy as np
from scipy.special import ndtri_exp

from agt.mechanisms.budget import Cost
from agt.mechanisms.guarantees import Guarantee

COST_TOLERANCE = 1e-9  # relative difference of a cost in decimals from the same cost in floats
MU_TOLERANCE = 1e-7  # relative; the accountant rounds mu up
MU_ERROR = 1e-10  # absolute error of mu in double precision


def is_wrong_cost(cost: Cost, *lots: tuple[Guarantee, int]) -> bool:
    """Return whether a ledger's cost of some answers differs from that by this module's formulas.

    n answers that are (eps, delta)-DP cost n eps and n delta, and ``square_of_responses`` as their
    square. n answers that are mu-GDP cost infinite eps, and n mu^2 as their square.

    Args:
        cost: the cost that the ledger charges for all answers together.
        lots: (the guarantee of each answer, how many answers), for answers of each guarantee.
    """
    pure = 0.0
    leak = 0.0
    square = 0.0
    for guarantee, size in lots:
        eps = getattr(guarantee, "eps", math.inf)
        mu = getattr(guarantee, "mu", None)
        pure += size * eps
        leak += size * getattr(guarantee, "delta", 0.0)
        square += square_of_responses(eps, size) if mu is None else size * mu**2
    same_pure = np.isclose(float(cost.pure), pure, rtol=COST_TOLERANCE, atol=0)
    same_leak = np.isclose(float(cost.leak), leak, rtol=COST_TOLERANCE, atol=0)
    same_mu = math.isclose(
        math.sqrt(cost.square), math.sqrt(square), rel_tol=MU_TOLERANCE, abs_tol=MU_ERROR
    )
    return not (same_pure and same_leak and same_mu)


def square_of_responses(eps: float, size: int) -> float:
    """Return the least mu^2 for which some randomized responses together are mu-GDP.

    It is that of the most powerful test among "at least j of the answers are true"; mu has an error
    of ``MU_ERROR``. Binomial tails are summed in ``Decimal``, with 60 digits, and without code of
    the accountant.

    Args:
        eps: the epsilon of each response.
        size: how many responses, 1 to 1,000, which the accountant composes as one block.
    """
    with localcontext(prec=60):
        odds = Decimal(eps).exp()
        # probabilities of the numbers of true answers, up to one factor; the largest number first
        terms = [math.comb(size, truths) * odds**truths for truths in range(size, -1, -1)]
        *at_least, total = accumulate(terms)
        *at_most, _ = accumulate(reversed(terms))
        log_upper = [float((tail / total).ln()) for tail in at_least]
        log_lower = [float((tail / total).ln()) for tail in reversed(at_most)]
    # Two complementary tails add up to 1. The smaller one gives the accurate quantile, because the
    # other one may be rounded to 1.
    points = []
    for upper, lower in zip(ndtri_exp(log_upper), ndtri_exp(log_lower), strict=True):
        points.append(float(min(upper, 0) - min(lower, 0)))
    mu = max(point + opposite for point, opposite in zip(points, reversed(points), strict=True))
    return mu**2
