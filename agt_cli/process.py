"""This process among others: signals, readers of its output, torchrun's variables, GPUs.

Loads nothing heavy.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from io import TextIOWrapper
from types import FrameType
from typing import Any, Literal, TextIO

from agt.errors import ConfigError

ENDING_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)
)
PARENT_DEATH_SIGNAL = 1  # of prctl(2)
TORCHRUN_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"


# -- signals
# --------------------------------------------------------------------------------------------------


class Terminated(KeyboardInterrupt):
    """A signal other than Ctrl-C's asked the process to end.

    Attributes:
        exit_code: 128 and the signal's number, as shells have it.
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"terminated by signal {number}")
        self.exit_code = 128 + number


@contextmanager
def raising_terminated() -> Iterator[None]:
    """Raise ``Terminated`` where the process is asked to end; once, so that a second request does
    not cut the record short.

    A signal that somebody ignores (nohup) or handles already is left as it is; so are all of them
    outside the main thread.
    """
    main_thread = threading.current_thread() is threading.main_thread()
    ours = [
        number
        for number in ENDING_SIGNALS
        if main_thread and signal.getsignal(number) is signal.SIG_DFL
    ]
    for number in ours:
        signal.signal(number, _terminate)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def ignore_signals() -> None:
    """Hear of no more requests until ``raising_terminated`` ends: the command is about to end by
    itself, and says why.
    """
    for number in ENDING_SIGNALS:
        if signal.getsignal(number) is _terminate:
            signal.signal(number, signal.SIG_IGN)


def _terminate(number: int, frame: FrameType | None) -> None:
    ignore_signals()
    raise Terminated(number)


# -- standard output and error whose reader has gone: agt train | head -1 ends the listing, and
# never a run ------------

StreamName = Literal["stdout", "stderr"]
_mute: set[StreamName] = set()


def visible(text: str, keep: str = "") -> str:
    """Text of which a terminal or a browser acts on nothing: names and values from data may hold
    anything.

    Blanks of any kind, line ends among them, become spaces; other letters that print nothing (ESC
    and all other controls, marks that turn the direction of writing, half characters) stand there
    as Python writes them: ``\\x1b``.

    Args:
        keep: letters that stay what they are.
    """
    if text.isprintable():
        return text
    return "".join(
        c
        if c.isprintable() or c in keep
        else " "
        if c.isspace()
        else c.encode("unicode_escape", "surrogatepass").decode()
        for c in text
    )


def write_any_text() -> None:
    """Let both streams write every text, as ``visible`` does: ``\\xe9`` on a terminal that knows
    ASCII alone.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def put(text: str, name: StreamName) -> None:
    """Write a line; where the reader has gone, this one and all later ones go nowhere."""
    try:
        print(text, file=getattr(sys, name), flush=True)
    except BrokenPipeError:
        mute(name)


def mute(name: StreamName) -> None:
    """Let nothing that is written to a stream fail any more, at the interpreter's end neither."""
    stream: TextIO = getattr(sys, name)
    with suppress(OSError, ValueError, AttributeError):  # tests put streams there that are no files
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())  # what the stream still holds goes there
        os.close(nowhere)
    setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    _mute.add(name)


def muted() -> bool:
    """Whether standard output has lost its reader."""
    return "stdout" in _mute


# -- torchrun: how many processes, and which of them this one is
# -------------------------------------------------------


def world_size() -> int:
    """How many processes are at this job; 1 where nobody started several.

    Raises:
        ConfigError: torchrun's variable holds no number.
    """
    return _number("WORLD_SIZE") if all(os.environ.get(name) for name in TORCHRUN_VARIABLES) else 1


def rank() -> int:
    """Which of them this one is, from 0."""
    return _number("RANK") if world_size() > 1 else 0


current_team: ContextVar[Any] = ContextVar("team", default=None)
"""The processes that this command shares its work with (``agt_cli.team.Team``); None: it is
alone.
"""


def end_with_torchrun() -> None:
    """Have this process asked to end where torchrun is killed: nobody else would tell it that the
    job is over.

    Linux alone can; elsewhere processes that wait for one another notice what is gone.
    """
    if sys.platform == "linux" and "TORCHELASTIC_RUN_ID" in os.environ:
        import ctypes

        with suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, int(signal.SIGTERM))


def _number(name: str) -> int:
    value = os.environ[name]
    try:
        return int(value)
    except ValueError:
        raise ConfigError(
            f"{name}={value}: this environment variable must be a number, as torchrun sets it. "
            f"Start the command with torchrun, or remove the variable (unset {name})"
        ) from None


# -- GPUs
# -------------------------------------------------------------------------------------------


def visible_gpus() -> tuple[str, ...]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    given = os.environ.get(VISIBLE_GPUS)
    if given is None:
        import torch

        return tuple(map(str, range(torch.cuda.device_count())))
    names = [name.strip() for name in given.split(",")]
    # CUDA reads no further
    last = next((place for place, name in enumerate(names) if name in ("", "-1")), len(names))
    return tuple(names[:last])
