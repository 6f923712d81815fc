"""Several processes at one command: the first is the command, and tells the others what to compute
with it.

    torchrun --standalone --nproc-per-node 2 -m agt_cli train dataset=digits

The first process alone reads the command line, writes, prints, pays and draws. The others
(``Worker``) wait for a task, do the same computation with it (``agt.distributed``), and wait again.
So whatever a command does beside computing happens once, as nobody else could do it.

How it ends. The first process leaves word of its exit code, and tells those that wait. One that
fails leaves word of why, and the first reports it. One that is killed leaves none: whoever needs it
finds its connection closed (``PeerLost``).
"""

import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
import torch.distributed as dist

from agt.distributed import ALONE, Group, PeerLost, joined, together
from agt.errors import AgtError
from agt.models.model import Model
from agt.targets import trusted_names
from agt_cli.process import current_team, ignore_signals

FOREVER = 30 * 86400.0  # seconds: the others wait as long as the first reads data, or draws figures

PATIENCE = 5.0  # seconds: until the first has left word, once it is gone

# the last task, with the exit code; which is on the board, for who hears no tasks any more
OVER = "agt/over"

SPLITS, QUERIES = ("train", "test"), "queries"  # features that every process has read, by name

T = TypeVar("T")


@dataclass
class Team:
    """The processes of this job, as one of them sees them.

    Attributes:
        group: they.
        hosts: the machine of each, by rank.
    """

    group: Group
    hosts: tuple[str, ...]
    _waiting: bool = field(default=True, init=False)  # whether the others wait for a task

    @classmethod
    def of(cls, group: Group) -> "Team":
        """Every process makes it, at the same time."""
        return cls(group, tuple(group.all_gather(socket.gethostname())))

    @contextmanager
    def at(self, task: str, *given: Any) -> Iterator[None]:
        """Have the others do a task (``Worker``), while this process does the same in here.

        Raises:
            PeerLost: another process is gone; or a task before this one failed, and nobody knows
                where the others are.
        """
        # a task would meet them in the midst of the earlier one, and wait for ever
        if not self._waiting:
            raise PeerLost(
                "a task failed earlier in this process, so the other processes can no longer "
                "be used: start the command again"
            )
        self._waiting = False
        try:
            self.group.broadcast((task, *given, trusted_names.get()))
            with joined(self.group):
                yield
        except PeerLost:
            ignore_signals()  # torchrun, which found a process dead, is about to end this one, too
            raise
        self._waiting = True  # where something was raised, nobody knows where they are

    def made(self, make: Callable[[], T]) -> T:
        """What this process makes, if every process can make it; all call this.

        Raises:
            Exception: this one's, where it fails here.
            AgtError: another's, naming its rank.
        """
        made, failed = None, None
        try:
            made = make()
        except Exception as error:
            failed = error
        reasons = self.group.all_gather(None if failed is None else _as_sent(failed))
        if failed:
            raise failed
        for rank, reason in enumerate(reasons):
            if reason:
                problem, exit_code = reason
                host = self.hosts[rank]
                size = self.group.size
                theirs = AgtError(f"process {rank} of {size}, on {host}: {problem}")
                theirs.exit_code = exit_code
                raise theirs
        assert made is not None
        return made

    def end(self, code: int) -> None:
        """Let the others go, wherever they are: the first process's last word."""
        with suppress(RuntimeError):  # torchrun itself is gone, and its board
            self.group.board.set(OVER, str(code))
        if self._waiting:
            with suppress(PeerLost):
                self.group.broadcast((OVER, code))

    @property
    def described(self) -> dict[str, object]:
        return {"count": self.group.size, "hosts": list(self.hosts), "backend": dist.get_backend()}


def lead(command: Callable[[], int]) -> int:
    """Run a command in the first process of several; returns its exit code, when the others know
    it.
    """
    code = AgtError.exit_code
    with together(FOREVER) as group, joined(ALONE):
        team = Team.of(group)
        token = current_team.set(team)
        try:
            code = command()
        finally:
            current_team.reset(token)
            team.end(code)
    return code


def word_of_the_first(group: Group) -> int:
    """The exit code that the first process left, if it does so soon; 1 if not, or if the
    processes never met.
    """
    until = time.monotonic() + PATIENCE
    with suppress(RuntimeError):
        while group.board is not None and time.monotonic() < until:
            if group.board.check([OVER]):
                return int(group.board.get(OVER))
            time.sleep(0.02)
    return AgtError.exit_code


def share_answers(
    model: Model, team: Team, known: Mapping[str, np.ndarray] = MappingProxyType({})
) -> Model:
    """A copy of a model that every process of the team has, whose ``predict``, ``margins`` and
    ``certify`` all work at.

    What is made from it (other weights, say) is no shared one.

    Args:
        known: features that the others have read themselves, by name: they are not sent.
    """
    shared = copy(model)
    for method in ("predict", "margins", "certify"):
        object.__setattr__(shared, method, partial(_answer, team, known, getattr(model, method)))
    object.__setattr__(shared, "_unshared", model)
    return shared


def _answer(
    team: Team,
    known: Mapping[str, np.ndarray],
    ask: Callable[..., Any],
    features: Any,
    *more: Any,
    **named: Any,
) -> Any:
    name = next((name for name, array in known.items() if array is features), None)
    if name is None and not isinstance(features, np.ndarray):
        # of a file, read as they are needed, and not as the others have them
        return ask(features, *more, **named)
    with team.at(
        "answer",
        ask.__name__,
        name,
        None if name else features,
        *(one for one in more if not callable(one)),
    ):
        return ask(features, *more, **named)


def unshared(model: Model) -> Model:
    """The model answered by this process by itself: what goes wrong with its answers is felt by
    nobody else.
    """
    return vars(model).get("_unshared", model)


def _as_sent(error: Exception) -> tuple[str, int]:
    """An error as the others are told of it: its message, and its exit code."""
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}", AgtError.exit_code
    if isinstance(error, AgtError):
        return str(error), error.exit_code
    return f"{type(error).__name__}: {error}", AgtError.exit_code
