"""A ledger: what was released about one population, what may still be, and the answers.

    ledger = Ledger.open(Path("ledgers/loans.ledger"))
    debit = ledger.debit(Charge(...), wanted=1000)  # on the disk when it returns, or Exhausted
    ledger.answer(debit, {key: label, ...})         # kept for whoever asks the same again

It is one SQLite file. What it guarantees is proved in docs/proofs/ledger.md.
"""

import os
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from math import inf
from operator import index
from pathlib import Path
from secrets import token_hex
from typing import Any

from agt import sentences
from agt.errors import AgtError, Busy, CheckError, ConfigError
from agt.ledger.book import Answered, Book, Charge, Debit, Population, digest_of
from agt.ledger.chain import START, AlteredLedger, Entry, Head, follow, hash_of
from agt.ledger.head_file import SecondHead, head_file
from agt.ledger.place import folder_alone, same_disk
from agt.ledger.store import (
    SUFFIX,
    LedgerFile,
    check_free,
    check_suffix,
    identity_of,
    make,
    making,
    other_program,
)
from agt.ledger.tables import AdmittedTable
from agt.ledger.unit import Unit
from agt.ledger.words import refusal, unit_words
from agt.mechanisms.accounts import Account, Counts, LedgerState
from agt.mechanisms.budget import Cost, Lot
from agt.messages import Message
from agt.store.reading import Broken

_ANSWERS_MISCOUNTED = "the ledger does not contain as many answers as its entries record"

Declared = Collection[object]
"""What an owner declared about other ledgers (``Book.declared``)."""


def ledgers_in(folder: Path) -> list[Path]:
    """Return the paths in a folder whose names are those of ledgers, sorted.

    There are none if the folder does not exist.

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


def check_unclaimed(
    path: Path, table: AdmittedTable, by_name: bool = True, declared: Declared = ()
) -> None:
    """Raise ConfigError if another ledger in the folder already counts a table's people.

    It does if it admitted a table with the same data, the same file, or the same names of units.

    Args:
        path: the ledger that is to admit the table, which is not compared.
        table: the table.
        by_name: whether names of units are compared. They are not if the table is declared to be
            about other people (``AdmittedTable.apart``).
        declared: ``identity_of`` the files that are declared to be no ledgers of these people.

    Raises:
        ConfigError: another ledger counts the table's people.
        CheckError: another ledger cannot be opened, so it is not known whose releases it counts.
    """
    for other in ledgers_in(path.parent):
        if os.path.realpath(other) == os.path.realpath(path):
            continue
        if found := admitted(other, table, by_name and not table.apart, declared):
            name, same = found
            declare = (
                (
                    ". If the same names stand for different people in the two tables, declare "
                    "that with another_population=true"
                )
                if "people" in same
                else ""
            )
            raise ConfigError(
                f"the people of {table.name} already have a ledger: the ledger {other} admitted "
                f"the table {name} with the same {same}. Use that ledger, because privacy losses "
                f"under two ledgers add up. If {other} is only a copy of a ledger, move it to "
                f"another folder{declare}"
            )


def admitted(
    path: Path, table: AdmittedTable, by_name: bool = True, declared: Declared = ()
) -> tuple[str, str] | None:
    """Return the table that a ledger admitted and that is about the same people as another table.

    Args:
        path: the ledger.
        table: the other table.
        by_name: whether names of units are compared.
        declared: ``identity_of`` the files that are declared to be no ledgers of these people.

    Returns:
        (the name of the admitted table, what is the same: data, file or people); None if there is
        no such table.

    Raises:
        Busy: another process has locked the ledger.
        CheckError: the ledger cannot be opened.
    """
    for other, salt in _tables(path, declared):
        same = table.shares(other) or (by_name and table.shares_people(other, salt))
        if same:
            return other.name, same
    return None


def similar(path: Path, table: AdmittedTable) -> list[str]:
    """Return a warning for each table of a ledger elsewhere that may be about the same people.

    Args:
        path: the other ledger.
        table: the table that is compared.

    Raises:
        Busy: another process has locked the ledger.
        CheckError: the ledger cannot be opened.
    """
    warnings = []
    for other, salt in _tables(path):
        of_people = table.shares_people(other, salt)
        same = table.shares(other) or of_people or table.resembles(other)
        if not same:
            continue
        chance = ""
        if same == of_people:
            chance = (
                ". Numbered names, such as P00001, may stand for different people in two tables; "
                "then nothing is to be done"
            )
        warnings.append(
            f"the ledger {path} already counts a table {other.name} with the same {same}. If both "
            "tables are about the same people, use only that ledger, because privacy losses "
            f"under two ledgers add up{chance}"
        )
    return warnings


def _tables(path: Path, declared: Declared = ()) -> list[tuple[AdmittedTable, str]]:
    """Return the tables that a ledger admitted, each with the ledger's salt.

    There are none if the file is another program's, or is declared to be no ledger of these people.

    Raises:
        Busy: another process has locked the ledger.
        CheckError: the ledger cannot be opened.
    """
    try:
        with Ledger.open(path, writing=False, away=True) as ledger:
            return [(table, ledger.salt) for table in ledger.book.tables.values()]
    except Busy:
        raise
    except AgtError as error:
        if other_program(path) or identity_of(path) in declared:
            return []
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


EVERY = 1000  # entries from one checkpoint to the next
WAIT = 60.0  # seconds to wait for other processes
Append = Callable[[str, Mapping[str, Any], Cost], Entry]
"""Appends an entry of a kind, with its body and with what is spent, and returns it."""


class Exhausted(CheckError):
    """Not even one of the wanted releases fits into the budget."""


class Ledger:
    """An open ledger of one population, for any number of threads of one process.

    Args:
        store: the ledger's file.
        head: the path of its head file; None if it is where the ledger says.
        lost: whether the owner declares that the head file is lost. The ledger is opened without
            it, but compared with every earlier head file that exists.
        away: whether the ledger is only looked at as a copy, which is compared with no head file.

    Attributes:
        path: the path of the ledger's file.

    Raises:
        Broken: the ledger was altered, or is older than its head file.
    """

    def __init__(
        self, store: LedgerFile, head: Path | None = None, lost: bool = False, away: bool = False
    ) -> None:
        self._store = store
        self.path = store.path
        self._given = head
        self._lost = lost
        self._away = away
        self._checked = set[int]()  # numbers of entries whose answers were compared with their hash
        with store.turn():
            self._book = self._begun(self._last_vouched())
            self._catch_up()  # so that the place of the head file is known
            # Heads are read before the ledger's end, which other processes can only move on.
            known = self._known_heads()
            with store.snapshot():
                self._catch_up()
                self._check_whole(known)

    @classmethod
    def create(
        cls,
        path: Path,
        population: Population,
        head: Path | None = None,
        tables: Sequence[AdmittedTable] = (),
        declared: Sequence[Mapping[str, str] | str] = (),
    ) -> "Ledger":
        """Create a ledger with its tables and declarations: all of it, or nothing after an error.

        Args:
            path: the ledger's file, which must not exist.
            population: whose data the budget is about.
            head: a new head file, best on another disk, or the folder for it; None for no head
                file.
            tables: the tables that are about these people.
            declared: what the owner declares about other ledgers, each as ``declare`` takes it.

        Raises:
            ConfigError: a file exists already, or another ledger in the folder counts a table's
                people.
        """
        check_suffix(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        place = None if head is None else head_file(head, path)
        body = {"population": asdict(population), "head": str(place or ""), "salt": token_hex(32)}
        opening = Entry(1, "open", _timed(body, Cost()), START)
        with folder_alone(path.parent), ExitStack() as undo:
            check_free(path)
            with making(path) as part:
                if place is not None:
                    SecondHead(place, opening.hash).start(opening.head)
                    undo.callback(place.unlink)
                make(part, opening)
                with cls.open(part) as ledger:
                    for about in declared:
                        ledger.declare(about)
                    for table in tables:
                        ledger._admit(table, population.unit)
            undo.pop_all()
        return cls.open(path)

    @classmethod
    def open(
        cls,
        path: Path,
        head: Path | None = None,
        *,
        writing: bool = True,
        seconds: float = WAIT,
        away: bool = False,
        lost: bool = False,
    ) -> "Ledger":
        """Open a ledger, and check its entries from the newest checkpoint that may be believed.

        Args:
            path: the ledger's file.
            head: the head file must be here, whatever the ledger says; None if it is where the
                ledger says.
            writing: False to read a copy of the file, which needs no right to write.
            seconds: how long to wait for other processes.
            away: as in ``Ledger``; nothing is written then.
            lost: as in ``Ledger``.

        Raises:
            ConfigError: there is no ledger, or it is where none can be.
            CheckError: the ledger was altered, or is older than its head file.
        """
        store = LedgerFile(path, writing and not away, seconds)
        try:
            return cls(store, None if head is None else head_file(head, path), lost, away)
        except BaseException:
            store.close()
            raise

    @classmethod
    def replace_head(cls, path: Path, head: Path) -> None:
        """Create a new head file where the old one is lost, which the ledger records for good.

        Args:
            path: the ledger's file.
            head: the new head file, or the folder for it.

        Raises:
            ConfigError: the old head file is not lost.
            CheckError: an earlier head file has more entries than the ledger, or other ones.
        """
        with cls.open(path, lost=True) as ledger:
            old_place = ledger.book.head
            if old_place:
                old = SecondHead(Path(old_place), ledger.book.opening.hash)
                known = old.peek()
                if known is not None:
                    raise ConfigError(
                        "lost=true declares that the ledger's head file is lost, but this file "
                        f"exists ({old.path}, with {known.count} entries): leave out lost=true"
                    )
            ledger.move_head(head)

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(self, *error: object) -> None:
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
        """What the entries amount to, those of other processes until now included."""
        with self._store.turn():
            self._catch_up()
            return self._book

    @property
    def salt(self) -> str:
        """The 32 random bytes with which it hashes questions and names, in hexadecimal digits."""
        return str(self._book.opening.body["salt"])

    @property
    def unit(self) -> str:
        """Whose addition or removal makes a neighbouring dataset, in words."""
        return unit_words(self.population, self.book.tables.values())

    @property
    def head(self) -> Path | None:
        """The path of the head file; None if there is none."""
        return next((head.path for head in self._heads()), None)

    def state_with(self, entry: int) -> LedgerState:
        """Return what claims state about the ledger as it was when an entry was its last.

        Args:
            entry: the number of the entry.
        """
        state = self.book.state_with(entry)
        if state.second_head == "away" and self.head and same_disk(self.head, self.path):
            return replace(state, second_head="same_disk")
        return state

    def words(self) -> list[str]:
        """Return the sentences that a claim which rests on this ledger must contain."""
        return self.state_with(self.book.last.number).lines(self.population.unit)

    def account(self, debit: Debit | None, counts: Counts | None) -> Account:
        """Return what a claim states about this ledger.

        Args:
            debit: the debit that paid for the release; None for the account after the newest entry.
            counts: which part of the release the ledger counts; None if it is not known.
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
            ledger=self.state_with(entry.number),
        )

    def check(self, relation: str, data: str, unit: Unit) -> None:
        """Raise ConfigError unless this ledger may pay for releases from a run.

        Args:
            relation: the name of the run's relation.
            data: the digest of the run's data.
            unit: the unit in which the run counts.
        """
        with self._store.turn():
            self._catch_up()
            self._check_subject(relation, data, unit)

    def admit(self, table: AdmittedTable, unit: str | None = None) -> None:
        """Declare that a table is about the same people and shares their budget.

        Nothing is written if the table was admitted before.

        Args:
            table: the table.
            unit: the population's unit in the same words, which declares that the table's unit is
                that one; None if both are the same anyway.

        Raises:
            ConfigError: another ledger in the folder counts these people; the same data or file was
                admitted here with another unit; or the table has another unit than the first one,
                and ``unit`` declares nothing.
        """
        with folder_alone(self._store.real.parent):
            self._admit(table, unit)

    def _admit(self, table: AdmittedTable, unit: str | None) -> None:
        """Do what ``admit`` does; the caller has locked the folder."""
        shown_path = Path(os.path.relpath(self._store.real))
        check_unclaimed(shown_path, table, declared=self.book.declared)
        with self._writing() as append:
            self._check_counting(table, unit)
            self._check_open(table.data)
            if self._book.is_new(table):
                tables = [admitted.counted for admitted in (*self._book.tables.values(), table)]
                declared = sentences.tables(self.population.unit, tables)
                append(
                    "admit", {**table.as_json(self.salt), "declared": declared}, self._book.spent
                )

    def declare(self, about: Mapping[str, str] | str) -> None:
        """Record what the owner declares about another ledger, for every claim from now on.

        Args:
            about: ``identity_of`` a file in the folder that cannot be opened and is no ledger of
                these people; or ``Book.first_entry`` of the ledger that was in this one's place.
        """
        words = (
            sentences.replaced_ledger(about)
            if isinstance(about, str)
            else sentences.unreadable_ledger(about["file"])
        )
        with self._writing() as append:
            append("declare", {"about": about, "declared": words}, self._book.spent)

    def move_head(self, head: Path) -> None:
        """Use a new head file from now on.

        The old head file gets the entry of the move; if the old one is lost, the entry says so.

        Args:
            head: the new head file, or the folder for it.

        Raises:
            ConfigError: the new file exists already.
        """
        later = SecondHead(head_file(head, self.path), self._book.opening.hash)
        with self._writing() as append:
            body = {"head": str(later.path), "lost": self._lost}
            entry = append("head", body, self._book.spent)
            later.start(entry.head)
        self._given = None
        self._lost = False

    def debit(self, charge: Charge, wanted: int) -> Debit:
        """Pay for as many releases as the budget holds, up to a number.

        The debit is on the disk when this returns (Lemma 6 of docs/proofs/ledger.md).

        Args:
            charge: what is released.
            wanted: the largest number of releases.

        Raises:
            Exhausted: not even one release fits into the budget.
            ConfigError: the data are not admitted, or the relation or the unit is another one; or
                ``wanted`` is not a possible number of releases.
        """
        Lot(charge.guarantee, wanted)  # raises ConfigError for an impossible number
        with self._writing() as append:
            self._check_subject(charge.relation, charge.data, charge.unit)
            before = self._book.spent
            size = self.population.allowance.max_lot_size(before, charge.guarantee, wanted)
            if not size:
                raise Exhausted(
                    f"ledger={self.path}: {refusal(self.population, before, charge.guarantee)}"
                )
            spent = before.plus(Lot(charge.guarantee, size).cost)
            entry = append("debit", {**charge.as_json(), "size": size}, spent)
        return self._book.debits[entry.number]

    def answer(self, debit: Debit, labels: Mapping[bytes, int]) -> dict[bytes, int]:
        """Keep answers that a debit paid for: all of them, or a part.

        A question that was answered before keeps its first answer.

        Args:
            debit: the debit.
            labels: the drawn labels, by the key of the question.

        Returns:
            The labels that are kept, by the same keys: what everybody who asks is told from now on.

        Raises:
            ConfigError: the debit is another ledger's, or there are more new answers than it still
                pays for.
        """
        labels = {bytes(key): index(label) for key, label in labels.items()}
        with self._writing() as append:
            kept = self._store.answers(list(labels))
            fresh = {key: label for key, label in labels.items() if key not in kept}
            paid = self._book.debits.get(debit.entry.number)
            if paid is None or paid.entry.hash != debit.entry.hash:
                raise ConfigError(
                    f"ledger={self.path}: the debit {debit.entry.head} is not in this ledger: "
                    "give the ledger in which the release was reserved"
                )
            left = paid.size - paid.answered
            new = len(fresh)
            if new > left:
                raise ConfigError(
                    f"ledger={self.path}: entry {debit.entry.number} paid for {debit.size} "
                    f"answers, of which {left} are not used yet, but {new} new answers are to be "
                    "stored: reserve another release for the additional answers"
                )
            if fresh:
                first = self._book.answered + 1
                self._store.add_answers(first, fresh)
                digest = digest_of((0, key, label) for key, label in fresh.items())
                body = {
                    "debit": debit.entry.number,
                    "first": first,
                    "size": new,
                    "digest": digest,
                }
                append("answers", body, self._book.spent)
        return {key: kept[key][1] if key in kept else label for key, label in labels.items()}

    def stored(self, keys: Sequence[bytes]) -> dict[bytes, int]:
        """Return the labels of the questions that were answered before, by key.

        Args:
            keys: the keys of all questions.

        Raises:
            CheckError: an answer differs from the one that was kept.
        """
        with self._store.turn(), self._store.snapshot():
            self._catch_up()
            rows = self._store.answers(keys)
            for number, _ in rows.values():
                self._check_answer(number)
            return {key: label for key, (_, label) in rows.items()}

    def labels_on(self, debits: Collection[int]) -> list[int]:
        """Return the labels that some debits paid for, in the order in which they were kept.

        Args:
            debits: the numbers of the debits' entries.
        """
        labels = list[int]()
        with self._store.turn(), self._store.snapshot():
            for entry in follow(self._store.texts()):
                if entry.kind == "answers" and entry.body["debit"] in debits:
                    rows = self._store.answer_rows(entry.body["first"], entry.body["size"])
                    labels += [label for _, _, label in rows]
        return labels

    def history(self) -> dict[int, Debit]:
        """Return every debit by the number of its entry, which reads the whole chain."""
        with self._store.turn(), self._store.snapshot():
            self._catch_up()
            self._check_end()
            debits: dict[int, Debit] = {}
            for entry in follow(self._store.texts()):
                if entry.kind == "debit":
                    debits[entry.number] = Debit.of(entry)
                elif entry.kind == "answers":
                    debits[entry.body["debit"]].answered += entry.body["size"]
            return debits

    def entries(self) -> list[Entry]:
        """Return all entries in order, each checked against the one before it."""
        with self._store.turn():
            return list(follow(self._store.texts()))

    def verify(self, known: Head | None = None) -> Book:
        """Check the file, the whole chain, each cost, every answer and the head files.

        Args:
            known: the end of the chain at some time, as somebody wrote it down; None if nobody did.

        Returns:
            What all entries amount to.

        Raises:
            CheckError: something was altered, is damaged, or is missing.
        """
        with self._store.turn():
            heads = self._known_heads()
            if known is not None:
                heads["the last entry that was given as head="] = known
            self._checked.clear()
            with self._store.snapshot():
                self._store.check()
                self._book = self._begun(0)
                for entry in follow(self._store.texts(1), self._book.last):
                    self._book.take(entry)
                    if "digest" in entry.body:
                        self._check_batch(Answered.of(entry))
                self._check_whole(heads)
                if self._store.count_answers() != self._book.answered:
                    raise AlteredLedger(_ANSWERS_MISCOUNTED)
            return self._book

    def _begun(self, bound: float) -> Book:
        """Return the book up to the newest checkpoint that may be believed.

        It is the book of the first entry if there is no such checkpoint.

        Args:
            bound: the largest number of an entry that may be believed.

        Raises:
            Broken: the ledger has no entries, or the checkpoint was altered.
        """
        row = self._store.newest("checkpoint", bound)
        if row is None:
            opening = next(follow(self._store.texts()), None)
            if opening is None:
                raise AlteredLedger("the ledger has no entries")
            return Book.begin(opening)
        number, checkpoint_hash, text = row
        # The oldest checkpoint whose answers are in ``Book.batches``.
        self._oldest = Entry.read(text, number, None, checkpoint_hash)
        return Book.resume(self._oldest, self._entry)

    def _last_vouched(self) -> float:
        """Return the number of the last entry that head files vouch for without any checkpoint.

        It is 0 if nothing may be believed, and infinite if there is no head file to ask, or if the
        ledger is looked at as a copy. Lemma 7 of docs/proofs/ledger.md.
        """
        if self._away:
            return inf
        if self._lost or self._store.newest("checkpoint", inf) is None:
            return 0
        first_text = self._store.text(1)
        opening = Entry.read(first_text, 1, None, hash_of(first_text or ""))
        place = str(self._given or Book.begin(opening).head)
        last_vouched = inf
        asked = set[str]()
        # A head file whose last entry moves the head leads to the next head file.
        while place and place not in asked:
            asked.add(place)
            known = SecondHead(Path(place), opening.hash).peek()
            if known is None or hash_of(self._store.text(known.count) or "") != known.hash:
                return 0 if last_vouched == inf else last_vouched
            last_vouched = known.count
            end = self._entry(known.count, known.hash)
            place = str(end.body["head"]) if end.kind == "head" else ""
        return last_vouched

    def _entry(self, number: int, entry_hash: str) -> Entry:
        """Return the entry with a number and a hash, whatever the entry before it is.

        Raises:
            AlteredLedger: the entry is missing, or has another hash.
        """
        return Entry.read(self._store.text(number), number, None, entry_hash)

    def _catch_up(self) -> None:
        """Take the entries that were appended since the last one that this process knows."""
        for entry in follow(self._store.texts(self._book.last.number), self._book.last):
            self._book.take(entry)

    @contextmanager
    def _writing(self) -> Iterator[Append]:
        """Run one transaction that no other process can interrupt, and yield how to append.

        What was appended is in the head files and in the book after it is on the disk. First a
        checkpoint is appended, if one is due.
        """
        made = list[Entry]()

        def append(kind: str, body: Mapping[str, Any], spent: Cost) -> Entry:
            last = made[-1] if made else self._book.last
            entry = Entry(last.number + 1, kind, _timed(body, spent), last.hash)
            self._store.append(entry)
            made.append(entry)
            return entry

        with self._store.turn(), ExitStack() as locks:
            with self._store.transaction():
                self._check_end()
                self._catch_up()
                replace_heads = [self._hold(head, locks) for head in self._heads()]
                if self._is_checkpoint_due():
                    append("checkpoint", self._checkpoint(), self._book.spent)
                yield append
            # Only now, after the commit, so that no head file is ever ahead of the ledger.
            for entry in made:
                self._book.take(entry)
                for replace_head in replace_heads:
                    replace_head(entry.head)

    def _is_checkpoint_due(self) -> bool:
        """Return whether ``EVERY`` entries were taken since the newest checkpoint."""
        newest = self._book.checkpoint.number if self._book.checkpoint else 0
        return self._book.last.number - newest >= EVERY

    def _checkpoint(self) -> dict[str, Any]:
        """Return the body of a checkpoint at the end of the chain.

        Raises:
            AlteredLedger: an answer since the checkpoint before is not the one that was kept.
        """
        state = self._book.state()
        for batch in self._book.batches:
            if batch.first >= state["first"]:
                self._check_batch(batch)
        rows = self._store.answer_rows(state["first"], state["size"])
        return {**state, "digest": digest_of(rows)}

    def _heads(self) -> list[SecondHead]:
        """Return the head files that must agree with the ledger today.

        These are the one that was given and the one that the ledger names. If one was given, the
        other need not exist.
        """
        if self._lost or self._away:
            return []
        paths = list[Path]()
        if self._given:
            paths.append(self._given)
        named = Path(self._book.head) if self._book.head else None
        if named and not self._is_replaced(named):
            paths.append(named)
        return [SecondHead(path, self._book.opening.hash) for path in paths]

    def _is_replaced(self, named: Path) -> bool:
        """Return whether the given head file stands for the one that the ledger names.

        It does if the named one does not exist, or is the same file.
        """
        if not self._given:
            return False
        if not named.exists():
            return True
        return self._given.exists() and named.samefile(self._given)

    def _known_heads(self) -> dict[str, Head]:
        """Return the head that each head file keeps, by the file's name in sentences.

        The files of today must exist. Of the files that were named earlier, those that exist are
        compared as well, so that nobody gets rid of one by naming another.

        Raises:
            Broken: a head file of today is missing, damaged, or another ledger's.
        """
        today = {head.name: head.read() for head in self._heads()}
        if self._away:
            return today
        known = dict[str, Head]()
        for _, place in self._book.heads:
            earlier = SecondHead(Path(place), self._book.opening.hash)
            head = earlier.peek()
            if head is not None:
                known[earlier.name] = head
        return known | today

    def _hold(self, head: SecondHead, locks: ExitStack) -> Callable[[Head], None]:
        """Lock a head file until ``locks`` are released, and return how to replace its head.

        Raises:
            Broken: the ledger does not contain the entry that the file keeps.
        """
        known, move = locks.enter_context(head.held(self._store.seconds))
        self._compare(known, head.name)
        return move

    def _check_end(self) -> None:
        """Raise AlteredLedger unless the last entry that this process knows is still there."""
        last = self._book.last
        if self._store.text(last.number) != last.text:
            raise AlteredLedger(
                f"entry {last.number} changed while the ledger was open, perhaps because another "
                "file replaced the ledger"
            )

    def _check_whole(self, known: Mapping[str, Head]) -> None:
        """Raise Broken if entries or answers are missing at the end.

        Args:
            known: heads that the ledger must contain, by the place where they were found.
        """
        for place, head in known.items():
            self._compare(head, place)
        if self._store.last_answer() != self._book.answered:
            raise AlteredLedger(_ANSWERS_MISCOUNTED)

    def _compare(self, known: Head, place: str) -> None:
        """Raise Broken unless the chain contains the entry of a known head.

        Args:
            known: the head.
            place: where it was found, in words.
        """
        last = self._book.last.number
        if known.count > last:
            never_named = place not in {
                SecondHead(Path(head), "").name for _, head in self._book.heads
            }
            remedy = "Restore the newest copy of the ledger"
            if never_named and known.count == last + 1:
                remedy = (
                    "If the command agt ledger admit head=... was interrupted right after it "
                    "created this head file, nothing was spent since then: delete the head file, "
                    "and type the command again. Otherwise restore the newest copy of the ledger"
                )
            raise Broken(
                f"according to {place}, the ledger has only {last} of {known.count} entries. "
                "Either an older copy replaced the ledger, or its log (the file whose name ends "
                "in -wal) is lost. So a budget that was spent since then could be spent again. "
                f"{remedy}"
            )
        if not hash_of(self._store.text(known.count) or "").startswith(known.hash):
            raise AlteredLedger(
                f"entry {known.count} differs from the one that {place} records, perhaps because "
                "two copies of the ledger were used"
            )

    def _check_counting(self, table: AdmittedTable, unit: str | None) -> None:
        """Raise ConfigError unless it is clear what one unit is in a table to be admitted.

        Args:
            table: the table.
            unit: what the owner declares the table's unit to be; None for no declaration.
        """
        population = self.population
        first = next(iter(self._book.tables.values()), None)
        if unit not in (None, population.unit):
            raise ConfigError(
                f"unit={unit!r}: the unit of the ledger of {population.name} is already "
                f"{population.unit!r}, and cannot be changed: leave out unit=, or use another "
                "ledger"
            )
        if other := self._book.counted_otherwise(table):
            shared = table.shares(other)
            raise ConfigError(
                f"ledger={self.path}: the tables {table.name} and {other.name} have the same "
                f"{shared}, so they need the same unit (whose data are protected). But the unit is "
                f"{table.unit} in {table.name}, and {other.unit} in {other.name}: train with "
                f"{other.unit.settings}"
            )
        known = unit is not None or table.unit.name == population.unit
        meaning = sentences.unit_meaning(table.counted, population.unit)
        if not known and (first is None or first.unit.column != table.unit.column):
            raise ConfigError(
                Message(
                    "ledger={path}: in the table {name} the unit (whose data are protected) is "
                    "{counted}, but the ledger's unit is {unit!r}. Train with "
                    "{config:dataset.unit}, which names the column that identifies the person of "
                    "each record. In Python, give units=, or a ledger with unit='one record'. If, "
                    "in this table, {meaning}, declare that with unit={unit!r} instead",
                    path=self.path,
                    unit=population.unit,
                    name=table.name,
                    counted=table.unit,
                    meaning=meaning,
                )
            )

    def _check_open(self, data: str) -> None:
        """Raise ConfigError if nothing more may be released from data, because of an erasure."""
        if number := self._book.closed.get(data):
            raise ConfigError(
                f"ledger={self.path}: nothing more may be released from the data {data}, because "
                f"some of its records were erased (see entry {number} of the ledger). Release from "
                "the run whose records were erased, in its present state. Before you release from "
                "another run, erase the same records from it with agt unlearn"
            )

    def _check_subject(self, relation: str, data: str, unit: Unit) -> None:
        """Do what ``check`` does; the caller has taken in all entries."""
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
        """Raise AlteredLedger unless an answer, and those that were kept with it, are unchanged.

        Args:
            number: the number of the answer.
        """
        if not 1 <= number <= self._book.answered:
            raise AlteredLedger("the ledger contains an answer that no entry records")
        while number < self._book.batches[0].first:
            self._oldest = self._entry(*self._oldest.body["earlier"])
            self._book.batches.insert(0, Answered.of(self._oldest))
        next_batch = bisect_right(self._book.batches, number, key=lambda batch: batch.first)
        self._check_batch(self._book.batches[next_batch - 1])

    def _check_batch(self, batch: Answered) -> None:
        """Raise AlteredLedger unless the answers of one entry are unchanged.

        A process checks the answers of each entry once.
        """
        if batch.entry in self._checked:
            return
        if digest_of(self._store.answer_rows(batch.first, batch.size)) != batch.digest:
            raise AlteredLedger(
                f"the answers of entry {batch.entry} do not match the hash in this entry"
            )
        self._checked.add(batch.entry)


def _timed(body: Mapping[str, Any], spent: Cost) -> dict[str, Any]:
    """Return the body of an entry with what is spent and the time."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {**body, "spent": spent.as_json(), "time": now}
