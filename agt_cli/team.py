"""Run one command in several processes: the first runs it, and sends the others tasks.

    torchrun --standalone --nproc-per-node 2 -m agt_cli train dataset=digits

Only the first process reads the command line, writes, prints, pays and draws. The others
(``Worker``) wait for a task, do the same computation at the same time (``agt.distributed``), and
wait again. So everything that a command does besides computing is done once.

At the end the first process publishes its exit code, and sends it to the processes that wait. A
process that fails publishes why, and the first one reports it. A process that was killed publishes
nothing: others find its connection closed (``PeerLost``).
"""

import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch.distributed as dist

from agt.distributed import ALONE, Group, PeerLost, joined, together
from agt.errors import AgtError
from agt.models.model import Model
from agt.targets import trusted_names
from agt_cli.process import current_team, ignore_signals

MAX_WAIT_SECONDS = 30 * 86400.0
"""How long the others wait at most, while the first process reads data or draws figures."""
EXIT_CODE_WAIT_SECONDS = 5.0
"""How long the others wait for the first process's exit code after it ended."""

END_TASK = "agt/over"
"""The name of the last task, and the key under which the exit code is published."""

# Names of features that every process has read.
SPLITS = ("train", "test")
QUERIES = "queries"

T = TypeVar("T")


@dataclass
class Team:
    """The processes that run a command together.

    Attributes:
        group: their connection, as this process has it.
        hosts: the name of each process's machine, by rank.
    """

    group: Group
    hosts: tuple[str, ...]
    _waiting: bool = field(default=True, init=False)  # whether the others wait for a task

    @classmethod
    def from_group(cls, group: Group) -> "Team":
        """Return the team of a group; every process must call this at the same time."""
        return cls(group, tuple(group.all_gather(socket.gethostname())))

    @contextmanager
    def sharing_task(self, task: str, *arguments: Any) -> Iterator[None]:
        """Let the other processes do a task, while this process does the same within the context.

        Args:
            task: the name of a method of ``Worker``.
            arguments: the arguments of the method.

        Raises:
            PeerLost: another process is gone; or an earlier task failed, so that it is unknown what
                the others are doing.
        """
        # The others may still be in the middle of the failed task, and would never answer.
        if not self._waiting:
            raise PeerLost(
                "a task failed earlier in this process, so the other processes can no longer "
                "be used: start the command again"
            )
        self._waiting = False
        try:
            self.group.broadcast((task, *arguments, trusted_names.get()))
            with joined(self.group):
                yield
        except PeerLost:
            # torchrun notices the dead process as well, and is about to end this one.
            ignore_signals()
            raise
        # Not reached after an exception: the others may then still be at the task.
        self._waiting = True

    def call_in_all(self, function: Callable[[], T]) -> T:
        """Call a function in every process, and return its result if it fails in none.

        Every process must call this at the same time.

        Args:
            function: the function.

        Raises:
            Exception: the exception that ``function`` raised in this process.
            AgtError: it failed in another process, which the message names.
        """
        own_error: Exception | None = None
        own_failure: _Failure | None = None
        try:
            result = function()
        except Exception as error:
            own_error = error
            own_failure = _Failure.from_error(error)
        failures = self.group.all_gather(own_failure)
        if own_error is not None:
            raise own_error
        for rank, failure in enumerate(failures):
            if failure is not None:
                host = self.hosts[rank]
                size = self.group.size
                peer_error = AgtError(f"process {rank} of {size}, on {host}: {failure.message}")
                peer_error.exit_code = failure.exit_code
                raise peer_error
        return result

    def end(self, code: int) -> None:
        """Publish the exit code, and end the other processes that wait for a task.

        Only the first process calls this, as the last thing that it does.
        """
        with suppress(RuntimeError):  # torchrun is gone, and with it the board
            self.group.store.set(END_TASK, str(code))
        if self._waiting:
            with suppress(PeerLost):
                self.group.broadcast((END_TASK, code))

    @property
    def description(self) -> dict[str, object]:
        """The number of processes, their machines and the backend, for env.json."""
        return {"count": self.group.size, "hosts": list(self.hosts), "backend": dist.get_backend()}


def lead(command: Callable[[], int]) -> int:
    """Run a command in the first of several processes, and return its exit code.

    Args:
        command: the command. Meanwhile ``current_team`` is the team of all processes; when it ends,
            the exit code is published to them; it is 1 if the command raises an exception.
    """
    code = AgtError.exit_code
    with together(MAX_WAIT_SECONDS) as group, joined(ALONE):
        team = Team.from_group(group)
        token = current_team.set(team)
        try:
            code = command()
        finally:
            current_team.reset(token)
            team.end(code)
    return code


def published_exit_code(group: Group) -> int:
    """Return the exit code that the first process publishes, if it does so in time; else 1.

    The time is ``EXIT_CODE_WAIT_SECONDS``. It is also 1 if the processes were never connected.
    """
    deadline = time.monotonic() + EXIT_CODE_WAIT_SECONDS
    with suppress(RuntimeError):
        while group.store is not None and time.monotonic() < deadline:
            if group.store.check([END_TASK]):
                return int(group.store.get(END_TASK))
            time.sleep(0.02)
    return AgtError.exit_code


def share_answers(model: Model, team: Team, features_by_name: Mapping[str, np.ndarray]) -> Model:
    """Return a copy of a model whose answers all processes of a team compute together.

    This is so for its methods ``predict``, ``margins`` and ``certify``, but not for a model that is
    made from it, for example with other weights.

    Args:
        model: a model that every process of the team has.
        team: the processes.
        features_by_name: features that the other processes have read, by the names that they use.
            Other arrays are sent to them.
    """
    shared = copy(model)
    for method in ("predict", "margins", "certify"):
        object.__setattr__(
            shared, method, partial(_answer, team, features_by_name, getattr(model, method))
        )
    object.__setattr__(shared, "_unshared", model)
    return shared


def _answer(
    team: Team,
    features_by_name: Mapping[str, np.ndarray],
    method: Callable[..., Any],
    features: Any,
    *arguments: Any,
    **keywords: Any,
) -> Any:
    """Call a method of a model in every process of a team.

    Args:
        team: the processes.
        features_by_name: features that the other processes have read, by the names that they use.
        method: the method.
        features: its first argument. If they are read from a file piece by piece, and the others do
            not know them, this process answers alone.
        arguments: its other arguments. Functions among them, which report progress, are not sent.
        keywords: its keyword arguments, which are not sent.
    """
    name = next((name for name, array in features_by_name.items() if array is features), None)
    if name is None and not isinstance(features, np.ndarray):
        return method(features, *arguments, **keywords)
    sent = None if name else features
    sendable = [argument for argument in arguments if not callable(argument)]
    with team.sharing_task("answer", method.__name__, name, sent, *sendable):
        return method(features, *arguments, **keywords)


def without_sharing(model: Model) -> Model:
    """Return the model that only this process asks, of one that ``share_answers`` made.

    An error in its answers does not affect the other processes. Any other model is returned as it
    is.
    """
    return vars(model).get("_unshared", model)


@dataclass(frozen=True)
class _Failure:
    """How a function failed in one process, for the others, to which its exception is not sent.

    Attributes:
        message: what went wrong.
        exit_code: the exit code of the command.
    """

    message: str
    exit_code: int

    @classmethod
    def from_error(cls, error: Exception) -> "_Failure":
        """Return how an error is reported by other processes."""
        if isinstance(error, OSError) and error.filename:
            return cls(f"{error.filename}: {error.strerror}", AgtError.exit_code)
        if isinstance(error, AgtError):
            return cls(str(error), error.exit_code)
        return cls(f"{type(error).__name__}: {error}", AgtError.exit_code)
