"""Find runs below a folder, by their command, and the run that ``run=latest`` means."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from agt.errors import ConfigError
from agt_cli import SWEEP_SUFFIX
from agt_cli.process import visible
from agt_cli.report.finished import UNKNOWN_START, Run

LATEST = "latest"


def runs_below(outputs: Path) -> Iterator[Run]:
    """Yield every run below an output folder, jobs of sweeps included."""
    for command in _folders(outputs):
        yield from runs_in(command)


def runs_in(command_folder: Path) -> Iterator[Run]:
    """Yield the runs in the folder of one command, and the jobs of its sweeps.

    A run is a folder that has a status.json.
    """
    for folder in _folders(command_folder):
        if (folder / "status.json").exists():
            yield Run.at(folder)
        elif folder.name.endswith(SWEEP_SUFFIX):
            yield from jobs_of(folder)


def jobs_of(sweep: Path) -> Iterator[Run]:
    """Yield the jobs in the folder of a sweep."""
    yield from map(Run.at, _folders(sweep))


def _folders(folder: Path) -> list[Path]:
    """Return the folders in a folder, except hidden ones; none if it cannot be read."""
    try:
        return [
            path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")
        ]
    except OSError:
        return []


def runs_of_command(folder: Path, command: str) -> list[Run]:
    """Return the runs of a command in a folder, and the jobs of its sweeps, the newest first.

    Runs whose status.json cannot be read are left out.
    """
    paths = [*folder.glob("*/status.json"), *folder.glob("*/*/status.json")]
    runs = [
        run
        for run in (Run.at(path.parent) for path in paths)
        if run.command == command and run.start_time != UNKNOWN_START and "state" in run.status
    ]
    return sorted(runs, key=lambda run: run.sort_key, reverse=True)


def newest_run(folder: Path, command: str) -> Run | None:
    """Return the newest finished run of a command in a folder; None: the folder has no such run."""
    return next((run for run in runs_of_command(folder, command) if run.state == "done"), None)


def resolve_latest(config: dict[str, Any], note: Callable[[str], None]) -> dict[str, Any]:
    """Return a command's configuration with the folder of a run in place of ``run=latest``.

    Args:
        config: the configuration. It is returned unchanged if it names a run, or if the command
            does not need one.
        note: prints which run it is.

    Raises:
        ConfigError: there is no finished run, or the value of ``run`` does not name one.
    """
    if "run" not in config:
        return config
    run_setting = config["run"]
    if isinstance(run_setting, str) and run_setting not in ("", LATEST):
        return config
    # A release, or some kinds of audit, need no run.
    if run_setting is None and (config.get("release") or config.get("audit")) is not None:
        return config
    if run_setting != LATEST:
        typed = "run=..." if run_setting is None else f"run={run_setting!r}"
        raise ConfigError(
            f"{typed} does not name a run: give the folder of one finished agt train run, or "
            "run=latest"
        )
    folder = Path(str(config.get("output_dir"))) / "train"
    runs = runs_of_command(folder, "train")
    newest_finished = next((index for index, run in enumerate(runs) if run.state == "done"), None)
    if newest_finished is None:
        unfinished = f" (not finished: {_describe_first_run(runs)})" if runs else ""
        raise ConfigError(
            f"run=latest: there is no finished training run in {folder}{unfinished}. Start agt "
            "train, or give run=FOLDER (agt looks for runs under output_dir)"
        )
    note(f"run=latest is {runs[newest_finished].folder}{_describe_run(runs[newest_finished])}")
    if newest_finished:
        skipped = _describe_first_run(runs[:newest_finished])
        note(f"note: newer runs that are not finished were skipped: {skipped}")
    return {**config, "run": str(runs[newest_finished].folder)}


def _describe_run(run: Run) -> str:
    """Return the dataset and the model of a run in brackets; empty if these are not known."""
    known = ": ".join(filter(None, (run.dataset, run.model)))
    return visible(f" ({known})") if known else ""


def _describe_first_run(runs: list[Run]) -> str:
    """Return the folder and state of the first of several runs, and the number of others."""
    first = runs[0]
    state: str = first.state
    if state == "killed":
        state = f"killed; to continue this run, type agt train resume={first.folder}"
    error = f" ({first.error.splitlines()[0]})" if first.error else ""
    other_count = len(runs) - 1
    more = f", and {other_count} more" if other_count else ""
    return f"{first.folder}, {state}{error}{more}"
