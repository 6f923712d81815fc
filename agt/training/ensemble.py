"""Ensembles: members trained alike on disjoint shards, one for each value of a keyed hash.

That a member depends on its own shard alone, bit for bit, is proved in docs/proofs/ensembles.md.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Annotated, Literal, Protocol, TypeVar

import numpy as np
from joblib import Parallel, delayed, parallel_config
from pydantic import Field

from agt.data.arrays import aligned_empty
from agt.data.ids import keyed_hash
from agt.data.records import Records
from agt.distributed import group
from agt.settings import ComputeConfig, accepting_removed, schema
from agt.training.checkpoint import NOWHERE, Checkpoints
from agt.training.setup import TrainingSetup

RECORDS_PER_MEMBER = 100  # by the recipe
_MAX_USUAL_MEMBERS = 9_998  # the odd number above it is within EnsembleConfig's bound

T = TypeVar("T", covariant=True)


@schema
class EnsembleConfig:
    """How many members there are, how records are assigned to them, and how they vote.

    Attributes:
        members: the number of members; 1: no ensemble, all records are the one member's.
        key: the public key of the hash that assigns units to shards.
        vote: ``labels``: the class that most members give; ``margins``: for two classes, the sign
            of the sum of the members' clipped margins (certificates/votes.py has both).
        margin_clip: what a member's margin is clipped to, a public constant in units of the logit;
            for ``margins`` alone.

    Raises:
        ValueError: ``margin_clip`` is missing for margins, or given for labels; or margins are to
            be summed over one member.
    """

    members: Annotated[int, Field(ge=1, le=10_000)] = 1
    key: str = "agt"
    vote: Literal["labels", "margins"] = "labels"
    margin_clip: Annotated[float, Field(ge=1e-9, le=1e4)] | None = None

    _earlier = accepting_removed(slices=1)

    def __post_init__(self) -> None:
        if (self.vote == "margins") != (self.margin_clip is not None):
            raise ValueError(
                "vote=margins needs margin_clip, a public constant to which each member's "
                "margin is clipped (about the size of a member's usual logits); vote=labels "
                "must not have one"
            )
        if self.vote == "margins" and self.members == 1:
            raise ValueError(
                "vote=margins needs several members, but members=1. Give members=3 or more"
            )


def usual_members(size: float, caution: float = 1.0) -> int:
    """Return how many members the recipe has for ``certificate=votes``.

    Args:
        size: how many records were declared.
        caution: a factor on the number of members: more of them certify longer distances at less
            accuracy.

    Returns:
        One member for 100 records, at least 3 and at most 9,999: an odd number, so that two classes
        never tie.
    """
    members = round(caution * size / RECORDS_PER_MEMBER)
    return min(max(3, members), _MAX_USUAL_MEMBERS) | 1


class MemberTraining(Protocol[T]):
    """Trains one member.

    It is sent to other processes, so it has to be a module-level function, or a
    ``functools.partial`` of one.
    """

    def __call__(self, setup: TrainingSetup, records: Records, checkpoints: Checkpoints) -> T:
        """Train a member on its shard."""


def shards(units: np.ndarray, config: EnsembleConfig) -> np.ndarray:
    """Return the shard of each record, [n] int64 in 0..members-1.

    Args:
        units: [n] str, each record's unit id. All rows of a unit are in the same shard.
        config: how many members there are, and the public key of the hash.
    """
    # Lemma 1 of docs/proofs/ensembles.md: nothing here depends on other records.
    return (keyed_hash(units, f"shard/{config.key}") % np.uint64(config.members)).astype(np.int64)


def member_records(
    records: Records, config: EnsembleConfig, indices: Sequence[int] | None = None
) -> list[Records]:
    """Return the records of each member, as the same bytes whatever the other shards have.

    Args:
        records: the records of all members, in any order.
        config: how many members there are, and the public key of the hash.
        indices: the members whose records are returned; None: all of them.

    Returns:
        Each member's records in the order of their ids, features in memory of their own (Lemma 2 of
        docs/proofs/ensembles.md). A shard without records has none.
    """
    if indices is None:
        indices = range(config.members)
    shard_of_rows = shards(records.units, config)
    unordered = [records.take(shard_of_rows == index) for index in indices]
    ordered = [shard.take(np.argsort(shard.ids, kind="stable")) for shard in unordered]
    return [replace(shard, features=aligned_copy(shard.features)) for shard in ordered]


def aligned_copy(array: np.ndarray) -> np.ndarray:
    """Return a contiguous copy that is aligned as ``aligned_empty`` is, whatever the original."""
    copy = aligned_empty(array.shape, array.dtype)
    copy[...] = array
    return copy


def train_members(
    member: MemberTraining[T],
    setup: TrainingSetup,
    records: Records,
    config: EnsembleConfig,
    on_done: Callable[[int], None] = lambda done: None,
    checkpoints: Checkpoints = NOWHERE,
    indices: Sequence[int] | None = None,
) -> list[T]:
    """Train each member on its shard, several members at once where the machine has the cores.

    Processes that share their work (``agt.distributed``) train one member after another, all of
    them each.

    Formal guarantees
        * A member is trained as it would be among all members, whichever of them are trained here:
          its records, its share of the declared size and its number of threads are the same
          (Lemma 3 of docs/proofs/ensembles.md).

    Args:
        member: trains one member.
        setup: of the whole ensemble; a member's has an equal share of the declared size and of the
            threads.
        records: all training records.
        config: how many members there are, and the public key of the hash.
        on_done: called with the number of finished members.
        checkpoints: each member gets a part of them.
        indices: the members to train; None: all of them.

    Returns:
        What ``member`` returned for each, in the order of the shards, or of ``indices``.
    """
    if indices is None:
        indices = range(config.members)
    workers, threads = _divide_cores(config, setup.compute)
    # Lemma 3 of docs/proofs/ensembles.md: from public numbers alone, never from a shard's size.
    share = None if setup.declared_size is None else setup.declared_size / config.members
    compute = replace(setup.compute, threads=threads)
    member_setup = replace(setup, declared_size=share, compute=compute)
    calls = []
    for index, shard in zip(indices, member_records(records, config, indices), strict=True):
        calls.append((member_setup, shard, checkpoints.part(member_folder(index))))
    if workers == 1 or group().size > 1:
        return _collect((member(*arguments) for arguments in calls), on_done)
    with worker_processes(workers, threads):
        trained = Parallel(return_as="generator")(delayed(member)(*call) for call in calls)
        return _collect(trained, on_done)


def worker_processes(workers: int, threads: int = 1) -> parallel_config:
    """Return a context in which joblib has worker processes that get records through pipes alone.

    By default joblib puts large arrays into files below /dev/shm, which every local user can read,
    and which stay there when a process is killed.

    Args:
        workers: the number of processes.
        threads: the number of threads of each process.
    """
    return parallel_config("loky", n_jobs=workers, inner_max_num_threads=threads, max_nbytes=None)


def member_folder(index: int) -> str:
    """Return the folder of a member's files, relative to that of the ensemble."""
    return f"members/{index:03d}"


def _collect(members: Iterable[T], on_done: Callable[[int], None]) -> list[T]:
    """Return the members as a list, and call ``on_done`` with its length after each."""
    finished = []
    for member in members:
        finished.append(member)
        on_done(len(finished))
    return finished


def _divide_cores(config: EnsembleConfig, compute: ComputeConfig) -> tuple[int, int]:
    """Return how many processes train members, and how many threads each has.

    A GPU is not shared: its members are trained one after another.
    """
    cores = compute.threads or os.cpu_count() or 1
    workers = min(cores, config.members) if compute.device == "cpu" else 1
    threads = max(1, cores // workers)
    return workers, threads
