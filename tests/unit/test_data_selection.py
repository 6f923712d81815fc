"""Condition b: what a record becomes, and which part it lands in, does not depend on the other records.

Each source is loaded from a file and from the same file without one row; the records that remain must be the same,
copies included. Copies of one content with different units, labels or public flags are in the data on purpose: numbering
them across those attributes would rename one when another goes.
"""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agt.data.dataset import Dataset, Records
from agt.data.embeddings import Embeddings
from agt.data.ids import uniform
from agt.data.medmnist import MedMnist
from agt.data.table import Table

REMOVED = (0, 1, 2, 3, 20, 41)


def contents(dataset: Dataset) -> Counter[tuple[Any, ...]]:
    parts = {"train": dataset.train, "test": dataset.test, "pretrain": dataset.pretrain}
    return Counter(row for name, part in parts.items() if part is not None for row in rows(name, part))


def rows(part: str, records: Records) -> list[tuple[Any, ...]]:
    return [
        (part, str(i), str(u), bool(p), int(label), x.tobytes())
        for i, u, p, label, x in zip(
            records.ids, records.units, records.public, records.labels, records.features, strict=True
        )
    ]


def people(n: int = 60) -> dict[str, np.ndarray]:
    """Rows of which the first four have one content and differ in unit, public flag or nothing."""
    rng = np.random.default_rng(1)
    columns = {
        "a": rng.normal(size=n),
        "b": rng.choice(["n", "s", "w"], size=n),
        "y": np.arange(n) % 2,
        "who": np.array([f"p{i // 2}" for i in range(n)]),
        "open": np.arange(n) % 3 == 0,
    }
    for name in ("a", "b", "y"):
        columns[name][:4] = columns[name][0]
    columns["who"][:4] = ["p0", "p0", "p1", "p0"]
    columns["open"][:4] = [False, False, False, True]
    return columns


def table(path: Path, keep: np.ndarray, **options: Any) -> Table:
    pq.write_table(pa.table({name: column[keep] for name, column in people().items()}), path)
    numeric = options.pop("numeric", {"a": (-2, 2)})
    return Table(path=path, label="y", numeric=numeric, categorical={"b": ("n", "s")}, **options)


def embeddings(path: Path, keep: np.ndarray, **options: Any) -> Embeddings:
    columns = people()
    x = np.stack([columns["a"], columns["a"] ** 2, np.ones(60)], axis=1).astype(np.float16)
    np.savez(
        path,
        x=x[keep],
        label=columns["y"][keep],
        who=columns["who"][keep],
        open=columns["open"][keep],
        mean=np.full(3, 0.125),
    )
    return Embeddings(path=path, center="mean", public_scaling=True, scale=3.0, **options)


GROUPED = {"unit": "who", "public": "open"}
SOURCES: list[tuple[Callable[..., Any], str, dict[str, Any]]] = [
    (table, "t.parquet", {}),
    (table, "t.parquet", GROUPED),
    (table, "t.parquet", {"classes": (0, 1), "missing": "indicator"}),
    (embeddings, "e.npz", {}),
    (embeddings, "e.npz", {**GROUPED, "unit_norm": True}),
]


@pytest.mark.parametrize(("source", "name", "options"), SOURCES)
@pytest.mark.parametrize("removed", REMOVED)
def test_removing_a_row_changes_no_other(
    tmp_path: Path, source: Callable[..., Any], name: str, options: dict[str, Any], removed: int
) -> None:
    everyone = np.arange(60)
    whole = contents(source(tmp_path / name, everyone, **options).load())
    rest = contents(source(tmp_path / name, np.delete(everyone, removed), **options).load())
    assert rest <= whole
    assert rest.total() == whole.total() - 1 == 59


@pytest.mark.parametrize(("source", "name", "options"), SOURCES)
def test_the_order_of_rows_changes_no_record(
    tmp_path: Path, source: Callable[..., Any], name: str, options: dict[str, Any]
) -> None:
    order = np.random.default_rng(2).permutation(60)
    whole = contents(source(tmp_path / name, np.arange(60), **options).load())
    assert contents(source(tmp_path / name, order, **options).load()) == whole


@pytest.mark.parametrize("removed", REMOVED)
def test_medmnist_thinning_is_by_record(medmnist_file: Callable[..., Path], removed: int) -> None:
    path = medmnist_file()
    source = MedMnist(
        name="octmnist",
        path=path,
        positive=(0, 1, 2),
        held_out=(2,),
        finetune_classes=(2, 3),
        keep={3: 0.5},
        with_val=True,
    )
    dataset = source.load()
    whole = contents(dataset)
    gone = dict(np.load(path))
    gone["train_images"], gone["train_labels"] = (
        np.delete(gone[f"train_{kind}"], removed, axis=0) for kind in ("images", "labels")
    )
    was_drusen_or_not = len(dataset.train) + len(dataset.pretrain or [])
    np.savez(path, **gone)
    rest = contents(source.load())
    assert rest <= whole
    assert rest.total() == whole.total() - 1
    assert was_drusen_or_not == 88


def test_a_range_from_the_data_breaks_it_and_says_so(tmp_path: Path) -> None:
    everyone = np.arange(60)
    source = table(tmp_path / "t.parquet", everyone, numeric={"a": None})
    dataset = source.load()
    extreme = np.flatnonzero(people()["a"] == dataset.scaling["numeric"]["a"][1])[0]  # type: ignore[index]
    rest = table(tmp_path / "t.parquet", np.delete(everyone, extreme), numeric={"a": None}).load()
    assert not contents(rest) <= contents(dataset)
    assert not dataset.preprocessing.held
    assert "one record can move it" in dataset.preprocessing.why


def test_rows_of_one_unit_share_a_split(tmp_path: Path) -> None:
    dataset = table(tmp_path / "t.parquet", np.arange(60), **GROUPED).load()
    assert not set(dataset.train.units) & set(dataset.test.units)
    assert len(set(dataset.train.units)) < len(dataset.train)


def test_the_hash_split_has_its_public_rate(tmp_path: Path) -> None:
    names = [f"record {i}" for i in range(20_000)]
    assert abs((uniform(names, "split") < 0.25).mean() - 0.25) < 0.01
    dataset = table(tmp_path / "t.parquet", np.arange(60), test_fraction=0.5, **GROUPED).load()
    expected = uniform(np.concatenate([dataset.train.units, dataset.test.units]), "split") < 0.5
    assert expected.tolist() == [False] * len(dataset.train) + [True] * len(dataset.test)
