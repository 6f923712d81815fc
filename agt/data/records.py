"""Records: features, labels, ids and units of people, the input of every training and
certificate.
"""

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field

import numpy as np

from agt.data.arrays import Blocks, Mapped, as_array, not_finite
from agt.data.coded import CodedFeatures, RowLookup
from agt.data.ids import most_frequent
from agt.data.population import Outside, population_mismatches
from agt.errors import DataError

UNLABELLED = -1

UNANSWERED = -1


@dataclass(frozen=True, repr=False)  # so that no private record is printed with a model
class Records:
    """Rows of data, in a fixed order.

    Attributes:
        features: [n, ...] float32 or float64, finite; may be memory-mapped, read block by block
            (``Blocks``), or held as codes (``CodedFeatures``).
        labels: [n] int64 class indices, where ``UNLABELLED`` marks a query without a label; or
            float64 numbers, where NaN does.
        ids: [n] str, unique: the name of each record.
        units: [n] str: the person (or other unit of protection) each record belongs to; may repeat.
        public: [n] bool: True where the record is public, so that it is never added, removed or
            changed.
        outside: the columns of queries, to be shown to the data owner only, whose values do not fit
            the declarations.
        id_column: the column that names queries in their file; None: no column does.
        groups: column -> [n] the subgroup of each record, as text. Only reports of a model's
            quality read it.
        rows: [n] int64, the index of each record in the file or set that they were taken from;
            None: they are all of it.

    Raises:
        DataError: shapes disagree, ids repeat, or a feature is NaN or infinite (the record is
            named).
    """

    features: np.ndarray
    labels: np.ndarray
    ids: np.ndarray
    units: np.ndarray
    public: np.ndarray
    outside: tuple[Outside, ...] = field(default=(), compare=False)
    id_column: str | None = field(default=None, compare=False)
    groups: Mapping[str, np.ndarray] = field(default_factory=dict, compare=False)
    rows: np.ndarray | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        """Check shapes, types and ids, and that features are finite if they are in memory."""
        self._check_shapes()
        row = _first_not_finite(self.features)
        if row is not None:
            raise DataError(
                f"record {str(self.ids[row])!r} (number {row + 1} of {len(self)}) has a NaN or "
                "infinite feature: correct or remove this record"
            )
        if isinstance(self.ids, Mapped):  # row numbers, which are unique
            return
        repeated = most_frequent(self.ids)
        if repeated:
            raise DataError(
                f"record id {repeated.name!r} occurs {repeated.times} times, but ids must be "
                "unique (if several rows belong to one person, name the person with units)"
            )

    def _check_shapes(self) -> None:
        """Raise DataError unless arrays have a value for each record, and features are floats."""
        arrays = {name: getattr(self, name) for name in ("labels", "ids", "units", "public")}
        for name, array in (*arrays.items(), *self.groups.items()):
            if array.shape != (len(self),):
                raise DataError(
                    f"records: {name} has shape {array.shape}, but must have shape ({len(self)},)"
                )
        if self.features.dtype not in (np.float32, np.float64):
            raise DataError(
                f"records: features have the type {self.features.dtype}, but must have float32 or "
                "float64"
            )

    def __len__(self) -> int:
        return len(self.features)

    @property
    def population_mismatches(self) -> list[str]:
        """Sentences on why these queries seem to be of another population; empty: they do not."""
        return population_mismatches(self.outside, len(self))

    @property
    def units_named(self) -> bool:
        """Whether the unit of some record differs from its id.

        If not, each record is a separate unit. Without records, it is whether units were given.
        """
        if self.units is self.ids:
            return False
        return not len(self) or bool((self.units != self.ids).any())

    def take(self, rows: np.ndarray) -> "Records":
        """Return some of the records, in the given order.

        Consecutive records share memory with these; others are copied.

        Args:
            rows: [m] indices, or [n] bool.

        Raises:
            DataError: an index is repeated, so that ids would be.
        """
        indices = np.flatnonzero(rows) if rows.dtype == bool else rows
        steps = np.diff(indices)
        in_range = len(indices) > 0 and indices[0] >= 0 and indices[-1] < len(self)
        if in_range and (steps == 1).all():
            return self._select(slice(int(indices[0]), int(indices[-1]) + 1))
        selected = self._select(rows)
        is_increasing = in_range and (steps > 0).all()
        if not is_increasing:
            selected.__post_init__()  # which raises if an index is repeated
        return selected

    def _select(self, rows: np.ndarray | slice) -> "Records":
        """Return some of the records without checks, because all records were checked.

        Args:
            rows: indices without repetition, a mask or a slice.
        """
        if isinstance(rows, slice):
            indices = np.arange(*rows.indices(len(self)))
        elif rows.dtype == bool:
            indices = np.flatnonzero(rows)
        else:
            indices = rows % max(len(self), 1)  # negative indices count from the end
        ids = self.ids[rows]
        # That units are the ids themselves says that no units were given (``units_named``).
        units = ids if self.units is self.ids else self.units[rows]
        original_rows = indices if self.rows is None else self.rows[indices]
        return self._unchecked(
            features=self.features[rows],
            labels=self.labels[rows],
            ids=ids,
            units=units,
            public=self.public[rows],
            groups={name: values[rows] for name, values in self.groups.items()},
            outside=(),
            rows=original_rows,
        )

    def with_features(self, features: np.ndarray) -> "Records":
        """Return these records with other features, [n, ...], without checks: they are finite."""
        return self._unchecked(features=features)

    def held_as_codes(self, coding: RowLookup | None) -> "Records | None":
        """Return the same records with features that are held as codes.

        Args:
            coding: the feature values that the codes mean; None: not known.

        Returns:
            None: the coding is not known, or does not make these features.
        """
        if isinstance(self.features, CodedFeatures):
            return self
        coded = None if coding is None else coding.coded(self.features)
        return None if coded is None else self.with_features(as_array(coded))

    def held_as_array(self) -> "Records":
        """Return the same records with features that are not held as codes."""
        if isinstance(self.features, CodedFeatures):
            return self.with_features(np.asarray(self.features))
        return self

    def _unchecked(self, **changes: object) -> "Records":
        """Return a copy with other values of some attributes, without the checks of all records."""
        changed = copy(self)
        for name, value in changes.items():
            object.__setattr__(changed, name, value)
        return changed


def _first_not_finite(features: np.ndarray) -> int | None:
    """Return the index of the first row with a NaN or an infinity; None: none, or not known yet."""
    if isinstance(features, Blocks):
        return None
    if isinstance(features, CodedFeatures):
        return features.not_finite()
    return not_finite(features)


def records(
    features: np.ndarray,
    labels: np.ndarray,
    ids: np.ndarray,
    units: np.ndarray | None = None,
    public: np.ndarray | None = None,
    groups: Mapping[str, np.ndarray] | None = None,
    outside: tuple[Outside, ...] = (),
    rows: np.ndarray | None = None,
    id_column: str | None = None,
) -> Records:
    """Return records, with default values for what is not given.

    Args:
        features, labels, ids, outside, rows, id_column: attributes of ``Records``; labels that are
            not float64 become int64.
        units: [n] str; None: each record is a separate unit.
        public: [n] bool; None: all records are private.
        groups: column -> [n] subgroups; None: the records have no subgroups.

    Raises:
        DataError: the records are refused (see ``Records``).
    """
    if labels.dtype != np.float64:
        labels = labels.astype(np.int64, copy=False)
    if units is None:
        units = ids
    if public is None:
        public = np.broadcast_to(np.False_, len(features))
    return Records(
        features=features,
        labels=labels,
        ids=ids,
        units=units,
        public=public,
        outside=outside,
        id_column=id_column,
        groups=groups or {},
        rows=rows,
    )
