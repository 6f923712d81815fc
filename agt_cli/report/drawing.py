"""What rich draws on a terminal: tables, trees, questions and bars.

The console imports this where it draws, because rich takes a tenth of a second to load, and most
mistakes on a command line are answered with one line.
"""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console as Rich
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.prompt import Prompt
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from agt_cli.process import visible, write_line
from agt_cli.report.tables import is_number, repeated_text_to_footnotes

if TYPE_CHECKING:
    from agt_cli.report.console import TreeBranch

MAX_UNBROKEN_CELL = 24  # characters of a cell that is never broken
MAX_UNBROKEN_NAME = 40  # of one in the first column, where names of folders stand


def draw_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write a table to standard output, its numbers right-aligned."""
    visible_rows = [[*map(visible, row)] for row in rows]
    columns, rows, notes = repeated_text_to_footnotes([*map(visible, columns)], visible_rows)
    table = Table(box=box.SIMPLE_HEAD)
    for position, column in enumerate(columns):
        numeric = all(is_number(row[position]) for row in rows)
        cells = [row[position] for row in rows]
        widest = max(map(len, cells), default=0)
        # an interval is read in one line
        is_unbroken = any("[" in cell for cell in cells) and widest <= MAX_UNBROKEN_CELL
        # to be copied
        is_unbroken = is_unbroken or (
            not position and widest <= MAX_UNBROKEN_NAME and not any(" " in cell for cell in cells)
        )
        table.add_column(
            column, justify="right" if numeric else "left", overflow="fold", no_wrap=is_unbroken
        )
    for row in rows:
        table.add_row(*row)
    # its own title breaks at its width
    _print_parts(Text(visible(title), style="bold"), table, *notes)


def draw_tree(title: str, root: "TreeBranch") -> None:
    """Write a tree to standard output, as text on every terminal."""
    drawn = Tree(Text(visible(root[0])), guide_style="dim")
    _add_branches(drawn, root[1])
    _print_parts(Text(visible(title), style="bold"), drawn)


def ask(text: str, default: str) -> str:
    """Ask a question at the terminal, and return the answer; an empty line means ``default``.

    Raises:
        EOFError: there is no more input.
    """
    return Prompt.ask(Text(visible(text, "\n")), default=default, show_default=bool(default))


def progress_bar() -> Progress:
    """Return a live bar on standard error, which is removed when it ends."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[steps]}"),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=Rich(stderr=True), transient=True)


def _print_parts(*parts: Any) -> None:
    """Print parts (text, tables, trees) on standard output, one below another."""
    # Not cut to 80 columns where nobody's terminal sets the width.
    rich = Rich(width=None if sys.stdout.isatty() else 120, markup=False, highlight=False)
    with rich.capture() as text:  # rich would end the process where nobody reads
        rich.print(*parts, sep="\n")
    write_line(text.get().removesuffix("\n"), "stdout")


def _add_branches(tree: Tree, branches: "Sequence[TreeBranch]") -> None:
    """Add branches, and the branches below them, to a tree of rich."""
    for words, parts in branches:
        _add_branches(tree.add(Text(visible(words))), parts)
