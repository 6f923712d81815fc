"""Tables of integer thresholds that label mechanisms sample from, private by construction.

A label is released by comparing a uniform integer in [0, ``DRAW_VALUES``) with a threshold. Entry
L of a table is how many of these values release one given wrong label at stable distance L; the
nominal label has the rest. A rule says which entries privacy allows; a table grows on demand.

    table = ThresholdTable(rule_for_guarantee(PureDP(0.5), classes=3), lambda distance: 0)
    table.entries_up_to(10)[10]        values of the draw for each of the two wrong labels
"""

from collections.abc import Callable
from decimal import ROUND_CEILING, Decimal
from fractions import Fraction
from math import floor
from threading import Lock

from agt.mechanisms.enclosures import NORMAL_LEFT_END, ROUND_DOWN, ROUND_UP, bound_normal, exp_lower
from agt.mechanisms.guarantees import GaussianDP, Guarantee
from agt.numeric import written

DRAW_BITS = 128
DRAW_VALUES = 1 << DRAW_BITS  # N of docs/proofs/tables.md
_SCALE_BITS = 256  # fractional bits of exp(eps) and delta N in the integer inequalities


class RatioRule:
    """The least entries that keep a table eps- or (eps, delta)-DP, for any number of classes.

    Args:
        eps: of one release; read as the double or the decimal that it prints as, whichever is
            less.
        delta: of one release, read in the same way; 0 for pure differential privacy.
        classes: C, at least 2.
        steps: how many entries of the table the evidence of neighbours may differ by. Above 1 it
            takes delta = 0.

    Formal guarantees
        A table of ``first_entry`` and ``next_entry`` is (eps, delta)-DP whatever is requested
        (Lemma 1 of docs/proofs/tables.md; of several steps, Lemma 9 of docs/proofs/tables.md).
    """

    def __init__(self, eps: float, delta: float, classes: int, steps: int = 1) -> None:
        self._wrong_labels = classes - 1
        eps_per_step = ROUND_DOWN.divide(_lesser_decimal(eps), steps)
        ratio = Fraction(exp_lower(eps_per_step))
        slack = Fraction(_lesser_decimal(delta)) * DRAW_VALUES
        self._ratio = floor(ratio * 2**_SCALE_BITS)
        self._slack = floor(slack * 2**_SCALE_BITS)

    def first_entry(self, requested: int) -> int:
        """Return entry 0: ``requested``, or the nearest number that privacy allows.

        It is at most floor(N / C), so that the nominal label is the likeliest.
        """
        # Lemma 2 of docs/proofs/tables.md
        numerator = _scale(DRAW_VALUES) - self._slack
        denominator = _scale(self._wrong_labels) + self._ratio
        least_entry = _divide_up(numerator, denominator)
        cap = DRAW_VALUES // (self._wrong_labels + 1)
        return min(cap, max(least_entry, requested))

    def next_entry(self, entry: int, requested: int) -> int:
        """Return the entry after ``entry``: ``requested``, or the nearest that privacy allows.

        It is at most ``entry``, and at least 0.
        """
        # Lemma 3 of docs/proofs/tables.md: the bounds are inequalities 1 and 2
        wrong_values = self._wrong_labels * entry
        right_values = DRAW_VALUES - wrong_values
        missing_wrong = _scale(wrong_values) - self._slack
        by_wrong = _divide_up(missing_wrong, self._wrong_labels * self._ratio)
        missing_right = _scale(DRAW_VALUES) - self._slack - self._ratio * right_values
        by_right = _divide_up(missing_right, _scale(self._wrong_labels))
        return min(entry, max(0, by_wrong, by_right, requested))


class GaussianRule:
    """The least entries that keep a table of two classes mu-GDP.

    It carries a bound from entry to entry: call ``first_entry`` once, then ``next_entry`` once for
    each further entry, in order.

    Args:
        mu: of one release; read as the double or the decimal that it prints as, whichever is less.
        steps: how many entries of the table the evidence of neighbours may differ by.

    Formal guarantees
        The table is mu-GDP whatever is requested (Lemma 4 of docs/proofs/tables.md; of several
        steps, Lemma 9 of docs/proofs/tables.md).
    """

    def __init__(self, mu: float, steps: int = 1) -> None:
        self._mu = ROUND_DOWN.divide(_lesser_decimal(mu), steps)
        self._quantile = Decimal(0)  # at least Phi^-1(s/N) of the last entry s

    def first_entry(self, requested: int) -> int:
        """Return entry 0: ``requested``, or the nearest number that privacy allows, at most N/2."""
        # Lemma 5 of docs/proofs/tables.md
        least_quantile = ROUND_UP.divide(self._mu.copy_negate(), Decimal(2))
        entry, self._quantile = _entry_from_quantile(least_quantile, requested, DRAW_VALUES // 2)
        return entry

    def next_entry(self, entry: int, requested: int) -> int:
        """Return the entry after ``entry``: ``requested``, or the nearest that privacy allows.

        It is at most ``entry``.
        """
        # Lemma 5 of docs/proofs/tables.md
        least_quantile = ROUND_UP.subtract(self._quantile, self._mu)
        following, quantile = _entry_from_quantile(least_quantile, requested, entry)
        if following < entry:
            self._quantile = quantile
        return following


TableRule = RatioRule | GaussianRule


def rule_for_guarantee(guarantee: Guarantee, classes: int, steps: int = 1) -> TableRule:
    """Return the rule whose tables have a guarantee.

    Args:
        guarantee: of one release.
        classes: how many labels there are.
        steps: how many entries of the table the evidence of neighbours may differ by; above 1 it
            takes a guarantee without a delta.

    Raises:
        ValueError: Gaussian-DP of more than two classes, which is not proved.
    """
    if isinstance(guarantee, GaussianDP):
        if classes != 2:
            raise ValueError(
                "GaussianDP: the probability table of this guarantee is only proved for two classes"
            )
        return GaussianRule(guarantee.mu, steps)
    return RatioRule(guarantee.eps, getattr(guarantee, "delta", 0.0), classes, steps)


class ThresholdTable:
    """A table's entries, computed when they are first asked for.

    Args:
        rule: what privacy allows; it serves this table alone.
        requested: stable distance -> the entry that the mechanism's formula asks for.

    Formal guarantees
        An entry never changes once it is computed. Several threads may ask.
    """

    def __init__(self, rule: TableRule, requested: Callable[[int], int]) -> None:
        self._rule = rule
        self._requested = requested
        self._entries: list[int] = []
        self._is_constant = False
        self._lock = Lock()

    def entries_up_to(self, distance: int) -> list[int]:
        """Return the entries at distances 0 to ``distance``, and possibly more behind them."""
        with self._lock:
            if not self._entries:
                requested = self._requested(0)
                self._entries.append(self._rule.first_entry(requested))
            while len(self._entries) <= distance:
                self._append_entry()
            return self._entries

    def _append_entry(self) -> None:
        """Compute the entry after the last one."""
        last = self._entries[-1]
        requested = self._requested(len(self._entries))
        following = last if self._is_constant else self._rule.next_entry(last, requested)
        if requested == 0 and following == last:
            self._is_constant = True  # Lemma 7 of docs/proofs/tables.md
        self._entries.append(following)


def _entry_from_quantile(least_quantile: Decimal, requested: int, cap: int) -> tuple[int, Decimal]:
    """Return an entry whose quantile is at least a bound, and an upper bound on its quantile.

    Args:
        least_quantile: what Phi^-1(entry / N) has to be at least; at most 0.
        requested: what the entry has to be at least, too.
        cap: what the entry is at most, whatever the other two say; at most N/2.

    Returns:
        (entry, quantile) with Phi^-1(entry / N) <= quantile <= 0.
    """
    x = max(least_quantile, NORMAL_LEFT_END)
    bounds = bound_normal(x)
    least_entry = ROUND_UP.multiply(bounds.upper, DRAW_VALUES).to_integral_value(ROUND_CEILING)
    entry = min(cap, max(requested, int(least_entry)))
    # Phi is convex below 0, so a step of missing / density from x reaches entry / N.
    missing = ROUND_UP.subtract(ROUND_UP.divide(Decimal(entry), DRAW_VALUES), bounds.lower)
    step = ROUND_UP.divide(max(missing, Decimal(0)), bounds.density)
    return entry, min(Decimal(0), ROUND_UP.add(x, step))


def _lesser_decimal(number: float) -> Decimal:
    """Return the double or the decimal that it prints as, whichever is less."""
    return min(Decimal(number), written(number))


def _scale(number: int) -> int:
    """Return a number in the units of the integer inequalities."""
    return number << _SCALE_BITS


def _divide_up(numerator: int, denominator: int) -> int:
    """Return the quotient of two integers, rounded up."""
    return -(-numerator // denominator)
