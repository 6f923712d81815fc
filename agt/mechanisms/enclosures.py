"""Enclosures of exp and of the normal distribution function that are proved, in decimals of 100
digits.

Sums, products and quotients round down in ``DOWN`` and up in ``UP``. ``decimal`` rounds exp and
sqrt correctly to the nearest, so their neighbours on either side enclose the true value. Python's
operators would round to the thread's own context, even the unary minus: no arithmetic here uses
them (``copy_negate`` and comparisons are exact).
"""

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from functools import lru_cache
from typing import NamedTuple

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

    Phi(x) = 1/2 - phi(x) S(|x|), S(v) = v + v^3/3 + v^5/(3*5) + ...: every term positive. Once two
    successive terms have a ratio of at most 1/2, what is left out is at most the last term.

    Raises:
        ValueError: x is outside the range.
    """
    if not FARTHEST <= x <= 0:
        raise ValueError(f"normal({x}): outside [{FARTHEST}, 0]")
    v = x.copy_negate()
    low, high = DOWN.multiply(v, v), ROUND_UP.multiply(v, v)
    shrink_low = exp_lower(ROUND_UP.divide(high, _TWO).copy_negate())
    shrink_high = ROUND_UP.next_plus(ROUND_UP.exp(DOWN.divide(low, _TWO).copy_negate()))
    density_low = DOWN.divide(
        shrink_low, ROUND_UP.next_plus(ROUND_UP.sqrt(ROUND_UP.multiply(_TWO, PI_HIGH)))
    )
    density_high = ROUND_UP.divide(
        shrink_high, DOWN.next_minus(DOWN.sqrt(DOWN.multiply(_TWO, PI_LOW)))
    )
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
