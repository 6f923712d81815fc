"""One job: a configuration goes in, its record comes out."""

import gc
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agt.errors import AgtError, ConfigError
from agt_cli import usage

if TYPE_CHECKING:
    from agt_cli.report.console import Console


@contextmanager
def command_line(arguments: Sequence[str]) -> Iterator[None]:
    """Records keep sys.argv: the command as the user knows it, whoever started this process."""
    saved, sys.argv = sys.argv, list(arguments)
    try:
        yield
    finally:
        sys.argv = saved


def resolve_settings(
    command: str, settings: dict[str, Any], overrides: Sequence[str], console: "Console"
) -> dict[str, Any]:
    """A job's configuration as its record keeps it.

    Args:
        settings: composed, as plain containers.
        overrides: the command line's own.

    Raises:
        ConfigError: a value is empty, or run=latest finds none.
    """
    from agt_cli.choices import bind_declaration, with_members
    from agt_cli.report.finished import check_current, home_of, manifest_digest, resolve_latest

    settings = resolve_latest(settings, console.note)
    if settings.get("run") and "output_dir" in settings:
        folder = Path(str(settings["run"]))
        check_current(manifest_digest(folder), folder, {Path(str(settings["output_dir"])).resolve(), *home_of(folder)})
    if command in ("train", "tune"):
        settings = bind_declaration(with_members(settings), overrides)
    for key, value in settings.items():
        if value == "":
            raise ConfigError(f"{key}= is empty: give a value, or leave it out")
    return settings


def run_job(
    command: str,
    settings: dict[str, Any],
    folder: Path | None,
    console: "Console",
    overrides: Sequence[str],
    sweep: bool = False,
) -> dict[str, Any]:
    """Validate everything, then run the command in its record; returns the object of --json.

    A single run that never started leaves no folder; a sweep's job always leaves a record, which says why it failed.

    Args:
        settings: composed, as plain containers.
        folder: of the record; None: the command keeps none, and writes nothing here.
        overrides: the command line's own.
        sweep: whether it is one job of several.
    """
    from agt.settings import current_module  # the papers' part lies elsewhere in a wheel

    task = import_module(current_module(usage.COMMANDS[command].module))
    if not gc.isenabled():  # a process that was started for this command: what it has loaded stays
        gc.freeze()
        gc.enable()
    if folder is None:
        return {"command": command, **task.run(task.configure(settings), console)}

    from agt_cli.choices import ineffective_settings
    from agt_cli.process import current_team
    from agt_cli.report.record import RunRecord
    from agt_cli.runs.resume import unfinished

    with ExitStack() as stack:
        stack.callback(refresh_index, folder, settings.get("output_dir"), console)
        settings = resolve_settings(command, settings, overrides, console)
        if sweep and (folder / "status.json").exists():  # queued again by a cluster: what it drew must not be forgotten
            raise ConfigError(f"{folder}: a job that was stopped in its middle; the same line runs it anew, beside it")
        again = unfinished(settings, overrides, sweep) if command == "train" else None
        if again:
            folder, settings = again.folder, again.config
            stack.callback(refresh_index, folder, settings.get("output_dir"), console)
        record = RunRecord(folder, command, settings, again)
        if sweep:
            stack.enter_context(record)
            record.environment(overrides=list(overrides), signature=signature_or_empty(command, settings))
        configured = task.configure(settings)
        if not sweep:
            stack.enter_context(record)
        if shared := current_team.get():
            record.environment(processes=shared.described)
        for line in ineffective_settings(settings, overrides) if command == "train" else ():
            console.note(line)
        result = task.run(configured, record, console)
    index = Path(str(settings.get("output_dir"))) / "index.html"
    console.note(f"to look at: {folder / 'report.html'}{f'; all runs: {index}' if index.exists() else ''}")
    return {"command": command, "run": str(folder), **result}


def signature_or_empty(command: str, settings: Mapping[str, Any]) -> str:
    """A job's signature; empty where there is none to tell: the job itself then says what is wrong."""
    from agt_cli.signature import signature

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
    from agt_cli.report.listed import refresh

    outputs = Path(str(outputs))
    if folder.resolve().is_relative_to(outputs.resolve()) and folder.exists():
        try:
            refresh(outputs)
        except Exception as error:
            console.note(f"note: the index of all runs could not be written ({error})")
