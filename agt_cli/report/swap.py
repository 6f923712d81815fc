"""A run's state is swapped for its next one (successor.py) in the same folder: wholly, or not at all.

    RUN/unlearning/lock      held by the one process that changes the run
    RUN/unlearning/next/     a new state that is being written; it counts for nothing
    RUN/unlearning/commit/   a new state that is whole, and now the run's, whose files are on their way into its folder
    RUN/unlearning/key       the run's secret (agt/unlearning/keys.py): no state's, and never moved

Formal guarantees
    A new state is on the disk, every file and name of it synced, before the one rename from next to commit; so a process
    that ends at any moment, by a power cut too, leaves the earlier state or the new one. From the rename on, whoever opens
    the run first brings its files into their places (``settle``). Each step of that may be taken twice: a file that has
    left commit/ is in its place; old files are deleted by the old manifest's list, which stays until all of them are gone;
    the new manifest comes after them, and commit/ goes last. Whoever reads meanwhile, without looking for commit/, compares
    each file with a manifest, and stops at the first of another state: nobody mixes two.

Who audits never writes: where commit/ holds a manifest, an audit says that an erasure was carried out whose files are not
all in their places yet (any other command on the run brings them there), and goes no further; next/ and lock it only notes.
"""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from agt.disk import Lock, is_locked, sync_folder
from agt.errors import ConfigError
from agt.manifest import NAME as MANIFEST
from agt.manifest import Broken, Manifest
from agt_cli.report.unfinished import remove_leftovers

HOME = "unlearning"
LOCK, NEXT, COMMIT = f"{HOME}/lock", f"{HOME}/next", f"{HOME}/commit"
PATIENCE = 10.0  # seconds that a reader waits for files to come into their places


@contextmanager
def hold(folder: Path, key: str = "run") -> Iterator[None]:
    """Be the one process that changes a run; what an earlier one left is settled first, and what this one leaves, after.

    Args:
        key: the setting that names the folder, for messages.

    Raises:
        ConfigError: another process changes it just now; or the folder cannot be written, or keeps no locks.
    """
    if not (folder / "status.json").is_file():
        raise ConfigError(f"{key}={folder}: not the folder of a run")
    lock = _taken(folder, key)
    try:
        _settled(folder)
        yield
    finally:
        with suppress(OSError):
            shutil.rmtree(folder / NEXT, ignore_errors=True)
        lock.release()


def settle(folder: Path, key: str = "run") -> None:
    """Bring a run that an interrupted erasure left into its new state, before it is read; nothing where there was none.

    Raises:
        ConfigError: another process is at it and does not come to an end, or the folder cannot be written.
    """
    if not (folder / COMMIT).exists():
        _clear(folder)
        return
    end = time.monotonic() + PATIENCE
    while (folder / COMMIT).exists():
        if is_locked(folder / LOCK) is not True:
            lock = _taken(folder, key)
            try:
                _settled(folder)
            finally:
                lock.release()
        elif time.monotonic() > end:
            raise ConfigError(f"{key}={folder}: agt unlearn is changing this run just now: ask again when it is done")
        else:
            time.sleep(0.05)


def unsettled(folder: Path) -> bool:
    """Whether a new state's files are on their way; for whoever must not write (an audit)."""
    return (folder / COMMIT / MANIFEST).exists()


def put(folder: Path) -> None:
    """Make the finished record in next/ the run's state. The caller holds the run.

    Raises:
        ConfigError: the record is not whole; nothing is changed then.
    """
    staged = folder / NEXT
    try:
        new = Manifest.read((staged / MANIFEST).read_bytes())
        Manifest(new.command, {name: new.files[name] for name in new.files if (staged / name).exists()}).verify(staged)
        Manifest(new.command, {name: new.files[name] for name in new.files if not (staged / name).exists()}).verify(folder)
    except (OSError, Broken) as error:
        raise ConfigError(f"run={folder}: its next state is not whole ({error}), and nothing was changed") from None
    sync_folder(staged)
    staged.rename(folder / COMMIT)
    sync_folder(folder / HOME)
    _settled(folder)


def _taken(folder: Path, key: str) -> Lock:
    lock = Lock(folder / LOCK)
    try:
        (folder / HOME).mkdir(exist_ok=True)
        got = lock.take()
    except OSError as error:
        raise ConfigError(
            f"{key}={folder}: {error.filename or LOCK} cannot be written ({error.strerror or error}), and an erasure "
            "changes the run in its folder: make it writable"
        ) from None
    if not got:
        raise ConfigError(f"{key}={folder}: another agt unlearn is changing this run just now: wait until it is done")
    if not lock.works:
        raise ConfigError(
            f"{key}={folder}: this file system keeps no locks, so two erasures at once could not be told apart: copy the "
            "run to a local disk"
        )
    return lock


def _clear(folder: Path) -> None:
    """Delete what a process that was killed had begun to write; it is no state. Who cannot write leaves it."""
    if not (folder / NEXT).exists() or is_locked(folder / LOCK):
        return
    with suppress(ConfigError):
        lock = _taken(folder, "run")
        shutil.rmtree(folder / NEXT, ignore_errors=True)
        lock.release()


def _settled(folder: Path) -> None:
    """Roll forward, and delete what was begun. The caller has the lock."""
    commit = folder / COMMIT
    if (commit / MANIFEST).exists():
        _roll_forward(folder, Manifest.read((commit / MANIFEST).read_bytes()))
    if commit.exists():
        shutil.rmtree(commit)
        sync_folder(folder / HOME)
    shutil.rmtree(folder / NEXT, ignore_errors=True)


def _roll_forward(folder: Path, new: Manifest) -> None:
    """Bring every file of commit/ into its place, delete the earlier state's, and then swap the manifests."""
    touched = {folder}
    for name in new.files:
        if (folder / COMMIT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / COMMIT / name).replace(folder / name)
            touched.add((folder / name).parent)
    for name in _listed(folder) - new.files.keys():
        (folder / name).unlink(missing_ok=True)
        _remove_empty((folder / name).parent, folder)
    remove_leftovers(folder)
    for place in touched:
        sync_folder(place)
    (folder / COMMIT / MANIFEST).replace(folder / MANIFEST)
    sync_folder(folder)


def _listed(folder: Path) -> set[str]:
    """The files of the state that is leaving."""
    with suppress(OSError, Broken):
        return set(Manifest.read((folder / MANIFEST).read_bytes()).files)
    return set()


def _remove_empty(place: Path, folder: Path) -> None:
    while place != folder:
        try:
            place.rmdir()
        except OSError:
            return
        place = place.parent
