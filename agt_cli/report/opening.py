"""A finished run is opened: every file of it is compared with its manifest."""

from difflib import get_close_matches
from pathlib import Path

from agt.errors import ConfigError
from agt_cli.report.finished import (
    _SWAPPED,
    Run,
    check_is_run,
    has_pending_commit,
    manifest_digest,
)
from agt_cli.report.found import LATEST, newest
from agt_cli.report.next_state import recover
from agt_cli.report.unfinished import UNKNOWN

STATUS_FILE = "status.json"
_TRIES = 3  # of a run that changes while it is opened


def check_folder(folder: Path, command: str) -> None:
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
            within = f": give the folder that contains this file, run={folder.parent}"
        raise ConfigError(
            f"run={folder}: this is a file, but the folder of a finished run is needed"
            f"{within or beside}"
        )
    if get_close_matches(str(folder), [LATEST], cutoff=0.75):
        beside = f"; did you mean run={LATEST}?"
    raise ConfigError(
        f"run={folder}: this folder does not exist: give the folder of a finished run{beside}"
    )


def check_usable(folder: Path, command: str) -> None:
    """Raise ConfigError unless there is a finished run of ``command``, none of which is verified.

    Args:
        folder: where it should be.
        command: that made it.
    """
    check_folder(folder, command)
    if has_pending_commit(folder):
        return  # its files are being replaced, which ``open_run`` waits for
    _check_status(folder, command)


def _check_status(folder: Path, command: str) -> None:
    """Raise ConfigError unless status.json says that the run is finished, and one of
    ``command``.
    """
    inside = None if (folder / STATUS_FILE).is_file() else _run_inside(folder, command)
    if inside is not None:
        raise ConfigError(
            f"run={folder}: this is not the folder of a run (it has no file {STATUS_FILE}): give "
            f"the folder of a run, such as {inside.folder}, the newest finished {command} run in it"
        )
    check_is_run(folder, "run")
    there = Run.at(folder)
    there.json(STATUS_FILE)  # says why it cannot be read
    _check_done(there, command)


def _run_inside(folder: Path, command: str) -> Run | None:
    """Return the newest finished run of ``command`` in a folder that holds runs; None: none is."""
    return newest(folder, command) or newest(folder / command, command)


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


def open_run(folder: Path, command: str, digest: str | None = None) -> Run:
    """Read a finished run of ``command``, and verify every file of it.

    A run whose state is just being swapped is read in its new one; an interrupted swap is brought
    to its end.

    Args:
        digest: the run must be the one of this digest; None: any.

    Raises:
        ConfigError: no such folder, not a run, another command's run, not finished, another run
            than ``digest``, or a file is not what the run wrote; says which file shows it.
    """
    check_folder(folder, command)
    recover(folder)
    for _ in range(_TRIES):
        before = manifest_digest(folder)
        try:
            return _open_verified(folder, command, digest)
        except ConfigError:
            recover(folder)
            if manifest_digest(folder) == before:
                raise
    raise ConfigError(f"run={folder}: {_SWAPPED}")


def _open_verified(folder: Path, command: str, digest: str | None) -> Run:
    """Return a finished run, verified by its manifest; arguments as of ``open_run``."""
    _check_status(folder, command)
    run = Run.open(folder, command, digest, "run")
    # Read now, so that all of them are of the same state, even if an erasure changes the run.
    _ = run.status, run.environment, run.metrics, run.config
    return run


def _check_done(run: Run, command: str) -> None:
    """Raise ConfigError unless a run is a finished one of a command."""
    named = f"run={run.folder}"
    if run.command != command:
        used = run.environment.get("trained_run") if command == "train" else None
        instead = f". It used run={used}" if isinstance(used, str) else ""
        raise ConfigError(
            f"{named}: according to {STATUS_FILE}, this is a run of agt {run.command}, but this "
            f"command needs a run of agt {command}{instead}"
        )
    if run.state == "done":
        return
    why = run.error
    again = f"start `agt {command}` again"
    resume = again
    if command == "train":
        resume = f"type agt train resume={run.folder} to resume the run"
    if run.state == "running":
        why = "the run's process is still running"
        resume = "wait until it ends"
    elif run.state == "killed" and run.is_alive is None:
        why = UNKNOWN
        resume = again
    elif run.state == "killed":
        why = "the run's process no longer exists, so the run was killed"
    said = run.status.get("state")
    reason = f" ({why})" if why else ""
    raise ConfigError(
        f"{named}: this run has no result, because its state in status.json is {said!r}{reason}: "
        f"{resume}"
    )
