"""The account of a budget: what lots of releases cost together, and whether one more still fits.

A lot is a number of releases, fixed before the first of them is drawn, each with the same guarantee: a file of queries, the
weights of a head. Lots are chosen one after another, by people who have seen what earlier ones released: size, guarantee
and whether there is another at all may depend on it. Composition theorems for settings fixed beforehand say nothing then;
what holds is a filter (Rogers, Roth, Ullman and Vadhan 2016): a rule, on public settings alone, that refuses the lot which
would go too far.

Formal guarantees
    One lot of Q releases, as ``Cost`` has it:
        pure   it is pure-DP with this eps, if finite: Q eps (basic composition).
        mu     after leaking everything with probability ``leak`` (at most Q delta), it is mu-GDP: mu sqrt(Q) for GDP; for
               pure eps, every eps-DP mechanism is GDP with mu = 2 Phi^-1(e^eps / (1 + e^eps)), as the tradeoff of
               randomized response has its one inner vertex at a = b = 1/(1 + e^eps), and G_mu is convex.
    Budget (E, D) over all lots. A lot is admitted only if, it included, one of these holds:
        gaussian   leaks L = sum leak < D, M^2 = sum mu^2, and delta of M-GDP at E is at most D - L. For GDP the filter with
                   the sum of squares holds with adaptively chosen parameters (Smith and Thakurta 2022, Theorem 1); leaks
                   add up by the union bound.
        pure       sum of pure eps <= E (Rogers et al. 2016, Theorem 3.1 at delta = 0).
    Either of two suffices, of which one is pure: both sums only grow, so a transcript on which the pure sum is within E at
    its end is one of the analyst who stops before it would not be; let A be the set of these, B the others, on which
    gaussian holds. P(S) = P(S and A) + P(S and B) <= e^E P'(S and A) + e^E P'(S and B) + D.
    Sums are rounded up. What is refused depends on lots alone, which are public; never on an answer.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from scipy.special import ndtri

from agt.errors import ConfigError
from agt.mechanisms.guarantee import ApproximateDP, GaussianDP, Guarantee
from agt.numeric import UP, bisect, mills_delta, next_up, whole_midpoint


@dataclass(frozen=True)
class Lot:
    """Releases whose number is fixed before the first is drawn.

    Attributes:
        guarantee: of each.
        size: how many.

    Raises:
        ConfigError: not at least one.
    """

    guarantee: Guarantee
    size: int = 1

    def __post_init__(self) -> None:
        if isinstance(self.size, bool) or not isinstance(self.size, int) or self.size < 1:
            raise ConfigError(f"a lot of {self.size!r} releases: give a whole number of at least 1")

    @property
    def cost(self) -> "Cost":
        """What it costs, each number rounded up."""
        guarantee, size = self.guarantee, self.size
        if isinstance(guarantee, GaussianDP):
            return Cost(math.inf, _up(size * _up(guarantee.mu**2)), 0.0)
        square, leak = _up(size * _up(gaussian_of_pure(guarantee.eps) ** 2)), 0.0
        if isinstance(guarantee, ApproximateDP):
            leak = _up(size * guarantee.delta)
        return Cost(math.inf if leak else _times(size, guarantee.eps), square, leak)


@dataclass(frozen=True)
class Cost:
    """What lots cost together.

    Attributes:
        pure: they are pure-DP with this eps; inf: they are not.
        square: mu^2: after the leaks they are mu-GDP.
        leak: probability of leaking everything.
    """

    pure: float = 0.0
    square: float = 0.0
    leak: float = 0.0

    def plus(self, other: "Cost") -> "Cost":
        """Both together."""
        return Cost(*(_up(a + b) if a and b else a + b for a, b in zip(self._each, other._each, strict=True)))

    def as_json(self) -> dict[str, float | None]:
        """Plain values; null for infinity."""
        return {"pure": self.pure if math.isfinite(self.pure) else None, "square": self.square, "leak": self.leak}

    @classmethod
    def of(cls, node: Mapping[str, float | None]) -> "Cost":
        """What ``as_json`` gave."""
        return cls(**{name: math.inf if value is None else value for name, value in node.items()})

    @property
    def _each(self) -> tuple[float, float, float]:
        return self.pure, self.square, self.leak

    def delta_of(self, eps: float) -> float:
        """The least delta for which all of it is (eps, delta)-DP, by either filter."""
        if self.pure <= eps:
            return 0.0
        return min(1.0, _up(self.leak + mills_delta(eps, _up(math.sqrt(self.square)))))


@dataclass(frozen=True)
class Allowance:
    """A budget for good: what everything about one population may cost together.

    Attributes:
        eps, delta: all of it is (eps, delta)-DP; delta = 0: pure.

    Raises:
        ConfigError: eps is not positive and finite, or delta not in [0, 1).
    """

    eps: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.eps) and self.eps > 0):
            raise ConfigError(f"total.eps={self.eps!r}: give the budget as a positive number")
        if not 0 <= self.delta < 1:
            raise ConfigError(
                f"total.delta={self.delta!r}: give a number from 0 to below 1, far below one over the records"
            )

    def admits(self, cost: Cost) -> bool:
        """Whether this much may be spent in all."""
        return cost.delta_of(self.eps) <= self.delta

    def fitting(self, spent: Cost, guarantee: Guarantee, wanted: int) -> int:
        """The largest lot, up to ``wanted``, that still fits; 0: none."""

        def fits(size: int) -> bool:
            return size == 0 or self.admits(spent.plus(Lot(guarantee, size).cost))

        return wanted if fits(wanted) else bisect(fits, 0, wanted, whole_midpoint)[0]


def gaussian_of_pure(eps: float) -> float:
    """The least mu for which every eps-DP mechanism is mu-GDP, rounded up."""
    return -2 * float(ndtri(1 / (1 + math.exp(eps)))) * (1 + UP)


def _up(value: float) -> float:
    return next_up(value) if math.isfinite(value) else value


def _times(size: int, each: float) -> float:
    """size * each, rounded up, and not where it is exact."""
    product = size * each
    return product if Fraction(product) >= size * Fraction(each) else next_up(product)
