"""The user's own table: numeric columns with public ranges, categorical columns with public lists of values."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from agt.data.assemble import same_length
from agt.data.checks import Word, check_edges, check_values, clipped, unknown_values
from agt.data.dataset import DataError, Records
from agt.data.declarations import features_fact, split_fact
from agt.data.encoding import Encoding, absent
from agt.data.files import Columns, open_columns, resolve
from agt.data.labelled import Content, Features, LabelledFile, Rows
from agt.facts import Fact, Grounds, declared, grounds, void
from agt.settings import schema

Limits = tuple[float, ...]
MOST_FEATURES = 2**16


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
    """

    SPLIT: ClassVar[str] = "split"

    numeric: Mapping[str, Annotated[Limits, Field(min_length=2)] | None] = Field(default_factory=dict)
    categorical: Mapping[str, Annotated[tuple[Word, ...], Field(min_length=1)]] = Field(default_factory=dict)
    split: str | None = None
    test: Path | None = None
    missing: Literal["error", "indicator"] = "error"
    bins: Annotated[int, Field(ge=0, le=1024)] = 0
    crosses: Annotated[int, Field(ge=0, le=MOST_FEATURES)] = 0

    def __post_init__(self) -> None:
        if not self.numeric and not self.categorical:
            raise ValueError("name at least one column under numeric or categorical")
        for column, limits in self.numeric.items():
            if limits is not None:
                check_edges(f"numeric.{column}", limits)
        for column, values in self.categorical.items():
            if len({str(value) for value in values}) < len(values):
                raise ValueError(f"categorical.{column} repeats a value")
        twice = set(self.numeric) & set(self.categorical)
        if twice:
            raise ValueError(f"column {min(twice)} is both numeric and categorical")
        if self.crosses and len(self.numeric) + len(self.categorical) < 2:
            raise ValueError("crosses are made of pairs of columns, and there is one column")
        self._refuse_too_many()
        if self.split is not None and self.test is not None:
            raise ValueError("give either split (a column) or test (a file), not both")
        super().__post_init__()
        inputs, taken = {*self.numeric, *self.categorical}, {self.label, self.id, self.unit, self.public, self.split}
        if inputs & taken:
            raise ValueError(f"column {min(map(str, inputs & taken))} cannot be a feature: it has another part")

    def load_queries(self, path: Path) -> Records:
        """The same columns, scaled by the same constants; label and id are optional."""
        columns = open_columns(path, "inputs")
        known = self.classes is not None and None not in self.numeric.values()
        files = [] if known else self._files()
        content, ranges = self._content(columns), self._ranges(files)
        notes = self._notes(content, ranges, unknown_values)
        return self._queries(columns, content, self._scaled(content, ranges), self._classes(files), notes)

    def _files(self) -> list[Rows]:
        if self.test is None:
            return [self._rows(self._open())]
        test = open_columns(resolve(self.test, self.data_dir), "dataset.test or data_dir")
        return [self._rows(self._open(), test=False), self._rows(test, test=True)]

    def _content(self, columns: Columns) -> Content:
        """[n, numeric] float64 with NaN and [n, categorical] text with None, where values are missing.

        Raises:
            DataError: a value is infinite, or missing where that is refused.
        """
        parts = [columns.numbers(name, f"dataset.numeric.{name}") for name in self.numeric]
        parts += [columns.words(name, f"dataset.categorical.{name}") for name in self.categorical]
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
        numbers, words = (np.concatenate(arrays) for arrays in zip(*(rows.content for rows in files), strict=True))
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
            notes=self._notes((numbers, words), ranges, partial(check_values, path=path)),
        )

    def _ranges(self, files: Sequence[Rows]) -> dict[str, Limits]:
        """Each numeric column's range or edges: the public ones, else the smallest and largest training value."""
        train = files[0].content[0][~files[0].test] if files else np.empty((0, len(self.numeric)))
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

    def _notes(
        self, content: Content, ranges: Mapping[str, Limits], check: Callable[..., tuple[str, ...]]
    ) -> tuple[str, ...]:
        """How columns and declarations fit.

        Args:
            check: holds a column of text against its list: takes the text, the list, its setting and the column's name.
        """
        numbers, words = content
        limits = zip(ranges.items(), numbers.T, strict=True)
        notes = [clipped(column, edges[0], edges[-1], name) for (name, edges), column in limits]
        for (name, values), column in zip(self.categorical.items(), words.T, strict=True):
            notes.append(check(column, values, f"dataset.categorical.{name}", name))
        return tuple(note for column_notes in notes for note in column_notes)

    def _selection(self, split: Fact, rows: Rows) -> Grounds:
        return grounds(split, *rows.facts, features_fact("the columns of features"))

    def _split_fact(self) -> Fact:
        if self.test is None:
            return super()._split_fact()
        return split_fact(f"file {self.test.name} (dataset.test)", self.test_fraction, self.split_key)

    def _scaling_fact(self) -> Fact:
        derived = [name for name, limits in self.numeric.items() if limits is None]
        if derived:
            return void(
                f"the range of column '{derived[0]}' is its smallest and largest training value: one record can move "
                f"it, and so every feature; give a public range in dataset.numeric.{derived[0]}",
            )
        return declared(
            "ranges and lists of values are public constants (dataset.numeric, dataset.categorical)",
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
