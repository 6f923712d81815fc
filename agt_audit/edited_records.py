"""Records of neighbouring datasets: some are removed from a dataset, and others are added."""

from dataclasses import dataclass, field, replace

import numpy as np

from agt.data.records import Records
from agt.data.target import Target as DatasetTarget


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
    """Return private records that an attack adds, each a separate unit.

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
