"""Vectors from a public encoder, with labels, in one npz, parquet or csv file, or a folder of memory-mapped arrays."""

from pathlib import Path
from typing import Annotated

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
from agt_cli.data.files import Columns, open_columns, resolve, same_shape
from agt_cli.data.prepared import alone_fact, require_finished
from agt_cli.schema import STRICT, DeclaredSize, Positive

_CHUNK = 8192


@dataclass(frozen=True, config=STRICT)
class Embeddings:
    """Features are (x - center) * scale, or with ``unit_norm`` scale * (x - center) / |x - center|, in float32.

    Attributes:
        path: npz, parquet, csv or a folder of npy files, such as ``agt data prepare`` makes; relative to ``data_dir``.
        data_dir: folder of relative paths.
        x: the vectors: an npz key, a column of lists, or the prefix of numbered columns.
        label, is_test, id, unit, public: columns or npz keys; None: a hash split, ids from the content, each record its
            own unit, all records private.
        unit_rows: public cap on the rows of one unit: what ``relation.unit_rows`` is unless it is given (conf/relation).
        id_as_text: take ids that mix numbers and text as text.
        classes: public list of label values in the order of the classes; None: the sorted values found.
        test_fraction, split_key: the hash split's public rate and key, where ``is_test`` is None.
        center: what is subtracted: an npz key, or the numbers themselves.
        scale: public factor.
        unit_norm: bring every vector to length ``scale``; a vector equal to the center stays zero.
        public_scaling: whoever runs this declares ``center`` public (not computed from training records).
        declared_size: public constant: about how many training records there are.
        name: what tables call it; None: the file's name.
        obtain: the command that makes the data, for the message where it is not there.
    """

    path: Path
    data_dir: Path = Path("data")
    x: str = "x"
    label: str = "label"
    is_test: str | None = None
    id: str | None = None
    unit: str | None = None
    unit_rows: Annotated[int, Field(ge=1)] = 1
    public: str | None = None
    id_as_text: bool = False
    classes: Annotated[tuple[str | int, ...], Field(min_length=2)] | None = None
    test_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.25
    split_key: str = "split"
    center: str | tuple[float, ...] | None = None
    scale: Positive = 1.0
    unit_norm: bool = False
    public_scaling: bool = False
    declared_size: DeclaredSize | None = None
    name: str | None = None
    obtain: str | None = None

    def load(self) -> Dataset:
        """Read, scale and split. Raises DataMissing or DataError naming the file, the column and the row."""
        columns = self._open()
        x = columns.matrix(self.x, "dataset.x")
        words = columns.words(self.label, "dataset.label")
        if len(x) != len(words):
            raise DataError(f"{columns.path}: {len(x)} vectors and {len(words)} values of '{self.label}'")
        classes = self._classes(words, columns.path)
        unit = None if self.unit is None else columns.ids(self.unit, "dataset.unit", self.id_as_text)
        public = None if self.public is None else columns.flags(self.public, "dataset.public")
        test = None if self.is_test is None else columns.flags(self.is_test, "dataset.is_test")
        ids = named_ids(columns, self.id, self.id_as_text, _raw(x), words, unit, public, test)
        if test is None:
            names = split_names(unit, None if self.id is None else ids, _raw(x), words, public)
            test = hash_split(names, self.test_fraction, self.split_key)
        everyone = records(self._scaled(x, columns), class_indices(words, classes, columns.path), ids, unit, public)
        return Dataset(
            name=self.name or self.path.stem,
            classes=classes,
            train=everyone.take(~test),
            test=everyone.take(test),
            declared_size=self.declared_size,
            scaling={"center": self._center_source(), "scale": self.scale, "unit_norm": self.unit_norm},
            selection=self._selection(columns.path),
            preprocessing=self._preprocessing(),
        )

    def load_queries(self, path: Path) -> Records:
        """Vectors under the same names, scaled by the same constants; label and id are optional.

        Raises:
            DataError: a column is missing or of another shape, or the file brings another center than the dataset's.
        """
        columns, source = open_columns(path, "inputs"), self._open()
        x = columns.matrix(self.x, "dataset.x")
        same_shape(x, source.matrix(self.x, "dataset.x").shape[1:], path)
        self._check_center(columns, source)
        classes = self._classes(source.words(self.label, "dataset.label"), source.path)
        labels = query_labels(columns, self.label, classes, len(x))
        return queries(columns, self._scaled(x, source), (_raw(x),), labels, self.id or "id", self.id_as_text)

    def _open(self) -> Columns:
        path = resolve(self.path, self.data_dir)
        require_finished(path, self.obtain)
        return open_columns(path, "dataset.path or data_dir")

    def _selection(self, path: Path) -> Fact:
        """Condition b: the split, and where the data was prepared, whether each record was prepared on its own."""
        split = split_fact(None if self.is_test is None else f"column '{self.is_test}'", self.test_fraction, self.split_key)
        alone = alone_fact(path, units=self.unit is not None)
        return split if alone is None else Fact(split.held and alone.held, f"{split.why}; {alone.why}")

    def _classes(self, words: np.ndarray, path: Path) -> tuple[str, ...]:
        return class_names(words, path) if self.classes is None else tuple(str(name) for name in self.classes)

    def _center(self, columns: Columns) -> np.ndarray | float:
        if self.center is None:
            return 0.0
        if not isinstance(self.center, str):
            return np.array(self.center)
        center = columns.raw(self.center, "dataset.center")
        if not isinstance(center, np.ndarray) or center.dtype.kind not in "iuf" or not np.isfinite(center).all():
            raise DataError(f"{columns.path}: dataset.center: '{self.center}' must be an npz key with finite numbers")
        return center.astype(np.float64)

    def _check_center(self, columns: Columns, source: Columns) -> None:
        """A file of queries that brings constants of its own must bring the same ones."""
        if not isinstance(self.center, str) or self.center not in columns.names:
            return
        if not np.array_equal(np.asarray(self._center(columns)), np.asarray(self._center(source))):
            raise DataError(
                f"{columns.path}: its '{self.center}' is not {source.path.name}'s: these queries were made for other "
                "constants; queries are given unscaled, and the dataset's own constants scale them"
            )

    def _scaled(self, x: np.ndarray, columns: Columns) -> np.ndarray:
        """Computed in float64, each record alone, and rounded once to float32."""
        center = self._center(columns)
        if isinstance(center, np.ndarray) and center.shape != x.shape[1:]:
            raise DataError(f"{columns.path}: dataset.center has shape {center.shape}, the vectors {x.shape[1:]}")
        if self.center is None and self.scale == 1 and not self.unit_norm and x.dtype == np.float32:
            return x  # nothing to do: a memory-mapped array stays where it is
        scaled = np.empty(x.shape, dtype=np.float32)
        for start in range(0, len(x), _CHUNK):
            block = x[start : start + _CHUNK].astype(np.float64) - center
            if self.unit_norm:
                norms = np.array([np.sqrt(np.sum(row * row)) for row in block])
                block = block / np.where(norms > 0, norms, 1.0).reshape(-1, *[1] * (block.ndim - 1))
            scaled[start : start + _CHUNK] = block * self.scale
        return scaled

    def _center_source(self) -> str:
        if self.center is None:
            return "none"
        return f"key '{self.center}' of {self.path.name}" if isinstance(self.center, str) else "given in the configuration"

    def _preprocessing(self) -> Fact:
        if self.center is None or self.public_scaling:
            why = (
                "nothing is subtracted"
                if self.center is None
                else f"the center ({self._center_source()}) is declared public"
            )
            why += ", and the scale is a constant of the configuration"
            return Fact(True, why) if self.classes is not None else found_classes_fact(why)
        return Fact(
            False,
            f"the center ({self._center_source()}) has not been declared public: a mean of private records would leak "
            "them; if it comes from public data, set dataset.public_scaling=true",
        )


def _raw(x: np.ndarray) -> np.ndarray:
    """What ids are hashed from: half precision is widened, which loses nothing; whole numbers become decimal ones.

    An array is stored as whole numbers if all of them are: one record with a fraction would change every other's bytes.
    """
    if x.dtype.kind in "biu":
        return x.astype(np.float64)
    return x.astype(np.float32) if x.dtype == np.float16 else x
