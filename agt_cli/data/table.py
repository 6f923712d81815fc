"""The user's own table: numeric columns with public ranges, categorical columns with public lists of values."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass as plain_dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from agt_cli.data.assemble import (
    class_indices,
    class_names,
    found_classes_fact,
    hash_split,
    named_ids,
    queries,
    query_labels,
    records,
    split_fact,
    split_names,
)
from agt_cli.data.dataset import DataError, Dataset, Fact, Records
from agt_cli.data.files import Columns, open_columns, resolve
from agt_cli.schema import STRICT, DeclaredSize

Range = tuple[float, float]


@dataclass(frozen=True, config=STRICT)
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
        classes: public list of label values in the order of the classes; None: the sorted values found.
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
    categorical: Mapping[str, Annotated[tuple[str | int, ...], Field(min_length=1)]] = Field(default_factory=dict)
    split: str | None = None
    test: Path | None = None
    missing: Literal["error", "indicator"] = "error"
    id_as_text: bool = False
    classes: Annotated[tuple[str | int, ...], Field(min_length=2)] | None = None
    test_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.25
    split_key: str = "split"
    declared_size: DeclaredSize | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        if not self.numeric and not self.categorical:
            raise ValueError("name at least one column under numeric or categorical")
        for column, limits in self.numeric.items():
            if limits is not None and limits[0] >= limits[1]:
                raise ValueError(f"numeric.{column}: the range must be [low, high] with low < high, got {list(limits)}")
        for column, values in self.categorical.items():
            if len({str(value) for value in values}) < len(values):
                raise ValueError(f"categorical.{column} repeats a value")
        twice = set(self.numeric) & set(self.categorical)
        if twice:
            raise ValueError(f"column {min(twice)} is both numeric and categorical")
        if self.split is not None and self.test is not None:
            raise ValueError("give either split (a column) or test (a file), not both")
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
            selection=self._selection(),
            preprocessing=self._preprocessing(),
        )

    def load_queries(self, path: Path) -> Records:
        """The same columns, scaled by the same constants; label and id are optional."""
        columns = open_columns(path, "inputs")
        known = self.classes is not None and None not in self.numeric.values()
        splits = () if known else self._read_splits()
        raw = self._raw(columns)
        features = self._features(raw, self._ranges(splits[0] if splits else None))
        labels = query_labels(columns, self.label, self._classes(splits), len(features))
        return queries(columns, features, (raw.numbers, raw.words), labels, self.id or "id", self.id_as_text)

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
        for split, mask in (("train", ~is_test), ("test", is_test)):
            if not mask.any():
                raise DataError(f"{train.path}: the {split} split is empty")
        return train.where(~is_test), train.where(is_test)

    def _read(self, path: Path, setting: str) -> "_Part":
        columns = open_columns(path, setting)
        raw = self._raw(columns)
        if not len(raw.numbers):
            raise DataError(f"{path}: no rows")
        labels = columns.words(self.label, "dataset.label")
        units = None if self.unit is None else columns.ids(self.unit, "dataset.unit", self.id_as_text)
        public = None if self.public is None else columns.flags(self.public, "dataset.public")
        is_test = None if self.split is None else columns.flags(self.split, "dataset.split")
        ids = named_ids(columns, self.id, self.id_as_text, raw.numbers, raw.words, labels, units, public, is_test)
        return _Part(path, raw, labels, ids, units, public, is_test)

    def _raw(self, columns: Columns) -> "_Raw":
        """The feature columns as the file has them. Raises DataError for inf, and for a missing value if refused."""
        numbers = [columns.numbers(name, f"dataset.numeric.{name}") for name in self.numeric]
        words = [columns.words(name, f"dataset.categorical.{name}") for name in self.categorical]
        n = len((numbers + words)[0])
        raw = _Raw(_side_by_side(numbers, n, np.float64), _side_by_side(words, n, object))
        _refuse(np.isinf(raw.numbers), self.numeric, columns.path, "an infinite value: repair or drop it")
        if self.missing == "error":
            remedy = "no value: repair or drop it, or set dataset.missing=indicator"
            _refuse(np.isnan(raw.numbers), self.numeric, columns.path, remedy)
            _refuse(_absent(raw.words), self.categorical, columns.path, remedy)
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
        if self.classes is not None:
            return tuple(str(name) for name in self.classes)
        return class_names(np.concatenate([part.labels for part in parts]), parts[0].path)

    def _selection(self) -> Fact:
        given = f"file {self.test.name}" if self.test else f"column '{self.split}'" if self.split else None
        return split_fact(given, self.test_fraction, self.split_key)

    def _preprocessing(self) -> Fact:
        derived = [name for name, limits in self.numeric.items() if limits is None]
        if derived:
            return Fact(
                False,
                f"the range of column '{derived[0]}' is its smallest and largest training value: one record can move "
                f"it, and so every feature; give a public range in dataset.numeric.{derived[0]}",
            )
        why = "ranges and lists of values are constants of the configuration"
        return Fact(True, why) if self.classes is not None else found_classes_fact(why)


@plain_dataclass(frozen=True)
class _Raw:
    """Feature columns as the file has them: [n, numeric] float64 with NaN, [n, categorical] text with None."""

    numbers: np.ndarray
    words: np.ndarray


@plain_dataclass(frozen=True)
class _Part:
    """Some rows of a file, unscaled."""

    path: Path
    raw: _Raw
    labels: np.ndarray
    ids: np.ndarray
    units: np.ndarray | None
    public: np.ndarray | None
    is_test: np.ndarray | None

    def where(self, mask: np.ndarray) -> "_Part":
        rest = (None if array is None else array[mask] for array in (self.units, self.public, self.is_test))
        raw = _Raw(self.raw.numbers[mask], self.raw.words[mask])
        return _Part(self.path, raw, self.labels[mask], self.ids[mask], *rest)


def _side_by_side(columns: list[np.ndarray], n: int, dtype: type) -> np.ndarray:
    return np.stack(columns, axis=1).astype(dtype) if columns else np.empty((n, 0), dtype=dtype)


def _found_range(train: _Part | None, index: int, name: str) -> Range:
    if train is None or np.isnan(train.raw.numbers[:, index]).all():
        raise DataError(f"column '{name}' has no training value to take a range from: give dataset.numeric.{name}")
    column = train.raw.numbers[:, index]
    return float(np.nanmin(column)), float(np.nanmax(column))


def _absent(words: np.ndarray) -> np.ndarray:
    return np.array([word is None for word in words.ravel()], dtype=bool).reshape(words.shape)


def _refuse(bad: np.ndarray, names: Iterable[str], path: Path, fault: str) -> None:
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise DataError(f"{path}: column '{list(names)[column]}', row {row}: {fault}")


def _scaled(column: np.ndarray, low: float, high: float) -> np.ndarray:
    """[-1, 1], clipped; a missing value, and a range of one point, become 0."""
    if low == high:
        return np.zeros(len(column))
    scaled = 2 * (np.clip(column, low, high) - low) / (high - low) - 1
    return np.where(np.isnan(column), 0.0, scaled)
