"""How a csv is divided into cells, guessed from its first lines.

Only ``agt data inspect`` and ``agt start`` guess, and write what they guessed into a configuration.
"""

import codecs
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from agt.data.csv_format import CsvFormat, open_text, read_head
from agt.data.disguised import check_text_kind, encoding_without_mark
from agt.data.files import check_kind
from agt.data.header import SEPARATORS
from agt.errors import DataError, counted

_SNIFFED_LINES = 50
_MAX_TITLE_LINES = 20
GUESSED_ENCODINGS = ("latin-1", "cp1252")
"""Of text that is not UTF-8 and has no mark; it may be in another encoding of single bytes."""
_CONTROLS = re.compile("[\x80-\x9f]")


def guess_csv_format(path: Path, header: bool = True) -> CsvFormat:
    """Return the format of a csv, guessed from its first lines.

    The separator is the one that divides all of these lines into the same number of cells, and into
    the most cells. Blanks are only taken if no other separator divides them. The encoding is utf-16
    or utf-32 if a byte order mark or zeros between the letters show it; utf-8 if the whole file is
    such text; else cp1252 or latin-1.

    Args:
        path: the path of the file, which may be compressed.
        header: True: its first line names the columns.

    Raises:
        DataError: a compressed file is damaged, or no separator divides the lines into cells.
    """
    check_kind(path)
    head = read_head(path)
    encoding = _encoding(path, head)
    check_text_kind(path, head, encoding)
    widths_by_separator = {}  # separator -> the number of cells of each line that is not empty
    rows_by_separator = {}
    problems = []
    for separator in SEPARATORS:
        try:
            rows = CsvFormat(separator, encoding).first_rows(path, _SNIFFED_LINES)
        except DataError as problem:
            problems.append(problem)
            continue
        rows_by_separator[separator] = rows
        widths_by_separator[separator] = [len(row) for row in rows if row] or [0]
    if not rows_by_separator:
        raise problems[0]
    _check_no_blank_lines(path, next(iter(rows_by_separator.values())))
    dividing = [name for name, widths in widths_by_separator.items() if widths[0] > 1]
    uniform = [name for name, widths in widths_by_separator.items() if len({*widths}) == 1]
    fitting = [name for name in dividing if name in uniform]
    if not fitting:
        _check_no_title_lines(path, rows_by_separator)
    if fitting in ([], [" "]):
        _check_not_aligned(path, rows_by_separator)
    # Blanks only where no other separator divides the lines. That all lines have the same number of
    # cells counts more than many cells.
    candidates = [name for name in dividing if name != " "] or [*widths_by_separator]
    best = max(candidates, key=lambda name: (name in uniform, widths_by_separator[name][0]))
    return CsvFormat(best, encoding, header)


def _encoding(path: Path, head: bytes) -> str:
    """Return the encoding of a csv.

    Args:
        path: the path of the file, which is read if its beginning does not show the encoding.
        head: the first bytes.
    """
    if head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "utf-32"
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if (unmarked := encoding_without_mark(head)) is not None:
        return unmarked
    if _is_text_in(path, "utf-8"):
        return "utf-8"
    # What is a control character in latin-1 is a letter or sign, such as €, in cp1252.
    latin, with_signs = GUESSED_ENCODINGS
    if _is_text_in(path, latin, without=_CONTROLS) or not _is_text_in(path, with_signs):
        return latin
    return with_signs


def _is_text_in(path: Path, encoding: str, without: re.Pattern[str] | None = None) -> bool:
    """Return whether a file is text in an encoding, without a match of a pattern."""
    try:
        with open_text(path, encoding) as file:
            while text := file.read(2**20):
                if without is not None and without.search(text):
                    return False
    except UnicodeError:
        return False
    return True


def _check_no_blank_lines(path: Path, rows: Sequence[Sequence[str]]) -> None:
    """Raise DataError if lines above a table have nothing but blanks and separators."""
    blanks = "".join(SEPARATORS)
    filled = [index for index, row in enumerate(rows) if "".join(row).strip(blanks)]
    if filled and filled[0] > 0:
        count = filled[0]
        lines = "line 1 is" if count == 1 else f"the first {count} lines are"
        raise DataError(
            f"{path}: {lines} blank: remove what is above line {count + 1}, where the table begins"
        )


def _check_no_title_lines(path: Path, rows_by_separator: Mapping[str, list[list[str]]]) -> None:
    """Raise DataError if lines above the table, such as a title, are divided otherwise than it."""
    for separator, rows in rows_by_separator.items():
        widths = [len(row) for row in rows]
        width = max(widths, default=0)
        start = widths.index(width) if widths else 0
        below = [other for other in widths[start:] if other]
        if separator == " " or not 0 < start <= _MAX_TITLE_LINES or len(below) < 2:
            continue
        if set(below) == {width} and width > 1:
            line = next(number for number, row in enumerate(rows, start=1) if row)
            above = separator.join(rows[line - 1])
            first = separator.join(rows[start])
            table_line = start + 1
            lines_above = counted(start, "line")
            raise DataError(
                f"{path}: line {line} ({above!r}) is not a line of the table, because the table "
                f"begins with line {table_line} ({first!r}) and has {width} cells in each line: "
                f"remove {lines_above} above line {table_line}"
            )


def _check_not_aligned(path: Path, rows_by_separator: Mapping[str, list[list[str]]]) -> None:
    """Raise DataError if columns are aligned by several blanks."""
    rows = rows_by_separator.get(" ", [])
    widths = {len([cell for cell in row if cell]) for row in rows} - {0}
    width = max(widths, default=0)
    if len(widths) != 1 or width < 2 or not any("" in row for row in rows):
        return
    line = " ".join(rows[0])
    raise DataError(
        f"{path}: line 1 ({line!r}) has {width} columns that are aligned by blanks, but agt "
        "needs one separator between two cells: replace the blanks by a separator, for "
        f"example with the command `sed -E 's/^ +//; s/ +$//; s/ +/;/g' {path.name}`"
    )
