"""Release the weights of a linear head once, for any number of queries (method.md section 5; 002's output perturbation).

Formal guarantees
    Let theta be the computed weights, a finite set of floats, and ``moves`` a bound on |theta - theta'| between neighbours,
    l2 (stability.json's ``whole``). With N standard normal in every coordinate, theta + sigma N for sigma >= moves / mu is
    mu-GDP (Dong, Roth, Su 2022, theorem 2). What is released is that vector rounded to the nearest multiple of a public
    power of two, and then to the nearest float: post-processing, twice. Nothing else is approximate. ``standard_normal``
    draws N exactly, digit by digit, by Karney's rejection algorithm; a coordinate is rounded in integer arithmetic once
    enough digits are known to say which multiple is nearest. So the released floats have exactly the distribution of a
    rounded real Gaussian, and the attack on the low bits of floating-point noise (Mironov 2012) finds nothing: they are
    multiples of one constant. Answers computed from released weights, to however many queries, are post-processing too.
    Only the time it takes depends on the draws; it does not depend on theta beyond the digits of its rounding.

Source: Karney (2016), Sampling exactly from the normal distribution, algorithm N.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from scipy.special import ndtr

from agt.errors import ConfigError, UnsoundError
from agt.mechanisms.composition import per_query
from agt.mechanisms.guarantee import GaussianDP, Guarantee
from agt.mechanisms.mechanism import Mu, Need
from agt.mechanisms.randomness import Randomness
from agt.numeric import next_up
from agt.settings import schema

FINE = 24  # the lattice's step is at most 2^-24 sigma
CHUNK = 32  # digits drawn at once
LARGEST = 2.0**900
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(120)


@dataclass(frozen=True)
class ReleasedWeights:
    """Weights that may be published.

    Attributes:
        weight: as theta, float64, multiples of ``step``.
        guarantee: of the release and of everything computed from it.
        sigma: standard deviation of the noise in each coordinate.
        step: the lattice.
        simulated: drawn from a seeded generator: no guarantee.
    """

    weight: np.ndarray
    guarantee: Guarantee
    sigma: float
    step: float
    simulated: bool


@schema
class ReleaseWeights:
    """The mechanism that releases the weights, once; any number of queries is then answered from them.

    Attributes:
        mu: of the one release.
    """

    mu: Mu

    name: ClassVar[str] = "release_weights"
    needs: ClassVar[Need] = "distance"  # every condition: weights depend on all of training

    @property
    def guarantee(self) -> GaussianDP:
        """GaussianDP."""
        return GaussianDP(self.mu)


def weights_budget(eps: float, delta: float) -> GaussianDP:
    """The largest mu whose one release is (eps, delta)-DP, rounded down.

    Raises:
        ConfigError: eps or delta is out of range.
    """
    return per_query(GaussianDP, eps, delta, 1)


def noise_scale(moves: float, guarantee: GaussianDP) -> float:
    """sigma = moves / mu, rounded up.

    Raises:
        ConfigError: ``moves`` is not a positive number.
    """
    sigma = next_up(moves / guarantee.mu) if moves > 0 else math.nan
    if not math.isfinite(sigma):
        raise ConfigError(f"moves = {moves!r}: give the positive bound on how far one unit moves the weights")
    return sigma


def release_weights(theta: np.ndarray, moves: float, guarantee: GaussianDP, source: Randomness) -> ReleasedWeights:
    """theta + N(0, (moves / mu)^2 I), once, rounded to a public lattice.

    Args:
        theta: float64, any shape; the computed weights.
        moves: bound on how far one neighbour moves them, l2, all coordinates together.
        source: SystemRandomness for a release; anything else is a simulation.

    Raises:
        ConfigError: ``moves`` is not positive.
        UnsoundError: a weight is NaN, infinite, or beyond ``LARGEST``, which no proved training reaches. No size beside
            the noise is refused: a refusal that depends on the weights would tell something about them.
    """
    sigma = noise_scale(moves, guarantee)
    exponent = math.frexp(sigma)[1] - 1 - FINE
    values = np.asarray(theta, dtype=np.float64)
    if not bool((np.abs(values) < LARGEST).all()):  # NaN compares false
        raise UnsoundError("a weight is not finite, or beyond all numbers in use: nothing is released")
    places = [_noisy_place(float(value), sigma, exponent, source) for value in values.ravel()]
    released = np.array([float(place * Fraction(2) ** exponent) for place in places]).reshape(values.shape)
    return ReleasedWeights(released, guarantee, sigma, math.ldexp(1.0, exponent), source.simulated)


def expected_accuracy(logits: np.ndarray, lengths: np.ndarray, labels: np.ndarray, sigma: float) -> float:
    """Expected accuracy of labels computed from released weights, without a draw.

    The noise moves logit j of a query by sigma |phi| times a standard normal, independently over j. One logit: the label is
    wrong with probability Phi(-|f| / (sigma |phi|)) where it was right. J logits: the probability that logit y is greatest
    is E[prod_{j != y} Phi(Z + (f_y - f_j) / (sigma |phi|))], by Gauss-Hermite quadrature with 120 nodes.

    Args:
        logits: [n, J] of theta itself.
        lengths: [n] the norms of phi.
        labels: [n] the true classes.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = logits / (sigma * np.maximum(lengths, np.finfo(float).tiny))[:, None]
    if logits.shape[1] == 1:
        return float(ndtr(np.where(labels == 1, ratio[:, 0], -ratio[:, 0])).mean())
    rows = np.arange(len(logits))
    lead = ratio[rows, labels][:, None] - ratio
    others = np.ones_like(lead, dtype=bool)
    others[rows, labels] = False
    lead = lead[others].reshape(len(logits), -1)
    right = sum(
        weight * ndtr(node + lead).prod(axis=1) for node, weight in zip(_NODES, _WEIGHTS, strict=True) if weight > 0
    )
    return float(np.mean(right) / math.sqrt(2 * math.pi))


# -- exact sampling --------------------------------------------------------------------------------------------------------


class Uniform:
    """A uniform number in [0, 1), known to as many binary digits as were needed.

    Attributes:
        digits: its first ``known`` digits, as an integer.
        known: how many.
    """

    def __init__(self, source: Randomness) -> None:
        self.source, self.digits, self.known = source, 0, 0

    def refine(self) -> None:
        """Draw more digits."""
        self.digits = (self.digits << CHUNK) | self.source.below(1 << CHUNK)
        self.known += CHUNK

    def below_half(self) -> bool:
        """Whether this number is less than 1/2: its first digit says so."""
        if not self.known:
            self.refine()
        return not self.digits >> (self.known - 1)

    def below(self, other: "Uniform") -> bool:
        """Whether this number is less than the other: digits are drawn until they differ."""
        while True:
            while self.known < other.known or not self.known:
                self.refine()
            while other.known < self.known:
                other.refine()
            if self.digits != other.digits:
                return self.digits < other.digits
            self.refine()


def standard_normal(source: Randomness) -> tuple[int, int, Uniform]:
    """(sign, k, x): a standard normal number sign * (k + x), exactly.

    Karney's algorithm N: k with probability exp(-k/2)(1 - exp(-1/2)); kept with probability exp(-k(k-1)/2); x uniform, kept
    with probability exp(-x(2k+x)/2): in all proportional to exp(-(k+x)^2/2).
    """
    while True:
        k = 0
        while _exp_minus_half(source):
            k += 1
        if not all(_exp_minus_half(source) for _ in range(k * (k - 1))):
            continue
        x = Uniform(source)
        if all(_keeps(k, x, source) for _ in range(k + 1)):
            return 1 - 2 * source.below(2), k, x


def _exp_minus_half(source: Randomness) -> bool:
    """True with probability exp(-1/2): is the run 1/2 > z_1 > z_2 > ... of uniforms of even length (von Neumann)?"""
    last = Uniform(source)
    if not last.below_half():
        return True
    length = 1
    while True:
        here = Uniform(source)
        if not here.below(last):
            return length % 2 == 0
        last, length = here, length + 1


def _keeps(k: int, x: Uniform, source: Randomness) -> bool:
    """True with probability exp(-x (2k+x) / (2k+2)): the same run below x, each link kept with (2k+x) / (2k+2)."""
    last, length = x, 0
    while True:
        here = Uniform(source)
        if not here.below(last):
            return length % 2 == 0
        choice = source.below(2 * k + 2)
        if choice == 2 * k + 1 or (choice == 2 * k and not Uniform(source).below(x)):
            return length % 2 == 0
        last, length = here, length + 1


def _noisy_place(value: float, sigma: float, exponent: int, source: Randomness) -> int:
    """The integer nearest to (value + sigma N) 2^-exponent, in integer arithmetic."""
    sign, k, x = standard_normal(source)
    (top, bottom), (high, low) = value.as_integer_ratio(), sigma.as_integer_ratio()  # denominators are powers of two
    if not x.known:
        x.refine()
    while True:
        ends = []
        for digits in (x.digits, x.digits + 1):  # N lies between these two
            numerator = top * low * (1 << x.known) + sign * high * bottom * ((k << x.known) + digits)
            ends.append(_nearest(numerator, bottom * low << x.known, exponent))
        if ends[0] == ends[1]:
            return ends[0]
        x.refine()


def _nearest(numerator: int, denominator: int, exponent: int) -> int:
    """floor(numerator / denominator * 2^-exponent + 1/2)."""
    if exponent < 0:
        numerator <<= -exponent
    else:
        denominator <<= exponent
    return (2 * numerator + denominator) // (2 * denominator)
