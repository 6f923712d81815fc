"""A ledger as an auditor sees it: the whole chain followed, each cost worked out again; and whether it counts a release."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from agt.errors import AgtError, ConfigError
from agt.ledger.book import Book
from agt.ledger.chain import Head
from agt.ledger.ledger import Ledger
from agt.ledger.words import NO_HEAD, budget, clock, eps_so_far
from agt.manifest import Broken
from agt.mechanisms.guarantee import Guarantee
from agt.mechanisms.rigour import Output
from agt_cli.report.checks import Findings
from agt_cli.runs.ledger import FOLDER, SUFFIX, ledger_path, unit_of
from agt_cli.runs.noise import stands_for
from agt_cli.verify.budget import guarantee_among, tuned
from agt_cli.verify.findings import Subject
from agt_cli.verify.reading import LARGEST, begins_with, check_plain
from agt_cli.verify.record import Record

LIMITS = (
    "that everything which was released about these people is in it: it knows what was debited here",
    "that the people in its tables are the same, and that a unit is what is said: that is declared",
    "that it was not rewritten from some entry on, second head and all: only a head that somebody else kept shows that, "
    "head=COUNT:HASH",
    "that what was debited was drawn with the noise that was paid for: agt verify of each release looks at that",
)
MAGIC = b"SQLite format 3\0"
Known = Head | Path | None
"""Of a ledger's chain: where it ended at some time, as somebody noted it; or where its second head lies now."""


def is_ledger(path: Path) -> bool:
    """Whether a path is to be taken as a ledger's: by its ending, or by what it begins with."""
    if path.suffix == SUFFIX:
        return not path.is_dir()
    with suppress(Broken):
        return begins_with(path, MAGIC)
    return False


def look_at_ledger(path: Path, known: Known) -> tuple[Subject, Book | None]:
    """Check everything in a ledger; its book, where all of it holds."""
    findings, name = Findings(), f"ledger {path}"
    with findings.looking("ledger"), _without(f"ledger={path}: "):
        check_plain(path, LARGEST)
        with _opened(path, known) as ledger:
            noted = known if isinstance(known, Head) else None
            book, words = ledger.verify(noted), ledger.words()
            _tell(book, ledger.head, noted, findings)
            population, allowance = book.population, book.population.allowance
            facts = (
                ("population", f"{population.name}; a unit is {ledger.unit}; relation {population.relation}"),
                ("tables", ", ".join(table.name for table in book.tables.values()) or "none admitted"),
                ("opened", f"{book.opening.time}, newest entry {book.last.time} (times are kept, and prove nothing)"),
                ("head", str(book.last.head)),
            )
            claims = (
                f"all that is ever released on it: ({allowance.eps:g}, {allowance.delta:g})-differentially private in all, "
                f"for neighbours under relation={population.relation}",
                *words,
            )
            return Subject(name, tuple(findings.checks), facts, (), claims, limits=LIMITS), book
    return Subject(name, tuple(findings.checks), limits=LIMITS), None


@contextmanager
def _without(start: str) -> Iterator[None]:
    """Errors without what the line that tells them begins with."""
    try:
        yield
    except AgtError as error:
        raise Broken(str(error).removeprefix(start)) from None


def _opened(path: Path, known: Known) -> Ledger:
    """To look at, with its second head; a copy that is away from that, with a head that was noted."""
    away = False
    if isinstance(known, Head):
        with Ledger.open(path, writing=False, away=True) as ledger:
            away = bool(ledger.book.head) and not os.path.exists(ledger.book.head)
    return Ledger.open(path, known if isinstance(known, Path) else None, writing=False, away=away)


def _tell(book: Book, head: Path | None, known: Head | None, findings: Findings) -> None:
    allowance, spent = book.population.allowance, eps_so_far(book.population.allowance, book.spent)
    findings.ok("chain", f"{book.last.number} entries, each bound to the one before; nothing in it was edited or left out")
    counted = f"{len(book.debits)} debits, each cost worked out again: the counter stands at eps = {spent:.6g}"
    findings.ok("budget", f"{counted} of {budget(allowance)}")
    findings.ok("answers", f"{book.answered} that are kept, each what the chain says")
    if head is not None:
        findings.ok("second head", f"{head}: the ledger goes through it")
    elif book.head:
        findings.unchecked("second head", f"{book.head}: not there", "head=FILE says where it lies now")
    if known is not None:
        findings.ok("noted head", f"{known}: the ledger goes through it")
    elif not book.head:
        findings.note("second head", NO_HEAD, "give head=COUNT:HASH as agt ledger show printed it at some time")
    for line in clock(book):
        findings.note("clock", line)


def ledgers_of(record: Record, trained: Record | None, given: str | None, known: Known) -> Iterator[Subject]:
    """The ledger that paid for a release, and whether it counts it.

    Args:
        trained: the training run that it was made from; None: it has none, or that is not there.
        given: where it lies, by name or path; None: where the release's settings say.
    """
    facts = record.spent.get("ledger")
    if not facts:
        return
    findings = Findings()
    path = _whereabouts(given or record.config.get("ledger"), record.bound.folder)
    if path is None:
        words = f"entry {facts['entry']} of the account of {facts['population']} counts it, they say; no ledger was found"
        findings.unchecked("ledger", words, "ledger=NAME or ledger=FILE says where it lies")
        yield Subject(f"ledger of {facts['population']}", tuple(findings.checks))
        return
    subject, book = look_at_ledger(path, known)
    if book is not None:
        with findings.looking("entry"):
            _compare(record, trained, facts, book, findings)
    yield replace(subject, checks=(*subject.checks, *findings.checks))


def _compare(record: Record, trained: Record | None, facts: Mapping[str, Any], book: Book, findings: Findings) -> None:
    """The entry is of this release and no other; those of a session, which is paid line by line, all are.

    Values are compared, worked out from settings; of what spent.json says in words nothing is.
    """
    spent, paid = record.spent, book.debits.get(facts["entry"])
    others = [
        book.debits[number] for number in facts.get("entries", ()) if number in book.debits and number != facts["entry"]
    ]
    if paid is None or paid.entry.hash != facts["hash"]:
        raise Broken(f"entry {facts['entry']} of this ledger is not the one that paid: another ledger, or a rewritten one")
    size = spent["queries"] if spent["what"] == Output.LABELS else 1
    charge, counting = paid.charge, trained if record.command == "predict" else record
    pairs: dict[str, tuple[object, object]] = {
        "population": (facts["population"], book.population.name),
        "guarantee": (_guarantee(record), charge.guarantee),
        "releases": (size, paid.size + sum(other.size for other in others if other.charge == charge)),
        "mechanism": (spent["mechanism"], charge.mechanism),
        "output": (str(spent["what"]), charge.output),
        "training run": (record.environment.get("draw") or record.environment.get("trained_digest", ""), charge.run),
        "data": (record.environment.get("data_digest"), charge.data),
    }
    if counting is not None:
        pairs["relation"] = (counting.config["relation"]["name"], charge.relation)
        pairs["unit"] = (unit_of(counting.config), charge.unit)
    for name, (ours, theirs) in pairs.items():
        if ours != theirs:
            raise Broken(f"entry {facts['entry']} is of another release: {name} is {theirs} there, and {ours} here")
    earlier = f" with {len(others)} before it" if others else ""
    findings.ok("entry", f"{facts['entry']}{earlier} counts exactly this: {size} of {paid.charge.guarantee}")


def _guarantee(record: Record) -> Guarantee:
    """Of each release: what the settings of its command ask for."""
    config = record.config
    if record.command == "train":
        return stands_for(float(config["noise"]["epsilon"]), float(config["noise"]["delta"]))
    return tuned(config).guarantee if record.command == "tune" else guarantee_among(record.metrics)


def _whereabouts(name: object, home: Path) -> Path | None:
    """Where a ledger lies: from here, or from where the run's ``outputs`` folder lies; None: neither."""
    if name is None:
        return None
    try:
        path = Path(os.path.expanduser(ledger_path(str(name))))
    except ConfigError:
        return None
    top = home.resolve().parent.parent.parent  # of TOP/outputs/predict/RUN
    places = (path, top / path, top / FOLDER / path.name)
    return next((place for place in places if place.exists()), None)
