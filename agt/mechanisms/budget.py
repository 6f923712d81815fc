"""A privacy filter: what releases cost together, and whether one more fits into a fixed budget.

Releases are charged in lots: groups whose number and guarantee are fixed before the first release
is drawn, such as the answers to a file of queries. Later lots may be chosen by people who have seen
earlier releases; the filter refuses a lot that would exceed the budget.

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
from agt.mechanisms.composition import MAX_QUERIES, MAX_TOTAL_MU, smallest_holding, total
from agt.mechanisms.enclosures import ROUND_DOWN
from agt.mechanisms.gaussian_equivalent import squared_mu
from agt.mechanisms.guarantees import ApproximateDP, GaussianDP, Guarantee, delta_of_pure
from agt.numeric import bisect, midpoint, mills_delta, next_up, printed_decimal, whole_midpoint
from agt.release_settings import TotalBudget
from agt.settings import STRICT

# 50 digits hold the sum of 10^12 releases of any eps exactly; what they do not hold is rounded up.
_EXACT = Context(prec=50, rounding=ROUND_CEILING)


def _amount_as_text(amount: Decimal) -> str | None:
    """Return a decimal as files store it: its digits as text; None for infinity."""
    return str(amount) if amount.is_finite() else None


def _read_amount(value: object) -> Decimal:
    """Return the decimal that a file stores as text; None means infinity.

    Args:
        value: text such as "0.25" or "1E-7", None, or a Decimal, which is returned unchanged.

    Raises:
        ValueError: it is anything else, a number in binary floating point included.
    """
    if type(value) is Decimal:
        return value
    if value is None:
        return Decimal("Infinity")
    if not isinstance(value, str) or not _AMOUNT.fullmatch(value):
        raise ValueError(f'{value!r} is not a decimal number in quotes, such as "0.5"')
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
    """A group of releases with one guarantee, whose budget is reserved at once.

    The number of releases is fixed before the first of them is drawn: the answers to a file of
    queries, say, or one release of weights.

    Attributes:
        guarantee: the guarantee of each release, whatever was released before it.
        size: the number of releases.

    Raises:
        ConfigError: the size is not a whole number from 1 to 10^12.

    Formal guarantees
        - The releases may be drawn one by one, with other lots in between: their noise can be
          simulated from coins that are tossed when the lot is admitted (Lemma 1 of
          docs/proofs/budget.md and Lemma 2 of docs/proofs/budget.md).
        - The whole lot is charged. Releases that are never drawn are not refunded.
    """

    guarantee: Guarantee
    size: int = 1

    def __post_init__(self) -> None:
        """Raise ConfigError unless size is a whole number from 1 to ``MAX_QUERIES``."""
        is_integer = isinstance(self.size, int) and not isinstance(self.size, bool)
        if not is_integer or not 1 <= self.size <= MAX_QUERIES:
            raise ConfigError(
                f"the number of releases that are counted together is {self.size!r}, but must be "
                f"a whole number from 1 to {MAX_QUERIES:.0e}"
            )

    @property
    def cost(self) -> "Cost":
        """The total cost of the group's releases: sums of their budgets, rounded up.

        For n releases:

        - GaussianDP(mu): the sum of mu^2 is n mu^2. The sum of pure eps is infinite.
        - PureDP(eps): the sum of pure eps is n eps. The sum of mu^2 is one for which n eps-DP
          releases together are mu-GDP.
        - ApproximateDP(eps, delta): as for PureDP(eps), and the probability of a leak is n delta.
        """
        guarantee = self.guarantee
        if isinstance(guarantee, GaussianDP):
            mu = Decimal(guarantee.mu)
            square = _EXACT.multiply(self.size, _EXACT.multiply(mu, mu))
            return Cost(pure=Decimal("Infinity"), square=square)
        # eps and delta are read as the decimals that they print as: 0.1 is a tenth, so that ten
        # releases of 0.1 cost 1, and not a little more.
        leak = Decimal(0)
        if isinstance(guarantee, ApproximateDP):
            leak = _EXACT.multiply(self.size, printed_decimal(guarantee.delta))
        pure = _EXACT.multiply(self.size, printed_decimal(guarantee.eps))
        square = Decimal(squared_mu(guarantee.eps, self.size))
        return Cost(pure, square, leak)


@dataclass(frozen=True)
class Cost:
    """The total cost of several lots (groups of releases, each charged at once), as three sums.

    An (eps, delta)-DP release can be simulated by an eps-DP one that reveals the data with
    probability delta. That event is called a leak. Gaussian noise has no leaks.

    Attributes:
        pure: the eps with which all releases together are pure-DP if nothing leaks; infinite if one
            of them has Gaussian noise.
        square: the mu^2 with which all releases together are mu-GDP if nothing leaks.
        leak: an upper bound on the probability that one of the releases leaks.

    Raises:
        ConfigError: a sum is negative, NaN, or (``square`` and ``leak``) infinite.
    """

    pure: Amount = Decimal(0)
    square: Amount = Decimal(0)
    leak: Amount = Decimal(0)

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    def __post_init__(self) -> None:
        """Raise ConfigError unless each sum is a decimal >= 0; only ``pure`` may be infinite."""
        _check_amount(self.pure, may_be_infinite=True)
        _check_amount(self.square)
        _check_amount(self.leak)

    def plus(self, other: "Cost") -> "Cost":
        """Return the cost of all releases of both: the three sums added, each rounded up."""
        return Cost(
            _EXACT.add(self.pure, other.pure),
            _EXACT.add(self.square, other.square),
            _EXACT.add(self.leak, other.leak),
        )

    def as_json(self) -> dict[str, str | None]:
        """Return the three sums as decimal text, so that no reader of the file rounds them.

        Infinity is None.
        """
        return {
            "pure": _amount_as_text(self.pure),
            "square": _amount_as_text(self.square),
            "leak": _amount_as_text(self.leak),
        }

    @classmethod
    def from_json(cls, node: Mapping[str, str | None]) -> "Cost":
        """Return the cost that ``as_json`` wrote.

        Args:
            node: "pure", "square" and "leak" as decimal text; None stands for infinity.

        Raises:
            ConfigError: a key is missing, or a value is not the text of an amount of at least 0.
        """

        def amount(name: str) -> Decimal:
            """Return the amount that the file stores under a name."""
            text = node[name]
            return Decimal("Infinity") if text is None else Decimal(str(text))

        try:
            return cls(amount("pure"), amount("square"), amount("leak"))
        except (InvalidOperation, KeyError, TypeError):
            raise ConfigError(
                f"the recorded cost {node!r} cannot be read: its entries 'pure', 'square' and "
                "'leak' must be decimal numbers written as text"
            ) from None


@dataclass(frozen=True)
class Allowance(TotalBudget):
    """A fixed privacy budget for everything that is ever released about one population.

    Attributes:
        eps: all releases together are (eps, delta)-DP.
        delta: see ``eps``; 0: pure differential privacy.
        leaks: the share of delta for leaks. (An (eps, delta)-DP release can be simulated by an
            eps-DP one that leaks the data with probability delta.) The rest of delta converts
            Gaussian DP to (eps, delta)-DP. At 1 nothing is left for that, so that no Gaussian noise
            is admitted and eps only adds up by basic composition.

    Raises:
        ConfigError: eps is not positive, or beyond ``MAX_TOTAL_EPS``, delta not in [0, 1), or leaks
            not in [0, 1].

    Formal guarantees
        - All that is released is (eps, delta)-DP if every lot (a group of releases that is charged
          at once) was admitted before it was drawn, however people choose lots
          (docs/proofs/budget.md).
        - Only the budget and its curve (``delta_of``) are guaranteed. The cost so far is no
          guarantee of its own, because later lots may depend on earlier releases.
        - Assumptions: the noise of different lots is independent, and all lots have the same
          neighbouring datasets (one relation; a unit is the same people everywhere).
    """

    @property
    def leak_limit(self) -> Decimal:
        """The limit for the probability that a release leaks: a fixed share of delta, rounded down.

        An (eps, delta)-DP release can be simulated by an eps-DP one that leaks with probability
        delta.
        """
        # The share is fixed beforehand. A rule that spends one delta on leaks and Gaussian noise
        # as they come is not sound (docs/proofs/budget.md, "Why the leaks' share is fixed").
        return ROUND_DOWN.multiply(printed_decimal(self.delta), printed_decimal(self.leaks))

    @cached_property
    def mu_limit(self) -> float:
        """The limit for Gaussian DP: the largest mu for which mu-GDP is (eps, rest of delta)-DP.

        The rest of delta is the part that is not set aside for leaks. mu is rounded down, found by
        bisection (delta grows with mu), and 0 where no delta remains.
        """
        remaining = ROUND_DOWN.subtract(printed_decimal(self.delta), self.leak_limit)
        delta = float(remaining)
        if Decimal(delta) > remaining:  # float rounded up, and delta must not grow
            delta = math.nextafter(delta, 0.0)
        # Find the largest mu for which mu-GDP is (eps, delta)-DP with the budget's eps.
        largest_within, _ = bisect(
            lambda mu: mills_delta(self.eps, mu) <= delta, 0.0, MAX_TOTAL_MU, midpoint
        )
        return largest_within

    @cached_property
    def squared_mu_limit(self) -> Decimal:
        """The limit for the sum of mu^2 of all releases: ``mu_limit`` squared, rounded down."""
        mu = Decimal(self.mu_limit)
        return ROUND_DOWN.multiply(mu, mu)

    def holds(self, cost: Cost) -> bool:
        """Return whether a cost is within the budget.

        The probability of a leak must be within its share of delta. In addition either the sum of
        eps is at most the budget's eps (basic composition), or the sum of mu^2 is within its limit
        (Gaussian composition).
        """
        # Lemma 6 of docs/proofs/budget.md: these limits make all releases (eps, delta)-DP. It
        # joins Lemma 3 of docs/proofs/budget.md (the sum of mu^2), Lemma 4 of
        # docs/proofs/budget.md (the sum of eps) and Lemma 5 of docs/proofs/budget.md (leaks).
        if cost.leak > self.leak_limit:
            return False
        if cost.pure <= printed_decimal(self.eps):
            return True
        return cost.square <= self.squared_mu_limit

    def admits(self, spent: Cost, lot: Lot) -> bool:
        """Return whether a lot may still be released within the budget.

        Args:
            spent: the total cost of all earlier lots; ``Cost()``: there was none.
            lot: the group of releases that is asked for.
        """
        if self.holds(spent.plus(lot.cost)):
            return True
        # Lemma 7 of docs/proofs/budget.md: the first lot may use the whole budget by its own total,
        # which can be less than the sums. Nothing is admitted after it, as the sums then exceed
        # the budget.
        return spent == Cost() and self._admits_alone(lot)

    def max_lot_size(self, spent: Cost, guarantee: Guarantee, requested: int) -> int:
        """Return the number of releases with one guarantee that the budget still admits together.

        Args:
            spent: the total cost of all earlier lots (groups of releases charged at once).
            guarantee: the guarantee of each release.
            requested: an upper limit for the answer, at least 0.

        Returns:
            A number from 0 (not one release fits) to ``requested``.
        """

        def fits(size: int) -> bool:
            """Return whether the budget admits a lot of this size; 0 releases always fit."""
            return size == 0 or self.admits(spent, Lot(guarantee, size))

        if fits(requested):
            return requested
        # Usually most of the requested size fits. So step down from it by 1, 2, 4, ... until a size
        # fits, and then bisect between this size and the last one that was refused.
        refused_size = requested
        step = 1
        tried_size = max(0, refused_size - step)
        while not fits(tried_size):
            refused_size = tried_size
            step *= 2
            tried_size = max(0, refused_size - step)
        largest_fitting, _ = bisect(fits, tried_size, refused_size, whole_midpoint)
        return largest_fitting

    def delta_of(self, eps: float) -> float:
        """Return the delta for which all that is ever admitted is (eps, delta)-DP, rounded up.

        It does not cover a first lot that was admitted only by its own total (``admits``); that lot
        has a privacy curve of its own.

        Args:
            eps: the eps of the result, at least 0; it may differ from the budget's eps.
        """
        # Lemma 8 of docs/proofs/budget.md: delta is at most the sum of the limit for leaks, the
        # delta of one pure-DP release of the budget's eps, and the delta of mu_limit-GDP.
        gaussian_delta = 0.0
        if self.mu_limit > 0:
            gaussian_delta = mills_delta(eps, self.mu_limit)
        pure_delta = 0.0
        if eps < self.eps:
            # The budget's eps is the decimal that it prints as, which may exceed the float.
            pure_delta = delta_of_pure(next_up(self.eps), eps)
        parts = (float(self.leak_limit), pure_delta, gaussian_delta)
        if not any(parts):
            return 0.0  # exactly 0, which rounding up would exceed
        # Once up for the sum's rounding, and once for that of leak_limit.
        return min(1.0, next_up(next_up(math.fsum(parts))))

    def _admits_alone(self, lot: Lot) -> bool:
        """Return whether the budget holds the total of one lot, if no other lot is ever charged.

        The total is computed by the best composition theorem for a fixed number of releases, which
        may be less than the running sums of ``Cost``.

        Args:
            lot: a group of releases with one guarantee.
        """
        try:
            total_of_lot = total(lot.guarantee, lot.size, self.delta)
        except ConfigError:  # no composition theorem applies, so no total is known
            return False
        return total_of_lot.eps <= self.eps


@lru_cache(maxsize=256)
def eps_so_far(allowance: Allowance, spent: Cost) -> float:
    """Return the least eps of a budget with the same delta that covers all releases so far.

    It is for display, and not a privacy guarantee: only the whole budget is guaranteed.

    Args:
        allowance: the budget; delta and its split stay unchanged.
        spent: the cost of all releases so far.

    Returns:
        0 before the first release. After a first lot that was admitted only by its own total, the
        budget's whole eps. Otherwise a number in between, rounded up.
    """
    if spent == Cost():
        return 0.0
    smallest_eps = 1e-300  # far below any cost, because a budget's eps must be above 0
    return smallest_holding(
        lambda eps: replace(allowance, eps=eps).holds(spent), smallest_eps, allowance.eps
    )


def _check_amount(amount: Decimal, may_be_infinite: bool = False) -> None:
    """Raise ConfigError unless an amount of a cost is a decimal of at least 0.

    Args:
        amount: the value to check.
        may_be_infinite: infinity is allowed, too.
    """
    is_number = isinstance(amount, Decimal) and not amount.is_nan() and amount >= 0
    if not is_number or (amount.is_infinite() and not may_be_infinite):
        raise ConfigError(f"the cost {amount!r} must be a decimal number of at least 0")
