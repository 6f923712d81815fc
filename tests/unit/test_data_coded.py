"""Tables held as codes: every number and id as of the table held as an array."""

import copy
import pickle
from collections.abc import Callable
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from agt.certificates.stability import certify_linear, labels_from_codes
from agt.data import encoding as encoding_module
from agt.data.arrays import Mapped, as_array
from agt.data.coded import CodedFeatures, Lookup, RowLookup
from agt.data.dataset import Dataset
from agt.data.encoding import Encoding
from agt.data.records import DataError, Records, records
from agt.data.table import Table
from agt.data.target import ClassTarget
from agt.errors import UnsoundError
from agt.models.features import FeatureMap
from agt.settings import FeaturesConfig
from agt.training.linear import LinearTrained
from agt.training.sensitivity import LinearLoss, Sensitivity
from agt_cli.unlearn.hash_key import HashKey
from agt_cli.unlearn.record_index import Index, check_same

LIMITS = {"x": (-3.0, 3.0), "edges": (0.0, 1.0, 5.0), "y": (-3.0, 3.0)}
LISTED = {"region": ("north", "south"), "one": ("west",)}


def content(rows: int, missing: bool) -> tuple[np.ndarray, np.ndarray]:
    """Numbers and words of rows, some outside of ranges and lists, some missing."""
    rng = np.random.default_rng(0)
    numbers = rng.normal(scale=2, size=(rows, len(LIMITS)))
    numbers[:5] = [[-3, 0, 3], [0, 1, -0.0], [np.inf, 5, 1e300], [-np.inf, 1, 0], [5e-324, 0, 0]]
    words = rng.choice(np.array(["north", "south", "west"], dtype=object), size=(rows, 2))
    if missing:
        numbers[rng.random(numbers.shape) < 0.2] = np.nan
        words[rng.random(words.shape) < 0.2] = None
    return numbers, words


def both(missing: bool, rows: int = 600) -> tuple[np.ndarray, CodedFeatures]:
    """The same features as an array, and as codes."""
    encoding = Encoding(LIMITS, LISTED, bins=20, indicator=missing)
    numbers, words = content(rows, missing)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoding_module, "ARRAY_BYTES", 0)
        coded = encoding.encode_compactly(numbers, words)
    assert isinstance(coded, CodedFeatures)
    return encoding(numbers, words), coded


def same_bits(one: object, other: object) -> bool:
    """Whether two arrays have one dtype, one shape and the same bytes (so -0.0 is not 0.0)."""
    first = np.asarray(one)
    second = np.asarray(other)
    alike = first.dtype == second.dtype and first.shape == second.shape
    return alike and first.tobytes() == second.tobytes()


@pytest.mark.parametrize("missing", [False, True])
def test_codes_give_the_features_of_the_table(missing: bool) -> None:
    array, coded = both(missing)
    assert same_bits(coded, array)
    assert (coded.shape, coded.dtype, len(coded)) == (array.shape, array.dtype, len(array))
    assert (coded.nbytes, coded.itemsize) == (array.nbytes, array.itemsize)


def test_rows_are_coded_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding_module, "CODED_ROWS", 256)  # two blocks, and a shorter one
    array, coded = both(missing=True, rows=600)
    assert same_bits(coded, array)


@pytest.mark.parametrize(
    "rows",
    [
        slice(0, 0),
        slice(3, 300),
        slice(None, None, 7),
        np.array([5, 1, 5]),
        np.arange(600) % 3 == 0,
    ],
    ids=["none", "slice", "steps", "numbers", "mask"],
)
def test_some_rows_are_those_of_the_array(rows: slice | np.ndarray) -> None:
    array, coded = both(missing=True)
    assert same_bits(coded[rows], array[rows])


@pytest.mark.parametrize(
    "use",
    [
        lambda x: x[3],
        lambda x: x[-1],
        lambda x: x[[4, 2]],
        lambda x: x[:5, 1],
        lambda x: x + 1,
        lambda x: np.ones(x.shape[1]) - x,
        lambda x: x.reshape(len(x), -1, 1),
        lambda x: x.astype(np.float64),
        lambda x: np.concatenate([x, x]),
        lambda x: pickle.loads(pickle.dumps(x)),
        lambda x: copy.deepcopy(x),
    ],
)
def test_whatever_else_is_asked_is_asked_of_the_array(use: Callable[[Any], object]) -> None:
    array, coded = both(missing=True)
    assert same_bits(use(coded), use(array))


def _add_in_place(x: Any) -> None:
    x += 1


def _set_a_row(x: Any) -> None:
    x[3] = 0


@pytest.mark.parametrize(
    "write",
    [
        _add_in_place,
        _set_a_row,
        lambda x: x.fill(0),
        lambda x: x.sort(axis=0),
        lambda x: x.reshape(-1).fill(0),
        lambda x: np.negative(x, out=x),
        lambda x: np.copyto(x, 0),
    ],
)
def test_nothing_is_written_into_codes(write: Callable[[Any], object]) -> None:
    array, coded = both(missing=True)
    with pytest.raises((TypeError, ValueError)):
        write(coded)
    assert same_bits(coded, array)


@pytest.mark.parametrize(
    "encoding",
    [
        Encoding(LIMITS, LISTED, bins=20, crosses=8),
        Encoding(LIMITS, LISTED, bins=0),
        Encoding(LIMITS, {"many": tuple(map(str, range(255)))}, bins=20),
    ],
    ids=["crosses", "scaled", "more words than codes"],
)
def test_a_table_that_a_byte_does_not_tell_is_an_array(
    encoding: Encoding, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoding_module, "ARRAY_BYTES", 0)
    numbers, words = content(20, missing=True)
    words = words[:, : len(encoding.listed)]
    assert isinstance(encoding.encode_compactly(numbers, words), np.ndarray)


def test_a_small_table_is_an_array() -> None:
    encoding = Encoding(LIMITS, LISTED, bins=20)
    assert isinstance(encoding.encode_compactly(*content(20, missing=False)), np.ndarray)


@pytest.mark.parametrize("radius", [None, 0.5, 100.0])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("missing", [False, True])
def test_public_features_have_the_bits_of_the_array(
    missing: bool, dtype: str, radius: float | None
) -> None:
    array, coded = both(missing)
    features = FeatureMap(FeaturesConfig(radius=radius), array.shape[1])
    expected = features(array, dtype)
    assert same_bits(features(coded, dtype), expected)
    on_demand = features.phi_of_records(coded, dtype, memory_mb=0)
    assert isinstance(on_demand, Mapped)
    rows = np.array([0, 4, 17, 599])
    assert same_bits(on_demand[rows], expected[rows])
    assert same_bits(on_demand[slice(2, 500)], expected[2:500])


def test_public_features_of_other_maps_have_the_bits_of_the_array() -> None:
    array, coded = both(missing=False)
    config = FeaturesConfig(map="relu", count=16)
    features = FeatureMap.from_dataset(config, _dataset(array))
    assert same_bits(features(coded), features(array))


def test_rows_of_two_lengths_are_not_changed_by_codes() -> None:
    _, coded = both(missing=True)
    assert coded.with_rows_changed(lambda rows: rows) is None


def test_rows_of_one_length_are_changed_by_codes() -> None:
    array, coded = both(missing=False)
    changed = coded.with_rows_changed(lambda rows: np.concatenate([rows / 3, rows[:, :1] ** 2], 1))
    assert changed is not None
    expected = np.concatenate([array / 3, array[:, :1] ** 2], axis=1)
    assert same_bits(changed, expected)


def test_no_rows_are_changed_by_no_codes() -> None:
    _, coded = both(missing=False)
    assert coded[:0].with_rows_changed(lambda rows: rows) is None


def test_a_level_that_is_not_finite_is_refused_by_its_row() -> None:
    levels = np.array([[0.0], [np.nan]])
    coded = CodedFeatures(np.array([[0], [1]], dtype=np.uint8), RowLookup((Lookup(0, levels),)))
    names = np.array(["a", "b"])
    with pytest.raises(DataError, match="'b'"):
        records(coded, np.zeros(2), names)  # type: ignore[arg-type]


def test_a_level_that_does_not_occur_may_be_anything() -> None:
    levels = np.array([[0.0], [np.nan]])
    coded = CodedFeatures(np.array([[0], [0]], dtype=np.uint8), RowLookup((Lookup(0, levels),)))
    assert coded.not_finite() is None


def test_rows_that_are_too_long_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    array, coded = both(missing=False)
    features = FeatureMap(FeaturesConfig(), array.shape[1])
    whole = FeatureMap._transform
    monkeypatch.setattr(
        FeatureMap, "_transform", lambda self, rows, dtype: 1.1 * whole(self, rows, dtype)
    )
    with pytest.raises(UnsoundError):
        features(coded)


@pytest.mark.parametrize("missing", [False, True])
def test_products_from_codes_are_those_of_the_array(missing: bool) -> None:
    array, coded = both(missing)
    weights = np.random.default_rng(0).normal(size=(3, array.shape[1]))
    np.testing.assert_allclose(coded.dot(weights), array @ weights.T, rtol=0, atol=1e-13)


@pytest.mark.parametrize("outputs", [1, 3])
def test_labels_from_codes_are_those_of_certificates(outputs: int) -> None:
    trained, coded = head_and_queries(outputs)
    expected = certify_linear(trained, np.asarray(coded), "add_remove", (1,)).prediction
    labels = labels_from_codes(trained, coded)
    assert labels is not None
    assert same_bits(labels, expected)
    assert len(set(labels.tolist())) == max(2, outputs)


@pytest.mark.parametrize("outputs", [1, 3])
def test_no_labels_come_from_codes_where_rounding_may_decide(outputs: int) -> None:
    trained, coded = head_and_queries(outputs)
    tied = replace(trained, weight=torch.zeros_like(trained.weight))
    assert labels_from_codes(tied, coded) is None


def head_and_queries(outputs: int) -> tuple[LinearTrained, CodedFeatures]:
    """A head with random weights, and queries held as codes."""
    array, queries = both(missing=False)
    coded = FeatureMap(FeaturesConfig(), array.shape[1]).coded(as_array(queries), "float64")
    assert coded is not None
    weight = torch.from_numpy(np.random.default_rng(0).normal(size=(outputs, coded.shape[1])))
    kind = "binary" if outputs == 1 else "softmax"
    loss = LinearLoss(kind, outputs, 1.0, 0.5, 1.0, 1.0)
    sensitivity = Sensitivity(0.01, 1e-12, radius=10.0, rate_limit=None, records_per_edit=1)
    return LinearTrained(weight, loss, None, sensitivity, None), coded  # type: ignore[arg-type]


def write_csv(folder: Path, missing: bool) -> Path:
    """Write a table of 300 rows with duplicates, a label, and cells that are missing or not."""
    numbers, words = content(300, missing)
    frame = pd.DataFrame(np.where(np.isinf(numbers), 1.0, numbers), columns=[*LIMITS])
    frame["region"], frame["one"] = words.T
    frame["label"] = np.where(np.arange(300) % 3, "yes", "no")
    frame = pd.concat([frame, frame[:20], frame[:7]])
    path = folder / "table.csv"
    frame.to_csv(path, index=False)
    return path


def _dataset(array: np.ndarray) -> Dataset:
    labels = np.arange(len(array)) % 2
    names = np.arange(len(array)).astype(str)
    everyone = records(array, labels, names)
    return Dataset("test", ClassTarget(("0", "1")), everyone, everyone, None, {}, None, None)  # type: ignore[arg-type]


def loaded_both_ways(
    folder: Path, missing: bool, monkeypatch: pytest.MonkeyPatch
) -> tuple[Dataset, Dataset]:
    """The same table with features that are held as an array, and as codes."""
    source = Table(
        path=write_csv(folder, missing),
        label="label",
        numeric=LIMITS,
        categorical=LISTED,
        bins=20,
        missing="indicator" if missing else "error",
    )
    monkeypatch.setattr(encoding_module, "ARRAY_BYTES", 2**40)
    held_as_array = source.load()
    monkeypatch.setattr(encoding_module, "ARRAY_BYTES", 0)
    held_as_codes = source.load()
    assert isinstance(held_as_array.train.features, np.ndarray)
    assert isinstance(held_as_codes.train.features, CodedFeatures)
    return held_as_array, held_as_codes


@pytest.mark.parametrize("missing", [False, True])
def test_a_table_is_the_same_dataset_however_it_is_held(
    missing: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held_as_array, held_as_codes = loaded_both_ways(tmp_path, missing, monkeypatch)
    assert held_as_codes.same_records(held_as_array)
    assert held_as_codes.notes == held_as_array.notes
    assert held_as_codes.coding is not None
    coded = held_as_codes.coding.coded(held_as_array.train.features)
    assert coded is not None
    assert same_bits(coded.codes, held_as_codes.train.features.codes)  # type: ignore[attr-defined]


@pytest.mark.parametrize("missing", [False, True])
def test_a_table_has_one_digest_however_it_is_held(
    missing: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ledger knows closed data by it: with two digests they would pass as new."""
    held_as_array, held_as_codes = loaded_both_ways(tmp_path, missing, monkeypatch)
    assert held_as_codes.digest == held_as_array.digest


@pytest.mark.parametrize("missing", [False, True])
def test_records_are_found_again_in_an_index_however_the_table_is_held(
    missing: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = HashKey(bytes(32))
    datasets = loaded_both_ways(tmp_path, missing, monkeypatch)
    for then, now in permutations(datasets):
        index = Index.read(b"".join(Index.from_records(then.train, key).parts))
        assert index.of_codes == isinstance(then.train.features, CodedFeatures)
        gone, place = check_same(index, now.train.take(np.arange(3, 200)), key, now.coding)
        assert gone.tolist() == [row for row in range(len(index)) if row not in range(3, 200)]
        assert place.tolist() == list(range(3, 200))


CHANGES: dict[str, Callable[[Records], dict[str, object]]] = {
    "a code": lambda old: {"features": _with_another_code(old.features)},
    "a label": lambda old: {"labels": 1 - old.labels},
    "the type of labels": lambda old: {"labels": old.labels.astype(np.float64)},
    "a flag": lambda old: {"public": ~old.public},
    "a unit": lambda old: {"units": np.array([f"u{name}" for name in old.ids.tolist()])},
}


def _with_another_code(features: np.ndarray) -> CodedFeatures:
    assert isinstance(features, CodedFeatures)
    codes = features.codes.copy()
    codes[1, 0] += 1
    return CodedFeatures(codes, features.lookup)


def two_records(**changes: object) -> Records:
    """Two records with features that are held as codes."""
    levels = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    lookup = RowLookup((Lookup(0, levels), Lookup(1, levels[:, :1])))
    features = CodedFeatures(np.array([[0, 1], [1, 2]], dtype=np.uint8), lookup)
    names = np.array(["1", "23"])
    public = np.zeros(2, dtype=bool)
    values = {"features": features, "labels": np.arange(2), "ids": names, "public": public}
    return Records(**{"units": names, **values, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_changes_in_a_record_is_noticed_by_its_index(change: str) -> None:
    key = HashKey(bytes(32))
    before = two_records()
    after = two_records(**CHANGES[change](before))
    assert not np.array_equal(
        Index.from_records(before, key).contents[1], Index.from_records(after, key).contents[1]
    )
    with pytest.raises(DataError, match="23"):
        check_same(Index.from_records(before, key), after, key)


CODINGS = {
    "a level": lambda levels: (Lookup(0, levels + 1), Lookup(1, levels[:, :1])),
    "a level that does not occur": lambda levels: (
        Lookup(0, np.concatenate([levels, levels + 1])),
        Lookup(1, levels[:, :1]),
    ),
    "the precision": lambda levels: (
        Lookup(0, levels.astype(np.float32)),
        Lookup(1, levels[:, :1].astype(np.float32)),
    ),
    "the width of a column": lambda levels: (Lookup(0, levels[:, :1]), Lookup(1, levels)),
    "the column of a code": lambda levels: (Lookup(1, levels), Lookup(0, levels[:, :1])),
}


@pytest.mark.parametrize("change", CODINGS)
def test_equal_codes_with_another_meaning_are_another_content(change: str) -> None:
    key = HashKey(bytes(32))
    before = two_records()
    assert isinstance(before.features, CodedFeatures)
    lookups = CODINGS[change](before.features.lookup.lookups[0].levels)
    other = CodedFeatures(before.features.codes, RowLookup(lookups))
    after = two_records(features=other)
    contents = Index.from_records(after, key).contents
    assert (contents != Index.from_records(before, key).contents).any(axis=1).all()


def test_features_that_no_codes_make_are_not_held_as_codes() -> None:
    array, coded = both(missing=True)
    for column in (0, array.shape[1] - 1):  # of a number, and of an indicator
        changed = array.copy()
        changed[3, column] = 0.5
        assert coded.lookup.coded(changed) is None
    negative_zero = np.where(array == 0, -array, array)
    assert coded.lookup.coded(negative_zero) is None
    assert coded.lookup.coded(array.astype(np.float64)) is None
    assert coded.lookup.coded(array[:, 1:]) is None


def test_no_records_are_held_as_codes() -> None:
    array, coded = both(missing=True)
    none = coded.lookup.coded(array[:0])
    assert none is not None
    assert none.shape == (0, array.shape[1])
