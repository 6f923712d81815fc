"""A folder of npy arrays, written in chunks so that a killed run can go on, and named only when it
is whole.

    NAME.part/   while it is written: progress.json, the arrays, and whatever the preparation keeps
                 for itself
    NAME/        once it is finished: the arrays and prepared.json

The last step is the renaming of one to the other: a folder that can be trained on is a finished
one.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from agt.data.prepared import FORMAT, PREPARED, PROGRESS, part_of, read_prepared
from agt.errors import AgtError, ConfigError, DataError
from agt.store.atomic import write_atomic
from agt.store.dotted_keys import flatten_keys
from agt.store.lock import Lock
from agt.store.reading import file_sha256
from agt.store.sealed import seal

OnProgress = Callable[[int, int], None]
"""Called with rows finished and rows in all."""


@dataclass(frozen=True)
class PreparedFolder:
    """What ``run`` of a configuration's ``prepare`` returns, once its folder is whole.

    Attributes:
        folder: the prepared data.
        metrics: flat numbers about it.
        facts: sentences for a person: what was used, split and declared public.
        train: the command line that trains on it.
    """

    folder: Path
    metrics: Mapping[str, float | int | str]
    facts: tuple[str, ...]
    train: str


_SPARE_BYTES = 32 * 2**20


@dataclass
class ArrayFolder:
    """An open folder; ``open_folder`` makes one.

    Attributes:
        out: its final name.
        settings: what its content depends on; nested mappings of plain values.
        done: chunks finished so far.
        finished: True if ``out`` was there already, from the same settings; then nothing is left to
            do.
    """

    out: Path
    settings: Mapping[str, Any]
    done: int = 0
    finished: bool = False
    _files: "dict[str, NpyFile]" = field(default_factory=dict)

    @property
    def work(self) -> Path:
        """Where the arrays lie until they are whole."""
        return part_of(self.out)

    def allocate(self, columns: Mapping[str, tuple[tuple[int, ...], str]]) -> None:
        """Make room for arrays, or find those that an interrupted run began.

        Args:
            columns: name -> (shape, numpy dtype).

        Raises:
            DataError: the disk has less room than is still to be written, or a file is not what
                this run wrote.
        """
        files = {}
        for name, (shape, kind) in columns.items():
            files[name] = NpyFile(self.work / f"{name}.npy", shape, np.dtype(kind))
        self.require_room(sum(file.missing_bytes for file in files.values()))
        self._files |= files
        for file in files.values():
            file.prepare()

    def require_room(self, need: int) -> None:
        """Raise DataError unless the disk has room for ``need`` more bytes."""
        free = shutil.disk_usage(self.work).free
        if need + _SPARE_BYTES > free:
            raise DataError(
                f"{self.out}: {_size(need)} must still be written, but the disk has "
                f"{_size(free)} free. Make room, or change prepare.out or data_dir to another "
                "disk"
            )

    def write(self, name: str, start: int, rows: np.ndarray) -> None:
        """Write ``rows`` of the array ``name`` at ``start``, durably."""
        self._files[name].write(start, rows)

    def read(self, name: str) -> np.ndarray:
        """The array as written so far, memory-mapped."""
        return np.load(self._files[name].path, mmap_mode="r", allow_pickle=False)

    def finish_chunk(self) -> None:
        """Count one more chunk as finished: its rows are on the disk."""
        self.done += 1
        self._save_progress()

    def finish(self, facts: Mapping[str, Any]) -> None:
        """Write ``prepared.json``, with ``facts`` beside settings and arrays and their hashes,
        and name the folder.
        """
        arrays = {}
        for name, file in self._files.items():
            about = {"shape": list(file.shape), "dtype": file.dtype.str}
            arrays[name] = {**about, "sha256": file_sha256(file.path)}
        content = {"format": FORMAT, "settings": self.settings, "arrays": arrays, **facts}
        write_atomic(self.work / PREPARED, seal(content))
        self.work.rename(self.out)
        (self.out / PROGRESS).unlink()
        self.finished = True

    def _save_progress(self) -> None:
        progress = {"done": self.done, "settings": self.settings}
        write_atomic(self.work / PROGRESS, json.dumps(progress, indent=2).encode())


@contextmanager
def open_folder(out: Path, settings: Mapping[str, Any]) -> Iterator[ArrayFolder]:
    """The folder ``out`` in whatever state it is: absent, interrupted or finished; one process at a
    time.

    Raises:
        ConfigError: it was begun or finished with other settings (the first that differs is named),
            or another process is writing it.
        DataError: something else is in its place, or its progress cannot be read.
    """
    settings = json.loads(json.dumps(settings))
    if out.exists():
        _compare(read_prepared(out).get("settings", {}), settings, out, f"delete {out}")
        yield ArrayFolder(out, settings, finished=True)
        return
    folder = ArrayFolder(out, settings)
    folder.work.mkdir(parents=True, exist_ok=True)
    lock = Lock(out.with_name(f"{out.name}.lock"))
    if not lock.acquire():
        raise ConfigError(
            f"{folder.work}: another process is preparing this folder. Wait until it ends"
        )
    try:
        progress = _read_progress(folder.work / PROGRESS)
        if progress and progress["done"]:
            _compare(progress["settings"], settings, folder.work, f"delete {folder.work}")
            folder.done = progress["done"]
        else:  # nothing, or nothing finished: nothing to keep
            for stale in folder.work.glob("*.npy"):
                stale.unlink()
            folder._save_progress()
        yield folder
    finally:
        lock.release()


@dataclass(frozen=True)
class NpyFile:
    """One npy file of a shape known beforehand, written with ordinary writes: a full disk is an
    error then, where a memory-mapped file would end the process.
    """

    path: Path
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def row_bytes(self) -> int:
        """Of one row."""
        return self.dtype.itemsize * int(np.prod(self.shape[1:], dtype=np.int64))

    @property
    def missing_bytes(self) -> int:
        """How much of the file takes no room on the disk yet."""
        taken = self.path.stat().st_blocks * 512 if self.path.exists() else 0
        return max(0, self.row_bytes * self.shape[0] - taken)

    def prepare(self) -> None:
        """Make the file, empty, if it is absent. Raises DataError if it is another array's."""
        if not self.path.exists():
            with _named(self.path), self.path.open("wb") as new:
                header = {"descr": self.dtype.str, "fortran_order": False, "shape": self.shape}
                np.lib.format.write_array_header_1_0(new, header)
                new.truncate(new.tell() + self.row_bytes * self.shape[0])
        try:
            array = np.load(self.path, mmap_mode="r", allow_pickle=False)
        except (ValueError, EOFError, OSError) as error:
            raise self._foreign(str(error)) from None
        if array.shape != self.shape or array.dtype != self.dtype:
            raise self._foreign(f"{array.dtype} {array.shape}, expected {self.dtype} {self.shape}")

    def write(self, start: int, rows: np.ndarray) -> None:
        """Write rows at ``start``; they are on the disk when this returns.

        Raises:
            AgtError: they do not fit the array.
            OSError: the disk is full; the file is named.
        """
        if rows.shape[1:] != self.shape[1:] or start < 0 or start + len(rows) > self.shape[0]:
            raise AgtError(f"{self.path}: {rows.shape} at row {start} does not fit {self.shape}")
        with _named(self.path), self.path.open("r+b") as file:
            header = self.path.stat().st_size - self.row_bytes * self.shape[0]
            file.seek(header + start * self.row_bytes)
            file.write(np.ascontiguousarray(rows, dtype=self.dtype).tobytes())
            file.flush()
            os.fsync(file.fileno())

    def _foreign(self, why: str) -> DataError:
        return DataError(
            f"{self.path}: this is not the array that this preparation was writing ({why}): delete "
            f"{self.path.parent}"
        )


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """A full disk names no file: name it."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def _compare(then: Mapping[str, Any], now: Mapping[str, Any], where: Path, remedy: str) -> None:
    before = flatten_keys(then)
    after = flatten_keys(now)
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) != after.get(key):
            raise ConfigError(
                f"{where} was prepared with {key}={before.get(key)}, but now "
                f"{key}={after.get(key)}: restore the setting, change prepare.out, or {remedy}"
            )


def _read_progress(path: Path) -> dict[str, Any] | None:
    """What an interrupted run left; None if there was none."""
    try:
        progress: dict[str, Any] = json.loads(path.read_text())
        if isinstance(progress["done"], int) and isinstance(progress["settings"], dict):
            return progress
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        pass
    raise DataError(f"{path} cannot be read: delete {path.parent} and start again")


def _size(count: int) -> str:
    if count >= 2**30:
        return f"{count / 2**30:.2f} GiB"
    return f"{count / 2**20:.1f} MiB"
