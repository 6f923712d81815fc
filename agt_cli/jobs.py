"""One job: what Hydra runs, in this process or in a launcher's.

A job's configuration goes in, its record comes out. A job of a sweep never raises: its record says how it ended, and what
it returns says the same to whoever still listens.
"""

import os
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agt.errors import AgtError, CheckError, ConfigError
from agt_cli import latest, signals, usage
from agt_cli.mistakes import explain
from agt_cli.shares import Share

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from agt_cli.report.console import Console
    from agt_cli.runs.sweep_table import Table


@dataclass
class Outcome:
    """What became of a command line in this process.

    Attributes:
        result: the object of --json of a single run.
        error: what a single run raised, kept until Hydra has returned, so that Hydra adds no line of its own.
        table: a sweep's.
    """

    result: dict[str, Any] = field(default_factory=dict)
    error: Exception | None = None
    table: "Table | None" = None


@dataclass(frozen=True)
class Task:
    """What Hydra calls with a job's configuration; launchers take a copy of it into other processes.

    Attributes:
        command: its name.
        line: of the command, as typed.
        console: the user's.
        outcome: filled in the process that the user started.
        labels: of a sweep: the folder of each job -> what messages call it.
        process: the one that the user started.
        share: of the machine, for a job in another process.
    """

    command: str
    line: tuple[str, ...]
    console: "Console"
    outcome: Outcome = field(default_factory=Outcome)
    labels: Mapping[str, str] = field(default_factory=dict)
    process: int = field(default_factory=os.getpid)
    share: Share = field(default_factory=Share)

    def __call__(self, config: "DictConfig") -> dict[str, Any]:
        """Run one job; returns what --json shows of it."""
        from hydra.core.hydra_config import HydraConfig
        from hydra.types import RunMode
        from omegaconf import OmegaConf

        hydra = HydraConfig.get()
        folder = Path(os.path.relpath(hydra.runtime.output_dir))
        overrides = [str(word) for word in OmegaConf.to_container(hydra.overrides.task, resolve=False) or ()]
        if hydra.mode == RunMode.MULTIRUN or self.labels:
            return self._of_sweep(config, folder, overrides)
        try:
            with command_line(self.line):
                self.outcome.result = run(self.command, config, folder, self.console, overrides, sweep=False)
        except Exception as error:
            self.outcome.error = error
        return self.outcome.result

    def _of_sweep(self, config: "DictConfig", folder: Path, overrides: Sequence[str]) -> dict[str, Any]:
        label, elsewhere = self.labels[str(folder)], os.getpid() != self.process
        self.console.note(f"-- {label}")
        try:
            with command_line(self.line), signals.heard():  # nobody else listens in a launcher's process
                if elsewhere:
                    self.share.take(config, self.console.note)
                console = type(self.console)(json=True, quiet=True) if elsewhere else self.console
                result = run(self.command, config, folder, console, overrides, sweep=True)
        except signals.Terminated as error:
            raise error.__cause__ or error from None  # as the launcher raised it, who has the job queued again
        except Exception as error:
            known = explain(error, usage.COMMANDS[self.command].config, ())
            if known is None and self.console.verbose:
                traceback.print_exception(error)
            if elsewhere:
                self.console.note(f"{label}: failed, {folder}")
            else:
                self.console.error(f"{label}: {words(known, error)}")
            code = known.exit_code if known else AgtError.exit_code
            told = known.result if isinstance(known, CheckError) else {}
            return {"command": self.command, "run": str(folder), **told, "error": words(known, error), "exit_code": code}
        if elsewhere:  # of many at once, one line each; the table says the rest
            self.console.note(f"{label}: done, {folder}")
        return result


@contextmanager
def command_line(arguments: Sequence[str]) -> Iterator[None]:
    """Hydra and records read sys.argv."""
    saved, sys.argv = sys.argv, list(arguments)
    try:
        yield
    finally:
        sys.argv = saved


def words(known: AgtError | None, error: Exception) -> str:
    """What the user reads of an error."""
    if known:
        return str(known)
    return f"{type(error).__name__}: {error} (this is a bug in agt; run again with -v for the traceback)"


def settled(command: str, config: "DictConfig", overrides: Sequence[str], console: "Console") -> dict[str, Any]:
    """A job's configuration as its record keeps it: resolved, as plain containers.

    Raises:
        ConfigError: a value is missing or empty, or run=latest finds none.
    """
    from agt_cli.runs.choices import typed
    from agt_cli.runs.compose import plain

    settings = latest.resolved(plain(config), console.note)
    settings = typed(settings, overrides) if command in ("train", "tune") else settings
    for key, value in settings.items():
        if value == "":
            raise ConfigError(f"{key}= is empty: give a value, or leave it out")
    return settings


def run(
    command: str, config: "DictConfig", folder: Path, console: "Console", overrides: Sequence[str], sweep: bool
) -> dict[str, Any]:
    """Validate everything, then run the task in its record.

    A single run that never started leaves no folder; a sweep's job always leaves a record, which says why it failed. A
    command that keeps no record writes nothing here.
    """
    from agt_cli.runs.compose import plain

    task, result = import_module(usage.COMMANDS[command].module), dict[str, Any]()
    if not usage.COMMANDS[command].recorded:
        result = task.run(task.configure(plain(config)), console)
        return {"command": command, **result}

    from agt_cli.report.record import RunRecord
    from agt_cli.report.unfinished import Unfinished
    from agt_cli.runs.resume import unfinished
    from agt_cli.runs.team import team
    from agt_cli.runs.unread import unread

    with ExitStack() as stack:
        stack.callback(refresh_index, folder, config.get("output_dir"), console)
        try:
            settings = settled(command, config, overrides, console)
            begun = sweep and (folder / "status.json").exists()  # a killed job that this one is to go on with
            if begun and command != "train":  # queued again by a cluster: what it drew before must not be forgotten
                raise ConfigError(f"{folder}: a job that was stopped in its middle; the same line runs it anew, beside it")
            again = Unfinished.open(folder, command) if begun else None
            if command == "train" and not begun:
                again = unfinished(settings, overrides, sweep)
            if again:
                with suppress(OSError):
                    folder.rmdir()  # Hydra's new one
                folder, settings = again.folder, again.config
                stack.callback(refresh_index, folder, settings.get("output_dir"), console)
            record = RunRecord(folder, command, settings, again)
            if sweep:
                stack.enter_context(record)
                record.environment(overrides=list(overrides), signature=signed(command, settings))
            configured = task.configure(settings)
            if not sweep:
                stack.enter_context(record)
            if shared := team():
                record.environment(processes=shared.described)
            for line in unread(settings, overrides) if command == "train" else ():
                console.note(line)
        except Exception:
            with suppress(OSError):
                folder.rmdir()  # only if Hydra made it and nothing is in it
            raise
        result = task.run(configured, record, console)
    index = Path(str(settings.get("output_dir"))) / "index.html"
    console.note(f"to look at: {folder / 'report.html'}{f'; all runs: {index}' if index.exists() else ''}")
    return {"command": command, "run": str(folder), **result}


def signed(command: str, settings: Mapping[str, Any]) -> str:
    """A job's signature; empty where there is none to tell: the job itself then says what is wrong."""
    from agt_cli.runs.signature import signature

    try:
        return signature(command, settings)
    except (AgtError, OSError):
        return ""


def refresh_index(folder: Path, outputs: object, console: "Console") -> None:
    """List what just ended, however it ended; whatever goes wrong with that is no failure of the command.

    Args:
        folder: of the run, or of the sweep.
        outputs: where all runs are.
    """
    from agt_cli.report.index import refresh

    outputs = Path(str(outputs))
    if folder.resolve().is_relative_to(outputs.resolve()) and folder.exists():
        try:
            refresh(outputs)
        except Exception as error:
            console.note(f"note: the index of all runs could not be written ({error})")
