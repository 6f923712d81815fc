"""A run's state is swapped wholly or not at all: interrupted at every step, raced for, read
meanwhile.
"""

import os
import random
import shutil
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from agt.errors import ConfigError
from agt.store.atomic import Pending
from agt.store.lock import Lock
from agt_cli.report import next_state
from agt_cli.report.finished import COMMIT_FOLDER, NEXT_STATE_FOLDER, STATE_LOCK, has_pending_commit
from agt_cli.report.next_state import commit, run_lock
from agt_cli.report.opening import open_run
from agt_cli.report.record import NextState
from tests.swapping import begin, leftovers, state, update


class Killed(BaseException):
    """Stands for a process that is gone: nothing catches it but tests."""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # asks git, which takes its time
    monkeypatch.setattr("agt_cli.report.record._revision", lambda: None)
    begin(tmp_path / "run")
    return tmp_path / "run"


def test_a_run_keeps_its_name_and_gets_another_digest(run: Path) -> None:
    before = open_run(run, "train")
    digest = update(run)
    after = open_run(run, "train", digest)
    assert state(after) == 1
    assert leftovers(run) == []
    assert after.digest != before.digest
    assert after.environment["succeeds"] == [before.digest]
    assert after.environment["argv"] == before.environment["argv"]
    assert after.status["started"] == before.status["started"]
    assert after.status["updated"] == after.environment["updated"][0]
    assert not (run / "bounds/k=00004.safetensors").exists()
    update(run)
    assert state(open_run(run, "train")) == 2
    assert len(open_run(run, "train").environment["succeeds"]) == 2


def steps() -> Iterator[tuple[Any, str]]:
    """Everything by which a swap changes a disk."""
    yield from ((Path, name) for name in ("replace", "rename", "unlink", "rmdir", "mkdir"))
    yield from (
        (next_state.shutil, "rmtree"),
        (os, "unlink"),
        (os, "rmdir"),
        (next_state, "sync_folder"),
    )


def killed_at(monkeypatch: pytest.MonkeyPatch, step: int) -> list[int]:
    """Kill this process, as far as it can tell, before its ``step``-th change of the disk.

    Returns the count so far.
    """
    count = [0]

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def change(*values: Any, **named: Any) -> Any:
            count[0] += 1
            if count[0] >= step:
                raise Killed
            return call(*values, **named)

        return change

    for owner, name in steps():
        monkeypatch.setattr(owner, name, counted(getattr(owner, name)))
    return count


def test_killed_before_every_single_step_it_is_done_or_not_done(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while an opener brings it to its end, one step further each time."""
    pristine = run.with_name("pristine")
    states = list[int]()
    step = 0
    shutil.copytree(run, pristine)
    while True:
        step += 1
        shutil.rmtree(run)
        shutil.copytree(pristine, run)
        with monkeypatch.context() as patch:
            killed_at(patch, step)
            try:
                update(run)
                break
            except Killed:
                pass
        for further in range(2, 100):
            with monkeypatch.context() as patch:
                killed_at(patch, further)
                with suppress(Killed):
                    states.append(state(open_run(run, "train")))
                    break
        with run_lock(run):
            assert not (run / NEXT_STATE_FOLDER).exists()
        assert [name for name in leftovers(run) if name != "lock"] == []
    assert step > 40
    assert states == sorted(states), "not done up to one step, done from there on"
    assert set(states) == {0, 1}


def test_the_second_of_two_is_refused_and_changes_nothing(run: Path) -> None:
    before = open_run(run, "train").digest
    with run_lock(run):
        with pytest.raises(ConfigError, match=r"run=.*agt unlearn"):
            update(run)
        assert open_run(run, "train").digest == before
    assert state(open_run(run, "train", update(run))) == 1
    assert not (run / STATE_LOCK).exists()


def test_what_fails_while_it_is_written_changes_nothing(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}

    def full(self: Pending) -> AbstractContextManager[BinaryIO]:
        if self.path.name.startswith("k="):
            raise OSError(28, "No space left on device")
        return opened(self)

    opened = Pending.opened
    monkeypatch.setattr(Pending, "opened", full)
    with pytest.raises(OSError, match="No space"):
        update(run)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_a_state_that_is_not_whole_is_not_put(run: Path) -> None:
    with run_lock(run):
        opened = open_run(run, "train")
        with NextState(opened) as record:
            record.write("model.safetensors", b"1 x")
            record.finish()
        (run / NEXT_STATE_FOLDER / "model.safetensors").write_bytes(b"2 x")
        with pytest.raises(ConfigError, match=r"model\.safetensors"):
            commit(run)
    assert state(open_run(run, "train")) == 0


def test_a_folder_that_cannot_be_written(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: Lock) -> bool:
        raise PermissionError(13, "Permission denied", str(run / STATE_LOCK))

    shutil.copytree(run, run / COMMIT_FOLDER, ignore=shutil.ignore_patterns("unlearning"))
    assert has_pending_commit(run)
    monkeypatch.setattr(Lock, "acquire", refused)
    with pytest.raises(ConfigError, match=r"lock.*Permission denied"):
        open_run(run, "train")
    with pytest.raises(ConfigError, match="Permission denied"), run_lock(run):
        pass


def test_what_is_no_run_is_not_held(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"run={tmp_path}"), run_lock(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_reader_of_an_earlier_state_stops(run: Path) -> None:
    before = open_run(run, "train")
    update(run)
    with pytest.raises(ConfigError, match=r"run=.*agt unlearn"):
        before.read("model.safetensors")


# -- real processes
# --------------------------------------------------------------------------------------------------


def forked(act: Callable[[], object]) -> int:
    """A process that does one thing; 0: done, 1: a clear error, 2: anything else."""
    process = os.fork()
    if process:
        return process
    code = 2
    try:
        act()
        code = 0
    except ConfigError:
        code = 1
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def ended(process: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def test_kill_9_at_random_moments(run: Path) -> None:
    """As scripts/kill.py unlearn does with the command itself, for longer."""
    chance = random.Random(7)
    reached = 0
    started = time.monotonic()
    assert ended(forked(lambda: update(run))) == 0
    needed = time.monotonic() - started
    for _ in range(20):
        before = state(open_run(run, "train"))
        process = forked(lambda: update(run))
        time.sleep(chance.uniform(0, 1.1 * needed))
        os.kill(process, signal.SIGKILL)
        ended(process)
        after = state(open_run(run, "train"))
        assert after in (before, before + 1)
        reached += after > before
    assert leftovers(run) in ([], ["unlearning/lock"])


def test_of_many_at_once_each_is_done_or_refused(run: Path) -> None:
    codes = [ended(process) for process in [forked(lambda: update(run)) for _ in range(6)]]
    assert set(codes) <= {0, 1}
    assert state(open_run(run, "train")) == codes.count(0) >= 1


def test_readers_during_swaps_get_one_state_or_a_clear_error(run: Path) -> None:
    def read() -> None:
        end = time.monotonic() + 2
        seen = 0
        clear = True
        while time.monotonic() < end:
            try:
                seen = max(seen, state(open_run(run, "train")))
            except ConfigError as error:
                clear &= "agt unlearn changed the run" in str(
                    error
                ) or "is changing this run" in str(error)
        assert seen
        assert clear

    readers = [forked(read) for _ in range(2)]
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        update(run)
    assert [ended(process) for process in readers] == [0, 0]


# -- what was planted or damaged
# -------------------------------------------------------------------------------------------


def listing(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("name", ["unlearning", STATE_LOCK, NEXT_STATE_FOLDER, COMMIT_FOLDER])
@pytest.mark.parametrize("dangling", [False, True])
def test_links_are_not_followed(run: Path, tmp_path: Path, name: str, dangling: bool) -> None:
    elsewhere = tmp_path / "elsewhere"
    if not dangling:
        shutil.copytree(run, elsewhere) if name != STATE_LOCK else elsewhere.write_bytes(b"mine")
    link = run / name
    before = {
        path: path.read_bytes()
        for path in tmp_path.rglob("*")
        if path.is_file() and not link.is_relative_to(path)
    }
    if name == "unlearning":
        shutil.move(run / name, tmp_path / "kept")
        before = {}
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(elsewhere)
    with pytest.raises(ConfigError, match=rf"{name} .*rm {link}"):
        update(run)
    if name == COMMIT_FOLDER:
        with pytest.raises(ConfigError, match=rf"{name} .*rm {link}"):
            open_run(run, "train")
    assert all(path.read_bytes() == content for path, content in before.items())
    assert dangling != elsewhere.exists()
    link.unlink()
    if name == "unlearning":
        shutil.move(tmp_path / "kept", run / name)
    assert state(open_run(run, "train", update(run))) == 1


def decide(run: Path) -> None:
    """A new state that is decided, and of which no file is in its place."""

    def stop(*_: object) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(next_state, "_move_committed_files", stop)
        with pytest.raises(Killed):
            update(run)


SPOILT: dict[str, Callable[[Path], object]] = {
    "manifest": lambda commit: (commit / "manifest.json").write_bytes(b"{}"),
    "manifest a folder": lambda commit: (
        (commit / "manifest.json").unlink(),
        (commit / "manifest.json").mkdir(),
    ),
    "manifest a link": lambda commit: (
        (commit / "manifest.json").rename(commit / "m"),
        (commit / "manifest.json").symlink_to(commit / "gone"),
    ),
    "a file": lambda commit: (commit / "model.safetensors").write_bytes(b"x"),
    "a file gone": lambda commit: (commit / "model.safetensors").unlink(),
    "a link": lambda commit: (
        (commit / "model.safetensors").rename(commit / "m"),
        (commit / "model.safetensors").symlink_to(commit / "m"),
    ),
    "a folder's link": lambda commit: (
        (commit / "bounds").rename(commit / "b"),
        (commit / "bounds").symlink_to(commit / "b"),
    ),
    "the run's folder": lambda commit: (
        (commit.parents[1] / "bounds").rename(commit.parents[2] / "b"),
        (commit.parents[1] / "bounds").symlink_to(commit.parents[2] / "b"),
    ),
}


@pytest.mark.parametrize("name", SPOILT)
def test_a_spoilt_commit_changes_nothing(run: Path, tmp_path: Path, name: str) -> None:
    decide(run)
    SPOILT[name](run / COMMIT_FOLDER)
    before = listing(tmp_path)
    for _ in range(2):
        with pytest.raises(
            ConfigError,
            match=rf"{COMMIT_FOLDER}\b.*{COMMIT_FOLDER}\b",
        ):
            open_run(run, "train")
        with pytest.raises(ConfigError, match=COMMIT_FOLDER):
            update(run)
    assert listing(tmp_path) == before
    if name != "the run's folder":
        shutil.move(run / COMMIT_FOLDER, tmp_path / "away")
        assert state(open_run(run, "train")) == 0


@pytest.mark.parametrize("name", [NEXT_STATE_FOLDER, COMMIT_FOLDER])
def test_a_file_in_a_folders_place(run: Path, name: str) -> None:
    (run / name).write_bytes(b"")
    with pytest.raises(ConfigError, match=rf"{name} .*rm "):
        update(run)
