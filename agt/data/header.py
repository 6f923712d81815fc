"""The first lines of a table as text, read without the libraries that read whole tables.

Nothing here loads NumPy or PyArrow, so that a column that is not there is named at once.
"""

import csv
import re
from collections.abc import Collection
from pathlib import Path

from agt.data.suffixes import is_delimited
from agt.errors import DataError, nearest

SEPARATORS = (",", ";", "\t", "|", " ")
"""What separates the cells of a line, in files that people have."""
_LONGEST_LINE = 2**20
"""The characters of a line that are read at most."""


def read_first_lines(path: Path, encoding: str) -> tuple[str, str] | None:
    """Return the first two lines of a table as text, without their line ends.

    Args:
        path: the file.
        encoding: the encoding of the text, by Python's name for it; utf-8 may begin with a byte
            order mark.

    Returns:
        None: the file is compressed or no text by its name, or these lines cannot be read.
    """
    if not is_delimited(path) or path.suffix.lower() == ".gz":
        return None
    try:
        with path.open(encoding=encoding) as file:
            first = file.readline(_LONGEST_LINE)
            second = file.readline(_LONGEST_LINE)
    except (OSError, UnicodeError):
        return None
    return first.rstrip("\n").removeprefix("\ufeff"), second.rstrip("\n")


def cells_of_line(line: str, separator: str) -> list[str]:
    """Return the cells of a line; none if a cell does not end in it."""
    if line.count('"') % 2:
        return []
    try:
        return next(csv.reader([line], delimiter=separator), [])
    except csv.Error:
        return []


def names_in_line(line: str, separator: str) -> tuple[str, ...]:
    """Return the names of a table's columns by its first line.

    Returns:
        The names; ``()`` if the line alone does not show them, because a cell does not end in it,
        or a name is empty or repeated.
    """
    names = cells_of_line(line, separator)
    is_clear = all(names) and len(set(names)) == len(names)
    return tuple(names) if is_clear else ()


def numbered_columns(name: str, names: Collection[str]) -> list[tuple[int, str]]:
    """Return the columns NAME0, NAME1, ... (or NAME_0, ...) in their order, each with its number.

    Args:
        name: the common beginning of their names.
        names: the names of all columns.
    """
    pattern = re.compile(re.escape(name) + r"_?(\d+)")
    matches = [(pattern.fullmatch(column), column) for column in names]
    return sorted((int(match[1]), column) for match, column in matches if match)


def check_separator(path: Path, line: str, separator: str) -> None:
    """Raise DataError if another separator divides the first line of a file of queries.

    Args:
        path: the file.
        line: its first line.
        separator: the separator of the training file, by which queries are read.
    """
    if separator in line:
        return
    other_separators = [mark for mark in SEPARATORS if mark != " " and mark in line]
    if other_separators:
        raise DataError(
            f"{path}: line 1 is separated by {other_separators[0]!r}, but queries are read with "
            f"the separator of the training file: save this file with {separator!r}"
        )


def no_rows(path: Path) -> DataError:
    """Return the error about a table that has a header and no row.

    Args:
        path: the table.
    """
    return DataError(f"{path}: the file has no rows: give a file with at least one row")


def no_queries(path: Path) -> DataError:
    """Return the error about a file of queries that has no row.

    Args:
        path: the file.
    """
    return DataError(f"{path}: the file has no rows, but at least one query is needed")


def no_such_column(
    path: Path, name: str, setting: str, names: Collection[str], separator: str | None = None
) -> str:
    """Return the message about a column that a setting names and a table does not have.

    Args:
        path: the table.
        name: the column.
        setting: the full key of the setting.
        names: the columns of the table.
        separator: the separator of the cells of a csv, which may be wrong if there is one column
            only; None: another kind of file.
    """
    with_blanks = [known for known in names if known != known.strip() == name.strip()]
    if with_blanks:
        return (
            f"{path}: there is no column or key '{name}', which {setting} names, but "
            f"'{with_blanks[0]}', with blanks around its name: remove the blanks from line 1"
        )
    hint = nearest(name, names)
    if separator is not None and len(names) == 1:
        hint += (
            f". The lines were split at {separator!r}. If the file uses another separator, give it "
            "as dataset.csv.separator"
        )
    return f"{path}: there is no column or key '{name}', which {setting} names{hint}"
