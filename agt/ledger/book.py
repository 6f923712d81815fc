"""What the entries of a ledger amount to: the budget, the tables, what was spent, the answers.

``Book.take`` rechecks every rule that an entry must keep; docs/proofs/ledger.md proves what follows
from that.
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
from agt.ledger.chain import AlteredLedger, Entry, Head
from agt.ledger.tables import AdmittedTable
from agt.ledger.unit import EACH, Unit
from agt.mechanisms.accounts import LedgerState, MovedHead, OtherLedger
from agt.mechanisms.budget import Allowance, Cost, Lot
from agt.mechanisms.guarantees import Guarantee, read_guarantee
from agt.relations import RELATIONS
from agt.store.reading import Broken

DRAW = "draw:"  # begins ``Charge.run`` of weights that were trained with noise
SAME = 1e-12
"""Relative difference up to which a cost that is computed again is the same: special functions of
another machine may differ in the last digits. Costs are rounded up by far more (``numeric.UP``).
"""
SLACK = 1e-9  # relative, by which a budget is enlarged where it is checked again, for this reason
BELOW_ONE = nextafter(1.0, 0.0)
FIRST_DIGITS = 16  # of the first entry's hash, by which people and claims name a ledger


@dataclass(frozen=True)
class Population:
    """Whose data the budget is about.

    Attributes:
        name: the name of the population, such as "customers".
        unit: whose addition or removal makes a neighbouring dataset, in words ("one customer").
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
        """Raise ConfigError unless this budget pays for releases from a run under a relation."""
        if relation != self.relation:
            raise ConfigError(
                f"relation={relation}: the ledger of {self.name} counts releases under "
                f"relation={self.relation}, and a release under another relation cannot be added "
                f"to these: train with relation={self.relation}"
            )

    @classmethod
    def of(cls, node: Mapping[str, Any]) -> "Population":
        """Return the population that ``dataclasses.asdict`` turned into plain values."""
        return cls(node["name"], node["unit"], node["relation"], Allowance(**node["allowance"]))


@dataclass(frozen=True)
class Charge:
    """What a debit pays for.

    Attributes:
        guarantee: the privacy guarantee of each release.
        output: what is released: "labels", "weights" or another ``Output``.
        mechanism: the mechanism's name.
        run: the digest of the training run that is released from. For weights that were trained
            with noise it is ``DRAW`` and a hash of the seed, which does not reveal the seed.
        data: the digest of the data.
        relation: the name of the run's relation.
        unit: the unit in which the run counts.
    """

    guarantee: Guarantee
    output: str
    mechanism: str
    run: str
    data: str
    relation: str
    unit: Unit = EACH

    def as_json(self) -> dict[str, Any]:
        """The charge as plain JSON values."""
        return {**asdict(self), "guarantee": self.guarantee.as_json}

    @classmethod
    def of(cls, node: Mapping[str, Any]) -> "Charge":
        """Return the charge that the body of a debit describes.

        Args:
            node: what ``as_json`` gave, among other values.

        Raises:
            KeyError, TypeError, ConfigError: the body is not one of a debit.
        """
        others = {
            name: str(node[name]) for name in ("output", "mechanism", "run", "data", "relation")
        }
        return cls(read_guarantee(node["guarantee"]), **others, unit=Unit(**node["unit"]))


@dataclass
class Debit:
    """A debit, and how many answers it has led to.

    Attributes:
        entry: the entry of the debit.
        charge: what it pays for.
        size: for how many releases it pays.
        answered: how many answers were kept that it paid for.
    """

    entry: Entry
    charge: Charge
    size: int
    answered: int = 0

    @classmethod
    def of(cls, entry: Entry, answered: int = 0) -> "Debit":
        """Return the debit of an entry."""
        return cls(entry, Charge.of(entry.body), entry.body["size"], answered)

    @property
    def head(self) -> Head:
        """The head of the chain when this debit was its last entry."""
        return self.entry.head

    @property
    def open(self) -> bool:
        """Whether answers that it paid for may still be added."""
        return self.charge.output == "labels" and self.answered < self.size


@dataclass(frozen=True)
class Answered:
    """Consecutive answers that one entry records.

    The entry is one of answers, or a checkpoint, which covers the answers since the one before.

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
    def of(cls, entry: Entry) -> "Answered":
        """Return what an entry of answers, or a checkpoint, records about answers."""
        return cls(entry.body["first"], entry.body["size"], entry.body["digest"], entry.number)


@dataclass
class Book:
    """What the entries of a ledger amount to, up to the newest.

    Attributes:
        opening: the first entry, whose hash names the ledger.
        population: whose data the budget is about.
        last: the newest entry.
        spent: the cost of all debits.
        heads: (number of the entry, path) of each head file, in the order of the entries.
        tables: the admitted tables, by the digest of their data.
        admitted: the number of the entry that admitted each table, by the digest of its data.
        closed: data from which nothing may be released any more, because a table with fewer
            records took their place: digest -> number of the entry.
        debits: debits by number: those since the newest checkpoint, and earlier ones to which
            answers may still be added.
        batches: the answers, in order: an item for each entry since the newest checkpoint, and an
            item for the checkpoint.
        earlier_than_before: the numbers of entries, checkpoints left out, with an earlier time than
            the entry before.
        moved: each move of the head file, as claims state it.
        declared: what the owner declared about other ledgers: ``identity_of`` a file that is no
            ledger of these people; or ``first_entry`` of a ledger that was in this one's place.
        other_ledgers: the same declarations, as claims state them.
        answered: the number of answers.
        lasting_hashes: the hash of each entry that every checkpoint names whatever its age, by
            number: the opening, tables, moves of the head file, declarations.
        checkpoint: the newest checkpoint; None if there is none.
        kinds: how many entries of each kind were taken.
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
    batches: list[Answered] = field(default_factory=list)
    earlier_than_before: list[int] = field(default_factory=list)
    moved: list[MovedHead] = field(default_factory=list)
    declared: list[Mapping[str, str] | str] = field(default_factory=list)
    other_ledgers: list[OtherLedger] = field(default_factory=list)
    answered: int = 0
    lasting_hashes: dict[int, str] = field(default_factory=dict)
    checkpoint: Entry | None = None
    kinds: Counter[str] = field(default_factory=Counter)

    @classmethod
    def begin(cls, opening: Entry) -> "Book":
        """Return the book of a ledger that has only its first entry.

        Raises:
            AlteredLedger: the entry does not open a ledger.
        """
        if opening.kind != "open":
            raise AlteredLedger(
                f"the first entry of the ledger is of the kind {opening.kind!r}, but must be of "
                "the kind 'open'"
            )
        with _reading(opening) as body:
            if body["spent"] != Cost().as_json():
                raise AlteredLedger(
                    "the first entry of the ledger must record that nothing is spent, but "
                    "records an amount"
                )
            heads = [(1, str(body["head"]))] if body["head"] else []
            return cls(
                opening,
                Population.of(body["population"]),
                opening,
                heads=heads,
                lasting_hashes={1: opening.hash},
            )

    @classmethod
    def resume(cls, checkpoint: Entry, entry_of: Callable[[int, str], Entry]) -> "Book":
        """Return the book up to a checkpoint, without reading all entries before it.

        The checkpoint is believed; the ledger decides when it may be (ledger.py). Only the entries
        that it names by their hashes are read.

        Args:
            checkpoint: the entry of the checkpoint.
            entry_of: returns the entry with a number and a hash, or raises Broken.

        Raises:
            Broken: the checkpoint does not have its form, or an entry that it names is missing or
                another.
        """
        with _reading(checkpoint) as body:
            named = sorted((int(number), digest) for number, digest in body["entries"].items())
            opening, *others = (entry_of(number, digest) for number, digest in named)
            book = cls.begin(opening)
            for entry in others:
                book._take_named(entry, body["answered"])
            book.answered = body["first"] + body["size"] - 1
            book.spent = Cost.from_json(body["spent"])
            book.earlier_than_before = _check_entry_numbers(body["backwards"])
            book.last = checkpoint
            book.checkpoint = checkpoint
            book.batches = [Answered.of(checkpoint)]
            return book

    def _take_named(self, entry: Entry, answered: Mapping[str, int]) -> None:
        """Take an entry that a checkpoint names.

        Args:
            entry: a debit with answers to come, or an entry of a lasting kind.
            answered: how many answers each of these debits has, by the debit's number.
        """
        rules = {
            "admit": self._take_table,
            "head": self._take_head_move,
            "declare": self._take_declaration,
        }
        with _reading(entry) as body:
            if entry.kind == "debit":
                self.debits[entry.number] = Debit.of(entry, answered[str(entry.number)])
            else:
                rules[entry.kind](entry, body)

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint at this place must record, as plain JSON values.

        The digest of the answers since the checkpoint before is added by the ledger, which has the
        answers. The keys are:

            entries: the hash of each entry that still counts, by number: the lasting entries, and
                debits to which answers may be added.
            answered: how many answers each of these debits has, by number.
            first, size: the number of the first answer since the checkpoint before, and how many
                answers there are since then.
            earlier: [number, hash] of the checkpoint before; null if there is none.
            backwards: the numbers of entries with an earlier time than the entry before.
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
            "backwards": self.earlier_than_before,
        }

    def _open_debits(self) -> dict[int, Debit]:
        """Return the debits to which answers may still be added, by number."""
        return {number: debit for number, debit in self.debits.items() if debit.open}

    def take(self, entry: Entry) -> None:
        """Take the next entry, after checking that agt could have made it at this place.

        Lemma 4 of docs/proofs/ledger.md says what is checked.

        Args:
            entry: the entry that follows ``last`` in the chain (``chain.follow``).

        Raises:
            Broken: agt makes no such entry at this place.
        """
        rules = {
            "debit": self._take_debit,
            "answers": self._take_answers,
            "admit": self._take_table,
            "head": self._take_head_move,
            "declare": self._take_declaration,
            "checkpoint": self._take_checkpoint,
        }
        with _reading(entry) as body:
            if entry.kind not in rules:
                raise Broken(
                    f"entry {entry.number} is of the kind {entry.kind}, which this version of "
                    "agt does not know: use a newer version"
                )
            spent = rules[entry.kind](entry, body)
            if spent is None:
                if body["spent"] != self.last.body["spent"]:
                    raise AlteredLedger(
                        f"entry {entry.number} changes the amount spent, but only a debit may do "
                        "that"
                    )
            else:
                self._check_recorded(spent, entry)
                self.spent = Cost.from_json(body["spent"])
        # A checkpoint's own time is not noted: whoever resumes from it could not tell.
        if entry.kind != "checkpoint" and entry.time < self.last.time:
            self.earlier_than_before.append(entry.number)
        self.last = entry
        self.kinds[entry.kind] += 1

    def _check_recorded(self, spent: Cost, entry: Entry) -> None:
        """Raise AlteredLedger unless a debit records what is spent with it.

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

    def _take_debit(self, entry: Entry, body: Mapping[str, Any]) -> Cost:
        """Check a debit, and return what is spent with it."""
        debit = Debit.of(entry)
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
        if not (self._within.holds(spent) or self._within.admits(self.spent, lot)):
            raise AlteredLedger(f"entry {entry.number} exceeds the budget")
        self.debits[entry.number] = debit
        return spent

    def _take_answers(self, entry: Entry, body: Mapping[str, Any]) -> None:
        """Check that answers follow the last one, and that their debit paid for them."""
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
        self.batches.append(Answered.of(entry))

    def _take_table(self, entry: Entry, body: Mapping[str, Any]) -> None:
        """Check that an admitted table is new, and counts as earlier ones of the same data."""
        table = AdmittedTable.of(body)
        if not self.is_new(table) or table.data in self.closed or self.counted_otherwise(table):
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

    def _take_head_move(self, entry: Entry, body: Mapping[str, Any]) -> None:
        """Check that a move of the head file names the new place."""
        if not body["head"] or not isinstance(body["lost"], bool):
            raise AlteredLedger(
                f"entry {entry.number} moves the ledger's head file without naming its new place"
            )
        self.moved.append(MovedHead(entry.number, entry.time, body["lost"], self.head or None))
        self.heads.append((entry.number, str(body["head"])))
        self.lasting_hashes[entry.number] = entry.hash

    def _take_declaration(self, entry: Entry, body: Mapping[str, Any]) -> None:
        """Check that a declaration says what is declared."""
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

    def _take_checkpoint(self, entry: Entry, body: Mapping[str, Any]) -> None:
        """Check that a checkpoint records what the entries before it amount to.

        Its notes about the clock are not compared, because no check relies on times; and earlier
        versions noted a checkpoint's own time in some processes and not in others.
        """
        _check_entry_numbers(body["backwards"])
        for name, value in self.state().items():
            if name != "backwards" and body[name] != value:
                raise AlteredLedger(
                    f"entry {entry.number} is a checkpoint that does not fit the entries before "
                    f"it: '{name}' should be {value}"
                )
        since = Answered.of(entry)
        self.debits = self._open_debits()
        earlier_batches = [batch for batch in self.batches if batch.first < since.first]
        self.batches = [*earlier_batches, since]
        self.checkpoint = entry

    @property
    def head(self) -> str:
        """The path of the head file that was named last; empty if there is none."""
        return self.heads[-1][1] if self.heads else ""

    def state_with(self, entry: int) -> LedgerState:
        """Return what claims state about the ledger as it was when an entry was its last.

        A head file is assumed to be on another disk than the ledger.

        Args:
            entry: the number of the entry.
        """
        admitted = [
            table.counted for data, table in self.tables.items() if self.admitted[data] <= entry
        ]
        moved = [move for move in self.moved if move.entry <= entry]
        declared = [other for other in self.other_ledgers if other.entry <= entry]
        had_head = any(number <= entry for number, _ in self.heads)
        return LedgerState(
            tuple(admitted), tuple(moved), tuple(declared), "away" if had_head else "none"
        )

    @property
    def first_entry(self) -> str:
        """The first 16 digits of the first entry's hash, which tell this ledger from others."""
        return self.opening.hash[:FIRST_DIGITS]

    def is_new(self, table: AdmittedTable) -> bool:
        """Return whether admitting a table changes anything.

        It does if its data are not admitted yet, or if earlier data that it replaces are not closed
        yet.
        """
        return table.data not in self.tables or not {*table.before} <= {table.data, *self.closed}

    def counted_otherwise(self, table: AdmittedTable) -> AdmittedTable | None:
        """Return an admitted table of the same data or file whose unit this one's does not cover.

        It is None if there is no such table.
        """
        shared = (other for other in self.tables.values() if table.shares(other))
        return next((other for other in shared if not table.unit.covers(other.unit)), None)

    @cached_property
    def _within(self) -> Allowance:
        """The budget, slightly enlarged for costs that another machine computed."""
        allowance = self.population.allowance
        return replace(
            allowance,
            eps=allowance.eps * (1 + SLACK),
            delta=min(allowance.delta * (1 + SLACK), BELOW_ONE),
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
    """Return a list of numbers of entries, after checking that it is one.

    Raises:
        TypeError: it is not; ``_reading`` makes an AlteredLedger of it.
    """
    if not isinstance(numbers, list) or any(type(number) is not int for number in numbers):
        raise TypeError(f"{numbers!r} is not a list of numbers of entries")
    return [*numbers]


def _is_same_cost(cost: Cost, recorded: Mapping[str, Any]) -> bool:
    """Return whether an entry records a cost, up to ``SAME``."""
    expected = cost.as_json()
    if recorded.keys() != expected.keys():
        return False
    return all(_is_same_number(value, recorded[name]) for name, value in expected.items())


def _is_same_number(value: object, recorded: object) -> bool:
    """Return whether two numbers of JSON, or their texts, are equal up to ``SAME``."""
    return value == recorded or isclose(float(str(value)), float(str(recorded)), rel_tol=SAME)


@contextmanager
def _reading(entry: Entry) -> Iterator[Mapping[str, Any]]:
    """Yield the body of an entry; errors of reading it become AlteredLedger."""
    try:
        yield entry.body
    except (KeyError, TypeError, ValueError, AttributeError, ConfigError) as error:
        raise AlteredLedger(
            f"entry {entry.number} (of the kind {entry.kind!r}) does not have the form of such an "
            f"entry ({error!r})"
        ) from None
