"""Open a finished run, whose files are compared with its manifest as they are read."""

from difflib import get_close_matches
from pathlib import Path

from agt.errors import ConfigError
from agt_cli.report.finished import (
    CHANGED_MEANWHILE,
    Run,
    check_is_run,
    has_pending_commit,
    manifest_digest,
)
from agt_cli.report.found import LATEST, newest_run
from agt_cli.report.next_state import recover
from agt_cli.report.unfinished import NO_LOCK_FILE

STATUS_FILE = "status.json"
MAX_OPEN_ATTEMPTS = 3  # how often a run is opened again because it was changed meanwhile


def check_folder(folder: Path, command: str) -> None:
    """Raise ConfigError if a folder does not exist.

    Args:
        folder: the value of ``run``.
        command: the message names the newest finished run of this command in the same parent
            folder.
    """
    if folder.is_dir():
        return
    run = newest_run(folder.parent, command)
    suggestion = f"; the newest finished {command} run is {run.folder}" if run else ""
    if folder.exists():
        remedy = ""
        if (folder.parent / STATUS_FILE).exists():
            remedy = f": give the folder that contains this file, run={folder.parent}"
        raise ConfigError(
            f"run={folder}: this is a file, but the folder of a finished run is needed"
            f"{remedy or suggestion}"
        )
    if get_close_matches(str(folder), [LATEST], cutoff=0.75):
        suggestion = f"; did you mean run={LATEST}?"
    raise ConfigError(
        f"run={folder}: this folder does not exist: give the folder of a finished run{suggestion}"
    )


def check_usable(folder: Path, command: str) -> None:
    """Raise ConfigError unless a folder contains a finished run of a command, by its status.json.

    Args:
        folder: the value of ``run``.
        command: the name of the command that must have made the run.
    """
    check_folder(folder, command)
    if has_pending_commit(folder):
        return  # an erasure is replacing its files, for which ``open_run`` waits
    _check_status(folder, command)


def _check_status(folder: Path, command: str) -> None:
    """Raise ConfigError unless status.json says that the run is a finished one of ``command``."""
    if not (folder / STATUS_FILE).is_file():
        newest = newest_run(folder, command) or newest_run(folder / command, command)
        if newest is not None:
            raise ConfigError(
                f"run={folder}: this is not the folder of a run (it has no file {STATUS_FILE}): "
                f"give the folder of a run, such as {newest.folder}, the newest finished {command} "
                "run in it"
            )
    check_is_run(folder, "run")
    run = Run.at(folder)
    run.json(STATUS_FILE)  # called because it raises if the file cannot be read
    _check_done(run, command)


def check_edits(run: Run, command: str) -> None:
    """Raise ConfigError if a command adds or removes records, but a run's certificates do not
    cover that.

    Args:
        run: a training run. Its certificates may cover only changed labels or features.
        command: the command, as it is typed. ``agt audit certificate`` makes the edits that the
            certificates cover.
    """
    # Imported here, because it loads PyTorch, which help and wrong paths do not need.
    from agt.relations import RELATIONS
    from agt.settings import RelationConfig, validate

    relation = validate(RelationConfig, run.config["relation"], "relation").name
    rule = RELATIONS[relation]
    if not rule.edits_whole_records and command != "agt audit certificate":
        raise ConfigError(
            f"run={run.folder}: its certificates (relation={relation}) only cover changed "
            f"{rule.changes}, but {command} adds or removes whole records: train with "
            "relation=add_remove"
        )


def open_run(folder: Path, command: str, digest: str | None = None) -> Run:
    """Open a finished run; its files are compared with its manifest as they are read.

    If an erasure is just changing the run, its new state is opened. An interrupted erasure is
    finished first.

    Args:
        folder: the folder of the run.
        command: the name of the command that must have made the run.
        digest: the digest that the run must have; None: any.

    Raises:
        ConfigError: the folder is not that of a finished run of the command, the run has another
            digest, or a file was changed; the message says which.
    """
    check_folder(folder, command)
    recover(folder)
    for _ in range(MAX_OPEN_ATTEMPTS):
        before = manifest_digest(folder)
        try:
            return _open_verified(folder, command, digest)
        except ConfigError:
            recover(folder)
            if manifest_digest(folder) == before:
                raise
    raise ConfigError(f"run={folder}: {CHANGED_MEANWHILE}")


def _open_verified(folder: Path, command: str, digest: str | None) -> Run:
    """Return a finished run, verified by its manifest; for the arguments see ``open_run``."""
    _check_status(folder, command)
    run = Run.open(folder, command, digest, "run")
    # Read now, so that all of them are of the same state, even if an erasure changes the run.
    _ = run.status, run.environment, run.metrics, run.config
    return run


def _check_done(run: Run, command: str) -> None:
    """Raise ConfigError unless a run is a finished one of a command."""
    setting = f"run={run.folder}"
    if run.command != command:
        used = run.environment.get("trained_run") if command == "train" else None
        suggestion = f". It used run={used}" if isinstance(used, str) else ""
        raise ConfigError(
            f"{setting}: according to {STATUS_FILE}, this is a run of agt {run.command}, but this "
            f"command needs a run of agt {command}{suggestion}"
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
        why = NO_LOCK_FILE
        resume = again
    elif run.state == "killed":
        why = "the run's process no longer exists, so the run was killed"
    state = run.status.get("state")
    reason = f" ({why})" if why else ""
    raise ConfigError(
        f"{setting}: this run has no result, because its state in status.json is {state!r}"
        f"{reason}: {resume}"
    )
