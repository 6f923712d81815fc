"""The rows of a file of labelled records: as they are read, and with their features."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

import numpy as np

from agt.data.cell_values import missing_word
from agt.data.coded import RowLookup
from agt.data.column_reader import ColumnReader
from agt.data.labels import class_indices
from agt.data.records import Records, records
from agt.data.target import Target
from agt.errors import DataError
from agt.facts import Fact

MAX_GROUPS = 50
"""The largest number of different values of a column of subgroups."""
MISSING = "(missing)"
"""The subgroup of rows whose cell is empty."""

RowContent = tuple[np.ndarray, ...]
"""The features of rows as a file has them: arrays that each have a row for every row of the file.
"""


class FileRole(Enum):
    """Which records of a file are test records."""

    TRAINING = auto()
    """No row is a test record, because there is another file of test records."""
    TEST = auto()
    """Every row is a test record."""
    SPLIT = auto()
    """Those that a column or the hashes of ids say."""


@dataclass(frozen=True)
class RowCells:
    """The columns of a file that are not features or ids; None: the settings name no such column.

    Attributes:
        labels: [n] object, text; or float64, numbers.
        units: [n] str, the unit (person) of each row.
        public: [n] bool, whether each row is declared public.
        test_flags: [n] bool, whether a column marks each row as a test record.
        groups: column -> [n] the subgroup of each row, as text.
    """

    labels: np.ndarray
    units: np.ndarray | None
    public: np.ndarray | None
    test_flags: np.ndarray | None
    groups: Mapping[str, np.ndarray]


@dataclass(frozen=True)
class RowNames:
    """The names of rows.

    Attributes:
        ids: [n] str, unique.
        copy_groups: [n] str, names that only equal rows share: the ids, unless these number copies.
    """

    ids: np.ndarray
    copy_groups: np.ndarray


@dataclass(frozen=True)
class FileRows(RowNames, RowCells):
    """The rows of one file, their features not yet made.

    Attributes:
        columns: the file.
        content: the features as the file has them.
        is_test: [n] bool, True for test records.
        facts: the declared meanings of the columns of ids, units and public flags.
        erased: [n] bool, True for training records that are left out: no constant is computed from
            them either.
    """

    columns: ColumnReader
    content: RowContent
    is_test: np.ndarray
    facts: tuple[Fact, ...]
    erased: np.ndarray

    @property
    def is_training(self) -> np.ndarray:
        """[n] bool, True for training records that are not erased."""
        return ~self.is_test & ~self.erased

    @property
    def unit_names(self) -> np.ndarray:
        """[n] str, the unit of each row; its id if no column names units."""
        return self.ids if self.units is None else self.units

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


def read_subgroups(columns: ColumnReader, name: str) -> np.ndarray:
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
