"""Training again on other records, as the run itself would have been trained on them.

Formal guarantees
    A certificate speaks of trainings with the run's own public constants. Where a size was declared, or a normaliser, they
    are the same whatever the records. Where none was, the run counted its records, and the certificate is about trainings
    that keep that count (condition c does not hold: nobody may know it). ``retrained`` keeps it, each member of an ensemble
    its own, and with it all that is derived: B, n_max, the plan, and what a recipe settles. Initial parameters and an
    encoder's features are the problem's. A unit's batch, shard and slice follow from its own id.
    Neighbours may be empty, or hold one class: as for a shard, to refuse them would depend on private data.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from agt.data.dataset import Records
from agt.models.ensemble import EnsembleModel, fit_members
from agt.models.model import KINDS, Model, fit
from agt.problem import Problem
from agt.settings import KGridConfig


def retrained(problem: Problem, records: Records, ks: tuple[int, ...] | None = None) -> Model:
    """The model that the same public constants make of other training records.

    Args:
        problem: of the run, with the records that it was trained on.
        records: in the features of ``problem.dataset``; public ones among them as they are there.
        ks: the values of k to carry boxes for; None: the run's own.

    Raises:
        ConfigError: training refuses them: a batch above n_max, a unit with too many rows.
        UnsoundError: a bound or a parameter is no number.
    """
    again = neighbouring(problem, records, ks)
    members = problem.settings.ensemble.members
    if members == 1:
        return fit(again)
    return EnsembleModel(again, tuple(retrained_members(problem, records, range(members), ks)))


def retrained_members(
    problem: Problem, records: Records, which: Sequence[int], ks: tuple[int, ...] | None = None
) -> list[Model]:
    """Some members of an ensemble, on their shards of other training records; raises as ``retrained``."""
    again, settings = neighbouring(problem, records, ks), problem.settings
    kind, members, dataset = KINDS[type(settings.certificate)], settings.ensemble.members, again.dataset
    counts = problem.counts if problem.dataset.declared_size is None else (0,) * members
    assert isinstance(counts, tuple)
    made: dict[int, Model] = {}
    for count in sorted({counts[index] for index in which}):  # one turn, unless shards were counted
        size = dataset.declared_size if problem.dataset.declared_size is not None else max(count, 1) * float(members)
        same = [index for index in which if counts[index] == count]
        trained = fit_members(kind, again.on(dataset.with_shard(records, size)), same, {})
        made |= {index: model for index, (model, _) in zip(same, trained, strict=True)}
    return [made[index] for index in which]


def neighbouring(problem: Problem, records: Records, ks: tuple[int, ...] | None = None) -> Problem:
    """The run's problem on other records, its constants kept."""
    size = problem.dataset.declared_size
    size = float(max(problem.trained_on, 1)) if size is None else size
    settings = problem.settings if ks is None else replace(problem.settings, kgrid=KGridConfig(values=ks))
    return replace(problem, settings=settings).on(problem.dataset.with_shard(records, size))


def without(records: Records, rows: np.ndarray) -> Records:
    """All but the records at ``rows`` (indices or a mask)."""
    kept = np.ones(len(records), dtype=bool)
    kept[rows] = False
    return records.take(kept)


def with_added(records: Records, others: Records) -> Records:
    """The records of both; their ids must differ."""

    def joined(name: str) -> np.ndarray:
        return np.concatenate([getattr(records, name), getattr(others, name)])

    return Records(joined("features"), joined("labels"), joined("ids"), joined("units"), joined("public"))
