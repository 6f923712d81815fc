"""Round numbers around those of a column: a range, or increasing edges where equal bins would not tell its rows apart."""

import math

import numpy as np

MOST_EDGES = 16
_STEPS = 20
_ENOUGH = 6


def round_range(numbers: np.ndarray, exact: bool = False) -> tuple[float, float]:
    """[low, high] around the numbers, multiples of a round step outward; ``exact``: as they are."""
    low, high = float(numbers.min()), float(numbers.max())
    if low == high:
        return (min(low, 0.0), max(high, 0.0)) if low else (0.0, 1.0)
    if exact or not math.isfinite(high - low):
        return low, high
    step = _nice((high - low) / _STEPS)
    return _tidy(math.floor(low / step) * step), _tidy(math.ceil(high / step) * step)


def heavy_tailed(numbers: np.ndarray, counts: np.ndarray, limits: tuple[float, float]) -> bool:
    """Whether equal bins of a range would leave almost all rows in few of them: as unlike as fewer than four even bins."""
    if len(numbers) <= MOST_EDGES:
        return False
    shares = np.histogram(numbers, MOST_EDGES, limits, weights=counts.astype(float))[0]
    shares = shares[shares > 0] / counts.sum()
    return bool(np.exp(-(shares * np.log(shares)).sum()) < 4)


def edges_of(numbers: np.ndarray, counts: np.ndarray, limits: tuple[float, float]) -> tuple[float, ...]:
    """At most ``MOST_EDGES`` increasing round numbers, the first and last of which are ``limits``.

    They lie near quantiles; a value that many rows share begins a bin of its own.

    Args:
        numbers: [n] distinct.
        counts: [n] how many rows have each.
    """
    order = np.argsort(numbers)
    numbers, counts = numbers[order], counts[order]
    often = counts > counts.sum() / 8
    bins = MOST_EDGES - 1 - often.sum()
    shares = np.cumsum(counts[~often]) / max(counts[~often].sum(), 1)
    places = np.searchsorted(shares, np.arange(1, bins) / bins)
    quantiles = numbers[~often][places[places < len(shares)]]
    for digits in (0, 2, 3):
        inner = {_near(float(number), digits) for number in quantiles}
        inner |= {_tidy(_floor(float(number), 2)) for number in numbers[often]}
        edges = (limits[0], *sorted(edge for edge in inner if limits[0] < edge < limits[1]), limits[1])
        if len(edges) >= _ENOUGH:
            break
    return edges


def _near(number: float, digits: int) -> float:
    """The nearest number of few significant digits; 0: the nearest of 1, 2 and 5 times a power of ten."""
    if not number:
        return 0.0
    if digits:
        return float(f"{number:.{digits}g}")
    power = 10.0 ** math.floor(math.log10(abs(number)))
    mantissa = abs(number) / power
    nearest = min((1.0, 2.0, 5.0, 10.0), key=lambda candidate: abs(math.log(candidate / mantissa)))
    return _tidy(math.copysign(nearest * power, number))


def _floor(number: float, digits: int) -> float:
    """The largest number of so many significant digits that is not above."""
    if not number:
        return 0.0
    step = 10.0 ** (math.floor(math.log10(abs(number))) - digits + 1)
    return math.floor(number / step) * step


def _nice(number: float) -> float:
    """The smallest of 1, 2 and 5 times a power of ten that is not below."""
    power = 10.0 ** math.floor(math.log10(number))
    return next(m * power for m in (1.0, 2.0, 5.0, 10.0) if m * power >= number * (1 - 1e-9))


def _tidy(number: float) -> float:
    """Without the last digits that arithmetic leaves: 0.3 for 0.30000000000000004."""
    return float(f"{number:.12g}") + 0.0
