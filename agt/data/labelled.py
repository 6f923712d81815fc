"""Files of labelled records that users bring: from the rows of a file to a dataset.

``LabelledFile.load_without`` does it in these steps, in each of which a record is read from its own
row and from constants alone:

1. ``_open`` opens the file as columns (``ColumnReader``).
2. ``_rows`` reads every row: its features as the file has them (``_content``, for each kind of
   file), its label and its other columns (``_read_cells``), its id (``_name_rows``) and its split.
3. ``_mark_erased`` marks the rows that are left out, so that no constant is computed from them.
4. ``_target`` finds the classes; ``_features`` (for each kind of file) makes features.
5. ``FileRows.records`` puts labels and features together as records.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from agt.data.column_reader import ColumnReader
from agt.data.dataset import Dataset
from agt.data.erasure import IsErased, check_last_copies_erased, erase_none
from agt.data.file_rows import (
    FileFeatures,
    FileRole,
    FileRows,
    RowCells,
    RowContent,
    RowNames,
    read_subgroups,
)
from agt.data.file_settings import FileConstants
from agt.data.files import open_columns, same_length
from agt.data.ids import default_digests, hash_split, ids_of_digests, number_copies
from agt.data.labels import class_names, read_labels, read_numbers
from agt.data.meanings import (
    classes_fact,
    id_facts,
    label_free_facts,
    label_range_fact,
    split_fact,
)
from agt.data.queries import QueryReading
from agt.data.target import ClassTarget, Target
from agt.errors import DataError
from agt.facts import Evidence, Fact, declared, evidence
from agt.settings import schema, validate

REPEATED_SHARE = 0.2
"""If more than this share of rows repeat others, the owner is told that accuracy says little."""


@schema
class LabelledFile(QueryReading, ABC):
    """A file with one record in each row, and the meaning of its columns."""

    # -- what a subclass for one kind of file adds

    @abstractmethod
    def _features(self, files: Sequence[FileRows]) -> FileFeatures:
        """Return the features of the training file, and of the test file if there is one.

        The features of a row are a function of its own content and of constants.
        """

    def _used_rows(self, columns: ColumnReader) -> ColumnReader:
        """Return a reader of the rows that become records; by default of all rows.

        Whether a row becomes a record must depend on that row alone.
        """
        return columns

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
        training_file = files[0]
        test_file = files[-1]  # the same, unless there is a second file
        target = self._target(files)
        features = self._features(files)
        records_by_file = [
            rows.records(array, target) for rows, array in zip(files, features.arrays, strict=True)
        ]
        classes: tuple[str, ...] = ()
        notes = [*features.notes]
        if target.numeric is None:
            classes = target.classes
        else:
            training_labels = training_file.labels[training_file.is_training]
            notes += target.numeric.clipping_notes(training_labels)
        notes += self._notes_on_copies(training_file)
        return Dataset(
            name=self.name or self.path.stem,
            target=target,
            train=records_by_file[0].take(training_file.is_training),
            test=records_by_file[-1].take(test_file.is_test),
            declared_size=self.declared_size,
            label_free=self.label_free,
            scaling=features.scaling,
            selection=self._selection(self._split_fact(), training_file),
            preprocessing=self.constants,
            size=self._size_fact(),
            coding=features.coding,
            notes=tuple(notes),
            settled={"classes": classes, **features.settled},
        )

    def _target(self, files: Sequence[FileRows]) -> Target:
        """Return what labels are: numbers of the declared range; else classes, listed or found.

        Args:
            files: the rows of the training file, and of the test file if there is one.

        Raises:
            DataError: the classes are not listed and cannot be found (see ``_classes``).
        """
        return self._numeric_target or ClassTarget(self._classes(files))

    def _notes_on_copies(self, rows: FileRows) -> list[str]:
        """Return a note for the owner if accuracy on the test rows says little about new records.

        Equal rows share a split, and their label is a part of their content. So if many rows are
        equal, the labels of a test row and of the training rows like it differ more often than
        those of two records that are drawn at random.
        """
        # Where a column marks test rows or names units, equal rows may be on both sides.
        if not rows.is_test.any() or rows.test_flags is not None or rows.units is not None:
            return []
        repeated = int(np.count_nonzero(rows.ids != rows.copy_groups))
        if repeated <= REPEATED_SHARE * len(rows.ids):
            return []
        return [
            f"{repeated:,} of {len(rows.ids):,} rows are equal to an earlier row in all "
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
        count = len(content[0])
        if not count:
            raise DataError(f"{columns.path}: no rows")
        cells = self._read_cells(columns, count)
        names = self._name_rows(columns, content, cells)
        if role is FileRole.SPLIT:
            is_test = self._split(cells, names)
            self._check_both_splits(is_test, columns.path)
        else:
            is_test = np.full(count, role is FileRole.TEST)
        return FileRows(
            **vars(cells),
            **vars(names),
            columns=columns,
            content=content,
            is_test=is_test,
            facts=self._facts_on_columns(names.ids, cells),
            erased=np.zeros(count, dtype=bool),
        )

    def _name_rows(self, columns: ColumnReader, content: RowContent, cells: RowCells) -> RowNames:
        """Return the ids of rows: those of a column, or hashes of the content.

        Args:
            columns: the file.
            content: the features as the file has them.
            cells: the other columns of the same rows.

        Raises:
            DataError: the column of ids cannot be used.
        """
        if self.id is not None:
            ids = columns.unique_ids(self.id, "dataset.id", self.id_as_text)
            same_length(columns.path, len(content[0]), {self.id: ids})
            return RowNames(ids, ids)
        digests = self._row_digests(content, cells)
        copy_groups = ids_of_digests(digests)
        return RowNames(number_copies(copy_groups, digests), copy_groups)

    def _facts_on_columns(self, ids: np.ndarray, cells: RowCells) -> tuple[Fact, ...]:
        """Return the declared meanings of the columns of ids, units and public flags.

        Args:
            ids: [n] the ids of the rows.
            cells: the other columns of the same rows.
        """
        has_columns = any(
            part is not None for part in (self.id, cells.units, cells.public, cells.test_flags)
        )
        facts = id_facts(self.id, ids, self.unit, cells.units, self.public, self.id_permanent)
        return facts + label_free_facts(self.label_free, has_columns)

    def _read_cells(self, columns: ColumnReader, count: int) -> RowCells:
        """Read the columns of a file that are not features or ids.

        Args:
            columns: the file.
            count: the number of rows.

        Raises:
            DataError: a column is absent, has another length, or a value cannot be used.
        """
        if self._numeric_target is None:
            labels = read_labels(columns, self.label, self._listed or ())
        else:
            labels = read_numbers(columns, self.label, self._label_format)
        units = public = test_flags = None
        if self.unit is not None:
            units = columns.ids(self.unit, "dataset.unit", self.id_as_text)
        if self.public is not None:
            public = columns.flags(self.public, "dataset.public")
        split_column = self._split_column
        if split_column is not None:
            test_flags = columns.flags(split_column, f"dataset.{self.SPLIT}")
        groups = {name: read_subgroups(columns, name) for name in self.subgroups}
        values_by_column = {
            **groups,
            self.label: labels,
            str(self.unit): units,
            str(self.public): public,
            str(split_column): test_flags,
        }
        same_length(columns.path, count, values_by_column)
        return RowCells(labels, units, public, test_flags, groups)

    def _row_digests(self, content: RowContent, cells: RowCells) -> np.ndarray:
        """Return a hash of each row's content, [n, DIGEST_BYTES] uint8, which equal rows share.

        Args:
            content: the features as the file has them.
            cells: the other columns of the same rows.
        """
        # The label is a part of the content, unless ids must stay when labels change.
        hashed_labels = None if self.label_free else cells.labels
        attributes = (hashed_labels, cells.units, cells.public, cells.test_flags)
        return default_digests(*content, *attributes, exact=self.exact)

    def _split(self, cells: RowCells, names: RowNames) -> np.ndarray:
        """Return whether each row is a test record, [n] bool, from a column or by hashes of ids.

        Args:
            cells: the columns of the rows.
            names: the ids of the rows.
        """
        if cells.test_flags is not None:
            return cells.test_flags
        # All rows of a unit share a split, and so do copies.
        split_names = names.copy_groups if cells.units is None else cells.units
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
        erased = ~rows.is_test & is_erased(rows.ids, rows.unit_names)
        if self.id is None and erased.any():
            check_last_copies_erased(rows.copy_groups, erased)
        return replace(rows, erased=erased)

    def _classes(self, files: Sequence[FileRows]) -> tuple[str, ...]:
        """Return the classes: the declared list, or those of all rows that are not erased.

        Raises:
            DataError: no list was given, and the training records have one class only, or there
                are more than ``MAX_FOUND`` classes.
        """
        if self._listed:
            return self._listed
        path = files[0].columns.path
        training_classes = {*files[0].labels[files[0].is_training].tolist()}
        if len(training_classes) == 1:
            raise DataError(
                f"{path}: every training record has the class "
                f"{training_classes.pop()!r}, but two classes are needed: list all public classes "
                "in dataset.classes, including those that do not occur in the file"
            )
        labels = np.concatenate([rows.labels[~rows.erased] for rows in files])
        return class_names(labels, path)

    def _constants(self) -> FileConstants:
        """Return the constants that queries need, from the settings, or else from the file."""
        return self.settled or validate(FileConstants, self.load().settled, "dataset.settled")

    def with_constants(self, settled: Mapping[str, Any]) -> Self:
        """Return this source with constants that were read off its file as settings.

        Args:
            settled: the constants, ``Dataset.settled``. Of numeric labels they have no classes,
                because their range is a setting anyway.
        """
        return replace(self, classes=self.classes or tuple(settled["classes"]) or None)

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

    @property
    def constants(self) -> Evidence:
        """The facts whether the constants that make features and labels are public.

        They are evidence for condition e of a privacy guarantee: preprocessing and settings are
        public.
        """
        return evidence(self._scaling_fact(), self._classes_fact())

    def _size_fact(self) -> Fact | None:
        """Return the fact that the number of records is a public constant; None: the user says so.

        Condition c of a privacy guarantee (all constants are public) needs it.
        """
        return None

    def _classes_fact(self) -> Fact:
        """Return the fact that classes, or the range of numeric labels, are public."""
        target = self._numeric_target
        if target is not None:
            return label_range_fact(target.low, target.high, "dataset.range")
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
