"""What small commands in this process need not do: it takes time, and tells a test nothing."""

import os
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from io import BytesIO

import pytest
from hydra._internal.config_repository import ConfigRepository
from hydra.plugins.config_source import ConfigResult
from matplotlib.figure import Figure

from agt_cli import usage

SAVE = Figure.savefig
LOAD = ConfigRepository.load_config
CONF = f"file://{usage.config_dir()}"
LOADED: dict[tuple[str, ...], bytes] = {}  # by the places where Hydra looks, and the name


@pytest.fixture(autouse=True, scope="session")
def quick_commands() -> Iterator[None]:
    """No file is brought to a disk, as no power is cut here; figures are blank; our configuration is read once.

    Processes of their own do all of it.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)
        patch.setattr(Figure, "savefig", lambda figure, file, format, **how: file.write(_blank(format)))
        patch.setattr(ConfigRepository, "load_config", _load)
        yield


def _load(repository: ConfigRepository, config_path: str) -> ConfigResult | None:
    places = tuple(str(source.path) for source in repository.sources)
    if any(place.startswith("file:") and place != CONF for place in places):  # a test's own, which may change
        return LOAD(repository, config_path)
    if (*places, config_path) not in LOADED:
        LOADED[*places, config_path] = pickle.dumps(LOAD(repository, config_path))
    return pickle.loads(LOADED[*places, config_path])


@cache
def _blank(kind: str) -> bytes:
    file = BytesIO()
    SAVE(Figure((1, 1)), file, format=kind)
    return file.getvalue()


@contextmanager
def figures_drawn() -> Iterator[None]:
    """For what is in them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", SAVE)
        yield
