"""What a ledger says in words: its unit, its budget, its clock, and why a release does not fit."""

import math
from collections.abc import Iterable

from agt import sentences
from agt.ledger.book import Book, Population
from agt.ledger.tables import AdmittedTable
from agt.mechanisms.budget import Allowance, Cost, eps_so_far
from agt.mechanisms.composition import largest_holding
from agt.mechanisms.guarantees import ApproximateDP, GaussianDP, Guarantee, read_guarantee
from agt.release_settings import MIN_BUDGET


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
        fits = f"a release that is {largest} would still fit into the rest of the budget"
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
    last_digit = 10.0 ** (math.floor(math.log10(largest)) - 2)  # the value of the third digit
    rounded = math.floor(largest / last_digit) * last_digit
    return with_value(max(MIN_BUDGET, float(f"{rounded:.3g}")))
