"""The SQLite file of a ledger: opening, checking, reading and writing it.

A transaction that was committed is on the disk completely; any other has no effect (Lemma 6 of
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

from agt.data.arrays import block_slices
from agt.errors import AgtError, Busy, CheckError, ConfigError
from agt.ledger.chain import AlteredLedger, Entry, Row
from agt.ledger.file_checks import COMPANION_SUFFIXES, SQLITE_MAGIC, check_file, check_local
from agt.ledger.locks import acquire_lock, locked_folder
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
_FILES = ("", "-wal")  # endings of the files that contain a ledger: SQLite's database and log
MAX_COPIED_BYTES = 2**32  # each of a ledger and its log; enough for about 40 million answers
_LOCK = "lock"  # the name of the lock file in the folder of a copy
_CONTROL = re.compile("[\0-\x08\x0e-\x1f\x7f]")  # control characters, which text does not have
_ATTEMPTS = 20  # to copy the file while nobody writes to it
_ROWS_AT_ONCE = 500  # keys or rows in one query; every build of SQLite takes at least 999
_SYNC_PRAGMAS = "PRAGMA synchronous=FULL; PRAGMA fullfsync=ON; PRAGMA checkpoint_fullfsync=ON;"
_FULL = (
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR_WRITE,
    sqlite3.SQLITE_IOERR_SHMSIZE,
    sqlite3.SQLITE_IOERR_SHMOPEN,
)
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_CLOSED = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM)
_WRITERS: Counter[tuple[int, int, int]] = Counter()
"""(process, device, inode) -> how many ``LedgerFile`` of the process have this file open to write.
"""


@contextmanager
def copy_folder(seconds: float) -> Iterator[Path]:
    """Yield a new folder for one copy of a ledger, and remove it after the block.

    It is in TMPDIR/agt-UID, which only this user can read, and is locked while it is in use. A
    folder there without a lock was left by a killed process, because the operating system releases
    the locks of a process that ends, and is removed. TMPDIR/agt-UID itself is locked meanwhile, so
    that no folder is removed between its creation and its locking.

    Args:
        seconds: the number of seconds to wait for the lock of TMPDIR/agt-UID.

    Raises:
        AgtError: TMPDIR/agt-UID is another user's, or others can read it.
    """
    user_folder = Path(gettempdir()) / f"agt-{os.getuid()}"
    user_folder.mkdir(0o700, exist_ok=True)
    status = user_folder.lstat()
    if status.st_uid != os.getuid() or status.st_mode & ~0o700 != stat.S_IFDIR:
        raise AgtError(
            f"{user_folder}: other users can read this folder, but agt puts private copies of "
            "ledgers there: delete the folder, or set TMPDIR to another temporary folder"
        )
    with ExitStack() as cleanup:
        with locked_folder(user_folder, seconds):
            folder = Path(cleanup.enter_context(TemporaryDirectory(dir=user_folder)))
            lock = Lock(folder / _LOCK)
            lock.acquire()
            cleanup.callback(lock.release)
            # On a file system without locks, a folder in use cannot be told from one left over.
            for earlier_copy in user_folder.iterdir() if lock.works else ():
                if not is_locked(earlier_copy / _LOCK):
                    shutil.rmtree(earlier_copy, ignore_errors=True)
        yield folder


def other_program(path: Path) -> str:
    """Return the kind of a file that cannot be a ledger, in words; empty if it may be one.

    Returns:
        "text": all of it is UTF-8 without control characters, and it does not begin like an SQLite
        file. "an SQLite file of another program": it has another application id and no trigger of a
        ledger. Empty: anything else, such as a ledger whose header was damaged, or a file that
        cannot be read.
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
        # A file that is too long for text, or only a part of SQLite's first bytes, is not text.
        may_be_text = is_complete and not SQLITE_MAGIC.startswith(content[:16])
        return "text" if may_be_text and not _CONTROL.search(content.decode()) else ""
    except (Broken, UnicodeDecodeError):
        return ""


def identity_of(path: Path) -> dict[str, str]:
    """Return JSON values that identify a file that cannot be opened as a ledger.

    Returns:
        "file": the file's name. "identity": the SHA-256 of its bytes; or, if they cannot be read,
        its mode, inode and size. So another file with the same name has another identity.
    """
    try:
        with open_plain(Path(os.path.realpath(path)), MAX_COPIED_BYTES) as file:
            identity = file_digest(file, "sha256").hexdigest()
    except Broken:
        status = path.lstat()
        identity = f"{status.st_mode:o} {status.st_ino} {status.st_size}"
    return {"file": path.name, "identity": identity}


def file_stamps(path: Path) -> tuple[tuple[int, int] | None, ...]:
    """Return (bytes, time of the last change in ns) of a ledger's file and of its log.

    An item is None if that file does not exist.

    Raises:
        OSError: a file cannot be examined.
    """
    paths = [Path(f"{path}{suffix}") for suffix in _FILES]
    states = [path.stat() if path.exists() else None for path in paths]
    return tuple(state and (state.st_size, state.st_mtime_ns) for state in states)


class LedgerFile:
    """The open SQLite file of one ledger.

    Args:
        path: the path of the file.
        writing: False to open a temporary copy of the file and its log, so that the file and its
            folder do not change.
        seconds: the number of seconds to wait for other processes.

    Attributes:
        path: the path as it was given.
        real: the path with all links followed.

    Raises:
        ConfigError: the file does not exist, is on a network file system, is not a regular file, or
            was written by a newer version of agt.
        CheckError: the file is damaged, or is not a ledger.
    """

    def __init__(self, path: Path, writing: bool = True, seconds: float = 60.0) -> None:
        """Check the file's kind and header, and open it, or a temporary copy, with SQLite."""
        check_file(path)
        self.path = path
        self.real = path.resolve()
        self.seconds = seconds
        self._writing = writing
        if writing:
            check_local(path, "move the ledger to a local disk, and give its new path")
        _check_header(path)
        self._process = os.getpid()
        self._thread_lock = threading.RLock()
        self._file = _device_and_inode(self.real)
        with ExitStack() as resources, explained(path, seconds):
            opened_path = self.real
            # A process that also writes the file must not open it outside of SQLite, because
            # closing any other descriptor of the file would release SQLite's locks.
            if not (writing or _WRITERS[self._process, *self._file]):
                opened_path = self._copy(resources.enter_context(copy_folder(seconds)))
            self._connection = resources.enter_context(
                closing(_open_database(opened_path, seconds))
            )
            self._resources = resources.pop_all()
        _WRITERS[self._process, *self._file] += writing

    def _copy(self, folder: Path) -> Path:
        """Copy the file and its log as they are at one moment, and return the copy's path.

        Args:
            folder: the folder for the copies.

        Raises:
            Broken: the copy needs more space than there is.
            AgtError: the file cannot be read or copied.
            Busy: the file changed during each attempt.
        """
        copies = [folder / f"ledger{suffix}" for suffix in _FILES]
        try:
            for _ in range(_ATTEMPTS):
                with self._stopping_writers() as was_open:
                    before = file_stamps(self.real)
                    size = sum(stamp[0] for stamp in before if stamp)
                    if size > shutil.disk_usage(folder).free:
                        raise Broken(
                            f"to read the ledger, agt makes a copy in {folder}, but the file is "
                            "larger than the free space there: free some space, or set TMPDIR to "
                            "another folder"
                        )
                    try:
                        self._copy_files(copies)
                    except Broken:
                        # The last process that had the ledger open may have closed it, and so
                        # have removed the log.
                        if before == file_stamps(self.real):
                            raise
                        continue
                    # If another process opened the file meanwhile, it was not kept from writing.
                    is_open = Path(f"{self.real}-shm").exists()
                    if before == file_stamps(self.real) and was_open == is_open:
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

    def _copy_files(self, copies: Sequence[Path]) -> None:
        """Copy the file, and its log if there is one.

        Args:
            copies: the paths of both copies. What is there is replaced.

        Raises:
            Broken: one of them was removed meanwhile, or is no regular file.
        """
        for suffix, copy in zip(_FILES, copies, strict=True):
            copy.unlink(missing_ok=True)
            original = Path(f"{self.real}{suffix}")
            if original.exists():
                with (
                    open_plain(original, MAX_COPIED_BYTES) as source,
                    copy.open("wb") as target,
                ):
                    shutil.copyfileobj(source, target)

    @contextmanager
    def _stopping_writers(self) -> Iterator[bool]:
        """Keep other processes from writing during a block, and yield whether one has the file open.

        If no process has it open, SQLite's file of locks (-shm) does not exist. Then nothing is
        locked, and the caller has to check afterwards that no process opened the file.

        Raises:
            Busy: another process wrote for all of the time that this object waits.
        """
        try:
            handle = os.open(f"{self.real}-shm", READ_FLAGS)
        except FileNotFoundError:
            yield False
            return
        try:
            # SQLite's writers lock byte 120 of this file, and its checkpoints byte 121.
            acquire_lock(
                handle,
                self.seconds,
                f"ledger={self.path}",
                lambda handle: fcntl.lockf(handle, fcntl.LOCK_SH | fcntl.LOCK_NB, 2, 120),
            )
            yield True
        finally:
            os.close(handle)

    def close(self) -> None:
        """Close the file; calling it again has no effect.

        In a forked process it does nothing, because the file belongs to the parent process.
        """
        if os.getpid() == self._process:
            with explained(self.path, self.seconds):
                self._resources.close()
            _WRITERS[self._process, *self._file] -= self._writing
            self._writing = False

    @contextmanager
    def exclusive_access(self) -> Iterator[None]:
        """Lock the file against other threads of this process during a block.

        Errors of SQLite in the block become errors that name the file and a remedy (``explained``).

        Raises:
            AgtError: this process was forked after the file was opened.
        """
        if os.getpid() != self._process:
            raise AgtError(
                f"ledger={self.path}: the ledger was opened before this process was forked, but "
                "SQLite does not allow a forked process to use it: open the ledger in each "
                "process, after the fork"
            )
        with self._thread_lock, explained(self.path, self.seconds):
            yield

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run a block as one transaction, during which no other process writes.

        It is committed to the disk after the block. After an error in the block it has no effect.

        Raises:
            AgtError: the file was opened only for reading.
            Broken: another file replaced the ledger's file while it was open.
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
        """Run a block whose reads all see the file as it is at the first of them."""
        self._connection.execute("BEGIN")
        try:
            yield
        finally:
            self._connection.execute("COMMIT")

    def texts(self, after: float = -inf) -> Iterator[Row]:
        """Yield (number, hash, text) of every entry with a number above ``after``, in order."""
        while rows := self._rows(
            "SELECT * FROM entries WHERE number > ? ORDER BY number LIMIT ?", (after, _ROWS_AT_ONCE)
        ):
            yield from rows
            after = rows[-1][0]

    def text(self, number: int) -> str | None:
        """Return the text of an entry; None if there is no such entry."""
        rows = self._rows("SELECT text FROM entries WHERE number = ?", (number,))
        return str(rows[0][0]) if rows else None

    def newest_checkpoint(self, largest_number: float) -> Row | None:
        """Return (number, hash, text) of the newest checkpoint; None if there is none.

        Args:
            largest_number: entries with a larger number are not considered.
        """
        # The text of an entry ends in its kind and its number, because its JSON has sorted keys.
        query = (
            "SELECT * FROM entries WHERE number <= ? AND text LIKE ? || number || '}' ORDER "
            "BY number DESC LIMIT 1"
        )
        rows = self._rows(query, (largest_number, '%,"kind":"checkpoint","number":'))
        return rows[0] if rows else None

    def append(self, entry: Entry) -> None:
        """Add an entry to the file; called within ``transaction``."""
        self._connection.execute(
            "INSERT INTO entries VALUES (?, ?, ?)", (entry.number, entry.hash, entry.text)
        )

    def answers(self, keys: Sequence[bytes]) -> dict[bytes, tuple[int, int]]:
        """Return key -> (number, label) of the answers to some questions.

        Args:
            keys: the keys of the questions. Those without an answer are left out of the result.
        """
        stored: dict[bytes, tuple[int, int]] = {}
        for rows_at_once in block_slices(len(keys), _ROWS_AT_ONCE):
            chunk = keys[rows_at_once]
            marks = ",".join("?" * len(chunk))
            rows = self._rows(
                f"SELECT key, number, label FROM answers WHERE key IN ({marks})", chunk
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
        """Add answers to the file; called within ``transaction``.

        Args:
            first: the number of the first answer; the others follow it in the mapping's order.
            labels: the labels by the key of the question, none of which may be answered before.
        """
        rows = (
            (number, key, label) for number, (key, label) in enumerate(labels.items(), start=first)
        )
        self._connection.executemany("INSERT INTO answers VALUES (?, ?, ?)", rows)

    def check(self) -> None:
        """Raise AlteredLedger if SQLite finds damage in the file, or it has bytes after its end."""
        (fault,) = self._rows("PRAGMA integrity_check(1)", ())[0]
        if fault != "ok":
            damage = " ".join(str(fault).split())
            raise AlteredLedger(f"SQLite finds that the ledger's file is damaged ({damage})")
        (pages,), (size,) = (self._rows(f"PRAGMA page_{name}", ())[0] for name in ("count", "size"))
        extra_bytes = self.real.stat().st_size - pages * size
        if extra_bytes > 0:
            raise AlteredLedger(f"the ledger's file has {extra_bytes} extra bytes after its end")

    def _rows(self, query: str, values: Sequence[object]) -> list[tuple]:
        """Return the rows that a query finds.

        Args:
            query: the query in SQL.
            values: the values of its question marks.
        """
        with closing(self._connection.execute(query, values)) as rows:
            return rows.fetchall()


@contextmanager
def creating_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path for a new ledger, and rename the file to its own path after the block.

    After an error in the block, the file is deleted. The caller has locked the folder, so that a
    file that exists at the temporary path was left by a killed process, and is deleted.

    Args:
        path: the path of the new ledger.

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
    """Delete a database and its companion files (SQLite's log, locks and journal), if they exist."""
    for suffix in ("", *COMPANION_SUFFIXES):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def write_new_file(path: Path, opening: Entry) -> None:
    """Create the SQLite file of a ledger, with its tables and its first entry.

    Args:
        path: the file, which must not exist.
        opening: the first entry.
    """
    with explained(path, 0):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, MODE))
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.executescript(
                f"{_SYNC_PRAGMAS} PRAGMA application_id={APPLICATION}; PRAGMA user_version={FORMAT};"
            )
            connection.executescript(f"BEGIN; {TABLES} COMMIT;")
            connection.execute(
                "INSERT INTO entries VALUES (?, ?, ?)", (1, opening.hash, opening.text)
            )
            # Only now is the log used, so that it contains nothing of the new file.
            connection.execute("PRAGMA journal_mode=WAL")


def _open_database(path: Path, seconds: float) -> sqlite3.Connection:
    """Open the file of a ledger with SQLite, and check its tables.

    Args:
        path: the file, or a copy of it.
        seconds: the number of seconds that SQLite waits for other processes.

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
        connection.executescript(
            f"PRAGMA trusted_schema=OFF; PRAGMA cell_size_check=ON; {_SYNC_PRAGMAS}"
        )
        (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
        if mode != "wal":
            raise Broken(
                "the file system does not support a write-ahead log (journal_mode is "
                f"{mode}): move the ledger to a local disk"
            )
        if _read_schema(connection) != _expected_schema():
            raise AlteredLedger(
                "the tables or triggers of the ledger's file differ from those that agt creates"
            )
    except BaseException:
        connection.close()
        raise
    return connection


def _read_schema(connection: sqlite3.Connection) -> list[tuple]:
    """Return (type, name, SQL) of each table and trigger of a database, sorted by name."""
    query = "SELECT type, name, sql FROM sqlite_master ORDER BY name"
    return connection.execute(query).fetchall()


@cache
def _expected_schema() -> list[tuple]:
    """Return the result of ``_read_schema`` for a ledger that agt creates."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(TABLES)
        return _read_schema(connection)


def _check_header(path: Path) -> None:
    """Raise an error if a file's header shows that it is not a ledger of this version.

    It is called before the file is opened for use, because SQLite would then create a log next to
    it.

    Raises:
        CheckError: the file is empty, is not an SQLite file, or is one of another program.
        AgtError: the user may not read the file.
        ConfigError: a newer version of agt wrote the file.
    """
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
    """Return (device, inode) of a file, which another file at the same path does not have.

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
    """Turn errors of SQLite, and Broken, in a block into errors that name the file and a remedy.

    Args:
        path: the ledger's file.
        seconds: the number of seconds that this process waits for others, for the message.

    Raises:
        CheckError: instead of Broken, or if SQLite finds the file damaged.
        Busy: another process has locked the file.
        AgtError: the disk is full, the file cannot be written, or any other error of SQLite.
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
