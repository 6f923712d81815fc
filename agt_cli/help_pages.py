"""The pages of ``agt --help`` and ``agt COMMAND --help``."""

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from shutil import get_terminal_size
from textwrap import TextWrapper

from agt.errors import ConfigError, nearest
from agt_cli.config_files import (
    first_sentence,
    groups_of_command,
    included_files,
    options_of_group,
    primary_lines,
    top_level_keys,
)
from agt_cli.renamed import with_new_name
from agt_cli.usage import COMMANDS, FLAGS, PositionalArgument, match_positionals

DOCUMENTED_GROUPS = ("training", "certificate", "dataset", "model", "relation", "kgrid", "compute")
"""Groups whose keys the help of a command points to."""
_COMPLETE_OPTIONS = ("generic", "default", "table")
"""Options that list all keys of their group, with their meaning."""

DESCRIPTION = (
    "Certified private machine learning: train models, prove bounds on how far other training "
    "data could change them, and certify their predictions."
)

HYDRA = (
    ("KEY=VALUE", "change a setting: agt train training.lr=0.5 kgrid.max=20"),
    ("+KEY={a: 1}", "add an entry to a setting that maps names to values"),
    ("GROUP=NAME", "choose an option of a group of settings: agt train dataset=digits"),
    ("--cfg job", "print the configuration that the command would use, and do not run the command"),
)

SWEEPS = (
    (
        "-m, --multirun",
        "run every combination of comma-separated values: agt train -m training.seed=0,1,2",
    ),
    (
        "sweep=NAME",
        "with -m: give the sweep a name; if you type the same command again, it only runs the "
        "jobs that are not done yet",
    ),
    (
        "hydra/launcher=joblib",
        "with -m: run several jobs at the same time",
    ),
)

ALSO = (
    ("help COMMAND", "print the help of a command, as agt COMMAND --help does"),
    ("help COMMAND GROUP", "list the settings of a group, for example agt help train training"),
    (
        "completion SHELL",
        "print the script with which bash, zsh or fish completes command lines of agt; to install "
        'it for bash, put eval "$(agt completion bash)" into ~/.bashrc',
    ),
)


def overview() -> str:
    """Return the text of ``agt --help``."""
    commands = [(name, command.help) for name, command in COMMANDS.items()]
    return "\n".join(
        [
            DESCRIPTION,
            "",
            "usage: agt COMMAND [WORD ...] [KEY=VALUE ...] [options]",
            *_section("commands", commands),
            *_section("also", ALSO),
            *_section("options", FLAGS),
            "",
            "agt COMMAND --help lists a command's examples and settings.",
            "exit codes: 0 ok, 1 failure, 2 wrong usage or configuration, 3 a check failed, "
            "4 data missing, 130 interrupted,\n"
            "143 terminated (SIGTERM), 129 terminal closed (SIGHUP)",
        ]
    )


def command_help(name: str, rest: Sequence[str] = ()) -> str:
    """Return the text of ``agt COMMAND --help``: purpose, examples, groups, settings.

    If the command line names a group, the text is that of ``group_help``.

    Args:
        name: the name of the command.
        rest: the other words of the command line. The settings of an option that they choose
            (``agt audit mechanism``, ``mechanism=gaussian_margin``) are listed as well.
    """
    command = COMMANDS[name]
    topics = top_level_keys(command.config)
    for word in rest:
        if word in topics:
            return group_help(name, word, rest)
    lines = [f"agt {name}: {command.help}"]
    if command.positionals:
        lines.append("")
        for words in _positional_orders(command.positionals):
            lines.append(f"usage: agt {name} {words} [KEY=VALUE ...] [options]")
    lines += ["", "examples:"]
    lines += [f"  {line}" for line in command.examples]
    own_groups = groups_of_command(command.config)
    for group in own_groups:
        texts = options_of_group(group)
        summaries = [(option, first_sentence(text)) for option, text in texts.items()]
        lines += _section(f"{group}=", summaries)
    lines += _section("settings", _with_new_names(name, _primary_settings(command.config)))
    pages = []
    for group in own_groups:
        if group in DOCUMENTED_GROUPS:
            pages.append(
                (f"agt help {name} {group}", f"lists the settings {group}.* and their meaning")
            )
    lines += _section("settings of a group", pages)
    for group, option in _chosen_options(name, rest):
        rows = _with_new_names(name, _settings_of_option(name, group, option))
        if not rows:
            rows = [("", "this option of the group has no settings")]
        lines += _section(f"settings of {group}={option}", rows)
    ways_to_combine = [*HYDRA]
    if command.recorded:
        ways_to_combine += SWEEPS
    lines += _section("how to change and combine settings", ways_to_combine)
    lines += _section("options", FLAGS)
    return "\n".join(lines)


def check_topics(name: str, rest: Sequence[str]) -> None:
    """Raise ConfigError for a word after ``agt help COMMAND`` on which there is no help.

    There is help on the words that the command takes, on groups and other mappings of settings, and
    on the options of a group that is named. Settings and options of the command line pass, and so
    does any word of a command that takes a file.

    Args:
        name: the name of the command.
        rest: the words that follow the command, without the words that ask for help.
    """
    command = COMMANDS[name]
    if any(argument.placeholder for argument in command.positionals):
        return
    groups = top_level_keys(command.config)
    topics = set(groups)
    for argument in command.positionals:
        topics.update(argument.allowed)
    for group in groups.intersection(rest):
        topics.update(options_of_group(group))
    for before, word in pairwise(["", *rest]):
        is_topic = word in topics or "=" in word
        if not is_topic and not word.startswith("-") and not before.startswith("-"):
            hint = nearest(word, topics)
            raise ConfigError(
                f"there is no help on '{word}'{hint}; type agt help {name} for the whole page"
            )


def group_help(name: str, group: str, rest: Sequence[str]) -> str:
    """Return the text of ``agt help COMMAND GROUP``: the keys of each option of a group.

    Args:
        name: the name of the command.
        group: a group, or a setting that is a mapping.
        rest: the other words of the command line. If they name options of the group
            (``certificate=erm``, ``erm``), only these are shown.
    """
    lines = [f"agt {name}: the settings of the group {group}"]
    config = COMMANDS[name].config
    if group not in groups_of_command(config):
        rows = [row for row in _primary_settings(config) if _top_level_key(row[0]) == group]
        lines += _section("settings", _with_new_names(name, rows))
        return "\n".join(lines)
    texts = options_of_group(group)
    chosen = {word.removeprefix(f"{group}=") for word in rest} & set(texts)
    others = sorted(set(texts) - set(_COMPLETE_OPTIONS))
    complete = sorted(set(texts) & set(_COMPLETE_OPTIONS))
    shown: list[str] = []  # keys; one that several options have is shown once
    for option in (*complete, *others):
        if chosen and option not in chosen:
            continue
        rows = _settings_of_option(name, group, option)
        if not chosen:
            rows = [row for row in rows if not _is_shown(row[0], shown)]
        if rows:
            about = first_sentence(texts[option])
            lines += ["", f"{group}={option}: {about}", *_rows(_with_new_names(name, rows))]
            shown += [setting.partition("=")[0] for setting, _ in rows]
    if shown:
        lines += ["", f"To change a setting, type for example agt {name} {shown[0]}=VALUE"]
    names = ", ".join(texts)
    lines += [
        f"To choose an option of the group, type agt {name} {group}=NAME. The names of the "
        f"options: {names}"
    ]
    return "\n".join(lines)


def _top_level_key(setting: str) -> str:
    """Return the first part of the key of a setting, KEY=VALUE."""
    return re.split(r"[=.]", setting)[0]


def _with_new_names(name: str, rows: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return (setting, meaning) of a command's settings, the settings by their names for users."""
    return [(with_new_name(name, setting), meaning) for setting, meaning in rows]


def _is_shown(setting: str, shown: Iterable[str]) -> bool:
    """Return whether a key, or a mapping that it is in, is among those that were shown.

    Args:
        setting: KEY or KEY=VALUE.
        shown: keys.
    """
    key = setting.partition("=")[0]
    return any(f"{key}.".startswith(f"{known}.") for known in shown)


def _primary_settings(config: str) -> list[tuple[str, str]]:
    """Return (setting, meaning) for each setting of a primary file.

    The settings of the files that it includes come first.
    """
    settings = []
    for included in included_files(config):
        settings += _primary_settings(included)
    return settings + _settings(primary_lines(config))


def _settings_of_option(name: str, group: str, option: str) -> list[tuple[str, str]]:
    """Return (KEY=VALUE, meaning) for each key of an option of a group.

    Keys of the options that it includes come first. A key that the option sets again without a
    comment keeps the meaning that it has there.

    Args:
        name: the name of the command.
        group: the group.
        option: the name of the option.

    Returns:
        The rows; none if the option sets keys of other groups (``# @package``).
    """
    text = options_of_group(group)[option]
    if "# @package" in text:
        return []
    rows: dict[str, tuple[str, str]] = {}
    for included in _included(text):
        if included in options_of_group(group) and included != option:
            for setting, about in _settings_of_option(name, group, included):
                rows[setting.partition("=")[0]] = (setting, about)
    prefix = f"{group}.".replace("/", ".")
    without_first_comment = re.sub(r"\A(#.*\n)*", "", text)
    for setting_in_group, about in _settings(without_first_comment.splitlines()):
        if not setting_in_group.startswith(("_target_", "name=")):
            setting = prefix + setting_in_group
            key = setting.partition("=")[0]
            _, about_included = rows.get(key, ("", ""))
            rows[key] = (setting, about or about_included)
    return list(rows.values())


def _included(text: str) -> list[str]:
    """Return the options of the same group that an option's defaults list includes."""
    line = re.search(r"^defaults: \[(.*)\]$", text, re.MULTILINE)
    return [word.strip() for word in line[1].split(",")] if line else []


def _positional_orders(words: Sequence[PositionalArgument]) -> list[str]:
    """Return the possible sequences of a command's words, as help shows them.

    There is one for each word that further words depend on (``PositionalArgument.after``), or only
    one.
    """
    orders = []
    for first in [word.after for word in words if word.after] or [""]:
        order = []
        for word in words:
            if word.after in ("", first):
                is_first = first in word.allowed
                order.append(first if is_first else "|".join(word.allowed))
        orders.append(" ".join(order))
    return orders


def _chosen_options(name: str, rest: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield (group, option) for each existing option that a command line chooses.

    It is chosen by a word that the command takes, or by GROUP=NAME.

    Args:
        name: the name of the command.
        rest: the other words of the command line.
    """
    chosen = dict(word.split("=", 1) for word in rest if "=" in word)
    matched = match_positionals(name, rest)
    chosen |= {positional.key: value for positional, value in matched.given}
    for group in groups_of_command(COMMANDS[name].config):
        option = chosen.get(group, "")
        if option in options_of_group(group):
            yield group, option


def _settings(lines: Sequence[str]) -> list[tuple[str, str]]:
    """Return (KEY=VALUE, meaning) for each setting in the lines of a YAML file.

    These are the top-level keys, and the keys of their blocks (BLOCK.KEY=VALUE). The meaning is the
    comment at the end of the line; for a top-level key without one, the comment above it.
    """
    settings = []
    comment = ""
    block = ""
    for before, line in pairwise(["", *lines]):
        setting, _, about = line.partition(" # ")
        key_and_value = setting.strip().replace(": ", "=", 1)
        if line.startswith("# "):
            text = line.removeprefix("# ")
            comment = f"{comment} {text}" if before.startswith("# ") else text
        elif block and line.startswith("  "):
            settings.append((f"{block}.{key_and_value}", about))
        elif line and not line.startswith((" ", "#", "defaults:")):
            block = line.removesuffix(":") if line.endswith(":") else ""
            if not block:
                settings.append((key_and_value, about or comment))
            if setting.startswith("_target_"):
                comment = ""  # the comment above it was about the whole file
    return settings


def _section(title: str, rows: Sequence[tuple[str, str]]) -> list[str]:
    """Return the lines of a section of a help page; none if it has no rows."""
    return ["", f"{title}:", *_rows(rows)] if rows else []


def _rows(rows: Sequence[tuple[str, str]]) -> list[str]:
    """Return the lines of a table of (name, text).

    Long lines are broken on a terminal only: in a file, a row is a line, as grep needs it.
    """
    width = max((len(name) for name, _ in rows), default=0)
    lines = [f"  {name:<{width}}  {text}".rstrip() for name, text in rows]
    if not sys.stdout.isatty():
        return lines
    columns = max(get_terminal_size().columns, width + 44)
    wrapper = TextWrapper(columns, subsequent_indent=" " * (width + 4))
    return list(chain.from_iterable(map(wrapper.wrap, lines)))
