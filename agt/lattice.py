"""Gaussian noise drawn exactly, and rounded to a public lattice: what may be published of private numbers.

Formal guarantees
    ``noisy`` draws values + sigma N, N standard normal in every coordinate, and rounds it to the nearest multiple of a
    public power of two, and then to the nearest float: post-processing, twice, of the Gaussian mechanism on real numbers.
    Nothing else is approximate. A float is a rational number, and it is that number which the mechanism has for its input.
    ``standard_normal`` draws N exactly, digit by digit, by Karney's rejection algorithm; a coordinate is rounded in integer
    arithmetic once enough digits are known to say which multiple is nearest. So the results have exactly the distribution
    of a rounded real Gaussian, and the attack on the low bits of floating-point noise (Mironov 2012) finds nothing: they
    are multiples of one constant. Only the time it takes depends on the draws; on the values hardly, as more digits than
    ``DIGITS`` are needed once in 2^39 coordinates.

Source: Karney (2016), Sampling exactly from the normal distribution, algorithm N.
"""

import math
from fractions import Fraction

import numpy as np

from agt.errors import UnsoundError
from agt.randomness import Randomness

FINE = 24  # the lattice's step is at most 2^-24 sigma
CHUNK = 32  # digits drawn at once
DIGITS = 64  # known of a draw before it is rounded
LARGEST = 2.0**900


def step_of(sigma: float) -> float:
    """The lattice that noise of this standard deviation is rounded to: a power of two."""
    return math.ldexp(1.0, _exponent(sigma))


def noisy(values: np.ndarray, sigma: float, source: Randomness) -> np.ndarray:
    """values + N(0, sigma^2 I), rounded to multiples of ``step_of(sigma)``; float64, shape as given.

    Raises:
        UnsoundError: a value is NaN, infinite, or beyond ``LARGEST``, which no proved training reaches. No size beside the
            noise is refused: a refusal that depends on the values would tell something about them.
    """
    values, exponent = np.asarray(values, dtype=np.float64), _exponent(sigma)
    if not bool((np.abs(values) < LARGEST).all()):  # NaN compares false
        raise UnsoundError("a weight is not finite, or beyond all numbers in use: nothing is released")
    places = [_noisy_place(float(value), sigma, exponent, source) for value in values.ravel()]
    return np.array([float(place * Fraction(2) ** exponent) for place in places]).reshape(values.shape)


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
    while x.known < DIGITS:
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


def _exponent(sigma: float) -> int:
    """Of the lattice's step."""
    return math.frexp(sigma)[1] - 1 - FINE
