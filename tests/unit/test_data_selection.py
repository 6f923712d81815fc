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

from agt.data.dataset import Dataset, Records, uniform
from agt.data.embeddings import Embeddings
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
def test_removing_a_row_changes_no_other(
    tmp_path: Path, source: Callable[..., Any], name: str, options: dict[str, Any]
) -> None:
    everyone = np.arange(60)
    whole = contents(source(tmp_path / name, everyone, **options).load())
    assert whole.total() == 60
    for removed in REMOVED:
        rest = contents(source(tmp_path / name, np.delete(everyone, removed), **options).load())
        assert rest <= whole
        assert rest.total() == 59


def test_the_hash_split_has_its_public_rate() -> None:
    names = [f"record {i}" for i in range(20_000)]
    assert abs((uniform(names, "split") < 0.25).mean() - 0.25) < 0.01
