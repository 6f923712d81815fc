"""Disks: whether runs can be written where they go, how fast a write is durable, and what kind of file system it is."""

import fcntl
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from agt.ledger.place import NETWORK, file_system
from agt_cli.report.checks import Findings
from agt_cli.runs.ledger import FOLDER

LEAST = 2**30  # bytes that should be free
SECONDS = 0.25  # for which writes are counted
SLOW = 50  # durable writes a second, below which a ledger is felt


def check(outputs: Path, findings: Findings) -> None:
    """Where runs are written, and ledgers lie."""
    with findings.looking("ledgers"):
        _network(findings)
    with findings.looking("disk"):
        folder = nearest_folder(outputs)
        usage = shutil.disk_usage(folder)
        words = f"{outputs}: {file_system(folder) or 'file system not known'}, {usage.free / 2**30:.1f} GiB free"
        try:
            with tempfile.TemporaryDirectory(prefix=".agt-doctor-", dir=folder) as place:
                rate = durable_writes(Path(place))
                _locks(Path(place), findings)
        except OSError as error:
            findings.problem(
                "disk", f"{words}, and nothing can be written there ({error.strerror or error})", "output_dir=FOLDER"
            )
            return
        words += f", {rate:,.0f} durable writes a second"
        if usage.free < LEAST:
            findings.note("disk", f"{words}: little room", "make room, or output_dir=FOLDER")
        elif rate < SLOW:
            findings.note("disk", f"{words}: slow; each answer of a ledger waits for one")
        else:
            findings.ok("disk", words)


def nearest_folder(path: Path) -> Path:
    """The folder itself, or the nearest one above it that is there: nothing is made."""
    return next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.is_dir())


def durable_writes(folder: Path) -> float:
    """How many times a second a line can be put on the disk for good."""
    count, started = 0, time.perf_counter()
    with (folder / "writes").open("wb", buffering=0) as file:
        while (passed := time.perf_counter() - started) < SECONDS:
            file.write(b"x" * 64)
            os.fsync(file.fileno())
            count += 1
    return count / passed


def _locks(folder: Path, findings: Findings) -> None:
    """Whether locks keep a second one out, and whether SQLite has its write-ahead log there."""
    with findings.looking("locks"):
        wrong = [name for name, works in LOCKS.items() if not _works(works, folder / name)]
        words = f"no {' and no '.join(wrong)} here: two processes could spend one budget, so keep no ledger on this disk"
        findings.compare("locks", not wrong, f"{' and '.join(LOCKS)} work", words)


def _network(findings: Findings) -> None:
    """Ledgers lie on a disk of this machine: SQLite's log needs memory that all its processes share."""
    folder = nearest_folder(Path(FOLDER))
    kind = file_system(folder)
    if kind in NETWORK:
        findings.note(
            "ledgers",
            f"{folder} is on a network file system ({kind}): no ledger can lie here",
            "give it a path on a local disk",
        )


def _works(test: Callable[[Path], bool], path: Path) -> bool:
    try:
        return test(path)
    except (OSError, sqlite3.Error):
        return False


def _file_locks(path: Path) -> bool:
    with path.open("wb") as first, path.open("rb") as second:
        fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _write_ahead_log(path: Path) -> bool:
    base = sqlite3.connect(path)
    try:
        mode = base.execute("pragma journal_mode=wal").fetchone()[0]
        base.execute("create table t (n)")
        base.commit()
    finally:
        base.close()
    return bool(mode == "wal")


LOCKS: dict[str, Callable[[Path], bool]] = {"file locks": _file_locks, "SQLite's write-ahead log": _write_ahead_log}
