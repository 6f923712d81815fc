"""Accounting: many releases about the same data, from one query's guarantee to the total and back.

| one query        | bounds on the total over Q queries, chosen adaptively or not                                        |
|------------------|-----------------------------------------------------------------------------------------------------|
| PureDP(e)        | basic: Q e. advanced: e sqrt(2 Q ln(1/delta)) + Q e (exp(e)-1). optimal: below, exact for RR         |
| ApproximateDP    | the same, after Q leaks: with delta0 each, 1 - (1-delta)/(1-delta0)^Q in place of delta             |
| GaussianDP(mu)   | gaussian: mu sqrt(Q)-GDP, exact                                                                     |

Formal guarantees
    basic, advanced: Dwork and Roth 2014, Theorems 3.16 and 3.20. optimal: Kairouz, Oh, Viswanath 2015, Theorem 3.3; for
    e-DP mechanisms  delta(E) = P(J >= j) - exp(E) P(Q - J >= j),  J ~ Bin(Q, 1/(1+exp(-e))), j the least integer with
    (2j - Q) e > E: the sum in method.md section 4, its second part rewritten, as exp(E - (2i-Q)e) P(J=i) = exp(E) P(Q-J=i).
    Exact for the composition of Q randomized responses with delta = 0, an upper bound for every other e-DP mechanism.
    ApproximateDP: an (e, d)-DP mechanism is a post-processing of "leak with probability d, else randomized response" (the
    same paper), so the optimal total is delta = 1 - (1-d)^Q (1 - delta(E)). The pure formula alone would forget the leaks:
    ``pure_delta`` refuses anything but PureDP. The classical bounds spend Q d first and the rest of delta after.
    gaussian: Dong, Roth, Su 2022, Corollary 2.
    Guarantees of different kinds are not added up: that raises ConfigError, as does anything unknown.
    Numbers are rounded so that the true loss is never above the one returned; tails come from regularised incomplete beta
    functions, whose relative error is taken as 10^-9 (tests find far less, up to Q = 10^9, the limit of ``optimal``).
    The loss counts every query, answered or not, whatever the data: a realised loss depends on private data.

What a release guarantees, as values: pure, approximate and Gaussian differential privacy.

Each implies (eps, delta)-DP: ``delta_of(guarantee, 1, eps)`` is the least delta that it alone proves.

Formal guarantees
    PureDP(e): every e-DP mechanism is a post-processing of randomized response (Kairouz, Oh, Viswanath 2015), so that
    delta(eps) = max(0, (exp(e) - exp(eps)) / (1 + exp(e))).
    ApproximateDP(e, d): the same after a leak of probability d: delta(eps) = d + (1 - d) * the above.
    GaussianDP(mu): delta(eps) = Phi(-eps/mu + mu/2) - exp(eps) Phi(-eps/mu - mu/2) (Dong, Roth, Su 2022, Corollary 1).
    Every returned delta is rounded up by more than its floating-point error (``UP``): it is never below the true one.

Enclosures of exp and of the normal distribution function that are proved, in decimals of 100 digits.

Sums, products and quotients round down in ``DOWN`` and up in ``UP``. ``decimal`` rounds exp and sqrt correctly to the
nearest, so their neighbours on either side enclose the true value. Python's operators would round to the thread's own
context, even the unary minus: no arithmetic here uses them (``copy_negate`` and comparisons are exact).

How Gaussian a number of releases is that are each eps-DP: the least mu for which all of them together are mu-GDP.

Formal guarantees
    Q releases, each eps-DP given what the others said, are a post-processing of Q randomized responses, each of which says
    the truth with probability 1/(1 + e^-eps) (Kairouz, Oh and Viswanath 2015). Let J ~ Bin(Q, 1/(1 + e^eps)). The tradeoff
    function of Q randomized responses is piecewise linear with the vertices (1, 0), (0, 1) and, for j = 1..Q, (a_j, b_j),
    a_j = P(J >= j), b_j = P(J >= Q - j + 1): Neyman and Pearson's tests are "at least j of them say so", and the second
    error of one is the first error of its mirror image. G_mu is convex: it lies below that function if and only if it does
    at the vertices, that is if mu >= z(a_j) + z(b_j) for every j, z = -Phi^-1. Of Q > ``BLOCK``, blocks compose: mu^2 of
    all of them is at most the sum of each block's (Dong, Roth and Su 2022, Corollary 2). That costs .03 % of mu.
    Rounding. Tails are sums of logarithms of binomial probabilities, none left out however small. Each of the fewer than
    16 roundings of a term is of a number of at most T, each of the Q sums' of one of at most M (``_tails``); what is wrong
    with a logarithm moves z by at most R(0) = 1.2533 times as much, as R = (1-Phi)/phi falls and z >= 0 for the smaller of
    two tails. Where eps is so small that this outweighs mu, Q times one release's mu^2 is less, and taken.

The account of a budget: what lots of releases cost together, and whether one more still fits.

A lot is a number of releases, fixed before the first of them is drawn, each with the same guarantee: a file of queries, the
weights of a head. Lots are chosen one after another, by people who have seen what earlier ones released: size, guarantee
and whether there is another at all may depend on it. Composition theorems for settings fixed beforehand say nothing then;
what holds is a filter (Rogers, Roth, Ullman and Vadhan 2016): a rule, on public settings alone, that refuses the lot which
would go too far. Composing each transcript's own privacy curves, and refusing where they cross the budget's, is no filter
(arXiv 2602.06756): an analyst goes on along whichever curve is the best for her after what she has seen.

Formal guarantees
    Setting. Two neighbours, b = 0 and 1. A lot of Q releases has a guarantee that holds for each of them whatever was
    released before: given the transcript so far, a release is eps-DP, (eps, delta)-DP or mu-GDP, its draws being fresh.
    A budget (E, D), delta's share for leaks L and the rest R = D - L are fixed before anything is released. ``Cost`` sums
    over lots, for a transcript: ``pure`` of Q eps (infinite for GDP), ``square`` of mu^2 (Q mu^2; ``squared_mu`` of eps),
    ``leak`` of Q delta. A lot is admitted only if with it, leak <= L, and
        basic      pure <= E, or
        gaussian   square <= M^2, where M-GDP is (E, R)-DP.
    Then all that is ever released is (E, D)-DP, however lots are chosen.

    1. Simulation. What a lot says is a post-processing of coins that are tossed when it is admitted: for each release one
       that leaks b with probability delta, and where it does not, a randomized response to b (Kairouz, Oh and Viswanath
       2015) or a number N(b mu, 1) (Blackwell; Dong, Roth and Su 2022, Theorem 2), whatever is then asked. Leaks apart, the
       Q coins of a lot are a post-processing of one number N(b m, 1), m^2 being the lot's square (squared_mu; for GDP, Q
       numbers have a sufficient mean).
    2. Concurrency. So answers of a lot may be drawn one by one, with other lots, other processes and other admissions in
       between, and each query chosen with all of that known: coins do not wait for questions. What is not drawn of a lot
       stays spent; giving it back would make its size depend on answers. For mechanisms that keep a state between answers
       this is Haney, Shoemate, Tian, Vadhan, Vyrros, Xu and Zhang 2023; none here does.
    3. Gaussian (Smith and Thakurta 2022, by another way). Without leaks, let the lots' squares sum to at most M^2 on every
       transcript. Take a Brownian motion with drift b on [0, M^2], and let each lot read its increment over the next m^2 of
       time. The lot was chosen from what came before, and the increment is independent of that: divided by m it is
       N(b m, 1), as step 1 wants. So the transcript is a post-processing of the path, whose likelihood ratio depends on its
       end N(b M^2, M^2) alone (Girsanov): it is M-GDP.
    4. Basic. Without leaks, let pure sum to at most E on every transcript. The likelihood ratio of a transcript is a
       product of factors of at most e^eps each (Rogers, Roth, Ullman and Vadhan 2016), so at most e^E.
    5. Leaks. Let P0 be the law of the transcript had no coin leaked, and w(t) the probability that none of the coins of t
       leaks; it is the same for both neighbours. Some coin leaks with probability 1 - E0[w] <= E0[leak] <= L. So
       P(S) <= L + int_S w dP0, while P'(S) >= int_S w dP0'.
    6. Either of two. Let A be the transcripts that end with pure <= E, B the others, where gaussian holds. As sums only
       grow, on A nothing differs from an analyst who stops before pure exceeds E, and on B from one who stops before square
       exceeds M^2. By 4 and 3, int_{S and A} w dP0 <= e^E int_{S and A} w dP0', and for B the same plus R. All together
       P(S) <= e^E P'(S) + L + R.
    7. The first lot is chosen before anything is released, so composition.py's total is its own: if that is (E, D)-DP, the
       lot is admitted. If it is not admitted by 6 as well, neither sum allows anything after it, as neither shrinks: it
       stays the only lot, and its total is all of it.

    Why L is fixed. One delta for both, "leaks at most D minus what M has used", is not sound: after half of M^2, whoever
    sees that it told her nothing would take all of D as leaks, and whoever sees that it told her much the other half of
    M^2: together they lose nearly 2 D (tests play it). Just so, a sum at some time is a counter's position and no guarantee
    of its own (no odometer): what may be claimed is the budget, and its curve (``Allowance.delta_of``).

    Conditions. Draws of different lots are independent. Labels from the certificates of a run whose training drew noise,
    and its noisy weights, share that noise: together they are outside (claims.py, ``APART``). All
    lots are about the same neighbours (one relation, and a unit the same people: the ledger sees to
    it).

    Numbers. eps and delta are the decimals that they print as: ten times 0.1 is 1, though the doubles are a little more.
    The mechanisms keep to the double and to the decimal, whichever is less (mechanism.py, published.py). Sums are decimals
    of 50 digits, rounded up, so in practice exact; mu^2 of eps-DP releases and M are rounded, up and down.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, InvalidOperation
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from scipy.special import betainc, erfinv, gammaln, ndtri_exp

from agt.errors import ConfigError
from agt.numeric import UNIT, UP, bisect, midpoint, mills_delta, next_up, whole_midpoint, written

LEAST, GREATEST = 1e-15, 100.0  # of eps and mu, for one release


class _Parametrised:
    @property
    def parameters(self) -> dict[str, float]:
        """The values by name, as a mechanism's settings take them."""
        return dict(vars(self))


@dataclass(frozen=True)
class PureDP(_Parametrised):
    """eps-differential privacy: P(S) <= exp(eps) P'(S) for all events S and neighbours.

    Raises:
        ConfigError: eps is not in [1e-15, 100].
    """

    eps: float

    def __post_init__(self) -> None:
        _check_range("eps", self.eps)

    def __str__(self) -> str:
        return f"{self.eps:.6g}-differentially private"


@dataclass(frozen=True)
class ApproximateDP(_Parametrised):
    """(eps, delta)-differential privacy: P(S) <= exp(eps) P'(S) + delta.

    Raises:
        ConfigError: eps is not in [1e-15, 100], or delta not in (0, 1).
    """

    eps: float
    delta: float

    def __post_init__(self) -> None:
        _check_range("eps", self.eps)
        if not 0 < self.delta < 1:
            raise ConfigError(f"delta = {self.delta!r}: give a number between 0 and 1, far below one over the records")

    def __str__(self) -> str:
        return f"({self.eps:.6g}, {self.delta:.6g})-differentially private"


@dataclass(frozen=True)
class GaussianDP(_Parametrised):
    """mu-Gaussian differential privacy: no test between neighbours beats one between N(0, 1) and N(mu, 1).

    Raises:
        ConfigError: mu is not in [1e-15, 100].
    """

    mu: float

    def __post_init__(self) -> None:
        _check_range("mu", self.mu)

    def __str__(self) -> str:
        return f"{self.mu:.6g}-Gaussian differentially private"


Guarantee: TypeAlias = PureDP | ApproximateDP | GaussianDP
KINDS: dict[str, type[PureDP] | type[ApproximateDP] | type[GaussianDP]] = {
    "pure": PureDP,
    "approximate": ApproximateDP,
    "gaussian": GaussianDP,
}


def described(guarantee: Guarantee) -> dict[str, Any]:
    """As JSON has it: its kind, and its parameters by name."""
    return {"kind": next(name for name, kind in KINDS.items() if type(guarantee) is kind), **guarantee.parameters}


def guarantee_of(node: Mapping[str, Any]) -> Guarantee:
    """What ``described`` gave.

    Raises:
        ConfigError: it is no such thing.
    """
    try:
        return KINDS[node["kind"]](**{name: float(value) for name, value in node.items() if name != "kind"})
    except (KeyError, TypeError, ValueError):
        raise ConfigError(f"a guarantee of {node!r}: one of {', '.join(KINDS)} with its parameters is expected") from None


def leftover(pure: float, eps: float) -> float:
    """max(0, (exp(pure) - exp(eps)) / (1 + exp(pure))), rounded up: what eps leaves of pure-DP."""
    if eps >= pure:
        return 0.0
    return min(1.0, -math.expm1(eps - pure) / (1 + math.exp(-pure)) * (1 + UP))


def _check_range(name: str, value: float) -> None:
    if not LEAST <= value <= GREATEST:  # a NaN fails every comparison
        raise ConfigError(f"{name} = {value!r}: give a number from {LEAST:g} to {GREATEST:g}, the budget of one release")


DOWN = Context(prec=100, rounding=ROUND_FLOOR)
ROUND_UP = Context(prec=100, rounding=ROUND_CEILING)
PI_LOW = Decimal(  # 100 digits; the next are 82
    "3.141592653589793238462643383279502884197169399375105820974944592307816406286208998628034825342117067"
)
PI_HIGH = DOWN.next_plus(PI_LOW)
FARTHEST = Decimal("-13.5")  # Phi(-13.5) < 2^-136: far enough for 128-bit probabilities
_HALF, _TWO = Decimal("0.5"), Decimal(2)
_NEGLIGIBLE = Decimal("1e-70")


class Normal(NamedTuple):
    """Bounds at one point x: lower <= Phi(x) <= upper, 0 < density <= phi(x)."""

    lower: Decimal
    upper: Decimal
    density: Decimal


def exp_lower(x: Decimal) -> Decimal:
    """At most exp(x), by less than one part in 10^98."""
    return DOWN.next_minus(DOWN.exp(x))


@lru_cache(maxsize=8)  # a long table asks for FARTHEST again and again
def normal(x: Decimal) -> Normal:
    """Bounds on Phi(x) within 10^-60, and a lower bound of its density, for x in [FARTHEST, 0].

    Phi(x) = 1/2 - phi(x) S(|x|), S(v) = v + v^3/3 + v^5/(3*5) + ...: every term positive. Once two successive terms have a
    ratio of at most 1/2, what is left out is at most the last term.

    Raises:
        ValueError: x is outside the range.
    """
    if not FARTHEST <= x <= 0:
        raise ValueError(f"normal({x}): outside [{FARTHEST}, 0]")
    v = x.copy_negate()
    low, high = DOWN.multiply(v, v), ROUND_UP.multiply(v, v)
    shrink_low = exp_lower(ROUND_UP.divide(high, _TWO).copy_negate())
    shrink_high = ROUND_UP.next_plus(ROUND_UP.exp(DOWN.divide(low, _TWO).copy_negate()))
    density_low = DOWN.divide(shrink_low, ROUND_UP.next_plus(ROUND_UP.sqrt(ROUND_UP.multiply(_TWO, PI_HIGH))))
    density_high = ROUND_UP.divide(shrink_high, DOWN.next_minus(DOWN.sqrt(DOWN.multiply(_TWO, PI_LOW))))
    sum_low, sum_high = _series(v, low, high)
    lower = DOWN.subtract(_HALF, ROUND_UP.multiply(density_high, sum_high))
    upper = ROUND_UP.subtract(_HALF, DOWN.multiply(density_low, sum_low))
    return Normal(lower, upper, density_low)


def _series(v: Decimal, low: Decimal, high: Decimal) -> tuple[Decimal, Decimal]:
    """Bounds on S(v); ``low`` and ``high`` enclose v^2."""
    term_low = term_high = sum_low = sum_high = v
    odd = 1
    while True:
        odd += 2
        divisor = Decimal(odd)
        term_low = DOWN.divide(DOWN.multiply(term_low, low), divisor)
        term_high = ROUND_UP.divide(ROUND_UP.multiply(term_high, high), divisor)
        sum_low, sum_high = DOWN.add(sum_low, term_low), ROUND_UP.add(sum_high, term_high)
        if term_high <= _NEGLIGIBLE and ROUND_UP.add(high, high) <= divisor:
            return sum_low, ROUND_UP.add(sum_high, term_high)


BLOCK = 1024  # a tenth of a millisecond
_INVERSE = 1e-11  # relative, of Phi^-1(exp(x)); tests find less than 10^-12


def squared_mu(eps: float, size: int) -> float:
    """mu^2, rounded up, for which ``size`` eps-DP releases are together mu-GDP; at most size times that of one.

    Args:
        eps: in [1e-15, 100].
        size: >= 1.
    """
    blocks, rest = divmod(size, BLOCK)
    parts = [blocks * _block(eps, BLOCK)] if blocks else []
    return next_up(math.fsum([*parts, _block(eps, rest)] if rest else parts)) * (1 + 4 * UNIT)


def single_mu(eps: float) -> float:
    """The least mu for which every eps-DP release is mu-GDP, rounded up: 2 Phi^-1(e^eps / (1 + e^eps))."""
    if eps < 1:  # Phi(x) = (1 + erf(x / sqrt 2)) / 2: exact to the last places, also where eps is below them
        return 2 * math.sqrt(2) * float(erfinv(math.tanh(eps / 2))) * (1 + UP)
    return -2 * float(ndtri_exp(-eps - math.log1p(math.exp(-eps)))) * (1 + UP)


@lru_cache(maxsize=8192)
def _block(eps: float, size: int) -> float:
    """mu^2 of up to ``BLOCK`` releases, rounded up: the greatest z(a_j) + z(b_j) over j, squared, or that of one by one."""
    z, error = _tails(eps, size)
    mirrored = z[::-1]
    vertices = next_up(float((z + mirrored + _INVERSE * (np.abs(z) + np.abs(mirrored))).max()) + 2.6 * error)
    return next_up(next_up(min(size * single_mu(eps) ** 2, vertices**2)))


def _tails(eps: float, size: int) -> tuple[np.ndarray, float]:
    """(z(a_j) for j = 1..Q, [Q]; how far each logarithm of a tail may be off)."""
    said, not_said = (
        -eps - math.log1p(math.exp(-eps)),
        -math.log1p(math.exp(-eps)),
    )  # logarithms of 1/(1+e^eps), 1/(1+e^-eps)
    j = np.arange(size + 1)
    factorial = gammaln(j + 1)
    terms = factorial[-1] - factorial - factorial[::-1] + j * said + (size - j) * not_said
    above = np.logaddexp.accumulate(terms[::-1])[::-1][1:]  # log P(J >= j)
    below = np.logaddexp.accumulate(terms)[:-1]  # log P(J < j)
    largest, longest = 3 * float(factorial[-1]) - size * said, float(np.abs(terms).max())  # T, M
    error = UNIT * (16 * (largest + 1) + 4 * size * (longest + 1))
    return np.where(above < below, -ndtri_exp(np.minimum(above, 0)), ndtri_exp(np.minimum(below, 0))), error


BOUNDS = ("basic", "advanced", "optimal", "gaussian")
PUBLISHED = ("basic", "advanced")  # what the papers choose from
MAX_QUERIES = 10**12
MAX_OPTIMAL = 10**9
_ULP = 1 + 2**-50  # a few roundings of double precision
_MEANINGLESS = 1e5  # a total mu beyond which rounding is not covered by UP; eps would be about mu^2 / 2

G = TypeVar("G", bound=PureDP | ApproximateDP | GaussianDP)


@dataclass(frozen=True)
class Total:
    """The privacy loss of all queries together.

    Attributes:
        eps, delta: they are (eps, delta)-DP in all.
        bound: which bound gave eps.
        each: eps by every bound that applies.
    """

    eps: float
    delta: float
    bound: str
    each: dict[str, float]

    def __str__(self) -> str:
        return f"({self.eps:.6g}, {self.delta:.6g})-differentially private in all, by the {self.bound} composition"


def total(guarantee: Guarantee, queries: int, delta: float, bounds: Sequence[str] = BOUNDS) -> Total:
    """The least eps for which ``queries`` releases are (eps, delta)-DP together.

    Args:
        guarantee: of one query.
        queries: Q, a fixed count.
        delta: in [0, 1); 0 allows pure eps-DP under the basic bound only.
        bounds: which bounds may be used (``PUBLISHED``: the papers' choice).

    Raises:
        ConfigError: Q or delta is out of range, or no bound applies.
    """
    _check(queries, delta, bounds)
    each = {name: eps for name in bounds if (eps := _BY_NAME[name](guarantee, queries, delta)) is not None}
    if not each:
        raise ConfigError(_nothing(guarantee, queries, delta, bounds))
    best = min(each, key=lambda name: each[name])
    if not math.isfinite(each[best]):
        raise ConfigError(f"queries = {queries} at {guarantee} each: the total privacy loss overflows; lower either")
    return Total(each[best], delta, best, each)


def per_query(kind: type[G], eps: float, delta: float, queries: int, bounds: Sequence[str] = BOUNDS) -> G:
    """The largest budget per query that keeps ``queries`` of them (eps, delta)-DP in all.

    Args:
        kind: what the mechanism guarantees; an ApproximateDP's own deltas may use up half of the total's.

    Raises:
        ConfigError: no budget in [1e-15, 100] fits, or the kind is unknown.
    """
    _check(queries, delta, bounds)
    if not LEAST <= eps < math.inf:
        raise ConfigError(f"eps = {eps!r}: give the total budget as a number of at least {LEAST:g}")
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
        raise ConfigError(f"eps = {eps:g} in all over {queries} queries leaves less than {LEAST:g} each: ask fewer queries")
    return make(largest(fits, LEAST, GREATEST))


def delta_of(guarantee: Guarantee, queries: int, eps: float) -> float:
    """The delta for which ``queries`` releases, their number fixed beforehand, are (eps, delta)-DP together, rounded up.

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
        raise ConfigError(f"the pure-eps accountant takes eps-DP alone, and a query is {guarantee}: use total")
    e = guarantee.eps
    if eps >= queries * e * _ULP:
        return 0.0
    j = min(math.floor((queries + eps / e) / 2) + 1, queries)
    p = 1 / (1 + math.exp(-e))
    up = float(betainc(j, queries - j + 1, p))
    down = float(betainc(j, queries - j + 1, 1 / (1 + math.exp(e))))
    lost = math.exp(eps) * down * (1 - UP) if eps < 700 else 0.0  # leaving it out only adds to delta
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


_BY_NAME: dict[str, Callable[[Guarantee, int, float], float | None]] = {
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
    """The largest value at which a monotone condition holds, from below, by halving ratios; it holds at ``low``."""
    return high if holds(high) else bisect(holds, low, high, lambda a, b: math.sqrt(a * b))[0]


def _check(queries: int, delta: float, bounds: Sequence[str]) -> None:
    if isinstance(queries, bool) or not isinstance(queries, int) or not 1 <= queries <= MAX_QUERIES:
        raise ConfigError(f"queries = {queries!r}: give a whole number from 1 to {MAX_QUERIES:.0e}")
    if not 0 <= delta < 1:
        raise ConfigError(f"delta = {delta!r}: give a number from 0 to below 1, far below one over the records")
    unknown = [name for name in bounds if name not in _BY_NAME]
    if unknown:
        raise ConfigError(f"composition '{unknown[0]}' is unknown (known: {', '.join(BOUNDS)})")


def _nothing(guarantee: Guarantee, queries: int, delta: float, bounds: Sequence[str]) -> str:
    why = f"{queries} queries, each {guarantee}: none of the bounds {', '.join(bounds)} gives a total at delta = {delta:g}"
    if isinstance(guarantee, ApproximateDP):
        return f"{why}; the queries' own deltas use up {queries * guarantee.delta:g}: allow a larger delta in all"
    return f"{why}; allow a delta > 0"


LEAKS = 0.1  # a tenth of delta costs Gaussian releases one in a hundred
_EXACT = Context(prec=50, rounding=ROUND_CEILING)  # 10^12 releases of any eps, to the last digit
MOST_EPS = 1e6  # of a budget: what has more protects nobody
_WIDEST = 1e5  # of M: beyond, rounding is not covered by mills_delta's allowance


@dataclass(frozen=True)
class Lot:
    """Releases whose number is fixed before the first is drawn.

    Attributes:
        guarantee: of each.
        size: how many.

    Raises:
        ConfigError: not from 1 to 10^12.
    """

    guarantee: Guarantee
    size: int = 1

    def __post_init__(self) -> None:
        if isinstance(self.size, bool) or not isinstance(self.size, int) or not 1 <= self.size <= MAX_QUERIES:
            raise ConfigError(f"a lot of {self.size!r} releases: give a whole number from 1 to {MAX_QUERIES:.0e}")

    @property
    def cost(self) -> "Cost":
        """What it costs."""
        guarantee = self.guarantee
        if isinstance(guarantee, GaussianDP):
            mu = Decimal(guarantee.mu)
            return Cost(Decimal("Infinity"), _EXACT.multiply(self.size, _EXACT.multiply(mu, mu)))
        leak = _EXACT.multiply(self.size, written(guarantee.delta)) if isinstance(guarantee, ApproximateDP) else Decimal(0)
        return Cost(_EXACT.multiply(self.size, written(guarantee.eps)), Decimal(squared_mu(guarantee.eps, self.size)), leak)


@dataclass(frozen=True)
class Cost:
    """What lots cost together.

    Attributes:
        pure: leaks apart they are pure-DP with this eps; infinite: they are not.
        square: mu^2: leaks apart they are mu-GDP.
        leak: bound on the probability that something leaks.

    Raises:
        ConfigError: one is negative or no number.
    """

    pure: Decimal = Decimal(0)
    square: Decimal = Decimal(0)
    leak: Decimal = Decimal(0)

    def __post_init__(self) -> None:
        for value, finite in ((self.pure, False), (self.square, True), (self.leak, True)):
            if not isinstance(value, Decimal) or value.is_nan() or value < 0 or (finite and value.is_infinite()):
                raise ConfigError(f"a cost of {value!r}: give numbers of at least 0")

    def plus(self, other: "Cost") -> "Cost":
        """Both together."""
        return Cost(
            _EXACT.add(self.pure, other.pure), _EXACT.add(self.square, other.square), _EXACT.add(self.leak, other.leak)
        )

    def as_json(self) -> dict[str, str | None]:
        """Decimals as text, so that nobody's floats touch them; null for infinity."""
        return {
            "pure": str(self.pure) if self.pure.is_finite() else None,
            "square": str(self.square),
            "leak": str(self.leak),
        }

    @classmethod
    def of(cls, node: Mapping[str, str | None]) -> "Cost":
        """What ``as_json`` gave.

        Raises:
            ConfigError: it is no such thing.
        """
        try:
            return cls(
                *(Decimal("Infinity" if node[name] is None else str(node[name])) for name in ("pure", "square", "leak"))
            )
        except (InvalidOperation, KeyError, TypeError):
            raise ConfigError(f"a cost of {node!r}: cannot be read") from None


@dataclass(frozen=True)
class Allowance:
    """A budget for good: what everything about one population may cost together.

    Attributes:
        eps, delta: all of it is (eps, delta)-DP; delta = 0: pure.
        leaks: the share of delta that goes to releases with a delta of their own; the rest is for Gaussian sums. 1 leaves
            them nothing: lots add up by basic composition alone.

    Raises:
        ConfigError: eps is not positive, or beyond ``MOST_EPS``, delta not in [0, 1), or leaks not in [0, 1].
    """

    eps: float
    delta: float = 0.0
    leaks: float = LEAKS

    def __post_init__(self) -> None:
        if not 0 < self.eps <= MOST_EPS:
            raise ConfigError(f"total.eps={self.eps!r}: give the budget as a positive number, up to {MOST_EPS:g}")
        if not 0 <= self.delta < 1:
            raise ConfigError(
                f"total.delta={self.delta!r}: give a number from 0 to below 1, far below one over the records"
            )
        if not 0 <= self.leaks <= 1:
            raise ConfigError(f"total.leaks={self.leaks!r}: give the share of total.delta, from 0 to 1")

    @property
    def leak(self) -> Decimal:
        """L: what leaks may come to."""
        return DOWN.multiply(written(self.delta), written(self.leaks))

    @cached_property
    def mu(self) -> float:
        """M: what Gaussian sums may come to, rounded down."""
        left = DOWN.subtract(written(self.delta), self.leak)
        rest = float(left) if Decimal(float(left)) <= left else math.nextafter(float(left), 0.0)
        return bisect(lambda mu: mills_delta(self.eps, mu) <= rest, 0.0, _WIDEST, midpoint)[0]

    @cached_property
    def square(self) -> Decimal:
        """M^2, rounded down."""
        return DOWN.multiply(Decimal(self.mu), Decimal(self.mu))

    def holds(self, cost: Cost) -> bool:
        """Whether this much is within the budget, by one of the two filters."""
        return cost.leak <= self.leak and (cost.pure <= written(self.eps) or cost.square <= self.square)

    def admits(self, spent: Cost, lot: Lot) -> bool:
        """Whether this lot may still be released."""
        return self.holds(spent.plus(lot.cost)) or (spent == Cost() and self._alone(lot))

    def fitting(self, spent: Cost, guarantee: Guarantee, wanted: int) -> int:
        """The largest lot, up to ``wanted``, that still fits; 0: none."""

        def fits(size: int) -> bool:
            return size == 0 or self.admits(spent, Lot(guarantee, size))

        low = high = wanted
        while not fits(low):  # from near what is wanted: it is often as much as fitted before
            low, high = max(0, 2 * low - wanted - 1), low
        return bisect(fits, low, high, whole_midpoint)[0] if low < high else low

    def delta_of(self, eps: float) -> float:
        """The delta for which all that the filters ever admit is (eps, delta)-DP, rounded up; not for a first lot that its
        own total alone admitted, which has its own curve.

        The proof above at eps in place of E: leaks, what eps leaves of pure E, and the Gaussian filter's delta.
        """
        gaussian = mills_delta(eps, self.mu) if self.mu else 0.0
        pure = leftover(next_up(self.eps), eps) if eps < self.eps else 0.0  # both are read as decimals
        parts = (float(self.leak), pure, gaussian)
        return min(1.0, next_up(next_up(math.fsum(parts)))) if any(parts) else 0.0

    def _alone(self, lot: Lot) -> bool:
        """Whether a lot that nothing came before is within the budget by its own total."""
        try:
            return total(lot.guarantee, lot.size, self.delta).eps <= self.eps
        except ConfigError:  # no bound applies
            return False
