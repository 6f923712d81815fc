"""A run's state is swapped for its next one (``record.NextState``) in the same folder: wholly, or
not at all.

    RUN/unlearning/lock      held by the one process that changes the run
    RUN/unlearning/next/     a new state that is being written; it counts for nothing
    RUN/unlearning/commit/   a new state that is whole, and now the run's, whose files are on their
                             way into its folder
    RUN/unlearning/key       the run's secret (agt_cli/unlearn/log.py): no state's, and never moved

Formal guarantees
    * A new state is on the disk, every file and name of it synced, before the one rename from next
      to commit. So a process that ends at any moment leaves the earlier state or the new one.
    * From the rename on, whoever opens the run first brings its files into their places
      (``recover``). Each step of that may be taken twice: a file that has left commit/ is in its
      place; old files are deleted by the old manifest's list, which stays until all of them are
      gone; the new manifest comes after them, and commit/ goes last.
    * Before the first file moves, each is compared with the new manifest, and links are refused.
    * Whoever reads meanwhile compares each file with a manifest, and stops at the first of another
      state, so nobody mixes two.

An audit never writes: if commit/ holds a manifest, it says that an erasure was carried out whose
files are not all in their places yet, and stops; it only notes next/ and lock.
"""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os.path import lexists
from pathlib import Path, PurePath

from agt.errors import ConfigError
from agt.store.atomic import sync_folder
from agt.store.lock import Lock, is_locked
from agt.store.manifest import MANIFEST_FILE, Manifest
from agt.store.reading import Broken
from agt_cli.report.finished import COMMIT, HOME, NEXT, STATE_LOCK, check_is_run
from agt_cli.report.unfinished import remove_leftovers

PATIENCE = 10.0  # seconds that a reader waits for files to come into their places


@contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Be the one process that changes a run; what an earlier one left is settled first, and what
    this one leaves, after.

    Raises:
        ConfigError: another process changes it just now; the folder cannot be written, or keeps no
            locks; or a link, or a damaged state, lies where this module keeps its own.
    """
    check_is_run(folder, "run")
    lock = _take_lock(folder)
    try:
        _finish_commit(folder)
        yield
    finally:
        with suppress(OSError):
            shutil.rmtree(folder / NEXT, ignore_errors=True)
        lock.release()


def recover(folder: Path) -> None:
    """Bring a run that an interrupted erasure left into its new state, before it is read; nothing
    where there was none.

    Raises:
        ConfigError: another process is at it and does not come to an end; the folder cannot be
            written; or what lies there is no state that an erasure left.
    """
    if not lexists(folder / COMMIT):
        _discard_staged(folder)
        return
    end = time.monotonic() + PATIENCE
    while lexists(folder / COMMIT):
        if is_locked(folder / STATE_LOCK) is not True:
            lock = _take_lock(folder)
            try:
                _finish_commit(folder)
            finally:
                lock.release()
        elif time.monotonic() > end:
            raise ConfigError(
                f"run={folder}: agt unlearn is changing this run at the moment: wait until it "
                "is done"
            )
        else:
            time.sleep(0.05)


def commit(folder: Path) -> None:
    """Make the finished record in next/ the run's state. The caller holds the run.

    Raises:
        ConfigError: the record is not whole; nothing is changed then.
    """
    staged = folder / NEXT
    try:
        _check_places(folder)
        new = _check_whole(folder, staged)
    except (OSError, Broken) as error:
        raise ConfigError(
            f"run={folder}: the new state that agt unlearn prepared is incomplete ({error}), so "
            "the run was not changed: type the command again"
        ) from None
    sync_folder(staged)
    staged.rename(folder / COMMIT)
    sync_folder(folder / HOME)
    _roll_forward(folder, new)
    _remove_commit(folder)


def _check_places(folder: Path) -> None:
    """Raise ConfigError where a link, or a file in a folder's place, would lead writing
    elsewhere.
    """
    for name in (HOME, STATE_LOCK, NEXT, COMMIT):
        path = folder / name
        no_folder = name != STATE_LOCK and path.exists() and not path.is_dir()
        odd = "a link" if path.is_symlink() else "not a folder" if no_folder else ""
        if odd:
            raise ConfigError(
                f"run={folder}: {path} is {odd}. agt unlearn does not create such a file, so "
                "it changed nothing: find out where the file comes from, and delete it with rm "
                f"{path}"
            )


def _check_whole(folder: Path, staged: Path) -> Manifest:
    """A next state's manifest, if each of its files lies beside that or is in its place, and none
    would land elsewhere.

    Raises:
        OSError, Broken: it is not so.
    """
    new = Manifest.open(staged)
    here = {name for name in new.files if lexists(staged / name)}
    for name in (*new.files, *_listed_files(folder)):
        for path in (staged / name, *_parents(staged, name), *_parents(folder, name)):
            if path.is_symlink():
                raise Broken(f"{path.relative_to(folder)} is a link")
    Manifest(new.command, {name: new.files[name] for name in here}).verify(staged)
    Manifest(new.command, {name: new.files[name] for name in new.files.keys() - here}).verify(
        folder
    )
    return new


def _parents(folder: Path, name: str) -> Iterator[Path]:
    """The folders in a folder that a file lies in."""
    return (folder / part for part in PurePath(name).parents if part.name)


def _take_lock(folder: Path) -> Lock:
    _check_places(folder)
    lock = Lock(folder / STATE_LOCK)
    try:
        (folder / HOME).mkdir(exist_ok=True)
        got = lock.acquire()
    except OSError as error:
        file = error.filename or STATE_LOCK
        reason = error.strerror or error
        raise ConfigError(
            f"run={folder}: {file} cannot be written ({reason}), but an erasure changes the "
            "run in its folder: make the file writable"
        ) from None
    if not got:
        raise ConfigError(
            f"run={folder}: another agt unlearn is changing this run at the moment: wait "
            "until it is done"
        )
    if not lock.works:
        raise ConfigError(
            f"run={folder}: this file system does not support locks, so two erasures could "
            "run at once: copy the run to a local disk"
        )
    return lock


def _discard_staged(folder: Path) -> None:
    """Delete what a process that was killed had begun to write; it is no state.

    Who cannot write leaves it.
    """
    if not lexists(folder / NEXT) or is_locked(folder / STATE_LOCK):
        return
    with suppress(ConfigError):
        lock = _take_lock(folder)
        shutil.rmtree(folder / NEXT, ignore_errors=True)
        lock.release()


def _finish_commit(folder: Path) -> None:
    """Roll forward, and delete what was begun. The caller has the lock.

    Raises:
        ConfigError: what lies in commit/ is not the whole state that an erasure left; nothing is
            changed then.
    """
    commit = folder / COMMIT
    if lexists(commit / MANIFEST_FILE):
        try:
            new = _check_whole(folder, commit)
        except (OSError, Broken) as error:
            raise ConfigError(
                f"run={folder}: the folder {COMMIT}, which contains the run's new state, was "
                f"altered or damaged after agt unlearn wrote it ({error}), so nothing was "
                "changed. Restore the folder from a backup. If you do not need the new state, "
                f"move {commit} to another place; the run then stays as it is"
            ) from None
        _roll_forward(folder, new)
    _remove_commit(folder)
    shutil.rmtree(folder / NEXT, ignore_errors=True)


def _remove_commit(folder: Path) -> None:
    if (folder / COMMIT).exists():
        shutil.rmtree(folder / COMMIT)
        sync_folder(folder / HOME)


def _roll_forward(folder: Path, new: Manifest) -> None:
    """Bring every file of commit/ into its place, delete the earlier state's, and then swap the
    manifests.
    """
    touched = {folder}
    for name in new.files:
        if (folder / COMMIT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / COMMIT / name).replace(folder / name)
            touched.add((folder / name).parent)
    for name in _listed_files(folder) - new.files.keys():
        (folder / name).unlink(missing_ok=True)
        _remove_empty((folder / name).parent, folder)
    remove_leftovers(folder)
    for place in touched:
        sync_folder(place)
    (folder / COMMIT / MANIFEST_FILE).replace(folder / MANIFEST_FILE)
    sync_folder(folder)


def _listed_files(folder: Path) -> set[str]:
    """The files of the state that is leaving."""
    with suppress(OSError, Broken):
        return set(Manifest.open(folder).files)
    return set()


def _remove_empty(place: Path, folder: Path) -> None:
    with suppress(OSError):
        while place != folder:
            place.rmdir()
            place = place.parent
