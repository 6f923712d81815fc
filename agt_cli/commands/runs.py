"""agt runs: list the runs below a folder, or compare some of them, without verifying them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from agt.errors import ConfigError, nearest
from agt.settings import Count, schema, validate
from agt.store.dotted_keys import flatten_keys
from agt_cli import SWEEP_SUFFIX, usage
from agt_cli.report.console import Console, format_cell
from agt_cli.report.finished import Run, RunState
from agt_cli.report.found import runs_below
from agt_cli.report.markdown import shorten

MAX_RESULT_LETTERS = 60  # letters of a result in the table, at most
MIN_DIGEST_DIGITS = 4  # of a digest, at least, to name a run by it
TITLES = {"settings": "settings", "made_with": "made with", "metrics": "metrics"}
MADE_WITH = ("agt", "revision", "data_digest", "dataset", "device", "threads", "packages", "python")


@schema
class RunsConfig:
    """Which runs are listed or compared; conf/runs.yaml says what each key means."""

    output_dir: Path
    command: str | None = None
    state: RunState | None = None
    data: str | None = None
    kind: str | None = None
    sweep: str | None = None
    since: str | None = None
    reverse: bool = False
    limit: Count | None = None
    compare: tuple[str | int, ...] | None = None

    def __post_init__(self) -> None:
        if self.command is not None and self.command not in usage.COMMANDS:
            hint = nearest(self.command, usage.COMMANDS)
            raise ConfigError(f"command={self.command}: agt has no command of this name{hint}")
        if self.since:
            parse_time(self.since)  # called because it raises if this is no date

    def matches(self, run: Run) -> bool:
        """Return whether a run has every property that the settings name.

        The cheapest is compared first, because each may read one more file of the run.
        """
        if self.command and run.command != self.command:
            return False
        if self.sweep and not self._is_of_sweep(run):
            return False
        if self.since and run.start_time < parse_time(self.since):
            return False
        if self.state and run.state != self.state:
            return False
        if self.data and self.data.lower() not in run.dataset.lower():
            return False
        return not self.kind or self.kind.lower() in run.model.lower()

    def _is_of_sweep(self, run: Run) -> bool:
        """Return whether a run is a job of the sweep that the settings name."""
        return run.sweep is not None and run.sweep.name.removesuffix(SWEEP_SUFFIX) == self.sweep


def configure(config: Mapping[str, Any]) -> RunsConfig:
    """Validate the settings.

    Raises:
        ConfigError: a setting is missing, unknown or invalid; the message names its key.
    """
    compare = config["compare"]
    if isinstance(compare, str) or (isinstance(compare, list) and len(compare) < 2):
        raise ConfigError(
            f"compare={compare}: give two runs or more, compare=[FOLDER,FOLDER]; agt runs "
            "lists the folders"
        )
    return validate(RunsConfig, config, "")


def run(settings: RunsConfig, console: Console) -> dict[str, Any]:
    """List or compare runs, and return them for --json.

    Raises:
        ConfigError: a run that is to be compared is not there, or its name means several.
    """
    runs = list(runs_below(settings.output_dir))
    if settings.compare:
        compared = [find_run(str(text), runs) for text in settings.compare]
        return _compare(compared, console)
    runs = [run for run in runs if settings.matches(run)]
    runs.sort(key=_time_and_name, reverse=not settings.reverse)
    shown_runs = runs[: settings.limit]
    _print_runs(shown_runs, len(runs), settings.output_dir, console)
    return {"total": len(runs), "runs": [run.as_json() for run in shown_runs]}


def _time_and_name(run: Run) -> tuple[datetime, str]:
    """Return by what runs are sorted: the start, and the folder's name if two started at once."""
    return run.start_time, run.folder.name


def _print_runs(runs: Sequence[Run], total: int, outputs: Path, console: Console) -> None:
    """Print runs as a table, without columns that are empty.

    Args:
        runs: the runs to print.
        total: the number of runs that match, including those that are not printed.
        outputs: the folder of all runs.
        console: prints them.
    """
    if not runs:
        console.say(f"no run in the folder {outputs} has the properties that you gave")
        return
    counts = Counter(run.state for run in runs)
    states = ", ".join(f"{count} {state}" for state, count in counts.items())
    rows = [_row(run, outputs) for run in runs]
    titles = [title for title in rows[0] if any(row[title] for row in rows)]
    cells = [[row[title] for title in titles] for row in rows]
    console.table(f"{outputs}: {states}", titles, cells)
    killed = [run for run in runs if run.command == "train" and run.state == "killed"]
    if killed:
        console.note(
            f"to continue a killed training, type agt train resume={killed[0].folder} (its "
            "settings are in that folder)"
        )
    hidden = total - len(runs)
    if hidden:
        console.note(
            f"number of further runs that are not listed: {hidden}. Give limit={total} to "
            "list all, or select some with state=..., data=... or since=..."
        )


def _row(run: Run, outputs: Path) -> dict[str, str]:
    """Return the cells of a run by the titles of their columns.

    The start is left out if the folder's name says the day.
    """
    started = run.started[:16].replace("T", " ")
    if run.folder.name.startswith(run.started[:10]):
        started = ""
    return {
        "run": run.folder.relative_to(outputs).as_posix(),
        "started": started,
        "state": run.state,
        "dataset": run.dataset,
        "model": run.model,
        "result": shorten(run.result, MAX_RESULT_LETTERS),
        "digest": run.digest.removeprefix("sha256:")[:8],
    }


def _compare(runs: Sequence[Run], console: Console) -> dict[str, Any]:
    """Print in which settings, versions and metrics runs differ, and return what --json prints."""
    folders = [str(run.folder) for run in runs]
    names = folders
    if len(runs) <= 26:
        names = list(ascii_uppercase[: len(runs)])
    for name, run in zip(names, runs, strict=True):
        result = f", {run.result}" if run.result else ""
        console.say(f"{name}: {run.folder}, {run.state}{result}")
    parts = {
        "settings": differing_entries([run.config for run in runs]),
        "made_with": differing_entries([_code_and_machine(run) for run in runs]),
        "metrics": differing_entries([_numbers(run) for run in runs]),
    }
    for part, differing in parts.items():
        title = TITLES[part]
        if not differing:
            console.say(f"{title}: the same")
            continue
        rows = []
        for key, values in differing.items():
            cells = [format_cell(value, 4) for value in values]
            rows.append([key, *cells])
        console.table(title, ("", *names), rows)
    return {"compared": folders, **parts}


def _code_and_machine(run: Run) -> dict[str, Any]:
    """Return the entries of env.json about the code and the machine of a run."""
    return {key: run.environment.get(key) for key in MADE_WITH}


def _numbers(run: Run) -> dict[str, Any]:
    """Return the metrics of a run that are numbers."""
    return {name: value for name, value in run.metrics.items() if not isinstance(value, str)}


# -- finding and comparing runs
# ------------------------------------------------------------------


def parse_time(text: str) -> datetime:
    """Return the time that a text in ISO 8601 names (a day, or a day and a time), in UTC; without a
    zone, it is local time.

    Raises:
        ConfigError: the text is not a date.
    """
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ConfigError(
            f"since={text}: this is not a date: give a day like 2026-01-31, or a time like "
            "2026-01-31T12:00"
        ) from None


def find_run(text: str, runs: Sequence[Run]) -> Run:
    """Return the run that a text names: by its folder, the last parts of its path, or the beginning
    of its digest.

    Raises:
        ConfigError: no run matches, or several do.
    """
    if (Path(text) / "status.json").exists():
        return Run.at(Path(text))
    matching = [run for run in runs if _ends_with(run.folder, text) or _has_digest(run, text)]
    if len(matching) == 1:
        return matching[0]
    jobs = [run for run in runs if run.sweep is not None and _ends_with(run.sweep, text)]
    if jobs:
        name = Path(text).name.removesuffix(SWEEP_SUFFIX)
        folders = ",".join(str(run.folder) for run in jobs[:2])
        raise ConfigError(
            f"compare: '{text}' is a sweep of {len(jobs)} runs, which agt runs sweep={name} lists: "
            f"give their folders, for example compare=[{folders}]"
        )
    matches = "no run here"
    if matching:
        examples = ", ".join(str(run.folder) for run in matching[:3])
        matches = f"{len(matching)} runs (for example {examples})"
    raise ConfigError(f"compare: '{text}' matches {matches}: give the folder of one run")


def _ends_with(folder: Path, text: str) -> bool:
    """Return whether a text is the last parts of a folder's path."""
    parts = Path(text).parts
    return folder.parts[-len(parts) :] == parts


def _has_digest(run: Run, text: str) -> bool:
    """Return whether a text is the beginning of a run's digest, with at least four digits."""
    digits = text.lower().removeprefix("sha256:")
    return len(digits) >= MIN_DIGEST_DIGITS and run.digest.startswith(f"sha256:{digits}")


def differing_entries(parts: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the entries in which parts of records differ.

    Args:
        parts: the same part of several records, such as their settings.

    Returns:
        Dotted key -> its value in each part, or None where a part does not have it.
    """
    columns = [flatten_keys(part) for part in parts]
    differing: dict[str, list[Any]] = {}
    for key in dict.fromkeys(chain(*columns)):
        values = [column.get(key) for column in columns]
        if any(value != values[0] for value in values):
            differing[key] = values
    return differing
