"""The public data that the recipe was chosen on and is shown on: scikit-learn's embedded sets, and files of a data folder.

Nobody declared ranges for scikit-learn's tables, so they are taken from the columns, rounded outwards to two digits, as
somebody who knows such data would state them. Adult's are what a person would write without looking: ages from 17 to 90,
years of education, a week's hours, money in plain ranges.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn import datasets
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from agt.data.dataset import uniform
from agt.data.table import Encoding

FOLDS = 5
ADULT_NUMBERS = {
    "age": (17, 90),
    "education-num": (1, 16),
    "capital-gain": (0, 100_000),
    "capital-loss": (0, 5_000),
    "hours-per-week": (1, 99),
}
ADULT_WORDS = (
    "workclass",
    "education",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "native-country",
)


@dataclass(frozen=True)
class PublicSet:
    """Records, and the folds to try settings on.

    Attributes:
        name: of the set.
        numbers: [n, columns] float64; of vectors, the vectors.
        words: [n, columns] text; None where it is missing.
        limits, listed: the columns' public constants; both empty: the numbers are a vector, taken as they are.
        labels: [n] class indices.
        fold: [n] the fold of each record.
        tested: the folds that are tested, each by a model trained on the others.
    """

    name: str
    numbers: np.ndarray
    words: np.ndarray
    limits: dict[str, tuple[float, ...]]
    listed: dict[str, tuple[str, ...]]
    labels: np.ndarray
    fold: np.ndarray
    tested: tuple[int, ...]

    @property
    def classes(self) -> int:
        """The number of classes."""
        return int(self.labels.max()) + 1

    def features(self, bins: int, crosses: int = 0) -> np.ndarray:
        """[n, d] as ``dataset=table`` makes them, or as the vectors are."""
        if not self.limits:
            return self.numbers
        return Encoding(self.limits, self.listed, bins, crosses)(self.numbers, self.words)

    def splits(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """([n] bool for training, [n] bool for testing) of each fold tested."""
        for fold in self.tested:
            yield self.fold != fold, self.fold == fold

    def usual(self, train: np.ndarray) -> np.ndarray:
        """[n, d] as scikit-learn's users prepare them: standardised numbers, categories one-hot."""
        numbers = StandardScaler().fit(self.numbers[train]).transform(self.numbers)
        if not self.listed:
            return numbers
        words = self.words.astype(str)
        coder = OneHotEncoder(handle_unknown="ignore", sparse_output=False).fit(words[train])
        return np.concatenate([numbers, coder.transform(words)], axis=1)


def public_sets(data: Path) -> Iterator[PublicSet]:
    """Every set, the smallest first; those of the folder only where their files are."""
    for name in ("iris", "wine", "diabetes", "breast_cancer", "digits"):
        yield _embedded(name)
    x, y = datasets.load_digits(return_X_y=True)
    yield _vectors("digits, vectors", x / 16, y)
    readers: dict[str, Callable[[Path], PublicSet]] = {
        "mnist_t10k.npz": _mnist,
        "adult.csv": _adult,
        "imdb_minilm.npz": _imdb,
    }
    for file, read in readers.items():
        if (data / file).exists():
            yield read(data / file)


def _embedded(name: str) -> PublicSet:
    load = getattr(datasets, f"load_{name}")
    bunch = load(scaled=False) if name == "diabetes" else load()
    x, y = np.asarray(bunch.data, dtype=np.float64), np.asarray(bunch.target)
    if name == "diabetes":
        y = (y > np.median(y)).astype(np.int64)
    limits = {f"c{j}": (0.0, 16.0) if name == "digits" else _outwards(x[:, j]) for j in range(x.shape[1])}
    return PublicSet(name, x, np.empty((len(x), 0), dtype=object), limits, {}, y, _folds(len(x)), tuple(range(FOLDS)))


def _adult(path: Path) -> PublicSet:
    table = pd.read_csv(path, keep_default_na=False, dtype=dict.fromkeys(ADULT_WORDS, str))
    words = np.stack([table[column].to_numpy(object) for column in ADULT_WORDS], axis=1)
    listed = {column: tuple(sorted({*words[:, j]} - {"?"})) for j, column in enumerate(ADULT_WORDS)}
    numbers = np.stack([table[column].to_numpy(np.float64) for column in ADULT_NUMBERS], axis=1)
    labels = (table["income"] == ">50K").to_numpy(np.int64)
    limits = {column: tuple(map(float, limits)) for column, limits in ADULT_NUMBERS.items()}
    return PublicSet("adult", numbers, words, limits, listed, labels, _folds(len(labels)), tuple(range(FOLDS)))


def _mnist(path: Path) -> PublicSet:
    with np.load(path) as file:
        return _vectors("mnist_t10k", file["images"].reshape(len(file["images"]), -1) / 255, file["labels"], (0,))


def _imdb(path: Path) -> PublicSet:
    """The file's own split, as its centre is that of the test rows."""
    with np.load(path) as file:
        x, fold = file["x"].astype(np.float32) - file["center"], np.where(file["is_test"] == 1, 0, 1)
        return _vectors("imdb_minilm", x, file["y"], (0,), fold)


def _vectors(
    name: str, x: np.ndarray, y: np.ndarray, tested: tuple[int, ...] = tuple(range(FOLDS)), fold: np.ndarray | None = None
) -> PublicSet:
    nothing = np.empty((len(x), 0), dtype=object)
    return PublicSet(name, x, nothing, {}, {}, y.astype(np.int64), _folds(len(x)) if fold is None else fold, tested)


def _folds(n: int) -> np.ndarray:
    return (uniform([str(row) for row in range(n)], "recipe/folds") * FOLDS).astype(np.int64)


def _outwards(column: np.ndarray) -> tuple[float, float]:
    return _rounded(float(column.min()), math.floor), _rounded(float(column.max()), math.ceil)


def _rounded(value: float, to: Callable[[float], int]) -> float:
    if not value:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - 1)
    return to(value / unit) * unit
