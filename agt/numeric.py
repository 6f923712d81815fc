"""What guarantees count with, each written once: roundoff, bisection, the Gaussian mechanism,
labels and margins of logits.

Each docstring says on which side of the truth a number lies.

Where randomness comes from: the operating system's generator, or a seeded one for simulation.

A release is private only if nobody can predict the draws: SystemRandomness. What came from
SeededRandomness is a simulation: it says so (``simulated``) and carries no guarantee.

Gaussian noise drawn exactly, and rounded to a public lattice: what may be published of private
numbers.

Formal guarantees
    ``noisy`` draws values + sigma N, N standard normal in every coordinate, and rounds it to the
    nearest multiple of a public power of two, and then to the nearest float: post-processing,
    twice, of the Gaussian mechanism on real numbers. Nothing else is approximate. A float is a
    rational number, and it is that number which the mechanism has for its input.
    ``standard_normal`` draws N exactly, digit by digit, by Karney's rejection algorithm; a
    coordinate is rounded in integer arithmetic once enough digits are known to say which multiple
    is nearest. So the results have exactly the distribution of a rounded real Gaussian, and the
    attack on the low bits of floating-point noise (Mironov 2012) finds nothing: they are multiples
    of one constant. Only the time it takes depends on the draws; on the values hardly, as more
    digits than ``DIGITS`` are needed once in 2^39 coordinates.

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
COVER = 1 + 2.0**-20  # times a bound: more than the dozen roundings that its own computation takes
UP = 1e-9  # relative; larger than the error of any special function used here
HALVINGS = 200  # from [0, 1] down to 2^-200, or to neighbouring numbers before that
_LOGARITHM = 2.0**-48  # relative, of a logarithm of Phi: 32 units in the last place

Number = TypeVar("Number", int, float)
Array = TypeVar("Array", np.ndarray, "torch.Tensor")
Answer = TypeVar("Answer")

# -- rounding
# --------------------------------------------------------------------------------------------------


def next_up(number: float) -> float:
    """The next float (IEEE 754's nextUp): an upper bound on what rounded to ``number``; infinity
    stays.
    """
    return math.nextafter(number, math.inf)


def written(number: float) -> Decimal:
    """The decimal that a number prints as, with the fewest digits that tell it from its
    neighbours: 0.1 is a tenth.
    """
    return Decimal(repr(float(number)))


def gamma(n: float) -> float:
    """g(n) = n u / (1 - n u) to within 2 u, relative: n roundings in a row err by at most that
    (Higham 2002, lemma 3.1).

    n u < 1; not rounded up: ``gamma_up``, or whoever uses it covers the rest.
    """
    return n * UNIT / (1 - n * UNIT)


def gamma_up(n: float) -> float:
    """g(n), rounded up: by one part in 2^20, more than its own roundings and a few of what it is
    multiplied with.
    """
    return gamma(n) * COVER


# -- bisection
# --------------------------------------------------------------------------------------------------


def midpoint(low: float, high: float) -> float:
    """The mean, to nearest."""
    return (low + high) / 2


def whole_midpoint(low: int, high: int) -> int:
    """The mean, rounded down."""
    return (low + high) // 2


def bisect(
    holds: Callable[[Number], bool],
    low: Number,
    high: Number,
    middle: Callable[[Number, Number], Number],
) -> tuple[Number, Number]:
    """Where a condition that holds at ``low`` and fails at ``high`` changes.

    Args:
        holds: asked in between alone, never at the ends.
        middle: of two numbers, one between; where it returns an end, the two are neighbours.

    Returns:
        (low, high), neighbours, or apart by what ``HALVINGS`` leave. Whatever the condition is,
        monotone or not, the first was given or held when asked, the second was given or failed: a
        safe end needs no monotone arithmetic.
    """
    for _ in range(HALVINGS):
        value = middle(low, high)
        if not low < value < high:
            break
        low, high = (value, high) if holds(value) else (low, value)
    return low, high


# -- the Gaussian mechanism (Dong, Roth and Su 2022; Balle and Wang 2018)
# ----------------------------------------------


def gaussian_delta(epsilon: float, mu: float) -> float:
    """delta(epsilon) = Phi(-epsilon/mu + mu/2) - e^epsilon Phi(-epsilon/mu - mu/2) of a mu-GDP
    mechanism, by logarithms.

    What noise in training and the baselines spend. Within 10^-8, relative, for mu >= 10^-3 and
    delta >= 10^-20; for smaller ones the allowance for rounding outgrows delta in the end, and
    ``mills_delta`` is the sharper one.

    Args:
        epsilon: >= 0.
        mu: sensitivity over standard deviation; 0: nothing is learnt, delta = 0.

    Returns:
        delta, rounded up: what the difference may have lost to rounding is added. 0 where it is
            below 10^-300.
    """
    if mu == 0:
        return 0.0
    first = float(scipy.special.log_ndtr(mu / 2 - epsilon / mu))
    second = epsilon + float(scipy.special.log_ndtr(-mu / 2 - epsilon / mu))
    lost = _LOGARITHM * (1 + epsilon + abs(first) + abs(second))
    return math.exp(first) * (lost - math.expm1(min(second - first, 0.0)))


def mills_delta(epsilon: float, mu: float) -> float:
    """The same delta(epsilon) by Mills ratios, for any mu > 0; what releases and their composition
    spend.

    With x = epsilon/mu - mu/2 it is phi(x) (R(x) - R(x + mu)), R the Mills ratio (1 - Phi)/phi: no
    cancellation in the tail. R is convex and decreasing, R' = x R - 1, so mu (1 - x R(x)) bounds
    the difference from above where mu is so small that the difference itself would be lost in
    rounding.

    Returns:
        delta, rounded up by ``UP``, relative, and the least normal number: never 0. Below mu =
            10^-4 by mu besides.
    """
    x = epsilon / mu - mu / 2
    density = math.exp(-x * x / 2) / math.sqrt(2 * math.pi) if abs(x) < 1e3 else 0.0
    if mu < 1e-4:
        delta = density * mu * (1 - x * _mills(x)) if density else 0.0
    elif x < 0:
        delta = float(scipy.special.ndtr(-x)) - density * _mills(x + mu)
    else:
        delta = density * (_mills(x) - _mills(x + mu))
    return min(1.0, max(delta, 0.0) * (1 + UP) + sys.float_info.min)


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The largest mu whose mechanism is (epsilon, delta)-private, rounded down; by bisection: delta
    grows with mu.

    Raises:
        ConfigError: epsilon < 0, or delta outside (0, 1): Gaussian noise gives no pure epsilon.
    """
    if not epsilon >= 0 or not math.isfinite(epsilon) or not 0 < delta < 1:
        raise ConfigError(
            f"noise: epsilon={epsilon:g} and delta={delta:g} are out of range: Gaussian noise "
            "needs a finite epsilon >= 0, and 0 < delta < 1"
        )
    low, high = 0.0, 1.0
    while gaussian_delta(epsilon, high) <= delta:
        low, high = high, 2 * high
    return bisect(lambda mu: gaussian_delta(epsilon, mu) <= delta, low, high, midpoint)[0]


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The least epsilon > 0, rounded up, at which a mu-GDP mechanism is (epsilon,
    delta)-private; delta > 0.
    """
    high = 1.0
    while gaussian_delta(high, mu) > delta:
        high *= 2
    return bisect(lambda epsilon: gaussian_delta(epsilon, mu) > delta, 0.0, high, midpoint)[1]


def _mills(x: float) -> float:
    """(1 - Phi(x)) / phi(x), to nearest."""
    return float(math.sqrt(math.pi / 2) * scipy.special.erfcx(x / math.sqrt(2)))


# -- labels and margins
# ------------------------------------------------------------------------------------------------


def logits_of(weight: ArrayLike, phi: np.ndarray) -> np.ndarray:
    """[n, J] float64, of weights [J, w] and public features [n, w]."""
    return np.asarray(phi.astype(np.float64, copy=False) @ np.asarray(weight).T)


def labels_of(logits: Array) -> Array:
    """[n] int64 of logits [n, J], exactly: the class of the greatest, the first of equals; of
    one logit, 1 if it is > 0.
    """
    return (logits[:, 0] > 0) * 1 if logits.shape[1] == 1 else logits.argmax(1)


def signed_margins(logits: np.ndarray) -> np.ndarray:
    """[lines, n] of logits [n, J], one rounding each: the logit, or the difference f_1 - f_0 of
    two; of more, each logit less the best other. A decision line is where one is 0.
    """
    rows = logits.T
    if len(rows) <= 2:
        return rows[-1:] - rows[:1] if len(rows) == 2 else rows
    second, first = np.partition(logits, -2, axis=1)[:, -2:].T
    return rows - np.where(rows == first, second, first)  # of equals, the best other is as great


def margins_of(logits: np.ndarray) -> np.ndarray:
    """[n] of logits [n, J], one rounding each: the lead of ``labels_of`` over the next class, >=
    0; of one logit, |f|.
    """
    margins = signed_margins(logits)
    return np.abs(margins[0]) if len(margins) == 1 else margins.max(axis=0)


class Randomness(Protocol):
    """Uniform random numbers."""

    @property
    def simulated(self) -> bool:
        """True if the draws can be predicted, so that nothing drawn with them is a private
        release.
        """

    def words(self, n: int) -> np.ndarray:
        """[n, 2] uint64: n uniform 128-bit integers, the more significant half first."""

    def below(self, bound: int) -> int:
        """A uniform integer in 0..bound-1, exactly."""


class SystemRandomness:
    """The operating system's cryptographic generator."""

    simulated = False

    def words(self, n: int) -> np.ndarray:
        """[n, 2] uint64: n uniform 128-bit integers, the more significant half first."""
        return np.frombuffer(os.urandom(16 * n), dtype=np.uint64).reshape(n, 2)

    def below(self, bound: int) -> int:
        """A uniform integer in 0..bound-1, exactly."""
        return secrets.randbelow(bound)


class SeededRandomness:
    """A seeded generator (PCG64): the same seed gives the same draws. For simulation only.

    Raises:
        ConfigError: the seed is negative.
    """

    simulated = True

    def __init__(self, seed: int) -> None:
        if seed < 0:
            raise ConfigError(f"seed = {seed}: give a whole number of at least 0")
        self._generator = np.random.default_rng(seed)

    def words(self, n: int) -> np.ndarray:
        """[n, 2] uint64: n pseudo-random 128-bit integers, the more significant half first."""
        return self._generator.integers(0, 2**64, size=(n, 2), dtype=np.uint64)

    def below(self, bound: int) -> int:
        """A pseudo-random integer in 0..bound-1: as many bits as the bound has, again until they
        are below it.
        """
        bits = bound.bit_length()
        while True:
            draw = int.from_bytes(self._generator.bytes((bits + 7) // 8), "little") & (
                (1 << bits) - 1
            )
            if draw < bound:
                return draw


@dataclass(frozen=True)
class Draw:
    """One draw of a release: all that its distribution depends on.

    Attributes:
        law: the name of the distribution. ``uniform`` has no private input.
        public: its parameters, and the shape of what is drawn: the same for all neighbours.
        private: the private input: numbers that noise is added to, or labels with their evidence.
    """

    law: Literal["uniform", "gaussian", "geometric", "labels"]
    public: tuple[object, ...]
    private: object = None


class ObservedRandomness(ABC):
    """Randomness that answers each draw of a release itself: an audit's (agt_audit/replay.py)."""

    @abstractmethod
    def answer(self, draw: Draw, sample: Callable[[Randomness], Answer]) -> Answer:
        """Return what the draw gives. Args: as of ``answered``."""


def answered(source: Randomness, draw: Draw, sample: Callable[[Randomness], Answer]) -> Answer:
    """Return ``sample(source)``, or what an audit that observes the source answers in its place.

    Every draw whose distribution depends on private data goes through this function.

    Args:
        draw: what the distribution depends on.
        sample: draws from it.
    """
    if isinstance(source, ObservedRandomness):
        return source.answer(draw, sample)
    return sample(source)


FINE = 24  # the lattice's step is at most 2^-24 sigma
CHUNK = 32  # digits drawn at once
DIGITS = 64  # known of a draw before it is rounded
LARGEST = 2.0**900


def step_of(sigma: float) -> float:
    """The lattice that noise of this standard deviation is rounded to: a power of two."""
    return math.ldexp(1.0, _exponent(sigma))


def noisy(values: np.ndarray, sigma: float, source: Randomness) -> np.ndarray:
    """values + N(0, sigma^2 I), rounded to multiples of ``step_of(sigma)``; float64, shape as
    given.

    Raises:
        UnsoundError: a value is NaN, infinite, or beyond ``LARGEST``, which no proved training
            reaches. No size beside the noise is refused: a refusal that depends on the values would
            tell something about them.
    """
    values, exponent = np.asarray(values, dtype=np.float64), _exponent(sigma)
    if not bool((np.abs(values) < LARGEST).all()):  # NaN compares false
        raise UnsoundError(
            "a weight is NaN, infinite, or larger than any number that training reaches, so "
            "nothing is released"
        )

    def sample(source: Randomness) -> np.ndarray:
        places = [_noisy_place(float(value), sigma, exponent, source) for value in values.ravel()]
        return np.array([float(place * Fraction(2) ** exponent) for place in places]).reshape(
            values.shape
        )

    return answered(source, Draw("gaussian", (sigma, values.shape), values), sample)


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

    Karney's algorithm N: k with probability exp(-k/2)(1 - exp(-1/2)); kept with probability
    exp(-k(k-1)/2); x uniform, kept with probability exp(-x(2k+x)/2): in all proportional to
    exp(-(k+x)^2/2).
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
    """True with probability exp(-1/2): is the run 1/2 > z_1 > z_2 > ... of uniforms of even
    length (von Neumann)?
    """
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
    """True with probability exp(-x (2k+x) / (2k+2)): the same run below x, each link kept with
    (2k+x) / (2k+2).
    """
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
    # denominators are powers of two
    (top, bottom), (high, low) = value.as_integer_ratio(), sigma.as_integer_ratio()
    while x.known < DIGITS:
        x.refine()
    while True:
        ends = []
        for digits in (x.digits, x.digits + 1):  # N lies between these two
            numerator = top * low * (1 << x.known) + sign * high * bottom * (
                (k << x.known) + digits
            )
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


def _exponent(sigma: float) -> int:
    """Of the lattice's step."""
    return math.frexp(sigma)[1] - 1 - FINE


def check_norms(phi: np.ndarray) -> None:
    """Raise UnsoundError unless every row is finite and at most 1 long."""
    squares = np.einsum("nd,nd->n", phi, phi, dtype=np.float64)
    # The computed sum of squares is within w u of the true one: a row that passes is at most 1 + w
    # u long, and Lemma 1 of docs/proofs/features.md says 1. This check is for what no proof
    # covers: a broken library or broken memory.
    if not bool((squares <= 1 + phi.shape[1] * 2 * UNIT).all()):
        raise UnsoundError(
            "a feature vector is not finite or is longer than 1, so its features are out of range"
        )
