"""A command's configuration: conf/ and the user's own ./conf, composed by Hydra with the
overrides of a command line.
"""

import logging
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from itertools import product
from pathlib import Path
from typing import Any, NoReturn, cast

from hydra import compose, initialize_config_dir
from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra._internal.hydra import Hydra
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigLoadError, ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, OmegaConf

from agt.data.written_ranges import check_unquoted_points
from agt.errors import ConfigError, nearest
from agt.store.manifest import read_digest
from agt_cli import config_files, usage
from agt_cli.networks import missing_settings
from agt_cli.renamed import with_old_names_in_file


class PackedGroups(ConfigSource):
    """Lets Hydra read the groups that are one file each (``config_files.packed``)."""

    @staticmethod
    def scheme() -> str:
        """Return the beginning of paths that this source reads, as in ``packed://groups``."""
        return "packed"

    def load_config(self, config_path: str) -> ConfigResult:
        """Return an option, given as GROUP/OPTION, with or without the suffix .yaml.

        Raises:
            ConfigLoadError: there is no such option.
        """
        if not self.is_config(config_path):
            raise ConfigLoadError(f"no option {config_path}")
        group, _, name = config_path.rpartition("/")
        text = config_files.packed_groups()[group][name.removesuffix(".yaml")]
        return ConfigResult(
            provider=self.provider,
            path=f"packed://{group}",
            config=OmegaConf.create(text),
            header=self._get_header_dict(text),
        )

    def available(self) -> bool:
        """Return True: agt always has its groups."""
        return True

    def is_group(self, config_path: str) -> bool:
        """Return whether a path is a group, or contains one; the empty path does."""
        return not config_path or any(
            f"{group}/".startswith(f"{config_path}/") for group in config_files.packed_groups()
        )

    def is_config(self, config_path: str) -> bool:
        """Return whether a path GROUP/OPTION, with or without the suffix .yaml, is an option."""
        group, _, name = config_path.rpartition("/")
        return name.removesuffix(".yaml") in config_files.packed_groups().get(group, {})

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        """Return the names of the options of a group, and of the groups inside it.

        Args:
            config_path: the group; empty: the groups that are in no other.
            results_filter: return only options (CONFIG) or only groups (GROUP); None: both.
        """
        start = f"{config_path}/" if config_path else ""
        names: set[str] = set()
        if results_filter != ObjectType.GROUP:
            names |= config_files.packed_groups().get(config_path, {}).keys()
        if results_filter != ObjectType.CONFIG:
            for group in config_files.packed_groups():
                if group.startswith(start):
                    names.add(group.removeprefix(start).partition("/")[0])
        return sorted(names)


class UserFiles(FileConfigSource):
    """Reads the files of the user's own ./conf, whose settings may have their new names."""

    @staticmethod
    def scheme() -> str:
        """Return the beginning of paths that this source reads, as in ``user:///home/me/conf``."""
        return "user"

    def load_config(self, config_path: str) -> ConfigResult:
        """Return a file, its settings by the names that records have.

        Raises:
            ConfigLoadError: there is no such file.
            ConfigError: a setting has two values, by both of its names.
        """
        result = super().load_config(config_path)
        settings = OmegaConf.to_container(result.config)
        if isinstance(settings, dict):
            group = config_path.rpartition("/")[0].replace("/", ".")
            package = "" if result.header.get("package") == "_global_" else group
            path = Path(os.path.relpath(self.path), self._normalize_file_name(config_path))
            named = with_old_names_in_file(path, package, cast(dict[str, Any], settings))
            result.config = OmegaConf.create(named)
        return result


class UserConf(SearchPathPlugin):
    """Adds the packed groups and the user's own ./conf to Hydra's search path.

    They come after agt's conf/, so where both have a file of the same name, it is agt's.
    """

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Append to Hydra's search path, which Hydra does before each composition."""
        search_path.append("agt", "packed://groups")
        if folder := config_files.user_conf():
            search_path.append("user", f"user://{folder}")


# Hydra imports every module of a folder hydra_plugins on Python's path, the current one's too. None
# of it is needed here.
sys.modules.setdefault("hydra_plugins", cast(Any, None))

Plugins.instance().register(PackedGroups)
Plugins.instance().register(UserFiles)

Plugins.instance().register(UserConf)


class _Parser(ArgumentParser):
    """A parser of options that raises its errors as ConfigError."""

    def error(self, message: str) -> NoReturn:
        """Raise ConfigError with argparse's message."""
        raise ConfigError(message)


def _check_known_options(unknown: Sequence[str]) -> None:
    """Raise ConfigError if options are unknown, and say what to type.

    Args:
        unknown: the unknown options; empty: there are none.
    """
    if not unknown:
        return
    problem = f"unrecognized arguments: {' '.join(unknown)}"
    known = sorted(flag for flag in usage.OPTIONS if flag.startswith("--"))
    option = unknown[0]
    name = option.partition("=")[0]
    if name in known:
        raise ConfigError(f"{problem}: this option takes no value: type {name}")
    if setting := _without_dashes(option):
        raise ConfigError(f"{problem}: settings are written without dashes: type {setting}")
    if get_close_matches(option, known, n=1, cutoff=0.7):
        raise ConfigError(f"{problem}{nearest(option, known)}")
    raise ConfigError(
        f"{problem}: settings are written without dashes, as KEY=VALUE (options: "
        f"{', '.join(known)})"
    )


def _without_dashes(option: str) -> str:
    """Return how a setting that was written as an option (``--kgrid.max=3``) should be typed.

    It is empty if the option does not look like a setting.
    """
    key, equals, value = option.lstrip("-").partition("=")
    if equals:
        return f"{key}={value}"
    configs = [command.config for command in usage.COMMANDS.values()]
    is_key = any(key in config_files.top_level_keys(config) for config in configs)
    return f"{key}=VALUE" if is_key else ""


def parse_options(rest: Sequence[str]) -> Namespace:
    """Parse the options of a command line.

    Args:
        rest: the words that follow the name of the command.

    Returns:
        The attributes ``multirun``, ``cfg``, ``resolve`` and ``config_dir`` have the options.
        ``overrides`` has the settings in the order in which they were typed; before them, the
        folder of ``--config-dir`` as Hydra's search path.

    Raises:
        ConfigError: an option is unknown, has no value, or excludes another; or there is no such
            folder.
    """
    options, unknown = _option_parser().parse_known_intermixed_args(list(rest))
    _check_known_options(unknown)
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
        folder = usage.quoted(f"user://{options.config_dir.absolute()}")
        options.overrides = [f"hydra.searchpath=[{folder}]", *options.overrides]
    return options


def _option_parser() -> ArgumentParser:
    """Return the parser of Hydra's options that agt has."""
    parser = _Parser(add_help=False, allow_abbrev=True)
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument("--multirun", "-m", action="store_true")
    modes.add_argument("--cfg", "-c", choices=("job", "hydra", "all"))
    parser.add_argument("--resolve", action="store_true")
    parser.add_argument("--config-dir", "-cd", type=Path)
    parser.add_argument("overrides", nargs="*")
    return parser


@contextmanager
def initialized_hydra() -> Iterator[Hydra]:
    """Yield Hydra, set up for agt's configuration folder; within the context, it can compose."""
    with initialize_config_dir(str(config_files.config_dir()), version_base="1.3"):
        hydra = GlobalHydra.instance().hydra
        assert hydra is not None  # the context has just made it
        yield hydra


def compose_with_hydra(config_name: str, overrides: Sequence[str]) -> DictConfig:
    """Compose a configuration, with the node ``hydra``.

    That node says where runs and sweeps go, and has the launcher and the chosen options.

    Args:
        config_name: the primary configuration.
        overrides: the settings of a command line.

    Raises:
        HydraException, OmegaConfBaseException, YAMLError: an override or a file is wrong
            (``errors.explain``).
        ConfigError: an experiment file of the user's does not say that its settings are global, or
            a range in a file of the user's has a point that may separate thousands.
    """
    for path in config_files.experiments_without_package(overrides):
        raise ConfigError(
            f"{path}: the first line of an experiment file must be '# @package _global_', because "
            "without it agt does not find the file's settings: add this line"
        )
    with initialized_hydra():
        config = compose(config_name, list(overrides), return_hydra_config=True)
    _check_written_ranges(config)
    # Interpolations ${hydra:...} in a user's own files are resolved with this configuration.
    HydraConfig.instance().set_config(config)
    return config


def _check_written_ranges(config: DictConfig) -> None:
    """Raise ConfigError if YAML reads a range of the user's own files as other numbers than meant.

    Args:
        config: composed, with the node ``hydra``.
    """
    own_folder = config_files.user_conf()
    folders = [] if own_folder is None else [own_folder]
    for entry in config.hydra.searchpath:
        scheme, separator, folder = str(entry).partition("://")
        if not separator:  # Hydra takes a path without a scheme as one of a folder
            folders.append(Path(str(entry)))
        elif scheme in ("file", UserFiles.scheme()):
            folders.append(Path(folder))
    dataset = config.get("dataset")
    if not folders or not isinstance(dataset, DictConfig):
        return
    settings = cast(dict[str, Any], OmegaConf.to_container(dataset, resolve=False))
    options = config.hydra.runtime.choices.items()
    chosen = [(str(group), str(option)) for group, option in options]
    for path in config_files.files_in_use(folders, chosen):
        check_unquoted_points(path, settings)


def print_configuration(config_name: str, options: Namespace) -> None:
    """Print the configuration that ``--cfg`` asks for.

    Args:
        config_name: the primary configuration.
        options: the result of ``parse_options``.
    """
    logging.raiseExceptions = False  # Hydra logs; that the output's reader is gone is no error
    with initialized_hydra() as hydra:
        hydra.show_cfg(
            config_name, options.overrides, options.cfg, package=None, resolve=options.resolve
        )


def compose_unresolved(config_name: str, overrides: Sequence[str]) -> dict[str, Any]:
    """Return a configuration as plain containers, without resolving its interpolations."""
    with initialized_hydra():
        node = OmegaConf.to_container(compose(config_name, list(overrides)), resolve=False)
    return {str(key): value for key, value in node.items()} if isinstance(node, dict) else {}


def to_plain_containers(config: DictConfig, complete: bool = True) -> dict[str, Any]:
    """Return a configuration as plain containers, without ``hydra``, interpolations resolved.

    Args:
        config: a composed configuration.
        complete: False: a required value that was not given stays ???.

    Raises:
        ConfigError: a required value was not given, and ``complete`` is True.
    """
    task = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    missing = sorted(OmegaConf.missing_keys(task)) if complete else []
    if missing:
        typed_forms = {
            "run": "run=latest (or the folder of a run, run=FOLDER)",
            "model._target_": "model._target_=MODULE.FUNCTION",
        }
        settings = [typed_forms.get(key, f"{key}=VALUE") for key in missing]
        settings += missing_settings(cast(dict[str, Any], OmegaConf.to_container(task)))
        first = missing[0]
        required = " ".join(settings)
        raise ConfigError(f"{first}: this setting is required: give {required}")
    resolved = OmegaConf.to_container(task, resolve=True)
    if not isinstance(resolved, dict):
        return {}
    return {str(key): value for key, value in resolved.items()}


def sweep_combinations(overrides: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the overrides of each job of a sweep, one job for each combination of values.

    Args:
        overrides: the settings of the command line, such as ``training.seed=0,1``.

    Raises:
        OverrideParseException: an override cannot be parsed.
        ConfigError: an override is a sweep whose values cannot be listed.
    """
    choices: dict[str, list[str]] = {}
    for override in OverridesParser.create().parse_overrides(list(overrides)):
        key = override.get_key_element()
        typed = override.input_line
        if not override.is_sweep_override():
            choices[key] = [f"{key}={override.get_value_element_as_str()}"]
        elif override.is_hydra_override():
            raise ConfigError(
                f"{typed}: a sweep cannot vary a setting of Hydra itself: give one value"
            )
        elif override.is_discrete_sweep():
            choices[key] = [f"{key}={value}" for value in override.sweep_string_iterator()]
        else:
            raise ConfigError(
                f"{typed}: agt cannot list the values of this sweep: give them as "
                f"{key}=1,2,3, or with range(...) or choice(...)"
            )
    return [*product(*choices.values())]


def chosen_options() -> dict[str, str]:
    """Return group -> option, as the last composition chose them, perhaps through an experiment.

    It is empty if nothing was composed for a command line.
    """
    if not HydraConfig.initialized():
        return {}
    chosen: Mapping[Any, Any] = HydraConfig.get().runtime.choices
    return {str(group): str(option) for group, option in chosen.items() if option is not None}


def check_keys(config: Mapping[str, Any], allowed: tuple[str, ...]) -> None:
    """Raise ConfigError if a configuration has a top-level key that its command does not read.

    Such a key was added by +KEY=VALUE.

    Args:
        config: the configuration.
        allowed: the keys that the command reads. ``trust`` is always allowed, because
            ``jobs.run_job`` reads it.
    """
    for key in config:
        if key not in (*allowed, "trust"):
            raise ConfigError(f"unknown key '{key}'{nearest(key, allowed)}")


def read_digest_setting(config: Mapping[str, Any], key: str) -> str | None:
    """Return the digest that a setting gives; None: the setting is not there or null.

    Args:
        config: a configuration.
        key: the setting.

    Raises:
        ConfigError: the value is not a digest.
    """
    value = config.get(key)
    try:
        return None if value is None else read_digest(str(value))
    except ValueError as error:
        raise ConfigError(f"{key}={value}: {error}") from None
