"""Files of records, opened as columns: csv, parquet, npz, and folders of npy files.

Columns are read when they are asked for; arrays of a folder stay memory-mapped; large files come in
blocks of rows.
"""

import struct
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
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
from agt.data.disguised import (
    check_compression,
    check_parquet,
    check_text_kind,
)
from agt.data.suffixes import check_suffix, is_delimited
from agt.errors import DataError, DataMissing
from agt.store.locations import locate

_WHOLE_BYTES = 2**23  # of text that is read as a whole; sixteen times as many of arrays


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


def require(path: Path, setting: str) -> None:
    """Raise DataMissing unless ``path`` is a file."""
    if not path.is_file():
        raise DataMissing(
            f"{path} does not exist, or is not a file: put the file there, or change {setting}"
        )


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
    with suppress(*DAMAGE_ERRORS):
        if path.is_dir():
            return sum(file.stat().st_size for file in arrays_in(path)) > 16 * _WHOLE_BYTES
        if path.suffix.lower() == ".parquet":
            return int(pa.parquet.read_metadata(path).num_rows) > 2 * ROWS
        return path.stat().st_size > _WHOLE_BYTES * (16 if path.suffix.lower() == ".npz" else 1)
    return False


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
    except DAMAGE_ERRORS as error:
        if is_delimited(path):
            why = describe_odd_line(path, form or CsvFormat(), error)
            raise DataError(f"{path}: cannot be read as csv: {why}") from None
        raise DataError(
            f"{path}: this file is truncated, or is not a {path.suffix[1:]} file "
            f"({describe_damage(error)}): restore a complete copy, or give the right file"
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
    except DAMAGE_ERRORS as error:
        raise DataError(
            f"{path}: this file is damaged after {row_words(first)} ({describe_damage(error)}): "
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
