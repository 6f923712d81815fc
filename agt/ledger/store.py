"""The SQLite file under a ledger: opened, checked, read, and written so that what was committed is
on the disk.

Formal guarantees
    A transaction that has returned is durable and whole (write-ahead log, synchronous=FULL: the log
    is synced at each commit); one that was killed left nothing. Writers are one after the other
    (BEGIN IMMEDIATE), on one machine: network file systems, and files of several names, are refused
    (chain.py). The file's tables are those that this module makes: no trigger or view of somebody
    else's stands between.
    Whoever looks changes nothing: a copy is read, of the file and its log as they were at one
    moment, while SQLite's own locks of writers and checkpoints are held. What is copied is a plain
    file of at most ``MAX_COPIED_BYTES``; copies lie in one folder of this user's (``copy_folder``),
    which the next call clears of what a killed process left there. SQLite alone opens the file in a
    process that writes it: a descriptor of somebody else's, once closed, would take that process's
    locks away, and another one would remove its log.
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
from agt.store import MAX_TEXT_BYTES, READ_FLAGS, Broken, Lock, is_locked, open_plain, sync_folder

FORMAT = 1
APPLICATION = 0x61677431  # "agt1", in the file's header
# questions are private, and so are hashes of whole tables, of which a guess can be tested
MODE = 0o600
TABLES = """
CREATE TABLE entries (number INTEGER PRIMARY KEY, hash TEXT NOT NULL, text TEXT NOT NULL);
CREATE TABLE answers (number INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, label INTEGER NOT NULL);
CREATE TRIGGER entries_stay BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'entries are append-only'); END;
CREATE TRIGGER entries_remain BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'entries are append-only'); END;
CREATE TRIGGER answers_stay BEFORE UPDATE ON answers BEGIN SELECT RAISE(ABORT, 'answers are append-only'); END;
CREATE TRIGGER answers_remain BEFORE DELETE ON answers BEGIN SELECT RAISE(ABORT, 'answers are append-only'); END;
"""
_FILES = ("", "-wal")
SUFFIX = ".ledger"
"""How the name of a ledger's file ends."""
MAX_COPIED_BYTES = 2**32  # of a ledger, and of its log: some 40 million answers
SQLITE_MAGIC = b"SQLite format 3\0"
"""What a file of SQLite begins with."""
_LOCK = "lock"  # of a copy's folder
_CONTROL = re.compile("[\0-\x08\x0e-\x1f\x7f]")  # characters that no text holds
_ATTEMPTS = 20  # at a copy that nobody writes to meanwhile
_AT_ONCE = 500  # keys of one question to SQLite, which takes 999 at least
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
"""Files that processes write, by process, device and number."""


@contextmanager
def copy_folder(seconds: float) -> Iterator[Path]:
    """A folder for one copy of a ledger, in TMPDIR/agt-UID, which is open to this user alone.

    It is locked as long as it is in use, and an operating system lets go of the locks of a killed
    process: so whatever is not locked there is left over, and is removed. The folder above is
    locked meanwhile, so that no folder is removed between its making and its locking.

    Args:
        seconds: how long to wait for that lock.

    Raises:
        AgtError: TMPDIR/agt-UID is another user's, or open to others.
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
            lock.take()
            held.callback(lock.release)
            for left in home.iterdir() if lock.works else ():
                if not is_locked(left / _LOCK):
                    shutil.rmtree(left, ignore_errors=True)
        yield folder


def other_program(path: Path) -> str:
    """What a file surely is that is no ledger, in words; empty: it may be one that cannot be
    opened.

    Text is UTF-8 throughout, without control characters, and not the start of an SQLite file. A
    file of another program is SQLite's, bears another application id, and knows no trigger of a
    ledger's: so a ledger whose header was damaged is neither.
    """
    try:
        with open_plain(Path(os.path.realpath(path))) as file:
            content = file.read(MAX_TEXT_BYTES)
            whole = not file.read(1)
        if content.startswith(SQLITE_MAGIC):
            cut = len(content) < int.from_bytes(content[16:18])  # the size of a page, or 1
            own = (
                content[68:72] in (APPLICATION.to_bytes(4), b"")
                or b"entries_stay" in content
                or cut
            )
            return "" if own else "an SQLite file of another program"
        text = whole and not SQLITE_MAGIC.startswith(content[:16])
        return "text" if text and not _CONTROL.search(content.decode()) else ""
    except (Broken, UnicodeDecodeError):
        return ""


def identity_of(path: Path) -> dict[str, str]:
    """By which a file that cannot be opened is known again: its name with the SHA-256 of its bytes.

    Where these cannot be read: its name with its mode, number and size. Another file under the same
    name has another identity.
    """
    try:
        with open_plain(Path(os.path.realpath(path)), MAX_COPIED_BYTES) as file:
            identity = file_digest(file, "sha256").hexdigest()
    except Broken:
        status = path.lstat()
        identity = f"{status.st_mode:o} {status.st_ino} {status.st_size}"
    return {"file": path.name, "identity": identity}


class LedgerFile:
    """One open file.

    Args:
        path: of a ledger.
        writing: False: a copy of it and its log is read, wherever they lie; nothing there changes.
        seconds: how long to wait for other processes.

    Attributes:
        path: as it was given.
        real: where that leads, through links.

    Raises:
        ConfigError: there is no such file, it lies where none can, or a newer agt made it.
        CheckError: it is damaged, or no ledger.
    """

    def __init__(self, path: Path, writing: bool = True, seconds: float = 60.0) -> None:
        check_file(path)
        self.path, self.real, self.seconds, self._writing = path, path.resolve(), seconds, writing
        if writing:
            check_local(path, "move the ledger to a local disk, and give its new path")
        _check_header(path)
        self._process, self._turn = os.getpid(), threading.RLock()
        self._file = _identity(self.real)
        with ExitStack() as opened, explained(path, seconds):
            place = self.real
            if not (writing or _WRITTEN[self._process, *self._file]):
                place = self._copied(opened.enter_context(copy_folder(seconds)))
            self._connection = opened.enter_context(closing(_opened(place, seconds)))
            self._opened = opened.pop_all()
        _WRITTEN[self._process, *self._file] += writing

    def _copied(self, folder: Path) -> Path:
        """A copy of the file, and of its log, as they are at one moment."""
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
        """While nobody writes; False: no process has it open, so that there are no locks."""
        try:
            handle = os.open(f"{self.real}-shm", READ_FLAGS)
        except FileNotFoundError:
            yield False
            return
        try:
            # the bytes that SQLite's writers (120) and checkpoints (121) lock for themselves are
            # shared
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
        """(bytes, time of the last change) of the file and of its log; None: it is not there."""
        paths = [Path(f"{self.real}{suffix}") for suffix in _FILES]
        stats = [path.stat() if path.exists() else None for path in paths]
        return tuple(stat and (stat.st_size, stat.st_mtime_ns) for stat in stats)

    def close(self) -> None:
        """Give the file back; in another process than the one that opened it, leave it alone."""
        if os.getpid() == self._process:
            with explained(self.path, self.seconds):
                self._opened.close()
            _WRITTEN[self._process, *self._file] -= self._writing
            self._writing = False

    @contextmanager
    def turn(self) -> Iterator[None]:
        """One thread at a time, in the process that opened it, and every failure as an error
        that names the file.
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
        """Alone among all writers; committed, and on the disk, at the end."""
        if not self._writing:
            raise AgtError(
                f"ledger={self.path}: the ledger was opened only for reading, so nothing can be "
                "written to it: open the ledger for writing first"
            )
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            if _identity(self.real) != self._file:
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
        """All that is read within is as it was at one moment."""
        self._connection.execute("BEGIN")
        try:
            yield
        finally:
            self._connection.execute("COMMIT")

    def texts(self, after: float = -inf) -> Iterator[Row]:
        """(number, hash, text) of every entry beyond a number, whatever its own is, some at a
        time.
        """
        while rows := self._rows(
            "SELECT * FROM entries WHERE number > ? ORDER BY number LIMIT ?", (after, _AT_ONCE)
        ):
            yield from rows
            after = rows[-1][0]

    def text(self, number: int) -> str | None:
        """An entry's; None: there is none."""
        rows = self._rows("SELECT text FROM entries WHERE number = ?", (number,))
        return str(rows[0][0]) if rows else None

    def newest(self, kind: str, most: float) -> Row | None:
        """(number, hash, text) of the newest entry of a kind, up to a number; None: there is
        none.
        """
        question = (
            "SELECT * FROM entries WHERE number <= ? AND text LIKE ? || number || '}' ORDER "
            "BY number DESC LIMIT 1"
        )
        # how a canonical text ends
        rows = self._rows(question, (most, f'%,"kind":"{kind}","number":'))
        return rows[0] if rows else None

    def append(self, entry: Entry) -> None:
        """Add the next entry."""
        self._connection.execute(
            "INSERT INTO entries VALUES (?, ?, ?)", (entry.number, entry.hash, entry.text)
        )

    def answers(self, keys: Sequence[bytes]) -> dict[bytes, tuple[int, int]]:
        """Those of the keys that have an answer, with (number, label)."""
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
        """(number, key, label) of the answers ``first`` ...

        ``first + size - 1``, as far as they are there.
        """
        return self._rows(
            "SELECT * FROM answers WHERE number >= ? AND number < ? ORDER BY number",
            (first, first + size),
        )

    def last_answer(self) -> int:
        """The greatest number of an answer; 0: there is none."""
        return int(self._rows("SELECT coalesce(max(number), 0) FROM answers", ())[0][0])

    def count_answers(self) -> int:
        """How many there are, whatever their numbers."""
        return int(self._rows("SELECT count(*) FROM answers", ())[0][0])

    def add_answers(self, first: int, labels: Mapping[bytes, int]) -> None:
        """Add answers, numbered from ``first``."""
        rows = (
            (number, key, label) for number, (key, label) in enumerate(labels.items(), start=first)
        )
        self._connection.executemany("INSERT INTO answers VALUES (?, ?, ?)", rows)

    def check(self) -> None:
        """Raise Broken unless SQLite finds its file in order, to the last byte of it."""
        (fault,) = self._rows("PRAGMA integrity_check(1)", ())[0]
        if fault != "ok":
            damage = " ".join(str(fault).split())
            raise AlteredLedger(f"SQLite finds that the ledger's file is damaged ({damage})")
        (pages,), (size,) = (self._rows(f"PRAGMA page_{name}", ())[0] for name in ("count", "size"))
        more = self.real.stat().st_size - pages * size
        if more > 0:
            raise AlteredLedger(f"the ledger's file has {more} extra bytes after its end")

    def _rows(self, question: str, values: Sequence[object]) -> list[tuple]:
        with closing(self._connection.execute(question, values)) as rows:
            return rows.fetchall()


@contextmanager
def making(path: Path) -> Iterator[Path]:
    """Where a new ledger's file is made: it gets its name at the end, as a whole, or nothing is
    left.

    The caller keeps others from the name: what lies under that of the part was left by a process
    that was killed, and is removed.
    """
    check_local(path, "create the ledger on a local disk")
    part = path.with_name(f"{path.name}.part")
    try:
        _remove(part)
        yield part
        part.rename(path)
        for folder in path.resolve().parents:
            sync_folder(folder)  # whoever made them, a power cut must not take what is in them
    finally:
        _remove(part)


def _remove(path: Path) -> None:
    for suffix in ("", *COMPANIONS):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def make(path: Path, opening: Entry) -> None:
    """Make a ledger's file with its first entry, as the part of one (``making``)."""
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
            # last, so that nothing of it is in the log
            connection.execute("PRAGMA journal_mode=WAL")


def _opened(path: Path, seconds: float) -> sqlite3.Connection:
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
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(TABLES)
        return connection.execute(
            "SELECT type, name, sql FROM sqlite_master ORDER BY name"
        ).fetchall()


def _check_header(path: Path) -> None:
    """Say what a file is that is no ledger, before SQLite makes a log beside it."""
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
            return  # it may be whole with its log alone
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


def _identity(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except FileNotFoundError:
        raise Broken(
            "the ledger's file no longer exists: restore the newest intact copy of the ledger"
        ) from None
    return status.st_dev, status.st_ino


def _primary(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


@contextmanager
def explained(path: Path, seconds: float) -> Iterator[None]:
    """What SQLite or the chain raises, as an error that names the file and says what to do."""
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
    """Raise ConfigError unless a new ledger's name ends as ledgers are found by."""
    if path.suffix != SUFFIX:
        raise ConfigError(
            f"ledger={path}: the file needs a name that ends in {SUFFIX}, because agt "
            "finds ledgers by this ending: choose such a name"
        )


def check_free(path: Path) -> None:
    """Raise ConfigError where something already has a new ledger's name."""
    if path.exists() or path.is_symlink():
        raise ConfigError(
            Message(
                "ledger={path}: this ledger already exists, and its budget cannot be "
                "changed; {config:agt ledger show} {path} shows it",
                path=path,
            )
        )
