"""Rows of arrays that may be larger than the memory: blocks, memory maps, and walks over their
rows.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, cast

import numpy as np

from agt.errors import AgtError

if TYPE_CHECKING:
    from agt.data.coded import CodedFeatures

ROWS = 2**15
"""Rows of a large file that are held at once."""

CACHED_BYTES = 2**20
"""Bytes of a block of rows that is read soon after it was made, while the cache has it."""

ALIGNMENT_BYTES = 64
"""Where PyTorch's own tensors begin: a product may round otherwise at another alignment."""


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype | str) -> np.ndarray:
    """Return an uninitialised array whose bytes begin at a multiple of ``ALIGNMENT_BYTES``."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    buffer = np.empty(size + ALIGNMENT_BYTES, dtype=np.uint8)
    start = -buffer.ctypes.data % ALIGNMENT_BYTES
    return buffer[start : start + size].view(dtype).reshape(shape)


def row_words(row: int) -> str:
    """How messages name the row with this index among the rows of data: counted from 1, as a
    person counts.
    """
    return f"row {row + 1} of the data"


class Blocks:
    """What models take for an array [n, ...] of more rows than memory should hold: a length, a
    shape, a dtype and slices.

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
            places = np.flatnonzero(rows) if rows.dtype == bool else rows
            none = np.empty((0, *self.shape[1:]), self.dtype)
            return np.concatenate([none, *_of_pieces(as_array(self), places)])
        start, stop, _ = rows.indices(self._rows)
        if start < self._first:
            self._restart()
        while self._first + len(self._held) < stop:
            try:
                block = next(self._blocks, None)
            except AgtError:
                self._restart()  # so that whoever asks next is told the same
                raise
            if block is None:
                raise AgtError(
                    "inputs: the file changed while agt was reading it, and no longer has the "
                    f"{stop} rows that were expected: run the command again"
                )
            kept = self._held[max(start - self._first, 0) :]
            self._first += len(self._held) - len(kept)
            self._held = np.concatenate([kept, block]) if len(kept) else block
        return self._held[start - self._first : stop - self._first]

    def _restart(self) -> None:
        self._blocks, self._first, self._held = self._read(), 0, self._held[:0]


class Mapped:
    """An array [n, ...] made of another's rows, each on its own: again for everybody who takes
    some, and never held.

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


def as_array(blocks: "Blocks | Mapped | CodedFeatures") -> np.ndarray:
    """For whoever takes slices of it, one after the other, and nothing else."""
    return cast(np.ndarray, blocks)


def is_mapped(features: np.ndarray) -> bool:
    """Whether an array is a memory map, or a view of one."""
    owner: object = features
    while isinstance(owner, np.ndarray) and not isinstance(owner, np.memmap):
        owner = owner.base
    return isinstance(owner, np.memmap)


def row_numbers(rows: int) -> np.ndarray:
    """The names "0", "1", ... of so many rows, each made when it is taken."""
    return as_array(Mapped(np.arange(rows), lambda numbers: numbers.astype(str)))


def pieces(features: np.ndarray) -> Iterator[np.ndarray]:
    """[n, ...] in pieces that fit into memory, however many rows there are; at least one."""
    return (features[start : start + ROWS] for start in range(0, len(features) or 1, ROWS))


def array_blocks(features: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the rows of [n, ...] as contiguous arrays of about ``CACHED_BYTES``, one after another.

    Args:
        features: an array, or what can be sliced like one.
    """
    row_bytes = features.dtype.itemsize * math.prod(features.shape[1:])
    block_rows = max(1, CACHED_BYTES // max(1, row_bytes))
    for start in range(0, len(features), block_rows):
        yield np.ascontiguousarray(features[start : start + block_rows])


def gathered(parts: Iterable[np.ndarray], rows: int) -> np.ndarray:
    """[rows, ...] of arrays that follow one another, of which there is at least one.

    Each is copied to its place at once: what is held of many parts between large ones keeps the
    heap from being used again.
    """
    whole, start = np.empty(0), 0
    for part in parts:
        if not start:
            whole = np.empty((rows, *part.shape[1:]), part.dtype)
        whole[start : start + len(part)] = part
        start += len(part)
    if start != rows:
        raise ValueError(
            f"only {start} rows of the data could be read, but {rows} were expected, so the "
            "file may have changed: run the command again"
        )
    return whole


def selected(features: np.ndarray, rows: np.ndarray | range) -> np.ndarray:
    """Some rows of [n, ...], by increasing indices; of ``Blocks`` they are read when they are
    needed, too.
    """
    if len(rows) == len(features):
        return features
    if isinstance(features, np.ndarray) or not len(rows):
        return features[rows]
    return as_array(Blocks(lambda: _of_pieces(features, rows), len(rows)))


def _of_pieces(features: np.ndarray, rows: np.ndarray | range) -> Iterator[np.ndarray]:
    rows = np.asarray(rows)
    for start, piece in zip(range(0, len(features), ROWS), pieces(features), strict=True):
        yield piece[rows[(rows >= start) & (rows < start + ROWS)] - start]


def not_finite(rows: np.ndarray) -> int | None:
    """The index of the first row with a NaN or an infinity; looked for in pieces, as rows may be
    memory-mapped.
    """
    for start in range(0, len(rows), ROWS):
        block = rows[start : start + ROWS]
        finite = np.isfinite(block).reshape(len(block), -1).all(axis=1)
        if not finite.all():
            return start + int(np.argmin(finite))
    return None
