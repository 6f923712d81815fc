"""Labelled records that users bring, in files or in memory.

One path leads from a file to a dataset: read the columns, name the records, split them, make
features (each kind of file in its own way), index the classes, and list what all of that rests on.
Of arrays code sees numbers and not where they come from: what a condition needs to know about them
is said in ``Declared``, or is not held.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd

from agt.data.arrays import Blocks, as_array, row_numbers, row_words
from agt.data.cell_values import missing_word
from agt.data.coded import RowLookup
from agt.data.column_reader import ColumnReader
from agt.data.csv_format import CsvFormat, check_query_format
from agt.data.dataset import Dataset
from agt.data.erasure import IsErased, check_last, never
from agt.data.file_settings import FileConstants, LabelledFileSettings
from agt.data.files import changed_of, is_large, open_blocks, open_columns, same_length
from agt.data.formats import CellFormat
from agt.data.ids import (
    counts_rows,
    default_digests,
    default_ids,
    hash_split,
    ids_of_digests,
    most_frequent,
    number_copies,
)
from agt.data.meanings import (
    classes_fact,
    id_facts,
    label_free_facts,
    label_range_fact,
    split_fact,
)
from agt.data.population import Outside
from agt.data.records import UNLABELLED, Records, records
from agt.data.target import ClassTarget, NumericTarget, Target, check_numbers
from agt.errors import ConfigError, CsvFormatError, DataError, few, naming_settings, nearest
from agt.facts import Evidence, Fact, declared, evidence, not_held, proved
from agt.messages import ArgumentNames, Message
from agt.parameters import explaining_parameters
from agt.settings import MOST_ROWS, schema, validate
from agt.store.locations import locate

QUERY_SETTINGS = ArgumentNames(
    {
        "+dataset.csv.decimal=','": (
            "its numbers with decimal points, because queries are read as the training file is"
        )
    }
)
"""What messages about a file of queries say in the place of settings, which the run has fixed."""
MAX_FOUND = 100
"""How many classes may be found in the data; more of them must be listed."""
MAX_GROUPS = 50
REPEATED_SHARE = 0.2
"""If more than this share of rows repeat others, the owner is told that accuracy says little."""
MISSING = "(missing)"
_NOT_IN_IDS = re.compile("[\0\ud800-\udfff]")
RowContent = tuple[np.ndarray, ...]


# -- labels, and the queries that may have them
# ---------------------------------------------------------------------------


def read_labels(columns: ColumnReader, label: str, classes: Sequence[str] = ()) -> np.ndarray:
    """[n] object: the label of each row as text, none of them missing.

    Args:
        classes: that are listed, if any: none may be a word that stands for a missing value.

    Raises:
        DataError: naming the row.
    """
    words = columns.words(label, "dataset.label")
    columns.refuse_missing_words("dataset.classes", classes)
    missing = {word for word in set(words.tolist()) if missing_word(word)}
    bad = [word in missing for word in words.tolist()] if missing else []
    columns.refuse(
        label,
        "dataset.label",
        bad,
        words,
        "every record needs a label: fill it in, or remove the row (for a table, "
        "dataset.missing_label=drop leaves out every row without a label)",
    )
    return words


def class_names(words: np.ndarray, path: Path) -> tuple[str, ...]:
    """The distinct labels in increasing order, as numbers if all of them are.

    Raises:
        DataError: more than ``MAX_FOUND`` of them.
    """
    names = sorted(set(words.tolist()))
    if len(names) > MAX_FOUND:
        raise DataError(
            f"{path}: the label has {len(names)} different values, such as "
            f"{', '.join(names[:3])}. If these values are classes, list them in dataset.classes. "
            "If the label is a measured number, replace the numbers by ranges in the file"
        )
    try:
        return tuple(sorted(names, key=float))
    except ValueError:
        return tuple(names)


def class_indices(
    words: np.ndarray,
    classes: Sequence[Any],
    path: Path,
    row_of: Callable[[int], str] = row_words,
    optional: bool = False,
    extensible: bool = False,
) -> np.ndarray:
    """[n] int64 indices into ``classes``.

    Args:
        words: [n] labels as text, None where missing; or values of the kind that classes are.
        row_of: names a row in messages.
        optional: take a missing label as UNLABELLED (queries).
        extensible: the user declared the classes, and may declare another one.

    Raises:
        DataError: a label is missing or not among the classes.
    """
    index = {name: i for i, name in enumerate(classes)} | ({None: UNLABELLED} if optional else {})
    labels = words.tolist()
    indices = [*map(index.get, labels)]
    if None in indices:
        row = indices.index(None)
        word, known = labels[row], [*map(str, classes)]
        none = word is None or missing_word(str(word))
        label = "no label" if none else f"the label {word!r}{nearest(str(word), known)}"
        remedy = "correct the label, or remove the row"
        if extensible and not none:
            remedy += ", or add the class to {config:dataset.classes}"
        raise DataError(
            Message(
                "{path}: {row} has {label}, but the only classes are {known}: " + remedy,
                path=path,
                row=row_of(row),
                label=label,
                known=", ".join(known),
            )
        )
    return np.array(indices, dtype=np.int64)


def query_labels(
    columns: ColumnReader,
    label: str,
    classes: Sequence[str],
    n: int,
    missing: Sequence[str] = (),
) -> np.ndarray:
    """[n] int64 labels of queries: UNLABELLED where the column, or a value in it, is absent.

    Args:
        missing: text that stands for a missing label, beside what does so anyway.
    """
    if label not in columns.names:
        return np.broadcast_to(np.int64(UNLABELLED), n)
    words = columns.words(label, "dataset.label", missing)
    return class_indices(words, classes, columns.path, columns.row, optional=True)


def read_numbers(columns: ColumnReader, label: str, form: CellFormat | None = None) -> np.ndarray:
    """Return the numeric label of each row, [n] float64, none of them missing.

    Args:
        columns: the file.
        label: the column.
        form: how its text is declared to be written; None: as the file's text is.

    Raises:
        DataError: a label is missing, infinite or text; the message names the row.
    """
    numbers = columns.numbers(label, "dataset.label", form=form)
    columns.refuse(
        label,
        "dataset.label",
        ~np.isfinite(numbers),
        numbers,
        "every label must be a finite number, because dataset.target=numeric: remove the row, or "
        "correct the label",
    )
    return numbers


def query_numbers(
    columns: ColumnReader,
    label: str,
    target: NumericTarget,
    count: int,
    form: CellFormat | None = None,
    missing: Sequence[str] = (),
) -> np.ndarray:
    """Return the clipped numeric labels of queries, [n] float64; NaN where there is none.

    Args:
        columns: the file of the queries.
        label: the column, which may be absent.
        target: the range of the labels.
        count: how many queries there are.
        form: how the column's text is declared to be written; None: as the file's text is.
        missing: text that stands for a missing label, beside what does so anyway.
    """
    if label not in columns.names:
        return np.broadcast_to(np.float64(target.unlabelled), count)
    return target.clip(columns.numbers(label, "dataset.label", missing, form))


def queries(
    columns: ColumnReader,
    features: np.ndarray,
    content: RowContent,
    labels: np.ndarray,
    id: str | None = "id",
    id_as_text: bool = False,
    outside: tuple[Outside, ...] = (),
    groups: Mapping[str, np.ndarray] | None = None,
) -> Records:
    """Queries named by their id column where the file has it, otherwise by hashes of their raw
    ``content``.

    Args:
        id: that column; None: the file has none.
        outside: for the data owner, what does not fit the declarations.
        groups: column -> [n] subgroups.

    Raises:
        DataError: the file has no rows, or its ids are not usable.
    """
    if not len(features):
        raise DataError(f"{columns.path}: the file has no rows, but at least one query is needed")
    if id is None or id not in columns.names:
        id, ids = None, default_ids(*content)
    else:
        ids = columns.unique_ids(id, "dataset.id", id_as_text)
    same_length(columns.path, len(features), {"label": labels, str(id): ids})
    return records(features, labels, ids, groups=groups, outside=outside, id_column=id)


def _combined(parts: Iterable[Outside]) -> tuple[Outside, ...]:
    """What was found in each block of one file, added up; without columns all of whose values fit.

    What is seen is told of the block that has most of it.
    """
    columns: dict[str, list[Outside]] = {}
    for part in parts:
        columns.setdefault(part.column, []).append(part)
    combined = []
    for found in columns.values():
        count, total, far = (
            sum(getattr(part, key) for part in found) for key in ("count", "total", "far")
        )
        most = max(found, key=lambda part: part.count)
        others = ", among others" if sum(part.count > 0 for part in found) > 1 else ""
        if count or not total:
            combined.append(
                replace(most, count=count, total=total, far=far, seen=most.seen + others)
            )
    return tuple(combined)


# -- the kinds of files
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FileRows:
    """The rows of one file, their features not yet made.

    Attributes:
        columns: the file.
        content: arrays of n rows, the features as the file has them; what ids are hashed from if it
            names none.
        labels: [n] object, text; or float64, numbers that are not yet clipped.
        ids: [n] str, unique.
        units: [n] str, whose record each is; None: each record is a unit of its own.
        public: [n] bool; None: all are private.
        test: [n] bool, True for test records.
        facts: what the columns of ids, units and public flags are taken to mean.
        groups: column -> [n] the subgroup of each row, as text.
        erased: [n] bool, training records that count as not being there: no constant is taken from
            them.
        repeated: how many rows are equal to an earlier row, where equal rows are all training or
            all test rows because no column tells records apart; else 0.
    """

    columns: ColumnReader
    content: RowContent
    labels: np.ndarray
    ids: np.ndarray
    units: np.ndarray | None
    public: np.ndarray | None
    test: np.ndarray
    facts: tuple[Fact, ...]
    groups: Mapping[str, np.ndarray]
    erased: np.ndarray
    repeated: int = 0

    @property
    def train(self) -> np.ndarray:
        """[n] bool, True for training records that are there."""
        return ~self.test & ~self.erased

    def records(self, features: np.ndarray, target: Target) -> Records:
        """All of them, test and erased ones too; the latter, whose class may be erased as well,
        have the first class, or the middle of the range of numbers.
        """
        if target.numeric is not None:
            numbers = np.where(self.erased, target.numeric.middle, self.labels)
            labels = target.numeric.clip(numbers)
        else:
            words = np.where(self.erased, target.classes[0], self.labels)
            labels = class_indices(
                words, target.classes, self.columns.path, self.columns.row, extensible=True
            )
        return records(features, labels, self.ids, self.units, self.public, self.groups)


@dataclass(frozen=True)
class FileFeatures:
    """The features of each file, [n, ...] in the order of its rows, with what the record of a run
    says about them.

    Attributes:
        arrays: one for each file.
        scaling: the public constants that made them.
        settled: those of them that the file told and queries need (``FileConstants``).
        coding: how these features can be held as codes, whether they are or not; None: they cannot.
        notes: for the data owner alone.
    """

    arrays: Sequence[np.ndarray]
    scaling: Mapping[str, object]
    settled: Mapping[str, object] = field(default_factory=dict)
    coding: RowLookup | None = None
    notes: tuple[str, ...] = ()


@schema
class LabelledFile(LabelledFileSettings, ABC):
    """A file with one record a row, and what its columns mean."""

    exact: ClassVar[bool] = False
    """Hash content in the precision of each row (``agt.data.ids``): where a file has one
    for all of them.
    """

    # -- what a kind of file adds
    # --------------------------------------------------------------------------------------

    @abstractmethod
    def _content(self, columns: ColumnReader) -> RowContent:
        """The features as a file has them, checked as far as each row goes."""

    @abstractmethod
    def _features(self, files: Sequence[FileRows]) -> FileFeatures:
        """The features of every file; each record's from its own content and public constants."""

    @abstractmethod
    def _query_features(
        self, columns: ColumnReader, content: RowContent, constants: FileConstants
    ) -> np.ndarray:
        """The features of queries."""

    def _outside(self, content: RowContent, constants: FileConstants) -> list[Outside]:
        # How many values of each column of queries there are, and how many do not fit the
        # declarations.
        return []

    def _constants(self) -> FileConstants:
        # What ``Dataset.settled`` has, from the file itself where nothing else tells.
        return self.settled or validate(FileConstants, self.load().settled, "dataset.settled")

    @property
    def _label_format(self) -> CellFormat | None:
        """How labels that are numbers are declared to be written; None: as the file's text is."""
        return None

    @property
    def _missing_labels(self) -> tuple[str, ...]:
        """Text that stands for a missing label, beside what does so anyway."""
        return ()

    def _used_rows(self, columns: ColumnReader) -> ColumnReader:
        """Return the rows that become records. Whether a row does depends on that row alone."""
        return columns

    @property
    def _form(self) -> CsvFormat | None:
        # How a csv is cut into cells, where a kind of file has such a setting; None: as usual.
        return getattr(self, "csv", None)

    @abstractmethod
    def _selection(self, split: Fact, rows: FileRows) -> Evidence:
        """Condition b: the split, what names the rows, and whether each one's content was made
        from that record alone.
        """

    @abstractmethod
    def _scaling_fact(self) -> Fact:
        """Condition e: whether the constants that made the features are public."""

    # -- what all have in common
    # ---------------------------------------------------------------------------------------

    def load(self) -> Dataset:
        """Read, scale and split.

        Raises DataMissing or DataError naming the file, the column and the row.
        """
        return self.load_without(never)

    def load_without(self, is_erased: IsErased) -> Dataset:
        """As if the file did not have these training records: what it tells beside records is not
        read off them either.

        Raises:
            DataError: as ``load``; or an erased record has a copy that stays, and not the last
                number (erasure.py).
        """
        files = [self._marked(rows, is_erased) for rows in self._files()]
        target: Target
        notes: tuple[str, ...] = ()
        classes: tuple[str, ...] = ()
        if self._numbers is None:
            classes = self._classes(files)
            target = ClassTarget(classes)
        else:
            target = self._numbers
            notes = target.clipping_notes(files[0].labels[files[0].train])
        features = self._features(files)
        everyone = [rows.records(x, target) for x, rows in zip(features.arrays, files, strict=True)]
        return Dataset(
            name=self.name or self.path.stem,
            target=target,
            train=everyone[0].take(files[0].train),
            test=everyone[-1].take(files[-1].test),
            declared_size=self.declared_size,
            label_free=self.label_free,
            scaling=features.scaling,
            selection=self._selection(self._split_fact(), files[0]),
            preprocessing=self.constants,
            size=self._size_fact(),
            coding=features.coding,
            notes=(*features.notes, *notes, *self._notes_on_copies(files[0])),
            settled={"classes": classes, **features.settled},
        )

    def _notes_on_copies(self, rows: FileRows) -> list[str]:
        """Return a note for the owner if accuracy on the test rows says little about new records.

        Equal rows share a split, and their label is a part of their content. So if many rows are
        equal, the labels of a test row and of the training rows like it differ more often than
        those of two records that are drawn at random.
        """
        if rows.repeated <= REPEATED_SHARE * len(rows.ids):
            return []
        return [
            f"{rows.repeated:,} of {len(rows.ids):,} rows are equal to an earlier row. As no "
            "column tells records apart, equal rows are either all training rows or all test rows. "
            "So every accuracy on the test rows, of other models too, says LITTLE about new "
            "records, and the model may learn the wrong thing. Name the column that identifies a "
            f"record (dataset.id=...), or the one that marks test rows (dataset.{self.SPLIT}=...)."
        ]

    def _files(self) -> list[FileRows]:
        # The rows of the file; or of two, of which the first has the training records and the
        # second the test records.
        return [self._rows(self._open())]

    def _open(self) -> ColumnReader:
        return open_columns(self.path, "dataset.path or data_dir", self.data_dir, self._form)

    def _rows(self, columns: ColumnReader, test: bool | None = None) -> FileRows:
        """Every row of a file.

        Args:
            test: all of them are for testing, or all for training; None: a column says, or a hash.
        """
        columns = self._used_rows(columns)
        content, path, by = self._content(columns), columns.path, getattr(self, self.SPLIT)
        n = len(content[0])
        if not n:
            raise DataError(f"{path}: no rows")
        if self._numbers is None:
            labels = read_labels(columns, self.label, self._listed or ())
        else:
            labels = read_numbers(columns, self.label, self._label_format)
        units = (
            None if self.unit is None else columns.ids(self.unit, "dataset.unit", self.id_as_text)
        )
        public = None if self.public is None else columns.flags(self.public, "dataset.public")
        split = None if by is None else columns.flags(by, f"dataset.{self.SPLIT}")
        groups = {name: _subgroups(columns, name) for name in self.subgroups}
        parts = {
            self.label: labels,
            str(self.unit): units,
            str(self.public): public,
            str(by): split,
        }
        same_length(path, n, {**groups, **parts})
        tags = None if self.label_free else labels
        if self.id is None:
            digests = default_digests(*content, tags, units, public, split, exact=self.exact)
            family = ids_of_digests(digests)  # the same for copies
            ids = number_copies(family, digests)
        else:
            ids = columns.unique_ids(self.id, "dataset.id", self.id_as_text)
            same_length(path, n, {self.id: ids})
        given = any(names is not None for names in (self.id, units, public, split))
        facts = id_facts(self.id, ids, self.unit, units, self.public, self.id_permanent)
        facts += label_free_facts(self.label_free, given)
        repeated = 0
        if test is not None:
            split = np.full(n, test)
        else:
            if split is None:
                names = units if units is not None else ids if self.id is not None else None
                if names is None:
                    names = family  # copies share a split
                    repeated = int(np.count_nonzero(ids != family))
                split = hash_split(names, self.test_fraction, self.split_key)
            if split.all() or not split.any():
                missing = "training" if split.all() else "test"
                remedy = ""
                if by is None:
                    remedy = (
                        f". Hashes of the {n} ids decide which records are test records "
                        f"(dataset.test_fraction={self.test_fraction:g}): change "
                        "dataset.test_fraction or dataset.split_key"
                    )
                raise DataError(f"{path}: there are no {missing} records{remedy}")
        return FileRows(
            columns,
            content,
            labels,
            ids,
            units,
            public,
            split,
            facts,
            groups,
            np.zeros(n, dtype=bool),
            repeated,
        )

    def _marked(self, rows: FileRows, is_erased: IsErased) -> FileRows:
        marked = ~rows.test & is_erased(rows.ids, rows.ids if rows.units is None else rows.units)
        if self.id is None and marked.any():
            check_last(self._ids_of_copies(rows, slice(None), numbered=False), marked)
        return replace(rows, erased=marked)

    def _ids_of_copies(self, rows: FileRows, at: np.ndarray | slice, numbered: bool) -> np.ndarray:
        # The ids that a file of these rows would give; not numbered, copies have the same.
        # a copy in the other split is numbered apart
        split = rows.test if getattr(self, self.SPLIT) else None
        parts = (
            *rows.content[1:],
            None if self.label_free else rows.labels,
            rows.units,
            rows.public,
            split,
        )
        return default_ids(
            rows.content[0][at],
            *(None if part is None else part[at] for part in parts),
            numbered=numbered,
            exact=self.exact,
        )

    def families(self, ids: np.ndarray) -> np.ndarray:
        """[n] str, the same for training records of these ids that are copies of each other
        (erasure.py).
        """
        if self.id is not None:
            return ids
        rows = self._files()[0]
        alike = self._ids_of_copies(rows, slice(None), numbered=False)
        family = dict(zip(rows.ids.tolist(), alike.tolist(), strict=True))
        return np.array([family[name] for name in ids.tolist()], dtype=str)

    def copies(self, name: str, count: int) -> np.ndarray:
        """[count] str: the ids that so many copies of one of its records have (named by
        content).
        """
        rows = self._files()[0]
        return self._ids_of_copies(
            rows, np.repeat(np.flatnonzero(rows.ids == name)[:1], count), numbered=True
        )

    def stated(self, settled: Mapping[str, Any]) -> Self:
        """The same data with the constants that its file told (``Dataset.settled``) written down
        among its settings.
        """
        # Numbers have no classes, and their range is in the configuration.
        return replace(self, classes=self.classes or tuple(settled["classes"]) or None)

    @property
    def constants(self) -> Evidence:
        """Condition e: whether the constants that make the features are public."""
        return evidence(self._scaling_fact(), self._classes_fact())

    def load_queries(self, path: Path) -> Records:
        """The same columns, scaled by the same constants; label and id are optional.

        The dataset's id column names the queries; where the file has no such column, a column
        ``id`` does; where it has neither, the person's column, if no person has several queries.

        A large file's features stay in the file (``Blocks``), and its rows are named by their
        numbers if no column does.

        Raises:
            DataError: a column is missing or of another shape, or a value is none; or the file
                brings other constants.
        """
        constants, path = self._constants(), locate(path, self.data_dir, "inputs")
        try:
            with naming_settings(QUERY_SETTINGS):
                if is_large(path):
                    return self._streamed(path, constants)
                return self.read_queries(open_columns(path, "inputs", csv_format=self._form))
        except CsvFormatError:
            # Its message names settings of the training file, which commands about queries refuse.
            check_query_format(path, self._form or CsvFormat())
            raise

    def possible_record_ids(self, path: Path) -> list[np.ndarray]:
        """Return the ids that queries would have if they were records, where content makes ids.

        The label is a part of a record's content. Of a file without labels, each class is tried.

        Args:
            path: the file of queries.

        Returns:
            [n] str each, one array for each possible labelling. Nothing if ids or people are named
            by columns, if the file is large, or if labels are numbers that the file does not have.
        """
        path = locate(path, self.data_dir, "inputs")
        named = (self.id, self.unit, self.public, getattr(self, self.SPLIT))
        if is_large(path) or any(name is not None for name in named):
            return []
        columns = open_columns(path, "inputs", csv_format=self._form)
        content = self._content(columns)
        count = len(content[0])
        labellings: list[np.ndarray | None]
        if self.label_free:
            labellings = [None]
        elif self._numbers is not None:
            if self.label not in columns.names:
                return []
            labellings = [columns.numbers(self.label, "dataset.label", form=self._label_format)]
        elif self.label in columns.names:
            labellings = [columns.words(self.label, "dataset.label")]
        else:
            labellings = [np.full(count, name, dtype=object) for name in self._listed or ()]
        return [
            default_ids(*content, labels, numbered=False, exact=self.exact) for labels in labellings
        ]

    def read_queries(self, columns: ColumnReader) -> Records:
        """As ``load_queries``, of columns that are there (sent_records.columns_of)."""
        constants, content = self._constants(), self._content(columns)
        features = self._query_features(columns, content, constants)
        labels = self._query_labels(columns, constants, len(features))
        outside, groups = _combined(self._outside(content, constants)), self._query_groups(columns)
        id = self._query_id(columns.names)
        if id is None and self._people_of_queries(columns) is not None:
            id = self.unit
        return queries(columns, features, content, labels, id, self.id_as_text, outside, groups)

    def _query_id(self, names: Sequence[str]) -> str | None:
        # The column that names queries: the dataset's own, else ``id``, unless people are named by
        # it; None: none.
        if self.id in names:
            return self.id
        return "id" if "id" in names and (self.id is None or self.unit != "id") else None

    def _people_of_queries(self, columns: ColumnReader) -> np.ndarray | None:
        """Return the person of each query, [n] str, where that tells queries apart.

        Returns:
            None: the file does not name people, or a person has several queries or no name.
        """
        if self.unit is None or self.unit not in columns.names:
            return None
        with suppress(DataError):
            return columns.unique_ids(self.unit, "dataset.unit", self.id_as_text)
        return None

    def _query_groups(self, columns: ColumnReader) -> dict[str, np.ndarray]:
        return {name: _subgroups(columns, name) for name in self.subgroups if name in columns.names}

    def _streamed(self, path: Path, constants: FileConstants) -> Records:
        # Queries of a large file: one pass for what is known of them by name, and one for each who
        # asks for features.
        state, labels, outside, id = changed_of(path), list[np.ndarray](), list[Outside](), None
        found: list[dict[str, np.ndarray]] = []
        people: list[np.ndarray | None] = []
        for columns in open_blocks(path, self._form):
            content, known = self._content(columns), self._query_groups(columns)
            id = self._query_id(columns.names)
            if id is None:
                people.append(self._people_of_queries(columns))
            labels.append(self._query_labels(columns, constants, len(content[0])))
            if id is not None:
                known[id] = columns.ids(id, "dataset.id", self.id_as_text)
            same_length(path, len(content[0]), {self.label: labels[-1], **known})
            found.append(known)
            outside += self._outside(content, constants)
        rows = sum(map(len, labels))
        if not rows:
            raise DataError(f"{path}: the file has no rows, but at least one query is needed")
        whole = {name: np.concatenate([known[name] for known in found]) for name in found[0]}
        names = row_numbers(rows) if id is None else whole[id]
        named = [block for block in people if block is not None]
        if id is None and len(named) == len(found):
            everybody = np.concatenate(named)
            if most_frequent(everybody) is None:
                names = everybody
                id = self.unit
        return records(
            as_array(Blocks(lambda: self._feature_blocks(path, state, constants), rows)),
            np.concatenate(labels),
            names,
            groups={name: whole[name] for name in self.subgroups if name in whole},
            outside=_combined(outside),
            id_column=id,
        )

    def _feature_blocks(
        self, path: Path, state: object, constants: FileConstants
    ) -> Iterator[np.ndarray]:
        def check_unchanged() -> None:
            if changed_of(path) != state:
                raise DataError(
                    f"{path}: the file changed while agt was reading it: type the command again"
                )

        check_unchanged()
        try:
            for part in open_blocks(path, self._form):
                yield self._query_features(part, self._content(part), constants)
                check_unchanged()
        except DataError:
            check_unchanged()  # what is read of another file may well look damaged
            raise

    @property
    def _numbers(self) -> NumericTarget | None:
        """The target with the declared range if labels are numbers; None: they are classes."""
        return None if self.range is None else NumericTarget(*self.range)

    def _query_labels(
        self, columns: ColumnReader, constants: FileConstants, count: int
    ) -> np.ndarray:
        """Return the labels of queries, [n], as the records of a dataset have them."""
        if self._numbers is not None:
            return query_numbers(
                columns,
                self.label,
                self._numbers,
                count,
                self._label_format,
                self._missing_labels,
            )
        return query_labels(columns, self.label, constants.classes, count, self._missing_labels)

    @property
    def _listed(self) -> tuple[str, ...] | None:
        return None if self.classes is None else tuple(str(name) for name in self.classes)

    def _classes(self, files: Sequence[FileRows]) -> tuple[str, ...]:
        if self._listed:
            return self._listed
        trained = {*files[0].labels[files[0].train].tolist()}
        if len(trained) == 1:
            raise DataError(
                f"{files[0].columns.path}: every training record has the class "
                f"{trained.pop()!r}, but two classes are needed: list all public classes in "
                "dataset.classes, including those that do not occur in the file"
            )
        return class_names(
            np.concatenate([rows.labels[~rows.erased] for rows in files]), files[0].columns.path
        )

    def _size_fact(self) -> Fact | None:
        # Condition c, where more is known of the size than that somebody declares it.
        return None

    def _classes_fact(self) -> Fact:
        if self._numbers is not None:
            return label_range_fact(self._numbers.low, self._numbers.high, "dataset.range")
        return classes_fact(self.classes is not None)

    def _split_fact(self) -> Fact:
        given = getattr(self, self.SPLIT)
        if given is not None:
            return declared("split_by_column", column=given, setting=f"dataset.{self.SPLIT}")
        return split_fact(self.test_fraction, self.split_key)


def _subgroups(columns: ColumnReader, name: str) -> np.ndarray:
    words = columns.words(name, "dataset.subgroups")
    found = {word: MISSING if missing_word(word) else word for word in set(words.tolist())}
    if len(found) > MAX_GROUPS:
        raise DataError(
            f"{columns.path}: dataset.subgroups: column '{name}' has {len(found)} different "
            f"values, more than {MAX_GROUPS}: name a column with fewer values, for example one "
            "with ranges of these values"
        )
    return np.array([found[word] for word in words], dtype=object)


# -- arrays in memory: what programs and notebooks train on (agt/api.py)
# ---------------------------------------------------


@explaining_parameters
@dataclass(frozen=True, kw_only=True)
class Declared:
    """What whoever trains says about data and settings, and no code can check. Claims list each
    with what would break it.

    Attributes:
        classes: the public list of label values, in the order of the classes; None: the sorted
            values found (condition e is then not held).
        size: a public constant, about how many training records there are; None: counted (condition
            c is then not held).
        features: each row was made from its own record alone, by public constants. Not so after a
            scaler, an imputer or components that were fitted on these records.
        settings: every setting was chosen on public data, or is a constant that somebody else
            published. It covers whatever settings are given, those that differ from the defaults
            as well, and nothing checks it.
        ids: the ``ids`` and ``units`` given are the records' and the people's own, whatever becomes
            of other records.
        public: all of these records are public, such as those that settings are searched on:
            nothing that is released about them has to be counted. Claims are as of other records.

    Raises:
        ConfigError: a size out of range, or a declaration that is neither True nor False.
    """

    classes: Sequence[object] | None = None
    size: int | None = None
    features: bool = False
    settings: bool = False
    ids: bool = False
    public: bool = False

    def __post_init__(self) -> None:
        if self.size is not None and not (type(self.size) is int and 1 <= self.size <= MOST_ROWS):
            raise ConfigError(
                f"declared.size={self.size!r}: give a whole number from 1 to {MOST_ROWS}"
            )
        if self.classes is not None and (
            isinstance(self.classes, str) or not isinstance(self.classes, Iterable)
        ):
            raise ConfigError(f"declared.classes={self.classes!r}: give the list of label values")
        for name in ("features", "settings", "ids", "public"):
            if type(getattr(self, name)) is not bool:
                raise ConfigError(f"declared.{name}={getattr(self, name)!r}: give True or False")


def dataset_of(
    x: np.ndarray,
    y: np.ndarray,
    declarations: Declared,
    ids: np.ndarray | None = None,
    units: np.ndarray | None = None,
    public: np.ndarray | None = None,
    label_free: bool = False,
    coding: tuple[Fact, ...] = (),
    numbers: NumericTarget | None = None,
) -> tuple[Dataset, np.ndarray]:
    """A dataset without a test split, and the values of its classes.

    Args:
        x: [n, ...] numbers.
        y: [n] class labels.
        ids: [n] unique names; None: hashes of the content.
        units: [n] whose record each is; None: each its own.
        public: [n] bool, True where a record is public; None: all are private.
        label_free: make ids without labels.
        coding: how a table's columns became x, for conditions b and e; none: by means that only
            ``declarations`` tell.
        numbers: the range of labels that are numbers; None: they are classes.

    Returns:
        The dataset; and [C] the values of its classes, none if labels are numbers.

    Raises:
        DataError: lengths or dtypes that do not fit, a missing or unlisted label, a NaN; names the
            row.
    """
    mapped, x = isinstance(x, np.memmap), features_of(x)
    # what its owner edits later is trained on by no ``unfit``
    x, y = x if mapped else x.copy(), _values_of("y", y, len(x))
    target: Target
    notes: tuple[str, ...] = ()
    if numbers is None:
        classes = _values_of_classes(y, declarations.classes)
        target = ClassTarget(tuple(str(value) for value in classes.tolist()))
        labels = class_indices(y, classes.tolist(), Path("y"), "row {}".format, extensible=True)
        labels_fact = _given_classes_fact(declarations.classes is not None)
    else:
        classes = np.empty(0)
        target = numbers
        given_labels = check_numbers(y, "y")
        notes = numbers.clipping_notes(given_labels)
        labels = numbers.clip(given_labels)
        labels_fact = label_range_fact(numbers.low, numbers.high, "range")
    units = None if units is None else names_of("units", units, len(x))
    public = None if public is None else _values_of("public", public, len(x))
    if public is not None and public.dtype != bool:
        raise DataError(
            "public= must be True or False for each record, but has values of the type "
            f"{public.dtype}"
        )
    tags = None if label_free else labels
    named = (
        default_ids(x, tags, units, public, exact=True)
        if ids is None
        else names_of("ids", ids, len(x))
    )
    everyone = records(x, labels, named, units, public)
    named_by = {"ids": None if ids is None else named, "units": units}
    facts = [
        _ids_fact(name, values, declarations.ids)
        for name, values in named_by.items()
        if values is not None
    ]
    if ids is None:
        facts.insert(0, proved("ids_by_content"))
    given = len(facts) > (ids is None) or public is not None
    if public is not None:
        facts.append(declared("marked_public"))
    made = coding[0] if coding else _features_fact(declarations.features)
    dataset = Dataset(
        name="arrays",
        target=target,
        train=everyone,
        test=everyone.take(np.empty(0, dtype=np.int64)),
        declared_size=declarations.size,
        scaling={},
        selection=evidence(*facts, *label_free_facts(label_free, given), made),
        label_free=label_free,
        preprocessing=evidence(*coding[1:], labels_fact),
        size=_given_size_fact(declarations.size),
        tested=False,
        notes=notes,
    )
    return dataset, classes


def query_records(x: object) -> Records:
    """Unlabelled queries.

    Raises:
        DataError: no numbers, or a NaN.
    """
    features = features_of(x)
    labels = np.full(len(features), UNLABELLED, dtype=np.int64)
    return records(features, labels, np.arange(len(features)).astype(str))


def in_order_of(names: Sequence[str], frame: pd.DataFrame) -> pd.DataFrame:
    """The same columns in the order of ``names``; as they are where there are no names.

    Raises:
        DataError: a column is missing, unknown, or there twice.
    """
    if not names:
        return frame
    given = [*map(str, frame.columns)]
    if sorted(given) != sorted({*names}):
        different = few(sorted({*given} ^ {*names}) or given)
        raise DataError(
            f"data frame: give each column that the model was trained on ({few(names)}) exactly "
            f"once, and no other column (missing, repeated or unknown: {different})"
        )
    return frame.iloc[:, [given.index(name) for name in names]]


def features_of(x: object) -> np.ndarray:
    """[n, ...] float32 or float64; whole numbers and flags become float64, in which every one below
    2^53 is exact.

    Raises:
        DataError: no array of numbers with one row for each record; or a table of Arrow or polars,
            whose columns have names that an array would lose.
    """
    if hasattr(x, "to_pandas"):
        raise DataError(
            f"features: a {type(x).__name__} is not accepted, because agt would lose its column "
            "names and could not notice columns in another order: give a pandas data frame, "
            "x.to_pandas()"
        )
    if np.ma.is_masked(x):
        raise DataError(
            "features: the array has masked values, which are missing values: fill them in, "
            "or remove their records"
        )
    try:
        features = np.asarray(x)
    except (ValueError, TypeError, RuntimeError) as error:
        raise DataError(
            f"features: the given object cannot be converted to an array of numbers ({error})"
        ) from None
    if features.dtype.kind not in "fiub" or features.ndim < 2:
        raise DataError(
            f"features: expected numbers with one row for each record, got type {features.dtype} "
            f"and shape {features.shape}. For a single record, give x[None]; for a table with "
            "words, give columns=agt.Columns(...)"
        )
    if features.dtype in (np.float32, np.float64):
        return features
    with np.errstate(over="ignore"):
        return features.astype(np.float64)


def _values_of(name: str, values: object, n: int) -> np.ndarray:
    """One value for each record, none of them missing.

    Raises:
        DataError: another number of values, or a missing one (counted from 0, as arrays are).
    """
    try:
        column = np.array(values)  # what its owner edits later changes no record
        # "nan" is a text
        given = column if isinstance(values, np.ndarray) else np.asarray(values, dtype=object)
        missing = (
            np.flatnonzero(pd.isna(given)).tolist() if column.shape == given.shape == (n,) else []
        )
    except (ValueError, TypeError, RuntimeError) as error:
        raise DataError(
            f"{name}: the given object cannot be converted to one value for each record ({error}): "
            "give a one-dimensional array or list"
        ) from None
    if column.shape != (n,):
        raise DataError(
            f"{name} has the shape {column.shape}, but there are {n} records: expected ({n},)"
        )
    if len(missing):
        raise DataError(f"{name}: row {missing[0]} has no value, but every record needs one")
    if column.dtype == object and not all(
        isinstance(value, str | int | float) for value in column.tolist()
    ):
        raise DataError(f"{name} must contain numbers or text, but contains values of another type")
    return column


def _values_of_classes(y: np.ndarray, listed: Sequence[object] | None) -> np.ndarray:
    # The label values in the order of the classes.
    if listed is not None:
        classes = np.asarray(list(listed))
        if classes.ndim != 1 or len(set(classes.tolist())) != len(classes) or len(classes) < 2:
            raise DataError(
                f"declared.classes: at least two distinct values are needed, got {list(listed)!r}"
            )
        return classes
    try:
        classes = np.unique(y)
    except TypeError:
        raise DataError(
            "y: the labels cannot be sorted, because they are of different types: list the "
            "classes in declared.classes"
        ) from None
    if len(classes) > MAX_FOUND:
        raise DataError(
            f"y: there are {len(classes)} different labels: if y is a measured number, replace "
            "the numbers by ranges first; if the labels are classes, list them in "
            "declared.classes"
        )
    return classes


def names_of(name: str, values: object, n: int) -> np.ndarray:
    """[n] str: ids of records or people, as ``fit`` is given them and as ``unfit`` is asked for
    them.

    Args:
        name: of the argument, for messages.

    Raises:
        DataError: another number of values; or one that is missing, is neither a whole number nor
            text, or is text that no file can hold (half a surrogate pair) or that NumPy cuts short
            (a NUL).
    """
    _values_of(name, values, n)
    for row, value in enumerate(np.asarray(values, dtype=object).tolist()):
        known = isinstance(value, str | int | np.integer) and not isinstance(value, bool)
        if not known or _NOT_IN_IDS.search(str(value)):
            raise DataError(
                f"{name}: row {row} has {value!r}, but needs a whole number or text (in the same "
                "form in all rows, without NUL and surrogate characters)"
            )
    return np.array([str(value) for value in np.asarray(values).tolist()])


def _ids_fact(name: str, values: np.ndarray, permanent: bool) -> Fact:
    if permanent:
        return declared("names_for_good", names=name, setting="declared.ids=True")
    code = "names_count_rows" if counts_rows(values) else "names_may_be_places"
    return not_held(code, names=name, setting="declared.ids=True")


def _features_fact(said: bool) -> Fact:
    if said:
        return declared("rows_made_alone", setting="declared.features=True")
    return not_held("features_undeclared", setting="declared.features=True")


def _given_size_fact(size: float | None) -> Fact | None:
    return None if size is None else declared("size_public", size=size, setting="declared.size")


def _given_classes_fact(listed: bool) -> Fact:
    if listed:
        return declared("classes_public", setting="declared.classes")
    return not_held("classes_found_in_y", setting="declared.classes")
