"""Privacy curves: for every eps the delta at which something is (eps, delta)-DP, as numbers that can be exported.

Formal guarantees
    Each point stands for itself: the truth is at or below it, as the functions that give delta round up. Between two points
    the greater delta holds, which is the left one's: (eps, delta)-DP implies (eps', delta)-DP for every eps' > eps.
"""

from collections.abc import Callable
from typing import Annotated

import numpy as np
from pydantic import Field

from agt.errors import ConfigError
from agt.mechanisms.account import Allowance
from agt.mechanisms.composition import delta_of
from agt.mechanisms.guarantee import Guarantee
from agt.numeric import bisect, midpoint
from agt.settings import NonNegative, schema

POINTS = 65
DELTAS = tuple(10.0**-n for n in range(1, 13))
_END = 1e-12  # the last eps is where delta is within this of what no eps takes away

Deltas = Annotated[tuple[Annotated[float, Field(ge=0, le=1)], ...], Field(min_length=1)]
Epsilons = Annotated[tuple[NonNegative, ...], Field(min_length=1)]


@schema
class Curve:
    """A privacy curve.

    Attributes:
        over: what it is about, in words.
        eps, delta: [n] the points, eps from 0 upwards.
        at_delta, at_eps: [m] the other way round: for usual deltas, the least eps; deltas below all of the curve left out.

    Raises:
        ConfigError: lengths differ, or eps falls or delta grows along it.
    """

    over: str
    eps: Epsilons
    delta: Deltas
    at_delta: tuple[Annotated[float, Field(ge=0, le=1)], ...] = ()
    at_eps: tuple[NonNegative, ...] = ()

    def __post_init__(self) -> None:
        if len(self.eps) != len(self.delta) or len(self.at_delta) != len(self.at_eps):
            raise ConfigError("a privacy curve has as many deltas as eps")
        for eps, delta in ((self.eps, self.delta), (self.at_eps, self.at_delta)):
            if list(eps) != sorted(eps) or list(delta) != sorted(delta, reverse=True):
                raise ConfigError("along a privacy curve eps grows and delta falls")

    @property
    def points(self) -> tuple[tuple[float, float], ...]:
        """(eps, delta) of both, in order."""
        both = zip((*self.eps, *self.at_eps), (*self.delta, *self.at_delta), strict=True)
        return tuple(sorted(both, key=lambda point: (point[0], -point[1])))

    @property
    def csv(self) -> str:
        """A line a point."""
        return "".join(("eps,delta\n", *(f"{eps!r},{delta!r}\n" for eps, delta in self.points)))


def curve_of(guarantee: Guarantee, queries: int) -> Curve:
    """Of releases whose number and guarantee are fixed beforehand, by the optimal composition."""
    over = "this release" if queries == 1 else f"these {queries} releases together"
    return _sampled(over, lambda eps: delta_of(guarantee, queries, eps))


def curve_of_budget(allowance: Allowance) -> Curve:
    """Of all that a budget's filters ever admit, however it is chosen."""
    return _sampled("all that is ever released under this budget", allowance.delta_of)


def _sampled(over: str, delta_of: Callable[[float], float]) -> Curve:
    end = 1.0
    floor = delta_of(1e300)
    while delta_of(end) > floor + max(_END, floor / 1e3) and end < 1e12:
        end *= 2
    end = _least(delta_of, floor + max(_END, floor / 1e3), end)
    eps = np.linspace(0, end, POINTS).tolist()
    delta = np.minimum.accumulate([delta_of(e) for e in eps]).tolist()
    at = [d for d in DELTAS if delta_of(end) <= d < delta[0]]
    return Curve(over, tuple(eps), tuple(delta), tuple(at), tuple(_least(delta_of, d, end) for d in at))


def _least(delta_of: Callable[[float], float], delta: float, high: float) -> float:
    """The least eps at which ``delta`` is reached, from above; it is at ``high``."""
    return bisect(lambda eps: delta_of(eps) > delta, 0.0, high, midpoint)[1] if delta_of(0.0) > delta else 0.0
