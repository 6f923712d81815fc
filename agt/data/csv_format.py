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

from agt.data.cell_values import NULLS
from agt.data.damaged import describe_damage
from agt.data.disguised import HEAD_BYTES, odd_line
from agt.data.file_settings import CsvSettings
from agt.data.formats import COMMA, ISO_DATE, read_numbers
from agt.data.header import check_separator
from agt.errors import CsvFormatError, DataError, first_line
from agt.messages import Message
from agt.settings import schema

_PARSED_BYTES = 2**22
"""The bytes of a csv that are parsed at once."""
_TRUNCATION_ERRORS = (EOFError, zlib.error, gzip.BadGzipFile)


@schema
class CsvFormat(CsvSettings):
    """The format of a text file: its cells, and its numbers.

    The second is for columns that have no format of their own. The fields are those of
    ``CsvSettings``.
    """

    takes_numbers: ClassVar[bool] = True

    def numbers(self, cells: pa.Array) -> pa.Array:
        """Return the numbers of the cells of a column without a declared format, as float64.

        Each cell is read by itself. Null stays null.

        Raises:
            ArrowInvalid: a cell is neither a number nor a date such as 2024-12-31.
        """
        if self.decimal == ".":
            with suppress(pa.ArrowInvalid):
                return cells.cast(pa.float64())  # of most columns, where there are no blanks
        return read_numbers(self.with_decimal_points(cells))

    @property
    def expected(self) -> Message:
        """The end of a message that says how a number must be written."""
        if self.decimal == ",":
            return Message(
                "expected a number with a decimal comma, such as 1.234,5 (because "
                "dataset.csv.decimal is a comma), or a date such as 2024-12-31"
            )
        return Message(
            "expected a number such as 1234.5 (without thousands separators), or a date such as "
            "2024-12-31. If the file uses a decimal comma, give {config:+dataset.csv.decimal=','}"
        )

    def with_decimal_points(self, cells: pa.Array) -> pa.Array:
        """Return text without blanks around it, its numbers written as Arrow reads them.

        If numbers have a decimal comma, 1.234,5 becomes 1234.5, dates stay, and everything else
        becomes "?", because 1.5 is not a number there.

        Args:
            cells: text.
        """
        cells = pc.utf8_trim_whitespace(cells)
        if self.decimal == ".":
            return cells
        without_thousands = pc.replace_substring(cells, ".", "")
        with_points = pc.replace_substring(without_thousands, ",", ".")
        dates_only = pc.if_else(pc.match_substring_regex(cells, ISO_DATE), cells, "?")
        return pc.if_else(pc.match_substring_regex(cells, COMMA), with_points, dates_only)

    @property
    def codec(self) -> str:
        """Python's name of the encoding. It passes over the byte order mark of UTF-8."""
        return "utf-8-sig" if codecs.lookup(self.encoding).name == "utf-8" else self.encoding

    def first_rows(self, path: Path, maximum: int) -> list[list[str]]:
        """Return the first rows of a file as lists of cells, a header included.

        Args:
            path: the file, which may be compressed.
            maximum: the largest number of rows.

        Raises:
            DataError: the text is in another encoding, or cannot be divided into cells; or the file
                is damaged, as ``open_text`` finds.
        """
        with open_text(path, self.codec) as file:
            reader = csv.reader(file, delimiter=self.separator)
            try:
                return list(islice(reader, maximum))
            except csv.Error as error:
                raise DataError(
                    f"{path}: the rows near line {reader.line_num} cannot be divided into cells "
                    f'({first_line(error)}): close a quotation mark (") that was left open, or '
                    "shorten the longest cell"
                ) from None
            except UnicodeError:
                raise CsvFormatError(
                    Message(
                        "{path}: the text of this file is not {name}: save it as UTF-8, or give "
                        "its encoding, for example {config:dataset.csv.encoding}=latin-1",
                        path=path,
                        name=codecs.lookup(self.encoding).name.upper(),
                    )
                ) from None

    def missing_words(self, path: Path, name: str) -> dict[str, int]:
        """Return how many cells of a column have each of the ``NULLS``, those that occur.

        Args:
            path: the file.
            name: the column.
        """
        read_options, parse_options, _ = self.arrow_options(self.column_names(path))
        as_text = pa.csv.ConvertOptions(column_types={name: pa.string()}, include_columns=[name])
        cells = pa.csv.read_csv(path, read_options, parse_options, as_text).column(name)
        words, counts = pc.value_counts(cells).flatten()
        count_of = dict(zip(words.to_pylist(), counts.to_pylist(), strict=True))
        return {word: count_of[word] for word in NULLS if word in count_of}

    def column_names(self, path: Path) -> tuple[str, ...]:
        """Return the names of a file's columns: those of the header, or column1, column2, ..."""
        rows = self.first_rows(path, 1)
        first_row = rows[0] if rows else []
        if self.header:
            return tuple(first_row)
        return tuple(f"column{number}" for number in range(1, len(first_row) + 1))

    def arrow_options(self, names: Sequence[str]) -> tuple[Any, ...]:
        """Return the options by which Arrow reads the file: for reading, parsing and converting.

        Every cell becomes text, or null if it has one of the ``NULLS``.

        Args:
            names: the columns.
        """
        # Arrow's own utf8 passes over the byte order mark.
        encoding = "utf8" if self.codec == "utf-8-sig" else self.encoding
        names_without_header = None if self.header else list(names)
        return (
            pa.csv.ReadOptions(
                column_names=names_without_header,
                encoding=encoding,
                block_size=_PARSED_BYTES,
            ),
            pa.csv.ParseOptions(delimiter=self.separator, newlines_in_values=True),
            pa.csv.ConvertOptions(
                column_types={name: pa.string() for name in names},
                strings_can_be_null=True,
                null_values=NULLS,
            ),
        )


@contextmanager
def open_text(path: Path, codec: str) -> Iterator[TextIO]:
    """Open a text file, compressed or not, with its line ends as they are.

    Args:
        path: the file. One whose name ends in .gz is decompressed.
        codec: Python's name of the encoding.

    Raises:
        DataError: a compressed file is truncated, damaged, or not compressed. That is found while
            it is read.
    """
    if path.suffix.lower() != ".gz":
        with path.open(encoding=codec, newline="") as file:
            yield file
        return
    try:
        with gzip.open(path, "rt", encoding=codec, newline="") as file:
            yield file
    except _TRUNCATION_ERRORS as error:
        raise DataError(
            f"{path}: the compressed data is truncated or damaged after line "
            f"{_count_intact_lines(path)} ({first_line(error)}): copy the file again, or compress "
            "the table again with gzip"
        ) from None


def _count_intact_lines(path: Path) -> int:
    """Return how many lines of a damaged compressed file can be decompressed."""
    lines = 0
    with gzip.open(path) as file, suppress(*_TRUNCATION_ERRORS):
        for line in file:
            lines += line.endswith(b"\n")
    return lines


def read_head(path: Path) -> bytes:
    """Return the first ``HEAD_BYTES`` bytes of a csv, decompressed.

    Raises:
        DataError: a compressed file is truncated, damaged, or not compressed.
    """
    with open_text(path, "latin-1") as file:  # latin-1 maps each byte to one character, and back
        return file.read(HEAD_BYTES).encode("latin-1")


def check_query_format(path: Path, csv_format: CsvFormat) -> None:
    """Raise DataError if a file of queries has another encoding or separator than it is read with.

    Args:
        path: the file.
        csv_format: how the training file is cut into cells, and with it the file of queries.
    """
    encoding = codecs.lookup(csv_format.encoding).name.upper()
    try:
        with open_text(path, csv_format.codec) as file:
            first_row = file.readline()
            while file.read(_PARSED_BYTES):
                pass
        decodes = "\0" not in first_row  # as of UTF-16 that is read as UTF-8
    except UnicodeError:
        decodes = False
    if not decodes:
        raise DataError(
            f"{path}: the text of this file is not {encoding}, but queries are read in the "
            f"encoding of the training file: save this file as {encoding}"
        )
    check_separator(path, first_row, csv_format.separator)


def describe_odd_line(path: Path, csv_format: CsvFormat, error: Exception) -> str:
    """Return in words why a csv cannot be divided into cells.

    That is its first line with another number of cells, if there is one.

    Args:
        path: the file.
        csv_format: how it is cut into cells.
        error: what the library that failed to read it raised.
    """
    with open_text(path, csv_format.codec) as file, suppress(csv.Error, UnicodeError):
        description = odd_line(csv.reader(file, delimiter=csv_format.separator))
        if description is not None:
            return description
    return describe_damage(error)
