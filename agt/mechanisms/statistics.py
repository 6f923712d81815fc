"""Release weights for any number of classes, solved from noisy sums over the records.

    mechanism = NoisyStatistics(mu)            or NoisyStatistics.within(eps, delta)
    WeightsRelease.judged(model, mechanism, ReleaseTerms())            (agt/release.py)

First the sum M of the records' public features is released with Gaussian noise, which says where
features lie. Of features u that are shifted and scaled by it, with a constant of 0.3 and a length
of at most 1, the sums G of u u^T and S of u y^T (y: the label as a unit vector) are released next,
and ridge regression is solved from them. docs/proofs/statistics.md proves the guarantee.

Source: Wang (2018), AdaSSP. The sensitivities are ours.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Annotated, ClassVar, Self

import numpy as np
from pydantic import Field

from agt.errors import ConfigError
from agt.mechanisms.link import ReleasedSums, link_slope
from agt.mechanisms.weights import GaussianWeights
from agt.mechanisms.weights_mechanism import AccuracyMethod, ReleasedWeights
from agt.messages import Message
from agt.models.features import exact_product, integer_matrix, normalise_rows
from agt.models.linear import LinearModel
from agt.numeric import UNIT, Randomness, labels_of, noisy, step_of
from agt.relations import RELATIONS
from agt.settings import RelationConfig, schema

# Shares of mu^2 for M, G and S; chosen, as RIDGE_STRENGTH was, on the sets of docs/releasing.md.
MU_SQUARED_SHARES = (0.05, 0.3, 0.65)
BIAS = 0.3  # the last coordinate of u, before u is brought to its length
# Of the ridge, times s sqrt d; the largest eigenvalue of the noise on G is near sqrt 2 s sqrt d.
RIDGE_STRENGTH = 0.5
MAX_WIDTH = 2048  # features that sums can be kept of
# Features above which they are brought down: exact noise takes some 50 microseconds for each of
# d^2 / 2 numbers.
WIDE_FEATURES = 800
NARROWED_FEATURES = 400
_BLOCK_RECORDS = 4096
_PUBLIC_INPUTS = 64  # by which the length of features is estimated
_GRAIN_BITS = 14  # features are multiples of 2^-14 where sums are taken
_MAX_RECORDS = 2**25  # whose sums float64 holds exactly
_BELOW_ONE = 1 - 2.0**-30  # of a length brought to 1: less by more than the roundings on the way

AddNoise = Callable[[np.ndarray, float], np.ndarray]  # (values, sigma) -> values with noise


@dataclass(frozen=True)
class SumNoiseScales:
    """Standard deviations of what one release draws, all of it public.

    Attributes:
        mean: m, of each number of M.
        gram: s, of G's diagonal; s / sqrt 2 of each number off it.
        sums: t, of each number of S.
    """

    mean: float
    gram: float
    sums: float

    @classmethod
    def from_sensitivities(
        cls, sensitivities: tuple[float, float, float], mu: float
    ) -> "SumNoiseScales":
        """Return the least noise for which the three sums together are mu-GDP, rounded up.

        Args:
            sensitivities: how far one k moves M, G and S (``sum_sensitivities``).
            mu: of the release.
        """
        # Lemma 4 of docs/proofs/statistics.md
        rounding = 1 + 16 * UNIT  # more than a few roundings here, and that of mu's decimal
        scales = [
            sensitivity / (mu * math.sqrt(share)) * rounding
            for sensitivity, share in zip(sensitivities, MU_SQUARED_SHARES, strict=True)
        ]
        return cls(*scales)


@dataclass(frozen=True, eq=False)
class ReleasedCentre:
    """Where features lie, computed from what was released: public.

    Attributes:
        mean: [w] the centre of the features.
        scale: the factor that brings features less their mean to a length near 1.
    """

    mean: np.ndarray
    scale: float

    @classmethod
    def from_total(
        cls, total: np.ndarray, noise: float, size: float, length: float
    ) -> "ReleasedCentre":
        """Return the centre from M as released.

        Args:
            total: [w] M with noise.
            noise: the standard deviation of that noise.
            size: a public number, about how many records there are.
            length: a public number, about how long most records' features are.
        """
        mean = total / size
        square = float(mean @ mean)
        # The noise adds to the square; where it explains all of it, the centre is 0.
        true_square = max(0.0, square - len(mean) * (noise / size) ** 2)
        remaining_square = max(length**2 - true_square, length**2 / 20)
        shrinkage = true_square / square if square else 0.0
        return cls(mean * shrinkage, math.sqrt((1 - BIAS**2) / remaining_square))

    def shifted_rows(self, v: np.ndarray) -> np.ndarray:
        """Return u [n, w + 1] of features [n, w], each row from its own features alone."""
        moved = self.scale * (v - self.mean)
        with_bias = np.concatenate([moved, np.full((len(v), 1), BIAS)], axis=1)
        return normalise_rows(with_bias, 1.0, _BELOW_ONE)

    def carry_back(self, weight: np.ndarray, bias: float) -> np.ndarray:
        """Return weights on features whose argmax is that of weights on u.

        Args:
            weight: [C, w + 1] weights on u.
            bias: the last coordinate of every record's features.

        Returns:
            [C, w + 1] weights on (features, bias).
        """
        # Lemma 5 of docs/proofs/statistics.md
        slopes = weight[:, :-1] * self.scale
        constant = (weight[:, -1] * BIAS - slopes @ self.mean) / bias
        return np.concatenate([slopes, constant[:, None]], axis=1)


@dataclass(frozen=True, eq=False)
class Statistics:
    """The sums that weights are solved from.

    Attributes:
        gram: [d, d] G, symmetric, float64.
        sums: [d, C] S, float64.
    """

    gram: np.ndarray
    sums: np.ndarray

    @classmethod
    def from_blocks(
        cls, blocks: Iterable[np.ndarray], labels: np.ndarray, classes: int
    ) -> "Statistics":
        """Return the exact sums over records.

        Args:
            blocks: the records' u, block after block, [., d] with rows of length at most 1.
            labels: [n] all records' labels, in the same order.
            classes: C.
        """
        # Lemma 1 of docs/proofs/statistics.md: no rounding, in any order
        gram = np.zeros(())
        sums = np.zeros(())
        start = 0
        for block in blocks:
            q = round_towards_zero(block)
            one_hot = np.eye(classes)[labels[start : start + len(block)]]
            gram = gram + q.T @ q
            sums = sums + q.T @ one_hot
            start += len(block)
        return cls(gram, sums)

    def noisy(self, noises: SumNoiseScales, add_noise: AddNoise) -> "Statistics":
        """Return both sums with noise, which may be published if the noise is exact.

        Args:
            noises: the standard deviations.
            add_noise: (values, sigma) -> the values with independent noise.
        """
        above_diagonal = np.triu_indices(len(self.gram), 1)
        off_diagonal_noise = noises.gram * math.sqrt(0.5) * (1 + 4 * UNIT)
        gram = np.diag(add_noise(np.diag(self.gram), noises.gram))
        gram[above_diagonal] = add_noise(self.gram[above_diagonal], off_diagonal_noise)
        # Drawn once: the numbers below the diagonal are those above it.
        gram.T[above_diagonal] = gram[above_diagonal]
        return Statistics(gram, add_noise(self.sums, noises.sums))

    def solve(self, noises: SumNoiseScales) -> np.ndarray:
        """Return [C, d] the weights of ridge regression on sums that were published."""
        values, vectors = np.linalg.eigh(self.gram)
        ridge = RIDGE_STRENGTH * noises.gram * math.sqrt(len(values))
        values = np.maximum(values, 0) + ridge
        return (vectors @ ((vectors.T @ self.sums) / values[:, None])).T

    def link_slope(self, noises: SumNoiseScales) -> float:
        """Return the slope of the public link from scores to probabilities.

        It is computed from sums that were published, so it spends nothing more.
        """
        values, vectors = np.linalg.eigh(self.gram)
        positive_gram = (vectors * np.maximum(values, 0)) @ vectors.T
        positive = Statistics(positive_gram, self.sums)

        def draw_again(rng: np.random.Generator) -> ReleasedSums:
            return positive.noisy(noises, _noise_of_doubles(rng.standard_normal))._with_weight(
                noises
            )

        return link_slope(self._with_weight(noises), positive.gram, BIAS, draw_again)

    def _with_weight(self, noises: SumNoiseScales) -> ReleasedSums:
        """Return the sums with the weights that are solved from them."""
        return ReleasedSums(self.gram, self.sums, self.solve(noises))


@dataclass(frozen=True, eq=False)
class RecordSums:
    """Records, and their sums: private.

    Attributes:
        narrow: features [n, d] -> v [n, w] float64.
        phi: [n, d] the records' features.
        labels: [n] their labels.
        classes: C.
    """

    narrow: Callable[[np.ndarray], np.ndarray]
    phi: np.ndarray
    labels: np.ndarray
    classes: int

    @property
    def total(self) -> np.ndarray:
        """M [w], without noise."""
        # Each v is at most as long as 1: Lemma 2 of docs/proofs/statistics.md.
        sums = [
            round_towards_zero(normalise_rows(v, 1.0, _BELOW_ONE)).sum(axis=0)
            for v in self._narrowed_blocks()
        ]
        return np.sum(sums, axis=0)

    def statistics(self, centre: ReleasedCentre) -> Statistics:
        """Return G and S, without noise, of features around a centre."""
        rows = map(centre.shifted_rows, self._narrowed_blocks())
        return Statistics.from_blocks(rows, self.labels, self.classes)

    def _narrowed_blocks(self) -> Iterator[np.ndarray]:
        """Yield v of the records, block after block."""
        for start in range(0, len(self.labels), _BLOCK_RECORDS):
            yield self.narrow(self.phi[start : start + _BLOCK_RECORDS])


def round_towards_zero(features: np.ndarray) -> np.ndarray:
    """Return features as float64 multiples of 2^-14; no coordinate, so no row, gets longer."""
    scaled = np.ldexp(features.astype(np.float64), _GRAIN_BITS)
    return np.ldexp(np.trunc(scaled), -_GRAIN_BITS)


def sum_sensitivities(relation: RelationConfig) -> tuple[float, float, float]:
    """Return how far one k moves M, G and S, in Frobenius norm.

    Raises:
        ConfigError: nothing is proved for the relation.
    """
    if not RELATIONS[relation.name].sums_proved:
        raise ConfigError(
            Message(
                "mechanism={name}: how much one person changes the sums is only proved under "
                "relation=add_remove and substitute, not {relation_name}: train with one of "
                "these, or use {config:mechanism=release_weights}",
                name=NoisyStatistics.name,
                relation_name=relation.name,
            )
        )
    # Lemma 2 of docs/proofs/statistics.md for add_remove (one unit changes), Lemma 3 of
    # docs/proofs/statistics.md for substitute (two units change)
    rows = relation.unit_rows
    moved = RELATIONS[relation.name].units_changed_per_k
    return rows * moved, rows * math.sqrt(moved), rows * moved


@schema
class NoisyStatistics(GaussianWeights):
    """Weights that are solved from the records' sums with noise; any number of classes.

    Attributes:
        mu: of the one release.
        width: to how many features more of them are brought down, by public random directions;
            None: to 400 where there are more than 800.
        seed: of those directions; public.

    Formal guarantees
        - The release is mu-GDP under add_remove and substitute (docs/proofs/statistics.md); other
          relations are refused.
        - Labels and probabilities that are computed from the weights spend nothing more.
    """

    width: Annotated[int, Field(ge=2, le=MAX_WIDTH)] | None = None
    seed: Annotated[int, Field(ge=0)] = 0

    name: ClassVar[str] = "noisy_statistics"
    reads_records: ClassVar[bool] = True
    accuracy_method: ClassVar[AccuracyMethod] = AccuracyMethod("simulated", draws=8)

    @classmethod
    def check_head(cls, head: LinearModel) -> None:
        """Raise ConfigError where no proof covers a release from this head.

        It is raised, too, where the records are not there.
        """
        head.settings.certificate.check_solved_anew(cls.name)
        max_records = head.plan.n_max * head.plan.count
        if max_records > _MAX_RECORDS:
            raise ConfigError(
                f"mechanism={cls.name}: sums are only exact over at most {_MAX_RECORDS:,} "
                f"records, but this run allows {max_records:,}: declare a smaller size"
            )
        if not head.features.config.bias:
            raise ConfigError(
                Message(
                    "mechanism={name} shifts the features, which needs a constant feature for "
                    "the bias: set {config:certificate.features.bias} above 0",
                    name=cls.name,
                )
            )
        # Called because it raises for relations without a proof ...
        sum_sensitivities(head.settings.relation)
        # ... and because it raises where the records are not there.
        cls.training_rows(head, head.settings.relation.unit_rows)

    def noises(self, head: LinearModel) -> SumNoiseScales:
        """Return the standard deviations of what a release from this head draws.

        Raises:
            ConfigError: nothing is proved for the relation.
        """
        sensitivities = sum_sensitivities(head.settings.relation)
        return SumNoiseScales.from_sensitivities(sensitivities, self.mu)

    def noise(self, head: LinearModel) -> dict[str, float]:
        """Return the noise by name: ``sigma`` and ``step`` of S, and ``gram`` of G.

        Raises:
            ConfigError: nothing is proved for the relation.
        """
        noises = self.noises(head)
        return {"sigma": noises.sums, "step": step_of(noises.sums), "gram": noises.gram}

    def records(self, head: LinearModel) -> RecordSums:
        """Return a head's records, to be summed up: private.

        Raises:
            ConfigError: the records are not there, or too many, in all or of one unit.
            DataError: memory-mapped records were edited after training.
        """
        rows = self.training_rows(head, head.settings.relation.unit_rows)
        records = head.problem.dataset.train.take(rows)
        return RecordSums(
            partial(self._narrow, head),
            head.over(records.features),
            records.labels,
            head.problem.classes,
        )

    def centre(self, head: LinearModel, total: np.ndarray) -> ReleasedCentre:
        """Return the centre of features, which may be published.

        Args:
            head: whose features are meant.
            total: [w] M with noise.
        """
        size = head.plan.normalizer * head.plan.count
        rng = np.random.default_rng(self.seed)
        inputs = rng.standard_normal((_PUBLIC_INPUTS, head.features.width))
        squared_lengths = np.square(self._narrow(head, head.phi(inputs))).sum(axis=1)
        length = float(np.sqrt(np.mean(squared_lengths)))
        return ReleasedCentre.from_total(total, self.noises(head).mean, size, length or 1.0)

    def draw(self, head: LinearModel, source: Randomness) -> ReleasedWeights:
        """Release weights, which spends ``guarantee`` once.

        Args:
            head: one that ``check`` takes.
            source: SystemRandomness for a release; anything else is a simulation.

        Raises:
            ConfigError: ``records`` says when.
        """
        noises = self.noises(head)
        add_noise = partial(noisy, source=source)
        records = self.records(head)
        centre = self.centre(head, add_noise(records.total, noises.mean))
        released = records.statistics(centre).noisy(noises, add_noise)
        weight = self.carry_back(head, centre, released.solve(noises))
        step = step_of(noises.sums)
        on_lattice = np.rint(weight / step) * step
        link = partial(released.link_slope, noises)
        return ReleasedWeights(
            on_lattice, self.guarantee, self.noise(head), source.simulated, self.name, link
        )

    @classmethod
    def expectation(
        cls,
        head: LinearModel,
        features: np.ndarray,
        labels: np.ndarray,
    ) -> Callable[[Self], float]:
        """Return the function that gives a mechanism's expected accuracy.

        It is the mean of simulated releases, which draw doubles from a fixed seed.

        Args:
            head: one that ``check_head`` takes.
            features: [n, ...] queries, as the head takes them.
            labels: [n] their true labels.
        """
        phi = head.phi(features)
        # No mu changes the records, so they are read once for each width and seed.
        records_of = cache(lambda width, seed: cls(mu=1.0, width=width, seed=seed).records(head))
        draws = cls.accuracy_method.draws

        @cache
        def accuracy(mechanism: Self) -> float:
            noises = mechanism.noises(head)
            add_noise = _noise_of_doubles(np.random.default_rng(0).standard_normal)
            records = records_of(mechanism.width, mechanism.seed)
            # One centre for all draws: the sums around it take time.
            centre = mechanism.centre(head, add_noise(records.total, noises.mean))
            exact = records.statistics(centre)
            summed_accuracy = 0.0
            for _ in range(draws):
                solved = exact.noisy(noises, add_noise).solve(noises)
                weight = mechanism.carry_back(head, centre, solved)
                summed_accuracy += float((labels_of(phi @ weight.T) == labels).mean())
            return summed_accuracy / draws

        return accuracy

    def carry_back(
        self, head: LinearModel, centre: ReleasedCentre, weight: np.ndarray
    ) -> np.ndarray:
        """Return [C, d] weights on the head's features, from weights [C, w + 1] on u."""
        narrow_weight = centre.carry_back(weight, self._bias(head))
        directions = self._directions(head)
        if directions is None:
            return narrow_weight
        slopes = narrow_weight[:, :-1] @ directions.T / _mean_stretch(directions)
        return np.concatenate([slopes, narrow_weight[:, -1:]], axis=1)

    def _narrow(self, head: LinearModel, phi: np.ndarray) -> np.ndarray:
        """Return v [n, w] of features [n, d]: without the bias, and brought down if wide."""
        v = np.ascontiguousarray(phi[:, :-1], dtype=np.float64)
        directions = self._directions(head)
        if directions is None:
            return v
        return exact_product(v, directions) / _mean_stretch(directions)

    def _bias(self, head: LinearModel) -> float:
        """Return the last coordinate of every record's features."""
        return float(head.phi(np.zeros((1, head.features.width)))[0, -1])

    def _directions(self, head: LinearModel) -> np.ndarray | None:
        """Return [d - 1, width - 1] integers that features but the bias are multiplied by.

        None: the features are few enough as they are.
        """
        count = head.features.outputs
        usual_width = count if count <= WIDE_FEATURES else NARROWED_FEATURES
        width = self.width or usual_width
        if count <= width:
            return None
        normals = np.random.default_rng(self.seed).standard_normal((count - 1, width - 1))
        return integer_matrix(normals)


def _mean_stretch(directions: np.ndarray) -> float:
    """Return by what factor directions make a vector longer, in the root mean square."""
    return float(np.linalg.norm(directions) / math.sqrt(len(directions)))


def _noise_of_doubles(standard_normal: Callable[[tuple[int, ...]], np.ndarray]) -> AddNoise:
    """Return a function that adds noise of doubles, for what is never published."""

    def add_noise(values: np.ndarray, sigma: float) -> np.ndarray:
        return values + sigma * standard_normal(values.shape)

    return add_noise
