"""True is no number for any class of settings, however often it was built before.

pydantic takes true for 1. Our own constructor refuses it, and a class whose schema pydantic builds
late loses that constructor when it is first used (agt/settings.py).
"""

from collections.abc import Iterator
from importlib import import_module
from inspect import getmembers, isclass
from pkgutil import iter_modules
from typing import Any

import pytest

import agt_cli.command_settings
from agt.errors import ConfigError
from agt.setting_mistakes import is_number_type

COMMANDS = [module.name for module in iter_modules(agt_cli.command_settings.__path__)]
MODULES = (
    *("agt.settings", "agt.release_settings", "agt.training.settings"),
    *("agt.data.blobs_settings", "agt.data.image_settings", "agt.data.file_settings"),
    *("agt.certificates.settings", "agt.models.head_settings", "agt_cli.table_settings"),
    *(f"agt_cli.command_settings.{name}" for name in COMMANDS),
)


def numbers() -> Iterator[tuple[Any, str]]:
    """Yield each class of settings with each of its settings that is a number."""
    for name in MODULES:
        for _, cls in getmembers(import_module(name), isclass):
            if cls.__module__ != name or not hasattr(cls, "__pydantic_fields__"):
                continue
            for key, entry in cls.__dataclass_fields__.items():
                if entry.init and is_number_type(entry.type):
                    yield cls, key


def test_settings_of_numbers_are_found_in_every_family() -> None:
    found = {cls.__module__ for cls, _ in numbers()}
    assert {"agt.settings", "agt.data.file_settings", "agt_cli.command_settings.predict"} <= found


@pytest.mark.parametrize(("cls", "key"), [*numbers()])
def test_true_is_no_number_at_the_first_second_and_third_construction(cls: Any, key: str) -> None:
    for _ in range(3):
        with pytest.raises(ConfigError, match=rf"^{cls.__name__}\.{key}:"):
            cls(**{key: True})


@pytest.mark.parametrize(("cls", "key"), [*numbers()])
def test_text_is_no_number_after_a_construction_that_failed(cls: Any, key: str) -> None:
    for _ in range(3):
        with pytest.raises(ConfigError):
            cls(no_such_setting=1)
        with pytest.raises(ConfigError, match=rf"^{cls.__name__}\.{key}:"):
            cls(**{key: "1"})
