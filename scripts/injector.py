"""Commands that are stopped at each write, sync and rename: is what they leave what must be left?

    python scripts/faults.py [--only NAME ...] [--modes killed torn ...] [--every 1]

A command is run once with every call counted that changes a file or a name in its folder
(scripts/injector.c, preloaded). Then it is run again for each of these calls, from the same start,
and stopped there; what it left is checked, the command is given again, as its documentation says,
and what is there then is checked.

| mode   | at change n                                                                             |
|--------|-----------------------------------------------------------------------------------------|
| killed | SIGKILL before it                                                                       |
| torn   | of a write: half of it, then SIGKILL                                                    |
| data   | killed, and the power is cut: what was appended since a file's last sync is lost        |
| names  | killed, and the power is cut: names that no sync of their folder followed are as before |
| fails  | it fails (EIO, or ENOSPC of what takes room), and the next ones do not                  |
| full   | from now on all that takes room fails with ENOSPC                                       |

Each trial is a fork of this process, which has imported what the commands need. Linux, and gcc.
Exit code 1: a fault.
"""

import argparse
import atexit
import ctypes
import gc
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
MODES = {"killed": 1, "torn": 2, "data": 1, "names": 1, "fails": 3, "full": 4}
# beside the command's own files
OUT = "said.out"
ERR = "said.err"
TMP = "tmp"
USER = "user"
OWN = (OUT, ERR)
FAST = "/dev/shm"  # where a sync costs nothing


class Change(NamedTuple):
    """One call that changes a file or a name: what faults.c notes of it, before it happens."""

    kind: str
    inode: int
    size: int
    path: str
    other: str

    @property
    def name(self) -> str:
        """The name that it makes or removes."""
        return self.other or self.path


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes:
        code: its exit code; -9: it was killed.
        out, err: what it said.
        changes: those that it made, or began.
        lost: how many files or names a cut of the power changed after it.
    """

    code: int
    out: str
    err: str
    changes: tuple[Change, ...] = ()
    lost: int = 0


@dataclass(frozen=True)
class Case:
    """One command.

    Attributes:
        command: what is run in its folder; returns the exit code.
        check: (folder, how it ended) -> what is wrong with what a stopped command left.
        after: (folder, how ``again`` ended) -> what is wrong once the command was given again.
        before: makes the folder.
        warm: prepares this process for the trials, when the command and both checks have run once.
        again: what the documentation says to do then; None: the same command.
    """

    command: Callable[[], int]
    check: Callable[[Path, Ended], list[str]]
    after: Callable[[Path, Ended], list[str]]
    before: Callable[[Path], None] = lambda home: None
    warm: Callable[[Path], None] = lambda home: None
    again: Callable[[], int] | None = None


def preloaded() -> ctypes.CDLL:
    """The library, where this process was started with it."""
    return ctypes.CDLL(None)


def start_preloaded() -> None:
    """Compile the library, and start this program again with it, unless it was."""
    if "faults.so" in os.environ.get("LD_PRELOAD", ""):
        return
    folder = Path(tempfile.mkdtemp(prefix="agt-faults-"))
    library = folder / "faults.so"
    command = (
        "gcc",
        "-shared",
        "-fPIC",
        "-O1",
        "-o",
        str(library),
        str(ROOT / "scripts/injector.c"),
        "-ldl",
    )
    subprocess.run(command, check=True)
    quiet = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    os.execve(
        sys.executable,
        [sys.executable, *sys.argv],
        {**os.environ, **quiet, "LD_PRELOAD": str(library)},
    )


def modules_of(command: Callable[[], int], home: Path) -> None:
    """Import what a command imports, so that no fork of this process has to."""
    place = home.with_name("modules")

    def noting() -> int:
        code = command()
        place.write_text("\n".join(sys.modules))
        return code

    run(noting, home)
    for name in place.read_text().split("\n"):
        if name not in sys.modules and name != "__mp_main__":
            with suppress(Exception):
                importlib.import_module(name)


def run(command: Callable[[], int], home: Path, mode: str = "", at: int = 0) -> Ended:
    """Run a command in a folder, in a process of its own; every change below it is counted where a
    mode is given.

    Args:
        at: the change that it is stopped at; 0: at none.
    """
    graves = home.with_name("graves")
    notes = home.with_name("notes")
    shutil.rmtree(graves, ignore_errors=True)
    graves.mkdir()
    sys.stdout.flush()
    if not (process := os.fork()):
        _child(command, home, graves, notes, MODES.get(mode, 0) if mode else None, at)
    _, status = os.waitpid(process, 0)
    changes = []
    if mode:
        changes = [
            Change(*_typed(line)) for line in notes.read_text(errors="surrogateescape").splitlines()
        ]
    said = [
        (home / name).read_text(errors="replace") if (home / name).exists() else "" for name in OWN
    ]
    code = os.waitstatus_to_exitcode(status)
    lost = 0
    if code == -signal.SIGKILL and mode in ("data", "names"):
        lost = (lose_data if mode == "data" else lose_names)(home, changes[:-1], graves)
    return Ended(code, said[0], said[1], tuple(changes), lost)


def _typed(line: str) -> tuple[str, int, int, str, str]:
    kind, inode, size, path, other = line.split("\t")
    return kind, int(inode), int(size), path, other


def _child(
    command: Callable[[], int], home: Path, graves: Path, notes: Path, mode: int | None, at: int
) -> None:
    code = 70
    try:
        os.chdir(home)
        for folder in (TMP, USER):
            (home / folder).mkdir(exist_ok=True)
        os.environ.update(TMPDIR=str(home / TMP), HOME=str(home / USER))
        tempfile.tempdir = None
        for number, name in enumerate(OWN, 1):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
        file = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
        if mode is not None:
            preloaded().faults_arm(
                os.fsencode(home), os.fsencode(graves), file, mode, ctypes.c_long(at)
            )
        code = command()
        atexit._run_exitfuncs()
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stderr.flush()
        os._exit(code)


def lose_data(home: Path, changes: Sequence[Change], graves: Path) -> int:
    """Cut off every file what was appended since its last sync; its name stays.

    Returns how many files lost something.
    """
    held = dict[int, int]()
    lost = 0
    for change in changes:
        if change.kind in ("write", "resize", "empty"):
            held.setdefault(change.inode, 0 if change.kind == "empty" else change.size)
        elif change.kind in ("sync", "unlink"):
            held.pop(change.inode, None)
    for path in home.rglob("*"):
        if path.is_file() and not path.is_symlink() and path.name not in OWN:
            about = path.stat()
            if about.st_size > held.get(about.st_ino, about.st_size):
                os.truncate(path, held[about.st_ino])
                lost += 1
    return lost


def lose_names(home: Path, changes: Sequence[Change], graves: Path) -> int:
    """Undo every change of a name that no sync of the name's folder followed, the last first.

    Returns how many.
    """
    pending = list[tuple[int, Change]]()
    own = {str(home / name) for name in OWN}
    for number, change in enumerate(changes, 1):
        if change.kind == "sync":
            pending = [each for each in pending if os.path.dirname(each[1].name) != change.path]
        elif (
            change.kind in ("create", "mkdir", "link", "rename", "unlink", "rmdir")
            and change.name not in own
        ):
            pending.append((number, change))
    for number, change in reversed(pending):
        grave = graves / str(number)
        with suppress(FileNotFoundError):
            if change.kind in ("create", "link"):
                os.unlink(change.name)
            elif change.kind == "mkdir":
                shutil.rmtree(change.path)
            elif change.kind == "rmdir":
                os.mkdir(change.path)
            elif change.kind == "unlink":
                os.link(grave, change.path)
            else:
                os.rename(change.other, change.path)
                if grave.exists():
                    os.link(grave, change.other)
    return len(pending)


@dataclass
class Tally:
    """What came of one case in one mode: a trial that left what the one before left is not
    checked again.
    """

    trials: int = 0
    stopped: int = 0
    checked: int = 0
    faults: list[str] = field(default_factory=list)


def trials(
    name: str, case: Case, modes: Sequence[str], every: int, places: Sequence[int] = ()
) -> Iterator[tuple[str, int, Tally]]:
    """Yield, for each mode, its name, the number of changes of the command, and what came of it.

    Args:
        every: only each so many-th change is tried.
        places: only these changes are tried; empty: all.

    Raises:
        SystemExit: the command fails though nothing stops it, or leaves what a check finds wrong.
    """
    # A TemporaryDirectory would be removed by every fork that ends.
    folder = tempfile.mkdtemp(prefix="agt-faults-", dir=FAST if os.path.isdir(FAST) else None)
    try:
        bench = Bench.prepare(name, case, Path(folder).resolve())
        for mode in modes:
            tally = Tally()
            for number, change in enumerate(bench.changes, 1):
                is_asked = number in places if places else True
                if is_asked and number % every == 0 and meant(mode, change):
                    bench.try_change(mode, number, tally, check_always=bool(places))
            yield mode, len(bench.changes), tally
    finally:
        shutil.rmtree(folder)


@dataclass(frozen=True)
class Bench:
    """A case with the folder that its command starts from, and every change that it makes.

    Attributes:
        name: of the case.
        home: the folder in which commands run.
        start: a copy of ``home`` before the first command.
        changes: those of the command when nothing stops it.
    """

    name: str
    case: Case
    home: Path
    start: Path
    changes: tuple[Change, ...]

    @classmethod
    def prepare(cls, name: str, case: Case, folder: Path) -> "Bench":
        """Make the folder of a case, import what its command needs, and run it to its end.

        Raises:
            SystemExit: the command fails, or leaves what a check finds wrong.
        """
        home = folder / "home"
        start = folder / "start"
        home.mkdir()
        case.before(home)
        for own in OWN:
            (home / own).unlink(missing_ok=True)
        shutil.copytree(home, start, symlinks=True)
        modules_of(case.command, home)
        modules_of(partial(_checked, case, home), home)
        case.warm(home)
        gc.collect()
        gc.freeze()  # what a fork looks at, it copies
        unstopped = cls(name, case, home, start, ())
        unstopped.restore()
        whole = run(case.command, home, "killed")
        wrong = [*guarded(case.check, home, whole), *guarded(case.after, home, whole)]
        if whole.code or wrong:
            raise SystemExit(
                f"{name}: a command that nobody stopped ended with {whole.code}: {wrong} "
                f"{whole.err[-2000:]}"
            )
        return replace(unstopped, changes=whole.changes)

    def restore(self) -> None:
        """Put the folder back to where the command starts from."""
        shutil.rmtree(self.home)
        shutil.copytree(self.start, self.home, symlinks=True)

    def try_change(self, mode: str, number: int, tally: Tally, check_always: bool) -> None:
        """Stop the command at one of its changes, check what is left, and add that to ``tally``.

        Args:
            number: of the change, from 1 on.
            check_always: check also what is left as the trial before left it.
        """
        self.restore()
        ended = run(self.case.command, self.home, mode, number)
        tally.trials += 1
        is_killing = MODES[mode] < MODES["fails"]
        if is_killing:
            tally.stopped += ended.code == -signal.SIGKILL
        else:
            tally.stopped += len(ended.changes) >= number
        if not check_always and known(mode, ended):
            return
        tally.checked += 1
        faults = guarded(self.case.check, self.home, ended)
        if is_killing or ended.code != 0:
            again = self.case.again or self.case.command
            faults += guarded(self.case.after, self.home, run(again, self.home))
        change = self.changes[number - 1]
        at = f"{mode} at {number} of {len(self.changes)}"
        place = os.path.relpath(change.name, self.home)
        for fault in faults:
            line = f"{self.name}: {at} ({change.kind} {place}): {fault}"
            tally.faults.append(line)
            print(f"FAULT {line}", flush=True)


TAKES_ROOM = ("write", "resize", "create", "mkdir", "link")


def meant(mode: str, change: Change) -> bool:
    """Whether a mode is about such a change: only a write is torn, and a full disk is noticed
    where room is taken.
    """
    if mode == "torn":
        return change.kind == "write"
    if mode == "full":
        return change.kind in TAKES_ROOM
    return True


def known(mode: str, ended: Ended) -> bool:
    """Whether what is left is, to all who read it, what the trial before left.

    That is so where a sync, a lock's memory or a part of a file under another name came between,
    and where a cut of the power cost nothing.
    """
    if mode == "killed":
        before = ended.changes[-2] if len(ended.changes) > 1 else None
        if before is None:
            return False
        part = ".part" in before.path and before.kind in ("create", "write", "resize")
        return part or before.kind == "sync" or before.path.endswith(("-shm", ERR))
    return mode in ("data", "names") and not ended.lost


def _checked(case: Case, home: Path) -> int:
    ended = Ended(0, "", "")
    for check in (case.check, case.after):
        with suppress(Exception):
            check(home, ended)
    return 0


def guarded(check: Callable[[Path, Ended], list[str]], home: Path, ended: Ended) -> list[str]:
    """What a check says, in a process of its own; what it raises is a fault."""
    place = home.with_name("checked")

    def checking() -> int:
        try:
            found = check(home, ended)
        except Exception as error:
            found = [f"{type(error).__name__}: {error}"]
        place.write_text(json.dumps(found))
        return 0

    before = (home / OUT).read_bytes() if (home / OUT).exists() else b""
    run(checking, home)
    (home / OUT).write_bytes(before)
    found: list[str] = json.loads(place.read_text())
    return found


def main(cases: Mapping[str, Case]) -> int:
    """Print a line for each case and mode."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", help="names of cases")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--every", type=int, default=1, help="each so many-th change alone")
    parser.add_argument("--at", nargs="+", type=int, default=[], help="these changes alone")
    options = parser.parse_args()
    wrong = 0
    for name, case in cases.items():
        if options.only and name not in options.only:
            continue
        began = time.monotonic()
        for mode, changes, tally in trials(name, case, options.modes, options.every, options.at):
            wrong += len(tally.faults)
            seconds = time.monotonic() - began
            print(
                f"| {name} | {mode} | {changes} changes | stopped {tally.stopped} of "
                f"{tally.trials} | "
                f"{tally.checked} states checked | {len(tally.faults)} faults | {seconds:.0f} s |",
                flush=True,
            )
    return int(wrong > 0)
