"""A progress bar for a notebook or a terminal.

agt.fit(x, y, on_progress=agt.progress_bar("training"))
"""

from tqdm.auto import tqdm

from agt.training.loop import OnProgress, Progress


def progress_bar(label: str = "") -> OnProgress:
    """Return an ``on_progress`` that shows a bar, which is closed when the work is done.

    Args:
        label: the text in front of the bar.
    """
    bar = tqdm(desc=label or None, unit="row", unit_scale=True)

    def on_progress(progress: Progress) -> None:
        """Show this progress."""
        bar.total = progress.total
        bar.update(progress.done - bar.n)
        if progress.done >= progress.total:
            bar.close()

    return on_progress
