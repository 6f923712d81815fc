"""Proved bounds on exp and on the normal distribution function, in decimals of 100 digits.

The contexts ``ROUND_DOWN`` and ``ROUND_UP`` round sums, products and quotients in one direction.
Python's operators, even the unary minus, would round by the current thread's context, so they are
not used for arithmetic here. ``copy_negate`` and comparisons are exact.
"""

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from functools import lru_cache
from typing import NamedTuple

ROUND_DOWN = Context(prec=100, rounding=ROUND_FLOOR)
ROUND_UP = Context(prec=100, rounding=ROUND_CEILING)

PI_LOW = Decimal(  # 100 digits; the next are 82
    "3.141592653589793238462643383279502884197169399375105820974944592307816406286208998628034825342117067"
)
PI_HIGH = ROUND_DOWN.next_plus(PI_LOW)

NORMAL_LEFT_END = Decimal("-13.5")  # Phi there is below 2^-136, less than any entry of a table

_HALF = Decimal("0.5")
_TWO = Decimal(2)
_LAST_TERM = Decimal("1e-70")  # the series for Phi ends at a term of at most this


class NormalBounds(NamedTuple):
    """Bounds on the standard normal distribution function Phi and its density phi at a point x.

    Attributes:
        lower: a lower bound on Phi(x).
        upper: an upper bound on Phi(x).
        density: above 0 and at most phi(x).
    """

    lower: Decimal
    upper: Decimal
    density: Decimal


def exp_lower(x: Decimal) -> Decimal:
    """Return a lower bound on exp(x), with a relative error below 10^-98.

    Args:
        x: any finite number.
    """
    # ``decimal`` rounds exp to the nearest number whatever the context's rounding is, so the next
    # number below is a lower bound.
    return ROUND_DOWN.next_minus(ROUND_DOWN.exp(x))


@lru_cache(maxsize=8)  # a long table needs the bounds at the left end many times
def bound_normal(x: Decimal) -> NormalBounds:
    """Return proved bounds on the standard normal distribution function Phi and density phi at x.

    The bounds on Phi(x) are within 10^-60 of each other. The density is bounded from below only.

    Args:
        x: the point, from ``NORMAL_LEFT_END`` (-13.5) to 0.

    Raises:
        ValueError: x is outside this range.
    """
    if not NORMAL_LEFT_END <= x <= 0:
        raise ValueError(
            f"bound_normal({x}): the argument x must be between {NORMAL_LEFT_END} and 0"
        )
    # Lemma 6 of docs/proofs/tables.md: Phi(x) = 1/2 - phi(x) S(v) with v = |x|, where S is a series
    # of positive terms and phi(x) = exp(-v^2 / 2) / sqrt(2 pi). Each quantity has a bound on both
    # sides, and a bound is rounded away from the true value.
    v = x.copy_negate()
    square_low = ROUND_DOWN.multiply(v, v)
    square_high = ROUND_UP.multiply(v, v)
    # ``decimal`` rounds exp and sqrt to the nearest number, so the neighbours of it are bounds.
    lowest_exponent = ROUND_UP.divide(square_high, _TWO).copy_negate()  # of exp(-v^2 / 2)
    exp_low = exp_lower(lowest_exponent)
    highest_exponent = ROUND_DOWN.divide(square_low, _TWO).copy_negate()
    exp_high = ROUND_UP.next_plus(ROUND_UP.exp(highest_exponent))
    two_pi_high = ROUND_UP.multiply(_TWO, PI_HIGH)
    root_high = ROUND_UP.next_plus(ROUND_UP.sqrt(two_pi_high))  # of sqrt(2 pi)
    two_pi_low = ROUND_DOWN.multiply(_TWO, PI_LOW)
    root_low = ROUND_DOWN.next_minus(ROUND_DOWN.sqrt(two_pi_low))
    density_low = ROUND_DOWN.divide(exp_low, root_high)
    density_high = ROUND_UP.divide(exp_high, root_low)
    series_low, series_high = _bound_series(v, square_low, square_high)
    lower = ROUND_DOWN.subtract(_HALF, ROUND_UP.multiply(density_high, series_high))
    upper = ROUND_UP.subtract(_HALF, ROUND_DOWN.multiply(density_low, series_low))
    return NormalBounds(lower, upper, density_low)


def _bound_series(v: Decimal, square_low: Decimal, square_high: Decimal) -> tuple[Decimal, Decimal]:
    """Return (lower bound, upper bound) of the series S(v) = v + v^3/3 + v^5/(3*5) + ...

    Args:
        v: a number of at least 0.
        square_low: a lower bound on v^2, at least 0.
        square_high: an upper bound on v^2.
    """
    # The first term is v itself.
    term_low = v
    term_high = v
    sum_low = v
    sum_high = v
    odd = 1
    while True:
        odd += 2
        divisor = Decimal(odd)
        # Each term is the one before times v^2 / odd.
        term_low = ROUND_DOWN.divide(ROUND_DOWN.multiply(term_low, square_low), divisor)
        term_high = ROUND_UP.divide(ROUND_UP.multiply(term_high, square_high), divisor)
        sum_low = ROUND_DOWN.add(sum_low, term_low)
        sum_high = ROUND_UP.add(sum_high, term_high)
        # From here on each term is at most half of the one before.
        terms_halve = ROUND_UP.add(square_high, square_high) <= divisor
        if term_high <= _LAST_TERM and terms_halve:
            # So the terms that are left out add up to at most the last term (Lemma 6 of
            # docs/proofs/tables.md). They are positive, so the lower sum needs nothing.
            return sum_low, ROUND_UP.add(sum_high, term_high)
