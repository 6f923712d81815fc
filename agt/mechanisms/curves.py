"""Privacy curves: points (eps, delta) such that releases are (eps, delta)-DP for each of them.

sample_curve(PureDP(0.1), releases=100).csv        points to plot or to export
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Annotated

import numpy as np
from pydantic import Field

from agt.errors import ConfigError
from agt.mechanisms.budget import Allowance
from agt.mechanisms.composition import delta_of, smallest_holding
from agt.mechanisms.guarantees import Guarantee
from agt.settings import NonNegative, Share, schema

CURVE_POINTS = 65  # at equal distances in eps
SHOWN_DELTAS = tuple(10.0**-n for n in range(1, 13))  # the deltas for which the least eps is given
_END_DELTA = 1e-12  # a curve ends where delta is so close to its limit for large eps

Deltas = Annotated[tuple[Share, ...], Field(min_length=1)]
Epsilons = Annotated[tuple[NonNegative, ...], Field(min_length=1)]


@schema
class Curve:
    """Points (eps, delta) of a privacy curve: the releases are (eps, delta)-DP for each point.

    Formal guarantees
        For an eps between two points the delta of the point with the smaller eps holds, because
        (eps, delta)-DP implies (eps', delta)-DP for every eps' > eps (Lemma 8 of
        docs/proofs/tables.md).

    Attributes:
        eps: [n] in increasing order, from 0.
        delta: [n] for each of ``eps``, rounded up.
        at_delta: [m] the powers of ten that are values of delta on the curve, decreasing.
        at_eps: [m] the least eps for each of ``at_delta``, rounded up.

    Raises:
        ConfigError: lengths differ; or eps decreases or delta increases along the curve.
    """

    eps: Epsilons
    delta: Deltas
    at_delta: tuple[Share, ...] = ()
    at_eps: tuple[NonNegative, ...] = ()

    def __post_init__(self) -> None:
        """Raise ConfigError if lengths differ, or if eps decreases or delta increases."""
        if len(self.eps) != len(self.delta) or len(self.at_delta) != len(self.at_eps):
            raise ConfigError("a privacy curve must have as many values of delta as of eps")
        for eps, delta in ((self.eps, self.delta), (self.at_eps, self.at_delta)):
            if list(eps) != sorted(eps) or list(delta) != sorted(delta, reverse=True):
                raise ConfigError(
                    "a privacy curve must have increasing values of eps and decreasing values of "
                    "delta"
                )

    @property
    def points(self) -> tuple[tuple[float, float], ...]:
        """All points (eps, delta) in increasing order of eps; for equal eps, of decreasing delta.

        The points of ``at_eps`` and ``at_delta`` are included.
        """
        all_eps = (*self.eps, *self.at_eps)
        all_deltas = (*self.delta, *self.at_delta)
        pairs = zip(all_eps, all_deltas, strict=True)
        return tuple(sorted(pairs, key=lambda point: (point[0], -point[1])))

    @property
    def csv(self) -> str:
        """All points as CSV: the header "eps,delta", then a line for each point."""
        lines = [f"{eps!r},{delta!r}\n" for eps, delta in self.points]
        return "".join(["eps,delta\n", *lines])


@lru_cache(maxsize=256)
def sample_curve(guarantee: Guarantee, releases: int) -> Curve:
    """Return the privacy curve of a fixed number of releases with the same guarantee.

    Args:
        guarantee: the guarantee of each release.
        releases: the number of releases, at least 1, fixed before the first one.
    """
    return _sample(partial(delta_of, guarantee, releases))


@lru_cache(maxsize=256)
def sample_budget_curve(allowance: Allowance) -> Curve:
    """Return the privacy curve of everything that may ever be released within a budget.

    It holds for releases whose number and guarantees are chosen adaptively, as long as the budget's
    privacy filters admit each of them.

    Args:
        allowance: the budget with its filters.
    """
    return _sample(allowance.delta_of)


def _sample(delta_at: Callable[[float], float]) -> Curve:
    """Return a privacy curve with points at equal distances in eps, and at ``SHOWN_DELTAS``.

    Args:
        delta_at: eps -> the delta for which the releases are (eps, delta)-DP, rounded up. It does
            not increase with eps, apart from rounding.
    """
    # Delta falls with eps to a limit, which is above 0 if the releases may leak the data.
    limit = delta_at(1e300)
    # The curve ends where delta is within 1e-12, or within a thousandth, of its limit.
    end_delta = limit + max(_END_DELTA, limit / 1e3)
    # Doubling finds an eps beyond the end of the curve, and bisection then finds the end. The
    # doubling stops at 1e12, far above any eps of practical use.
    beyond_end = 1.0
    while delta_at(beyond_end) > end_delta and beyond_end < 1e12:
        beyond_end *= 2

    def least_eps(delta: float, largest_eps: float) -> float:
        """Return the least eps in [0, largest_eps] for which ``delta`` holds, rounded up."""
        return smallest_holding(lambda eps: delta_at(eps) <= delta, 0.0, largest_eps)

    end = least_eps(end_delta, beyond_end)
    eps = np.linspace(0, end, CURVE_POINTS).tolist()
    # A delta that holds at a smaller eps holds at a larger one, too. So the running minimum is
    # valid, and it removes increases that come from rounding.
    deltas = np.minimum.accumulate([delta_at(value) for value in eps]).tolist()
    at_deltas = [delta for delta in SHOWN_DELTAS if delta_at(end) <= delta < deltas[0]]
    at_eps = [least_eps(delta, end) for delta in at_deltas]
    return Curve(tuple(eps), tuple(deltas), tuple(at_deltas), tuple(at_eps))
