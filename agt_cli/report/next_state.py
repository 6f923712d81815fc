"""Replace the state of a run by its next one (``record.NextState``) in the same folder: as a whole,
or not at all.

    RUN/unlearning/lock      held by the one process that changes the run
    RUN/unlearning/next/     a new state that is being written; no command reads it
    RUN/unlearning/commit/   a new state that is complete, and is now the run's; its files are being
                             moved into the run's folder
    RUN/unlearning/key       the run's secret (agt_cli/unlearn/hash_key.py): part of no state, and
                             never moved

Formal guarantees
    - A new state is on the disk, with every file and name synced, before the one rename from next
      to commit. So a process that ends at any moment leaves the earlier state or the new one.
    - After the rename, whoever opens the run first moves its files to their places (``recover``).
      Each step of that may be repeated: a file that has left commit/ is in its place; old files are
      deleted by the list in the old manifest, which stays until all of them are deleted; the new
      manifest comes after them, and commit/ is removed last.
    - Before the first file is moved, each is compared with the new manifest, and links are refused.
    - A process that reads meanwhile compares each file with a manifest, and stops at the first file
      of another state, so no process mixes two states.

``agt verify`` never writes. If commit/ has a manifest, it stops and says that an erasure was
carried out whose files are not all in their places yet. It only notes next/ and lock.
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
from agt_cli.report.finished import (
    COMMIT_FOLDER,
    NEXT_STATE_FOLDER,
    STATE_LOCK,
    UNLEARNING_FOLDER,
    check_is_run,
)
from agt_cli.report.unfinished import remove_leftovers

PATIENCE_SECONDS = 10.0
"""How long a reader waits for another process to move the files of a new state."""


@contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Hold the lock of a run that is to be changed, so that no other process changes it.

    A commit that an earlier process left unfinished is finished first. An uncommitted state that
    the context leaves is deleted at its end.

    Raises:
        ConfigError: another process is changing the run; the folder cannot be written, or its file
            system has no locks; or one of this module's paths has a link or a damaged state.
    """
    check_is_run(folder, "run")
    lock = _acquire_state_lock(folder)
    try:
        _finish_commit(folder)
        yield
    finally:
        with suppress(OSError):
            shutil.rmtree(folder / NEXT_STATE_FOLDER, ignore_errors=True)
        lock.release()


def recover(folder: Path) -> None:
    """Finish a commit that an erasure left unfinished, so that the run can be read.

    If there is none, an uncommitted state that a killed process left is deleted.

    Raises:
        ConfigError: another process is committing, and does not finish within ``PATIENCE_SECONDS``;
            the folder cannot be written; or the committed state was altered or damaged.
    """
    if not lexists(folder / COMMIT_FOLDER):
        _delete_uncommitted_state(folder)
        return
    end = time.monotonic() + PATIENCE_SECONDS
    while lexists(folder / COMMIT_FOLDER):
        if is_locked(folder / STATE_LOCK) is not True:
            lock = _acquire_state_lock(folder)
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
    """Make the finished record in next/ the run's state. The caller holds ``run_lock``.

    Raises:
        ConfigError: the record is incomplete; nothing was changed.
    """
    next_folder = folder / NEXT_STATE_FOLDER
    try:
        _check_no_links(folder)
        new = _checked_manifest(folder, next_folder)
    except (OSError, Broken) as error:
        raise ConfigError(
            f"run={folder}: the new state that agt unlearn prepared is incomplete ({error}), so "
            "the run was not changed: type the command again"
        ) from None
    sync_folder(next_folder)
    next_folder.rename(folder / COMMIT_FOLDER)
    sync_folder(folder / UNLEARNING_FOLDER)
    _move_committed_files(folder, new)
    _remove_commit(folder)


def _check_no_links(folder: Path) -> None:
    """Raise ConfigError if one of this module's paths is a link, or a file instead of a folder.

    Files would be written to another place through a link.
    """
    for name in (UNLEARNING_FOLDER, STATE_LOCK, NEXT_STATE_FOLDER, COMMIT_FOLDER):
        path = folder / name
        problem = ""
        if name != STATE_LOCK and path.exists() and not path.is_dir():
            problem = "not a folder"
        if path.is_symlink():
            problem = "a link"
        if problem:
            raise ConfigError(
                f"run={folder}: {path} is {problem}. agt unlearn does not create such a file, so "
                "it changed nothing: find out where the file comes from, and delete it with rm "
                f"{path}"
            )


def _checked_manifest(folder: Path, state_folder: Path) -> Manifest:
    """Return the manifest of a new state, after checking that all files that it lists exist.

    A file may be in ``state_folder``, or already in the folder of the run.

    Args:
        folder: the folder of the run.
        state_folder: the folder of the new state.

    Raises:
        OSError, Broken: a file is missing or has another hash; or one of the paths is a link,
            through which a file would be written to another place.
    """
    new = Manifest.open(state_folder)
    for name in (*new.files, *_listed_files(folder)):
        for path in (state_folder / name, *_parents(state_folder, name), *_parents(folder, name)):
            if path.is_symlink():
                raise Broken(f"{path.relative_to(folder)} is a link")
    to_move: dict[str, str] = {}
    moved: dict[str, str] = {}
    for name, digest in new.files.items():
        files = to_move if lexists(state_folder / name) else moved
        files[name] = digest
    Manifest(new.command, to_move).verify(state_folder)
    Manifest(new.command, moved).verify(folder)
    return new


def _parents(folder: Path, name: str) -> Iterator[Path]:
    """Return the folders inside a folder that contain a file, given by its path in the folder."""
    return (folder / part for part in PurePath(name).parents if part.name)


def _acquire_state_lock(folder: Path) -> Lock:
    """Acquire and return the lock of a run's state.

    Raises:
        ConfigError: another process holds it; the folder cannot be written, or its file system has
            no locks; or one of this module's paths is a link.
    """
    _check_no_links(folder)
    lock = Lock(folder / STATE_LOCK)
    try:
        (folder / UNLEARNING_FOLDER).mkdir(exist_ok=True)
        is_acquired = lock.acquire()
    except OSError as error:
        file = error.filename or STATE_LOCK
        reason = error.strerror or error
        raise ConfigError(
            f"run={folder}: {file} cannot be written ({reason}), but an erasure changes the "
            "run in its folder: make the file writable"
        ) from None
    if not is_acquired:
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


def _delete_uncommitted_state(folder: Path) -> None:
    """Delete a state that a killed process did not commit, if the folder can be written."""
    if not lexists(folder / NEXT_STATE_FOLDER) or is_locked(folder / STATE_LOCK):
        return
    with suppress(ConfigError):
        lock = _acquire_state_lock(folder)
        shutil.rmtree(folder / NEXT_STATE_FOLDER, ignore_errors=True)
        lock.release()


def _finish_commit(folder: Path) -> None:
    """Finish an unfinished commit, if there is one, and delete an uncommitted state.

    The caller holds the lock of the run's state.

    Raises:
        ConfigError: the committed state was altered or damaged; nothing was changed.
    """
    commit = folder / COMMIT_FOLDER
    if lexists(commit / MANIFEST_FILE):
        try:
            new = _checked_manifest(folder, commit)
        except (OSError, Broken) as error:
            raise ConfigError(
                f"run={folder}: the folder {COMMIT_FOLDER}, which contains the run's new state, "
                f"was altered or damaged after agt unlearn wrote it ({error}), so nothing was "
                "changed. Restore the folder from a backup. If you do not need the new state, "
                f"move {commit} to another place; the run then stays as it is"
            ) from None
        _move_committed_files(folder, new)
    _remove_commit(folder)
    shutil.rmtree(folder / NEXT_STATE_FOLDER, ignore_errors=True)


def _remove_commit(folder: Path) -> None:
    """Delete the folder of a commit whose files were moved."""
    if (folder / COMMIT_FOLDER).exists():
        shutil.rmtree(folder / COMMIT_FOLDER)
        sync_folder(folder / UNLEARNING_FOLDER)


def _move_committed_files(folder: Path, new: Manifest) -> None:
    """Move the files of commit/ to their paths, delete other files of the earlier state, and then
    replace the manifest.

    The manifest is last, so that an interrupted call can be repeated: it still lists the earlier
    state's files.

    Args:
        folder: the folder of the run.
        new: the manifest of the new state.
    """
    changed_folders = {folder}
    for name in new.files:
        path = folder / name
        committed = folder / COMMIT_FOLDER / name
        if committed.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            committed.replace(path)
            changed_folders.add(path.parent)
    for name in _listed_files(folder) - new.files.keys():
        path = folder / name
        path.unlink(missing_ok=True)
        _remove_empty(path.parent, folder)
    remove_leftovers(folder)
    for changed in changed_folders:
        sync_folder(changed)
    (folder / COMMIT_FOLDER / MANIFEST_FILE).replace(folder / MANIFEST_FILE)
    sync_folder(folder)


def _listed_files(folder: Path) -> set[str]:
    """Return the files that the manifest in a folder lists; none if it cannot be read."""
    with suppress(OSError, Broken):
        return set(Manifest.open(folder).files)
    return set()


def _remove_empty(path: Path, folder: Path) -> None:
    """Delete a folder and those above it, up to ``folder``, as far as they are empty."""
    with suppress(OSError):
        while path != folder:
            path.rmdir()
            path = path.parent
