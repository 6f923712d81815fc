"""The table of a sweep: sweep.csv, what is printed, and what --json lists."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any

import pandas as pd

from agt.errors import AgtError, counted
from agt.store.atomic import write_atomic
from agt.store.dotted_keys import flatten_keys
from agt_cli import SWEEP_SUFFIX
from agt_cli.report.console import Console, format_cell
from agt_cli.report.finished import Run
from agt_cli.report.found import jobs_of
from agt_cli.report.record import csv_bytes
from agt_cli.sweep_jobs import Job, key_and_value, list_differing_overrides

TABLE_FILE = "sweep.csv"
TABLE_HEADER = b"run,job,state,before,"  # with which the table's first line begins
MAIN_METRICS = (
    "test_accuracy",
    "accuracy",
    "test_auc",
    "stable_distance_median",
    "moved_by_one_k",
    "seconds_unlearning",
)
MAX_METRICS_SHOWN = 3  # columns of the printed table


@dataclass(frozen=True)
class JobTable:
    """The jobs of a call of a sweep, and the jobs of earlier calls that this call does not have.

    Attributes:
        sweep: the folder of the sweep.
        command: the name of the command.
        jobs: the jobs of the call, after they ended.
    """

    sweep: Path
    command: str
    jobs: Sequence[Job]

    @property
    def exit_code(self) -> int:
        """The exit code of the sweep.

        It is 0 if all jobs are done. If the others all have the same exit code, it is theirs; else
        it is 1.
        """
        codes = {job.exit_code for job in self.jobs} - {0}
        if not codes:
            return 0
        return codes.pop() if len(codes) == 1 else AgtError.exit_code

    @property
    def states(self) -> str:
        """The number of jobs in each state, such as "3 done, 1 failed"."""
        counts = Counter(job.state for job in self.jobs)
        return ", ".join(f"{count} {state}" for state, count in counts.items())

    @property
    def summary(self) -> str:
        """A sentence on the jobs that are not done; empty: all are done."""
        undone = [job for job in self.jobs if job.state != "done"]
        if not undone:
            return ""
        all_failed = {job.state for job in undone} == {"failed"}
        outcome = "failed" if all_failed else f"are not done ({self.states})"
        name = self.sweep.name.removesuffix(SWEEP_SUFFIX)
        undone_count = len(undone)
        job_count = len(self.jobs)
        return (
            f"{undone_count} of {job_count} jobs {outcome}. To run only the jobs that are "
            f"not done, type the same command with sweep={name}"
        )

    def as_json(self) -> dict[str, Any]:
        """Return what --json prints: the jobs of this and of earlier calls, and the table."""
        return {
            "sweep": str(self.sweep),
            "table": str(self.sweep / "sweep.csv"),
            "jobs": [job.as_json(self.command) for job in self.jobs],
            "earlier": [job.as_json(self.command) for job in self.earlier()],
        }

    def earlier(self) -> list[Job]:
        """Return the jobs that only earlier calls had, without those that failed.

        A failed job of an earlier call is mostly a mistake that was corrected for this call.
        """
        return [job for job in self._all_earlier() if job.state != "failed"]

    def _all_earlier(self) -> list[Job]:
        """Return the jobs that only earlier calls had, in the order in which they were started.

        A job that has the signature or the overrides of another one is the same job. Of its
        records, a finished one is taken if there is one, else the newest.
        """
        known_names: set[object] = set()
        for job in self.jobs:
            known_names |= {job.signature, frozenset(job.overrides)}
        records = [
            run for run in jobs_of(self.sweep) if run.command == self.command and run.overrides
        ]
        records.sort(key=attrgetter("start_time"), reverse=True)
        records.sort(key=_is_unfinished)
        earlier: list[Run] = []
        for run in records:
            names = {run.environment.get("signature"), frozenset(run.overrides)}
            if run.overrides and not names & known_names:
                known_names |= names
                earlier.append(run)
        earlier.sort(key=attrgetter("started"))
        return [_earlier_job(run) for run in earlier]

    def rows(self) -> pd.DataFrame:
        """Return the table, with one row for each job of the call and of earlier calls.

        Its columns are run (the name of the folder), job, state, before, the settings that differ,
        seconds, the metrics, and error.
        """
        jobs = [*self.jobs, *self.earlier()]
        differing = list_differing_overrides([job.overrides for job in jobs])
        settings = [dict(map(key_and_value, overrides)) for overrides in differing]
        keys = list(dict.fromkeys(chain(*settings)))
        rows = [_row(job, typed, keys) for job, typed in zip(jobs, settings, strict=True)]
        table = pd.DataFrame(rows)
        # Jobs have different metrics, so the last column of the first job need not be the table's.
        return table[[*table.columns.drop("error"), "error"]]

    def write(self) -> None:
        """Write sweep.csv in the sweep's folder."""
        write_atomic(self.sweep / TABLE_FILE, csv_bytes(self.rows()))

    def print_to(self, console: Console) -> None:
        """Print the table with the main metrics, and the path of sweep.csv.

        Errors are not in it, because they were printed when jobs ended.
        """
        rows = self.rows()
        names = list(rows.columns)
        settings = names[names.index("before") + 1 : names.index("seconds")]
        main = [name for name in MAIN_METRICS if name in rows][:MAX_METRICS_SHOWN]
        columns = ["run", "state", *settings, *main, "seconds"]
        rows["state"] += rows["before"].map({True: ", before", False: ""})
        decimals = dict.fromkeys(columns, 3) | {"seconds": 1}
        cells = []
        for row in rows.to_dict("records"):
            cells.append([format_cell(row[name], decimals[name]) for name in columns])
        console.table(f"sweep {self.sweep}: {self.states}", columns, cells)
        failed = [job for job in self._all_earlier() if job.state == "failed"]
        if failed:
            jobs = counted(len(failed), "failed job")
            folder = failed[0].folder
            console.say(
                f"the folder of this sweep also contains {jobs} from earlier commands, which "
                f"the table does not list (for example {folder})"
            )
        console.say(f"table: {self.sweep / TABLE_FILE}")


def _is_unfinished(run: Run) -> bool:
    """Return whether a run is not done."""
    return run.state != "done"


def _earlier_job(run: Run) -> Job:
    """Return a job of an earlier call, by its record."""
    overrides = tuple(run.overrides)
    return Job(-1, overrides, run.folder, differing_overrides=overrides, run=run, is_skipped=True)


def _row(job: Job, typed: Mapping[str, str], keys: Sequence[str]) -> dict[str, Any]:
    """Return a job's row of the table.

    Args:
        job: the job.
        typed: the settings that were typed for it and not for all jobs.
        keys: the keys of the settings that have a column.
    """
    row: dict[str, Any] = {
        "run": job.folder.name,
        "job": job.number if job.number >= 0 else "",
        "state": job.state,
        "before": job.is_skipped,
    }
    recorded: Mapping[str, Any] = {}
    metrics: Mapping[str, Any] = {}
    seconds = None
    if job.run is not None:
        recorded = flatten_keys(job.run.config)
        metrics = job.run.metrics
        seconds = job.run.status.get("seconds")
    for key in keys:
        value = recorded.get(key)
        # What was not typed is shown as it was recorded; null and {} are left empty.
        shown = "" if value in (None, {}) else str(value)
        row[key] = typed.get(key) or shown
    row["seconds"] = seconds
    row |= {key: value for key, value in metrics.items() if isinstance(value, int | float)}
    row["error"] = job.error
    return row
