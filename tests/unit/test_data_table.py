"""The user's own table: features by hand, splits, missing values, and what is declared of it and
does not fit.
"""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st

from agt.data.dataset import Dataset, with_notes
from agt.data.embeddings import Embeddings
from agt.data.encoding import HALVINGS, Encoding
from agt.data.population import Outside
from agt.data.records import UNLABELLED
from agt.data.table import Table
from agt.errors import ConfigError, DataError, DataMissing
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
    pairs = (
        zip(part.ids.tolist(), part.features.tolist(), strict=True)
        for part in (dataset.train, dataset.test)
    )
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
    assert "classes_found" in {fact.code for fact in dataset.preprocessing.facts}
    assert people(tmp_path, classes=("no", "yes")).load().preprocessing.held


def test_missing_numbers_become_zero_and_a_flag(tmp_path: Path) -> None:
    text = PEOPLE.replace("b,59,", "b,,")
    assert by_id(people(tmp_path, text).load())["b"] == [0.0, 1.0, 0, 1, 0, 1, 0, 0]
    with pytest.raises(
        DataError,
        match=r"'age'.*\b2\b.*\b3\b.*dataset\.missing=",
    ):
        people(tmp_path, text, missing="error").load()
    with pytest.raises(DataError, match=r"'region'.*\b4\b.*\b5\b"):
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
    with pytest.raises(DataMissing, match=r"none\.csv.*dataset\.test"):
        people(tmp_path, split=None, test=Path("none.csv")).load()


def test_a_person_on_both_sides_is_noted(tmp_path: Path) -> None:
    (tmp_path / "later.csv").write_text(
        "id,age,income,region,default\na,18,100,west,yes\nz,18,100,west,yes\n"
    )
    mixed = people(tmp_path, id=None, unit="id", split=None, test=Path("later.csv")).load()
    assert "training and test records: 1." in with_notes(mixed, None).notes[-1]
    split = people(
        tmp_path,
        PEOPLE + PEOPLE.split("\n", 1)[1],
        id=None,
        unit="id",
        split=None,
        test_fraction=0.5,
    ).load()
    assert (len(split.train), len(split.test)) == (6, 2), "a person's rows go one way"
    assert with_notes(split, None).notes == split.notes


def test_names_that_are_nearly_alike_are_noted(tmp_path: Path) -> None:
    rows = "".join(
        f"{name},18,100,north,{answer}\n"
        for name in ("P7", "p7", "A", "a ", "b", "x")
        for answer in ("yes", "no")
    )
    (tmp_path / "later.csv").write_text("id,age,income,region,default\nz,18,100,west,yes\n")
    content = f"id,age,income,region,default\n{rows}"
    noted = people(tmp_path, content, id=None, unit="id", split=None, test=Path("later.csv")).load()
    (said,) = [note for note in with_notes(noted, None).notes if "names of units" in note]
    assert "leading zeros: 2." in said


def test_range_from_the_data(tmp_path: Path) -> None:
    source = people(tmp_path, numeric={"age": None, "income": (0, 100)}, classes=("no", "yes"))
    dataset = source.load()
    assert dataset.scaling["numeric"] == {"age": [18.0, 59.0], "income": [0.0, 100.0]}
    assert by_id(dataset)["c"][0] == 1.0, "test records are clipped to the training range"
    assert not dataset.preprocessing.held
    (tmp_path / "q.csv").write_text("age,income,region\n38.5,0,north\n")
    assert source.load_queries(tmp_path / "q.csv").features[0, 0] == 0.0
    constant = people(tmp_path, PEOPLE.replace("b,59", "b,18"), numeric={"age": None})
    assert by_id(constant.load())["a"][0] == 0.0
    with pytest.raises(DataError, match=r"'age'.*dataset\.numeric\.age"):
        people(
            tmp_path, PEOPLE.replace("a,18", "a,").replace("b,59", "b,"), numeric={"age": None}
        ).load()


def test_queries(tmp_path: Path) -> None:
    source = people(tmp_path)
    (tmp_path / "q.csv").write_text("region,income,age,extra\nsouth,100,59,1\n,50,,2\n")
    queries = source.load_queries(tmp_path / "q.csv")
    assert queries.features.tolist() == [[0, 1, 0, 1, 0, 0, 0, 0], [0, 0, 0, 0, 0, 1, 0, 1]]
    assert queries.labels.tolist() == [UNLABELLED, UNLABELLED]
    (tmp_path / "narrow.csv").write_text("age,region\n1,north\n")
    with pytest.raises(
        DataError,
        match=r"narrow\.csv.*dataset\.numeric\.income",
    ):
        source.load_queries(tmp_path / "narrow.csv")


@pytest.mark.parametrize(
    ("old", "new", "settings", "message"),
    [
        ("", "", {"label": "defualt"}, r"dataset\.label.*'default'"),
        ("", "", {"id": "key"}, r"'key'.*dataset\.id"),
        (
            "",
            "",
            {"numeric": {"ages": (0, 1)}},
            r"dataset\.numeric\.ages.*'age'",
        ),
        (
            "b,59",
            "b,old",
            {},
            r"'age'.*'old'.*\b2\b.*\b3\b",
        ),
        ("b,59", "b,inf", {}, r"'age'.*\binf\b.*\b2\b"),
        ("b,59", ",59", {}, r"'id' \(dataset\.id\).*row 2\b"),
        ("b,59", "a,59", {}, r"dataset\.id\) .*'a'.*\b2\b.*dataset\.unit"),
        (
            "b,59",
            "7,59",
            {},
            r"dataset\.id\) .*'a'.*\b1\b.*dataset\.id_as_text",
        ),
        (
            "yes,train",
            ",train",
            {},
            r"'default' \(dataset\.label\).*\b2\b.*\b3\b",
        ),
        (
            "yes,train",
            "no,train",
            {"classes": None},
            r"'no'.*dataset\.classes",
        ),
        (
            "",
            "",
            {"classes": ("no", "maybe")},
            r"row 2\b.*'yes'.*no, maybe",
        ),
        ("test", "train", {}, "no test records"),
        ("train", "test", {}, "no training records"),
        (
            "no,test",
            "no,val",
            {},
            r"'part' \(dataset\.split\).*'val'.*\b3\b",
        ),
        (PEOPLE.partition("\n")[2], "", {}, r"people\.csv: "),
    ],
)
def test_bad_input(
    tmp_path: Path, old: str, new: str, settings: dict[str, Any], message: str
) -> None:
    source = people(tmp_path, PEOPLE.replace(old, new) if old else PEOPLE, **settings)
    with pytest.raises(DataError, match=message) as caught:
        source.load()
    assert caught.value.exit_code == 2


def test_more_features_than_a_model_takes_are_refused() -> None:
    numeric = {f"a{i}": [0, 1] for i in range(100)}
    with pytest.raises(ConfigError, match=r"dataset: .*65536"):
        validate(
            Table, {"path": "t.csv", "label": "y", "numeric": numeric, "bins": 1000}, "dataset"
        )


# -- from a row to features
# ------------------------------------------------------------------------------------------------

LIMITS = {"age": (0.0, 100.0), "debt": (-10.0, 0.0, 5.0, 1000.0)}
LISTED = {"home": ("own", "rent"), "sex": ("f", "m")}


def numbers(*rows: float | None) -> np.ndarray:
    return np.array([[math.nan if row is None else row] for row in rows])


def nothing(n: int) -> np.ndarray:
    return np.empty((n, 0), dtype=object)


def test_edges_by_hand() -> None:
    code = Encoding({"x": (0.0, 10.0, 20.0, 100.0, 200.0)}, {}, bins=7)
    unit = np.float32(1 / math.sqrt(3))  # between four bins there are three edges
    expected = unit * np.array(
        [[-1, -1, -1], [-1, -1, -1], [1, -1, -1], [1, 1, -1], [1, 1, 1], [1, 1, 1], [0, 0, 0]],
        dtype=np.float32,
    )
    assert (code(numbers(-5, 9.99, 10, 99, 100, 1e9, None), nothing(7)) == expected).all()


def test_a_range_is_cut_into_equal_parts_and_halved_towards_zero() -> None:
    (edges,) = Encoding({"x": (0.0, 1024.0)}, {}, bins=4).thresholds.values()
    assert edges == sorted({256.0, 512.0, 768.0, *(1024 / 2**j for j in range(1, HALVINGS + 1))})
    (both,) = Encoding({"x": (-8.0, 1024.0)}, {}, bins=2).thresholds.values()
    assert {0.0, 512.0, 1.0, -4.0, -8 / 1024} <= set(both)
    (above,) = Encoding({"x": (16.0, 32.0)}, {}, bins=2).thresholds.values()
    assert above == [16 + 16 / 2**j for j in range(HALVINGS, 0, -1)]


def test_without_bins_numbers_are_scaled_and_a_column_that_never_changes_is_nothing() -> None:
    assert Encoding({"x": (0.0, 4.0)}, {})(numbers(0, 1, 9, None), nothing(4)).ravel().tolist() == [
        -1,
        -0.5,
        1,
        0,
    ]
    assert Encoding({"x": (3.0, 3.0)}, {}, bins=5)(numbers(3, 4), nothing(2)).ravel().tolist() == [
        0,
        0,
    ]


ANY_ROWS = st.lists(
    st.tuples(
        st.one_of(st.just(math.nan), st.floats(-200, 2000)),
        st.one_of(st.just(math.nan), st.floats(-200, 2000)),
        st.sampled_from(["own", "rent", "boat", None]),
        st.sampled_from(["f", "m", None]),
    ),
    min_size=1,
    max_size=20,
)


@pytest.mark.parametrize("bins", [0, 20])
@pytest.mark.parametrize("crosses", [0, 16])
@given(rows=ANY_ROWS)
@hypothesis.settings(max_examples=25, deadline=None)
def test_a_row_has_the_same_bits_whatever_stands_beside_it(
    bins: int, crosses: int, rows: list[tuple]
) -> None:  # type: ignore[type-arg]
    code = Encoding(LIMITS, LISTED, bins, crosses, indicator=True)
    figures = np.array([row[:2] for row in rows])
    texts = np.array([row[2:] for row in rows], dtype=object).reshape(len(rows), 2)
    assert code(figures, texts).shape == (len(rows), code.width)
    assert each_alone(code, figures, texts)


def each_alone(code: Encoding, figures: np.ndarray, texts: np.ndarray) -> bool:
    """Whether every row keeps its bits alone, and in another order."""
    together = code(figures, texts)
    alone = (code(figures[i : i + 1], texts[i : i + 1]) for i in range(len(figures)))
    return bool(
        (np.concatenate(list(alone)) == together).all()
        and (code(figures[::-1], texts[::-1]) == together[::-1]).all()
    )


def test_the_check_catches_a_code_that_looks_at_other_rows() -> None:
    class Ranked(Encoding):
        def __call__(self, numbers: np.ndarray, words: np.ndarray) -> np.ndarray:
            return super().__call__(numbers - np.nanmin(numbers, axis=0), words)

    rows = np.array([[3.0], [50.0], [80.0]])
    assert each_alone(Encoding({"x": (0.0, 100.0)}, {}, 20), rows, nothing(3))
    assert not each_alone(Ranked({"x": (0.0, 100.0)}, {}, 20), rows, nothing(3))


def test_crosses_tell_pairs_apart_and_weigh_as_much_as_the_columns() -> None:
    code = Encoding({}, {"a": ("x", "y"), "b": ("x", "y"), "c": ("z",)}, crosses=2**12)
    pairs = np.array([[a, b, "z"] for a in "xy" for b in "xy"], dtype=object)
    crossed = code(np.empty((4, 0)), pairs)[:, -code.crosses :]
    assert len({row.tobytes() for row in crossed}) == 4
    assert np.linalg.norm(crossed, axis=1) == pytest.approx(np.sqrt(3))
    assert not code(np.empty((1, 0)), np.array([["x", None, None]], dtype=object))[
        0, -code.crosses :
    ].any()


# -- what is declared and does not fit the data
# ---------------------------------------------------------------------------

ROWS = 40
TABLE = {"path": "t.csv", "label": "y", "numeric": {"a": [0, 9]}, "split": "part"}


def csv(
    folder: Path,
    labels: Callable[[int], str] = lambda i: "no" if i % 2 else "yes",
    rows: int = ROWS,
) -> Path:
    """Columns a (0 to 9), y, who and part (a quarter for testing)."""
    lines = [f"{i % 10},{labels(i)},p{i},{'test' if i % 4 == 3 else 'train'}" for i in range(rows)]
    (folder / "t.csv").write_text("a,y,who,part\n" + "".join(f"{line}\n" for line in lines))
    return folder / "t.csv"


def parquet(folder: Path, **columns: Any) -> Path:
    pq.write_table(
        pa.table({"a": list(range(ROWS)), "y": ["no", "yes"] * (ROWS // 2), **columns}),
        folder / "t.parquet",
    )
    return folder / "t.parquet"


def table(folder: Path, **settings: Any) -> Table:
    return validate(Table, {**TABLE, "data_dir": folder, **settings}, "dataset")


def from_parquet(folder: Path, **settings: Any) -> Table:
    return table(folder, path="t.parquet", split=None, **settings)


def test_a_class_without_training_records_is_noted(tmp_path: Path) -> None:
    csv(tmp_path)
    source = table(tmp_path, classes=["no", "yes", "maybe"])
    (note,) = with_notes(source.load(), None).notes
    assert "'maybe'" in note
    both = with_notes(table(tmp_path, classes=["perhaps", "no", "yes", "maybe"]).load(), None)
    assert len(both.notes) == 1
    assert "'perhaps', 'maybe'" in both.notes[0]
    assert not with_notes(table(tmp_path).load(), None).notes


def test_a_vocabulary_that_matches_nothing_is_refused(tmp_path: Path) -> None:
    csv(tmp_path)
    named = r"t\.csv: .*40.*'a'.*dataset\.categorical\.a.*'0', '1', '2'.*7.*'00', '1\.5'"
    with pytest.raises(DataError, match=named):
        table(tmp_path, numeric={}, categorical={"a": ["00", "1.5"]}).load()


def test_a_vocabulary_that_lacks_more_than_a_fifth_of_the_values_is_noted(tmp_path: Path) -> None:
    csv(tmp_path)  # each value of 0 to 9 occurs four times
    (note,) = table(tmp_path, numeric={}, categorical={"a": [0, 1, 2, 3]}).load().notes
    assert re.match(r".*24.*40.*'a'.*dataset\.categorical\.a.*'4', '5', '6'.*3", note)
    (note,) = table(tmp_path, numeric={}, categorical={"a": list(range(7))}).load().notes
    assert note.startswith("12 of 40 values of column 'a' are not in the list")
    assert not table(tmp_path, numeric={}, categorical={"a": list(range(8))}).load().notes


def test_lists_do_not_name_what_means_missing_or_truth(tmp_path: Path) -> None:
    csv(tmp_path)
    with pytest.raises(
        DataError,
        match=r"dataset\.categorical\.who .*'NA'",
    ):
        table(tmp_path, numeric={}, categorical={"who": ["NA", "p1"]}).load()
    with pytest.raises(DataError, match=r"dataset\.classes .*'null'"):
        table(tmp_path, classes=["null", "yes"]).load()


@pytest.mark.parametrize(
    ("declared", "times"),
    [
        (None, None),
        (30, None),
        (15, None),
        (60, None),
        (14, "2.1"),
        (10**9, "33,333,333.3"),
    ],
)
def test_a_declared_size_far_from_the_data_is_noted(
    tmp_path: Path, declared: int | None, times: str | None
) -> None:
    csv(tmp_path)
    dataset = table(tmp_path, declared_size=declared).load()
    notes = with_notes(dataset, None).notes
    assert len(notes) == (times is not None)
    if times is not None:
        assert re.match(rf"dataset\.declared_size.*\b{declared}\b.*\b30\b", notes[0])
        assert times in notes[0]
    assert not with_notes(dataset, 30.0).notes, (
        "a normaliser that is given counts, and the size then does not"
    )
    assert "training.batch.normalizer" in with_notes(dataset, 3000.0).notes[0]


def test_clipped_values_are_counted_in_data_and_queries(tmp_path: Path) -> None:
    csv(tmp_path)
    source = table(tmp_path, numeric={"a": [1, 5]}, missing="indicator")
    (note,) = source.load().notes
    assert re.search(r"\b20\b.*\b40\b.*'a'.*\[1, 5\].*\b0\b.*\b9\b", note)
    (tmp_path / "q.csv").write_text("a\n3\n-20\n1e9\n \n".replace(" \n", "NA\n"))
    queries = source.load_queries(tmp_path / "q.csv")
    assert queries.features[:, 0].tolist() == [0.0, -1.0, 1.0, 0.0]
    assert queries.outside == (Outside("a", 2, 3, "[1, 5]", "-20 to 1e+09", far=2),)
    (tmp_path / "none.csv").write_text("a\nNA\n")
    (none,) = source.load_queries(tmp_path / "none.csv").outside
    assert (none.rate, none.seen) == (1, "no value")


def test_unknown_categories_are_counted_in_queries(tmp_path: Path) -> None:
    csv(tmp_path)
    source = table(tmp_path, numeric={}, categorical={"a": list(range(10))}, classes=["no", "yes"])
    (tmp_path / "q.csv").write_text("a\n0\nx\ny\n")
    assert source.load_queries(tmp_path / "q.csv").outside == (
        Outside("a", 2, 3, "the 10 listed", "'x', 'y'", far=2, is_list=True),
    )
    (tmp_path / "q.csv").write_text("a\n0\n9\n")
    assert not source.load_queries(tmp_path / "q.csv").outside


def test_many_equal_rows_are_noted_unless_a_column_tells_them_apart(tmp_path: Path) -> None:
    rows = [(person, person % 4, "yes" if person % 3 else "no") for person in range(200)]
    pd.DataFrame(rows, columns=["person", "a", "y"]).to_csv(tmp_path / "t.csv", index=False)
    settings: dict[str, Any] = {"label": "y", "numeric": {"a": [0, 3]}, "classes": ["no", "yes"]}
    anonymous = Table(path=tmp_path / "t.csv", **settings).load()
    assert any("192 of 200 rows" in note for note in anonymous.notes)
    named = Table(path=tmp_path / "t.csv", id="person", **settings).load()
    assert not any("of 200 rows" in note for note in named.notes)


def test_a_column_without_values_is_noted(tmp_path: Path) -> None:
    parquet(tmp_path, b=pa.nulls(ROWS, pa.float64()), c=pa.nulls(ROWS, pa.string()))
    source = from_parquet(
        tmp_path, numeric={"a": [0, 39], "b": [0, 1]}, categorical={"c": ["x"]}, missing="indicator"
    )
    assert len(source.load().notes) == 2
    assert all(f"'{name}'" in note for name, note in zip("bc", source.load().notes, strict=True))


def test_hundreds_of_labels_are_refused_at_once_unless_they_are_listed(tmp_path: Path) -> None:
    csv(tmp_path, lambda i: str(i * 0.5), rows=2_000)
    with pytest.raises(DataError, match=r"2000.*dataset\.classes"):
        table(tmp_path).load()
    np.savez(tmp_path / "e.npz", x=np.arange(404.0).reshape(202, 2), label=np.arange(202) % 101)
    with pytest.raises(DataError, match=r"e\.npz: .*\b101\b.*dataset\.classes"):
        Embeddings(path=tmp_path / "e.npz").load()
    assert len(Embeddings(path=tmp_path / "e.npz", classes=tuple(range(101))).load().classes) == 101


@pytest.mark.parametrize("word", ["", " ", "nan", "NA"])
def test_a_missing_label_may_be_text(tmp_path: Path, word: str) -> None:
    parquet(tmp_path, y=["no", "yes", word, "no"] * (ROWS // 4))
    with pytest.raises(DataError, match=r"t\.parquet: .*'y' \(dataset\.label\).*\b3\b"):
        from_parquet(tmp_path).load()


def test_ranges_too_wide_to_compute_with(tmp_path: Path) -> None:
    csv(tmp_path)
    (tmp_path / "t.csv").write_text((tmp_path / "t.csv").read_text().replace("\n4,", "\n1e308,", 1))
    with pytest.raises(DataError, match=r"'a'.*1e\+308.*dataset\.numeric\.a"):
        table(tmp_path, numeric={"a": None}).load()
    assert np.isfinite(table(tmp_path, numeric={"a": [0, 4e307]}).load().train.features).all()


def test_an_empty_split_says_which_setting_made_it(tmp_path: Path) -> None:
    csv(tmp_path)
    with pytest.raises(DataError, match=r"dataset\.test_fraction=1e-09"):
        table(tmp_path, split=None, test_fraction=1e-9).load()


@pytest.mark.parametrize("part", ["id", "unit", "public", "is_test", "label"])
def test_arrays_of_different_lengths_are_named(tmp_path: Path, part: str) -> None:
    short = np.arange(39) % 2 if part != "id" else np.arange(39)
    arrays = {"x": np.arange(80.0).reshape(40, 2), "y": np.arange(40) % 2}
    np.savez(tmp_path / "e.npz", **arrays, short=short)
    with pytest.raises(DataError, match=r"e\.npz: .*40.*39.*'short'"):
        Embeddings(path=tmp_path / "e.npz", **{"label": "y", part: "short"}).load()


# -- subgroups
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["csv", "npz"])
def test_subgroups_are_read_as_words_and_change_nothing_else(tmp_path: Path, kind: str) -> None:
    if kind == "csv":
        csv(tmp_path)
        (tmp_path / "t.csv").write_text((tmp_path / "t.csv").read_text().replace("p3,", ","))
        sources = [table(tmp_path, subgroups=names) for names in ([], ["a", "who"])]
    else:
        who = np.array([f"p{i}" if i != 3 else "" for i in range(ROWS)])
        np.savez(
            tmp_path / "e.npz",
            x=np.eye(ROWS),
            label=np.arange(ROWS) % 2,
            a=np.arange(ROWS) % 10,
            who=who,
        )
        sources = [
            Embeddings(path=tmp_path / "e.npz", subgroups=names) for names in ((), ("a", "who"))
        ]
    plain, split = (source.load() for source in sources)
    assert plain.digest == split.digest
    assert not plain.train.groups
    rows = [i for part in (split.train, split.test) for i in part.groups["a"].tolist()]
    assert sorted(rows) == sorted(str(i % 10) for i in range(ROWS))
    assert ["(missing)" in part.groups["who"] for part in (split.train, split.test)].count(
        True
    ) == 1
    assert (
        split.train.take(np.array([2, 0])).groups["a"].tolist()
        == split.train.groups["a"][[2, 0]].tolist()
    )
    np.savez(tmp_path / "q.npz", x=np.eye(ROWS), a=np.arange(ROWS))
    assert kind == "csv" or list(sources[1].load_queries(tmp_path / "q.npz").groups) == ["a"], (
        "those that are there"
    )


def test_subgroups_that_cannot_be(tmp_path: Path) -> None:
    csv(tmp_path, rows=60)
    with pytest.raises(DataError, match=r"dataset\.subgroups: .*'who'.*60.*50"):
        table(tmp_path, subgroups=["who"]).load()
    with pytest.raises(
        DataError,
        match=r"'whom'.*dataset\.subgroups.*'who'",
    ):
        table(tmp_path, subgroups=["whom"]).load()


def test_a_range_outside_of_which_all_values_lie_is_noted(tmp_path: Path) -> None:
    """As where 10.000 was meant to be ten thousand; an erasure of such data is not refused."""
    text = PEOPLE.replace(",0,", ",1000,")
    narrow = {"age": (18, 100), "income": (0, 10)}
    notes = people(tmp_path, text, numeric=narrow, classes=("no", "yes")).load().notes
    assert any("ALL" in note and "numeric.income" in note for note in notes)
    some = people(tmp_path, PEOPLE, numeric=narrow, classes=("no", "yes")).load().notes
    assert not any("ALL" in note for note in some)


@pytest.mark.parametrize("size", [9.0, 999.0])
def test_a_declared_size_with_a_point_for_thousands_is_refused(size: float) -> None:
    """9.000 is nine in YAML, whoever meant nine thousand."""
    given = {"path": "p.csv", "label": "y", "numeric": NUMERIC}
    with pytest.raises(ConfigError, match="declared_size"):
        validate(Table, {**given, "declared_size": size}, "dataset")
    assert validate(Table, {**given, "declared_size": 1e5}, "dataset").declared_size == 100_000


UNLABELLED_ROWS = ["", "NA", " ", "unknown", "?"]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("id", [None, "who"], ids=["ids by content", "ids by a column"])
def test_rows_without_a_label_are_left_out_as_if_the_file_did_not_have_them(
    tmp_path: Path, kind: str, id: str | None
) -> None:
    """With equal rows, whose ids count the copies before them: an unlabelled one must not count."""
    rng = np.random.default_rng(0)
    labels = [*UNLABELLED_ROWS, *rng.choice(["no", "yes"], 60)]
    rows = pd.DataFrame(
        {
            "who": rng.choice(10**9, len(labels), replace=False),
            "age": rng.choice([20.0, 50.0], len(labels)),
            "y": rng.permutation(labels),
        }
    )
    settings: dict[str, Any] = {
        "label": "y",
        "numeric": {"age": (0, 100)},
        "missing_values": ("unknown", "?"),
        "data_dir": tmp_path,
        "id": id,
        "missing_label": "drop",
    }

    def load(name: str, frame: pd.DataFrame) -> Dataset:
        if kind == "csv":
            frame.to_csv(tmp_path / f"{name}.csv", index=False)
        else:
            frame.to_parquet(tmp_path / f"{name}.parquet", index=False)
        return Table(path=Path(f"{name}.{kind}"), **settings).load()

    labelled = rows[~rows["y"].isin(UNLABELLED_ROWS)]
    dropped = load("all", rows)
    assert dropped.digest == load("labelled", labelled).digest
    assert len(dropped.train) + len(dropped.test) == 60
    assert "unlabelled_rows_left_out" in {fact.code for fact in dropped.selection.facts}
    assert dropped.selection.held


def test_a_row_that_is_used_is_named_as_the_file_has_it(tmp_path: Path) -> None:
    text = PEOPLE.replace("a,18,0,north,no,train", "a,18,0,north,,train").replace("120", "old")
    with pytest.raises(DataError, match=r"row 3 of the data \(line 4 of the file\)"):
        people(tmp_path, text, missing_label="drop").load()
    with pytest.raises(DataError, match=r"row 1 .*dataset\.missing_label=drop"):
        people(tmp_path, text.replace("old", "120")).load()


def test_queries_whose_label_is_missing_by_a_declared_word_have_none(tmp_path: Path) -> None:
    source = people(tmp_path, classes=("no", "yes"), missing_values=("?",), missing_label="drop")
    (tmp_path / "new.csv").write_text(PEOPLE.replace("south,yes", "south,?"))
    assert source.load_queries(Path("new.csv")).labels.tolist() == [0, UNLABELLED, 0, 1]
    numbers = PEOPLE.replace("no,", "1,").replace("yes,", "2,")
    source = people(
        tmp_path,
        numbers,
        target="numeric",
        range=(0, 2),
        missing_values=("?",),
        missing_label="drop",
    )
    (tmp_path / "new.csv").write_text(numbers.replace("south,2", "south,?"))
    labels = source.load_queries(Path("new.csv")).labels
    assert np.isnan(labels).tolist() == [False, True, False, False]


@pytest.mark.parametrize("written", ["%Y-%m-%d", "%d.%m.%Y"])
def test_dates_outside_of_the_range_are_shown_as_dates(tmp_path: Path, written: str) -> None:
    days = pd.date_range("2020-01-01", periods=ROWS)
    frame = pd.DataFrame({"since": days.strftime(written), "y": ["no", "yes"] * (ROWS // 2)})
    frame.to_csv(tmp_path / "t.csv", index=False)
    formats = {} if written == "%Y-%m-%d" else {"since": written}
    numeric = {"since": ["2019-01-01", "2020-01-11"]}
    source = table(tmp_path, numeric=numeric, formats=formats, split=None)
    (note,) = source.load().notes
    assert "[2019-01-01, 2020-01-11]" in note
    assert "2020-01-01 to 2020-02-09" in note
    (outside,) = source.load_queries(Path("t.csv")).outside
    assert (outside.declared, outside.seen) == (
        "[2019-01-01, 2020-01-11]",
        "2020-01-01 to 2020-02-09",
    )
