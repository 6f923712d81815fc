"""The account of a budget: what lots of releases cost together, and whether one more still fits.

A lot is a number of releases, fixed before the first of them is drawn, each with the same
guarantee: a file of queries, the weights of a head. Lots are chosen one after another by people who
have seen what earlier ones released. A filter, a rule on public settings alone, refuses the lot
that would go too far.

    allowance = Allowance(eps=1.0, delta=1e-5)
    lot = Lot(PureDP(0.01), size=50)
    if allowance.admits(spent, lot):                 spent: a Cost, Cost() at first
        spent = spent.plus(lot.cost)
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
from agt.mechanisms.composition import MAX_QUERIES, smallest_holding, total
from agt.mechanisms.enclosures import ROUND_DOWN
from agt.mechanisms.gaussian_equivalent import squared_mu
from agt.mechanisms.guarantees import ApproximateDP, GaussianDP, Guarantee, delta_of_pure
from agt.messages import Message
from agt.numeric import bisect, midpoint, mills_delta, next_up, whole_midpoint, written
from agt.settings import STRICT

LEAK_SHARE = 0.1  # a tenth of delta costs Gaussian releases one in a hundred
MAX_TOTAL_EPS = 1e6  # of a budget: what has more protects nobody
_MAX_TOTAL_MU = 1e5  # beyond, rounding is not covered by mills_delta's allowance

_EXACT = Context(prec=50, rounding=ROUND_CEILING)  # 10^12 releases of any eps, to the last digit


def _amount_as_text(amount: Decimal) -> str | None:
    """Return a decimal as files have it; None stands for infinity."""
    return str(amount) if amount.is_finite() else None


def _read_amount(value: object) -> Decimal:
    """Return the decimal that ``_amount_as_text`` wrote.

    Raises:
        ValueError: it wrote no such thing.
    """
    if type(value) is Decimal:
        return value
    if value is None:
        return Decimal("Infinity")
    if not isinstance(value, str) or not _AMOUNT.fullmatch(value):
        raise ValueError(f"{value!r} is not a decimal number written as text")
    return Decimal(value)


_AMOUNT = re.compile(r"[0-9]+(\.[0-9]+)?(E[+-]?[0-9]+)?")
Amount = Annotated[
    Decimal,
    PlainValidator(_read_amount),
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
        guarantee: of each release, whatever was released before it.
        size: how many releases there are.

    Raises:
        ConfigError: the size is not a whole number from 1 to 10^12.

    Formal guarantees
        - A lot is a post-processing of coins that are tossed when it is admitted (Lemma 1 of
          docs/proofs/budget.md), so its releases may be drawn one by one, with other lots in
          between (Lemma 2 of docs/proofs/budget.md).
        - What is not drawn of a lot stays spent.
    """

    guarantee: Guarantee
    size: int = 1

    def __post_init__(self) -> None:
        is_integer = isinstance(self.size, int) and not isinstance(self.size, bool)
        if not is_integer or not 1 <= self.size <= MAX_QUERIES:
            raise ConfigError(
                f"a lot of {self.size!r} releases: the size must be a whole number from 1 to "
                f"{MAX_QUERIES:.0e}"
            )

    @property
    def cost(self) -> "Cost":
        """What the lot costs, rounded up."""
        guarantee = self.guarantee
        if isinstance(guarantee, GaussianDP):
            mu = Decimal(guarantee.mu)
            square = _EXACT.multiply(self.size, _EXACT.multiply(mu, mu))
            return Cost(pure=Decimal("Infinity"), square=square)
        leak = Decimal(0)
        if isinstance(guarantee, ApproximateDP):
            leak = _EXACT.multiply(self.size, written(guarantee.delta))
        pure = _EXACT.multiply(self.size, written(guarantee.eps))
        return Cost(pure, Decimal(squared_mu(guarantee.eps, self.size)), leak)


@dataclass(frozen=True)
class Cost:
    """What lots cost together. Each of the three sums only grows.

    Attributes:
        pure: leaks apart, the lots are pure-DP with this eps; infinite: they are not pure.
        square: leaks apart, the lots are mu-GDP with this mu^2.
        leak: bound on the probability that something leaks.

    Raises:
        ConfigError: one is negative or no number.
    """

    pure: Amount = Decimal(0)
    square: Amount = Decimal(0)
    leak: Amount = Decimal(0)

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    def __post_init__(self) -> None:
        _check_amount(self.pure, may_be_infinite=True)
        _check_amount(self.square)
        _check_amount(self.leak)

    def plus(self, other: "Cost") -> "Cost":
        """Return what both cost together, rounded up."""
        return Cost(
            _EXACT.add(self.pure, other.pure),
            _EXACT.add(self.square, other.square),
            _EXACT.add(self.leak, other.leak),
        )

    def as_json(self) -> dict[str, str | None]:
        """Return the amounts as text, so that no reader rounds them; None for infinity."""
        return {name: _amount_as_text(getattr(self, name)) for name in ("pure", "square", "leak")}

    @classmethod
    def from_json(cls, node: Mapping[str, str | None]) -> "Cost":
        """Return the cost whose ``as_json`` is given.

        Raises:
            ConfigError: it is not the form of a cost.
        """
        try:
            amounts = [node[name] for name in ("pure", "square", "leak")]
            return cls(*(Decimal("Infinity" if text is None else str(text)) for text in amounts))
        except (InvalidOperation, KeyError, TypeError):
            raise ConfigError(
                f"the recorded cost {node!r} cannot be read: it must consist of decimal "
                "numbers written as text"
            ) from None


@dataclass(frozen=True)
class Allowance:
    """A budget for good: what everything about one population may cost together.

    Attributes:
        eps: all of it is (eps, delta)-DP.
        delta: see ``eps``; 0: pure differential privacy.
        leaks: the share of delta that goes to releases with a delta of their own; the rest is for
            Gaussian sums. 1 leaves them nothing: lots add up by basic composition alone.

    Raises:
        ConfigError: eps is not positive, or beyond ``MAX_TOTAL_EPS``, delta not in [0, 1), or leaks
            not in [0, 1].

    Formal guarantees
        - All that is released is (eps, delta)-DP if every lot was admitted before it was drawn,
          however lots are chosen (docs/proofs/budget.md).
        - The cost so far is the position of a counter and no guarantee of its own: what may be
          claimed is the budget, and its curve (``delta_of``).
        - Conditions: draws of different lots are independent, and all lots are about the same
          neighbours (one relation, and a unit the same people).
    """

    eps: float
    delta: float = 0.0
    leaks: float = LEAK_SHARE

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    def __post_init__(self) -> None:
        if not 0 < self.eps <= MAX_TOTAL_EPS:
            raise ConfigError(
                Message(
                    "{config:total.eps}={eps!r}: give the budget as a positive number, up to "
                    "{maximum:g}",
                    eps=self.eps,
                    maximum=MAX_TOTAL_EPS,
                )
            )
        if not 0 <= self.delta < 1:
            raise ConfigError(
                Message(
                    "{config:total.delta}={delta!r}: give a number of at least 0 and below 1, "
                    "far below 1 / (number of records)",
                    delta=self.delta,
                )
            )
        if not 0 <= self.leaks <= 1:
            raise ConfigError(
                Message(
                    "{config:total.leaks}={leaks!r}: give the share of {config:total.delta} "
                    "that is reserved for releases with a delta of their own, from 0 to 1",
                    leaks=self.leaks,
                )
            )

    @property
    def leak(self) -> Decimal:
        """What the probability of leaks may come to, rounded down."""
        # It is fixed beforehand: one delta for leaks and Gaussian sums together is not sound
        # (docs/proofs/budget.md, "Why the leaks' share is fixed").
        return ROUND_DOWN.multiply(written(self.delta), written(self.leaks))

    @cached_property
    def mu(self) -> float:
        """What mu of all Gaussian sums together may come to, rounded down."""
        remaining = ROUND_DOWN.subtract(written(self.delta), self.leak)
        delta = float(remaining)
        if Decimal(delta) > remaining:
            delta = math.nextafter(delta, 0.0)
        return bisect(lambda mu: mills_delta(self.eps, mu) <= delta, 0.0, _MAX_TOTAL_MU, midpoint)[
            0
        ]

    @cached_property
    def square(self) -> Decimal:
        """What mu^2 of all Gaussian sums together may come to, rounded down."""
        return ROUND_DOWN.multiply(Decimal(self.mu), Decimal(self.mu))

    def holds(self, cost: Cost) -> bool:
        """Return whether a cost is within the budget, by one of the two filters."""
        # Lemma 3 of docs/proofs/budget.md for the square, Lemma 4 of docs/proofs/budget.md for
        # pure, Lemma 5 of docs/proofs/budget.md for leaks: together Lemma 6 of
        # docs/proofs/budget.md.
        return cost.leak <= self.leak and (
            cost.pure <= written(self.eps) or cost.square <= self.square
        )

    def admits(self, spent: Cost, lot: Lot) -> bool:
        """Return whether a lot may still be released.

        Args:
            spent: what all lots before it cost together.
            lot: the one that is asked for.
        """
        # Lemma 7 of docs/proofs/budget.md: of the first lot, its own total is enough.
        return self.holds(spent.plus(lot.cost)) or (spent == Cost() and self._admits_alone(lot))

    def fitting(self, spent: Cost, guarantee: Guarantee, requested: int) -> int:
        """Return the size of the largest lot that still fits.

        Args:
            spent: what all lots before it cost together.
            guarantee: of each of its releases.
            requested: the most that it may have, at least 0.

        Returns:
            A number from 0, where not one release fits, to ``requested``.
        """

        def fits(size: int) -> bool:
            return size == 0 or self.admits(spent, Lot(guarantee, size))

        fitting_size = refused_size = requested
        # Down from what is requested, by steps that double: often as much fits as did before.
        while not fits(fitting_size):
            refused_size = fitting_size
            fitting_size = max(0, 2 * fitting_size - requested - 1)
        if fitting_size == refused_size:
            return fitting_size
        return bisect(fits, fitting_size, refused_size, whole_midpoint)[0]

    def delta_of(self, eps: float) -> float:
        """Return the delta for which all that is ever admitted is (eps, delta)-DP, rounded up.

        It is not for a first lot that its own total alone admitted, which has a curve of its own.

        Args:
            eps: at least 0.
        """
        # Lemma 8 of docs/proofs/budget.md
        gaussian = mills_delta(eps, self.mu) if self.mu else 0.0
        pure = 0.0
        if eps < self.eps:  # both are read as decimals
            pure = delta_of_pure(next_up(self.eps), eps)
        parts = (float(self.leak), pure, gaussian)
        if not any(parts):
            return 0.0
        return min(1.0, next_up(next_up(math.fsum(parts))))

    def _admits_alone(self, lot: Lot) -> bool:
        """Return whether a lot that nothing came before is within the budget by its own total."""
        try:
            return total(lot.guarantee, lot.size, self.delta).eps <= self.eps
        except ConfigError:  # no bound applies
            return False


@lru_cache(maxsize=256)
def eps_so_far(allowance: Allowance, spent: Cost) -> float:
    """Return the least eps of a budget with the same delta that holds what was spent.

    It is where the counter stands, and no guarantee. After a first lot that its own total alone
    admitted, it is all of the allowance's eps; before any lot, 0.
    """
    if spent == Cost():
        return 0.0
    return smallest_holding(
        lambda eps: replace(allowance, eps=eps).holds(spent), 1e-300, allowance.eps
    )


def _check_amount(amount: Decimal, may_be_infinite: bool = False) -> None:
    """Raise ConfigError unless an amount is a decimal of at least 0."""
    is_number = isinstance(amount, Decimal) and not amount.is_nan() and amount >= 0
    if not is_number or (amount.is_infinite() and not may_be_infinite):
        raise ConfigError(f"the cost {amount!r} must consist of decimal numbers of at least 0")
