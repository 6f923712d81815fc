"""Digests of records whose codes are looked up in a second thread, against those of one thread."""

import threading
from collections.abc import Iterator
from hashlib import blake2b

import numpy as np
import pytest
from synthetic import make_records

from agt.data import digests
from agt.data.arrays import as_array
from agt.data.coded import CodedFeatures, Lookup, RowLookup
from agt.data.digests import fingerprint
from agt.data.records import Records

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


@pytest.fixture
def read_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks up the codes of all tables in a second thread, seven rows at once."""
    monkeypatch.setattr(digests, "READ_AHEAD_BYTES", 0)
    monkeypatch.setattr(digests, "READ_AHEAD_BLOCK_BYTES", 7 * ROW_BYTES)


@pytest.mark.parametrize("block_rows", [1, 3, 7, 49, 50, 51, 1000])
@pytest.mark.parametrize("rows", [0, 1, 50])
def test_a_digest_does_not_depend_on_how_many_rows_are_looked_up_at_once(
    rows: int, block_rows: int, read_ahead: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = coded_records(rows)
    monkeypatch.setattr(digests, "READ_AHEAD_BLOCK_BYTES", block_rows * ROW_BYTES)
    found = fingerprint(records, coded_records(7))
    assert found == fingerprint(records.held_as_array(), coded_records(7).held_as_array())


def test_features_are_hashed_in_their_order(read_ahead: None) -> None:
    """Against a hash that is written out here: features, labels, flags, ids, units."""
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


def test_a_small_table_is_hashed_without_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = looked_up_by(monkeypatch)
    fingerprint(coded_records(50))
    assert {*threads} == {threading.current_thread()}


def test_codes_of_a_large_table_are_looked_up_in_one_other_thread(
    read_ahead: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = looked_up_by(monkeypatch)
    fingerprint(coded_records(50))
    assert len(threads) == 8
    assert len({*threads}) == 1
    assert threads[0] is not threading.current_thread()


@pytest.mark.parametrize("failing_call", [1, 2, 8])
def test_an_error_in_the_second_thread_is_raised_as_itself_and_ends_it(
    failing_call: int, read_ahead: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = looked_up_by(monkeypatch, failing_call)
    with pytest.raises(PlantedError):
        fingerprint(coded_records(50))
    assert len(threads) == failing_call
    assert not threads[0].is_alive()


def test_whoever_stops_hashing_ends_the_second_thread(
    read_ahead: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Ctrl-C does, which is raised where a block is hashed."""
    threads = looked_up_by(monkeypatch)
    blocks = digests._feature_blocks(coded_records(50).features)
    assert isinstance(blocks, Iterator)
    next(blocks)
    blocks.close()  # type: ignore[attr-defined]
    assert len(threads) <= 2
    assert not threads[0].is_alive()


def test_the_second_thread_is_at_most_one_block_ahead(
    read_ahead: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = looked_up_by(monkeypatch)
    for number, _ in enumerate(digests._feature_blocks(coded_records(50).features), start=1):
        assert len(threads) <= number + 1
