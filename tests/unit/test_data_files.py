"""Reading columns: values, and every damaged or wrong file named with what to do."""

import gzip
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agt.data.csv_format import CsvFormat
from agt.data.files import open_columns
from agt.errors import ConfigError, DataError, DataMissing
from agt.settings import validate
from agt.store.locations import locate


def content(suffix: str, columns: dict[str, Any]) -> bytes:
    """A file of these columns."""
    file = io.BytesIO()
    if suffix == "npz":
        np.savez(file, **{name: np.array(values) for name, values in columns.items()})
    elif suffix == "parquet":
        pq.write_table(pa.table(columns), file)
    else:
        rows = zip(*columns.values(), strict=True)
        file.write("".join(",".join(map(str, row)) + "\n" for row in (columns, *rows)).encode())
    return file.getvalue()


def opened(folder: Path, suffix: str, given: Any) -> Any:
    path = folder / f"a.{suffix}"
    path.write_bytes(given if isinstance(given, bytes) else content(suffix, given))
    return open_columns(path, "dataset.path")


NUMBERS = {"x": np.arange(3000.0)}
FLIPPED = bytearray(content("npz", {"x": np.zeros(1000)}))
FLIPPED[2000] ^= 0xFF
# tests are named by it, alike in all processes that run them
PACKED = gzip.compress(b"a,b\n1,2\n", mtime=0)
DAMAGED = [
    ("xlsx", b"x", r"'\.xlsx'.*dataset\.path.*\.npz"),
    *(
        (kind, content(kind, NUMBERS)[:size], r"a\.(npz|csv|parquet): ")
        for kind in ("npz", "parquet")
        for size in (0, 300, 2_000)
    ),
    ("csv", b"a,b,c\n1,2,3\n4,5\n", r"a\.csv: .*\b3\b.*\b2\b"),
    ("csv", b"", r"a\.csv"),
    ("csv", b"\n", r"a\.csv"),
    *(
        ("csv.gz", packed, r"a\.csv\.gz: ")
        for packed in (
            PACKED[:10],
            PACKED[:-1],
            PACKED[:-8] + bytes(8),
            PACKED + b"x",
            b"a,b\n1,2\n",
        )
    ),
    (
        "csv",
        f"{'x' * 200_000},b\n1,2\n".encode(),
        r"a\.csv: .*\b1\b.*131072",
    ),
    ("csv", b"a,b,a\n1,2,3\n", r"a\.csv: .*'a'"),
    ("parquet", io.BytesIO(), r"a\.parquet: .*'a'"),
]
pq.write_table(pa.table([[1, 2], ["a", "b"], [3, 4]], names=["a", "y", "a"]), DAMAGED[-1][1])


@pytest.mark.parametrize(("suffix", "given", "message"), DAMAGED)
def test_a_damaged_file_is_refused_by_its_name(
    tmp_path: Path, suffix: str, given: Any, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        opened(tmp_path, suffix, given if isinstance(given, bytes) else given.getvalue())


TYPES = [
    *(
        pa.string_view(),
        pa.large_string(),
        pa.binary(),
        pa.large_binary(),
        pa.binary_view(),
        pa.binary(1),
    ),
]


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_text_is_read_from_every_type_that_holds_it(tmp_path: Path, kind: pa.DataType) -> None:
    as_bytes = pa.array([b"a", b"b", None], pa.binary(1)).cast(pa.binary())
    stored = (
        as_bytes.cast(pa.string()).cast(kind) if kind == pa.string_view() else as_bytes.cast(kind)
    )
    columns = opened(tmp_path, "parquet", {"x": stored, "y": ["a", "b", None]})
    assert (
        columns.column("x", "dataset.label").type
        == columns.column("x", "dataset.label", ["a"]).type
    )
    assert columns.words("x", "dataset.label").tolist() == ["a", "b", None]
    assert columns.words("x", "dataset.label", ["a"]).tolist() == [None, "b", None]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary(2)], ids=str)
def test_bytes_that_are_no_text_are_refused_by_column_and_type(
    tmp_path: Path, kind: pa.DataType
) -> None:
    columns = opened(tmp_path, "parquet", {"x": pa.array([b"ab", b"\xc8a"], kind)})
    with pytest.raises(DataError, match=r"a\.parquet.*'x' \(dataset\.id\)"):
        columns.ids("x", "dataset.id")


def test_half_precision_is_read_as_double(tmp_path: Path) -> None:
    columns = opened(
        tmp_path, "parquet", {"x": pa.array(np.array([0.1, 2.0], np.float16)), "y": [1, 2]}
    )
    assert columns.numbers("x", "dataset.numeric").tolist() == [float(np.float16(0.1)), 2.0]
    assert columns.words("x", "dataset.label").tolist() == [str(float(np.float16(0.1))), "2"]


def test_missing_files_are_named_with_the_places_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DataMissing, match=r"nowhere\.npz.*dataset\.path") as caught:
        open_columns(tmp_path / "nowhere.npz", "dataset.path")
    assert caught.value.exit_code == 4
    with pytest.raises(DataMissing, match=r"\.npy"):
        open_columns(tmp_path, "dataset.path")
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data" / "a.csv").write_text("x\n1\n")
    assert locate(Path("a.csv"), Path("data"), "inputs") == Path("data/a.csv")
    (tmp_path / "a.csv").write_text("x\n2\n")
    assert locate(Path("a.csv"), Path("data"), "inputs").resolve() == tmp_path / "a.csv"
    with pytest.raises(DataMissing, match=r"b\.csv .*data/b\.csv.*inputs"):
        open_columns(Path("b.csv"), "inputs", Path("data"))


IDS = "ids", "dataset.id"
UNIQUE = "unique_ids", "dataset.id"
MATRIX = "matrix", "dataset.x"
REFUSED: list[tuple[str, Any, tuple[str, str], str]] = [
    ("npz", {"x": np.array([{"not": "data"}], dtype=object)}, MATRIX, r"a\.npz: .*'x'.*pickle"),
    ("npz", bytes(FLIPPED), MATRIX, r"a\.npz: .*'x'"),
    *(
        (kind, {"xs": [0, 1]}, ("words", "dataset.label"), r"'x'.*dataset\.label.*'xs'")
        for kind in ("npz", "csv", "parquet")
    ),
    ("csv", b"y;x\n1;2\n", ("words", "inputs"), r"','.*dataset\.csv\.separator"),
    ("csv", {"x": ["1", "hello"]}, ("numbers", "s"), r"'x'.*'hello'.*\b2\b.*\b3\b"),
    ("csv", {"x": ['"1,5"']}, ("numbers", "s"), r"'1,5'.*1234\.5"),
    ("parquet", {"x": [[1.0], [2.0]]}, ("numbers", "s"), r"'x'.*vectors"),
    ("npz", {"x": [1j, 2]}, ("numbers", "s"), "'x'"),
    ("csv", b"x0,x1,x3\n1,2,3\n", MATRIX, r"x0 to x3"),
    ("parquet", {"x": [[1.0, 2.0], [3.0]]}, MATRIX, r"'x'.*same length"),
    *(
        ("npz", {"x": np.array([[1], [value]], kind)}, MATRIX, r"'x'.*NaN.*\b2\b")
        for value in (np.nan, np.inf, -np.inf)
        for kind in (np.float16, np.float32, np.float64)
    ),
    ("csv", {"x": ["a", "", "c"], "y": "123"}, UNIQUE, r"'x'.*\b2\b.*\b3\b"),
    ("csv", {"x": ["a", "NA", "c"]}, UNIQUE, r"'x'.*\b2\b"),
    ("csv", {"x": ["1", "2", "x7"]}, UNIQUE, r"'x7'.*\b3\b.*dataset\.id_as_text=true"),
    ("csv", {"x": ["1", "2.0"]}, UNIQUE, r"'2\.0'.*\b2\b"),
    ("csv", {"x": ["1.5", "2.5"]}, UNIQUE, r"'1\.5'.*\b1\b"),
    ("csv", {"x": ["a", "b", "a"]}, UNIQUE, r"'a'.*\b2\b"),
    ("parquet", {"x": ["a", None]}, UNIQUE, r"'x'.*\b2\b"),
    ("parquet", {"x": [1.0, 2.0]}, UNIQUE, r"'x'.*1\.0.*\b1\b"),
    *(
        (kind, {"x": ["bob", "bob ", "al"]}, IDS, r"'x'.*spaces")
        for kind in ("csv", "parquet", "npz")
    ),
    *((kind, {"x": ["bob", " ", "al"]}, IDS, r"'x'.*\b2\b") for kind in ("csv", "parquet", "npz")),
    (
        "csv",
        {"x": ["0", "2"]},
        ("flags", "dataset.is_test"),
        r"'x' \(dataset\.is_test\).*'2'.*\b2\b",
    ),
]


@pytest.mark.parametrize(("suffix", "given", "read", "message"), REFUSED)
def test_a_column_that_cannot_be_used_says_why(
    tmp_path: Path, suffix: str, given: Any, read: tuple[str, str], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        getattr(opened(tmp_path, suffix, given), read[0])("x", read[1])


def test_a_csv_cell_is_read_without_looking_at_its_column(tmp_path: Path) -> None:
    columns = opened(
        tmp_path, "csv", {"zip": ["07", "7", "NA", "x"], "n": ["07", " 7 ", "NA", "1e3"]}
    )
    assert columns.words("zip", "s").tolist() == ["07", "7", None, "x"]
    assert columns.numbers("n", "s")[[0, 1, 3]].tolist() == [7, 7, 1000]
    values = [0.1, 1 / 3, -2.5e-308, 1.7976931348623157e308, 123456789.12345679]
    assert opened(tmp_path, "csv", {"x": values}).numbers("x", "s").tolist() == values, (
        "to the last bit"
    )
    typed = opened(tmp_path, "parquet", {"a": [1.0, None, 2.5], "b": [1.0, 3.0, 2.5]})
    assert typed.words("a", "s").tolist() == ["1", None, "2.5"]
    assert typed.words("b", "s").tolist() == ["1", "3", "2.5"]


def test_matrix_from_lists_numbered_columns_and_npz_agree(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(4, 12))
    wide = {f"x{i}": x[:, i] for i in reversed(range(12))} | {"xylophone": np.ones(4)}
    text = {f"x_{i}": map(repr, x[:, i].tolist()) for i in range(12)}
    for suffix, columns in (
        ("npz", {"x": x}),
        ("parquet", {"x": list(x)}),
        ("parquet", wide),
        ("csv", text),
    ):
        assert np.array_equal(opened(tmp_path, suffix, columns).matrix("x", "dataset.x"), x), suffix


def test_good_ids_and_flags_stay_as_written(tmp_path: Path) -> None:
    columns = opened(
        tmp_path, "csv", {"id": ["007", "7"], "mixed": ["1", "x"], "padded": [" bob", "al "]}
    )
    assert columns.unique_ids("id", "s").tolist() == ["007", "7"]
    assert columns.unique_ids("mixed", "s", as_text=True).tolist() == ["1", "x"]
    assert columns.ids("padded", "s").tolist() == [" bob", "al "]
    assert opened(tmp_path, "parquet", {"id": [3, 2**62 + 1]}).unique_ids("id", "s").tolist() == [
        "3",
        str(2**62 + 1),
    ]
    assert opened(tmp_path, "csv", {"s": ["train", "Test"]}).flags(
        "s", "dataset.split"
    ).tolist() == [False, True]


@pytest.mark.parametrize(
    ("dtype", "first"), [(np.float64, 2.0**53), (np.float32, 2.0**24), (np.float16, 2.0**11)]
)
def test_ids_rounded_to_decimal_numbers_are_refused_as_text_too(
    tmp_path: Path, dtype: type, first: float
) -> None:
    columns = opened(
        tmp_path,
        "npz",
        {"fine": np.array([1, first - 1], dtype), "coarse": np.array([1, first], dtype)},
    )
    assert columns.ids("fine", "s", as_text=True).tolist() == ["1", str(int(first) - 1)]
    with pytest.raises(
        DataError,
        match=r"'coarse'.*\b2\b",
    ):
        columns.ids("coarse", "s", as_text=True)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("a,b\n1,x\n2,y\n", ["2", "3"]),
        ("a,b\r\n1,x\r\n2,y\r\n", ["2", "3"]),
        ("\ufeffa,b\n1,x\n2,y", ["2", "3"]),
        ('a,b\n1,"x\nx"\n2,y\n', ["2"]),
        ('a,"b\nb"\n1,x\n2,y\n', ["2"]),
        ("a,b\n1,x\n\n2,y\n", ["2"]),
    ],
)
def test_the_line_is_named_only_where_it_is_certain(
    tmp_path: Path, text: str, numbers: list[str]
) -> None:
    """Of the row in the data, and of the line in the file."""
    said = opened(tmp_path, "csv", text.encode()).row(1)
    assert re.findall(r"\d", said) == numbers
    assert re.findall(r"\d", opened(tmp_path, "parquet", {"a": [1, 2]}).row(1)) == ["2"]


def test_another_encoding_is_a_setting(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("größe\n1\n".encode("latin-1"))
    with pytest.raises(
        DataError,
        match=r"a\.csv: .*dataset\.csv\.encoding",
    ):
        open_columns(tmp_path / "a.csv", "s")
    assert open_columns(
        tmp_path / "a.csv", "s", csv_format=CsvFormat(encoding="latin-1")
    ).names == ("größe",)


@pytest.mark.parametrize("suffix", ["csv", "parquet", "npz"])
@pytest.mark.parametrize("name", ["a\0", "a\0b", "a\ud800"])
def test_ids_with_letters_that_are_lost_are_refused(tmp_path: Path, suffix: str, name: str) -> None:
    """NumPy ends text at trailing NULs, so that two people would become one; no file holds half
    a surrogate pair.
    """
    if (suffix, name) == ("npz", "a\0") or (suffix != "npz" and "\ud800" in name):
        pytest.skip("such a file cannot be written")
    path = tmp_path / f"x.{suffix}"
    path.write_bytes(content(suffix, {"id": ["a", name], "x": [1, 2]}))
    with pytest.raises(DataError, match="id"):
        open_columns(path, "").ids("id", "dataset.id")


@pytest.mark.parametrize(
    "encoding",
    ["zlib", "hex", "rot13", "base64", "bz2", "uu", "quopri", "punycode", "undefined", "no"],
)
def test_an_encoding_that_is_none_of_text_is_refused_with_some_that_are(encoding: str) -> None:
    with pytest.raises(
        ConfigError,
        match=f"dataset.csv: encoding={encoding}",
    ):
        validate(CsvFormat, {"encoding": encoding}, "dataset.csv")


@pytest.mark.parametrize(
    "encoding",
    ["utf-8", "utf-8-sig", "utf-16", "utf-32", "latin-1", "cp1252", "shift_jis", "utf-7"],
)
def test_an_encoding_of_text_reads_a_table(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "t.csv").write_bytes("a,b\n1,x\n2,y\n".encode(encoding))
    columns = open_columns(
        tmp_path / "t.csv",
        "inputs",
        csv_format=validate(CsvFormat, {"encoding": encoding}, "dataset.csv"),
    )
    assert columns.column("b", "inputs").to_pylist() == ["x", "y"]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("new_aplicants.csv", True),
        ("NEW_APPLICANTS.CSV", True),
        ("new_applicants", True),
        ("new_applicants.parquet", True),
        ("costs.csv", False),
    ],
)
def test_a_missing_file_is_answered_by_one_with_a_similar_name(
    tmp_path: Path, name: str, found: bool
) -> None:
    (tmp_path / "new_applicants.csv").touch()
    with pytest.raises(DataMissing) as error:
        locate(Path(name), tmp_path, "inputs")
    assert (f"did you mean '{tmp_path / 'new_applicants.csv'}'" in str(error.value)) == found
