"""Features of many records that take few values in each column, held as small codes.

A table's column of 20 bins is up to 41 numbers of each row, but one of 43 codes. Codes of a byte
need a hundredth of the memory, and numbers are looked up for the rows that somebody asks for.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.lib.mixins import NDArrayOperatorsMixin

from agt.data.arrays import aligned_empty, block_slices

MAX_LEVELS = 256  # of a code: one byte
DIGEST_BYTES = 16  # of the digest of look-ups
LOOKUP_BLOCK_ROWS = 1024  # rows that are looked up at once


@dataclass(frozen=True)
class Lookup:
    """Some of a row's features, which one code of the row decides.

    Attributes:
        column: the index of the code that is looked up.
        levels: [m, w]; row v has the w features for the value v of the code, from 0 to m - 1.
    """

    column: int
    levels: np.ndarray

    @cached_property
    def magnitude_classes(self) -> np.ndarray:
        """The number of an equivalence class for each level (value of the code).

        Returns:
            [m] int64. Two levels have the same number if and only if the absolute values of their
            nonzero features are the same, in the same order. A level with a NaN shares its number
            with no other level.
        """
        classes = np.empty(len(self.levels), dtype=np.int64)
        firsts: list[np.ndarray] = []
        for level, row in enumerate(self.levels):
            magnitudes = np.abs(row[row != 0])
            for known_class, first in enumerate(firsts):
                if np.array_equal(magnitudes, first):
                    classes[level] = known_class
                    break
            else:
                classes[level] = len(firsts)
                firsts.append(magnitudes)
        return classes


@dataclass(frozen=True)
class LookupGroup:
    """Neighbouring look-ups of equally many features, done in one step.

    Attributes:
        columns: the index of the code of a row that each look-up reads.
        first_levels: [c] the index of each look-up's first level in ``levels``.
        levels: [m, w] the levels of all look-ups.
        features: the slice of a row that has their features.
    """

    columns: list[int]
    first_levels: np.ndarray
    levels: np.ndarray
    features: slice


@dataclass(frozen=True)
class RowLookup:
    """The look-ups that turn a row of codes into a row of features.

    Attributes:
        lookups: their features make up a row, one after another in this order; at least one
            look-up, all of one dtype.
    """

    lookups: tuple[Lookup, ...]

    @cached_property
    def width(self) -> int:
        """The number of features of a row."""
        return sum(lookup.levels.shape[1] for lookup in self.lookups)

    @property
    def dtype(self) -> np.dtype:
        """The type of the features."""
        return self.lookups[0].levels.dtype

    @cached_property
    def groups(self) -> tuple[LookupGroup, ...]:
        """The look-ups, in groups of neighbours with equally many features."""
        groups = []
        start = 0
        for width, neighbours in groupby(self.lookups, lambda lookup: lookup.levels.shape[1]):
            lookups = [*neighbours]
            counts = [len(lookup.levels) for lookup in lookups]
            stop = start + width * len(lookups)
            group = LookupGroup(
                columns=[lookup.column for lookup in lookups],
                first_levels=np.cumsum([0, *counts[:-1]]),
                levels=np.concatenate([lookup.levels for lookup in lookups]),
                features=slice(start, stop),
            )
            groups.append(group)
            start = stop
        return tuple(groups)

    @cached_property
    def digest(self) -> bytes:
        """A hash of all look-ups: which codes they read, and the features of each code.

        With the same digest, the same codes become the same features.
        """
        h = blake2b(digest_size=DIGEST_BYTES)
        for lookup in self.lookups:
            levels = lookup.levels
            h.update(f"{lookup.column} {levels.shape} {levels.dtype.str}\n".encode())
            h.update(levels.tobytes())
        return h.digest()

    def coded(self, features: np.ndarray) -> "CodedFeatures | None":
        """Return features as codes that these look-ups turn into the same features.

        Each code is the first value (level) of its look-up with these features. So it is the code
        from which a row was made, unless two levels of a look-up have the same features.

        Args:
            features: [n, ...], an array.

        Returns:
            Features with the same bits; None: no codes give these bits.
        """
        if features.shape[1:] != (self.width,) or features.dtype != self.dtype:
            return None
        columns = 1 + max(lookup.column for lookup in self.lookups)
        codes = np.zeros((len(features), columns), dtype=np.uint8)
        coded_columns = set()
        start = 0
        for lookup in self.lookups:
            stop = start + lookup.levels.shape[1]
            if lookup.column not in coded_columns:
                level = pc.index_in(_as_bytes(features[:, start:stop]), _as_bytes(lookup.levels))
                if level.null_count:
                    return None
                codes[:, lookup.column] = level.to_numpy()
                coded_columns.add(lookup.column)
            start = stop
        coded = CodedFeatures(codes, self)
        # A column may have several look-ups, and only the first one decided its code.
        for rows in block_slices(len(codes), LOOKUP_BLOCK_ROWS):
            if self.features(codes[rows]).tobytes() != features[rows].tobytes():
                return None
        return coded

    def features(self, codes: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Return the features of rows, [n, width]; the array begins at a multiple of 64 bytes.

        Args:
            codes: [n, columns] uint8, each below the number of levels of its look-ups.
            out: a contiguous array that is filled and returned; None: a new one.
        """
        features = aligned_empty((len(codes), self.width), self.dtype) if out is None else out
        for rows in block_slices(len(codes), LOOKUP_BLOCK_ROWS):
            for group in self.groups:
                row_codes = codes[rows].take(group.columns, axis=1)
                level_indices = (row_codes + group.first_levels).ravel()
                if len(self.groups) == 1:
                    # Written into the result directly. NumPy needs no copy for that in the mode
                    # "wrap", which has no other effect, because all indices are valid.
                    looked_up = features[rows].reshape(len(level_indices), -1)
                    group.levels.take(level_indices, axis=0, out=looked_up, mode="wrap")
                else:
                    looked_up = group.levels.take(level_indices, axis=0)
                    features[rows, group.features] = looked_up.reshape(len(codes[rows]), -1)
        return features


def _as_bytes(rows: np.ndarray) -> pa.Array:
    """Return the bytes of each row of an array, [n] values of one length, which is at least 1."""
    size = rows.shape[1] * rows.itemsize
    content = pa.py_buffer(np.ascontiguousarray(rows))
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(size), len(rows), [None, content])


class CodedFeatures(NDArrayOperatorsMixin):
    """Features [n, width] that behave like an array, but store each row as a few codes.

    A slice, mask or array of row numbers gives coded features again. Everything else is done with
    the array that ``np.asarray`` looks up: operators, functions of NumPy and methods of arrays. A
    row's numbers are a function of its own codes and of the look-ups. They cannot be changed:
    writing raises TypeError or ValueError, as it does in a read-only array.

    Attributes:
        codes: [n, columns] uint8, the codes of each row.
        lookup: the tables that turn codes into features.
        shape: (n, width).
        dtype: the dtype of the features.
    """

    ndim = 2

    def __init__(self, codes: np.ndarray, lookup: RowLookup) -> None:
        """Store codes, with the tables that turn them into features.

        Args:
            codes: [n, columns] uint8, each below the number of levels of its look-ups.
            lookup: the tables that turn codes into features.
        """
        self.codes = codes
        self.lookup = lookup
        self.shape = (len(codes), lookup.width)
        self.dtype = lookup.dtype

    @property
    def itemsize(self) -> int:
        """The bytes of one feature."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """The bytes of the array that ``np.asarray`` returns."""
        return self.shape[0] * self.shape[1] * self.itemsize

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, index: Any) -> Any:
        """Return the features of some rows, coded as well; or what the array has at an index."""
        if isinstance(index, slice) or (isinstance(index, np.ndarray) and index.ndim == 1):
            return CodedFeatures(self.codes[index], self.lookup)
        if isinstance(index, int | np.integer):
            return self.lookup.features(self.codes[index][None])[0]
        return np.asarray(self)[index]

    def __getattr__(self, name: str) -> Any:
        """Return another attribute or method of the array, such as ``reshape``."""
        if name.startswith("_"):  # which NumPy, copy and pickle look for, and do not need
            raise AttributeError(name)
        array = np.asarray(self)
        # A method that writes would only change this array, which nobody keeps.
        array.flags.writeable = False
        return getattr(array, name)

    def __array__(self, dtype: np.dtype | None = None, copy: bool | None = None) -> np.ndarray:
        """Return all features as a new array, [n, width].

        Args:
            dtype: the dtype of the result; None: the features' own.
            copy: False is refused, because there is no array that could be shared.
        """
        if copy is False:
            raise ValueError(
                "these features are stored as codes, so np.asarray needs a copy: call it "
                "without copy=False"
            )
        features = self.lookup.features(self.codes)
        return features if dtype is None else features.astype(dtype, copy=False)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """Apply a function of NumPy, or an operator, to the array; it cannot be the output."""
        if any(isinstance(x, CodedFeatures) for x in options.get("out", ())):
            return NotImplemented
        arrays = [np.asarray(x) if isinstance(x, CodedFeatures) else x for x in inputs]
        return getattr(ufunc, method)(*arrays, **options)

    @cached_property
    def _levels_used(self) -> tuple[np.ndarray, ...]:
        """For each look-up, the values of its code that occur in some row, in increasing order.

        It is computed once.
        """
        counts = [
            np.bincount(self.codes[:, column], minlength=MAX_LEVELS)
            for column in range(self.codes.shape[1])
        ]
        return tuple(np.flatnonzero(counts[lookup.column]) for lookup in self.lookup.lookups)

    def not_finite(self) -> int | None:
        """Return the index of the first row with a NaN or an infinity; None: all are finite."""
        is_bad = np.zeros(len(self), dtype=bool)
        for lookup in self.lookup.lookups:
            level_is_bad = ~np.isfinite(lookup.levels).all(axis=1)
            if level_is_bad.any():
                is_bad |= level_is_bad[self.codes[:, lookup.column]]
        return int(np.argmax(is_bad)) if is_bad.any() else None

    def with_rows_changed(
        self, change: Callable[[np.ndarray], np.ndarray]
    ) -> "CodedFeatures | None":
        """Return the results of a function of rows, held as the same codes, if that is possible.

        Formal guarantees
            * The result has the bits of ``change(np.asarray(self))``.
            * It is None unless in every look-up the levels that occur have the same numbers in the
              same order, zeros and signs aside.

        Args:
            change: rows [m, width] -> [m, width + c]. Of a row's result, each of the first
                ``width`` numbers must be a function of the number at the same index and of the
                row's absolute values other than 0 in their order; each of the last c numbers must
                be a function of those absolute values alone.

        Returns:
            Features [n, width + c]; None: the levels differ in more than zeros and signs, or there
            are no rows.
        """
        if not len(self):
            return None
        occurring = self._levels_used
        for lookup, levels in zip(self.lookup.lookups, occurring, strict=True):
            classes = lookup.magnitude_classes[levels]
            if (classes != classes[0]).any():
                return None
        # By the condition above, all rows have the same absolute values other than 0. So the result
        # of a level is the same in every row, and one row of each level is enough to learn it.
        sample = np.empty((max(map(len, occurring)), self.shape[1]), dtype=self.dtype)
        slices = []
        start = 0
        for lookup, levels in zip(self.lookup.lookups, occurring, strict=True):
            features = slice(start, start + lookup.levels.shape[1])
            # A look-up with fewer levels repeats its last one.
            sampled = levels[np.minimum(np.arange(len(sample)), len(levels) - 1)]
            sample[:, features] = lookup.levels[sampled]
            slices.append(features)
            start = features.stop
        changed = change(sample)
        lookups = []
        for lookup, levels, features in zip(self.lookup.lookups, occurring, slices, strict=True):
            # A level that does not occur is NaN, which every later check refuses.
            new_levels = np.full(lookup.levels.shape, np.nan, dtype=changed.dtype)
            new_levels[levels] = changed[: len(levels), features]
            lookups.append(Lookup(lookup.column, new_levels))
        added = changed[:1, start:]
        if added.shape[1]:
            first = self.lookup.lookups[0]
            lookups.append(Lookup(first.column, np.repeat(added, len(first.levels), axis=0)))
        return CodedFeatures(self.codes, RowLookup(tuple(lookups)))

    def dot(self, weights: np.ndarray) -> np.ndarray:
        """Return the dot products of all rows with some vectors, from the codes.

        The product of each level and its weights is computed once, and each row adds up the
        products of its levels. So the result is that of ``np.asarray(self) @ weights.T``, but
        rounded differently, because the terms are added in another order.

        Args:
            weights: [J, width] float64, a vector in each row.

        Returns:
            [n, J] float64.
        """
        products = np.zeros((len(self), len(weights)))
        start = 0
        for lookup in self.lookup.lookups:
            stop = start + lookup.levels.shape[1]
            level_products = lookup.levels.astype(np.float64, copy=False) @ weights[:, start:stop].T
            products += level_products[self.codes[:, lookup.column]]
            start = stop
        return products

    def longest(self) -> np.ndarray:
        """Return an upper bound on the l2 norm of every row, as lengths whose squares add up to it.

        Returns:
            [1, number of look-ups] float64: the length of the longest level of each that occurs.
        """
        lengths = []
        for lookup, used in zip(self.lookup.lookups, self._levels_used, strict=True):
            levels = lookup.levels[used].astype(np.float64)
            lengths.append(np.sqrt((levels * levels).sum(axis=1)).max(initial=0.0))
        return np.array([lengths])
