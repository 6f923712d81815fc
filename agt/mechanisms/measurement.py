"""Private measurement of a table's constants: ranges of numbers, lists of words, and a size.

    values = TableValues(numbers={"age": x}, texts={"region": w, "classes": y}, rows=len(y))
    measurement = Measurement(eps=0.1, delta=1e-6, relation=RelationConfig("add_remove"))
    measurement.draw(values, SystemRandomness())

All results follow from noisy counts: of the rows, of each word, and of numbers in public buckets
that are wider for larger numbers. The two end buckets of a range are counted in finer parts, too.

Source: Wilkins, Kifer, Zhang and Karrer (2024) count words in this way; the simpler bound is ours.
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
from agt.mechanisms.weights import weights_budget
from agt.numeric import UNIT, UP, Draw, Randomness, draw_observably, noisy, step_of
from agt.relations import RELATIONS
from agt.release_settings import Need
from agt.settings import RelationConfig

_MAGNITUDES = np.exp2(np.arange(-20, 41, 0.5))
BUCKET_EDGES = np.concatenate([-_MAGNITUDES[::-1], _MAGNITUDES])
"""The edges of the public buckets in increasing order; numbers beyond them count in the outermost.

The edges are powers of sqrt(2) from 2^-20 to 2^40.5, with both signs.
"""

END_PARTS = 64  # the number of parts into which each end bucket of a range is cut
# A noisy count is clearly above 0 if it reaches so many standard deviations of its noise. Of empty
# buckets one in 300,000 does.
CLEAR_DEVIATIONS = 4.5
# The numbers of neighbouring buckets whose counts are added where no single count is clear.
WINDOW_BUCKETS = (1, 2, 4, 8)

AddNoise = partial[np.ndarray]
"""Maps an array of values to the values with noise."""


@dataclass(frozen=True)
class TableValues:
    """The private values of a table that is measured.

    Attributes:
        numbers: column -> [n] float64, NaN for a missing value.
        texts: column -> [n] words, None for a missing value.
        rows: the number of rows, n.
    """

    numbers: Mapping[str, np.ndarray]
    texts: Mapping[str, np.ndarray]
    rows: int


@dataclass(frozen=True)
class TableConstants:
    """The noisy results of a measurement, which may be published.

    Attributes:
        ranges: column -> (low, high), which contains most of the column's numbers.
        lists: column -> the words that are frequent enough, sorted; there may be none.
        size: an estimate of the number of rows, at least 1, with three significant digits. It is
            raised by two standard deviations of the noise, because a declared size that is too
            small makes training refuse large batches.
    """

    ranges: Mapping[str, tuple[float, float]]
    lists: Mapping[str, tuple[str, ...]]
    size: int


@dataclass(frozen=True)
class Measurement:
    """The mechanism that releases a table's ranges, lists of words and size with noise.

    Formal guarantees
        All results together are (eps, delta)-DP under the relations add_remove and substitute
        (docs/proofs/measurement.md). ``check`` raises for any other relation.

    Attributes:
        eps: the epsilon of the release of all results together.
        delta: the delta of the release of all results together.
        relation: the neighbour relation, and the public cap on the rows of one unit (whose data
            they are).
    """

    eps: float
    delta: float
    relation: RelationConfig

    name: ClassVar[str] = "measurement"
    needs: ClassVar[Need] = "counts"

    @property
    def guarantee(self) -> ApproximateDP:
        """The guarantee of all results together, (eps, delta)-DP."""
        return ApproximateDP(self.eps, self.delta)

    def check(self) -> None:
        """Raise ConfigError if the measurement is not proved to be private with these settings.

        Raises:
            ConfigError: the relation is neither add_remove nor substitute, or eps or delta is out
                of range.
        """
        if not RELATIONS[self.relation.name].sums_proved:
            raise ConfigError(
                f"relation={self.relation.name}: counts with noise are only proved private "
                "under relation=add_remove or relation=substitute: use one of these two"
            )
        weights_budget(self.eps, self.delta / 2)  # called because it raises for a wrong budget

    def sigma(self, number_columns: int, text_columns: int) -> float:
        """Return the standard deviation of the Gaussian noise on each count.

        It is rounded up, so that rounding cannot weaken the guarantee.

        Args:
            number_columns: the number of columns of numbers that are measured.
            text_columns: the number of columns of words that are measured.
        """
        # Lemma 1 of docs/proofs/measurement.md: one row adds 1 to the count of rows, to a bucket
        # and to a part of an end bucket of each number column, and to a word of each text column.
        # So its change of all counts has an l2 norm of at most the root of their number.
        counts_of_a_row = 1 + 2 * number_columns + text_columns
        changed_units = RELATIONS[self.relation.name].units_changed_per_edit
        sensitivity = self.relation.unit_rows * math.sqrt(changed_units * counts_of_a_row)
        # The other half of delta is for the words (see ``threshold``).
        mu = weights_budget(self.eps, self.delta / 2).mu
        return sensitivity / mu * (1 + 8 * UNIT)  # more than the roundings in this method

    def threshold(self, number_columns: int, text_columns: int) -> float:
        """Return the threshold that the noisy count of a word must exceed to be published.

        Whether a word occurs at all is private. The threshold makes it unlikely that a word is
        published which occurs in only one of two neighbouring datasets.

        Args:
            number_columns: the number of columns of numbers that are measured.
            text_columns: the number of columns of words that are measured.
        """
        # Lemma 2 of docs/proofs/measurement.md: one unit has at most ``rows`` such words in each
        # text column, each with a count of at most ``rows``. With the noise each exceeds the
        # threshold with probability ``tail`` at most, so any does with probability delta / 2.
        rows = self.relation.unit_rows
        sigma = self.sigma(number_columns, text_columns)
        tail = self.delta / (2 * rows * max(1, text_columns))
        # Rounded up: UP is more than the relative error of ndtri.
        z = -float(ndtri(tail)) * (1 + UP) + UP
        # The noisy counts are rounded to multiples of a step, which is added for the rounding.
        return rows + z * sigma + step_of(sigma)

    def draw(self, values: TableValues, source: Randomness) -> TableConstants:
        """Return the ranges, the word lists and the size of a table, all with noise.

        The ranges are of the columns of numbers, the lists of the columns of text. One call spends
        the budget once.

        Args:
            values: the private values of the table.
            source: SystemRandomness for a release; any other source is only a simulation.

        Raises:
            UnsoundError: a count is not finite or at least 2^900.
        """
        number_columns = len(values.numbers)
        text_columns = len(values.texts)
        sigma = self.sigma(number_columns, text_columns)
        threshold = self.threshold(number_columns, text_columns)
        add_noise = partial(noisy, sigma=sigma, source=source)
        ranges = {
            column: _measure_range(numbers[~np.isnan(numbers)], sigma, add_noise)
            for column, numbers in values.numbers.items()
        }
        lists = {}
        for column, texts in values.texts.items():
            counts = Counter(texts[~pd.isna(texts)].tolist())
            # Sorted, so that the order of the published words does not depend on the rows' order.
            noised = noisy_counts(dict(sorted(counts.items())), sigma, source)
            lists[column] = tuple(word for word, count in noised.items() if count > threshold)
        (noisy_rows,) = add_noise(np.array([float(values.rows)])).tolist()
        # Two standard deviations are added, because a declared size that is too small makes
        # training refuse large batches. The noise leaves no more than three digits of meaning.
        enough_rows = noisy_rows + 2 * sigma
        three_digits = f"{enough_rows:.3g}"
        declared_size = max(1, int(float(three_digits)))
        return TableConstants(ranges, lists, declared_size)


def noisy_counts(counts: Mapping[str, int], sigma: float, source: Randomness) -> dict[str, float]:
    """Return the counts of words plus independent Gaussian noise.

    The result must not be published as a whole, because the set of words is private, too. Only
    words whose noisy count exceeds a threshold (``Measurement.threshold``) may be published.

    Args:
        counts: word -> how often it occurs, private.
        sigma: the standard deviation of the noise on each count.
        source: SystemRandomness for a release; any other source is only a simulation.

    Returns:
        Word -> noisy count, in the order of ``counts``.
    """

    def sample(source: Randomness) -> dict[str, float]:
        """Return the counts plus noise that is drawn from ``source``."""
        exact = np.array(list(counts.values()), dtype=np.float64)
        values = noisy(exact, sigma, source)
        return dict(zip(counts, values.tolist(), strict=True))

    # Usually ``draw_observably`` calls ``sample``. An audit may replace it, given this description.
    return draw_observably(source, Draw("gaussian", (sigma,), counts), sample)


def _measure_range(values: np.ndarray, sigma: float, add_noise: AddNoise) -> tuple[float, float]:
    """Return a noisy range (low, high) of a column's numbers.

    First the numbers are counted in public buckets. The range goes from the first bucket whose
    noisy count is clearly above 0 to the last one. Then the numbers in these two buckets are
    counted in ``END_PARTS`` finer parts each, to find the ends more exactly.

    Args:
        values: [n] float64 without NaN, private.
        sigma: the standard deviation of the noise on each count.
        add_noise: returns an array of counts with noise of that standard deviation.

    Returns:
        (low, high), each with four significant digits.
    """
    # The public buckets, with one more at each end for numbers beyond them.
    edges = np.concatenate([[2 * BUCKET_EDGES[0]], BUCKET_EDGES, [2 * BUCKET_EDGES[-1]]])
    counts = _count(values, edges, add_noise)
    clear = _clear_buckets(counts, sigma)
    if not len(clear):
        # No bucket is clearly above 0, so the one with the largest noisy count is taken.
        clear = np.flatnonzero(counts == counts.max())
    first = clear[0]
    last = clear[-1]
    end_buckets = [edges[first : first + 2]]  # (lower edge, upper edge) of each
    if first != last:
        end_buckets.append(edges[last : last + 2])
    parts = [np.linspace(low, high, END_PARTS + 1) for low, high in end_buckets]
    # Which buckets are cut into parts depends only on noisy counts, so the choice spends nothing.
    clear_parts = []
    for part_edges in parts:
        is_inside = (values >= part_edges[0]) & (values < part_edges[-1])
        part_counts = _count(values[is_inside], part_edges, add_noise)
        clear_parts.append(_clear_buckets(part_counts, sigma))
    # If no part is clear, the range goes to the edge of the bucket. If there is one end bucket,
    # it has both ends: entries 0 and -1 of the lists are the same then.
    low = edges[first]
    if len(clear_parts[0]):
        first_part = clear_parts[0][0]
        low = parts[0][first_part]
    high = edges[last + 1]
    if len(clear_parts[-1]):
        last_part = clear_parts[-1][-1]
        high = parts[-1][last_part + 1]
    return _round_to_four_digits(low), _round_to_four_digits(high)


def _count(values: np.ndarray, edges: np.ndarray, add_noise: AddNoise) -> np.ndarray:
    """Return the noisy number of values in each bucket between two successive edges.

    A bucket contains its lower edge and not its upper edge. Values beyond the edges count in the
    first or in the last bucket.

    Args:
        values: [n] float64 without NaN, private.
        edges: [b + 1] float64 in increasing order.
        add_noise: returns an array of counts with noise.

    Returns:
        [b] float64.
    """
    bucket = np.searchsorted(edges, values, side="right") - 1
    bucket = np.clip(bucket, 0, len(edges) - 2)
    counts = np.bincount(bucket, minlength=len(edges) - 1)
    return add_noise(counts.astype(np.float64))


def _clear_buckets(noisy_counts: np.ndarray, sigma: float) -> np.ndarray:
    """Return the indices of the buckets whose noisy counts are clearly above 0.

    A bucket is clear if its own count reaches 4.5 standard deviations of its noise. All buckets of
    a window of 2, 4 or 8 neighbours are clear if their sum does and none is clear already.

    Args:
        noisy_counts: [b] float64, the noisy count of each bucket.
        sigma: the standard deviation of the noise on each count.

    Returns:
        The indices in increasing order; there may be none.
    """
    is_clear = np.zeros(len(noisy_counts), dtype=bool)
    for width in WINDOW_BUCKETS:
        window_counts = np.convolve(noisy_counts, np.ones(width), "valid")  # sums of neighbours
        threshold = CLEAR_DEVIATIONS * sigma * math.sqrt(width)
        for start in np.flatnonzero(window_counts >= threshold):
            window = is_clear[start : start + width]  # a view
            # In a window with a clear bucket, this bucket explains the sum.
            if not window.any():
                window[:] = True
    return np.flatnonzero(is_clear)


def _round_to_four_digits(value: float) -> float:
    """Return a number rounded to four significant digits."""
    return float(f"{value:.4g}") + 0.0  # adding 0 replaces -0 by 0
