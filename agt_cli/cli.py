"""The dispatcher: picks the command, has its configuration composed, and runs it; what is raised
becomes a message and an exit code. Help imports neither Hydra nor torch.
"""

import atexit
import gc
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import agt_cli
from agt.errors import AgtError, ConfigError, naming_settings, nearest
from agt_cli import completion, config_files, help_pages, usage
from agt_cli.process import (
    end_with_torchrun,
    mute,
    muted,
    raising_terminated,
    rank,
    visible,
    world_size,
    write_any_text,
)
from agt_cli.renamed import CommandNames, with_old_names
from agt_cli.typed_ranges import RANGE_KEYS, check_points

if TYPE_CHECKING:
    from agt_cli.report.console import Console

INTERRUPTED = 130
HELP = ("help", "-h", "--help", "--hydra-help")
VERBOSITY = {
    "-q": "quiet",
    "--quiet": "quiet",
    "-v": "verbose",
    "--verbose": "verbose",
    "--json": "json",
}
_PLAIN = re.compile(r"\+*[a-z._]+=('?)[^,'\"\[\]{}()$\\]+\1")
# that have something for several processes to share
PARALLEL_COMMANDS = ("train", "certify", "plan", "predict")


def main(arguments: Sequence[str] | None = None, leads: bool = False) -> int:
    """Run one command line; where torchrun started several processes, with the others' help, or as
    one of them.

    Args:
        arguments: without the program's name; None: the process's own.
        leads: whether this is the first of several processes, and the others wait for it.

    Returns:
        The exit code (agt/errors.py); 1 also where whoever read the output stopped reading.
    """
    # what is imported is no rubbish: looking for some in it takes a fifth of the start (jobs.py)
    if arguments is None:
        gc.disable()
        atexit.register(_collect_nothing)
    write_any_text()
    try:
        if world_size() > 1 and not leads:
            return _one_of_several(arguments)
        with raising_terminated():
            code = _dispatch(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
    except BrokenPipeError:
        mute("stdout")
        code = AgtError.exit_code
    except KeyboardInterrupt as error:
        return _complain(str(error) or "interrupted", getattr(error, "exit_code", INTERRUPTED))
    except AgtError as error:
        return _complain(str(error), error.exit_code)
    except OSError as error:  # a full disk behind standard output
        mute("stdout")
        reason = error.strerror or error
        return _complain(f"agt cannot write to standard output ({reason})", AgtError.exit_code)
    return code or AgtError.exit_code * muted()


def _collect_nothing() -> None:
    """At the end of a process that ran no command, leave its rubbish: all of its memory is freed.

    Python would look through everything that was imported, which takes a tenth of the time of a
    mistake's answer.
    """
    if not gc.isenabled():
        gc.freeze()


def _one_of_several(arguments: Sequence[str] | None) -> int:
    end_with_torchrun()
    from agt_cli import team, worker

    return worker.work() if rank() else team.lead(lambda: main(arguments, leads=True))


def _complain(text: str, code: int) -> int:
    with suppress(OSError):
        print(f"agt: error: {visible(text)}", file=sys.stderr, flush=True)
    return code


def _dispatch(arguments: list[str]) -> int:
    words = [word for word in arguments if word not in VERBOSITY]
    if (code := _answered_at_once(arguments, words)) is not None:
        return code
    from agt_cli.report.console import Console

    console = Console(**{VERBOSITY[word]: True for word in arguments if word in VERBOSITY})
    (name, *rest), listed = words, dict[str, Any]()
    try:
        with naming_settings(CommandNames(name)):
            rest = with_old_names(name, _checked(name, rest))
            from agt_cli import configuration

            command = usage.COMMANDS[name]
            given = usage.settings_of_sweep(rest) if command.recorded else rest
            options = configuration.parse_options(given, command.config)
            if options.cfg:
                configuration.show(options)
                return 0
            if options.multirun:
                return _sweep(name, rest, options, console, listed)
            result = _run_one(name, rest, options, console)
    except KeyboardInterrupt as error:
        return _fail(
            console, str(error) or "interrupted", getattr(error, "exit_code", INTERRUPTED), listed
        )
    except BrokenPipeError:
        raise
    except Exception as error:
        from agt_cli.errors import failure

        config = usage.COMMANDS[name].config if name in usage.COMMANDS else ""
        failed = failure(
            error, config, [word for word in rest if not word.startswith("-")], console.verbose
        )
        return _fail(console, failed.pop("error"), failed.pop("exit_code"), {**listed, **failed})
    console.emit({**result, "exit_code": 0})
    return 0


def _run_one(name: str, rest: Sequence[str], options: Any, console: "Console") -> dict[str, Any]:
    """Compose the configuration of a single job and run it; returns the object of --json.

    Args:
        name: of the command.
        rest: the other words of the command line, for the job's record.
        options: as ``configuration.parse_options`` read them.
    """
    from agt_cli import configuration

    composed = configuration.compose_with_hydra(options.config_name, options.overrides)
    recorded = usage.COMMANDS[name].recorded
    folder = Path(os.path.relpath(composed.hydra.run.dir)) if recorded else None
    settings = configuration.plain(composed)
    # Classes of settings come after, because no key that is unknown or missing needs them.
    from agt_cli import jobs

    overrides = composed.hydra.overrides.task
    with jobs.command_line((f"agt {name}", *rest)):
        return jobs.run_job(name, settings, folder, console, overrides)


def _answered_at_once(arguments: Sequence[str], words: Sequence[str]) -> int | None:
    """The exit code, where neither a configuration nor a console is needed: help, version,
    completion; else None.
    """
    if "completion" in arguments[: 1 + (arguments[:1] == ["help"])]:
        return completion.completion([word for word in arguments if word != "completion"])
    if "--version" in words:
        print(f"agt {agt_cli.__version__}")
        return 0
    if not words or set(HELP[1:]) & set(words) or "help" in words[:2]:
        return _help(
            [word for word in words if word not in HELP], 0 if words else ConfigError.exit_code
        )
    return None


def _help(about: Sequence[str], code: int) -> int:
    """The help of the command that is named first, if one is."""
    name = about[0] if about and not about[0].startswith("-") else None
    if name is not None:
        _check_command(name, about[1:])
    print(help_pages.overview() if name is None else help_pages.command_help(name, about[1:]))
    return code


def _check_command(name: str, rest: Sequence[str]) -> None:
    """Raise ConfigError unless there is such a command."""
    if name in usage.COMMANDS:
        return
    later = next((word for word in rest if word in usage.COMMANDS), None)
    if later is not None and ("=" in name or name.startswith("-")):
        command_line = shlex.join([later, *(word for word in (name, *rest) if word != later)])
        raise ConfigError(f"the name of the command must come first: type agt {command_line}")
    owner = next(
        (
            owner
            for owner, command in usage.COMMANDS.items()
            for word in command.words
            if name in word.choices
        ),
        "",
    )
    if owner:
        command_line = shlex.join([owner, name, *rest])
        raise ConfigError(
            f"'{name}' is not a command, but an action of agt {owner}: type agt {command_line}"
        )
    if name == "version":
        raise ConfigError("'version' is not a command: type agt --version")
    hint = nearest(name, usage.COMMANDS)
    raise ConfigError(f"unknown command '{name}'{hint}; agt --help lists all commands")


def _checked(name: str, rest: Sequence[str]) -> list[str]:
    """The rest of a command line with the command's words as settings, if nothing of it can be
    refused at once.

    Raises:
        ConfigError: no such command or word; a folder without a name; a sweep that would leave
            nothing to go on with; a command that several processes have no use for.
    """
    _check_command(name, rest)
    for word in rest:
        if instead := usage.instead_of(name, word):
            raise ConfigError(f"{word}: {instead}")
    rest = usage.settings_from_words(name, rest)
    for word in rest:
        key, equals, value = word.lstrip("+").partition("=")
        if (
            equals
            and key in ("output_dir", "hydra.run.dir", "hydra.sweep.dir")
            and value.strip("'\" ") in ("", "null")
        ):
            raise ConfigError(
                f"{word}: the name of a folder is missing: give one (a dot for the current "
                "folder), or leave the setting out to use the folder named outputs"
            )
        if value.startswith("[") and key in config_files.groups(usage.COMMANDS[name].config):
            raise ConfigError(
                f"{word}: the setting {key}=... needs the name of one of its "
                f"options{nearest(value.strip('[] '), config_files.options(key))}"
            )
        if key in RANGE_KEYS:
            check_points(key, value)
        if key == "hydra/sweeper":
            raise ConfigError(
                f"{word}: agt has its own sweeper and supports no other: leave this setting out"
            )
    if usage.is_sweep(rest) and not usage.COMMANDS[name].recorded:
        raise ConfigError(
            f"-m: agt {name} does not support sweeps: leave out -m, and type the command once "
            "for each value"
        )
    from agt_cli.places import check_places  # records, which help does without

    typed = dict(word.split("=", 1) for word in rest if _PLAIN.fullmatch(word))
    check_places(name, {key.lstrip("+"): value.strip("'") for key, value in typed.items()})
    if world_size() > 1 and name not in PARALLEL_COMMANDS:
        commands = ", ".join(PARALLEL_COMMANDS)
        processes = world_size()
        raise ConfigError(
            f"agt {name}: torchrun started {processes} processes, but agt {name} cannot divide "
            "its work among them: start it without torchrun (these commands can use torchrun: "
            f"{commands})"
        )
    if world_size() > 1 and usage.is_sweep(rest):
        raise ConfigError(
            "-m cannot be combined with torchrun: start the sweep without torchrun. torchrun "
            "divides the work of one job, so to use it, start each job separately"
        )
    return rest


def _sweep(
    name: str, rest: Sequence[str], options: Any, console: "Console", listed: dict[str, Any]
) -> int:
    """Run a sweep, whose jobs are put into ``listed`` however it ends."""
    from agt_cli.sweeps import Sweep

    sweep = Sweep(name, (f"agt {name}", *rest), options.overrides, options.config_name, console)
    try:
        sweep.run()
    finally:
        listed |= sweep.table.as_json() if sweep.table else {}
    table = sweep.table
    assert table is not None
    table.say(console)
    if table.summary:
        return _fail(console, table.summary, table.exit_code, {"command": name, **listed})
    console.emit({"command": name, **listed, "exit_code": 0})
    return 0


def _fail(console: "Console", text: str, code: int, more: Mapping[str, Any]) -> int:
    console.error(text)
    console.emit({"error": text, **more, "exit_code": code})
    return code
