"""From whatever was raised to what the user reads: one message that says what to do, and an exit code."""

import re
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from agt.errors import AgtError, ConfigError, nearest
from agt_cli import usage

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
    hydra = _hydra_mistake(error, config, overrides)
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
        return f"'{error.override}' cannot be read: {str(error).splitlines()[0]}; quote special characters"
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
    known = nearest(option, error.options or ())
    if group == "training":  # also where it was chosen by dataset=NAME, with a dataset of the user's own
        return f"there are no training settings named '{option}': give training=NAME{known}"
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
