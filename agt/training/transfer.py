"""How records reach a GPU: all of them once where they fit, else one fragment ahead of its use.

A fragment has the same numbers at an address of the same alignment either way, so that neither way
changes a bit: which of them is taken depends on what else the GPU's memory holds.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from agt.data.arrays import ALIGNMENT_BYTES

# The share of a GPU's free memory that records may take: boxes, selections and fragments need the
# rest.
RESIDENT_SHARE = 0.5

_COPY_RECORDS = 1 << 16  # records that are copied to the device at once

Part = np.ndarray | slice
"""Which records: their indices, or an unbroken run."""

Pair = tuple[Tensor, Tensor]
"""Features [n, ...] and labels [n]."""

ReadPart = Callable[[Part], Pair]
"""Reads some records on the host."""


class Accelerator(Protocol):
    """A device with a memory of its own, such as a GPU."""

    def free_bytes(self) -> int:
        """Return how much memory is free."""

    def copy(self, tensor: Tensor) -> Tensor:
        """Return a copy of a host's tensor on the device."""

    def send(self, pair: Pair) -> Callable[[], Pair]:
        """Begin to copy a pair to the device.

        Returns:
            What waits until the pair is there and returns it; the thread that uses the pair calls
            it.
        """


class CudaDevice:
    """The current CUDA device; ``send`` copies through pinned memory on a stream of its own."""

    def __init__(self) -> None:
        self.device = torch.device("cuda", torch.cuda.current_device())
        self._copying = torch.cuda.Stream(self.device)

    def free_bytes(self) -> int:
        """Return how much memory is free, with what PyTorch has reserved and does not use."""
        reserved = torch.cuda.memory_reserved(self.device)
        unused = reserved - torch.cuda.memory_allocated(self.device)
        free, _ = torch.cuda.mem_get_info(self.device)
        return free + unused

    def copy(self, tensor: Tensor) -> Tensor:
        """Return a copy on the device."""
        return tensor.to(self.device)

    def send(self, pair: Pair) -> Callable[[], Pair]:
        """Begin to copy a pair to the device; see ``Accelerator.send``."""
        # The stream is chosen in here because each thread has a current stream of its own.
        with torch.cuda.stream(self._copying):
            x, y = (tensor.pin_memory().to(self.device, non_blocking=True) for tensor in pair)
            copied = self._copying.record_event()

        def wait() -> Pair:
            computing = torch.cuda.current_stream(self.device)
            computing.wait_event(copied)
            for tensor in (x, y):
                # Without this its memory would be given away while it is computed with.
                tensor.record_stream(computing)
            return x, y

        return wait


@dataclass(frozen=True)
class StagedRecords:
    """Records that a device computes with.

    Attributes:
        accelerator: the device.
        read: reads some of the records on the host, as fragments are to be.
        resident: all records on the device; None: they do not fit, and are sent in fragments.
    """

    accelerator: Accelerator
    read: ReadPart
    resident: Pair | None

    @classmethod
    def on(cls, accelerator: Accelerator, read: ReadPart, rows: int) -> "StagedRecords":
        """Copy all records to a device if they fit in ``RESIDENT_SHARE`` of its free memory.

        Args:
            accelerator: the device.
            read: reads some of the records on the host.
            rows: how many records there are, at least one.
        """
        first = read(slice(0, 1))
        record_bytes = sum(tensor.numel() * tensor.element_size() for tensor in first)
        resident = None
        if rows * record_bytes <= RESIDENT_SHARE * accelerator.free_bytes():
            resident = _copy_all(accelerator, read, rows, first)
        return cls(accelerator, read, resident)

    def fragments(self, parts: Iterable[Part]) -> Iterator[Pair]:
        """Return an iterator over parts of the records, on the device."""
        if self.resident is None:
            return prefetch(parts, lambda part: self.accelerator.send(self.read(part)))
        return map(self._resident_part, parts)

    def _resident_part(self, part: Part) -> Pair:
        """Return some of the records that are on the device, aligned as a tensor of its own is."""
        assert self.resident is not None
        index: Part | Tensor = part
        if not isinstance(part, slice):
            index = self.accelerator.copy(torch.from_numpy(part))
        x, y = (tensor[index] for tensor in self.resident)
        is_aligned = x.data_ptr() % ALIGNMENT_BYTES == 0
        return x if is_aligned else x.clone(), y


def _copy_all(accelerator: Accelerator, read: ReadPart, rows: int, first: Pair) -> Pair:
    """Return all records on the device, copied ``_COPY_RECORDS`` at a time.

    Args:
        accelerator: the device.
        read: reads some of the records on the host.
        rows: how many records there are.
        first: the first record, whose shapes and types the others have.
    """
    x, y = (accelerator.copy(tensor).new_empty((rows, *tensor.shape[1:])) for tensor in first)
    for start in range(0, rows, _COPY_RECORDS):
        chunk = slice(start, min(start + _COPY_RECORDS, rows))
        features, labels = read(chunk)
        x[chunk] = accelerator.copy(features)
        y[chunk] = accelerator.copy(labels)
    return x, y


def prefetch(parts: Iterable[Part], send: Callable[[Part], Callable[[], Pair]]) -> Iterator[Pair]:
    """Yield each part as it was sent; a thread reads and sends the next one while it is used.

    Args:
        parts: which records, in order.
        send: begins to copy a part to the device, as ``Accelerator.send`` does; where it raises,
            its error is raised when the part would be yielded.
    """
    with ThreadPoolExecutor(1) as worker:
        waiting: Future[Callable[[], Pair]] | None = None
        for part in parts:
            sending = worker.submit(send, part)
            if waiting is not None:
                yield waiting.result()()
            waiting = sending
        if waiting is not None:
            yield waiting.result()()
