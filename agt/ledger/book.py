"""The state that the entries of a ledger add up to: budget, tables, debits, cost, answers.

``Book.apply`` checks every rule that an entry must keep. docs/proofs/ledger.md proves what follows
from these checks.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from math import isclose, nextafter
from typing import Any

from agt.errors import ConfigError
from agt.ledger.chain import AlteredLedger, Entry
from agt.ledger.tables import AdmittedTable
from agt.ledger.unit import SINGLE_RECORDS, Unit
from agt.mechanisms.accounts import LedgerState, MovedHead, OtherLedger
from agt.mechanisms.budget import Allowance, Cost, Lot
from agt.mechanisms.guarantees import Guarantee, read_guarantee
from agt.relations import RELATIONS
from agt.release_settings import MAX_TOTAL_EPS
from agt.store.reading import Broken

DRAW = "draw:"  # begins ``Charge.run`` of weights that were trained with noise
COST_TOLERANCE = 1e-12
"""Relative difference up to which a recorded cost agrees with the cost that is computed here.

Special functions of another machine may differ in the last digits. Costs are rounded up by far more
(``numeric.UP``).
"""
# A budget is enlarged by this factor where a recorded debit is checked, because of the same
# difference between machines.
BUDGET_SLACK = 1e-9
BELOW_ONE = nextafter(1.0, 0.0)
FIRST_DIGITS = 16  # of the first entry's hash, by which people and claims name a ledger


@dataclass(frozen=True)
class Population:
    """Whose data the budget is about.

    Attributes:
        name: the name of the population, such as "customers".
        unit: the unit whose addition or removal makes a neighbouring dataset, in words ("one
            customer").
        relation: the name of the relation of every run that is released from.
        allowance: the budget for all releases together.

    Raises:
        ConfigError: the name or the unit is empty, or the relation gives no differential privacy.
    """

    name: str
    unit: str
    relation: str
    allowance: Allowance

    def __post_init__(self) -> None:
        """Raise ConfigError if a text is empty, or the relation gives no differential privacy."""
        for key, example in (("name", "name=customers"), ("unit", "unit='one customer'")):
            value = getattr(self, key)
            if not value.strip() or not value.isprintable():
                raise ConfigError(
                    f"{key}={value!r}: give a few words of printable text, for example {example}"
                )
        if self.relation not in RELATIONS or RELATIONS[self.relation].reason_not_releasable:
            private = ", ".join(
                name for name, relation in RELATIONS.items() if not relation.reason_not_releasable
            )
            raise ConfigError(
                f"relation={self.relation}: a ledger cannot have this relation, because a "
                "guarantee that only covers removals is not differential privacy: give one of "
                f"the relations {private}"
            )

    def check_relation(self, relation: str) -> None:
        """Raise ConfigError if a run's relation is not the one that this budget counts.

        Args:
            relation: the name of the run's relation.
        """
        if relation != self.relation:
            raise ConfigError(
                f"relation={relation}: the ledger of {self.name} counts releases under "
                f"relation={self.relation}, and a release under another relation cannot be added "
                f"to these: train with relation={self.relation}"
            )

    @classmethod
    def from_json(cls, node: Mapping[str, Any]) -> "Population":
        """Return the population that a ledger's first entry stores.

        Args:
            node: the fields by name, as ``dataclasses.asdict`` gives them.

        Raises:
            KeyError, TypeError, ConfigError: they do not describe a population.
        """
        return cls(node["name"], node["unit"], node["relation"], Allowance(**node["allowance"]))


@dataclass(frozen=True)
class Charge:
    """The content of a debit: which releases it pays for.

    Attributes:
        guarantee: the privacy guarantee of each release.
        output: the kind of release: "labels", "weights" or another ``Output``.
        mechanism: the mechanism's name.
        run: the digest of the training run that is released from. For weights that were trained
            with noise it is ``DRAW`` and a hash of the seed, which does not reveal the seed.
        data: the digest of the data.
        relation: the name of the run's relation.
        unit: the run's unit (which records are added or removed together).
    """

    guarantee: Guarantee
    output: str
    mechanism: str
    run: str
    data: str
    relation: str
    unit: Unit = SINGLE_RECORDS

    def as_json(self) -> dict[str, Any]:
        """Return the charge as plain JSON values, which ``from_json`` reads."""
        return {**asdict(self), "guarantee": self.guarantee.as_json}

    @classmethod
    def from_json(cls, node: Mapping[str, Any]) -> "Charge":
        """Return the charge that the body of a debit's entry stores.

        Args:
            node: the body: the values that ``as_json`` gave, and others that are not read.

        Raises:
            KeyError, TypeError, ConfigError: the body is not one of a debit.
        """
        return cls(
            guarantee=read_guarantee(node["guarantee"]),
            output=str(node["output"]),
            mechanism=str(node["mechanism"]),
            run=str(node["run"]),
            data=str(node["data"]),
            relation=str(node["relation"]),
            unit=Unit(**node["unit"]),
        )


@dataclass
class Debit:
    """A debit, with the number of its releases whose answers are stored in the ledger.

    Attributes:
        entry: the entry that records the debit.
        charge: the guarantee, the mechanism and the data of the releases that are paid for.
        size: the number of releases that are paid for.
        answered: the number of these releases that have an answer in the ledger; updated as answers
            are added.
    """

    entry: Entry
    charge: Charge
    size: int
    answered: int = 0

    @classmethod
    def from_entry(cls, entry: Entry, answered: int = 0) -> "Debit":
        """Return the debit that an entry records.

        Args:
            entry: an entry of the kind "debit".
            answered: the number of its releases that have an answer in the ledger.

        Raises:
            KeyError, TypeError, ConfigError: the entry does not have the form of a debit.
        """
        return cls(entry, Charge.from_json(entry.body), entry.body["size"], answered)

    @property
    def may_get_answers(self) -> bool:
        """Whether the ledger may still store answers that this debit paid for.

        Only labels are stored, at most one for each release of the debit.
        """
        return self.charge.output == "labels" and self.answered < self.size


@dataclass(frozen=True)
class AnswerBatch:
    """Consecutive answers whose digest one entry records.

    The entry is of the kind "answers"; or it is a checkpoint, whose digest covers all answers since
    the checkpoint before.

    Attributes:
        first: the number of the first answer.
        size: the number of answers.
        digest: ``digest_of`` the answers.
        entry: the number of the entry.
    """

    first: int
    size: int
    digest: str
    entry: int

    @classmethod
    def from_entry(cls, entry: Entry) -> "AnswerBatch":
        """Return the batch that an entry of the kind "answers" or "checkpoint" records."""
        return cls(entry.body["first"], entry.body["size"], entry.body["digest"], entry.number)


@dataclass
class Book:
    """What the entries of a ledger add up to, from the first to the newest.

    Attributes:
        opening: the first entry, whose hash names the ledger.
        population: the people whose data the budget is about.
        last: the newest entry.
        spent: the cost of all debits.
        heads: (number of the entry, path) of each head file, in the order of the entries.
        tables: the admitted tables, by the digest of their data.
        admitted: the number of the entry that admitted each table, by the digest of its data.
        closed: data from which nothing may be released any more, because a table with fewer
            records replaced it: digest -> number of the entry that admitted this table.
        debits: debits by the number of their entry: those since the newest checkpoint, and earlier
            ones for which the ledger may still store answers.
        batches: the stored answers, in order: a batch for the newest checkpoint, and one for each
            entry of answers since then.
        backward_entries: the numbers of entries whose time is earlier than that of the entry
            before them; checkpoints are left out.
        moved: each move of the head file, as claims state it.
        declared: the owner's declarations about other ledgers: ``store.identity_of`` a file that
            counts no releases about these people; or ``first_entry`` of a ledger that this ledger
            replaced.
        other_ledgers: the same declarations, as claims state them.
        answered: the number of answers.
        lasting_hashes: the hash of each entry that every checkpoint names whatever its age, by
            number: the opening, tables, moves of the head file, declarations.
        checkpoint: the newest checkpoint; None if there is none.
        kind_counts: the number of entries of each kind that ``apply`` was called with.
    """

    opening: Entry
    population: Population
    last: Entry
    spent: Cost = field(default_factory=Cost)
    heads: list[tuple[int, str]] = field(default_factory=list)
    tables: dict[str, AdmittedTable] = field(default_factory=dict)
    admitted: dict[str, int] = field(default_factory=dict)
    closed: dict[str, int] = field(default_factory=dict)
    debits: dict[int, Debit] = field(default_factory=dict)
    batches: list[AnswerBatch] = field(default_factory=list)
    backward_entries: list[int] = field(default_factory=list)
    moved: list[MovedHead] = field(default_factory=list)
    declared: list[Mapping[str, str] | str] = field(default_factory=list)
    other_ledgers: list[OtherLedger] = field(default_factory=list)
    answered: int = 0
    lasting_hashes: dict[int, str] = field(default_factory=dict)
    checkpoint: Entry | None = None
    kind_counts: Counter[str] = field(default_factory=Counter)

    @classmethod
    def begin(cls, opening: Entry) -> "Book":
        """Return the book of a ledger that has only its first entry.

        Args:
            opening: the first entry, which states the population, its budget and the head file.

        Raises:
            AlteredLedger: the entry is not of the kind "open", or does not have its form.
        """
        if opening.kind != "open":
            raise AlteredLedger(
                f"the first entry of the ledger is of the kind {opening.kind!r}, but must be of "
                "the kind 'open'"
            )
        with _reading_body(opening) as body:
            if body["spent"] != Cost().as_json():
                raise AlteredLedger(
                    "the first entry of the ledger must record that nothing is spent, but "
                    "records an amount"
                )
            heads = [(1, str(body["head"]))] if body["head"] else []
            return cls(
                opening,
                Population.from_json(body["population"]),
                opening,
                heads=heads,
                lasting_hashes={1: opening.hash},
            )

    @classmethod
    def resume(cls, checkpoint: Entry, entry_of: Callable[[int, str], Entry]) -> "Book":
        """Return the book up to a checkpoint, without reading all entries before it.

        Only the entries that the checkpoint names by their hashes are read. Sums such as ``spent``
        are taken from the checkpoint without a check, so the caller decides whether it may be
        trusted (``Ledger._read_trusted_book``).

        Args:
            checkpoint: the entry of the checkpoint.
            entry_of: returns the entry with a number and a hash, or raises Broken.

        Raises:
            Broken: the checkpoint does not have its form, or an entry that it names is missing or
                has another hash.
        """
        with _reading_body(checkpoint) as body:
            named = sorted((int(number), digest) for number, digest in body["entries"].items())
            # The smallest number is 1, that of the entry that opened the ledger.
            opening, *others = (entry_of(number, digest) for number, digest in named)
            book = cls.begin(opening)
            for entry in others:
                book._apply_named_entry(entry, body["answered"])
            book.answered = body["first"] + body["size"] - 1
            book.spent = Cost.from_json(body["spent"])
            book.backward_entries = _check_entry_numbers(body["backwards"])
            book.last = checkpoint
            book.checkpoint = checkpoint
            book.batches = [AnswerBatch.from_entry(checkpoint)]
            return book

    def _apply_named_entry(self, entry: Entry, answered: Mapping[str, int]) -> None:
        """Add an entry that a checkpoint names to this book.

        Args:
            entry: a debit that may still get answers, or an admission of a table, a move of the
                head file or a declaration.
            answered: the number of answers of each of these debits, by the number of its entry as
                text.

        Raises:
            AlteredLedger: the entry is of another kind, or does not have the form of its kind.
        """
        apply_by_kind = {
            "admit": self._apply_admission,
            "head": self._apply_head_move,
            "declare": self._apply_declaration,
        }
        with _reading_body(entry) as body:
            if entry.kind == "debit":
                self.debits[entry.number] = Debit.from_entry(entry, answered[str(entry.number)])
            else:
                apply_by_kind[entry.kind](entry, body)

    def checkpoint_body(self) -> dict[str, Any]:
        """Return the body of a checkpoint after the newest entry, as plain JSON values.

        It has no digest of answers, which the book does not have: the ledger adds it. The keys are:

            entries: the hash of each entry that ``resume`` needs, by number: the opening, tables,
                moves of the head file, declarations, and debits that may still get answers.
            answered: the number of answers of each of these debits, by its number.
            first, size: the number of the first answer since the checkpoint before, and the count
                of answers since then.
            earlier: [number, hash] of the checkpoint before; null if there is none.
            backwards: ``backward_entries``.
        """
        open_debits = self._open_debits()
        hashes = dict(self.lasting_hashes)
        hashes.update((number, debit.entry.hash) for number, debit in open_debits.items())
        first = 1
        earlier = None
        if self.checkpoint is not None:
            first = self.checkpoint.body["first"] + self.checkpoint.body["size"]
            earlier = [self.checkpoint.number, self.checkpoint.hash]
        return {
            "entries": {str(number): digest for number, digest in hashes.items()},
            "answered": {str(number): debit.answered for number, debit in open_debits.items()},
            "first": first,
            "size": self.answered - first + 1,
            "earlier": earlier,
            "backwards": self.backward_entries,
        }

    def _open_debits(self) -> dict[int, Debit]:
        """Return the debits that may still get answers, by the number of their entry."""
        return {number: debit for number, debit in self.debits.items() if debit.may_get_answers}

    def apply(self, entry: Entry) -> None:
        """Add the next entry to this book, after checking that agt could have written it.

        Lemma 4 of docs/proofs/ledger.md says what is checked. After an error the book may hold a
        part of the entry, and must not be used any more.

        Args:
            entry: the entry that follows ``last`` in the chain (``chain.read_chain``).

        Raises:
            Broken: agt writes no such entry after the entries before it.
        """
        # Each method checks its entry, and returns what is spent afterwards; only debits change
        # this, so the others return None.
        apply_by_kind = {
            "debit": self._apply_debit,
            "answers": self._apply_answers,
            "admit": self._apply_admission,
            "head": self._apply_head_move,
            "declare": self._apply_declaration,
            "checkpoint": self._apply_checkpoint,
        }
        with _reading_body(entry) as body:
            if entry.kind not in apply_by_kind:
                raise Broken(
                    f"entry {entry.number} is of the kind {entry.kind}, which this version of "
                    "agt does not know: use a newer version"
                )
            spent = apply_by_kind[entry.kind](entry, body)
            if spent is None:
                if body["spent"] != self.last.body["spent"]:
                    raise AlteredLedger(
                        f"entry {entry.number} changes the amount spent, but only a debit may do "
                        "that"
                    )
            else:
                self._check_recorded_cost(spent, entry)
                self.spent = Cost.from_json(body["spent"])
        # A checkpoint's own time is not compared, because ``resume`` starts from a checkpoint and
        # does not have the time of the entry before it.
        if entry.kind != "checkpoint" and entry.time < self.last.time:
            self.backward_entries.append(entry.number)
        self.last = entry
        self.kind_counts[entry.kind] += 1

    def _check_recorded_cost(self, spent: Cost, entry: Entry) -> None:
        """Raise AlteredLedger unless the entry of a debit records the right total cost.

        Args:
            spent: the cost of all debits, this one included, as computed here.
            entry: the entry of the debit.
        """
        recorded = entry.body["spent"]
        if _is_same_cost(spent, recorded):
            return
        size = entry.body["size"]
        total = spent.as_json()
        raise AlteredLedger(
            f"entry {entry.number} records the total {recorded}, but it should be {total} "
            f"after the cost of the entry's {size} releases"
        )

    def _apply_debit(self, entry: Entry, body: Mapping[str, Any]) -> Cost:
        """Check a debit, add it to ``debits``, and return the cost of all debits with it.

        ``body`` is not used, because ``Debit.from_entry`` reads it; it is an argument of every
        method of ``apply``.

        Raises:
            AlteredLedger: the debit exceeds the budget; or the ledger does not count its data, its
                relation or its unit.
        """
        debit = Debit.from_entry(entry)
        charge = debit.charge
        if charge.data not in self.tables or charge.data in self.closed:
            raise AlteredLedger(
                f"entry {entry.number} pays for a release from data that the ledger does not count"
            )
        if charge.relation != self.population.relation:
            raise AlteredLedger(
                f"entry {entry.number} pays for a release under relation={charge.relation}, but "
                f"the ledger counts relation={self.population.relation}"
            )
        if not charge.unit.covers(self.tables[charge.data].unit):
            raise AlteredLedger(
                f"entry {entry.number} pays for fewer records per unit (person) than the ledger "
                "recorded when it admitted the table"
            )
        lot = Lot(charge.guarantee, debit.size)
        spent = self.spent.plus(lot.cost)
        if not (
            self._enlarged_allowance.holds(spent)
            or self._enlarged_allowance.admits(self.spent, lot)
        ):
            raise AlteredLedger(f"entry {entry.number} exceeds the budget")
        self.debits[entry.number] = debit
        return spent

    def _apply_answers(self, entry: Entry, body: Mapping[str, Any]) -> None:
        """Check an entry that records stored answers, and add it to ``batches`` and to the counts.

        The answers (labels of queries) are not read here: ``Ledger`` compares them with the digest.

        Raises:
            AlteredLedger: they do not follow the last answer, or their debit did not pay for them.
        """
        paid = self.debits[body["debit"]]
        size = body["size"]
        is_paid = 1 <= size <= paid.size - paid.answered
        if body["first"] != self.answered + 1 or not is_paid:
            raise AlteredLedger(
                f"the answers that entry {entry.number} records are not the next ones that its "
                "debit paid for"
            )
        paid.answered += size
        self.answered += size
        self.batches.append(AnswerBatch.from_entry(entry))

    def _apply_admission(self, entry: Entry, body: Mapping[str, Any]) -> None:
        """Check that a table could be admitted, and add it; the data that it replaces are closed.

        Raises:
            AlteredLedger: the admission changes nothing, its data are closed, or a table of the
                same data or file has a unit that this table's does not cover.
        """
        table = AdmittedTable.from_json(body)
        is_closed = table.data in self.closed
        has_other_unit = self.find_table_with_other_unit(table) is not None
        if not self.admission_changes(table) or is_closed or has_other_unit:
            raise AlteredLedger(
                f"entry {entry.number} admits data that the ledger already counts, or that a later "
                "table has replaced"
            )
        self.tables[table.data] = table
        self.admitted.setdefault(table.data, entry.number)
        self.lasting_hashes[entry.number] = entry.hash
        for data in table.before:
            if data != table.data:
                self.closed.setdefault(data, entry.number)

    def _apply_head_move(self, entry: Entry, body: Mapping[str, Any]) -> None:
        """Check that a move of the head file names its new path, and add it to ``heads``.

        Raises:
            AlteredLedger: it names no path, or does not say whether the earlier file was lost.
        """
        if not body["head"] or not isinstance(body["lost"], bool):
            raise AlteredLedger(
                f"entry {entry.number} moves the ledger's head file without naming its new place"
            )
        self.moved.append(MovedHead(entry.number, entry.time, body["lost"], self.head or None))
        self.heads.append((entry.number, str(body["head"])))
        self.lasting_hashes[entry.number] = entry.hash

    def _apply_declaration(self, entry: Entry, body: Mapping[str, Any]) -> None:
        """Check an entry that declares something about another ledger, and record that ledger.

        Raises:
            AlteredLedger: it has no sentence.
        """
        if not isinstance(body["declared"], str):
            raise AlteredLedger(
                f"entry {entry.number} is a declaration, but does not contain what is declared"
            )
        about = body["about"]
        self.declared.append(about)
        if isinstance(about, str):
            self.other_ledgers.append(OtherLedger(entry.number, first_entry=about))
        else:
            self.other_ledgers.append(OtherLedger(entry.number, about["file"]))
        self.lasting_hashes[entry.number] = entry.hash

    def _apply_checkpoint(self, entry: Entry, body: Mapping[str, Any]) -> None:
        """Check that a checkpoint contains the state that follows from the entries before it.

        Debits that cannot get answers any more are removed from ``debits``, and the batches since
        the checkpoint before are replaced by one batch.

        Its ``backwards`` are not compared, because no check relies on times, and because earlier
        versions counted a checkpoint's own time in some processes and not in others.

        Raises:
            AlteredLedger: it records something else.
        """
        _check_entry_numbers(body["backwards"])
        for name, value in self.checkpoint_body().items():
            if name != "backwards" and body[name] != value:
                raise AlteredLedger(
                    f"entry {entry.number} is a checkpoint that does not fit the entries before "
                    f"it: '{name}' should be {value}"
                )
        new_batch = AnswerBatch.from_entry(entry)
        self.debits = self._open_debits()
        earlier_batches = [batch for batch in self.batches if batch.first < new_batch.first]
        self.batches = [*earlier_batches, new_batch]
        self.checkpoint = entry

    @property
    def losses(self) -> list[str]:
        """The hash of each entry that declares that a head file of this ledger was lost."""
        return [self.lasting_hashes[move.entry] for move in self.moved if move.lost]

    @property
    def head(self) -> str:
        """The path of the head file that an entry named last; empty if none ever did."""
        return self.heads[-1][1] if self.heads else ""

    def ledger_state_at(self, entry: int) -> LedgerState:
        """Return the ledger's state right after an entry was added, as claims state it.

        The book does not look at files, so a head file is assumed to be on another disk than the
        ledger (``Ledger.ledger_state_at`` looks).

        Args:
            entry: the number of the entry.
        """
        admitted = [
            table.counted for data, table in self.tables.items() if self.admitted[data] <= entry
        ]
        head_moves = [move for move in self.moved if move.entry <= entry]
        declared_ledgers = [ledger for ledger in self.other_ledgers if ledger.entry <= entry]
        had_head = any(number <= entry for number, _ in self.heads)
        return LedgerState(
            tuple(admitted),
            tuple(head_moves),
            tuple(declared_ledgers),
            "away" if had_head else "none",
        )

    @property
    def salt(self) -> str:
        """The ledger's 32 random bytes for hashes of questions and names, as hexadecimal digits."""
        return str(self.opening.body["salt"])

    @property
    def first_entry(self) -> str:
        """The first 16 digits of the first entry's hash, which identify this ledger."""
        return self.opening.hash[:FIRST_DIGITS]

    def admission_changes(self, table: AdmittedTable) -> bool:
        """Return whether admitting a table would change the book.

        It would if its data are not admitted yet, or if data that it replaces are not closed yet.
        """
        replaced = {*table.before} - {table.data}
        return table.data not in self.tables or not replaced <= self.closed.keys()

    def find_table_with_other_unit(self, table: AdmittedTable) -> AdmittedTable | None:
        """Return an admitted table whose unit a table of the same data or file does not cover.

        Args:
            table: a table, which need not be admitted.

        Returns:
            The first such admitted table; None: the table's unit covers those of all tables that
            have the same data or file.
        """
        for other in self.tables.values():
            if table.shared_source(other) and not table.unit.covers(other.unit):
                return other
        return None

    @cached_property
    def _enlarged_allowance(self) -> Allowance:
        """The budget, enlarged by ``BUDGET_SLACK`` for costs that another machine computed.

        It stays within the limits of a budget, which a budget at a limit would otherwise leave.
        """
        allowance = self.population.allowance
        return replace(
            allowance,
            eps=min(allowance.eps * (1 + BUDGET_SLACK), MAX_TOTAL_EPS),
            delta=min(allowance.delta * (1 + BUDGET_SLACK), BELOW_ONE),
        )


def digest_of(rows: Iterable[tuple[int, bytes, int]]) -> str:
    """Return the SHA-256 of answers, in hexadecimal digits.

    For each answer, the key's length (2 bytes), the key and the label (8 bytes, signed) are hashed.

    Args:
        rows: (number, key, label) of each answer, in order. The number is not hashed.

    Raises:
        AlteredLedger: a key is not bytes, or a label is not an integer of 8 bytes.
    """
    try:
        parts = (
            len(key).to_bytes(2) + key + label.to_bytes(8, signed=True) for _, key, label in rows
        )
        return sha256(b"".join(parts)).hexdigest()
    except (AttributeError, TypeError, OverflowError):
        raise AlteredLedger(
            "at least one answer in the ledger does not have the form in which agt stores answers"
        ) from None


def _check_entry_numbers(numbers: object) -> list[int]:
    """Return a copy of a list of entry numbers, after checking that it is one.

    Raises:
        TypeError: it is no list of integers; ``_reading_body`` turns this into AlteredLedger.
    """
    if not isinstance(numbers, list) or any(type(number) is not int for number in numbers):
        raise TypeError(f"{numbers!r} is not a list of numbers of entries")
    return [*numbers]


def _is_same_cost(cost: Cost, recorded: Mapping[str, Any]) -> bool:
    """Return whether the cost that an entry records is a given cost, up to ``COST_TOLERANCE``.

    Args:
        cost: the cost as computed here.
        recorded: the recorded one, in the form of ``Cost.as_json``.
    """
    expected = cost.as_json()
    if recorded.keys() != expected.keys():
        return False
    return all(_is_same_number(value, recorded[name]) for name, value in expected.items())


def _is_same_number(value: object, recorded: object) -> bool:
    """Return whether two numbers, or texts of numbers, are equal up to ``COST_TOLERANCE``.

    Raises:
        ValueError: they differ, and one of them is not a number (None, say).
    """
    return value == recorded or isclose(
        float(str(value)), float(str(recorded)), rel_tol=COST_TOLERANCE
    )


@contextmanager
def _reading_body(entry: Entry) -> Iterator[Mapping[str, Any]]:
    """Yield the body of an entry, and turn errors of the block into AlteredLedger.

    These are the errors that reading a body without the form of its kind raises: KeyError,
    TypeError, ValueError, AttributeError and ConfigError.
    """
    try:
        yield entry.body
    except (KeyError, TypeError, ValueError, AttributeError, ConfigError) as error:
        raise AlteredLedger(
            f"entry {entry.number} (of the kind {entry.kind!r}) does not have the form of such an "
            f"entry ({error!r})"
        ) from None
