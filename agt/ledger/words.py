"""What a ledger says of itself, in words: what a claim must carry, what is left, why nothing more fits."""

import math
from collections.abc import Iterable
from dataclasses import replace

from agt.ledger.book import Book, Population, Table
from agt.mechanisms.account import Allowance, Cost
from agt.mechanisms.guarantee import LEAST, ApproximateDP, GaussianDP, Guarantee
from agt.numeric import bisect

NO_HEAD = (
    "no second head is kept: whether the ledger was put back to an older copy, which would spend the same budget again, "
    "cannot be excluded"
)
SAME_DISK = (
    "the second head lies on the ledger's own disk: whether all of that disk was put back to an older state, ledger and "
    "head together, cannot be excluded"
)


def declaration(population: Population, tables: Iterable[Table]) -> str:
    """What whoever admits tables says by that; names no digest, as it goes into claims."""
    several = dict.fromkeys((table.name, table.unit.means(population.unit)) for table in tables)
    parts = [
        f"in {_tables([name for name, means in several if means == each])} {each}"
        for each in dict.fromkeys(means for _, means in several)
    ]
    same = "the units of all of them are the same people: what is released from one table uses up the budget of all"
    return f"declared, not checked: {'; '.join(parts)}{f'; and {same}' if len(several) > 1 else ''}"


def _tables(names: list[str]) -> str:
    return f"the table {names[0]}" if len(names) == 1 else f"each of the tables {', '.join(names)}"


def unit_words(population: Population, tables: Iterable[Table]) -> str:
    """Whose addition or removal the budget is about: the population's unit, and how many records it may have where."""
    most = dict.fromkeys((table.name, table.unit.most) for table in tables)
    caps = sorted({rows for _, rows in most})
    if caps in ([], [1]):
        return population.unit
    if len(caps) == 1:
        return f"{population.unit} (up to {caps[0]} records)"
    return f"{population.unit} (at most {', '.join(f'{rows} of the records in {name}' for name, rows in most)})"


def clock(book: Book) -> list[str]:
    """A line for each time that the clock ran backwards, which changes nothing."""
    return [
        f"the clock ran backwards between entries {number - 1} and {number}: their order is that of their numbers"
        for number in book.backwards
    ]


def headless(book: Book) -> list[str]:
    """A line for each second head that was started anew while the one before was lost."""
    return [
        f"entry {number} started a second head anew, the one before being lost: whether the ledger was put back to an "
        "older copy before that cannot be excluded"
        for number in book.headless
    ]


def budget(allowance: Allowance) -> str:
    """What may be spent in all."""
    return f"eps = {allowance.eps:g}" + (f", delta = {allowance.delta:g}" if allowance.delta else "")


def eps_so_far(allowance: Allowance, spent: Cost) -> float:
    """The least eps of a budget with the same delta that holds what was spent: where the counter stands, no guarantee.

    After a first lot that its own total alone admitted, all of it.
    """
    if spent == Cost():
        return 0.0
    return bisect(lambda eps: not replace(allowance, eps=eps).holds(spent), 0.0, allowance.eps, _middle)[1]


def refusal(population: Population, spent: Cost, guarantee: Guarantee) -> str:
    """Why not one release of this guarantee fits, and which would."""
    allowance = population.allowance
    largest, leak = _largest(allowance, spent, guarantee), allowance.leak - spent.leak
    if largest is not None:
        fits = f"one that is {largest} would still fit"
    elif isinstance(guarantee, GaussianDP) and not allowance.delta:
        fits = "nothing that is Gaussian fits a budget without delta"
    elif isinstance(guarantee, ApproximateDP) and guarantee.delta > leak >= 0:
        fits = (
            f"of its delta, {allowance.leaks:g} is for releases with one of their own (total.leaks), and {leak:.3g} is left"
        )
    else:
        fits = "none of this kind fits, however little it tells"
    return (
        f"the budget of {population.name} ({budget(allowance)} in all) has no room for a release that is {guarantee}: its "
        f"counter stands at eps = {eps_so_far(allowance, spent):.6g}; {fits}"
    )


def _largest(allowance: Allowance, spent: Cost, guarantee: Guarantee) -> Guarantee | None:
    """The weakest guarantee of the same kind of which one release fits, to three digits; None: none."""

    def weaker(value: float) -> Guarantee:
        return GaussianDP(value) if isinstance(guarantee, GaussianDP) else replace(guarantee, eps=value)

    def fits(value: float) -> bool:
        return allowance.fitting(spent, weaker(value), 1) == 1

    if not fits(LEAST):
        return None
    most = bisect(fits, LEAST, guarantee.mu if isinstance(guarantee, GaussianDP) else guarantee.eps, _middle)[0]
    return weaker(max(LEAST, _three_digits(most)))


def _middle(low: float, high: float) -> float:
    """Between two numbers of any size."""
    return math.sqrt(low * high) if low else high / 1024 if high > LEAST else low


def _three_digits(value: float) -> float:
    """Rounded down."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return float(f"{math.floor(value / unit) * unit:.3g}")
