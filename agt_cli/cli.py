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
    drop_output,
    end_with_torchrun,
    is_stdout_dropped,
    raising_terminated,
    rank,
    recorded_command_line,
    visible,
    world_size,
    write_any_text,
)
from agt_cli.renamed import CommandNames, check_clip_name, check_given_once, with_old_names
from agt_cli.shell_words import check_command_name, check_words
from agt_cli.typed_ranges import RANGE_KEYS, check_no_ambiguous_points

if TYPE_CHECKING:
    from agt_cli.report.console import Console

INTERRUPTED = 130
HELP = ("help", "-h", "--help")
VERBOSITY = {
    "-q": "quiet",
    "--quiet": "quiet",
    "-v": "verbose",
    "--verbose": "verbose",
    "--json": "json",
}
_PLAIN_SETTING = re.compile(r"\+*[a-z._]+=('?)[^,'\"\[\]{}()$\\]+\1")
"""KEY=VALUE whose value is text that Hydra's grammar leaves as it is."""
PARALLEL_COMMANDS = ("train", "certify", "plan", "predict")
"""Commands that can divide their work among several processes."""


def main(arguments: Sequence[str] | None = None, is_first: bool = False) -> int:
    """Run one command line, and return the exit code.

    If torchrun started several processes, they do the command together.

    Args:
        arguments: the command line without the program's name; None: that of this process. A
            program may give a setting twice, of which the last counts; a person may not.
        is_first: True: this is the first of several processes, and the others wait for its tasks.

    Returns:
        The exit code (agt/errors.py). It is 1 as well if the reader of the output went away.
    """
    # Searching the imported modules for garbage would take a fifth of the start (``run_job``
    # turns the collector on again).
    if arguments is None:
        gc.disable()
        atexit.register(_skip_garbage_collection)
    write_any_text()
    try:
        if world_size() > 1 and not is_first:
            return _run_in_team(arguments)
        with raising_terminated():
            words = sys.argv[1:] if arguments is None else list(arguments)
            code = _dispatch(words, by_person=arguments is None)
        sys.stdout.flush()
    except BrokenPipeError:
        drop_output("stdout")
        code = AgtError.exit_code
    except KeyboardInterrupt as error:
        return _print_error(str(error) or "interrupted", getattr(error, "exit_code", INTERRUPTED))
    except AgtError as error:
        return _print_error(str(error), error.exit_code)
    except OSError as error:  # a full disk behind standard output
        drop_output("stdout")
        reason = error.strerror or error
        return _print_error(f"agt cannot write to standard output ({reason})", AgtError.exit_code)
    return code or AgtError.exit_code * is_stdout_dropped()


def _skip_garbage_collection() -> None:
    """Skip the collection of garbage at the end of a process that ran no command.

    Python would search everything that was imported, which takes a tenth of the time that a mistake
    takes to be answered. The system frees the memory anyway.
    """
    if not gc.isenabled():
        gc.freeze()


def _run_in_team(arguments: Sequence[str] | None) -> int:
    """Run the command line in the first of several processes, or do its tasks in another one.

    Returns:
        The exit code of the first process.
    """
    end_with_torchrun()
    from agt_cli import team, worker

    return worker.work() if rank() else team.lead(lambda: main(arguments, is_first=True))


def _print_error(text: str, code: int) -> int:
    """Print an error on standard error, if that can be written to, and return the exit code."""
    with suppress(OSError):
        print(f"agt: error: {visible(text)}", file=sys.stderr, flush=True)
    return code


def _dispatch(arguments: list[str], by_person: bool) -> int:
    """Run a command line in one process, report errors, and return the exit code.

    Args:
        arguments: the command line without the program's name.
        by_person: True: no setting may be given twice.

    Raises:
        BrokenPipeError: the reader of the output went away.
        AgtError, KeyboardInterrupt: raised before there was a console that could report it.
    """
    words = [word for word in arguments if word not in VERBOSITY]
    code = _print_static_answer(arguments, words)
    if code is not None:
        return code
    from agt_cli.report.console import Console

    console = Console(**{VERBOSITY[word]: True for word in arguments if word in VERBOSITY})
    name, *rest = words
    job_fields: dict[str, Any] = {}  # the jobs of a sweep, which are listed if it fails as well
    try:
        with naming_settings(CommandNames(name)):
            typed = _checked_settings(name, rest)
            if by_person:
                check_given_once(name, typed)
            rest = with_old_names(name, typed)
            from agt_cli import configuration

            command = usage.COMMANDS[name]
            overrides = usage.with_sweep_folder(rest) if command.recorded else rest
            options = configuration.parse_options(overrides)
            if options.cfg:
                configuration.print_configuration(command.config, options)
                return 0
            if options.multirun:
                return _sweep(name, rest, options, console, job_fields)
            result = _run_one(name, typed, options, console)
    except KeyboardInterrupt as error:
        code = getattr(error, "exit_code", INTERRUPTED)
        return _report_error(console, str(error) or "interrupted", code, job_fields)
    except BrokenPipeError:
        raise
    except Exception as error:
        fields = _explain_error(error, name, rest, console)
        text = fields.pop("error")
        code = fields.pop("exit_code")
        heading = getattr(error, "heading", AgtError.heading)
        return _report_error(console, text, code, {**job_fields, **fields}, heading=heading)
    console.emit({**result, "exit_code": 0})
    return 0


def _explain_error(
    error: Exception, name: str, rest: Sequence[str], console: "Console"
) -> dict[str, Any]:
    """Return the entries of --json about an error, as ``errors.error_fields`` does.

    Args:
        error: what a command raised.
        name: the first word of the command line.
        rest: the other words.
        console: says whether the traceback of a bug is printed.
    """
    from agt_cli.errors import error_fields

    config = usage.COMMANDS[name].config if name in usage.COMMANDS else ""
    settings = [word for word in rest if not word.startswith("-")]
    return error_fields(error, config, settings, console.verbose)


def _run_one(name: str, typed: Sequence[str], options: Any, console: "Console") -> dict[str, Any]:
    """Compose the configuration of a single job, run it, and return the object of --json.

    Args:
        name: the name of the command.
        typed: the other words of the command line, as they were typed.
        options: the result of ``configuration.parse_options``.
        console: prints progress and results.
    """
    from agt_cli import configuration

    config_name = usage.COMMANDS[name].config
    composed = configuration.compose_with_hydra(config_name, options.overrides)
    recorded = usage.COMMANDS[name].recorded
    folder = Path(os.path.relpath(composed.hydra.run.dir)) if recorded else None
    overrides = composed.hydra.overrides.task
    with recorded_command_line((f"agt {name}", *typed)):
        settings = configuration.to_plain_containers(composed)
        certificate = settings.get("certificate")
        if isinstance(certificate, Mapping):
            check_clip_name(typed, str(certificate.get("name")), settings.get("model"))
        # Imported only now, because it loads the classes of settings: an unknown or missing key is
        # found without them.
        from agt_cli import jobs

        return jobs.run_job(name, settings, folder, console, overrides)


def _print_static_answer(arguments: Sequence[str], words: Sequence[str]) -> int | None:
    """Print help, the version or what completion asks for, if the command line asks for one.

    Args:
        arguments: the command line without the program's name.
        words: the same arguments without the options in ``VERBOSITY``.

    Returns:
        The exit code; None: the command line asks for none of these, and nothing was printed.
    """
    if arguments[:1] == ["completion"] or arguments[:2] == ["help", "completion"]:
        return completion.completion([word for word in arguments if word != "completion"])
    if "--version" in words:
        print(f"agt {agt_cli.__version__}")
        return 0
    if not words:
        print(help_pages.overview())
        return ConfigError.exit_code
    if set(HELP[1:]) & set(words) or "help" in words[:2]:
        _print_help([word for word in words if word not in HELP])
        return 0
    return None


def _print_help(words: Sequence[str]) -> None:
    """Print the help of a command, or of agt.

    Args:
        words: the command line without the words that ask for help. If the first is an option, or
            there is none, it is the help of agt.

    Raises:
        ConfigError: there is no such command, or a word is no topic of its help.
    """
    if not words or words[0].startswith("-"):
        print(help_pages.overview())
        return
    name, *rest = words
    _check_command(name, rest)
    help_pages.check_topics(name, rest)
    print(help_pages.command_help(name, rest))


def _check_command(name: str, rest: Sequence[str]) -> None:
    """Raise ConfigError unless there is a command of this name.

    Args:
        name: the first word of a command line.
        rest: the other words, from which the message suggests what to type.
    """
    if name in usage.COMMANDS:
        return
    check_command_name(name, rest)
    is_setting_or_option = "=" in name or name.startswith("-")
    later_commands = [word for word in rest if word in usage.COMMANDS]
    if is_setting_or_option and later_commands:
        command = later_commands[0]
        others = [word for word in (name, *rest) if word != command]
        command_line = shlex.join([command, *others])
        raise ConfigError(f"the name of the command must come first: type agt {command_line}")
    for owner, owning_command in usage.COMMANDS.items():
        for positional in owning_command.positionals:
            if name in positional.choices:
                command_line = shlex.join([owner, name, *rest])
                raise ConfigError(
                    f"'{name}' is not a command, but an action of agt {owner}: type agt "
                    f"{command_line}"
                )
    if name == "version":
        raise ConfigError("'version' is not a command: type agt --version")
    hint = nearest(name, usage.COMMANDS)
    raise ConfigError(f"unknown command '{name}'{hint}; agt --help lists all commands")


def _checked_settings(name: str, rest: Sequence[str]) -> list[str]:
    """Return the settings and options of a command line, checked as far as that is quick.

    Args:
        name: the first word of the command line.
        rest: the other words. Those that the command takes without a key become settings.

    Raises:
        ConfigError: there is no such command or word, a setting is wrong, or the command does not
            support a sweep or several processes.
        DataMissing: a file that a setting names does not exist.
    """
    _check_command(name, rest)
    for word in rest:
        replacement = usage.replacement_of(name, word)
        if replacement is not None:
            raise ConfigError(f"{word}: {replacement}")
    check_words(name, rest)
    settings = usage.settings_from_positionals(name, rest)
    for word in settings:
        _check_setting(name, word)
        if name == "train" and word.startswith(("model=", "network=")):
            # Imported only for models, because it loads Python's parser.
            from agt_cli.networks import check_code_as_option

            check_code_as_option(word, settings)
    if usage.is_sweep(settings):
        _check_sweep(name, settings)
    _check_named_files(name, settings)
    processes = world_size()
    if processes > 1:
        _check_processes(name, processes, settings)
    return settings


def _check_sweep(name: str, settings: Sequence[str]) -> None:
    """Raise ConfigError if a command does not support sweeps, or its jobs would resume a run."""
    for word in settings:
        if word.startswith("resume=") and word != "resume=null":
            # Imported only for sweeps that resume, because it loads how records are read.
            from agt_cli.report.unfinished import check_resume_setting

            check_resume_setting(word.partition("=")[2], sweep=True)
    if not usage.COMMANDS[name].recorded:
        raise ConfigError(
            f"-m: agt {name} does not support sweeps: leave out -m, and type the command once "
            "for each value"
        )


def _check_named_files(name: str, settings: Sequence[str]) -> None:
    """Raise ConfigError or DataMissing if a file or folder that a setting names is not there.

    Only settings are checked whose value needs no composing.
    """
    # Imported only here, because it loads how records are read, which help does not need.
    from agt_cli.places import check_named_files

    named: dict[str, str] = {}
    for word in settings:
        if _PLAIN_SETTING.fullmatch(word):
            key, _, value = word.partition("=")
            named[key.lstrip("+")] = value.strip("'")
    _check_resumed_in_place(named)
    check_named_files(name, named)


def _check_processes(name: str, processes: int, settings: Sequence[str]) -> None:
    """Raise ConfigError if a command line cannot be run by several processes together."""
    if name not in PARALLEL_COMMANDS:
        commands = ", ".join(PARALLEL_COMMANDS)
        raise ConfigError(
            f"agt {name}: torchrun started {processes} processes, but agt {name} cannot divide "
            "its work among them: start it without torchrun (these commands can use torchrun: "
            f"{commands})"
        )
    if usage.is_sweep(settings):
        raise ConfigError(
            "-m cannot be combined with torchrun: start the sweep without torchrun. torchrun "
            "divides the work of one job, so to use it, start each job separately"
        )


def _check_resumed_in_place(typed: dict[str, str]) -> None:
    """Raise ConfigError if a run is to be resumed in another folder than its own.

    Args:
        typed: the settings of the command line.
    """
    resumed = typed.get("resume")
    folder = typed.get("hydra.run.dir")
    if resumed and folder and os.path.abspath(resumed) != os.path.abspath(folder):
        raise ConfigError(
            f"hydra.run.dir={folder}: a resumed run continues in its own folder, resume={resumed}: "
            "leave hydra.run.dir out, and move the folder when the run is finished. To train into "
            f"another folder from the beginning, leave resume={resumed} out"
        )


def _check_setting(command: str, word: str) -> None:
    """Raise ConfigError if a setting is wrong whatever the other settings are.

    Args:
        command: the name of the command.
        word: KEY=VALUE; other words pass.
    """
    key, equals, value = word.lstrip("+").partition("=")
    names_folder = key in ("output_dir", "hydra.run.dir", "hydra.sweep.dir")
    if names_folder and equals and value.strip("'\" ") in ("", "null"):
        raise ConfigError(
            f"{word}: the name of a folder is missing: give one (a dot for the current "
            "folder), or leave the setting out to use the folder named outputs"
        )
    groups = config_files.groups_of_command(usage.COMMANDS[command].config)
    if key in groups and value.startswith("["):
        options = nearest(value.strip("[] "), config_files.options_of_group(key))
        raise ConfigError(
            f"{word}: the setting {key}=... needs the name of one of its options{options}"
        )
    if key in RANGE_KEYS or f"{key}.".startswith("dataset.numeric."):
        check_no_ambiguous_points(key, value)
    if key == "hydra/sweeper":
        raise ConfigError(
            f"{word}: agt has its own sweeper and supports no other: leave this setting out"
        )


def _sweep(
    name: str, rest: Sequence[str], options: Any, console: "Console", job_fields: dict[str, Any]
) -> int:
    """Run a sweep, print its table, and return the exit code.

    Args:
        name: the name of the command.
        rest: the other words of the command line, for the jobs' records.
        options: the result of ``configuration.parse_options``.
        console: prints progress and the table.
        job_fields: is filled with the jobs for --json, even if an exception ends the sweep.
    """
    from agt_cli.sweeps import Sweep

    line = (f"agt {name}", *rest)
    config_name = usage.COMMANDS[name].config
    sweep = Sweep.compose(name, line, options.overrides, config_name, console)
    try:
        sweep.run()
    finally:
        job_fields |= sweep.table.as_json() if sweep.table else {}
    table = sweep.table
    assert table is not None  # ``run`` returned, so it has set the table
    table.print_to(console)
    if table.summary:
        return _report_error(
            console, table.summary, table.exit_code, {"command": name, **job_fields}
        )
    console.emit({"command": name, **job_fields, "exit_code": 0})
    return 0


def _report_error(
    console: "Console",
    text: str,
    code: int,
    fields: Mapping[str, Any],
    heading: str = AgtError.heading,
) -> int:
    """Print an error as text or, with --json, as an object; and return the exit code.

    Args:
        console: prints it.
        text: the message.
        code: the exit code.
        fields: further entries of the object.
        heading: the words by which the text calls the error.
    """
    console.error(text, heading)
    console.emit({"error": text, **fields, "exit_code": code})
    return code
