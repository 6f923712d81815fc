"""Integer tables that release mechanisms sample from: every privacy inequality holds exactly, rounding included.

A label is released by comparing a uniform integer U in [0, N), N = 2^128, with thresholds: at stable distance L each of
the m = C - 1 wrong labels has exactly s[L] values of U, the nominal one N - m s[L]. A table starts with ``first`` and goes
on with ``after``; both take a wish, the number that a mechanism's formula asks for, and return it, or the nearest number
that privacy allows. So the table of any mechanism is private whatever its formula; formulas in floating point only wish.

Formal guarantees
    Setting. A query's state is (label, L). Between neighbours L moves by at most 1, and the label can differ only if L = 0
    on both sides (method.md section 3). With s[0] >= s[1] >= ... (both functions see to it) it is enough that:

    PureDP(e), ApproximateDP(e, d), with E <= exp(e) and D <= d N the rational numbers that the code uses (d = 0 if pure; e
    and d are each the double or the decimal that it prints as, whichever is less, so that either may be claimed):
      1. m s[L] <= E m s[L+1] + D            events without the right label, which are the likelier at L
      2. N - m s[L+1] <= E (N - m s[L]) + D  the right label, likelier at L + 1
      3. N - m s[0] <= E s[0] + D            the label differs: the event {the label of this side}
      4. s[0] <= N - m s[0]                  the nominal label is the likeliest, so no other event is worse than 3
    These suffice: P(S) - E P'(S) is greatest for S = the labels where it is positive. For equal labels, with L on one side
    and L + 1 on the other, that is all wrong labels (1) or the right one (2); equal L is trivial. For different labels it
    is the label of the one side, by 4 and because the remaining labels have equal probability on both sides.
    ``first`` is the least s that satisfies 3, ``after`` the least that satisfies 1 and 2, found by integer division rounded
    up; the wish only raises them. Capping ``after`` at s[L] keeps 1 and 2, which s[L+1] = s[L] satisfies. Capping ``first``
    at floor(N/C) gives 4, and keeps 3: at s = floor(N/C), N - m s <= N/C + m and E s > E (N/C - 1), and
    (E - 1) N/C >= m + E because E - 1 >= 10^-15 and C <= 2^16.

    GaussianDP(mu), C = 2, z = Phi^-1(s/N). A test between two coins mixes the four events of a coin, and G_mu is convex, so
    mu-GDP holds iff no event beats G_mu: Phi^-1(P'(S)) <= Phi^-1(P(S)) + mu for both sides and both labels S. As
    Phi^-1(1 - p) = -Phi^-1(p) and s does not increase, this is z[L] - z[L+1] <= mu, and z[0] >= -mu/2 where the label
    differs. The code carries a >= z[L], takes x >= a - mu and s[L+1] >= N Phi(x), so z[L+1] >= x >= z[L] - mu; its Phi are
    proved enclosures. The next a: Phi is convex below 0, so Phi(x + c) >= Phi(x) + c phi(x), which reaches s[L+1]/N at
    c = (s[L+1]/N - Phi_low(x)) / phi_low(x); and z <= 0 as s <= N/2. Where s[L+1] = s[L] nothing has to be shown.

    The state of a table before entry L does not depend on later entries: growing it on demand cannot change it. Where a
    rule that was wished nothing gives s[L+1] = s[L], it does so for ever: neither s nor z has changed.
    What is not claimed: that the time a release takes is independent of the data.
"""

from collections.abc import Callable
from decimal import ROUND_CEILING, Decimal
from fractions import Fraction
from math import floor
from threading import Lock
from typing import Protocol

from agt.mechanisms.enclosure import FARTHEST, UP, exp_lower, normal
from agt.mechanisms.guarantee import GaussianDP, Guarantee
from agt.numeric import written

BITS = 128
N = 1 << BITS
MAX_DISTANCE = 2**16  # longer distances count as this one; still 1-Lipschitz
MAX_CLASSES = 2**16
_SCALE = 256  # fractional bits of E and D


class Rule(Protocol):
    """What privacy allows, entry by entry."""

    def first(self, wish: int) -> int:
        """s[0]."""
        ...

    def after(self, s: int, wish: int) -> int:
        """s[L+1], given s[L]."""
        ...


class RatioRule:
    """Inequalities 1 to 4 of the module's proof, for eps- and (eps, delta)-DP with any number of classes."""

    def __init__(self, eps: float, delta: float, classes: int) -> None:
        self._others = classes - 1
        self._ratio = floor(Fraction(exp_lower(min(Decimal(eps), written(eps)))) * 2**_SCALE)
        self._slack = floor(Fraction(min(Decimal(delta), written(delta))) * N * 2**_SCALE)

    def first(self, wish: int) -> int:
        """s[0], at most floor(N / C)."""
        least = _ceil((N << _SCALE) - self._slack, (self._others << _SCALE) + self._ratio)
        return min(N // (self._others + 1), max(least, wish))

    def after(self, s: int, wish: int) -> int:
        """s[L+1], at most s[L]."""
        wrong = self._others * s
        by_wrong = _ceil((wrong << _SCALE) - self._slack, self._others * self._ratio)
        by_right = _ceil((N << _SCALE) - self._slack - self._ratio * (N - wrong), self._others << _SCALE)
        return min(s, max(0, by_wrong, by_right, wish))


class GaussianRule:
    """The inequalities on z of the module's proof, for mu-GDP and two classes. Called in order, once per entry."""

    def __init__(self, mu: float) -> None:
        self._mu = Decimal(mu)
        self._z = Decimal(0)  # at least Phi^-1(s/N) of the last entry

    def first(self, wish: int) -> int:
        """s[0], at most N / 2."""
        s, self._z = self._reach(UP.divide(self._mu.copy_negate(), Decimal(2)), wish, N // 2)
        return s

    def after(self, s: int, wish: int) -> int:
        """s[L+1], at most s[L]."""
        following, z = self._reach(UP.subtract(self._z, self._mu), wish, s)
        if following < s:
            self._z = z
        return following

    def _reach(self, x: Decimal, wish: int, most: int) -> tuple[int, Decimal]:
        """(s, a): s >= N Phi(x) unless capped at ``most``, and a >= Phi^-1(s/N)."""
        x = max(x, FARTHEST)
        at = normal(x)
        s = min(most, max(wish, int(UP.multiply(at.upper, N).to_integral_value(ROUND_CEILING))))
        missing = UP.subtract(UP.divide(Decimal(s), N), at.lower)
        return s, min(Decimal(0), UP.add(x, UP.divide(max(missing, Decimal(0)), at.density)))


def rule_of(guarantee: Guarantee, classes: int) -> Rule:
    """The rule that proves ``guarantee``; Gaussian-DP for two classes only."""
    if isinstance(guarantee, GaussianDP):
        if classes != 2:
            raise ValueError("GaussianDP: the table is proved for two classes")
        return GaussianRule(guarantee.mu)
    return RatioRule(guarantee.eps, getattr(guarantee, "delta", 0.0), classes)


class Table:
    """s[0], s[1], ..., grown on demand.

    Args:
        rule: what privacy allows.
        wish: L -> the number of values per wrong label that the mechanism's formula asks for.
    """

    def __init__(self, rule: Rule, wish: Callable[[int], int]) -> None:
        self._rule, self._wish = rule, wish
        self._entries: list[int] = []
        self._settled = False
        self._lock = Lock()

    def upto(self, distance: int) -> list[int]:
        """s[0..distance] (at least)."""
        with self._lock:
            entries = self._entries
            if not entries:
                entries.append(self._rule.first(self._wish(0)))
            while len(entries) <= distance:
                wish = self._wish(len(entries))
                following = entries[-1] if self._settled else self._rule.after(entries[-1], wish)
                self._settled = self._settled or (not wish and following == entries[-1])  # from here on, for ever
                entries.append(following)
            return entries


def _ceil(numerator: int, denominator: int) -> int:
    return -(-numerator // denominator)
