"""Noisy statistics: every neighbour of small sets by brute force, the law of the noise, and what
is refused.
"""

import math
import re
from itertools import combinations_with_replacement, product
from typing import Any, cast

import numpy as np
import pytest
from releasing import drawn_weights, judged_weights, reserve_and_draw
from synthetic import ball

from agt.api import fit
from agt.data.in_memory import Declared
from agt.data.target import ClassTarget
from agt.errors import ConfigError
from agt.mechanisms import statistics as statistics_module
from agt.mechanisms.planning import weights_options
from agt.mechanisms.statistics import (
    NoisyStatistics,
    RecordSums,
    ReleasedCentre,
    Statistics,
    SumNoiseScales,
    round_towards_zero,
    sum_sensitivities,
)
from agt.mechanisms.weights_mechanism import labels_from
from agt.models.linear import LinearModel
from agt.models.model import Model
from agt.numeric import SeededRandomness
from agt.settings import RelationConfig

MECHANISM = NoisyStatistics.within(2.0, 1e-5)


TURNS = [
    (round(math.cos(at * math.pi / 2), 9), round(math.sin(at * math.pi / 2), 9)) for at in range(4)
]
ROWS = [*product([*TURNS, (0.0, 0.0)], (0, 1)), ((math.sqrt(0.5), math.sqrt(0.5)), 0)]
"""Records of norm 1 all around and one of norm 0, each under either label; and one that has to
be rounded.
"""


def moved(gone: tuple[Any, ...], come: tuple[Any, ...]) -> tuple[float, float, float]:
    """How far the sums of some other records move where these rows give way to those."""
    others = [((0.6, 0.8), 0), ((-1.0, 0.0), 1)]

    def sums(rows: tuple[Any, ...]) -> tuple[np.ndarray, Statistics]:
        u = np.array([row for row, _ in (*others, *rows)])
        labels = np.array([label for _, label in (*others, *rows)])
        statistics = Statistics.from_blocks([(u, np.eye(2)[labels])])
        return round_towards_zero(u).sum(axis=0), statistics

    (total, before), (other, after) = sums(gone), sums(come)
    moves = total - other, before.gram - after.gram, before.sums - after.sums
    return tuple(float(np.linalg.norm(move)) for move in moves)  # type: ignore[return-value]  # three


@pytest.mark.parametrize("unit_rows", [1, 2])
@pytest.mark.parametrize("relation", ["add_remove", "substitute"])
def test_no_neighbour_moves_the_sums_by_more_and_some_by_as_much(
    relation: Any, unit_rows: int
) -> None:
    config = RelationConfig(name=relation, unit_rows=unit_rows)
    units = [
        unit
        for many in range(1, unit_rows + 1)
        for unit in combinations_with_replacement(ROWS, many)
    ]
    comes = [()] if relation == "add_remove" else units
    moves = np.array([moved(gone, come) for gone in units for come in comes])
    claimed = sum_sensitivities(config)
    worst = moves.max(axis=0)
    assert (worst <= claimed).all()
    assert (worst > 0.999 * np.array(claimed)).all()
    noises = SumNoiseScales.from_sensitivities(claimed, 0.3)
    apart = np.linalg.norm(moves / (noises.mean, noises.gram, noises.sums), axis=1)
    assert apart.max() <= 0.3
    assert apart.max() > (0.299 if relation == "add_remove" else 0.24)


@pytest.mark.parametrize("gone", [[0], [1], [2], [0, 1]])
def test_the_whole_release_of_a_head_moves_by_no_more_than_its_noise_is_for(
    gone: list[int],
) -> None:
    """Whatever mean came out: as far as one unit of a real head's records can go, hurtful ones
    among them.
    """
    x, _ = ball(60, 2)
    x[:3] = (1e300, -1e300), (-1e-300, 0.0), (0.0, 0.0)
    units = np.array([f"p{row}" for row in range(60)])
    units[gone] = units[gone[0]]
    given: dict[str, Any] = {"unit_rows": len(gone), "certificate": "erm", "epochs": 1}
    declared = Declared(classes=(0, 1, 2), size=60, features=True, settings=True, ids=True)
    one, other = (
        cast(
            LinearModel,
            fit(x[at], at % 3, ids=at, units=units[at], declared=declared, **given).model,
        )
        for at in (np.arange(60), np.setdiff1d(range(60), gone))
    )
    noises = MECHANISM.noise_scales(one)
    records = [MECHANISM.records(side) for side in (one, other)]
    for released in (np.zeros(2), np.array([50.0, -50.0]), np.array([1e9, 1e9])):
        centre = ReleasedCentre.from_total(released, noises.mean, 60.0, 1.0)
        mine, theirs = ((side.total, side.statistics(centre)) for side in records)
        moves = [
            np.linalg.norm(mine[0] - theirs[0]) / noises.mean,
            np.linalg.norm(mine[1].gram - theirs[1].gram) / noises.gram,
            np.linalg.norm(mine[1].sums - theirs[1].sums) / noises.sums,
        ]
        assert 0 < math.hypot(*map(float, moves)) <= MECHANISM.mu


@pytest.mark.parametrize("block_rows", [1, 7, 100, 1000])
def test_sums_have_the_same_bits_however_records_are_divided_among_threads(
    block_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = ball(100, 7)
    target = ClassTarget(("a", "b", "c"))
    centre = ReleasedCentre(np.full(7, 0.1), 0.9)
    monkeypatch.setattr("torch.get_num_threads", lambda: 3)
    monkeypatch.setattr(statistics_module, "_BLOCK_BYTES", block_rows * 7 * 8)
    records = RecordSums(lambda phi: phi, x, y, target)
    rows = centre.shifted_rows(x)
    expected = Statistics.from_blocks([(rows, np.eye(3)[y])])
    found = records.statistics(centre)
    np.testing.assert_array_equal(found.gram, expected.gram)
    np.testing.assert_array_equal(found.sums, expected.sums)
    np.testing.assert_array_equal(records.total, records._total_of(x))


def test_sums_are_exact_in_any_order_and_no_row_gets_longer() -> None:
    x, y = ball(9000, 7)
    order = np.random.default_rng(1).permutation(9000)
    targets = np.eye(3)[y]
    pieces = zip(np.split(x[order], 9), np.split(targets[order], 9), strict=True)
    one = Statistics.from_blocks([(x, targets)])
    other = Statistics.from_blocks(pieces)
    assert (one.gram == other.gram).all()
    assert (one.sums == other.sums).all()
    assert (np.linalg.norm(round_towards_zero(x), axis=1) <= np.linalg.norm(x, axis=1)).all()
    assert abs(one.gram - x.T @ x).max() < 9000 * 2**-12


def test_labels_are_those_that_the_weights_on_moved_features_give() -> None:
    rng = np.random.default_rng(4)
    v = rng.normal(size=(200, 5)) / 4 + 0.3
    weight = rng.normal(size=(3, 6))
    centre = ReleasedCentre.from_total(v.sum(axis=0), 0.1, 200.0, 1.0)
    assert np.linalg.norm(centre.mean - v.mean(axis=0)) < 0.01
    phi = np.concatenate([v, np.full((200, 1), 0.2)], axis=1)
    assert (centre.shifted_rows(v) @ weight.T).argmax(1).tolist() == (
        phi @ centre.weights_on_features(weight, 0.2).T
    ).argmax(1).tolist()
    assert not ReleasedCentre.from_total(np.full(5, 0.1), 1.0, 200.0, 1.0).mean.any(), (
        "what noise alone explains is no mean"
    )


def test_noise_is_drawn_once_for_each_number_with_its_own_scale() -> None:
    rng = np.random.default_rng(0)
    noises = SumNoiseScales(1.0, 2.0, 3.0)
    none = Statistics(np.zeros((3, 3)), np.zeros((3, 2)))
    drawn = [
        none.noisy(noises, lambda v, sigma: v + sigma * rng.standard_normal(v.shape))
        for _ in range(4000)
    ]
    gram = np.array([one.gram for one in drawn])
    sums = np.array([one.sums for one in drawn])
    assert (gram == gram.transpose(0, 2, 1)).all()
    upper = np.concatenate([gram[:, *np.triu_indices(3)], sums.reshape(4000, -1)], axis=1)
    due = np.where(np.eye(3)[np.triu_indices(3)] > 0, 4.0, 2.0)
    assert np.cov(upper.T) == pytest.approx(np.diag([*due, *[9.0] * 6]), abs=0.6)


def test_each_number_is_drawn_once() -> None:
    drawn = list[int]()

    def count(values: np.ndarray, sigma: float) -> np.ndarray:
        drawn.append(values.size)
        return values

    Statistics(np.zeros((4, 4)), np.zeros((4, 3))).noisy(SumNoiseScales(1.0, 1.0, 1.0), count)
    assert sum(drawn) == 4 * 5 / 2 + 4 * 3


def model(classes: int = 3, **settings: object) -> Model:
    """Of a small run."""
    x, _ = ball(120, 2)
    stated = Declared(
        classes=tuple(range(classes)),
        size=120,
        features=True,
        settings=True,
        ids="units" in settings,
    )
    given: dict[str, Any] = {
        "certificate": "erm",
        "weight_decay": 0.05,
        "epochs": 1,
        "compute": {"threads": 1},
    }
    return fit(x, np.arange(120) % classes, declared=stated, **(given | settings)).model


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"certificate": "stability"},
        {"certificate": "votes", "members": 5},
        {"relation": "substitute", "unit_rows": 2},
    ],
)
def test_released_through_the_library(settings: dict[str, Any]) -> None:
    """By any linear head or beside votes; the same by each, as their records and features are
    the same.
    """
    head = model(**settings)
    known = model()
    release = judged_weights(head, MECHANISM)
    released = reserve_and_draw(release)
    assert release.claim.proved
    (spent,) = release.claim.totals
    assert (spent.eps, spent.delta) == (pytest.approx(2), 1e-5)
    assert not np.fmod(released.weight, released.noise["step"]).any()
    assert released.weight.shape == (3, 3)
    assert labels_from(head, ball(5, 2)[0])(released).shape == (5,)
    noise = MECHANISM.noise(cast(LinearModel, head.release_head))
    assert released.public_parameters == {"mu": MECHANISM.mu, **noise}
    seeded = [drawn_weights(one, MECHANISM, SeededRandomness(0)) for one in (head, known)]
    assert (seeded[0].weight == seeded[1].weight).all() or "relation" in settings
    least = {"relation": 2.8}.get(next(iter(settings), ""), 1.0)
    assert noise["sigma"] / MECHANISM.noise(cast(LinearModel, known))["sigma"] >= least


def test_wider_features_are_brought_down_and_the_weights_back() -> None:
    """To what records' own scale does not change: the labels that the narrow sums' weights give."""
    head = cast(LinearModel, model(features={"map": "relu", "count": 64}))
    mechanism = NoisyStatistics(mu=100.0, width=9)
    records = mechanism.records(head)
    known = records.statistics(mechanism.centre(head, records.total))
    assert known.gram.shape == (9, 9)
    assert 60 < np.trace(known.gram) <= 120
    released = drawn_weights(head, mechanism, SeededRandomness(0))
    assert released.weight.shape == (3, 65)
    assert np.linalg.matrix_rank(released.weight[:, :-1]) <= 8
    plain = drawn_weights(head, NoisyStatistics(mu=100.0), SeededRandomness(0)).noise["sigma"]
    assert released.noise["sigma"] == plain, "nothing depends on the directions under add_remove"
    narrow = mechanism.weights_on_features(head, ReleasedCentre(np.zeros(8), 1.0), np.eye(9))[:-1]
    phi = head.phi(ball(50, 2, 1)[0]) @ narrow.T
    assert np.linalg.norm(phi, axis=1) == pytest.approx(np.ones(50), abs=0.6)


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        (
            {"relation": "flip"},
            "not flip",
        ),
        ({"certificate": "removal", "classes": 2}, "certificate=removal"),
        (
            {"certificate": {"name": "erm", "tolerance": 0.01}, "batch": {"n_max": 2**25 + 1}},
            "33,554,432",
        ),
        (
            {"units": np.array([f"home {at // 2}" for at in range(120)])},
            "unit_rows is 1",
        ),
    ],
)
def test_what_no_proof_covers_is_refused(settings: dict[str, Any], part: str) -> None:
    given = {"certificate": "votes", "members": 5} if "units" in settings else {}
    with pytest.raises(ConfigError, match=re.escape(part)):
        judged_weights(model(**(given | settings)), MECHANISM)


def test_a_plan_expects_what_releases_reach() -> None:
    x, y = ball(120, 2)
    head = cast(LinearModel, model())
    way = weights_options(head, x, y)[MECHANISM.name]
    assert way.kind.within(2.0, 1e-5) == MECHANISM
    drawn = [
        (labels_from(head, x)(MECHANISM.draw(head, SeededRandomness(seed))) == y).mean()
        for seed in range(30)
    ]
    assert way.expectation(MECHANISM) == pytest.approx(np.mean(drawn), abs=0.05)


def test_sums_are_compared_as_objects_and_may_be_keys() -> None:
    first, second = (Statistics(np.eye(2), np.ones((2, 2))) for _ in range(2))
    assert first != second
    assert len({first, second}) == 2
