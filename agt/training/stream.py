"""Records and the grid of k in pieces that fit the working memory. How they are cut moves no bound past its rounding."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from agt.data.dataset import Records
from agt.errors import ConfigError
from agt.relations import EXACT_ROWS, RELATIONS
from agt.settings import ComputeConfig
from agt.training.batches import BatchPlan
from agt.training.recipe import Recipe

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
        widths: the sum of all layers' inputs and outputs.
    """

    records: Records
    compute: ComputeConfig
    dtype: str
    parameters: int
    widths: int

    @classmethod
    def of(cls, records: Records, recipe: Recipe, point: Mapping[str, Tensor]) -> "Stream":
        """For a head with these parameters."""
        widths = sum(sum(p.shape) for p in point.values() if p.dim() == 2)
        return cls(records, recipe.compute, recipe.training.dtype, sum(p.numel() for p in point.values()), widths)

    @property
    def fragment(self) -> int:
        """Records at a time."""
        if self.compute.fragment != "auto":
            return self.compute.fragment
        return max(16, min(1024, self._memory // self._record_bytes))

    def fragments(self, rows: np.ndarray, boundary: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """(features [n, ...], labels [n]) of the records at ``rows``; no fragment straddles the ``boundary``-th of them."""
        size = self.fragment
        cuts = sorted({*range(0, boundary, size), *range(boundary, len(rows), size), len(rows)})
        for start, stop in pairwise(cuts):
            part = _as_slice(rows[start:stop])
            x = _as_tensor(self.records.features[part], self.dtype)
            yield x.to(self.compute.device), _as_tensor(self.records.labels[part], "int64").to(self.compute.device)

    def groups(self, stakes: list[int]) -> list[slice]:
        """The grid cut into groups that one pass over a batch can select for.

        Args:
            stakes: [K] rows at stake at each k: what a selection keeps of every parameter.
        """
        groups, start, used = [], 0, 0
        for index, rows in enumerate(stakes):
            cost = 16 * self.parameters * (rows + 1)
            if index > start and used + cost > _SELECTION * self._memory:
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
        return self.compute.memory_mb * 2**20

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
