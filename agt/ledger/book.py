"""What the entries of a ledger come to: whose budget, which tables, what was spent, how many
answers; each rule rechecked.

Formal guarantees
    ``Book.take`` goes on only where the entry could have been made by this module at that place: a
    debit's cost is computed again from its guarantee and size and must be what ``spent`` grew by
    (``SAME``, relative: another machine's special functions may differ in the last digits, by far
    less than what costs are rounded up by, ``numeric.UP``); the sum is within the budget; its data
    was admitted, its relation is the population's, and it protects the unit that the table was
    admitted with (chain.py); no data and no file is admitted under two ways of counting; answers
    belong to a debit, and are no more than its size. So a chain that was rewritten with smaller
    costs, a larger lot or another budget is refused even where each hash fits, as far as its first
    entry is believed.
    A checkpoint holds what the entries before it come to: ``take`` refuses another than it would
    write itself. ``resume`` believes one, and reads no more of what came before than the entries
    that it names by their hashes; what it may be believed on is the ledger's to say (ledger.py).
    Times are kept and never believed: order is by number.

What a ledger says of itself: what a claim must carry, what is left, why nothing more fits.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from hashlib import blake2b, sha256
from math import isclose, nextafter
from typing import Any

import numpy as np

from agt import sentences
from agt.data.ids import distinct, keyed_hash
from agt.errors import ConfigError
from agt.ledger.chain import EACH, AlteredLedger, Entry, Head, Unit
from agt.mechanisms.accounts import CountedTable, LedgerState, MovedHead, OtherLedger
from agt.mechanisms.budget import Allowance, Cost, Lot, eps_so_far
from agt.mechanisms.composition import largest_holding
from agt.mechanisms.guarantees import ApproximateDP, GaussianDP, Guarantee, read_guarantee
from agt.relations import RELATIONS
from agt.release_settings import MIN_BUDGET
from agt.store import Broken

DRAW = "draw:"
SAME = 1e-12
BELOW_ONE = nextafter(1.0, 0.0)
FIRST_DIGITS = 16  # of the first entry's hash, by which people and claims name a ledger
SLACK = 1e-9  # of a budget that is compared again, for the same reason


@dataclass(frozen=True)
class Population:
    """Whose data the budget is about.

    Attributes:
        name: of the population, for people.
        unit: whose addition or removal makes a neighbour, in words ("one customer").
        relation: of every run that is answered from.
        allowance: the budget over all that is ever released.

    Raises:
        ConfigError: no name or unit, or a relation that protects nobody.
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
        """Raise ConfigError unless a run under this relation may be answered from on this
        budget.
        """
        if relation != self.relation:
            raise ConfigError(
                f"relation={relation}: the ledger of {self.name} counts releases under "
                f"relation={self.relation}, and a release under another relation cannot be added "
                f"to these: train with relation={self.relation}"
            )

    @classmethod
    def of(cls, node: Mapping[str, Any]) -> "Population":
        """What ``asdict`` gave."""
        return cls(node["name"], node["unit"], node["relation"], Allowance(**node["allowance"]))


@dataclass(frozen=True)
class Charge:
    """What is to be released.

    Attributes:
        guarantee: of each release.
        output: labels, weights, a number.
        mechanism: its name.
        run: the digest of the training run that it is released from; of weights trained with noise,
            ``DRAW`` and a hash of the seed, which names the draw and tells nothing of it.
        data: the digest of the data.
        relation: of that run.
        unit: as that run counts.
    """

    guarantee: Guarantee
    output: str
    mechanism: str
    run: str
    data: str
    relation: str
    unit: Unit = EACH

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "guarantee": self.guarantee.as_json}

    @classmethod
    def of(cls, node: Mapping[str, Any]) -> "Charge":
        """What ``as_json`` gave, among other values."""
        others = {
            name: str(node[name]) for name in ("output", "mechanism", "run", "data", "relation")
        }
        return cls(read_guarantee(node["guarantee"]), **others, unit=Unit(**node["unit"]))


@dataclass(frozen=True)
class AdmittedTable:
    """A table about these people.

    Attributes:
        name: for people.
        data: its digest.
        files: SHA-256 of the files that it was read from, by which it is known again.
        unit: as runs on it count.
        before: digests of the data that it was before records were erased from it: the people are
            some of those, and nothing more is released from it as it was then.
        people: ``sample_of`` the names of its units; as a ledger has them, ``keyed`` by its salt.
        paths: where its files lay.
        columns: a hash of their names; empty: not known.
        apart: declared to be about other people than those of ledgers beside it that have some of
            the same names.
    """

    name: str
    data: str
    files: tuple[str, ...] = ()
    unit: Unit = EACH
    before: tuple[str, ...] = ()
    people: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    columns: str = ""
    apart: bool = False

    def as_json(self, salt: str) -> dict[str, Any]:
        """Plain values. Args: salt: of the ledger."""
        known = {
            "files": list(self.files),
            "paths": list(self.paths),
            "people": list(keyed(self.people, salt)),
        }
        about = {"unit": asdict(self.unit), "columns": self.columns, "apart": self.apart}
        about |= {"before": list(self.before)} if self.before else {}
        return {"table": self.name, "data": self.data, **known, **about}

    @classmethod
    def of(cls, node: Mapping[str, Any]) -> "AdmittedTable":
        """What ``as_json`` gave, among other values; earlier versions gave less."""
        later: dict[str, Any] = {
            name: tuple(node.get(name, ())) for name in ("before", "people", "paths")
        }
        later |= {"columns": node.get("columns", ""), "apart": node.get("apart", False)}
        return cls(node["table"], node["data"], tuple(node["files"]), Unit(**node["unit"]), **later)

    @property
    def counted(self) -> CountedTable:
        """What claims say of it."""
        return CountedTable(self.name, self.unit.column, self.unit.rows, self.apart)

    def shares(self, other: "AdmittedTable") -> str:
        """By what it is known to be about the very people of another: data, file; empty: it is
        not known.
        """
        if {self.data, *self.before} & {other.data, *other.before}:
            return "data"
        return "file" if {*self.files} & {*other.files} else ""

    def shares_people(self, admitted: "AdmittedTable", salt: str) -> str:
        """Which people it has in common with a table that a ledger of this salt admitted; empty:
        nobody beyond chance.

        Two hashes of different names are the same by a chance below 2^-47 for two samples; one name
        that two tables share may stand for nobody ("unknown"), so it takes two, or all of the
        smaller sample.
        """
        shared = {*keyed(self.people, salt)} & {*admitted.people}
        common = len(shared)
        compared = min(len(self.people), len(admitted.people))
        return (
            (f"people ({common} of {compared} compared names occur in both tables)")
            if common >= min(2, compared) > 0
            else ""
        )

    def resembles(self, other: "AdmittedTable") -> str:
        """What it has in common with a table of other people, maybe: name, path, columns; empty:
        nothing.
        """
        alike = {"name": self.name == other.name, "path": bool({*self.paths} & {*other.paths})}
        alike["columns"] = bool(self.columns) and self.columns == other.columns
        return ", ".join(name for name, same in alike.items() if same)


MAX_SAMPLE = 256


def sample_of(names: np.ndarray) -> tuple[str, ...]:
    """Hashes of the names [n] whose hashes are least, up to ``MAX_SAMPLE``: whatever their order
    and how often each occurs.

    Of a table whose names are the share f of another's, about 256 f of these are among the other's.
    """
    return tuple(
        f"{hash:016x}"
        for hash in distinct(keyed_hash(names, "agt ledger people"))[:MAX_SAMPLE].tolist()
    )


def keyed(people: Iterable[str], salt: str) -> tuple[str, ...]:
    """What a ledger keeps of ``sample_of``: without its salt, no guess of a name can be tested."""
    key = bytes.fromhex(salt)
    return tuple(
        sorted(blake2b(name.encode(), digest_size=8, key=key).hexdigest() for name in people)
    )


@dataclass
class Debit:
    """A debit, and what came of it.

    Attributes:
        entry: that made it.
        charge, size: what was paid for.
        answered: how many of its answers are kept.
    """

    entry: Entry
    charge: Charge
    size: int
    answered: int = 0

    @classmethod
    def of(cls, entry: Entry, answered: int = 0) -> "Debit":
        """What an entry paid for."""
        return cls(entry, Charge.of(entry.body), entry.body["size"], answered)

    @property
    def head(self) -> Head:
        """The chain's end with it."""
        return self.entry.head

    @property
    def open(self) -> bool:
        """Whether answers may still be kept on it."""
        return self.charge.output == "labels" and self.answered < self.size


@dataclass(frozen=True)
class Answered:
    """Answers that were kept together, or since the checkpoint before.

    Attributes:
        first, size: their numbers.
        digest: ``digest_of`` them.
        entry: the number of the entry that tells it.
    """

    first: int
    size: int
    digest: str
    entry: int

    @classmethod
    def of(cls, entry: Entry) -> "Answered":
        """What an entry of answers, or a checkpoint, says."""
        return cls(entry.body["first"], entry.body["size"], entry.body["digest"], entry.number)


@dataclass
class Book:
    """The entries so far.

    Attributes:
        opening: the first entry; its hash names the ledger.
        population: as it was opened.
        last: the newest entry.
        spent: by all of them.
        heads: (entry, place) of each second head, in the order in which entries named them.
        tables: those admitted, by data digest.
        admitted: the number of the entry that admitted each, by data digest.
        closed: data as it was before an erasure that an admitted table came from: digest -> the
            number of its entry.
        debits: by number: those since the newest checkpoint, and earlier ones on which answers may
            still be kept.
        batches: of answers, in order: those since the newest checkpoint, and what is known of
            earlier ones.
        backwards: the numbers of those with an earlier time than the one before.
        moved: each entry by which a second head took the place of another, which may have been
            lost, or came later, as claims have it.
        declared: what the owner declared other ledgers to be: ``identity_of`` a file that is no
            account of these people, or ``first_entry`` of a ledger that lay in the place of this
            one.
        other_ledgers: the same as claims have it: other ledgers, whose releases this one does not
            count.
        answered: how many answers are kept.
        rests: hash of each entry that a checkpoint names whatever its age, by number: the opening,
            tables, second heads.
        checkpoint: the newest; None: there is none.
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
    backwards: list[int] = field(default_factory=list)
    moved: list[MovedHead] = field(default_factory=list)
    declared: list[Mapping[str, str] | str] = field(default_factory=list)
    other_ledgers: list[OtherLedger] = field(default_factory=list)
    answered: int = 0
    rests: dict[int, str] = field(default_factory=dict)
    checkpoint: Entry | None = None
    kinds: Counter[str] = field(default_factory=Counter)

    @classmethod
    def begin(cls, opening: Entry) -> "Book":
        """With the first entry.

        Raises:
            Broken: it opens no ledger.
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
                rests={1: opening.hash},
            )

    @classmethod
    def resume(cls, checkpoint: Entry, entry_of: Callable[[int, str], Entry]) -> "Book":
        """With a checkpoint, which is believed, and with what it names.

        Args:
            entry_of: (number, hash) -> that entry; raises Broken where it is not there.

        Raises:
            Broken: it cannot be understood, or an entry that it names is another.
        """
        with _reading(checkpoint) as body:
            entries = sorted((int(number), hash) for number, hash in body["entries"].items())
            opening, *others = (entry_of(*entry) for entry in entries)
            book = cls.begin(opening)
            for entry in others:
                with _reading(entry) as named:
                    if entry.kind == "debit":
                        book.debits[entry.number] = Debit.of(
                            entry, body["answered"][str(entry.number)]
                        )
                    else:
                        {"admit": book._admit, "head": book._move, "declare": book._declare}[
                            entry.kind
                        ](entry, named)
            book.answered, book.spent = (
                body["first"] + body["size"] - 1,
                Cost.from_json(body["spent"]),
            )
            book.backwards, book.last, book.checkpoint = (
                list(body["backwards"]),
                checkpoint,
                checkpoint,
            )
            book.batches = [Answered.of(checkpoint)]
            return book

    def state(self) -> dict[str, Any]:
        """What the next checkpoint tells, but for the digest of the answers since the one
        before.
        """
        lots = {number: debit for number, debit in self.debits.items() if debit.open}
        entries = self.rests | {number: debit.entry.hash for number, debit in lots.items()}
        first = (
            1
            if self.checkpoint is None
            else self.checkpoint.body["first"] + self.checkpoint.body["size"]
        )
        return {
            "entries": {str(number): hash for number, hash in entries.items()},
            "answered": {str(number): debit.answered for number, debit in lots.items()},
            "first": first,
            "size": self.answered - first + 1,
            "earlier": self.checkpoint and [self.checkpoint.number, self.checkpoint.hash],
            "backwards": self.backwards,
        }

    def take(self, entry: Entry) -> None:
        """Go on with the next entry, which follows the last (chain.py).

        Raises:
            Broken: it is none that could have been made here.
        """
        rules = {
            "debit": self._debit,
            "answers": self._answers,
            "admit": self._admit,
            "head": self._move,
            "declare": self._declare,
            "checkpoint": self._check,
        }
        with _reading(entry) as body:
            if entry.kind not in rules:
                raise Broken(
                    f"entry {entry.number} is of the kind {entry.kind}, which this version of "
                    "agt does not know: use a newer version"
                )
            spent = rules[entry.kind](entry, body)
            if spent is self.spent:
                if body["spent"] != self.last.body["spent"]:
                    raise AlteredLedger(
                        f"entry {entry.number} changes the amount spent, but only a debit may do "
                        "that"
                    )
            elif not _same(spent, body["spent"]):
                size = body["size"]
                total = spent.as_json()
                recorded = body["spent"]
                raise AlteredLedger(
                    f"entry {entry.number} records the total {recorded}, but it should be {total} "
                    f"after the cost of the entry's {size} releases"
                )
        self.spent = spent if spent is self.spent else Cost.from_json(body["spent"])
        if entry.time < self.last.time:
            self.backwards.append(entry.number)
        self.last = entry
        self.kinds[entry.kind] += 1

    def _debit(self, entry: Entry, body: Mapping[str, Any]) -> Cost:
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

    def _answers(self, entry: Entry, body: Mapping[str, Any]) -> Cost:
        paid, size = self.debits[body["debit"]], body["size"]
        if body["first"] != self.answered + 1 or not 1 <= size <= paid.size - paid.answered:
            raise AlteredLedger(
                f"the answers that entry {entry.number} records are not the next ones that its "
                "debit paid for"
            )
        paid.answered += size
        self.answered += size
        self.batches.append(Answered.of(entry))
        return self.spent

    def _admit(self, entry: Entry, body: Mapping[str, Any]) -> Cost:
        table = AdmittedTable.of(body)
        if not self.is_new(table) or table.data in self.closed or self.counted_otherwise(table):
            raise AlteredLedger(
                f"entry {entry.number} admits data that the ledger already counts, or that a later "
                "table has replaced"
            )
        self.tables[table.data] = table
        self.admitted.setdefault(table.data, entry.number)
        self.rests[entry.number] = entry.hash
        self.closed |= {
            data: entry.number
            for data in table.before
            if data != table.data and data not in self.closed
        }
        return self.spent

    def _move(self, entry: Entry, body: Mapping[str, Any]) -> Cost:
        if not body["head"] or not isinstance(body["lost"], bool):
            raise AlteredLedger(
                f"entry {entry.number} moves the ledger's head file without naming its new place"
            )
        self.moved.append(MovedHead(entry.number, entry.time, body["lost"], self.head or None))
        self.heads.append((entry.number, str(body["head"])))
        self.rests[entry.number] = entry.hash
        return self.spent

    def _declare(self, entry: Entry, body: Mapping[str, Any]) -> Cost:
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
        self.rests[entry.number] = entry.hash
        return self.spent

    def _check(self, entry: Entry, body: Mapping[str, Any]) -> Cost:
        for name, value in self.state().items():
            if body[name] != value:
                raise AlteredLedger(
                    f"entry {entry.number} is a checkpoint that does not fit the entries before "
                    f"it: '{name}' should be {value}"
                )
        since = Answered.of(entry)
        self.debits = {number: debit for number, debit in self.debits.items() if debit.open}
        self.batches = [*(batch for batch in self.batches if batch.first < since.first), since]
        self.checkpoint = entry
        return self.spent

    @property
    def head(self) -> str:
        """Where a second head is kept, as was written last; empty: nowhere."""
        return self.heads[-1][1] if self.heads else ""

    def state_with(self, entry: int) -> LedgerState:
        """Return what claims say of the ledger, as it was with an entry; a second head is taken
        to lie away from it.
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
        """The first 16 digits of the first entry's hash, by which this ledger is told from
        others.
        """
        return self.opening.hash[:FIRST_DIGITS]

    def is_new(self, table: AdmittedTable) -> bool:
        """Whether to admit a table changes anything: it, or an earlier state of it that is still
        open, is not known yet.
        """
        return table.data not in self.tables or not {*table.before} <= {table.data, *self.closed}

    def counted_otherwise(self, table: AdmittedTable) -> AdmittedTable | None:
        """A table of the same data or file that was admitted with a unit which this one's does
        not cover.
        """
        shared = (other for other in self.tables.values() if table.shares(other))
        return next((other for other in shared if not table.unit.covers(other.unit)), None)

    @cached_property
    def _within(self) -> Allowance:
        allowance = self.population.allowance
        return replace(
            allowance,
            eps=allowance.eps * (1 + SLACK),
            delta=min(allowance.delta * (1 + SLACK), BELOW_ONE),
        )


def digest_of(rows: Iterable[tuple[int, bytes, int]]) -> str:
    """SHA-256 of answers (number, key, label), in order: the key's length in two bytes, the key,
    the label in eight.

    Raises:
        Broken: they are no keys and labels.
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


def _same(cost: Cost, node: Mapping[str, Any]) -> bool:
    expected = cost.as_json()
    return node.keys() == expected.keys() and all(
        value == node[name] or isclose(float(str(value)), float(str(node[name])), rel_tol=SAME)
        for name, value in expected.items()
    )


@contextmanager
def _reading(entry: Entry) -> Iterator[Mapping[str, Any]]:
    """Its body; Broken where it does not hold what its kind needs."""
    try:
        yield entry.body
    except (KeyError, TypeError, ValueError, AttributeError, ConfigError) as error:
        raise AlteredLedger(
            f"entry {entry.number} (of the kind {entry.kind!r}) does not have the form of such an "
            f"entry ({error!r})"
        ) from None


def unit_words(population: Population, tables: Iterable[AdmittedTable]) -> str:
    """Whose addition or removal the budget is about: the population's unit, and how many records
    it may have where.
    """
    return sentences.unit(population.unit, [table.counted for table in tables])


def clock(book: Book) -> list[str]:
    """A line for each time that the clock ran backwards, which changes nothing."""
    return [
        (
            f"the computer's clock went backwards between entries {number - 1} and {number}, so "
            "use the numbers of the entries, not their recorded times, to tell which entry came "
            "first"
        )
        for number in book.backwards
    ]


def budget(allowance: Allowance) -> str:
    """What may be spent in all."""
    return sentences.budget(allowance.eps, allowance.delta)


def refusal(population: Population, spent: Cost, guarantee: Guarantee) -> str:
    """Why not one release of this guarantee fits, and which would."""
    allowance = population.allowance
    largest, leak = _largest(allowance, spent, guarantee), allowance.leak_limit - spent.leak
    if largest is not None:
        fits = f"a release that is {largest} would still fit into the rest of the budget"
    elif isinstance(guarantee, GaussianDP) and not allowance.delta:
        fits = (
            "this release uses Gaussian noise, which needs a ledger whose budget has a delta "
            "above 0"
        )
    elif isinstance(guarantee, ApproximateDP) and guarantee.delta > leak >= 0:
        remaining_delta = float(leak)
        fits = (
            f"this release needs a delta of {guarantee.delta:g}, but only {remaining_delta:.3g} is "
            "left of the part of the ledger's delta that is reserved for such releases "
            f"(total.leaks={allowance.leaks:g})"
        )
    else:
        fits = "no release of this kind fits into the rest of the budget, however small its eps"
    return (
        f"the budget of {population.name} ({budget(allowance)} in total) is not enough for a "
        f"release that is {guarantee}, because eps = {eps_so_far(allowance, spent):.6g} is "
        f"already spent; {fits}"
    )


def _largest(allowance: Allowance, spent: Cost, guarantee: Guarantee) -> Guarantee | None:
    """The weakest guarantee of the same kind of which one release fits, to three digits; None:
    none.
    """
    name, refused = next(iter(guarantee.parameters.items()))

    def weaker(value: float) -> Guarantee:
        return read_guarantee({**guarantee.as_json, name: value})

    def fits(value: float) -> bool:
        return allowance.max_lot_size(spent, weaker(value), 1) == 1

    if not fits(MIN_BUDGET):
        return None
    most = largest_holding(fits, MIN_BUDGET, refused)
    unit = 10.0 ** (math.floor(math.log10(most)) - 2)  # three digits, rounded down
    rounded = math.floor(most / unit) * unit
    return weaker(max(MIN_BUDGET, float(f"{rounded:.3g}")))
