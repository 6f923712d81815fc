"""Columns that settings name, compared with the first line of a csv before the table is read.

A mistyped column is the most common mistake, so it is answered at once: nothing here loads NumPy or
PyArrow. It is only a first look, at the names. Whoever reads the table checks everything.
"""

from collections.abc import Sequence
from pathlib import Path

from agt.data.file_settings import TableSettings
from agt.data.header import (
    SEPARATORS,
    cells_of_line,
    names_in_line,
    no_such_column,
    read_first_lines,
)
from agt.errors import DataError
from agt.store.locations import possible_paths


def check_columns_of_table(settings: TableSettings) -> None:
    """Raise DataError if a table that is trained on lacks a column, as far as its first line shows.

    Nothing is raised if the table is not there.
    """
    candidates = possible_paths(settings.path, settings.data_dir)
    path = next((candidate for candidate in candidates if candidate.exists()), settings.path)
    lines = read_first_lines(path, settings.csv.encoding)
    if lines is None or not settings.csv.header:
        return
    named = [(key, getattr(settings, key)) for key in ("label", "id", "unit", "public")]
    named.append((settings.SPLIT, getattr(settings, settings.SPLIT)))
    named += [("subgroups", column) for column in settings.subgroups]
    named += [(f"numeric.{column}", column) for column in settings.numeric]
    named += [(f"categorical.{column}", column) for column in settings.categorical]
    columns = [(f"dataset.{key}", column) for key, column in named if column is not None]
    separator = settings.csv.separator
    _check_names(path, columns, names_in_line(lines[0], separator), separator)


def check_named_columns(
    path: Path, named: Sequence[tuple[str, str]], separator: str | None
) -> None:
    """Raise DataError if a table that nobody described yet lacks a column.

    Nothing is raised where the whole table might show that its first line is no header.

    Args:
        path: the table.
        named: pairs of a setting and the column that it names.
        separator: the separator of the cells; None: it is read off the first line.
    """
    lines = read_first_lines(path, "utf-8")
    if lines is None:
        return
    first, second = lines
    marks = [mark for mark in SEPARATORS if mark != " " and mark in first]
    if separator is None and len(marks) == 1:
        separator = marks[0]
    if separator is None:
        return
    names = names_in_line(first, separator)
    is_header = all(name[0].isalpha() for name in names)
    if is_header and len(names) == len(cells_of_line(second, separator)):
        _check_names(path, named, names, separator)


def _check_names(
    path: Path, named: Sequence[tuple[str, str]], names: tuple[str, ...], separator: str
) -> None:
    """Raise DataError if a setting names a column that is not among a table's.

    Args:
        path: the table.
        named: pairs of a setting and the column that it names.
        names: the columns of the table; ``()``: unknown.
        separator: the separator of the cells.
    """
    for setting, column in named:
        if names and column not in names:
            raise DataError(no_such_column(path, column, setting, names, separator))
