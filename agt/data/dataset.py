"""The one value that every dataset becomes: records with ids, a split, and the public constants that scaled them.

Which features, labels and ids a record has depends on that record alone and on public constants; this is condition b
of method.md section 3, and it is what lets a certificate speak about datasets that differ from this one.
"""

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Literal, Protocol

import numpy as np

from agt.data.blocks import Blocks, Numbered
from agt.data.ids import most_frequent
from agt.errors import AgtError
from agt.facts import Fact, Grounds

UNLABELLED = -1
PublicRows = Literal["test", "train"]
_CHUNK = 65_536


def row_words(row: int) -> str:
    """How messages name the row with this index among the rows of data: counted from 1, as a person counts."""
    return f"row {row + 1} of the data"


def not_finite(rows: np.ndarray) -> int | None:
    """The index of the first row with a NaN or an infinity; looked for in pieces, as rows may be memory-mapped."""
    for start in range(0, len(rows), _CHUNK):
        block = rows[start : start + _CHUNK]
        finite = np.isfinite(block).reshape(len(block), -1).all(axis=1)
        if not finite.all():
            return start + int(np.argmin(finite))
    return None


class DataError(AgtError):
    """The data was found, and cannot be used as it is."""

    exit_code = 2


@dataclass(frozen=True)
class Outside:
    """Values of one column of queries that lie outside what was declared public of it.

    Attributes:
        column: its name.
        count, total: how many of how many values; 0 of 0: the column has none.
        declared: the range or list, in words.
        seen: what was met, in words.
    """

    column: str
    count: int
    total: int
    declared: str
    seen: str

    @property
    def rate(self) -> float:
        """The share of values outside; 1 where there are none at all."""
        return self.count / self.total if self.total else 1.0


@dataclass(frozen=True)
class Records:
    """Rows of data, in a fixed order.

    Attributes:
        features: [n, ...] float32 or float64, finite; may be memory-mapped, or read block by block (``Blocks``).
        labels: [n] int64 class indices; ``UNLABELLED`` marks a query without a label.
        ids: [n] str, unique: the name of each record.
        units: [n] str: the person (or other unit of protection) each record belongs to; may repeat.
        public: [n] bool: True where the record is public, so that it is never added, removed or changed.
        outside: for the data owner alone, which columns of queries do not fit what was declared.
        groups: column -> [n] the subgroup of each record, as text, for what is told of a model's quality alone.

    Raises:
        DataError: shapes disagree, ids repeat, or a feature is NaN or infinite (the record is named).
    """

    features: np.ndarray
    labels: np.ndarray
    ids: np.ndarray
    units: np.ndarray
    public: np.ndarray
    outside: tuple[Outside, ...] = field(default=(), compare=False)
    groups: Mapping[str, np.ndarray] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        n = len(self.features)
        arrays = {name: getattr(self, name) for name in ("labels", "ids", "units", "public")}
        for name, array in (*arrays.items(), *self.groups.items()):
            if array.shape != (n,):
                raise DataError(f"records: {name} has shape {array.shape}, expected ({n},)")
        if self.features.dtype not in (np.float32, np.float64):
            raise DataError(f"records: features are {self.features.dtype}, expected float32 or float64")
        row = None if isinstance(self.features, Blocks) else not_finite(self.features)
        if row is not None:
            which = f"record {str(self.ids[row])!r} (number {row + 1} of {n})"
            raise DataError(f"{which} has a NaN or infinite feature: repair or drop it")
        repeated = None if isinstance(self.ids, Numbered) else most_frequent(self.ids)
        if repeated:
            raise DataError(f"record id {repeated[0]!r} occurs {repeated[1]} times: ids must be unique")

    def __len__(self) -> int:
        return len(self.features)

    def take(self, rows: np.ndarray) -> "Records":
        """The records at ``rows`` (indices or a mask), in that order; an unbroken run is a view, not a copy."""
        places = np.flatnonzero(rows) if rows.dtype == bool else rows
        steps, inside = np.diff(places), len(places) > 0 and places[0] >= 0
        if inside and (steps == 1).all():
            return self._at(slice(int(places[0]), int(places[-1]) + 1))
        part = self._at(rows)
        if not (inside and (steps > 0).all()):
            part.__post_init__()  # a row may be there twice
        return part

    def _at(self, rows: np.ndarray | slice) -> "Records":
        """The same at some rows, none of them twice: what holds of all records holds of these."""
        part, ids = copy(self), self.ids[rows]
        taken = {
            "features": self.features[rows],
            "labels": self.labels[rows],
            "ids": ids,
            "units": ids if self.units is self.ids else self.units[rows],
            "public": self.public[rows],
            "groups": {name: values[rows] for name, values in self.groups.items()},
            "outside": (),
        }
        for name, value in taken.items():
            object.__setattr__(part, name, value)
        return part

    def seen_as(self, features: np.ndarray) -> "Records":
        """The same records with other features, finite ones, which are not looked at."""
        part = copy(self)
        object.__setattr__(part, "features", features)
        return part


@dataclass(frozen=True)
class Plane:
    """A dataset whose records come from points of the plane, so that certificates can be drawn as a map.

    Attributes:
        points: [n, 2] the training records' points, in the order of ``Dataset.train``.
        lift: maps [m, 2] points to [m, d] features, each point on its own.
    """

    points: np.ndarray
    lift: Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Dataset:
    """A training set, a test set, and what was public about them.

    Attributes:
        name: what tables and figures call it; a synthetic set says so here.
        classes: names of the label values 0, 1, ...
        train, test: the records.
        declared_size: public constant: about how many training records there are; None if nobody declared it.
        shard: ``train`` is one member's part of an ensemble's data: it may be empty or hold one class only, because to
            refuse it would depend on private data.
        scaling: the constants that scaled the features, for the record.
        settled: what ``load_queries`` needs beside the source's own settings, and only the data could tell: kept with a
            run, so that nobody needs the data again to ask about queries.
        selection: condition b: ids, split and selection depend on each record alone.
        preprocessing: condition e: scaling and vocabularies come from public data or constants only.
        size: condition c: what makes ``declared_size`` a public constant; None where nobody but the user says so.
        tested: whether there is a test split; programs that train on arrays of their own keep none here.
        pretrain: public records a frozen encoder may be trained on.
        plane: set for two-dimensional data only.
        notes: sentences for the data owner alone: they may tell about private data, and are never part of a claim or of a
            condition.
    """

    name: str
    classes: tuple[str, ...]
    train: Records
    test: Records
    declared_size: float | None
    scaling: Mapping[str, object]
    selection: Grounds
    preprocessing: Grounds
    size: Fact | None = None
    pretrain: Records | None = None
    plane: Plane | None = field(default=None, compare=False)
    shard: bool = False
    tested: bool = True
    notes: tuple[str, ...] = field(default=(), compare=False)
    settled: Mapping[str, object] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        for split, records in (("train", self.train), ("test", self.test)):
            if not len(records):
                if self.shard or (split == "test" and not self.tested):
                    continue
                raise DataError(f"{self.name}: the {split} split is empty")
            if records.labels.min() < 0 or records.labels.max() >= len(self.classes):
                raise DataError(f"{self.name}: {split} labels are not in 0..{len(self.classes) - 1}")
        if not self.shard and len(np.unique(self.train.labels)) < 2:
            only = self.classes[int(self.train.labels[0])]
            raise DataError(f"{self.name}: every training record has the class {only!r}; at least two are needed")
        if self.train.features.shape[1:] != self.test.features.shape[1:]:
            raise DataError(f"{self.name}: train and test features differ in shape")

    def public_rows(self, which: PublicRows) -> Records:
        """The records that somebody declared public: "test", all of those, or "train", training records marked public."""
        return self.test if which == "test" else self.train.take(self.train.public)

    def same_records(self, other: "Dataset") -> bool:
        """Whether another has the same records in the same parts: by id, whose they are, and which are public."""
        parts = ((self.train, other.train), (self.test, other.test))
        return all(np.array_equal(getattr(a, key), getattr(b, key)) for a, b in parts for key in ("ids", "units", "public"))

    @property
    def bare(self) -> "Dataset":
        """The same without its training records: what every member of an ensemble shares."""
        nobody = self.train.take(np.empty(0, dtype=np.int64))
        return replace(self, train=nobody, pretrain=None, plane=None, shard=True)

    def with_shard(self, records: Records, declared_size: float | None) -> "Dataset":
        """The same with one member's training records."""
        return replace(self, train=records, declared_size=declared_size, shard=True)

    @cached_property
    def digest(self) -> str:
        """A hash of every record of both splits: features, labels, ids, units and public flags."""
        return fingerprint(self.train, self.test, *([self.pretrain] if self.pretrain else []))


def fingerprint(*parts: Records) -> str:
    """A hash of all that training sees of these records, in their order."""
    h = blake2b(digest_size=16)
    for records in parts:
        for start in range(0, len(records), _CHUNK):
            h.update(np.ascontiguousarray(records.features[start : start + _CHUNK]).tobytes())
        for array in (records.labels, records.public):
            h.update(array.tobytes())
        for array in (records.ids, records.units):
            for start in range(0, len(array), _CHUNK):
                h.update(("\n" if start else "").encode() + "\n".join(array[start : start + _CHUNK].tolist()).encode())
    return h.hexdigest()


class DataSource(Protocol):
    """What a dataset configuration's ``_target_`` builds: a frozen, validated description that can load itself."""

    def load(self) -> Dataset:
        """Read, check, scale and split the data. Raises DataMissing or DataError."""
        ...

    def load_queries(self, path: Path) -> Records:
        """Read a file of queries, scaled by the same public constants; labels are UNLABELLED where absent.

        A source with a setting ``settled`` gets what ``Dataset.settled`` had there, and then reads nothing but ``path``.
        One that has ``read_queries(columns)`` beside it, to the same bytes, answers JSON lines too (memory.py). One that
        takes constants from its training records needs ``load_without(gone)`` beside ``load`` where some are to be erased
        (erasure.py).
        """
        ...
