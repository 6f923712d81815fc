"""Composition: from one query's guarantee to the total over many queries, and back.

| one query      | bounds on the total over Q queries, chosen adaptively or not           |
|----------------|------------------------------------------------------------------------|
| PureDP(e)      | basic: Q e; advanced; optimal, which is exact for randomized response  |
| ApproximateDP  | as of PureDP, with part of delta spent on the queries' own deltas      |
| GaussianDP(mu) | gaussian: mu sqrt(Q)-GDP, exact                                        |

    total(PureDP(0.1), queries=100, delta=1e-5)         (4.31, 1e-05)-DP by the optimal bound
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
from agt.mechanisms.guarantees import (
    MAX_BUDGET,
    MIN_BUDGET,
    ApproximateDP,
    GaussianDP,
    Guarantee,
    PureDP,
)
from agt.messages import Message
from agt.numeric import UP, bisect, midpoint, mills_delta, written
from agt.settings import STRICT, NonNegative

BoundName = Literal["basic", "advanced", "optimal", "gaussian"]

BOUNDS: tuple[BoundName, ...] = ("basic", "advanced", "optimal", "gaussian")
PUBLISHED_BOUNDS = ("basic", "advanced")  # what the papers choose from

MAX_QUERIES = 10**12
MAX_OPTIMAL_QUERIES = 10**9  # up to which tests compare the incomplete beta function

_ROUNDINGS = 1 + 2**-50  # a factor larger than a few roundings of double precision

# A total mu beyond which rounding is not covered by UP; eps would be about mu^2 / 2.
_MAX_TOTAL_MU = 1e5

G = TypeVar("G", bound=PureDP | ApproximateDP | GaussianDP)


@dataclass(frozen=True)
class Total:
    """The privacy loss of all queries together.

    Attributes:
        eps: the queries are (eps, delta)-DP together.
        delta: see ``eps``; 0: pure differential privacy.
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
    """Return the least eps for which releases are (eps, delta)-DP together.

    Args:
        guarantee: of one query.
        queries: Q, fixed beforehand.
        delta: in [0, 1) of all queries together; 0 allows the basic bound on pure eps-DP only.
        bounds: which bounds may be used.

    Raises:
        ConfigError: Q or delta is out of range, a bound is unknown, or none applies.

    Formal guarantees
        - eps is never below the true one: it is rounded up (docs/proofs/composition.md).
        - The loss counts every query, answered or not, whatever the data: a realised loss would
          depend on private data.
    """
    eps_of = eps_by_bound(guarantee, queries, delta, bounds)
    if not eps_of:
        raise ConfigError(_no_bound_message(guarantee, queries, delta, bounds))
    best = min(eps_of, key=lambda name: eps_of[name])
    if not math.isfinite(eps_of[best]):
        raise ConfigError(
            f"{queries} queries at {guarantee} each have no finite total privacy loss: lower "
            "the number of queries or the budget of each"
        )
    return Total(eps_of[best], delta, best)


def eps_by_bound(
    guarantee: Guarantee, queries: int, delta: float, bounds: Sequence[str] = BOUNDS
) -> dict[BoundName, float]:
    """Return the least eps of a total, by each bound that applies.

    Args:
        guarantee: of one query.
        queries: Q, fixed beforehand.
        delta: in [0, 1) of all queries together; 0 allows the basic bound on pure eps-DP only.
        bounds: which bounds may be used (``PUBLISHED_BOUNDS``: the papers' choice).

    Returns:
        Bound -> eps, rounded up; without the bounds that do not apply.

    Raises:
        ConfigError: Q or delta is out of range, or a bound is unknown.
    """
    _check_arguments(queries, delta, bounds)
    eps_of: dict[BoundName, float] = {}
    for name, bound in _BOUND_FUNCTIONS.items():
        eps = bound(guarantee, queries, delta) if name in bounds else None
        if eps is not None:
            eps_of[name] = eps
    return eps_of


def per_query(
    kind: type[G], eps: float, delta: float, queries: int, bounds: Sequence[str] = BOUNDS
) -> G:
    """Return the largest guarantee per query that keeps a total (eps, delta)-DP, rounded down.

    Args:
        kind: what the mechanism guarantees. An ApproximateDP's own deltas use up half of the
            total's.
        eps: of all queries together.
        delta: of all queries together.
        queries: Q, fixed beforehand.
        bounds: which bounds may be used.

    Raises:
        ConfigError: no budget in [1e-15, 100] fits, or the kind is unknown.
    """
    _check_arguments(queries, delta, bounds)
    if not MIN_BUDGET <= eps < math.inf:
        raise ConfigError(
            Message(
                "{config:eps} = {eps!r}: give the total budget as a number of at least {least:g}",
                eps=eps,
                least=MIN_BUDGET,
            )
        )
    if kind not in (PureDP, ApproximateDP, GaussianDP):
        raise ConfigError(f"{kind!r}: no accountant for this kind of guarantee")
    if kind is ApproximateDP and not delta:
        raise ConfigError(
            "delta = 0: a query that is (eps, delta)-differentially private needs delta > 0: "
            "give a total delta above 0"
        )
    own_deltas = []
    if kind is ApproximateDP:
        # In decimals, so that the lots of a ledger share out the number that was meant.
        own_deltas = [float(written(delta) / (2 * queries))]

    def guarantee_with(value: float) -> G:
        return kind(value, *own_deltas)

    def fits(value: float) -> bool:
        try:
            return total(guarantee_with(value), queries, delta, bounds).eps <= eps
        except ConfigError:
            return False

    if not fits(MIN_BUDGET):
        # Called because it raises where a bound is missing, and says which.
        total(guarantee_with(MIN_BUDGET), queries, delta, bounds)
        raise ConfigError(
            f"a total of eps = {eps:g} over {queries} queries leaves less than {MIN_BUDGET:g} "
            "for each: ask fewer queries"
        )
    return guarantee_with(largest_holding(fits, MIN_BUDGET, MAX_BUDGET))


def delta_of(guarantee: Guarantee, queries: int, eps: float) -> float:
    """Return the delta for which releases are (eps, delta)-DP together, rounded up.

    Args:
        guarantee: of each release.
        queries: how many releases there are, fixed beforehand.
        eps: at least 0.

    Raises:
        ConfigError: eps is negative, or no finite number.
    """
    if not (math.isfinite(eps) and eps >= 0):
        raise ConfigError(
            f"eps = {eps!r}: delta can be computed only for a finite eps of at least 0"
        )
    if isinstance(guarantee, GaussianDP):
        total_mu = guarantee.mu * math.sqrt(queries) * _ROUNDINGS
        return _gaussian_delta(eps, total_mu)
    leak = 0.0
    if isinstance(guarantee, ApproximateDP):
        no_leak_logarithm = queries * math.log1p(-guarantee.delta)
        leak = min(1.0, -math.expm1(no_leak_logarithm) * (1 + UP))
    if queries <= MAX_OPTIMAL_QUERIES or eps >= queries * guarantee.eps * _ROUNDINGS:
        delta_without_leak = pure_delta(PureDP(guarantee.eps), queries, eps)
    else:
        total_mu = math.sqrt(squared_mu(guarantee.eps, queries)) * _ROUNDINGS
        delta_without_leak = _gaussian_delta(eps, total_mu)
    # Lemma 2 of docs/proofs/composition.md
    total_delta = leak + (1 - leak) * delta_without_leak
    return min(1.0, total_delta * _ROUNDINGS)


def pure_delta(guarantee: Guarantee, queries: int, eps: float) -> float:
    """Return the delta of pure-DP queries under the optimal bound, rounded up.

    Args:
        guarantee: of each query.
        queries: Q, at least 1.
        eps: at least 0; from Q times the query's eps on, delta is 0.

    Raises:
        ConfigError: the guarantee has a delta of its own, which this bound would forget.
    """
    if not isinstance(guarantee, PureDP):
        raise ConfigError(
            f"this accountant only handles pure eps-DP, but each query is {guarantee}: use "
            "total instead"
        )
    query_eps = guarantee.eps
    if eps >= queries * query_eps * _ROUNDINGS:
        return 0.0
    # Lemma 1 of docs/proofs/composition.md: delta = P(J >= j) - exp(eps) P(Q - J >= j)
    half = (queries + eps / query_eps) / 2
    j = min(math.floor(half) + 1, queries)
    true_rate = 1 / (1 + math.exp(-query_eps))
    false_rate = 1 / (1 + math.exp(query_eps))
    likely_tail = _binomial_tail(queries, true_rate, j)
    unlikely_tail = _binomial_tail(queries, false_rate, j)
    subtracted = 0.0  # leaving it out only adds to delta
    if eps < 700:  # exp(eps) is finite
        subtracted = math.exp(eps) * unlikely_tail * (1 - UP)
    return min(1.0, max(0.0, likely_tail * (1 + UP) - subtracted))


def _binomial_tail(trials: int, rate: float, successes: int) -> float:
    """Return the probability of at least so many successes, each with probability ``rate``."""
    return float(betainc(successes, trials - successes + 1, rate))


def _gaussian_delta(eps: float, mu: float) -> float:
    """Return the delta of a mu-GDP total at eps, rounded up; 1 where mu is beyond all use."""
    return mills_delta(eps, mu) if mu <= _MAX_TOTAL_MU else 1.0


def _basic_eps(guarantee: Guarantee, queries: int, delta: float) -> float | None:
    """Return eps of the total by basic composition; None: it does not apply."""
    if isinstance(guarantee, GaussianDP) or _remaining_delta(guarantee, queries, delta) < 0:
        return None
    return queries * guarantee.eps * _ROUNDINGS


def _advanced_eps(guarantee: Guarantee, queries: int, delta: float) -> float | None:
    """Return eps of the total by advanced composition; None: it does not apply."""
    if isinstance(guarantee, GaussianDP):
        return None
    # Lemma 3 of docs/proofs/composition.md
    remaining = _remaining_delta(guarantee, queries, delta)
    if remaining <= 0:
        return None
    eps = guarantee.eps
    variance = -2 * queries * math.log(remaining)
    deviation = eps * math.sqrt(variance)
    mean = queries * eps * math.expm1(eps)
    return (deviation + mean) * _ROUNDINGS


def _optimal_eps(guarantee: Guarantee, queries: int, delta: float) -> float | None:
    """Return eps of the total by the optimal bound; None: it does not apply."""
    if isinstance(guarantee, GaussianDP) or queries > MAX_OPTIMAL_QUERIES or delta <= 0:
        return None
    remaining = delta
    if isinstance(guarantee, ApproximateDP):
        # Lemma 2 of docs/proofs/composition.md, solved for the pure releases' delta. Its
        # denominator (1 - own delta)^Q is left out, which makes the result less.
        no_leak_logarithm = queries * math.log1p(-guarantee.delta) * _ROUNDINGS
        if no_leak_logarithm <= -700:
            return None
        difference = delta * (1 - 2**-50) + math.expm1(no_leak_logarithm)
        remaining = difference * (1 - UP)
    if remaining < 0:
        return None
    pure = PureDP(guarantee.eps)
    largest_eps = queries * guarantee.eps * _ROUNDINGS
    return smallest_holding(
        lambda eps: pure_delta(pure, queries, eps) <= remaining, 0.0, largest_eps
    )


def _gaussian_eps(guarantee: Guarantee, queries: int, delta: float) -> float | None:
    """Return eps of the total of Gaussian-DP queries; None: it does not apply."""
    if not isinstance(guarantee, GaussianDP) or delta <= 0:
        return None
    mu = guarantee.mu * math.sqrt(queries) * _ROUNDINGS  # Lemma 4 of docs/proofs/composition.md
    if mu > _MAX_TOTAL_MU:
        return None
    largest_eps = mu * (mu / 2 + 40)  # delta is below 10^-300 there
    if mills_delta(largest_eps, mu) > delta:
        return None
    return smallest_holding(lambda eps: mills_delta(eps, mu) <= delta, 0.0, largest_eps)


_BOUND_FUNCTIONS: dict[BoundName, Callable[[Guarantee, int, float], float | None]] = {
    "basic": _basic_eps,
    "advanced": _advanced_eps,
    "optimal": _optimal_eps,
    "gaussian": _gaussian_eps,
}


def _remaining_delta(guarantee: PureDP | ApproximateDP, queries: int, delta: float) -> float:
    """Return what the queries' own deltas leave of delta, subtracted exactly and rounded down.

    Below 0: they exceed it.
    """
    # Lemma 3 of docs/proofs/composition.md
    own_delta = Fraction(getattr(guarantee, "delta", 0.0))
    return float(Fraction(delta) - queries * own_delta) / _ROUNDINGS


def smallest_holding(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Return the smallest number at which a condition holds, approached from above.

    Args:
        holds: a condition that stays true once it is; it holds at ``high``.
        low: where the search begins; returned if the condition holds there.
        high: where the search ends.
    """
    if holds(low):
        return low
    return bisect(lambda value: not holds(value), low, high, midpoint)[1]


def largest_holding(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Return the largest number at which a condition holds, approached from below.

    The search halves ratios, for numbers of any magnitude.

    Args:
        holds: a condition that stays false once it is; it holds at ``low``.
        low: where the search begins, above 0.
        high: where the search ends; returned if the condition holds there.
    """
    if holds(high):
        return high
    return bisect(holds, low, high, lambda a, b: math.sqrt(a * b))[0]


def _check_arguments(queries: int, delta: float, bounds: Sequence[str]) -> None:
    """Raise ConfigError where arguments of a total are out of range or unknown."""
    if isinstance(queries, bool) or not isinstance(queries, int) or not 1 <= queries <= MAX_QUERIES:
        raise ConfigError(f"queries = {queries!r}: give a whole number from 1 to {MAX_QUERIES:.0e}")
    if not 0 <= delta < 1:
        raise ConfigError(
            f"delta = {delta!r}: give a number of at least 0 and below 1, far below 1 / "
            "(number of records)"
        )
    unknown = [name for name in bounds if name not in _BOUND_FUNCTIONS]
    if unknown:
        raise ConfigError(f"composition '{unknown[0]}' is unknown (known: {', '.join(BOUNDS)})")


def _no_bound_message(
    guarantee: Guarantee, queries: int, delta: float, bounds: Sequence[str]
) -> str:
    """Return what is wrong where no bound applies, and what to change."""
    reason = (
        f"{queries} queries, each {guarantee}, have no total at delta = {delta:g} under any "
        f"of the composition bounds {', '.join(bounds)}"
    )
    if isinstance(guarantee, ApproximateDP):
        return (
            f"{reason}, because the queries' own deltas already use up "
            f"{queries * guarantee.delta:g}: allow a larger total delta"
        )
    return f"{reason}: allow a total delta > 0"
