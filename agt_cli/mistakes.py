"""From whatever was raised to what the user reads: one message that says what to do, and an exit code."""

import re
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from agt.errors import AgtError, ConfigError, nearest
from agt_cli import usage

_NAMES = (
    "names in a mapping take no quotes: {a.b: [0, 1], c d: [0, 1]}; with letters beyond ASCII they go into a file "
    "conf/dataset/NAME.yaml (agt data inspect FILE writes one)"
)
MEMORY = "lower compute.memory_mb or compute.fragment, or use a smaller model or a shorter kgrid"


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
        return AgtError(f"out of memory: {MEMORY}")
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return AgtError(f"{where}{error.strerror or error}")
    return None


def _out_of_memory(error: BaseException) -> bool:
    torch = sys.modules.get("torch")
    if isinstance(error, MemoryError) or (torch and isinstance(error, torch.OutOfMemoryError)):
        return True
    # PyTorch's CPU allocator has no exception class of its own.
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)


def _broken_file(error: BaseException) -> str | None:
    """The message for a configuration file of the user's own that is no yaml; None if it is something else."""
    from yaml import MarkedYAMLError, YAMLError  # type: ignore[import-untyped]

    if isinstance(error, MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        where = f"{mark.name}, line {mark.line + 1}" if mark else "a configuration file"
        begun = f" ({error.context} from line {error.context_mark.line + 1} on)" if error.context_mark else ""
        return f"{where}: {error.problem or error.context}{begun}: repair it, or quote special characters"
    if isinstance(error, YAMLError | UnicodeDecodeError):
        return f"{_not_text() or 'a configuration file'}: no text in UTF-8 without control characters: save it as that"
    return None


def _not_text() -> str:
    """The first of the user's own configuration files that cannot be read as text."""
    folder = usage.user_conf()
    for path in sorted(folder.rglob("*.yaml")) if folder else ():
        try:
            if not all(letter.isprintable() or letter.isspace() for letter in path.read_text(encoding="utf-8")):
                return str(path)
        except UnicodeDecodeError:
            return str(path)
    return ""


def _hydra_mistake(error: BaseException, config: str, overrides: Sequence[str]) -> str | None:
    """The message for a fault in overrides or configuration files; None if it is something else."""
    from hydra.errors import HydraException, MissingConfigException, OverrideParseException
    from omegaconf.errors import OmegaConfBaseException

    if isinstance(error, MissingConfigException):
        return _missing_option(error)
    if isinstance(error, OverrideParseException):
        if "=" not in error.override and "missing EQUAL" in str(error):
            meant = _known_key(error.override, config, overrides)
            return f"'{error.override}' is no setting: settings are KEY=VALUE{meant}"
        names = "{" in error.override and re.search(r"[{,]\s*['\"]|[^\x00-\x7f]", error.override)
        remedy = _NAMES if names else "quote special characters"
        return f"'{error.override}' cannot be read: {str(error).splitlines()[0]}; {remedy}"
    if isinstance(error, HydraException):
        key = re.search(r"Could not override '([^']+)'", str(error))
        if key:
            return _unknown_key(key[1], str(error), config, overrides)
        return _one_line(error)
    if isinstance(error, OmegaConfBaseException):
        return _one_line(error)
    # Hydra reports flags that exclude each other as a plain ValueError.
    if isinstance(error, ValueError) and _raised_in(error, "hydra"):
        return _one_line(error)
    return None


def _missing_option(error: Any) -> str:
    group, _, option = (error.missing_cfg_file or "").rpartition("/")
    if not group:
        return _one_line(error)
    known = nearest(option, error.options or usage.options(group))
    if group == "training":  # also where it was chosen by dataset=NAME, with a dataset of the user's own
        file = usage.options("dataset").get(option)
        begin = f", or let {file} begin with defaults: [table, _self_] (or embeddings)" if file else ""
        return f"there are no training settings named '{option}': give training=NAME{begin}{known}"
    return f"unknown {group} '{option}'{known}"


def _unknown_key(key: str, message: str, config: str, overrides: Sequence[str]) -> str:
    """Hydra refuses a key that is not there, and new entries for one that is (a mapping given as {...})."""
    added = message.rpartition("To append to your config use ")[2]
    if key in _flatten(_compose(config, overrides)):
        return f"'{key}' takes new entries with a plus sign: '{added}'"
    return f"unknown key '{key}'{_known_key(key, config, overrides)}"


def _known_key(key: str, config: str, overrides: Sequence[str]) -> str:
    """A suffix naming the key that was probably meant: the same name elsewhere, or the nearest beside it."""
    composed = _compose(config, overrides)
    prefix, _, name = key.rpartition(".")
    elsewhere = [known for known in _flatten(composed) if known.rpartition(".")[2] == name]
    if elsewhere:
        return f"; did you mean '{elsewhere[0]}'?"
    node: Any = composed
    for part in prefix.split(".") if prefix else ():
        node = node.get(part) if isinstance(node, Mapping) else None
    if isinstance(node, Mapping):
        return nearest(name, node)
    close = get_close_matches(key, list(_flatten(composed)), n=1, cutoff=0.5)  # far too many keys to list them all
    return f"; did you mean '{close[0]}'?" if close else ""


def _compose(config: str, overrides: Sequence[str]) -> dict[str, Any]:
    """The configuration with the choices of groups that the command line makes, and none of its other settings."""
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    groups = usage.groups(config)
    choices = [o for o in overrides if o.partition("=")[0] in groups and "," not in o]
    try:
        with initialize_config_dir(str(usage.config_dir()), version_base="1.3"):
            node = OmegaConf.to_container(compose(config, choices), resolve=False)
    except Exception:  # broken in a second way, or from a --config-dir: a suggestion is not worth failing for
        return {}
    # Groups are keys too, even those like experiment that leave no node.
    return dict.fromkeys(groups) | {str(key): value for key, value in node.items()} if isinstance(node, dict) else {}


def _flatten(node: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in node.items():
        yield f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")


def _one_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines()]
    cause = str(error.__cause__).splitlines()[:1] if error.__cause__ else []
    return "; ".join(line for line in [*lines, *cause] if line and "object_type" not in line)


def _raised_in(error: BaseException, package: str) -> bool:
    frames = list(traceback.walk_tb(error.__traceback__))
    return bool(frames) and frames[-1][0].f_globals.get("__name__", "").split(".")[0] == package
