"""Reading columns: values, and every damaged or wrong file named with what to do."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agt.data.dataset import DataError
from agt.data.delimited import CsvFormat
from agt.data.files import locate, open_columns
from agt.errors import DataMissing


def write_csv(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def write_parquet(path: Path, **columns: object) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def test_missing_file_names_path_and_key(tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match=r"nowhere\.npz is not there.*change dataset\.path") as caught:
        open_columns(tmp_path / "nowhere.npz", "dataset.path")
    assert caught.value.exit_code == 4


def test_a_relative_path_is_looked_for_here_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    there = write_csv(tmp_path / "data" / "a.csv", "x\n1\n")
    assert locate(Path("a.csv"), Path("data"), "inputs") == Path("data/a.csv")
    here = write_csv(tmp_path / "a.csv", "x\n2\n")
    assert locate(Path("a.csv"), Path("data"), "inputs").resolve() == here
    assert locate(there, Path("data"), "inputs") == there
    with pytest.raises(DataMissing, match=r"b\.csv is not there, nor is data/b\.csv: .*or change inputs"):
        open_columns(Path("b.csv"), "inputs", Path("data"))


def test_folder_without_npy_files(tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match=r"holds no \.npy file"):
        open_columns(tmp_path, "dataset.path")


def test_unknown_format(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"unknown format '\.xlsx'.*\.npz, \.csv, \.parquet"):
        open_columns(write_csv(tmp_path / "a.xlsx", "x"), "dataset.path")


@pytest.mark.parametrize("suffix", ["npz", "parquet"])
@pytest.mark.parametrize("kept", [0.0, 0.3, 0.95])
def test_truncated_file(tmp_path: Path, suffix: str, kept: float) -> None:
    path = tmp_path / f"data.{suffix}"
    if suffix == "npz":
        np.savez(path, x=np.arange(3000.0))
    else:
        write_parquet(path, x=np.arange(3000.0))
    whole = path.read_bytes()
    path.write_bytes(whole[: int(kept * len(whole))])
    with pytest.raises(DataError, match=rf"data\.{suffix}: truncated or not a {suffix} file"):
        open_columns(path, "dataset.path")


def test_npz_with_flipped_bytes_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros(1000))
    damaged = bytearray((tmp_path / "a.npz").read_bytes())
    damaged[2000] ^= 0xFF
    (tmp_path / "a.npz").write_bytes(damaged)
    with pytest.raises(DataError, match=r"a\.npz: cannot read 'x'"):
        open_columns(tmp_path / "a.npz", "dataset.path").raw("x", "dataset.x")


def test_csv_with_a_short_row(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.csv: truncated.*Expected 3 columns, got 2"):
        open_columns(write_csv(tmp_path / "a.csv", "a,b,c\n1,2,3\n4,5\n"), "dataset.path")


@pytest.mark.parametrize("text", ["", "\n"])
def test_empty_csv(tmp_path: Path, text: str) -> None:
    with pytest.raises(DataError, match=r"a\.csv"):
        open_columns(write_csv(tmp_path / "a.csv", text), "dataset.path")


def test_csv_with_two_columns_of_one_name(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="two columns are called 'a'"):
        open_columns(write_csv(tmp_path / "a.csv", "a,b,a\n1,2,3\n"), "dataset.path")


def test_pickled_arrays_are_never_opened(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.array([{"not": "data"}], dtype=object))
    with pytest.raises(DataError, match=r"cannot read 'x'.*pickled Python objects"):
        open_columns(tmp_path / "a.npz", "dataset.path").raw("x", "dataset.x")


@pytest.mark.parametrize("suffix", ["npz", "csv", "parquet"])
def test_wrong_column_suggests_the_nearest(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    if suffix == "npz":
        np.savez(path, label=np.arange(2), x=np.arange(2))
    elif suffix == "csv":
        write_csv(path, "label,x\n0,1\n1,2\n")
    else:
        write_parquet(path, label=[0, 1], x=[1, 2])
    with pytest.raises(DataError, match=r"no column or key 'labels', which dataset\.label names; did you mean 'label'\?"):
        open_columns(path, "dataset.path").words("labels", "dataset.label")


def test_names_in_another_encoding_are_recognised(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("Straße,AÇÃO\n1,2\n".encode())
    with pytest.raises(DataError, match=r"seems to be UTF-8: set dataset\.csv\.encoding=utf-8"):
        open_columns(path, "inputs", form=CsvFormat(encoding="latin-1")).raw("Straße", "dataset.label")
    with pytest.raises(DataError, match=r"did you mean 'Straße'\? \(known: AÇÃO, Straße\)$"):
        open_columns(path, "inputs").raw("Strasse", "dataset.label")


def test_csv_numbers_are_read_to_the_last_bit(tmp_path: Path) -> None:
    values = [0.1, 1 / 3, -2.5e-308, 1.7976931348623157e308, 123456789.12345679]
    path = write_csv(tmp_path / "a.csv", "x\n" + "\n".join(repr(v) for v in values) + "\n NA\n".replace(" ", ""))
    numbers = open_columns(path, "dataset.path").numbers("x", "dataset.numeric.x")
    assert numbers[:-1].tolist() == values
    assert np.isnan(numbers[-1])


def test_text_where_a_number_is_needed(tmp_path: Path) -> None:
    columns = open_columns(write_csv(tmp_path / "a.csv", "x\n1\n 2.5\nabc\n"), "dataset.path")
    with pytest.raises(DataError, match=r"column 'x' has 'abc' in row 3 of the data \(line 4 of the file\), expected"):
        columns.numbers("x", "dataset.numeric.x")


def test_a_csv_cell_is_read_without_looking_at_its_column(tmp_path: Path) -> None:
    """A column-wide guess would read '07' as 7 or as '07' depending on the other rows (condition b)."""
    alone = open_columns(write_csv(tmp_path / "a.csv", "c\n07\n08\n"), "p").words("c", "s")
    beside = open_columns(write_csv(tmp_path / "b.csv", "c\n07\n08\nx\n"), "p").words("c", "s")
    assert alone.tolist() == ["07", "08"] == beside[:2].tolist()


def test_words_of_a_parquet_do_not_depend_on_a_missing_neighbour(tmp_path: Path) -> None:
    whole = open_columns(write_parquet(tmp_path / "a.parquet", c=[1, 2]), "p").words("c", "s")
    holed = open_columns(write_parquet(tmp_path / "b.parquet", c=pa.array([1.0, 2.0, None])), "p").words("c", "s")
    assert whole.tolist() == ["1", "2"] == holed[:2].tolist()
    assert holed[2] is None


def test_matrix_from_lists_numbered_columns_and_npz_agree(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(4, 12))
    np.savez(tmp_path / "a.npz", x=x)
    write_parquet(tmp_path / "list.parquet", x=list(x))
    write_parquet(tmp_path / "wide.parquet", **{f"x{i}": x[:, i] for i in reversed(range(12))}, xylophone=np.ones(4))
    write_csv(
        tmp_path / "wide.csv",
        ",".join(f"x_{i}" for i in range(12)) + "\n" + "\n".join(",".join(map(repr, row)) for row in x.tolist()),
    )
    for name in ("a.npz", "list.parquet", "wide.parquet", "wide.csv"):
        assert np.array_equal(open_columns(tmp_path / name, "p").matrix("x", "dataset.x"), x), name


def test_a_lost_numbered_column_shows(tmp_path: Path) -> None:
    columns = open_columns(write_csv(tmp_path / "a.csv", "x0,x1,x3\n1,2,3\n"), "p")
    with pytest.raises(DataError, match=r"x0\.\.x3 are not all there"):
        columns.matrix("x", "dataset.x")


def test_lists_of_different_lengths(tmp_path: Path) -> None:
    columns = open_columns(write_parquet(tmp_path / "a.parquet", x=[[1.0, 2.0], [3.0]]), "p")
    with pytest.raises(DataError, match="lists of different lengths"):
        columns.matrix("x", "dataset.x")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_nan_and_inf_name_the_row(tmp_path: Path, value: float, dtype: type) -> None:
    x = np.zeros((5, 2), dtype=dtype)
    x[3, 1] = value
    np.savez(tmp_path / "a.npz", x=x)
    with pytest.raises(DataError, match=r"a\.npz: 'x' has NaN or inf in row 4 of the data: repair"):
        open_columns(tmp_path / "a.npz", "p").matrix("x", "dataset.x")


@pytest.mark.parametrize(
    ("cells", "fault"),
    [
        (["a", "", "c"], r"no value in row 2 of the data \(line 3 of the file\)"),
        (["a", "NA", "c"], "no value in row 2 of the data"),
        (["1", "2", "x7"], r"mixes types: a whole number \('1'\) and text \('x7'\).*dataset\.id_as_text=true"),
        (["1", "2.0", "3"], r"mixes types: a whole number \('1'\) and a decimal number \('2\.0'\)"),
        (["1.5", "2.5", "3.5"], r"decimal numbers \('1\.5'\)"),
        (["a", "b", "a"], r"has 'a' 2 times"),
    ],
)
def test_unusable_ids(tmp_path: Path, cells: list[str], fault: str) -> None:
    path = write_csv(tmp_path / "a.csv", "id,x\n" + "".join(f"{cell},0\n" for cell in cells))
    with pytest.raises(DataError, match=rf"a\.csv: dataset\.id: column 'id' (.*){fault}"):
        open_columns(path, "p").unique_ids("id", "dataset.id")


def test_null_and_decimal_ids_of_a_parquet(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"column 'id' has no value in row 2 of the data: every"):
        open_columns(write_parquet(tmp_path / "a.parquet", id=["a", None]), "p").unique_ids("id", "dataset.id")
    with pytest.raises(DataError, match=r"column 'id' has decimal numbers \(1\.0\)"):
        open_columns(write_parquet(tmp_path / "b.parquet", id=[1.0, 2.0]), "p").unique_ids("id", "dataset.id")


def test_good_ids_stay_as_written(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "a.csv", "id,mixed\n007,1\n7,x\n")
    columns = open_columns(path, "p")
    assert columns.unique_ids("id", "dataset.id").tolist() == ["007", "7"]
    assert columns.unique_ids("mixed", "dataset.id", as_text=True).tolist() == ["1", "x"]
    write_parquet(tmp_path / "b.parquet", id=pa.array([3, 2**62 + 1]))
    assert open_columns(tmp_path / "b.parquet", "p").unique_ids("id", "s").tolist() == ["3", str(2**62 + 1)]


def test_flags(tmp_path: Path) -> None:
    columns = open_columns(write_csv(tmp_path / "a.csv", "s,t\ntrain,0\nTest,2\n"), "p")
    assert columns.flags("s", "dataset.split").tolist() == [False, True]
    with pytest.raises(DataError, match=r"dataset\.is_test: column 't' has '2' in row 2 of the data \(line 3 of"):
        columns.flags("t", "dataset.is_test")
