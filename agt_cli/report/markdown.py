"""Markdown that reads well as it is, and in which a name from data stays a name."""

import re
from collections.abc import Sequence

SPECIAL = re.compile(r"""
    [\\`*\[\]~]                              # code, emphasis, links, strokes
    | <(?=[A-Za-z/!?]) | &(?=\#?\w+;)        # HTML
    | (?<![^\W_])_ | _(?![^\W_])             # an underscore inside a word means nothing
    | ^(?:[>\#] | [-+=](?=\s))               # what begins a quotation, a heading or a list
    """, re.VERBOSE)  # fmt: skip
MISSING = ("", "-")
CLAUSE, SENTENCE = 24, 32  # letters from which a table says a text once: one that is in every row, and in more than one


class Markdown(str):
    """Text that is Markdown already; any other is a name or a number."""

    __slots__ = ()


def visible(text: str, most: int = 400) -> str:
    """Text that nobody vouches for, on one line: what a terminal or a page would act on stands there as it is written.

    Args:
        most: characters; more are cut off, and said to be.
    """
    words = (
        " ".join(text.split()) if len(text) <= most else f"{' '.join(text[:most].split())}... ({len(text):,} characters)"
    )
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in words)


def plain(text: str) -> str:
    """Text as Markdown that shows exactly it, on one line."""
    return text if isinstance(text, Markdown) else SPECIAL.sub(r"\\\g<0>", " ".join(text.split()))


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table, numbers right-aligned; what every row, or more than one, would say in the same sentence is said below it."""
    columns, rows, notes = told_once(columns, rows)
    ends = ["---:" if rows and all(is_number(row[place]) for row in rows) else "---" for place in range(len(columns))]
    lines = [[*map(_cell, columns)], ends, *([*map(_cell, row)] for row in rows)]
    drawn = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return "\n\n".join([drawn, *(plain(note) for note in notes)])


def told_once(
    columns: Sequence[str], rows: Sequence[Sequence[str]]
) -> tuple[Sequence[str], Sequence[Sequence[str]], list[str]]:
    """The same table with no sentence twice, and the sentences that belong below it.

    A column that says one sentence in every row is taken out; a sentence in more than one has (1), (2), ... in its place.
    """
    kept, notes, told = [], [], dict[str, str]()
    for name, cells in zip(columns, zip(*rows, strict=True), strict=False):
        there = [cell for cell in cells if cell not in MISSING]
        if len(there) > 1 and len(set(there)) == 1 and len(there[0]) >= CLAUSE:
            notes.append(f"{name}: {there[0]}" if name else there[0])
            continue
        for cell in cells:
            if len(cell) >= SENTENCE and cells.count(cell) > 1 and " " in cell:
                told.setdefault(cell, f"({len(told) + 1})")
        kept.append([name, *(told.get(cell, cell) for cell in cells)])
    if not notes and not told:
        return columns, rows, []
    head, *lines = zip(*kept, strict=True)
    return head, lines, [*notes, *(f"{mark} {cell}" for cell, mark in told.items())]


def is_number(text: str) -> bool:
    """Whether a column of such texts is one of numbers."""
    try:
        float(text.replace(",", "").rstrip("%"))
    except ValueError:
        return text in MISSING
    return True


def _cell(text: str) -> str:
    return plain(text).replace("|", "\\|")
