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
from agt_cli.command_settings.unlearn import By

KEY_FILE = "unlearning/key"
SIZE = 16  # bytes of a hash
_KEY_BYTES = 32
KeyKind = Literal["record", "unit", "content", "codes", "check"]


@dataclass(frozen=True)
class HashKey:
    """The secret key of one run, under which its request log and index hash names.

    Attributes:
        secret: 32 random bytes.

    Raises:
        ConfigError: ``secret`` does not have 32 bytes.
    """

    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        length = len(self.secret)
        if length != _KEY_BYTES:
            raise ConfigError(
                f"{KEY_FILE} has {length} bytes, but the key of a run must have {_KEY_BYTES} "
                "bytes: restore the file from a copy of the run"
            )

    @classmethod
    def of(cls, folder: Path) -> "HashKey | None":
        """Read the key in a run's folder; return None if the run has none.

        Raises:
            ConfigError: the file cannot be read, or does not have 32 bytes.
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
    def read_or_create(cls, folder: Path) -> "HashKey":
        """Read the key in a run's folder; write a new random key first if there is none.

        Two processes that do this at the same time both get the key that was written first.

        Raises:
            ConfigError: there is a key that cannot be read, or that does not have 32 bytes.
        """
        key = cls.of(folder)
        if key is None:
            _write_new(folder / KEY_FILE, secrets.token_bytes(_KEY_BYTES))
            # Read back, because another process may have written its key first.
            key = cls((folder / KEY_FILE).read_bytes())
        return key

    @property
    def check(self) -> str:
        """The hash of the empty text, in hexadecimal digits, with which keys can be compared.

        It is stored with the hashes, and reveals nothing about the key.
        """
        return _hexadecimal(self.names([""], "check")[0])

    def names(self, names: Sequence[str] | np.ndarray, kind: KeyKind) -> np.ndarray:
        """Return the keyed hash of each of n names, [n, 16] uint8.

        Args:
            names: the names, as text.
            kind: what they name. The same name has another hash for each kind.
        """
        return self._hashes((str(name).encode() for name in names), len(names), kind)

    def rows(self, rows: np.ndarray, kind: KeyKind) -> np.ndarray:
        """Return the keyed hash of each of n rows of bytes, [n, 16] uint8.

        Args:
            rows: [n, width] uint8.
            kind: as in ``names``.
        """
        content = memoryview(rows.tobytes())
        width = rows.shape[1]
        return self._hashes(
            (content[start : start + width] for start in range(0, len(content), width)),
            len(rows),
            kind,
        )

    def _hashes(
        self, contents: Iterable[bytes | memoryview], count: int, kind: KeyKind
    ) -> np.ndarray:
        """Return the keyed hash of each content, [count, 16] uint8.

        Args:
            contents: what is hashed.
            count: how many contents there are.
            kind: goes into the hashes, so that equal contents of two kinds have two hashes.
        """
        keyed = blake2b(digest_size=SIZE, key=self.secret, person=kind.encode())
        digests = []
        for content in contents:
            hasher = keyed.copy()  # faster than a new one with the key
            hasher.update(content)
            digests.append(hasher.digest())
        return np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(count, SIZE)


def as_words(hashes: np.ndarray) -> tuple[str, ...]:
    """Return the distinct hashes as a log lists them: hexadecimal digits, in increasing order.

    Args:
        hashes: [n, 16] uint8.
    """
    return tuple(sorted(set(map(_hexadecimal, hashes))))


def _hexadecimal(hash_bytes: np.ndarray) -> str:
    """Return one hash, [16] uint8, in hexadecimal digits."""
    return hash_bytes.tobytes().hex()


def _write_new(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read, unless a file is already at the path.

    A file that is already there stays as it is. A new file appears with its whole content at once,
    so that no other process reads part of it.
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
            os.link(part, path)  # appears whole, and fails if there is a file already
        except OSError:  # there is a file already, or the file system has no links
            if not path.exists():
                part.rename(path)
        sync_folder(path.parent)
    finally:
        part.unlink(missing_ok=True)


REQUEST_LOG_FILE = "unlearning/log.jsonl"
RequestKind = Literal["pending", "removed"]
KeyedHash = Annotated[str, Field(pattern=rf"^[0-9a-f]{{{2 * SIZE}}}$")]
StateName = Annotated[str, Field(pattern=r"^(sha256:)?[0-9a-f]{64}$")]
# A line of the log is _LINE_START, the JSON of the entry, _LINE_MIDDLE, its hash, _LINE_END.
_LINE_START = '{"entry":'
_LINE_MIDDLE = ',"hash":"'
_LINE_END = '"}\n'
_HASH_DIGITS = 64
# Files of a run that describe it, and so are not part of its model's state.
_DESCRIBING_FILES = (
    "config.yaml",
    "env.json",
    "status.json",
    "metrics.json",
    "report.md",
    "report.html",
    "spent.json",
    REQUEST_LOG_FILE,
)
_DESCRIBING_FOLDERS = ("tables/", "figures/")


@schema
class RequestEntry:
    """One request for erasure, and whether it was carried out.

    Attributes:
        kind: ``removed``: the request was carried out, together with everything that was pending;
            ``pending``: it waits for the next update.
        method: the method of unlearning that carried the request out; ``certificate`` is the one
            that keeps requests pending.
        by: what the ids of the request named: records, or units (people) with all of their records.
        records: keyed hashes of the ids of the requested records, in increasing order, hexadecimal.
            Empty if nothing new was requested, and only what was pending was carried out.
        units: keyed hashes of the units of these records, in the same form.
        promise: what was guaranteed, as JSON.
        before: the run's digest before the request.
        after: the name of the model's state after it (``state_of``). A pending request does not
            change the state.
        key: identifies the key of the hashes (``HashKey.check``).
        facts: further values for the account of the erasure: the method's ``removal``, and numbers.
        time: by the clock of the machine; no check depends on it.
        number: the place of the entry in the chain, from 1; 0 until it is appended.
        hash: the hash of the entry in the chain; empty until it is appended.

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
        """The values that the chain hashes, besides the number, the kind and the hash before."""
        return {name: value for name, value in asdict(self).items() if name in _BODY}

    @property
    def removal(self) -> Removal:
        """What the method of unlearning recorded about the removal.

        Raises:
            Broken: the entry has no such record, or one that cannot be read.
        """
        try:
            return read_removal(self.promise, self.facts["removal"])
        except (ConfigError, TypeError, ValueError, KeyError) as error:
            raise Broken(
                f"entry {self.number} of {REQUEST_LOG_FILE} does not record what was done to "
                f"the model ({error}): restore the file from a copy of the run"
            ) from None

    @classmethod
    def of(cls, link: chain.Entry) -> "RequestEntry":
        """Return the request that an entry of the chain records.

        Raises:
            Broken: the entry does not have the fields of a request, or a value is invalid.
        """
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
    """All requests for erasure of one run, the oldest first."""

    entries: tuple[RequestEntry, ...] = ()

    @classmethod
    def read(cls, content: bytes) -> "Log":
        """Parse a log and check its chain.

        Args:
            content: the bytes of the file; empty: there was no request yet.

        Raises:
            Broken: these are not bytes that agt wrote; the message names the line.
        """
        entries: list[RequestEntry] = []
        hash_before = chain.START
        if not content.isascii():
            raise Broken(
                f"{REQUEST_LOG_FILE} was altered or damaged after agt wrote it, because it "
                "contains characters outside ASCII. Restore it from a backup of the run"
            )
        for number, line in enumerate(content.decode().splitlines(keepends=True), 1):
            digest_at = len(line) - len(_LINE_END) - _HASH_DIGITS
            digest = line[digest_at : -len(_LINE_END)]
            text = line[len(_LINE_START) : digest_at - len(_LINE_MIDDLE)]
            try:
                if line != f"{_LINE_START}{text}{_LINE_MIDDLE}{digest}{_LINE_END}":
                    beginning = line[:60]
                    raise Broken(
                        f"entry {number} of the request log was altered or damaged after agt "
                        f"wrote it (the entry begins with {beginning!r}). Restore the run's "
                        "folder from a backup"
                    )
                link = chain.Entry.read(text, number, hash_before, digest)
                entries.append(RequestEntry.of(link))
            except Broken as error:
                raise Broken(f"{REQUEST_LOG_FILE}, line {number}: {error}") from None
            hash_before = digest
        return cls(tuple(entries))

    @classmethod
    def of(cls, run: Folder) -> "Log":
        """Read and check the log of a finished run; it is empty if the run has no log.

        Raises:
            ConfigError: the log was altered, or the run's files are not of the state that its last
                entry names.
        """
        if not run.holds(REQUEST_LOG_FILE):
            return cls()
        with broken_as_config_error(run.home, run.key):
            log = cls.read(run.read(REQUEST_LOG_FILE))
            log.check_state(run.manifest.files)
        return log

    def append(self, entry: RequestEntry) -> "Log":
        """Return a new log that has one more entry; this log is not changed.

        Args:
            entry: the new entry. Its number and hash are replaced by those that it has in the
                chain, and its time, if it is empty, by the present time.
        """
        time = entry.time or datetime.now(UTC).isoformat(timespec="seconds")
        link = chain.Entry(
            number=len(self.entries) + 1,
            kind=entry.kind,
            body={**entry.body, "time": time},
            before=self.head.hash if self.head else chain.START,
        )
        # Read back, so that the new log is equal to one that is read from the file.
        read_back = chain.Entry.read(link.text, link.number, link.before, link.hash)
        return Log((*self.entries, RequestEntry.of(read_back)))

    @property
    def content(self) -> bytes:
        """The bytes of the file, from which ``read`` returns an equal log."""
        lines = []
        hash_before = chain.START
        for entry in self.entries:
            link = chain.Entry(entry.number, entry.kind, entry.body, hash_before)
            lines.append(f"{_LINE_START}{link.text}{_LINE_MIDDLE}{link.hash}{_LINE_END}")
            hash_before = entry.hash
        return "".join(lines).encode()

    @property
    def head(self) -> chain.Head | None:
        """The end of the chain, which can be noted elsewhere; None: the log is empty."""
        if not self.entries:
            return None
        last = self.entries[-1]
        return chain.Head(last.number, last.hash)

    @property
    def pending(self) -> tuple[RequestEntry, ...]:
        """The requests that wait for the next update: all after the last one carried out."""
        return self.entries[_last_removal(self.entries) :]

    def batch(self, number: int) -> tuple[RequestEntry, ...]:
        """Return an entry, and those before it that were still pending when it was appended.

        If the entry was carried out, these are the entries that one update carried out.

        Args:
            number: the number of the entry.
        """
        return self.entries[_last_removal(self.entries[: number - 1]) : number]

    @property
    def done(self) -> tuple[RequestEntry, ...]:
        """The requests that were carried out: all up to the last one that was."""
        return self.entries[: _last_removal(self.entries)]

    @cached_property
    def erased(self) -> frozenset[str]:
        """The keyed hashes of the records that were erased from the run's model."""
        return _union(entry.records for entry in self.done)

    @cached_property
    def waiting(self) -> frozenset[str]:
        """The keyed hashes of the records whose erasure was requested and not yet carried out."""
        return _union(entry.records for entry in self.pending)

    @cached_property
    def waiting_units(self) -> frozenset[str]:
        """The keyed hashes of the units with a record in ``waiting``.

        Stable distances are compared with their number.
        """
        return _union(entry.units for entry in self.pending)

    def check_key(self, key: HashKey | None) -> HashKey:
        """Return the key, after checking that this log's hashes were made with it.

        Args:
            key: the key in the run's folder; None: the run has none.

        Raises:
            Broken: there is no key, or the log was written with another one.
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
        """Raise Broken unless a run's files are of the state that the last entry names.

        Args:
            files: path -> sha256, as the run's manifest lists them.
        """
        if self.entries and self.entries[-1].after != state_of(files):
            number = len(self.entries)
            raise Broken(
                f"the model's files do not match their hashes in {REQUEST_LOG_FILE} (last "
                f"entry, number {number}): restore the run's folder from a backup"
            )


def state_of(files: Mapping[str, str]) -> str:
    """Return the name of a model's state: a hash over the names and hashes of its files.

    Args:
        files: path -> sha256, as a run's manifest lists them. Files that only describe the run do
            not enter the hash.
    """
    state = sorted((name, digest) for name, digest in files.items() if of_state(name))
    lines = "".join(f"{digest}  {name}\n" for name, digest in state)
    return f"sha256:{sha256(lines.encode()).hexdigest()}"


def of_state(name: str) -> bool:
    """Return whether a file of a run is part of its model's state.

    Every file is, except for the known ones that only describe the run.
    """
    return name not in _DESCRIBING_FILES and not name.startswith(_DESCRIBING_FOLDERS)


def _last_removal(entries: Sequence[RequestEntry]) -> int:
    """Return the number of the last entry that was carried out; 0: none was."""
    return max((entry.number for entry in entries if entry.kind == "removed"), default=0)


def _union(parts: Iterator[Sequence[str]]) -> frozenset[str]:
    """Return the distinct hashes of several lists."""
    return frozenset().union(*parts)


RECORD_INDEX_FILE = "records.bin"
FORMAT = 1  # the contents were hashed with every feature
CODES_FORMAT = 2  # the contents were hashed with codes instead of features
_CHUNK_BYTES = 2**20  # of features, which stay in the processor's cache until they are hashed


@dataclass(frozen=True)
class Index:
    """The training records of one state of a run.

    Attributes:
        key: identifies the key of the hashes (``HashKey.check``).
        ids: [n, 16] uint8, the keyed hash of each record's id.
        contents: [n, 16] uint8, the keyed hash of each record's content.
        units: [n, 16] uint8, the keyed hash of each record's unit; None: each record is its own
            unit.
        of_codes: the contents were hashed with codes instead of features.
    """

    key: str
    ids: np.ndarray
    contents: np.ndarray
    units: np.ndarray | None = None
    of_codes: bool = False

    @classmethod
    def from_records(cls, records: Records, key: HashKey) -> "Index":
        """Hash the training records of a run.

        Args:
            records: their features may be memory-mapped; they are read once, in pieces.
            key: of the run.
        """
        units = None
        units_in_contents = np.zeros((len(records), SIZE), np.uint8)
        if records.units is not records.ids and not np.array_equal(records.ids, records.units):
            # A unit that has several records is hashed once.
            encoded = pa.array(records.units, pa.string()).dictionary_encode()
            distinct = key.names(encoded.dictionary.to_pylist(), "unit")
            units = units_in_contents = distinct[encoded.indices.to_numpy()]
        # The first, empty piece is there for an index without records.
        nothing = np.empty((0, SIZE), np.uint8)
        pieces = itertools.chain([nothing], _contents(records, units_in_contents, key))
        return cls(
            key=key.check,
            ids=key.names(records.ids, "record"),
            contents=gathered(pieces, len(records)),
            units=units,
            of_codes=isinstance(records.features, CodedFeatures),
        )

    @classmethod
    def read(cls, content: bytes) -> "Index":
        """Parse the bytes of a file.

        Raises:
            Broken: these are not bytes that agt wrote.
        """
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
            columns = 3 if node["units"] else 2
            shape = (columns, int(node["records"]), SIZE)
            ids, *units, contents = np.frombuffer(rest, dtype=np.uint8).reshape(shape)
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
        """Read the index of a finished run; return None if the run is too old to have one.

        Args:
            run: the finished run.
            key: the key in its folder; None: the run has none.

        Raises:
            ConfigError: the index is damaged, or was not made with ``key``.
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
        """The bytes of the file, one part after the other, for ``read``."""
        head = {
            "format": CODES_FORMAT if self.of_codes else FORMAT,
            "key": self.key,
            "records": len(self),
            "units": self.units is not None,
        }
        yield json.dumps(head).encode() + b"\n"
        for hashes in (self.ids, self.units, self.contents):
            if hashes is not None:
                yield np.ascontiguousarray(hashes).data

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The hash of each record's id as a log lists it, in the records' order."""
        return tuple(map(_hexadecimal, self.ids))


def are_among(hashes: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return which rows of ``hashes`` are also rows of ``wanted``, [n] bool.

    Args:
        hashes: [n, 16] uint8.
        wanted: [m, 16] uint8.
    """
    is_wanted = pc.is_in(_column(hashes), _column(wanted))
    return np.asarray(is_wanted.to_numpy(zero_copy_only=False), dtype=bool)


def places(hashes: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return the numbers of the rows that ``are_among`` marks, in increasing order."""
    return np.flatnonzero(are_among(hashes, wanted))


def check_same(
    index: Index, records: Records, key: HashKey, coding: RowLookup | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Match the present records with those of a run by id, and check that none is new or changed.

    Records may be missing.

    Args:
        index: of the run's records.
        records: the n present records; their features may be held in another way than the run's
            were.
        key: of the run.
        coding: how features of these records can be held as codes; None: not known.

    Returns:
        The positions in the index of the records that are missing, [m]; and the position in the
        index of each of the present records, [n].

    Raises:
        DataError: records are new or changed, or in another order. The message counts them and
            names some, because it is for the owner.
    """
    # Contents are compared in the form of the index.
    held = records.held_as_codes(coding) if index.of_codes else records.held_as_array()
    present = Index.from_records(records if held is None else held, key)
    found = pc.index_in(_column(present.ids), _column(index.ids))
    position = pc.fill_null(found, -1).to_numpy()
    is_known = position >= 0
    is_changed = present.contents[is_known] != index.contents[position[is_known]]
    new = np.flatnonzero(~is_known)
    changed = np.flatnonzero(is_known)[is_changed.any(axis=1)]
    faults = []
    for fault, rows in (("new", new), ("changed", changed)):
        if len(rows):
            records_are = counted(len(rows), "record is", "records are")
            ids = few(records.ids[rows].tolist())
            faults.append(f"{records_are} {fault} ({ids})")
    if not faults and (np.diff(position) < 0).any():
        faults.append("the training records are not in the same order as at training")
    if faults:
        differences = "; ".join(faults)
        raise DataError(
            f"the data differ from those that the run was trained on: {differences}. Restore the "
            "data, or train again"
        )
    return np.setdiff1d(np.arange(len(index)), position), position


def check_asked(index: Index, missing: np.ndarray, requested: Collection[str]) -> None:
    """Raise DataError if the data lack records whose erasure nobody requested.

    Args:
        index: of the run's records.
        missing: [m] the positions in the index of the records that the data lack.
        requested: keyed hashes of the records whose erasure was requested.
    """
    lost = [row for row in missing.tolist() if index.words[row] not in requested]
    if lost:
        numbers = few(f"number {row + 1}" for row in lost)
        trained = len(index)
        lost_count = len(lost)
        raise DataError(
            f"the data lack {lost_count} of the {trained} training records ({numbers}), although "
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
        # A row's features are a function of its codes and of the look-ups, so these are hashed.
        constants = features.lookup.digest + records.labels.dtype.str.encode()
        features = features.codes
        kind = "codes"
    row_bytes = max(1, features[:1].nbytes)
    chunk_rows = max(1, _CHUNK_BYTES // row_bytes)
    for start in range(0, len(records), chunk_rows):
        rows = slice(start, start + chunk_rows)
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
    """Return hashes, [n, 16] uint8, as a column of arrow, which searches them by value."""
    flat = pa.py_buffer(np.ascontiguousarray(hashes))
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(SIZE), len(hashes), [None, flat])
