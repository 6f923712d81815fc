"""Vectors from a public encoder, with labels, in npz, parquet or csv files or folders of arrays."""

import re
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from agt.data.arrays import block_slices
from agt.data.column_reader import ColumnReader
from agt.data.dataset import Dataset
from agt.data.erasure import IsErased
from agt.data.file_rows import FileFeatures, FileRows, RowContent
from agt.data.file_settings import EmbeddingsSettings, FileConstants
from agt.data.files import same_shape
from agt.data.labelled import LabelledFile
from agt.data.prepared import require_finished, separate_preparation_fact
from agt.data.records import Records
from agt.errors import DataError
from agt.facts import Evidence, Fact, declared, evidence, not_held, proved
from agt.settings import schema
from agt.store.locations import possible_paths

_SCALED_ROWS = 8192
"""Rows that are scaled at once."""


@schema
class Embeddings(EmbeddingsSettings, LabelledFile):
    """Vectors in a file, with labels.

    The features of a vector x are (x - center) * scale, or with ``unit_norm``
    scale * (x - center) / |x - center|, in float32.
    """

    exact = True

    def load_without(self, is_erased: IsErased) -> Dataset:
        """Load the data without records that are erased, as ``LabelledFile.load_without`` does.

        If declarations were made about a file (``public_digest``), another file of the same name is
        refused. Private records do not enter that digest.

        Raises:
            DataMissing: there is no such file.
            DataError: the file cannot be used, or is another one.
        """
        dataset = super().load_without(is_erased)
        if self.public_digest is not None:
            columns = self._open()
            center = self._center(columns)
            if center is None:
                center = np.zeros(())
            digest = public_digest(dataset.test, center)
            if digest != self.public_digest:
                raise DataError(
                    f"{columns.path}: the declarations in this configuration were made for another "
                    f"file (dataset.public_digest is {self.public_digest}, but the public part of "
                    f"your file, its test records and center, has the digest {digest}). Describe "
                    "your own file with dataset=embeddings. Or set dataset.public_digest=null, and "
                    "make each declaration about your file yourself"
                )
        return dataset

    def _query_features(
        self, columns: ColumnReader, content: RowContent, constants: FileConstants
    ) -> np.ndarray:
        """Return the features [n, d] float32 of queries.

        Args:
            columns: the file of queries.
            content: the vectors [n, d], as ``_content`` returns them.
            constants: the shape and center of the training records.

        Raises:
            DataError: the shape or a center in the file is another one, or a row cannot be scaled.
        """
        (vectors,) = content
        same_shape(vectors, constants.shape or (), columns.path)
        center = None if constants.center is None else np.array(constants.center, dtype=np.float64)
        self._check_center(columns, center)
        return self._scaled(vectors, columns, center)

    def formula(self) -> dict[str, Any]:
        """Return a formula for the features of an npz's vectors, for programs without agt."""
        center = self.settled.center if self.settled is not None else self.center
        return {
            "vectors": {
                "key": self.x,
                "center": 0.0 if center is None else center,
                "unit_norm": self.unit_norm,
                "scale": self.scale,
            }
        }

    def _open(self) -> ColumnReader:
        """Open the file or folder, which must not be a half-prepared one.

        Raises:
            DataMissing: there is no such file, or its preparation has not ended.
            DataError: it is damaged, or has neither vectors nor labels under the keys of settings.
        """
        candidates = possible_paths(self.path, self.data_dir)
        existing = [path for path in candidates if path.exists()]
        path = existing[0] if existing else candidates[-1]
        require_finished(path, self.obtain)
        columns = super()._open()
        self._check_keys(columns)
        return columns

    def _check_keys(self, columns: ColumnReader) -> None:
        """Raise DataError, naming both keys, if a file has no vectors and no labels under them."""
        numbered = re.compile(rf"{re.escape(self.x)}_?\d+")  # a csv has a column for each number
        has_vectors = self.x in columns.names or any(map(numbered.fullmatch, columns.names))
        if has_vectors or self.label in columns.names:
            return
        known = ", ".join(columns.names)
        raise DataError(
            f"{columns.path}: there is neither a key '{self.x}' with the vectors nor a key "
            f"'{self.label}' with the labels (known: {known}): give dataset.x=KEY and "
            "dataset.label=KEY"
        )

    def _content(self, columns: ColumnReader) -> RowContent:
        """Read the vectors [n, ...] in the precision of the file, before they are scaled.

        Half precision becomes float32, and whole numbers become float64; both are exact.
        """
        vectors = columns.matrix(self.x, "dataset.x")
        if vectors.dtype.kind in "biu":
            return (vectors.astype(np.float64),)
        if vectors.dtype == np.float16:
            return (vectors.astype(np.float32),)
        return (vectors,)

    def _features(self, files: Sequence[FileRows]) -> FileFeatures:
        """Return the scaled features of the training file and the test file, if there is one."""
        center = self._center(files[0].columns)
        arrays = [self._scaled(rows.content[0], rows.columns, center) for rows in files]
        return FileFeatures(
            arrays=arrays,
            scaling={
                "center": self._center_source(),
                "scale": self.scale,
                "unit_norm": self.unit_norm,
            },
            settled={
                "shape": files[0].content[0].shape[1:],
                "center": None if center is None else center.tolist(),
            },
        )

    def _selection(self, split: Fact, rows: FileRows) -> Evidence:
        """Return the facts on the split, and that each vector was computed from its record alone.

        They are evidence for condition b of a privacy guarantee: each record is processed by
        itself.
        """
        prepared_alone = separate_preparation_fact(rows.columns.path, units=self.unit is not None)
        made_alone = prepared_alone or declared("vectors_made_alone", column=self.x)
        return evidence(split, made_alone, *rows.facts)

    def _center(self, columns: ColumnReader) -> np.ndarray | None:
        """Return the center in float64; None: nothing is subtracted.

        It has the shape of one vector, or the shape () if it is one number for all features.

        Args:
            columns: the file, which has the center if ``center`` is a key.
        """
        if self.center is None:
            return None
        if not isinstance(self.center, str):
            return np.array(self.center)
        return columns.array(self.center, "dataset.center").astype(np.float64)

    def _check_center(self, columns: ColumnReader, center: np.ndarray | None) -> None:
        """Raise DataError if a file of queries has a center that differs from the training data's.

        Args:
            columns: the file of queries.
            center: the center of the training data; None: nothing is subtracted.
        """
        if center is None or not isinstance(self.center, str) or self.center not in columns.names:
            return
        center_of_queries = self._center(columns)
        if not np.array_equal(np.asarray(center_of_queries), center):
            raise DataError(
                f"{columns.path}: the array '{self.center}' in this file of queries differs from "
                f"that in {self.path.name}, so the queries and the training records were scaled "
                "with different constants. Give unscaled queries, which agt then scales"
            )

    def _scaled(
        self, vectors: np.ndarray, columns: ColumnReader, center: np.ndarray | None
    ) -> np.ndarray:
        """Return the features [n, d] float32 of vectors [n, d].

        They are computed in float64, each record alone, and rounded once.

        Args:
            vectors: [n, d], as ``_content`` returns them.
            columns: the file, for messages.
            center: float64 in the shape of one vector, or one number; None: nothing is subtracted.

        Raises:
            DataError: the center has another shape, or a row overflows or divides by zero.
        """
        if center is not None and center.shape not in ((), vectors.shape[1:]):
            raise DataError(
                f"{columns.path}: dataset.center has shape {center.shape}, but the vectors have "
                f"shape {vectors.shape[1:]}: give a center of the same shape, or one number"
            )
        changes_nothing = self.center is None and self.scale == 1 and not self.unit_norm
        if changes_nothing and vectors.dtype == np.float32:
            return vectors  # a memory-mapped array stays where it is
        features = np.empty(vectors.shape, dtype=np.float32)
        for rows in block_slices(len(vectors), _SCALED_ROWS):
            is_bad = self._scale_into(features[rows], vectors[rows], center)
            if is_bad.any():
                first_bad_row = rows.start + np.flatnonzero(is_bad)[0]
                columns.refuse(
                    self.x,
                    "dataset.x",
                    np.arange(len(vectors)) == first_bad_row,
                    "numbers that are too large or too small for float32",
                    "scaling this row (dataset.scale, dataset.center) or normalising it to unit "
                    "length overflows or divides by zero: correct or remove the row",
                )
        return features

    def _scale_into(
        self, features: np.ndarray, vectors: np.ndarray, center: np.ndarray | None
    ) -> np.ndarray:
        """Write the scaled vectors of some rows into ``features``, and return which rows fail.

        Args:
            features: [n, d] float32, which is overwritten.
            vectors: [n, d], the vectors to scale.
            center: float64 in the shape of one vector, or one number; None: nothing is subtracted.

        Returns:
            [n] bool, True for rows that overflow or divide by zero.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = vectors.astype(np.float64)
            if center is not None:
                scaled -= center
            is_bad = np.zeros(len(scaled), dtype=bool)
            if self.unit_norm:
                # Row by row, so that a record's norm has the same bits among any other records.
                norms = np.array([np.sqrt(np.sum(row * row)) for row in scaled])
                # The norm of a row that is not zero underflows to 0 if its numbers are tiny.
                has_nonzero = scaled.reshape(len(scaled), -1).any(axis=1)
                is_bad = ~np.isfinite(norms) | ((norms == 0) & has_nonzero)
                divisors = np.where(norms > 0, norms, 1.0)
                scaled = scaled / _one_a_row(divisors, scaled.ndim)
            features[:] = scaled * self.scale
        is_finite = np.isfinite(features).reshape(len(features), -1).all(axis=1)
        return is_bad | ~is_finite

    def _center_source(self) -> str:
        """Return a text that says which center is subtracted, for the record of a run."""
        if self.center is None:
            return "none"
        if isinstance(self.center, str):
            return f"key '{self.center}' of {self.path.name}"
        return "given in the configuration"

    def _scaling_fact(self) -> Fact:
        """Return the fact that the center is a public constant, or that it was not declared."""
        if self.center is None:
            return proved("nothing_subtracted")
        setting = "dataset.public_scaling"
        if isinstance(self.center, str):
            source = {"key": self.center, "file": self.path.name, "setting": setting}
            if self.public_scaling:
                return declared("center_of_file_public", **source)
            return not_held("center_of_file_undeclared", **source)
        if self.public_scaling:
            return declared("center_given_public", setting=setting)
        return not_held("center_given_undeclared", setting=setting)


def _one_a_row(values: np.ndarray, axes: int) -> np.ndarray:
    """Return values [n] in a shape [n, 1, ...] of ``axes`` axes, to divide arrays of n rows by."""
    return values.reshape(-1, *[1] * (axes - 1))


def public_digest(test: Records, center: np.ndarray) -> str:
    """Return a hash of test records, in any order, and of the center: 32 hexadecimal digits.

    Args:
        test: the test records, with features [n, d] and labels.
        center: the constant that is subtracted from vectors.
    """
    rows = [
        f"{features.tobytes().hex()} {label}"
        for features, label in zip(test.features, test.labels, strict=True)
    ]
    digest = blake2b(center.astype(np.float64).tobytes(), digest_size=16)
    digest.update("\n".join(sorted(rows)).encode())
    return digest.hexdigest()
