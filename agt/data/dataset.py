"""The one value that every dataset becomes: records with ids, a split, and the public constants
that scaled them.

Which features, labels and ids a record has depends on that record alone and on public constants;
this is condition b of reference.md section 3, which lets a certificate speak about datasets
that differ from this one. Code can hash an id; it cannot see where the id came from: so the meaning
of an id, of a given split, of a public flag or of a list of classes is a declaration
(agt/facts.py), and is listed with every claim that rests on it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np

from agt.data.arrays import is_mapped, pieces
from agt.data.coded import CodedFeatures, RowLookup
from agt.data.digests import fingerprint, fingerprint_like, held_as_codes
from agt.data.ids import _rough_hash
from agt.data.records import Records
from agt.data.target import Target
from agt.errors import DataError
from agt.facts import Evidence, Fact
from agt.settings import PublicRows


@dataclass(frozen=True)
class Plane:
    """A dataset whose records come from points of the plane, so that certificates can be drawn as a
    map.

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
        target: what labels are: classes, or numbers in a public range.
        train, test: the records.
        declared_size: public constant: about how many training records there are; None if nobody
            declared it.
        may_be_empty: ``train`` is one member's part of an ensemble's data: it may be empty or hold
            one class only, because to refuse it would depend on private data.
        scaling: the constants that scaled the features, for the record.
        settled: what ``load_queries`` needs beside the source's own settings, and only the data
            could tell: kept with a run, so that nobody needs the data again to ask about queries.
        selection: condition b: ids, split and selection depend on each record alone.
        preprocessing: condition e: scaling and vocabularies come from public data or constants
            only.
        size: condition c: what makes ``declared_size`` a public constant; None where nobody but the
            user says so.
        label_free: no id, unit, split or order was made from labels: relation=flip needs it.
        tested: whether there is a test split; programs that train on arrays of their own keep none
            here.
        pretrain: public records a frozen encoder may be trained on.
        plane: set for two-dimensional data only.
        coding: how features can be held as codes, whether they are or not; None: they cannot, or it
            is not known.
        notes: sentences for the data owner alone: they may tell about private data, and are never
            part of a claim or of a condition.
    """

    name: str
    target: Target
    train: Records
    test: Records
    declared_size: float | None
    scaling: Mapping[str, object]
    selection: Evidence
    preprocessing: Evidence
    size: Fact | None = None
    pretrain: Records | None = None
    plane: Plane | None = field(default=None, compare=False)
    may_be_empty: bool = False
    label_free: bool = False
    tested: bool = True
    coding: RowLookup | None = field(default=None, compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False)
    settled: Mapping[str, object] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        for split, records in (("train", self.train), ("test", self.test)):
            if not len(records):
                if self.may_be_empty or (split == "test" and not self.tested):
                    continue
                raise DataError(
                    f"{self.name}: the {split} split has no records, but at least one is needed"
                )
            self.target.check(self.name, split, records.labels)
        self.target.check_trainable(self.name)
        if self.train.features.shape[1:] != self.test.features.shape[1:]:
            raise DataError(
                f"{self.name}: the features of training records and of test records have "
                "different shapes: give both the same number of features"
            )

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the label values 0, 1, ....

        Raises:
            ConfigError: labels are numbers, so there are no classes.
        """
        return self.target.classes

    def public_rows(self, which: PublicRows) -> Records:
        """The records that somebody declared public: "test", all of those, or "train", training
        records marked public.
        """
        return self.test if which == "test" else self.train.take(self.train.public)

    def same_records(self, other: "Dataset") -> bool:
        """Whether another has the same records in the same parts: by id, whose they are, and
        which are public.
        """
        parts = ((self.train, other.train), (self.test, other.test))
        return all(
            np.array_equal(getattr(a, key), getattr(b, key))
            for a, b in parts
            for key in ("ids", "units", "public")
        )

    @property
    def without_records(self) -> "Dataset":
        """This dataset without its training records: what every member of an ensemble shares."""
        none = self.train.take(np.empty(0, dtype=np.int64))
        return replace(self, train=none, pretrain=None, plane=None, may_be_empty=True)

    def with_training_records(self, records: Records, declared_size: float | None) -> "Dataset":
        """This dataset with one member's training records."""
        return replace(self, train=records, declared_size=declared_size, may_be_empty=True)

    @cached_property
    def digest(self) -> str:
        """A hash of every record of both splits: features, labels, ids, units and public flags."""
        return self._digest_now()

    def digest_like(self, recorded: object) -> str:
        """Return the digest, in the form of a recorded one if that is this dataset's.

        Args:
            recorded: the digest as a record has it, whatever version of agt wrote it; None: there
                is none.
        """
        if recorded == self.digest:
            return self.digest
        return fingerprint_like(recorded, self.coding, *self._parts)

    @property
    def _parts(self) -> tuple[Records, ...]:
        """The records whose digest names this dataset; all as codes if the training set is."""
        parts = (self.train, self.test, *([self.pretrain] if self.pretrain else []))
        if not isinstance(self.train.features, CodedFeatures):
            return parts
        coded = held_as_codes(parts, self.coding)
        return parts if coded is None else coded

    def _digest_now(self) -> str:
        return fingerprint(*self._parts)

    def check_unchanged(self) -> None:
        """Raise DataError where memory-mapped records, which others may edit, are not those of the
        first call.

        Training calls it first and last, and whoever reads the records of a model again calls it
        before that.
        """
        if is_mapped(self.train.features) and self.digest != self._digest_now():
            raise DataError(
                f"{self.name}: the (memory-mapped) file of the records was changed after training "
                "began, so it no longer holds what the model was trained on: restore the file, "
                "or train again"
            )


def with_notes(dataset: Dataset, normalized: float | None) -> Dataset:
    """The data set with what can be noted about any: classes that never occur, units on both sides
    or of names that are nearly alike, a size that is far off.

    Args:
        normalized: the public number of records that the normaliser of steps stands for, where it
            is configured.
    """
    records = len(dataset.train)
    notes = [*dataset.notes, *dataset.target.notes(dataset.train.labels)]
    if (dataset.train.units != dataset.train.ids).any():
        train, test = (
            np.concatenate([*map(_rough_hash, pieces(of.units))])
            for of in (dataset.train, dataset.test)
        )
        if both := len(np.intersect1d(train, test)):
            notes.append(
                f"number of units (people) that have both training and test records: {both:,}. So "
                "results on the test records may look better than they are."
            )
        both_units = (dataset.train.units, dataset.test.units)
        units = {name for of in both_units for some in pieces(of) for name in some.tolist()}
        if alike := len(units) - len({name.strip().casefold().lstrip("0") for name in units}):
            notes.append(
                "number of names of units (people) that differ from another name only in "
                f"capitals, blanks or leading zeros: {alike:,}. Each name counts as a unit of its "
                "own. If two names mean the same person, write them in the same form."
            )
    size = dataset.declared_size if normalized is None else normalized
    if size is not None and records and not records / 2 <= size <= records * 2:
        declared = f"dataset.declared_size is {size:.12g}"
        if normalized is not None:
            declared = (
                "training.batch.normalizer, multiplied by the numbers of batches and members, "
                f"corresponds to a data set of {size:.12g} records"
            )
        ratio = max(size / records, records / size)
        smaller_or_larger = "smaller" if size > records else "larger"
        effect = "may make little progress" if size > records else "may be unstable"
        notes.append(
            f"{declared}, but there are {records} training records, so each training step is "
            f"about {ratio:,.1f} times {smaller_or_larger} than with the true number, and "
            f"training {effect}. Declare a public number nearer to the true one."
        )
    return replace(dataset, notes=tuple(notes))


class DataSource(Protocol):
    """What a dataset configuration's ``_target_`` builds: a frozen, validated description that
    can load itself.
    """

    def load(self) -> Dataset:
        """Read, check, scale and split the data. Raises DataMissing or DataError."""

    def load_queries(self, path: Path) -> Records:
        """Read a file of queries, scaled by the same public constants; labels are UNLABELLED where
        absent.

        A source with a setting ``settled`` gets what ``Dataset.settled`` had there, and then reads
        nothing but ``path``. One that has ``read_queries(columns)`` beside it, to the same bytes,
        answers JSON lines too (files.columns_of). One that takes constants from its training
        records needs ``load_without(is_erased)`` beside ``load`` where some are to be erased
        (erasure.py).
        """
