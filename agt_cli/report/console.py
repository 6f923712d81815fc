"""What a command says: results on stdout, everything else on stderr, and with --json one object
alone on stdout.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console as Rich
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.prompt import Prompt
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from agt_cli.process import put, visible
from agt_cli.report.markdown import is_number, told_once

Report = Callable[[int, int, int, int], None]
"""Called with step, steps, done, total; done and total in whatever unit of work the caller
counts.
"""

TreeBranch = tuple[str, Sequence[Any]]
"""A line, and the branches below it."""

_WHOLE = 24  # characters of a cell that is never broken
_NAME = 40  # of one in the first column, where names of folders stand


@dataclass(frozen=True)
class Console:
    """Where a command's words go, ``visible``, whatever names and values from data they hold.

    Attributes:
        json: nothing but one JSON object goes to stdout.
        quiet: no progress, no hints.
        verbose: tracebacks for bugs.
    """

    json: bool = False
    quiet: bool = False
    verbose: bool = False

    def note(self, text: str) -> None:
        """A line for a person, on stderr."""
        if not self.quiet:
            self.warn(text)

    def warn(self, text: str) -> None:
        """A line on stderr that nobody asked not to see."""
        put(visible(text), "stderr")

    def say(self, text: str) -> None:
        """A line of the result, on stdout."""
        if not self.json:
            put(visible(text), "stdout")

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """A table of the result, on stdout; numbers right-aligned."""
        if self.json:
            return
        shown = [[*map(visible, row)] for row in rows]
        columns, rows, notes = told_once([*map(visible, columns)], shown)
        table = Table(box=box.SIMPLE_HEAD)
        for position, column in enumerate(columns):
            numeric = all(is_number(row[position]) for row in rows)
            cells = [row[position] for row in rows]
            widest = max(map(len, cells), default=0)
            # an interval is read in one line
            whole = any("[" in cell for cell in cells) and widest <= _WHOLE
            # to be copied
            whole = whole or (
                not position and widest <= _NAME and not any(" " in cell for cell in cells)
            )
            table.add_column(
                column, justify="right" if numeric else "left", overflow="fold", no_wrap=whole
            )
        for row in rows:
            table.add_row(*row)
        # its own title breaks at its width
        self._draw(Text(visible(title), style="bold"), table, *notes)

    def tree(self, title: str, root: "TreeBranch") -> None:
        """A tree of the result, on stdout, as text on every terminal."""
        if self.json:
            return
        drawn = Tree(Text(visible(root[0])), guide_style="dim")
        _grow(drawn, root[1])
        self._draw(Text(visible(title), style="bold"), drawn)

    def _draw(self, *parts: Any) -> None:
        # Not cut to 80 columns where nobody's terminal sets the width.
        rich = Rich(width=None if sys.stdout.isatty() else 120, markup=False, highlight=False)
        with rich.capture() as text:  # rich would end the process where nobody reads
            rich.print(*parts, sep="\n")
        put(text.get().removesuffix("\n"), "stdout")

    def ask(self, text: str, usual: str) -> str:
        """What whoever sits at the terminal answers; an empty line: the usual.

        No more input counts as an interruption.
        """
        try:
            return Prompt.ask(Text(visible(text, "\n")), default=usual, show_default=bool(usual))
        except EOFError:
            raise KeyboardInterrupt from None

    def emit(self, value: dict[str, Any]) -> None:
        """The one object of --json."""
        if self.json:
            put(json.dumps(value, default=str), "stdout")

    def error(self, text: str) -> None:
        """An error, on stderr."""
        put(f"agt: error: {visible(text)}", "stderr")

    @contextmanager
    def progress(self, label: str, unit: str = "step") -> Iterator[Report]:
        """Progress on stderr: a live bar on a terminal, a line now and then elsewhere, nothing if
        quiet.

        Args:
            label: what is going on.
            unit: what a step is.
        """
        if self.quiet:
            yield lambda step, steps, done, total: None
        elif sys.stderr.isatty():
            with _bar() as bar:
                task = bar.add_task(label, total=None, steps="")
                yield lambda step, steps, done, total: bar.update(
                    task, completed=done, total=total, steps=_of(unit, step, steps)
                )
        else:
            yield _Lines(label, unit)


def _bar() -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[steps]}"),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=Rich(stderr=True), transient=True)


class _Lines:
    """Progress as sparse lines: at each tenth of the work, and at most one in five seconds."""

    interval = 5.0

    def __init__(self, label: str, unit: str) -> None:
        self.label, self.unit = label, unit
        self.start = self.last = time.monotonic()
        self.tenth = 0

    def __call__(self, step: int, steps: int, done: int, total: int) -> None:
        now, tenth = time.monotonic(), 10 * done // max(total, 1)
        if tenth <= self.tenth or now - self.last < self.interval:
            return
        self.tenth, self.last = tenth, now
        left = (now - self.start) * (total - done) / max(done, 1)
        where = _of(self.unit, step, steps)
        percent = 10 * tenth
        put(f"{self.label}: {percent} %, {where}, about {left:.0f} s left", "stderr")


def _grow(tree: Tree, branches: Sequence[TreeBranch]) -> None:
    for words, parts in branches:
        _grow(tree.add(Text(visible(words))), parts)


def _of(unit: str, part: int, whole: int) -> str:
    return f"{unit} {part}/{whole}"


def show(number: float | None, digits: int = 3) -> str:
    """A number for a table; '-' where there is none."""
    return "-" if number is None or number != number else f"{number:.{digits}f}"


def cell(value: object, digits: int) -> str:
    return show(value, digits) if value is None or isinstance(value, float) else str(value)
