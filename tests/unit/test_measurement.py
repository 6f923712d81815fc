"""Measured ranges, lists and sizes: how far neighbours move the counts, and what of a unit alone
is told.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

from agt.errors import ConfigError
from agt.mechanisms import measurement
from agt.mechanisms.measurement import Measurement, TableConstants, TableValues
from agt.mechanisms.weights import weights_budget
from agt.numeric import Randomness, SeededRandomness
from agt.settings import RelationConfig

RNG = np.random.default_rng(0)
ROWS = [
    (x, y, word, label)
    for x in (-3.0, 0.0, 1e9)
    for y in (2019.0, math.nan)
    for word in "ab"
    for label in ("no", "yes")
]


def wanted(rows: list[Any]) -> TableValues:
    x, y, word, label = (
        np.array([row[at] for row in rows], dtype=kind)
        for at, kind in enumerate((float, float, object, object))
    )
    return TableValues({"x": x, "y": y}, {"word": word, "label": label}, len(rows))


class Replay:
    """Noise that records what is counted; of a second set of records, it says what it said of
    the first.
    """

    def __init__(self) -> None:
        self.seen: list[np.ndarray] = []
        self.said: list[np.ndarray] = []
        self.again: Iterator[np.ndarray] = iter(())

    def __call__(self, values: np.ndarray, sigma: float, source: Randomness) -> np.ndarray:
        self.seen.append(np.array(values))
        replayed = next(self.again, None)
        self.said.append(np.array(values) + 0.2 * sigma if replayed is None else replayed)
        return self.said[-1]

    def moves(self, mechanism: Measurement, first: TableValues, second: TableValues) -> float:
        """How far apart the counts are, l2, of two sets that have the same words."""
        mechanism.draw(first, SeededRandomness(0))
        before, self.seen, self.again = self.seen, [], iter(self.said)
        mechanism.draw(second, SeededRandomness(0))
        return math.sqrt(
            sum(float(((a - b) ** 2).sum()) for a, b in zip(before, self.seen, strict=True))
        )


@pytest.mark.parametrize("unit_rows", [1, 3])
@pytest.mark.parametrize("relation", ["add_remove", "substitute"])
def test_no_neighbour_moves_all_counts_by_more_and_some_by_nearly_as_much(
    relation: Any, unit_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    mechanism = Measurement(0.5, 1e-5, RelationConfig(relation, unit_rows))
    claimed = mechanism.sigma(2, 2) * weights_budget(0.5, 5e-6).mu
    others = [ROWS[at] for at in RNG.integers(len(ROWS), size=400)] + ROWS
    worst = 0.0
    for at in range(60):
        one, two = (
            [
                ROWS[i]
                for i in (
                    [at % len(ROWS)] * unit_rows
                    if at < 24
                    else RNG.integers(len(ROWS), size=unit_rows)
                )
            ]
            for _ in "12"
        )
        two = [ROWS[-1 - at % 24]] * unit_rows if at < 24 else two
        replay = Replay()
        monkeypatch.setattr(measurement, "noisy", replay)
        moved = replay.moves(
            mechanism,
            wanted(others + one),
            wanted(others + (two if relation == "substitute" else [])),
        )
        worst = max(worst, moved)
        assert moved <= claimed * (1 + 1e-9)
    assert worst > 0.7 * claimed


@pytest.mark.sampled(2)
@pytest.mark.parametrize("unit_rows", [1, 4])
def test_what_one_unit_alone_has_is_told_as_rarely_as_is_paid_for(unit_rows: int) -> None:
    delta = 0.2
    columns = 3
    draws = 400
    mechanism = Measurement(1.0, delta, RelationConfig("add_remove", unit_rows))
    words = {
        f"c{at}": np.array([f"only{row}" for row in range(unit_rows)], dtype=object)
        for at in range(columns)
    }
    alone = TableValues({}, words, unit_rows)
    source = SeededRandomness(1)
    told = np.mean([any(mechanism.draw(alone, source).lists.values()) for _ in range(draws)])
    assert told <= delta / 2 + 3 * math.sqrt(delta / 2 / draws)
    # one word of all rows: the likeliest
    same = {name: np.array(["only"] * unit_rows, dtype=object) for name in words}
    told = np.mean(
        [
            any(mechanism.draw(TableValues({}, same, unit_rows), source).lists.values())
            for _ in range(draws)
        ]
    )
    assert delta / 8 / unit_rows < told <= delta / 2 + 3 * math.sqrt(delta / 2 / draws)


def test_thresholds_and_noise_keep_to_the_budget_at_any_size() -> None:
    for eps, delta, unit_rows, numbers, words in [
        (0.1, 1e-6, 1, 7, 8),
        (2.0, 1e-9, 13, 0, 1),
        (1e-3, 1e-5, 100, 40, 200),
    ]:
        mechanism = Measurement(eps, delta, RelationConfig("add_remove", unit_rows))
        sigma = mechanism.sigma(numbers, words)
        assert (
            sigma
            >= unit_rows * math.sqrt(1 + 2 * numbers + words) / weights_budget(eps, delta / 2).mu
        )
        z = (mechanism.threshold(numbers, words) - unit_rows) / sigma
        assert unit_rows * words * float(ndtr(-z)) <= delta / 2


def measured(of: Callable[[np.random.Generator], np.ndarray], eps: float = 1.0) -> TableConstants:
    values = of(np.random.default_rng(3))
    words = np.where(np.arange(len(values)) % 3 > 0, "often", "too").astype(object)
    words[:2] = "seldom"
    return Measurement(eps, 1e-6, RelationConfig("add_remove")).draw(
        TableValues({"x": values}, {"w": words}, len(values)), SeededRandomness(2)
    )


def test_ranges_are_near_the_values_and_rare_words_are_not_told() -> None:
    ages = measured(lambda rng: rng.integers(18, 91, 20_000).astype(float))
    assert 16 <= ages.ranges["x"][0] <= 22
    assert 85 <= ages.ranges["x"][1] <= 92
    assert ages.lists == {"w": ("often", "too")}
    assert ages.size == 20_000
    low, high = measured(lambda rng: rng.integers(2019, 2027, 20_000).astype(float)).ranges["x"]
    assert 2000 <= low <= 2019
    assert 2026 <= high <= 2050
    low, high = measured(
        lambda rng: np.where(rng.random(20_000) < 0.9, 0.0, rng.lognormal(9, 1, 20_000))
    ).ranges["x"]
    assert low == 0
    assert 3e4 < high < 4e5
    assert measured(lambda rng: np.full(20_000, -7e300)).ranges["x"][0] < -1e12
    gaps = measured(lambda rng: np.full(50, math.nan)).ranges["x"]
    assert gaps[0] < gaps[1]


def test_other_relations_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"relation=flip: .*add_remove"):
        Measurement(1.0, 1e-5, RelationConfig("flip")).check()
