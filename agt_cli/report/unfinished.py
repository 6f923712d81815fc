"""A training that was killed, as the command that resumes it needs it."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from agt.errors import ConfigError

if TYPE_CHECKING:
    pass
from agt_cli.report.finished import CHECKPOINTS, LOCK, Run

RESUME_KEY = "resume"

UNKNOWN = "it has no lock, and nobody can tell whether its process lives"


def open_unfinished(folder: Path, command: str) -> Run:
    """A run that was killed or failed, with what it was begun with.

    Raises:
        ConfigError: no such folder, not a run, another command's, still running, finished, or
            killed before its settings were written.
    """
    if not folder.is_dir():
        raise ConfigError(
            f"{RESUME_KEY}={folder}: no such folder: give the folder of a run that was killed"
        )
    if not (folder / "status.json").exists():
        raise ConfigError(
            f"{RESUME_KEY}={folder}: status.json is missing: is this the folder of a run?"
        )
    run = Run.at(folder, RESUME_KEY)
    run.json("status.json")  # says why it cannot be read
    if run.command != command:
        raise ConfigError(
            f"{RESUME_KEY}={folder}: this is a run of {run.command!r}, not of {command!r}: start "
            "it again"
        )
    if run.state == "running":
        raise still_running(folder)
    check_open(run)
    if run.state == "killed" and run.is_alive is None:
        raise ConfigError(
            f"{RESUME_KEY}={folder}: {UNKNOWN}: start it anew, once you know that it does not"
        )
    if not (folder / "config.yaml").exists():
        raise ConfigError(
            f"{RESUME_KEY}={folder}: no config.yaml: the run was killed before it began: start it "
            "anew"
        )
    run.yaml("config.yaml")
    if (folder / "env.json").exists():
        run.json("env.json")
    return run


def still_running(folder: Path) -> ConfigError:
    """What to raise of a run whose process is alive."""
    return ConfigError(
        f"{RESUME_KEY}={folder}: the run is still going on, in another process: wait for it, or "
        "end it first"
    )


def check_open(run: Run) -> None:
    """Raise ConfigError of a run that is finished; what it should have removed, had it not been
    killed then, goes.
    """
    if run.state == "done":
        remove_leftovers(run.folder)
        raise ConfigError(
            f"{RESUME_KEY}={run.folder}: the run is finished, there is nothing to do: agt certify "
            f"run={run.folder} comes "
            "next"
        )


def remove_leftovers(folder: Path) -> None:
    """Remove what a finished run needs no more."""
    shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
    (folder / LOCK).unlink(missing_ok=True)
