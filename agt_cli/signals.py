"""Signals that ask a command to end: it ends as by Ctrl-C, with a record that says so, and not in the middle of a word."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

GIVING_WAY = tuple(getattr(signal, name) for name in ("SIGUSR1", "SIGUSR2") if hasattr(signal, name))
ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


class Terminated(KeyboardInterrupt):
    """A signal other than Ctrl-C's asked the process to end.

    Attributes:
        exit_code: 128 and the signal's number, as shells have it.
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"terminated by signal {number}")
        self.exit_code = 128 + number


@contextmanager
def heard() -> Iterator[None]:
    """Raise ``Terminated`` where the process is asked to end; once, so that a second request does not cut the record short.

    A signal that somebody ignores (nohup) or handles already is left as it is; so are all of them outside the main thread.
    But where a launcher listens to a cluster's signal to give way, whatever it raises is the cause of a ``Terminated``:
    the record says so, and that this run can go on.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ours = [number for number in ENDING if signal.getsignal(number) is signal.SIG_DFL]
    theirs = {number: handler for number in GIVING_WAY if callable(handler := signal.getsignal(number))}

    def give_way(number: int, frame: FrameType | None) -> None:
        try:
            theirs[number](number, frame)
        except Terminated:  # from within another such block
            raise
        except BaseException as error:
            raise Terminated(number) from error

    for number in ours:
        signal.signal(number, _end)
    for number in theirs:
        signal.signal(number, give_way)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)
        for number, handler in theirs.items():
            signal.signal(number, handler)


def ignore() -> None:
    """Hear of no more requests until ``heard`` ends: the command is about to end by itself, and says why."""
    for number in ENDING:
        if signal.getsignal(number) is _end:
            signal.signal(number, signal.SIG_IGN)


def _end(number: int, frame: FrameType | None) -> None:
    ignore()
    raise Terminated(number)
