"""Signals that ask a command to end: it ends as by Ctrl-C, with a record that says so, and not in the middle of a word."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

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
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ours = [number for number in ENDING if signal.getsignal(number) is signal.SIG_DFL]

    def end(number: int, frame: FrameType | None) -> None:
        for each in ours:
            signal.signal(each, signal.SIG_IGN)
        raise Terminated(number)

    for number in ours:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)
