"""The pages of ``agt --help`` and ``agt COMMAND --help``."""

import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from shutil import get_terminal_size
from textwrap import TextWrapper

from agt_cli.config_files import _lines, groups, options, summary
from agt_cli.usage import COMMANDS, FLAGS, Word, bare_words, words_of

DESCRIPTION = (
    "Certified private machine learning: train models with bounds, and certify their predictions."
)

HYDRA = (
    ("KEY=VALUE", "change a setting: agt train training.lr=0.5 kgrid.max=20"),
    ("+KEY={a: 1}", "add an entry to a setting that is a mapping (key: value)"),
    ("GROUP=NAME", "choose an option of a group: agt train dataset=digits"),
    ("--cfg job", "print the composed configuration and do not run the command"),
)

SWEEPS = (
    (
        "-m, --multirun",
        "run every combination of comma-separated values: agt train -m training.seed=0,1,2",
    ),
    (
        "sweep=NAME",
        "with -m: give the sweep a name; the same command again then only runs the jobs that "
        "are not done yet",
    ),
    (
        "hydra/launcher=joblib",
        "with -m: run several jobs at the same time; submitit_local and slurm, which need "
        "submitit, are the other launchers",
    ),
)

ALSO = (
    ("help COMMAND", "the same as agt COMMAND --help"),
    (
        "completion SHELL",
        'completion for bash, zsh or fish; to install it, put eval "$(agt completion bash)" '
        "into ~/.bashrc",
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
            "4 data missing, 130 interrupted,",
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
    lines += _section("settings", _settings(_lines(command.config)))
    for group, option in _chosen(name, rest):
        inside = _settings(options(group)[option].splitlines())
        own = [
            (f"{group}.{setting}", about)
            for setting, about in inside
            if not setting.startswith("_target_=")
        ]
        lines += _section(f"settings of {group}={option}", own or [("", "it has none")])
    lines += _section("how to change and combine settings", HYDRA + SWEEPS * command.recorded)
    return "\n".join([*lines, *_section("options", FLAGS)])


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


def _section(title: str, rows: "list[tuple[str, str]] | tuple[tuple[str, str], ...]") -> list[str]:
    width = max((len(name) for name, _ in rows), default=0)
    lines = [f"  {name:<{width}}  {text}".rstrip() for name, text in rows]
    if sys.stdout.isatty():  # else a line stays one, as grep wants it
        broken = TextWrapper(
            max(get_terminal_size().columns, width + 44), subsequent_indent=" " * (width + 4)
        )
        lines = [part for line in lines for part in broken.wrap(line)]
    return ["", f"{title}:", *lines] if rows else []
