"""How much a model memorises a record, and how much one record decides the answer to another, from subset models.

    memorisation of j       P(h(x_j) = y_j | j in S) - P(h(x_j) = y_j | j not in S)
    influence of i on t     P(h(x_t) = y_t | i in S, t not in S) - P(h(x_t) = y_t | i not in S, t not in S)

over the draw of the subset S that h is trained on (Feldman 2020; Feldman and Zhang 2020). Both are a ``Contrast``: of the
models with a record and of those without it, how many are right.

Formal guarantees
    Let whether j is in S be drawn independently of the other records (each unit by a fair coin, shadows.py), and models be
    independent, or paired on both halves of one draw. Given which models have j, those that have it are independent draws
    of h given j in S, and those without it likewise; a pair has one of each. So each count is binomial, the difference of
    the shares has the contrast for its mean, and each share lies within its Clopper-Pearson limits but with the error
    probability given to them: a union bound, whether or not the two counts depend on each other. ``bounds`` shares the
    error among both ends of both shares, and among all contrasts that are looked at. ``error``, a standard error, takes
    the counts for independent, which within pairs they need not be.
    The diagonal. A record's influence on its own answer is its memorisation, and no influence: t's answer is asked only of
    models without t, none of which has t, so that pair is undefined, and never among ``strongest``.

Left out one at a time, with everything else as it is, memorisation is 0 wherever the label is certified (stable distance
1 or more): that is a claim, and ``left_out`` puts it to the test.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from agt.audit.edits import Edited
from agt.audit.estimates import lower_limit, upper_limit
from agt.audit.retraining import Refused, neighbours_of
from agt.errors import ConfigError
from agt.models.model import Model

BLOCK = 64  # targets whose influences are worked out at once


@dataclass(frozen=True)
class Contrast:
    """How many of the models with a record, and of those without it, are right; arrays of one shape.

    Attributes:
        right_with, having: right ones of those with it; how many these are.
        right_without, without: the same of those without it.
    """

    right_with: np.ndarray
    having: np.ndarray
    right_without: np.ndarray
    without: np.ndarray

    @property
    def value(self) -> np.ndarray:
        """The difference of the shares; NaN where no model has the record, or all have it."""
        with np.errstate(invalid="ignore", divide="ignore"):
            difference: np.ndarray = self.right_with / self.having - self.right_without / self.without
        return difference

    @property
    def error(self) -> np.ndarray:
        """Standard errors of the values; infinite for a share of fewer than two models."""

        def variance(right: np.ndarray, count: np.ndarray) -> np.ndarray:
            share = right / np.maximum(count, 1)
            return np.where(count > 1, share * (1 - share) / np.maximum(count - 1, 1), np.inf)

        spread: np.ndarray = np.sqrt(variance(self.right_with, self.having) + variance(self.right_without, self.without))
        return spread

    def bounds(self, confidence: float, looks: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """(least, greatest) contrasts; all that are looked at lie between theirs with this confidence."""
        error = (1 - confidence) / looks / 4
        low_with, high_with = _limits(self.right_with, self.having, error)
        low_without, high_without = _limits(self.right_without, self.without, error)
        return low_with - high_without, high_with - low_without

    def take(self, places: np.ndarray) -> "Contrast":
        """Those at some places of the flattened arrays."""
        parts = (self.right_with, self.having, self.right_without, self.without)
        return Contrast(*(part.ravel()[places] for part in parts))


def needed(records: int, confidence: float) -> int:
    """How many models each record must be in, and as many out of, for a bound above 0 to be possible."""
    return math.floor(math.log2(4 * records / (1 - confidence))) + 1


def memorisation(included: np.ndarray, right: np.ndarray) -> Contrast:
    """Of each record.

    Args:
        included: [m, n] bool, which model was trained on which record.
        right: [m, n] bool, which model gives a record its own label.

    Raises:
        ConfigError: shapes that do not go together.
    """
    _check(included, right)
    having = included.sum(axis=0)
    return Contrast((included & right).sum(axis=0), having, (~included & right).sum(axis=0), len(included) - having)


def influence(included: np.ndarray, right: np.ndarray, sources: np.ndarray, targets: np.ndarray) -> Contrast:
    """[len(sources), len(targets)] of each source on each target, asked of the models without the target.

    Args:
        included, right: as for ``memorisation``.
        sources, targets: places of records.
    """
    _check(included, right)
    had, absent = included[:, sources].astype(np.float32), ~included[:, targets]
    hits = (absent & right[:, targets]).astype(np.float32)
    asked = absent.astype(np.float32)
    right_with, having = had.T @ hits, had.T @ asked
    return Contrast(right_with, having, hits.sum(axis=0) - right_with, asked.sum(axis=0) - having)


def strongest(
    included: np.ndarray, right: np.ndarray, sources: np.ndarray, targets: np.ndarray, count: int
) -> tuple[np.ndarray, Contrast]:
    """([p, 2] places of source and target, their contrasts): the pairs of greatest influence, the greatest first."""
    best: list[tuple[float, int, int, Contrast]] = []
    for start in range(0, len(targets), BLOCK):
        block = targets[start : start + BLOCK]
        contrast = influence(included, right, sources, block)
        values = np.nan_to_num(contrast.value, nan=-np.inf).ravel()
        for place in np.argpartition(-values, min(count, len(values) - 1))[:count].tolist():
            if np.isfinite(values[place]):
                at = sources[place // len(block)], block[place % len(block)]
                best.append((float(values[place]), int(at[0]), int(at[1]), contrast.take(np.array([place]))))
    best.sort(key=lambda pair: -pair[0])
    best = best[:count]
    parts = [(c.right_with, c.having, c.right_without, c.without) for *_, c in best]
    joined = [np.concatenate(part) for part in zip(*parts, strict=True)] if parts else [np.empty(0)] * 4
    return np.array([(i, t) for _, i, t, _ in best], dtype=np.int64).reshape(-1, 2), Contrast(*joined)


@dataclass(frozen=True)
class LeftOut:
    """Records that were left out, one unit at a time.

    Attributes:
        rows: of the training records.
        value: [r] 1, 0 or -1: whether the model with everybody is right, less whether the one without the unit is.
        changed: [r] bool, whether the label is another.
        refused: why some could not be left out.
    """

    rows: np.ndarray
    value: np.ndarray
    changed: np.ndarray
    refused: tuple[str, ...] = ()


def left_out(model: Model, rows: Sequence[int], on_done: Callable[[int], None] = lambda done: None) -> LeftOut:
    """Train without the unit of each of these rows (all else, the public constants among it, as it was)."""
    train = model.problem.dataset.train
    edits = [Edited(train, np.flatnonzero(train.units == train.units[row])) for row in rows]
    kept, value, changed, refused = list[int](), list[int](), list[bool](), list[str]()
    for row, other in zip(rows, neighbours_of(model, edits, on_done), strict=True):
        if isinstance(other, Refused):
            refused.append(other.why)
            continue
        asked = train.features[row : row + 1]
        now, then = int(model.predict(asked)[0]), int(other.predict(asked)[0])
        kept.append(row)
        value.append(int(now == train.labels[row]) - int(then == train.labels[row]))
        changed.append(now != then)
    return LeftOut(np.array(kept, dtype=np.int64), np.array(value), np.array(changed, dtype=bool), tuple(refused))


def _check(included: np.ndarray, right: np.ndarray) -> None:
    if included.shape != right.shape or included.dtype != bool or right.dtype != bool:
        raise ConfigError(f"included {included.shape} and right {right.shape}: give two arrays of bool of one shape")


def _limits(right: np.ndarray, count: np.ndarray, error: float) -> tuple[np.ndarray, np.ndarray]:
    """Clopper-Pearson limits, worked out once for each pair of counts; nothing is known of a share of no models."""
    pairs, place = np.unique(np.stack([right.ravel(), count.ravel()]).astype(np.int64), axis=1, return_inverse=True)
    ends = np.array([_ends(int(r), int(n), error) for r, n in pairs.T])
    low, high = ends[place.ravel()].T.reshape(2, *right.shape)
    return low, high


def _ends(right: int, count: int, error: float) -> tuple[float, float]:
    return (lower_limit(right, count, error), upper_limit(right, count, error)) if count else (0.0, 1.0)
