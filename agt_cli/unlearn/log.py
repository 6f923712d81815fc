"""The requests to erase that a run has had: one line each, each bound to the one before, ids as
keyed hashes alone.

    unlearning/log.jsonl    {"entry":{"before":HASH,"body":{...},"kind":"removed","number":1},
                             "hash":HASH}

A line is an entry of a chain (ledger/chain.py). The run's manifest lists the file, so that a log
that was edited, or cut short, is another run's; the chain says beside that which line it was.

Formal guarantees
    Reading is strict: every byte of the file is one that ``Log.content`` writes of what was read.
    So an edit, an entry taken out or put in, another order, a line cut short and a key that nobody
    knows are refused. Whole lines missing at the end leave a sound chain: the manifest tells those,
    and so does ``check_state`` where the last line changed the state.

The secret of one run, under which its log and its index name people: without it nobody can test a
guess.

Formal guarantees
    A name in the log or in the index is BLAKE2b keyed with 32 random bytes that lie in the run's
    folder alone, in a file of mode 600 that no manifest lists. As BLAKE2b is a pseudorandom
    function of its key, whoever has log and index and not the key learns from them how many records
    there are and which entries are equal, and nothing of any id: a guessed id cannot be tested.
    Record ids, units and contents are hashed apart (``person``), so that an id that is also a
    person's name has two hashes that nobody can bring together.

Which records a run was trained on, as keyed hashes: told apart later from what its table has by
then.

    records.bin    one line of JSON {"format", "key", "records", "units"}, then 16 bytes of each
                   record's id, then of each one's unit where units are not the records themselves,
                   then of each one's content

Records are in the order of the training set. A content is a record's features as they were loaded,
its label, its unit and whether it is public. All is hashed under the run's key. In format 1 the
content has every feature. In format 2, of a table whose features are held as codes, it has the
record's codes and the digest of what they stand for (``RowLookup.digest``) instead; so records with
the same content have the same features in both.
"""

import itertools
import json
import os
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from functools import cached_property
from hashlib import blake2b, sha256
from pathlib import Path
from threading import get_ident
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from agt.data.arrays import gathered
from agt.data.coded import CodedFeatures, RowLookup
from agt.data.records import Records
from agt.errors import ConfigError, DataError, counted, few
from agt.ledger import chain
from agt.settings import schema
from agt.store.atomic import sync_folder
from agt.store.folder import Folder, broken_as_config_error
from agt.store.reading import Broken
from agt.unlearning.promise import MethodName, Removal, read_removal
from agt_cli.command_settings import By

KEY_FILE = "unlearning/key"
SIZE = 16  # bytes of a hash
_LENGTH = 32
KeyKind = Literal["record", "unit", "content", "codes", "check"]


@dataclass(frozen=True)
class HashKey:
    """The secret of one run.

    Raises:
        ConfigError: not 32 bytes.
    """

    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.secret) != _LENGTH:
            length = len(self.secret)
            raise ConfigError(
                f"{KEY_FILE} has {length} bytes, but the key of a run must have {_LENGTH} "
                "bytes: restore the file from a copy of the run"
            )

    @classmethod
    def of(cls, folder: Path) -> "HashKey | None":
        """The key that lies in a run's folder; None: there is none.

        Raises:
            ConfigError: it cannot be read, or is none.
        """
        try:
            return cls((folder / KEY_FILE).read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            path = folder / KEY_FILE
            reason = error.strerror or error
            raise ConfigError(
                f"{path}: agt cannot read this file ({reason}): make it readable"
            ) from None

    @classmethod
    def made(cls, folder: Path) -> "HashKey":
        """The key of a run's folder, made if there is none yet.

        Of two that make one at once, both get the same.
        """
        there = cls.of(folder)
        if there is None:
            _write_new(folder / KEY_FILE, secrets.token_bytes(_LENGTH))
            there = cls((folder / KEY_FILE).read_bytes())
        return there

    @property
    def check(self) -> str:
        """Tells whether another key is this one, and nothing else: hexadecimal."""
        return self._hash(b"", "check").hex()

    def names(self, names: Sequence[str] | np.ndarray, kind: KeyKind) -> np.ndarray:
        """[n, 16] uint8: the keyed hash of each name."""
        return self._hashes((str(name).encode() for name in names), len(names), kind)

    def rows(self, rows: np.ndarray, kind: KeyKind) -> np.ndarray:
        """[n, 16] uint8: the keyed hash of each row of bytes. ``rows``: [n, width] uint8."""
        content, width = memoryview(rows.tobytes()), rows.shape[1]
        return self._hashes(
            (content[start : start + width] for start in range(0, len(content), width)),
            len(rows),
            kind,
        )

    def _hashes(
        self, contents: Iterable[bytes | memoryview], count: int, kind: KeyKind
    ) -> np.ndarray:
        keyed = self._hasher(kind)
        digests = []
        for content in contents:
            hasher = keyed.copy()  # faster than a new one with the key
            hasher.update(content)
            digests.append(hasher.digest())
        return np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(count, SIZE)

    def _hash(self, content: bytes | memoryview, kind: KeyKind) -> bytes:
        hasher = self._hasher(kind)
        hasher.update(content)
        return hasher.digest()

    def _hasher(self, kind: KeyKind) -> blake2b:
        return blake2b(digest_size=SIZE, key=self.secret, person=kind.encode())


def as_words(hashes: np.ndarray) -> tuple[str, ...]:
    """[n, 16] uint8 as hexadecimal digits, one word each, in increasing order and each once:
    what a log lists.
    """
    return tuple(sorted({row.tobytes().hex() for row in hashes}))


def _write_new(path: Path, content: bytes) -> None:
    """Write a file that nobody else may read and that was not there; where it is by now, it
    stays.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part{os.getpid()}-{get_ident()}")
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(part, path)  # nothing else is exclusive and whole at once
        except OSError:  # it is there by now, or the file system has no links
            if not path.exists():
                part.rename(path)
        sync_folder(path.parent)
    finally:
        part.unlink(missing_ok=True)


REQUEST_LOG_FILE = "unlearning/log.jsonl"
RequestKind = Literal["pending", "removed"]
KeyedHash = Annotated[str, Field(pattern=rf"^[0-9a-f]{{{2 * SIZE}}}$")]
StateName = Annotated[str, Field(pattern=r"^(sha256:)?[0-9a-f]{64}$")]
_START, _MIDDLE, _END = '{"entry":', ',"hash":"', '"}\n'
_ABOUT = (
    "config.yaml",
    "env.json",
    "status.json",
    "metrics.json",
    "report.md",
    "report.html",
    "spent.json",
    REQUEST_LOG_FILE,
)
_DRAWN = ("tables/", "figures/")


@schema
class RequestEntry:
    """One request, and what became of it at that moment.

    Attributes:
        kind: ``removed``: it was carried out, with everything that was pending; ``pending``: it
            waits for the next update.
        method: that carried it out, or keeps it waiting (``certificate``).
        by: what the ids of the request named: records, or units (people) with all of their records.
        records: keyed hashes of the ids of the records that go, in increasing order, hexadecimal.
            None where nothing was asked for and only what was pending was carried out.
        units: the same of the units that these belong to.
        promise: what was guaranteed, as JSON.
        before: the run's digest until then.
        after: the name of the state from then on (``state_of``), which of a pending request is the
            one before.
        key: which key the hashes are of (``Key.check``).
        facts: what belongs to it and an account repeats: the method's ``removal``, and numbers
            beside it.
        time: by the clock of the machine; nothing rests on it.
        number, hash: of the entry in the chain.

    Raises:
        ConfigError: a value that no entry has.
    """

    kind: RequestKind
    method: MethodName
    by: By
    records: tuple[KeyedHash, ...]
    units: tuple[KeyedHash, ...]
    promise: dict[str, Any]
    before: StateName
    after: StateName
    key: KeyedHash
    facts: dict[str, Any] = field(default_factory=dict)
    time: str = ""
    number: int = 0
    hash: str = ""

    def __post_init__(self) -> None:
        for name, hashes in (("records", self.records), ("units", self.units)):
            if list(hashes) != sorted(set(hashes)):
                raise ConfigError(
                    f"the list '{name}' of an entry must contain keyed hashes in increasing "
                    "order, each only once"
                )
        if bool(self.records) != bool(self.units):
            raise ConfigError(
                "an entry of the request log must list both records and units, or neither"
            )
        if self.kind == "pending" and not self.records:
            raise ConfigError("the entry of a pending request must list at least one record")

    @property
    def body(self) -> dict[str, Any]:
        """What the chain hashes, beside number, kind and the hash before."""
        return {name: value for name, value in asdict(self).items() if name in _BODY}

    @property
    def removal(self) -> Removal:
        """What its method said of it. Raises Broken: it was not kept."""
        try:
            return read_removal(self.promise, self.facts["removal"])
        except (ConfigError, TypeError, ValueError, KeyError) as error:
            raise Broken(
                f"entry {self.number} of {REQUEST_LOG_FILE} does not record what was done to "
                f"the model ({error}): restore the file from a copy of the run"
            ) from None

    @classmethod
    def of(cls, link: chain.Entry) -> "RequestEntry":
        """From an entry of the chain. Raises Broken: another form."""
        try:
            if not isinstance(link.body, Mapping) or link.body.keys() != _BODY:
                names = ", ".join(sorted(_BODY))
                raise ValueError(f"the entry must have exactly these fields: {names}")
            body = {
                key: tuple(value) if key in ("records", "units") else value
                for key, value in link.body.items()
            }
            return cls(kind=link.kind, number=link.number, hash=link.hash, **body)  # type: ignore[arg-type]
        except (ConfigError, ValueError, TypeError) as error:
            raise Broken(
                f"entry {link.number} of the request log is damaged ({error}): "
                "restore the run's folder from a copy"
            ) from None


_BODY = {item.name for item in fields(RequestEntry)} - {"kind", "number", "hash"}


@dataclass(frozen=True)
class Log:
    """Every request of one run, the oldest first."""

    entries: tuple[RequestEntry, ...] = ()

    @classmethod
    def read(cls, content: bytes) -> "Log":
        """From the file's bytes; empty: no request yet.

        Raises:
            Broken: it is not what was written; names the line.
        """
        entries, before = list[RequestEntry](), chain.START
        if not content.isascii():
            raise Broken(
                f"{REQUEST_LOG_FILE} was altered or damaged after agt wrote it, because it "
                "contains characters outside ASCII. Restore it from a backup of the run"
            )
        for number, line in enumerate(content.decode().splitlines(keepends=True), 1):
            text, digest = (
                line[len(_START) : -(len(_MIDDLE) + 64 + len(_END))],
                line[-64 - len(_END) : -len(_END)],
            )
            try:
                if line != f"{_START}{text}{_MIDDLE}{digest}{_END}":
                    beginning = line[:60]
                    raise Broken(
                        f"entry {number} of the request log was altered or damaged after agt "
                        f"wrote it (the entry begins with {beginning!r}). Restore the run's "
                        "folder from a backup"
                    )
                entries.append(RequestEntry.of(chain.Entry.read(text, number, before, digest)))
            except Broken as error:
                raise Broken(f"{REQUEST_LOG_FILE}, line {number}: {error}") from None
            before = digest
        return cls(tuple(entries))

    @classmethod
    def of(cls, run: Folder) -> "Log":
        """The log of a finished run; empty where it has none.

        Raises:
            ConfigError: it is not what was written, or the run's state is not the one that it tells
                of.
        """
        if not run.holds(REQUEST_LOG_FILE):
            return cls()
        with broken_as_config_error(run.home, run.key):
            log = cls.read(run.read(REQUEST_LOG_FILE))
            log.check_state(run.manifest.files)
        return log

    def append(self, entry: RequestEntry) -> "Log":
        """The log with one more entry, its number, time and hash filled in."""
        time = datetime.now(UTC).isoformat(timespec="seconds")
        body = {**entry.body, "time": entry.time or time}
        link = chain.Entry(
            len(self.entries) + 1, entry.kind, body, self.head.hash if self.head else chain.START
        )
        # values as a reader has them
        again = chain.Entry.read(link.text, link.number, link.before, link.hash)
        return Log((*self.entries, RequestEntry.of(again)))

    @property
    def content(self) -> bytes:
        """The file's bytes."""
        befores = [chain.START, *(entry.hash for entry in self.entries)]
        pairs = zip(self.entries, befores, strict=False)
        links = [
            chain.Entry(entry.number, entry.kind, entry.body, before) for entry, before in pairs
        ]
        return "".join(f"{_START}{link.text}{_MIDDLE}{link.hash}{_END}" for link in links).encode()

    @property
    def head(self) -> chain.Head | None:
        """Where it ends, to be noted elsewhere; None: it is empty."""
        return chain.Head(self.entries[-1].number, self.entries[-1].hash) if self.entries else None

    @cached_property
    def _updates(self) -> int:
        """How many entries, from the first on, are carried out."""
        return max((entry.number for entry in self.entries if entry.kind == "removed"), default=0)

    @property
    def pending(self) -> tuple[RequestEntry, ...]:
        """Requests that wait for the next update."""
        return self.entries[self._updates :]

    def batch(self, number: int) -> tuple[RequestEntry, ...]:
        """The entries that an update carried out: its own, and those that were pending until then.
        Of a pending one: those that waited with it.

        Args:
            number: of its entry.
        """
        earlier = [entry.number for entry in self.entries[: number - 1] if entry.kind == "removed"]
        return self.entries[max(earlier, default=0) : number]

    @property
    def done(self) -> tuple[RequestEntry, ...]:
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
        """Keyed hashes of the units that have a record in ``waiting``: what stable distances are
        compared with.
        """
        return _union(entry.units for entry in self.pending)

    def check_key(self, key: HashKey | None) -> HashKey:
        """The run's key, if its hashes are of this one.

        Raises:
            Broken: there is none, or it is another.
        """
        if key is None:
            raise Broken(
                "unlearning/key is missing, but without this key agt cannot recognise the "
                "records that were erased: restore the file from a copy of the run"
            )
        if any(entry.key != key.check for entry in self.entries):
            raise Broken(
                "unlearning/key is not the key with which the request log was written: "
                "restore the original file from a copy of the run"
            )
        return key

    def check_state(self, files: Mapping[str, str]) -> None:
        """Raise Broken unless the files of a run (its manifest's) are of the state that the last
        entry tells of.
        """
        if self.entries and self.entries[-1].after != state_of(files):
            number = len(self.entries)
            raise Broken(
                f"the model's files do not match their hashes in {REQUEST_LOG_FILE} (last "
                f"entry, number {number}): restore the run's folder from a backup"
            )


def state_of(files: Mapping[str, str]) -> str:
    """The name of a model's state: a hash over its files and theirs, without those that tell of a
    run beside it.

    Args:
        files: path -> sha256, as a manifest has them.
    """
    state = sorted((name, digest) for name, digest in files.items() if of_state(name))
    lines = "".join(f"{digest}  {name}\n" for name, digest in state)
    return f"sha256:{sha256(lines.encode()).hexdigest()}"


def of_state(name: str) -> bool:
    """Whether a run's file is one of its model's state; of a kind that nobody foresaw, it is."""
    return name not in _ABOUT and not name.startswith(_DRAWN)


def _union(parts: Iterator[Sequence[str]]) -> frozenset[str]:
    return frozenset().union(*parts)


RECORD_INDEX_FILE = "records.bin"
FORMAT = 1  # contents with every feature
CODES_FORMAT = 2  # contents with codes
_AT_ONCE = 2**20  # bytes of features, which stay in the cache until they are hashed


@dataclass(frozen=True)
class Index:
    """The training records of one state of a run.

    Attributes:
        key: which key the hashes are of (``Key.check``).
        ids, contents: [n, 16] uint8.
        units: the same; None: each record is its own unit.
        of_codes: the contents have codes instead of features.
    """

    key: str
    ids: np.ndarray
    contents: np.ndarray
    units: np.ndarray | None = None
    of_codes: bool = False

    @classmethod
    def made(cls, records: Records, key: HashKey) -> "Index":
        """Of the training records; their features may be memory-mapped, and are read once, in
        pieces.
        """
        ids = key.names(records.ids, "record")
        own = records.units is records.ids or bool(np.array_equal(records.ids, records.units))
        # each hashed once
        coded = pa.array([] if own else records.units, pa.string()).dictionary_encode()
        names = key.names(coded.dictionary.to_pylist(), "unit")
        units = None if own else names[coded.indices.to_numpy()]
        marked = np.zeros((len(records), SIZE), np.uint8) if units is None else units
        contents = gathered(
            itertools.chain([np.empty((0, SIZE), np.uint8)], _contents(records, marked, key)),
            len(records),
        )
        return cls(key.check, ids, contents, units, isinstance(records.features, CodedFeatures))

    @classmethod
    def read(cls, content: bytes) -> "Index":
        """From the file's bytes. Raises Broken: they are not what was written."""
        head, _, rest = content.partition(b"\n")
        try:
            node = json.loads(head)
            written_format = node["format"]
            if written_format not in (FORMAT, CODES_FORMAT):
                raise Broken(
                    f"{RECORD_INDEX_FILE} has the format {written_format}, but this version "
                    f"of agt only reads the formats {FORMAT} and {CODES_FORMAT}: use the version "
                    "of agt that wrote it"
                )
            count, columns = int(node["records"]), 3 if node["units"] else 2
            ids, *units, contents = np.frombuffer(rest, dtype=np.uint8).reshape(
                columns, count, SIZE
            )
            return cls(
                key=str(node["key"]),
                ids=ids,
                contents=contents,
                units=units[0] if units else None,
                of_codes=written_format == CODES_FORMAT,
            )
        except (ValueError, TypeError, KeyError) as error:
            raise Broken(f"{RECORD_INDEX_FILE} is damaged ({error})") from None

    @classmethod
    def of(cls, run: Folder, key: HashKey | None) -> "Index | None":
        """A finished run's; None: it was made before runs kept one.

        Raises:
            ConfigError: it is damaged, or ``key`` is not the one that it was made with.
        """
        if not run.holds(RECORD_INDEX_FILE):
            return None
        with broken_as_config_error(run.home, run.key):
            index = cls.read(run.read(RECORD_INDEX_FILE))
            if key is None or key.check != index.key:
                problem = "unlearning/key is not the key with which records.bin was made"
                if key is None:
                    problem = "unlearning/key is missing"
                raise Broken(
                    f"{problem}, but without the right key agt cannot recognise records: "
                    "restore the file from a backup of the run"
                )
        return index

    @property
    def parts(self) -> Iterator[bytes | memoryview]:
        """The file's bytes, one part after the other."""
        head = {
            "format": CODES_FORMAT if self.of_codes else FORMAT,
            "key": self.key,
            "records": len(self),
            "units": self.units is not None,
        }
        yield json.dumps(head).encode() + b"\n"
        yield from (
            np.ascontiguousarray(c).data
            for c in (self.ids, self.units, self.contents)
            if c is not None
        )

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The hash of each record's id as the log has it, in the records' order."""
        return tuple(row.tobytes().hex() for row in self.ids)


def places(hashes: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """[.] which of ``hashes`` [n, 16] are among ``wanted`` [m, 16]."""
    return np.flatnonzero(pc.is_in(_column(hashes), _column(wanted)).to_numpy(zero_copy_only=False))


def check_same(
    index: Index, records: Records, key: HashKey, coding: RowLookup | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Match the records of now with those of a run, by id: some may be gone, and nothing else
    different.

    Args:
        index: of the run's records.
        records: those of now; their features may be held in another way than the run's were.
        key: of the run.
        coding: how features of these records can be held as codes; None: not known.

    Returns:
        ([.] which of the index's records are there no more; [n] where each of the records of now
        stands in the index).

    Raises:
        DataError: records came, changed, or stand in another order; counts them and names some, for
            the owner.
    """
    # Contents are compared in the form of the index.
    held = records.held_as_codes(coding) if index.of_codes else records.held_as_array()
    now = Index.made(records if held is None else held, key)
    faults = []
    place = pc.fill_null(pc.index_in(_column(now.ids), _column(index.ids)), -1).to_numpy()
    there = place >= 0
    changed = np.flatnonzero(there)[
        (now.contents[there] != index.contents[place[there]]).any(axis=1)
    ]
    for words, rows in (("new", np.flatnonzero(~there)), ("changed", changed)):
        if len(rows):
            records_are = counted(len(rows), "record is", "records are")
            ids = few(records.ids[rows].tolist())
            faults.append(f"{records_are} {words} ({ids})")
    if not faults and (np.diff(place) < 0).any():
        faults.append("the training records are not in the same order as at training")
    if faults:
        differences = "; ".join(faults)
        raise DataError(
            f"the data differ from those that the run was trained on: {differences}. Restore the "
            "data, or train again"
        )
    return np.setdiff1d(np.arange(len(index)), place), place


def check_asked(index: Index, gone: np.ndarray, asked: Collection[str]) -> None:
    """Raise DataError where records are gone from the data that nobody asked to erase.

    Args:
        gone: [.] their places in the index.
        asked: keyed hashes of the records that may be gone.
    """
    lost = [row for row in gone.tolist() if index.words[row] not in asked]
    if lost:
        numbers = few(f"number {row + 1}" for row in lost)
        trained = len(index)
        missing = len(lost)
        raise DataError(
            f"the data lack {missing} of the {trained} training records ({numbers}), although "
            "nobody requested their erasure. Restore these records, or request their erasure"
        )


def _contents(records: Records, units: np.ndarray, key: HashKey) -> Iterator[np.ndarray]:
    """Yield the keyed hashes of the contents of records, [m, 16] uint8 for m records at a time.

    Args:
        records: the records, with features that are held as codes or not.
        units: [n, 16] uint8, the keyed hash of each record's unit.
        key: of the run.
    """
    features = records.features
    kind: KeyKind = "content"
    constants = b""
    if isinstance(features, CodedFeatures):
        # The same features, as a row's features are a function of its codes and of the look-ups.
        constants = features.lookup.digest + records.labels.dtype.str.encode()
        features = features.codes
        kind = "codes"
    width = max(1, features[:1].nbytes)
    for start in range(0, len(records), max(1, _AT_ONCE // width)):
        rows = slice(start, start + max(1, _AT_ONCE // width))
        block = np.ascontiguousarray(features[rows])
        count = len(block)
        parts = [
            block.reshape(count, -1),
            records.labels[rows].reshape(count, 1),
            records.public[rows].reshape(count, 1),
        ]
        prefix = np.tile(np.frombuffer(constants, dtype=np.uint8), (count, 1))
        columns = [prefix, *(part.view(np.uint8) for part in parts), units[rows]]
        yield key.rows(np.concatenate(columns, axis=1), kind)


def _column(hashes: np.ndarray) -> pa.Array:
    """[n, 16] uint8 as arrow has it, whose searches are by value."""
    flat = pa.py_buffer(np.ascontiguousarray(hashes))
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(SIZE), len(hashes), [None, flat])
