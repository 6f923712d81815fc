"""Records whose folder is named by the signature of what they compute, so that none is made twice.

    SIGNATURE/                                 the record: finished, or still being written
    SIGNATURE_2026-01-31_12-00-00-000000/      an earlier attempt, with the time at which it began

The jobs of a sweep are stored so (agt_cli/sweeps.py), and the runs of ``agt reproduce``
(experiments/runs.py).
"""

from datetime import UTC, datetime
from pathlib import Path

from agt.errors import ConfigError
from agt_cli.report.finished import Run
from agt_cli.report.opening import open_run

SIGNATURE_ENTRY = "signature"  # of env.json: a folder may have been renamed by hand


def finished_record(folder: Path, command: str, signature: str) -> Run | None:
    """Return the finished record in a folder, after verifying each of its files; or None.

    Args:
        folder: the folder whose name is the signature.
        command: the command that must have made the record.
        signature: the signature that the record itself must contain.

    Raises:
        ConfigError: a file is not what the run wrote, or the record is of another signature.
    """
    if Run.at(folder).state != "done":
        return None
    run = open_run(folder, command)
    recorded_signature = run.environment.get(SIGNATURE_ENTRY)
    if recorded_signature != signature:
        raise ConfigError(
            f"{folder}: this folder contains another result, because its env.json has "
            f"{SIGNATURE_ENTRY}={recorded_signature} instead of {signature}: move this folder "
            "to another place, and type the command again"
        )
    return run


def may_be_running(folder: Path) -> bool:
    """Return whether a process writes into a folder, or may, because there is no lock file."""
    run = Run.at(folder)
    return run.status.get("state") == "running" and run.is_alive is not False


def move_aside(folder: Path) -> Path | None:
    """Rename a record that is not to be used, and return its new folder; None: no record was there.

    A record is never overwritten. The caller must not move a record that ``may_be_running``,
    because its process would then write into the folder of the next attempt.
    """
    if not folder.exists():
        return None
    run = Run.at(folder)
    started = run.start_time if run.started else datetime.now(UTC)
    return folder.rename(folder.with_name(f"{folder.name}_{started:%Y-%m-%d_%H-%M-%S-%f}"))
