"""Records and the grid of k in pieces that fit the working memory.

How they are cut moves no bound past its rounding.
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

from agt.data.records import Records
from agt.distributed import group
from agt.errors import ConfigError
from agt.messages import Message
from agt.relations import RELATIONS
from agt.settings import ComputeConfig
from agt.training.batches import BatchPlan
from agt.training.recipe import Recipe
from agt.training.transfer import Card, Cuda, Staged

# records of a fragment: a CPU's caches take no more, and a GPU wants few launches
_MOST = {"cpu": 1024, "cuda": 8192}

_SELECTION = 8  # what a selection keeps may take this many times the working memory of a fragment


@dataclass(frozen=True)
class Stream:
    """A run's records on their way through memory: a fragment of a batch at a time, for a part of
    the grid at a time.

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
        cls,
        records: Records,
        recipe: Recipe,
        point: Mapping[str, Tensor],
        widths: int,
        card: Card | None = None,
    ) -> "Stream":
        """For a head with these parameters; ``card``: where its records go, by default the GPU
        if one computes.
        """
        sizes = (
            recipe.compute,
            recipe.training.dtype,
            sum(p.numel() for p in point.values()),
            widths,
        )
        if card is None and recipe.compute.device != "cpu":
            card = Cuda()
        staged = (
            Staged(card, partial(_read, records, recipe.training.dtype), len(records))
            if card and len(records)
            else None
        )
        return cls(records, *sizes, staged)

    @property
    def fragment(self) -> int:
        """Records at a time."""
        if self.compute.fragment != "auto":
            return self.compute.fragment
        return max(16, min(_MOST[self.compute.device], self._memory // self._record_bytes))

    def fragments(
        self, rows: np.ndarray, boundary: int = 0
    ) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """(which of ``rows``, features [n, ...], labels [n]) of this process's fragments of a
        batch.

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
        for piece, (x, y) in zip(
            mine, self.staged.fragments(parts) if self.staged else map(read, parts), strict=True
        ):
            yield piece, x, y

    def groups(self, stakes: list[int], selection_bytes: Callable[[int], int]) -> list[slice]:
        """The grid cut into groups that one pass over a batch can select for.

        Args:
            stakes: [K] rows at stake at each k: what a selection keeps of every parameter.
            selection_bytes: how much the kernel needs to keep so many, for each parameter.

        Raises:
            ConfigError: what one k keeps exceeds a GPU's memory.
        """
        groups, start, used, have = [], 0, 0, device_memory(self.compute.device)
        most = (
            _SELECTION * self._memory
            if self.compute.device == "cpu"
            else min(_SELECTION * self._memory, have // 4)
        )
        for index, rows in enumerate(stakes):
            cost = self.parameters * selection_bytes(rows)
            if cost > have and self.compute.device != "cpu":
                raise ConfigError(
                    Message(
                        "{config:kgrid}: the {rows} most extreme bounds on each of {parameters} "
                        "parameters, which this relation keeps, need {needed:.1f} GiB and "
                        "this device has {available:.1f} GiB: lower {config:kgrid.max}, or "
                        "train with {config:compute=default}",
                        rows=rows,
                        parameters=self.parameters,
                        needed=cost / 2**30,
                        available=have / 2**30,
                    )
                )
            if index > start and used + cost > most:
                groups.append(slice(start, index))
                start, used = index, 0
            used += cost
        return [*groups, slice(start, len(stakes))]

    def parts(self, group: slice) -> list[slice]:
        """A group cut into as many k as fit the memory beside a fragment."""
        size = max(1, self._memory // (self._record_bytes * self.fragment))
        return [
            slice(start, min(start + size, group.stop))
            for start in range(group.start, group.stop, size)
        ]

    @property
    def _memory(self) -> int:
        most = device_memory("cuda") // 4 if self.compute.device == "cuda" else sys.maxsize
        return min(self.compute.memory_mb * 2**20, most)

    @property
    def _record_bytes(self) -> int:
        """Bytes of one record's tensors for one k: about a dozen of each layer's width are alive
        at once.
        """
        return 12 * np.dtype(self.dtype).itemsize * self.widths


def check_sizes(recipe: Recipe, plan: BatchPlan, parameters: int) -> None:
    """Refuse what cannot work before the first step.

    Raises:
        ConfigError: a fragment larger than any batch may be, batches too large for the papers'
            means, or a grid whose boxes alone exceed the device's memory.
    """
    compute, ks = recipe.compute, len(recipe.kgrid.ks)
    if compute.fragment != "auto" and compute.fragment > plan.n_max:
        raise ConfigError(
            Message(
                "{config:compute.fragment}={fragment} is larger than a batch may be (n_max "
                "{n_max}): use {config:compute.fragment}=auto, or a smaller one",
                fragment=compute.fragment,
                n_max=plan.n_max,
            )
        )
    RELATIONS[recipe.relation.name].check_batches(plan.n_max)
    # boxes, sums, directions; buffers: both sides
    tensors = 6 + (4 if recipe.training.momentum else 2)
    need, have = 8 * tensors * parameters * ks, device_memory(compute.device)
    if need > have:
        raise ConfigError(
            Message(
                "{config:kgrid}: boxes for {ks} values of k over {parameters} parameters need "
                "{needed:.1f} GiB and this device has {available:.1f} GiB: lower "
                "{config:kgrid.max}, or split the grid over several runs",
                ks=ks,
                parameters=parameters,
                needed=need / 2**30,
                available=have / 2**30,
            )
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
    """``block`` as PyTorch takes it: contiguous, in ``dtype``, at a multiple of 64 bytes as its own
    tensors are, and a copy if it is a read-only file. Never written to. (A product may round
    otherwise at another address, and where an array lies depends on what the process did before.)
    """
    # beyond float32: becomes inf, which the first interval refuses
    with np.errstate(over="ignore"):
        ready = np.ascontiguousarray(block, dtype=dtype)
    tensor = torch.from_numpy(ready if ready.flags.writeable else ready.copy())
    return tensor if tensor.data_ptr() % 64 == 0 else tensor.clone()
