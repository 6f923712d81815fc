"""Queries in a file or from a program, read with the columns and constants of training records.

1. ``QueryReading.load_queries`` finds the file. A file that fits into memory is opened as a whole
   and goes to ``read_queries``; a large one is read in blocks (``_read_in_blocks``).
2. Each kind of file reads its features (``_content``) and scales or codes them
   (``_query_features``), by the rules for training records.
3. A column names the queries, or hashes of their content do; in a large file, row numbers.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np

from agt.data.arrays import Blocks, as_array, row_numbers
from agt.data.column_reader import ColumnReader
from agt.data.csv_format import CsvFormat, check_query_format
from agt.data.file_rows import RowContent, read_subgroups
from agt.data.file_settings import FileConstants, LabelledFileSettings
from agt.data.files import changed_of, is_large, open_blocks, open_columns, same_length
from agt.data.formats import CellFormat
from agt.data.header import no_queries
from agt.data.ids import default_ids, most_frequent
from agt.data.labels import query_labels, query_numbers
from agt.data.population import Outside, sum_over_blocks
from agt.data.records import Records, records
from agt.data.target import NumericTarget
from agt.errors import CsvFormatError, DataError, naming_settings
from agt.messages import ArgumentNames
from agt.settings import schema
from agt.store.locations import locate

QUERY_SETTINGS = ArgumentNames(
    {
        "+dataset.csv.decimal=','": (
            "its numbers with decimal points, because queries are read as the training file is"
        )
    }
)
"""What messages about a file of queries say in the place of settings, which the run has fixed."""


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


@dataclass(frozen=True)
class _QueryBlock:
    """What one block of a large file says of its queries, apart from their features.

    Attributes:
        labels: [n], as ``Records.labels``.
        ids: [n] str, from the id column; None: no column has ids.
        people: [n] str, from the column of people; None: it does not name each query, or there are
            ids.
        groups: column -> [n] the subgroup of each query.
        outside: the values of each column that do not fit the declared constants.
    """

    labels: np.ndarray
    ids: np.ndarray | None
    people: np.ndarray | None
    groups: Mapping[str, np.ndarray]
    outside: Sequence[Outside]


@schema
class QueryReading(LabelledFileSettings, ABC):
    """Settings of a file of labelled records that can read queries.

    A subclass for one kind of file says how its features are read and made.
    """

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
    def _query_features(
        self, columns: ColumnReader, content: RowContent, constants: FileConstants
    ) -> np.ndarray:
        """Return the features of queries, [n, ...], made by the rules for training records.

        Args:
            columns: the file of the queries, for messages.
            content: the queries' features as the file has them, which ``_content`` returned.
            constants: the constants that were read off the training file, such as ranges.
        """

    @abstractmethod
    def _constants(self) -> FileConstants:
        """Return the constants that queries need, from the settings, or else from the file."""

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

    @property
    def _label_format(self) -> CellFormat | None:
        """The declared format of numeric labels; None, the default: that of the file."""
        return None

    @property
    def _missing_labels(self) -> tuple[str, ...]:
        """Text that stands for a missing label, beside the usual markers; none by default."""
        return ()

    @property
    def _csv_format(self) -> CsvFormat | None:
        """The format of a csv; None: this kind of file has no such setting."""
        return getattr(self, "csv", None)

    # -- what all kinds of files have in common

    @property
    def _numeric_target(self) -> NumericTarget | None:
        """The target with the declared range if labels are numbers; None: labels are classes."""
        return None if self.range is None else NumericTarget(*self.range)

    @property
    def _listed(self) -> tuple[str, ...] | None:
        """The declared classes as text; None: no list was given."""
        return None if self.classes is None else tuple(str(name) for name in self.classes)

    @property
    def _split_column(self) -> str | None:
        """The column that marks test records; None: hashes of ids split the records."""
        name: str | None = getattr(self, self.SPLIT)
        return name

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
        name_column = self._id_column(columns.names)
        if name_column is None and self._people_of_queries(columns) is not None:
            name_column = self.unit
        return queries(
            columns,
            features,
            content,
            self._labels_of_queries(columns, constants, len(features)),
            id=name_column,
            id_as_text=self.id_as_text,
            outside=sum_over_blocks(self._outside(columns, content, constants)),
            groups=self._groups_of_queries(columns),
        )

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
        return [
            default_ids(*content, labels, numbered=False, exact=self.exact)
            for labels in self._possible_labels(columns, len(content[0]))
        ]

    def _possible_labels(self, columns: ColumnReader, count: int) -> list[np.ndarray | None]:
        """Return the labels that queries may have, as ids of records hash them.

        Args:
            columns: the file of the queries.
            count: the number of queries.

        Returns:
            An array [count] for each possible labelling; None in its place: ids hash no labels.
        """
        has_labels = self.label in columns.names
        if self.label_free:
            return [None]
        if self._numeric_target is not None:
            if not has_labels:
                return []
            return [columns.numbers(self.label, "dataset.label", form=self._label_format)]
        if has_labels:
            return [columns.words(self.label, "dataset.label")]
        return [np.full(count, name, dtype=object) for name in self._listed or ()]

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
        blocks: list[_QueryBlock] = []
        name_column = None
        for columns in open_blocks(path, self._csv_format):
            blocks.append(self._read_block(columns, constants))
            name_column = self._id_column(columns.names)
        count = sum(len(block.labels) for block in blocks)
        if not count:
            raise no_queries(path)
        names = _concatenated([block.ids for block in blocks])
        if names is None:
            people = _concatenated([block.people for block in blocks])
            # People name queries only if nobody has several, in different blocks either.
            if people is not None and most_frequent(people) is None:
                names = people
                name_column = self.unit
        if names is None:
            names = row_numbers(count)
        groups = {}
        for column in blocks[0].groups:
            groups[column] = np.concatenate([block.groups[column] for block in blocks])
        values_outside = [outside for block in blocks for outside in block.outside]
        read_features = partial(self._feature_blocks, path, state, constants)
        return records(
            as_array(Blocks(read_features, count)),
            np.concatenate([block.labels for block in blocks]),
            names,
            groups=groups,
            outside=sum_over_blocks(values_outside),
            id_column=name_column,
        )

    def _read_block(self, columns: ColumnReader, constants: FileConstants) -> _QueryBlock:
        """Read one block of a large file of queries, and check its features.

        Args:
            columns: the block.
            constants: the constants of the training records.

        Raises:
            DataError: the block cannot be used (see ``load_queries``).
        """
        content = self._content(columns)
        count = len(content[0])
        groups = self._groups_of_queries(columns)
        labels = self._labels_of_queries(columns, constants, count)
        ids = people = None
        id_column = self._id_column(columns.names)
        if id_column is not None:
            ids = columns.ids(id_column, "dataset.id", self.id_as_text)
        else:
            people = self._people_of_queries(columns)
        same_length(columns.path, count, {self.label: labels, **groups, str(id_column): ids})
        return _QueryBlock(labels, ids, people, groups, self._outside(columns, content, constants))

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
        _check_unchanged(path, state)
        try:
            for columns in open_blocks(path, self._csv_format):
                yield self._query_features(columns, self._content(columns), constants)
                _check_unchanged(path, state)
        except DataError:
            _check_unchanged(path, state)  # a file that is overwritten meanwhile may look damaged
            raise

    def _id_column(self, names: Sequence[str]) -> str | None:
        """Return the column that has the ids of queries; None: no column has.

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

    def _groups_of_queries(self, columns: ColumnReader) -> dict[str, np.ndarray]:
        """Return the subgroups of queries, column -> [n], from the columns that the file has."""
        present = [name for name in self.subgroups if name in columns.names]
        return {name: read_subgroups(columns, name) for name in present}

    def _labels_of_queries(
        self, columns: ColumnReader, constants: FileConstants, count: int
    ) -> np.ndarray:
        """Return the labels of queries, [count], as the records of a dataset have them."""
        target = self._numeric_target
        missing = self._missing_labels
        if target is None:
            return query_labels(columns, self.label, constants.classes, count, missing)
        return query_numbers(columns, self.label, target, count, self._label_format, missing)


def _concatenated(arrays: Sequence[np.ndarray | None]) -> np.ndarray | None:
    """Return the arrays of all blocks as one; None if some block has none."""
    present = [array for array in arrays if array is not None]
    return np.concatenate(present) if len(present) == len(arrays) else None


def _check_unchanged(path: Path, state: object) -> None:
    """Raise DataError if a file, or an array in a folder, was changed.

    Args:
        path: the file or folder.
        state: the value that ``changed_of`` returned earlier.
    """
    if changed_of(path) != state:
        raise DataError(
            f"{path}: the file changed while agt was reading it: type the command again"
        )
