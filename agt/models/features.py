"""Public features phi(x) in front of a linear head: whitening, random ReLU or Fourier features, norm at most 1.

A closed-form certificate (certificates/stability.py) asks two things of phi: a norm of at most 1, rounding included, and
that a record's features depend on that record and on public constants alone, to the last bit.

Formal guarantees
    Norm. Let v be a stage's input and keep = 1 - 4 (w + 16) u - 2 u' for w coordinates, u = 2^-53 and u' the roundoff of
    the dtype returned. ``_bring`` divides by the greatest |v_i| first, so that the sum of squares lies in [1, w] and
    neither overflows nor loses an underflow that matters (w 2^-1074). Its computed length is at least |v| (1 - g), with
    g = (w + 4) u / (1 - (w + 4) u) for w additions, w squares, a root and a division; each entry is then multiplied by keep
    and by 1/sqrt(1 + bias^2), and rounded to the dtype: at most six roundings more. So the norm of what is stored is at
    most keep (1 + g)(1 + 6 u)(1 + u') <= 1 for w u < 2^-10, which ``FeatureMap`` requires. ``__call__`` checks it as
    well, record by record.
    Each alone. ``_bring`` is compiled without reassociation or contraction and walks one record at a time. A matrix product
    would add in an order that depends on how many records stand beside it, so its operands are integers: a record is
    rounded to multiples of 2^-22 of its length, a public matrix to integers with columns of length below 2^29. By
    Cauchy-Schwarz every partial sum stays below 2^23 * 2^29 < 2^53: the product is exact in any order, fused or not. What
    remains, ReLU and powers of two, is exact too. So two runs that hold the same record hold the same bits.
    Cosines and sines are elementwise, of an exact argument, and a vector unit may compute them otherwise than a scalar
    one: each is within 4 u of the true value. ``slack`` bounds |phi computed - phi|, phi being the function of the record
    alone, and the sensitivity's rounding term carries it (training/sensitivity.py).
    Whitening. The matrix is shared by all records, so two runs must hold the same one, to the last bit, whatever order the
    public rows come in and however many threads there are. Each row is brought to length 1 and rounded to multiples of
    2^-18; sums of entries and of their products are then sums of integers: entries are at most 2^18 in size, so a block of
    2^12 rows adds up to at most 2^48 in float64, and 2^26 rows to at most 2^62 in int64. They are exact in any order and
    any blocks; the covariance is formed from them by elementwise operations, each rounded alone. The rest, eigenvectors
    and one product, is LAPACK's and BLAS's: they get the same bytes, in one thread, and run the same instructions on the
    same machine with the same libraries. Another machine may make another matrix, so a run keeps its own
    (``FeatureMap.with_matrices``) and never makes it again.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from numba import njit
from threadpoolctl import threadpool_limits
from torch import Tensor

from agt.data.dataset import Dataset
from agt.errors import ConfigError, UnsoundError
from agt.facts import Fact, declared, proved
from agt.numeric import UNIT
from agt.settings import FeaturesConfig

GRAIN = 22  # a record's coordinates are multiples of 2^-22 of its length where a matrix follows
COLUMN = 29  # a public matrix's columns are shorter than 2^29
PUBLIC_GRAIN = 18  # a public row's coordinates are multiples of 2^-18 of its length where a covariance is taken
PUBLIC_ROWS = 2**26  # ... of so many rows at most: sums of products stay within int64
_BLOCK = 4096
_SINGULAR = 2.0**-43  # of the largest eigenvalue: smaller ones are rounding


@dataclass(frozen=True, eq=False)
class FeatureMap:
    """A public feature map.

    Attributes:
        config: what it was made from.
        width: coordinates of a record, flattened.
        whitening: [width, width] integers, or None.
        projection: [width, count or count / 2] integers, or None.

    Raises:
        ConfigError: too wide for the rounding argument above.
        UnsoundError: a matrix entry is no integer, or a column is too long for exact products.
    """

    config: FeaturesConfig
    width: int
    whitening: np.ndarray | None = None
    projection: np.ndarray | None = None

    def __post_init__(self) -> None:
        for name, matrix in (("whitening", self.whitening), ("projection", self.projection)):
            whole = matrix is None or bool((matrix == np.rint(matrix)).all())
            if matrix is not None and not (whole and float(np.linalg.norm(matrix, axis=0).max()) < 2.0**COLUMN):
                raise UnsoundError(f"certificate.features: the {name} matrix has entries that no exact product can take")
        if max(self.width, self.outputs) * UNIT >= 2.0**-10:
            raise ConfigError(f"certificate.features: {max(self.width, self.outputs)} coordinates are too many")

    @classmethod
    def of(cls, config: FeaturesConfig, dataset: Dataset) -> "FeatureMap":
        """Build the map; of the data, only rows that are declared public are read, and never a label.

        Raises:
            ConfigError: there are no such rows.
        """
        width = int(np.prod(dataset.train.features.shape[1:]))
        whitening = None if not config.whiten else _whitening(_public_rows(config, dataset), config)
        return cls(config, width, whitening, _projection(config, width))

    @classmethod
    def blank(cls, config: FeaturesConfig, width: int) -> "FeatureMap":
        """A map of the right shape, its matrices to be filled in by ``with_matrices``."""
        whitening = np.zeros((width, width)) if config.whiten else None
        return cls(config, width, whitening, None if config.map == "none" else np.zeros((width, _columns(config))))

    @property
    def matrices(self) -> dict[str, Tensor]:
        """The public matrices by name, as a run record keeps them."""
        named = {"whitening": self.whitening, "projection": self.projection}
        return {name: torch.from_numpy(matrix) for name, matrix in named.items() if matrix is not None}

    def with_matrices(self, matrices: Mapping[str, Tensor]) -> "FeatureMap":
        """The same map with the matrices given (name -> tensor, as ``matrices`` has them)."""
        found = {name: matrix.numpy() for name, matrix in matrices.items()}
        return replace(self, whitening=found.get("whitening"), projection=found.get("projection"))

    @property
    def outputs(self) -> int:
        """Coordinates of phi(x), the bias included."""
        return (self.config.count or self.width) + 1

    @property
    def slack(self) -> float:
        """Bound on the distance between phi as computed and phi as a function of the record alone."""
        return 16 * UNIT if self.config.map == "fourier" else 0.0

    @property
    def public(self) -> tuple[Fact, ...]:
        """What the map was made from, for condition e."""
        config = self.config
        facts = [proved("each record is brought to norm 1 on its own")]
        if config.whiten:
            rows = {"test": "the test records", "train": "the training records marked public"}[str(config.public)]
            facts.append(
                declared(
                    f"{rows}, whose covariance whitens the features, are public without their labels "
                    f"(certificate.features.public={config.public})",
                    "one of them is private, or is among them because of private ones",
                )
            )
        if config.map != "none":
            facts.append(proved(f"{config.count} random {config.map} features from the public seed {config.seed}"))
        return tuple(facts)

    def __call__(self, x: np.ndarray, dtype: str = "float64") -> np.ndarray:
        """phi of each record.

        Args:
            x: [n, ...] features as the dataset scales them.
            dtype: float64 or float32, of the result; the work is done in float64.

        Returns:
            [n, outputs], each row of norm at most 1, the bias last.

        Raises:
            ConfigError: the records' width is not the map's.
            UnsoundError: a row is not finite, or longer than 1.
        """
        width = int(np.prod(x.shape[1:]))
        if width != self.width:
            raise ConfigError(f"inputs: a query has {width} features and the model takes {self.width}")
        phi = torch.empty((len(x), self.outputs), dtype=getattr(torch, dtype)).numpy()  # at a multiple of 64 bytes
        for start in range(0, len(x), _BLOCK):
            rows = slice(start, start + _BLOCK)
            phi[rows] = self._rows(x[rows].reshape(len(x[rows]), -1).astype(np.float64), dtype)
            check_norms(phi[rows])
        return phi

    def _rows(self, v: np.ndarray, dtype: str) -> np.ndarray:
        radius = self.config.radius or 0.0
        if self.whitening is not None:
            v, radius = _product(_bring(v, radius, 1.0), self.whitening), 0.0
        if self.projection is not None:
            v, radius = _product(_bring(v, radius, 1.0), self.projection), 0.0
        if self.config.map == "relu":
            v = np.maximum(v, 0.0)
        keep = 1 - 4 * (self.outputs + 16) * UNIT - 2 * float(np.finfo(dtype).eps) / 2
        shorter = keep / math.sqrt(1 + self.config.bias**2)
        if self.config.map == "fourier":  # pairs: cos^2 + sin^2 = 1, so the length is 1 already
            angles = np.ldexp(v, -_scale(self.width)) / self.config.bandwidth
            v = np.concatenate([np.cos(angles), np.sin(angles)], axis=1) * (shorter / math.sqrt(v.shape[1]))
        else:
            v = _bring(v, radius, shorter)
        return np.concatenate([v, np.full((len(v), 1), self.config.bias * shorter)], axis=1)


def check_norms(phi: np.ndarray) -> None:
    """Raise UnsoundError unless every row is finite and at most 1 long."""
    squares = np.einsum("nd,nd->n", phi, phi, dtype=np.float64)
    # The computed sum of squares is within w u of the true one: a row that passes is at most 1 + w u long, and
    # the docstring's proof says 1. This check is for what no proof covers: a broken library or broken memory.
    if not bool((squares <= 1 + phi.shape[1] * 2 * UNIT).all()):
        raise UnsoundError("a feature vector is not finite or longer than 1: its features are out of range")


@njit(cache=True)
def _bring(v, radius, length):  # type: ignore[no-untyped-def]
    """Rows of v [n, w] scaled to ``length``; with radius > 0 a row shorter than it keeps its share of it. 0 stays 0."""
    out = np.empty_like(v)
    for row in range(v.shape[0]):
        most = 0.0
        for i in range(v.shape[1]):
            most = max(most, abs(v[row, i]))
        if most == 0.0:
            out[row] = np.abs(v[row]) * 0.0  # 0; and NaN, which no comparison above saw, stays NaN for check_norms
            continue
        total = 0.0
        for i in range(v.shape[1]):
            share = v[row, i] / most
            total += share * share
        norm = math.sqrt(total)
        if most * norm < radius:
            for i in range(v.shape[1]):
                out[row, i] = v[row, i] / radius * length
        else:
            for i in range(v.shape[1]):
                out[row, i] = v[row, i] / most / norm * length
    return out


def _product(v: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """v [n, w] of norm at most 1, to multiples of 2^-22, times integers [w, m]: exact (see above)."""
    return np.ldexp(np.rint(np.ldexp(v, GRAIN)) @ matrix, -GRAIN)


def _integers(matrix: np.ndarray) -> np.ndarray:
    """``matrix`` times a power of two, rounded to integers, every column shorter than 2^29."""
    longest = float(np.linalg.norm(matrix, axis=0).max())
    return np.rint(np.ldexp(matrix, COLUMN - 1 - math.frexp(longest)[1]))


def _columns(config: FeaturesConfig) -> int:
    """Directions of the projection: a Fourier feature is a pair."""
    return (config.count or 0) // (2 if config.map == "fourier" else 1)


def _projection(config: FeaturesConfig, width: int) -> np.ndarray | None:
    if config.map == "none":
        return None
    directions = np.random.default_rng(config.seed).standard_normal((width, _columns(config)))
    return np.rint(np.ldexp(directions, _scale(width)))


def _scale(width: int) -> int:
    """The power of two that brings standard normal columns below 2^29: their length is sqrt(width), give or take a few."""
    return COLUMN - 1 - math.frexp(math.sqrt(width) + 16)[1]


def _public_rows(config: FeaturesConfig, dataset: Dataset) -> np.ndarray:
    """[n, width] features of the rows declared public."""
    records = dataset.public_rows(config.public or "train")
    if len(records) < 2:
        raise ConfigError(
            f"certificate.features.public={config.public}: a covariance needs rows, and there are {len(records)} such: "
            "mark training records public (dataset.public), or use certificate.features.whiten=0"
        )
    return records.features.reshape(len(records), -1)


def _whitening(rows: np.ndarray, config: FeaturesConfig, block: int = _BLOCK) -> np.ndarray:
    """[width, width] integers proportional to (cov + ridge * mean variance)^(-p/2) of the rows, each of norm 1.

    Args:
        block: rows at once, at most ``_BLOCK``; it changes nothing but memory.

    Raises:
        ConfigError: more rows than the sums are exact for, or a covariance that rounding alone keeps from being singular.
        UnsoundError: a row is not finite.
    """
    cov = _covariance(rows, block)
    with threadpool_limits(1, user_api="blas"):
        values, vectors = np.linalg.eigh(cov)
        values = np.maximum(values, 0.0) + config.ridge * max(float(values.mean()), 1e-12)
        if values.min() <= _SINGULAR * values.max():
            raise ConfigError(
                f"certificate.features.ridge={config.ridge:g}: the {len(rows)} public rows do not fill all {rows.shape[1]} "
                "directions of the features, and whitening divides by their spread in each: use 1e-3, or more public rows"
            )
        return _integers((vectors * values ** (-config.whiten / 2)) @ vectors.T)


def _covariance(rows: np.ndarray, block: int) -> np.ndarray:
    """[width, width] of the rows, each of norm 1 and rounded to ``PUBLIC_GRAIN``: the same bits in any order and blocks."""
    count, width = rows.shape
    if count > PUBLIC_ROWS:
        raise ConfigError(
            f"certificate.features.public: {count} public rows, and sums are exact over at most {PUBLIC_ROWS}: declare "
            "fewer records public"
        )
    total, products = np.zeros(width, dtype=np.int64), np.zeros((width, width), dtype=np.int64)
    for start in range(0, count, block):
        unit = np.rint(np.ldexp(_bring(rows[start : start + block].astype(np.float64), 0.0, 1.0), PUBLIC_GRAIN))
        if not bool(np.isfinite(unit).all()):
            raise UnsoundError("certificate.features.public: a public row is not finite")
        total += unit.sum(axis=0).astype(np.int64)
        products += (unit.T @ unit).astype(np.int64)
    mean = np.ldexp(total / count, -PUBLIC_GRAIN)
    cov: np.ndarray = np.ldexp(products / count, -2 * PUBLIC_GRAIN) - mean[:, None] * mean
    return cov


def check_dtype(config: FeaturesConfig, dtype: str) -> None:
    """Raise ConfigError for cosines in float32, whose last digits a vector unit decides: dearer than many records."""
    if config.map == "fourier" and dtype != "float64":
        raise ConfigError(f"training.dtype={dtype}: certificate.features.map=fourier needs float64")
