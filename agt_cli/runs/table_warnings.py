"""Warnings to the owner about a table that was inspected."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from agt.data.column_reader import ColumnReader
from agt.data.csv_format import CsvFormat, open_text
from agt.data.formats import DateFormat, NumberFormat, reads
from agt_cli.runs.column import Column
from agt_cli.runs.column_values import ColumnValues
from agt_cli.runs.doubts import (
    DataWarning,
    class_warnings,
    has_codes,
    numeric_label_warnings,
    sentinel_warnings,
    value_warnings,
)
from agt_cli.runs.formats import format_setting
from agt_cli.runs.inspection import Inspection
from agt_cli.runs.label_column import MIN_QUANTITY_NUMBERS
from agt_cli.runs.sniffing import GUESSED_ENCODINGS

_DATE_WITHOUT_SEPARATORS = "%Y%m%d"
_WORD_BEYOND_ASCII = re.compile(r"\w*[^\x00-\x7f]\w*")
MAX_EXCEPTIONS = 0.05
"""Up to this share of the rows may be no records, such as totals; more have a reason."""


def table_warnings(
    inspection: Inspection,
    reader: ColumnReader,
    values_by_column: Mapping[str, ColumnValues],
    may_lack_header: bool,
    remedy: str,
) -> Iterator[DataWarning]:
    """Yield warnings about a table: names, columns, the label, and rows.

    Args:
        inspection: what the table holds.
        reader: reads the rows that are inspected.
        values_by_column: the values of each column that is not dropped.
        may_lack_header: True: nothing shows that the first line of a csv gives the names of
            columns.
        remedy: what to type so that labels are read as numbers, as ``LabelFacts`` has it.
    """
    if may_lack_header:
        yield DataWarning("names_may_be_a_record", values=tuple(values_by_column)[:4])
    dates = tuple(
        column.name for column in inspection.features if column.kind == "date" and not column.public
    )
    if dates:
        yield DataWarning("dates_may_go_on", dates[0], dates)
    if inspection.possible_codes:
        yield DataWarning("may_be_codes", values=inspection.possible_codes)
    for column in inspection.columns:
        if column.kind == "dropped":
            continue
        values = values_by_column[column.name]
        if column.name != column.name.strip():
            yield DataWarning("blanks_around_name", column.name)
        if column.name == inspection.label:
            yield from _label_warnings(inspection, values, remedy)
        else:
            yield from _column_warnings(inspection.form, column, values)
        yield from _lost_code_warnings(inspection, column)
    yield from _row_warnings(reader, values_by_column, inspection.label)


def _column_warnings(
    form: CsvFormat | None, column: Column, values: ColumnValues
) -> Iterator[DataWarning]:
    """Yield warnings about a column that is not the label.

    Args:
        form: the format of a csv; None: the file is no csv.
        column: the column, with what is proposed for it.
        values: its values.
    """
    yield from value_warnings(column.name, column.categorical)
    if column.kind == "unreadable" or (column.kind == "date" and not column.numeric):
        yield DataWarning("left_out", column.name, reason=column.remark)
    elif column.categorical and column.remark:
        yield DataWarning("taken_as_words", column.name, reason=column.remark)
    reading = tuple(_reading_warnings(form, values))
    yield from reading
    # A number that may mean that a value is missing is mostly an outlier, and is named as that.
    if column.outside and column.public:
        ends = tuple(column.bound(end) for end in column.numeric)
        yield DataWarning("outside_declared_range", column.name, ends, column.outside)
    elif column.outside and not any(warning.code == "may_mean_missing" for warning in reading):
        yield DataWarning("outliers", column.name, column.outlying_values, column.outside)


def _row_warnings(
    columns: ColumnReader, values_by_column: Mapping[str, ColumnValues], label: str | None
) -> Iterator[DataWarning]:
    """Yield warnings that rows have no label, or next to no values, with the place of the first.

    Args:
        columns: the open file, of which columns are read.
        values_by_column: their values, by name.
        label: the column of labels; None: it is not evident which column this is.
    """
    has_value = {
        name: values.rows_with_value()
        for name, values in values_by_column.items()
        if values.is_single
    }
    if label in has_value:
        unlabelled = np.flatnonzero(~has_value[label])
        if len(unlabelled):
            location = columns.row(int(unlabelled[0]))
            yield DataWarning("label_missing", label, rows=len(unlabelled), first_row=location)
    values_in_row = np.sum([*has_value.values()], axis=0)
    nearly_empty = np.flatnonzero(values_in_row <= len(has_value) / 4)
    is_exception = len(nearly_empty) <= MAX_EXCEPTIONS * len(values_in_row)
    if len(nearly_empty) and is_exception:
        location = columns.row(int(nearly_empty[0]))
        yield DataWarning("rows_nearly_empty", rows=len(nearly_empty), first_row=location)


def _label_warnings(
    inspection: Inspection, values: ColumnValues, remedy: str
) -> Iterator[DataWarning]:
    """Yield warnings about the column of labels.

    Args:
        inspection: what the table holds.
        values: the values of the column of labels.
        remedy: what to type so that labels are read as numbers.
    """
    if inspection.numbers is not None:
        yield from numeric_label_warnings(
            values.name, values.numbers, values.counts, inspection.numbers
        )
    elif inspection.classes:
        may_be_a_quantity = inspection.may_be_numbers and not inspection.needs_target and not remedy
        if remedy and len(values.distinct) >= MIN_QUANTITY_NUMBERS:
            yield DataWarning(
                "label_written_otherwise",
                values.name,
                rows=len(values.distinct),
                reason=remedy,
            )
        yield from class_warnings(
            values.name, values.sorted_counts(), may_be_numbers=may_be_a_quantity
        )


def _reading_warnings(form: CsvFormat | None, values: ColumnValues) -> Iterator[DataWarning]:
    """Yield warnings that values of a feature may be read otherwise than they are meant.

    Args:
        form: the format of a csv; None: the file is no csv.
        values: the values of the feature.
    """
    texts = values.distinct.to_pylist() if values.is_text else []
    if setting := _thousands_setting(form, values):
        example = next(word for word in texts if "." in word)
        yield DataWarning("points_may_be_thousands", values.name, (example,), reason=setting)
    if values.is_numeric and not values.is_date and values.format is None:
        yield from _date_warnings(values)
    if values.is_text and values.is_numeric and not values.is_date:
        yield from sentinel_warnings(values.name, texts, values.numbers, values.counts)


def _date_warnings(values: ColumnValues) -> Iterator[DataWarning]:
    """Yield a warning if each number of a feature is also a date without separators.

    Args:
        values: the values of the feature.
    """
    words = pa.array([str(word) for word in values.distinct.to_pylist()], pa.string())
    is_like_date = pc.match_substring_regex(words, r"^(19|20)\d{6}$")
    if len(words) < MIN_QUANTITY_NUMBERS or not pc.all(is_like_date).as_py():
        return
    if reads(DateFormat(_DATE_WITHOUT_SEPARATORS), words):
        setting = format_setting(values.name, _DATE_WITHOUT_SEPARATORS)
        yield DataWarning("may_be_dates", values.name, (words[0].as_py(),), reason=setting)


def encoding_warnings(path: Path, form: CsvFormat) -> Iterator[DataWarning]:
    """Yield a warning that the encoding of a csv was guessed, with the first word that shows it.

    Each byte is a letter in many encodings, so that no file shows which of them it has.

    Args:
        path: the file.
        form: the format of the csv, as it was guessed.
    """
    if form.encoding not in GUESSED_ENCODINGS:
        return
    with open_text(path, form.codec) as file:
        for line in file:
            if word := _WORD_BEYOND_ASCII.search(line):
                yield DataWarning("encoding_guessed", values=(word[0],), reason=form.encoding)
                return


def _thousands_setting(form: CsvFormat | None, values: ColumnValues) -> str:
    """Return the setting to propose if the points in a column's numbers may separate thousands.

    1.234 is read as a decimal number, but stands for 1234 where every number is either below 1,000
    and without a point, or has exactly three digits behind one point.

    Args:
        form: the format of a csv; None: the file is no csv.
        values: the values of the column.

    Returns:
        The setting, as it is typed; empty: the numbers are not written so, or nothing but three
        decimals speaks for it.
    """
    is_read_with_decimals = values.is_text and values.is_numeric and values.format is None
    if form is None or form.decimal != "." or not is_read_with_decimals:
        return ""
    has_three_digits_behind_point = values.matches(r"^[+-]?[1-9]\d{0,2}\.\d{3}$")
    is_below_thousand = values.matches(r"^[+-]?\d{1,3}$")
    if not (has_three_digits_behind_point | is_below_thousand).all():
        return ""
    if has_three_digits_behind_point.sum() < MIN_QUANTITY_NUMBERS:
        return ""
    # A column of which all numbers have three decimals is one of decimals. But semicolons separate
    # the columns of a file in countries where a comma, and no point, begins the decimals.
    if not is_below_thousand.any() and form.separator != ";":
        return ""
    return format_setting(values.name, NumberFormat(decimal=",", thousands="."))


def _lost_code_warnings(inspection: Inspection, column: Column) -> Iterator[DataWarning]:
    """Yield a warning for each word among codes that is read as a missing value.

    NA is such a word where a column has codes of countries.

    Args:
        inspection: what the table holds; only the cells of a csv can be such words.
        column: one of its columns.
    """
    texts = [word for word, _ in column.values]
    if inspection.form is None or not column.missing or not has_codes(texts):
        return
    counts = inspection.form.missing_words(inspection.path, column.name)
    for word, rows in counts.items():
        if word.isupper() and word.isalpha():
            yield DataWarning("country_code_missing", column.name, (word,), rows)
