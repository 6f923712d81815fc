"""A certificate of many queries that may be published: how far a fraction of them is certified.

K_q is the largest k such that at least a fraction q of the queries has a stable distance of k or
more. It is released with two-sided geometric noise, which is drawn exactly, in integers.

    release_quantile(distances, 0.5, 100, PureDP(1.0), SystemRandomness())

Source: Canonne, Kamath and Steinke (2020), Algorithm 2, for the noise.
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
        """Return the mechanism that a total affords: one number takes all of eps, and no delta.

        Args:
            eps: of the total.
            delta: of the total; not used.
            settings: ``fraction``, where it is not the default.

        Raises:
            ConfigError: a setting is unknown or out of range.
        """
        return validate(cls, {**settings, "eps": eps}, "mechanism")

    @property
    def guarantee(self) -> PureDP:
        """The guarantee of the one number, whatever the number of queries."""
        return PureDP(self.eps)


def certified_quantile(distances: np.ndarray, fraction: float) -> int:
    """Return K_q, which is private: publish what ``release_quantile`` returns instead.

    Args:
        distances: [n] integers >= 0, the stable distances of the queries.
        fraction: q in (0, 1], read as the decimal number that it prints as.

    Raises:
        ConfigError: there are no queries, or q is out of range.

    Formal guarantees
        - K_q moves by at most 1 between neighbours if each distance does and if the queries do not
          depend on the private data (Lemma 1 of docs/proofs/quantile.md).
        - q = 1 gives the least distance.
    """
    if not len(distances):
        raise ConfigError(
            "aggregate: without queries there is no stable distance to publish: give at least "
            "one query"
        )
    if not 0 < fraction <= 1:
        raise ConfigError(
            f"aggregate: fraction = {fraction!r}: give the fraction of queries as a number "
            "above 0 and at most 1"
        )
    exact_fraction = Fraction(repr(float(fraction)))
    needed = -(-exact_fraction * len(distances) // 1)  # rounded up
    descending = np.sort(distances)[::-1]
    return int(descending[int(needed) - 1])


def release_quantile(
    distances: np.ndarray, fraction: float, max_distance: int, guarantee: PureDP, source: Randomness
) -> int:
    """Release K_q with two-sided geometric noise, which spends ``guarantee`` once.

    Args:
        distances: [n] integers >= 0, the stable distances of the queries.
        fraction: q in (0, 1].
        max_distance: a public number that no distance exceeds, such as ``Model.max_distance``.
        guarantee: of the one number.
        source: SystemRandomness for a release; anything else is a simulation.

    Returns:
        A number in [0, max_distance]: noise beyond it is clamped.

    Raises:
        ConfigError: there are no queries, or q is out of range.
    """
    # Lemma 2 of docs/proofs/quantile.md; clamping is post-processing
    (noised,) = noisy_integers([certified_quantile(distances, fraction)], guarantee.eps, source)
    return min(max(noised, 0), max_distance)


def noisy_integers(
    values: Sequence[int], eps: float, source: Randomness, sensitivity: int = 1
) -> list[int]:
    """Return integers, each with two-sided geometric noise of its own: all together eps-DP.

    Args:
        values: the private integers.
        eps: of all values together.
        source: SystemRandomness for a release; anything else is a simulation.
        sensitivity: bound on how far neighbours move all values together: the sum of the absolute
            differences, not the largest of them.
    """

    def sample(source: Randomness) -> list[int]:
        return [value + two_sided_geometric(eps, source, sensitivity) for value in values]

    draw = Draw("geometric", (eps, sensitivity, len(values)), values)
    return answered(source, draw, sample)


def two_sided_geometric(eps: float, source: Randomness, sensitivity: int = 1) -> int:
    """Draw Z with P(Z = z) proportional to exp(-eps |z| / sensitivity), exactly.

    Args:
        eps: read as the double or the decimal that it prints as, whichever is less, so that either
            may be claimed.
        source: of uniform integers.
        sensitivity: how far neighbours move what the noise is added to.
    """
    # Lemma 3 of docs/proofs/quantile.md: |Z| is floor((u + t v) / s), and a minus sign with 0 is
    # drawn anew
    rate = min(Fraction(eps), Fraction(written(eps))) / sensitivity
    s = rate.numerator
    t = rate.denominator
    while True:
        u = source.below(t)
        if not _bernoulli_exp(Fraction(u, t), source):
            continue
        v = 0
        while _bernoulli_exp(Fraction(1), source):
            v += 1
        size = (u + t * v) // s
        is_negative = source.below(2)
        if size or not is_negative:
            return -size if is_negative else size


def _bernoulli_exp(x: Fraction, source: Randomness) -> bool:
    """Return True with probability exp(-x), exactly, for x in [0, 1]."""
    # Coins of probabilities x/1, x/2, ... are tossed until one fails: that one's number is odd with
    # probability exp(-x).
    k = 1
    while source.below(x.denominator * k) < x.numerator:
        k += 1
    return k % 2 == 1
