"""The real handwritten digits that scikit-learn carries: 1,797 images of 8 x 8 pixels (UCI Optical Recognition)."""

from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from agt.data.assemble import default_ids, hash_split, queries, query_labels, records
from agt.data.dataset import DataError, Dataset, Records
from agt.data.declarations import split_fact
from agt.data.files import Columns, open_columns, same_shape
from agt.facts import grounds, proved
from agt.settings import DeclaredSize, schema

LEVELS = 16.0
CENTER = 0.5
Digit = Annotated[int, Field(ge=0, le=9)]


@schema
class Digits:
    """Digits of the chosen classes; features are pixels/16 - 0.5.

    Attributes:
        classes: the digits, in the order of their labels 0, 1, ...; None: all ten.
        test_fraction: public rate of the hash split.
        split_key: public key of the hash split.
        declared_size: public constant: about how many training records there are.
    """

    classes: Annotated[tuple[Digit, ...], Field(min_length=2)] | None = (3, 8)
    test_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.25
    split_key: str = "split"
    declared_size: DeclaredSize | None = None

    def __post_init__(self) -> None:
        if self.classes is not None and len(set(self.classes)) < len(self.classes):
            raise ValueError("classes repeats a digit")

    def load(self) -> Dataset:
        """Read the bundled file, keep the chosen classes, split by hash."""
        from sklearn.datasets import load_digits

        bunch = load_digits()
        digits = bunch.target.astype(np.int64)
        ids = default_ids(bunch.data, digits)
        kept = np.isin(digits, self._digits)
        labels = np.array([self._digits.index(digit) for digit in digits[kept].tolist()])
        everyone = records(_scale(bunch.data[kept]), labels, ids[kept])
        names = default_ids(bunch.data, digits, numbered=False)[kept]
        test = hash_split(names, self.test_fraction, self.split_key)
        return Dataset(
            name="digits",
            classes=self._names,
            train=everyone.take(~test),
            test=everyone.take(test),
            declared_size=self.declared_size,
            scaling={"divisor": LEVELS, "center": CENTER},
            selection=grounds(
                proved(f"a record is used if its digit is one of {', '.join(self._names)}"),
                split_fact(None, self.test_fraction, self.split_key),
            ),
            preprocessing=grounds(proved("pixels are divided by 16 and shifted by 0.5, constants of the image format")),
        )

    def load_queries(self, path: Path) -> Records:
        """Raw pixels 0..16: key x [n, 64] or [n, 8, 8] of an npz, or columns x0..x63; ``label`` and ``id`` optional."""
        return self.read_queries(open_columns(path, "inputs"))

    def read_queries(self, columns: Columns) -> Records:
        """The same of columns that are there (memory.py)."""
        path = columns.path
        pixels = columns.matrix("x", "inputs").astype(np.float64)
        pixels = pixels.reshape(len(pixels), -1)
        same_shape(pixels, (64,), path)
        if len(pixels) and (pixels.min() < 0 or pixels.max() > LEVELS):
            raise DataError(f"{path}: pixels lie in {pixels.min():g}..{pixels.max():g}, expected 0..16, unscaled")
        labels = query_labels(columns, "label", self._names, len(pixels))
        return queries(columns, _scale(pixels), (pixels,), labels)

    @property
    def _digits(self) -> tuple[int, ...]:
        return self.classes or tuple(range(10))

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(str(digit) for digit in self._digits)


def _scale(pixels: np.ndarray) -> np.ndarray:
    return (pixels / LEVELS - CENTER).astype(np.float32)
