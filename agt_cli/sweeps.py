"""Run a sweep (``-m``): one job for each combination of settings, without those that are done.

``Sweep.compose`` reads the command line and composes every job before any runs. ``Sweep.run`` finds
out which jobs are done (agt_cli/sweep_jobs.py), lets the launcher run the others
(agt_cli/launchers.py), and writes the table of all (agt_cli/sweep_table.py).
"""

import json
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import cycle
from pathlib import Path
from typing import Any

from agt.errors import AgtError, ConfigError, counted
from agt.store.lock import Lock, is_locked
from agt_cli import launchers
from agt_cli.configuration import compose_with_hydra, sweep_combinations, to_plain_containers
from agt_cli.jobs import (
    erases_records,
    resolve_settings,
    signature_or_empty,
    signatures_on_earlier_states,
)
from agt_cli.launchers import JobTask, Launcher, MachineShare, share_machine
from agt_cli.report.console import Console
from agt_cli.report.finished import LOCK_FILE
from agt_cli.sweep_jobs import Job, list_differing_overrides, plan_job, with_folders, with_result
from agt_cli.sweep_table import TABLE_FILE, TABLE_HEADER, JobTable

STANDARD_INPUT = "-"  # the value of ids and inputs that means standard input
MAX_DYING_SECONDS = 5.0  # how long processes may take to end after their launcher has ended


@dataclass
class Sweep:
    """A command with a job for every combination of the values in a command line.

    Attributes:
        command: the name of the command.
        line: the command line as typed, for the records.
        console: prints progress.
        folder: the folder of the sweep.
        launcher: how the jobs are run.
        jobs: the jobs of this call.
        table: the jobs after they have ended, or the sweep was interrupted; None: not yet.
    """

    command: str
    line: tuple[str, ...]
    console: Console
    folder: Path
    launcher: Launcher
    jobs: Sequence[Job]
    table: JobTable | None = field(default=None, init=False)

    @classmethod
    def compose(
        cls,
        command: str,
        line: Sequence[str],
        overrides: Sequence[str],
        config_name: str,
        console: Console,
    ) -> "Sweep":
        """Return a sweep, all jobs of which are composed, so that no wrong override is found later.

        Args:
            command: the name of the command.
            line: the command line as typed, for the records.
            overrides: the settings of the command line.
            config_name: the command's primary configuration.
            console: prints which jobs are left out, and later progress.

        Raises:
            ConfigError: a setting does not fit, or the launcher is unknown.
            HydraException: an override is wrong.
        """
        lines = sweep_combinations(overrides)
        hydra = compose_with_hydra(config_name, [*lines[0], "hydra.job.num=0"]).hydra
        launcher = Launcher.from_hydra(hydra)
        folder = Path(os.path.relpath(hydra.sweep.dir))
        jobs = [
            _compose_job(command, config_name, number, job_line, folder)
            for number, job_line in enumerate(lines)
        ]
        _check_inputs(command, jobs)
        differing = list_differing_overrides([job.overrides for job in jobs])
        labelled = [
            replace(job, differing_overrides=overrides)
            for job, overrides in zip(jobs, differing, strict=True)
        ]
        distinct = with_folders(labelled, folder, console.note)
        return cls(command, tuple(line), console, folder, launcher, distinct)

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
            share = share_machine(self.launcher, self.jobs, self.console)
            jobs = [plan_job(job, self.command, self.console.note) for job in self.jobs]
            self._run_and_report(jobs, share)
        finally:
            lock.release()

    def _run_and_report(self, jobs: Sequence[Job], share: MachineShare) -> None:
        """Run the jobs that are not done, write the table of all, and print errors.

        The table is written even if running is interrupted.
        """
        results: dict[Path, Mapping[str, Any]] = {}
        try:
            self._run_until_started([job for job in jobs if not job.is_skipped], share, results)
        finally:
            ended = [
                job if job.is_skipped else with_result(job, results.get(job.folder, {}))
                for job in jobs
            ]
            self.table = JobTable(self.folder, self.command, ended)
            self.table.write()
        in_other_processes = self.launcher.n_jobs is not None
        for job in ended:
            # A job that failed in this process has already printed its error (``JobTask``).
            if job.error and (in_other_processes or job.state != "failed"):
                self.console.error(f"{job.label}: {job.error}")

    def _run_until_started(
        self, jobs: Sequence[Job], share: MachineShare, results: dict[Path, Mapping[str, Any]]
    ) -> None:
        """Launch jobs; launch again those that a launcher did not start before it broke down.

        Args:
            jobs: the jobs to run.
            share: how the jobs divide this machine.
            results: is filled with what the jobs return: folder -> result.

        Raises:
            AgtError: the launcher stopped without having started any job.
        """
        remaining = jobs
        while remaining:
            try:
                returned = self._launch(remaining, share)
            except Exception as error:
                _wait_for_ending_jobs(remaining)
                not_started = [
                    job for job in remaining if not (job.folder / "status.json").exists()
                ]
                name = self.launcher.name
                first_line = f"{type(error).__name__}: {str(error).partition('.')[0].strip()}"
                if len(not_started) == len(remaining):
                    raise AgtError(f"hydra/launcher={name}: {first_line}") from error
                if not_started:
                    number = counted(len(not_started), "job")
                    self.console.note(
                        f"the launcher {name} stopped with an error ({first_line}), "
                        f"so agt starts it again; jobs that had not been started yet: {number}"
                    )
                remaining = not_started
            else:
                results.update(zip((job.folder for job in remaining), returned, strict=True))
                return

    def _launch(self, jobs: Sequence[Job], share: MachineShare) -> list[dict[str, Any]]:
        """Let the launcher run jobs, and return what they return, in the same order."""
        tasks = [
            JobTask(self.command, self.line, job, self.console, os.getpid(), share.threads, gpu)
            for job, gpu in zip(jobs, cycle(share.gpus or ("",)), strict=False)
        ]
        if self.launcher.n_jobs is None:
            return launchers.run_here(tasks)
        number = counted(len(jobs), "job")
        self.console.note(f"{number} started with hydra/launcher={self.launcher.name}")
        return launchers.run_at_once(tasks, share)


def _compose_job(
    command: str, config_name: str, number: int, line: Sequence[str], sweep: Path
) -> Job:
    """Compose one job. Its folder is still that of the sweep.

    Args:
        command: the name of the command.
        config_name: the command's primary configuration.
        number: the number of the job.
        line: its overrides.
        sweep: the folder of the sweep.
    """
    config = compose_with_hydra(config_name, [*line, f"hydra.job.num={number}"])
    overrides = tuple(map(str, config.hydra.overrides.task))
    settings = resolve_settings(
        command, to_plain_containers(config), overrides, Console(quiet=True)
    )
    signature = signature_or_empty(command, settings)
    finished_as = frozenset({signature} - {""})
    if erases_records(command, settings) and signature:
        finished_as = signatures_on_earlier_states(command, settings)
    compute = json.dumps(settings.get("compute"), sort_keys=True)
    return Job(
        number=number,
        overrides=overrides,
        folder=sweep,
        config=config,
        settings=settings,
        signature=signature,
        finished_as=finished_as,
        compute=blake2b(compute.encode(), digest_size=4).hexdigest(),
    )


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
    """Wait until no job's process is running any more, but at most ``MAX_DYING_SECONDS``.

    Processes end soon after a launcher that stopped with an error.
    """
    end = time.monotonic() + MAX_DYING_SECONDS
    while any(is_locked(job.folder / LOCK_FILE) for job in jobs) and time.monotonic() < end:
        time.sleep(0.05)
