"""From a row of a table to features: numbers by thermometer codes of public bins, categories one-hot, pairs hashed.

A number x with public edges e_0 < ... < e_m is clipped to [e_0, e_m] and becomes m - 1 features, of which the j-th is
+1 / sqrt(m - 1) where x >= e_j and -1 / sqrt(m - 1) elsewhere, j = 1 .. m - 1. So every number has length 1, as a
category's one-hot has, whatever its bins; rows of a table without gaps have one length; and the product of two rows falls
linearly with the bins between them. Edges are given, or made from a range [low, high] alone: ``bins`` equal parts, and
``HALVINGS`` halvings of each side toward its number nearest to 0, so that a balance between 0 and a million is told apart
where balances are. A missing number has no feature but, where asked, its indicator. Without bins a number is scaled to
[-1, 1], and a missing one is 0.

A category has one feature for each listed value and one for any other; a missing one has none but its indicator.

Crosses: two columns' slots (bin, value, other) make one name, hashed with a public key to a bucket and a sign. Each pair
adds +-sqrt(columns / pairs) there, so that all pairs together weigh as much as all columns, collisions aside.

Formal guarantees
    Each alone. A feature is made from its own row and public constants by comparisons, table look-ups and, for scaled
    numbers, elementwise float64 operations, each rounded alone; pairs are added in one fixed order. So a row has the same
    bits whatever rows stand beside it, which condition b asks for (method.md section 3b).
"""

import math
from collections.abc import Mapping, Sized
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from agt.data.ids import keyed_hash

HALVINGS = 10
CROSS_KEY = "table/crosses"
GONE = -1  # the slot of a missing value


@dataclass(frozen=True)
class Encoding:
    """The public constants that turn rows into features.

    Attributes:
        limits: numeric column -> its range, or the edges of its bins.
        listed: categorical column -> its values.
        bins: how many equal parts a range is cut into; below 2: none, and it is scaled.
        crosses: buckets for pairs of columns; 0: none.
        indicator: add a 0/1 feature for each column, 1 where it is missing.
    """

    limits: Mapping[str, tuple[float, ...]]
    listed: Mapping[str, tuple[str, ...]]
    bins: int = 0
    crosses: int = 0
    indicator: bool = False

    @cached_property
    def thresholds(self) -> dict[str, list[float]]:
        """Numeric columns with bins -> the edges between these."""
        inner = {column: self._between(limits) for column, limits in self.limits.items()}
        return {column: edges for column, edges in inner.items() if edges}

    def _between(self, limits: tuple[float, ...]) -> list[float]:
        low, high = limits[0], limits[-1]
        if len(limits) > 2:
            return list(limits[1:-1])
        if self.bins < 2 or low == high:  # a range of one point was found in the data: the column never changes
            return []
        near = min(max(0.0, low), high)
        equal = [low + (high - low) * (j / self.bins) for j in range(1, self.bins)]
        halved = [near + (end - near) * 2.0**-j for end in (low, high) for j in range(HALVINGS + 1)]
        return sorted(edge for edge in {near, *equal, *halved} if low < edge < high)

    @property
    def widths(self) -> dict[str, int]:
        """Features of each column, in their order: numbers, then categories."""
        numbers = {column: len(self.thresholds.get(column, [0.0])) for column in self.limits}
        return numbers | {column: len(values) + 1 for column, values in self.listed.items()}

    @property
    def width(self) -> int:
        """Features of a row."""
        gaps = (len(self.limits) + len(self.listed)) if self.indicator else 0
        return sum(self.widths.values()) + gaps + self.crosses

    @property
    def rows(self) -> list[list[Any]]:
        """Each feature but crosses as [column, kind, *constants], for readers without agt.

        from edge unit: unit where the number is at least edge, else -unit, 0 where it is missing. range low high: the
        number clipped to it and scaled to [-1, 1], 0 where it is missing. is word: 1 where the text is that word. other
        words: 1 where there is text, and none of them. unknown, missing: 1 where there is no number, no text.
        """
        rows: list[list[Any]] = []
        for column, limits in self.limits.items():
            edges = self.thresholds.get(column)
            rows += [[column, "range", *limits]] if edges is None else [[column, "from", e, _unit(edges)] for e in edges]
        for column, values in self.listed.items():
            rows += [*([column, "is", value] for value in values), [column, "other", *values]]
        if self.indicator:
            rows += [[column, "unknown"] for column in self.limits] + [[column, "missing"] for column in self.listed]
        return rows

    def __call__(self, numbers: np.ndarray, words: np.ndarray) -> np.ndarray:
        """Features of rows.

        Args:
            numbers: [n, numeric columns] float64, NaN where missing.
            words: [n, categorical columns] text, None where missing.

        Returns:
            [n, width] float32: numbers, categories, indicators, crosses.
        """
        features = np.zeros((len(numbers), self.width), dtype=np.float32)
        slots, start = [], 0
        for (column, width), values in zip(self.widths.items(), (*numbers.T, *words.T), strict=True):
            block = features[:, start : start + width]
            slots.append(self._fill(block, column, values))
            start += width
        if self.indicator:
            features[:, start : start + len(slots)] = np.stack([*np.isnan(numbers).T, *absent(words).T], axis=1)
        if self.crosses:
            self._cross(features[:, -self.crosses :], slots)
        return features

    def _fill(self, block: np.ndarray, column: str, values: np.ndarray) -> np.ndarray:
        """Write one column's features; returns [n] the slot of each row, ``GONE`` where it is missing."""
        if column in self.listed:
            return _one_hot(block, values, self.listed[column])
        edges = self.thresholds.get(column)
        if edges is None:
            block[:, 0] = _scaled(values, *self.limits[column])
            return np.where(np.isnan(values), GONE, 0)
        return _thermometer(block, values, np.array(edges))

    def _cross(self, block: np.ndarray, slots: list[np.ndarray]) -> None:
        pairs = list(combinations(zip(self.widths, slots, strict=True), 2))
        rows, share = np.arange(len(block)), math.sqrt(len(slots) / max(1, len(pairs)))
        for (first, left), (second, right) in pairs:
            many = int(right.max(initial=0)) + 2
            met, home = np.unique((left + 1) * many + right + 1, return_inverse=True)
            names = np.stack([met // many - 1, met % many - 1])
            hashes = keyed_hash([f"{first}\0{a}\0{second}\0{b}" for a, b in names.T], CROSS_KEY)
            weight = np.where(hashes >> np.uint64(63), share, -share)
            weight[(names == GONE).any(axis=0)] = 0.0
            bucket = (hashes % np.uint64(self.crosses)).astype(np.int64)
            block[rows, bucket[home]] += weight.astype(np.float32)[home]


def absent(words: np.ndarray) -> np.ndarray:
    """Where text is missing."""
    gone: np.ndarray = pd.isna(words)
    return gone


def _one_hot(block: np.ndarray, words: np.ndarray, values: tuple[str, ...]) -> np.ndarray:
    found = pd.Index(values, dtype=object).get_indexer(pd.Index(words, dtype=object))
    slots = np.where(absent(words), GONE, np.where(found < 0, len(values), found))
    (known,) = np.nonzero(slots != GONE)
    block[known, slots[known]] = 1.0
    return slots


def _thermometer(block: np.ndarray, numbers: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Each of the ordered edges that a number reaches counts +, each other one -."""
    slots = np.searchsorted(edges, numbers, side="right")
    unit = np.float32(_unit(edges))
    block[:] = np.where(np.arange(len(edges)) < slots[:, None], unit, -unit)
    gone = np.isnan(numbers)
    block[gone] = 0.0
    return np.where(gone, GONE, slots)


def _unit(edges: Sized) -> float:
    """What each edge of a column counts, in float32: all of them together have length 1."""
    return float(np.float32(1 / math.sqrt(len(edges))))


def _scaled(numbers: np.ndarray, low: float, high: float) -> np.ndarray:
    """[-1, 1], clipped; a missing value, and a range of one point, become 0."""
    if low == high:
        return np.zeros(len(numbers))
    scaled = 2 * (np.clip(numbers, low, high) - low) / (high - low) - 1
    return np.where(np.isnan(numbers), 0.0, scaled)
