"""The user's own table: numeric columns with public ranges, categorical columns with public lists
of values. agt/data/encoding.py makes features of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
from pydantic import Field

from agt.data.cell_values import NULLS, missing_word
from agt.data.column_reader import ColumnReader
from agt.data.csv_format import CsvFormat
from agt.data.encoding import Encoding
from agt.data.file_rows import FileFeatures, FileRole, FileRows, RowContent
from agt.data.file_settings import ColumnsSettings, FileConstants, TableSettings
from agt.data.files import open_columns, same_length
from agt.data.formats import CellFormat, DateFormat, DeclaredFormat, date_of
from agt.data.frames import columns_of_frame
from agt.data.labelled import LabelledFile
from agt.data.population import (
    MAX_RATE_OUTSIDE,
    Outside,
    numbers_outside,
    population_mismatches,
    words_outside,
)
from agt.data.settings import CLASSES, DECLARED_SIZE, MAX_FEATURES, SIZE, ColumnName, Limits
from agt.data.written_ranges import check_unquoted_points
from agt.errors import ConfigError, DataError, few
from agt.facts import Evidence, Fact, declared, evidence, not_held
from agt.settings import schema, validate
from agt.store.reading import Broken
from agt.store.yaml_text import parse_yaml


@schema
class Columns(ColumnsSettings):
    """The columns of a table that are features, and the public constants that code them.

    From Python::

        columns = agt.Columns(
            numeric={"age": [18, 100]}, categorical={"region": ["north", "south"]}
        )
        model = agt.fit(frame, y, columns=columns)
        columns(frame)  # [n, width] float32: the features that the model sees (``Encoding``)

    Giving it declares what it holds public: which columns are used, ranges, lists, and what counts
    as a missing value.

    Raises:
        ConfigError: ranges that do not increase, a column twice, too many features.
    """

    formats: Mapping[ColumnName, DeclaredFormat] = Field(default_factory=dict)

    def __post_init__(self) -> None:
        ColumnsSettings.__post_init__(self)
        self._check_width()

    @property
    def feature_count(self) -> int:
        """The number of features of a row after coding: the inputs that a network must take."""
        # The number of features is the same for every range, so any range will do.
        ranges = {column: limits or (0.0, 1.0) for column, limits in self.numeric.items()}
        return self._encoding(ranges).width

    def _check_width(self) -> None:
        """Raise ValueError if a row would have more features than ``MAX_FEATURES``."""
        width = self.feature_count
        if width > MAX_FEATURES:
            raise ValueError(
                f"these columns are encoded as {width} features, but at most {MAX_FEATURES} are "
                "allowed: shorten the lists under 'categorical', or lower 'bins' or 'crosses'"
            )

    @classmethod
    def of(cls, given: "Columns | str | Path", units: object = None) -> "Columns":
        """Return the columns, read from a dataset file if ``given`` is the path of one.

        Args:
            given: the columns; or the path of a dataset file, as ``agt data inspect`` writes it.
            units: the person of each row; None: units were not given.

        Raises:
            ConfigError: ``given`` is neither; the file cannot be read; it includes another file,
                whose columns and unit would be ignored; or it names a column of persons, but
                ``units`` is None.
        """
        if isinstance(given, cls):
            return given
        if not isinstance(given, str | Path):
            raise ConfigError(
                f"columns={given!r} is neither agt.Columns nor the path of a dataset file: give "
                'columns=agt.Columns(numeric={"age": [18, 100]}, categorical={"sex": ["f", "m"]}), '
                "with the columns of your data frame"
            )
        node = _read_dataset_file(str(given))
        if node.get("unit") and units is None:
            raise ConfigError(
                f"columns={given}: this file says that column '{node['unit']}' names the person "
                "of each row (unit). In Python, give this column with units=, and the largest "
                "number of rows of one person with unit_rows="
            )
        # A dataset file has further settings, such as the label, which are no columns' settings.
        settings = {name: node[name] for name in cls.__dataclass_fields__ if name in node}
        formats = settings.get("formats")
        if isinstance(formats, Mapping):
            # That of a label which is a number is no column's.
            settings["formats"] = {
                column: form for column, form in formats.items() if column != node.get("label")
            }
        return validate(cls, settings, str(given))

    def __call__(self, frame: object) -> np.ndarray:
        """Return the features of the rows of a data frame, each from its own row alone.

        Values outside of ranges and lists are accepted: numbers are clipped, and words count as
        other. ``code_queries`` refuses a frame that has too many of them.

        Returns:
            [n, features] float32.

        Raises:
            ConfigError: ``frame`` is no data frame, or a numeric column has no range.
            DataError: the frame lacks a column, or a value is of the wrong type, infinite, or
                missing where ``missing`` is "error".
        """
        return self._encoding(self._ranges)(*self._content(columns_of_frame(frame)))

    def code_queries(self, frame: object) -> np.ndarray:
        """Return the features of queries, if the queries fit what is declared.

        Args:
            frame: the queries, a data frame that has every declared column.

        Returns:
            [n, width] float32, with values from -1 to 1. A numeric column becomes a thermometer
            code of ``bins`` numbers and some for small values (``bins=0``: one number), a
            categorical column one number for each listed value and one for any other value. With
            ``missing="indicator"`` each column has one number more. A code has length 1, except for
            one number in place of a code.

        Raises:
            DataError: a column is missing from the frame, a value cannot be read, or the queries
                look like another population than the declared one (``population_mismatches``).
        """
        reader = columns_of_frame(frame)
        content = self._content(reader)
        values_outside = self._values_outside(content, self._ranges, reader)
        if mismatches := population_mismatches(values_outside, len(content[0])):
            raise DataError(
                f"data frame: {'; '.join(mismatches)}. Remove these queries, or train with "
                "columns (agt.Columns) that allow their values"
            )
        return self._encoding(self._ranges)(*content)

    def notes(self, frame: object) -> tuple[str, ...]:
        """Return sentences on columns whose values do not fit the declarations, for their owner.

        There are sentences about values outside of a range, and about columns of which more than a
        fifth of the values are not listed. Empty: every column fits.

        Raises:
            DataError: every value of a categorical column would be read as other.
        """
        reader = columns_of_frame(frame)
        return self._notes(self._content(reader), self._ranges, reader)

    @property
    def facts(self) -> tuple[Fact, Fact]:
        """The facts that rows are coded one by one, and whether the constants are public.

        Condition b of a privacy guarantee (each record is processed by itself) needs the first,
        condition e (preprocessing and settings are public) the second.
        """
        return declared("columns_made_alone"), self._scaling_fact()

    @property
    def _ranges(self) -> dict[str, Limits]:
        """The range of each numeric column; raises ConfigError if one is not declared."""
        unknown = [name for name, limits in self.numeric.items() if limits is None]
        if unknown:
            raise ConfigError(
                f"columns.numeric.{unknown[0]}: give the public range of this column, [low, high]"
            )
        return {name: limits for name, limits in self.numeric.items() if limits}

    def _content(self, columns: ColumnReader) -> RowContent:
        """Read the columns, and check every value.

        Returns:
            ([n, numeric columns] float64, NaN where missing;
            [n, categorical columns] text, None where missing), stored column by column, as they
            are filled and read.

        Raises:
            DataError: a value is infinite, or missing where ``missing`` is "error".
        """
        numbers = np.empty((0, len(self.numeric)))
        words = np.empty((0, len(self.categorical)), dtype=object)
        for index, name in enumerate((*self.numeric, *self.categorical)):
            column = self._read_column(columns, name)
            if index == 0:  # which tells the number of rows
                numbers = np.empty((len(column), len(self.numeric)), order="F")
                words = np.empty((len(column), len(self.categorical)), dtype=object, order="F")
            same_length(columns.path, len(numbers), {name: column})
            # Stored before the next column is read, which then takes this column's memory.
            if name in self.numeric:
                numbers[:, index] = column
            else:
                words[:, index - len(self.numeric)] = column
        return numbers, words

    def _read_column(self, columns: ColumnReader, name: str) -> np.ndarray:
        """Read the column of a feature, and check every value.

        Returns:
            [n] float64, NaN where missing; or text, None where missing.

        Raises:
            DataError: a value is infinite, or missing where ``missing`` is "error".
        """
        if name in self.categorical:
            setting = f"{self.SETTING}.categorical.{name}"
            words = columns.words(name, setting, self._markers)
            columns.refuse_missing_words(setting, self.categorical[name])
            self._refuse_missing(columns, name, setting, words)
            return words
        setting = f"{self.SETTING}.numeric.{name}"
        numbers = columns.numbers(name, setting, self._markers, self._format_of(name))
        self._refuse_missing(columns, name, setting, numbers)
        remedy = "an infinite value cannot be a feature: correct or remove this row"
        columns.refuse(name, setting, np.isinf(numbers), numbers, remedy)
        return numbers

    def _refuse_missing(
        self, columns: ColumnReader, name: str, setting: str, column: np.ndarray
    ) -> None:
        """Raise DataError if a value is missing and ``missing`` is "error".

        Args:
            columns: the file or frame, for the message.
            name: the column.
            setting: the setting that names it, for the message.
            column: [n] its values, NaN or None where missing.
        """
        if self.missing == "error":
            remedy = (
                f"correct or remove this row, or train with {self.SETTING}.missing=indicator, "
                "which allows missing values"
            )
            columns.refuse(name, setting, pd.isna(column), column, remedy)

    def _notes(
        self, content: Sequence[np.ndarray], ranges: Mapping[str, Limits], reader: ColumnReader
    ) -> tuple[str, ...]:
        """Return sentences for the owner on columns that do not fit the declarations.

        Args:
            content: numbers and words, as ``_content`` returns them.
            ranges: the range of each numeric column.
            reader: the file or frame, which distinguishes dates from other numbers.

        Raises:
            DataError: every value of a categorical column would be read as other.
        """
        notes = []
        for outside in self._values_outside(content, ranges, reader):
            column = f"column '{outside.column}'"
            if not outside.total:
                notes.append(f"no record has a value in {column}.")
            elif outside.is_list:
                notes += self._notes_on_list(outside, column, reader.path)
            elif outside.count == outside.total:
                # This is no error, because an erasure may leave only such records.
                notes.append(
                    f"ALL {outside.total} values of {column} are outside the declared range "
                    f"{outside.declared}, so clipping leaves next to nothing to learn from. The "
                    f"values range from {outside.seen}. Check {self.SETTING}.numeric."
                    f"{outside.column} (a point there is a decimal point, so 10.000 is 10)."
                )
            elif outside.count:
                notes.append(
                    f"{outside.count} of {outside.total} values of {column} are outside the "
                    f"declared range {outside.declared}, so they are clipped to this range (the "
                    f"values range from {outside.seen})."
                )
        return tuple(notes)

    def _notes_on_list(self, outside: Outside, column: str, path: Path) -> list[str]:
        """Return a sentence if queries like these records would be refused for a column.

        That is so if more than a fifth of the column's values are not listed.

        Args:
            outside: the values that are not listed; the column has some value.
            column: the name of the column in messages.
            path: the file, for the message of the error.

        Raises:
            DataError: no value is listed.
        """
        setting = f"{self.SETTING}.categorical.{outside.column}"
        if outside.count == outside.total:
            listed = self.categorical[outside.column]
            raise DataError(
                f"{path}: none of the {outside.total} values of {column} is in the list "
                f'{setting}, so all of them would count as "other". The column has '
                f"{outside.seen}, but the list has {few(repr(str(word)) for word in listed)}. "
                "Correct the list, or give the right file"
            )
        if outside.rate <= MAX_RATE_OUTSIDE:
            return []
        return [
            f"{outside.count} of {outside.total} values of {column} are not in the list "
            f'{setting}, so they count as "other" (for example {outside.seen}). Queries like these '
            "records would be refused, so list every public value that may occur."
        ]

    def _values_outside(
        self, content: Sequence[np.ndarray], ranges: Mapping[str, Limits], reader: ColumnReader
    ) -> list[Outside]:
        """Count the values of each column that are outside its range, or not in its list.

        Args:
            content: numbers and words, as ``_content`` returns them.
            ranges: the range of each numeric column.
            reader: the reader of these rows, which distinguishes dates from other numbers.
        """
        numbers, words = content
        outside_by_column = []
        for (name, limits), column in zip(ranges.items(), numbers.T, strict=True):
            outside = numbers_outside(name, column, limits, "{:g}".format)
            setting = f"{self.SETTING}.numeric.{name}"
            if outside.count and reader.holds_dates(name, setting, self.formats):
                outside = numbers_outside(name, column, limits, date_of)
            outside_by_column.append(outside)
        for (name, values), column in zip(self.categorical.items(), words.T, strict=True):
            outside_by_column.append(words_outside(name, column, [*map(str, values)]))
        return outside_by_column

    def _encoding(self, ranges: Mapping[str, Limits]) -> Encoding:
        """Return the encoding of rows as features, for given ranges of the numeric columns."""
        listed = {column: tuple(map(str, values)) for column, values in self.categorical.items()}
        return Encoding(ranges, listed, self.bins, self.crosses, self.missing == "indicator")

    def _format_of(self, column: str) -> CellFormat | None:
        """Return the declared format of a column's text; None: the format of the whole file."""
        declared_format = self.formats.get(column)
        if isinstance(declared_format, str):
            return DateFormat(declared_format)
        return declared_format

    def _scaling_fact(self) -> Fact:
        """Return the fact that ranges and lists are public, or the reason why they are not.

        Condition e of a privacy guarantee (preprocessing and settings are public) needs it.
        """
        marked = [name for name in self.from_data if self._is_feature(name)]
        if marked:
            return self._marked_fact(marked[0], len(marked) - 1)
        derived = [name for name, limits in self.numeric.items() if limits is None]
        if derived:
            column = derived[0]
            key = f"{self.SETTING}.numeric.{column}"
            return not_held("range_found", column=column, setting=key)
        setting = f"{self.SETTING}.numeric, {self.SETTING}.categorical"
        proposed = tuple(name for name in self.proposed_from_rows if self._is_feature(name))
        note = self.measurement
        if note is None and not proposed:
            return declared("columns_public", setting=setting)
        if note is None:
            return declared("columns_public_some_proposed", setting=setting, proposed=proposed)
        if not proposed:
            return declared(
                "columns_public_some_measured", setting=setting, measured=note.of, claim=note.claim
            )
        return declared(
            "columns_public_some_measured_some_proposed",
            setting=setting,
            measured=note.of,
            claim=note.claim,
            proposed=proposed,
        )

    def _is_feature(self, name: str) -> bool:
        """Return whether a column, and not the list of classes, has this name."""
        return name in self.numeric or name in self.categorical

    def _marked_fact(self, column: str, more: int) -> Fact:
        """Return the fact that a column's range or list was read off the records.

        Args:
            column: the column, which ``from_data`` lists.
            more: the number of further columns that the sentence lists.
        """
        is_numeric = column in self.numeric
        group = "numeric" if is_numeric else "categorical"
        code = "range_marked" if is_numeric else "list_marked"
        values: dict[str, Any] = {
            "column": column,
            "key": f"{self.SETTING}.{group}.{column}",
            "setting": f"{self.SETTING}.from_data",
        }
        if more:
            code = "range_and_more_marked" if is_numeric else "list_and_more_marked"
            values["more"] = more
        return not_held(code, **values)


class TrainingContent(NamedTuple):
    """The training records of a table before they are coded, in the order of the file.

    Attributes:
        numbers: [n, numeric columns] float64, NaN where missing.
        words: [n, categorical columns] text, None where missing.
        labels: [n] the labels.
        units: [n] the names of the units.
    """

    numbers: np.ndarray
    words: np.ndarray
    labels: np.ndarray
    units: np.ndarray


@schema
class Table(TableSettings, Columns, LabelledFile):
    """A file whose rows are records, and whose columns are numbers or categories (``Encoding``)."""

    formats: Mapping[ColumnName, DeclaredFormat] = Field(default_factory=dict)
    csv: CsvFormat = Field(default_factory=CsvFormat)

    def __post_init__(self) -> None:
        TableSettings.__post_init__(self)
        self._check_width()

    def _format_of(self, column: str) -> CellFormat | None:
        """Return the format of a column's text, by default that of the training file's csv.

        Queries that a program sends, or that are in a parquet file, have no csv format of their
        own. So their text is read like that of the training file.
        """
        declared_format = super()._format_of(column)
        if declared_format is None and self.csv.decimal != ".":
            return self.csv
        return declared_format

    @property
    def _label_format(self) -> CellFormat | None:
        return self._format_of(self.label)

    @property
    def _missing_labels(self) -> tuple[str, ...]:
        return self._markers if self.missing_label == "drop" else ()

    def _used_rows(self, columns: ColumnReader) -> ColumnReader:
        # The rows are chosen before anything is made of them: ids of equal rows are numbered, and
        # a row that is no record must not take a number.
        if self.missing_label == "error":
            return columns
        words = columns.words(self.label, "dataset.label", self._missing_labels)
        return columns.only_rows(np.array([not missing_word(word) for word in words], dtype=bool))

    def training_content(self) -> TrainingContent:
        """Read the training records, and return their content before it is coded.

        Raises:
            DataMissing: the file is not there.
            DataError: the file cannot be used.
        """
        rows = self._files()[0]
        numbers, words = rows.content
        return TrainingContent(
            numbers=numbers[rows.is_training],
            words=words[rows.is_training],
            labels=rows.labels[rows.is_training],
            units=rows.unit_names[rows.is_training],
        )

    def formula(self) -> dict[str, Any]:
        """Return a formula for the features of a csv's row, for programs that do not import agt.

        Empty if that needs more than comparing and looking up: crosses, formats, a decimal comma,
        or a file whose first line does not name the columns.
        """
        formatted = any(name in self.numeric for name in self.formats)
        if self.crosses or formatted or not self.csv.header or self.csv.decimal != ".":
            return {}
        encoding = self._encoding(self._limits(self._constants().ranges))
        return {
            "columns": encoding.feature_rules,
            "missing": [*NULLS, *self._markers],
            "separator": self.csv.separator,
            "encoding": self.csv.codec,
        }

    def with_constants(self, settled: Mapping[str, Any]) -> Self:
        """Return this table with classes and ranges that were read off the training records.

        Args:
            settled: the constants, ``Dataset.settled``.
        """
        numeric = dict(self.numeric)
        for name, limits in settled["ranges"].items():
            if self.numeric.get(name) is None and limits[0] < limits[-1]:
                numeric[name] = tuple(limits)  # of two values: a column of one value has no range
        return replace(super().with_constants(settled), numeric=numeric)

    def _files(self) -> list[FileRows]:
        """Read the rows of the file; with ``test``, also those of the file of test records."""
        if self.test is None:
            return super()._files()
        test = open_columns(self.test, "dataset.test or data_dir", self.data_dir, self.csv)
        return [self._rows(self._open(), FileRole.TRAINING), self._rows(test, FileRole.TEST)]

    def _features(self, files: Sequence[FileRows]) -> FileFeatures:
        """Return the features of every file, with ranges of the training records if necessary.

        Raises:
            DataError: a column has no value from which a range could be computed, or none of a
                categorical column's values is listed.
        """
        found_ranges = self._find_ranges(files[0])
        ranges = self._limits(found_ranges)
        encoding = self._encoding(ranges)
        return FileFeatures(
            arrays=[encoding.encode_compactly(*rows.content) for rows in files],
            coding=encoding.lookup,
            scaling=self._describe_scaling(encoding),
            settled={"ranges": found_ranges},
            notes=self._notes(_remaining_content(files), ranges, files[0].columns),
        )

    def _find_ranges(self, rows: FileRows) -> dict[str, Limits]:
        """Return the range of the training records for each numeric column without a declared one.

        Args:
            rows: the rows of the training file.

        Raises:
            DataError: a column has no value from which a range could be computed.
        """
        found = {}
        for index, (name, limits) in enumerate(self.numeric.items()):
            if limits is None:
                found[name] = _find_range(rows.content[0][rows.is_training, index], name)
        return found

    def _describe_scaling(self, encoding: Encoding) -> dict[str, object]:
        """Return the constants that make features, for the record of a run.

        Args:
            encoding: the encoding of rows, with the range of every numeric column.
        """
        scaling: dict[str, object] = {
            "numeric": {column: list(limits) for column, limits in encoding.limits.items()},
            "categorical": {
                column: [*values, "other"] for column, values in encoding.listed.items()
            },
            "missing": self.missing,
        }
        if encoding.thresholds:
            scaling["thresholds"] = encoding.thresholds
        if self.crosses:
            scaling["crosses"] = self.crosses
        scaling["classes"] = "found in the data" if self.classes is None else "given"
        return scaling

    def _constants(self) -> FileConstants:
        """Return the constants that queries need; the file is only opened if they require it."""
        if self.settled is None and self._listed and None not in self.numeric.values():
            return FileConstants(self._listed)
        return super()._constants()

    def _query_features(
        self, columns: ColumnReader, content: RowContent, constants: FileConstants
    ) -> np.ndarray:
        encoding = self._encoding(self._limits(constants.ranges))
        return encoding(*content)

    def _outside(
        self, columns: ColumnReader, content: RowContent, constants: FileConstants
    ) -> list[Outside]:
        return self._values_outside(content, self._limits(constants.ranges), columns)

    def _limits(self, found_ranges: Mapping[str, Limits]) -> dict[str, Limits]:
        """Return the range of each numeric column, the found one where none is declared."""
        return {name: given or found_ranges[name] for name, given in self.numeric.items()}

    def _selection(self, split: Fact, rows: FileRows) -> Evidence:
        facts = [*rows.facts, self.facts[0]]
        if self.missing_label == "drop":
            facts.append(declared("unlabelled_rows_left_out", setting="dataset.missing_label=drop"))
        return evidence(split, *facts)

    def _split_fact(self) -> Fact:
        if self.test is None:
            return super()._split_fact()
        return declared("split_by_file", file=self.test.name, setting="dataset.test")

    def _measured(self, part: str, code: str) -> Fact | None:
        """Return the fact that ``agt measure`` released a constant; None: no release is recorded.

        The constant is not declared. Only the fact that its value in the settings was not changed
        is declared.

        Args:
            part: ``SIZE`` or ``CLASSES``.
            code: the fact's.
        """
        if self.measurement is None or part not in self.measurement.of:
            return None
        return declared(code, claim=self.measurement.claim)

    def _size_fact(self) -> Fact | None:
        """Return the fact that the declared size was measured or proposed; None: neither."""
        if measured := self._measured(SIZE, "size_measured"):
            return measured
        if DECLARED_SIZE in self.proposed_from_rows and self.declared_size is not None:
            return declared(
                "size_public_proposed", size=self.declared_size, setting="dataset.declared_size"
            )
        return None

    def _classes_fact(self) -> Fact:
        """Return the fact that the classes are public, measured, proposed or read off records."""
        if CLASSES in self.from_data:
            return not_held("classes_read_off_records", setting="dataset.from_data")
        if measured := self._measured(CLASSES, "classes_measured"):
            return measured
        if CLASSES in self.proposed_from_rows and self.classes is not None:
            return declared("classes_public_proposed", setting="dataset.classes")
        return super()._classes_fact()


def _remaining_content(files: Sequence[FileRows]) -> RowContent:
    """Return the content of all records of some files that are not erased, in one array each."""
    if len(files) == 1 and not files[0].erased.any():
        return files[0].content
    part_count = len(files[0].content)
    return tuple(
        np.concatenate([rows.content[part][~rows.erased] for rows in files])
        for part in range(part_count)
    )


def _read_dataset_file(name: str) -> dict[str, Any]:
    """Return the settings in a dataset file, which has all settings of its table.

    Args:
        name: the path of the file, as messages show it.

    Raises:
        ConfigError: the file cannot be read, or includes another file.
    """
    path = Path(name)
    check_unquoted_points(path)
    try:
        node = parse_yaml(path.read_bytes(), name)
    except (OSError, Broken) as error:
        raise ConfigError(
            f"columns={name} cannot be read as a dataset file ({error}): give "
            "agt.Columns(...), or the path of a dataset file"
        ) from None
    included = [entry for entry in node.get("defaults") or () if isinstance(entry, str)]
    other_files = [entry for entry in included if entry not in ("table", "_self_")]
    if other_files:
        raise ConfigError(
            f"columns={name}: this file includes another file, {other_files[0]}, which "
            "agt.Columns does not read: give one file that contains everything"
        )
    return node


def _find_range(column: np.ndarray, name: str) -> Limits:
    """Return the smallest and the largest number of a column, [n] float64 with NaN where missing.

    Raises:
        DataError: every number is missing, or their difference overflows.
    """
    if np.isnan(column).all():
        raise DataError(
            f"column '{name}' has no training value from which a range could be computed: "
            f"give its public range as dataset.numeric.{name}"
        )
    low = float(np.nanmin(column))
    high = float(np.nanmax(column))
    if not np.isfinite(2 * (high - low)):
        raise DataError(
            f"column '{name}' has values from {low:g} to {high:g}, a range that is too wide "
            f"to compute with: give its public range as dataset.numeric.{name}"
        )
    return low, high
