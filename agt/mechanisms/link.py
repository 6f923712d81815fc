"""Probabilities from released scores: the slope of a public link, computed from what was released.

    slope = link_slope(released, weight, constant, again)
    softmax(slope * scores)                         of any query; nothing more is spent

Formal guarantees
    The slope is a function of sums that were released with noise, and of public constants: it is
    post-processing, and covered by the release's own guarantee.

Ridge regression fits scores to 0 and 1, and a score is no probability. The slope a is the one for
which E[score of the record's own class] = E[sum_k softmax(a scores)_k score_k]: there the log loss
of softmax(a scores) has no slope in a. Both sides are taken in a model with a normal distribution
of scores in each class, whose means and common covariance follow from the sums. As the weights were
solved from the same noise that the sums have, the sums make them look better than they are: by how
much is found by drawing noise anew on the released sums (a parametric bootstrap).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import softmax

BOOTSTRAPS = 6
NORMALS = 400  # scores of each class, in the model
LEAST_SLOPE, GREATEST_SLOPE = 1e-3, 1e3


@dataclass(frozen=True, eq=False)
class ReleasedSums:
    """Sums over records' features u [d] and labels, with noise; public.

    Attributes:
        gram: [d, d] of u u^T.
        sums: [d, C] of u, by class.
        weight: [C, d] solved from them.
    """

    gram: np.ndarray
    sums: np.ndarray
    weight: np.ndarray


def link_slope(
    released: ReleasedSums,
    positive: np.ndarray,
    constant: float,
    again: Callable[[np.random.Generator], ReleasedSums],
) -> float:
    """Return the slope by which scores become logits.

    Args:
        released: what was released.
        positive: [d, d] the gram without negative eigenvalues, which noise alone gives it.
        constant: the last feature of each record.
        again: returns released sums whose noise is drawn anew, on ``positive`` and the released
            sums.
    """
    weight = released.weight
    counts = np.maximum(released.sums[-1] / constant, 1.0)  # of each class, with noise
    rates = counts / counts.sum()
    of_class = weight @ released.sums  # [C, C] sum of each score over each class
    squares = weight @ released.gram @ weight.T
    rng = np.random.default_rng(0)
    for _ in range(BOOTSTRAPS):
        drawn = again(rng)
        of_class = of_class - drawn.weight @ (drawn.sums - released.sums) / BOOTSTRAPS
        squares = squares - drawn.weight @ (drawn.gram - positive) @ drawn.weight.T / BOOTSTRAPS
    means = of_class / counts
    within = squares / counts.sum() - (means * rates) @ means.T
    scores = _model_scores(means, within)
    own = float(np.trace(of_class)) / counts.sum()

    def excess(slope: float) -> float:
        shares = softmax(slope * scores, axis=2)
        expected = (shares * scores).sum(axis=2).mean(axis=1)
        return float(rates @ expected) - own

    if excess(LEAST_SLOPE) >= 0:
        return LEAST_SLOPE
    if excess(GREATEST_SLOPE) <= 0:
        return GREATEST_SLOPE
    return float(brentq(excess, LEAST_SLOPE, GREATEST_SLOPE, rtol=1e-6))


def _model_scores(means: np.ndarray, within: np.ndarray) -> np.ndarray:
    """Return [C, 2 NORMALS, C] scores of each class.

    Args:
        means: [C, C] of each score in each class.
        within: [C, C] their covariance in any class, with noise: it may have negative eigenvalues.
    """
    values, vectors = np.linalg.eigh((within + within.T) / 2)
    root = vectors * np.sqrt(np.maximum(values, 0))
    normals = np.random.default_rng(1).standard_normal((NORMALS, len(means)))
    normals = np.concatenate([normals, -normals])
    return means.T[:, None, :] + normals @ root.T
