"""Write labels.csv or labels.parquet: the released labels, with the name of each query.

This module imports neither PyTorch nor mechanisms.
"""

import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from agt.data.arrays import ROWS, Blocks, Mapped, pieces, row_numbers
from agt.data.ids import CONTENT
from agt.data.records import UNANSWERED, Records
from agt.data.target import NumericTarget

RANGE_DIGITS = 7
"""Digits of a number in the upper part of a range, as in 0 to 20,000 and 2958.13."""
MAX_LABELS_SHOWN = 10_000  # in the object of --json; more labels are only in their file
_NEEDS_QUOTES = re.compile('[",\r\n]')
_CSV_HEADER = b"record_id,label\n"
_SCHEMA = pa.schema(
    [pa.field(name, pa.string(), nullable=False) for name in ("record_id", "label")]
)


@dataclass(frozen=True)
class LabelTable:
    """A file of labels, with the names of the queries and of the classes.

    The file's size has a bound that depends on public values only (``size``), so that room on the
    disk can be reserved before labels are drawn.

    Attributes:
        names: [n] str: the name of each query, or the object that ``row_numbers`` returns.
        classes: the name of each class.
        suffix: ".csv", or ".parquet" for queries from a parquet file that are too many to be held
            in memory.
    """

    names: np.ndarray
    classes: tuple[str, ...]
    suffix: str = ".csv"

    @classmethod
    def of(cls, queries: Records, classes: tuple[str, ...], inputs: Path | None) -> "LabelTable":
        """Return the table for queries.

        Args:
            queries: the queries.
            classes: the name of each class.
            inputs: the file that the queries were read from; None: they were not read from a file.
        """
        is_streamed = isinstance(queries.features, Blocks)
        is_parquet = inputs is not None and inputs.suffix.lower() == ".parquet"
        suffix = ".parquet" if is_streamed and is_parquet else ".csv"
        return cls(public_names(queries.ids), classes, suffix)

    @property
    def file(self) -> str:
        """The name of the file."""
        return f"labels{self.suffix}"

    def describe_record_id(self, id_column: str | None) -> list[str]:
        """Return a sentence on the column record_id; none if it has hashes of contents.

        Args:
            id_column: the column of the queries' file that names them; None: no column does.
        """
        if isinstance(self.names, Mapped):  # only ``row_numbers`` returns a ``Mapped`` array
            return [
                "the column 'record_id' of the labels counts the queries from 0, because their "
                "file has neither the dataset's id column nor a column named 'id'"
            ]
        return [f"record_id of the labels: column '{id_column}'"] if id_column else []

    @property
    def size(self) -> int:
        """The largest number of bytes that the file can have, whatever the labels are."""
        if self.suffix == ".parquet":
            return self._parquet_size
        cell_bytes = [len(_csv_cell(name).encode()) for name in self.classes]
        longest_label = int(np.argmax(cell_bytes))
        size = len(_CSV_HEADER)
        for piece in pieces(self.names):
            labels = np.broadcast_to(longest_label, len(piece))
            size += len(self._csv_lines(piece, labels))
        return size

    @property
    def _parquet_size(self) -> int:
        """The largest number of bytes that the file can have as parquet.

        A row takes its name and 8 bytes for lengths and label. A sixth is added, because Snappy
        makes content that it cannot compress longer. The file and each row group have metadata and
        the names of the classes.
        """
        count = len(self.names)
        group_overhead = 4096 + 2 * sum(len(name.encode()) + 64 for name in self.classes)
        if isinstance(self.names, Mapped):  # row numbers, which are below ``count``
            name_bytes = count * len(str(count))
        else:
            name_bytes = sum(len("".join(piece.tolist()).encode()) for piece in pieces(self.names))
        return 7 * (name_bytes + 8 * count) // 6 + group_overhead * (2 + count // ROWS)

    def answered(self, labels: np.ndarray) -> np.ndarray:
        """Return which queries have an answer, [n] bool: those whose label is not UNANSWERED."""
        return np.asarray(labels != UNANSWERED)

    def shown(self, labels: np.ndarray) -> list[Any]:
        """Return labels as --json and the file show them: by the names of their classes.

        Args:
            labels: [n] the labels; none of them is UNANSWERED.
        """
        return [self.classes[label] for label in labels]

    def write(self, file: BinaryIO, parts: Iterable[np.ndarray]) -> list[Any] | None:
        """Write the labels of all queries, piece by piece, leaving out unanswered queries.

        Args:
            file: the open file.
            parts: arrays of labels that follow each other in the order of ``names``; each may be
                computed only when it is asked for.

        Returns:
            The labels as --json shows them; None: there are more than MAX_LABELS_SHOWN.
        """
        shown: list[Any] | None = []
        with self._row_writer(file) as write_rows:
            start = 0
            for part in parts:
                end = start + len(part)
                is_answered = self.answered(part)
                names = self.names[start:end][is_answered]
                labels = part[is_answered]
                write_rows(names, labels)
                if shown is not None:
                    is_short = len(shown) + len(labels) <= MAX_LABELS_SHOWN
                    shown = [*shown, *self.shown(labels)] if is_short else None
                start = end
        return shown

    @contextmanager
    def _row_writer(self, file: BinaryIO) -> Iterator[Callable[[np.ndarray, np.ndarray], object]]:
        """Begin the file, and yield a function that appends rows for names [n] and labels [n].

        The file is complete when the context ends.
        """
        if self.suffix == ".csv":
            file.write(_CSV_HEADER)
            yield lambda names, labels: file.write(self._csv_lines(names, labels))
            return
        class_names = pa.array(self.classes, pa.string())
        with pq.ParquetWriter(
            file, _SCHEMA, use_dictionary=["label"], write_statistics=False
        ) as writer:

            def write_rows(names: np.ndarray, labels: np.ndarray) -> None:
                name_column = pa.array(names.tolist(), pa.string())
                label_column = class_names.take(pa.array(labels))
                writer.write_table(pa.table([name_column, label_column], _SCHEMA))

            yield write_rows

    def _label_cells(self, labels: np.ndarray) -> list[str]:
        """Return the csv cell of each label [n]."""
        cells = [_csv_cell(name) for name in self.classes]
        return [cells[label] for label in labels.tolist()]

    def _csv_lines(self, names: np.ndarray, labels: np.ndarray) -> bytes:
        """Return the lines of a csv file for names [n] and labels [n]."""
        name_cells = names.tolist()
        # one search in all names is faster than one in each, and few names need quotes
        if _NEEDS_QUOTES.search("".join(name_cells)):
            name_cells = [_csv_cell(name) for name in name_cells]
        rows = zip(name_cells, self._label_cells(labels), strict=True)
        return "".join(f"{name},{label}\n" for name, label in rows).encode()


@dataclass(frozen=True)
class NumberTable(LabelTable):
    """labels.csv whose labels are numbers, in the shortest form that reads back as the same float.

    Numbers that released weights give are rounded, because their last digits mean nothing beside
    the noise. Rounding what was released spends nothing. Drawn numbers are not rounded: that each
    is one which the mechanism can draw is checked later.

    Attributes:
        number_of: the numbers [n] that drawn labels [n] stand for; None: labels are the numbers
            that released weights give, and every query has one.
        target: the range of the numbers.
    """

    number_of: Callable[[np.ndarray], np.ndarray] | None = field(kw_only=True)
    target: NumericTarget = field(kw_only=True)

    @property
    def size(self) -> int:
        """The largest number of bytes that the file can have, whatever the numbers are."""
        longest_number = len(repr(-sys.float_info.max))
        size = len(_CSV_HEADER) + longest_number * len(self.names)
        for piece in pieces(self.names):
            # this also counts the few bytes of a short number in each row
            size += len(self._csv_lines(piece, np.zeros(len(piece))))
        return size

    def answered(self, labels: np.ndarray) -> np.ndarray:
        """Return which queries have an answer, [n] bool: all, if labels are the numbers."""
        if self.number_of is None:  # a number may happen to equal UNANSWERED
            return np.ones(len(labels), dtype=bool)
        return super().answered(labels)

    def shown(self, labels: np.ndarray) -> list[Any]:
        """Return the numbers that labels [n] stand for, as --json and the file show them."""
        if self.number_of is None:
            return rounded_in_range(labels, self.target)
        return list(self.number_of(labels).tolist())

    def _label_cells(self, labels: np.ndarray) -> list[str]:
        """Return the csv cell of the number that each label [n] stands for."""
        return [repr(number) for number in self.shown(labels)]


def rounded_in_range(numbers: np.ndarray, target: NumericTarget) -> list[float]:
    """Return numbers rounded to about a millionth of their range, and still within it.

    Args:
        numbers: [n] within the range.
        target: the range.
    """
    decimals = RANGE_DIGITS - 1 - math.floor(math.log10(target.width))
    rounded = [round(number, decimals) for number in numbers.tolist()]
    return [float(number) for number in np.clip(rounded, target.low, target.high)]


def _csv_cell(text: str) -> str:
    """Return a text as a csv file has it: in quotation marks if it contains a special character."""
    if not _NEEDS_QUOTES.search(text):
        return text
    escaped = text.replace('"', '""')
    return f'"{escaped}"'


def public_names(ids: np.ndarray) -> np.ndarray:
    """Return the names under which labels are published: the ids [n] as str, or row numbers.

    Ids that agt made from the records' content are replaced by row numbers. They also hash a test
    record's true label, so whoever knows the rest of the record could test a guess of the label.

    Args:
        ids: [n] the ids of the queries, or what ``row_numbers`` returned for them.
    """
    if isinstance(ids, Mapped):
        return ids
    names = ids.astype(str, copy=False)
    made = all(CONTENT.fullmatch(name) for piece in pieces(names) for name in piece.tolist())
    return row_numbers(len(names)) if made else names
