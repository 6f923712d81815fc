"""A ledger as an auditor sees it: the whole chain followed, each cost worked out again, and whether
it counts a release.

That is: the entry, the account that a claim names, and the labels that it remembers.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from agt import sentences
from agt.errors import ConfigError
from agt.ledger.book import Book, Debit, budget, clock
from agt.ledger.chain import Head
from agt.ledger.known import check_same_ledger
from agt.ledger.ledger import Ledger
from agt.mechanisms.accounts import Account
from agt.mechanisms.budget import eps_so_far
from agt.mechanisms.claims import read_claim
from agt.mechanisms.guarantees import Guarantee
from agt.mechanisms.output import Output
from agt.settings import plain_of
from agt.store import Broken, open_plain
from agt_cli.releasing.ledgers import FOLDER, NO_LEDGER, SUFFIX, ledger_path, unit_of
from agt_cli.releasing.noise import stands_for
from agt_cli.report.markdown import Findings
from agt_cli.verify.folders import Record, VerifiedItem, first_difference, rendered_alike
from agt_cli.verify.pages import CLAIM_FILE, by_lines
from agt_cli.verify.release import guarantee_among, labels_of

LEDGER_LIMITS = (
    "the ledger may not contain everything that was released about these people: it only "
    "knows what was debited on it",
    "the people in its tables may not be the same, and a unit may not be what it is said to "
    "be: both are only declared",
    "all entries from some point on, and the second copy of the ledger's end with them, may "
    "have been rewritten: only a head that somebody else stored shows that (head=COUNT:HASH)",
    "a release may have been drawn with less noise than was paid for: agt verify of each "
    "release checks that",
)
SQLITE_MAGIC = b"SQLite format 3\0"
NotedHead = Head | Path | None
"""Of a ledger's chain: where it ended at some time, as somebody noted it; or where its second
head lies now.
"""


def is_ledger(path: Path) -> bool:
    """Whether a path is to be taken as a ledger's: by its ending, or by what it begins with."""
    if path.suffix == SUFFIX:
        return not path.is_dir()
    with suppress(Broken), open_plain(path) as file:
        return bool(file.read(len(SQLITE_MAGIC)) == SQLITE_MAGIC)
    return False


def look_at_ledger(
    path: Path, known: NotedHead, more: Callable[[Ledger, Findings], None] | None = None
) -> VerifiedItem:
    """Check everything in a ledger.

    Args:
        more: looks at the ledger, where all of it holds.
    """
    findings, name = Findings(), f"ledger {path}"
    with findings.looking("ledger"), open_plain(path), _opened(path, known) as ledger:
        noted = known if isinstance(known, Head) else None
        book, words = ledger.verify(noted), ledger.words()
        _tell(book, ledger.head, noted, findings)
        with findings.looking("first entry"):
            check_same_ledger(path, book.first_entry, book.declared)
        population, allowance = book.population, book.population.allowance
        facts = (
            (
                "population",
                f"{population.name}; a unit is {ledger.unit}; neighbours are those of "
                f"relation={population.relation}",
            ),
            ("tables", ", ".join(table.name for table in book.tables.values()) or "none admitted"),
            (
                "opened",
                f"the first entry is of {book.opening.time}, the newest of {book.last.time} "
                "(times are recorded, but not proved)",
            ),
            (
                "first entry",
                f"claims name this ledger by {book.first_entry}, the beginning of its first entry",
            ),
            ("head", str(book.last.head)),
        )
        claims = (
            f"everything that is ever released on this ledger is together ({allowance.eps:g}, "
            f"{allowance.delta:g})-differentially private, for neighbours under "
            f"relation={population.relation}",
            *words,
        )
        if more is not None:
            with findings.looking("entry"):
                more(ledger, findings)
        return VerifiedItem(name, findings.checks, facts, (), claims, limits=LEDGER_LIMITS)
    return VerifiedItem(name, findings.checks, limits=LEDGER_LIMITS)


def _opened(path: Path, known: NotedHead) -> Ledger:
    """To look at, with its second head; a copy that is away from that, with a head that was
    noted.
    """
    away = False
    if isinstance(known, Head):
        with Ledger.open(path, writing=False, away=True) as ledger:
            away = bool(ledger.book.head) and not os.path.exists(ledger.book.head)
    return Ledger.open(path, known if isinstance(known, Path) else None, writing=False, away=away)


def _tell(book: Book, head: Path | None, known: Head | None, findings: Findings) -> None:
    allowance, spent = book.population.allowance, eps_so_far(book.population.allowance, book.spent)
    findings.ok(
        "chain",
        f"{book.last.number} entries were checked, each linked to the previous one by its "
        "hash; no entry was changed or removed",
    )
    counted = (
        f"{book.kinds['debit']} debits were checked, and the cost of each was recomputed; "
        f"spent so far: eps = {spent:.6g}"
    )
    findings.ok("budget", f"{counted} of {budget(allowance)}")
    findings.ok(
        "answers", f"{book.answered} stored answers were checked; they match the chain of entries"
    )
    if head is not None:
        findings.ok(
            "second head", f"the ledger contains the head that its second copy, {head}, records"
        )
    elif book.head:
        findings.unchecked(
            "second head",
            f"{book.head}: not there",
            "give head=FILE with the place where the second copy of the ledger's end is now",
        )
    if known is not None:
        findings.ok("noted head", f"the head {known} that was given is in the ledger")
    elif not book.head:
        findings.note(
            "second head",
            sentences.NO_HEAD,
            "give head=COUNT:HASH, as agt ledger show printed it earlier",
        )
    for line in clock(book):
        findings.note("clock", line)


def ledgers_of(
    record: Record, trained: Record | None, given: str | None, known: NotedHead
) -> Iterator[VerifiedItem]:
    """The ledger that paid for a release, and whether it counts it.

    Args:
        trained: the training run that it was made from; None: it has none, or that is not there.
        given: where it lies, by name or path; None: where the release's settings say.
    """
    facts, named = (
        record.spent.get("ledger") or {},
        record.config.get("ledger") or record.environment.get("ledger"),
    )
    stored = record.command == "predict" and not record.spent and record.metrics.get("stored")
    if not facts and not stored:
        if record.spent and named not in (None, NO_LEDGER) and not record.spent.get("simulated"):
            record.findings.problem(
                "budget",
                f"config.yaml has ledger={named}, but spent.json does not name the ledger's "
                "entry that counts the release",
            )
        return
    path = _find_ledger(given or named, record.folder)
    if path is None:
        findings, population = Findings(), facts.get("population", named)
        counted = (
            f"entry {facts['entry']} of the ledger of {population} counts this release"
            if facts
            else "a ledger stores the answers of this release"
        )
        words = f"according to the files, {counted}; but this ledger was not found"
        findings.unchecked(
            "ledger", words, "say where the ledger is, with ledger=NAME or ledger=FILE"
        )
        yield VerifiedItem(f"ledger of {population}", findings.checks)
        return

    def compare_stored(ledger: Ledger, findings: Findings) -> None:
        run, each = record.environment.get("trained_digest"), guarantee_among(record.metrics)
        charges = {number: debit.charge for number, debit in ledger.history().items()}
        wanted = (Output.LABELS.value, run, each)
        paid = {number for number, c in charges.items() if (c.output, c.run, c.guarantee) == wanted}
        labels, classes = labels_of(record), [] if trained is None else trained.classes
        kept = {classes[label] for label in ledger.labels_on(paid)} if classes else set()
        if not paid or (
            classes and labels is not None and set(labels.cast("string").to_pylist()) - kept
        ):
            raise Broken(
                f"no entry of this ledger paid for these answers, each {each}, so they were "
                "not stored in this ledger"
            )
        findings.ok(
            "entry",
            f"{len(paid)} entries of the ledger paid for answers of this run, each {each}; "
            "these answers may be among them",
        )

    def compare(ledger: Ledger, findings: Findings) -> None:
        debits = ledger.history()
        _compare_entry(record, trained, facts, ledger.book, debits, findings)
        _compare_account(record, ledger, debits[facts["entry"]], findings)
        _compare_labels(record, trained, ledger, {facts["entry"], *facts.get("entries", ())})

    yield look_at_ledger(path, known, compare if facts else compare_stored)


def _compare_account(record: Record, ledger: Ledger, debit: Debit, findings: Findings) -> None:
    """The account that a claim names is the ledger's as it stood with the entry, made again."""
    if not record.holds(CLAIM_FILE):
        return
    claimed = read_claim(record.read(CLAIM_FILE))
    account = claimed.account
    if account is None:
        raise Broken(
            f"{CLAIM_FILE} does not name a ledger, but entry {debit.entry.number} of the "
            f"ledger of {ledger.population.name} paid for this release"
        )
    expected = _account_then(ledger, debit, account)
    if claimed.of_earlier_form:
        expected = _of_earlier_form(expected, account, ledger)
        if account.first_entry is None:
            findings.note(
                "first entry",
                "the claim does not name the ledger, because an earlier version of agt wrote "
                f"{CLAIM_FILE}",
            )
    if difference := first_difference(plain_of(account), plain_of(expected)):
        raise Broken(f"the account in {CLAIM_FILE} does not match the ledger: {difference}")
    if str(claimed.issued) < debit.entry.time[:10]:
        raise Broken(
            f"{CLAIM_FILE} was issued on {claimed.issued}, before the release was paid for "
            f"({debit.entry.time})"
        )


def _account_then(ledger: Ledger, debit: Debit, account: Account) -> Account:
    """The ledger's account with a debit, as it was when a claim was made of it.

    Args:
        account: of the claim, which knows what the ledger does not: what of a release it counts,
            and where the second head lay then, if there was one.
    """
    expected = ledger.account(debit, account.counts)
    state, then = expected.ledger, account.ledger
    if state and then and "none" not in (state.second_head, then.second_head):
        state = replace(state, second_head=then.second_head)
    return replace(expected, curve=expected.budget_curve, ledger=state)


def _of_earlier_form(account: Account, claimed: Account, ledger: Ledger) -> Account:
    """An account without what an earlier version did not record, its unit with the tables'
    numbers of records in it.
    """
    tables = [table.counted for table in ledger.book.tables.values()]
    units = [sentences.unit(account.unit, tables[:count]) for count in range(len(tables) + 1)]
    unit = next((unit for unit in units if rendered_alike(unit, claimed.unit)), units[-1])
    first_entry = claimed.first_entry and account.first_entry
    return replace(account, unit=unit, first_entry=first_entry, ledger=None)


def _compare_labels(
    record: Record, trained: Record | None, ledger: Ledger, debits: set[int]
) -> None:
    """What was drawn on these entries stands in the released labels, in the order of the draws.

    Between them are answers that were repeated: an entry tells nothing of those.
    """
    released, classes = labels_of(record), [] if trained is None else trained.classes
    if "answered" not in record.metrics:
        return
    drawn, anew = ledger.labels_on(debits), record.metrics["answered"] - record.metrics["stored"]
    if len(drawn) > anew:  # a question that came twice was drawn once
        raise Broken(
            f"the ledger stores {len(drawn)} labels of this release, but metrics.json counts "
            f"{anew} newly drawn answers"
        )
    if released is None or not classes:
        return
    names = released.dictionary.to_pylist()
    places = (names[code] for code in released.indices.to_numpy())
    if len(drawn) == len(released):
        matched = [classes[label] for label in drawn] == list(places)
    else:
        matched = all(classes[label] in places for label in drawn)  # one after the other
    if not matched:
        raise Broken(
            "the labels differ from those that the ledger stores for this release, so some "
            "were changed"
        )


def _compare_entry(
    record: Record,
    trained: Record | None,
    facts: Mapping[str, Any],
    book: Book,
    debits: Mapping[int, Debit],
    findings: Findings,
) -> None:
    """The entry is of this release and no other; those of a session, which is paid line by line,
    all are.

    Values are compared, worked out from settings.
    """
    spent, paid = record.spent, debits.get(facts["entry"])
    numbers = facts.get("entries", [facts["entry"]])
    lots = [debits[number] for number in numbers if number in debits]
    if paid is None or paid.entry.hash != facts["hash"]:
        raise Broken(
            f"entry {facts['entry']} of this ledger did not pay for the release, so this is "
            "another ledger, or it was rewritten"
        )
    # to the second
    began, ended = (str(record.status.get(name))[:19] for name in ("started", "ended"))
    if (
        [lot.entry.number for lot in lots] != numbers
        or numbers != sorted({*numbers})
        or numbers[-1] != facts["entry"]
        or any(lot.charge != paid.charge for lot in lots)
        or ("entries" in facts and not by_lines(record))
        or (
            record.command == "predict"
            and not all(began <= lot.entry.time[:19] <= ended for lot in lots)
        )
    ):
        raise Broken(
            f"entries {numbers} of the ledger are not exactly the debits of this run, in "
            "their order and from the time of the run"
        )
    size = spent["queries"] if spent["what"] == Output.LABELS else 1
    charge, counting = (
        paid.charge,
        record if record.command != "predict" else trained if trained else None,
    )
    ours: dict[str, object] = {
        "population": facts["population"],
        "guarantee": _guarantee(record),
        "releases": size,
        "mechanism": spent["mechanism"],
        "output": str(spent["what"]),
        "training run": record.environment.get("draw")
        or record.environment.get("trained_digest", ""),
        "data": record.environment.get("data_digest"),
    }
    theirs: dict[str, object] = {
        "population": book.population.name,
        "guarantee": charge.guarantee,
        "releases": sum(lot.size for lot in lots),
        "mechanism": charge.mechanism,
        "output": charge.output,
        "training run": charge.run,
        "data": charge.data,
    }
    if counting is not None:
        ours |= {"relation": counting.config["relation"]["name"], "unit": unit_of(counting.config)}
        theirs |= {"relation": charge.relation, "unit": charge.unit}
    if wrong := [name for name in ours if ours[name] != theirs[name]]:
        name = wrong[0]
        raise Broken(
            f"entry {facts['entry']} is about another release: {name} is {theirs[name]} in "
            f"the ledger, but {ours[name]} here"
        )
    earlier = f" together with {len(lots) - 1} earlier entries" if len(lots) > 1 else ""
    findings.ok(
        "entry",
        f"entry {facts['entry']}{earlier} counts exactly this release: {size} of "
        f"{paid.charge.guarantee}",
    )


def _guarantee(record: Record) -> Guarantee:
    """Of each release: what the settings of its command ask for."""
    config = record.config
    if record.command == "train":
        return stands_for(float(config["noise"]["epsilon"]), float(config["noise"]["delta"]))
    # Private tuning of an earlier version was paid for as a whole: its total is its guarantee.
    return guarantee_among(config["total"] if record.command == "tune" else record.metrics)


def _find_ledger(name: object, home: Path) -> Path | None:
    """Where a ledger lies: from here, or from where the run's ``outputs`` folder lies; None:
    neither.
    """
    if name is None:
        return None
    try:
        path = Path(os.path.expanduser(ledger_path(str(name))))
    except ConfigError:
        return None
    top = home.resolve().parent.parent.parent  # of TOP/outputs/predict/RUN
    places = (path, top / path, top / FOLDER / path.name)
    return next((place for place in places if place.exists()), None)
