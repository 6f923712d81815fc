"""A batch and the grid of k in pieces that fit the working memory.

Records come in fragments. The grid is cut into groups, for each of which one pass over a batch
selects, and a group into parts, for each of which a fragment's tensors fit.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from agt.data.arrays import ALIGNMENT_BYTES
from agt.data.records import Records
from agt.distributed import group as processes
from agt.errors import ConfigError
from agt.messages import Message
from agt.relations import RELATIONS
from agt.settings import ComputeConfig
from agt.training.batches import BatchPlan
from agt.training.setup import TrainingSetup
from agt.training.transfer import Accelerator, CudaDevice, StagedRecords

# A CPU's caches hold no larger fragment, and a GPU wants few launches.
_MAX_FRAGMENT_RECORDS = {"cpu": 1024, "cuda": 8192}
# What a selection keeps may take so many times the working memory of a fragment.
_SELECTION_MEMORIES = 8
# Tensors of one layer's width that are alive at once, for one record and one k.
_TENSORS_PER_WIDTH = 12
_GIB = 2**30


@dataclass(frozen=True)
class Stream:
    """A run's records on their way through memory: a fragment of a batch at a time.

    Every size is public or a setting, so that every step is cut alike. How a step is cut moves no
    bound past its rounding (Lemma 6 of docs/proofs/training.md).

    Attributes:
        records: the training records.
        compute: the memory to use, and the device.
        dtype: of the features that ``fragments`` yields: float64 or float32.
        parameters: how many scalar parameters the head has.
        widths: how many numbers of one record the layers hold, their inputs and outputs together.
        staged: the records on their way to a GPU; None: they are read where they are.
    """

    records: Records
    compute: ComputeConfig
    dtype: str
    parameters: int
    widths: int
    staged: StagedRecords | None = None

    @classmethod
    def for_head(
        cls,
        records: Records,
        setup: TrainingSetup,
        point: Mapping[str, Tensor],
        widths: int,
        accelerator: Accelerator | None = None,
    ) -> "Stream":
        """Return the stream of records through a head.

        Args:
            records: the training records.
            setup: has the memory, the device and the precision.
            point: parameter name -> the head's parameters.
            widths: as in the class.
            accelerator: where the records are copied; None: the GPU if one computes.
        """
        dtype = setup.training.dtype
        if accelerator is None and setup.compute.device != "cpu":
            accelerator = CudaDevice()
        staged = None
        if accelerator and len(records):
            read = partial(_read, records, dtype)
            staged = StagedRecords.on(accelerator, read, len(records))
        parameters = sum(parameter.numel() for parameter in point.values())
        return cls(records, setup.compute, dtype, parameters, widths, staged)

    @property
    def fragment_records(self) -> int:
        """How many records a fragment has, at most."""
        if self.compute.fragment != "auto":
            return self.compute.fragment
        fitting = self._memory_bytes // self._record_bytes
        return max(16, min(_MAX_FRAGMENT_RECORDS[self.compute.device], fitting))

    def fragments(
        self, rows: np.ndarray, boundary: int = 0
    ) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Yield this process's fragments of a batch.

        Fragments are cut as if one process had them all, so a fragment is the same whichever
        process computes it.

        Args:
            rows: [b] int, which records the batch has, in the order in which they are read.
            boundary: no fragment has rows on both sides of ``rows[boundary]``.

        Yields:
            (which of ``rows``, features [n, ...], labels [n]).
        """
        size = self.fragment_records
        before = range(0, boundary, size)
        after = range(boundary, len(rows), size)
        cuts = sorted({*before, *after, len(rows)})
        pieces = [slice(start, stop) for start, stop in pairwise(cuts)]
        own = [pieces[index] for index in processes().mine(len(pieces))]
        selected = [_as_slice(rows[piece]) for piece in own]
        if self.staged:
            pairs = self.staged.fragments(selected)
        else:
            pairs = (_read(self.records, self.dtype, part) for part in selected)
        for piece, (x, y) in zip(own, pairs, strict=True):
            yield piece, x, y

    def groups(
        self, rows_at_stake: list[int], selection_bytes: Callable[[int], int]
    ) -> list[slice]:
        """Return the grid cut into groups, for each of which one pass over a batch selects.

        Args:
            rows_at_stake: [K] how many bounds on each parameter a selection keeps at each k.
            selection_bytes: how many bytes the kernel needs to keep so many, for one parameter.

        Raises:
            ConfigError: what is kept for one k alone exceeds a GPU's memory.
        """
        device_bytes = device_memory(self.compute.device)
        on_cpu = self.compute.device == "cpu"
        budget = _SELECTION_MEMORIES * self._memory_bytes
        if not on_cpu:
            budget = min(budget, device_bytes // 4)
        groups = []
        start = 0
        used = 0
        for index, rows in enumerate(rows_at_stake):
            cost = self.parameters * selection_bytes(rows)
            if cost > device_bytes and not on_cpu:
                raise ConfigError(
                    Message(
                        "{config:kgrid}: storing the {rows} most extreme bounds on each of "
                        "{parameters} parameters, as this relation requires, needs "
                        "{needed:.1f} GiB, but this device has {available:.1f} GiB: lower "
                        "{config:kgrid.max}, or train with {config:compute=default}",
                        rows=rows,
                        parameters=self.parameters,
                        needed=cost / _GIB,
                        available=device_bytes / _GIB,
                    )
                )
            if index > start and used + cost > budget:
                groups.append(slice(start, index))
                start = index
                used = 0
            used += cost
        return [*groups, slice(start, len(rows_at_stake))]

    def parts(self, group: slice) -> list[slice]:
        """Return a group cut into parts of as many k as fit the memory beside a fragment."""
        ks = max(1, self._memory_bytes // (self._record_bytes * self.fragment_records))
        starts = range(group.start, group.stop, ks)
        return [slice(start, min(start + ks, group.stop)) for start in starts]

    @property
    def _memory_bytes(self) -> int:
        """The working memory of a fragment: the setting, on a GPU at most a quarter of all."""
        available = sys.maxsize
        if self.compute.device == "cuda":
            available = device_memory("cuda") // 4
        return min(self.compute.memory_mb * 2**20, available)

    @property
    def _record_bytes(self) -> int:
        """How many bytes one record's tensors take for one k."""
        return _TENSORS_PER_WIDTH * np.dtype(self.dtype).itemsize * self.widths


def check_sizes(setup: TrainingSetup, plan: BatchPlan, parameters: int) -> None:
    """Refuse, before the first step, sizes with which training cannot work.

    Args:
        setup: how to train.
        plan: its batches.
        parameters: how many scalar parameters the head has.

    Raises:
        ConfigError: a fragment is larger than any batch may be, batches are too large for a
            relation that divides by the batch's size, or the boxes for the whole grid exceed the
            device's memory.
    """
    compute = setup.compute
    ks = len(setup.kgrid.ks)
    if compute.fragment != "auto" and compute.fragment > plan.n_max:
        raise ConfigError(
            Message(
                "{config:compute.fragment}={fragment} exceeds the largest possible batch "
                "(n_max {n_max}): use {config:compute.fragment}=auto, or a smaller number",
                fragment=compute.fragment,
                n_max=plan.n_max,
            )
        )
    RELATIONS[setup.relation.name].check_batches(plan.n_max)
    # Boxes, sums and directions, and with momentum buffers: of each a lower and an upper side.
    tensors = 10 if setup.training.momentum else 8
    needed_bytes = 8 * tensors * parameters * ks
    device_bytes = device_memory(compute.device)
    if needed_bytes > device_bytes:
        raise ConfigError(
            Message(
                "{config:kgrid}: boxes for {ks} values of k over {parameters} parameters need "
                "{needed:.1f} GiB, but this device has {available:.1f} GiB: lower "
                "{config:kgrid.max}, or divide the grid among several runs",
                ks=ks,
                parameters=parameters,
                needed=needed_bytes / _GIB,
                available=device_bytes / _GIB,
            )
        )


def device_memory(device: str) -> int:
    """Return how many bytes of memory a device has in all, free or not."""
    if device == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _read(records: Records, dtype: str, part: np.ndarray | slice) -> tuple[Tensor, Tensor]:
    """Return some records' features [n, ...] in ``dtype``, and their labels [n] int64."""
    features = _as_tensor(records.features[part], dtype)
    labels = _as_tensor(records.labels[part], "int64")
    return features, labels


def _as_slice(rows: np.ndarray) -> np.ndarray | slice:
    """Return an unbroken run of rows as a slice, so that reading copies nothing; else the rows."""
    is_long_enough = rows[-1] - rows[0] + 1 == len(rows)
    if is_long_enough and (np.diff(rows) == 1).all():
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return rows


def _as_tensor(array: np.ndarray, dtype: str) -> Tensor:
    """Return an array as a tensor that is contiguous and aligned as PyTorch's own tensors are.

    A product may round otherwise at an address of another alignment, and where an array lies
    depends on what the process did before. The tensor may share the array's memory: nothing writes
    to it. A read-only array is copied, because PyTorch takes none.
    """
    # A number beyond float32 becomes infinite, which the first interval refuses.
    with np.errstate(over="ignore"):
        ready = np.ascontiguousarray(array, dtype=dtype)
    tensor = torch.from_numpy(ready if ready.flags.writeable else ready.copy())
    is_aligned = tensor.data_ptr() % ALIGNMENT_BYTES == 0
    return tensor if is_aligned else tensor.clone()
