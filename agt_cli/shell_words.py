"""Words that a shell made of a command line, where quotes are missing or are around too much.

A shell divides a line at its blanks, unless they are in quotes. So a list with blanks arrives as
several words, and several settings in one pair of quotes arrive as one word. Each check compares
the words of a line with what they would be with other quotes, and says what to type.
"""

import os
import re
import shlex
from collections.abc import Sequence
from itertools import combinations

from agt.errors import ConfigError
from agt_cli import config_files, usage

_QUOTED_TEXT = re.compile(r"""'[^']*'|"[^"]*\"""")
_KEY_OF_SETTING = re.compile(r"\+*(\w+)[\w./]*=")
"""The beginning of a setting, such as ``+training.lr=``; its group is the first part of the key."""


def check_words(command: str, words: Sequence[str]) -> None:
    """Raise ConfigError if quotes are missing in a command line, or are around several settings.

    Args:
        command: the name of the command.
        words: the words that follow it.
    """
    _check_file_names(words)
    for index, word in enumerate(words):
        _check_one_setting(command, word)
        _check_brackets(words[index:])
        _check_comma(command, words[index:])
    _check_equals_sign(words)


def check_command_name(name: str, words: Sequence[str]) -> None:
    """Raise ConfigError if a whole command line is in one pair of quotes.

    Args:
        name: the first word of a command line.
        words: the other words.
    """
    parts = name.split()
    if len(parts) > 1 and parts[0] in (*usage.COMMANDS, "help"):
        line = " ".join(["agt", *parts, *map(shlex.quote, words)])
        raise ConfigError(
            f"'{name}' is one word, because it is in one pair of quotes: leave them out, and type "
            f"{line}"
        )


def _check_file_names(words: Sequence[str]) -> None:
    """Raise ConfigError if successive words are the name of one file, which has blanks."""
    for first, last in combinations(range(len(words)), 2):
        start, equals, value = words[first].rpartition("=")
        later = " ".join(words[first + 1 : last + 1])
        path = f"{value} {later}"
        if "=" not in later and os.path.exists(os.path.expanduser(path)):
            raise ConfigError(
                f"the name of the file '{path}' has a blank, so it needs quotes: type "
                f"{start}{equals}'{path}'"
            )


def _check_one_setting(command: str, word: str) -> None:
    """Raise ConfigError if a word has several settings of a command, with blanks between them."""
    first, *others = word.split() or [word]
    keys = config_files.top_level_keys(usage.COMMANDS[command].config)
    is_setting = [_group_of(part) in keys for part in others]
    if others and all(is_setting) and (_group_of(first) in keys or "=" not in first):
        line = shlex.join([first, *others])
        raise ConfigError(
            f"'{word}' is one word, because it is in one pair of quotes: put each setting in "
            f"quotes of its own, or in none, and type {line}"
        )


def _group_of(word: str) -> str:
    """Return the first part of a setting's key, such as ``training``; empty: it is no setting."""
    match = _KEY_OF_SETTING.match(word)
    return match[1] if match else ""


def _check_brackets(words: Sequence[str]) -> None:
    """Raise ConfigError if a list or mapping begins in the first word and ends in a later one."""
    key, _, value = words[0].partition("=")
    if not value.startswith(("[", "{")) or _open_brackets(value) <= 0:
        return
    for count in range(2, len(words) + 1):
        setting = " ".join(words[:count])
        if _open_brackets(setting) <= 0:
            _check_not_ids(key)
            raise ConfigError(
                f"{setting}: the shell divides a text at its blanks: put the whole setting in "
                f"quotes, as in {shlex.quote(setting)}"
            )


def _open_brackets(text: str) -> int:
    """Return how many brackets a text opens and does not close, apart from those in quotes."""
    brackets = _QUOTED_TEXT.sub("", text)
    opened = sum(map(brackets.count, "[{"))
    closed = sum(map(brackets.count, "]}"))
    return opened - closed


def _check_comma(command: str, words: Sequence[str]) -> None:
    """Raise ConfigError if a list without brackets begins in the first word and goes on after it.

    It goes on where a word ends with a comma, unless the next word is a setting or a file.
    """
    key, _, value = words[0].partition("=")
    if not value.endswith(",") or value.startswith(("[", "{", "'", '"')):
        return
    items = [value]
    for word in words[1:]:
        if not items[-1].endswith(",") or "=" in word or os.path.exists(word):
            break
        items.append(word)
    if len(items) == 1:
        return
    _check_not_ids(key)
    values = "".join(items).rstrip(",")
    remedy = f"for a sweep, type {key}={values} and -m"
    if key not in config_files.groups_of_command(usage.COMMANDS[command].config):
        remedy = f"for a list, type {key}=[{values}]; {remedy}"
    typed = " ".join(items)
    raise ConfigError(f"{key}={typed}: the shell divides a text at its blanks: {remedy}")


def _check_equals_sign(words: Sequence[str]) -> None:
    """Raise ConfigError if a setting was typed with blanks around its equals sign."""
    if "=" not in words:
        return
    index = words.index("=")
    key = words[index - 1] if index else "KEY"
    value = "".join(words[index + 1 : index + 2]) or "VALUE"
    raise ConfigError(
        f"'{key}' is not a setting: write settings as KEY=VALUE, without blanks around the equals "
        f"sign: type {key}={value}"
    )


def _check_not_ids(key: str) -> None:
    """Raise ConfigError for a list of ids of records, so that no message repeats an id."""
    if key == "ids":
        raise ConfigError(f"ids=...: {usage.IDS_NEED_A_FILE}")
