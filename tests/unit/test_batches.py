"""The batch plan: public constants, and places that depend on a unit's own id."""

from itertools import pairwise

import numpy as np
import pytest

from agt.errors import ConfigError
from agt.settings import BatchConfig, default_n_max
from agt.training.batches import BatchPlan, check_unit_rows


def plan(count: int = 4, epochs: int = 3, key: str = "agt", n_max: int = 1000) -> BatchPlan:
    return BatchPlan.of(BatchConfig(count=count, normalizer=5.0, n_max=n_max, key=key), epochs, None, 0)


def names(n: int) -> np.ndarray:
    return np.array([f"unit{i}" for i in range(n)])


def homes(batch_plan: BatchPlan, units: np.ndarray) -> list[dict[str, int]]:
    """For each epoch: unit -> batch."""
    batches = [units[rows].tolist() for rows in batch_plan.batches(units)]
    epochs = [batches[i : i + batch_plan.count] for i in range(0, len(batches), batch_plan.count)]
    return [{u: index for index, batch in enumerate(epoch) for u in batch} for epoch in epochs]


@pytest.mark.parametrize("size", [2.0**30, 1e18, 1e308])
def test_a_batch_larger_than_sums_are_proved_for_is_refused(size: float) -> None:
    with pytest.raises(ConfigError, match=r"training\.batch\.n_max"):
        BatchPlan.of(BatchConfig(), 1, size, 0)
    assert BatchPlan.of(BatchConfig(n_max=2**30), 1, 2.0**29, 0).n_max == 2**30


def test_every_row_is_in_one_batch_of_each_epoch() -> None:
    units = names(100)
    batches = list(plan().batches(units))
    assert len(batches) == plan().steps == 12
    for epoch in (batches[i : i + 4] for i in range(0, 12, 4)):
        assert sorted(np.concatenate(epoch).tolist()) == list(range(100))
        assert all((np.diff(rows) > 0).all() for rows in epoch)


@pytest.mark.parametrize("edit", ["remove", "add", "shuffle", "double"])
def test_a_units_batches_do_not_depend_on_the_others(edit: str) -> None:
    rng = np.random.default_rng(0)
    units = names(60)
    other = {
        "remove": units[rng.random(60) < 0.7],
        "add": np.array([*units, "a", "another unit with a much longer name"]),
        "shuffle": rng.permutation(units),
        "double": np.repeat(units, 2),
    }[edit]
    for before, after in zip(homes(plan(), units), homes(plan(), other), strict=True):
        assert all(after[u] == home for u, home in before.items() if u in after)


def test_rows_of_a_unit_share_their_batches() -> None:
    units = np.repeat(names(20), 3)
    for rows in plan().batches(units):
        kept, counts = np.unique(units[rows], return_counts=True)
        assert (counts == 3).all() or not len(kept)


def test_epochs_and_keys_lay_records_anew() -> None:
    units = names(200)
    epochs = homes(plan(), units)
    assert all(a != b for a, b in pairwise(epochs))
    assert homes(plan(key="other"), units) != epochs
    assert max(len(rows) for rows in plan(n_max=5000).batches(names(4000))) < 1.15 * 1000


def test_empty_batches_are_kept_and_no_records_are_fine() -> None:
    assert [len(rows) for rows in plan(count=50).batches(names(2))].count(0) == 150 - 6
    assert [len(rows) for rows in plan().batches(names(0))] == [0] * 12


def test_a_batch_above_n_max_stops_before_the_first_step() -> None:
    batches = plan(count=1, n_max=10).batches(names(11))
    with pytest.raises(ConfigError, match=r"a batch holds 11 records and training.batch.n_max is 10"):
        next(iter(batches))
    assert len(next(iter(plan(count=1, n_max=10).batches(names(10))))) == 10


@pytest.mark.parametrize(
    ("config", "declared_size", "normalizer", "declared"),
    [
        (BatchConfig(count=4, normalizer=9.0), None, 9.0, True),
        (BatchConfig(count=4), 100, 25.0, True),
        (BatchConfig(count=4), None, 30.0, False),  # from the data: condition c is not held
        (BatchConfig(count=4, normalizer=9.0), 100, 9.0, True),
    ],
)
def test_where_the_normaliser_comes_from(
    config: BatchConfig, declared_size: int | None, normalizer: float, declared: bool
) -> None:
    made = BatchPlan.of(config, 1, declared_size, 120)
    assert (made.normalizer, made.declared, made.n_max) == (normalizer, declared, default_n_max(normalizer))
    assert made.n_max >= 1.1 * normalizer


def test_n_max_below_its_floor_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"n_max=10 is below"):
        BatchPlan.of(BatchConfig(normalizer=10.0, n_max=10), 1, None, 5)


def test_the_cap_on_a_units_rows() -> None:
    units = np.array(["a", "b", "b"])
    check_unit_rows(units, 2)
    check_unit_rows(np.array([], dtype=str), 1)
    with pytest.raises(ConfigError, match=r"unit 'b' has 2 rows and relation.unit_rows is 1"):
        check_unit_rows(units, 1)
