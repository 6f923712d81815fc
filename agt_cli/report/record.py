"""Run records: what a command writes about a run; finished.py is how other commands read it back.

A folder is claimed once and never written over. Every file appears whole or not at all, so a killed
run leaves nothing that could be mistaken for a finished one: its state stays "running". Every file
goes through ``RunRecord.write``, which notes its hash, and comes back through ``Folder.read``
(agt/store/folder.py), which compares it.

    config.yaml, env.json, status.json, metrics.json         settings; versions, device, data
                                                             digest; running, done or failed; flat
                                                             numbers
    model.safetensors, bounds/k=00005.safetensors            parameters, and "lower.<name>",
                                                             "upper.<name>"
    stability.json                                           of a linear head: rho (what one record
                                                             moves the weights by), rounding, rho_fp
                                                             (their sum), per_k, sensitivity (l2)
    members/000/..., shards.json                             an ensemble's members
    source.json, encoder.safetensors, features.safetensors   what queries need of the data
    certificates.parquet, tables/, figures/, report.md       what was found; report.html has the
                                                             same words
    labels.csv or labels.parquet, release/                   what may be published
    spent.json                                               what a release is about to give away
    records.bin, unlearning/                                 keyed hashes of the training records;
                                                             requests to erase, and the key
    manifest.json                                            every file's hash
    lock, checkpoint/                                        while a run lasts

``NextState`` is the next state of a run, written beside it as a whole record, and put in its place
by ``commit`` (next_state.py).
"""

import json
import math
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime
from functools import cache, partial
from hashlib import sha256
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from omegaconf import OmegaConf
from safetensors.numpy import save

import agt_cli
from agt.errors import AgtError, ConfigError, UnsoundError
from agt.provenance import package_version
from agt.store.atomic import Pending, remove_parts, sync_folder, write_atomic
from agt.store.folder import FolderWriter
from agt.store.json_text import as_json
from agt.store.lock import Lock
from agt.store.manifest import MANIFEST_FILE, Manifest
from agt_cli.process import VISIBLE_GPUS
from agt_cli.report.finished import LOCK, NEXT, Run
from agt_cli.report.markdown import report_page, standings
from agt_cli.report.unfinished import RESUME_KEY, check_open, remove_leftovers, still_running
from agt_cli.unlearn.log import state_of

RESUMABLE = "train"
# of the disk, kept while such a run lasts: where it is full, it can still be said to have failed
STATUS_BYTES = 2**14
if TYPE_CHECKING:  # the record of answers from released weights loads no torch
    import pandas as pd

    from agt.certificates.conditions import Condition

PACKAGES = (
    "torch",
    "numpy",
    "hydra-core",
    "omegaconf",
    "pandas",
    "pyarrow",
    "scikit-learn",
    "numba",
    "safetensors",
)


class RunRecord(FolderWriter):
    """One run's folder, open for writing: a context manager that ends it as done or failed.

    Args:
        folder: claimed on entry.
        command: the command's name.
        config: the resolved configuration.
        again: the run that was killed or failed in this folder, and goes on; None: a new one.

    Attributes:
        again: as given.
        digest: the finished run's (agt/store/manifest.py); None before it is finished.
    """

    def __init__(
        self, folder: Path, command: str, config: Mapping[str, Any], again: Run | None = None
    ) -> None:
        super().__init__(folder, command)
        self.config, self.again = config, again
        self._lock = Lock(folder / LOCK)
        self._environment: dict[str, Any] = {}
        self._metrics: dict[str, float | int | str] = {}
        self._reserved: list[Pending] = []
        self.standings = ""  # Markdown for the page: how each condition stands
        self._started = 0.0
        self._leaves_nothing = False

    def __enter__(self) -> "RunRecord":
        """Claim the folder and write what is known at the start.

        Raises:
            ConfigError: the folder already holds a run; or the run that is to go on is not what it
                was.
        """
        self._started = time.monotonic()
        now = datetime.now(UTC).isoformat(timespec="microseconds")
        self._status: dict[str, Any] = {"command": self.command, "started": now}
        if self.again is None:
            self._claim()
        else:
            self._take_up(self.again, now)
        try:
            if self.command == RESUMABLE:
                # the next status of this process is written there
                Pending(self.folder / "status.json", STATUS_BYTES)
            self.reconfigure(self.config)
            self.environment(**(describe_environment(self.config) | self._history(now)))
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.digest is not None:
            return  # whatever happened after the run was finished, what it wrote is whole
        if self._leaves_nothing:
            self._remove()
            return
        if error is None:
            self.finish()
            return
        text = (
            str(error) or "interrupted"
            if isinstance(error, KeyboardInterrupt)
            else f"{type(error).__name__}: {error}"
        )
        try:
            self._fail(text, exit_code(error))
        except OSError:  # the first failure is the one to report
            # "running", with a lock that nobody holds: a killed run, which can go on
            self._lock.abandon()
            return
        with suppress(OSError):
            self._write_json("metrics.json", self._metrics)
        self._lock.release()

    def leave_nothing(self) -> None:
        """Have the files of this record removed when it ends, because nothing was done."""
        self._leaves_nothing = True

    def _remove(self) -> None:
        """Remove what this record wrote, and its folder unless others have files there."""
        for name in (*self._hashes, "status.json"):
            (self.folder / name).unlink(missing_ok=True)
        self._lock.release()
        with suppress(OSError):
            self.folder.rmdir()

    def finish(self) -> str:
        """End the run as done, before anything is said of it; nothing can be written any more.

        The manifest lists the status that says so and is written first: a run that is killed
        between the two is still "running", and nobody uses it.

        Returns:
            The run's digest.
        """
        try:
            self._write_json("metrics.json", self._metrics)
            status = as_json(self._status_now("done"))
            manifest = Manifest(
                self.command, {**self._hashes, "status.json": sha256(status).hexdigest()}
            )
            write_atomic(self.folder / MANIFEST_FILE, manifest.content)
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
            if (self.folder / "status.json").exists() or not self._lock.acquire():
                raise FileExistsError
            # Exclusive creation is atomic: of two runs given one folder, the second stops here.
            with (self.folder / "status.json").open("x") as file:
                json.dump({"state": "running", **self._status}, file)
            for folder in (self.folder.resolve(), *self.folder.resolve().parents):
                # whoever made the folders, a power cut must not take what is in them
                sync_folder(folder)
        except OSError as error:
            self._lock.release()
            if not isinstance(error, FileExistsError) or not self.folder.is_dir():
                with suppress(OSError):
                    # ours, and perhaps half written
                    (self.folder / "status.json").unlink(missing_ok=True)
                raise
            raise ConfigError(
                f"{self.folder} already contains a run: give another folder with "
                "hydra.run.dir=FOLDER"
            ) from error

    def _take_up(self, again: Run, now: str) -> None:
        """Go on in a folder whose process is gone: of two that try, one gets its lock."""
        if not self._lock.acquire():
            raise still_running(again.folder)
        if not self._lock.works:
            raise ConfigError(
                f"{RESUME_KEY}={again.folder}: this file system does not support locks, so "
                "agt cannot tell whether the run's process is still running: make sure that "
                "it is not, then copy the folder to a local disk"
            )
        try:
            now_there = Run.at(again.folder, RESUME_KEY)
            status = now_there.json("status.json")
            check_open(now_there)  # it was not finished when its settings were read
        except ConfigError:
            self._lock.release()
            raise
        remove_parts(self.folder)
        self._status = {
            **self._status,
            "started": status["started"],
            "resumed": [*status.get("resumed", ()), now],
        }
        write_atomic(self.folder / "status.json", as_json({"state": "running", **self._status}))

    def _history(self, now: str) -> dict[str, object]:
        """What env.json tells of a run that goes on: how it was begun, and each time that it was
        taken up.
        """
        if self.again is None:
            return {}
        before = self.again.environment
        resumed = [*before.get("resumed", ()), {"time": now, "argv": sys.argv}]
        of_sweep: dict[str, object] = {}
        for key in ("overrides", "signature"):
            if key in before:
                of_sweep[key] = before[key]
        return {"argv": before.get("argv"), "resumed": resumed, **of_sweep}

    def _fail(self, text: str, code: int) -> None:
        for pending in self._reserved:
            pending.discard()
        write_atomic(
            self.folder / "status.json",
            as_json(self._status_now("failed", error=text, exit_code=code)),
        )

    def _status_now(self, state: str, **more: object) -> dict[str, object]:
        seconds = round(time.monotonic() - self._started, 3)
        ended = datetime.now(UTC).isoformat(timespec="microseconds")
        return {"state": state, **self._status, "ended": ended, "seconds": seconds, **more}

    def reserve(self, name: str, size: int) -> Callable[[], AbstractContextManager[BinaryIO]]:
        """``opened`` for a file that has ``size`` bytes of the disk from now on (``Pending``)."""
        pending = Pending(self.folder / name, size)
        self._reserved.append(pending)
        return partial(self._opened, pending)

    def _write_json(self, name: str, value: object) -> None:
        self.write(name, as_json(value))

    def reconfigure(self, config: Mapping[str, Any]) -> None:
        """Write config.yaml: what was resolved, or what of it was drawn anew since."""
        self.config = config
        self.write("config.yaml", to_yaml(config).encode())

    def environment(self, **facts: object) -> None:
        self._environment.update(facts)
        self._write_json("env.json", self._environment)

    @property
    def place(self) -> Path:
        """Where the finished run is to be read: the folder that its key lies in
        (agt_cli/unlearn/log.py).
        """
        return self._manifest_folder

    @property
    def metrics(self) -> dict[str, float | int | str]:
        return dict(self._metrics)

    def add_metrics(self, **numbers: float | int | str) -> None:
        """Add to metrics.json, one level deep.

        Raises:
            UnsoundError: a number is NaN or infinite.
        """
        for name, number in numbers.items():
            if isinstance(number, float) and not math.isfinite(number):
                raise UnsoundError(
                    f"the metric '{name}' is {number}, but a metric must be a finite number"
                )
        self._metrics.update(numbers)
        self._write_json("metrics.json", self._metrics)

    def conditions(self, conditions: "Sequence[Condition]") -> None:
        """Write conditions.json, and to the metrics how many hold, and how many of those rest on
        declarations.
        """
        from agt.certificates.conditions import condition_counts

        self._write_json("conditions.json", [condition.as_json() for condition in conditions])
        self.add_metrics(**condition_counts(conditions))
        self.standings = standings(conditions)

    def report(self, text: str) -> None:
        """Write report.md, and report.html from it.

        Args:
            text: Markdown. At its end is added how many processes shared the work, if they were
                several.
        """
        self.page("report", "\n\n".join([text, *self._shared()]))

    def page(self, name: str, text: str) -> None:
        """Write NAME.md, and NAME.html from it.

        Args:
            name: the name of both files, without its ending.
            text: Markdown.
        """
        self.write(f"{name}.md", text.encode())
        self.write(f"{name}.html", report_page(text, self._figure).encode())

    def _shared(self) -> Iterator[str]:
        if several := self._environment.get("processes"):
            processes = several["count"]
            machines = len(set(several["hosts"]))
            threads = self._environment["threads"]
            yield (
                f"Computed by {processes} processes (machines: {machines}, threads per process: "
                f"{threads}); the result is bit-identical to that of one process with as many "
                "threads.\n"
            )

    def _figure(self, name: str) -> bytes | None:
        """A figure that this run drew; None: it drew no such."""
        drawn = name in self._hashes and name.endswith(".png")
        return (self.folder / name).read_bytes() if drawn else None

    def table(self, name: str, table: "pd.DataFrame") -> None:
        self.write(f"tables/{name}.csv", csv_bytes(table))

    def parquet(self, name: str, parts: "Iterable[pd.DataFrame]") -> None:
        """Write NAME.parquet, part after part; at least one."""
        tables = (pa.Table.from_pandas(part, preserve_index=False) for part in parts)
        first = next(tables)
        with self.opened(f"{name}.parquet") as file, pq.ParquetWriter(file, first.schema) as writer:
            for rows in chain([first], tables):
                writer.write_table(rows)

    def released_weights(self, weight: np.ndarray, constants: Mapping[str, object]) -> None:
        """Write weights that may be published, and the noise they carry."""
        self.write("released_weights.safetensors", save({"weight": np.ascontiguousarray(weight)}))
        self._write_json("released_weights.json", constants)


def csv_bytes(table: "pd.DataFrame") -> bytes:
    """A table as every command writes it."""
    return table.to_csv(index=False, lineterminator="\n").encode()


def exit_code(error: BaseException | None) -> int:
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
        **({VISIBLE_GPUS: os.environ.get(VISIBLE_GPUS)} if compute.get("device") == "cuda" else {}),
        "cpus": os.cpu_count(),
        "threads": compute.get("threads") or _threads(config),
        "argv": sys.argv,
        "seed": training.get("seed"),
    }


def _threads(config: Mapping[str, Any]) -> int | None:
    """PyTorch's; None: of answers from released weights, which it has no part in."""
    if config.get("release"):
        return None
    from torch import get_num_threads

    return get_num_threads()


def _device(name: str) -> str:
    if name == "cuda":
        from torch import cuda

        if cuda.is_available():
            return f"cuda ({cuda.get_device_name()})"
    return f"{name} ({platform.processor() or platform.machine()})"


@cache
def _revision() -> str | None:
    """The revision of this source tree, marked "+changes" if files differ; None if installed
    from a wheel.
    """
    root = Path(agt_cli.__file__).resolve().parent.parent
    # never the revision of a repository that merely surrounds an installed copy
    if not (root / ".git").exists():
        return None
    revision = _git(root, "rev-parse", "HEAD")
    changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    return f"{revision}+changes" if revision and changed else revision


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def to_yaml(config: Mapping[str, Any]) -> str:
    """A plain configuration as yaml, keys in their order."""
    return OmegaConf.to_yaml(OmegaConf.create(literal(dict(config))))


def literal(node: Any) -> Any:
    """The same configuration, in which text that looks like an interpolation is read back as
    that text.
    """
    if isinstance(node, str):
        return re.sub(r"(\\*)\$\{", lambda start: 2 * start[1] + r"\${", node)
    if isinstance(node, Mapping):
        return {key: literal(value) for key, value in node.items()}
    return [literal(value) for value in node] if isinstance(node, list | tuple) else node


class NextState(RunRecord):
    """A record of the run's next state: a training record, made by ``agt unlearn``.

    It keeps the run's configuration, when the run was begun, with what command line, and where its
    data files lay. Its env.json says beside that which digests it succeeds, the oldest first, and
    when each gave way.

    Args:
        run: as it is now; the caller holds it (``run_lock``).
    """

    def __init__(self, run: Run) -> None:
        super().__init__(run.folder / NEXT, "train", run.config)
        self.run = run

    def __enter__(self) -> "NextState":
        shutil.rmtree(self.folder, ignore_errors=True)
        super().__enter__()
        now = self._status["started"]
        self._status |= {"started": self.run.status.get("started", now), "updated": now}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, trace)
        if error is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def place(self) -> Path:
        """The run's folder, in which its key stays."""
        return self.run.folder

    @property
    def state(self) -> str:
        """The name of the model's state that was written so far (``state_of``): what the log's
        next entry tells of.
        """
        return state_of(self._hashes)

    def _history(self, now: str) -> dict[str, object]:
        before = self.run.environment
        kept: dict[str, object] = {
            key: before[key] for key in ("argv", "data_files", "resumed") if key in before
        }
        return {
            **kept,
            "succeeds": [*before.get("succeeds", ()), self.run.digest],
            "updated": [*before.get("updated", ()), now],
        }
