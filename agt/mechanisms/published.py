"""The mechanisms of the papers and of the literature on smooth sensitivity, for two classes.

Each docstring proves the guarantee of the closed form for 1-Lipschitz distances. The tables that are sampled from hold the
guarantee by construction, whatever the closed form (mechanism.py).

The exponential mechanism on labels, with two scores, as comparisons (002; Asi and Duchi 2020). Any number of classes.

P(y) is proportional to exp(eps score(y) / 2) for a score that one record changes by at most 1, hence eps-DP (002).

A certificate of many queries that may be published: K_q, up to which distance a fraction q of them is certified.

Formal guarantees
    K_q = max{k : at least a fraction q of the queries has L >= k} is an order statistic of the L, each of which moves by at
    most 1 between neighbours, and so does K_q; the queries themselves must not depend on the private data. K_q + Z with
    P(Z = z) proportional to exp(-eps |z|) is eps-DP (the geometric mechanism), and clamping to [0, m] is post-processing:
    m is public, and no distance of the model exceeds it (``Model.farthest``).
    Z is drawn exactly, in integers, by the algorithm of Canonne, Kamath and Steinke 2020 (Algorithm 2).

What a mechanism really gives away: its exact privacy loss on a grid.

Smooth sensitivity with distances read off a sparse grid (001 Corollary 5.2) is not eps-DP: a neighbour may drop by a whole
gap of the grid, and with it the noise. Even where nesting holds, and so only the index in the grid moves by at most 1, the
loss of one query at eps = 1 on the grid {0, 50} is 6.25 (method.md section 3).

Every per-query mechanism by name: those that these modules define, then those of any other module that was imported.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import Annotated, ClassVar, Self

import numpy as np
from pydantic import Field
from scipy.special import ndtr

from agt.errors import ConfigError
from agt.mechanisms import optimal, published  # noqa: F401  # tables list them in this order
from agt.mechanisms.composition import ApproximateDP, GaussianDP, PureDP
from agt.mechanisms.mechanism import REGISTERED, Delta, Epsilon, Mechanism, Mu, Need, ThresholdTable, rule_of
from agt.numeric import UNIT, Draw, Randomness, answered, noisy, written
from agt.settings import keyword_schema, schema


@keyword_schema
class _Pure(Mechanism):
    eps: Epsilon


@keyword_schema
class _Approximate(Mechanism):
    eps: Epsilon
    delta: Delta

    spends: ClassVar[type[ApproximateDP]] = ApproximateDP


@keyword_schema
class SmoothCauchy(_Pure):
    """The label plus Cauchy noise of scale 6 S/eps, S = exp(-beta L), beta = eps/6, rounded (001 Corollary 5.2).

    p(L) = 1/2 - atan(eps exp(beta L)/12)/pi = atan(12 exp(-beta L)/eps)/pi. For 1-Lipschitz L it is eps-DP (Nissim,
    Raskhodnikova, Smith 2007); directly: atan(y)/y falls, so p(L) <= exp(beta) p(L+1). For L from a grid with gaps it is
    not: ``true_loss`` computes the true loss.
    """

    name: ClassVar[str] = "smooth_cauchy"

    def _flip(self, distance: np.ndarray) -> np.ndarray:
        return np.arctan(12 / self.eps * np.exp(-self.eps / 6 * distance)) / math.pi


@keyword_schema
class SmoothLaplace(_Approximate):
    """The label plus Laplace noise of scale 2 S/eps, S = exp(-beta L), beta = eps/(2 ln(2/delta)), rounded.

    p(L) = exp(-eps exp(beta L)/4)/2. The published proof (Nissim, Raskhodnikova, Smith 2007) loses a factor on delta that
    matters at large eps, so here is one for a label, with M = ln(2/delta), a = eps exp(beta L)/4 and beta <= 1.25:
    p(L) <= exp(eps) p(L+1) + delta is clear if p(L) <= delta; otherwise a < ln(1/(2 delta)) < M, and a (exp(beta) - 1)
    <= M * 2 beta = eps, because exp(beta) - 1 <= 2 beta there; so p(L) <= exp(eps) p(L+1). Where the label differs:
    exp(eps) p(0) + p(0) = (exp(3x) + exp(-x))/2 >= 1 with x = eps/4. The events of the nominal label follow as p <= 1/2.

    Raises:
        ConfigError: beta > 1.25, where the guarantee is not proved (and fails from beta = 1.61 on).
    """

    name: ClassVar[str] = "smooth_laplace"

    def __post_init__(self) -> None:
        super().__post_init__()
        most = 2.5 * math.log(2 / self.delta)
        if self.eps > most:
            raise ConfigError(
                f"mechanism.eps: smooth_laplace is proved for eps <= 2.5 ln(2/delta) = {most:.4g} at delta = "
                f"{self.delta:g}, got {self.eps:g}: lower eps, or use mechanism=randomized_response"
            )

    @property
    def _beta(self) -> float:
        return self.eps / (2 * math.log(2 / self.delta))

    def _flip(self, distance: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore", under="ignore"):  # exp(-inf) = 0 is what is meant; the table's floor follows
            return np.exp(-self.eps / 4 * np.exp(self._beta * distance)) / 2


@keyword_schema
class ProposeTestRelease(_Approximate):
    """The exact label if L + Lap(1/eps) > t = ln(1/(2 delta))/eps, else a fair coin (Dwork, Lei 2009).

    p(L) = P(Lap(1/eps) <= t - L)/2: half of the coins show the nominal label. Where labels agree the output is a
    post-processing of the eps-DP L + Lap(1/eps). Where they differ L = 0 on both sides: the exact label comes out with
    probability delta, everything else is the same coin.
    """

    name: ClassVar[str] = "propose_test_release"

    def _flip(self, distance: np.ndarray) -> np.ndarray:
        u = -math.log(2 * self.delta) - self.eps * distance
        with np.errstate(over="ignore", under="ignore"):
            return np.where(u < 0, np.exp(np.minimum(u, 0)) / 2, 1 - np.exp(-np.maximum(u, 0)) / 2) / 2


@keyword_schema
class GlobalSensitivity(_Pure):
    """The label 0 or 1 plus Laplace noise of scale 1/eps, rounded (001 section 3.2): p = exp(-eps/2)/2 at every distance.

    eps-DP as post-processing of the Laplace mechanism with sensitivity 1. It uses no certificate.
    """

    name: ClassVar[str] = "global_sensitivity"
    needs: ClassVar[Need] = "nothing"

    def _flip(self, distance: np.ndarray) -> np.ndarray:
        return np.full_like(distance, math.exp(-self.eps / 2) / 2)


@keyword_schema
class _NoisyVotes(Mechanism):
    """The class of most votes, each count with noise of its own, ties to the smaller class. Needs an ensemble.

    The evidence is what ``VoteCertificates.tally`` has: |n1 - n0| [n] of two classes, the nominal label being 1 if n1 > n0,
    else 0; of more, the counts [n, C].

    Attributes:
        moves: m, how many members' votes one k can change, at least; the run's relation raises it (``covering``).

    Formal guarantees
        A record is in one shard, so an edit of one record changes one vote; a relation says how many members one k can
        change (``Relation.touches``), m at most.
        Two classes. n1 - n0 moves by up to m steps of 2 between neighbours and keeps its parity (the number of members is
        public). For each parity |n1 - n0| // 2 is a distance in the sense of mechanism.py, with a table of its own of m
        steps; for an even number of members the label differs between n1 - n0 = 0 and 2 rather than across 0, and
        p(0) = 1/2 makes that a step of the table like any other. Where m steps are taken, any vote counts on the way do.
        More. A changed vote adds e_b - e_a to the counts, of length 2 in l1 and sqrt 2 in l2; m of them at most 2 m and
        m sqrt 2. Whatever is computed from noisy counts alone, such as the class of the greatest, has their guarantee.
    """

    moves: Annotated[int, Field(ge=1, le=2)] = 1

    needs: ClassVar[Need] = "votes"
    any_classes: ClassVar[bool] = True

    def covering(self, touches: int) -> Self:
        """With as much noise as covers so many votes."""
        return replace(self, moves=max(self.moves, touches))

    def _noisy(self, counts: np.ndarray, source: Randomness) -> np.ndarray:
        """Counts of any shape with noise."""
        raise NotImplementedError

    def _below(self, z: np.ndarray, strictly: np.ndarray) -> np.ndarray:
        """P(Z <= z), or P(Z < z), of one count's noise, z being one of its values plus an integer."""
        raise NotImplementedError

    @property
    def _nodes(self) -> tuple[np.ndarray, np.ndarray]:
        """Values of one count's noise, and their weights: a rule for expectations."""
        raise NotImplementedError

    def release(
        self, predictions: np.ndarray, distances: np.ndarray, source: Randomness, farthest: int | None = None
    ) -> np.ndarray:
        """[n] int64. Arguments as of any mechanism; of more than two classes ``distances`` are the counts [n, C]."""
        if self.classes == 2:
            return super().release(predictions, distances, source, farthest)
        return self._noisy(self._counts(distances), source).argmax(axis=1)

    def expected_accuracy(self, predictions: np.ndarray, distances: np.ndarray, labels: np.ndarray) -> float:
        """Of two classes exact; of more to about 10^-3, as an integral over the noise of the right class's count."""
        if self.classes == 2:
            return super().expected_accuracy(predictions, distances, labels)
        counts, (nodes, weights), total = self._counts(distances), self._nodes, 0.0
        for start in range(0, len(counts), _PIECE):
            some, right = counts[start : start + _PIECE], labels[start : start + _PIECE, None]
            ahead = np.take_along_axis(some, right, axis=1) - some
            others = np.arange(self.classes)
            chance = self._below(ahead[:, :, None] + nodes, (others < right)[:, :, None])
            chance[(others == right)] = 1.0
            total += float((chance.prod(axis=1) @ weights).sum())
        return total / len(counts)

    def _counts(self, counts: np.ndarray) -> np.ndarray:
        shape = (len(counts), self.classes)
        if counts.dtype.kind not in "iu" or counts.shape != shape or counts.min(initial=0) < 0:
            raise ConfigError(
                f"mechanism={self.name}: expected votes for each of {self.classes} classes, integers of shape {shape}; got "
                f"{counts.dtype} of shape {counts.shape}"
            )
        return counts

    def _thresholds(self, evidence: int) -> int:
        step, odd = divmod(evidence, 2)
        return self._tables[odd].upto(step)[step]

    @cached_property
    def _tables(self) -> tuple[ThresholdTable, ThresholdTable]:
        """Of even and of odd gaps."""

        def table(odd: int) -> ThresholdTable:
            return ThresholdTable(rule_of(self.guarantee, 2, self.moves), lambda j: self._wish(2 * j + odd))

        return table(0), table(1)


_PIECE = 256  # queries whose expectation is taken at once
_NODES = 1024  # values of the noise at which it is


@keyword_schema
class NoisyArgmax(_NoisyVotes, _Pure):
    """Votes with Laplace noise of scale 2 m / eps on each count (PATE; 001 equation 7): eps-DP.

    Of two classes p = exp(-x)(1 + x/2)/2, x = eps |n1-n0| / (2 m): the tail of a difference of two Laplace variables. Of
    more the noise is two-sided geometric, an integer: P(z) proportional to exp(-eps |z| / (2 m)), drawn exactly. Counts
    that are 2 m apart in l1 give each noisy vector of counts with probabilities whose ratio is at most exp(eps).
    """

    name: ClassVar[str] = "noisy_argmax"

    def _flip(self, distance: np.ndarray) -> np.ndarray:
        x = self.eps / (2 * self.moves) * distance
        return np.exp(-x) * (1 + x / 2) / 2

    def _noisy(self, counts: np.ndarray, source: Randomness) -> np.ndarray:
        rows = counts.reshape(-1, counts.shape[-1]).tolist()
        noised = [noisy_integers(row, self.eps, source, 2 * self.moves) for row in rows]
        return np.array(noised, dtype=np.int64).reshape(counts.shape)

    def _below(self, z: np.ndarray, strictly: np.ndarray) -> np.ndarray:
        z, rate = z - strictly, self.eps / (2 * self.moves)
        tail = np.exp(-rate * np.where(z < 0, -z, z + 1)) / (1 + math.exp(-rate))
        return np.where(z < 0, tail, 1 - tail)

    @property
    def _nodes(self) -> tuple[np.ndarray, np.ndarray]:
        rate = self.eps / (2 * self.moves)
        if 2 * _EDGE / rate < _NODES:  # every value that is likelier than exp(-EDGE)
            z = np.arange(-math.ceil(_EDGE / rate), math.ceil(_EDGE / rate) + 1)
            return z, np.exp(-rate * abs(z)) * math.tanh(rate / 2)
        side = -np.log((np.arange(_NODES // 2) + 0.5) * 2 / _NODES) / rate  # equally likely values
        return np.rint(np.concatenate([-side, side])), np.full(_NODES, 1 / _NODES)


_EDGE = 40.0  # in units of the noise: beyond it lies less than 10^-17


@keyword_schema
class GaussianArgmax(_NoisyVotes):
    """Votes with Gaussian noise of standard deviation m sqrt(2) / mu on each count: mu-GDP, which adds up without loss.

    Of two classes p = Phi(-mu |n1-n0| / (2 m)), the tail of a difference of two of them. Of more the noise is a real
    Gaussian, drawn exactly and rounded with its count to a public lattice (numeric.py, ``noisy``). Counts m sqrt(2) apart
    in l2 are those of a test between N(0, 1) and N(mu, 1) (Dong, Roth and Su 2022, theorem 2); the standard deviation is
    rounded up, and mu is the double or the decimal that it prints as, whichever is less.
    """

    mu: Mu

    name: ClassVar[str] = "gaussian_argmax"
    spends: ClassVar[type[GaussianDP]] = GaussianDP

    def _flip(self, distance: np.ndarray) -> np.ndarray:
        return ndtr(-self.mu / (2 * self.moves) * distance)

    @property
    def _sigma(self) -> float:
        return self.moves * math.sqrt(2) / self.mu * (1 + 8 * UNIT)  # four roundings, and the decimal's

    def _noisy(self, counts: np.ndarray, source: Randomness) -> np.ndarray:
        return noisy(counts.astype(np.float64), self._sigma, source)

    def _below(self, z: np.ndarray, strictly: np.ndarray) -> np.ndarray:
        return ndtr(z / self._sigma)

    @property
    def _nodes(self) -> tuple[np.ndarray, np.ndarray]:
        x = np.linspace(-9, 9, 181)
        weights = np.exp(-x * x / 2)
        return x * self._sigma, weights / weights.sum()


@keyword_schema
class ExponentialMechanism(_Pure):
    """The exponential mechanism with the score 1 for the model's label and 0 for the others; it uses no certificate.

    p = (C-1) / (C-1 + exp(eps/2)).
    """

    name: ClassVar[str] = "exponential_mechanism"
    needs: ClassVar[Need] = "nothing"
    any_classes: ClassVar[bool] = True

    def _flip(self, distance: np.ndarray) -> np.ndarray:
        return _softmax(self.classes, np.full_like(distance, self.eps / 2))


@keyword_schema
class InverseSensitivity(_Pure):
    """Inverse sensitivity: a label's score is minus the number of records that must change before it is the answer.

    0 for the nominal label; for the others the certified -(L + 1), which one record changes by at most 1, as it does the
    score of a label that stops being the answer (0 to -1, L = 0 on both sides). p = (C-1) / (C-1 + exp(eps (L+1)/2)).
    """

    name: ClassVar[str] = "inverse_sensitivity"
    any_classes: ClassVar[bool] = True

    def _flip(self, distance: np.ndarray) -> np.ndarray:
        return _softmax(self.classes, self.eps / 2 * (distance + 1))


def _softmax(classes: int, advantage: np.ndarray) -> np.ndarray:
    """(C-1) / (C-1 + exp(advantage)), without overflow."""
    with np.errstate(under="ignore"):
        others = (classes - 1) * np.exp(-advantage)
    return others / (1 + others)


@schema
class CertifiedQuantile:
    """The configuration of a release of K_q.

    Attributes:
        eps: of the one number that is released.
        fraction: q.
    """

    eps: Epsilon
    fraction: Annotated[float, Field(gt=0, le=1)] = 0.5

    name: ClassVar[str] = "certified_quantile"
    needs: ClassVar[Need] = "distance"

    @property
    def guarantee(self) -> PureDP:
        """PureDP, for the whole file of queries."""
        return PureDP(self.eps)


def certified_quantile(distances: np.ndarray, fraction: float) -> int:
    """K_q; private: publish ``release_quantile``'s value instead.

    Args:
        distances: [n] integers >= 0, the stable distances of the queries.
        fraction: q in (0, 1], read as the decimal number it prints as.

    Raises:
        ConfigError: no queries, or q is out of range.
    """
    if not len(distances):
        raise ConfigError("aggregate: no queries, so there is no distance to publish")
    if not 0 < fraction <= 1:
        raise ConfigError(f"aggregate: fraction = {fraction!r}: give a number above 0 and at most 1")
    needed = -(-Fraction(repr(float(fraction))) * len(distances) // 1)
    return int(np.sort(distances)[::-1][int(needed) - 1])


def release_quantile(distances: np.ndarray, fraction: float, farthest: int, guarantee: PureDP, source: Randomness) -> int:
    """K_q with two-sided geometric noise, clamped to [0, farthest]; spends ``guarantee`` once.

    Args:
        farthest: a public number that no distance exceeds, such as a model's own.
    """
    (noised,) = noisy_integers([certified_quantile(distances, fraction)], guarantee.eps, source)
    return min(max(noised, 0), farthest)


def noisy_integers(values: Sequence[int], eps: float, source: Randomness, apart: int = 1) -> list[int]:
    """The values, each with noise of its own from ``two_sided_geometric``; arguments as there."""

    def sample(source: Randomness) -> list[int]:
        return [value + two_sided_geometric(eps, source, apart) for value in values]

    return answered(source, Draw("geometric", (eps, apart, len(values)), values), sample)


def two_sided_geometric(eps: float, source: Randomness, apart: int = 1) -> int:
    """Z with P(Z = z) = (1-a)/(1+a) a^|z|, a = exp(-eps / apart), exactly: eps is the double or the decimal that it prints
    as, whichever is less, so that either may be claimed of what neighbours move by ``apart``."""
    rate = min(Fraction(eps), Fraction(written(eps))) / apart
    s, t = rate.numerator, rate.denominator
    while True:
        u = source.below(t)
        if not _bernoulli_exp(Fraction(u, t), source):
            continue
        v = 0
        while _bernoulli_exp(Fraction(1), source):
            v += 1
        size, negative = (u + t * v) // s, source.below(2)
        if size or not negative:
            return -size if negative else size


def _bernoulli_exp(x: Fraction, source: Randomness) -> bool:
    """True with probability exp(-x), 0 <= x <= 1: the parity of how long a chain of coins x/1, x/2, ... lasts."""
    k = 1
    while source.below(x.denominator * k) < x.numerator:
        k += 1
    return k % 2 == 1


def true_loss(mechanism: Mechanism, ks: Sequence[int]) -> float:
    """The privacy loss per query, max |ln P/P'| over labels, if distances come from the grid ``ks`` and b to g hold.

    The worst pair of neighbours that nested boxes allow: L at two successive values of {0} and the grid, or different
    labels at L = 0. Where nesting fails too, there is no bound.

    Args:
        mechanism: its closed form is used; for a two-class mechanism whose flips may not be 0.
        ks: the values of k that were trained for.
    """
    values = np.array(sorted({0, *ks}), dtype=np.int64)
    flip = mechanism.flip_probability(values)
    wrong, right = np.log(flip / (mechanism.classes - 1)), np.log1p(-flip)
    steps = [abs(np.diff(wrong)), abs(np.diff(right)), [abs(right[0] - wrong[0])]]
    return float(max(max(step, default=0.0) for step in steps))


MECHANISMS = REGISTERED
