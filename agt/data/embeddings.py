"""Vectors from a public encoder, with labels, in one npz, parquet or csv file, or a folder of memory-mapped arrays."""

from hashlib import blake2b
from pathlib import Path
from typing import Annotated

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
from agt.data.checks import Word, check_classes, check_label
from agt.data.dataset import DataError, Dataset, Records
from agt.data.declarations import classes_fact, features_fact, id_facts, split_fact
from agt.data.files import Columns, open_columns, resolve, same_shape
from agt.data.prepared import alone_fact, require_finished
from agt.facts import Fact, Grounds, declared, grounds, proved, void
from agt.settings import DeclaredSize, Positive, schema

_CHUNK = 8192


@schema
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
        id_permanent: you declare that a record keeps its id, whatever becomes of others: ids that count rows need it.
        classes: public list of label values in the order of the classes; None: the sorted values found, at most 100.
        test_fraction, split_key: the hash split's public rate and key, where ``is_test`` is None.
        center: what is subtracted: an npz key, or the numbers themselves.
        scale: public factor.
        unit_norm: bring every vector to length ``scale``; a vector equal to the center stays zero.
        public_scaling: whoever runs this declares ``center`` public (not computed from training records).
        public_digest: of the test records and the center, which are public; other ones are refused, since what this
            configuration declares was said about these. None: any.
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
    id_permanent: bool = False
    classes: Annotated[tuple[Word, ...], Field(min_length=2)] | None = None
    test_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.25
    split_key: str = "split"
    center: str | tuple[float, ...] | None = None
    scale: Positive = 1.0
    unit_norm: bool = False
    public_scaling: bool = False
    public_digest: str | None = None
    declared_size: DeclaredSize | None = None
    name: str | None = None
    obtain: str | None = None

    def __post_init__(self) -> None:
        check_classes(self.classes)
        others = {"x": self.x, "is_test": self.is_test, "id": self.id, "unit": self.unit, "public": self.public}
        check_label(self.label, others)

    def load(self) -> Dataset:
        """Read, scale and split. Raises DataMissing or DataError naming the file, the column and the row."""
        columns = self._open()
        x = columns.matrix(self.x, "dataset.x")
        words = read_labels(columns, self.label, self._listed)
        classes = self._listed or class_names(words, columns.path)
        unit = None if self.unit is None else columns.ids(self.unit, "dataset.unit", self.id_as_text)
        public = None if self.public is None else columns.flags(self.public, "dataset.public")
        test = None if self.is_test is None else columns.flags(self.is_test, "dataset.is_test")
        parts = {self.label: words, str(self.unit): unit, str(self.public): public, str(self.is_test): test}
        same_length(columns.path, len(x), parts)
        ids = named_ids(columns, self.id, self.id_as_text, _raw(x), words, unit, public, test)
        same_length(columns.path, len(x), {str(self.id): ids})
        facts = id_facts(self.id, ids, self.unit, unit, self.public, self.id_permanent)
        if test is None:
            names = split_names(unit, None if self.id is None else ids, _raw(x), words, public)
            test = hash_split(names, self.test_fraction, self.split_key)
        both_splits(test, columns.path, self.is_test is not None, self.test_fraction)
        labels = class_indices(words, classes, columns.path, columns.row)
        everyone = records(self._scaled(x, columns, columns), labels, ids, unit, public)
        self._check_public(everyone.take(test), columns)
        return Dataset(
            name=self.name or self.path.stem,
            classes=classes,
            train=everyone.take(~test),
            test=everyone.take(test),
            declared_size=self.declared_size,
            scaling={"center": self._center_source(), "scale": self.scale, "unit_norm": self.unit_norm},
            selection=self._selection(columns.path).and_(*facts),
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
        classes = self._listed or class_names(read_labels(source, self.label, None), source.path)
        labels = query_labels(columns, self.label, classes, len(x))
        return queries(columns, self._scaled(x, columns, source), (_raw(x),), labels, self.id or "id", self.id_as_text)

    def _check_public(self, test: Records, columns: Columns) -> None:
        """Refuse a file that only has the name of the one that was declared about. Private records do not enter."""
        found = public_digest(test, np.asarray(self._center(columns)))
        if self.public_digest is not None and found != self.public_digest:
            raise DataError(
                f"{columns.path}: its public part (test records and center) has the digest {found} and "
                f"dataset.public_digest is {self.public_digest}: what this configuration declares is about another file; "
                "describe yours with dataset=embeddings, or set dataset.public_digest=null and declare it all yourself"
            )

    def _open(self) -> Columns:
        path = resolve(self.path, self.data_dir)
        require_finished(path, self.obtain)
        return open_columns(path, "dataset.path or data_dir")

    def _selection(self, path: Path) -> Grounds:
        """Condition b: the split, and where the data was prepared, whether each record was prepared on its own."""
        given = None if self.is_test is None else f"column '{self.is_test}' (dataset.is_test)"
        alone = alone_fact(path, units=self.unit is not None)
        made = alone or features_fact(f"the vectors ('{self.x}')")
        return grounds(split_fact(given, self.test_fraction, self.split_key), made)

    @property
    def _listed(self) -> tuple[str, ...] | None:
        """The public list of classes, as the data has them."""
        return None if self.classes is None else tuple(str(name) for name in self.classes)

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

    def _scaled(self, x: np.ndarray, columns: Columns, source: Columns) -> np.ndarray:
        """Computed in float64, each record alone, and rounded once to float32.

        Args:
            columns: where ``x`` comes from, for messages.
            source: where the center comes from.

        Raises:
            DataError: the center has another shape, or a value is out of reach of these numbers.
        """
        center = self._center(source)
        if isinstance(center, np.ndarray) and center.shape != x.shape[1:]:
            raise DataError(f"{source.path}: dataset.center has shape {center.shape}, the vectors {x.shape[1:]}")
        if self.center is None and self.scale == 1 and not self.unit_norm and x.dtype == np.float32:
            return x  # nothing to do: a memory-mapped array stays where it is
        scaled = np.empty(x.shape, dtype=np.float32)
        for start in range(0, len(x), _CHUNK):
            with np.errstate(over="ignore", invalid="ignore"):
                block = x[start : start + _CHUNK].astype(np.float64) - center
                lost = np.zeros(len(block), dtype=bool)
                if self.unit_norm:
                    norms = np.array([np.sqrt(np.sum(row * row)) for row in block])
                    lost = ~np.isfinite(norms) | ((norms == 0) & block.reshape(len(block), -1).any(axis=1))
                    block = block / np.where(norms > 0, norms, 1.0).reshape(-1, *[1] * (block.ndim - 1))
                scaled[start : start + _CHUNK] = block * self.scale
            lost |= ~np.isfinite(scaled[start : start + _CHUNK]).reshape(len(block), -1).all(axis=1)
            if lost.any():
                row = columns.row(start + int(np.flatnonzero(lost)[0]))
                raise DataError(
                    f"{columns.path}: '{self.x}' in {row}: too large or too small to scale by dataset.scale and center, or "
                    "to bring to one length: repair or drop it"
                )
        return scaled

    def _center_source(self) -> str:
        if self.center is None:
            return "none"
        return f"key '{self.center}' of {self.path.name}" if isinstance(self.center, str) else "given in the configuration"

    def _preprocessing(self) -> Grounds:
        return grounds(self._center_fact(), classes_fact(None if self.classes is None else "dataset.classes"))

    def _center_fact(self) -> Fact:
        if self.center is None:
            return proved("nothing is subtracted from a vector, and the scale is a constant of the configuration")
        if self.public_scaling:
            return declared(
                f"the center ({self._center_source()}) is public (dataset.public_scaling=true)",
                "private records took part in it, as in their mean",
            )
        return void(
            f"the center ({self._center_source()}) has not been declared public: a mean of private records would leak "
            "them; if it comes from public data, set dataset.public_scaling=true",
        )


def public_digest(test: Records, center: np.ndarray) -> str:
    """A hash of test records, in any order, and of the center."""
    rows = [f"{features.tobytes().hex()} {label}" for features, label in zip(test.features, test.labels, strict=True)]
    h = blake2b(center.astype(np.float64).tobytes(), digest_size=16)
    h.update("\n".join(sorted(rows)).encode())
    return h.hexdigest()


def _raw(x: np.ndarray) -> np.ndarray:
    """What ids are hashed from: half precision is widened, which loses nothing; whole numbers become decimal ones.

    An array is stored as whole numbers if all of them are: one record with a fraction would change every other's bytes.
    """
    if x.dtype.kind in "biu":
        return x.astype(np.float64)
    return x.astype(np.float32) if x.dtype == np.float16 else x
