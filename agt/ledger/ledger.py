"""A ledger: what was released about one population, in one SQLite file; it says what may still be, and remembers answers.

    ledger = Ledger.open(Path("ledgers/loans.ledger"))
    debit = ledger.debit(Charge(...), wanted=1000)     durable before it returns; raises Exhausted where nothing fits
    ledger.answer(debit, {key: label, ...})            what was drawn, for whoever asks the same again

Formal guarantees
    Every debit is on the disk, in the chain, and in the second head where there is one, before ``debit`` returns, and so
    before anything is drawn: a process that is killed later has spent it (write-ahead log, synchronous=FULL; the head
    after the commit, so that it never runs ahead of the ledger). Two debits at once are one after the other (BEGIN
    IMMEDIATE), each seeing the other's cost. What is admitted depends on the entries alone (account.py).
"""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any

from agt.errors import AgtError, CheckError, ConfigError
from agt.ledger.chain import START, Entry, Head, follow
from agt.manifest import Broken
from agt.mechanisms.account import Allowance, Cost, Lot
from agt.mechanisms.guarantee import ApproximateDP, GaussianDP, Guarantee, PureDP

FORMAT = 1
APPLICATION = 0x61677431  # "agt1", in the file's header
KINDS: dict[str, type[Any]] = {"pure": PureDP, "approximate": ApproximateDP, "gaussian": GaussianDP}
_TABLES = """
CREATE TABLE entries (number INTEGER PRIMARY KEY, hash TEXT NOT NULL, text TEXT NOT NULL);
CREATE TABLE answers (key BLOB PRIMARY KEY, entry INTEGER NOT NULL, label INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX answers_by_entry ON answers (entry);
CREATE TRIGGER entries_stay BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'entries are append-only'); END;
CREATE TRIGGER entries_remain BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'entries are append-only'); END;
"""


class Exhausted(CheckError):
    """The budget does not hold what was asked for."""


@dataclass(frozen=True)
class Population:
    """Whose data the budget is about.

    Attributes:
        name: of the population, for people.
        unit: whose addition or removal makes a neighbour, in words ("one customer").
        relation: of every run that is answered from.
        allowance: the budget over all that is ever released.
    """

    name: str
    unit: str
    relation: str
    allowance: Allowance


@dataclass(frozen=True)
class Charge:
    """What is to be released.

    Attributes:
        guarantee: of each release.
        output: labels, weights, a number.
        mechanism: its name.
        run: the digest of the training run that it is released from; of weights trained with noise, empty.
        data: the digest of the data.
    """

    guarantee: Guarantee
    output: str
    mechanism: str
    run: str
    data: str


@dataclass(frozen=True)
class Debit:
    """An entry that was made.

    Attributes:
        head: the chain's end with it.
        size: how many releases it covers.
    """

    head: Head
    size: int


class Ledger:
    """One population's account, open.

    Attributes:
        path: of the file.
        population: as it was opened.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, head_file: Path | None) -> None:
        self.path, self._connection, self._head_file = path, connection, head_file
        entries = self.entries()
        if not entries or entries[0].kind != "open":
            raise Broken("the first entry does not open a ledger")
        self._opening = entries[0].body
        node = self._opening["population"]
        self.population = Population(node["name"], node["unit"], node["relation"], Allowance(**node["allowance"]))

    @classmethod
    def create(cls, path: Path, population: Population, head_file: Path | None = None) -> "Ledger":
        """Make a new one.

        Raises:
            ConfigError: something is there already.
        """
        if path.exists():
            raise ConfigError(f"ledger={path}: there is one already, and a budget is for good: agt ledger show {path}")
        path.parent.mkdir(parents=True, exist_ok=True)
        with _explained(path):
            connection = _connected(path)
            connection.executescript(f"PRAGMA application_id={APPLICATION}; PRAGMA user_version={FORMAT}; {_TABLES}")
            opening = Entry(1, "open", _timed({"population": asdict(population), "spent": Cost().as_json()}), START)
            connection.execute("INSERT INTO entries VALUES (?, ?, ?)", (1, opening.hash, opening.text))
        return cls(path, connection, head_file)

    @classmethod
    def open(cls, path: Path, head_file: Path | None = None) -> "Ledger":
        """Open one, and check the whole chain.

        Raises:
            ConfigError: there is none.
            CheckError: it was edited, or is older than its second head.
        """
        if not path.is_file():
            raise ConfigError(f"ledger={path}: no such file: agt ledger init makes one")
        with _explained(path):
            return cls(path, _connected(path), head_file)

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Give the file back."""
        self._connection.close()

    def entries(self) -> list[Entry]:
        """All of them, in order, each checked.

        Raises:
            Broken: the chain does.
        """
        with closing(self._connection.execute("SELECT text FROM entries ORDER BY number")) as rows:
            return follow(text for (text,) in rows)

    @property
    def last(self) -> Entry:
        """The newest entry."""
        (text,) = self._connection.execute("SELECT text FROM entries ORDER BY number DESC LIMIT 1").fetchone()
        return Entry.read(text)

    @property
    def spent(self) -> Cost:
        """By everything so far."""
        return Cost.of(self.last.body["spent"])

    def fitting(self, guarantee: Guarantee, wanted: int) -> int:
        """How many releases of this guarantee, up to ``wanted``, the budget still holds."""
        return self.population.allowance.fitting(self.spent, guarantee, wanted)

    def tables(self) -> dict[str, str]:
        """Data digest -> name of every table about these people that was admitted."""
        return {e.body["data"]: e.body["table"] for e in self.entries() if e.kind == "admit"}

    def admit(self, table: str, data: str) -> Entry:
        """Say that another table is about the same people, unit by unit, and shares their budget."""
        with self._writing():
            return self._append("admit", {"table": table, "data": data}, self.spent)

    def debit(self, charge: Charge, wanted: int) -> Debit:
        """Spend the budget of as many releases as it holds, up to ``wanted``; on the disk when this returns.

        Raises:
            Exhausted: it holds none.
        """
        with self._writing():
            before = self.spent
            size = self.population.allowance.fitting(before, charge.guarantee, wanted)
            if not size:
                raise Exhausted(f"ledger={self.path}: the budget of {self.population.name} holds no more of these releases")
            body = {**asdict(charge), "guarantee": describe(charge.guarantee), "size": size}
            entry = self._append("debit", body, before.plus(Lot(charge.guarantee, size).cost))
        return Debit(entry.head, size)

    def answer(self, debit: Debit, labels: Mapping[bytes, int]) -> None:
        """Keep what a debit's lot answered: key of a question -> label."""
        rows = sorted((key, debit.head.count, label) for key, label in labels.items())
        with self._writing():
            self._connection.executemany("INSERT OR IGNORE INTO answers VALUES (?, ?, ?)", rows)
            self._append("answers", {"debit": debit.head.count, "digest": _digest(rows)}, self.spent)

    def stored(self, keys: Sequence[bytes]) -> dict[bytes, int]:
        """Those of the questions that were answered before, with their labels."""
        found: dict[bytes, int] = {}
        for key in keys:
            row = self._connection.execute("SELECT label FROM answers WHERE key = ?", (key,)).fetchone()
            if row is not None:
                found[key] = row[0]
        return found

    def _append(self, kind: str, body: Mapping[str, Any], spent: Cost) -> Entry:
        last = self.last
        entry = Entry(last.number + 1, kind, _timed({**body, "spent": spent.as_json()}), last.hash)
        self._connection.execute("INSERT INTO entries VALUES (?, ?, ?)", (entry.number, entry.hash, entry.text))
        return entry

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One transaction, alone."""
        with _explained(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")


def describe(guarantee: Guarantee) -> dict[str, Any]:
    """A guarantee as JSON."""
    kind = next(name for name, kind in KINDS.items() if type(guarantee) is kind)
    return {"kind": kind, **guarantee.parameters}


def _timed(body: Mapping[str, Any]) -> dict[str, Any]:
    return {**body, "time": datetime.now(UTC).isoformat(timespec="seconds")}


def _digest(rows: Sequence[tuple[bytes, int, int]]) -> str:
    return sha256(b"".join(key + label.to_bytes(8, "little") for key, _, label in rows)).hexdigest()


def _connected(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=60, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    return connection


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """What SQLite or the chain raises, as an error that names the file."""
    try:
        yield
    except Broken as error:
        raise CheckError(f"ledger={path}: {error}") from None
    except sqlite3.Error as error:
        raise AgtError(f"ledger={path}: {error}") from error
