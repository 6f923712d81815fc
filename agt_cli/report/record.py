"""Write the record of a run; finished.py reads it.

A folder is claimed once, and never overwritten by another run. Every file appears whole or not at
all. So a killed run cannot be mistaken for a finished one: its state stays "running". Files are
written by ``RunRecord.write``, which stores their hashes, and read by ``Folder.read``
(agt/store/folder.py), which compares them.

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

``NextState`` is the next state of a run, written as a whole record in a folder of the run;
``commit`` makes it the run's state (next_state.py).
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
from agt.errors import AgtError, ConfigError, UnsoundError, few
from agt.provenance import package_version
from agt.store.atomic import Pending, remove_parts, sync_folder, write_atomic
from agt.store.folder import FolderWriter
from agt.store.json_text import Metrics, as_json
from agt.store.lock import Lock
from agt.store.manifest import MANIFEST_FILE, Manifest
from agt_cli.process import VISIBLE_GPUS
from agt_cli.report.finished import CHECKPOINTS, LOCK_FILE, NEXT_STATE_FOLDER, Run
from agt_cli.report.markdown import conditions_list, report_page
from agt_cli.report.unfinished import (
    RESUME_KEY,
    check_not_finished,
    remove_leftovers,
    still_running_error,
)
from agt_cli.unlearn.log import state_of

RESUMABLE_COMMAND = "train"  # the command whose runs can be resumed
STATUS_BYTES = 2**14
"""Room on the disk that a resumable run reserves, so that it can record its failure on a full disk.
"""
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
    """The folder of a run, for writing: a context manager that records how the run ends.

    Args:
        folder: the folder, which is claimed when the context is entered.
        command: the name of the command.
        config: the resolved configuration.
        resumed_run: the killed or failed run in this folder that is resumed; None: a new run
            begins.

    Attributes:
        resumed_run: the killed or failed run that is resumed; None: the run is new.
        digest: the digest of the finished run; None: it is not finished.
        standings: the list of conditions in Markdown; empty: no conditions were recorded.
    """

    def __init__(
        self, folder: Path, command: str, config: Mapping[str, Any], resumed_run: Run | None = None
    ) -> None:
        super().__init__(folder, command)
        self.config = config
        self.resumed_run = resumed_run
        self._lock = Lock(folder / LOCK_FILE)
        self._environment: dict[str, Any] = {}
        self._metrics: Metrics = {}
        self._reserved: list[Pending] = []
        self.standings = ""
        self._started = 0.0
        self._leaves_nothing = False
        self._made_folder = False

    def __enter__(self) -> "RunRecord":
        """Claim the folder, and write status.json, config.yaml and env.json.

        Raises:
            ConfigError: the folder already contains a run; or the run to be resumed was changed.
        """
        self._started = time.monotonic()
        now = datetime.now(UTC).isoformat(timespec="microseconds")
        self._status: dict[str, Any] = {"command": self.command, "started": now}
        if self.resumed_run is None:
            self._claim()
        else:
            self._claim_again(self.resumed_run, now)
        try:
            if self.command == RESUMABLE_COMMAND:
                # Called for the room on the disk, into which ``_fail`` writes status.json.
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
        """Record that the run is done or failed, unless ``finish`` was called."""
        if self.digest is not None:
            return
        if self._leaves_nothing:
            self._remove()
            return
        if error is None:
            self.finish()
            return
        text = f"{type(error).__name__}: {error}"
        if isinstance(error, KeyboardInterrupt):
            text = str(error) or "interrupted"
        try:
            self._fail(text, exit_code(error))
        except OSError:
            # The first error is reported, and not this one. The run stays "running", with a lock
            # that nobody holds, like a killed run that can be resumed.
            self._lock.abandon()
            return
        with suppress(OSError):
            self._write_json("metrics.json", self._metrics)
        self._lock.release()

    @property
    def has_results(self) -> bool:
        """Whether anything was written that was computed or spent.

        Settings, the environment, the status, conditions and metrics are no results: commands
        write them before they decide whether to refuse.
        """
        described = {"config.yaml", "env.json", "conditions.json", "metrics.json"}
        others = self._hashes.keys() - described
        return bool(others) or (self.folder / CHECKPOINTS).exists()

    def discard(self) -> None:
        """Have the files of this record removed when it ends, because nothing was done."""
        self._leaves_nothing = True

    def _remove(self) -> None:
        """Remove the files that this record wrote, and its folder if this record created it.

        The folder was empty when it was claimed (``_claim``), so no file of the user's is removed.
        """
        for name in (*self._hashes, "status.json"):
            (self.folder / name).unlink(missing_ok=True)
        remove_parts(self.folder)  # room that was reserved
        self._lock.release()
        if self._made_folder:
            with suppress(OSError):  # somebody put a file there meanwhile
                self.folder.rmdir()

    def finish(self) -> str:
        """Record that the run is done; after this, nothing can be written into the record.

        The manifest is written first, and lists the new status.json. A run that is killed between
        the two files is still "running", so no command uses it.

        Returns:
            The run's digest.

        Raises:
            OSError: a file cannot be written; the run is then recorded as failed if possible.
        """
        try:
            self._write_json("metrics.json", self._metrics)
            status = as_json(self._status_now("done"))
            hashes = {**self._hashes, "status.json": sha256(status).hexdigest()}
            manifest = Manifest(self.command, hashes)
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
        """Make the folder, acquire its lock, and write the first status.json.

        A folder with anything else in it is refused before it is touched, because files of a record
        would replace the user's own, and ``_remove`` would delete them.

        Raises:
            ConfigError: the folder already contains a run, or other files.
            OSError: the folder cannot be written.
        """
        try:
            self._made_folder = not self.folder.exists()
            self.folder.mkdir(parents=True, exist_ok=True)
            names = {path.name for path in self.folder.iterdir()}
            others = names - {LOCK_FILE}  # a process that was killed here may have left its lock
            if others and not (self.folder / "status.json").exists():
                raise ConfigError(
                    f"{self.folder} already contains other files ({few(sorted(others), 3)}), and "
                    "agt writes a run only into a new or an empty folder: give another folder "
                    "with hydra.run.dir=FOLDER"
                )
            if others or not self._lock.acquire():
                raise FileExistsError  # handled below, as if the exclusive creation had failed
            # Exclusive creation is atomic: of two runs given one folder, the second stops here.
            with (self.folder / "status.json").open("x") as file:
                json.dump({"state": "running", **self._status}, file)
            # All of them, because the folders above may be new as well, and a power cut must not
            # lose them.
            for folder in (self.folder.resolve(), *self.folder.resolve().parents):
                sync_folder(folder)
        except OSError as error:
            self._lock.release()
            if not isinstance(error, FileExistsError) or not self.folder.is_dir():
                # This process made the file, which may be incomplete.
                with suppress(OSError):
                    (self.folder / "status.json").unlink(missing_ok=True)
                raise
            raise ConfigError(
                f"{self.folder} already contains a run: give another folder with "
                "hydra.run.dir=FOLDER"
            ) from error

    def _claim_again(self, run: Run, now: str) -> None:
        """Claim the folder of a run that is resumed.

        Args:
            run: the run.
            now: the present time, for status.json.

        Raises:
            ConfigError: another process holds the lock of the folder, or the file system has no
                locks; or the run was finished since its settings were read.
        """
        if not self._lock.acquire():
            raise still_running_error(run.folder)
        if not self._lock.works:
            raise ConfigError(
                f"{RESUME_KEY}={run.folder}: this file system does not support locks, so "
                "agt cannot tell whether the run's process is still running: make sure that "
                "it is not, then copy the folder to a local disk"
            )
        try:
            present = Run.at(run.folder, RESUME_KEY)
            status = present.json("status.json")
            check_not_finished(present)
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
        """Return the entries of env.json that a resumed run takes over; none for a new run.

        These are the first command line, the times at which the run was resumed, and the entries
        of a sweep's job.
        """
        if self.resumed_run is None:
            return {}
        before = self.resumed_run.environment
        resumed = [*before.get("resumed", ()), {"time": now, "argv": sys.argv}]
        history = {"argv": before.get("argv"), "resumed": resumed}
        for key in ("overrides", "signature"):
            if key in before:
                history[key] = before[key]
        return history

    def _fail(self, text: str, code: int) -> None:
        """Record that the run failed, with the message and the exit code of its error."""
        for pending in self._reserved:
            pending.discard()
        status = self._status_now("failed", error=text, exit_code=code)
        write_atomic(self.folder / "status.json", as_json(status))

    def _status_now(self, state: str, **more: object) -> dict[str, object]:
        """Return the content of status.json for a run that ends now in a state."""
        seconds = round(time.monotonic() - self._started, 3)
        ended = datetime.now(UTC).isoformat(timespec="microseconds")
        return {"state": state, **self._status, "ended": ended, "seconds": seconds, **more}

    def reserve(self, name: str, size: int) -> Callable[[], AbstractContextManager[BinaryIO]]:
        """Reserve room on the disk for a file, and return what opens it for writing (``opened``).

        Args:
            name: the path of the file in the record.
            size: the largest number of bytes that it will have.

        Raises:
            OSError: there is too little room on the disk.
        """
        pending = Pending(self.folder / name, size)
        self._reserved.append(pending)
        return partial(self._opened, pending)

    def _write_json(self, name: str, value: object) -> None:
        """Write a value as a JSON file."""
        self.write(name, as_json(value))

    def reconfigure(self, config: Mapping[str, Any]) -> None:
        """Write config.yaml, with a configuration that replaces the earlier one."""
        self.config = config
        self.write("config.yaml", to_yaml(config).encode())

    def environment(self, **facts: object) -> None:
        """Add entries to env.json, or replace them."""
        self._environment.update(facts)
        self._write_json("env.json", self._environment)

    @property
    def key_folder(self) -> Path:
        """The folder of the finished run, in which its key is (agt_cli/unlearn/hash_key.py)."""
        return self._manifest_folder

    @property
    def metrics(self) -> Metrics:
        """A copy of the metrics that were added so far."""
        return dict(self._metrics)

    def add_metrics(self, **numbers: float | int | str) -> None:
        """Add entries to metrics.json, or replace them.

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
        """Write conditions.json, and add the numbers of proved, declared and unmet conditions."""
        from agt.certificates.conditions import condition_counts

        self._write_json("conditions.json", [condition.as_json() for condition in conditions])
        self.add_metrics(**condition_counts(conditions))
        self.standings = conditions_list(conditions)

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
        """Yield a sentence on the processes that computed the result, if there were several."""
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
        """Return the content of a figure of this record; None: the record has no such figure."""
        is_figure = name in self._hashes and name.endswith(".png")
        return (self.folder / name).read_bytes() if is_figure else None

    def table(self, name: str, table: "pd.DataFrame") -> None:
        """Write tables/NAME.csv."""
        self.write(f"tables/{name}.csv", csv_bytes(table))

    def parquet(self, name: str, parts: "Iterable[pd.DataFrame]") -> None:
        """Write NAME.parquet.

        Args:
            name: the name of the file, without its ending.
            parts: the rows of the table, in at least one part.
        """
        tables = (pa.Table.from_pandas(part, preserve_index=False) for part in parts)
        first = next(tables)
        with self.opened(f"{name}.parquet") as file, pq.ParquetWriter(file, first.schema) as writer:
            for rows in chain([first], tables):
                writer.write_table(rows)

    def released_weights(self, weight: np.ndarray, constants: Mapping[str, object]) -> None:
        """Write weights that may be published, and constants such as the scale of their noise."""
        self.write("released_weights.safetensors", save({"weight": np.ascontiguousarray(weight)}))
        self._write_json("released_weights.json", constants)


def csv_bytes(table: "pd.DataFrame") -> bytes:
    """Return a table as a csv file, without an index."""
    return table.to_csv(index=False, lineterminator="\n").encode()


def exit_code(error: BaseException | None) -> int:
    """Return the exit code of a command that an exception ended."""
    if isinstance(error, KeyboardInterrupt):
        return getattr(error, "exit_code", 130)
    return error.exit_code if isinstance(error, AgtError) else 1


def describe_environment(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the first entries of env.json: versions, machine, device, command line, seed.

    Args:
        config: the resolved configuration of the command.
    """
    compute = config.get("compute") or {}
    training = config.get("training") or {}
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
    """Return PyTorch's number of threads; None for answers from released weights, which do not use
    it.
    """
    if config.get("release"):
        return None
    from torch import get_num_threads

    return get_num_threads()


def _device(name: str) -> str:
    """Return the name of a device, cpu or cuda, with that of the processor or GPU in brackets."""
    if name == "cuda":
        from torch import cuda

        if cuda.is_available():
            return f"cuda ({cuda.get_device_name()})"
    return f"{name} ({platform.processor() or platform.machine()})"


@cache
def _revision() -> str | None:
    """Return the revision of this source tree, with "+changes" if files were changed.

    None: agt was installed from a wheel.
    """
    root = Path(agt_cli.__file__).resolve().parent.parent
    # git would also find a repository further above, which an installed copy happens to be in.
    if not (root / ".git").exists():
        return None
    revision = _git(root, "rev-parse", "HEAD")
    changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    return f"{revision}+changes" if revision and changed else revision


def _git(root: Path, *arguments: str) -> str | None:
    """Return the output of a git command; None: git is not installed, or failed."""
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
    """Return a configuration of plain containers as YAML, with its keys in their order."""
    return OmegaConf.to_yaml(OmegaConf.create(escape_interpolations(dict(config))))


def escape_interpolations(node: Any) -> Any:
    """Return a configuration in which "${" is escaped, so that OmegaConf reads it as text.

    Args:
        node: a configuration of plain containers, or a value in one.
    """
    if isinstance(node, str):
        return re.sub(r"(\\*)\$\{", lambda start: 2 * start[1] + r"\${", node)
    if isinstance(node, Mapping):
        return {key: escape_interpolations(value) for key, value in node.items()}
    return (
        [escape_interpolations(value) for value in node] if isinstance(node, list | tuple) else node
    )


class NextState(RunRecord):
    """The record of a run's next state, which ``agt unlearn`` writes in RUN/unlearning/next.

    ``commit`` (next_state.py) then makes it the state of the run. It takes over the run's
    configuration, its start, its command line and the paths of its data files. In env.json,
    ``succeeds`` lists the digests of all earlier states, the oldest first, and ``updated`` when
    each was replaced.

    Args:
        run: the run in its present state; the caller holds its lock (``run_lock``).
    """

    def __init__(self, run: Run) -> None:
        super().__init__(run.folder / NEXT_STATE_FOLDER, "train", run.config)
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
    def key_folder(self) -> Path:
        """The run's own folder, in which its key is."""
        return self.run.folder

    @property
    def state(self) -> str:
        """The name of the state that was written so far (``state_of``), for the request log."""
        return state_of(self._hashes)

    def _history(self, now: str) -> dict[str, object]:
        before = self.run.environment
        entries: dict[str, object] = {
            key: before[key] for key in ("argv", "data_files", "resumed") if key in before
        }
        return {
            **entries,
            "succeeds": [*before.get("succeeds", ()), self.run.digest],
            "updated": [*before.get("updated", ()), now],
        }
