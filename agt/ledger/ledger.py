"""A ledger: one population's budget, every debit of it, and the answers that were paid for.

    ledger = Ledger.open(Path("ledgers/loans.ledger"))
    debit = ledger.debit(Charge(...), requested=1000)   # on the disk when it returns, or Exhausted
    ledger.answer(debit, {key: label, ...})             # stored: the same question gets it again

It is one SQLite file. What it guarantees is proved in docs/proofs/ledger.md.
"""

import os
import shlex
import sqlite3
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from math import inf
from operator import index
from pathlib import Path
from secrets import token_hex
from typing import Any

from agt import sentences
from agt.errors import AgtError, Busy, CheckError, ConfigError
from agt.ledger.book import AnswerBatch, Book, Charge, Debit, Population, digest_of
from agt.ledger.chain import START, AlteredLedger, Entry, Head, hash_of, read_chain
from agt.ledger.descriptions import describe_refusal, describe_unit
from agt.ledger.file_checks import SUFFIX, check_free, check_suffix, same_disk
from agt.ledger.head_file import HeadFile, head_file_path
from agt.ledger.locks import locked_folder
from agt.ledger.store import (
    LedgerFile,
    creating_file,
    identity_of,
    other_program,
    write_new_file,
)
from agt.ledger.tables import AdmittedTable
from agt.ledger.unit import Unit
from agt.mechanisms.accounts import Account, Counts, LedgerState
from agt.mechanisms.budget import Cost, Lot
from agt.mechanisms.guarantees import Guarantee
from agt.messages import Message
from agt.store.reading import Broken

_ANSWERS_MISCOUNTED = "the ledger does not contain as many answers as its entries record"

SAME_IDS = (
    "The same ids in two tables may be the same people, or the same by chance, as numbered ids are "
    "(1, 2, 3 or P00001)."
)
WAIT_SECONDS = 60.0  # how long a process waits for others by default
Declared = Collection[object]
"""What an owner declared about other ledgers (``Book.declared``)."""


def ledgers_in(folder: Path) -> list[Path]:
    """Return the paths in a folder that end in ``SUFFIX``, sorted; none if there is no folder.

    Raises:
        CheckError: the folder cannot be listed, or is a link whose target does not exist.
    """
    try:
        names = os.listdir(folder) if os.path.lexists(folder) else []
    except OSError as error:
        raise CheckError(
            f"{folder}: this folder cannot be listed ({error.strerror}), so agt cannot tell "
            "whether a ledger in this folder already counts the people of your data: restore the "
            "folder, or make it readable"
        ) from None
    return sorted(folder / name for name in names if name.endswith(SUFFIX))


def check_no_other_ledger(
    path: Path, table: AdmittedTable, compare_names: bool = True, declared_others: Declared = ()
) -> None:
    """Raise ConfigError if another ledger in the folder is already about a table's people.

    It is about the same people if it admitted a table with the same data, the same file, or the
    same names of units.

    Args:
        path: the ledger that is to admit the table; all others in its folder are read.
        table: the table.
        compare_names: whether names of units are compared. They are never compared if the table is
            declared to be about other people (``AdmittedTable.apart``).
        declared_others: the identities (``identity_of``) of the files that the owner declared to be
            ledgers of other people.

    Raises:
        ConfigError: another ledger is about the table's people.
        CheckError: another ledger cannot be opened, so it is not known whom it is about.
    """
    compare_names = compare_names and not table.apart
    for other in ledgers_in(path.parent):
        if os.path.realpath(other) == os.path.realpath(path):
            continue
        match = find_matching_table(other, table, compare_names, declared_others)
        if match is None:
            continue
        if match.by_names:
            raise ConfigError(
                f"{SAME_IDS} So say which it is: the table {table.name} and the table "
                f"{match.name} of the ledger {other} have the same {match.shared}. If these are "
                "the same people, use that ledger, because privacy losses under two ledgers add "
                "up. If the same ids stand for different people, train with ids that no other "
                "table has (such as the table's name before each id), or, for a run of agt train, "
                f"{_how_to_declare_others(path)}. If {other} is only a copy of a ledger, move it "
                "to another folder"
            )
        raise ConfigError(
            f"the people of {table.name} already have a ledger: the ledger {other} admitted "
            f"the table {match.name} with the same {match.shared}. Use that ledger, because "
            f"privacy losses under two ledgers add up. If {other} is only a copy of a ledger, "
            "move it to another folder"
        )


def _how_to_declare_others(path: Path) -> str:
    """Return a clause that says how to declare that a ledger counts other people.

    Args:
        path: the ledger, or the file that becomes one once its tables are admitted.
    """
    name = shlex.quote(path.name.partition(SUFFIX)[0])
    if path.name.endswith(SUFFIX) and path.exists():
        return f"declare that with agt ledger admit {name} run=latest another_population=true"
    return f"add another_population=true to agt ledger init {name}"


@dataclass(frozen=True)
class MatchingTable:
    """A table that a ledger admitted and that may be about the same people as a given table.

    Attributes:
        ledger: ``Book.first_entry`` of the ledger.
        name: the name of the admitted table.
        shared: a phrase on what both tables share, for messages: "data", "file", a phrase that
            says how many names, or a list of properties.
        by_names: whether names of units are the strongest sign that the people are the same.
        share: the fraction of the compared names that occurs in both tables; 1 where none were
            compared.
    """

    ledger: str
    name: str
    shared: str
    by_names: bool
    share: float = 1.0


def find_matching_table(
    path: Path,
    table: AdmittedTable,
    compare_names: bool = True,
    declared: Declared = (),
    seconds: float = WAIT_SECONDS,
    compare_properties: bool = False,
) -> MatchingTable | None:
    """Return the table of a ledger that shares the strongest sign of the same people with a table.

    From the strongest to the weakest, the signs are: the same data or file; the same names of
    units; the same properties, such as the table's name. Of several tables with the same sign, it
    is the one that was admitted first.

    Args:
        path: the ledger.
        table: the given table.
        compare_names: whether names of units are compared, in addition to data and files.
        declared: the identities (``identity_of``) of the files that the owner declared to be
            ledgers of other people.
        seconds: the number of seconds to wait for other processes.
        compare_properties: whether properties are compared, in addition to data, files and names.

    Returns:
        The match; None: no table of the ledger shares a sign that is compared.

    Raises:
        Busy: another process has locked the ledger.
        CheckError: the ledger cannot be opened.
    """
    book = read_as_copy(path, declared, seconds)
    if book is None:
        return None
    tables = list(book.tables.values())
    for admitted in tables:
        source = table.shared_source(admitted)
        if source:
            return MatchingTable(book.first_entry, admitted.name, source, by_names=False)
    if compare_names:
        for admitted in tables:
            people = table.shared_people(admitted, book.salt)
            if people:
                common, compared = table.count_common_names(admitted, book.salt)
                share = common / compared
                return MatchingTable(book.first_entry, admitted.name, people, True, share)
    if compare_properties:
        for admitted in tables:
            properties = table.shared_properties(admitted)
            if properties:
                return MatchingTable(book.first_entry, admitted.name, properties, by_names=False)
    return None


def read_as_copy(path: Path, declared: Declared = (), seconds: float = WAIT_SECONDS) -> Book | None:
    """Return the book of a ledger's entries, without comparing it with a head file.

    Args:
        path: the ledger, which is read as a copy.
        declared: the identities (``identity_of``) of the files that the owner declared to be
            ledgers of other people.
        seconds: the number of seconds to wait for other processes.

    Returns:
        None if the file cannot be opened as a ledger, and is another program's or declared.

    Raises:
        Busy: another process has locked the ledger.
        CheckError: the ledger cannot be opened.
    """
    try:
        with Ledger.open(path, writing=False, as_copy=True, seconds=seconds) as ledger:
            return ledger.book
    except Busy:
        raise  # the file is a ledger, so it must not be passed over
    except AgtError as error:
        if other_program(path) or identity_of(path) in declared:
            return None
        raise CheckError(
            Message(
                "{error}. So agt cannot tell whose releases the ledger {path} counts. If {path} "
                "counts no releases about the people of your own ledger NAME, declare that with "
                "agt ledger admit NAME unreadable={path}. When you create a ledger, give "
                "unreadable= to {config:agt ledger init}",
                error=error,
                path=path,
            )
        ) from None


CHECKPOINT_INTERVAL = 1000  # entries from one checkpoint to the next
Append = Callable[[str, Mapping[str, Any], Cost], Entry]
"""Appends an entry with (kind, body, cost of all debits with this entry), and returns it."""


class Exhausted(CheckError):
    """Not even one of the requested releases fits into the budget."""


class Ledger:
    """An open ledger of one population, for any number of threads of one process.

    ``open`` and ``create`` return one whose entries were checked; the constructor reads nothing.

    Args:
        store: the ledger's file.
        head: the path of its head file; None: the path that the ledger names.
        head_lost: whether the owner declares that the head file is lost. The ledger is then opened
            without it, but compared with every earlier head file that exists.
        as_copy: whether the file is only read as a copy, which is compared with no head file.

    Attributes:
        path: the path of the ledger's file.
    """

    def __init__(
        self,
        store: LedgerFile,
        head: Path | None = None,
        head_lost: bool = False,
        as_copy: bool = False,
    ) -> None:
        self._store = store
        self.path = store.path
        self._given_head = head
        self._head_lost = head_lost
        self._as_copy = as_copy
        self._account_head: HeadFile | None = None  # set by ``use_account_head``
        # Set by ``_read_and_check``: what the entries add up to.
        self._book: Book
        # Set with ``_book``, if it was resumed from a checkpoint: the checkpoint of the first item
        # of ``_book.batches``.
        self._oldest_checkpoint: Entry
        # Numbers of entries whose answers were compared with the digest that they record.
        self._checked = set[int]()

    def _read_and_check(self) -> None:
        """Read the ledger's entries, and compare them with its head files.

        Raises:
            CheckError: the ledger was altered, or is older than its head file.
        """
        with self._store.exclusive_access():
            self._book = self._read_trusted_book(self._last_trusted_entry())
            self._read_new_entries()  # they may name another head file
            # Heads are read before the end of the chain, because other processes append to the
            # chain first. So an intact chain is never shorter than a head that was read.
            recorded_heads = self._read_recorded_heads()
            with self._store.snapshot():
                self._read_new_entries()
                self._check_complete(recorded_heads)

    @classmethod
    def create(
        cls,
        path: Path,
        population: Population,
        head: Path | None = None,
        tables: Sequence[AdmittedTable] = (),
        declared: Sequence[Mapping[str, str] | str] = (),
    ) -> "Ledger":
        """Create a ledger with its tables and declarations, and open it.

        After an error neither the ledger nor its head file exists.

        Args:
            path: the ledger's file, which must not exist.
            population: the people whose data the budget is about.
            head: a new head file, preferably on another disk, or a folder for it; None: the ledger
                has no head file.
            tables: the tables to admit, which are about these people.
            declared: the owner's declarations about other ledgers, each as ``declare`` takes it.

        Raises:
            ConfigError: a file exists already, or another ledger in the folder counts a table's
                people.
        """
        check_suffix(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        head_path = None if head is None else head_file_path(head, path)
        body = {
            "population": asdict(population),
            "head": str(head_path or ""),
            "salt": token_hex(32),
        }
        opening = Entry(1, "open", _with_cost_and_time(body, Cost()), START)
        with locked_folder(path.parent), ExitStack() as undo:
            check_free(path)
            with creating_file(path) as part:
                if head_path is not None:
                    HeadFile(head_path, opening.hash).create(opening.head)
                    undo.callback(head_path.unlink)
                write_new_file(part, opening)
                with cls.open(part) as ledger:
                    for about in declared:
                        ledger.declare(about)
                    for table in tables:
                        ledger._admit(table, population.unit)
            undo.pop_all()  # the ledger is complete, so the head file stays
        return cls.open(path)

    @classmethod
    def open(
        cls,
        path: Path,
        head: Path | None = None,
        *,
        writing: bool = True,
        seconds: float = WAIT_SECONDS,
        as_copy: bool = False,
        head_lost: bool = False,
    ) -> "Ledger":
        """Open a ledger, and check its entries from the newest checkpoint that may be trusted.

        Args:
            path: the ledger's file.
            head: the head file, or the folder that it is in, which must exist whatever path the
                ledger names; None: the path that the ledger names.
            writing: False to read a temporary copy of the file, which needs no right to write.
            seconds: the number of seconds to wait for other processes.
            as_copy: whether the file is only read as a copy, which is compared with no head file.
                ``writing`` is ignored then, because nothing may be written to a copy.
            head_lost: whether the owner declares that the head file is lost. The ledger is then
                opened without it, but compared with every earlier head file that exists.

        Raises:
            ConfigError: there is no ledger, or it is at a path where none can be.
            CheckError: the ledger was altered, or is older than its head file.
        """
        store = LedgerFile(path, writing and not as_copy, seconds)
        try:
            head_path = None if head is None else head_file_path(head, path)
            ledger = cls(store, head_path, head_lost, as_copy)
            ledger._read_and_check()
            return ledger
        except BaseException:
            store.close()
            raise

    @classmethod
    def replace_head(cls, path: Path, head: Path) -> None:
        """Create a new head file for a ledger whose head file is lost.

        The ledger records the loss, and every claim on it states it from then on.

        Args:
            path: the ledger's file.
            head: the new head file, or a folder for it.

        Raises:
            ConfigError: the old head file is not lost.
            CheckError: an earlier head file has more entries than the ledger, or other ones.
        """
        with cls.open(path, head_lost=True) as ledger:
            if ledger.book.head:
                named_file = HeadFile(Path(ledger.book.head), ledger.book.opening.hash)
                recorded_head = named_file.read_if_intact()
                if recorded_head is not None:
                    raise ConfigError(
                        "lost=true declares that the ledger's head file is lost, but this file "
                        f"exists ({named_file.path}, with {recorded_head.count} entries): leave "
                        "out lost=true"
                    )
            ledger.move_head(head)

    def __enter__(self) -> "Ledger":
        """Return the ledger itself, which the end of the block closes."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the file."""
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._store.close()

    @property
    def population(self) -> Population:
        """Whose data the budget is about."""
        return self._book.population

    @property
    def book(self) -> Book:
        """What the entries add up to; entries that other processes appended are read first."""
        with self._store.exclusive_access():
            self._read_new_entries()
            return self._book

    @property
    def salt(self) -> str:
        """The ledger's 32 random bytes for hashes of questions and names, as hexadecimal digits."""
        return self._book.salt

    @property
    def unit(self) -> str:
        """A phrase that says whose addition or removal makes a neighbouring dataset."""
        return describe_unit(self.population, self.book.tables.values())

    @property
    def head(self) -> Path | None:
        """The path of the head file that is in use; None if there is none."""
        return next((head.path for head in self._required_head_files()), None)

    def ledger_state_at(self, entry: int) -> LedgerState:
        """Return the ledger's state right after an entry was added, as claims state it.

        Whether the head file is on the ledger's disk is looked up now.

        Args:
            entry: the number of the entry.
        """
        state = self.book.ledger_state_at(entry)
        if state.second_head == "away" and self.head and same_disk(self.head, self.path):
            return replace(state, second_head="same_disk")
        return state

    def claim_sentences(self, brief: bool = False) -> list[str]:
        """Return the sentences about this ledger in the claims of releases that it charges.

        Args:
            brief: True: the sentences for a terminal, without what ``agt ledger init`` has said.
        """
        return self.ledger_state_at(self.book.last.number).lines(self.population.unit, brief)

    def account(self, debit: Debit | None, counts: Counts) -> Account:
        """Return the account of this ledger that a release's claim contains.

        Args:
            debit: the debit that paid for the release; None for the account after the newest entry.
            counts: the part of the release that the ledger counts.
        """
        entry = self.book.last if debit is None else debit.entry
        population = self.population
        return Account(
            population=population.name,
            unit=population.unit,
            entry=entry.number,
            allowance=population.allowance,
            spent=Cost.from_json(entry.body["spent"]),
            counts=counts,
            first_entry=self.book.first_entry,
            ledger=self.ledger_state_at(entry.number),
        )

    def check(self, relation: str, data: str, unit: Unit) -> None:
        """Raise ConfigError unless this ledger may pay for releases from a run.

        Args:
            relation: the name of the run's relation.
            data: the digest of the run's data.
            unit: the run's unit (which records belong together).
        """
        with self._store.exclusive_access():
            self._read_new_entries()
            self._check_run(relation, data, unit)

    def admit(self, table: AdmittedTable, unit: str | None = None) -> None:
        """Record that a table is about this population, so that its releases share the budget.

        Nothing is written if the table was admitted before.

        Args:
            table: the table.
            unit: ``population.unit``, to declare that the table's units are those of the
                population; None: nothing is declared, so the table must have the same unit or the
                same column as the first admitted table.

        Raises:
            ConfigError: another ledger in the folder counts these people; the same data or file was
                admitted here with another unit; or it is not clear that the table's units are those
                of the population.
        """
        with locked_folder(self._store.real.parent):
            self._admit(table, unit)

    def _admit(self, table: AdmittedTable, unit: str | None) -> None:
        """Do what ``admit`` does; the caller has locked the folder.

        The arguments and the errors are those of ``admit``.
        """
        shown_path = Path(os.path.relpath(self._store.real))
        check_no_other_ledger(shown_path, table, declared_others=self.book.declared)
        with self._append_transaction() as append:
            self._check_unit_of_table(table, unit)
            self._check_open(table.data)
            if self._book.admission_changes(table):
                tables = [admitted.counted for admitted in (*self._book.tables.values(), table)]
                declared = sentences.tables(self.population.unit, tables)
                body = {**table.as_json(self.salt), "declared": declared}
                append("admit", body, self._book.spent)

    def declare(self, about: Mapping[str, str] | str) -> None:
        """Record what the owner declares about another ledger; every later claim states it.

        Args:
            about: a mapping, ``identity_of`` a file in the folder that cannot be opened, which
                counts no releases about these people; or a text, ``Book.first_entry`` of the ledger
                that this one replaced.
        """
        if isinstance(about, str):
            sentence = sentences.replaced_ledger(about)
        else:
            sentence = sentences.unreadable_ledger(about["file"])
        with self._append_transaction() as append:
            append("declare", {"about": about, "declared": sentence}, self._book.spent)

    def move_head(self, head: Path) -> None:
        """Create a new head file, and record that it is used from now on.

        The earlier head file is updated to the entry of the move. If it is lost, the entry says so.

        Args:
            head: the new head file, or a folder for it.

        Raises:
            ConfigError: the new file exists already.
        """
        new_file = HeadFile(head_file_path(head, self.path), self._book.opening.hash)
        with self._append_transaction() as append:
            body = {"head": str(new_file.path), "lost": self._head_lost}
            entry = append("head", body, self._book.spent)
            new_file.create(entry.head)
        # From here on the ledger names the new file, and it is not lost.
        self._given_head = None
        self._head_lost = False

    def debit(self, charge: Charge, requested: int) -> Debit:
        """Pay for as many releases as the budget holds, at most ``requested``.

        The debit is on the disk when this returns (Lemma 6 of docs/proofs/ledger.md).

        Args:
            charge: the kind of release, its mechanism and the guarantee of each release.
            requested: the largest number of releases to pay for.

        Returns:
            The debit, for one release or more; its ``size`` may be below ``requested``.

        Raises:
            Exhausted: not even one release fits into the budget.
            ConfigError: the data are not admitted, or the relation or the unit is another one; or
                ``requested`` is not a possible number of releases.
        """
        Lot(charge.guarantee, requested)  # called because it raises for an impossible number
        with self._append_transaction() as append:
            self._check_run(charge.relation, charge.data, charge.unit)
            size = self._count_affordable(charge.guarantee, requested)
            spent = self._book.spent.plus(Lot(charge.guarantee, size).cost)
            entry = append("debit", {**charge.as_json(), "size": size}, spent)
        return self._book.debits[entry.number]

    def answer(self, debit: Debit, labels: Mapping[bytes, int]) -> dict[bytes, int]:
        """Store labels that a debit paid for, and return the labels that are to be released.

        If a question (a query that must get the same label again) has a stored label, that one is
        returned. Labels of one debit may be stored in several calls.

        Args:
            debit: the debit that paid for the labels.
            labels: the drawn labels, by the key of the question.

        Returns:
            The stored label of each of these questions, by key. It may differ from the drawn one,
            if another process answered the question first.

        Raises:
            ConfigError: the debit is another ledger's, or there are more new answers than it still
                pays for.
        """
        labels = {bytes(key): index(label) for key, label in labels.items()}
        with self._append_transaction() as append:
            earlier = self._store.answers(list(labels))
            new_labels = {key: label for key, label in labels.items() if key not in earlier}
            paid = self._book.debits.get(debit.entry.number)
            if paid is None or paid.entry.hash != debit.entry.hash:
                raise ConfigError(
                    f"ledger={self.path}: the debit {debit.entry.head} is not in this ledger: "
                    "give the ledger in which the release was reserved"
                )
            remaining = paid.size - paid.answered
            size = len(new_labels)
            if size > remaining:
                raise ConfigError(
                    f"ledger={self.path}: entry {debit.entry.number} paid for {debit.size} "
                    f"answers, of which {remaining} are not used yet, but {size} new answers are "
                    "to be stored: reserve another release for the additional answers"
                )
            if new_labels:
                first = self._book.answered + 1
                self._store.add_answers(first, new_labels)
                body = {
                    "debit": debit.entry.number,
                    "first": first,
                    "size": size,
                    # The numbers of answers are not hashed, so each of them may be 0 here.
                    "digest": digest_of((0, key, label) for key, label in new_labels.items()),
                }
                append("answers", body, self._book.spent)
        earlier_labels = {key: label for key, (_, label) in earlier.items()}
        return {key: earlier_labels.get(key, label) for key, label in labels.items()}

    def stored(self, keys: Sequence[bytes]) -> dict[bytes, int]:
        """Return the stored labels of those questions that were answered before, by key.

        Args:
            keys: the keys of the questions to look up; others than those answered are left out of
                the result.

        Raises:
            CheckError: an answer differs from the one that was stored.
        """
        with self._store.exclusive_access(), self._store.snapshot():
            self._read_new_entries()
            rows = self._store.answers(keys)
            for number, _ in rows.values():
                self._check_answer(number)
            return {key: label for key, (_, label) in rows.items()}

    def labels_of_debits(self, debits: Collection[int]) -> list[int]:
        """Return the labels that some debits paid for, in the order in which they were stored.

        It reads the whole chain.

        Args:
            debits: the numbers of the debits' entries.
        """
        labels = list[int]()
        with self._store.exclusive_access(), self._store.snapshot():
            for entry in read_chain(self._store.texts()):
                if entry.kind == "answers" and entry.body["debit"] in debits:
                    rows = self._store.answer_rows(entry.body["first"], entry.body["size"])
                    labels += [label for _, _, label in rows]
        return labels

    def history(self) -> dict[int, Debit]:
        """Return every debit by the number of its entry, from the first to the newest.

        It reads the whole chain.
        """
        with self._store.exclusive_access(), self._store.snapshot():
            self._read_new_entries()
            self._check_last_entry_unchanged()
            debits: dict[int, Debit] = {}
            for entry in read_chain(self._store.texts()):
                if entry.kind == "debit":
                    debits[entry.number] = Debit.from_entry(entry)
                elif entry.kind == "answers":
                    debits[entry.body["debit"]].answered += entry.body["size"]
            return debits

    def entries(self) -> list[Entry]:
        """Return all entries in order, each checked against the one before it."""
        with self._store.exclusive_access():
            return list(read_chain(self._store.texts()))

    def verify(self, known: Head | None = None) -> Book:
        """Check the file, the whole chain, each cost, every answer and the head files.

        Args:
            known: a head that a person wrote down, which the chain must contain; None: there is no
                such head.

        Returns:
            What all entries add up to.

        Raises:
            CheckError: something was altered, is damaged, or is missing.
        """
        with self._store.exclusive_access():
            heads = self._read_recorded_heads()
            if known is not None:
                heads["the last entry that was given as head="] = known
            self._checked.clear()
            with self._store.snapshot():
                self._store.check()
                self._book = self._read_trusted_book(0)  # of the first entry alone
                for entry in read_chain(self._store.texts(1), self._book.last):
                    self._book.apply(entry)
                    if "digest" in entry.body:
                        self._check_batch(AnswerBatch.from_entry(entry))
                self._check_complete(heads)
                if self._store.count_answers() != self._book.answered:
                    raise AlteredLedger(_ANSWERS_MISCOUNTED)
            return self._book

    def _read_trusted_book(self, last_trusted: float) -> Book:
        """Return the book up to the newest checkpoint that may be trusted.

        It is the book of the first entry if there is no such checkpoint. Otherwise
        ``_oldest_checkpoint`` is set, too.

        Args:
            last_trusted: the largest number of an entry that may be trusted.

        Raises:
            Broken: the ledger has no entries, or the checkpoint was altered.
        """
        row = self._store.newest_checkpoint(last_trusted)
        if row is None:
            opening = next(read_chain(self._store.texts()), None)
            if opening is None:
                raise AlteredLedger("the ledger has no entries")
            return Book.begin(opening)
        number, checkpoint_hash, text = row
        self._oldest_checkpoint = Entry.read(text, number, None, checkpoint_hash)
        return Book.resume(self._oldest_checkpoint, self._read_entry)

    def _last_trusted_entry(self) -> float:
        """Return the number of the last entry whose checkpoints may be trusted without the chain.

        A head file that contains the hash of an entry confirms this entry and all before it (Lemma
        7 of docs/proofs/ledger.md). A checkpoint has no part in this decision, except that it may
        name a head file where the first entry names none.

        Returns:
            The number; 0 if every entry must be checked; infinity if the ledger has no head file
            that could confirm an entry, or if the file is read as a copy.

        Raises:
            AlteredLedger: the first entry was altered, or an entry that a head file records.
        """
        if self._as_copy:
            return inf
        if self._head_lost or self._store.newest_checkpoint(inf) is None:
            return 0
        first_text = self._store.text(1)
        # If another first entry replaced it, its hash is in no head file of this ledger.
        opening = Entry.read(first_text, 1, None, hash_of(first_text or ""))
        path = str(self._given_head or Book.begin(opening).head)
        if not path:
            heads = self._read_trusted_book(inf).heads  # a head file may have been added later
            if not heads:
                return inf
            _, path = heads[0]
        last_confirmed = 0
        visited = set[str]()
        while path and path not in visited:
            visited.add(path)
            head = HeadFile(Path(path), opening.hash).read_if_intact()
            if head is None or not self._contains(head):
                break
            last_confirmed = head.count
            # The last entry in a head file that is no longer used is the move to the next file.
            last_entry = self._read_entry(head.count, head.hash)
            path = str(last_entry.body["head"]) if last_entry.kind == "head" else ""
        return last_confirmed

    def _read_entry(self, number: int, entry_hash: str) -> Entry:
        """Return the entry with a number and a hash; its link to the entry before is not checked.

        Raises:
            AlteredLedger: the entry is missing, or has another hash.
        """
        return Entry.read(self._store.text(number), number, None, entry_hash)

    def _read_new_entries(self) -> None:
        """Check the entries that were appended after ``_book.last``, and add them to the book.

        Raises:
            Broken: an entry was altered, or breaks a rule of the ledger.
        """
        for entry in read_chain(self._store.texts(self._book.last.number), self._book.last):
            self._book.apply(entry)

    @contextmanager
    def _append_transaction(self) -> Iterator[Append]:
        """Run a block as one transaction of the file, and yield a function that appends entries.

        Before the block, all entries of other processes are read, head files are locked, and a
        checkpoint is appended if one is due. After the block, the entries are added to the book,
        which checks them, committed to the disk, and then added to the head files. After an error
        nothing is appended.

        The lock of a head file is held from before its comparison until the new head is in it. So
        of two copies of a ledger with one head file, the second to append sees the entry of the
        first, which it lacks (Lemma 10 of docs/proofs/ledger.md).

        Raises:
            Broken: the ledger was altered while it was open, or lacks entries that a head file has.
            AgtError: the file cannot be written; or, after the commit, a head file.
        """
        appended = list[Entry]()
        is_book_ahead = False

        def append(kind: str, body: Mapping[str, Any], spent: Cost) -> Entry:
            """Append an entry after the last one, and return it."""
            last = appended[-1] if appended else self._book.last
            entry = Entry(last.number + 1, kind, _with_cost_and_time(body, spent), last.hash)
            self._store.append(entry)
            appended.append(entry)
            return entry

        with self._store.exclusive_access(), ExitStack() as locks:
            try:
                with self._store.transaction():
                    self._check_last_entry_unchanged()
                    self._read_new_entries()
                    head_files = self._required_head_files()
                    # It is locked last, everywhere, so that no two processes wait for each other.
                    if self._account_head is not None:
                        head_files.append(self._account_head)
                    replace_heads = [self._lock_head_file(file, locks) for file in head_files]
                    if self._is_checkpoint_due():
                        append("checkpoint", self._make_checkpoint_body(), self._book.spent)
                    yield append
                    # Before the commit, so that no entry is stored that nobody could read.
                    is_book_ahead = True
                    for entry in appended:
                        self._book.apply(entry)
                is_book_ahead = False
            finally:
                if is_book_ahead:
                    self._reread_book()
            # Only now, after the commit, so that no head file is ever ahead of the ledger.
            for entry in appended:
                for replace_head in replace_heads:
                    replace_head(entry.head)

    def _reread_book(self) -> None:
        """Read the book again, because it has entries that may not have been committed.

        If that fails as well, the next transaction finds that the book's last entry is not in the
        file, and raises AlteredLedger.
        """
        with suppress(Broken, sqlite3.Error):
            book = self._read_trusted_book(self._last_trusted_entry())
            for entry in read_chain(self._store.texts(book.last.number), book.last):
                book.apply(entry)
            self._book = book

    def _is_checkpoint_due(self) -> bool:
        """Return whether there are ``CHECKPOINT_INTERVAL`` entries since the newest checkpoint."""
        newest = self._book.checkpoint.number if self._book.checkpoint else 0
        return self._book.last.number - newest >= CHECKPOINT_INTERVAL

    def _make_checkpoint_body(self) -> dict[str, Any]:
        """Return the body of a checkpoint after the newest entry, with the digest of its answers.

        Raises:
            AlteredLedger: an answer since the checkpoint before was altered.
        """
        body = self._book.checkpoint_body()
        for batch in self._book.batches:
            if batch.first >= body["first"]:
                self._check_batch(batch)
        rows = self._store.answer_rows(body["first"], body["size"])
        return {**body, "digest": digest_of(rows)}

    def _required_head_files(self) -> list[HeadFile]:
        """Return the head files that are in use now, and must agree with the ledger.

        These are the file that was given when the ledger was opened, and the file that the ledger
        names; the second is left out if the first replaces it. There are none if the ledger is read
        as a copy, or its head file is declared lost.
        """
        if self._head_lost or self._as_copy:
            return []
        paths = list[Path]()
        if self._given_head:
            paths.append(self._given_head)
        named = Path(self._book.head) if self._book.head else None
        if named and not self._is_replaced(named):
            paths.append(named)
        return [HeadFile(path, self._book.opening.hash) for path in paths]

    def _is_replaced(self, named: Path) -> bool:
        """Return whether the given head file replaces the one that the ledger names.

        It does if the named file does not exist, or is the same file. False if no file was given.
        """
        if not self._given_head:
            return False
        if not named.exists():
            return True
        return self._given_head.exists() and named.samefile(self._given_head)

    def _read_recorded_heads(self) -> dict[str, Head]:
        """Return the head that each head file contains, by the file's name in messages.

        The files that are in use now must exist. Files that an earlier entry named are read if they
        exist, so that an older copy of the ledger cannot be passed off by naming another head file.
        If the ledger is read as a copy, no file is read.

        Raises:
            Broken: a head file in use is missing, damaged, or another ledger's.
        """
        current = {file.name: file.read() for file in self._required_head_files()}
        if self._as_copy:
            return current
        recorded = dict[str, Head]()
        for _, path in self._book.heads:
            earlier_file = HeadFile(Path(path), self._book.opening.hash)
            head = earlier_file.read_if_intact()
            if head is not None:
                recorded[earlier_file.name] = head
        return recorded | current

    def _lock_head_file(self, file: HeadFile, locks: ExitStack) -> Callable[[Head], None]:
        """Lock a head file, compare it with the chain, and return a function that updates it.

        Args:
            file: the head file.
            locks: releases the lock when it is closed.

        Raises:
            Broken: the chain does not contain the entry that the file records.
        """
        head, replace_head = locks.enter_context(file.locked(self._store.seconds))
        self._check_contains(head, file.name, file.of_account)
        return replace_head

    def check_account_head(self, file: HeadFile) -> None:
        """Raise CheckError if this ledger lacks the entry that a user account's head file records.

        Args:
            file: the head file of this ledger in the state folder of the operating system's user
                account; it exists.
        """
        with self._store.exclusive_access():
            self._read_new_entries()
            self._check_contains(file.read(), file.name, of_account=True)

    def use_account_head(self, file: HeadFile) -> None:
        """Compare every later entry with this account's head file, and record it there.

        The file is created with the ledger's last entry if it does not exist. Where an entry
        declares that a head file of this ledger was lost, a ledger that lacks the last entry in
        the account's head file takes its place, so that the copy that has this entry is refused
        from then on. It does so once for each such entry, when this account first sees the entry:
        otherwise two copies that declare a loss each could pay in turn (Lemma 10 of
        docs/proofs/ledger.md).

        Args:
            file: the account's head file of this ledger.

        Raises:
            OSError: the file cannot be created.
            CheckError: the file is damaged.
            AgtError: the file cannot be locked or written.
        """
        with self._store.exclusive_access():
            self._read_new_entries()
            file.create_unless_exists(self._book.last.head)
            losses = self._book.losses
            if not file.knows_losses(losses):
                file.restart_for_losses(
                    losses, self._read_new_entries_and_pick_head, self._store.seconds
                )
            self._account_head = file

    def _read_new_entries_and_pick_head(self, file_head: Head) -> Head | None:
        """Read this ledger's new entries, and return the head that has to replace a file's head.

        A head is the number and the hash of an entry. New entries are read because another process
        may have added some, and recorded them in the file, before the caller locked the file.

        Args:
            file_head: the head that the file records.

        Returns:
            The head of this ledger's last entry, if the ledger lacks the entry that ``file_head``
            records; None: the ledger has that entry, so the file stays as it is.
        """
        self._read_new_entries()
        if self._contains(file_head):
            return None
        return self._book.last.head

    def _check_last_entry_unchanged(self) -> None:
        """Raise AlteredLedger unless the file still contains ``_book.last`` as it was read."""
        last = self._book.last
        if self._store.text(last.number) != last.text:
            raise AlteredLedger(
                f"entry {last.number} changed while the ledger was open, perhaps because another "
                "file replaced the ledger"
            )

    def _check_complete(self, recorded_heads: Mapping[str, Head]) -> None:
        """Raise Broken if entries or answers are missing at the end of the ledger.

        Args:
            recorded_heads: heads that the chain must contain, by their source in messages.
        """
        for source, head in recorded_heads.items():
            self._check_contains(head, source)
        if self._store.last_answer() != self._book.answered:
            raise AlteredLedger(_ANSWERS_MISCOUNTED)

    def _contains(self, head: Head) -> bool:
        """Return whether the chain contains the entry whose whole hash a head records."""
        return hash_of(self._store.text(head.count) or "") == head.hash

    def _check_contains(self, head: Head, source: str, of_account: bool = False) -> None:
        """Raise Broken unless the chain contains the entry that a head records.

        Args:
            head: the number and the hash of the entry.
            source: a phrase for messages that says where the head was found; for a head file its
                ``name``.
            of_account: whether the head was found in this account's head file.
        """
        last = self._book.last.number
        if head.count > last:
            named_sources = {HeadFile(Path(path), "").name for _, path in self._book.heads}
            remedy = "Restore the newest copy of the ledger"
            # ``move_head`` creates a new file before the entry that names it is committed.
            if of_account:
                remedy += (
                    ". If it is lost, declare that with agt ledger admit head=FILE lost=true; the "
                    "ledger and its claims record this permanently"
                )
            elif source not in named_sources and head.count == last + 1:
                remedy = (
                    "If the command agt ledger admit head=... was interrupted right after it "
                    "created this head file, nothing was spent since then: delete the head file, "
                    "and type the command again. Otherwise restore the newest copy of the ledger"
                )
            raise Broken(
                f"according to {source}, the ledger has only {last} of {head.count} entries. "
                "Either an older copy replaced the ledger, or its log (the file whose name ends "
                "in -wal) is lost. So a budget that was spent since then could be spent again. "
                f"{remedy}"
            )
        if not hash_of(self._store.text(head.count) or "").startswith(head.hash):
            raise AlteredLedger(
                f"entry {head.count} differs from the one that {source} records, perhaps because "
                "two copies of the ledger were used"
            )

    def check_copy(self, copy: Path, last: Head) -> None:
        """Raise CheckError unless a copy of this ledger is the same, or an older state of it.

        Args:
            copy: the path of the copy, for the message.
            last: the number and the hash of the copy's last entry.
        """
        with self._store.exclusive_access():
            self._read_new_entries()
            if self._contains(last):
                return
        raise CheckError(
            f"ledger={self.path}: {copy} is a copy of this ledger, but has entries that this "
            f"ledger lacks (its last entry is {last}). So the same budget could be spent twice. "
            "Use only the copy that has all entries, and move the other one to an archive under a "
            "name that does not end in .ledger. If both copies were used to release, add up "
            "what they show as spent"
        )

    def _check_unit_of_table(self, table: AdmittedTable, unit: str | None) -> None:
        """Raise ConfigError unless the units of a table to be admitted are the population's units.

        Args:
            table: the table.
            unit: the table's unit, as the owner declares it, which must be the population's; None:
                nothing is declared, so the table must have the population's unit by name, or the
                column of the first admitted table.
        """
        population = self.population
        first = next(iter(self._book.tables.values()), None)
        if unit not in (None, population.unit):
            raise ConfigError(
                f"unit={unit!r}: the unit of the ledger of {population.name} is already "
                f"{population.unit!r}, and cannot be changed: leave out unit=, or use another "
                "ledger"
            )
        if other := self._book.find_table_with_other_unit(table):
            shared = table.shared_source(other)
            raise ConfigError(
                f"ledger={self.path}: the tables {table.name} and {other.name} have the same "
                f"{shared}, so they need the same unit (whose data are protected). But the unit is "
                f"{table.unit} in {table.name}, and {other.unit} in {other.name}: train with "
                f"{other.unit.settings}"
            )
        is_declared = unit is not None or table.unit.name == population.unit
        is_as_first = first is not None and first.unit.column == table.unit.column
        if not (is_declared or is_as_first):
            meaning = sentences.unit_meaning(table.counted, population.unit)
            raise ConfigError(
                Message(
                    "ledger={path}: in the table {name} the unit (whose data are protected) is "
                    "{counted}, but the ledger's unit is {unit!r}. Train with "
                    "{config:dataset.unit=COLUMN relation.unit_rows=NUMBER} (the person of each "
                    "record, and a public limit on the records of one person), or use a ledger "
                    "that was created with unit='one record'. If, in this table, {meaning}, "
                    "declare that instead: with unit={unit!r} at the command line, or with "
                    "another value of units= for each record in Python",
                    path=self.path,
                    unit=population.unit,
                    name=table.name,
                    counted=table.unit,
                    meaning=meaning,
                )
            )

    def _count_affordable(self, guarantee: Guarantee, requested: int) -> int:
        """Return for how many releases the rest of the budget suffices, at least 1.

        The caller has read all entries.

        Args:
            guarantee: the guarantee of each release.
            requested: the largest number that is returned.

        Raises:
            Exhausted: not even one release fits into the budget.
        """
        spent = self._book.spent
        size = self.population.allowance.max_lot_size(spent, guarantee, requested)
        if not size:
            reason = describe_refusal(self.population, spent, guarantee)
            raise Exhausted(f"ledger={self.path}: {reason}")
        return size

    def _check_open(self, data: str) -> None:
        """Raise ConfigError if nothing more may be released from data after an erasure.

        Args:
            data: the digest of the data.
        """
        if number := self._book.closed.get(data):
            raise ConfigError(
                f"ledger={self.path}: nothing more may be released from the data {data}, because "
                f"some of its records were erased (see entry {number} of the ledger). Release from "
                "the run whose records were erased, in its present state. Before you release from "
                "another run, erase the same records from it with agt unlearn"
            )

    def _check_run(self, relation: str, data: str, unit: Unit) -> None:
        """Raise ConfigError unless this ledger may pay for releases from a run.

        The caller has read all entries.

        Args:
            relation: the name of the run's relation.
            data: the digest of the run's data.
            unit: the run's unit (which records belong together).
        """
        self.population.check_relation(relation)
        self._check_open(data)
        if data not in self._book.tables:
            different_names = dict.fromkeys(table.name for table in self._book.tables.values())
            names = ", ".join(different_names) or "none"
            raise ConfigError(
                f"ledger={self.path}: this ledger has not admitted the data {data} (admitted "
                f"tables: {names}). If these data are about the ledger's people (each unit is "
                f"{self.population.unit}), admit them with agt ledger admit {self.path} "
                "run=FOLDER. Otherwise these data need a ledger of their own"
            )
        table = self._book.tables[data]
        if not unit.covers(table.unit):
            raise ConfigError(
                f"ledger={self.path}: the unit (whose data are protected) is {unit} in this run, "
                f"but was {table.unit} when the table {table.name} was admitted to the ledger. "
                "Values of eps for different units cannot be added: train with "
                f"{table.unit.settings}"
            )

    def _check_answer(self, number: int) -> None:
        """Raise AlteredLedger unless an answer and the others of its batch are unchanged.

        Args:
            number: the number of the answer.
        """
        if not 1 <= number <= self._book.answered:
            raise AlteredLedger("the ledger contains an answer that no entry records")
        # Batches from before the checkpoint where reading began are read when they are needed.
        while number < self._book.batches[0].first:
            self._oldest_checkpoint = self._read_entry(*self._oldest_checkpoint.body["earlier"])
            self._book.batches.insert(0, AnswerBatch.from_entry(self._oldest_checkpoint))
        next_batch = bisect_right(self._book.batches, number, key=lambda batch: batch.first)
        self._check_batch(self._book.batches[next_batch - 1])

    def _check_batch(self, batch: AnswerBatch) -> None:
        """Raise AlteredLedger unless the answers of a batch match the digest in its entry.

        Each batch is checked once while the ledger is open.
        """
        if batch.entry in self._checked:
            return
        if digest_of(self._store.answer_rows(batch.first, batch.size)) != batch.digest:
            raise AlteredLedger(
                f"the answers of entry {batch.entry} do not match the hash in this entry"
            )
        self._checked.add(batch.entry)


def _with_cost_and_time(body: Mapping[str, Any], spent: Cost) -> dict[str, Any]:
    """Return the whole body of an entry: a body with the cost of all debits and the present time.

    Args:
        body: the values that the entry's kind needs.
        spent: the cost of all debits, that of this entry included.
    """
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {**body, "spent": spent.as_json(), "time": now}
