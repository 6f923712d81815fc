"""The first line of a table: separators, names of columns, and what is wrong with them."""

import re
from collections.abc import Collection
from pathlib import Path

from agt.errors import DataError, nearest

SEPARATORS = (",", ";", "\t", "|", " ")
"""What separates the cells of a line, in files that people have."""


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
        separator: that of the training file, by which queries are read.
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
