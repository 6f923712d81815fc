"""Units that are likely to move a model's answers, and neighbouring datasets without them.

No guarantee depends on this search: it only decides how much an audit can detect.
"""

import math
from collections.abc import Iterator
from hashlib import blake2b

import numpy as np
from scipy.special import expit

from agt.data.arrays import pieces
from agt.data.ids import CONTENT
from agt.data.records import Records
from agt.errors import counted
from agt.models.model import Model
from agt.numeric import labels_of
from agt.problem import Problem
from agt.relations import RELATIONS
from agt.training.ensemble import assign_shards
from agt.training.settings import EnsembleConfig
from agt_audit.edited_records import attack_records, other_label, tried_label, with_added, without
from agt_audit.neighbours import neighbour_of

ONE_DATASET = "two datasets were used: the run's own data, and the same data"


def neighbours(model: Model, queries: np.ndarray, count: int) -> Iterator[tuple[str, Model]]:
    """Train on neighbouring datasets that are made to change the answers to some queries.

    For each query, the unit with the largest influence is removed in one dataset, and a record with
    the query's features is added in another. If edits of the relation replace units, one dataset
    has both edits.

    Args:
        model: the run's model, with the records that it was trained on.
        queries: [m, ...], best at a boundary between two labels.
        count: how many neighbours to make; one more may be made, or fewer if queries or private
            units run out.

    Yields:
        A sentence that says which two datasets are compared, which names a unit and is for the
        data owner only; and the neighbour's model.
    """
    problem = model.problem
    records = problem.dataset.train
    replaces = RELATIONS[problem.settings.relation.name].members_changed_per_edit > 1
    datasets_per_query = 1 if replaces else 2
    queries = queries[: math.ceil(count / datasets_per_query)]
    units = influential_units(model, queries)
    for row, (query, unit) in enumerate(zip(queries, units, strict=False)):
        rows = np.flatnonzero(records.units == unit)
        remaining = without(records, rows)
        added = attack_records(
            features=query[None],
            labels=np.array([tried_label(problem.dataset.target, row)]),
            ids=np.array([f"a record added by the audit, {row + 1}"]),
            like=records,
        )
        rows_of_unit = counted(len(rows), "row")
        removal = f"{ONE_DATASET} without unit {unit!r} ({rows_of_unit})"
        addition = f"with an added record that has the features of query {row + 1}"
        if replaces:
            yield f"{removal} and {addition}", neighbour_of(model, with_added(remaining, added))
            continue
        yield removal, neighbour_of(model, remaining)
        yield f"{ONE_DATASET} {addition}", neighbour_of(model, with_added(records, added))


def influential_units(model: Model, queries: np.ndarray) -> Iterator[str]:
    """Yield for each query the unit with the most influence on it that was not yielded before.

    Fewer units than queries are yielded if the private units run out.

    Args:
        model: the model, with the records that it was trained on.
        queries: [m, ...] the queries.
    """
    chosen: set[str] = set()
    for query in queries:
        for unit in units_by_influence(model, query):
            if unit not in chosen:
                chosen.add(unit)
                yield unit
                break


def units_by_influence(model: Model, query: np.ndarray) -> list[str]:
    """Return the private units, those that are likely to move the answer to a query most first.

    A unit of several rows is as influential as its most influential row. Where members vote on a
    class, the units of the member whose vote decides come before all others.

    Args:
        model: the model, with the records that it was trained on.
        query: [...] the query.
    """
    records = model.problem.dataset.train
    ensemble = model.problem.settings.ensemble
    if ensemble.members == 1 or model.number_votes is not None:
        influence = _influences(model, records, query[None])
    else:
        member = _deciding_member(model, query[None])
        members = model.member_models
        of_member = members[member] if len(members) > 1 else model
        influence = _influences(of_member, records, query[None])
        influence[assign_shards(records.units, ensemble) != member] = -np.inf
    private_rows = np.flatnonzero(~records.public)
    strongest_first = private_rows[np.argsort(-influence[private_rows], kind="stable")]
    return list(dict.fromkeys(records.units[strongest_first].tolist()))


def _deciding_member(model: Model, query: np.ndarray) -> int:
    """Return the member that is closest to another label, of those whose vote decides the winner.

    A vote decides if the winner changes when the member gives its second label. If none does, all
    members are considered.

    Args:
        model: an ensemble, or votes, on classes.
        query: [1, ...] the query.
    """
    margins = model.member_margins(query)[:, :, 0]  # [T, 1] for two classes, otherwise [T, C]
    classes = model.problem.classes
    labels = labels_of(margins)
    second = 1 - labels if classes == 2 else np.argsort(margins, axis=1)[:, -2]
    votes = np.eye(classes, dtype=int)
    counts = votes[labels].sum(axis=0)
    counts_if_moved = counts - votes[labels] + votes[second]  # [T, classes]
    decides = counts_if_moved.argmax(axis=1) != counts.argmax()
    # the margin of a member's own label: how far it is from another one
    distance = np.abs(margins[:, 0]) if classes == 2 else margins.max(axis=1)
    if decides.any():
        distance = np.where(decides, distance, np.inf)
    return int(distance.argmin())


def _influences(model: Model, records: Records, query: np.ndarray) -> np.ndarray:
    """Return a score of how much each record is likely to move the model's answer, [n] float64.

    * Models with features that no record decides: the absolute inner product of the record's
      features with the query's. A record's gradient in a linear head is its features times the
      residual of its label, so there the product is multiplied by the residual (of more than two
      classes: by that of the own label against the next one). Of numbers it is multiplied by the
      record's error.
    * Other models: minus the margin of the record's own label, which depends on no query.

    Args:
        model: the model, or a member of it.
        records: n records, which are processed in pieces to limit memory.
        query: [1, ...] the query.
    """
    head = model.linear_head
    features = model.public_features if head is None else head.phi
    if features is None:
        return -_own_margins(model, records)
    (query_features,) = features(query)
    products = [features(piece) @ query_features for piece in pieces(records.features)]
    influence = np.abs(np.concatenate(products)).astype(np.float64)
    if head is not None:
        influence *= expit(-_own_margins(model, records))
    elif model.number_votes is not None:
        influence *= np.abs(records.labels - model.predict(records.features))
    return influence


def _own_margins(model: Model, records: Records) -> np.ndarray:
    """Return the margin of each record's own label, [n]; below 0 where it is not the model's."""
    margins = [model.margins(piece) for piece in pieces(records.features)]
    return margins_of_labels(np.concatenate(margins, axis=1), records.labels)


def margins_of_labels(margins: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the margin of each record's own label, [n]; below 0 where it is not the model's.

    Args:
        margins: [1, n] for two classes, where class 1 has margins above 0; otherwise
            [classes, n].
        labels: [n] the records' labels, as indices of classes.
    """
    if len(margins) == 1:
        return np.asarray(margins[0] * (2 * labels - 1))
    return np.asarray(margins[labels, np.arange(len(labels))])


def unit_edited(problem: Problem, records: Records, row: int) -> Records:
    """Return the training records of a neighbouring dataset, without the unit of one record.

    If one edit of the relation can change two members of an ensemble, a copy of the record is added
    in the unit's place, with another label and a name that belongs to another shard.

    Args:
        problem: the run's problem.
        records: the run's training records.
        row: the row of the record.
    """
    remaining = without(records, records.units == records.units[row])
    if RELATIONS[problem.settings.relation.name].members_changed_per_edit == 1:
        return remaining
    ensemble = problem.settings.ensemble
    shard = int(assign_shards(records.units[[row]], ensemble)[0])
    other_shard = (shard + 1) % ensemble.members
    label = other_label(problem.dataset.target, records.labels[row])
    name = name_in_shard(other_shard, ensemble, like=str(records.ids[row]))
    features = records.features[[row]]
    added = attack_records(features, np.array([label]), np.array([name]), like=records)
    return with_added(remaining, added)


def name_in_shard(shard: int, ensemble: EnsembleConfig, like: str) -> str:
    """Return a name that the public keyed hash assigns to a shard.

    Args:
        shard: the index of the shard.
        ensemble: assigns units to shards.
        like: the id of a record. If it is a hash of the record's content, the name looks like one:
            an attacker who varies a record's last digits can choose among such ids.
    """
    # each of these names is in the shard with probability 1/members
    names = [f"replacing-{number}" for number in range(64 * ensemble.members)]
    if CONTENT.fullmatch(like):
        names = [blake2b(name.encode(), digest_size=16).hexdigest() for name in names]
    in_shard = assign_shards(np.array(names), ensemble) == shard
    return names[int(np.argmax(in_shard))]
