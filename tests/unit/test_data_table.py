"""The user's own table: hand-computed features, splits, missing values, and bad input."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agt.data.dataset import UNLABELLED, DataError, Dataset
from agt.data.table import Table
from agt.errors import ConfigError, DataMissing
from agt.settings import validate

PEOPLE = """id,age,income,region,default,part
a,18,0,north,no,train
b,59,100,south,yes,train
c,120,50,west,no,test
d,39,25,,yes,test
"""
NUMERIC = {"age": (18, 100), "income": (0, 100)}
REGIONS = {"region": ("north", "south")}


def people(folder: Path, text: str = PEOPLE, **settings: Any) -> Table:
    (folder / "people.csv").write_text(text)
    options = {
        "path": Path("people.csv"),
        "label": "default",
        "id": "id",
        "numeric": NUMERIC,
        "categorical": REGIONS,
        "split": "part",
        "missing": "indicator",
    }
    return Table(data_dir=folder, **{**options, **settings})


def by_id(dataset: Dataset) -> dict[str, list[float]]:
    pairs = (zip(part.ids.tolist(), part.features.tolist(), strict=True) for part in (dataset.train, dataset.test))
    return dict(pair for part in pairs for pair in part)


def test_features_by_hand(tmp_path: Path) -> None:
    dataset = people(tmp_path).load()
    # age, income, north, south, other, age missing, income missing, region missing
    assert by_id(dataset) == {
        "a": [-1.0, -1.0, 1, 0, 0, 0, 0, 0],
        "b": [0.0, 1.0, 0, 1, 0, 0, 0, 0],
        "c": [1.0, 0.0, 0, 0, 1, 0, 0, 0],
        "d": [pytest.approx(2 * 21 / 82 - 1), -0.5, 0, 0, 0, 0, 0, 1],
    }
    assert dataset.train.ids.tolist() == ["a", "b"]
    assert dataset.test.labels.tolist() == [0, 1]
    assert dataset.classes == ("no", "yes")
    assert dataset.selection.held
    assert not dataset.preprocessing.held
    assert "the list of classes was found in the data" in dataset.preprocessing.why
    assert people(tmp_path, classes=("no", "yes")).load().preprocessing.held


def test_missing_numbers_become_zero_and_a_flag(tmp_path: Path) -> None:
    text = PEOPLE.replace("b,59,", "b,,")
    assert by_id(people(tmp_path, text).load())["b"] == [0.0, 1.0, 0, 1, 0, 1, 0, 0]
    with pytest.raises(
        DataError,
        match=r"column 'age', row 2 of the data \(line 3 of the file\): no value.*dataset\.missing=",
    ):
        people(tmp_path, text, missing="error").load()
    with pytest.raises(DataError, match=r"column 'region', row 4 of the data .*: no value"):
        people(tmp_path, missing="error").load()


def test_csv_and_parquet_agree(tmp_path: Path) -> None:
    from_csv = people(tmp_path).load()
    columns = {
        "id": ["a", "b", "c", "d"],
        "age": [18, 59, 120, 39],
        "income": [0.0, 100.0, 50.0, 25.0],
        "region": pa.array(["north", "south", "west", None]).dictionary_encode(),
        "default": ["no", "yes", "no", "yes"],
        "part": [False, False, True, True],
    }
    pq.write_table(pa.table(columns), tmp_path / "people.parquet")
    from_parquet = people(tmp_path, path=tmp_path / "people.parquet").load()
    assert by_id(from_parquet) == by_id(from_csv)
    assert from_parquet.digest == from_csv.digest


def test_a_test_file(tmp_path: Path) -> None:
    (tmp_path / "later.csv").write_text("id,age,income,region,default\nz,18,100,west,yes\n")
    dataset = people(tmp_path, split=None, test=Path("later.csv")).load()
    assert len(dataset.train) == 4
    assert dataset.test.ids.tolist() == ["z"]
    assert by_id(dataset)["z"][:5] == [-1.0, 1.0, 0, 0, 1]
    with pytest.raises(DataMissing, match=r"none\.csv is not there.*change dataset\.test"):
        people(tmp_path, split=None, test=Path("none.csv")).load()


def test_range_from_the_data(tmp_path: Path) -> None:
    source = people(tmp_path, numeric={"age": None, "income": (0, 100)})
    dataset = source.load()
    assert dataset.scaling["numeric"] == {"age": [18.0, 59.0], "income": [0.0, 100.0]}
    assert by_id(dataset)["c"][0] == 1.0, "test records are clipped to the training range"
    assert not dataset.preprocessing.held
    (tmp_path / "q.csv").write_text("age,income,region\n38.5,0,north\n")
    assert source.load_queries(tmp_path / "q.csv").features[0, 0] == 0.0
    constant = people(tmp_path, PEOPLE.replace("b,59", "b,18"), numeric={"age": None})
    assert by_id(constant.load())["a"][0] == 0.0
    with pytest.raises(DataError, match=r"column 'age' has no training value"):
        people(tmp_path, PEOPLE.replace("a,18", "a,").replace("b,59", "b,"), numeric={"age": None}).load()


def test_queries(tmp_path: Path) -> None:
    source = people(tmp_path)
    (tmp_path / "q.csv").write_text("region,income,age,extra\nsouth,100,59,1\n,50,,2\n")
    queries = source.load_queries(tmp_path / "q.csv")
    assert queries.features.tolist() == [[0, 1, 0, 1, 0, 0, 0, 0], [0, 0, 0, 0, 0, 1, 0, 1]]
    assert queries.labels.tolist() == [UNLABELLED, UNLABELLED]
    (tmp_path / "labelled.csv").write_text(PEOPLE)
    labelled = source.load_queries(tmp_path / "labelled.csv")
    assert labelled.ids.tolist() == ["a", "b", "c", "d"]
    assert labelled.labels.tolist() == [0, 1, 0, 1]
    assert np.array_equal(labelled.features[:2], source.load().train.features)
    (tmp_path / "narrow.csv").write_text("age,region\n1,north\n")
    with pytest.raises(DataError, match=r"narrow\.csv: no column or key 'income', which dataset\.numeric\.income names"):
        source.load_queries(tmp_path / "narrow.csv")


@pytest.mark.parametrize(
    ("old", "new", "settings", "message"),
    [
        ("", "", {"label": "defualt"}, r"which dataset\.label names; did you mean 'default'\?"),
        ("", "", {"id": "key"}, r"no column or key 'key', which dataset\.id names"),
        ("", "", {"numeric": {"ages": (0, 1)}}, r"which dataset\.numeric\.ages names; did you mean 'age'\?"),
        ("b,59", "b,old", {}, r"column 'age' has 'old' in row 2 of the data \(line 3 of the file\), expected a number"),
        ("b,59", "b,inf", {}, r"column 'age', row 2 of the data .*: an infinite value"),
        ("b,59", ",59", {}, r"dataset\.id: column 'id' has no value in row 2 of the data"),
        ("b,59", "a,59", {}, r"dataset\.id: column 'id' has 'a' 2 times"),
        ("b,59", "7,59", {}, r"dataset\.id: column 'id' mixes types: text \('a'\) and a whole number \('7'\)"),
        ("yes,train", ",train", {}, r"row 2 of the data \(line 3 of the file\) has no label"),
        ("yes,train", "no,train", {}, "every training record has the class 'no'"),
        ("", "", {"classes": ("no", "maybe")}, r"row 2 of the data .* has the label 'yes'.*the classes are no, maybe"),
        ("test", "train", {}, "the test split is empty"),
        ("train", "test", {}, "the train split is empty"),
        (
            "no,test",
            "no,val",
            {},
            r"dataset\.split: column 'part' has 'val' in row 3 of the data .*; expected 0",
        ),
        (PEOPLE.partition("\n")[2], "", {}, r"people\.csv: no rows"),
    ],
)
def test_bad_input(tmp_path: Path, old: str, new: str, settings: dict[str, Any], message: str) -> None:
    source = people(tmp_path, PEOPLE.replace(old, new) if old else PEOPLE, **settings)
    with pytest.raises(DataError, match=message) as caught:
        source.load()
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"numeric": {}}, "name at least one column under numeric or categorical"),
        ({"numeric": {"a": [1, 1]}}, r"numeric\.a: the range must be \[low, high\] with low < high"),
        ({"numeric": {"a": [2, 1]}}, r"numeric\.a: the range must be"),
        ({"numeric": {"a": [0, float("inf")]}}, r"dataset\.numeric\.a\.1: .*finite"),
        ({"numeric": {"a": [0, 1]}, "categorical": {"a": ["x"]}}, "column a is both"),
        ({"numeric": {"y": [0, 1]}}, "column y cannot be a feature"),
        ({"numeric": {"a": [0, 1]}, "categorical": {"b": ["x", "x"]}}, r"categorical\.b repeats a value"),
        ({"numeric": {"a": [0, 1]}, "categorical": {"b": []}}, r"dataset\.categorical\.b: .*at least 1"),
        ({"numeric": {"a": [0, 1]}, "split": "s", "test": "t.csv"}, "either split"),
        ({"numeric": {"a": [0, 1]}, "missing": "drop"}, "unknown value 'drop'"),
    ],
)
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        validate(Table, {"path": "t.csv", "label": "y", **settings}, "dataset")


def test_column_names_of_the_unit_cannot_be_features() -> None:
    with pytest.raises(ConfigError, match="column who cannot be a feature"):
        validate(Table, {"path": "t.csv", "label": "y", "unit": "who", "numeric": {"who": [0, 1]}}, "dataset")
