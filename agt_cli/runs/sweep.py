"""A sweep's jobs: which are done already, how those that ran ended, and the one table of them all.

Only records count. A job is done if a finished run in the sweep's folder has its signature (signature.py) and every file of
it is as the run wrote it; what a launcher or a process says of a job, or fails to say, changes nothing. One run stands for
one job, so that a sweep over what a signature leaves out, such as compute.kernel, keeps all its jobs.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd

from agt.disk import write_atomic
from agt.errors import AgtError, ConfigError
from agt_cli.report.console import Console, show
from agt_cli.report.finished import open_run
from agt_cli.report.html import report_page
from agt_cli.report.listed import Run, jobs_of
from agt_cli.report.markdown import Markdown, markdown_table, plain
from agt_cli.report.record import csv_bytes

MAIN = ("test_accuracy", "accuracy", "test_auc", "stable_distance_median", "moved_by_one_k")
SHOWN = 3  # of these, beside each other
NOTE = "For the data owner: accuracies and distances depend on the private data."
LOGS = ".submitit"  # where submitit's launchers keep what jobs printed


@dataclass(frozen=True)
class Job:
    """One job of a call.

    Attributes:
        number: Hydra's; -1: a job of an earlier call.
        overrides: what the command line sets for it.
        line: the same with what it sets for Hydra.
        folder: of its record.
        signature: empty: it cannot be told, and the job will say why.
        differs: those of the overrides that not all jobs of the call have.
        run: its record; None: there is none.
        before: whether it is not this call's to run: done before, or at work in another process.
        result: what the process that ran it returned, if it did.
    """

    number: int
    overrides: tuple[str, ...]
    line: tuple[str, ...]
    folder: Path
    signature: str = ""
    differs: tuple[str, ...] = ()
    run: Run | None = None
    before: bool = False
    result: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """As messages call it."""
        return f"job {self.number}" + (f" ({' '.join(self.differs)})" if self.differs else "")

    @property
    def state(self) -> str:
        """As ``Run.state``; lost: it left no record, and no word of why."""
        if self.run is not None:
            return self.run.state
        return "failed" if "error" in self.result else "lost"

    @property
    def error(self) -> str:
        """Why it is not done; empty: it is."""
        if self.state == "done":
            return ""
        if self.state == "failed":
            return str(self.result.get("error") or (self.run.error if self.run else ""))
        if self.state == "running":
            return f"another process is still at work on it: {self.folder}"
        logs = self.folder.parent / LOGS
        printed = f"; what its process printed is below {logs}" if logs.is_dir() else ""
        if self.state == "lost":
            return f"lost: the launcher did not start it, or lost it: no record in {self.folder}{printed}"
        return f"{self.state}: its process is gone, and {self.folder} ends in the middle{printed}"

    @property
    def exit_code(self) -> int:
        """What the command alone would have ended with."""
        code = (self.run.status if self.run else self.result).get("exit_code")
        known = self.state == "failed" and isinstance(code, int)
        return 0 if self.state == "done" else code if known else AgtError.exit_code  # type: ignore[return-value]

    def ended(self, result: Mapping[str, Any]) -> "Job":
        """The same job after its process, by its record.

        Args:
            result: what the process returned; empty: it did not.
        """
        there = (self.folder / "status.json").exists()
        return replace(self, run=Run.read(self.folder) if there else None, result=result)

    def as_json(self, command: str) -> dict[str, Any]:
        """Its part of the object of --json."""
        run, settings = self.run, dict(map(setting, self.differs))
        number = {"job": self.number} if self.number >= 0 else {}
        about = {"command": command, **number, "run": str(self.folder), "state": self.state, "settings": settings}
        if self.error or run is None:
            return {**about, "error": self.error, "exit_code": self.exit_code}
        facts = {"metrics": run.metrics, "data_digest": run.environment.get("data_digest"), "digest": run.digest}
        return {**about, "done_before": self.before, **{key: fact for key, fact in facts.items() if fact}, **self.result}


def setting(word: str) -> tuple[str, str]:
    """An override's key and value."""
    key, _, value = word.partition("=")
    return key.lstrip("+~"), value


def differing(jobs: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """Of each job's overrides, those that not all have."""
    common = set.intersection(*map(set, jobs)) if jobs else set()
    return [tuple(word for word in words if word not in common) for words in jobs]


def planned(command: str, sweep: Path, jobs: Sequence[Job], note: Callable[[str], None]) -> list[Job]:
    """Each job with the finished run that is it, or with a folder of its own to run in.

    Args:
        jobs: with the folders that their numbers give.
        note: takes a line for each job that is recognised, and for each that was begun and runs again.
    """
    left = [run for run in jobs_of(sweep) if run.command == command]
    known: dict[int, Job] = {}
    for same in (True, False):  # a job's very own run first
        for job in jobs:
            if job.number in known:
                continue
            for run in [run for run in left if _is(run, job) and (not same or run.overrides == job.overrides)]:
                if _stands(run, command, job, note):
                    known[job.number] = replace(job, folder=run.folder, run=run, before=True)
                    left.remove(run)
                    break
    taken: set[Path] = set()
    return [known.get(job.number) or _placed(job, left, taken, note) for job in jobs]


def _is(run: Run, job: Job) -> bool:
    return bool(job.signature) and run.environment.get("signature") == job.signature


def _stands(run: Run, command: str, job: Job, note: Callable[[str], None]) -> bool:
    """Whether a job need not run, with a line that says so."""
    if run.state == "running":
        note(f"{job.label}: another process is at work on it, {run.folder}")
        return True
    if run.state != "done":
        return False
    try:
        open_run(run.folder, command)
    except ConfigError as error:
        note(f"{job.label}: done before, and not as it was written, so it runs again: {error}")
        return False
    note(f"{job.label}: done before, {run.folder}")
    return True


def _placed(job: Job, left: Sequence[Run], taken: set[Path], note: Callable[[str], None]) -> Job:
    """In a folder that nothing has been in: a record is never written over."""
    folder, again = job.folder, 1
    while folder.exists() or folder in taken:
        again += 1
        folder = job.folder.with_name(f"{job.folder.name}_{again}")
    taken.add(folder)
    begun = [run for run in left if _is(run, job) and run.state in ("failed", "killed")]
    if begun:
        last = max(begun, key=lambda run: run.moment)
        note(f"{job.label}: {last.state} before ({last.folder}), and runs again in {folder}")
    return replace(job, folder=folder)


@dataclass(frozen=True)
class Table:
    """One table of a sweep: the jobs of a call, and those of earlier calls that it does not have.

    Attributes:
        sweep: the folder.
        command: of its jobs.
        jobs: as they ended.
    """

    sweep: Path
    command: str
    jobs: Sequence[Job]

    @property
    def exit_code(self) -> int:
        """0: all are done; else that of those that are not, if it is one, or 1."""
        codes = {job.exit_code for job in self.jobs} - {0}
        return codes.pop() if len(codes) == 1 else AgtError.exit_code * bool(codes)

    @property
    def states(self) -> str:
        """How the call's jobs stand, in words."""
        return ", ".join(f"{count} {state}" for state, count in Counter(job.state for job in self.jobs).items())

    @property
    def summary(self) -> str:
        """One line: empty where all is done."""
        undone = [job for job in self.jobs if job.state != "done"]
        if not undone:
            return ""
        some = {job.state for job in undone} != {"failed"}
        return f"{len(undone)} of {len(self.jobs)} jobs {f'are not done ({self.states})' if some else 'failed'}"

    def as_json(self) -> dict[str, Any]:
        """The call's jobs, those of earlier calls, and where the table lies."""
        jobs, earlier = ([job.as_json(self.command) for job in part] for part in (self.jobs, self.earlier()))
        return {"sweep": str(self.sweep), "table": str(self.sweep / "sweep.csv"), "jobs": jobs, "earlier": earlier}

    def earlier(self) -> list[Job]:
        """Jobs of earlier calls: the newest record of each that is none of this call's, by signature or by overrides."""
        seen: set[object] = {job.signature for job in self.jobs} | {frozenset(job.overrides) for job in self.jobs}
        earlier = []
        for run in sorted(jobs_of(self.sweep), key=lambda run: (run.state == "done", run.moment), reverse=True):
            names = {run.environment.get("signature"), frozenset(run.overrides)}
            if run.command == self.command and run.overrides and not names & seen:
                seen |= names
                earlier.append(Job(-1, run.overrides, (), run.folder, "", run.overrides, run, True))
        return sorted(earlier, key=lambda job: job.run.started if job.run else "")

    def rows(self) -> pd.DataFrame:
        """One row for each job: number, state, folder, the settings that differ, seconds, metrics, error."""
        jobs = [*self.jobs, *self.earlier()]
        settings = [dict(map(setting, words)) for words in differing([job.overrides for job in jobs])]
        keys = dict.fromkeys(key for row in settings for key in row)
        rows = []
        for job, row in zip(jobs, settings, strict=True):
            status, metrics = (job.run.status, job.run.metrics) if job.run else ({}, {})
            given = {key: row.get(key) or _configured(job.run, key) for key in keys}
            about = {"run": job.folder.name, "job": job.number if job.number >= 0 else "", "state": job.state}
            rows.append({**about, **given, "seconds": status.get("seconds"), **_flat(metrics), "error": job.error})
        frame = pd.DataFrame(rows)
        return frame[[*(name for name in frame if name != "error"), "error"]]

    def write(self) -> None:
        """sweep.csv, sweep.md and sweep.html in the sweep's folder."""
        rows = self.rows()
        write_atomic(self.sweep / "sweep.csv", csv_bytes(rows))
        columns, cells = self._shown(rows, lambda name: Markdown(f"[{plain(name)}]({quote(name)}/)"))
        parts = [
            f"# Sweep {plain(self.sweep.name)}: agt {self.command}",
            NOTE,
            f"{len(self.jobs)} jobs in the last call: {self.states}. sweep.csv has all metrics.",
            markdown_table(columns, cells),
        ]
        text = "\n\n".join(parts) + "\n"
        write_atomic(self.sweep / "sweep.md", text.encode())
        write_atomic(self.sweep / "sweep.html", report_page(text, lambda name: None).encode())

    def say(self, console: Console) -> None:
        """Print it."""
        columns, cells = self._shown(self.rows(), str)
        console.table(f"sweep {self.sweep}: {self.states}", columns, cells)
        console.say(f"table: {self.sweep / 'sweep.csv'}")

    def _shown(self, rows: pd.DataFrame, link: Callable[[str], str]) -> tuple[list[str], list[list[str]]]:
        """What a person reads first; errors where there are any."""
        settings = list(rows.columns)[len(("run", "job", "state")) : list(rows.columns).index("seconds")]
        main = [name for name in MAIN if name in rows][:SHOWN]
        columns = ["run", "state", *settings, *main, "seconds", *(["error"] if rows["error"].any() else [])]
        table = [
            [link(str(row[name])) if name == "run" else _cell(row[name], 1 if name == "seconds" else 3) for name in columns]
            for row in rows.to_dict("records")
        ]
        return columns, table


def _flat(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """What a table of numbers holds of metrics."""
    return {name: value for name, value in metrics.items() if isinstance(value, int | float)}


def _configured(run: Run | None, key: str) -> str:
    """A setting that this job's overrides leave as it is; empty: not known, or a whole group of them."""
    node: Any = run.config if run else None
    for part in key.split("."):
        node = node.get(part) if isinstance(node, Mapping) else None
    return "" if node is None or isinstance(node, Mapping) else str(node)


def _cell(value: Any, digits: int) -> str:
    return show(value, digits) if isinstance(value, float) else str(value)
