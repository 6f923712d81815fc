"""What may be a mistake in a table is said to its owner before anything is written."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from agt.errors import DataError
from agt_cli.runs.column import ColumnOptions
from agt_cli.runs.dataset_file import dataset_yaml
from agt_cli.runs.doubts import MAX_SHOWN_GROUPS, DataWarning, DataWarningCode
from agt_cli.runs.inspect import inspect_table

ROWS = 60
LABEL = ["no", "yes"] * (ROWS // 2)
AGE = [18 + row % 42 for row in range(ROWS)]
DAYS = [20240101 + row % 28 for row in range(ROWS)]


def doubts(tmp_path: Path, columns: dict[str, list[Any]], **settings: Any) -> list[DataWarning]:
    rows = zip(*columns.values(), strict=True)
    lines = [",".join(columns), *(",".join(map(str, row)) for row in rows)]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    names = [field.name for field in fields(ColumnOptions) if field.name in settings]
    options = ColumnOptions(**{name: settings.pop(name) for name in names})
    return list(inspect_table(tmp_path / "t.csv", options=options, **settings).warnings)


@pytest.mark.parametrize(
    ("columns", "code", "column", "values"),
    [
        ({"age": AGE, "y": ["Yes", *LABEL[1:]]}, "classes_alike", "y", ("Yes", "yes")),
        ({"age": AGE, "y": ["yes ", *LABEL[1:]]}, "classes_alike", "y", ("yes", "yes ")),
        ({"age": AGE, "y": ["1", "0", "1.0"] * 20}, "classes_alike", "y", ("1", "1.0")),
        ({"age": AGE, "y": ["yes.", *LABEL[1:]]}, "classes_alike", "y", ("yes", "yes.")),
        (
            {"age": AGE, "y": ["ne\u0301", "n\xe9", "oui"] * 20},
            "classes_alike",
            "y",
            ("ne\u0301", "n\xe9"),
        ),
        ({"day": DAYS, "y": LABEL}, "may_be_dates", "day", ("20240101",)),
        ({"age": AGE, "y": ["***", *LABEL[1:]]}, "label_masked", "y", ("***",)),
        ({"age": AGE, "y": ["hidden", *LABEL[1:]]}, "label_masked", "y", ("hidden",)),
        ({"age": AGE, "y": ["-9", "0", "1"] * 20}, "label_masked", "y", ("-9",)),
        ({"age": AGE, "t": ["a", "b", " b"] * 20, "y": LABEL}, "values_alike", "t", (" b", "b")),
        (
            {"age": AGE, "t": [" a", " b"] * 30, "y": LABEL},
            "blanks_around_value",
            "t",
            (" a", " b"),
        ),
        ({" age": AGE, "y": LABEL}, "blanks_around_name", " age", ()),
        (
            {"age": AGE, "land": ["DE", "FR", "NA"] * 20, "y": LABEL},
            "country_code_missing",
            "land",
            ("NA",),
        ),
        (
            {"colour": ["red", "blue"] * 30, "y": LABEL},
            "names_may_be_a_record",
            "",
            ("colour", "y"),
        ),
    ],
)
def test_what_may_be_a_mistake_is_said(
    tmp_path: Path,
    columns: dict[str, list[Any]],
    code: DataWarningCode,
    column: str,
    values: tuple[str, ...],
) -> None:
    (doubt,) = doubts(tmp_path, columns)
    assert (doubt.code, doubt.column, doubt.values) == (code, column, values)


def test_the_first_row_without_a_label_is_named(tmp_path: Path) -> None:
    (doubt,) = doubts(tmp_path, {"age": AGE, "y": ["", *LABEL[1:]]})
    assert (doubt.code, doubt.column) == ("label_missing", "y")
    assert doubt.first_row == "row 1 of the data (line 2 of the file)"


@pytest.mark.parametrize(("pairs", "shown"), [(5, 5), (9, MAX_SHOWN_GROUPS)])
def test_all_values_that_differ_only_in_capitals_are_in_one_doubt(
    tmp_path: Path, pairs: int, shown: int
) -> None:
    words = [word for letter in "abcdefghi"[:pairs] for word in (letter, letter.upper())]
    towns = [words[row % len(words)] for row in range(ROWS)]
    (doubt,) = doubts(tmp_path, {"age": AGE, "town": towns, "y": LABEL})
    assert doubt.code == "values_alike"
    assert {*doubt.values} == {*words}
    named = [word for word in words if repr(word) in doubt.sentence]
    assert len(named) == 2 * shown
    assert ("3 more" in doubt.sentence) == (pairs > shown)


DIGITS = [*"0123456789"] * 6


def test_ratings_that_are_taken_as_classes_are_said(tmp_path: Path) -> None:
    (doubt,) = doubts(tmp_path, {"x": LABEL, "rating": DIGITS}, label="rating")
    assert (doubt.code, doubt.column, doubt.rows) == ("number_as_classes", "rating", 10)


def test_nothing_is_said_of_numbers_that_are_declared_to_be_classes(tmp_path: Path) -> None:
    columns = {"x": LABEL, "digit": DIGITS}
    assert doubts(tmp_path, columns, label="digit", target="classes") == []


@pytest.mark.parametrize(("high", "rows"), [(60, []), (50, [9])])
def test_labels_outside_of_their_range_are_counted(
    tmp_path: Path, high: int, rows: list[int]
) -> None:
    columns = {"x": LABEL, "age": AGE}
    found = doubts(tmp_path, columns, label="age", target="numeric", label_range=(0, high))
    assert [doubt.rows for doubt in found] == rows
    assert all(doubt.code == "label_outside_range" for doubt in found)


@pytest.mark.parametrize("form", ["{}-Mär-24", "{} janv. 2024", "{}. Dezember 2024"])
def test_dates_with_names_of_months_in_other_languages_are_called_dates(
    tmp_path: Path, form: str
) -> None:
    days = [f'"{form.format(1 + row % 28)}"' for row in range(ROWS)]
    columns = {"day": days, "age": AGE, "y": LABEL}
    (doubt,) = doubts(tmp_path, columns, most_values=20)
    assert (doubt.code, doubt.column) == ("left_out", "day")
    assert "names of months" in doubt.sentence


def test_words_with_numbers_are_no_dates(tmp_path: Path) -> None:
    weeks = [f"week {row % 28}" for row in range(ROWS)]
    assert doubts(tmp_path, {"week": weeks, "age": AGE, "y": LABEL}, most_values=20) == []


@pytest.mark.parametrize("word", ["inf", "-Infinity", "1e999"])
def test_an_infinite_number_that_makes_a_column_text_is_said(tmp_path: Path, word: str) -> None:
    wage = [*(f"{row}.25" for row in range(ROWS - 1)), word]
    (doubt,) = doubts(tmp_path, {"wage": wage, "age": AGE, "y": LABEL}, most_values=20)
    assert (doubt.code, doubt.column) == ("left_out", "wage")
    assert word in doubt.sentence


@pytest.mark.parametrize(
    "columns",
    [
        {"age": AGE, "y": LABEL},
        {"age": AGE, "y": ["+", "-"] * 30},
        {"code": [20240101 + row for row in range(ROWS)], "y": LABEL},  # 20240132 is not a date
        {"age": AGE, "y": ["-1", "1"] * 30},
        {"age": AGE, "y": [*"0123"] * 15},
        {"age": AGE, "t": ["a", "b", ""] * 20, "y": LABEL},
        {"age": AGE, "town": ["Ulm", "Bonn", "NA"] * 20, "y": LABEL},
    ],
)
def test_nothing_is_said_of_a_table_without_mistakes(
    tmp_path: Path, columns: dict[str, list[Any]]
) -> None:
    assert doubts(tmp_path, columns) == []


def test_a_table_of_words_without_names_is_asked_about(tmp_path: Path) -> None:
    columns = {"red": ["blue", "red"] * 30, "no": LABEL}
    with pytest.raises(DataError, match=r"line 1 .*header=false"):
        doubts(tmp_path, columns)


@pytest.mark.parametrize(("header", "rows"), [(True, ROWS), (False, ROWS + 1)])
def test_a_table_of_words_has_the_names_that_are_said(
    tmp_path: Path, header: bool, rows: int
) -> None:
    columns = {"red": ["blue", "red"] * 30, "no": LABEL}
    label = "no" if header else "column2"
    doubts(tmp_path, columns, header=header, label=label)
    assert inspect_table(tmp_path / "t.csv", header=header, label=label).rows == rows


@pytest.mark.parametrize("word", ["inf", "-Infinity", "1e999"])
def test_labels_of_numbers_with_an_infinite_one_are_no_classes(tmp_path: Path, word: str) -> None:
    columns = {"age": AGE, "stars": [*"12345" * 11, "1", "2", "3", "4", word]}
    with pytest.raises(DataError, match="row 60") as error:
        doubts(tmp_path, columns, label="stars")
    assert word in str(error.value)


def test_an_infinite_word_may_be_declared_a_class(tmp_path: Path) -> None:
    columns = {"age": AGE, "y": ["1", "2", "inf"] * 20}
    assert doubts(tmp_path, columns, label="y", target="classes") == []


def written_alike(example: str) -> dict[str, list[Any]]:
    """Return a table whose label y has as many different numbers as rows, written as an example."""
    if "1.234" in example:
        cells = [example.replace("234", str(234 + row)) for row in range(ROWS)]
    else:
        cells = [example, *(example.replace("2", str(20 + row), 1) for row in range(1, ROWS))]
    return {"age": [f"{age}.5" for age in AGE], "y": [f'"{cell}"' for cell in cells]}


@pytest.mark.parametrize(
    ("example", "remedy"),
    [
        ("1.2k", "'1.2k' as 1200"),
        ("12 kg", """'+formats={y: {unit: "kg"}}'"""),
        ("€ 1.234", " means 1.234"),
    ],
)
@pytest.mark.parametrize("target", [None, "numeric"])
def test_how_labels_must_be_written_to_be_numbers_is_said(
    tmp_path: Path, example: str, remedy: str, target: str | None
) -> None:
    label_range = (0, 9) if target else None
    with pytest.raises(DataError) as error:
        doubts(
            tmp_path,
            written_alike(example),
            label="y",
            target=target,
            label_range=label_range,
        )
    assert remedy in str(error.value)


@pytest.mark.parametrize(
    ("example", "number"), [("12%", 12.0), ("€ 1.234,50", 1234.5), ("$12", 12.0)]
)
def test_labels_in_one_known_form_are_numbers(tmp_path: Path, example: str, number: float) -> None:
    columns = written_alike(example)
    assert doubts(tmp_path, columns, label="y") == [], "agt asks what they are"
    asked = inspect_table(tmp_path / "t.csv", label="y")
    assert asked.needs_target
    given = inspect_table(tmp_path / "t.csv", label="y", target="numeric", label_range=(0, 10_000))
    assert given.label_column is not None
    assert given.label_column.low == number
    assert '"y":' in dataset_yaml(given, "t").partition("formats:")[2]


def test_few_labels_with_a_sign_are_classes_and_may_be_numbers(tmp_path: Path) -> None:
    cells = [f"{share}%" for share in (5, 10, 25, 50, 75, 100)] * 10
    (doubt,) = doubts(tmp_path, {"age": AGE, "share": cells}, label="share")
    assert (doubt.code, doubt.rows) == ("number_as_classes", 6)


def test_few_labels_with_a_suffix_are_classes_and_may_be_numbers(tmp_path: Path) -> None:
    cells = [f"{share}k" for share in (5, 10, 25, 50, 75, 100)] * 10
    (doubt,) = doubts(tmp_path, {"age": AGE, "share": cells}, label="share")
    assert (doubt.code, doubt.rows) == ("label_written_otherwise", 6)
    assert "as 5000" in doubt.sentence


def test_a_column_of_numbers_with_a_suffix_is_said_to_be_read_as_words(tmp_path: Path) -> None:
    weights = [f"{50 + row % 30} kg" for row in range(ROWS)]
    (doubt,) = doubts(tmp_path, {"age": AGE, "weight": weights, "y": LABEL})
    assert (doubt.code, doubt.column) == ("taken_as_words", "weight")
    assert '+formats={weight: {unit: "kg"}}' in doubt.sentence


def test_suffixes_of_several_powers_of_ten_are_to_be_written_out(tmp_path: Path) -> None:
    sizes = ["900", "1.2k", "3M"] * 20
    (doubt,) = doubts(tmp_path, {"age": AGE, "size": sizes, "y": LABEL})
    assert doubt.code == "taken_as_words"
    assert "'1.2k' as 1200" in doubt.sentence


def test_ordinals_are_words(tmp_path: Path) -> None:
    assert doubts(tmp_path, {"age": AGE, "class": ["1st", "2nd", "3rd"] * 20, "y": LABEL}) == []


def test_that_queries_may_have_later_dates_is_said(tmp_path: Path) -> None:
    opened = [f"2023-{1 + row % 12:02}-01" for row in range(ROWS)]
    (doubt,) = doubts(tmp_path, {"age": AGE, "opened": opened, "y": LABEL})
    assert (doubt.code, doubt.values) == ("dates_may_go_on", ("opened",))
    assert "'ranges={opened: [FIRST,LAST]}'" in doubt.sentence


def test_points_that_may_stand_between_thousands_are_asked_about(tmp_path: Path) -> None:
    distances = [f"{1 + row % 9}.{100 + row}" if row % 3 else f"{100 + row}" for row in range(ROWS)]
    (doubt,) = doubts(tmp_path, {"age": AGE, "km": distances, "y": LABEL})
    assert (doubt.code, doubt.column) == ("points_may_be_thousands", "km")
    assert '+formats={km: {decimal: ",", thousands: "."}}' in doubt.sentence


@pytest.mark.parametrize("tail", ["", "5"])
def test_numbers_with_other_than_three_decimals_are_decimals(tmp_path: Path, tail: str) -> None:
    sizes = [f"{1 + row % 9}.{100 + row}" for row in range(ROWS - 1)]
    last = f"1.23{tail}5" if tail else "1.235"
    assert doubts(tmp_path, {"age": AGE, "size": [*sizes, last], "y": LABEL}) == []


def test_a_word_among_numbers_with_separators_is_named(tmp_path: Path) -> None:
    prices = ["ask us", *(f'"{1 + row}.234,5{row % 10}"' for row in range(ROWS - 1))]
    (doubt,) = doubts(tmp_path, {"age": AGE, "price": prices, "y": LABEL}, most_values=20)
    assert (doubt.code, doubt.column) == ("left_out", "price")
    assert "'ask us'" in doubt.sentence


@pytest.mark.parametrize("gap", ["k.A.", "n.v.", "keine Angabe"])
def test_words_for_no_value_among_german_numbers_are_gaps(tmp_path: Path, gap: str) -> None:
    prices = [gap, *(f'"{1 + row}.234,5{row % 10}"' for row in range(ROWS - 1))]
    assert doubts(tmp_path, {"age": AGE, "price": prices, "y": LABEL}) == []


@pytest.mark.parametrize(
    ("end", "number"), [("90+", "90"), ("90 +", "90"), (">90", "90"), ("<18", "18"), ("≥ 90", "90")]
)
def test_an_open_end_among_numbers_is_named_however_often_it_occurs(
    tmp_path: Path, end: str, number: str
) -> None:
    age = [*AGE[: ROWS // 2], *[end] * (ROWS // 2)]
    (doubt,) = doubts(tmp_path, {"age": age, "size": AGE, "y": LABEL})
    assert (doubt.code, doubt.column) == ("taken_as_words", "age")
    assert f"such as {number})" in doubt.sentence


@pytest.mark.parametrize("sentinel", ["999", "-9", "-999"])
def test_a_number_that_may_mean_missing_is_said(tmp_path: Path, sentinel: str) -> None:
    (doubt,) = doubts(tmp_path, {"age": [*AGE[2:], sentinel, sentinel], "y": LABEL})
    assert (doubt.code, doubt.values, doubt.rows) == ("may_mean_missing", (sentinel,), 2)
    assert (
        doubts(
            tmp_path,
            {"age": [*AGE[2:], sentinel, sentinel], "y": LABEL},
            missing_values=(sentinel,),
        )
        == []
    )


def test_a_large_number_among_large_ones_is_a_value(tmp_path: Path) -> None:
    prices = [*(990 + row for row in range(ROWS - 2)), 999, 999]
    assert doubts(tmp_path, {"price": prices, "y": LABEL}) == []


def test_few_whole_numbers_may_be_codes(tmp_path: Path) -> None:
    (doubt,) = doubts(tmp_path, {"age": AGE, "ward": [1, 2, 3] * 20, "y": LABEL})
    assert (doubt.code, doubt.values) == ("may_be_codes", ("ward",))


def test_rows_that_are_no_records_are_named(tmp_path: Path) -> None:
    table = {name: [str(age) for age in AGE] for name in "abcd"}
    columns = {name: [*cells, "", ""] for name, cells in (table | {"y": LABEL}).items()}
    columns["a"][-1] = "1234"  # a total
    found = {doubt.code: doubt for doubt in doubts(tmp_path, columns, label="y")}
    assert found["rows_nearly_empty"].rows == 2
    assert found["rows_nearly_empty"].first_row == "row 61 of the data (line 62 of the file)"


def test_rows_of_a_table_that_is_mostly_blank_are_records(tmp_path: Path) -> None:
    blank = {name: ["1", *[""] * (ROWS - 1)] for name in "abcdefgh"}
    found = {doubt.code for doubt in doubts(tmp_path, {**blank, "age": AGE, "y": LABEL}, label="y")}
    assert "rows_nearly_empty" not in found


def test_files_that_were_joined_with_their_headers_are_told_the_line(tmp_path: Path) -> None:
    columns = {"age": [*AGE, "age", *AGE], "y": [*LABEL, "y", *LABEL]}
    for header in (None, True):
        with pytest.raises(DataError, match="line 62"):
            doubts(tmp_path, columns, header=header)


@pytest.mark.parametrize("names", ["age,y,age", "age,y,,"])
def test_two_columns_of_one_name_are_named_with_their_places(tmp_path: Path, names: str) -> None:
    width = len(names.split(","))
    rows = [
        ",".join([str(age), label, *["w"] * (width - 2)])
        for age, label in zip(AGE, LABEL, strict=True)
    ]
    (tmp_path / "t.csv").write_text("\n".join([names, *rows]) + "\n")
    with pytest.raises(DataError, match=r"number (1, 3|3, 4)\)"):
        inspect_table(tmp_path / "t.csv")
