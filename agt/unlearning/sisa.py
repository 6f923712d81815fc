"""Sharded, isolated, sliced, aggregated training (Bourtoule et al. 2021): after a removal, only what it touched is trained.

Formal guarantees of ``retrain_affected``
    The result is what training on the data as they are now gives, bit for bit, if what else bits depend on (code, machine,
    threads: ``Shard.made``) is the same. A member is a function of the records of its own shard, in an order of their own,
    and of settings and public constants (training/ensemble.py). It is kept if and only if the digest of each slice of its
    shard is the one that it was trained on; else training goes on from the state before the first slice whose digest
    differs, which is a function of the slices before (training/slices.py); from its beginning, where that state was made by
    other code or threads, or where features are made from the public rows of its shard, of all its slices. So it does not
    matter which records are gone, nor whether anybody still knows their ids, and a shard is touched by its own requests
    alone, since a unit's shard and slice are keyed hashes of its id.
    What could tie members to the number of all records does not. The declared size, the normaliser and what the recipe
    settles from them are public constants; where no size is declared, a member's come from its own shard, and slices,
    whose early states would then depend on later records, are refused (``BatchPlan``). Threads are divided by the number of
    members, not of those that are trained. Features that were whitened by public rows are compared, and other rows refused;
    a linear head's constants are compared as it is read (``LinearModel.load``).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from agt.data.dataset import Dataset
from agt.errors import CheckError, ConfigError
from agt.models.ensemble import EnsembleModel, Shard, fit_members, load_members, made_by, shard_digests
from agt.models.features import FeatureMap
from agt.models.model import KINDS
from agt.models.store import Shelf
from agt.problem import Problem
from agt.settings import FeaturesConfig
from agt.training.ensemble import member_folder, parts
from agt.training.loop import Progress

INSTEAD = "use method=retrain"


@dataclass(frozen=True)
class Retrained:
    """An ensemble of which some members were trained again.

    Attributes:
        model: on the data as they are now.
        begun: member -> the first slice, from 0, that it was trained on again; the others were kept.
    """

    model: EnsembleModel
    begun: Mapping[int, int]

    @property
    def slices(self) -> int:
        """How many stages of training there were."""
        return sum(self.model.settings.ensemble.slices - first for first in self.begun.values())

    @property
    def steps(self) -> int:
        """How many steps of SGD; of a minimiser, how many it would list."""
        return self.slices * self._stage

    @property
    def all_slices(self) -> int:
        """How many stages training all members takes."""
        return len(self.model.members) * self.model.settings.ensemble.slices

    @property
    def all_steps(self) -> int:
        """How many steps training all members takes."""
        return self.all_slices * self._stage

    @property
    def changed(self) -> tuple[str, ...]:
        """What else bits depend on and is not the same for all members, in words."""
        made = [shard.made for shard in self.model.shards]
        keys = sorted({key for node in made for key in node})
        return tuple(key for key in keys if any(node.get(key) != made[0].get(key) for node in made))

    @property
    def _stage(self) -> int:
        return self.model.plan.steps // self.model.settings.ensemble.slices


def retrain_affected(
    problem: Problem, shelf: Shelf, on_progress: Callable[[Progress], None] = lambda progress: None
) -> Retrained:
    """The ensemble that a shelf holds, on the records that remain.

    Args:
        problem: the data as they are now, and the settings that the ensemble was trained with.
        shelf: where it lies, with its shards (``EnsembleModel.save_shards``).
        on_progress: called after every member that was trained.

    Raises:
        CheckError: it is no ensemble, or its members depend on more than their shards.
        ConfigError: a file is missing or not what was written.
    """
    ensemble, kind = problem.settings.ensemble, KINDS[type(problem.settings.certificate)]
    if ensemble.members == 1:
        raise CheckError(f"method=sisa: the run is one model, and each record is in it (ensemble.members=1): {INSTEAD}")
    kept = _shards(shelf, ensemble.members, ensemble.slices)
    begun, now_made, dealt = {}, made_by(problem), parts(problem.dataset.train, ensemble)
    shared = getattr(problem.settings.certificate, "features", FeaturesConfig()).public == "train"  # by a shard's slices
    for index, records in enumerate(dealt):
        differs = [now != then for now, then in zip(shard_digests(records, ensemble), kept[index].digests, strict=True)]
        if any(differs):
            begun[index] = differs.index(True) if kept[index].made == now_made and not shared else 0
    whole = [index for index in range(ensemble.members) if index not in begun]
    members: dict[int, Any] = dict(zip(whole, load_members(kind, problem, shelf, whole), strict=True))
    for index, member in members.items():
        _check_features(member, problem.dataset.bare.with_shard(dealt[index], None))
    shards = dict(enumerate(kept))
    states = {index: kept[index].states[:first] for index, first in begun.items()}
    for index, (member, shard) in zip(begun, fit_members(kind, problem, list(begun), states, on_progress), strict=True):
        members[index], shards[index] = member, shard
    order = range(ensemble.members)
    return Retrained(EnsembleModel(problem, tuple(members[i] for i in order), tuple(shards[i] for i in order)), begun)


def _shards(shelf: Shelf, members: int, slices: int) -> list[Shard]:
    """What each member was trained on."""
    try:
        return [Shard.read(shelf.part(member_folder(index)), slices) for index in range(members)]
    except ConfigError as error:
        raise CheckError(f"method=sisa: the run tells not what each member was trained on ({error}): {INSTEAD}") from None


def _check_features(member: Any, shard: Dataset) -> None:
    """Refuse public features that are others now: a fresh member would have those of the public rows as they are now."""
    features: FeaturesConfig | None = getattr(member.settings.certificate, "features", None)
    if features is None:
        return
    now, then = FeatureMap.of(features, shard).matrices, member.features.matrices
    if now.keys() != then.keys() or not all(torch.equal(now[name], then[name]) for name in now):
        raise CheckError(
            "method=sisa: the public rows that the features are made from (certificate.features.public) are others now, so "
            f"every member would be: {INSTEAD}"
        )
