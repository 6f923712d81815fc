"""Tables as text: csv and its relatives, every cell of them text until a caller asks for numbers.

How a file is cut into cells is a setting and never guessed while training (method.md section 3, condition b): one record
could change a guess, and so every other record. ``sniffed`` guesses once, for whoever writes the setting down.
"""

import codecs
import csv
import gzip
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa
import pyarrow.csv

from agt.settings import schema

SUFFIXES = (".csv", ".tsv", ".txt", ".data")
NULLS = ["", "NA", "N/A", "NaN", "nan", "null", "NULL"]
SEPARATORS = (",", ";", "\t", "|", " ")
_SNIFFED_LINES = 50
_BLOCK = 2**22  # bytes that arrow parses at once


@schema
class CsvFormat:
    """How a text file is cut into cells.

    Attributes:
        separator: the one character between cells.
        encoding: of the text, by Python's name for it; utf-8 may begin with a byte order mark.
        header: the first line names the columns; otherwise they are column1, column2, ...
    """

    separator: str = ","
    encoding: str = "utf-8"
    header: bool = True

    def __post_init__(self) -> None:
        if len(self.separator) != 1 or self.separator in '"\r\n':
            raise ValueError(f"separator must be one character, and no quotation mark or line end, got {self.separator!r}")
        try:
            codecs.lookup(self.encoding)
        except LookupError:
            raise ValueError(f"encoding={self.encoding} is unknown: use utf-8, latin-1, cp1252 or utf-16") from None

    @property
    def codec(self) -> str:
        """Python's name of the encoding, by which a byte order mark is passed over."""
        return _plain(self.encoding, "utf-8-sig")

    def names(self, path: Path) -> tuple[str, ...]:
        """The columns of a file."""
        first = next(iter(self.rows(path, 1)), [])
        return tuple(first) if self.header else tuple(f"column{place}" for place in range(1, len(first) + 1))

    def rows(self, path: Path, most: int) -> list[list[str]]:
        """The first rows as they stand, a header included."""
        with opened(path, self.encoding) as file:
            return list(islice(csv.reader(file, delimiter=self.separator), most))

    def read(self, path: Path, names: Sequence[str]) -> pa.Table:
        """Every cell as text, null where a word of ``NULLS`` stands. Raises pyarrow's errors."""
        return pa.csv.read_csv(path, *self._options(names))

    def stream(self, path: Path, names: Sequence[str]) -> pa.RecordBatchReader:
        """The same, a few megabytes at once."""
        return pa.csv.open_csv(path, *self._options(names))

    def _options(self, names: Sequence[str]) -> tuple[Any, ...]:
        return (
            # utf8 is what arrow reads by itself; it passes over a byte order mark
            pa.csv.ReadOptions(
                column_names=None if self.header else list(names),
                encoding=_plain(self.encoding, "utf8"),
                block_size=_BLOCK,
            ),
            pa.csv.ParseOptions(delimiter=self.separator, newlines_in_values=True),
            pa.csv.ConvertOptions(
                column_types={name: pa.string() for name in names}, strings_can_be_null=True, null_values=NULLS
            ),
        )


def is_delimited(path: Path) -> bool:
    """Whether a file is a table as text, by its name; it may be compressed (.gz)."""
    bare = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    return bare.suffix.lower() in SUFFIXES


def opened(path: Path, encoding: str) -> TextIO:
    """A text file, compressed or not, its line ends as they are."""
    opener = gzip.open if path.suffix.lower() == ".gz" else open
    return opener(path, "rt", encoding=_plain(encoding, "utf-8-sig"), newline="")


def lines(path: Path) -> int:
    """The lines of a text file, a last one without an end included."""
    with opened(path, "latin-1") as file:  # any bytes; only line ends matter
        return sum(1 for _ in file)


def sniffed(path: Path, header: bool = True) -> CsvFormat:
    """The format that fits a file's first lines: the separator that cuts them into the same number of cells, and most.

    The encoding is utf-8, or utf-16 where a byte order mark says so; whether the text is UTF-8 shows when it is read.
    """
    with (gzip.open if path.suffix.lower() == ".gz" else open)(path, "rb") as file:
        mark = file.read(2)
    encoding = "utf-16" if mark in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8"
    letters = encoding if encoding == "utf-16" else "latin-1"  # whatever it is: separators are ASCII
    fits = {separator: _fit(path, CsvFormat(separator, letters)) for separator in SEPARATORS}
    some = {separator: fit for separator, fit in fits.items() if fit[1] > 1 and separator != " "}
    best = max(some or fits, key=lambda separator: fits[separator])  # a blank separates only where nothing else does
    return CsvFormat(best, encoding, header)


def _fit(path: Path, form: CsvFormat) -> tuple[bool, int]:
    """Whether every one of the first rows has as many cells as the first one, and how many that has."""
    with suppress(csv.Error):
        widths = [len(row) for row in form.rows(path, _SNIFFED_LINES) if row]
        return len(set(widths)) == 1, max(widths[:1], default=0)
    return False, 0


def _plain(encoding: str, utf8: str) -> str:
    """``utf8`` in place of any of the names of UTF-8."""
    return utf8 if codecs.lookup(encoding).name == "utf-8" else encoding
