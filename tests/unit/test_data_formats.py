"""How dates and numbers in text are read by a declared format: each cell by itself, in training
records and in queries alike.
"""

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import agt
from agt.data.files import open_columns
from agt.data.formats import MONTHS, CellFormat, DateFormat, NumberFormat, days, reads
from agt.data.sent_records import columns_of
from agt.data.table import Table
from agt.errors import ConfigError, DataError
from agt.settings import validate
from agt_cli.runs.formats import format_as_yaml

EURO = NumberFormat(",", ".", "€")


def read(form: CellFormat, *cells: str | None) -> list[float | None]:
    numbers: list[float | None] = form.numbers(pa.array(cells, pa.string())).to_pylist()
    return numbers


def is_read(form: CellFormat, cell: str) -> bool:
    return reads(form, pa.array([cell]))


@pytest.mark.parametrize(
    ("form", "cell", "day"),
    [
        ("%d.%m.%Y", "01.02.1990", "1990-02-01"),
        ("%d.%m.%Y", " 1.2.1990 ", "1990-02-01"),
        ("%Y/%m/%d", "2012/01/01", "2012-01-01"),
        ("%m/%d/%Y", "12/31/2024", "2024-12-31"),
        ("%Y%m%d", "20241231", "2024-12-31"),
        ("%d.%m.%y", "31.12.69", "1969-12-31"),
        ("%d.%m.%y", "31.12.68", "2068-12-31"),
        ("%d.%m.%Y %H:%M", "31.12.2024 06:00", "2024-12-31 06:00"),
        ("%Y-%m-%dT%H:%M:%S.%f%z", "2024-12-31T06:00:00.5Z", "2024-12-31 06:00:00.500000"),
        ("%Y-%m-%d %H:%M:%S%z", "2024-12-31 06:00:00+02:00", "2024-12-31 04:00"),
        ("%Y-%m-%d %H:%M:%S%z", "2024-12-31 06:00:00-0530", "2024-12-31 11:30"),
        ("%d %b %Y", "3 Mar 2012", "2012-03-03"),
        ("%d%b%Y", "03MAR2012", "2012-03-03"),
        ("%B %d, %Y", "march 3, 2012", "2012-03-03"),
        ("%d. %B %y %H:%M", "31. December 24 6:05", "2024-12-31 06:05"),
        ("%b-%Y", "Mar-2018", "2018-03-01"),
    ],
)
def test_a_date_is_read_by_its_format(form: str, cell: str, day: str) -> None:
    assert read(DateFormat(form), cell) == [days(day)]


@pytest.mark.parametrize(
    "cell", ["31.02.2020", "1.13.2020", "01.02.90", "01-02-1990", "01.02.19901", "2020", ""]
)
def test_a_cell_that_is_no_date_in_the_format_is_refused(cell: str) -> None:
    assert not is_read(DateFormat("%d.%m.%Y"), cell)


@pytest.mark.parametrize("month", MONTHS)
def test_each_english_month_is_read_by_its_name_and_abbreviation(month: str) -> None:
    day = days(f"2023-{1 + MONTHS.index(month):02}-05")
    assert read(DateFormat("%d %B %Y"), f"5 {month} 2023") == [day]
    assert read(DateFormat("%d %b %Y"), f"5 {month[:3]} 2023") == [day]


@pytest.mark.parametrize(
    "cell", ["31 Feb 2020", "3 Mär 2012", "3 March 2012", "3 Sept 2012", "3 Ma 2012", "Mar 2012"]
)
def test_a_cell_without_a_month_in_the_declared_form_is_refused(cell: str) -> None:
    assert not is_read(DateFormat("%d %b %Y"), cell)


@pytest.mark.parametrize(
    ("form", "cell"),
    [("%d %b %Y", "3 ſep 2020"), ("%B %Y", "Auguſt 2020")],
    ids=["abbreviation", "name"],
)
def test_a_long_s_is_no_letter_of_a_month(form: str, cell: str) -> None:
    assert not is_read(DateFormat(form), cell)
    assert is_read(DateFormat(form), cell.replace("ſ", "S"))


def test_a_time_without_its_declared_zone_is_refused() -> None:
    assert not is_read(DateFormat("%Y-%m-%d %H:%M%z"), "2024-12-31 06:00")


@pytest.mark.parametrize(
    ("form", "cell", "number"),
    [
        (NumberFormat(",", "."), "1.234,56", 1234.56),
        (NumberFormat(",", "."), "-1.234.567,", -1234567.0),
        (NumberFormat(",", "."), "1234,5", 1234.5),
        (NumberFormat(",", " "), "1 234,5", 1234.5),
        (NumberFormat(",", " "), "1\u202f234,5", 1234.5),
        (NumberFormat(",", " "), "1\u00a0234,5", 1234.5),
        (NumberFormat(".", "'"), "1\u2019234.5", 1234.5),
        (NumberFormat(".", ","), "1,234", 1234.0),
        (NumberFormat(","), "1,5e3", 1500.0),
        (EURO, "1.234,5 €", 1234.5),
        (EURO, "1.234,5", 1234.5),
        (NumberFormat(".", ",", "$"), "-$1,234.50", -1234.5),
        (NumberFormat(unit="%"), "12.5%", 12.5),
    ],
)
def test_a_number_is_read_by_its_format(form: NumberFormat, cell: str, number: float) -> None:
    assert read(form, cell) == [number]


@pytest.mark.parametrize(
    "cell", ["12.34", "1.23,5", "1234.567", "1.234.5", "1.234 $", "nan", "inf", "1_0", "", "\u0663"]
)
def test_a_cell_that_is_no_number_in_the_format_is_refused(cell: str) -> None:
    assert not is_read(NumberFormat(",", "."), cell)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_a_missing_cell_stays_missing(kind: pa.DataType) -> None:
    cells = pa.array([None, None], kind)
    assert DateFormat("%y-%m-%d %H:%M%z").numbers(cells).to_pylist() == [None, None]
    assert EURO.numbers(cells).to_pylist() == [None, None]


@pytest.mark.parametrize(
    ("form", "cells"),
    [
        (DateFormat("%d.%m.%Y"), ["01.02.1990", "11.2.2012", None, "31.12.2024"]),
        (DateFormat("%d %b %Y"), ["1 Feb 1990", "11 may 2012", None, "31 DEC 2024"]),
        (EURO, ["1.234,5 €", "7", None, "-3,25€"]),
    ],
)
def test_a_cell_has_the_same_value_whatever_stands_beside_it(
    form: CellFormat, cells: list[str | None]
) -> None:
    alone = [read(form, cell)[0] for cell in cells]
    assert read(form, *cells) == alone
    assert read(form, *reversed(cells)) == alone[::-1]


@pytest.mark.parametrize(
    ("form", "key"),
    [
        ("%d.%m", "formats.x"),
        ("%d.%m.%Y %y", "formats.x"),
        ("%d.%m.%Y %M", "formats.x"),
        ("%d %b %m %Y", "formats.x"),
        ("%b %H %Y", "formats.x"),
        ("%m.%Y", "formats.x"),
        ("", "formats.x"),
        (3, "formats.x"),
        ({"decimal": ",", "thousands": ","}, "formats.x"),
        ({"decimal": ";"}, "formats.x.decimal"),
        ({"unit": "1"}, "formats.x"),
        ({"decimals": ","}, "formats.x.decimals"),
    ],
)
def test_a_format_that_is_none_is_refused_by_its_key(form: Any, key: str) -> None:
    settings = {"numeric": {"x": (0, 1)}, "formats": {"x": form}}
    with pytest.raises(ConfigError, match=f"^{key}: "):
        validate(agt.Columns, settings, "")


def test_a_format_of_a_column_that_is_not_numeric_is_refused() -> None:
    with pytest.raises(ConfigError, match="'y'"):
        agt.Columns(numeric={"x": (0, 1)}, formats={"y": "%d.%m.%Y"})


# -- tables, and their queries
# ---------------------------------------------------------------------------------


def table(path: Path, **settings: Any) -> Table:
    given: dict[str, Any] = {
        "path": path,
        "label": "y",
        "csv": {"separator": ";"},
        "classes": ("no", "yes"),
        "numeric": {"born": ("1960-01-01", "2000-01-01"), "wage": (0, 4000)},
        "formats": {"born": "%d.%m.%Y", "wage": {"decimal": ",", "thousands": "."}},
    }
    return validate(Table, {**given, **settings}, "dataset")


def people(path: Path) -> Path:
    rows = [f"{1 + row % 28}.03.{1960 + row % 40};{row % 4}.{row:03d},5;yes" for row in range(80)]
    path.write_text("\n".join(["born;wage;y", *rows, "01.01.1980;7;no"]) + "\n")
    return path


def test_records_are_read_by_the_declared_formats(tmp_path: Path) -> None:
    path = people(tmp_path / "t.csv")
    numbers, _ = table(path)._content(open_columns(path, "s", csv_format=table(path).csv))
    assert numbers[1].tolist() == [days("1961-03-02"), 1001.5]


def test_a_query_in_another_format_is_refused(tmp_path: Path) -> None:
    source = table(people(tmp_path / "t.csv"))
    (tmp_path / "q.csv").write_text("born;wage\n1980-01-01;7\n")
    with pytest.raises(DataError, match=r"dataset\.numeric\.born\) .*'1980-01-01'.*%d\.%m\.%Y"):
        source.load_queries(tmp_path / "q.csv")


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(
    ("content", "remedy"),
    [
        (b"born,wage\n01.01.1980,7\n", "save this file with ';'"),
        (b"sep=,\nborn,wage\n01.01.1980,7\n", "save this file with ';'"),
        ("born;wage;Straße\n01.01.1980;7;x\n".encode("latin-1"), "save this file as UTF-8"),
        ("born;wage\n01.01.1980;7\n".encode("utf-16"), "save this file as UTF-8"),
        ("born;wage\n01.01.1980;7\n".encode("utf-16-le"), "save this file as UTF-8"),
    ],
)
def test_queries_cut_otherwise_than_the_training_file_are_told_its_form(
    content: bytes, remedy: str, large: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agt.data.queries.is_large", lambda path: large)
    source = table(people(tmp_path / "t.csv"))
    (tmp_path / "q.csv").write_bytes(content)
    with pytest.raises(DataError) as error:
        source.load_queries(tmp_path / "q.csv")
    assert remedy in str(error.value)
    assert "dataset.csv" not in str(error.value)


def test_queries_with_a_decimal_comma_are_told_no_setting_that_the_run_has_fixed(
    tmp_path: Path,
) -> None:
    (tmp_path / "t.csv").write_text("age;y\n20.5;no\n30.5;yes\n" * 20)
    source = table(tmp_path / "t.csv", numeric={"age": (18, 60)}, formats={})
    (tmp_path / "q.csv").write_text("age\n20,5\n")
    with pytest.raises(DataError, match="decimal points") as error:
        source.load_queries(tmp_path / "q.csv")
    assert "dataset.csv" not in str(error.value)


def test_queries_of_a_program_are_read_by_the_same_formats(tmp_path: Path) -> None:
    source = table(people(tmp_path / "t.csv"))
    (tmp_path / "q.csv").write_text("born;wage\n01.01.1980;1.234,5\n")
    (of_file,) = source.load_queries(tmp_path / "q.csv").features
    (sent,) = source.read_queries(
        columns_of([{"born": "01.01.1980", "wage": "1.234,5"}], "line 1")
    ).features
    assert (sent == of_file).all()


def test_a_number_that_a_program_sends_among_text_is_its_own_value(tmp_path: Path) -> None:
    source = table(people(tmp_path / "t.csv"))
    rows = [{"born": "01.01.1980", "wage": wage} for wage in (1.234, "1.234", 1234)]
    together = source.read_queries(columns_of(rows, "line 1")).features
    alone = [source.read_queries(columns_of([row], "line 1")).features[0] for row in rows]
    assert (together == np.array(alone)).all()
    assert (together[0] != together[1]).any()
    assert (together[1] == together[2]).all()


def test_a_number_is_no_date_of_a_declared_format(tmp_path: Path) -> None:
    source = table(people(tmp_path / "t.csv"))
    with pytest.raises(DataError, match=r"dataset\.numeric\.born"):
        source.read_queries(columns_of([{"born": 7000, "wage": 1}], "line 1"))


def test_text_of_parquet_is_read_by_the_declared_formats(tmp_path: Path) -> None:
    content = {"born": ["01.01.1980"], "wage": pa.array(["1.234,5"]).cast(pa.string_view())}
    pq.write_table(pa.table(content), tmp_path / "q.parquet")
    (tmp_path / "q.csv").write_text("born;wage\n01.01.1980;1.234,5\n")
    source = table(people(tmp_path / "t.csv"))
    in_parquet = source.load_queries(tmp_path / "q.parquet").features
    assert (in_parquet == source.load_queries(tmp_path / "q.csv").features).all()


def test_whole_numbers_are_dates_of_digits(tmp_path: Path) -> None:
    pq.write_table(pa.table({"born": [19800101], "wage": [7]}), tmp_path / "q.parquet")
    source = table(people(tmp_path / "t.csv"), formats={"born": "%Y%m%d"})
    numbers, _ = source._content(open_columns(tmp_path / "q.parquet", "s"))
    assert numbers[0, 0] == days("1980-01-01")


def test_columns_of_a_data_frame_are_read_by_the_declared_formats() -> None:
    limits = {"born": ("1960-01-01", "2000-01-01")}
    german = agt.Columns(numeric=limits, formats={"born": "%d.%m.%Y"})
    features = german(pd.DataFrame({"born": ["01.02.1980"]}))
    assert (features == agt.Columns(numeric=limits)(pd.DataFrame({"born": ["1980-02-01"]}))).all()


def test_plain_numpy_cannot_read_declared_formats(tmp_path: Path) -> None:
    """So the README of released weights says that only agt makes their features."""
    source = table(people(tmp_path / "t.csv"))
    assert source.formula() == {}
    assert table(people(tmp_path / "t.csv"), formats={}).formula()


@pytest.mark.parametrize("scale", [0, 3])
def test_a_stored_decimal_is_its_own_value_whatever_its_scale(scale: int) -> None:
    """Arrow chooses the scale from the whole column: text of it would depend on other cells."""
    columns = agt.Columns(
        numeric={"w": [0, 10_000]}, bins=0, formats={"w": {"decimal": ",", "thousands": "."}}
    )
    beside = [Decimal(5), Decimal("1.234")] if scale else [Decimal(5)]
    coded = columns(pd.DataFrame({"w": beside}))
    assert coded[0, 0] == np.float32(2 * 5 / 10_000 - 1)


def test_a_stored_decimal_is_a_date_of_digits_whatever_its_scale() -> None:
    columns = agt.Columns(numeric={"w": ["20200101", "20300101"]}, bins=0, formats={"w": "%Y%m%d"})
    alone = columns(pd.DataFrame({"w": [Decimal(20240101)]}))
    beside = columns(pd.DataFrame({"w": [Decimal(20240101), Decimal("20240102.0")]}))
    assert np.array_equal(alone[0], beside[0])


def test_text_of_queries_is_read_with_the_decimal_comma_of_the_training_file(
    tmp_path: Path,
) -> None:
    (tmp_path / "t.csv").write_text("w;y\n1.234;a\n5,5;b\n7;a\n8;b\n")
    table = Table(
        path=tmp_path / "t.csv",
        label="y",
        numeric={"w": (0, 10_000)},
        bins=0,
        csv={"separator": ";", "decimal": ","},
    )
    (tmp_path / "q.csv").write_text("w;y\n1.234;a\n5,5;b\n")
    of_file = table.load_queries(tmp_path / "q.csv").features
    sent = table.read_queries(columns_of([{"w": "1.234"}, {"w": "5,5"}], "line 1")).features
    assert (sent == of_file).all()


@pytest.mark.parametrize("form", ['%d"%m"%Y', NumberFormat(",", ".", "\\")])
def test_a_proposed_format_is_read_back_from_yaml(form: NumberFormat | str) -> None:
    read = yaml.safe_load(format_as_yaml(form))
    assert (read if isinstance(form, str) else NumberFormat(**read)) == form


def test_an_unknown_key_of_a_format_is_answered_with_the_keys_that_there_are() -> None:
    with pytest.raises(ConfigError, match=r"formats\.w\.decimals.*decimal"):
        agt.Columns(numeric={"w": [0, 1]}, formats={"w": {"decimals": ","}})  # type: ignore[dict-item]
