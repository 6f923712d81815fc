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

from agt_cli.process import put, visible

Report = Callable[[int, int, int, int], None]
"""Called with step, steps, done, total; done and total in whatever unit of work the caller
counts.
"""

TreeBranch = tuple[str, Sequence[Any]]
"""A line, and the branches below it."""


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
        from agt_cli.report.drawing import draw_table

        draw_table(title, columns, rows)

    def tree(self, title: str, root: "TreeBranch") -> None:
        """A tree of the result, on stdout, as text on every terminal."""
        if self.json:
            return
        from agt_cli.report.drawing import draw_tree

        draw_tree(title, root)

    def ask(self, text: str, usual: str) -> str:
        """What whoever sits at the terminal answers; an empty line: the usual.

        No more input counts as an interruption.
        """
        from agt_cli.report.drawing import ask

        try:
            return ask(text, usual)
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
            from agt_cli.report.drawing import progress_bar

            with progress_bar() as bar:
                task = bar.add_task(label, total=None, steps="")
                yield lambda step, steps, done, total: bar.update(
                    task, completed=done, total=total, steps=_of(unit, step, steps)
                )
        else:
            yield _Lines(label, unit)


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


def _of(unit: str, part: int, whole: int) -> str:
    return f"{unit} {part}/{whole}"


def show(number: float | None, digits: int = 3) -> str:
    """A number for a table; '-' where there is none."""
    return "-" if number is None or number != number else f"{number:.{digits}f}"


def cell(value: object, digits: int) -> str:
    return show(value, digits) if value is None or isinstance(value, float) else str(value)
