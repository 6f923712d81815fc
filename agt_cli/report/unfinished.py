"""A training that was killed, as the command that resumes it needs it."""

import shutil
from pathlib import Path

from agt.errors import ConfigError
from agt_cli.report.finished import CHECKPOINTS, LOCK, Run, check_is_run

RESUME_KEY = "resume"

UNKNOWN = "there is no lock file, so agt cannot tell whether the run's process still exists"


def check_resumed_folder(folder: Path) -> None:
    """Raise ConfigError unless there is the folder of a run."""
    if not folder.is_dir():
        raise ConfigError(
            f"{RESUME_KEY}={folder}: this folder does not exist: give the folder of a run "
            "that was killed"
        )
    check_is_run(folder, RESUME_KEY)


def open_unfinished(folder: Path, command: str) -> Run:
    """A run that was killed or failed, with what it was begun with.

    Raises:
        ConfigError: no such folder, not a run, another command's, still running, finished, or
            killed before its settings were written.
    """
    check_resumed_folder(folder)
    run = Run.at(folder, RESUME_KEY)
    run.json("status.json")  # says why it cannot be read
    if run.command != command:
        raise ConfigError(
            f"{RESUME_KEY}={folder}: agt {command} cannot resume a run of agt {run.command}: "
            f"start agt {run.command} again"
        )
    if run.state == "running":
        raise still_running(folder)
    check_open(run)
    if run.state == "killed" and run.is_alive is None:
        raise ConfigError(
            f"{RESUME_KEY}={folder}: {UNKNOWN}. Make sure that this process no longer exists, "
            f"and start a new run without {RESUME_KEY}=..."
        )
    if not (folder / "config.yaml").exists():
        raise ConfigError(
            f"{RESUME_KEY}={folder}: config.yaml is missing, because the run was killed "
            f"before its settings were written: start a new run without {RESUME_KEY}=..."
        )
    run.yaml("config.yaml")
    if (folder / "env.json").exists():
        run.json("env.json")
    return run


def still_running(folder: Path) -> ConfigError:
    """What to raise of a run whose process is alive."""
    return ConfigError(
        f"{RESUME_KEY}={folder}: the process of this run still exists: wait until it ends, or "
        "stop it first"
    )


def check_open(run: Run) -> None:
    """Raise ConfigError of a run that is finished; what it should have removed, had it not been
    killed then, goes.
    """
    if run.state == "done":
        remove_leftovers(run.folder)
        raise ConfigError(
            f"{RESUME_KEY}={run.folder}: this run is finished, so there is nothing to resume: "
            f"to use it, type agt certify run={run.folder}"
        )


def remove_leftovers(folder: Path) -> None:
    """Remove what a finished run needs no more."""
    shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
    (folder / LOCK).unlink(missing_ok=True)
