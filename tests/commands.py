"""What small commands in this process need not do: it takes time, and tells a test nothing."""

import copy
import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import pytest
from hydra._internal import defaults_list
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import (
    CachingConfigRepository,
    ConfigRepository,
    IConfigRepository,
)
from hydra._internal.defaults_list import Overrides
from hydra.core.default_element import InputDefault, ResultDefault
from hydra.core.hydra_config import HydraConfig
from hydra.plugins.config_source import ConfigResult
from joblib import parallel_config
from matplotlib.figure import Figure
from omegaconf import DictConfig, OmegaConf

from agt.training import ensemble
from agt_cli import config_files

SAVE = Figure.savefig
PROCESSES = ensemble.worker_processes
LOAD = ConfigRepository.load_config
LIST = defaults_list._create_defaults_list
CHOICES = defaults_list._create_interpolation_map
MERGE = ConfigLoaderImpl._compose_config_from_defaults_list
CONF = f"file://{config_files.config_dir()}"
MADE: dict[tuple[str, ...], bytes] = {}  # by the places where Hydra looks, and what was asked for


@pytest.fixture(autouse=True, scope="session")
def quick_commands() -> Iterator[None]:
    """No file is brought to a disk, as no power is cut here; figures are blank; what Hydra makes of
    our files, before values are given on a line, is made once for each choice of options; Hydra's
    own copies for safety are not made; members of an ensemble are trained one after another, as
    processes for them take seconds to start.

    Processes of their own do all of it.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)
        patch.setattr(
            Figure, "savefig", lambda figure, file, format, **how: file.write(_blank(format))
        )
        patch.setattr(ensemble, "worker_processes", lambda *given: parallel_config("sequential"))
        patch.setattr(ConfigRepository, "load_config", _load)
        patch.setattr(CachingConfigRepository, "__init__", _share_sources)
        patch.setattr(HydraConfig, "set_config", _show_hydra)
        patch.setattr(defaults_list, "_create_defaults_list", _list)
        patch.setattr(defaults_list, "_create_interpolation_map", _choices)
        patch.setattr(ConfigLoaderImpl, "_compose_config_from_defaults_list", _merge)
        yield


def _once(repository: IConfigRepository, what: tuple[str, ...], make: Callable[[], Any]) -> Any:
    """What ``make`` makes, a copy each time."""
    places = tuple(str(source.path) for source in repository.get_sources())
    # a test's own, which may change
    if any(place.startswith("file:") and place != CONF for place in places):
        return make()
    if (*places, *what) not in MADE:
        MADE[*places, *what] = pickle.dumps(make())
    return pickle.loads(MADE[*places, *what])


def _share_sources(self: CachingConfigRepository, delegate: IConfigRepository) -> None:
    """Hydra copies each source, and with one of them every schema; other places replace the list
    of sources as a whole.
    """
    self.delegate = copy.copy(delegate)
    self.cache = {}


def _show_hydra(self: HydraConfig, config: DictConfig) -> None:
    """Hydra shows its node, whose parent is the configuration, in a copy."""
    OmegaConf.set_readonly(config.hydra, True)
    self.cfg = SimpleNamespace(hydra=config.hydra)  # type: ignore[assignment]


def _load(repository: ConfigRepository, config_path: str) -> ConfigResult | None:
    found: ConfigResult | None = _once(
        repository, ("load", config_path), lambda: LOAD(repository, config_path)
    )
    return found


def _list(
    repo: IConfigRepository,
    config_name: str | None,
    overrides: Overrides,
    prepend_hydra: bool,
    skip_missing: bool,
) -> Any:
    """The defaults list, and what making it writes into ``overrides``, which chosen options
    alone decide.
    """
    chosen = {name: value for name, value in vars(overrides).items() if name != "config_overrides"}

    def make() -> Any:
        found = LIST(repo, config_name, overrides, prepend_hydra, skip_missing)
        return found, {name: vars(overrides)[name] for name in chosen}

    found, state = _once(
        repo, ("list", repr((config_name, prepend_hydra, skip_missing, chosen))), make
    )
    vars(overrides).update(state)
    return found


def _choices(overrides: Overrides, defaults: list[InputDefault], self_added: bool) -> DictConfig:
    """What interpolations of a defaults list are resolved by: of lists without any, which is all
    but few, nothing.
    """
    if any(default.is_interpolation() for default in defaults if not default.is_self()):
        return CHOICES(overrides, defaults, self_added)
    return OmegaConf.create()


def _merge(loader: ConfigLoaderImpl, defaults: list[ResultDefault], repo: IConfigRepository) -> Any:
    return _once(repo, ("merge", repr(defaults)), lambda: MERGE(loader, defaults, repo))


@cache
def _blank(kind: str) -> bytes:
    file = BytesIO()
    SAVE(Figure((1, 1)), file, format=kind)
    return file.getvalue()


@contextmanager
def members_in_processes() -> Iterator[None]:
    """As they are usually trained, several at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ensemble, "worker_processes", PROCESSES)
        yield


@contextmanager
def figures_drawn() -> Iterator[None]:
    """For what is in them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", SAVE)
        yield
