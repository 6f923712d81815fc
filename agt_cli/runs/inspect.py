"""Inspect a table of which nothing is declared yet: what each column holds, and a proposal for it.

Everything is read from the records, so it is for the owner only. Of a proposal the owner replaces
what is not public, or declares that it is (``Table.from_data``).
"""

import math
import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal
from zipfile import BadZipFile

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from agt.data.cell_values import as_word
from agt.data.column_reader import ID_KINDS, ColumnReader
from agt.data.csv_format import CsvFormat
from agt.data.files import open_columns
from agt.data.formats import (
    COMMA,
    ISO_DATE,
    DateFormat,
    DeclaredFormat,
    NumberFormat,
    date_of,
    reads,
)
from agt.data.header import no_such_column
from agt.data.ids import counts_rows
from agt.data.labelled import MAX_FOUND, REPEATED_SHARE, class_names
from agt.data.suffixes import is_delimited
from agt.data.target import ClassTarget, NumericTarget, Target
from agt.errors import ConfigError, DataError, counted, few
from agt_cli.places import folder_for_file
from agt_cli.runs.doubts import (
    MAX_CLASS_NUMBERS,
    DataWarning,
    class_warnings,
    has_codes,
    is_infinite,
    number_label_warnings,
    sentinel_warnings,
    value_warnings,
)
from agt_cli.runs.formats import (
    date_formats,
    format_example,
    format_setting,
    likeliest_date_format,
    number_formats,
    number_text_in_format,
    suffixed_numbers,
)
from agt_cli.runs.ranges import number, outliers, round_range
from agt_cli.runs.sniffing import guess_csv_format

ColumnKind = Literal[
    "number", "category", "id", "constant", "empty", "date", "text", "unreadable", "dropped"
]
MAX_LISTED_VALUES = 100
MAX_SHOWN_CLASSES = 20
"""How many classes of an npz a message lists."""
MAX_EXCEPTIONS = 0.05
"""Up to this share of the rows may be no records, such as totals; more have a reason."""
MIN_QUANTITY_NUMBERS = 5
"""Labels of fewer different numbers are classes, unless their owner says otherwise."""
MAX_CODES = 12
"""As many distinct whole numbers may well be codes."""
CODES_REMARK = "or codes?"
"""The remark on a column of few whole numbers, which are taken as ordered."""

LATER_DATES_REMARK = "later dates count as the end of this range"
"""The remark on a column of dates, whose range ends with the last year in the file."""

_NUMBER_WITH_COMMA_PATTERN = r"^[$€£]?\s*[+-]?\d[\d.,' ]*(\s*[%$€£])?$"
_OPEN_END_PATTERN = r"^([<>]=?|[≤≥])\s*\d+(\.\d+)?$|^\d+(\.\d+)?\s*\+$"
"""A number that stands for all beyond it, such as 90+ or <18."""
_DATE_PATTERN = (
    r"^(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4}|\d{1,2}[-/]\d{1,2}[-/]\d{2})"
    r"([T ]\d{1,2}:\d{2}.*)?$"
)
_HEADER_REMEDY = (
    "give header=false if the file has no header (agt then names the columns column1, column2, "
    "...), or header=true if line 1 gives the names of the columns"
)
DROPPED_REMARK = "the setting drop names it"
"""The remark on a column that its owner leaves out."""
UNWRITABLE_WORD = "???"
"""A word that a configuration cannot hold: there it says that a value is required."""
_ID_TOKENS = {
    "id",
    "ids",
    "pid",
    "uid",
    "uuid",
    "guid",
    "key",
    "index",
    "rowid",
    "rownames",
    "unnamed",
}
_PERSON_TOKENS = {
    "person",
    "patient",
    "customer",
    "client",
    "subject",
    "user",
    "account",
    "member",
    "employee",
    "record",
    "nr",
}
_NAMES_PEOPLE = re.compile(
    r"(^|_)([a-z]?id|uuid|guid)$"
    r"|(^|_)(person|people|patient|customer|cust|client|subject|subj|user|account|member|employee"
    r"|student|pupil|household|voter|owner|donor|borrower|applicant|respondent)"
    r"(_?(id|no|nr|num|number|code|key|name))?$"
)
"""The name of a column, in small letters with _ between its words, that may name people."""
_LABEL_TOKENS = {
    "label",
    "target",
    "class",
    "y",
    "outcome",
    "default",
    "defaulted",
    "churn",
    "churned",
    "income",
    "response",
    "survived",
    "diagnosis",
    "exited",
    "fraud",
    "approved",
    "readmitted",
    "deposit",
    "risk",
    "creditability",
    "attrition",
    "stroke",
    "died",
    "deceased",
    "mortality",
    "spam",
    "subscribed",
    "purchased",
    "converted",
    "kredit",
    "canceled",
    "cancelled",
    "letter",
    "lettr",
    "digit",
}
_POSSIBLE_LABEL_TOKENS = {
    "type",
    "species",
    "quality",
    "status",
    "result",
    "condition",
    "output",
    "disease",
    "num",
    "grade",
    "severity",
    "category",
    "cover",
    "death",
    "alive",
    "group",
}
_TOKENS_ABOUT_A_LABEL = {
    "type",
    "amount",
    "date",
    "rate",
    "score",
    "count",
    "number",
    "size",
    "source",
    "channel",
    "method",
    "time",
}
_COLUMNS_COMPARED_FIRST = 3  # of equal rows
_HEADER_LINES = 50  # that show what line 1 and line 2 are
_SUSPICIOUS_SHARE = 0.95  # share of the rows whose label a column must give away to be suspicious
_MAX_BINS = 64  # the largest number of bins of a column of numbers, for that
_MIN_BIN_ROWS = 20  # rows of a bin
_NUMBER_PATTERN = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
_MISSING_WORDS = {
    "",
    "?",
    "-",
    "--",
    ".",
    "none",
    "unknown",
    "missing",
    "na",
    "n.a.",
    "n/a",
    "k.a.",
    "k. a.",
    "n.v.",
    "keine angabe",
    "nan",
    "null",
    "nil",
    "\\n",
    "#n/a",
}
_MAX_MISSING_WORDS = 100
_LEAST_REPEATING = 0.2  # share of the rows whose number an earlier row has, to be groups
_MIN_END_ROWS = 5  # with a number at which the range of a few whole numbers may end
_EPOCH_YEAR = 1970  # from which NumPy counts years
_LAST_YEAR = 9999  # years have four digits (ISO_DATE)


@dataclass(frozen=True)
class Column:
    """What a column holds, and what is proposed for it.

    Attributes:
        name: as the file has it.
        kind: what it holds.
        missing: rows without a value, markers included.
        distinct: different values.
        most_rows: rows with the most frequent one.
        low: the least of its numbers; None: it holds none.
        high: the greatest of its numbers; None: it holds none.
        values: value and count, the most frequent first; empty if there are too many to list.
        markers: values that mean that a value is missing.
        numeric: the range proposed; empty: it is no numeric feature.
        categorical: the list of values proposed; empty: it is no categorical feature.
        outside: rows with a number outside of the range, which leaves outliers out.
        public: the range is the type's own, or its owner declared it; it was not read off the
            records.
        mixed: some values are whole numbers, and all others text.
        counts_rows: its values look like row numbers, as ``dataset.counts_rows`` says.
        in_groups: it has very many different whole numbers, and rows with the same one mostly stand
            together, as the rows of one person do.
        predicted_share: the share of all rows whose label this column predicts by itself, if that
            is nearly all; otherwise 0.
        format: how its dates or numbers are written, if not in the default format.
        remark: why it is left out and how to include it, or what to think of.
    """

    name: str
    kind: ColumnKind
    missing: int
    distinct: int
    most_rows: int = 0
    low: float | None = None
    high: float | None = None
    values: tuple[tuple[str, int], ...] = ()
    markers: tuple[str, ...] = ()
    numeric: tuple[float, ...] = ()
    categorical: tuple[str, ...] = ()
    outside: int = 0
    public: bool = False
    mixed: bool = False
    counts_rows: bool = False
    in_groups: bool = False
    predicted_share: float = 0.0
    format: DeclaredFormat | None = None
    remark: str = ""

    @property
    def possible_id(self) -> bool:
        """True: its name and values could identify each record; only the owner knows if they do."""
        return self.kind == "id" and self.most_rows == 1 and not self.counts_rows

    @property
    def may_be_row_numbers(self) -> bool:
        """True: its name or its values could identify records, but look like row numbers."""
        return self.counts_rows and (self.kind == "id" or self.may_name_people)

    @property
    def may_name_people(self) -> bool:
        """Whether its values may name people: words that are too many to list, numbers that stand
        in groups, or a name that says so. Only the owner knows if they do.
        """
        if self.kind in ("unreadable", "date", "dropped"):
            return False
        if not (self.numeric or self.categorical or self.values):
            return True
        if self.in_groups:
            return True
        name = "_".join(_tokens(self.name))
        return self.distinct > MAX_CODES and _NAMES_PEOPLE.search(name) is not None

    @property
    def unlisted(self) -> tuple[tuple[str, int], ...]:
        """The values, with their numbers of rows, that the proposed list leaves out.

        It is empty where no list is proposed.
        """
        if not self.categorical:
            return ()
        inside = {*self.categorical, *self.markers}
        return tuple((word, rows) for word, rows in self.values if word not in inside)

    @property
    def outlying_values(self) -> tuple[str, ...]:
        """The least and the greatest value, as far as they are outside of the proposed range."""
        if not self.outside or self.low is None or self.high is None:
            return ()
        ends = []
        if self.low < self.numeric[0]:
            ends.append(self.bound(self.low))
        if self.high > self.numeric[-1]:
            ends.append(self.bound(self.high))
        return tuple(ends)

    def bound(self, value: float) -> str:
        """Return an end of this column's range as a configuration writes it: a number or a day.

        Args:
            value: a number; for a column of dates, days since 1970-01-01.
        """
        if self.kind == "date":
            return date_of(value)
        return number(value)


@dataclass(frozen=True)
class Inspection:
    """What a table holds, and the parts that its columns could have.

    Attributes:
        path: the file.
        form: of a csv; None: another format.
        rows: how many there are.
        columns: in the order of the file, label and id included.
        label: the column of labels; None: it is not evident.
        labels: candidates for it, the likeliest first.
        id: the column that the owner says to identify each record permanently; None: not given.
        target: what labels are; None: there is no label, nobody said of very many numbers that
            they are labels, or their range is not declared.
        may_be_numbers: True: the owner did not say what labels are, and they are at least
            ``MIN_QUANTITY_NUMBERS`` different numbers.
        unit: the column that identifies the person of each record, where a person may have several;
            None: not given.
        warnings: what may be a mistake in the file.
        unlabelled: how many rows are left out, because they have no label; ``rows`` and
            ``columns`` are about the others.
        label_markers: values of the label that mean that the label is missing.
        label_reason: a clause on why this column is taken as the label; empty: the owner named it.
        repeated: how many rows are equal to an earlier row in the label and in every feature, if
            they are so many (``REPEATED_SHARE``) that accuracy says little about new records where
            no column names records; else 0.
    """

    path: Path
    form: CsvFormat | None
    rows: int
    columns: tuple[Column, ...]
    label: str | None
    labels: tuple[str, ...]
    id: str | None
    target: Target | None
    may_be_numbers: bool = False
    unit: str | None = None
    warnings: tuple[DataWarning, ...] = ()
    unlabelled: int = 0
    label_markers: tuple[str, ...] = ()
    label_reason: str = ""
    repeated: int = 0

    @property
    def numbers(self) -> NumericTarget | None:
        """The declared range of labels that are numbers; None: they are classes, or it is open."""
        return None if self.target is None else self.target.numeric

    @property
    def classes(self) -> tuple[str, ...]:
        """The values of the label, in the order of the classes; empty: they are not classes."""
        return self.target.names if isinstance(self.target, ClassTarget) else ()

    @property
    def label_column(self) -> Column | None:
        """The column of labels; None: it is not evident."""
        return next((column for column in self.columns if column.name == self.label), None)

    @property
    def needs_target(self) -> bool:
        """True: labels are so many different numbers that the owner has to say what they are."""
        column = self.label_column
        return self.may_be_numbers and column is not None and column.distinct > MAX_CLASS_NUMBERS

    @property
    def identifying_columns(self) -> list[Column]:
        """The columns that the owner says to identify records or people."""
        return [column for column in self.columns if column.name in (self.id, self.unit)]

    @property
    def row_number_ids(self) -> list[str]:
        """The columns that the owner says to identify records or people, but that look like row
        numbers.
        """
        return [column.name for column in self.identifying_columns if column.counts_rows]

    @property
    def possible_people(self) -> list[Column]:
        """The columns that may name people, some of whom have several rows.

        It is empty where somebody said whose the rows are.
        """
        if self.identifying_columns:
            return []
        return [
            column
            for column in self.columns
            if column.may_name_people
            and column.name != self.label
            and 1 < column.distinct < self.rows - column.missing
        ]

    @property
    def possible_row_numbers(self) -> list[Column]:
        """The columns that may name records or people, but look like row numbers."""
        return [column for column in self.columns if column.may_be_row_numbers]

    @property
    def label_predictors(self) -> list[str]:
        """The features that predict nearly every label by themselves."""
        return [column.name for column in self.features if column.predicted_share]

    @property
    def rounded_rows(self) -> int:
        """A round number near the number of rows."""
        return int(float(f"{self.rows:.{1 + (self.rows >= 1000)}g}"))

    @property
    def features(self) -> tuple[Column, ...]:
        """The columns proposed as features."""
        return tuple(
            column for column in self._candidate_features if column.numeric or column.categorical
        )

    @property
    def left_out(self) -> tuple[Column, ...]:
        """The columns that have no part, each with a remark that says why."""
        return tuple(
            column
            for column in self._candidate_features
            if not (column.numeric or column.categorical)
        )

    @property
    def _candidate_features(self) -> list[Column]:
        """The columns that are neither the label, the id nor the unit."""
        return [
            column for column in self.columns if column.name not in (self.label, self.id, self.unit)
        ]


def inspect_table(
    path: Path,
    *,
    label: str | None = None,
    id: str | None = None,
    header: bool | None = None,
    form: Mapping[str, Any] = MappingProxyType({}),
    missing_values: Sequence[str] = (),
    most_values: int = MAX_LISTED_VALUES,
    formats: Mapping[str, DeclaredFormat] = MappingProxyType({}),
    target: Literal["classes", "numeric"] | None = None,
    label_range: tuple[float, float] | None = None,
    drop: Sequence[str] = (),
    missing_label: Literal["error", "drop"] = "error",
    ranges: Mapping[str, tuple[float, ...]] = MappingProxyType({}),
) -> Inspection:
    """Look at every column of a csv or parquet file.

    Args:
        label: the column of labels; None: the evident one.
        target: what the owner says that labels are; None: not given.
        label_range: the public range of labels that are numbers; None: not declared.
        id: the column that the owner says to identify each record permanently; None: not given.
        header: of a csv, whether its first line names the columns; None: it must look as if it did.
        form: the known fields of ``CsvFormat``; the others are guessed from the first lines.
        missing_values: further values that mean that a value is missing.
        most_values: a column of text with more distinct values is left out.
        formats: column -> how its dates or numbers are declared to be written; those of other
            columns are found in their words.
        drop: columns that must not be features; their values are not inspected.
        missing_label: drop: inspect only the rows that have a label, because training leaves out
            the others. It needs a label that is named or evident.
        ranges: column -> the public range that its owner declares; those of other columns are
            proposed.

    Raises:
        ConfigError: all columns are to be dropped.
        DataError: a file that is damaged, or no table; a column that is not there; a first line
            that looks like data; a label without any value; or a declared range of a column that
            is no numeric feature.
    """
    reader = _open_table(path, form, header)
    names = _described_names(reader, label=label, id=id, formats=formats, ranges=ranges, drop=drop)
    reader, values_by_column = _read_table(reader, names, missing_values, formats, header)
    rows = _row_count(values_by_column)
    if not rows:
        raise DataError(f"{path}: the file has no rows: give a file with at least one row")
    columns = _propose_columns(reader, values_by_column, most_values, ranges)
    candidates, evident_label, reason = _label_candidates(columns, target)
    if label is None:
        label = evident_label
    else:
        reason = ""
    if label is not None and not len(values_by_column[label].distinct):
        raise DataError(
            f"{path}: the label '{label}' has no value in any of the {counted(rows, 'row')}: name "
            "the column to predict with label=NAME"
        )
    unlabelled = 0
    label_markers: tuple[str, ...] = ()
    if missing_label == "drop" and label is not None and values_by_column[label].missing:
        # Whether ids look like row numbers, and what ranges are proposed, is judged of the rows
        # that training uses.
        label_markers = values_by_column[label].markers
        reader = reader.only_rows(_has_value(values_by_column[label]))
        values_by_column = _read_columns(reader, names, missing_values, formats)
        unlabelled = rows - _row_count(values_by_column)
        rows -= unlabelled
        columns = _propose_columns(reader, values_by_column, most_values, ranges)
    may_be_numbers = False
    label_target: Target | None = None
    remedy = ""
    if label is not None:
        label_values = values_by_column[label]
        may_be_numbers = target is None and _may_be_numbers(label_values)
        label_target = _label_target(reader, label_values, target, label_range)
        if target is None:
            remedy = _unread_label_remedy(label_values)
        if isinstance(label_target, ClassTarget):
            columns = _with_predicted_shares(columns, values_by_column, label)
    inspection = Inspection(
        path,
        reader.csv_format,
        rows,
        tuple(columns),
        label,
        candidates,
        id,
        label_target,
        may_be_numbers,
        unlabelled=unlabelled,
        label_markers=label_markers,
        label_reason=reason,
    )
    used = [column.name for column in inspection.features]
    if label is not None:
        used.append(label)
    if used:
        repeated = _count_repeated_rows([values_by_column[name] for name in used])
        inspection = replace(inspection, repeated=repeated)
    has_only_words = not any(
        values.is_numeric or values.is_date for values in values_by_column.values()
    )
    may_lack_header = reader.csv_format is not None and header is None and has_only_words
    warnings = [
        *_data_warnings(inspection, values_by_column, may_lack_header, remedy),
        *_row_warnings(reader, values_by_column, label),
    ]
    return replace(inspection, warnings=tuple(warnings))


def _described_names(
    reader: ColumnReader,
    *,
    label: str | None,
    id: str | None,
    formats: Iterable[str],
    ranges: Iterable[str],
    drop: Sequence[str],
) -> list[str]:
    """Return the columns that are described: all but those that are dropped.

    Args:
        reader: reads the file.
        label, id, formats, ranges, drop: columns that settings name, as in ``inspect_table``.

    Raises:
        DataError: the file has no column of a name.
        ConfigError: all columns are dropped.
    """
    named = [("label", label), ("id", id)]
    named += [("formats", name) for name in formats]
    named += [("ranges", name) for name in ranges]
    named += [("drop", name) for name in drop]
    for setting, name in named:
        if name is not None and name not in reader.names:
            raise DataError(no_such_column(reader.path, name, setting, reader.names))
    names = [name for name in reader.names if name not in drop]
    if not names:
        raise ConfigError(
            f"drop names every column of {reader.path}: leave out the label and at least one "
            "feature"
        )
    return names


def _read_table(
    reader: ColumnReader,
    names: Sequence[str],
    missing_values: Sequence[str],
    formats: Mapping[str, DeclaredFormat],
    header: bool | None,
) -> tuple[ColumnReader, dict[str, "_ColumnValues"]]:
    """Read some columns, and find out whether a csv has decimal commas.

    Args:
        reader: reads the file.
        names: the columns to read.
        missing_values, formats, header: as in ``inspect_table``.

    Returns:
        The reader, which reads decimal commas if the csv has them; and the values of each column.

    Raises:
        DataError: the first line of a csv is repeated, or looks like a record.
    """
    values_by_column = _read_columns(reader, names, missing_values, formats)
    csv_format = reader.csv_format
    if csv_format is None:
        return reader, values_by_column
    if _has_decimal_commas(values_by_column.values()):
        reader = replace(reader, csv_format=replace(csv_format, decimal=","))
        values_by_column = _read_columns(reader, names, missing_values, formats)
    if csv_format.header:
        _check_header_not_repeated(reader, values_by_column)
    if header is None:
        _check_header_of_words(reader.path, values_by_column)
    return reader, values_by_column


def _label_target(
    reader: ColumnReader,
    values: "_ColumnValues",
    target: Literal["classes", "numeric"] | None,
    label_range: tuple[float, float] | None,
) -> Target | None:
    """Return whether labels are classes or numbers.

    Args:
        reader: reads the file.
        values: of the column of labels.
        target, label_range: as in ``inspect_table``.

    Returns:
        The target; None: labels are numbers without a declared range, or so many different numbers
        that the owner has to say what they are.

    Raises:
        DataError: the labels are not what ``target`` says, or could be both.
    """
    if target is None:
        _check_label_is_clear(reader, values)
    if target == "numeric":
        _check_label_is_numeric(reader, values)
        return None if label_range is None else NumericTarget.declared(label_range)
    if target is None and _may_be_numbers(values) and len(values.distinct) > MAX_FOUND:
        return None
    raw_type = reader.column(values.name, "file").type
    return ClassTarget(_classes(values, raw_type, reader.path))


def _with_predicted_shares(
    columns: Sequence[Column], values_by_column: Mapping[str, "_ColumnValues"], label: str
) -> list[Column]:
    """Return columns with the share of rows whose label each of them predicts by itself.

    Args:
        columns: all columns of a table.
        values_by_column: the values of those that are not dropped.
        label: the column of labels, which are classes.
    """
    rows = _row_count(values_by_column)
    result = []
    for column in columns:
        if column.name in values_by_column and column.name != label:
            values = values_by_column[column.name]
            share = _share_predicted(values, values_by_column[label], rows)
            column = replace(column, predicted_share=share)
        result.append(column)
    return result


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
        _check_header(path, form)
    return open_columns(path, "file", csv_format=form)


@dataclass(frozen=True)
class _ArrayGuesses:
    """Guesses about the arrays of an npz, from their shapes and values.

    Attributes:
        vectors: names of arrays of two dimensions or more.
        labels: names of lists that may hold labels.
        ids: names of lists that may hold ids: a different value in each row.
        classes: the values of the list that holds labels, where it is the only one.
        pixels: whether the only array of vectors has one byte a number, as pixels have.
        image: the height and width of a record of that array, where it has two dimensions.
    """

    vectors: tuple[str, ...]
    labels: tuple[str, ...]
    ids: tuple[str, ...]
    classes: tuple[str, ...]
    pixels: bool = False
    image: tuple[int, ...] = ()

    @classmethod
    def in_file(cls, path: Path) -> "_ArrayGuesses":
        """Read the arrays.

        Raises:
            OSError, ValueError, BadZipFile: the file cannot be read without running code of it.
        """
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        vectors = tuple(name for name, array in arrays.items() if array.ndim > 1)
        values = {name: np.unique(array) for name, array in arrays.items() if array.ndim == 1}
        ids = tuple(
            name
            for name, distinct in values.items()
            if len(distinct) == len(arrays[name]) and distinct.dtype.kind != "f"
        )
        labels = tuple(
            name
            for name, distinct in values.items()
            if name not in ids and 2 <= len(distinct) <= MAX_FOUND
        )
        classes = tuple(map(str, values[labels[0]])) if len(labels) == 1 else ()
        pixels = False
        image: tuple[int, ...] = ()
        if len(vectors) == 1:
            array = arrays[vectors[0]]
            pixels = array.dtype == np.uint8
            image = array.shape[1:] if array.ndim == 3 else ()
        return cls(vectors, labels, ids, classes, pixels, image)

    @property
    def about_images(self) -> str:
        """How a network of the user's own begins on images, as a further sentence; empty: none."""
        if not self.image:
            return ""
        height, width = self.image
        return (
            ". A convolutional network of your own (docs/from_python.md) begins with nn.Flatten(), "
            f"nn.Unflatten(1, (1, {height}, {width}))"
        )

    @property
    def about_labels(self) -> str:
        """A sentence on which array has the labels, and what to type."""
        if not self.labels:
            return (
                f"The file has no labels, that is, no list of 2 to {MAX_FOUND} different values. "
                "Add one value for each vector, and name the list with dataset.label=NAME"
            )
        if len(self.labels) > 1:
            return f"Name the list of labels with dataset.label=NAME: {few(self.labels, 8)}"
        return f"The classes seen in the file are {few(self.classes, MAX_SHOWN_CLASSES)}"


def advice_for_arrays(path: Path) -> str:
    """Return the command that trains on the arrays of an npz, and what is to be filled in.

    Which array has labels, and which ids, is guessed from shapes and values. A file that cannot be
    read has no guesses. Nothing is declared public, because only the data owner knows what is.
    """
    texts = ["agt", "train", "dataset=embeddings", f"dataset.path={path}"]
    about_labels = ""
    with suppress(OSError, ValueError, BadZipFile):
        arrays = _ArrayGuesses.in_file(path)
        about_labels = f". {arrays.about_labels}{arrays.about_images}"
        names_of = {"x": arrays.vectors, "label": arrays.labels, "id": arrays.ids}
        for key, names in names_of.items():
            if len(names) == 1:
                texts.append(f"dataset.{key}={names[0]}")
        if arrays.pixels:
            texts.append("dataset.scale=0.00392")
    return (
        f"`{shlex.join(texts)} dataset.classes=[CLASSES] dataset.declared_size=NUMBER`. Write the "
        "classes, and a round number of training records, only if they are public; otherwise leave "
        f"these two settings out{about_labels}"
    )


def _check_header(path: Path, form: CsvFormat) -> None:
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
    numbers = [name for name in names if re.match(_NUMBER_PATTERN, name.strip())]
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
    counted_columns = [[str(start + place) for place in range(len(numbers))] for start in (0, 1)]
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
        if all(re.match(_NUMBER_WITH_COMMA_PATTERN, cell.strip()) for cell in cells)
    ]
    is_named = not any(
        re.match(_NUMBER_WITH_COMMA_PATTERN, name) or name.casefold() in _MISSING_WORDS
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


# -- the values of a column
# -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _ColumnValues:
    """The distinct values of a column.

    Attributes:
        name: of the column.
        cells: the column itself.
        distinct: distinct values that are not missing, as they are.
        numbers: [distinct] float64, NaN where a word is no number.
        counts: [distinct] rows with each.
        missing: rows without a value.
        markers: words taken for missing.
        is_single: each row has one value or none, and not a list, or bytes that are no text.
        format: how the text is written, if not in the default format.
        possible_formats: of numbers, if several read the text, differently.
    """

    name: str
    cells: pa.Array
    distinct: pa.Array
    numbers: np.ndarray
    counts: np.ndarray
    missing: int
    markers: tuple[str, ...] = ()
    is_single: bool = True
    format: DeclaredFormat | None = None
    possible_formats: tuple[NumberFormat, ...] = ()

    @property
    def is_text(self) -> bool:
        """True: the values are text, as all are in a csv."""
        return pa.types.is_string(self.distinct.type)

    @property
    def is_numeric(self) -> bool:
        """True: there are values, and all are finite numbers."""
        return bool(len(self.numbers)) and bool(np.isfinite(self.numbers).all())

    @property
    def is_whole(self) -> bool:
        """True: there are values, and all are whole numbers."""
        return self.is_numeric and bool((self.numbers == np.rint(self.numbers)).all())

    @property
    def is_date(self) -> bool:
        """True: there are values, and all are dates or times."""
        if pa.types.is_temporal(self.distinct.type):
            return True
        return bool(self.is_text and len(self.distinct) and self.matches(_DATE_PATTERN).all())

    def has_word(self, word: str) -> bool:
        """Return whether a value is this word, blanks around it aside."""
        trimmed = pc.utf8_trim_whitespace(self.distinct)
        return bool(pc.any(pc.equal(trimmed, word.strip())).as_py())

    def matches(self, pattern: str) -> np.ndarray:
        """Return whether each value, trimmed, matches a pattern somewhere, [distinct]."""
        return np.asarray(pc.match_substring_regex(pc.utf8_trim_whitespace(self.distinct), pattern))

    def without_missing(
        self, is_missing: pa.Array, markers: tuple[str, ...] = ()
    ) -> "_ColumnValues":
        """Return the values without some that are missing.

        Args:
            is_missing: [distinct] bool.
            markers: words that were taken for missing.
        """
        remains = ~np.asarray(is_missing, dtype=bool)
        return replace(
            self,
            distinct=self.distinct.filter(pa.array(remains)),
            numbers=self.numbers[remains],
            counts=self.counts[remains],
            missing=self.missing + int(self.counts[~remains].sum()),
            markers=markers,
        )

    def sorted_counts(self) -> list[tuple[str, int]]:
        """Return value and count, numbers by their size and then words."""
        texts = [str(as_word(word)) for word in self.distinct.to_pylist()]
        order = sorted(range(len(texts)), key=lambda index: (self.numbers[index], texts[index]))
        return [(texts[index], int(self.counts[index])) for index in order]

    def most_frequent(self, max_values: int) -> tuple[tuple[str, int], ...]:
        """Return value and count, the most frequent first; nothing of more than ``max_values``."""
        if len(self.distinct) > max_values:
            return ()
        try:
            texts = [str(as_word(word)) for word in self.distinct.to_pylist()]
        except OverflowError:  # dates beyond Python's
            return ()
        pairs = zip(texts, self.counts.tolist(), strict=True)
        return tuple(sorted(pairs, key=lambda pair: (-pair[1], pair[0])))


def _read_columns(
    columns: ColumnReader,
    names: Sequence[str],
    missing_values: Sequence[str],
    formats: Mapping[str, DeclaredFormat],
) -> dict[str, _ColumnValues]:
    """Return the distinct values of the named columns; other arguments as ``inspect_table``."""
    return {name: _read_column(columns, name, missing_values, formats.get(name)) for name in names}


def _row_count(values_by_column: Mapping[str, _ColumnValues]) -> int:
    """Return how many rows the columns have."""
    return next((len(values.cells) for values in values_by_column.values()), 0)


def _has_value(values: _ColumnValues) -> np.ndarray:
    """Return which rows have a value, [rows] bool."""
    has_value: np.ndarray = _value_index_of_rows(values) < len(values.distinct)
    return has_value


def _propose_columns(
    columns: ColumnReader,
    values_by_column: Mapping[str, _ColumnValues],
    most_values: int,
    ranges: Mapping[str, tuple[float, ...]],
) -> list[Column]:
    """Return what each column holds, in the order of the file; arguments as ``inspect_table``.

    Raises:
        DataError: a range was declared of a column that is no numeric feature.
    """
    rows = _row_count(values_by_column)
    proposals = []
    for name in columns.names:
        if name not in values_by_column:
            proposals.append(_dropped_column(name))
            continue
        declared = ranges.get(name, ())
        column = _propose_column(columns, values_by_column[name], rows, most_values, declared)
        if declared and not column.numeric:
            reason = column.remark or "the column has words"
            raise DataError(
                f"{columns.path}: ranges names the column '{name}', but no range can be given to "
                f"it ({reason}): leave '{name}' out of ranges"
            )
        if declared and column.outside == rows - column.missing:
            ends = ", ".join(map(column.bound, declared))
            raise DataError(
                f"{columns.path}: ranges={{{name}: [{ends}]}} contains no value of this column: "
                "give a range in the unit of the column"
            )
        proposals.append(column)
    return proposals


def _count_repeated_rows(columns: Sequence[_ColumnValues]) -> int:
    """Return how many rows are equal to an earlier row in all of these columns.

    It is 0 if they are at most a share ``REPEATED_SHARE`` of all rows.

    Args:
        columns: the values of each column, at least one column.
    """
    by_distinct = sorted(columns, key=lambda values: -len(values.distinct))
    repeated = 0
    # Rows that a few columns tell apart are told apart by all of them. So of most tables a few
    # columns show that not many rows are equal.
    for count in (_COLUMNS_COMPARED_FIRST, len(columns)):
        cells = {str(index): values.cells for index, values in enumerate(by_distinct[:count])}
        table = pa.table(cells)
        distinct = table.group_by(table.column_names).aggregate([])
        repeated = table.num_rows - distinct.num_rows
        if repeated <= REPEATED_SHARE * table.num_rows:
            return 0
    return int(repeated)


def _dropped_column(name: str) -> Column:
    """Return a column that is not inspected, because its owner leaves it out."""
    return Column(name, "dropped", missing=0, distinct=0, remark=DROPPED_REMARK)


def _read_column(
    columns: ColumnReader,
    name: str,
    missing_values: Sequence[str],
    declared_format: DeclaredFormat | None,
) -> _ColumnValues:
    """Return the distinct values of a column.

    Args:
        columns: of the file.
        name: of the column.
        missing_values: further values that mean that a value is missing.
        declared_format: how its dates or numbers are written; None: not declared.
    """
    cells, single = _cells(columns, name)
    texts, counts = pc.value_counts(cells if single else pa.nulls(0)).flatten()
    is_number = pa.types.is_integer(texts.type) or pa.types.is_floating(texts.type)
    form = declared_format
    possible: list[NumberFormat] = []
    if is_number:
        numbers = texts.cast(pa.float64(), safe=False)
    elif pa.types.is_string(texts.type):
        numbers = _numbers_in_default_format(columns, texts)
        if form is None:
            possible = _number_formats(texts, numbers, missing_values)
            form = possible[0] if len(possible) == 1 else None
        if isinstance(form, NumberFormat):
            numbers = form.numbers(pc.if_else(form.matches(texts), texts, None))
    else:
        numbers = pa.nulls(len(texts), pa.float64())
    column_values = _ColumnValues(
        name,
        cells,
        texts,
        np.array(pc.fill_null(numbers, np.nan)),
        np.array(counts),
        missing=0 if single else cells.null_count,
        is_single=single,
        format=form,
        possible_formats=tuple(possible[:2]),
    )
    column_values = column_values.without_missing(pc.is_null(texts, nan_is_null=is_number))
    return (
        _without_markers(column_values, missing_values) if column_values.is_text else column_values
    )


def _cells(columns: ColumnReader, name: str) -> tuple[pa.Array, bool]:
    """Return a column, and whether each row of it has one value or none.

    Vectors, or bytes that are no text, are returned as they are: such a column is left out, and the
    others can be inspected.
    """
    raw: pa.Array = columns.raw(name, "file")
    try:
        cells = columns.column(name, "file")
    except DataError:
        return raw, False
    if pa.types.is_decimal(cells.type):
        return cells.cast(pa.float64()), True
    simpler = {pa.large_string(): pa.string(), pa.bool_(): pa.int8()}
    return cells.cast(simpler.get(cells.type, cells.type)), True


def _numbers_in_default_format(columns: ColumnReader, texts: pa.Array) -> pa.Array:
    """Return words as numbers, with the decimal sign of the file; null: a word is not a number."""
    text = (columns.csv_format or CsvFormat()).with_decimal_points(texts)
    return pc.if_else(pc.match_substring_regex(text, _NUMBER_PATTERN), text, None).cast(
        pa.float64(), safe=False
    )


def _number_formats(
    texts: pa.Array, numbers: pa.Array, missing_values: Sequence[str]
) -> list[NumberFormat]:
    """Return the formats of numbers that fit all words, if the default format does not.

    Words that mean that a value is missing need not fit.

    Args:
        texts: distinct values.
        numbers: the words as numbers in the default format; null where a word is not one.
        missing_values: further values that mean that a value is missing.
    """
    present = texts.drop_null()
    folded = pc.utf8_lower(pc.utf8_trim_whitespace(present))
    is_missing_marker = pc.or_(
        pc.is_in(folded, pa.array(sorted(_MISSING_WORDS), pa.string())),
        pc.is_in(present, pa.array(missing_values, pa.string())),
    )
    present = present.filter(pc.invert(is_missing_marker))
    if (
        not len(present)
        or numbers.null_count <= texts.null_count + pc.sum(is_missing_marker).as_py()
    ):
        return []
    return number_formats(present)


def _without_markers(values: _ColumnValues, missing_values: Sequence[str]) -> _ColumnValues:
    """Return the values without the words that mean that a value is missing.

    '?' always does; the words of ``_MISSING_WORDS`` do if everything else is a number, or a date.

    Args:
        values: the values.
        missing_values: further values that mean that a value is missing.
    """
    not_read = values.distinct.filter(
        pa.array(np.isnan(values.numbers) & ~values.matches(_DATE_PATTERN))
    )
    texts = not_read.to_pylist() if len(not_read) <= _MAX_MISSING_WORDS else []
    missing_words = {word for word in texts if word.strip().casefold() in _MISSING_WORDS}
    markers = {word for word in texts if word.strip() in ("", "?")}
    declared = pc.is_in(values.distinct, pa.array(missing_values, pa.string()))
    markers |= set(values.distinct.filter(declared).to_pylist())
    if missing_words | markers >= set(texts) and len(texts) < len(values.distinct):
        markers |= missing_words
    listed = sorted(markers)
    return values.without_missing(
        pc.is_in(values.distinct, pa.array(listed, pa.string())), tuple(listed)
    )


def _check_header_not_repeated(
    columns: ColumnReader, values_by_column: Mapping[str, _ColumnValues]
) -> None:
    """Raise DataError if a row repeats the names of all columns, as where exports were joined."""
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
    raise DataError(
        f"{columns.path}: {location} repeats the names of line 1{others}, as if several files had "
        "been joined: remove these lines from the table, but keep line 1"
    )


def _check_header_of_words(path: Path, values_by_column: Mapping[str, _ColumnValues]) -> None:
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


def _data_warnings(
    inspection: Inspection,
    values_by_column: Mapping[str, _ColumnValues],
    unnamed: bool,
    remedy: str,
) -> Iterator[DataWarning]:
    """Yield warnings about a table: names, columns and the label.

    Args:
        unnamed: whether the names may be those of no column.
        remedy: what to do so that labels are read as numbers, as ``_unread_label_remedy`` says.
    """
    if unnamed:
        yield DataWarning("names_may_be_a_record", values=tuple(values_by_column)[:4])
    dates = tuple(
        column.name for column in inspection.features if column.kind == "date" and not column.public
    )
    if dates:
        yield DataWarning("dates_may_go_on", dates[0], dates)
    codes = tuple(column.name for column in inspection.features if column.remark == CODES_REMARK)
    if codes:
        yield DataWarning("may_be_codes", codes[0], codes)
    for column in inspection.columns:
        if column.kind == "dropped":
            continue
        if column.name != column.name.strip():
            yield DataWarning("blanks_around_name", column.name)
        if column.name == inspection.label:
            yield from _label_warnings(inspection, values_by_column[column.name], remedy)
        else:
            yield from value_warnings(column.name, column.categorical)
            if column.kind == "unreadable" or (column.kind == "date" and not column.numeric):
                yield DataWarning("left_out", column.name, (column.remark,))
            elif column.categorical and column.remark:
                yield DataWarning("taken_as_words", column.name, (column.remark,))
            reading = tuple(_reading_warnings(inspection.form, values_by_column[column.name]))
            yield from reading
            if column.outside and column.public:
                ends = tuple(column.bound(end) for end in column.numeric)
                yield DataWarning("outside_declared_range", column.name, ends, column.outside)
            elif column.outside and not any(doubt.code == "may_mean_missing" for doubt in reading):
                yield DataWarning("outliers", column.name, column.outlying_values, column.outside)
        yield from _lost_code_warnings(inspection, column)


def _row_warnings(
    columns: ColumnReader, values_by_column: Mapping[str, _ColumnValues], label: str | None
) -> Iterator[DataWarning]:
    """Yield that rows have no label, or next to no values, with the place of the first one.

    Args:
        columns: of the file.
        values_by_column: their values, by name.
        label: the column of labels; None: it is not evident.
    """
    has_value = {
        name: _has_value(values) for name, values in values_by_column.items() if values.is_single
    }
    if label in has_value:
        unlabelled = np.flatnonzero(~has_value[label])
        if len(unlabelled):
            location = columns.row(int(unlabelled[0]))
            yield DataWarning("label_missing", label, (location,), len(unlabelled))
    values_in_row = np.sum([*has_value.values()], axis=0)
    nearly_empty = np.flatnonzero(values_in_row <= len(has_value) / 4)
    is_exception = len(nearly_empty) <= MAX_EXCEPTIONS * len(values_in_row)
    if len(nearly_empty) and is_exception:
        location = columns.row(int(nearly_empty[0]))
        yield DataWarning("rows_nearly_empty", values=(location,), rows=len(nearly_empty))


def _label_warnings(
    inspection: Inspection, values: _ColumnValues, remedy: str
) -> Iterator[DataWarning]:
    """Yield what is doubtful about the column of labels; ``remedy`` as in ``_data_warnings``."""
    if inspection.numbers is not None:
        yield from number_label_warnings(
            values.name, values.numbers, values.counts, inspection.numbers
        )
    elif inspection.classes:
        may_be_a_quantity = inspection.may_be_numbers and not inspection.needs_target and not remedy
        if remedy and len(values.distinct) >= MIN_QUANTITY_NUMBERS:
            yield DataWarning(
                "label_written_otherwise", values.name, (remedy,), len(values.distinct)
            )
        yield from class_warnings(
            values.name, values.sorted_counts(), may_be_numbers=may_be_a_quantity
        )


def _reading_warnings(form: CsvFormat | None, values: _ColumnValues) -> Iterator[DataWarning]:
    """Yield what may be read otherwise than it is meant in a column that is no label.

    Args:
        form: of a csv; None: another format.
    """
    texts = values.distinct.to_pylist() if values.is_text else []
    if setting := _thousands_setting(form, values):
        example = next(word for word in texts if "." in word)
        yield DataWarning("points_may_be_thousands", values.name, (example, setting))
    if values.is_text and values.is_numeric and not values.is_date:
        yield from sentinel_warnings(values.name, texts, values.numbers, values.counts)


def _thousands_setting(form: CsvFormat | None, values: _ColumnValues) -> str:
    """Return the setting which declares that points separate thousands, for a column whose numbers
    may be written so but are read as decimals; empty: they are not.

    Args:
        form: of a csv; None: another format.
    """
    is_read_with_decimals = values.is_text and values.is_numeric and values.format is None
    if form is None or form.decimal != "." or not is_read_with_decimals:
        return ""
    pointed = values.matches(r"^[+-]?[1-9]\d{0,2}\.\d{3}$")
    below_thousand = values.matches(r"^[+-]?\d{1,3}$")
    # Three decimals everywhere are decimals, but hardly in a file with semicolons.
    likely = below_thousand.any() or form.separator == ";"
    if pointed.sum() < MIN_QUANTITY_NUMBERS or not likely or not (pointed | below_thousand).all():
        return ""
    return format_setting(values.name, NumberFormat(decimal=",", thousands="."))


def _lost_code_warnings(inspection: Inspection, column: Column) -> Iterator[DataWarning]:
    """Yield words for a missing value among codes, such as NA among those of countries."""
    texts = [word for word, _ in column.values]
    if inspection.form is None or not column.missing or not has_codes(texts):
        return
    counts = inspection.form.missing_words(inspection.path, column.name)
    for word, rows in counts.items():
        if word.isupper() and word.isalpha():
            yield DataWarning("country_code_missing", column.name, (word,), rows)


# -- what is proposed for it
# ----------------------------------------------------------------------------------------------


def _has_decimal_commas(values_by_column: Iterable[_ColumnValues]) -> bool:
    """Return whether numbers in a csv have a decimal comma.

    A column has nothing else, and no column has a decimal point.
    """
    texts = [values for values in values_by_column if values.is_text and len(values.distinct)]
    if any(values.is_numeric and values.matches(r"\.(\d{1,2}|\d{4,})$").any() for values in texts):
        return False
    return any(
        values.matches(COMMA).all() and values.matches(r",(\d{1,2}|\d{4,})$").any()
        for values in texts
    )


def _share_predicted(values: _ColumnValues, label: _ColumnValues, rows: int) -> float:
    """Return the share of rows whose label a column predicts by itself; 0 unless it is nearly all.

    A value, or a bin of many values, predicts the label that most of its rows have.

    Args:
        values: the column.
        label: the column of labels.
        rows: how many there are.
    """
    max_bins = max(2, min(_MAX_BINS, rows // _MIN_BIN_ROWS))
    max_distinct = rows if values.is_numeric else max_bins
    if values.is_date or not 0 < len(values.distinct) <= max_distinct:
        return 0.0
    if values.is_numeric:
        _, bins = np.unique(values.numbers, return_inverse=True)
    else:
        bins = np.arange(len(values.distinct))
    if bins.max() >= max_bins:  # numbers of about as many rows share a bin
        counts = np.bincount(bins, values.counts)
        share_below = (counts.cumsum() - counts) / counts.sum()
        bins = (share_below * max_bins).astype(int)[bins]
    no_value = bins.max() + 1
    bin_of_row = np.append(bins, no_value)[_value_index_of_rows(values)]
    table = np.zeros((no_value + 1, len(label.distinct) + 1))  # rows of each bin and label
    np.add.at(table, (bin_of_row, _value_index_of_rows(label)), 1)
    share = table.max(axis=1).sum() / rows
    constant = table.sum(axis=0).max() / rows  # of the most frequent label
    is_suspicious = share >= _SUSPICIOUS_SHARE and 1 - share <= (1 - constant) / 10
    return float(share) if is_suspicious else 0.0


def _value_index_of_rows(values: _ColumnValues) -> np.ndarray:
    """Return the index of each row's value among the distinct ones, [rows]; one more: no value."""
    indices: np.ndarray = (
        pc.index_in(values.cells, values.distinct).fill_null(len(values.distinct)).to_numpy()
    )
    return indices


def _propose_column(
    columns: ColumnReader,
    values: _ColumnValues,
    rows: int,
    most_values: int,
    declared: tuple[float, ...],
) -> Column:
    """Return what a column holds, and what is proposed for it.

    Args:
        columns: of the file.
        values: the column's values.
        rows: how many there are.
        most_values: a column of text with more distinct values is left out.
        declared: the public range that its owner declares; empty: none.
    """
    distinct = len(values.distinct)
    column = Column(
        values.name,
        "unreadable",
        values.missing,
        distinct,
        most_rows=int(values.counts.max(initial=0)),
        values=values.most_frequent(most_values),
        markers=values.markers,
    )
    if values.is_text and distinct:
        whole, decimal = map(values.matches, ID_KINDS.values())
        column = replace(column, mixed=bool(whole.any() and not whole.all() and not decimal.any()))
    # the first of these that fits
    if not values.is_single or (
        distinct and not (values.is_text or values.is_numeric or values.is_date)
    ):
        return replace(column, remark=_reason_unreadable(columns, values))
    if not distinct:
        return replace(column, kind="empty", remark="the column has no value in any row")
    if values.is_numeric:
        column = replace(column, low=float(values.numbers.min()), high=float(values.numbers.max()))
    if distinct == 1 and not values.missing:
        return replace(column, kind="constant", remark="the column has the same value in every row")
    declared_date = isinstance(values.format, str)
    if (
        values.is_date
        or declared_date
        or (values.is_text and not values.is_numeric and date_formats(values.distinct))
    ):
        return _propose_date_column(columns, values, replace(column, kind="date"), declared)
    if values.is_text or values.is_whole:
        texts = np.array(values.distinct.cast(pa.string()).to_pylist(), str)
        column = replace(
            column, counts_rows=counts_rows(texts), in_groups=_are_in_digit_groups(values)
        )
        identity = _reason_identifying(column, rows, most_values)
        if identity and not declared:
            return replace(column, kind="id", remark=identity)
    if values.is_numeric and not (values.is_text and values.matches(r"^-?0\d").any()):
        number_format = values.format if isinstance(values.format, NumberFormat) else None
        column = replace(column, format=number_format)
        raw: Any = columns.raw(values.name, "file")
        return _propose_number_column(column, values, raw.type, declared)
    return _propose_word_column(columns, column, values, rows, most_values)


def _are_in_digit_groups(values: _ColumnValues) -> bool:
    """Return whether a column has very many whole numbers, and most of its rows that repeat one
    follow a row with the same number.
    """
    rows = len(values.cells) - values.missing
    repeating = rows - len(values.distinct)
    if (
        not values.is_whole
        or len(values.distinct) <= MAX_LISTED_VALUES
        or repeating < _LEAST_REPEATING * rows
    ):
        return False
    word = _value_index_of_rows(values)
    following = np.count_nonzero((word[1:] == word[:-1]) & (word[1:] < len(values.distinct)))
    return bool(2 * following >= repeating)


def _reason_unreadable(columns: ColumnReader, values: _ColumnValues) -> str:
    """Return why a column's values are neither finite numbers nor words."""
    is_infinite_number = np.isinf(values.numbers)
    if is_infinite_number.any():
        _, location = _first_cell(columns, values, is_infinite_number)
        return (
            f"the column has an infinite value in {location}: correct the value, or remove the row"
        )
    return (
        f"the column contains values of the type {values.cells.type}, but a column of "
        "features needs a finite number or a word in each row"
    )


def _first_cell(
    columns: ColumnReader, values: _ColumnValues, is_wanted: np.ndarray
) -> tuple[str, str]:
    """Return the first cell that has one of some values, and the place of its row as text.

    Args:
        columns: of the file.
        values: the column's values.
        is_wanted: [distinct] bool, at least one.
    """
    wanted_values = values.distinct.filter(pa.array(is_wanted))
    row = pc.index(pc.is_in(values.cells, wanted_values), True).as_py()
    return str(values.cells[row].as_py()), columns.row(row)


def _propose_date_column(
    columns: ColumnReader, values: _ColumnValues, column: Column, declared: tuple[float, ...]
) -> Column:
    """Return a column of dates, with a range of whole years around them.

    If its dates cannot be read, it has no range but a remark that says why.

    Args:
        columns: of the file.
        values: the column's values.
        column: the column as it was seen so far.
        declared: the public range that its owner declares, in days; empty: none.
    """
    form = values.format if isinstance(values.format, str) else None
    if form is None and values.is_text and not values.matches(ISO_DATE).all():
        formats = date_formats(values.distinct)
        if len(formats) != 1:
            return replace(column, remark=_reason_dates_unclear(columns, values, formats))
        (form,) = formats
    cell_format = None if form is None else DateFormat(form)
    try:
        numbers = columns.numbers(values.name, "file", column.markers, cell_format)
    except DataError:
        return replace(
            column,
            remark="the column contains times of day, or dates that do not exist in any calendar",
        )
    days, counts = np.unique(numbers[~np.isnan(numbers)], return_counts=True)
    inliers = days[~outliers(days, counts)]
    # The day before the first one, so that the range does not begin with a record's own date.
    ends = np.array([inliers[0] - 1, inliers[-1]], "datetime64[D]").astype("datetime64[Y]")
    first_year, last_year = ends.astype(int).tolist()
    if first_year < -_EPOCH_YEAR or last_year >= _LAST_YEAR - _EPOCH_YEAR:
        return replace(
            column,
            remark=(
                f"the column contains dates outside the years 0 to {_LAST_YEAR - 1}, but only "
                "dates of these years can be used"
            ),
        )
    years = np.array([first_year, last_year + 1], "datetime64[Y]")
    low, high = declared or years.astype("datetime64[D]").astype(float).tolist()
    return replace(
        column,
        low=float(days[0]),
        high=float(days[-1]),
        numeric=(low, high),
        outside=int(counts[(days < low) | (days > high)].sum()),
        public=bool(declared),
        format=form,
        remark="" if declared else LATER_DATES_REMARK,
    )


def _reason_dates_unclear(
    columns: ColumnReader, values: _ColumnValues, formats: Sequence[str]
) -> str:
    """Return why no single format reads the dates of a column.

    Args:
        columns: of the file.
        values: the column's values.
        formats: those that read all dates; empty: none does.
    """
    if formats:
        first_setting, second_setting = (format_setting(values.name, form) for form in formats[:2])
        return (
            "the column contains dates that do not show which number is the day and which the "
            f"month: give {first_setting} or {second_setting}"
        )
    likeliest = likeliest_date_format(values.distinct)
    form = DateFormat(likeliest)
    indices = range(len(values.distinct))
    unread = next(index for index in indices if not reads(form, values.distinct[index : index + 1]))
    word, location = _first_cell(columns, values, np.arange(len(values.distinct)) == unread)
    example = format_example(likeliest)
    return (
        f"the column contains dates, but {word!r} in {location} is not a date such as {example}: "
        f"write all dates in one form, or give missing_values=[{word!r}] if {word!r} means that "
        "a value is missing"
    )


def _reason_identifying(column: Column, rows: int, most_values: int) -> str:
    """Return why a column seems to name records or people; empty: it does not.

    It says as well how the owner declares that it does.

    Args:
        column: as it was seen so far.
        rows: how many there are.
        most_values: so many different values are no names yet.
    """
    has_identifying_name = (
        not (_ID_TOKENS | _PERSON_TOKENS).isdisjoint(_tokens(column.name))
        or not column.name.strip()
    )
    unique = column.distinct == rows - column.missing
    id_column = column.name or "NAME (first give this column the name NAME in the file)"
    remedy = f"give id={id_column}"
    # other numbers may be, for example, the ages of a few people
    consecutive = (column.high or 0.0) - (column.low or 0.0) < rows
    if unique and column.counts_rows and (has_identifying_name or consecutive):
        return (
            "the column seems to be a row number; if this number nevertheless identifies each "
            f"record permanently, {remedy} id_permanent=true"
        )
    if unique and has_identifying_name:
        return (
            "the column may be an id; if this id identifies each record permanently, even when "
            f"other records are added or removed, {remedy}"
        )
    if has_identifying_name and column.distinct > max(most_values, rows // 50):
        return (
            "the column seems to identify people or things, because its values repeat; if it "
            "identifies the person of each row, give dataset.unit with the name of this column"
        )
    return ""


def _propose_number_column(
    column: Column, values: _ColumnValues, raw: pa.DataType, declared: tuple[float, ...]
) -> Column:
    """Return a column of numbers, with a range around them.

    Args:
        column: the column as it was seen so far.
        values: its values.
        raw: the type that the file has it in.
        declared: the public range that its owner declares; empty: none.
    """
    column = replace(column, kind="number")
    if pa.types.is_boolean(raw):
        return replace(column, numeric=(0.0, 1.0), public=True)
    may_be_codes = values.is_whole and len(values.distinct) <= MAX_CODES
    is_inlier = ~outliers(values.numbers, values.counts)
    is_exact = may_be_codes and _has_frequent_ends(
        values.numbers[is_inlier], values.counts[is_inlier]
    )
    low, high = declared or round_range(values.numbers[is_inlier], exact=is_exact)
    if not np.isfinite(2 * (high - low)):
        return replace(
            column,
            kind="unreadable",
            remark="the column contains numbers whose range is too large for floating point",
        )
    remark = CODES_REMARK if may_be_codes and len(values.distinct) > 2 and not declared else ""
    is_outside = (values.numbers < low) | (values.numbers > high)
    outside = int(values.counts[is_outside].sum())
    return replace(
        column, numeric=(low, high), outside=outside, public=bool(declared), remark=remark
    )


def _has_frequent_ends(numbers: np.ndarray, counts: np.ndarray) -> bool:
    """Return whether several rows have the least of some numbers, and several the greatest.

    A range that ends with a number of one record would reveal that this record is there.

    Args:
        numbers: [n] distinct numbers.
        counts: [n] how many rows have each.
    """
    ends = [numbers.argmin(), numbers.argmax()]
    return bool((counts[ends] >= _MIN_END_ROWS).all())


def _propose_word_column(
    columns: ColumnReader, column: Column, values: _ColumnValues, rows: int, most_values: int
) -> Column:
    """Return a column of words, with the list of its frequent values, or why there is none.

    Args:
        columns: of the file.
        column: the column as it was seen so far.
        values: its values.
        rows: how many there are.
        most_values: a column with more distinct values is left out.
    """
    if remark := _reason_not_read_as_numbers(columns, values):
        return replace(column, kind="unreadable", remark=remark)
    has_too_many = len(values.distinct) > most_values
    remark_on_words = _describe_odd_value(columns, values) or _suffix_remark(values)
    min_rows = max(1, min(5, rows // 50))
    frequent = sorted(
        word for word, count in column.values if count >= min_rows and word != UNWRITABLE_WORD
    )
    if remark_on_words and (has_too_many or not frequent):
        return replace(column, kind="unreadable", remark=remark_on_words)
    is_free_text = len(values.distinct) > max(MAX_CODES, 0.9 * (rows - values.missing))
    if is_free_text or has_too_many:
        count = f"{len(values.distinct):,} different values"
        problem = f"the column has {count}, too many to list them all"
        if is_free_text:
            problem = f"the column contains free text ({count})"
        return replace(
            column,
            kind="text",
            remark=(
                f"{problem}; to use this column, list some of its values under categorical "
                '(all other values then count as "other")'
            ),
        )
    if not frequent:
        return replace(
            column,
            kind="text",
            remark=(
                f"the column has no value that occurs {min_rows} times or more; to use this "
                "column, list some of its values under categorical"
            ),
        )
    return replace(column, kind="category", categorical=tuple(frequent), remark=remark_on_words)


def _reason_not_read_as_numbers(columns: ColumnReader, values: _ColumnValues) -> str:
    """Return why a column is not read as numbers although every word looks like one.

    It is empty if the column is read as numbers, or if not every word looks like one.
    """
    is_number = np.isfinite(values.numbers)
    if values.is_numeric or not (is_number | values.matches(_NUMBER_WITH_COMMA_PATTERN)).all():
        return ""
    word, location = _first_cell(columns, values, ~is_number)
    if not values.possible_formats:
        return (
            "the column contains formatted numbers that cannot be read, such as "
            f"{word!r} in {location}: write all numbers in one form, such as 1234.5 or 1.234,5 "
            '(docs/data.md, "How dates and numbers are written")'
        )
    return (
        f"the column contains numbers such as {word!r} in {location}, which can be "
        f"read in several ways: {_format_remedy(values, word)}"
    )


def _format_remedy(values: _ColumnValues, word: str) -> str:
    """Return what to give, depending on which number a word means that several formats read."""
    choices = []
    for form in values.possible_formats:
        setting = format_setting(values.name, form)
        number = number_text_in_format(form, word)
        choices.append(f"{setting} if {word!r} means {number}")
    settings = " or ".join(choices)
    return f"give {settings}"


def _describe_odd_value(columns: ColumnReader, values: _ColumnValues) -> str:
    """Return a clause on the first word that is not a number (date) in a column of numbers (dates).

    It is empty if the column is read as numbers, or if less than 90 % of its rows have a number, or
    a date.
    """
    is_date = values.matches(_DATE_PATTERN)
    is_number = (
        np.isfinite(values.numbers) | values.matches(_NUMBER_WITH_COMMA_PATTERN)
    ) & ~is_date
    expected_kind = "numbers"
    is_expected = is_number
    if values.counts[is_number].sum() < values.counts[is_date].sum():
        expected_kind = "dates"
        is_expected = is_date
    if values.is_numeric:
        return ""
    is_open_end = values.matches(_OPEN_END_PATTERN)
    if expected_kind == "numbers" and (is_number | is_open_end).all() and is_number.any():
        word, location = _first_cell(columns, values, is_open_end & ~is_number)
        digits = word.strip(" <>=≤≥+")
        return (
            f"the column contains numbers, but also {word!r} in {location}: write a number in its "
            f"place (such as {digits}) to use the column as numbers"
        )
    if values.counts[is_expected].sum() <= 0.9 * values.counts.sum():
        return ""
    word, location = _first_cell(columns, values, ~is_expected)
    infinite = " (an infinite number)" if is_infinite(word) else ""
    return (
        f"the column contains {expected_kind}, but also {word!r}{infinite} in {location}: correct "
        f"this value, or give missing_values=[{word!r}] if {word!r} means that a value is missing"
    )


def _suffix_remark(values: _ColumnValues) -> str:
    """Return how numbers with a suffix could be read as numbers; empty: they have none."""
    suffixed = suffixed_numbers(values.distinct) if values.is_text else None
    if suffixed is None:
        return ""
    remedy = f"write {suffixed.example!r} as {suffixed.number} and so on"
    if suffixed.number is None:
        remedy = "write all of them in one unit"
    if suffixed.form is not None:
        remedy = f"give {format_setting(values.name, suffixed.form)}"
    return (
        f"the column contains numbers with a suffix, such as {suffixed.example!r}, which agt reads "
        f"as words: to use them as numbers, {remedy}"
    )


def _label_candidates(
    columns: Sequence[Column], target: Literal["classes", "numeric"] | None
) -> tuple[tuple[str, ...], str | None, str]:
    """Return the columns that could be the label, the best first, the evident one, and why it is.

    Names, the place in the file and few values count. The best is evident if it is likely and
    clearly ahead of the next; None: it is not, and the reason is empty.
    """
    kinds = ("number",) if target == "numeric" else ("number", "category")
    most_values = math.inf if target == "numeric" else MAX_FOUND
    scores = {}
    for index, column in enumerate(columns):
        if column.kind in kinds and 2 <= column.distinct <= most_values:
            is_last = index == len(columns) - 1
            scores[column.name] = _label_score(column, is_last)
    names = sorted(scores, key=lambda name: -scores[name])
    if not names:
        return (), None, ""
    best = scores[names[0]]
    second = scores[names[1]] if len(names) > 1 else -math.inf
    if best < 3 or best < second + 1:
        return tuple(names), None, ""
    (evident,) = [column for column in columns if column.name == names[0]]
    reason = f"it is the last column and has {evident.distinct} different values"
    if _is_named_like_a_label(evident.name, _LABEL_TOKENS):
        reason = "labels are often named so"
    return tuple(names), evident.name, reason


def _label_score(column: Column, is_last: bool) -> float:
    """Return how much a column looks like labels."""
    score = 0.0
    if _is_named_like_a_label(column.name, _LABEL_TOKENS):
        score += 3.0
    elif _is_named_like_a_label(column.name, _POSSIBLE_LABEL_TOKENS):
        score += 1.5
    if is_last:
        score += 2.0
    if column.missing > 0:
        score -= 2.0
    if column.distinct == 2:
        score += 1.0
    elif column.distinct <= 20:
        score += 0.5
    return score


def _is_named_like_a_label(name: str, texts: Collection[str]) -> bool:
    """Return whether a name has one of some words, and is not that of a part of it, such as the
    type of a deposit.
    """
    tokens = set(_tokens(name))
    return not tokens.isdisjoint(texts) and tokens.isdisjoint(_TOKENS_ABOUT_A_LABEL)


def _may_be_numbers(values: _ColumnValues) -> bool:
    """Return whether labels may be a quantity: they are several different numbers."""
    return values.is_numeric and not values.is_date and len(values.distinct) >= MIN_QUANTITY_NUMBERS


def _check_label_is_clear(columns: ColumnReader, values: _ColumnValues) -> None:
    """Raise DataError for labels that may be numbers, if the owner did not say what they are.

    They may be if one of several numbers is infinite, or if there are more than FEW_NUMBERS numbers
    that are written otherwise than 1234.5.
    """
    numbers = np.isfinite(values.numbers)
    others = [str(word) for word in values.distinct.filter(pa.array(~numbers)).to_pylist()]
    if numbers.any() and others and all(map(is_infinite, others)):
        word, location = _first_cell(columns, values, ~numbers)
        raise DataError(
            f"{columns.path}: the label '{values.name}' has numbers, but also {word!r} (an "
            f"infinite number) in {location}: correct this value, or remove the row. If {word!r} "
            "is the name of a class, give target=classes"
        )
    remedy = _unread_label_remedy(values)
    if remedy and len(values.distinct) > MAX_CLASS_NUMBERS:
        raise DataError(
            f"{columns.path}: the label '{values.name}' has {len(values.distinct):,} different "
            "numbers that are written otherwise than 1234.5. If the label is a quantity, "
            f"{remedy}, and give target=numeric range=[LOW,HIGH] with its public range. If each "
            "number is a class, give target=classes"
        )


def _unread_label_remedy(values: _ColumnValues) -> str:
    """Return what to type so that a label is read as numbers.

    Returns:
        A clause; empty: the label is read as numbers already, or does not contain numbers.
    """
    if (
        not values.is_text
        or values.is_date
        or isinstance(values.format, NumberFormat)
        or not len(values.distinct)
    ):
        return ""
    if values.possible_formats:
        # The word with most separators shows how the readings differ.
        word = max(values.distinct.to_pylist(), key=lambda word: len(re.findall(r"[.,' ]", word)))
        return _format_remedy(values, word)
    suffixed = suffixed_numbers(values.distinct)
    if suffixed is None:
        return ""
    # A unit does not change a number, but k multiplies it by 1,000.
    is_unit = (
        suffixed.form is not None
        and number_text_in_format(suffixed.form, suffixed.example) == suffixed.number
    )
    if suffixed.form is not None and is_unit:
        return f"give {format_setting(values.name, suffixed.form)}"
    number = suffixed.number or "a number in the unit of the others"
    return f"rewrite this column in the file ({suffixed.example!r} as {number})"


def _check_label_is_numeric(columns: ColumnReader, values: _ColumnValues) -> None:
    """Raise DataError if labels that must be numbers (target=numeric) cannot be read as numbers."""
    name = values.name
    if remedy := _unread_label_remedy(values):
        raise DataError(
            f"{columns.path}: the label '{name}' has numbers that are written otherwise than "
            f"1234.5: {remedy}"
        )
    if isinstance(values.format, str):
        raise DataError(
            f"{columns.path}: the label '{name}' is written {format_example(values.format)}, but a "
            "label of numbers must not be a date: name another column with label=NAME"
        )
    if values.is_numeric and not values.is_date:
        return
    not_numbers = ~np.isfinite(values.numbers)
    word, location = _first_cell(
        columns, values, not_numbers if not_numbers.any() else ~not_numbers
    )
    raise DataError(
        f"{columns.path}: the label '{name}' has {word!r} in {location}, but target=numeric needs "
        "a finite number in each row: name a column of numbers with label=NAME, or give "
        "target=classes"
    )


def _classes(values: _ColumnValues, raw: pa.DataType, path: Path) -> tuple[str, ...]:
    """Return the names of the classes that labels are.

    Args:
        values: the column of labels.
        raw: the type that the file has it in.
        path: the file.

    Raises:
        DataError: there are too few classes, or too many.
    """
    distinct_values = values.distinct.cast(raw) if pa.types.is_boolean(raw) else values.distinct
    # 0.0 and -0.0 are one class
    distinct = dict.fromkeys(as_word(word) for word in distinct_values.to_pylist())
    texts = np.array([*distinct], dtype=object)
    if not 2 <= len(texts) <= MAX_FOUND:
        count = counted(len(texts), "different value")
        examples = ", ".join(map(repr, texts[:3]))
        raise DataError(
            f"{path}: the label '{values.name}' has {count}, such as "
            f"{examples}, but a label must have 2 to {MAX_FOUND} classes: "
            f"{_class_count_remedy(values)}"
        )
    return class_names(texts, path)


def _class_count_remedy(values: _ColumnValues) -> str:
    """Return what to do about a label that has too few different values, or too many."""
    if values.is_numeric:
        return (
            "if the label is a measured number, give target=numeric range=[LOW,HIGH] with its "
            "public range"
        )
    if len(values.counts) > 1 and values.counts.max() == 1:
        return (
            "these values look like ids, because no value occurs twice, so name the column to "
            "predict with label=NAME"
        )
    return "name the column to predict with label=NAME"


def _tokens(name: str) -> list[str]:
    """Return the words in a column's name, in small letters.

    'default.payment.next.month', 'PassengerId' and 'loan_status' have several.
    """
    return [word.casefold() for word in re.findall(r"[A-Z]+(?![a-z])|[^\W\d_][^\W\d_A-Z]*", name)]
