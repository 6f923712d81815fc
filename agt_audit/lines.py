"""Lines between queries, and bisection for where a value changes along them."""

from collections.abc import Callable
from functools import partial

import numpy as np

from agt.models.model import Model

MAX_ANCHORS = 2000  # records among which ends of lines are chosen
HALVINGS = 60  # steps of a bisection of a line between two queries
Read = Callable[[np.ndarray], np.ndarray]
"""Queries [n, ...] -> [n] one value for each, such as its label."""
LabelsAndDistances = tuple[np.ndarray, np.ndarray]
"""Labels [n] and stable distances [n] of n queries."""


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


def change_points(
    read: Callable[[np.ndarray], LabelsAndDistances],
    low: np.ndarray,
    high: np.ndarray,
    level: np.ndarray,
) -> np.ndarray:
    """Find queries on lines at which the label changes or a certificate ends, by bisection.

    Args:
        read: queries -> their labels and stable distances.
        low: [n, ...] where the lines begin.
        high: [n, ...] where they end.
        level: [n] which change to find on each line. 0: of the label. Otherwise: of the label, or
            of whether the stable distance is at least this.

    Returns:
        [2 m, ...] two queries for each of the m lines whose ends differ: query i lies just before
        a change, and query m + i just after it.
    """

    def label_and_certified(queries: np.ndarray, level: np.ndarray) -> np.ndarray:
        label, distance = read(queries)
        return 2 * label + ((distance >= level) & (level > 0))

    changes = label_and_certified(low, level) != label_and_certified(high, level)
    rows = np.flatnonzero(changes)
    low = low[rows]
    high = high[rows]
    if not len(rows):
        return low
    before, after = bisected(partial(label_and_certified, level=level[rows]), low, high)
    return np.concatenate([on_line(low, high, before), on_line(low, high, after)])


def points_between_labels(
    model: Model, anchors: np.ndarray, count: int, rng: np.random.Generator
) -> np.ndarray:
    """Return points at which a model's label changes, on lines between random records.

    Args:
        model: predicts the labels.
        anchors: [n, ...] features of the records between which lines are drawn.
        count: the largest number of points; there are fewer if most records get the same label.
        rng: draws the lines.

    Returns:
        [S, ...] one point on each of S <= count lines between records with different labels; if
        the model gives all of them the same label, the first ``count`` records.
    """
    points = np.asarray(anchors[np.sort(rng.permutation(len(anchors))[:MAX_ANCHORS])])
    labels = model.predict(points)
    pairs = []
    for start in rng.permutation(len(points))[: 4 * count]:
        rows_of_other_label = rng.permutation(np.flatnonzero(labels != labels[start]))
        if len(rows_of_other_label):
            pairs.append((start, rows_of_other_label[0]))
    if not pairs:
        return points[:count]
    first, second = np.array(pairs[:count]).T
    begin = points[first]
    end = points[second]
    _, change = bisected(model.predict, begin, end)
    return on_line(begin, end, change)
