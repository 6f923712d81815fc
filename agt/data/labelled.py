"""Files of labelled records that users bring: everything about them but their features, which each kind makes its own way.

One path leads from a file to a dataset: read the columns, name the records, split them, make features, index the classes,
and list what all of that rests on.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from pydantic import Field

from agt.data.assemble import (
    class_indices,
    class_names,
    default_ids,
    hash_split,
    queries,
    query_labels,
    read_labels,
    records,
    same_length,
    subgroups,
)
from agt.data.blocks import Blocks, Numbered, as_array
from agt.data.checks import Word, check_classes, check_label, together
from agt.data.dataset import UNLABELLED, DataError, Dataset, Outside, Records
from agt.data.declarations import classes_fact, id_facts, split_fact
from agt.data.delimited import CsvFormat
from agt.data.erasure import Gone, check_last, nobody
from agt.data.files import Columns, changed_of, is_large, locate, open_blocks, open_columns
from agt.facts import Fact, Grounds, grounds
from agt.settings import DeclaredSize, schema

Content = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Rows:
    """The rows of one file, their features not yet made.

    Attributes:
        columns: the file.
        content: arrays of n rows, the features as the file has them; what ids are hashed from if it names none.
        labels: [n] object, text.
        ids: [n] str, unique.
        units: [n] str, whose record each is; None: each record is a unit of its own.
        public: [n] bool; None: all are private.
        test: [n] bool, True for test records.
        facts: what the columns of ids, units and public flags are taken to mean.
        groups: column -> [n] the subgroup of each row, as text.
        gone: [n] bool, training records that count as not being there: no constant is taken from them.
    """

    columns: Columns
    content: Content
    labels: np.ndarray
    ids: np.ndarray
    units: np.ndarray | None
    public: np.ndarray | None
    test: np.ndarray
    facts: tuple[Fact, ...]
    groups: Mapping[str, np.ndarray]
    gone: np.ndarray

    @property
    def train(self) -> np.ndarray:
        """[n] bool, True for training records that are there."""
        return ~self.test & ~self.gone

    def indices(self, classes: Sequence[str]) -> np.ndarray:
        """[n] int64: each row's class; of those that are gone, whose class may be gone too, the first."""
        labels = np.where(self.gone, classes[0], self.labels)
        return class_indices(labels, classes, self.columns.path, self.columns.row)


@dataclass(frozen=True)
class Features:
    """The features of each file, [n, ...] in the order of its rows, with what the record of a run says about them.

    Attributes:
        arrays: one for each file.
        scaling: the public constants that made them.
        settled: those of them that the file told and queries need (``Settled``).
        notes: for the data owner alone.
    """

    arrays: Sequence[np.ndarray]
    scaling: Mapping[str, object]
    settled: Mapping[str, object] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@schema
class Settled:
    """What a file of labelled records told beside its records, kept so that queries need it no more.

    Attributes:
        classes: the labels' names, in their order.
        shape: of one record's vectors; None: columns say it.
        center: what is subtracted; None: nothing, or the configuration has it.
        ranges: column -> [low, high], where the configuration has none.
    """

    classes: tuple[str, ...]
    shape: tuple[int, ...] | None = None
    center: Any = None
    ranges: Mapping[str, tuple[float, ...]] = Field(default_factory=dict)


@schema
class LabelledFile(ABC):
    """A file with one record a row, and what its columns mean.

    Attributes:
        path: the file; a relative path is looked for in the working directory, then in ``data_dir``.
        label: column of the label.
        data_dir: the other place of relative paths.
        id, unit, public: columns; None: ids from the content, each record its own unit, all records private.
        id_as_text: take ids that mix numbers and text as text.
        id_permanent: you declare that a record keeps its id, whatever becomes of others: ids that count rows need it.
        classes: public list of label values in the order of the classes; None: the sorted values found, at most 100.
        test_fraction, split_key: the hash split's public rate and key.
        declared_size: public constant: about how many training records there are.
        name: what tables call it; None: the file's name.
        subgroups: columns for whose values a model's quality is told apart; training sees none of it.
        settled: what a training run's record fills in, for queries; None: they open the file again.
    """

    SPLIT: ClassVar[str]
    """The setting that names a column of splits."""
    exact: ClassVar[bool] = False
    """Hash content in the precision of each row (``ids.exact_row``): where a file has one for all of them."""

    path: Path
    label: str
    data_dir: Path = Path("data")
    id: str | None = None
    unit: str | None = None
    public: str | None = None
    id_as_text: bool = False
    id_permanent: bool = False
    classes: Annotated[tuple[Word, ...], Field(min_length=2)] | None = None
    test_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.25
    split_key: str = "split"
    declared_size: DeclaredSize | None = None
    name: str | None = None
    subgroups: tuple[str, ...] = ()
    settled: Settled | None = None

    def __post_init__(self) -> None:
        check_classes(self.classes)
        if len(set(self.subgroups)) < len(self.subgroups):
            raise ValueError("subgroups names a column twice")
        check_label(self.label, {setting: getattr(self, setting) for setting in ("id", "unit", "public", self.SPLIT)})

    # -- what a kind of file adds --------------------------------------------------------------------------------------

    @abstractmethod
    def _content(self, columns: Columns) -> Content:
        """The features as a file has them, checked as far as each row goes."""

    @abstractmethod
    def _features(self, files: Sequence[Rows]) -> Features:
        """The features of every file; each record's from its own content and public constants."""

    @abstractmethod
    def _settle(self) -> Settled:
        """What ``Dataset.settled`` has, from the file itself."""

    @abstractmethod
    def _asked(self, columns: Columns, content: Content, settled: Settled) -> np.ndarray:
        """The features of queries."""

    def _misfit(self, content: Content, settled: Settled) -> tuple[Outside, ...]:
        """Which columns of queries do not fit the declarations, and how often."""
        return ()

    def _counted(self, content: Content) -> Mapping[str, int]:
        """How many values there are, of the columns that may not fit."""
        return {}

    @property
    def _form(self) -> CsvFormat | None:
        """How a csv is cut into cells; None: as usual."""
        return None

    @abstractmethod
    def _selection(self, split: Fact, rows: Rows) -> Grounds:
        """Condition b: the split, what names the rows, and whether each one's content was made from that record alone."""

    @abstractmethod
    def _scaling_fact(self) -> Fact:
        """Condition e: whether the constants that made the features are public."""

    # -- what all have in common ---------------------------------------------------------------------------------------

    def load(self) -> Dataset:
        """Read, scale and split. Raises DataMissing or DataError naming the file, the column and the row."""
        return self.load_without(nobody)

    def load_without(self, gone: Gone) -> Dataset:
        """As if the file did not have these training records: what it tells beside records is not read off them either.

        Raises:
            DataError: as ``load``; or a record that is gone has a copy that stays, and not the last number (ids.py).
        """
        files = [self._marked(rows, gone) for rows in self._files()]
        classes = self._classes(files)
        features = self._features(files)
        everyone = [
            records(x, f.indices(classes), f.ids, f.units, f.public, f.groups)
            for x, f in zip(features.arrays, files, strict=True)
        ]
        return Dataset(
            name=self.name or self.path.stem,
            classes=classes,
            train=everyone[0].take(files[0].train),
            test=everyone[-1].take(files[-1].test),
            declared_size=self.declared_size,
            scaling=features.scaling,
            selection=self._selection(self._split_fact(), files[0]),
            preprocessing=self.constants,
            notes=features.notes,
            settled={"classes": classes, **features.settled},
        )

    def _files(self) -> list[Rows]:
        """The rows of the file; or of two, of which the first has the training records and the second the test records."""
        return [self._rows(self._open())]

    def _open(self) -> Columns:
        return open_columns(self.path, "dataset.path or data_dir", self.data_dir)

    def _rows(self, columns: Columns, test: bool | None = None) -> Rows:
        """Every row of a file.

        Args:
            test: all of them are for testing, or all for training; None: a column says, or a hash.
        """
        content, path = self._content(columns), columns.path
        n = len(content[0])
        if not n:
            raise DataError(f"{path}: no rows")
        labels = read_labels(columns, self.label, self._listed)
        units = None if self.unit is None else columns.ids(self.unit, "dataset.unit", self.id_as_text)
        public = None if self.public is None else columns.flags(self.public, "dataset.public")
        given = getattr(self, self.SPLIT)
        split = None if given is None else columns.flags(given, f"dataset.{self.SPLIT}")
        groups = {name: subgroups(columns, name) for name in self.subgroups}
        parts = {self.label: labels, str(self.unit): units, str(self.public): public, str(given): split}
        same_length(path, n, {**groups, **parts})
        if self.id is None:
            ids = default_ids(*content, labels, units, public, split, exact=self.exact)
        else:
            ids = columns.unique_ids(self.id, "dataset.id", self.id_as_text)
            same_length(path, n, {self.id: ids})
        facts = id_facts(self.id, ids, self.unit, units, self.public, self.id_permanent)
        if test is not None:
            split = np.full(n, test)
        else:
            if split is None:
                named = units if units is not None else ids if self.id is not None else None
                names = default_ids(*content, labels, public, numbered=False, exact=self.exact) if named is None else named
                split = hash_split(names, self.test_fraction, self.split_key)
            self._both_splits(split, path)
        return Rows(columns, content, labels, ids, units, public, split, facts, groups, np.zeros(n, dtype=bool))

    def _marked(self, rows: Rows, gone: Gone) -> Rows:
        """The same rows, of which some training records count as gone."""
        marked = ~rows.test & gone(rows.ids, rows.ids if rows.units is None else rows.units)
        if self.id is None and marked.any():
            check_last(self._alike(rows), marked)
        return replace(rows, gone=marked)

    def _alike(self, rows: Rows) -> np.ndarray:
        """[n] str, the same for copies."""
        split = rows.test if getattr(self, self.SPLIT) else None  # a copy in the other split is numbered apart
        others = (*rows.content[1:], rows.labels, rows.units, rows.public, split)
        return default_ids(rows.content[0], *others, numbered=False, exact=self.exact)

    def families(self, ids: np.ndarray) -> np.ndarray:
        """[n] str, the same for training records of these ids that are copies of each other (ids.py)."""
        if self.id is not None:
            return ids
        rows = self._files()[0]
        family = dict(zip(rows.ids.tolist(), self._alike(rows).tolist(), strict=True))
        return np.array([family[name] for name in ids.tolist()], dtype=str)

    def copies(self, name: str, count: int) -> np.ndarray:
        """[count] str: the ids that so many copies of one of its records have (named by content)."""
        rows = self._files()[0]
        split = rows.test if getattr(self, self.SPLIT) else None
        at = np.repeat(np.flatnonzero(rows.ids == name)[:1], count)
        parts = (*rows.content, rows.labels, rows.units, rows.public, split)
        repeated = [None if part is None else part[at] for part in parts]
        return default_ids(np.asarray(repeated[0]), *repeated[1:], exact=self.exact)

    def stated(self, settled: Mapping[str, Any]) -> Self:
        """The same data with the constants that its file told (``Dataset.settled``) written down among its settings."""
        return replace(self, classes=self.classes or tuple(settled["classes"]))

    @property
    def constants(self) -> Grounds:
        """Condition e: whether the constants that make the features are public."""
        return grounds(self._scaling_fact(), self._classes_fact())

    def _both_splits(self, test: np.ndarray, path: Path) -> None:
        """Raise DataError where every record is for training, or every one for testing."""
        for split, empty in (("train", test.all()), ("test", not test.any())):
            if empty:
                drawn = f": dataset.test_fraction={self.test_fraction:g} of {len(test)} records, drawn by hash; "
                remedy = f"{drawn}change dataset.test_fraction or dataset.split_key"
                raise DataError(f"{path}: the {split} split is empty{'' if getattr(self, self.SPLIT) else remedy}")

    def load_queries(self, path: Path) -> Records:
        """The same columns, scaled by the same constants; label and id are optional.

        A large file's features stay in the file (``Blocks``), and its rows are named by their numbers if no column does.

        Raises:
            DataError: a column is missing or of another shape, or a value is none; or the file brings other constants.
        """
        settled, path = self.settled or self._settle(), locate(path, self.data_dir, "inputs")
        if is_large(path):
            return self._streamed(path, settled)
        return self.read_queries(open_columns(path, "inputs", form=self._form))

    def read_queries(self, columns: Columns) -> Records:
        """The same of columns that are there (memory.py)."""
        settled, content = self.settled or self._settle(), self._content(columns)
        features = self._asked(columns, content, settled)
        labels, groups = self._told(columns, len(features), settled.classes)
        outside, id = self._misfit(content, settled), self.id or "id"
        return queries(columns, features, content, labels, id, self.id_as_text, outside, groups)

    def _told(self, columns: Columns, n: int, classes: Sequence[str]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """(labels, subgroups) of queries."""
        groups = {name: subgroups(columns, name) for name in self.subgroups if name in columns.names}
        return query_labels(columns, self.label, classes, n), groups

    def _streamed(self, path: Path, settled: Settled) -> Records:
        """Queries of a large file: one pass for what is known of them by name, and one for each who asks for features."""
        id, found, outside, totals = self.id or "id", list[tuple[Any, ...]](), list[Outside](), Counter[str]()
        state, rows = changed_of(path), 0
        for columns in open_blocks(path, self._form):
            content = self._content(columns)
            count, named, labelled = len(content[0]), id in columns.names, self.label in columns.names
            ids = columns.ids(id, "dataset.id", self.id_as_text) if named else np.empty(0, "U1")
            labels, groups = self._told(columns, count, settled.classes)
            same_length(path, count, {"label": labels, **({id: ids} if named else {})})
            found.append((ids, labels if labelled else labels[:0], *(groups[n] for n in self.subgroups if n in groups)))
            rows += count
            outside += self._misfit(content, settled)
            totals.update(self._counted(content))

        def unchanged() -> None:
            if changed_of(path) != state:
                raise DataError(f"{path}: changed while it was read: ask again")

        def read() -> Iterator[np.ndarray]:
            unchanged()
            try:
                for part in open_blocks(path, self._form):
                    yield self._asked(part, self._content(part), settled)
                    unchanged()
            except DataError:
                unchanged()  # what is read of another file may well look damaged
                raise

        if not rows:
            raise DataError(f"{path}: no rows: at least one query is needed")
        ids, labels, *rest = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
        ids = ids if named else as_array(Numbered(rows))
        labels = labels if labelled else np.broadcast_to(np.int64(UNLABELLED), rows)
        groups = dict(zip((name for name in self.subgroups if name in columns.names), rest, strict=True))
        features = as_array(Blocks(read, rows))
        return replace(records(features, labels, ids, groups=groups), outside=together(outside, totals))

    @property
    def _listed(self) -> tuple[str, ...] | None:
        """The public list of classes, as the data has them."""
        return None if self.classes is None else tuple(str(name) for name in self.classes)

    def _classes(self, files: Sequence[Rows]) -> tuple[str, ...]:
        found = [rows.labels[~rows.gone] for rows in files]
        return self._listed or class_names(np.concatenate(found), files[0].columns.path)

    def _classes_fact(self) -> Fact:
        """Condition e: whether the list of classes is public."""
        return classes_fact(None if self.classes is None else "dataset.classes")

    def _split_fact(self) -> Fact:
        """Condition b: the split."""
        given = getattr(self, self.SPLIT)
        by = None if given is None else f"column '{given}' (dataset.{self.SPLIT})"
        return split_fact(by, self.test_fraction, self.split_key)
