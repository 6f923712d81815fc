"""A sweep's jobs: which are done already, where the others run, and how they ended.

Only records count. A job is done if a finished run in the sweep's folder has its signature (signature.py) and every file of
it is as the run wrote it; what a launcher or a process says of a job, or fails to say, changes nothing. One run stands for
one job, so that a sweep over what a signature leaves out, such as compute.kernel, keeps all its jobs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from agt.errors import AgtError, ConfigError
from agt_cli.report.finished import open_run
from agt_cli.report.listed import Run, jobs_of
from agt_cli.report.unfinished import CHECKPOINTS, Unfinished, is_alive
from agt_cli.runs.resume import same_code

SIGNALLED = 128  # exit codes above it are a signal's
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
        run: its record, or what there is of it before it goes on; None: there is none.
        before: whether it is not this call's to run: done before, or at work in another process.
        result: what the process that ran it returned, if it did.
        settings: resolved, as plain containers.
        finished_as: the signatures by which a finished run is this job.
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
    settings: Mapping[str, Any] = field(default_factory=dict)
    finished_as: frozenset[str] = frozenset()

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
            return f"lost: no record in {self.folder}: it was not started, or the launcher lost it{printed}"
        if is_alive(self.folder) is None:
            return f"{self.state}, or at work where nobody sees it: {self.folder} says running, and has no lock{printed}"
        gone = "its process is gone (kill -9, no memory left, a time limit, a machine that went down)"
        return f"{self.state}: {gone}, and {self.folder} ends in the middle{printed}"

    @property
    def exit_code(self) -> int:
        """What the command alone would have ended with."""
        code = (self.run.status if self.run else self.result).get("exit_code")
        known = self.state == "failed" and isinstance(code, int)
        return 0 if self.state == "done" else code if known else AgtError.exit_code  # type: ignore[return-value]

    @property
    def started(self) -> bool:
        """Whether a process has begun with it, or begun with it again, since it was planned."""
        status = self.folder / "status.json"
        return status.exists() and (self.run is None or Run.read(self.folder).status != self.run.status)

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
            return {**self.result, **about, "error": self.error, "exit_code": self.exit_code}
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
    note = cache(note)  # a run may be looked at for several jobs: each line once
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
    return [known.get(job.number) or _begun(command, job, left, taken, note) for job in jobs]


def _is(run: Run, job: Job) -> bool:
    names = job.finished_as if run.state == "done" else {job.signature} - {""}
    return run.environment.get("signature") in names


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


def _begun(command: str, job: Job, left: list[Run], taken: set[Path], note: Callable[[str], None]) -> Job:
    """Where a job that is not done runs: in the folder of one that was killed and can go on, or in a new one."""
    begun = sorted((run for run in left if _is(run, job) and run.state in ("failed", "killed")), key=lambda run: run.moment)
    cut = next((run for run in reversed(begun) if _can_go_on(command, run)), None)
    if cut is not None:
        left.remove(cut)
        note(f"{job.label}: {cut.state} before, and goes on in {cut.folder}")
        return replace(job, folder=cut.folder, run=cut)
    folder, again = job.folder, 1
    while folder.exists() or folder in taken:  # a record is never written over
        again += 1
        folder = job.folder.with_name(f"{job.folder.name}_{again}")
    taken.add(folder)
    if begun:
        note(f"{job.label}: {begun[-1].state} before ({begun[-1].folder}), and runs again in {folder}")
    return replace(job, folder=folder)


def _can_go_on(command: str, run: Run) -> bool:
    """Whether a training was cut off from outside, and left enough to take it up; one that failed by itself would again.

    Of what its bits depend on the code is looked at here; the machine is that of the job, which may be another.
    """
    code = run.status.get("exit_code")
    if command != "train" or not (run.state == "killed" or (isinstance(code, int) and code > SIGNALLED)):
        return False
    try:
        Unfinished.open(run.folder, command)
        return same_code(run.folder / CHECKPOINTS)
    except ConfigError:
        return False
