"""Move repeated sentences out of a table, for the terminal and for Markdown."""

from collections.abc import Sequence
from typing import NamedTuple

MISSING = ("", "-")
CLAUSE = 24  # characters from which a text that all rows have is moved below the table
SENTENCE = 32  # characters from which a text that several rows have is moved below the table


class TableWithNotes(NamedTuple):
    """A table, and the notes to be shown below it.

    Attributes:
        columns: the titles.
        rows: a cell for each column.
        notes: the notes.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: list[str]


def repeated_text_to_footnotes(
    columns: Sequence[str], rows: Sequence[Sequence[str]]
) -> TableWithNotes:
    """Return a table in which no sentence is repeated.

    A column whose cells all have the same sentence is removed. A sentence that several cells of a
    column have is replaced by (1), (2), ...

    Args:
        columns: the titles.
        rows: a cell for each column.
    """
    remaining = []
    notes = []
    marks: dict[str, str] = {}
    for name, cells in zip(columns, zip(*rows, strict=True), strict=False):
        present = [cell for cell in cells if cell not in MISSING]
        if len(present) > 1 and len(set(present)) == 1 and len(present[0]) >= CLAUSE:
            notes.append(f"{name}: {present[0]}" if name else present[0])
            continue
        for cell in cells:
            if len(cell) >= SENTENCE and cells.count(cell) > 1 and " " in cell:
                marks.setdefault(cell, f"({len(marks) + 1})")
        remaining.append([name, *(marks.get(cell, cell) for cell in cells)])
    if not notes and not marks:
        return TableWithNotes(columns, rows, [])
    titles, *lines = zip(*remaining, strict=True)
    marked = [f"{mark} {sentence}" for sentence, mark in marks.items()]
    return TableWithNotes(titles, lines, [*notes, *marked])


def is_number(text: str) -> bool:
    """Return whether a cell is a number, with commas or % or not, or is empty."""
    try:
        float(text.replace(",", "").rstrip("%"))
    except ValueError:
        return text in MISSING
    return True
