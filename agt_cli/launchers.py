"""Run the jobs of a sweep: one after another in this process, or several at once by joblib.

A launcher is given tasks, which are jobs with what each needs to run in any process. Jobs that run
at once share this machine: each has a part of its threads and, if it uses a GPU, a GPU of its own.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from hydra.core.hydra_config import HydraConfig
from joblib import Parallel, cpu_count, delayed, effective_n_jobs
from joblib.externals.loky import get_reusable_executor
from omegaconf import DictConfig, OmegaConf

from agt.errors import ConfigError
from agt_cli import usage
from agt_cli.errors import error_fields
from agt_cli.jobs import run_job
from agt_cli.process import VISIBLE_GPUS, raising_terminated, recorded_command_line, visible_gpus
from agt_cli.report.console import Console
from agt_cli.sweep_jobs import Job

Result = dict[str, Any]
Task = Callable[[], Result]
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)


@dataclass(frozen=True)
class Launcher:
    """How the jobs of a sweep are run, as ``hydra/launcher`` says.

    Attributes:
        name: the option that was chosen.
        n_jobs: the number of processes in which joblib runs jobs at once, with its meaning of
            negative numbers; None: they run one after another in this process.
    """

    name: str
    n_jobs: int | None

    @classmethod
    def from_hydra(cls, hydra: DictConfig) -> "Launcher":
        """Return the launcher that a configuration chooses.

        Args:
            hydra: the node ``hydra`` of a composed configuration.

        Raises:
            ConfigError: the launcher is unknown, or set to run 0 jobs at once.
        """
        name = str(hydra.runtime.choices["hydra/launcher"])
        settings = OmegaConf.to_container(hydra.launcher, resolve=True)
        assert isinstance(settings, dict)  # the group's options are mappings
        kind = str(settings.get("_target_")).rpartition(".")[2]
        if kind == "BasicLauncher":
            return cls(name, None)
        if kind != "JoblibLauncher":
            raise ConfigError(
                f"hydra/launcher={name}: this launcher is not supported: give hydra/launcher=joblib"
            )
        if not settings["n_jobs"]:
            raise ConfigError(
                "hydra.launcher.n_jobs=0 would run no job: give the number of jobs to run at "
                "once, or -1 for as many as there are processors"
            )
        return cls(name, int(settings["n_jobs"]))


@dataclass(frozen=True)
class MachineShare:
    """How the jobs that run at the same time divide this machine.

    Attributes:
        jobs_at_once: their number.
        threads: the number of threads of each; None: the environment, or the job, decides it.
        gpus: a GPU for each of them, as in CUDA_VISIBLE_DEVICES; empty: all may use every GPU.
    """

    jobs_at_once: int = 1
    threads: int | None = None
    gpus: tuple[str, ...] = ()


def share_machine(launcher: Launcher, jobs: Sequence[Job], console: Console) -> MachineShare:
    """Return how jobs divide this machine.

    It depends on all jobs of the call, including those that are done, so that a job that is run
    again has the number of threads with which it was begun.

    Args:
        launcher: how the jobs are run.
        jobs: all jobs of the call.
        console: prints a note if there are fewer GPUs than jobs could run at once.
    """
    if launcher.n_jobs is None:
        return MachineShare()
    at_once = min(effective_n_jobs(launcher.n_jobs), max(len(jobs), 1))
    gpus: tuple[str, ...] = ()
    if any((job.settings.get("compute") or {}).get("device") == "cuda" for job in jobs):
        gpus = visible_gpus()
    if gpus and len(gpus) < at_once:
        at_once = len(gpus)
        names = ", ".join(gpus)
        console.note(
            f"number of jobs that run at the same time: {at_once}, because each job uses "
            f"a GPU of its own (GPUs: {names})"
        )
    return MachineShare(at_once, threads_per_job(at_once), gpus[:at_once])


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


@dataclass(frozen=True)
class JobTask:
    """A job, with what it needs to run in this process or another one.

    Attributes:
        command: the name of the command.
        line: the command line as typed, for the record.
        job: the job.
        console: prints how the job begins and ends.
        process: the number of the process that the user started.
        threads: the number of the job's threads in another process; None: the environment decides.
        gpu: the job's GPU in another process; empty: all visible GPUs may be used.
    """

    command: str
    line: tuple[str, ...]
    job: Job
    console: Console
    process: int
    threads: int | None = None
    gpu: str = ""

    def __call__(self) -> Result:
        """Run the job; none of its exceptions is raised.

        Returns:
            What --json prints about the job; if it failed, with its error.
        """
        in_other_process = os.getpid() != self.process
        label = self.job.label
        folder = self.job.folder
        self.console.note(f"-- {label}")
        try:
            # A process of a launcher does not handle signals yet.
            with recorded_command_line(self.line), raising_terminated():
                result = self._run(in_other_process)
        except Exception as error:
            config = usage.COMMANDS[self.command].config
            failed = error_fields(error, config, (), self.console.verbose)
            if in_other_process:
                self.console.note(f"{label}: failed, {folder}")
            else:
                self.console.error(f"{label}: {failed['error']}")
            return {"command": self.command, "run": str(folder), **failed}
        if in_other_process:  # jobs that run at the same time print one line each
            self.console.note(f"{label}: done, {folder}")
        return result

    def _run(self, in_other_process: bool) -> Result:
        """Run the job, and return what --json prints about it."""
        job = self.job
        console = self.console
        if in_other_process:
            set_resources(job.settings, self.threads, self.gpu)
            console = Console(json=True, quiet=True)
        HydraConfig.instance().set_config(job.config)
        return run_job(self.command, job.settings, job.folder, console, job.overrides, sweep=True)


def run_here(tasks: Sequence[Task]) -> list[Result]:
    """Run tasks one after another in this process, and return their results in the same order."""
    return [task() for task in tasks]


def run_at_once(tasks: Sequence[Task], share: MachineShare) -> list[Result]:
    """Run tasks in several processes by joblib, and return their results in the same order.

    With GPUs, task n runs on GPU n modulo their number, and no two tasks on one at the same time.

    Args:
        tasks: the tasks.
        share: how they divide this machine.
    """
    count = len(share.gpus)
    if not count:
        return _run_by_joblib(tasks, share.jobs_at_once)
    queues = [partial(run_here, tasks[gpu::count]) for gpu in range(count)]
    results = _run_by_joblib(queues, count)
    # CUDA reads only once which GPUs a process may use, so the next jobs need new processes.
    get_reusable_executor().shutdown(wait=True)
    return [results[index % count][index // count] for index in range(len(tasks))]


def _run_by_joblib(functions: Sequence[Callable[[], Any]], n_jobs: int) -> list[Any]:
    """Call functions in several processes, and return their results in the same order."""
    parallel = Parallel(n_jobs=n_jobs, backend="loky", max_nbytes=None)
    return list(parallel(delayed(function)() for function in functions))
