"""Explain exceptions to the user: one message that says what to do, and an exit code."""

import errno
import re
import shlex
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any

from agt.errors import SIMILARITY, AgtError, CheckError, ConfigError, nearest
from agt.parameters import WRITTEN_BY_AGT
from agt.store.dotted_keys import flatten_keys
from agt_cli import config_files, usage
from agt_cli.renamed import with_new_names
from agt_cli.typed_ranges import RANGE_KEYS, malformed_range

_RULE_FOR_NAMES = (
    "names in a mapping {...} must be written without quotes, as in {a.b: [0, 1], c d: [0, "
    "1]}. Names with letters outside ASCII can only be given in a file "
    "conf/dataset/NAME.yaml, which agt data inspect FILE writes"
)
_KEY_FOR_ARGUMENT = {
    "k": "kgrid.max",
    "ks": "kgrid.max",
    "network": "model.hidden",
    "eps": "noise.epsilon",
    "epsilon": "noise.epsilon",
    "delta": "noise.delta",
    "size": "dataset.declared_size",
    "n": "dataset.declared_size",
    "rows": "dataset.declared_size",
    "declared": "dataset.declared_size",
    "units": "dataset.unit",
    "ids": "dataset.id",
    "batches": "training.batch.count",
    "clip": "training.clip_elementwise",
    "settings": "training.chosen_on",
}
"""Keys that Python's arguments or other tools suggest, and nearly no key of agt resembles."""
_KEYS_OF_OTHER_TOOLS = {
    "learning_rate": "training.lr",
    "batch_size": "training.batch.count",
    "exclude": "drop",
    "ignore": "drop",
    "omit": "drop",
    "drop_columns": "drop",
}
"""The last part of a key as other tools have it, which resembles a wrong key of agt."""
LISTS_WITHOUT_DEFAULT = ("kgrid.values", "dataset.classes", "mechanisms", "only")
"""Settings that are lists, but null in the configuration."""
_TAKES_ANY_TEXT = ("unit", "label", "id", "name", "file", "inputs", "dataset.label", "dataset.id")
"""Settings whose value is a text that may have blanks, and no name that agt knows."""
_WITH_THOUSANDS_COMMAS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")
"""A number whose commas may separate thousands."""
_WITH_DECIMAL_COMMA = re.compile(r"[+-]?(0,\d+|\d+,(?!\d{3}$)\d+)")
"""A number with a decimal comma; it may be two whole numbers of a list as well. What may be a comma
for thousands (1,000) is none.
"""
_COMMA_SEPARATES = (
    "(A comma separates values: for a list, type {setting}=[{value}]; for a sweep, add -m)"
)
LESS_MEMORY = (
    "lower compute.memory_mb=... (or compute.fragment=...). If that does not help, use a "
    "smaller model, or fewer values of k (kgrid.max=...)"
)


@dataclass(frozen=True)
class _CommandLine:
    """The settings that were typed, and the command for which they were typed.

    Attributes:
        config: the command's primary configuration; empty: unknown.
        overrides: the settings that were typed.
    """

    config: str
    overrides: Sequence[str]

    @cached_property
    def groups(self) -> Sequence[str]:
        """The groups of which the command line chooses an option, such as ``dataset``."""
        return config_files.groups_of_command(self.config)

    @cached_property
    def composed(self) -> Mapping[str, Any]:
        """The configuration with the options of groups that were typed, but no other settings.

        It is empty if it cannot be composed, because it is only needed for suggestions.
        """
        from agt_cli.configuration import compose_unresolved

        choices = [
            word
            for word in self.overrides
            if word.partition("=")[0] in self.groups and "," not in word
        ]
        try:
            return compose_unresolved(self.config, choices)
        except Exception:
            return {}

    @cached_property
    def keys(self) -> Sequence[str]:
        """Every key of the configuration, and every mapping and group, as dotted keys.

        They have the names of records. Only the groups, if the configuration cannot be composed.
        """
        keys = dict.fromkeys(self.groups)
        for leaf in flatten_keys(self.composed):
            parts = leaf.split(".")
            keys.update(dict.fromkeys(".".join(parts[:end]) for end in range(1, len(parts) + 1)))
        return list(keys)

    @property
    def names(self) -> Sequence[str]:
        """The keys by their names for users."""
        return with_new_names(self.config, self.keys)

    def typed(self, key: str) -> str:
        """Return the setting that was typed for a key, without a plus sign; else the key."""
        for word in self.overrides:
            setting = word.lstrip("+")
            if setting.partition("=")[0] == key:
                return setting
        return key

    def takes_list(self, key: str) -> bool:
        """Return whether a setting is a list, as far as its value in the configuration shows."""
        if key in LISTS_WITHOUT_DEFAULT:
            return True
        node: object = self.composed
        for part in key.split("."):
            node = node.get(part) if isinstance(node, Mapping) else None
        return isinstance(node, list)


def explain(error: BaseException, config: str, overrides: Sequence[str]) -> AgtError | None:
    """Return an error with a message for the user; None: the error is a bug of agt.

    Args:
        error: the error that a command raised.
        config: the command's primary configuration; empty: unknown.
        overrides: the settings that were typed on the command line.
    """
    if isinstance(error, AgtError):
        return error
    mistake = _explain_broken_file(error) or _explain_hydra_error(
        error, _CommandLine(config, overrides)
    )
    if mistake:
        return ConfigError(mistake)
    if _out_of_memory(error):
        return AgtError(f"this machine does not have enough memory for this command: {LESS_MEMORY}")
    if isinstance(error, OSError):
        problem = error.strerror or str(error)
        if error.filename:
            problem = f"{error.filename}: {problem}"
        remedy = _REMEDIES.get(error.errno or 0)
        return AgtError(f"{problem}: {remedy}" if remedy else problem)
    return None


def error_fields(
    error: Exception, config: str, overrides: Sequence[str], verbose: bool
) -> dict[str, Any]:
    """Return the entries that --json prints about an error.

    Args:
        error: the error that a command raised.
        config: the command's primary configuration; empty: unknown.
        overrides: the settings that were typed on the command line.
        verbose: True: also print the traceback, if the error is a bug of agt.

    Returns:
        The message as ``error``, the ``exit_code``, and the results of a check that failed.
    """
    explained = explain(error, config, overrides)
    if explained is not None:
        results = explained.result if isinstance(explained, CheckError) else {}
        return {**results, "error": str(explained), "exit_code": explained.exit_code}
    if verbose:
        traceback.print_exception(error)
    class_name = type(error).__name__
    bug = (
        f"{class_name}: {error} (this is a bug in agt; run the command again with -v to see "
        "the traceback)"
    )
    return {"error": bug, "exit_code": AgtError.exit_code}


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
    """Return whether an error says that the memory of the processor or of a GPU is used up."""
    torch = sys.modules.get("torch")  # not imported here, because that takes seconds
    if isinstance(error, MemoryError) or (torch and isinstance(error, torch.OutOfMemoryError)):
        return True
    # PyTorch's CPU allocator has no exception class of its own.
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)


def _explain_broken_file(error: BaseException) -> str | None:
    """Return the message about a configuration file that is not valid YAML; None: another error."""
    from yaml import MarkedYAMLError, YAMLError  # type: ignore[import-untyped]

    if isinstance(error, MarkedYAMLError) and error.problem_mark:
        file = error.problem_mark.name
        line = error.problem_mark.line + 1
        problem = error.problem or error.context
        if "duplicate key" in str(problem):
            return f"{file}, line {line}: {problem}: leave one of the two lines out"
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
        paths = sorted(folder.rglob("*.yaml")) if folder else []
        broken = [str(path) for path in paths if not _is_text(path)]
        files = ", ".join(broken) or "a configuration file"
        return (
            f"{files}: this is not plain text in UTF-8: save the file as UTF-8 text without "
            "control characters"
        )
    return None


def _is_text(path: Path) -> bool:
    """Return whether a file is UTF-8 text without control characters."""
    text = path.read_text(encoding="utf-8", errors="surrogateescape")
    return all(letter.isprintable() or letter.isspace() for letter in text)


def _explain_hydra_error(error: BaseException, line: _CommandLine) -> str | None:
    """Return the message about settings that Hydra or OmegaConf refused; None: another error."""
    from hydra.errors import HydraException, MissingConfigException, OverrideParseException
    from omegaconf.errors import OmegaConfBaseException

    if isinstance(error, MissingConfigException):
        return _explain_missing_option(error)
    if isinstance(error, OverrideParseException):
        return _explain_malformed_override(error.override, line)
    if isinstance(error, HydraException):
        return _explain_removed_group(error, line) or _explain_refused_override(error, line)
    if isinstance(error, OmegaConfBaseException):
        interpolated = [word.partition("=")[0] for word in line.overrides if "${" in word]
        key = error.full_key or "".join(interpolated[:1])
        return f"{key}: {_one_line(error)}" if key else _one_line(error)
    if isinstance(error, ValueError) and _raised_in(error, "hydra"):
        return _explain_value_error(error, line)
    return None


def _explain_malformed_override(override: str, line: _CommandLine) -> str:
    """Return the message about a word of a command line that Hydra's grammar does not accept.

    Args:
        override: the word.
        line: the command line, which contains the word.
    """
    key, equals, value = override.partition("=")
    if not equals:
        suggestion = _suggest_quotes(override, line.overrides) or _suggest_setting(key, line)
        return f"'{override}' is not a setting: write settings as KEY=VALUE{suggestion}"
    if not key.strip("+~"):
        return f"'{override}' is not a setting: write settings as KEY=VALUE"
    if not key.isascii():
        hint = _suggest_key(key, line.names)
        return f"'{override}' cannot be read, because names of settings are ASCII{hint}"
    if key in RANGE_KEYS:
        return malformed_range(key, value)
    if "{" in value and re.search(r"[{,]\s*['\"]|[^\x00-\x7f]", value):
        return f"'{override}' cannot be read, because {_RULE_FOR_NAMES}"
    # Names may have blanks, and numbers have none.
    if value.startswith("[") and re.fullmatch(r"[-+.\w\[\],]*|[-+.\d\[\], ;]*", value):
        items = ",".join(re.findall(r"[-+.\w]+", value))
        return f"'{override}' cannot be read: write a list as {key}=[{items}]"
    text = value
    if re.search(r"""['"\\]""", value):
        text = "..."
    example = f"\"{key}='{text}'\""
    if value.startswith("["):
        example = f"\"{key}=['...']\""
    return (
        f"'{override}' cannot be read: close all brackets, and put text with special "
        f"characters in quotes, as in {example}"
    )


def _suggest_quotes(override: str, overrides: Sequence[str]) -> str:
    """Return a clause that puts quotes around a text with blanks, which the shell divided.

    Args:
        override: a word that is not a setting.
        overrides: the words of a command line, this word included.

    Returns:
        The clause; empty: the setting before this word does not take any text.
    """
    index = overrides.index(override)
    if index == 0:
        return ""
    key, equals, text = overrides[index - 1].partition("=")
    if not equals or key not in _TAKES_ANY_TEXT:
        return ""
    if key == "file" and Path(override).is_file():
        return ". This command reads one table: type it once for each file"
    if text[:1] == text[-1:] == "'":  # the shell had quotes around it
        text = text[1:-1]
    for word in overrides[index:]:
        if "=" in word:
            break
        text += f" {word}"
    return f"; did you mean {key}={shlex.quote(text)}?"


def _explain_removed_group(error: Exception, line: _CommandLine) -> str:
    """Return the message about a removed group (~GROUP) that others refer to; empty: none was."""
    removed = next((word for word in line.overrides if word.startswith("~")), "")
    if not removed or "Error resolving interpolation" not in str(error):
        return ""
    return (
        f"{removed}: this setting cannot be removed, because others depend on it: leave {removed} "
        "out"
    )


def _explain_refused_override(error: Exception, line: _CommandLine) -> str:
    """Return the message about an override that is well-formed, but wrong in this configuration.

    Args:
        error: Hydra's error, of whose text only the key and the value are used.
        line: the command line.
    """
    key = re.search(r"Could not override '([^']+)'", str(error))
    if key:
        return _explain_unknown_key(key[1], str(error), line)
    added = re.search(r"An item is already at '([^']+)'", str(error))
    if added:
        typed = line.typed(added[1])
        return f"+{typed}: this setting exists, so type it without a plus sign: {typed}"
    comma = re.match(r"Ambiguous value .* '([^=]+)=(.*)'", str(error))
    if comma:
        setting, value = comma.groups()
        return _explain_comma(setting, value, line)
    return _one_line(error)


def _explain_comma(setting: str, value: str, line: _CommandLine) -> str:
    """Return the message about a value with a comma, which only a sweep may have.

    It says what to type if the comma is part of a number, a list, a range or a text.

    Args:
        setting: the key.
        value: the value.
        line: the command line.
    """
    if setting == "ids":
        return f"ids=...: {usage.IDS_NEED_A_FILE}"
    if setting in line.groups:
        first = value.partition(",")[0]
        return (
            f"{setting}={value}: give one name, such as {setting}={first}; to run one job for "
            "each of these names, add -m"
        )
    if setting in RANGE_KEYS:
        return malformed_range(setting, value)
    number = value.replace(",", ".")
    has_decimal_comma = _WITH_DECIMAL_COMMA.fullmatch(value)
    if line.takes_list(setting):
        or_number = ""
        if has_decimal_comma and value.startswith("0"):
            or_number = f" (or, for the number {number}, {setting}=[{number}])"
        return f"{setting}={value}: this setting is a list: type {setting}=[{value}]{or_number}"
    comma = _COMMA_SEPARATES.format(setting=setting, value=value)
    if _WITH_THOUSANDS_COMMAS.fullmatch(value):
        whole_number = value.replace(",", "")
        return f"{setting}={value}: write numbers without commas, {setting}={whole_number}. {comma}"
    if has_decimal_comma:
        return f"{setting}={value}: write numbers with a decimal point, {setting}={number}. {comma}"
    return (
        f"{setting}={value}: a comma separates the values of a sweep, which needs -m. For a "
        f"list, type {setting}=[{value}]; for text with a comma, type "
        f"\"{setting}='{value}'\". Write numbers without a comma"
    )


def _explain_value_error(error: Exception, line: _CommandLine) -> str:
    """Return the message about what Hydra reports as a plain ValueError.

    That is a setting without a key, or a group without the name of an option.
    """
    about_group = "group override must be" in str(error)
    for word in line.overrides:
        group, _, value = word.partition("=")
        if not group:
            return f"'{word}' is not a setting: write settings as KEY=VALUE"
        no_name = value in ("null", "true", "false") or not re.search("[A-Za-z_]", value)
        if about_group and no_name and group in line.groups:
            options = nearest("", config_files.options_of_group(group))
            return f"{word}: the setting {group}=... needs the name of one of its options{options}"
    return _one_line(error)


def _did_you_mean(setting: str) -> str:
    """Return the clause that suggests to type a setting."""
    return f"; did you mean '{setting}'?"


def _suggest_setting(word: str, line: _CommandLine) -> str:
    """Return a clause that suggests what to type for a word that is not a setting.

    Args:
        word: the word.
        line: the command line.

    Returns:
        The clause, with the punctuation before it; empty if there is no suggestion.
    """
    if word in line.groups:
        options = nearest("", config_files.options_of_group(word))
        return f"{_did_you_mean(f'{word}=NAME')}{options}"
    left, colon, right = word.partition(":")
    if colon and right and left in line.keys:
        return _did_you_mean(f"{left}={right}")
    groups = [group for group in line.groups if word in config_files.options_of_group(group)]
    if groups:
        group = "dataset" if "dataset" in groups else groups[0]
        return _did_you_mean(f"{group}={word}")
    if word in line.names:
        return _did_you_mean(f"{word}=VALUE")
    if word == "latest" and "run" in line.names:
        return _did_you_mean("run=latest")
    return _suggest_key_for_path(word, line) or _suggest_key(word, line.names)


def _suggest_key_for_path(word: str, line: _CommandLine) -> str:
    """Return a clause that suggests what to type for a path that was given without a key.

    Empty: the word is not the path of a file or folder, or no setting takes such a path.
    """
    path = Path(word)
    if not path.exists():
        return ""
    if line.config in ("start", "data"):
        return "; this command reads one table at a time"
    keys = ("run", "output_dir") if path.is_dir() else ("inputs",)
    for key in keys:
        if key in line.names:
            return _did_you_mean(f"{key}={word}")
    if path.is_file():
        return f"; if this file is a table, type agt data inspect {word} to describe it"
    return ""


def _explain_missing_option(error: Any) -> str:
    """Return the message about an option of a group that does not exist.

    Args:
        error: Hydra's MissingConfigException.
    """
    group, _, option = (error.missing_cfg_file or "").rpartition("/")
    if message := _explain_path_for_name(group, option):
        return message
    if instead := usage.OLD_SPELLINGS.get(f"{group}={option}"):
        return instead
    known = nearest(option, error.options or config_files.options_of_group(group))
    # The option may have been chosen by dataset=NAME, with a dataset file of the user's own.
    if group == "training":
        return (
            f"there are no training settings named '{option}': give training=NAME{known}. For a "
            "dataset file of your own, agt chooses the training settings if the first line is "
            "'defaults: [table, _self_]' (or '[embeddings, _self_]')"
        )
    if group == "dataset":
        tables = [Path(f"{option}{suffix}") for suffix in (".csv", ".csv.gz", ".parquet")]
        for table in tables:
            if table.is_file():
                return (
                    f"unknown dataset '{option}', because conf/dataset/{option}.yaml, which "
                    f"describes the table {table}, does not exist: first type agt data inspect "
                    f"{table} (or agt start {table})"
                )
    return f"unknown {group} '{option}'{known}"


def _explain_path_for_name(group: str, option: str) -> str:
    """Return the message about a path that was given as an option; empty: the option is not a path.

    Hydra takes the folders of the path for groups inside the group.

    Args:
        group: the group, followed by the folders of the path.
        option: the last part of the path.
    """
    first, _, folders = group.partition("/")
    known = (
        config_files.options_of_group(first)
        if first in ("dataset", "experiment", "training")
        else ()
    )
    path = Path(folders, option)
    stem = option.partition(".")[0]
    if not known or (not folders and path.suffix in ("", ".yaml")):
        return ""
    typed = f"{first}={path}"
    if path.suffix == ".yaml" and stem in known:
        return f"{typed}: the name of the file is enough: type {first}={stem}"
    if first == "dataset" and path.suffix.lower() == ".npz" and path.exists():
        return (
            f"{typed}: this is a file of arrays, and not the name of a data set: give "
            f"dataset=embeddings dataset.path={path} (agt start {path} prints the whole line)"
        )
    if first == "dataset" and path.suffix and path.exists():
        remedy = f"first type agt data inspect {path}, and then give dataset={stem}"
        if stem in known:
            remedy = f"the data set {stem} describes this table: give dataset={stem}"
        return f"{typed}: this is the file of a table, and not the name of a data set; {remedy}"
    return f"{typed}: {first}=... needs a name, and not a path{nearest(stem, known)}"


def _explain_unknown_key(key: str, message: str, line: _CommandLine) -> str:
    """Return the message about a key that Hydra does not find in the configuration.

    It may exist: Hydra also refuses new entries of a mapping, as in KEY={...}.

    Args:
        key: the key, as Hydra names it.
        message: Hydra's error message.
        line: the command line.
    """
    if "/" in key and key in line.groups:
        return (
            f"{key}: this setting needs a linear model: add model=linear certificate=stability "
            "(or model=linear certificate=erm)"
        )
    if key in line.keys:
        with_plus = message.rpartition("to your config use ")[2]
        return (
            f"new entries of the setting '{key}' must be given with a plus sign: type '{with_plus}'"
        )
    for word in line.overrides:
        if instead := usage.OLD_SPELLINGS.get(f"{word} {key}"):
            return f"{key}: {instead}"
    return (
        _explain_key_of_finished_run(key, line)
        or _explain_key_of_data(key, line)
        or _explain_own_network(key, line)
        or f"unknown key '{key}'{_suggest_known_key(key, line)}"
    )


def _explain_key_of_finished_run(key: str, line: _CommandLine) -> str:
    """Return the message about a key that only a training has, or only a finished run.

    Empty: the command and the key are others.
    """
    if "run" in line.keys and key in ("k", "ks"):
        return (
            f"unknown key '{key}': agt {line.config} shows every k for which the run was trained "
            "(kgrid.max=... of agt train), so leave it out"
        )
    if "run" in line.keys and key in _CommandLine(usage.COMMANDS["train"].config, ()).keys:
        return (
            f"'{key}' is a setting of agt train and cannot be changed for a finished run: train "
            f"again with agt train {line.typed(key)}"
        )
    if key != "run" or "dataset" not in line.keys:
        return ""
    remedy = "give dataset=NAME, such as the dataset=... with which the run was trained"
    if line.config == "train":
        remedy = (
            "to train with other settings, type the run's command (argv in its env.json) with "
            "them; to continue a killed run, type agt train resume=FOLDER"
        )
    return f"unknown key 'run': agt {line.config} works on data and not on a trained run: {remedy}"


def _explain_key_of_data(key: str, line: _CommandLine) -> str:
    """Return the message about a column that was given as a key, or was to be left out; or empty.

    The range of a column, for example, is typed as ranges={COLUMN: [LOW, HIGH]}.
    """
    value = line.typed(key).partition("=")[2]
    if line.config == "data" and key in ("unit", "unit_rows"):
        return (
            f"unknown key '{key}': agt start takes the person's column and a limit on the rows of "
            "one person, as in id=COLUMN unit_rows=NUMBER; in a dataset file, write the lines "
            "unit: COLUMN and unit_rows: NUMBER in the place of id"
        )
    if "ranges" in line.keys and re.fullmatch(r"\[[^,]+,[^,]+\]", value):
        suggestion = _did_you_mean(f"ranges={{{key}: {value}}}")
        return f"unknown key '{key}'{suggestion}"
    if key.rpartition(".")[2] == "drop" and "dataset" in line.keys:
        return (
            f"unknown key '{key}': to leave a column out, delete its line under numeric or "
            "categorical in the dataset file, or write the file again with agt data inspect FILE "
            "drop=[COLUMN] force=true"
        )
    return ""


def _suggest_known_key(key: str, line: _CommandLine) -> str:
    """Return a clause that suggests a key for an unknown one, or says how to list all.

    A similar key of agt comes last: what other tools call a setting says more.
    """
    # A name of another tool may be misspelt, too.
    similar = get_close_matches(key.rpartition(".")[2], _KEYS_OF_OTHER_TOOLS, n=1, cutoff=0.8)
    own_key = _KEYS_OF_OTHER_TOOLS[similar[0]] if similar else None
    if own_key in line.keys:
        return _did_you_mean(str(own_key))
    suggestion = _suggest_inner_group(key, line)
    has_same_name = any(known.rpartition(".")[2] == key for known in line.names)
    if not suggestion and not has_same_name and _KEY_FOR_ARGUMENT.get(key) in line.names:
        suggestion = _did_you_mean(_KEY_FOR_ARGUMENT[key])
    suggestion = suggestion or _suggest_key(key, line.names)
    return suggestion or f"; agt {line.config} --help lists the settings"


def _explain_own_network(key: str, line: _CommandLine) -> str:
    """Return the message about a key that was to name a part of a training, such as a network.

    Empty: the command trains and has such parts, or the key is another mistake.
    """
    part = key.partition(".")[0]
    if line.config in ("start", "data") and part in ("model", "certificate", "training"):
        return (
            f"'{key}' is a setting of agt train: agt start trains linear models only, and agt data "
            "trains none. For a network of your own, first describe the table (agt start FILE or "
            "agt data inspect FILE), and then type agt train dataset=NAME model=custom "
            "model._target_=MODULE.FUNCTION"
        )
    if line.config != "train" or part != "model":
        return ""
    # Imported only for messages.
    from agt_cli.networks import check_code_as_option

    try:
        check_code_as_option(line.typed(key), line.overrides)
    except ConfigError as error:
        return str(error)
    return ""


def _suggest_inner_group(key: str, line: _CommandLine) -> str:
    """Return a clause that suggests a group inside another one for an unknown key; else empty.

    Such a group is typed with a slash: ``certificate/features=relu``, and not ``features=relu`` or
    ``certificate.features=relu``.
    """
    for group in line.groups:
        if "/" in group and key in (group.rpartition("/")[2], group.replace("/", ".")):
            value = line.typed(key).partition("=")[2] or "NAME"
            return _did_you_mean(f"{group}={value}")
    return ""


def _suggest_key(key: str, keys: Sequence[str]) -> str:
    """Return a clause that suggests a key for an unknown one; empty: no key is similar.

    It is one with the same last part, if there is one; else a similar one of the same mapping; else
    a similar one.

    Args:
        key: the unknown key.
        keys: all keys, by their names for users.
    """
    prefix, _, name = key.rpartition(".")
    siblings = []
    with_same_name = []
    for known in keys:
        known_prefix, _, known_name = known.rpartition(".")
        if known_prefix == prefix and known_name not in WRITTEN_BY_AGT:
            siblings.append(known_name)
        if known_name == name:
            with_same_name.append(known)
    if siblings and not with_same_name and prefix:
        return nearest(name, siblings, prefix=f"{prefix}.")
    in_capitals = [known for known in keys if known.casefold() == key.casefold()]
    similar = with_same_name or in_capitals or get_close_matches(key, keys, n=1, cutoff=SIMILARITY)
    return _did_you_mean(similar[0]) if similar else ""


def _one_line(error: BaseException) -> str:
    """Return the message of an error of Hydra or OmegaConf in one line, with that of its cause."""
    lines = [line.strip() for line in str(error).splitlines()]
    cause = str(error.__cause__).splitlines()[:1] if error.__cause__ else []
    return "; ".join(
        line
        for line in [*lines, *cause]
        if line and "object_type" not in line and "full_key" not in line
    )


def _raised_in(error: BaseException, package: str) -> bool:
    """Return whether the statement that raised an error is in a module of a package."""
    frames = list(traceback.walk_tb(error.__traceback__))
    return bool(frames) and frames[-1][0].f_globals.get("__name__", "").split(".")[0] == package
