"""Real handwritten digits: scikit-learn's 1,797 images of 8 x 8 pixels (UCI Optical Recognition), or MNIST's in a file."""

from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from agt.data.dataset import DataError, Dataset, Records, default_ids, hash_split, records, split_fact
from agt.data.files import Columns, open_columns, same_length, same_shape
from agt.data.labelled import class_indices, queries, query_labels, read_labels
from agt.facts import grounds, proved
from agt.settings import DeclaredSize, keyword_schema, schema

Digit = Annotated[int, Field(ge=0, le=9)]


@schema
class Digits:
    """Digits of the chosen classes, those of scikit-learn; features are pixels/16 - 0.5.

    Attributes:
        classes: the digits, in the order of their labels 0, 1, ...; None: all ten.
        test_fraction: public rate of the hash split.
        split_key: public key of the hash split.
        declared_size: public constant: about how many training records there are.
    """

    LEVELS: ClassVar[float] = 16.0
    CENTER: ClassVar[float] = 0.5
    NAME: ClassVar[str] = "digits"
    SIDE: ClassVar[int] = 8

    classes: Annotated[tuple[Digit, ...], Field(min_length=2)] | None = (3, 8)
    test_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.25
    split_key: str = "split"
    declared_size: DeclaredSize | None = None

    def __post_init__(self) -> None:
        if len(set(self.classes or ())) < len(self.classes or ()):
            raise ValueError("classes repeats a digit")

    def load(self) -> Dataset:
        """Read every image, keep the chosen classes, split by hash."""
        pixels, digits = self._read()
        ids = default_ids(pixels, digits)
        used = self.classes or tuple(range(10))
        kept = np.isin(digits, used)
        labels = np.array([used.index(digit) for digit in digits[kept].tolist()])
        everyone = records(self._scale(pixels[kept]), labels, ids[kept])
        names = default_ids(pixels, digits, numbered=False)[kept]
        test = hash_split(names, self.test_fraction, self.split_key)
        scaled = f"pixels are divided by {self.LEVELS:g} and shifted by {self.CENTER:g}, constants of the image format"
        return Dataset(
            name=self.NAME,
            classes=self._names,
            train=everyone.take(~test),
            test=everyone.take(test),
            declared_size=self.declared_size,
            scaling={"divisor": self.LEVELS, "center": self.CENTER},
            selection=grounds(
                proved(f"a record is used if its digit is one of {', '.join(self._names)}"),
                split_fact(None, self.test_fraction, self.split_key),
            ),
            preprocessing=grounds(proved(scaled)),
        )

    def load_queries(self, path: Path) -> Records:
        """Raw pixels: key x [n, pixels] or [n, h, w] of an npz, or columns x0, x1, ...; ``label`` and ``id`` optional."""
        return self.read_queries(open_columns(path, "inputs"))

    def read_queries(self, columns: Columns) -> Records:
        """As ``load_queries``, of columns that are there (files.columns_of)."""
        path = columns.path
        pixels = columns.matrix("x", "inputs").astype(np.float64)
        pixels = pixels.reshape(len(pixels), -1)
        same_shape(pixels, (self.SIDE**2,), path)
        if len(pixels) and (pixels.min() < 0 or pixels.max() > self.LEVELS):
            raise DataError(
                f"{path}: pixels lie in {pixels.min():g}..{pixels.max():g}, expected 0..{self.LEVELS:g}, unscaled"
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
class Mnist(Digits):
    """MNIST's digits, 28 x 28, from an npz with ``images`` (uint8 [n, 28, 28]) and ``labels`` [n]; features are pixels/255.

    Attributes (the others: ``Digits``):
        path: the file, relative to ``data_dir``.
        data_dir: folder of a relative path.
    """

    LEVELS: ClassVar[float] = 255.0
    CENTER: ClassVar[float] = 0.0
    NAME: ClassVar[str] = "MNIST digits"
    SIDE: ClassVar[int] = 28

    path: Path
    data_dir: Path = Path("data")

    def _read(self) -> tuple[np.ndarray, np.ndarray]:
        columns = open_columns(self.path, "dataset.path or data_dir", self.data_dir)
        images = columns.matrix("images", "MNIST's images")
        digits = class_indices(read_labels(columns, "labels"), tuple("0123456789"), columns.path)
        same_shape(images, (self.SIDE, self.SIDE), columns.path)
        if images.dtype != np.uint8:
            raise DataError(f"{columns.path}: images are {images.dtype}, expected uint8 pixels 0..255")
        same_length(columns.path, len(images), {"labels": digits})
        if not len(images):
            raise DataError(f"{columns.path}: no rows")
        return images.reshape(len(images), -1), digits
