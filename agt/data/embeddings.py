"""Vectors from a public encoder, with labels, in one npz, parquet or csv file, or a folder of
memory-mapped arrays.

A folder that ``agt data prepare`` made says so itself (``prepared.json``). Condition b rests on
what the preparation says, and on its arrays being the ones it made: so that file carries a checksum
of itself and the SHA-256 of each array, and both are checked before anything is read: once in a
process, since arrays may be gigabytes.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from agt.data.dataset import Dataset
from agt.data.erasure import IsErased
from agt.data.file_settings import EmbeddingsSettings, FileConstants
from agt.data.files import ColumnReader, arrays_in, same_shape
from agt.data.labelled import FileFeatures, FileRows, LabelledFile, RowContent
from agt.data.records import Records
from agt.errors import DataError, DataMissing
from agt.facts import Evidence, Fact, declared, evidence, not_held, proved
from agt.settings import schema
from agt.store import file_sha256, places, unseal

FORMAT = 2
PREPARED = "prepared.json"
PROGRESS = "progress.json"
_SCALED_ROWS = 8192
_AGAIN = "delete the folder and prepare the data again with `agt data prepare`"


@schema
class Embeddings(EmbeddingsSettings, LabelledFile):
    """Features are (x - center) * scale, or with ``unit_norm`` scale * (x - center) / |x - center|,
    in float32.
    """

    exact: ClassVar[bool] = True

    def load_without(self, is_erased: IsErased) -> Dataset:
        """As ``LabelledFile.load_without``; a file that only has the name of the one declared about
        is refused.

        Private records do not enter ``public_digest``.
        """
        dataset = super().load_without(is_erased)
        if self.public_digest is not None:
            columns = self._open()
            center = self._center(columns)
            digest = public_digest(dataset.test, np.asarray(0.0 if center is None else center))
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
        same_shape(content[0], constants.shape or (), columns.path)
        center = None if constants.center is None else np.array(constants.center, dtype=np.float64)
        self._check_center(columns, center)
        return self._scaled(content[0], columns, center)

    def formula(self) -> dict[str, Any]:
        """How features are made of the vectors of an npz, for readers without agt."""
        center = self.settled.center if self.settled is not None else self.center
        key = {"key": self.x, "center": 0.0 if center is None else center}
        return {"vectors": key | {"unit_norm": self.unit_norm, "scale": self.scale}}

    def _open(self) -> ColumnReader:
        tried = places(self.path, self.data_dir)
        require_finished(next((place for place in tried if place.exists()), tried[-1]), self.obtain)
        return super()._open()

    def _content(self, columns: ColumnReader) -> RowContent:
        # The vectors as stored; half precision is widened, which loses nothing, and whole numbers
        # become decimal.
        x = columns.matrix(self.x, "dataset.x")
        if x.dtype.kind in "biu":
            return (x.astype(np.float64),)
        return (x.astype(np.float32) if x.dtype == np.float16 else x,)

    def _features(self, files: Sequence[FileRows]) -> FileFeatures:
        center = self._center(files[0].columns)
        return FileFeatures(
            arrays=[self._scaled(rows.content[0], rows.columns, center) for rows in files],
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
        alone = alone_fact(rows.columns.path, units=self.unit is not None)
        return evidence(
            split,
            alone or declared("vectors_made_alone", column=self.x),
            *rows.facts,
        )

    def _center(self, columns: ColumnReader) -> np.ndarray | None:
        # float64, as one record's vectors; None: nothing is subtracted.
        if self.center is None:
            return None
        if not isinstance(self.center, str):
            return np.array(self.center)
        return columns.array(self.center, "dataset.center").astype(np.float64)

    def _check_center(self, columns: ColumnReader, center: np.ndarray | None) -> None:
        # A file of queries that brings constants of its own must bring the same ones.
        if center is None or not isinstance(self.center, str) or self.center not in columns.names:
            return
        theirs = self._center(columns)
        if not np.array_equal(np.asarray(theirs), center):
            raise DataError(
                f"{columns.path}: the array '{self.center}' in this file of queries differs from "
                f"that in {self.path.name}, so the queries and the training records were scaled "
                "with different constants. Give unscaled queries, which agt then scales"
            )

    def _scaled(
        self, x: np.ndarray, columns: ColumnReader, center: np.ndarray | None
    ) -> np.ndarray:
        """Computed in float64, each record alone, and rounded once to float32.

        Args:
            columns: where ``x`` comes from, for messages.
            center: float64; None: nothing is subtracted.

        Raises:
            DataError: the center has another shape, or a value is out of reach of these numbers.
        """
        if center is not None and center.shape != x.shape[1:]:
            raise DataError(
                f"{columns.path}: dataset.center has shape {center.shape}, but the vectors have "
                f"shape {x.shape[1:]}: give a center of the same shape"
            )
        if self.center is None and self.scale == 1 and not self.unit_norm and x.dtype == np.float32:
            return x  # nothing to do: a memory-mapped array stays where it is
        scaled = np.empty(x.shape, dtype=np.float32)
        for start in range(0, len(x), _SCALED_ROWS):
            block = scaled[start : start + _SCALED_ROWS]
            lost = self._scale_into(block, x[start : start + _SCALED_ROWS], center)
            if lost.any():
                lost = np.arange(len(x)) == start + np.flatnonzero(lost)[0]
                why = (
                    "scaling this row (dataset.scale, dataset.center) or normalising it to unit "
                    "length overflows or divides by zero: correct or remove the row"
                )
                columns.refuse(
                    self.x,
                    "dataset.x",
                    lost,
                    "numbers that are too large or too small for float32",
                    why,
                )
        return scaled

    def _scale_into(
        self, scaled: np.ndarray, x: np.ndarray, center: np.ndarray | None
    ) -> np.ndarray:
        # [n] bool: the rows that cannot be scaled.
        with np.errstate(over="ignore", invalid="ignore"):
            block = x.astype(np.float64) - (0.0 if center is None else center)
            lost = np.zeros(len(block), dtype=bool)
            if self.unit_norm:
                norms = np.array([np.sqrt(np.sum(row * row)) for row in block])
                lost = ~np.isfinite(norms) | (
                    (norms == 0) & block.reshape(len(block), -1).any(axis=1)
                )
                block = block / np.where(norms > 0, norms, 1.0).reshape(-1, *[1] * (block.ndim - 1))
            scaled[:] = block * self.scale
        unbounded: np.ndarray = ~np.isfinite(scaled).reshape(len(block), -1).all(axis=1)
        return lost | unbounded

    def _center_source(self) -> str:
        if self.center is None:
            return "none"
        return (
            f"key '{self.center}' of {self.path.name}"
            if isinstance(self.center, str)
            else "given in the configuration"
        )

    def _scaling_fact(self) -> Fact:
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


def public_digest(test: Records, center: np.ndarray) -> str:
    """A hash of test records, in any order, and of the center."""
    rows = [
        f"{features.tobytes().hex()} {label}"
        for features, label in zip(test.features, test.labels, strict=True)
    ]
    h = blake2b(center.astype(np.float64).tobytes(), digest_size=16)
    h.update("\n".join(sorted(rows)).encode())
    return h.hexdigest()


# -- prepared folders
# --------------------------------------------------------------------------------------------------


def part_of(folder: Path) -> Path:
    """Where a folder lies until it is whole."""
    return folder.with_name(f"{folder.name}.part")


def read_prepared(folder: Path) -> dict[str, Any]:
    """``prepared.json`` of a finished folder, its arrays checked against it.

    Raises:
        DataError: there is none, it is of another format, damaged or edited; or an array is
            missing, not listed, or not the one that was made: it is named.
    """
    path = folder / PREPARED
    try:
        prepared = unseal(path.read_bytes())
        form = prepared["format"]
        arrays = prepared["arrays"] if form == FORMAT else {}
    except FileNotFoundError:
        raise DataError(
            f"{folder}: the file {PREPARED} is missing, so this folder was not made by `agt data "
            "prepare`: choose another folder, or delete this one"
        ) from None
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{path}: agt cannot read this file ({error}): {_AGAIN}") from None
    if form != FORMAT:
        raise DataError(
            f"{path}: the file has format {form}, but this version of agt reads format "
            f"{FORMAT}: {_AGAIN}"
        )
    for name, array in arrays.items():
        _check_array(
            folder / f"{name}.npy", tuple(array["shape"]), np.dtype(array["dtype"]), array["sha256"]
        )
    stray = [file for file in arrays_in(folder) if file.stem not in arrays]
    if stray:
        raise DataError(
            f"{stray[0]}: this array was not written by `agt data prepare`, because {PREPARED} "
            "does not list it: move it out of the folder"
        )
    return prepared


@lru_cache(maxsize=256)
def _sha256_once(path: Path, *state: int) -> str:
    return file_sha256(path)


def _check_array(path: Path, shape: tuple[int, ...], dtype: np.dtype, sha256: str) -> None:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise DataError(
            f"{path}: this file of an array is missing, truncated or of another format "
            f"({error}): {_AGAIN}"
        ) from None
    if array.shape != shape or array.dtype != dtype:
        raise DataError(
            f"{path}: this array has type {array.dtype} and shape {array.shape}, but {PREPARED} "
            f"states type {dtype} and shape {shape}: {_AGAIN}"
        )
    state = path.stat()
    if _sha256_once(path.resolve(), state.st_size, state.st_mtime_ns, state.st_ino) != sha256:
        raise DataError(
            f"{path}: this array changed after `agt data prepare` wrote it (its SHA-256 is not "
            f"the one in {PREPARED}): {_AGAIN}"
        )


def require_finished(path: Path, obtain: str | None) -> None:
    """Check a folder that may have been prepared, before anything of it is read.

    Args:
        path: a folder or file of data.
        obtain: the command that makes it, if there is one.

    Raises:
        DataMissing: it is absent (where ``obtain`` is given; otherwise whoever opens it says so),
            or unfinished.
        DataError: as ``read_prepared``.
    """
    unfinished = (
        path if (path / PROGRESS).exists() and not (path / PREPARED).exists() else part_of(path)
    )
    if unfinished.is_dir() and (unfinished == path or not path.exists()):
        again = obtain or "agt data prepare NAME"
        raise DataMissing(
            f"{unfinished}: `agt data prepare` was interrupted before this file was complete. To "
            f"continue, type the same command again: {again}"
        )
    if obtain and not path.exists():
        raise DataMissing(
            f"{path} does not exist: create this file with {obtain}. If you have the file at "
            "another place, change dataset.path or data_dir"
        )
    if (path / PREPARED).exists():
        read_prepared(path)


def alone_fact(path: Path, units: bool) -> Fact | None:
    """Condition b as far as the preparation goes: whether a record's arrays depend on that record
    (or unit) alone.

    Args:
        path: a folder or file of data.
        units: whether units, not rows, are what may come and go.

    Returns:
        None if nothing is said: data that no preparation made.

    Raises:
        DataError: as ``read_prepared``.
    """
    if not (path / PREPARED).exists():
        return None
    prepared = read_prepared(path)
    alone = prepared.get("alone", {}).get("units" if units else "rows")
    if not isinstance(alone, Mapping):
        return not_held("preparation_silent", file=PREPARED)
    text = str(alone["why"])  # of the program that prepared the folder
    return (
        proved("prepared_alone", text=text)
        if alone.get("held") is True
        else not_held("prepared_together", text=text)
    )
