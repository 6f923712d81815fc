"""The account of a budget: what lots of releases cost together, and whether one more still fits.

A lot is a number of releases, fixed before the first of them is drawn, each with the same
guarantee: a file of queries, the weights of a head. Lots are chosen one after another, by people
who have seen what earlier ones released: size, guarantee and whether there is another at all may
depend on it. Composition theorems for settings fixed beforehand say nothing then; what holds is a
filter (Rogers, Roth, Ullman and Vadhan 2016): a rule, on public settings alone, that refuses the
lot which would go too far. Composing each transcript's own privacy curves, and refusing where they
cross the budget's, is no filter (arXiv 2602.06756): an analyst goes on along whichever curve is the
best for her after what she has seen.

Formal guarantees
    Setting. Two neighbours, b = 0 and 1. A lot of Q releases has a guarantee that holds for each of
    them whatever was released before: given the transcript so far, a release is eps-DP, (eps,
    delta)-DP or mu-GDP, its draws being fresh. A budget (E, D), delta's share for leaks L and the
    rest R = D - L are fixed before anything is released. ``Cost`` sums over lots, for a transcript:
    ``pure`` of Q eps (infinite for GDP), ``square`` of mu^2 (Q mu^2; ``squared_mu`` of eps),
    ``leak`` of Q delta. A lot is admitted only if with it, leak <= L, and
        basic      pure <= E, or
        gaussian   square <= M^2, where M-GDP is (E, R)-DP.
    Then all that is ever released is (E, D)-DP, however lots are chosen.

    1. Simulation. What a lot says is a post-processing of coins that are tossed when it is
       admitted: for each release one that leaks b with probability delta, and where it does not, a
       randomized response to b (Kairouz, Oh and Viswanath 2015) or a number N(b mu, 1) (Blackwell;
       Dong, Roth and Su 2022, Theorem 2), whatever is then asked. Leaks apart, the Q coins of a lot
       are a post-processing of one number N(b m, 1), m^2 being the lot's square (squared_mu; for
       GDP, Q numbers have a sufficient mean).
    2. Concurrency. So answers of a lot may be drawn one by one, with other lots, other processes
       and other admissions in between, and each query chosen with all of that known: coins do not
       wait for questions. What is not drawn of a lot stays spent; giving it back would make its
       size depend on answers. For mechanisms that keep a state between answers this is
       Haney, Shoemate, Tian, Vadhan, Vyrros, Xu and Zhang 2023; none here does.
    3. Gaussian (Smith and Thakurta 2022, by another way). Without leaks, let the lots' squares sum
       to at most M^2 on every transcript. Take a Brownian motion with drift b on [0, M^2], and let
       each lot read its increment over the next m^2 of time. The lot was chosen from what came
       before, and the increment is independent of that: divided by m it is N(b m, 1), as step 1
       wants. So the transcript is a post-processing of the path, whose likelihood ratio depends on
       its end N(b M^2, M^2) alone (Girsanov): it is M-GDP.
    4. Basic. Without leaks, let pure sum to at most E on every transcript. The likelihood ratio of
       a transcript is a product of factors of at most e^eps each (Rogers, Roth, Ullman and Vadhan
       2016), so at most e^E.
    5. Leaks. Let P0 be the law of the transcript had no coin leaked, and w(t) the probability that
       none of the coins of t leaks; it is the same for both neighbours. Some coin leaks with
       probability 1 - E0[w] <= E0[leak] <= L. So P(S) <= L + int_S w dP0, while P'(S) >= int_S w
       dP0'.
    6. Either of two. Let A be the transcripts that end with pure <= E, B the others, where gaussian
       holds. As sums only grow, on A nothing differs from an analyst who stops before pure exceeds
       E, and on B from one who stops before square exceeds M^2. By 4 and 3, int_{S and A} w dP0 <=
       e^E int_{S and A} w dP0', and for B the same plus R. All together P(S) <= e^E P'(S) + L + R.
    7. The first lot is chosen before anything is released, so composition.py's total is its own: if
       that is (E, D)-DP, the lot is admitted. If it is not admitted by 6 as well, neither sum
       allows anything after it, as neither shrinks: it stays the only lot, and its total is all of
       it.

    Why L is fixed. One delta for both, "leaks at most D minus what M has used", is not sound: after
    half of M^2, whoever sees that it told her nothing would take all of D as leaks, and whoever
    sees that it told her much the other half of M^2: together they lose nearly 2 D (tests play it).
    Just so, a sum at some time is a counter's position and no guarantee of its own (no odometer):
    what may be claimed is the budget, and its curve (``Allowance.delta_of``).

    Conditions. Draws of different lots are independent. Labels from the certificates of a run whose
    training drew noise, and its noisy weights, share that noise: together they are outside
    (agt/sentences.py, ``APART``). All lots are about the same neighbours (one relation, and a unit
    the same people: the ledger sees to it).

    Numbers. eps and delta are the decimals that they print as: ten times 0.1 is 1, though the
    doubles are a little more. The mechanisms keep to the double and to the decimal, whichever is
    less (mechanism.py, published.py). Sums are decimals of 50 digits, rounded up, so in practice
    exact; mu^2 of eps-DP releases and M are rounded, up and down.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Context, Decimal, InvalidOperation
from functools import cached_property, lru_cache
from typing import Annotated, ClassVar

from pydantic import ConfigDict, PlainSerializer, PlainValidator, WithJsonSchema

from agt.errors import ConfigError
from agt.mechanisms.composition import MAX_QUERIES, least, total
from agt.mechanisms.enclosures import DOWN
from agt.mechanisms.gaussian_equivalent import squared_mu
from agt.mechanisms.guarantees import ApproximateDP, GaussianDP, Guarantee, leftover
from agt.messages import Message
from agt.numeric import bisect, midpoint, mills_delta, next_up, whole_midpoint, written
from agt.settings import STRICT

LEAKS = 0.1  # a tenth of delta costs Gaussian releases one in a hundred

_EXACT = Context(prec=50, rounding=ROUND_CEILING)  # 10^12 releases of any eps, to the last digit

MOST_EPS = 1e6  # of a budget: what has more protects nobody

_WIDEST = 1e5  # of M: beyond, rounding is not covered by mills_delta's allowance


def _amount_as_text(amount: Decimal) -> str | None:
    return str(amount) if amount.is_finite() else None


def _amount_of(value: object) -> Decimal:
    """Return a decimal from what ``_amount_as_text`` gave.

    Raises ValueError: it gives no such thing.
    """
    if type(value) is Decimal:
        return value
    if value is None:
        return Decimal("Infinity")
    if not isinstance(value, str) or not _AMOUNT.fullmatch(value):
        raise ValueError(f"{value!r} is no decimal as text")
    return Decimal(value)


_AMOUNT = re.compile(r"[0-9]+(\.[0-9]+)?(E[+-]?[0-9]+)?")
Amount = Annotated[
    Decimal,
    PlainValidator(_amount_of),
    PlainSerializer(_amount_as_text),
    WithJsonSchema(
        {"anyOf": [{"type": "string", "pattern": f"^{_AMOUNT.pattern}$"}, {"type": "null"}]}
    ),
]
"""A number of at least 0 as a decimal; null in files: infinite."""


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
        if (
            isinstance(self.size, bool)
            or not isinstance(self.size, int)
            or not 1 <= self.size <= MAX_QUERIES
        ):
            raise ConfigError(
                f"a lot of {self.size!r} releases: give a whole number from 1 to {MAX_QUERIES:.0e}"
            )

    @property
    def cost(self) -> "Cost":
        """What it costs."""
        guarantee = self.guarantee
        if isinstance(guarantee, GaussianDP):
            mu = Decimal(guarantee.mu)
            return Cost(Decimal("Infinity"), _EXACT.multiply(self.size, _EXACT.multiply(mu, mu)))
        leak = (
            _EXACT.multiply(self.size, written(guarantee.delta))
            if isinstance(guarantee, ApproximateDP)
            else Decimal(0)
        )
        return Cost(
            _EXACT.multiply(self.size, written(guarantee.eps)),
            Decimal(squared_mu(guarantee.eps, self.size)),
            leak,
        )


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

    pure: Amount = Decimal(0)
    square: Amount = Decimal(0)
    leak: Amount = Decimal(0)

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    def __post_init__(self) -> None:
        for value, finite in ((self.pure, False), (self.square, True), (self.leak, True)):
            if (
                not isinstance(value, Decimal)
                or value.is_nan()
                or value < 0
                or (finite and value.is_infinite())
            ):
                raise ConfigError(f"a cost of {value!r}: give numbers of at least 0")

    def plus(self, other: "Cost") -> "Cost":
        """Both together."""
        return Cost(
            _EXACT.add(self.pure, other.pure),
            _EXACT.add(self.square, other.square),
            _EXACT.add(self.leak, other.leak),
        )

    def as_json(self) -> dict[str, str | None]:
        """Decimals as text, so that nobody's floats touch them; null for infinity."""
        return {name: _amount_as_text(getattr(self, name)) for name in ("pure", "square", "leak")}

    @classmethod
    def of(cls, node: Mapping[str, str | None]) -> "Cost":
        """What ``as_json`` gave.

        Raises:
            ConfigError: it is no such thing.
        """
        try:
            return cls(
                *(
                    Decimal("Infinity" if node[name] is None else str(node[name]))
                    for name in ("pure", "square", "leak")
                )
            )
        except (InvalidOperation, KeyError, TypeError):
            raise ConfigError(f"a cost of {node!r}: cannot be read") from None


@dataclass(frozen=True)
class Allowance:
    """A budget for good: what everything about one population may cost together.

    Attributes:
        eps, delta: all of it is (eps, delta)-DP; delta = 0: pure.
        leaks: the share of delta that goes to releases with a delta of their own; the rest is for
            Gaussian sums. 1 leaves them nothing: lots add up by basic composition alone.

    Raises:
        ConfigError: eps is not positive, or beyond ``MOST_EPS``, delta not in [0, 1), or leaks not
            in [0, 1].
    """

    eps: float
    delta: float = 0.0
    leaks: float = LEAKS

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    def __post_init__(self) -> None:
        if not 0 < self.eps <= MOST_EPS:
            raise ConfigError(
                Message(
                    "{config:total.eps}={eps!r}: give the budget as a positive number, up to "
                    "{most_eps:g}",
                    eps=self.eps,
                    most_eps=MOST_EPS,
                )
            )
        if not 0 <= self.delta < 1:
            raise ConfigError(
                Message(
                    "{config:total.delta}={delta!r}: give a number from 0 to below 1, far "
                    "below one over the records",
                    delta=self.delta,
                )
            )
        if not 0 <= self.leaks <= 1:
            raise ConfigError(
                Message(
                    "{config:total.leaks}={leaks!r}: give the share of {config:total.delta}, from 0 "
                    "to 1",
                    leaks=self.leaks,
                )
            )

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
        return cost.leak <= self.leak and (
            cost.pure <= written(self.eps) or cost.square <= self.square
        )

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
        """The delta for which all that the filters ever admit is (eps, delta)-DP, rounded up; not
        for a first lot that its own total alone admitted, which has its own curve.

        The proof above at eps in place of E: leaks, what eps leaves of pure E, and the Gaussian
            filter's delta.
        """
        gaussian = mills_delta(eps, self.mu) if self.mu else 0.0
        # both are read as decimals
        pure = leftover(next_up(self.eps), eps) if eps < self.eps else 0.0
        parts = (float(self.leak), pure, gaussian)
        return min(1.0, next_up(next_up(math.fsum(parts)))) if any(parts) else 0.0

    def _alone(self, lot: Lot) -> bool:
        """Whether a lot that nothing came before is within the budget by its own total."""
        try:
            return total(lot.guarantee, lot.size, self.delta).eps <= self.eps
        except ConfigError:  # no bound applies
            return False


@lru_cache(maxsize=256)
def eps_so_far(allowance: Allowance, spent: Cost) -> float:
    """The least eps of a budget with the same delta that holds what was spent: where the counter
    stands, no guarantee.

    After a first lot that its own total alone admitted, all of it.
    """
    if spent == Cost():
        return 0.0
    return least(lambda eps: replace(allowance, eps=eps).holds(spent), 1e-300, allowance.eps)
