"""The user's own table: numeric columns with public ranges, categorical columns with public lists of values."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field

from agt.data.assemble import same_length
from agt.data.checks import Word, check_edges, check_values, clipped, outside_list, outside_range
from agt.data.dataset import DataError, Outside
from agt.data.declarations import features_fact, split_fact
from agt.data.delimited import NULLS, CsvFormat
from agt.data.encoding import Encoding, absent
from agt.data.files import Columns, open_columns
from agt.data.labelled import Content, Features, LabelledFile, Rows, Settled
from agt.errors import nearest
from agt.facts import Fact, Grounds, declared, grounds, void
from agt.settings import schema

Limits = tuple[float, ...]
MOST_FEATURES = 2**16
CLASSES = "classes"
"""What ``from_data`` calls the list of classes."""


@schema
class Table(LabelledFile):
    """Numeric columns are scaled or coded by bins, clipped to a public range; categorical ones are one-hot with a slot for
    others; pairs of columns may be crossed (``encoding.py``).

    Attributes (the others: ``LabelledFile``):
        path: csv, parquet or npz.
        numeric: column -> public [low, high], or more numbers: public edges of bins, increasing, the first and the last
            being the range; null: the range is taken from the training records, which is not public.
        categorical: column -> public list of values.
        bins: how many equal parts a range is cut into for its thermometer code; 0: it is scaled to [-1, 1] instead.
        crosses: buckets that pairs of columns' values are hashed into; 0: no crosses.
        split: column with train or test for each record; None: a hash split, unless ``test`` is given.
        test: a second file with the test records.
        missing: refuse a missing value, or turn it into 0 and add a 0/1 feature to each column.
        missing_values: text that stands for a missing value in columns of features, beside an empty cell, NA and the like.
        csv: how a csv is cut into cells; queries are read alike.
        from_data: columns whose range or list of values was read off the records and declared public by nobody; the word
            classes, of the list of classes. Their owner replaces them by what is public, or takes them off this list.
    """

    SPLIT: ClassVar[str] = "split"

    numeric: Mapping[str, Annotated[Limits, Field(min_length=2)] | None] = Field(default_factory=dict)
    categorical: Mapping[str, Annotated[tuple[Word, ...], Field(min_length=1)]] = Field(default_factory=dict)
    split: str | None = None
    test: Path | None = None
    missing: Literal["error", "indicator"] = "error"
    bins: Annotated[int, Field(ge=0, le=1024)] = 0
    crosses: Annotated[int, Field(ge=0, le=MOST_FEATURES)] = 0
    missing_values: tuple[Word, ...] = ()
    csv: CsvFormat = Field(default_factory=CsvFormat)
    from_data: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.numeric and not self.categorical:
            raise ValueError("name at least one column under numeric or categorical")
        for column, limits in self.numeric.items():
            if limits is not None:
                check_edges(f"numeric.{column}", limits)
        for column, values in self.categorical.items():
            if len({str(value) for value in values}) < len(values):
                raise ValueError(f"categorical.{column} repeats a value")
            both = {str(value) for value in values} & {*self._missing_words}
            if both:
                raise ValueError(f"categorical.{column} lists {min(both)!r}, which missing_values takes for no value")
        twice = set(self.numeric) & set(self.categorical)
        if twice:
            raise ValueError(f"column {min(twice)} is both numeric and categorical")
        if self.crosses and len(self.numeric) + len(self.categorical) < 2:
            raise ValueError("crosses are made of pairs of columns, and there is one column")
        self._refuse_too_many()
        if self.split is not None and self.test is not None:
            raise ValueError("give either split (a column) or test (a file), not both")
        if self.test == self.path:
            raise ValueError("test is the file of the training records itself: give another, or leave it out")
        super().__post_init__()
        inputs, taken = {*self.numeric, *self.categorical}, {self.label, self.id, self.unit, self.public, self.split}
        if inputs & taken:
            raise ValueError(f"column {min(map(str, inputs & taken))} cannot be a feature: it has another part")
        for name in self.from_data:
            if name not in {*inputs, CLASSES}:
                hint = nearest(name, [*inputs, CLASSES])
                raise ValueError(f"from_data names '{name}', no column of numeric or categorical, nor '{CLASSES}'{hint}")

    def _settle(self) -> Settled:
        known = self.classes is not None and None not in self.numeric.values()
        files = [] if known else self._files()
        found = {name: limits for name, limits in self._ranges(files).items() if self.numeric[name] is None}
        return Settled(self._classes(files), ranges=found)

    def _asked(self, columns: Columns, content: Content, settled: Settled) -> np.ndarray:
        return self._scaled(content, self._limits(settled))

    def _misfit(self, content: Content, settled: Settled) -> tuple[Outside, ...]:
        return self._outside(content, self._limits(settled))

    def _counted(self, content: Content) -> dict[str, int]:
        numbers, words = content
        there = (*(~np.isnan(numbers)).sum(axis=0), *(~absent(words)).sum(axis=0))
        return dict(zip((*self.numeric, *self.categorical), map(int, there), strict=True))

    def _limits(self, settled: Settled) -> dict[str, Limits]:
        return {name: given or settled.ranges[name] for name, given in self.numeric.items()}

    @property
    def _form(self) -> CsvFormat:
        return self.csv

    def formula(self) -> dict[str, Any]:
        """How features are made of a row of a csv, for readers without agt; empty: this is beyond them."""
        if self.crosses or not self.csv.header:
            return {}
        form = {"separator": self.csv.separator, "encoding": self.csv.codec}
        return {
            "columns": self._encoding(self._limits(self.settled or self._settle())).rows,
            "missing": [*NULLS, *self._missing_words],
            **form,
        }

    def stated(self, settled: Mapping[str, Any]) -> Self:
        """The same, ranges that were taken from the training records included."""
        found = {name: tuple(limits) for name, limits in settled["ranges"].items() if limits[0] < limits[-1]}
        given = {name: limits or found.get(name) for name, limits in self.numeric.items()}  # one value alone is no range
        return replace(super().stated(settled), numeric=given)

    def _files(self) -> list[Rows]:
        if self.test is None:
            return [self._rows(self._open())]
        test = open_columns(self.test, "dataset.test or data_dir", self.data_dir, self.csv)
        return [self._rows(self._open(), test=False), self._rows(test, test=True)]

    def _open(self) -> Columns:
        return open_columns(self.path, "dataset.path or data_dir", self.data_dir, self.csv)

    @property
    def _missing_words(self) -> tuple[str, ...]:
        return tuple(map(str, self.missing_values))

    def _content(self, columns: Columns) -> Content:
        """[n, numeric] float64 with NaN and [n, categorical] text with None, where values are missing.

        Raises:
            DataError: a value is infinite, or missing where that is refused.
        """
        markers = self._missing_words
        parts = [columns.numbers(name, f"dataset.numeric.{name}", markers) for name in self.numeric]
        parts += [columns.words(name, f"dataset.categorical.{name}", markers) for name in self.categorical]
        for name, values in self.categorical.items():
            columns.refuse_missing_words(f"dataset.categorical.{name}", values)
        n = len(parts[0])
        same_length(columns.path, n, dict(zip((*self.numeric, *self.categorical), parts, strict=True)))
        numbers, words = np.empty((n, len(self.numeric))), np.empty((n, len(self.categorical)), dtype=object)
        for index, part in enumerate(parts):
            into, at = (numbers, index) if index < len(self.numeric) else (words, index - len(self.numeric))
            into[:, at] = part
        _refuse(np.isinf(numbers), self.numeric, columns, "an infinite value: repair or drop it")
        if self.missing == "error":
            remedy = "no value: repair or drop it, or set dataset.missing=indicator"
            _refuse(np.isnan(numbers), self.numeric, columns, remedy)
            _refuse(absent(words), self.categorical, columns, remedy)
        return numbers, words

    def _features(self, files: Sequence[Rows]) -> Features:
        ranges = self._ranges(files)
        there = (tuple(part[~rows.gone] for part in rows.content) for rows in files)
        numbers, words = (np.concatenate(arrays) for arrays in zip(*there, strict=True))
        path = files[0].columns.path
        return Features(
            arrays=[self._scaled(rows.content, ranges) for rows in files],
            scaling={
                "numeric": {column: list(limits) for column, limits in ranges.items()},
                "categorical": {column: [*map(str, values), "other"] for column, values in self.categorical.items()},
                "missing": self.missing,
                **({"thresholds": thresholds} if (thresholds := self._encoding(ranges).thresholds) else {}),
                **({"crosses": self.crosses} if self.crosses else {}),
                "classes": "given" if self.classes is not None else "found in the data",
            },
            settled={"ranges": {name: limits for name, limits in ranges.items() if self.numeric[name] is None}},
            notes=self._notes((numbers, words), ranges, path),
        )

    def _ranges(self, files: Sequence[Rows]) -> dict[str, Limits]:
        """Each numeric column's range or edges: the public ones, else the smallest and largest training value."""
        train = files[0].content[0][files[0].train] if files else np.empty((0, len(self.numeric)))
        columns = zip(self.numeric.items(), train.T, strict=True)
        return {name: given or _range_of(column, name) for (name, given), column in columns}

    def _encoding(self, ranges: Mapping[str, Limits]) -> Encoding:
        listed = {column: tuple(map(str, values)) for column, values in self.categorical.items()}
        return Encoding(ranges, listed, self.bins, self.crosses, self.missing == "indicator")

    def _scaled(self, content: Content, ranges: Mapping[str, Limits]) -> np.ndarray:
        """[n, d] float32; a function of each row and of the ranges and lists alone."""
        return self._encoding(ranges)(*content)

    def _refuse_too_many(self) -> None:
        """Raise ValueError where the columns would make more features than anybody means."""
        pretended = {column: limits or (0.0, 1.0) for column, limits in self.numeric.items()}
        width = self._encoding(pretended).width
        if width > MOST_FEATURES:
            raise ValueError(
                f"these columns make {width} features, and {MOST_FEATURES} are allowed: shorten the lists under "
                "categorical, or lower bins or crosses"
            )

    def _outside(self, content: Content, ranges: Mapping[str, Limits]) -> tuple[Outside, ...]:
        """Which columns of queries do not fit the declarations, and how often."""
        numbers, words = content
        limits = zip(ranges.items(), numbers.T, strict=True)
        parts = [outside_range(name, column, edges[0], edges[-1]) for (name, edges), column in limits]
        for (name, values), column in zip(self.categorical.items(), words.T, strict=True):
            parts.append(outside_list(name, column, values))
        return tuple(part for part in parts if part is not None)

    def _notes(self, content: Content, ranges: Mapping[str, Limits], path: Path) -> tuple[str, ...]:
        """How columns and declarations fit."""
        numbers, words = content
        limits = zip(ranges.items(), numbers.T, strict=True)
        notes = [clipped(column, edges[0], edges[-1], name) for (name, edges), column in limits]
        for (name, values), column in zip(self.categorical.items(), words.T, strict=True):
            notes.append(check_values(column, values, f"dataset.categorical.{name}", name, path))
        return tuple(note for column_notes in notes for note in column_notes)

    def _selection(self, split: Fact, rows: Rows) -> Grounds:
        return grounds(split, *rows.facts, features_fact("the columns of features"))

    def _split_fact(self) -> Fact:
        if self.test is None:
            return super()._split_fact()
        return split_fact(f"file {self.test.name} (dataset.test)", self.test_fraction, self.split_key)

    def _classes_fact(self) -> Fact:
        if CLASSES not in self.from_data:
            return super()._classes_fact()
        return void(
            "the list of classes was read off the records: if it is public, take 'classes' off dataset.from_data (or "
            "declare all that it names public with dataset.from_data=[])"
        )

    def _scaling_fact(self) -> Fact:
        marked = [name for name in self.from_data if name != CLASSES or name in {*self.numeric, *self.categorical}]
        if marked:
            group, which = ("numeric", "range") if marked[0] in self.numeric else ("categorical", "list of values")
            more = f" (and of {len(marked) - 1} more: dataset.from_data names them)" if len(marked) > 1 else ""
            return void(
                f"the {which} of column '{marked[0]}'{more} was read off the records, so that one record can move it: "
                f"replace dataset.{group}.{marked[0]} by what is publicly known and take the name off dataset.from_data; "
                "or, if all that it names is public as it stands, declare that with dataset.from_data=[]"
            )
        derived = [name for name, limits in self.numeric.items() if limits is None]
        if derived:
            return void(
                f"the range of column '{derived[0]}' is its smallest and largest training value: one record can move "
                f"it, and so every feature; give a public range in dataset.numeric.{derived[0]}",
            )
        return declared(
            "ranges and lists of values are public constants (dataset.numeric, dataset.categorical), and so is which "
            "columns are used and what counts as a missing value",
            "one was read off the records, such as a range that ends at the largest value among them",
        )


def _range_of(column: np.ndarray, name: str) -> Limits:
    if np.isnan(column).all():
        raise DataError(f"column '{name}' has no training value to take a range from: give dataset.numeric.{name}")
    low, high = float(np.nanmin(column)), float(np.nanmax(column))
    if not np.isfinite(2 * (high - low)):
        raise DataError(
            f"column '{name}' goes from {low:g} to {high:g}, too wide to compute with: give dataset.numeric.{name}"
        )
    return low, high


def _refuse(bad: np.ndarray, names: Iterable[str], columns: Columns, fault: str) -> None:
    if bad.any():
        row, column = map(int, np.argwhere(bad)[0])
        raise DataError(f"{columns.path}: column '{list(names)[column]}', {columns.row(row)}: {fault}")
