"""Images known by name: scikit-learn's 1,797 digits of 8 x 8 pixels (UCI Optical Recognition),
MNIST's, MedMNIST's.

Every choice about a record (kept, held out, pretraining or fine-tuning) is a function of its own
class and of a keyed hash of its own id (reference.md section 3, condition b); balancing by counting
classes would not be.

What the medmnist package says about its files (urls, MD5, classes) is read without importing it:
that imports torchvision, whose wheels break on a CPU build of torch, and creates a folder in the
home directory. Its facts are one dictionary literal in info.py: that file is parsed, and nothing of
it is run. pooch downloads the files and verifies them.
"""

import ast
import sys
from collections.abc import Mapping
from functools import cached_property
from hashlib import file_digest
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from agt.data.dataset import Dataset
from agt.data.files import ColumnReader, open_columns, same_length, same_shape
from agt.data.ids import default_ids, hash_split, uniform
from agt.data.image_settings import DigitsSettings, ImageConstants, MedMnistSettings, MnistSettings
from agt.data.labelled import class_indices, queries, query_labels, read_labels
from agt.data.meanings import split_fact
from agt.data.records import UNLABELLED, Records, records
from agt.data.target import ClassTarget
from agt.errors import ConfigError, DataError, DataMissing, nearest
from agt.facts import Evidence, Fact, Value, declared, evidence, not_held, proved
from agt.settings import keyword_schema, schema, validate
from agt.store import locate, resolve

INSTALL = "pip install --no-deps medmnist"
_UNCHECKED = " (a local file, whose hash is not checked)"
_WHITE = 255.0


@schema
class Digits(DigitsSettings):
    """Digits of the chosen classes, those of scikit-learn; features are pixels/16 - 0.5."""

    LEVELS: ClassVar[float] = 16.0
    CENTER: ClassVar[float] = 0.5
    NAME: ClassVar[str] = "digits"
    SIDE: ClassVar[int] = 8

    def load(self) -> Dataset:
        """Read every image, keep the chosen classes, split by hash."""
        pixels, digits = self._read()
        ids = default_ids(pixels, digits)
        used = self.classes or tuple(range(10))
        kept = np.isin(digits, used)
        labels = np.array([used.index(digit) for digit in digits[kept].tolist()])
        everyone = records(self._scale(pixels[kept]), labels, ids[kept], rows=np.flatnonzero(kept))
        names = default_ids(pixels, digits, numbered=False)[kept]
        test = hash_split(names, self.test_fraction, self.split_key)
        scaled = proved("pixels_divided", levels=self.LEVELS, center=self.CENTER)
        return Dataset(
            name=self.NAME,
            target=ClassTarget(self._names),
            train=everyone.take(~test),
            test=everyone.take(test),
            declared_size=self.declared_size,
            scaling={"divisor": self.LEVELS, "center": self.CENTER},
            selection=evidence(
                proved("digits_used", digits=tuple(self._names)),
                split_fact(self.test_fraction, self.split_key),
            ),
            preprocessing=evidence(scaled),
        )

    def load_queries(self, path: Path) -> Records:
        """Raw pixels: key x [n, pixels] or [n, h, w] of an npz, or columns x0, x1, ...;
        ``label`` and ``id`` optional.
        """
        return self.read_queries(open_columns(path, "inputs"))

    def read_queries(self, columns: ColumnReader) -> Records:
        """As ``load_queries``, of columns that are there (files.columns_of)."""
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
        # (pixels [n, p], digits [n] int64) of every image there is.
        from sklearn.datasets import load_digits

        bunch = load_digits()
        return bunch.data, bunch.target.astype(np.int64)

    def _scale(self, pixels: np.ndarray) -> np.ndarray:
        return (pixels / self.LEVELS - self.CENTER).astype(np.float32)

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(map(str, self.classes or range(10)))


@keyword_schema
class Mnist(MnistSettings, Digits):
    """MNIST's digits, 28 x 28, from an npz with ``images`` (uint8 [n, 28, 28]) and ``labels`` [n];
    features are pixels/255.
    """

    LEVELS: ClassVar[float] = 255.0
    CENTER: ClassVar[float] = 0.0
    NAME: ClassVar[str] = "MNIST digits"
    SIDE: ClassVar[int] = 28

    def _read(self) -> tuple[np.ndarray, np.ndarray]:
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


# -- MedMNIST
# --------------------------------------------------------------------------------------------------


@schema
class MedMnist(MedMnistSettings):
    """One MedMNIST set; features are (x/255 - center) / scale, [channels, height, width] per
    record.
    """

    def load(self) -> Dataset:
        """Read, select and scale; with classes held out, pretraining records too, disjoint from the
        training set.

        Raises:
            DataMissing: the file is not there and cannot be downloaded, or medmnist is needed and
                not installed.
            DataError: a wrong hash, a damaged file, a multi-label or three-dimensional set, an
                unknown class.
        """
        path, origin = self._located()
        columns = open_columns(path, "dataset.path or data_dir")
        images, labels = _read(columns, ("train", "val") if self.with_val else ("train",))
        tests, test_labels = _read(columns, ("test",))
        ids, used = (
            default_ids(images, labels),
            self._used(sorted({*labels.tolist(), *test_labels.tolist()}), path),
        )
        # Copies share their fate: one that is private and goes must not take a public one's number,
        # and so its place.
        names = default_ids(images, labels, numbered=False)
        rates = np.array([self.keep.get(label, 1.0) for label in labels.tolist()])
        kept = np.isin(labels, used) & (uniform(names, self.keep_key) < rates)
        everyone, tested = self._scaled(images), np.isin(test_labels, used)
        pretrain = None
        if self.held_out:
            rest = ~kept & ~np.isin(labels, self.held_out)
            places = self._indices(labels[rest], np.unique(labels[rest]).tolist())
            public = np.full(int(rest.sum()), self.pretrain_public)
            pretrain = records(everyone[rest], places, ids[rest], public=public)
        scaled = proved("pixels_scaled")
        return Dataset(
            name=self.name + origin,
            target=ClassTarget(self._names(used)),
            train=records(
                everyone[kept],
                self._indices(labels[kept], used),
                ids[kept],
                rows=np.flatnonzero(kept),
            ),
            test=records(
                self._scaled(tests[tested]),
                self._indices(test_labels[tested], used),
                default_ids(tests, test_labels)[tested],
                rows=np.flatnonzero(tested),
            ),
            declared_size=self.declared_size,
            scaling={"divisor": _WHITE, "center": self.center, "scale": self.scale},
            selection=self._selection(used),
            preprocessing=evidence(scaled, self._classes_fact()),
            pretrain=pretrain,
            settled={"shape": images.shape[1:], "used": used},
        )

    def load_queries(self, path: Path) -> Records:
        """Raw images of a npz: key ``images`` or ``x``, uint8 [n, h, w] or [n, h, w, c];
        ``labels``, ``id`` optional.

        Labels are MedMNIST's own classes.
        """
        return self.read_queries(open_columns(path, "inputs"))

    def read_queries(self, columns: ColumnReader) -> Records:
        """As ``load_queries``, of columns that are there (files.columns_of)."""
        images = _images(columns, "x" if "x" in columns.names else "images")
        constants = self.settled or validate(ImageConstants, self.load().settled, "dataset.settled")
        same_shape(images, constants.shape, columns.path)
        labels = np.full(len(images), UNLABELLED, dtype=np.int64)
        if "labels" in columns.names:
            labels = self._indices(_labels(columns, "labels"), list(constants.used))
        return queries(columns, self._scaled(images), (images,), labels)

    @cached_property
    def _info(self) -> Mapping[str, Any] | None:
        # What medmnist says of this set; None: it is not installed.
        info = all_info()
        if info is not None and self.name not in info:
            raise ConfigError(
                f"dataset.name: MedMNIST has no data set '{self.name}'{nearest(self.name, info)}"
            )
        return None if info is None else info[self.name]

    def _located(self) -> tuple[Path, str]:
        # The file, and what its name must say about where it came from.
        path = (
            None
            if self.path is None
            else locate(self.path, self.data_dir, "dataset.path or data_dir")
        )
        if self._info is None:
            if path is None:
                raise DataMissing(
                    f"the official file of {self.name} needs the package medmnist, which is "
                    f"not installed: type {INSTALL}"
                )
            return path, _UNCHECKED
        if "multi-label" in self._info["task"]:
            raise DataError(
                f"{self.name}: records with several labels are not supported: choose a data "
                "set with one label for each record"
            )
        suffix = "" if self.size == 28 else f"_{self.size}"
        if f"url{suffix}" not in self._info:
            sizes = [
                28,
                *(int(key.removeprefix("url_")) for key in self._info if key.startswith("url_")),
            ]
            data_set = self._info["python_class"]
            raise ConfigError(
                f"dataset.size={self.size}: {data_set} only exists in the sizes {sizes}"
            )
        url, md5 = self._info[f"url{suffix}"], self._info[f"MD5{suffix}"]
        if path is None:
            path = resolve(Path(f"{self.name}{suffix}.npz"), self.data_dir)
            return _official(path, url, md5, self.download), ""
        same = path.is_file() and _md5(path) == md5
        return (
            path,
            "" if same else _UNCHECKED,
        )

    def _used(self, present: list[int], path: Path) -> list[int]:
        # The original classes of training and test records: public, unless only the file at hand
        # says them.
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
        if self.finetune_classes is not None:
            return declared("classes_public", setting="dataset.finetune_classes")
        if self._info is not None:
            return proved("classes_of_medmnist")
        return not_held(
            "classes_unknown_to_medmnist", setting="dataset.finetune_classes", command=INSTALL
        )

    def _scaled(self, images: np.ndarray) -> np.ndarray:
        # [n, c, h, w] float32: the 256 possible values are computed in float64 and rounded once.
        table = ((np.arange(256) / _WHITE - self.center) / self.scale).astype(np.float32)
        return table[images]

    def _indices(self, labels: np.ndarray, used: list[int]) -> np.ndarray:
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
        names = {c: self._info["label"][str(c)] if self._info else f"class {c}" for c in used}
        if self.positive is None:
            return tuple(names.values())
        sides = [[c for c in used if (c in self.positive) == side] for side in (False, True)]
        if not all(sides):
            none_or_all = "none" if sides[0] else "all"
            raise DataError(
                f"{self.name}: dataset.positive lists {none_or_all} of the classes that are used. "
                "It must list some and leave out others, because the task is to tell the listed "
                "classes from the others"
            )
        return tuple(" or ".join(names[c] for c in side) for side in sides)

    def _selection(self, used: list[int]) -> Evidence:
        chosen = dict[str, Value]()
        thinned = dict[str, Value]()
        if self.finetune_classes is not None:
            chosen = {"classes": tuple(map(str, used))}
        if self.keep:
            rates = tuple(f"{c}={rate:g}" for c, rate in sorted(self.keep.items()))
            thinned = {"rates": rates, "key": self.keep_key}
        codes = {
            (False, False): "ids_by_content",
            (False, True): "ids_by_content_thinned",
            (True, False): "ids_by_content_of_classes",
            (True, True): "ids_by_content_of_classes_thinned",
        }
        ids = proved(codes[bool(chosen), bool(thinned)], **chosen, **thinned)
        return evidence(ids, declared("split_of_medmnist"))


def _read(columns: ColumnReader, splits: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    # Unscaled images [n, c, h, w] uint8, MedMNIST's classes [n].
    images = np.concatenate([_images(columns, f"{split}_images") for split in splits])
    labels = np.concatenate([_labels(columns, f"{split}_labels") for split in splits])
    if len(images) != len(labels):
        raise DataError(
            f"{columns.path}: in {' and '.join(splits)}, the file has {len(images)} images but "
            f"{len(labels)} labels: give a file with one label for each image"
        )
    return images, labels


def _images(columns: ColumnReader, key: str) -> np.ndarray:
    # [n, c, h, w] uint8.
    images = columns.matrix(key, "MedMNIST's format")
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or images.shape[3:] not in ((), (3,)):
        raise DataError(
            f"{columns.path}: '{key}' has type {images.dtype} and shape {images.shape}, but must "
            "contain uint8 pixels (0 to 255) of shape [n, h, w] or [n, h, w, 3]; "
            "three-dimensional images are not supported"
        )
    return (
        images[:, None] if images.ndim == 3 else np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    )


def _labels(columns: ColumnReader, key: str) -> np.ndarray:
    # [n] int64, MedMNIST's own classes.
    labels = columns.array(key, "MedMNIST's format")
    if labels.dtype.kind == "f" or (labels.ndim == 2 and labels.shape[1] > 1):
        raise DataError(
            f"{columns.path}: '{key}' has type {labels.dtype} and shape {labels.shape}, but must "
            "contain one whole number for each record; several labels for a record are not "
            "supported"
        )
    return labels.reshape(-1).astype(np.int64)


# -- the official files
# --------------------------------------------------------------------------------------------------


def all_info() -> Mapping[str, Mapping[str, Any]] | None:
    """medmnist's INFO, by data set name; None if the package is not installed.

    Raises:
        DataError: the package is there, and its info.py has no INFO that can be read.
    """
    spec = find_spec("medmnist")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).with_name("info.py")
    try:
        assigned = [
            node
            for node in ast.parse(path.read_text(encoding="utf-8")).body
            if isinstance(node, ast.Assign)
        ]
        (node,) = [
            node.value for node in assigned if getattr(node.targets[0], "id", None) == "INFO"
        ]
        return ast.literal_eval(node)
    except (OSError, SyntaxError, ValueError) as error:
        raise DataError(
            f"{path}: the table INFO of the package medmnist cannot be read ({error}): reinstall "
            f"the package with {INSTALL}"
        ) from None


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "md5").hexdigest()


def _official(path: Path, url: str, md5: str, download: bool) -> Path:
    """The file of this hash; where it is not there and may be downloaded, it appears once it is
    verified.

    Raises:
        DataMissing: the file cannot be had (offline), or not be written; says where to put it by
            hand.
        DataError: what is there, or what came, has another hash.
    """
    import pooch

    if path.exists() and (actual := _md5(path)) != md5:
        raise DataError(
            f"{path}: this file has the MD5 {actual}, but medmnist's official file has {md5}: "
            "delete the file and download it again. If you trust this file, accept it without a "
            f"check with dataset.path={path.name}"
        )
    if not path.exists() and not download:
        raise DataMissing(
            f"{path} does not exist. Set dataset.download=true to download this file, or download "
            f"it yourself from {url}. If you have the file elsewhere, change dataset.path or "
            "data_dir"
        )
    pooch.get_logger().setLevel("INFO" if sys.stderr.isatty() else "WARNING")
    by_hand = f"download {url} yourself and save it as {path}, or change dataset.path or data_dir"
    try:
        downloader = pooch.HTTPDownloader(timeout=30)
        pooch.retrieve(url, f"md5:{md5}", fname=path.name, path=path.parent, downloader=downloader)
    except OSError as error:
        raise DataMissing(f"cannot download {path.name}: {error}; {by_hand}") from None
    except ValueError:
        raise DataError(
            f"{url}: the downloaded file is not the official one, because its MD5 is not {md5}: "
            f"try again, or {by_hand}"
        ) from None
    return path
