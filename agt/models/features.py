"""Public features phi(x) in front of a linear head, of norm at most 1.

A map whitens records by the covariance of public rows, and then takes random ReLU features, a
Gaussian kernel's values at public rows (landmarks), wavelet scattering, or none of these. From
scattering features it may subtract their mean over public rows. It scales each result to one length
and appends a bias coordinate. Closed-form certificates need the norm, and
features that depend only on the record and on public constants, to the last bit
(docs/proofs/features.md).

Source: Williams, Seeger (2000), for landmarks.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b

import numpy as np
from threadpoolctl import threadpool_limits

from agt.data.arrays import Mapped, aligned_empty, as_array, block_slices, rows_in
from agt.data.coded import CodedFeatures
from agt.data.dataset import Dataset
from agt.errors import ConfigError, UnsoundError
from agt.facts import Fact, declared, proved
from agt.messages import Message
from agt.models.scattering import outputs_of, scattering
from agt.numeric import UNIT, check_norms
from agt.settings import FeaturesConfig

# Matrix products are exact and independent of the order of summation, because both factors are
# integers: rows of norm at most 1 are rounded to multiples of 2^-22 and the columns of a matrix are
# integers with a norm below 2^29, so every partial sum is below 2^52 (docs/proofs/features.md).
ROW_FRACTION_BITS = 22
MATRIX_COLUMN_BITS = 29
# The covariance is computed from rows of norm 1 that are rounded to multiples of 2^-18.
PUBLIC_ROW_FRACTION_BITS = 18
MAX_PUBLIC_ROWS = 2**26  # sums of products over more public rows could overflow int64
# Scattering features minus their public centre are divided by this, and longer rows are scaled to
# norm 1. About half of MNIST's digits are longer (docs/measurements.md).
CENTERED_RADIUS = 0.5

_SINGULAR = 2.0**-43  # an eigenvalue below this share of the largest one may be rounding error
MATRICES = ("whitening", "projection", "root", "center")
_CHUNK_ROWS = 4096  # rows transformed at once; sums over one chunk are exact in float64
_CHUNK_BYTES = 2**18  # of rows that are only normalised, so that a chunk stays in the cache


def normalise_rows(rows: np.ndarray, radius: float, length: float) -> np.ndarray:
    """Scale rows to a given l2 norm; rows shorter than a radius are scaled to less.

    Formal guarantees
        * A row's result is a function of that row only, to the last bit (Lemma 2 of
          docs/proofs/features.md).
        * The norm of a result exceeds ``length`` by no more than the rounding error that Lemma 1
          of that page bounds.

    | row                                | result                         |
    |------------------------------------|--------------------------------|
    | 0                                  | 0                              |
    | norm below the radius              | row / radius * length          |
    | any other finite row               | row / norm * length            |
    | with a NaN or infinity             | not finite                     |

    Args:
        rows: [n, w] float64, the rows to scale.
        radius: the norm from which on a row is scaled to the full ``length``; 0: every row is.
        length: the norm of the results of all other rows.

    Returns:
        [n, w] float64.
    """
    # No warnings: a row that is not finite stays so, and check_norms refuses it later.
    with np.errstate(over="ignore", invalid="ignore"):
        # Division by the largest entry first, so that squares cannot overflow.
        largest = np.abs(rows).max(axis=1, initial=0.0, keepdims=True)
        shares = rows / np.where(largest == 0, 1.0, largest)
        # np.add.accumulate adds the coordinates one by one. np.sum may add them in an order that
        # depends on the number of rows.
        partial_sums = np.add.accumulate(shares * shares, axis=1)
        norms_of_shares = np.sqrt(partial_sums[:, -1:])
        full_length = shares / np.where(norms_of_shares == 0, 1.0, norms_of_shares) * length
        if radius == 0:
            return full_length
        is_within_radius = largest * norms_of_shares < radius
        return np.where(is_within_radius, rows / radius * length, full_length)


def to_integers(rows: np.ndarray) -> np.ndarray:
    """Return rows times 2^22, rounded to integers: fixed-point numbers with 22 fraction bits.

    Args:
        rows: [n, w] of norm at most 1.

    Returns:
        [n, w] integers as float64.
    """
    return np.rint(np.ldexp(rows, ROW_FRACTION_BITS))


def exact_product(rows: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Round rows to multiples of 2^-22 and return their product with an integer matrix, exactly.

    All partial sums are integers below 2^53, so the product has no rounding error. A row's result
    is a function of that row and the matrix, in any batch (Lemma 2 of docs/proofs/features.md).

    Args:
        rows: [n, w] of norm at most 1.
        matrix: [w, m] integers as float64, every column of norm below 2^29.

    Returns:
        [n, m] float64.
    """
    return np.ldexp(to_integers(rows) @ matrix, -ROW_FRACTION_BITS)


def integer_matrix(matrix: np.ndarray) -> np.ndarray:
    """Scale a matrix by a power of two and round it to integers, for ``exact_product``.

    Args:
        matrix: [w, m] finite numbers.

    Returns:
        [w, m] integers as float64. Every column has a norm below 2^29. The longest one has a norm
        of about 2^27 to 2^28, so that rounding loses little.
    """
    longest = float(np.linalg.norm(matrix, axis=0).max())
    _, exponent = math.frexp(longest)
    return np.rint(np.ldexp(matrix, MATRIX_COLUMN_BITS - 1 - exponent))


def inverse_root(matrix: np.ndarray, power: float, ridge: float, fault: str) -> np.ndarray:
    """Return a negative power of a symmetric matrix, regularised, scaled and rounded to integers.

    It is (matrix + ridge * mean eigenvalue * identity)^(-power / 2), times a power of two.
    Another machine may return other integers, so a run stores its own. The processes of a
    distributed job all return the first one's (Lemma 5 of docs/proofs/features.md).

    Args:
        matrix: [n, n] symmetric and positive semidefinite, up to rounding.
        power: 1 for the inverse square root, which whitens by a covariance matrix.
        ridge: the number added to each eigenvalue, as a share of the mean eigenvalue.
        fault: the message of the error that is raised for a singular matrix.

    Returns:
        [n, n] integers as float64, every column of norm below 2^29.

    Raises:
        ConfigError: the smallest eigenvalue, ridge included, is no larger than rounding errors.
    """
    # Imported here because it imports torch, which code that only applies a map does not need.
    from agt.distributed import group

    # In one thread, so that the same matrix gives the same bits however many threads there are.
    with threadpool_limits(1, user_api="blas"):
        values, vectors = np.linalg.eigh(matrix)
        mean = max(float(values.mean()), 1e-12)  # positive, also for a matrix of zeros
        values = np.maximum(values, 0.0) + ridge * mean
        if values.min() <= _SINGULAR * values.max():
            raise ConfigError(
                Message(
                    "{config:certificate.features.ridge}={ridge:g}: {fault}",
                    ridge=ridge,
                    fault=fault,
                )
            )
        # A function of a symmetric matrix applies to its eigenvalues.
        powers = values ** (-power / 2)
        root = integer_matrix((vectors * powers) @ vectors.T)
        return group().broadcast(root)  # the first process's matrix, in every process


def choose_landmarks(rows: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Choose distinct public rows as landmarks: the ones with the smallest keyed hashes.

    Landmarks are the points at which a Gaussian kernel is evaluated to make features. The result
    does not depend on the order of the rows, nor on how often a row occurs (Lemma 6 of
    docs/proofs/features.md).

    Args:
        rows: [n, width] rows that the user declared public, integers as float64.
        count: the number of landmarks.
        seed: the public key of the hash; another seed chooses other rows.

    Returns:
        [width, count] float64, one landmark in each column, in the order of their hashes.

    Raises:
        ConfigError: there are fewer than ``count`` distinct rows.
        UnsoundError: a row is not finite.
    """
    _check_finite(rows)
    # Bytes of little-endian integers, so that hashes are the same on every machine.
    distinct = {row.tobytes() for row in rows.astype("<i8")}
    if len(distinct) < count:
        raise ConfigError(
            Message(
                "{config:certificate.features.count}={count}: the landmarks must be different "
                "public rows, but there are only {different} different ones. Use a smaller "
                "count, or declare more records public",
                count=count,
                different=len(distinct),
            )
        )
    key = f"landmarks/{seed}".encode()

    def rank(row: bytes) -> tuple[bytes, bytes]:
        """Return the row's hash, and the row itself to order rows of equal hashes."""
        return blake2b(row, digest_size=8, key=key).digest(), row

    chosen = sorted(distinct, key=rank)[:count]
    numbers = np.frombuffer(b"".join(chosen), dtype="<i8")
    return numbers.reshape(count, -1).T.astype(np.float64)


def gaussian_kernel(rows: np.ndarray, landmarks: np.ndarray, bandwidth: float) -> np.ndarray:
    """Return the Gaussian kernel exp(-|x - z|^2 / (2 bandwidth^2)) of each row x and landmark z.

    A row's values are a function of that row and the landmarks, to the last bit (Lemma 6 of
    docs/proofs/features.md).

    Args:
        rows: [n, width] rows of norm at most 1 as integer multiples of 2^-22 (``to_integers``).
        landmarks: [width, count] one landmark in each column, in the same units.
        bandwidth: the kernel's standard deviation, where rows have a norm of at most 1.

    Returns:
        [n, count] float64 from 0 to 1.
    """
    from agt.models.compiled import exp_of_minus

    # |x - z|^2 = |x|^2 + |z|^2 - 2 x.z, which is exact here: all numbers are integers below 2^53.
    row_squares = np.einsum("nw,nw->n", rows, rows)
    landmark_squares = np.einsum("wm,wm->m", landmarks, landmarks)
    squares = row_squares[:, None] + landmark_squares
    integer_distances = squares - 2 * (rows @ landmarks)
    squared_distances = np.ldexp(integer_distances, -2 * ROW_FRACTION_BITS)
    return exp_of_minus(squared_distances * (0.5 / bandwidth**2))


def landmark_root(
    landmarks: np.ndarray, bandwidth: float, power: float, ridge: float
) -> np.ndarray:
    """Return the matrix by which kernel values at landmarks become Nystroem features.

    For the kernel matrix K of the landmarks it is proportional to K^(-power / 2), regularised by a
    ridge. Nystroem's method has power 1.

    Args:
        landmarks: [width, count] integer multiples of 2^-22, one landmark in each column.
        bandwidth: the standard deviation of the Gaussian kernel.
        power: 1 for the inverse square root of K.
        ridge: the number added to each eigenvalue of K, as a share of the mean eigenvalue.

    Returns:
        [count, count] integers as float64, every column of norm below 2^29.

    Raises:
        ConfigError: two landmarks are so close that K is singular up to rounding, and the ridge is
            too small to correct it.
    """
    landmark_count = landmarks.shape[1]
    fault = (
        f"some of the {landmark_count} landmarks are so close to each other that floating point "
        "cannot distinguish them. Use certificate.features.ridge=1e-3"
    )
    kernel_matrix = gaussian_kernel(landmarks.T.copy(), landmarks, bandwidth)
    return inverse_root(kernel_matrix, power, ridge, fault)


@dataclass(frozen=True, eq=False)
class FeatureMap:
    """A public map phi from records to vectors of l2 norm at most 1, with its public matrices.

    Nothing in the map depends on private records, only on settings and rows that are declared
    public.

    Formal guarantees
        * Every row of phi has a norm of at most 1, rounding included (Lemma 1 of
          docs/proofs/features.md).
        * A record's features are a function of that record and the public matrices, to the last
          bit (Lemmas 2, 3, 6 and 7 of that page).

    Attributes:
        config: the settings of the map.
        width: the number of features of a record, flattened.
        whitening: [width, width] integers, the whitening matrix; None: no whitening.
        projection: [width, count] integers: the random directions of ReLU features, or the
            landmarks of a Gaussian kernel; None: the map uses neither.
        root: [count, count] integers by which kernel values at landmarks are multiplied; None: they
            are not.
        center: [1, outputs - 1] integers times 2^-22, the mean of the public rows' scattering
            features, which is subtracted from every record's; None: nothing is subtracted.

    Raises:
        ConfigError: a record or its features have too many coordinates for Lemma 1, or scattering
            is applied to records that are not square images.
        UnsoundError: a matrix entry is no integer, or a column is too long for exact products.
    """

    config: FeaturesConfig
    width: int
    whitening: np.ndarray | None = None
    projection: np.ndarray | None = None
    root: np.ndarray | None = None
    center: np.ndarray | None = None

    def __post_init__(self) -> None:
        """Raise unless the matrices allow exact products and the records fit the map."""
        for name, matrix in self.matrices.items():
            exponent = MATRIX_COLUMN_BITS
            if name == "projection" and self.config.map == "landmarks":
                # A landmark is a row of norm 1 in units of 2^-22, up to rounding.
                exponent = ROW_FRACTION_BITS + 1
            # Products are exact for integer entries and columns of norm below 2^exponent.
            longest = float(np.linalg.norm(matrix, axis=0).max())
            is_integer = bool((matrix == np.rint(matrix)).all())
            if not (is_integer and longest < 2.0**exponent):  # a NaN passes neither comparison
                raise UnsoundError(
                    Message(
                        "{config:certificate.features}: the entries of the {name} matrix are too "
                        "large for an exact product: scale the features by a public constant",
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
        # Lemma 1 of docs/proofs/features.md assumes w u < 2^-10 for w coordinates.
        coordinates = max(self.width, self.outputs)
        if coordinates * UNIT >= 2.0**-10:
            raise ConfigError(
                f"certificate.features: the map makes too many coordinates ({coordinates}) for "
                "exact sums: lower certificate.features.count"
            )

    @classmethod
    def from_dataset(cls, config: FeaturesConfig, dataset: Dataset) -> "FeatureMap":
        """Build the feature map for a dataset.

        Only features of rows that are declared public are read, and only if the settings need them
        (for whitening or landmarks). No label is read.

        Args:
            config: the settings of the map.
            dataset: gives the width of a record, and the public rows.

        Raises:
            ConfigError: public rows are needed, and there are too few or too many.
            UnsoundError: a public row is not finite.
        """
        width = int(np.prod(dataset.train.features.shape[1:]))
        features = cls(config, width)
        if config.whiten:
            whitening = _whitening_matrix(_public_rows(config, dataset), config)
            features = replace(features, whitening=whitening)
        if config.map == "landmarks":
            return features._with_landmarks(_public_rows(config, dataset))
        if config.centers:
            return features._with_center(_public_rows(config, dataset))
        if config.map == "relu":
            directions = _relu_directions(width, features._direction_count, config.seed)
            return replace(features, projection=directions)
        return features

    def _with_landmarks(self, rows: np.ndarray) -> "FeatureMap":
        """Return this map with landmarks, and with the matrix that their kernel values need.

        Args:
            rows: [n, width] public rows, from which the landmarks are chosen.
        """
        config = self.config
        chunks = []
        for block in block_slices(len(rows), _CHUNK_ROWS):
            chunk = rows[block].astype(np.float64)
            chunks.append(to_integers(self._unit_rows(chunk)))
        unit_rows = np.concatenate(chunks)
        landmarks = choose_landmarks(unit_rows, self._direction_count, config.seed)
        root = None
        if config.root:
            root = landmark_root(landmarks, config.bandwidth, config.root, config.ridge)
        return replace(self, projection=landmarks, root=root)

    def _with_center(self, rows: np.ndarray) -> "FeatureMap":
        """Return this map with the mean of public rows' scattering features as its center.

        The mean has the same bits in any order of the rows, because it is a sum of integers
        (Lemma 7 of docs/proofs/features.md).

        Args:
            rows: [n, width] public rows, with n at least 1.

        Raises:
            ConfigError: there are more than ``MAX_PUBLIC_ROWS`` rows.
            UnsoundError: a row is not finite.
        """
        _check_sums_are_exact(len(rows))
        total = np.zeros((1, self.outputs - 1), dtype=np.int64)
        for block in block_slices(len(rows), _CHUNK_ROWS):
            chunk = rows[block].astype(np.float64)
            outputs = to_integers(self._scattering_features(chunk))
            _check_finite(outputs)
            total += outputs.astype(np.int64).sum(axis=0, keepdims=True)
        return replace(self, center=np.rint(total / len(rows)))

    @property
    def shapes(self) -> dict[str, tuple[int, int]]:
        """The matrices that a map with these settings has: name -> shape.

        They depend only on the settings and the width, so a map without matrices has them too.
        """
        config = self.config
        count = self._direction_count
        shapes = {}
        if config.whiten:
            shapes["whitening"] = (self.width, self.width)
        if config.map in ("relu", "landmarks"):
            shapes["projection"] = (self.width, count)
        if config.map == "landmarks" and config.root:
            shapes["root"] = (count, count)
        if config.centers:
            shapes["center"] = (1, self.outputs - 1)
        return shapes

    @property
    def matrices(self) -> dict[str, np.ndarray]:
        """The public matrices that the map has: name -> matrix; a run stores them."""
        matrices = {name: getattr(self, name) for name in MATRICES}
        return {name: matrix for name, matrix in matrices.items() if matrix is not None}

    def with_matrices(self, matrices: Mapping[str, np.ndarray]) -> "FeatureMap":
        """Return a map with the same settings and other matrices.

        Args:
            matrices: name -> matrix; all names of ``shapes``, with their shapes.

        Raises:
            UnsoundError: a matrix entry is no integer, or a column is too long for exact products.
        """
        return FeatureMap(self.config, self.width, **matrices)

    @property
    def outputs(self) -> int:
        """The number of coordinates of phi(x), including one for the bias."""
        match self.config.map:
            case "none":
                outputs = self.width
            case "scattering":
                outputs = outputs_of(self.width)
            case "relu" | "landmarks":
                outputs = self._direction_count
        return outputs + 1  # the bias

    @property
    def _direction_count(self) -> int:
        """The number of ReLU directions or of landmarks; 0 for maps that have neither."""
        count = self.config.count
        return 0 if count is None else count

    @property
    def only_normalises(self) -> bool:
        """Whether the map only scales a record x to a length, and appends the bias."""
        return self.config.map == "none" and not self.config.whiten

    @property
    def facts(self) -> tuple[Fact, ...]:
        """The facts that say from which public values the map was made.

        They are evidence for condition e of a privacy guarantee (docs/method.md): preprocessing and
        settings use public data only.
        """
        config = self.config
        count = self._direction_count
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

    def __call__(
        self, x: np.ndarray, dtype: str = "float64", out: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the public features phi(x) of records.

        Args:
            x: [n, ...] features as the dataset scales them.
            dtype: the precision of the result, "float64" or "float32"; intermediate values have
                float64.
            out: an array of the result's shape and precision that is filled and returned; None: a
                new one.

        Returns:
            [n, outputs], each row of l2 norm at most 1. The last coordinate is the bias.

        Raises:
            ConfigError: a record has another number of features than the map expects.
            UnsoundError: a row of the result is not finite, or its norm exceeds 1.
        """
        self.check_width(x)
        coded = self.coded(x, dtype)
        if coded is not None:
            return coded.lookup.features(coded.codes, out)
        phi = aligned_empty((len(x), self.outputs), dtype) if out is None else out
        chunk_rows = _CHUNK_ROWS
        if self.only_normalises:
            chunk_rows = rows_in(_CHUNK_BYTES, 8 * self.width)
        for rows in block_slices(len(x), chunk_rows):
            chunk = np.asarray(x[rows])
            # The number of rows is written out, as NumPy cannot infer it for rows of no numbers.
            flat = chunk.reshape(len(chunk), self.width)
            phi[rows] = self._transform(flat.astype(np.float64), dtype)
            # Lemma 1 of docs/proofs/features.md proves norms of at most 1. This also refuses rows
            # that are not finite, and detects a faulty library or memory.
            check_norms(phi[rows])
        return phi

    def check_width(self, x: np.ndarray) -> None:
        """Raise ConfigError if records have another number of features than the map expects.

        Args:
            x: [n, ...] features as the dataset scales them.
        """
        width = int(np.prod(x.shape[1:]))
        if width != self.width:
            raise ConfigError(
                f"inputs: a query has {width} features, but the model was trained on {self.width}"
            )

    def phi_of_records(self, x: np.ndarray, dtype: str, memory_mb: int) -> np.ndarray:
        """Return the public features phi(x) of training records, which every step reads again.

        If they need more memory than is allowed and are cheap to compute (``only_normalises``),
        they are computed again at every access. Both ways give the same bits, because a row of phi
        is a function of its record.

        Args:
            x: [n, ...] features as the dataset scales them.
            dtype: the precision of the result, "float64" or "float32".
            memory_mb: the memory that phi may take, in MiB.

        Returns:
            [n, outputs], an array or an object that can be sliced like one. Each row has an l2 norm
            of at most 1, and the last coordinate is the bias.

        Raises:
            ConfigError: a record has another number of features than the map expects.
            UnsoundError: a row of the result is not finite, or its norm exceeds 1.
        """
        size = len(x) * self.outputs * np.dtype(dtype).itemsize
        if size > memory_mb * 2**20 and self.only_normalises:
            # An object that looks like an array and computes the rows of a slice when it is read.
            coded = self.coded(x, dtype)
            if coded is not None:
                return as_array(Mapped(as_array(coded), np.asarray))
            return as_array(Mapped(x, partial(self, dtype=dtype)))
        return self(x, dtype)

    def coded(self, x: np.ndarray, dtype: str) -> CodedFeatures | None:
        """Return phi of records that are held as codes, coded as well; None: phi cannot be coded.

        It has the bits that computing each row of phi gives, because all rows have the same numbers
        in the same order, zeros and signs aside (``CodedFeatures.with_rows_changed``). So all are
        divided by the same largest number and the same norm (Lemma 2 of docs/proofs/features.md):
        zeros add nothing to a sum of squares, and a change of sign changes no rounding.

        Args:
            x: [n, width] features as the dataset scales them, an array or ``CodedFeatures``.
            dtype: the precision of the result, "float64" or "float32".

        Raises:
            UnsoundError: a row of the result is not finite, or its norm exceeds 1.
        """
        if not isinstance(x, CodedFeatures) or not self.only_normalises:
            return None

        def transform(rows: np.ndarray) -> np.ndarray:
            return self._transform(rows.astype(np.float64), dtype).astype(dtype)

        coded = x.with_rows_changed(transform)
        if coded is not None:
            check_norms(coded.longest())  # of every row at once, as ``__call__`` checks each
        return coded

    def _transform(self, rows: np.ndarray, dtype: str) -> np.ndarray:
        """Return phi of flattened records, computed in float64.

        Args:
            rows: [n, width] float64, the features of records before the map.
            dtype: the precision to which the caller converts the result.

        Returns:
            [n, outputs] float64; the norms are at most 1 after conversion to ``dtype``.
        """
        # Lemma 1 of docs/proofs/features.md: the target norm is 1 less a bound on what the
        # roundings of this method and of the conversion to ``dtype`` may add.
        rounding = 4 * (self.outputs + 16) * UNIT
        dtype_unit = float(np.finfo(dtype).eps) / 2
        target_norm = 1 - rounding - 2 * dtype_unit
        # Features of norm ``length`` and the bias, ``bias * length``, have this norm together.
        length = target_norm / math.sqrt(1 + self.config.bias**2)
        features = self._features(rows, length)
        bias = np.full((len(rows), 1), self.config.bias * length)
        return np.concatenate([features, bias], axis=1)

    def _features(self, rows: np.ndarray, length: float) -> np.ndarray:
        """Return phi of flattened records without the bias coordinate.

        Args:
            rows: [n, width] float64, the features of records before the map.
            length: the l2 norm to which the result is scaled; a zero row stays 0, and for the map
                "none" a row within the radius of the settings is scaled to less.

        Returns:
            [n, outputs - 1] float64.
        """
        match self.config.map:
            case "none":
                return self._normalised(rows, length)
            case "relu":
                values = exact_product(self._unit_rows(rows), self._directions)
                return normalise_rows(np.maximum(values, 0.0), radius=0.0, length=length)
            case "landmarks":
                integers = to_integers(self._unit_rows(rows))
                values = gaussian_kernel(integers, self._directions, self.config.bandwidth)
                if self.root is not None:
                    # exact_product needs rows of norm at most 1.
                    unit_values = normalise_rows(values, radius=0.0, length=1.0)
                    values = exact_product(unit_values, self.root)
                return normalise_rows(values, radius=0.0, length=length)
            case "scattering":
                if not self.config.centers:
                    return self._scattering_features(rows, length)
                assert self.center is not None, (
                    "the file of the feature map lacks the center, which the map subtracts from "
                    "each record: train again"
                )
                center = np.ldexp(self.center, -ROW_FRACTION_BITS)  # integers times 2^-22
                centered = self._scattering_features(rows) - center
                return normalise_rows(centered, CENTERED_RADIUS, length)

    def _scattering_features(self, rows: np.ndarray, length: float = 1.0) -> np.ndarray:
        """Return scattering features [n, outputs - 1] of rows, scaled to the given l2 norm.

        Averages of the image, of one wavelet and of two get the same weight.
        """
        groups = scattering(self._unit_rows(rows))
        unit_groups = [normalise_rows(group, radius=0.0, length=1.0) for group in groups]
        return normalise_rows(np.concatenate(unit_groups, axis=1), radius=0.0, length=length)

    def _unit_rows(self, rows: np.ndarray) -> np.ndarray:
        """Whiten rows [n, width], if the map whitens, and scale them to norm 1 or less."""
        return self._normalised(rows, length=1.0)

    def _normalised(self, rows: np.ndarray, length: float) -> np.ndarray:
        """Whiten rows, if the map whitens, and scale them.

        Args:
            rows: [n, width] float64, the features of records before the map.
            length: the norm to which rows are scaled. A row of a norm below the radius of the
                settings is scaled to less, unless the map whitens.
        """
        radius = self.config.radius or 0.0
        if self.whitening is None:
            return normalise_rows(rows, radius, length)
        # exact_product needs rows of norm at most 1. They are normalised before whitening, so the
        # radius has had its effect.
        unit_rows = normalise_rows(rows, radius, length=1.0)
        whitened = exact_product(unit_rows, self.whitening)
        return normalise_rows(whitened, radius=0.0, length=length)

    @property
    def _directions(self) -> np.ndarray:
        """The matrix [width, count] of random directions or of landmarks."""
        assert self.projection is not None, (
            "the file of the feature map lacks its random directions or landmarks: train again"
        )
        return self.projection


def _relu_directions(width: int, count: int, seed: int) -> np.ndarray:
    """Draw the public random directions of ReLU features, as integers for exact products.

    Args:
        width: the number of features of a record.
        count: the number of directions.
        seed: the public seed.

    Returns:
        [width, count] standard normal numbers times a power of two, rounded to integers, as
        float64.
    """
    directions = np.random.default_rng(seed).standard_normal((width, count))
    # The norm of a standard normal column is about sqrt(width), and practically never above
    # sqrt(width) + 16, which is below 2^exponent. So the integers' columns stay below 2^28.
    _, exponent = math.frexp(math.sqrt(width) + 16)
    return np.rint(np.ldexp(directions, MATRIX_COLUMN_BITS - 1 - exponent))


def _public_rows(config: FeaturesConfig, dataset: Dataset) -> np.ndarray:
    """Return the features of the rows that are declared public.

    Args:
        config: says whether these are the test records or the training records marked public.
        dataset: has the rows.

    Returns:
        [n, width] features, flattened, with n at least 2.

    Raises:
        ConfigError: there are fewer than two public rows.
    """
    records = dataset.public_rows(config.public or "train")
    if len(records) < 2:
        use = "a choice of landmarks"
        remedy = "map=relu"
        if config.whiten:
            use = "a covariance"
            remedy = "whiten=0"
        elif config.centers:
            use = "a center"
            remedy = "public=null"
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
    return np.asarray(records.features).reshape(len(records), -1)


def _public_fact(config: FeaturesConfig) -> Fact:
    """Return the fact that the user declared public the rows from which the map was made.

    The fact's code (the key of its sentence) says what the rows were used for: whitening, landmarks
    or both, or the center of scattering features. Without whitening, only landmarks and the center
    use them.
    """
    if config.centers:
        code = "centering_rows_public"
    elif config.map != "landmarks":
        code = "whitening_rows_public"
    elif config.whiten:
        code = "whitening_and_landmark_rows_public"
    else:
        code = "landmark_rows_public"
    return declared(code, public=str(config.public), setting="certificate.features.public")


def _check_finite(public_rows: np.ndarray) -> None:
    """Raise UnsoundError if a public row [n, width] has a NaN or an infinite number."""
    if not bool(np.isfinite(public_rows).all()):
        raise UnsoundError(
            Message(
                "{config:certificate.features.public}: a feature of a public row is NaN or "
                "infinite: correct or remove this row"
            )
        )


def _check_sums_are_exact(count: int) -> None:
    """Raise ConfigError if there are more public rows than can be added without rounding."""
    if count > MAX_PUBLIC_ROWS:
        raise ConfigError(
            Message(
                "{config:certificate.features.public}: there are {count} public rows, but "
                "sums are only exact over at most {maximum}. Declare fewer records public "
                "(dataset.public)",
                count=count,
                maximum=MAX_PUBLIC_ROWS,
            )
        )


def _whitening_matrix(
    rows: np.ndarray, config: FeaturesConfig, chunk_rows: int = _CHUNK_ROWS
) -> np.ndarray:
    """Return the whitening matrix of rows that the user declared public, rounded to integers.

    It is proportional to (C + ridge * mean variance * identity)^(-whiten / 2) for the covariance C
    of the rows, each scaled to norm 1. After full whitening all directions have equal variance.

    Args:
        rows: [n, width] public rows.
        config: ``whiten``, the power of whitening from 0 (none) to 1 (full); and ``ridge``, the
            number added to each variance, as a share of the mean variance.
        chunk_rows: the number of rows that are read at once, at most ``_CHUNK_ROWS``. It affects
            the memory, but not the result.

    Returns:
        [width, width] integers as float64, every column of norm below 2^29.

    Raises:
        ConfigError: there are more than ``MAX_PUBLIC_ROWS`` rows, or C is singular up to rounding
            and the ridge does not correct it.
        UnsoundError: a row is not finite.
    """
    row_count, direction_count = rows.shape
    fault = (
        f"the {row_count} public rows do not span all {direction_count} directions of the "
        "features, but whitening divides by their spread in each direction. Use "
        "certificate.features.ridge=1e-3, or more public rows"
    )
    return inverse_root(_covariance(rows, chunk_rows), config.whiten, config.ridge, fault)


def _covariance(rows: np.ndarray, chunk_rows: int) -> np.ndarray:
    """Return the covariance of rows, each scaled to l2 norm 1 and rounded to 18 fraction bits.

    It has the same bits in any order of the rows, because all sums are sums of integers and so
    exact (Lemma 5 of docs/proofs/features.md).

    Args:
        rows: [n, width] public rows.
        chunk_rows: the number of rows that are read at once, at most ``_CHUNK_ROWS``, so that sums
            of products over one chunk are exact in float64.

    Returns:
        [width, width] float64.

    Raises:
        ConfigError: there are more than ``MAX_PUBLIC_ROWS`` rows.
        UnsoundError: a row is not finite.
    """
    count, width = rows.shape
    _check_sums_are_exact(count)
    total = np.zeros(width, dtype=np.int64)
    products = np.zeros((width, width), dtype=np.int64)
    for block in block_slices(count, chunk_rows):
        chunk = rows[block].astype(np.float64)
        unit_rows = normalise_rows(chunk, radius=0.0, length=1.0)
        integers = np.rint(np.ldexp(unit_rows, PUBLIC_ROW_FRACTION_BITS))
        _check_finite(integers)
        total += integers.sum(axis=0).astype(np.int64)
        products += (integers.T @ integers).astype(np.int64)
    mean = np.ldexp(total / count, -PUBLIC_ROW_FRACTION_BITS)
    second_moment = np.ldexp(products / count, -2 * PUBLIC_ROW_FRACTION_BITS)
    return second_moment - mean[:, None] * mean
