"""Phrases and sentences about a ledger: its unit, its budget, its clock, refused releases."""

from collections.abc import Iterable

from agt import sentences
from agt.ledger.book import Book, Population
from agt.ledger.remaining import RemainingBudget, eps_of_gaussian, largest_that_fits
from agt.ledger.tables import AdmittedTable
from agt.mechanisms.budget import Allowance, Cost, eps_so_far
from agt.mechanisms.guarantees import ApproximateDP, GaussianDP, Guarantee
from agt.release_settings import MIN_BUDGET


def describe_unit(population: Population, tables: Iterable[AdmittedTable]) -> str:
    """Return a phrase that says whose addition or removal makes a neighbouring dataset.

    Args:
        population: the population, of which the owner's words for one unit are used.
        tables: the admitted tables, which say how many records one unit may have in each.
    """
    return sentences.unit(population.unit, [table.counted for table in tables])


def clock_warnings(book: Book) -> list[str]:
    """Return a warning for each entry whose time is earlier than that of the entry before it.

    The warnings are about recorded times only: no check and no guarantee relies on times.
    """
    return [
        (
            f"the computer's clock went backwards between entries {number - 1} and {number}, so "
            "use the numbers of the entries, not their recorded times, to tell which entry came "
            "first"
        )
        for number in book.backward_entries
    ]


def without_delta(path: object) -> str:
    """Return a sentence for the owner of a new ledger whose budget has no delta.

    Args:
        path: the ledger's file.
    """
    return (
        "this budget has no delta, so it pays for labels by randomized_response, but for no "
        "release with Gaussian noise: no weights (noisy_statistics, release_weights), which agt "
        "start proposes, and no labels by gaussian_margin. If you want these, delete "
        f"{path} before anything is spent, and create a ledger under another name with a delta, "
        "such as 1e-5"
    )


def describe_budget(allowance: Allowance) -> str:
    """Return a phrase with the eps and delta of a whole budget."""
    return sentences.budget(allowance.eps, allowance.delta)


def describe_refusal(population: Population, spent: Cost, guarantee: Guarantee) -> str:
    """Return a sentence that says why not even one release fits, and which one would fit.

    Args:
        population: the population, of which the budget and the name are used.
        spent: the cost of all debits so far.
        guarantee: the guarantee of the refused release.
    """
    allowance = population.allowance
    largest = largest_that_fits(allowance, spent, guarantee)
    remaining_leak = allowance.leak_limit - spent.leak
    refused_eps = eps_of_gaussian(guarantee, allowance.delta)
    in_unit_of_budget = ""
    if refused_eps is not None:
        in_unit_of_budget = (
            f" (which alone spends about eps = {refused_eps:g} of a budget with this delta)"
        )
    if largest is not None:
        largest_eps = eps_of_gaussian(largest, allowance.delta)
        settings = ""
        if largest_eps is not None:
            settings = (
                f" (one release with total.eps={largest_eps:g} total.delta={allowance.delta:g})"
            )
        fits = f"a release that is {largest} would still fit into the rest of the budget{settings}"
    elif isinstance(guarantee, GaussianDP) and not allowance.delta:
        fits = (
            "this release uses Gaussian noise, which needs a ledger whose budget has a delta "
            "above 0. From this ledger, release labels by randomized_response, which needs none"
        )
    elif isinstance(guarantee, ApproximateDP) and guarantee.delta > remaining_leak >= 0:
        remaining_delta = float(remaining_leak)
        fits = (
            f"this release needs a delta of {guarantee.delta:g}, but only {remaining_delta:.3g} is "
            "left of the part of the ledger's delta that is reserved for such releases "
            f"(total.leaks={allowance.leaks:g})"
        )
    else:
        fits = "no release of this kind fits into the rest of the budget, however small its eps"
        other_kind = RemainingBudget.after(allowance, spent).sentence()
        if other_kind:
            fits += f" ({other_kind})"
    release = f"a release that is {guarantee}{in_unit_of_budget}"
    if getattr(guarantee, guarantee.parameter_names[0]) == MIN_BUDGET:
        # A total budget was refused because not even the smallest release fits.
        release = "any release of this kind"
    eps_spent = eps_so_far(allowance, spent)
    reason = "although nothing of it is spent yet"
    if eps_spent > 0:
        reason = f"because eps = {eps_spent:.6g} is already spent"
    return (
        f"the budget of {population.name} ({describe_budget(allowance)} in total) is not enough "
        f"for {release}, {reason}; {fits}"
    )
