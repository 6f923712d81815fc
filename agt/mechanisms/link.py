"""Probabilities from released scores: the slope of a public link, computed from what was released.

    slope = link_slope(released, positive_gram, constant, draw_again)
    softmax(slope * scores)                         of any query; nothing more is spent

Ridge regression fits scores to 0 and 1, and a score is no probability. docs/proofs/link.md says
which slope makes it one.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import softmax

BOOTSTRAPS = 6
CLASS_DRAWS = 400  # scores of each class in the model, each with its mirror image
MIN_SLOPE = 1e-3
MAX_SLOPE = 1e3


@dataclass(frozen=True, eq=False)
class ReleasedSums:
    """Sums over records' features u [d] and labels, with noise; public.

    Attributes:
        gram: [d, d] the sum of u u^T.
        sums: [d, C] the sum of u over the records of each class.
        weight: [C, d] the weights that were solved from both.
    """

    gram: np.ndarray
    sums: np.ndarray
    weight: np.ndarray


def link_slope(
    released: ReleasedSums,
    positive: np.ndarray,
    constant: float,
    draw_again: Callable[[np.random.Generator], ReleasedSums],
) -> float:
    """Return the slope by which scores become logits, in [0.001, 1000].

    Args:
        released: what was released.
        positive: [d, d] the gram without its negative eigenvalues, which come from noise alone.
        constant: the last feature of each record.
        draw_again: returns released sums whose noise is drawn anew, on ``positive`` and the
            released sums.

    Formal guarantees
        The slope is a function of sums that were released with noise, and of public constants: it
        is post-processing, and covered by the release's own guarantee.
    """
    weight = released.weight
    class_counts = np.maximum(released.sums[-1] / constant, 1.0)  # with noise
    rates = class_counts / class_counts.sum()
    class_scores = weight @ released.sums  # [C, C] the sum of each score over each class
    squares = weight @ released.gram @ weight.T  # [C, C] the sum of products of two scores
    # Lemma 2 of docs/proofs/link.md: the weights were solved from the noise that the sums have.
    rng = np.random.default_rng(0)
    for _ in range(BOOTSTRAPS):
        drawn = draw_again(rng)
        class_scores = class_scores - drawn.weight @ (drawn.sums - released.sums) / BOOTSTRAPS
        squares = squares - drawn.weight @ (drawn.gram - positive) @ drawn.weight.T / BOOTSTRAPS
    means = class_scores / class_counts
    covariance = squares / class_counts.sum() - (means * rates) @ means.T
    scores = _model_scores(means, covariance)
    mean_own_score = float(np.trace(class_scores)) / class_counts.sum()

    def excess(slope: float) -> float:
        # Lemma 1 of docs/proofs/link.md: it is 0 at the slope that is looked for, and grows.
        shares = softmax(slope * scores, axis=2)
        expected_score = (shares * scores).sum(axis=2).mean(axis=1)
        return float(rates @ expected_score) - mean_own_score

    if excess(MIN_SLOPE) >= 0:
        return MIN_SLOPE
    if excess(MAX_SLOPE) <= 0:
        return MAX_SLOPE
    return float(brentq(excess, MIN_SLOPE, MAX_SLOPE, rtol=1e-6))


def _model_scores(means: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """Return scores that are normally distributed in each class: [C, 2 CLASS_DRAWS, C].

    Args:
        means: [C, C] the mean of each score in each class.
        covariance: [C, C] of the scores in any class, with noise: it may have negative
            eigenvalues, which count as 0.
    """
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    root = vectors * np.sqrt(np.maximum(values, 0))
    normals = np.random.default_rng(1).standard_normal((CLASS_DRAWS, len(means)))
    normals = np.concatenate([normals, -normals])
    return means.T[:, None, :] + normals @ root.T
