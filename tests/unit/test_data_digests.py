"""Digests of records, also in the background; and marks."""

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from hashlib import blake2b

import numpy as np
import pytest
from synthetic import make_records

from agt.data import digests
from agt.data.arrays import array_blocks, as_array
from agt.data.coded import CodedFeatures, Lookup, RowLookup
from agt.data.dataset import Dataset
from agt.data.digests import fingerprint, mark_of_codes
from agt.data.records import Records
from agt.data.target import ClassTarget
from agt.facts import evidence, proved

ROW_BYTES = 5 * 8


class PlantedError(Exception):
    """Nothing but these tests raises it."""


def coded_records(rows: int) -> Records:
    """Records of five features, of two codes each."""
    rng = np.random.default_rng(rows)
    lookup = RowLookup((Lookup(0, rng.normal(size=(5, 2))), Lookup(1, rng.normal(size=(5, 3)))))
    codes = rng.integers(0, 5, size=(rows, 2)).astype(np.uint8)
    records = make_records(rng.normal(size=(rows, 5)), rng.integers(0, 2, rows))
    return records.with_features(as_array(CodedFeatures(codes, lookup)))


def read_in_blocks(monkeypatch: pytest.MonkeyPatch, block_rows: int) -> None:
    """Make the digest read so many rows of ``coded_records`` at once."""
    small_blocks = partial(array_blocks, block_bytes=block_rows * ROW_BYTES)
    monkeypatch.setattr(digests, "array_blocks", small_blocks)


@pytest.mark.parametrize("block_rows", [1, 3, 7, 49, 50, 51, 1000])
@pytest.mark.parametrize("rows", [0, 1, 50])
def test_a_digest_does_not_depend_on_how_many_rows_are_looked_up_at_once(
    rows: int, block_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = coded_records(rows)
    expected = fingerprint(records.held_as_array(), coded_records(7).held_as_array())
    read_in_blocks(monkeypatch, block_rows)
    assert fingerprint(records, coded_records(7)) == expected


def test_features_are_hashed_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a hash that is written out here: features, labels, flags, ids, units."""
    read_in_blocks(monkeypatch, 7)
    records = coded_records(50)
    names = "\n".join(records.ids.tolist()).encode()
    content = np.asarray(records.features).tobytes() + records.labels.tobytes()
    expected = blake2b(content + records.public.tobytes() + 2 * names, digest_size=16)
    assert fingerprint(records) == expected.hexdigest()
    turned = records.with_features(records.features[::-1])
    assert fingerprint(turned) != fingerprint(records)


def looked_up_by(
    monkeypatch: pytest.MonkeyPatch, failing_call: int | None = None
) -> list[threading.Thread]:
    """Return the list to which each look-up of codes will add its thread.

    Args:
        monkeypatch: of the test.
        failing_call: the number, from 1, of the look-up that fails; None: none does.
    """
    threads: list[threading.Thread] = []
    look_up = RowLookup.features

    def features(self: RowLookup, codes: np.ndarray) -> np.ndarray:
        threads.append(threading.current_thread())
        if len(threads) == failing_call:
            raise PlantedError
        return look_up(self, codes)

    monkeypatch.setattr(RowLookup, "features", features)
    return threads


def coded_dataset(rows: int = 50) -> Dataset:
    """A dataset whose records are held as codes."""
    return Dataset(
        name="coded",
        target=ClassTarget(("no", "yes")),
        train=coded_records(rows),
        test=coded_records(7),
        declared_size=None,
        scaling={},
        selection=evidence(proved("ids_by_content")),
        preprocessing=evidence(proved("ids_by_content")),
    )


def test_a_digest_computed_in_the_background_is_that_of_the_records() -> None:
    expected = fingerprint(coded_records(50), coded_records(7))
    dataset = coded_dataset()
    with dataset.digest_in_background():
        assert dataset.digest == expected
    assert dataset.digest == expected
    unread = coded_dataset()
    with unread.digest_in_background():
        pass
    assert unread.digest == expected


def test_whoever_reads_the_digest_waits_for_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The look-up waits until the main thread has begun to wait for the digest."""
    asked = threading.Event()
    threads = looked_up_by(monkeypatch)
    look_up = RowLookup.features

    def features(self: RowLookup, codes: np.ndarray) -> np.ndarray:
        asked.wait(60)
        return look_up(self, codes)

    monkeypatch.setattr(RowLookup, "features", features)
    dataset = coded_dataset()
    with dataset.digest_in_background():
        assert not threads
        asked.set()
        assert len(dataset.digest) == 32
    assert {*threads} != {threading.current_thread()}


def test_an_error_while_hashing_is_raised_to_whoever_reads_the_digest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_up_by(monkeypatch, failing_call=1)
    dataset = coded_dataset()
    with dataset.digest_in_background(), pytest.raises(PlantedError):
        _ = dataset.digest


def test_an_error_in_the_block_stops_the_hashing(monkeypatch: pytest.MonkeyPatch) -> None:
    read_in_blocks(monkeypatch, 7)
    began = threading.Event()
    stopped = threading.Event()
    look_up = RowLookup.features
    calls: list[int] = []

    def features(self: RowLookup, codes: np.ndarray) -> np.ndarray:
        calls.append(len(codes))
        began.set()
        stopped.wait(0.05)
        return look_up(self, codes)

    monkeypatch.setattr(RowLookup, "features", features)

    def fail() -> None:
        began.wait(60)
        raise PlantedError

    with pytest.raises(PlantedError), coded_dataset(7000).digest_in_background():
        fail()
    assert len(calls) < 100, "of 1,000 blocks"


MARKED: dict[str, Callable[[Records], Records]] = {
    "code": lambda r: r.with_features(as_array(CodedFeatures(turned(r), coded(r).lookup))),
    "look-up": lambda r: r.with_features(as_array(CodedFeatures(coded(r).codes, other_lookup(r)))),
    "label": lambda r: replace(r, labels=1 - r.labels),
    "flag": lambda r: replace(r, public=~r.public),
    "id": lambda r: replace(r, ids=np.array([f"{name}x" for name in r.ids])),
    "unit": lambda r: replace(r, units=np.array([f"{name}x" for name in r.ids])),
    "units in another order": lambda r: replace(r, units=r.units[::-1]),
    "order": lambda r: r.take(np.arange(len(r))[::-1]),
    "count": lambda r: r.take(np.arange(len(r) - 1)),
}


def coded(records: Records) -> CodedFeatures:
    """The records' features, which are held as codes."""
    assert isinstance(records.features, CodedFeatures)
    return records.features


def turned(records: Records) -> np.ndarray:
    """The records' codes with one code changed."""
    codes = coded(records).codes.copy()
    codes[-1, -1] = (codes[-1, -1] + 1) % 5
    return codes


def other_lookup(records: Records) -> RowLookup:
    """The records' look-ups with one number of one level changed."""
    first, second = coded(records).lookup.lookups
    levels = second.levels.copy()
    levels[0, 0] += 1
    return RowLookup((first, Lookup(second.column, levels)))


@pytest.mark.parametrize("part", MARKED)
def test_a_mark_tells_records_apart_that_differ_in(part: str) -> None:
    records = coded_records(50)
    marks = [mark_of_codes(some, coded_records(7)) for some in (records, MARKED[part](records))]
    assert marks[0] != marks[1]


def test_a_mark_tells_names_apart_that_a_digest_does_not() -> None:
    """As the digest's contract says: ids "a", "b1" with units "x", "y" have another's digest."""
    two = coded_records(2)
    some = replace(two, ids=np.array(["a", "b1"]), units=np.array(["x", "y"]))
    others = replace(two, ids=np.array(["a", "b"]), units=np.array(["1x", "y"]))
    assert fingerprint(some) == fingerprint(others)
    assert mark_of_codes(some) != mark_of_codes(others)


def test_a_mark_of_other_look_ups_is_another() -> None:
    """The same codes, in an order of columns in which they stand for other features."""
    records = coded_records(50)
    first, second = coded(records).lookup.lookups
    lookup = RowLookup((Lookup(1, first.levels), Lookup(0, second.levels)))
    others = records.with_features(as_array(CodedFeatures(coded(records).codes, lookup)))
    assert mark_of_codes(records) != mark_of_codes(others)


def test_records_between_two_parts_belong_to_one_of_them() -> None:
    one, two, three = (coded_records(50).take(np.arange(rows)) for rows in (1, 2, 3))
    last, last_two = (coded_records(50).take(np.arange(rows, 3)) for rows in (2, 1))
    assert len({mark_of_codes(three), mark_of_codes(two, last), mark_of_codes(one, last_two)}) == 3


def test_a_mark_is_the_same_for_the_same_records_and_equals_no_digest() -> None:
    assert coded_dataset().mark == coded_dataset().mark
    assert coded_dataset().mark.startswith("codes:")


def test_the_mark_of_features_that_are_not_held_as_codes_is_the_digest() -> None:
    dataset = coded_dataset()
    of_arrays = replace(dataset, train=dataset.train.held_as_array())
    assert of_arrays.mark == of_arrays.digest == dataset.digest
