"""A progress bar for a notebook or a terminal.

agt.fit(x, y, verbose=True)
model.certify(queries, on_progress=agt.progress_bar("certifying"))
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tqdm.auto import tqdm

from agt.training.loop import OnProgress, Progress


def progress_bar(label: str = "") -> OnProgress:
    """Return an ``on_progress`` that shows a bar, which is closed when the work is done.

    The bar is written to standard error, or is a widget of a notebook. It serves for one piece of
    work.

    Args:
        label: the text in front of the bar.
    """
    bar = tqdm(desc=label or None, unit_scale=True)

    def on_progress(progress: Progress) -> None:
        """Show this progress."""
        _update_bar(bar, progress)
        if progress.done >= progress.total:
            bar.close()

    return on_progress


@contextmanager
def progress_shown(label: str) -> Iterator[OnProgress]:
    """Show a bar, which the yielded ``on_progress`` moves, until the block ends.

    A solver may need fewer steps than were expected. So if the block raises nothing, the bar ends
    as complete.

    Args:
        label: the text in front of the bar.
    """
    with tqdm(desc=label, unit_scale=True) as bar:

        def on_progress(progress: Progress) -> None:
            """Show this progress."""
            _update_bar(bar, progress)

        yield on_progress
        bar.total = bar.n
        bar.refresh()


def _update_bar(bar: "tqdm[Any]", progress: Progress) -> None:
    """Move a bar to the work that is done, of the work in all."""
    bar.total = progress.total
    bar.update(progress.done - bar.n)
