"""Reading npz, csv and parquet files by column, so that a fault names the file, the column and what to do.

One rule holds everywhere: how a value is read depends on that value and on the file's format alone, never on the rest
of its column (method.md section 3, condition b). A csv therefore has no guessed column types: every cell is text until
a caller asks for numbers, and '07' does not turn into 7 because its neighbours happen to be digits.
"""

import os
import re
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from agt.data.blocks import ROWS, pieces
from agt.data.dataset import DataError, not_finite, row_words
from agt.data.delimited import NULLS, SEPARATORS, SUFFIXES, CsvFormat, is_delimited, lines
from agt.data.ids import most_frequent
from agt.errors import DataMissing, first_line, nearest

FORMATS = (".npz", ".csv", ".parquet", *SUFFIXES[1:], ".csv.gz")
_DAMAGED = (ValueError, OSError, EOFError, KeyError, struct.error, zlib.error, zipfile.BadZipFile, pa.ArrowException)
_TURNED = 2**11  # rows of columns that are brought side by side
_AT_ONCE = 2**23  # bytes of text that are read as a whole; sixteen times as many of arrays
_FLAGS = {"1": True, "true": True, "test": True, "0": False, "false": False, "train": False}
_WITH_COMMA = re.compile(r"[+-]?\d[\d.' ]*,[\d.,' ]*\d")
_KINDS = (
    (re.compile(r"[+-]?\d+"), "a whole number"),
    (re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?"), "a decimal number"),
)


@dataclass(frozen=True)
class Columns:
    """An open file, read column by column.

    Attributes:
        path: the file, for messages.
        names: its columns, or the keys of an npz.
        read: the raw column: a numpy array (npz) or an arrow column (csv, parquet).
        untyped: True for a csv, whose cells are text.
        header: a csv's first line names the columns.
        first: these are some of a large file's rows, beginning with the one of this index; None: all of them.
    """

    path: Path
    names: tuple[str, ...]
    read: Callable[[str], np.ndarray | pa.Array]
    untyped: bool = False
    header: bool = True
    first: int | None = None

    def raw(self, name: str, setting: str) -> np.ndarray | pa.Array:
        """The column called ``name``; ``setting`` is the configuration key that chose it. Raises DataError."""
        if name not in self.names:
            hint = nearest(name, self.names) + self._misread()
            raise DataError(f"{self.path}: no column or key '{name}', which {setting} names{hint}")
        try:
            return self.read(name)
        except _DAMAGED as error:
            raise DataError(f"{self.path}: cannot read '{name}': {_unreadable(error)}") from None

    def _misread(self) -> str:
        """A hint where a csv was cut by another separator than its own, or read in another encoding."""
        if any(map(_misread_utf8, self.names)):
            return "; its text seems to be UTF-8: set dataset.csv.encoding=utf-8, or save it in the encoding of the table"
        inside = next((mark for mark in SEPARATORS[:-1] if mark in self.names[0]), "") if len(self.names) == 1 else ""
        if not inside:
            return ""
        return f"; if its cells are separated by {inside!r}, set dataset.csv.separator={inside!r} or rewrite the file"

    def row(self, row: int) -> str:
        """How messages name the row with this index: counted from 1; of a csv also the line, where that is certain.

        Each row of a csv takes a line at least, and blank lines are no rows: so if the file has as many lines as rows and
        a header, each of them is one line, and otherwise nothing is said.
        """
        if self.first is not None:
            return row_words(self.first + row)
        above = int(self.header)
        if not self.untyped or not self.names or lines(self.path) != len(self.raw(self.names[0], "")) + above:
            return row_words(row)
        return f"{row_words(row)} (line {row + 1 + above} of the file)"

    def refuse_missing_words(self, setting: str, values: Iterable[str | int]) -> None:
        """Raise DataError where a list names what in a csv stands for a missing value, so that it would never be met."""
        for value in map(str, values):
            if self.untyped and value in NULLS:
                raise DataError(
                    f"{self.path}: {setting} lists '{value}', which in a csv stands for a missing value: write another "
                    "word in the file, or give the data as parquet"
                )

    def numbers(self, name: str, setting: str, missing: Sequence[str] = ()) -> np.ndarray:
        """[n] float64; a missing value is NaN. Raises DataError naming the first value that is no number.

        Args:
            missing: text that stands for no value, beside what does so anyway.
        """
        column = _without(self.vector(name, setting), missing)
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            return self._parse(column, name)
        if pa.types.is_boolean(column.type):
            column = column.cast(pa.int8())
        if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
            raise DataError(f"{self.path}: column '{name}' holds {column.type}, and {setting} needs numbers")
        return column.to_numpy(zero_copy_only=False).astype(np.float64)

    def _parse(self, column: pa.Array, name: str) -> np.ndarray:
        trimmed = pc.utf8_trim_whitespace(column)
        try:
            return trimmed.cast(pa.float64()).to_numpy(zero_copy_only=False).astype(np.float64)
        except pa.ArrowInvalid:
            row, value = next((row, v) for row, v in enumerate(trimmed.to_pylist()) if not _is_number(v))
            raise DataError(
                f"{self.path}: column '{name}' has {value!r} in {self.row(row)}, expected a number{number_hint(value)}"
            ) from None

    def words(self, name: str, setting: str, missing: Sequence[str] = ()) -> np.ndarray:
        """[n] object: each value as text, a whole number without a decimal point; None where it is missing."""
        coded = _without(self.vector(name, setting), missing).dictionary_encode()
        known = np.array([*map(as_word, coded.dictionary.to_pylist()), None], dtype=object)
        words: np.ndarray = known[pc.fill_null(coded.indices, len(known) - 1).to_numpy(zero_copy_only=False)]
        return words

    def ids(self, name: str, setting: str, as_text: bool = False) -> np.ndarray:
        """[n] str: names of records or units, none missing and all of one kind; they may repeat.

        Args:
            as_text: take any mixture of numbers and text as text.

        Raises:
            DataError: an id is missing or a decimal number, or numbers and text are mixed; an example is given.
        """
        raw = self.raw(name, setting)
        if isinstance(raw, np.ndarray) and raw.ndim == 1 and raw.dtype.kind in "US":
            with suppress(UnicodeDecodeError):  # bytes beyond ASCII take the general way
                return self._checked_ids(raw.astype(str), name, setting)
        column = self.vector(name, setting)
        where = f"{self.path}: {setting}: column '{name}'"
        values = column.to_pylist()
        examples: dict[str, object] = {}
        for row, value in enumerate(values):
            if value is None or value != value:
                raise DataError(f"{where} has no value in {self.row(row)}: every row needs one")
            examples.setdefault(_kind(value, self.untyped), value)
        if not as_text and len(examples) > 1:
            mixture = " and ".join(f"{kind} ({value!r})" for kind, value in examples.items())
            raise DataError(
                f"{where} mixes types: {mixture}; write all of them in one form, "
                "or set dataset.id_as_text=true to take them all as text"
            )
        if not as_text and "a decimal number" in examples:
            raise DataError(f"{where} has decimal numbers ({examples['a decimal number']!r}): use whole numbers or text")
        if pa.types.is_floating(column.type):
            width = raw.dtype.itemsize if isinstance(raw, np.ndarray) else raw.type.bit_width // 8
            self._refuse_rounded(width, values, where)
        return self._checked_ids(np.array([as_word(value) for value in values], dtype=str), name, setting)

    def _checked_ids(self, ids: np.ndarray, name: str, setting: str) -> np.ndarray:
        """The same ids, of which there may be millions, none blank and no two alike but for spaces."""
        where = f"{self.path}: {setting}: column '{name}'"
        padded = list[tuple[str, str]]()
        for start, words in zip(range(0, len(ids) or 1, ROWS), map(pa.array, pieces(ids)), strict=True):
            trimmed = pc.utf8_trim_whitespace(words)
            missing = pc.indices_nonzero(pc.is_in(trimmed, pa.array(NULLS)))
            if len(missing):
                row = missing[0].as_py()
                written = f" ({words[row].as_py()!r})" if trimmed[row].as_py() else ""
                raise DataError(f"{where} has no value in {self.row(start + row)}{written}: every row needs one")
            spaced = pc.not_equal(trimmed, words)
            padded += zip(words.filter(spaced).to_pylist(), trimmed.filter(spaced).to_pylist(), strict=True)
        spellings: dict[str, str] = {}
        names = set(ids.tolist()) if padded else set()
        for word, short in padded:
            other = short if short in names else spellings.setdefault(short, word)
            if other != word:
                raise DataError(
                    f"{where} has {other!r} and {word!r}, which differ by spaces alone: are they the same? "
                    "Write each name in one form"
                )
        return ids

    def _refuse_rounded(self, width: int, values: list[float], where: str) -> None:
        """Ids stored as decimal numbers so large that neighbouring whole numbers cannot be told apart: two may be one.

        Args:
            width: bytes of a number as it is stored.
        """
        exact = 2.0 ** {2: 11, 4: 24}.get(width, 53)
        for row, value in enumerate(values):
            if abs(value) >= exact:
                raise DataError(
                    f"{where} has {value!r} in {self.row(row)}, a decimal number too large to tell from the next whole "
                    "one: store whole numbers or text"
                )

    def unique_ids(self, name: str, setting: str, as_text: bool = False) -> np.ndarray:
        """[n] str: as ``ids``, and no value occurs twice. Raises DataError naming the column and one that does."""
        ids = self.ids(name, setting, as_text)
        repeated = most_frequent(ids)
        if repeated:
            raise DataError(
                f"{self.path}: {setting}: column '{name}' has {repeated[0]!r} {repeated[1]} times: a record's id must be "
                "unique (rows of one person belong together by dataset.unit)"
            )
        return ids

    def flags(self, name: str, setting: str) -> np.ndarray:
        """[n] bool: True for 1, true or test; False for 0, false or train. Raises DataError for anything else."""
        raw = self.raw(name, setting)
        if isinstance(raw, np.ndarray) and raw.ndim == 1 and raw.dtype == bool:
            return np.array(raw)
        words = self.words(name, setting)
        plain = {word: None if word is None else word.strip().lower() for word in set(words.tolist())}
        flags = {word: _FLAGS.get(str(short)) for word, short in plain.items()}
        for row, word in enumerate(words if None in flags.values() else ()):
            if flags[word] is None:
                raise DataError(
                    f"{self.path}: {setting}: column '{name}' has {plain[word]!r} in {self.row(row)}; "
                    "expected 0, false or train, or else 1, true or test"
                )
        return np.fromiter((flags[word] for word in words), dtype=bool, count=len(words))

    def matrix(self, name: str, setting: str) -> np.ndarray:
        """[n, ...] numbers: an npz array, a column of lists, or the columns NAME0, NAME1, ... (also NAME_0, ...).

        Returns:
            an npz array in its own dtype, otherwise float64, or float32 if all are stored so; at least two axes.

        Raises:
            DataError: not numeric, lists of different lengths, a numbered column is absent, or NaN or inf (the row).
        """
        array = self._stacked(name, setting) if name in self.names else self._numbered(name, setting)
        if array.dtype.kind not in "biuf":
            raise DataError(f"{self.path}: '{name}' holds {array.dtype}, and {setting} needs numbers")
        if array.ndim < 2:
            raise DataError(f"{self.path}: '{name}' has shape {array.shape}, and {setting} needs one row per record")
        row = not_finite(array) if array.dtype.kind == "f" else None
        if row is not None:
            raise DataError(f"{self.path}: '{name}' has NaN or inf in {self.row(row)}: repair or drop it")
        return array

    def _stacked(self, name: str, setting: str) -> np.ndarray:
        column = self.raw(name, setting)
        if isinstance(column, np.ndarray):
            return column
        kind = column.type
        if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
            raise DataError(f"{self.path}: column '{name}' holds {kind}, and {setting} needs lists of numbers")
        widths = np.unique(pc.list_value_length(column).to_numpy(zero_copy_only=False))
        if len(widths) != 1 or widths[0] != widths[0]:
            raise DataError(f"{self.path}: column '{name}' has lists of different lengths, or none in some row")
        flat = pc.list_flatten(column).to_numpy(zero_copy_only=False)
        flat = flat if flat.dtype == np.float32 else np.asarray(flat, dtype=np.float64)
        return flat.reshape(len(column), int(widths[0]))

    def _numbered(self, name: str, setting: str) -> np.ndarray:
        pattern = re.compile(re.escape(name) + r"_?(\d+)")
        numbered = sorted((int(match[1]), column) for column in self.names if (match := pattern.fullmatch(column)))
        if not numbered:
            self.raw(name, setting)  # there is no such column: it raises
        numbers = [number for number, _ in numbered]
        if numbers != list(range(numbers[0], numbers[0] + len(numbers))):
            raise DataError(
                f"{self.path}: the columns {name}{numbers[0]}..{name}{numbers[-1]} are not all there, once each"
            )
        columns = [self._single(column, setting) for _, column in numbered]
        stacked = np.empty((len(columns[0]), len(columns)), np.result_type(*columns))
        for start in range(0, len(stacked), _TURNED):  # a few rows, which stay in the cache while they are turned
            rows = slice(start, start + _TURNED)
            np.stack([column[rows] for column in columns], axis=1, out=stacked[rows])
        return stacked

    def _single(self, name: str, setting: str) -> np.ndarray:
        """``numbers``, in single precision if that is what the file has."""
        column = self.vector(name, setting)
        if column.type == pa.float32() and not column.null_count:
            return column.to_numpy()
        return self.numbers(name, setting)

    def vector(self, name: str, setting: str) -> pa.Array:
        """The column as an arrow array of one value a row; bytes become text. Raises DataError."""
        column = self.raw(name, setting)
        if isinstance(column, np.ndarray):
            if column.ndim == 2 and column.shape[1] == 1:
                column = column[:, 0]
            if column.ndim != 1:
                raise DataError(f"{self.path}: '{name}' has shape {column.shape}, and {setting} needs one value per row")
            column = pa.array(column.astype(np.float32) if column.dtype == np.float16 else column)
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if pa.types.is_nested(column.type):
            raise DataError(f"{self.path}: column '{name}' holds {column.type}, and {setting} needs one value per row")
        return column.cast(pa.string()) if pa.types.is_binary(column.type) else column


def open_columns(path: Path, setting: str, data_dir: Path | None = None, form: CsvFormat | None = None) -> Columns:
    """Open a npz, csv or parquet file, or a folder of npy files, which are memory-mapped.

    Args:
        path: the file, or the folder: its columns are ``NAME.npy``.
        setting: the configuration key that named it, for messages.
        data_dir: where a relative path is looked for after the working directory; None: nowhere else.
        form: of a csv; None: commas, UTF-8, with a header.

    Raises:
        DataMissing: there is no such file.
        DataError: the format is unknown, or the file is damaged.
    """
    path = path if data_dir is None else locate(path, data_dir, setting)
    if path.is_dir():
        return _open_folder(path, setting)
    require(path, setting)
    suffix = path.suffix.lower()
    if suffix not in (".npz", ".parquet") and not is_delimited(path):
        raise DataError(
            f"{path}: unknown format '{path.suffix}'; {setting} takes {', '.join(FORMATS)}, or a folder of .npy files"
        )
    try:
        if is_delimited(path):
            return _open_csv(path, form or CsvFormat())
        return {".npz": _open_npz, ".parquet": _open_parquet}[suffix](path)
    except _DAMAGED as error:
        raise DataError(f"{path}: truncated or not a {path.suffix[1:]} file: {_unreadable(error)}") from None


def is_large(path: Path) -> bool:
    """Whether a file has more rows, or bytes, than are read at once; what is no file of a known format is not."""
    with suppress(*_DAMAGED):
        if path.is_dir():
            return sum(file.stat().st_size for file in arrays_in(path)) > 16 * _AT_ONCE
        if path.suffix.lower() == ".parquet":
            return int(pa.parquet.read_metadata(path).num_rows) > 2 * ROWS
        return path.stat().st_size > _AT_ONCE * (16 if path.suffix.lower() == ".npz" else 1)
    return False


def changed_of(path: Path) -> tuple[tuple[str, int, int], ...]:
    """(name, size, time of the last change) of a file, or of each array in a folder."""
    files = arrays_in(path) if path.is_dir() else [path]  # a folder's own time tells of its names alone
    return tuple((file.name, state.st_size, state.st_mtime_ns) for file in files for state in [file.stat()])


def arrays_in(folder: Path) -> list[Path]:
    """The npy files of a folder, by name."""
    return sorted(folder.glob("*.npy"))


def open_blocks(path: Path, form: CsvFormat | None = None) -> Iterator[Columns]:
    """The rows of a large file, ``ROWS`` or about as many at once.

    An array of an npz that is compressed is held as a whole, and so is one whose length is not the number of rows.

    Args:
        path: it is there, and of a known format.
        form: of a csv; None: commas, UTF-8, with a header.

    Raises:
        DataError: the file is damaged.
    """
    first = 0
    try:
        for names, read, rows in _blocks(path, form or CsvFormat()):
            _refuse_repeated(names, path)
            yield Columns(path, names, read, untyped=is_delimited(path), first=first)
            first += rows
    except _DAMAGED as error:
        raise DataError(f"{path}: damaged behind {row_words(first)}: {_unreadable(error)}") from None


_Block = tuple[tuple[str, ...], Callable[[str], np.ndarray | pa.Array], int]


def _blocks(path: Path, form: CsvFormat) -> Iterator[_Block]:
    if path.is_dir() or path.suffix.lower() == ".npz":
        yield from _of_arrays(path)
        return
    if is_delimited(path):
        names = form.names(path)
        batches: Iterable[pa.RecordBatch] = form.stream(path, names)
    else:
        file = pa.parquet.ParquetFile(path, pre_buffer=False, buffer_size=2**20)
        names, batches = tuple(file.schema_arrow.names), file.iter_batches(ROWS)
    for batch in batches:
        yield names, batch.column, batch.num_rows


def _of_arrays(path: Path) -> Iterator[_Block]:
    whole = _open_folder(path, "inputs") if path.is_dir() else _open_npz(path)
    held = {name: whole.read(name) if path.is_dir() else _mapped(path, name) for name in whole.names}
    rows = max((len(array) for array in held.values() if array.ndim), default=0)

    def read(start: int, name: str) -> np.ndarray:
        array = held[name]
        return np.array(array[start : start + ROWS]) if array.ndim and len(array) == rows else array

    for start in range(0, rows, ROWS):
        yield whole.names, partial(read, start), min(ROWS, rows - start)


def _mapped(path: Path, name: str) -> np.ndarray:
    """An array of an npz, memory-mapped if it is stored as it is: behind a local header of 30 bytes and two names."""
    with zipfile.ZipFile(path) as archive, path.open("rb") as file:
        info = archive.getinfo(f"{name}.npy")
        file.seek(info.header_offset + 26)
        file.seek(sum(struct.unpack("<HH", file.read(4))), 1)
        if info.compress_type == zipfile.ZIP_STORED:
            read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
            shape, fortran, dtype = read[np.lib.format.read_magic(file)](file)
            if not dtype.hasobject and shape and 0 not in shape:
                return np.memmap(path, dtype, "r", file.tell(), shape, "F" if fortran else "C")
    with np.load(path, allow_pickle=False) as arrays:
        found: np.ndarray = arrays[name]
        return found


def require(path: Path, setting: str) -> None:
    """Raise DataMissing unless ``path`` is a file."""
    if not path.is_file():
        raise DataMissing(f"{path} is not there (or not a file): put it there, or change {setting}")


def home(path: Path) -> Path:
    """``path`` with ~ as the home directory; where nobody has that name, it is a name as any other."""
    return Path(os.path.expanduser(path))


def resolve(path: Path, data_dir: Path) -> Path:
    """``path``, taken relative to ``data_dir`` unless absolute: where something is to be written."""
    return home(data_dir) / home(path)


def places(path: Path, data_dir: Path) -> tuple[Path, ...]:
    """Where a person's file may lie, first the working directory and then ``data_dir``; an absolute path is one place."""
    return tuple(dict.fromkeys((home(path), resolve(path, data_dir))))


def locate(path: Path, data_dir: Path, setting: str) -> Path:
    """The first of its ``places`` where a file or folder is. Raises DataMissing naming all of them."""
    tried = places(path, data_dir)
    there = next((place for place in tried if place.exists()), None)
    if there is None:
        nor = "".join(f", nor is {place}" for place in tried[1:])
        raise DataMissing(f"{tried[0]} is not there{nor}: put the file at one of these places, or change {setting}")
    return there


def same_shape(features: np.ndarray, shape: tuple[int, ...], path: Path) -> None:
    """Raise DataError unless each row has ``shape``."""
    if features.shape[1:] != shape:
        got, expected = (" x ".join(map(str, s)) or "a single number" for s in (features.shape[1:], shape))
        raise DataError(f"{path}: each record has {got} features, the model was trained on {expected}")


def _open_folder(path: Path, setting: str) -> Columns:
    names = tuple(file.stem for file in arrays_in(path))
    if not names:
        raise DataMissing(f"{path} holds no .npy file: put them there, or change {setting}")
    return Columns(path, names, lambda name: np.load(path / f"{name}.npy", mmap_mode="r", allow_pickle=False))


def _open_npz(path: Path) -> Columns:
    if not zipfile.is_zipfile(path):
        raise ValueError("not a whole zip archive")
    with np.load(path, allow_pickle=False) as archive:
        names = tuple(archive.files)

    def read(name: str) -> np.ndarray:
        with np.load(path, allow_pickle=False) as archive:
            return archive[name]

    return Columns(path, names, read)


def _open_csv(path: Path, form: CsvFormat) -> Columns:
    names = form.names(path)
    _refuse_repeated(names, path)
    table = form.read(path, names)
    return Columns(path, names, lambda name: table.column(name).combine_chunks(), untyped=True, header=form.header)


def _open_parquet(path: Path) -> Columns:
    names = tuple(pa.parquet.read_schema(path).names)
    _refuse_repeated(names, path)
    return Columns(path, names, lambda name: pa.parquet.read_table(path, columns=[name]).column(name).combine_chunks())


def _refuse_repeated(names: tuple[str, ...], path: Path) -> None:
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)
    if repeated:
        raise DataError(f"{path}: two columns are called '{repeated[0]}': rename or drop one")


def missing_word(word: str | None) -> bool:
    """Whether a value stands for none: in a csv it is one of these words or blank, and elsewhere text may say so too."""
    return word is None or word.strip() in NULLS


def _misread_utf8(name: str) -> bool:
    """Whether UTF-8 seems to have been read as latin-1."""
    try:
        return name.encode("latin-1").decode() != name
    except UnicodeError:
        return False


def _unreadable(error: Exception) -> str:
    if "allow_pickle" in str(error) or "pickled" in str(error):
        return "it holds pickled Python objects, which may run code when opened; save plain arrays instead"
    if isinstance(error, UnicodeDecodeError) or "invalid UTF8" in str(error):
        return "its text is not UTF-8; save it as UTF-8, or set dataset.csv.encoding, to latin-1 say"
    return first_line(error)


def as_word(value: object) -> str | None:
    if value is None or value != value:
        return None
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def number_hint(value: str | None) -> str:
    """What to do about a number that a person wrote with a comma; empty for anything else."""
    if value is None or not _WITH_COMMA.fullmatch(value.strip()):
        return ""
    return ": write numbers with a point and nothing between thousands, as in 1234.5"


def _without(column: pa.Array, missing: Sequence[str]) -> pa.Array:
    """A column of text, with null in place of these words; any other column as it is."""
    if not missing or not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return column
    absent = pc.is_in(column, pa.array(list(missing), column.type))
    return pc.if_else(absent, pa.scalar(None, column.type), column)


def _is_number(value: str | None) -> bool:
    try:
        pa.array([value], pa.string()).cast(pa.float64())
    except pa.ArrowInvalid:
        return False
    return True


def _kind(value: object, untyped: bool) -> str:
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return "a whole number" if isinstance(value, int) else "a decimal number"
    return next((kind for shape, kind in _KINDS if untyped and shape.fullmatch(str(value))), "text")
