"""The user's own table: numeric columns with public ranges, categorical columns with public lists of values."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from agt.data.assemble import (
    both_splits,
    class_indices,
    class_names,
    hash_split,
    named_ids,
    queries,
    query_labels,
    read_labels,
    records,
    same_length,
    split_names,
)
from agt.data.checks import Word, check_classes, check_label, check_range, check_values, clipped, unknown_values
from agt.data.dataset import DataError, Dataset, Records
from agt.data.declarations import classes_fact, features_fact, id_facts, split_fact
from agt.data.files import Columns, open_columns, resolve
from agt.facts import Fact, Grounds, declared, grounds, void
from agt.settings import DeclaredSize, schema

Range = tuple[float, float]


@schema
class Table:
    """Numeric columns become [-1, 1], clipped to a public range; categorical ones are one-hot with a slot for others.

    Attributes:
        path: csv, parquet or npz; relative to ``data_dir``.
        data_dir: folder of relative paths.
        label, id, unit, public: columns; None: ids from the content, each record its own unit, all records private.
        numeric: column -> public [low, high]; null: the range is taken from the training records, which is not public.
        categorical: column -> public list of values.
        split: column with train or test for each record; None: a hash split, unless ``test`` is given.
        test: a second file with the test records.
        missing: refuse a missing value, or turn it into 0 and add a 0/1 feature to each column.
        id_as_text: take ids that mix numbers and text as text.
        id_permanent: you declare that a record keeps its id, whatever becomes of others: ids that count rows need it.
        classes: public list of label values in the order of the classes; None: the sorted values found, at most 100.
        test_fraction, split_key: the hash split's public rate and key.
        declared_size: public constant: about how many training records there are.
        name: what tables call it; None: the file's name.
    """

    path: Path
    label: str
    data_dir: Path = Path("data")
    id: str | None = None
    unit: str | None = None
    public: str | None = None
    numeric: Mapping[str, Range | None] = Field(default_factory=dict)
    categorical: Mapping[str, Annotated[tuple[Word, ...], Field(min_length=1)]] = Field(default_factory=dict)
    split: str | None = None
    test: Path | None = None
    missing: Literal["error", "indicator"] = "error"
    id_as_text: bool = False
    id_permanent: bool = False
    classes: Annotated[tuple[Word, ...], Field(min_length=2)] | None = None
    test_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.25
    split_key: str = "split"
    declared_size: DeclaredSize | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        if not self.numeric and not self.categorical:
            raise ValueError("name at least one column under numeric or categorical")
        check_classes(self.classes)
        for column, limits in self.numeric.items():
            if limits is not None:
                check_range(f"numeric.{column}", *limits)
        for column, values in self.categorical.items():
            if len({str(value) for value in values}) < len(values):
                raise ValueError(f"categorical.{column} repeats a value")
        twice = set(self.numeric) & set(self.categorical)
        if twice:
            raise ValueError(f"column {min(twice)} is both numeric and categorical")
        if self.split is not None and self.test is not None:
            raise ValueError("give either split (a column) or test (a file), not both")
        check_label(self.label, {"id": self.id, "unit": self.unit, "public": self.public, "split": self.split})
        inputs, taken = {*self.numeric, *self.categorical}, {self.label, self.id, self.unit, self.public, self.split}
        if inputs & taken:
            raise ValueError(f"column {min(map(str, inputs & taken))} cannot be a feature: it has another part")

    def load(self) -> Dataset:
        """Read, scale and split. Raises DataMissing or DataError naming the file, the column and the row."""
        train, test = self._read_splits()
        ranges = self._ranges(train)
        classes = self._classes((train, test))
        return Dataset(
            name=self.name or self.path.stem,
            classes=classes,
            train=self._records(train, ranges, classes),
            test=self._records(test, ranges, classes),
            declared_size=self.declared_size,
            scaling={
                "numeric": {column: list(limits) for column, limits in ranges.items()},
                "categorical": {column: [*map(str, values), "other"] for column, values in self.categorical.items()},
                "missing": self.missing,
                "classes": "given" if self.classes is not None else "found in the data",
            },
            selection=self._selection(train),
            preprocessing=self._preprocessing(),
            notes=self._notes(train, test, ranges),
        )

    def load_queries(self, path: Path) -> Records:
        """The same columns, scaled by the same constants; label and id are optional."""
        columns = open_columns(path, "inputs")
        known = self.classes is not None and None not in self.numeric.values()
        splits = () if known else self._read_splits()
        raw = self._raw(columns)
        ranges = self._ranges(splits[0] if splits else None)
        features = self._features(raw, ranges)
        labels = query_labels(columns, self.label, self._classes(splits), len(features))
        notes = (*_clipped(raw, ranges), *self._unknown(raw))
        return queries(columns, features, (raw.numbers, raw.words), labels, self.id or "id", self.id_as_text, notes)

    def _read_splits(self) -> "tuple[_Part, _Part]":
        """The training and the test rows, unscaled."""
        train = self._read(resolve(self.path, self.data_dir), "dataset.path or data_dir")
        if self.test is not None:
            return train, self._read(resolve(self.test, self.data_dir), "dataset.test or data_dir")
        is_test = train.is_test
        if is_test is None:
            ids, raw = None if self.id is None else train.ids, train.raw
            names = split_names(train.units, ids, raw.numbers, raw.words, train.labels, train.public)
            is_test = hash_split(names, self.test_fraction, self.split_key)
        both_splits(is_test, train.path, self.split is not None, self.test_fraction)
        return train.where(~is_test), train.where(is_test)

    def _read(self, path: Path, setting: str) -> "_Part":
        columns = open_columns(path, setting)
        raw = self._raw(columns)
        if not len(raw.numbers):
            raise DataError(f"{path}: no rows")
        labels = read_labels(columns, self.label, self._listed)
        units = None if self.unit is None else columns.ids(self.unit, "dataset.unit", self.id_as_text)
        public = None if self.public is None else columns.flags(self.public, "dataset.public")
        is_test = None if self.split is None else columns.flags(self.split, "dataset.split")
        parts = {self.label: labels, str(self.unit): units, str(self.public): public, str(self.split): is_test}
        same_length(path, len(raw.numbers), parts)
        ids = named_ids(columns, self.id, self.id_as_text, raw.numbers, raw.words, labels, units, public, is_test)
        same_length(path, len(raw.numbers), {str(self.id): ids})
        facts = id_facts(self.id, ids, self.unit, units, self.public, self.id_permanent)
        return _Part(path, raw, labels, ids, units, public, is_test, facts)

    def _raw(self, columns: Columns) -> "_Raw":
        """The feature columns as the file has them. Raises DataError for inf, and for a missing value if refused."""
        numbers = [columns.numbers(name, f"dataset.numeric.{name}") for name in self.numeric]
        words = [columns.words(name, f"dataset.categorical.{name}") for name in self.categorical]
        for name, values in self.categorical.items():
            columns.refuse_missing_words(f"dataset.categorical.{name}", values)
        n = len((numbers + words)[0])
        same_length(columns.path, n, dict(zip((*self.numeric, *self.categorical), (*numbers, *words), strict=True)))
        raw = _Raw(_side_by_side(numbers, n, np.float64), _side_by_side(words, n, object))
        _refuse(np.isinf(raw.numbers), self.numeric, columns, "an infinite value: repair or drop it")
        if self.missing == "error":
            remedy = "no value: repair or drop it, or set dataset.missing=indicator"
            _refuse(np.isnan(raw.numbers), self.numeric, columns, remedy)
            _refuse(_absent(raw.words), self.categorical, columns, remedy)
        return raw

    def _ranges(self, train: "_Part | None") -> dict[str, Range]:
        """Each numeric column's range: the public one, else the smallest and largest training value."""
        ranges = {}
        for index, (name, given) in enumerate(self.numeric.items()):
            ranges[name] = given or _found_range(train, index, name)
        return ranges

    def _features(self, raw: "_Raw", ranges: Mapping[str, Range]) -> np.ndarray:
        """[n, d] float32; a function of each row and of the ranges and lists alone."""
        blocks = [_scaled(column, *ranges[name]) for name, column in zip(self.numeric, raw.numbers.T, strict=True)]
        for values, column in zip(self.categorical.values(), raw.words.T, strict=True):
            slots = [column == str(value) for value in values]
            blocks += [*slots, ~np.any([*slots, _absent(column)], axis=0)]
        if self.missing == "indicator":
            blocks += [*np.isnan(raw.numbers).T, *_absent(raw.words).T]
        return np.stack(blocks, axis=1).astype(np.float32)

    def _records(self, part: "_Part", ranges: Mapping[str, Range], classes: tuple[str, ...]) -> Records:
        labels = class_indices(part.labels, classes, part.path)
        return records(self._features(part.raw, ranges), labels, part.ids, part.units, part.public)

    def _classes(self, parts: "Sequence[_Part]") -> tuple[str, ...]:
        return self._listed or class_names(np.concatenate([part.labels for part in parts]), parts[0].path)

    @property
    def _listed(self) -> tuple[str, ...] | None:
        """The public list of classes, as the data has them."""
        return None if self.classes is None else tuple(str(name) for name in self.classes)

    def _notes(self, train: "_Part", test: "_Part", ranges: Mapping[str, Range]) -> tuple[str, ...]:
        """How columns and declarations fit, over both splits. Raises DataError where a list fits nothing."""
        both = _Raw(*(np.concatenate(pair) for pair in zip(train.raw.pair, test.raw.pair, strict=True)))
        lists = zip(self.categorical.items(), both.words.T, strict=True)
        fits = [check_values(column, values, f"dataset.categorical.{n}", n, train.path) for (n, values), column in lists]
        return (*_clipped(both, ranges), *(note for notes in fits for note in notes))

    def _unknown(self, raw: "_Raw") -> tuple[str, ...]:
        """How many values of each column of queries are not in its list."""
        lists = zip(self.categorical.items(), raw.words.T, strict=True)
        found = [unknown_values(column, values, f"dataset.categorical.{name}", name) for (name, values), column in lists]
        return tuple(note for notes in found for note in notes)

    def _selection(self, train: "_Part") -> Grounds:
        given = f"column '{self.split}' (dataset.split)" if self.split else None
        given = f"file {self.test.name} (dataset.test)" if self.test else given
        made = features_fact("the columns of features")
        return grounds(split_fact(given, self.test_fraction, self.split_key), *train.facts, made)

    def _preprocessing(self) -> Grounds:
        return grounds(self._ranges_fact(), classes_fact(None if self.classes is None else "dataset.classes"))

    def _ranges_fact(self) -> Fact:
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


@dataclass(frozen=True)
class _Raw:
    """Feature columns as the file has them: [n, numeric] float64 with NaN, [n, categorical] text with None."""

    numbers: np.ndarray
    words: np.ndarray

    @property
    def pair(self) -> tuple[np.ndarray, np.ndarray]:
        return self.numbers, self.words


@dataclass(frozen=True)
class _Part:
    """Some rows of a file, unscaled; ``facts``: what the columns that name them are taken to mean."""

    path: Path
    raw: _Raw
    labels: np.ndarray
    ids: np.ndarray
    units: np.ndarray | None
    public: np.ndarray | None
    is_test: np.ndarray | None
    facts: tuple[Fact, ...]

    def where(self, mask: np.ndarray) -> "_Part":
        rest = (None if array is None else array[mask] for array in (self.units, self.public, self.is_test))
        raw = _Raw(self.raw.numbers[mask], self.raw.words[mask])
        units, public, is_test = rest
        return _Part(self.path, raw, self.labels[mask], self.ids[mask], units, public, is_test, self.facts)


def _side_by_side(columns: list[np.ndarray], n: int, dtype: type) -> np.ndarray:
    return np.stack(columns, axis=1).astype(dtype) if columns else np.empty((n, 0), dtype=dtype)


def _found_range(train: _Part | None, index: int, name: str) -> Range:
    if train is None or np.isnan(train.raw.numbers[:, index]).all():
        raise DataError(f"column '{name}' has no training value to take a range from: give dataset.numeric.{name}")
    column = train.raw.numbers[:, index]
    low, high = float(np.nanmin(column)), float(np.nanmax(column))
    if not np.isfinite(2 * (high - low)):
        raise DataError(
            f"column '{name}' goes from {low:g} to {high:g}, too wide to compute with: give dataset.numeric.{name}"
        )
    return low, high


def _absent(words: np.ndarray) -> np.ndarray:
    return np.array([word is None for word in words.ravel()], dtype=bool).reshape(words.shape)


def _refuse(bad: np.ndarray, names: Iterable[str], columns: Columns, fault: str) -> None:
    if bad.any():
        row, column = map(int, np.argwhere(bad)[0])
        raise DataError(f"{columns.path}: column '{list(names)[column]}', {columns.row(row)}: {fault}")


def _clipped(raw: _Raw, ranges: Mapping[str, Range]) -> tuple[str, ...]:
    """How many numbers of each column lie outside its range."""
    columns = zip(ranges.items(), raw.numbers.T, strict=True)
    return tuple(note for (name, limits), column in columns for note in clipped(column, *limits, name))


def _scaled(column: np.ndarray, low: float, high: float) -> np.ndarray:
    """[-1, 1], clipped; a missing value, and a range of one point, become 0."""
    if low == high:
        return np.zeros(len(column))
    scaled = 2 * (np.clip(column, low, high) - low) / (high - low) - 1
    return np.where(np.isnan(column), 0.0, scaled)
