"""What guarantees count with, each written once: roundoff, bisection, the Gaussian mechanism, labels and margins of logits.

Each docstring says on which side of the truth a number lies.
"""

import math
import sys
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from scipy.special import erfcx, log_ndtr, ndtr

from agt.errors import ConfigError

if TYPE_CHECKING:
    import torch

UNIT = 2.0**-53  # u, the unit roundoff of double precision
COVER = 1 + 2.0**-20  # times a bound: more than the dozen roundings that its own computation takes
UP = 1e-9  # relative; larger than the error of any special function used here
HALVINGS = 200  # from [0, 1] down to 2^-200, or to neighbouring numbers before that
_LOGARITHM = 2.0**-48  # relative, of a logarithm of Phi: 32 units in the last place

Number = TypeVar("Number", int, float)
Array = TypeVar("Array", np.ndarray, "torch.Tensor")

# -- rounding ----------------------------------------------------------------------------------------------------------


def next_up(number: float) -> float:
    """The next float (IEEE 754's nextUp): an upper bound on what rounded to ``number``; infinity stays."""
    return math.nextafter(number, math.inf)


def written(number: float) -> Decimal:
    """The decimal that a number prints as, with the fewest digits that tell it from its neighbours: 0.1 is a tenth."""
    return Decimal(repr(float(number)))


def gamma(n: float) -> float:
    """g(n) = n u / (1 - n u) to within 2 u, relative: n roundings in a row err by at most that (Higham 2002, lemma 3.1).

    n u < 1; not rounded up: ``gamma_up``, or whoever uses it covers the rest.
    """
    return n * UNIT / (1 - n * UNIT)


def gamma_up(n: float) -> float:
    """g(n), rounded up: by one part in 2^20, more than its own roundings and a few of what it is multiplied with."""
    return gamma(n) * COVER


# -- bisection ---------------------------------------------------------------------------------------------------------


def midpoint(low: float, high: float) -> float:
    """The mean, to nearest."""
    return (low + high) / 2


def whole_midpoint(low: int, high: int) -> int:
    """The mean, rounded down."""
    return (low + high) // 2


def bisect(
    holds: Callable[[Number], bool], low: Number, high: Number, middle: Callable[[Number, Number], Number]
) -> tuple[Number, Number]:
    """Where a condition that holds at ``low`` and fails at ``high`` changes.

    Args:
        holds: asked in between alone, never at the ends.
        middle: of two numbers, one between; where it returns an end, the two are neighbours.

    Returns:
        (low, high), neighbours, or apart by what ``HALVINGS`` leave. Whatever the condition is, monotone or not, the
        first was given or held when asked, the second was given or failed: a safe end needs no monotone arithmetic.
    """
    for _ in range(HALVINGS):
        value = middle(low, high)
        if not low < value < high:
            break
        low, high = (value, high) if holds(value) else (low, value)
    return low, high


# -- the Gaussian mechanism (Dong, Roth and Su 2022; Balle and Wang 2018) ----------------------------------------------


def gaussian_delta(epsilon: float, mu: float) -> float:
    """delta(epsilon) = Phi(-epsilon/mu + mu/2) - e^epsilon Phi(-epsilon/mu - mu/2) of a mu-GDP mechanism, by logarithms.

    What noise in training and the baselines spend. Within 10^-8, relative, for mu >= 10^-3 and delta >= 10^-20; for smaller
    ones the allowance for rounding outgrows delta in the end, and ``mills_delta`` is the sharper one.

    Args:
        epsilon: >= 0.
        mu: sensitivity over standard deviation; 0: nothing is learnt, delta = 0.

    Returns:
        delta, rounded up: what the difference may have lost to rounding is added. 0 where it is below 10^-300.
    """
    if mu == 0:
        return 0.0
    first = float(log_ndtr(mu / 2 - epsilon / mu))
    second = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    lost = _LOGARITHM * (1 + epsilon + abs(first) + abs(second))
    return math.exp(first) * (lost - math.expm1(min(second - first, 0.0)))


def mills_delta(epsilon: float, mu: float) -> float:
    """The same delta(epsilon) by Mills ratios, for any mu > 0; what releases and their composition spend.

    With x = epsilon/mu - mu/2 it is phi(x) (R(x) - R(x + mu)), R the Mills ratio (1 - Phi)/phi: no cancellation in the
    tail. R is convex and decreasing, R' = x R - 1, so mu (1 - x R(x)) bounds the difference from above where mu is so small
    that the difference itself would be lost in rounding.

    Returns:
        delta, rounded up by ``UP``, relative, and the least normal number: never 0. Below mu = 10^-4 by mu besides.
    """
    x = epsilon / mu - mu / 2
    density = math.exp(-x * x / 2) / math.sqrt(2 * math.pi) if abs(x) < 1e3 else 0.0
    if mu < 1e-4:
        delta = density * mu * (1 - x * _mills(x)) if density else 0.0
    elif x < 0:
        delta = float(ndtr(-x)) - density * _mills(x + mu)
    else:
        delta = density * (_mills(x) - _mills(x + mu))
    return min(1.0, max(delta, 0.0) * (1 + UP) + sys.float_info.min)


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The largest mu whose mechanism is (epsilon, delta)-private, rounded down; by bisection: delta grows with mu.

    Raises:
        ConfigError: epsilon < 0, or delta outside (0, 1): Gaussian noise gives no pure epsilon.
    """
    if not epsilon >= 0 or not math.isfinite(epsilon) or not 0 < delta < 1:
        raise ConfigError(
            f"epsilon={epsilon:g}, delta={delta:g}: Gaussian noise needs a finite epsilon >= 0 and 0 < delta < 1"
        )
    low, high = 0.0, 1.0
    while gaussian_delta(epsilon, high) <= delta:
        low, high = high, 2 * high
    return bisect(lambda mu: gaussian_delta(epsilon, mu) <= delta, low, high, midpoint)[0]


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The least epsilon > 0, rounded up, at which a mu-GDP mechanism is (epsilon, delta)-private; delta > 0."""
    high = 1.0
    while gaussian_delta(high, mu) > delta:
        high *= 2
    return bisect(lambda epsilon: gaussian_delta(epsilon, mu) > delta, 0.0, high, midpoint)[1]


def _mills(x: float) -> float:
    """(1 - Phi(x)) / phi(x), to nearest."""
    return float(math.sqrt(math.pi / 2) * erfcx(x / math.sqrt(2)))


# -- labels and margins ------------------------------------------------------------------------------------------------


def labels_of(logits: Array) -> Array:
    """[n] int64 of logits [n, J], exactly: the class of the greatest, the first of equals; of one logit, 1 if it is > 0."""
    labels: Array = (logits[:, 0] > 0) * 1 if logits.shape[1] == 1 else logits.argmax(1)
    return labels


def signed_margins(logits: np.ndarray) -> np.ndarray:
    """[lines, n] of logits [n, J], one rounding each: the logit, or the difference f_1 - f_0 of two; of more, each logit
    less the best other. A decision line is where one is 0."""
    rows = logits.T
    if len(rows) <= 2:
        return rows[-1:] - rows[:1] if len(rows) == 2 else rows
    second, first = np.partition(logits, -2, axis=1)[:, -2:].T
    return rows - np.where(rows == first, second, first)  # of equals, the best other is as great


def margins_of(logits: np.ndarray) -> np.ndarray:
    """[n] of logits [n, J], one rounding each: the lead of ``labels_of`` over the next class, >= 0; of one logit, |f|."""
    margins = signed_margins(logits)
    lead: np.ndarray = np.abs(margins[0]) if len(margins) == 1 else margins.max(axis=0)
    return lead
