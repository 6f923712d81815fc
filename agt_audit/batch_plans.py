"""The batches and the constants of a run, compared with those of other datasets."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from agt.data.records import Records
from agt.problem import Problem
from agt.settings import MAX_ROWS
from agt.training.batches import BatchPlan
from agt.training.ensemble import assign_shards
from agt_audit.neighbours import neighbouring
from agt_cli.report.findings import Finding, exact_finding


def batches_finding(problem: Problem, datasets: Sequence[Records], subject: str) -> Finding:
    """Return the finding of a comparison of a run's batch plan with those of other datasets.

    A record's batch and shard may depend on that record only, and constants on no record.

    Args:
        problem: the run's problem, with the records that it was trained on.
        datasets: the records of the other datasets. Records are the same if their ids are.
        subject: the subject of the finding.
    """
    declared = _declared_constants(problem)
    wrong_constants = 0
    reassigned = 0
    for records in datasets:
        neighbour = neighbouring(problem, records)
        for plan in (problem.plan, neighbour.plan):
            wrong_constants += (plan.normalizer, plan.n_max) != declared
        reassigned += _count_reassigned_records(problem, records, neighbour.plan)
    return exact_finding(
        subject=subject,
        claim=(
            "the divisor B of gradient sums and the maximum batch size n_max have their declared "
            "values, and a record's batch and shard depend on that record only"
        ),
        attack=(
            "the run's batches were compared with those of two other datasets: one is a "
            "neighbouring dataset, the other has half of the records"
        ),
        effort=(
            "for all records that are in the run's dataset and in the other one, the shards and "
            "the batches of the first two epochs were compared"
        ),
        measure="wrong constants, and records in another batch or shard",
        found=float(wrong_constants + reassigned),
        meaning=(
            f"{wrong_constants} of 4 batch plans have other constants than declared, and "
            f"{reassigned} records are in another batch or shard than in the run"
        ),
        noticeable=(
            "this audit detects a single wrong constant, and a single record in another batch or "
            "shard"
        ),
    )


def _declared_constants(problem: Problem) -> tuple[float, int]:
    """Return the divisor of gradient sums and the maximum batch size, as declared or derived."""
    batch = problem.setup.training.batch
    plan = problem.plan
    size = problem.dataset.declared_size
    derived = plan.normalizer if size is None else size / batch.count
    return batch.normalizer or derived, batch.n_max or plan.n_max


def _count_reassigned_records(problem: Problem, records: Records, other_plan: BatchPlan) -> int:
    """Count records of a run that another dataset assigns to another batch or shard.

    Only records that both have are compared. A record counts once for its shard, and once for each
    batch of the first two epochs. If the numbers of steps differ, every common record counts once
    more.

    Args:
        problem: the run's problem.
        records: the records of the other dataset.
        other_plan: the plan of its batches.
    """
    train = problem.dataset.train
    plan = problem.plan
    common, run_rows, other_rows = np.intersect1d(train.ids, records.ids, return_indices=True)
    reassigned = 0
    batches = zip(_batch_ids(plan, train), _batch_ids(other_plan, records), strict=False)
    for run_batch, other_batch in islice(batches, 2 * plan.count):  # two epochs
        in_one_only = np.setxor1d(run_batch, other_batch)
        reassigned += len(np.intersect1d(in_one_only, common))
    if plan.steps != other_plan.steps:
        reassigned += common.size
    ensemble = problem.settings.ensemble
    run_shards = assign_shards(train.units, ensemble)[run_rows]
    other_shards = assign_shards(records.units, ensemble)[other_rows]
    return reassigned + int((run_shards != other_shards).sum())


def _batch_ids(plan: BatchPlan, records: Records) -> Iterator[np.ndarray]:
    """Yield the ids of the records in each step's batch, without the limit n_max."""
    for rows in replace(plan, n_max=MAX_ROWS).batches(records.units):
        yield records.ids[rows]
