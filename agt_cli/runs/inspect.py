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
from agt.data.ids import counts_rows
from agt.data.labelled import MAX_FOUND, class_names
from agt.data.suffixes import is_delimited
from agt.data.target import ClassTarget, NumericTarget, Target
from agt.errors import ConfigError, DataError, counted, few, nearest
from agt_cli.places import folder_for_file
from agt_cli.runs.doubts import (
    FEW_NUMBERS,
    Doubt,
    doubts_about_classes,
    doubts_about_numbers,
    doubts_about_sentinels,
    doubts_about_values,
    has_codes,
    is_infinite,
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
MOST_VALUES = 100
MAX_SHOWN_CLASSES = 20
"""How many classes of an npz a message lists."""
MAX_EXCEPTIONS = 0.05
"""Up to this share of the rows may be no records, such as totals; more have a reason."""
LEAST_NUMBERS = 5
"""Labels of fewer different numbers are classes, unless their owner says otherwise."""
FEW_CODES = 12
"""As many distinct whole numbers may well be codes."""
CODES = "or codes?"
"""The remark on a column of few whole numbers, which are taken as ordered."""

LATER_DATES = "later dates count as the end of this range"
"""The remark on a column of dates, whose range ends with the last year in the file."""

_WITH_COMMA = r"^[$€£]?\s*[+-]?\d[\d.,' ]*(\s*[%$€£])?$"
_OPEN_END = r"^([<>]=?|[≤≥])\s*\d+(\.\d+)?$|^\d+(\.\d+)?\s*\+$"
"""A number that stands for all beyond it, such as 90+ or <18."""
_DATE = (
    r"^(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4}|\d{1,2}[-/]\d{1,2}[-/]\d{2})"
    r"([T ]\d{1,2}:\d{2}.*)?$"
)
_HEADER_REMEDY = (
    "give header=false if the file has no header (agt then names the columns column1, column2, "
    "...), or header=true if line 1 gives the names of the columns"
)
DROPPED = "the setting drop names it"
"""The remark on a column that its owner leaves out."""
UNWRITABLE = "???"
"""A word that a configuration cannot hold: there it says that a value is required."""
_IDS = {"id", "ids", "pid", "uid", "uuid", "guid", "key", "index", "rowid", "rownames", "unnamed"}
_PEOPLE = {
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
_LABELS = {
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
_MAYBE_LABELS = {
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
_OF_A_LABEL = {
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
_TELLS = 0.95  # share of the rows whose label a column must give away to be suspicious
_BINS = 64  # the largest number of bins of a column of numbers, for that
_BIN_ROWS = 20  # rows of a bin
_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
_GAPS = {
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
_MOST_GAPS = 100
_LEAST_REPEATING = 0.2  # share of the rows whose number an earlier row has, to be groups
_LEAST_END_ROWS = 5  # with a number at which the range of a few whole numbers may end
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
        markers: words in it that stand for a missing value.
        numeric: the range proposed; empty: it is no numeric feature.
        categorical: the list of values proposed; empty: it is no categorical feature.
        outside: rows with a number outside of the range, which leaves outliers out.
        public: the range is the type's own and was not read off the records.
        mixed: some values are whole numbers, and all others text.
        counts_rows: its values look like row numbers, as ``dataset.counts_rows`` says.
        in_groups: it has very many different whole numbers, and rows with the same one mostly stand
            together, as the rows of one person do.
        tells: share of all rows whose label it tells by itself, if that is nearly all; otherwise
            0.
        format: how its dates or numbers are written, if that is not the usual way.
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
    tells: float = 0.0
    format: DeclaredFormat | None = None
    remark: str = ""

    @property
    def possible_id(self) -> bool:
        """Whether its name and content could name each record; only the owner knows if it does."""
        return self.kind == "id" and self.most_rows == 1 and not self.counts_rows

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
        return self.distinct > FEW_CODES and _NAMES_PEOPLE.search(name) is not None

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
    def outlying_ends(self) -> tuple[str, ...]:
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
        id: the column that somebody said to name each record for good; None: nobody said so.
        target: what labels are; None: there is no label, nobody said of very many numbers that
            they are labels, or their range is not declared.
        may_be_numbers: whether nobody said what labels are, and they are at least ``LEAST_NUMBERS``
            different numbers.
        unit: the column that tells whose each record is, some of one person; None: nobody said so.
        doubts: what may be a mistake in the file.
        unlabelled: how many rows are left out, because they have no label; ``rows`` and
            ``columns`` are about the others.
        label_markers: words in the column of labels that stand for a missing label.
        label_reason: why this column is the evident one, in a clause; empty: somebody named it.
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
    doubts: tuple[Doubt, ...] = ()
    unlabelled: int = 0
    label_markers: tuple[str, ...] = ()
    label_reason: str = ""

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
        """Whether labels are so many numbers that their owner has to say what they are."""
        column = self.label_column
        return self.may_be_numbers and column is not None and column.distinct > FEW_NUMBERS

    @property
    def names(self) -> list[Column]:
        """The columns that somebody said to name records or people."""
        return [column for column in self.columns if column.name in (self.id, self.unit)]

    @property
    def row_number_ids(self) -> list[str]:
        """The columns that were said to name records or people, but look like row numbers."""
        return [column.name for column in self.names if column.counts_rows]

    @property
    def possible_people(self) -> list[Column]:
        """The columns that may name people, some of whom have several rows.

        It is empty where somebody said whose the rows are.
        """
        if self.names:
            return []
        return [
            column
            for column in self.columns
            if column.may_name_people
            and column.name != self.label
            and 1 < column.distinct < self.rows - column.missing
        ]

    @property
    def label_predictors(self) -> list[str]:
        """The features that predict nearly every label by themselves."""
        return [column.name for column in self.features if column.tells]

    @property
    def rounded_rows(self) -> int:
        """A round number near the number of rows."""
        return int(float(f"{self.rows:.{1 + (self.rows >= 1000)}g}"))

    @property
    def features(self) -> tuple[Column, ...]:
        """The columns proposed as features."""
        return tuple(column for column in self._others if column.numeric or column.categorical)

    @property
    def left_out(self) -> tuple[Column, ...]:
        """The columns that have no part, each with a remark that says why."""
        return tuple(
            column for column in self._others if not (column.numeric or column.categorical)
        )

    @property
    def _others(self) -> list[Column]:
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
    most_values: int = MOST_VALUES,
    formats: Mapping[str, DeclaredFormat] = MappingProxyType({}),
    target: Literal["classes", "numeric"] | None = None,
    label_range: tuple[float, float] | None = None,
    drop: Sequence[str] = (),
    missing_label: Literal["error", "drop"] = "error",
) -> Inspection:
    """Look at every column of a csv or parquet file.

    Args:
        label: the column of labels; None: the evident one.
        target: what the owner says that labels are; None: nobody said.
        label_range: the public range of labels that are numbers; None: nobody declared one.
        id: the column that the owner says to name each record for good; None: nobody said that one
            does.
        header: of a csv, whether its first line names the columns; None: it must look as if it did.
        form: what of ``CsvFormat`` is known of a csv; the rest is guessed from its first lines.
        missing_values: further words that stand for a missing value.
        most_values: a column of text with more distinct values is left out.
        formats: column -> how its dates or numbers are declared to be written; those of other
            columns are found in their words.
        drop: columns that are to be no features; their values are not looked at.
        missing_label: drop: look at the rows that have a label only, because training leaves out
            the others. It needs a label that is named or evident.

    Raises:
        ConfigError: all columns are to be dropped.
        DataError: a file that is damaged, or no table; a column that is not there; a first line
            that looks like data.
    """
    columns = _open(path, form, header)
    named = [("label", label), ("id", id), *(("formats", name) for name in formats)]
    named += [("drop", name) for name in drop]
    for setting, name in named:
        if name is not None and name not in columns.names:
            raise DataError(
                f"{path}: the file has no column '{name}', but the setting {setting} names "
                f"it{nearest(name, columns.names)}"
            )
    names = [name for name in columns.names if name not in drop]
    if not names:
        raise ConfigError(
            f"drop names every column of {path}: leave out the label and at least one feature"
        )
    looks = _all_values(columns, names, missing_values, formats)
    if columns.csv_format and _commas(looks.values()):
        columns = replace(columns, csv_format=replace(columns.csv_format, decimal=","))
        looks = _all_values(columns, names, missing_values, formats)
    if columns.csv_format and columns.csv_format.header:
        _check_header_not_repeated(columns, looks)
    if columns.csv_format and header is None:
        _check_header_of_words(path, looks)
    rows = _row_count(looks)
    if not rows:
        raise DataError(f"{path}: the file has no rows: give a file with at least one row")
    seen = _columns(columns, looks, most_values)
    labels, evident, reason = _label_candidates(seen, target)
    if label is not None:
        reason = ""
    label = label or evident
    unlabelled = 0
    label_markers: tuple[str, ...] = ()
    if missing_label == "drop" and label is not None and looks[label].missing:
        # Whether ids look like row numbers, and what ranges are proposed, is judged of the rows
        # that training uses.
        label_markers = looks[label].markers
        columns = columns.only_rows(_has_value(looks[label]))
        looks = _all_values(columns, names, missing_values, formats)
        unlabelled = rows - _row_count(looks)
        rows -= unlabelled
        seen = _columns(columns, looks, most_values)
    may_be_numbers = label is not None and target is None and _may_be_numbers(looks[label])
    labels_are: Target | None = None
    if label is not None and target is None:
        _check_label_words(columns, looks[label])
    if label is not None and target == "numeric":
        _check_numbers(columns, looks[label])
        labels_are = None if label_range is None else NumericTarget.declared(label_range)
    elif label is not None and not (may_be_numbers and len(looks[label].words) > MAX_FOUND):
        raw_type = columns.column(label, "file").type
        labels_are = ClassTarget(_classes(looks[label], raw_type, path))
    if isinstance(labels_are, ClassTarget) and label is not None:
        seen = [
            replace(column, tells=_telling(looks[column.name], looks[label], rows))
            if column.name in looks and column.name != label
            else column
            for column in seen
        ]
    inspection = Inspection(
        path,
        columns.csv_format,
        rows,
        tuple(seen),
        label,
        labels,
        id,
        labels_are,
        may_be_numbers,
        unlabelled=unlabelled,
        label_markers=label_markers,
        label_reason=reason,
    )
    only_words = not any(look.numeric or look.date for look in looks.values())
    unnamed = columns.csv_format is not None and header is None and only_words
    remedy = ""
    if label is not None and target is None:
        remedy = _unread_label_remedy(looks[label])
    doubts = [
        *_doubts(inspection, looks, unnamed, remedy),
        *_doubts_about_rows(columns, looks, label),
    ]
    return replace(inspection, doubts=tuple(doubts))


def _open(path: Path, given: Mapping[str, Any], header: bool | None) -> ColumnReader:
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
    form = replace(guess_csv_format(path, header is not False), **given)
    if header is None:
        _check_header(path, form)
    return open_columns(path, "file", csv_format=form)


@dataclass(frozen=True)
class _Arrays:
    """What the shapes and values of an npz tell about its arrays.

    Attributes:
        vectors: names of arrays of two dimensions or more.
        labels: names of lists that may hold labels.
        ids: names of lists that may hold ids: a different value in each row.
        classes: the values of the list that holds labels, where it is the only one.
    """

    vectors: tuple[str, ...]
    labels: tuple[str, ...]
    ids: tuple[str, ...]
    classes: tuple[str, ...]

    @classmethod
    def in_file(cls, path: Path) -> "_Arrays":
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
        return cls(vectors, labels, ids, classes)

    @property
    def about_labels(self) -> str:
        """What remains to be said about labels, in a sentence."""
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
    words = ["agt", "train", "dataset=embeddings", f"dataset.path={path}"]
    about_labels = ""
    with suppress(OSError, ValueError, BadZipFile):
        arrays = _Arrays.in_file(path)
        about_labels = f". {arrays.about_labels}"
        names_of = {"x": arrays.vectors, "label": arrays.labels, "id": arrays.ids}
        for key, names in names_of.items():
            if len(names) == 1:
                words.append(f"dataset.{key}={names[0]}")
    return (
        f"`{shlex.join(words)} dataset.classes=[CLASSES] dataset.declared_size=NUMBER`. Write the "
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
    numbers = [name for name in names if re.match(_NUMBER, name.strip())]
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated and not numbers:
        places = [number for number, name in enumerate(names, start=1) if name == repeated[0]]
        columns = ", ".join(map(str, places))
        named = f"gives the name {repeated[0]!r} to" if repeated[0] else "has no name for"
        raise DataError(
            f"{path}: line 1 {named} {len(places)} columns (number {columns}): give each column "
            "its own name in line 1, or give header=false if line 1 is the first record"
        )
    counted_columns = [[str(start + place) for place in range(len(numbers))] for start in (0, 1)]
    if numbers not in counted_columns or repeated:
        first_names = ", ".join(repr(name) for name in names[:4])
        problem = "has the same name twice" if repeated else "looks like data"
        raise DataError(f"{path}: line 1 ({first_names}, ...) {problem}: {_HEADER_REMEDY}")


# -- the values of a column
# -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _ColumnValues:
    """The distinct values of a column.

    Attributes:
        name: of the column.
        cells: the column itself.
        words: distinct values that are not missing, as they are.
        numbers: [distinct] float64, NaN where a word is no number.
        counts: [distinct] rows with each.
        missing: rows without a value.
        markers: words taken for missing.
        single: each row has one value or none, and not a list, or bytes that are no text.
        format: how the text is written, if that is not the usual way.
        possible_formats: of numbers, if several read the text, differently.
    """

    name: str
    cells: pa.Array
    words: pa.Array
    numbers: np.ndarray
    counts: np.ndarray
    missing: int
    markers: tuple[str, ...] = ()
    single: bool = True
    format: DeclaredFormat | None = None
    possible_formats: tuple[NumberFormat, ...] = ()

    @property
    def text(self) -> bool:
        """Whether its values are text, as all are in a csv."""
        return pa.types.is_string(self.words.type)

    @property
    def numeric(self) -> bool:
        """Whether there are values, and all are finite numbers."""
        return bool(len(self.numbers)) and bool(np.isfinite(self.numbers).all())

    @property
    def whole(self) -> bool:
        """Whether all are whole numbers."""
        return self.numeric and bool((self.numbers == np.rint(self.numbers)).all())

    @property
    def date(self) -> bool:
        """Whether all are dates or times."""
        if pa.types.is_temporal(self.words.type):
            return True
        return bool(self.text and len(self.words) and self.fit(_DATE).all())

    def has_word(self, word: str) -> bool:
        """Return whether a value is this word, blanks around it aside."""
        trimmed = pc.utf8_trim_whitespace(self.words)
        return bool(pc.any(pc.equal(trimmed, word.strip())).as_py())

    def fit(self, pattern: str) -> np.ndarray:
        """Return whether each value, trimmed, matches a pattern somewhere, [distinct]."""
        return np.asarray(pc.match_substring_regex(pc.utf8_trim_whitespace(self.words), pattern))

    def without(self, lost: pa.Array, markers: tuple[str, ...] = ()) -> "_ColumnValues":
        """Return the values without some that count as missing.

        Args:
            lost: [distinct] bool.
            markers: words that were taken for missing.
        """
        remains = ~np.asarray(lost, dtype=bool)
        return replace(
            self,
            words=self.words.filter(pa.array(remains)),
            numbers=self.numbers[remains],
            counts=self.counts[remains],
            missing=self.missing + int(self.counts[~remains].sum()),
            markers=markers,
        )

    def in_order(self) -> list[tuple[str, int]]:
        """Return value and count, numbers by their size and then words."""
        words = [str(as_word(word)) for word in self.words.to_pylist()]
        order = sorted(range(len(words)), key=lambda index: (self.numbers[index], words[index]))
        return [(words[index], int(self.counts[index])) for index in order]

    def common(self, most: int) -> tuple[tuple[str, int], ...]:
        """Return value and count, the most frequent first; nothing of more than ``most``."""
        if len(self.words) > most:
            return ()
        try:
            words = [str(as_word(word)) for word in self.words.to_pylist()]
        except OverflowError:  # dates beyond Python's
            return ()
        pairs = zip(words, self.counts.tolist(), strict=True)
        return tuple(sorted(pairs, key=lambda pair: (-pair[1], pair[0])))


def _all_values(
    columns: ColumnReader,
    names: Sequence[str],
    missing_values: Sequence[str],
    formats: Mapping[str, DeclaredFormat],
) -> dict[str, _ColumnValues]:
    """Return the distinct values of the named columns; other arguments as ``inspect_table``."""
    return {name: _values(columns, name, missing_values, formats.get(name)) for name in names}


def _row_count(looks: Mapping[str, _ColumnValues]) -> int:
    """Return how many rows the columns have."""
    return next((len(look.cells) for look in looks.values()), 0)


def _has_value(look: _ColumnValues) -> np.ndarray:
    """Return which rows have a value, [rows] bool."""
    has_value: np.ndarray = _word_of_row(look) < len(look.words)
    return has_value


def _columns(
    columns: ColumnReader, looks: Mapping[str, _ColumnValues], most_values: int
) -> list[Column]:
    """Return what each column holds, in the order of the file; arguments as ``inspect_table``."""
    rows = _row_count(looks)
    return [
        _column(columns, looks[name], rows, most_values) if name in looks else _dropped(name)
        for name in columns.names
    ]


def _dropped(name: str) -> Column:
    """Return a column that is not looked at, because its owner leaves it out."""
    return Column(name, "dropped", missing=0, distinct=0, remark=DROPPED)


def _values(
    columns: ColumnReader,
    name: str,
    missing_values: Sequence[str],
    declared_format: DeclaredFormat | None,
) -> _ColumnValues:
    """Return the distinct values of a column.

    Args:
        columns: of the file.
        name: of the column.
        missing_values: further words that stand for a missing value.
        declared_format: how its dates or numbers are written; None: nobody said.
    """
    cells, single = _cells(columns, name)
    words, counts = pc.value_counts(cells if single else pa.nulls(0)).flatten()
    is_number = pa.types.is_integer(words.type) or pa.types.is_floating(words.type)
    form = declared_format
    possible: list[NumberFormat] = []
    if is_number:
        numbers = words.cast(pa.float64(), safe=False)
    elif pa.types.is_string(words.type):
        numbers = _usual_numbers(columns, words)
        if form is None:
            possible = _number_formats(words, numbers, missing_values)
            form = possible[0] if len(possible) == 1 else None
        if isinstance(form, NumberFormat):
            numbers = form.numbers(pc.if_else(form.matches(words), words, None))
    else:
        numbers = pa.nulls(len(words), pa.float64())
    values = _ColumnValues(
        name,
        cells,
        words,
        np.array(pc.fill_null(numbers, np.nan)),
        np.array(counts),
        missing=0 if single else cells.null_count,
        single=single,
        format=form,
        possible_formats=tuple(possible[:2]),
    )
    values = values.without(pc.is_null(words, nan_is_null=is_number))
    return _without_markers(values, missing_values) if values.text else values


def _cells(columns: ColumnReader, name: str) -> tuple[pa.Array, bool]:
    """Return a column, and whether each row of it has one value or none.

    Vectors, or bytes that are no text, are returned as they are: such a column is left out, and the
    others can be looked at.
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


def _usual_numbers(columns: ColumnReader, words: pa.Array) -> pa.Array:
    """Return words as numbers, with the decimal sign of the file; null: a word is not a number."""
    text = (columns.csv_format or CsvFormat()).with_decimal_points(words)
    return pc.if_else(pc.match_substring_regex(text, _NUMBER), text, None).cast(
        pa.float64(), safe=False
    )


def _number_formats(
    words: pa.Array, numbers: pa.Array, missing_values: Sequence[str]
) -> list[NumberFormat]:
    """Return the formats of numbers that fit all words, if these are not usual numbers.

    Words that stand for no value need not fit.

    Args:
        words: distinct values.
        numbers: the usual numbers that they are; null where a word is none.
        missing_values: further words that stand for a missing value.
    """
    known = words.drop_null()
    folded = pc.utf8_lower(pc.utf8_trim_whitespace(known))
    gaps = pc.or_(
        pc.is_in(folded, pa.array(sorted(_GAPS), pa.string())),
        pc.is_in(known, pa.array(missing_values, pa.string())),
    )
    known = known.filter(pc.invert(gaps))
    if not len(known) or numbers.null_count <= words.null_count + pc.sum(gaps).as_py():
        return []
    return number_formats(known)


def _without_markers(look: _ColumnValues, missing_values: Sequence[str]) -> _ColumnValues:
    """Return text without the words that stand for no value.

    '?' always does; the words of ``_GAPS`` do if everything else is a number, or a date.

    Args:
        look: the values.
        missing_values: further words that stand for a missing value.
    """
    no_value = look.words.filter(pa.array(np.isnan(look.numbers) & ~look.fit(_DATE)))
    words = no_value.to_pylist() if len(no_value) <= _MOST_GAPS else []
    gaps = {word for word in words if word.strip().casefold() in _GAPS}
    markers = {word for word in words if word.strip() in ("", "?")}
    declared = pc.is_in(look.words, pa.array(missing_values, pa.string()))
    markers |= set(look.words.filter(declared).to_pylist())
    if gaps | markers >= set(words) and len(words) < len(look.words):
        markers |= gaps
    listed = sorted(markers)
    return look.without(pc.is_in(look.words, pa.array(listed, pa.string())), tuple(listed))


def _check_header_not_repeated(columns: ColumnReader, looks: Mapping[str, _ColumnValues]) -> None:
    """Raise DataError if a row repeats the names of all columns, as where exports were joined."""
    if len(looks) < 2 or not all(look.text and look.has_word(look.name) for look in looks.values()):
        return
    is_name = [
        np.asarray(pc.fill_null(pc.equal(pc.utf8_trim_whitespace(look.cells), name.strip()), False))
        for name, look in looks.items()
    ]
    repeated = np.flatnonzero(np.all(is_name, axis=0))
    if not len(repeated):
        return
    where = columns.row(int(repeated[0]))
    others = f", and {counted(len(repeated) - 1, 'row')} more" if len(repeated) > 1 else ""
    raise DataError(
        f"{columns.path}: {where} repeats the names of line 1{others}, as if several files had "
        "been joined: remove these lines from the table, but keep line 1"
    )


def _check_header_of_words(path: Path, looks: Mapping[str, _ColumnValues]) -> None:
    """Raise DataError if a first line that was taken for names has a word that its own column has
    again, as the first record of a table without names has.

    A column of numbers or dates that is named by a word shows that the line has names.
    """
    if any(look.numeric or look.date for look in looks.values()):
        return
    again = [name for name, look in looks.items() if look.text and look.has_word(name)]
    if again:
        raise DataError(
            f"{path}: line 1 names a column {again[0]!r}, but {again[0]!r} is also a value in this "
            f"column, so line 1 may be the first record: {_HEADER_REMEDY}"
        )


def _doubts(
    inspection: Inspection, looks: Mapping[str, _ColumnValues], unnamed: bool, remedy: str
) -> Iterator[Doubt]:
    """Yield what may be a mistake.

    Args:
        unnamed: whether the names may be those of no column.
        remedy: what to do so that labels are read as numbers, as ``_unread_label_remedy`` says.
    """
    if unnamed:
        yield Doubt("names_may_be_a_record", values=tuple(looks)[:4])
    dates = tuple(column.name for column in inspection.features if column.kind == "date")
    if dates:
        yield Doubt("dates_may_go_on", values=dates)
    codes = tuple(column.name for column in inspection.features if column.remark == CODES)
    if codes:
        yield Doubt("may_be_codes", values=codes)
    for column in inspection.columns:
        if column.kind == "dropped":
            continue
        if column.name != column.name.strip():
            yield Doubt("blanks_around_name", column.name)
        if column.name == inspection.label:
            yield from _label_doubts(inspection, looks[column.name], remedy)
        else:
            yield from doubts_about_values(column.name, column.categorical)
            if column.kind == "unreadable" or (column.kind == "date" and not column.numeric):
                yield Doubt("left_out", column.name, (column.remark,))
            elif column.categorical and column.remark:
                yield Doubt("taken_as_words", column.name, (column.remark,))
            reading = tuple(_doubts_about_reading(inspection.form, looks[column.name]))
            yield from reading
            if column.outside and not any(doubt.code == "may_mean_missing" for doubt in reading):
                yield Doubt("outliers", column.name, column.outlying_ends, column.outside)
        yield from _lost_codes(inspection, column)


def _doubts_about_rows(
    columns: ColumnReader, looks: Mapping[str, _ColumnValues], label: str | None
) -> Iterator[Doubt]:
    """Yield that rows have no label, or next to no values, with the place of the first one.

    Args:
        columns: of the file.
        looks: their values, by name.
        label: the column of labels; None: it is not evident.
    """
    has_value = {name: _has_value(look) for name, look in looks.items() if look.single}
    if label in has_value:
        unlabelled = np.flatnonzero(~has_value[label])
        if len(unlabelled):
            where = columns.row(int(unlabelled[0]))
            yield Doubt("label_missing", label, (where,), len(unlabelled))
    values_in_row = np.sum([*has_value.values()], axis=0)
    nearly_empty = np.flatnonzero(values_in_row <= len(has_value) / 4)
    is_exception = len(nearly_empty) <= MAX_EXCEPTIONS * len(values_in_row)
    if len(nearly_empty) and is_exception:
        where = columns.row(int(nearly_empty[0]))
        yield Doubt("rows_nearly_empty", values=(where,), rows=len(nearly_empty))


def _label_doubts(inspection: Inspection, look: _ColumnValues, remedy: str) -> Iterator[Doubt]:
    """Yield what is doubtful about the column of labels; ``remedy`` as in ``_doubts``."""
    if inspection.numbers is not None:
        yield from doubts_about_numbers(look.name, look.numbers, look.counts, inspection.numbers)
    elif inspection.classes:
        asks = inspection.may_be_numbers and not inspection.needs_target and not remedy
        if remedy and len(look.words) >= LEAST_NUMBERS:
            yield Doubt("label_written_otherwise", look.name, (remedy,), len(look.words))
        yield from doubts_about_classes(look.name, look.in_order(), may_be_numbers=asks)


def _doubts_about_reading(form: CsvFormat | None, look: _ColumnValues) -> Iterator[Doubt]:
    """Yield what may be read otherwise than it is meant in a column that is no label.

    Args:
        form: of a csv; None: another format.
    """
    words = look.words.to_pylist() if look.text else []
    if setting := _thousands_setting(form, look):
        example = next(word for word in words if "." in word)
        yield Doubt("points_may_be_thousands", look.name, (example, setting))
    if look.text and look.numeric and not look.date:
        yield from doubts_about_sentinels(look.name, words, look.numbers, look.counts)


def _thousands_setting(form: CsvFormat | None, look: _ColumnValues) -> str:
    """Return what declares that points stand between thousands, in a column whose numbers may be
    written so but are read with decimals; empty: they are not.

    Args:
        form: of a csv; None: another format.
    """
    is_read_with_decimals = look.text and look.numeric and look.format is None
    if form is None or form.decimal != "." or not is_read_with_decimals:
        return ""
    pointed = look.fit(r"^[+-]?[1-9]\d{0,2}\.\d{3}$")
    below_thousand = look.fit(r"^[+-]?\d{1,3}$")
    # Three decimals everywhere are decimals, but hardly in a file with semicolons.
    likely = below_thousand.any() or form.separator == ";"
    if pointed.sum() < LEAST_NUMBERS or not likely or not (pointed | below_thousand).all():
        return ""
    return format_setting(look.name, NumberFormat(decimal=",", thousands="."))


def _lost_codes(inspection: Inspection, column: Column) -> Iterator[Doubt]:
    """Yield words for a missing value among codes, such as NA among those of countries."""
    words = [word for word, _ in column.values]
    if inspection.form is None or not column.missing or not has_codes(words):
        return
    counts = inspection.form.missing_words(inspection.path, column.name)
    for word, rows in counts.items():
        if word.isupper() and word.isalpha():
            yield Doubt("country_code_missing", column.name, (word,), rows)


# -- what is proposed for it
# ----------------------------------------------------------------------------------------------


def _commas(looks: Iterable[_ColumnValues]) -> bool:
    """Return whether numbers in a csv have a decimal comma.

    A column has nothing else, and no column has a decimal point.
    """
    texts = [look for look in looks if look.text and len(look.words)]
    if any(look.numeric and look.fit(r"\.(\d{1,2}|\d{4,})$").any() for look in texts):
        return False
    return any(look.fit(COMMA).all() and look.fit(r",(\d{1,2}|\d{4,})$").any() for look in texts)


def _telling(look: _ColumnValues, label: _ColumnValues, rows: int) -> float:
    """Return the share of rows whose label a column tells by itself; 0 unless it is nearly all.

    A value, or a bin of many values, tells the label that most of its rows have.

    Args:
        look: the column.
        label: the column of labels.
        rows: how many there are.
    """
    most_bins = max(2, min(_BINS, rows // _BIN_ROWS))
    most_values = rows if look.numeric else most_bins
    if look.date or not 0 < len(look.words) <= most_values:
        return 0.0
    if look.numeric:
        _, bins = np.unique(look.numbers, return_inverse=True)
    else:
        bins = np.arange(len(look.words))
    if bins.max() >= most_bins:  # numbers of about as many rows share a bin
        counts = np.bincount(bins, look.counts)
        share_below = (counts.cumsum() - counts) / counts.sum()
        bins = (share_below * most_bins).astype(int)[bins]
    no_value = bins.max() + 1
    bin_of_row = np.append(bins, no_value)[_word_of_row(look)]
    table = np.zeros((no_value + 1, len(label.words) + 1))  # rows of each bin and label
    np.add.at(table, (bin_of_row, _word_of_row(label)), 1)
    share = table.max(axis=1).sum() / rows
    constant = table.sum(axis=0).max() / rows  # of the most frequent label
    is_nearly_all = share >= _TELLS and 1 - share <= (1 - constant) / 10
    return float(share) if is_nearly_all else 0.0


def _word_of_row(look: _ColumnValues) -> np.ndarray:
    """Return the index of each row's value among the distinct ones, [rows]; one more: no value."""
    indices: np.ndarray = pc.index_in(look.cells, look.words).fill_null(len(look.words)).to_numpy()
    return indices


def _column(columns: ColumnReader, look: _ColumnValues, rows: int, most_values: int) -> Column:
    """Return what a column holds, and what is proposed for it.

    Args:
        columns: of the file.
        look: the column's values.
        rows: how many there are.
        most_values: a column of text with more distinct values is left out.
    """
    distinct = len(look.words)
    seen = Column(
        look.name,
        "unreadable",
        look.missing,
        distinct,
        most_rows=int(look.counts.max(initial=0)),
        values=look.common(most_values),
        markers=look.markers,
    )
    if look.text and distinct:
        whole, decimal = map(look.fit, ID_KINDS.values())
        seen = replace(seen, mixed=bool(whole.any() and not whole.all() and not decimal.any()))
    # the first of these that fits
    if not look.single or (distinct and not (look.text or look.numeric or look.date)):
        return replace(seen, remark=_unreadable(columns, look))
    if not distinct:
        return replace(seen, kind="empty", remark="the column has no value in any row")
    if look.numeric:
        seen = replace(seen, low=float(look.numbers.min()), high=float(look.numbers.max()))
    if distinct == 1 and not look.missing:
        return replace(seen, kind="constant", remark="the column has the same value in every row")
    declared_date = isinstance(look.format, str)
    if look.date or declared_date or (look.text and not look.numeric and date_formats(look.words)):
        return _date(columns, look, replace(seen, kind="date"))
    if look.text or look.whole:
        words = np.array(look.words.cast(pa.string()).to_pylist(), str)
        seen = replace(seen, counts_rows=counts_rows(words), in_groups=_stand_in_groups(look))
        identity = _identity(seen, rows, most_values)
        if identity:
            return replace(seen, kind="id", remark=identity)
    if look.numeric and not (look.text and look.fit(r"^-?0\d").any()):
        number_format = look.format if isinstance(look.format, NumberFormat) else None
        seen = replace(seen, format=number_format)
        raw: Any = columns.raw(look.name, "file")
        return _number(seen, look, raw.type)
    return _words(columns, seen, look, rows, most_values)


def _stand_in_groups(look: _ColumnValues) -> bool:
    """Return whether a column has very many whole numbers, and most of its rows that repeat one
    follow a row with the same number.
    """
    rows = len(look.cells) - look.missing
    repeating = rows - len(look.words)
    if not look.whole or len(look.words) <= MOST_VALUES or repeating < _LEAST_REPEATING * rows:
        return False
    word = _word_of_row(look)
    following = np.count_nonzero((word[1:] == word[:-1]) & (word[1:] < len(look.words)))
    return bool(2 * following >= repeating)


def _unreadable(columns: ColumnReader, look: _ColumnValues) -> str:
    """Return why a column's values are neither finite numbers nor words."""
    is_infinite_number = np.isinf(look.numbers)
    if is_infinite_number.any():
        _, where = _first_cell(columns, look, is_infinite_number)
        return f"the column has an infinite value in {where}: correct the value, or remove the row"
    return (
        f"the column contains values of the type {look.cells.type}, but a column of "
        "features needs a finite number or a word in each row"
    )


def _first_cell(columns: ColumnReader, look: _ColumnValues, which: np.ndarray) -> tuple[str, str]:
    """Return the first cell that has one of some values, and where it is, in words.

    Args:
        columns: of the file.
        look: the column's values.
        which: [distinct] bool, at least one.
    """
    wanted = look.words.filter(pa.array(which))
    row = pc.index(pc.is_in(look.cells, wanted), True).as_py()
    return str(look.cells[row].as_py()), columns.row(row)


def _date(columns: ColumnReader, look: _ColumnValues, seen: Column) -> Column:
    """Return a column of dates, with a range of whole years around them.

    If its dates cannot be read, it has no range but a remark that says why.

    Args:
        columns: of the file.
        look: the column's values.
        seen: the column as it was seen so far.
    """
    form = look.format if isinstance(look.format, str) else None
    if form is None and look.text and not look.fit(ISO_DATE).all():
        formats = date_formats(look.words)
        if len(formats) != 1:
            return replace(seen, remark=_unclear_dates(columns, look, formats))
        (form,) = formats
    cell_format = None if form is None else DateFormat(form)
    try:
        numbers = columns.numbers(look.name, "file", seen.markers, cell_format)
    except DataError:
        return replace(
            seen,
            remark="the column contains times of day, or dates that do not exist in any calendar",
        )
    days, counts = np.unique(numbers[~np.isnan(numbers)], return_counts=True)
    usual = days[~outliers(days, counts)]
    # The day before the first one, so that the range does not begin with a record's own date.
    ends = np.array([usual[0] - 1, usual[-1]], "datetime64[D]").astype("datetime64[Y]")
    first_year, last_year = ends.astype(int).tolist()
    if first_year < -_EPOCH_YEAR or last_year >= _LAST_YEAR - _EPOCH_YEAR:
        return replace(
            seen,
            remark=(
                f"the column contains dates outside the years 0 to {_LAST_YEAR - 1}, but only "
                "dates of these years can be used"
            ),
        )
    years = np.array([first_year, last_year + 1], "datetime64[Y]")
    low, high = years.astype("datetime64[D]").astype(float).tolist()
    return replace(
        seen,
        low=float(days[0]),
        high=float(days[-1]),
        numeric=(low, high),
        outside=int(counts[(days < low) | (days > high)].sum()),
        format=form,
        remark=LATER_DATES,
    )


def _unclear_dates(columns: ColumnReader, look: _ColumnValues, formats: Sequence[str]) -> str:
    """Return why no single format reads the dates of a column.

    Args:
        columns: of the file.
        look: the column's values.
        formats: those that read all dates; empty: none does.
    """
    if formats:
        first_setting, second_setting = (format_setting(look.name, form) for form in formats[:2])
        return (
            "the column contains dates that do not show which number is the day and which the "
            f"month: give {first_setting} or {second_setting}"
        )
    likeliest = likeliest_date_format(look.words)
    form = DateFormat(likeliest)
    indices = range(len(look.words))
    unread = next(index for index in indices if not reads(form, look.words[index : index + 1]))
    word, where = _first_cell(columns, look, np.arange(len(look.words)) == unread)
    example = format_example(likeliest)
    return (
        f"the column contains dates, but {word!r} in {where} is not a date such as {example}: "
        f"write all dates in one form, or give missing_values=[{word!r}] if {word!r} means that "
        "a value is missing"
    )


def _identity(column: Column, rows: int, most_values: int) -> str:
    """Return why a column seems to name records or people; empty: it does not.

    It says as well how the owner declares that it does.

    Args:
        column: as it was seen so far.
        rows: how many there are.
        most_values: so many different values are no names yet.
    """
    named = not (_IDS | _PEOPLE).isdisjoint(_tokens(column.name)) or not column.name.strip()
    unique = column.distinct == rows - column.missing
    id_column = column.name or "NAME (first give this column the name NAME in the file)"
    remedy = f"give id={id_column}"
    # other numbers may be, for example, the ages of a few people
    consecutive = (column.high or 0.0) - (column.low or 0.0) < rows
    if unique and column.counts_rows and (named or consecutive):
        return (
            "the column seems to be a row number; if this number nevertheless identifies each "
            f"record permanently, {remedy} and dataset.id_permanent=true"
        )
    if unique and named:
        return (
            "the column may be an id; if this id identifies each record permanently, even when "
            f"other records are added or removed, {remedy}"
        )
    if named and column.distinct > max(most_values, rows // 50):
        return (
            "the column seems to identify people or things, because its values repeat; if it "
            "identifies the person of each row, give dataset.unit with the name of this column"
        )
    return ""


def _number(seen: Column, look: _ColumnValues, raw: pa.DataType) -> Column:
    """Return a column of numbers, with a range around them.

    Args:
        seen: the column as it was seen so far.
        look: its values.
        raw: the type that the file has it in.
    """
    seen = replace(seen, kind="number")
    if pa.types.is_boolean(raw):
        return replace(seen, numeric=(0.0, 1.0), public=True)
    may_be_codes = look.whole and len(look.words) <= FEW_CODES
    usual = ~outliers(look.numbers, look.counts)
    is_exact = may_be_codes and _has_frequent_ends(look.numbers[usual], look.counts[usual])
    low, high = round_range(look.numbers[usual], exact=is_exact)
    if not np.isfinite(2 * (high - low)):
        return replace(
            seen,
            kind="unreadable",
            remark="the column contains numbers whose range is too large for floating point",
        )
    remark = CODES if may_be_codes and len(look.words) > 2 else ""
    is_outside = (look.numbers < low) | (look.numbers > high)
    outside = int(look.counts[is_outside].sum())
    return replace(seen, numeric=(low, high), outside=outside, remark=remark)


def _has_frequent_ends(numbers: np.ndarray, counts: np.ndarray) -> bool:
    """Return whether several rows have the least of some numbers, and several the greatest.

    A range that ends with a number of one record would reveal that this record is there.

    Args:
        numbers: [n] distinct numbers.
        counts: [n] how many rows have each.
    """
    ends = [numbers.argmin(), numbers.argmax()]
    return bool((counts[ends] >= _LEAST_END_ROWS).all())


def _words(
    columns: ColumnReader, seen: Column, look: _ColumnValues, rows: int, most_values: int
) -> Column:
    """Return a column of words, with the list of its frequent values, or why there is none.

    Args:
        columns: of the file.
        seen: the column as it was seen so far.
        look: its values.
        rows: how many there are.
        most_values: a column with more distinct values is left out.
    """
    if remark := _unread_numbers(columns, look):
        return replace(seen, kind="unreadable", remark=remark)
    has_many = len(look.words) > most_values
    doubt = _odd_word(columns, look) or _suffix_remark(look)
    least = max(1, min(5, rows // 50))
    frequent = sorted(word for word, count in seen.values if count >= least and word != UNWRITABLE)
    if doubt and (has_many or not frequent):
        return replace(seen, kind="unreadable", remark=doubt)
    is_free_text = len(look.words) > max(FEW_CODES, 0.9 * (rows - look.missing))
    if is_free_text or has_many:
        count = f"{len(look.words):,} different values"
        problem = f"the column has {count}, too many to list them all"
        if is_free_text:
            problem = f"the column contains free text ({count})"
        return replace(
            seen,
            kind="text",
            remark=(
                f"{problem}; to use this column, list some of its values under categorical "
                '(all other values then count as "other")'
            ),
        )
    if not frequent:
        return replace(
            seen,
            kind="text",
            remark=(
                f"the column has no value that occurs {least} times or more; to use this "
                "column, list some of its values under categorical"
            ),
        )
    return replace(seen, kind="category", categorical=tuple(frequent), remark=doubt)


def _unread_numbers(columns: ColumnReader, look: _ColumnValues) -> str:
    """Return why a column is not read as numbers although every word looks like one.

    It is empty if the column is read as numbers, or if not every word looks like one.
    """
    is_number = np.isfinite(look.numbers)
    if look.numeric or not (is_number | look.fit(_WITH_COMMA)).all():
        return ""
    word, where = _first_cell(columns, look, ~is_number)
    if not look.possible_formats:
        return (
            "the column contains formatted numbers that cannot be read, such as "
            f"{word!r} in {where}: write all numbers in one form, such as 1234.5 or 1.234,5 "
            '(docs/data.md, "How dates and numbers are written")'
        )
    return (
        f"the column contains numbers such as {word!r} in {where}, which can be "
        f"read in several ways: {_choice_of_format(look, word)}"
    )


def _choice_of_format(look: _ColumnValues, word: str) -> str:
    """Return what to give, depending on which number a word means that several formats read."""
    choices = []
    for form in look.possible_formats:
        setting = format_setting(look.name, form)
        number = number_text_in_format(form, word)
        choices.append(f"{setting} if {word!r} means {number}")
    settings = " or ".join(choices)
    return f"give {settings}"


def _odd_word(columns: ColumnReader, look: _ColumnValues) -> str:
    """Return a clause on the first word that is not a number (date) in a column of numbers (dates).

    It is empty if the column is read as numbers, or if less than 90 % of its rows have a number, or
    a date.
    """
    is_date = look.fit(_DATE)
    is_number = (np.isfinite(look.numbers) | look.fit(_WITH_COMMA)) & ~is_date
    kind = "numbers"
    fits = is_number
    if look.counts[is_number].sum() < look.counts[is_date].sum():
        kind = "dates"
        fits = is_date
    if look.numeric:
        return ""
    is_open_end = look.fit(_OPEN_END)
    if kind == "numbers" and (is_number | is_open_end).all() and is_number.any():
        word, where = _first_cell(columns, look, is_open_end & ~is_number)
        digits = word.strip(" <>=≤≥+")
        return (
            f"the column contains numbers, but also {word!r} in {where}: write a number in its "
            f"place (such as {digits}) to use the column as numbers"
        )
    if look.counts[fits].sum() <= 0.9 * look.counts.sum():
        return ""
    word, where = _first_cell(columns, look, ~fits)
    infinite = " (an infinite number)" if is_infinite(word) else ""
    return (
        f"the column contains {kind}, but also {word!r}{infinite} in {where}: correct this "
        f"value, or give missing_values=[{word!r}] if {word!r} means that a value is missing"
    )


def _suffix_remark(look: _ColumnValues) -> str:
    """Return how numbers with a suffix could be read as numbers; empty: they have none."""
    found = suffixed_numbers(look.words) if look.text else None
    if found is None:
        return ""
    remedy = f"write {found.example!r} as {found.number} and so on"
    if found.number is None:
        remedy = "write all of them in one unit"
    if found.form is not None:
        remedy = f"give {format_setting(look.name, found.form)}"
    return (
        f"the column contains numbers with a suffix, such as {found.example!r}, which agt reads "
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
    if _is_named_like_a_label(evident.name, _LABELS):
        reason = "labels are often named so"
    return tuple(names), evident.name, reason


def _label_score(column: Column, is_last: bool) -> float:
    """Return how much a column looks like labels."""
    score = 0.0
    if _is_named_like_a_label(column.name, _LABELS):
        score += 3.0
    elif _is_named_like_a_label(column.name, _MAYBE_LABELS):
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


def _is_named_like_a_label(name: str, words: Collection[str]) -> bool:
    """Return whether a name has one of some words, and is not that of a part of it, such as the
    type of a deposit.
    """
    tokens = set(_tokens(name))
    return not tokens.isdisjoint(words) and tokens.isdisjoint(_OF_A_LABEL)


def _may_be_numbers(look: _ColumnValues) -> bool:
    """Return whether labels may be a quantity: they are several different numbers."""
    return look.numeric and not look.date and len(look.words) >= LEAST_NUMBERS


def _check_label_words(columns: ColumnReader, look: _ColumnValues) -> None:
    """Raise DataError for labels that may be numbers, if the owner did not say what they are.

    They may be if one of several numbers is infinite, or if there are more than FEW_NUMBERS numbers
    that are written otherwise than 1234.5.
    """
    numbers = np.isfinite(look.numbers)
    others = [str(word) for word in look.words.filter(pa.array(~numbers)).to_pylist()]
    if numbers.any() and others and all(map(is_infinite, others)):
        word, where = _first_cell(columns, look, ~numbers)
        raise DataError(
            f"{columns.path}: the label '{look.name}' has numbers, but also {word!r} (an infinite "
            f"number) in {where}: correct this value, or remove the row. If {word!r} is the name "
            "of a class, give target=classes"
        )
    remedy = _unread_label_remedy(look)
    if remedy and len(look.words) > FEW_NUMBERS:
        raise DataError(
            f"{columns.path}: the label '{look.name}' has {len(look.words):,} different numbers "
            f"that are written otherwise than 1234.5. If the label is a quantity, {remedy}, and "
            "give target=numeric range=[LOW,HIGH] with its public range. If each number is a "
            "class, give target=classes"
        )


def _unread_label_remedy(look: _ColumnValues) -> str:
    """Return what to do so that the words of a label are read as numbers.

    Returns:
        The remedy, in a clause; empty: they are read as numbers already, or are none.
    """
    if not look.text or look.date or isinstance(look.format, NumberFormat) or not len(look.words):
        return ""
    if look.possible_formats:
        # The word with most separators shows how the readings differ.
        word = max(look.words.to_pylist(), key=lambda word: len(re.findall(r"[.,' ]", word)))
        return _choice_of_format(look, word)
    found = suffixed_numbers(look.words)
    if found is None:
        return ""
    # A unit does not change a number, but k multiplies it by 1,000.
    is_unit = (
        found.form is not None and number_text_in_format(found.form, found.example) == found.number
    )
    if found.form is not None and is_unit:
        return f"give {format_setting(look.name, found.form)}"
    number = found.number or "a number in the unit of the others"
    return f"rewrite this column in the file ({found.example!r} as {number})"


def _check_numbers(columns: ColumnReader, look: _ColumnValues) -> None:
    """Raise DataError unless labels that were said to be numbers can be read as numbers."""
    name = look.name
    if remedy := _unread_label_remedy(look):
        raise DataError(
            f"{columns.path}: the label '{name}' has numbers that are written otherwise than "
            f"1234.5: {remedy}"
        )
    if isinstance(look.format, str):
        raise DataError(
            f"{columns.path}: the label '{name}' is written {format_example(look.format)}, but a "
            "label of numbers must not be a date: name another column with label=NAME"
        )
    if look.numeric and not look.date:
        return
    if not len(look.words):
        raise DataError(
            f"{columns.path}: the label '{name}' has no value in any row, but target=numeric needs "
            "numbers: name another column with label=NAME"
        )
    not_numbers = ~np.isfinite(look.numbers)
    word, where = _first_cell(columns, look, not_numbers if not_numbers.any() else ~not_numbers)
    raise DataError(
        f"{columns.path}: the label '{name}' has {word!r} in {where}, but target=numeric needs a "
        "finite number in each row: name a column of numbers with label=NAME, or give "
        "target=classes"
    )


def _classes(look: _ColumnValues, raw: pa.DataType, path: Path) -> tuple[str, ...]:
    """Return the names of the classes that labels are.

    Args:
        look: the column of labels.
        raw: the type that the file has it in.
        path: the file.

    Raises:
        DataError: there are too few classes, or too many.
    """
    values = look.words.cast(raw) if pa.types.is_boolean(raw) else look.words
    # 0.0 and -0.0 are one class
    distinct = dict.fromkeys(as_word(word) for word in values.to_pylist())
    words = np.array([*distinct], dtype=object)
    if not 2 <= len(words) <= MAX_FOUND:
        count = len(words)
        examples = ", ".join(map(repr, words[:3]))
        raise DataError(
            f"{path}: the label '{look.name}' has {count} different values, such as "
            f"{examples}, but a label must have 2 to {MAX_FOUND} classes: "
            f"{_instead_of_classes(look)}"
        )
    return class_names(words, path)


def _instead_of_classes(look: _ColumnValues) -> str:
    """Return what to do about a label that has too few different values, or too many."""
    if look.numeric:
        return (
            "if the label is a measured number, give target=numeric range=[LOW,HIGH] with its "
            "public range"
        )
    if len(look.counts) > 1 and look.counts.max() == 1:
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
