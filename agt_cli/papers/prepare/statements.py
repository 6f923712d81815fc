"""A large table of statements, csv or parquet, read in chunks that can be started from anywhere, in bounded memory.

How a value is read depends on that value and the type its column was declared to have: no types are guessed.
"""

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from agt.data.dataset import DataError
from agt.data.files import require
from agt.errors import nearest

_NULLS = ["", "NA", "N/A", "NaN", "nan", "null", "NULL"]
_BATCH_ROWS = 16_384


class Statements(Protocol):
    """An open table.

    Attributes:
        path: the file.
        names: its columns.
        chunks: how many chunks it is read in.
        about_rows: about how many rows it has, from its size.
    """

    @property
    def path(self) -> Path: ...

    @property
    def names(self) -> tuple[str, ...]: ...

    @property
    def chunks(self) -> int: ...

    @property
    def about_rows(self) -> int: ...

    def read(self, types: Mapping[str, pa.DataType], start: int = 0) -> Iterator[pa.Table]:
        """The chunks from number ``start`` on, with the columns named, each of the type given.

        Raises:
            DataError: a value is not of its column's type, or the file is damaged.
        """
        ...


def open_statements(path: Path, setting: str, chunk_mb: int) -> Statements:
    """Open a csv or parquet file.

    Raises:
        DataMissing: it is not there.
        DataError: the format is unknown, or the file has no header or footer.
    """
    require(path, f"{setting} or data_dir")
    if path.suffix == ".csv":
        return CsvStatements.open(path, chunk_mb * 2**20)
    if path.suffix == ".parquet":
        return ParquetStatements.open(path)
    raise DataError(f"{path}: unknown format '{path.suffix}'; {setting} takes .csv or .parquet")


def require_columns(names: Sequence[str], wanted: Sequence[str], path: Path) -> None:
    """Raise DataError naming the first of ``wanted`` that is absent."""
    for name in wanted:
        if name not in names:
            raise DataError(f"{path}: no column '{name}'{nearest(name, names[:8])}")


@dataclass(frozen=True)
class CsvStatements:
    """A csv, cut at the first line end after every so many bytes. A value may not hold a line end."""

    path: Path
    names: tuple[str, ...]
    body: int
    chunk_bytes: int

    @classmethod
    def open(cls, path: Path, chunk_bytes: int) -> "CsvStatements":
        with path.open("rb") as file:
            try:
                header = file.readline().decode("utf-8-sig").strip()
            except UnicodeDecodeError:
                header = ""
            names = tuple(next(csv.reader([header]), ()))
            if len(names) < 2 or len(set(names)) < len(names):
                raise DataError(f"{path}: the first line is no header of a csv: {header[:60]!r}")
            return cls(path, names, file.tell(), chunk_bytes)

    @property
    def chunks(self) -> int:
        return len(self._cuts) - 1

    @cached_property
    def about_rows(self) -> int:
        with self.path.open("rb") as file:
            head = file.read(self.body + self.chunk_bytes)[self.body :]
        return self._cuts[-1] // max(1, len(head) // max(1, head.count(b"\n")))

    @cached_property
    def _cuts(self) -> list[int]:
        """Where chunks begin, and where the last one ends."""
        size, cuts = self.path.stat().st_size, [self.body]
        with self.path.open("rb") as file:
            while cuts[-1] < size:
                file.seek(min(size, cuts[-1] + self.chunk_bytes))
                file.readline()
                cuts.append(file.tell())
        return cuts

    def read(self, types: Mapping[str, pa.DataType], start: int = 0) -> Iterator[pa.Table]:
        options = pa.csv.ConvertOptions(
            column_types=types, include_columns=list(types), null_values=_NULLS, strings_can_be_null=True
        )
        columns = pa.csv.ReadOptions(column_names=list(self.names))
        with self.path.open("rb") as file:
            for begin, end in zip(self._cuts[start:-1], self._cuts[start + 1 :], strict=True):
                file.seek(begin)
                block = pa.py_buffer(file.read(end - begin))
                try:
                    yield pa.csv.read_csv(pa.BufferReader(block), read_options=columns, convert_options=options)
                except pa.ArrowException as error:
                    raise DataError(f"{self.path}: in the bytes {begin} to {end}: {_line(error)}") from None


@dataclass(frozen=True)
class ParquetStatements:
    """A parquet file, read in batches of rows within each of its row groups."""

    path: Path
    names: tuple[str, ...]
    group_rows: tuple[int, ...]

    @classmethod
    def open(cls, path: Path) -> "ParquetStatements":
        try:
            metadata = pa.parquet.read_metadata(path)
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{path}: truncated or not a parquet file: {_line(error)}") from None
        names = tuple(metadata.schema.to_arrow_schema().names)
        return cls(path, names, tuple(metadata.row_group(g).num_rows for g in range(metadata.num_row_groups)))

    @property
    def chunks(self) -> int:
        return sum(-(-rows // _BATCH_ROWS) for rows in self.group_rows)

    @property
    def about_rows(self) -> int:
        return sum(self.group_rows)

    def read(self, types: Mapping[str, pa.DataType], start: int = 0) -> Iterator[pa.Table]:
        # Column pages are read through a small buffer, so that one group may be as large as the file.
        file = pa.parquet.ParquetFile(self.path, buffer_size=2**16, pre_buffer=False)
        first = 0
        for group, rows in enumerate(self.group_rows):
            count = -(-rows // _BATCH_ROWS)
            if first + count > start:
                batches = self._group(file, group, list(types))
                for number, batch in enumerate(batches, start=first):
                    if number >= start:
                        yield pa.table({name: self._cast(batch.column(name), name, to) for name, to in types.items()})
            first += count

    def _group(self, file: Any, group: int, columns: list[str]) -> Iterator[pa.RecordBatch]:
        try:
            yield from file.iter_batches(_BATCH_ROWS, row_groups=[group], columns=columns)
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{self.path}: row group {group} cannot be read: {_line(error)}") from None

    def _cast(self, column: pa.Array, name: str, to: pa.DataType) -> pa.Array:
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        if pa.types.is_string(to) and not text:
            raise DataError(f"{self.path}: column '{name}' holds {column.type}, expected text")
        if pa.types.is_floating(to) and not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
            raise DataError(f"{self.path}: column '{name}' holds {column.type}, expected numbers")
        try:
            return column.cast(to, safe=not pa.types.is_floating(to))
        except pa.ArrowException as error:
            raise DataError(f"{self.path}: column '{name}': {_line(error)}") from None


def _line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
