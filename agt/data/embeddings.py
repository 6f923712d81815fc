"""Vectors from a public encoder, with labels, in one npz, parquet or csv file, or a folder of memory-mapped arrays."""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from agt.data.assemble import class_names, read_labels
from agt.data.checks import check_label
from agt.data.dataset import DataError, Dataset, Records
from agt.data.declarations import features_fact
from agt.data.erasure import Gone
from agt.data.files import Columns, places, same_shape
from agt.data.labelled import Content, Features, LabelledFile, Rows, Settled
from agt.data.prepared import alone_fact, require_finished
from agt.facts import Fact, Grounds, declared, grounds, proved, void
from agt.settings import Positive, schema

_CHUNK = 8192


@schema
class Embeddings(LabelledFile):
    """Features are (x - center) * scale, or with ``unit_norm`` scale * (x - center) / |x - center|, in float32.

    Attributes (the others: ``LabelledFile``; a column may be the key of an npz):
        path: npz, parquet, csv or a folder of npy files, such as ``agt data prepare`` makes.
        x: the vectors: an npz key, a column of lists, or the prefix of numbered columns.
        is_test: column that marks test records; None: a hash split.
        unit_rows: public cap on the rows of one unit: what ``relation.unit_rows`` is unless it is given (conf/relation).
        center: what is subtracted: an npz key, or the numbers themselves.
        scale: public factor.
        unit_norm: bring every vector to length ``scale``; a vector equal to the center stays zero.
        public_scaling: whoever runs this declares ``center`` public (not computed from training records).
        public_digest: of the test records and the center, which are public; other ones are refused, since what this
            configuration declares was said about these. None: any.
        obtain: the command that makes the data, for the message where it is not there.
    """

    exact: ClassVar[bool] = True
    SPLIT: ClassVar[str] = "is_test"

    label: str = "label"
    x: str = "x"
    is_test: str | None = None
    unit_rows: Annotated[int, Field(ge=1)] = 1
    center: str | tuple[float, ...] | None = None
    scale: Positive = 1.0
    unit_norm: bool = False
    public_scaling: bool = False
    public_digest: str | None = None
    obtain: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_label(self.label, {"x": self.x})

    def load_without(self, gone: Gone) -> Dataset:
        """As ``LabelledFile.load_without``; a file that only has the name of the one declared about is refused.

        Private records do not enter ``public_digest``.
        """
        dataset = super().load_without(gone)
        if self.public_digest is not None:
            columns = self._open()
            center = self._center(columns)
            digest = public_digest(dataset.test, np.asarray(0.0 if center is None else center))
            if digest != self.public_digest:
                raise DataError(
                    f"{columns.path}: its public part (test records and center) has the digest {digest} and "
                    f"dataset.public_digest is {self.public_digest}: what this configuration declares is about another "
                    "file; describe yours with dataset=embeddings, or set dataset.public_digest=null and declare it all "
                    "yourself"
                )
        return dataset

    def _asked(self, columns: Columns, content: Content, settled: Settled) -> np.ndarray:
        same_shape(content[0], settled.shape or (), columns.path)
        center = None if settled.center is None else np.array(settled.center, dtype=np.float64)
        self._check_center(columns, center)
        return self._scaled(content[0], columns, center)

    def formula(self) -> dict[str, Any]:
        """How features are made of the vectors of an npz, for readers without agt."""
        center = self.settled.center if self.settled is not None else self.center
        key = {"key": self.x, "center": 0.0 if center is None else center}
        return {"vectors": key | {"unit_norm": self.unit_norm, "scale": self.scale}}

    def _open(self) -> Columns:
        tried = places(self.path, self.data_dir)
        require_finished(next((place for place in tried if place.exists()), tried[-1]), self.obtain)
        return super()._open()

    def _content(self, columns: Columns) -> Content:
        """The vectors as stored; half precision is widened, which loses nothing, and whole numbers become decimal."""
        x = columns.matrix(self.x, "dataset.x")
        if x.dtype.kind in "biu":
            return (x.astype(np.float64),)
        return (x.astype(np.float32) if x.dtype == np.float16 else x,)

    def _features(self, files: Sequence[Rows]) -> Features:
        center = self._center(files[0].columns)
        return Features(
            arrays=[self._scaled(rows.content[0], rows.columns, center) for rows in files],
            scaling={"center": self._center_source(), "scale": self.scale, "unit_norm": self.unit_norm},
            settled={"shape": files[0].content[0].shape[1:], "center": None if center is None else center.tolist()},
        )

    def _settle(self) -> Settled:
        source = self._open()
        classes = self._listed or class_names(read_labels(source, self.label, None), source.path)
        center = self._center(source)
        return Settled(classes, source.matrix(self.x, "dataset.x").shape[1:], None if center is None else center.tolist())

    def _selection(self, split: Fact, rows: Rows) -> Grounds:
        alone = alone_fact(rows.columns.path, units=self.unit is not None)
        return grounds(split, alone or features_fact(f"the vectors ('{self.x}')"), *rows.facts)

    def _center(self, columns: Columns) -> np.ndarray | None:
        """float64, as one record's vectors; None: nothing is subtracted."""
        if self.center is None:
            return None
        if not isinstance(self.center, str):
            return np.array(self.center)
        center = columns.raw(self.center, "dataset.center")
        if not isinstance(center, np.ndarray) or center.dtype.kind not in "iuf" or not np.isfinite(center).all():
            raise DataError(f"{columns.path}: dataset.center: '{self.center}' must be an npz key with finite numbers")
        return center.astype(np.float64)

    def _check_center(self, columns: Columns, center: np.ndarray | None) -> None:
        """A file of queries that brings constants of its own must bring the same ones."""
        if center is None or not isinstance(self.center, str) or self.center not in columns.names:
            return
        theirs = self._center(columns)
        if theirs is None or not np.array_equal(theirs, center):
            raise DataError(
                f"{columns.path}: its '{self.center}' is not {self.path.name}'s: these queries were made for other "
                "constants; queries are given unscaled, and the dataset's own constants scale them"
            )

    def _scaled(self, x: np.ndarray, columns: Columns, center: np.ndarray | None) -> np.ndarray:
        """Computed in float64, each record alone, and rounded once to float32.

        Args:
            columns: where ``x`` comes from, for messages.
            center: float64; None: nothing is subtracted.

        Raises:
            DataError: the center has another shape, or a value is out of reach of these numbers.
        """
        if center is not None and center.shape != x.shape[1:]:
            raise DataError(f"{columns.path}: dataset.center has shape {center.shape}, the vectors {x.shape[1:]}")
        if self.center is None and self.scale == 1 and not self.unit_norm and x.dtype == np.float32:
            return x  # nothing to do: a memory-mapped array stays where it is
        scaled = np.empty(x.shape, dtype=np.float32)
        for start in range(0, len(x), _CHUNK):
            with np.errstate(over="ignore", invalid="ignore"):
                block = x[start : start + _CHUNK].astype(np.float64) - (0.0 if center is None else center)
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

    def _scaling_fact(self) -> Fact:
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
