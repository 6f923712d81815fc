"""How rows of numbers and words become rows of features, from public constants.

A number x with public edges e_0 < ... < e_m is clipped to [e_0, e_m] and becomes m - 1 features
(a thermometer code), of which the j-th is +1 / sqrt(m - 1) where x >= e_j and -1 / sqrt(m - 1)
elsewhere, j = 1 .. m - 1. So every number has length 1, as a category's one-hot code has, whatever
its bins; rows of a table without missing values have one length; and the product of two rows falls
linearly with the number of bins between them. Edges are given, or made from a range [low, high]
alone: ``bins`` equal parts, and ``HALVINGS`` halvings of each side toward its number nearest to 0,
so that small balances are distinguished in a range from 0 to a million. A missing number has
features 0 and, where asked, an indicator. Without bins a number is scaled to [-1, 1], and a
missing one is 0.

A category has one feature for each listed value and one for any other; a missing one has features
0 and its indicator.

Crosses: the slots of two columns (bin, value, other) make one name, which is hashed with a public
key to a bucket and a sign. Each pair adds +-sqrt(columns / pairs) to that bucket, so that all pairs
together have the weight of all columns, collisions aside.

Formal guarantees
    A feature is made from its own row and public constants by comparisons, table look-ups and, for
    scaled numbers, elementwise float64 operations, each of which is rounded on its own; pairs are
    added in one fixed order. So a row has the same bits whatever other rows are coded with it,
    as condition b of a privacy guarantee requires (each record is processed by itself; reference.md
    section 3).
"""

import math
from collections.abc import Mapping, Sized
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from agt.data.arrays import as_array, block_slices
from agt.data.coded import MAX_LEVELS, CodedFeatures, Lookup, RowLookup
from agt.data.ids import keyed_hash

HALVINGS = 10
CROSS_KEY = "table/crosses"
_NO_SLOT = -1  # of a missing value
MAX_COMPARED_EDGES = 100  # of one column; of more, a binary search is faster
CODED_ROWS = 2**14  # rows that are coded at once, so that they stay in cache
ARRAY_BYTES = 2**27  # features of a file that need more are held as codes


@dataclass(frozen=True)
class Encoding:
    """The public constants that turn rows into features.

    Attributes:
        limits: numeric column -> its range [low, high], or the edges of its bins.
        listed: categorical column -> its values.
        bins: the number of equal parts of a range; below 2: the range is not divided, and the
            number is scaled.
        crosses: buckets for pairs of columns; 0: pairs are not crossed.
        indicator: whether each column has one more feature, which is 1 where its value is missing.
    """

    limits: Mapping[str, tuple[float, ...]]
    listed: Mapping[str, tuple[str, ...]]
    bins: int = 0
    crosses: int = 0
    indicator: bool = False

    @cached_property
    def thresholds(self) -> dict[str, list[float]]:
        """The inner edges of each numeric column that has bins, in increasing order."""
        inner_edges = {column: self._inner_edges(limits) for column, limits in self.limits.items()}
        return {column: edges for column, edges in inner_edges.items() if edges}

    def _inner_edges(self, limits: tuple[float, ...]) -> list[float]:
        """Return the edges between the bins of a numeric column; empty: its numbers are scaled.

        Edges that the settings list are returned unchanged. Otherwise the edges divide the range
        into equal parts. More edges are dense around its point that is nearest to 0: their
        distances from this point are halved again and again.

        Args:
            limits: the ends of the column's range; or all edges, with the ends first and last.
        """
        low = limits[0]
        high = limits[-1]
        if len(limits) > 2:
            return list(limits[1:-1])
        # A range of one point was found in the data: the column never changes.
        if self.bins < 2 or low == high:
            return []
        nearest_to_zero = min(max(0.0, low), high)
        edges = {nearest_to_zero}
        edges.update(low + (high - low) * (j / self.bins) for j in range(1, self.bins))
        for end in (low, high):
            side = end - nearest_to_zero
            edges.update(nearest_to_zero + side * 2.0**-j for j in range(HALVINGS + 1))
        return sorted(edge for edge in edges if low < edge < high)

    @property
    def widths(self) -> dict[str, int]:
        """The number of features of each column, first the numeric ones, then the categories."""
        widths = {column: len(self.thresholds.get(column, [0.0])) for column in self.limits}
        for column, values in self.listed.items():
            widths[column] = len(values) + 1
        return widths

    @property
    def width(self) -> int:
        """The number of features of a row, with indicators and crosses."""
        indicators = len(self.widths) if self.indicator else 0
        return sum(self.widths.values()) + indicators + self.crosses

    @property
    def feature_rules(self) -> list[list[Any]]:
        """A rule for each feature of a row, in their order, for readers without agt.

        A rule is [column, kind, *constants]. Crosses have none. The kinds are:

        * "from", edge, unit: ``unit`` where the number is at least ``edge``, else ``-unit``; 0
          where it is missing.
        * "range", low, high: the number clipped to the range and scaled to [-1, 1]; 0 where it is
          missing.
        * "is", word: 1 where the text is this word, else 0.
        * "other", words: 1 where there is text that is none of these words, else 0.
        * "unknown": 1 where there is no number, else 0; "missing": 1 where there is no text, else
          0.
        """
        rules: list[list[Any]] = []
        for column, limits in self.limits.items():
            edges = self.thresholds.get(column)
            if edges is None:
                rules.append([column, "range", *limits])
            else:
                rules += [[column, "from", edge, _unit(edges)] for edge in edges]
        for column, values in self.listed.items():
            rules += [[column, "is", value] for value in values]
            rules.append([column, "other", *values])
        if self.indicator:
            rules += [[column, "unknown"] for column in self.limits]
            rules += [[column, "missing"] for column in self.listed]
        return rules

    def __call__(self, numbers: np.ndarray, words: np.ndarray) -> np.ndarray:
        """Return the features of rows.

        Args:
            numbers: [n, numeric columns] float64, NaN where missing.
            words: [n, categorical columns] text, None where missing.

        Returns:
            [n, width] float32: numbers, categories, indicators, crosses.
        """
        features = np.zeros((len(numbers), self.width), dtype=np.float32)
        slots: list[np.ndarray] = []
        start = 0
        columns = zip(self.widths.items(), (*numbers.T, *words.T), strict=True)
        for (column, width), values in columns:
            block = features[:, start : start + width]
            slots.append(self._fill(block, column, values))
            start += width
        if self.indicator:
            is_missing = [*np.isnan(numbers).T, *pd.isna(words).T]
            features[:, start : start + len(slots)] = np.stack(is_missing, axis=1)
        if self.crosses:
            self._add_crosses(features[:, -self.crosses :], slots)
        return features

    def encode_compactly(self, numbers: np.ndarray, words: np.ndarray) -> np.ndarray:
        """Return the features of rows, held as codes if they need much memory and codes suffice.

        Args:
            numbers: the argument of ``__call__``.
            words: the argument of ``__call__``.

        Returns:
            [n, width] float32, an array or ``CodedFeatures``.
        """
        size = len(numbers) * self.width * np.dtype(np.float32).itemsize
        lookup = self.lookup if size > ARRAY_BYTES else None
        if lookup is None:
            return self(numbers, words)
        codes = np.empty((len(numbers), len(self.widths)), dtype=np.uint8)
        for rows in block_slices(len(numbers), CODED_ROWS):
            columns = zip(self.widths, (*numbers[rows].T, *words[rows].T), strict=True)
            for index, (column, values) in enumerate(columns):
                slots = self._slots(column, values)
                missing_code = len(lookup.lookups[index].levels) - 1
                # Looking features up wraps codes beyond the levels, and would give another row's.
                assert slots.max() <= missing_code
                codes[rows, index] = np.where(slots == _NO_SLOT, missing_code, slots)
        return as_array(CodedFeatures(codes, lookup))

    @cached_property
    def lookup(self) -> RowLookup | None:
        """The look-up of features by code, for each column.

        A column's code is its slot, or the last code where the value is missing. None if codes
        cannot represent the features: a column has too many slots or is scaled, or pairs are
        crossed.
        """
        has_scaled_columns = len(self.thresholds) < len(self.limits)
        too_many_slots = max(self.widths.values()) + 2 > MAX_LEVELS
        if has_scaled_columns or self.crosses or too_many_slots:
            return None
        lookups = []
        for index, (column, width) in enumerate(self.widths.items()):
            if column in self.listed:
                levels = np.eye(width + 1, width, dtype=np.float32)
            else:
                levels = _thermometer_levels(self.thresholds[column])
            lookups.append(Lookup(index, levels))
        if self.indicator:
            for lookup in [*lookups]:
                is_missing = np.zeros((len(lookup.levels), 1), dtype=np.float32)
                is_missing[-1] = 1
                lookups.append(Lookup(lookup.column, is_missing))
        return RowLookup(tuple(lookups))

    def _slots(self, column: str, values: np.ndarray) -> np.ndarray:
        """Return the slot of each row of a column that is not scaled, ``_NO_SLOT`` where missing.

        Args:
            column: the name of the column.
            values: [n] the numbers or words of the column.

        Returns:
            [n] integers.
        """
        if column in self.listed:
            return _word_slots(values, self.listed[column])
        return _number_slots(values, np.array(self.thresholds[column]))

    def _fill(self, block: np.ndarray, column: str, values: np.ndarray) -> np.ndarray:
        """Write the features of one column, and return the slot of each row.

        Args:
            block: [n, features of the column] float32, zeros; changed.
            column: the name of the column.
            values: [n] the numbers or words of the column.

        Returns:
            [n] integers, ``_NO_SLOT`` where the value is missing. A scaled column has one slot, 0.
        """
        is_scaled = column in self.limits and column not in self.thresholds
        if is_scaled:
            block[:, 0] = _scale(values, *self.limits[column])
            return np.where(np.isnan(values), _NO_SLOT, 0)
        slots = self._slots(column, values)
        if column in self.listed:
            (present,) = np.nonzero(slots != _NO_SLOT)
            block[present, slots[present]] = 1.0
        else:
            block[:] = _thermometer_levels(self.thresholds[column])[slots]  # -1 is the last level
        return slots

    def _add_crosses(self, block: np.ndarray, slots: list[np.ndarray]) -> None:
        """Add the crosses of all pairs of columns, in the order of the pairs.

        Args:
            block: [n, crosses] float32; changed.
            slots: the slots of each column, [n] integers.
        """
        rows = np.arange(len(block))
        slots_of_columns = zip(self.widths, slots, strict=True)
        pairs = [*combinations(slots_of_columns, 2)]
        share = math.sqrt(len(slots) / max(1, len(pairs)))
        for (first, first_slots), (second, second_slots) in pairs:
            # One number for each pair of slots; slots begin with _NO_SLOT = -1.
            second_count = int(second_slots.max(initial=0)) + 2
            combined = (first_slots + 1) * second_count + second_slots + 1
            distinct, index_of_row = np.unique(combined, return_inverse=True)
            slots_of_first = distinct // second_count - 1
            slots_of_second = distinct % second_count - 1
            names = [
                f"{first}\0{first_slot}\0{second}\0{second_slot}"
                for first_slot, second_slot in zip(slots_of_first, slots_of_second, strict=True)
            ]
            hashes = keyed_hash(names, CROSS_KEY)
            weights = np.where(hashes >> np.uint64(63), share, -share)
            is_missing = (slots_of_first == _NO_SLOT) | (slots_of_second == _NO_SLOT)
            weights[is_missing] = 0.0
            buckets = (hashes % np.uint64(self.crosses)).astype(np.int64)
            block[rows, buckets[index_of_row]] += weights.astype(np.float32)[index_of_row]


def _word_slots(words: np.ndarray, values: tuple[str, ...]) -> np.ndarray:
    """Return the slot of each word of a categorical column.

    Args:
        words: [n] text, None where missing.
        values: the listed values.

    Returns:
        [n] integers: the index of the word in ``values``; ``len(values)`` for a word that is not
        listed; ``_NO_SLOT`` for a missing one.
    """
    slots = pd.Index(values, dtype=object).get_indexer(pd.Index(words, dtype=object))
    (unlisted,) = np.nonzero(slots < 0)
    slots[unlisted] = np.where(pd.isna(words[unlisted]), _NO_SLOT, len(values))
    return slots


def _number_slots(numbers: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return the number of ordered edges that each number reaches, ``_NO_SLOT`` for NaN."""
    if len(edges) <= MAX_COMPARED_EDGES and len(numbers) >= CODED_ROWS:
        slots = _count_reached_edges(numbers, edges)
    else:
        slots = np.searchsorted(edges, numbers, side="right")
    return np.where(np.isnan(numbers), _NO_SLOT, slots)


def _count_reached_edges(numbers: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return the number of edges that each number reaches, [n] int64.

    Many numbers are compared with every edge in a third of the time of a binary search.
    """
    counts = np.empty(len(numbers), dtype=np.int64)
    for rows in block_slices(len(numbers), CODED_ROWS):
        block = numbers[rows]
        count = np.zeros(len(block), dtype=np.uint8)
        for edge in edges:
            count += block >= edge
        counts[rows] = count
    return counts


def _thermometer_levels(edges: Sized) -> np.ndarray:
    """Return the features of a number that reaches 0, 1, ... of m edges; last, of a missing one.

    Returns:
        [m + 2, m] float32.
    """
    unit = np.float32(_unit(edges))
    count = len(edges)
    is_reached = np.arange(count) < np.arange(count + 2)[:, None]
    levels = np.where(is_reached, unit, -unit)
    levels[-1] = 0.0
    return levels


def _unit(edges: Sized) -> float:
    """Return the size of each feature of a column, in float32, so that all have length 1."""
    return float(np.float32(1 / math.sqrt(len(edges))))


def _scale(numbers: np.ndarray, low: float, high: float) -> np.ndarray:
    """Return [n] numbers, clipped to [low, high] and scaled to [-1, 1].

    A missing number (NaN) becomes 0, as does every number if the range is one point.
    """
    if low == high:
        return np.zeros(len(numbers))
    clipped = np.clip(numbers, low, high)
    scaled = 2 * (clipped - low) / (high - low) - 1
    return np.where(np.isnan(numbers), 0.0, scaled)
