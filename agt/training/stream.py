"""Batches and the grid of k, cut into pieces that fit the working memory.

A fragment is a part of a batch that is processed at once. A group is a slice of the grid of k for
which one pass over a batch selects bounds; it is cut again into slices for which a fragment's
tensors fit.
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

from agt.data.arrays import ALIGNMENT_BYTES, block_slices
from agt.data.records import Records
from agt.distributed import group as processes
from agt.errors import ConfigError
from agt.messages import Message
from agt.relations import RELATIONS
from agt.settings import ComputeConfig
from agt.training.batches import BatchPlan
from agt.training.setup import TrainingSetup
from agt.training.transfer import Accelerator, CudaDevice, StagedRecords

# The largest fragments: on a CPU they should fit its caches; a GPU is faster with few, large ones.
_MAX_FRAGMENT_RECORDS = {"cpu": 1024, "cuda": 8192}
# The memory for selected bounds, as a multiple of the working memory of a fragment.
_SELECTION_MEMORIES = 8
# The number of tensors of a layer's width that exist at once, for one record and one k.
_TENSORS_PER_WIDTH = 12
# The number of tensors of 8-byte numbers for each parameter and k in a step. Four things have a
# lower and an upper side: the bounds before the step, those after it, the sums, and the directions.
_TENSORS_OF_BOUNDS = 8
_TENSORS_OF_MOMENTUM = 2  # the buffers of both sides
_NUMBER_BYTES = 8
_GIB = 2**30


@dataclass(frozen=True)
class Stream:
    """Reads batches of training records in fragments, and cuts the grid of k, to fit the memory.

    All sizes follow from public numbers and settings, never from the content of records. Bounds
    hold however batches and grid are cut (Lemma 6 of docs/proofs/training.md).

    Attributes:
        records: the training records.
        compute: the device, the working memory, and the size of fragments.
        dtype: the type of the features that ``fragments`` yields, "float64" or "float32".
        parameters: the number of scalar parameters of the head.
        numbers_per_record: the numbers that the layers hold for one record, inputs and outputs.
        staged: the records for a GPU; None: records are read from ``records``.
    """

    records: Records
    compute: ComputeConfig
    dtype: str
    parameters: int
    numbers_per_record: int
    staged: StagedRecords | None = None

    @classmethod
    def for_head(
        cls,
        records: Records,
        setup: TrainingSetup,
        point: Mapping[str, Tensor],
        numbers_per_record: int,
        accelerator: Accelerator | None = None,
    ) -> "Stream":
        """Return a stream of records for training a head, with the records copied to a GPU if used.

        Args:
            records: the training records.
            setup: the training setup, of which the device, the memory and the dtype are used.
            point: parameter name -> parameter of the head; only the number of scalars is used.
            numbers_per_record: the numbers that the layers hold for one record, inputs and outputs.
            accelerator: the device to which records are copied. None: the current GPU if the setup
                trains on one, else no copy.
        """
        dtype = setup.training.dtype
        if accelerator is None and setup.compute.device != "cpu":
            accelerator = CudaDevice()
        staged = None
        if accelerator and len(records):
            read = partial(_read, records, dtype)
            staged = StagedRecords.on(accelerator, read, len(records))
        parameters = sum(parameter.numel() for parameter in point.values())
        return cls(records, setup.compute, dtype, parameters, numbers_per_record, staged)

    @property
    def fragment_records(self) -> int:
        """The largest number of records of a fragment (a part of a batch processed at once)."""
        if self.compute.fragment != "auto":
            return self.compute.fragment
        fitting = self._memory_bytes // self._record_bytes
        # Below 16 records the overhead of a fragment would outweigh the work on it.
        return max(16, min(_MAX_FRAGMENT_RECORDS[self.compute.device], fitting))

    def fragments(
        self, rows: np.ndarray, boundary: int = 0
    ) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Yield the fragments of a batch that this process computes, in order.

        If several processes share a training, each computes some of the fragments. How the batch is
        cut does not depend on the number of processes, so the sums have the same bits.

        Args:
            rows: [b] int64, the indices of the batch's records in the order in which they are read.
            boundary: a position in ``rows`` that fragments must not straddle: rows[:boundary] and
                rows[boundary:] are cut separately.

        Yields:
            (slice of ``rows``, features [n, ...], labels [n] int64), on the training's device.
        """
        size = self.fragment_records
        starts_before = range(0, boundary, size)
        starts_after = range(boundary, len(rows), size)
        cuts = sorted({*starts_before, *starts_after, len(rows)})
        pieces = [slice(start, stop) for start, stop in pairwise(cuts)]
        own_pieces = [pieces[index] for index in processes().own_pieces(len(pieces))]
        record_indices = [_as_slice(rows[piece]) for piece in own_pieces]
        if self.staged:  # records for a GPU
            pairs = self.staged.fragments(record_indices)
        else:
            pairs = (_read(self.records, self.dtype, indices) for indices in record_indices)
        for piece, (features, labels) in zip(own_pieces, pairs, strict=True):
            yield piece, features, labels

    def k_groups(
        self, rows_at_stake: list[int], selection_bytes: Callable[[int], int]
    ) -> list[slice]:
        """Cut the grid of k into slices whose selections fit the memory together.

        For some relations a pass over a batch selects, for each parameter and k, the most extreme
        bounds on the records' gradients. Each slice takes a separate pass over every batch.

        Args:
            rows_at_stake: the number of bounds that are selected of each parameter, for each k of
                the grid.
            selection_bytes: returns the bytes in which the kernel stores a given number of selected
                bounds of one scalar parameter.

        Returns:
            Consecutive slices of the grid, with at least one k each.

        Raises:
            ConfigError: the selection for a single k exceeds a GPU's memory.
        """
        device_bytes = device_memory(self.compute.device)
        on_cpu = self.compute.device == "cpu"
        budget = _SELECTION_MEMORIES * self._memory_bytes
        if not on_cpu:
            budget = min(budget, device_bytes // 4)  # records and fragments need the rest
        k_groups = []
        start = 0  # the first k of the current group
        used = 0  # bytes of the current group
        for index, rows in enumerate(rows_at_stake):
            cost = self.parameters * selection_bytes(rows)  # bytes of this k
            # Only a GPU refuses: on a CPU the operating system can swap memory to the disk.
            if cost > device_bytes and not on_cpu:
                raise ConfigError(
                    Message(
                        "{config:kgrid}: this run must store the {rows} most extreme bounds on "
                        "each of {parameters} parameters. They need {needed:.1f} GiB, but this "
                        "device has {available:.1f} GiB: lower {config:kgrid.max}, or train with "
                        "{config:compute=default}",
                        rows=rows,
                        parameters=self.parameters,
                        needed=cost / _GIB,
                        available=device_bytes / _GIB,
                    )
                )
            is_full = used + cost > budget
            if is_full and index > start:  # a group has at least one k
                k_groups.append(slice(start, index))
                start = index
                used = 0
            used += cost
        return [*k_groups, slice(start, len(rows_at_stake))]

    def k_slices(self, k_group: slice) -> list[slice]:
        """Cut a group of k into slices for each of which a fragment's tensors fit the memory.

        Args:
            k_group: a slice of the grid of k.

        Returns:
            Consecutive slices of the grid that make up the group, with at least one k each.
        """
        fragment_bytes = self._record_bytes * self.fragment_records  # of all tensors for one k
        k_count = max(1, self._memory_bytes // fragment_bytes)
        return block_slices(k_group.stop - k_group.start, k_count, k_group.start)

    @property
    def _memory_bytes(self) -> int:
        """The working memory in bytes: as configured, but on a GPU at most a quarter of its own."""
        available = sys.maxsize  # on a CPU the setting is taken as it is
        if self.compute.device == "cuda":
            available = device_memory("cuda") // 4
        return min(self.compute.memory_bytes, available)

    @property
    def _record_bytes(self) -> int:
        """The bytes of all tensors that exist at once for one record and one k."""
        number_bytes = np.dtype(self.dtype).itemsize
        return _TENSORS_PER_WIDTH * number_bytes * self.numbers_per_record


def check_sizes(setup: TrainingSetup, plan: BatchPlan, parameters: int) -> None:
    """Raise ConfigError if the sizes of fragments, batches or bounds do not work together.

    This is called before the first step, so that a long training does not fail later.

    Args:
        setup: the training setup: grid of k, relation, momentum, device and size of fragments.
        plan: the plan of batches.
        parameters: the number of scalar parameters of the head.

    Raises:
        ConfigError: fragments are larger than the largest batch; the relation is not proved for
            batches of this size; or the bounds for the whole grid of k exceed the device's memory.
    """
    _check_fragment_size(setup.compute, plan.n_max)
    RELATIONS[setup.relation.name].check_batch_size(plan.n_max)
    _check_memory_of_bounds(setup, parameters)


def _check_fragment_size(compute: ComputeConfig, n_max: int) -> None:
    """Raise ConfigError if fragments are larger than the largest batch.

    Args:
        compute: the settings, with the records of a fragment (a part of a batch), or "auto".
        n_max: the records of the largest possible batch.
    """
    if compute.fragment != "auto" and compute.fragment > n_max:
        raise ConfigError(
            Message(
                "{config:compute.fragment}={fragment} exceeds the largest possible batch "
                "(n_max={n_max}): use {config:compute.fragment}=auto, or a smaller number",
                fragment=compute.fragment,
                n_max=n_max,
            )
        )


def _check_memory_of_bounds(setup: TrainingSetup, parameters: int) -> None:
    """Raise ConfigError if the bounds for the whole grid of k exceed the device's memory.

    Args:
        setup: the training setup, of which the grid of k, the momentum and the device are read.
        parameters: the number of scalar parameters of the head.
    """
    tensors = _TENSORS_OF_BOUNDS
    if setup.training.momentum:
        tensors += _TENSORS_OF_MOMENTUM
    k_count = len(setup.kgrid.ks)
    needed_bytes = tensors * _NUMBER_BYTES * parameters * k_count
    device_bytes = device_memory(setup.compute.device)
    if needed_bytes > device_bytes:
        raise ConfigError(
            Message(
                "{config:kgrid}: bounds on the weights (boxes) for {ks} values of k and "
                "{parameters} parameters need {needed:.1f} GiB, but this device has "
                "{available:.1f} GiB: lower {config:kgrid.max}, or divide the values of k "
                "among several runs",
                ks=k_count,
                parameters=parameters,
                needed=needed_bytes / _GIB,
                available=device_bytes / _GIB,
            )
        )


def device_memory(device: str) -> int:
    """Return the total memory of a device in bytes, whether it is free or not.

    Args:
        device: "cuda" for the current GPU; any other name for the machine's main memory.
    """
    if device == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _read(records: Records, dtype: str, rows: np.ndarray | slice) -> tuple[Tensor, Tensor]:
    """Return the features and labels of some records as tensors on the CPU.

    Args:
        records: the training records.
        dtype: the type of the features, "float64" or "float32".
        rows: the indices of the records, or a slice.

    Returns:
        (features [n, ...], labels [n] int64).
    """
    features = _as_tensor(records.features[rows], dtype)
    labels = _as_tensor(records.labels[rows], "int64")
    return features, labels


def _as_slice(rows: np.ndarray) -> np.ndarray | slice:
    """Return indices as a slice if they are consecutive, else unchanged.

    Indexing an array with a slice copies nothing.

    Args:
        rows: [b] int64 indices, b at least 1.
    """
    # The first test is cheap, and fails for most rows that are not consecutive.
    may_be_consecutive = rows[-1] - rows[0] + 1 == len(rows)
    if may_be_consecutive and (np.diff(rows) == 1).all():
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return rows


def _as_tensor(array: np.ndarray, dtype: str) -> Tensor:
    """Return an array as a contiguous tensor that is aligned like PyTorch's own tensors.

    A matrix product may round differently at an address of another alignment, and the address of an
    array depends on what the process did before.

    Args:
        array: an array of any shape and type.
        dtype: the NumPy name of the tensor's type.

    Returns:
        A tensor on the CPU. It may share the array's memory, so the caller must not write to it.
    """
    # A number beyond the range of float32 becomes infinite, which the first interval refuses.
    with np.errstate(over="ignore"):
        ready = np.ascontiguousarray(array, dtype=dtype)
    if not ready.flags.writeable:
        ready = ready.copy()  # PyTorch warns about read-only arrays
    tensor = torch.from_numpy(ready)
    is_aligned = tensor.data_ptr() % ALIGNMENT_BYTES == 0
    if is_aligned:
        return tensor
    return tensor.clone()  # PyTorch allocates aligned memory
