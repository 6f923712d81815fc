"""Noisy sums over labels that are numbers: every neighbour of small sets by brute force, and what
the weights that are solved from them answer.
"""

import math
from itertools import combinations_with_replacement, product
from typing import Any

import numpy as np
import pytest

from agt.data.target import NumericTarget
from agt.mechanisms.statistics import (
    BIAS,
    RecordSums,
    ReleasedCentre,
    Statistics,
    SumNoiseScales,
    label_rows,
    sum_sensitivities,
    with_square,
)
from agt.settings import RelationConfig

RANGE = NumericTarget(2.0, 10.0)
POINTS = [(1.0, 0.0), (-1.0, 0.0), (0.0, 0.0), (0.3, -0.4), (5.0, 12.0)]  # the last is too long
LABELS = [2.0, 10.0, 6.0, 2.1, 1e300, -1e300]  # both ends, the middle, and outside of the range
RECORDS = [*product(POINTS[:2], LABELS), *((point, 10.0) for point in POINTS), (POINTS[4], 2.0)]
OTHERS = [((0.6, 0.8), 3.0), ((-1.0, 0.0), 9.0)]
"""Records of every neighbour."""
CENTRES = [
    ReleasedCentre(np.zeros(2), math.sqrt(1 - BIAS**2)),
    ReleasedCentre(np.array([-0.5, 0.2]), 3.0),
    ReleasedCentre(np.array([1e9, -1e9]), 1e-9),
]


def sums_of(records: list[Any]) -> RecordSums:
    """Return the sums of a dataset of (features, label)."""
    features = np.array([point for point, _ in records])
    labels = np.array([label for _, label in records])
    return RecordSums(lambda phi: phi, features, labels, RANGE)


def largest_moves(relation: Any, unit_rows: int) -> tuple[float, float, float]:
    """Return how far one edit of the small dataset moves M, G and S at most, by brute force."""
    units = [
        list(unit)
        for rows in range(1, unit_rows + 1)
        for unit in combinations_with_replacement(RECORDS, rows)
    ]
    replacements = [[]] if relation == "add_remove" else units
    totals = [sums_of([*OTHERS, *unit]).total for unit in units]
    other_totals = [sums_of([*OTHERS, *unit]).total for unit in replacements]
    largest = [max(math.dist(one, other) for one in totals for other in other_totals)]
    grams = []
    sums = []
    for centre in CENTRES:
        before = [sums_of([*OTHERS, *unit]).statistics(centre) for unit in units]
        after = [sums_of([*OTHERS, *unit]).statistics(centre) for unit in replacements]
        after_grams = np.array([each.gram for each in after])
        after_sums = np.array([each.sums for each in after])
        for each in before:
            grams.append(np.linalg.norm(each.gram - after_grams, axis=(1, 2)).max())
            sums.append(np.linalg.norm(each.sums - after_sums, axis=(1, 2)).max())
    return largest[0], float(max(grams)), float(max(sums))


@pytest.mark.parametrize("unit_rows", [1, 2])
@pytest.mark.parametrize("relation", ["add_remove", "substitute"])
def test_no_neighbour_moves_sums_of_numbers_by_more(relation: Any, unit_rows: int) -> None:
    claimed = sum_sensitivities(RelationConfig(name=relation, unit_rows=unit_rows))
    moves = largest_moves(relation, unit_rows)
    assert (np.array(moves) <= claimed).all()


@pytest.mark.parametrize("relation", ["add_remove", "substitute"])
def test_some_neighbour_moves_the_sum_of_labels_by_as_much(relation: Any) -> None:
    claimed = sum_sensitivities(RelationConfig(name=relation))
    _, _, label_move = largest_moves(relation, 1)
    assert label_move > 0.999 * claimed.sums


def test_sums_of_numbers_are_exact_in_any_order() -> None:
    rng = np.random.default_rng(3)
    features = rng.normal(size=(5000, 2))
    labels = rng.uniform(0.0, 12.0, 5000)
    order = rng.permutation(5000)
    one = RecordSums(lambda phi: phi, features, labels, RANGE)
    other = RecordSums(lambda phi: phi, features[order], labels[order], RANGE)
    assert (one.total == other.total).all()
    for centre in CENTRES:
        assert (one.statistics(centre).gram == other.statistics(centre).gram).all()
        assert (one.statistics(centre).sums == other.statistics(centre).sums).all()


@pytest.mark.parametrize("label", [2.0, 10.0, 1e300, -1e300, np.inf, -np.inf])
def test_a_label_has_a_row_of_length_at_most_one(label: float) -> None:
    rows = CENTRES[1].shifted_rows(np.array(POINTS))
    lengths = np.abs(label_rows(RANGE, np.full(len(POINTS), label), rows)).max(axis=1)
    assert (lengths <= 1.0).all()


def test_a_label_s_row_depends_on_its_own_record_only() -> None:
    rows = CENTRES[1].shifted_rows(np.array(POINTS))
    alone = label_rows(RANGE, np.array([3.0]), rows[:1])
    among_others = label_rows(RANGE, np.array([3.0, 2.0, 10.0, 9.9, 1e9]), rows)
    assert (among_others[:1] == alone).all()


def test_one_more_coordinate_makes_no_row_longer() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(400, 3))
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0)
    lengths = np.linalg.norm(rows, axis=1)
    assert (np.linalg.norm(with_square(rows), axis=1) <= lengths * (1 + 1e-12)).all()


def test_rows_that_are_scaled_down_do_not_bend_the_fit() -> None:
    """Labels are scaled down with their rows, so that weights fit the features as they were."""
    rng = np.random.default_rng(1)
    features = rng.normal(size=(4000, 2)) * 0.5
    labels = 6.0 + features @ np.array([1.0, -0.7])
    sums = RecordSums(lambda phi: phi, features, labels, RANGE)
    centre = ReleasedCentre(np.zeros(2), 2.0)  # under which most rows are longer than 1
    noise = 1e-9
    weight = sums.statistics(centre).solve(SumNoiseScales(noise, noise, noise))
    on_features = centre.weights_on_features(weight, 0.1)
    answers = RANGE.unscaled(on_features @ np.column_stack([features, np.full(4000, 0.1)]).T)
    assert np.abs(answers - labels).max() < 0.01


@pytest.mark.parametrize("length", [0.02, 0.3, 1.0])
def test_the_scale_of_features_follows_from_the_released_sum(length: float) -> None:
    rng = np.random.default_rng(2)
    features = rng.normal(size=(5000, 3))
    features *= length / np.linalg.norm(features, axis=1, keepdims=True)
    total = RecordSums(lambda phi: phi, features, np.full(5000, 6.0), RANGE).total
    centre = ReleasedCentre.from_total_and_square(total, 1e-3, 5000.0)
    lengths = np.linalg.norm(centre.scale * features, axis=1)
    assert lengths == pytest.approx(np.full(5000, math.sqrt(1 - BIAS**2)), rel=0.05)


def test_a_square_that_noise_hides_scales_no_row_up_beyond_it() -> None:
    total = np.array([0.0, 0.0, -50.0])
    centre = ReleasedCentre.from_total_and_square(total, 10.0, 1000.0)
    assert 0 < centre.scale < math.inf
    assert centre.scale <= math.sqrt((1 - BIAS**2) * 20 * 1000 * math.sqrt(0.1) / 10)


def test_an_empty_dataset_has_sums_of_zero() -> None:
    empty = Statistics.from_blocks([(np.empty((0, 3)), np.empty((0, 1)))])
    assert empty.sums.shape == (3, 1)
    assert not empty.gram.any()
