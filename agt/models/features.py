"""Public features phi(x) in front of a linear head, of norm at most 1.

A feature map is a chain of public steps: whitening by the covariance of public rows; then nothing,
random ReLU features, a Gaussian kernel's values at public rows (landmarks), or scattering; each
result brought to length 1, and a bias coordinate. A closed-form certificate
(certificates/stability.py) needs the norm, and that a record's features depend on that record and
on public constants alone, to the last bit. Both are proved in docs/proofs/features.md.

Source: Williams, Seeger (2000), for landmarks.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b

import numpy as np
from threadpoolctl import threadpool_limits

from agt.data.arrays import Mapped, aligned_empty, as_array
from agt.data.dataset import Dataset
from agt.errors import ConfigError, UnsoundError
from agt.facts import Fact, declared, proved
from agt.messages import Message
from agt.models.scattering import outputs_of, scattering
from agt.numeric import UNIT, check_norms
from agt.settings import FeaturesConfig

# Exponents of two: in which units numbers are integers, so that products of them are exact.
GRAIN = 22  # a record's coordinates are multiples of 2^-22 of its length where a matrix follows
COLUMN = 29  # a public matrix's columns are shorter than 2^29
PUBLIC_GRAIN = 18  # a public row's coordinates, multiples of 2^-18 of its length in a covariance
MAX_PUBLIC_ROWS = 2**26  # of so many public rows sums of products stay within int64

_SINGULAR = 2.0**-43  # of the largest eigenvalue: smaller ones are rounding
_CHUNK_ROWS = 4096  # that are transformed at once; of so many the covariance's sums are exact


def normalise_rows(rows: np.ndarray, radius: float, length: float) -> np.ndarray:
    """Return rows scaled to one length; a row within a radius keeps its share of the length.

    Formal guarantees
        * A row's result is a function of that row alone, to the last bit (Lemma 2 of
          docs/proofs/features.md).
        * The norm of a result exceeds ``length`` by at most rounding, which Lemma 1 of that page
          bounds.

    | row                                | result                         |
    |------------------------------------|--------------------------------|
    | 0                                  | 0                              |
    | shorter than the radius            | row / radius * length          |
    | any other                          | row / its norm * length        |
    | not finite                         | not finite                     |

    Args:
        rows: [n, w] float64.
        radius: rows of at least this norm get the whole length; 0: all rows do.
        length: the norm of the result.
    """
    # What is not finite stays so, and check_norms refuses it.
    with np.errstate(over="ignore", invalid="ignore"):
        largest = np.abs(rows).max(axis=1, initial=0.0, keepdims=True)
        shares = rows / np.where(largest == 0, 1.0, largest)
        # accumulate adds one coordinate after another, in any batch; sum does not.
        partial_sums = np.add.accumulate(shares * shares, axis=1)
        norms = np.sqrt(partial_sums[:, -1:])
        scaled = shares / np.where(norms == 0, 1.0, norms) * length
        if not radius:
            return scaled
        is_within = largest * norms < radius
        return np.where(is_within, rows / radius * length, scaled)


def to_integers(rows: np.ndarray) -> np.ndarray:
    """Return rows [n, w] of norm at most 1 in units of 2^-22, rounded to integers, as float64."""
    return np.rint(np.ldexp(rows, GRAIN))


def exact_product(rows: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Return rounded rows times a matrix of integers, without any error of the product itself.

    A row's result is a function of that row and the matrix (Lemma 2 of docs/proofs/features.md).

    Args:
        rows: [n, w] of norm at most 1; they are rounded to multiples of 2^-22.
        matrix: [w, m] integers as float64, every column shorter than 2^29.

    Returns:
        [n, m] float64.
    """
    return np.ldexp(to_integers(rows) @ matrix, -GRAIN)


def integer_matrix(matrix: np.ndarray) -> np.ndarray:
    """Return a matrix times a power of two, rounded to integers, every column below 2^29 long."""
    longest = float(np.linalg.norm(matrix, axis=0).max())
    _, exponent = math.frexp(longest)
    return np.rint(np.ldexp(matrix, COLUMN - 1 - exponent))


def inverse_root(matrix: np.ndarray, power: float, ridge: float, fault: str) -> np.ndarray:
    """Return integers proportional to (matrix + ridge * mean eigenvalue)^(-power / 2).

    Another machine may return other integers, so a run stores its own; of several processes all get
    the first one's (Lemma 5 of docs/proofs/features.md).

    Args:
        matrix: [n, n] symmetric, no eigenvalue below 0 but for rounding.
        power: 1 for an inverse square root.
        ridge: what is added to each eigenvalue, as a share of their mean.
        fault: what the message says if the matrix is singular.

    Raises:
        ConfigError: rounding alone keeps the matrix from being singular.
    """
    from agt.distributed import group  # loads torch, which whoever reads a map has no use for

    with threadpool_limits(1, user_api="blas"):
        values, vectors = np.linalg.eigh(matrix)
        mean = max(float(values.mean()), 1e-12)
        values = np.maximum(values, 0.0) + ridge * mean
        if values.min() <= _SINGULAR * values.max():
            raise ConfigError(
                Message(
                    "{config:certificate.features.ridge}={ridge:g}: {fault}",
                    ridge=ridge,
                    fault=fault,
                )
            )
        powers = values ** (-power / 2)
        return group().sent(integer_matrix((vectors * powers) @ vectors.T))


def choose_landmarks(rows: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Return ``count`` different rows, chosen by a hash of their numbers, one a column.

    The order of the rows, and how often one of them occurs, change nothing (Lemma 6 of
    docs/proofs/features.md).

    Args:
        rows: [n, width] public rows, integers as float64.
        count: how many to choose.
        seed: the public key of the hash.

    Returns:
        [width, count] float64.

    Raises:
        ConfigError: there are fewer different rows.
        UnsoundError: a row is not finite.
    """
    if not bool(np.isfinite(rows).all()):
        raise UnsoundError(
            Message(
                "{config:certificate.features.public}: a feature of a public row is NaN or "
                "infinite: correct or remove this row"
            )
        )
    distinct = {row.tobytes() for row in rows.astype("<i8")}
    if len(distinct) < count:
        raise ConfigError(
            Message(
                "{config:certificate.features.count}={count}: each landmark is a different "
                "public row, but only {different} public rows are different. Use a smaller "
                "count, or declare more records public",
                count=count,
                different=len(distinct),
            )
        )
    key = f"landmarks/{seed}".encode()

    def rank(row: bytes) -> tuple[bytes, bytes]:
        return blake2b(row, digest_size=8, key=key).digest(), row

    chosen = sorted(distinct, key=rank)[:count]
    numbers = np.frombuffer(b"".join(chosen), dtype="<i8")
    return numbers.reshape(count, -1).T.astype(np.float64)


def gaussian_kernel(rows: np.ndarray, landmarks: np.ndarray, bandwidth: float) -> np.ndarray:
    """Return exp(-|x - z|^2 / (2 bandwidth^2)) of each row x and landmark z, [n, count].

    A row's values are a function of that row and the landmarks (Lemma 6 of
    docs/proofs/features.md).

    Args:
        rows: [n, width] ``to_integers`` of rows of norm at most 1.
        landmarks: [width, count] ``to_integers`` of public rows.
        bandwidth: in units of length 1.
    """
    from agt.models.compiled import exp_of_minus

    row_squares = np.einsum("nw,nw->n", rows, rows)
    landmark_squares = np.einsum("wm,wm->m", landmarks, landmarks)
    squares = row_squares[:, None] + landmark_squares
    integer_distances = squares - 2 * (rows @ landmarks)
    squared_distances = np.ldexp(integer_distances, -2 * GRAIN)
    return exp_of_minus(squared_distances * (0.5 / bandwidth**2))


def landmark_root(
    landmarks: np.ndarray, bandwidth: float, power: float, ridge: float
) -> np.ndarray:
    """Return integers proportional to (K + ridge)^(-power / 2) of the landmarks' kernel matrix K.

    At power 1 the kernel's values times this are Nystroem's features.

    Args:
        landmarks: [width, count] integers.
        bandwidth: as in ``gaussian_kernel``.
        power: as in ``inverse_root``.
        ridge: as in ``inverse_root``.

    Returns:
        [count, count] float64.

    Raises:
        ConfigError: some landmarks are so close that only rounding tells them from one another, and
            the ridge is too small.
    """
    fault = (
        f"some of the {landmarks.shape[1]} landmarks are too close to each other to be "
        f"distinguished in floating point. Use certificate.features.ridge=1e-3"
    )
    kernel_matrix = gaussian_kernel(landmarks.T.copy(), landmarks, bandwidth)
    return inverse_root(kernel_matrix, power, ridge, fault)


@dataclass(frozen=True, eq=False)
class FeatureMap:
    """A public feature map: a function of records, and its public matrices.

    Formal guarantees
        * Every row of phi has norm at most 1, rounding included (Lemma 1 of
          docs/proofs/features.md).
        * A record's row is a function of that record and the public matrices, to the last bit.

    Attributes:
        config: what it was made from.
        width: how many numbers a record has, flattened.
        whitening: [width, width] integers, or None.
        projection: [width, count] integers: random directions, or landmarks; or None.
        root: [count, count] integers that landmarks' values are multiplied by, or None.

    Raises:
        ConfigError: records are too wide for Lemma 1, or no images where images are needed.
        UnsoundError: a matrix entry is no integer, or a column is too long for exact products.
    """

    config: FeaturesConfig
    width: int
    whitening: np.ndarray | None = None
    projection: np.ndarray | None = None
    root: np.ndarray | None = None

    def __post_init__(self) -> None:
        for name, matrix in self.matrices.items():
            exponent = COLUMN
            if name == "projection" and self.config.map == "landmarks":
                exponent = GRAIN + 1
            longest = float(np.linalg.norm(matrix, axis=0).max())
            is_integer = bool((matrix == np.rint(matrix)).all())
            if not (is_integer and longest < 2.0**exponent):  # NaN is neither
                raise UnsoundError(
                    Message(
                        "{config:certificate.features}: the entries of the {name} matrix are "
                        "too large for an exact product: scale the features by a public "
                        "constant",
                        name=name,
                    )
                )
        if self.config.map == "scattering" and not outputs_of(self.width):
            raise ConfigError(
                Message(
                    "{config:certificate.features.map}=scattering needs square images, gray or in "
                    "three colours, whose side is a multiple of 4 and at least 8, but a record has "
                    "{width} numbers. Use relu or landmarks, or resize the images",
                    width=self.width,
                )
            )
        coordinates = max(self.width, self.outputs)
        if coordinates * UNIT >= 2.0**-10:
            raise ConfigError(
                f"certificate.features: the map has too many coordinates ({coordinates}) for "
                "exact sums: lower count"
            )

    @classmethod
    def from_dataset(cls, config: FeaturesConfig, dataset: Dataset) -> "FeatureMap":
        """Build a map for a dataset, of which only rows that are declared public are read.

        Args:
            config: the settings.
            dataset: its records' width, and its public rows' features; no label is read.

        Raises:
            ConfigError: there are no public rows, or too few.
        """
        width = int(np.prod(dataset.train.features.shape[1:]))
        features = cls(config, width)
        if config.whiten:
            whitening = _whitening(_public_rows(config, dataset), config)
            features = replace(features, whitening=whitening)
        if config.map == "landmarks":
            return features._with_landmarks(_public_rows(config, dataset))
        return replace(features, projection=_projection(config, width))

    def _with_landmarks(self, rows: np.ndarray) -> "FeatureMap":
        """Return the same map with landmarks among public rows [n, width], and their root."""
        config = self.config
        chunks = []
        for start in range(0, len(rows), _CHUNK_ROWS):
            chunk = rows[start : start + _CHUNK_ROWS].astype(np.float64)
            chunks.append(to_integers(self._unit_rows(chunk)))
        landmarks = choose_landmarks(np.concatenate(chunks), config.count or 0, config.seed)
        root = None
        if config.root:
            root = landmark_root(landmarks, config.bandwidth, config.root, config.ridge)
        return replace(self, projection=landmarks, root=root)

    @property
    def shapes(self) -> dict[str, tuple[int, int]]:
        """The shape of each matrix that such a map needs, by name, also of those it lacks yet."""
        config = self.config
        count = config.count or 0
        shapes = {}
        if config.whiten:
            shapes["whitening"] = (self.width, self.width)
        if config.map in ("relu", "landmarks"):
            shapes["projection"] = (self.width, count)
        if config.map == "landmarks" and config.root:
            shapes["root"] = (count, count)
        return shapes

    @property
    def matrices(self) -> dict[str, np.ndarray]:
        """The public matrices that the map has, by name, as a run's record stores them."""
        named = {"whitening": self.whitening, "projection": self.projection, "root": self.root}
        return {name: matrix for name, matrix in named.items() if matrix is not None}

    def with_matrices(self, matrices: Mapping[str, np.ndarray]) -> "FeatureMap":
        """Return a map of these settings with the given matrices, named as in ``matrices``."""
        return FeatureMap(
            self.config,
            self.width,
            whitening=matrices.get("whitening"),
            projection=matrices.get("projection"),
            root=matrices.get("root"),
        )

    @property
    def outputs(self) -> int:
        """How many coordinates phi(x) has, the bias included."""
        if self.config.map == "scattering":
            return outputs_of(self.width) + 1
        inputs = self.width if self.config.map == "none" else 0
        return inputs + (self.config.count or 0) + 1

    @property
    def plain(self) -> bool:
        """Whether phi(x) is x, brought to its length, and the bias."""
        return self.config.map == "none" and not self.config.whiten

    @property
    def public(self) -> tuple[Fact, ...]:
        """The facts of condition e: what the map was made from."""
        config = self.config
        count = config.count or 0
        facts = [proved("norm_one")]
        if config.public is not None:
            facts.append(_public_fact(config))
        if config.map == "relu":
            facts.append(proved("relu_features", count=count, seed=config.seed))
        if config.map == "landmarks":
            facts.append(proved("landmarks_by_hash", count=count, seed=config.seed))
        if config.map == "scattering":
            facts.append(proved("scattering_features"))
        return tuple(facts)

    def __call__(self, x: np.ndarray, dtype: str = "float64") -> np.ndarray:
        """Return phi of each record.

        Args:
            x: [n, ...] features as the dataset scales them.
            dtype: of the result, float64 or float32; the work is done in float64.

        Returns:
            [n, outputs], each row of norm at most 1, the bias last.

        Raises:
            ConfigError: the records' width is not the map's.
            UnsoundError: a row is not finite, or longer than 1.
        """
        width = int(np.prod(x.shape[1:]))
        if width != self.width:
            raise ConfigError(
                f"inputs: a query has {width} features, but the model was trained on {self.width}"
            )
        phi = aligned_empty((len(x), self.outputs), dtype)
        for start in range(0, len(x), _CHUNK_ROWS):
            rows = slice(start, start + _CHUNK_ROWS)
            chunk = x[rows]
            # The number of rows is written out, as NumPy cannot infer it for rows of no numbers.
            flat = chunk.reshape(len(chunk), self.width)
            phi[rows] = self._transform(flat.astype(np.float64), dtype)
            # Lemma 1 of docs/proofs/features.md says so; this is for a broken library or memory.
            check_norms(phi[rows])
        return phi

    def over(self, x: np.ndarray, dtype: str, memory_mb: int) -> np.ndarray:
        """Return phi of training records, which are read again in every step.

        Where phi takes more memory than is allowed and costs little (``plain``), a row is computed
        whenever it is read: to the same bits, because a row is a function of its record.

        Args:
            x: [n, ...] features as the dataset scales them.
            dtype: of the result, float64 or float32.
            memory_mb: the memory that phi may take, in MiB.

        Returns:
            [n, outputs], each row of norm at most 1, the bias last.

        Raises:
            ConfigError: the records' width is not the map's.
            UnsoundError: a row is not finite, or longer than 1.
        """
        size = len(x) * self.outputs * np.dtype(dtype).itemsize
        if size > memory_mb * 2**20 and self.plain:
            return as_array(Mapped(x, partial(self, dtype=dtype)))
        return self(x, dtype)

    def _transform(self, rows: np.ndarray, dtype: str) -> np.ndarray:
        """Return phi of rows [n, width] float64, still in float64, of norm below 1."""
        # Lemma 1 of docs/proofs/features.md: rows are made shorter than 1 by what rounding may add.
        rounding = 4 * (self.outputs + 16) * UNIT
        dtype_unit = float(np.finfo(dtype).eps) / 2
        keep = 1 - rounding - 2 * dtype_unit
        length = keep / math.sqrt(1 + self.config.bias**2)
        features = self._features(rows, length)
        bias = np.full((len(rows), 1), self.config.bias * length)
        return np.concatenate([features, bias], axis=1)

    def _features(self, rows: np.ndarray, length: float) -> np.ndarray:
        """Return the features of rows [n, width] without the bias, of norm at most ``length``."""
        match self.config.map:
            case "none":
                whitened, radius = self._whitened(rows)
                return normalise_rows(whitened, radius, length)
            case "relu":
                values = exact_product(self._unit_rows(rows), self._directions)
                return normalise_rows(np.maximum(values, 0.0), 0.0, length)
            case "landmarks":
                units = to_integers(self._unit_rows(rows))
                values = gaussian_kernel(units, self._directions, self.config.bandwidth)
                if self.root is not None:
                    values = exact_product(normalise_rows(values, 0.0, 1.0), self.root)
                return normalise_rows(values, 0.0, length)
            case "scattering":
                groups = scattering(self._unit_rows(rows))
                equal = [normalise_rows(group, 0.0, 1.0) for group in groups]
                return normalise_rows(np.concatenate(equal, axis=1), 0.0, length)

    def _unit_rows(self, rows: np.ndarray) -> np.ndarray:
        """Return what every map begins with: whitened rows, of length at most 1."""
        whitened, radius = self._whitened(rows)
        return normalise_rows(whitened, radius, 1.0)

    def _whitened(self, rows: np.ndarray) -> tuple[np.ndarray, float]:
        """Return the whitened rows, and from which radius on they are brought to full length."""
        radius = self.config.radius or 0.0
        if self.whitening is None:
            return rows, radius
        units = normalise_rows(rows, radius, 1.0)
        return exact_product(units, self.whitening), 0.0

    @property
    def _directions(self) -> np.ndarray:
        assert self.projection is not None, "every map that has directions must be given some"
        return self.projection


def _projection(config: FeaturesConfig, width: int) -> np.ndarray | None:
    """Return [width, count] random directions as integers for ReLU features; None: other maps."""
    if config.map != "relu":
        return None
    directions = np.random.default_rng(config.seed).standard_normal((width, config.count or 0))
    # A standard normal column is sqrt(width) long, give or take a few.
    _, exponent = math.frexp(math.sqrt(width) + 16)
    return np.rint(np.ldexp(directions, COLUMN - 1 - exponent))


def _public_rows(config: FeaturesConfig, dataset: Dataset) -> np.ndarray:
    """Return the features of the rows that are declared public, [n, width].

    Raises:
        ConfigError: there are fewer than two.
    """
    records = dataset.public_rows(config.public or "train")
    if len(records) < 2:
        use = "a choice of landmarks"
        remedy = "map=relu"
        if config.whiten:
            use = "a covariance"
            remedy = "whiten=0"
        raise ConfigError(
            Message(
                "{config:certificate.features.public}={public}: {use} needs at least 2 public "
                "rows, but there are {count}. Mark training records public "
                "({config:dataset.public}), or use {config:certificate.features}.{remedy}",
                public=config.public,
                use=use,
                count=len(records),
                remedy=remedy,
            )
        )
    return records.features.reshape(len(records), -1)


def _public_fact(config: FeaturesConfig) -> Fact:
    """Return the declared fact that the rows are public from which matrices were made."""
    code = "whitening_rows_public"
    if config.map == "landmarks":
        code = "whitening_and_landmark_rows_public" if config.whiten else "landmark_rows_public"
    return declared(code, public=str(config.public), setting="certificate.features.public")


def _whitening(
    rows: np.ndarray, config: FeaturesConfig, chunk_rows: int = _CHUNK_ROWS
) -> np.ndarray:
    """Return integers proportional to (cov + ridge * mean variance)^(-whiten / 2) of rows.

    Args:
        rows: [n, width] public rows, which are brought to norm 1.
        config: ``whiten`` and ``ridge``.
        chunk_rows: how many are read at once, at most ``_CHUNK_ROWS``; the memory alone depends on
            it.

    Returns:
        [width, width] float64.

    Raises:
        ConfigError: there are more rows than the sums are exact for, or rounding alone keeps the
            covariance from being singular.
        UnsoundError: a row is not finite.
    """
    fault = (
        f"the {len(rows)} public rows do not span all {rows.shape[1]} directions of the "
        "features, but whitening divides by their spread in each direction. Use ridge=1e-3, "
        "or more public rows"
    )
    return inverse_root(_covariance(rows, chunk_rows), config.whiten, config.ridge, fault)


def _covariance(rows: np.ndarray, chunk_rows: int) -> np.ndarray:
    """Return the covariance of rows of norm 1, rounded to ``PUBLIC_GRAIN``, [width, width].

    It has the same bits in any order of the rows (Lemma 5 of docs/proofs/features.md).

    Args:
        rows: [n, width] public rows.
        chunk_rows: how many are read at once, at most ``_CHUNK_ROWS``.

    Raises:
        ConfigError: there are more rows than the sums are exact for.
        UnsoundError: a row is not finite.
    """
    count, width = rows.shape
    if count > MAX_PUBLIC_ROWS:
        raise ConfigError(
            Message(
                "{config:certificate.features.public}: there are {count} public rows, but "
                "sums are only exact over at most {maximum}. Declare fewer records public",
                count=count,
                maximum=MAX_PUBLIC_ROWS,
            )
        )
    total = np.zeros(width, dtype=np.int64)
    products = np.zeros((width, width), dtype=np.int64)
    for start in range(0, count, chunk_rows):
        chunk = rows[start : start + chunk_rows].astype(np.float64)
        units = np.rint(np.ldexp(normalise_rows(chunk, 0.0, 1.0), PUBLIC_GRAIN))
        if not bool(np.isfinite(units).all()):
            raise UnsoundError(
                Message(
                    "{config:certificate.features.public}: a feature of a public row is NaN "
                    "or infinite: correct or remove this row"
                )
            )
        total += units.sum(axis=0).astype(np.int64)
        products += (units.T @ units).astype(np.int64)
    mean = np.ldexp(total / count, -PUBLIC_GRAIN)
    second_moment = np.ldexp(products / count, -2 * PUBLIC_GRAIN)
    return second_moment - mean[:, None] * mean
