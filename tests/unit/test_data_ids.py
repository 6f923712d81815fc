"""Ids from content, made in blocks, against the loop over rows that made them before.

The oracle is a copy of that loop. It must not share code with what it checks, because ids of
records that exist must never change.
"""

import datetime
import gc
from collections import Counter
from hashlib import blake2b

import numpy as np
import pandas as pd
import pytest

from agt.data import ids
from agt.data.ids import content_ids, default_ids, distinct, most_frequent


def exact_row(row: np.ndarray) -> np.ndarray:
    """One record's numbers in the precision that they alone decide."""
    wide = row.astype(np.float64, copy=False)
    if (wide == np.rint(wide)).all():
        return wide
    with np.errstate(over="ignore", under="ignore"):
        narrow = wide.astype(np.float32)
    return narrow if (narrow == wide).all() else wide


def content_ids_by_row(
    features: np.ndarray, labels: np.ndarray, numbered: bool = True, exact: bool = False
) -> np.ndarray:
    """What ``content_ids`` returns, one row after the other."""
    seen: Counter[bytes] = Counter()
    names = np.empty(len(features), dtype="U32")
    for row in range(len(features)):
        numbers = exact_row(features[row]) if exact else features[row]
        content = blake2b(np.ascontiguousarray(numbers).tobytes(), digest_size=16)
        content.update(str(labels[row]).encode())
        digest = content.digest()
        number = seen[digest].to_bytes(8, "little")
        names[row] = blake2b(digest + number, digest_size=16).hexdigest()
        seen[digest] += numbered
    return names


def default_ids_by_row(
    content: np.ndarray,
    *attributes: np.ndarray | None,
    numbered: bool = True,
    exact: bool = False,
) -> np.ndarray:
    """What ``default_ids`` returns, one row after the other."""
    given = [attribute.tolist() for attribute in attributes if attribute is not None]
    tags = [repr(values) for values in zip(*given, strict=True)] if given else [""] * len(content)
    return content_ids_by_row(content, np.array(tags, dtype=object), numbered, exact)


ROWS = 60
HARD_NUMBERS = [np.nan, -0.0, 0.0, np.inf, -np.inf, 1e300, 5e-324, 0.1, 0.5, 2.0**53, 1 / 3]


def hard_floats(dtype: type) -> np.ndarray:
    """Numbers of which many are NaN, infinite, -0.0 or hardly representable, with duplicates."""
    rng = np.random.default_rng(0)
    with np.errstate(over="ignore"):
        numbers = rng.choice(HARD_NUMBERS, size=(ROWS, 3)).astype(dtype)
    numbers[:20] = rng.integers(-3, 3, size=(20, 3))
    numbers[20:30] = rng.choice([0.5, 0.25], size=(10, 3))
    return numbers


CONTENTS = {
    "float64": hard_floats(np.float64),
    "float32": hard_floats(np.float32),
    "int64": np.random.default_rng(1).integers(-2, 2, size=(ROWS, 2)),
    "uint8 images": np.random.default_rng(2).integers(0, 2, size=(ROWS, 2, 2)).astype(np.uint8),
    "bool": np.random.default_rng(3).integers(0, 2, size=(ROWS, 4)).astype(bool),
    "big-endian": np.random.default_rng(4).integers(0, 2, size=(ROWS, 2)).astype(">f8"),
    "one number a row": np.random.default_rng(5).integers(0, 4, size=ROWS).astype(float),
    "no numbers": np.empty((ROWS, 0)),
    "columns first": np.asfortranarray(hard_floats(np.float64)),
    "every second row": np.repeat(hard_floats(np.float64), 2, axis=0)[::2],
}

_CELLS = ["a", "a ", "", None, np.nan, -0.0, 0.0, 1, 1.0, True, False, "1", "é", "a'b", 10**30]
_DATES = [datetime.date(2024, 12, 31), pd.Timestamp("2024-12-31"), datetime.datetime(2024, 12, 31)]


def cells(values: list[object], seed: int) -> np.ndarray:
    """A column of ``ROWS`` values, drawn with duplicates; NaN and None stay objects."""
    column = np.empty(ROWS, dtype=object)
    for row, place in enumerate(np.random.default_rng(seed).integers(0, len(values), ROWS)):
        column[row] = values[place]
    return column


ATTRIBUTES = {
    "none": (),
    "absent": (None, None),
    "mixed cells": (cells([*_CELLS, *_DATES], 0),),
    "text": (cells(["no", "yes"], 1).astype(str), None),
    "integers and flags": (
        np.random.default_rng(6).integers(0, 2, ROWS),
        np.random.default_rng(7).integers(0, 2, ROWS).astype(bool),
    ),
    "words by column": (np.stack([cells(["a", None], 2), cells(["b", "c"], 3)], axis=1),),
    "no words": (np.empty((ROWS, 0), dtype=object), cells(["no", "yes"], 4)),
    "dates": (np.array(["2024-01-01", "2024-01-02"] * (ROWS // 2), dtype="datetime64[D]"),),
    "float32": (np.array([0.1, 0.2] * (ROWS // 2), dtype=np.float32),),
}


@pytest.fixture(params=[2, 7, 2**15])
def block_rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few rows, of which the last is shorter, and one block."""
    monkeypatch.setattr(ids, "ROWS", request.param)
    monkeypatch.setattr(ids, "_LISTED_ROWS", request.param)


@pytest.mark.usefixtures("block_rows")
@pytest.mark.parametrize("attributes", ATTRIBUTES.values(), ids=[*ATTRIBUTES])
@pytest.mark.parametrize("content", CONTENTS.values(), ids=[*CONTENTS])
def test_ids_in_blocks_are_those_of_single_rows(
    content: np.ndarray, attributes: tuple[np.ndarray | None, ...]
) -> None:
    for numbered in (True, False):
        for exact in (True, False):
            made = default_ids(content, *attributes, numbered=numbered, exact=exact)
            expected = default_ids_by_row(content, *attributes, numbered=numbered, exact=exact)
            assert made.dtype == expected.dtype
            assert made.tolist() == expected.tolist()


def test_ids_of_many_rows_start_hardly_any_search_for_garbage() -> None:
    rows = 20 * gc.get_threshold()[0]
    starts: list[int] = []

    def count(phase: str, details: dict[str, int]) -> None:
        if phase == "start":
            starts.append(details["generation"])

    gc.callbacks.append(count)
    try:
        default_ids(np.zeros((rows, 2)), np.empty((rows, 0), dtype=object), np.zeros(rows))
    finally:
        gc.callbacks.remove(count)
    assert len(starts) < 5


@pytest.mark.parametrize(
    "labels",
    [
        np.arange(ROWS) % 3,
        np.array([0.1, 1e16, np.nan] * (ROWS // 3), dtype=np.float32),
        np.array([0.1, 1e16, np.nan] * (ROWS // 3)),
        np.arange(ROWS) % 2 == 0,
        np.array(["2024-01-01"] * ROWS, dtype="datetime64[D]"),
        np.array(["a", "bc"] * (ROWS // 2)),
        cells([*_CELLS, *_DATES], 5),
    ],
    ids=["int64", "float32", "float64", "bool", "dates", "text", "objects"],
)
def test_labels_are_hashed_as_they_were(labels: np.ndarray) -> None:
    content = CONTENTS["float64"]
    assert content_ids(content, labels).tolist() == content_ids_by_row(content, labels).tolist()


def test_large_rows_are_hashed_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "HASHED_BYTES", 1)  # less than one row
    content = CONTENTS["float64"]
    labels = np.zeros(ROWS, dtype=int)
    assert content_ids(content, labels).tolist() == content_ids_by_row(content, labels).tolist()


@pytest.mark.parametrize("copies", [2, 3, 4])
def test_each_copy_has_an_id_of_its_own(copies: int) -> None:
    rows = np.repeat(np.arange(5.0), copies)[:, None]
    found = ids.content_ids(rows, np.zeros(len(rows)))
    assert len({*found}) == len(rows)
    families = ids.content_ids(rows, np.zeros(len(rows)), numbered=False)
    assert {*families} == {*found[::copies]}, "the first keeps the family's"


def test_copies_are_told_apart_by_their_whole_digest() -> None:
    digests = np.zeros((4, ids.DIGEST_BYTES), dtype=np.uint8)
    digests[1, -1] = 1  # begins like the others
    families = ids.ids_of_digests(digests)
    names = ids.number_copies(families, digests)
    assert len(set(names.tolist())) == 4
    assert names[:2].tolist() == families[:2].tolist()


def test_no_records_have_no_ids() -> None:
    assert default_ids(np.empty((0, 3)), np.empty(0, dtype=object)).shape == (0,)
    assert content_ids(np.empty((0, 3)), np.empty(0), exact=True).dtype == np.dtype("U32")


@pytest.mark.parametrize("values", [[], [7], [3, 1, 3, 3, 2, 1], [2**64 - 1, 0, 2**63, 0]])
def test_distinct_numbers_are_those_of_numpy(values: list[int]) -> None:
    hashes = np.array(values, dtype=np.uint64)
    np.testing.assert_array_equal(distinct(hashes), np.unique(hashes))


@pytest.mark.parametrize("letters", [1, 2, 5, 32])
def test_a_repeated_name_is_found_however_wide_its_array_is(letters: int) -> None:
    names = np.array([*"abcdefgh", "x" * letters, "c"])
    assert most_frequent(names) == ("c", 2)
    assert most_frequent(names[:-1]) is None


def test_names_have_the_same_rough_hash_in_a_wider_array() -> None:
    names = np.array(["a", "abc", "abcd", ""])
    wider = names.astype("U7")
    np.testing.assert_array_equal(ids.rough_hash(wider), ids.rough_hash(names))


@pytest.mark.parametrize("width", [1, 2, 5])
def test_rows_that_differ_in_one_number_or_in_their_order_have_other_rough_hashes(
    width: int,
) -> None:
    row = np.arange(1, width + 1, dtype=np.float32)
    rows = [row, np.zeros_like(row), *(np.roll(row, shift) for shift in range(1, width))]
    for column in range(width):
        rows.append(np.where(np.arange(width) == column, np.float32(0.5), row))
    hashes = ids.rough_row_hash(np.array(rows, dtype=np.float32))
    assert len({*hashes.tolist()}) == len(rows)
    assert ids.rough_row_hash(row[None])[0] == hashes[0]
