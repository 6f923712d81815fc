"""Print what a command says: results on stdout, everything else on stderr.

With --json, one JSON object is the only thing on stdout.
"""

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from agt_cli.process import visible, write_line

Report = Callable[[int, int, int, int], None]
"""Reports progress: called with (step, steps, done, total).

The first two are shown ("step 3/10"); done of total, in any unit of work, give the percentage.
"""

TreeBranch = tuple[str, Sequence[Any]]
"""The text of a node of a tree, and the branches below it."""


@dataclass(frozen=True)
class Console:
    """Prints a command's lines, so that no text from data can act on the terminal (``visible``).

    Attributes:
        json: print nothing but one JSON object to stdout.
        quiet: print no progress and no notes.
        verbose: print the traceback of an error that is a bug.
    """

    json: bool = False
    quiet: bool = False
    verbose: bool = False

    def note(self, text: str) -> None:
        """Print a line on stderr, unless ``quiet``."""
        if not self.quiet:
            self.warn(text)

    def warn(self, text: str) -> None:
        """Print a line on stderr, even if ``quiet``."""
        write_line(visible(text), "stderr")

    def say(self, text: str) -> None:
        """Print a line of the result on stdout, unless ``json``."""
        if not self.json:
            write_line(visible(text), "stdout")

    def items(self, title: str, lines: Iterable[str]) -> None:
        """Print a list of the result on stdout under its title, unless ``json``."""
        self.say(title)
        for line in lines:
            self.say(f"  - {line}")

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print a table of the result on stdout, with numbers aligned right, unless ``json``."""
        if self.json:
            return
        from agt_cli.report.drawing import draw_table

        draw_table(title, columns, rows)

    def tree(self, title: str, root: "TreeBranch") -> None:
        """Print a tree of the result as text on stdout, unless ``json``."""
        if self.json:
            return
        from agt_cli.report.drawing import draw_tree

        draw_tree(title, root)

    def ask(self, text: str, default: str) -> str:
        """Ask a question at the terminal, and return the line that is typed.

        Args:
            text: the question.
            default: the answer that an empty line stands for; it is shown unless it is empty.

        Raises:
            KeyboardInterrupt: the input ended (Ctrl-D), which is treated like Ctrl-C.
        """
        from agt_cli.report.drawing import ask

        try:
            return ask(text, default)
        except EOFError:
            raise KeyboardInterrupt from None

    def emit(self, value: dict[str, Any]) -> None:
        """Print the object of --json on stdout; nothing without ``json``."""
        if self.json:
            write_line(json.dumps(value, default=str), "stdout")

    def error(self, text: str, heading: str = "error") -> None:
        """Print an error on stderr, even if ``quiet``.

        Args:
            text: the message.
            heading: what the error is called.
        """
        write_line(f"agt: {heading}: {visible(text)}", "stderr")

    @contextmanager
    def progress(self, label: str, unit: str = "step") -> Iterator[Report]:
        """Show the progress of some work on stderr while the context lasts.

        On a terminal it is a live bar, elsewhere a line now and then; nothing if ``quiet``.

        Args:
            label: the work, such as "training".
            unit: what a step is, such as "batch".

        Yields:
            The function to call with the progress.
        """
        if self.quiet:
            yield lambda step, steps, done, total: None
        elif sys.stderr.isatty():
            from agt_cli.report.drawing import progress_bar

            with progress_bar() as bar:
                task = bar.add_task(label, total=None, steps="")
                yield lambda step, steps, done, total: bar.update(
                    task, completed=done, total=total, steps=_step_text(unit, step, steps)
                )
        else:
            yield _ProgressLines(label, unit)


class _ProgressLines:
    """Prints progress on stderr as few lines: one for each tenth of the work that is completed.

    There is at most one line in five seconds; what comes in between is left out.
    """

    interval_seconds = 5.0

    def __init__(self, label: str, unit: str) -> None:
        self.label = label
        self.unit = unit
        self.start_time = time.monotonic()
        self.last_time = self.start_time
        self.last_tenth = 0

    def __call__(self, step: int, steps: int, done: int, total: int) -> None:
        """Take a progress report (``Report``), and print a line if one is due."""
        now = time.monotonic()
        tenth = 10 * done // max(total, 1)
        if tenth <= self.last_tenth or now - self.last_time < self.interval_seconds:
            return
        self.last_tenth = tenth
        self.last_time = now
        seconds_left = (now - self.start_time) * (total - done) / max(done, 1)
        step_text = _step_text(self.unit, step, steps)
        percent = 10 * tenth
        write_line(
            f"{self.label}: {percent} % done, {step_text}, about {seconds_left:.0f} s left",
            "stderr",
        )


def _step_text(unit: str, step: int, steps: int) -> str:
    """Return which of all steps it is, such as "step 3/10"."""
    return f"{unit} {step}/{steps}"


def format_decimals(number: float | None, digits: int = 3) -> str:
    """Return a number with so many decimals for a table; "-" for None or NaN."""
    return "-" if number is None or number != number else f"{number:.{digits}f}"


def format_cell(value: object, digits: int) -> str:
    """Return a value for a table: a float or None by ``format_decimals``, anything else as text."""
    return (
        format_decimals(value, digits) if value is None or isinstance(value, float) else str(value)
    )
