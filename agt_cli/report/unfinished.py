"""A run that did not finish: whether its process is alive, and what it was begun with, so that it can go on.

A run holds the lock of its folder as long as its process lives (disk.py). One whose state is "running" and whose lock
nobody holds was killed.
"""

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError  # type: ignore[import-untyped]

from agt.disk import Lock, is_locked
from agt.errors import ConfigError
from agt.folder import plain
from agt_cli.latest import LOCK

CHECKPOINTS = "checkpoint"  # the folder of what a training had reached; no part of the finished record
KEY = "resume"
UNKNOWN = "it has no lock, and nobody can tell whether its process lives"


@dataclass(frozen=True)
class Unfinished:
    """A run that was killed or failed.

    Attributes:
        folder: of its record.
        status: what status.json says.
        config: what it was begun with, resolved.
        environment: env.json, as far as it was written.
    """

    folder: Path
    status: dict[str, Any]
    config: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def open(cls, folder: Path, command: str) -> "Unfinished":
        """Read what a run left.

        Raises:
            ConfigError: no such folder, not a run, another command's, still running, finished, or killed before its
                settings were written.
        """
        if not folder.is_dir():
            raise ConfigError(f"{KEY}={folder}: no such folder: give the folder of a run that was killed")
        status = read_status(folder)
        if status.get("command") != command:
            raise ConfigError(
                f"{KEY}={folder}: this is a run of {status.get('command')!r}, not of {command!r}: start it again"
            )
        if is_alive(folder):
            raise still_running(folder)
        check_open(folder, status)
        if status.get("state") == "running" and is_alive(folder) is None:
            raise ConfigError(f"{KEY}={folder}: {UNKNOWN}: start it anew, once you know that it does not")
        config = read_config(
            _content(folder, "config.yaml", "the run was killed before it began: start it anew"),
            folder / "config.yaml",
            KEY,
        )
        environment = folder / "env.json"
        known = read_object(plain(environment), environment, KEY) if environment.exists() else {}
        return cls(folder, status, config, known)


def read_status(folder: Path) -> dict[str, Any]:
    """What status.json says. Raises ConfigError where there is none."""
    return read_object(_content(folder, "status.json", "is this the folder of a run?"), folder / "status.json", KEY)


def still_running(folder: Path) -> ConfigError:
    """What to raise of a run whose process is alive."""
    return ConfigError(f"{KEY}={folder}: the run is still going on, in another process: wait for it, or end it first")


def check_open(folder: Path, status: dict[str, Any]) -> None:
    """Raise ConfigError of a run that is finished; what it should have removed, had it not been killed then, goes."""
    if status.get("state") == "done":
        remove_leftovers(folder)
        raise ConfigError(
            f"{KEY}={folder}: the run is finished, there is nothing to do: agt certify run={folder} comes next"
        )


def is_alive(folder: Path) -> bool | None:
    """Whether the process of a run is there; None: nobody can tell, as it left no lock."""
    return is_locked(folder / LOCK)


def lock_of(folder: Path) -> Lock:
    """What a run's process holds as long as it lives."""
    return Lock(folder / LOCK)


def remove_leftovers(folder: Path) -> None:
    """Remove what a finished run needs no more."""
    shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
    (folder / LOCK).unlink(missing_ok=True)


def read_config(content: bytes, path: Path, key: str) -> dict[str, Any]:
    """A recorded configuration, resolved.

    Args:
        key: the setting that names the folder, for messages.

    Raises:
        ConfigError: it is none.
    """
    try:
        config = OmegaConf.to_container(OmegaConf.create(content.decode()), resolve=True)
    except (ValueError, YAMLError, OmegaConfBaseException) as error:
        raise ConfigError(f"{key}={path.parent}: {path.name} cannot be read ({error})") from None
    if not isinstance(config, dict):
        raise ConfigError(f"{key}={path.parent}: {path.name} does not hold a mapping")
    return {str(name): value for name, value in config.items()}


def read_object(content: bytes, path: Path, key: str) -> dict[str, Any]:
    """A JSON object. Raises ConfigError, as ``read_config`` does."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{key}={path.parent}: {path.name} cannot be read ({error})") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{key}={path.parent}: {path.name} does not hold an object")
    return value


def _content(folder: Path, name: str, otherwise: str) -> bytes:
    try:
        return plain(folder / name)
    except OSError as error:
        raise ConfigError(f"{KEY}={folder}: {name} cannot be read ({error.strerror or error}): {otherwise}") from None
