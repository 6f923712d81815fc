"""The distinct values of a column that nothing is declared of, and how they are read.

A column is read in four steps: its cells, as they are; its distinct values with their numbers of
rows; these values as numbers, in the format of the file or in one that fits all of them; and at
last without the values that mean that a value is missing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from agt.data.cell_values import as_word
from agt.data.column_reader import ColumnReader
from agt.data.csv_format import CsvFormat
from agt.data.formats import COMMA, MONTHS, DeclaredFormat, NumberFormat, in_any_case
from agt.errors import DataError
from agt_cli.runs.column import ColumnOptions
from agt_cli.runs.formats import number_formats

NUMBER_WITH_COMMA_PATTERN = r"^[$€£]?\s*[+-]?\d[\d.,' ]*(\s*[%$€£])?$"
_MONTH_NAMES = (f"{in_any_case(month[:3])}(?:{in_any_case(month[3:])})?" for month in MONTHS)
_MONTH = f"(?:{'|'.join(_MONTH_NAMES)})"
_DATES_WITH_NAMES = (
    rf"\d{{1,2}}(?:\. |[-/ ]?){_MONTH}[-/ ]?(?:\d{{2}}|\d{{4}})",
    rf"{_MONTH} \d{{1,2}},? \d{{4}}",
    rf"\d{{4}}-{_MONTH}-\d{{1,2}}",
    rf"{_MONTH}[- ]\d{{4}}",
)
DATE_PATTERN = (
    r"^(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4}|\d{1,2}[-/]\d{1,2}[-/]\d{2}"
    rf"|{'|'.join(_DATES_WITH_NAMES)})([T ]\d{{1,2}}:\d{{2}}.*)?$"
)
"""A date in one of the forms that ``agt_cli.runs.formats`` proposes, or one much like it."""
NUMBER_PATTERN = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
MISSING_WORDS = {
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


@dataclass(frozen=True)
class ColumnValues:
    """The distinct values of a column.

    Attributes:
        name: the name of the column.
        cells: the column itself.
        distinct: distinct values that are not missing, as they are.
        numbers: [distinct] float64, NaN where a word is no number.
        counts: [distinct] rows with each.
        missing: rows without a value.
        markers: words taken for missing.
        is_single: each row has one value or none, and not a list, or bytes that are no text.
        format: the format of the text, if it is not the default format.
        possible_formats: the formats of numbers that read the text, if several read it as different
            numbers.
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
        """True if there are values, and all are finite numbers."""
        return bool(len(self.numbers)) and bool(np.isfinite(self.numbers).all())

    @property
    def is_whole(self) -> bool:
        """True if there are values, and all are whole numbers."""
        return self.is_numeric and bool((self.numbers == np.rint(self.numbers)).all())

    @property
    def is_date(self) -> bool:
        """True if there are values, and all are dates or times."""
        if pa.types.is_temporal(self.distinct.type):
            return True
        return bool(self.is_text and len(self.distinct) and self.matches(DATE_PATTERN).all())

    def has_word(self, word: str) -> bool:
        """Return whether a value is this word, blanks around it aside."""
        trimmed = pc.utf8_trim_whitespace(self.distinct)
        return bool(pc.any(pc.equal(trimmed, word.strip())).as_py())

    def matches(self, pattern: str) -> np.ndarray:
        """Return whether each value, trimmed, matches a pattern somewhere, [distinct]."""
        return np.asarray(pc.match_substring_regex(pc.utf8_trim_whitespace(self.distinct), pattern))

    def without_missing(self, is_missing: pa.Array, markers: tuple[str, ...] = ()) -> Self:
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

    def index_of_rows(self) -> np.ndarray:
        """Return the index of each row's value in ``distinct``, [rows]; one more: no value."""
        indices: np.ndarray = (
            pc.index_in(self.cells, self.distinct).fill_null(len(self.distinct)).to_numpy()
        )
        return indices

    def rows_with_value(self) -> np.ndarray:
        """Return which rows have a value, [rows] bool."""
        has_value: np.ndarray = self.index_of_rows() < len(self.distinct)
        return has_value

    def first_cell(self, columns: ColumnReader, is_sought: np.ndarray) -> tuple[str, str]:
        """Return the first cell that has one of the sought values, and a text that names its row.

        Args:
            columns: the reader of the file.
            is_sought: [distinct] bool, which of the distinct values are sought; at least one.
        """
        sought_values = self.distinct.filter(pa.array(is_sought))
        row = pc.index(pc.is_in(self.cells, sought_values), True).as_py()
        return str(self.cells[row].as_py()), columns.row(row)

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
        by_text = sorted(zip(texts, self.counts.tolist(), strict=True))
        return tuple(sorted(by_text, key=itemgetter(1), reverse=True))


def read_columns(
    columns: ColumnReader, names: Iterable[str], options: ColumnOptions
) -> dict[str, ColumnValues]:
    """Return the distinct values of some columns.

    Args:
        columns: the open file, of which columns are read.
        names: the columns to read.
        options: what the owner says of the columns.
    """
    return {name: _read_column(columns, name, options) for name in names}


def row_count(values_by_column: Mapping[str, ColumnValues]) -> int:
    """Return how many rows the columns have."""
    return next((len(values.cells) for values in values_by_column.values()), 0)


def has_decimal_commas(values_by_column: Iterable[ColumnValues]) -> bool:
    """Return whether numbers in a csv have a decimal comma.

    A column has nothing else, and no column has a decimal point.
    """
    has_commas = False
    for values in values_by_column:
        if not values.is_text or not len(values.distinct):
            continue
        if values.is_numeric and values.matches(r"\.(\d{1,2}|\d{4,})$").any():
            return False
        if values.matches(COMMA).all() and values.matches(r",(\d{1,2}|\d{4,})$").any():
            has_commas = True
    return has_commas


def _read_column(columns: ColumnReader, name: str, options: ColumnOptions) -> ColumnValues:
    """Return the distinct values of a column.

    Args:
        columns: the open file, of which columns are read.
        name: the name of the column.
        options: what the owner says of the columns.
    """
    cells, is_single = _cells(columns, name)
    distinct, counts = pc.value_counts(cells if is_single else pa.nulls(0)).flatten()
    is_decimal = pa.types.is_decimal(distinct.type)
    is_number = pa.types.is_integer(distinct.type) or pa.types.is_floating(distinct.type)
    form = options.formats.get(name)
    possible_formats: list[NumberFormat] = []
    if is_decimal:
        # Text is rounded to the nearest double, as training reads it; Arrow's cast is not. The
        # values stay decimals: as classes or ids, those that one double stands for are different.
        numbers = distinct.cast(pa.string()).cast(pa.float64())
    elif is_number:
        numbers = distinct.cast(pa.float64(), safe=False)
    elif pa.types.is_string(distinct.type):
        numbers = _numbers_in_default_format(columns, distinct)
        if form is None:
            possible_formats = _number_formats(distinct, numbers, options.missing_values)
            form = possible_formats[0] if len(possible_formats) == 1 else None
        if isinstance(form, NumberFormat):
            numbers = form.numbers(pc.if_else(form.matches(distinct), distinct, None))
    else:
        numbers = pa.nulls(len(distinct), pa.float64())
    values = ColumnValues(
        name,
        cells,
        distinct,
        numbers=np.array(pc.fill_null(numbers, np.nan)),
        counts=np.array(counts),
        missing=0 if is_single else cells.null_count,
        is_single=is_single,
        format=form,
        possible_formats=tuple(possible_formats[:2]),
    )
    present = values.without_missing(pc.is_null(distinct, nan_is_null=is_number))
    return _without_markers(present, options.missing_values) if present.is_text else present


def _cells(columns: ColumnReader, name: str) -> tuple[pa.Array, bool]:
    """Return a column, and whether each row of it has one value or none.

    Vectors, or bytes that are no text, are returned unchanged: such a column is left out, and the
    others can be inspected.
    """
    raw: pa.Array = columns.raw(name, "file")
    try:
        cells = columns.column(name, "file")
    except DataError:
        return raw, False
    simpler = {pa.large_string(): pa.string(), pa.bool_(): pa.int8()}
    return cells.cast(simpler.get(cells.type, cells.type)), True


def _numbers_in_default_format(columns: ColumnReader, texts: pa.Array) -> pa.Array:
    """Return words as numbers, with the decimal sign of the file; null: a word is not a number."""
    text = (columns.csv_format or CsvFormat()).with_decimal_points(texts)
    return pc.if_else(pc.match_substring_regex(text, NUMBER_PATTERN), text, None).cast(
        pa.float64(), safe=False
    )


def _number_formats(
    texts: pa.Array, numbers: pa.Array, missing_values: Sequence[str]
) -> list[NumberFormat]:
    """Return the formats of numbers that fit all words, if the default format does not.

    Words that mean that a value is missing need not fit.

    Args:
        texts: distinct values, of which one may be null.
        numbers: the words as numbers in the default format; null where a word is not one.
        missing_values: further values that mean that a value is missing.
    """
    present = texts.drop_null()
    folded = pc.utf8_lower(pc.utf8_trim_whitespace(present))
    is_usual_marker = pc.is_in(folded, pa.array(sorted(MISSING_WORDS), pa.string()))
    is_declared_marker = pc.is_in(present, pa.array(missing_values, pa.string()))
    is_marker = pc.or_(is_usual_marker, is_declared_marker)
    words = present.filter(pc.invert(is_marker))
    unread_count = numbers.null_count - texts.null_count
    if not len(words) or unread_count <= pc.sum(is_marker).as_py():
        return []
    return number_formats(words)


def _without_markers(values: ColumnValues, missing_values: Sequence[str]) -> ColumnValues:
    """Return the values without the words that mean that a value is missing.

    '?' always does; the words of ``MISSING_WORDS`` do if everything else is a number, or a date.

    Args:
        values: the values.
        missing_values: further values that mean that a value is missing.
    """
    is_unread = np.isnan(values.numbers) & ~values.matches(DATE_PATTERN)
    unread = values.distinct.filter(pa.array(is_unread))
    unread_words = unread.to_pylist() if len(unread) <= _MAX_MISSING_WORDS else []
    is_declared = pc.is_in(values.distinct, pa.array(missing_values, pa.string()))
    markers = {*values.distinct.filter(is_declared).to_pylist()}
    markers |= {word for word in unread_words if word.strip() in ("", "?")}
    usual_markers = {word for word in unread_words if word.strip().casefold() in MISSING_WORDS}
    all_others_are_read = usual_markers | markers >= {*unread_words}
    if all_others_are_read and len(unread_words) < len(values.distinct):
        markers |= usual_markers
    listed = tuple(sorted(markers))
    is_missing = pc.is_in(values.distinct, pa.array(listed, pa.string()))
    return values.without_missing(is_missing, listed)
