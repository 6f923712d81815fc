"""The plan of batches: public constants, and a record's place in it decided by its own id (method.md section 3b, 3c).

Slices (Bourtoule et al. 2021). Records may be dealt to S slices; training goes through S stages of e' epochs, and in stage
s takes the records of slices 1..s alone. What it has reached at a stage's end depends on no later slice, so that after a
removal from slice s training goes on from the state at the end of stage s - 1.

Formal guarantees
    With slices a plan is the plan of S e' epochs in which some records sit out some epochs. Whether one does is a function
    of its own unit's id, the public key and the epoch, as its batch is (condition b); B, n_max, the rates and the number of
    steps are the same public constants in every stage (condition c). What training/loop.py,
    agt/relations.py and linear.py prove of a step holds for batches of any records up to n_max, and
    they compose steps by induction: no proof asks that a record be in each epoch, only that
    neighbours' batches differ by the units they differ in. A bound that counts one batch of each
    epoch for a record counts too many where it sits out: valid, and attained by slice 1.

How to train, as one value: the public settings that runs, sensitivities and certificates take, the records aside.

Selections over a batch that several processes share: the c most extreme bounds of all from those that each kept.

Formal guarantees
    The c least of a union are among the c least of its parts. Every process keeps as many of its own records' bounds as are
    wanted of all of them, or all that it met, so that choosing anew from what they kept gives the numbers that one process
    would have kept; their sum is one of integers, in range by kernels/reference.py.

How records reach a GPU: all of them once, where they fit; else a fragment at a time, the next one on its way meanwhile.

A fragment is the same numbers at an address of the same alignment either way, so that neither changes a bit: which of them
it is depends on what else the GPU holds, and must not matter.

Records and the grid of k in pieces that fit the working memory. How they are cut moves no bound past its rounding.

States at the ends of a training's stages, kept so that a later training begins at one of them (batches.py, SISA).

Formal guarantees
    The state at the end of stage s is a function of the settings and of the records of slices 1..s, in the order that
    ``training.ensemble.parts`` gives them: no other record has been in a batch, and nothing else of the data decides a
    constant (``BatchPlan``). A training that begins there takes the same further steps as one that came by (checkpoint.py:
    a state is all that later steps depend on). So where slices 1..s are the same records, the two end with the same bits.
    A run that was killed goes on with the states that it had kept: they are part of its checkpoints.
"""

import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Protocol

import numpy as np
import torch
from safetensors.torch import load, save
from torch import Tensor

from agt.data.dataset import Records, keyed_hash, most_frequent, remix
from agt.distributed import Group, group
from agt.errors import ConfigError, UnsoundError
from agt.kernels.reference import NONE, Extremes
from agt.relations import EXACT_ROWS, RELATIONS
from agt.settings import MOST_ROWS, BatchConfig, ComputeConfig, KGridConfig, RelationConfig, TrainingConfig, default_n_max
from agt.training.checkpoint import Checkpoints, CheckpointState, Tensors, apart, header_of


@dataclass(frozen=True)
class Slices:
    """How many slices records are dealt to, and the public key of the hash that deals them."""

    count: int = 1
    key: str = "agt"

    def of(self, units: np.ndarray) -> np.ndarray:
        """[n] int64: the slice of each record, from 0. All rows of a unit share one."""
        if self.count == 1:
            return np.zeros(len(units), dtype=np.int64)
        return (keyed_hash(units, f"slice/{self.key}") % np.uint64(self.count)).astype(np.int64)

    def stage_epochs(self, epochs: int) -> int:
        """Epochs of each stage: 2 e / (S + 1), rounded up, after which training has looked at e times the records."""
        return math.ceil(2 * epochs / (self.count + 1))


@dataclass(frozen=True)
class BatchPlan:
    """How many batches there are and who is in which.

    Attributes:
        epochs, count: steps = epochs * count, whatever the data.
        normalizer: B.
        n_max: the public cap on a batch, itself at most ``MOST_ROWS``: sums over more records are not proved exact.
        key: the public key of the hash.
        declared: False if a constant was derived from the data at hand, which voids condition c.
        slices: ``epochs`` is divided into as many stages, each of which takes one slice more.

    Raises:
        ConfigError: n_max is too large; or there are slices, and a constant would depend on records of later ones.
    """

    epochs: int
    count: int
    normalizer: float
    n_max: int
    key: str
    declared: bool
    slices: Slices = field(default_factory=Slices)

    def __post_init__(self) -> None:
        if self.slices.count > 1 and not self.declared:
            raise ConfigError(
                f"ensemble.slices={self.slices.count}: the normaliser would come from the number of records, those of "
                "later slices among them, and so would every state on the way: declare dataset.declared_size or "
                "training.batch.normalizer"
            )
        if self.n_max > MOST_ROWS:
            raise ConfigError(
                f"training.batch.n_max={self.n_max} (from normalizer = {self.normalizer:g}, where it is null): sums are "
                f"exact over at most {MOST_ROWS} records of a batch: use more batches, or a smaller normalizer"
            )

    @classmethod
    def of(
        cls, config: BatchConfig, epochs: int, declared_size: float | None, records: int, slices: Slices = Slices()
    ) -> "BatchPlan":
        """Fill in what the configuration leaves open.

        Args:
            config: the batch settings.
            epochs: passes over the data.
            declared_size: the dataset's public size, or None.
            records: the actual number, used only if neither a normalizer nor a size was declared.
            slices: with more than one, ``epochs`` are split up among the stages (``Slices.stage_epochs``).

        Raises:
            ConfigError: n_max < 1.1 B, or n_max or B is too large.
        """
        size = max(records, 1) if declared_size is None else declared_size  # a shard may be empty
        normalizer = config.normalizer or size / config.count
        n_max = config.n_max or default_n_max(min(normalizer, 2 * MOST_ROWS))
        if n_max < 1.1 * normalizer:
            raise ConfigError(f"training.batch.n_max={n_max} is below 1.1 * normalizer = {1.1 * normalizer:g}: raise n_max")
        declared = config.normalizer is not None or declared_size is not None
        epochs = epochs if slices.count == 1 else slices.count * slices.stage_epochs(epochs)
        return cls(epochs, config.count, float(normalizer), n_max, config.key, declared, slices)

    @property
    def steps(self) -> int:
        """The number of steps, empty batches included."""
        return self.epochs * self.count

    @property
    def ends(self) -> tuple[int, ...]:
        """How many steps were taken at the end of each stage but the last."""
        stage = self.steps // self.slices.count
        return tuple(stage * s for s in range(1, self.slices.count))

    def batches(self, units: np.ndarray) -> Iterator[np.ndarray]:
        """The rows of each step's batch, in increasing order.

        Args:
            units: [n] str, each record's unit id. All rows of a unit share a batch.

        Raises:
            ConfigError: a batch exceeds n_max; raised before the first step, never by truncating.
        """
        hashes = keyed_hash(units, f"batch/{self.key}")
        slices = self.slices.of(units)
        homes = [self._homes(hashes, slices, epoch) for epoch in range(self.epochs)]
        largest = max(int(np.bincount(home, minlength=self.count)[: self.count].max()) for home in homes)
        if largest > self.n_max:
            raise ConfigError(
                f"a batch holds {largest} records and training.batch.n_max is {self.n_max}, which follows from the "
                "declared size: declare a public size nearer to how many there are, raise n_max and normalizer, or use "
                "more batches; records are never dropped to fit"
            )
        for home in homes:
            for index in range(self.count):
                yield np.flatnonzero(home == index)

    def _homes(self, hashes: np.ndarray, slices: np.ndarray, epoch: int) -> np.ndarray:
        """[n] the batch of each record in an epoch; ``count``, which is none, for those whose slice is not in yet."""
        home = (remix(hashes, epoch) % np.uint64(self.count)).astype(np.int64)
        home[slices > epoch * self.slices.count // self.epochs] = self.count
        return home


def check_unit_rows(units: np.ndarray, unit_rows: int) -> None:
    """Enforce the public cap of ``relation.unit_rows`` rows for each unit.

    Raises:
        ConfigError: a unit has more rows; it is named.
    """
    most = most_frequent(units, unit_rows)
    if most:
        raise ConfigError(
            f"unit {most[0]!r} has {most[1]} rows and relation.unit_rows is {unit_rows}: "
            "raise relation.unit_rows to a public cap on the rows of one unit, or drop rows"
        )


@dataclass(frozen=True)
class Recipe:
    """How to train, and which other datasets a certificate speaks of.

    Attributes:
        classes: the number of classes.
        training: loss, steps, clip level, batches.
        relation: which datasets are neighbours.
        kgrid: the values of k to carry bounds for.
        compute: device, kernel, memory: speed alone.
        declared_size: public constant, about how many records there are: the normaliser comes from it. None: it is taken
            from the records, and then condition c does not hold.
        slices: in whose order records join in.

    Raises:
        UnsoundError: settings are still left to the recipe: whoever builds this settles them first (linear.py).
    """

    classes: int
    training: TrainingConfig
    relation: RelationConfig
    kgrid: KGridConfig
    compute: ComputeConfig = field(default_factory=ComputeConfig)
    declared_size: float | None = None
    slices: Slices = field(default_factory=Slices)

    def __post_init__(self) -> None:
        if self.training.by_recipe:
            raise UnsoundError(f"training.{self.training.by_recipe[0]}: trained before the recipe settled it")

    def plan(self, records: int) -> BatchPlan:
        """The plan of batches.

        Args:
            records: how many there are; it matters only where neither a size nor a normaliser was declared.

        Raises:
            ConfigError: the sizes of batches are out of range (``BatchPlan.of``).
        """
        return BatchPlan.of(self.training.batch, self.training.epochs, self.declared_size, records, self.slices)


_AT_ONCE = 1 << 24  # numbers that are exchanged together


def selected_sums(group: Group, extremes: Extremes, counts: Tensor) -> tuple[Tensor, Tensor]:
    """(sum of the greatest lower bounds, sum of the least upper bounds) over all processes: this one's part of both.

    Each process chooses for a share of the parameters, so that what is kept crosses once; for all others it has 0, and the
    sum over processes (``Group.total``) is the selection's.

    Args:
        counts: [K] how many are wanted.

    Returns:
        As ``Extremes.result``, which it is where a process is alone.
    """
    if group.size == 1:
        return extremes.result()
    greatest, least = (_chosen(group, kept, counts) for kept in extremes.kept())
    return greatest.neg_(), least


def _chosen(group: Group, kept: Tensor, counts: Tensor) -> Tensor:
    """int64 [K, *shape] the sum of the ``counts`` least, for this process's share of the parameters, of all processes'."""
    flat = kept.flatten(1, -2)
    ks, parameters, most = flat.shape
    sums = torch.zeros((ks, parameters), dtype=torch.int64, device=kept.device)
    share = max(1, min(-(-parameters // group.size), _AT_ONCE // (max(1, ks * most) * group.size)))
    used = torch.arange(most, device=kept.device) < counts[:, None, None]
    for start in range(0, parameters if most else 0, share * group.size):
        given = flat.new_full((ks, share * group.size, most), NONE)
        some = flat[:, start : start + share * group.size]
        given[:, : some.shape[1]] = some
        came = group.dealt(given.view(ks, group.size, share, most).transpose(0, 1))
        least = came.permute(1, 2, 0, 3).flatten(2).topk(most, largest=False).values
        mine = sums[:, start + group.rank * share : start + (group.rank + 1) * share]
        mine += torch.where(used & (least != NONE), least, 0).sum(dim=2)[:, : mine.shape[1]]
    return sums.view(kept.shape[:-1])


RESIDENT = 0.5  # the share of a GPU's free memory that records may take; boxes, selections and fragments have the rest
_ALIGNED = 64  # bytes: a product may round otherwise at another address
_BLOCK = 1 << 16  # records brought over at once

Part = np.ndarray | slice
Pair = tuple[Tensor, Tensor]  # features [n, ...], labels [n]
ReadPart = Callable[[Part], Pair]


class Card(Protocol):
    """A device with a memory of its own."""

    def free(self) -> int:
        """Bytes that are free."""

    def put(self, tensor: Tensor) -> Tensor:
        """The tensor, there."""

    def send(self, pair: Pair) -> Callable[[], Pair]:
        """Send both on their way; what waits for them, from the thread that uses them, and gives them there."""


class Cuda:
    """The current CUDA device; what is sent goes through pinned memory on a stream of its own."""

    def __init__(self) -> None:
        self.device = torch.device("cuda", torch.cuda.current_device())
        self._side = torch.cuda.Stream(self.device)

    def free(self) -> int:
        idle = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        return torch.cuda.mem_get_info(self.device)[0] + idle

    def put(self, tensor: Tensor) -> Tensor:
        return tensor.to(self.device)

    def send(self, pair: Pair) -> Callable[[], Pair]:
        with torch.cuda.stream(self._side):  # in this thread: which device and stream are current is each thread's own
            x, y = (tensor.pin_memory().to(self.device, non_blocking=True) for tensor in pair)
            there = self._side.record_event()

        def received() -> Pair:
            computing = torch.cuda.current_stream(self.device)
            computing.wait_event(there)
            for tensor in (x, y):
                tensor.record_stream(computing)  # or its memory would be given away while it is computed with
            return x, y

        return received


class Staged:
    """Records on a card.

    Attributes:
        held: all of them there, or None: they do not fit in ``RESIDENT`` of what is free.
    """

    def __init__(self, card: Card, read: ReadPart, rows: int) -> None:
        """``read``: some of the records, on the host, as fragments hand them out."""
        self._card, self._read = card, read
        first = read(slice(0, 1))
        size = sum(tensor.numel() * tensor.element_size() for tensor in first)
        self.held = self._brought(rows, first) if rows * size <= RESIDENT * card.free() else None

    def fragments(self, parts: Iterable[Part]) -> Iterator[Pair]:
        """Each of the parts, on the card."""
        if self.held is None:
            return ahead(parts, lambda part: self._card.send(self._read(part)))
        return map(self._taken, parts)

    def _brought(self, rows: int, first: Pair) -> Pair:
        x, y = (self._card.put(tensor).new_empty((rows, *tensor.shape[1:])) for tensor in first)
        for start in range(0, rows, _BLOCK):
            block = slice(start, min(start + _BLOCK, rows))
            for whole, part in zip((x, y), self._read(block), strict=True):
                whole[block] = self._card.put(part)
        return x, y

    def _taken(self, part: Part) -> Pair:
        assert self.held is not None
        index = part if isinstance(part, slice) else self._card.put(torch.from_numpy(part))
        x, y = (tensor[index] for tensor in self.held)
        return x if x.data_ptr() % _ALIGNED == 0 else x.clone(), y


def ahead(parts: Iterable[Part], send: Callable[[Part], Callable[[], Pair]]) -> Iterator[Pair]:
    """Each part as sent, the next one being read and sent, in a thread, while this one is used."""
    with ThreadPoolExecutor(1) as worker:
        waiting: Future[Callable[[], Pair]] | None = None
        for part in parts:
            coming = worker.submit(send, part)
            if waiting is not None:
                yield waiting.result()()
            waiting = coming
        if waiting is not None:
            yield waiting.result()()


_MOST = {"cpu": 1024, "cuda": 8192}  # records of a fragment: a CPU's caches take no more, and a GPU wants few launches
_SELECTION = 8  # what a selection keeps may take this many times the working memory of a fragment


@dataclass(frozen=True)
class Stream:
    """A run's records on their way through memory: a fragment of a batch at a time, for a part of the grid at a time.

    Every size is public or a setting, so that every step is cut alike.

    Attributes:
        records: the training records.
        compute: the memory to use, and the device.
        dtype: of the features a fragment hands out: float64 or float32.
        parameters: how many scalar parameters the head has.
        widths: how many numbers of a record the layers hold: their inputs and outputs.
        staged: the records on their way to a GPU; None: they are read where they are.
    """

    records: Records
    compute: ComputeConfig
    dtype: str
    parameters: int
    widths: int
    staged: Staged | None = None

    @classmethod
    def of(
        cls, records: Records, recipe: Recipe, point: Mapping[str, Tensor], widths: int, card: Card | None = None
    ) -> "Stream":
        """For a head with these parameters; ``card``: where its records go, by default the GPU if one computes."""
        sizes = recipe.compute, recipe.training.dtype, sum(p.numel() for p in point.values()), widths
        if card is None and recipe.compute.device != "cpu":
            card = Cuda()
        staged = (
            Staged(card, partial(_read, records, recipe.training.dtype), len(records)) if card and len(records) else None
        )
        return cls(records, *sizes, staged)

    @property
    def fragment(self) -> int:
        """Records at a time."""
        if self.compute.fragment != "auto":
            return self.compute.fragment
        return max(16, min(_MOST[self.compute.device], self._memory // self._record_bytes))

    def fragments(self, rows: np.ndarray, boundary: int = 0) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """(which of ``rows``, features [n, ...], labels [n]) of this process's fragments of a batch.

        Who sees to a fragment changes nothing about it: the cuts are those of one process.

        Args:
            boundary: no fragment straddles the ``boundary``-th of ``rows``.
        """
        size = self.fragment
        cuts = sorted({*range(0, boundary, size), *range(boundary, len(rows), size), len(rows)})
        pieces = list(pairwise(cuts))
        mine = [slice(*pieces[i]) for i in group().mine(len(pieces))]
        parts = [_as_slice(rows[piece]) for piece in mine]
        read = partial(_read, self.records, self.dtype)
        for piece, (x, y) in zip(mine, self.staged.fragments(parts) if self.staged else map(read, parts), strict=True):
            yield piece, x, y

    def groups(self, stakes: list[int], kept_bytes: Callable[[int], int]) -> list[slice]:
        """The grid cut into groups that one pass over a batch can select for.

        Args:
            stakes: [K] rows at stake at each k: what a selection keeps of every parameter.
            kept_bytes: how much the kernel needs to keep so many, for each parameter.

        Raises:
            ConfigError: what one k keeps exceeds a GPU's memory.
        """
        groups, start, used, have = [], 0, 0, device_memory(self.compute.device)
        most = _SELECTION * self._memory if self.compute.device == "cpu" else min(_SELECTION * self._memory, have // 4)
        for index, rows in enumerate(stakes):
            cost = self.parameters * kept_bytes(rows)
            if cost > have and self.compute.device != "cpu":
                raise ConfigError(
                    f"kgrid: the {rows} most extreme bounds on each of {self.parameters} parameters, which this relation "
                    f"keeps, need {cost / 2**30:.1f} GiB and this device has {have / 2**30:.1f} GiB: lower kgrid.max, or "
                    "train with compute=default"
                )
            if index > start and used + cost > most:
                groups.append(slice(start, index))
                start, used = index, 0
            used += cost
        return [*groups, slice(start, len(stakes))]

    def parts(self, group: slice) -> list[slice]:
        """A group cut into as many k as fit the memory beside a fragment."""
        size = max(1, self._memory // (self._record_bytes * self.fragment))
        return [slice(start, min(start + size, group.stop)) for start in range(group.start, group.stop, size)]

    @property
    def _memory(self) -> int:
        most = device_memory("cuda") // 4 if self.compute.device == "cuda" else sys.maxsize
        return min(self.compute.memory_mb * 2**20, most)

    @property
    def _record_bytes(self) -> int:
        """Bytes of one record's tensors for one k: about a dozen of each layer's width are alive at once."""
        return 12 * np.dtype(self.dtype).itemsize * self.widths


def check_sizes(recipe: Recipe, plan: BatchPlan, parameters: int) -> None:
    """Refuse what cannot work before the first step.

    Raises:
        ConfigError: a fragment larger than any batch may be, batches too large for the papers' means, or a grid whose boxes
            alone exceed the device's memory.
    """
    compute, ks = recipe.compute, len(recipe.kgrid.ks)
    if compute.fragment != "auto" and compute.fragment > plan.n_max:
        raise ConfigError(
            f"compute.fragment={compute.fragment} is larger than a batch may be (n_max {plan.n_max}): "
            "use compute.fragment=auto, or a smaller one"
        )
    if RELATIONS[recipe.relation.name].mean and plan.n_max > EXACT_ROWS:
        raise ConfigError(
            f"relation={recipe.relation.name}: means compare exactly over at most {EXACT_ROWS} rows, and n_max is "
            f"{plan.n_max}: use more batches, or relation=add_remove"
        )
    tensors = 6 + (4 if recipe.training.momentum else 2)  # boxes, sums, directions; buffers: both sides
    need, have = 8 * tensors * parameters * ks, device_memory(compute.device)
    if need > have:
        raise ConfigError(
            f"kgrid: boxes for {ks} values of k over {parameters} parameters need {need / 2**30:.1f} GiB "
            f"and this device has {have / 2**30:.1f} GiB: lower kgrid.max, or split the grid over several runs"
        )


def device_memory(device: str) -> int:
    """The device's whole memory, bytes."""
    if device == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _read(records: Records, dtype: str, part: np.ndarray | slice) -> tuple[Tensor, Tensor]:
    """(features, labels) of some records."""
    return _as_tensor(records.features[part], dtype), _as_tensor(records.labels[part], "int64")


def _as_slice(rows: np.ndarray) -> np.ndarray | slice:
    """The rows as a slice where they are an unbroken run: reading them then copies nothing."""
    if rows[-1] - rows[0] + 1 == len(rows) and (np.diff(rows) == 1).all():
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return rows


def _as_tensor(block: np.ndarray, dtype: str) -> Tensor:
    """``block`` as PyTorch takes it: contiguous, in ``dtype``, at a multiple of 64 bytes as its own tensors are, and a copy
    if it is a read-only file. Never written to. (A product may round otherwise at another address, and where an array lies
    depends on what the process did before.)
    """
    with np.errstate(over="ignore"):  # beyond float32: becomes inf, which the first interval refuses
        ready = np.ascontiguousarray(block, dtype=dtype)
    tensor = torch.from_numpy(ready if ready.flags.writeable else ready.copy())
    return tensor if tensor.data_ptr() % 64 == 0 else tensor.clone()


_STAGE = "stage"


@dataclass
class Stages(Checkpoints):
    """Checkpoints that keep what a training reached at the end of each stage but the last.

    Attributes:
        inner: what a killed run goes on from.
        ends: how many steps were taken at each of those ends (``BatchPlan.ends``).
        reached: the states so far; a training that has nothing to go on from begins at the last of them.
        parts: the same of those that ``part`` gives, by name.
    """

    inner: Checkpoints
    ends: tuple[int, ...]
    reached: tuple[CheckpointState, ...] = ()
    parts: Mapping[str, tuple[CheckpointState, ...]] = field(default_factory=dict)

    def part(self, name: str) -> "Stages":
        return Stages(self.inner.part(name), self.ends, self.parts.get(name, ()))

    def last(self) -> CheckpointState | None:
        state = self.inner.last()
        if state is None:
            return CheckpointState(self.reached[-1].step, apart(self.reached[-1].tensors)) if self.reached else None
        self.reached = tuple(CheckpointState(end, _taken_out(state.tensors, end)) for end in self.ends if end <= state.step)
        return CheckpointState(
            state.step, {name: t for name, t in state.tensors.items() if not name.startswith(f"{_STAGE}/")}
        )

    def offer(self, step: int, tensors: Callable[[], Tensors], last: bool = False) -> None:
        if step in self.ends:
            self.reached = (*self.reached, CheckpointState(step, apart(tensors())))
        self.inner.offer(step, lambda: {**tensors(), **self._packed()}, last)

    def number(self, name: str, draw: Callable[[], int]) -> int:
        return self.inner.number(name, draw)

    def _packed(self) -> Tensors:
        return {f"{_STAGE}/{s.step}/{name}": tensor for s in self.reached for name, tensor in s.tensors.items()}


def _taken_out(tensors: Tensors, end: int) -> Tensors:
    start = f"{_STAGE}/{end}/"
    return {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}


def written(state: CheckpointState) -> bytes:
    """A state as a file."""
    return save(state.tensors, metadata={"step": str(state.step)})


def read_state(content: bytes, step: int) -> CheckpointState:
    """The state after so many steps, from a file that ``written`` made.

    Raises:
        UnsoundError: it is after another number of steps, or a tensor is not finite.
    """
    said, tensors = header_of(content).get("step"), apart(load(content))
    if said != str(step):
        raise UnsoundError(f"a state kept on the way says it is after {said} steps, expected {step}: train again")
    if not all(bool(tensor.isfinite().all()) for tensor in tensors.values()):
        raise UnsoundError(f"the state after {step} steps has a number that is NaN or infinite: train again")
    return CheckpointState(step, tensors)
