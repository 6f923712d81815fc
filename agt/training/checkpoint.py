"""Training that goes on where it was killed: what a run had reached, kept on disk now and then,
read back to the same bits.

    run.json                              what the run's bits depend on: settings, data, code, machine, threads
    noise.json                            the seed of private noise, while the run lasts
    step=000000000017.<sha256>.safetensors    what step 17 had reached; the last two of these
    members/003/...                       the same of an ensemble's member

Formal guarantees
    A training step is a function of the state before it, its number, the records and the settings.
    ``CheckpointState`` is all of that state: nominal parameters, bounds and momentum buffers of a
    box; theta and the running sum of a linear head; both points of the minimiser's method. So a run
    that takes a state up ends with the bits of a run that was never killed, if the rest is the
    same: ``run.json`` says what that is, and another value of any of it is refused by name. Tensors
    are read into memory of their own, aligned as PyTorch aligns any: a matrix product may round
    otherwise at another address. A file appears whole or not at all, has its own hash in its name
    and the hash of ``run.json`` in its header: one that is damaged, edited or of another run is
    never used, and is named. (Whoever renames a file to fit its new content is not found out, as
    with any checksum.) Noise is drawn once. Its seed is on disk before the first draw, so a run
    that was killed a hundred times meets the draw that it began with: one release, which spent.json
    counts once. Whoever learns the seed can subtract the noise: the folder is for its owner alone
    (mode 700), and goes when the run is finished. A run whose seed is gone is refused, as a second
    draw would be a second release.

The price. After a checkpoint that took t seconds to write, none is written for 20 t: 1/21 of the
time at most. How long the first will take is told by its size and by the time that run.json took.
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

FORMAT = 1
RUN = "run.json"
AGAIN_AFTER = 20  # times as long as a checkpoint took: at most 1/21 of the time goes into them
SELDOM = 1.0  # seconds: no more often than this, however fast the disk is
SPEED = 2e8  # bytes a second, until one was written
KEPT = 2
_LEAST = 0.005  # seconds that no file is trusted to take less than
_NAME = re.compile(r"step=(?P<step>\d{12})\.(?P<digest>[0-9a-f]{64})\.safetensors")

Tensors = dict[str, Tensor]
Note = Callable[[str], None]


@dataclass(frozen=True)
class CheckpointState:
    """What a run has reached.

    Attributes:
        step: how many steps were taken.
        tensors: all that later steps depend on, beside settings and records.
    """

    step: int
    tensors: Tensors


class Checkpoints(Protocol):
    """Where a training leaves what it has reached, and takes it up again."""

    def part(self, name: str) -> "Checkpoints":
        """The same for one of several trainings, which may be in another process."""

    def last(self) -> CheckpointState | None:
        """What an earlier attempt had reached last; None: begin at the beginning.

        Training asks this first, and once.
        """

    def offer(self, step: int, tensors: Callable[[], Tensors], last: bool = False) -> None:
        """So many steps were taken; the state is written if it is time to.

        Args:
            tensors: makes the state's, if they are wanted.
            last: there are no more steps.
        """

    def number(self, name: str, draw: Callable[[], int]) -> int:
        """A number that is drawn once, however often the run is killed: durable before this
        returns.
        """


class Nowhere(Checkpoints):
    """Keeps nothing."""

    def part(self, name: str) -> Self:
        return self

    def last(self) -> None:
        """Nothing."""

    def offer(self, step: int, tensors: Callable[[], Tensors], last: bool = False) -> None:
        """Never."""

    def number(self, name: str, draw: Callable[[], int]) -> int:
        return draw()


NOWHERE = Nowhere()


@dataclass(frozen=True)
class Common(Checkpoints):
    """Checkpoints of a training that several processes share: the first's, which alone reads and
    writes.

    All go on from the state that it read, and with the numbers that it drew.
    """

    group: Group
    inner: Checkpoints

    def part(self, name: str) -> "Common":
        return Common(self.group, self.inner.part(name))

    def last(self) -> CheckpointState | None:
        state = self.group.sent(self.inner.last() if self._first else None)
        return None if state is None else CheckpointState(state.step, apart(state.tensors))

    def offer(self, step: int, tensors: Callable[[], Tensors], last: bool = False) -> None:
        if self._first:
            self.inner.offer(step, tensors, last)

    def number(self, name: str, draw: Callable[[], int]) -> int:
        return self.group.sent(self.inner.number(name, draw) if self._first else 0)

    @property
    def _first(self) -> bool:
        return self.group.rank == 0


@dataclass
class CheckpointFolder(Checkpoints):
    """A folder of them; ``open_checkpoints`` makes one.

    Attributes:
        folder: where they lie.
        run: the hash of run.json.
        every: seconds between two; None: as often as they cost little; 0: none.
        cost: seconds that a small file takes.
        owner: the process that trains, or whose workers do.
    """

    folder: Path
    run: str
    every: float | None
    cost: float
    owner: int = field(default_factory=os.getpid)
    drawn: set[str] = field(default_factory=set)  # files of numbers, in this folder and its parts
    _since: float = field(default_factory=time.monotonic)  # the last one's end, or the beginning
    _took: float | None = None  # seconds, by the last one; at first, by its size

    def part(self, name: str) -> "CheckpointFolder":
        return replace(self, folder=self.folder / name)

    def last(self) -> CheckpointState | None:
        """Raises ConfigError: a file was damaged since the folder was opened."""
        self._since = time.monotonic()
        paths = _states(self.folder)
        return _read(paths[-1], self.run) if paths else None

    def offer(self, step: int, tensors: Callable[[], Tensors], last: bool = False) -> None:
        """A disk too full for a checkpoint ends no training."""
        if os.getpid() != self.owner != os.getppid():
            # a worker whose run was killed: another may have taken the run up, and nobody waits for
            # this one
            os._exit(1)
        now = time.monotonic()
        if not self._due(now - self._since, tensors, last):
            return
        try:
            self._write(step, tensors())
        except OSError as error:
            warnings.warn(
                f"{error.filename}: {error.strerror}: no checkpoint of step {step}", stacklevel=2
            )
        self._since = time.monotonic()
        self._took = self._since - now

    def number(self, name: str, draw: Callable[[], int]) -> int:
        """Raises ConfigError: it was drawn, and its file is damaged or gone."""
        path = self.folder / f"{name}.json"
        self.drawn.add(path.name)
        if not path.exists():
            if _states(self.folder):
                raise ConfigError(
                    f"{path}: is gone, and steps were taken with what was drawn: start a new run"
                )
            write_atomic(path, store.seal({"number": f"{draw():x}", "run": self.run}))
        try:
            value = store.unseal(path.read_bytes())
            if value["run"] != self.run:
                raise ValueError("it is of another run")
            return int(value["number"], 16)
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{path}: is damaged ({error}), and what was drawn cannot be drawn again: start a "
                "new run, a release of "
                "its own"
            ) from None

    def _due(self, elapsed: float, tensors: Callable[[], Tensors], last: bool) -> bool:
        """Whether it is time for a checkpoint, so many seconds after the one before or the
        beginning.
        """
        if self.every is not None:
            return self.every > 0 and (last or elapsed >= self.every)
        if elapsed < SELDOM and not last:
            return False
        if self._took is None:
            self._took = self.cost + sum(tensor.nbytes for tensor in tensors().values()) / SPEED
        return elapsed >= AGAIN_AFTER * self._took

    def _write(self, step: int, tensors: Tensors) -> None:
        for path in _states(self.folder)[: 1 - KEPT]:
            path.unlink(missing_ok=True)
        header = {"format": str(FORMAT), "run": self.run, "step": str(step)}
        # which takes no two tensors that share their memory
        content = save(apart(tensors), metadata=header)
        write_atomic(
            self.folder / f"step={step:012d}.{sha256(content).hexdigest()}.safetensors", content
        )


def open_checkpoints(
    folder: Path, about: Mapping[str, Any], every: float | None, note: Note
) -> CheckpointFolder:
    """The checkpoints of a run: of a new one, or of one that goes on.

    Args:
        folder: theirs alone.
        about: what the run's bits depend on, as JSON has it.
        every: as in ``CheckpointFolder``.
        note: takes a line for each file that cannot be used: it is removed.

    Raises:
        ConfigError: the folder's run depends on something else, which is named; or run.json is
            damaged, or missing among other files.
    """
    path, started = folder / RUN, time.perf_counter()
    if not path.exists() and folder.exists() and any(folder.iterdir()):
        raise ConfigError(
            f"{folder}: something else is there, and no {RUN}: checkpoints need a folder of their "
            "own"
        )
    content = store.seal({"format": FORMAT, **store.flat(about)})
    if path.exists():
        _compare(path, json.loads(content))
    else:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)  # it may have been there, empty
        write_atomic(path, content)
    run, cost = sha256(path.read_bytes()).hexdigest(), max(time.perf_counter() - started, _LEAST)
    remove_parts(folder)
    for state in sorted(folder.rglob("step=*.safetensors")):
        try:
            _read(state, run)
        except ConfigError as error:
            note(f"note: {error}: it is removed, and training goes on from an earlier step")
            state.unlink()
    return CheckpointFolder(folder, run, every, cost)


@contextmanager
def kept_in(
    folder: Path, about: Mapping[str, Any], every: float | None
) -> Iterator[CheckpointFolder]:
    """The same for one training of a program, which has the folder to itself: done, it is removed;
    else it stays.

    Raises:
        ConfigError: as ``open_checkpoints``, or another process trains with it.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = Lock(folder.with_name(f"{folder.name}.lock"))
    if not lock.take():
        raise ConfigError(f"checkpoint={folder}: another process trains with it")
    try:
        yield (kept := open_checkpoints(folder, about, every, warnings.warn))
        with suppress(OSError):  # somebody put another file there
            # what is in a folder before the folder
            for path in sorted([folder, *folder.rglob("*")], reverse=True):
                if path.is_dir():
                    path.rmdir()
                elif path.name in {RUN, *kept.drawn} or _NAME.fullmatch(path.name):
                    path.unlink()
    finally:
        lock.release()


def _compare(path: Path, now: Mapping[str, Any]) -> None:
    try:
        then = store.unseal(path.read_bytes())
    except ValueError as error:
        raise ConfigError(f"{path}: is damaged: {error}: start a new run") from None
    for key in sorted({*then, *now} - {"sha256"}):
        if then.get(key) != now.get(key):
            raise ConfigError(
                f"{key} was {then.get(key)} when the run began and is {now.get(key)} now: the run "
                "would not end with the "
                "bits it began for: restore that, or start a new run"
            )


def _states(folder: Path) -> list[Path]:
    """The files of states, the latest last."""
    return sorted(folder.glob("step=*.safetensors"))


def _read(path: Path, run: str) -> CheckpointState:
    """Raises ConfigError unless it is a state of this run, to the last byte."""
    content, name = path.read_bytes(), _NAME.fullmatch(path.name)
    if name is None or sha256(content).hexdigest() != name["digest"]:
        raise ConfigError(f"{path}: is damaged: its content has another hash than its name")
    try:
        header, tensors = header_of(content), load(content)
    except (SafetensorError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read ({error})") from None
    step = int(name["step"])
    if header != {"format": str(FORMAT), "run": run, "step": str(step)}:
        raise ConfigError(f"{path}: is of another run, or another step")
    return CheckpointState(step, apart(tensors))


def header_of(content: bytes) -> dict[str, str]:
    """The free words in the header of a safetensors file: 8 bytes of length, little-endian, then
    that much JSON.
    """
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return header.get("__metadata__", {})


def apart(tensors: Tensors) -> Tensors:
    """Copies on the CPU, each in memory of its own, aligned as PyTorch aligns any."""
    return {
        name: tensor.cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }
