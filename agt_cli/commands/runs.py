"""agt runs: the runs below one folder, listed, or some of them side by side; nothing of their
records is verified.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from agt.errors import ConfigError, nearest
from agt.settings import schema, validate
from agt.store.dotted_keys import flatten_keys
from agt_cli import SWEEP_SUFFIX, usage
from agt_cli.report.console import Console, cell
from agt_cli.report.finished import Run, RunState
from agt_cli.report.found import runs_below
from agt_cli.report.markdown import clip

RESULT = 60  # letters of a result in the table, at most
DIGITS = 4  # of a digest, at least, to name a run by it
TITLES = {"settings": "settings", "made_with": "made with", "metrics": "metrics"}
MADE_WITH = ("agt", "revision", "data_digest", "dataset", "device", "threads", "packages", "python")


@schema
class RunsConfig:
    """Which runs to tell of; conf/runs.yaml says what each key means."""

    output_dir: Path
    command: str | None = None
    state: RunState | None = None
    data: str | None = None
    kind: str | None = None
    sweep: str | None = None
    since: str | None = None
    reverse: bool = False
    limit: Annotated[int, Field(ge=1)] | None = None
    compare: Annotated[tuple[str | int, ...], Field(min_length=2)] | None = None

    def __post_init__(self) -> None:
        if self.command is not None and self.command not in usage.COMMANDS:
            hint = nearest(self.command, usage.COMMANDS)
            raise ConfigError(f"command={self.command}: agt has no command of this name{hint}")
        moment(self.since or "2000-01-01")

    def tests(self) -> Iterable[Callable[[Run], bool]]:
        """What a run must be, the cheapest first: each may have to read one more file of it."""
        if self.command:
            yield lambda run: run.command == self.command
        if self.sweep:
            yield (
                lambda run: (
                    run.sweep is not None
                    and run.sweep.name.removesuffix(SWEEP_SUFFIX) == self.sweep
                )
            )
        if self.since:
            yield lambda run: run.moment >= moment(self.since or "")
        if self.state:
            yield lambda run: run.state == self.state
        if self.data:
            yield lambda run: str(self.data).lower() in run.dataset.lower()
        if self.kind:
            yield lambda run: str(self.kind).lower() in run.model.lower()


def configure(config: Mapping[str, Any]) -> RunsConfig:
    return validate(RunsConfig, config, "")


def run(settings: RunsConfig, console: Console) -> dict[str, Any]:
    runs = list(runs_below(settings.output_dir))
    if settings.compare:
        return _compare([named(str(text), runs) for text in settings.compare], console)
    for test in settings.tests():
        runs = [run for run in runs if test(run)]
    runs.sort(key=lambda run: (run.moment, run.folder.name), reverse=not settings.reverse)
    _say(runs[: settings.limit], len(runs), settings.output_dir, console)
    return {"total": len(runs), "runs": [run.as_json() for run in runs[: settings.limit]]}


def _say(runs: Sequence[Run], total: int, outputs: Path, console: Console) -> None:
    if not runs:
        console.say(f"no run in the folder {outputs} has the properties that you gave")
        return
    states = ", ".join(
        f"{count} {state}" for state, count in Counter(run.state for run in runs).items()
    )
    columns = ("run", "started", "state", "dataset", "model", "result", "digest")
    rows = [
        (
            run.folder.relative_to(outputs).as_posix(),
            # its name says it
            ""
            if run.folder.name.startswith(run.started[:10])
            else run.started[:16].replace("T", " "),
            run.state,
            run.dataset,
            run.model,
            clip(run.result, RESULT),
            run.digest.removeprefix("sha256:")[:8],
        )
        for run in runs
    ]
    used = [at for at in range(len(columns)) if any(row[at] for row in rows)]
    console.table(
        f"{outputs}: {states}",
        [columns[at] for at in used],
        [[row[at] for at in used] for row in rows],
    )
    if total > len(runs):
        hidden = total - len(runs)
        console.note(
            f"number of further runs that are not listed: {hidden}. Give limit={total} to "
            "list all, or select some with state=..., data=... or since=..."
        )


def _compare(runs: Sequence[Run], console: Console) -> dict[str, Any]:
    names = [str(run.folder) for run in runs]
    parts = {
        "settings": side_by_side(runs, lambda run: run.config),
        "made_with": side_by_side(
            runs, lambda run: {key: run.environment.get(key) for key in MADE_WITH}
        ),
        "metrics": side_by_side(
            runs, lambda run: {k: v for k, v in run.metrics.items() if not isinstance(v, str)}
        ),
    }
    letters = [chr(ord("A") + place) for place in range(len(runs))] if len(runs) <= 26 else names
    for letter, run in zip(letters, runs, strict=True):
        result = f", {run.result}" if run.result else ""
        console.say(f"{letter}: {run.folder}, {run.state}{result}")
    for part, rows in parts.items():
        title = TITLES[part]
        if rows:
            console.table(
                title,
                ("", *letters),
                [(key, *(cell(value, 4) for value in row)) for key, row in rows.items()],
            )
        else:
            console.say(f"{title}: the same")
    return {"compared": names, **parts}


# -- which runs are told of, and how some of them differ
# ------------------------------------------------------------------


def moment(text: str) -> datetime:
    """A day, or a time of it, as ISO 8601 has it; where no zone is given, this machine's.

    Raises:
        ConfigError: it is none.
    """
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ConfigError(
            f"since={text}: this is not a date: give a day like 2026-01-31, or a time like "
            "2026-01-31T12:00"
        ) from None


def named(text: str, runs: Sequence[Run]) -> Run:
    """One of the runs, by its folder or the end of it, or by the beginning of its digest.

    Raises:
        ConfigError: it is none, or several.
    """
    if (Path(text) / "status.json").exists():
        return Run.at(Path(text))
    parts, digest = Path(text).parts, f"sha256:{text.lower().removeprefix('sha256:')}"
    digested = len(digest) >= len("sha256:") + DIGITS
    some = [
        run
        for run in runs
        if run.folder.parts[-len(parts) :] == parts or (digested and run.digest.startswith(digest))
    ]
    if len(some) != 1:
        count = len(some)
        examples = ", ".join(str(run.folder) for run in some[:3])
        matches = f"{count} runs (for example {examples})" if some else "no run here"
        raise ConfigError(f"compare: '{text}' matches {matches}: give the folder of one run")
    return some[0]


def side_by_side(
    runs: Sequence[Run], part: Callable[[Run], Mapping[str, Any]]
) -> dict[str, list[Any]]:
    """Of a part of each run's record, by dotted keys, what is not the same in all; None: a run
    has no such.
    """
    columns = [flatten_keys(part(run)) for run in runs]
    keys = dict.fromkeys(key for column in columns for key in column)
    rows = {key: [column.get(key) for column in columns] for key in keys}
    return {key: row for key, row in rows.items() if any(value != row[0] for value in row)}
