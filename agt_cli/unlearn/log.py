"""The requests to erase that a run has had: a line each, linked to the line before; ids are hashes.

    unlearning/log.jsonl    {"entry":{"before":HASH,"body":{...},"kind":"removed","number":1},
                             "hash":HASH}

A line is an entry of a chain (ledger/chain.py). The run's manifest lists the file, so that a log
that was edited, or cut short, is another run's. The chain also says which line was changed.

Formal guarantees
    - Reading is strict: every byte of the file is one that ``Log.content`` writes of what was read.
      So an edit, an entry that was taken out or put in, another order, a line that was cut short
      and a key that nobody knows are refused.
    - Whole lines that are missing at the end leave a sound chain. The manifest shows them, and so
      does ``check_state`` if the last line changed the state.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256
from typing import Annotated, Any, Literal

from pydantic import Field

from agt.errors import ConfigError, Superseded
from agt.ledger import chain
from agt.settings import schema
from agt.store.folder import Folder, broken_as_config_error
from agt.store.reading import Broken
from agt.unlearning.promise import MethodName, Removal, read_removal
from agt_cli.command_settings.unlearn import By
from agt_cli.unlearn.hash_key import SIZE, HashKey

REQUEST_LOG_FILE = "unlearning/log.jsonl"
RequestKind = Literal["pending", "removed"]
KeyedHash = Annotated[str, Field(pattern=rf"^[0-9a-f]{{{2 * SIZE}}}$")]
StateName = Annotated[str, Field(pattern=r"^(sha256:)?[0-9a-f]{64}$")]
_LINE = re.compile(r'\{"entry":(.*),"hash":"([0-9a-f]{64})"\}\n')
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
        """The fields that an entry of the chain stores: all but the kind, the number and the hash.

        The chain stores these three itself.
        """
        return {name: value for name, value in asdict(self).items() if name in _BODY_FIELDS}

    @property
    def removal(self) -> Removal:
        """What the method of unlearning recorded about the removal.

        Raises:
            Superseded: an early version of agt recorded it as sentences.
            Broken: the entry has no such record, or one that cannot be read.
        """
        try:
            return read_removal(self.promise, self.facts["removal"])
        except Superseded:
            raise
        except (ConfigError, TypeError, ValueError, KeyError) as error:
            raise Broken(
                f"entry {self.number} of {REQUEST_LOG_FILE} does not record what was done to "
                f"the model ({error}): restore the file from a copy of the run"
            ) from None

    @classmethod
    def from_chain(cls, link: chain.Entry) -> "RequestEntry":
        """Return the request that an entry of the chain stores.

        Raises:
            Broken: the entry does not have the fields of a request, or a value is invalid.
        """
        try:
            if not isinstance(link.body, Mapping) or link.body.keys() != _BODY_FIELDS:
                names = ", ".join(sorted(_BODY_FIELDS))
                raise ValueError(f"the entry must have exactly these fields: {names}")
            body = dict(link.body)
            # JSON has lists only.
            body["records"] = tuple(body["records"])
            body["units"] = tuple(body["units"])
            return cls(kind=link.kind, number=link.number, hash=link.hash, **body)  # type: ignore[arg-type]
        except (ConfigError, ValueError, TypeError) as error:
            raise Broken(
                f"entry {link.number} of the request log is damaged ({error}): "
                "restore the run's folder from a copy"
            ) from None


_BODY_FIELDS = {item.name for item in fields(RequestEntry)} - {"kind", "number", "hash"}


def _split_line(line: str) -> tuple[str, str]:
    """Return (JSON of the entry, hash) of a line of the log, as ``Log.content`` writes lines.

    Raises:
        Broken: the line has another form.
    """
    parts = _LINE.fullmatch(line)
    if parts is None:
        raise Broken(
            "the entry was altered or damaged after agt wrote it (it begins with "
            f"{line[:60]!r}). Restore the run's folder from a backup"
        )
    text, digest = parts.groups()
    return text, digest


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
            try:
                text, digest = _split_line(line)
                link = chain.Entry.read(text, number, hash_before, digest)
                entries.append(RequestEntry.from_chain(link))
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
        return Log((*self.entries, RequestEntry.from_chain(read_back)))

    @property
    def content(self) -> bytes:
        """The bytes of the file, from which ``read`` returns an equal log."""
        lines = []
        hash_before = chain.START
        for entry in self.entries:
            link = chain.Entry(entry.number, entry.kind, entry.body, hash_before)
            lines.append(f'{{"entry":{link.text},"hash":"{link.hash}"}}\n')
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
        return frozenset().union(*(entry.records for entry in self.done))

    @cached_property
    def waiting(self) -> frozenset[str]:
        """The keyed hashes of the records whose erasure was requested and not yet carried out."""
        return frozenset().union(*(entry.records for entry in self.pending))

    @cached_property
    def waiting_units(self) -> frozenset[str]:
        """The keyed hashes of the units with a record in ``waiting``.

        Stable distances are compared with their number.
        """
        return frozenset().union(*(entry.units for entry in self.pending))

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
    lines = "".join(
        f"{digest}  {name}\n"
        for name, digest in sorted(files.items())
        if name not in _DESCRIBING_FILES and not name.startswith(_DESCRIBING_FOLDERS)
    )
    return f"sha256:{sha256(lines.encode()).hexdigest()}"


def _last_removal(entries: Sequence[RequestEntry]) -> int:
    """Return the number of the last entry that was carried out; 0: none was."""
    return max((entry.number for entry in entries if entry.kind == "removed"), default=0)
