"""From whatever was raised to what the user reads: one message that says what to do, and an exit
code.
"""

import errno
import re
import sys
import traceback
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from agt.errors import AgtError, CheckError, ConfigError, nearest
from agt.parameters import WRITTEN_BY_AGT
from agt.store.dotted_keys import flatten_keys
from agt_cli import config_files, usage
from agt_cli.renamed import with_new_names
from agt_cli.typed_ranges import RANGE_KEYS, malformed_range

_NAMES = (
    "names in a mapping {...} must be written without quotes, as in {a.b: [0, 1], c d: [0, "
    "1]}. Names with letters outside ASCII can only be given in a file "
    "conf/dataset/NAME.yaml, which agt data inspect FILE writes"
)
_MEANT = {
    "k": "kgrid.max",
    "ks": "kgrid.max",
    "network": "model.hidden",
    "eps": "noise.epsilon",
    "epsilon": "noise.epsilon",
    "delta": "noise.delta",
}
"""Keys that Python's arguments or other tools suggest, and nearly no key of agt resembles."""
_OF_OTHER_TOOLS = {
    "learning_rate": "training.lr",
    "batch_size": "training.batch.count",
    "exclude": "drop",
    "ignore": "drop",
    "omit": "drop",
    "drop_columns": "drop",
}
"""The last part of a key as other tools have it, which resembles a wrong key of agt."""
_WITH_DECIMAL_COMMA = re.compile(r"[+-]?(0,\d+|\d+,(?!\d{3}$)\d+)")
"""A number with a decimal comma; it may be two whole numbers of a list as well. What may be a comma
for thousands (1,000) is none.
"""
MEMORY = (
    "lower compute.memory_mb=... (or compute.fragment=...). If that does not help, use a "
    "smaller model, or fewer values of k (kgrid.max=...)"
)


def explain(error: BaseException, config: str, overrides: Sequence[str]) -> AgtError | None:
    """The error as one meant for the user, or None if it is a bug.

    Args:
        error: what a command raised.
        config: the command's primary configuration.
        overrides: the command line's overrides.
    """
    if isinstance(error, AgtError):
        return error
    hydra = _broken_file(error) or _hydra_mistake(error, config, overrides)
    if hydra:
        return ConfigError(hydra)
    if _out_of_memory(error):
        return AgtError(f"this machine does not have enough memory for this command: {MEMORY}")
    if isinstance(error, OSError):
        problem = error.strerror or str(error)
        if error.filename:
            problem = f"{error.filename}: {problem}"
        remedy = _REMEDIES.get(error.errno or 0)
        return AgtError(f"{problem}: {remedy}" if remedy else problem)
    return None


def failure(
    error: Exception, config: str, overrides: Sequence[str], verbose: bool
) -> dict[str, Any]:
    """What --json says of an error: ``error``, ``exit_code``, and what a check that was not met
    found.

    Args:
        verbose: print the traceback of a bug.
    """
    known = explain(error, config, overrides)
    if known is None and verbose:
        traceback.print_exception(error)
    kind_of_error = type(error).__name__
    bug = (
        f"{kind_of_error}: {error} (this is a bug in agt; run the command again with -v to see "
        "the traceback)"
    )
    facts = known.result if isinstance(known, CheckError) else {}
    return {
        **facts,
        "error": str(known) if known else bug,
        "exit_code": known.exit_code if known else AgtError.exit_code,
    }


_REMEDIES = {
    **dict.fromkeys(
        (errno.ENOSPC, errno.EDQUOT, errno.EFBIG),
        "free some space on the disk, or give output_dir=FOLDER on another disk",
    ),
    **dict.fromkeys(
        (errno.EACCES, errno.EPERM, errno.EROFS),
        "agt may not write to this place: give output_dir=FOLDER, a folder to which you may write",
    ),
    **dict.fromkeys(
        (errno.ENOTDIR, errno.EEXIST),
        "a file already has the name of a folder that agt needs: rename the file, or give "
        "output_dir=FOLDER",
    ),
}


def _out_of_memory(error: BaseException) -> bool:
    torch = sys.modules.get("torch")
    if isinstance(error, MemoryError) or (torch and isinstance(error, torch.OutOfMemoryError)):
        return True
    # PyTorch's CPU allocator has no exception class of its own.
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)


def _broken_file(error: BaseException) -> str | None:
    """The message for a configuration file of the user's own that is no yaml; None if it is
    something else.
    """
    from yaml import MarkedYAMLError, YAMLError  # type: ignore[import-untyped]

    if isinstance(error, MarkedYAMLError) and error.problem_mark:
        file = error.problem_mark.name
        line = error.problem_mark.line + 1
        problem = error.problem or error.context
        if error.context_mark:
            first_line = error.context_mark.line + 1
            context = error.context
            problem = f"{problem} ({context} that begins in line {first_line})"
        return (
            f"{file}, line {line}: {problem}. Correct this line; text with special characters "
            "must be in quotes"
        )
    if isinstance(error, YAMLError | UnicodeDecodeError):
        folder = config_files.user_conf()
        unread = (
            [str(path) for path in sorted(folder.rglob("*.yaml")) if not _is_text(path)]
            if folder
            else []
        )
        files = ", ".join(unread) or "a configuration file"
        return (
            f"{files}: this is not plain text in UTF-8: save the file as UTF-8 text without "
            "control characters"
        )
    return None


def _is_text(path: Path) -> bool:
    text = path.read_text(encoding="utf-8", errors="surrogateescape")
    return all(letter.isprintable() or letter.isspace() for letter in text)


def _hydra_mistake(error: BaseException, config: str, overrides: Sequence[str]) -> str | None:
    """The message for a fault in overrides or configuration files; None if it is something else."""
    from hydra.errors import HydraException, MissingConfigException, OverrideParseException
    from omegaconf.errors import OmegaConfBaseException

    if isinstance(error, MissingConfigException):
        return _missing_option(error)
    if isinstance(error, OverrideParseException):
        return _unreadable(error, config, overrides)
    if isinstance(error, HydraException):
        return _removed_group(error, overrides) or _refused_override(error, config, overrides)
    if isinstance(error, OmegaConfBaseException):
        key = error.full_key or next(
            (word.partition("=")[0] for word in overrides if "${" in word), ""
        )
        return f"{key}: {_one_line(error)}" if key else _one_line(error)
    if isinstance(error, ValueError) and _raised_in(error, "hydra"):
        return _no_choice(error, config, overrides)
    return None


def _unreadable(error: Any, config: str, overrides: Sequence[str]) -> str:
    """An override that Hydra's grammar does not take."""
    override = error.override
    key, equals, value = override.partition("=")
    if equals and not key.isascii():
        hint = _known_key(key, with_new_names(config, _keys(config, overrides)))
        return f"'{override}' cannot be read, because names of settings are ASCII{hint}"
    if not equals or not key.strip("+~"):
        suggestion = _joined(key, overrides) if equals else _meant(key, config, overrides)
        if not equals and "=" in overrides:
            suggestion = _joined(key, overrides)
        return f"'{override}' is not a setting: write settings as KEY=VALUE{suggestion}"
    if key in RANGE_KEYS:
        return malformed_range(key, value)
    if "{" in value and re.search(r"[{,]\s*['\"]|[^\x00-\x7f]", value):
        rule = _NAMES
        return f"'{override}' cannot be read, because {rule}"
    text = "..." if re.search(r"""['"\\]""", value) else value
    example = f"\"{key}=['...']\"" if value.startswith("[") else f"\"{key}='{text}'\""
    return (
        f"'{override}' cannot be read: close all brackets, and put text with special "
        f"characters in quotes, as in {example}"
    )


def _joined(key: str, overrides: Sequence[str]) -> str:
    """A suffix for an equals sign with blanks around it; empty: there is none."""
    if "=" not in overrides:
        return ""
    place = overrides.index("=")
    value = "".join(overrides[place + 1 : place + 2]) or "VALUE"
    before = overrides[place - 1] if place else "KEY"
    return f", without blanks around the equals sign: type {before}={value}"


def _removed_group(error: Exception, overrides: Sequence[str]) -> str:
    """Return the message for a group that was removed and that another refers to; else empty."""
    removed = next((word for word in overrides if word.startswith("~")), "")
    if not removed or "Error resolving interpolation" not in str(error):
        return ""
    return (
        f"{removed}: this setting cannot be removed, because others depend on it: leave {removed} "
        "out"
    )


def _refused_override(error: Exception, config: str, overrides: Sequence[str]) -> str:
    """An override that can be read and does not fit the configuration."""
    key = re.search(r"Could not override '([^']+)'", str(error))
    if key:
        return _unknown_key(key[1], str(error), config, overrides)
    comma = re.match(r"Ambiguous value .* '([^=]+)=(.*)'", str(error))
    if comma:
        setting, value = comma.groups()
        if setting == "ids":
            return f"ids=...: {usage.IDS_NEED_A_FILE}"
        if setting in config_files.groups(config):
            first = value.partition(",")[0]
            return (
                f"{setting}={value}: give one name, such as {setting}={first}; to run one job for "
                "each of these names, add -m"
            )
        return _comma(setting, value)
    return _one_line(error)


def _comma(setting: str, value: str) -> str:
    """What a comma in a value may have meant: a number's, a list's, a sweep's or a text's."""
    if setting in RANGE_KEYS:
        return malformed_range(setting, value)
    if _WITH_DECIMAL_COMMA.fullmatch(value):
        number = value.replace(",", ".")
        return (
            f"{setting}={value}: write numbers with a decimal point, {setting}={number}. (A comma "
            f"separates values: for a list, type {setting}=[{value}]; for a sweep, add -m)"
        )
    return (
        f"{setting}={value}: a comma separates the values of a sweep, which needs -m. For a "
        f"list, type {setting}=[{value}]; for text with a comma, type "
        f"\"{setting}='{value}'\". Write numbers without a comma"
    )


def _no_choice(error: Exception, config: str, overrides: Sequence[str]) -> str:
    """What Hydra reports as a plain ValueError: a setting without a key, and a group that is
    given no name.
    """
    for word in overrides:
        group, _, value = word.partition("=")
        if not group:
            return f"'{word}' is not a setting: write settings as KEY=VALUE"
        no_name = value in ("null", "true", "false") or not re.search("[A-Za-z_]", value)
        if (
            "group override must be" in str(error)
            and group in config_files.groups(config)
            and no_name
        ):
            options = nearest("", config_files.options(group))
            return f"{word}: the setting {group}=... needs the name of one of its options{options}"
    return _one_line(error)


def _meant(word: str, config: str, overrides: Sequence[str]) -> str:
    """A suffix saying how a word that is no setting was probably meant."""
    groups = config_files.groups(config)
    if word in groups:
        options = nearest("", config_files.options(word))
        return f"; did you mean '{word}=NAME'?{options}"
    left, colon, right = word.partition(":")
    if colon and right and left in (*groups, *_keys(config, overrides)):
        return f"; did you mean '{left}={right}'?"
    choices = [group for group in groups if word in config_files.options(group)]
    if choices:
        group = "dataset" if "dataset" in choices else choices[0]
        return f"; did you mean '{group}={word}'?"
    keys = with_new_names(config, _keys(config, overrides))
    if word in keys:
        return f"; did you mean '{word}=VALUE'?"
    if word == "latest" and "run" in keys:
        return "; did you mean 'run=latest'?"
    path = Path(word)
    if path.exists() and config in ("start", "data"):
        return "; this command reads one table at a time"
    if path.exists():
        key = "run" if path.is_dir() else "inputs"
        return (
            f"; did you mean '{key}={word}'?"
            if key in keys
            else f"; if this file is a table, type agt data inspect {word} to describe it"
        )
    return _known_key(word, keys)


def _missing_option(error: Any) -> str:
    group, _, option = (error.missing_cfg_file or "").rpartition("/")
    if not group:
        return _one_line(error)
    if path := _path_for_name(group, option):
        return path
    if instead := usage.OLD_SPELLINGS.get(f"{group}={option}"):
        return instead
    known = nearest(option, error.options or config_files.options(group))
    # also where it was chosen by dataset=NAME, with a dataset of the user's own
    if group == "training":
        return (
            f"there are no training settings named '{option}': give training=NAME{known}. For a "
            "dataset file of your own, agt chooses the training settings if the first line is "
            "'defaults: [table, _self_]' (or '[embeddings, _self_]')"
        )
    return f"unknown {group} '{option}'{known}"


def _path_for_name(group: str, option: str) -> str:
    """The message for a path where the name of an option is needed; empty: it is no path.

    Args:
        group: the group, with the path's folders behind it.
        option: the path's last part.
    """
    first, _, folders = group.partition("/")
    known = config_files.options(first) if first in ("dataset", "experiment", "training") else ()
    path = Path(folders, option)
    stem = option.partition(".")[0]
    if not known or (not folders and path.suffix in ("", ".yaml")):
        return ""
    typed = f"{first}={path}"
    if path.suffix == ".yaml" and stem in known:
        return f"{typed}: the name of the file is enough: type {first}={stem}"
    if first == "dataset" and path.suffix and path.exists():
        remedy = f"first type agt data inspect {path}, and then give dataset={stem}"
        if stem in known:
            remedy = f"the data set {stem} describes this table: give dataset={stem}"
        return f"{typed}: this is the file of a table, and not the name of a data set; {remedy}"
    return f"{typed}: {first}=... needs a name, and not a path{nearest(stem, known)}"


def _unknown_key(key: str, message: str, config: str, overrides: Sequence[str]) -> str:
    """Hydra refuses a key that is not there, and new entries for one that is (a mapping given as
    {...}).
    """
    added = message.rpartition("to your config use ")[2]
    recorded = _keys(config, overrides)  # composed again: once
    keys = with_new_names(config, recorded)
    if key in recorded:
        return f"new entries of the setting '{key}' must be given with a plus sign: type '{added}'"
    if "/" in key and key in config_files.groups(config):
        return (
            f"{key}: this setting needs a linear model: add model=linear certificate=stability "
            "(or model=linear certificate=erm)"
        )
    if "run" in recorded and key in _keys(usage.COMMANDS["train"].config, ()):
        typed = next((word for word in overrides if word.lstrip("+").startswith(f"{key}=")), key)
        return (
            f"'{key}' is a setting of agt train and cannot be changed for a finished run: train "
            f"again with agt train {typed}"
        )
    if key.rpartition(".")[2] == "drop" and "dataset" in recorded:
        return (
            f"unknown key '{key}': to leave a column out, delete its line under numeric or "
            "categorical in the dataset file, or write the file again with agt data inspect FILE "
            "drop=[COLUMN] force=true"
        )
    suggestion = _group_within(key, config, overrides) or _known_key(key, keys)
    if not suggestion and _MEANT.get(key) in recorded:
        suggestion = f"; did you mean '{_MEANT[key]}'?"
    elsewhere = _OF_OTHER_TOOLS.get(key.rpartition(".")[2])
    if elsewhere in recorded:
        suggestion = f"; did you mean '{elsewhere}'?"
    return f"unknown key '{key}'{suggestion}"


def _group_within(key: str, config: str, overrides: Sequence[str]) -> str:
    """A suffix naming the group inside another one that a key was probably meant for; empty: none.

    Such a group is typed with a slash: ``certificate/features=relu``, and not ``features=relu`` or
    ``certificate.features=relu``.
    """
    groups = [
        group
        for group in config_files.groups(config)
        if "/" in group and key in (group.rpartition("/")[2], group.replace("/", "."))
    ]
    if not groups:
        return ""
    typed = [word.partition("=") for word in overrides]
    value = next((value for name, _, value in typed if name.lstrip("+") == key), "NAME")
    return f"; did you mean '{groups[0]}={value}'?"


def _known_key(key: str, keys: Sequence[str]) -> str:
    """A suffix naming the key that was probably meant: the same name elsewhere, or the nearest.

    Args:
        keys: those there are (``_keys``), by their names for users.
    """
    prefix, _, name = key.rpartition(".")
    beside = [known.rpartition(".")[2] for known in keys if known.rpartition(".")[0] == prefix]
    beside = [name for name in beside if name not in WRITTEN_BY_AGT]
    elsewhere = [known for known in keys if known.rpartition(".")[2] == name]
    if beside and not elsewhere and prefix:
        return nearest(name, beside)
    # far too many keys to list them all
    close = elsewhere or get_close_matches(key, keys, n=1, cutoff=0.5)
    if not close:
        return ""
    nearest_key = close[0]
    return f"; did you mean '{nearest_key}'?"


def _keys(config: str, overrides: Sequence[str]) -> list[str]:
    """Every key of the configuration, groups as the command line chooses them; its other
    settings are left out.
    """
    from agt_cli.configuration import compose_unresolved

    groups = config_files.groups(config)
    choices = [o for o in overrides if o.partition("=")[0] in groups and "," not in o]
    try:
        leaves = [key.split(".") for key in flatten_keys(compose_unresolved(config, choices))]
    except Exception:
        # broken in a second way, or from a --config-dir: a suggestion is not worth failing for
        return []
    above = dict.fromkeys(
        ".".join(parts[:end]) for parts in leaves for end in range(1, len(parts) + 1)
    )
    # groups are keys too, even those like experiment that leave no node
    return [*dict.fromkeys((*groups, *above))]


def _one_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines()]
    cause = str(error.__cause__).splitlines()[:1] if error.__cause__ else []
    return "; ".join(
        line
        for line in [*lines, *cause]
        if line and "object_type" not in line and "full_key" not in line
    )


def _raised_in(error: BaseException, package: str) -> bool:
    frames = list(traceback.walk_tb(error.__traceback__))
    return bool(frames) and frames[-1][0].f_globals.get("__name__", "").split(".")[0] == package
