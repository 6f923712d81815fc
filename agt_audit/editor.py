"""Edits of a run's records that are made to change the label of a query.

An added unit may be any record and have any name, because a certificate speaks of all of them. The
name decides by hashes in which batch and shard it is. Within the ranges of the run's own records,
an added record is one that the columns can hold; each edit's description says whether it was.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from agt.data.records import Records
from agt.problem import Problem
from agt.settings import TrainingConfig
from agt.training.batches import BatchPlan
from agt.training.ensemble import assign_shards
from agt.training.settings import EnsembleConfig
from agt.training.sgd import learning_rate
from agt_audit.edited_records import EditedRecords, attack_records
from agt_audit.relation_edits import EditKind, edits_of

# how an added record is made (``Editor._make_row``); one is drawn, so repetition raises its share
FEATURE_KINDS = (
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
Uphill = Callable[[Records], np.ndarray]
"""Records -> [n, ...] the signs of the directions in which the model's loss at each rises."""
ADDS_A_UNIT = {EditKind.COMES, EditKind.REPLACED}
NAME_CANDIDATES = 24  # candidates for the name of an added unit
# n_max of the plan that says in which steps units of given names take part: many names are
# asked about at once, and they are no batch that the run's n_max could limit
_MAX_PROBED_NAMES = 2**20


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
class ChosenUnit:
    """A unit of the original data that an edit removes or changes.

    Attributes:
        name: its name.
        way: how it was chosen: "any", "best" or "heaviest".
    """

    name: str
    way: str


@dataclass(frozen=True)
class DescribedUnit:
    """A unit that an edit adds.

    Attributes:
        rows: its records.
        description: how it was made, in words.
    """

    rows: Records
    description: str


@dataclass(frozen=True)
class MadeRow:
    """A record that was made for a unit, without names.

    Attributes:
        features: [features] in float64.
        label: its label.
        range_factor: by which factor the features exceed the ranges of the run's records; 1: they
            do not.
    """

    features: np.ndarray
    label: int
    range_factor: float = 1.0


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
        edits_of(settings.relation.name)  # called because it raises, before anything is trained
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

    def step(
        self, neighbour: EditedRecords, target: TargetQuery, repeat_last: bool = False
    ) -> EditedRecords:
        """Return a neighbour that is one k farther than ``neighbour``, by a random edit.

        The edit is one of ``EDITS`` for the relation. If every private unit was edited before,
        nothing is removed, moved or relabelled, but ``distance`` grows all the same.

        Args:
            neighbour: the dataset to edit; it is not changed.
            target: the query whose label the edit tries to change.
            repeat_last: whether the edit adds a second copy of the unit that was added last, of
                which there must be one. It has no effect if the relation adds no units.
        """
        edits = edits_of(self.attack.relation)
        if repeat_last:
            edits = tuple(edit for edit in edits if ADDS_A_UNIT & {*edit}) or edits
        # Edits are collected again, because all changes of one k share one description.
        edited = replace(neighbour, distance=neighbour.distance + 1, edits=())
        for kind in edits[self.rng.integers(len(edits))]:
            edited = self._edit(kind, edited, target, repeat_last)
        description = " ".join(edited.edits) or "nobody"
        return replace(edited, edits=(*neighbour.edits, description))

    def _edit(
        self, kind: EditKind, neighbour: EditedRecords, target: TargetQuery, repeat_last: bool
    ) -> EditedRecords:
        """Return the neighbour after one change of this kind, with its ``distance`` as it was.

        Args:
            kind: the change to make.
            neighbour: the dataset to edit; it is not changed.
            target: the query whose label the change tries to change.
            repeat_last: whether to add a second copy of the unit that was added last.
        """
        if kind is EditKind.MOVES:
            return self._move_unit(neighbour, target)
        if kind is EditKind.RELABELLED:
            return self._relabel_unit(neighbour, target)
        removed_unit = None
        edited = neighbour
        if kind is not EditKind.COMES:
            chosen = self._choose_unit(neighbour, target)
            if chosen is not None:
                removed_unit = chosen.name
                edited = neighbour.with_edit(removed_unit, None, f"less {chosen.way}")
        if kind is EditKind.LEAVES:
            return edited
        if repeat_last:
            copied = self._copy_unit(neighbour.added[-1])
            added = DescribedUnit(copied, "a second copy of the record that was added last")
        else:
            added = self._make_unit(neighbour, removed_unit, target)
        return edited.with_edit(None, added.rows, f"plus {added.description}")

    def _copy_unit(self, unit: Records) -> Records:
        """Return a copy of a unit's rows under the one of several new names with most weight."""
        renamed = self._rename_unit(unit)
        candidates = self._name_candidates(renamed, None, keep_features=True)
        names = np.array([str(candidate.units[0]) for candidate in candidates])
        return candidates[int(np.argmax(self._weight_of_units(names)))]

    def _rename_unit(self, unit: Records) -> Records:
        """Return a unit's rows under a new name and with new ids, and count the name as used."""
        self.units_made += 1
        name = f"audit{self.units_made}"
        ids = np.array([f"{name}.row{index}" for index in range(len(unit))])
        return replace(unit, ids=ids, units=np.full(len(unit), name))

    def _move_unit(self, neighbour: EditedRecords, target: TargetQuery) -> EditedRecords:
        """Return a neighbour in which each feature of one more unit moved by at most the radius.

        In 8 of 10 edits the features move by the whole radius. The signs of the moves are drawn
        ("anywhere"), taken from the query ("against"), or those along which the loss rises or
        falls ("uphill", "downhill").

        Args:
            neighbour: the dataset to edit; it is not changed. It is returned unchanged if all its
                private units were edited.
            target: the query whose label the move tries to change.
        """
        radius = self.attack.radius
        assert radius is not None  # RelationConfig requires one where features move
        chosen = self._choose_unit(neighbour, target)
        if chosen is None:
            return neighbour
        unmoved = neighbour.original.take(neighbour.original.units == chosen.name)
        direction = str(self.rng.choice(["anywhere", "against", "uphill", "downhill"]))
        signs = self._signs_of_move(direction, unmoved, target)
        share = 1.0 if self.rng.random() < 0.8 else self.rng.random()
        features = (unmoved.features + share * radius * signs).astype(unmoved.features.dtype)
        moved_rows = replace(unmoved, features=features)
        return neighbour.with_edit(chosen.name, moved_rows, f"{chosen.way} moved {direction}")

    def _signs_of_move(self, direction: str, unmoved: Records, target: TargetQuery) -> np.ndarray:
        """Return in which direction each feature of some records moves, [n, ...].

        Args:
            direction: one of those that ``_move_unit`` draws.
            unmoved: n records.
            target: the query whose label the move tries to change.
        """
        # drawn for every direction, so that further draws do not depend on it
        random_signs = self.rng.choice([-1.0, 1.0], unmoved.features.shape)
        if direction == "uphill":
            return self.uphill(unmoved)
        if direction == "downhill":
            return -self.uphill(unmoved)
        if direction == "against":
            # records of the query's label move away from the query, the others towards it
            direction_of_row = np.where(unmoved.labels == target.label, -1.0, 1.0)
            return np.outer(direction_of_row, np.sign(target.query)).reshape(random_signs.shape)
        return random_signs

    def _relabel_unit(self, neighbour: EditedRecords, target: TargetQuery) -> EditedRecords:
        """Return a neighbour in which one more unit has another label.

        In 7 of 10 edits it is the label that the last relabelled unit got, so that several edits
        change the model in one direction. Otherwise it is drawn.

        Args:
            neighbour: the dataset to edit; it is not changed. It is returned unchanged if all its
                private units were edited.
            target: the query whose label the edit tries to change.
        """
        chosen = self._choose_unit(neighbour, target)
        if chosen is None:
            return neighbour
        before = neighbour.original.take(neighbour.original.units == chosen.name)
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
        return neighbour.with_edit(chosen.name, relabelled, f"{chosen.way} relabelled")

    def _choose_unit(self, neighbour: EditedRecords, target: TargetQuery) -> ChosenUnit | None:
        """Choose a private unit of the original that was not edited yet.

        The rule for the choice is drawn: "any" draws a unit, "best" takes the unit whose records
        support the target's label most, "heaviest" the one with the most weight in training.

        Args:
            neighbour: the dataset from whose remaining records the unit is chosen.
            target: the query whose label the edit tries to change.

        Returns:
            The unit; None if every private unit was edited.
        """
        original = neighbour.original
        available = ~original.public
        available[neighbour.removed_rows] = False
        units = np.unique(original.units[available])
        if not len(units):
            return None
        rule = str(self.rng.choice(["any", "best", "heaviest"]))
        if rule == "any":
            return ChosenUnit(str(self.rng.choice(units)), rule)
        if rule == "heaviest":
            return ChosenUnit(str(units[self._weight_of_units(units).argmax()]), rule)
        return ChosenUnit(_unit_with_most_support(original.take(available), target), rule)

    def _make_unit(
        self, neighbour: EditedRecords, removed_unit: str | None, target: TargetQuery
    ) -> DescribedUnit:
        """Make a new unit, whose rows are copies of one record, and choose its name.

        The name matters because its keyed hash decides the unit's batches and shard.

        Args:
            neighbour: the dataset that the unit will be added to.
            removed_unit: the unit that it replaces; None: it replaces none.
            target: the query whose label the unit should change.
        """
        original = neighbour.original
        feature_kind = str(self.rng.choice(FEATURE_KINDS))
        count = self.attack.unit_rows
        if feature_kind != "against":
            count = int(self.rng.integers(1, self.attack.unit_rows + 1))
        made = self._make_row(feature_kind, original, target)
        # features far beyond the ranges may be too large for the features' own type
        largest = float(np.finfo(original.features.dtype).max)
        row = np.clip(made.features, -largest, largest).astype(original.features.dtype)
        rows = attack_records(
            features=np.repeat(row.reshape(1, *original.features.shape[1:]), count, axis=0),
            labels=np.full(count, made.label),
            ids=np.arange(count).astype(str),
            like=original,
        )
        named = self._choose_name(
            self._rename_unit(rows), removed_unit, keep_features=feature_kind in ("copy", "zero")
        )
        description = f"one {feature_kind}, {named.description}"
        if made.range_factor > 1:
            description = (
                f"{description}, beyond the ranges of the columns by a factor of "
                f"{made.range_factor:g}"
            )
        return DescribedUnit(named.rows, description)

    def _make_row(self, feature_kind: str, records: Records, target: TargetQuery) -> MadeRow:
        """Make the features and the label of a record.

        | kind       | features                                      | label                      |
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
            feature_kind: how the features are made, one of ``FEATURE_KINDS``.
            records: the run's training records.
            target: the query whose label the record should change.
        """
        rng = self.rng
        other_labels = [label for label in range(self.attack.classes) if label != target.label]
        any_label = int(rng.integers(self.attack.classes))
        if feature_kind in ("copy", "mixed") and len(records):
            return self._copied_row(feature_kind, records, any_label)
        if feature_kind in ("copy", "mixed", "zero"):
            return MadeRow(np.zeros(self.attack.low.size), any_label)
        range_factors = FAR_RANGE_FACTORS if feature_kind == "beyond" else RANGE_FACTORS
        range_factor = float(rng.choice(range_factors))
        if feature_kind != "against":
            signs = rng.choice([-1.0, 1.0], self.attack.low.size)
            label = int(rng.choice([any_label, *other_labels]))
            return MadeRow(self._corner(signs, range_factor), label, range_factor)
        return self._row_against(target, range_factor)

    def _row_against(self, target: TargetQuery, range_factor: float) -> MadeRow:
        """Make a record whose gradient moves the model away from the target's label.

        Its features point to the query, or to the query's corner of the ranges, under another
        label; or the opposite way under the target's own label.

        Args:
            target: the query whose label the record should change.
            range_factor: by which factor the features exceed the ranges; 1: they do not.
        """
        rng = self.rng
        if self.attack.bounds_each_parameter and rng.random() < 0.7:
            towards_query = self._corner(np.sign(target.query), range_factor)
            away_from_query = self._corner(-np.sign(target.query), range_factor)
        else:
            towards_query = target.query * range_factor
            away_from_query = -towards_query
        other_labels = [label for label in range(self.attack.classes) if label != target.label]
        label = int(rng.choice(other_labels))
        if rng.random() < 0.3:
            # opposite features with the target's own label: but for the bias, their gradient is
            # that of another label along the query
            return MadeRow(away_from_query, target.label, range_factor)
        return MadeRow(towards_query, label, range_factor)

    def _copied_row(self, feature_kind: str, records: Records, any_label: int) -> MadeRow:
        """Make a record that copies a record of the run, or mixes the features of two.

        Args:
            feature_kind: "copy" or "mixed".
            records: the run's training records, at least one.
            any_label: a label drawn beforehand, which a mixed record gets, and half of the copies.
        """
        rng = self.rng
        row = int(rng.integers(len(records)))
        features = np.asarray(records.features[row], dtype=np.float64).ravel()
        if feature_kind == "copy":
            has_own_label = rng.random() < 0.5
            return MadeRow(features, int(records.labels[row]) if has_own_label else any_label)
        other_row = int(rng.integers(len(records)))
        other = np.asarray(records.features[other_row], dtype=np.float64).ravel()
        return MadeRow(np.where(rng.random(len(features)) < 0.5, features, other), any_label)

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
    ) -> DescribedUnit:
        """Choose the name of a new unit.

        The rule for the choice is drawn: "any" takes the first candidate, "heaviest" the one with
        the most weight in training. If the unit replaces another, "elsewhere" takes the name whose
        shard and batches differ most from the removed unit's, and "same" the removed unit's own
        name.

        Args:
            rows: the unit's rows.
            removed_unit: the unit that it replaces; None: it replaces none.
            keep_features: whether the rows' features must not change with the name (they never do
                here, but may in subclasses whose names are hashes of features).

        Returns:
            The rows under the chosen name, with a description of how it was chosen.
        """
        rules = ["any", "heaviest"]
        if removed_unit is not None:
            rules += ["elsewhere", "elsewhere", "same"]
        rule = str(self.rng.choice(rules))
        fixed_name = removed_unit if rule == "same" else None
        candidates = self._name_candidates(rows, fixed_name, keep_features)
        if len(candidates) == 1:
            return DescribedUnit(candidates[0], "under the same name" if rule == "same" else rule)
        names = np.array([str(candidate.units[0]) for candidate in candidates])
        if rule == "any":
            return DescribedUnit(candidates[0], rule)
        weight = self._weight_of_units(names)
        score = weight
        if rule == "elsewhere":
            # scaled below 1, so that weight mostly decides between equal differences
            scaled_weight = weight / (1 + weight.max())
            score = scaled_weight + self._placement_difference(names, str(removed_unit))
        return DescribedUnit(candidates[int(np.argmax(score))], rule)

    def _name_candidates(
        self, rows: Records, name: str | None, keep_features: bool
    ) -> list[Records]:
        """Return the rows of a unit under each name that it may get.

        Args:
            rows: the unit's rows.
            name: the only candidate; None: ``NAME_CANDIDATES`` names that no unit has.
            keep_features: features must stay unchanged. It has no effect here, where features
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


def _unit_with_most_support(records: Records, target: TargetQuery) -> str:
    """Return the unit whose records support the target's label most.

    A record of that label supports it by the inner product of its features, scaled so that the
    largest has absolute value 1, with the query's. A record of another label does so by minus this.

    Args:
        records: the records to choose from, at least one.
        target: the query, with its label.
    """
    features = np.asarray(records.features, dtype=np.float64).reshape(len(records), -1)
    largest = np.maximum(np.abs(features).max(axis=1), 1e-300)
    along_query = (features / largest[:, None]) @ target.query
    support = np.where(records.labels == target.label, along_query, -along_query)
    names, unit_of_row = np.unique(records.units, return_inverse=True)
    support_of_unit = np.bincount(unit_of_row, support)
    return str(names[support_of_unit.argmax()])
