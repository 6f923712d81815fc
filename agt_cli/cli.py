"""The dispatcher: picks the command, then hands the rest of the command line to Hydra's own entry point.

So overrides, ``-m`` sweeps, launchers, ``--cfg job`` and completion work as in any Hydra application. What Hydra or a
command raises comes back here and becomes a message and an exit code. Help imports neither Hydra nor torch.
"""

import logging
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

import agt_cli
from agt.errors import AgtError, CheckError, ConfigError, nearest
from agt_cli import signals, torchrun, usage
from agt_cli.jobs import Outcome, Task, command_line, words
from agt_cli.mistakes import explain
from agt_cli.streams import mute, muted

if TYPE_CHECKING:
    from agt_cli.report.console import Console

INTERRUPTED = 130
HELP = ("help", "-h", "--help")
VERBOSITY = {"-q": "quiet", "--quiet": "quiet", "-v": "verbose", "--verbose": "verbose", "--json": "json"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; where torchrun started several processes, with the others' help, or as one of them.

    Args:
        arguments: without the program's name; None: the process's own.

    Returns:
        The exit code (errors.py); 1 also where whoever read the output stopped reading.
    """
    try:
        if torchrun.size() > 1:
            return _one_of_several(arguments)
    except AgtError as error:
        return _complain(str(error), error.exit_code)
    return _alone(arguments)


def _one_of_several(arguments: Sequence[str] | None) -> int:
    torchrun.end_with_it()
    if torchrun.rank():
        from agt_cli.runs import workers

        return workers.work()
    from agt_cli.runs import team

    return team.lead(lambda: _alone(arguments))


def _alone(arguments: Sequence[str] | None) -> int:
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
    print(usage.overview() if name is None else usage.command_help(name, about[1:]))
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
    outcome = Outcome()
    try:
        _check_command(name, rest)
        rest = usage.settings_from_words(name, rest)
        _check_flags(rest)
        _check_places(rest)
        _check_sweep(name, rest)
        torchrun.check(name, rest)
        _run_hydra(name, rest, console, outcome)
        if outcome.error:
            raise outcome.error
    except KeyboardInterrupt as error:
        code = getattr(error, "exit_code", INTERRUPTED)
        return _fail(console, str(error) or "interrupted", code, _listed(outcome))
    except BrokenPipeError:
        raise
    except Exception as error:
        return _explain(console, error, name, rest, outcome)
    return _ended(console, name, outcome)


def _ended(console: "Console", name: str, outcome: Outcome) -> int:
    """The object of --json: the job's own, or the list of a sweep's, after its table."""
    table = outcome.table
    if table is None:
        if outcome.result:
            console.emit({**outcome.result, "exit_code": 0})
        return 0
    table.say(console)
    if table.summary:
        return _fail(console, table.summary, table.exit_code, {"command": name, **_listed(outcome)})
    console.emit({"command": name, **_listed(outcome), "exit_code": 0})
    return 0


def _listed(outcome: Outcome) -> dict[str, Any]:
    """A sweep's jobs."""
    return outcome.table.as_json() if outcome.table else {}


def _explain(console: "Console", error: Exception, name: str, rest: list[str], outcome: Outcome) -> int:
    config = usage.COMMANDS[name].config if name in usage.COMMANDS else ""
    known = explain(error, config, [word for word in rest if not word.startswith("-")])
    if known is None and console.verbose:
        import traceback

        traceback.print_exception(error)
    code = known.exit_code if known else AgtError.exit_code
    told = known.result if isinstance(known, CheckError) else {}
    return _fail(console, words(known, error), code, {**_listed(outcome), **told})


def _fail(console: "Console", text: str, code: int, more: Mapping[str, Any]) -> int:
    console.error(text)
    console.emit({"error": text, **more, "exit_code": code})
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


def _check_sweep(name: str, rest: Sequence[str]) -> None:
    """Refuse a sweep that would leave nothing to go on with."""
    if usage.is_sweep(rest) and not usage.COMMANDS[name].recorded:
        raise ConfigError(f"-m: agt {name} keeps no record, and has no sweeps: call it once for each value")
    other = next((word for word in rest if word.startswith("hydra/sweeper=") and word != "hydra/sweeper=agt"), None)
    if other:
        raise ConfigError(f"{other}: another sweeper's jobs are not kept account of: leave it out")


def _run_hydra(name: str, rest: list[str], console: "Console", outcome: Outcome) -> None:
    import hydra

    from agt_cli import search_path

    search_path.register()
    if usage.is_sweep(rest):
        from agt_cli import sweeper  # much to load

        sweeper.register()
    task = Task(name, (f"agt {name}", *rest), console, outcome)
    logging.raiseExceptions = False  # a log line that nobody reads is no error
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then raises what happened instead of printing it and exiting
    entry = hydra.main(version_base="1.3", config_path=str(usage.config_dir()), config_name=usage.COMMANDS[name].config)
    rest = usage.settings_of_sweep(rest) if usage.COMMANDS[name].recorded else rest
    with command_line([f"agt {name}", *rest]):
        entry(task)()
