"""labels.csv or labels.parquet: the labels that may be published, by name.

Loads neither torch nor what draws.
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
MAX_LABELS_SHOWN = 10_000  # that --json has in its object; more are in their file alone
_ODD = re.compile('[",\r\n]')
_HEAD = b"record_id,label\n"
_SCHEMA = pa.schema(
    [pa.field(name, pa.string(), nullable=False) for name in ("record_id", "label")]
)


@dataclass(frozen=True)
class LabelTable:
    """labels.csv or labels.parquet: names and labels of the queries, whose number of bytes has a
    public bound.

    Attributes:
        names: [n] str, or ``row_numbers``.
        classes: the labels' names.
        suffix: .csv, or .parquet where that is how queries came that are too many to be held.
    """

    names: np.ndarray
    classes: tuple[str, ...]
    suffix: str = ".csv"

    @classmethod
    def of(cls, queries: Records, classes: tuple[str, ...], inputs: Path | None) -> "LabelTable":
        """For queries, and the file that they are from."""
        large = (
            isinstance(queries.features, Blocks)
            and inputs is not None
            and inputs.suffix.lower() == ".parquet"
        )
        return cls(public_names(queries.ids), classes, ".parquet" if large else ".csv")

    @property
    def file(self) -> str:
        """Its name."""
        return f"labels{self.suffix}"

    @property
    def naming(self) -> list[str]:
        """What whoever reads it should know of its names, if they are not the queries' own."""
        said = (
            "the column 'record_id' of the labels contains the number of each query (counted "
            "from 0), because no column gives ids of queries. To give ids, add the dataset's "
            "id column, or a column named 'id', to the file of queries"
        )
        return [said] if isinstance(self.names, Mapped) else []

    @property
    def size(self) -> int:
        """As many bytes as it can come to: every label the longest."""
        if self.suffix == ".parquet":
            return self._parquet_size
        longest = max(
            range(len(self.classes)), key=lambda label: len(_cell(self.classes[label]).encode())
        )
        names = pieces(self.names)
        return len(_HEAD) + sum(
            len(self._lines(some, np.broadcast_to(longest, len(some)))) for some in names
        )

    @property
    def _parquet_size(self) -> int:
        """Each name and label in plain, what cannot be made shorter, and room for the groups'
        heads.
        """
        count, heads = (
            len(self.names),
            4096 + 2 * sum(len(name.encode()) + 64 for name in self.classes),
        )
        if isinstance(self.names, Mapped):
            letters = count * len(str(count))
        else:
            letters = sum(len("".join(some.tolist()).encode()) for some in pieces(self.names))
        return 7 * (letters + 8 * count) // 6 + heads * (2 + count // ROWS)

    def answered(self, labels: np.ndarray) -> np.ndarray:
        """[n] bool: which queries have an answer."""
        return np.asarray(labels != UNANSWERED)

    def shown(self, labels: np.ndarray) -> list[Any]:
        """What ``--json`` has of labels, none of them ``UNANSWERED``."""
        return [self.classes[label] for label in labels]

    def write(self, file: BinaryIO, parts: Iterable[np.ndarray]) -> list[Any] | None:
        """Write the answers, piece by piece; returns their names, if they are few."""
        shown: list[Any] | None = []
        with self._opened(file) as put:
            start = 0
            for part in parts:
                answered = self.answered(part)
                names, labels = self.names[start : start + len(part)][answered], part[answered]
                start += len(part)
                put(names, labels)
                few = shown is not None and len(shown) + len(labels) <= MAX_LABELS_SHOWN
                shown = [*(shown or []), *self.shown(labels)] if few else None
        return shown

    @contextmanager
    def _opened(self, file: BinaryIO) -> Iterator[Callable[[np.ndarray, np.ndarray], object]]:
        if self.suffix == ".csv":
            file.write(_HEAD)
            yield lambda names, labels: file.write(self._lines(names, labels))
            return
        words = pa.array(self.classes, pa.string())
        with pq.ParquetWriter(
            file, _SCHEMA, use_dictionary=["label"], write_statistics=False
        ) as writer:
            yield lambda names, labels: writer.write_table(
                pa.table(
                    [pa.array(names.tolist(), pa.string()), words.take(pa.array(labels))], _SCHEMA
                )
            )

    def _words(self, labels: np.ndarray) -> list[str]:
        """The cell of each label, as a csv has it."""
        words = [_cell(name) for name in self.classes]
        return [words[label] for label in labels.tolist()]

    def _lines(self, names: np.ndarray, labels: np.ndarray) -> bytes:
        plain = names.tolist()
        plain = list(map(_cell, plain)) if _ODD.search("".join(plain)) else plain
        return "".join(
            f"{name},{word}\n" for name, word in zip(plain, self._words(labels), strict=True)
        ).encode()


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
        """As many bytes as it can come to: every number the longest."""
        longest = len(repr(-sys.float_info.max))
        names = sum(len(self._lines(some, np.zeros(len(some)))) for some in pieces(self.names))
        return len(_HEAD) + names + longest * len(self.names)

    def answered(self, labels: np.ndarray) -> np.ndarray:
        """[n] bool: which queries have an answer."""
        if self.number_of is None:  # where a number may be that of UNANSWERED
            return np.ones(len(labels), dtype=bool)
        return super().answered(labels)

    def shown(self, labels: np.ndarray) -> list[Any]:
        """The numbers, as ``--json`` has them."""
        if self.number_of is None:
            return rounded_in_range(labels, self.target)
        return list(self.number_of(labels).tolist())

    def _words(self, labels: np.ndarray) -> list[str]:
        """The cell of each number."""
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


def _cell(word: str) -> str:
    """As a csv has it, in quotation marks where it must be."""
    return '"' + word.replace('"', '""') + '"' if _ODD.search(word) else word


def public_names(ids: np.ndarray) -> np.ndarray:
    """[n] str: the names that labels are published under: the ids that were given, or row numbers.

    Ids made from content also hash a test record's true label, so that whoever knows the record
    could test a guess of it.
    """
    if isinstance(ids, Mapped):
        return ids
    names = ids.astype(str, copy=False)
    made = all(CONTENT.fullmatch(name) for some in pieces(names) for name in some.tolist())
    return row_numbers(len(names)) if made else names
