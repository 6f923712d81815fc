"""What small commands in this process need not do twice: half of their time, which tells a test nothing."""

import copy
import os
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from hydra._internal.hydra import Hydra


@pytest.fixture(autouse=True, scope="session")
def nothing_twice() -> Iterator[None]:
    """Hydra composes the whole configuration to look for hydra.mode, and then once more; YAML is parsed anew each time; and
    files are brought to a disk, though no power is cut here. Processes of their own do all of it.
    """
    get_mode, load, parsed = Hydra.get_mode, yaml.load, dict[str, Any]()

    def mode(self: Hydra, config_name: str | None, overrides: list[str]) -> Any:
        return get_mode(self, config_name, overrides) if any("hydra.mode" in word for word in overrides) else None

    def load_once(stream: Any, Loader: Any) -> Any:
        if not hasattr(stream, "name"):
            return load(stream, Loader)
        text = stream.read()
        if text not in parsed:
            stream.seek(0)  # an error names the file
            parsed[text] = load(stream, Loader)
        return copy.deepcopy(parsed[text])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Hydra, "get_mode", mode)
        patch.setattr(yaml, "load", load_once)
        patch.setattr(os, "fsync", lambda file: None)
        yield
