"""The requests to erase that a run has had: one line each, each bound to the one before, ids as keyed hashes alone.

    unlearning/log.jsonl    {"entry":{"before":HASH,"body":{...},"kind":"removed","number":1},"hash":HASH}

A line is an entry of a chain (ledger/chain.py). The run's manifest lists the file, so that a log that was edited, or cut
short, is another run's; the chain says beside that which line it was.

Formal guarantees
    Reading is strict: every byte of the file is one that ``Log.content`` writes of what was read. So an edit, an entry
    taken out or put in, another order, a line cut short and a key that nobody knows are refused. Whole lines missing at the
    end leave a sound chain: the manifest tells those, and so does ``check_state`` where the last line changed the state.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256
from typing import Any, Literal, get_args

from agt.folder import BoundFolder, refusing
from agt.ledger import chain
from agt.manifest import HASH, Broken
from agt.unlearning.keys import SIZE, Key
from agt.unlearning.promise import METHODS, MethodName, Removal

NAME = "unlearning/log.jsonl"
Kind = Literal["pending", "removed"]
By = Literal["id", "unit"]
_START, _MIDDLE, _END = '{"entry":', ',"hash":"', '"}'
_ABOUT = ("config.yaml", "env.json", "status.json", "metrics.json", "report.md", "report.html", "spent.json", NAME)
_DRAWN = ("tables/", "figures/")


@dataclass(frozen=True)
class Entry:
    """One request, and what became of it at that moment.

    Attributes:
        kind: ``removed``: it was carried out, with everything that was pending; ``pending``: it waits for the next update.
        method: that carried it out, or keeps it waiting (``certificate``).
        by: what the ids of the request named: records, or units (people) with all of their records.
        records: keyed hashes of the ids of the records that go, in increasing order, hexadecimal. None where nothing was
            asked for and only what was pending was carried out.
        units: the same of the units that these belong to.
        promise: what was guaranteed, as JSON.
        before: the run's digest until then.
        after: the name of the state from then on (``state_of``), which of a pending request is the one before.
        key: which key the hashes are of (``Key.check``).
        facts: what belongs to it and an account repeats: the method's ``removal``, and numbers beside it.
        time: by the clock of the machine; nothing rests on it.
        number, hash: of the entry in the chain.

    Raises:
        ValueError: a value that no entry has.
    """

    kind: Kind
    method: MethodName
    by: By
    records: tuple[str, ...]
    units: tuple[str, ...]
    promise: Mapping[str, Any]
    before: str
    after: str
    key: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    time: str = ""
    number: int = 0
    hash: str = ""

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind) or self.method not in METHODS or self.by not in get_args(By):
            raise ValueError(f"{self.kind}, {self.method}, {self.by}: no kind, method or way to ask")
        for name, hashes in (("records", self.records), ("units", self.units), ("key", (self.key,))):
            if any(not _is_hex(word, 2 * SIZE) for word in hashes) or list(hashes) != sorted(set(hashes)):
                raise ValueError(f"{name}: not keyed hashes in increasing order, each once")
        if bool(self.records) != bool(self.units) or (self.kind == "pending" and not self.records):
            raise ValueError("records and units go together, and a pending request has some")
        for name, word in (("before", self.before), ("after", self.after)):
            if not (isinstance(word, str) and HASH.fullmatch(word.removeprefix("sha256:"))):
                raise ValueError(f"{name}: {word!r} is no digest")
        if not isinstance(self.promise, Mapping) or not isinstance(self.facts, Mapping) or not isinstance(self.time, str):
            raise ValueError("promise and facts are objects, and time is text")

    @property
    def body(self) -> dict[str, Any]:
        """What the chain hashes, beside number, kind and the hash before."""
        return {name: value for name, value in asdict(self).items() if name in _BODY}

    @property
    def removal(self) -> Removal:
        """What its method said of it. Raises Broken: it was not kept."""
        try:
            return Removal.of(self.promise, self.facts["removal"])
        except (TypeError, ValueError, KeyError) as error:
            raise Broken(f"entry {self.number} of {NAME} keeps no account of what was done ({error})") from None

    @classmethod
    def of(cls, link: chain.Entry) -> "Entry":
        """From an entry of the chain. Raises Broken: another form."""
        try:
            if not isinstance(link.body, Mapping) or link.body.keys() != _BODY:
                raise ValueError(f"it does not hold {', '.join(sorted(_BODY))} alone")
            body = {key: tuple(value) if key in ("records", "units") else value for key, value in link.body.items()}
            return cls(kind=link.kind, number=link.number, hash=link.hash, **body)  # type: ignore[arg-type]
        except (ValueError, TypeError) as error:
            raise Broken(f"entry {link.number} is none of a request log: {error}") from None


_BODY = {item.name for item in fields(Entry)} - {"kind", "number", "hash"}


@dataclass(frozen=True)
class Log:
    """Every request of one run, the oldest first."""

    entries: tuple[Entry, ...] = ()

    @classmethod
    def read(cls, content: bytes) -> "Log":
        """From the file's bytes; empty: no request yet.

        Raises:
            Broken: it is not what was written; names the line.
        """
        entries, before = [], chain.START
        for number, line in enumerate(_lines(content), 1):
            try:
                link = chain.Entry.read(*_parts(line, number, before))
                entries.append(Entry.of(link))
            except Broken as error:
                raise Broken(f"{NAME}, line {number}: {error}") from None
            before = link.hash
        return cls(tuple(entries))

    @classmethod
    def of(cls, run: BoundFolder) -> "Log":
        """The log of a finished run; empty where it has none.

        Raises:
            ConfigError: it is not what was written, or the run's state is not the one that it tells of.
        """
        if not run.holds(NAME):
            return cls()
        with refusing(run.home, run.key):
            log = cls.read(run.read(NAME))
            log.check_state(run.manifest.files)
        return log

    def append(self, entry: Entry) -> "Log":
        """The log with one more entry, its number, time and hash filled in."""
        time = datetime.now(UTC).isoformat(timespec="seconds")
        body = {**entry.body, "time": entry.time or time}
        link = chain.Entry(len(self.entries) + 1, entry.kind, body, self.head.hash if self.head else chain.START)
        again = chain.Entry.read(link.text, link.number, link.before, link.hash)  # values as a reader has them
        return Log((*self.entries, Entry.of(again)))

    @property
    def content(self) -> bytes:
        """The file's bytes."""
        lines, before = [], chain.START
        for entry in self.entries:
            text = chain.Entry(entry.number, entry.kind, entry.body, before).text
            before = chain.hash_of(text)
            lines.append(f"{_START}{text}{_MIDDLE}{before}{_END}\n")
        return "".join(lines).encode()

    @property
    def head(self) -> chain.Head | None:
        """Where it ends, to be noted elsewhere; None: it is empty."""
        return chain.Head(self.entries[-1].number, self.entries[-1].hash) if self.entries else None

    @cached_property
    def _updates(self) -> int:
        """How many entries, from the first on, are carried out."""
        return max((entry.number for entry in self.entries if entry.kind == "removed"), default=0)

    @property
    def pending(self) -> tuple[Entry, ...]:
        """Requests that wait for the next update."""
        return self.entries[self._updates :]

    def batch(self, number: int) -> tuple[Entry, ...]:
        """The entries that an update carried out: its own, and those that were pending until then. Of a pending one: those
        that waited with it.

        Args:
            number: of its entry.
        """
        earlier = [entry.number for entry in self.entries[: number - 1] if entry.kind == "removed"]
        return self.entries[max(earlier, default=0) : number]

    @property
    def done(self) -> tuple[Entry, ...]:
        """Requests that were carried out."""
        return self.entries[: self._updates]

    @cached_property
    def erased(self) -> frozenset[str]:
        """Keyed hashes of the records that the run's state is without."""
        return _union(entry.records for entry in self.done)

    @cached_property
    def waiting(self) -> frozenset[str]:
        """Keyed hashes of the records that are asked for and still in the run's state."""
        return _union(entry.records for entry in self.pending)

    @cached_property
    def waiting_units(self) -> frozenset[str]:
        """Keyed hashes of the units that have a record in ``waiting``: what stable distances are compared with."""
        return _union(entry.units for entry in self.pending)

    def entry_of(self, record: str) -> Entry | None:
        """The request that a record, or a unit that was asked for as a whole, went by; None: nobody asked for it."""
        hits = (
            entry for entry in self.entries if record in entry.records or (entry.by == "unit" and record in entry.units)
        )
        return next(hits, None)

    def check_key(self, key: Key | None) -> Key:
        """The run's key, if its hashes are of this one.

        Raises:
            Broken: there is none, or it is another.
        """
        if key is None:
            raise Broken("unlearning/key is gone, without which nobody can tell which records were erased: bring it back")
        if any(entry.key != key.check for entry in self.entries):
            raise Broken("unlearning/key is not the one that the request log was written with: bring it back")
        return key

    def check_state(self, files: Mapping[str, str]) -> None:
        """Raise Broken unless the files of a run (its manifest's) are of the state that the last entry tells of."""
        if self.entries and self.entries[-1].after != state_of(files):
            raise Broken(
                f"{NAME} ends with entry {len(self.entries)}, and the model's files are of another state than it tells of"
            )


def state_of(files: Mapping[str, str]) -> str:
    """The name of a model's state: a hash over its files and theirs, without those that tell of a run beside it.

    Args:
        files: path -> sha256, as a manifest has them.
    """
    state = sorted((name, digest) for name, digest in files.items() if of_state(name))
    lines = "".join(f"{digest}  {name}\n" for name, digest in state)
    return f"sha256:{sha256(lines.encode()).hexdigest()}"


def of_state(name: str) -> bool:
    """Whether a run's file is one of its model's state; of a kind that nobody foresaw, it is."""
    return name not in _ABOUT and not name.startswith(_DRAWN)


def _lines(content: bytes) -> list[str]:
    try:
        text = content.decode("ascii")
    except UnicodeDecodeError:
        raise Broken(f"{NAME} is damaged: it is not plain ASCII") from None
    *lines, rest = text.split("\n")
    if rest:
        raise Broken(f"{NAME}, line {len(lines) + 1}: it breaks off")
    return lines


def _parts(line: str, number: int, before: str) -> tuple[str, int, str, str]:
    """(text, number, hash before, hash) of a line, as ``chain.Entry.read`` takes them."""
    text, digest = line[len(_START) : -(len(_MIDDLE) + 64 + len(_END))], line[-64 - len(_END) : -len(_END)]
    if line != f"{_START}{text}{_MIDDLE}{digest}{_END}" or not HASH.fullmatch(digest):
        raise Broken(f"entry {number} is not as it was written: {line[:60]!r}")
    return text, number, before, digest


def _union(parts: Iterator[Sequence[str]]) -> frozenset[str]:
    return frozenset().union(*parts)


def _is_hex(word: object, digits: int) -> bool:
    return isinstance(word, str) and len(word) == digits and set(word) <= set("0123456789abcdef")
