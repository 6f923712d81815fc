"""Models of neighbouring datasets: a run's model is trained again on edited records.

Formal guarantees
    * Neighbours are trained with the run's own public constants. If a size or a normaliser was
      declared, they are the same whatever the records. If none was, the run counted its records,
      and the certificate is about trainings that keep that count (condition c, that all constants
      are public, does not hold). ``retrained`` keeps it, each member of an ensemble its own, and
      with it all that is derived: B, n_max, the plan, and what a recipe settles.
    * A unit's batch, shard and slice follow from its own id.
    * Neighbours may be empty, or hold one class: refusing them would depend on private data.
    * ``neighbour_of`` keeps an ensemble's members that an edit leaves alone: their records are the
      same bytes in the same order.
    * A removal's certificate holds given its draws, so it keeps these: the neighbour is the
      minimiser with the run's own b (agt/training/removal.py), plus the noise that is on the run's
      weights.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from joblib import Parallel, delayed

from agt.data.records import Records
from agt.errors import AgtError
from agt.models.ensemble import EnsembleModel, fit_members
from agt.models.fitting import fit
from agt.models.model import Model
from agt.problem import Problem
from agt.settings import KGridConfig
from agt.training.ensemble import assign_shards, worker_processes
from agt_audit.edited_records import EditedRecords

NOMINAL = (0,)  # the values of k if no bounds are wanted
# neighbours for each worker process: fewer are trained sooner than a process starts
EDITS_PER_WORKER = 24


def retrained(problem: Problem, records: Records, ks: tuple[int, ...] | None = None) -> Model:
    """Train a model on other records, with the public constants of a run.

    Args:
        problem: the run's problem, with the records that the run was trained on.
        records: the records to train on, with the features of ``problem.dataset``; its public
            records are among them, unchanged.
        ks: the values of k that boxes are computed for; None: the run's own.

    Raises:
        ConfigError: training refuses the records, because a batch exceeds n_max or a unit has
            too many rows.
        UnsoundError: a bound or a parameter is not a number.
    """
    edited_problem = neighbouring(problem, records, ks)
    if not problem.settings.ensembled:
        return fit(edited_problem)
    members = range(problem.settings.ensemble.members)
    member_models = retrained_members(problem, records, members, ks)
    return EnsembleModel(edited_problem, tuple(member_models))


def retrained_members(
    problem: Problem,
    records: Records,
    member_indices: Sequence[int],
    ks: tuple[int, ...] | None,
) -> list[Model]:
    """Train some members of an ensemble on their shards of other records.

    Args:
        problem: the run's problem, with the records that the run was trained on.
        records: the records of all shards to train on.
        member_indices: indices of the members to train.
        ks: the values of k that boxes are computed for; None: the run's own.

    Returns:
        The models, in the order of ``member_indices``.

    Raises:
        ConfigError: training refuses the records, because a batch exceeds n_max or a unit has too
            many rows.
        UnsoundError: a bound or a parameter is not a number.
    """
    edited_problem = neighbouring(problem, records, ks)
    dataset = edited_problem.dataset
    members = problem.settings.ensemble.members
    is_declared = problem.dataset.declared_size is not None
    # without a declared size, each member keeps the number of records that it counted
    counts = (0,) * members if is_declared else problem.member_record_counts
    assert isinstance(counts, tuple)  # an ensemble has a number for each member
    models: dict[int, Model] = {}
    # Members with one count share a problem; with a declared size, all of them do.
    for count in sorted({counts[index] for index in member_indices}):
        size = dataset.declared_size
        if not is_declared:
            size = max(count, 1) * float(members)
        same_count = [index for index in member_indices if counts[index] == count]
        problem_of_count = edited_problem.with_dataset(dataset.with_training_records(records, size))
        trained = fit_members(problem_of_count, same_count)
        for index, (model, _) in zip(same_count, trained, strict=True):
            models[index] = model
    return [models[index] for index in member_indices]


def neighbouring(problem: Problem, records: Records, ks: tuple[int, ...] | None = None) -> Problem:
    """Return the run's problem on other records, with the run's public constants.

    If the run declared no size, the number of records that it counted is declared, so that all
    that is derived from the size stays as it was.

    Args:
        problem: the run's problem, with the records that the run was trained on.
        records: the other records, with the features of ``problem.dataset``.
        ks: the values of k that boxes are computed for; None: the run's own.
    """
    size = problem.dataset.declared_size
    if size is None:
        size = float(max(problem.record_count, 1))
    settings = problem.settings
    if ks is not None:
        settings = replace(settings, kgrid=KGridConfig(values=ks))
    dataset = problem.dataset.with_training_records(records, size)
    return replace(problem, settings=settings).with_dataset(dataset)


def neighbour_of(model: Model, records: Records, ks: tuple[int, ...] | None = None) -> Model:
    """Train the run's model again, on a neighbour of the records that it was trained on.

    An ensemble's member is trained again only if a unit of its shard was added, removed or
    relabelled; the other members are those of ``model``.

    Args:
        model: the run's model, with the records that it was trained on.
        records: the neighbour's records. In an ensemble, changes are found by ids and labels:
            features that changed under the same id would not be noticed.
        ks: the values of k that boxes are computed for; None: the run's own. A model that stores
            its noise is trained with the run's own in any case.

    Raises:
        DataError: the file of the run's records was changed.
        ConfigError: training refuses the records, because a batch exceeds n_max or a unit has too
            many rows.
        UnsoundError: a bound or a parameter is not a number.
    """
    problem = model.problem
    problem.dataset.check_unchanged()
    if model.stores_noise:
        return model.retrain_with_same_noise(neighbouring(problem, records))
    if not problem.settings.ensembled:
        return retrained(problem, records, ks)
    train = problem.dataset.train
    ids_of_one_side = np.setxor1d(train.ids, records.ids)
    changed_ids = np.concatenate([ids_of_one_side, _relabelled_ids(train, records)])
    removed_units = train.units[np.isin(train.ids, changed_ids)]
    added_units = records.units[np.isin(records.ids, changed_ids)]
    changed_units = np.concatenate([removed_units, added_units])
    changed_shards = set(assign_shards(changed_units, problem.settings.ensemble).tolist())
    shards = sorted(changed_shards)
    # A shard's index is its member's, and assigning to it keeps the order of members.
    members = dict(enumerate(model.member_models))
    members |= zip(shards, retrained_members(problem, records, shards, ks), strict=True)
    return EnsembleModel(neighbouring(problem, records, ks), tuple(members.values()))


def _relabelled_ids(train: Records, records: Records) -> np.ndarray:
    """Return the ids that are in both sets of records, but with different labels."""
    common_ids, train_rows, other_rows = np.intersect1d(train.ids, records.ids, return_indices=True)
    is_relabelled: np.ndarray = train.labels[train_rows] != records.labels[other_rows]
    return common_ids[is_relabelled]


def neighbours_of(
    model: Model, edits: Sequence[EditedRecords], processes: bool = True
) -> Iterator[Model | AgtError]:
    """Train the run's model on each of several neighbours, without bounds.

    Worker processes share the work if there are enough neighbours for two of them and the run
    computes on a CPU.

    Args:
        model: the run's model, with the records that it was trained on.
        edits: the neighbours.
        processes: False: train all of them in this process, because worker processes take
            seconds to start.

    Yields:
        For each neighbour, in order, its model, or the error with which training refused it. The
        model has the run's own problem, with the run's records instead of the neighbour's,
        because a worker process sends no records back.
    """
    workers = min(os.cpu_count() or 1, len(edits) // EDITS_PER_WORKER)
    on_cpu = model.problem.settings.compute.device == "cpu"
    changes = [(edit.removed_rows, edit.added) for edit in edits]
    if processes and workers >= 2 and on_cpu:
        with worker_processes(workers):
            trained: Iterator[Model | AgtError] = Parallel(return_as="generator")(
                delayed(_train_without_bounds)(model, *change) for change in changes
            )
    else:
        trained = (_train_without_bounds(model, *change) for change in changes)
    for result in trained:
        if isinstance(result, AgtError):
            yield result
        else:
            yield result.with_problem(model.problem)


def _train_without_bounds(
    model: Model, removed_rows: np.ndarray, added: tuple[Records, ...]
) -> Model | AgtError:
    """Train the run's model on one neighbour, and return it without bounds and without records.

    It may run in a worker process: errors are returned, so that one refused neighbour does not
    end the others.

    Args:
        model: the run's model, with the records that it was trained on.
        removed_rows: indices of the run's records that the neighbour lacks.
        added: the records that only the neighbour has, a unit in each entry.

    Returns:
        The neighbour's model, or the error with which training refused its records.
    """
    train = model.problem.dataset.train
    neighbour = EditedRecords(train, removed_rows, added)
    try:
        trained = neighbour_of(model, neighbour.records, NOMINAL)
    except AgtError as error:
        return error
    return trained.with_problem(model.problem.with_dataset(model.problem.dataset.without_records))
