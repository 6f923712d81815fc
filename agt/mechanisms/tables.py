"""Tables of integer thresholds from which label mechanisms sample, private by construction.

A label is released by comparing a uniform integer below ``DRAW_VALUES`` with a threshold. Entry L
of a table is how many of these values release one given wrong label if L edits of the training data
certainly leave the nominal label. A rule computes which entries privacy allows.

    table = ThresholdTable(rule_for_guarantee(PureDP(0.5), classes=3), lambda distance: 0)
    table.entries_up_to(10)[10]        values of the draw for each of the two wrong labels
"""

from collections.abc import Callable
from decimal import ROUND_CEILING, Decimal
from fractions import Fraction
from math import floor
from threading import Lock

from agt.mechanisms.enclosures import NORMAL_LEFT_END, ROUND_DOWN, ROUND_UP, bound_normal, exp_lower
from agt.mechanisms.guarantees import ApproximateDP, GaussianDP, Guarantee
from agt.numeric import printed_decimal

DRAW_BITS = 128  # of the uniform integer that is drawn for each label
DRAW_VALUES = 1 << DRAW_BITS  # N of docs/proofs/tables.md
_SCALE_BITS = 256  # fractional bits of exp(eps) and delta N, which are fixed-point integers


class RatioRule:
    """The least entries that keep a table eps-DP or (eps, delta)-DP, for any number of classes.

    An entry is how many of the ``DRAW_VALUES`` values of a draw release one given wrong label.

    Args:
        eps: the eps of one release. The double and the decimal that it prints as differ by a
            rounding; the smaller of them is used.
        delta: the delta of one release, read in the same way; 0 for pure differential privacy.
        classes: C, at least 2.
        steps: the number of entries by which the evidence of neighbouring datasets may differ.
            Above 1, delta has to be 0.

    Formal guarantees
        A table made of ``first_entry`` and ``next_entry`` is (eps, delta)-DP whatever entries are
        requested (Lemma 1 of docs/proofs/tables.md; of several steps, Lemma 9 of
        docs/proofs/tables.md).
    """

    def __init__(self, eps: float, delta: float, classes: int, steps: int = 1) -> None:
        """Convert exp(eps / steps) and delta to integers, rounded down to be on the safe side."""
        self._wrong_labels = classes - 1
        eps_per_step = ROUND_DOWN.divide(_lesser_decimal(eps), steps)
        exp_eps = Fraction(exp_lower(eps_per_step))
        delta_values = Fraction(_lesser_decimal(delta)) * DRAW_VALUES
        self._scaled_exp_eps = floor(exp_eps * 2**_SCALE_BITS)
        self._scaled_delta = floor(delta_values * 2**_SCALE_BITS)

    def first_entry(self, requested: int) -> int:
        """Return entry 0 of a table: ``requested``, or the nearest number that privacy allows.

        Entry 0 is how many of the N = 2^128 values of a uniform draw release one given wrong label
        where no edit of the training data is known to leave the nominal label.

        Args:
            requested: the entry that the mechanism's formula asks for.

        Returns:
            At most floor(N / C), where C is the number of classes, so that no label is likelier
            than the nominal one.
        """
        # Lemma 2 of docs/proofs/tables.md: where labels of neighbours differ, s is private if
        # N - (C - 1) s <= exp(eps) s + delta N. It is solved for s.
        numerator = _scale(DRAW_VALUES) - self._scaled_delta
        denominator = _scale(self._wrong_labels) + self._scaled_exp_eps
        min_entry = _divide_up(numerator, denominator)
        cap = DRAW_VALUES // (self._wrong_labels + 1)
        return min(cap, max(min_entry, requested))

    def next_entry(self, entry: int, requested: int) -> int:
        """Return the entry after ``entry``: ``requested``, or the nearest that privacy allows.

        An entry is the number of values, of the N = 2^128 values of a uniform draw, that release
        one given wrong label. Privacy limits the fall of the probability of wrong labels from one
        entry to the next, and the rise of the probability of the nominal label.

        Args:
            entry: the entry before.
            requested: the entry that the mechanism's formula asks for.

        Returns:
            From 0 to ``entry``.
        """
        # Lemma 3 of docs/proofs/tables.md, with m = C - 1 wrong labels, this entry s and the next t
        # (all in values of a draw). Wrong labels: m s <= exp(eps) m t + delta N. The nominal label:
        # N - m t <= exp(eps) (N - m s) + delta N. Each is solved for t and rounded up.
        wrong_values = self._wrong_labels * entry
        right_values = DRAW_VALUES - wrong_values
        missing_wrong = _scale(wrong_values) - self._scaled_delta
        by_wrong = _divide_up(missing_wrong, self._wrong_labels * self._scaled_exp_eps)
        missing_right = (
            _scale(DRAW_VALUES) - self._scaled_delta - self._scaled_exp_eps * right_values
        )
        by_right = _divide_up(missing_right, _scale(self._wrong_labels))
        return min(entry, max(0, by_wrong, by_right, requested))


class GaussianRule:
    """The least entries that keep a table of two classes mu-GDP.

    An entry is how many of the ``DRAW_VALUES`` values of a draw release the wrong label. The rule
    has state, a bound on the last entry's normal quantile: call ``first_entry`` once, then
    ``next_entry`` once for each further entry, in order.

    Args:
        mu: the mu of one release. The double and the decimal that it prints as differ by a
            rounding; the smaller of them is used.
        steps: the number of entries by which the evidence of neighbouring datasets may differ.

    Formal guarantees
        The table is mu-GDP whatever entries are requested (Lemma 4 of docs/proofs/tables.md; of
        several steps, Lemma 9 of docs/proofs/tables.md).
    """

    def __init__(self, mu: float, steps: int = 1) -> None:
        """Divide mu by the number of steps, rounded down to be on the safe side."""
        self._mu = ROUND_DOWN.divide(_lesser_decimal(mu), steps)
        self._quantile = Decimal(0)  # an upper bound on Phi^-1(s / N) of the last entry s

    def first_entry(self, requested: int) -> int:
        """Return entry 0 of a table, and store its normal quantile for ``next_entry``.

        It is ``requested``, or the nearest number that privacy allows. Entry 0 counts, among the
        N = 2^128 values of a uniform draw, those that release the wrong label at evidence 0: no
        number of edits is known to leave the nominal label unchanged.

        Args:
            requested: the entry that the mechanism's formula asks for.

        Returns:
            At most N / 2, so that the nominal label is at least as likely as the other.
        """
        # Lemma 5 of docs/proofs/tables.md: a table needs Phi^-1(s / N) >= -mu / 2 of its first
        # entry s.
        min_quantile = ROUND_UP.divide(self._mu.copy_negate(), Decimal(2))
        entry, self._quantile = _entry_from_quantile(min_quantile, requested, DRAW_VALUES // 2)
        return entry

    def next_entry(self, entry: int, requested: int) -> int:
        """Return the entry after ``entry``, and store its normal quantile for the next call.

        It is ``requested``, or the nearest number that privacy allows. Because of the quantile, the
        entries of one table must be asked for in order. An entry s is the number of values, of the
        N = 2^128 values of a uniform draw, that release the wrong label. From one entry to the
        next, privacy lets its normal quantile Phi^-1(s / N) fall by at most mu.

        Args:
            entry: the entry before, which this rule returned last.
            requested: the entry that the mechanism's formula asks for.

        Returns:
            From 1 to ``entry``.
        """
        # Lemma 5 of docs/proofs/tables.md: from entry to entry Phi^-1(s / N) falls by at most mu.
        min_quantile = ROUND_UP.subtract(self._quantile, self._mu)
        following, quantile = _entry_from_quantile(min_quantile, requested, entry)
        if following < entry:  # for an equal entry, the bound that is known stays valid
            self._quantile = quantile
        return following


TableRule = RatioRule | GaussianRule


def rule_for_guarantee(guarantee: Guarantee, classes: int, steps: int = 1) -> TableRule:
    """Return a new rule that makes tables with a privacy guarantee.

    Args:
        guarantee: the guarantee of one release.
        classes: the number of labels.
        steps: the number of entries of the table by which the evidence of neighbouring datasets may
            differ. Above 1, the guarantee may not have a delta.

    Raises:
        ValueError: Gaussian-DP of more than two classes, which is not proved.
    """
    if isinstance(guarantee, GaussianDP):
        if classes != 2:
            raise ValueError(
                "GaussianDP: the probabilities of released labels are only proved for two "
                f"classes, but there are {classes}: use PureDP or ApproximateDP"
            )
        return GaussianRule(guarantee.mu, steps)
    delta = 0.0
    if isinstance(guarantee, ApproximateDP):
        delta = guarantee.delta
    return RatioRule(guarantee.eps, delta, classes, steps)


class ThresholdTable:
    """The entries of one table, each computed when it is first asked for.

    Entry L is how many of the ``DRAW_VALUES`` values of a draw release one given wrong label at
    evidence L.

    Args:
        rule: computes which entries privacy allows; it must not be used for another table.
        requested: maps evidence L to the entry that the mechanism's formula asks for.

    Formal guarantees
        An entry never changes once it is computed. Several threads may share a table.
    """

    def __init__(self, rule: TableRule, requested: Callable[[int], int]) -> None:
        """Start an empty table; entries are computed when they are asked for."""
        self._rule = rule
        self._requested = requested
        self._entries: list[int] = []
        self._is_constant = False
        self._lock = Lock()

    def entries_up_to(self, distance: int) -> list[int]:
        """Compute the missing entries up to evidence ``distance``, and return the list of all.

        The list may be longer, because entries of earlier calls are stored. It belongs to the
        table: the caller must not change it.
        """
        with self._lock:
            if not self._entries:
                requested = self._requested(0)
                self._entries.append(self._rule.first_entry(requested))
            while len(self._entries) <= distance:
                self._append_entry()
            return self._entries

    def _append_entry(self) -> None:
        """Compute the entry after the last one and append it; the caller holds the lock.

        The rule returns the entry that the mechanism's formula asks for, or the nearest that
        privacy allows.
        """
        last = self._entries[-1]
        requested = self._requested(len(self._entries))
        following = last
        if not self._is_constant:
            following = self._rule.next_entry(last, requested)
        # Lemma 7 of docs/proofs/tables.md: if the rule is asked for 0 and repeats an entry, all
        # later entries are equal, so the rule need not be asked again.
        if requested == 0 and following == last:
            self._is_constant = True
        self._entries.append(following)


def _entry_from_quantile(min_quantile: Decimal, requested: int, cap: int) -> tuple[int, Decimal]:
    """Return an entry whose normal quantile is at least a bound, with a bound on its quantile.

    N is ``DRAW_VALUES``, and Phi^-1(entry / N) the entry's quantile.

    Args:
        min_quantile: a lower bound that the entry's quantile has to meet; at most 0.
        requested: a lower bound on the entry itself.
        cap: an upper bound on the entry, which takes precedence over both lower bounds; at most
            N/2.

    Returns:
        (entry, quantile) with Phi^-1(entry / N) <= quantile <= 0.
    """
    # bound_normal is proved from NORMAL_LEFT_END on. A larger quantile only raises the entry.
    x = max(min_quantile, NORMAL_LEFT_END)
    bounds = bound_normal(x)
    min_entry = ROUND_UP.multiply(bounds.upper, DRAW_VALUES).to_integral_value(ROUND_CEILING)
    entry = min(cap, max(requested, int(min_entry)))
    # Phi is convex below 0, so a step of missing / density from x reaches entry / N.
    missing = ROUND_UP.subtract(ROUND_UP.divide(Decimal(entry), DRAW_VALUES), bounds.lower)
    step = ROUND_UP.divide(max(missing, Decimal(0)), bounds.density)
    return entry, min(Decimal(0), ROUND_UP.add(x, step))


def _lesser_decimal(number: float) -> Decimal:
    """Return the exact value of a double or the decimal that it prints as, whichever is less."""
    return min(Decimal(number), printed_decimal(number))


def _scale(number: int) -> int:
    """Return an integer in fixed-point form with ``_SCALE_BITS`` fractional bits."""
    return number << _SCALE_BITS


def _divide_up(numerator: int, denominator: int) -> int:
    """Return the quotient of two integers, rounded up; the denominator is positive."""
    return -(-numerator // denominator)
