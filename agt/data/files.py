"""Files of records as columns: csv and its relatives, parquet, npz, folders of npy files, and rows
that a program sends.

One rule holds everywhere: how a value is read depends on that value and on the file's format alone,
never on the rest of its column (reference.md section 3, condition b). So a csv has no guessed
column types: every cell is text until a caller asks for numbers, and '07' does not turn into 7
because its neighbours happen to be digits. How a csv is cut into cells is a setting and never
guessed while training either: one record could change a guess, and so every other record.

Whatever a column came from, it is checked as an Arrow array of one value a row, or as a numpy array
of one vector a row. Columns are read when they are asked for; arrays of a folder stay
memory-mapped; large files come in blocks of rows.
"""

import codecs
import csv
import gzip
import re
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, TextIO

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from agt.data.arrays import ROWS, not_finite, row_words
from agt.data.disguised import (
    HEAD_BYTES,
    check_compression,
    check_parquet,
    check_text_kind,
    odd_line,
)
from agt.data.file_settings import CsvSettings
from agt.data.formats import (
    COMMA,
    ISO_DATE,
    CellFormat,
    days_since_1970,
    read_numbers,
    reads,
)
from agt.data.ids import most_frequent
from agt.data.suffixes import check_suffix, is_delimited
from agt.errors import DataError, DataMissing, first_line, nearest
from agt.messages import Message
from agt.settings import schema
from agt.store import locate, require

NULLS = ["", "NA", "N/A", "NaN", "nan", "null", "NULL"]
"""What in a csv stands for a missing value."""
SEPARATORS = (",", ";", "\t", "|", " ")
_PARSED_BYTES = 2**22  # of a csv, at once
_TURNED_ROWS = 2**11  # rows of columns that are brought side by side
_WHOLE_BYTES = 2**23  # of text that is read as a whole; sixteen times as many of arrays
_DAMAGED = (
    *(ValueError, OSError, EOFError, KeyError, OverflowError),
    *(struct.error, zlib.error, zipfile.BadZipFile, pa.ArrowException),
)
_FLAGS = {"1": True, "true": True, "test": True, "0": False, "false": False, "train": False}
ID_KINDS = {"a whole number": r"^[+-]?\d+$", "a decimal number": r"^[+-]?\d*\.\d+([eE][+-]?\d+)?$"}
_CAST_TO_TEXT = (
    *(pa.types.is_binary, pa.types.is_fixed_size_binary),
    *(pa.types.is_binary_view, pa.types.is_string_view),
)
_EXACT_BITS = {16: 11, 32: 24}  # below 2 to this, numbers of so many bits tell whole ones apart


@schema
class CsvFormat(CsvSettings):
    """How a text file is cut into cells, and how numbers are written in columns that have no
    format of their own.
    """

    takes_numbers: ClassVar[bool] = True

    def numbers(self, cells: pa.Array) -> pa.Array:
        """float64 of the cells of a column without a declared format, each read by itself; null
        stays null.

        Raises:
            ArrowInvalid: a cell is neither a number nor a date such as 2024-12-31.
        """
        return read_numbers(self.plain(cells))

    @property
    def expected(self) -> Message:
        """What such a cell must be, for messages."""
        if self.decimal == ",":
            return Message(
                "expected a number with a decimal comma, such as 1.234,5 (because "
                "dataset.csv.decimal is a comma), or a date such as 2024-12-31"
            )
        return Message(
            "expected a number such as 1234.5 (without thousands separators), or a date such as "
            "2024-12-31. If the file uses a decimal comma, give {config:+dataset.csv.decimal=','}"
        )

    def plain(self, cells: pa.Array) -> pa.Array:
        """Text without blanks around it, each number in it with a point, so that Arrow reads it."""
        cells = pc.utf8_trim_whitespace(cells)
        if self.decimal == ".":
            return cells
        bare = pc.replace_substring(pc.replace_substring(cells, ".", ""), ",", ".")
        # 1.5 is no number here
        other = pc.if_else(pc.match_substring_regex(cells, ISO_DATE), cells, "?")
        return pc.if_else(pc.match_substring_regex(cells, COMMA), bare, other)

    @property
    def codec(self) -> str:
        """Python's name of the encoding, by which a byte order mark is passed over."""
        return "utf-8-sig" if codecs.lookup(self.encoding).name == "utf-8" else self.encoding

    def rows(self, path: Path, most: int) -> list[list[str]]:
        """The first rows as they stand, a header included.

        Raises:
            DataError: the text is in another encoding, or cannot be cut into cells; what
                ``open_text`` raises.
        """
        with open_text(path, self.codec) as file:
            reader = csv.reader(file, delimiter=self.separator)
            try:
                return list(islice(reader, most))
            except csv.Error as error:
                raise DataError(
                    f"{path}: the rows near line {reader.line_num} cannot be divided into cells "
                    f'({first_line(error)}): close a quotation mark (") that was left open, or '
                    "shorten the longest cell"
                ) from None
            except UnicodeError:
                raise DataError(
                    f"{path}: the text of this file is not "
                    f"{codecs.lookup(self.encoding).name.upper()}: save it as UTF-8, or give "
                    "its encoding, for example dataset.csv.encoding=latin-1"
                ) from None

    def missing_words(self, path: Path, name: str) -> dict[str, int]:
        """Return how many cells of a column have each of the words that stand for a missing
        value.
        """
        read, parse, _ = self.options(self.names(path))
        text = pa.csv.ConvertOptions(column_types={name: pa.string()}, include_columns=[name])
        cells = pa.csv.read_csv(path, read, parse, text).column(name)
        words, counts = pc.value_counts(cells).flatten()
        found = dict(zip(words.to_pylist(), counts.to_pylist(), strict=True))
        return {word: found[word] for word in NULLS if word in found}

    def names(self, path: Path) -> tuple[str, ...]:
        """The columns of a file."""
        first = next(iter(self.rows(path, 1)), [])
        return (
            tuple(first)
            if self.header
            else tuple(f"column{place}" for place in range(1, len(first) + 1))
        )

    def options(self, names: Sequence[str]) -> tuple[Any, ...]:
        """How Arrow reads the file: every cell as text, null where a word of ``NULLS`` stands."""
        # Arrow's own; it passes over the mark
        encoding = "utf8" if self.codec == "utf-8-sig" else self.encoding
        given = None if self.header else list(names)
        text = {name: pa.string() for name in names}
        return (
            pa.csv.ReadOptions(column_names=given, encoding=encoding, block_size=_PARSED_BYTES),
            pa.csv.ParseOptions(delimiter=self.separator, newlines_in_values=True),
            pa.csv.ConvertOptions(column_types=text, strings_can_be_null=True, null_values=NULLS),
        )


@contextmanager
def open_text(path: Path, codec: str) -> Iterator[TextIO]:
    """Open a text file, compressed or not, with its line ends as they are.

    Raises:
        DataError: while it is read, of a compressed file that is truncated, damaged or not
            compressed.
    """
    if path.suffix.lower() != ".gz":
        with path.open(encoding=codec, newline="") as file:
            yield file
        return
    try:
        with gzip.open(path, "rt", encoding=codec, newline="") as file:
            yield file
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(
            f"{path}: the compressed data is truncated or damaged after line "
            f"{_whole_lines(path)} ({first_line(error)}): copy the file again, or compress the "
            "table again with gzip"
        ) from None


def _whole_lines(path: Path) -> int:
    # How many lines of a damaged file can be decompressed.
    lines = 0
    with gzip.open(path) as file, suppress(EOFError, zlib.error, gzip.BadGzipFile):
        for line in file:
            lines += line.endswith(b"\n")
    return lines


def check_kind(path: Path, encoding: str | None = None) -> None:
    """Raise DataError if a file is visibly another kind of file than its name says.

    Args:
        path: it is there.
        encoding: of the text of a csv; None: not known yet, so only the compression is checked.
    """
    if path.suffix.lower() == ".parquet":
        check_parquet(path)
    if not is_delimited(path):
        return
    check_compression(path)
    if not path.stat().st_size:
        raise DataError(
            f"{path}: the file is empty: the first line must name the columns, and the lines "
            "after it must contain records"
        )
    if encoding is not None:
        check_text_kind(path, read_head(path), encoding)


def read_head(path: Path) -> bytes:
    """Return the first bytes of a csv, decompressed.

    Raises:
        DataError: a compressed file that is truncated or damaged.
    """
    with open_text(path, "latin-1") as file:
        return file.read(HEAD_BYTES).encode("latin-1")


def _odd_line(path: Path, form: CsvFormat, error: Exception) -> str:
    # Why a csv cannot be divided into cells: its first line that does not fit, if there is one.
    with open_text(path, form.codec) as file, suppress(csv.Error, UnicodeError):
        found = odd_line(csv.reader(file, delimiter=form.separator))
        if found is not None:
            return found
    return _unreadable(error)


# -- columns, and what is checked of them
# ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class ColumnReader:
    """An open file, read column by column.

    Attributes:
        path: the file, for messages.
        names: its columns, or the keys of an npz.
        read: the raw column: a numpy array (npz, npy) or an Arrow column (csv, parquet).
        form: how a csv, whose cells are text, was cut into them; None: another kind of file.
        first: these are some of a large file's rows, beginning with the one of this index; None:
            all of them.
        sent: by a program, as JSON: true is no number there, and a list of one value is none
            either.
        numbers_among_text: of what a program sent, the numbers in a column that has text, too, as
            float64; null where the value is text. None: no value was sent.
    """

    path: Path
    names: tuple[str, ...]
    read: Callable[[str], np.ndarray | pa.Array]
    form: CsvFormat | None = None
    first: int | None = None
    sent: bool = False
    numbers_among_text: Callable[[str], pa.Array] | None = None

    def __post_init__(self) -> None:
        repeated = [name for name, count in Counter(self.names).items() if count > 1]
        if repeated:
            raise DataError(
                f"{self.path}: two columns are named '{min(repeated)}': rename or remove one of "
                "them"
            )

    def raw(self, name: str, setting: str) -> np.ndarray | pa.Array:
        """The column called ``name``; ``setting`` is the configuration key that chose it.

        Raises DataError.
        """
        if name not in self.names:
            cut = ""
            if self.form and len(self.names) == 1:
                cut = (
                    f". The lines were split at {self.form.separator!r}. If the file uses "
                    "another separator, give it as dataset.csv.separator"
                )
            raise DataError(
                f"{self.path}: there is no column or key '{name}', which {setting} "
                f"names{nearest(name, self.names)}{cut}"
            )
        with self._reading(name):
            return self.read(name)

    @contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        # What numpy and Arrow refuse, refused by the column's name.
        try:
            yield
        except _DAMAGED as error:
            raise DataError(
                f"{self.path}: column '{name}' cannot be read ({_unreadable(error)}): correct this "
                "column"
            ) from None

    def row(self, row: int) -> str:
        """How messages name the row with this index: counted from 1; of a csv also the line, where
        that is certain.

        Each row of a csv takes a line at least, and blank lines are no rows: so if the file has as
        many lines as rows and a header, each of them is one line, and otherwise nothing is said.
        """
        if self.first is not None or self.form is None or not self.names:
            return row_words(row + (self.first or 0))
        with open_text(self.path, "latin-1") as file:  # any bytes; only line ends matter
            lines = sum(1 for _ in file)
        if lines != len(self.raw(self.names[0], "")) + self.form.header:
            return row_words(row)
        row_in_words = row_words(row)
        line = row + 1 + self.form.header
        return f"{row_in_words} (line {line} of the file)"

    def refuse(
        self,
        name: str,
        setting: str,
        bad: np.ndarray | pa.Array,
        values: Any,
        remedy: str | Message,
    ) -> None:
        """Raise DataError for the first row of a column that is bad, if there is one.

        Args:
            bad: [n] bool.
            values: [n], the column's; or in words, what such a row has.
        """
        rows = np.flatnonzero(bad)
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
        """One value a row; bytes become text. Raises DataError.

        Args:
            missing: text that stands for no value, beside what does so anyway.
        """
        column = self._plain(self._stored(name, setting), name, setting)
        if not missing or not is_text(column):
            return column
        return pc.if_else(
            pc.is_in(column, pa.array(list(missing), column.type)),
            pa.scalar(None, column.type),
            column,
        )

    def _stored(self, name: str, setting: str) -> pa.Array:
        # One value a row, of the type that the file has.
        column = self.raw(name, setting)
        if (
            isinstance(column, np.ndarray)
            and column.ndim == 2
            and column.shape[1] == 1
            and not self.sent
        ):
            column = column[:, 0]
        if column.ndim != 1 if isinstance(column, np.ndarray) else pa.types.is_nested(column.type):
            raise DataError(
                f"{self.path}: column '{name}' contains vectors, but {setting} needs a single "
                "value per row"
            )
        with self._reading(name):
            # of an array of text Arrow takes each value up to its first NUL
            if isinstance(column, np.ndarray):
                column = pa.array(column.tolist() if column.dtype.kind in "SU" else column)
            if pa.types.is_dictionary(column.type):
                column = column.cast(column.type.value_type)
        return column

    def _plain(self, column: pa.Array, name: str, setting: str) -> pa.Array:
        # The same values in a type that every function of Arrow takes.
        try:
            return _in_plain_type(column)
        except pa.ArrowInvalid:
            raise DataError(
                f"{self.path}: column '{name}' ({setting}) has the type {column.type}, and some "
                "of its bytes are not UTF-8 text: store text instead (for example ids as "
                "hexadecimal digits), or remove the column"
            ) from None

    def array(self, name: str, setting: str) -> np.ndarray:
        """The numbers under a key of an npz, or in an npy file, whatever their shape.

        Raises DataError.
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
        """Raise DataError where a list names what in a csv stands for a missing value, so that
        it would never be met.
        """
        met = {*map(str, values)} & {*NULLS}
        if met and self.form:
            raise DataError(
                f"{self.path}: {setting} lists '{min(met)}', but in a csv file this word is read "
                f"as a missing value: use another word in the file and in {setting}, or give the "
                "data as parquet"
            )

    def numbers(
        self,
        name: str,
        setting: str,
        missing: Sequence[str] = (),
        form: CellFormat | None = None,
    ) -> np.ndarray:
        """[n] float64; a missing value is NaN, a date, or a date and time, days since 1970-01-01.

        Args:
            missing: as in ``column``.
            form: how the column's text is declared to be written; None: as the file's text is.

        Raises:
            DataError: naming the first value that is none of these.
        """
        column = self.column(name, setting, missing)
        if pa.types.is_decimal(column.type):
            # Arrow chooses the scale of decimals from the whole column, so their text depends on
            # other cells: no declared format may read it.
            if form is None or form.takes_numbers:
                form = CsvFormat()
                column = column.cast(pa.string())
            else:
                column = column.cast(pa.float64())
        dated = pa.types.is_date(column.type) or pa.types.is_timestamp(column.type)
        if form is not None and not form.takes_numbers and not dated and not is_text(column):
            column = _as_words(column)
        if is_text(column):
            column = self._read_text(column, name, setting, form or self.form or CsvFormat())
        if dated:
            with self._reading(name):
                column = days_since_1970(column)
        if pa.types.is_null(column.type) or (pa.types.is_boolean(column.type) and not self.sent):
            column = column.cast(pa.int8())
        if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
            raise DataError(
                f"{self.path}: column '{name}' has the type {column.type}, but {setting} "
                "needs numbers"
            )
        return column.to_numpy(zero_copy_only=False).astype(np.float64)

    def _read_text(self, column: pa.Array, name: str, setting: str, form: CellFormat) -> pa.Array:
        # float64 of text. Numbers that a program sent among text are their own values.
        numbers = None
        if self.numbers_among_text is not None and form.takes_numbers:
            numbers = self.numbers_among_text(name)
            column = pc.if_else(pc.is_valid(numbers), pa.scalar(None, column.type), column)
        try:
            read = form.numbers(column)
        except pa.ArrowInvalid:
            words = pc.unique(column.drop_null())
            unread = next(word for word in words if not reads(form, pa.array([word.as_py()])))
            bad = pc.equal(column, unread)
            values = pc.utf8_trim_whitespace(column)
            self.refuse(name, setting, pc.fill_null(bad, False), values, form.expected)
        return read if numbers is None else pc.coalesce(numbers, read)

    def words(self, name: str, setting: str, missing: Sequence[str] = ()) -> np.ndarray:
        """[n] object: each value as text, a whole number without a decimal point; None where it
        is missing.
        """
        column = self.column(name, setting, missing)
        with self._reading(name):
            coded = column.dictionary_encode()
            known = np.array([*map(as_word, coded.dictionary.to_pylist()), None], dtype=object)
        return known[pc.fill_null(coded.indices, len(known) - 1).to_numpy(zero_copy_only=False)]

    def flags(self, name: str, setting: str) -> np.ndarray:
        """[n] bool: True for 1, true or test; False for 0, false or train.

        Raises DataError for anything else.
        """
        words = self.words(name, setting)
        flags = {word: _FLAGS.get((word or "").strip().lower()) for word in set(words.tolist())}
        found = np.array([flags[word] for word in words.tolist()], dtype=object)
        self.refuse(
            name,
            setting,
            pd.isna(found),
            words,
            "expected 0, false or train for a training record; 1, true or test for a test record",
        )
        return found.astype(bool)

    def ids(self, name: str, setting: str, as_text: bool = False) -> np.ndarray:
        """[n] str: names of records or units, none missing and all of one kind; they may repeat.

        Args:
            as_text: take any mixture of numbers and text as text.

        Raises:
            DataError: an id is missing or a decimal number, numbers and text are mixed, or two
                differ by spaces alone.
        """
        stored = self._stored(name, setting)
        column = self._plain(stored, name, setting)
        words = column if is_text(column) else _as_words(column)
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
        if pa.types.is_floating(column.type):
            numbers = np.abs(column.to_numpy(zero_copy_only=False).astype(np.float64))
            exact = 2.0 ** _EXACT_BITS.get(stored.type.bit_width, 53) if as_text else 0.0
            why = (
                "ids must be text, or whole numbers that are stored without rounding: store the "
                "ids as text"
            )
            self.refuse(name, setting, numbers >= exact, column, why)
        elif self.form and not as_text:
            self._check_one_kind(words, name, setting)
        if pc.any(pc.not_equal(trimmed, words)).as_py() and len(pc.unique(trimmed)) < len(
            pc.unique(words)
        ):
            raise DataError(
                f"{self.path}: column '{name}' ({setting}) has values that differ only in "
                "spaces: always write a value in the same form"
            )
        return _unicode(words)

    def _check_one_kind(self, words: pa.Array, name: str, setting: str) -> None:
        # Refuse cells of a csv that are numbers and text, or decimal numbers.
        found = {kind: pc.match_substring_regex(words, shape) for kind, shape in ID_KINDS.items()}
        found["text"] = pc.invert(pc.match_substring_regex(words, "|".join(ID_KINDS.values())))
        kinds = [kind for kind, cells in found.items() if pc.any(cells).as_py()]
        why = (
            f"the column contains {' and '.join(kinds)}: write all values as whole numbers, or "
            "all as text, or give dataset.id_as_text=true"
        )
        if len(kinds) > 1 or kinds == ["a decimal number"]:
            self.refuse(name, setting, found[kinds[-1]], words, why)

    def unique_ids(self, name: str, setting: str, as_text: bool = False) -> np.ndarray:
        """[n] str: as ``ids``, and no value occurs twice.

        Raises DataError naming the column and one that does.
        """
        ids = self.ids(name, setting, as_text)
        repeated = most_frequent(ids)
        if repeated:
            raise DataError(
                f"{self.path}: column '{name}' ({setting}) contains {repeated[0]!r} {repeated[1]} "
                "times, but the id of a record must be unique (for several rows of one "
                "person, give dataset.unit)"
            )
        return ids

    def matrix(self, name: str, setting: str) -> np.ndarray:
        """[n, ...] numbers: an npz array, a column of lists, or the columns NAME0, NAME1, ... (also
        NAME_0, ...).

        Returns:
            an npz array in its own dtype, otherwise float64, or float32 if all are stored so; at
            least two axes.

        Raises:
            DataError: not numeric, lists of different lengths, a numbered column is absent, or NaN
                or inf (the row).
        """
        array = (
            self._stacked(name, setting) if name in self.names else self._numbered(name, setting)
        )
        if array.dtype.kind not in "biuf" or array.ndim < 2:
            holds = f"an array of {array.dtype} of shape {array.shape}"
            raise DataError(
                f"{self.path}: '{name}' contains {holds}, but {setting} needs a row of "
                "numbers for each record"
            )
        row = not_finite(array) if array.dtype.kind == "f" else None
        bad = [] if row is None else np.arange(len(array)) == row
        self.refuse(
            name,
            setting,
            bad,
            "NaN or inf",
            "correct or remove this row",
        )
        return array

    def _stacked(self, name: str, setting: str) -> np.ndarray:
        column = self.raw(name, setting)
        if isinstance(column, np.ndarray):
            return column
        kind = column.type
        if not (
            pa.types.is_list(kind)
            or pa.types.is_large_list(kind)
            or pa.types.is_fixed_size_list(kind)
        ):
            raise DataError(
                f"{self.path}: column '{name}' contains {kind}, but {setting} needs a column of "
                "lists of numbers"
            )
        widths = pc.unique(pc.list_value_length(column)).to_pylist()
        if len(widths) != 1 or widths[0] is None:
            raise DataError(
                f"{self.path}: every row of column '{name}' must contain a list of the same length"
            )
        flat = pc.list_flatten(column).to_numpy(zero_copy_only=False)
        flat = flat if flat.dtype == np.float32 else np.asarray(flat, dtype=np.float64)
        return flat.reshape(len(column), widths[0])

    def _numbered(self, name: str, setting: str) -> np.ndarray:
        pattern = re.compile(re.escape(name) + r"_?(\d+)")
        numbered = sorted(
            (int(match[1]), column) for column in self.names if (match := pattern.fullmatch(column))
        )
        if not numbered:
            self.raw(name, setting)  # there is no such column: it raises
        numbers = [number for number, _ in numbered]
        if numbers != list(range(numbers[0], numbers[0] + len(numbers))):
            first_column = f"{name}{numbers[0]}"
            last_column = f"{name}{numbers[-1]}"
            raise DataError(
                f"{self.path}: each of the columns {first_column} to {last_column} must exist "
                "exactly once"
            )
        columns = [self._single(column, setting) for _, column in numbered]
        stacked = np.empty((len(columns[0]), len(columns)), np.result_type(*columns))
        # a few rows, which stay in the cache while they are turned
        for start in range(0, len(stacked), _TURNED_ROWS):
            rows = slice(start, start + _TURNED_ROWS)
            np.stack([column[rows] for column in columns], axis=1, out=stacked[rows])
        return stacked

    def _single(self, name: str, setting: str) -> np.ndarray:
        # ``numbers``, in single precision if that is what the file has.
        column = self.column(name, setting)
        single = column.type == pa.float32() and not column.null_count
        return column.to_numpy() if single else self.numbers(name, setting)


def same_length(path: Path, n: int, columns: Mapping[str, np.ndarray | None]) -> None:
    """Raise DataError unless every column that is there has one value for each of ``n`` records
    (an npz promises none).
    """
    for name, values in columns.items():
        if values is not None and len(values) != n:
            raise DataError(
                f"{path}: the file has {n} records but {len(values)} values of '{name}': each "
                "record needs exactly one"
            )


def same_shape(features: np.ndarray, shape: tuple[int, ...], path: Path) -> None:
    """Raise DataError unless each row has ``shape``."""
    if features.shape[1:] != shape:
        got, expected = (
            " x ".join(map(str, s)) or "a single number" for s in (features.shape[1:], shape)
        )
        raise DataError(
            f"{path}: each record in this file has {got} features, but the model was trained on "
            f"{expected}: give a file with the same features as the training file"
        )


def is_text(column: pa.Array) -> bool:
    """Whether a column holds text."""
    return pa.types.is_string(column.type) or pa.types.is_large_string(column.type)


def _in_plain_type(column: pa.Array) -> pa.Array:
    """Return the same values in one of the types that every function of Arrow takes.

    Bytes become text, and half precision becomes double (as a number that is read from it always
    did).

    Raises:
        ArrowInvalid: bytes that are not text in UTF-8.
    """
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        if kind.extension_name == "arrow.uuid":
            return pa.array([as_word(value) for value in column.to_pylist()], pa.string())
        if kind.extension_name == "arrow.bool8":
            return column.storage.cast(pa.bool_())
        if kind.extension_name == "arrow.json":
            return _in_plain_type(column.storage)
        return column  # what an unknown type stores (of a period, its number) is not what it says
    if pa.types.is_float16(kind):
        return column.cast(pa.float64())
    if pa.types.is_large_binary(kind):
        return column.cast(pa.large_string())
    if any(is_kind(kind) for is_kind in _CAST_TO_TEXT):
        return column.cast(pa.string())
    return column


def as_word(value: object) -> str | None:
    """A value as text, a whole number without a decimal point; None: it is missing."""
    if value is None or value != value:
        return None
    if isinstance(value, Decimal):  # whose digits behind the point are as many as the column's
        whole, _, rest = f"{value:f}".partition(".")
        return f"{whole}.{rest}".rstrip("0").rstrip(".") if rest else whole
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _as_words(column: pa.Array) -> pa.Array:
    return pa.array([as_word(value) for value in column.to_pylist()], pa.string())


def missing_word(word: str | None) -> bool:
    """Whether a value stands for none: in a csv it is one of these words or blank, and elsewhere
    text may say so too.
    """
    return word is None or word.strip() in NULLS


def _unicode(words: pa.Array) -> np.ndarray:
    # [n] str, in pieces: there may be millions.
    names = np.empty(len(words), f"U{pc.max(pc.utf8_length(words)).as_py() or 1}")
    for start in range(0, len(words), ROWS):
        names[start : start + ROWS] = words[start : start + ROWS].to_numpy(zero_copy_only=False)
    return names


def _unreadable(error: Exception) -> str:
    if "allow_pickle" in str(error) or "pickled" in str(error):
        return (
            "the file contains pickled Python objects, which could run code when agt reads "
            "them: save plain arrays instead"
        )
    if isinstance(error, UnicodeError) or "invalid UTF8" in str(error):
        return (
            "the text is not UTF-8: save it as UTF-8, or give its encoding, for example "
            "dataset.csv.encoding=latin-1"
        )
    return first_line(error)


def arrays_in(folder: Path) -> list[Path]:
    """The npy files of a folder, by name."""
    return sorted(folder.glob("*.npy"))


def changed_of(path: Path) -> tuple[tuple[str, int, int], ...]:
    """(name, size, time of the last change) of a file, or of each array in a folder."""
    # a folder's own time tells of its names alone
    files = arrays_in(path) if path.is_dir() else [path]
    return tuple(
        (file.name, state.st_size, state.st_mtime_ns) for file in files for state in [file.stat()]
    )


def is_large(path: Path) -> bool:
    """Whether a file has more rows, or bytes, than are read at once; what is no file of a known
    format is not.
    """
    with suppress(*_DAMAGED):
        if path.is_dir():
            return sum(file.stat().st_size for file in arrays_in(path)) > 16 * _WHOLE_BYTES
        if path.suffix.lower() == ".parquet":
            return int(pa.parquet.read_metadata(path).num_rows) > 2 * ROWS
        return path.stat().st_size > _WHOLE_BYTES * (16 if path.suffix.lower() == ".npz" else 1)
    return False


# -- opening them
# --------------------------------------------------------------------------------------------------


def open_columns(
    path: Path, setting: str, data_dir: Path | None = None, form: CsvFormat | None = None
) -> ColumnReader:
    """Open a npz, csv or parquet file, or a folder of npy files, which are memory-mapped.

    Args:
        path: the file, or the folder: its columns are ``NAME.npy``.
        setting: the configuration key that named it, for messages.
        data_dir: where a relative path is looked for after the working directory; None: nowhere
            else.
        form: of a csv; None: commas, UTF-8, with a header.

    Raises:
        DataMissing: there is no such file.
        DataError: the format is unknown, or the file is damaged.
    """
    path = path if data_dir is None else locate(path, data_dir, setting)
    if path.is_dir():
        if not arrays_in(path):
            raise DataMissing(
                f"{setting}: the folder '{path}' contains no .npy files: put .npy files into it, "
                "or give a file instead"
            )
        return _open_arrays(path)
    require(path, setting)
    check_suffix(path, setting)
    check_kind(path, (form or CsvFormat()).codec)
    try:
        if path.suffix.lower() == ".npz":
            return _open_arrays(path)
        return _open_table(path, form or CsvFormat())
    except _DAMAGED as error:
        if is_delimited(path):
            why = _odd_line(path, form or CsvFormat(), error)
            raise DataError(f"{path}: cannot be read as csv: {why}") from None
        raise DataError(
            f"{path}: this file is truncated, or is not a {path.suffix[1:]} file "
            f"({_unreadable(error)}): restore a complete copy, or give the right file"
        ) from None


def _open_arrays(path: Path) -> ColumnReader:
    if path.is_dir():
        names = tuple(file.stem for file in arrays_in(path))
        return ColumnReader(
            path,
            names,
            lambda name: np.load(path / f"{name}.npy", mmap_mode="r", allow_pickle=False),
        )
    if not zipfile.is_zipfile(path):
        raise ValueError("the file is not a complete zip archive")
    with np.load(path, allow_pickle=False) as archive:
        names = tuple(archive.files)
    return ColumnReader(path, names, partial(_member, path))


def _member(path: Path, name: str) -> np.ndarray:
    with np.load(path, allow_pickle=False) as archive:
        return archive[name]


def _open_table(path: Path, form: CsvFormat) -> ColumnReader:
    if path.suffix.lower() == ".parquet":
        names = tuple(pa.parquet.read_schema(path).names)
        table = partial(pa.parquet.read_table, path)
        return ColumnReader(
            path, names, lambda name: table(columns=[name]).column(name).combine_chunks()
        )
    names = form.names(path)
    cells = pa.csv.read_csv(path, *form.options(names))
    return ColumnReader(path, names, lambda name: cells.column(name).combine_chunks(), form)


def open_blocks(path: Path, form: CsvFormat | None = None) -> Iterator[ColumnReader]:
    """The rows of a large file, ``ROWS`` or about as many at once.

    An array of an npz that is compressed is held as a whole, and so is one whose length is not the
    number of rows.

    Args:
        path: it is there, and of a known format.
        form: of a csv; None: commas, UTF-8, with a header.

    Raises:
        DataError: the file is damaged.
    """
    first = 0
    if path.is_file():
        check_kind(path, (form or CsvFormat()).codec)
    try:
        for names, read, rows in _blocks(path, form or CsvFormat()):
            yield ColumnReader(
                path, names, read, form or CsvFormat() if is_delimited(path) else None, first
            )
            first += rows
    except _DAMAGED as error:
        raise DataError(
            f"{path}: this file is damaged after {row_words(first)} ({_unreadable(error)}): "
            "restore an intact copy of the file"
        ) from None


def _blocks(
    path: Path, form: CsvFormat
) -> Iterator[tuple[tuple[str, ...], Callable[[str], np.ndarray | pa.Array], int]]:
    # (names, column of a block, rows) of each block.
    if path.is_dir() or path.suffix.lower() == ".npz":
        whole = _open_arrays(path)
        held = {
            name: whole.read(name) if path.is_dir() else _mapped(path, name) for name in whole.names
        }
        rows = max((len(array) for array in held.values() if array.ndim), default=0)
        for start in range(0, rows, ROWS):
            yield whole.names, partial(_part, held, rows, start), min(ROWS, rows - start)
        return
    if is_delimited(path):
        names = form.names(path)
        batches: Iterable[pa.RecordBatch] = pa.csv.open_csv(path, *form.options(names))
    else:
        file = pa.parquet.ParquetFile(path, pre_buffer=False, buffer_size=2**20)
        names, batches = tuple(file.schema_arrow.names), file.iter_batches(ROWS)
    for batch in batches:
        yield names, batch.column, batch.num_rows


def _part(held: Mapping[str, np.ndarray], rows: int, start: int, name: str) -> np.ndarray:
    array = held[name]
    return np.array(array[start : start + ROWS]) if array.ndim and len(array) == rows else array


def _mapped(path: Path, name: str) -> np.ndarray:
    # An array of an npz, memory-mapped if it is stored as it is: behind a local header of 30 bytes
    # and two names.
    with zipfile.ZipFile(path) as archive, path.open("rb") as file:
        info = archive.getinfo(f"{name}.npy")
        file.seek(info.header_offset + 26)
        file.seek(sum(struct.unpack("<HH", file.read(4))), 1)
        if info.compress_type == zipfile.ZIP_STORED:
            read = {
                (1, 0): np.lib.format.read_array_header_1_0,
                (2, 0): np.lib.format.read_array_header_2_0,
            }
            shape, fortran, dtype = read[np.lib.format.read_magic(file)](file)
            if not dtype.hasobject and shape and 0 not in shape:
                return np.memmap(path, dtype, "r", file.tell(), shape, "F" if fortran else "C")
    return _member(path, name)


# -- records that a program sends
# -----------------------------------------------------------------------------------------


def columns_of(rows: Sequence[Mapping[str, object]], name: str) -> ColumnReader:
    """The columns of records that a program sends as JSON, which all have the same ones.

    A value is read by itself, as everywhere: numbers are numbers and text is text, as in a parquet
    file; where a column has both, each number becomes the text that a csv would have, from which
    the same number is read again.

    Args:
        rows: column -> a number, text, true or false, None, or (nested) lists of numbers.
        name: what messages call where they come from.

    Raises:
        DataError: no records, or columns that are not in all of them.
    """
    if not rows:
        raise DataError(f"{name}: there are no queries; at least one is needed")
    for place, row in enumerate(rows, start=1):
        different = row.keys() ^ rows[0].keys()
        if different:
            raise DataError(
                f"{name}: record 1 and record {place} have different keys (only one of these "
                f"records has '{min(different)}'): give every record the same keys"
            )

    def read(key: str) -> np.ndarray | pa.Array:
        return _sent([row[key] for row in rows], f"{name}: '{key}'")

    def numbers(key: str) -> pa.Array:
        return pa.array([_number_sent(row[key]) for row in rows], pa.float64())

    return ColumnReader(Path(name), tuple(rows[0]), read, sent=True, numbers_among_text=numbers)


def _number_sent(value: object) -> float | None:
    # A number, and None for text; one beyond float64 stays text, which is refused as one.
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    with suppress(OverflowError):
        return float(value)
    return None


def _sent(values: list[Any], where: str) -> np.ndarray | pa.Array:
    kinds = {type(value) for value in values} - {type(None)}
    if list in kinds:
        return _sent_lists(values, where)
    if not kinds <= {str, bool, int, float}:
        raise DataError(f"{where}: this must be a number, text, true, false or null")
    if bool in kinds and len(kinds) > 1:
        raise DataError(
            f"{where}: true or false is mixed with other values: write all values in one form"
        )
    try:
        if kinds and str not in kinds:
            # whole numbers too large for 64 bits
            with suppress(pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
                return pa.array(values)
        return pa.array([as_word(value) for value in values], pa.string())
    except UnicodeEncodeError:
        raise DataError(
            f"{where}: the text contains half a character (a lone surrogate), so it is not valid "
            "text: correct or remove it"
        ) from None


def _sent_lists(values: list[Any], where: str) -> np.ndarray:
    # [n, ...]; whole numbers that fit a byte are pixels.
    try:
        array = np.array(values)
    except (ValueError, OverflowError):
        raise DataError(
            f"{where}: the lists have different lengths: give lists of the same length"
        ) from None
    if bool in set(map(type, np.array(values, dtype=object).ravel().tolist())):
        raise DataError(f"{where}: lists of numbers are needed, but true and false are not numbers")
    if array.dtype.kind == "i" and array.size and array.min() >= 0 and array.max() <= 255:
        return array.astype(np.uint8)
    if array.dtype.kind not in "if":
        raise DataError(f"{where}: give lists of numbers, all of the same length")
    return array
