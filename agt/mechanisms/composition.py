"""Accounting: many releases about the same data, from one query's guarantee to the total and back.

| one query        | bounds on the total over Q queries, chosen adaptively or not                                        |
|------------------|-----------------------------------------------------------------------------------------------------|
| PureDP(e)        | basic: Q e. advanced: e sqrt(2 Q ln(1/delta)) + Q e (exp(e)-1). optimal: below, exact for RR         |
| ApproximateDP    | the same, after Q leaks: with delta0 each, 1 - (1-delta)/(1-delta0)^Q in place of delta             |
| GaussianDP(mu)   | gaussian: mu sqrt(Q)-GDP, exact                                                                     |

Formal guarantees
    basic, advanced: Dwork and Roth 2014, Theorems 3.16 and 3.20. optimal: Kairouz, Oh, Viswanath
    2015, Theorem 3.3; for e-DP mechanisms  delta(E) = P(J >= j) - exp(E) P(Q - J >= j),  J ~ Bin(Q,
    1/(1+exp(-e))), j the least integer with (2j - Q) e > E: the sum in method.md section 4, its
    second part rewritten, as exp(E - (2i-Q)e) P(J=i) = exp(E) P(Q-J=i). Exact for the composition
    of Q randomized responses with delta = 0, an upper bound for every other e-DP mechanism.
    ApproximateDP: an (e, d)-DP mechanism is a post-processing of "leak with probability d, else
    randomized response" (the same paper), so the optimal total is delta = 1 - (1-d)^Q (1 -
    delta(E)). The pure formula alone would forget the leaks: ``pure_delta`` refuses anything but
    PureDP. The classical bounds spend Q d first and the rest of delta after.
    gaussian: Dong, Roth, Su 2022, Corollary 2.
    Guarantees of different kinds are not added up: that raises ConfigError, as does anything
    unknown.
    Numbers are rounded so that the true loss is never above the one returned; tails come from
    regularised incomplete beta functions, whose relative error is taken as 10^-9 (tests find far
    less, up to Q = 10^9, the limit of ``optimal``). The loss counts every query, answered or not,
    whatever the data: a realised loss depends on private data.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, ClassVar, Literal, TypeVar

from pydantic import ConfigDict, Field
from scipy.special import betainc

from agt import sentences
from agt.errors import ConfigError
from agt.mechanisms.gaussian_equivalent import squared_mu
from agt.mechanisms.guarantees import GREATEST, LEAST, ApproximateDP, GaussianDP, Guarantee, PureDP
from agt.messages import Message
from agt.numeric import UP, bisect, midpoint, mills_delta, written
from agt.settings import STRICT, NonNegative

BoundName = Literal["basic", "advanced", "optimal", "gaussian"]

BOUNDS: tuple[BoundName, ...] = ("basic", "advanced", "optimal", "gaussian")

PUBLISHED = ("basic", "advanced")  # what the papers choose from

MAX_QUERIES = 10**12

MAX_OPTIMAL = 10**9

_ULP = 1 + 2**-50  # a few roundings of double precision

# a total mu beyond which rounding is not covered by UP; eps would be about mu^2 / 2
_MEANINGLESS = 1e5

G = TypeVar("G", bound=PureDP | ApproximateDP | GaussianDP)


@dataclass(frozen=True)
class Total:
    """The privacy loss of all queries together.

    Attributes:
        eps, delta: they are (eps, delta)-DP in all.
        bound: which bound gave eps.
    """

    eps: NonNegative
    delta: Annotated[float, Field(ge=0, lt=1)]
    bound: BoundName

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    def __str__(self) -> str:
        return sentences.total(self.eps, self.delta, self.bound)


def total(
    guarantee: Guarantee, queries: int, delta: float, bounds: Sequence[str] = BOUNDS
) -> Total:
    """The least eps for which ``queries`` releases are (eps, delta)-DP together. Arguments as
    ``eps_by_bound``.

    Raises:
        ConfigError: Q or delta is out of range, or no bound applies.
    """
    each = eps_by_bound(guarantee, queries, delta, bounds)
    if not each:
        raise ConfigError(_nothing(guarantee, queries, delta, bounds))
    best = min(each, key=lambda name: each[name])
    if not math.isfinite(each[best]):
        raise ConfigError(
            f"queries = {queries} at {guarantee} each: the total privacy loss overflows; lower "
            "either"
        )
    return Total(each[best], delta, best)


def eps_by_bound(
    guarantee: Guarantee, queries: int, delta: float, bounds: Sequence[str] = BOUNDS
) -> dict[BoundName, float]:
    """Return, by every bound that applies, the least eps for which releases are (eps, delta)-DP
    together.

    Args:
        guarantee: of one query.
        queries: Q, a fixed count.
        delta: in [0, 1); 0 allows pure eps-DP under the basic bound only.
        bounds: which bounds may be used (``PUBLISHED``: the papers' choice).

    Raises:
        ConfigError: Q or delta is out of range, or a bound is unknown.
    """
    _check(queries, delta, bounds)
    each = {
        name: bound(guarantee, queries, delta) for name, bound in _BY_NAME.items() if name in bounds
    }
    return {name: eps for name, eps in each.items() if eps is not None}


def per_query(
    kind: type[G], eps: float, delta: float, queries: int, bounds: Sequence[str] = BOUNDS
) -> G:
    """The largest budget per query that keeps ``queries`` of them (eps, delta)-DP in all.

    Args:
        kind: what the mechanism guarantees; an ApproximateDP's own deltas may use up half of the
            total's.

    Raises:
        ConfigError: no budget in [1e-15, 100] fits, or the kind is unknown.
    """
    _check(queries, delta, bounds)
    if not LEAST <= eps < math.inf:
        raise ConfigError(
            Message(
                "{config:eps} = {eps!r}: give the total budget as a number of at least {least:g}",
                eps=eps,
                least=LEAST,
            )
        )
    if kind not in (PureDP, ApproximateDP, GaussianDP):
        raise ConfigError(f"{kind!r}: no accountant for this kind of guarantee")
    if kind is ApproximateDP and not delta:
        raise ConfigError("delta = 0: (eps, delta)-DP queries need delta > 0")
    # as decimals, so that lots of a ledger share out what was meant
    own = [float(written(delta) / (2 * queries))] if kind is ApproximateDP else []

    def make(value: float) -> G:
        return kind(value, *own)

    def fits(value: float) -> bool:
        try:
            return total(make(value), queries, delta, bounds).eps <= eps
        except ConfigError:
            return False

    if not fits(LEAST):
        total(make(LEAST), queries, delta, bounds)  # says which bound is missing, if that is why
        raise ConfigError(
            f"eps = {eps:g} in all over {queries} queries leaves less than {LEAST:g} each: ask "
            "fewer queries"
        )
    return make(largest(fits, LEAST, GREATEST))


def delta_of(guarantee: Guarantee, queries: int, eps: float) -> float:
    """The delta for which ``queries`` releases, their number fixed beforehand, are (eps, delta)-DP
    together, rounded up.

    Raises:
        ConfigError: eps is negative, or no finite number.
    """
    if not (math.isfinite(eps) and eps >= 0):
        raise ConfigError(f"eps = {eps!r}: ask for delta at a finite eps >= 0")
    if isinstance(guarantee, GaussianDP):
        mu = guarantee.mu * math.sqrt(queries) * _ULP
        return mills_delta(eps, mu) if mu <= _MEANINGLESS else 1.0
    leak = 0.0
    if isinstance(guarantee, ApproximateDP):
        leak = min(1.0, -math.expm1(queries * math.log1p(-guarantee.delta)) * (1 + UP))
    pure = PureDP(guarantee.eps)
    if queries <= MAX_OPTIMAL or eps >= queries * guarantee.eps * _ULP:
        rest = pure_delta(pure, queries, eps)
    else:
        mu = math.sqrt(squared_mu(guarantee.eps, queries)) * _ULP
        rest = mills_delta(eps, mu) if mu <= _MEANINGLESS else 1.0
    return min(1.0, (leak + (1 - leak) * rest) * _ULP)


def pure_delta(guarantee: Guarantee, queries: int, eps: float) -> float:
    """delta(eps) of Q queries under the optimal bound for pure DP, rounded up.

    Raises:
        ConfigError: the guarantee has a delta of its own, which this accountant would forget.
    """
    if not isinstance(guarantee, PureDP):
        raise ConfigError(
            f"the pure-eps accountant takes eps-DP alone, and a query is {guarantee}: use total"
        )
    e = guarantee.eps
    if eps >= queries * e * _ULP:
        return 0.0
    j = min(math.floor((queries + eps / e) / 2) + 1, queries)
    p = 1 / (1 + math.exp(-e))
    up = float(betainc(j, queries - j + 1, p))
    down = float(betainc(j, queries - j + 1, 1 / (1 + math.exp(e))))
    # leaving it out only adds to delta
    lost = math.exp(eps) * down * (1 - UP) if eps < 700 else 0.0
    return min(1.0, max(0.0, up * (1 + UP) - lost))


def _basic(guarantee: Guarantee, queries: int, delta: float) -> float | None:
    if isinstance(guarantee, GaussianDP) or _unspent(guarantee, queries, delta) < 0:
        return None
    return queries * guarantee.eps * _ULP


def _advanced(guarantee: Guarantee, queries: int, delta: float) -> float | None:
    if isinstance(guarantee, GaussianDP):
        return None
    rest = _unspent(guarantee, queries, delta)
    if rest <= 0:
        return None
    e = guarantee.eps
    return (e * math.sqrt(-2 * queries * math.log(rest)) + queries * e * math.expm1(e)) * _ULP


def _optimal(guarantee: Guarantee, queries: int, delta: float) -> float | None:
    if isinstance(guarantee, GaussianDP) or queries > MAX_OPTIMAL or delta <= 0:
        return None
    rest = delta
    if isinstance(guarantee, ApproximateDP):
        log_kept = queries * math.log1p(-guarantee.delta) * _ULP  # (1-d)^Q, rounded down
        rest = (delta * (1 - 2**-50) + math.expm1(log_kept)) * (1 - UP) if log_kept > -700 else -1.0
    pure, most = PureDP(guarantee.eps), queries * guarantee.eps * _ULP
    if rest < 0:
        return None
    return least(lambda eps: pure_delta(pure, queries, eps) <= rest, 0.0, most)


def _gaussian(guarantee: Guarantee, queries: int, delta: float) -> float | None:
    if not isinstance(guarantee, GaussianDP) or delta <= 0:
        return None
    mu = guarantee.mu * math.sqrt(queries) * _ULP
    if mu > _MEANINGLESS:
        return None
    most = mu * (mu / 2 + 40)  # delta is below 10^-300 there
    if mills_delta(most, mu) > delta:
        return None
    return least(lambda eps: mills_delta(eps, mu) <= delta, 0.0, most)


_BY_NAME: dict[BoundName, Callable[[Guarantee, int, float], float | None]] = {
    "basic": _basic,
    "advanced": _advanced,
    "optimal": _optimal,
    "gaussian": _gaussian,
}


def _unspent(guarantee: PureDP | ApproximateDP, queries: int, delta: float) -> float:
    """What the queries' own deltas leave of delta: subtracted exactly, rounded down."""
    return float(Fraction(delta) - queries * Fraction(getattr(guarantee, "delta", 0.0))) / _ULP


def least(holds: Callable[[float], bool], low: float, high: float) -> float:
    """The least value at which a monotone condition holds, from above; it holds at ``high``."""
    return low if holds(low) else bisect(lambda value: not holds(value), low, high, midpoint)[1]


def largest(holds: Callable[[float], bool], low: float, high: float) -> float:
    """The largest value at which a monotone condition holds, from below, by halving ratios; it
    holds at ``low``.
    """
    return high if holds(high) else bisect(holds, low, high, lambda a, b: math.sqrt(a * b))[0]


def _check(queries: int, delta: float, bounds: Sequence[str]) -> None:
    if isinstance(queries, bool) or not isinstance(queries, int) or not 1 <= queries <= MAX_QUERIES:
        raise ConfigError(f"queries = {queries!r}: give a whole number from 1 to {MAX_QUERIES:.0e}")
    if not 0 <= delta < 1:
        raise ConfigError(
            f"delta = {delta!r}: give a number from 0 to below 1, far below one over the records"
        )
    unknown = [name for name in bounds if name not in _BY_NAME]
    if unknown:
        raise ConfigError(f"composition '{unknown[0]}' is unknown (known: {', '.join(BOUNDS)})")


def _nothing(guarantee: Guarantee, queries: int, delta: float, bounds: Sequence[str]) -> str:
    why = (
        f"{queries} queries, each {guarantee}: none of the bounds {', '.join(bounds)} gives a "
        f"total at delta = {delta:g}"
    )
    if isinstance(guarantee, ApproximateDP):
        return (
            f"{why}; the queries' own deltas use up {queries * guarantee.delta:g}: allow a "
            "larger delta in all"
        )
    return f"{why}; allow a delta > 0"
