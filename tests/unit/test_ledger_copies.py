"""Looking at a ledger: what SQLite keeps beside it, the copy that is read, and where copies lie."""

import fcntl
import os
import re
import resource
import signal
import stat
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from ledgers import charge, new
from test_ledger_files import as_nobody, killed

from agt.errors import AgtError, CheckError
from agt.ledger import ledger as ledgers, store
from agt.ledger.ledger import Ledger, check_no_other_ledger
from agt.ledger.tables import AdmittedTable
from agt.store.reading import open_plain

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
HOSTILE: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a link": lambda path: path.symlink_to("/dev/zero"),
    "a folder": Path.mkdir,
}


@contextmanager
def within(seconds: int) -> Iterator[None]:
    """What waits longer is killed: a pipe has no writer, and a device no end."""

    def give_up(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary folder of this test's own."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal"])
@pytest.mark.parametrize("writing", [False, True])
def test_what_lies_beside_a_ledger_is_a_file_of_sqlite_s_or_refused(
    tmp_path: Path, temporary: Path, kind: str, suffix: str, writing: bool
) -> None:
    path = tmp_path / "loans.ledger"
    new(tmp_path).close()
    HOSTILE[kind](Path(f"{path}{suffix}"))
    with within(5), pytest.raises(CheckError, match=rf"{kind} named loans\.ledger{suffix}"):
        Ledger.open(path, writing=writing)
    assert not list(temporary.glob("*/*"))


def test_no_more_is_copied_than_a_ledger_has(tmp_path: Path, temporary: Path) -> None:
    """A sparse file takes no room, and its copy takes all of it."""
    path = tmp_path / "loans.ledger"
    new(tmp_path).close()
    for sparse in (path, Path(f"{path}-wal")):
        size = sparse.stat().st_size if sparse.exists() else 0
        with sparse.open("ab") as file:
            file.truncate(2**33)
        with (
            within(5),
            pytest.raises(
                CheckError,
                match=r"8,589,934,592|larger",
            ),
        ):
            Ledger.open(path, writing=False)
        os.truncate(sparse, size)
    Ledger.open(path, writing=False).close()
    assert not list(temporary.glob("*/*"))


def test_a_log_that_is_removed_while_it_is_copied_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the last process that writes a ledger removes its log when it closes the file."""
    with new(tmp_path) as ledger:
        path = ledger.path
    log = Path(f"{path}-wal")
    log.touch()

    def open_after_removal(original: Path, limit: int) -> Any:
        if original == log:
            log.unlink()
        return open_plain(original, limit)

    monkeypatch.setattr(store, "open_plain", open_after_removal)
    with Ledger.open(path, writing=False) as copy:
        assert copy.book.last.number == 2
    assert not log.exists()


def test_copies_lie_in_a_folder_of_one_user_alone(tmp_path: Path, temporary: Path) -> None:
    with new(tmp_path):
        pass
    with Ledger.open(tmp_path / "loans.ledger", writing=False):
        home = temporary / f"agt-{os.getuid()}"
        assert [path.name for path in temporary.iterdir()] == [home.name]
        assert {stat.S_IMODE(path.stat().st_mode) for path in (home, *home.iterdir())} == {0o700}
    assert not list(home.iterdir())
    home.chmod(0o770)
    with pytest.raises(AgtError, match=r"temporary/agt-.*TMPDIR"):
        Ledger.open(tmp_path / "loans.ledger", writing=False)
    home.rmdir()
    (tmp_path / "mine").mkdir(mode=0o700)
    (tmp_path / "mine" / "letters").touch()
    home.symlink_to(tmp_path / "mine")
    with pytest.raises(AgtError, match=r"temporary/agt-.*TMPDIR"):
        Ledger.open(tmp_path / "loans.ledger", writing=False)
    assert (tmp_path / "mine" / "letters").exists()


def test_the_copy_of_a_killed_process_is_removed_and_a_living_one_s_is_not(
    tmp_path: Path, temporary: Path
) -> None:
    new(tmp_path).close()
    path = tmp_path / "loans.ledger"
    home = temporary / f"agt-{os.getuid()}"
    if not (process := os.fork()):
        ledger = Ledger.open(path, writing=False)
        assert ledger
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(process, 0)
    (left,) = home.iterdir()
    (home / "made, not locked").mkdir()
    with Ledger.open(path, writing=False) as one:
        (own,) = home.iterdir()
        assert own != left
        with Ledger.open(path, writing=False), store.copy_folder(1):
            assert len(list(home.iterdir())) == 3
        assert list(home.iterdir()) == [own]
        assert one.verify().last.number == 2


def test_a_ledger_that_a_stopped_process_has_is_busy(tmp_path: Path) -> None:
    path = killed(tmp_path)
    with Path(f"{path}-shm").open("r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX, 2, 120)
        program = (
            "import sys; from pathlib import Path; from agt.ledger.ledger import Ledger\n"
            "from agt.errors import AgtError\n"
            "try: Ledger.open(Path(sys.argv[1]), writing=False, seconds=0.1)\n"
            "except AgtError as error: print(type(error).__name__, error)"
        )
        told = subprocess.run(
            [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True
        ).stdout
    assert told.startswith("Busy ")
    assert re.search(r"loans\.ledger: .*\b0\.1\b", told)


NOT_SURE = {
    "empty": b"",
    "a start": b"SQLite f",
    "zeros": bytes(99),
    "magic": b"SQLite format 3\0",
    "half a letter": b"\xc3",
}
SURE = {
    "text": b"a,b\r\n1\t2\n",
    "a sentence about it": b"SQLite format 3 is a format",
    "other letters": "Füße \ufeff".encode(),
}


@pytest.mark.parametrize("content", NOT_SURE.values(), ids=NOT_SURE)
def test_what_may_be_a_ledger_is_not_taken_for_another_program_s(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "x.ledger").write_bytes(content)
    assert not store.other_program(tmp_path / "x.ledger")


@pytest.mark.parametrize("content", SURE.values(), ids=SURE)
def test_text_is_another_program_s(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.ledger").write_bytes(content)
    assert store.other_program(tmp_path / "x.ledger") == "text"


def test_no_damage_of_the_header_makes_a_ledger_another_program_s(tmp_path: Path) -> None:
    path = tmp_path / "loans.ledger"
    new(tmp_path).close()
    whole = path.read_bytes()
    for place in range(100):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x41]) + whole[place + 1 :])
        assert not store.other_program(path), place
    for size in range(0, 5000, 7):
        path.write_bytes(whole[:size])
        assert not store.other_program(path), size


def test_a_file_that_nobody_may_read_is_known_by_its_number(tmp_path: Path) -> None:
    path = tmp_path / "x.ledger"
    path.write_bytes(bytes(9))
    path.chmod(0)
    tmp_path.chmod(0o755)

    def look() -> None:
        known = store.identity_of(path)
        assert known["identity"].split()[1:] == [str(path.stat().st_ino), "9"]
        table = AdmittedTable("t", "e" * 32)
        with pytest.raises(CheckError, match="unreadable="):
            check_no_other_ledger(tmp_path / "y.ledger", table)
        check_no_other_ledger(tmp_path / "y.ledger", table, declared_others=[known])

    if os.getuid() == 0:
        for folder in tmp_path.parents:
            if folder != Path("/") and not folder.stat().st_mode & 0o001:
                folder.chmod(0o755)
        as_nobody(look)
    assert ledgers.ledgers_in(tmp_path) == [path]
    assert ledgers.ledgers_in(tmp_path / "nowhere") == []


def test_a_declaration_outlives_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agt.ledger.ledger.CHECKPOINT_INTERVAL", 3)
    with new(tmp_path) as ledger:
        ledger.declare("a" * 16)
        for _ in range(8):
            ledger.debit(charge(1e-4), 1)
        kept = ledger.claim_sentences()
    with Ledger.open(tmp_path / "loans.ledger") as ledger:
        assert ledger.book.checkpoint
        assert (ledger.book.declared, ledger.claim_sentences()) == (["a" * 16], kept)
        ledger.verify()


# -- a full disk
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pages", range(16))
def test_a_ledger_that_finds_no_room_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pages: int
) -> None:
    """The disk is full after so many pages, or the system fails after so many calls."""
    folder = tmp_path / "x"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (pages * 4096, hard))
    try:
        new(folder, head=tmp_path / "away.head").close()
        made = True
    except (AgtError, OSError):
        made = False
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    names = sorted(path.name for path in tmp_path.rglob("*") if path.is_file())
    assert names == (["away.head", "loans.ledger"] if made else [])
    if pages in (0, 15):
        assert made == bool(pages)
    if not made:
        new(folder, "again").close()


def test_what_a_killed_init_left_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not (process := os.fork()):
        monkeypatch.setattr(store, "sync_folder", lambda _: None)
        monkeypatch.setattr(Path, "rename", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        new(tmp_path)
    os.waitpid(process, 0)
    assert [path.name for path in tmp_path.glob("*.part*")] == ["loans.ledger.part"]
    new(tmp_path).close()
    assert not list(tmp_path.glob("*.part*"))


# -- at once
# --------------------------------------------------------------------------------------------------


def at_once(count: int, task: Callable[[int], object]) -> int:
    """In how many of so many processes a task succeeds; an AgtError is a failure, anything else
    one of the test.
    """
    processes = []
    for number in range(count):
        if not (process := os.fork()):
            status = 2
            try:
                task(number)
                status = 0
            except AgtError:
                status = 1
            except BaseException:
                traceback.print_exc()  # the process ends here, so that nobody else would show it
            finally:
                os._exit(status)
        processes.append(process)
    ends = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes]
    assert set(ends) <= {0, 1}
    return ends.count(0)


@pytest.mark.parametrize(
    "names", [["loans"] * 4, ["a", "b", "c", "d"]], ids=["one name", "four names"]
)
def test_of_several_inits_at_once_one_makes_a_ledger(tmp_path: Path, names: list[str]) -> None:
    assert at_once(4, lambda number: new(tmp_path, names[number]).close()) == 1
    (path,) = (path for path in tmp_path.rglob("*") if path.is_file())
    with Ledger.open(path) as ledger:
        assert ledger.verify().last.number == 2


def test_several_admits_and_declarations_at_once_are_all_kept(tmp_path: Path) -> None:
    new(tmp_path).close()

    def admit(number: int) -> None:
        with Ledger.open(tmp_path / "loans.ledger") as ledger:
            ledger.declare(f"{number}" * 16)
            ledger.admit(AdmittedTable(f"t{number}", f"{number}" * 32), "one customer")

    assert at_once(4, admit) == 4
    with Ledger.open(tmp_path / "loans.ledger") as ledger:
        assert len(ledger.verify().tables) == 5
        assert sorted(map(str, ledger.book.declared)) == [f"{number}" * 16 for number in range(4)]
