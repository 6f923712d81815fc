"""Files of labelled records that users bring.

One path leads from a file to a dataset: read the columns, name the records, split them, make
features (each kind of file in its own way), index the classes, and list the facts that all of this
depends on.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from agt.data.arrays import Blocks, as_array, row_numbers, row_words
from agt.data.cell_values import missing_word
from agt.data.coded import RowLookup
from agt.data.column_reader import ColumnReader
from agt.data.csv_format import CsvFormat, check_query_format
from agt.data.dataset import Dataset
from agt.data.erasure import IsErased, check_last_copies_erased, erase_none
from agt.data.file_settings import FileConstants, LabelledFileSettings
from agt.data.files import changed_of, is_large, open_blocks, open_columns, same_length
from agt.data.formats import CellFormat
from agt.data.header import no_queries
from agt.data.ids import (
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
from agt.data.target import ClassTarget, NumericTarget, Target
from agt.errors import CsvFormatError, DataError, naming_settings, nearest
from agt.facts import Evidence, Fact, declared, evidence
from agt.messages import ArgumentNames, Message
from agt.settings import schema, validate
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


class FileRole(Enum):
    """Which records of a file are test records."""

    TRAINING = auto()
    """No row is a test record, because there is another file of test records."""
    TEST = auto()
    """Every row is a test record."""
    SPLIT = auto()
    """Those that a column or the hashes of ids say."""


RowContent = tuple[np.ndarray, ...]


def read_labels(columns: ColumnReader, label: str, classes: Sequence[str] = ()) -> np.ndarray:
    """Return the label of each row as text, [n] object, none of them missing.

    Args:
        columns: the file.
        label: the column.
        classes: the listed classes, if any; in a csv none may be text that means a missing value.

    Raises:
        DataError: a label is missing, which the message names by its row; or the column or a class
            cannot be used.
    """
    words = columns.words(label, "dataset.label")
    columns.refuse_missing_words("dataset.classes", classes)
    missing_words = {word for word in set(words.tolist()) if missing_word(word)}
    is_missing = [word in missing_words for word in words.tolist()] if missing_words else []
    columns.refuse(
        label,
        "dataset.label",
        is_missing,
        words,
        "every record needs a label: fill it in, or remove the row (for a table, "
        "dataset.missing_label=drop leaves out every row without a label)",
    )
    return words


def class_names(words: np.ndarray, path: Path) -> tuple[str, ...]:
    """Return the distinct labels, sorted as numbers if all of them are numbers, else as text.

    Args:
        words: [n] labels as text.
        path: the file, for the message.

    Raises:
        DataError: there are more than ``MAX_FOUND`` distinct labels.
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
    """Return the index in ``classes`` of each label, [n] int64.

    Args:
        words: [n] labels of the same type as ``classes``; None where missing.
        classes: the label values, in their order.
        path: the file, for the message.
        row_of: a function from the index of a row to its name in messages.
        optional: whether a label may be missing, as those of queries may; it is then UNLABELLED.
        extensible: whether the message proposes to add the label to the declared classes.

    Raises:
        DataError: a label is missing or not among the classes.
    """
    index_of: dict[Any, int] = {name: index for index, name in enumerate(classes)}
    if optional:
        index_of[None] = UNLABELLED
    labels = words.tolist()
    indices = [*map(index_of.get, labels)]
    if None in indices:
        row = indices.index(None)
        raise _unknown_label(labels[row], row_of(row), classes, path, extensible)
    return np.array(indices, dtype=np.int64)


def _unknown_label(
    label: Any, row: str, classes: Sequence[Any], path: Path, extensible: bool
) -> DataError:
    """Return the error that says that a label is missing, or not among the classes.

    Args:
        label: the label; None: the label is missing.
        row: the name of the row in the message.
        classes: the label values.
        path: the file.
        extensible: True: the message also advises to add the label to the classes.
    """
    known = [*map(str, classes)]
    remedy = "correct the label, or remove the row"
    if label is None or missing_word(str(label)):
        label_in_words = "no label"
    elif str(label) in known:
        types = ("text", "numbers", "int")
        if not isinstance(label, str):
            types = ("a number", "text", "str")
        kind, kind_of_classes, conversion = types
        label_in_words = f"the label {label!r}, which is {kind}"
        remedy = (
            f"the classes are {kind_of_classes}, so convert the labels (in NumPy and pandas, "
            f"y.astype({conversion}))"
        )
    else:
        label_in_words = f"the label {label!r}{nearest(str(label), known)}"
        if extensible:
            remedy += ", or add the class to {config:dataset.classes}"
    return DataError(
        Message(
            "{path}: {row} has {label}, but the only classes are {known}: " + remedy,
            path=path,
            row=row,
            label=label_in_words,
            known=", ".join(known),
        )
    )


def query_labels(
    columns: ColumnReader,
    label: str,
    classes: Sequence[str],
    n: int,
    missing: Sequence[str] = (),
) -> np.ndarray:
    """Return the class index of each query, [n] int64, UNLABELLED where it has no label.

    Args:
        columns: the file of the queries.
        label: the column, which may be absent.
        classes: the label values, in their order.
        n: the number of queries.
        missing: text that means that a label is missing, in addition to the usual markers.

    Raises:
        DataError: a label is not among the classes.
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
        form: the declared format of its text; None: the format of the whole file.

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
    form: CellFormat | None,
    missing: Sequence[str],
) -> np.ndarray:
    """Return the clipped numeric labels of queries, [n] float64; NaN where there is none.

    Args:
        columns: the file of the queries.
        label: the column, which may be absent.
        target: the range of the labels.
        count: the number of queries.
        form: the declared format of the column's text; None: the format of the whole file.
        missing: text that means that a label is missing, in addition to the usual texts.
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
    """Return queries, named by an id column or by hashes of their raw content.

    Args:
        columns: the file of the queries.
        features: [n, ...] their features.
        content: arrays of n rows that ids are hashed from if the file has no id column.
        labels: [n] class indices or numbers, as ``Records.labels``.
        id: the id column; None, or a column that the file does not have: ids are hashes.
        id_as_text: whether ids that mix numbers and text are taken as text.
        outside: the values, to be shown to the data owner only, that do not fit the declarations.
        groups: column -> [n] the subgroup of each query.

    Raises:
        DataError: the file has no rows, or its ids are not usable.
    """
    if not len(features):
        raise no_queries(columns.path)
    if id is None or id not in columns.names:
        id = None
        ids = default_ids(*content)
    else:
        ids = columns.unique_ids(id, "dataset.id", id_as_text)
    same_length(columns.path, len(features), {"label": labels, str(id): ids})
    return records(features, labels, ids, groups=groups, outside=outside, id_column=id)


def _sum_over_blocks(parts: Iterable[Outside]) -> tuple[Outside, ...]:
    """Return the values outside of the declarations for a whole file, from those of its blocks.

    The counts of a column are added. The values that are named are those of the block that has
    most of them.

    Args:
        parts: one for each column and block.

    Returns:
        One for each column, without columns all of whose values fit.
    """
    blocks_of_column: dict[str, list[Outside]] = {}
    for part in parts:
        blocks_of_column.setdefault(part.column, []).append(part)
    sums = []
    for blocks in blocks_of_column.values():
        count = sum(block.count for block in blocks)
        total = sum(block.total for block in blocks)
        far = sum(block.far for block in blocks)
        if total and not count:
            continue
        largest = max(blocks, key=lambda block: block.count)
        seen = largest.seen
        if sum(block.count > 0 for block in blocks) > 1:
            seen += ", among others"
        sums.append(replace(largest, count=count, total=total, far=far, seen=seen))
    return tuple(sums)


@dataclass(frozen=True)
class _RowCells:
    """The columns of a file that are not features or ids; None: the settings name no such column.

    Attributes:
        labels: [n] object, text; or float64, numbers.
        units: [n] str, the unit (person) of each row.
        public: [n] bool, whether each row is declared public.
        is_test: [n] bool, whether each row is a test record.
        groups: column -> [n] the subgroup of each row, as text.
    """

    labels: np.ndarray
    units: np.ndarray | None
    public: np.ndarray | None
    is_test: np.ndarray | None
    groups: Mapping[str, np.ndarray]


@dataclass(frozen=True)
class FileRows(_RowCells):
    """The rows of one file, their features not yet made.

    Attributes:
        columns: the file.
        content: arrays of n rows, the features as the file has them.
        digests: [n, DIGEST_BYTES] uint8, hashes of the content of each row, which only equal rows
            share and of which ids are made; None: a column has the ids.
        ids: [n] str, unique.
        test: [n] bool, True for test records.
        facts: the declared meanings of the columns of ids, units and public flags.
        erased: [n] bool, True for training records that are left out: no constant is computed from
            them either.
        repeated: the number of rows that are equal to an earlier row, where equal rows are all
            training or all test rows because no column distinguishes records; else 0.
    """

    columns: ColumnReader
    content: RowContent
    digests: np.ndarray | None
    ids: np.ndarray
    test: np.ndarray
    facts: tuple[Fact, ...]
    erased: np.ndarray
    repeated: int = 0

    @property
    def copy_groups(self) -> np.ndarray:
        """For each row an id that only equal rows share, [n] str; the ids if a column has them."""
        return self.ids if self.digests is None else ids_of_digests(self.digests)

    @property
    def train(self) -> np.ndarray:
        """[n] bool, True for training records that are not erased."""
        return ~self.test & ~self.erased

    def records(self, features: np.ndarray, target: Target) -> Records:
        """Return the records of all rows, also of test rows and erased rows.

        An erased row gets the first class, or the middle of the range of numbers, as its label,
        because its own class may not be among the classes any more.

        Args:
            features: [n, ...], the features of all rows.
            target: the classes, or the range of numbers.

        Raises:
            DataError: a label is not among the classes.
        """
        if target.numeric is not None:
            numbers = np.where(self.erased, target.numeric.middle, self.labels)
            labels = target.numeric.clip(numbers)
        else:
            words = np.where(self.erased, target.classes[0], self.labels)
            labels = class_indices(
                words, target.classes, self.columns.path, self.columns.row, extensible=True
            )
        return records(
            features, labels, self.ids, units=self.units, public=self.public, groups=self.groups
        )


@dataclass(frozen=True)
class FileFeatures:
    """The features of one or two files, and the constants that made them.

    Attributes:
        arrays: the arrays of each file, [n, ...] in the order of its rows.
        scaling: the public constants that made them, for the record of a run.
        settled: the constants that were read off the file and that queries need
            (``FileConstants``).
        coding: the rule by which these features can be held as codes, whether they are or not;
            None: they cannot be held so.
        notes: sentences that are shown to the data owner only.
    """

    arrays: Sequence[np.ndarray]
    scaling: Mapping[str, object]
    settled: Mapping[str, object] = field(default_factory=dict)
    coding: RowLookup | None = None
    notes: tuple[str, ...] = ()


@schema
class LabelledFile(LabelledFileSettings, ABC):
    """A file with one record in each row, and the meaning of its columns."""

    exact: ClassVar[bool] = False
    """Whether ids hash each row in its own precision (``agt.data.ids``), for files that have
    one precision for all rows, which may depend on private records.
    """

    # -- what a subclass for one kind of file adds

    @abstractmethod
    def _content(self, columns: ColumnReader) -> RowContent:
        """Read and check the features as the file has them, before they are scaled or coded.

        Returns:
            One or more arrays, each with a row for every row of the file.

        Raises:
            DataError: a value of a row cannot be used. The message names the row.
        """

    @abstractmethod
    def _features(self, files: Sequence[FileRows]) -> FileFeatures:
        """Return the features of the training file, and of the test file if there is one.

        The features of a row are a function of its own content and of constants.
        """

    @abstractmethod
    def _query_features(
        self, columns: ColumnReader, content: RowContent, constants: FileConstants
    ) -> np.ndarray:
        """Return the features of queries, [n, ...], made by the rules for training records.

        Args:
            columns: the file of the queries, for messages.
            content: the queries' features as the file has them, which ``_content`` returned.
            constants: the constants that were read off the training file, such as ranges.
        """

    def _outside(
        self, columns: ColumnReader, content: RowContent, constants: FileConstants
    ) -> list[Outside]:
        """Count the values in each column of queries that do not fit the declared constants.

        The default returns no counts, for files whose columns have no declared values.

        Args:
            columns: the file of the queries.
            content: the queries' features as the file has them, which ``_content`` returned.
            constants: the constants that were read off the training file, such as ranges.
        """
        return []

    def _constants(self) -> FileConstants:
        """Return the constants that queries need, from the settings, or else from the file."""
        return self.settled or validate(FileConstants, self.load().settled, "dataset.settled")

    @property
    def _label_format(self) -> CellFormat | None:
        """The declared format of numeric labels; None, the default: that of the file."""
        return None

    @property
    def _missing_labels(self) -> tuple[str, ...]:
        """Text that stands for a missing label, beside the usual markers; none by default."""
        return ()

    def _used_rows(self, columns: ColumnReader) -> ColumnReader:
        """Return a reader of the rows that become records; by default of all rows.

        Whether a row becomes a record must depend on that row alone.
        """
        return columns

    @property
    def _csv_format(self) -> CsvFormat | None:
        """The format of a csv; None: this kind of file has no such setting."""
        return getattr(self, "csv", None)

    @abstractmethod
    def _selection(self, split: Fact, rows: FileRows) -> Evidence:
        """Return the evidence for condition b: each record is processed by itself (docs/method.md).

        Its facts say how the split was made, how rows got their ids, and whether each row was made
        from its own record alone.

        Args:
            split: the fact that says how the split was made.
            rows: the rows of the training file, with the facts about their ids.
        """

    @abstractmethod
    def _scaling_fact(self) -> Fact:
        """Return the fact whether the constants that scale features are public.

        Condition e of a privacy guarantee (preprocessing and settings are public) needs it.
        """

    # -- what all kinds of files have in common

    def load(self) -> Dataset:
        """Read the file, make features, and split the records.

        Raises:
            DataMissing: the file is not there.
            DataError: the file cannot be used; the message names the file, the column and the row.
        """
        return self.load_without(erase_none)

    def load_without(self, is_erased: IsErased) -> Dataset:
        """Load the dataset that the file without some of its training records would give.

        Constants are not computed from the erased records either.

        Args:
            is_erased: the function that returns whether records are erased, by their ids and units.

        Raises:
            DataMissing: the file is not there.
            DataError: the file cannot be used; or an erased record has a copy that is not erased
                and comes later in the file (erasure.py).
        """
        files = [self._mark_erased(rows, is_erased) for rows in self._files()]
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
        arrays = zip(files, features.arrays, strict=True)
        records_of_files = [rows.records(array, target) for rows, array in arrays]
        training_file = files[0]
        test_file = files[-1]  # the same, unless there is a second file
        return Dataset(
            name=self.name or self.path.stem,
            target=target,
            train=records_of_files[0].take(training_file.train),
            test=records_of_files[-1].take(test_file.test),
            declared_size=self.declared_size,
            label_free=self.label_free,
            scaling=features.scaling,
            selection=self._selection(self._split_fact(), training_file),
            preprocessing=self.constants,
            size=self._size_fact(),
            coding=features.coding,
            notes=(*features.notes, *notes, *self._notes_on_copies(training_file)),
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
            f"{rows.repeated:,} of {len(rows.ids):,} rows are equal to an earlier row in all "
            "columns that are used. As no column tells records apart, equal rows are either all "
            "training rows or all test rows. "
            "So every accuracy on the test rows, of other models too, says LITTLE about new "
            "records, and the model may learn the wrong thing. Name the column that identifies a "
            f"record (dataset.id=...), or the one that marks test rows (dataset.{self.SPLIT}=...)."
        ]

    def _files(self) -> list[FileRows]:
        """Read the rows of the file; or of two, of training records and of test records."""
        return [self._rows(self._open())]

    def _open(self) -> ColumnReader:
        return open_columns(self.path, "dataset.path or data_dir", self.data_dir, self._csv_format)

    def _rows(self, columns: ColumnReader, role: FileRole = FileRole.SPLIT) -> FileRows:
        """Read every row of a file.

        Args:
            columns: the file.
            role: the role of the file, which says which of its rows are test records.

        Raises:
            DataError: the file has no rows, a column cannot be used, or one split is empty.
        """
        columns = self._used_rows(columns)
        content = self._content(columns)
        n = len(content[0])
        if not n:
            raise DataError(f"{columns.path}: no rows")
        cells = self._read_cells(columns, n)
        digests = None
        if self.id is None:
            digests = self._row_digests(content, cells)
            copy_groups = ids_of_digests(digests)
            ids = number_copies(copy_groups, digests)
        else:
            ids = columns.unique_ids(self.id, "dataset.id", self.id_as_text)
            same_length(columns.path, n, {self.id: ids})
            copy_groups = ids
        has_columns = any(
            names is not None for names in (self.id, cells.units, cells.public, cells.is_test)
        )
        facts = id_facts(self.id, ids, self.unit, cells.units, self.public, self.id_permanent)
        facts += label_free_facts(self.label_free, has_columns)
        repeated = 0
        if role is not FileRole.SPLIT:
            is_test = np.full(n, role is FileRole.TEST)
        else:
            is_test = self._split(cells, copy_groups)
            self._check_both_splits(is_test, columns.path)
            if cells.is_test is None and cells.units is None and ids is not copy_groups:
                repeated = int(np.count_nonzero(ids != copy_groups))
        return FileRows(
            **vars(cells),
            columns=columns,
            content=content,
            digests=digests,
            ids=ids,
            test=is_test,
            facts=facts,
            erased=np.zeros(n, dtype=bool),
            repeated=repeated,
        )

    def _read_cells(self, columns: ColumnReader, count: int) -> _RowCells:
        """Read the columns of a file that are not features or ids.

        Args:
            columns: the file.
            count: the number of rows.

        Raises:
            DataError: a column is absent, has another length, or a value cannot be used.
        """
        if self._numbers is None:
            labels = read_labels(columns, self.label, self._listed or ())
        else:
            labels = read_numbers(columns, self.label, self._label_format)
        units = None
        if self.unit is not None:
            units = columns.ids(self.unit, "dataset.unit", self.id_as_text)
        public = None if self.public is None else columns.flags(self.public, "dataset.public")
        split_column = self._split_column
        is_test = None
        if split_column is not None:
            is_test = columns.flags(split_column, f"dataset.{self.SPLIT}")
        groups = {name: _subgroups(columns, name) for name in self.subgroups}
        arrays = {
            self.label: labels,
            str(self.unit): units,
            str(self.public): public,
            str(split_column): is_test,
        }
        same_length(columns.path, count, {**groups, **arrays})
        return _RowCells(labels, units, public, is_test, groups)

    def _row_digests(self, content: RowContent, cells: _RowCells) -> np.ndarray:
        """Return a hash of each row's content, [n, DIGEST_BYTES] uint8, which equal rows share.

        Args:
            content: the features as the file has them.
            cells: the other columns of the same rows.
        """
        # The label is a part of the content, unless ids must stay when labels change.
        hashed_labels = None if self.label_free else cells.labels
        attributes = (hashed_labels, cells.units, cells.public, cells.is_test)
        return default_digests(*content, *attributes, exact=self.exact)

    @property
    def _split_column(self) -> str | None:
        """The column that marks test records; None: hashes of ids split the records."""
        name: str | None = getattr(self, self.SPLIT)
        return name

    def _split(self, cells: _RowCells, copy_groups: np.ndarray) -> np.ndarray:
        """Return whether each row is a test record, [n] bool, from a column or by hashes of ids.

        Args:
            cells: the columns of the rows.
            copy_groups: [n] str, ids that only equal rows share, so that copies share a split.
        """
        if cells.is_test is not None:
            return cells.is_test
        split_names = copy_groups if cells.units is None else cells.units
        return hash_split(split_names, self.test_fraction, self.split_key)

    def _check_both_splits(self, is_test: np.ndarray, path: Path) -> None:
        """Raise DataError unless there are training records and test records.

        Args:
            is_test: [n] bool, True for test records.
            path: the file, for the message.
        """
        if is_test.any() and not is_test.all():
            return
        missing = "training" if is_test.all() else "test"
        remedy = ""
        if self._split_column is None:
            remedy = (
                f". Hashes of the {len(is_test)} ids decide which records are test records "
                f"(dataset.test_fraction={self.test_fraction:g}): change "
                "dataset.test_fraction or dataset.split_key"
            )
        raise DataError(f"{path}: there are no {missing} records{remedy}")

    def _mark_erased(self, rows: FileRows, is_erased: IsErased) -> FileRows:
        """Return rows of which some training records are marked as erased.

        Raises:
            DataError: an erased record has a copy that is not erased and comes later.
        """
        units = rows.ids if rows.units is None else rows.units
        erased = ~rows.test & is_erased(rows.ids, units)
        if self.id is None and erased.any():
            check_last_copies_erased(rows.copy_groups, erased)
        return replace(rows, erased=erased)

    def copy_groups(self, ids: np.ndarray) -> np.ndarray:
        """Return for each of some training records an id that only its copies share, [n] str.

        Args:
            ids: [n] the ids of the records.
        """
        if self.id is not None:
            return ids
        rows = self._files()[0]
        group_of = dict(zip(rows.ids.tolist(), rows.copy_groups.tolist(), strict=True))
        return np.array([group_of[name] for name in ids.tolist()], dtype=str)

    def copies(self, name: str, count: int) -> np.ndarray:
        """Return the ids that ``count`` copies of a record would have, [count] str.

        They are the ids that a file of these rows alone would give.

        Args:
            name: the id of the record, a hash of its content.
            count: the number of copies.
        """
        rows = self._files()[0]
        row = np.flatnonzero(rows.ids == name)[:1]
        digests = self._row_digests(rows.content, rows)[np.repeat(row, count)]
        return number_copies(ids_of_digests(digests), digests)

    def with_constants(self, settled: Mapping[str, Any]) -> Self:
        """Return this source with constants that were read off its file as settings.

        Args:
            settled: the constants, ``Dataset.settled``. Of numeric labels they have no classes,
                because their range is a setting anyway.
        """
        return replace(self, classes=self.classes or tuple(settled["classes"]) or None)

    @property
    def constants(self) -> Evidence:
        """The facts whether the constants that make features and labels are public.

        They are evidence for condition e of a privacy guarantee: preprocessing and settings are
        public.
        """
        return evidence(self._scaling_fact(), self._classes_fact())

    def load_queries(self, path: Path) -> Records:
        """Read a file of queries, with the columns and constants of the training records.

        Label and id are optional. Queries are named by the dataset's id column; if the file has
        none, by a column ``id``; if it has neither, by the column of persons, if no person has
        several queries; else by hashes of their content.

        A large file's features stay in the file (``Blocks``), and its rows are named by their
        numbers if no column names them.

        Raises:
            DataMissing: the file is not there.
            DataError: a column is missing or has another shape, a value cannot be read, or the
                file has other constants.
        """
        constants = self._constants()
        path = locate(path, self.data_dir, "inputs")
        try:
            with naming_settings(QUERY_SETTINGS):
                if is_large(path):
                    return self._read_in_blocks(path, constants)
                return self.read_queries(open_columns(path, "inputs", csv_format=self._csv_format))
        except CsvFormatError:
            # Its message names settings of the training file, which commands about queries refuse.
            check_query_format(path, self._csv_format or CsvFormat())
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
        columns_of_records = (self.id, self.unit, self.public, self._split_column)
        if is_large(path) or any(name is not None for name in columns_of_records):
            return []
        columns = open_columns(path, "inputs", csv_format=self._csv_format)
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
        """Return queries that were read already, as ``load_queries`` does.

        Args:
            columns: the queries' columns (for example of agt/data/sent_records.py).

        Raises:
            DataError: the file cannot be used (see ``load_queries``).
        """
        constants = self._constants()
        content = self._content(columns)
        features = self._query_features(columns, content, constants)
        id_column = self._query_id(columns.names)
        if id_column is None and self._people_of_queries(columns) is not None:
            id_column = self.unit
        return queries(
            columns,
            features,
            content,
            self._query_labels(columns, constants, len(features)),
            id=id_column,
            id_as_text=self.id_as_text,
            outside=_sum_over_blocks(self._outside(columns, content, constants)),
            groups=self._query_groups(columns),
        )

    def _query_id(self, names: Sequence[str]) -> str | None:
        """Return the column that names queries; None: no column does.

        It is the dataset's own, or a column ``id``, unless that names people.

        Args:
            names: the columns of the file of queries.
        """
        if self.id in names:
            return self.id
        names_people = self.id is not None and self.unit == "id"
        return "id" if "id" in names and not names_people else None

    def _people_of_queries(self, columns: ColumnReader) -> np.ndarray | None:
        """Return the person of each query, [n] str, if all of them are different.

        Returns:
            None: the file does not name people, or a person has several queries or no name.
        """
        if self.unit is None or self.unit not in columns.names:
            return None
        with suppress(DataError):
            return columns.unique_ids(self.unit, "dataset.unit", self.id_as_text)
        return None

    def _query_groups(self, columns: ColumnReader) -> dict[str, np.ndarray]:
        """Return the subgroups of queries, column -> [n], from the columns that the file has."""
        return {name: _subgroups(columns, name) for name in self.subgroups if name in columns.names}

    def _read_in_blocks(self, path: Path, constants: FileConstants) -> Records:
        """Return the queries of a large file, which is read block by block.

        One pass reads labels, ids and subgroups. Each use of the features begins another pass.

        Args:
            path: the file of the queries.
            constants: the constants of the training records.

        Raises:
            DataError: the file cannot be used (see ``load_queries``).
        """
        state = changed_of(path)
        labels: list[np.ndarray] = []
        values_outside: list[Outside] = []
        named_columns: list[dict[str, np.ndarray]] = []  # of each block: subgroups, and the id
        people: list[np.ndarray] = []
        id_column = None
        for columns in open_blocks(path, self._csv_format):
            content = self._content(columns)
            named = self._query_groups(columns)
            id_column = self._query_id(columns.names)
            labels.append(self._query_labels(columns, constants, len(content[0])))
            if id_column is not None:
                named[id_column] = columns.ids(id_column, "dataset.id", self.id_as_text)
            elif (people_of_block := self._people_of_queries(columns)) is not None:
                people.append(people_of_block)
            same_length(path, len(content[0]), {self.label: labels[-1], **named})
            named_columns.append(named)
            values_outside += self._outside(columns, content, constants)
        count = sum(map(len, labels))
        if not count:
            raise no_queries(path)
        joined = {
            name: np.concatenate([named[name] for named in named_columns])
            for name in named_columns[0]
        }
        names = row_numbers(count) if id_column is None else joined[id_column]
        # People name queries only if every block names them and nobody has several queries.
        if id_column is None and len(people) == len(named_columns):
            everybody = np.concatenate(people)
            if most_frequent(everybody) is None:
                names = everybody
                id_column = self.unit
        return records(
            as_array(Blocks(lambda: self._feature_blocks(path, state, constants), count)),
            np.concatenate(labels),
            names,
            groups={name: joined[name] for name in self.subgroups if name in joined},
            outside=_sum_over_blocks(values_outside),
            id_column=id_column,
        )

    def _feature_blocks(
        self, path: Path, state: object, constants: FileConstants
    ) -> Iterator[np.ndarray]:
        """Yield the features of a file of queries, block by block.

        Args:
            path: the file.
            state: the value that ``changed_of`` returned when the labels were read.
            constants: the constants of the training records.

        Raises:
            DataError: the file has changed since then, or cannot be used.
        """

        def check_unchanged() -> None:
            if changed_of(path) != state:
                raise DataError(
                    f"{path}: the file changed while agt was reading it: type the command again"
                )

        check_unchanged()
        try:
            for part in open_blocks(path, self._csv_format):
                yield self._query_features(part, self._content(part), constants)
                check_unchanged()
        except DataError:
            check_unchanged()  # a file that is overwritten meanwhile may look damaged
            raise

    @property
    def _numbers(self) -> NumericTarget | None:
        """The target with the declared range if labels are numbers; None: labels are classes."""
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
        """The declared classes as text; None: no list was given."""
        return None if self.classes is None else tuple(str(name) for name in self.classes)

    def _classes(self, files: Sequence[FileRows]) -> tuple[str, ...]:
        """Return the classes: the declared list, or those of all rows that are not erased.

        Raises:
            DataError: no list was given, and the training records have one class only, or there
                are more than ``MAX_FOUND`` classes.
        """
        if self._listed:
            return self._listed
        path = files[0].columns.path
        training_classes = {*files[0].labels[files[0].train].tolist()}
        if len(training_classes) == 1:
            raise DataError(
                f"{path}: every training record has the class "
                f"{training_classes.pop()!r}, but two classes are needed: list all public classes "
                "in dataset.classes, including those that do not occur in the file"
            )
        labels = np.concatenate([rows.labels[~rows.erased] for rows in files])
        return class_names(labels, path)

    def _size_fact(self) -> Fact | None:
        """Return the fact that the number of records is a public constant; None: the user says so.

        Condition c of a privacy guarantee (all constants are public) needs it.
        """
        return None

    def _classes_fact(self) -> Fact:
        """Return the fact that classes, or the range of numeric labels, are public."""
        if self._numbers is not None:
            return label_range_fact(self._numbers.low, self._numbers.high, "dataset.range")
        return classes_fact(self.classes is not None)

    def _split_fact(self) -> Fact:
        """Return the fact that each record's split depends on that record alone.

        Condition b of a privacy guarantee (each record is processed by itself) needs it.
        """
        if self._split_column is not None:
            return declared(
                "split_by_column", column=self._split_column, setting=f"dataset.{self.SPLIT}"
            )
        return split_fact(self.test_fraction, self.split_key)


def _subgroups(columns: ColumnReader, name: str) -> np.ndarray:
    """Return the subgroup of each row as text, [n] object; ``MISSING`` where the cell is empty.

    Args:
        columns: the file.
        name: the column.

    Raises:
        DataError: the column is absent, or has more than ``MAX_GROUPS`` different values.
    """
    words = columns.words(name, "dataset.subgroups")
    group_of = {word: MISSING if missing_word(word) else word for word in set(words.tolist())}
    if len(group_of) > MAX_GROUPS:
        raise DataError(
            f"{columns.path}: dataset.subgroups: column '{name}' has {len(group_of)} different "
            f"values, more than {MAX_GROUPS}: name a column with fewer values, for example one "
            "with ranges of these values"
        )
    return np.array([group_of[word] for word in words], dtype=object)
