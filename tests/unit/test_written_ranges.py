"""Ranges in a dataset file, whose numbers are written as the cells of a table are."""

from pathlib import Path
from typing import Any

import pytest

from agt.data.file_settings import TableSettings
from agt.data.written_ranges import check_unquoted_points
from agt.errors import ConfigError

GERMAN = {"csv": {"decimal": ","}}
SWISS = {"formats": {"income": {"decimal": ".", "thousands": "'"}}}


def ranges(ends: list[object], **settings: Any) -> tuple[float, ...] | None:
    table = TableSettings(path="t.csv", label="y", numeric={"income": ends}, **settings)
    return table.numeric["income"]


@pytest.mark.parametrize(
    ("ends", "settings", "read"),
    [
        (["0", "30.000"], GERMAN, (0, 30_000)),
        (["-1.500,5", "2,25"], GERMAN, (-1500.5, 2.25)),
        ([0, 30_000], GERMAN, (0, 30_000)),
        (["0", "1'234.5"], SWISS, (0, 1234.5)),
        (["0", "30.000"], {**GERMAN, **SWISS}, (0, 30)),
        (["0", "30.000"], {}, (0, 30)),
        (["1970-01-02", "1970-01-03"], GERMAN, (1, 2)),
    ],
)
def test_quoted_numbers_are_read_as_the_cells_of_their_column_are(
    ends: list[object], settings: dict[str, Any], read: tuple[float, ...]
) -> None:
    assert ranges(ends, **settings) == read


def test_a_quoted_range_of_labels_is_read_as_the_labels_are() -> None:
    settings = {"path": "t.csv", "label": "y", "numeric": {"a": [0, 1]}, "target": "numeric"}
    table = TableSettings(**settings, range=["0", "30.000"], **GERMAN)
    assert table.range == (0, 30_000)


def test_a_quoted_number_in_another_form_than_the_declared_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'3\.00', .* 1\.234,5"):
        ranges(["0", "3.00"], **GERMAN)


@pytest.mark.parametrize(
    ("text", "typed"),
    [
        ("csv: {decimal: ','}\nnumeric:\n  income: [0, 30.000] # seen", "income: [0, 30000]"),
        ("csv: {decimal: ','}\nlabel: y\nrange: [0, 30.000]", "range: [0, 30000]"),
        ("formats: {b: {decimal: ',', thousands: .}}\nnumeric: {b: [1.500, 2]}", "[1500, 2]"),
    ],
)
def test_an_unquoted_point_that_separates_thousands_is_refused_with_the_line_to_type(
    tmp_path: Path, text: str, typed: str
) -> None:
    file = tmp_path / "t.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as error:
        check_unquoted_points(file)
    assert typed in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        "numeric: {income: [0, 30.000]}",
        "csv: {decimal: ','}\nnumeric: {income: ['0', '30.000']}",
        "csv: {decimal: ','}\nnumeric: {income: [0, 30.0, 0.125]}",
        "csv: {decimal: ','}\nmeasurement: {}\nnumeric: {income: [0, 30.125]}",
        "csv: {decimal: ','}\nformats: {income: {unit: €}}\nnumeric: {income: [0, 30.125]}",
        "no mapping",
        "broken: [",
    ],
)
def test_a_range_that_has_one_reading_passes(tmp_path: Path, text: str) -> None:
    file = tmp_path / "t.yaml"
    file.write_text(text, encoding="utf-8")
    check_unquoted_points(file)
    check_unquoted_points(tmp_path / "nowhere.yaml")
