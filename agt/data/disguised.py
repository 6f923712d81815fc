"""Files that are something else than a table, or than their name says.

The messages name the file, the line where one decides, and the format that was found.
"""

import codecs
import json
import re
from pathlib import Path
from typing import Any

from agt.data.suffixes import empty_table
from agt.errors import CsvFormatError, DataError, counted
from agt.messages import Message

HEAD_BYTES = 2**12
"""How many bytes at the beginning of a file are read to find out what it is."""
_GZIP = b"\x1f\x8b"
_MAGIC = {
    b"PAR1": ("a parquet file", "rename it to {stem}.parquet"),
    b"PK\x03\x04": (
        "a zip archive (Excel workbooks, .xlsx, are zip archives)",
        "export the sheet as csv, or unpack the archive",
    ),
    b"\xd0\xcf\x11\xe0": ("an old Excel workbook (.xls)", "export the sheet as csv"),
    b"SQLite format 3": ("an SQLite database", "export the table as csv"),
    b"%PDF": ("a PDF document", "export the table as csv"),
    b"\x28\xb5\x2f\xfd": (
        "compressed with zstd",
        "decompress the file, or compress it with gzip instead",
    ),
    b"BZh": ("compressed with bzip2", "decompress the file, or compress it with gzip instead"),
    b"\xfd7zXZ": ("compressed with xz", "decompress the file, or compress it with gzip instead"),
    b"ARROW1": ("an Arrow (Feather) file", "save the table as parquet or csv"),
    b"FEA1": ("a Feather file", "save the table as parquet or csv"),
    b"ORC": ("an ORC file", "save the table as parquet or csv"),
    b"\x89HDF": ("an HDF5 file", "save the table as parquet or csv"),
    b"\x93NUMPY": ("an array of NumPy", "rename it to {stem}.npy, in a folder of arrays"),
    b"$FL2": ("a data file of SPSS", "save the table as parquet or csv"),
    b"<stata_dta>": ("a data file of Stata", "save the table as parquet or csv"),
    b"@relation": ("an ARFF file", "save the table as parquet or csv"),
}
_MAGIC_BYTES = 64
"""How many bytes at the beginning of a file that is not text have some that no text has."""
_ZEROS_OF_UTF16 = 0.4
"""The least share of zeros among the bytes at even, or at odd, places in UTF-16.

Text of mostly latin letters has more of them.
"""
_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
"""Control characters that no text has often, unlike tabs, ends of lines, and the escape character
of some encodings.
"""
_MOST_CONTROLS = 0.05
"""The greatest share of control characters in text; random bytes have about twice as many."""
_OTHER_SEPARATORS = (",", ";", "\t", "|")
_SHOWN_CHARACTERS = 40


def check_text_kind(path: Path, head: bytes, encoding: str) -> None:
    """Raise DataError if the first bytes of a csv file show that it has another format.

    Args:
        path: the file, for messages.
        head: its first bytes, decompressed.
        encoding: the encoding in which the text of the file is to be read.
    """
    _check_magic(path, head)
    actual_encoding = encoding_without_mark(head)
    declared_codec = codecs.lookup(encoding).name
    if actual_encoding and not declared_codec.startswith(("utf-16", "utf-32")):
        raise CsvFormatError(
            Message(
                "{path}: the text is in {name} without a byte order mark: save it as UTF-8, or "
                "give {config:dataset.csv.encoding}={encoding}",
                path=path,
                name=actual_encoding.upper(),
                encoding=actual_encoding,
            )
        )
    if not head.strip():
        raise DataError(empty_table(path))
    text = head.decode(encoding, errors="replace").lstrip("\ufeff")
    # Text in UTF-16 has zeros in any other encoding. Where it has a mark, reading it says so.
    is_marked_utf16 = head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    has_many_controls = len(_CONTROLS.findall(text)) > _MOST_CONTROLS * len(text)
    if has_many_controls and not is_marked_utf16:
        raise DataError(
            f"{path}: this file is not a table, because it is not text (it contains many control "
            "characters): give a csv or parquet file, or export the table as csv"
        )
    first_line = next(iter(text.splitlines()), "").strip()
    _check_first_line(path, text.lstrip(), first_line)


def _check_magic(path: Path, head: bytes) -> None:
    """Raise DataError if the first bytes of a csv file are those by which another format begins.

    Args:
        path: the file, for messages.
        head: its first bytes, decompressed.
    """
    has_controls = _CONTROLS.search(head[:_MAGIC_BYTES].decode("latin-1")) is not None
    for magic, (kind, remedy) in _MAGIC.items():
        may_be_name = magic.isalnum() and not has_controls  # a column may have the name PAR1
        if head.lower().startswith(magic.lower()) and not may_be_name:
            raise DataError(
                f"{path}: this file is {kind}, not csv: {remedy.format(stem=path.stem)}"
            )


def _check_first_line(path: Path, text: str, first: str) -> None:
    """Raise DataError if the first line shows that a text is not csv.

    Args:
        path: the file, for messages.
        text: the beginning of its text.
        first: the first line.
    """
    separator = re.fullmatch(r'"?sep=(.)"?', first, re.IGNORECASE | re.ASCII)
    if separator:
        raise CsvFormatError(
            Message(
                "{path}: line 1 ({line}) only tells Excel which separator the table uses: remove "
                "this line and give {config:dataset.csv.separator}={separator!r}",
                path=path,
                line=first,
                separator=separator[1],
            )
        )
    if text[:500].lower().startswith(("<!doctype html", "<html", "<table", "<?xml")):
        kind = "XML" if text.startswith("<?xml") else "HTML"
        raise DataError(
            f"{path}: line 1 ({_shown(first)}) is the beginning of a page of {kind}, not of csv: "
            "save the table itself as csv"
        )
    if _is_json(first):
        has_records_in_lines = first.startswith(("{", '["')) and first.endswith(("}", "]"))
        kind = "JSON lines" if has_records_in_lines else "JSON"
        lines = ", lines=True" if kind == "JSON lines" else ""
        command = f"pandas.read_json('{path.name}'{lines}).to_csv('table.csv', index=False)"
        raise DataError(
            f"{path}: line 1 ({_shown(first)}) is {kind}, not csv: convert the file, for example "
            f"in Python with `{command}`"
        )


def _is_json(first: str) -> bool:
    """Return whether a first line begins JSON: an object or list, or its opening bracket."""
    if first in ("{", "["):
        return True
    if re.match(r'\{\s*"[^"]*"\s*:\s*([{\[]|$)', first):
        return True
    if not first.startswith(("{", "[{", "[[", '["')):
        return False
    try:
        json.loads(first.rstrip(",") + "]" * (first.count("[") - first.count("]")))
    except (ValueError, RecursionError):  # brackets within brackets, thousands of them
        # a long first line is cut
        return len(first) > HEAD_BYTES // 4
    return True


def check_compression(path: Path) -> None:
    """Raise DataError unless a file is compressed with gzip exactly if its name ends in .gz."""
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    has_suffix = path.suffix.lower() == ".gz"
    if has_suffix and head and not head.startswith(_GZIP):
        first = next(iter(head.decode("utf-8", errors="replace").splitlines()), "")
        raise DataError(
            f"{path}: the name ends in .gz, but the file is not compressed with gzip (line 1 is "
            f"{_shown(first)}): rename it to {path.stem}, or compress it with gzip"
        )
    if not has_suffix and head.startswith(_GZIP):
        raise DataError(
            f"{path}: the file is compressed with gzip, but its name does not end in .gz: rename "
            f"it to {path.name}.gz, or decompress it"
        )


def check_parquet(path: Path) -> None:
    """Raise DataError if a file called parquet begins as no such file does."""
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    if head.startswith((b"PAR1", b"PARE")) or not head:
        return
    first = next(iter(head.decode("utf-8", errors="replace").splitlines()), "")
    hint = ""
    if first.isprintable():
        hint = f" (line 1 is {_shown(first)}). If the file is csv, rename it to {path.stem}.csv"
    raise DataError(f"{path}: this is not a parquet file{hint}")


def encoding_without_mark(head: bytes) -> str | None:
    """Return the encoding of text that seems to be UTF-16 without a byte order mark.

    Args:
        head: the first bytes of the text.

    Returns:
        "utf-16-le" or "utf-16-be"; None: there is a mark, or another encoding.
    """
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or len(head) < 4:
        return None
    even = head[0::2]
    odd = head[1::2]
    zeros_at_even = even.count(0) / len(even)
    zeros_at_odd = odd.count(0) / len(odd)
    if zeros_at_odd > _ZEROS_OF_UTF16 > 10 * zeros_at_even:
        return "utf-16-le"
    if zeros_at_even > _ZEROS_OF_UTF16 > 10 * zeros_at_odd:
        return "utf-16-be"
    return None


def _shown(line: str) -> str:
    """Return a line in quotation marks, shortened if it is long."""
    if len(line) > _SHOWN_CHARACTERS:
        return repr(f"{line[:_SHOWN_CHARACTERS]}...")
    return repr(line)


def odd_line(reader_of_lines: Any) -> str | None:
    """Return in words what is wrong with the first row that has another number of cells.

    Args:
        reader_of_lines: a ``csv.reader`` of the file.

    Returns:
        None if all rows have as many cells as the first one.
    """
    width = 0
    start = 1
    separated = ""
    for cells in reader_of_lines:
        end = reader_of_lines.line_num
        if cells and not width:
            width = len(cells)
            first = start
            separated = _separated_otherwise(cells, first)
        if cells and len(cells) != width and separated:
            return separated
        if cells and len(cells) != width:
            return _other_width(cells, width, start, end, first)
        start = end + 1
    return None


def _separated_otherwise(cells: list[str], first: int) -> str:
    """Return words for a first line of one cell that another separator divides; else empty."""
    marks = [mark for mark in _OTHER_SEPARATORS if mark in cells[0]]
    if len(cells) > 1 or not marks:
        return ""
    mark = max(marks, key=cells[0].count)
    return (
        f"line {first} has 1 cell, in which {mark!r} stands {counted(cells[0].count(mark), 'time')}"
        f": if {mark!r} separates the cells, give it as dataset.csv.separator"
    )


def _other_width(cells: list[str], width: int, start: int, end: int, first: int) -> str:
    """Return in words what is wrong with a row that has another number of cells.

    Args:
        cells: the row.
        width: the number of cells of the first row.
        start: the row's first line.
        end: the row's last line.
        first: the line of the first row.
    """
    if end > start and len(cells) < width:
        return (
            f'line {start} opens a quotation mark (") that is not closed before line {end}: close '
            "or remove it"
        )
    if width == 1:
        return (
            f"line {first} has 1 cell, but line {start} has {len(cells)}: remove all lines above "
            "the line that names the columns"
        )
    return (
        f"line {start} has {len(cells)} cells, but line {first} has {width}: correct this line, "
        'and put quotation marks (") around cells that contain the separator'
    )
