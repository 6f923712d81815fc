"""Release weights for any number of classes, solved from noisy sums over the records (method.md
section 15).

    mechanism = NoisyStatistics(mu)            or NoisyStatistics.within(eps, delta)
    WeightsRelease.judged(model, mechanism, ReleaseTerms())            weights [classes, d] (agt/release.py)

With v_i the public features of a record without their bias, |v_i| <= 1, and y_i its label as one of
C unit vectors: the sum M of v_i is released first, with Gaussian noise, and says where features
lie. Of u_i = (scale (v_i - mean), .3), brought to a length of at most 1, G = sum u_i u_i^T and S =
sum u_i y_i^T are released next, and ridge regression is solved from them.

Formal guarantees
    Whole numbers. What is added up is rounded towards 0 to multiples of 1/N = 2^-14, coordinate by
    coordinate: q_i, which the record alone and what was released before decide
    (models/features.py), and |q_i| <= 1. Products are multiples of 2^-28, and sums of 2^25 of them
    are below 2^53 such: float64 holds all sums exactly, in whatever order they are added up. So
    what follows is about them, and no rounding. Lengths are Frobenius norms; r =
    relation.unit_rows.
    add_remove. A unit has at most r rows, each of which adds q to M, of length |q| <= 1, q q^T to
    G, of length |q|^2 <= 1, and q y^T to S, of length |q| <= 1: each moves by at most r.
    substitute. A unit's sums A, P give way to another's A', P'. |A - A'|^2 = |A|^2 + |A'|^2 - 2 <A,
    A'> <= 2 r^2, since <A, A'> = sum (q.q')^2 >= 0 over the pairs of a row that goes and one that
    comes. M and S move by at most 2 r, and no less: two records of one label may be opposite.
    Other relations are refused: one-sided ones as ever; of flip, M and G are not protected at all.
    Noise. N(0, m^2) on each number of M; N(0, s^2) on each coordinate of G in the orthonormal basis
    of symmetric matrices: s on the diagonal and s/sqrt 2 on each number above it, which stands
    below it too, drawn once; and N(0, t^2) on each number of S. Where M is released, G and S are
    functions of the data and of what was released. So for any one M, in units of their noise,
    neighbours are at most mu apart in all (composition of GDP, adaptive: Dong, Roth, Su 2022,
    theorem 4):
        (move of M / m)^2 + (move of G / s)^2 + (move of S / t)^2 <= mu^2.
    ``noisy`` draws exactly, on a public lattice (agt/numeric.py). Everything after is
    post-processing: the mean and scale, from the plan's public size and the length of public random
    inputs' features; eigenvalues below 0 to 0, a strength from public constants alone, a linear
    solve, rounding of the weights to the lattice of t, any number of answers.
    A record's own scale, by which u is brought to its length, is positive and multiplies all
    classes' scores alike, so that the weights of u are carried back to phi = (v, b): of those, the
    argmax is the same.
    Narrower. Where d is above ``width`` public random directions R (a seed, integers, exact
    products) bring it down: v is R^T v, and where that is longer than 1 it is brought to 1 for M,
    as u is for G and S.

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
from agt.models.features import bring, integers, product
from agt.models.linear import LinearModel
from agt.numeric import UNIT, Randomness, labels_of, noisy, step_of
from agt.relations import RELATIONS
from agt.settings import RelationConfig, schema

# of mu^2, for M, G and S (these, and STRENGTH, were chosen on the sets of docs/releasing.md)
SHARES = (0.05, 0.3, 0.65)
BIAS = 0.3  # the last coordinate of u, before it is brought to its length
# of the ridge, times s sqrt d; the largest eigenvalue of the noise on G is near sqrt 2 s sqrt d
STRENGTH = 0.5
WIDEST = 2048  # that sums can be kept of
# features that are brought down: exact noise takes some 50 microseconds for each of d^2 / 2 numbers
WIDE = 800
NARROW = 400  # what they are brought down to
_BLOCK = 4096
_TRIED = 64  # public random inputs
_GRAIN = 14  # features are multiples of 2^-14 where sums are taken
_ROWS = 2**25  # records whose sums float64 holds
_SHORTER = 1 - 2.0**-30  # of a length brought to 1: more than the roundings on the way


@dataclass(frozen=True)
class SumNoises:
    """Standard deviations of what one release draws, all of it public.

    Attributes:
        mean: m, of each number of M.
        gram: s, of G's diagonal; s/sqrt 2 of what is off it.
        sums: t, of each number of S.
    """

    mean: float
    gram: float
    sums: float

    @classmethod
    def of(cls, moves: tuple[float, float, float], mu: float) -> "SumNoises":
        """The least noises for sums that move by so much (``sensitivities``), rounded up."""
        up = 1 + 16 * UNIT  # a few roundings here, and that of mu's decimal
        return cls(
            *(
                move / (mu * math.sqrt(share)) * up
                for move, share in zip(moves, SHARES, strict=True)
            )
        )


@dataclass(frozen=True, eq=False)
class Centre:
    """Where features lie, from what was released: public.

    Attributes:
        mean: [w] of them.
        scale: what brings what is left of them to a length near 1.
    """

    mean: np.ndarray
    scale: float

    @classmethod
    def of(cls, total: np.ndarray, noise: float, size: float, length: float) -> "Centre":
        """From M [w] as released.

        Args:
            noise: its standard deviation.
            size: public, about how many records there are.
            length: of most records' features.
        """
        mean = total / size
        square = float(mean @ mean)
        known = max(0.0, square - len(mean) * (noise / size) ** 2)  # less what noise adds to it
        left = max(length**2 - known, length**2 / 20)
        return cls(mean * (known / square if square else 0.0), math.sqrt((1 - BIAS**2) / left))

    def rows(self, v: np.ndarray) -> np.ndarray:
        """u [n, w + 1] of features [n, w], each from its own row."""
        moved = self.scale * (v - self.mean)
        return bring(np.concatenate([moved, np.full((len(v), 1), BIAS)], axis=1), 1.0, _SHORTER)

    def carried(self, weight: np.ndarray, bias: float) -> np.ndarray:
        """[C, w + 1] weights on (features, ``bias``), of those on u."""
        slopes = weight[:, :-1] * self.scale
        constant = (weight[:, -1] * BIAS - slopes @ self.mean) / bias
        return np.concatenate([slopes, constant[:, None]], axis=1)


@dataclass(frozen=True)
class Statistics:
    """G [d, d], symmetric, and S [d, C], float64."""

    gram: np.ndarray
    sums: np.ndarray

    @classmethod
    def of(cls, blocks: Iterable[np.ndarray], labels: np.ndarray, classes: int) -> "Statistics":
        """Of records' u [n, d], block after block, each of norm at most 1, and labels [n]: exact
        sums (above).
        """
        gram, sums, start = np.zeros(()), np.zeros(()), 0
        for block in blocks:
            q, here = whole(block), np.eye(classes)[labels[start : start + len(block)]]
            gram, sums, start = gram + q.T @ q, sums + q.T @ here, start + len(block)
        return cls(gram, sums)

    def noisy(
        self, noises: SumNoises, draw: Callable[[np.ndarray, float], np.ndarray]
    ) -> "Statistics":
        """Both with noise, which may be published.

        Args:
            draw: (values, sigma) -> the values with independent noise.
        """
        off = np.triu_indices(len(self.gram), 1)
        gram = np.diag(draw(np.diag(self.gram), noises.gram))
        gram[off] = draw(self.gram[off], noises.gram * math.sqrt(0.5) * (1 + 4 * UNIT))
        gram.T[off] = gram[off]
        return Statistics(gram, draw(self.sums, noises.sums))

    def solved(self, noises: SumNoises) -> np.ndarray:
        """[C, d] the weights of ridge regression on what was published."""
        values, vectors = np.linalg.eigh(self.gram)
        values = np.maximum(values, 0) + STRENGTH * noises.gram * math.sqrt(len(values))
        return (vectors @ ((vectors.T @ self.sums) / values[:, None])).T

    def link_slope(self, noises: SumNoises) -> float:
        """Return the slope of the public link from scores to probabilities, of sums that were
        published.
        """

        def again(rng: np.random.Generator) -> ReleasedSums:
            def draw(values: np.ndarray, sigma: float) -> np.ndarray:
                return values + sigma * rng.standard_normal(values.shape)

            return positive.noisy(noises, draw)._with_weight(noises)

        values, vectors = np.linalg.eigh(self.gram)
        positive = Statistics((vectors * np.maximum(values, 0)) @ vectors.T, self.sums)
        return link_slope(self._with_weight(noises), positive.gram, BIAS, again)

    def _with_weight(self, noises: SumNoises) -> ReleasedSums:
        return ReleasedSums(self.gram, self.sums, self.solved(noises))


@dataclass(frozen=True, eq=False)
class RecordSums:
    """Records, and their sums: private.

    Attributes:
        narrowed: features [n, d] -> v [n, w] float64.
        phi: [n, d] the features.
        labels: [n].
        classes: C.
    """

    narrowed: Callable[[np.ndarray], np.ndarray]
    phi: np.ndarray
    labels: np.ndarray
    classes: int

    @property
    def _blocks(self) -> Iterator[np.ndarray]:
        return (
            self.narrowed(self.phi[start : start + _BLOCK])
            for start in range(0, len(self.labels), _BLOCK)
        )

    @property
    def total(self) -> np.ndarray:
        """M [w]."""
        return np.sum([whole(bring(v, 1.0, _SHORTER)).sum(axis=0) for v in self._blocks], axis=0)

    def statistics(self, centre: Centre) -> Statistics:
        """G and S of what is left around the centre."""
        return Statistics.of(map(centre.rows, self._blocks), self.labels, self.classes)


def whole(phi: np.ndarray) -> np.ndarray:
    """[n, d] float64: features rounded towards 0, so that no row gets longer."""
    return np.ldexp(np.trunc(np.ldexp(phi.astype(np.float64), _GRAIN)), -_GRAIN)


def sensitivities(relation: RelationConfig) -> tuple[float, float, float]:
    """How far one k moves (M, G, S).

    Raises:
        ConfigError: a relation that nothing is proved for.
    """
    rows = relation.unit_rows
    if not RELATIONS[relation.name].sums_proved:
        raise ConfigError(
            Message(
                "mechanism={name}: relation={relation_name}: what it moves sums by is proved for "
                "add_remove and substitute; or use {config:mechanism=release_weights}",
                name=NoisyStatistics.name,
                relation_name=relation.name,
            )
        )
    moved = RELATIONS[relation.name].moved
    return rows * moved, rows * math.sqrt(moved), rows * moved


@schema
class NoisyStatistics(GaussianWeights):
    """Weights that are solved for from the records' sums with noise; any number of classes.

    Attributes:
        width: features beyond it are brought down to so many by public random directions; null: to
            ``NARROW``, where they are more than ``WIDE``.
        seed: public, of those directions.
    """

    width: Annotated[int, Field(ge=2, le=WIDEST)] | None = None
    seed: Annotated[int, Field(ge=0)] = 0

    name: ClassVar[str] = "noisy_statistics"
    reads_records: ClassVar[bool] = True
    accuracy_method: ClassVar[AccuracyMethod] = AccuracyMethod("simulated", draws=8)

    @classmethod
    def check_head(cls, head: LinearModel) -> None:
        """Raise ConfigError where no proof covers a release from this head, or its records are
        not there.
        """
        most = head.plan.n_max * head.plan.count
        head.settings.certificate.check_solved_anew(cls.name)
        if most > _ROWS:
            raise ConfigError(
                f"mechanism={cls.name}: sums are exact over at most {_ROWS:,} records, and there "
                f"may be {most:,}"
            )
        if not head.features.config.bias:
            raise ConfigError(
                Message(
                    "mechanism={name} shifts features, which takes a bias: raise "
                    "{config:certificate.features.bias}",
                    name=cls.name,
                )
            )
        # called because it raises for relations without a proof
        sensitivities(head.settings.relation)
        # ... and where the records are not there
        cls.training_rows(head, head.settings.relation.unit_rows)

    def noises(self, head: LinearModel) -> SumNoises:
        """What a release draws. Raises ConfigError as ``sensitivities``."""
        return SumNoises.of(sensitivities(head.settings.relation), self.mu)

    def noise(self, head: LinearModel) -> dict[str, float]:
        """The noise on S, and ``gram``, that on G. Raises ConfigError as ``sensitivities``."""
        noises = self.noises(head)
        return {"sigma": noises.sums, "step": step_of(noises.sums), "gram": noises.gram}

    def records(self, head: LinearModel) -> "RecordSums":
        """A head's records, to be summed up: private. Raises as ``training_rows``."""
        seen = head.problem.dataset.train.take(
            self.training_rows(head, head.settings.relation.unit_rows)
        )
        return RecordSums(
            partial(self._narrowed, head),
            head.over(seen.features),
            seen.labels,
            head.problem.classes,
        )

    def centre(self, head: LinearModel, total: np.ndarray) -> Centre:
        """From M with noise: it may be published."""
        size = head.plan.normalizer * head.plan.count
        inputs = np.random.default_rng(self.seed).standard_normal((_TRIED, head.features.width))
        length = float(
            np.sqrt(np.mean(np.square(self._narrowed(head, head.phi(inputs))).sum(axis=1)))
        )
        return Centre.of(total, self.noises(head).mean, size, length or 1.0)

    def draw(self, head: LinearModel, source: Randomness) -> ReleasedWeights:
        """The release."""
        noises, draw = self.noises(head), partial(noisy, source=source)
        records = self.records(head)
        centre = self.centre(head, draw(records.total, noises.mean))
        released = records.statistics(centre).noisy(noises, draw)
        weight = self.carried(head, centre, released.solved(noises))
        step = step_of(noises.sums)
        weight = np.rint(weight / step) * step
        link = partial(released.link_slope, noises)
        return ReleasedWeights(
            weight, self.guarantee, self.noise(head), source.simulated, self.name, link
        )

    @classmethod
    def expectation(
        cls,
        head: LinearModel,
        features: np.ndarray,
        labels: np.ndarray,
    ) -> Callable[[Self], float]:
        """The mean of simulated releases, which draw from a generator of doubles."""
        phi = head.phi(features)
        records = cache(lambda width, seed: cls(mu=1.0, width=width, seed=seed).records(head))

        @cache
        def accuracy(mechanism: Self) -> float:
            noises = mechanism.noises(head)
            normal = np.random.default_rng(0).standard_normal

            def draw(values: np.ndarray, sigma: float) -> np.ndarray:
                return values + sigma * normal(values.shape)

            sums = records(mechanism.width, mechanism.seed)  # which no mu changes
            # One centre for all draws: the sums around it take time.
            centre = mechanism.centre(head, draw(sums.total, noises.mean))
            known = sums.statistics(centre)
            right = 0.0
            for _ in range(cls.accuracy_method.draws):
                weight = mechanism.carried(head, centre, known.noisy(noises, draw).solved(noises))
                right += float((labels_of(phi @ weight.T) == labels).mean())
            return right / cls.accuracy_method.draws

        return accuracy

    def carried(self, head: LinearModel, centre: Centre, weight: np.ndarray) -> np.ndarray:
        """[C, d] weights on phi, of those on u."""
        directions, weight = self._directions(head), centre.carried(weight, self._bias(head))
        if directions is None:
            return weight
        return np.concatenate(
            [weight[:, :-1] @ directions.T / _length(directions), weight[:, -1:]], axis=1
        )

    def _narrowed(self, head: LinearModel, phi: np.ndarray) -> np.ndarray:
        """v [n, w] of features [n, d]."""
        directions, v = self._directions(head), np.ascontiguousarray(phi[:, :-1], dtype=np.float64)
        return v if directions is None else product(v, directions) / _length(directions)

    def _bias(self, head: LinearModel) -> float:
        """The last coordinate of every record's features."""
        return float(head.phi(np.zeros((1, head.features.width)))[0, -1])

    def _directions(self, head: LinearModel) -> np.ndarray | None:
        """[d - 1, width - 1] integers that features but the bias are multiplied by; None: they
        are few enough.
        """
        wide = head.features.outputs
        width = self.width or (wide if wide <= WIDE else NARROW)
        if wide <= width:
            return None
        return integers(np.random.default_rng(self.seed).standard_normal((wide - 1, width - 1)))


def _length(directions: np.ndarray) -> float:
    """What a vector becomes longer by, in the mean over directions of the same kind."""
    return float(np.linalg.norm(directions) / math.sqrt(len(directions)))
