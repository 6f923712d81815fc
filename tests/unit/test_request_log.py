"""The request log, the run's key and the index of its records."""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from agt.data.records import Records
from agt.errors import ConfigError, DataError
from agt.store.reading import Broken
from agt_cli.unlearn.hash_key import SIZE, HashKey, as_words
from agt_cli.unlearn.log import Log, RequestEntry, RequestKind, state_of
from agt_cli.unlearn.record_index import Index, check_missing_were_requested, check_same

KEY = HashKey(bytes(range(32)))
PROMISE = {"exact": True, "eps": 0.0, "assumptions": [{"standing": "proved"}]}
STATE = "sha256:" + "5" * 64


def entry(names: tuple[str, ...], kind: RequestKind = "removed", **changes: Any) -> RequestEntry:
    hashes = as_words(KEY.names(names, "record"))
    values: dict[str, Any] = {
        "method": "retrain",
        "by": "id",
        "records": hashes,
        "units": hashes,
        "before": "sha256:" + "0" * 64,
        "after": STATE,
    }
    return RequestEntry(kind, **{**values, "promise": PROMISE, "key": KEY.check, **changes})


def log_of(*kinds: RequestKind) -> Log:
    log = Log()
    for number, kind in enumerate(kinds):
        log = log.append(entry((f"record {number}",), kind))
    return log


def test_what_is_appended_is_read_back() -> None:
    log = log_of("removed", "pending", "pending")
    assert Log.read(log.content) == log
    assert [entry.number for entry in log.entries] == [1, 2, 3]
    assert Log.read(b"") == Log()
    assert Log().head is None
    assert str(log.head).startswith("3:")


def test_an_update_carries_out_what_waited() -> None:
    first, second, third = (
        word for n in range(3) for word in as_words(KEY.names([f"record {n}"], "record"))
    )
    log = log_of("removed", "pending", "pending")
    assert (log.erased, log.waiting) == ({first}, {second, third})
    log = log.append(entry((), "removed", records=(), units=()))
    assert (log.erased, log.waiting, log.pending) == ({first, second, third}, set(), ())
    assert log.waiting_units == set()


def test_no_id_is_in_the_file_and_a_guess_cannot_be_tested_without_the_key() -> None:
    content = log_of("removed").content
    assert b"record 0" not in content
    assert KEY.secret not in content
    assert KEY.secret.hex().encode() not in content
    other = HashKey(bytes(32))
    assert other.names(["record 0"], "record")[0].tobytes().hex().encode() not in content
    assert (KEY.names(["a"], "record") != KEY.names(["a"], "unit")).any()


DAMAGES: tuple[Callable[[bytes, list[bytes]], bytes], ...] = (
    lambda content, lines: content[:-1],
    lambda content, lines: content[: len(content) // 2],
    lambda content, lines: b"".join([lines[1], lines[0], *lines[2:]]),
    lambda content, lines: b"".join(lines[1:]),
    lambda content, lines: b"".join([lines[0], *lines[2:]]),
    lambda content, lines: b"".join([*lines, lines[-1]]),
    lambda content, lines: content.replace(b'"kind":"pending"', b'"kind":"removed"'),
    lambda content, lines: content.replace(b'"facts":{}', b'"facts":{},"more":1'),
    lambda content, lines: content.replace(b"{", b"{ ", 1),
    lambda content, lines: content + b"\n",
    lambda content, lines: content + "\u00e9".encode(),
)


@pytest.mark.parametrize("damage", DAMAGES)
def test_every_edit_is_refused_by_its_line(damage: Callable[[bytes, list[bytes]], bytes]) -> None:
    content = log_of("removed", "pending", "pending").content
    with pytest.raises(Broken, match=r"unlearning/log\.jsonl"):
        Log.read(damage(content, content.splitlines(keepends=True)))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_every_changed_byte_is_refused(data: st.DataObject) -> None:
    content = log_of("removed", "pending").content
    place = data.draw(st.integers(0, len(content) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda byte: byte != content[place]))
    with pytest.raises(Broken):
        Log.read(content[:place] + bytes([byte]) + content[place + 1 :])


def test_lines_missing_at_the_end_contradict_the_state() -> None:
    files = {"model.safetensors": "1" * 64, "env.json": "2" * 64}
    log = log_of("removed").append(entry(("b",), after=state_of(files)))
    log.check_state(files)
    with pytest.raises(Broken, match=r"unlearning/log\.jsonl.*number 1\)"):
        Log(log.entries[:1]).check_state(files)
    assert state_of(files) == state_of({**files, "env.json": "3" * 64})
    assert state_of(files) != state_of({**files, "model.safetensors": "3" * 64})
    assert state_of(files) != state_of({**files, "removal.bin": "3" * 64}), (
        "a file of a kind nobody foresaw is the state's"
    )


@pytest.mark.parametrize(
    "change",
    [
        {"records": ("no hash",)},
        {"records": ("b" * 32, "a" * 32)},
        {"units": ()},
        {"before": "sha256:1"},
        {"method": "no name"},
        {"promise": "much"},
        {"key": ""},
        {"kind": "pending", "records": (), "units": ()},  # a request that waits names somebody
    ],
)
def test_an_entry_that_is_none(change: dict[str, Any]) -> None:
    with pytest.raises(
        ConfigError, match=next(iter(change.values() if "kind" in change else change))
    ):
        entry(("a",), **change)


# -- the key
# --------------------------------------------------------------------------------------------------


def test_a_key_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    key = HashKey.read_or_create(tmp_path)
    assert HashKey.read_or_create(tmp_path) == HashKey.of(tmp_path) == key
    assert stat.S_IMODE((tmp_path / "unlearning/key").stat().st_mode) == 0o600
    assert os.listdir(tmp_path / "unlearning") == ["key"]
    assert key.secret.hex() not in repr(key)
    assert HashKey.of(tmp_path / "elsewhere") is None


def test_a_key_that_is_none_or_another(tmp_path: Path) -> None:
    HashKey.read_or_create(tmp_path)
    (tmp_path / "unlearning/key").write_bytes(b"short")
    with pytest.raises(ConfigError, match="5 bytes"):
        HashKey.of(tmp_path)
    log = log_of("removed")
    assert log.check_key(KEY) is KEY
    for key in (None, HashKey(bytes(32))):
        with pytest.raises(Broken, match="unlearning/key"):
            log.check_key(key)


# -- the index
# --------------------------------------------------------------------------------------------------


def people(n: int = 9, units: int = 3) -> Records:
    x = np.arange(2.0 * n, dtype=np.float32).reshape(n, 2)
    ids, names = (
        np.array([f"{word}{row // size}" for row in range(n)])
        for word, size in (("r", 1), ("p", units))
    )
    return Records(x, np.arange(n) % 2, ids, names, np.zeros(n, dtype=bool))


def written(index: Index) -> bytes:
    return b"".join(index.parts)


def test_an_index_is_read_back_and_holds_keyed_hashes_alone() -> None:
    for records in (people(), people(units=1).take(np.arange(0))):
        content = written(Index.from_records(records, KEY))
        again = Index.read(content)
        assert written(again) == content
        assert len(again) == len(records)
    own = people()
    assert Index.from_records(own, KEY).contents.shape == (9, SIZE)
    assert Index.from_records(own, KEY).units is not None
    assert (
        Index.from_records(
            Records(own.features, own.labels, own.ids, own.ids, own.public), KEY
        ).units
        is None
    )
    with pytest.raises(Broken, match=r"records\.bin"):
        Index.read(written(Index.from_records(people(), KEY))[:-1])


def test_what_is_gone_new_and_changed() -> None:
    index = Index.from_records(people(), KEY)
    now = people(10)
    features = now.features.copy()
    features[4, 1] += 1
    changed = Records(features, now.labels, now.ids, now.units, now.public).take(
        np.array([0, 2, 3, 4, 9])
    )
    with pytest.raises(DataError, match=r"\(r9\).*\(r4\)"):
        check_same(index, changed, KEY)


@pytest.mark.parametrize("part", ["labels", "units", "public", "features"])
def test_every_part_of_a_record_counts(part: str) -> None:
    records = people()
    values = {
        name: getattr(records, name).copy()
        for name in ("features", "labels", "ids", "units", "public")
    }
    values[part][2] = {"labels": 1, "units": "p9", "public": True, "features": -1}[part]
    with pytest.raises(DataError, match=r"\((r2|p9)?"):
        check_same(Index.from_records(records, KEY), Records(**values), KEY)


def test_rows_that_went_unasked_are_counted() -> None:
    index = Index.from_records(people(), KEY)
    left = people().take(np.array([0, 1, 4, 5, 6, 7, 8]))
    gone, _ = check_same(index, left, KEY)
    assert gone.tolist() == [2, 3]
    check_missing_were_requested(index, gone, set(as_words(KEY.names(["r2", "r3"], "record"))))
    with pytest.raises(DataError, match=r"\b1 of the 9 .*\b4\b"):
        check_missing_were_requested(index, gone, set(as_words(KEY.names(["r2"], "record"))))
    with pytest.raises(DataError, match="order"):
        check_same(index, people().take(np.arange(9)[::-1]), KEY)


def test_features_of_many_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = written(Index.from_records(people(), KEY))
    monkeypatch.setattr("agt_cli.unlearn.record_index._CHUNK_BYTES", 20)
    assert written(Index.from_records(people(), KEY)) == whole
