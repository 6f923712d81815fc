"""The dispatcher: picks the command, then hands the rest of the command line to Hydra's own entry point.

So overrides, ``-m`` sweeps, launchers, ``--cfg job`` and completion work as in any Hydra application. What Hydra or a
command raises comes back here and becomes a message and an exit code. Help imports neither Hydra nor torch.
"""

import logging
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import agt_cli
from agt.errors import AgtError, CheckError, ConfigError, nearest
from agt_cli import latest, signals, usage
from agt_cli.streams import mute, muted

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from agt_cli.report.console import Console

INTERRUPTED = 130
HELP = ("help", "-h", "--help")
VERBOSITY = {"-q": "quiet", "--quiet": "quiet", "-v": "verbose", "--verbose": "verbose", "--json": "json"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line.

    Args:
        arguments: without the program's name; None: the process's own.

    Returns:
        The exit code (errors.py); 1 also where whoever read the output stopped reading.
    """
    try:
        with signals.heard():
            code = _main(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
    except BrokenPipeError:
        mute("stdout")
        code = AgtError.exit_code
    except KeyboardInterrupt as error:
        return _complain(str(error) or "interrupted", getattr(error, "exit_code", INTERRUPTED))
    except ConfigError as error:
        return _complain(str(error), error.exit_code)
    except OSError as error:  # a full disk behind standard output
        mute("stdout")
        return _complain(f"standard output: {error.strerror or error}", AgtError.exit_code)
    return code or AgtError.exit_code * muted()


def _complain(text: str, code: int) -> int:
    with suppress(OSError):
        print(f"agt: error: {text}", file=sys.stderr, flush=True)
    return code


def _main(arguments: list[str]) -> int:
    if "completion" in arguments[: 1 + (arguments[:1] == ["help"])]:
        from agt_cli import completion

        return completion.main([word for word in arguments if word != "completion"])
    if {"--shell-completion", "-sc"} & set(arguments):
        from agt_cli import completion

        return completion.as_hydra_would(arguments)
    flags = {VERBOSITY[word]: True for word in arguments if word in VERBOSITY}
    words = [word for word in arguments if word not in VERBOSITY]
    if "--version" in words:
        print(f"agt {agt_cli.__version__}")
        return 0
    if not words or set(HELP[1:]) & set(words) or "help" in words[:2]:
        return _help([word for word in words if word not in HELP], 0 if words else ConfigError.exit_code)
    from agt_cli.report.console import Console

    return _dispatch(words[0], words[1:], Console(**flags))


def _help(about: Sequence[str], code: int) -> int:
    """The help of the command that is named first, if one is."""
    name = about[0] if about and not about[0].startswith("-") else None
    if name is not None:
        _check_command(name, about[1:])
    print(usage.overview() if name is None else usage.command_help(name))
    return code


def _check_command(name: str, rest: Sequence[str]) -> None:
    """Raise ConfigError unless there is such a command."""
    if name in usage.COMMANDS:
        return
    later = next((word for word in rest if word in usage.COMMANDS), None)
    if later is not None and ("=" in name or name.startswith("-")):
        line = [word for word in (name, *rest) if word != later]
        raise ConfigError(f"the command comes first: agt {shlex.join([later, *line])}")
    owner = next((owner for owner, command in usage.COMMANDS.items() for word in command.words if name in word.choices), "")
    if owner:
        raise ConfigError(f"unknown command '{name}'; it is a word of agt {owner}: agt {shlex.join([owner, name, *rest])}")
    raise ConfigError(f"unknown command '{name}'{nearest(name, usage.COMMANDS)}; agt --help says more")


def _dispatch(name: str, rest: list[str], console: "Console") -> int:
    jobs = Jobs()
    try:
        _check_command(name, rest)
        rest = usage.settings_from_words(name, rest)
        _check_flags(rest)
        _check_places(rest)
        _run_hydra(name, rest, console, jobs)
        if jobs.error:
            raise jobs.error
    except KeyboardInterrupt as error:
        return _fail(console, str(error) or "interrupted", getattr(error, "exit_code", INTERRUPTED))
    except BrokenPipeError:
        raise
    except Exception as error:
        return _explain(console, error, name, rest, jobs)
    jobs.emit(name, console)
    return 0


def _explain(console: "Console", error: Exception, name: str, rest: list[str], jobs: "Jobs") -> int:
    known = _known(error, name, rest)
    if known is None and console.verbose:
        import traceback

        traceback.print_exception(error)
    code = known.exit_code if known else AgtError.exit_code
    if jobs.failed:
        return _fail(console, f"{jobs.failed} of {len(jobs.done)} jobs failed", code, {"jobs": jobs.done})
    return _fail(console, _words(known, error), code, known.result if isinstance(known, CheckError) else None)


def _known(error: Exception, name: str, rest: Sequence[str]) -> AgtError | None:
    from agt_cli.mistakes import explain

    config = usage.COMMANDS[name].config if name in usage.COMMANDS else ""
    return explain(error, config, [word for word in rest if not word.startswith("-")])


def _words(known: AgtError | None, error: Exception) -> str:
    if known:
        return str(known)
    return f"{type(error).__name__}: {error} (this is a bug in agt; run again with -v for the traceback)"


def _fail(console: "Console", text: str, code: int, more: dict[str, Any] | None = None) -> int:
    console.error(text)
    console.emit({"error": text, "exit_code": code, **(more or {})})
    return code


def _check_flags(rest: Sequence[str]) -> None:
    """Refuse an option that Hydra does not know, before it prints a usage text that is not ours."""
    from hydra._internal.utils import get_args_parser

    parser = get_args_parser()

    def refuse(message: str) -> NoReturn:
        unknown = next((word for word in message.split() if word.startswith("-")), "")
        known = [flag for flag in usage.OPTIONS if flag.startswith("--")]
        raise ConfigError(f"{message}{nearest(unknown, known) if 'unrecognized' in message else ''}")

    parser.error = refuse  # type: ignore[method-assign]
    parser.parse_args(list(rest))


def _check_places(rest: Sequence[str]) -> None:
    """Refuse to write nowhere: Hydra would make its folders in the root of the file system where output_dir is empty."""
    for word in rest:
        key, equals, value = word.lstrip("+").partition("=")
        if equals and key in ("output_dir", "hydra.run.dir", "hydra.sweep.dir") and value.strip("'\" ") in ("", "null"):
            raise ConfigError(f"{word}: no folder is named: give one (. is the present one), or leave it out: outputs")


def _run_hydra(name: str, rest: list[str], console: "Console", jobs: "Jobs") -> None:
    import hydra

    from agt_cli import search_path

    search_path.register()
    command = usage.COMMANDS[name]

    def job(config: "DictConfig") -> Any:
        return _job(name, config, console, jobs)

    logging.raiseExceptions = False  # a log line that nobody reads is no error
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then raises what happened instead of printing it and exiting
    entry = hydra.main(version_base="1.3", config_path=str(usage.config_dir()), config_name=command.config)(job)
    with _command_line([f"agt {name}", *rest]):
        entry()


@contextmanager
def _command_line(arguments: list[str]) -> Iterator[None]:
    """Hydra reads sys.argv."""
    saved, sys.argv = sys.argv, arguments
    try:
        yield
    finally:
        sys.argv = saved


@dataclass
class Jobs:
    """What happened in this process's jobs: one, or those of a sweep.

    Jobs that a launcher runs in other processes leave their records, and are not listed here.
    """

    sweep: bool = False
    done: list[dict[str, Any]] = field(default_factory=list)
    error: Exception | None = None

    @property
    def failed(self) -> int:
        """How many jobs ended with an error."""
        return sum("error" in job for job in self.done)

    def emit(self, command: str, console: "Console") -> None:
        """The object of --json: the job's own, or the list of a sweep's."""
        if self.sweep:
            console.emit({"command": command, "jobs": self.done, "exit_code": 0})
        elif self.done:
            console.emit({**self.done[0], "exit_code": 0})


def _job(name: str, config: "DictConfig", console: "Console", jobs: Jobs) -> Any:
    """One job: configuration in, run record out. A sweep goes on after a job that fails, and reports it at once."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode
    from omegaconf import OmegaConf

    hydra = HydraConfig.get()
    folder = Path(os.path.relpath(hydra.runtime.output_dir))
    jobs.sweep = hydra.mode == RunMode.MULTIRUN
    overrides = [str(word) for word in OmegaConf.to_container(hydra.overrides.task, resolve=False) or ()]
    label = f"job {hydra.job.num} ({' '.join(overrides)})" if jobs.sweep else ""
    if jobs.sweep:
        console.note(f"-- {label}")
    try:
        result = _run_task(name, config, folder, console, jobs.sweep, overrides)
    except Exception as error:
        if not jobs.sweep:
            jobs.error = error  # raised once Hydra has returned, so that Hydra adds no line of its own
            return None
        text = _words(_known(error, name, ()), error)
        jobs.done.append({"command": name, "run": str(folder), "error": text})
        console.error(f"{label}: {text}")
        raise
    jobs.done.append(result)
    return None


def _run_task(
    name: str, config: "DictConfig", folder: Path, console: "Console", sweep: bool, overrides: Sequence[str]
) -> dict[str, Any]:
    """Validate everything, then run the task in its record.

    A single run that never started leaves no folder; a sweep's job always leaves a record, which says why it failed. A
    command that keeps no record writes nothing here.
    """
    from agt_cli.report.record import RunRecord
    from agt_cli.runs.choices import typed
    from agt_cli.runs.compose import plain
    from agt_cli.runs.resume import unfinished
    from agt_cli.runs.unread import unread

    task, result = import_module(usage.COMMANDS[name].module), dict[str, Any]()
    if not usage.COMMANDS[name].recorded:
        result = task.run(task.configure(plain(config)), console)
        return {"command": name, **result}
    with ExitStack() as stack:
        stack.callback(_refresh_index, folder, config.get("output_dir"), console)
        try:
            settled = latest.resolved(plain(config), console.note)
            settled = typed(settled, overrides) if name in ("train", "tune") else settled
            again = unfinished(settled, overrides, sweep) if name == "train" else None
            for key, value in settled.items():
                if value == "":
                    raise ConfigError(f"{key}= is empty: give a value, or leave it out")
            if again:
                with suppress(OSError):
                    folder.rmdir()  # Hydra's new one
                folder, settled = again.folder, again.config
                stack.callback(_refresh_index, folder, settled.get("output_dir"), console)
            record = RunRecord(folder, name, settled, again)
            if sweep:
                stack.enter_context(record)
                record.environment(overrides=list(overrides))
            settings = task.configure(settled)
            if not sweep:
                stack.enter_context(record)
            for line in unread(settled, overrides) if name == "train" else ():
                console.note(line)
        except Exception:
            with suppress(OSError):
                folder.rmdir()  # only if Hydra made it and nothing is in it
            raise
        result = task.run(settings, record, console)
    index = Path(str(settled.get("output_dir"))) / "index.html"
    console.note(f"to look at: {folder / 'report.html'}{f'; all runs: {index}' if index.exists() else ''}")
    return {"command": name, "run": str(folder), **result}


def _refresh_index(folder: Path, outputs: object, console: "Console") -> None:
    """List the run that just ended, however it ended; whatever goes wrong with that is no failure of the command."""
    from agt_cli.report.index import refresh

    outputs = Path(str(outputs))
    if folder.resolve().is_relative_to(outputs.resolve()) and (folder / "status.json").exists():
        try:
            refresh(outputs)
        except Exception as error:
            console.note(f"note: the index of all runs could not be written ({error})")
