"""Run a sweep (``-m``): one job for each combination of settings, without those that are done.

Only a job's record decides whether it is done. Its folder is named by its signature
(agt_cli/jobs.py), and it is done if that folder holds a finished record, every file of which is as
the run wrote it. What a launcher or a process returns for a job does not change this. If jobs
differ only in the settings ``compute``, which no signature contains, a hash of these settings is
added to the name.
"""

import json
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from importlib.util import find_spec
from itertools import cycle
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
from agt_cli import SWEEP_SUFFIX, config_files, usage
from agt_cli.configuration import compose_with_hydra, sweep_combinations, to_plain_containers
from agt_cli.errors import error_fields
from agt_cli.jobs import (
    erases_records,
    resolve_settings,
    run_job,
    signature_or_empty,
    signatures_on_earlier_states,
)
from agt_cli.process import VISIBLE_GPUS, raising_terminated, recorded_command_line, visible_gpus
from agt_cli.report.by_signature import finished_record, may_be_running, move_aside
from agt_cli.report.console import Console, format_cell
from agt_cli.report.finished import LOCK_FILE, Run
from agt_cli.report.found import jobs_of
from agt_cli.report.record import csv_bytes

Task = Callable[[], dict[str, Any]]
LOG_FOLDER = ".submitit"  # where submitit's launchers keep what jobs printed
TABLE_FILE = "sweep.csv"
TABLE_HEADER = b"run,job,state,before,"  # with which the table's first line begins
STANDARD_INPUT = "-"  # the value of ids and inputs that means standard input
MAX_DYING_SECONDS = 5.0  # how long processes may take to end after their launcher has ended
MAIN_METRICS = (
    "test_accuracy",
    "accuracy",
    "test_auc",
    "stable_distance_median",
    "moved_by_one_k",
    "seconds_unlearning",
)
MAX_METRICS_SHOWN = 3  # columns of the printed table
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)


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
        about["settings"] = dict(map(_key_and_value, self.differing_overrides))
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


def _with_result(job: Job, result: Mapping[str, Any]) -> Job:
    """Return a job with its record, if there is one, and with what its process returned.

    Args:
        job: a job that was started.
        result: the result that the process returned; empty: it returned nothing.
    """
    run = Run.at(job.folder) if (job.folder / "status.json").exists() else None
    return replace(job, run=run, result=result)


def _key_and_value(override: str) -> tuple[str, str]:
    """Return the key of an override such as "+a.b=1", without Hydra's + or ~, and its value."""
    key, _, value = override.partition("=")
    return key.lstrip("+~"), value


def _differing_overrides(jobs: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """Return for each job, given by its overrides, the overrides that not all jobs have."""
    common = set.intersection(*map(set, jobs)) if jobs else set()
    return [tuple(text for text in overrides if text not in common) for overrides in jobs]


class Sweep:
    """Runs a command for every combination of the values in a command line.

    Args:
        command: the name of the command.
        line: the command line as typed, for the records.
        overrides: the settings of the command line.
        config_name: the command's primary configuration.
        console: prints progress.

    Attributes:
        jobs: the jobs of this call.
        kind: the name of the launcher's class, a key of ``LAUNCHERS``.
        launcher: the settings of the launcher.
        in_other_processes: True: jobs run in other processes.
        threads: the number of threads of each job, if several share a machine; None: not set.
        gpus: a GPU for each of the jobs that run at the same time; none: they need no GPU.
        batch: the number of jobs that are given to the launcher at once; None: all jobs.
        table: the jobs after they have ended, or the sweep was interrupted; None: not yet.

    Raises:
        ConfigError: a setting does not fit, or the launcher is unknown or not installed.
        HydraException: an override is wrong.
    """

    def __init__(
        self,
        command: str,
        line: Sequence[str],
        overrides: Sequence[str],
        config_name: str,
        console: Console,
    ) -> None:
        self.command = command
        self.line = tuple(line)
        self.console = console
        self.config_name = config_name
        self.table: JobTable | None = None
        lines = sweep_combinations(overrides)
        hydra = compose_with_hydra(config_name, [*lines[0], "hydra.job.num=0"]).hydra
        params = hydra.sweeper.params
        if params:  # values to try that a configuration file lists
            lines = sweep_combinations(
                [*(f"{key}={value}" for key, value in params.items()), *overrides]
            )
        self.launcher_name = str(hydra.runtime.choices["hydra/launcher"])
        self.launcher = dict(OmegaConf.to_container(hydra.launcher, resolve=True))  # type: ignore[arg-type]
        launcher_class = str(self.launcher.pop("_target_", ""))
        self.kind = launcher_class.rpartition(".")[2]
        if self.kind not in LAUNCHERS:
            raise ConfigError(
                f"hydra/launcher={self.launcher_name}: this launcher is not supported: give "
                "hydra/launcher=joblib, submitit_local, submitit_slurm or slurm"
            )
        if "submitit" in launcher_class and find_spec("submitit") is None:
            raise ConfigError(
                f"hydra/launcher={self.launcher_name}: the package submitit is not installed: "
                "type pip install 'submitit>=1.5,<2'"
            )
        self.in_other_processes = self.kind != "BasicLauncher"
        self.threads: int | None = None
        self.gpus: tuple[str, ...] = ()
        self.batch = hydra.sweeper.max_batch_size
        self.folder = Path(os.path.relpath(hydra.sweep.dir))
        self.jobs = self._compose(lines)

    def run(self) -> None:
        """Run the jobs that are not done, and write the table of all.

        Raises:
            ConfigError: another process is running this sweep, or its table would replace a file of
                the user's own.
            AgtError: the launcher did not start any job.
        """
        _check_own_table(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = _acquire_sweep_lock(self.folder, self.console)
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
            self._run([job for job in jobs if not job.is_skipped], results)
        finally:
            ended = [
                job if job.is_skipped else _with_result(job, results.get(job.folder, {}))
                for job in jobs
            ]
            self.table = JobTable(self.folder, self.command, ended)
            self.table.write()
        for job in ended:
            # A job that failed in this process has already printed its error (``run_in_launcher``).
            if job.error and (self.in_other_processes or job.state != "failed"):
                self.console.error(f"{job.label}: {job.error}")

    def _compose(self, lines: Sequence[tuple[str, ...]]) -> list[Job]:
        """Compose all jobs of the call, so that a wrong override stops it before any job runs.

        Args:
            lines: the overrides of each job.

        Returns:
            The jobs with their folders, without repeated ones.
        """
        jobs = [self._job(number, line) for number, line in enumerate(lines)]
        _check_inputs(self.command, jobs)
        differing = _differing_overrides([job.overrides for job in jobs])
        labelled = [
            replace(job, differing_overrides=overrides)
            for job, overrides in zip(jobs, differing, strict=True)
        ]
        return _with_folders(labelled, self.folder, self.console.note)

    def _job(self, number: int, line: Sequence[str]) -> Job:
        """Compose one job. Its folder is still that of the sweep.

        Args:
            number: the number of the job.
            line: its overrides.
        """
        config = compose_with_hydra(self.config_name, [*line, f"hydra.job.num={number}"])
        overrides = tuple(map(str, config.hydra.overrides.task))
        settings = resolve_settings(
            self.command, to_plain_containers(config), overrides, Console(quiet=True)
        )
        signature = signature_or_empty(self.command, settings)
        finished_as = frozenset({signature} - {""})
        if erases_records(self.command, settings) and signature:
            finished_as = signatures_on_earlier_states(self.command, settings)
        compute = json.dumps(settings.get("compute"), sort_keys=True)
        return Job(
            number=number,
            overrides=overrides,
            folder=self.folder,
            config=config,
            settings=settings,
            signature=signature,
            finished_as=finished_as,
            compute=blake2b(compute.encode(), digest_size=4).hexdigest(),
        )

    def _divide_machine(self) -> None:
        """Set how many jobs run on this machine at once, and the threads and GPU of each.

        These numbers depend on all jobs of the call, including those that are done, so that a job
        that is run again has the number of threads with which it was begun. Slurm divides its
        machines itself.

        Raises:
            ConfigError: the launcher is set to run 0 jobs at once.
        """
        if self.kind == "SlurmLauncher":
            self.threads = self.launcher["cpus_per_task"]
        if self.kind not in ("JoblibLauncher", "LocalLauncher"):
            return
        is_joblib = self.kind == "JoblibLauncher"
        if is_joblib and not self.launcher["n_jobs"]:
            raise ConfigError(
                "hydra.launcher.n_jobs=0 would run no job: give the number of jobs to run at "
                "once, or -1 for as many as there are processors"
            )
        at_once = effective_n_jobs(self.launcher["n_jobs"]) if is_joblib else cpu_count()
        if self.batch:
            at_once = min(at_once, self.batch) if is_joblib else self.batch
        at_once = min(at_once, max(len(self.jobs), 1))
        if any((job.settings.get("compute") or {}).get("device") == "cuda" for job in self.jobs):
            gpus = visible_gpus()
            if gpus and len(gpus) < at_once:
                at_once = len(gpus)
                names = ", ".join(gpus)
                self.console.note(
                    f"number of jobs that run at the same time: {at_once}, because each job uses "
                    f"a GPU of its own (GPUs: {names})"
                )
            self.gpus = gpus[:at_once]
        if is_joblib:
            self.launcher["n_jobs"] = at_once
        else:
            self.batch = at_once
        self.threads = threads_per_job(at_once)

    def _run(self, jobs: Sequence[Job], results: dict[Path, Mapping[str, Any]]) -> None:
        """Launch jobs in batches; launch again the jobs that a broken launcher did not start.

        Args:
            jobs: the jobs to run.
            results: is filled with what the jobs return: folder -> result.

        Raises:
            AgtError: a launcher stopped without having started any job of a batch.
        """
        size = self.batch or max(len(jobs), 1)
        batches = [jobs[start : start + size] for start in range(0, len(jobs), size)]
        while batches:
            batch = batches.pop(0)
            try:
                self._launch(batch, results)
            except Exception as error:
                _wait_for_ending_jobs(batch)
                not_started = [job for job in batch if not (job.folder / "status.json").exists()]
                first_line = f"{type(error).__name__}: {str(error).partition('.')[0].strip()}"
                if len(not_started) == len(batch):
                    raise AgtError(f"hydra/launcher={self.launcher_name}: {first_line}") from error
                if not_started:
                    remaining = counted(len(not_started), "job")
                    self.console.note(
                        f"the launcher {self.launcher_name} stopped with an error ({first_line}), "
                        "so agt starts it again; jobs that had not been started yet: "
                        f"{remaining}"
                    )
                    batches.insert(0, not_started)

    def _launch(self, jobs: Sequence[Job], results: dict[Path, Mapping[str, Any]]) -> None:
        """Let the launcher run one batch of jobs, and add what they return to ``results``."""
        if self.in_other_processes:
            all_jobs = counted(len(jobs), "job")
            self.console.note(f"{all_jobs} started with hydra/launcher={self.launcher_name}")
        task = partial(
            run_in_launcher, self.command, self.line, self.console, self.threads, os.getpid()
        )
        gpus = self.gpus or ("",)
        tasks = [partial(task, gpu, job) for gpu, job in zip(cycle(gpus), jobs, strict=False)]
        if self.gpus and self.kind == "JoblibLauncher":
            returned = _run_in_queues(self.launcher, tasks, len(self.gpus))
        else:  # a batch of submitit_local has at most as many jobs as there are GPUs
            returned = LAUNCHERS[self.kind](self.launcher, tasks)
        results.update(zip((job.folder for job in jobs), returned, strict=True))


def threads_per_job(jobs: int) -> int | None:
    """Return the number of threads of each of several jobs that run at the same time.

    None: an environment variable sets it.
    """
    return None if os.environ.get(THREAD_VARIABLES[0]) else max(1, cpu_count() // jobs)


def set_resources(settings: Mapping[str, Any], threads: int | None, gpu: str) -> None:
    """Set this process's number of threads and its GPU, before a library reads them.

    Args:
        settings: the settings of the job; ``compute.threads`` is set if it is null.
        threads: the number of threads; None: the environment decides the number.
        gpu: the name of a GPU, as in CUDA_VISIBLE_DEVICES; empty: all visible GPUs may be used.
    """
    compute = settings.get("compute") or {}
    if threads and "threads" in compute and compute["threads"] is None:
        compute["threads"] = threads
        for name in THREAD_VARIABLES:
            os.environ.setdefault(name, str(threads))
    if gpu and compute.get("device") == "cuda":
        os.environ[VISIBLE_GPUS] = gpu


def run_in_launcher(
    command: str,
    line: tuple[str, ...],
    console: Console,
    threads: int | None,
    process: int,
    gpu: str,
    job: Job,
) -> dict[str, Any]:
    """Run a job in a launcher's process, which may be this one.

    No exception of the job is raised.

    Args:
        command: the name of the command.
        line: the command line as typed, for the record.
        console: prints how the job begins and ends.
        threads: the number of threads; None: the environment decides the number. It is used if the
            job runs in another process.
        process: the number of the process that the user started.
        gpu: the name of a GPU, as in CUDA_VISIBLE_DEVICES; empty: all visible GPUs may be used. It
            is used if the job runs in another process.
        job: the job.

    Returns:
        What --json prints about the job; if it failed, with its error.
    """
    in_other_process = os.getpid() != process
    console.note(f"-- {job.label}")
    try:
        # A process of a launcher does not handle signals yet.
        with recorded_command_line(line), raising_terminated():
            if in_other_process:
                set_resources(job.settings, threads, gpu)
            HydraConfig.instance().set_config(job.config)
            job_console = Console(json=True, quiet=True) if in_other_process else console
            result = run_job(
                command, job.settings, job.folder, job_console, job.overrides, sweep=True
            )
    except Exception as error:
        failed = error_fields(error, usage.COMMANDS[command].config, (), console.verbose)
        if in_other_process:
            console.note(f"{job.label}: failed, {job.folder}")
        else:
            console.error(f"{job.label}: {failed['error']}")
        return {"command": command, "run": str(job.folder), **failed}
    if in_other_process:  # jobs that run at the same time print one line each
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
    settings: Mapping[str, Any], tasks: Sequence[Task], gpus: int
) -> list[dict[str, Any]]:
    """Run tasks by joblib, in one process for each GPU, and return their results in the same order.

    Args:
        settings: not used by the tasks' processes.
        tasks: the jobs to run; task n runs in process n modulo ``gpus``.
        gpus: the number of GPUs.
    """
    queues = [partial(_run_here, settings, tasks[gpu::gpus]) for gpu in range(gpus)]
    results = Parallel(n_jobs=gpus, backend="loky")(delayed(queue)() for queue in queues)
    # CUDA reads only once which GPUs a process may use, so the next batch needs new processes.
    get_reusable_executor().shutdown(wait=True)
    return [results[index % gpus][index // gpus] for index in range(len(tasks))]


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

    # The parameters of every kind of cluster are those of a single machine.
    options = config_files.packed_groups()["hydra/launcher"]
    common = re.findall(r"^(\w+):", options["submitit_local"], re.MULTILINE)
    parameters = {
        key if key in common else f"{cluster}_{key}": value for key, value in settings.items()
    }
    # submitit takes this parameter only when the executor is made.
    at_start = f"{cluster}_max_num_timeout"
    start = {at_start: parameters.pop(at_start)} if at_start in parameters else {}
    logs = Path(parameters.pop("submitit_folder"))  # %j in it stands for a job's number
    shared = next(folder for folder in (logs, *logs.parents) if "%" not in str(folder))
    # What jobs print may reveal something about records, so only the owner may read it.
    shared.mkdir(mode=0o700, parents=True, exist_ok=True)
    executor = AutoExecutor(logs, cluster=cluster, **start)
    executor.update_parameters(**parameters)
    with executor.batch():
        submitted = [executor.submit(task) for task in tasks]
    results: list[dict[str, Any]] = []
    for job in submitted:
        job.wait()
        results.append({})
        # A local job that has ended without a result never gets one; ``result`` would wait for it.
        if cluster == "local" and not job.paths.result_pickle.exists():
            continue
        with suppress(UncompletedJobError):  # the job was killed; its record shows that
            results[-1] = job.result()
    return results


LAUNCHERS: dict[str, Callable[[Mapping[str, Any], Sequence[Task]], list[dict[str, Any]]]] = {
    "BasicLauncher": _run_here,
    "JoblibLauncher": _run_by_joblib,
    "LocalLauncher": partial(_run_by_submitit, "local"),
    "SlurmLauncher": partial(_run_by_submitit, "slurm"),
}
"""The name of a launcher's class, as its settings have it -> the function that runs tasks with it.
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
        str(job.settings["run"]) for job in jobs if erases_records(command, job.settings)
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


def _check_own_table(sweep: Path) -> None:
    """Raise ConfigError if a sweep's folder has a file sweep.csv that no sweep wrote.

    Args:
        sweep: the folder, which need not exist.
    """
    path = sweep / TABLE_FILE
    if not path.exists():
        return
    with path.open("rb") as file:
        is_table = file.readline().startswith(TABLE_HEADER)
    if not is_table:
        raise ConfigError(
            f"{path}: this file is not the table of a sweep, and agt does not overwrite it: give "
            "another name with sweep=NAME, or move the file"
        )


def _acquire_sweep_lock(sweep: Path, console: Console) -> Lock:
    """Acquire and return the lock of a sweep, which keeps other processes from running it.

    If the file system has no locks, the user is warned instead.

    Raises:
        ConfigError: another process holds the lock.
    """
    lock = Lock(sweep / LOCK_FILE)
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


def _wait_for_ending_jobs(jobs: Sequence[Job]) -> None:
    """Wait until no job's process is running any more, but at most DYING_SECONDS.

    Processes end soon after a launcher that stopped with an error.
    """
    end = time.monotonic() + MAX_DYING_SECONDS
    while any(is_locked(job.folder / LOCK_FILE) for job in jobs) and time.monotonic() < end:
        time.sleep(0.05)


# -- which jobs are done already, and where the others run
# -------------------------------------------------------------


def _with_folders(jobs: Sequence[Job], sweep: Path, note: Callable[[str], None]) -> list[Job]:
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


# -- the table of a sweep: sweep.csv, what is printed, and what --json lists
# --------------------------------------


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
        earlier: list[Run] = []
        for run in sorted(
            jobs_of(self.sweep), key=lambda run: (run.state == "done", run.start_time), reverse=True
        ):
            names = {run.environment.get("signature"), frozenset(run.overrides)}
            if run.command == self.command and run.overrides and not names & known_names:
                known_names |= names
                earlier.append(run)
        return [
            Job(
                -1,
                run.overrides,
                run.folder,
                differing_overrides=run.overrides,
                run=run,
                is_skipped=True,
            )
            for run in sorted(earlier, key=lambda run: run.started)
        ]

    def rows(self) -> pd.DataFrame:
        """Return the table, with one row for each job of the call and of earlier calls.

        Its columns are run (the name of the folder), job, state, before, the settings that differ,
        seconds, the metrics, and error.
        """
        jobs = [*self.jobs, *self.earlier()]
        differing = _differing_overrides([job.overrides for job in jobs])
        settings = [dict(map(_key_and_value, overrides)) for overrides in differing]
        keys = dict.fromkeys(key for row in settings for key in row)
        rows = []
        for job, typed in zip(jobs, settings, strict=True):
            row: dict[str, Any] = {
                "run": job.folder.name,
                "job": job.number if job.number >= 0 else "",
                "state": job.state,
                "before": job.is_skipped,
            }
            recorded = flatten_keys(job.run.config if job.run else {})
            for key in keys:
                value = recorded.get(key)
                # What was not typed is shown as it was recorded; null and {} are left empty.
                row[key] = typed.get(key) or ("" if value in (None, {}) else str(value))
            row["seconds"] = job.run.status.get("seconds") if job.run else None
            metrics = job.run.metrics if job.run else {}
            row |= {key: value for key, value in metrics.items() if isinstance(value, int | float)}
            row["error"] = job.error
            rows.append(row)
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
        rows["state"] = rows["state"] + rows["before"].map({True: ", before", False: ""})
        cells = []
        for row in rows.to_dict("records"):
            cells.append(
                [format_cell(row[name], 1 if name == "seconds" else 3) for name in columns]
            )
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
