"""A ledger as an auditor sees it, and whether it counts a release.

The whole chain is followed and each cost worked out again. Of a release, the entry that paid for
it, the account that its claim names and the labels that the ledger remembers are compared.
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
from agt.ledger.words import clock_warnings, describe_budget
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
    """Check everything in a ledger, and return what was seen.

    Args:
        path: the ledger's file.
        known: where its chain ended at some time, or where its second head lies.
        more: looks at the ledger if all of it holds.
    """
    findings = Findings()
    name = f"ledger {path}"
    with findings.looking("ledger"), open_plain(path), _opened(path, known) as ledger:
        noted = known if isinstance(known, Head) else None
        book = ledger.verify(noted)
        claims = _claims_of(ledger)
        _tell(book, ledger.head, noted, findings)
        with findings.looking("first entry"):
            check_same_ledger(path, book.first_entry, book.declared)
        facts = _facts_of(ledger, book)
        if more is not None:
            with findings.looking("entry"):
                more(ledger, findings)
        return VerifiedItem(name, findings.checks, facts, (), claims, limits=LEDGER_LIMITS)
    return VerifiedItem(name, findings.checks, limits=LEDGER_LIMITS)


def _claims_of(ledger: Ledger) -> tuple[str, ...]:
    """Return what a ledger guarantees, a line each."""
    population = ledger.population
    allowance = population.allowance
    return (
        f"all releases that this ledger ever pays for are together ({allowance.eps:g}, "
        f"{allowance.delta:g})-differentially private, for neighbouring datasets under "
        f"relation={population.relation}",
        *ledger.words(),
    )


def _facts_of(ledger: Ledger, book: Book) -> tuple[tuple[str, str], ...]:
    """Return what a ledger says of itself: what each fact is about, and the fact."""
    population = book.population
    opened = book.opening.time
    newest = book.last.time
    return (
        (
            "population",
            f"{population.name}; a unit is {ledger.unit}; neighbouring datasets are those of "
            f"relation={population.relation}",
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


def _opened(path: Path, known: NotedHead) -> Ledger:
    """Open a ledger for reading, with its second head where that can be found.

    A copy that lies away from its second head is opened without it, if the caller noted a head.
    """
    if isinstance(known, Path):
        return Ledger.open(path, known, writing=False, as_copy=False)
    is_away = False
    if isinstance(known, Head):
        with Ledger.open(path, writing=False, as_copy=True) as ledger:
            second_head = ledger.book.head
            is_away = bool(second_head) and not os.path.exists(second_head)
    return Ledger.open(path, None, writing=False, as_copy=is_away)


def _tell(book: Book, head: Path | None, known: Head | None, findings: Findings) -> None:
    """Note what was checked in a ledger.

    Args:
        book: of the ledger, whose chain was followed.
        head: the file of its second head; None: it was not found, or there is none.
        known: where the chain ended at some time, as the caller noted it; None: not noted.
        findings: where it is noted.
    """
    allowance = book.population.allowance
    spent = eps_so_far(allowance, book.spent)
    findings.ok(
        "chain",
        f"{book.last.number} entries were checked, each linked to the previous one by its hash; "
        "no entry was changed or removed",
    )
    debits = book.kind_counts["debit"]
    allowed = describe_budget(allowance)
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
    for line in clock_warnings(book):
        findings.note("clock", line)


def ledgers_of(
    record: Record, trained: Record | None, given: str | None, known: NotedHead
) -> Iterator[VerifiedItem]:
    """Yield the ledger that paid for a release, with whether it counts the release.

    Nothing is yielded if no ledger paid, and none stores the answers.

    Args:
        record: of the release.
        trained: the training run that it was made from; None: it has none, or that is not there.
        given: where the ledger lies, by name or path; None: where the release's settings say.
        known: where the ledger's chain ended at some time, or where its second head lies.
    """
    paid = record.spent.get("ledger") or {}
    named = record.config.get("ledger") or record.environment.get("ledger")
    is_stored = (
        record.command == "predict" and not record.spent and bool(record.metrics.get("stored"))
    )
    if not paid and not is_stored:
        should_name_entry = record.spent and named not in (None, NO_LEDGER)
        if should_name_entry and not record.spent.get("simulated"):
            record.findings.problem(
                "budget",
                f"the release was made with ledger={named}, but spent.json does not name the "
                "ledger's entry that paid for this release",
            )
        return
    path = _find_ledger(given or named, record.folder)
    if path is None:
        yield _lost_ledger(paid, named)
        return

    def compare_stored(ledger: Ledger, findings: Findings) -> None:
        _compare_stored(record, trained, ledger, findings)

    def compare_paid(ledger: Ledger, findings: Findings) -> None:
        debits = ledger.history()
        _compare_entry(record, trained, paid, ledger.book, debits, findings)
        _compare_account(record, ledger, debits[paid["entry"]], findings)
        _compare_labels(record, trained, ledger, {paid["entry"], *paid.get("entries", ())})

    yield look_at_ledger(path, known, compare_paid if paid else compare_stored)


def _lost_ledger(paid: Mapping[str, Any], named: object) -> VerifiedItem:
    """Return what is seen of a ledger that was not found.

    Args:
        paid: the entry "ledger" of spent.json; empty: the ledger only stores answers.
        named: the ledger that the release's settings name.
    """
    findings = Findings()
    population = paid.get("population", named)
    role = "a ledger stores the answers of this release"
    if paid:
        entry = paid["entry"]
        role = f"entry {entry} of the ledger of {population} paid for this release"
    findings.unchecked(
        "ledger",
        f"according to the files of this release, {role}, but that ledger was not found",
        "give the place of the ledger with ledger=NAME or ledger=FILE",
    )
    return VerifiedItem(f"ledger of {population}", findings.checks)


def _compare_stored(
    record: Record, trained: Record | None, ledger: Ledger, findings: Findings
) -> None:
    """Check that a ledger stores the answers of a release that it did not debit anew.

    Raises:
        Broken: no entry stores them.
    """
    run = record.environment.get("trained_digest")
    guarantee = guarantee_among(record.metrics)
    expected = (Output.LABELS.value, run, guarantee)
    paid = set()
    for number, debit in ledger.history().items():
        charge = debit.charge
        if (charge.output, charge.run, charge.guarantee) == expected:
            paid.add(number)
    stored = None if trained is None else trained.texts_of(ledger.labels_of_debits(paid))
    labels = labels_of(record)
    released = set() if labels is None else set(labels.cast("string").to_pylist())
    if not paid or (stored is not None and released - set(stored)):
        raise Broken(
            "this ledger does not contain these answers of this release: no entry stores "
            f"them and paid for answers of this run with the guarantee {guarantee}. Give the "
            "right ledger with ledger=..."
        )
    entries = counted(len(paid), "entry of the ledger", "entries of the ledger")
    findings.ok(
        "entry",
        f"{entries} paid for answers of this run with the guarantee {guarantee}, so the answers of "
        "this release may be among them",
    )


def _compare_account(record: Record, ledger: Ledger, debit: Debit, findings: Findings) -> None:
    """Check that the account that a claim names is the ledger's, as it was with the entry.

    Raises:
        Broken: it is not, or the claim was issued before the release was paid for.
    """
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
    """Return the ledger's account with a debit, as it was when a claim was made of it.

    Args:
        ledger: that paid.
        debit: of the release.
        account: of the claim, which knows what the ledger does not: what of a release it counts,
            and where the second head lay then, if there was one.
    """
    expected = ledger.account(debit, account.counts)
    state = expected.ledger
    claimed_state = account.ledger
    if state and claimed_state and "none" not in (state.second_head, claimed_state.second_head):
        state = replace(state, second_head=claimed_state.second_head)
    return replace(expected, curve=expected.budget_curve, ledger=state)


def _of_earlier_form(account: Account, claimed: Account, ledger: Ledger) -> Account:
    """Return an account as an earlier version recorded it.

    It lacks what that version did not record, and its unit has the tables' numbers of records in
    it.
    """
    tables = [table.counted for table in ledger.book.tables.values()]
    units = [sentences.unit(account.unit, tables[:count]) for count in range(len(tables) + 1)]
    unit = next((unit for unit in units if rendered_alike(unit, claimed.unit)), units[-1])
    first_entry = claimed.first_entry and account.first_entry
    return replace(account, unit=unit, first_entry=first_entry, ledger=None)


def _compare_labels(
    record: Record, trained: Record | None, ledger: Ledger, debits: set[int]
) -> None:
    """Check that labels drawn on some entries are among the released ones, in their order.

    Between them are answers that were repeated, of which an entry says nothing.

    Raises:
        Broken: they are not.
    """
    released = labels_of(record)
    if "answered" not in record.metrics:
        return
    drawn = ledger.labels_of_debits(debits)
    newly_drawn = record.metrics["answered"] - record.metrics["stored"]
    in_ledger = len(drawn)
    if in_ledger > newly_drawn:  # a question that came twice was drawn once
        raise Broken(
            f"the ledger stores {in_ledger} labels of this release, but metrics.json counts only "
            f"{newly_drawn} newly drawn labels"
        )
    texts = None if trained is None else trained.texts_of(drawn)
    if released is None or texts is None:
        return
    names = released.dictionary.to_pylist()
    released_texts = (names[code] for code in released.indices.to_numpy())
    if len(drawn) == len(released):
        matched = texts == list(released_texts)
    else:
        # each search goes on where the one before ended, so this keeps the order
        matched = all(text in released_texts for text in texts)
    if not matched:
        raise Broken(
            "the labels differ from those that the ledger stores for this release, so some labels "
            "were changed"
        )


def _compare_entry(
    record: Record,
    trained: Record | None,
    paid: Mapping[str, Any],
    book: Book,
    debits: Mapping[int, Debit],
    findings: Findings,
) -> None:
    """Check that an entry paid for this release and no other.

    A session is paid line by line, so all of its entries are checked. Values are compared, worked
    out from settings.

    Args:
        record: of the release.
        trained: the training run that it was made from; None: it is not there.
        paid: the entry "ledger" of spent.json.
        book: of the ledger.
        debits: all of the ledger, by their numbers.
        findings: where it is noted.

    Raises:
        Broken: the entry is of another release.
    """
    entry = paid["entry"]
    debit = debits.get(entry)
    if debit is None or debit.entry.hash != paid["hash"]:
        raise Broken(
            f"entry {entry} of this ledger did not pay for the release. Either this is another "
            "ledger (give the right one with ledger=...), or the ledger was rewritten"
        )
    lots = _lots_of(record, paid, debit, debits)
    spent = record.spent
    size = spent["queries"] if spent["what"] == Output.LABELS else 1
    charge = debit.charge
    run = record.environment.get("draw") or record.environment.get("trained_digest", "")
    # what is compared -> (in this release, in the ledger)
    fields: dict[str, tuple[object, object]] = {
        "population": (paid["population"], book.population.name),
        "guarantee": (_guarantee(record), charge.guarantee),
        "releases": (size, sum(lot.size for lot in lots)),
        "mechanism": (spent["mechanism"], charge.mechanism),
        "output": (str(spent["what"]), charge.output),
        "training run": (run, charge.run),
        "data": (record.environment.get("data_digest"), charge.data),
    }
    described_by = trained if record.command == "predict" else record
    if described_by is not None:
        fields["relation"] = (described_by.config["relation"]["name"], charge.relation)
        fields["unit"] = (unit_of(described_by.config), charge.unit)
    for field, (in_release, in_ledger) in fields.items():
        if in_release != in_ledger:
            raise Broken(
                f"entry {entry} of the ledger paid for another release, because the field "
                f"'{field}' is {in_ledger} in the ledger, but {in_release} in this release"
            )
    noun = "label" if spent["what"] == Output.LABELS else "output"
    outputs = counted(size, noun)
    entries = f"entry {entry}"
    if len(lots) > 1:
        earlier = counted(len(lots) - 1, "earlier entry", "earlier entries")
        entries = f"{entries} together with {earlier}"
    guarantee = charge.guarantee
    findings.ok(
        "entry",
        f"{entries} of the ledger paid for exactly this release: {outputs}, each {guarantee}",
    )


def _lots_of(
    record: Record, paid: Mapping[str, Any], last: Debit, debits: Mapping[int, Debit]
) -> list[Debit]:
    """Return the debits that paid for a release, in their order.

    Args:
        record: of the release.
        paid: the entry "ledger" of spent.json.
        last: the debit of its entry.
        debits: all of the ledger, by their numbers.

    Raises:
        Broken: they are not the debits of this run.
    """
    numbers = paid.get("entries", [paid["entry"]])
    lots = [debits[number] for number in numbers if number in debits]
    # times are compared to the second
    began = str(record.status.get("started"))[:19]
    ended = str(record.status.get("ended"))[:19]
    all_in_ledger = [lot.entry.number for lot in lots] == numbers
    in_order = all_in_ledger and numbers == sorted({*numbers}) and numbers[-1] == paid["entry"]
    same_charge = all(lot.charge == last.charge for lot in lots)
    may_have_several = "entries" not in paid or by_lines(record)
    during_run = record.command != "predict" or all(
        began <= lot.entry.time[:19] <= ended for lot in lots
    )
    if not (in_order and same_charge and may_have_several and during_run):
        raise Broken(
            f"spent.json says that entries {numbers} of the ledger paid for this release, but "
            "they are not the debits of this run: an entry is missing from the ledger, repeated or "
            "out of order in spent.json, of another charge, or not made during the run"
        )
    return lots


def _guarantee(record: Record) -> Guarantee:
    """Return the guarantee of each answer that the settings of a command ask for."""
    config = record.config
    if record.command == "train":
        return stands_for(float(config["noise"]["epsilon"]), float(config["noise"]["delta"]))
    # Private tuning of an earlier version was paid for as a whole: its total is its guarantee.
    return guarantee_among(config["total"] if record.command == "tune" else record.metrics)


def _find_ledger(name: object, home: Path) -> Path | None:
    """Return where a ledger lies; None: it was not found.

    It is looked for from the working directory, and from where the run's ``outputs`` folder lies.

    Args:
        name: of the ledger, or its path; None: there is none.
        home: the run's folder.
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
