"""Lines between queries, and bisection for where a value changes along them."""

from collections.abc import Callable

import numpy as np

HALVINGS = 60  # steps of a bisection of a line between two queries
Read = Callable[[np.ndarray], np.ndarray]
"""Queries [n, ...] -> [n] one value for each, such as its label."""


def on_line(begin: np.ndarray, end: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Return points on lines, [n, ...] float64.

    Args:
        begin: [n, ...] where the lines begin.
        end: [n, ...] where they end.
        share: [n] how far along its line each point lies; 0 is the beginning, 1 the end.
    """
    share_of_row = share.reshape(-1, *[1] * (begin.ndim - 1))
    return begin + share_of_row * (end - np.asarray(begin, dtype=np.float64))


def bisected(read: Read, begin: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Find a point on each of n lines at which a value changes, by ``HALVINGS`` bisections.

    Args:
        read: computes the value, such as a label, of points [n, ...]. It is assumed to differ
            between the two ends of each line; this is not checked.
        begin: [n, ...] where the lines begin.
        end: [n, ...] where they end.

    Returns:
        ``(low, high)``, both [n]: shares of each line, as in ``on_line``, with low < high. At
        ``low`` the value is the one at the line's beginning, at ``high`` it is another.
    """
    low = np.zeros(len(begin))
    high = np.ones(len(begin))
    value_at_beginning = read(begin)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        is_unchanged = read(on_line(begin, end, middle)) == value_at_beginning
        low = np.where(is_unchanged, middle, low)
        high = np.where(is_unchanged, high, middle)
    return low, high
