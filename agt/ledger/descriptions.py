"""Phrases and sentences about a ledger: its unit, its budget, its clock, refused releases."""

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
    largest = _largest_that_fits(allowance, spent, guarantee)
    remaining_leak = allowance.leak_limit - spent.leak
    refused_eps = _eps_of_gaussian(guarantee, allowance.delta)
    in_unit_of_budget = ""
    if refused_eps is not None:
        in_unit_of_budget = (
            f" (which alone spends about eps = {refused_eps:g} of a budget with this delta)"
        )
    if largest is not None:
        largest_eps = _eps_of_gaussian(largest, allowance.delta)
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


def _largest_that_fits(allowance: Allowance, spent: Cost, guarantee: Guarantee) -> Guarantee | None:
    """Return the weakest guarantee of the same kind for which one release fits into a budget.

    Args:
        allowance: the budget.
        spent: the cost of all debits so far.
        guarantee: a guarantee for which no release fits.

    Returns:
        The guarantee with a smaller first parameter (eps or mu), rounded down to three digits; its
        other parameter, delta, is unchanged. None: no release of this kind fits.
    """
    name, refused = next(iter(guarantee.parameters.items()))

    def with_value(value: float) -> Guarantee:
        """Return the guarantee with another value of its first parameter."""
        return read_guarantee({**guarantee.as_json, name: value})

    def fits(value: float) -> bool:
        """Return whether the budget holds one release with this value."""
        return allowance.max_lot_size(spent, with_value(value), 1) == 1

    if not fits(MIN_BUDGET):
        return None
    largest = largest_holding(fits, MIN_BUDGET, refused)
    return with_value(max(MIN_BUDGET, _rounded_down(largest)))


def _rounded_down(value: float) -> float:
    """Return a positive number, rounded down to three digits."""
    last_digit = 10.0 ** (math.floor(math.log10(value)) - 2)  # 1 in the third digit
    return float(f"{math.floor(value / last_digit) * last_digit:.3g}")


def _eps_of_gaussian(guarantee: Guarantee, delta: float) -> float | None:
    """Return the ``total.eps`` with which one release has a Gaussian guarantee.

    With ``total.eps`` and ``total.delta``, a release gets the largest mu for which mu-GDP is
    (eps, delta)-DP. This mu grows with eps, so eps is rounded down.

    Args:
        guarantee: the guarantee of the release.
        delta: the delta of the budget.

    Returns:
        None for a guarantee that is not Gaussian, because its own text states eps; and if no
        permitted ``total.eps`` gives this mu.
    """
    if not isinstance(guarantee, GaussianDP):
        return None

    def is_within_delta(eps: float) -> bool:
        """Return whether a release with this guarantee is (eps, delta)-DP."""
        return mills_delta(eps, guarantee.mu) <= delta

    if not is_within_delta(MAX_TOTAL_EPS) or is_within_delta(MIN_BUDGET):
        return None
    return _rounded_down(smallest_holding(is_within_delta, MIN_BUDGET, MAX_TOTAL_EPS))
