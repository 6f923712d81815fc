"""Private release of a quantile of stable distances.

The stable distance of a query is a number of edits of the dataset up to which its label provably
stays the same. K_q is the largest k such that at least a fraction q of the queries has a stable
distance of k or more. It is released with two-sided geometric noise, drawn exactly in integers.

    release_quantile(distances, 0.5, 100, PureDP(1.0), SystemRandomness())

Source: Canonne, Kamath and Steinke (2020), Algorithm 2, for the noise.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import ClassVar, Self

import numpy as np

from agt.errors import ConfigError
from agt.mechanism_settings import CertifiedQuantileSettings
from agt.mechanisms.guarantees import PureDP
from agt.mechanisms.output import Output
from agt.numeric import Draw, Randomness, draw_observably, printed_decimal
from agt.settings import schema, validate


@schema
class CertifiedQuantile(CertifiedQuantileSettings):
    """Settings for a release of the number of edits that a fraction of the queries withstands.

    Attributes:
        eps: the epsilon of differential privacy for the one released number.
        fraction: the fraction q of the queries, above 0 and at most 1.
    """

    output: ClassVar[Output] = Output.NUMBER
    spends: ClassVar[type[PureDP]] = PureDP

    @classmethod
    def within(cls, eps: float, delta: float, **settings: object) -> Self:
        """Return the mechanism that spends a total budget (eps, delta) on its one number.

        Args:
            eps: the epsilon of the budget, all of which is spent.
            delta: the delta of the budget, which is not needed.
            settings: other settings of the mechanism, by name (``fraction``).

        Raises:
            ConfigError: a setting is unknown or out of range.
        """
        return validate(cls, {**settings, "eps": eps}, "mechanism")

    @property
    def guarantee(self) -> PureDP:
        """The guarantee of the release: eps-DP, whatever the number of queries."""
        return PureDP(self.eps)


def certified_quantile(distances: np.ndarray, fraction: float) -> int:
    """Return the largest k such that at least a fraction of the queries has distance k or more.

    The result depends on private data and has no noise: publish ``release_quantile`` instead.

    Args:
        distances: [n] integers of at least 0, the stable distances of the queries (numbers of edits
            of the dataset up to which the label provably stays the same).
        fraction: q, above 0 and at most 1, taken as the decimal number that ``repr`` prints. 1
            gives the least distance.

    Raises:
        ConfigError: there are no queries, or the fraction is out of range.

    Formal guarantees
        - The result has sensitivity 1 (neighbouring datasets change it by at most 1), if each
          distance does and if the queries do not depend on the private data (Lemma 1 of
          docs/proofs/quantile.md).
    """
    if not len(distances):
        raise ConfigError(
            "aggregate: there are no queries, so there is no stable distance to publish; give "
            "at least one query"
        )
    if not 0 < fraction <= 1:
        raise ConfigError(
            f"aggregate: fraction = {fraction!r}: give the fraction of queries as a number "
            "above 0 and at most 1"
        )
    # Exact arithmetic: 0.1 of 10 queries is 1 query, although the double 0.1 is a little more.
    exact_fraction = Fraction(repr(float(fraction)))
    needed_queries = math.ceil(exact_fraction * len(distances))
    # ``needed_queries`` queries reach the distance of this rank, and fewer reach a larger one.
    descending = np.sort(distances)[::-1]
    return int(descending[needed_queries - 1])


def release_quantile(
    distances: np.ndarray, fraction: float, max_distance: int, guarantee: PureDP, source: Randomness
) -> int:
    """Return an eps-DP version of the distance that a fraction of the queries reaches.

    The exact number is the largest k such that at least the fraction of the queries has a stable
    distance of k or more. The result is this number plus two-sided geometric noise. A call spends
    ``guarantee`` once.

    Args:
        distances: [n] integers of at least 0, the stable distances of the queries. They are private
            and have sensitivity 1 each.
        fraction: above 0 and at most 1.
        max_distance: a public upper bound on the distances, such as ``Model.max_distance``.
        guarantee: the guarantee of the release, which has its eps.
        source: SystemRandomness for a release; any other source is only a simulation.

    Returns:
        The noisy number, clamped to the range from 0 to max_distance.

    Raises:
        ConfigError: there are no queries, or the fraction is out of range.
    """
    exact = certified_quantile(distances, fraction)
    # Lemma 2 of docs/proofs/quantile.md: the noise makes the number eps-DP, because its sensitivity
    # is 1, and clamping is post-processing.
    (noised,) = noisy_integers([exact], guarantee.eps, source)
    return min(max(noised, 0), max_distance)


def noisy_integers(
    values: Sequence[int], eps: float, source: Randomness, sensitivity: int = 1
) -> list[int]:
    """Return integers plus independent two-sided geometric noise; all together are eps-DP.

    Args:
        values: the private integers.
        eps: the epsilon of the release of all values together.
        source: SystemRandomness for a release; any other source is only a simulation.
        sensitivity: the l1 sensitivity, at least 1: a bound on the sum, over all values, of the
            absolute differences between neighbouring datasets.
    """

    def sample(source: Randomness) -> list[int]:
        """Return the values plus noise that is drawn from ``source``."""
        return [value + two_sided_geometric(eps, source, sensitivity) for value in values]

    # Usually ``draw_observably`` calls ``sample``. An audit may replace it, given this description.
    draw = Draw("geometric", (eps, sensitivity, len(values)), values)
    return draw_observably(source, draw, sample)


def two_sided_geometric(eps: float, source: Randomness, sensitivity: int = 1) -> int:
    """Return a random integer z, with probability proportional to exp(-eps |z| / sensitivity).

    The distribution is exact: only integer arithmetic and uniform integers are used. This is the
    discrete Laplace distribution of Canonne, Kamath and Steinke (2020), Algorithm 2.

    Args:
        eps: the epsilon, above 0. Of the double and the decimal number that it prints as, the
            smaller one is used, so that the guarantee holds for both.
        source: returns uniform integers.
        sensitivity: the l1 sensitivity of the values that the noise is added to, at least 1.
    """
    # Lemma 3 of docs/proofs/quantile.md. With s / t = eps / sensitivity the magnitude is
    # floor((u + t v) / s), where u in 0..t-1 has probabilities proportional to exp(-u / t) and v is
    # geometric with ratio exp(-1).
    rate = min(Fraction(eps), Fraction(printed_decimal(eps))) / sensitivity
    s = rate.numerator
    t = rate.denominator
    while True:
        u = source.below(t)
        if not _bernoulli_exp(Fraction(u, t), source):
            continue  # rejection sampling of u
        v = 0
        while _bernoulli_exp(Fraction(1), source):  # true with probability exp(-1)
            v += 1
        magnitude = (u + t * v) // s
        is_negative = source.below(2)
        # -0 is rejected, because 0 would be counted twice.
        if magnitude or not is_negative:
            return -magnitude if is_negative else magnitude


def _bernoulli_exp(exponent: Fraction, source: Randomness) -> bool:
    """Return True with probability exp(-exponent), exactly.

    Args:
        exponent: a rational number from 0 to 1.
        source: returns uniform integers.
    """
    # Coin number k = 1, 2, ... succeeds with probability exponent / k. All of the first k succeed
    # with probability exponent^k / k!, so the first coin that fails has an odd number with
    # probability 1 - exponent + exponent^2 / 2! - ... = exp(-exponent).
    k = 1
    while source.below(exponent.denominator * k) < exponent.numerator:
        k += 1
    return k % 2 == 1
