"""A ledger's file in bad hands and bad places: cut, foreign, doubled, copied, on a full,
read-only or network disk.
"""

import os
import resource
import shutil
import signal
import socket
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from ledgers import charge, keys, new, people

from agt.errors import AgtError, CheckError, ConfigError
from agt.ledger import file_checks, store as store_module
from agt.ledger.file_checks import file_system
from agt.ledger.ledger import Ledger

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def filled(folder: Path, head: Path | None = None) -> Path:
    with new(folder, head=head) as ledger:
        for _ in range(5):
            ledger.answer(ledger.debit(charge(), 4), dict.fromkeys(keys(4), 1))
    return ledger.path


def sql(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    connection.executescript(statement)
    connection.close()


FOREIGN: dict[str, tuple[Callable[[Path], object], str]] = {
    "nothing": (lambda path: None, r"y\.ledger: .*\binit\b"),
    "an empty file": (
        lambda path: path.touch(),
        "empty",
    ),
    "text": (lambda path: path.write_text("a,b\n1,2\n"), "SQLite"),
    "zeros": (lambda path: path.write_bytes(bytes(4096)), "SQLite"),
    "a folder": (lambda path: path.mkdir(), "folder"),
    "a pipe": (lambda path: os.mkfifo(path), "pipe"),
    "a socket": (
        lambda path: socket.socket(socket.AF_UNIX).bind(str(path)),
        "socket",
    ),
    "another program's": (
        lambda path: sql(path, "CREATE TABLE t (x)"),
        "SQLite",
    ),
    "a link to nowhere": (
        lambda path: path.symlink_to(path.parent / "gone"),
        r"y\.ledger: .*\binit\b",
    ),
    "a link to itself": (lambda path: path.symlink_to(path), r"y\.ledger: "),
    "under a file": (
        lambda path: path.parent.rmdir() or path.parent.touch(),
        r"y\.ledger: .*\binit\b",
    ),
}


@pytest.mark.parametrize("kind", FOREIGN)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_what_is_no_ledger(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "x"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    path = Path("x/y.ledger")  # a socket's name must be short
    FOREIGN[kind][0](path)
    before = sorted(tmp_path.rglob("*"))
    for writing in (True, False):
        with pytest.raises(AgtError, match=FOREIGN[kind][1]) as error:
            Ledger.open(path, writing=writing)
        assert error.value.exit_code in (2, 3)
    assert sorted(tmp_path.rglob("*")) == before, "nothing was made beside it"


def test_a_newer_format_is_for_a_newer_program(tmp_path: Path) -> None:
    path = filled(tmp_path)
    sql(path, "PRAGMA user_version=2")
    with pytest.raises(ConfigError, match=r"loans\.ledger.*format 2"):
        Ledger.open(path)


def test_a_file_that_is_cut_anywhere_is_refused(tmp_path: Path) -> None:
    whole = filled(tmp_path).read_bytes()
    path = tmp_path / "cut" / "loans.ledger"
    path.parent.mkdir()
    for size in (0, 1, 50, 99, 100, 512, 4095, 4096, 8192, len(whole) - 4096, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(CheckError, match=r"loans\.ledger: "):
            Ledger.open(path).verify()


def test_any_flipped_byte_is_found_or_means_nothing(tmp_path: Path) -> None:
    whole = filled(tmp_path).read_bytes()
    with Ledger.open(tmp_path / "loans.ledger") as ledger:
        head = ledger.book.last.head
        kept = ledger.stored(keys(4))
    path = tmp_path / "flipped" / "loans.ledger"
    path.parent.mkdir()
    for place in range(0, len(whole), 97):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x41]) + whole[place + 1 :])
        for suffix in ("-wal", "-shm"):
            Path(f"{path}{suffix}").unlink(missing_ok=True)
        try:
            with Ledger.open(path) as ledger:
                ledger.verify()
                assert (ledger.book.last.head, ledger.stored(keys(4))) == (head, kept), place
        except AgtError:
            continue


def test_bytes_behind_the_end_are_found(tmp_path: Path) -> None:
    path = filled(tmp_path)
    with path.open("ab") as file:
        file.write(bytes(8192))
    with (
        Ledger.open(path, writing=False) as ledger,
        pytest.raises(CheckError, match=r"8192|damaged"),
    ):
        ledger.verify()


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER mine AFTER INSERT ON entries BEGIN DELETE FROM answers; END",
        "DROP TRIGGER entries_stay",
        "CREATE TABLE more (x)",
        "CREATE VIEW seen AS SELECT 1",
        "ALTER TABLE answers ADD COLUMN x",
        "DROP TABLE answers",
        "ALTER TABLE entries RENAME TO e; CREATE VIEW entries AS SELECT number, text FROM e WHERE "
        "number < 5",
    ],
)
def test_altered_tables_are_refused(tmp_path: Path, statement: str) -> None:
    path = filled(tmp_path)
    sql(path, statement)
    with pytest.raises(CheckError, match=r"tables.*triggers"):
        Ledger.open(path)


def test_entries_cannot_be_changed_by_careless_hands(tmp_path: Path) -> None:
    path = filled(tmp_path)
    for statement in ("UPDATE entries SET text = ''", "DELETE FROM answers"):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            sql(path, statement)


# -- the log
# --------------------------------------------------------------------------------------------------


def killed(folder: Path, head: Path | None = None) -> Path:
    """A ledger that a process was killed over: its last entries are in the log alone."""
    path = filled(folder, head)
    process = os.fork()
    if not process:
        ledger = Ledger.open(path)
        ledger.debit(charge(), 3)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(process, 0)
    assert Path(f"{path}-wal").stat().st_size
    return path


def test_the_log_of_a_killed_process_belongs_to_the_ledger(tmp_path: Path) -> None:
    path = killed(tmp_path)
    with Ledger.open(path) as ledger:
        assert ledger.book.last.number == 9
    assert not Path(f"{path}-wal").exists()


@pytest.mark.parametrize("second", [True, False])
def test_a_deleted_log_is_an_older_ledger(tmp_path: Path, second: bool) -> None:
    path = killed(tmp_path, tmp_path / "away.head" if second else None)
    Path(f"{path}-wal").unlink()
    if second:
        with pytest.raises(CheckError, match=r"loans\.ledger: .*\b8\D+9\b"):
            Ledger.open(path)
    else:
        with Ledger.open(path) as ledger:
            assert ledger.verify().last.number == 8, "and nobody can know"


def test_another_ledger_s_log_is_not_taken_for_its_own(tmp_path: Path) -> None:
    """SQLite takes it; what comes of it is a broken chain, or, where all of it was in the log,
    the other ledger.
    """
    one = killed(tmp_path / "one", tmp_path / "one.head")
    two = filled(tmp_path / "two", tmp_path / "two.head")
    with Ledger.open(two) as ledger:
        for _ in range(40):
            ledger.debit(charge(1e-4), 1)
    shutil.copyfile(f"{one}-wal", f"{two}-wal")
    for head in (None, tmp_path / "two.head"):
        with pytest.raises(CheckError):
            Ledger.open(two, head).verify()
    small = filled(tmp_path / "small", tmp_path / "small.head")
    shutil.copyfile(f"{one}-wal", f"{small}-wal")
    with pytest.raises(CheckError):
        Ledger.open(small, tmp_path / "small.head")


# -- names
# --------------------------------------------------------------------------------------------------


def test_a_link_leads_to_the_one_file(tmp_path: Path) -> None:
    path = filled(tmp_path / "real")
    link = tmp_path / "loans.ledger"
    link.symlink_to(path)
    with Ledger.open(link) as one, Ledger.open(path) as two:
        one.debit(charge(), 1)
        assert two.book.last.number == 9
        assert sorted(p.name for p in tmp_path.iterdir()) == ["loans.ledger", "real"], (
            "its log lies beside the file"
        )
    with pytest.raises(ConfigError, match=r"loans\.ledger: .*show"):
        Ledger.create(link, people())


def test_two_names_are_refused(tmp_path: Path) -> None:
    path = filled(tmp_path)
    os.link(path, tmp_path / "second name")
    with pytest.raises(ConfigError, match=r"loans\.ledger: .*\b2\b"):
        Ledger.open(path)


def test_a_file_that_is_replaced_while_it_is_open(tmp_path: Path) -> None:
    path = filled(tmp_path)
    older = path.read_bytes()
    with Ledger.open(path) as ledger:
        ledger.debit(charge(), 1)
        (tmp_path / "new").write_bytes(older)
        (tmp_path / "new").rename(path)
        with pytest.raises(CheckError, match=r"loans\.ledger: "):
            ledger.debit(charge(), 1)
        path.unlink()
        with pytest.raises(CheckError, match=r"loans\.ledger: "):
            ledger.debit(charge(), 1)


# -- disks
# --------------------------------------------------------------------------------------------------


def until_full(path: Path) -> tuple[int, str]:
    """Debits until the disk is full: how many returned, and what the failure said."""
    with Ledger.open(path) as ledger:
        for count in range(10_000):
            try:
                ledger.debit(charge(1e-6), 1)
            except AgtError as error:
                return count, str(error)
    return 10_000, ""


def test_a_limit_on_the_size_of_files_is_a_full_disk(tmp_path: Path) -> None:
    path = filled(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, hard))
    try:
        count, text = until_full(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert str(path) in text
    with Ledger.open(path) as ledger:
        assert ledger.verify().last.number == 8 + count
        ledger.debit(charge(), 1)


def as_nobody(task: Callable[[], None], root: bool = False) -> None:
    """Run in a process of its own, where root's rights do not count unless ``root``; an
    exception there is one here.
    """
    process = os.fork()
    if not process:
        status = 1
        try:
            if os.getuid() == 0 and not root:
                os.setgid(65534)
                os.setuid(65534)
            task()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(process, 0)[1] == 0


def open_to_all(path: Path) -> None:
    for folder in path.parents:
        if folder.owner() == "root" and folder != Path("/") and not folder.stat().st_mode & 0o001:
            folder.chmod(0o755)


@pytest.mark.parametrize("what", ["file", "folder"])
def test_read_only_files_and_folders(tmp_path: Path, what: str) -> None:
    path = filled(tmp_path / "x")
    path.chmod(0o444)
    open_to_all(path)
    if what == "folder":
        path.parent.chmod(0o555)
    else:
        path.parent.chmod(0o777)

    def look() -> None:
        with Ledger.open(path, writing=False) as ledger:
            assert ledger.verify().last.number == 8
        with pytest.raises(AgtError, match=r"\.ledger"):
            Ledger.open(path).debit(charge(), 1)

    as_nobody(look)
    path.chmod(0o600)
    path.parent.chmod(0o755)


def test_nobody_else_may_read_it(tmp_path: Path) -> None:
    path = filled(tmp_path)
    open_to_all(path)

    def look() -> None:
        with pytest.raises(AgtError, match=r"\.ledger"):
            Ledger.open(path, writing=False)

    if os.getuid() == 0:
        as_nobody(look)
    with Ledger.open(path) as ledger:
        ledger.debit(charge(), 1)
        assert {p.stat().st_mode & 0o777 for p in tmp_path.glob("loans.ledger*")} == {0o600}, (
            "its log, too"
        )


MOUNTINFO = """22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
40 27 0:50 / {folder}/far rw,relatime shared:1 - nfs4 server:/export rw
41 40 0:51 / {folder}/far/near rw - xfs /dev/vdb rw
42 27 0:52 / {folder}/with\\040blank rw - fuse.sshfs me@there: rw
43 27 0:53 / {folder}/twice rw - cifs //there/share rw
44 27 0:54 / {folder}/twice rw - ext4 /dev/vdc rw
"""


def test_network_disks_are_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTINFO.format(folder=tmp_path))
    monkeypatch.setattr(file_checks, "MOUNTS", mounts)
    kinds = {
        "far": "nfs4",
        "far/near": "xfs",
        "farther": "ext4",
        "with blank": "fuse.sshfs",
        "twice": "ext4",
    }
    for name, kind in kinds.items():
        folder = tmp_path / name
        assert file_system(folder / "loans.ledger") == kind
        if kind in ("ext4", "xfs"):
            filled(folder)
            continue
        with pytest.raises(ConfigError, match=rf"loans\.ledger.*\({kind}\)"):
            filled(folder)
        shutil.copyfile(filled(tmp_path / "local" / name), folder / "loans.ledger")
        with pytest.raises(ConfigError, match=rf"loans\.ledger.*\({kind}\)"):
            Ledger.open(folder / "loans.ledger")
        with Ledger.open(folder / "loans.ledger", writing=False) as ledger:
            assert ledger.verify().last.number == 8, "a backup there can be looked at"
    monkeypatch.setattr(file_checks, "MOUNTS", tmp_path / "none")
    assert file_system(tmp_path) == ""


def test_where_no_log_can_be_kept_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = filled(tmp_path)
    sql(path, "PRAGMA journal_mode=DELETE")
    with Ledger.open(path) as ledger:  # as a copy by other programs may have it
        ledger.debit(charge(), 1)
    with path.open("r+b") as file:
        file.seek(18)
        assert file.read(2) == b"\2\2"


def test_an_init_that_is_killed_leaves_no_half_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "sync_folder", lambda folder: None)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            filled(tmp_path)
    assert not list(tmp_path.iterdir())
    filled(tmp_path)


# -- looking
# --------------------------------------------------------------------------------------------------


def state(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        path.name: (path.stat().st_mtime_ns, path.read_bytes())
        for path in folder.iterdir()
        if path.is_file()
    }


def test_looking_changes_nothing_after_a_kill(tmp_path: Path) -> None:
    path = killed(tmp_path)
    before = state(tmp_path)
    assert set(before) == {"loans.ledger", "loans.ledger-wal", "loans.ledger-shm"}
    with Ledger.open(path, writing=False) as ledger:
        assert ledger.verify().last.number == 9, "what is in the log alone belongs to it"
    assert state(tmp_path) == before
    with Ledger.open(path) as ledger:
        assert ledger.debit(charge(), 1).entry.head.count == 10


def test_looking_waits_for_who_writes_and_sees_it_whole(tmp_path: Path) -> None:
    path = filled(tmp_path)
    # in this process: its own connection is used
    with Ledger.open(path) as other, other._store.transaction():
        with Ledger.open(path, writing=False) as ledger:
            assert ledger.verify().last.number == 8

        def look() -> None:
            with pytest.raises(AgtError, match=r"loans\.ledger: .*\b0\.1\b"):
                Ledger.open(path, writing=False, seconds=0.1)

        as_nobody(look, root=True)


def test_a_second_look_leaves_the_locks_of_the_first(tmp_path: Path) -> None:
    """Who opens the file beside SQLite, and closes it, takes its locks away: another process
    would remove the log.
    """
    path = filled(tmp_path)
    with Ledger.open(path) as one:
        one.debit(charge(), 1)
        Ledger.open(path).close()
        Ledger.open(path, writing=False).close()
        as_nobody(lambda: Ledger.open(path).close(), root=True)
        assert Path(f"{path}-wal").exists()
        head = one.debit(charge(), 1).entry.head
    with Ledger.open(path) as ledger:
        assert ledger.book.last.head == head
