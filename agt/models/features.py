"""Public features phi(x) in front of a linear head: whitening, then random features or landmarks,
norm at most 1.

A closed-form certificate (certificates/stability.py) asks two things of phi: a norm of at most 1,
rounding included, and that a record's features depend on that record and on public constants alone,
to the last bit.

Formal guarantees
    Norm. Let v be a stage's input and keep = 1 - 4 (w + 16) u - 2 u' for w coordinates, u = 2^-53
    and u' the roundoff of the dtype returned. ``bring`` divides by the greatest |v_i| first, so
    that the sum of squares lies in [1, w] and neither overflows nor loses an underflow that matters
    (w 2^-1074). Its computed length is at least |v| (1 - g), with g = (w + 4) u / (1 - (w + 4) u)
    for w additions, w squares, a root and a division; each entry is then multiplied by keep and by
    1/sqrt(1 + bias^2), and rounded to the dtype: at most six roundings more. So the norm of what is
    stored is at most keep (1 + g)(1 + 6 u)(1 + u') <= 1 for w u < 2^-10, which ``FeatureMap``
    requires. ``__call__`` checks it as well, record by record.
    Each alone. Lengths, exact products and exponentials are those below; landmarks say why theirs
    are too. What remains, ReLU, powers of two, sums of two numbers, is rounded alone. So two runs
    that hold the same record hold the same bits.
    Whitening. The matrix is shared by all records, so two runs must hold the same one, to the last
    bit, whatever order the public rows come in and however many threads there are. Each row is
    brought to length 1 and rounded to multiples of 2^-18; sums of entries and of their products are
    then sums of integers: entries are at most 2^18 in size, so a block of 2^12 rows adds up to at
    most 2^48 in float64, and 2^26 rows to at most 2^62 in int64. They are exact in any order and
    any blocks; the covariance is formed from them by elementwise operations, each rounded alone.
    The rest is ``inverse_root``, and a run keeps the matrix (``FeatureMap.with_matrices``).

Arithmetic whose last bits are a record's own: lengths, exact products, exponentials, roots of
public matrices.

Formal guarantees
    Each alone. In ``bring``, sums go through a record's coordinates one after another
    (``np.add.accumulate``, which has the partial sums to give), and all else is elementwise,
    rounded alone; ``compiled.falling`` likewise. A matrix product would add in an order that
    depends on how many records stand beside it, so the operands of ``product`` are integers: a
    record is rounded to multiples of 2^-22 of its length, a public matrix to integers with columns
    of length below 2^29. By Cauchy-Schwarz every partial sum stays below 2^23 * 2^29 < 2^53: the
    product is exact in any order, fused or not. So two runs that hold the same record hold the same
    bits.
    The same matrix. ``inverse_root`` is LAPACK's and BLAS's work: given the same bytes, in one
    thread, it runs the same instructions on the same machine with the same libraries. Another
    machine may make another matrix, so a run keeps its own and never makes it again, and of several
    processes all take the first one's.

Landmarks: public rows that a record is compared with, by a Gaussian kernel.

Formal guarantees
    Each alone. Records and landmarks are integers of length at most 2^23 (multiples of 2^-22), so
    |u|^2 + |z|^2 - 2 u.z and all that it is made of are integers below 2^53: exact, in any order of
    summation. What follows is elementwise, each operation rounded alone (``compiled.falling``; no
    library's exp, whose last digits a vector unit may decide). So a record's values are a function
    of that record and of public constants, to the last bit.
    The same landmarks. They are chosen among distinct rows by a keyed hash of each row's integers:
    whatever order the public rows come in and however often one is there, the same ones are chosen,
    in the same order.

Source: Williams, Seeger (2000).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b

import numpy as np
from threadpoolctl import threadpool_limits

from agt.data.arrays import Mapped, as_array
from agt.data.dataset import Dataset
from agt.errors import ConfigError, UnsoundError
from agt.facts import Fact, declared, proved
from agt.messages import Message
from agt.models.scattering import outputs_of, scattering
from agt.numeric import UNIT, check_norms
from agt.settings import FeaturesConfig

GRAIN = 22  # a record's coordinates are multiples of 2^-22 of its length where a matrix follows
COLUMN = 29  # a public matrix's columns are shorter than 2^29
_SINGULAR = 2.0**-43  # of the largest eigenvalue: smaller ones are rounding


def bring(v: np.ndarray, radius: float, length: float) -> np.ndarray:
    """Rows of v [n, w] scaled to ``length``; with radius > 0 a row shorter than it keeps its
    share of it. 0 stays 0.
    """
    # what is not finite stays so, for check_norms
    with np.errstate(over="ignore", invalid="ignore"):
        most = np.abs(v).max(axis=1, initial=0.0, keepdims=True)
        shares = v / np.where(most == 0, 1.0, most)
        norms = np.sqrt(np.add.accumulate(shares * shares, axis=1)[:, -1:])
        out = shares / np.where(norms == 0, 1.0, norms) * length
        return np.where(most * norms < radius, v / radius * length, out) if radius else out


def whole(v: np.ndarray) -> np.ndarray:
    """v [n, w] of norm at most 1 in units of 2^-22, rounded to integers."""
    return np.rint(np.ldexp(v, GRAIN))


def product(v: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """v [n, w] of norm at most 1, to multiples of 2^-22, times integers [w, m]: exact (see
    above).
    """
    return np.ldexp(whole(v) @ matrix, -GRAIN)


def integers(matrix: np.ndarray) -> np.ndarray:
    """``matrix`` times a power of two, rounded to integers, every column shorter than 2^29."""
    longest = float(np.linalg.norm(matrix, axis=0).max())
    return np.rint(np.ldexp(matrix, COLUMN - 1 - math.frexp(longest)[1]))


def inverse_root(matrix: np.ndarray, power: float, ridge: float, fault: str) -> np.ndarray:
    """Integers proportional to (matrix + ridge * mean eigenvalue)^(-power/2).

    Args:
        matrix: [n, n] symmetric, no eigenvalue below 0 but for rounding.
        fault: what to say where rounding alone keeps it from being singular.

    Raises:
        ConfigError: it does.
    """
    from agt.distributed import group  # loads torch, which whoever reads a map has no use for

    with threadpool_limits(1, user_api="blas"):
        values, vectors = np.linalg.eigh(matrix)
        values = np.maximum(values, 0.0) + ridge * max(float(values.mean()), 1e-12)
        if values.min() <= _SINGULAR * values.max():
            raise ConfigError(
                Message(
                    "{config:certificate.features.ridge}={ridge:g}: {fault}",
                    ridge=ridge,
                    fault=fault,
                )
            )
        return group().sent(integers((vectors * values ** (-power / 2)) @ vectors.T))


def choose(rows: np.ndarray, count: int, seed: int) -> np.ndarray:
    """[width, count] of the rows, one a column.

    Args:
        rows: [n, width] public rows, integers.
        count: how many.
        seed: public key of the hash that chooses.

    Raises:
        ConfigError: there are not so many different ones.
        UnsoundError: a row is not finite.
    """
    if not bool(np.isfinite(rows).all()):
        raise UnsoundError(
            Message(
                "{config:certificate.features.public}: a public row is not finite",
            )
        )
    key = f"landmarks/{seed}".encode()
    distinct = {row.tobytes() for row in rows.astype("<i8")}
    if len(distinct) < count:
        raise ConfigError(
            Message(
                "{config:certificate.features.count}={count}: landmarks are public rows, and "
                "there are {different} different ones: use fewer, or declare more records "
                "public",
                count=count,
                different=len(distinct),
            )
        )
    chosen = sorted(distinct, key=lambda row: (blake2b(row, digest_size=8, key=key).digest(), row))[
        :count
    ]
    return np.frombuffer(b"".join(chosen), dtype="<i8").reshape(count, -1).T.astype(np.float64)


def kernel(rows: np.ndarray, landmarks: np.ndarray, bandwidth: float) -> np.ndarray:
    """[n, count] exp(-|x - z|^2 / (2 bandwidth^2)).

    Args:
        rows: [n, width] integers, ``whole`` of records of norm at most 1.
        landmarks: [width, count] the same of public rows.
        bandwidth: in units of length 1.
    """
    from agt.models.compiled import falling

    squares = np.einsum("nw,nw->n", rows, rows)[:, None] + np.einsum(
        "wm,wm->m", landmarks, landmarks
    )
    apart = squares - 2 * (rows @ landmarks)
    return falling(np.ldexp(apart, -2 * GRAIN) * (0.5 / bandwidth**2))


def root(landmarks: np.ndarray, bandwidth: float, power: float, ridge: float) -> np.ndarray:
    """[count, count] integers proportional to (K + ridge)^(-power/2), K the landmarks' own kernel:
    Nystroem's at power 1.

    Raises:
        ConfigError: some landmarks are so close that only rounding tells them apart, and there is
            no ridge.
    """
    fault = (
        f"some of {landmarks.shape[1]} landmarks lie so close that only rounding tells them "
        "apart: use 1e-3"
    )
    return inverse_root(kernel(landmarks.T.copy(), landmarks, bandwidth), power, ridge, fault)


# a public row's coordinates are multiples of 2^-18 of its length where a covariance is taken
PUBLIC_GRAIN = 18
PUBLIC_ROWS = 2**26  # ... of so many rows at most: sums of products stay within int64
_BLOCK = 4096


@dataclass(frozen=True, eq=False)
class FeatureMap:
    """A public feature map.

    Attributes:
        config: what it was made from.
        width: coordinates of a record, flattened.
        whitening: [width, width] integers, or None.
        projection: [width, count] integers: random directions, or landmarks; or None.
        root: [count, count] integers that landmarks' values are multiplied by, or None.

    Raises:
        ConfigError: too wide for the rounding argument above.
        UnsoundError: a matrix entry is no integer, or a column is too long for exact products.
    """

    config: FeaturesConfig
    width: int
    whitening: np.ndarray | None = None
    projection: np.ndarray | None = None
    root: np.ndarray | None = None

    def __post_init__(self) -> None:
        for name, matrix in self.matrices.items():
            longest = (
                GRAIN + 1 if name == "projection" and self.config.map == "landmarks" else COLUMN
            )
            if not (
                (matrix == np.rint(matrix)).all()
                and float(np.linalg.norm(matrix, axis=0).max()) < 2.0**longest
            ):
                raise UnsoundError(
                    Message(
                        "{config:certificate.features}: the {name} matrix has entries that no "
                        "exact product can take",
                        name=name,
                    )
                )
        if self.config.map == "scattering" and not outputs_of(self.width):
            raise ConfigError(
                Message(
                    "{config:certificate.features.map}=scattering: records of {width} numbers "
                    "are no square images, gray or in three colours, of a side that is a "
                    "multiple of 4 and at least 8: use relu or landmarks, or bring them to "
                    "such a size",
                    width=self.width,
                )
            )
        if max(self.width, self.outputs) * UNIT >= 2.0**-10:
            raise ConfigError(
                Message(
                    "{config:certificate.features}: {largest} coordinates are too many",
                    largest=max(self.width, self.outputs),
                )
            )

    @classmethod
    def of(cls, config: FeaturesConfig, dataset: Dataset) -> "FeatureMap":
        """Build the map; of the data, only rows that are declared public are read, and never a
        label.

        Raises:
            ConfigError: there are no such rows, or too few.
        """
        made = cls(config, int(np.prod(dataset.train.features.shape[1:])))
        if config.whiten:
            made = replace(made, whitening=_whitening(_public_rows(config, dataset), config))
        if config.map == "landmarks":
            return made._with_landmarks(_public_rows(config, dataset))
        return replace(made, projection=_projection(config, made.width))

    def _with_landmarks(self, rows: np.ndarray) -> "FeatureMap":
        config, blocks = self.config, range(0, len(rows), _BLOCK)
        units = np.concatenate(
            [whole(self._unit(rows[at : at + _BLOCK].astype(np.float64))) for at in blocks]
        )
        landmarks = choose(units, config.count or 0, config.seed)
        square = (
            root(landmarks, config.bandwidth, config.root, config.ridge) if config.root else None
        )
        return replace(self, projection=landmarks, root=square)

    @property
    def shapes(self) -> dict[str, tuple[int, int]]:
        """Name -> shape of each matrix that such a map takes, which need not be there yet
        (``with_matrices``).
        """
        config, columns = self.config, self.config.count or 0
        shapes = {"whitening": (self.width, self.width)} if config.whiten else {}
        if config.map in ("relu", "landmarks"):
            shapes["projection"] = self.width, columns
        return shapes | (
            {"root": (columns, columns)} if config.map == "landmarks" and config.root else {}
        )

    @property
    def matrices(self) -> dict[str, np.ndarray]:
        """The public matrices by name, as a run record keeps them."""
        named = {"whitening": self.whitening, "projection": self.projection, "root": self.root}
        return {name: matrix for name, matrix in named.items() if matrix is not None}

    def with_matrices(self, matrices: Mapping[str, np.ndarray]) -> "FeatureMap":
        """The same map with the matrices given, as ``matrices`` has them."""
        return FeatureMap(
            self.config,
            self.width,
            *(matrices.get(name) for name in ("whitening", "projection", "root")),
        )

    @property
    def outputs(self) -> int:
        """Coordinates of phi(x), the bias included."""
        if self.config.map == "scattering":
            return outputs_of(self.width) + 1
        kept = self.width if self.config.map == "none" else 0
        return kept + (self.config.count or 0) + 1

    @property
    def plain(self) -> bool:
        """Whether phi(x) is x, brought to its length, and the bias."""
        return self.config.map == "none" and not self.config.whiten

    @property
    def public(self) -> tuple[Fact, ...]:
        """What the map was made from, for condition e."""
        config = self.config
        facts = [proved("norm_one")]
        if config.public is not None:
            facts.append(_public_fact(config))
        if config.map == "relu":
            facts.append(proved("relu_features", count=config.count or 0, seed=config.seed))
        if config.map == "landmarks":
            facts.append(proved("landmarks_by_hash", count=config.count or 0, seed=config.seed))
        if config.map == "scattering":
            facts.append(proved("scattering_features"))
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
            raise ConfigError(
                f"inputs: a query has {width} features and the model takes {self.width}"
            )
        phi = _aligned(len(x), self.outputs, dtype)
        for start in range(0, len(x), _BLOCK):
            rows = slice(start, start + _BLOCK)
            phi[rows] = self._rows(x[rows].reshape(len(x[rows]), -1).astype(np.float64), dtype)
            check_norms(phi[rows])
        return phi

    def over(self, x: np.ndarray, dtype: str, memory_mb: int) -> np.ndarray:
        """phi of training records, which are asked for again in every step. Arguments and errors as
        above.

        Where they take more memory than this, and cost little (``plain``), each is made anew
        whenever it is asked for: the same bits, as each is made alone.
        """
        large = len(x) * self.outputs * np.dtype(dtype).itemsize > memory_mb * 2**20
        return (
            as_array(Mapped(x, partial(self, dtype=dtype)))
            if large and self.plain
            else self(x, dtype)
        )

    def _rows(self, v: np.ndarray, dtype: str) -> np.ndarray:
        keep = 1 - 4 * (self.outputs + 16) * UNIT - 2 * float(np.finfo(dtype).eps) / 2
        shorter = keep / math.sqrt(1 + self.config.bias**2)
        v = getattr(self, f"_{self.config.map}")(v, shorter)
        return np.concatenate([v, np.full((len(v), 1), self.config.bias * shorter)], axis=1)

    def _unit(self, v: np.ndarray) -> np.ndarray:
        """What a map begins with: whitened rows, brought to a length of at most 1."""
        return bring(*self._whitened(v), 1.0)

    def _whitened(self, v: np.ndarray) -> tuple[np.ndarray, float]:
        """(the rows, the radius that they are brought to length 1 by)."""
        radius = self.config.radius or 0.0
        return (
            (v, radius)
            if self.whitening is None
            else (product(bring(v, radius, 1.0), self.whitening), 0.0)
        )

    @property
    def _directions(self) -> np.ndarray:
        assert self.projection is not None, "every map that has directions was given some"
        return self.projection

    def _none(self, v: np.ndarray, length: float) -> np.ndarray:
        return bring(*self._whitened(v), length)

    def _relu(self, v: np.ndarray, length: float) -> np.ndarray:
        return bring(np.maximum(product(self._unit(v), self._directions), 0.0), 0.0, length)

    def _landmarks(self, v: np.ndarray, length: float) -> np.ndarray:
        values = kernel(whole(self._unit(v)), self._directions, self.config.bandwidth)
        return bring(
            values if self.root is None else product(bring(values, 0.0, 1.0), self.root),
            0.0,
            length,
        )

    def _scattering(self, v: np.ndarray, length: float) -> np.ndarray:
        groups = [bring(group, 0.0, 1.0) for group in scattering(self._unit(v))]
        return bring(np.concatenate(groups, axis=1), 0.0, length)


def _aligned(count: int, width: int, dtype: str) -> np.ndarray:
    """An empty [count, width] array at a multiple of 64 bytes: a product's last bits may hang on
    where its operands lie.
    """
    size = count * width * np.dtype(dtype).itemsize
    room = np.empty(size + 64, np.uint8)
    start = -room.ctypes.data % 64
    return room[start : start + size].view(dtype).reshape(count, width)


def _projection(config: FeaturesConfig, width: int) -> np.ndarray | None:
    if config.map != "relu":
        return None
    directions = np.random.default_rng(config.seed).standard_normal((width, config.count or 0))
    return np.rint(np.ldexp(directions, _scale(width)))


def _scale(width: int) -> int:
    """The power of two that brings standard normal columns below 2^29: their length is
    sqrt(width), give or take a few.
    """
    return COLUMN - 1 - math.frexp(math.sqrt(width) + 16)[1]


def _public_rows(config: FeaturesConfig, dataset: Dataset) -> np.ndarray:
    """[n, width] features of the rows declared public."""
    records = dataset.public_rows(config.public or "train")
    if len(records) < 2:
        needs = ("a covariance", "whiten=0") if config.whiten else ("landmarks", "map=relu")
        raise ConfigError(
            Message(
                "{config:certificate.features.public}={public}: {map} needs rows, and there "
                "are {count} such: mark training records public ({config:dataset.public}), or "
                "use {config:certificate.features}.{instead}",
                public=config.public,
                map=needs[0],
                count=len(records),
                instead=needs[1],
            )
        )
    return records.features.reshape(len(records), -1)


def _public_fact(config: FeaturesConfig) -> Fact:
    code = "whitening_rows_public"
    if config.map == "landmarks":
        code = "whitening_and_landmark_rows_public" if config.whiten else "landmark_rows_public"
    return declared(code, public=str(config.public), setting="certificate.features.public")


def _whitening(rows: np.ndarray, config: FeaturesConfig, block: int = _BLOCK) -> np.ndarray:
    """[width, width] integers proportional to (cov + ridge * mean variance)^(-p/2) of the rows,
    each of norm 1.

    Args:
        block: rows at once, at most ``_BLOCK``; it changes nothing but memory.

    Raises:
        ConfigError: more rows than the sums are exact for, or a covariance that rounding alone
            keeps from being singular.
        UnsoundError: a row is not finite.
    """
    fault = (
        f"the {len(rows)} public rows do not fill all {rows.shape[1]} directions of the features, "
        "and whitening divides by "
        "their spread in each: use 1e-3, or more public rows"
    )
    return inverse_root(_covariance(rows, block), config.whiten, config.ridge, fault)


def _covariance(rows: np.ndarray, block: int) -> np.ndarray:
    """[width, width] of the rows, each of norm 1 and rounded to ``PUBLIC_GRAIN``: the same bits
    in any order and blocks.
    """
    count, width = rows.shape
    if count > PUBLIC_ROWS:
        raise ConfigError(
            Message(
                "{config:certificate.features.public}: {count} public rows, and sums are "
                "exact over at most {public_rows}: declare fewer records public",
                count=count,
                public_rows=PUBLIC_ROWS,
            )
        )
    total, products = np.zeros(width, dtype=np.int64), np.zeros((width, width), dtype=np.int64)
    for start in range(0, count, block):
        unit = np.rint(
            np.ldexp(bring(rows[start : start + block].astype(np.float64), 0.0, 1.0), PUBLIC_GRAIN)
        )
        if not bool(np.isfinite(unit).all()):
            raise UnsoundError(
                Message(
                    "{config:certificate.features.public}: a public row is not finite",
                )
            )
        total += unit.sum(axis=0).astype(np.int64)
        products += (unit.T @ unit).astype(np.int64)
    mean = np.ldexp(total / count, -PUBLIC_GRAIN)
    return np.ldexp(products / count, -2 * PUBLIC_GRAIN) - mean[:, None] * mean
