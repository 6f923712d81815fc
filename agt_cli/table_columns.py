"""Columns that settings name, compared with the first line of a csv before the table is read.

Whoever reads the table compares them again. Nothing here loads NumPy or PyArrow.
"""

from collections.abc import Collection, Sequence
from pathlib import Path

from agt.data.file_settings import EmbeddingsSettings, LabelledFileSettings, TableSettings
from agt.data.header import (
    SEPARATORS,
    cells_of_line,
    names_in_line,
    no_rows,
    no_such_column,
    numbered_columns,
    read_first_lines,
)
from agt.errors import ConfigError, DataError
from agt.store.locations import possible_paths

USED = ("label", "id")
"""Settings that name a column which is no feature."""
LINE_END_BYTES = 5
"""The most bytes of a byte order mark and a line end."""


def check_columns_of_table(settings: TableSettings) -> None:
    """Raise DataError if a table that is trained on lacks a column, as far as its first line shows.

    Nothing is raised if the table is not there.
    """
    candidates = possible_paths(settings.path, settings.data_dir)
    path = next((candidate for candidate in candidates if candidate.exists()), settings.path)
    lines = read_first_lines(path, settings.csv.encoding)
    if lines is None or not settings.csv.header:
        return
    names = names_in_line(lines[0], settings.csv.separator)
    named = [*_columns_of_rows(settings), *_features(settings)]
    _check_names(path, named, names, settings.csv.separator)


def check_columns_of_embeddings(settings: EmbeddingsSettings) -> None:
    """Raise DataError if a csv of vectors lacks a column, as far as its first line shows.

    Nothing is raised if the file is not there.
    """
    path = next(
        (
            candidate
            for candidate in possible_paths(settings.path, settings.data_dir)
            if candidate.exists()
        ),
        settings.path,
    )
    check_vectors(path, settings.x, "dataset.x", _columns_of_rows(settings))


def check_vectors(
    path: Path, name: str, setting: str, others: Sequence[tuple[str, str]] = ()
) -> None:
    """Raise DataError if a csv lacks the columns of its vectors, or others.

    Args:
        path: the file.
        name: the column of lists, or the common beginning of numbered columns.
        setting: the setting that names it.
        others: pairs of a setting and the column that it names.
    """
    lines = read_first_lines(path, "utf-8")
    if lines is None:
        return
    names = names_in_line(lines[0], ",")
    vectors = [] if numbered_columns(name, names) else [(setting, name)]
    _check_names(path, [*vectors, *others], names, ",")


def check_named_columns(
    path: Path,
    named: Sequence[tuple[str, str]],
    separator: str | None,
    drop: Collection[str] = (),
) -> None:
    """Raise an error if a table that nobody described yet lacks a column, or drops every feature.

    Nothing is raised where the whole table might show that its first line is no header.

    Args:
        path: the table.
        named: pairs of a setting and the column that it names.
        separator: the separator of the cells; None: it is read off the first line.
        drop: the columns that must not be features.

    Raises:
        DataError: the table lacks a column.
        ConfigError: no column is left to be a feature.
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
        check_drop(path, drop, names, [name for setting, name in named if setting in USED])


def check_rows(path: Path) -> None:
    """Raise DataError if a table that nobody described yet has names of columns, and no row.

    Args:
        path: the table; a file that cannot be read as text is not checked.
    """
    lines = read_first_lines(path, "utf-8")
    if lines is None:
        return
    first, second = lines
    mark = next((mark for mark in SEPARATORS if mark in first), ",")
    names = names_in_line(first, mark)
    if _has_one_line(path, first, second) and names and all(name[0].isalpha() for name in names):
        raise no_rows(path)


def _has_one_line(path: Path, first: str, second: str) -> bool:
    """Return whether a file in UTF-8 certainly has one line only.

    Args:
        path: the file.
        first: its first line, without the line end.
        second: its second line; empty: the file has one line, or the second is blank.
    """
    return not second and path.stat().st_size <= len(first.encode()) + LINE_END_BYTES


def check_drop(
    path: Path, drop: Collection[str], names: Collection[str], used: Collection[str | None]
) -> None:
    """Raise ConfigError if a table has no column left to be a feature.

    Args:
        path: the table.
        drop: the columns that must not be features.
        names: all columns of the table.
        used: the label and the column of ids; None: not named.
    """
    if drop and names and not set(names) - {*drop, *used}:
        raise ConfigError(
            f"drop names every column of {path}: leave out the label and at least one feature"
        )


def _columns_of_rows(settings: LabelledFileSettings) -> list[tuple[str, str]]:
    """Return pairs of a setting and its column, of each column that is no feature."""
    named = [(key, getattr(settings, key)) for key in ("label", "id", "unit", "public")]
    named.append((settings.SPLIT, getattr(settings, settings.SPLIT)))
    named += [("subgroups", column) for column in settings.subgroups]
    return [(f"dataset.{key}", column) for key, column in named if column is not None]


def _features(settings: TableSettings) -> list[tuple[str, str]]:
    """Return pairs of a setting and its column, of each feature of a table."""
    return [
        *((f"dataset.numeric.{column}", column) for column in settings.numeric),
        *((f"dataset.categorical.{column}", column) for column in settings.categorical),
    ]


def _check_names(
    path: Path, named: Sequence[tuple[str, str]], names: tuple[str, ...], separator: str
) -> None:
    """Raise DataError if a setting names a column that is not among a table's.

    Args:
        path: the table.
        named: pairs of a setting and the column that it names.
        names: the columns of the table; ``()``: unknown.
        separator: the separator of the table's cells.
    """
    for setting, column in named:
        if names and column not in names:
            raise DataError(no_such_column(path, column, setting, names, separator))
