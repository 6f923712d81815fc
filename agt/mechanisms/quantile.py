"""A certificate of many queries that may be published: how far a fraction of them is certified.

Formal guarantees
    K_q = max{k : at least a fraction q of the queries has L >= k} is an order statistic of the L,
    each of which moves by at most 1 between neighbours, and so does K_q; the queries themselves
    must not depend on the private data. K_q + Z with P(Z = z) proportional to exp(-eps |z|) is
    eps-DP (the geometric mechanism), and clamping to [0, m] is post-processing: m is public, and no
    distance of the model exceeds it (``Model.farthest``).
    Z is drawn exactly, in integers, by the algorithm of Canonne, Kamath and Steinke 2020 (Algorithm
    2).
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated, ClassVar, Self

import numpy as np
from pydantic import Field

from agt.errors import ConfigError
from agt.mechanisms.guarantees import PureDP
from agt.mechanisms.mechanism import Epsilon, Need
from agt.mechanisms.output import Output
from agt.numeric import Draw, Randomness, answered, written
from agt.settings import schema, validate


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
    output: ClassVar[Output] = Output.NUMBER
    spends: ClassVar[type[PureDP]] = PureDP

    @classmethod
    def within(cls, eps: float, delta: float, **settings: object) -> Self:
        """Return the mechanism that a total affords: one number takes all of eps, and no delta."""
        return validate(cls, {**settings, "eps": eps}, "mechanism")

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
        raise ConfigError(
            f"aggregate: fraction = {fraction!r}: give a number above 0 and at most 1"
        )
    needed = -(-Fraction(repr(float(fraction))) * len(distances) // 1)
    return int(np.sort(distances)[::-1][int(needed) - 1])


def release_quantile(
    distances: np.ndarray, fraction: float, farthest: int, guarantee: PureDP, source: Randomness
) -> int:
    """K_q with two-sided geometric noise, clamped to [0, farthest]; spends ``guarantee`` once.

    Args:
        farthest: a public number that no distance exceeds, such as a model's own.
    """
    (noised,) = noisy_integers([certified_quantile(distances, fraction)], guarantee.eps, source)
    return min(max(noised, 0), farthest)


def noisy_integers(
    values: Sequence[int], eps: float, source: Randomness, apart: int = 1
) -> list[int]:
    """The values, each with noise of its own from ``two_sided_geometric``; arguments as there.

    Args:
        apart: bound on how far neighbours move all values together: the sum of the absolute
            differences, not the largest of them.
    """

    def sample(source: Randomness) -> list[int]:
        return [value + two_sided_geometric(eps, source, apart) for value in values]

    return answered(source, Draw("geometric", (eps, apart, len(values)), values), sample)


def two_sided_geometric(eps: float, source: Randomness, apart: int = 1) -> int:
    """Z with P(Z = z) = (1-a)/(1+a) a^|z|, a = exp(-eps / apart), exactly: eps is the double or the
    decimal that it prints as, whichever is less, so that either may be claimed of what neighbours
    move by ``apart``.
    """
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
    """True with probability exp(-x), 0 <= x <= 1: the parity of how long a chain of coins x/1,
    x/2, ... lasts.
    """
    k = 1
    while source.below(x.denominator * k) < x.numerator:
        k += 1
    return k % 2 == 1
