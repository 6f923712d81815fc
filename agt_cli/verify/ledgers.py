"""A ledger as an auditor sees it: the whole chain followed, each cost worked out again, and whether
it counts a release.

That is: the entry, the account that a claim names, and the labels that it remembers.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from agt import sentences
from agt.errors import ConfigError, counted
from agt.ledger.book import Book, Debit
from agt.ledger.chain import Head
from agt.ledger.known import check_same_ledger
from agt.ledger.ledger import Ledger
from agt.ledger.words import budget, clock
from agt.mechanisms.accounts import Account
from agt.mechanisms.budget import eps_so_far
from agt.mechanisms.claims import read_claim
from agt.mechanisms.guarantees import Guarantee
from agt.mechanisms.output import Output
from agt.settings import plain_of
from agt.store.reading import Broken, open_plain
from agt_cli.ledger_files import FOLDER, NO_LEDGER, ledger_path
from agt_cli.releasing.ledgers import unit_of
from agt_cli.releasing.noise import stands_for
from agt_cli.report.markdown import Findings
from agt_cli.verify.folders import Record, VerifiedItem, check_match, rendered_alike
from agt_cli.verify.pages import CLAIM_FILE, by_lines
from agt_cli.verify.release import guarantee_among, labels_of

LEDGER_LIMITS = (
    "releases about these people may be missing from the ledger, because it only contains "
    "releases that were debited to it",
    "whether the ledger's tables are about the same people, and what a unit (person) is, was only "
    "declared and cannot be checked",
    "all entries from some point on may have been rewritten, together with the head file "
    "(which keeps a copy of the ledger's last entry). Only a copy of the last entry that "
    "somebody else stored reveals this: give it as head=COUNT:HASH",
    "a release may have been drawn with less noise than was paid for; to check this, type `agt "
    "verify` for each release",
)
NotedHead = Head | Path | None
"""Of a ledger's chain: where it ended at some time, as somebody noted it; or where its second
head lies now.
"""


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
        relation = population.relation
        opened = book.opening.time
        newest = book.last.time
        facts = (
            (
                "population",
                f"{population.name}; a unit is {ledger.unit}; neighbouring datasets are those of "
                f"relation={relation}",
            ),
            ("tables", ", ".join(table.name for table in book.tables.values()) or "none admitted"),
            (
                "opened",
                f"the first entry was written at {opened}, the newest at {newest} (these times "
                "are recorded, but not proved)",
            ),
            (
                "first entry",
                f"claims identify this ledger by {book.first_entry}, the first digits of the hash "
                "of its first entry",
            ),
            ("head", str(book.last.head)),
        )
        claims = (
            f"all releases that this ledger ever pays for are together ({allowance.eps:g}, "
            f"{allowance.delta:g})-differentially private, for neighbouring datasets under "
            f"relation={relation}",
            *words,
        )
        if more is not None:
            with findings.looking("entry"):
                more(ledger, findings)
        return VerifiedItem(name, findings.checks, facts, (), claims, limits=LEDGER_LIMITS)
    return VerifiedItem(name, findings.checks, limits=LEDGER_LIMITS)


def _opened(path: Path, known: NotedHead) -> Ledger:
    """To look at, with its head file; a copy that is away from that, with a head that was
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
        f"{book.last.number} entries were checked, each linked to the previous one by its hash; "
        "no entry was changed or removed",
    )
    debits = book.kinds["debit"]
    allowed = budget(allowance)
    findings.ok(
        "budget",
        f"{debits} debits were checked, and the cost of each was recomputed; spent so far: eps = "
        f"{spent:.6g} of {allowed}",
    )
    findings.ok(
        "answers", f"{book.answered} stored answers were checked and match the ledger's entries"
    )
    if head is not None:
        findings.ok(
            "second head",
            f"the ledger contains the entry of which its head file ({head}) keeps a copy",
        )
    elif book.head:
        findings.unchecked(
            "second head",
            f"the head file {book.head}, which keeps a copy of the ledger's last entry, was not "
            "found",
            "give head=FILE, where FILE is the present path of the ledger's head file",
        )
    if known is not None:
        findings.ok("noted head", f"the ledger contains the entry that head={known} names")
    elif not book.head:
        findings.note(
            "second head",
            sentences.NO_HEAD,
            "give head=COUNT:HASH, as `agt ledger show` printed it earlier",
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
                f"the release was made with ledger={named}, but spent.json does not name the "
                "ledger's entry that paid for this release",
            )
        return
    path = _find_ledger(given or named, record.folder)
    if path is None:
        findings, population = Findings(), facts.get("population", named)
        role = "a ledger stores the answers of this release"
        if facts:
            entry = facts["entry"]
            role = f"entry {entry} of the ledger of {population} paid for this release"
        findings.unchecked(
            "ledger",
            f"according to the files of this release, {role}, but that ledger was not found",
            "give the place of the ledger with ledger=NAME or ledger=FILE",
        )
        yield VerifiedItem(f"ledger of {population}", findings.checks)
        return

    def compare_stored(ledger: Ledger, findings: Findings) -> None:
        run, each = record.environment.get("trained_digest"), guarantee_among(record.metrics)
        charges = {number: debit.charge for number, debit in ledger.history().items()}
        wanted = (Output.LABELS.value, run, each)
        paid = {number for number, c in charges.items() if (c.output, c.run, c.guarantee) == wanted}
        labels = labels_of(record)
        stored = None if trained is None else trained.texts_of(ledger.labels_on(paid))
        released = set() if labels is None else set(labels.cast("string").to_pylist())
        if not paid or (stored is not None and released - set(stored)):
            raise Broken(
                "this ledger does not contain these answers of this release: no entry stores "
                f"them and paid for answers of this run with the guarantee {each}. Give the "
                "right ledger with ledger=..."
            )
        entries = counted(len(paid), "entry of the ledger", "entries of the ledger")
        findings.ok(
            "entry",
            f"{entries} paid for answers of this run with the guarantee {each}, so the answers of "
            "this release may be among them",
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
        number = debit.entry.number
        population = ledger.population.name
        raise Broken(
            f"{CLAIM_FILE} does not name a ledger, but entry {number} of the ledger of "
            f"{population} paid for this release"
        )
    expected = _account_then(ledger, debit, account)
    if claimed.of_earlier_form:
        expected = _of_earlier_form(expected, account, ledger)
        if account.first_entry is None:
            findings.note(
                "first entry",
                f"{CLAIM_FILE} does not identify the ledger by its first entry, because an earlier "
                "version of agt wrote this claim",
            )
    check_match(f"account in {CLAIM_FILE}", plain_of(account), "the ledger", plain_of(expected))
    paid_at = debit.entry.time
    if str(claimed.issued) < paid_at[:10]:
        raise Broken(
            f"{CLAIM_FILE} was issued on {claimed.issued}, before the release was paid for "
            f"({paid_at})"
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
    released = labels_of(record)
    if "answered" not in record.metrics:
        return
    drawn, anew = ledger.labels_on(debits), record.metrics["answered"] - record.metrics["stored"]
    in_ledger = len(drawn)
    if in_ledger > anew:  # a question that came twice was drawn once
        raise Broken(
            f"the ledger stores {in_ledger} labels of this release, but metrics.json counts only "
            f"{anew} newly drawn labels"
        )
    texts = None if trained is None else trained.texts_of(drawn)
    if released is None or texts is None:
        return
    names = released.dictionary.to_pylist()
    places = (names[code] for code in released.indices.to_numpy())
    if len(drawn) == len(released):
        matched = texts == list(places)
    else:
        matched = all(text in places for text in texts)  # one after the other
    if not matched:
        raise Broken(
            "the labels differ from those that the ledger stores for this release, so some labels "
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
    entry = facts["entry"]
    spent = record.spent
    paid = debits.get(entry)
    numbers = facts.get("entries", [entry])
    lots = [debits[number] for number in numbers if number in debits]
    if paid is None or paid.entry.hash != facts["hash"]:
        raise Broken(
            f"entry {entry} of this ledger did not pay for the release. Either this is another "
            "ledger (give the right one with ledger=...), or the ledger was rewritten"
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
            f"spent.json says that entries {numbers} of the ledger paid for this release, but "
            "they are not the debits of this run: an entry is missing from the ledger, repeated or "
            "out of order in spent.json, of another charge, or not made during the run"
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
        field = wrong[0]
        in_ledger = theirs[field]
        in_release = ours[field]
        raise Broken(
            f"entry {entry} of the ledger paid for another release, because the field '{field}' is "
            f"{in_ledger} in the ledger, but {in_release} in this release"
        )
    noun = "label" if spent["what"] == Output.LABELS else "output"
    outputs = counted(size, noun)
    entries = f"entry {entry}"
    if len(lots) > 1:
        earlier = counted(len(lots) - 1, "earlier entry", "earlier entries")
        entries = f"{entries} together with {earlier}"
    guarantee = paid.charge.guarantee
    findings.ok(
        "entry",
        f"{entries} of the ledger paid for exactly this release: {outputs}, each {guarantee}",
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
