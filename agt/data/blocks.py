"""Features of more rows than memory should hold: read from their file block by block, again for everybody who asks.

What stays in memory of each row is what is known by name (its id, label and subgroups), never its features.
"""

from collections.abc import Callable, Iterator
from typing import cast

import numpy as np

from agt.errors import AgtError

ROWS = 2**15
"""Rows at once."""


class Blocks:
    """What models take for an array [n, ...]: a length, a shape, a dtype and slices.

    Slices that follow one another cost one pass over the file; one that goes back begins another.

    Args:
        read: begins a pass: arrays of rows, one after the other.
        rows: of all of them together.
    """

    def __init__(self, read: Callable[[], Iterator[np.ndarray]], rows: int) -> None:
        self._read, self._rows = read, rows
        self._blocks, self._first = read(), 0
        self._held = next(self._blocks)
        self.shape, self.dtype = (rows, *self._held.shape[1:]), self._held.dtype

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        """The rows of a slice, or of indices in increasing order.

        Raises:
            AgtError: the file has fewer rows than it had.
        """
        if not isinstance(rows, slice):
            return self._at(np.flatnonzero(rows) if rows.dtype == bool else rows)
        start, stop, _ = rows.indices(self._rows)
        if start < self._first:
            self._blocks, self._first = self._read(), 0
            self._held = self._held[:0]
        while self._first + len(self._held) < stop:
            block = next(self._blocks, None)
            if block is None:
                raise AgtError(f"inputs: the file changed while it was read: {stop} rows are needed and not there")
            kept = self._held[max(start - self._first, 0) :]
            self._first += len(self._held) - len(kept)
            self._held = np.concatenate([kept, block]) if len(kept) else block
        return self._held[start - self._first : stop - self._first]

    def _at(self, places: np.ndarray) -> np.ndarray:
        parts = [np.empty((0, *self.shape[1:]), self.dtype)]
        for start in range(0, self._rows, ROWS):
            wanted = places[(places >= start) & (places < start + ROWS)]
            parts.append(self[start : start + ROWS][wanted - start])
        return np.concatenate(parts)


def as_array(blocks: Blocks) -> np.ndarray:
    """For whoever takes slices of it, one after the other, and nothing else."""
    return cast(np.ndarray, blocks)


def pieces(features: np.ndarray) -> Iterator[np.ndarray]:
    """[n, ...] in pieces that fit into memory, however many rows there are; at least one."""
    return (features[start : start + ROWS] for start in range(0, len(features) or 1, ROWS))


def selected(features: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Some rows of [n, ...], by increasing indices; of ``Blocks`` they are read when they are needed, too."""
    if len(rows) == len(features):
        return features
    if isinstance(features, np.ndarray) or not len(rows):
        return features[rows]

    def read() -> Iterator[np.ndarray]:
        for start, piece in zip(range(0, len(features), ROWS), pieces(features), strict=True):
            yield piece[rows[(rows >= start) & (rows < start + ROWS)] - start]

    return as_array(Blocks(read, len(rows)))
