"""A large table of statements, csv or parquet, read in chunks, in bounded memory.

How a value is read depends on that value and the type its column was declared to have: no types are
guessed.
"""

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from agt.data.cell_values import NULLS
from agt.errors import DataError, first_line, nearest
from agt.store.locations import require

_BATCH_ROWS = 16_384


@dataclass(frozen=True)
class Statements:
    """A table that can be read, again and again, in the same chunks.

    Attributes:
        path: a csv, cut at the first line end after every so many bytes (a value may hold none); or
            a parquet file, cut into batches of rows within each of its row groups.
        names: its columns.
        about_rows: about how many rows it has; of a csv, from its size and its first chunk.
        chunk_bytes: how much of a csv is read at once.
    """

    path: Path
    names: tuple[str, ...]
    about_rows: int
    chunk_bytes: int

    def read(self, types: Mapping[str, pa.DataType], start: int = 0) -> Iterator[pa.Table]:
        """The chunks from number ``start`` on, with the columns named, each of the type given.

        Raises:
            DataError: a value is not of its column's type, or the file is damaged.
        """
        if self.path.suffix == ".csv":
            return self._csv(types, start)
        return self._parquet(types, start)

    def _csv(self, types: Mapping[str, pa.DataType], start: int) -> Iterator[pa.Table]:
        options = pa.csv.ConvertOptions(
            column_types=types,
            include_columns=list(types),
            null_values=NULLS,
            strings_can_be_null=True,
        )
        columns = pa.csv.ReadOptions(column_names=list(self.names))
        with self.path.open("rb") as file:
            file.readline()
            number = 0
            begin = file.tell()
            while block := file.read(self.chunk_bytes) + file.readline():
                if number >= start:
                    try:
                        yield pa.csv.read_csv(
                            pa.BufferReader(block), read_options=columns, convert_options=options
                        )
                    except pa.ArrowException as error:
                        raise DataError(
                            f"{self.path}: bytes {begin} to {file.tell()}: {first_line(error)}"
                        ) from None
                number += 1
                begin = file.tell()

    def _parquet(self, types: Mapping[str, pa.DataType], start: int) -> Iterator[pa.Table]:
        # Column pages are read through a small buffer, so that one group may be as large as the
        # file.
        file = pa.parquet.ParquetFile(self.path, buffer_size=2**16, pre_buffer=False)
        number = 0
        for group in range(file.num_row_groups):
            try:
                for batch in file.iter_batches(
                    _BATCH_ROWS, row_groups=[group], columns=list(types)
                ):
                    if number >= start:
                        columns = {}
                        for name, to in types.items():
                            columns[name] = self._cast(batch.column(name), name, to)
                        yield pa.table(columns)
                    number += 1
            except (pa.ArrowException, OSError) as error:
                raise DataError(
                    f"{self.path}: row group {group} cannot be read: {first_line(error)}"
                ) from None

    def _cast(self, column: pa.Array, name: str, to: pa.DataType) -> pa.Array:
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        if pa.types.is_string(to) and not text:
            raise DataError(
                f"{self.path}: column '{name}' must hold text, but it holds {column.type}"
            )
        if pa.types.is_floating(to) and not (
            pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
        ):
            raise DataError(
                f"{self.path}: column '{name}' must hold numbers, but it holds {column.type}"
            )
        try:
            return column.cast(to, safe=not pa.types.is_floating(to))
        except pa.ArrowException as error:
            raise DataError(f"{self.path}: column '{name}': {first_line(error)}") from None


def open_statements(path: Path, setting: str, chunk_mb: int) -> Statements:
    """Open a csv or parquet file.

    Raises:
        DataMissing: it is not there.
        DataError: the format is unknown, or the file has no header or footer.
    """
    require(path, f"{setting} or data_dir")
    if path.suffix == ".csv":
        return _open_csv(path, chunk_mb * 2**20)
    if path.suffix != ".parquet":
        raise DataError(f"{path}: {setting} must be a .csv or .parquet file, not '{path.suffix}'")
    try:
        metadata = pa.parquet.read_metadata(path)
    except (pa.ArrowException, OSError) as error:
        raise DataError(
            f"{path}: this parquet file is damaged ({first_line(error)}). Download it again"
        ) from None
    return Statements(path, tuple(metadata.schema.to_arrow_schema().names), metadata.num_rows, 0)


def _open_csv(path: Path, chunk_bytes: int) -> Statements:
    with path.open("rb") as file:
        try:
            header = file.readline().decode("utf-8-sig").strip()
        except UnicodeDecodeError:
            header = ""
        names = tuple(next(csv.reader([header]), ()))
        if len(names) < 2 or len(set(names)) < len(names):
            raise DataError(
                f"{path}: the first line must name the columns of a csv, but it is {header[:60]!r}"
            )
        head = file.read(chunk_bytes)
    row_bytes = max(1, len(head) // max(1, head.count(b"\n")))
    return Statements(path, names, path.stat().st_size // row_bytes, chunk_bytes)


def require_columns(names: Sequence[str], wanted: Sequence[str], path: Path) -> None:
    """Raise DataError naming the first of ``wanted`` that is absent."""
    for name in wanted:
        if name not in names:
            raise DataError(f"{path}: there is no column '{name}'{nearest(name, names[:8])}")
