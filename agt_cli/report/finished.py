"""A finished run, read back: every file of it as the run wrote it, or not at all (manifest.py)."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import load

from agt.errors import ConfigError
from agt.folder import BoundFolder, plain, refusing
from agt.manifest import NAME as MANIFEST
from agt_cli.latest import newest
from agt_cli.report.swap import settle, unsettled
from agt_cli.report.unfinished import UNKNOWN, is_alive, read_config, read_object


@dataclass(frozen=True)
class FinishedRun(BoundFolder):
    """A finished run, read back.

    Attributes:
        config: its resolved configuration.
        environment, metrics, status: its env.json, metrics.json and status.json.
    """

    config: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    status: dict[str, Any] = field(default_factory=dict)

    def read(self, name: str) -> bytes:
        """One file, as the run wrote it (``BoundFolder.read``); who reads while the run's state is swapped is told so."""
        try:
            return super().read(name)
        except ConfigError:
            if not unsettled(self.home) and manifest_digest(self.home) == self.digest:
                raise
            raise ConfigError(f"{self.key}={self.home}: {_SWAPPED}") from None

    def released_weights(self) -> tuple[np.ndarray, dict[str, Any]]:
        """The weights that a release published, and the noise they carry.

        Raises:
            ConfigError: this run released none, or a file is not what the manifest lists.
        """
        path = self.folder / "released_weights.safetensors"
        if not self.holds(path.name):
            raise ConfigError(
                f"{self.key}={self.folder}: released no weights: was it a run with mechanism=release_weights?"
            )
        try:
            weight = load(self.read(path.name))["weight"].numpy()
        except (SafetensorError, KeyError) as error:
            raise ConfigError(f"{path}: cannot be read ({error})") from None
        constants = path.with_suffix(".json")
        return weight, read_object(self.read(constants.name), constants, self.key)


_TRIES = 3  # of a run that changes while it is opened
_SWAPPED = "its state was changed while it was read (agt unlearn): ask again"


def open_run(folder: Path, command: str, digest: str | None = None, key: str = "run") -> FinishedRun:
    """Read a finished run of ``command``, and verify every file of it.

    A run whose state is just being swapped (swap.py) is read in its new one; an interrupted swap is brought to its end.

    Args:
        digest: the run must be the one of this digest; None: any.
        key: the setting that names the folder, for messages; ``digest`` is another beside it.

    Raises:
        ConfigError: no such folder, not a run, another command's run, not finished, another run than ``digest``, or a file
            is not what the run wrote; says which file shows it.
    """
    if not folder.is_dir():
        raise ConfigError(f"{key}={folder}: no such folder{_latest(folder, command)}")
    settle(folder, key)
    for _ in range(_TRIES):
        before = manifest_digest(folder)
        try:
            return _opened(folder, command, digest, key)
        except ConfigError:
            settle(folder, key)
            if manifest_digest(folder) == before:
                raise
    raise ConfigError(f"{key}={folder}: {_SWAPPED}")


def _opened(folder: Path, command: str, digest: str | None, key: str) -> FinishedRun:
    try:
        content = plain(folder / "status.json")
    except FileNotFoundError:
        raise ConfigError(f"{key}={folder}: not a run folder (status.json is missing)") from None
    except OSError as error:
        raise ConfigError(f"{key}={folder}: status.json cannot be read ({error})") from None
    status = read_object(content, folder / "status.json", key)
    _check_status(status, folder, command, key)
    bare = FinishedRun.open(folder, command, digest, key)
    with refusing(folder, key):
        bare.manifest.check("status.json", content)
    environment, metrics = (read_object(bare.read(name), folder / name, key) for name in ("env.json", "metrics.json"))
    config = read_config(bare.read("config.yaml"), folder / "config.yaml", key)
    return replace(bare, config=config, environment=environment, metrics=metrics, status=status)


def manifest_digest(folder: Path) -> str:
    """The digest of the manifest that lies there now; empty: none does."""
    try:
        return f"sha256:{sha256(plain(folder / MANIFEST)).hexdigest()}"
    except OSError:
        return ""


def _check_status(status: Mapping[str, Any], folder: Path, command: str, key: str) -> None:
    if status.get("command") != command:
        raise ConfigError(f"{key}={folder}: status.json says this is a run of {status.get('command')!r}, not {command!r}")
    if status.get("state") != "done":
        why = f" ({status['error']})" if status.get("error") else ""
        again = f"agt train resume={folder} goes on with it" if command == "train" else f"start `agt {command}` again"
        if status.get("state") == "running":
            why, again = {
                True: (" and it is", "wait for it"),
                False: (", and its process is gone: it was killed", again),
                None: (f", and {UNKNOWN}", f"start `agt {command}` again"),
            }[is_alive(folder)]
        raise ConfigError(
            f"{key}={folder}: status.json says {status.get('state')!r}{why}, so there is nothing to use: {again}"
        )


def _latest(folder: Path, command: str) -> str:
    """A suffix naming the newest finished run beside the folder that was asked for, if there is one."""
    run = newest(folder.parent, command)
    return f"; the newest finished {command} run there is {run.folder}" if run else ""
