"""An open file of records, read column by column.

How a value is read depends on that value and on the file's format alone, never on the rest of its
column (reference.md section 3, condition b).

Whatever a column came from, it is checked as an Arrow array of one value a row, or as a numpy array
of one vector a row.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

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
from agt.data.formats import (
    CellFormat,
    days_since_1970,
    reads,
)
from agt.data.ids import most_frequent
from agt.errors import DataError, nearest
from agt.messages import Message

_TURNED_ROWS = 2**11  # rows of columns that are brought side by side
_FLAGS = {"1": True, "true": True, "test": True, "0": False, "false": False, "train": False}
ID_KINDS = {"a whole number": r"^[+-]?\d+$", "a decimal number": r"^[+-]?\d*\.\d+([eE][+-]?\d+)?$"}
_EXACT_BITS = {16: 11, 32: 24}  # below 2 to this, numbers of so many bits tell whole ones apart


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
        except DAMAGE_ERRORS as error:
            raise DataError(
                f"{self.path}: column '{name}' cannot be read ({describe_damage(error)}): correct "
                "this column"
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
            return to_plain_type(column)
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
            column = to_text(column)
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
        words = column if is_text(column) else to_text(column)
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
        return to_numpy_text(words)

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
