"""Run records: what a command writes about a run, and how other commands read it back.

    config.yaml   resolved configuration       env.json      versions, device, revision, data digest, argv, seed
    status.json   running | done | failed      metrics.json  flat numbers
    model.safetensors, bounds/k=00005.safetensors            nominal parameters, and "lower.<name>", "upper.<name>"
    model.safetensors ("weight" [classes or 1, width]), features.safetensors, stability.json         a linear head's
    members/000/...                                          an ensemble's members, each with the files of its model
    certificates.parquet, tables/*.csv, figures/*.{pdf,png}, report.md

stability.json holds what a certificate or a release of the weights needs beside them: rho (what one record moves them
by), rounding, rho_fp (their sum), per_k (what one k of the relation moves them by), sensitivity (the same for all classes
together, l2), and the loss's constants.
A folder is claimed once and never written over. Every file appears whole or not at all, so a killed run leaves nothing
that could be mistaken for a finished one: its state stays "running".
"""

import json
import math
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pandas as pd
import torch
from omegaconf import OmegaConf
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor
from yaml import YAMLError  # type: ignore[import-untyped]

import agt_cli
from agt_cli.certificates.conditions import Condition
from agt_cli.errors import AgtError, ConfigError, UnsoundError
from agt_cli.facts import Standing

PACKAGES = ("torch", "numpy", "hydra-core", "omegaconf", "pandas", "pyarrow", "scikit-learn", "numba", "safetensors")
Tensors = dict[str, Tensor]


def write_atomic(path: Path, content: bytes) -> None:
    """Write ``content`` so that ``path`` holds either all of it or what it held before.

    Raises:
        OSError: with ``filename`` set, also where the system names no file (a full disk).
    """
    part = path.with_name(f"{path.name}.part{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


class RunRecord:
    """One run's folder, open for writing: a context manager that ends it as done or failed.

    Args:
        folder: claimed on entry.
        command: the command's name.
        config: the resolved configuration.
    """

    def __init__(self, folder: Path, command: str, config: Mapping[str, Any]) -> None:
        self.folder, self.command, self.config = folder, command, config
        self._environment: dict[str, Any] = {}
        self._metrics: dict[str, float | int | str] = {}
        self._started = 0.0

    def __enter__(self) -> "RunRecord":
        """Claim the folder and write what is known at the start.

        Raises:
            ConfigError: the folder already holds a run.
        """
        self._started = time.monotonic()
        self._status = {"command": self.command, "started": datetime.now(UTC).isoformat(timespec="seconds")}
        self._claim()
        self.write("config.yaml", to_yaml(self.config).encode())
        self.environment(**describe_environment(self.config))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        text = "interrupted" if isinstance(error, KeyboardInterrupt) else f"{type(error).__name__}: {error}"
        try:
            self._write_json("metrics.json", self._metrics)
            if error is None:
                self._end("done")
            else:
                self._end("failed", error=text, exit_code=exit_code(error))
        except OSError:
            if error is None:  # otherwise the first failure is the one to report
                raise

    def _claim(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            # Exclusive creation is atomic: of two runs given one folder, the second stops here.
            with (self.folder / "status.json").open("x") as file:
                json.dump({"state": "running", **self._status}, file)
        except FileExistsError as error:
            if not self.folder.is_dir():
                raise
            raise ConfigError(f"{self.folder} already holds a run: give hydra.run.dir a folder of its own") from error

    def _end(self, state: str, **more: object) -> None:
        seconds = round(time.monotonic() - self._started, 3)
        ended = datetime.now(UTC).isoformat(timespec="seconds")
        self._write_json("status.json", {"state": state, **self._status, "ended": ended, "seconds": seconds, **more})

    def write(self, name: str, content: bytes) -> Path:
        """Write one file of the record, whole or not at all; returns its path."""
        write_atomic(self.folder / name, content)
        return self.folder / name

    def _write_json(self, name: str, value: object) -> None:
        self.write(name, (json.dumps(value, indent=2, default=str) + "\n").encode())

    def environment(self, **facts: object) -> None:
        """Add to env.json."""
        self._environment.update(facts)
        self._write_json("env.json", self._environment)

    @property
    def metrics(self) -> dict[str, float | int | str]:
        """The metrics added so far."""
        return dict(self._metrics)

    def add_metrics(self, **numbers: float | int | str) -> None:
        """Add to metrics.json, one level deep.

        Raises:
            UnsoundError: a number is NaN or infinite.
        """
        for name, number in numbers.items():
            if isinstance(number, float) and not math.isfinite(number):
                raise UnsoundError(f"metric {name} is {number}")
        self._metrics.update(numbers)
        self._write_json("metrics.json", self._metrics)

    def conditions(self, conditions: Sequence[Condition]) -> None:
        """Write conditions.json, and to the metrics how many hold, and how many of those rest on declarations."""
        self._write_json("conditions.json", [condition.as_json() for condition in conditions])
        held = sum(condition.held for condition in conditions)
        declared = sum(condition.standing is Standing.DECLARED for condition in conditions)
        self.add_metrics(conditions_held=held, conditions_declared=declared, conditions=len(conditions))

    def table(self, name: str, table: pd.DataFrame) -> None:
        """Write tables/NAME.csv."""
        self.write(f"tables/{name}.csv", table.to_csv(index=False, lineterminator="\n").encode())

    def parquet(self, name: str, table: pd.DataFrame) -> None:
        """Write NAME.parquet."""
        buffer = BytesIO()
        table.to_parquet(buffer, index=False)
        self.write(f"{name}.parquet", buffer.getvalue())

    def model(self, ks: tuple[int, ...], nominal: Tensors, lower: Tensors, upper: Tensors) -> None:
        """Write the nominal parameters and, for each k, the box. ``lower`` and ``upper`` have a leading axis over k."""
        self.write("model.safetensors", save({n: t.contiguous() for n, t in nominal.items()}))
        for index, k in enumerate(ks):
            box = {f"lower.{n}": t[index].contiguous() for n, t in lower.items()}
            box |= {f"upper.{n}": t[index].contiguous() for n, t in upper.items()}
            self.write(bounds_file(k), save(box, metadata={"k": str(k)}))

    def part(self, name: str) -> "RunRecord":
        """The same record's subfolder, for a part that keeps its files as a whole run does (a member of an ensemble)."""
        part = copy(self)
        part.folder = self.folder / name
        return part

    def linear(self, weight: Tensor, matrices: Tensors, constants: Mapping[str, object]) -> None:
        """Write a linear head, the public matrices of its features, and how far one record moves it."""
        self.write("model.safetensors", save({"weight": weight.contiguous()}))
        self.write("features.safetensors", save({name: matrix.contiguous() for name, matrix in matrices.items()}))
        self._write_json("stability.json", constants)

    def released_weights(self, weight: np.ndarray, constants: Mapping[str, object]) -> None:
        """Write weights that may be published, and the noise they carry."""
        tensor = torch.from_numpy(np.ascontiguousarray(weight))
        self.write("released_weights.safetensors", save({"weight": tensor}))
        self._write_json("released_weights.json", constants)


def exit_code(error: BaseException | None) -> int:
    """What the command ends with after ``error``."""
    if isinstance(error, KeyboardInterrupt):
        return 130
    return error.exit_code if isinstance(error, AgtError) else 1


def bounds_file(k: int) -> str:
    """Where the box of one k lies in the record."""
    return f"bounds/k={k:05d}.safetensors"


def describe_environment(config: Mapping[str, Any]) -> dict[str, Any]:
    """Versions, machine, device, revision, command line and seed."""
    compute, training = config.get("compute") or {}, config.get("training") or {}
    return {
        "agt": agt_cli.__version__,
        "revision": _revision(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in PACKAGES},
        "device": _device(compute.get("device", "cpu")),
        "cpus": os.cpu_count(),
        "threads": compute.get("threads") or torch.get_num_threads(),
        "argv": sys.argv,
        "seed": training.get("seed"),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _device(name: str) -> str:
    if name == "cuda" and torch.cuda.is_available():
        return f"cuda ({torch.cuda.get_device_name()})"
    return f"{name} ({platform.processor() or platform.machine()})"


def _revision() -> str | None:
    """The revision of this source tree, marked "+changes" if files differ; None if installed from a wheel."""
    root = Path(agt_cli.__file__).resolve().parent.parent
    if not (root / ".git").exists():  # never the revision of a repository that merely surrounds an installed copy
        return None
    revision = _git(root, "rev-parse", "HEAD")
    changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    return f"{revision}+changes" if revision and changed else revision


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


@dataclass(frozen=True)
class FinishedRun:
    """A finished run, read back.

    Attributes:
        folder: where it lies.
        config: its resolved configuration.
        environment, metrics: its env.json and metrics.json.
    """

    folder: Path
    config: dict[str, Any]
    environment: dict[str, Any]
    metrics: dict[str, Any]

    def part(self, name: str) -> "FinishedRun":
        """The same run's subfolder."""
        return replace(self, folder=self.folder / name)

    def boxes(self, ks: tuple[int, ...], like: Tensors) -> tuple[Tensors, Tensors, Tensors]:
        """The saved parameters and boxes.

        Args:
            ks: the grid; every k of it must be there.
            like: name -> a tensor of the shape and dtype expected.

        Returns:
            nominal, lower [K, ...] and upper [K, ...].

        Raises:
            ConfigError: a file is missing or cannot be read.
            UnsoundError: a tensor has another shape or dtype, is not finite, or lower > upper.
        """
        nominal = self.tensors("model.safetensors", like)
        ends = {end: {f"{end}.{name}": tensor for name, tensor in like.items()} for end in ("lower", "upper")}
        boxes = [self.tensors(bounds_file(k), ends["lower"] | ends["upper"]) for k in ks]
        for k, box in zip(ks, boxes, strict=True):
            for name in like:
                if not bool((box[f"lower.{name}"] <= box[f"upper.{name}"]).all()):
                    raise UnsoundError(f"{self.folder / bounds_file(k)}: lower.{name} exceeds upper.{name}")
        lower, upper = (
            {name: torch.stack([box[f"{end}.{name}"] for box in boxes]) for name in like} for end in ("lower", "upper")
        )
        return nominal, lower, upper

    def constants(self) -> dict[str, Any]:
        """stability.json of a linear head.

        Raises:
            ConfigError: it is missing or cannot be read.
        """
        return _read_json(self.folder / "stability.json")

    def released_weights(self) -> tuple[np.ndarray, dict[str, Any]]:
        """The weights that a release published, and the noise they carry.

        Raises:
            ConfigError: this run released none, or a file cannot be read.
        """
        path = self.folder / "released_weights.safetensors"
        try:
            weight = load(path.read_bytes())["weight"].numpy()
        except (OSError, SafetensorError, KeyError) as error:
            raise ConfigError(f"{path}: cannot be read ({error}): was it a run with mechanism=release_weights?") from None
        return weight, _read_json(self.folder / "released_weights.json")

    def tensors(self, name: str, like: Tensors) -> Tensors:
        """The tensors of one file.

        Args:
            name: the file.
            like: name -> a tensor of the shape and dtype expected.

        Raises:
            ConfigError: the file is missing or cannot be read.
            UnsoundError: a tensor has another shape or dtype, or is not finite.
        """
        path = self.folder / name
        try:
            tensors: Tensors = load(path.read_bytes())
        except (OSError, SafetensorError) as error:
            raise ConfigError(f"{path}: cannot be read ({error}); train again") from None
        if tensors.keys() != like.keys():
            raise UnsoundError(f"{path}: holds {sorted(tensors)}, expected {sorted(like)}; train again")
        for key, tensor in tensors.items():
            expected = like[key]
            if tensor.shape != expected.shape or tensor.dtype != expected.dtype:
                raise UnsoundError(
                    f"{path}: {key} is {tensor.dtype} {tuple(tensor.shape)}, "
                    f"expected {expected.dtype} {tuple(expected.shape)}; train again"
                )
            if not bool(torch.isfinite(tensor).all()):
                raise UnsoundError(f"{path}: {key} is NaN or infinite; train again")
        return {key: tensors[key] for key in like}  # in the model's order, which a file does not keep


def open_run(folder: Path, command: str) -> FinishedRun:
    """Read a finished run of ``command``.

    Raises:
        ConfigError: no such folder, not a run, another command's run, or not finished; says which file shows it.
    """
    if not folder.is_dir():
        raise ConfigError(f"run={folder}: no such folder{_latest(folder, command)}")
    status = _read_json(folder / "status.json")
    if status.get("command") != command:
        raise ConfigError(f"run={folder}: status.json says this is a run of {status.get('command')!r}, not {command!r}")
    if status.get("state") != "done":
        why = f" ({status['error']})" if status.get("error") else ""
        raise ConfigError(
            f"run={folder}: status.json says {status.get('state')!r}{why}, so there is nothing to use; "
            f"a run that was killed stays 'running': start `agt {command}` again"
        )
    config = _read_config(folder / "config.yaml")
    return FinishedRun(folder, config, _read_json(folder / "env.json"), _read_json(folder / "metrics.json"))


def to_yaml(config: Mapping[str, Any]) -> str:
    """A plain configuration as yaml, keys in their order."""
    return OmegaConf.to_yaml(OmegaConf.create(dict(config)))


def _read_config(path: Path) -> dict[str, Any]:
    try:
        config = OmegaConf.to_container(OmegaConf.load(path))
    except (OSError, ValueError, YAMLError) as error:
        raise ConfigError(f"run={path.parent}: {path.name} cannot be read ({error})") from None
    if not isinstance(config, dict):
        raise ConfigError(f"run={path.parent}: {path.name} does not hold a mapping")
    return {str(key): value for key, value in config.items()}


def _latest(folder: Path, command: str) -> str:
    """A suffix naming the newest run beside the folder that was asked for, if there is one."""
    runs = sorted(path.parent for path in folder.parent.glob("*/status.json"))
    return f"; the newest {command} run there is {runs[-1]}" if runs else ""


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text())
    except FileNotFoundError:
        raise ConfigError(f"run={path.parent}: not a run folder ({path.name} is missing)") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"run={path.parent}: {path.name} cannot be read ({error})") from None
    if not isinstance(value, dict):
        raise ConfigError(f"run={path.parent}: {path.name} does not hold an object")
    return value
