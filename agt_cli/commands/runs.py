"""agt runs: every run below one folder, listed, or some of them side by side; of their records nothing is verified.

index.html lists them, too. It is written anew at the end of every command, from each run's own files: it keeps nothing of
its own, so that a folder that was deleted, moved or damaged is just what it is when the next command looks. Of two
processes at once the later writer's page stays, whole; a run that it had not seen yet is there after the next command.
"""

import operator
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

from pydantic import Field

from agt.errors import ConfigError, nearest
from agt.settings import schema, validate
from agt.store import flat, write_atomic
from agt_cli import SWEEP_SUFFIX, usage
from agt_cli.report.console import Console, cell
from agt_cli.report.finished import Run, RunState, runs_below
from agt_cli.report.markdown import clip, page, standing, table

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
    return validate(RunsConfig, config, "")


def run(settings: RunsConfig, console: Console) -> dict[str, Any]:
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
            clip(run.result, RESULT),
            run.digest.removeprefix("sha256:")[:8],
        )
        for run in runs
    ]
    used = [at for at in range(len(columns)) if any(row[at] for row in rows)]
    console.table(f"{outputs}: {states}", [columns[at] for at in used], [[row[at] for at in used] for row in rows])
    if total > len(runs):
        console.note(f"{total - len(runs)} more: limit={total} shows them, or choose: state=done data=... since=...")


def _compare(runs: Sequence[Run], console: Console) -> dict[str, Any]:
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
            console.table(title, ("", *letters), [(key, *(cell(value, 4) for value in row)) for key, row in rows.items()])
        else:
            console.say(f"{title}: the same")
    return {"compared": names, **{title.replace(" ", "_"): rows for title, rows in parts.items()}}


# -- index.html ------------------------------------------------------------------------------------------------------------

INDEX_PAGE_FILE = "index.html"
SWEEP_PAGE = "sweep.html"
BYTES = "surrogateescape"  # names of files may hold bytes that are no text
MICROSECONDS = re.compile(r"-\d{6}$")  # at the end of a run's name: of no use to a reader
LETTERS = 140  # of an error or a setting, at most
LOOKS = {"done": "proved", "running": "declared"}  # a state's colours; any other is bad news
NOTE = "For the data owner: accuracies and distances depend on the private data. Click a column's head to sort by it."


def refresh(outputs: Path) -> Path:
    """Write ``outputs/index.html``, and return its path.

    Raises:
        OSError: the page cannot be written.
    """

    def sweep(run: Run) -> str:
        return run.sweep.relative_to(outputs).as_posix() if run.sweep else ""

    runs = sorted(runs_below(outputs), key=lambda run: (sweep(run), run.started, run.folder.name), reverse=True)
    groups = {name: list(jobs) for name, jobs in groupby(runs, key=sweep)}
    body = f"<h1>Runs</h1>\n<p>{escape(NOTE)}</p>\n"
    if (outputs / "reproduce" / INDEX_PAGE_FILE).exists():
        body += f'<p><a href="reproduce/{INDEX_PAGE_FILE}">The papers, reproduced: every figure</a></p>\n'
    body += _listed(outputs, groups.pop("", []))
    for name, jobs in groups.items():
        page_there = (outputs / name / SWEEP_PAGE).exists()
        title = (
            f'<a href="{quote(f"{name}/{SWEEP_PAGE}", errors=BYTES)}">{escape(name)}</a>' if page_there else escape(name)
        )
        states = ", ".join(f"{count} {state}" for state, count in Counter(job.state for job in jobs).items())
        body += f"<h2>{title}: {states}</h2>\n{_listed(outputs, jobs)}"
    write_atomic(outputs / INDEX_PAGE_FILE, page("Runs", body).encode())
    return outputs / INDEX_PAGE_FILE


def _listed(outputs: Path, runs: Sequence[Run]) -> str:
    """Runs as a table; the settings in which a sweep's jobs differ beside each."""
    common = set.intersection(*(set(run.overrides) for run in runs)) if runs else set()
    rows = []
    for run in runs:
        place, report = run.folder.relative_to(outputs), "report.html" if (run.folder / "report.html").exists() else ""
        link = (
            f'<a href="{quote((place / report).as_posix(), errors=BYTES)}">{escape(MICROSECONDS.sub("", place.name))}</a>'
        )
        own = [word for word in run.overrides if word not in common]
        words = (run.dataset, run.model, " ".join(own), run.result)
        command, state = run.command or place.parts[0], standing(run.state, LOOKS.get(run.state, "void"))
        rows.append([link, escape(command), state, *(escape(clip(text, LETTERS)) for text in words)])
    columns = ("run", "command", "state", "dataset", "model", "settings", "result")
    used = [at for at, name in enumerate(columns) if name != "settings" or any(row[at] for row in rows)]
    return table([columns[at] for at in used], [[row[at] for at in used] for row in rows])


# -- which runs are told of, and how some of them differ ------------------------------------------------------------------

COLUMNS = ("command", "state", "dataset", "model", "started", "digest")  # of a run; other names are metrics or settings
SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "!=": operator.ne,
    "==": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
    "=": operator.eq,
}
DIGITS = 4  # of a digest, at least, to name a run by it
EVEN = ("==", "=", "!=")  # what text can be asked
_CONDITION = re.compile(rf"\s*([\w./-]+)\s*({'|'.join(SIGNS)})\s*(.+?)\s*")
Value = float | str


@dataclass(frozen=True)
class Comparison:
    """One comparison of ``where``: a metric, a setting or a column, with a number or a text.

    Raises:
        ConfigError: a text is asked whether it is more or less.
    """

    key: str
    sign: str
    value: Value

    def __post_init__(self) -> None:
        if isinstance(self.value, str) and self.sign not in EVEN:
            raise ConfigError(f"where: {self.key}{self.sign}{self.value}: only numbers are more or less: = or != for text")

    def holds(self, run: Run) -> bool:
        """Whether a run has the key, and it is so."""
        value = value_of(run, self.key)
        comparable = value is not None and isinstance(value, float) == isinstance(self.value, float)
        return SIGNS[self.sign](value, self.value) if comparable else value is not None and self.sign == "!="


def conditions(text: str | None) -> tuple[Comparison, ...]:
    """None, or from ``test_accuracy>0.8 and training.lr<=0.1``.

    Raises:
        ConfigError: a part of it is no comparison.
    """
    parts = []
    for part in () if text is None else re.split(r"\s+and\s+|[;,]", text):
        match = _CONDITION.fullmatch(part)
        if match is None:
            raise ConfigError(f"where: '{part.strip()}' is no comparison: KEY>NUMBER or KEY=TEXT, joined by and")
        parts.append(Comparison(match[1], match[2], _number(match[3].strip("'\""))))
    return tuple(parts)


def value_of(run: Run, key: str) -> Value | None:
    """A column, a metric or a setting (``training.lr``) of a run; None: it has no such."""
    if key in COLUMNS:
        return str(getattr(run, key))
    node: Any = run.metrics.get(key)
    if node is None:
        node = run.config
        for part in key.split("."):
            node = node.get(part) if isinstance(node, Mapping) else None
    return None if node is None or isinstance(node, Mapping) else _number(node)


def _number(value: object) -> Value:
    """As a number, if it is one; true and false are words."""
    try:
        return float(str(value))
    except ValueError:
        return str(value).lower() if isinstance(value, bool) else str(value)


def moment(text: str) -> datetime:
    """A day, or a time of it, as ISO 8601 has it; where no zone is given, this machine's.

    Raises:
        ConfigError: it is none.
    """
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ConfigError(f"since={text}: expected a day like 2026-01-31, or a time like 2026-01-31T12:00") from None


def ordered(runs: Iterable[Run], key: str) -> list[Run]:
    """The largest number first, then texts by the alphabet, then those that have no such value; among equals the newest.

    Args:
        key: started, another column, a metric or a setting.
    """
    newest = sorted(runs, key=lambda run: (run.moment, run.folder.name), reverse=True)
    if key == "started":
        return newest
    values = [(value_of(run, key), run) for run in newest]
    numbers = sorted((-value, place) for place, (value, _) in enumerate(values) if isinstance(value, float))
    texts = sorted((value, place) for place, (value, _) in enumerate(values) if isinstance(value, str))
    without = [run for value, run in values if value is None]
    return [*(newest[place] for _, place in numbers), *(newest[place] for _, place in texts), *without]


def check_known(runs: Sequence[Run], keys: Iterable[str], where: str) -> None:
    """Raise ConfigError, naming the nearest, where no run has a metric or a setting of this name."""
    for key in keys:
        if runs and key not in COLUMNS and all(value_of(run, key) is None for run in runs):
            known = {name for run in runs for name in (*run.metrics, *flat(run.config))}
            close = "".join(f"; did you mean '{name}'?" for name in get_close_matches(key, known, 1))
            raise ConfigError(f"{where}: none of these {len(runs)} runs has '{key}'{close}")


def named(text: str, runs: Sequence[Run]) -> Run:
    """One of the runs, by its folder or the end of it, or by the beginning of its digest.

    Raises:
        ConfigError: it is none, or several.
    """
    if (Path(text) / "status.json").exists():
        return Run.at(Path(text))
    parts, digest = Path(text).parts, f"sha256:{text.lower().removeprefix('sha256:')}"
    digested = len(digest) >= len("sha256:") + DIGITS
    some = [run for run in runs if run.folder.parts[-len(parts) :] == parts or (digested and run.digest.startswith(digest))]
    if len(some) != 1:
        which = f"{len(some)} runs ({', '.join(str(run.folder) for run in some[:3])})" if some else "no run here"
        raise ConfigError(f"compare: '{text}' is {which}: give the folder of one")
    return some[0]


def side_by_side(runs: Sequence[Run], part: Callable[[Run], Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Of a part of each run's record, by dotted keys, what is not the same in all; None: a run has no such."""
    columns = [flat(part(run)) for run in runs]
    keys = dict.fromkeys(key for column in columns for key in column)
    rows = {key: [column.get(key) for column in columns] for key in keys}
    return {key: row for key, row in rows.items() if any(value != row[0] for value in row)}
