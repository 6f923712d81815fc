"""What ``-m`` does, behind Hydra's own parsing of values: a sweep that goes on where an earlier call of it stopped.

Hydra's launchers still start the jobs; whatever they say or fail to say, jobs count by their records (runs/sweep.py).
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from joblib import cpu_count, effective_n_jobs
from omegaconf import DictConfig, open_dict

from agt.errors import AgtError, ConfigError
from agt_cli.jobs import Task, refresh_index, settled, signed
from agt_cli.report.console import Console
from agt_cli.report.unfinished import is_alive, lock_of
from agt_cli.runs.signature import erasing, on_earlier_states
from agt_cli.runs.sweep import Job, differing, planned
from agt_cli.runs.sweep_table import Table
from agt_cli.shares import Share, divided, visible
from agt_cli.usage import quoted

BASIC, JOBLIB, LOCAL, SLURM = "BasicLauncher", "JoblibLauncher", "LocalLauncher", "SlurmLauncher"  # classes of launchers
TARGET = "hydra_plugins.agt.AgtSweeper"  # in conf/hydra/sweeper/agt.yaml
STANDARD_INPUT = "-"  # what ids and inputs call it
DYING = 5.0  # seconds that processes have to end after their launcher has


def register() -> None:
    """Let Hydra take the sweeper below: it takes those of its own namespace alone."""
    Plugins.instance().class_name_to_class[TARGET] = AgtSweeper


class AgtSweeper(Sweeper):
    """Every combination of the values, those that are done left out.

    Args:
        max_batch_size: jobs that a launcher is given at once; None: all, and submitit_local, which starts all that it is
            given, as many as there are processors.
        params: key -> values, swept over beside the command line's.
        devices: GPUs for jobs with compute.device=cuda, each of one of its own; None: those that this process sees.
    """

    def __init__(
        self,
        max_batch_size: int | None,
        params: Mapping[str, str] | None,
        devices: Sequence[int | str] | None = None,
    ) -> None:
        self.max_batch_size, self.params, self.devices = max_batch_size, params or {}, devices

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """As Hydra asks of its plugins."""
        assert isinstance(task_function, Task)
        self.context, self.task, self.master = hydra_context, task_function, config

    def sweep(self, arguments: list[str]) -> None:
        """Run what is not done, and write the table.

        Raises:
            ConfigError: an override does not fit, or another process runs this sweep.
            AgtError: the launcher started nothing.
        """
        sweep = Path(os.path.relpath(self.master.hydra.sweep.dir))
        jobs = self._jobs([*(f"{key}={value}" for key, value in self.params.items()), *arguments], sweep)
        sweep.mkdir(parents=True, exist_ok=True)
        with _alone(sweep, self.task.console):
            self._share(jobs)
            jobs = planned(self.task.command, sweep, jobs, self.task.console.note)
            results: dict[str, Mapping[str, Any]] = {}
            try:
                self._run([job for job in jobs if not job.before], results)
            finally:
                ended = [job if job.before else job.ended(results.get(str(job.folder), {})) for job in jobs]
                table = self.task.outcome.table = Table(sweep, self.task.command, ended)
                table.write()
                refresh_index(sweep, self.master.get("output_dir"), self.task.console)
            for job in ended:
                if job.error and (self._elsewhere or job.state != "failed"):  # in this process it has said so itself
                    self.task.console.error(f"{job.label}: {job.error}")

    def _jobs(self, arguments: list[str], sweep: Path) -> list[Job]:
        """Every job of the call.

        All are composed before the first is run, so that an override that does not fit stops them all.
        """
        from hydra._internal.core_plugins.basic_sweeper import BasicSweeper  # not before Hydra has loaded its plugins

        parser = OverridesParser.create(config_loader=self.context.config_loader)
        (combinations,) = BasicSweeper.split_arguments(parser.parse_overrides(arguments), None)
        jobs = [self._job(number, tuple(line), sweep) for number, line in enumerate(combinations)]
        _check_apart(self.task.command, jobs)
        _check_lines(jobs)
        words = differing([job.overrides for job in jobs])
        return [replace(job, differs=own) for job, own in zip(jobs, words, strict=True)]

    def _job(self, number: int, line: tuple[str, ...], sweep: Path) -> Job:
        config = self.context.config_loader.load_sweep_config(self.master, list(line))
        with open_dict(config):
            config.hydra.job.num = number
            place, overrides = sweep / str(config.hydra.sweep.subdir), tuple(map(str, config.hydra.overrides.task))
            del config["hydra"]
        settings = settled(self.task.command, config, overrides, Console(quiet=True))
        command = self.task.command
        name = signed(command, settings)
        names = frozenset({name} - {""})
        if erasing(command, settings) and name:
            names = on_earlier_states(command, settings)
        return Job(number, overrides, line, place, name, settings=settings, finished_as=names)

    def _share(self, jobs: Sequence[Job]) -> None:
        """Divide this machine among as many jobs as a launcher runs on it at once; a scheduler divides its own.

        By all jobs of the call, done or not, so that those that go on have the threads that they began with.
        """
        launcher = self.master.hydra.launcher
        if self._kind == SLURM:
            self.task = replace(self.task, share=Share(launcher.cpus_per_task))
        if self._kind not in (JOBLIB, LOCAL):
            return
        if self._kind == JOBLIB and not launcher.n_jobs:
            raise ConfigError("hydra.launcher.n_jobs=0: give how many jobs run at once, or -1: as many as processors")
        started = effective_n_jobs(launcher.n_jobs) if self._kind == JOBLIB else self.max_batch_size or cpu_count()
        most = min(started, self.max_batch_size or started, max(len(jobs), 1))
        devices = self._devices() if any(_on_gpu(job) for job in jobs) else ()
        if devices and len(devices) < most:
            self.task.console.note(f"jobs at once: {len(devices)}, one on each GPU: {', '.join(devices)}")
            most = len(devices)
        if self._kind == JOBLIB:
            launcher.n_jobs = most
        else:
            self.max_batch_size = most
        self.task = replace(self.task, share=divided(most, devices))

    def _devices(self) -> tuple[str, ...]:
        return visible() if self.devices is None else tuple(map(str, self.devices))

    def _run(self, jobs: Sequence[Job], results: dict[str, Mapping[str, Any]]) -> None:
        """Launch jobs, and again those that a launcher that broke down had not started yet."""
        size = self.max_batch_size or len(jobs)
        for start in range(0, len(jobs), max(size, 1)):
            waiting: Sequence[Job] = jobs[start : start + size]
            while waiting:
                trouble = self._launch(waiting, results)
                left = [job for job in waiting if not job.started]
                if trouble is None or not left:
                    break
                if len(left) == len(waiting):
                    raise AgtError(f"hydra/launcher={self._launcher_name}: {_first_line(trouble)}") from trouble
                broken = f"{self._launcher_name} broke down ({_first_line(trouble)})"
                self.task.console.note(f"{broken}, and is started again for what it left: {len(left)} jobs")
                waiting = left

    def _launch(self, jobs: Sequence[Job], results: dict[str, Mapping[str, Any]]) -> Exception | None:
        """Have the launcher run jobs, and note what they return; what it raises is returned, once they all have ended."""
        task = replace(self.task, labels={str(job.folder): job.label for job in jobs})
        launcher = Plugins.instance().instantiate_launcher(self.context, task, self.master)
        if self._elsewhere:
            count = "1 job" if len(jobs) == 1 else f"{len(jobs)} jobs"
            self.task.console.note(f"{count}, started by {self._launcher_name}")
        batch = [[*job.line, *_place(job.folder)] for job in jobs]
        try:
            with _every_job_awaited() if self._kind in (LOCAL, SLURM) else nullcontext():
                returned = launcher.launch(batch, initial_job_idx=jobs[0].number)
        except Exception as error:
            _wait(jobs)
            return error
        for value in (getattr(job, "_return_value", None) for job in returned or ()):
            if isinstance(value, Mapping):
                results[str(value["run"])] = value
        return None

    @property
    def _elsewhere(self) -> bool:
        """Whether jobs run in other processes."""
        return self._kind != BASIC

    @property
    def _kind(self) -> str:
        """The launcher's class: whatever name a user's own settings of it have."""
        return str(self.master.hydra.launcher["_target_"]).rpartition(".")[2]

    @property
    def _launcher_name(self) -> str:
        return str(self.master.hydra.runtime.choices["hydra/launcher"])


def _on_gpu(job: Job) -> bool:
    return (job.settings.get("compute") or {}).get("device") == "cuda"


def _check_apart(command: str, jobs: Sequence[Job]) -> None:
    """Raise ConfigError where two jobs would change one run."""
    runs = [str(job.settings["run"]) for job in jobs if erasing(command, job.settings)]
    again = next((run for run in runs if runs.count(run) > 1), None)
    if again is not None:
        raise ConfigError(
            f"run={again}: several jobs would erase from this run, and each changes it for the next: give one line after "
            "the other; to compare methods, rehearse=true carries each out on a copy"
        )


def _check_lines(jobs: Sequence[Job]) -> None:
    """Raise ConfigError where a job would read standard input: a second call could not tell that it asks something else."""
    keys = ("ids", "inputs")
    key = next((key for key in keys for job in jobs if str(job.settings.get(key)) == STANDARD_INPUT), None)
    if key is not None:
        raise ConfigError(
            f"{key}=-: jobs of a sweep are recognised by what they read, and standard input is gone once it is read: give "
            f"a file, {key}=FILE, or leave -m out"
        )


@contextmanager
def _alone(sweep: Path, console: Console) -> Iterator[None]:
    """Keep other processes from running the same sweep, as long as this one lives."""
    lock = lock_of(sweep)
    if not lock.take():
        raise ConfigError(f"{sweep}: another process is running this sweep: wait for it, or give sweep=NAME another name")
    if not lock.works:
        console.note(f"note: the file system of {sweep} keeps no locks: do not run this sweep twice at once")
    try:
        yield
    finally:
        lock.release()


def _place(folder: Path) -> tuple[str, str]:
    return f"hydra.sweep.dir={quoted(str(folder.parent))}", f"hydra.sweep.subdir={quoted(folder.name)}"


@contextmanager
def _every_job_awaited() -> Iterator[None]:
    """submitit's launchers give up at the first job that ended badly, and leave the others at work: wait for each.

    A process of this machine that has ended has also written all that it will; submitit would wait for more.
    """
    from submitit.core.core import Job as Submitted
    from submitit.core.utils import UncompletedJobError
    from submitit.local.local import LocalJob

    results = Submitted.results

    def awaited(job: Any) -> Any:
        with suppress(UncompletedJobError):  # killed, or broke down: the record says so
            return results(job)
        return [None]

    with patch.object(Submitted, "results", awaited), patch.object(LocalJob, "_results_timeout_s", 0):
        yield


def _wait(jobs: Sequence[Job]) -> None:
    """For processes that end because their launcher did."""
    end = time.monotonic() + DYING
    while any(is_alive(job.folder) for job in jobs) and time.monotonic() < end:
        time.sleep(0.05)


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).partition('.')[0].strip()}"
