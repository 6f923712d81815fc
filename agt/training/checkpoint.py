"""Checkpoints: what a training has reached, saved now and then, and read back to the same bits.

A folder of checkpoints has these files:

| file                                   | what it holds                                          |
|----------------------------------------|--------------------------------------------------------|
| run.json                               | what the run's bits depend on: settings, data, code,   |
|                                        | machine, threads                                       |
| noise.json                             | the seed of private noise, while the run lasts         |
| step=000000000017.<sha256>.safetensors | the state after step 17; the last two of these         |
| members/003/...                        | the same files for one member of an ensemble           |
"""

import json
import os
import re
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol, Self

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from agt import store
from agt.distributed import Group
from agt.errors import ConfigError
from agt.store import Lock, remove_parts, write_atomic

CHECKPOINT_FORMAT = 1
RUN_FILE = "run.json"
# After a checkpoint, none is written for so many times as long as it took: at most 1/21 of the time
# goes into them.
PAUSE_RATIO = 20
MIN_PAUSE_SECONDS = 1.0  # however fast the disk is
ASSUMED_BYTES_PER_SECOND = 2e8  # of the disk, until a checkpoint was written
STORED_STATES = 2
_MIN_FILE_SECONDS = 0.005  # a measured time below this is not believed
_STATE_NAME = re.compile(r"step=(?P<step>\d{12})\.(?P<digest>[0-9a-f]{64})\.safetensors")

Tensors = dict[str, Tensor]
Note = Callable[[str], None]


@dataclass(frozen=True)
class CheckpointState:
    """What a training has reached.

    Attributes:
        step: how many steps were taken.
        tensors: everything that later steps depend on, beside settings and records.
    """

    step: int
    tensors: Tensors


class Checkpoints(Protocol):
    """Where a training saves what it has reached, and continues from.

    Formal guarantees
        * A training that continues from a state ends with the bits of one that was never
          interrupted (Lemma 8 of docs/proofs/training.md).
        * A number that is drawn through ``draw_once`` is drawn once, however often the training is
          killed (Lemma 4 of docs/proofs/noise.md).
    """

    def part(self, name: str) -> "Checkpoints":
        """Return the checkpoints of one of several trainings, which may be in another process."""

    def last(self) -> CheckpointState | None:
        """Return the last state of an earlier attempt; None: begin at the beginning.

        A training calls this once, before anything else.
        """

    def offer(self, step: int, tensors: Callable[[], Tensors], last: bool = False) -> None:
        """Save the state after a step, if it is time to.

        Args:
            step: how many steps were taken.
            tensors: returns the state's tensors; it is called only if they are needed.
            last: whether this was the last step.
        """

    def draw_once(self, name: str, draw: Callable[[], int]) -> int:
        """Return the number that an earlier attempt drew under a name, or draw and save it.

        The number is on the disk before this returns.

        Args:
            name: of the number.
            draw: draws a non-negative number.
        """


class Nowhere(Checkpoints):
    """No checkpoints: nothing is saved, and every training begins at the beginning."""

    def part(self, name: str) -> Self:
        """Return itself."""
        return self

    def last(self) -> None:
        """Return None: there is no earlier attempt."""

    def offer(self, step: int, tensors: Callable[[], Tensors], last: bool = False) -> None:
        """Save nothing."""

    def draw_once(self, name: str, draw: Callable[[], int]) -> int:
        """Draw a number."""
        return draw()


NOWHERE = Nowhere()


@dataclass(frozen=True)
class SharedCheckpoints(Checkpoints):
    """Checkpoints of a training that several processes share.

    The first process alone reads and writes. All continue from the state that it read, with the
    numbers that it drew.

    Attributes:
        group: the processes.
        first: the first process's checkpoints; those of the others are not used.
    """

    group: Group
    first: Checkpoints

    def part(self, name: str) -> "SharedCheckpoints":
        """Return the shared checkpoints of one of several trainings."""
        return SharedCheckpoints(self.group, self.first.part(name))

    def last(self) -> CheckpointState | None:
        """Return the state that the first process reads, in tensors of each process's own."""
        state = self.group.sent(self.first.last() if self._is_first else None)
        if state is None:
            return None
        return CheckpointState(state.step, independent_copies(state.tensors))

    def offer(self, step: int, tensors: Callable[[], Tensors], last: bool = False) -> None:
        """Save the state, if this is the first process and it is time to."""
        if self._is_first:
            self.first.offer(step, tensors, last)

    def draw_once(self, name: str, draw: Callable[[], int]) -> int:
        """Return the number that the first process drew."""
        number = 0
        if self._is_first:
            number = self.first.draw_once(name, draw)
        return self.group.sent(number)

    @property
    def _is_first(self) -> bool:
        return self.group.rank == 0


@dataclass
class CheckpointFolder(Checkpoints):
    """A folder of checkpoints; ``open_checkpoints`` opens one.

    Attributes:
        folder: where the files are.
        run: the hash of run.json.
        every: seconds between two checkpoints; None: as often as they cost little; 0: none.
        file_seconds: how long a small file takes to write.
        owner: the id of the process that trains, or whose workers do.
        number_files: the names of the files of numbers, in this folder and its parts.
    """

    folder: Path
    run: str
    every: float | None
    file_seconds: float
    owner: int = field(default_factory=os.getpid)
    number_files: set[str] = field(default_factory=set)
    # When the last checkpoint was finished, or the training began.
    _since: float = field(default_factory=time.monotonic)
    # How long the last checkpoint took; before the first, as its size lets expect.
    _checkpoint_seconds: float | None = None

    def part(self, name: str) -> "CheckpointFolder":
        """Return the checkpoints in a subfolder."""
        return replace(self, folder=self.folder / name)

    def last(self) -> CheckpointState | None:
        """Return the last state in the folder; None: there is none.

        Raises:
            ConfigError: its file was damaged since the folder was opened.
        """
        self._since = time.monotonic()
        paths = _state_paths(self.folder)
        return _read_state(paths[-1], self.run) if paths else None

    def offer(self, step: int, tensors: Callable[[], Tensors], last: bool = False) -> None:
        """Save the state, if it is time to; a full disk is a warning, and training continues."""
        if os.getpid() != self.owner != os.getppid():
            # This is a worker whose run was killed. Another run may have taken over the folder,
            # and no process waits for this one.
            os._exit(1)
        begin = time.monotonic()
        if not self._is_due(begin - self._since, tensors, last):
            return
        try:
            self._write(step, tensors())
        except OSError as error:
            warnings.warn(
                f"the checkpoint of step {step} was not written ({error.filename}: "
                f"{error.strerror}); training continues",
                stacklevel=2,
            )
        self._since = time.monotonic()
        self._checkpoint_seconds = self._since - begin

    def draw_once(self, name: str, draw: Callable[[], int]) -> int:
        """Return the number that the folder has under a name, or draw and save it.

        Raises:
            ConfigError: it was drawn before, and its file is damaged or missing.
        """
        path = self.folder / f"{name}.json"
        self.number_files.add(path.name)
        if not path.exists():
            # A second draw would be a second release (Lemma 4 of docs/proofs/noise.md).
            if _state_paths(self.folder):
                raise ConfigError(
                    f"{path} is missing. It holds a random number that earlier steps of this "
                    "training used, so the training cannot be resumed. Start a new run"
                )
            write_atomic(path, store.seal({"number": f"{draw():x}", "run": self.run}))
        try:
            value = store.unseal(path.read_bytes())
            if value["run"] != self.run:
                raise ValueError("the file belongs to another run")
            return int(value["number"], 16)
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{path} is damaged ({error}). It holds a random number of this training, "
                "which cannot be drawn again. Start a new run, which is another release"
            ) from None

    def _is_due(self, elapsed: float, tensors: Callable[[], Tensors], last: bool) -> bool:
        """Return whether it is time for a checkpoint.

        Args:
            elapsed: seconds since the last checkpoint, or the beginning.
            tensors: as in ``offer``; before the first checkpoint, for their size.
            last: whether there are no more steps.
        """
        if self.every is not None:
            return self.every > 0 and (last or elapsed >= self.every)
        if elapsed < MIN_PAUSE_SECONDS and not last:
            return False
        if self._checkpoint_seconds is None:
            size = sum(tensor.nbytes for tensor in tensors().values())
            self._checkpoint_seconds = self.file_seconds + size / ASSUMED_BYTES_PER_SECOND
        return elapsed >= PAUSE_RATIO * self._checkpoint_seconds

    def _write(self, step: int, tensors: Tensors) -> None:
        """Write a state's file, and remove the oldest ones beyond ``STORED_STATES``."""
        older_states = _state_paths(self.folder)[: 1 - STORED_STATES]
        for path in older_states:
            path.unlink(missing_ok=True)
        # ``save`` refuses tensors that share memory.
        content = save(independent_copies(tensors), metadata=_state_header(self.run, step))
        digest = sha256(content).hexdigest()
        write_atomic(self.folder / f"step={step:012d}.{digest}.safetensors", content)


def open_checkpoints(
    folder: Path, about: Mapping[str, Any], every: float | None, note: Note
) -> CheckpointFolder:
    """Open the checkpoints of a new run, or of one that is continued.

    Args:
        folder: a folder for these checkpoints alone; it is made where there is none.
        about: what the run's bits depend on, as JSON values.
        every: seconds between two checkpoints; None: as often as they cost little; 0: none.
        note: receives a line for each file that cannot be used; the file is removed.

    Raises:
        ConfigError: the folder's run depends on something else, which is named; or run.json is
            damaged, or missing among other files.
    """
    path = folder / RUN_FILE
    begin = time.perf_counter()
    if not path.exists() and folder.exists() and any(folder.iterdir()):
        raise ConfigError(
            f"{folder}: this folder contains other files but no {RUN_FILE}, so it is not a "
            "folder of checkpoints. Give checkpoints a folder of their own"
        )
    content = store.seal({"format": CHECKPOINT_FORMAT, **store.flat(about)})
    if path.exists():
        _check_same_run(path, json.loads(content))
    else:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)  # it may have been there, empty
        write_atomic(path, content)
    run = sha256(path.read_bytes()).hexdigest()
    file_seconds = max(time.perf_counter() - begin, _MIN_FILE_SECONDS)
    remove_parts(folder)
    for state_path in sorted(folder.rglob("step=*.safetensors")):
        try:
            _read_state(state_path, run)
        except ConfigError as error:
            note(
                f"note: {error}. This checkpoint is removed, and training continues from an "
                "earlier step"
            )
            state_path.unlink()
    return CheckpointFolder(folder, run, every, file_seconds)


@contextmanager
def checkpoint_folder(
    folder: Path, about: Mapping[str, Any], every: float | None
) -> Iterator[CheckpointFolder]:
    """Open the checkpoints of one training, and remove them when the block ends without an error.

    Args:
        folder: a folder for these checkpoints alone; an error leaves it for another attempt.
        about: what the run's bits depend on, as JSON values.
        every: seconds between two checkpoints; None: as often as they cost little; 0: none.

    Raises:
        ConfigError: as ``open_checkpoints``, or another process trains with the folder.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = Lock(folder.with_name(f"{folder.name}.lock"))
    if not lock.take():
        raise ConfigError(
            f"checkpoint={folder}: another process is training with this folder: wait for it, "
            "or give another folder"
        )
    try:
        checkpoints = open_checkpoints(folder, about, every, warnings.warn)
        yield checkpoints
        with suppress(OSError):  # a folder in which somebody put another file is not empty
            _remove_checkpoints(folder, checkpoints.number_files)
    finally:
        lock.release()


def _remove_checkpoints(folder: Path, number_files: set[str]) -> None:
    """Remove a folder with its checkpoints; files of other names stay, and their folders.

    Raises:
        OSError: a folder is not empty.
    """
    removable = {RUN_FILE, *number_files}
    contents_first = sorted([folder, *folder.rglob("*")], reverse=True)
    for path in contents_first:
        if path.is_dir():
            path.rmdir()
        elif path.name in removable or _STATE_NAME.fullmatch(path.name):
            path.unlink()


def _check_same_run(path: Path, about: Mapping[str, Any]) -> None:
    """Refuse to continue a run whose bits would depend on something else.

    Args:
        path: run.json, as the run began.
        about: its content if the run began now.

    Raises:
        ConfigError: a value differs, which is named; or run.json is damaged.
    """
    try:
        recorded = store.unseal(path.read_bytes())
    except ValueError as error:
        raise ConfigError(f"{path} is damaged ({error}). Start a new run") from None
    for key in sorted({*recorded, *about} - {"sha256"}):
        if recorded.get(key) != about.get(key):
            raise ConfigError(
                f"{key} was {recorded.get(key)} when the run began, but is {about.get(key)} "
                "now, so the run would not end with the same bits. Restore the old value, or "
                "start a new run"
            )


def _state_paths(folder: Path) -> list[Path]:
    """Return the files of states, the latest last."""
    return sorted(folder.glob("step=*.safetensors"))


def _state_header(run: str, step: int) -> dict[str, str]:
    """Return what the header of a state's file says."""
    return {"format": str(CHECKPOINT_FORMAT), "run": run, "step": str(step)}


def _read_state(path: Path, run: str) -> CheckpointState:
    """Read a state's file.

    Args:
        path: the file.
        run: the hash of run.json.

    Raises:
        ConfigError: the file is damaged, or of another run or step.
    """
    content = path.read_bytes()
    name = _STATE_NAME.fullmatch(path.name)
    if name is None or sha256(content).hexdigest() != name["digest"]:
        raise ConfigError(f"{path} is damaged, because its content has another hash than its name")
    try:
        header = read_safetensors_header(content)
        tensors = load(content)
    except (SafetensorError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read ({error})") from None
    step = int(name["step"])
    if header != _state_header(run, step):
        raise ConfigError(f"{path} belongs to another run, or to another step of this one")
    return CheckpointState(step, independent_copies(tensors))


def read_safetensors_header(content: bytes) -> dict[str, str]:
    """Return the free texts of a safetensors file by name; none: it has no such texts.

    Args:
        content: the file: 8 bytes with a length, little-endian, then that much JSON, then tensors.

    Raises:
        ValueError: the header is no JSON.
    """
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    return header.get("__metadata__", {})


def independent_copies(tensors: Tensors) -> Tensors:
    """Return copies on the CPU that share no memory and are aligned as PyTorch's own tensors are.

    A matrix product may round otherwise at an address of another alignment (Lemma 8 of
    docs/proofs/training.md).
    """
    return {
        name: tensor.cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }
