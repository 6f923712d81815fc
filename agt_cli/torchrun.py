"""What torchrun tells each process of a job: how many there are, and which of them this one is. Loads nothing heavy.

The first is the command; the others compute with it (runs/team.py, runs/workers.py).
"""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress

from agt.errors import ConfigError
from agt_cli import usage

VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
SHARED = ("train", "certify", "plan", "predict")  # commands that have something to share
_PARENT_DEATH_SIGNAL = 1  # of prctl(2)


def size() -> int:
    """How many processes are at this job; 1 where nobody started several."""
    return _number("WORLD_SIZE") if all(os.environ.get(name) for name in VARIABLES) else 1


def rank() -> int:
    """Which of them this one is, from 0."""
    return _number("RANK") if size() > 1 else 0


def check(command: str, rest: Sequence[str]) -> None:
    """Raise ConfigError of a command line that several processes have no use for."""
    if size() == 1:
        return
    if command not in SHARED:
        raise ConfigError(
            f"agt {command}: {size()} processes were started, and only {', '.join(SHARED)} share their work: call it "
            "without torchrun"
        )
    if usage.is_sweep(rest):
        raise ConfigError(
            "-m: a sweep shares out whole jobs, by launchers, and torchrun the work of one: call it without torchrun, or "
            "torchrun once for each job"
        )


def end_with_it() -> None:
    """Have this process asked to end where torchrun is killed: nobody else would tell it that the job is over.

    Linux alone can; elsewhere processes that wait for one another notice what is gone.
    """
    if sys.platform == "linux" and "TORCHELASTIC_RUN_ID" in os.environ:
        with suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, int(signal.SIGTERM))


def _number(name: str) -> int:
    try:
        return int(os.environ[name])
    except ValueError:
        raise ConfigError(
            f"{name}={os.environ[name]} in the environment is no number: torchrun sets it, or unset it"
        ) from None
