"""A ledger: what was released about one population, in one SQLite file; it says what may still be,
and remembers answers.

    ledger = Ledger.open(Path("ledgers/loans.ledger"))
    debit = ledger.debit(Charge(...), wanted=1000)     durable before it returns; raises Exhausted
                                                       where nothing fits
    ledger.answer(debit, {key: label, ...})            what was drawn, for whoever asks the same
                                                       again

Formal guarantees
    Every debit is on the disk, in the chain, and in the second head where there is one, before
    ``debit`` returns, and so before anything is drawn: a process that is killed later has spent it
    (store.py; the head after the commit, so that it never runs ahead of the ledger). Two debits at
    once are one after the other, each seeing the other's cost. What is admitted depends on the
    entries alone (agt/mechanisms/budget.py).
    Opening follows the chain from its newest checkpoint, ``verify`` from its first entry; each cost
    is rechecked (book.py), and every later call does so with what others added meanwhile. An older
    copy is refused where a second head exists (chain.py); without one it cannot be told from the
    ledger, and ``words`` says so. An answer that is given again is what was kept: the first of each
    question, checked against the chain, with those that were kept together with it, when the first
    of them is given by this process.
    Checkpoints. Every ``EVERY`` entries the next writer, who has checked all since the one before,
    appends what the chain comes to: what is spent, the hash of each entry that still counts (the
    first, tables, moves of the head, lots with answers to come), a digest of the answers since the
    last checkpoint, and that one's hash. Where there is a second head, a checkpoint is believed
    only as far as heads reach that are found without its word (``_bound``): the one that was given,
    or the first entry's, and from there the one that the last entry it knows names, as a head that
    is moved away knows its move. The chain is followed from the checkpoint through the entry where
    that head ends. So its hash is the one of a chain whose head was moved, entry by entry, by
    processes that had followed it: by induction each checkpoint in it is what ``take`` would have
    made of all before, and whoever can write the ledger and not its head has no other sequence of
    entries with that hash. What is edited before a checkpoint then changes nothing that is paid or
    answered (answers are held to its digest, and an earlier one's is reached by hashes), and
    ``verify`` finds it. Where there is no second head, the newest is believed: whoever can write
    the file could as well put an older copy in its place, or a chain of their own, which no check
    of the file can show; a forged checkpoint ``verify`` finds.

Other ledgers of the same folder: two budgets for the same people would add up, and each would be
broken.

Which queries were answered before, which ask the same, and which are new: a question is answered
once, and paid once.

Formal guarantees
    Two queries are one question only if their features are the same bytes, as the model takes them,
    and so are the training run, the mechanism with all of its parameters, and what its evidence
    counts: then the stored label is a draw of the very same release, and to say it again gives
    nothing away. All of that is public, so which queries are new, how many they are and in which
    order says nothing about the records.
    Keys are BLAKE2b of 32 bytes, keyed by the ledger's first entry: two questions share one by a
    chance of 2^-128, or if somebody finds a collision.
"""

import json
import os
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from hashlib import blake2b
from math import inf
from operator import index
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

import numpy as np

from agt import sentences
from agt.data.arrays import pieces
from agt.data.records import UNANSWERED
from agt.errors import AgtError, Busy, CheckError, ConfigError
from agt.ledger.book import (
    AdmittedTable,
    Answered,
    Book,
    Charge,
    Debit,
    Population,
    digest_of,
    refusal,
    unit_words,
)
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
from agt.ledger.unit import Unit
from agt.mechanisms.accounts import Account, Counts, LedgerState
from agt.mechanisms.budget import Cost, Lot
from agt.mechanisms.mechanism import Mechanism
from agt.messages import Message
from agt.store import Broken

if TYPE_CHECKING:  # whoever reads a ledger loads no torch
    from agt.mechanisms.laplace_mean import LaplaceMean

_ANSWERS_MISCOUNTED = "the ledger does not contain as many answers as its entries record"

Declared = Collection[object]
"""What owners declared (``Book.declared``)."""


def ledgers_in(folder: Path) -> list[Path]:
    """Whatever has a ledger's name in a folder, in order; a folder that is not there holds none.

    Raises:
        CheckError: the folder cannot be listed, or is a link to a place that is not there.
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
    """Raise ConfigError where another ledger of the folder than ``path`` has a table's people: same
    data, file or names.

    Args:
        by_name: False: names of units are not compared; nor where the table is declared to be about
            other people.
        declared: ``identity_of`` files that are declared to be no account of these people.

    Raises:
        CheckError: another ledger there cannot be opened, so it is not known whose people it has.
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
    """(name, what is the same) of a table that a ledger admitted, of the same data, file or people;
    None: it did not.

    Arguments and errors as ``check_unclaimed``.
    """
    for other, salt in _tables(path, declared):
        same = table.shares(other) or (by_name and table.shares_people(other, salt))
        if same:
            return other.name, same
    return None


def similar(path: Path, table: AdmittedTable) -> list[str]:
    """Tables that a ledger in another folder admitted and that may be about the same people, and
    why, a line each.
    """
    alike = [
        (
            other.name,
            table.shares(other) or table.shares_people(other, salt) or table.resembles(other),
        )
        for other, salt in _tables(path)
    ]
    return [
        (
            f"the ledger {path} already counts a table {name} with the same {same}. If both "
            "tables are about the same people, use only that ledger, because privacy losses "
            "under two ledgers add up"
        )
        for name, same in alike
        if same
    ]


def _tables(path: Path, declared: Declared = ()) -> list[tuple[AdmittedTable, str]]:
    """What a ledger admitted, with its salt; nothing where surely another program's file lies.

    Raises:
        Busy: another process has it.
        CheckError: it cannot be opened, and is not among those that were declared unreadable.
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


EVERY = 1000  # entries, from one checkpoint to the next
WAIT = 60.0  # seconds, for other processes
Append = Callable[[str, Mapping[str, Any], Cost], Entry]


class Exhausted(CheckError):
    """The budget does not hold what was asked for."""


class Ledger:
    """One population's account, open, for any number of threads of one process.

    Args:
        store: its file.
        head: where its second head lies now; None: where the ledger says.
        lost: its second head is said to be lost: it is opened without, but compared with each that
            is there all the same.
        away: to look at a copy: it is compared with no head.

    Attributes:
        path: of the file.
    """

    def __init__(
        self, store: LedgerFile, head: Path | None = None, lost: bool = False, away: bool = False
    ) -> None:
        self._store, self.path, self._given, self._lost, self._away = (
            store,
            store.path,
            head,
            lost,
            away,
        )
        self._checked: set[int] = set()
        with store.turn():
            self._book = self._begun(self._bound())
            self._catch_up()  # to where the head is kept
            known = self._known()  # before the ledger's end, which can only grow meanwhile
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
        """Make a new one, with all that is declared of it: it is there as a whole, or nothing is.

        Args:
            head: of a second head, a new file on another disk, or the folder for it; None: none.
            tables: whose people these are.
            declared: each as in ``declare``.

        Raises:
            ConfigError: something is there already, or another ledger in the folder holds a table's
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
        """Open one, and check the whole chain and every cost.

        Args:
            head: the second head must lie here, whatever the ledger says; None: where it says.
            writing: False: to look at it, also where nothing can be written.
            seconds: how long to wait for other processes.
            away, lost: as in ``Ledger``. Nobody writes to a copy.

        Raises:
            ConfigError: there is none, or it lies where none can.
            CheckError: it was edited, or is older than its second head.
        """
        store = LedgerFile(path, writing and not away, seconds)
        try:
            return cls(store, None if head is None else head_file(head, path), lost, away)
        except BaseException:
            store.close()
            raise

    @classmethod
    def replace_head(cls, path: Path, head: Path) -> None:
        """Start a second head anew where the one there was is lost; the chain says so for good.

        Raises:
            ConfigError: the one there was can be read.
            CheckError: it is further than the ledger, or knows another.
        """
        with cls.open(path, lost=True) as ledger:
            last = ledger.book.head and SecondHead(Path(ledger.book.head), ledger.book.opening.hash)
            if last and (known := last.peek()):
                raise ConfigError(
                    "lost=true declares that the ledger's head file is lost, but this file "
                    f"exists ({last.path}, with {known.count} entries): leave out lost=true"
                )
            ledger.move_head(head)

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the file back."""
        self._store.close()

    @property
    def population(self) -> Population:
        """As it was opened."""
        return self._book.population

    @property
    def book(self) -> Book:
        """All that the entries come to, with those of other processes until now."""
        with self._store.turn():
            self._catch_up()
            return self._book

    @property
    def salt(self) -> str:
        """Its own 32 random bytes, by which it hashes questions and names, in hexadecimal."""
        return str(self._book.opening.body["salt"])

    @property
    def unit(self) -> str:
        """Whose addition or removal makes a neighbour, in words, with how many records it may
        have.
        """
        return unit_words(self.population, self.book.tables.values())

    @property
    def head(self) -> Path | None:
        """Where the second head is kept; None: nowhere."""
        return next((head.path for head in self._heads()), None)

    def state_with(self, entry: int) -> LedgerState:
        """What was declared by an entry, and what cannot be excluded."""
        state = self.book.state_with(entry)
        if state.second_head == "away" and self.head and same_disk(self.head, self.path):
            return replace(state, second_head="same_disk")
        return state

    def words(self) -> list[str]:
        """What a claim that rests on this ledger must say, a line each."""
        return self.state_with(self.book.last.number).lines(self.population.unit)

    def account(self, debit: Debit | None, counts: Counts | None) -> Account:
        """What a claim says of this ledger.

        Args:
            debit: that paid for the release; None: the account is as the newest entry left it.
            counts: what of the release the ledger counts; None: not known.
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
        """Raise ConfigError unless releases from a run under ``relation`` on ``data`` that
        counts so may be paid here.
        """
        with self._store.turn():
            self._catch_up()
            self._check_subject(relation, data, unit)

    def admit(self, table: AdmittedTable, unit: str | None = None) -> None:
        """Declare that a table is about the same people, unit by unit, and shares their budget;
        nothing, if it was already.

        Args:
            unit: the population's, in so many words, to declare that the table's is one; None: it
                goes without saying.

        Raises:
            ConfigError: another ledger in the folder holds these people; the same data or file was
                admitted here under another way of counting; the table counts otherwise than the
                first, and nobody declared what its unit is.
        """
        with folder_alone(self._store.real.parent):
            self._admit(table, unit)

    def _admit(self, table: AdmittedTable, unit: str | None) -> None:
        """``admit``, by whoever has the folder alone."""
        beside = Path(os.path.relpath(self._store.real))  # as people read it
        check_unclaimed(beside, table, declared=self.book.declared)
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
        """Keep the owner's word about another ledger in the chain, and in every claim from now on.

        Args:
            about: ``identity_of`` a file beside this one that cannot be opened, and is no account
                of these people; or ``Book.first_entry`` of the ledger that lay in the place of this
                one.
        """
        words = (
            sentences.replaced_ledger(about)
            if isinstance(about, str)
            else sentences.unreadable_ledger(about["file"])
        )
        with self._writing() as append:
            append("declare", {"about": about, "declared": words}, self._book.spent)

    def move_head(self, head: Path) -> None:
        """Keep the second head in a new file from now on; the old one is told of it, or, where
        it is lost, the chain is.
        """
        later = SecondHead(head_file(head, self.path), self._book.opening.hash)
        with self._writing() as append:
            later.start(
                append("head", {"head": str(later.path), "lost": self._lost}, self._book.spent).head
            )
        self._given, self._lost = None, False

    def debit(self, charge: Charge, wanted: int) -> Debit:
        """Spend the budget of as many releases as it holds, up to ``wanted``; on the disk when this
        returns.

        Raises:
            Exhausted: it holds none.
            ConfigError: the data was not admitted, or it is another relation or unit.
        """
        Lot(charge.guarantee, wanted)
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
        """Keep what was drawn on a debit, all of it or a part; of a question that was answered
        before, what was kept first.

        Args:
            labels: key of a question -> label.

        Returns:
            The same questions with the labels that are kept: what everybody is told from now on.

        Raises:
            ConfigError: more answers than the debit has left, or a debit of another ledger.
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
                    "size": len(fresh),
                    "digest": digest,
                }
                append("answers", body, self._book.spent)
        return {key: kept[key][1] if key in kept else label for key, label in labels.items()}

    def stored(self, keys: Sequence[bytes]) -> dict[bytes, int]:
        """Those of the questions that were answered before, with their labels.

        Raises:
            CheckError: an answer is not what was kept.
        """
        with self._store.turn(), self._store.snapshot():
            self._catch_up()
            rows = self._store.answers(keys)
            for number, _ in rows.values():
                self._check_answer(number)
            return {key: label for key, (_, label) in rows.items()}

    def labels_on(self, debits: Collection[int]) -> list[int]:
        """The answers that were drawn on these entries, and are kept, in the order in which they
        were drawn.
        """
        with self._store.turn(), self._store.snapshot():
            entries = (entry for entry in follow(self._store.texts()) if entry.kind == "answers")
            batches = [entry.body for entry in entries if entry.body["debit"] in debits]
            rows = (
                row
                for body in batches
                for row in self._store.answer_rows(body["first"], body["size"])
            )
            return [label for _, _, label in rows]

    def history(self) -> dict[int, Debit]:
        """Every debit, by the number of its entry: all of the chain is followed."""
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
        """All of them, in order, each checked against the one before."""
        with self._store.turn():
            return list(follow(self._store.texts()))

    def verify(self, known: Head | None = None) -> Book:
        """Check everything: the file, the chain, each cost, every answer that is kept, both heads.

        Args:
            known: where the chain ended at some time, as somebody noted it.

        Raises:
            CheckError: something is wrong.
        """
        with self._store.turn():
            heads = self._known()
            self._checked.clear()
            with self._store.snapshot():
                self._store.check()
                self._book = self._begun(0)
                for entry in follow(self._store.texts(1), self._book.last):
                    self._book.take(entry)
                    if "digest" in entry.body:
                        self._check_batch(Answered.of(entry))
                self._check_whole(
                    {
                        **heads,
                        **({("the last entry that was given as head="): known} if known else {}),
                    }
                )
                if self._store.count_answers() != self._book.answered:
                    raise AlteredLedger(_ANSWERS_MISCOUNTED)
            return self._book

    def _begun(self, bound: float) -> Book:
        """The entries up to the newest checkpoint that a bound number has; without one, the
        first entry.
        """
        row = self._store.newest("checkpoint", bound)
        if row is None:
            opening = next(follow(self._store.texts()), None)
            if opening is None:
                raise AlteredLedger("the ledger has no entries")
            return Book.begin(opening)
        number, hash, text = row
        self._oldest = Entry.read(text, number, None, hash)
        return Book.resume(self._oldest, self._entry)

    def _bound(self) -> float:
        """Up to which entry second heads vouch for the chain, by whatever checkpoint; no limit
        where there is none.
        """
        if self._lost or self._away or self._store.newest("checkpoint", inf) is None:
            return inf if self._away else 0
        opening, bound = (
            Entry.read(self._store.text(1), 1, None, hash_of(self._store.text(1) or "")),
            inf,
        )
        place, asked = self._given or Book.begin(opening).head, set[str]()
        while place and str(place) not in asked:
            asked.add(str(place))
            known = SecondHead(Path(place), opening.hash).peek()
            if known is None or hash_of(self._store.text(known.count) or "") != known.hash:
                return 0 if bound == inf else bound
            bound, end = known.count, self._entry(known.count, known.hash)
            place = str(end.body["head"]) if end.kind == "head" else ""
        return bound

    def _entry(self, number: int, hash: str) -> Entry:
        """The entry of this number, which has this hash, whatever was before it."""
        return Entry.read(self._store.text(number), number, None, hash)

    def _catch_up(self) -> None:
        """Take in what was appended since."""
        for entry in follow(self._store.texts(self._book.last.number), self._book.last):
            self._book.take(entry)

    @contextmanager
    def _writing(self) -> Iterator[Append]:
        """One transaction, alone; what it appends is in the book and the second head once it is
        on the disk.
        """
        made: list[Entry] = []

        def append(kind: str, body: Mapping[str, Any], spent: Cost) -> Entry:
            last = made[-1] if made else self._book.last
            made.append(Entry(last.number + 1, kind, _timed(body, spent), last.hash))
            self._store.append(made[-1])
            return made[-1]

        with self._store.turn(), ExitStack() as locks:
            with self._store.transaction():
                self._check_end()
                self._catch_up()
                moves = [self._hold(head, locks) for head in self._heads()]
                if (
                    self._book.last.number
                    - (self._book.checkpoint.number if self._book.checkpoint else 0)
                    >= EVERY
                ):
                    append("checkpoint", self._checkpoint(), self._book.spent)
                yield append
            for entry in made:
                self._book.take(entry)
                for move in moves:
                    move(entry.head)

    def _checkpoint(self) -> dict[str, Any]:
        """What the chain comes to here; the answers since the last one are compared with it
        before.
        """
        state = self._book.state()
        for batch in self._book.batches:
            if batch.first >= state["first"]:
                self._check_batch(batch)
        return {
            **state,
            "digest": digest_of(self._store.answer_rows(state["first"], state["size"])),
        }

    def _heads(self) -> list[SecondHead]:
        """The one that was given, and the one that the ledger names; given one, the other need
        not be there.
        """
        if self._lost or self._away:
            return []
        named = Path(self._book.head) if self._book.head else None
        if (
            self._given
            and named
            and (not named.exists() or (self._given.exists() and named.samefile(self._given)))
        ):
            named = None
        return [
            SecondHead(path, self._book.opening.hash)
            for path in (self._given, named)
            if path is not None
        ]

    def _known(self) -> dict[str, Head]:
        """What each second head tells, by its name in a sentence: those of today, which must be
        there, and each that an entry named before, if it is: whoever names another one does not get
        rid of it.
        """
        today = {head.name: head.read() for head in self._heads()}
        if self._away:
            return today
        named = (SecondHead(Path(place), self._book.opening.hash) for _, place in self._book.heads)
        earlier = ((head.name, head.peek()) for head in named)
        return {name: known for name, known in earlier if known} | today

    def _hold(self, head: SecondHead, locks: ExitStack) -> Callable[[Head], None]:
        """How to move a second head, which nobody else can until ``locks`` are given back."""
        known, move = locks.enter_context(head.held(self._store.seconds))
        self._compare(known, head.name)
        return move

    def _check_end(self) -> None:
        """The last entry that this process has seen is still there."""
        last = self._book.last
        if self._store.text(last.number) != last.text:
            raise AlteredLedger(
                f"entry {last.number} changed while the ledger was open, perhaps because another "
                "file replaced the ledger"
            )

    def _check_whole(self, known: Mapping[str, Head]) -> None:
        """Nothing is missing at the end, as far as heads, or the number of answers, tell."""
        for place, head in known.items():
            self._compare(head, place)
        if self._store.last_answer() != self._book.answered:
            raise AlteredLedger(_ANSWERS_MISCOUNTED)

    def _compare(self, known: Head, place: str) -> None:
        """Raise Broken unless this chain goes through a head that was known."""
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
        """Raise ConfigError unless everybody can know what a unit is in a table that is about to
        be admitted.
        """
        population, first = self.population, next(iter(self._book.tables.values()), None)
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
        if number := self._book.closed.get(data):
            raise ConfigError(
                f"ledger={self.path}: nothing more may be released from the data {data}, because "
                f"some of its records were erased (see entry {number} of the ledger). Release from "
                "the run whose records were erased, in its present state. Before you release from "
                "another run, erase the same records from it with agt unlearn"
            )

    def _check_subject(self, relation: str, data: str, unit: Unit) -> None:
        self.population.check_relation(relation)
        self._check_open(data)
        if data not in self._book.tables:
            names = (
                ", ".join(dict.fromkeys(table.name for table in self._book.tables.values()))
                or "none"
            )
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
        """Raise Broken unless an answer, and those that were kept with it, are what the chain
        says; once a process.
        """
        if not 1 <= number <= self._book.answered:
            raise AlteredLedger("the ledger contains an answer that no entry records")
        while number < self._book.batches[0].first:
            self._oldest = self._entry(*self._oldest.body["earlier"])
            self._book.batches.insert(0, Answered.of(self._oldest))
        at = bisect_right(self._book.batches, number, key=lambda batch: batch.first)
        self._check_batch(self._book.batches[at - 1])

    def _check_batch(self, batch: Answered) -> None:
        """Raise Broken unless answers that were kept together are what the chain says; once a
        process.
        """
        if batch.entry not in self._checked:
            if digest_of(self._store.answer_rows(batch.first, batch.size)) != batch.digest:
                raise AlteredLedger(
                    f"the answers of entry {batch.entry} do not match the hash in this entry"
                )
            self._checked.add(batch.entry)


def _timed(body: Mapping[str, Any], spent: Cost) -> dict[str, Any]:
    return {
        **body,
        "spent": spent.as_json(),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


KEY_BYTES = 32


def question_terms(
    run: str, mechanism: "Mechanism | LaplaceMean", accounting: str, counting: str
) -> list[object]:
    """What questions have in common: the training run's digest, the mechanism with its
    parameters, and what is counted.
    """
    return [run, {"name": mechanism.name, **asdict(mechanism)}, accounting, counting]


def keys_of(salt: bytes, about: list[object], features: np.ndarray) -> list[bytes]:
    """The key of each query's question.

    Args:
        salt: of the ledger, 64 bytes at most.
        about: ``question_terms``.
        features: [n, ...], as the head takes them.
    """
    common = blake2b(
        json.dumps([*about, features.shape[1:]]).encode(), digest_size=KEY_BYTES, key=salt
    )
    keys = []
    for piece in pieces(features):
        # every float32 is a float64
        for row in np.ascontiguousarray(piece, dtype=np.float64).reshape(len(piece), -1):
            key = common.copy()
            key.update(row.data)
            keys.append(key.digest())
    return keys


@dataclass(frozen=True)
class Questions:
    """The queries of one call.

    Attributes:
        keys: [n] of each query's question; row numbers, where each query is one of its own.
        known: key -> label, of those that were answered before.
    """

    keys: Sequence[Any]
    known: Mapping[Any, int]

    @property
    def remembered(self) -> bool:
        """Whether a ledger remembers the answers."""
        return not isinstance(self.keys, range)

    @cached_property
    def new(self) -> np.ndarray | range:
        """[m]: the first query of each question that was not answered before, in their order."""
        if isinstance(self.keys, range):  # as ``remembered`` says, in words that type checkers read
            return self.keys
        first: dict[Any, int] = {}
        for row, key in enumerate(self.keys):
            if key not in self.known:
                first.setdefault(key, row)
        return np.fromiter(first.values(), dtype=np.int64, count=len(first))

    def counts(self, labels: np.ndarray) -> dict[str, int]:
        """How many queries are answered, how many of them as they were before, how many not."""
        answered, stored = (
            int((labels != UNANSWERED).sum()),
            sum(key in self.known for key in self.keys),
        )
        return {"answered": answered, "stored": stored, "unanswered": len(labels) - answered}

    def labels(self, answers: Mapping[Any, int]) -> np.ndarray:
        """[n] int64 labels of all queries; ``UNANSWERED`` where there is none."""
        labels = (self.known.get(key, answers.get(key, UNANSWERED)) for key in self.keys)
        return np.fromiter(labels, dtype=np.int64, count=len(self.keys))
