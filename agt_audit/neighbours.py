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
EDITS_PER_WORKER = 24  # fewer are trained before a process has started
# how an added record is made, each as often as it is tried
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
# sizes of features, in units of the ranges that were seen; only the first is within them
SIZES = (1.0, 30.0, 1e4)
FARTHER = (1e6, 1e15, 1e30)
HALVINGS = 60  # of a line between two queries
Read = Callable[[np.ndarray], np.ndarray]
"""Queries [n, ...] -> [n] what is read of each."""
Uphill = Callable[[Records], np.ndarray]
"""Records -> [n, ...] the signs of the directions in which the model's loss at each rises."""
NAMES = 24  # tried for an added unit


class EditKind(Enum):
    """What one k does in an attack."""

    LEAVES = "a unit leaves"
    COMES = "a unit comes"
    REPLACED = "a unit is removed and another is added"
    MOVES = "the features of a unit (person) change by at most relation.radius"
    RELABELLED = "a unit gets another label"


_LEAVES, _COMES, _REPLACED = (EditKind.LEAVES,), (EditKind.COMES,), (EditKind.REPLACED,)
EDITS: dict[str, tuple[tuple[EditKind, ...], ...]] = {
    "add_remove": (_LEAVES, _LEAVES, _COMES, _COMES, _COMES),
    "remove": (_LEAVES,),
    "substitute": (_REPLACED, _REPLACED, _REPLACED, _LEAVES, _COMES),
    "flip": ((EditKind.RELABELLED,),),
    "perturb": ((EditKind.MOVES,),),
    "paper_privacy": (_REPLACED, _REPLACED, _REPLACED, _LEAVES, _COMES),
    "paper_unlearning": (_LEAVES,),
}
"""Relation -> edits of one k, each as often as it is tried, and what each does one after another.

It is written down here once more, because an audit that asked the rules (agt/relations/) would
repeat their mistakes. If one k replaces a unit, removing or adding one is within one k too."""
_PROBED = 2**20  # names may be probed at once: they are no batch, so n_max does not limit them


def edits_of(relation: str) -> tuple[tuple[EditKind, ...], ...]:
    """Return the edits of one k of a relation in an attack.

    Raises:
        ConfigError: the table has no such relation, so that nothing may be tried on it.
    """
    if relation not in EDITS:
        known = ", ".join(EDITS)
        raise ConfigError(
            f"relation={relation}: this audit cannot make neighbouring datasets under this "
            f"relation. Audit a run with relation={known}"
        )
    return EDITS[relation]


def kinds_of(relation: str) -> set[EditKind]:
    """Return all that edits of a relation do; raises as ``edits_of``."""
    return {kind for edit in edits_of(relation) for kind in edit}


def replaces(relation: str) -> bool:
    """Return whether one k of a relation may take one unit out and put another in."""
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
    """Find where what is read changes along lines, by bisection.

    Args:
        read: it differs between the two ends of each line.
        begin: [n, ...] where the lines begin.
        end: [n, ...] where they end.

    Returns:
        [n] a share of each line at which the same is read as at its beginning, and [n] the next
        share, at which something else is read.
    """
    low = np.zeros(len(begin))
    high = np.ones(len(begin))
    at_beginning = read(begin)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        same = read(on_line(begin, end, middle)) == at_beginning
        low = np.where(same, middle, low)
        high = np.where(same, high, middle)
    return low, high


# -- records
# --------------------------------------------------------------------------------------------------


def without(records: Records, rows: np.ndarray) -> Records:
    """Return all records but those at ``rows`` (indices or a mask)."""
    kept = np.ones(len(records), dtype=bool)
    kept[rows] = False
    return records.take(kept)


def with_added(records: Records, others: Records) -> Records:
    """Return the records of both, whose ids must differ."""
    return Records(
        features=np.concatenate([records.features, others.features]),
        labels=np.concatenate([records.labels, others.labels]),
        ids=np.concatenate([records.ids, others.ids]),
        units=np.concatenate([records.units, others.units]),
        public=np.concatenate([records.public, others.public]),
    )


def tried_label(target: DatasetTarget, turn: int) -> int | float:
    """Return the label that an attack gives to an added record.

    Args:
        target: what labels are.
        turn: each class has its turn; of numbers, the lower and the upper end of the range.
    """
    numbers = target.numeric
    if numbers is None:
        return turn % len(target.classes)
    return numbers.high if turn % 2 else numbers.low


def other_label(target: DatasetTarget, label: float) -> int | float:
    """Return another label than a record's: the next class, or the farther end of a range.

    Args:
        target: what labels are.
        label: the record's.
    """
    numbers = target.numeric
    if numbers is None:
        return (int(label) + 1) % len(target.classes)
    return numbers.low if label > numbers.middle else numbers.high


@dataclass(frozen=True)
class EditedRecords:
    """A neighbour of ``original``: without some of its records, and with others.

    Attributes:
        original: the records that are edited.
        removed_rows: which of them are left out, indices.
        added: units that are added, each with its rows.
        distance: the neighbour is within so many k of the relation.
        edits: what each edit did, in words.
        range_factor: how many times beyond the ranges of features the farthest added record
            lies; 1: all lie within.
    """

    original: Records
    removed_rows: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    added: tuple[Records, ...] = ()
    distance: int = 0
    edits: tuple[str, ...] = ()
    range_factor: float = 1.0

    @classmethod
    def without_unit(cls, records: Records, unit: str) -> "EditedRecords":
        """Return the neighbour of ``records`` that lacks all rows of one unit."""
        return cls(records, np.flatnonzero(records.units == unit))

    def with_edit(
        self, removed_unit: str | None, added_unit: Records | None, description: str
    ) -> "EditedRecords":
        """Return the neighbour after one more edit.

        Args:
            removed_unit: the name of a unit that is removed; None: none is.
            added_unit: the rows of a unit that is added; None: none is.
            description: what this does, in words.
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
        """The neighbour's records."""
        records = without(self.original, self.removed_rows)
        for unit in self.added:
            records = with_added(records, unit)
        return records


# -- training
# --------------------------------------------------------------------------------------------------


def retrained(problem: Problem, records: Records, ks: tuple[int, ...] | None = None) -> Model:
    """Return the model that the same public constants make of other training records.

    Args:
        problem: of the run, with the records that it was trained on.
        records: in the features of ``problem.dataset``; public ones among them as they are there.
        ks: the values of k to carry boxes for; None: the run's own.

    Raises:
        ConfigError: training refuses them: a batch above n_max, a unit with too many rows.
        UnsoundError: a bound or a parameter is no number.
    """
    again = neighbouring(problem, records, ks)
    if not problem.settings.ensembled:
        return fit(again)
    members = range(problem.settings.ensemble.members)
    return EnsembleModel(again, tuple(retrained_members(problem, records, members, ks)))


def retrained_members(
    problem: Problem, records: Records, which: Sequence[int], ks: tuple[int, ...] | None = None
) -> list[Model]:
    """Train some members of an ensemble on their shards of other training records.

    Args:
        problem: of the run, with the records that it was trained on.
        records: the others.
        which: indices of members; the models come in this order.
        ks: as of ``retrained``, whose errors it raises.
    """
    edited_problem = neighbouring(problem, records, ks)
    dataset = edited_problem.dataset
    members = problem.settings.ensemble.members
    is_declared = problem.dataset.declared_size is not None
    # without a declared size, each member keeps the number of records that it counted
    counts = (0,) * members if is_declared else problem.member_record_counts
    assert isinstance(counts, tuple)
    models: dict[int, Model] = {}
    for count in sorted({counts[index] for index in which}):  # one turn if a size is declared
        size = dataset.declared_size if is_declared else max(count, 1) * float(members)
        same_count = [index for index in which if counts[index] == count]
        with_size = edited_problem.with_dataset(dataset.with_training_records(records, size))
        trained = fit_members(with_size, same_count)
        models |= {index: model for index, (model, _) in zip(same_count, trained, strict=True)}
    return [models[index] for index in which]


def neighbouring(problem: Problem, records: Records, ks: tuple[int, ...] | None = None) -> Problem:
    """Return the run's problem on other records, with the run's constants.

    Arguments as of ``retrained``.
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
    """Return the model of a neighbour of the records that a model was trained on.

    Of an ensemble, only the members are trained in whose shards a unit came, went or got another
    label. Arguments and errors as of ``retrained``.
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
    changed_units = np.concatenate(
        [side.units[np.isin(side.ids, changed_ids)] for side in (train, records)]
    )
    shards = sorted(set(assign_shards(changed_units, problem.settings.ensemble).tolist()))
    members = dict(enumerate(model.member_models))
    members |= zip(shards, retrained_members(problem, records, shards, ks), strict=True)
    return EnsembleModel(neighbouring(problem, records, ks), tuple(members.values()))


def _relabelled_ids(train: Records, records: Records) -> np.ndarray:
    """Return the ids of records that both have, under different labels."""
    common, here, there = np.intersect1d(train.ids, records.ids, return_indices=True)
    different: np.ndarray = train.labels[here] != records.labels[there]
    return common[different]


def neighbours_of(
    model: Model, edits: Sequence[EditedRecords], processes: bool = True
) -> Iterator[Model | AgtError]:
    """Yield the nominal model of each neighbour of a run, or why training refuses it.

    Many are trained in several processes. Each model has the run's own problem, because what a
    process sends back holds no data.

    Args:
        model: of the run.
        edits: the neighbours.
        processes: False: all are trained in this process, as when little time is left and other
            processes take seconds to start.
    """
    workers = min(os.cpu_count() or 1, len(edits) // EDITS_PER_WORKER)
    changes = [(edit.removed_rows, edit.added) for edit in edits]
    if not processes or workers < 2 or model.problem.settings.compute.device != "cpu":
        trained: Iterator[Model | AgtError] = (_nominal(model, *change) for change in changes)
    else:
        with worker_processes(workers):
            trained = Parallel(return_as="generator")(
                delayed(_nominal)(model, *change) for change in changes
            )
    for result in trained:
        if isinstance(result, AgtError):
            yield result
        else:
            yield result.with_problem(model.problem)


def _nominal(
    model: Model, removed_rows: np.ndarray, added: tuple[Records, ...]
) -> Model | AgtError:
    """Return a neighbour's model without bounds and without data, or why training refuses it."""
    train = model.problem.dataset.train
    try:
        trained = neighbour_of(model, EditedRecords(train, removed_rows, added).records, NOMINAL)
    except AgtError as error:
        return error
    return trained.with_problem(model.problem.with_dataset(model.problem.dataset.without_records))


def labels_of(margins: np.ndarray) -> np.ndarray:
    """Return the label of each of T members at n queries, [T, n].

    Args:
        margins: [T, lines, n]; one line for two classes, otherwise one for each class.
    """
    if margins.shape[1] == 1:
        return (margins[:, 0] > 0).astype(int)
    return margins.argmax(axis=1)


# -- edits that hurt
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TargetQuery:
    """A query whose label an attack tries to change.

    Attributes:
        query: its features, flat.
        label: the label that it has.
    """

    query: np.ndarray
    label: int


@dataclass(frozen=True)
class AttackSettings:
    """What edits depend on: the relation, the settings that place a unit, the ranges of features.

    Attributes:
        relation: its name.
        unit_rows: the most rows that a unit may have.
        classes: how many labels there are.
        plan: of batches, of a member where there are several.
        weight: [steps] how far a constant gradient in each step moves the parameters in the end.
        ensemble: who is in which shard.
        low: [...] the least of each feature of a record.
        high: [...] the greatest.
        bounds_each_parameter: parameters are bounded one by one, so that an added record hurts
            most in a corner.
        radius: how far features may move, if only they may; None: whole records are edited.
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

        The ranges are those of its training and test records, which lie within whatever was
        declared.

        Raises:
            ConfigError: no edits are written down for its relation.
        """
        settings = problem.settings
        edits_of(settings.relation.name)  # refused before anything is trained
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
    """Return how far a constant gradient in each step moves the parameters in the end, [steps].

    Momentum is left out.
    """
    rates = [learning_rate(training, step) for step in range(plan.steps)]
    remaining = np.array([1 - rate * training.weight_decay for rate in rates])
    return np.array([rate * remaining[step + 1 :].prod() for step, rate in enumerate(rates)])


class Editor:
    """Makes neighbours, one edit of the relation at a time.

    Args:
        settings: what edits depend on.
        rng: of every choice.
        uphill: the directions in which the model's loss rises; it is asked for edits that move
            features only.
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
        self.plan = replace(settings.plan, n_max=_PROBED)

    def step(self, neighbour: EditedRecords, target: TargetQuery) -> EditedRecords:
        """Return a neighbour that is one k farther than ``neighbour``, by an edit of the relation.

        Args:
            neighbour: where to start; it is not changed.
            target: the query whose label the edit tries to change.
        """
        edits = edits_of(self.attack.relation)
        edited = replace(neighbour, distance=neighbour.distance + 1, edits=())
        for kind in edits[self.rng.integers(len(edits))]:
            edited = self._edit(kind, edited, target)
        description = " ".join(edited.edits) or "nobody"
        return replace(edited, edits=(*neighbour.edits, description))

    def _edit(self, kind: EditKind, neighbour: EditedRecords, target: TargetQuery) -> EditedRecords:
        """Return the neighbour after one edit of this kind; its distance is not counted."""
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
        added_unit, description, range_factor = self._make_unit(neighbour, removed_unit, target)
        edited = edited.with_edit(None, added_unit, f"plus {description}")
        return replace(edited, range_factor=max(edited.range_factor, range_factor))

    def repeated(self, neighbour: EditedRecords) -> EditedRecords:
        """Return a neighbour one k farther, to which the last added unit is added once more.

        It is added under a name that weighs much, and in another unit's place if one k replaces. If
        the relation adds no units, it is another edit.
        """
        no_target = TargetQuery(np.zeros(self.attack.low.size), 0)
        if not {EditKind.COMES, EditKind.REPLACED} & kinds_of(self.attack.relation):
            return self.step(neighbour, no_target)
        removed_unit, reason = None, ""
        if replaces(self.attack.relation):
            removed_unit, reason = self._choose_unit(neighbour, no_target)
        self.units_made += 1
        rows = neighbour.added[-1]
        name = f"audit{self.units_made}"
        ids = np.array([f"{name}.row{index}" for index in range(len(rows))])
        renamed = replace(rows, ids=ids, units=np.full(len(rows), name))
        candidates = self._named(renamed, None, keep=True)
        names = np.array([str(candidate.units[0]) for candidate in candidates])
        heaviest = candidates[int(np.argmax(self._reach(names)))]
        description = "plus a second copy of the record that was added last"
        if removed_unit is not None:
            description = f"less {reason} {description}"
        edited = neighbour.with_edit(removed_unit, heaviest, description)
        return replace(edited, distance=neighbour.distance + 1)

    def _move_unit(self, neighbour: EditedRecords, target: TargetQuery) -> EditedRecords:
        """Return a neighbour in which a unit that had not moved lies elsewhere within the radius.

        Mostly it lies in a corner of the ball.
        """
        radius = self.attack.radius
        assert radius is not None  # RelationConfig
        unit, reason = self._choose_unit(neighbour, target)
        rows = neighbour.removed_rows[:0]
        if unit is not None:
            rows = np.flatnonzero(neighbour.original.units == unit)
        unmoved = neighbour.original.take(rows)
        way = str(self.rng.choice(["anywhere", "against", "uphill", "downhill"]))
        signs = self.rng.choice([-1.0, 1.0], unmoved.features.shape)
        if way == "against":
            away = np.where(unmoved.labels == target.label, -1.0, 1.0)
            signs = np.outer(away, np.sign(target.query)).reshape(signs.shape)
        elif way == "uphill":
            signs = self.uphill(unmoved)
        elif way == "downhill":
            signs = -self.uphill(unmoved)
        share = 1.0 if self.rng.random() < 0.8 else self.rng.random()
        features = (unmoved.features + share * radius * signs).astype(unmoved.features.dtype)
        moved = replace(unmoved, features=features)
        return neighbour.with_edit(unit, moved, f"{reason} moved {way}")

    def _relabel_unit(self, neighbour: EditedRecords, target: TargetQuery) -> EditedRecords:
        """Return a neighbour in which a unit that had its own label has another.

        Mostly it is the label that the last relabelled unit got, so that several push one way.
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
            labels.append(last_label if last_label in others else int(self.rng.choice(others)))
        relabelled = replace(before, labels=np.array(labels, dtype=before.labels.dtype))
        return neighbour.with_edit(unit, relabelled, f"{reason} relabelled")

    def _choose_unit(self, neighbour: EditedRecords, target: TargetQuery) -> tuple[str | None, str]:
        """Choose a private unit of the original that was not edited yet.

        It is any unit, the one that speaks most for the target's label ("best"), or the one with
        most weight in training ("heaviest").

        Returns:
            The unit's name and how it was chosen; None and "" if there is no such unit.
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
            return str(units[self._reach(units).argmax()]), way
        rows = np.flatnonzero(available)
        features = np.asarray(original.features[rows], dtype=np.float64).reshape(len(rows), -1)
        largest = np.maximum(np.abs(features).max(axis=1), 1e-300)
        along_query = (features / largest[:, None]) @ target.query
        support = np.where(original.labels[rows] == target.label, along_query, -along_query)
        names, unit_of_row = np.unique(original.units[rows], return_inverse=True)
        return str(names[np.bincount(unit_of_row, support).argmax()]), way

    def _make_unit(
        self, neighbour: EditedRecords, removed_unit: str | None, target: TargetQuery
    ) -> tuple[Records, str, float]:
        """Make a unit of new rows, under a name that the keyed hash sends where it hurts.

        Args:
            neighbour: to which it will be added.
            removed_unit: in whose place it comes; None: in nobody's.
            target: the query whose label it should change.

        Returns:
            The rows, what they are in words, and how many times beyond the ranges they lie.
        """
        self.units_made += 1
        original = neighbour.original
        way = str(self.rng.choice(WAYS))
        count = self.attack.unit_rows
        if way != "against":
            count = int(self.rng.integers(1, self.attack.unit_rows + 1))
        features, label, range_factor = self._make_row(way, original, target)
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
        placed, place = self._placed(rows, removed_unit, keep=way in ("copy", "zero"))
        description = f"one {way}, {place}"
        if range_factor > 1:
            description = (
                f"{description}, beyond the ranges of the columns by a factor of {range_factor:g}"
            )
        return placed, description, range_factor

    def _make_row(
        self, way: str, records: Records, target: TargetQuery
    ) -> tuple[np.ndarray, int, float]:
        """Make the features and the label of a record.

        Args:
            way: how, one of ``WAYS``.
            records: those of the run, of which some ways copy.
            target: the query whose label it should change.

        Returns:
            Its features, flat; its label; and how many times beyond the ranges it lies.
        """
        rng = self.rng
        other_labels = [label for label in range(self.attack.classes) if label != target.label]
        any_label = int(rng.integers(self.attack.classes))
        if way in ("copy", "mixed") and len(records):
            features, label = self._copied_row(way, records, any_label)
            return features, label, 1.0
        if way in ("copy", "mixed", "zero"):
            return np.zeros(self.attack.low.size), any_label, 1.0
        size = float(rng.choice(FARTHER if way == "beyond" else SIZES))
        if way != "against":
            signs = rng.choice([-1.0, 1.0], self.attack.low.size)
            label = int(rng.choice([any_label, *other_labels]))
            return self._corner(signs, size), label, size
        if self.attack.bounds_each_parameter and rng.random() < 0.7:
            direction = self._corner(np.sign(target.query), size)
            opposite = self._corner(-np.sign(target.query), size)
        else:
            direction = target.query * size
            opposite = -direction
        label = int(rng.choice(other_labels))
        if rng.random() < 0.3:  # from the other side: the same pull, were it not for the bias
            return opposite, target.label, size
        return direction, label, size

    def _copied_row(self, way: str, records: Records, any_label: int) -> tuple[np.ndarray, int]:
        """Return the features, flat, and the label of a record that copies one, or mixes two."""
        rng = self.rng
        row = int(rng.integers(len(records)))
        features = np.asarray(records.features[row], dtype=np.float64).ravel()
        if way == "copy":
            return features, int(records.labels[row]) if rng.random() < 0.5 else any_label
        other_row = int(rng.integers(len(records)))
        other = np.asarray(records.features[other_row], dtype=np.float64).ravel()
        return np.where(rng.random(len(features)) < 0.5, features, other), any_label

    def _corner(self, signs: np.ndarray, size: float) -> np.ndarray:
        """Return the corner of the ranges to which signs point, or a point beyond it, [features].

        Args:
            signs: [features].
            size: 1 for the corner itself, otherwise a multiple of the greatest value of each range;
                of a range that is the point 0, a multiple of 1.
        """
        low = self.attack.low.ravel().astype(np.float64)
        high = self.attack.high.ravel().astype(np.float64)
        if size == 1:
            return np.where(signs > 0, high, np.where(signs < 0, low, 0.0))
        span = np.maximum(np.abs(low), np.abs(high))
        return signs * np.where(span > 0, span, 1.0) * size

    def _placed(self, rows: Records, removed_unit: str | None, keep: bool) -> tuple[Records, str]:
        """Return the rows of a unit under the best of several names, and how the name was chosen.

        The name is any, the removed unit's own ("same"), one in another shard and other batches
        than that ("elsewhere"), or the one with most weight in training ("heaviest").

        Args:
            rows: of the unit.
            removed_unit: in whose place it comes; None: in nobody's.
            keep: its features are to stay as they are, whatever name it gets.
        """
        ways = ["any", "heaviest"]
        if removed_unit is not None:
            ways += ["elsewhere", "elsewhere", "same"]
        way = str(self.rng.choice(ways))
        variants = self._named(rows, removed_unit if way == "same" else None, keep)
        if len(variants) == 1:
            return variants[0], "under the same name" if way == "same" else way
        names = np.array([str(variant.units[0]) for variant in variants])
        score = self._reach(names)
        if way == "any":
            score = np.arange(len(names)) == 0
        if way == "elsewhere":
            # the place decides; of equal places, the weight
            score = score / (1 + score.max()) + self._elsewhere(names, str(removed_unit))
        return variants[int(np.argmax(score))], way

    def _named(self, rows: Records, name: str | None, keep: bool) -> list[Records]:
        """Return the rows of a unit under this name, or under several that are free.

        ``keep`` is for editors whose ids follow the content (the tests' adversary has one): the
        features are to stay as they are.
        """
        names = [name]
        if name is None:
            names = [f"{rows.units[0]}.{index}" for index in range(NAMES)]
        return [replace(rows, units=np.full(len(rows), each)) for each in names]

    def _steps(self, names: np.ndarray) -> np.ndarray:
        """Return which unit takes part in which step, [steps, names] bool."""
        every_name = np.arange(len(names))
        return np.array([np.isin(every_name, batch) for batch in self.plan.batches(names)])

    def _reach(self, names: np.ndarray) -> np.ndarray:
        """Return how far a constant gradient of each unit would move the parameters, [names]."""
        return self.attack.weight @ self._steps(names)

    def _elsewhere(self, names: np.ndarray, removed_unit: str) -> np.ndarray:
        """Return how far from a removed unit's place each name would be, [names], at most 2.

        It is 1 for another shard, plus the share of steps in which only one of both takes part.
        """
        unit = np.array([removed_unit])
        ensemble = self.attack.ensemble
        other_shard = assign_shards(names, ensemble) != assign_shards(unit, ensemble)
        other_steps: np.ndarray = (self._steps(names) != self._steps(unit)).mean(axis=0)
        return other_shard + other_steps
