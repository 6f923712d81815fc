"""Ensembles: models trained with the same settings on disjoint parts of the records.

A shard is one member's part of the training records. A keyed hash of a unit's id decides its shard.
docs/proofs/ensembles.md proves that a member depends only on its own shard, bit for bit.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
from joblib import Parallel, delayed, parallel_config

from agt.data.arrays import aligned_empty
from agt.data.ids import keyed_hash
from agt.data.records import Records
from agt.distributed import group
from agt.settings import ComputeConfig
from agt.training.checkpoint import NO_CHECKPOINTS, Checkpoints
from agt.training.loop import ignore_progress
from agt.training.settings import EnsembleConfig
from agt.training.setup import TrainingSetup

T = TypeVar("T")
MemberTraining = Callable[[TrainingSetup, Records, Checkpoints], T]
"""A function that trains one member of an ensemble, and returns it.

It takes the member's settings, its shard (its part of the training records) and its checkpoints. It
is sent to other processes, so it has to be a function of a module (no closure, no lambda) or a
``functools.partial`` of one.
"""


def assign_shards(units: np.ndarray, config: EnsembleConfig) -> np.ndarray:
    """Return, for each record, the index of the ensemble member that trains on it.

    Args:
        units: [n] str, each record's unit id (whose data the record is). All records of a unit go
            to the same member.
        config: the number of members and the public key of the hash.

    Returns:
        [n] int64 from 0 to members - 1.
    """
    # Lemma 1 of docs/proofs/ensembles.md: a record's shard does not depend on other records.
    hashes = keyed_hash(units, f"shard/{config.key}")
    return (hashes % np.uint64(config.members)).astype(np.int64)


def member_records(
    records: Records, config: EnsembleConfig, indices: Sequence[int] | None = None
) -> list[Records]:
    """Return the training records of each ensemble member.

    The bytes of a member's records, their order and their alignment in memory do not depend on the
    other members' records, so neither does a training on them (Lemma 2 of
    docs/proofs/ensembles.md).

    Args:
        records: the records of all members, in any order.
        config: the number of members and the public key of the hash that assigns records.
        indices: the members whose records are returned; None: all members.

    Returns:
        One ``Records`` for each member, sorted by record id, with its features in a new aligned
        array. It is empty for a member to which no record is assigned.
    """
    if indices is None:
        indices = range(config.members)
    shard_of_rows = assign_shards(records.units, config)
    shards = []
    for index in indices:
        unordered = records.take(shard_of_rows == index)
        ordered = unordered.take(np.argsort(unordered.ids, kind="stable"))
        shards.append(replace(ordered, features=aligned_copy(ordered.features)))
    return shards


def aligned_copy(array: np.ndarray) -> np.ndarray:
    """Return a contiguous copy of an array that begins at a multiple of 64 bytes.

    Products of two arrays may round differently at addresses of other alignments; from such copies
    they have the same bits in every process.
    """
    copy = aligned_empty(array.shape, array.dtype)
    copy[...] = array
    return copy


def train_members(
    member: MemberTraining[T],
    setup: TrainingSetup,
    records: Records,
    config: EnsembleConfig,
    on_done: Callable[[int], None] = ignore_progress,
    checkpoints: Checkpoints = NO_CHECKPOINTS,
    indices: Sequence[int] | None = None,
) -> list[T]:
    """Train each member of an ensemble on its shard (its part of the training records).

    Members are trained in several processes at once if the machine has enough cores. A job of
    several processes (``torchrun``) trains one member after another, each with all processes.

    Formal guarantees
        * A member does not depend on which other members are trained in the same call: its records,
          its declared size and its number of threads are the same (Lemma 3 of
          docs/proofs/ensembles.md).

    Args:
        member: trains one member from a setup, the shard's records and checkpoints.
        setup: the setup of the whole ensemble. A member is trained with the declared size divided
            by the number of members, and with its part of the threads.
        records: the training records of all members.
        config: the number of members and the public key of the hash that assigns records.
        on_done: called with the number of finished members after each member.
        checkpoints: the place for checkpoints, of which each member gets a subfolder.
        indices: the members to train; None: all members.

    Returns:
        The results of ``member`` in the order of ``indices``.
    """
    if indices is None:
        indices = range(config.members)
    workers, threads = _divide_cores(config, setup.compute)
    # Lemma 3 of docs/proofs/ensembles.md: a member's size follows from public numbers, never from
    # the number of records in its shard.
    member_size = None
    if setup.declared_size is not None:
        member_size = setup.declared_size / config.members
    compute = replace(setup.compute, threads=threads)
    member_setup = replace(setup, declared_size=member_size, compute=compute)
    all_arguments = []  # of ``member`` for each index
    for index, shard in zip(indices, member_records(records, config, indices), strict=True):
        member_checkpoints = checkpoints.part(member_folder(index))
        all_arguments.append((member_setup, shard, member_checkpoints))
    if workers == 1 or group().size > 1:
        return _collect((member(*arguments) for arguments in all_arguments), on_done)
    # ``delayed`` makes a call that joblib sends to a worker process.
    calls = [delayed(member)(*arguments) for arguments in all_arguments]
    with worker_processes(workers, threads):
        trained = Parallel(return_as="generator")(calls)
        return _collect(trained, on_done)


def worker_processes(workers: int, threads: int = 1) -> parallel_config:
    """Return a context manager in which ``joblib.Parallel`` runs calls in worker processes.

    Workers receive private records through pipes only. By default joblib writes large arrays into
    files in /dev/shm, which every local user can read and which stay when a process is killed.

    Args:
        workers: the number of processes, at least 1.
        threads: the number of threads of each process, at least 1.
    """
    # max_nbytes=None switches the files in /dev/shm off.
    return parallel_config("loky", n_jobs=workers, inner_max_num_threads=threads, max_nbytes=None)


def member_folder(index: int) -> str:
    """Return the path of a member's folder, relative to the folder of the ensemble."""
    return f"members/{index:03d}"


def _collect(members: Iterable[T], on_done: Callable[[int], None]) -> list[T]:
    """Return the members as a list, and report the number of finished members after each one.

    Args:
        members: yields each member when its training is finished.
        on_done: called with the number of members so far.
    """
    finished = []
    for member in members:
        finished.append(member)
        on_done(len(finished))
    return finished


def _divide_cores(config: EnsembleConfig, compute: ComputeConfig) -> tuple[int, int]:
    """Return (number of worker processes, number of threads of each) for training an ensemble.

    The threads depend only on the settings and the machine, because they change how sums round.

    Args:
        config: the number of members; more processes than members are of no use.
        compute: the device, and the number of threads (None: one for each core of the machine).
    """
    cores = compute.threads
    if cores is None:
        cores = os.cpu_count() or 1  # Python may not know the number of cores
    workers = 1  # one process uses the GPU, and trains one member after another
    if compute.device == "cpu":
        workers = min(cores, config.members)
    threads = max(1, cores // workers)
    return workers, threads
