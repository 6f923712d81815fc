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
    """Return the name of a row of data in messages; rows are counted from 1.

    Args:
        row: the row's index, from 0.
    """
    return f"row {row + 1} of the data"


class Blocks:
    """Rows of a file that look to models like an array [n, ...], but are read in blocks.

    It has a length, a shape, a dtype and slices, for arrays with more rows than memory should hold.
    Slices that follow one another cost one pass over the file. One that goes back begins another
    pass.

    Args:
        read: begins a pass over the file, and returns its arrays of rows, one after another.
        rows: the number of rows of all of them together.
    """

    def __init__(self, read: Callable[[], Iterator[np.ndarray]], rows: int) -> None:
        """Begin the first pass over the file, and read its first array of rows."""
        self._read = read
        self._row_count = rows
        self._blocks = read()
        # The rows that are in memory, of which the first has this index in the file.
        self._held_rows = next(self._blocks)
        self._first_held = 0
        self.shape = (rows, *self._held_rows.shape[1:])
        self.dtype = self._held_rows.dtype

    def __len__(self) -> int:
        return self._row_count

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        """Return the rows of a slice, or of indices in increasing order or [n] bool.

        Raises:
            AgtError: the file has fewer rows than it had.
        """
        if not isinstance(rows, slice):
            indices = np.flatnonzero(rows) if rows.dtype == bool else rows
            no_rows = np.empty((0, *self.shape[1:]), self.dtype)
            return np.concatenate([no_rows, *_selected_by_piece(as_array(self), indices)])
        start, stop, _ = rows.indices(self._row_count)
        if start < self._first_held:
            self._restart()
        while self._first_held + len(self._held_rows) < stop:
            self._read_block(start, stop)
        return self._held_rows[start - self._first_held : stop - self._first_held]

    def _read_block(self, start: int, stop: int) -> None:
        """Read the next block, and forget the rows in memory that come before ``start``.

        Raises:
            AgtError: there is no further block, though rows before ``stop`` were not read yet.
        """
        try:
            block = next(self._blocks, None)
        except AgtError:
            self._restart()  # so that the next call gets the same error
            raise
        if block is None:
            raise AgtError(
                "inputs: the file changed while agt was reading it, and no longer has the "
                f"{stop} rows that were expected: run the command again"
            )
        still_needed = self._held_rows[max(start - self._first_held, 0) :]
        self._first_held += len(self._held_rows) - len(still_needed)
        self._held_rows = np.concatenate([still_needed, block]) if len(still_needed) else block

    def _restart(self) -> None:
        """Begin another pass over the file, with no rows in memory."""
        self._blocks = self._read()
        self._first_held = 0
        self._held_rows = self._held_rows[:0]


class Mapped:
    """An array [n, ...] whose rows are computed from another array's, whenever they are asked for.

    Args:
        source: [n, ...], such as a memory-mapped file.
        compute: [m, ...] some rows of ``source`` -> [m, ...] as many rows of this array. Each row
            must depend on its own row alone.
    """

    def __init__(self, source: np.ndarray, compute: Callable[[np.ndarray], np.ndarray]) -> None:
        self._source = source
        self._compute = compute
        no_rows = compute(source[:0])
        self.shape = (len(source), *no_rows.shape[1:])
        self.dtype = no_rows.dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        return self._compute(self._source[rows])


def as_array(blocks: "Blocks | Mapped | CodedFeatures") -> np.ndarray:
    """Return the same object under NumPy's type, for code that only takes slices in their order."""
    return cast(np.ndarray, blocks)


def is_mapped(features: np.ndarray) -> bool:
    """Return whether an array is a memory map, or a view of one."""
    owner: object = features
    while isinstance(owner, np.ndarray) and not isinstance(owner, np.memmap):
        owner = owner.base
    return isinstance(owner, np.memmap)


def row_numbers(rows: int) -> np.ndarray:
    """Return the names "0", "1", ... of a number of rows, each made when it is asked for."""
    return as_array(Mapped(np.arange(rows), lambda numbers: numbers.astype(str)))


def pieces(features: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the rows of [n, ...] in pieces of ``ROWS``: at least one, which may be empty."""
    return (features[rows] for rows in block_slices(len(features) or 1, ROWS))


def block_slices(count: int, block_size: int, start: int = 0) -> list[slice]:
    """Return slices that divide consecutive indices into blocks.

    Args:
        count: the number of indices; 0 returns no slices.
        block_size: the number of indices of a block. The last block may be shorter.
        start: the first index.
    """
    stop = start + count
    firsts = range(start, stop, block_size)
    return [slice(first, min(first + block_size, stop)) for first in firsts]


def rows_in(block_bytes: int, row_bytes: int) -> int:
    """Return the number of rows of ``row_bytes`` bytes that fit into a block, at least 1."""
    return max(1, block_bytes // max(1, row_bytes))


def array_blocks(features: np.ndarray, block_bytes: int = CACHED_BYTES) -> Iterator[np.ndarray]:
    """Yield the rows of [n, ...] as contiguous arrays of about equal size, one after another.

    Args:
        features: an array, or what can be sliced like one.
        block_bytes: about how many bytes each has; at least one row.
    """
    block_rows = rows_in(block_bytes, features.dtype.itemsize * math.prod(features.shape[1:]))
    for rows in block_slices(len(features), block_rows):
        yield np.ascontiguousarray(features[rows])


def gathered(parts: Iterable[np.ndarray], rows: int) -> np.ndarray:
    """Return arrays that follow one another, joined to one array [rows, ...].

    Each is copied into the result before the next is computed: many small arrays that stay in
    memory between large ones would prevent that freed memory is used again.

    Args:
        parts: the arrays, at least one.
        rows: the number of rows of all of them together.

    Raises:
        ValueError: there are fewer or more rows.
    """
    joined = np.empty(0)
    start = 0
    for part in parts:
        if not start:
            joined = np.empty((rows, *part.shape[1:]), part.dtype)
        joined[start : start + len(part)] = part
        start += len(part)
    if start != rows:
        raise ValueError(
            f"only {start} rows of the data could be read, but {rows} were expected, so the "
            "file may have changed: run the command again"
        )
    return joined


def selected(features: np.ndarray, rows: np.ndarray | range) -> np.ndarray:
    """Return some rows of [n, ...]; of ``Blocks`` they are read when they are needed, too.

    Args:
        features: an array or ``Blocks``.
        rows: increasing indices.
    """
    if len(rows) == len(features):
        return features
    if isinstance(features, np.ndarray) or not len(rows):
        return features[rows]
    return as_array(Blocks(lambda: _selected_by_piece(features, rows), len(rows)))


def _selected_by_piece(features: np.ndarray, rows: np.ndarray | range) -> Iterator[np.ndarray]:
    """Yield the selected rows of an array [n, ...], for each of its ``pieces`` in turn.

    Args:
        features: an array or ``Blocks``.
        rows: increasing indices.
    """
    rows = np.asarray(rows)
    for start, piece in zip(range(0, len(features), ROWS), pieces(features), strict=True):
        is_in_piece = (rows >= start) & (rows < start + ROWS)
        yield piece[rows[is_in_piece] - start]


def not_finite(rows: np.ndarray) -> int | None:
    """Return the index of the first row with a NaN or an infinity; None if there is none.

    Args:
        rows: [n, ...]. They are read in pieces, because they may be memory-mapped.
    """
    for piece in block_slices(len(rows), ROWS):
        block = rows[piece]
        is_finite = np.isfinite(block).reshape(len(block), -1).all(axis=1)
        if not is_finite.all():
            return piece.start + int(np.argmin(is_finite))
    return None
