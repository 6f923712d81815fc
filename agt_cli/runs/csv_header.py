"""Checks whether the first line of a csv gives the names of its columns."""

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from agt.data.column_reader import ColumnReader
from agt.data.csv_format import CsvFormat
from agt.errors import DataError, counted
from agt_cli.runs.column_values import (
    MISSING_WORDS,
    NUMBER_PATTERN,
    NUMBER_WITH_COMMA_PATTERN,
    ColumnValues,
)
from agt_cli.runs.label_column import MIN_QUANTITY_NUMBERS

_HEADER_REMEDY = (
    "give header=false if the file has no header (agt then names the columns column1, column2, "
    "...), or header=true if line 1 gives the names of the columns"
)
_HEADER_LINES = 50  # that show what line 1 and line 2 are


def check_header(path: Path, form: CsvFormat) -> None:
    """Raise DataError if the first line of a csv looks like a title or a record, not like names.

    Numbers are data, unless they count the columns. Repeated and missing names are refused as well.
    """
    names = form.column_names(path)
    empty = sum(not name.strip() for name in names)
    if empty > 1 and 2 * empty > len(names) and form.separator != " ":
        line = form.separator.join(names)
        column_count = len(names)
        named_count = column_count - empty
        raise DataError(
            f"{path}: line 1 ({line!r}) names only {named_count} of {column_count} columns: "
            "remove line 1 if it is a title, or add the names of the other columns to it"
        )
    numbers = [name for name in names if re.match(NUMBER_PATTERN, name.strip())]
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated and not numbers:
        positions = [number for number, name in enumerate(names, start=1) if name == repeated[0]]
        columns = ", ".join(map(str, positions))
        problem_clause = f"gives the name {repeated[0]!r} to" if repeated[0] else "has no name for"
        raise DataError(
            f"{path}: line 1 {problem_clause} {len(positions)} columns (number {columns}): give "
            "each column its own name in line 1, or give header=false if line 1 is the first record"
        )
    _check_one_line_of_names(path, form, is_doubtful=bool(numbers or empty))
    counted_columns = [[str(start + column) for column in range(len(numbers))] for start in (0, 1)]
    if numbers not in counted_columns or repeated:
        first_names = ", ".join(repr(name) for name in names[:4])
        problem = "has the same name twice" if repeated else "looks like data"
        raise DataError(f"{path}: line 1 ({first_names}, ...) {problem}: {_HEADER_REMEDY}")


def _check_one_line_of_names(path: Path, form: CsvFormat, is_doubtful: bool) -> None:
    """Raise DataError if line 2 of a csv seems to be no record, but names or units of columns.

    Then line 1 is a title, or line 2 explains the columns. It seems so if every column that has
    numbers from line 3 on has a word in line 2. One such column is enough only if line 1 hardly
    looks like names, because a first record may have a word in place of one number.

    Args:
        path: the csv.
        form: how the csv is cut into cells.
        is_doubtful: whether line 1 has numbers or empty cells.
    """
    rows = form.first_rows(path, _HEADER_LINES)
    filled = [row for row in rows[2:] if row]
    if len(filled) < MIN_QUANTITY_NUMBERS or {len(row) for row in filled} != {len(rows[1])}:
        return
    first = rows[0]
    second = rows[1]
    columns = list(zip(*filled, strict=True))
    named = [
        name.strip()
        for name, cells in zip(second, columns, strict=True)
        if all(re.match(NUMBER_WITH_COMMA_PATTERN, cell.strip()) for cell in cells)
    ]
    is_named = not any(
        re.match(NUMBER_WITH_COMMA_PATTERN, name) or name.casefold() in MISSING_WORDS
        for name in named
    )
    if is_named and len(named) + is_doubtful > 1:
        title = form.separator.join(first)
        names = form.separator.join(second)
        raise DataError(
            f"{path}: line 2 ({names!r}) seems to give names of columns, because columns with "
            f"numbers have words there: if line 1 ({title!r}) is a title, remove line 1; if line 2 "
            "gives units or explanations, remove line 2"
        )


def check_header_not_repeated(
    columns: ColumnReader, values_by_column: Mapping[str, ColumnValues], is_certain: bool
) -> None:
    """Raise DataError if a row repeats the names of all columns.

    So it is where exports were joined; or where line 1 is a record, if no column has numbers.

    Args:
        columns: the open file, of which columns are read.
        values_by_column: their values, by name.
        is_certain: whether the owner says that line 1 gives the names.
    """
    if len(values_by_column) < 2 or not all(
        values.is_text and values.has_word(values.name) for values in values_by_column.values()
    ):
        return
    is_name = [
        np.asarray(
            pc.fill_null(pc.equal(pc.utf8_trim_whitespace(values.cells), name.strip()), False)
        )
        for name, values in values_by_column.items()
    ]
    repeated = np.flatnonzero(np.all(is_name, axis=0))
    if not len(repeated):
        return
    location = columns.row(int(repeated[0]))
    others = f", and {counted(len(repeated) - 1, 'row')} more" if len(repeated) > 1 else ""
    has_numbers = any(
        re.match(NUMBER_WITH_COMMA_PATTERN, str(word).strip())
        for values in values_by_column.values()
        for word in values.distinct.to_pylist()
    )
    if not is_certain and not has_numbers:
        raise DataError(
            f"{columns.path}: {location} is the same as line 1{others}, so line 1 may be the first "
            f"record: {_HEADER_REMEDY}. If several files were joined, remove the repeated lines"
        )
    raise DataError(
        f"{columns.path}: {location} repeats the names of line 1{others}, as if several files had "
        "been joined: remove these lines from the table, but keep line 1"
    )


def check_header_of_words(path: Path, values_by_column: Mapping[str, ColumnValues]) -> None:
    """Raise DataError if a first line that was taken for names has a word that its own column has
    again, as the first record of a table without names has.

    A column of numbers or dates that is named by a word shows that the line has names.
    """
    if any(values.is_numeric or values.is_date for values in values_by_column.values()):
        return
    repeated = [
        name
        for name, values in values_by_column.items()
        if values.is_text and values.has_word(name)
    ]
    if repeated:
        raise DataError(
            f"{path}: line 1 names a column {repeated[0]!r}, but {repeated[0]!r} is also a value "
            f"in this column, so line 1 may be the first record: {_HEADER_REMEDY}"
        )
