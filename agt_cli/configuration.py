"""A command's configuration: conf/ and the user's own ./conf, composed by Hydra with the
overrides of a command line.
"""

import logging
import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from itertools import product
from pathlib import Path
from typing import Any, NoReturn, cast

from hydra import compose, initialize_config_dir
from hydra._internal.hydra import Hydra
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigLoadError, ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, OmegaConf

from agt.errors import ConfigError, nearest
from agt.store.manifest import read_digest
from agt_cli import config_files, usage
from agt_cli.networks import missing_words

SUBMITIT = {  # of every cluster
    "submitit_folder": "${hydra.sweep.dir}/.submitit/%j",
    "name": "${hydra.job.name}",
    **{
        "timeout_min": 60,
        "cpus_per_task": None,
        "gpus_per_node": None,
        "tasks_per_node": 1,
        "mem_gb": None,
        "nodes": 1,
    },
    "stderr_to_stdout": False,
}

_SBATCH = (
    "partition",
    "qos",
    "comment",
    "constraint",
    "exclude",
    "gres",
    "cpus_per_gpu",
    "gpus_per_task",
    "mem_per_gpu",
)

_SLURM = {
    **dict.fromkeys((*_SBATCH, "mem_per_cpu", "account", "setup")),
    **{
        "signal_delay_s": 120,
        "max_num_timeout": 0,
        "additional_parameters": {},
        "array_parallelism": 256,
    },
}

_JOBLIB = {
    **{
        "n_jobs": -1,
        "backend": None,
        "prefer": "processes",
        "require": None,
        "verbose": 0,
        "timeout": None,
    },
    **{
        "pre_dispatch": "2*n_jobs",
        "batch_size": "auto",
        "temp_folder": None,
        "max_nbytes": None,
        "mmap_mode": "r",
    },
}

LAUNCHERS: dict[str, dict[str, Any]] = {
    "joblib": {
        "_target_": "hydra_plugins.hydra_joblib_launcher.joblib_launcher.JoblibLauncher",
        **_JOBLIB,
    },
    "submitit_local": {
        "_target_": "hydra_plugins.hydra_submitit_launcher.submitit_launcher.LocalLauncher",
        **SUBMITIT,
    },
    "submitit_slurm": {
        "_target_": "hydra_plugins.hydra_submitit_launcher.submitit_launcher.SlurmLauncher",
        **SUBMITIT,
        **_SLURM,
    },
}
"""Settings of the launchers (``hydra/launcher=NAME``), named and set as Hydra's own, whose
packages are not needed.
"""


class PackedGroups(ConfigSource):
    """The groups whose options lie in one file each (``config_files.packed``)."""

    @staticmethod
    def scheme() -> str:
        return "packed"

    def load_config(self, config_path: str) -> ConfigResult:
        if not self.is_config(config_path):
            raise ConfigLoadError(f"no option {config_path}")
        group, _, name = config_path.rpartition("/")
        text = config_files.packed()[group][name.removesuffix(".yaml")]
        return ConfigResult(
            self.provider, f"packed://{group}", OmegaConf.create(text), self._get_header_dict(text)
        )

    def available(self) -> bool:
        return True

    def is_group(self, config_path: str) -> bool:
        return not config_path or any(
            f"{group}/".startswith(f"{config_path}/") for group in config_files.packed()
        )

    def is_config(self, config_path: str) -> bool:
        group, _, name = config_path.rpartition("/")
        return name.removesuffix(".yaml") in config_files.packed().get(group, {})

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        """The options of a group, and the groups inside it."""
        start = f"{config_path}/" if config_path else ""
        inside = {
            group.removeprefix(start).partition("/")[0]
            for group in config_files.packed()
            if group.startswith(start)
        }
        found = {
            ObjectType.GROUP: inside,
            ObjectType.CONFIG: {*config_files.packed().get(config_path, {})},
        }
        return sorted(
            found[results_filter] if results_filter in found else set().union(*found.values())
        )


class UserConf(SearchPathPlugin):
    """The user's own ./conf on Hydra's search path, behind the package's: a name of ours means
    ours.
    """

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Add the packed groups, and the folder that is there when a configuration is composed."""
        search_path.append("agt", "packed://groups")
        if folder := config_files.user_conf():
            search_path.append("user", f"file://{folder}")


# Hydra imports every module of a folder hydra_plugins on Python's path, the current one's too. None
# of it is needed here.
sys.modules.setdefault("hydra_plugins", cast(Any, None))

Plugins.instance().register(PackedGroups)

Plugins.instance().register(UserConf)

for _name, _settings in LAUNCHERS.items():
    ConfigStore.instance().store(_name, _settings, group="hydra/launcher")


class _Parser(ArgumentParser):
    def error(self, message: str) -> NoReturn:
        unknown = next((word for word in message.split() if word.startswith("-")), "")
        known = [flag for flag in usage.OPTIONS if flag.startswith("--")]
        if "unrecognized" not in message:
            raise ConfigError(message)
        if setting := _without_dashes(unknown):
            raise ConfigError(f"{message}: settings are written without dashes: type {setting}")
        if get_close_matches(unknown, known, n=1, cutoff=0.7):
            raise ConfigError(f"{message}{nearest(unknown, known)}")
        raise ConfigError(
            f"{message}: settings are written without dashes, as KEY=VALUE (options: "
            f"{', '.join(sorted(known))})"
        )


def _without_dashes(option: str) -> str:
    """Return a setting that was written as an option, as it should be typed; empty: it is none."""
    key, equals, value = option.lstrip("-").partition("=")
    if equals:
        return f"{key}={value}"
    groups = {group for command in usage.COMMANDS.values() for group in _first_keys(command.config)}
    return f"{key}=VALUE" if key in groups else ""


def _first_keys(config: str) -> list[str]:
    """Return the first parts of the keys that a primary configuration has, as its file says."""
    text = "\n".join(config_files.primary_lines(config))
    return [*config_files.groups(config), *re.findall(r"^(\w+):", text, re.MULTILINE)]


def parse_options(rest: Sequence[str], name: str) -> Namespace:
    """The options of a command line, by name, and its ``overrides``.

    Args:
        rest: what follows the command.
        name: of the command's primary configuration.

    Raises:
        ConfigError: an option is unknown, lacks its value, or excludes another.
    """
    parser = _Parser(add_help=False, allow_abbrev=True)
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument("--run", "-r", action="store_true")
    modes.add_argument("--multirun", "-m", action="store_true")
    modes.add_argument("--cfg", "-c", choices=("job", "hydra", "all"))
    parser.add_argument("--resolve", action="store_true")
    parser.add_argument("--package", "-p")
    parser.add_argument("--config-name", "-cn", default=name)
    parser.add_argument("--config-dir", "-cd", type=Path)
    parser.add_argument("overrides", nargs="*")
    options = parser.parse_intermixed_args(list(rest))
    if options.resolve and not options.cfg:
        raise ConfigError(
            "--resolve has no effect without --cfg: type agt COMMAND --cfg job --resolve"
        )
    if options.config_dir is not None:
        if not options.config_dir.is_dir():
            raise ConfigError(
                f"--config-dir {options.config_dir}: this folder does not "
                "exist: give an existing folder"
            )
        folder = usage.quoted(f"file://{options.config_dir.absolute()}")
        options.overrides = [f"hydra.searchpath=[{folder}]", *options.overrides]
    return options


@contextmanager
def library() -> Iterator[Hydra]:
    with initialize_config_dir(str(config_files.config_dir()), version_base="1.3"):
        hydra = GlobalHydra.instance().hydra
        assert hydra is not None
        yield hydra


def compose_with_hydra(config_name: str, overrides: Sequence[str]) -> DictConfig:
    """A configuration with the node ``hydra``: where runs and sweeps go, the launcher, the options
    that were chosen.

    Raises:
        HydraException, OmegaConfBaseException, YAMLError: an override or a file does not fit
            (``errors.explain``).
        ConfigError: an experiment file of the user's does not say that its settings are global.
    """
    for path in config_files.experiments_without_package(overrides):
        raise ConfigError(
            f"{path}: the first line of an experiment file must be '# @package _global_', because "
            "without it agt does not find the file's settings: add this line"
        )
    with library():
        config = compose(config_name, list(overrides), return_hydra_config=True)
    HydraConfig.instance().set_config(config)  # ${hydra:...} in a user's own files
    return config


def show(options: Namespace) -> None:
    """Print what ``--cfg`` asks for."""
    logging.raiseExceptions = False  # a log line that nobody reads is no error
    with library() as hydra:
        hydra.show_cfg(
            options.config_name, options.overrides, options.cfg, options.package, options.resolve
        )


def compose_unresolved(config_name: str, overrides: Sequence[str]) -> dict[str, Any]:
    """A configuration as plain containers, its interpolations as they are written."""
    with library():
        node = OmegaConf.to_container(compose(config_name, list(overrides)), resolve=False)
    return {str(key): value for key, value in node.items()} if isinstance(node, dict) else {}


def plain(config: DictConfig, complete: bool = True) -> dict[str, Any]:
    """A configuration without ``hydra`` as plain containers, interpolations resolved.

    Raises:
        ConfigError: a required value (???) was not given.
    """
    task = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    missing = sorted(OmegaConf.missing_keys(task)) if complete else []
    if missing:
        words = [
            "run=latest (or the folder of a run, run=FOLDER)" if key == "run" else f"{key}=VALUE"
            for key in missing
        ]
        words += missing_words(cast(dict[str, Any], OmegaConf.to_container(task)))
        first = missing[0]
        required = " ".join(words)
        raise ConfigError(f"{first}: this setting is required: give {required}")
    resolved = OmegaConf.to_container(task, resolve=True)
    if not isinstance(resolved, dict):
        return {}
    return {str(key): value for key, value in resolved.items()}


def combinations(overrides: Sequence[str]) -> list[tuple[str, ...]]:
    """Every combination of the values in the overrides of a sweep, each a line of overrides.

    Raises:
        OverrideParseException: one of them cannot be read.
        ConfigError: one asks for a kind of sweep that has no list of values.
    """
    choices: dict[str, list[str]] = {}
    for override in OverridesParser.create().parse_overrides(list(overrides)):
        key = override.get_key_element()
        given = override.input_line
        if not override.is_sweep_override():
            choices[key] = [f"{key}={override.get_value_element_as_str()}"]
        elif override.is_hydra_override():
            raise ConfigError(
                f"{given}: a sweep cannot vary a setting of Hydra itself: give one value"
            )
        elif override.is_discrete_sweep():
            choices[key] = [f"{key}={value}" for value in override.sweep_string_iterator()]
        else:
            raise ConfigError(
                f"{given}: agt cannot list the values of this sweep: give them as "
                f"{key}=1,2,3, or with range(...) or choice(...)"
            )
    return [*product(*choices.values())]


def chosen_options() -> dict[str, str]:
    """Group -> the option that this command line composed, by itself or through an experiment."""
    chosen: Mapping[Any, Any] = HydraConfig.get().runtime.choices
    return {str(group): str(option) for group, option in chosen.items() if option is not None}


def only_keys(config: Mapping[str, Any], known: tuple[str, ...]) -> None:
    """Refuse a top-level key that nothing reads (+KEY=VALUE can add one)."""
    for key in config:
        if key not in known and key != "trust":  # which run_job reads for all commands (jobs.py)
            raise ConfigError(f"unknown key '{key}'{nearest(key, known)}")


def digest_of(config: Mapping[str, Any], key: str) -> str | None:
    """The digest of a run that a setting asks for; None: none.

    Raises:
        ConfigError: it is no digest.
    """
    value = config.get(key)
    try:
        return None if value is None else read_digest(str(value))
    except ValueError as error:
        raise ConfigError(f"{key}={value}: {error}") from None
