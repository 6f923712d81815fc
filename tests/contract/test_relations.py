"""What every relation owes (agt/relations/relation.py), for each entry of the registry: a new entry
inherits this suite.

Which datasets are neighbours is written down here once more, independently: how many units may go
from a batch and come to it. Everything else follows by brute force over every edit of tiny batches,
bit for bit.
"""

from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import combinations, product
from typing import get_args

import numpy as np
import pytest
import torch
from synthetic import make_head, make_recipe, make_records, make_training, refused

from agt.errors import ConfigError
from agt.relations import RELATIONS
from agt.relations.mean import MeanRelation
from agt.relations.names import ENTRIES
from agt.relations.relation import BoundSums, Edit as RelationEdit, Relation
from agt.relations.remove import Remove
from agt.settings import MAX_ROWS, QUANTA, RelationConfig, RelationName, validate
from agt.training.batches import BatchPlan
from agt.training.ensemble import assign_shards
from agt.training.loop import TrainingRun
from agt.training.sensitivity import records_per_edit
from agt.training.settings import EnsembleConfig
from agt_cli import config_files

UNIT = QUANTA // 4  # values are quarters of the clip level
NORMALIZER = 3.0
MOST_UNITS = 2  # that one k of any relation takes out, or puts in
Bounds = list[tuple[int, int]]  # each record's, in quarters of the clip level
Edit = Callable[[int, int, int], bool]

# (gone, come, k): may k edits take so many private records from one batch and bring so many? A
# newcomer of substitute may lie in another batch than the record it replaces, so that in one batch
# the two are independent.
EDITS: dict[str, Edit] = {
    "add_remove": lambda gone, come, k: gone + come <= k,
    "remove": lambda gone, come, k: gone <= k and come == 0,
    "substitute": lambda gone, come, k: gone <= k and come <= k,
    "paper_privacy": lambda gone, come, k: gone <= k and come <= k,
    "paper_unlearning": lambda gone, come, k: gone <= k and come == 0,
}
# no record comes or goes: tests/soundness/test_flips.py and test_perturb.py
STAY = {"flip", "perturb"}
relations = pytest.mark.parametrize("name", EDITS)


def direction(
    rule: Relation, bounds: Bounds, private: list[bool], k: int, clip: float = 1.0
) -> tuple[float, float]:
    """The rule's bounds for one parameter."""
    batch, (r,) = len(bounds), rule.rows_at_stake([k], 1)
    count = rule.count_selected(r, batch, rule.count_selectable(~np.array(private, dtype=bool)))
    chosen = [b for b, p in zip(bounds, private, strict=True) if p or not rule.private_only]
    low = sorted((b[0] for b in chosen), reverse=True)
    high = sorted(b[1] for b in chosen)
    if rule.caps_at_zero:
        low = [max(v, 0) for v in low]
        high = [min(v, 0) for v in high]
    parts = ([b[0] for b in bounds], [b[1] for b in bounds], low[:count], high[:count])
    total = [torch.tensor([[sum(values) * UNIT]]) for values in parts]
    sums = BoundSums(*total) if rule.selects else BoundSums(*total[:2])
    lower, upper = rule.bound_direction(sums, torch.tensor([r]), batch, NORMALIZER, clip)
    return lower.item(), upper.item()


def edited(
    name: str, records: list, private: list[bool], k: int, newcomers: list
) -> Iterator[list]:
    """Every batch within k edits of this one; newcomers are any of those given, each as often as
    one likes.
    """
    movable = [i for i, p in enumerate(private) if p]
    for gone, come in product(range(len(movable) + 1), range(MOST_UNITS * k + 1)):
        if EDITS[name](gone, come, k):
            for leaving, arriving in product(
                combinations(movable, gone), product(newcomers, repeat=come)
            ):
                yield [v for i, v in enumerate(records) if i not in leaving] + list(arriving)


def extremes(name: str, bounds: Bounds, private: list[bool], k: int) -> tuple[float, float]:
    """The least and the greatest direction of any batch in the ball, in rationals; then
    correctly rounded.
    """

    def mean(batch: list[int]) -> Fraction:
        divisor = (
            (len(batch) or 1) if isinstance(RELATIONS[name], MeanRelation) else int(NORMALIZER)
        )
        return Fraction(sum(batch), 4 * divisor)

    least, greatest = (
        pick(mean(batch) for batch in edited(name, [b[end] for b in bounds], private, k, [clipped]))
        for end, pick, clipped in ((0, min, -4), (1, max, 4))
    )
    return float(least), float(greatest)


def batches(
    rule: Relation, seed: int, most: int = 5, times: int = 12
) -> Iterator[tuple[Bounds, list[bool]]]:
    """Bounds of the records of small batches, and which are private: public ones where the
    relation knows them.
    """
    rng = np.random.default_rng(seed)
    for size in range(most):
        for _ in range(times):
            lowers = rng.integers(-4, 5, size)
            uppers = np.minimum(lowers + rng.integers(0, 4, size), 4)
            private = rng.random(size) < 0.7 if rule.private_only else np.ones(size, dtype=bool)
            yield list(zip(lowers.tolist(), uppers.tolist(), strict=True)), private.tolist()


def missed(name: str, rule: Relation, k: int) -> int:
    """Batches whose bounds are not exactly the extremes of the ball: narrower, which is unsound,
    or wider.
    """
    return sum(
        direction(rule, b, private, k) != extremes(name, b, private, k)
        for b, private in batches(rule, seed=k)
    )


def unnested(name: str, rule: Relation, k: int) -> int:
    """Neighbouring batches, common records within their bounds, whose bounds for k - 1 leave
    those for k.
    """
    count = 0
    for bounds, private in batches(rule, seed=k, most=4, times=4):
        low, high = direction(rule, bounds, private, k)
        middle = [(a + (b - a) // 2,) * 2 for a, b in bounds]
        kept = [list(zip(known, private, strict=True)) for known in (bounds, middle)]
        fresh = [((v, w), True) for v, w in ((-4, -4), (4, 4), (-4, 4), (0, 1))]
        for records in kept:
            for other in edited(name, records, private, 1, fresh):
                near, far = direction(rule, [b for b, _ in other], [p for _, p in other], k - 1)
                count += not (low <= near and far <= high)
    return count


# -- the contract


def test_the_settings_the_registry_the_files_and_this_suite_name_the_same_relations() -> None:
    named = get_args(get_args(RelationName)[0])
    assert (
        set(named)
        == set(RELATIONS)
        == {*EDITS, *STAY}
        == set(config_files.options_of_group("relation"))
    )
    assert [RELATIONS[name].name for name in named] == [*named]
    with pytest.raises(ConfigError, match="'substitute'"):
        validate(RelationConfig, {"name": "substitue"}, "relation")


@relations
@pytest.mark.parametrize("k", range(5))
def test_the_rule_is_exactly_the_extreme_of_the_ball(name: str, k: int) -> None:
    assert missed(name, RELATIONS[name], k) == 0


@relations
@pytest.mark.parametrize("k", [1, 2, 3])
def test_bounds_of_a_neighbour_for_one_less_lie_within(name: str, k: int) -> None:
    assert unnested(name, RELATIONS[name], k) == 0


@relations
def test_what_may_go_may_come_where_it_says_so(name: str) -> None:
    ways = list(product(range(4), range(4), range(4)))
    symmetric = all(
        EDITS[name](gone, come, k) == EDITS[name](come, gone, k) for gone, come, k in ways
    )
    assert RELATIONS[name].symmetric == symmetric
    assert RELATIONS[name].adds == any(EDITS[name](0, come, k) for _, come, k in ways if come)


@relations
def test_one_edit_touches_as_many_batches_and_members_as_it_says(name: str) -> None:
    """Brute force over removals, newcomers and both at once, by the plan that training uses and
    the shards of ensembles.
    """
    units = np.array([f"u{i}" for i in range(12)])
    plan = BatchPlan(3, 4, 3.0, 100, "agt", True)
    ensemble = EnsembleConfig(members=4)

    def places(chosen: np.ndarray) -> list[list[set[str]]]:
        """The batches of each epoch, and the shards: which units each holds."""
        rows = list(plan.batches(chosen))
        home = assign_shards(chosen, ensemble)
        epochs = [[set(chosen[b].tolist()) for b in rows[e * 4 : e * 4 + 4]] for e in range(3)]
        return [*epochs, [set(chosen[home == shard].tolist()) for shard in range(4)]]

    before = places(units)
    touched = set()
    # One k of substitute and of paper_privacy is a pair.
    counts = range(MOST_UNITS + 1)
    pairs = [
        (gone, come)
        for gone, come in product(counts, counts)
        if gone + come and EDITS[name](gone, come, 1)
    ]
    for gone, come in pairs:
        for leaving, arriving in product(
            combinations(range(12), gone), combinations(range(12), come)
        ):
            after = np.append(np.delete(units, leaving), [f"new{i}" for i in arriving])
            for one, two in zip(before, places(after), strict=True):
                touched.add(sum(a != b for a, b in zip(one, two, strict=True)))
    assert max(touched) == RELATIONS[name].members_changed_per_edit
    assert max(gone + come for gone, come in pairs) == RELATIONS[name].units_changed_per_edit


@relations
def test_one_unit_moves_a_step_by_its_sensitivity_and_not_farther(name: str) -> None:
    """Every pair of neighbouring batches of clipped gradients; means over the actual batch have
    no such constant.
    """
    rule = RELATIONS[name]
    if isinstance(rule, MeanRelation):
        for refusing in (
            lambda: rule.step_sensitivity(1.0, 1, NORMALIZER),
            lambda: records_per_edit(RelationConfig(rule.name)),
        ):
            with pytest.raises(ConfigError, match=f"relation={name} divides by"):
                refusing()
        return
    farthest = 0.0
    for size in range(3):
        for values in product((-4, 0, 4), repeat=size):
            for other in edited(name, list(values), [True] * size, 1, [-4, 0, 4]):
                here, there = (
                    rule.nominal_direction(
                        torch.tensor(sum(batch) * UNIT), len(batch), NORMALIZER, 0.3
                    ).item()
                    for batch in (values, other)
                )
                farthest = max(farthest, abs(here - there))
    assert farthest == pytest.approx(rule.step_sensitivity(0.3, 1, NORMALIZER), rel=1e-12)
    assert (
        records_per_edit(RelationConfig(rule.name, unit_rows=3)) == 3 * rule.units_changed_per_edit
    )
    assert rule.step_sensitivity(0.3, 16, NORMALIZER, 3) == pytest.approx(
        3 * 4 * farthest, rel=1e-12
    )


@pytest.mark.parametrize("name", RELATIONS)
def test_a_radius_is_needed_and_said_where_the_entry_says_so_and_refused_elsewhere(
    name: str,
) -> None:
    radius = 0.25 if ENTRIES[name].takes_radius else None
    assert RelationConfig(name, radius=radius).radius == radius
    assert ("0.25" in RELATIONS[name].describe_neighbours(1, 0.25)) == ENTRIES[name].takes_radius
    with pytest.raises(ConfigError, match=r"relation\.radius"):
        RelationConfig(name, radius=None if radius else 0.25)


@pytest.mark.parametrize("name", EDITS)
def test_its_edits_are_those_of_this_suite(name: str) -> None:
    """What is stated of an edit is what this suite says of it: none is missing, and none is
    larger.
    """
    counts = range(MOST_UNITS + 1)
    allowed = {
        (gone, come)
        for gone, come in product(counts, counts)
        if gone + come and EDITS[name](gone, come, 1)
    }
    assert set(RELATIONS[name].edits) <= allowed
    assert all(
        any(gone <= edit.removed and come <= edit.added for edit in RELATIONS[name].edits)
        for gone, come in allowed
    )


def test_public_records_never_leave() -> None:
    for name in ("remove", "substitute"):
        free, fixed = (
            direction(RELATIONS[name], [(-4, -4)] * 2, [mark] * 2, 2) for mark in (True, False)
        )
        assert fixed[1] < free[1]


@relations
def test_k_0_is_the_nominal_direction(name: str) -> None:
    """The same operations in the same order: equal to the last bit, whatever the constants."""
    rng = np.random.default_rng(0)
    relation = RELATIONS[name]
    for _ in range(200):
        batch = int(rng.integers(0, 50))
        normalizer = float(rng.uniform(1, 50))
        clip = float(rng.uniform(0.01, 3))
        total = torch.tensor([[int(rng.integers(-batch * QUANTA, batch * QUANTA + 1))]])
        none = torch.zeros_like(total)
        sums = BoundSums(total, total, none, none) if relation.selects else BoundSums(total, total)
        low, high = relation.bound_direction(sums, torch.tensor([0]), batch, normalizer, clip)
        nominal = relation.nominal_direction(total[0], batch, normalizer, clip)
        assert nominal.dtype == low.dtype == torch.float64
        assert low.item() == nominal.item() == high.item()


@pytest.mark.parametrize("clip", [0.1, 0.3, 0.06, 1 / 3, 7.0])
def test_equal_means_over_batches_of_different_sizes_are_equal_numbers(clip: float) -> None:
    """What scaling before dividing breaks: (b * gamma) / b need not be gamma."""
    for name in ("paper_privacy", "paper_unlearning"):
        means = {
            RELATIONS[name].nominal_direction(torch.tensor([b * QUANTA]), b, 1.0, clip).item()
            for b in range(1, 300)
        }
        assert means == {clip}


def test_larger_means_are_never_smaller_numbers() -> None:
    rng = np.random.default_rng(0)
    rule = RELATIONS["paper_privacy"]
    for _ in range(2000):
        b, c = rng.integers(1, 3000, 2).tolist()
        m = int(rng.integers(-b * QUANTA, b * QUANTA + 1))
        n = (m * c) // b  # n / c is at most m / b, and as near as it gets
        low, high = (
            rule.nominal_direction(torch.tensor([t]), size, 1.0, 0.3).item()
            for t, size in ((n, c), (m, b))
        )
        assert low <= high


@pytest.mark.parametrize("name", ["add_remove", "remove", "substitute"])
@pytest.mark.parametrize("r", [MAX_ROWS - 1, MAX_ROWS])
def test_the_largest_sums_that_are_let_through_stay_in_range(name: str, r: int) -> None:
    """A batch of 2^30 records at the clip level, 2^30 rows at stake: the numerators are those of
    whole numbers.
    """
    rule = RELATIONS[name]
    batch = MAX_ROWS
    for bound in (QUANTA, QUANTA - 1, -QUANTA):
        total = batch * bound
        kept = min(r, batch) * bound
        extremes = (max(kept, 0), min(kept, 0)) if rule.caps_at_zero else (kept, kept)
        sums = BoundSums(
            *(
                torch.tensor([[n]])
                for n in ((total, total, *extremes) if rule.selects else (total, total))
            )
        )
        low, high = (
            end.item()
            for end in rule.bound_direction(sums, torch.tensor([r]), batch, 1.0, float(QUANTA))
        )
        more = r * QUANTA if rule.adds else 0
        greatest, least = extremes if rule.selects else (0, 0)
        assert low == float(total - greatest - more)
        assert high == float(total - least + more)


def test_numbers_beyond_53_bits_keep_their_order() -> None:
    """Converted, divided and scaled, each rounded to nearest: never past one another, and equal
    stays equal.
    """
    rng = np.random.default_rng(0)
    rule = RELATIONS["add_remove"]
    for _ in range(2000):
        middle = int(rng.integers(-(2**61), 2**61))
        near = torch.tensor(
            [[middle - int(rng.integers(0, 600))], [middle], [middle + int(rng.integers(0, 600))]]
        )
        low, here, high = rule.nominal_direction(
            near, 1, float(rng.uniform(0.5, 2**30)), float(rng.uniform(0.01, 3))
        ).T[0]
        assert low <= here <= high


def test_more_rows_at_stake_than_sums_are_proved_for_are_refused() -> None:
    rows_at_stake = RELATIONS["add_remove"].rows_at_stake
    assert rows_at_stake((0, 2**10), 2**20) == [0, MAX_ROWS]
    for ks, unit_rows in (
        ((0, 1), MAX_ROWS + 1),
        ((2**10 + 1,), 2**20),
        ((1, 2), 2**34),
        ((10**30,), 10**30),
    ):
        with pytest.raises(ConfigError, match=r"kgrid.*relation\.unit_rows"):
            rows_at_stake(ks, unit_rows)


def test_a_run_refuses_what_its_sums_are_not_proved_for() -> None:
    """Whoever calls training directly: rows at stake (2^34 times 2^30 is 0 in int64), and a
    batch above its public cap.
    """
    training = make_training(batch={"normalizer": 2.0, "n_max": 3})
    records = make_records(np.eye(5), [0, 1, 0, 1, 0])
    head = make_head(training, 5, 2, ())

    def run(ks: tuple[int, ...], unit_rows: int) -> TrainingRun:
        return TrainingRun(
            head, make_recipe(training, ks=ks, unit_rows=unit_rows, kernel="reference"), records
        )

    refused(
        (
            ConfigError,
            rf"kgrid: .*\b{2**34} rows\b.*\b{2**30} rows\b",
            lambda: run((0, 2**14), 2**20),
        ),
        (
            ConfigError,
            r"\b5 records\b.*training\.batch\.n_max=3\b",
            lambda: run((0, 1), 1).step(np.arange(5)),
        ),
    )


def test_several_units_on_one_side_of_an_edit_are_refused_in_ensembles() -> None:
    """How many members one k can change is proved for one unit on each side."""

    class RemoveTwo(Remove):
        edits = (RelationEdit(removed=2, added=0), RelationEdit(removed=1, added=0))

    RemoveTwo().check_batches_and_shards(batches=3, members=1)
    with pytest.raises(ConfigError, match=r"ensemble\.members=2"):
        RemoveTwo().check_batches_and_shards(batches=1, members=2)
