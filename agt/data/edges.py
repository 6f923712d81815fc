"""Round numbers around those of a column: a range, or increasing edges where equal bins would not tell its rows apart."""

import math

import numpy as np

MOST_EDGES = 16
_STEPS = 20
_ENOUGH = 10
_GRIDS = ((1, 2, 5), (1, 1.5, *range(2, 10)), tuple(step / 10 for step in range(10, 100)))


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


def edges_of(numbers: np.ndarray, counts: np.ndarray) -> tuple[float, ...]:
    """At most ``MOST_EDGES`` increasing round numbers around all of them, near their quantiles.

    A value that many rows share (no payment at all, -1 for never) has a bin for itself as far as round numbers allow.

    Args:
        numbers: [n] distinct, two at least.
        counts: [n] how many rows have each.
    """
    order = np.argsort(numbers)
    numbers, counts = numbers[order], counts[order]
    often = counts > counts.sum() / 8
    alone = {edge for place in np.flatnonzero(often) for edge in _around(numbers, int(place))}
    low = float(numbers[0]) if often[0] else _tidy(_floor(float(numbers[0]), 1))
    low, high = 0.0 if 0 < low < 0.01 * numbers[-1] else low, _tidy(-_floor(-float(numbers[-1]), 1))
    bins = max(MOST_EDGES - 1 - len(alone), 1)
    shares = np.cumsum(counts[~often]) / max(counts[~often].sum(), 1)
    places = np.searchsorted(shares, np.arange(1, bins) / bins)
    quantiles = numbers[~often][places[places < len(shares)]]
    edges: tuple[float, ...] = (low, high)
    for grid in _GRIDS:
        inner = {_near(float(number), grid) for number in quantiles} | alone
        edges = (low, *sorted(edge for edge in inner if low < edge < high), high)
        if len(edges) >= _ENOUGH:
            break
    return edges


def _around(numbers: np.ndarray, place: int) -> tuple[float, ...]:
    """Edges that part one value from those beside it: at or just below it, and below the next one."""
    number = float(numbers[place])
    if place + 1 == len(numbers):
        return (_tidy(_floor(number, 3)),)
    above = float(numbers[place + 1])
    rounded = next((edge for digits in (1, 2, 3) if (edge := _floor(above, digits)) > number), above)
    return _tidy(_floor(number, 3)), _tidy(rounded)


def _near(number: float, grid: tuple[float, ...]) -> float:
    """The nearest of these numbers times a power of ten, with the sign it has."""
    if not number:
        return 0.0
    power = 10.0 ** math.floor(math.log10(abs(number)))
    nearest = min((*grid, 10.0), key=lambda candidate: abs(math.log(candidate * power / abs(number))))
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
