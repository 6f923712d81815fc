"""One job of a sweep: its settings, the folder of its record, and whether it is done.

Only a job's record decides whether it is done. Its folder is named by its signature
(agt_cli/jobs.py), and it is done if that folder holds a finished record, every file of which is as
the run wrote it. What a launcher or a process returns for a job does not change this. If jobs
differ only in the settings ``compute``, which no signature contains, a hash of these settings is
added to the name.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agt.errors import AgtError, ConfigError
from agt_cli.report.by_signature import finished_record, may_be_running, move_aside
from agt_cli.report.finished import Run


@dataclass(frozen=True)
class Job:
    """One job of a sweep.

    A call is one start of the sweep's command; a sweep may be called several times.

    Attributes:
        number: its number in the call, from 0; -1: a job of an earlier call.
        overrides: the settings of the command line for this job.
        folder: the folder of its record.
        config: its composed configuration, with Hydra's node.
        settings: its resolved configuration, as plain containers.
        signature: the hash of what the job computes; empty: no hash can be computed, so the job
            will fail.
        finished_as: the signatures of finished runs that are this job. It is the signature, except
            for jobs that erase records (``signatures_on_earlier_states``).
        compute: a hash of the settings ``compute``, which are in no signature.
        differing_overrides: the overrides that not all jobs of the call have.
        run: its record; None: the job has no record.
        is_skipped: True: this call does not run it, because it was done before, or another process
            is running it.
        result: the result that the process which ran the job returned; empty: nothing was returned.
    """

    number: int
    overrides: tuple[str, ...]
    folder: Path
    config: Any = None
    settings: dict[str, Any] = field(default_factory=dict)
    signature: str = ""
    finished_as: frozenset[str] = frozenset()
    compute: str = ""
    differing_overrides: tuple[str, ...] = ()
    run: Run | None = None
    is_skipped: bool = False
    result: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The job's number and the settings that differ, for messages."""
        settings = " ".join(self.differing_overrides)
        return f"job {self.number} ({settings})" if settings else f"job {self.number}"

    @property
    def has_begun(self) -> bool:
        """Whether a process has begun its record."""
        return (self.folder / "status.json").exists()

    @property
    def state(self) -> str:
        """The state of its record (``Run.state``).

        Without a record: "failed" if its process returned an error, else "lost".
        """
        if self.run is not None:
            return self.run.state
        return "failed" if "error" in self.result else "lost"

    @property
    def error(self) -> str:
        """A sentence on why the job is not done; empty: the job is done."""
        folder = self.folder
        match self.state:
            case "done":
                return ""
            case "failed":
                recorded = "" if self.run is None else self.run.error
                return str(self.result.get("error") or recorded)
            case "running":
                return f"another process is still running this job, in the folder {folder}"
            case "lost":
                return (
                    f"this job has no result: there is no record of a run in {folder}, so the "
                    "launcher either never started the job or lost it. Run the job again"
                )
        return (
            f"this job is {self.state}, and the files in {folder} are incomplete. If its "
            "process ended without a result (kill -9, out of memory or a time limit), run the job "
            "again. If it is still running on another machine, wait until it ends"
        )

    @property
    def exit_code(self) -> int:
        """The exit code with which the command would have ended outside of a sweep."""
        if self.state == "done":
            return 0
        recorded: Mapping[str, Any] = self.run.status if self.run else self.result
        code = recorded.get("exit_code")
        if self.state == "failed" and isinstance(code, int):
            return code
        return AgtError.exit_code

    def as_json(self, command: str) -> dict[str, Any]:
        """Return what --json prints about the job.

        Args:
            command: the name of the command.
        """
        about: dict[str, Any] = {"command": command}
        if self.number >= 0:
            about["job"] = self.number
        about["run"] = str(self.folder)
        about["state"] = self.state
        about["settings"] = dict(map(key_and_value, self.differing_overrides))
        if self.error or self.run is None:
            return {**self.result, **about, "error": self.error, "exit_code": self.exit_code}
        about["done_before"] = self.is_skipped
        recorded = {
            "metrics": self.run.metrics,
            "data_digest": self.run.environment.get("data_digest"),
            "digest": self.run.digest,
        }
        about |= {key: value for key, value in recorded.items() if value}
        return {**about, **self.result}


def with_result(job: Job, result: Mapping[str, Any]) -> Job:
    """Return a job with its record, if there is one, and with what its process returned.

    Args:
        job: a job that was started.
        result: the result that the process returned; empty: it returned nothing.
    """
    run = Run.at(job.folder) if job.has_begun else None
    return replace(job, run=run, result=result)


def key_and_value(override: str) -> tuple[str, str]:
    """Return the key of an override such as "+a.b=1", without Hydra's + or ~, and its value."""
    key, _, value = override.partition("=")
    return key.lstrip("+~"), value


def list_differing_overrides(jobs: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """Return for each job, given by its overrides, the overrides that not all jobs have."""
    common: set[str] = set()
    if jobs:
        common = set.intersection(*map(set, jobs))
    differing = []
    for overrides in jobs:
        differing.append(tuple(text for text in overrides if text not in common))
    return differing


def with_folders(jobs: Sequence[Job], sweep: Path, note: Callable[[str], None]) -> list[Job]:
    """Return jobs with the folders that their signatures name, without jobs that are repeated.

    Args:
        jobs: the jobs of a call.
        sweep: the folder of the sweep.
        note: prints a line for each job that is left out.
    """
    counts = Counter(job.signature for job in jobs)
    job_by_folder_name: dict[str, Job] = {}
    for job in jobs:
        # A job without a signature will fail, and is never taken for done.
        name = job.signature or f"job{job.number}"
        if job.signature and counts[job.signature] > 1:
            name = f"{name}-{job.compute}"
        if name in job_by_folder_name:
            other_job = job_by_folder_name[name].label
            note(f"{job.label} is left out, because it computes the same as {other_job}")
            continue
        job_by_folder_name[name] = replace(job, folder=sweep / name)
    return list(job_by_folder_name.values())


def plan_job(job: Job, command: str, note: Callable[[str], None]) -> Job:
    """Find out whether a job is done or running, and make room for it if it has to run.

    An earlier run that did not finish is moved to another folder.

    Args:
        job: a job, with the folder that its signature names.
        command: the name of the command.
        note: prints a line if there is an earlier run.

    Returns:
        The job; with its record and ``is_skipped`` True if it is done, or another process is
        running it.
    """
    for signature in sorted(job.finished_as):
        folder = job.folder.with_name(job.folder.name.replace(job.signature, signature))
        try:
            run = finished_record(folder, command, signature)
        except ConfigError as error:
            note(
                f"{job.label} was done before, but runs again, because files of its earlier "
                f"result were changed ({error})"
            )
            continue
        if run is not None:
            note(f"{job.label} was done before and is not run again; its result is in {folder}")
            return replace(job, folder=folder, run=run, is_skipped=True)
    if may_be_running(job.folder):
        note(
            f"{job.label} is not started, because another process is running this job, in "
            f"the folder {job.folder}"
        )
        return replace(job, run=Run.at(job.folder), is_skipped=True)
    state = Run.at(job.folder).state
    moved_folder = move_aside(job.folder)
    if moved_folder is not None:
        note(
            f"{job.label} runs again: its earlier run is {state}, and the folder of that run was "
            f"moved to {moved_folder}"
        )
    return job
