"""Standard output and error whose reader has gone: ``agt train | head -1`` ends the listing, and never a run."""

import os
import sys
from contextlib import suppress
from typing import Literal, TextIO

Name = Literal["stdout", "stderr"]


class _Nowhere:
    """Takes what nobody reads any more."""

    encoding = "utf-8"

    def write(self, text: str) -> int:
        """As a text file does."""
        return len(text)

    def flush(self) -> None:
        """As a text file does."""

    def isatty(self) -> bool:
        """As a text file does."""
        return False


def put(text: str, name: Name) -> None:
    """Write a line; where the reader has gone, this one and all later ones go nowhere."""
    try:
        print(text, file=getattr(sys, name), flush=True)
    except BrokenPipeError:
        mute(name)


def mute(name: Name) -> None:
    """Let nothing that is written to a stream fail any more, at the interpreter's end neither."""
    stream: TextIO = getattr(sys, name)
    with suppress(OSError, ValueError, AttributeError):  # tests put streams there that are no files
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())  # what the stream still holds goes there
        os.close(nowhere)
    setattr(sys, name, _Nowhere())


def muted() -> bool:
    """Whether standard output has lost its reader."""
    return isinstance(sys.stdout, _Nowhere)
