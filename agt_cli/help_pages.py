"""The pages of ``agt --help`` and ``agt COMMAND --help``."""

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from shutil import get_terminal_size
from textwrap import TextWrapper

from agt_cli.config_files import groups, included_files, options, primary_lines, summary
from agt_cli.renamed import with_new_name
from agt_cli.usage import COMMANDS, FLAGS, Word, bare_words, words_of

PARTS = ("training", "certificate", "dataset", "model", "relation", "kgrid", "compute")
"""Groups whose keys the help of a command points to."""
_FIRST = ("generic", "default", "table")
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
        "with -m: run several jobs at the same time; other launchers are submitit_local and "
        "slurm, which need the package submitit",
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
    """The text of ``agt --help``."""
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
    """The text of ``agt COMMAND --help``: purpose, examples, groups with their options, settings.

    Args:
        rest: of the command line; what it chooses of a group (``agt audit mechanism``,
            ``mechanism=gaussian_margin``) is told with its settings.
    """
    command = COMMANDS[name]
    if (part := next((word for word in rest if _is_part(name, word)), None)) is not None:
        return part_help(name, part, rest)
    usage = [
        "",
        *(f"usage: agt {name} {words} [KEY=VALUE ...] [options]" for words in _ways(command.words)),
    ]
    usage = usage if command.words else []
    lines = [
        f"agt {name}: {command.help}",
        *usage,
        "",
        "examples:",
        *(f"  {line}" for line in command.examples),
    ]
    for group in groups(command.config):
        lines += _section(
            f"{group}=", [(option, summary(text)) for option, text in options(group).items()]
        )
    lines += _section("settings", _with_new_names(name, _primary_settings(command.config)))
    if parts := [group for group in groups(command.config) if group in PARTS]:
        shown = [
            (f"agt help {name} {part}", f"lists the settings {part}.* and their meaning")
            for part in parts
        ]
        lines += _section("settings of a group", shown)
    for group, option in _chosen(name, rest):
        own = _keys_of(name, group, option)
        rows = _with_new_names(name, own) or [("", "this option of the group has no settings")]
        lines += _section(f"settings of {group}={option}", rows)
    lines += _section("how to change and combine settings", HYDRA + SWEEPS * command.recorded)
    return "\n".join([*lines, *_section("options", FLAGS)])


def part_help(name: str, part: str, rest: Sequence[str] = ()) -> str:
    """Return the text of ``agt help COMMAND GROUP``: the keys of each option of a group.

    Args:
        name: the command.
        part: a group, or a setting that is a mapping.
        rest: of the command line; an option that it names (``certificate=erm``, ``erm``) is shown
            alone.
    """
    settings = _primary_settings(COMMANDS[name].config)
    own = [row for row in settings if re.split(r"[=.]", row[0])[0] == part]
    lines = [f"agt {name}: the settings of the group {part}"]
    if part not in groups(COMMANDS[name].config):
        return "\n".join([*lines, *_section("settings", _with_new_names(name, own))])
    texts = options(part)
    wanted = {word.removeprefix(f"{part}=") for word in rest} & set(texts)
    shown: dict[str, None] = {}
    for option in sorted(texts, key=lambda option: (option not in _FIRST, option)):
        keys = _keys_of(name, part, option)
        new = [row for row in keys if wanted or not _is_shown(row[0], shown)]
        if new and (option in wanted or not wanted):
            about = summary(texts[option])
            lines += [
                "",
                f"{part}={option}: {about}",
                *_section("keys", _with_new_names(name, new))[2:],
            ]
            shown |= dict.fromkeys(row[0].partition("=")[0] for row in new)
    for key in [*shown][:1]:
        lines += ["", f"To change a setting, type for example agt {name} {key}=VALUE"]
    names = ", ".join(texts)
    lines += [
        f"To choose an option of the group, type agt {name} {part}=NAME. The names of the options: "
        f"{names}"
    ]
    return "\n".join(lines)


def _with_new_names(name: str, rows: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return settings of a command and what they mean, each setting with its name for users."""
    return [(with_new_name(name, setting), meaning) for setting, meaning in rows]


def _is_shown(setting: str, shown: Iterable[str]) -> bool:
    """Return whether a key, or the mapping that it is in, was listed before."""
    key = setting.partition("=")[0]
    return any(f"{key}.".startswith(f"{known}.") for known in shown)


def _is_part(name: str, word: str) -> bool:
    """Return whether a word after ``agt help COMMAND`` names a group or a mapping of settings."""
    config = COMMANDS[name].config
    settings = _primary_settings(config)
    parts = {re.split(r"[=.]", setting)[0] for setting, _ in settings}
    return word in groups(config) or word in parts


def _primary_settings(config: str) -> list[tuple[str, str]]:
    """Return (setting, meaning) for each setting of a primary file.

    The settings of the files that it includes come first.
    """
    of_included = [row for name in included_files(config) for row in _primary_settings(name)]
    return [*of_included, *_settings(primary_lines(config))]


def _keys_of(name: str, group: str, option: str) -> list[tuple[str, str]]:
    """Return the keys of an option with their values and meanings, those that it includes first."""
    text = options(group)[option]
    found: dict[str, tuple[str, str]] = {}
    for entry in _included(text):
        if entry in options(group) and entry != option:
            for setting, about in _keys_of(name, group, entry):
                found[setting.partition("=")[0]] = (setting, about)
    if "# @package" in text:  # not keys of this group alone
        return []
    head = re.match(r"(#.*\n)*", text)
    rows = _settings(text[head.end() if head else 0 :].splitlines())
    own = [row for row in rows if not row[0].startswith(("_target_", "name="))]
    prefix = f"{group}.".replace("/", ".")
    for name_in_group, about in own:
        setting = prefix + name_in_group
        key = setting.partition("=")[0]
        found[key] = (setting, about or found.get(key, ("", ""))[1])
    return list(found.values())


def _included(text: str) -> list[str]:
    """Return the options of the same group that an option's defaults list includes."""
    line = re.search(r"^defaults: \[(.*)\]$", text, re.MULTILINE)
    return [word.strip() for word in line[1].split(",")] if line else []


def _ways(words: Sequence[Word]) -> list[str]:
    """How the words of a command may follow each other, as help shows it."""
    starts = [word.after for word in words if word.after] or [""]
    return [
        " ".join(
            start if start in word.known else "|".join(word.known)
            for word in words
            if word.after in ("", start)
        )
        for start in starts
    ]


def _chosen(name: str, rest: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(group, option) of what a command line chooses, by a word or by GROUP=NAME; what there is
    not is left out.
    """
    chosen = dict(word.split("=", 1) for word in rest if "=" in word)
    chosen |= {
        word.key: given
        for word, given in words_of(name, [rest[place] for place in bare_words(rest)])[0]
    }
    known = (
        group for group in groups(COMMANDS[name].config) if chosen.get(group) in options(group)
    )
    yield from ((group, chosen[group]) for group in known)


def _settings(lines: Sequence[str]) -> list[tuple[str, str]]:
    """Top-level ``key: value`` lines with the comment above or behind each; those of a block
    with the comment behind.
    """
    settings, comment, block = [], "", ""
    for before, line in pairwise(["", *lines]):
        if line.startswith("# "):
            text = line.removeprefix("# ")
            comment = f"{comment} {text}" if before.startswith("# ") else text
        elif block and line.startswith("  "):
            setting, _, about = line.strip().partition(" # ")
            settings.append((f"{block}.{setting.strip().replace(': ', '=', 1)}", about))
        elif line and not line.startswith((" ", "#", "defaults:")):
            setting, _, about = line.partition(" # ")
            block = line.removesuffix(":") if line.endswith(":") else ""
            settings += [] if block else [(setting.strip().replace(": ", "=", 1), about or comment)]
            comment = "" if setting.startswith("_target_") else comment  # that was the whole file's
    return settings


def _section(title: str, rows: Sequence[tuple[str, str]]) -> list[str]:
    width = max((len(name) for name, _ in rows), default=0)
    lines = [f"  {name:<{width}}  {text}".rstrip() for name, text in rows]
    if sys.stdout.isatty():  # else a line stays one, as grep wants it
        broken = TextWrapper(
            max(get_terminal_size().columns, width + 44), subsequent_indent=" " * (width + 4)
        )
        lines = [part for line in lines for part in broken.wrap(line)]
    return ["", f"{title}:", *lines] if rows else []
