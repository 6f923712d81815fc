"""Training shared by several processes, with the same bits for any number of processes.

    with agt.together():                           under torchrun; else this process works alone
        model = agt.fit(x, y)                      the same call in every process, on the same data

Every process runs the same steps with the same public settings, on its own part of the records or
queries. The processes exchange integers, whose sum is the same in any order, and floating-point
sums over ``spans``, which are pieces of the work that depend on its size alone.

Formal guarantees
    * The same bits. One process computes a whole piece, in shapes that do not depend on which
      process it is: a matrix product rounds by its shapes, its operands' addresses and the number
      of threads. Sums of integers in range are exact. A floating-point sum of n pieces is taken
      along one binary tree, also where a process is alone: each half of [0, n) is added up by
      itself, and then the two sums are added. A process adds up the branches that lie within its
      own consecutive pieces, and the tree is completed from these branches. So every addition is
      one of the tree's, with the same two operands, whichever processes hold them.
    * An order of summation. A tree of n leaves has a depth of at most n - 1, and is one of the
      orders for which bounds on the rounding of a sum in any order hold.

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
from itertools import pairwise
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from agt.data.arrays import block_slices
from agt.errors import AgtError, ConfigError, first_line

SPANS = 64
"""The pieces of a floating-point sum: at most so many processes can share it."""
_SMALL_TENSOR_NUMBERS = 1 << 16
"""Tensors with fewer numbers are sent together."""
TIMEOUT = 600.0
"""How many seconds other processes wait for one that does not answer."""
TORCHRUN_WAIT_SECONDS = 10.0
"""How many seconds torchrun, which started this process, may take to answer."""
_TORCHRUN_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_FAILURE_KEY = "agt/failed"
"""The key in torchrun's store under which a process that fails writes its message."""

T = TypeVar("T")
Branch = tuple[int, int]
"""A branch of the tree of pieces: it has the pieces first, ..., last - 1 of (first, last)."""


class PeerLost(AgtError):
    """Another process of the job failed, so that its part of the work is lost.

    The message says why, if it is known.
    """


@dataclass(frozen=True)
class Group:
    """The processes of a job, seen from one of them.

    All methods except ``own_pieces`` are collective: every process must call them, in the same
    order. They raise PeerLost if another process failed, or does not answer until the timeout.

    Attributes:
        rank: the number of this process, from 0.
        size: the number of processes.
        timeout: the number of seconds that the processes wait for each other.
        store: torchrun's key-value store, into which a process that fails writes its message; None:
            the process is alone.
    """

    rank: int = 0
    size: int = 1
    timeout: float = TIMEOUT
    store: Any = field(default=None, compare=False)

    def sum_in_place(self, integers: list[Tensor]) -> None:
        """Replace integer tensors by their sums over all processes.

        Args:
            integers: int64, of the same shapes in every process.
        """
        if self.size == 1:
            return
        small: list[Tensor] = []  # these are sent as one tensor
        large: list[Tensor] = []
        for tensor in integers:
            is_small = tensor.numel() < _SMALL_TENSOR_NUMBERS
            if is_small or not tensor.is_contiguous():
                small.append(tensor)
            else:
                large.append(tensor)
        no_numbers = integers[0].new_empty(0)
        flat = torch.cat([no_numbers, *(tensor.reshape(-1) for tensor in small)])
        with self._raising_peer_lost():
            if small:
                dist.all_reduce(flat)
            for tensor in large:
                dist.all_reduce(tensor)
        sums = flat.split([tensor.numel() for tensor in small])
        for tensor, tensor_sum in zip(small, sums, strict=True):
            tensor.copy_(tensor_sum.view_as(tensor))

    def all_gather(self, value: T) -> list[T]:
        """Return the values of all processes, by rank.

        Args:
            value: the value of this process. Tensors must be on the CPU, and may differ in shape.
        """
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        with self._raising_peer_lost():
            dist.all_gather_object(values, value)
        return values

    def broadcast(self, value: T) -> T:
        """Return the value that the first process passes; those of the others are ignored."""
        if self.size == 1:
            return value
        values: list[Any] = [value]
        with self._raising_peer_lost():
            dist.broadcast_object_list(values)
        return values[0]

    def all_to_all(self, rows: Tensor) -> Tensor:
        """Send one row to each process, and return the rows that the processes sent.

        Args:
            rows: [size, ...]; row r is sent to process r.

        Returns:
            [size, ...]; process r sent row r.
        """
        if self.size == 1:
            return rows
        received = torch.empty_like(rows, memory_format=torch.contiguous_format)
        with self._raising_peer_lost():
            dist.all_to_all_single(received, rows.contiguous())
        return received

    def own_pieces(self, count: int) -> range:
        """Return the indices of this process's share of ``count`` pieces of work."""
        return _pieces_of(count, self.rank, self.size)

    def sum_spans(
        self, spans: list[slice], sum_of_span: Callable[[slice], tuple[Tensor, ...]]
    ) -> tuple[Tensor, ...]:
        """Return the sum over all spans, each of which is computed by one process.

        The spans' sums are added along one tree, which does not depend on the processes.

        Args:
            spans: the pieces of the work, the same in every process.
            sum_of_span: span -> float64 tensors on the CPU, of the same shapes for each span; zeros
                for an empty span.
        """
        tree = (0, len(spans))
        branches_by_rank = [
            _branches_within(tree, _pieces_of(len(spans), rank, self.size))
            for rank in range(self.size)
        ]

        def sums_of_leaf(branch: Branch) -> tuple[Tensor, ...] | None:
            first, last = branch
            return sum_of_span(spans[first]) if last - first == 1 else None

        own_sums = [_sum_of_branch(branch, sums_of_leaf) for branch in branches_by_rank[self.rank]]
        if not own_sums:  # there are fewer pieces than processes, or none
            own_sums = [sum_of_span(slice(0, 0))]
        if self.size == 1:
            return own_sums[0]
        return self._sum_over_processes(branches_by_rank, own_sums)

    def map_blocks(
        self,
        rows: int,
        block: int,
        work: Callable[[slice], T],
        on_done: Callable[[int], None] = lambda done: None,
    ) -> Iterable[T]:
        """Return the result of ``work`` for each block of rows, in their order.

        There is at least one block, which may be empty. One process computes a block, as if it were
        alone. If it fails in one process, all raise its error. The result can be iterated over
        once: a process that is alone computes each block when it is requested, and stores none.

        Args:
            rows: the number of rows.
            block: the number of rows of a block.
            work: rows -> a result.
            on_done: called after each block with the number of rows that are done, estimated from
                this process's own blocks.
        """
        blocks = block_slices(rows, block) or [slice(0, 0)]

        def own_results() -> Iterator[T]:
            """Yield the results of this process's blocks."""
            for done, index in enumerate(self.own_pieces(len(blocks)), start=1):
                yield work(blocks[index])
                on_done(min(rows, done * block * self.size))

        return own_results() if self.size == 1 else self._results_of_all(own_results())

    def _results_of_all(self, own_results: Iterator[T]) -> list[T]:
        """Return the results of all processes, by rank.

        Args:
            own_results: computes the results of this process.

        Raises:
            AgtError: one process failed. All raise its error.
        """
        results: list[T] = []
        failure: AgtError | None = None
        try:
            with joined(ALONE):  # so that the work exchanges nothing
                results.extend(own_results)
        except AgtError as error:
            failure = error
        all_results: list[T] = []
        first_failure: AgtError | None = None
        for results_of_one, failure_of_one in self.all_gather((results, failure)):
            first_failure = first_failure or failure_of_one
            all_results.extend(results_of_one)
        if first_failure is not None:
            raise first_failure
        return all_results

    def check_equal(self, values: Mapping[str, object]) -> None:
        """Check that all processes have the same values.

        Args:
            values: name -> value.

        Raises:
            ConfigError: a process has another value than the first; it is raised in every process.
                The message has the name and both values.
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

    def _sum_over_processes(
        self, branches_by_rank: list[list[Branch]], own_sums: list[tuple[Tensor, ...]]
    ) -> tuple[Tensor, ...]:
        """Return the sum over the whole tree, from the sums of every process's branches.

        The tensors of a branch are one row of numbers. Each process adds up some columns of all
        rows, and sends the sums to the others.

        Args:
            branches_by_rank: the branches of each process.
            own_sums: the tensors of each branch of this process; zeros if it has none.
        """
        shapes = [tensor.shape for tensor in own_sums[0]]
        sizes = [shape.numel() for shape in shapes]
        number_count = sum(sizes)
        share = -(-number_count // self.size)  # rounded up: the last share is padded with zeros
        row_count = max(map(len, branches_by_rank))
        own_rows = torch.zeros((row_count, self.size * share), dtype=torch.float64)
        for row, tensors in zip(own_rows, own_sums, strict=False):
            row[:number_count] = torch.cat([tensor.reshape(-1) for tensor in tensors])
        shares_by_rank = own_rows.view(row_count, self.size, share).transpose(0, 1)
        received = self.all_to_all(shares_by_rank)  # [rank, branch of that rank, share]
        share_of_branch = {}
        for rank, branches in enumerate(branches_by_rank):
            for index, branch in enumerate(branches):
                share_of_branch[branch] = (received[rank, index],)
        last_piece = max(last for _, last in share_of_branch)
        (own_share,) = _sum_of_branch((0, last_piece), share_of_branch.get)
        numbers = torch.empty(self.size * share, dtype=torch.float64)
        with self._raising_peer_lost():
            dist.all_gather(list(numbers.split(share)), own_share.contiguous())
        sums = numbers[:number_count].split(sizes)
        return tuple(flat.clone().view(shape) for flat, shape in zip(sums, shapes, strict=True))

    @contextmanager
    def _raising_peer_lost(self) -> Iterator[None]:
        """Raise PeerLost instead of an error of torch.distributed in the block.

        The message has the reason, if another process wrote it into the store.

        Raises:
            PeerLost: another process ended, or did not answer in time.
        """
        try:
            yield
        except RuntimeError as error:
            failure = "is gone"
            if "timed out" in str(error).lower():
                failure = f"did not answer within {self.timeout:g} s"
            message = (
                f"another process of this job {failure}, so this process cannot continue: look "
                "for the error in the output of the other processes, and start the job again"
            )
            with suppress(RuntimeError):  # the store may be unreachable, too
                if self.store is not None and self.store.check([_FAILURE_KEY]):
                    message = self.store.get(_FAILURE_KEY).decode()
            raise PeerLost(message) from error


ALONE = Group()
_current: ContextVar[Group] = ContextVar("group", default=ALONE)


def group() -> Group:
    """Return the group of processes that share the work, ``ALONE`` outside of ``joined``."""
    return _current.get()


@contextmanager
def joined(group: Group) -> Iterator[Group]:
    """Share all work in the block with the other processes, which do the same.

    torch.distributed must have been initialised.

    Args:
        group: the processes.
    """
    token = _current.set(group)
    try:
        yield group
    finally:
        _current.reset(token)


@contextmanager
def together(timeout: float = TIMEOUT) -> Iterator[Group]:
    """Share all work in the block with the processes that torchrun started.

    If it started none, this process works alone.

    Args:
        timeout: the number of seconds after which a process that does not answer is treated as
            lost. A process that ended is noticed at once.

    Raises:
        ConfigError: some of torchrun's variables are missing, or are not valid numbers.
        PeerLost: another process did not start, or failed in the block.
    """
    rank_and_size = _rank_and_size()
    if rank_and_size is None:
        yield ALONE
        return
    rank, size = rank_and_size
    backend = "gloo"
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", rank)) % torch.cuda.device_count())
        backend = "cpu:gloo,cuda:nccl"
    wait = timedelta(seconds=timeout)
    try:
        store = _open_store(rank, size, min(wait, timedelta(seconds=TIMEOUT)))
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=wait)
    except RuntimeError as error:
        raise PeerLost(
            f"not all {size} processes of this job started within {timeout:g} s "
            f"({first_line(error)}): start the job again with torchrun"
        ) from error
    try:
        with joined(Group(rank, size, timeout, store)) as group:
            yield group
    except PeerLost:
        raise
    except BaseException as error:
        with suppress(RuntimeError):  # the others notice anyway that this process ended
            message = (
                f"process {rank} of this job failed, so the whole job stops: {first_line(error)}"
            )
            store.compare_set(_FAILURE_KEY, "", message)  # only the first message is stored
        raise
    finally:
        with suppress(RuntimeError):
            dist.destroy_process_group()


def _open_store(rank: int, size: int, patience: timedelta) -> Any:
    """Return torchrun's key-value store for the processes of a job.

    torchrun opens it before it starts the processes. If it does not answer soon, torchrun was
    killed, and the other processes will not start.

    Args:
        rank: the number of this process.
        size: the number of processes.
        patience: the longest time to wait for the other processes.

    Raises:
        PeerLost: torchrun does not answer.
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        _check_torchrun_answers(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    store, _, _ = next(rendezvous("env://", rank, size, timeout=patience))
    return store


def _check_torchrun_answers(host: str, port: int) -> None:
    """Raise PeerLost if torchrun does not accept a connection in ``TORCHRUN_WAIT_SECONDS``.

    torch.distributed itself would wait for it as long as for a process that is slow.
    """
    deadline = time.monotonic() + TORCHRUN_WAIT_SECONDS
    while True:
        try:
            socket.create_connection((host, port), timeout=TORCHRUN_WAIT_SECONDS).close()
            return
        except OSError as error:
            if time.monotonic() > deadline:
                where = f"{host}:{port}"
                raise PeerLost(
                    f"torchrun, which started this process, no longer answers at {where}, so the "
                    f"processes cannot communicate ({first_line(error)}): start the job again"
                ) from error
            time.sleep(0.2)


def spans(rows: int, block: int) -> list[slice]:
    """Return at most ``SPANS`` pieces of ``rows``, the same in every process.

    Each consists of whole blocks, except the last one. Without rows there is one empty piece.

    Args:
        rows: the number of rows.
        block: the number of rows of a block.
    """
    blocks = -(-rows // block)  # rounded up
    pieces = min(SPANS, blocks)
    if not pieces:
        return [slice(0, 0)]
    cuts = [min(rows, block * (blocks * index // pieces)) for index in range(pieces + 1)]
    return [slice(start, stop) for start, stop in pairwise(cuts)]


def _rank_and_size() -> tuple[int, int] | None:
    """Return this process's number and the number of processes, as torchrun's variables say.

    Returns:
        None if torchrun set no variables.

    Raises:
        ConfigError: some variables are missing, or are not valid numbers.
    """
    present = {name: os.environ[name] for name in _TORCHRUN_VARIABLES if name in os.environ}
    if "RANK" not in present and "WORLD_SIZE" not in present:
        return None
    absent = [name for name in _TORCHRUN_VARIABLES if name not in present]
    if absent:
        given_name = next(iter(present))
        absent_name = absent[0]
        raise ConfigError(
            f"the environment variable {given_name} is set but {absent_name} is not, although "
            "torchrun sets both: start the processes with torchrun"
        )
    try:
        rank = int(present["RANK"])
        size = int(present["WORLD_SIZE"])
    except ValueError:
        rank = -1  # which is refused below
        size = 0
    if not 0 <= rank < size:
        raise ConfigError(
            f"RANK={present['RANK']} and WORLD_SIZE={present['WORLD_SIZE']} are not valid, because "
            "RANK must be at least 0 and below WORLD_SIZE: start the processes with torchrun"
        )
    return rank, size


def _pieces_of(count: int, rank: int, size: int) -> range:
    """Return the indices of the consecutive pieces, out of ``count``, of the process of a rank."""
    first = -(-count * rank // size)  # rounded up
    last = -(-count * (rank + 1) // size)
    return range(first, last)


def _halves(branch: Branch) -> tuple[Branch, Branch]:
    """Return the two branches of which a branch of at least two pieces consists."""
    first, last = branch
    # Rounded up, as in ``_pieces_of``: among 2 or 4 processes each then has a single branch.
    middle = (first + last + 1) // 2
    return (first, middle), (middle, last)


def _branches_within(branch: Branch, pieces: range) -> list[Branch]:
    """Return the largest branches of a tree that lie within consecutive pieces, in their order.

    Args:
        branch: the tree.
        pieces: indices of leaves of the tree.
    """
    first, last = branch
    if pieces.start <= first and last <= pieces.stop:
        return [branch]
    if last <= pieces.start or pieces.stop <= first:
        return []
    left, right = _halves(branch)
    return [*_branches_within(left, pieces), *_branches_within(right, pieces)]


def _sum_of_branch(
    branch: Branch, known_sums: Callable[[Branch], tuple[Tensor, ...] | None]
) -> tuple[Tensor, ...]:
    """Return the sums of a branch: those that are known, or else the added sums of its halves.

    Args:
        branch: the branch.
        known_sums: branch -> its sums; None: they must be computed from its halves.
    """
    sums = known_sums(branch)
    if sums is not None:
        return sums
    left, right = _halves(branch)
    left_sums = _sum_of_branch(left, known_sums)
    right_sums = _sum_of_branch(right, known_sums)
    return tuple(a + b for a, b in zip(left_sums, right_sums, strict=True))
