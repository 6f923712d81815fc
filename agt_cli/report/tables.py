"""What a table says, on a terminal as in Markdown."""

from collections.abc import Sequence

MISSING = ("", "-")
# letters from which a table says a text once: one that is in every row, and in more than one
CLAUSE = 24
SENTENCE = 32


def told_once(
    columns: Sequence[str], rows: Sequence[Sequence[str]]
) -> tuple[Sequence[str], Sequence[Sequence[str]], list[str]]:
    """The same table with no sentence twice, and the sentences that belong below it.

    A column that says one sentence in every row is taken out; a sentence in more than one has (1),
    (2), ... in its place.
    """
    kept = []
    notes = []
    told = dict[str, str]()
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
