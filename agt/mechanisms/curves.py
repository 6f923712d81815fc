"""Privacy curves: for every eps the delta at which releases are (eps, delta)-DP, as numbers.

sample_curve(PureDP(0.1), releases=100).csv        points to plot or to export
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Annotated

import numpy as np
from pydantic import Field

from agt.errors import ConfigError
from agt.mechanisms.budget import Allowance
from agt.mechanisms.composition import delta_of, smallest_holding
from agt.mechanisms.guarantees import Guarantee
from agt.settings import NonNegative, schema

CURVE_POINTS = 65
SHOWN_DELTAS = tuple(10.0**-n for n in range(1, 13))  # whose least eps is looked for
_END_DELTA = 1e-12  # a curve ends where delta is within this of its limit for large eps

Deltas = Annotated[tuple[Annotated[float, Field(ge=0, le=1)], ...], Field(min_length=1)]
Epsilons = Annotated[tuple[NonNegative, ...], Field(min_length=1)]


@schema
class Curve:
    """A privacy curve, as points each of which holds on its own.

    Attributes:
        eps: [n] from 0 upwards.
        delta: [n] releases are (eps, delta)-DP; rounded up.
        at_delta: [m] usual values of delta; those below all of the curve are left out.
        at_eps: [m] the least eps for each of ``at_delta``, rounded up.

    Raises:
        ConfigError: lengths differ, or eps falls or delta grows along the curve.

    Formal guarantees
        Between two points the delta of the left one holds (Lemma 8 of docs/proofs/tables.md).
    """

    eps: Epsilons
    delta: Deltas
    at_delta: tuple[Annotated[float, Field(ge=0, le=1)], ...] = ()
    at_eps: tuple[NonNegative, ...] = ()

    def __post_init__(self) -> None:
        if len(self.eps) != len(self.delta) or len(self.at_delta) != len(self.at_eps):
            raise ConfigError("a privacy curve must have as many values of delta as of eps")
        for eps, delta in ((self.eps, self.delta), (self.at_eps, self.at_delta)):
            if list(eps) != sorted(eps) or list(delta) != sorted(delta, reverse=True):
                raise ConfigError("a privacy curve must have increasing eps and decreasing delta")

    @property
    def points(self) -> tuple[tuple[float, float], ...]:
        """All points (eps, delta), by growing eps; of equal eps, the largest delta first."""
        all_eps = (*self.eps, *self.at_eps)
        all_deltas = (*self.delta, *self.at_delta)
        pairs = zip(all_eps, all_deltas, strict=True)
        return tuple(sorted(pairs, key=lambda point: (point[0], -point[1])))

    @property
    def csv(self) -> str:
        """The points as CSV with a header."""
        lines = [f"{eps!r},{delta!r}\n" for eps, delta in self.points]
        return "".join(["eps,delta\n", *lines])


@lru_cache(maxsize=256)
def sample_curve(guarantee: Guarantee, releases: int) -> Curve:
    """Return the curve of releases whose number and guarantee are fixed beforehand.

    Args:
        guarantee: of each release.
        releases: how many there are, at least 1.
    """
    return _sample(lambda eps: delta_of(guarantee, releases, eps))


@lru_cache(maxsize=256)
def sample_budget_curve(allowance: Allowance) -> Curve:
    """Return the curve of all that a budget's filters ever admit, however it is chosen."""
    return _sample(allowance.delta_of)


def _sample(delta_at: Callable[[float], float]) -> Curve:
    """Return the curve of a function from eps to delta, which never grows with eps."""
    limit = delta_at(1e300)
    end_delta = limit + max(_END_DELTA, limit / 1e3)
    beyond_end = 1.0
    while delta_at(beyond_end) > end_delta and beyond_end < 1e12:
        beyond_end *= 2

    def least_eps(delta: float, largest_eps: float) -> float:
        return smallest_holding(lambda eps: delta_at(eps) <= delta, 0.0, largest_eps)

    end = least_eps(end_delta, beyond_end)
    eps = np.linspace(0, end, CURVE_POINTS).tolist()
    # A delta that holds at a smaller eps holds here: where rounding made it grow, take that one.
    deltas = np.minimum.accumulate([delta_at(value) for value in eps]).tolist()
    at_deltas = [delta for delta in SHOWN_DELTAS if delta_at(end) <= delta < deltas[0]]
    at_eps = [least_eps(delta, end) for delta in at_deltas]
    return Curve(tuple(eps), tuple(deltas), tuple(at_deltas), tuple(at_eps))
