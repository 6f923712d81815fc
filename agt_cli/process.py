"""What a process has to do with others: signals, readers of its output, torchrun, GPUs.

Loads nothing heavy.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
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


# -- the command line
# --------------------------------------------------------------------------------------------------


@contextmanager
def recorded_command_line(arguments: Sequence[str]) -> Iterator[None]:
    """Replace sys.argv, which records keep, by the command line that the user typed.

    In a process that a launcher started, sys.argv is the launcher's.
    """
    saved = sys.argv
    sys.argv = list(arguments)
    try:
        yield
    finally:
        sys.argv = saved


def typed_words() -> list[str]:
    """Return the command and its settings within ``recorded_command_line``, without "agt".

    It is ["train"] alone where no command line was typed.
    """
    program, *settings = sys.argv
    command = program.removeprefix("agt ")
    return [command, *settings] if command != program else ["train"]


# -- signals
# --------------------------------------------------------------------------------------------------


class Terminated(KeyboardInterrupt):
    """A signal other than that of Ctrl-C asked the process to end.

    Attributes:
        exit_code: 128 plus the number of the signal, as shells report it.
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"terminated by signal {number}")
        self.exit_code = 128 + number


@contextmanager
def raising_terminated() -> Iterator[None]:
    """Within the context, raise ``Terminated`` when a signal asks the process to end.

    It is raised once: a second signal does not interrupt the writing of the record. Signals that
    are already ignored (nohup) or handled stay unchanged. Outside the main thread, which alone
    can handle signals, nothing changes.
    """
    main_thread = threading.current_thread() is threading.main_thread()
    default_signals = [
        number
        for number in ENDING_SIGNALS
        if main_thread and signal.getsignal(number) is signal.SIG_DFL
    ]
    for number in default_signals:
        signal.signal(number, _terminate)
    try:
        yield
    finally:
        for number in default_signals:
            signal.signal(number, signal.SIG_DFL)


def ignore_signals() -> None:
    """Ignore further signals that ask the process to end, until ``raising_terminated`` ends.

    This is for a command that is about to end by itself, and then reports why.
    """
    for number in ENDING_SIGNALS:
        if signal.getsignal(number) is _terminate:
            signal.signal(number, signal.SIG_IGN)


def _terminate(number: int, frame: FrameType | None) -> None:
    """Handle a signal of this number: ignore further ones, and raise ``Terminated``."""
    ignore_signals()
    raise Terminated(number)


# -- standard output and error, whose reader may go away (agt train | head -1): the run goes on
# ------------

StreamName = Literal["stdout", "stderr"]
_dropped_streams: set[StreamName] = set()


def visible(text: str, allowed: str = "") -> str:
    """Return text without characters on which a terminal or a browser acts.

    Names and values from data may contain any character. White space of any kind, including line
    ends, becomes spaces. Other characters that are not printable (ESC and other control characters,
    marks of the direction of writing, lone surrogates) become Python's escapes, such as ``\\x1b``.

    Args:
        text: any text.
        allowed: characters that are not replaced.
    """
    if text.isprintable():
        return text
    return "".join(c if c in allowed else _visible_character(c) for c in text)


def _visible_character(character: str) -> str:
    """Return a character as ``visible`` shows it."""
    if character.isprintable():
        return character
    if character.isspace():
        return " "
    return character.encode("unicode_escape", "surrogatepass").decode()


def write_any_text() -> None:
    """Make both output streams write escapes for characters that the terminal does not support.

    Without this, ``\\xe9`` on a terminal that supports only ASCII would be an error.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def write_line(text: str, name: StreamName) -> None:
    """Write a line to a stream. If its reader is gone, this and all later lines are dropped."""
    try:
        print(text, file=getattr(sys, name), flush=True)
    except BrokenPipeError:
        drop_output(name)


def drop_output(name: StreamName) -> None:
    """Drop everything that is written to a stream from now on, without errors.

    That includes what is still buffered, which Python writes when it ends.
    """
    stream: TextIO = getattr(sys, name)
    # Streams that tests replaced may not be files.
    with suppress(OSError, ValueError, AttributeError):
        null_device = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null_device, stream.fileno())
        os.close(null_device)
    setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    _dropped_streams.add(name)


def is_stdout_dropped() -> bool:
    """Return whether standard output was muted, because its reader is gone."""
    return "stdout" in _dropped_streams


# -- torchrun: how many processes there are, and which of them this one is
# -------------------------------------------------------


def world_size() -> int:
    """Return how many processes torchrun started for this command; 1 without torchrun.

    Raises:
        ConfigError: torchrun's variable is not a number.
    """
    if not all(os.environ.get(name) for name in TORCHRUN_VARIABLES):
        return 1
    return _number_in_variable("WORLD_SIZE")


def rank() -> int:
    """Return the number of this process among those of ``world_size``, from 0."""
    return _number_in_variable("RANK") if world_size() > 1 else 0


current_team: ContextVar[Any] = ContextVar("team", default=None)
"""The processes among which this command divides its work (``agt_cli.team.Team``); None: there is
only this one.
"""


def end_with_torchrun() -> None:
    """Let the system send SIGTERM to this process when torchrun dies.

    Only Linux can do this. Elsewhere, processes that wait for each other notice a lost connection.
    """
    if sys.platform == "linux" and "TORCHELASTIC_RUN_ID" in os.environ:
        import ctypes

        with suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, int(signal.SIGTERM))


def _number_in_variable(name: str) -> int:
    """Return the number in one of torchrun's environment variables, which is set.

    Raises:
        ConfigError: it is not a number.
    """
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
    """Return the names of the GPUs that this process may use, as in CUDA_VISIBLE_DEVICES.

    Without that variable, these are the numbers of all GPUs.
    """
    setting = os.environ.get(VISIBLE_GPUS)
    if setting is None:
        import torch

        return tuple(map(str, range(torch.cuda.device_count())))
    names: list[str] = []
    for name in setting.split(","):
        # CUDA ignores everything from the first invalid name on.
        if name.strip() in ("", "-1"):
            break
        names.append(name.strip())
    return tuple(names)
