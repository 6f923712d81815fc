"""What Gaussian noise on Poisson batches may betray: its privacy curve, and which mistakes of an attack contradict it.

Formal guarantees
    One step adds N(0, z^2) to a sum into which a record of size 1 enters with probability q. Against it stand
    P = (1 - q) N(0, z^2) + q N(1, z^2) with the record and Q = N(0, z^2) without; the pair (P, Q), and (Q, P), dominates
    one record added or removed in every dataset and dimension (Zhu, Dong and Wang 2022), and pairs compose. The loss
    log dP/dQ is increasing in the sum, so its law is known in closed form; all steps' loss is its convolution, by FFT on a
    grid whose mean is the exact one (Gopi et al. 2021). delta(eps) is numerical, to about a thousandth of epsilon, and no
    bound: the tests compare it with two libraries. Full batches are Gaussian, mu = sqrt(steps)/z, and are rounded up.

    An attack with rates alpha of false alarms and beta of misses contradicts the curve where alpha + e^eps beta or
    e^eps alpha + beta is below 1 - delta(eps) for one eps: all of the curve is claimed, so no eps need be fixed before.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import ndtr, ndtri

from agt.numeric import bisect, gaussian_delta, gaussian_epsilon, gaussian_mu, midpoint

_REACH = 9.0  # standard deviations of a step's noise, and of all steps' loss, that the grid covers
_FINE = 0.02  # a cell's width times the square root of the steps
_CELLS = 2**19  # of the grid, at most
_POINTS = 3000  # of a curve that are kept
_SMALLEST = 1e-13  # delta that the grid tells from rounding
_LOUDEST, _QUIETEST = 1e4, 0.05  # noise that is looked for
Rates = float | np.ndarray


@dataclass(frozen=True)
class Curve:
    """The privacy curve of so many steps.

    Attributes:
        noise: z, the noise's standard deviation over the clip; > 0.
        rate: q, with which a record enters a batch; 1: full batches.
        steps: how many.
    """

    noise: float
    rate: float
    steps: int

    def __post_init__(self) -> None:
        if not (self.noise > 0 and 0 < self.rate <= 1 and self.steps >= 1):
            raise ValueError(f"{self} is no mechanism: noise > 0, 0 < rate <= 1, steps >= 1")

    @property
    def gaussian(self) -> float | None:
        """mu of Gaussian differential privacy; None for sampled batches, whose curve is no Gaussian's."""
        return math.sqrt(self.steps) / self.noise if self.rate == 1 else None

    def epsilon(self, delta: float) -> float:
        """The least epsilon at ``delta``, to within the grid; 0 < delta < 1."""
        if self.gaussian is not None:
            return gaussian_epsilon(self.gaussian, delta)
        epsilons, deltas = self.points
        return float(np.interp(-math.log(delta), -np.log(np.maximum(deltas, _SMALLEST)), epsilons))

    def delta(self, epsilon: float) -> float:
        """The least delta at ``epsilon`` >= 0."""
        if self.gaussian is not None:
            return gaussian_delta(epsilon, self.gaussian)
        epsilons, deltas = self.points
        return float(np.interp(epsilon, epsilons, deltas))

    def excludes(self, alpha: Rates, beta: Rates) -> np.ndarray:
        """Whether no attack with at most these rates of false alarms and misses exists against it; elementwise."""
        alpha, beta = np.asarray(alpha, dtype=float), np.asarray(beta, dtype=float)
        if self.gaussian is not None:
            return np.asarray(_told_apart(alpha, beta) > self.gaussian)
        epsilons, deltas = self.points
        factor = np.exp(np.minimum(epsilons, 700))
        less, more = alpha[..., None], beta[..., None]
        return np.asarray((np.minimum(less + factor * more, factor * less + more) < 1 - deltas).any(axis=-1))

    @cached_property
    def points(self) -> tuple[np.ndarray, np.ndarray]:
        """epsilons >= 0, rising, and their deltas: the greater of both directions; as many as the curve's shape needs.

        Of sampled batches: a Gaussian's have a closed form.
        """
        step, half = self._grid
        losses, epsilons = step * np.arange(-half, half), step * np.arange(0, half)
        pairs = [
            _deltas(_composed(law, mean, step, self.steps), losses, epsilons) for law, mean in self._losses(step, half)
        ]
        deltas = np.maximum(*pairs)
        some = np.unique(np.linspace(0, np.count_nonzero(deltas > _SMALLEST), _POINTS).astype(int).clip(max=half - 1))
        return epsilons[some], deltas[some]

    @cached_property
    def _grid(self) -> tuple[float, int]:
        """The cells' width, and how many lie on either side of 0."""
        far = _loss(np.array([1 + _REACH * self.noise]), self.noise, self.rate)[0]
        (mean, spread), (low, narrow) = self._moments
        span = max(abs(mean), abs(low)) * self.steps + _REACH * math.sqrt(self.steps) * max(spread, narrow) + far
        half = next_fast_len(min(_CELLS // 2, math.ceil(span * math.sqrt(self.steps) / _FINE)), real=True)
        return span / half, half

    @cached_property
    def _moments(self) -> list[tuple[float, float]]:
        """Mean and standard deviation of log dP/dQ of one step under P, and under Q, by the midpoint rule."""
        at = np.linspace(-_REACH * self.noise, 1 + _REACH * self.noise, 10_001)
        loss, moments = _loss((at[1:] + at[:-1]) / 2, self.noise, self.rate), []
        for present in (True, False):
            mass = np.diff(self._law(at, present))
            mean = float(mass @ loss)
            moments.append((mean, math.sqrt(float(mass @ (loss - mean) ** 2))))
        return moments

    def _law(self, at: np.ndarray, present: bool) -> np.ndarray:
        """The distribution function of the noisy sum, with the record or without."""
        without: np.ndarray = ndtr(at / self.noise)
        return (1 - self.rate) * without + self.rate * ndtr((at - 1) / self.noise) if present else without

    def _losses(self, step: float, half: int) -> tuple[tuple[np.ndarray, float], ...]:
        """One step's loss on the grid, with its exact mean: log dP/dQ under P, and log dQ/dP under Q."""
        edges = step * (np.arange(-half, half + 1) - 0.5)
        above = np.expm1(np.minimum(edges, 700)) + self.rate  # e^v - (1 - q)
        at = np.full(len(edges), -math.inf)
        inside = above > 0
        at[inside] = self.noise**2 * (np.log(above[inside]) - math.log(self.rate)) + 0.5
        laws = []
        for present, (mean, _) in zip((True, False), self._moments, strict=True):
            mass = np.diff(self._law(at, present))
            laws.append((mass, mean) if present else (np.roll(mass[::-1], 1), -mean))
        return tuple(laws)


def noise_for(epsilon: float, delta: float, rate: float, steps: int) -> float:
    """The least noise multiplier at which so many steps are (epsilon, delta)-private, to a thousandth of it."""
    if rate == 1:
        return math.sqrt(steps) / gaussian_mu(epsilon, delta)
    low = high = 1.0
    while curve(high, rate, steps).epsilon(delta) > epsilon:
        low, high = high, 2 * high
    while low == high or curve(low, rate, steps).epsilon(delta) <= epsilon:
        low, high = low / 2, min(high, low)
        if low < 1e-2:
            return high
    while high > 1.001 * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if curve(middle, rate, steps).epsilon(delta) <= epsilon else (middle, high)
    return high


@lru_cache(maxsize=1024)
def curve(noise: float, rate: float, steps: int) -> Curve:
    """The same curve again where it is met again."""
    return Curve(noise, rate, steps)


def least_epsilon(alpha: Rates, beta: Rates, rate: float, steps: int, delta: float) -> tuple[float, int]:
    """The least epsilon at ``delta`` of any noise whose curve allows attacks with such rates; 0: any noise does.

    Args:
        alpha, beta: upper limits of the rates of false alarms and misses, of several attacks.

    Returns:
        That, and the index of the attack that shows it.
    """
    alpha, beta = np.atleast_1d(alpha), np.atleast_1d(beta)
    if rate == 1:
        told = _told_apart(alpha, beta)
        best = int(told.argmax())
        return (gaussian_epsilon(float(told[best]), delta) if told[best] > 0 else 0.0), best
    epsilon, high = loudest_refused(lambda curve: bool(curve.excludes(alpha, beta).any()), rate, steps, delta)
    return epsilon, int(curve(high, rate, steps).excludes(alpha, beta).argmax())


def loudest_refused(refuses: Callable[[Curve], bool], rate: float, steps: int, delta: float) -> tuple[float, float]:
    """epsilon at ``delta`` of the least noise that is surely refused, to a thousandth, and that noise: more is, too.

    0 where even the most noise that is looked for is not: nothing is shown.
    """
    low, high = _QUIETEST, _LOUDEST
    if not refuses(curve(high, rate, steps)):
        return 0.0, high
    while high > 1.001 * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if refuses(curve(middle, rate, steps)) else (middle, high)
    return curve(high, rate, steps).epsilon(delta), high


def least_from_steps(right: float, rate: float, steps: int, delta: float) -> float:
    """The same where, in one step, a record that is in by a fair coin is told from one that is not so often.

    A step's best guess is right with probability 1/2 + q (Phi(1/(2z)) - 1/2): the total variation of P and Q. So z is at
    most the one at which that is ``right``, and the accountant composes it: bugs of the composition go unseen.
    """
    if right <= 0.5:
        return 0.0

    def told(noise: float) -> float:
        return 0.5 + rate * (float(ndtr(0.5 / noise)) - 0.5)

    _, high = bisect(lambda noise: told(noise) >= right, _QUIETEST, _LOUDEST, midpoint)
    return 0.0 if high == _LOUDEST else curve(high, rate, steps).epsilon(delta)


def _told_apart(alpha: np.ndarray, beta: np.ndarray) -> np.ndarray:
    """mu of the least Gaussian mechanism that allows such rates: at most 0 where any does."""
    return np.asarray(-ndtri(alpha) - ndtri(beta))


def _loss(at: np.ndarray, noise: float, rate: float) -> np.ndarray:
    """log dP/dQ at these sums."""
    gain = (2 * at - 1) / (2 * noise**2)
    return gain if rate == 1 else np.logaddexp(math.log1p(-rate), math.log(rate) + gain)


def _composed(law: np.ndarray, mean: float, step: float, steps: int) -> tuple[np.ndarray, float]:
    """All steps' law on the same grid, and by how much to move it so that the mean is exact."""
    half = len(law) // 2
    total = irfft(rfft(np.roll(law, -half)) ** steps, len(law))
    drift = mean - float(law @ (step * np.arange(-half, half)))
    return np.maximum(np.roll(total, half), 0), steps * drift


def _deltas(composed: tuple[np.ndarray, float], losses: np.ndarray, epsilons: np.ndarray) -> np.ndarray:
    """delta at each epsilon: the sum of p(v) (1 - e^(eps - v)) over losses v > eps."""
    law, drift = composed
    at = losses + drift
    positive = at > 0
    at, mass = at[positive], law[positive]
    tail = np.append(np.cumsum(mass[::-1])[::-1], 0)
    bent = np.append(np.cumsum((mass * np.exp(-at))[::-1])[::-1], 0)
    first = np.searchsorted(at, epsilons, side="right")
    curve: np.ndarray = np.clip(tail[first] - np.exp(np.minimum(epsilons, 700)) * bent[first], 0, 1)
    return np.minimum.accumulate(curve)
