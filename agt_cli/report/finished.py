"""A finished run, read back: every file of it as the run wrote it, or not at all (manifest.py)."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import OmegaConf
from safetensors import SafetensorError
from safetensors.torch import load
from yaml import YAMLError  # type: ignore[import-untyped]

from agt.errors import ConfigError
from agt.manifest import NAME as MANIFEST
from agt.manifest import Broken, Manifest

AGAIN = "restore it, or run again"


@dataclass(frozen=True)
class FinishedRun:
    """A finished run, read back; every file of it through ``read``.

    Attributes:
        folder: where it lies; of a part, the subfolder.
        config: its resolved configuration.
        environment, metrics: its env.json and metrics.json.
        manifest: what its files must be.
        home: the folder of the whole run, which holds the manifest.
        key: the setting that names it, for messages.
    """

    folder: Path
    config: dict[str, Any]
    environment: dict[str, Any]
    metrics: dict[str, Any]
    manifest: Manifest
    home: Path
    key: str = "run"

    @property
    def digest(self) -> str:
        """The name of this run, wherever its folder lies."""
        return self.manifest.digest

    def part(self, name: str) -> "FinishedRun":
        """The same run's subfolder; the run's manifest lists its files too."""
        return replace(self, folder=self.folder / name)

    def read(self, name: str) -> bytes:
        """One file, if its bytes are those that the manifest lists.

        Raises:
            ConfigError: they are not, or it is gone or not listed; names it.
        """
        with _refusing(self.key, self.home):
            return self.manifest.load(self.home, self._listed(name))

    def _listed(self, name: str) -> str:
        """How the manifest calls one of this part's files."""
        return (self.folder / name).relative_to(self.home).as_posix()

    def names(self, folder: str) -> set[str]:
        """The listed files of a subfolder, without its name."""
        inside = self._listed(folder)
        return {name.removeprefix(f"{inside}/") for name in self.manifest.under(inside)}

    def released_weights(self) -> tuple[np.ndarray, dict[str, Any]]:
        """The weights that a release published, and the noise they carry.

        Raises:
            ConfigError: this run released none, or a file is not what the manifest lists.
        """
        path = self.folder / "released_weights.safetensors"
        if self._listed(path.name) not in self.manifest.files:
            raise ConfigError(
                f"{self.key}={self.folder}: released no weights: was it a run with mechanism=release_weights?"
            )
        try:
            weight = load(self.read(path.name))["weight"].numpy()
        except (SafetensorError, KeyError) as error:
            raise ConfigError(f"{path}: cannot be read ({error})") from None
        constants = path.with_suffix(".json")
        return weight, _object(self.read(constants.name), constants, self.key)


def open_run(folder: Path, command: str, digest: str | None = None, key: str = "run") -> FinishedRun:
    """Read a finished run of ``command``, and verify every file of it.

    Args:
        digest: the run must be the one of this digest; None: any.
        key: the setting that names the folder, for messages; ``digest`` is another beside it.

    Raises:
        ConfigError: no such folder, not a run, another command's run, not finished, another run than ``digest``, or a file
            is not what the run wrote; says which file shows it.
    """
    if not folder.is_dir():
        raise ConfigError(f"{key}={folder}: no such folder{_latest(folder, command)}")
    try:
        content = _plain(folder / "status.json")
    except FileNotFoundError:
        raise ConfigError(f"{key}={folder}: not a run folder (status.json is missing)") from None
    except OSError as error:
        raise ConfigError(f"{key}={folder}: status.json cannot be read ({error})") from None
    _check_status(_object(content, folder / "status.json", key), folder, command, key)
    with _refusing(key, folder):
        manifest = _manifest(folder)
        if manifest.command != command:
            raise Broken(f"{MANIFEST} is of a run of {manifest.command!r}, not {command!r}")
        if digest is not None and manifest.digest != digest:
            name = "digest" if key == "run" else f"{key}_digest"
            raise Broken(f"{MANIFEST} has the digest {manifest.digest} and {name} asks for {digest}: another run")
        manifest.check("status.json", content)
        manifest.verify(folder)
    bare = FinishedRun(folder, {}, {}, {}, manifest, folder, key)
    environment, metrics = (_object(bare.read(name), folder / name, key) for name in ("env.json", "metrics.json"))
    config = _config(bare.read("config.yaml"), folder / "config.yaml", key)
    return replace(bare, config=config, environment=environment, metrics=metrics)


def _check_status(status: Mapping[str, Any], folder: Path, command: str, key: str) -> None:
    if status.get("command") != command:
        raise ConfigError(f"{key}={folder}: status.json says this is a run of {status.get('command')!r}, not {command!r}")
    if status.get("state") != "done":
        why = f" ({status['error']})" if status.get("error") else ""
        raise ConfigError(
            f"{key}={folder}: status.json says {status.get('state')!r}{why}, so there is nothing to use; "
            f"a run that was killed stays 'running': start `agt {command}` again"
        )


def _manifest(folder: Path) -> Manifest:
    try:
        return Manifest.read(_plain(folder / MANIFEST))
    except FileNotFoundError:
        raise Broken(f"{MANIFEST} is missing: the run was made by an agt that wrote none, or is damaged") from None
    except OSError as error:
        raise Broken(f"{MANIFEST} cannot be read ({error.strerror or error})") from None


@contextmanager
def _refusing(key: str, folder: Path) -> Iterator[None]:
    try:
        yield
    except Broken as error:
        raise ConfigError(f"{key}={folder}: {error}; {AGAIN}") from None


def _config(content: bytes, path: Path, key: str) -> dict[str, Any]:
    try:
        config = OmegaConf.to_container(OmegaConf.create(content.decode()))
    except (ValueError, YAMLError) as error:
        raise ConfigError(f"{key}={path.parent}: {path.name} cannot be read ({error})") from None
    if not isinstance(config, dict):
        raise ConfigError(f"{key}={path.parent}: {path.name} does not hold a mapping")
    return {str(name): value for name, value in config.items()}


def _latest(folder: Path, command: str) -> str:
    """A suffix naming the newest run beside the folder that was asked for, if there is one."""
    runs = sorted(path.parent for path in folder.parent.glob("*/status.json"))
    return f"; the newest {command} run there is {runs[-1]}" if runs else ""


def _plain(path: Path) -> bytes:
    """A file's bytes; a pipe in its place, which would be waited for for ever, is none. Raises OSError."""
    if path.exists() and not path.is_file():
        raise OSError(f"{path.name} is no file")
    return path.read_bytes()


def _object(content: bytes, path: Path, key: str) -> dict[str, Any]:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{key}={path.parent}: {path.name} cannot be read ({error})") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{key}={path.parent}: {path.name} does not hold an object")
    return value
