"""Entries of a ledger, each bound to the one before it by its hash.

Formal guarantees
    An entry's hash is over its own content, its number and the hash before it. So whoever knows the
    last number and hash (a head) knows all of it: no other sequence of entries has the same one
    (SHA-256). Whoever rewrites an entry and every later one makes another chain, sound in itself:
    only a head kept at a second place tells the two apart.
    Hashes tell nothing about the data whose digests are in entries: the first entry holds 32 random
    bytes ("salt").

Whose records come and go together, as a run counts them, and whether a run protects whom a budget
is about.

Formal guarantees
    A guarantee between neighbours that differ in one unit of up to m records holds for units of up
    to n <= m records, named by the same column, as such neighbours are some of those (``covers``).
    Of a unit of n records, a guarantee that counts each record by itself says n times as much
    (group privacy), so it covers no column's.

Where a ledger may lie: a file of a local disk, under one name.

A ledger's head at a second place: a small file that tells an older copy of the ledger from the
ledger.

Two lines of text, each in a block of 4,096 bytes of its own; the one with the greater count counts:

    agt-ledger-head 1 LEDGER COUNT HASH CHECKSUM

LEDGER is the hash of the ledger's first entry, CHECKSUM the SHA-256 of what stands before it in the
line.

Formal guarantees
    Never ahead of the ledger: it is written after the ledger's commit, under a lock that is held
    from before the commit. So a ledger with fewer entries than its head, or with another entry
    where the head ends, is not the one it was.
    Only forwards: where the head is already further, or ends in another entry, the next debit stops
    before it spends. A write that a power cut tears hits one block, and the other holds the head
    before it. Then at most that one entry could be taken away unseen; a ledger that has it is ahead
    of its head, which is no fault.
"""

import fcntl
import json
import math
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from agt import sentences
from agt.errors import AgtError, Busy, CheckError, ConfigError
from agt.messages import Message
from agt.store import Broken, file_kind, write_atomic

Row = tuple[int, object, object]
START = "0" * 64
_EXACT = 2**53  # integers up to here are the same number in every reader of JSON
_ODD = re.compile(r"\\ud|[:,\[]-?\d{16}")  # what ``_check`` may refuse, in text that was read
HALF_CHARACTER = re.compile("[\ud800-\udfff]")
_HEAD = re.compile(r"([1-9]\d{0,15}):([0-9a-f]{16,64})")


class AlteredLedger(Broken):
    """A ledger is not as agt wrote it.

    Args:
        finding: what shows it, in one sentence.
    """

    def __init__(self, finding: str) -> None:
        super().__init__(
            f"{finding}, so the ledger was altered or damaged after agt wrote it. Restore the "
            "newest intact copy of the ledger"
        )


@dataclass(frozen=True)
class Head:
    """Where a chain ends: the number of entries, and the last one's hash, of which a person may
    have kept the start.
    """

    count: int
    hash: str

    def __str__(self) -> str:
        return f"{self.count}:{self.hash}"

    @classmethod
    def read(cls, text: str) -> "Head | None":
        """From COUNT:HASH, or COUNT: and at least the first 16 digits of it; None: it is none."""
        match = _HEAD.fullmatch(text.strip().lower())
        return cls(int(match[1]), match[2]) if match else None


@dataclass(frozen=True)
class Entry:
    """One entry.

    Attributes:
        number: 1 for the first.
        kind: what it tells: open, admit, debit, answers, head, checkpoint.
        body: plain JSON values.
        before: the hash of the entry before; ``START`` of the first.
    """

    number: int
    kind: str
    body: Mapping[str, Any]
    before: str

    @cached_property
    def text(self) -> str:
        """Canonical JSON of all of it, in ASCII: what is stored, and hashed.

        Raises:
            ConfigError: a value that not every reader of JSON reads alike.
        """
        _check(vars(self), "entry")
        return self._written

    @property
    def _written(self) -> str:
        node = {"number": self.number, "kind": self.kind, "before": self.before, "body": self.body}
        return json.dumps(node, sort_keys=True, separators=(",", ":"), allow_nan=False)

    @cached_property
    def hash(self) -> str:
        """SHA-256 of ``text``, in hexadecimal."""
        return hash_of(self.text)

    @property
    def head(self) -> Head:
        """A chain that ends here."""
        return Head(self.number, self.hash)

    @property
    def time(self) -> str:
        """When it was made, by the clock of the machine that made it; nothing rests on it."""
        return str(self.body.get("time", ""))

    @classmethod
    def read(cls, text: object, number: int, before: str | None, hash: object) -> "Entry":
        """From what ``text`` gave.

        Args:
            number, before: those that it must have, where it stands; ``before`` is None where only
                ``hash`` is known.
            hash: as it was written beside it: it shows a careless edit of the last entry, which
                none follows.

        Raises:
            Broken: it is not, byte for byte, or does not follow.
        """
        try:
            node = json.loads(str(text))
            entry = cls(node["number"], node["kind"], node["body"], node["before"])
            if _ODD.search(str(text)):
                _check(node, "entry")
            same = entry._written == text
        except (ValueError, TypeError, KeyError, RecursionError, ConfigError):
            same = False
        if not same:
            beginning = str(text)[:60]
            raise AlteredLedger(
                f"entry {number} was changed after it was written (its text now begins with "
                f"{beginning!r})"
            )
        vars(entry)["text"] = text  # known now
        if entry.hash != hash:
            raise AlteredLedger(
                f"entry {number} was changed (the hash of its text is not the recorded one)"
            )
        if entry.number != number:
            raise AlteredLedger(
                f"entry {number} is missing (the entry at its place has the number {entry.number})"
            )
        if before is not None and entry.before != before:
            raise AlteredLedger(f"entry {number} does not contain the hash of entry {number - 1}")
        return entry


def follow(rows: Iterable[Row], last: Entry | None = None) -> Iterator[Entry]:
    """The entries of a chain, each checked against the one before.

    Args:
        rows: (number, hash, text) of each, in order.
        last: the one before the first of them; None: none.

    Raises:
        Broken: one was edited, taken out, or put in.
    """
    number, before = (last.number, last.hash) if last else (0, START)
    for place, written, text in rows:
        number += 1
        if place != number:
            raise AlteredLedger(
                f"entry {number} is missing (the next entry that exists has the number {place})"
            )
        entry = Entry.read(text, number, before, written)
        before = entry.hash
        yield entry


def hash_of(text: str) -> str:
    """SHA-256 of an entry's text, in hexadecimal."""
    return sha256(text.encode()).hexdigest()


def _check(value: object, key: str) -> None:
    """Refuse what JSON writes and not everybody reads alike: half characters, NaN, infinity,
    integers beyond 2^53.
    """
    refused = ""
    if isinstance(value, str):
        if HALF_CHARACTER.search(value):
            refused = f"{value!r}, which contains half a character (a lone surrogate)"
    elif isinstance(value, Mapping):
        for name, part in value.items():
            if not isinstance(name, str):
                refused = f"the key {name!r}, which is not text"
                break
            _check(name, key)
            _check(part, name)
    elif isinstance(value, list | tuple):
        for part in value:
            _check(part, key)
    elif isinstance(value, float):
        if not math.isfinite(value):
            refused = f"{value} (only finite numbers)"
    elif isinstance(value, int):
        if abs(value) > _EXACT:
            refused = "whole numbers beyond 2^53, which some readers of JSON would round"
    elif value is not None:
        refused = f"a value of the type {type(value).__name__}"
    if refused:
        raise ConfigError(f"{key}: a ledger cannot store {refused}")


@dataclass(frozen=True)
class Unit:
    """What one step of privacy is in the records of a table.

    Attributes:
        column: that says whose record each is; None: each is a unit by itself.
        rows: at most so many records are one unit's.

    Raises:
        ConfigError: no name of a column, or no number of records.
    """

    column: str | None = None
    rows: int = 1

    def __post_init__(self) -> None:
        if self.column is not None and type(self.column) is not str:
            raise ConfigError(
                f"unit_column={self.column!r} is not text: give the name of the column that "
                "identifies people"
            )
        if type(self.rows) is not int or self.rows < 1:
            raise ConfigError(
                f"unit_rows={self.rows!r}: give a whole number of records, at least 1"
            )

    def covers(self, other: "Unit") -> bool:
        """Whether what is guaranteed of this unit is guaranteed of the other."""
        return self.column == other.column and self.rows >= other.rows

    @property
    def name(self) -> str:
        """In words, where nobody gave other ones."""
        return "one record" if self.column is None else f"one {self._shown}"

    @property
    def settings(self) -> str:
        """Of a training run that counts so."""
        return (
            "dataset.unit=null"
            if self.column is None
            else f"dataset.unit={self._shown} relation.unit_rows={self.rows}"
        )

    @property
    def _shown(self) -> str:
        """The column's name, fit for a line."""
        return sentences.printable(str(self.column))

    def __str__(self) -> str:
        """How it counts."""
        return (
            "each record by itself"
            if self.column is None
            else f"each person (column {self._shown}, up to {self.rows} records each)"
        )


EACH = Unit()


MOUNTS = Path("/proc/self/mountinfo")
NETWORK = (
    *(
        "9p",
        "afpfs",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "davfs",
        "glusterfs",
        "gpfs",
        "juicefs",
        "lustre",
        "ncpfs",
    ),
    *(
        "nfs",
        "nfs4",
        "orangefs",
        "prl_fs",
        "pvfs2",
        "rclone",
        "s3fs",
        "smb2",
        "smb3",
        "smbfs",
        "sshfs",
        "vboxsf",
        "vmhgfs",
    ),
    *("davfs2", "gcsfuse", "grpcfuse", "osxfs", "smbnetfs", "virtiofs", "vmhgfs-fuse"),
)
"""File systems of other machines, as mountinfo has them, with or without "fuse." before: no
memory is shared there.
"""


def check_local(path: Path, remedy: str) -> None:
    """Raise ConfigError where a file's disk is another machine's."""
    kind = file_system(path)
    if kind.removeprefix("fuse.") in NETWORK:
        raise ConfigError(
            f"ledger={path}: this file is on a network file system ({kind}), where processes on "
            f"different machines could each spend the same budget: {remedy}"
        )


COMPANIONS = ("-wal", "-shm", "-journal")  # what SQLite opens beside a file, whatever lies there


def check_file(path: Path) -> None:
    """Refuse what is no plain file of one name: SQLite keeps a log of its own beside each name.

    The files beside it are looked at before SQLite opens them: it would wait at a pipe, and a log
    that is a link to a device takes commits and keeps none.

    Raises:
        ConfigError: there is no plain file, or it has several names.
        CheckError: a file that SQLite keeps beside it is a link, a folder, a pipe or a device.
    """
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigError(
            Message(
                "ledger={path}: this file does not exist: create a ledger with "
                "{config:agt ledger init}",
                path=path,
            )
        ) from None
    except OSError as error:
        raise ConfigError(
            f"ledger={path}: this file cannot be read ({error.strerror}): make it readable, "
            "or give the path of another ledger"
        ) from None
    if stat.S_ISDIR(status.st_mode):
        raise ConfigError(f"ledger={path}: this is a folder: give the ledger's file")
    if not stat.S_ISREG(status.st_mode):
        raise ConfigError(
            f"ledger={path}: this is not a regular file (but a pipe, a socket or a "
            "device): give the ledger's file"
        )
    if status.st_nlink > 1:
        raise ConfigError(
            f"ledger={path}: the file has {status.st_nlink} names (hard links), so two "
            "processes that use different names could spend the same budget twice: delete "
            "the other names, or replace the file by a copy"
        )
    real = os.path.realpath(path)
    for companion in (Path(f"{real}{suffix}") for suffix in COMPANIONS):
        if os.path.lexists(companion) and (kind := file_kind(companion.lstat().st_mode)):
            raise CheckError(
                f"ledger={path}: next to this file there is {kind} named {companion.name}, but "
                "under this name SQLite needs a regular file. Nothing was read or written. Find "
                f"out who created {companion.name}, and remove it"
            )


def file_system(path: Path) -> str:
    """The name of the file system that a path is on; empty where the system does not tell (no
    /proc).
    """
    try:
        lines = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return ""
    there, kind = os.path.realpath(path), ""
    longest = -1
    for line in lines:
        fields, _, tail = line.partition(" - ")
        mount = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields.split(" ")[4])
        if (there == mount or there.startswith(mount.rstrip("/") + "/")) and len(mount) >= longest:
            longest, kind = len(mount), tail.split(" ")[0]
    return kind


def same_disk(one: Path, other: Path) -> bool:
    """Whether two files lie on one file system; unknown counts as not."""
    try:
        return one.stat().st_dev == other.stat().st_dev
    except OSError:
        return False


def take_lock(
    handle: int, seconds: float, name: str, lock: Callable[[int], object] | None = None
) -> None:
    """Lock an open file or folder against other processes, until it is closed.

    Args:
        lock: takes it, or raises OSError; None: all of it, for this process alone.

    Raises:
        Busy: somebody else has had it for so long.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            lock(handle) if lock else fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except (BlockingIOError, PermissionError):  # as fcntl tells it on some systems
            if time.monotonic() > deadline:
                raise Busy(
                    f"{name}: another process has locked this file for {seconds:g} s, so nothing "
                    "was written: check whether a suspended process still uses the ledger (the "
                    "command fuser -v lists such processes)"
                ) from None
            time.sleep(0.001)


@contextmanager
def folder_alone(folder: Path, seconds: float = 60.0) -> Iterator[None]:
    """Nobody else makes a ledger, or a copy of one, in this folder, or admits a table there."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        take_lock(handle, seconds, f"ledger: {folder}")
        yield
    finally:
        os.close(handle)


BLOCK = 4096  # what a disk writes at once
_WORD = "agt-ledger-head 1"
_BLOCK = re.compile(rf"({_WORD} (\S+) (\d+) (\S+)) (\S+)", re.ASCII)


@dataclass(frozen=True)
class SecondHead:
    """One ledger's.

    Attributes:
        path: of the file.
        ledger: the hash of the ledger's first entry.
    """

    path: Path
    ledger: str

    @property
    def name(self) -> str:
        """In a sentence."""
        return f"the head file {self.path} (which keeps a copy of the ledger's last entry)"

    def start(self, head: Head) -> None:
        """Make the file.

        Raises:
            ConfigError: something is there already.
        """
        if self.path.exists():
            raise ConfigError(
                f"head={self.path}: this file already exists, but each ledger needs a head file "
                "of its own (which keeps a copy of the ledger's last entry): choose another "
                "file. If an interrupted agt ledger init left this file there, delete it"
            )
        write_atomic(self.path, 2 * self._block(head))

    def read(self) -> Head:
        """What the file tells.

        Raises:
            Broken: it is gone, unreadable, or another ledger's.
        """
        with self._opened(os.O_RDONLY) as handle:
            return self._newest(handle)[0]

    def peek(self) -> Head | None:
        """What the file tells; None where there is none of this ledger that can be read."""
        try:
            return self.read()
        except (Broken, AgtError):
            return None

    @contextmanager
    def held(self, seconds: float) -> Iterator[tuple[Head, Callable[[Head], None]]]:
        """What it tells, and how to move it forwards, while nobody else can.

        Args:
            seconds: how long to wait for the lock.
        """
        with self._opened(os.O_RDWR) as handle:
            take_lock(handle, seconds, f"head={self.path}")
            head, place = self._newest(handle)
            yield head, lambda later: self._write(handle, later, 1 - place)

    def _block(self, head: Head) -> bytes:
        line = f"{_WORD} {self.ledger} {head.count} {head.hash}"
        return f"{line} {sha256(line.encode()).hexdigest()}".ljust(BLOCK - 1).encode() + b"\n"

    def _write(self, handle: int, head: Head, place: int) -> None:
        try:
            if os.pwrite(handle, self._block(head), place * BLOCK) < BLOCK:
                raise OSError("the disk stored only a part of the data")
            os.fsync(handle)
        except OSError as error:
            reason = error.strerror or error
            raise AgtError(
                f"head={self.path}: the head file (which keeps a copy of the ledger's last entry) "
                f"cannot be written ({reason}), but the debit is already in the ledger. So the "
                "debit counts as spent, although nothing is released for it. Make the head file "
                "writable before the next release"
            ) from error

    def _newest(self, handle: int) -> tuple[Head, int]:
        """The head with the greater count, and in which block it lies."""
        content = os.pread(handle, 2 * BLOCK, 0)
        heads = [
            (parts, place)
            for place in (0, 1)
            if (parts := _parsed(content[place * BLOCK : (place + 1) * BLOCK]))
        ]
        if not heads:
            raise Broken(
                f"{self.path} is damaged, or is not a head file (which keeps a copy of a ledger's "
                "last entry): restore this file, or give the right one with head="
            )
        if any(ledger != self.ledger for (ledger, _), _ in heads):
            raise Broken(
                f"{self.path} is the head file of another ledger (it keeps a copy of that ledger's "
                "last entry): give this ledger's head file with head=. If another ledger replaced "
                "this ledger's own file, restore the earlier file"
            )
        return max(((head, place) for (_, head), place in heads), key=lambda pair: pair[0].count)

    @contextmanager
    def _opened(self, flags: int) -> Iterator[int]:
        try:
            if not stat.S_ISREG(self.path.stat().st_mode):
                raise Broken(
                    f"{self.path} is not a regular file, so it cannot be a ledger's head file "
                    "(which keeps a copy of its last entry): give the right file with head="
                )
            handle = os.open(self.path, flags | os.O_CLOEXEC)
        except FileNotFoundError:
            raise Broken(
                f"the ledger's head file {self.path} (which keeps a copy of the ledger's last "
                "entry) is missing, so agt cannot tell the ledger from an older copy of itself. "
                "Restore the head file, or give its new place with head=FILE. To check a mere "
                "copy of a ledger, run agt verify with head=COUNT:HASH, as agt printed it earlier"
            ) from None
        except OSError as error:
            reason = error.strerror or error
            consequence = "" if flags == os.O_RDONLY else ". Nothing was spent"
            access = "read" if flags == os.O_RDONLY else "written"
            raise AgtError(
                f"head={self.path}: this head file (which keeps a copy of the ledger's last "
                f"entry) cannot be {access} ({reason}){consequence}. Make it readable and writable"
            ) from error
        try:
            yield handle
        finally:
            os.close(handle)


def head_file(head: Path, ledger: Path) -> Path:
    """Where a ledger's second head lies: the file that is named, or in the folder, under the
    ledger's name.
    """
    place = Path(os.path.abspath(head))
    place = place / f"{ledger.stem}.head" if place.is_dir() else place
    if place.resolve() == ledger.resolve():
        raise ConfigError(
            f"head={head}: this is the ledger itself, but the head file (which keeps a copy of "
            "the ledger's last entry) must be another file: give another file, preferably on "
            "another disk"
        )
    return place


def _parsed(block: bytes) -> tuple[str, Head] | None:
    """(ledger, head) of a block that is whole."""
    match = _BLOCK.fullmatch(block.rstrip(b" \n").decode(errors="replace"))
    if match is None or sha256(match[1].encode()).hexdigest() != match[5]:
        return None
    return match[2], Head(int(match[3]), match[4])
