"""How records reach a GPU: all of them once, where they fit; else a fragment at a time, the next
one on its way meanwhile.

A fragment is the same numbers at an address of the same alignment either way, so that neither
changes a bit: which of them it is depends on what else the GPU holds, and must not matter.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

# the share of a GPU's free memory that records may take; boxes, selections and fragments have the
# rest
RESIDENT = 0.5

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
        """Send both on their way; what waits for them, from the thread that uses them, and gives
        them there.
        """


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
        # in this thread: which device and stream are current is each thread's own
        with torch.cuda.stream(self._side):
            x, y = (tensor.pin_memory().to(self.device, non_blocking=True) for tensor in pair)
            there = self._side.record_event()

        def received() -> Pair:
            computing = torch.cuda.current_stream(self.device)
            computing.wait_event(there)
            for tensor in (x, y):
                # or its memory would be given away while it is computed with
                tensor.record_stream(computing)
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
