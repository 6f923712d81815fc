"""A ledger as its owner reads it: the budget, what was spent on what, what is left, and what cannot be excluded."""

from typing import Any

from agt.ledger.book import Book, Paid
from agt.ledger.ledger import Ledger
from agt.ledger.words import budget, clock, eps_so_far
from agt_cli.report.console import Console

SHOWN = 20  # debits in the table; --json has all
_MANY = 10**9


def balance(ledger: Ledger) -> dict[str, Any]:
    """The object of ``agt ledger show --json``."""
    book, allowance = ledger.book, ledger.population.allowance
    last = next(reversed(book.debits.values()), None)
    return {
        "ledger": str(ledger.path),
        "population": ledger.population.as_json(),
        "entries": book.last.number,
        "head": str(book.last.head),
        "second_head": ledger.head and str(ledger.head),
        "spent": book.spent.as_json(),
        "eps_so_far": eps_so_far(allowance, book.spent),
        "more_of_the_last": last and allowance.fitting(book.spent, last.charge.guarantee, _MANY),
        "tables": [{"table": t.name, "data": t.data, "counts": str(t.unit)} for t in book.tables.values()],
        "debits": [_debit(paid) for paid in book.debits.values()],
        "answers": book.answered,
        "words": [*ledger.words(), *clock(book)],
    }


def _debit(paid: Paid) -> dict[str, Any]:
    told = {"entry": paid.entry.number, "time": paid.entry.time, "size": paid.size, "answered": paid.answered}
    return {**told, **paid.charge.as_json()}


def say_balance(ledger: Ledger, console: Console) -> dict[str, Any]:
    """Say it, and return the object."""
    told, book, population = balance(ledger), ledger.book, ledger.population
    tables = ", ".join(dict.fromkeys(book.tables[data].name for data in book.tables)) or "none yet: agt ledger admit"
    console.say(f"{population.name}: {budget(population.allowance)} over all that is ever released about these people")
    console.say(f"people: each is {ledger.unit}; neighbours by relation={population.relation}; tables: {tables}")
    if book.debits:
        _say_debits(book, console)
    console.say(_spent(told, book, population.allowance.eps))
    for line in told["words"]:
        console.say(line)
    console.say(f"head: {told['head']}")
    console.note(f"keep the head elsewhere: agt ledger verify {ledger.path} head=COUNT:HASH tells a ledger that went back")
    return told


def _say_debits(book: Book, console: Console) -> None:
    debits = list(book.debits.values())
    hidden = len(debits) - SHOWN
    title = "spent on" if hidden <= 0 else f"spent on (the last {SHOWN} of {len(debits)}; --json has all)"
    columns = ("entry", "time", "releases", "each", "of", "kept", "run")
    console.table(title, columns, [_row(paid) for paid in debits[-SHOWN:]])


def _row(paid: Paid) -> tuple[str, ...]:
    charge, time = paid.charge, paid.entry.time.removesuffix("+00:00").replace("T", " ")
    each = ", ".join(f"{name} = {value:g}" for name, value in charge.guarantee.parameters.items())
    run = charge.run.removeprefix("sha256:")[:12] or "-"
    of = f"{charge.output} by {charge.mechanism}"
    return str(paid.entry.number), time, str(paid.size), each, of, str(paid.answered), run


def _spent(told: dict[str, Any], book: Book, eps: float) -> str:
    if not book.debits:
        return "spent: nothing yet"
    share = told["eps_so_far"] / eps
    more = told["more_of_the_last"]
    left = f"{more:,}" if more < _MANY else "more than a thousand million"
    return (
        f"spent: the counter stands at eps = {told['eps_so_far']:.4g} of {eps:g} ({100 * share:.3g} %); of releases like "
        f"the last, {left} more fit"
    )


def say_verified(ledger: Ledger, book: Book, console: Console) -> dict[str, Any]:
    """Say what was found to be in order, and what that does not show."""
    console.say(
        f"{ledger.path}: in order. Entries: {book.last.number}, each bound to the one before; debits: {len(book.debits)}, "
        f"each cost computed again, within {budget(ledger.population.allowance)}; answers kept: {book.answered}"
    )
    words = [*ledger.words(), *clock(book)]
    for line in words:
        console.say(line)
    console.say(f"head: {book.last.head}")
    counts = {"entries": book.last.number, "debits": len(book.debits), "answers": book.answered}
    return {"ledger": str(ledger.path), "verified": True, **counts, "head": str(book.last.head), "words": words}
