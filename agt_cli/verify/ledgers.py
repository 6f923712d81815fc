"""Check a ledger without trusting it, and check that it counts a release.

The whole chain of entries is followed, and the cost of each is recomputed. For a release, three
things are compared with the ledger: the entry that paid for it, the ledger's account in its claim
(``agt.mechanisms.accounts.Account``), and the labels that the ledger stores.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from agt import sentences
from agt.errors import counted
from agt.ledger.book import Book, Debit
from agt.ledger.chain import Head
from agt.ledger.descriptions import clock_warnings, describe_budget
from agt.ledger.ledger import Ledger
from agt.ledger.ledger_list import check_as_listed
from agt.mechanisms.accounts import Account
from agt.mechanisms.budget import eps_so_far
from agt.mechanisms.claims import read_claim
from agt.mechanisms.guarantees import Guarantee
from agt.mechanisms.output import Output
from agt.settings import plain_of
from agt.store.reading import Broken, open_plain
from agt_cli.ledger_files import NO_LEDGER, find_ledger
from agt_cli.releasing.ledgers import unit_of
from agt_cli.releasing.noise import equivalent_gaussian
from agt_cli.report.markdown import Findings
from agt_cli.verify.comparison import check_match
from agt_cli.verify.folders import Record
from agt_cli.verify.items import Facts, VerifiedItem
from agt_cli.verify.labels import read_labels
from agt_cli.verify.pages import CLAIM_FILE, is_line_by_line
from agt_cli.verify.release import guarantee_from_parameters

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
"""What the caller knows of the end of a ledger's chain: the last entry at some earlier time
(``Head``), or the present path of the head file. None: neither.
"""


def check_whole_ledger(
    path: Path,
    known: NotedHead,
    check_release: Callable[[Ledger, Findings], None] | None = None,
) -> VerifiedItem:
    """Check everything in a ledger, and return the findings.

    Problems become findings; nothing is raised for them.

    Args:
        path: the ledger's file.
        known: what the caller knows of the end of the ledger's chain.
        check_release: a further check, which is called with the open ledger and the findings if
            the ledger itself has no problem; None: no further check.

    Returns:
        The findings. If the ledger cannot be followed, there are no facts and no claims.
    """
    findings = Findings()
    name = f"ledger {path}"
    with findings.recording_errors("ledger"), open_plain(path), _opened(path, known) as ledger:
        noted = known if isinstance(known, Head) else None
        book = ledger.verify(noted)
        claims = _claims_of(ledger)
        _note_checks(book, ledger.head, noted, findings)
        with findings.recording_errors("first entry"):
            check_as_listed(ledger)
        facts = _facts_of(ledger, book)
        if check_release is not None:
            with findings.recording_errors("entry"):
                check_release(ledger, findings)
        return VerifiedItem(name, findings.checks, facts, (), claims, limits=LEDGER_LIMITS)
    return VerifiedItem(name, findings.checks, limits=LEDGER_LIMITS)


def _claims_of(ledger: Ledger) -> tuple[str, ...]:
    """Return sentences that say what a ledger guarantees, the total of all its releases first."""
    population = ledger.population
    allowance = population.allowance
    return (
        f"all releases that this ledger ever pays for are together ({allowance.eps:g}, "
        f"{allowance.delta:g})-differentially private, for neighbouring datasets under "
        f"relation={population.relation}",
        *ledger.claim_sentences(),
    )


def _facts_of(ledger: Ledger, book: Book) -> Facts:
    """Return what describes a ledger."""
    population = book.population
    return (
        (
            "population",
            f"{population.name}; a unit is {ledger.unit}; neighbouring datasets are those of "
            f"relation={population.relation}",
        ),
        ("tables", ", ".join(table.name for table in book.tables.values()) or "none admitted"),
        (
            "opened",
            f"the first entry was written at {book.opening.time}, the newest at {book.last.time} "
            "(these times are recorded, but not proved)",
        ),
        (
            "first entry",
            f"claims identify this ledger by {book.first_entry}, the first digits of the hash "
            "of its first entry",
        ),
        ("head", str(book.last.head)),
    )


def _opened(path: Path, known: NotedHead) -> Ledger:
    """Open a ledger for reading; close it, or use it as a context manager.

    Its chain is compared with its head file (second head), unless that file is missing and the
    caller knows an earlier entry: then the ledger is opened as a copy, without the head file.

    Args:
        path: the ledger's file.
        known: what the caller knows of the end of the ledger's chain; a path is used instead of
            the path of the head file that the ledger records.

    Raises:
        AgtError: the ledger cannot be read, or does not match its head file.
    """
    if isinstance(known, Path):
        return Ledger.open(path, known, writing=False, as_copy=False)
    lacks_head_file = False
    if isinstance(known, Head):
        # Only the open ledger says where its head file should be.
        with Ledger.open(path, writing=False, as_copy=True) as ledger:
            second_head = ledger.book.head
            lacks_head_file = bool(second_head) and not os.path.exists(second_head)
    return Ledger.open(path, None, writing=False, as_copy=lacks_head_file)


def _note_checks(book: Book, head: Path | None, known: Head | None, findings: Findings) -> None:
    """Note the results for a ledger that was followed without a problem.

    Args:
        book: the content of the ledger.
        head: the ledger's head file, which was compared; None: it was not found, or there is none.
        known: an earlier last entry that the caller noted, which was compared; None: not given.
        findings: takes the results.
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
    """Check the ledger that counts a release, and yield its findings: one item or none.

    Nothing is yielded if no ledger paid for the release and none stores its answers. If the release
    names a ledger but not the entry that paid, that is a problem in ``record.findings``.

    Args:
        record: the record of the release.
        trained: the training run that it was made from; None: it has none, or it was not found,
            so labels are not compared with the stored ones.
        given: the ledger's name or path; None: as the release's settings or env.json say.
        known: what the caller knows of the end of the ledger's chain.
    """
    # the entry that paid, as spent.json names it; empty: no ledger paid
    paid = record.spent.get("ledger") or {}
    named = record.named_ledger
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
    path = find_ledger(given or named, record.folder)
    if path is None:
        yield _lost_ledger(paid, named)
        return

    def compare_paid(ledger: Ledger, findings: Findings) -> None:
        debits = ledger.history()
        _compare_entry(record, trained, paid, ledger.book, debits, findings)
        _compare_account(record, ledger, debits[paid["entry"]])
        _compare_labels(record, trained, ledger, {paid["entry"], *paid.get("entries", ())})

    compare_stored = partial(_compare_stored, record, trained)
    yield check_whole_ledger(path, known, compare_paid if paid else compare_stored)


def _lost_ledger(paid: Mapping[str, Any], named: object) -> VerifiedItem:
    """Return an item that says that the ledger of a release was not found, so was not checked.

    Args:
        paid: the entry "ledger" of spent.json; empty: the ledger did not pay, but only stores
            the answers.
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
    """Check that a ledger can have answered a release, which spent nothing, from stored answers.

    Some entry must have paid for labels of the same training run with the same guarantee, and every
    released label must be among the labels that such entries store. Which query a stored label
    answers is not compared.

    Args:
        record: the record of the release; its metrics.json has the guarantee.
        trained: the training run, which names the labels; None: it was not found, so only the
            entries are checked, and not the labels.
        ledger: the ledger, open.
        findings: takes the result.

    Raises:
        Broken: there is no such entry, or a released label is not stored.
    """
    run = record.environment.get("trained_digest")
    guarantee = guarantee_from_parameters(record.metrics)
    expected = (Output.LABELS.value, run, guarantee)
    matching_debits = {
        number
        for number, debit in ledger.history().items()
        if (debit.charge.output, debit.charge.run, debit.charge.guarantee) == expected
    }
    stored = None
    if trained is not None:
        stored = trained.texts_of(ledger.labels_of_debits(matching_debits))
    labels = read_labels(record)
    released = set() if labels is None else set(labels.cast("string").to_pylist())
    not_stored = set() if stored is None else released - set(stored)
    if not matching_debits or not_stored:
        raise Broken(
            "this ledger does not contain these answers of this release: no entry stores "
            f"them and paid for answers of this run with the guarantee {guarantee}. Give the "
            "right ledger with ledger=..."
        )
    entries = counted(len(matching_debits), "entry of the ledger", "entries of the ledger")
    findings.ok(
        "entry",
        f"{entries} paid for answers of this run with the guarantee {guarantee}, so the answers of "
        "this release may be among them",
    )


def _compare_account(record: Record, ledger: Ledger, debit: Debit) -> None:
    """Check that the account in claim.json is the ledger's own, as it was after a debit.

    A release whose claim.json is missing or cannot be read is not checked; another check says so.

    Args:
        record: the record of the release.
        ledger: the ledger that paid.
        debit: the debit that paid for the release.

    Raises:
        Broken: the account differs or is missing, or the claim was issued before the release was
            paid for.
    """
    if not record.holds(CLAIM_FILE):
        return
    claimed = read_claim(record.read(CLAIM_FILE))
    account = claimed.account
    if account is None:
        raise Broken(
            f"{CLAIM_FILE} does not name a ledger, but entry {debit.entry.number} of the ledger of "
            f"{ledger.population.name} paid for this release"
        )
    expected = _account_after_debit(ledger, debit, account)
    check_match(f"account in {CLAIM_FILE}", plain_of(account), "the ledger", plain_of(expected))
    paid_at = debit.entry.time
    if str(claimed.issued) < paid_at[:10]:
        raise Broken(
            f"{CLAIM_FILE} was issued on {claimed.issued}, before the release was paid for "
            f"({paid_at})"
        )


def _account_after_debit(ledger: Ledger, debit: Debit, claimed: Account) -> Account:
    """Return the account that a claim which was made right after a debit should contain.

    Args:
        ledger: the ledger that paid.
        debit: the debit of the release.
        claimed: the account in the claim. Values that the ledger does not have are taken from
            it: what of a release the account counts, which ledgers in other folders were found
            then, and where the head file was then, if there was one then and is one now.
    """
    expected = ledger.account(debit, claimed.counts)
    state = expected.ledger
    claimed_state = claimed.ledger
    if "none" not in (state.second_head, claimed_state.second_head):
        state = replace(state, second_head=claimed_state.second_head)
    return replace(expected, curve=expected.budget_curve, ledger=state, elsewhere=claimed.elsewhere)


def _compare_labels(
    record: Record, trained: Record | None, ledger: Ledger, debits: set[int]
) -> None:
    """Check that the labels which a ledger stores for a release are among the released ones.

    They must come in the same order. The other released labels were stored before, and repeated.

    Args:
        record: the record of the release. If no labels were released, nothing is compared.
        trained: the training run, which names the labels; None: it was not found, so only the
            number of labels is compared.
        ledger: the ledger that paid, open.
        debits: the numbers of the entries that paid for the release.

    Raises:
        Broken: the ledger stores more labels than were newly drawn, or other ones.
    """
    # read first, because it raises Broken for a file of labels that agt does not write
    released = read_labels(record)
    if record.spent["what"] != Output.LABELS:
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
    """Check that the entry which spent.json names paid for this release and no other.

    The charge of the entry is compared with values that follow from the release's settings. A
    session is paid line by line, so all of its entries are checked.

    Args:
        record: the record of the release.
        trained: the training run that it was made from; None: it was not found, so for agt predict
            the relation and the unit are not compared.
        paid: the entry "ledger" of spent.json.
        book: the content of the ledger.
        debits: all debits of the ledger, by the numbers of their entries.
        findings: takes the result.

    Raises:
        Broken: the entry is missing, or paid for another release.
    """
    entry = paid["entry"]
    debit = debits.get(entry)
    if debit is None or debit.entry.hash != paid["hash"]:
        raise Broken(
            f"entry {entry} of this ledger did not pay for the release. Either this is another "
            "ledger (give the right one with ledger=...), or the ledger was rewritten"
        )
    lots = _debits_of_release(record, paid, debit, debits)
    outputs = 1
    noun = "output"
    if record.spent["what"] == Output.LABELS:
        outputs = record.spent["queries"]
        noun = "label"
    charge = debit.charge
    in_ledger = {
        "population": book.population.name,
        "guarantee": charge.guarantee,
        "releases": sum(lot.size for lot in lots),
        "mechanism": charge.mechanism,
        "output": charge.output,
        "training run": charge.run,
        "data": charge.data,
        "relation": charge.relation,
        "unit": charge.unit,
    }
    in_release = _fields_of_charge(record, trained, paid["population"], outputs)
    for field, value in in_release.items():
        if value != in_ledger[field]:
            raise Broken(
                f"entry {entry} of the ledger paid for another release, because the field "
                f"'{field}' is {in_ledger[field]} in the ledger, but {value} in this release"
            )
    entries = f"entry {entry}"
    if len(lots) > 1:
        earlier = counted(len(lots) - 1, "earlier entry", "earlier entries")
        entries = f"{entries} together with {earlier}"
    findings.ok(
        "entry",
        f"{entries} of the ledger paid for exactly this release: {counted(outputs, noun)}, each "
        f"{charge.guarantee}",
    )


def _fields_of_charge(
    record: Record, trained: Record | None, population: str, outputs: int
) -> dict[str, object]:
    """Return what a ledger must have charged a release for, as its record says it, by field.

    Args:
        record: the record of the release.
        trained: the training run that it was made from; None: it was not found, so for agt predict
            the relation and the unit are left out.
        population: the population of the ledger that spent.json names.
        outputs: how many labels or other outputs were released.
    """
    environment = record.environment
    fields: dict[str, object] = {
        "population": population,
        "guarantee": _guarantee(record),
        "releases": outputs,
        "mechanism": record.spent["mechanism"],
        "output": str(record.spent["what"]),
        "training run": environment.get("draw") or environment.get("trained_digest", ""),
        "data": environment.get("data_digest"),
    }
    described_by = trained if record.command == "predict" else record
    if described_by is not None:
        fields["relation"] = described_by.config["relation"]["name"]
        fields["unit"] = unit_of(described_by.config)
    return fields


def _debits_of_release(
    record: Record, paid: Mapping[str, Any], last: Debit, debits: Mapping[int, Debit]
) -> list[Debit]:
    """Return the debits that paid for a release, in the order of their entries.

    There is one, unless queries came line by line: then there is one for each lot.

    Args:
        record: the record of the release.
        paid: the entry "ledger" of spent.json, with the number of the last entry, and with the
            numbers of all of them if queries came line by line.
        last: the debit of the last entry.
        debits: all debits of the ledger, by the numbers of their entries.

    Raises:
        Broken: an entry is missing, repeated or out of order, has another charge than the last
            one, or was not made during the run.
    """
    numbers = paid.get("entries", [paid["entry"]])
    lots = [debits[number] for number in numbers if number in debits]
    all_in_ledger = [lot.entry.number for lot in lots] == numbers
    in_order = all_in_ledger and numbers == sorted({*numbers}) and numbers[-1] == paid["entry"]
    same_charge = all(lot.charge == last.charge for lot in lots)
    may_have_several = "entries" not in paid or is_line_by_line(record)
    during_run = record.command != "predict" or all(
        record.was_running_at(lot.entry.time) for lot in lots
    )
    if not (in_order and same_charge and may_have_several and during_run):
        raise Broken(
            f"spent.json says that entries {numbers} of the ledger paid for this release, but "
            "they are not the debits of this run: an entry is missing from the ledger, repeated or "
            "out of order in spent.json, of another charge, or not made during the run"
        )
    return lots


def _guarantee(record: Record) -> Guarantee:
    """Return the guarantee that a ledger must have charged for each answer of a record.

    For training with noise, it is that of the Gaussian mechanism whose cost stands for the noise.

    Raises:
        KeyError, ConfigError: the record names no guarantee.
    """
    config = record.config
    if record.command == "train":
        return equivalent_gaussian(
            float(config["noise"]["epsilon"]), float(config["noise"]["delta"])
        )
    return guarantee_from_parameters(record.metrics)
