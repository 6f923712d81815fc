"""Large files, read block by block: as if they had been read at once, but for memory."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from agt.certificates.box import Certificates
from agt.data import arrays, cell_values, files, ids, queries
from agt.data.arrays import Blocks, pieces
from agt.data.embeddings import Embeddings
from agt.data.file_settings import FileConstants
from agt.data.labelled import LabelledFile
from agt.data.records import Records
from agt.data.table import Table
from agt.errors import AgtError, DataError

N = 100
RNG = np.random.default_rng(0)
NUMERIC = {"age": (18.0, 100.0)}
WORDS = {"town": ("a", "b")}
COLUMNS: dict[str, Any] = {
    "age": np.where(RNG.random(N) < 0.1, np.nan, RNG.uniform(0, 120, N)),
    "town": RNG.choice(np.array(["a", "b", "c", "d", ""], dtype=object), N),
    "side": RNG.choice(["left", "right"], N),
    "y": RNG.choice(["no", "yes"], N),
}
VECTORS = RNG.normal(size=(N, 3)).astype(np.float32)


def table(**settings: Any) -> Table:
    found = FileConstants(("no", "yes"))
    given: dict[str, Any] = {
        "numeric": NUMERIC,
        "categorical": WORDS,
        "missing": "indicator",
        "subgroups": ("side",),
    }
    return Table(path=Path("gone.csv"), label="y", settled=found, **(given | settings))


def vectors(**settings: Any) -> Embeddings:
    return Embeddings(
        path=Path("gone.npz"), settled=FileConstants(("0", "1"), (3,)), scale=2.0, **settings
    )


def write(folder: Path, form: str, named: bool) -> Path:
    """A file of a table's rows, with names or without."""
    frame = pd.DataFrame(COLUMNS | ({"id": [f"r{i}" for i in range(N)]} if named else {}))
    path = folder / f"q.{form}"
    if form == "csv":
        frame.to_csv(path, index=False)
    else:
        frame.assign(town=frame["town"].replace("", None)).to_parquet(path, row_group_size=30)
    return path


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From then on seven rows are many."""

    def shrink() -> None:
        for module in (arrays, cell_values, ids, files):
            monkeypatch.setattr(module, "ROWS", 7)
        monkeypatch.setattr("agt.data.csv_format._PARSED_BYTES", 400)
        monkeypatch.setattr(queries, "is_large", lambda path: True)

    return shrink


def compared(
    source: LabelledFile, path: Path, shrink: Callable[[], None]
) -> tuple[Records, Records]:
    whole = source.load_queries(path)
    shrink()
    streamed = source.load_queries(path)
    assert isinstance(streamed.features, Blocks)
    assert not isinstance(whole.features, Blocks)
    assert np.array_equal(np.concatenate(list(pieces(streamed.features))), whole.features)
    assert streamed.labels.tolist() == whole.labels.tolist()
    return whole, streamed


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_table_in_blocks_is_the_table(
    tmp_path: Path, small: Callable[[], None], form: str, named: bool
) -> None:
    whole, streamed = compared(table(), write(tmp_path, form, named), small)
    assert streamed.ids[:].tolist() == (
        whole.ids.tolist() if named else [str(row) for row in range(N)]
    )
    assert streamed.groups["side"].tolist() == whole.groups["side"].tolist()
    for part, all_of_it in zip(streamed.outside, whole.outside, strict=True):
        assert (part.column, part.count, part.total) == (
            all_of_it.column,
            all_of_it.count,
            all_of_it.total,
        )
        assert part.seen.endswith(", among others")


@pytest.mark.parametrize("form", ["stored", "compressed", "folder", "half", "columns"])
def test_vectors_in_blocks_are_the_vectors(
    tmp_path: Path, small: Callable[[], None], form: str
) -> None:
    path = tmp_path / "q.npz"
    label = np.arange(N) % 2
    if form == "folder":
        path = tmp_path / "q"
        path.mkdir()
        np.save(path / "x.npy", VECTORS)
        np.save(path / "label.npy", label)
    elif form == "columns":
        path = tmp_path / "q.parquet"
        pd.DataFrame({f"x{i}": VECTORS[:, i] for i in range(3)} | {"label": label}).to_parquet(path)
    else:
        x = np.asfortranarray(VECTORS.astype(np.float16)) if form == "half" else VECTORS
        (np.savez_compressed if form == "compressed" else np.savez)(
            path, x=x, label=label, unused=np.zeros(2)
        )
    compared(vectors(unit_norm=True), path, small)


@pytest.mark.parametrize(
    ("row", "old", "new", "message"),
    [
        (45, r".*?,", "old,", r"'old'.*row 45\b"),  # the file's own
        (90, r"r89$", "r3", r"'r3'.*\b2\b"),
        (100, r"$", "\n1,2", r"q\.csv: .*row \d+"),
    ],
)
def test_a_row_of_a_late_block_is_refused(
    tmp_path: Path, small: Callable[[], None], row: int, old: str, new: str, message: str
) -> None:
    path = write(tmp_path, "csv", True)
    lines = path.read_text().splitlines()
    lines[row] = re.sub(old, new, lines[row], count=1)
    path.write_text("\n".join(lines) + "\n")
    small()
    with pytest.raises(DataError, match=message):
        table().load_queries(path)


def test_an_array_of_a_folder_that_changes_between_two_passes(
    tmp_path: Path, small: Callable[[], None]
) -> None:
    """The folder's own time stays as it was."""
    np.save(tmp_path / "x.npy", VECTORS)
    small()
    streamed = vectors().load_queries(tmp_path)
    array = np.load(tmp_path / "x.npy", mmap_mode="r+")
    array[50] += 1
    array.flush()
    with pytest.raises(DataError, match=str(tmp_path)):
        list(pieces(streamed.features))


def test_slices_and_indices_are_an_arrays(small: Callable[[], None]) -> None:
    small()
    x = np.arange(60.0).reshape(30, 2)
    passes = []

    def read() -> Iterator[np.ndarray]:
        passes.append(1)
        yield from (x[start : start + 4] for start in range(0, 30, 4))

    lazy = Blocks(read, 30)
    assert (len(lazy), lazy.shape, lazy.dtype) == (30, (30, 2), x.dtype)
    for rows in (slice(0, 5), slice(3, 9), slice(9, 9), slice(20, 40), slice(None), slice(2, 3)):
        assert np.array_equal(lazy[rows], x[rows])
    places = np.array([0, 3, 17, 29])
    assert np.array_equal(lazy[places], x[places])
    assert np.array_equal(lazy[x[:, 0] > 20], x[x[:, 0] > 20])
    with pytest.raises(AgtError, match=r"inputs: .*\b31\b"):
        Blocks(read, 31)[:]
    passes.clear()
    lazy = Blocks(read, 30)
    assert np.array_equal(np.concatenate([lazy[start : start + 7] for start in range(0, 30, 7)]), x)
    assert len(passes) == 1, "slices in order cost one pass"


def test_what_is_large(tmp_path: Path) -> None:
    for form in ("csv", "parquet"):
        assert not files.is_large(write(tmp_path, form, False))
    pd.DataFrame({"x": np.zeros(2 * files.ROWS + 1)}).to_parquet(tmp_path / "large.parquet")
    assert files.is_large(tmp_path / "large.parquet")
    assert not files.is_large(tmp_path / "gone.csv")


def test_flags_of_a_closed_form_are_its_distances(small: Callable[[], None]) -> None:
    """Every k of the grid, joined from pieces, against shares compared one by one."""
    from agt.certificates.stability import ClosedFormCertificates

    share = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 7.9, 8.0, 1e12])
    ks = (0, 1, 2, 8)
    distance = np.minimum(np.maximum(np.ceil(share) - 1, 0), 2**31).astype(np.int64)
    same = share > 0.1
    parts = [
        ClosedFormCertificates.from_distances(
            ks, "add_remove", distance[rows], same[rows], distance[rows]
        )
        for rows in (slice(3), slice(3, 8))
    ]
    found = ClosedFormCertificates.concatenate(parts)
    expected = np.stack([share > k if k else same for k in ks])
    assert np.array_equal(np.asarray(found.certified), expected)
    assert np.array_equal(found.certified[:, 2:4], expected[:, 2:4])
    plain = Certificates(ks, "add_remove", distance, expected)
    assert found.table(distance) == plain.table(distance)


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(
    ("people", "named"), [(1, True), (2, False)], ids=["one query each", "two queries each"]
)
def test_queries_are_named_by_their_people_where_each_has_one(
    tmp_path: Path, small: Callable[[], None], people: int, named: bool, large: bool
) -> None:
    names = [f"p{row // people}" for row in range(N)]
    pd.DataFrame({**COLUMNS, "client": names}).to_csv(tmp_path / "q.csv", index=False)
    if large:
        small()
    found = table(unit="client", subgroups=()).load_queries(tmp_path / "q.csv")
    assert found.id_column == ("client" if named else None)
    assert (found.ids[:].tolist() == names) == named


def test_queries_without_a_person_in_some_row_are_numbered(tmp_path: Path) -> None:
    names = ["", *(f"p{row}" for row in range(1, N))]
    pd.DataFrame({**COLUMNS, "client": names}).to_csv(tmp_path / "q.csv", index=False)
    assert table(unit="client").load_queries(tmp_path / "q.csv").id_column is None
