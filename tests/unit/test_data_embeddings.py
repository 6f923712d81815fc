"""Embeddings: scaling by public constants, splits, ids, and bad input."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agt.data.embeddings import Embeddings, public_digest
from agt.data.in_memory import Declared, dataset_from_arrays
from agt.data.labels import class_indices
from agt.data.records import UNLABELLED
from agt.errors import DataError
from agt.facts import Standing

X = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float16)
Y = np.arange(40) % 2
TEST = np.arange(40) % 4 == 3


def npz(folder: Path, **changes: Any) -> Path:
    np.savez(folder / "e.npz", **{"x": X, "label": Y, "is_test": TEST.astype(np.uint8), **changes})
    return folder / "e.npz"


def test_scaling_is_computed_in_double_precision_and_rounded_once(tmp_path: Path) -> None:
    center = np.random.default_rng(1).normal(size=6).astype(np.float32)
    source = Embeddings(
        path=npz(tmp_path, center=center), is_test="is_test", center="center", scale=20.0
    )
    dataset = source.load()
    expected = ((X.astype(np.float64) - center.astype(np.float64)) * 20.0).astype(np.float32)
    assert np.array_equal(dataset.train.features, expected[~TEST])
    assert np.array_equal(dataset.test.features, expected[TEST])
    assert dataset.train.labels.tolist() == Y[~TEST].tolist()
    inline = Embeddings(
        path=source.path, is_test="is_test", center=tuple(center.tolist()), scale=20.0
    ).load()
    assert np.array_equal(inline.train.features, dataset.train.features)


def test_unit_norm(tmp_path: Path) -> None:
    x = X.copy()
    x[5] = 0.5
    source = Embeddings(
        path=npz(tmp_path, x=x), center=(0.5,) * 6, unit_norm=True, scale=3.0, is_test="is_test"
    )
    features = source.load().train.features
    zero = np.flatnonzero(np.flatnonzero(~TEST) == 5)
    norms = np.linalg.norm(features.astype(np.float64), axis=1)
    assert norms[zero].tolist() == [0.0]
    assert np.delete(norms, zero) == pytest.approx(3.0, rel=1e-6)


@pytest.mark.parametrize(
    ("settings", "held"),
    [
        ({}, True),
        ({"center": (0.0,) * 6}, False),
        ({"center": "mean"}, False),
        ({"center": "mean", "public_scaling": True}, True),
    ],
)
def test_a_center_must_be_declared_public(
    tmp_path: Path, settings: dict[str, Any], held: bool
) -> None:
    path = npz(tmp_path, mean=np.ones(6))
    fact = Embeddings(path=path, classes=("0", "1"), **settings).load().preprocessing
    assert fact.held is held
    center = fact.facts[0]
    assert ("dataset.public_scaling=true" in center.sentence) == (
        center.standing is not Standing.PROVED
    )
    assert bool(center.broken_by) == ("public_scaling" in settings)
    found = Embeddings(path=path, **settings).load().preprocessing
    assert not found.held
    assert "classes_found" in {fact.code for fact in found.facts}


@pytest.mark.parametrize("memory", [False, True], ids=["file", "arrays"])
def test_ids_do_not_depend_on_the_precision_that_another_record_brings(
    tmp_path: Path, memory: bool
) -> None:
    """Hashes of bytes as they lie in the file: one float64 record more and every id, batch and
    split is another.
    """
    wider = np.append(X.astype(np.float32), [[0.1] * 6]).reshape(-1, 6)
    kept = []
    for name, x, y in (
        ("half", X, Y),
        ("single", X.astype(np.float32), Y),
        ("more", wider, np.append(Y, 1)),
    ):
        (tmp_path / name).mkdir()
        np.savez(tmp_path / name / "e.npz", x=x, label=y)
        train = (
            Embeddings(path=tmp_path / name / "e.npz", classes=("0", "1"), split_key="s")
            .load()
            .train
        )
        train = dataset_from_arrays(x, y, Declared())[0].train if memory else train
        kept.append(set(train.ids.tolist()))
    assert wider.dtype == np.float64
    assert kept[0] == kept[1]
    assert kept[1] <= kept[2]
    assert len(kept[2]) <= len(kept[1]) + 1


def test_parquet_with_ids_units_and_public_flags(tmp_path: Path) -> None:
    path = tmp_path / "e.parquet"
    people = [f"p{i // 2}" for i in range(40)]
    columns = {
        "v": list(X.astype(np.float32)),
        "y": ["no", "yes"] * 20,
        "key": range(100, 140),
        "who": people,
    }
    pq.write_table(pa.table({**columns, "open": [i < 4 for i in range(40)]}), path)
    dataset = Embeddings(path=path, x="v", label="y", id="key", unit="who", public="open").load()
    everyone = [*dataset.train.ids, *dataset.test.ids]
    assert sorted(everyone) == [str(i) for i in range(100, 140)]
    assert dataset.classes == ("no", "yes")
    for records in (dataset.train, dataset.test):
        rows = records.ids.astype(int) - 100
        assert np.array_equal(records.features, X[rows].astype(np.float32))
        assert records.units.tolist() == [people[row] for row in rows]
        assert records.public.tolist() == [row < 4 for row in rows.tolist()]
    assert not set(dataset.train.units) & set(dataset.test.units)


@pytest.mark.parametrize(
    ("changes", "settings", "message"),
    [
        (
            {},
            {"label": "lable"},
            r"'lable'.*dataset\.label.*'label'",
        ),
        ({}, {"x": "vectors"}, r"'vectors'.*dataset\.x"),
        (
            {"label": np.where(Y == 1, 1.0, np.nan)},
            {},
            r"'label' \(dataset\.label\).*row 1\b",
        ),
        ({"label": np.arange(39)}, {}, r"\b40\b.*\b39\b.*'label'"),
        (
            {"label": Y * 2},
            {"classes": (0, 1)},
            r"row 2\b.*'2'.*0, 1",
        ),
        ({"is_test": np.zeros(40, dtype=int)}, {"is_test": "is_test"}, "no test records"),
        (
            {"is_test": np.full(40, 2)},
            {"is_test": "is_test"},
            r"dataset\.is_test\) .*'2'.*row 1\b",
        ),
        (
            {"x": np.where(np.arange(240).reshape(40, 6) == 99, np.nan, 1.0)},
            {},
            r"dataset\.x\) .*NaN.*row 17\b",
        ),
        ({"x": np.array([["a"] * 6] * 40)}, {}, r"'x'.*<U1.*dataset\.x"),
        ({"x": X[:, 0]}, {}, r"'x'.*float16.*\(40,\)"),
        (
            {"mean": np.ones(5)},
            {"center": "mean"},
            r"dataset\.center.*\(5,\).*\(6,\)",
        ),
        (
            {"mean": np.full(6, np.inf)},
            {"center": "mean"},
            r"'mean' \(dataset\.center\)",
        ),
        ({"x": X[:0], "label": Y[:0]}, {}, r"e\.npz: "),
    ],
)
def test_bad_input(
    tmp_path: Path, changes: dict[str, Any], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message) as caught:
        Embeddings(path=npz(tmp_path, **changes), **settings).load()
    assert caught.value.exit_code == 2


def test_queries(tmp_path: Path) -> None:
    """That they are scaled as records are, the contract asks of every kind (test_datasets.py)."""
    source = Embeddings(
        path=npz(tmp_path, mean=np.ones(6)), is_test="is_test", center="mean", scale=2.0
    )
    np.savez(tmp_path / "named.npz", x=X[TEST], id=np.arange(10), mean=np.ones(6))
    named = source.load_queries(tmp_path / "named.npz")
    assert named.ids.tolist() == [str(i) for i in range(10)]
    assert (named.labels == UNLABELLED).all()
    for message, arrays in (
        (r"bad\.npz: .*\b5\b.*\b6\b", {"x": X[:, :5]}),
        (r"bad\.npz: .*'mean'", {"x": X[:3], "mean": np.full(6, 1.5)}),
    ):
        np.savez(tmp_path / "bad.npz", **arrays)
        with pytest.raises(DataError, match=message):
            source.load_queries(tmp_path / "bad.npz")


def test_a_folder_of_npy_files_stays_memory_mapped(tmp_path: Path) -> None:
    x = np.arange(40, dtype=np.float32).reshape(10, 4)
    for name, values in {"x": x, "y": np.arange(10) % 2, "is_test": np.arange(10) >= 8}.items():
        np.save(tmp_path / f"{name}.npy", values)
    dataset = Embeddings(
        path=tmp_path, data_dir=tmp_path, x="x", label="y", is_test="is_test"
    ).load()
    for part, rows in ((dataset.train, slice(0, 8)), (dataset.test, slice(8, 10))):
        assert isinstance(part.features.base, np.memmap)
        np.testing.assert_array_equal(part.features, x[rows])


def test_a_file_that_only_has_the_name_of_the_one_declared_about_is_refused(tmp_path: Path) -> None:
    path = npz(tmp_path, mean=np.ones(6))
    settings: dict[str, Any] = {"classes": ("0", "1"), "center": "mean", "public_scaling": True}
    source = Embeddings(path=path, **settings)
    digest = public_digest(source.load().test, np.ones(6))
    assert len(Embeddings(path=path, public_digest=digest, **settings).load().test)
    other = npz(tmp_path, mean=np.full(6, 1.5))
    with pytest.raises(
        DataError,
        match=r"e\.npz: .*dataset\.public_digest",
    ):
        Embeddings(path=other, public_digest=digest, **settings).load()


@pytest.mark.parametrize("extensible", [True, False])
def test_only_declared_classes_may_be_extended(
    extensible: bool,
) -> None:
    with pytest.raises(DataError) as error:
        class_indices(np.array(["c"]), ("a", "b"), Path("x.npz"), extensible=extensible)
    assert ("dataset.classes" in str(error.value)) == extensible


def test_a_center_of_one_number_is_subtracted_from_every_feature(tmp_path: Path) -> None:
    path = npz(tmp_path)
    settings: dict[str, Any] = {"classes": ("0", "1"), "is_test": "is_test"}
    one = Embeddings(path=path, center=0.5, public_scaling=True, **settings)
    every = Embeddings(path=path, center=(0.5,) * 6, public_scaling=True, **settings)
    dataset = one.load()
    assert np.array_equal(dataset.train.features, every.load().train.features)
    assert dataset.preprocessing.held
    assert dataset.settled is not None
    assert dataset.settled["center"] == 0.5
    np.savez(tmp_path / "queries.npz", x=X[TEST])
    assert np.array_equal(
        one.load_queries(tmp_path / "queries.npz").features, dataset.test.features
    )
    undeclared = Embeddings(path=path, center=0.5, **settings).load().preprocessing
    assert not undeclared.held, "a typed center may be a mean of the records"
