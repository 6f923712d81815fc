"""Several processes at one job: who does which part, and how the parts meet. Any number of
processes gives the same bits.

    with agt.together():                           under torchrun; alone where nobody started others
        model = agt.fit(x, y)                      the same call in every process, on the same data

Every process runs the same steps with the same public settings, on its own part of the records or
queries. What they give to each other comes in two kinds: integers, whose sum is the same in any
order, and floating-point sums over ``spans``, pieces of the work that depend on its size alone.

Formal guarantees
    The same bits. A piece is computed whole, by one process, in the shapes that it has whoever
    computes it: a matrix product rounds by its shapes, its operands' addresses and the number of
    threads. Sums of integers in range are exact. A floating-point sum of n pieces is taken along
    one binary tree, each half of [0, n) by itself and then their sum, also where a process is
    alone. A process adds up what lies within its own run of pieces, branch by branch, and the tree
    is finished from these branches: each addition is the tree's, between the same two numbers.
    Which meet when does not depend on who holds them.
    An order of summation. A tree of n leaves is one, its depth at most n - 1: bounds on the
    rounding of a sum in any order hold of it.

Outside of ``joined`` there is one process: ``group()`` is then ``ALONE``, which exchanges nothing.
"""

import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import chain, pairwise
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from agt.errors import AgtError, ConfigError, first_line

SPANS = 64  # pieces of a floating-point sum: how many processes can share it, at most
_SMALL = 1 << 16  # numbers: tensors of fewer cross together
TIMEOUT = 600.0  # seconds that others wait for a process which says nothing
REACH = 10.0  # seconds until torchrun, which is there from the beginning, has answered
_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # as torchrun sets them
_FAILED = "agt/failed"

T = TypeVar("T")
Branch = tuple[int, int]  # of the tree over pieces: from the first to before the second


class PeerLost(AgtError):
    """Another process of the job failed, and what it had to give is gone with it.

    Its message says why, if known.
    """


@dataclass(frozen=True)
class Group:
    """The processes of a job, and which of them this one is. Every method but ``own_pieces`` is for
    all to call alike, and raises PeerLost where another process is gone, or says nothing until the
    timeout.

    Attributes:
        rank: this one, from 0.
        size: how many.
        timeout: seconds that others wait for one.
        board: where a process that fails leaves word of it; None: nowhere.
    """

    rank: int = 0
    size: int = 1
    timeout: float = TIMEOUT
    board: Any = field(default=None, compare=False)

    def sum_in_place(self, integers: list[Tensor]) -> None:
        """Replace int64 tensors, of the same shapes everywhere, by their sums over all
        processes.
        """
        if self.size == 1:
            return
        small = [
            tensor for tensor in integers if tensor.numel() < _SMALL or not tensor.is_contiguous()
        ]
        flat = torch.cat([integers[0].new_empty(0), *(tensor.reshape(-1) for tensor in small)])
        large = [tensor for tensor in integers if all(tensor is not other for other in small)]
        with self._all_there():
            for tensor in (*([flat] if small else []), *large):
                dist.all_reduce(tensor)
        for tensor, part in zip(
            small, flat.split([tensor.numel() for tensor in small]), strict=True
        ):
            tensor.copy_(part.view_as(tensor))

    def all_gather(self, value: T) -> list[T]:
        """What every process has, by rank; tensors on the CPU may differ in shape."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        with self._all_there():
            dist.all_gather_object(values, value)
        return values

    def broadcast(self, value: T) -> T:
        """What the first process has."""
        if self.size == 1:
            return value
        box: list[Any] = [value]
        with self._all_there():
            dist.broadcast_object_list(box)
        return box[0]

    def all_to_all(self, parts: Tensor) -> Tensor:
        """[size, ...] of which row r goes to process r -> [size, ...] of which row r came from
        process r.
        """
        if self.size == 1:
            return parts
        came = torch.empty_like(parts, memory_format=torch.contiguous_format)
        with self._all_there():
            dist.all_to_all_single(came, parts.contiguous())
        return came

    def own_pieces(self, count: int) -> range:
        """Which of ``count`` pieces this process sees to: an unbroken run of them."""
        return _run(count, self.rank, self.size)

    def sum_spans(
        self, spans: list[slice], part: Callable[[slice], tuple[Tensor, ...]]
    ) -> tuple[Tensor, ...]:
        """The sums of ``part`` over ``spans``, at least one, each computed once; added along one
        tree, always the same.

        Args:
            part: of a span, float64 tensors on the CPU, of the same shapes for each; zeros of an
                empty one.
        """
        runs = [_run(len(spans), rank, self.size) for rank in range(self.size)]
        branches = [_branches((0, len(spans)), run) for run in runs]

        def leaf(branch: Branch) -> tuple[Tensor, ...] | None:
            return part(spans[branch[0]]) if branch[1] - branch[0] == 1 else None

        added = [_added(branch, leaf) for branch in branches[self.rank]] or [part(slice(0, 0))]
        return added[0] if self.size == 1 else self._finished(branches, added)

    def map_blocks(
        self,
        rows: int,
        block: int,
        work: Callable[[slice], T],
        on_done: Callable[[int], None] = lambda done: None,
    ) -> Iterable[T]:
        """What ``work`` makes of each block of rows, in their order: of at least one, which may be
        empty.

        Each block is one process's work, done as if alone. Where it fails in one, all raise its
        error. To be gone through once: a process that is alone makes each as it is asked for, and
        holds none.

        Args:
            on_done: called after each with the rows done, as far as one process can tell.
        """
        starts = range(0, rows or 1, block)

        def own_results() -> Iterator[T]:
            for done, at in enumerate(self.own_pieces(len(starts)), start=1):
                yield work(slice(starts[at], min(starts[at] + block, rows)))
                on_done(min(rows, done * block * self.size))

        return own_results() if self.size == 1 else self._exchanged(own_results())

    def _exchanged(self, mine: Iterator[T]) -> list[T]:
        """What all processes make, by rank."""
        made, failure = list[T](), None
        try:
            with joined(ALONE):
                made.extend(mine)
        except AgtError as error:
            failure = error
        results = self.all_gather((made, failure))
        for _, failed in results:
            if failed is not None:
                raise failed
        return [part for parts, _ in results for part in parts]

    def check_equal(self, values: Mapping[str, object]) -> None:
        """Raise ConfigError, in every process, where one has another value than the first; it
        and the key are named.
        """
        first, *others = self.all_gather(dict(values))
        for rank, other in enumerate(others, start=1):
            for key in sorted(first.keys() | other.keys()):
                first_value = first.get(key)
                other_value = other.get(key)
                if first_value != other_value:
                    raise ConfigError(
                        f"{key} is {first_value} in process 0 but {other_value} in process "
                        f"{rank}: start all processes of a job with the same command, on the "
                        "same data"
                    )

    def _finished(
        self, branches: list[list[Branch]], added: list[tuple[Tensor, ...]]
    ) -> tuple[Tensor, ...]:
        """The sum of all from every process's branches: each process adds a share of the
        numbers, and hands it on.
        """
        shapes = [tensor.shape for tensor in added[0]]
        sizes = [shape.numel() for shape in shapes]
        share, most = -(-sum(sizes) // self.size), max(map(len, branches))
        given = torch.zeros((most, self.size * share), dtype=torch.float64)
        for row, tensors in zip(given, added, strict=False):
            row[: sum(sizes)] = torch.cat([tensor.reshape(-1) for tensor in tensors])
        came = self.all_to_all(given.view(most, self.size, share).transpose(0, 1))
        known = {
            branch: (came[rank, i],)
            for rank, theirs in enumerate(branches)
            for i, branch in enumerate(theirs)
        }
        (mine,) = _added((0, max(last for _, last in known)), known.get)
        whole = torch.empty(self.size * share, dtype=torch.float64)
        with self._all_there():
            dist.all_gather(list(whole.split(share)), mine.contiguous())
        parts = whole[: sum(sizes)].split(sizes)
        return tuple(part.clone().view(shape) for part, shape in zip(parts, shapes, strict=True))

    @contextmanager
    def _all_there(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            failure = (
                f"did not answer within {self.timeout:g} s"
                if "timed out" in str(error).lower()
                else "is gone"
            )
            message = (
                f"another process of this job {failure}, so this process cannot continue: look "
                "for the error in the output of the other processes, and start the job again"
            )
            with suppress(RuntimeError):  # the board may be gone, too
                if self.board is not None and self.board.check([_FAILED]):
                    message = self.board.get(_FAILED).decode()
            raise PeerLost(message) from error


ALONE = Group()
_current: ContextVar[Group] = ContextVar("group", default=ALONE)


def group() -> Group:
    """The processes that this one shares its work with."""
    return _current.get()


@contextmanager
def joined(group: Group) -> Iterator[Group]:
    """Share all work in here with the others, who do the same. torch.distributed must have been
    initialised.
    """
    token = _current.set(group)
    try:
        yield group
    finally:
        _current.reset(token)


@contextmanager
def together(timeout: float = TIMEOUT) -> Iterator[Group]:
    """Share all work in here with the processes that torchrun started; alone where it started none.

    Args:
        timeout: seconds after which a process that says nothing counts as lost. One that is gone is
            noticed at once.

    Raises:
        ConfigError: some of torchrun's variables are set, and not all, or to no numbers.
        PeerLost: another process did not come, or failed in here.
    """
    place = _place()
    if place is None:
        yield ALONE
        return
    rank, size = place
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", rank)) % torch.cuda.device_count())
    backend, wait = (
        "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo",
        timedelta(seconds=timeout),
    )
    try:
        board = _board(rank, size, min(wait, timedelta(seconds=TIMEOUT)))
        dist.init_process_group(backend, store=board, rank=rank, world_size=size, timeout=wait)
    except RuntimeError as error:
        raise PeerLost(
            f"not all {size} processes of this job started within {timeout:g} s "
            f"({first_line(error)}): start the job again with torchrun"
        ) from error
    try:
        with joined(Group(rank, size, timeout, board)) as group:
            yield group
    except PeerLost:
        raise
    except BaseException as error:
        with suppress(RuntimeError):  # the others are about to notice that this one is gone
            board.compare_set(
                _FAILED,
                "",
                (f"process {rank} of this job failed, so the whole job stops: {first_line(error)}"),
            )
        raise
    finally:
        with suppress(RuntimeError):
            dist.destroy_process_group()


def _board(rank: int, size: int, patience: timedelta) -> Any:
    """What torchrun keeps for the processes of a job.

    It is there before any of them is started: where none answers soon, torchrun was killed before
    this process could ask to be told of it, and the others do not come.
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        _knock((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
    board, _, _ = next(rendezvous("env://", rank, size, timeout=patience))
    return board


def _knock(place: tuple[str, int]) -> None:
    """Raise PeerLost where nobody listens: the board itself would be looked for as long as for a
    process that is slow.
    """
    until = time.monotonic() + REACH
    while True:
        try:
            socket.create_connection(place, timeout=REACH).close()
            return
        except OSError as error:
            if time.monotonic() > until:
                where = f"{place[0]}:{place[1]}"
                raise PeerLost(
                    f"torchrun, which started this process, no longer answers at {where}, so the "
                    f"processes cannot communicate ({first_line(error)}): start the job again"
                ) from error
            time.sleep(0.2)


def spans(rows: int, block: int) -> list[slice]:
    """At most ``SPANS`` pieces of ``rows``, each of whole blocks but for the last; the same on
    every process.
    """
    blocks = -(-rows // block)
    pieces = min(SPANS, blocks)
    cuts = (
        [min(rows, block * (blocks * i // pieces)) for i in range(pieces + 1)] if pieces else [0, 0]
    )
    return [slice(start, stop) for start, stop in pairwise(cuts)]


def _place() -> tuple[int, int] | None:
    """(rank, size) by torchrun's variables; None: they are not set."""
    given = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
    if "RANK" not in given and "WORLD_SIZE" not in given:
        return None
    absent = [name for name in _VARIABLES if name not in given]
    if absent:
        given_name = next(iter(given))
        absent_name = absent[0]
        raise ConfigError(
            f"the environment variable {given_name} is set but {absent_name} is not, although "
            "torchrun sets both: start the processes with torchrun"
        )
    try:
        rank, size = int(given["RANK"]), int(given["WORLD_SIZE"])
    except ValueError:
        rank, size = -1, 0
    if not 0 <= rank < size:
        raise ConfigError(
            f"RANK={given['RANK']} and WORLD_SIZE={given['WORLD_SIZE']} are not valid, because "
            "RANK must be at least 0 and below WORLD_SIZE: start the processes with torchrun"
        )
    return rank, size


def _run(count: int, rank: int, size: int) -> range:
    return range(-(-count * rank // size), -(-count * (rank + 1) // size))


def _halves(branch: Branch) -> tuple[Branch, Branch]:
    first, last = branch
    # as ``_run`` rounds: among 2 or 4 processes each has one branch
    middle = (first + last + 1) // 2
    return (first, middle), (middle, last)


def _branches(branch: Branch, run: range) -> list[Branch]:
    """The largest branches of the tree below ``branch`` that lie within a run of its leaves, in
    their order.
    """
    first, last = branch
    if run.start <= first and last <= run.stop:
        return [branch]
    if last <= run.start or run.stop <= first:
        return []
    return [*chain.from_iterable(_branches(half, run) for half in _halves(branch))]


def _added(
    branch: Branch, known: Callable[[Branch], tuple[Tensor, ...] | None]
) -> tuple[Tensor, ...]:
    """The sum of a branch: what is known of it, or else the sum of its halves'."""
    tensors = known(branch)
    if tensors is not None:
        return tensors
    left, right = (_added(half, known) for half in _halves(branch))
    return tuple(a + b for a, b in zip(left, right, strict=True))
