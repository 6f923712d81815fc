"""Many processes and threads on one ledger: killed, stopped, forked; each lock comes free or is
named.
"""

import fcntl
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from ledgers import charge, keys, new

from agt.errors import AgtError
from agt.ledger import ledger as ledger_module
from agt.ledger.ledger import Exhausted, Ledger
from agt.mechanisms.budget import Cost

sys.path.insert(0, str(Path(__file__).parents[1]))

from killing import attack

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@pytest.mark.parametrize("second", [True, False])
def test_killed_processes_lose_nothing_and_spend_nothing_twice(
    tmp_path: Path, second: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """scripts/attack_ledger.py at length; with many checkpoints."""
    monkeypatch.setattr(ledger_module, "CHECKPOINT_INTERVAL", 9)
    killed = attack(tmp_path, 7 + second, kills=60, processes=8, capacity=150, second=second)
    assert killed.faults == []
    assert killed.counts["debits"] >= 10


def test_writers_wait_for_each_other(tmp_path: Path) -> None:
    """Two connections that read and then write: BEGIN IMMEDIATE makes the second wait; BEGIN
    alone would make it fail.
    """
    with new(tmp_path) as one, Ledger.open(one.path) as two:
        inside = threading.Event()
        sizes = list[int]()

        def other() -> None:
            inside.wait(10)
            sizes.append(two.debit(charge(), 60).size)

        thread = threading.Thread(target=other)
        thread.start()
        with one._store.transaction():
            inside.set()
            time.sleep(0.2)
            assert sizes == []
        sizes.append(one.debit(charge(), 60).size)
        thread.join()
        assert sorted(sizes) == [40, 60]


def test_commits_are_synced(tmp_path: Path) -> None:
    with new(tmp_path) as ledger:
        ask = ledger._store._connection.execute
        assert ask("PRAGMA synchronous").fetchone() == (2,), (
            "FULL: the log is synced at each commit"
        )
        assert ask("PRAGMA journal_mode").fetchone() == ("wal",)


TRACED = """
import os, sys
from pathlib import Path
sys.path[:0] = {paths!r}
from ledgers import charge, new
{broken}
with new(Path({folder!r}), head=Path({folder!r}) / "away.head") as ledger:
    ledger.debit(charge(), 1)  # the log is begun
    os.write(2, b"before")
    ledger.debit(charge(), 1)
    os.write(2, b"after")
"""


def traced(folder: Path, broken: str = "") -> list[tuple[str, str]]:
    """(call, end of the file's name) of what a debit writes and syncs, in order, as the system
    sees it.
    """
    if not shutil.which("strace"):
        pytest.skip("no strace")
    paths = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]
    program = TRACED.format(paths=paths, folder=str(folder), broken=broken)
    calls = [
        "strace",
        "-f",
        "-y",
        "-e",
        "trace=pwrite64,write,fsync,fdatasync",
        "-o",
        str(folder / "calls"),
    ]
    done = subprocess.run(
        [*calls, sys.executable, "-c", program], capture_output=True, timeout=120, check=False
    )
    if b"ptrace" in done.stderr:
        pytest.skip("nothing may be traced here")
    text = (folder / "calls").read_text().partition('"before"')[2].partition('"after"')[0]
    return re.findall(r"(pwrite64|fsync|fdatasync)\(\d+<[^>]*?([\w.-]+)>", text)


def test_a_debit_is_synced_then_its_head_is_before_it_returns(tmp_path: Path) -> None:
    calls = traced(tmp_path)
    log = "loans.ledger-wal"
    head = "away.head"
    kinds = [
        ("write" if call == "pwrite64" else "sync", name)
        for call, name in calls
        if name in (log, head)
    ]
    order = [kind for place, kind in enumerate(kinds) if kinds[place - 1 : place] != [kind]]
    assert order == [("write", log), ("sync", log), ("write", head), ("sync", head)]
    (tmp_path / "off").mkdir()
    broken = 'import agt.ledger.store as store; store._SYNC_PRAGMAS = "PRAGMA synchronous=OFF;"'
    assert not [
        name
        for call, name in traced(tmp_path / "off", broken)
        if call != "pwrite64" and name == log
    ]


def test_a_lock_that_never_comes_free_is_named(tmp_path: Path) -> None:
    with new(tmp_path, head=tmp_path / "away.head") as ledger:
        holder = sqlite3.connect(ledger.path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        with Ledger.open(ledger.path, seconds=0.1) as other:
            with pytest.raises(AgtError, match=r"loans\.ledger.*\b0\.1\b.*fuser"):
                other.debit(charge(), 1)
            assert other.book.spent == Cost(), "reading goes on"
        holder.execute("ROLLBACK")
        holder.close()
        with (
            open(tmp_path / "away.head", "rb") as held,
            Ledger.open(ledger.path, seconds=0.1) as other,
        ):
            fcntl.flock(held, fcntl.LOCK_EX)
            with pytest.raises(AgtError, match=r"head=.*away\.head.*\b0\.1\b"):
                other.debit(charge(), 1)
        assert ledger.debit(charge(), 1).entry.head.count == 3, "nothing was spent meanwhile"


def in_a_child(task: Callable[[], None]) -> int:
    process = os.fork()
    if not process:
        try:
            task()
            os._exit(0)
        except BaseException:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def test_a_fork_must_open_it_anew(tmp_path: Path) -> None:
    with new(tmp_path) as ledger:

        def child() -> None:
            for use in (
                lambda: ledger.debit(charge(), 1),
                lambda: ledger.book.spent,
                lambda: ledger.stored([b"k"]),
                ledger.verify,
            ):
                with pytest.raises(AgtError, match=r"ledger=.*loans\.ledger"):
                    use()
            ledger.close()
            with Ledger.open(ledger.path) as own:
                own.debit(charge(), 2)

        assert in_a_child(child) == 0
        assert ledger.debit(charge(), 1).entry.head.count == 4, (
            "and the parent's connection is whole"
        )
        ledger.verify()


def test_threads_share_a_ledger(tmp_path: Path) -> None:
    with new(tmp_path, head=tmp_path / "away.head") as ledger, ThreadPoolExecutor(8) as pool:

        def spend(number: int) -> int:
            debit = ledger.debit(charge(), 3)
            ledger.answer(debit, dict.fromkeys(keys(debit.size, 5 * number), number))
            assert len(ledger.stored(keys(debit.size, 5 * number))) == debit.size
            return debit.size

        assert sum(pool.map(spend, range(33))) == 99
        assert ledger.debit(charge(), 3).size == 1
        with pytest.raises(Exhausted):
            ledger.debit(charge(), 1)
        assert ledger.verify().answered == 99


def test_a_stopped_process_that_goes_on_sees_what_happened(tmp_path: Path) -> None:
    """SIGSTOP is no lock that is held: between calls a process holds none."""
    path = new(tmp_path)
    path.close()
    ready, go = os.pipe()
    process = os.fork()
    if not process:
        ledger = Ledger.open(path.path)
        os.write(go, b"x")
        os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(0 if ledger.debit(charge(), 100).size == 40 else 1)
    os.read(ready, 1)
    os.waitpid(process, os.WUNTRACED)
    with Ledger.open(path.path, seconds=5) as ledger:
        ledger.debit(charge(), 60)
    os.kill(process, signal.SIGCONT)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
    os.close(ready)
    os.close(go)


def test_two_who_make_one_ledger(tmp_path: Path) -> None:
    made = [in_a_child(lambda: new(tmp_path).close()) for _ in range(3)]
    assert sorted(made) == [0, 1, 1]
    with ThreadPoolExecutor(6) as pool:
        codes = list(pool.map(lambda n: _try(tmp_path / "sub", f"l{n}"), range(6)))
    assert sum(codes) == 1, "whoever is first has these people"


def _try(folder: Path, name: str) -> bool:
    try:
        new(folder, name).close()
    except AgtError:
        return False
    return True
