"""Neighbours of a run: edits of its records, made to hurt, and training again on them as the run
itself would have been.

An edit says who leaves, who comes, and under which name, so that hashes place it badly. A newcomer
may be any record: a certificate speaks of all of them, whatever a data set's columns can hold.
Within the ranges that the run's own records span it is one that the columns can hold; the story of
each edit says which it was.

Formal guarantees
    A certificate speaks of trainings with the run's own public constants. Where a size was
    declared, or a normaliser, they are the same whatever the records. Where none was, the run
    counted its records, and the certificate is about trainings that keep that count (condition c
    does not hold: nobody may know it). ``retrained`` keeps it, each member of an ensemble its own,
    and with it all that is derived: B, n_max, the plan, and what a recipe settles. Initial
    parameters and an encoder's features are the problem's. A unit's batch, shard and slice follow
    from its own id.
    Neighbours may be empty, or hold one class: as for a shard, to refuse them would depend on
    private data. ``neighbour_of`` keeps an ensemble's members that an edit leaves alone: their
    records are the same bytes in the same order. A removal's certificate holds given its draws, so
    it keeps these: the neighbour is the minimiser with the run's own b (training/removal.py), plus
    the noise that is on the run's weights.
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

NOMINAL = (0,)  # the values of k where no bounds are wanted
EDITS_PER_WORKER = 24  # fewer are trained before a process has started
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
# of features, in units of the ranges that were seen; the first alone is within them
SIZES = (1.0, 30.0, 1e4)
FARTHER = (1e6, 1e15, 1e30)
HALVINGS = 60  # of a line between two queries
Read = Callable[[np.ndarray], np.ndarray]
Uphill = Callable[[Records], np.ndarray]
NAMES = 24  # tried for a newcomer


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

It is written down here once more, as an audit that asked the rules (agt/relations/) would repeat
their mistakes. One side alone is within one k of those that replace."""
_PROBED = 2**20  # names may be probed at once: they are no batch


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
    """[n, ...] float64: so far [n] of the way from each beginning to its end."""
    return begin + share.reshape(-1, *[1] * (begin.ndim - 1)) * (
        end - np.asarray(begin, dtype=np.float64)
    )


def bisected(read: Read, begin: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """([n] how far along a line the same is read as at its beginning, [n] the next number, at which
    it is not).

    Args:
        read: queries -> [n] what is to be told apart; it differs between the two ends of each line.
    """
    low, high, start = np.zeros(len(begin)), np.ones(len(begin)), read(begin)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        same = read(on_line(begin, end, middle)) == start
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    return low, high


# -- records
# --------------------------------------------------------------------------------------------------


def without(records: Records, rows: np.ndarray) -> Records:
    """All but the records at ``rows`` (indices or a mask)."""
    kept = np.ones(len(records), dtype=bool)
    kept[rows] = False
    return records.take(kept)


def with_added(records: Records, others: Records) -> Records:
    """The records of both; their ids must differ."""

    def joined(name: str) -> np.ndarray:
        return np.concatenate([getattr(records, name), getattr(others, name)])

    return Records(
        joined("features"), joined("labels"), joined("ids"), joined("units"), joined("public")
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
class Edited:
    """A neighbour of ``base``: without the records at ``gone``, with those of ``come``, and how it
    came about.

    Attributes:
        distance: within so many k of the relation.
        times_range: of the newcomer that is farthest out, how many times beyond the ranges of
            features it lies; 1: all lie within.
    """

    base: Records
    gone: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    come: tuple[Records, ...] = ()
    distance: int = 0
    story: tuple[str, ...] = ()
    times_range: float = 1.0

    @classmethod
    def without_unit(cls, records: Records, unit: str) -> "Edited":
        """Return the neighbour of ``records`` that lacks all rows of one unit."""
        return cls(records, np.flatnonzero(records.units == unit))

    def changed(self, leaving: str | None, newcomer: Records | None, story: str) -> "Edited":
        """Return the neighbour without a unit, and with a newcomer, where there are such.

        Args:
            story: what this does, in words.
        """
        gone = self.gone
        if leaving is not None:
            gone = np.union1d(gone, np.flatnonzero(self.base.units == leaving))
        come = self.come if newcomer is None else (*self.come, newcomer)
        return replace(self, gone=gone, come=come, story=(*self.story, story))

    @property
    def records(self) -> Records:
        """The neighbour's records."""
        records = without(self.base, self.gone)
        for newcomer in self.come:
            records = with_added(records, newcomer)
        return records


# -- training
# --------------------------------------------------------------------------------------------------


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
    if not problem.settings.ensembled:
        return fit(again)
    members = range(problem.settings.ensemble.members)
    return EnsembleModel(again, tuple(retrained_members(problem, records, members, ks)))


def retrained_members(
    problem: Problem, records: Records, which: Sequence[int], ks: tuple[int, ...] | None = None
) -> list[Model]:
    """Some members of an ensemble, on their shards of other training records; raises as
    ``retrained``.
    """
    again, settings = neighbouring(problem, records, ks), problem.settings
    members, dataset = settings.ensemble.members, again.dataset
    counts = (
        problem.member_record_counts if problem.dataset.declared_size is None else (0,) * members
    )
    assert isinstance(counts, tuple)
    made: dict[int, Model] = {}
    for count in sorted({counts[index] for index in which}):  # one turn, unless shards were counted
        size = (
            dataset.declared_size
            if problem.dataset.declared_size is not None
            else max(count, 1) * float(members)
        )
        same = [index for index in which if counts[index] == count]
        trained = fit_members(
            again.with_dataset(dataset.with_training_records(records, size)), same
        )
        made |= {index: model for index, (model, _) in zip(same, trained, strict=True)}
    return [made[index] for index in which]


def neighbouring(problem: Problem, records: Records, ks: tuple[int, ...] | None = None) -> Problem:
    """The run's problem on other records, its constants kept."""
    size = problem.dataset.declared_size
    size = float(max(problem.record_count, 1)) if size is None else size
    settings = (
        problem.settings if ks is None else replace(problem.settings, kgrid=KGridConfig(values=ks))
    )
    return replace(problem, settings=settings).with_dataset(
        problem.dataset.with_training_records(records, size)
    )


def neighbour_of(model: Model, records: Records, ks: tuple[int, ...] | None = None) -> Model:
    """The model of a neighbour of the records that a model was trained on; arguments and errors as
    of ``retrained``.

    Of an ensemble only the members train in whose shards a unit came, went or got another label.
    """
    problem = model.problem
    problem.dataset.check_unchanged()
    if model.stores_noise:
        return model.retrained_with_same_noise(neighbouring(problem, records))
    if not problem.settings.ensembled:
        return retrained(problem, records, ks)
    train = problem.dataset.train
    changed = np.concatenate([np.setxor1d(train.ids, records.ids), _relabelled_ids(train, records)])
    units = np.concatenate([side.units[np.isin(side.ids, changed)] for side in (train, records)])
    touched = sorted(set(assign_shards(units, problem.settings.ensemble).tolist()))
    members = dict(enumerate(model.member_models))
    members |= zip(touched, retrained_members(problem, records, touched, ks), strict=True)
    return EnsembleModel(neighbouring(problem, records, ks), tuple(members.values()))


def _relabelled_ids(train: Records, records: Records) -> np.ndarray:
    """Return the ids of records that both have, under different labels."""
    common, here, there = np.intersect1d(train.ids, records.ids, return_indices=True)
    different: np.ndarray = train.labels[here] != records.labels[there]
    return common[different]


def neighbours_of(
    model: Model, edits: Sequence[Edited], processes: bool = True
) -> Iterator[Model | AgtError]:
    """The nominal models of neighbours of a run, one after another, or why training refuses them:
    in several processes where there are many. Each has the run's own problem, as what a process
    sends back holds no data.

    Args:
        processes: False: in this one alone, as where little time is left and others take seconds to
            start.
    """
    workers = min(os.cpu_count() or 1, len(edits) // EDITS_PER_WORKER)
    bare = [(edit.gone, edit.come) for edit in edits]
    if not processes or workers < 2 or model.problem.settings.compute.device != "cpu":
        made: Iterator[Model | AgtError] = (_nominal(model, *edit) for edit in bare)
    else:
        with worker_processes(workers):
            made = Parallel(return_as="generator")(delayed(_nominal)(model, *edit) for edit in bare)
    for each in made:
        yield each if isinstance(each, AgtError) else each.with_problem(model.problem)


def _nominal(model: Model, gone: np.ndarray, come: tuple[Records, ...]) -> Model | AgtError:
    try:
        made = neighbour_of(model, Edited(model.problem.dataset.train, gone, come).records, NOMINAL)
    except AgtError as error:
        return error
    return made.with_problem(model.problem.with_dataset(model.problem.dataset.without_records))


def labels_of(margins: np.ndarray) -> np.ndarray:
    """[T, n] the label of each member, of margins [T, lines, n]."""
    return (margins[:, 0] > 0).astype(int) if margins.shape[1] == 1 else margins.argmax(axis=1)


# -- edits that hurt
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """A query whose label an attack is after: its features, flat, and the label that it has."""

    query: np.ndarray
    label: int


@dataclass(frozen=True)
class Terms:
    """What edits go by: the relation, the settings that place a unit, and the ranges of features.

    Attributes:
        relation, unit_rows, classes: as configured.
        plan: of batches, of a member where there are several.
        weight: [steps] what a constant gradient in each step moves the parameters by, in the end.
        ensemble: who is in which shard.
        low, high: [...] the least and greatest of each feature of a record.
        bounds_each_parameter: parameters are bounded one by one, so that a newcomer hurts most in a
            corner.
        radius: how far features may move, where they alone do.
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
    def of(cls, problem: Problem) -> "Terms":
        """Of a run; the ranges are those of its records, training and test, which lie within
        whatever was declared.

        Raises:
            ConfigError: no edits are written down for its relation.
        """
        settings, setup = problem.settings, problem.setup
        edits_of(settings.relation.name)  # refused before anything is trained
        parts = [
            part.features for part in (problem.dataset.train, problem.dataset.test) if len(part)
        ]
        low = np.min([np.asarray(part).min(axis=0) for part in parts], axis=0)
        high = np.max([np.asarray(part).max(axis=0) for part in parts], axis=0)
        plan = setup.plan(problem.record_count)
        return cls(
            settings.relation.name,
            settings.relation.unit_rows,
            problem.classes,
            plan,
            weights(setup.training, plan),
            settings.ensemble,
            low,
            high,
            settings.certificate.bounded == "each parameter",
            settings.relation.radius,
        )


def weights(training: TrainingConfig, plan: BatchPlan) -> np.ndarray:
    """[steps] what a constant gradient in each step moves the parameters by, in the end, but for
    momentum.
    """
    rates = [learning_rate(training, step) for step in range(plan.steps)]
    kept = np.array([1 - rate * training.weight_decay for rate in rates])
    return np.array([rate * kept[step + 1 :].prod() for step, rate in enumerate(rates)])


class Editor:
    """Makes neighbours, one step of the relation at a time.

    Args:
        terms: what it goes by.
        rng: of every choice.
        uphill: records -> the signs of the directions in which the model's loss at each rises.
    """

    def __init__(
        self, terms: Terms, rng: np.random.Generator, uphill: Uphill = lambda records: np.zeros(1)
    ) -> None:
        self.terms, self.rng, self.uphill, self.made = terms, rng, uphill, 0
        self.plan = replace(terms.plan, n_max=_PROBED)

    def step(self, of: Edited, target: Target) -> Edited:
        """One k further: what the relation counts as one."""
        edits = edits_of(self.terms.relation)
        made = replace(of, distance=of.distance + 1, story=())
        for kind in edits[self.rng.integers(len(edits))]:
            made = self._done(kind, made, target)
        return replace(made, story=(*of.story, " ".join(made.story) or "nobody"))

    def _done(self, kind: EditKind, of: Edited, target: Target) -> Edited:
        """Return a neighbour after one thing more was done."""
        if kind is EditKind.MOVES:
            return self._moved(of, target)
        if kind is EditKind.RELABELLED:
            return self._relabelled(of, target)
        leaving, why = (None, "") if kind is EditKind.COMES else self._leaving(of, target)
        made = of if leaving is None else of.changed(leaving, None, f"less {why}")
        if kind is EditKind.LEAVES:
            return made
        newcomer, manner, times_range = self._newcomer(of, leaving, target)
        made = made.changed(None, newcomer, f"plus {manner}")
        return replace(made, times_range=max(made.times_range, times_range))

    def repeated(self, of: Edited) -> Edited:
        """One k further: the last newcomer once more, under a name that weighs much; in somebody's
        place, where one k replaces. Where records stay, another edit.
        """
        target = Target(np.zeros(self.terms.low.size), 0)
        if not {EditKind.COMES, EditKind.REPLACED} & kinds_of(self.terms.relation):
            return self.step(of, target)
        leaving, why = self._leaving(of, target) if replaces(self.terms.relation) else (None, "")
        self.made += 1
        rows, prefix = of.come[-1], f"audit{self.made}"
        fresh = replace(
            rows,
            ids=np.array([f"{prefix}.row{i}" for i in range(len(rows))]),
            units=np.full(len(rows), prefix),
        )
        names = self._named(fresh, None, keep=True)
        twin = names[int(np.argmax(self._reach(np.array([str(each.units[0]) for each in names]))))]
        story = "plus a second copy of the record that was added last"
        if leaving is not None:
            story = f"less {why} {story}"
        made = of.changed(leaving, twin, story)
        return replace(made, distance=of.distance + 1)

    def _moved(self, of: Edited, target: Target) -> Edited:
        """A unit that had not moved moves within the ball, mostly to a corner of it."""
        radius = self.terms.radius
        assert radius is not None  # RelationConfig
        unit, why = self._leaving(of, target)
        rows = np.flatnonzero(of.base.units == unit) if unit is not None else of.gone[:0]
        there, way = (
            of.base.take(rows),
            str(self.rng.choice(["anywhere", "against", "uphill", "downhill"])),
        )
        signs = self.rng.choice([-1.0, 1.0], there.features.shape)
        if way == "against":
            away = np.where(there.labels == target.label, -1.0, 1.0)
            signs = np.outer(away, np.sign(target.query)).reshape(signs.shape)
        elif way != "anywhere":
            signs = self.uphill(there) * (1 if way == "uphill" else -1)
        share = 1.0 if self.rng.random() < 0.8 else self.rng.random()
        moved = replace(
            there, features=(there.features + share * radius * signs).astype(there.features.dtype)
        )
        return of.changed(unit, moved, f"{why} moved {way}")

    def _relabelled(self, of: Edited, target: Target) -> Edited:
        """Return a neighbour in which a unit that had its own label has another.

        Mostly it is the label that the last relabelled unit got, so that several push one way.
        """
        unit, why = self._leaving(of, target)
        if unit is None:
            return of
        before = of.base.take(of.base.units == unit)
        last = of.come[-1].labels[0] if of.come and self.rng.random() < 0.7 else None
        labels = []
        for label in before.labels.tolist():
            others = [other for other in range(self.terms.classes) if other != label]
            labels.append(last if last in others else int(self.rng.choice(others)))
        relabelled = replace(before, labels=np.array(labels, dtype=before.labels.dtype))
        return of.changed(unit, relabelled, f"{why} relabelled")

    def _leaving(self, of: Edited, target: Target) -> tuple[str | None, str]:
        """A private unit: any, the one that speaks most for the target's label, or the one that
        weighs most.
        """
        there = ~of.base.public
        there[of.gone] = False
        units = np.unique(of.base.units[there])
        if not len(units):
            return None, ""
        way = str(self.rng.choice(["any", "best", "heaviest"]))
        if way == "any":
            return str(self.rng.choice(units)), "any"
        if way == "heaviest":
            return str(units[self._reach(units).argmax()]), way
        rows = np.flatnonzero(there)
        flat = np.asarray(of.base.features[rows], dtype=np.float64).reshape(len(rows), -1)
        lengths = np.maximum(np.abs(flat).max(axis=1), 1e-300)
        along = (flat / lengths[:, None]) @ target.query
        speaks = np.where(of.base.labels[rows] == target.label, along, -along)
        names, places = np.unique(of.base.units[rows], return_inverse=True)
        return str(names[np.bincount(places, speaks).argmax()]), way

    def _newcomer(
        self, of: Edited, leaving: str | None, target: Target
    ) -> tuple[Records, str, float]:
        """A unit of new rows, under a name that the keyed hash sends where it hurts.

        Returns:
            The rows, what they are in words, and how many times beyond the ranges they lie.
        """
        self.made += 1
        way = str(self.rng.choice(WAYS))
        count = (
            self.terms.unit_rows
            if way == "against"
            else int(self.rng.integers(1, self.terms.unit_rows + 1))
        )
        features, label, size = self._row(way, of.base, target)
        prefix, limit = f"audit{self.made}", float(np.finfo(of.base.features.dtype).max)
        clipped = np.clip(features, -limit, limit).astype(of.base.features.dtype)
        rows = Records(
            features=np.repeat(clipped.reshape(1, *of.base.features.shape[1:]), count, axis=0),
            labels=np.full(count, label, dtype=np.int64),
            ids=np.array([f"{prefix}.row{i}" for i in range(count)]),
            units=np.full(count, prefix),
            public=np.zeros(count, dtype=bool),
        )
        placed, where = self._placed(rows, leaving, keep=way in ("copy", "zero"))
        made = f"one {way}, {where}"
        if size > 1:
            made = f"{made}, beyond the ranges of the columns by a factor of {size:g}"
        return placed, made, size

    def _row(self, way: str, records: Records, target: Target) -> tuple[np.ndarray, int, float]:
        """(a record's features, flat; its label; how many times beyond the ranges)."""
        terms, rng = self.terms, self.rng
        others, any_label = (
            [c for c in range(terms.classes) if c != target.label],
            int(rng.integers(terms.classes)),
        )
        if way in ("copy", "mixed") and len(records):
            row = int(rng.integers(len(records)))
            features = np.asarray(records.features[row], dtype=np.float64).ravel()
            if way == "copy":
                return features, int(records.labels[row]) if rng.random() < 0.5 else any_label, 1.0
            other = np.asarray(
                records.features[int(rng.integers(len(records)))], dtype=np.float64
            ).ravel()
            return np.where(rng.random(len(features)) < 0.5, features, other), any_label, 1.0
        if way in ("copy", "mixed", "zero"):
            return np.zeros(terms.low.size), any_label, 1.0
        size = float(rng.choice(FARTHER if way == "beyond" else SIZES))
        if way != "against":
            signs, label = (
                rng.choice([-1.0, 1.0], terms.low.size),
                int(rng.choice([any_label, *others])),
            )
            return self._corner(signs, size), label, size
        if terms.bounds_each_parameter and rng.random() < 0.7:
            direction, label = self._corner(np.sign(target.query), size), int(rng.choice(others))
            turned = self._corner(-np.sign(target.query), size)
        else:
            direction, label = target.query * size, int(rng.choice(others))
            turned = -direction
        if rng.random() < 0.3:  # from the other side: the same pull, were it not for the bias
            return turned, target.label, size
        return direction, label, size

    def _corner(self, signs: np.ndarray, size: float) -> np.ndarray:
        """The corner of the ranges that these signs point to, or as much beyond it; where a
        range is a point, 1.
        """
        low, high = (
            self.terms.low.ravel().astype(np.float64),
            self.terms.high.ravel().astype(np.float64),
        )
        corner = np.where(signs > 0, high, np.where(signs < 0, low, 0.0))
        if size == 1:
            return corner
        span = np.maximum(np.abs(low), np.abs(high))
        return signs * np.where(span > 0, span, 1.0) * size

    def _placed(self, rows: Records, leaving: str | None, keep: bool) -> tuple[Records, str]:
        """``rows`` under the best of several names: the leaver's own, elsewhere than its, or where
        steps weigh most.

        Args:
            keep: their features are to stay as they are, whatever name they get.
        """
        way = str(
            self.rng.choice(
                [
                    "any",
                    "heaviest",
                    *(["elsewhere", "elsewhere", "same"] if leaving is not None else []),
                ]
            )
        )
        variants = self._named(rows, leaving if way == "same" else None, keep)
        if len(variants) == 1:
            return variants[0], "under the same name" if way == "same" else way
        names = np.array([str(variant.units[0]) for variant in variants])
        score = self._reach(names)
        if way == "any":
            score = np.arange(len(names)) == 0
        if way == "elsewhere":
            score = score / (1 + score.max()) + self._elsewhere(names, str(leaving))
        return variants[int(np.argmax(score))], way

    def _named(self, rows: Records, name: str | None, keep: bool) -> list[Records]:
        """The rows of a unit under this name, or under several that are free.

        ``keep`` is for editors whose ids follow the content (the tests' adversary has one): the
        features are to stay as they are.
        """
        names = [f"{rows.units[0]}.{i}" for i in range(NAMES)] if name is None else [name]
        return [replace(rows, units=np.full(len(rows), each)) for each in names]

    def _steps(self, names: np.ndarray) -> np.ndarray:
        """[steps, names] bool: who takes part in which step."""
        return np.array([np.isin(np.arange(len(names)), rows) for rows in self.plan.batches(names)])

    def _reach(self, names: np.ndarray) -> np.ndarray:
        """[names] how far a constant gradient of each would move the parameters."""
        return self.terms.weight @ self._steps(names)

    def _elsewhere(self, names: np.ndarray, leaving: str) -> np.ndarray:
        """[names] other shards, and shares of other batches, than the leaver's."""
        shard = assign_shards(names, self.terms.ensemble) != assign_shards(
            np.array([leaving]), self.terms.ensemble
        )
        batch: np.ndarray = (self._steps(names) != self._steps(np.array([leaving]))).mean(axis=0)
        return shard + batch
