"""Ensembles: shards by keyed hash, members independent of one another and of how many processes trained them."""

import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from synthetic import make_recipe, make_records, make_training

import agt
from agt.data.dataset import Records
from agt.errors import ConfigError
from agt.training import ensemble
from agt.training.batches import Recipe
from agt.training.checkpoint import Checkpoints
from agt.training.ensemble import EnsembleConfig, parts, shards, train_members

SEVEN = EnsembleConfig(members=7)


def summary(recipe: Recipe, records: Records, checkpoints: Checkpoints) -> tuple[list[str], float | None]:
    """A stand-in for training: what a member was given."""
    return records.ids.tolist(), recipe.declared_size


def test_every_record_has_one_shard_and_units_stay_together() -> None:
    units = np.array([f"unit{i // 3}" for i in range(300)])
    home = shards(units, SEVEN)
    assert home.min() >= 0
    assert len(np.unique(home)) == 7
    for unit in np.unique(units):
        assert len(np.unique(home[units == unit])) == 1


def test_a_record_gone_changes_one_shard_alone() -> None:
    units = np.array([f"unit{i}" for i in range(200)])
    home = shards(units, SEVEN)
    for gone in (0, 57, 199):
        kept = np.arange(200) != gone
        assert np.array_equal(shards(units[kept], SEVEN), home[kept])


def test_another_key_deals_otherwise() -> None:
    units = np.array([f"unit{i}" for i in range(200)])
    assert (shards(units, SEVEN) != shards(units, EnsembleConfig(members=7, key="other"))).any()


@pytest.mark.parametrize("threads", [1, 2], ids=["one process", "two processes"])
def test_members_get_their_shards_in_order(threads: int) -> None:
    records = make_records(np.zeros((40, 3)), np.arange(40) % 2).take(np.random.default_rng(0).permutation(40))
    done: list[int] = []
    given = train_members(
        summary, make_recipe(make_training(), declared_size=70, threads=threads), records, SEVEN, done.append
    )
    home = shards(records.units, SEVEN)
    assert [ids for ids, _ in given] == [sorted(records.ids[home == shard].tolist()) for shard in range(7)]
    assert {size for _, size in given} == {10.0}
    assert done == list(range(1, 8))


def test_a_vote_of_margins_comes_with_its_clip_and_of_two_classes() -> None:
    assert EnsembleConfig(members=3) == EnsembleConfig(3, "agt", 1, "labels", None)
    for given in ({"vote": "margins"}, {"margin_clip": 1.0}):
        with pytest.raises(ConfigError, match="vote=margins needs margin_clip, a public constant"):
            EnsembleConfig(members=3, **given)
    with pytest.raises(ConfigError, match="greater than or equal to"):
        EnsembleConfig(members=3, vote="margins", margin_clip=0.0)
    x, y = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) % 3
    three = agt.Declared(classes=[0, 1, 2], size=60)
    with pytest.raises(ConfigError, match="vote=margins is a vote of several members, and members=1"):
        agt.fit(x, y % 2, declared=agt.Declared(classes=[0, 1]), vote="margins", margin_clip=1.0)
    with pytest.raises(ConfigError, match=r"ensemble\.vote=margins: margins of 3 classes have no one sign"):
        agt.fit(x, y, declared=three, members=2, vote="margins", margin_clip=1.0)


def test_shards_lie_in_memory_of_their_own_at_one_alignment() -> None:
    """A matrix product may round otherwise at another address: where a shard lies must not tell about other shards."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(41, 3))
    for start in range(4):
        shifted = make_records(features[start:], rng.integers(0, 2, 41 - start))
        for part in parts(shifted, EnsembleConfig(members=2)):
            assert part.features.ctypes.data % 64 == 0
            assert not np.shares_memory(part.features, features)


def _size_of(recipe: Recipe, records: Records, checkpoints: Checkpoints) -> int:
    time.sleep(0.2)
    return len(records)


def test_records_on_their_way_to_other_processes_lie_in_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """joblib would map arrays above a megabyte to files below /dev/shm that every local user may read."""
    monkeypatch.setattr(ensemble, "_division", lambda config, compute: (2, 1))
    n, seen, done = 60_000, set[Path](), threading.Event()
    ids = np.array([f"{at}" for at in range(n)])
    records = Records(np.zeros((n, 8)), np.zeros(n, dtype=np.int64), ids, ids, np.zeros(n, dtype=bool))
    places = [place for place in (Path("/dev/shm"), Path(tempfile.gettempdir())) if place.exists()]
    before = {path for place in places for path in place.glob("joblib*/*")}

    def look() -> None:
        while not done.wait(0.01):
            seen.update(path for place in places for path in place.glob("joblib*/*"))

    watch = threading.Thread(target=look)
    watch.start()
    try:
        sizes = train_members(_size_of, make_recipe(make_training()), records, EnsembleConfig(members=2))
    finally:
        done.set()
        watch.join()
    assert sum(sizes) == n
    assert min(sizes) * 8 * 8 > 2**20, "arrays that joblib would map"
    assert seen - before == set()
