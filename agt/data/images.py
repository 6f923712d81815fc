"""Images known by name: the digits of scikit-learn (1,797 of 8 x 8 pixels, UCI Optical
Recognition), of MNIST, and the sets of MedMNIST.

Every choice about a record (used, held out, pretraining or fine-tuning) is a function of its own
class and of a keyed hash of its own id (condition b of reference.md section 3: each record is
processed by itself); balancing by counting classes would not be.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from agt.data.column_reader import ColumnReader
from agt.data.dataset import Dataset
from agt.data.files import open_columns, same_length, same_shape
from agt.data.ids import default_ids, hash_split, uniform
from agt.data.image_settings import DigitsSettings, ImageConstants, MedMnistSettings, MnistSettings
from agt.data.labels import class_indices, query_labels, read_labels
from agt.data.meanings import split_fact
from agt.data.medmnist_files import INSTALL, info_of, md5_of, official_file
from agt.data.queries import queries
from agt.data.records import UNLABELLED, Records, records
from agt.data.target import ClassTarget
from agt.errors import ConfigError, DataError, DataMissing
from agt.facts import Evidence, Fact, Value, declared, evidence, not_held, proved
from agt.settings import keyword_schema, schema, validate
from agt.store.locations import locate, resolve

_UNCHECKED = " (a local file, whose hash is not checked)"
_WHITE = 255.0


@schema
class Digits(DigitsSettings):
    """Digits of the chosen classes, those of scikit-learn. Features are pixels/16 - 0.5.

    Attributes:
        LEVELS: the largest value of a pixel.
        CENTER: the number that is subtracted from a pixel after it is divided by ``LEVELS``.
        NAME: the name of the data in reports.
        SIDE: the height and width of an image, in pixels.
    """

    LEVELS: ClassVar[float] = 16.0
    CENTER: ClassVar[float] = 0.5
    NAME: ClassVar[str] = "digits"
    SIDE: ClassVar[int] = 8

    def load(self) -> Dataset:
        """Read every image, select the chosen classes, and split by hashes of the content."""
        pixels, digits = self._read()
        ids = default_ids(pixels, digits)
        used_digits = self.classes or tuple(range(10))
        is_used = np.isin(digits, used_digits)
        all_records = records(
            self._scale(pixels[is_used]),
            np.array([used_digits.index(digit) for digit in digits[is_used].tolist()]),
            ids[is_used],
            rows=np.flatnonzero(is_used),
        )
        # Copies have the same content, so they are on the same side of the split.
        contents = default_ids(pixels, digits, numbered=False)[is_used]
        is_test = hash_split(contents, self.test_fraction, self.split_key)
        selection = evidence(
            proved("digits_used", digits=tuple(self._names)),
            split_fact(self.test_fraction, self.split_key),
        )
        scaled = proved("pixels_divided", levels=self.LEVELS, center=self.CENTER)
        return Dataset(
            name=self.NAME,
            target=ClassTarget(self._names),
            train=all_records.take(~is_test),
            test=all_records.take(is_test),
            declared_size=self.declared_size,
            scaling={"divisor": self.LEVELS, "center": self.CENTER},
            selection=selection,
            preprocessing=evidence(scaled),
        )

    def load_queries(self, path: Path) -> Records:
        """Read unscaled pixels: key x [n, pixels] or [n, h, w] of an npz, or columns x0, x1, ....

        ``label`` and ``id`` are optional.

        Raises:
            DataMissing: there is no such file.
            DataError: the file or a value cannot be used.
        """
        return self.read_queries(open_columns(path, "inputs"))

    def read_queries(self, columns: ColumnReader) -> Records:
        """Read queries as ``load_queries`` does, from columns that are open already."""
        path = columns.path
        pixels = columns.matrix("x", "inputs").astype(np.float64)
        pixels = pixels.reshape(len(pixels), -1)
        same_shape(pixels, (self.SIDE**2,), path)
        if len(pixels) and (pixels.min() < 0 or pixels.max() > self.LEVELS):
            raise DataError(
                f"{path}: the pixels lie between {pixels.min():g} and {pixels.max():g}, but "
                f"must be unscaled, between 0 and {self.LEVELS:g}"
            )
        labels = query_labels(columns, "label", self._names, len(pixels))
        return queries(columns, self._scale(pixels), (pixels,), labels)

    def _read(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the pixels [n, p] and the digits [n] int64 of every image that there is."""
        from sklearn.datasets import load_digits

        bunch = load_digits()
        return bunch.data, bunch.target.astype(np.int64)

    def _scale(self, pixels: np.ndarray) -> np.ndarray:
        """Return the features [n, p] float32 of unscaled pixels [n, p]."""
        return (pixels / self.LEVELS - self.CENTER).astype(np.float32)

    @property
    def _names(self) -> tuple[str, ...]:
        """The names of the classes, in the order of their indices."""
        return tuple(map(str, self.classes or range(10)))


@keyword_schema
class Mnist(MnistSettings, Digits):
    """Digits of MNIST, 28 x 28 pixels. Features are pixels/255.

    The file is an npz with ``images`` (uint8 [n, 28, 28]) and ``labels`` [n].
    """

    LEVELS = 255.0
    CENTER = 0.0
    NAME = "MNIST digits"
    SIDE = 28

    def _read(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the pixels [n, 784] uint8 and the digits [n] int64 of every image in the file.

        Raises:
            DataMissing: there is no such file.
            DataError: the file is damaged, empty, or has other types or shapes.
        """
        columns = open_columns(self.path, "dataset.path or data_dir", self.data_dir)
        images = columns.matrix("images", "MNIST's images")
        digits = class_indices(read_labels(columns, "labels"), tuple("0123456789"), columns.path)
        same_shape(images, (self.SIDE, self.SIDE), columns.path)
        if images.dtype != np.uint8:
            raise DataError(
                f"{columns.path}: the images have the type {images.dtype}, but must be uint8 "
                "pixels between 0 and 255"
            )
        same_length(columns.path, len(images), {"labels": digits})
        if not len(images):
            raise DataError(f"{columns.path}: no rows")
        return images.reshape(len(images), -1), digits


@schema
class MedMnist(MedMnistSettings):
    """One data set of MedMNIST.

    Features are (x/255 - center) / scale for each pixel x, [channels, height, width] per record.
    """

    def load(self) -> Dataset:
        """Read, select and scale the images.

        If classes are held out, there are pretraining records, too, none of which is a training
        record.

        Raises:
            DataMissing: the file is not there and cannot be downloaded, or the package medmnist is
                needed and not installed.
            DataError: the file has a wrong hash or is damaged, the set is multi-label or
                three-dimensional, or a class is unknown.
        """
        file = self._locate()
        columns = open_columns(file.path, "dataset.path or data_dir")
        training_splits = ("train", "val") if self.with_val else ("train",)
        images, labels = _read_splits(columns, training_splits)
        test_images, test_labels = _read_splits(columns, ("test",))
        ids = default_ids(images, labels)
        test_ids = default_ids(test_images, test_labels)
        present_classes = sorted({*labels.tolist(), *test_labels.tolist()})
        used = self._used_classes(present_classes, file.path)
        features = self._scale(images)
        is_selected = self._are_selected(images, labels, used)
        train = records(
            features[is_selected],
            self._indices(labels[is_selected], used),
            ids[is_selected],
            rows=np.flatnonzero(is_selected),
        )
        is_test_used = np.isin(test_labels, used)
        test = records(
            self._scale(test_images[is_test_used]),
            self._indices(test_labels[is_test_used], used),
            test_ids[is_test_used],
            rows=np.flatnonzero(is_test_used),
        )
        return Dataset(
            name=self.name + file.origin,
            target=ClassTarget(self._names(used)),
            train=train,
            test=test,
            declared_size=self.declared_size,
            scaling={"divisor": _WHITE, "center": self.center, "scale": self.scale},
            selection=self._selection(used),
            preprocessing=evidence(proved("pixels_scaled"), self._classes_fact()),
            pretrain=self._pretraining_records(features, labels, ids, is_selected),
            settled={"shape": images.shape[1:], "used": used},
        )

    def _are_selected(self, images: np.ndarray, labels: np.ndarray, used: list[int]) -> np.ndarray:
        """Return whether each training image becomes a training record, [n] bool.

        Copies are selected together: else a private copy that is removed would change which number
        a public copy gets, and so whether that one is selected.

        Args:
            images: [n, c, h, w] uint8, all training images of the file.
            labels: [n] classes of MedMNIST.
            used: the classes that are used.
        """
        contents = default_ids(images, labels, numbered=False)
        rates = np.array([self.keep.get(label, 1.0) for label in labels.tolist()])
        return np.isin(labels, used) & (uniform(contents, self.keep_key) < rates)

    def _pretraining_records(
        self, features: np.ndarray, labels: np.ndarray, ids: np.ndarray, is_selected: np.ndarray
    ) -> Records | None:
        """Return the images that are neither training records nor of a held-out class.

        Args:
            features: [n, c, h, w], scaled.
            labels: [n] classes of MedMNIST.
            ids: [n], the ids of the records.
            is_selected: [n] bool, the training records.

        Returns:
            None if no class is held out.
        """
        if not self.held_out:
            return None
        is_rest = ~is_selected & ~np.isin(labels, self.held_out)
        classes = np.unique(labels[is_rest]).tolist()
        class_indices = self._indices(labels[is_rest], classes)
        public = np.full(int(is_rest.sum()), self.pretrain_public)
        return records(features[is_rest], class_indices, ids[is_rest], public=public)

    def load_queries(self, path: Path) -> Records:
        """Read unscaled images of a npz: key ``images`` or ``x``, uint8 [n, h, w] or [n, h, w, c].

        ``labels`` (classes of MedMNIST) and ``id`` are optional.

        Raises:
            DataMissing: there is no such file.
            DataError: the file or a value cannot be used.
        """
        return self.read_queries(open_columns(path, "inputs"))

    def read_queries(self, columns: ColumnReader) -> Records:
        """Read queries as ``load_queries`` does, from columns that are open already."""
        key = "x" if "x" in columns.names else "images"
        images = _images(columns, key)
        constants = self.settled or validate(ImageConstants, self.load().settled, "dataset.settled")
        same_shape(images, constants.shape, columns.path)
        labels = np.full(len(images), UNLABELLED, dtype=np.int64)
        if "labels" in columns.names:
            labels = self._indices(_labels(columns, "labels"), list(constants.used))
        return queries(columns, self._scale(images), (images,), labels)

    @cached_property
    def _info(self) -> Mapping[str, Any] | None:
        """The metadata of this data set in the package medmnist; None if it is not installed.

        Raises:
            ConfigError: there is no such data set.
        """
        return info_of(self.name)

    def _locate(self) -> "_ImageFile":
        """Return the file of the images, which may be downloaded, and its origin.

        Raises:
            ConfigError: the data set is unknown, or does not exist in this size.
            DataMissing: the file is not there and cannot be downloaded, or medmnist is needed.
            DataError: the official file has another hash, or records have several labels.
        """
        own_path = None
        if self.path is not None:
            own_path = locate(self.path, self.data_dir, "dataset.path or data_dir")
        if self._info is None:
            if own_path is None:
                raise DataMissing(
                    f"the official file of {self.name} needs the package medmnist, which is "
                    f"not installed: type {INSTALL}"
                )
            return _ImageFile(own_path, _UNCHECKED)
        url, md5 = self._official_source(self._info)
        if own_path is None:
            path = resolve(Path(f"{self.name}{self._size_suffix}.npz"), self.data_dir)
            return _ImageFile(official_file(path, url, md5, self.download))
        is_official = own_path.is_file() and md5_of(own_path) == md5
        return _ImageFile(own_path) if is_official else _ImageFile(own_path, _UNCHECKED)

    def _official_source(self, info: Mapping[str, Any]) -> tuple[str, str]:
        """Return the address of the official file, and its MD5.

        Args:
            info: the metadata of this data set in the package medmnist.

        Raises:
            ConfigError: the data set does not exist in this size.
            DataError: records have several labels.
        """
        if "multi-label" in info["task"]:
            raise DataError(
                f"{self.name}: records with several labels are not supported: choose a data "
                "set with one label for each record"
            )
        suffix = self._size_suffix
        if f"url{suffix}" not in info:
            larger = [int(key.removeprefix("url_")) for key in info if key.startswith("url_")]
            raise ConfigError(
                f"dataset.size={self.size}: {info['python_class']} only exists in the sizes "
                f"{[28, *larger]}"
            )
        return info[f"url{suffix}"], info[f"MD5{suffix}"]

    @property
    def _size_suffix(self) -> str:
        """What names of MedMNIST have at their end for images of this size."""
        return "" if self.size == 28 else f"_{self.size}"

    def _used_classes(self, present: list[int], path: Path) -> list[int]:
        """Return the classes of MedMNIST that training and test records may have, increasing.

        They are public, unless only the file itself says which there are.

        Args:
            present: the classes that occur in the file, increasing.
            path: the file, for messages.

        Raises:
            DataError: a setting lists a class that does not occur, or the file has a class that
                MedMNIST does not list.
        """
        for setting in ("positive", "held_out", "finetune_classes", "keep"):
            absent = set(getattr(self, setting) or ()) - set(present)
            if absent:
                known = ", ".join(map(str, present))
                raise DataError(
                    f"{path}: dataset.{setting} lists class {min(absent)}, but the file has only "
                    f"the classes {known}: remove this class from dataset.{setting}"
                )
        if self.finetune_classes is not None or self._info is None:
            return sorted(self.finetune_classes or present)
        used = sorted(map(int, self._info["label"]))
        if not set(present) <= set(used):
            listed = ", ".join(map(str, used))
            unexpected = min(set(present) - set(used))
            raise DataError(
                f"{path}: this file has class {unexpected}, but the classes of {self.name} are "
                f"{listed}: give the official file"
            )
        return used

    def _classes_fact(self) -> Fact:
        """Return the fact whether the list of classes is known to be public.

        Condition e of a privacy guarantee (preprocessing and settings are public) needs it.
        """
        if self.finetune_classes is not None:
            return declared("classes_public", setting="dataset.finetune_classes")
        if self._info is not None:
            return proved("classes_of_medmnist")
        return not_held(
            "classes_unknown_to_medmnist", setting="dataset.finetune_classes", command=INSTALL
        )

    def _scale(self, images: np.ndarray) -> np.ndarray:
        """Return features [n, c, h, w] float32 of pixels [n, c, h, w] uint8.

        The 256 possible values are computed in float64 and rounded once.
        """
        feature_of_pixel = ((np.arange(256) / _WHITE - self.center) / self.scale).astype(np.float32)
        return feature_of_pixel[images]

    def _indices(self, labels: np.ndarray, used: list[int]) -> np.ndarray:
        """Return the model's class indices [n] int64 of classes [n] of MedMNIST.

        Args:
            labels: [n] classes of MedMNIST.
            used: the classes that are used, increasing.

        Raises:
            DataError: a class is not used.
        """
        if self.positive is not None:
            return np.isin(labels, self.positive).astype(np.int64)
        unknown = set(labels.tolist()) - set(used)
        if unknown:
            unused_class = min(unknown)
            used_classes = ", ".join(map(str, used))
            raise DataError(
                f"{self.name}: class {unused_class} occurs among the labels, but the model only "
                f"uses the classes {used_classes}: remove the records of class {unused_class}"
            )
        return np.searchsorted(used, labels).astype(np.int64)

    def _names(self, used: list[int]) -> tuple[str, ...]:
        """Return the names of the model's classes, in the order of their indices.

        With ``positive`` there are two: all other classes, and the positive ones.

        Args:
            used: the classes of MedMNIST that are used, increasing.

        Raises:
            DataError: ``positive`` lists all or none of the classes that are used.
        """
        if self._info is not None:
            name_of = {label: self._info["label"][str(label)] for label in used}
        else:
            name_of = {label: f"class {label}" for label in used}
        if self.positive is None:
            return tuple(name_of.values())
        negative = [label for label in used if label not in self.positive]
        positive = [label for label in used if label in self.positive]
        if not negative or not positive:
            number_listed = "none" if negative else "all"
            raise DataError(
                f"{self.name}: dataset.positive lists {number_listed} of the classes that are "
                "used. It must list some and leave out others, because the task is to tell the "
                "listed classes from the others"
            )
        negative_name = " or ".join(name_of[label] for label in negative)
        positive_name = " or ".join(name_of[label] for label in positive)
        return negative_name, positive_name

    def _selection(self, used: list[int]) -> Evidence:
        """Return the facts on how ids, training records and the split were chosen.

        They are the evidence for condition b of a privacy guarantee: each record is processed by
        itself (docs/method.md).

        Args:
            used: the classes of MedMNIST that are used.
        """
        code = "ids_by_content_thinned" if self.keep else "ids_by_content"
        values = dict[str, Value]()
        if self.finetune_classes is not None:
            code = "ids_by_content_of_classes_thinned" if self.keep else "ids_by_content_of_classes"
            values["classes"] = tuple(map(str, used))
        if self.keep:
            rates = (f"{label}={rate:g}" for label, rate in sorted(self.keep.items()))
            values["rates"] = tuple(rates)
            values["key"] = self.keep_key
        return evidence(proved(code, **values), declared("split_of_medmnist"))


@dataclass(frozen=True)
class _ImageFile:
    """A file of images.

    Attributes:
        path: the file.
        origin: what the name of the dataset must say about where the file is from; empty: it is the
            official one.
    """

    path: Path
    origin: str = ""


def _read_splits(columns: ColumnReader, splits: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return the unscaled images [n, c, h, w] uint8 and the classes [n] of some splits.

    Args:
        columns: the file.
        splits: some of "train", "val" and "test", in the order of the result.

    Raises:
        DataError: an array is missing or of another type, or numbers of images and labels differ.
    """
    images = np.concatenate([_images(columns, f"{split}_images") for split in splits])
    labels = np.concatenate([_labels(columns, f"{split}_labels") for split in splits])
    if len(images) != len(labels):
        raise DataError(
            f"{columns.path}: in {' and '.join(splits)}, the file has {len(images)} images but "
            f"{len(labels)} labels: give a file with one label for each image"
        )
    return images, labels


def _images(columns: ColumnReader, key: str) -> np.ndarray:
    """Return the unscaled images under a key of the file, [n, c, h, w] uint8.

    Raises:
        DataError: the array is missing, or has another type or shape.
    """
    images = columns.matrix(key, "MedMNIST's format")
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or images.shape[3:] not in ((), (3,)):
        raise DataError(
            f"{columns.path}: '{key}' has type {images.dtype} and shape {images.shape}, but must "
            "contain uint8 pixels (0 to 255) of shape [n, h, w] or [n, h, w, 3]; "
            "three-dimensional images are not supported"
        )
    if images.ndim == 3:
        return images[:, None]  # one channel
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2))


def _labels(columns: ColumnReader, key: str) -> np.ndarray:
    """Return the classes of MedMNIST under a key of the file, [n] int64.

    Raises:
        DataError: the array is missing, or has several labels or no whole numbers.
    """
    labels = columns.array(key, "MedMNIST's format")
    if labels.dtype.kind == "f" or (labels.ndim == 2 and labels.shape[1] > 1):
        raise DataError(
            f"{columns.path}: '{key}' has type {labels.dtype} and shape {labels.shape}, but must "
            "contain one whole number for each record; several labels for a record are not "
            "supported"
        )
    return labels.reshape(-1).astype(np.int64)
