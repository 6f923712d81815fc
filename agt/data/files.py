"""Files of records, opened as columns: csv, parquet, npz, and folders of npy files.

Columns are read when they are asked for; arrays of a folder stay memory-mapped; large files come in
blocks of rows.
"""

import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from agt.data.arrays import ROWS, row_words
from agt.data.column_reader import ColumnReader
from agt.data.csv_format import CsvFormat, describe_odd_line, read_head
from agt.data.damaged import DAMAGE_ERRORS, describe_damage
from agt.data.disguised import check_compression, check_parquet, check_text_kind
from agt.data.suffixes import (
    arrays_in,
    check_has_arrays,
    check_not_empty,
    check_suffix,
    is_delimited,
)
from agt.errors import CsvFormatError, DataError
from agt.store.locations import locate, require

_LARGE_TEXT_BYTES = 2**23
"""A text file with more bytes is read in blocks."""
_LARGE_ARRAY_BYTES = 16 * _LARGE_TEXT_BYTES
"""Arrays with more bytes are read in blocks."""


@dataclass(frozen=True)
class _Block:
    """Some rows of a file that follow one another.

    Attributes:
        names: the names of the columns.
        read: column -> its values in these rows.
        row_count: the number of rows.
    """

    names: tuple[str, ...]
    read: Callable[[str], np.ndarray | pa.Array]
    row_count: int


def check_kind(path: Path, encoding: str | None = None) -> None:
    """Raise DataError if a file is visibly another kind of file than its name says.

    Args:
        path: the file, which exists.
        encoding: the encoding of the text of a csv; None: the encoding is not known yet, so that
            only the compression is checked.
    """
    if path.suffix.lower() == ".parquet":
        check_parquet(path)
    if not is_delimited(path):
        return
    check_compression(path)
    check_not_empty(path)
    if encoding is not None:
        check_text_kind(path, read_head(path), encoding)


def same_length(path: Path, n: int, columns: Mapping[str, np.ndarray | None]) -> None:
    """Raise DataError unless every column has one value for each record.

    An npz does not promise that.

    Args:
        path: the file, for messages.
        n: the number of records.
        columns: name -> values; None: there is no such column.
    """
    for name, values in columns.items():
        if values is not None and len(values) != n:
            raise DataError(
                f"{path}: the file has {n} records but {len(values)} values of '{name}': each "
                "record needs exactly one"
            )


def same_shape(features: np.ndarray, shape: tuple[int, ...], path: Path) -> None:
    """Raise DataError unless the features of each record have the shape of the training data's.

    Args:
        features: [n, ...].
        shape: the shape of one record's features.
        path: the file, for messages.
    """
    if features.shape[1:] != shape:
        got = _shape_in_words(features.shape[1:])
        expected = _shape_in_words(shape)
        raise DataError(
            f"{path}: each record in this file has {got} features, but the model was trained on "
            f"{expected}: give a file with the same features as the training file"
        )


def _shape_in_words(shape: tuple[int, ...]) -> str:
    """Return a shape as text, such as "28 x 28"."""
    return " x ".join(map(str, shape)) or "a single number"


def changed_of(path: Path) -> tuple[tuple[str, int, int], ...]:
    """Return what shows whether a file, or an array in a folder, was changed since.

    Returns:
        For each file its name, its size in bytes, and the time of its last change in nanoseconds. A
        folder's own time changes only with the names in it, so each of its arrays is looked at.
    """
    files = arrays_in(path) if path.is_dir() else [path]
    return tuple(map(_name_size_and_time, files))


def _name_size_and_time(file: Path) -> tuple[str, int, int]:
    """Return the name of a file, its size in bytes, and when it last changed, in nanoseconds."""
    status = file.stat()
    return file.name, status.st_size, status.st_mtime_ns


def is_large(path: Path) -> bool:
    """Return whether a file has more rows, or bytes, than are read at once.

    What is not a file of a known format is not large.
    """
    with suppress(*DAMAGE_ERRORS):
        if path.is_dir():
            return sum(file.stat().st_size for file in arrays_in(path)) > _LARGE_ARRAY_BYTES
        if path.suffix.lower() == ".parquet":
            return int(pa.parquet.read_metadata(path).num_rows) > 2 * ROWS
        is_array = path.suffix.lower() == ".npz"
        return path.stat().st_size > (_LARGE_ARRAY_BYTES if is_array else _LARGE_TEXT_BYTES)
    return False


def open_columns(
    path: Path, setting: str, data_dir: Path | None = None, csv_format: CsvFormat | None = None
) -> ColumnReader:
    """Open a npz, csv or parquet file, or a folder of npy files, which are memory-mapped.

    Args:
        path: the file, or the folder: its columns are ``NAME.npy``.
        setting: the configuration key that named it, for messages.
        data_dir: where a relative path is looked for after the working directory; None: nowhere
            else.
        csv_format: how a csv is cut into cells; None: commas, UTF-8, with a header.

    Raises:
        DataMissing: there is no such file.
        DataError: the format is unknown, or the file is damaged.
    """
    csv_format = csv_format or CsvFormat()
    path = path if data_dir is None else locate(path, data_dir, setting)
    if path.is_dir():
        check_has_arrays(path, setting)
        return _open_folder(path)
    require(path, setting)
    check_suffix(path, setting)
    check_kind(path, csv_format.codec)
    try:
        return _open_file(path, csv_format)
    except DAMAGE_ERRORS as error:
        if is_delimited(path):
            reason = describe_odd_line(path, csv_format, error)
            raise CsvFormatError(f"{path}: cannot be read as csv: {reason}") from None
        raise DataError(
            f"{path}: this file is truncated, or is not a {path.suffix[1:]} file "
            f"({describe_damage(error)}): restore a complete copy, or give the right file"
        ) from None


def _open_file(path: Path, csv_format: CsvFormat) -> ColumnReader:
    """Return a reader of a file in the format of its suffix: npz, parquet or csv."""
    if path.suffix.lower() == ".npz":
        return _open_npz(path)
    if path.suffix.lower() == ".parquet":
        return _open_parquet(path)
    names = csv_format.column_names(path)
    table = pa.csv.read_csv(path, *csv_format.arrow_options(names))
    return ColumnReader(path, names, lambda name: table.column(name).combine_chunks(), csv_format)


def _open_folder(folder: Path) -> ColumnReader:
    """Open a folder of npy files, each of which is memory-mapped when it is asked for."""
    names = tuple(file.stem for file in arrays_in(folder))
    return ColumnReader(folder, names, partial(_map_npy, folder))


def _map_npy(folder: Path, name: str) -> np.ndarray:
    """Return an array of a folder, memory-mapped."""
    array: np.ndarray = np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
    return array


def _open_npz(path: Path) -> ColumnReader:
    """Open an npz, of which each array is read when it is asked for.

    Raises:
        ValueError: the file is not a zip archive.
    """
    if not zipfile.is_zipfile(path):
        raise ValueError("the file is not a complete zip archive")
    with np.load(path, allow_pickle=False) as archive:
        names = tuple(archive.files)
    return ColumnReader(path, names, partial(_read_npz_array, path))


def _read_npz_array(path: Path, name: str) -> np.ndarray:
    """Return an array of an npz, read into memory."""
    with np.load(path, allow_pickle=False) as archive:
        array: np.ndarray = archive[name]
        return array


def _open_parquet(path: Path) -> ColumnReader:
    """Open a parquet file, of which each column is read when it is asked for."""
    names = tuple(pa.parquet.read_schema(path).names)

    def read_column(name: str) -> pa.Array:
        return pa.parquet.read_table(path, columns=[name]).column(name).combine_chunks()

    return ColumnReader(path, names, read_column)


def open_blocks(path: Path, csv_format: CsvFormat | None) -> Iterator[ColumnReader]:
    """Yield the rows of a large file in blocks of ``ROWS``, or about as many.

    Arrays of an npz are held as a whole, unlike those of a folder, which are memory-mapped.

    Args:
        path: the file or folder, which exists and has a known format.
        csv_format: how a csv is cut into cells; None: commas, UTF-8, with a header.

    Raises:
        DataError: the file is damaged; of a csv, a CsvFormatError.
    """
    csv_format = csv_format or CsvFormat()
    if path.is_file():
        check_kind(path, csv_format.codec)
    format_of_cells = csv_format if is_delimited(path) else None
    first_row = 0
    try:
        for block in _blocks_of(path, csv_format):
            yield ColumnReader(path, block.names, block.read, format_of_cells, first_row)
            first_row += block.row_count
    except DAMAGE_ERRORS as error:
        # What does not look like text may be in another encoding than the one it is read in.
        kind = DataError if format_of_cells is None else CsvFormatError
        raise kind(
            f"{path}: this file is damaged after {row_words(first_row)} "
            f"({describe_damage(error)}): restore an intact copy of the file"
        ) from None


def _blocks_of(path: Path, csv_format: CsvFormat) -> Iterator[_Block]:
    """Return the blocks of a file or folder, by the format that its name says."""
    if path.is_dir():
        return _blocks_of_arrays(_open_folder(path))
    if path.suffix.lower() == ".npz":
        return _blocks_of_arrays(_open_npz(path))
    return _blocks_of_table(path, csv_format)


def _blocks_of_arrays(columns: ColumnReader) -> Iterator[_Block]:
    """Yield the rows of arrays in blocks of ``ROWS``.

    Args:
        columns: an npz or a folder. Its longest array has a row for each record.
    """
    arrays = {name: columns.read(name) for name in columns.names}
    row_count = max((len(array) for array in arrays.values() if array.ndim), default=0)
    for start in range(0, row_count, ROWS):
        read_rows = partial(_rows_of_array, arrays, row_count, start)
        yield _Block(columns.names, read_rows, min(ROWS, row_count - start))


def _rows_of_array(
    arrays: Mapping[str, np.ndarray], row_count: int, start: int, name: str
) -> np.ndarray:
    """Return ``ROWS`` rows of an array, or all of one that has no row for each record."""
    array = arrays[name]
    if array.ndim and len(array) == row_count:
        return np.array(array[start : start + ROWS])
    return array


def _blocks_of_table(path: Path, csv_format: CsvFormat) -> Iterator[_Block]:
    """Yield the rows of a csv or parquet file in the batches in which Arrow reads them."""
    batches: Iterable[pa.RecordBatch]
    if is_delimited(path):
        names = csv_format.column_names(path)
        batches = pa.csv.open_csv(path, *csv_format.arrow_options(names))
    else:
        file = pa.parquet.ParquetFile(path, pre_buffer=False, buffer_size=2**20)
        names = tuple(file.schema_arrow.names)
        batches = file.iter_batches(ROWS)
    for batch in batches:
        yield _Block(names, batch.column, batch.num_rows)
