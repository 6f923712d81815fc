"""Neighbours of a run: edits of its records that are made to hurt, and training again on them.

An edit removes a unit, adds one, or changes one, as the run's relation says. An added unit may be
any record and have any name, because a certificate speaks of all of them; the name decides by
hashes in which batch and shard it is. Within the ranges of the run's own records, an added record
is one that the columns can hold; each edit's description says whether it was.

Formal guarantees
    * Neighbours are trained with the run's own public constants. If a size or a normaliser was
      declared, they are the same whatever the records. If none was, the run counted its records,
      and the certificate is about trainings that keep that count (condition c does not hold).
      ``retrained`` keeps it, each member of an ensemble its own, and with it all that is derived:
      B, n_max, the plan, and what a recipe settles.
    * A unit's batch, shard and slice follow from its own id.
    * Neighbours may be empty, or hold one class: refusing them would depend on private data.
    * ``neighbour_of`` keeps an ensemble's members that an edit leaves alone: their records are the
      same bytes in the same order.
    * A removal's certificate holds given its draws, so it keeps these: the neighbour is the
      minimiser with the run's own b (agt/training/removal.py), plus the noise that is on the run's
      weights.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

import numpy as np
from joblib import Parallel, delayed

from agt.data.records import Records
from agt.data.target import Target as DatasetTarget
from agt.errors import AgtError, ConfigError
from agt.models.ensemble import EnsembleModel, fit_members
from agt.models.fitting import fit
from agt.models.model import Model
from agt.problem import Problem
from agt.settings import KGridConfig, TrainingConfig
from agt.training.batches import BatchPlan
from agt.training.ensemble import assign_shards, worker_processes
from agt.training.settings import EnsembleConfig
from agt.training.sgd import learning_rate

NOMINAL = (0,)  # the values of k if no bounds are wanted
# neighbours for each worker process: fewer are trained sooner than a process starts
EDITS_PER_WORKER = 24
# how an added record is made (``Editor._make_row``); one is drawn, so repetition raises its share
WAYS = (
    "against",
    "against",
    "against",
    "saturating",
    "saturating",
    "mixed",
    "copy",
    "zero",
    "beyond",
)
# by how much the features of an added record exceed the ranges of the run's records; 1: they do not
RANGE_FACTORS = (1.0, 30.0, 1e4)
FAR_RANGE_FACTORS = (1e6, 1e15, 1e30)  # of the way "beyond"
HALVINGS = 60  # steps of a bisection of a line between two queries
Read = Callable[[np.ndarray], np.ndarray]
"""Queries [n, ...] -> [n] one value for each, such as its label."""
Uphill = Callable[[Records], np.ndarray]
"""Records -> [n, ...] the signs of the directions in which the model's loss at each rises."""
NAME_CANDIDATES = 24  # candidates for the name of an added unit


class EditKind(Enum):
    """One change of the records; an edit of one k makes one or two of them (``EDITS``)."""

    LEAVES = "a unit leaves"
    COMES = "a unit comes"
    REPLACED = "a unit is removed and another is added"
    MOVES = "the features of a unit (person) change by at most relation.radius"
    RELABELLED = "a unit gets another label"


_LEAVES = (EditKind.LEAVES,)
_COMES = (EditKind.COMES,)
_REPLACED = (EditKind.REPLACED,)
EDITS: dict[str, tuple[tuple[EditKind, ...], ...]] = {
    "add_remove": (_LEAVES, _LEAVES, _COMES, _COMES, _COMES),
    "remove": (_LEAVES,),
    "substitute": (_REPLACED, _REPLACED, _REPLACED, _LEAVES, _COMES),
    "flip": ((EditKind.RELABELLED,),),
    "perturb": ((EditKind.MOVES,),),
    "paper_privacy": (_REPLACED, _REPLACED, _REPLACED, _LEAVES, _COMES),
    "paper_unlearning": (_LEAVES,),
}
"""Name of a relation -> the edits that are within one k.

Each edit lists the changes that it makes, in this order. An attack draws one of the edits, so an
edit that is listed more often is made more often.

The table repeats on purpose what the rules in agt/relations/ say: an audit that asked them would
repeat their mistakes. If one k replaces a unit, removing or adding one is within one k too."""
# n_max of the plan that says in which steps units of given names take part: many names are
# asked about at once, and they are no batch that the run's n_max could limit
_MAX_PROBED_NAMES = 2**20


def edits_of(relation: str) -> tuple[tuple[EditKind, ...], ...]:
    """Return the entry of ``EDITS`` for a relation.

    Args:
        relation: its name, as ``relation.name`` in settings.

    Raises:
        ConfigError: ``EDITS`` has no such relation, so this audit cannot make its neighbours.
    """
    if relation not in EDITS:
        known = ", ".join(EDITS)
        raise ConfigError(
            f"relation={relation}: this audit cannot make neighbouring datasets under this "
            f"relation. Audit a run with relation={known}"
        )
    return EDITS[relation]


def kinds_of(relation: str) -> set[EditKind]:
    """Return every kind of change that some edit of one k makes; raises as ``edits_of``."""
    return {kind for edit in edits_of(relation) for kind in edit}


def replaces(relation: str) -> bool:
    """Return whether one k may remove one unit and add another; raises as ``edits_of``."""
    return EditKind.REPLACED in kinds_of(relation)


# -- queries
# --------------------------------------------------------------------------------------------------


def on_line(begin: np.ndarray, end: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Return points on lines, [n, ...] float64.

    Args:
        begin: [n, ...] where the lines begin.
        end: [n, ...] where they end.
        share: [n] how far along its line each point lies; 0 is the beginning, 1 the end.
    """
    share_of_row = share.reshape(-1, *[1] * (begin.ndim - 1))
    return begin + share_of_row * (end - np.asarray(begin, dtype=np.float64))


def bisected(read: Read, begin: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Find a point on each of n lines at which a value changes, by ``HALVINGS`` bisections.

    Args:
        read: computes the value, such as a label, of points [n, ...]. It is assumed to differ
            between the two ends of each line; this is not checked.
        begin: [n, ...] where the lines begin.
        end: [n, ...] where they end.

    Returns:
        ``(low, high)``, both [n]: shares of each line, as in ``on_line``, with low < high. At
        ``low`` the value is the one at the line's beginning, at ``high`` it is another.
    """
    low = np.zeros(len(begin))
    high = np.ones(len(begin))
    value_at_beginning = read(begin)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        is_unchanged = read(on_line(begin, end, middle)) == value_at_beginning
        low = np.where(is_unchanged, middle, low)
        high = np.where(is_unchanged, high, middle)
    return low, high


# -- records
# --------------------------------------------------------------------------------------------------


def without(records: Records, rows: np.ndarray) -> Records:
    """Return all records except those at ``rows`` (indices or a mask [n]), in the same order."""
    is_remaining = np.ones(len(records), dtype=bool)
    is_remaining[rows] = False
    return records.take(is_remaining)


def with_added(records: Records, others: Records) -> Records:
    """Return ``records`` followed by ``others``, whose ids must differ (this is not checked)."""
    return Records(
        features=np.concatenate([records.features, others.features]),
        labels=np.concatenate([records.labels, others.labels]),
        ids=np.concatenate([records.ids, others.ids]),
        units=np.concatenate([records.units, others.units]),
        public=np.concatenate([records.public, others.public]),
    )


def attack_records(
    features: np.ndarray, labels: np.ndarray, ids: np.ndarray, like: Records
) -> Records:
    """Return private records that an attack adds, each a unit of its own.

    Args:
        features: [n, ...] their features.
        labels: [n] their labels.
        ids: [n] their ids, which are the names of their units, too.
        like: records whose number formats of features and labels they get.
    """
    return Records(
        features=features.astype(like.features.dtype),
        labels=labels.astype(like.labels.dtype),
        ids=ids,
        units=ids,
        public=np.zeros(len(ids), dtype=bool),
    )


def tried_label(target: DatasetTarget, turn: int) -> int | float:
    """Return the label that an attack gives to an added record.

    Args:
        target: says whether labels are classes or numbers in a range.
        turn: counts the calls, from 0. Successive turns go through all classes in order, or
            alternate between the lower and the upper end of the range.
    """
    numbers = target.numeric
    if numbers is None:
        return turn % len(target.classes)
    return numbers.high if turn % 2 else numbers.low


def other_label(target: DatasetTarget, label: float) -> int | float:
    """Return another label than a record's: the next class, or the farther end of the range.

    Args:
        target: says whether labels are classes or numbers in a range.
        label: the record's own label; a class is given by its index.
    """
    numbers = target.numeric
    if numbers is None:
        return (int(label) + 1) % len(target.classes)
    return numbers.low if label > numbers.middle else numbers.high


@dataclass(frozen=True)
class EditedRecords:
    """A neighbouring dataset: ``original`` without some of its records, and with others.

    Nothing here checks that it is a neighbour: whoever edits counts ``distance``.

    Attributes:
        original: the records before any edit.
        removed_rows: indices into ``original`` of the records that are removed.
        added: the units that are added, each as the records of its rows.
        distance: the largest number of k that the edits take under the run's relation.
        edits: a description of each edit, in order.
    """

    original: Records
    removed_rows: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    added: tuple[Records, ...] = ()
    distance: int = 0
    edits: tuple[str, ...] = ()

    @classmethod
    def without_unit(cls, records: Records, unit: str) -> "EditedRecords":
        """Return the neighbour of ``records`` that lacks all rows of one unit."""
        rows = np.flatnonzero(records.units == unit)
        return cls(records, rows, distance=1, edits=("less one",))

    def with_edit(
        self, removed_unit: str | None, added_unit: Records | None, description: str
    ) -> "EditedRecords":
        """Return a neighbour with one more unit removed, added, or both.

        The result's ``distance`` is that of this neighbour: the caller raises it.

        Args:
            removed_unit: the unit of ``original`` to remove; None: none is removed.
            added_unit: the records of the unit to add; None: none is added.
            description: of this edit; it is appended to ``edits``.
        """
        removed_rows = self.removed_rows
        if removed_unit is not None:
            rows_of_unit = np.flatnonzero(self.original.units == removed_unit)
            removed_rows = np.union1d(removed_rows, rows_of_unit)
        added = self.added if added_unit is None else (*self.added, added_unit)
        edits = (*self.edits, description)
        return replace(self, removed_rows=removed_rows, added=added, edits=edits)

    @property
    def records(self) -> Records:
        """The neighbour's records: the remaining ones in their order, then the added ones."""
        records = without(self.original, self.removed_rows)
        for unit in self.added:
            records = with_added(records, unit)
        return records


# -- training
# --------------------------------------------------------------------------------------------------


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
    problem: Problem, records: Records, which: Sequence[int], ks: tuple[int, ...] | None = None
) -> list[Model]:
    """Train some members of an ensemble on their shards of other records.

    Errors as of ``retrained``.

    Args:
        problem: the run's problem, with the records that the run was trained on.
        records: the records of all shards to train on.
        which: indices of the members to train.
        ks: the values of k that boxes are computed for; None: the run's own.

    Returns:
        The models, in the order of ``which``.
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
    for count in sorted({counts[index] for index in which}):
        size = dataset.declared_size
        if not is_declared:
            size = max(count, 1) * float(members)
        same_count = [index for index in which if counts[index] == count]
        problem_of_count = edited_problem.with_dataset(dataset.with_training_records(records, size))
        trained = fit_members(problem_of_count, same_count)
        for index, (model, _) in zip(same_count, trained, strict=True):
            models[index] = model
    return [models[index] for index in which]


def neighbouring(problem: Problem, records: Records, ks: tuple[int, ...] | None = None) -> Problem:
    """Return the run's problem on other records, with the run's public constants.

    If the run declared no size, the number of records that it counted is declared, so that all
    that is derived from the size stays as it was. Arguments as of ``retrained``.
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
        ConfigError: as of ``retrained``.
        UnsoundError: as of ``retrained``.
    """
    problem = model.problem
    problem.dataset.check_unchanged()
    if model.stores_noise:
        return model.retrained_with_same_noise(neighbouring(problem, records))
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
        removed_rows: as of ``EditedRecords``.
        added: as of ``EditedRecords``.

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


def labels_of(margins: np.ndarray) -> np.ndarray:
    """Return the label that each of T members gives to each of n queries, [T, n].

    Args:
        margins: [T, 1, n] for two classes, where class 1 has margins above 0; otherwise
            [T, classes, n], where the largest decides and a tie goes to the smaller class.
    """
    if margins.shape[1] == 1:
        return (margins[:, 0] > 0).astype(int)
    return margins.argmax(axis=1)


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


# -- edits that hurt
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TargetQuery:
    """A query whose label an attack tries to change.

    Attributes:
        query: [features] its features as one vector.
        label: the class that the run's model gives to it.
    """

    query: np.ndarray
    label: int


@dataclass(frozen=True)
class AttackSettings:
    """What an ``Editor`` must know of a run in order to edit its records.

    Attributes:
        relation: the name of the run's relation.
        unit_rows: the largest number of rows of a unit.
        classes: how many classes there are.
        plan: which units take part in which step of training; of an ensemble, a member's plan.
        weight: [steps] how far a constant gradient in each step moves the final parameters.
        ensemble: which unit is in which shard.
        low: [...] the smallest value of each feature, in the shape of a record's features.
        high: [...] the largest value of each feature.
        bounds_each_parameter: the certificate bounds each parameter separately, so an added
            record moves a bound most if its features lie in a corner of their ranges.
        radius: the largest change of a feature, under a relation whose edits change features
            only; None: edits remove or add whole records.
    """

    relation: str
    unit_rows: int
    classes: int
    plan: BatchPlan
    weight: np.ndarray
    ensemble: EnsembleConfig
    low: np.ndarray
    high: np.ndarray
    bounds_each_parameter: bool
    radius: float | None = None

    @classmethod
    def of(cls, problem: Problem) -> "AttackSettings":
        """Return the settings of attacks on a run.

        The ranges of features are those of the run's training and test records, which lie within
        whatever was declared.

        Args:
            problem: the run's problem.

        Raises:
            ConfigError: ``EDITS`` has no entry for the run's relation.
        """
        settings = problem.settings
        edits_of(settings.relation.name)  # raises now, before anything is trained
        parts = [
            np.asarray(part.features)
            for part in (problem.dataset.train, problem.dataset.test)
            if len(part)
        ]
        plan = problem.setup.plan(problem.record_count)
        return cls(
            relation=settings.relation.name,
            unit_rows=settings.relation.unit_rows,
            classes=problem.classes,
            plan=plan,
            weight=weights(problem.setup.training, plan),
            ensemble=settings.ensemble,
            low=np.min([features.min(axis=0) for features in parts], axis=0),
            high=np.max([features.max(axis=0) for features in parts], axis=0),
            bounds_each_parameter=settings.certificate.bounded == "each parameter",
            radius=settings.relation.radius,
        )


def weights(training: TrainingConfig, plan: BatchPlan) -> np.ndarray:
    """Return how far a constant gradient in each step moves the final parameters, [steps].

    It is the step's learning rate times the weight decay of all later steps. Momentum is ignored.
    """
    rates = [learning_rate(training, step) for step in range(plan.steps)]
    remaining = np.array([1 - rate * training.weight_decay for rate in rates])
    return np.array([rate * remaining[step + 1 :].prod() for step, rate in enumerate(rates)])


class Editor:
    """Makes neighbouring datasets of a run, one edit of its relation at a time.

    Edits are drawn at random, from kinds of edits that are made to change a query's label.

    Args:
        settings: what it must know of the run.
        rng: draws every choice.
        uphill: the directions in which the model's loss rises. Only edits that move features
            call it; the default, no direction, serves for all other relations.

    Attributes:
        units_made: how many units were made so far; it numbers their names.
        plan: ``settings.plan`` without its limit on the size of a batch.
    """

    def __init__(
        self,
        settings: AttackSettings,
        rng: np.random.Generator,
        uphill: Uphill = lambda records: np.zeros(1),
    ) -> None:
        self.attack = settings
        self.rng = rng
        self.uphill = uphill
        self.units_made = 0
        self.plan = replace(settings.plan, n_max=_MAX_PROBED_NAMES)

    def step(self, neighbour: EditedRecords, target: TargetQuery) -> EditedRecords:
        """Return a neighbour that is one k farther than ``neighbour``, by a random edit.

        The edit is one of ``EDITS`` for the relation. If every private unit was edited before,
        nothing is removed, moved or relabelled, but ``distance`` grows all the same.

        Args:
            neighbour: the dataset to edit; it is not changed.
            target: the query whose label the edit tries to change.
        """
        edits = edits_of(self.attack.relation)
        # Edits are collected anew, because all changes of one k share one description.
        edited = replace(neighbour, distance=neighbour.distance + 1, edits=())
        for kind in edits[self.rng.integers(len(edits))]:
            edited = self._edit(kind, edited, target)
        description = " ".join(edited.edits)
        if not description:
            description = "nobody"
        return replace(edited, edits=(*neighbour.edits, description))

    def _edit(self, kind: EditKind, neighbour: EditedRecords, target: TargetQuery) -> EditedRecords:
        """Return the neighbour after one change of this kind, with its ``distance`` as it was.

        Args:
            kind: the change to make.
            neighbour: the dataset to edit; it is not changed.
            target: the query whose label the change tries to change.
        """
        if kind is EditKind.MOVES:
            return self._move_unit(neighbour, target)
        if kind is EditKind.RELABELLED:
            return self._relabel_unit(neighbour, target)
        removed_unit = None
        edited = neighbour
        if kind is not EditKind.COMES:
            removed_unit, reason = self._choose_unit(neighbour, target)
            if removed_unit is not None:
                edited = neighbour.with_edit(removed_unit, None, f"less {reason}")
        if kind is EditKind.LEAVES:
            return edited
        added_unit, description = self._make_unit(neighbour, removed_unit, target)
        return edited.with_edit(None, added_unit, f"plus {description}")

    def add_copy_of_last_unit(self, neighbour: EditedRecords) -> EditedRecords:
        """Return a neighbour one k farther, with a second copy of the unit that was added last.

        Of several new names, the copy gets the one with the most weight in training. If one k of
        the relation replaces a unit, another unit is removed as well. If the relation adds no
        units, the edit is a random one, as of ``step``, with an all-zero query as its target.

        Args:
            neighbour: the dataset to edit; it is not changed. If the relation adds units, at
                least one was added to it.
        """
        no_target = TargetQuery(np.zeros(self.attack.low.size), 0)
        if not {EditKind.COMES, EditKind.REPLACED} & kinds_of(self.attack.relation):
            return self.step(neighbour, no_target)
        removed_unit = None
        reason = ""
        if replaces(self.attack.relation):
            removed_unit, reason = self._choose_unit(neighbour, no_target)
        self.units_made += 1
        rows = neighbour.added[-1]
        name = f"audit{self.units_made}"
        ids = np.array([f"{name}.row{index}" for index in range(len(rows))])
        renamed = replace(rows, ids=ids, units=np.full(len(rows), name))
        candidates = self._name_candidates(renamed, None, keep_features=True)
        names = np.array([str(candidate.units[0]) for candidate in candidates])
        heaviest = candidates[int(np.argmax(self._weight_of_units(names)))]
        description = "plus a second copy of the record that was added last"
        if removed_unit is not None:
            description = f"less {reason} {description}"
        edited = neighbour.with_edit(removed_unit, heaviest, description)
        return replace(edited, distance=neighbour.distance + 1)

    def _move_unit(self, neighbour: EditedRecords, target: TargetQuery) -> EditedRecords:
        """Return a neighbour in which each feature of one more unit moved by at most the radius.

        In 8 of 10 edits the features move by the whole radius. The signs of the moves are drawn
        ("anywhere"), taken from the query ("against"), or those along which the loss rises or
        falls ("uphill", "downhill").

        Args:
            neighbour: the dataset to edit; it is not changed. If all its
                private units were edited, the result has one more added unit, without rows.
            target: the query whose label the move tries to change.
        """
        radius = self.attack.radius
        assert radius is not None  # RelationConfig requires one where features move
        unit, reason = self._choose_unit(neighbour, target)
        rows = neighbour.removed_rows[:0]
        if unit is not None:
            rows = np.flatnonzero(neighbour.original.units == unit)
        unmoved = neighbour.original.take(rows)
        way = str(self.rng.choice(["anywhere", "against", "uphill", "downhill"]))
        signs = self.rng.choice([-1.0, 1.0], unmoved.features.shape)
        if way == "against":
            # records of the query's label move away from the query, the others towards it
            direction_of_row = np.where(unmoved.labels == target.label, -1.0, 1.0)
            signs = np.outer(direction_of_row, np.sign(target.query)).reshape(signs.shape)
        elif way == "uphill":
            signs = self.uphill(unmoved)
        elif way == "downhill":
            signs = -self.uphill(unmoved)
        share = 1.0 if self.rng.random() < 0.8 else self.rng.random()
        features = (unmoved.features + share * radius * signs).astype(unmoved.features.dtype)
        moved = replace(unmoved, features=features)
        return neighbour.with_edit(unit, moved, f"{reason} moved {way}")

    def _relabel_unit(self, neighbour: EditedRecords, target: TargetQuery) -> EditedRecords:
        """Return a neighbour in which one more unit has another label.

        In 7 of 10 edits it is the label that the last relabelled unit got, so that several edits
        change the model in one direction. Otherwise it is drawn.

        Args:
            neighbour: the dataset to edit; it is not changed. It is returned as it is if all its
                private units were edited.
            target: the query whose label the edit tries to change.
        """
        unit, reason = self._choose_unit(neighbour, target)
        if unit is None:
            return neighbour
        before = neighbour.original.take(neighbour.original.units == unit)
        last_label = None
        if neighbour.added and self.rng.random() < 0.7:
            last_label = neighbour.added[-1].labels[0]
        labels = []
        for label in before.labels.tolist():
            others = [other for other in range(self.attack.classes) if other != label]
            if last_label in others:
                labels.append(last_label)
            else:
                labels.append(int(self.rng.choice(others)))
        relabelled = replace(before, labels=np.array(labels, dtype=before.labels.dtype))
        return neighbour.with_edit(unit, relabelled, f"{reason} relabelled")

    def _choose_unit(self, neighbour: EditedRecords, target: TargetQuery) -> tuple[str | None, str]:
        """Choose a private unit of the original that was not edited yet.

        How is drawn: "any" draws a unit, "best" takes the unit whose records support the target's
        label most, "heaviest" the one with the most weight in training.

        Args:
            neighbour: the dataset from whose remaining records the unit is chosen.
            target: the query whose label the edit tries to change.

        Returns:
            The unit's name, and "any", "best" or "heaviest"; ``(None, "")`` if every private unit
            was edited.
        """
        original = neighbour.original
        available = ~original.public
        available[neighbour.removed_rows] = False
        units = np.unique(original.units[available])
        if not len(units):
            return None, ""
        way = str(self.rng.choice(["any", "best", "heaviest"]))
        if way == "any":
            return str(self.rng.choice(units)), "any"
        if way == "heaviest":
            return str(units[self._weight_of_units(units).argmax()]), way
        rows = np.flatnonzero(available)
        features = np.asarray(original.features[rows], dtype=np.float64).reshape(len(rows), -1)
        largest = np.maximum(np.abs(features).max(axis=1), 1e-300)
        along_query = (features / largest[:, None]) @ target.query
        support = np.where(original.labels[rows] == target.label, along_query, -along_query)
        names, unit_of_row = np.unique(original.units[rows], return_inverse=True)
        return str(names[np.bincount(unit_of_row, support).argmax()]), way

    def _make_unit(
        self, neighbour: EditedRecords, removed_unit: str | None, target: TargetQuery
    ) -> tuple[Records, str]:
        """Make a new unit, whose rows are copies of one record, and choose its name.

        The name matters because its keyed hash decides the unit's batches and shard.

        Args:
            neighbour: the dataset that the unit will be added to.
            removed_unit: the unit that it replaces; None: it replaces none.
            target: the query whose label the unit should change.

        Returns:
            The unit's rows, and a description of them.
        """
        self.units_made += 1
        original = neighbour.original
        way = str(self.rng.choice(WAYS))
        count = self.attack.unit_rows
        if way != "against":
            count = int(self.rng.integers(1, self.attack.unit_rows + 1))
        features, label, range_factor = self._make_row(way, original, target)
        # features far beyond the ranges may be too large for the features' own type
        largest = float(np.finfo(original.features.dtype).max)
        row = np.clip(features, -largest, largest).astype(original.features.dtype)
        name = f"audit{self.units_made}"
        rows = Records(
            features=np.repeat(row.reshape(1, *original.features.shape[1:]), count, axis=0),
            labels=np.full(count, label, dtype=np.int64),
            ids=np.array([f"{name}.row{index}" for index in range(count)]),
            units=np.full(count, name),
            public=np.zeros(count, dtype=bool),
        )
        named, name_choice = self._choose_name(
            rows, removed_unit, keep_features=way in ("copy", "zero")
        )
        description = f"one {way}, {name_choice}"
        if range_factor > 1:
            description = (
                f"{description}, beyond the ranges of the columns by a factor of {range_factor:g}"
            )
        return named, description

    def _make_row(
        self, way: str, records: Records, target: TargetQuery
    ) -> tuple[np.ndarray, int, float]:
        """Make the features and the label of a record.

        | way        | features                                      | label                      |
        |------------|-----------------------------------------------|----------------------------|
        | copy       | those of a record of the run                  | that record's, or any      |
        | mixed      | each from one of two records of the run       | any                        |
        | zero       | 0 (also of copy and mixed if the run has no   | any                        |
        |            | records)                                      |                            |
        | saturating | a random corner of the ranges, or beyond it   | any                        |
        | beyond     | far beyond a random corner                    | any                        |
        | against    | in the direction of the query, or in its      | not the target's           |
        |            | corner of the ranges                          |                            |
        |            | in the opposite direction or corner           | the target's               |

        Args:
            way: one of ``WAYS``.
            records: the run's training records.
            target: the query whose label the record should change.

        Returns:
            Its features [features]; its label; and by which factor the features exceed the ranges
            of the run's records (1: they do not).
        """
        rng = self.rng
        other_labels = [label for label in range(self.attack.classes) if label != target.label]
        any_label = int(rng.integers(self.attack.classes))
        if way in ("copy", "mixed") and len(records):
            features, label = self._copied_row(way, records, any_label)
            return features, label, 1.0
        if way in ("copy", "mixed", "zero"):
            return np.zeros(self.attack.low.size), any_label, 1.0
        range_factors = FAR_RANGE_FACTORS if way == "beyond" else RANGE_FACTORS
        range_factor = float(rng.choice(range_factors))
        if way != "against":
            signs = rng.choice([-1.0, 1.0], self.attack.low.size)
            label = int(rng.choice([any_label, *other_labels]))
            return self._corner(signs, range_factor), label, range_factor
        if self.attack.bounds_each_parameter and rng.random() < 0.7:
            towards_query = self._corner(np.sign(target.query), range_factor)
            away_from_query = self._corner(-np.sign(target.query), range_factor)
        else:
            towards_query = target.query * range_factor
            away_from_query = -towards_query
        label = int(rng.choice(other_labels))
        if rng.random() < 0.3:
            # opposite features with the target's own label: but for the bias, their gradient is
            # that of another label along the query
            return away_from_query, target.label, range_factor
        return towards_query, label, range_factor

    def _copied_row(self, way: str, records: Records, any_label: int) -> tuple[np.ndarray, int]:
        """Make a record that copies a record of the run, or mixes the features of two.

        Args:
            way: "copy" or "mixed".
            records: the run's training records, at least one.
            any_label: a label drawn beforehand, which a mixed record gets, and half of the copies.

        Returns:
            Its features [features], and its label.
        """
        rng = self.rng
        row = int(rng.integers(len(records)))
        features = np.asarray(records.features[row], dtype=np.float64).ravel()
        if way == "copy":
            has_own_label = rng.random() < 0.5
            return features, int(records.labels[row]) if has_own_label else any_label
        other_row = int(rng.integers(len(records)))
        other = np.asarray(records.features[other_row], dtype=np.float64).ravel()
        return np.where(rng.random(len(features)) < 0.5, features, other), any_label

    def _corner(self, signs: np.ndarray, range_factor: float) -> np.ndarray:
        """Return the corner of the ranges that signs point to, or a point beyond it, [features].

        Args:
            signs: [features], each -1, 0 or 1; 0 gives the feature 0.
            range_factor: 1 for the corner itself. Otherwise each feature is this multiple of the
                largest absolute value in its range, or of 1 if its range is the point 0.
        """
        low = self.attack.low.ravel().astype(np.float64)
        high = self.attack.high.ravel().astype(np.float64)
        if range_factor == 1:
            return np.where(signs > 0, high, np.where(signs < 0, low, 0.0))
        largest = np.maximum(np.abs(low), np.abs(high))
        return signs * np.where(largest > 0, largest, 1.0) * range_factor

    def _choose_name(
        self, rows: Records, removed_unit: str | None, keep_features: bool
    ) -> tuple[Records, str]:
        """Choose the name of a new unit.

        How is drawn: "any" takes the first candidate, "heaviest" the one with the most weight in
        training. If the unit replaces another, "elsewhere" takes the name whose shard and batches
        differ most from the removed unit's, and "same" the removed unit's own name.

        Args:
            rows: the unit's rows.
            removed_unit: the unit that it replaces; None: it replaces none.
            keep_features: as of ``_name_candidates``.

        Returns:
            The rows under the chosen name, and how it was chosen, for the edit's description.
        """
        ways = ["any", "heaviest"]
        if removed_unit is not None:
            ways += ["elsewhere", "elsewhere", "same"]
        way = str(self.rng.choice(ways))
        fixed_name = removed_unit if way == "same" else None
        candidates = self._name_candidates(rows, fixed_name, keep_features)
        if len(candidates) == 1:
            return candidates[0], "under the same name" if way == "same" else way
        names = np.array([str(candidate.units[0]) for candidate in candidates])
        if way == "any":
            return candidates[0], way
        weight = self._weight_of_units(names)
        score = weight
        if way == "elsewhere":
            # scaled below 1, so that weight mostly decides between equal differences
            scaled_weight = weight / (1 + weight.max())
            score = scaled_weight + self._placement_difference(names, str(removed_unit))
        return candidates[int(np.argmax(score))], way

    def _name_candidates(
        self, rows: Records, name: str | None, keep_features: bool
    ) -> list[Records]:
        """Return the rows of a unit under each name that it may get.

        Args:
            rows: the unit's rows.
            name: the only candidate; None: ``NAME_CANDIDATES`` names that no unit has.
            keep_features: features must stay as they are. It has no effect here, where features
                always stay; it is for subclasses whose names are hashes of the features, which
                change features in order to change names (the tests' adversary does).
        """
        names = [name]
        if name is None:
            names = [f"{rows.units[0]}.{index}" for index in range(NAME_CANDIDATES)]
        return [replace(rows, units=np.full(len(rows), candidate)) for candidate in names]

    def _takes_part(self, names: np.ndarray) -> np.ndarray:
        """Return in which steps of training units of these names take part, [steps, names] bool."""
        every_name = np.arange(len(names))
        return np.array([np.isin(every_name, batch) for batch in self.plan.batches(names)])

    def _weight_of_units(self, names: np.ndarray) -> np.ndarray:
        """Return how far a constant gradient of each unit moves the final parameters, [names]."""
        return self.attack.weight @ self._takes_part(names)

    def _placement_difference(self, names: np.ndarray, removed_unit: str) -> np.ndarray:
        """Return how much each name's shard and batches differ from a removed unit's, [names].

        The difference is in [0, 2]: 1 if the shards differ, plus the share of steps in which
        exactly one of the two takes part.
        """
        unit = np.array([removed_unit])
        ensemble = self.attack.ensemble
        is_other_shard = assign_shards(names, ensemble) != assign_shards(unit, ensemble)
        in_one_only = self._takes_part(names) != self._takes_part(unit)
        share_of_steps: np.ndarray = in_one_only.mean(axis=0)
        return is_other_shard + share_of_steps
