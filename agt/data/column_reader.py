"""An open file of records, read column by column.

How a value is read depends on that value and on the file's format alone, never on the rest of its
column (condition b of reference.md section 3: each record is processed by itself).

Whatever a column came from, it is checked as an Arrow array of one value a row, or as a numpy array
of one vector a row.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from agt.data.arrays import not_finite, row_words
from agt.data.cell_values import (
    NULLS,
    as_word,
    is_text,
    missing_word,
    to_numpy_text,
    to_plain_type,
    to_text,
)
from agt.data.csv_format import CsvFormat, open_text
from agt.data.damaged import DAMAGE_ERRORS, describe_damage
from agt.data.formats import ISO_DATE, CellFormat, days_since_1970, reads
from agt.data.header import no_such_column, numbered_columns
from agt.data.ids import most_frequent
from agt.errors import CsvFormatError, DataError
from agt.messages import Message

_STACKED_ROWS = 2**11
"""Rows of columns that are brought side by side at once: few enough to stay in the cache."""
_FLAGS = {"1": True, "true": True, "test": True, "0": False, "false": False, "train": False}
"""Text in lower case -> whether the record is a test record."""
ID_KINDS = {"a whole number": r"^[+-]?\d+$", "a decimal number": r"^[+-]?\d*\.\d+([eE][+-]?\d+)?$"}
"""Kind of number, in words -> what cells of a csv with such a number look like."""
_EXACT_BITS = {16: 11, 32: 24, 64: 53}
"""Bits of a floating-point type -> b such that its whole numbers below 2**b are exact."""


def _is_date(kind: pa.DataType) -> bool:
    """Return whether values of a type are dates, or dates with a time of day."""
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


@dataclass(frozen=True)
class ColumnReader:
    """An open file, read column by column.

    In every method, ``name`` is a column and ``setting`` the configuration key that chose it, which
    messages name.

    Attributes:
        path: the file, for messages.
        names: its columns, or the keys of an npz.
        read: column -> its values: a numpy array (npz, npy) or an Arrow column (csv, parquet).
        csv_format: how a csv, whose cells are text, was cut into them; None: another kind of file.
        first_row: the index of the first of these rows in the file, if this is a block of a large
            file; None: these are all of its rows.
        is_from_json: True for records that a program sent as JSON. There true is not a number, and
            a list of one value is not a value.
        numbers_among_text: column -> float64 of the numbers among the values that a program sent,
            null where the value is text; None: no program sent the values.
        part_of: the reader that these rows are taken from, and the index there of each, so that
            messages name rows as the file has them; None: no row was left out.

    Raises:
        DataError: two columns have the same name.
    """

    path: Path
    names: tuple[str, ...]
    read: Callable[[str], np.ndarray | pa.Array]
    csv_format: CsvFormat | None = None
    first_row: int | None = None
    is_from_json: bool = False
    numbers_among_text: Callable[[str], pa.Array] | None = None
    part_of: "tuple[ColumnReader, np.ndarray] | None" = None

    def __post_init__(self) -> None:
        repeated = [name for name, count in Counter(self.names).items() if count > 1]
        if repeated:
            raise DataError(
                f"{self.path}: two columns are named '{min(repeated)}': rename or remove one of "
                "them"
            )

    def only_rows(self, used: np.ndarray) -> "ColumnReader":
        """Return a reader of some of the rows, which messages name as the file has them.

        Args:
            used: [n] bool, which rows are used.
        """
        if used.all():
            return self

        def read(name: str) -> np.ndarray | pa.Array:
            column = self.read(name)
            if isinstance(column, np.ndarray):
                return column[used]
            return column.filter(pa.array(used))

        return replace(self, read=read, part_of=(self, np.flatnonzero(used)))

    def raw(self, name: str, setting: str) -> np.ndarray | pa.Array:
        """Return a column as the file has it.

        Raises:
            DataError: there is no such column, or it cannot be read.
        """
        if name not in self.names:
            separator = self.csv_format.separator if self.csv_format else None
            is_one_cell = separator is not None and len(self.names) == 1
            error = CsvFormatError if is_one_cell else DataError
            raise error(no_such_column(self.path, name, setting, self.names, separator))
        with self._naming_column(name):
            return self.read(name)

    @contextmanager
    def _naming_column(self, name: str) -> Iterator[None]:
        """Raise DataError, naming the column, for an error of NumPy or Arrow in the block."""
        try:
            yield
        except DAMAGE_ERRORS as error:
            raise DataError(
                f"{self.path}: column '{name}' cannot be read ({describe_damage(error)}): correct "
                "this column"
            ) from None

    def row(self, index: int) -> str:
        """Return how messages name a row, such as "row 3 of the data (line 4 of the file)".

        Rows are counted from 1. The line is named only for a csv that was read as a whole and has
        as many lines as rows and a header: then each row is one line. In another csv a cell has a
        line end, or a line is blank, so the line is not known.

        Args:
            index: the row's position in this reader, counted from 0.
        """
        if self.part_of is not None:
            whole_file, index_in_whole = self.part_of
            return whole_file.row(int(index_in_whole[index]))
        is_block = self.first_row is not None
        if is_block or self.csv_format is None or not self.names:
            return row_words(index + (self.first_row or 0))
        with open_text(self.path, "latin-1") as file:  # any bytes; only line ends matter
            line_count = sum(1 for _ in file)
        row_count = len(self.raw(self.names[0], ""))
        header_lines = int(self.csv_format.header)
        if line_count != row_count + header_lines:
            return row_words(index)
        return f"{row_words(index)} (line {index + 1 + header_lines} of the file)"

    def refuse(
        self,
        name: str,
        setting: str,
        is_refused: np.ndarray | pa.Array,
        values: Any,
        remedy: str | Message,
    ) -> None:
        """Raise DataError for the first refused row of a column, if there is one.

        Args:
            name: the column.
            setting: the configuration key that chose it.
            is_refused: [n] bool.
            values: [n], the column's values; or text that describes the refused value.
            remedy: a clause that says what to do about it.
        """
        rows = np.flatnonzero(is_refused)
        if not len(rows):
            return
        row = int(rows[0])
        if isinstance(values, str):
            value = values
        else:
            cell = values[row : row + 1].tolist()[0]
            value = "no value" if missing_word(as_word(cell)) else repr(cell)
        raise DataError(
            Message(
                "{path}: column '{name}' ({setting}) has {value} in {row}: {remedy}",
                path=self.path,
                setting=setting,
                name=name,
                value=value,
                row=self.row(row),
                remedy=remedy,
            )
        )

    def column(self, name: str, setting: str, missing: Sequence[str] = ()) -> pa.Array:
        """Return a column of one value a row, in a type that every function of Arrow takes.

        Bytes become text.

        Args:
            name: the column.
            setting: the configuration key that chose it.
            missing: text that stands for a missing value, in addition to ``NULLS``.

        Raises:
            DataError: there is no such column, it has vectors, or it cannot be read.
        """
        stored = self._one_value_a_row(name, setting)
        column = self._in_plain_type(stored, name, setting)
        if not missing or not is_text(column):
            return column
        is_missing = pc.is_in(column, pa.array(list(missing), column.type))
        return pc.if_else(is_missing, pa.scalar(None, column.type), column)

    def _one_value_a_row(self, name: str, setting: str) -> pa.Array:
        """Return a column of one value a row, in the type that the file has.

        Raises:
            DataError: there is no such column, it has vectors, or it cannot be read.
        """
        column = self.raw(name, setting)
        if isinstance(column, np.ndarray):
            is_one_wide = column.ndim == 2 and column.shape[1] == 1
            if is_one_wide and not self.is_from_json:
                column = column[:, 0]
            has_vectors = column.ndim != 1
        else:
            has_vectors = pa.types.is_nested(column.type)
        if has_vectors:
            raise DataError(
                f"{self.path}: column '{name}' contains vectors, but {setting} needs a single "
                "value per row"
            )
        with self._naming_column(name):
            if isinstance(column, np.ndarray):
                if column.dtype.kind in "SU":
                    # Of an array of text, Arrow would take each value only up to its first NUL.
                    column = column.tolist()
                return pa.array(column)
            if pa.types.is_dictionary(column.type):
                return column.cast(column.type.value_type)
        return column

    def _in_plain_type(self, column: pa.Array, name: str, setting: str) -> pa.Array:
        """Return the same values in a type that every function of Arrow takes.

        Raises:
            DataError: some bytes are not text.
        """
        try:
            return to_plain_type(column)
        except pa.ArrowInvalid:
            raise DataError(
                f"{self.path}: column '{name}' ({setting}) has the type {column.type}, and some "
                "of its bytes are not UTF-8 text: store text instead (for example ids as "
                "hexadecimal digits), or remove the column"
            ) from None

    def array(self, name: str, setting: str) -> np.ndarray:
        """Return the numbers under a key of an npz, or in an npy file, whatever their shape.

        Raises:
            DataError: there is no such array, or it has something else than finite numbers.
        """
        array = self.raw(name, setting)
        if (
            not isinstance(array, np.ndarray)
            or array.dtype.kind not in "iuf"
            or not np.isfinite(array).all()
        ):
            raise DataError(
                f"{self.path}: the array '{name}' ({setting}) must contain only finite numbers"
            )
        return array

    def refuse_missing_words(self, setting: str, values: Iterable[str | int]) -> None:
        """Raise DataError if a list has a word that is read as a missing value in a csv.

        Such a value would never occur in the data.

        Args:
            setting: the configuration key that lists the values.
            values: the listed values.
        """
        never_read = {*map(str, values)} & {*NULLS}
        if never_read and self.csv_format:
            raise DataError(
                f"{self.path}: {setting} lists '{min(never_read)}', but in a csv file this word is "
                f"read as a missing value: use another word in the file and in {setting}, or give "
                "the data as parquet"
            )

    def numbers(
        self,
        name: str,
        setting: str,
        missing: Sequence[str] = (),
        form: CellFormat | None = None,
    ) -> np.ndarray:
        """Return the numbers of a column, [n] float64, NaN where a value is missing.

        A date, or a date and time, becomes days since 1970-01-01.

        Args:
            name: the column.
            setting: the configuration key that chose it.
            missing: text that stands for a missing value, in addition to ``NULLS``.
            form: how the column's text is declared to be written; None: as the file's text is.

        Raises:
            DataError: a value is none of these. The message names the first.
        """
        column = self.column(name, setting, missing)
        kind = column.type
        if _is_date(kind):
            with self._naming_column(name):
                numbers = days_since_1970(column)
        elif is_text(column):
            cell_format = form or self.csv_format or CsvFormat()
            numbers = self._read_text(column, name, setting, cell_format)
        elif form is not None and not form.takes_numbers:  # it may read 20240131 as a date
            numbers = self._read_text(to_text(column), name, setting, form)
        elif pa.types.is_decimal(kind):
            # Text is rounded to the nearest double, as in a csv, which Arrow's cast of decimals is
            # not. Arrow chooses their scale from the whole column, so this text depends on other
            # cells: no declared format may read it.
            numbers = self._read_text(column.cast(pa.string()), name, setting, CsvFormat())
        elif pa.types.is_integer(kind) or pa.types.is_floating(kind):
            numbers = column
        elif pa.types.is_null(kind) or (pa.types.is_boolean(kind) and not self.is_from_json):
            numbers = column.cast(pa.int8())
        else:
            raise DataError(
                f"{self.path}: column '{name}' has the type {kind}, but {setting} needs numbers"
            )
        return numbers.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)

    def holds_dates(self, name: str, setting: str, formats: Mapping[str, object]) -> bool:
        """Return whether the numbers of a column are days, judged by its type or its first value.

        Args:
            name: the column.
            setting: the configuration key that chose it.
            formats: column -> how it is declared to be written; of dates, text.
        """
        if isinstance(formats.get(name), str):
            return True
        column = self.column(name, setting)
        if not is_text(column):
            return _is_date(column.type)
        first = column.drop_null()[:1].to_pylist()
        return any(re.match(ISO_DATE, value.strip()) for value in first)

    def _read_text(self, column: pa.Array, name: str, setting: str, form: CellFormat) -> pa.Array:
        """Return the numbers that the text of a column stands for, float64, null where missing.

        A program may send numbers among text. They are returned unchanged, unless the format
        reads digits as something else.

        Args:
            column: the text of the column.
            name: the column.
            setting: the configuration key that chose it.
            form: how the text is written.

        Raises:
            DataError: a value is not in the format. The message names the first.
        """
        numbers = None
        if self.numbers_among_text is not None and form.takes_numbers:
            numbers = self.numbers_among_text(name)
            column = pc.if_else(pc.is_valid(numbers), pa.scalar(None, column.type), column)
        try:
            parsed = form.numbers(column)
        except pa.ArrowInvalid:
            distinct = pc.unique(column.drop_null())
            invalid = next(word for word in distinct if not reads(form, pa.array([word.as_py()])))
            is_invalid = pc.fill_null(pc.equal(column, invalid), False)
            trimmed = pc.utf8_trim_whitespace(column)
            self.refuse(name, setting, is_invalid, trimmed, form.expected)  # which raises
        return parsed if numbers is None else pc.coalesce(numbers, parsed)

    def words(self, name: str, setting: str, missing: Sequence[str] = ()) -> np.ndarray:
        """Return each value of a column as text, [n] object, None where it is missing.

        A whole number has no decimal point.

        Args:
            name: the column.
            setting: the configuration key that chose it.
            missing: text that stands for a missing value, in addition to ``NULLS``.

        Raises:
            DataError: there is no such column, it has vectors, or it cannot be read.
        """
        column = self.column(name, setting, missing)
        with self._naming_column(name):
            encoded = column.dictionary_encode()
            # Missing values point at the last entry, None.
            word_of = np.array([*map(as_word, encoded.dictionary.to_pylist()), None], dtype=object)
        indices = pc.fill_null(encoded.indices, len(word_of) - 1)
        return word_of[indices.to_numpy(zero_copy_only=False)]

    def flags(self, name: str, setting: str) -> np.ndarray:
        """Return a column of flags, [n] bool: True for 1, true or test; False for 0, false, train.

        Raises:
            DataError: a value is none of these.
        """
        words = self.words(name, setting)
        flag_of = {word: _FLAGS.get((word or "").strip().lower()) for word in set(words.tolist())}
        flags = np.array([flag_of[word] for word in words.tolist()], dtype=object)
        self.refuse(
            name,
            setting,
            pd.isna(flags),
            words,
            "expected 0, false or train for a training record; 1, true or test for a test record",
        )
        return flags.astype(bool)

    def ids(self, name: str, setting: str, as_text: bool = False) -> np.ndarray:
        """Return names of records or units, [n] str. They may repeat.

        Args:
            name: the column.
            setting: the configuration key that chose it.
            as_text: take any mixture of numbers and text as text.

        Raises:
            DataError: an id is missing or a decimal number, numbers and text are mixed, or two
                differ by spaces alone.
        """
        stored = self._one_value_a_row(name, setting)
        column = self._in_plain_type(stored, name, setting)
        words = column if is_text(column) else to_text(column)
        self._refuse_missing_ids(words, name, setting)
        if pa.types.is_floating(column.type):
            # Numbers that rounding cannot have made equal are ids, if the user wants text.
            exact_below = 0.0
            if as_text:
                exact_below = 2.0 ** _EXACT_BITS[stored.type.bit_width]
            sizes = np.abs(column.to_numpy(zero_copy_only=False).astype(np.float64))
            self.refuse(
                name,
                setting,
                sizes >= exact_below,
                column,
                "ids must be text, or whole numbers that are stored without rounding: store the "
                "ids as text",
            )
        elif self.csv_format and not as_text:
            self._check_one_kind(words, name, setting)
        self._refuse_ids_equal_but_for_spaces(words, name, setting)
        return to_numpy_text(words)

    def _refuse_missing_ids(self, words: pa.Array, name: str, setting: str) -> None:
        """Raise DataError if an id is missing, or has a NUL character."""
        trimmed = pc.utf8_trim_whitespace(words)
        self.refuse(
            name,
            setting,
            pc.is_in(trimmed, pa.array([*NULLS, None], words.type)),
            words,
            "every row needs a value in this column",
        )
        self.refuse(
            name,
            setting,
            pc.match_substring(words, "\0"),
            words,
            "remove the NUL character (code 0), which text in this column must not contain",
        )

    def _refuse_ids_equal_but_for_spaces(self, words: pa.Array, name: str, setting: str) -> None:
        """Raise DataError if two ids differ by spaces at their ends alone."""
        trimmed = pc.utf8_trim_whitespace(words)
        if not pc.any(pc.not_equal(trimmed, words)).as_py():
            return
        if len(pc.unique(trimmed)) < len(pc.unique(words)):
            raise DataError(
                f"{self.path}: column '{name}' ({setting}) has values that differ only in "
                "spaces: always write a value in the same form"
            )

    def _check_one_kind(self, words: pa.Array, name: str, setting: str) -> None:
        """Raise DataError if ids of a csv are both numbers and text, or decimal numbers."""
        cells_of = {
            kind: pc.match_substring_regex(words, pattern) for kind, pattern in ID_KINDS.items()
        }
        any_number = "|".join(ID_KINDS.values())
        cells_of["text"] = pc.invert(pc.match_substring_regex(words, any_number))
        kinds = [kind for kind, cells in cells_of.items() if pc.any(cells).as_py()]
        if len(kinds) > 1 or kinds == ["a decimal number"]:
            explanation = (
                f"the column contains {' and '.join(kinds)}: write all values as whole numbers, or "
                "all as text, or give dataset.id_as_text=true"
            )
            self.refuse(name, setting, cells_of[kinds[-1]], words, explanation)

    def unique_ids(self, name: str, setting: str, as_text: bool = False) -> np.ndarray:
        """Return names of records, [n] str, none of which occurs twice.

        Args:
            name: the column.
            setting: the configuration key that chose it.
            as_text: take any mixture of numbers and text as text.

        Raises:
            DataError: an id is missing, a decimal number, or occurs twice; numbers and text are
                mixed; or two ids differ by spaces alone.
        """
        ids = self.ids(name, setting, as_text)
        repeated = most_frequent(ids)
        if repeated:
            raise DataError(
                f"{self.path}: column '{name}' ({setting}) contains {repeated.name!r} "
                f"{repeated.times} times, but the id of a record must be unique (for several rows "
                "of one person, give dataset.unit)"
            )
        return ids

    def matrix(self, name: str, setting: str) -> np.ndarray:
        """Return a vector of numbers for each record, [n, ...] with at least two axes.

        Args:
            name: the key of an npz array, a column of lists, or the common beginning of the columns
                NAME0, NAME1, ... (also NAME_0, ...).
            setting: the configuration key that chose it.

        Returns:
            An npz array in its own dtype; otherwise float64, or float32 if all are stored so.

        Raises:
            DataError: it is not numeric, lists have different lengths, a numbered column is absent,
                or a value is NaN or infinite (the message names the row).
        """
        if name in self.names:
            array = self._array_or_lists(name, setting)
        else:
            array = self._stack_numbered_columns(name, setting)
        if array.dtype.kind not in "biuf" or array.ndim < 2:
            holds = f"an array of {array.dtype} of shape {array.shape}"
            raise DataError(
                f"{self.path}: '{name}' contains {holds}, but {setting} needs a row of "
                "numbers for each record"
            )
        bad_row = not_finite(array) if array.dtype.kind == "f" else None
        if bad_row is not None:
            self.refuse(
                name,
                setting,
                np.arange(len(array)) == bad_row,
                "NaN or inf",
                "correct or remove this row",
            )
        return array

    def _array_or_lists(self, name: str, setting: str) -> np.ndarray:
        """Return an npz array unchanged, or a column of lists of equal length as an array [n, d].

        Raises:
            DataError: the column has no lists, or lists of different lengths.
        """
        column = self.raw(name, setting)
        if isinstance(column, np.ndarray):
            return column
        is_list = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
        if not any(is_of_kind(column.type) for is_of_kind in is_list):
            raise DataError(
                f"{self.path}: column '{name}' contains {column.type}, but {setting} needs a "
                "column of lists of numbers"
            )
        widths = pc.unique(pc.list_value_length(column)).to_pylist()
        if len(widths) != 1 or widths[0] is None:
            raise DataError(
                f"{self.path}: every row of column '{name}' must contain a list of the same length"
            )
        flat = pc.list_flatten(column).to_numpy(zero_copy_only=False)
        if flat.dtype != np.float32:
            flat = np.asarray(flat, dtype=np.float64)
        return flat.reshape(len(column), widths[0])

    def _stack_numbered_columns(self, name: str, setting: str) -> np.ndarray:
        """Return the columns NAME0, NAME1, ... (or NAME_0, ...) side by side, [n, d].

        Raises:
            DataError: there are none, or a number is absent or occurs twice.
        """
        numbered = numbered_columns(name, self.names)
        if not numbered:
            self.raw(name, setting)  # there is no such column: it raises
        numbers = [number for number, _ in numbered]
        first = numbers[0]
        last = numbers[-1]
        if numbers != [*range(first, last + 1)]:
            raise DataError(
                f"{self.path}: each of the columns {name}{first} to {name}{last} must exist "
                "exactly once"
            )
        columns = [self._in_stored_precision(column, setting) for _, column in numbered]
        stacked = np.empty((len(columns[0]), len(columns)), np.result_type(*columns))
        for start in range(0, len(stacked), _STACKED_ROWS):
            rows = slice(start, start + _STACKED_ROWS)
            np.stack([column[rows] for column in columns], axis=1, out=stacked[rows])
        return stacked

    def _in_stored_precision(self, name: str, setting: str) -> np.ndarray:
        """Return the ``numbers`` of a column, float32 if the file stores that, else float64."""
        column = self.column(name, setting)
        if column.type == pa.float32() and not column.null_count:
            return column.to_numpy()
        return self.numbers(name, setting)
