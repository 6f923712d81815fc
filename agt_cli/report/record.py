"""Run records: what a command writes about a run; finished.py is how other commands read it back.

    config.yaml   resolved configuration       env.json      versions, device, revision, data digest, argv, seed
    status.json   running | done | failed      metrics.json  flat numbers
    model.safetensors, bounds/k=00005.safetensors            nominal parameters, and "lower.<name>", "upper.<name>"
    model.safetensors ("weight" [classes or 1, width]), features.safetensors, stability.json         a linear head's
    members/000/...                                          an ensemble's members, each with the files of its model
    members/000/shard.json, slices/001.safetensors, ...      what it was trained on, by digest; states on the way
    source.json, encoder.safetensors                         what queries need of the data; release/: portable weights
    certificates.parquet, tables/*.csv, figures/*.{pdf,png}, report.md, report.html (the same words, figures inside)
    labels.csv, or labels.parquet where the queries came as a parquet file too large to be held: a release's answers
    spent.json    what a release is about to give away, before it does               manifest.json   every file's hash
    records.bin   keyed hashes of the training records; unlearning/: requests to erase, and the key (agt/unlearning);
                  of requests that wait: waiting.json, abstained.jsonl (runs/waiting.py)
    lock, checkpoint/   while a run lasts (unfinished.py): whose process is alive, and what a training has reached

stability.json holds what a certificate or a release of the weights needs beside them: rho (what one record moves them
by), rounding, rho_fp (their sum), per_k (what one k of the relation moves them by), sensitivity (the same for all classes
together, l2), and the loss's constants.
A folder is claimed once and never written over. Every file appears whole or not at all, so a killed run leaves nothing
that could be mistaken for a finished one: its state stays "running". Every file goes through ``RunRecord.write``, which
notes its hash, and comes back through ``FinishedRun.read`` (finished.py), which compares it (manifest.py).
"""

import json
import math
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from copy import copy
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from io import RawIOBase
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, cast

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from omegaconf import OmegaConf
from safetensors.torch import save

import agt_cli
from agt.certificates.conditions import Condition
from agt.disk import Pending, remove_parts, sync_folder, write_atomic
from agt.errors import AgtError, ConfigError, UnsoundError
from agt.facts import Standing
from agt.manifest import NAME as MANIFEST
from agt.manifest import Manifest
from agt.models.store import as_json
from agt.provenance import package_version
from agt_cli.report.html import report_page
from agt_cli.report.markdown import plain
from agt_cli.report.unfinished import (
    KEY,
    Unfinished,
    check_open,
    lock_of,
    read_status,
    remove_leftovers,
    still_running,
)
from agt_cli.shares import VISIBLE

PACKAGES = ("torch", "numpy", "hydra-core", "omegaconf", "pandas", "pyarrow", "scikit-learn", "numba", "safetensors")


class RunRecord:
    """One run's folder, open for writing: a context manager that ends it as done or failed.

    Args:
        folder: claimed on entry.
        command: the command's name.
        config: the resolved configuration.
        again: the run that was killed or failed in this folder, and goes on; None: a new one.

    Attributes:
        again: as given.
        digest: the finished run's (manifest.py); None before it is finished.
    """

    def __init__(self, folder: Path, command: str, config: Mapping[str, Any], again: Unfinished | None = None) -> None:
        self.folder, self.command, self.config, self.again = folder, command, config, again
        self._lock = lock_of(folder)
        self._environment: dict[str, Any] = {}
        self._metrics: dict[str, float | int | str] = {}
        self._home, self._hashes = folder, dict[str, str]()  # parts write into the same list
        self._reserved: list[Pending] = []
        self._standings = ""
        self._started = 0.0
        self.digest: str | None = None

    def __enter__(self) -> "RunRecord":
        """Claim the folder and write what is known at the start.

        Raises:
            ConfigError: the folder already holds a run; or the run that is to go on is not what it was.
        """
        self._started = time.monotonic()
        now = datetime.now(UTC).isoformat(timespec="microseconds")
        self._status: dict[str, Any] = {"command": self.command, "started": now}
        if self.again is None:
            self._claim()
        else:
            self._take_up(self.again, now)
        try:
            self.reconfigure(self.config)
            self.environment(**(describe_environment(self.config) | self._history(now)))
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.digest is not None:
            return  # whatever happened after the run was finished, what it wrote is whole
        if error is None:
            self.finish()
            return
        text = str(error) or "interrupted" if isinstance(error, KeyboardInterrupt) else f"{type(error).__name__}: {error}"
        with suppress(OSError):  # the first failure is the one to report
            self._fail(text, exit_code(error))
            self._write_json("metrics.json", self._metrics)
        self._lock.release()

    def finish(self) -> str:
        """End the run as done, before anything is said of it; nothing can be written any more.

        The manifest lists the status that says so and is written first: a run that is killed between the two is still
        "running", and nobody uses it.

        Returns:
            The run's digest.
        """
        try:
            self._write_json("metrics.json", self._metrics)
            status = as_json(self._status_now("done"))
            manifest = Manifest(self.command, {**self._hashes, "status.json": sha256(status).hexdigest()})
            write_atomic(self.folder / MANIFEST, manifest.content)
            write_atomic(self.folder / "status.json", status)
        except OSError as error:
            with suppress(OSError):
                self._fail(f"{type(error).__name__}: {error}", exit_code(error))
            raise
        self.digest = manifest.digest
        remove_leftovers(self.folder)
        self._lock.release()
        return self.digest

    def _claim(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if (self.folder / "status.json").exists() or not self._lock.take():
                raise FileExistsError
            # Exclusive creation is atomic: of two runs given one folder, the second stops here.
            with (self.folder / "status.json").open("x") as file:
                json.dump({"state": "running", **self._status}, file)
            for folder in (self.folder.resolve(), *self.folder.resolve().parents):
                sync_folder(folder)  # whoever made the folders, a power cut must not take what is in them
        except OSError as error:
            self._lock.release()
            if not isinstance(error, FileExistsError) or not self.folder.is_dir():
                raise
            raise ConfigError(f"{self.folder} already holds a run: give hydra.run.dir a folder of its own") from error

    def _take_up(self, again: Unfinished, now: str) -> None:
        """Go on in a folder whose process is gone: of two that try, one gets its lock."""
        if not self._lock.take():
            raise still_running(again.folder)
        if not self._lock.works:
            raise ConfigError(
                f"{KEY}={again.folder}: this file system keeps no locks, so nobody can tell whether the run's process is "
                "alive: copy the folder to a local disk, once you know that it is not"
            )
        try:
            status = read_status(again.folder)
            check_open(again.folder, status)  # it was not finished when its settings were read
        except ConfigError:
            self._lock.release()
            raise
        remove_parts(self.folder)
        self._status = {**self._status, "started": status["started"], "resumed": [*status.get("resumed", ()), now]}
        write_atomic(self.folder / "status.json", as_json({"state": "running", **self._status}))

    def _history(self, now: str) -> dict[str, object]:
        """What env.json tells of a run that goes on: how it was begun, and each time that it was taken up."""
        if self.again is None:
            return {}
        before = self.again.environment
        return {"argv": before.get("argv"), "resumed": [*before.get("resumed", ()), {"time": now, "argv": sys.argv}]}

    def _fail(self, text: str, code: int) -> None:
        for pending in self._reserved:  # a full disk then has room to say so
            pending.discard()
        write_atomic(self.folder / "status.json", as_json(self._status_now("failed", error=text, exit_code=code)))

    def _status_now(self, state: str, **more: object) -> dict[str, object]:
        seconds = round(time.monotonic() - self._started, 3)
        ended = datetime.now(UTC).isoformat(timespec="microseconds")
        return {"state": state, **self._status, "ended": ended, "seconds": seconds, **more}

    def write(self, name: str, content: bytes) -> Path:
        """Write one file of the record, whole or not at all, and note its hash; returns its path."""
        with self.opened(name) as file:
            file.write(content)
        return self.folder / name

    def opened(self, name: str) -> AbstractContextManager[BinaryIO]:
        """``write`` for a file that is written part after part: it appears at the end, or never."""
        return self._opened(Pending(self.folder / name))

    def reserve(self, name: str, size: int) -> Callable[[], AbstractContextManager[BinaryIO]]:
        """``opened`` for a file that has ``size`` bytes of the disk from now on (``Pending``)."""
        pending = Pending(self.folder / name, size)
        self._reserved.append(pending)
        return partial(self._opened, pending)

    @contextmanager
    def _opened(self, pending: Pending) -> Iterator[BinaryIO]:
        if self.digest is not None:
            raise RuntimeError(f"{pending.path}: the run is finished, and its manifest is written")
        with pending.opened() as file:
            hashing = Hashing(file)
            yield cast(BinaryIO, hashing)
        self._hashes[pending.path.relative_to(self._home).as_posix()] = hashing.hexdigest()

    def _write_json(self, name: str, value: object) -> None:
        self.write(name, as_json(value))

    def reconfigure(self, config: Mapping[str, Any]) -> None:
        """Write config.yaml: what was resolved, or what of it was drawn anew since."""
        self.config = config
        self.write("config.yaml", to_yaml(config).encode())

    def environment(self, **facts: object) -> None:
        """Add to env.json."""
        self._environment.update(facts)
        self._write_json("env.json", self._environment)

    @property
    def place(self) -> Path:
        """Where the finished run is to be read: the folder that its key lies in (agt/unlearning/keys.py)."""
        return self._home

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
        self._standings = "\n".join(f"- {c.letter} {plain(c.name)} **{c.standing}**" for c in conditions)

    def report(self, text: str) -> None:
        """Write report.md, and report.html from it.

        Args:
            text: Markdown. How each condition stands, if that was written, is added below its title and first paragraph;
                at the end, how many processes shared the work, if they were several.
        """
        parts = text.split("\n\n", 2)
        text = "\n\n".join([*parts[:2], *filter(None, [self._standings]), *parts[2:], *self._shared()])
        self.write("report.md", text.encode())
        self.write("report.html", report_page(text, self._figure).encode())

    def _shared(self) -> Iterator[str]:
        if several := self._environment.get("processes"):
            on = f"machines: {len(set(several['hosts']))}, threads of each process: {self._environment['threads']}"
            yield f"Computed by {several['count']} processes ({on}), to the bits of one with as many threads.\n"

    def _figure(self, name: str) -> bytes | None:
        """A figure that this run drew; None: it drew no such."""
        drawn = name in self._hashes and name.endswith(".png")
        return (self.folder / name).read_bytes() if drawn else None

    def table(self, name: str, table: pd.DataFrame) -> None:
        """Write tables/NAME.csv."""
        self.write(f"tables/{name}.csv", csv_bytes(table))

    def parquet(self, name: str, parts: Iterable[pd.DataFrame]) -> None:
        """Write NAME.parquet, part after part; at least one."""
        tables = (pa.Table.from_pandas(part, preserve_index=False) for part in parts)
        first = next(tables)
        with self.opened(f"{name}.parquet") as file, pq.ParquetWriter(file, first.schema) as writer:
            for rows in chain([first], tables):
                writer.write_table(rows)

    def part(self, name: str) -> "RunRecord":
        """The same record's subfolder, for a part that keeps its files as a whole run does (a member of an ensemble)."""
        part = copy(self)
        part.folder = self.folder / name
        return part

    def released_weights(self, weight: np.ndarray, constants: Mapping[str, object]) -> None:
        """Write weights that may be published, and the noise they carry."""
        tensor = torch.from_numpy(np.ascontiguousarray(weight))
        self.write("released_weights.safetensors", save({"weight": tensor}))
        self._write_json("released_weights.json", constants)


class Hashing(RawIOBase):
    """A file that is only added to, with the hash of what was written."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._hash = file, sha256()
        self.hexdigest = self._hash.hexdigest

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, content: Any) -> int:
        """All of it."""
        self._hash.update(content)
        return self._file.write(content)

    def tell(self) -> int:
        """Where the next bytes go."""
        return self._file.tell()


def csv_bytes(table: pd.DataFrame) -> bytes:
    """A table as every command writes it."""
    return table.to_csv(index=False, lineterminator="\n").encode()


def exit_code(error: BaseException | None) -> int:
    """What the command ends with after ``error``."""
    if isinstance(error, KeyboardInterrupt):
        return getattr(error, "exit_code", 130)
    return error.exit_code if isinstance(error, AgtError) else 1


def describe_environment(config: Mapping[str, Any]) -> dict[str, Any]:
    """Versions, machine, device, revision, command line and seed."""
    compute, training = config.get("compute") or {}, config.get("training") or {}
    return {
        "agt": agt_cli.__version__,
        "revision": _revision(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: package_version(name) for name in PACKAGES},
        "device": _device(compute.get("device", "cpu")),
        **({VISIBLE: os.environ.get(VISIBLE)} if compute.get("device") == "cuda" else {}),
        "cpus": os.cpu_count(),
        "threads": compute.get("threads") or torch.get_num_threads(),
        "argv": sys.argv,
        "seed": training.get("seed"),
    }


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


def to_yaml(config: Mapping[str, Any]) -> str:
    """A plain configuration as yaml, keys in their order."""
    return OmegaConf.to_yaml(OmegaConf.create(literal(dict(config))))


def literal(node: Any) -> Any:
    """The same configuration, in which text that looks like an interpolation is read back as that text."""
    if isinstance(node, str):
        return re.sub(r"(\\*)\$\{", lambda start: 2 * start[1] + r"\${", node)
    if isinstance(node, Mapping):
        return {key: literal(value) for key, value in node.items()}
    return [literal(value) for value in node] if isinstance(node, list | tuple) else node
