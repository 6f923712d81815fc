"""Checkpoints: a training's state, saved at intervals and read back to the same bits.

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
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from agt.distributed import Group
from agt.errors import AgtError, ConfigError
from agt.store.atomic import remove_parts, write_atomic
from agt.store.dotted_keys import flatten_keys
from agt.store.lock import Lock
from agt.store.sealed import seal, unseal

CHECKPOINT_FORMAT = 1
RUN_FILE = "run.json"
# The pause after a checkpoint is at least 20 times the time that writing it took, so that
# checkpoints take at most 1/21 of the time.
PAUSE_RATIO = 20
MIN_PAUSE_SECONDS = 1.0  # the shortest pause, also on a fast disk
ASSUMED_BYTES_PER_SECOND = 2e8  # the disk's speed, until the first checkpoint was timed
STORED_STATES = 2  # how many states a folder keeps; older files are removed
_MIN_FILE_SECONDS = 0.005  # the least time assumed, as a cache may have made the measured one short
_STATE_NAME = re.compile(r"step=(?P<step>\d{12})\.(?P<digest>[0-9a-f]{64})\.safetensors")

Tensors = dict[str, Tensor]
"""Name -> tensor."""

Note = Callable[[str], None]
"""Shows a line of text to the user."""


@dataclass(frozen=True)
class CheckpointState:
    """The state of a training after some step.

    Attributes:
        step: the number of steps that were taken.
        tensors: name -> tensor: everything that later steps depend on except settings and records.
    """

    step: int
    tensors: Tensors


class Checkpoints:
    """A place where a training saves its state, and from which it is resumed.

    This base class saves nothing, so every training starts from step 0. A training calls
    ``last_state`` once before its first step, and ``save_if_due`` after each step.

    Formal guarantees
        * A training that is resumed from a state ends with the same bits as an uninterrupted one
          (Lemma 8 of docs/proofs/training.md).
        * A random number from ``draw_once`` is drawn only once, however often the training is
          killed and resumed (Lemma 4 of docs/proofs/noise.md).
    """

    def part(self, name: str) -> "Checkpoints":
        """Return separate checkpoints for one of several trainings, such as an ensemble's member.

        By default they are these checkpoints themselves, because nothing is saved.

        Args:
            name: the training's name, a path relative to these checkpoints, such as "members/003".

        Returns:
            The checkpoints, which may be sent to another process.
        """
        return self

    def last_state(self) -> CheckpointState | None:
        """Return the last state that an earlier attempt saved; None (the default): there is none.

        A training calls this once, before its first step. On None it starts from step 0.
        """
        return None

    def save_if_due(
        self, step: int, tensors: Callable[[], Tensors], is_last_step: bool = False
    ) -> None:
        """Save the training's state after a step, if enough time has passed since the last save.

        By default nothing is saved.

        Args:
            step: the number of steps that were taken.
            tensors: returns the state's tensors. It is called only if they are needed, because
                collecting them may take long.
            is_last_step: True if no step follows.
        """

    def draw_once(self, name: str, draw: Callable[[], int]) -> int:
        """Return the random number that is stored under a name; draw and store it if there is none.

        A resumed training so has the number of the first attempt. The number is on the disk before
        this returns. By default a number is drawn, and not stored.

        Args:
            name: the name of the number.
            draw: returns a random integer of at least 0.
        """
        return draw()


NO_CHECKPOINTS = Checkpoints()


@dataclass(frozen=True)
class SharedCheckpoints(Checkpoints):
    """Checkpoints of one training that several processes compute together.

    Only the first process (rank 0) reads and writes files. It sends the state that it read and the
    random numbers that it drew to the other processes.

    Attributes:
        group: the processes.
        first: the first process's checkpoints. Other processes have a value here, too, but do not
            read or write with it.
    """

    group: Group
    first: Checkpoints

    def part(self, name: str) -> "SharedCheckpoints":
        """Return separate shared checkpoints for one of several trainings.

        Args:
            name: the training's name, a path relative to these checkpoints, such as "members/003".
        """
        return SharedCheckpoints(self.group, self.first.part(name))

    def last_state(self) -> CheckpointState | None:
        """Return the last state that was saved, in every process; None if there is none.

        The first process reads it from the disk and sends it to the others, so all processes must
        call this together.
        """
        own_state = None
        if self._is_first:
            own_state = self.first.last_state()
        state = self.group.broadcast(own_state)  # the first process's state, in every process
        if state is None:
            return None
        # Copies are aligned like PyTorch's own tensors, whatever memory the transfer used: a matrix
        # product may round differently at another alignment.
        return CheckpointState(state.step, independent_copies(state.tensors))

    def save_if_due(
        self, step: int, tensors: Callable[[], Tensors], is_last_step: bool = False
    ) -> None:
        """Save the state in the first process if enough time has passed; else do nothing.

        Args:
            step: the number of steps that were taken.
            tensors: returns the state's tensors; only the first process calls it.
            is_last_step: True if no step follows.
        """
        if self._is_first:
            self.first.save_if_due(step, tensors, is_last_step)

    def draw_once(self, name: str, draw: Callable[[], int]) -> int:
        """Return the random number that the first process has stored under a name, or draws now.

        All processes must call this together; every process returns the first one's number.

        Args:
            name: the name of the number.
            draw: returns a random integer of at least 0; only the first process calls it.
        """
        number = 0
        if self._is_first:
            number = self.first.draw_once(name, draw)
        return self.group.broadcast(number)  # the first process's number, in every process

    @property
    def _is_first(self) -> bool:
        """Whether this is the process that reads and writes the files (rank 0)."""
        return self.group.rank == 0


@dataclass
class CheckpointFolder(Checkpoints):
    """Checkpoints in a folder of files; ``open_checkpoints`` returns one.

    Attributes:
        folder: the folder with the files.
        run: the SHA-256 of run.json, which identifies the run that the states belong to.
        every: seconds between two checkpoints. None: after a pause of ``PAUSE_RATIO`` times the
            time that the last one took. 0: no checkpoints.
        file_seconds: the measured time to write a small file.
        owner: the id of the process that opened the folder. It trains, or its child processes do.
        is_new: whether the folder had no run.json before it was opened.
        number_files: the names of the files that ``draw_once`` wrote in this folder and in its
            subfolders.
    """

    folder: Path
    run: str
    every: float | None
    file_seconds: float
    is_new: bool = False
    owner: int = field(default_factory=os.getpid)
    number_files: set[str] = field(default_factory=set)
    # The time (of the monotonic clock) at which the last checkpoint was finished or the training
    # began.
    _since: float = field(default_factory=time.monotonic)
    # The seconds that the last checkpoint took; before the first one an estimate from its size, or
    # None.
    _checkpoint_seconds: float | None = None

    def part(self, name: str) -> "CheckpointFolder":
        """Return the checkpoints of one of several trainings, which are in a subfolder.

        Args:
            name: the subfolder's path relative to this folder, such as "members/003".
        """
        return replace(self, folder=self.folder / name)

    @contextmanager
    def removed_if_refused(self) -> Iterator[None]:
        """Remove a new folder if the training in a ``with`` block is refused before it has a state.

        Such a folder holds the settings of the run and nothing that was computed from records, but
        it would look like a training that was stopped. A folder with a state or with a random
        number stays, and so does one that an earlier process opened.
        """
        try:
            yield
        except AgtError:
            contents = [path for path in self.folder.rglob("*") if not path.is_dir()]
            if self.is_new and contents == [self.folder / RUN_FILE]:
                # A folder that receives another file meanwhile is not empty and stays.
                with suppress(OSError):
                    _remove_checkpoints(self.folder, self.number_files)
            raise

    def last_state(self) -> CheckpointState | None:
        """Return the state of the latest step in the folder; None if the folder has no state.

        Raises:
            ConfigError: the state's file was damaged after the folder was opened.
        """
        self._since = time.monotonic()  # the training begins here, and so does the first pause
        paths = _state_paths(self.folder)
        if not paths:
            return None
        return _read_state(paths[-1], self.run)

    def save_if_due(
        self, step: int, tensors: Callable[[], Tensors], is_last_step: bool = False
    ) -> None:
        """Write the state into the folder, if enough time has passed since the last checkpoint.

        An OSError (a full disk, say) is reported as a warning, and the training continues. In a
        worker process whose parent, the run, was killed, this ends the worker process.

        Args:
            step: the number of steps that were taken.
            tensors: returns the state's tensors; it is called only if they are needed.
            is_last_step: True if no step follows.
        """
        is_owner = os.getpid() == self.owner
        is_child_of_owner = os.getppid() == self.owner
        if not is_owner and not is_child_of_owner:
            # This is a worker process of a run that was killed. It must not write, because another
            # run may use the folder by now, and nobody waits for its result.
            os._exit(1)
        begin = time.monotonic()
        if not self._is_due(begin - self._since, tensors, is_last_step):
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
        """Return the random number that the folder stores under a name, or draw and store it.

        Args:
            name: the name of the number; the file is NAME.json.
            draw: returns a random integer of at least 0.

        Raises:
            ConfigError: the number was drawn before, and its file is damaged or missing.
        """
        path = self.folder / f"{name}.json"
        self.number_files.add(path.name)
        if not path.exists():
            # Saved steps have used the number. With a second number the training would be a second
            # release of the same data (Lemma 4 of docs/proofs/noise.md).
            if _state_paths(self.folder):
                raise ConfigError(
                    f"{path} is missing. It holds a random number that earlier steps of this "
                    "training used, so the training cannot be resumed. Start a new run"
                )
            write_atomic(path, seal({"number": f"{draw():x}", "run": self.run}))
        try:
            value = unseal(path.read_bytes())
            if value["run"] != self.run:
                raise ValueError(
                    f"{path.name} belongs to another run: give the checkpoints' folder of this run"
                )
            return int(value["number"], 16)
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{path} is damaged ({error}). It holds a random number of this training, "
                "which cannot be drawn again, so this training cannot be resumed. Start a new "
                "run (which is another private release)"
            ) from None

    def _is_due(self, elapsed: float, tensors: Callable[[], Tensors], is_last_step: bool) -> bool:
        """Return whether it is time to write a checkpoint.

        Where the user gave an interval (``every``), it decides. Where the user gave none, the pause
        must be long in comparison with the time that a checkpoint takes.

        Args:
            elapsed: seconds since the last checkpoint, or since the training began.
            tensors: returns the state's tensors; before the first checkpoint it is called to
                estimate from their size how long a checkpoint takes.
            is_last_step: True if no step follows.
        """
        if self.every is not None:  # the user gave an interval; 0: no checkpoints
            return self.every > 0 and (is_last_step or elapsed >= self.every)
        if elapsed < MIN_PAUSE_SECONDS and not is_last_step:
            return False
        if self._checkpoint_seconds is None:  # no checkpoint was timed yet
            size = sum(tensor.nbytes for tensor in tensors().values())
            self._checkpoint_seconds = self.file_seconds + size / ASSUMED_BYTES_PER_SECOND
        return elapsed >= PAUSE_RATIO * self._checkpoint_seconds

    def _write(self, step: int, tensors: Tensors) -> None:
        """Write the state after a step into a file, and remove all but the latest states.

        ``STORED_STATES`` states are in the folder afterwards, or fewer.

        Args:
            step: the number of steps that were taken.
            tensors: the state's tensors.

        Raises:
            OSError: the file cannot be written.
        """
        # Old files are removed first, so that the new one finds space on the disk.
        staying_states = STORED_STATES - 1  # beside the new one
        older_states = _state_paths(self.folder)[:-staying_states]
        for path in older_states:
            path.unlink(missing_ok=True)
        # ``save`` refuses tensors that share memory, so it gets copies.
        content = save(independent_copies(tensors), metadata=_state_header(self.run, step))
        digest = sha256(content).hexdigest()
        write_atomic(self.folder / f"step={step:012d}.{digest}.safetensors", content)


def open_checkpoints(
    folder: Path, about: Mapping[str, Any], every: float | None, note: Note
) -> CheckpointFolder:
    """Open the folder with a run's checkpoints, for a new run or to resume an earlier attempt.

    Args:
        folder: a folder that is used for these checkpoints only; it is created if it does not
            exist.
        about: everything that the bits of the training's result depend on (settings, data, code,
            machine, threads), as JSON values, nested or not.
        every: seconds between two checkpoints. None: often, but so that they take little time.
            0: no checkpoints.
        note: receives a line of text for each damaged state; the state's file is removed.

    Raises:
        ConfigError: the folder belongs to a run with other values in ``about`` (the message names
            the first difference); run.json is damaged; or the folder has files but no run.json.
    """
    path = folder / RUN_FILE
    # Writing or reading run.json is timed, to learn how long a small file takes on this disk.
    begin = time.perf_counter()
    if not path.exists() and folder.exists() and any(folder.iterdir()):
        raise ConfigError(
            f"{folder}: this folder contains other files but no {RUN_FILE}, so it is not a "
            "folder of checkpoints. Give an empty or a new folder for the checkpoints"
        )
    content = seal({"format": CHECKPOINT_FORMAT, **flatten_keys(about)})
    is_new = not path.exists()
    if not is_new:
        _check_same_run(path, json.loads(content))
    else:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)  # ``mkdir`` leaves the mode of an existing, empty folder as it is
        write_atomic(path, content)
    run = sha256(path.read_bytes()).hexdigest()
    file_seconds = max(time.perf_counter() - begin, _MIN_FILE_SECONDS)
    remove_parts(folder)  # files that a killed process left half written
    # Damaged states are removed here, so that ``last_state`` then returns an earlier one.
    for state_path in sorted(folder.rglob("step=*.safetensors")):
        try:
            _read_state(state_path, run)
        except ConfigError as error:
            note(
                f"note: {error}. agt deletes this file of a checkpoint, and training continues "
                "from an earlier step"
            )
            state_path.unlink()
    return CheckpointFolder(folder, run, every, file_seconds, is_new=is_new)


@contextmanager
def checkpoint_folder(
    folder: Path, about: Mapping[str, Any], every: float | None
) -> Iterator[CheckpointFolder]:
    """Open a training's checkpoints for a ``with`` block, and remove them after success.

    If the block ends with an error, the folder stays, and a later call resumes from its last state.
    (A new folder without any state is removed if agt refuses the training.)

    Args:
        folder: a folder that is used for these checkpoints only.
        about: everything that the bits of the training's result depend on, as JSON values.
        every: seconds between two checkpoints. None: often, but so that they take little time.
            0: no checkpoints.

    Raises:
        ConfigError: another process trains with the folder; the folder belongs to a run with other
            values in ``about``; run.json is damaged; or the folder has files but no run.json.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = Lock(folder.with_name(f"{folder.name}.lock"))
    if not lock.acquire():
        raise ConfigError(
            f"checkpoint={folder}: another process is training with this folder: wait for it, "
            "or give another folder"
        )
    try:
        checkpoints = open_checkpoints(folder, about, every, warnings.warn)
        with checkpoints.removed_if_refused():
            yield checkpoints
        # A folder to which somebody added a file is not empty and stays, which is no error.
        with suppress(OSError):
            _remove_checkpoints(folder, checkpoints.number_files)
    finally:
        lock.release()


def _remove_checkpoints(folder: Path, number_files: set[str]) -> None:
    """Remove the files that checkpoints wrote into a folder and its subfolders, then the folders.

    Files with other names are not touched.

    Args:
        folder: the folder of the checkpoints.
        number_files: the names of the files that ``draw_once`` wrote.

    Raises:
        OSError: a folder cannot be removed because it has another file. The removal stops there.
    """
    removable = {RUN_FILE, *number_files}
    # In reverse order of their paths, what is inside of a folder comes before the folder.
    contents_first = sorted([folder, *folder.rglob("*")], reverse=True)
    for path in contents_first:
        if path.is_dir():
            path.rmdir()
        elif path.name in removable or _STATE_NAME.fullmatch(path.name):
            path.unlink()


def _check_same_run(path: Path, about: Mapping[str, Any]) -> None:
    """Raise ConfigError if a resumed run would not have the settings and data that it began with.

    Args:
        path: run.json, which was written when the run began.
        about: the content that run.json would have if the run began now, by dotted key.

    Raises:
        ConfigError: a value differs (the message names the first key), or run.json is damaged.
    """
    try:
        recorded = unseal(path.read_bytes())
    except ValueError as error:
        raise ConfigError(
            f"{path} is damaged ({error}), so this training cannot be resumed. Start a new run"
        ) from None
    # "sha256" is the checksum that a file contains of itself. ``unseal`` has checked it, and
    # removed it from ``recorded``.
    for key in sorted({*recorded, *about} - {"sha256"}):
        recorded_value = recorded.get(key)
        current_value = about.get(key)
        if recorded_value != current_value:
            raise ConfigError(
                f"{key} was {recorded_value} when the run began, but is {current_value} now, so "
                "the run would not give bit-identical results. Restore the old value, or start "
                "a new run"
            )


def _state_paths(folder: Path) -> list[Path]:
    """Return the paths of a folder's state files in the order of their steps, the latest last."""
    return sorted(folder.glob("step=*.safetensors"))  # steps have 12 digits, so names sort by step


def _state_header(run: str, step: int) -> dict[str, str]:
    """Return the metadata in the header of a state's file.

    Args:
        run: the SHA-256 of run.json.
        step: the number of steps that were taken.
    """
    return {"format": str(CHECKPOINT_FORMAT), "run": run, "step": str(step)}


def _read_state(path: Path, run: str) -> CheckpointState:
    """Return the state in a file, after checking that the file is intact and of this run.

    Args:
        path: the file, named step=STEP.DIGEST.safetensors with the SHA-256 of its content.
        run: the SHA-256 of run.json, which the file's header must have.

    Raises:
        ConfigError: the file is damaged, or belongs to another run or another step.
    """
    content = path.read_bytes()
    name = _STATE_NAME.fullmatch(path.name)
    if name is None or sha256(content).hexdigest() != name["digest"]:
        raise ConfigError(
            f"{path} is damaged, because the hash of its content differs from the one in its name"
        )
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
    """Return the metadata (name -> text) in the header of a safetensors file.

    Args:
        content: the file's bytes: the header's length in 8 bytes, little-endian; then the header as
            JSON; then the tensors.

    Returns:
        The texts under "__metadata__"; an empty dictionary if the file has none.

    Raises:
        ValueError: the header is not valid JSON.
    """
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    return header.get("__metadata__", {})


def independent_copies(tensors: Tensors) -> Tensors:
    """Return contiguous copies of tensors on the CPU, each in separate memory.

    PyTorch allocates the memory, so the copies are aligned as any tensor of a training is. A matrix
    product may round differently at an address of another alignment, and a resumed training must
    end with the same bits (Lemma 8 of docs/proofs/training.md).
    """
    return {
        name: tensor.cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }
