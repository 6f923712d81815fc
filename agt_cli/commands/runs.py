"""agt runs: every run below one folder, listed, or some of them side by side; of their records nothing is verified."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from agt.errors import ConfigError, nearest
from agt.settings import schema, validate
from agt_cli import SWEEP_SUFFIX, usage
from agt_cli.report.console import Console, show
from agt_cli.report.finished import Run, RunState, runs_below
from agt_cli.report.listed import check_known, conditions, moment, named, ordered, side_by_side

RESULT = 60  # letters of a result in the table, at most
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
    where: str | None = None
    sort: str = "started"
    reverse: bool = False
    limit: Annotated[int, Field(ge=1)] | None = None
    compare: Annotated[tuple[str | int, ...], Field(min_length=2)] | None = None

    def __post_init__(self) -> None:
        if self.command is not None and self.command not in usage.COMMANDS:
            raise ConfigError(f"command={self.command}: there is no such command{nearest(self.command, usage.COMMANDS)}")
        conditions(self.where)
        moment(self.since or "2000-01-01")

    def tests(self) -> Iterable[Callable[[Run], bool]]:
        """What a run must be, the cheapest first: each may have to read one more file of it."""
        if self.command:
            yield lambda run: run.command == self.command
        if self.sweep:
            yield lambda run: run.sweep is not None and run.sweep.name.removesuffix(SWEEP_SUFFIX) == self.sweep
        if self.since:
            yield lambda run: run.moment >= moment(self.since or "")
        if self.state:
            yield lambda run: run.state == self.state
        if self.data:
            yield lambda run: str(self.data).lower() in run.dataset.lower()
        if self.kind:
            yield lambda run: str(self.kind).lower() in run.model.lower()


def configure(config: Mapping[str, Any]) -> RunsConfig:
    """Validate the configuration (ConfigError)."""
    return validate(RunsConfig, config, "")


def run(settings: RunsConfig, console: Console) -> dict[str, Any]:
    """List or compare, and say so."""
    there = list(runs_below(settings.output_dir))
    if settings.compare:
        return _compare([named(str(text), there) for text in settings.compare], console)
    runs, asked = there, conditions(settings.where)
    for test in settings.tests():
        runs = [run for run in runs if test(run)]
    check_known(runs, [condition.key for condition in asked], "where")
    runs = [run for run in runs if all(condition.holds(run) for condition in asked)]
    check_known(runs, [settings.sort], "sort")
    runs = ordered(runs, settings.sort)
    runs = runs[::-1] if settings.reverse else runs
    _say(runs[: settings.limit], len(runs), settings.output_dir, console)
    return {"total": len(runs), "runs": [run.as_json() for run in runs[: settings.limit]]}


def _say(runs: Sequence[Run], total: int, outputs: Path, console: Console) -> None:
    if not runs:
        console.say(f"no such runs below {outputs}")
        return
    states = ", ".join(f"{count} {state}" for state, count in Counter(run.state for run in runs).items())
    columns = ("run", "started", "state", "dataset", "model", "result", "digest")
    rows = [
        (
            run.folder.relative_to(outputs).as_posix(),
            "" if run.folder.name.startswith(run.started[:10]) else run.started[:16].replace("T", " "),  # its name says it
            run.state,
            run.dataset,
            run.model,
            run.result if len(run.result) <= RESULT else f"{run.result[:RESULT]}…",
            run.digest.removeprefix("sha256:")[:8],
        )
        for run in runs
    ]
    used = [at for at in range(len(columns)) if any(row[at] for row in rows)]
    console.table(f"{outputs}: {states}", [columns[at] for at in used], [[row[at] for at in used] for row in rows])
    if total > len(runs):
        console.note(f"{total - len(runs)} more: limit={total} shows them, or choose: state=done data=... since=...")


def _compare(runs: Sequence[Run], console: Console) -> dict[str, Any]:
    """What differs between runs, side by side."""
    names = [str(run.folder) for run in runs]
    parts = {
        "settings": side_by_side(runs, lambda run: run.config),
        "made with": side_by_side(runs, lambda run: {key: run.environment.get(key) for key in MADE_WITH}),
        "metrics": side_by_side(runs, lambda run: {k: v for k, v in run.metrics.items() if not isinstance(v, str)}),
    }
    letters = [chr(ord("A") + place) for place in range(len(runs))] if len(runs) <= 26 else names
    for letter, run in zip(letters, runs, strict=True):
        console.say(f"{letter}: {run.folder}, {run.state}{f', {run.result}' if run.result else ''}")
    for title, rows in parts.items():
        if rows:
            console.table(title, ("", *letters), [(key, *map(_cell, row)) for key, row in rows.items()])
        else:
            console.say(f"{title}: the same")
    return {"compared": names, **{title.replace(" ", "_"): rows for title, rows in parts.items()}}


def _cell(value: object) -> str:
    return "-" if value is None else show(value, 4) if isinstance(value, float) else str(value)
