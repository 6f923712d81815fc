"""The SQLite file of a ledger: opening, checking, reading and writing it.

What was committed is on the disk, and each transaction is whole or not there (Lemma 6 of
docs/proofs/ledger.md). Reading changes nothing: a process that only reads opens a copy.
"""

import fcntl
import os
import re
import shutil
import sqlite3
import stat
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import cache
from hashlib import file_digest
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from urllib.parse import quote

from agt.errors import AgtError, Busy, CheckError, ConfigError
from agt.ledger.chain import AlteredLedger, Entry, Row
from agt.ledger.place import COMPANIONS, check_file, check_local, folder_alone, take_lock
from agt.messages import Message
from agt.store.atomic import sync_folder
from agt.store.lock import Lock, is_locked
from agt.store.reading import MAX_TEXT_BYTES, READ_FLAGS, Broken, open_plain

FORMAT = 1
APPLICATION = 0x61677431  # "agt1", in the file's header
# Only the owner may read a ledger: questions are private, and so are hashes of tables, with which a
# guess of a table can be tested.
MODE = 0o600
TABLES = """
CREATE TABLE entries (number INTEGER PRIMARY KEY, hash TEXT NOT NULL, text TEXT NOT NULL);
CREATE TABLE answers (number INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, label INTEGER NOT NULL);
CREATE TRIGGER entries_stay BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'entries are append-only'); END;
CREATE TRIGGER entries_remain BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'entries are append-only'); END;
CREATE TRIGGER answers_stay BEFORE UPDATE ON answers BEGIN SELECT RAISE(ABORT, 'answers are append-only'); END;
CREATE TRIGGER answers_remain BEFORE DELETE ON answers BEGIN SELECT RAISE(ABORT, 'answers are append-only'); END;
"""
_FILES = ("", "-wal")  # endings of the files that hold a ledger: SQLite's database and its log
SUFFIX = ".ledger"
"""The ending of the name of a ledger's file."""
MAX_COPIED_BYTES = 2**32  # of a ledger, and of its log; enough for some 40 million answers
SQLITE_MAGIC = b"SQLite format 3\0"
"""The first bytes of an SQLite file."""
_LOCK = "lock"  # the name of the lock file in the folder of a copy
_CONTROL = re.compile("[\0-\x08\x0e-\x1f\x7f]")  # control characters, which text does not have
_ATTEMPTS = 20  # to copy the file while nobody writes to it
_AT_ONCE = 500  # keys or rows in one query; every build of SQLite takes at least 999
_SYNCED = "PRAGMA synchronous=FULL; PRAGMA fullfsync=ON; PRAGMA checkpoint_fullfsync=ON;"
_FULL = (
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR_WRITE,
    sqlite3.SQLITE_IOERR_SHMSIZE,
    sqlite3.SQLITE_IOERR_SHMOPEN,
)
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_CLOSED = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM)
_WRITTEN: Counter[tuple[int, int, int]] = Counter()
"""How often each process has a file open for writing, by process, device and inode."""


@contextmanager
def copy_folder(seconds: float) -> Iterator[Path]:
    """Make a folder for one copy of a ledger, in TMPDIR/agt-UID, and remove it afterwards.

    TMPDIR/agt-UID can be read by this user alone. A folder there is locked while it is in use. The
    operating system releases the locks of a killed process, so whatever is not locked is left over,
    and is removed. TMPDIR/agt-UID is locked meanwhile, so that no folder is removed between its
    creation and its locking.

    Args:
        seconds: how long to wait for the lock of TMPDIR/agt-UID.

    Raises:
        AgtError: TMPDIR/agt-UID is another user's, or others can read it.
    """
    home = Path(gettempdir()) / f"agt-{os.getuid()}"
    home.mkdir(0o700, exist_ok=True)
    status = home.lstat()
    if status.st_uid != os.getuid() or status.st_mode & ~0o700 != stat.S_IFDIR:
        raise AgtError(
            f"{home}: other users can read this folder, but agt puts private copies of ledgers "
            "there: delete the folder, or set TMPDIR to another temporary folder"
        )
    with ExitStack() as held:
        with folder_alone(home, seconds):
            folder = Path(held.enter_context(TemporaryDirectory(dir=home)))
            lock = Lock(folder / _LOCK)
            lock.acquire()
            held.callback(lock.release)
            for left in home.iterdir() if lock.works else ():
                if not is_locked(left / _LOCK):
                    shutil.rmtree(left, ignore_errors=True)
        yield folder


def other_program(path: Path) -> str:
    """Return, in words, what a file is that cannot be a ledger; empty if it may be one.

    It is "text" if all of it is UTF-8 without control characters, and it does not begin like an
    SQLite file. It is "an SQLite file of another program" if it has another application id and no
    trigger of a ledger. So a ledger whose header was damaged is neither.
    """
    try:
        with open_plain(Path(os.path.realpath(path))) as file:
            content = file.read(MAX_TEXT_BYTES)
            is_complete = not file.read(1)
        if content.startswith(SQLITE_MAGIC):
            page_size = int.from_bytes(content[16:18])  # bytes, or 1 for 65,536
            is_cut_off = len(content) < page_size
            has_our_id = content[68:72] in (APPLICATION.to_bytes(4), b"")
            may_be_ours = has_our_id or is_cut_off or b"entries_stay" in content
            return "" if may_be_ours else "an SQLite file of another program"
        may_be_text = is_complete and not SQLITE_MAGIC.startswith(content[:16])
        return "text" if may_be_text and not _CONTROL.search(content.decode()) else ""
    except (Broken, UnicodeDecodeError):
        return ""


def identity_of(path: Path) -> dict[str, str]:
    """Return what identifies a file that cannot be opened as a ledger.

    It is the file's name with the SHA-256 of its bytes; or, if they cannot be read, with its mode,
    inode and size. Another file with the same name has another identity.
    """
    try:
        with open_plain(Path(os.path.realpath(path)), MAX_COPIED_BYTES) as file:
            identity = file_digest(file, "sha256").hexdigest()
    except Broken:
        status = path.lstat()
        identity = f"{status.st_mode:o} {status.st_ino} {status.st_size}"
    return {"file": path.name, "identity": identity}


class LedgerFile:
    """The open SQLite file of one ledger.

    Args:
        path: the path of the file.
        writing: False to read a copy of the file and its log, so that nothing there changes.
        seconds: how long to wait for other processes.

    Attributes:
        path: the path as it was given.
        real: the path with all links followed.

    Raises:
        ConfigError: the file does not exist, is where no ledger can be, or was written by a newer
            version of agt.
        CheckError: the file is damaged, or is not a ledger.
    """

    def __init__(self, path: Path, writing: bool = True, seconds: float = 60.0) -> None:
        check_file(path)
        self.path = path
        self.real = path.resolve()
        self.seconds = seconds
        self._writing = writing
        if writing:
            check_local(path, "move the ledger to a local disk, and give its new path")
        _check_header(path)
        self._process = os.getpid()
        self._turn = threading.RLock()
        self._file = _device_and_inode(self.real)
        with ExitStack() as opened, explained(path, seconds):
            place = self.real
            # A process that writes the file reads it through SQLite alone: closing any other
            # descriptor of the file would release the process's locks.
            if not (writing or _WRITTEN[self._process, *self._file]):
                place = self._copied(opened.enter_context(copy_folder(seconds)))
            self._connection = opened.enter_context(closing(_opened(place, seconds)))
            self._opened = opened.pop_all()
        _WRITTEN[self._process, *self._file] += writing

    def _copied(self, folder: Path) -> Path:
        """Copy the file and its log as they are at one moment, and return the copy's path.

        Raises:
            Broken: the copy needs more space than there is.
            AgtError: the file cannot be read or copied.
            Busy: the file changed during each attempt.
        """
        copies = [folder / f"ledger{suffix}" for suffix in _FILES]
        try:
            for _ in range(_ATTEMPTS):
                with self._halted() as halted:
                    before = self._state()
                    if sum(stamp[0] for stamp in before if stamp) > shutil.disk_usage(folder).free:
                        raise Broken(
                            f"to read the ledger, agt makes a copy in {folder}, but the file is "
                            "larger than the free space there: free some space, or set TMPDIR to "
                            "another folder"
                        )
                    for suffix, copy, stamp in zip(_FILES, copies, before, strict=True):
                        copy.unlink(missing_ok=True)
                        if stamp:
                            original = Path(f"{self.real}{suffix}")
                            with (
                                open_plain(original, MAX_COPIED_BYTES) as source,
                                copy.open("wb") as target,
                            ):
                                shutil.copyfileobj(source, target)
                    if before == self._state() and halted == Path(f"{self.real}-shm").exists():
                        return copies[0]
        except OSError as error:
            raise AgtError(
                f"ledger={self.path}: this file cannot be read or copied ({error.strerror}): make "
                "it readable, and check the free space in the temporary folder"
            ) from None
        raise Busy(
            f"ledger={self.path}: other processes changed the file each time agt tried to read "
            "it: type the command again"
        )

    @contextmanager
    def _halted(self) -> Iterator[bool]:
        """Keep other processes from writing, and yield whether any of them has the file open.

        If none has, SQLite's file of locks does not exist, and nothing is locked.
        """
        try:
            handle = os.open(f"{self.real}-shm", READ_FLAGS)
        except FileNotFoundError:
            yield False
            return
        try:
            # SQLite's writers lock byte 120 of this file, and its checkpoints byte 121.
            take_lock(
                handle,
                self.seconds,
                f"ledger={self.path}",
                lambda handle: fcntl.lockf(handle, fcntl.LOCK_SH | fcntl.LOCK_NB, 2, 120),
            )
            yield True
        finally:
            os.close(handle)

    def _state(self) -> tuple[tuple[int, int] | None, ...]:
        """Return (size, time of the last change) of the file and of its log.

        An item is None if that file does not exist.
        """
        paths = [Path(f"{self.real}{suffix}") for suffix in _FILES]
        stats = [path.stat() if path.exists() else None for path in paths]
        return tuple(stat and (stat.st_size, stat.st_mtime_ns) for stat in stats)

    def close(self) -> None:
        """Close the file; a forked process leaves it alone."""
        if os.getpid() == self._process:
            with explained(self.path, self.seconds):
                self._opened.close()
            _WRITTEN[self._process, *self._file] -= self._writing
            self._writing = False

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Let one thread at a time use the file; errors name the file.

        Raises:
            AgtError: another process opened the file.
        """
        if os.getpid() != self._process:
            raise AgtError(
                f"ledger={self.path}: the ledger was opened before this process was forked, but "
                "SQLite does not allow a forked process to use it: open the ledger in each "
                "process, after the fork"
            )
        with self._turn, explained(self.path, self.seconds):
            yield

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run one transaction while no other writes; it is on the disk when this ends.

        Raises:
            AgtError: the file was opened for reading alone.
            Broken: another file replaced it meanwhile.
        """
        if not self._writing:
            raise AgtError(
                f"ledger={self.path}: the ledger was opened only for reading, so nothing can be "
                "written to it: open the ledger for writing first"
            )
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            if _device_and_inode(self.real) != self._file:
                raise Broken(
                    "another file replaced the ledger's file while the ledger was open: open "
                    "the ledger again"
                )
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Let everything that is read inside be as it was at one moment."""
        self._connection.execute("BEGIN")
        try:
            yield
        finally:
            self._connection.execute("COMMIT")

    def texts(self, after: float = -inf) -> Iterator[Row]:
        """Yield (number, hash, text) of every entry with a number above ``after``, in order."""
        while rows := self._rows(
            "SELECT * FROM entries WHERE number > ? ORDER BY number LIMIT ?", (after, _AT_ONCE)
        ):
            yield from rows
            after = rows[-1][0]

    def text(self, number: int) -> str | None:
        """Return the text of an entry; None if there is no such entry."""
        rows = self._rows("SELECT text FROM entries WHERE number = ?", (number,))
        return str(rows[0][0]) if rows else None

    def newest(self, kind: str, most: float) -> Row | None:
        """Return (number, hash, text) of the newest entry of a kind; None if there is none.

        Args:
            kind: the kind of the entry.
            most: the largest number that the entry may have.
        """
        # A canonical text ends in its kind and its number.
        question = (
            "SELECT * FROM entries WHERE number <= ? AND text LIKE ? || number || '}' ORDER "
            "BY number DESC LIMIT 1"
        )
        rows = self._rows(question, (most, f'%,"kind":"{kind}","number":'))
        return rows[0] if rows else None

    def append(self, entry: Entry) -> None:
        """Add an entry."""
        self._connection.execute(
            "INSERT INTO entries VALUES (?, ?, ?)", (entry.number, entry.hash, entry.text)
        )

    def answers(self, keys: Sequence[bytes]) -> dict[bytes, tuple[int, int]]:
        """Return (number, label) of each key's answer; keys without an answer are left out."""
        stored: dict[bytes, tuple[int, int]] = {}
        for start in range(0, len(keys), _AT_ONCE):
            some = keys[start : start + _AT_ONCE]
            marks = ",".join("?" * len(some))
            rows = self._rows(
                f"SELECT key, number, label FROM answers WHERE key IN ({marks})", some
            )
            stored.update((key, (number, label)) for key, number, label in rows)
        return stored

    def answer_rows(self, first: int, size: int) -> list[tuple[int, bytes, int]]:
        """Return (number, key, label) of the answers from ``first`` to ``first + size - 1``.

        Answers that do not exist are left out.
        """
        return self._rows(
            "SELECT * FROM answers WHERE number >= ? AND number < ? ORDER BY number",
            (first, first + size),
        )

    def last_answer(self) -> int:
        """Return the largest number of an answer, 0 if there is none."""
        return int(self._rows("SELECT coalesce(max(number), 0) FROM answers", ())[0][0])

    def count_answers(self) -> int:
        """Return the number of answers."""
        return int(self._rows("SELECT count(*) FROM answers", ())[0][0])

    def add_answers(self, first: int, labels: Mapping[bytes, int]) -> None:
        """Add answers, numbered from ``first``."""
        rows = (
            (number, key, label) for number, (key, label) in enumerate(labels.items(), start=first)
        )
        self._connection.executemany("INSERT INTO answers VALUES (?, ?, ?)", rows)

    def check(self) -> None:
        """Raise AlteredLedger unless SQLite finds its file in order, to the last byte."""
        (fault,) = self._rows("PRAGMA integrity_check(1)", ())[0]
        if fault != "ok":
            damage = " ".join(str(fault).split())
            raise AlteredLedger(f"SQLite finds that the ledger's file is damaged ({damage})")
        (pages,), (size,) = (self._rows(f"PRAGMA page_{name}", ())[0] for name in ("count", "size"))
        extra_bytes = self.real.stat().st_size - pages * size
        if extra_bytes > 0:
            raise AlteredLedger(f"the ledger's file has {extra_bytes} extra bytes after its end")

    def _rows(self, question: str, values: Sequence[object]) -> list[tuple]:
        """Return the rows that a query finds.

        Args:
            question: the query in SQL.
            values: the values of its question marks.
        """
        with closing(self._connection.execute(question, values)) as rows:
            return rows.fetchall()


@contextmanager
def making(path: Path) -> Iterator[Path]:
    """Yield a path at which a new ledger is made, and rename it when it is complete.

    After an error nothing is left. The caller has locked the folder, so a file at the yielded path
    was left by a killed process, and is removed.

    Args:
        path: the path that the ledger gets.

    Raises:
        ConfigError: the path is on a network file system.
    """
    check_local(path, "create the ledger on a local disk")
    part = path.with_name(f"{path.name}.part")
    try:
        _remove(part)
        yield part
        part.rename(path)
        for folder in path.resolve().parents:
            sync_folder(folder)  # so that a power cut does not take the new names
    finally:
        _remove(part)


def _remove(path: Path) -> None:
    """Delete a database with all files that SQLite keeps beside it."""
    for suffix in ("", *COMPANIONS):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def make(path: Path, opening: Entry) -> None:
    """Create the file of a ledger with its first entry, at a path that ``making`` gave."""
    with explained(path, 0):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, MODE))
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.executescript(
                f"{_SYNCED} PRAGMA application_id={APPLICATION}; PRAGMA user_version={FORMAT};"
            )
            connection.executescript(f"BEGIN; {TABLES} COMMIT;")
            connection.execute(
                "INSERT INTO entries VALUES (?, ?, ?)", (1, opening.hash, opening.text)
            )
            # Only now, so that the log holds nothing of the new file.
            connection.execute("PRAGMA journal_mode=WAL")


def _opened(path: Path, seconds: float) -> sqlite3.Connection:
    """Open a file with SQLite.

    Args:
        path: the file, or a copy of it.
        seconds: how long SQLite waits for other processes.

    Raises:
        Broken: the file system supports no write-ahead log.
        AlteredLedger: the file has other tables or triggers than a ledger.
    """
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?mode=rw",
        timeout=seconds,
        isolation_level=None,
        check_same_thread=False,
        uri=True,
    )
    try:
        connection.executescript(f"PRAGMA trusted_schema=OFF; PRAGMA cell_size_check=ON; {_SYNCED}")
        (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
        if mode != "wal":
            raise Broken(
                "the file system does not support a write-ahead log (journal_mode is "
                f"{mode}): move the ledger to a local disk"
            )
        if (
            connection.execute("SELECT type, name, sql FROM sqlite_master ORDER BY name").fetchall()
            != _tables()
        ):
            raise AlteredLedger(
                "the tables or triggers of the ledger's file differ from those that agt creates"
            )
    except BaseException:
        connection.close()
        raise
    return connection


@cache
def _tables() -> list[tuple]:
    """Return (type, name, SQL) of each table and trigger of a ledger, sorted by name."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(TABLES)
        return connection.execute(
            "SELECT type, name, sql FROM sqlite_master ORDER BY name"
        ).fetchall()


def _check_header(path: Path) -> None:
    """Raise an error if a file is not a ledger, before SQLite creates a log beside it."""
    if not path.stat().st_size:
        raise CheckError(
            f"ledger={path}: this file is empty, so it is not a ledger: restore the newest intact "
            "copy of the ledger, or give the path of a ledger"
        )
    if not os.access(path, os.R_OK):
        raise AgtError(
            f"ledger={path}: you do not have permission to read this file (Permission denied): "
            "ask its owner, or make it readable"
        )
    try:
        uri = f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1"
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            version, application = (
                connection.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("user_version", "application_id")
            )
    except sqlite3.Error as error:
        if _primary(error) != sqlite3.SQLITE_NOTADB:
            return  # the file may be complete only together with its log
        raise CheckError(
            f"ledger={path}: this file is not a ledger (it is not an SQLite file, or its first "
            "bytes are lost): give the path of a ledger, or restore the newest intact copy"
        ) from None
    if application != APPLICATION:
        raise CheckError(
            f"ledger={path}: this file is an SQLite file of another program, not a ledger: "
            "give the path of a ledger"
        )
    if version > FORMAT:
        raise ConfigError(
            f"ledger={path}: a newer version of agt wrote this ledger (in format {version}): use "
            "that version"
        )


def _device_and_inode(path: Path) -> tuple[int, int]:
    """Return what tells a file from another one at the same path.

    Raises:
        Broken: the file does not exist.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        raise Broken(
            "the ledger's file no longer exists: restore the newest intact copy of the ledger"
        ) from None
    return status.st_dev, status.st_ino


def _primary(error: sqlite3.Error) -> int:
    """Return SQLite's primary result code, the lowest byte of the extended one."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


@contextmanager
def explained(path: Path, seconds: float) -> Iterator[None]:
    """Turn errors of SQLite and of the chain into errors that name the file and a remedy.

    Args:
        path: the ledger's file.
        seconds: how long this process waited for others.
    """
    try:
        yield
    except Broken as error:
        raise CheckError(f"ledger={path}: {error}") from None
    except sqlite3.Error as error:
        primary = _primary(error)
        if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise Busy(
                f"ledger={path}: another process has locked this file for {seconds:g} s, so "
                "nothing was written: check whether a process that uses the ledger is suspended "
                f"(the command fuser -v {path} lists such processes)"
            ) from None
        if getattr(error, "sqlite_errorcode", 0) in _FULL:
            raise AgtError(
                f"ledger={path}: the disk is full ({error}), so nothing was written: free "
                "some space"
            ) from None
        if primary in _CLOSED:
            raise AgtError(
                f"ledger={path}: this file cannot be written ({error}), so nothing was "
                "changed: make the file and its folder writable (SQLite creates its log next "
                "to the file)"
            ) from None
        if primary in _DAMAGED:
            raise CheckError(
                f"ledger={path}: the file is damaged ({error}): restore the newest intact copy of "
                "the ledger, and check it with agt verify"
            ) from None
        raise AgtError(f"ledger={path}: {error}") from error


def check_suffix(path: Path) -> None:
    """Raise ConfigError unless the name of a new ledger has the ending of ledgers."""
    if path.suffix != SUFFIX:
        raise ConfigError(
            f"ledger={path}: the file needs a name that ends in {SUFFIX}, because agt "
            "finds ledgers by this ending: choose such a name"
        )


def check_free(path: Path) -> None:
    """Raise ConfigError if a file already has the name of a new ledger."""
    if path.exists() or path.is_symlink():
        raise ConfigError(
            Message(
                "ledger={path}: this ledger already exists, and its budget cannot be "
                "changed; {config:agt ledger show} {path} shows it",
                path=path,
            )
        )
