"""The one table of a sweep: sweep.csv, the same as a page, and what is printed and listed by --json."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd

from agt.disk import write_atomic
from agt.errors import AgtError
from agt_cli.report.console import Console, show
from agt_cli.report.html import report_page
from agt_cli.report.listed import Run, jobs_of
from agt_cli.report.markdown import Markdown, markdown_table, plain
from agt_cli.report.record import csv_bytes
from agt_cli.runs.sweep import Job, differing, setting
from agt_cli.usage import SWEEP

MAIN = ("test_accuracy", "accuracy", "test_auc", "stable_distance_median", "moved_by_one_k", "seconds_unlearning")
SHOWN = 3  # of these, beside each other
NOTE = "For the data owner: accuracies and distances depend on the private data."


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
        again = f"the same line with sweep={self.sweep.name.removesuffix(SWEEP)} runs what is not done"
        return f"{len(undone)} of {len(self.jobs)} jobs {f'are not done ({self.states})' if some else 'failed'}: {again}"

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
                earlier.append(Job(-1, run.overrides, (), run.folder, "", run.overrides, run, before=True))
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
            about["before"] = job.before  # taken from an earlier call
            rows.append({**about, **given, "seconds": status.get("seconds"), **_flat(metrics), "error": job.error})
        frame = pd.DataFrame(rows)
        return frame[[*(name for name in frame if name != "error"), "error"]]

    def write(self) -> None:
        """sweep.csv, sweep.md and sweep.html in the sweep's folder."""
        rows = self.rows()
        write_atomic(self.sweep / "sweep.csv", csv_bytes(rows))
        columns, cells = self._shown(rows, self._link, "error")
        parts = [
            f"# Sweep {plain(self.sweep.name)}: agt {self.command}",
            NOTE,
            f"{len(self.jobs)} jobs in the last call: {self.states}. sweep.csv has all metrics.",
            markdown_table(columns, cells),
        ]
        text = "\n\n".join(parts) + "\n"
        write_atomic(self.sweep / "sweep.md", text.encode())
        write_atomic(self.sweep / "sweep.html", report_page(text, lambda name: None).encode())

    def _link(self, name: str) -> Markdown:
        page = "report.html" if (self.sweep / name / "report.html").exists() else ""
        return Markdown(f"[{plain(name)}]({quote(name)}/{page})")

    def say(self, console: Console) -> None:
        """Print it."""
        columns, cells = self._shown(self.rows(), str)  # errors were lines of their own
        console.table(f"sweep {self.sweep}: {self.states}", columns, cells)
        console.say(f"table: {self.sweep / 'sweep.csv'}")

    def _shown(self, rows: pd.DataFrame, link: Callable[[str], str], *last: str) -> tuple[list[str], list[list[str]]]:
        """What a person reads first.

        Args:
            last: more columns, left out where they are empty.
        """
        settings = list(rows.columns)[len(("run", "job", "state", "before")) : list(rows.columns).index("seconds")]
        main = [name for name in MAIN if name in rows][:SHOWN]
        columns = ["run", "state", *settings, *main, "seconds", *(name for name in last if rows[name].any())]
        rows["state"] = rows["state"] + rows["before"].map({True: ", before", False: ""})
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
    return "-" if value is None else show(value, digits) if isinstance(value, float) else str(value)
