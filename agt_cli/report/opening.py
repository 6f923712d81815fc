"""A finished run is opened: every file of it is compared with its manifest."""

from pathlib import Path
from typing import TYPE_CHECKING

from agt.errors import ConfigError

if TYPE_CHECKING:
    pass
from agt_cli.report.finished import _SWAPPED, Run, has_pending_commit, manifest_digest
from agt_cli.report.found import newest
from agt_cli.report.next_state import recover
from agt_cli.report.unfinished import UNKNOWN

STATUS_FILE = "status.json"
_TRIES = 3  # of a run that changes while it is opened


def check_folder(folder: Path, command: str, key: str = "run") -> None:
    """Raise ConfigError where there is no such folder, naming the newest finished run of
    ``command`` beside it.
    """
    if folder.is_dir():
        return
    run = newest(folder.parent, command)
    beside = f"; the newest finished {command} run is {run.folder}" if run else ""
    if folder.exists():
        within = ""
        if (folder.parent / STATUS_FILE).exists():
            within = f": give the folder that it is in, {key}={folder.parent}"
        raise ConfigError(
            f"{key}={folder}: this is a file, but the folder of a finished run is needed"
            f"{within or beside}"
        )
    raise ConfigError(
        f"{key}={folder}: this folder does not exist: give the folder of a finished run{beside}"
    )


def check_usable(folder: Path, command: str, key: str = "run") -> None:
    """Raise ConfigError unless there is a finished run of ``command``, none of which is verified.

    Args:
        folder: where it should be.
        command: that made it.
        key: the setting that names the folder, for messages.
    """
    check_folder(folder, command, key)
    if has_pending_commit(folder):
        return  # its files are being replaced, which ``open_run`` waits for
    _check_status(folder, command, key)


def _check_status(folder: Path, command: str, key: str) -> None:
    """Raise ConfigError unless status.json says that the run is finished, and one of
    ``command``.
    """
    if not (folder / STATUS_FILE).exists():
        raise ConfigError(
            f"{key}={folder}: this is not the folder of a run ({STATUS_FILE} is missing): give the "
            f"folder of a run{_run_inside(folder, command)}"
        )
    there = Run.at(folder, key)
    there.json(STATUS_FILE)  # says why it cannot be read
    _check_done(there, command)


def _run_inside(folder: Path, command: str) -> str:
    """Return words for the newest finished run of ``command`` in a folder that holds runs."""
    for home in (folder, folder / command):
        run = newest(home, command)
        if run:
            return f", such as {run.folder}, the newest finished {command} run in it"
    return ""


def check_edits(run: Run, doing: str) -> None:
    """Refuse a training run whose certificates count changed labels or features, where records come
    and go.

    Raises:
        ConfigError: its edits remove and add no records; agt audit certificate alone makes such
            edits.
    """
    from agt.relations import RELATIONS  # torch, which help and wrong paths do without
    from agt.settings import RelationConfig, validate

    relation = validate(RelationConfig, run.config["relation"], "relation").name
    rule = RELATIONS[relation]
    if not rule.edits_whole_records and doing != "agt audit certificate":
        raise ConfigError(
            f"run={run.folder}: its certificates (relation={relation}) only cover changed "
            f"{rule.changes}, but {doing} adds or removes whole records: train with "
            "relation=add_remove"
        )


def open_run(folder: Path, command: str, digest: str | None = None, key: str = "run") -> Run:
    """Read a finished run of ``command``, and verify every file of it.

    A run whose state is just being swapped is read in its new one; an interrupted swap is brought
    to its end.

    Args:
        digest: the run must be the one of this digest; None: any.
        key: the setting that names the folder, for messages; ``digest`` is another beside it.

    Raises:
        ConfigError: no such folder, not a run, another command's run, not finished, another run
            than ``digest``, or a file is not what the run wrote; says which file shows it.
    """
    check_folder(folder, command, key)
    recover(folder, key)
    for _ in range(_TRIES):
        before = manifest_digest(folder)
        try:
            return _open_verified(folder, command, digest, key)
        except ConfigError:
            recover(folder, key)
            if manifest_digest(folder) == before:
                raise
    raise ConfigError(f"{key}={folder}: {_SWAPPED}")


def _open_verified(folder: Path, command: str, digest: str | None, key: str) -> Run:
    _check_status(folder, command, key)
    run = Run.open(folder, command, digest, key)
    # of this state, whatever comes after it
    _ = run.status, run.environment, run.metrics, run.config
    return run


def _check_done(run: Run, command: str) -> None:
    named = f"{run.key}={run.folder}"
    if run.command != command:
        used = run.environment.get("trained_run") if command == "train" else None
        instead = f". It used {run.key}={used}" if isinstance(used, str) else ""
        raise ConfigError(
            f"{named}: {STATUS_FILE} says that this is a run of {run.command!r}, but this "
            f"command needs a run of {command!r}{instead}"
        )
    if run.state == "done":
        return
    why, again = f" ({run.error})" if run.error else "", f"start `agt {command}` again"
    resume = again
    if command == "train":
        resume = f"type agt train resume={run.folder} to resume the run"
    if run.state == "running":
        why = " (its process is still running)"
        resume = "wait until it ends"
    elif run.state == "killed" and run.is_alive is None:
        why, resume = f", and {UNKNOWN}", again
    elif run.state == "killed":
        why = ", but its process no longer exists, so it was killed"
    said = run.status.get("state")
    raise ConfigError(
        f"{named}: this run has no result to use, because its state in status.json is "
        f"{said!r}{why}: {resume}"
    )
