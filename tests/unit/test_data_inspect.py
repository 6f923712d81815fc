"""A table looked at: what each column holds, what is proposed, and that every name and word
comes back as it stands.
"""

import csv
import gzip
import io
import math
import re
from dataclasses import fields, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agt.data.csv_format import CsvFormat
from agt.data.files import open_columns
from agt.data.formats import NumberFormat
from agt.data.table import Columns, Table
from agt.data.target import NumericTarget
from agt.errors import ConfigError, DataError
from agt.facts import Standing
from agt.settings import build, validate
from agt.store.yaml_text import parse_yaml
from agt_cli.commands.data import target_question
from agt_cli.composing import compose_command
from agt_cli.report.record import to_yaml
from agt_cli.runs.column import CODES_REMARK, ColumnOptions
from agt_cli.runs.dataset_file import (
    COUNTS_ROWS,
    MIXED,
    Declarations,
    dataset_yaml,
    describe_proposal,
    from_data,
)
from agt_cli.runs.inspect import inspect_table
from agt_cli.runs.inspect_settings import InspectSettings
from agt_cli.runs.inspection import Inspection
from agt_cli.start.questions import questions
from agt_cli.start.remarks import left_out_remarks
from agt_cli.start.settings import StartSettings

ROWS = 60


def write(
    path: Path, columns: dict[str, list[Any]], separator: str = ",", encoding: str = "utf-8"
) -> Path:
    text = io.StringIO()
    writer = csv.writer(text, delimiter=separator, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    path.write_bytes(text.getvalue().encode(encoding))
    return path


def table(**columns: list[Any]) -> dict[str, list[Any]]:
    return {**columns, "y": ["no", "yes"] * (ROWS // 2)}


def look(tmp_path: Path, columns: dict[str, list[Any]], **settings: Any) -> Inspection:
    names = [field.name for field in fields(ColumnOptions) if field.name in settings]
    options = ColumnOptions(**{name: settings.pop(name) for name in names})
    return inspect_table(write(tmp_path / "t.csv", columns), options=options, **settings)


def column(inspection: Inspection, name: str) -> Any:
    return next(column for column in inspection.columns if column.name == name)


def test_kinds_and_proposals(tmp_path: Path) -> None:
    numbers = [17 + row * 73 // (ROWS - 1) for row in range(ROWS)]
    inspection = look(
        tmp_path,
        table(
            row=list(range(1, ROWS + 1)),
            age=numbers,
            job=["clerk", "?", "cook"] * (ROWS // 3),
            grade=[1, 2, 3] * (ROWS // 3),
            note=[f"said at {row * row} o'clock" for row in range(ROWS)],
            code=[f"x{row * 7919 % 1000:04d}" for row in range(ROWS)],
            same=["a"] * ROWS,
            none=[""] * ROWS,
            when=[f"2024-03-{1 + row % 28:02d}" for row in range(ROWS)],
            cost=["1.234,50", "99,00"] * (ROWS // 2),
            paid=["1", "?"] * (ROWS // 2),
            total=["12.5", " "] * (ROWS // 2),
            zip=["01234", "99999"] * (ROWS // 2),
        ),
    )
    kinds = {column.name: column.kind for column in inspection.columns}
    assert [kinds.pop(name) for name in ("row", "code")] == ["id", "text"]
    numbers = ("age", "grade", "paid", "total", "cost")
    assert [kinds.pop(name) for name in numbers] == ["number"] * 5
    assert [kinds.pop(name) for name in ("job", "zip", "y")] == ["category"] * 3
    assert kinds == {
        "note": "text",
        "same": "constant",
        "none": "empty",
        "when": "date",
    }
    assert (inspection.label, inspection.classes, inspection.id) == ("y", ("no", "yes"), None)
    assert column(inspection, "age").numeric == (10, 100), "beyond 17 and 90"
    assert column(inspection, "when").numeric == (19723, 20089)  # 2024-01-01 to 2025-01-01
    assert column(inspection, "grade").numeric == (1, 3)
    assert column(inspection, "job").categorical == ("clerk", "cook")
    assert dict(column(inspection, "job").values) == {"clerk": 20, "cook": 20}
    assert {marker for c in inspection.features for marker in c.markers} == {"?", " "}
    assert any(c.missing for c in inspection.features)
    assert [c.name for c in inspection.left_out] == ["row", "note", "code", "same", "none"]
    assert all(c.remark for c in inspection.left_out)
    assert "seems to be a row number" in column(inspection, "row").remark
    assert column(inspection, "grade").remark == CODES_REMARK


def test_a_word_among_numbers_is_named_with_its_row(tmp_path: Path) -> None:
    columns = table(pay=[*(f"{row * 1.5}" for row in range(ROWS - 1)), "abc"])
    seen = column(look(tmp_path, columns, most_values=20), "pay")
    assert re.search(r"'abc'.*\b60\b.*\b61\b", seen.remark)
    assert "missing_values=['abc']" in seen.remark
    seen = column(look(tmp_path, columns, most_values=20, missing_values=("abc",)), "pay")
    assert (seen.kind, seen.markers, seen.missing) == ("number", ("abc",), 1)


def test_a_gap_of_one_column_is_no_word_of_another(tmp_path: Path) -> None:
    days = [f"20{15 + row % 9}-03-0{1 + row % 9}" for row in range(ROWS - 1)] + ["none"]
    inspection = look(tmp_path, table(day=days, kind=["none", "red", "blue"] * 20))
    node = parse_yaml(dataset_yaml(inspection, "t").encode(), "t.yaml")
    assert (node["missing_values"], node["categorical"]) == (["none"], {"kind": ["blue", "red"]})
    given = {
        key: node[key] for key in ("label", "numeric", "categorical", "missing", "missing_values")
    }
    assert len(validate(Table, {"path": tmp_path / "t.csv", **given}, "dataset").load().train)


def test_a_list_that_may_be_numbers_says_so(tmp_path: Path) -> None:
    """Few values, so that a list can hold them: used, and named with the word that makes it one."""
    path = write(
        tmp_path / "t.csv",
        table(rooms=["1", "2", "3"] * 19 + ["2", "many", "1"], town=["a", "b", "c"] * 20),
    )
    inspection = inspect_table(path)
    rooms, town = (column(inspection, name) for name in ("rooms", "town"))
    assert rooms.categorical == ("1", "2", "3", "many")
    assert re.search(r"'many'.*\b59\b", rooms.remark)
    assert rooms.remark in describe_proposal(rooms, inspection)
    assert (town.categorical, town.remark) == (("a", "b", "c"), "")


def test_rare_values_are_left_to_other(tmp_path: Path) -> None:
    rows = 500
    columns = {"town": ["Ulm", "Bonn"] * (rows // 2 - 2) + ["Wyk"] * 4, "y": [0, 1] * (rows // 2)}
    assert column(look(tmp_path, columns), "town").categorical == ("Bonn", "Ulm")
    many = {"town": [f"t{row % 150}" for row in range(rows)], "y": [0, 1] * (rows // 2)}
    assert column(look(tmp_path, many), "town").kind == "text"
    # none occurs often enough
    assert column(look(tmp_path, many, most_values=150), "town").kind == "text"
    assert column(look(tmp_path, many), "town").remark


@pytest.mark.parametrize(
    ("columns", "label"),
    [
        (table(x=[1, 2] * 30), "y"),
        (
            {"default.payment.next.month": [0, 1] * 30, "sex": [1, 2] * 30},
            "default.payment.next.month",
        ),
        (
            {
                "PassengerId": list(range(60)),
                "Survived": [0, 1] * 30,
                "Embarked": ["S", "C", "Q"] * 20,
            },
            "Survived",
        ),
        ({"age": list(range(20, 80)), "sex": [0, 1] * 30, "num": [0, 1, 2, 3, 4, 0] * 10}, "num"),
        ({"a": [1, 2] * 30, "b": [1, 2] * 30, "c": list(range(60))}, None),
        # two names of labels, of which the last column is no better than the other
        ({"target": [0, 1] * 30, "label": [0, 1] * 30}, None),
        ({"default": [0, 1] * 30, "income": [*range(30)] * 2}, None),
        ({"income": [*range(30)] * 2, "status": ["good", "bad"] * 30}, None),
        ({"income": [*range(30)] * 2, "churn": [0, 1] * 30}, "churn"),
        # only the place distinguishes columns of two values
        ({"smokes": [0, 1] * 30, "age": list(range(60)), "left": [1, 0] * 30}, None),
        (
            {
                "deposit_type": ["none", "some", "all"] * 20,
                "is_canceled": [0, 1] * 30,
                "nights": [1, 2, 3] * 20,
            },
            "is_canceled",
        ),
        ({"nights": [1, 2, 3] * 20, "deposit_type": ["none", "some", "all"] * 20}, None),
        (
            {
                "Letter": [*"ABCDEFGHIJKLMNOPQRSTUVWXYZ"[:20]] * 3,
                "xbox": [1, 2] * 30,
                "width": [*range(20)] * 3,
            },
            "Letter",
        ),
        ({"target": [0, 1] * 30, "label": [0, 1] * 30, "c": list(range(60))}, None),
    ],
)
def test_the_label_where_it_is_evident(
    tmp_path: Path, columns: dict[str, list[Any]], label: str | None
) -> None:
    assert look(tmp_path, columns).label == label


def test_a_column_that_tells_the_answer_is_named(tmp_path: Path) -> None:
    """Within a label, in bins of a number, and not where the label hardly changes or a column
    has a name for each row.
    """
    rng = np.random.default_rng(0)
    rows = 1000
    y = rng.permutation(rows) % 2
    columns = {
        "told": np.where(rng.permutation(rows) < 2, "?", np.where(y, "paid late", "in time")),
        "late": y + rng.random(rows) / 2,
    }
    columns |= {
        "other": rng.random(rows),
        "town": rng.choice(["a", "b"], rows),
        "code": np.arange(rows) * 7919 % 100_003,
    }
    inspection = look(
        tmp_path, {name: values.tolist() for name, values in columns.items()} | {"y": y.tolist()}
    )
    tells = {c.name: c.predicted_share for c in inspection.columns}
    assert (tells.pop("told"), tells.pop("late")) == (0.999, 1.0)
    assert not any(tells.values())
    assert "99.9 %" in dataset_yaml(inspection, "t")
    rare = {name: values.tolist() for name, values in columns.items()} | {
        "y": [1, *[0] * (rows - 1)]
    }
    assert not any(c.predicted_share for c in look(tmp_path, rare).columns)


def test_every_column_that_gives_the_label_away_is_named_also_by_what_is_missing(
    tmp_path: Path,
) -> None:
    """A date that only some classes have, and words of which there are many; rare words prove
    nothing, because each of them predicts its few rows by chance.
    """
    rng = np.random.default_rng(0)
    rows = 1000
    y = rng.permutation(rows) % 2
    dates = [f"2024-{month:02}-{day:02}" for month in range(1, 13) for day in range(1, 29)]
    columns = {
        "refunded_on": np.where(y, rng.choice(dates, rows), ""),
        "reason": np.where(y, [f"r{number}" for number in rng.integers(0, 90, rows)], "none of it"),
        "agent": [f"a{number}" for number in rng.integers(0, 400, rows)],
        "since": rng.choice(dates, rows),
        "y": y,
    }
    inspection = look(tmp_path, {name: [*map(str, values)] for name, values in columns.items()})
    shares = {column.name: column.predicted_share for column in inspection.columns}
    assert shares["refunded_on"] == 1
    assert shares["reason"] > 0.95
    assert shares["agent"] == shares["since"] == 0
    assert inspection.label_predictors == ["refunded_on", "reason"]


def test_a_column_that_gives_a_rare_label_away_is_named(tmp_path: Path) -> None:
    """Of 4.5 % rare labels it leaves 0.5 % of all rows wrong, as the injury does of deaths."""
    rows = 2000
    y = np.where(np.arange(rows) < 90, "dead", "alive")
    severity = np.where(np.arange(rows) < 80, 4, np.arange(rows) % 4)
    inspection = look(tmp_path, {"severity": severity.tolist(), "y": y.tolist()})
    shares = {column.name: column.predicted_share for column in inspection.columns}
    assert shares["severity"] == 0.995
    assert inspection.label_predictors == ["severity"]


def zip_codes(odd: str, distinct: int) -> list[str]:
    return [*(f"{10_000 + row % distinct}" for row in range(1500)), odd]


def test_zip_codes_of_which_one_has_nine_digits_are_words(tmp_path: Path) -> None:
    age = [20 + row % 50 for row in range(1501)]
    y = ["a", "b", "b"] * 500 + ["a"]
    few_codes = {"zip": zip_codes("12345-6789", 30), "age": age, "y": y}
    column = look(tmp_path, few_codes, label="y").columns[0]
    assert (column.kind, len(column.categorical)) == ("category", 30)
    assert "'12345-6789' in row 1501 of the data (line 1502 of the file)" in column.remark
    many = {**few_codes, "zip": zip_codes("12345-6789", 150)}
    column = look(tmp_path, many, label="y").columns[0]
    assert not column.categorical
    assert "(line 1502 of the file)" in column.remark
    assert "codes=[zip]' most_values=151" in column.remark
    column = look(tmp_path, many, label="y", codes=["zip"], most_values=151).columns[0]
    assert (len(column.categorical), column.remark) == (150, ""), "as the remark says"
    other = {**few_codes, "zip": zip_codes("about 12", 150)}
    assert "codes=" not in look(tmp_path, other, label="y").columns[0].remark


def test_dates_and_decimal_commas(tmp_path: Path) -> None:
    """Each value by itself: a date is the days since 1970, a number has the comma that the
    file's form has.
    """
    days = [f"20{15 + row % 9}-03-0{1 + row % 9}" for row in range(ROWS)]
    rows = ROWS // 2
    columns = table(
        day=days,
        wage=["1.234,50", "99,05"] * rows,
        size=["10", "1.200"] * rows,
        local=["31.12.2024"] * (ROWS - 1) + [""],
    )
    path = write(tmp_path / "t.csv", columns, ";")
    inspection = inspect_table(path)
    assert inspection.form == CsvFormat(";", decimal=",")
    assert (column(inspection, "wage").low, column(inspection, "wage").high) == (99.05, 1234.5)
    assert column(inspection, "size").high == 1200
    assert column(inspection, "local").format == "%d.%m.%Y"
    assert "day: [2015-01-01, 2024-01-01]" in dataset_yaml(inspection, "t").replace('"', "")
    ranges = {"day": ("2015-01-01", "2024-01-01"), "wage": (0, 2000), "size": (0, 2000)}
    given: dict[str, Any] = {
        "path": path,
        "label": "y",
        "csv": {"separator": ";", "decimal": ","},
        "numeric": ranges,
    }
    source = validate(Table, given, "dataset")
    assert source.numeric["day"] == (16436, 19723)
    features = source.load_queries(path).features
    assert features[:, 1].max() == pytest.approx(2 * 1234.5 / 2000 - 1)
    assert features[0, 0] == pytest.approx(2 * (59 / (19723 - 16436)) - 1)
    pq.write_table(
        pa.table({"day": pa.array(days).cast(pa.date32()), "y": columns["y"]}),
        tmp_path / "t.parquet",
    )
    typed = Table(path=tmp_path / "t.parquet", label="y", numeric={"day": source.numeric["day"]})
    assert (typed.load_queries(tmp_path / "t.parquet").features[:, 0] == features[:, 0]).all()
    path.write_text("wage;y\n1.5;no\n")
    with pytest.raises(DataError, match=r"dataset\.numeric\.wage\) .*'1\.5'.*1\.234,5"):
        replace(source, numeric={"wage": (0, 2000)}).load_queries(path)
    with pytest.raises(ConfigError, match=r"dataset\.numeric\.day\.0"):
        validate(Table, {**given, "numeric": {"day": ("2015-1-1", "2024-01-01")}}, "dataset")


def test_a_label_that_is_no_class(tmp_path: Path) -> None:
    numbers = {"x": [1, 2] * 75, "price": [row * 1.5 for row in range(150)]}
    with pytest.raises(DataError, match=r"'price' .*150"):
        look(tmp_path, numbers, label="price", target="classes")
    with pytest.raises(DataError, match=r"'prise'.*'price'"):
        look(tmp_path, numbers, label="prise")


NUMBERS = {"x": ["a", "b"] * 75, "price": [row * 1.5 for row in range(150)]}


def test_so_many_numbers_need_their_owner_s_word(tmp_path: Path) -> None:
    found = look(tmp_path, NUMBERS, label="price")
    assert found.needs_target
    assert (found.target, found.classes) == (None, ())


def test_a_declared_range_makes_labels_numbers(tmp_path: Path) -> None:
    found = look(tmp_path, NUMBERS, label="price", target="numeric", label_range=(0, 500))
    assert found.numbers == NumericTarget(0, 500)
    assert not found.may_be_numbers
    settings = parse_yaml(dataset_yaml(found, "t").encode(), "t")
    assert (settings["target"], settings["range"]) == ("numeric", [0, 500])
    assert "classes" not in settings
    assert settings["from_data"] == ["x"]


def test_no_range_of_labels_is_proposed(tmp_path: Path) -> None:
    found = look(tmp_path, NUMBERS, label="price")
    assert "range=[LOW,HIGH]" in target_question(found)


@pytest.mark.parametrize("ids", [True, False])
def test_a_label_of_many_words_is_not_said_to_be_a_number(tmp_path: Path, ids: bool) -> None:
    names = [f"app-{row * 7919:x}" for row in range(1200)]
    if not ids:
        names[-1] = names[0]
    with pytest.raises(DataError) as error:
        look(tmp_path, {"x": [*range(1200)], "name": names}, label="name")
    assert "target=numeric" not in str(error.value)
    assert "label=NAME" in str(error.value)
    assert ("look like ids" in str(error.value)) == ids


def test_a_label_of_few_numbers_is_classes_and_may_be_numbers(tmp_path: Path) -> None:
    found = look(tmp_path, {"x": ["a", "b"] * 75, "stars": [*range(1, 6)] * 30}, label="stars")
    assert found.classes == ("1", "2", "3", "4", "5")
    assert found.may_be_numbers
    assert not found.needs_target


def test_a_column_of_many_numbers_can_be_the_label_of_a_numeric_target(tmp_path: Path) -> None:
    columns = {"x": ["a", "b"] * 75, "outcome": NUMBERS["price"]}
    assert look(tmp_path, columns).label is None
    assert look(tmp_path, columns, target="numeric").label == "outcome"


@pytest.mark.parametrize(
    "values",
    [
        ["a", "b", "c"] * 50,
        ["2024-01-02", "2024-01-03"] * 75,
        ["1", "inf"] * 75,
        ["1.2k", "2.3m"] * 75,
    ],
    ids=["text", "dates", "infinite", "suffixes"],
)
def test_a_numeric_target_needs_a_label_of_numbers(tmp_path: Path, values: list[str]) -> None:
    columns = {"x": [1, 2] * 75, "y": values}
    with pytest.raises(DataError):
        look(tmp_path, columns, label="y", target="numeric", label_range=(0, 500))


SCATTERED = [str(row * 7919 % 100_003) for row in range(ROWS)]


@pytest.mark.parametrize(
    ("name", "values", "possible"),
    [
        ("income", [f"${29_040 + row * 977:,}.47" for row in range(ROWS)], False),
        ("account_balance", [f"{29_040 + row * 977}.47" for row in range(ROWS)], False),
        # asked about, and no more
        ("customer_income", [f"{1_234 + row * 977:,}" for row in range(ROWS)], True),
        ("wage", [f"{row * 7.25 + 123.4:.2f}EUR" for row in range(ROWS)], False),
        ("code", [f"K{number}" for number in SCATTERED], False),
        ("paid", SCATTERED, False),
        ("valid", SCATTERED, False),
        ("", SCATTERED, True),
        ("id", SCATTERED, True),
        ("pid", [f"K{number}" for number in SCATTERED], True),
        ("customer_id", SCATTERED, True),
        ("PassengerId", SCATTERED, True),
        ("account-uuid", [f"{int(number):032x}" for number in SCATTERED], True),
        ("id", [str(row) for row in range(ROWS)], False),  # row numbers, whatever they are called
        ("customer_id", [str(row * 37 % 61) for row in range(ROWS)], False),
        ("", [*map(str, range(1, ROWS)), "99"], False),
        ("Unnamed: 0", [str(row * 37 % 61) for row in range(ROWS)], False),
        ("rownames", [str(row + row // 3) for row in range(ROWS)], False),
        ("index", [f"{row}.0" for row in range(ROWS)], False),
    ],
)
def test_no_column_is_an_id_until_somebody_says_so(
    tmp_path: Path, name: str, values: list[str], possible: bool
) -> None:
    columns = {name: values, **table(a=[1.5, 2.5, 3.5] * 20)}
    inspection = look(tmp_path, columns)
    node = parse_yaml(dataset_yaml(inspection, "t").encode(), "t.yaml")
    assert (inspection.id, node["id"], "id_permanent" in node) == (None, None, False)
    assert [column.name for column in inspection.columns if column.possible_id] == [name] * possible
    assert (name in questions(inspection)["id"].text) or not possible, "it only puts the question"
    assert not any(column.categorical for column in inspection.features), (
        "nor are its values listed"
    )
    if name:
        said = look(tmp_path, columns, id=name)
        assert (said.id, column(said, name).resembles_row_numbers) == (
            name,
            column(inspection, name).resembles_row_numbers,
        )


@pytest.mark.parametrize("spread", [2, 7919])
def test_no_column_is_declared_permanent_that_counts_rows(tmp_path: Path, spread: int) -> None:
    columns = table(
        code=[str(row * spread % 100_003 + row % 2) for row in range(ROWS)], a=[1.5, 2.5, 3.5] * 20
    )
    inspection = look(tmp_path, columns, id="code")
    settings = StartSettings(file=inspection.path, data_dir=tmp_path)
    declarations = Declarations(
        not_public=(), has_permanent_ids=settings.declares_permanent_ids(inspection)
    )
    node = parse_yaml(dataset_yaml(inspection, "t", declarations).encode(), "t.yaml")
    assert (node["id"], node.get("id_permanent", False)) == ("code", spread > 2)
    assert (COUNTS_ROWS in describe_proposal(column(inspection, "code"), inspection)) == (
        spread == 2
    )


@pytest.mark.parametrize(
    ("name", "mixed"),
    [("7f{}", False), ("{}", False), ("{}a", False), ("{:x}", True), ("{}.5", False)],
)
def test_ids_that_are_partly_whole_numbers_are_taken_as_text(
    tmp_path: Path, name: str, mixed: bool
) -> None:
    columns = table(
        code=[name.format(row * 7919 % 100_003) for row in range(ROWS)], x=[1.5, 2.5, 3.5] * 20
    )
    inspection = look(tmp_path, columns, id="code")
    assert ("id_as_text: true" in dataset_yaml(inspection, "t")) == mixed
    assert [*left_out_remarks(inspection, id_permanent=False)] == [f"'code': {MIXED}."] * mixed, (
        "and at the terminal, too"
    )
    source = Table(
        path=tmp_path / "t.csv", label="y", numeric={"x": (0, 5)}, id="code", id_as_text=mixed
    )
    if name != "{}.5":  # decimal numbers are no names, which training says
        assert len(source.load().train)


def test_repeated_names_of_people_are_no_feature(tmp_path: Path) -> None:
    columns = {"patient_id": [row // 2 * 37 % 10007 for row in range(400)], "y": [0, 1] * 200}
    seen = column(look(tmp_path, columns), "patient_id")
    assert seen.kind == "id"
    assert "dataset.unit" in seen.remark


@pytest.mark.parametrize("separator", [",", ";", "\t", "|", " "])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "utf-16"])
def test_formats(tmp_path: Path, separator: str, encoding: str) -> None:
    columns = table(größe=[1.5, 2.5, 3.5] * 20, stadt=["Köln, am Rhein", "Bonn; Süd", 'a "b"'] * 20)
    path = write(tmp_path / "t.csv", columns, separator, encoding)
    inspection = inspect_table(path)
    assert inspection.form is not None
    assert inspection.form.separator == separator
    assert [c.name for c in inspection.columns] == ["größe", "stadt", "y"]
    assert column(inspection, "stadt").categorical == ("Bonn; Süd", "Köln, am Rhein", 'a "b"')
    source = Table(
        path=path,
        label="y",
        csv=inspection.form,
        numeric={"größe": (0, 5)},
        categorical={"stadt": ("Bonn; Süd",)},
    )
    assert source.load().train.features.shape[1] >= 3


def test_compressed_and_typed_files(tmp_path: Path) -> None:
    plain = write(tmp_path / "t.csv", table(x=[0.5, 1.5, 2.5] * 20))
    packed = tmp_path / "t.csv.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert inspect_table(packed).columns == inspect_table(plain).columns
    typed = {
        "flag": [True, False] * 30,
        "x": pa.array([1.5, None, 2.5] * 20),
        "y": ["no", "yes"] * 30,
    }
    typed |= {"city": pa.array(["a", "b", None] * 20).dictionary_encode(), "lists": [[1]] * 60}
    typed |= {"id": [2**62 + row**2 for row in range(60)]}  # beyond what float64 tells apart
    pq.write_table(pa.table(typed), tmp_path / "t.parquet")
    inspection = inspect_table(tmp_path / "t.parquet")
    assert (
        inspection.form,
        column(inspection, "id").possible_id,
        column(inspection, "id").distinct,
    ) == (None, True, 60)
    assert column(inspection, "flag").numeric == (0, 1)
    assert from_data(inspection) == ("x", "city", "classes")  # true and false are the type's own
    assert (column(inspection, "x").missing, column(inspection, "city").missing) == (20, 20)
    assert column(inspection, "lists").kind == "unreadable"


def test_columns_of_every_stored_type_are_looked_at(tmp_path: Path) -> None:
    columns = {
        "half": pa.array(np.array([0.5, 1.5, 2.5] * 20, np.float16)),
        "view": pa.array(["a", "b", "c"] * 20, pa.string_view()),
    }
    columns |= {
        "fixed": pa.array([b"a", b"b", b"c"] * 20, pa.binary(1)),
        "image": pa.array([b"\xc8", b"\xc9"] * 30, pa.binary(1)),
    }
    pq.write_table(pa.table({**columns, "y": ["no", "yes"] * 30}), tmp_path / "t.parquet")
    inspection = inspect_table(tmp_path / "t.parquet", label="y")
    kinds = {name: column(inspection, name).kind for name in columns}
    assert kinds == {
        "half": "number",
        "view": "category",
        "fixed": "category",
        "image": "unreadable",
    }
    assert inspect_table(tmp_path / "t.parquet", label="half").classes == ("0.5", "1.5", "2.5")


@pytest.mark.parametrize(("day", "ends_in"), [(2_933_000, ()), (0, (1969, 1971)), (-730_000, ())])
def test_no_range_is_proposed_that_a_configuration_cannot_hold(
    tmp_path: Path, day: int, ends_in: tuple[int, ...]
) -> None:
    days = pa.array([day, day + 1, day + 2] * 20, pa.int32()).cast(pa.date32())
    pq.write_table(pa.table({"x": days, "y": ["no", "yes"] * 30}), tmp_path / "t.parquet")
    proposed = column(inspect_table(tmp_path / "t.parquet", label="y"), "x").numeric
    years = (
        np.array(proposed, int).astype("datetime64[D]").astype("datetime64[Y]").astype(int) + 1970
    )
    assert tuple(years.tolist()) == ends_in


def test_signed_zeros_are_one_class(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1.5, 2.5] * 30, "y": [0.0, -0.0] * 30}), tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"'y'.*\b1\b.*'0'"):
        inspect_table(tmp_path / "t.parquet", label="y")


def test_a_damaged_compressed_file_is_refused_by_its_name(tmp_path: Path) -> None:
    plain = write(tmp_path / "t.csv", table(x=[0.5, 1.5, 2.5] * 20))
    packed = gzip.compress(plain.read_bytes())
    for damaged in (packed[:-9], packed[:-8] + bytes(8), packed + b"x", plain.read_bytes()):
        (tmp_path / "t.csv.gz").write_bytes(damaged)
        with pytest.raises(DataError, match=r"t\.csv\.gz: .*gzip"):
            inspect_table(tmp_path / "t.csv.gz")


@pytest.mark.parametrize("row", [1, 7])
def test_a_cell_that_is_too_long_to_be_one_is_refused_by_its_line(tmp_path: Path, row: int) -> None:
    words = ["a", "b"] * (ROWS // 2)
    words[row - 1] = "x" * 200_000
    with pytest.raises(DataError, match=rf"t\.csv: .*\b{row + 1}\b"):
        look(tmp_path, table(note=words))


def test_a_file_in_another_encoding_than_the_given_is_refused_by_its_name(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", {"größe": [1.5] * ROWS, "y": ["no", "yes"] * (ROWS // 2)})
    with pytest.raises(DataError, match=r"t\.csv: .*dataset\.csv\.encoding"):
        inspect_table(path, form={"encoding": "ascii"})


def test_a_file_without_a_header(tmp_path: Path) -> None:
    path = tmp_path / "t.data"
    path.write_text("".join(f"{row % 7 + 20}.0, w{row % 3}, {row % 2}\n" for row in range(ROWS)))
    with pytest.raises(DataError, match=r"t\.data: .*'20\.0'.*header=false"):
        inspect_table(path)
    inspection = inspect_table(path, header=False)
    assert [c.name for c in inspection.columns] == ["column1", "column2", "column3"]
    assert (inspection.rows, inspection.label) == (ROWS, "column3")
    source = Table(
        path=path, label="column3", csv=CsvFormat(header=False), numeric={"column1": (20, 30)}
    )
    dataset = source.load()
    assert len(dataset.train) + len(dataset.test) == ROWS
    with pytest.raises(DataError, match=r"column2.*'w0'.*\b1\b.*line 1\b"):
        Table(
            path=path, label="column3", csv=CsvFormat(header=False), numeric={"column2": (0, 1)}
        ).load()


def test_arrays_are_no_table(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((3, 2)))
    with pytest.raises(DataError, match="dataset=embeddings"):
        inspect_table(tmp_path / "a.npz")
    with pytest.raises(DataError, match=r"t\.csv: "):
        inspect_table(write(tmp_path / "t.csv", {"a": [], "b": []}))


def advice_for(tmp_path: Path, **arrays: np.ndarray) -> str:
    np.savez(tmp_path / "a.npz", x=np.zeros((4, 2)), **arrays)
    with pytest.raises(DataError) as error:
        inspect_table(tmp_path / "a.npz")
    return str(error.value)


def test_classes_of_arrays_are_shown_and_not_declared(tmp_path: Path) -> None:
    advice = advice_for(tmp_path, group=np.array(["u", "v", "u", "w"]), key=np.arange(4))
    assert "dataset.label=group dataset.id=key dataset.classes=[CLASSES]" in advice
    assert "u, v, w" in advice


def test_ids_of_arrays_are_not_proposed_as_labels(tmp_path: Path) -> None:
    advice = advice_for(tmp_path, key=np.arange(4))
    assert "dataset.id=key" in advice
    assert "dataset.label=key" not in advice
    assert "no labels" in advice


def test_several_arrays_that_may_be_labels_are_named(tmp_path: Path) -> None:
    advice = advice_for(tmp_path, first=np.array([0, 1, 0, 1]), second=np.array([1, 1, 0, 0]))
    assert "first, second" in advice
    assert "dataset.label=first" not in advice


# -- proposals that no single record decides
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rows_with_the_end", "high"), [(1, 20), (4, 20), (5, 13)])
def test_a_few_whole_numbers_end_where_several_rows_do(
    tmp_path: Path, rows_with_the_end: int, high: float
) -> None:
    late = [13] * rows_with_the_end + [row % 4 for row in range(ROWS - rows_with_the_end)]
    assert column(look(tmp_path, table(late=late)), "late").numeric == (0, high)


def test_a_range_of_dates_begins_before_a_first_of_january_in_the_file(tmp_path: Path) -> None:
    days = [f"2020-01-{1 + row % 28:02d}" for row in range(ROWS)]
    low, high = column(look(tmp_path, table(day=days)), "day").numeric
    years = np.array([low, high], int).astype("datetime64[D]")
    assert [str(day) for day in years] == ["2019-01-01", "2021-01-01"]


def test_a_dataset_file_says_that_lists_have_only_what_occurs(tmp_path: Path) -> None:
    inspection = look(tmp_path, table(town=["Graz", "Linz"] * (ROWS // 2)))
    text = dataset_yaml(inspection, "t")
    before_the_list, _, _ = text.partition("categorical:")
    assert "values that occur in the file" in before_the_list.splitlines()[-1]


# -- what is written comes back
# ----------------------------------------------------------------------------------------

ODD = (
    *(
        "y",
        "n",
        "yes",
        "No",
        "on",
        "null",
        "~",
        "1",
        "1e3",
        "0x1F",
        "1:30",
        "2024-01-01",
        "<<",
        "=",
        "a: b",
        "- a",
        "#x",
    ),
    *(
        "${a}",
        "\\${a}",
        "\\\\${",
        "${",
        "a\\",
        "\\",
        "{a}",
        "[a]",
        "%TAG",
        "@x",
        "_target_",
        "_self_",
        "a.b",
        " a b ",
    ),
)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["${x}", "yes", "1", "a.b"], ["???", "${oc.env:HOME}", "null", "1e3"]),
        (["~", "- a", "\\${a}", "x: y"], [*ODD]),
    ],
)
def test_any_name_and_word_is_composed_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str], words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    number, word, label, lost = names
    values = {
        number: [0.5, 1.5, 2.5] * 20,
        word: (words * ROWS)[:ROWS],
        label: ["a", "${b}"] * 30,
        lost: ["z"] * ROWS,
    }
    pq.write_table(pa.table(values), tmp_path / "t.parquet")
    inspection = inspect_table(Path("t.parquet"), label=label)
    (tmp_path / "conf" / "dataset").mkdir(parents=True, exist_ok=True)
    (tmp_path / "conf" / "dataset" / "mine.yaml").write_text(
        dataset_yaml(inspection, "mine"), encoding="utf-8"
    )
    config = compose_command("train", ["dataset=mine"])
    node = config["dataset"]
    assert node["label"] == label
    assert node["classes"] == ["${b}", "a"]
    assert node["numeric"] == {c.name: list(c.numeric) for c in inspection.features if c.numeric}
    assert node["categorical"] == {
        c.name: list(c.categorical) for c in inspection.features if c.categorical
    }
    assert set(node["missing_values"]) == {
        marker for c in inspection.features for marker in c.markers
    }
    assert tuple(node["from_data"]) == from_data(inspection)
    assert isinstance(build(node, "dataset"), Table)
    assert parse_yaml(to_yaml(config).encode(), "config.yaml") == config  # and in a run's record


# -- what was read off the data is not public
# --------------------------------------------------------------------------


def mine(tmp_path: Path, **given: Any) -> Table:
    path = write(tmp_path / "t.csv", table(age=[20, 30, 40] * 20, job=["a", "b"] * 30))
    given = {
        "numeric": {"age": (0, 100)},
        "categorical": {"job": ("a", "b")},
        "classes": ("no", "yes"),
        **given,
    }
    return Table(path=path, label="y", **given)


@pytest.mark.parametrize(
    ("marked", "says"),
    [
        (("age",), "the range of column 'age' was read off the records"),
        (
            ("job", "age"),
            r"list of values of column 'job', and the ranges or lists of 1 more column, were read "
            r"off.*dataset.categorical.job.*dataset.from_data=\[\]",
        ),
        (
            ("classes",),
            "the list of classes was read off the records.*'classes' from dataset.from_data",
        ),
    ],
    ids=["a range", "a list", "classes"],
)
def test_what_is_marked_voids_condition_e(
    tmp_path: Path, marked: tuple[str, ...], says: str
) -> None:
    grounds = mine(tmp_path, from_data=marked).load().preprocessing
    assert grounds.standing is Standing.VOID
    assert re.search(says, " ".join(fact.sentence for fact in grounds.facts))
    assert mine(tmp_path).load().preprocessing.standing is Standing.DECLARED


@pytest.mark.parametrize(
    ("measured", "code"),
    [
        (None, "columns_public_some_proposed"),
        (
            {"of": ("job",), "claim": "0.2-differentially private"},
            "columns_public_some_measured_some_proposed",
        ),
    ],
    ids=["alone", "beside what was measured"],
)
def test_what_was_proposed_and_declared_is_said_by_condition_e_which_stays_declared(
    tmp_path: Path, measured: dict[str, Any] | None, code: str
) -> None:
    settings: dict[str, Any] = {"proposed_from_rows": ("age", "classes")}
    if measured:
        settings["measurement"] = measured
    evidence = mine(tmp_path, **settings).load().preprocessing
    assert evidence.standing is Standing.DECLARED
    facts = {fact.code: fact for fact in evidence.facts}
    assert facts[code].values["proposed"] == ("age",)
    assert "1 range or list (age) from these records" in facts[code].sentence
    assert "other records" in facts[code].broken_by
    assert "other records" in facts["classes_public_proposed"].broken_by


def test_a_size_that_was_computed_from_the_rows_is_said_by_condition_c(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"declared_size": 200, "proposed_from_rows": ("declared_size",)}
    size = mine(tmp_path, **settings).load().size
    assert size is not None
    assert (size.code, size.standing) == ("size_public_proposed", Standing.DECLARED)
    assert "agt computes from the number of these records" in size.sentence
    assert "other records" in size.broken_by
    assert mine(tmp_path, declared_size=200).load().size is None
    undeclared = mine(tmp_path, proposed_from_rows=("declared_size",)).load()
    assert undeclared.size is None, "what is not declared is no constant"
    assert undeclared.preprocessing == mine(tmp_path).load().preprocessing


def test_what_nobody_declared_public_is_not_said_to_be_declared_as_proposed(tmp_path: Path) -> None:
    evidence = mine(tmp_path, from_data=("age",), proposed_from_rows=("age",)).load().preprocessing
    assert evidence.standing is Standing.VOID
    assert not any("proposed" in fact.code for fact in evidence.facts)
    with pytest.raises(ConfigError, match="did you mean 'age'"):
        mine(tmp_path, proposed_from_rows=("agee",))


def test_missing_markers(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", table(age=["20", "?", "40"] * 20, job=["a", "?"] * 30))
    settings: dict[str, Any] = {
        "path": path,
        "label": "y",
        "numeric": {"age": (0, 100)},
        "categorical": {"job": ("a",)},
    }
    with pytest.raises(
        DataError,
        match=r"'age'.*'\?'.*\b2\b.*\b3\b",
    ):
        Table(**settings).load()
    with pytest.raises(DataError, match=r"'age' \(dataset\.numeric\.age\).*\b2\b.*\b3\b"):
        Table(**settings, missing_values=("?",)).load()
    dataset = Table(
        **settings, missing_values=("?",), missing="indicator", test_fraction=0.5
    ).load()
    assert dataset.train.features.shape[1] == 5  # age, a, other, and two indicators
    both = np.concatenate([dataset.train.features, dataset.test.features])
    assert both[:, 3].sum() == 20
    assert both[:, 4].sum() == 30


def test_flags_and_decimals_of_a_parquet_file_are_what_training_reads(tmp_path: Path) -> None:
    wage = [Decimal(row) / 4 for row in range(1, ROWS + 1)]
    y = np.arange(ROWS) % 2 == 0
    pq.write_table(pa.table({"wage": wage, "y": y}), tmp_path / "t.parquet")
    inspection = inspect_table(tmp_path / "t.parquet", label="y")
    assert inspection.classes == ("False", "True")
    assert column(inspection, "wage").numeric
    node = parse_yaml(dataset_yaml(inspection, "t").encode(), "t.yaml")
    told = {key: node[key] for key in ("label", "classes", "numeric")}
    source = validate(Table, told | {"path": tmp_path / "t.parquet"}, "dataset")
    read = source.load_queries(tmp_path / "t.parquet")
    assert read.labels.tolist() == y.astype(int).tolist()
    assert np.unique(read.features).size == ROWS


@pytest.mark.parametrize("kind", [pa.decimal128(38, 9), pa.decimal256(60, 9)])
def test_decimals_of_a_parquet_file_are_read_as_the_same_text_of_a_csv(
    tmp_path: Path, kind: pa.DataType
) -> None:
    """Arrow's own cast of these is off by a unit in the last place."""
    rng = np.random.default_rng(0)
    exact = [Decimal(int(n)).scaleb(-9) for n in rng.integers(0, 10**15, 200)]
    cast = pa.array(exact, kind).cast(pa.float64()).to_pylist()
    wage = [value for value, inexact in zip(exact, cast, strict=True) if inexact != float(value)]
    wage = wage[:8] * (ROWS // 8)
    y = (np.arange(len(wage)) % 2).tolist()
    pq.write_table(pa.table({"wage": pa.array(wage, kind), "y": y}), tmp_path / "t.parquet")
    # Floats of at most 15 digits are printed with these digits, without zeros at their end.
    lines = [f"{float(value)},{label}" for value, label in zip(wage, y, strict=True)]
    (tmp_path / "t.csv").write_text("\n".join(["wage,y", *lines]) + "\n")
    paths = [tmp_path / "t.parquet", tmp_path / "t.csv"]
    stored, written = (column(inspect_table(path, label="y"), "wage") for path in paths)
    assert stored.low == min(map(float, wage))
    assert (stored.low, stored.high, stored.values) == (written.low, written.high, written.values)
    numbers = {"wage": (stored.low, stored.high)}
    tables = [Table(path=path, label="y", classes=("0", "1"), numeric=numbers) for path in paths]
    read = [table.load_queries(table.path).features for table in tables]
    assert np.array_equal(*read)


@pytest.mark.parametrize(
    ("kind", "first"),
    [
        (pa.int64(), 2**53),
        (pa.uint64(), 2**63),
        (pa.decimal128(38, 9), 10**19),
        (pa.decimal256(60, 9), 10**19),
    ],
    ids=["int64", "uint64", "decimal128", "decimal256"],
)
def test_numbers_that_share_a_double_stay_different_values(
    tmp_path: Path, kind: pa.DataType, first: int
) -> None:
    """They are different values of a list, classes and ids; as numbers, both round to the double.

    So are the same values in a csv.
    """
    exact = [Decimal(first), Decimal(first + 1)]
    assert float(exact[0]) == float(exact[1])
    values = exact * (ROWS // 2)
    rows = len(values)
    stored = pa.table({"code": pa.array(values, kind), "x": range(rows)})
    pq.write_table(stored, tmp_path / "t.parquet")
    lines = [f"{value},{row}" for row, value in enumerate(values)]
    (tmp_path / "t.csv").write_text("\n".join(["code,x", *lines]) + "\n")
    names = [str(value) for value in exact]
    for path in (tmp_path / "t.parquet", tmp_path / "t.csv"):
        inspection = inspect_table(path, label="code")
        assert inspection.classes == tuple(names)
        settings = {"label": "code", "classes": inspection.classes, "numeric": {"x": (0, rows)}}
        source = Table(path=path, **settings)
        assert source.load_queries(path).labels.tolist() == [0, 1] * (rows // 2)
        looked_at = inspect_table(path, label="x", target="numeric", label_range=(0, rows))
        described = column(looked_at, "code")
        assert described.values == tuple((name, rows // 2) for name in names)
        columns = open_columns(path, "file")
        assert columns.ids("code", "dataset.unit").tolist() == names * (rows // 2)
        assert set(columns.numbers("code", "x").tolist()) == {float(first)}


@pytest.mark.parametrize("name", ["nan.csv", "Inf.csv.gz", "true.tsv", "2024.csv", "-.csv"])
def test_a_file_whose_name_says_something_to_hydra_gets_another(name: str) -> None:
    assert InspectSettings(file=Path(name), data_dir=Path()).dataset.startswith("table")


@pytest.mark.parametrize(
    ("cells", "kind", "format"),
    [
        (["2012/01/01", "2013/12/31"], "date", "%Y/%m/%d"),
        (["01.02.1990", "31.12.2024"], "date", "%d.%m.%Y"),
        (["01.02.90", "31.12.24"], "date", "%d.%m.%y"),
        (["3 Mar 2012", "14 Oct 2020"], "date", "%d %b %Y"),
        (["3-MAY-12", "4-MAY-13"], "date", "%d-%b-%y"),
        (["March 3, 2012", "October 14, 2020"], "date", "%B %d, %Y"),
        (["Mar-2018", "Nov-2019"], "date", "%b-%Y"),
        (["12/31/2024", "01/02/2024"], "date", "%m/%d/%Y"),
        (["31.12.2024 06:00", "1.1.2024 23:59"], "date", "%d.%m.%Y %H:%M"),
        (["2024-12-31T06:00:00Z", "2024-12-31T06:00:01Z"], "date", "%Y-%m-%dT%H:%M:%S%z"),
        (["1.234,56", "7"], "number", NumberFormat(",", ".")),
        (["1 234,5", "7,5"], "number", NumberFormat(",", " ")),
        (["1,234.5", "7.5"], "number", NumberFormat(".", ",")),
        (["7,5", "8,25"], "number", NumberFormat(",")),
        (["$1,234.5", "$7.5"], "number", NumberFormat(".", ",", "$")),
        (["1.234,5 €", "7 €"], "number", NumberFormat(",", ".", "€")),
        (["7.5", "8.25"], "number", None),
        (["2024-12-31", "2024-01-01"], "date", None),
    ],
)
def test_how_dates_and_numbers_are_written_is_proposed(
    tmp_path: Path, cells: list[str], kind: str, format: NumberFormat | str | None
) -> None:
    """In a file whose other numbers have a decimal point."""
    columns = table(x=cells * (ROWS // 2), size=["1.5", "2.75", "3.25"] * (ROWS // 3))
    inspection = inspect_table(write(tmp_path / "t.csv", columns, ";"))
    seen = column(inspection, "x")
    assert (seen.kind, seen.format) == (kind, format)
    node = parse_yaml(dataset_yaml(inspection, "t").encode(), "t.yaml")
    del node["defaults"]
    assert "x" in node["numeric"]
    assert len(validate(Table, node, "dataset").load().train)


@pytest.mark.parametrize(
    ("cells", "formats"),
    [
        (["01/02/2024", "03/04/2024"], ("%d/%m/%Y", "%m/%d/%Y")),
        (["1,234", "5,678"], ('decimal: ","', 'thousands: ","')),
    ],
)
def test_what_can_be_read_in_two_ways_is_asked_about(
    tmp_path: Path, cells: list[str], formats: tuple[str, ...]
) -> None:
    columns = table(x=cells * (ROWS // 2), size=["1.5", "2.75", "3.25"] * (ROWS // 3))
    seen = column(inspect_table(write(tmp_path / "t.csv", columns, ";")), "x")
    assert not seen.numeric
    assert all(form in seen.remark for form in formats)


def test_a_declared_format_answers_which_way_is_meant(tmp_path: Path) -> None:
    columns = table(
        x=["01/02/2024", "03/04/2024"] * (ROWS // 2), size=["1,234", "5,678"] * (ROWS // 2)
    )
    path = write(tmp_path / "t.csv", columns, ";")
    formats = {"x": "%m/%d/%Y", "size": NumberFormat(thousands=",")}
    inspection = inspect_table(path, options=ColumnOptions(formats=formats))
    assert column(inspection, "x").low == 19724
    assert column(inspection, "size").high == 5678


def test_a_date_that_does_not_exist_is_named_with_its_row(tmp_path: Path) -> None:
    columns = table(x=[*["01.02.2024", "31.12.2024"] * (ROWS // 2 - 1), "31.02.2024", "1.1.2024"])
    seen = column(look(tmp_path, columns), "x")
    assert not seen.numeric
    assert re.search(r"'31\.02\.2024'.*\b59\b.*\b60\b", seen.remark)


@pytest.mark.parametrize("odd", ["3 März 2012", "31 Feb 2012", "3 March 2012", "soon"])
def test_a_date_with_another_name_of_a_month_is_refused_with_its_file_and_row(
    tmp_path: Path, odd: str
) -> None:
    columns = table(x=[*["3 Mar 2012", "14 Oct 2020"] * (ROWS // 2 - 1), odd, "1 Jan 2000"])
    seen = column(look(tmp_path, columns), "x")
    assert not seen.numeric
    assert re.search(rf"'{odd}'.*\b59\b.*\b60\b", seen.remark)
    form = {"formats": {"x": "%d %b %Y"}, "numeric": {"x": ("2000-01-01", "2030-01-01")}}
    table_of_dates = Table(path=tmp_path / "t.csv", label="y", **form)
    with pytest.raises(DataError, match=rf"t\.csv.*'{odd}'.*\b60\b"):
        table_of_dates.load()


@pytest.mark.parametrize("key", ["label", "id"])
def test_a_column_may_be_named_by_a_number(key: str) -> None:
    settings = validate(InspectSettings, {"file": "t.csv", "data_dir": ".", key: 2}, "")
    assert getattr(settings, key) == "2"
    given = {"path": "t.csv", "label": "y", "numeric": {0: (0, 1)}, key: 2}
    assert getattr(validate(Table, given, "dataset"), key) == "2"


# -- outliers, and columns that are left out
# --------------------------------------------------------------------------------------------------


def outlying(tmp_path: Path, name: str, values: list[Any]) -> Inspection:
    return inspect_table(write(tmp_path / "t.csv", table(**{name: values})))


def test_a_typing_error_does_not_stretch_the_proposed_range(tmp_path: Path) -> None:
    ages = [20 + row for row in range(ROWS - 1)]
    inspection = outlying(tmp_path, "age", [*ages, 10**9])
    seen = column(inspection, "age")
    assert seen.numeric == (10.0, 80.0)
    assert (seen.low, seen.high, seen.outside) == (20.0, 1e9, 1)
    (doubt,) = [doubt for doubt in inspection.warnings if doubt.code == "outliers"]
    assert (doubt.column, doubt.values, doubt.rows) == ("age", ("1000000000",), 1)
    assert "age" in from_data(inspection), "a range without outliers was still read off the data"


def test_a_date_that_stands_for_no_end_does_not_stretch_the_proposed_range(tmp_path: Path) -> None:
    days = [f"2020-{1 + row % 12:02}-{1 + row % 28:02}" for row in range(ROWS - 1)]
    seen = column(outlying(tmp_path, "until", [*days, "9999-12-31"]), "until")
    assert [seen.bound(end) for end in seen.numeric] == ["2019-01-01", "2021-01-01"]
    assert seen.outlying_values == ("9999-12-31",)


def test_a_dropped_column_is_not_looked_at(tmp_path: Path) -> None:
    path = write(
        tmp_path / "t.csv", table(a=[7 * row % 50 for row in range(ROWS)], b=[math.inf] * ROWS)
    )
    inspection = inspect_table(path, drop=["b"])
    assert [feature.name for feature in inspection.features] == ["a"]
    assert column(inspection, "b").kind == "dropped"
    assert not inspection.warnings
    assert "b" in dataset_yaml(inspection, "t").partition("# left out:")[2]


def test_a_dropped_column_must_be_there(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", table(age=list(range(ROWS))))
    with pytest.raises(DataError, match="did you mean 'age'"):
        inspect_table(path, drop=["agee"])
    with pytest.raises(ConfigError):
        inspect_table(path, drop=["age", "y"])


ROW_OF_NUMBERS = "17,yes\n" * 20


@pytest.mark.parametrize(
    ("above", "said"),
    [
        ("\n\n", "the first 2 lines are blank"),
        (" ,\n", "line 1 is blank"),
        ("Customers\n", "remove 1 line above line 2"),
        ("Customers,2020\n", "line 1 ('Customers', '2020', ...) looks like data"),
    ],
)
def test_what_stands_above_a_table_is_named_with_what_to_remove(
    tmp_path: Path, above: str, said: str
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"{above}age,churn\n{ROW_OF_NUMBERS}", encoding="utf-8")
    with pytest.raises(DataError) as refused:
        inspect_table(path, label="churn")
    assert said in str(refused.value)


def test_a_line_of_units_below_the_names_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    rows = "17,180,yes\n18,170,no\n" * 10
    path.write_text(f"age,height,churn\nyears,cm,\n{rows}", encoding="utf-8")
    inspection = inspect_table(path, label="churn")
    for name, unit in (("age", "years"), ("height", "cm")):
        assert (
            f"'{unit}' in row 1 of the data (line 2 of the file)" in column(inspection, name).remark
        )
    path.write_text(f"age,height,churn\n?,170,yes\n{rows}", encoding="utf-8")
    assert inspect_table(path, label="churn").rows == 21, "a first record with a gap"


def test_a_label_without_any_value_is_said_to_be_missing_in_every_row(tmp_path: Path) -> None:
    columns = table(age=[*range(ROWS)], score=[""] * ROWS)
    for missing_label in ("error", "drop"):
        with pytest.raises(DataError, match=f"no value in any of the {ROWS} rows"):
            look(tmp_path, columns, label="score", missing_label=missing_label)


def test_a_format_of_a_label_of_numbers_is_no_column_s(tmp_path: Path) -> None:
    file = tmp_path / "t.yaml"
    numeric = "numeric:\n  age: [0, 120]\n"
    formats = 'formats:\n  cost: {thousands: ","}\n  age: {unit: "y"}\n'
    file.write_text(f"label: cost\n{numeric}{formats}", encoding="utf-8")
    assert [*Columns.of(file).formats] == ["age"]


def test_only_a_declared_range_is_public(tmp_path: Path) -> None:
    days = [f"2020-{1 + row % 12:02}-01" for row in range(ROWS)]
    columns = table(age=[20 + row % 40 for row in range(ROWS)], since=days)
    proposed = look(tmp_path, columns)
    assert {column(proposed, name).public for name in ("age", "since")} == {False}
    assert from_data(proposed) == ("age", "since", "classes")
    declared = look(tmp_path, columns, ranges={"age": (0.0, 120.0), "since": (0.0, 30_000.0)})
    assert column(declared, "age").numeric == (0, 120)
    assert from_data(declared) == ("classes",)


@pytest.mark.parametrize("share", [0.08, 0.6])
def test_amounts_of_which_many_are_zero_are_not_proposed_as_names_of_people(
    tmp_path: Path, share: float
) -> None:
    rows = 4_000
    chance = np.random.default_rng(0)
    amount = np.where(chance.random(rows) < share, 100 * chance.integers(1, 40_000, rows), 0)
    amount.sort()  # equal amounts then follow one another, as the rows of a person do
    visits = np.repeat(np.arange(rows // 4) * 7919 % 100_003, 4)  # of one person after another
    table = pd.DataFrame({"gain": amount, "nr": visits, "y": chance.integers(0, 2, rows)})
    table.to_csv(tmp_path / "t.csv", index=False)
    inspection = InspectSettings(file=tmp_path / "t.csv", data_dir=tmp_path, label="y").inspect()
    assert [column.name for column in inspection.possible_people] == ["nr"]
