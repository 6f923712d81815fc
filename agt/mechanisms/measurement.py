"""Measure with noise what the coding of a table needs and nobody knows in public.

That is ranges of numbers, lists of words, classes, and a size.

    values = TableValues(numbers={"age": x}, texts={"region": w, "classes": y}, rows=len(y))
    measurement = Measurement(eps=0.1, delta=1e-6, relation=RelationConfig("add_remove"))
    measurement.draw(values, SystemRandomness())

Rows are counted, each number by public buckets that widen with its size, each word by its own name.
A range goes from the first bucket whose noisy count stands out to the last; both are cut into parts
and counted once more, so that a year is not rounded to a thousand.

Source: Wilkins, Kifer, Zhang and Karrer (2024) count words so; the bound here is our own, and
simpler.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import pandas as pd
from scipy.special import ndtri

from agt.errors import ConfigError
from agt.mechanisms.guarantees import ApproximateDP
from agt.mechanisms.mechanism import Need
from agt.mechanisms.weights import weights_budget
from agt.numeric import UNIT, UP, Draw, Randomness, answered, noisy, step_of
from agt.relations import RELATIONS
from agt.settings import RelationConfig

_MAGNITUDES = np.exp2(np.arange(-20, 41, 0.5))
BUCKET_EDGES = np.concatenate([-_MAGNITUDES[::-1], _MAGNITUDES])
"""The ends of the public buckets; numbers beyond them count in the outermost buckets."""

END_PARTS = 64  # that each end of a range is cut into
# How many sigma a noisy count of numbers must reach; one empty bucket in 300,000 does.
CLEAR_DEVIATIONS = 4.5
# How many neighbouring buckets are counted together where none of them stands out alone.
WINDOW_BUCKETS = (1, 2, 4, 8)

AddNoise = partial[np.ndarray]  # values -> values with noise


@dataclass(frozen=True)
class TableValues:
    """What is to be measured: private.

    Attributes:
        numbers: column -> [n] float64, NaN where missing.
        texts: column -> [n] words, None where missing.
        rows: how many rows there are.
    """

    numbers: Mapping[str, np.ndarray]
    texts: Mapping[str, np.ndarray]
    rows: int


@dataclass(frozen=True)
class TableConstants:
    """What was measured, which may be published.

    Attributes:
        ranges: column -> (low, high).
        lists: column -> the words that were frequent enough, in order; there may be none.
        size: about how many rows there are, to three digits, and more rather than fewer, because
            training refuses more rows than declared.
    """

    ranges: Mapping[str, tuple[float, float]]
    lists: Mapping[str, tuple[str, ...]]
    size: int


@dataclass(frozen=True)
class Measurement:
    """The mechanism that measures a table.

    Attributes:
        eps: of all counts together.
        delta: of all counts together.
        relation: which datasets are neighbours, and how many rows a unit may have.

    Formal guarantees
        All constants together are (eps, delta)-DP under add_remove and substitute
        (docs/proofs/measurement.md); ``check`` refuses other relations.
    """

    eps: float
    delta: float
    relation: RelationConfig

    name: ClassVar[str] = "measurement"
    needs: ClassVar[Need] = "counts"

    @property
    def guarantee(self) -> ApproximateDP:
        """The guarantee of all constants together."""
        return ApproximateDP(self.eps, self.delta)

    def check(self) -> None:
        """Raise ConfigError where nothing is proved.

        That is for another relation, or where the budget is out of range.
        """
        if not RELATIONS[self.relation.name].sums_proved:
            raise ConfigError(
                f"relation={self.relation.name}: counts with noise are only proved private "
                "under add_remove or substitute: use one of these"
            )
        weights_budget(self.eps, self.delta / 2)  # called because it raises

    def sigma(self, number_columns: int, text_columns: int) -> float:
        """Return the standard deviation of the noise on each count, rounded up.

        Args:
            number_columns: how many columns of numbers are measured.
            text_columns: how many columns of words are measured.
        """
        # Lemma 1 of docs/proofs/measurement.md
        counts_of_a_row = 1 + 2 * number_columns + text_columns
        changed_units = RELATIONS[self.relation.name].units_changed_per_k
        sensitivity = self.relation.unit_rows * math.sqrt(changed_units * counts_of_a_row)
        mu = weights_budget(self.eps, self.delta / 2).mu
        return sensitivity / mu * (1 + 8 * UNIT)

    def threshold(self, number_columns: int, text_columns: int) -> float:
        """Return what a word's noisy count must exceed for the word to be published.

        Args:
            number_columns: how many columns of numbers are measured.
            text_columns: how many columns of words are measured.
        """
        # Lemma 2 of docs/proofs/measurement.md: half of delta is for words of one neighbour alone
        rows = self.relation.unit_rows
        sigma = self.sigma(number_columns, text_columns)
        tail = self.delta / (2 * rows * max(1, text_columns))
        z = -float(ndtri(tail)) * (1 + UP) + UP
        return rows + z * sigma + step_of(sigma)

    def draw(self, values: TableValues, source: Randomness) -> TableConstants:
        """Measure a table, which spends ``guarantee`` once.

        Args:
            values: private.
            source: SystemRandomness for a release; anything else is a simulation.

        Raises:
            UnsoundError: a count is beyond all numbers in use.
        """
        columns = (len(values.numbers), len(values.texts))
        sigma = self.sigma(*columns)
        threshold = self.threshold(*columns)
        add_noise = partial(noisy, sigma=sigma, source=source)
        ranges = {
            column: _measure_range(numbers[~np.isnan(numbers)], sigma, add_noise)
            for column, numbers in values.numbers.items()
        }
        lists = {}
        for column, texts in values.texts.items():
            counts = Counter(texts[~pd.isna(texts)].tolist())
            noised = noisy_counts(dict(sorted(counts.items())), sigma, source)
            lists[column] = tuple(word for word, count in noised.items() if count > threshold)
        rows = np.array([float(values.rows)])
        (noisy_rows,) = add_noise(rows).tolist()
        size = int(float(f"{noisy_rows + 2 * sigma:.3g}"))
        return TableConstants(ranges, lists, max(1, size))


def noisy_counts(counts: Mapping[str, int], sigma: float, source: Randomness) -> dict[str, float]:
    """Return the counts of words with Gaussian noise, drawn exactly.

    Which words there are is private, too: only those above a threshold may be published.

    Args:
        counts: word -> how often it occurs.
        sigma: the standard deviation of the noise on each count.
        source: SystemRandomness for a release; anything else is a simulation.
    """

    def sample(source: Randomness) -> dict[str, float]:
        exact = np.array(list(counts.values()), dtype=np.float64)
        values = noisy(exact, sigma, source)
        return dict(zip(counts, values.tolist(), strict=True))

    return answered(source, Draw("gaussian", (sigma,), counts), sample)


def _measure_range(values: np.ndarray, sigma: float, add_noise: AddNoise) -> tuple[float, float]:
    """Return (low, high) of numbers without NaN, from counts with noise.

    Args:
        values: [n], private.
        sigma: the standard deviation of the noise on each count.
        add_noise: values -> values with that noise.
    """
    edges = np.concatenate([[2 * BUCKET_EDGES[0]], BUCKET_EDGES, [2 * BUCKET_EDGES[-1]]])
    counts = _count(values, edges, add_noise)
    clear = _clear_buckets(counts, sigma)
    if not len(clear):
        clear = np.flatnonzero(counts == counts.max())
    first = clear[0]
    last = clear[-1]
    end_buckets = [edges[first : first + 2]]
    if first != last:
        end_buckets.append(edges[last : last + 2])
    parts = [np.linspace(low, high, END_PARTS + 1) for low, high in end_buckets]
    # A public rule: which parts are counted depends on what was released before.
    clear_parts = []
    for part_edges in parts:
        is_inside = (values >= part_edges[0]) & (values < part_edges[-1])
        part_counts = _count(values[is_inside], part_edges, add_noise)
        clear_parts.append(_clear_buckets(part_counts, sigma))
    low = edges[first]
    if len(clear_parts[0]):
        low = parts[0][clear_parts[0][0]]
    high = edges[last + 1]
    if len(clear_parts[-1]):
        high = parts[-1][clear_parts[-1][-1] + 1]
    return _round_to_four_digits(low), _round_to_four_digits(high)


def _count(values: np.ndarray, edges: np.ndarray, add_noise: AddNoise) -> np.ndarray:
    """Return noisy counts of values in the buckets between successive edges."""
    bucket = np.searchsorted(edges, values, side="right") - 1
    bucket = np.clip(bucket, 0, len(edges) - 2)
    counts = np.bincount(bucket, minlength=len(edges) - 1)
    return add_noise(counts.astype(np.float64))


def _clear_buckets(noisy_counts: np.ndarray, sigma: float) -> np.ndarray:
    """Return the indices of buckets whose noisy counts stand out, alone or with neighbours."""
    is_clear = np.zeros(len(noisy_counts), dtype=bool)
    for width in WINDOW_BUCKETS:
        window_counts = np.convolve(noisy_counts, np.ones(width), "valid")
        threshold = CLEAR_DEVIATIONS * sigma * math.sqrt(width)
        for start in np.flatnonzero(window_counts >= threshold):
            window = is_clear[start : start + width]
            # A window with a clear bucket stands out because of that bucket.
            if not window.any():
                window[:] = True
    return np.flatnonzero(is_clear)


def _round_to_four_digits(value: float) -> float:
    """Return a number with four significant digits; -0 becomes 0."""
    return float(f"{value:.4g}") + 0.0
