"""Proved bounds on exp and on the normal distribution function, in decimals of 100 digits.

Sums, products and quotients round down in ``ROUND_DOWN`` and up in ``ROUND_UP``. Python's operators
would round to the thread's own context, even the unary minus, so no arithmetic here uses them;
``copy_negate`` and comparisons are exact.
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
_LAST_TERM = Decimal("1e-70")  # of the series for Phi


class NormalBounds(NamedTuple):
    """Bounds at one point x: lower <= Phi(x) <= upper, 0 < density <= phi(x)."""

    lower: Decimal
    upper: Decimal
    density: Decimal


def exp_lower(x: Decimal) -> Decimal:
    """Return a number that is at most exp(x), by less than one part in 10^98."""
    # ``decimal`` rounds exp and sqrt to the nearest, so the next number below is a bound.
    return ROUND_DOWN.next_minus(ROUND_DOWN.exp(x))


@lru_cache(maxsize=8)  # a long table asks for the left end again and again
def bound_normal(x: Decimal) -> NormalBounds:
    """Return bounds on Phi(x), within 10^-60, and a lower bound on its density.

    Args:
        x: in [NORMAL_LEFT_END, 0].

    Raises:
        ValueError: x is outside the range.
    """
    if not NORMAL_LEFT_END <= x <= 0:
        raise ValueError(f"bound_normal({x}): the argument lies outside of [{NORMAL_LEFT_END}, 0]")
    # Lemma 6 of docs/proofs/tables.md: Phi(x) = 1/2 - phi(x) S(|x|)
    v = x.copy_negate()
    square_low = ROUND_DOWN.multiply(v, v)
    square_high = ROUND_UP.multiply(v, v)
    exp_low = exp_lower(ROUND_UP.divide(square_high, _TWO).copy_negate())
    exp_high = ROUND_UP.next_plus(ROUND_UP.exp(ROUND_DOWN.divide(square_low, _TWO).copy_negate()))
    root_high = ROUND_UP.next_plus(ROUND_UP.sqrt(ROUND_UP.multiply(_TWO, PI_HIGH)))
    root_low = ROUND_DOWN.next_minus(ROUND_DOWN.sqrt(ROUND_DOWN.multiply(_TWO, PI_LOW)))
    density_low = ROUND_DOWN.divide(exp_low, root_high)
    density_high = ROUND_UP.divide(exp_high, root_low)
    series_low, series_high = _bound_series(v, square_low, square_high)
    lower = ROUND_DOWN.subtract(_HALF, ROUND_UP.multiply(density_high, series_high))
    upper = ROUND_UP.subtract(_HALF, ROUND_DOWN.multiply(density_low, series_low))
    return NormalBounds(lower, upper, density_low)


def _bound_series(v: Decimal, square_low: Decimal, square_high: Decimal) -> tuple[Decimal, Decimal]:
    """Return bounds on S(v) = v + v^3/3 + v^5/(3*5) + ...

    Args:
        v: at least 0.
        square_low: at most v^2.
        square_high: at least v^2.
    """
    term_low = term_high = sum_low = sum_high = v
    odd = 1
    while True:
        odd += 2
        divisor = Decimal(odd)
        term_low = ROUND_DOWN.divide(ROUND_DOWN.multiply(term_low, square_low), divisor)
        term_high = ROUND_UP.divide(ROUND_UP.multiply(term_high, square_high), divisor)
        sum_low = ROUND_DOWN.add(sum_low, term_low)
        sum_high = ROUND_UP.add(sum_high, term_high)
        terms_halve = ROUND_UP.add(square_high, square_high) <= divisor
        if term_high <= _LAST_TERM and terms_halve:
            # What is left out is at most the last term (Lemma 6 of docs/proofs/tables.md).
            return sum_low, ROUND_UP.add(sum_high, term_high)
