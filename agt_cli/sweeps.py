"""Run a sweep (``-m``): one job for each combination of settings, without those that are done.

Whether a job is done is decided by its record alone. Its folder is named by its signature
(agt_cli/jobs.py), and it is done if that folder holds a finished record, every file of which is as
the run wrote it. What a launcher or a process returns for a job does not change this. If jobs
differ only in the settings ``compute``, which no signature contains, a hash of these settings is
added to the name.
"""

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd
from hydra.core.hydra_config import HydraConfig
from joblib import Parallel, cpu_count, delayed, effective_n_jobs
from joblib.externals.loky import get_reusable_executor
from omegaconf import OmegaConf

from agt.errors import AgtError, ConfigError, counted
from agt.store.atomic import write_atomic
from agt.store.dotted_keys import flatten_keys
from agt.store.lock import Lock, is_locked
from agt_cli import SWEEP_SUFFIX, usage
from agt_cli.configuration import combinations, compose_with_hydra, plain
from agt_cli.errors import failure
from agt_cli.jobs import (
    command_line,
    erasing,
    resolve_settings,
    run_job,
    signature_or_empty,
    signatures_on_earlier_states,
)
from agt_cli.process import VISIBLE_GPUS, raising_terminated, visible_gpus
from agt_cli.report.by_signature import finished_record, may_be_at_work, set_aside
from agt_cli.report.console import Console, cell
from agt_cli.report.finished import LOCK, Run
from agt_cli.report.found import jobs_of
from agt_cli.report.record import csv_bytes

Task = Callable[[], dict[str, Any]]
LOG_FOLDER = ".submitit"  # where submitit's launchers keep what jobs printed
STANDARD_INPUT = "-"  # what ids and inputs call it
DYING_SECONDS = 5.0  # that processes have to end after their launcher has
MAIN_METRICS = (
    "test_accuracy",
    "accuracy",
    "test_auc",
    "stable_distance_median",
    "moved_by_one_k",
    "seconds_unlearning",
)
MAX_METRICS_SHOWN = 3  # beside each other
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)


@dataclass(frozen=True)
class Job:
    """One job of a call.

    Attributes:
        number: its place in the call; -1: a job of an earlier call.
        overrides: what the command line sets for it.
        folder: of its record.
        config: composed, with Hydra's node.
        settings: the same resolved, as plain containers.
        signature: empty: it cannot be told, and the job will say why.
        finished_as: the signatures by which a finished run is this job.
        compute: a hash of its part ``compute``, which no signature has.
        differs: those of the overrides that not all jobs of the call have.
        run: its record; None: there is none.
        before: whether it is not this call's to run: done before, or at work in another process.
        result: what the process that ran it returned, if it did.
    """

    number: int
    overrides: tuple[str, ...]
    folder: Path
    config: Any = None
    settings: dict[str, Any] = field(default_factory=dict)
    signature: str = ""
    finished_as: frozenset[str] = frozenset()
    compute: str = ""
    differs: tuple[str, ...] = ()
    run: Run | None = None
    before: bool = False
    result: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
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
        logs = self.folder.parent / LOG_FOLDER
        folder = self.folder
        printed = f" (what the job printed is in the folder {logs})" if logs.is_dir() else ""
        why = {
            "done": "",
            "failed": str(self.result.get("error") or (self.run.error if self.run else "")),
            "running": f"another process is still running this job, in the folder {folder}",
            "lost": (
                f"this job has no result: there is no record of a run in {folder}, so the "
                f"launcher either never started the job or lost it{printed}. Run the job again"
            ),
        }
        return why.get(
            self.state,
            f"this job is {self.state}, and the files in {folder} are incomplete{printed}. If its "
            "process ended without a result (kill -9, out of memory or a time limit), run the job "
            "again. If it is still running on another machine, wait until it ends",
        )

    @property
    def exit_code(self) -> int:
        """What the command alone would have ended with."""
        code = (self.run.status if self.run else self.result).get("exit_code")
        known = self.state == "failed" and isinstance(code, int)
        return 0 if self.state == "done" else code if known else AgtError.exit_code  # type: ignore[return-value]

    def as_json(self, command: str) -> dict[str, Any]:
        run, settings = self.run, dict(map(_key_and_value, self.differs))
        number = {"job": self.number} if self.number >= 0 else {}
        about = {
            "command": command,
            **number,
            "run": str(self.folder),
            "state": self.state,
            "settings": settings,
        }
        if self.error or run is None:
            return {**self.result, **about, "error": self.error, "exit_code": self.exit_code}
        facts = {
            "metrics": run.metrics,
            "data_digest": run.environment.get("data_digest"),
            "digest": run.digest,
        }
        return {
            **about,
            "done_before": self.before,
            **{key: fact for key, fact in facts.items() if fact},
            **self.result,
        }


def _as_it_ended(job: Job, result: Mapping[str, Any]) -> Job:
    """Return a job with its record, if there is one, and with what its process returned.

    Args:
        job: a job that was started.
        result: what the process returned; empty: it returned nothing.
    """
    return replace(
        job,
        run=Run.at(job.folder) if (job.folder / "status.json").exists() else None,
        result=result,
    )


def _key_and_value(override: str) -> tuple[str, str]:
    """Return the key of an override such as "+a.b=1", without Hydra's + or ~, and its value."""
    key, _, value = override.partition("=")
    return key.lstrip("+~"), value


def _differing(jobs: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """Return for each job, given by its overrides, the overrides that not all jobs have."""
    common = set.intersection(*map(set, jobs)) if jobs else set()
    return [tuple(text for text in overrides if text not in common) for overrides in jobs]


class Sweep:
    """Every combination of the values in a command line, those that are done left out.

    Args:
        command: its name.
        line: of the command, as typed, for the records.
        overrides: of the command line.
        config_name: of the primary configuration.

    Attributes:
        table: of the jobs, once they have ended or the sweep was interrupted.
    """

    def __init__(
        self,
        command: str,
        line: Sequence[str],
        overrides: Sequence[str],
        config_name: str,
        console: Console,
    ) -> None:
        self.command, self.line, self.console, self.config_name = (
            command,
            tuple(line),
            console,
            config_name,
        )
        self.table: JobTable | None = None
        lines = combinations(overrides)
        self.hydra = compose_with_hydra(config_name, [*lines[0], "hydra.job.num=0"]).hydra
        if params := self.hydra.sweeper.params:
            lines = combinations([*(f"{key}={value}" for key, value in params.items()), *overrides])
        self.launcher_name = str(self.hydra.runtime.choices["hydra/launcher"])
        self.launcher = dict(OmegaConf.to_container(self.hydra.launcher, resolve=True))  # type: ignore[arg-type]
        self.kind = str(self.launcher.pop("_target_", "")).rpartition(".")[2]
        if self.kind not in LAUNCH:
            raise ConfigError(
                f"hydra/launcher={self.launcher_name}: this launcher is not supported: give "
                "hydra/launcher=joblib, submitit_local, submitit_slurm or slurm"
            )
        if "submitit" in str(self.hydra.launcher["_target_"]) and find_spec("submitit") is None:
            raise ConfigError(
                f"hydra/launcher={self.launcher_name}: the package submitit is not installed: "
                "type pip install 'submitit>=1.5,<2'"
            )
        self.elsewhere = self.kind != "BasicLauncher"  # whether jobs run in other processes
        self.threads: int | None = None  # of each job, where several share a machine
        self.gpus: tuple[str, ...] = ()  # one for each of the jobs at once
        self.batch = self.hydra.sweeper.max_batch_size
        self.folder = Path(os.path.relpath(self.hydra.sweep.dir))
        self.jobs = self._compose(lines)

    def run(self) -> None:
        """Run what is not done, and write the table.

        Raises:
            ConfigError: another process runs this sweep.
            AgtError: the launcher started nothing.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = _take_lock(self.folder, self.console)
        try:
            self._divide_machine()
            jobs = [plan_job(job, self.command, self.console.note) for job in self.jobs]
            self._run_and_report(jobs)
        finally:
            lock.release()

    def _run_and_report(self, jobs: Sequence[Job]) -> None:
        """Run the jobs that are not done, write the table of all, and print errors.

        The table is written even if running is interrupted.
        """
        results: dict[Path, Mapping[str, Any]] = {}
        try:
            self._run([job for job in jobs if not job.before], results)
        finally:
            ended = [
                job if job.before else _as_it_ended(job, results.get(job.folder, {}))
                for job in jobs
            ]
            self.table = JobTable(self.folder, self.command, ended)
            self.table.write()
        for job in ended:
            # in this process it has said so itself
            if job.error and (self.elsewhere or job.state != "failed"):
                self.console.error(f"{job.label}: {job.error}")

    def _compose(self, lines: Sequence[tuple[str, ...]]) -> list[Job]:
        """Every job of the call, composed before the first is run: an override that does not fit
        stops all.
        """
        jobs = [self._job(number, line) for number, line in enumerate(lines)]
        _check_inputs(self.command, jobs)
        differing = _differing([job.overrides for job in jobs])
        labelled = [replace(job, differs=own) for job, own in zip(jobs, differing, strict=True)]
        return _in_folders(labelled, self.folder, self.console.note)

    def _job(self, number: int, line: Sequence[str]) -> Job:
        config = compose_with_hydra(self.config_name, [*line, f"hydra.job.num={number}"])
        overrides = tuple(map(str, config.hydra.overrides.task))
        settings = resolve_settings(self.command, plain(config), overrides, Console(quiet=True))
        signature = signature_or_empty(self.command, settings)
        names = frozenset({signature} - {""})
        if erasing(self.command, settings) and signature:
            names = signatures_on_earlier_states(self.command, settings)
        text = json.dumps(settings.get("compute"), sort_keys=True)
        compute = blake2b(text.encode(), digest_size=4).hexdigest()
        return Job(number, overrides, self.folder, config, settings, signature, names, compute)

    def _divide_machine(self) -> None:
        """Divide this machine among as many jobs as a launcher runs on it at once; a scheduler
        divides its own.

        By all jobs of the call, done or not, so that those that go on have the threads that they
        began with.
        """
        if self.kind == "SlurmLauncher":
            self.threads = self.launcher["cpus_per_task"]
        if self.kind not in ("JoblibLauncher", "LocalLauncher"):
            return
        joblib = self.kind == "JoblibLauncher"
        if joblib and not self.launcher["n_jobs"]:
            raise ConfigError(
                "hydra.launcher.n_jobs=0 would run no job: give the number of jobs to run at "
                "once, or -1 for as many as there are processors"
            )
        started = effective_n_jobs(self.launcher["n_jobs"]) if joblib else self.batch or cpu_count()
        most = min(started, self.batch or started, max(len(self.jobs), 1))
        if any((job.settings.get("compute") or {}).get("device") == "cuda" for job in self.jobs):
            gpus = visible_gpus()
            if gpus and len(gpus) < most:
                names = ", ".join(gpus)
                self.console.note(
                    f"number of jobs that run at the same time: {len(gpus)}, because each job uses "
                    f"a GPU of its own (GPUs: {names})"
                )
            most = min(most, len(gpus) or most)
            self.gpus = gpus[:most]
        if joblib:
            self.launcher["n_jobs"] = most
        else:
            self.batch = most
        self.threads = threads_of_each(most)

    def _run(self, jobs: Sequence[Job], results: dict[Path, Mapping[str, Any]]) -> None:
        """Launch jobs, and again those that a launcher that broke down had not started yet."""
        size = self.batch or max(len(jobs), 1)
        batches = [jobs[start : start + size] for start in range(0, len(jobs), size)]
        while batches:
            waiting = batches.pop(0)
            try:
                self._launch(waiting, results)
            except Exception as error:
                _wait_for_dying(waiting)
                left = [job for job in waiting if not (job.folder / "status.json").exists()]
                first_line = f"{type(error).__name__}: {str(error).partition('.')[0].strip()}"
                if len(left) == len(waiting):
                    raise AgtError(f"hydra/launcher={self.launcher_name}: {first_line}") from error
                if left:
                    jobs_left = counted(len(left), "job")
                    self.console.note(
                        f"the launcher {self.launcher_name} stopped with an error ({first_line}), "
                        "so agt starts it again; jobs that had not been started yet: "
                        f"{jobs_left}"
                    )
                    batches.insert(0, left)

    def _launch(self, jobs: Sequence[Job], results: dict[Path, Mapping[str, Any]]) -> None:
        """Have the launcher run jobs, and note what they return."""
        if self.elsewhere:
            all_jobs = counted(len(jobs), "job")
            self.console.note(f"{all_jobs} started with hydra/launcher={self.launcher_name}")
        task = partial(perform, self.command, self.line, self.console, self.threads, os.getpid())
        cards = self.gpus or ("",)
        tasks = [partial(task, cards[place % len(cards)], job) for place, job in enumerate(jobs)]
        if self.gpus and self.kind == "JoblibLauncher":
            launched = _run_in_queues(self.launcher, tasks, len(self.gpus))
        else:  # of submitit_local, a batch is as many jobs as there are cards
            launched = LAUNCH[self.kind](self.launcher, tasks)
        results.update(zip((job.folder for job in jobs), launched, strict=True))


def threads_of_each(jobs: int) -> int | None:
    """Return how many threads each of so many jobs at once has; None: the environment says it."""
    return None if os.environ.get(THREAD_VARIABLES[0]) else max(1, cpu_count() // jobs)


def take_share(settings: Mapping[str, Any], threads: int | None, gpu: str) -> None:
    """Give this process its part of the machine, before anything is loaded that computes.

    Args:
        settings: the job's, whose ``compute.threads`` is filled in where it is null.
        threads: as ``threads_of_each`` says.
        gpu: as CUDA_VISIBLE_DEVICES names it; empty: the process keeps those that it sees.
    """
    compute = settings.get("compute") or {}
    if threads and "threads" in compute and compute["threads"] is None:
        compute["threads"] = threads
        for name in THREAD_VARIABLES:
            os.environ.setdefault(name, str(threads))
    if gpu and compute.get("device") == "cuda":
        os.environ[VISIBLE_GPUS] = gpu


def perform(
    command: str,
    line: tuple[str, ...],
    console: Console,
    threads: int | None,
    process: int,
    gpu: str,
    job: Job,
) -> dict[str, Any]:
    """Run a job as a launcher calls it, in this process or in another; returns what --json shows of
    it.

    It never raises: its record says how it ended, and what it returns says the same to whoever
    still listens.

    Args:
        line: of the command, as typed.
        threads, gpu: of the machine, for a job in another process (``take_share``).
        process: the one that the user started.
    """
    elsewhere = os.getpid() != process
    console.note(f"-- {job.label}")
    try:
        # nobody else listens in a launcher's process
        with command_line(line), raising_terminated():
            if elsewhere:
                take_share(job.settings, threads, gpu)
            HydraConfig.instance().set_config(job.config)
            words = Console(json=True, quiet=True) if elsewhere else console
            result = run_job(command, job.settings, job.folder, words, job.overrides, sweep=True)
    except Exception as error:
        failed = failure(error, usage.COMMANDS[command].config, (), console.verbose)
        if elsewhere:
            console.note(f"{job.label}: failed, {job.folder}")
        else:
            console.error(f"{job.label}: {failed['error']}")
        return {"command": command, "run": str(job.folder), **failed}
    if elsewhere:  # of many at once, one line each; the table says the rest
        console.note(f"{job.label}: done, {job.folder}")
    return result


# -- launchers
# --------------------------------------------------------------------------------------------------


def _run_here(settings: Mapping[str, Any], tasks: Sequence[Task]) -> list[dict[str, Any]]:
    """Run tasks one after another in this process, and return their results in the same order.

    Args:
        settings: ignored: this launcher has none.
        tasks: the jobs to run.
    """
    return [task() for task in tasks]


def _run_by_joblib(settings: Mapping[str, Any], tasks: Sequence[Task]) -> list[dict[str, Any]]:
    """Run tasks in several processes by joblib, and return their results in the same order.

    Args:
        settings: the settings of Hydra's joblib launcher, which are arguments of
            ``joblib.Parallel``. A text of digits is passed as a number, because Hydra has settings
            such as pre_dispatch as text. The backend is always loky.
        tasks: the jobs to run.
    """
    arguments: dict[str, Any] = {}
    for name, value in settings.items():
        is_number = isinstance(value, str) and value.isdecimal()
        arguments[name] = int(value) if is_number else value
    arguments["backend"] = "loky"
    return Parallel(**arguments)(delayed(task)() for task in tasks)


def _run_in_queues(
    settings: Mapping[str, Any], tasks: Sequence[Task], cards: int
) -> list[dict[str, Any]]:
    """Run tasks by joblib, in one process for each GPU, and return their results in the same order.

    Args:
        settings: not used by the tasks' processes.
        tasks: the jobs to run; task n runs in process n modulo ``cards``.
        cards: how many GPUs there are.
    """
    queues = [partial(_run_here, settings, tasks[card::cards]) for card in range(cards)]
    results = Parallel(n_jobs=cards, backend="loky")(delayed(queue)() for queue in queues)
    # CUDA reads only once which GPUs a process may use, so the next batch needs new processes.
    get_reusable_executor().shutdown(wait=True)
    return [results[index % cards][index // cards] for index in range(len(tasks))]


def _run_by_submitit(
    cluster: str, settings: Mapping[str, Any], tasks: Sequence[Task]
) -> list[dict[str, Any]]:
    """Submit tasks by submitit, and return their results in the same order when all have ended.

    Args:
        cluster: "local" or "slurm".
        settings: the settings of Hydra's submitit launcher.
        tasks: the jobs to run.

    Returns:
        The result of each task; empty for a task that ended without one, such as a job that was
        killed, whose record says how far it came.
    """
    from submitit import AutoExecutor
    from submitit.core.utils import UncompletedJobError

    settings = dict(settings)
    starts = {
        f"{cluster}_{key}": settings.pop(key) for key in ("max_num_timeout",) if key in settings
    }
    logs = Path(settings.pop("submitit_folder"))  # with %j for a job's number
    shared = next(folder for folder in (logs, *logs.parents) if "%" not in str(folder))
    shared.mkdir(mode=0o700, parents=True, exist_ok=True)  # what jobs print may tell of records
    executor = AutoExecutor(logs, cluster=cluster, **starts)
    common = (
        "timeout_min",
        "cpus_per_task",
        "gpus_per_node",
        "tasks_per_node",
        "mem_gb",
        "nodes",
        "name",
        "stderr_to_stdout",
    )
    executor.update_parameters(
        **{key if key in common else f"{cluster}_{key}": value for key, value in settings.items()}
    )
    with executor.batch():
        submitted = [executor.submit(task) for task in tasks]
    results: list[dict[str, Any]] = []
    for job in submitted:
        job.wait()
        results.append({})
        # what has ended here has written all that it will
        if cluster == "local" and not job.paths.result_pickle.exists():
            continue
        with suppress(UncompletedJobError):  # killed, or broke down: the record says so
            results[-1] = job.result()
    return results


LAUNCH: dict[str, Callable[[Mapping[str, Any], Sequence[Task]], list[dict[str, Any]]]] = {
    "BasicLauncher": _run_here,
    "JoblibLauncher": _run_by_joblib,
    "LocalLauncher": partial(_run_by_submitit, "local"),
    "SlurmLauncher": partial(_run_by_submitit, "slurm"),
}
"""By the class that the settings of a launcher name, whatever the user's own file of them is
called.
"""


def _check_inputs(command: str, jobs: Sequence[Job]) -> None:
    """Check that no two jobs of a sweep need the same run or standard input for themselves.

    Args:
        command: the name of the command.
        jobs: the jobs of the sweep.

    Raises:
        ConfigError: two jobs would erase records from the same run, or a job would read standard
            input, which is not in its signature: a later call with other input would take the job
            for done.
    """
    erased_runs = Counter(
        str(job.settings["run"]) for job in jobs if erasing(command, job.settings)
    )
    repeated_runs = [run for run, count in erased_runs.items() if count > 1]
    if repeated_runs:
        run = repeated_runs[0]
        raise ConfigError(
            f"run={run}: several jobs of this sweep would erase records from this run, so "
            "each would change the run for the next job. Type the commands one after the "
            "other. To only compare methods, add rehearse=true, which runs each job on a copy"
        )
    for key in ("ids", "inputs"):
        if any(str(job.settings.get(key)) == STANDARD_INPUT for job in jobs):
            raise ConfigError(
                f"{key}=-: every job of a sweep must read this input, but standard input can be "
                f"read only once: give a file with {key}=FILE"
            )


def _take_lock(sweep: Path, console: Console) -> Lock:
    """Acquire and return the lock of a sweep, which keeps other processes from running it.

    If the file system has no locks, the user is warned instead.

    Raises:
        ConfigError: another process holds the lock.
    """
    lock = Lock(sweep / LOCK)
    if not lock.acquire():
        raise ConfigError(
            f"{sweep}: another process is running this sweep: wait until it ends, or give "
            "another name with sweep=NAME"
        )
    if not lock.works:
        console.note(
            f"note: the file system of {sweep} does not support locks, so agt cannot notice "
            "another process that runs this sweep: do not run it twice at the same time"
        )
    return lock


def _wait_for_dying(jobs: Sequence[Job]) -> None:
    """Wait until no job's process is running any more, but at most DYING_SECONDS.

    Processes end soon after a launcher that stopped with an error.
    """
    end = time.monotonic() + DYING_SECONDS
    while any(is_locked(job.folder / LOCK) for job in jobs) and time.monotonic() < end:
        time.sleep(0.05)


# -- which jobs are done already, and where the others run
# -------------------------------------------------------------


def _in_folders(jobs: Sequence[Job], sweep: Path, note: Callable[[str], None]) -> list[Job]:
    """Return jobs with the folders that their signatures name, without jobs that are repeated.

    Args:
        jobs: the jobs of a call.
        sweep: the folder of the sweep.
        note: prints a line for each job that is left out.
    """
    counts = Counter(job.signature for job in jobs)
    named: dict[str, Job] = {}
    for job in jobs:
        # A job without a signature will fail, and is never taken for done.
        name = job.signature or f"job{job.number}"
        if job.signature and counts[job.signature] > 1:
            name = f"{name}-{job.compute}"
        if name in named:
            other_job = named[name].label
            note(f"{job.label} is left out, because it computes the same as {other_job}")
            continue
        named[name] = replace(job, folder=sweep / name)
    return list(named.values())


def plan_job(job: Job, command: str, note: Callable[[str], None]) -> Job:
    """Return a job with the finished run that is it, or with a folder that is free to run in.

    Args:
        job: with the folder that its signature gives.
        command: its name.
        note: takes a line where it was begun before.
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
            return replace(job, folder=folder, run=run, before=True)
    if may_be_at_work(job.folder):
        note(
            f"{job.label} is not started, because another process is running this job, in "
            f"the folder {job.folder}"
        )
        return replace(job, run=Run.at(job.folder), before=True)
    state = Run.at(job.folder).state
    aside = set_aside(job.folder)
    if aside is not None:
        note(
            f"{job.label} runs again: its earlier run is {state}, and the folder of that run was "
            f"moved to {aside}"
        )
    return job


# -- the one table of a sweep: sweep.csv, and what is printed and listed by --json
# --------------------------------------


@dataclass(frozen=True)
class JobTable:
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
        return ", ".join(
            f"{count} {state}" for state, count in Counter(job.state for job in self.jobs).items()
        )

    @property
    def summary(self) -> str:
        """One line: empty where all is done."""
        undone = [job for job in self.jobs if job.state != "done"]
        if not undone:
            return ""
        some = {job.state for job in undone} != {"failed"}
        outcome = f"are not done ({self.states})" if some else "failed"
        name = self.sweep.name.removesuffix(SWEEP_SUFFIX)
        undone_count = len(undone)
        job_count = len(self.jobs)
        return (
            f"{undone_count} of {job_count} jobs {outcome}. To run only the jobs that are "
            f"not done, type the same command with sweep={name}"
        )

    def as_json(self) -> dict[str, Any]:
        """The call's jobs, those of earlier calls, and where the table lies."""
        jobs, earlier = (
            [job.as_json(self.command) for job in part] for part in (self.jobs, self.earlier())
        )
        return {
            "sweep": str(self.sweep),
            "table": str(self.sweep / "sweep.csv"),
            "jobs": jobs,
            "earlier": earlier,
        }

    def earlier(self) -> list[Job]:
        """Return the jobs of earlier calls that are not this call's, without those that failed.

        A failed job of an earlier line is mostly a mistake that this line has corrected.
        """
        return [job for job in self._earlier() if job.state != "failed"]

    def _earlier(self) -> list[Job]:
        """Return jobs of earlier calls: the newest record of each that is none of this call's, by
        signature or by overrides.
        """
        seen: set[object] = {job.signature for job in self.jobs} | {
            frozenset(job.overrides) for job in self.jobs
        }
        earlier = []
        for run in sorted(
            jobs_of(self.sweep), key=lambda run: (run.state == "done", run.moment), reverse=True
        ):
            names = {run.environment.get("signature"), frozenset(run.overrides)}
            if run.command == self.command and run.overrides and not names & seen:
                seen |= names
                earlier.append(
                    Job(-1, run.overrides, run.folder, differs=run.overrides, run=run, before=True)
                )
        return sorted(earlier, key=lambda job: job.run.started if job.run else "")

    def rows(self) -> pd.DataFrame:
        """One row for each job: number, state, folder, the settings that differ, seconds,
        metrics, error.
        """
        jobs = [*self.jobs, *self.earlier()]
        settings = [
            dict(map(_key_and_value, words))
            for words in _differing([job.overrides for job in jobs])
        ]
        keys = dict.fromkeys(key for row in settings for key in row)
        rows = []
        for job, row in zip(jobs, settings, strict=True):
            status, metrics = (job.run.status, job.run.metrics) if job.run else ({}, {})
            settled = flatten_keys(job.run.config if job.run else {})
            config = {key: value for key, value in settled.items() if value not in (None, {})}
            given = {key: row.get(key) or str(config.get(key, "")) for key in keys}
            about = {
                "run": job.folder.name,
                "job": job.number if job.number >= 0 else "",
                "state": job.state,
            }
            about["before"] = job.before  # taken from an earlier call
            numbers = {
                name: value for name, value in metrics.items() if isinstance(value, int | float)
            }
            rows.append(
                {**about, **given, "seconds": status.get("seconds"), **numbers, "error": job.error}
            )
        frame = pd.DataFrame(rows)
        return frame[[*(name for name in frame if name != "error"), "error"]]

    def write(self) -> None:
        """Write sweep.csv in the sweep's folder."""
        write_atomic(self.sweep / "sweep.csv", csv_bytes(self.rows()))

    def print_to(self, console: Console) -> None:
        """Print what a person reads first; errors were lines of their own."""
        rows = self.rows()
        settings = list(rows.columns)[
            len(("run", "job", "state", "before")) : list(rows.columns).index("seconds")
        ]
        main = [name for name in MAIN_METRICS if name in rows][:MAX_METRICS_SHOWN]
        columns = ["run", "state", *settings, *main, "seconds"]
        rows["state"] = rows["state"] + rows["before"].map({True: ", before", False: ""})
        cells = []
        for row in rows.to_dict("records"):
            cells.append([cell(row[name], 1 if name == "seconds" else 3) for name in columns])
        console.table(f"sweep {self.sweep}: {self.states}", columns, cells)
        failed = [job for job in self._earlier() if job.state == "failed"]
        if failed:
            jobs = counted(len(failed), "failed job")
            folder = failed[0].folder
            console.say(
                f"the folder of this sweep also contains {jobs} from earlier commands, which "
                f"the table does not list (for example {folder})"
            )
        console.say(f"table: {self.sweep / 'sweep.csv'}")
