"""Measure, with noise, what coding a table takes and nobody knows in public: ranges, lists of
values, classes, a size.

    wanted = TableValues(numbers={"age": x}, words={"region": w, "classes": y}, rows=len(y))
    Measurement(eps=0.1, delta=1e-6, relation=RelationConfig("add_remove")).draw(wanted,
    SystemRandomness())

Rows are counted, each number by public buckets that widen with its size, each word by its own name.
What stands out of the noise is told: from the first such bucket to the last, the words; then each
of a range's two end buckets is cut into ``PARTS`` and counted once more, so that a year is not told
to within a thousand.

Formal guarantees
    A row adds at most one to the rows, one to the buckets and one to the words of each column, one
    to the parts of each column's ends. r rows of a unit, p columns of numbers, q of words:
    add_remove moves all counts together by at most r sqrt(1 + 2 p + q), l2. substitute moves them
    by sqrt 2 times that: counts of what goes and of what comes are not negative, nor is their
    product (statistics.py). sigma = that / mu; which parts are counted is a function of what was
    told before, so that by adaptive composition (Dong, Roth, Su 2022, theorem 4) all of it is
    mu-GDP, were words public.
    Words are not: only those that occur are counted. Let V be the words that both of two neighbours
    have. On V, and on all else, the above holds. Noise being independent, what is told of the
    others is independent of that: at most r rows of a column have one, and each is told with
    probability at most that of N(0, sigma^2) >= z sigma, as ``threshold`` is r + z sigma and a step
    of the lattice, rounding. So with probability 1 - l none is told, l = q r Phi(-z), for either of
    the two: that part is (0, l)-DP. Both together are (eps, d + l)-DP where mu-GDP is (eps, d). l
    is half of delta; so is d. ``noisy`` draws exactly, on a public lattice (agt/numeric.py);
    everything after is post-processing.

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
# of the public buckets; numbers beyond count in the last ones
EDGES = np.concatenate([-_MAGNITUDES[::-1], _MAGNITUDES])
PARTS = 64
# how many sigma a count of numbers must reach to be told; one empty bucket in 300,000 does
CLEAR = 4.5
# of buckets side by side that are told together, where none of them stands out alone
WINDOWS = (1, 2, 4, 8)


@dataclass(frozen=True)
class TableValues:
    """What is to be measured: private.

    Attributes:
        numbers: column -> [n] float64, NaN where missing.
        words: column -> [n] text, None where missing.
        rows: how many there are.
    """

    numbers: Mapping[str, np.ndarray]
    words: Mapping[str, np.ndarray]
    rows: int


@dataclass(frozen=True)
class TableConstants:
    """What was measured, which may be published.

    Attributes:
        ranges: column -> (low, high).
        lists: column -> the words told, in order; none may be.
        size: about how many rows there are, three digits, and more rather than fewer: training
            refuses more than declared.
    """

    ranges: Mapping[str, tuple[float, float]]
    lists: Mapping[str, tuple[str, ...]]
    size: int


@dataclass(frozen=True)
class Measurement:
    """The mechanism.

    Attributes:
        eps, delta: of all of it.
        relation: which datasets are neighbours, and how many rows a unit may have.
    """

    eps: float
    delta: float
    relation: RelationConfig

    name: ClassVar[str] = "measurement"
    needs: ClassVar[Need] = "counts"

    @property
    def guarantee(self) -> ApproximateDP:
        """ApproximateDP."""
        return ApproximateDP(self.eps, self.delta)

    def check(self) -> None:
        """Raise ConfigError where nothing is proved: another relation, or a budget out of range."""
        if not RELATIONS[self.relation.name].sums_proved:
            raise ConfigError(
                f"relation={self.relation.name}: counts are measured under add_remove or substitute"
            )
        weights_budget(self.eps, self.delta / 2)

    def sigma(self, numbers: int, words: int) -> float:
        """Standard deviation of the noise on each count, rounded up.

        Args: how many columns there are of each.
        """
        moved = self.relation.unit_rows * math.sqrt(
            RELATIONS[self.relation.name].units_changed_per_k * (1 + 2 * numbers + words)
        )
        return moved / weights_budget(self.eps, self.delta / 2).mu * (1 + 8 * UNIT)

    def draw(self, wanted: TableValues, source: Randomness) -> TableConstants:
        """The release."""
        sigma = self.sigma(len(wanted.numbers), len(wanted.words))
        draw = partial(noisy, sigma=sigma, source=source)
        ranges = {
            column: _range(values[~np.isnan(values)], sigma, draw)
            for column, values in wanted.numbers.items()
        }
        threshold, lists = self.threshold(len(wanted.numbers), len(wanted.words)), {}
        for column, values in wanted.words.items():
            counts = Counter(values[~pd.isna(values)].tolist())
            noised = noisy_counts(dict(sorted(counts.items())), sigma, source)
            lists[column] = tuple(word for word, count in noised.items() if count > threshold)
        (rows,) = draw(np.array([float(wanted.rows)])).tolist()
        return TableConstants(ranges, lists, max(1, int(float(f"{rows + 2 * sigma:.3g}"))))

    def threshold(self, numbers: int, words: int) -> float:
        """What a word's count with noise must exceed to be told.

        Args: how many columns there are of each.
        """
        rows, sigma = self.relation.unit_rows, self.sigma(numbers, words)
        z = -float(ndtri(self.delta / (2 * rows * max(1, words)))) * (1 + UP) + UP
        return rows + z * sigma + step_of(sigma)


def noisy_counts(counts: Mapping[str, int], sigma: float, source: Randomness) -> dict[str, float]:
    """The counts of words with ``noisy`` noise. Which words there are is private, too."""

    def sample(source: Randomness) -> dict[str, float]:
        values = noisy(np.array(list(counts.values()), dtype=np.float64), sigma, source)
        return dict(zip(counts, values.tolist(), strict=True))

    return answered(source, Draw("gaussian", (sigma,), counts), sample)


Noise = partial[np.ndarray]


def _range(values: np.ndarray, sigma: float, draw: Noise) -> tuple[float, float]:
    """(low, high) of numbers without NaN, from counts with noise."""
    ends = np.concatenate([[2 * EDGES[0]], EDGES, [2 * EDGES[-1]]])
    clear = _clear(values, ends, sigma, draw)
    low, high = (ends[place : place + 2] for place in (clear[0], clear[-1]))
    parts = [
        np.linspace(end[0], end[1], PARTS + 1)
        for end in ([low] if clear[0] == clear[-1] else [low, high])
    ]
    found = [
        _clear(values[(values >= at[0]) & (values < at[-1])], at, sigma, draw, fallback=False)
        for at in parts
    ]
    first, last = found[0], found[-1]
    return (
        _rounded(parts[0][first[0]] if len(first) else low[0]),
        _rounded(parts[-1][last[-1] + 1] if len(last) else high[1]),
    )


def _clear(
    values: np.ndarray, ends: np.ndarray, sigma: float, draw: Noise, fallback: bool = True
) -> np.ndarray:
    """Places of buckets, between successive ends, whose counts with noise stand out; else of the
    greatest, or of none.
    """
    places = np.clip(np.searchsorted(ends, values, side="right") - 1, 0, len(ends) - 2)
    counts = draw(np.bincount(places, minlength=len(ends) - 1).astype(np.float64))
    clear = np.zeros(len(counts), dtype=bool)
    for width in WINDOWS:
        for start in np.flatnonzero(
            np.convolve(counts, np.ones(width), "valid") >= CLEAR * sigma * math.sqrt(width)
        ):
            window = clear[start : start + width]
            window[:] |= not window.any()
    return np.flatnonzero(clear if clear.any() or not fallback else counts == counts.max())


def _rounded(value: float) -> float:
    return float(f"{value:.4g}") + 0.0
