"""Features of more rows than memory should hold: read from their file block by block, again for everybody who asks.

What stays in memory of each row is what is known by name (its id, label and subgroups), never its features.
"""

from collections.abc import Callable, Iterable, Iterator
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
            self._again()
        while self._first + len(self._held) < stop:
            try:
                block = next(self._blocks, None)
            except AgtError:
                self._again()  # so that whoever asks next is told the same
                raise
            if block is None:
                raise AgtError(f"inputs: the file changed while it was read: {stop} rows are needed and not there")
            kept = self._held[max(start - self._first, 0) :]
            self._first += len(self._held) - len(kept)
            self._held = np.concatenate([kept, block]) if len(kept) else block
        return self._held[start - self._first : stop - self._first]

    def _again(self) -> None:
        """Begin another pass."""
        self._blocks, self._first, self._held = self._read(), 0, self._held[:0]

    def _at(self, places: np.ndarray) -> np.ndarray:
        parts = [np.empty((0, *self.shape[1:]), self.dtype)]
        for start in range(0, self._rows, ROWS):
            wanted = places[(places >= start) & (places < start + ROWS)]
            parts.append(self[start : start + ROWS][wanted - start])
        return np.concatenate(parts)


class Numbered:
    """The names "0", "1", ... of so many rows, for whoever takes slices of an array [n] str: none of them is held.

    Args:
        rows: how many.
    """

    def __init__(self, rows: int) -> None:
        self.shape, self.dtype = (rows,), np.dtype(str)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        places = np.arange(*rows.indices(len(self))) if isinstance(rows, slice) else rows
        return (np.flatnonzero(places) if places.dtype == bool else places).astype(str)

    def tolist(self) -> list[str]:
        """All of them."""
        return [str(row) for row in range(len(self))]


class Mapped:
    """An array [n, ...] made of another's rows, each on its own: again for everybody who takes some, and never held.

    Args:
        source: [n, ...], such as a memory-mapped file.
        made: some of its rows -> as many rows of this.
    """

    def __init__(self, source: np.ndarray, made: Callable[[np.ndarray], np.ndarray]) -> None:
        self._source, self._made = source, made
        none = made(source[:0])
        self.shape, self.dtype = (len(source), *none.shape[1:]), none.dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        return self._made(self._source[rows])


def as_array(blocks: Blocks | Mapped | Numbered) -> np.ndarray:
    """For whoever takes slices of it, one after the other, and nothing else."""
    return cast(np.ndarray, blocks)


def pieces(features: np.ndarray) -> Iterator[np.ndarray]:
    """[n, ...] in pieces that fit into memory, however many rows there are; at least one."""
    return (features[start : start + ROWS] for start in range(0, len(features) or 1, ROWS))


def gathered(parts: Iterable[np.ndarray], rows: int) -> np.ndarray:
    """[rows, ...] of arrays that follow one another, of which there is at least one.

    Each is copied to its place at once: what is held of many parts between large ones keeps the heap from being used again.
    """
    whole, start = np.empty(0), 0
    for part in parts:
        if not start:
            whole = np.empty((rows, *part.shape[1:]), part.dtype)
        whole[start : start + len(part)] = part
        start += len(part)
    if start != rows:
        raise ValueError(f"{start} rows, and not {rows}")
    return whole


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
