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

import scipy  # whose parts load when they are first used
from pydantic import ConfigDict, Field

from agt import sentences
from agt.errors import ConfigError
from agt.mechanisms.gaussian_equivalent import squared_mu
from agt.mechanisms.guarantees import ApproximateDP, GaussianDP, Guarantee, PureDP
from agt.messages import Message
from agt.numeric import UP, bisect, midpoint, mills_delta, printed_decimal
from agt.release_settings import MAX_BUDGET, MIN_BUDGET
from agt.settings import STRICT, NonNegative

BoundName = Literal["basic", "advanced", "optimal", "gaussian"]

BOUNDS: tuple[BoundName, ...] = ("basic", "advanced", "optimal", "gaussian")
PUBLISHED_BOUNDS = ("basic", "advanced")  # the papers take the better of these two

MAX_QUERIES = 10**12
# Tests compare the incomplete beta function, on which the optimal bound rests, up to this number.
MAX_OPTIMAL_QUERIES = 10**9

_ROUND_UP = 1 + 2**-50  # as a factor, it exceeds the error of a few roundings of double precision

# For a larger mu of all queries together, UP does not cover rounding; eps would be about mu^2 / 2.
MAX_TOTAL_MU = 1e5

G = TypeVar("G", bound=PureDP | ApproximateDP | GaussianDP)


@dataclass(frozen=True)
class Total:
    """An (eps, delta)-DP guarantee of several queries together, and the theorem that gave it.

    Attributes:
        eps: all queries together are (eps, delta)-DP.
        delta: see ``eps``; 0: pure differential privacy.
        bound: the composition bound that gave eps.
    """

    eps: NonNegative
    delta: Annotated[float, Field(ge=0, lt=1)]
    bound: BoundName

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    def __str__(self) -> str:
        """Return a phrase with the guarantee and the name of the bound."""
        return sentences.total(self.eps, self.delta, self.bound)


def total(
    guarantee: Guarantee, queries: int, delta: float, bounds: Sequence[str] = BOUNDS
) -> Total:
    """Return the least eps, by any composition bound, for which Q queries are (eps, delta)-DP.

    Args:
        guarantee: the guarantee of each query, whatever the other queries answered.
        queries: Q, the number of queries, fixed beforehand.
        delta: the delta of all queries together, in [0, 1); 0 allows only the basic bound on pure
            eps-DP.
        bounds: names of the bounds that may be used.

    Raises:
        ConfigError: Q or delta is out of range, a bound is unknown, or no bound applies.

    Formal guarantees
        - eps is rounded up: it is never below the exact value of the bound
          (docs/proofs/composition.md).
        - Every query counts in full, answered or not: a loss that depends on the answers would
          depend on private data.
    """
    eps_of = eps_by_bound(guarantee, queries, delta, bounds)
    if not eps_of:
        raise ConfigError(_no_bound_message(guarantee, queries, delta, bounds))
    best = min(eps_of, key=lambda name: eps_of[name])
    if not math.isfinite(eps_of[best]):
        raise ConfigError(
            f"the total privacy loss of {queries} queries, each of which is {guarantee}, is "
            "infinite: use fewer queries, or a smaller budget for each query"
        )
    return Total(eps_of[best], delta, best)


def eps_by_bound(
    guarantee: Guarantee, queries: int, delta: float, bounds: Sequence[str] = BOUNDS
) -> dict[BoundName, float]:
    """Return the least eps for which Q queries are (eps, delta)-DP, by each composition bound.

    Args:
        guarantee: the guarantee of each query, whatever the other queries answered.
        queries: Q, the number of queries, fixed beforehand.
        delta: the delta of all queries together, in [0, 1); 0 allows only the basic bound on pure
            eps-DP.
        bounds: names of the bounds to compute (``PUBLISHED_BOUNDS``: those that the papers
            compare).

    Returns:
        The name of the bound -> eps, rounded up; bounds that do not apply are left out.

    Raises:
        ConfigError: Q or delta is out of range, or a bound is unknown.
    """
    _check_arguments(queries, delta, bounds)
    eps_of: dict[BoundName, float] = {}
    for name, bound in _BOUND_FUNCTIONS.items():
        if name not in bounds:
            continue
        eps = bound(guarantee, queries, delta)
        if eps is not None:  # None: this bound does not apply
            eps_of[name] = eps
    return eps_of


def per_query(
    kind: type[G], eps: float, delta: float, queries: int, bounds: Sequence[str] = BOUNDS
) -> G:
    """Return the largest guarantee per query for which Q queries together are (eps, delta)-DP.

    Its parameter (eps or mu) is rounded down. It is found by bisection over ``total``.

    Args:
        kind: the type of the queries' guarantee. For ApproximateDP the queries' own deltas are
            fixed at delta / (2 Q) each, which is half of the total's delta; the rest is for
            composition.
        eps: the eps of all queries together.
        delta: the delta of all queries together.
        queries: Q, the number of queries, fixed beforehand.
        bounds: names of the composition bounds that may be used.

    Raises:
        ConfigError: no parameter in [1e-15, 100] fits, or the kind is unknown.
    """
    _check_arguments(queries, delta, bounds)
    _check_total(kind, eps, delta)
    own_deltas = []
    if kind is ApproximateDP:
        # delta is read as the decimal that it prints as, which is how a ledger counts it.
        own_deltas = [float(printed_decimal(delta) / (2 * queries))]

    def guarantee_with(value: float) -> G:
        """Return a query's guarantee with this eps (or mu), and the fixed delta of its own."""
        return kind(value, *own_deltas)

    def fits(value: float) -> bool:
        """Return whether Q queries with this eps (or mu) are together within the total."""
        try:
            return total(guarantee_with(value), queries, delta, bounds).eps <= eps
        except ConfigError:
            return False

    if not fits(MIN_BUDGET):
        # If no bound applies, this call raises the error that says why.
        total(guarantee_with(MIN_BUDGET), queries, delta, bounds)
        raise ConfigError(
            f"a total of eps = {eps:g} over {queries} queries leaves less than {MIN_BUDGET:g} "
            "(the smallest budget that agt accepts) for each query: ask fewer queries, or "
            "raise eps"
        )
    return guarantee_with(largest_holding(fits, MIN_BUDGET, MAX_BUDGET))


def _check_total(kind: type[G], eps: float, delta: float) -> None:
    """Raise ConfigError unless a total (eps, delta) can be divided among guarantees of a kind.

    Args:
        kind: the type of the queries' guarantee.
        eps: the eps of all queries together.
        delta: the delta of all queries together.
    """
    if not MIN_BUDGET <= eps < math.inf:
        raise ConfigError(
            Message(
                ("{config:eps} = {eps!r}: this total budget is too small; give at least {least:g}"),
                eps=eps,
                least=MIN_BUDGET,
            )
        )
    if kind not in (PureDP, ApproximateDP, GaussianDP):
        raise ConfigError(
            f"{kind!r}: agt cannot add up privacy losses of this kind of guarantee: give PureDP, "
            "ApproximateDP or GaussianDP"
        )
    if kind is ApproximateDP and not delta:
        raise ConfigError(
            "delta = 0: queries that are (eps, delta)-differentially private have a delta of "
            "their own, so the total delta cannot be 0. Give a total delta above 0"
        )


def delta_of(guarantee: Guarantee, queries: int, eps: float) -> float:
    """Return the delta for which Q releases together are (eps, delta)-DP, rounded up.

    Args:
        guarantee: the guarantee of each release, whatever the others released.
        queries: Q, the number of releases, fixed beforehand.
        eps: the eps of all releases together, at least 0.

    Raises:
        ConfigError: eps is negative, or no finite number.
    """
    if not (math.isfinite(eps) and eps >= 0):
        raise ConfigError(
            f"eps = {eps!r}: delta can be computed only for a finite eps of at least 0"
        )
    if isinstance(guarantee, GaussianDP):
        total_mu = guarantee.mu * math.sqrt(queries) * _ROUND_UP
        return _gaussian_delta(eps, total_mu)
    # An (eps, delta)-DP release can be simulated by an eps-DP one that leaks the data with
    # probability delta. ``leak`` bounds the probability that one of the releases leaks.
    leak = 0.0
    if isinstance(guarantee, ApproximateDP):
        no_leak_logarithm = queries * math.log1p(-guarantee.delta)
        leak = min(1.0, -math.expm1(no_leak_logarithm) * (1 + UP))
    if queries <= MAX_OPTIMAL_QUERIES or eps >= queries * guarantee.eps * _ROUND_UP:
        delta_without_leak = pure_delta(guarantee.eps, queries, eps)
    else:
        # The optimal bound is not tested for so many. Together the releases are mu-GDP, too.
        total_mu = math.sqrt(squared_mu(guarantee.eps, queries)) * _ROUND_UP
        delta_without_leak = _gaussian_delta(eps, total_mu)
    # Lemma 2 of docs/proofs/composition.md: with probability ``leak`` all is lost, and otherwise
    # the releases are pure-DP.
    total_delta = leak + (1 - leak) * delta_without_leak
    return min(1.0, total_delta * _ROUND_UP)


def pure_delta(query_eps: float, queries: int, eps: float) -> float:
    """Return the delta for which Q queries of delta = 0 are together (eps, delta)-DP, rounded up.

    It is the optimal composition bound, which randomized response attains.

    Args:
        query_eps: the eps of each query, which has no delta of its own.
        queries: Q, at least 1.
        eps: the eps of all queries together, at least 0. If it is at least Q times the query's eps,
            delta is 0.
    """
    if eps >= queries * query_eps * _ROUND_UP:
        return 0.0
    # Lemma 1 of docs/proofs/composition.md: delta = P(J >= j) - exp(eps) P(Q - J >= j), where J
    # counts how many of Q randomized responses tell the truth, and j is the least number with
    # (2 j - Q) query_eps > eps.
    half = (queries + eps / query_eps) / 2
    j = min(math.floor(half) + 1, queries)
    true_rate = 1 / (1 + math.exp(-query_eps))
    false_rate = 1 / (1 + math.exp(query_eps))
    true_tail = _binomial_tail(queries, true_rate, j)  # P(J >= j)
    false_tail = _binomial_tail(queries, false_rate, j)  # P(Q - J >= j)
    # exp(eps) overflows above 700. Then nothing is subtracted, which only makes delta larger.
    subtracted = 0.0
    if eps < 700:
        subtracted = math.exp(eps) * false_tail * (1 - UP)
    return min(1.0, max(0.0, true_tail * (1 + UP) - subtracted))


def _binomial_tail(trials: int, rate: float, successes: int) -> float:
    """Return the probability of at least ``successes`` successes in independent trials.

    Args:
        trials: the number of trials.
        rate: the probability of success of each trial.
        successes: the least number of successes, from 1 to ``trials``.
    """
    return float(scipy.special.betainc(successes, trials - successes + 1, rate))


def _gaussian_delta(eps: float, mu: float) -> float:
    """Return the delta for which a mu-GDP mechanism is (eps, delta)-DP, rounded up.

    Above ``MAX_TOTAL_MU`` the rounding error is not bounded, and 1 is returned, which is always
    true.
    """
    if mu > MAX_TOTAL_MU:
        return 1.0
    return mills_delta(eps, mu)


def _basic_eps(guarantee: Guarantee, queries: int, delta: float) -> float | None:
    """Return eps of all queries together by basic composition: the sum of the queries' eps.

    Args:
        guarantee: the guarantee of each query.
        queries: the number of queries.
        delta: the delta of all queries together.

    Returns:
        eps, rounded up; None: the queries are Gaussian-DP, or the sum of their own deltas, computed
        exactly, is above delta (equal to delta is allowed).
    """
    if isinstance(guarantee, GaussianDP) or _remaining_delta(guarantee, queries, delta) < 0:
        return None
    return queries * guarantee.eps * _ROUND_UP


def _advanced_eps(guarantee: Guarantee, queries: int, delta: float) -> float | None:
    """Return eps of all queries together by advanced composition.

    Args:
        guarantee: the guarantee of each query.
        queries: the number of queries.
        delta: the delta of all queries together; the queries' own deltas are taken from it first.

    Returns:
        eps, rounded up; None: the queries are Gaussian-DP, or no delta is left.
    """
    if isinstance(guarantee, GaussianDP):
        return None
    # Lemma 3 of docs/proofs/composition.md (Dwork and Roth 2014, Theorem 3.20):
    # eps_total = eps sqrt(2 Q ln(1 / delta)) + Q eps (exp(eps) - 1)
    remaining = _remaining_delta(guarantee, queries, delta)
    if remaining <= 0:
        return None
    eps = guarantee.eps
    squared_deviations = -2 * queries * math.log(remaining)
    deviation = eps * math.sqrt(squared_deviations)  # of the privacy loss from its mean
    mean = queries * eps * math.expm1(eps)
    return (deviation + mean) * _ROUND_UP


def _optimal_eps(guarantee: Guarantee, queries: int, delta: float) -> float | None:
    """Return eps of all queries together by the optimal composition bound for pure DP.

    Args:
        guarantee: the guarantee of each query.
        queries: the number of queries.
        delta: the delta of all queries together; what the queries' own deltas need is taken from it
            first.

    Returns:
        eps, rounded up; None: the queries are Gaussian-DP or too many, or no delta is left.
    """
    if isinstance(guarantee, GaussianDP) or queries > MAX_OPTIMAL_QUERIES or delta <= 0:
        return None
    remaining = delta
    if isinstance(guarantee, ApproximateDP):
        # Lemma 2 of docs/proofs/composition.md: delta = 1 - (1 - own delta)^Q (1 - pure delta).
        # It is solved for the pure delta; the division by (1 - own delta)^Q is left out, which
        # makes the result smaller, so that eps becomes larger.
        # All logarithms and differences below are rounded towards a smaller result.
        no_leak_logarithm = queries * math.log1p(-guarantee.delta) * _ROUND_UP  # it is negative
        if no_leak_logarithm <= -700:  # a leak is certain, up to the range of floats
            return None
        difference = delta * (1 - 2**-50) + math.expm1(no_leak_logarithm)
        remaining = difference * (1 - UP)
    if remaining < 0:
        return None
    query_eps = guarantee.eps
    largest_eps = queries * query_eps * _ROUND_UP  # basic composition: delta is 0 there
    return smallest_holding(
        lambda eps: pure_delta(query_eps, queries, eps) <= remaining, 0.0, largest_eps
    )


def _gaussian_eps(guarantee: Guarantee, queries: int, delta: float) -> float | None:
    """Return eps of all queries together for Gaussian-DP queries: Q of them are mu sqrt(Q)-GDP.

    Args:
        guarantee: the guarantee of each query.
        queries: Q, the number of queries.
        delta: the delta of all queries together.

    Returns:
        eps, rounded up; None: the queries are not Gaussian-DP, delta is 0, or mu sqrt(Q) is too
        large.
    """
    if not isinstance(guarantee, GaussianDP) or delta <= 0:
        return None
    # Lemma 4 of docs/proofs/composition.md: Q queries, each mu-GDP, are mu sqrt(Q)-GDP together.
    total_mu = guarantee.mu * math.sqrt(queries) * _ROUND_UP
    if total_mu > MAX_TOTAL_MU:
        return None

    def is_within_delta(eps: float) -> bool:
        """Return whether the queries together are (eps, delta)-DP."""
        return mills_delta(eps, total_mu) <= delta

    largest_eps = total_mu * (total_mu / 2 + 40)  # its delta is below 10^-300
    if not is_within_delta(largest_eps):
        return None
    return smallest_holding(is_within_delta, 0.0, largest_eps)


_BOUND_FUNCTIONS: dict[BoundName, Callable[[Guarantee, int, float], float | None]] = {
    "basic": _basic_eps,
    "advanced": _advanced_eps,
    "optimal": _optimal_eps,
    "gaussian": _gaussian_eps,
}


def _remaining_delta(guarantee: PureDP | ApproximateDP, queries: int, delta: float) -> float:
    """Return delta less the queries' own deltas, subtracted exactly and then rounded down.

    A negative number: the queries' own deltas exceed delta.

    Args:
        guarantee: the guarantee of each query; a pure one has delta 0.
        queries: the number of queries.
        delta: the delta of all queries together.
    """
    # Lemma 3 of docs/proofs/composition.md: the queries' own deltas are spent first, and the rest
    # takes the place of delta. Fractions are exact, where a difference of floats would cancel.
    own_delta = Fraction(getattr(guarantee, "delta", 0.0))
    return float(Fraction(delta) - queries * own_delta) / _ROUND_UP


def smallest_holding(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Return an upper bound on the smallest number at which a condition holds, by bisection.

    The condition was evaluated at the returned number, and holds there.

    Args:
        holds: a condition that is false up to some number and true from there on; true at ``high``.
        low: the left end of the search; returned if the condition holds there.
        high: the right end of the search.
    """
    if holds(low):
        return low
    _, smallest = bisect(lambda value: not holds(value), low, high, midpoint)
    return smallest


def largest_holding(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Return a lower bound on the largest number at which a condition holds, by bisection.

    The condition was evaluated at the returned number, and holds there. The search halves the ratio
    of its ends, so that it suits numbers of very different magnitude.

    Args:
        holds: a condition that is true up to some number and false from there on; true at ``low``.
        low: the left end of the search, above 0.
        high: the right end of the search; returned if the condition holds there.
    """
    if holds(high):
        return high
    largest, _ = bisect(holds, low, high, lambda low, high: math.sqrt(low * high))
    return largest


def _check_arguments(queries: int, delta: float, bounds: Sequence[str]) -> None:
    """Raise ConfigError if a number of queries, a delta or the name of a bound is not valid.

    Args:
        queries: has to be a whole number from 1 to ``MAX_QUERIES``.
        delta: has to be in [0, 1).
        bounds: each has to be one of ``BOUNDS``.
    """
    is_integer = isinstance(queries, int) and not isinstance(queries, bool)
    if not is_integer or not 1 <= queries <= MAX_QUERIES:
        raise ConfigError(f"queries = {queries!r}: give a whole number from 1 to {MAX_QUERIES:.0e}")
    if not 0 <= delta < 1:
        raise ConfigError(
            f"delta = {delta!r}: give a number of at least 0 and below 1, far below 1 / "
            "(number of records)"
        )
    unknown = [name for name in bounds if name not in _BOUND_FUNCTIONS]
    if unknown:
        name = unknown[0]
        known = ", ".join(BOUNDS)
        raise ConfigError(f"composition '{name}' is unknown: give one of {known}")


def _no_bound_message(
    guarantee: Guarantee, queries: int, delta: float, bounds: Sequence[str]
) -> str:
    """Return an error message for a total to which no composition bound applies.

    It suggests a larger delta. The arguments are those of ``total``.
    """
    names = ", ".join(bounds)
    reason = (
        f"no composition bound that is allowed here ({names}) gives a total for {queries} "
        f"queries, each of which is {guarantee}, at delta = {delta:g}"
    )
    if isinstance(guarantee, ApproximateDP):
        own_deltas = queries * guarantee.delta
        return (
            f"{reason}, because the deltas of the queries alone already add up to {own_deltas:g}: "
            "allow a larger total delta"
        )
    return f"{reason}: allow a total delta > 0"
