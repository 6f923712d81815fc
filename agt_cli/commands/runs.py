"""agt runs: list the runs below a folder, or compare some of them, without verifying them."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
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

    def predicates(self) -> Iterable[Callable[[Run], bool]]:
        """Yield predicates that a listed run must satisfy, the cheapest first, because each may
        read one more file of the run.
        """
        if self.command:
            yield lambda run: run.command == self.command
        if self.sweep:
            yield self._is_of_sweep
        if self.since:
            since = parse_time(self.since)
            yield lambda run: run.start_time >= since
        if self.state:
            yield lambda run: run.state == self.state
        if self.data:
            data = str(self.data).lower()
            yield lambda run: data in run.dataset.lower()
        if self.kind:
            kind = str(self.kind).lower()
            yield lambda run: kind in run.model.lower()

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
        return _compare([find_run(str(text), runs) for text in settings.compare], console)
    for test in settings.predicates():
        runs = [run for run in runs if test(run)]
    runs.sort(key=lambda run: (run.start_time, run.folder.name), reverse=not settings.reverse)
    shown_runs = runs[: settings.limit]
    _print_runs(shown_runs, len(runs), settings.output_dir, console)
    return {"total": len(runs), "runs": [run.as_json() for run in shown_runs]}


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
    titles = ("run", "started", "state", "dataset", "model", "result", "digest")
    rows = [_row(run, outputs) for run in runs]
    used = [column for column in range(len(titles)) if any(row[column] for row in rows)]
    console.table(
        f"{outputs}: {states}",
        [titles[column] for column in used],
        [[row[column] for column in used] for row in rows],
    )
    killed = [run for run in runs if run.command == "train" and run.state == "killed"]
    if killed:
        console.note(
            f"to continue a killed training, type agt train resume={killed[0].folder} (its "
            "settings are in that folder)"
        )
    if total > len(runs):
        hidden = total - len(runs)
        console.note(
            f"number of further runs that are not listed: {hidden}. Give limit={total} to "
            "list all, or select some with state=..., data=... or since=..."
        )


def _row(run: Run, outputs: Path) -> tuple[str, ...]:
    """Return a run's row of the table; its start is left out if the folder's name says the day."""
    started = run.started[:16].replace("T", " ")
    if run.folder.name.startswith(run.started[:10]):
        started = ""
    return (
        run.folder.relative_to(outputs).as_posix(),
        started,
        run.state,
        run.dataset,
        run.model,
        shorten(run.result, MAX_RESULT_LETTERS),
        run.digest.removeprefix("sha256:")[:8],
    )


def _compare(runs: Sequence[Run], console: Console) -> dict[str, Any]:
    """Print in which settings, versions and metrics runs differ, and return what --json prints."""
    parts = {
        "settings": differing_entries(runs, lambda run: run.config),
        "made_with": differing_entries(runs, _code_and_machine),
        "metrics": differing_entries(runs, _numbers),
    }
    folders = [str(run.folder) for run in runs]
    names = folders
    if len(runs) <= 26:
        names = [chr(ord("A") + index) for index in range(len(runs))]
    for name, run in zip(names, runs, strict=True):
        result = f", {run.result}" if run.result else ""
        console.say(f"{name}: {run.folder}, {run.state}{result}")
    for part, differing in parts.items():
        title = TITLES[part]
        if differing:
            rows = [
                (key, *(format_cell(value, 4) for value in row)) for key, row in differing.items()
            ]
            console.table(title, ("", *names), rows)
        else:
            console.say(f"{title}: the same")
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
    end = Path(text).parts
    digest = f"sha256:{text.lower().removeprefix('sha256:')}"
    may_be_digest = len(digest) >= len("sha256:") + MIN_DIGEST_DIGITS
    matching = [
        run
        for run in runs
        if run.folder.parts[-len(end) :] == end or (may_be_digest and run.digest.startswith(digest))
    ]
    jobs = [run for run in runs if run.sweep is not None and run.sweep.parts[-len(end) :] == end]
    if len(matching) != 1 and jobs:
        name = Path(text).name.removesuffix(SWEEP_SUFFIX)
        folders = ",".join(str(run.folder) for run in jobs[:2])
        raise ConfigError(
            f"compare: '{text}' is a sweep of {len(jobs)} runs, which agt runs sweep={name} lists: "
            f"give their folders, for example compare=[{folders}]"
        )
    if len(matching) != 1:
        count = len(matching)
        examples = ", ".join(str(run.folder) for run in matching[:3])
        matches = f"{count} runs (for example {examples})" if matching else "no run here"
        raise ConfigError(f"compare: '{text}' matches {matches}: give the folder of one run")
    return matching[0]


def differing_entries(
    runs: Sequence[Run], part: Callable[[Run], Mapping[str, Any]]
) -> dict[str, list[Any]]:
    """Return the entries of a part of records in which runs differ: dotted key -> the value of each
    run.

    A run without such a key has None.

    Args:
        runs: the runs to compare.
        part: returns this part of a run's record.
    """
    columns = [flatten_keys(part(run)) for run in runs]
    keys = dict.fromkeys(key for column in columns for key in column)
    rows = {key: [column.get(key) for column in columns] for key in keys}
    return {key: row for key, row in rows.items() if any(value != row[0] for value in row)}
