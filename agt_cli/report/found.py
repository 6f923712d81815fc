"""Runs found among others: below a folder, by command, and ``run=latest``."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from agt.errors import ConfigError
from agt_cli import SWEEP_SUFFIX
from agt_cli.process import visible
from agt_cli.report.finished import _NEVER, Run

LATEST = "latest"


def runs_below(outputs: Path) -> Iterator[Run]:
    """Every run: a folder with a status.json, two levels down or, of a sweep's job, three."""
    for command in _folders(outputs):
        yield from runs_in(command)


def runs_in(home: Path) -> Iterator[Run]:
    """The runs of one command's folder, and the jobs of its sweeps."""
    for folder in _folders(home):
        if (folder / "status.json").exists():
            yield Run.at(folder)
        elif folder.name.endswith(SWEEP_SUFFIX):
            yield from jobs_of(folder)


def jobs_of(sweep: Path) -> Iterator[Run]:
    yield from map(Run.at, _folders(sweep))


def _folders(folder: Path) -> list[Path]:
    try:
        return [
            path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")
        ]
    except OSError:
        return []


def runs_of(home: Path, command: str) -> list[Run]:
    """The runs of ``command`` in a folder, and the jobs of its sweeps, the newest first."""
    paths = (
        path.parent for place in ("*/status.json", "*/*/status.json") for path in home.glob(place)
    )
    runs = [
        run
        for run in map(Run.at, paths)
        if run.command == command and run.moment != _NEVER and "state" in run.status
    ]
    return sorted(runs, key=lambda run: run.age, reverse=True)


def newest(home: Path, command: str) -> Run | None:
    return next((run for run in runs_of(home, command) if run.state == "done"), None)


def resolve_latest(config: dict[str, Any], note: Callable[[str], None]) -> dict[str, Any]:
    """A command's configuration with the folder that ``run=latest`` means in its place.

    Args:
        note: takes a line that says which one.

    Raises:
        ConfigError: there is none, or ``run`` names nothing.
    """
    if "run" not in config or (
        isinstance(config["run"], str) and config["run"] not in ("", LATEST)
    ):
        return config
    # not all of these need a run
    if config["run"] is None and (config.get("release") or config.get("audit")) is not None:
        return config
    if config["run"] != LATEST:
        typed = "run=..." if config["run"] is None else f"run={config['run']!r}"
        raise ConfigError(
            f"{typed} does not name a run: give the folder of one finished agt train run, or "
            "run=latest"
        )
    home = Path(str(config.get("output_dir"))) / "train"
    runs = runs_of(home, "train")
    done = next((place for place, run in enumerate(runs) if run.state == "done"), None)
    if done is None:
        unfinished = f" (not finished: {_summary(runs)})" if runs else ""
        raise ConfigError(
            f"run=latest: there is no finished training run in {home}{unfinished}. Start agt "
            "train, or give run=FOLDER (agt looks for runs under output_dir)"
        )
    note(f"run=latest is {runs[done].folder}{_description(runs[done])}")
    if done:
        skipped = _summary(runs[:done])
        note(f"note: newer runs that are not finished were skipped: {skipped}")
    return {**config, "run": str(runs[done].folder)}


def _description(run: Run) -> str:
    """Return which dataset and model a run has, in brackets, so that a mix-up is seen."""
    known = [text for text in (run.dataset, run.model) if text]
    return visible(f" ({': '.join(known)})") if known else ""


def _summary(runs: list[Run]) -> str:
    first = runs[0]
    state: str = first.state
    if state == "killed":
        state = f"killed; to continue this run, type agt train resume={first.folder}"
    error = f" ({first.error.splitlines()[0]})" if first.error else ""
    others = len(runs) - 1
    more = f", and {others} more" if others else ""
    return f"{first.folder}, {state}{error}{more}"
