"""Noisy statistics: every neighbour of small sets by brute force, the law of the noise, and what is refused."""

import math
import re
from itertools import combinations_with_replacement, product
from typing import Any, cast

import numpy as np
import pytest
from synthetic import ball

from agt.api import fit
from agt.data.labelled import Declared
from agt.errors import ConfigError
from agt.mechanisms.claims import labels_from, prepare_weights
from agt.mechanisms.composition import GaussianDP
from agt.mechanisms.planning import weights_on_offer
from agt.mechanisms.statistics import Noises, NoisyStatistics, Statistics, sensitivities, whole
from agt.models.linear import LinearModel
from agt.models.model import Model
from agt.numeric import SeededRandomness, SystemRandomness
from agt.settings import RelationConfig

MECHANISM = NoisyStatistics(**NoisyStatistics.afford(2.0, 1e-5).parameters)


def rows_with(bias: float) -> list[tuple[tuple[float, float], int]]:
    """Records of norm 1 all around, with this last coordinate, each under either label."""
    length = math.sqrt(1 - bias**2)
    turns = [(round(math.cos(at * math.pi / 2), 9), round(math.sin(at * math.pi / 2), 9)) for at in range(4)]
    around = turns if bias == 0 else [(length, bias), (-length, bias)]
    return [(row, label) for row, label in product([*around, (0.0, bias)], (0, 1))]


def moved(gone: tuple[Any, ...], come: tuple[Any, ...]) -> tuple[float, float]:
    """How far the sums of some other records move where these rows give way to those."""
    others = [((0.6, 0.8), 0), ((-1.0, 0.0), 1)]

    def sums(rows: tuple[Any, ...]) -> Statistics:
        features = np.array([row for row, _ in (*others, *rows)])
        return Statistics.of(features, np.array([label for _, label in (*others, *rows)]), 2)

    before, after = sums(gone), sums(come)
    return float(np.linalg.norm(before.gram - after.gram)), float(np.linalg.norm(before.sums - after.sums))


@pytest.mark.parametrize("bias", [0.0, 0.1, 0.5, math.sqrt(0.5)])
@pytest.mark.parametrize("unit_rows", [1, 2])
@pytest.mark.parametrize("relation", ["add_remove", "substitute"])
def test_no_neighbour_moves_the_sums_by_more_and_some_by_as_much(relation: Any, unit_rows: int, bias: float) -> None:
    config = RelationConfig(name=relation, unit_rows=unit_rows)
    units = [unit for many in range(1, unit_rows + 1) for unit in combinations_with_replacement(rows_with(bias), many)]
    comes = [()] if relation == "add_remove" else units
    moves = np.array([moved(gone, come) for gone in units for come in comes])
    claimed, worst = np.array(sensitivities(config, float(whole(np.array([[bias]]))[0, 0]))), moves.max(axis=0)
    assert (worst <= claimed).all()
    tight = worst > 0.999 * claimed
    assert tight[1], "of the sums for each class the worst is among these"
    assert tight[0] or (relation == "substitute" and bias)
    noises = Noises.of((claimed[0], claimed[1]), 0.3)
    assert (np.hypot(moves[:, 0] / noises.gram, moves[:, 1] / noises.sums) <= 0.3).all()


def test_sums_are_exact_in_any_order_and_no_row_gets_longer() -> None:
    x, y = ball(9000, 7)
    order = np.random.default_rng(1).permutation(9000)
    one, other = Statistics.of(x, y, 3), Statistics.of(x[order], y[order], 3)
    assert (one.gram == other.gram).all()
    assert (one.sums == other.sums).all()
    assert (np.linalg.norm(whole(x), axis=1) <= np.linalg.norm(x, axis=1)).all()
    assert abs(one.gram - x.T @ x).max() < 9000 * 2**-12


def test_noise_is_drawn_once_for_each_number_with_its_own_scale() -> None:
    rng, noises, none = np.random.default_rng(0), Noises(2.0, 3.0), Statistics(np.zeros((3, 3)), np.zeros((3, 2)))
    drawn = [none.noisy(noises, lambda v, sigma: v + sigma * rng.standard_normal(v.shape)) for _ in range(4000)]
    gram, sums = np.array([one.gram for one in drawn]), np.array([one.sums for one in drawn])
    assert (gram == gram.transpose(0, 2, 1)).all()
    upper = np.concatenate([gram[:, *np.triu_indices(3)], sums.reshape(4000, -1)], axis=1)
    due = np.where(np.eye(3)[np.triu_indices(3)] > 0, 4.0, 2.0)
    assert np.cov(upper.T) == pytest.approx(np.diag([*due, *[9.0] * 6]), abs=0.6)


def test_each_number_is_drawn_once() -> None:
    drawn = list[int]()

    def count(values: np.ndarray, sigma: float) -> np.ndarray:
        drawn.append(values.size)
        return values

    Statistics(np.zeros((4, 4)), np.zeros((4, 3))).noisy(Noises(1.0, 1.0), count)
    assert sum(drawn) == 4 * 5 / 2 + 4 * 3


def model(classes: int = 3, **settings: object) -> Model:
    """Of a small run."""
    x, _ = ball(120, 2)
    stated = Declared(classes=tuple(range(classes)), size=120, features=True, settings=True, ids="units" in settings)
    given: dict[str, Any] = {"certificate": "erm", "weight_decay": 0.05, "epochs": 1, "compute": {"threads": 1}}
    return fit(x, np.arange(120) % classes, declared=stated, **(given | settings)).model


@pytest.mark.parametrize(
    "settings",
    [{}, {"certificate": "stability"}, {"certificate": "votes", "members": 5}, {"relation": "substitute", "unit_rows": 2}],
)
def test_released_through_the_library(settings: dict[str, Any]) -> None:
    """By any linear head or beside votes; the same by each, as their records and features are the same."""
    head, known = model(**settings), model()
    release = prepare_weights(head, MECHANISM)
    released = release.draw(SystemRandomness())
    assert release.claim.proved
    assert "(2, 1e-05)-differentially private in all" in release.spent[0]
    assert not np.fmod(released.weight, released.step).any()
    assert released.weight.shape == (3, 3)
    assert labels_from(head, ball(5, 2)[0])(released).shape == (5,)
    noise = MECHANISM.noise(cast(LinearModel, head.release_head))
    assert released.described == {"mu": MECHANISM.mu, **noise}
    seeded = [prepare_weights(one, MECHANISM).draw(SeededRandomness(0)) for one in (head, known)]
    assert (seeded[0].weight == seeded[1].weight).all() or "relation" in settings
    least = {"relation": 2.8}.get(next(iter(settings), ""), 1.0)
    assert noise["sigma"] / MECHANISM.noise(cast(LinearModel, known))["sigma"] >= least


def test_wider_features_are_brought_down_and_the_weights_back() -> None:
    """To what records' own scale does not change: the labels that the narrow sums' weights give."""
    head = cast(LinearModel, model(features={"map": "relu", "count": 64}))
    mechanism = NoisyStatistics(mu=100.0, width=9)
    assert mechanism.statistics(head).gram.shape == (9, 9)
    assert np.trace(mechanism.statistics(head).gram) <= 120
    released = prepare_weights(head, mechanism).draw(SeededRandomness(0))
    assert released.weight.shape == (3, 65)
    assert np.linalg.matrix_rank(released.weight[:, :-1]) <= 8
    plain = prepare_weights(head, NoisyStatistics(mu=100.0)).draw(SeededRandomness(0)).sigma
    assert released.sigma == plain, "nothing depends on the directions under add_remove"
    narrow = mechanism.carried(head, np.eye(9))
    phi = head.phi(ball(50, 2, 1)[0]) @ narrow.T
    assert np.linalg.norm(phi, axis=1) == pytest.approx(np.ones(50), abs=0.6)


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ({"relation": "flip"}, "relation=flip: what it moves sums by is proved for add_remove and substitute"),
        ({"certificate": "removal", "classes": 2}, "certificate=removal has noise of its own"),
        ({"features": {"map": "fourier", "count": 8}}, "with certificate.features.map=fourier"),
        ({"units": np.array([f"home {at // 2}" for at in range(120)])}, "has 2 rows and relation.unit_rows is 1"),
    ],
)
def test_what_no_proof_covers_is_refused(settings: dict[str, Any], part: str) -> None:
    given = {"certificate": "votes", "members": 5} if "units" in settings else {}
    with pytest.raises(ConfigError, match=re.escape(part)):
        prepare_weights(model(**(given | settings)), MECHANISM)


def test_a_plan_expects_what_releases_reach() -> None:
    x, y = ball(120, 2)
    head = cast(LinearModel, model())
    way = weights_on_offer(head, x, y)[MECHANISM.name]
    assert way.afford(2.0, 1e-5) == MECHANISM.guarantee
    drawn = [(labels_from(head, x)(MECHANISM.draw(head, SeededRandomness(seed))) == y).mean() for seed in range(30)]
    assert way.expected(GaussianDP(MECHANISM.mu)) == pytest.approx(np.mean(drawn), abs=0.05)
