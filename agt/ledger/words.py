"""What a ledger says in words: its unit, its budget, its clock, and why a release does not fit."""

import math
from collections.abc import Iterable

from agt import sentences
from agt.ledger.book import Book, Population
from agt.ledger.tables import AdmittedTable
from agt.mechanisms.budget import Allowance, Cost, eps_so_far
from agt.mechanisms.composition import largest_holding, smallest_holding
from agt.mechanisms.guarantees import ApproximateDP, GaussianDP, Guarantee, read_guarantee
from agt.numeric import mills_delta
from agt.release_settings import MAX_TOTAL_EPS, MIN_BUDGET


def unit_words(population: Population, tables: Iterable[AdmittedTable]) -> str:
    """Return, in words, whose addition or removal the budget is about.

    Args:
        population: names the unit.
        tables: the admitted tables, which say how many records one unit has in each.
    """
    return sentences.unit(population.unit, [table.counted for table in tables])


def clock(book: Book) -> list[str]:
    """Return a sentence for each entry with an earlier time than the entry before it.

    No check relies on times, so a clock that was set back makes nothing wrong.
    """
    return [
        (
            f"the computer's clock went backwards between entries {number - 1} and {number}, so "
            "use the numbers of the entries, not their recorded times, to tell which entry came "
            "first"
        )
        for number in book.earlier_than_before
    ]


def budget(allowance: Allowance) -> str:
    """Return the whole budget in words."""
    return sentences.budget(allowance.eps, allowance.delta)


def refusal(population: Population, spent: Cost, guarantee: Guarantee) -> str:
    """Return why not even one release fits into the budget, and which release would.

    Args:
        population: has the budget.
        spent: what was spent so far.
        guarantee: of the release that does not fit.
    """
    allowance = population.allowance
    largest = _largest_that_fits(allowance, spent, guarantee)
    leak = allowance.leak_limit - spent.leak
    if largest is not None:
        typed = _total_of(largest, allowance.delta)
        fits = f"a release that is {largest} would still fit into the rest of the budget{typed}"
    elif isinstance(guarantee, GaussianDP) and not allowance.delta:
        fits = (
            "this release uses Gaussian noise, which needs a ledger whose budget has a delta "
            "above 0"
        )
    elif isinstance(guarantee, ApproximateDP) and guarantee.delta > leak >= 0:
        remaining_delta = float(leak)
        fits = (
            f"this release needs a delta of {guarantee.delta:g}, but only {remaining_delta:.3g} is "
            "left of the part of the ledger's delta that is reserved for such releases "
            f"(total.leaks={allowance.leaks:g})"
        )
    else:
        fits = "no release of this kind fits into the rest of the budget, however small its eps"
    return (
        f"the budget of {population.name} ({budget(allowance)} in total) is not enough for a "
        f"release that is {guarantee}, because eps = {eps_so_far(allowance, spent):.6g} is "
        f"already spent; {fits}"
    )


def _largest_that_fits(allowance: Allowance, spent: Cost, guarantee: Guarantee) -> Guarantee | None:
    """Return the weakest guarantee of the same kind of which one release fits; None if none does.

    Its first parameter, such as eps, is rounded down to three digits.

    Args:
        allowance: the budget.
        spent: what was spent so far.
        guarantee: one that does not fit.
    """
    name, refused = next(iter(guarantee.parameters.items()))

    def with_value(value: float) -> Guarantee:
        return read_guarantee({**guarantee.as_json, name: value})

    def fits(value: float) -> bool:
        return allowance.max_lot_size(spent, with_value(value), 1) == 1

    if not fits(MIN_BUDGET):
        return None
    largest = largest_holding(fits, MIN_BUDGET, refused)
    return with_value(max(MIN_BUDGET, _rounded_down(largest)))


def _rounded_down(value: float) -> float:
    """Return a positive number, rounded down to three digits."""
    last_digit = 10.0 ** (math.floor(math.log10(value)) - 2)  # the value of the third digit
    return float(f"{math.floor(value / last_digit) * last_digit:.3g}")


def _total_of(guarantee: Guarantee, delta: float) -> str:
    """Return, in brackets, the settings with which one release has at most a Gaussian guarantee.

    The noise for ``total.eps`` and ``total.delta`` is that of the largest mu for which mu-GDP is
    (eps, delta)-DP. It grows with eps, so that eps is rounded down.

    Args:
        guarantee: of one release.
        delta: of the budget.

    Returns:
        Empty for other guarantees, whose eps the guarantee itself names.
    """
    if not isinstance(guarantee, GaussianDP):
        return ""

    def is_within_delta(eps: float) -> bool:
        """Return whether a release of this guarantee is (eps, delta)-DP."""
        return mills_delta(eps, guarantee.mu) <= delta

    if not is_within_delta(MAX_TOTAL_EPS) or is_within_delta(MIN_BUDGET):
        return ""
    eps = _rounded_down(smallest_holding(is_within_delta, MIN_BUDGET, MAX_TOTAL_EPS))
    return f" (one release with total.eps={eps:g} total.delta={delta:g})"
