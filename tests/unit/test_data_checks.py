"""What is declared about the data and does not fit it, or itself: refused, or noted for the data owner."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agt.data.checks import with_notes
from agt.data.dataset import DataError, Outside
from agt.data.embeddings import Embeddings
from agt.data.files import open_columns
from agt.data.medmnist import MedMnist
from agt.data.table import Table
from agt.errors import ConfigError
from agt.settings import validate

ROWS = 40
TABLE = {"path": "t.csv", "label": "y", "numeric": {"a": [0, 9]}, "split": "part"}


def csv(folder: Path, labels: Callable[[int], str] = lambda i: "no" if i % 2 else "yes", rows: int = ROWS) -> Path:
    """Columns a (0 to 9), y, who and part (a quarter for testing)."""
    lines = [f"{i % 10},{labels(i)},p{i},{'test' if i % 4 == 3 else 'train'}" for i in range(rows)]
    (folder / "t.csv").write_text("a,y,who,part\n" + "".join(f"{line}\n" for line in lines))
    return folder / "t.csv"


def parquet(folder: Path, **columns: Any) -> Path:
    pq.write_table(pa.table({"a": list(range(ROWS)), "y": ["no", "yes"] * (ROWS // 2), **columns}), folder / "t.parquet")
    return folder / "t.parquet"


def table(folder: Path, **settings: Any) -> Table:
    return validate(Table, {**TABLE, "data_dir": folder, **settings}, "dataset")


def from_parquet(folder: Path, **settings: Any) -> Table:
    return table(folder, path="t.parquet", split=None, **settings)


CLASSES = [
    (["no", "yes", "no"], "classes repeats 'no'"),
    ([1, "1"], "classes repeats '1'"),
    (["no", " no"], "'no' and ' no', which differ by spaces alone"),
    (["", "no"], "classes has an empty name"),
    ([" ", "no"], "classes has an empty name"),
    ([False, True], r"dataset\.classes\.0: False is not text: .* in quotes"),
]


@pytest.mark.parametrize(("classes", "message"), CLASSES)
@pytest.mark.parametrize(("kind", "rest"), [(Table, TABLE), (Embeddings, {"path": "e.npz"})])
def test_a_list_of_classes_names_each_once(kind: Any, rest: dict[str, Any], classes: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        validate(kind, {**rest, "classes": classes}, "dataset")


@pytest.mark.parametrize("setting", ["positive", "held_out", "finetune_classes"])
def test_medmnists_lists_of_classes_name_each_once(setting: str) -> None:
    with pytest.raises(ConfigError, match=f"{setting} repeats class 1"):
        validate(MedMnist, {"name": "octmnist", "finetune_classes": [0, 1], setting: [1, 1]}, "dataset")


def test_numbers_written_in_two_ways_are_two_classes_where_both_are_listed(tmp_path: Path) -> None:
    csv(tmp_path, lambda i: "1" if i % 2 else "1.0")
    assert table(tmp_path, classes=["1", "1.0"]).load().classes == ("1", "1.0")


def test_a_class_without_training_records_is_noted(tmp_path: Path) -> None:
    csv(tmp_path)
    source = table(tmp_path, classes=["no", "yes", "maybe"])
    assert with_notes(source.load(), None).notes == ("the class 'maybe' has no training record.",)
    both = with_notes(table(tmp_path, classes=["perhaps", "no", "yes", "maybe"]).load(), None)
    assert both.notes == ("the classes 'perhaps', 'maybe' have no training record.",)
    assert not with_notes(table(tmp_path).load(), None).notes


def test_a_vocabulary_that_matches_nothing_is_refused(tmp_path: Path) -> None:
    csv(tmp_path)
    message = (
        r"t\.csv: column 'a': none of its 40 values is in dataset\.categorical\.a, so each would count as other: "
        r"the column has '0', '1', '2' and 7 more; the list has 'x', 'y'"
    )
    for listed in (["x", "y"], ["00", "1.5"]):
        with pytest.raises(DataError, match=message if listed == ["x", "y"] else "the list has '00', '1.5'"):
            table(tmp_path, numeric={}, categorical={"a": listed}).load()


def test_a_vocabulary_that_matches_little_is_noted(tmp_path: Path) -> None:
    csv(tmp_path)
    share = (
        "column 'a': 24 of 40 values are not in dataset.categorical.a and count as other, such as '4', '5', '6' and 3 more."
    )
    assert table(tmp_path, numeric={}, categorical={"a": [0, 1, 2, 3]}).load().notes == (share,)
    assert not table(tmp_path, numeric={}, categorical={"a": [0, 1, 2, 3, 4]}).load().notes, "a half is enough"
    near = "column 'who': ' P0', 'p1.' would be in"
    text = (tmp_path / "t.csv").read_text().replace(",p0,", ", P0,")
    (tmp_path / "t.csv").write_text(text)
    (note,) = table(tmp_path, numeric={}, categorical={"who": [f"p{i}" for i in range(ROWS)]}).load().notes
    assert note.startswith(near.split(",")[0])
    assert "but for spaces, capitals or the way a number is written" in note


def test_lists_do_not_name_what_means_missing_or_truth(tmp_path: Path) -> None:
    csv(tmp_path)
    with pytest.raises(DataError, match=r"dataset\.categorical\.who lists 'NA', which in a csv stands for a missing value"):
        table(tmp_path, numeric={}, categorical={"who": ["NA", "p1"]}).load()
    with pytest.raises(DataError, match=r"dataset\.classes lists 'null'"):
        table(tmp_path, classes=["null", "yes"]).load()
    with pytest.raises(ConfigError, match=r"dataset\.categorical\.a\.1: True is not text"):
        table(tmp_path, numeric={}, categorical={"a": ["x", True]})


@pytest.mark.parametrize(
    ("declared", "times"),
    [(None, None), (30, None), (15, None), (60, None), (14, "2.1 times larger"), (10**9, "33,333,333 times smaller")],
)
def test_a_declared_size_far_from_the_data_is_noted(tmp_path: Path, declared: int | None, times: str | None) -> None:
    csv(tmp_path)
    dataset = table(tmp_path, declared_size=declared).load()
    notes = with_notes(dataset, None).notes
    assert len(notes) == (times is not None)
    if times is not None:
        assert notes[0].startswith(f"dataset.declared_size is {declared}, and there are 30 training records: ")
        assert f"about {times} than a mean" in notes[0]
    assert not with_notes(dataset, 30.0).notes, "a normaliser that is given counts, and the size then does not"
    assert "training.batch.normalizer" in with_notes(dataset, 3000.0).notes[0]


def test_clipped_values_are_counted_in_data_and_queries(tmp_path: Path) -> None:
    csv(tmp_path)
    source = table(tmp_path, numeric={"a": [1, 5]}, missing="indicator")
    assert source.load().notes == (
        "column 'a': 20 of 40 values lie outside [1, 5] and are clipped to it (they go from 0 to 9).",
    )
    (tmp_path / "q.csv").write_text("a\n3\n-20\n1e9\n \n".replace(" \n", "NA\n"))
    queries = source.load_queries(tmp_path / "q.csv")
    assert queries.features[:, 0].tolist() == [0.0, -1.0, 1.0, 0.0]
    assert queries.outside == (Outside("a", 2, 3, "[1, 5]", "-20 to 1e+09"),)
    (tmp_path / "none.csv").write_text("a\nNA\n")
    (none,) = source.load_queries(tmp_path / "none.csv").outside
    assert (none.rate, none.seen) == (1, "no value")


def test_unknown_categories_are_counted_in_queries(tmp_path: Path) -> None:
    csv(tmp_path)
    source = table(tmp_path, numeric={}, categorical={"a": list(range(10))}, classes=["no", "yes"])
    (tmp_path / "q.csv").write_text("a\n0\nx\ny\n")
    assert source.load_queries(tmp_path / "q.csv").outside == (Outside("a", 2, 3, "the 10 listed", "'x', 'y'"),)
    (tmp_path / "q.csv").write_text("a\n0\n9\n")
    assert not source.load_queries(tmp_path / "q.csv").outside


def test_a_column_without_values_is_noted(tmp_path: Path) -> None:
    parquet(tmp_path, b=pa.nulls(ROWS, pa.float64()), c=pa.nulls(ROWS, pa.string()))
    source = from_parquet(tmp_path, numeric={"a": [0, 39], "b": [0, 1]}, categorical={"c": ["x"]}, missing="indicator")
    assert source.load().notes == ("column 'b' has no value in any record.", "column 'c' has no value in any record.")


def test_hundreds_of_labels_are_refused_at_once_unless_they_are_listed(tmp_path: Path) -> None:
    csv(tmp_path, lambda i: str(i * 0.5), rows=20_000)
    started = time.perf_counter()
    with pytest.raises(DataError, match=r"20000 distinct labels, such as .*a regression target\?.*dataset\.classes"):
        table(tmp_path).load()
    assert time.perf_counter() - started < 2
    np.savez(tmp_path / "e.npz", x=np.arange(404.0).reshape(202, 2), label=np.arange(202) % 101)
    with pytest.raises(DataError, match=r"e\.npz: 101 distinct labels"):
        Embeddings(path=tmp_path / "e.npz").load()
    assert len(Embeddings(path=tmp_path / "e.npz", classes=tuple(range(101))).load().classes) == 101


@pytest.mark.parametrize("pair", [("1", "1.0"), ("1", " 1"), ("yes", "yes "), ("07", "7")])
def test_labels_that_only_look_different_are_no_two_classes(tmp_path: Path, pair: tuple[str, str]) -> None:
    csv(tmp_path, lambda i: pair[i % 2] if i < 20 else "other")
    with pytest.raises(DataError, match=r"are alike but for spaces or the way a number is written.*one form"):
        table(tmp_path).load()


@pytest.mark.parametrize("word", ["", " ", "nan", "NA"])
def test_a_missing_label_may_be_text(tmp_path: Path, word: str) -> None:
    parquet(tmp_path, y=["no", "yes", word, "no"] * (ROWS // 4))
    with pytest.raises(DataError, match=r"t\.parquet: row 3 of the data has no label"):
        from_parquet(tmp_path).load()


def test_rows_are_named_as_a_person_counts(tmp_path: Path) -> None:
    csv(tmp_path, lambda i: "" if i == 11 else "no" if i % 2 else "yes")  # among the test records
    where = r"t\.csv: row 12 of the data \(line 13 of the file\) has no label"
    for classes in (None, ["no", "yes"]):
        with pytest.raises(DataError, match=where):
            table(tmp_path, classes=classes).load()
    csv(tmp_path, lambda i: "maybe" if i == 11 else "no" if i % 2 else "yes")
    with pytest.raises(DataError, match=r"row 12 of the data \(line 13 of the file\) has the label 'maybe'"):
        table(tmp_path, classes=["no", "yes"]).load()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a,b\n1,x\n2,y\n", "line 3"),
        ("a,b\r\n1,x\r\n2,y\r\n", "line 3"),
        ("\ufeffa,b\n1,x\n2,y", "line 3"),
        ('a,b\n1,"x\nx"\n2,y\n', None),
        ('a,"b\nb"\n1,x\n2,y\n', None),
        ("a,b\n1,x\n\n2,y\n", None),
    ],
)
def test_the_line_is_named_only_where_it_is_certain(tmp_path: Path, text: str, line: str | None) -> None:
    (tmp_path / "t.csv").write_bytes(text.encode())
    said = open_columns(tmp_path / "t.csv", "p").row(1)
    assert said == "row 2 of the data" + (f" ({line} of the file)" if line else "")
    assert open_columns(parquet(tmp_path), "p").row(1) == "row 2 of the data"


def test_ranges_too_wide_to_compute_with(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"numeric\.a: the range .* is too wide to compute with"):
        table(tmp_path, numeric={"a": [-1e308, 1e308]})
    csv(tmp_path)
    (tmp_path / "t.csv").write_text((tmp_path / "t.csv").read_text().replace("\n4,", "\n1e308,", 1))
    with pytest.raises(DataError, match=r"column 'a' goes from .* to 1e\+308, too wide"):
        table(tmp_path, numeric={"a": None}).load()
    assert np.isfinite(table(tmp_path, numeric={"a": [0, 4e307]}).load().train.features).all()


@pytest.mark.parametrize("part", ["id", "unit", "public", "split"])
def test_the_label_is_nothing_else(part: str) -> None:
    with pytest.raises(ConfigError, match=f"label and {part} are both column y"):
        validate(Table, {**TABLE, part: "y"}, "dataset")
    if part != "split":
        with pytest.raises(ConfigError, match=f"label and {part} are both column y"):
            validate(Embeddings, {"path": "e.npz", "label": "y", part: "y"}, "dataset")


def test_an_empty_split_says_which_setting_made_it(tmp_path: Path) -> None:
    csv(tmp_path)
    np.savez(tmp_path / "e.npz", x=np.arange(80.0).reshape(40, 2), label=np.arange(40) % 2)
    small = r"the test split is empty: dataset\.test_fraction=1e-09 of 40 records"
    with pytest.raises(DataError, match=small):
        table(tmp_path, split=None, test_fraction=1e-9).load()
    with pytest.raises(DataError, match=small):
        Embeddings(path=tmp_path / "e.npz", test_fraction=1e-9).load()


def test_a_parquet_with_two_columns_of_one_name(tmp_path: Path) -> None:
    pq.write_table(pa.table([[1, 2], ["a", "b"], [3, 4]], names=["a", "y", "a"]), tmp_path / "t.parquet")
    with pytest.raises(DataError, match="two columns are called 'a': rename or drop one"):
        from_parquet(tmp_path).load()


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz"])
@pytest.mark.parametrize(
    ("other", "message"), [("bob ", "'bob' and 'bob ', which differ by spaces"), (" ", "has no value in row 2")]
)
def test_names_of_units_that_differ_by_spaces_alone(tmp_path: Path, kind: str, other: str, message: str) -> None:
    names = ["bob", other, "al"]
    if kind == "csv":
        (tmp_path / "t.csv").write_text("who,a\n" + "".join(f"{name},1\n" for name in names))
    elif kind == "parquet":
        pq.write_table(pa.table({"who": names}), tmp_path / "t.parquet")
    else:
        np.savez(tmp_path / "t.npz", who=np.array(names))
    with pytest.raises(DataError, match=rf"dataset\.unit: column 'who' (has )?{message}"):
        open_columns(tmp_path / f"t.{kind}", "p").ids("who", "dataset.unit")


def test_padded_names_without_a_twin_stay_as_written(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("who,a\n bob,1\nal ,1\n")
    assert open_columns(tmp_path / "t.csv", "p").ids("who", "s").tolist() == [" bob", "al "]


@pytest.mark.parametrize(("dtype", "first"), [(np.float64, 2.0**53), (np.float32, 2.0**24), (np.float16, 2.0**11)])
def test_ids_rounded_to_decimal_numbers_are_refused_as_text_too(tmp_path: Path, dtype: type, first: float) -> None:
    np.savez(tmp_path / "t.npz", fine=np.array([1, first - 1], dtype=dtype), coarse=np.array([1, first], dtype=dtype))
    columns = open_columns(tmp_path / "t.npz", "p")
    assert columns.ids("fine", "s", as_text=True).tolist() == ["1", str(int(first) - 1)]
    with pytest.raises(DataError, match="in row 2 of the data, a decimal number too large to tell from the next"):
        columns.ids("coarse", "s", as_text=True)


@pytest.mark.parametrize(
    ("value", "settings"),
    [(1e39, {}), (1e300, {"scale": 1e10}), (1e200, {"unit_norm": True}), (1e-200, {"unit_norm": True})],
)
def test_vectors_out_of_reach_are_refused_by_their_row(tmp_path: Path, value: float, settings: dict[str, Any]) -> None:
    x = np.arange(2.0, 82.0).reshape(40, 2)
    x[7] = value
    np.savez(tmp_path / "e.npz", x=x, label=np.arange(40) % 2)
    with pytest.raises(DataError, match=r"e\.npz: 'x' in row 8 of the data: too large or too small"):
        Embeddings(path=tmp_path / "e.npz", **settings).load()


@pytest.mark.parametrize("part", ["id", "unit", "public", "is_test", "label"])
def test_arrays_of_different_lengths_are_named(tmp_path: Path, part: str) -> None:
    short = np.arange(39) % 2 if part != "id" else np.arange(39)
    arrays = {"x": np.arange(80.0).reshape(40, 2), "y": np.arange(40) % 2}
    np.savez(tmp_path / "e.npz", **arrays, short=short)
    with pytest.raises(DataError, match=r"e\.npz: 40 records and 39 values of 'short'"):
        Embeddings(path=tmp_path / "e.npz", **{"label": "y", part: "short"}).load()
    if part != "is_test":
        settings = {"path": "e.npz", "data_dir": tmp_path, "label": "y", "numeric": {"y2": [0, 1]}, part: "short"}
        np.savez(tmp_path / "e.npz", **arrays, short=short, y2=np.arange(40) % 2)
        with pytest.raises(DataError, match=r"e\.npz: 40 records and 39 values of 'short'"):
            validate(Table, settings, "dataset").load()


def test_notes_change_no_digest(tmp_path: Path) -> None:
    csv(tmp_path)
    plain, noted = (table(tmp_path, numeric={"a": limits}).load() for limits in ([0, 9], [0, 9]))
    assert with_notes(noted, 1e9).notes
    assert with_notes(noted, 1e9).digest == plain.digest == "5afef2d63d287a8fff286787231ae966"


# -- subgroups -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["csv", "npz"])
def test_subgroups_are_read_as_words_and_change_nothing_else(tmp_path: Path, kind: str) -> None:
    if kind == "csv":
        csv(tmp_path)
        (tmp_path / "t.csv").write_text((tmp_path / "t.csv").read_text().replace("p3,", ","))
        sources = [table(tmp_path, subgroups=names) for names in ([], ["a", "who"])]
    else:
        who = np.array([f"p{i}" if i != 3 else "" for i in range(ROWS)])
        np.savez(tmp_path / "e.npz", x=np.eye(ROWS), label=np.arange(ROWS) % 2, a=np.arange(ROWS) % 10, who=who)
        sources = [Embeddings(path=tmp_path / "e.npz", subgroups=names) for names in ((), ("a", "who"))]
    plain, split = (source.load() for source in sources)
    assert plain.digest == split.digest
    assert not plain.train.groups
    rows = [i for part in (split.train, split.test) for i in part.groups["a"].tolist()]
    assert sorted(rows) == sorted(str(i % 10) for i in range(ROWS))
    assert ["(missing)" in part.groups["who"] for part in (split.train, split.test)].count(True) == 1
    some = split.train.take(np.array([2, 0]))
    assert some.groups["a"].tolist() == split.train.groups["a"][[2, 0]].tolist()


def test_subgroups_of_queries_are_optional(tmp_path: Path) -> None:
    csv(tmp_path)
    source = table(tmp_path, subgroups=["who"], classes=["no", "yes"])
    (tmp_path / "q.csv").write_text("a,who\n1,x\n2,y\n")
    assert source.load_queries(tmp_path / "q.csv").groups["who"].tolist() == ["x", "y"]
    (tmp_path / "q.csv").write_text("a\n1\n2\n")
    assert not source.load_queries(tmp_path / "q.csv").groups


def test_subgroups_that_cannot_be(tmp_path: Path) -> None:
    csv(tmp_path, rows=60)
    with pytest.raises(DataError, match=r"dataset\.subgroups: column 'who' has 60 different values, at most 50"):
        table(tmp_path, subgroups=["who"]).load()
    with pytest.raises(DataError, match=r"no column or key 'whom', which dataset\.subgroups names; did you mean 'who'"):
        table(tmp_path, subgroups=["whom"]).load()
    with pytest.raises(ConfigError, match="subgroups names a column twice"):
        table(tmp_path, subgroups=["who", "who"])
