"""Ensembles over disjoint shards: members trained alike, each on the records that a keyed hash
gives to it (001 section 5).

Formal guarantees
    A record's shard depends on its unit's id and the public key alone (method.md section 3b), so
    one unit added or removed changes one member's training set and leaves every other member, its
    box and its certificates exactly as they were. One replaced by another may leave one shard and
    enter another, and changes two at most (``Relation.touches``).
    That is the ground on which certified votes stand (certificates/votes.py), and it must hold bit
    for bit: members that round otherwise when records arrive in another order could all change at
    once, each by what its own certificate allows. So ``parts`` orders each shard by id, in memory
    of its own at an address that is a multiple of 64 (a matrix product may round otherwise at
    another): the same records are the same bytes, from which the same program on the same machine
    makes the same bits. (Sums of gradients inside boxes are exact in any order; a linear head's are
    not.) A shard may be empty: its member then takes empty steps, as any empty batch does; refusing
    it would depend on private data.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Annotated, Literal, Protocol, TypeVar

import numpy as np
from joblib import Parallel, delayed, parallel_config
from pydantic import Field

from agt.data.ids import keyed_hash
from agt.data.records import Records
from agt.distributed import group
from agt.settings import ComputeConfig, accepting_removed, schema
from agt.training.checkpoint import NOWHERE, Checkpoints
from agt.training.recipe import Recipe

T = TypeVar("T", covariant=True)


@schema
class EnsembleConfig:
    """How many members, the public key of the hash that deals records to them, and how they answer
    together.

    Attributes:
        members: T; 1: no ensemble, every record in the one member's training set.
        key: the public key of the hashes.
        vote: labels: the class that most members give; margins: the sign of the sum of their
            margins, each clipped, of two classes (certificates/votes.py for both).
        margin_clip: what a member's margin is clipped to, a public constant in units of the logit;
            of margins alone.
    """

    members: Annotated[int, Field(ge=1, le=10_000)] = 1
    key: str = "agt"
    vote: Literal["labels", "margins"] = "labels"
    margin_clip: Annotated[float, Field(ge=1e-9, le=1e4)] | None = None

    _earlier = accepting_removed(slices=1)

    def __post_init__(self) -> None:
        if (self.vote == "margins") != (self.margin_clip is not None):
            raise ValueError(
                "vote=margins needs margin_clip, a public constant that no member's margin counts "
                "for more than (about the "
                "size of a member's usual logits), and vote=labels takes none"
            )
        if self.vote == "margins" and self.members == 1:
            raise ValueError(
                "vote=margins is a vote of several members, and members=1 are none: give members"
            )


MEMBER = 100  # records of a member by the recipe


def usual_members(size: float, caution: float = 1.0) -> int:
    """How many members the recipe has for ``certificate=votes``: one for 100 records, an odd
    number, so that two never tie.

    Args:
        size: how many records were declared.
        caution: so many times as many: longer distances, less accuracy.
    """
    return min(max(3, round(caution * size / MEMBER)), 9_998) | 1


class MemberTraining(Protocol[T]):
    """Trains one member.

    It travels to another process: a module-level function, or a ``functools.partial`` of one.
    """

    def __call__(self, recipe: Recipe, records: Records, checkpoints: Checkpoints) -> T: ...


def shards(units: np.ndarray, config: EnsembleConfig) -> np.ndarray:
    """[n] int64: the shard of each record. All rows of a unit share one."""
    return (keyed_hash(units, f"shard/{config.key}") % np.uint64(config.members)).astype(np.int64)


def parts(
    records: Records, config: EnsembleConfig, which: Sequence[int] | None = None
) -> list[Records]:
    """The records of each member, or of some, in the order of their ids, whatever order they
    came in.
    """
    home = shards(records.units, config)
    dealt = [
        records.take(home == shard) for shard in (range(config.members) if which is None else which)
    ]
    ordered = [part.take(np.argsort(part.ids, kind="stable")) for part in dealt]
    return [replace(part, features=aligned(part.features)) for part in ordered]


def aligned(array: np.ndarray) -> np.ndarray:
    """A copy whose bytes begin at a multiple of 64, wherever the original lay."""
    room = np.empty(array.nbytes + 64, dtype=np.uint8)
    start = -room.ctypes.data % 64
    copy: np.ndarray = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def train_members(
    member: MemberTraining[T],
    recipe: Recipe,
    records: Records,
    config: EnsembleConfig,
    on_done: Callable[[int], None] = lambda done: None,
    checkpoints: Checkpoints = NOWHERE,
    which: Sequence[int] | None = None,
) -> list[T]:
    """Train every member on its shard, or some members, several processes at once where the machine
    has the cores.

    Among processes that share their work (``agt.distributed``) one member after another, all of
    them at each.

    Args:
        member: trains one; called with its recipe, its shard and its checkpoints.
        recipe: of the whole; a member's has an equal share of the declared size and of the threads.
        records: all training records.
        on_done: called with the number of members finished.
        checkpoints: each member has a part of them.
        which: the members to train; None: all. Each is trained as among all of them, with as many
            threads.

    Returns:
        The members, in the order of the shards, or of ``which``.
    """
    workers, threads = _division(config, recipe.compute)
    share = None if recipe.declared_size is None else recipe.declared_size / config.members
    recipe = replace(recipe, declared_size=share, compute=replace(recipe.compute, threads=threads))
    which = range(config.members) if which is None else which
    shares = zip(which, parts(records, config, which), strict=True)
    dealt = [(recipe, part, checkpoints.part(member_folder(at))) for at, part in shares]
    if workers == 1 or group().size > 1:
        return _counted((member(*one) for one in dealt), on_done)
    with worker_processes(workers, threads):
        return _counted(
            Parallel(return_as="generator")(delayed(member)(*one) for one in dealt), on_done
        )


def worker_processes(workers: int, threads: int = 1) -> parallel_config:
    """So many processes for joblib, of so many threads each, which hand records to each other
    through pipes alone.

    joblib's own way, arrays of a megabyte and more in files below /dev/shm, lets every local user
    read them, also when a process that was killed has left them behind.
    """
    return parallel_config("loky", n_jobs=workers, inner_max_num_threads=threads, max_nbytes=None)


def member_folder(index: int) -> str:
    """Where a member's files lie, among those of the ensemble."""
    return f"members/{index:03d}"


def _counted(members: Iterable[T], on_done: Callable[[int], None]) -> list[T]:
    finished = []
    for member in members:
        finished.append(member)
        on_done(len(finished))
    return finished


def _division(config: EnsembleConfig, compute: ComputeConfig) -> tuple[int, int]:
    """(processes, threads of each).

    A GPU is not shared out: its members train one after another.
    """
    cores = compute.threads or os.cpu_count() or 1
    workers = 1 if compute.device != "cpu" else min(cores, config.members)
    return workers, max(1, cores // workers)
