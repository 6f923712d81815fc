"""Update rules against brute force over every edit of a tiny batch: the bound is exactly the extreme of the ball."""

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
import torch
from synthetic import RELATIONS as NAMES
from synthetic import make_head, make_recipe, make_records, make_training

from agt.errors import ConfigError
from agt.kernels.contract import QUANTA
from agt.relations import RELATIONS, Sums, rows_at_stake
from agt.settings import MOST_ROWS
from agt.training.loop import Run

UNIT = QUANTA // 4  # values are quarters of the clip level
NORMALIZER = 3.0


def direction(name: str, lowers: list[int], uppers: list[int], private: list[bool], r: int, clip: float = 1.0):  # type: ignore[no-untyped-def]
    """The rule's (lower, upper) for one parameter, from per-record bounds in quarters of the clip level."""
    relation, batch = RELATIONS[name], len(lowers)
    eligible = sum(private) if relation.capped else batch
    count = relation.selected(r, batch, eligible)
    low = sorted((v for v, p in zip(lowers, private, strict=True) if p or not relation.capped), reverse=True)
    high = sorted(v for v, p in zip(uppers, private, strict=True) if p or not relation.capped)
    if relation.capped:
        low, high = [max(v, 0) for v in low], [min(v, 0) for v in high]
    total = [torch.tensor([[sum(values) * UNIT]]) for values in (lowers, uppers, low[:count], high[:count])]
    sums = Sums(*total) if relation.selects else Sums(*total[:2])
    return tuple(e.item() for e in relation.direction(sums, torch.tensor([r]), batch, NORMALIZER, clip))


def ball(name: str, values: list[int], private: list[bool], r: int) -> set[Fraction]:
    """Every direction within the ball, common records contributing ``values`` and newcomers either end of the clip.

    substitute: departures and arrivals are independent in one batch, since a newcomer's id may lie in another.
    """
    directions = set()
    movable = [i for i, p in enumerate(private) if p]
    for gone in range(min(r, len(movable)) + 1):
        if name in ("paper_privacy", "substitute"):
            come = range(r + 1)
        else:
            come = range(r - gone + 1) if name == "add_remove" else range(1)
        for leaving in combinations(movable, gone):
            rest = [v for i, v in enumerate(values) if i not in leaving]
            for arrivals in come:
                for end in (-4, 4):
                    batch = [*rest, *[end] * arrivals]
                    divisor = (len(batch) or 1) if name.startswith("paper") else int(NORMALIZER)
                    directions.add(Fraction(sum(batch), 4 * divisor))
    return directions


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("r", range(5))
def test_the_rule_is_exactly_the_extreme_of_the_ball(name: str, r: int) -> None:
    rng = np.random.default_rng(r)
    relation = RELATIONS[name]
    for batch in range(5):
        for _ in range(12):
            lowers = rng.integers(-4, 5, batch)
            uppers = np.minimum(lowers + rng.integers(0, 4, batch), 4)
            private = [True] * batch if not relation.capped else (rng.random(batch) < 0.7).tolist()
            low, high = direction(name, lowers.tolist(), uppers.tolist(), private, r)
            # Fractions of three or four are rounded: the exact extreme, correctly rounded, is what must come out.
            assert high == float(max(ball(name, uppers.tolist(), private, r)))
            assert low == float(min(ball(name, lowers.tolist(), private, r)))


def test_public_records_never_leave() -> None:
    for name in ("remove", "substitute"):
        free, fixed = (direction(name, [-4, -4], [-4, -4], private, 2) for private in ([True, True], [False, False]))
        assert fixed[1] < free[1]


@pytest.mark.parametrize("name", NAMES)
def test_k_0_is_the_nominal_direction(name: str) -> None:
    """The same operations in the same order: equal to the last bit, whatever the constants."""
    rng = np.random.default_rng(0)
    relation = RELATIONS[name]
    for _ in range(200):
        batch = int(rng.integers(0, 50))
        normalizer, clip = float(rng.uniform(1, 50)), float(rng.uniform(0.01, 3))
        total = torch.tensor([[int(rng.integers(-batch * QUANTA, batch * QUANTA + 1))]])
        none = torch.zeros_like(total)
        sums = Sums(total, total, none, none) if relation.selects else Sums(total, total)
        low, high = relation.direction(sums, torch.tensor([0]), batch, normalizer, clip)
        nominal = relation.nominal_direction(total[0], batch, normalizer, clip)
        assert nominal.dtype == low.dtype == torch.float64
        assert low.item() == nominal.item() == high.item()


@pytest.mark.parametrize("clip", [0.1, 0.3, 0.06, 1 / 3, 7.0])
def test_equal_means_over_batches_of_different_sizes_are_equal_numbers(clip: float) -> None:
    """What scaling before dividing breaks: (b * gamma) / b need not be gamma."""
    for name in ("paper_privacy", "paper_unlearning"):
        means = {RELATIONS[name].nominal_direction(torch.tensor([b * QUANTA]), b, 1.0, clip).item() for b in range(1, 300)}
        assert means == {clip}


def test_larger_means_are_never_smaller_numbers() -> None:
    rng = np.random.default_rng(0)
    rule = RELATIONS["paper_privacy"]
    for _ in range(2000):
        b, c = rng.integers(1, 3000, 2).tolist()
        m = int(rng.integers(-b * QUANTA, b * QUANTA + 1))
        n = (m * c) // b  # n / c is at most m / b, and as near as it gets
        low, high = (rule.nominal_direction(torch.tensor([t]), size, 1.0, 0.3).item() for t, size in ((n, c), (m, b)))
        assert low <= high


@pytest.mark.parametrize("name", ["add_remove", "remove", "substitute"])
@pytest.mark.parametrize("r", [MOST_ROWS - 1, MOST_ROWS])
def test_the_largest_sums_that_are_let_through_stay_in_range(name: str, r: int) -> None:
    """A batch of 2^30 records at the clip level, 2^30 rows at stake: the numerators are those of whole numbers."""
    rule, batch = RELATIONS[name], MOST_ROWS
    for bound in (QUANTA, QUANTA - 1, -QUANTA):
        total, kept = batch * bound, min(r, batch) * bound
        extremes = (max(kept, 0), min(kept, 0)) if rule.capped else (kept, kept)
        sums = Sums(*(torch.tensor([[n]]) for n in ((total, total, *extremes) if rule.selects else (total, total))))
        low, high = (end.item() for end in rule.direction(sums, torch.tensor([r]), batch, 1.0, float(QUANTA)))
        more = r * QUANTA if rule.adds else 0
        greatest, least = extremes if rule.selects else (0, 0)
        assert low == float(total - greatest - more)
        assert high == float(total - least + more)


def test_numbers_beyond_53_bits_keep_their_order() -> None:
    """Converted, divided and scaled, each rounded to nearest: never past one another, and equal stays equal."""
    rng = np.random.default_rng(0)
    rule = RELATIONS["add_remove"]
    for _ in range(2000):
        middle = int(rng.integers(-(2**61), 2**61))
        near = torch.tensor([[middle - int(rng.integers(0, 600))], [middle], [middle + int(rng.integers(0, 600))]])
        low, here, high = rule.nominal_direction(near, 1, float(rng.uniform(0.5, 2**30)), float(rng.uniform(0.01, 3))).T[0]
        assert low <= here <= high


def test_more_rows_at_stake_than_sums_are_proved_for_are_refused() -> None:
    assert rows_at_stake((0, 2**10), 2**20) == [0, MOST_ROWS]
    for ks, unit_rows in (((0, 1), MOST_ROWS + 1), ((2**10 + 1,), 2**20), ((1, 2), 2**34), ((10**30,), 10**30)):
        with pytest.raises(ConfigError, match=r"kgrid.*relation\.unit_rows"):
            rows_at_stake(ks, unit_rows)


def test_a_run_refuses_what_its_sums_are_not_proved_for() -> None:
    """Whoever calls training directly: rows at stake (2^34 times 2^30 is 0 in int64), and a batch above its public cap."""
    training = make_training(batch={"normalizer": 2.0, "n_max": 3})
    records, head = make_records(np.eye(5), [0, 1, 0, 1, 0]), make_head(training, 5, 2, ())

    def run(ks: tuple[int, ...], unit_rows: int) -> Run:
        return Run(head, make_recipe(training, ks=ks, unit_rows=unit_rows, kernel="reference"), records)

    with pytest.raises(ConfigError, match="at stake"):
        run((0, 2**14), 2**20)
    with pytest.raises(ConfigError, match=r"5 records exceeds training\.batch\.n_max=3"):
        run((0, 1), 1).step(np.arange(5))


@pytest.mark.parametrize("name", NAMES)
def test_what_a_relation_says_of_itself(name: str) -> None:
    assert RELATIONS[name].name == name
    assert RELATIONS[name].symmetric == (name not in ("remove", "paper_unlearning"))
    assert RELATIONS[name].touches == (2 if name in ("substitute", "paper_privacy") else 1)
    assert "one record " in RELATIONS[name].neighbours(1)
    assert "one unit of up to 3 records " in RELATIONS[name].neighbours(3)
