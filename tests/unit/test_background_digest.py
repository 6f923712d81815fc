"""Digests of data that are computed meanwhile, against those that are computed alone."""

import threading
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from threading import Event

import numpy as np
import pytest
from synthetic import make_records

from agt.data import dataset as dataset_module, digests
from agt.data.coded import CodedFeatures, Lookup, RowLookup
from agt.data.dataset import Dataset
from agt.data.digests import Stopped, fingerprint, fingerprint_in_background
from agt.data.records import Records
from agt.data.target import ClassTarget
from agt.errors import AgtError, ConfigError
from agt.facts import evidence, proved
from agt.training.checkpoint import CheckpointFolder, DeferredCheckpoints, open_checkpoints


def array_records(rows: int, dtype: type = np.float64) -> Records:
    rng = np.random.default_rng(rows)
    return make_records(rng.normal(size=(rows, 3)).astype(dtype), rng.integers(0, 2, rows))


def coded_records(rows: int) -> Records:
    rng = np.random.default_rng(rows)
    lookup = RowLookup((Lookup(0, rng.normal(size=(5, 2))), Lookup(1, rng.normal(size=(5, 3)))))
    codes = rng.integers(0, 5, size=(rows, 2)).astype(np.uint8)
    features = CodedFeatures(codes, lookup)
    return array_records(rows).with_features(features)  # type: ignore[arg-type]


def made(train: Records, test: Records) -> Dataset:
    return Dataset(
        name="made",
        target=ClassTarget(("no", "yes")),
        train=train,
        test=test,
        declared_size=None,
        scaling={},
        selection=evidence(proved("every_k_counted")),
        preprocessing=evidence(proved("every_k_counted")),
    )


@pytest.mark.parametrize("make", [array_records, coded_records])
@pytest.mark.parametrize("block_bytes", [1, 100, 2**20])
def test_a_digest_does_not_depend_on_how_much_is_hashed_at_once(
    make: object, block_bytes: int
) -> None:
    parts = (make(50), make(7), make(0))  # type: ignore[operator]
    assert fingerprint(*parts, block_bytes=block_bytes) == fingerprint(*parts)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_thread_computes_the_digest_of_the_same_parts(
    dtype: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "_BACKGROUND_BLOCK_BYTES", 64)
    parts = (array_records(50, dtype), coded_records(20), array_records(0, dtype))
    with fingerprint_in_background(*parts) as future:
        found = future.result()
    assert found == fingerprint(*parts)
    assert found != fingerprint(*parts[:2], array_records(1, dtype))


def test_features_held_as_codes_and_as_an_array_have_one_digest() -> None:
    coded = coded_records(40)
    with fingerprint_in_background(coded) as future:
        assert future.result() == fingerprint(coded.held_as_array())


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Event]:
    """Hashing that begins once an event is set."""
    may_begin = Event()
    real = digests.fingerprint

    def fingerprint_later(*parts: Records, **how: object) -> str:
        assert may_begin.wait(60)
        return real(*parts, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(digests, "fingerprint", fingerprint_later)
    yield may_begin
    may_begin.set()


def test_who_reads_the_digest_waits_for_the_thread(
    slow: Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = made(array_records(30), array_records(10))
    expected = replace(data)._digest_now()
    with data.digest_in_background() as is_known:
        assert not is_known()
        monkeypatch.setattr(dataset_module, "fingerprint", None)  # nobody else computes it
        threading.Timer(0.1, slow.set).start()
        assert data.digest == expected
        assert is_known()
    assert data.digest == expected


def test_a_digest_that_nobody_read_is_known_at_the_end_of_the_block(
    slow: Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = made(array_records(30), array_records(10))
    expected = replace(data)._digest_now()
    with data.digest_in_background():
        slow.set()
    monkeypatch.setattr(dataset_module, "fingerprint", None)
    assert data.digest == expected


@pytest.mark.parametrize("in_background", [True, False])
def test_a_digest_is_of_pretraining_records_too(in_background: bool) -> None:
    data = replace(made(array_records(30), array_records(10)), pretrain=array_records(5))
    with data.digest_in_background() if in_background else nullcontext():
        found = data.digest
    assert found == fingerprint(data.train, data.test, array_records(5))
    assert found != fingerprint(data.train, data.test)


def test_an_error_in_the_block_stops_the_thread_and_leaves_no_digest(slow: Event) -> None:
    data = made(array_records(30), array_records(10))
    running = threading.active_count()
    threading.Timer(0.1, slow.set).start()
    with pytest.raises(ZeroDivisionError), data.digest_in_background():
        raise ZeroDivisionError
    assert threading.active_count() <= running + 1  # the timer may still end
    assert data.digest == fingerprint(data.train, data.test)


def test_what_was_stopped_has_no_digest() -> None:
    stop = Event()
    stop.set()
    with pytest.raises(Stopped):
        fingerprint(array_records(3), stop=stop)


def test_an_error_of_the_thread_is_raised_where_the_digest_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*parts: object, **how: object) -> str:
        raise AgtError("the file changed")

    monkeypatch.setattr(digests, "fingerprint", fail)
    data = made(array_records(30), array_records(10))
    with pytest.raises(AgtError, match="the file changed"), data.digest_in_background():
        data.digest  # noqa: B018
    with pytest.raises(AgtError, match="the file changed"), data.digest_in_background():
        pass  # nobody read it, but nothing may be recorded without it


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
def test_mapped_records_are_hashed_before_anything_else(
    dtype: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or what is edited meanwhile would be recorded as what was trained on."""
    records = array_records(30, dtype)
    np.save(tmp_path / "x.npy", records.features)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r+")
    data = made(records.with_features(mapped), array_records(10))
    monkeypatch.setattr(dataset_module, "fingerprint_in_background", None)
    with data.digest_in_background() as is_known:
        assert is_known()
        mapped[0, 0] += 1
        mapped.flush()
        assert data.digest == fingerprint(records, data.test)


class Clock:
    """Says whether the digest is known."""

    known = False

    def __call__(self) -> bool:
        return self.known


def deferred(folder: Path) -> tuple[Clock, DeferredCheckpoints]:
    clock = Clock()
    opened = lambda: open_checkpoints(folder, {"data": "abc"}, 1e-9, print)  # noqa: E731
    return clock, DeferredCheckpoints(clock, opened)


def test_nothing_is_saved_before_it_is_known_what_it_is_bound_to(tmp_path: Path) -> None:
    import torch

    clock, checkpoints = deferred(tmp_path / "checkpoint")
    assert checkpoints.last_state() is None
    state = {"w": torch.ones(2)}
    checkpoints.save_if_due(1, lambda: state)
    assert not (tmp_path / "checkpoint").exists()
    clock.known = True
    checkpoints.save_if_due(2, lambda: state)
    again = open_checkpoints(tmp_path / "checkpoint", {"data": "abc"}, None, print).last_state()
    assert again is not None
    assert again.step == 2
    with pytest.raises(ConfigError):
        open_checkpoints(tmp_path / "checkpoint", {"data": "another"}, None, print)


def test_parts_and_random_numbers_wait_until_it_is_known(tmp_path: Path) -> None:
    _, checkpoints = deferred(tmp_path / "checkpoint")
    assert checkpoints.draw_once("noise", lambda: 5) == 5
    assert isinstance(checkpoints.part("members/000"), CheckpointFolder)
    assert (
        open_checkpoints(tmp_path / "checkpoint", {"data": "abc"}, None, print).draw_once(
            "noise", lambda: 6
        )
        == 5
    )


@pytest.mark.parametrize("known", [False, True])
def test_a_refused_training_leaves_no_checkpoints(known: bool, tmp_path: Path) -> None:
    clock, checkpoints = deferred(tmp_path / "checkpoint")
    clock.known = known

    def refused_training() -> None:
        checkpoints.save_if_due(1, lambda: {}, is_last_step=True)
        for path in (tmp_path / "checkpoint").glob("step=*"):
            path.unlink()  # as if none had been due
        raise ConfigError("no")

    with pytest.raises(ConfigError), checkpoints.removed_if_refused():
        refused_training()
    assert not (tmp_path / "checkpoint").exists()
