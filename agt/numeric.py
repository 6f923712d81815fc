"""Numerics on which guarantees rest: rounding, bisection, Gaussian DP, logits, exact noise.

Each docstring says on which side of the true value a result lies. Randomness comes from the
operating system's generator, or from a seeded one, whose draws are only a simulation.

Source: Karney (2016), Sampling exactly from the normal distribution, algorithm N.
"""

import math
import os
import secrets
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

import numpy as np
import scipy  # whose parts load when they are first used
from numpy.typing import ArrayLike

from agt.errors import ConfigError, UnsoundError

if TYPE_CHECKING:
    import torch

UNIT = 2.0**-53  # u, the unit roundoff of double precision
COVER = 1 + 2.0**-20  # a factor for bounds, above the dozen roundings of their own computation
UP = 1e-9  # relative; larger than the error of any special function used here
HALVINGS = 200  # the maximum number of steps of a bisection
_LOG_NDTR_ERROR = 2.0**-48  # relative error of scipy's log Phi: 32 units in the last place
_LATTICE_BITS = 24  # the spacing of the lattice of noise is at most 2^-24 standard deviations
_CHUNK_BITS = 32  # how many binary digits of a uniform number are drawn at once
_FIRST_DIGITS = 64  # how many binary digits of a draw are known before it is rounded
_LARGEST_VALUE = 2.0**900  # larger values are refused before noise is added

Number = TypeVar("Number", int, float)
Array = TypeVar("Array", np.ndarray, "torch.Tensor")
Answer = TypeVar("Answer")


def next_up(number: float) -> float:
    """Return the next larger float (IEEE 754's nextUp); infinity stays infinity.

    It is an upper bound on every real number that rounds to ``number``.
    """
    return math.nextafter(number, math.inf)


def printed_decimal(number: float) -> Decimal:
    """Return the decimal number that Python prints for a float: exactly 1/10 for 0.1.

    It has the fewest digits that distinguish the float from its neighbours.
    """
    return Decimal(repr(float(number)))


def gamma(n: float) -> float:
    """Return n u / (1 - n u), a bound on the relative error of n roundings in a row; n u < 1.

    u is ``UNIT`` (Higham 2002, lemma 3.1). The result is rounded to nearest, within 2 u of the
    exact value, relative; ``gamma_up`` rounds up.
    """
    return n * UNIT / (1 - n * UNIT)


def gamma_up(n: float) -> float:
    """Return an upper bound on n u / (1 - n u), the relative error of n roundings; n u < 1.

    It is larger than the exact bound by one part in 2^20, which also covers the roundings of a few
    multiplications with the result.
    """
    return gamma(n) * COVER


def midpoint(low: float, high: float) -> float:
    """Return the mean of two floats, rounded to nearest."""
    return (low + high) / 2


def whole_midpoint(low: int, high: int) -> int:
    """Return the mean of two integers, rounded down."""
    return (low + high) // 2


def bisect(
    holds: Callable[[Number], bool],
    low: Number,
    high: Number,
    middle: Callable[[Number, Number], Number],
) -> tuple[Number, Number]:
    """Find where a condition changes from true to false, by bisection.

    Args:
        holds: the condition. It is assumed, and not checked, to be true at ``low`` and false at
            ``high``; it is evaluated only in between.
        low: the left end.
        high: the right end.
        middle: returns a number between two others; or one of the two, if they are neighbours.

    Returns:
        (low, high): neighbouring numbers, or what is left of the interval after ``HALVINGS`` steps.
        The condition was found true at the first (or it is the given end) and false at the second.
        That is so even for a condition that changes several times.
    """
    for _ in range(HALVINGS):
        value = middle(low, high)
        if not low < value < high:  # the ends are neighbouring numbers
            break
        if holds(value):
            low = value
        else:
            high = value
    return low, high


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Return the least delta for which a mu-GDP mechanism is (epsilon, delta)-DP, rounded up.

    delta = Phi(-epsilon/mu + mu/2) - e^epsilon Phi(-epsilon/mu - mu/2), computed from logarithms
    (Dong, Roth and Su 2022; Balle and Wang 2018). It is used for noise in training and for
    baselines. The relative error is at most 1e-8 for mu >= 1e-3 and delta >= 1e-20; below,
    ``mills_delta`` is more accurate.

    Args:
        epsilon: a number of at least 0.
        mu: the sensitivity divided by the noise's standard deviation; 0: no information, delta = 0.

    Returns:
        delta plus a bound on its rounding error; 0 where delta is below 1e-300.
    """
    if mu == 0:
        return 0.0
    # delta = exp(first) - exp(second) = exp(first) (1 - exp(second - first))
    first = float(scipy.special.log_ndtr(mu / 2 - epsilon / mu))
    second = epsilon + float(scipy.special.log_ndtr(-mu / 2 - epsilon / mu))
    lost = _LOG_NDTR_ERROR * (1 + epsilon + abs(first) + abs(second))  # bounds rounding errors
    return math.exp(first) * (lost - math.expm1(min(second - first, 0.0)))


def mills_delta(epsilon: float, mu: float) -> float:
    """Return the least delta for which a mu-GDP mechanism is (epsilon, delta)-DP, rounded up.

    It is the function of ``gaussian_delta``, computed from Mills ratios, which is accurate for any
    mu > 0 and in the tail. It is used for releases and their composition.

    Args:
        epsilon: a number of at least 0.
        mu: above 0.

    Returns:
        delta, increased by the relative error ``UP`` and by the least normal float, so that it is
        never 0. Below mu = 1e-4 it exceeds the exact delta by a relative error of about mu, too.
    """
    x = epsilon / mu - mu / 2
    # delta = phi(x) (R(x) - R(x + mu)), where R = (1 - Phi) / phi is the Mills ratio. Below
    # exp(-1e6 / 2) the density is 0 in floating point.
    density = math.exp(-x * x / 2) / math.sqrt(2 * math.pi) if abs(x) < 1e3 else 0.0
    if mu < 1e-4:
        # The difference would be lost in rounding. R is convex with R' = x R - 1, so that
        # mu (1 - x R(x)) is at least R(x) - R(x + mu).
        delta = density * mu * (1 - x * _mills_ratio(x)) if density else 0.0
    elif x < 0:
        # phi(x) R(x) = Phi(-x), without an R that overflows
        delta = float(scipy.special.ndtr(-x)) - density * _mills_ratio(x + mu)
    else:
        delta = density * (_mills_ratio(x) - _mills_ratio(x + mu))
    return min(1.0, max(delta, 0.0) * (1 + UP) + sys.float_info.min)


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest mu for which a mu-GDP mechanism is (epsilon, delta)-DP, rounded down.

    It is found by bisection, because delta grows with mu.

    Raises:
        ConfigError: epsilon is negative or not finite, or delta is not in (0, 1). Gaussian noise
            gives no guarantee with delta = 0.
    """
    if not epsilon >= 0 or not math.isfinite(epsilon) or not 0 < delta < 1:
        raise ConfigError(
            f"noise: epsilon={epsilon:g} and delta={delta:g} are not possible: Gaussian noise "
            "needs a finite epsilon >= 0, and 0 < delta < 1"
        )
    low = 0.0
    high = 1.0
    while gaussian_delta(epsilon, high) <= delta:
        low = high
        high = 2 * high
    return bisect(lambda mu: gaussian_delta(epsilon, mu) <= delta, low, high, midpoint)[0]


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the least epsilon for which a mu-GDP mechanism is (epsilon, delta)-DP, rounded up.

    It is found by bisection, because delta falls as epsilon grows.

    Args:
        mu: a number of at least 0.
        delta: above 0.
    """
    high = 1.0
    while gaussian_delta(high, mu) > delta:
        high *= 2
    return bisect(lambda epsilon: gaussian_delta(epsilon, mu) > delta, 0.0, high, midpoint)[1]


def _mills_ratio(x: float) -> float:
    """Return the Mills ratio (1 - Phi(x)) / phi(x) of the standard normal distribution."""
    return float(math.sqrt(math.pi / 2) * scipy.special.erfcx(x / math.sqrt(2)))


def logits_of(weight: ArrayLike, features: np.ndarray) -> np.ndarray:
    """Return the logits of queries under a linear model, in double precision.

    Args:
        weight: [J, w] the weights, one row for each logit.
        features: [n, w] the queries' features.

    Returns:
        [n, J] float64.
    """
    return np.asarray(features.astype(np.float64, copy=False) @ np.asarray(weight).T)


def labels_of(logits: Array) -> Array:
    """Return the label of each query from its logits.

    With one logit, label 1 if it is above 0, else 0. With more, the class of the largest logit; of
    equal ones the first.

    Args:
        logits: [n, J], J logits for each of n queries.

    Returns:
        [n] int64.
    """
    if logits.shape[1] == 1:
        return (logits[:, 0] > 0) * 1
    return logits.argmax(1)


def signed_margins(logits: np.ndarray) -> np.ndarray:
    """Return the signed margins of logits: how far each query is from each decision boundary.

    Each value is rounded once. A query lies on a decision boundary where a margin is 0.

    Args:
        logits: [n, J], J logits for each of n queries.

    Returns:
        [1, n] for one logit (the logit itself) and for two (the second less the first). [J, n] for
        more: each logit less the largest of the others.
    """
    rows = logits.T
    if len(rows) == 1:
        return rows
    if len(rows) == 2:
        return rows[-1:] - rows[:1]
    second, first = np.partition(logits, -2, axis=1)[:, -2:].T  # the two largest of each query
    # If two logits are equally large, second == first, and the margin of each is 0.
    return rows - np.where(rows == first, second, first)


def margins_of(logits: np.ndarray) -> np.ndarray:
    """Return the margin of each query: by how much its label's logit leads over the next class.

    Each value is rounded once. For one logit it is the absolute value.

    Args:
        logits: [n, J], J logits for each of n queries.

    Returns:
        [n], at least 0.
    """
    margins = signed_margins(logits)
    return np.abs(margins[0]) if len(margins) == 1 else margins.max(axis=0)


class Randomness(Protocol):
    """A source of uniform random numbers."""

    @property
    def simulated(self) -> bool:
        """True if the draws can be predicted, so that nothing drawn from them is private."""

    def words(self, n: int) -> np.ndarray:
        """Return n uniform 128-bit integers as [n, 2] uint64, the more significant half first."""

    def below(self, bound: int) -> int:
        """Return a uniform integer from 0 to bound - 1, exactly; bound is at least 1."""


class SystemRandomness:
    """The operating system's cryptographic random generator, whose draws cannot be predicted."""

    simulated = False

    def words(self, n: int) -> np.ndarray:
        """Return n uniform 128-bit integers as [n, 2] uint64, the more significant half first."""
        return np.frombuffer(os.urandom(16 * n), dtype=np.uint64).reshape(n, 2)

    def below(self, bound: int) -> int:
        """Return a uniform integer from 0 to bound - 1, exactly; bound is at least 1."""
        return secrets.randbelow(bound)


class SeededRandomness:
    """A seeded random generator (PCG64): the same seed gives the same draws. Only for simulation.

    Raises:
        ConfigError: the seed is negative.
    """

    simulated = True

    def __init__(self, seed: int) -> None:
        """Start the generator at a seed, an integer >= 0."""
        if seed < 0:
            raise ConfigError(f"seed={seed}: give a whole number of at least 0")
        self._generator = np.random.default_rng(seed)

    def words(self, n: int) -> np.ndarray:
        """Return n pseudo-random 128-bit integers as [n, 2] uint64, the high half first."""
        return self._generator.integers(0, 2**64, size=(n, 2), dtype=np.uint64)

    def below(self, bound: int) -> int:
        """Return a pseudo-random integer from 0 to bound - 1, by rejection; bound is at least 1.

        Numbers with as many bits as bound are drawn until one is below it, which makes it uniform.
        """
        bits = bound.bit_length()
        while True:
            random_bytes = self._generator.bytes((bits + 7) // 8)
            draw = int.from_bytes(random_bytes, "little") & ((1 << bits) - 1)
            if draw < bound:  # it is with a probability of at least 1/2
                return draw


@dataclass(frozen=True)
class Draw:
    """A description of one random draw of a release: everything that its distribution depends on.

    Attributes:
        law: the name of the distribution. "uniform" has no private input.
        public: the distribution's parameters and the shape of the draw, which are the same for all
            neighbouring datasets. The first ones are: of "gaussian" noise its standard deviation;
            of "geometric" noise epsilon and the sensitivity; of "labels" the mechanism.
        private: the private input: numbers that noise is added to, or labels with their evidence.
    """

    law: Literal["uniform", "gaussian", "geometric", "labels"]
    public: tuple[object, ...]
    private: object = None


class ObservedRandomness(ABC):
    """A source of randomness that sees the description of each draw and answers it itself.

    An audit implements it, to compare the inputs of draws (agt_audit/replay.py).
    """

    @abstractmethod
    def answer(self, draw: Draw, sample: Callable[[Randomness], Answer]) -> Answer:
        """Return the result of a draw.

        Args:
            draw: the law of the numbers, and the public and private values that it depends on.
            sample: draws from the distribution, given a source of randomness.
        """


def draw_observably(
    source: Randomness, draw: Draw, sample: Callable[[Randomness], Answer]
) -> Answer:
    """Return ``sample(source)``, or the answer of an audit's source that observes the draw.

    Every draw whose distribution depends on private data has to go through this function, so that
    an audit can check what it depends on.

    Args:
        source: the source of the randomness.
        draw: the law of the numbers, and the public and private values that it depends on.
        sample: draws from the distribution, given a source of randomness.
    """
    if isinstance(source, ObservedRandomness):
        return source.answer(draw, sample)
    return sample(source)


def step_of(sigma: float) -> float:
    """Return the spacing of the lattice to which noise is rounded: a power of two.

    It is at most 2^-24 and above 2^-25 standard deviations.

    Args:
        sigma: the noise's standard deviation, above 0.
    """
    return math.ldexp(1.0, _lattice_exponent(sigma))


def noisy(values: np.ndarray, sigma: float, source: Randomness) -> np.ndarray:
    """Return values plus exact Gaussian noise, rounded to multiples of ``step_of(sigma)``.

    Args:
        values: the private numbers, of any shape.
        sigma: the noise's standard deviation, above 0.
        source: the source of uniform random integers; ``SystemRandomness`` for a private release.

    Returns:
        float64, of the shape of values.

    Raises:
        UnsoundError: a value is NaN, infinite, or at least ``_LARGEST_VALUE``, which no proved
            training reaches.

    Formal guarantees
        - The result has exactly the distribution of the Gaussian mechanism on real numbers, rounded
          to a multiple of a public power of two and then to a float. Rounding is post-processing.
        - The attack on the low bits of floating-point noise (Mironov 2012) does not apply, because
          all results are multiples of one public number.
        - The running time depends on the draws, and hardly on the values: more than
          ``_FIRST_DIGITS`` binary digits are needed for one coordinate in 2^39.
    """
    values = np.asarray(values, dtype=np.float64)
    exponent = _lattice_exponent(sigma)
    # No size relative to the noise is refused: whether this raises would depend on private values.
    if not bool((np.abs(values) < _LARGEST_VALUE).all()):  # NaN compares false
        raise UnsoundError(
            "a weight is NaN, infinite, or larger than any number that training reaches, so "
            "nothing is released: scale the features by public constants, and train again"
        )

    def sample(source: Randomness) -> np.ndarray:
        """Draw noise for each value and return the rounded sums."""
        multiples = [
            _noisy_multiple(float(value), sigma, exponent, source) for value in values.ravel()
        ]
        drawn = [float(multiple * Fraction(2) ** exponent) for multiple in multiples]
        return np.array(drawn).reshape(values.shape)

    return draw_observably(source, Draw("gaussian", (sigma, values.shape), values), sample)


class LazyUniform:
    """A uniform random number in [0, 1) whose binary digits are drawn when they are needed.

    Attributes:
        source: the source of the digits.
        digits: the first ``known`` binary digits, as an integer.
        known: the number of digits that were drawn so far.
    """

    def __init__(self, source: Randomness) -> None:
        """Start with no digits drawn."""
        self.source = source
        self.digits = 0
        self.known = 0

    def refine(self) -> None:
        """Draw the next ``_CHUNK_BITS`` binary digits."""
        self.digits = (self.digits << _CHUNK_BITS) | self.source.below(1 << _CHUNK_BITS)
        self.known += _CHUNK_BITS

    def is_below_half(self) -> bool:
        """Return whether this number is less than 1/2, which its first binary digit says."""
        if not self.known:
            self.refine()
        first_digit = self.digits >> (self.known - 1)
        return first_digit == 0

    def is_below(self, other: "LazyUniform") -> bool:
        """Return whether this number is less than another; digits are drawn until they differ."""
        while True:
            # Both need the same number of digits, at least one chunk.
            while self.known < other.known or not self.known:
                self.refine()
            while other.known < self.known:
                other.refine()
            if self.digits != other.digits:
                return self.digits < other.digits
            self.refine()


def standard_normal(source: Randomness) -> tuple[int, int, LazyUniform]:
    """Draw a standard normal number exactly, by Karney's rejection algorithm N.

    Returns:
        (sign, k, x): the number is sign * (k + x), with sign 1 or -1, an integer k >= 0, and x
        uniform digits in [0, 1), of which more can be drawn. k and x are accepted with
        probabilities that make the density proportional to exp(-(k + x)^2 / 2).
    """
    while True:
        k = 0  # with probability exp(-k / 2) (1 - exp(-1 / 2))
        while _bernoulli_exp_half(source):
            k += 1
        # accepted with probability exp(-k (k - 1) / 2)
        if not all(_bernoulli_exp_half(source) for _ in range(k * (k - 1))):
            continue
        x = LazyUniform(source)
        # accepted with probability exp(-x (2 k + x) / 2)
        if all(_bernoulli_exp_step(k, x, source) for _ in range(k + 1)):
            return 1 - 2 * source.below(2), k, x


def _bernoulli_exp_half(source: Randomness) -> bool:
    """Return True with probability exp(-1/2), exactly (von Neumann's method).

    Uniform numbers are drawn while they decrease from 1/2. The number of them is even with
    probability exp(-1/2).
    """
    last = LazyUniform(source)
    if not last.is_below_half():
        return True  # the run is empty, and 0 is even
    length = 1  # of the decreasing run so far
    while True:
        following = LazyUniform(source)
        if not following.is_below(last):
            return length % 2 == 0
        last = following
        length += 1


def _bernoulli_exp_step(k: int, x: LazyUniform, source: Randomness) -> bool:
    """Return True with probability exp(-x (2 k + x) / (2 k + 2)), exactly.

    Uniform numbers are drawn while they decrease from x, and each is kept with probability
    (2 k + x) / (2 k + 2). The number of them is even with the probability above.

    Args:
        k: an integer >= 0.
        x: a number in [0, 1); more of its digits may be drawn.
        source: the source of uniform random integers.
    """
    last = x
    length = 0
    while True:
        following = LazyUniform(source)
        if not following.is_below(last):
            return length % 2 == 0
        # The run goes on with probability (2 k + x) / (2 k + 2).
        choice = source.below(2 * k + 2)
        if choice == 2 * k + 1 or (choice == 2 * k and not LazyUniform(source).is_below(x)):
            return length % 2 == 0
        last = following
        length += 1


def _noisy_multiple(value: float, sigma: float, exponent: int, source: Randomness) -> int:
    """Return the integer m for which m 2^exponent is nearest to value + sigma N, with N ~ N(0, 1).

    N is drawn exactly, and all arithmetic is of integers.

    Args:
        value: the number that noise is added to.
        sigma: the noise's standard deviation.
        exponent: the spacing of the lattice is 2^exponent.
        source: the source of uniform random integers.
    """
    sign, k, x = standard_normal(source)  # N = sign (k + x)
    # A float is a fraction whose denominator is a power of two.
    value_numerator, value_denominator = value.as_integer_ratio()
    sigma_numerator, sigma_denominator = sigma.as_integer_ratio()
    while x.known < _FIRST_DIGITS:
        x.refine()
    while True:
        # The known digits of x enclose value + sigma N between two fractions. If both round to the
        # same multiple, so does every number in between.
        multiples = []
        for digits in (x.digits, x.digits + 1):
            magnitude = (k << x.known) + digits  # k + x, times 2^known
            noise_part = sign * sigma_numerator * value_denominator * magnitude
            value_part = value_numerator * sigma_denominator * (1 << x.known)
            denominator = value_denominator * sigma_denominator << x.known
            multiple = _nearest_multiple(value_part + noise_part, denominator, exponent)
            multiples.append(multiple)
        if multiples[0] == multiples[1]:
            return multiples[0]
        x.refine()


def _nearest_multiple(numerator: int, denominator: int, exponent: int) -> int:
    """Return the integer nearest to numerator / denominator / 2^exponent; a half is rounded up.

    The denominator is positive.
    """
    if exponent < 0:
        numerator <<= -exponent
    else:
        denominator <<= exponent
    return (2 * numerator + denominator) // (2 * denominator)


def _lattice_exponent(sigma: float) -> int:
    """Return e, where 2^e is the lattice's spacing for a standard deviation sigma."""
    return math.frexp(sigma)[1] - 1 - _LATTICE_BITS


def check_norms(features: np.ndarray) -> None:
    """Raise UnsoundError unless every row is finite and has a Euclidean length of at most 1.

    Args:
        features: [n, w], a row for each record.
    """
    squares = np.einsum("nw,nw->n", features, features, dtype=np.float64)
    # Lemma 1 of docs/proofs/features.md proves that rows have a length of at most 1, so this check
    # only finds broken libraries or memory. The computed sum of w squares is within w u of the true
    # one, relative, which the tolerance covers.
    width = features.shape[1]
    if not bool((squares <= 1 + width * 2 * UNIT).all()):
        raise UnsoundError(
            "a feature vector has a NaN or infinite value, or a norm above 1: scale the "
            "features by public constants"
        )
