"""The head file that agt keeps of a ledger on each account: of several copies one pays there."""

import errno
import fcntl
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ledgers import charge, keys, new
from test_ledger_copies import at_once

from agt.errors import AgtError, Busy, CheckError
from agt.ledger import head_file, ledger_list
from agt.ledger.book import Book
from agt.ledger.chain import Head
from agt.ledger.head_file import HeadFile
from agt.ledger.ledger import Ledger
from agt.ledger.ledger_list import account_head, check_as_listed, put_on_list
from agt.ledger.store import LedgerFile

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def copies(folder: Path, count: int) -> list[Path]:
    """So many copies of one new ledger, each in a folder of its own, never used."""
    with new(folder / "0") as ledger:
        path = ledger.path
    paths = [folder / str(number) / path.name for number in range(count)]
    for copy in paths[1:]:
        copy.parent.mkdir()
        shutil.copy(path, copy)
    return paths


def opened(path: Path) -> Ledger:
    ledger = Ledger.open(path)
    assert put_on_list(ledger) is None
    return ledger


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[Ledger, Ledger]]:
    """Two copies of one ledger, which are both opened to pay before either does."""
    first, second = (opened(path) for path in copies(tmp_path, 2))
    with first, second:
        yield first, second


def test_of_two_copies_that_are_open_together_one_pays(two: tuple[Ledger, Ledger]) -> None:
    first, second = two
    first.debit(charge(), 1)
    with pytest.raises(CheckError, match="account's head file"):
        second.debit(charge(), 1)
    assert len(second.history()) == 0
    first.debit(charge(), 1)
    with pytest.raises(CheckError):
        check_as_listed(second)


def test_a_copy_whose_newer_one_was_removed_does_not_pay(two: tuple[Ledger, Ledger]) -> None:
    first, second = two
    first.debit(charge(), 1)
    first.path.rename(first.path.with_name("archive"))
    with pytest.raises(CheckError, match="lost=true"):
        put_on_list(second)


@pytest.mark.parametrize("round_number", range(3))
def test_of_copies_in_several_processes_one_pays(tmp_path: Path, round_number: int) -> None:
    paths = copies(tmp_path, 4)
    ready = os.pipe()
    start = os.pipe()

    def pay(number: int) -> None:
        with Ledger.open(paths[number]) as ledger:
            if round_number:  # otherwise the account's head file is created at once, too
                assert put_on_list(ledger) is None
            os.write(ready[1], b"!")
            os.read(start[0], 1)
            assert put_on_list(ledger) is None
            ledger.debit(charge(), 100)

    if not (process := os.fork()):
        for _ in paths:
            os.read(ready[0], 1)
        os.write(start[1], b"!" * len(paths))
        os._exit(0)
    assert at_once(4, pay) == 1
    os.waitpid(process, 0)
    spent = 0
    for path in paths:
        with Ledger.open(path, writing=False) as ledger:
            spent += len(ledger.history())
    assert spent == 1


def test_a_payer_waits_until_the_other_copy_recorded_its_debit(
    two: tuple[Ledger, Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second copy begins in the moment between the commit of the first and its record."""
    first, second = two
    write = HeadFile._write

    def write_after_other(file: HeadFile, *given: object) -> None:
        monkeypatch.setattr(HeadFile, "_write", write)
        second._store.seconds = 0.1
        with pytest.raises(Busy, match=r"XDG_STATE_HOME: .* 0\.1 s"):
            second.debit(charge(), 1)
        write(file, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(HeadFile, "_write", write_after_other)
    first.debit(charge(), 1)
    with pytest.raises(CheckError, match="account's head file"):
        second.debit(charge(), 1)
    assert len(second.history()) == 0


def test_of_two_copies_of_which_the_older_is_listed_again_one_pays(
    two: tuple[Ledger, Ledger],
) -> None:
    """As each call of Python lists the ledger that it is given."""
    first, second = two
    first.debit(charge(), 1)
    first.path.rename(first.path.with_name("archive"))
    second.use_account_head(account_head(second.book))
    with pytest.raises(CheckError, match="account's head file"):
        second.debit(charge(), 1)


def test_a_copy_that_was_compared_before_the_other_paid_does_not_pay(
    two: tuple[Ledger, Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one pays between the comparison of the lists and that with the head file."""
    first, second = two
    add_to_list = ledger_list._add_to_list

    def pay_meanwhile(name: str, item: dict[str, str]) -> None:
        monkeypatch.setattr(ledger_list, "_add_to_list", add_to_list)
        first.debit(charge(), 1)
        add_to_list(name, item)

    monkeypatch.setattr(ledger_list, "_add_to_list", pay_meanwhile)
    assert put_on_list(second) is None
    assert len(first.history()) == 1
    with pytest.raises(CheckError, match="account's head file"):
        second.debit(charge(), 1)


def test_a_listed_copy_that_another_account_used_is_compared(two: tuple[Ledger, Ledger]) -> None:
    first, second = two
    with Ledger.open(first.path) as of_another_account:
        of_another_account.debit(charge(), 1)
    with pytest.raises(CheckError, match=str(first.path)):
        put_on_list(second)


def test_a_listed_copy_that_an_earlier_version_used_is_compared(
    two: tuple[Ledger, Ledger],
) -> None:
    """It kept no head file for the account."""
    first, second = two
    account_head(first.book).path.unlink()
    with Ledger.open(first.path) as of_earlier_version:
        of_earlier_version.debit(charge(), 1)
    with pytest.raises(CheckError, match=str(first.path)):
        put_on_list(second)
    assert not account_head(first.book).path.exists()


def test_a_head_file_that_exists_is_not_created_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = HeadFile(tmp_path / "x.head", "0" * 64, of_account=True)
    file.create_unless_exists(Head(9, "9" * 64))
    monkeypatch.setattr(HeadFile, "exists", lambda _: False)  # as it was a moment ago
    file.create_unless_exists(Head(4, "4" * 64))
    assert file.read() == Head(9, "9" * 64)
    assert os.listdir(tmp_path) == ["x.head"]


def kill_myself(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def write_half(file: HeadFile, handle: int, head: Head, block: int) -> None:
    """A write that is torn, of a process that is then killed."""
    half = file._block(head)[:100]
    os.pwrite(handle, half, block * head_file.BLOCK_BYTES)
    kill_myself()


KILLS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "before the entry": lambda patch: patch.setattr(LedgerFile, "append", kill_myself),
    "before the commit": lambda patch: patch.setattr(Book, "apply", kill_myself),
    "after the commit": lambda patch: patch.setattr(HeadFile, "_write", kill_myself),
    "in the head file": lambda patch: patch.setattr(HeadFile, "_write", write_half),
    "after the head file": lambda patch: patch.setattr(Ledger, "_reread_book", kill_myself),
}


@pytest.mark.parametrize("moment", KILLS)
@pytest.mark.parametrize("is_first_used_again", [True, False])
def test_a_killed_payer_leaves_one_copy_that_pays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, is_first_used_again: bool
) -> None:
    """Whatever the process was about to do; nothing was drawn for a debit that did not return."""
    paths = copies(tmp_path, 2)
    with opened(paths[0]), opened(paths[1]):
        pass
    if not (process := os.fork()):
        with monkeypatch.context() as patch:
            ledger = opened(paths[0])
            KILLS[moment](patch)
            ledger.debit(charge(), 1)
            kill_myself()
    os.waitpid(process, 0)
    has_returned = moment == "after the head file"
    with Ledger.open(paths[0]) as first, Ledger.open(paths[1]) as second:
        one, other = (first, second) if is_first_used_again else (second, first)
        with_one = pays(one)
        with_other = pays(other)
        assert with_one + with_other <= 1, "no two copies pay"
        assert len(first.history()) >= has_returned
        if has_returned:
            assert not pays(second)
            assert pays(first), "what returned is in this copy"
        elif is_first_used_again:
            assert with_one


def list_and_debit(ledger: Ledger) -> None:
    put_on_list(ledger)
    ledger.debit(charge(), 1)


def pays(ledger: Ledger) -> bool:
    try:
        list_and_debit(ledger)
    except CheckError:
        return False
    return True


def test_an_account_s_head_file_of_another_process_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it was created, and recorded a debit, after this process saw that there was none."""
    first, second = (Ledger.open(path) for path in copies(tmp_path, 2))
    write_atomic = head_file.write_atomic

    def write_after_other(path: Path, content: bytes) -> None:
        monkeypatch.setattr(head_file, "write_atomic", write_atomic)
        put_on_list(first)
        first.debit(charge(), 1)
        write_atomic(path, content)

    monkeypatch.setattr(head_file, "write_atomic", write_after_other)
    with first, second:
        put_on_list(second)
        assert len(first.history()) == 1
        with pytest.raises(CheckError, match="account's head file"):
            second.debit(charge(), 1)
        assert [file.name for file in account_head(first.book).path.parent.iterdir()] == [
            account_head(first.book).path.name
        ]


def test_where_a_loss_was_declared_the_copy_that_declares_it_pays_and_no_other(
    two: tuple[Ledger, Ledger], tmp_path: Path
) -> None:
    first, second = two
    for _ in range(3):
        first.debit(charge(), 1)
    away = first.path.rename(tmp_path / "archive")
    second.close()
    Ledger.replace_head(second.path, tmp_path / "new.head")
    with Ledger.open(second.path) as again:
        assert put_on_list(again) is None
        again.debit(charge(), 1)
        assert again.claim_sentences()
        away.rename(first.path)
        with pytest.raises(CheckError, match="account's head file"):
            first.debit(charge(), 1)
        with pytest.raises(CheckError):
            put_on_list(first)
        again.debit(charge(), 1)


def lost_twice(tmp_path: Path) -> tuple[Path, Path]:
    """Two copies of one ledger, each of which declares a loss of its own, and the first paid."""
    paths = copies(tmp_path, 2)
    for number, path in enumerate(paths):
        Ledger.replace_head(path, tmp_path / f"{number}.head")
    with Ledger.open(paths[0]) as first:
        assert pays(first)
    return paths[0], paths[1]


def pays_alone(path: Path, other: Path) -> bool:
    """Whether a copy pays while the other is not at its place, where it would be compared."""
    away = other.rename(other.with_name("archive"))
    try:
        with Ledger.open(path) as ledger:
            return pays(ledger)
    finally:
        away.rename(other)


def test_of_two_copies_that_both_declare_a_loss_the_later_pays_and_no_other(
    tmp_path: Path,
) -> None:
    """They name different head files, which do not tell them apart."""
    first, second = lost_twice(tmp_path)
    assert pays_alone(second, first), "this account sees its loss for the first time"
    assert not pays_alone(first, second)
    assert pays_alone(second, first)
    assert not pays_alone(first, second)
    second.unlink()
    with Ledger.open(first) as again, pytest.raises(CheckError, match="account's head file"):
        check_as_listed(again)


def test_of_two_copies_with_the_same_loss_one_pays_also_with_copies_of_the_head_file(
    tmp_path: Path,
) -> None:
    first, second = copies(tmp_path, 2)
    head = tmp_path / "a.head"
    Ledger.replace_head(first, head)
    shutil.copy(first, second)
    shutil.copy(head, tmp_path / "b.head")
    with Ledger.open(first) as ledger:
        assert pays(ledger)
    second_only = first.rename(tmp_path / "archive")
    head.rename(tmp_path / "archived.head")
    with Ledger.open(second, tmp_path / "b.head") as ledger:
        assert not pays(ledger)
    second_only.rename(first)
    with Ledger.open(first, tmp_path / "archived.head") as ledger:
        assert pays(ledger)


def test_a_loss_that_cannot_be_recorded_pays_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = lost_twice(tmp_path)

    def refuse(_: Path) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    first.unlink()
    with Ledger.open(second) as ledger:
        monkeypatch.setattr(Path, "touch", refuse)
        with pytest.raises(AgtError, match="Nothing was spent"):
            put_on_list(ledger)


def test_a_restart_reads_what_other_processes_appended_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would record an earlier head, which an older copy of the ledger has as well."""
    first, second = lost_twice(tmp_path)
    first.unlink()
    create = HeadFile.create_unless_exists

    def debit_meanwhile(file: HeadFile, head: Head) -> None:
        monkeypatch.setattr(HeadFile, "create_unless_exists", create)
        with Ledger.open(second) as other:
            other.debit(charge(), 1)
        create(file, head)

    with Ledger.open(second) as ledger:
        monkeypatch.setattr(HeadFile, "create_unless_exists", debit_meanwhile)
        put_on_list(ledger)
        assert account_head(ledger.book).read() == ledger.book.last.head
        assert len(ledger.history()) == 1


def test_a_restart_that_is_killed_half_way_leaves_the_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = HeadFile(tmp_path / "x.head", "0" * 64, of_account=True)
    file.create_unless_exists(Head(8, "8" * 64))
    with file.locked(1) as (_, replace_head):
        replace_head(Head(9, "9" * 64))
    if not (process := os.fork()):
        write = HeadFile._write
        monkeypatch.setattr(HeadFile, "_write", lambda *given: (write(*given), kill_myself()))
        file.restart_for_losses(["a" * 64], lambda _: Head(4, "4" * 64), 1)
    os.waitpid(process, 0)
    assert file.read() == Head(9, "9" * 64)
    file.restart_for_losses(["a" * 64], lambda _: Head(4, "4" * 64), 1)
    assert file.read() == Head(4, "4" * 64)


def test_a_restart_that_is_torn_leaves_the_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = HeadFile(tmp_path / "x.head", "0" * 64, of_account=True)
    file.create_unless_exists(Head(8, "8" * 64))
    with file.locked(1) as (_, replace_head):
        replace_head(Head(9, "9" * 64))
    if not (process := os.fork()):
        monkeypatch.setattr(HeadFile, "_write", write_half)
        file.restart_for_losses(["a" * 64], lambda _: Head(4, "4" * 64), 1)
    os.waitpid(process, 0)
    assert file.read() == Head(9, "9" * 64)


def cut_to_one_block(path: Path) -> None:
    """The block that is left has the head before the last one."""
    content = path.read_bytes()[: head_file.BLOCK_BYTES]
    path.write_bytes(content)


def link_to_nothing(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.with_name("moved"))


def make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def make_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


HARMS: dict[str, Callable[[Path], object]] = {
    "removed": Path.unlink,
    "damaged": lambda path: path.write_bytes(bytes(8192)),
    "cut": cut_to_one_block,
    "longer": lambda path: path.write_bytes(path.read_bytes() + b" "),
    "a link to nothing": link_to_nothing,
    "a folder": make_folder,
    "a pipe": make_fifo,
}


@pytest.mark.parametrize("harm", HARMS)
def test_without_the_account_s_head_file_nothing_is_spent(
    two: tuple[Ledger, Ledger], harm: str
) -> None:
    """Neither by a ledger that is open, nor by one that is opened now, except that a ledger which
    is opened cannot know that there was a file.
    """
    first, _ = two
    first.debit(charge(), 1)
    path = account_head(first.book).path
    HARMS[harm](path)
    for ledger in two:
        with pytest.raises(AgtError, match=path.name) as caught:
            ledger.debit(charge(), 1)
        assert "head=" not in str(caught.value), "which names the owner's head file"
    if harm != "removed":
        with Ledger.open(first.path) as again, pytest.raises(AgtError, match=path.name):
            list_and_debit(again)
    assert len(first.history()) == 1


def test_with_another_ledger_s_head_file_nothing_is_spent(
    two: tuple[Ledger, Ledger], tmp_path: Path
) -> None:
    first, _ = two
    path = account_head(first.book).path
    with new(tmp_path / "other") as other:
        put_on_list(other)
        shutil.copy(account_head(other.book).path, path)
    with pytest.raises(AgtError, match=path.name):
        first.debit(charge(), 1)
    assert len(first.history()) == 0


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which agt keeps the lists and head files of this account."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state/agt"


@pytest.mark.parametrize("use", [put_on_list, check_as_listed], ids=["debit", "look"])
def test_where_the_head_file_s_folder_cannot_be_searched_nothing_is_spent(
    state: Path, tmp_path: Path, use: Callable[[Ledger], object]
) -> None:
    """That the file is not seen does not mean that it is not there."""
    first, second = copies(tmp_path, 2)
    with opened(first) as ledger:
        ledger.debit(charge(), 1)
    folder = state / ledger_list.ACCOUNT_HEADS_FOLDER
    folder.rename(state / "hidden")
    folder.symlink_to(folder.name)  # a loop: as root, no folder is closed
    first.unlink()
    with Ledger.open(second) as older, pytest.raises(AgtError, match="cannot tell whether"):
        use(older)


@pytest.mark.parametrize("name", [ledger_list.LEDGERS_FILE, ledger_list.HEADS_FILE])
def test_where_a_list_cannot_be_read_nothing_is_spent(
    state: Path, tmp_path: Path, name: str
) -> None:
    (path,) = copies(tmp_path, 1)
    (state / name).mkdir(parents=True)
    with Ledger.open(path) as ledger, pytest.raises(AgtError, match=f"{name} of ledgers"):
        put_on_list(ledger)


def test_where_the_list_cannot_be_written_one_of_two_copies_pays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(ledger_list, "_add_to_list", refuse)
    first, second = (Ledger.open(path) for path in copies(tmp_path, 2))
    with first, second:
        for ledger in (first, second):
            assert "cannot be written" in str(put_on_list(ledger))
        first.debit(charge(), 1)
        with pytest.raises(CheckError, match="account's head file"):
            second.debit(charge(), 1)


def test_a_relative_state_folder_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each working folder would have head files of its own, and a copy would pay in each."""
    monkeypatch.setenv("XDG_STATE_HOME", "state")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for number, path in enumerate(copies(tmp_path, 2)):
        folder = tmp_path / f"folder{number}"
        folder.mkdir()
        monkeypatch.chdir(folder)
        with Ledger.open(path) as ledger:
            assert pays(ledger) == (number == 0)
        path.unlink()


def test_where_files_cannot_be_locked_nothing_is_spent_and_it_is_said(
    two: tuple[Ledger, Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    first, _ = two
    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(AgtError, match=r"XDG_STATE_HOME: .*local disk"):
        first.debit(charge(), 1)
    assert len(first.history()) == 0


def test_an_entry_that_the_book_refuses_is_not_stored(
    two: tuple[Ledger, Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else nobody could read the ledger any more."""
    first, _ = two

    def refuse(*_: object) -> None:
        raise ValueError("a mistake of this version")

    with monkeypatch.context() as patch:
        patch.setattr(Book, "_apply_debit", refuse)
        with pytest.raises(CheckError):
            first.debit(charge(), 1)
    with Ledger.open(first.path, writing=False) as copy:
        assert copy.verify().last.number == 2
    assert first.debit(charge(), 1).entry.number == 3


def test_an_answer_that_the_book_refuses_is_not_stored(
    two: tuple[Ledger, Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = two
    debit = first.debit(charge(), 1)
    (key,) = keys(1)

    def refuse(*_: object) -> None:
        raise ValueError("a mistake of this version")

    with monkeypatch.context() as patch:
        patch.setattr(Book, "_apply_answers", refuse)
        with pytest.raises(CheckError):
            first.answer(debit, {key: 1})
    assert first.stored([key]) == {}
    assert first.answer(debit, {key: 0}) == {key: 0}


def test_a_commit_that_fails_leaves_the_book_as_it_was(
    two: tuple[Ledger, Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = two
    real = first._store._connection

    class Full:
        """A connection whose disk is full when it commits."""

        def execute(self, statement: str, *values: object) -> object:
            if statement == "COMMIT" and real.in_transaction and real.total_changes > before:
                raise OSError(errno.ENOSPC, "no space")
            return real.execute(statement, *values)

        def __getattr__(self, name: str) -> object:
            return getattr(real, name)

    before = real.total_changes
    monkeypatch.setattr(first._store, "_connection", Full())
    with pytest.raises(OSError, match="no space"):
        first.debit(charge(), 1)
    monkeypatch.setattr(first._store, "_connection", real)
    assert first.book.last.number == 2
    assert first.debit(charge(), 1).entry.number == 3
