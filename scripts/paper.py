"""The papers' figures and tables on the papers' own data, from the official files in one folder.

    make paper DATA=FOLDER
    python scripts/paper.py FOLDER [--out outputs/paper] [--only NAME ...]

FOLDER holds the files as they are downloaded (docs/papers.md lists them; scripts/official_files.py
knows them). What is there is checked and prepared, an experiment whose files are missing is left
out, a forecast comes from one timed training pass of each experiment, and ``agt reproduce`` makes
the figures. The same command again goes on where it stopped: an experiment that is finished is not
run again, and of one that was interrupted, or whose files or settings changed, only the runs that
are not stored.

It writes one table (published, ours, why) in Markdown and csv, figures/, and below records/, runs/
and data/ what they come from.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from agt_cli._experiments.entry import Entry
from agt_cli._experiments.experiment import Experiment, load_experiment
from agt_cli._experiments.pages import summaries
from agt_cli._experiments.reproduce import Reproduction, configure
from agt_cli._experiments.runs import Runs
from official_files import FoundFile, data_sets, look, prepare

from agt.errors import AgtError, ConfigError
from agt.provenance import PAPERS, code_digest
from agt.store.atomic import write_atomic
from agt_cli import cli
from agt_cli.config_files import experiments_dir
from agt_cli.report.console import Console
from agt_cli.report.markdown import markdown_table
from agt_cli.report.opening import open_run
from agt_cli.runs.prepare import fit

DATA_OF = {  # experiment -> its data set; None: it makes its own data
    "blobs": None,
    "octmnist": "octmnist",
    "imdb": "imdb",
    "amex": "amex",
    "removal": "mnist",
    "unlearning": None,
}
COMMAND = "reproduce"
TERMINATED = 143
TIMED_RECORDS = (500, 2_000)
TIMED_KS = (1, 2, 3, 4, 5, 6, 7, 8)
ONE_PASS = ("training.epochs=1", "kgrid=sparse", "kgrid.max=null", f"kgrid.values={[*TIMED_KS]}")
COLUMNS = [
    "paper",
    "figure or table",
    "what",
    "published",
    "published rules",
    "ours",
    "data",
    "why",
]
NO_NUMBER = "the paper's text gives no number"


@dataclass(frozen=True)
class Task:
    """One experiment, as this call asks for it.

    Attributes:
        files: the official files that it runs on; none where it makes its own data.
        skipped: why it is not run; empty: it is run.
        only: ids of the figures and tables to make; none: all.
        overrides: of every run.
    """

    name: str
    files: tuple[FoundFile, ...] = ()
    skipped: str = ""
    only: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()

    @property
    def definition(self) -> Experiment:
        """The experiment on the papers' own data."""
        found = load_experiment(self.name)
        return found if found.original is None else found.on_original()

    def request(self, out: Path) -> dict[str, Any]:
        """The settings of ``agt reproduce``."""
        return {
            "name": self.name,
            "profile": "both",
            "data": "either" if load_experiment(self.name).original is None else "original",
            "only": list(self.only) or None,
            "overrides": list(self.overrides),
            "runs_dir": str(out / "runs"),
            "data_dir": str(out / "data"),
        }

    def identity(self, out: Path) -> str:
        """A hash of all that the experiment's record depends on."""
        definition = (experiments_dir() / f"{self.name}.yaml").read_text(encoding="utf-8")
        files = [file.identity for file in self.files]
        code = code_digest(("agt_cli", PAPERS))
        content = json.dumps([self.request(out), files, definition, code])
        return sha256(content.encode()).hexdigest()


class Progress:
    """Which experiments are finished, in a file: name -> identity, record's folder and seconds."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def record_of(self, task: Task, out: Path) -> Path | None:
        """Return the finished record of a task, every file of it verified; None: there is none."""
        entry = self._read().get(task.name, {})
        if entry.get("identity") != task.identity(out):
            return None
        folder = out / "records" / COMMAND / str(entry["record"])
        try:
            open_run(folder, COMMAND)
        except ConfigError:
            return None
        return folder

    def finish(self, task: Task, out: Path, record: str, seconds: float) -> None:
        """Note that a task is finished."""
        entry = {"identity": task.identity(out), "record": record, "seconds": round(seconds)}
        entries = {**self._read(), task.name: entry}
        write_atomic(self.path, json.dumps(entries, indent=2).encode())

    def _read(self) -> dict[str, dict[str, Any]]:
        try:
            entries: dict[str, dict[str, Any]] = json.loads(self.path.read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return entries


def parsed(words: Sequence[str] | None) -> argparse.Namespace:
    """Return the command line's settings."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("data", type=Path, help="the folder of the official files")
    parser.add_argument("--out", type=Path, default=Path("outputs/paper"))
    parser.add_argument(
        "--only",
        nargs="*",
        default=[],
        metavar="NAME[:ID]",
        help="these experiments alone, or these of their figures and tables",
    )
    parser.add_argument(
        "--set",
        nargs="*",
        default=[],
        metavar="NAME:KEY=VALUE",
        dest="settings",
        help="settings of an experiment's runs, for a trial",
    )
    parser.add_argument(
        "--trial",
        action="store_true",
        help="take files that are in the official format and are not the official ones",
    )
    return parser.parse_args(words)


def after_name(name: str, words: Iterable[str]) -> tuple[str, ...]:
    """Return what follows ``NAME:`` in the words that begin with it."""
    return tuple(word.split(":", 1)[1] for word in words if word.startswith(f"{name}:"))


def plan(arguments: argparse.Namespace, found: Mapping[str, FoundFile]) -> list[Task]:
    """Return a task for each experiment that is asked for.

    Raises:
        ConfigError: an experiment is asked for that does not exist.
    """
    asked = {word.split(":")[0] for word in (*arguments.only, *arguments.settings)}
    if unknown := asked - set(DATA_OF):
        raise ConfigError(f"--only, --set: '{min(unknown)}' is none of {', '.join(DATA_OF)}")
    names = {word.split(":")[0] for word in arguments.only} or set(DATA_OF)
    tasks = []
    for name, data in DATA_OF.items():
        if name not in names:
            continue
        files: tuple[FoundFile, ...] | None = ()
        skipped = ""
        if data is not None:
            files = data_sets()[data].choose(found, arguments.trial)
            if files is None:
                skipped = f"left out: {lacking(data, found, arguments.trial)}"
        only = after_name(name, arguments.only)
        overrides = after_name(name, arguments.settings)
        tasks.append(Task(name, files or (), skipped, only, overrides))
    return tasks


def lacking(data: str, found: Mapping[str, FoundFile], trial: bool) -> str:
    """Return which files of a data set are not usable, for each choice of files."""
    choices = []
    for choice in data_sets()[data].choices:
        files = [found[file.name] for file in choice]
        unusable = [f"{f.file.name} ({f.state})" for f in files if not f.usable(trial)]
        choices.append(" and ".join(unusable))
    return "; or ".join(dict.fromkeys(choices))


def prepared(tasks: Iterable[Task], out: Path, trial: bool) -> Iterator[Task]:
    """Prepare each task's files; one whose files cannot be prepared is skipped."""
    for task in tasks:
        data = DATA_OF[task.name]
        if task.skipped or data is None:
            yield task
            continue
        print(f"{task.name}: preparing its files", flush=True)
        try:
            overrides = prepare(data_sets()[data], task.files, out / "data", trial)
            yield replace(task, overrides=(*overrides, *task.overrides))
        except (AgtError, OSError, ValueError, EOFError) as error:
            yield replace(task, skipped=f"left out: its files cannot be prepared ({error})")


def forecast_seconds(task: Task, out: Path) -> float | None:
    """Return about how long an experiment takes if none of its runs is stored.

    A step on some of the training records is timed on this machine and these files; the definition
    says how many passes over all of them, with one k, the whole experiment is worth. Where it says
    none, the time of its definition counts, which was measured on another machine.

    Returns:
        Seconds; None where nothing is known, or where only a part is asked for.
    """
    definition = task.definition
    if task.only:
        return None
    if definition.passes is None:
        return None if definition.minutes is None else 60 * definition.minutes
    with tempfile.TemporaryDirectory() as folder:
        job = configure(task.request(out))
        runs = Runs(Path(folder), job.common, Console(quiet=True))
        try:
            return definition.passes * seconds_of_a_pass(job, runs)
        except AgtError:  # which the experiment itself then reports
            return None


def seconds_of_a_pass(job: Reproduction, runs: Runs) -> float:
    """Return the seconds of one pass over all training records for each k, by our own rules.

    They are extrapolated from the first ``TIMED_RECORDS`` of them.
    """
    entry = Entry(job.experiment, job.entries[0][0], job.profiles, runs)
    overrides = entry.overrides("ours", (), ONE_PASS)
    data = runs.prepared(overrides)
    _, settings = runs.settings(overrides)
    records = len(data.dataset.train)
    few, many = (min(records, size) for size in TIMED_RECORDS)
    quiet = Console(quiet=True)
    seconds = {}
    for timed in (few, few, many):  # the first compiles
        size = data.dataset.declared_size
        fewer = replace(
            data.dataset,
            train=data.dataset.train.take(np.arange(timed)),
            declared_size=size and size * timed / records,
        )
        started = time.perf_counter()
        fit(replace(data, dataset=fewer), settings, quiet)
        seconds[timed] = time.perf_counter() - started
    slope = max(0.0, seconds[many] - seconds[few]) / max(1, many - few)
    return (seconds[few] + slope * (records - few)) / len(TIMED_KS)


def in_words(seconds: float | None) -> str:
    """Return a time for a reader."""
    if seconds is None:
        return "not measured"
    return f"about {seconds / 3600:.1f} h" if seconds >= 3600 else f"about {seconds / 60:.0f} min"


def reproduce(task: Task, out: Path) -> int:
    """Run ``agt reproduce``; return its exit code."""
    request = task.request(out)
    words = [COMMAND, request.pop("name"), "-q", f"output_dir={out / 'records'}"]
    for key, value in request.items():
        if value:
            words.append(f"{key}={value if isinstance(value, str) else json.dumps(value)}")
    return cli.main(words)


def rows_of(task: Task, summary: Mapping[str, Any] | None) -> Iterator[dict[str, object]]:
    """Return the rows of the one table that an experiment has.

    Args:
        summary: of its finished record; None: it has none.
    """
    made = {one["title"]: one for one in (summary or {}).get("artifacts", [])}
    for artifact in task.definition.artifacts:
        if task.only and artifact.id not in task.only:
            continue
        about = {"paper": artifact.source, "figure or table": artifact.title}
        one = made.get(artifact.title)
        reason = task.skipped or "not made: it stopped before"
        if one is not None:
            reason = "left out: its data is not there"
        compared = [row for row in (one or {}).get("compared", []) if row["published"] != "-"]
        for row in compared:
            ours = {"published rules": row.get("paper"), "ours": row.get("ours")}
            about_row = {"data": row["measured on"], "why": row["difference"]}
            yield {**about, "what": row["what"], "published": row["published"], **ours, **about_row}
        if compared:
            continue
        if one and one["figures"]:
            yield {**about, "ours": ", ".join(one["figures"]), "why": NO_NUMBER}
            continue
        if one and one["compared"]:
            yield {**about, "ours": "in the report", "why": NO_NUMBER}
            continue
        for published in artifact.published:
            yield {**about, "what": published.what, "published": published.value, "why": reason}
        if not artifact.published:
            yield {**about, "why": reason}


def cell(value: object) -> str:
    """Return a value of the table for a reader."""
    if value is None or value != value:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def write_tables(
    tasks: Sequence[Task],
    files: Iterable[FoundFile],
    forecasts: Mapping[str, float | None],
    progress: Progress,
    out: Path,
    trial: bool,
) -> None:
    """Write the table, in Markdown and csv, and figures/, of what is finished so far."""
    found = summaries(out / "records" / COMMAND)
    rows: list[dict[str, object]] = []
    states = []
    figures = out / "figures"
    shutil.rmtree(figures, ignore_errors=True)
    figures.mkdir(parents=True)
    for task in tasks:
        record = None if task.skipped else progress.record_of(task, out)
        summary = None
        if record is not None:
            summary = next(one for name, one in found.values() if name == record.name)
            for picture in sorted((record / "figures").glob("*.png")):
                shutil.copyfile(picture, figures / f"{task.name}_{picture.name}")
        rows += rows_of(task, summary)
        state = task.skipped or ("finished" if record else "not finished")
        states.append((task.name, state, in_words(forecasts.get(task.name))))
    table = pd.DataFrame(rows, columns=COLUMNS)
    table.to_csv(out / "paper.csv", index=False)
    warning = ["**A trial: files or settings here are not the papers'.**"] if trial else []
    checked = [(file.file.name, file.state, file.detail) for file in files]
    parts = [
        "# The papers on their own data: published and ours",
        *warning,
        "Published numbers are the papers'; `published rules` is the profile `paper`, which takes "
        "the papers' settings and rules, and `ours` is this project's own.",
        markdown_table(COLUMNS, [tuple(map(cell, row)) for row in table.values]),
        "## Files",
        markdown_table(("file", "state", "size, digest, or how it is obtained"), checked),
        "## Experiments",
        markdown_table(("experiment", "state", "forecast"), states),
        "## Figures",
        "\n".join(f"![{path.stem}](figures/{path.name})" for path in sorted(figures.glob("*.png"))),
    ]
    write_atomic(out / "paper.md", ("\n\n".join(parts) + "\n").encode())


def main(words: Sequence[str] | None = None) -> int:
    """Make all of it; return 0, or the exit code of an experiment that failed or was stopped."""
    arguments = parsed(words)
    out: Path = arguments.out.resolve()
    progress = Progress(out / "progress.json")
    try:
        files = [look(file, arguments.data) for data in data_sets().values() for file in data.files]
        for file in files:
            print(f"{file.state:12} {file.file.name}: {file.detail}", flush=True)
        tasks = plan(arguments, {file.file.name: file for file in files})
        tasks = list(prepared(tasks, out, arguments.trial))
        unfinished = [
            task for task in tasks if not task.skipped and progress.record_of(task, out) is None
        ]
        forecasts = {task.name: forecast_seconds(task, out) for task in unfinished}
    except AgtError as error:
        print(f"paper: error: {error}", file=sys.stderr)
        return error.exit_code
    for task in tasks:
        state = task.skipped or "finished before, not run again"
        if task.name in forecasts:
            state = f"forecast: {in_words(forecasts[task.name])}"
        print(f"{task.name}: {state}", flush=True)
    failed = 0
    for task in unfinished:
        started = time.perf_counter()
        print(f"-- {task.name}", flush=True)
        code = reproduce(task, out)
        seconds = time.perf_counter() - started
        failed = code or failed
        if code in (cli.INTERRUPTED, TERMINATED):
            print("stopped: the same command goes on here", file=sys.stderr)
            break
        if code == 0:
            record, _ = summaries(out / "records" / COMMAND)[task.definition.title]
            progress.finish(task, out, record, seconds)
            print(f"{task.name}: finished after {in_words(seconds)}", flush=True)
        else:
            reason = f"left out: agt reproduce ended with exit code {code}"
            tasks = [replace(t, skipped=reason) if t == task else t for t in tasks]
        write_tables(tasks, files, forecasts, progress, out, arguments.trial)
    write_tables(tasks, files, forecasts, progress, out, arguments.trial)
    print(f"table: {out / 'paper.md'}")
    return failed


if __name__ == "__main__":
    raise SystemExit(main())
