"""How a text file is cut into cells.

How a csv is cut into cells is a setting, and never guessed while training: one record could change
a guess, and so every other record. A csv has no guessed column types either: every cell is text
until a caller asks for numbers, and '07' does not turn into 7 because its neighbours are digits.
"""

import codecs
import csv
import gzip
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, TextIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from agt.data.cell_values import NULLS
from agt.data.damaged import describe_damage
from agt.data.disguised import (
    HEAD_BYTES,
    odd_line,
)
from agt.data.formats import (
    COMMA,
    ISO_DATE,
    read_numbers,
)
from agt.data.settings import CsvSettings
from agt.errors import DataError, first_line
from agt.messages import Message
from agt.settings import schema

SEPARATORS = (",", ";", "\t", "|", " ")
_PARSED_BYTES = 2**22  # of a csv, at once


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


def read_head(path: Path) -> bytes:
    """Return the first bytes of a csv, decompressed.

    Raises:
        DataError: a compressed file that is truncated or damaged.
    """
    with open_text(path, "latin-1") as file:
        return file.read(HEAD_BYTES).encode("latin-1")


def describe_odd_line(path: Path, form: CsvFormat, error: Exception) -> str:
    # Why a csv cannot be divided into cells: its first line that does not fit, if there is one.
    with open_text(path, form.codec) as file, suppress(csv.Error, UnicodeError):
        found = odd_line(csv.reader(file, delimiter=form.separator))
        if found is not None:
            return found
    return describe_damage(error)
