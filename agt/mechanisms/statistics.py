"""Release weights for classes or numbers, solved from noisy sums over the records.

    mechanism = NoisyStatistics(mu)            or NoisyStatistics.within(eps, delta)
    WeightsRelease.judged(model, mechanism, ReleaseTerms())            (agt/release.py)

First the sum M of the records' public features is released with Gaussian noise, which shows where
features lie. Features are then shifted and scaled by it, extended by a constant of 0.3, and scaled
down to a length of at most 1; this gives u. Next the sums G of u u^T and S of u y^T are released,
and ridge regression is solved from them. For classes y is the label as a unit vector. For numbers
it is the label on the scale from -1 to 1 of its public range, times the factor by which u was
scaled down; and M has one more coordinate, from which the length of the features follows.
docs/proofs/statistics.md proves the guarantee.

Source: Wang (2018), AdaSSP. The sensitivities are ours.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple, Self

import numpy as np

from agt.data.arrays import rows_in
from agt.data.target import Target
from agt.errors import ConfigError
from agt.kernels.threads import run_jobs
from agt.mechanism_settings import NoisyStatisticsSettings, check_sums_proved
from agt.mechanisms.link import ReleasedSums, link_slope
from agt.mechanisms.weights import GaussianWeights
from agt.mechanisms.weights_mechanism import AccuracyMethod, ReleasedWeights
from agt.messages import Message
from agt.models.features import exact_product, integer_matrix, normalise_rows
from agt.models.linear import LinearModel
from agt.numeric import UNIT, Randomness, labels_of, noisy, step_of
from agt.relations import RELATIONS
from agt.settings import RelationConfig, schema

# Shares of mu^2 for M, G and S. They and RIDGE_STRENGTH were chosen on the data sets of
# docs/release_measurements.md.
MU_SQUARED_SHARES = (0.05, 0.3, 0.65)
BIAS = 0.3  # the last coordinate of u, before u is scaled down to a length of at most 1
# The ridge is this times s sqrt d, where s is the standard deviation of the noise on G. The largest
# eigenvalue of that noise is near sqrt 2 s sqrt d.
RIDGE_STRENGTH = 0.5
# More features than this are projected, because exact noise takes some 50 microseconds for each of
# d^2 / 2 numbers.
WIDE_FEATURES = 800
PROJECTED_FEATURES = 400  # the number of dimensions that they are projected to
# The share of M's squared length that goes to the coordinate with the features' squared length. M
# has it for labels that are numbers, where the noise depends on the scale of the features.
SQUARE_SHARE = 0.1
_BLOCK_BYTES = 2**18  # of records that a thread sums at once, so that they stay in the cache
_PUBLIC_INPUTS = 64  # random inputs from which the length of features is estimated
_GRAIN_BITS = 14  # features are rounded to multiples of 2^-14 before they are summed
_MAX_RECORDS = 2**25  # the largest number of records whose sums float64 holds exactly
# Rows that are too long are scaled to this length. It is below 1 by more than the rounding of the
# scaling.
_BELOW_ONE = 1 - 2.0**-30

AddNoise = Callable[[np.ndarray, float], np.ndarray]  # (values, sigma) -> values with noise


class SumSensitivities(NamedTuple):
    """The largest moves of the three sums of a release by one edit, in Frobenius norm.

    The sums are as of ``SumNoiseScales``. Every record's features have length at most 1.

    Attributes:
        mean: the largest move of M.
        gram: the largest move of G.
        sums: the largest move of S.
    """

    mean: float
    gram: float
    sums: float


@dataclass(frozen=True)
class SumNoiseScales:
    """Standard deviations of the noise of one release on its three sums; all are public.

    M is the sum of the features, G their second moments, and S the sums of features for each class.

    Attributes:
        mean: the standard deviation of the noise on each number of M.
        gram: the standard deviation of the noise on each diagonal number of G. Off the diagonal it
            is gram / sqrt 2.
        sums: the standard deviation of the noise on each number of S.
    """

    mean: float
    gram: float
    sums: float

    @classmethod
    def from_sensitivities(cls, sensitivities: SumSensitivities, mu: float) -> "SumNoiseScales":
        """Return the smallest noise for which the three sums together are mu-GDP, rounded up.

        Args:
            sensitivities: the largest moves of the sums (``sum_sensitivities``).
            mu: parameter of Gaussian differential privacy of the whole release, above 0.
        """
        # Lemma 4 of docs/proofs/statistics.md: the release is mu-GDP if the squared ratios of
        # sensitivity to noise add up to mu^2. Each sum has a fixed share of mu^2.
        rounding = 1 + 16 * UNIT  # more than the roundings here, and of mu from its decimal
        scales = [
            sensitivity / (mu * math.sqrt(share)) * rounding
            for sensitivity, share in zip(sensitivities, MU_SQUARED_SHARES, strict=True)
        ]
        return cls(*scales)


@dataclass(frozen=True, eq=False)
class ReleasedCentre:
    """The centre and scale of the features, computed from a noisy sum; public.

    Attributes:
        mean: [w] the estimated mean of the features.
        scale: the factor that brings features minus their mean to a length near 1.
    """

    mean: np.ndarray
    scale: float

    @classmethod
    def from_total_and_square(
        cls, total: np.ndarray, noise: float, size: float
    ) -> "ReleasedCentre":
        """Estimate the centre and the scale of features from noisy sums over the records.

        Args:
            total: [w + 1] the sum over the records of ``with_square`` of their features, with
                noise: the scaled features, and their scaled squared length as the last number.
            noise: the standard deviation of the noise on each number of ``total``.
            size: a public estimate of the number of records, above 0.
        """
        square_noise = noise / math.sqrt(SQUARE_SHARE)
        # A mean square below the noise is replaced by the noise. So the scale is rather too small
        # than too large: a scale that is too large makes rows longer than 1, which are shortened.
        mean_square = max(float(total[-1]) / math.sqrt(SQUARE_SHARE), square_noise) / size
        root_share = math.sqrt(1 - SQUARE_SHARE)
        length = math.sqrt(min(mean_square, 1.0))
        return cls.from_total(total[:-1] / root_share, noise / root_share, size, length)

    @classmethod
    def from_total(
        cls, total: np.ndarray, noise: float, size: float, length: float
    ) -> "ReleasedCentre":
        """Estimate the centre and scale of the features from their noisy sum.

        Args:
            total: [w] the sum M of the features, with noise.
            noise: the standard deviation of the noise on each number of ``total``.
            size: a public estimate of the number of records, above 0.
            length: an estimate of the length of most records' features, above 0; public.
        """
        mean = total / size
        square = float(mean @ mean)
        # The noise adds len(mean) (noise / size)^2 to the expected square, which is subtracted. If
        # nothing is left, the centre is 0.
        true_square = max(0.0, square - len(mean) * (noise / size) ** 2)
        # The mean square length of features minus their mean, at least a twentieth of what it was.
        remaining_square = max(length**2 - true_square, length**2 / 20)
        shrinkage = true_square / square if square else 0.0
        return cls(mean * shrinkage, math.sqrt((1 - BIAS**2) / remaining_square))

    def shifted_rows(self, features: np.ndarray) -> np.ndarray:
        """Return shifted and scaled features with a constant feature, in rows of length at most 1.

        Each row depends on its own features only, so one record changes one row.

        Args:
            features: [n, w] the records' features without their bias.

        Returns:
            [n, w + 1] float64: scale (features - mean) and the constant ``BIAS``, where rows longer
            than 1 are scaled down.
        """
        shifted = self.scale * (features - self.mean)
        with_bias = np.concatenate([shifted, np.full((len(features), 1), BIAS)], axis=1)
        return normalise_rows(with_bias, 1.0, _BELOW_ONE)

    def weights_on_features(self, weight: np.ndarray, bias: float) -> np.ndarray:
        """Return weights on the features themselves that give the same argmax as weights on u.

        u are the shifted and scaled features with a constant (``shifted_rows``).

        Args:
            weight: [C, w + 1] weights on u.
            bias: the last coordinate of every record's features; not 0.

        Returns:
            [C, w + 1] weights on (features, bias).
        """
        # Lemma 5 of docs/proofs/statistics.md: scaling a row to its length multiplies the scores of
        # all classes by the same factor, so the argmax stays. Apart from that, u is an affine
        # function of the features.
        slopes = weight[:, :-1] * self.scale
        constant = (weight[:, -1] * BIAS - slopes @ self.mean) / bias
        return np.concatenate([slopes, constant[:, None]], axis=1)


@dataclass(frozen=True, eq=False)
class Statistics:
    """The second moments and label sums that ridge regression is solved from.

    Attributes:
        gram: [d, d] float64, G = sum of u u^T over the records; symmetric.
        sums: [d, C] float64, S = sum of u y^T, where y is the label's row (``label_rows``).
    """

    gram: np.ndarray
    sums: np.ndarray

    @classmethod
    def from_blocks(cls, blocks: Iterable[tuple[np.ndarray, np.ndarray]]) -> "Statistics":
        """Return the exact sums over records; float64 adds them up without rounding.

        Args:
            blocks: the records in blocks: their features u [b, d] and their labels' rows y [b, C],
                all of length at most 1. Both are rounded towards 0 to multiples of 2^-14 first.
        """
        # Lemma 1 of docs/proofs/statistics.md: all products and sums are exact in float64, in any
        # order.
        gram = np.zeros(())
        sums = np.zeros(())
        for features, labels in blocks:
            rounded = round_towards_zero(features)
            gram = gram + rounded.T @ rounded
            sums = sums + rounded.T @ round_towards_zero(labels)
        return cls(gram, sums)

    def noisy(self, noises: SumNoiseScales, add_noise: AddNoise) -> "Statistics":
        """Return both sums with noise. They may be published if ``add_noise`` draws exact noise.

        Args:
            noises: the standard deviations of the noise.
            add_noise: takes an array and a standard deviation sigma, and returns the array plus
                independent normal noise of this sigma.
        """
        above_diagonal = np.triu_indices(len(self.gram), 1)
        # A number off the diagonal counts twice in the squared Frobenius norm, so its noise is
        # smaller by a factor of sqrt 2 (rounded up).
        off_diagonal_noise = noises.gram * math.sqrt(0.5) * (1 + 4 * UNIT)
        gram = np.diag(add_noise(np.diag(self.gram), noises.gram))
        gram[above_diagonal] = add_noise(self.gram[above_diagonal], off_diagonal_noise)
        # The numbers below the diagonal are copied from above it: the noise is drawn once.
        gram.T[above_diagonal] = gram[above_diagonal]
        return Statistics(gram, add_noise(self.sums, noises.sums))

    def solve(self, noises: SumNoiseScales) -> np.ndarray:
        """Return the weights [C, d] of ridge regression on noisy sums.

        It reads no record, so it is post-processing: it spends no privacy budget. Negative
        eigenvalues of the noisy G, which only noise can cause, are replaced by 0.

        Args:
            noises: the standard deviations of the noise on the sums, which the ridge's strength
                follows from.
        """
        values, vectors = np.linalg.eigh(self.gram)
        ridge = RIDGE_STRENGTH * noises.gram * math.sqrt(len(values))
        regularised_values = np.maximum(values, 0) + ridge
        solution_in_eigenbasis = (vectors.T @ self.sums) / regularised_values[:, None]
        return (vectors @ solution_in_eigenbasis).T

    def link_slope(self, noises: SumNoiseScales) -> float:
        """Return the slope at which softmax(slope * scores) estimates class probabilities.

        It is computed from published sums only, so it spends no privacy budget.

        Args:
            noises: the standard deviations of the noise on the sums.
        """
        # The slope is estimated on simulated sums, which need a G without negative eigenvalues.
        values, vectors = np.linalg.eigh(self.gram)
        positive_gram = (vectors * np.maximum(values, 0)) @ vectors.T
        positive = Statistics(positive_gram, self.sums)

        def draw_again(rng: np.random.Generator) -> ReleasedSums:
            """Return the sums with new simulated noise, and the weights solved from them."""
            add_noise = _noise_of_doubles(rng.standard_normal)
            return positive.noisy(noises, add_noise)._with_weight(noises)

        return link_slope(self._with_weight(noises), positive.gram, BIAS, draw_again)

    def _with_weight(self, noises: SumNoiseScales) -> ReleasedSums:
        """Return these sums together with the weights that are solved from them."""
        return ReleasedSums(self.gram, self.sums, self.solve(noises))


@dataclass(frozen=True, eq=False)
class RecordSums:
    """The features and labels of the training records, from which sums are computed; private.

    Attributes:
        project: maps features [n, d] to float64 features [n, w]: without the bias, and projected to
            fewer dimensions if there are many.
        phi: [n, d] the records' features.
        labels: [n] the records' labels, values of ``target``.
        target: the kind of labels: classes, or numbers in a public range.
    """

    project: Callable[[np.ndarray], np.ndarray]
    phi: np.ndarray
    labels: np.ndarray
    target: Target

    @property
    def total(self) -> np.ndarray:
        """M, the exact sum [w] of the records' features (without bias, of length at most 1).

        For numbers it is [w + 1], the sum of ``with_square`` of the features.
        """

        # Lemma 2 of docs/proofs/statistics.md: rows have length at most 1, so one record moves the
        # sum by at most 1. Lemma 6 of docs/proofs/statistics.md: so it is with a squared length.
        # Lemma 1 of docs/proofs/statistics.md: the order of exact sums does not matter.
        def total_of_blocks(first: int, stop: int) -> np.ndarray:
            return np.sum([self._total_of(block) for block, _ in self._blocks(first, stop)], axis=0)

        return np.sum(run_jobs(total_of_blocks, self._block_count), axis=0)

    def _total_of(self, block: np.ndarray) -> np.ndarray:
        """Return the part of M of the records whose projected features are ``block`` [b, w]."""
        rows = block if self.target.numeric is None else with_square(block)
        return round_towards_zero(normalise_rows(rows, 1.0, _BELOW_ONE)).sum(axis=0)

    def statistics(self, centre: ReleasedCentre) -> Statistics:
        """Return the exact second moments G and label sums S of features around a centre.

        They have no noise, so they are private.

        Args:
            centre: the centre and scale that were released.
        """

        def rows_and_labels(first: int, stop: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
            """Yield the features u and the labels' rows y of some blocks of records."""
            for block, labels in self._blocks(first, stop):
                rows = centre.shifted_rows(block)
                yield rows, label_rows(self.target, labels, rows)

        # Lemma 1 of docs/proofs/statistics.md: the order of exact sums does not matter.
        parts = run_jobs(
            lambda first, stop: Statistics.from_blocks(rows_and_labels(first, stop)),
            self._block_count,
        )
        return Statistics(
            np.sum([part.gram for part in parts], axis=0),
            np.sum([part.sums for part in parts], axis=0),
        )

    @property
    def _block_records(self) -> int:
        """The number of records of a block."""
        return rows_in(_BLOCK_BYTES, 8 * self.phi.shape[1])

    @property
    def _block_count(self) -> int:
        """The number of blocks, of which the last may have fewer records; at least 1."""
        return max(1, -(-len(self.labels) // self._block_records))  # divided and rounded up

    def _blocks(self, first: int, stop: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the blocks ``first`` to ``stop`` - 1: features without bias [b, w], labels [b]."""
        for block in range(first, stop):
            rows = slice(block * self._block_records, (block + 1) * self._block_records)
            yield self.project(self.phi[rows]), self.labels[rows]


def label_rows(target: Target, labels: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the labels y of records as rows of length at most 1, for the sum S of u y^T.

    Args:
        target: the kind of labels: classes, or numbers in a public range.
        labels: [b] the records' labels.
        rows: [b, w + 1] the records' features u (``ReleasedCentre.shifted_rows``).

    Returns:
        For classes [b, C], unit vectors. For numbers [b, 1]: the label on the scale from -1 to 1,
        times the factor by which the record's u was scaled down, so that the weights that fit u to
        y fit the features as they were to the label (Lemma 6 of docs/proofs/statistics.md).
    """
    numbers = target.numeric
    if numbers is None:
        return np.eye(len(target.classes))[labels]
    factors = np.minimum(rows[:, -1] / BIAS, 1.0)  # the last feature was BIAS before scaling down
    scaled_labels = numbers.scaled(labels) * factors
    return scaled_labels[:, None]


def with_square(rows: np.ndarray) -> np.ndarray:
    """Return rows v with one more coordinate, from whose sum their mean squared length follows.

    A row of length at most 1 keeps this bound, because |v|^4 <= |v|^2.

    Args:
        rows: [b, w] features without their bias.

    Returns:
        [b, w + 1]: sqrt(1 - SQUARE_SHARE) v and sqrt(SQUARE_SHARE) min(|v|^2, 1).
    """
    squares = np.minimum(np.square(rows).sum(axis=1, keepdims=True), 1.0)
    scaled_rows = math.sqrt(1 - SQUARE_SHARE) * rows
    return np.concatenate([scaled_rows, math.sqrt(SQUARE_SHARE) * squares], axis=1)


def round_towards_zero(features: np.ndarray) -> np.ndarray:
    """Return features rounded towards 0 to multiples of 2^-14, as float64.

    Rounding towards 0 makes no row longer, so rows of length at most 1 keep that bound.

    Args:
        features: an array of any shape.
    """
    scaled = np.ldexp(features.astype(np.float64), _GRAIN_BITS)
    return np.ldexp(np.trunc(scaled), -_GRAIN_BITS)


def sum_sensitivities(relation: RelationConfig) -> SumSensitivities:
    """Return the largest moves of the three sums of a release by one edit of the dataset.

    Args:
        relation: the neighbour relation, with the largest number of records of one unit.

    Raises:
        ConfigError: nothing is proved for the relation.
    """
    check_sums_proved(relation)
    # Lemma 2 of docs/proofs/statistics.md: an added or removed unit of r records moves each sum by
    # at most r. Lemma 3 of docs/proofs/statistics.md: a replaced unit moves G by at most r sqrt 2,
    # and M and S by at most 2 r.
    rows = relation.unit_rows
    units = RELATIONS[relation.name].units_changed_per_edit  # 1 for add_remove, 2 for substitute
    return SumSensitivities(mean=rows * units, gram=rows * math.sqrt(units), sums=rows * units)


@schema
class NoisyStatistics(NoisyStatisticsSettings, GaussianWeights):
    """Releases weights of ridge regression that are solved from noisy sums over the records.

    It takes any number of classes, or labels that are numbers.

    Attributes:
        mu: parameter of Gaussian differential privacy of the one release.
        width: wider features are projected to this number of dimensions by public random
            directions; None: to 400 if there are more than 800 features.
        seed: the seed of the random directions; public.

    Formal guarantees:
        - The release is mu-GDP under add_remove and substitute (docs/proofs/statistics.md). Other
          relations are refused.
        - Labels and probabilities that are computed from the weights spend no more budget.
    """

    accuracy_method = AccuracyMethod("simulated", draws=8)

    @classmethod
    def check_head(cls, head: LinearModel) -> None:
        """Raise ConfigError unless the proof covers this head and its records are available.

        The records are those that the head was trained on.
        """
        cls.check_training(head.settings.certificate, head.settings.relation)
        max_records = head.plan.n_max * head.plan.count
        if max_records > _MAX_RECORDS:
            raise ConfigError(
                f"mechanism={cls.name}: sums are only exact over at most {_MAX_RECORDS:,} "
                f"records, but this run allows up to {max_records:,} records: declare a "
                "smaller size of the data set with dataset.declared_size"
            )
        if not head.features.config.bias:
            raise ConfigError(
                Message(
                    "mechanism={name} subtracts a centre from the features, so the model needs a "
                    "constant feature for the bias: set {config:certificate.features.bias} above 0",
                    name=cls.name,
                )
            )
        # Called because it raises if the records are not available.
        cls.training_rows(head, head.settings.relation.unit_rows)

    def noise_scales(self, head: LinearModel) -> SumNoiseScales:
        """Return the standard deviations of the noise of a release from this head.

        Raises:
            ConfigError: nothing is proved for the head's relation.
        """
        sensitivities = sum_sensitivities(head.settings.relation)
        return SumNoiseScales.from_sensitivities(sensitivities, self.mu)

    def noise(self, head: LinearModel) -> dict[str, float]:
        """Return the public scales of the noise of a release from this head, by name.

        ``sigma`` and ``step`` are the standard deviation and the lattice step of the noise on S,
        the sums of features for each class. ``gram`` is the standard deviation of the noise on G,
        their second moments.

        Raises:
            ConfigError: nothing is proved for the head's relation.
        """
        noises = self.noise_scales(head)
        return {"sigma": noises.sums, "step": step_of(noises.sums), "gram": noises.gram}

    def records(self, head: LinearModel) -> RecordSums:
        """Return the features and labels of a head's training records, ready to be summed; private.

        Raises:
            ConfigError: the records are not available, there are more than n_max in a batch, or
                more of one unit than the relation allows.
            DataError: memory-mapped records were changed after training.
        """
        rows = self.training_rows(head, head.settings.relation.unit_rows)
        records = head.problem.dataset.train.take(rows)
        return RecordSums(
            self._projection(head),
            # Both sums read the features once, which costs less than to store them.
            head.phi_of_records(records.features, memory_mb=0),
            records.labels,
            head.problem.dataset.target,
        )

    def centre(self, head: LinearModel, total: np.ndarray) -> ReleasedCentre:
        """Estimate the centre and scale of a head's features from their noisy sum; public.

        The number of records is the batch plan's public size. The length of the features follows
        from the features of random inputs; for numbers from ``total``.

        Args:
            head: the linear head whose features are summed.
            total: the sum M of the features (``RecordSums.total``), with noise.
        """
        size = head.plan.normalizer * head.plan.count  # the public size of a batch, times batches
        if head.problem.dataset.target.numeric is not None:
            noise = self.noise_scales(head).mean
            return ReleasedCentre.from_total_and_square(total, noise, size)
        rng = np.random.default_rng(self.seed)
        inputs = rng.standard_normal((_PUBLIC_INPUTS, head.features.width))
        squared_lengths = np.square(self._projection(head)(head.phi(inputs))).sum(axis=1)
        length = float(np.sqrt(np.mean(squared_lengths)))
        if length == 0:  # all features of random inputs are 0, so there is no scale to estimate
            length = 1.0
        return ReleasedCentre.from_total(total, self.noise_scales(head).mean, size, length)

    def draw(self, head: LinearModel, source: Randomness) -> ReleasedWeights:
        """Release weights, which spends ``guarantee`` once.

        Args:
            head: a linear head (the trained layer) that ``check`` accepts.
            source: SystemRandomness for a release. Anything else is a simulation, without a
                guarantee.

        Raises:
            ConfigError: the records are not available, there are more than n_max in a batch, or
                more of one unit than the relation allows.
            DataError: memory-mapped records were changed after training.
        """
        noises = self.noise_scales(head)
        add_noise = partial(noisy, source=source)  # draws exact Gaussian noise
        records = self.records(head)
        # The sum M of the features is released first. The other two sums, G of the features' second
        # moments and S of the features times the labels, are taken around the centre that follows
        # from M.
        noisy_total = add_noise(records.total, noises.mean)
        centre = self.centre(head, noisy_total)
        exact_sums = records.statistics(centre)  # private
        released_sums = exact_sums.noisy(noises, add_noise)
        # From here on nothing reads the records.
        solved_weight = released_sums.solve(noises)  # on the shifted and scaled features
        weight = self.weights_on_features(head, centre, solved_weight)
        # Released weights are multiples of a public step, as those of every weights mechanism.
        step = step_of(noises.sums)
        on_lattice = np.rint(weight / step) * step
        # For classes, the slope that turns scores into probabilities is computed when asked for.
        link = None
        if head.problem.dataset.target.numeric is None:
            link = partial(released_sums.link_slope, noises)
        return ReleasedWeights(
            on_lattice,
            self.guarantee,
            self.noise(head),
            simulated=source.simulated,
            mechanism=self.name,
            link=link,
        )

    @classmethod
    def expectation(
        cls,
        head: LinearModel,
        features: np.ndarray,
        labels: np.ndarray,
    ) -> Callable[[Self], float]:
        """Return a function that estimates a mechanism's expected score on these queries.

        The score is the mean accuracy over simulated releases, whose noise comes from a fixed seed;
        for numbers it is the root of their mean squared error.

        Args:
            head: a linear head (the trained layer) that ``check_head`` accepts.
            features: [n, ...] queries, in the form that the head takes.
            labels: [n] the true labels of the queries.
        """
        numbers = head.problem.dataset.target.numeric
        phi = head.phi(features)
        # The records do not depend on mu, so they are read once for each width and seed.
        records_of = cache(lambda width, seed: cls(mu=1.0, width=width, seed=seed).records(head))

        @cache
        def expected(mechanism: Self) -> float:
            """Return the score of one mechanism over simulated releases."""
            records = records_of(mechanism.width, mechanism.seed)
            scores = []
            for weight in mechanism._simulated_weights(head, records):
                if numbers is None:
                    is_right = labels_of(phi @ weight.T) == labels
                    scores.append(is_right.mean())
                else:
                    answers = numbers.unscaled((phi @ weight.T)[:, 0])
                    scores.append(np.square(answers - labels).mean())
            mean_score = float(np.mean(scores))
            return mean_score if numbers is None else math.sqrt(mean_score)

        return expected

    def _simulated_weights(self, head: LinearModel, records: RecordSums) -> Iterator[np.ndarray]:
        """Yield the weights of simulated releases, whose noise comes from a fixed seed.

        Args:
            head: a linear head (the trained layer) that ``check_head`` accepts.
            records: its training records.
        """
        noises = self.noise_scales(head)
        add_noise = _noise_of_doubles(np.random.default_rng(0).standard_normal)
        # All simulated releases share one centre, because the sums around it take time.
        centre = self.centre(head, add_noise(records.total, noises.mean))
        exact = records.statistics(centre)
        for _ in range(self.accuracy_method.draws):
            solved = exact.noisy(noises, add_noise).solve(noises)
            yield self.weights_on_features(head, centre, solved)

    def weights_on_features(
        self, head: LinearModel, centre: ReleasedCentre, weight: np.ndarray
    ) -> np.ndarray:
        """Return weights on the head's own features that give the same argmax as weights on u.

        u are the projected, shifted and scaled features with a constant that the sums are taken of.

        Args:
            head: the linear head that the returned weights are for.
            centre: the centre and scale of the projected features.
            weight: [C, w + 1] weights on u.

        Returns:
            [C, d] weights on the head's features, of which the last is the bias.
        """
        projected_weight = centre.weights_on_features(weight, self._bias(head))
        directions = self._directions(head)
        if directions is None:
            return projected_weight
        slopes = projected_weight[:, :-1] @ directions.T / _mean_stretch(directions)
        return np.concatenate([slopes, projected_weight[:, -1:]], axis=1)

    def _projection(self, head: LinearModel) -> Callable[[np.ndarray], np.ndarray]:
        """Return a function that maps features [n, d] to float64 features [n, w].

        They lose their bias, the last one, and are projected to fewer dimensions if there are many.

        Args:
            head: the linear head whose features are projected.
        """
        directions = self._directions(head)
        if directions is None:
            return _without_bias
        stretch = _mean_stretch(directions)
        return lambda phi: exact_product(_without_bias(phi), directions) / stretch

    def _bias(self, head: LinearModel) -> float:
        """Return the last coordinate of all records' features: a constant of the head."""
        return float(head.phi(np.zeros((1, head.features.width)))[0, -1])

    def _directions(self, head: LinearModel) -> np.ndarray | None:
        """Return the integer matrix that projects features to fewer dimensions, or None.

        Args:
            head: the head, of whose d features the last is the bias.

        Returns:
            [d - 1, width - 1] public random integers; None if there are at most ``width`` features.
        """
        count = head.features.outputs
        width = self.width
        if width is None:  # not set, so it depends on how many features there are
            width = count if count <= WIDE_FEATURES else PROJECTED_FEATURES
        if count <= width:
            return None
        normals = np.random.default_rng(self.seed).standard_normal((count - 1, width - 1))
        return integer_matrix(normals)


def _without_bias(phi: np.ndarray) -> np.ndarray:
    """Return features [n, d] without their bias, the last one, as contiguous float64."""
    return np.ascontiguousarray(phi[:, :-1], dtype=np.float64)


def _mean_stretch(directions: np.ndarray) -> float:
    """Return the factor by which a projection changes the length of a vector, root mean square.

    Args:
        directions: [d - 1, width - 1] the projection matrix.
    """
    return float(np.linalg.norm(directions) / math.sqrt(len(directions)))


def _noise_of_doubles(standard_normal: Callable[[tuple[int, ...]], np.ndarray]) -> AddNoise:
    """Return a function that adds ordinary float64 noise, for simulations only.

    Such noise is not exact, so nothing that it is added to may be published.

    Args:
        standard_normal: returns an array of the given shape of independent N(0, 1) numbers.
    """

    def add_noise(values: np.ndarray, sigma: float) -> np.ndarray:
        """Return an array plus independent N(0, sigma^2) noise."""
        return values + sigma * standard_normal(values.shape)

    return add_noise
