"""The user's own table: numeric columns with public ranges, categorical columns with public lists
of values.

A number x with public edges e_0 < ... < e_m is clipped to [e_0, e_m] and becomes m - 1 features, of
which the j-th is +1 / sqrt(m - 1) where x >= e_j and -1 / sqrt(m - 1) elsewhere, j = 1 .. m - 1. So
every number has length 1, as a category's one-hot has, whatever its bins; rows of a table without
gaps have one length; and the product of two rows falls linearly with the bins between them. Edges
are given, or made from a range [low, high] alone: ``bins`` equal parts, and ``HALVINGS`` halvings
of each side toward its number nearest to 0, so that a balance between 0 and a million is told apart
where balances are. A missing number has no feature but, where asked, its indicator. Without bins a
number is scaled to [-1, 1], and a missing one is 0.

A category has one feature for each listed value and one for any other; a missing one has none but
its indicator.

Crosses: two columns' slots (bin, value, other) make one name, hashed with a public key to a bucket
and a sign. Each pair adds +-sqrt(columns / pairs) there, so that all pairs together weigh as much
as all columns, collisions aside.

Formal guarantees
    Each alone. A feature is made from its own row and public constants by comparisons, table
    look-ups and, for scaled numbers, elementwise float64 operations, each rounded alone; pairs are
    added in one fixed order. So a row has the same bits whatever rows stand beside it, which
    condition b asks for (reference.md section 3b).
"""

import math
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import pyarrow as pa
from pydantic import Field

from agt.data.arrays import as_array
from agt.data.cell_values import NULLS
from agt.data.coded import MAX_LEVELS, CodedFeatures, Lookup, RowLookup
from agt.data.column_reader import ColumnReader
from agt.data.csv_format import CsvFormat
from agt.data.file_settings import ColumnsSettings, FileConstants, TableSettings
from agt.data.files import open_columns, same_length
from agt.data.formats import CellFormat, DateFormat, DeclaredFormat
from agt.data.ids import keyed_hash
from agt.data.labelled import FileFeatures, FileRows, LabelledFile, RowContent
from agt.data.population import Outside, population_mismatches
from agt.data.settings import CLASSES, DECLARED_SIZE, MOST_FEATURES, SIZE, ColumnName, Limits
from agt.errors import ConfigError, DataError, few
from agt.facts import Evidence, Fact, declared, evidence, not_held
from agt.settings import schema, validate
from agt.store.reading import Broken
from agt.store.yaml_text import parse_yaml

HALVINGS = 10
CROSS_KEY = "table/crosses"
_NO_SLOT = -1  # of a missing value
MAX_COMPARED_EDGES = 100  # of one column; of more, a binary search is faster
COMPARED_ROWS = 2**14  # numbers of a column that are compared at once, so that they stay in cache
ARRAY_BYTES = 2**27  # features of a file that need more are held as codes


# -- what columns are, and the source
# -------------------------------------------------------------------------------------


@schema
class Columns(ColumnsSettings):
    """Which columns of a table are features, and the public constants that code them.

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

    def _check_width(self) -> None:
        # Features of a row, where a range that is not declared is pretended.
        pretended = {column: limits or (0.0, 1.0) for column, limits in self.numeric.items()}
        width = self._encoding(pretended).width
        if width > MOST_FEATURES:
            raise ValueError(
                f"these columns are encoded as {width} features, but at most {MOST_FEATURES} are "
                "allowed: shorten the lists under 'categorical', or lower 'bins' or 'crosses'"
            )

    @classmethod
    def of(cls, given: "Columns | str | Path", units: object = None) -> "Columns":
        """Itself, or what a dataset file such as ``agt data inspect`` writes says of columns.

        Args:
            units: whose rows they are, if that was given.

        Raises:
            ConfigError: the file is none, or cannot be read; or it names a unit, and ``units`` was
                not given; or it goes on from another, which may name one.
        """
        if isinstance(given, cls):
            return given
        if not isinstance(given, str | Path):
            raise ConfigError(
                f"columns={given!r} is neither agt.Columns nor the path of a dataset file: give "
                'columns=agt.Columns(numeric={"age": [18, 100]}, categorical={"sex": ["f", "m"]}), '
                "with the columns of your data frame"
            )
        try:
            node = parse_yaml(Path(str(given)).read_bytes(), str(given))
        except (OSError, Broken) as error:
            raise ConfigError(
                f"columns={given} cannot be read as a dataset file ({error}): give "
                "agt.Columns(...), or the path of a dataset file"
            ) from None
        others = [
            name
            for name in node.get("defaults") or ()
            if isinstance(name, str) and name not in ("table", "_self_")
        ]
        if others:
            raise ConfigError(
                f"columns={given}: this file includes another file, {others[0]}, which "
                "agt.Columns does not read: give one file that contains everything"
            )
        if node.get("unit") and units is None:
            raise ConfigError(
                f"columns={given}: this file says that column '{node['unit']}' names the person "
                "of each row (unit). In Python, give this column with units=, and the largest "
                "number of rows of one person with unit_rows="
            )
        return validate(
            cls, {name: node[name] for name in cls.__dataclass_fields__ if name in node}, str(given)
        )

    def __call__(self, frame: object) -> np.ndarray:
        """[n, features] float32: each row's from that row alone, whatever its values are
        (``code_queries``).

        Raises:
            ConfigError: no data frame, or a numeric column without a range.
            DataError: a column is not there, or a value is not of its kind, infinite, or missing
                where that is refused.
        """
        return self._encoding(self._ranges)(*self._content(_reader_of(frame)))

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
        content = self._content(_reader_of(frame))
        if mismatches := population_mismatches(
            self._compared(content, self._ranges), len(content[0])
        ):
            raise DataError(
                f"data frame: {'; '.join(mismatches)}. Remove these queries, or train with "
                "columns (agt.Columns) that allow their values"
            )
        return self._encoding(self._ranges)(*content)

    def notes(self, frame: object) -> tuple[str, ...]:
        """Return what does not fit what is declared, a sentence each, for the records' owner.

        There are sentences about values outside of a range and about lists that many values are not
        in; a few unlisted values are not mentioned. Empty: nothing was found.

        Raises:
            DataError: a categorical column of which every value would count as other.
        """
        reader = _reader_of(frame)
        return self._notes(self._content(reader), self._ranges, reader.path)

    @property
    def facts(self) -> tuple[Fact, Fact]:
        """What conditions b and e rest on."""
        return declared("columns_made_alone"), self._scaling_fact()

    @property
    def _ranges(self) -> dict[str, Limits]:
        unknown = [name for name, limits in self.numeric.items() if limits is None]
        if unknown:
            raise ConfigError(
                f"columns.numeric.{unknown[0]}: give the public range of this column, [low, high]"
            )
        return {name: limits for name, limits in self.numeric.items() if limits}

    def _content(self, columns: ColumnReader) -> RowContent:
        """[n, numeric] float64 with NaN and [n, categorical] text with None, where values are
        missing.

        Raises:
            DataError: a value is infinite, or missing where that is refused.
        """
        parts: dict[str, np.ndarray] = {
            name: columns.numbers(
                name, f"{self.SETTING}.numeric.{name}", self._markers, self._format_of(name)
            )
            for name in self.numeric
        }
        for name, values in self.categorical.items():
            parts[name] = columns.words(name, f"{self.SETTING}.categorical.{name}", self._markers)
            columns.refuse_missing_words(f"{self.SETTING}.categorical.{name}", values)
        n = len(next(iter(parts.values())))
        same_length(columns.path, n, parts)
        # Column by column in memory, as they are filled and read.
        numbers = np.empty((n, len(self.numeric)), order="F")
        words = np.empty((n, len(self.categorical)), dtype=object, order="F")
        groups = (("numeric", numbers, self.numeric), ("categorical", words, self.categorical))
        for kind, into, group in groups:
            for place, name in enumerate(group):
                into[:, place] = column = parts.pop(name)
                bad = pd.isna(column) & (self.missing == "error")
                why = (
                    f"correct or remove this row, or train with {self.SETTING}.missing=indicator, "
                    "which allows missing values"
                )
                setting = f"{self.SETTING}.{kind}.{name}"
                columns.refuse(name, setting, bad, column, why)
                bad = np.isinf(column) if group is self.numeric else np.zeros(n, dtype=bool)
                columns.refuse(
                    name,
                    setting,
                    bad,
                    column,
                    "an infinite value cannot be a feature: correct or remove this row",
                )
        return numbers, words

    def _notes(
        self, content: Sequence[np.ndarray], ranges: Mapping[str, Limits], path: Path
    ) -> tuple[str, ...]:
        # How columns and declarations fit, for the data owner. Raises DataError where every value
        # would count as other.
        notes = []
        for outside in self._compared(content, ranges):
            column, share = (
                f"column '{outside.column}'",
                f"{outside.count} of {outside.total} values",
            )
            listed, setting = (
                self.categorical.get(outside.column),
                f"{self.SETTING}.categorical.{outside.column}",
            )
            if not outside.total:
                notes.append(f"no record has a value in {column}.")
            elif listed and outside.count == outside.total:
                raise DataError(
                    f"{path}: none of the {outside.total} values of {column} is in the list "
                    f'{setting}, so all of them would count as "other". The column has '
                    f"{outside.seen}, but the list has {few(repr(str(word)) for word in listed)}. "
                    "Correct the list, or give the right file"
                )
            elif listed and outside.rate > 0.5:
                notes.append(
                    f"{share} of {column} are not in the list {setting}, so they count as "
                    f'"other" (for example {outside.seen}).'
                )
            elif outside.count == outside.total and not listed:
                # No error: an erasure may leave such records, and must not be refused.
                notes.append(
                    f"ALL {outside.total} values of {column} are outside the declared range "
                    f"{outside.declared}, so clipping leaves next to nothing to learn from. The "
                    f"values range from {outside.seen}. Check {self.SETTING}.numeric."
                    f"{outside.column} (a point there is a decimal point, so 10.000 is 10)."
                )
            elif outside.count and not listed:
                notes.append(
                    f"{share} of {column} are outside the declared range {outside.declared}, so "
                    f"they are clipped to this range (the values range from {outside.seen})."
                )
        return tuple(notes)

    def _compared(
        self, content: Sequence[np.ndarray], ranges: Mapping[str, Limits]
    ) -> list[Outside]:
        # How many numbers of each column are outside its range, and how many words outside its
        # list.
        found = []
        for (name, limits), column in zip(ranges.items(), content[0].T, strict=True):
            known = column[~np.isnan(column)]
            with np.errstate(over="ignore"):
                distance = np.maximum(limits[0] - known, known - limits[-1])
            count, far = int((distance > 0).sum()), int((distance > limits[-1] - limits[0]).sum())
            seen = f"{known.min():g} to {known.max():g}" if len(known) else "no value"
            found.append(
                Outside(name, count, len(known), f"[{limits[0]:g}, {limits[-1]:g}]", seen, far)
            )
        for (name, values), column in zip(self.categorical.items(), content[1].T, strict=True):
            codes, words = pd.factorize(column)  # words as they occur first; the code of None is -1
            counts = np.bincount(codes[codes >= 0], minlength=len(words)).tolist()
            listed = {*map(str, values)}
            unlisted = {
                word: n for word, n in zip(words, counts, strict=True) if word not in listed
            }
            others = list(unlisted)
            count = sum(unlisted.values())
            total = sum(counts)
            seen = few(map(repr, others)) if total else "no value"
            declared = f"the {len(values)} listed"
            found.append(Outside(name, count, total, declared, seen, far=count, is_list=True))
        return found

    def _encoding(self, ranges: Mapping[str, Limits]) -> "Encoding":
        listed = {column: tuple(map(str, values)) for column, values in self.categorical.items()}
        return Encoding(ranges, listed, self.bins, self.crosses, self.missing == "indicator")

    def _format_of(self, column: str) -> CellFormat | None:
        # How a column's text is declared to be written; None: as text of its file is.
        declared_format = self.formats.get(column)
        if isinstance(declared_format, str):
            return DateFormat(declared_format)
        return declared_format

    def _scaling_fact(self) -> Fact:
        at = self.SETTING
        marked = [name for name in self.from_data if self._is_feature(name)]
        if marked:
            return _marked_fact(
                marked[0],
                len(marked) - 1,
                at,
                "numeric" if marked[0] in self.numeric else "categorical",
            )
        derived = [name for name, limits in self.numeric.items() if limits is None]
        if derived:
            return not_held("range_found", column=derived[0], setting=f"{at}.numeric.{derived[0]}")
        setting = f"{at}.numeric, {at}.categorical"
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


def _marked_fact(column: str, more: int, at: str, group: str) -> Fact:
    """Return that a column's range or list was read off the records, and of how many columns
    more.
    """
    values = {"column": column, "key": f"{at}.{group}.{column}", "setting": f"{at}.from_data"}
    if more:
        code = "range_and_more_marked" if group == "numeric" else "list_and_more_marked"
        return not_held(code, more=more, **values)
    return not_held("range_marked" if group == "numeric" else "list_marked", **values)


@schema
class Table(TableSettings, Columns, LabelledFile):
    """Numeric columns are scaled or coded by bins, clipped to a public range; categorical ones are
    one-hot with a slot for others; pairs of columns may be crossed (``Encoding``).
    """

    formats: Mapping[ColumnName, DeclaredFormat] = Field(default_factory=dict)
    csv: CsvFormat = Field(default_factory=CsvFormat)

    def __post_init__(self) -> None:
        TableSettings.__post_init__(self)
        self._check_width()

    def _format_of(self, column: str) -> CellFormat | None:
        # Queries that a program sends, or that come as parquet, have no csv format of their own.
        # Text in them is read as text of the training file's csv is.
        declared_format = super()._format_of(column)
        if declared_format is None and self.csv.decimal != ".":
            return self.csv
        return declared_format

    @property
    def _label_format(self) -> CellFormat | None:
        return self._format_of(self.label)

    def training_content(self) -> tuple[RowContent, np.ndarray, np.ndarray]:
        """Of the training records: numbers and words by column ([n, ...], before they are coded),
        labels and units.

        Raises:
            DataMissing, DataError: as ``load``.
        """
        (rows, *_) = self._files()
        units = rows.ids if rows.units is None else rows.units
        return (
            tuple(part[rows.train] for part in rows.content),
            rows.labels[rows.train],
            units[rows.train],
        )

    def formula(self) -> dict[str, Any]:
        """How features are made of a row of a csv, for readers without agt; empty: this is
        beyond them.
        """
        formatted = any(name in self.numeric for name in self.formats)
        if self.crosses or formatted or not self.csv.header or self.csv.decimal != ".":
            return {}
        return {
            "columns": self._encoding(self._limits(self._constants())).rows,
            "missing": [*NULLS, *self._markers],
            "separator": self.csv.separator,
            "encoding": self.csv.codec,
        }

    def stated(self, settled: Mapping[str, Any]) -> Self:
        """As ``LabelledFile.stated``, with the ranges that were taken from the training records."""
        found = {
            name: tuple(limits)
            for name, limits in settled["ranges"].items()
            if limits[0] < limits[-1]
        }
        # one value alone is no range
        given = {name: limits or found.get(name) for name, limits in self.numeric.items()}
        return replace(super().stated(settled), numeric=given)

    def _files(self) -> list[FileRows]:
        if self.test is None:
            return super()._files()
        test = open_columns(self.test, "dataset.test or data_dir", self.data_dir, self.csv)
        return [self._rows(self._open(), test=False), self._rows(test, test=True)]

    def _features(self, files: Sequence[FileRows]) -> FileFeatures:
        ranges = {}
        for place, (name, given) in enumerate(self.numeric.items()):
            if given is not None:
                ranges[name] = given
                continue
            trained = files[0].content[0][files[0].train, place]
            ranges[name] = _range_of(trained, name)
        encoding = self._encoding(ranges)
        there: RowContent = files[0].content
        if len(files) > 1 or files[0].erased.any():
            known = (tuple(part[~rows.erased] for part in rows.content) for rows in files)
            there = tuple(np.concatenate(arrays) for arrays in zip(*known, strict=True))
        return FileFeatures(
            arrays=[encoding.of_many(*rows.content) for rows in files],
            coding=encoding.lookup,
            scaling={
                "numeric": {column: list(limits) for column, limits in ranges.items()},
                "categorical": {
                    column: [*map(str, values), "other"]
                    for column, values in self.categorical.items()
                },
                "missing": self.missing,
                **({"thresholds": encoding.thresholds} if encoding.thresholds else {}),
                **({"crosses": self.crosses} if self.crosses else {}),
                "classes": "given" if self.classes is not None else "found in the data",
            },
            settled={
                "ranges": {
                    name: limits for name, limits in ranges.items() if self.numeric[name] is None
                }
            },
            notes=self._notes(there, ranges, files[0].columns.path),
        )

    def _constants(self) -> FileConstants:
        if self.settled is None and self._listed and None not in self.numeric.values():
            return FileConstants(self._listed)
        return super()._constants()

    def _query_features(
        self, columns: ColumnReader, content: RowContent, constants: FileConstants
    ) -> np.ndarray:
        return self._encoding(self._limits(constants))(*content)

    def _outside(self, content: RowContent, constants: FileConstants) -> list[Outside]:
        return self._compared(content, self._limits(constants))

    def _limits(self, constants: FileConstants) -> dict[str, Limits]:
        return {name: given or constants.ranges[name] for name, given in self.numeric.items()}

    def _selection(self, split: Fact, rows: FileRows) -> Evidence:
        return evidence(split, *rows.facts, self.facts[0])

    def _split_fact(self) -> Fact:
        if self.test is None:
            return super()._split_fact()
        return declared("split_by_file", file=self.test.name, setting="dataset.test")

    def _measured(self, part: str, code: str) -> Fact | None:
        # What agt measure told is nobody's declaration; that it stands as it was written is.
        if self.measurement is None or part not in self.measurement.of:
            return None
        return declared(code, claim=self.measurement.claim)

    def _size_fact(self) -> Fact | None:
        if measured := self._measured(SIZE, "size_measured"):
            return measured
        if DECLARED_SIZE in self.proposed_from_rows and self.declared_size is not None:
            return declared(
                "size_public_proposed", size=self.declared_size, setting="dataset.declared_size"
            )
        return None

    def _classes_fact(self) -> Fact:
        if CLASSES in self.from_data:
            return not_held("classes_read_off_records", setting="dataset.from_data")
        if measured := self._measured(CLASSES, "classes_measured"):
            return measured
        if CLASSES in self.proposed_from_rows and self.classes is not None:
            return declared("classes_public_proposed", setting="dataset.classes")
        return super()._classes_fact()


def _reader_of(frame: object) -> ColumnReader:
    if not isinstance(frame, pd.DataFrame):
        raise ConfigError(
            f"columns=agt.Columns(...) needs a pandas data frame, but got {type(frame).__name__}"
        )
    names = tuple(map(str, frame.columns))
    columns = dict(zip(names, range(len(names)), strict=True))
    return ColumnReader(
        Path("data frame"), names, lambda name: _array_of(frame.iloc[:, columns[name]], name)
    )


def _array_of(column: pd.Series, name: str) -> pa.Array:
    """Arrow's, which reads objects of many kinds as the first of them is: so all have to be of one.

    Raises:
        DataError: they are not.
    """
    held = column.cat.categories if isinstance(column.dtype, pd.CategoricalDtype) else column
    kinds = {_kind_of(value) for value in held[~pd.isna(held)]} if held.dtype == object else set()
    if len(kinds) > 1:
        raise DataError(
            f"data frame: column '{name}' contains {' and '.join(sorted(kinds)[:2])}: write "
            "all values in one form"
        )
    array = pa.array(column, from_pandas=True)
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _kind_of(value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "numbers"
    zone = getattr(value, "tzinfo", None)
    return (
        "text" if isinstance(value, str) else type(value).__name__ + (f" of {zone}" if zone else "")
    )


def _range_of(column: np.ndarray, name: str) -> Limits:
    if np.isnan(column).all():
        raise DataError(
            f"column '{name}' has no training value from which a range could be computed: "
            f"give its public range as dataset.numeric.{name}"
        )
    low, high = float(np.nanmin(column)), float(np.nanmax(column))
    if not np.isfinite(2 * (high - low)):
        raise DataError(
            f"column '{name}' has values from {low:g} to {high:g}, a range that is too wide "
            f"to compute with: give its public range as dataset.numeric.{name}"
        )
    return low, high


# -- features
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Encoding:
    """The public constants that turn rows into features.

    Attributes:
        limits: numeric column -> its range, or the edges of its bins.
        listed: categorical column -> its values.
        bins: how many equal parts a range is cut into; below 2: none, and it is scaled.
        crosses: buckets for pairs of columns; 0: none.
        indicator: add a 0/1 feature for each column, 1 where it is missing.
    """

    limits: Mapping[str, tuple[float, ...]]
    listed: Mapping[str, tuple[str, ...]]
    bins: int = 0
    crosses: int = 0
    indicator: bool = False

    @cached_property
    def thresholds(self) -> dict[str, list[float]]:
        """Numeric columns with bins -> the edges between these."""
        inner = {column: self._between(limits) for column, limits in self.limits.items()}
        return {column: edges for column, edges in inner.items() if edges}

    def _between(self, limits: tuple[float, ...]) -> list[float]:
        low, high = limits[0], limits[-1]
        if len(limits) > 2:
            return list(limits[1:-1])
        # a range of one point was found in the data: the column never changes
        if self.bins < 2 or low == high:
            return []
        near = min(max(0.0, low), high)
        equal = [low + (high - low) * (j / self.bins) for j in range(1, self.bins)]
        halved = [near + (end - near) * 2.0**-j for end in (low, high) for j in range(HALVINGS + 1)]
        return sorted(edge for edge in {near, *equal, *halved} if low < edge < high)

    @property
    def widths(self) -> dict[str, int]:
        """Features of each column, in their order: numbers, then categories."""
        numbers = {column: len(self.thresholds.get(column, [0.0])) for column in self.limits}
        return numbers | {column: len(values) + 1 for column, values in self.listed.items()}

    @property
    def width(self) -> int:
        """Features of a row."""
        gaps = (len(self.limits) + len(self.listed)) if self.indicator else 0
        return sum(self.widths.values()) + gaps + self.crosses

    @property
    def rows(self) -> list[list[Any]]:
        """Each feature but crosses as [column, kind, *constants], for readers without agt.

        from edge unit: unit where the number is at least edge, else -unit, 0 where it is missing.
        range low high: the number clipped to it and scaled to [-1, 1], 0 where it is missing. is
        word: 1 where the text is that word. other words: 1 where there is text, and none of them.
        unknown, missing: 1 where there is no number, no text.
        """
        rows: list[list[Any]] = []
        for column, limits in self.limits.items():
            edges = self.thresholds.get(column)
            rows += (
                [[column, "range", *limits]]
                if edges is None
                else [[column, "from", e, _unit(edges)] for e in edges]
            )
        for column, values in self.listed.items():
            rows += [*([column, "is", value] for value in values), [column, "other", *values]]
        if self.indicator:
            rows += [[column, "unknown"] for column in self.limits] + [
                [column, "missing"] for column in self.listed
            ]
        return rows

    def __call__(self, numbers: np.ndarray, words: np.ndarray) -> np.ndarray:
        """Features of rows.

        Args:
            numbers: [n, numeric columns] float64, NaN where missing.
            words: [n, categorical columns] text, None where missing.

        Returns:
            [n, width] float32: numbers, categories, indicators, crosses.
        """
        features = np.zeros((len(numbers), self.width), dtype=np.float32)
        slots, start = [], 0
        for (column, width), values in zip(
            self.widths.items(), (*numbers.T, *words.T), strict=True
        ):
            block = features[:, start : start + width]
            slots.append(self._fill(block, column, values))
            start += width
        if self.indicator:
            features[:, start : start + len(slots)] = np.stack(
                [*np.isnan(numbers).T, *pd.isna(words).T], axis=1
            )
        if self.crosses:
            self._cross(features[:, -self.crosses :], slots)
        return features

    def of_many(self, numbers: np.ndarray, words: np.ndarray) -> np.ndarray:
        """Return the same features, held as codes if they need much memory and codes suffice.

        Args:
            numbers: as in ``__call__``.
            words: as in ``__call__``.

        Returns:
            [n, width] float32, an array or ``CodedFeatures``.
        """
        size = len(numbers) * self.width * np.dtype(np.float32).itemsize
        lookup = self.lookup if size > ARRAY_BYTES else None
        if lookup is None:
            return self(numbers, words)
        codes = np.empty((len(numbers), len(self.widths)), dtype=np.uint8)
        columns = zip(self.widths, (*numbers.T, *words.T), strict=True)
        for place, (column, values) in enumerate(columns):
            slots = self._slots(column, values)
            missing = len(lookup.lookups[place].levels) - 1
            codes[:, place] = np.where(slots == _NO_SLOT, missing, slots)
        return as_array(CodedFeatures(codes, lookup))

    @cached_property
    def lookup(self) -> RowLookup | None:
        """How codes become features: a column's code is its slot, or the last one where missing.

        None: a column has too many slots for a code, or is scaled, or pairs are crossed.
        """
        scaled = self.limits.keys() - self.thresholds.keys()
        if scaled or self.crosses or max(self.widths.values()) + 2 > MAX_LEVELS:
            return None
        lookups = []
        for place, (column, width) in enumerate(self.widths.items()):
            if column in self.listed:
                levels = np.eye(width, dtype=np.float32)
            else:
                levels = _thermometer_levels(self.thresholds[column])
            missing = np.zeros((1, width), dtype=np.float32)
            lookups.append(Lookup(place, np.concatenate([levels, missing])))
        if self.indicator:
            for lookup in [*lookups]:
                is_missing = np.zeros((len(lookup.levels), 1), dtype=np.float32)
                is_missing[-1] = 1
                lookups.append(Lookup(lookup.column, is_missing))
        return RowLookup(tuple(lookups))

    def _slots(self, column: str, values: np.ndarray) -> np.ndarray:
        """Return the slot of each row of a column that is not scaled, ``_NO_SLOT`` where missing.

        Args:
            column: its name.
            values: [n] its numbers or words.

        Returns:
            [n] integers.
        """
        if column in self.listed:
            return _word_slots(values, self.listed[column])
        return _number_slots(values, np.array(self.thresholds[column]))

    def _fill(self, block: np.ndarray, column: str, values: np.ndarray) -> np.ndarray:
        # Write one column's features; returns [n] the slot of each row, ``_NO_SLOT`` of a missing
        # value.
        if column in self.listed:
            return _one_hot(block, values, self.listed[column])
        edges = self.thresholds.get(column)
        if edges is None:
            block[:, 0] = _scaled(values, *self.limits[column])
            return np.where(np.isnan(values), _NO_SLOT, 0)
        return _thermometer(block, values, np.array(edges))

    def _cross(self, block: np.ndarray, slots: list[np.ndarray]) -> None:
        pairs = list(combinations(zip(self.widths, slots, strict=True), 2))
        rows, share = np.arange(len(block)), math.sqrt(len(slots) / max(1, len(pairs)))
        for (first, left), (second, right) in pairs:
            many = int(right.max(initial=0)) + 2
            met, home = np.unique((left + 1) * many + right + 1, return_inverse=True)
            names = np.stack([met // many - 1, met % many - 1])
            hashes = keyed_hash([f"{first}\0{a}\0{second}\0{b}" for a, b in names.T], CROSS_KEY)
            weight = np.where(hashes >> np.uint64(63), share, -share)
            weight[(names == _NO_SLOT).any(axis=0)] = 0.0
            bucket = (hashes % np.uint64(self.crosses)).astype(np.int64)
            block[rows, bucket[home]] += weight.astype(np.float32)[home]


def _one_hot(block: np.ndarray, words: np.ndarray, values: tuple[str, ...]) -> np.ndarray:
    slots = _word_slots(words, values)
    (known,) = np.nonzero(slots != _NO_SLOT)
    block[known, slots[known]] = 1.0
    return slots


def _word_slots(words: np.ndarray, values: tuple[str, ...]) -> np.ndarray:
    """Return the place of each word in a list, the one behind it for others, _NO_SLOT for None."""
    slots = pd.Index(values, dtype=object).get_indexer(pd.Index(words, dtype=object))
    (unlisted,) = np.nonzero(slots < 0)
    slots[unlisted] = np.where(pd.isna(words[unlisted]), _NO_SLOT, len(values))
    return slots


def _thermometer(block: np.ndarray, numbers: np.ndarray, edges: np.ndarray) -> np.ndarray:
    # Each of the ordered edges that a number reaches counts +, each other one -.
    slots = _number_slots(numbers, edges)
    block[:] = _thermometer_levels(edges)[slots]
    block[slots == _NO_SLOT] = 0.0
    return slots


def _number_slots(numbers: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return how many of the ordered edges each number reaches, _NO_SLOT for NaN."""
    if len(edges) <= MAX_COMPARED_EDGES and len(numbers) > COMPARED_ROWS:
        slots = _count_reached(numbers, edges)
    else:
        slots = np.searchsorted(edges, numbers, side="right")
    return np.where(np.isnan(numbers), _NO_SLOT, slots)


def _count_reached(numbers: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return how many of at most ``MAX_COMPARED_EDGES`` edges each number reaches, [n] int64.

    Many numbers are compared with every edge in a third of the time of a binary search.
    """
    reached = np.empty(len(numbers), dtype=np.int64)
    for start in range(0, len(numbers), COMPARED_ROWS):
        block = numbers[start : start + COMPARED_ROWS]
        count = np.zeros(len(block), dtype=np.uint8)
        for edge in edges:
            count += block >= edge
        reached[start : start + COMPARED_ROWS] = count
    return reached


def _thermometer_levels(edges: Sized) -> np.ndarray:
    """Return [m + 1, m] float32, the features of a number that reaches 0, 1, ... of m edges."""
    unit = np.float32(_unit(edges))
    count = len(edges)
    return np.where(np.arange(count) < np.arange(count + 1)[:, None], unit, -unit)


def _unit(edges: Sized) -> float:
    # What each edge of a column counts, in float32: all of them together have length 1.
    return float(np.float32(1 / math.sqrt(len(edges))))


def _scaled(numbers: np.ndarray, low: float, high: float) -> np.ndarray:
    # [-1, 1], clipped; a missing value, and a range of one point, become 0.
    if low == high:
        return np.zeros(len(numbers))
    scaled = 2 * (np.clip(numbers, low, high) - low) / (high - low) - 1
    return np.where(np.isnan(numbers), 0.0, scaled)
