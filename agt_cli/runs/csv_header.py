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
    NUMBER_PATTERN,
    ColumnValues,
    row_count,
)

_HEADER_REMEDY = (
    "give header=false if the file has no header (agt then names the columns column1, column2, "
    "...), or header=true if line 1 gives the names of the columns"
)


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
    counted_columns = [[str(start + column) for column in range(len(numbers))] for start in (0, 1)]
    if numbers not in counted_columns or repeated:
        first_names = ", ".join(repr(name) for name in names[:4])
        problem = "has the same name twice" if repeated else "looks like data"
        raise DataError(f"{path}: line 1 ({first_names}, ...) {problem}: {_HEADER_REMEDY}")


def check_header_not_repeated(
    columns: ColumnReader, values_by_column: Mapping[str, ColumnValues]
) -> None:
    """Raise DataError if a row repeats the names of all columns.

    So it is where exports were joined; or where line 1 is a record that occurs twice.

    Args:
        columns: the open file, of which columns are read.
        values_by_column: their values, by name.
    """
    all_have_their_name = all(
        values.is_text and values.has_word(name) for name, values in values_by_column.items()
    )
    if len(values_by_column) < 2 or not all_have_their_name:
        return
    repeats_names = np.ones(row_count(values_by_column), dtype=bool)
    for name, values in values_by_column.items():
        is_name = pc.equal(pc.utf8_trim_whitespace(values.cells), name.strip())
        repeats_names &= np.asarray(is_name.fill_null(False))
    repeated = np.flatnonzero(repeats_names)
    if not len(repeated):
        return
    location = columns.row(int(repeated[0]))
    others = f", and {counted(len(repeated) - 1, 'row')} more" if len(repeated) > 1 else ""
    raise DataError(
        f"{columns.path}: {location} repeats the names of line 1{others}: if several files were "
        "joined, remove these lines from the table, but keep line 1; if line 1 is the first "
        "record, give header=false"
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
