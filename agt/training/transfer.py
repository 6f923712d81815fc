"""The transfer of records to a GPU: all at once if they fit, else one fragment ahead of its use.

Which way is taken depends on the GPU's free memory. A fragment has the same numbers at an address
of the same alignment in both ways, so that training ends with the same bits.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from agt.data.arrays import ALIGNMENT_BYTES, block_slices

# The share of a GPU's free memory that records may take: boxes, selections and fragments need the
# rest.
RESIDENT_SHARE = 0.5

_COPY_RECORDS = 1 << 16  # the number of records that are copied to the device at once

Part = np.ndarray | slice
"""Some of the records: their indices [n] int64, or a slice if these are consecutive."""

Pair = tuple[Tensor, Tensor]
"""Features [n, ...] and labels [n] of the same records."""

ReadPart = Callable[[Part], Pair]
"""Returns some of the records as tensors in the host's memory."""


class Accelerator(Protocol):
    """A device with its own memory, such as a GPU."""

    def free_bytes(self) -> int:
        """Return the number of bytes of the device's memory that are free."""

    def copy(self, tensor: Tensor) -> Tensor:
        """Return a copy of a tensor from the host's memory on the device."""

    def send(self, pair: Pair) -> Callable[[], Pair]:
        """Start to copy features and labels to the device, without waiting for the end.

        Args:
            pair: (features, labels) in the host's memory.

        Returns:
            A function without arguments that returns the copies when they are ready. Call it from
            the thread that computes with them.
        """


class CudaDevice:
    """The current CUDA device as an ``Accelerator``.

    ``send`` copies through pinned memory on a separate CUDA stream, so that copies run beside
    computations.
    """

    def __init__(self) -> None:
        """Take the current CUDA device, and create a stream for copies."""
        self.device = torch.device("cuda", torch.cuda.current_device())
        self._copying = torch.cuda.Stream(self.device)

    def free_bytes(self) -> int:
        """Return the bytes of GPU memory that PyTorch can still allocate.

        These are the bytes that are free on the GPU, and those that PyTorch has reserved for this
        process but does not use now.
        """
        reserved = torch.cuda.memory_reserved(self.device)
        unused = reserved - torch.cuda.memory_allocated(self.device)
        free, _ = torch.cuda.mem_get_info(self.device)
        return free + unused

    def copy(self, tensor: Tensor) -> Tensor:
        """Return a copy of a tensor from the host's memory on the GPU."""
        return tensor.to(self.device)

    def send(self, pair: Pair) -> Callable[[], Pair]:
        """Start to copy features and labels to the GPU on a separate CUDA stream.

        Args:
            pair: (features, labels) in the host's memory.

        Returns:
            A function without arguments that returns the copies on the GPU. Call it from the
            thread that computes with them: it makes that thread's CUDA stream wait for the copy.
        """
        # The stream is selected here because each thread has a current stream of its own.
        with torch.cuda.stream(self._copying):
            features, labels = (
                tensor.pin_memory().to(self.device, non_blocking=True) for tensor in pair
            )
            copied = self._copying.record_event()  # reached when both copies are finished

        def wait() -> Pair:
            """Let the current stream wait for the copy, and return the copied tensors."""
            computing = torch.cuda.current_stream(self.device)
            computing.wait_event(copied)
            for tensor in (features, labels):
                # The tensors belong to the copying stream. Unless the allocator knows that this
                # stream uses them, too, it may reuse their memory before a computation ends.
                tensor.record_stream(computing)
            return features, labels

        return wait


@dataclass(frozen=True)
class StagedRecords:
    """Records for computations on a device: all of them in its memory, or sent in fragments.

    Attributes:
        accelerator: the device.
        read: returns some of the records as tensors in the host's memory.
        resident: (features, labels) of all records on the device. None: they do not fit, and each
            fragment is sent when it is needed.
    """

    accelerator: Accelerator
    read: ReadPart
    resident: Pair | None

    @classmethod
    def on(cls, accelerator: Accelerator, read: ReadPart, rows: int) -> "StagedRecords":
        """Return records for a device, and copy them there if they fit in half of its free memory.

        Args:
            accelerator: the device.
            read: returns some of the records as tensors in the host's memory.
            rows: the number of records, at least 1.
        """
        first = read(slice(0, 1))  # all records have its shape and types
        record_bytes = sum(tensor.numel() * tensor.element_size() for tensor in first)
        resident = None
        if rows * record_bytes <= RESIDENT_SHARE * accelerator.free_bytes():
            resident = _copy_all(accelerator, read, rows, first)
        return cls(accelerator, read, resident)

    def fragments(self, parts: Iterable[Part]) -> Iterator[Pair]:
        """Return an iterator over the features and labels of parts of the records, on the device.

        Args:
            parts: the parts, each as the indices of its records or as a slice.

        Returns:
            An iterator over (features [n, ...], labels [n]), in the order of the parts.
        """
        if self.resident is None:
            return prefetch(parts, self._send)
        return map(self._resident_part, parts)

    def _send(self, part: Part) -> Callable[[], Pair]:
        """Read some of the records, and start to copy them to the device.

        Args:
            part: the indices of the records, or a slice.

        Returns:
            A function that waits for the copy and returns it.
        """
        return self.accelerator.send(self.read(part))

    def _resident_part(self, part: Part) -> Pair:
        """Return the features and labels of some records out of those stored on the device.

        The features begin at an aligned address, as those of a fragment that was sent do: a matrix
        product may round differently at another alignment.

        Args:
            part: the indices of the records, or a slice.
        """
        assert self.resident is not None, "the records are not stored on the device"
        index: Part | Tensor = part
        if not isinstance(part, slice):
            index = self.accelerator.copy(torch.from_numpy(part))
        all_features, all_labels = self.resident
        features = all_features[index]
        # Indexing with a slice gives a view, which may begin at any address. A clone is aligned.
        if features.data_ptr() % ALIGNMENT_BYTES != 0:
            features = features.clone()
        return features, all_labels[index]


def _copy_all(accelerator: Accelerator, read: ReadPart, rows: int, first: Pair) -> Pair:
    """Return the features and labels of all records on the device.

    The records are read and copied in chunks, so that the host needs no second copy of all.

    Args:
        accelerator: the device.
        read: returns some of the records as tensors in the host's memory.
        rows: the number of records, at least 1.
        first: (features, labels) of one record, whose shapes and types all records have.
    """
    # Tensors for all records on the device, not yet filled, of the types of the first record's.
    all_features, all_labels = (
        accelerator.copy(tensor).new_empty((rows, *tensor.shape[1:])) for tensor in first
    )
    for chunk in block_slices(rows, _COPY_RECORDS):
        features, labels = read(chunk)
        all_features[chunk] = accelerator.copy(features)
        all_labels[chunk] = accelerator.copy(labels)
    return all_features, all_labels


def prefetch(parts: Iterable[Part], send: Callable[[Part], Callable[[], Pair]]) -> Iterator[Pair]:
    """Yield parts of the records from a device, while a thread sends the next part to it.

    Args:
        parts: the parts, each as the indices of its records or as a slice.
        send: reads a part, starts to copy it to the device, and returns a function that waits for
            the copy and returns it. If it raises, the error is raised when the part would be
            yielded.

    Yields:
        (features [n, ...], labels [n]) on the device, in the order of the parts.
    """
    with ThreadPoolExecutor(1) as worker:
        previous: Future[Callable[[], Pair]] | None = None
        for part in parts:
            # The next part is submitted before the previous one is yielded, so that it is sent
            # while the caller computes with the previous one.
            sending = worker.submit(send, part)
            if previous is not None:
                yield _finished_copy(previous)
            previous = sending
        if previous is not None:
            yield _finished_copy(previous)


def _finished_copy(sending: Future[Callable[[], Pair]]) -> Pair:
    """Wait until a thread has sent a part of the records, and return its copy on the device.

    Args:
        sending: the call of ``send`` in the thread; it returns a function that waits for the copy.
    """
    wait_for_copy = sending.result()
    return wait_for_copy()
