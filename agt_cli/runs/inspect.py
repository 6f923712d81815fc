"""Inspect a table of which nothing is declared yet: what each column holds, and a proposal for it.

Everything is read from the records, so it is for the owner only. Of a proposal the owner replaces
what is not public, or declares that it is (``Table.from_data``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import pyarrow as pa

from agt.data.column_reader import ColumnReader
from agt.data.files import open_columns
from agt.data.header import no_rows, no_such_column
from agt.data.labelled import REPEATED_SHARE
from agt.data.suffixes import is_delimited
from agt.data.target import ClassTarget
from agt.errors import ConfigError, DataError, counted
from agt_cli.places import folder_for_file
from agt_cli.runs.arrays_file import advice_for_arrays
from agt_cli.runs.column import DEFAULT_OPTIONS, Column, ColumnOptions
from agt_cli.runs.column_proposals import propose_columns
from agt_cli.runs.column_values import ColumnValues, has_decimal_commas, read_columns, row_count
from agt_cli.runs.csv_header import check_header, check_header_not_repeated, check_header_of_words
from agt_cli.runs.doubts import DataWarning
from agt_cli.runs.inspection import Inspection
from agt_cli.runs.label_column import LabelFacts, label_candidates
from agt_cli.runs.label_predictors import with_predicted_shares
from agt_cli.runs.sniffing import guess_csv_format
from agt_cli.runs.table_warnings import encoding_warnings, table_warnings

_COLUMNS_COMPARED_FIRST = 3  # of equal rows


def inspect_table(
    path: Path,
    *,
    label: str | None = None,
    id: str | None = None,
    header: bool | None = None,
    form: Mapping[str, Any] = MappingProxyType({}),
    target: Literal["classes", "numeric"] | None = None,
    label_range: tuple[float, float] | None = None,
    drop: Sequence[str] = (),
    missing_label: Literal["error", "drop"] = "error",
    options: ColumnOptions = DEFAULT_OPTIONS,
) -> Inspection:
    """Look at every column of a csv or parquet file.

    Args:
        label: the column of labels; None: the evident one.
        target: what the owner says that labels are; None: not given.
        label_range: the public range of labels that are numbers; None: not declared.
        id: the column that the owner says to identify each record permanently; None: not given.
        header: whether the first line of a csv names the columns; None: it is an error if the first
            line does not look as if it did.
        form: the known fields of ``CsvFormat``; the others are guessed from the first lines.
        drop: columns that must not be features; their values are not inspected.
        missing_label: drop: inspect only the rows that have a label, because training leaves out
            the others. It needs a label that is named or evident.
        options: what the owner says of the columns.

    Raises:
        ConfigError: all columns are to be dropped.
        DataError: a file that is damaged, or no table; a column that is not there; a first line
            that looks like data; a label without any value; or a column for which a range, or
            codes, are declared, but which cannot have them.
    """
    reader = _open_table(path, form, header)
    names = _described_names(reader, options, label=label, id=id, drop=drop)
    table = _read_table(reader, names, options, header)
    candidates = label_candidates(table.columns, target)
    label_name = candidates.evident if label is None else label
    all_rows = table.rows
    label_markers: tuple[str, ...] = ()
    facts = LabelFacts()
    if label_name is not None:
        _check_has_labels(table, label_name)
        if missing_label == "drop" and table.values[label_name].missing:
            # Whether ids look like row numbers, and what ranges are proposed, is judged of the
            # rows that training uses.
            label_markers = table.values[label_name].markers
            table = table.only_labelled(label_name)
        facts = LabelFacts.find(table.reader, table.values[label_name], target, label_range)
    inspection = Inspection(
        path=path,
        form=table.reader.csv_format,
        rows=table.rows,
        columns=table.columns_by_label(label_name, facts),
        label=label_name,
        labels=candidates.names,
        id=id,
        target=facts.target,
        may_be_numbers=facts.may_be_numbers,
        unlabelled=all_rows - table.rows,
        label_markers=label_markers,
        label_reason=candidates.reason if label is None else "",
    )
    may_lack_header = header is None and table.has_only_words
    warnings: list[DataWarning] = []
    if inspection.form is not None and "encoding" not in form:
        warnings += encoding_warnings(path, inspection.form)
    warnings += table_warnings(
        inspection, table.reader, table.values, may_lack_header, facts.remedy
    )
    return replace(
        inspection,
        repeated=_count_repeated_rows(inspection, table.values),
        warnings=tuple(warnings),
    )


@dataclass(frozen=True)
class _Table:
    """A table that was read, and what is proposed for its columns.

    Attributes:
        reader: reads the rows of the file that are inspected.
        options: what the owner says of the columns.
        values: the values of each column that is not dropped.
        columns: the description of each column, in the order of the file.
    """

    reader: ColumnReader
    options: ColumnOptions
    values: Mapping[str, ColumnValues]
    columns: Sequence[Column]

    @classmethod
    def describe(
        cls, reader: ColumnReader, options: ColumnOptions, values: Mapping[str, ColumnValues]
    ) -> "_Table":
        """Return a table with a proposal for each column; arguments as the attributes.

        Raises:
            DataError: a column cannot have what the options declare of it.
        """
        return cls(reader, options, values, propose_columns(reader, values, options))

    @property
    def rows(self) -> int:
        """How many rows are inspected."""
        return row_count(self.values)

    @property
    def has_only_words(self) -> bool:
        """True if the table is a csv in which no column has numbers or dates."""
        return self.reader.csv_format is not None and not any(
            values.is_numeric or values.is_date for values in self.values.values()
        )

    def only_labelled(self, label: str) -> "_Table":
        """Return the table of the rows that have a label.

        Args:
            label: the column of labels.
        """
        reader = self.reader.only_rows(self.values[label].rows_with_value())
        return _Table.describe(
            reader, self.options, read_columns(reader, self.values, self.options)
        )

    def columns_by_label(self, label: str | None, facts: LabelFacts) -> tuple[Column, ...]:
        """Return the columns, with the share of the labels that each predicts by itself.

        Args:
            label: the column of labels; None: it is not evident which column this is.
            facts: what its labels are; the share is known only of classes.
        """
        if label is None or not isinstance(facts.target, ClassTarget):
            return tuple(self.columns)
        return tuple(with_predicted_shares(self.columns, self.values, label))


def _described_names(
    reader: ColumnReader,
    options: ColumnOptions,
    *,
    label: str | None,
    id: str | None,
    drop: Sequence[str],
) -> list[str]:
    """Return the columns that are described: all but those that are dropped.

    Args:
        reader: reads the file.
        options: its formats, ranges, lists and codes name columns.
        label: the column of labels; None: not named.
        id: the column that identifies each record permanently; None: not named.
        drop: columns that must not be features.

    Raises:
        DataError: the file has no column of a name.
        ConfigError: all columns are dropped.
    """
    named = [("label", label), ("id", id)]
    named += [("formats", name) for name in options.formats]
    named += [("ranges", name) for name in options.ranges]
    named += [("lists", name) for name in options.lists]
    named += [("codes", name) for name in options.codes]
    named += [("drop", name) for name in drop]
    for setting, name in named:
        if name is not None and name not in reader.names:
            raise DataError(no_such_column(reader.path, name, setting, reader.names))
    if drop and not {*reader.names} - {*drop, label, id}:
        raise ConfigError(
            f"drop names every column of {reader.path}: leave out the label and at least one "
            "feature"
        )
    return [name for name in reader.names if name not in drop]


def _read_table(
    reader: ColumnReader, names: Sequence[str], options: ColumnOptions, header: bool | None
) -> _Table:
    """Read some columns, and find out whether a csv has decimal commas.

    Args:
        reader: reads the file.
        names: the columns to read.
        options: what the owner says of the columns.
        header: whether the first line of a csv names the columns; None: it is an error if the first
            line does not look as if it did.

    Raises:
        DataError: there are no rows; the first line of a csv is repeated, or looks like a record;
            or a column cannot have what the options declare of it.
    """
    values = read_columns(reader, names, options)
    csv_format = reader.csv_format
    if csv_format is not None:
        if has_decimal_commas(values.values()):
            reader = replace(reader, csv_format=replace(csv_format, decimal=","))
            values = read_columns(reader, names, options)
        if csv_format.header:
            check_header_not_repeated(reader, values)
        if header is None:
            check_header_of_words(reader.path, values)
    if not row_count(values):
        raise no_rows(reader.path)
    return _Table.describe(reader, options, values)


def _check_has_labels(table: _Table, label: str) -> None:
    """Raise DataError if a column of labels has no value in any row."""
    if not len(table.values[label].distinct):
        raise DataError(
            f"{table.reader.path}: the label '{label}' has no value in any of the "
            f"{counted(table.rows, 'row')}: name the column to predict with label=NAME"
        )


def _open_table(path: Path, known_format: Mapping[str, Any], header: bool | None) -> ColumnReader:
    """Open a file; arguments as ``form`` and ``header`` of ``inspect_table``.

    Raises:
        ConfigError: it is a folder.
        DataError: it is not a table, or the first line of a csv does not look like names.
    """
    if path.is_dir():
        raise ConfigError(folder_for_file(path))
    if path.suffix.lower() == ".npz":
        raise DataError(
            f"{path}: the file contains arrays, not a table. To train on arrays of vectors, type "
            f"{advice_for_arrays(path)}"
        )
    if not is_delimited(path) or not path.is_file():
        return open_columns(path, "file")
    form = replace(guess_csv_format(path, header is not False), **known_format)
    if header is None:
        check_header(path, form)
    return open_columns(path, "file", csv_format=form)


def _count_repeated_rows(
    inspection: Inspection, values_by_column: Mapping[str, ColumnValues]
) -> int:
    """Return how many rows are equal to an earlier row in the label and in every feature.

    It is 0 if they are at most a share ``REPEATED_SHARE`` of all rows, or if there is neither a
    label nor a feature.
    """
    names = {column.name for column in inspection.features}
    if inspection.label is not None:
        names.add(inspection.label)
    columns = [values for name, values in values_by_column.items() if name in names]
    by_distinct = sorted(columns, key=lambda values: -len(values.distinct))
    repeated = 0
    # Rows that a few columns distinguish are distinguished by all of them. So of most tables a few
    # columns show that not many rows are equal.
    for count in (_COLUMNS_COMPARED_FIRST, len(columns)):
        cells = {str(index): values.cells for index, values in enumerate(by_distinct[:count])}
        table = pa.table(cells)
        distinct = table.group_by(table.column_names).aggregate([])
        repeated = table.num_rows - distinct.num_rows
        if repeated <= REPEATED_SHARE * table.num_rows:
            return 0
    return int(repeated)
