"""Open a training run that was killed or failed, to resume it."""

import shutil
from pathlib import Path

from agt.errors import ConfigError
from agt_cli.report.finished import CHECKPOINTS, LOCK_FILE, Run, check_is_run

RESUME_KEY = "resume"

NO_LOCK_FILE = "there is no lock file, so agt cannot tell whether the run's process still exists"


def check_resume_setting(value: object, sweep: bool) -> None:
    """Raise ConfigError unless the setting ``resume`` can name a run.

    Args:
        value: the value of the setting.
        sweep: True: the command line starts several runs.
    """
    if not isinstance(value, str) or not value:
        raise ConfigError(
            f"{RESUME_KEY}={value}: this is not a folder: give the folder of a killed run, or "
            f"leave {RESUME_KEY}=... out to start a new run"
        )
    if sweep:
        raise ConfigError(
            f"{RESUME_KEY}={value}: only a single run can be resumed, but -m starts several "
            "runs: leave out -m"
        )


def check_resumed_folder(folder: Path) -> None:
    """Raise ConfigError unless a folder exists and is that of a run."""
    if not folder.is_dir():
        raise ConfigError(
            f"{RESUME_KEY}={folder}: this folder does not exist: give the folder of a run "
            "that was killed"
        )
    check_is_run(folder, RESUME_KEY)


def open_unfinished(folder: Path) -> Run:
    """Return a training that was killed or failed, after checking that it can be resumed.

    Args:
        folder: the folder of the run.

    Raises:
        ConfigError: the folder is not that of a run; or the run is another command's, still
            running, finished, or was killed before its settings were written.
    """
    check_resumed_folder(folder)
    run = Run.at(folder, RESUME_KEY)
    run.json("status.json")  # called because it raises if the file cannot be read
    if run.command != "train":
        raise ConfigError(
            f"{RESUME_KEY}={folder}: agt train cannot resume a run of agt {run.command}: "
            f"start agt {run.command} again"
        )
    if run.state == "running":
        raise still_running_error(folder)
    check_not_finished(run)
    if run.state == "killed" and run.is_alive is None:
        raise ConfigError(
            f"{RESUME_KEY}={folder}: {NO_LOCK_FILE}. Make sure that this process no longer exists, "
            f"and start a new run without {RESUME_KEY}=..."
        )
    if not (folder / "config.yaml").exists():
        raise ConfigError(
            f"{RESUME_KEY}={folder}: config.yaml is missing, because the run was killed "
            f"before its settings were written: start a new run without {RESUME_KEY}=..."
        )
    # Called because they raise if a file cannot be read.
    run.yaml("config.yaml")
    if (folder / "env.json").exists():
        run.json("env.json")
    return run


def still_running_error(folder: Path) -> ConfigError:
    """Return the error that a run cannot be resumed because its process still exists."""
    return ConfigError(
        f"{RESUME_KEY}={folder}: the process of this run still exists: wait until it ends, or "
        "stop it first"
    )


def check_not_finished(run: Run) -> None:
    """Raise ConfigError if a run is finished.

    Its leftovers are removed then, because the run may have been killed before it could do so.
    """
    if run.state == "done":
        remove_leftovers(run.folder)
        raise ConfigError(
            f"{RESUME_KEY}={run.folder}: this run is finished, so there is nothing to resume: "
            f"to use it, type agt certify run={run.folder}"
        )


def remove_leftovers(folder: Path) -> None:
    """Remove the checkpoints and the lock file of a finished run."""
    shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
    (folder / LOCK_FILE).unlink(missing_ok=True)
