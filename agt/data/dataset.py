"""A dataset: records with ids, a split, and the public constants that scaled them.

Which features, labels and ids a record has depends on that record alone and on public constants;
this is condition b of reference.md section 3 (each record is processed by itself), which lets a
certificate speak about datasets that differ from this one. Code can hash an id; it cannot see
where the id came from: so the meaning of an id, of a given split, of a public flag or of a list of
classes is a declaration (agt/facts.py), and is listed with every claim that rests on it.
"""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np

from agt.data.arrays import is_mapped, pieces
from agt.data.coded import CodedFeatures, RowLookup
from agt.data.digests import fingerprint, fingerprint_in_background, mark_of_codes
from agt.data.records import Records
from agt.data.settings import is_far_size
from agt.data.target import Target
from agt.errors import DataError
from agt.facts import Evidence, Fact, Standing
from agt.settings import PublicRows

_FUTURE_DIGEST = "_future_digest"  # the attribute that holds it while a thread computes it


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
    """A training set, a test set, and the public facts about them.

    Attributes:
        name: the name in tables and figures, which says so if the data are synthetic.
        target: the kind of labels: classes, or numbers in a public range.
        train, test: the records.
        declared_size: a public constant, about how many training records there are; None: it was
            not declared.
        may_be_empty: ``train`` is one member's part of an ensemble's data: it may be empty or hold
            one class only, because to refuse it would depend on private data.
        scaling: the constants that scaled the features, for the record.
        settled: the constants that were read off the data and that ``load_queries`` needs in
            addition to the source's settings. A run stores them, so that queries can be read
            without the data.
        selection: evidence for condition b (each record is processed by itself): its id, its split
            and whether it is used depend on no other record.
        preprocessing: evidence for condition e (preprocessing is public): scaling and vocabularies
            come from public data or constants only.
        size: evidence for condition c (all constants are public): the fact that makes
            ``declared_size`` a public constant; None: it is only declared by the user.
        label_free: whether ids, units, split and order were made without labels, which
            relation=flip needs.
        tested: whether there is a test split; data from arrays in memory have none.
        pretrain: public records a frozen encoder may be trained on.
        plane: set for two-dimensional data only.
        coding: the rule by which features can be held as codes, whether they are or not; None: they
            cannot be held so, or it is not known.
        notes: sentences for the data owner alone, because they may depend on private data. They are
            never part of a claim or of a condition.
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
        """Raise DataError if a split is empty, labels are wrong or shapes of features differ."""
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

    @property
    def counted_records(self) -> str:
        """The records whose number is the declared size, which may therefore have been counted.

        It depends on the number of private records, so it must not become part of a claim.

        Returns:
            "training records" or "training and test records"; empty: the declared size is neither
            number, or is proved to be public.
        """
        training = len(self.train)
        is_proved = self.size is not None and self.size.standing is Standing.PROVED
        if is_proved or not training:
            return ""
        if self.declared_size == training:
            return "training records"
        has_all = self.declared_size == training + len(self.test)
        return "training and test records" if has_all else ""

    @property
    def size_is_far(self) -> bool:
        """Whether the declared size is far from the number of training records (``is_far_size``).

        It depends on the number of private records, so it must not become part of a claim.
        """
        is_proved = self.size is not None and self.size.standing is Standing.PROVED
        if is_proved or self.declared_size is None or not len(self.train):
            return False
        return is_far_size(self.declared_size, len(self.train))

    def public_rows(self, which: PublicRows) -> Records:
        """Return the records that are declared public.

        Args:
            which: "test" for all test records, "train" for the training records marked public.
        """
        return self.test if which == "test" else self.train.take(self.train.public)

    def same_records(self, other: "Dataset") -> bool:
        """Return whether another dataset has the same records in training and in test.

        Records are compared by ids, units and public flags, in their order, not by features.
        """
        for records, other_records in ((self.train, other.train), (self.test, other.test)):
            for field_name in ("ids", "units", "public"):
                if not np.array_equal(
                    getattr(records, field_name), getattr(other_records, field_name)
                ):
                    return False
        return True

    @property
    def without_records(self) -> "Dataset":
        """This dataset without its training records, as all members of an ensemble share it."""
        no_records = self.train.take(np.empty(0, dtype=np.int64))
        return replace(self, train=no_records, pretrain=None, plane=None, may_be_empty=True)

    def with_training_records(self, records: Records, declared_size: float | None) -> "Dataset":
        """Return this dataset with the training records of one member of an ensemble.

        Args:
            records: the member's records.
            declared_size: the public number of records that members have; None: not declared.
        """
        return replace(self, train=records, declared_size=declared_size, may_be_empty=True)

    @cached_property
    def digest(self) -> str:
        """A hash of every record of both splits: features, labels, ids, units and public flags."""
        future: Future[str] | None = vars(self).get(_FUTURE_DIGEST)
        return self._digest_now() if future is None else future.result()

    @cached_property
    def mark(self) -> str:
        """``digest``; or, if features are held as codes, a hash of the records that is faster.

        It names the data of a training that may be killed before the digest is known.
        """
        is_coded = isinstance(self.train.features, CodedFeatures)
        return mark_of_codes(*self._digested) if is_coded else self.digest

    @contextmanager
    def digest_in_background(self) -> Iterator[None]:
        """Compute ``digest`` in a thread while the ``with`` block works, unless it is known.

        Code in the block that reads ``digest`` waits for it.
        """
        if "digest" in vars(self):
            yield
            return
        with fingerprint_in_background(*self._digested) as future:
            vars(self)[_FUTURE_DIGEST] = future
            try:
                yield
            finally:
                del vars(self)[_FUTURE_DIGEST]

    @property
    def _digested(self) -> tuple[Records, ...]:
        """The sets of records that ``digest`` covers, in this order."""
        pretrain = (self.pretrain,) if self.pretrain else ()
        return (self.train, self.test, *pretrain)

    def _digest_now(self) -> str:
        """Compute the digest from the records' present content, in memory or in mapped files."""
        return fingerprint(*self._digested)

    def check_unchanged(self) -> None:
        """Check that memory-mapped records, which others may edit, are those of the first call.

        Training calls it first and last, and code that reads the records of a model again calls it
        before that.

        Raises:
            DataError: the file of the records was changed.
        """
        if is_mapped(self.train.features) and self.digest != self._digest_now():
            raise DataError(
                f"{self.name}: the (memory-mapped) file of the records was changed after training "
                "began, so it no longer holds what the model was trained on: restore the file, "
                "or train again"
            )


def with_notes(dataset: Dataset, normalized: float | None) -> Dataset:
    """Return the dataset with notes for the data owner on what may be wrong with it.

    They are about classes that never occur, units on both sides of the split or with names that are
    nearly alike, and a declared size that is far from the true one.

    Args:
        dataset: the dataset, whose own notes stay.
        normalized: the public number of records that corresponds to the normaliser of training
            steps; None: steps are normalised by the declared size.
    """
    notes = [*dataset.notes, *dataset.target.notes(dataset.train.labels)]
    if (dataset.train.units != dataset.train.ids).any():
        notes += _notes_on_units(dataset.train.units, dataset.test.units)
    notes += _notes_on_size(len(dataset.train), dataset.declared_size, normalized)
    return replace(dataset, notes=tuple(notes))


def _notes_on_units(train_units: np.ndarray, test_units: np.ndarray) -> list[str]:
    """Return notes on units with training and test records, and on names that are nearly alike.

    Args:
        train_units: [n] the unit of each training record.
        test_units: [m] the unit of each test record.
    """
    notes = []
    train_names = _distinct_names(train_units)
    test_names = _distinct_names(test_units)
    in_both_splits = len(train_names & test_names)
    if in_both_splits:
        notes.append(
            "number of units (people) that have both training and test records: "
            f"{in_both_splits:,}. So results on the test records may look better than they "
            "are."
        )
    names = train_names | test_names
    spelt_alike = {name.strip().casefold().lstrip("0") for name in names}
    alike = len(names) - len(spelt_alike)
    if alike:
        notes.append(
            "number of names of units (people) that differ from another name only in "
            f"capitals, blanks or leading zeros: {alike:,}. Each name counts as a unit of its "
            "own. If two names mean the same person, write them in the same form."
        )
    return notes


def _distinct_names(units: np.ndarray) -> set[str]:
    """Return the distinct names of units, from an array [n] that is read in pieces."""
    names: set[str] = set()
    for piece in pieces(units):
        names.update(piece.tolist())
    return names


def _notes_on_size(
    records: int, declared_size: float | None, normalized: float | None
) -> list[str]:
    """Return a note if the declared number of records is less than half or over twice the true one.

    Args:
        records: the number of training records.
        declared_size: the declared number; None: it was not declared.
        normalized: the argument of ``with_notes``, which is used instead of the declared size.
    """
    size = declared_size if normalized is None else normalized
    if size is None or not records or records / 2 <= size <= records * 2:
        return []
    statement = f"dataset.declared_size is {size:.12g}"
    if normalized is not None:
        statement = (
            "training.batch.normalizer, multiplied by the numbers of batches and members, "
            f"corresponds to a data set of {size:.12g} records"
        )
    ratio = max(size / records, records / size)
    smaller_or_larger = "smaller" if size > records else "larger"
    effect = "may make little progress" if size > records else "may be unstable"
    return [
        f"{statement}, but there are {records} training records, so each training step is "
        f"about {ratio:,.1f} times {smaller_or_larger} than with the true number, and "
        f"training {effect}. Declare a public number nearer to the true one."
    ]


class DataSource(Protocol):
    """Frozen settings of data, with methods that load the data.

    The ``_target_`` of a dataset configuration names the class. Two further methods are optional:
    ``read_queries(columns)`` reads queries that a program sends as JSON lines
    (agt/data/sent_records.py); ``load_without(is_erased)`` is needed to erase records if the source
    computes constants from its training records (agt/data/erasure.py).
    """

    def load(self) -> Dataset:
        """Read, check, scale and split the data.

        Raises:
            DataMissing: a file is not there.
            DataError: the data cannot be used.
        """

    def load_queries(self, path: Path) -> Records:
        """Read a file of queries, scaled by the same public constants as the training records.

        A source with a setting ``settled`` gets the recorded ``Dataset.settled`` there, and then
        reads nothing but ``path``.

        Args:
            path: the file of queries.

        Returns:
            The queries, whose labels are UNLABELLED where the file has none.
        """
