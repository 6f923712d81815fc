"""Class probabilities from the scores of a private ridge model, by calibrating one factor.

    slope = link_slope(released, positive_gram, constant, draw_again)
    softmax(slope * scores)       probabilities for any query; no privacy budget is spent

Ridge regression fits scores to 0 and 1, which are not probabilities. The factor is computed from
the released sums only. docs/proofs/link.md derives it.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import softmax

BOOTSTRAPS = 6  # how often the noise is simulated to estimate its bias
CLASS_DRAWS = 400  # the draws of scores for each class, each of which has a mirror image, too
MIN_SLOPE = 1e-3
MAX_SLOPE = 1e3


@dataclass(frozen=True, eq=False)
class ReleasedSums:
    """Noisy sums over the records' features u [d], and the ridge weights; all of it is public.

    Attributes:
        gram: [d, d], the sum of u u^T over all records, with noise.
        sums: [d, C], the sum of u over the records of each class, with noise.
        weight: [C, d], the weights of ridge regression that were computed from both sums.
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
    """Return the factor for which softmax(factor * scores) gives calibrated class probabilities.

    The factor minimises the estimated log loss. The estimate assumes that scores are normally
    distributed within each class; their moments follow from the released sums.

    Args:
        released: the released noisy sums and weights.
        positive: [d, d], the released gram matrix with its negative eigenvalues replaced by 0 (the
            exact matrix has none; they come from the noise).
        constant: the value of the last feature, which is the same in each record; not 0.
        draw_again: returns sums with simulated noise of the release's distribution, added to
            ``positive`` and ``released.sums``, and the weights computed from them.

    Returns:
        The factor, from 0.001 to 1000.

    Formal guarantees
        The factor is computed from the released, noisy sums and from public constants. So it is
        post-processing, and the release's own guarantee covers it.
    """
    weight = released.weight
    # The last feature is constant, so its sum over a class is that constant times the records.
    class_counts = np.maximum(released.sums[-1] / constant, 1.0)  # [C], with noise
    rates = class_counts / class_counts.sum()  # [C] shares of the classes
    class_scores = weight @ released.sums  # [C, C] the sum of each score over each class
    squares = weight @ released.gram @ weight.T  # [C, C] the sum of products of two scores
    # Lemma 2 of docs/proofs/link.md: the weights were computed from the noise that the sums have,
    # which makes the fit look better than it is. Simulated noise estimates by how much, and the
    # mean of these estimates is subtracted.
    rng = np.random.default_rng(0)  # a fixed seed: the factor is reproducible, and needs no secret
    for _ in range(BOOTSTRAPS):
        simulated = draw_again(rng)
        sums_noise = simulated.sums - released.sums
        gram_noise = simulated.gram - positive
        fitted = simulated.weight  # to this noise
        class_scores = class_scores - fitted @ sums_noise / BOOTSTRAPS
        squares = squares - fitted @ gram_noise @ fitted.T / BOOTSTRAPS
    means = class_scores / class_counts  # [C, C] the mean of each score in each class
    covariance = squares / class_counts.sum() - (means * rates) @ means.T  # within classes
    scores = _model_scores(means, covariance)
    mean_own_score = float(np.trace(class_scores)) / class_counts.sum()

    def excess(slope: float) -> float:
        """Return the derivative of the estimated log loss by the slope; it increases with it."""
        # Lemma 1 of docs/proofs/link.md: the derivative is the expected score under the predicted
        # probabilities, minus the mean score of the records' own classes.
        shares = softmax(slope * scores, axis=2)
        expected_score = (shares * scores).sum(axis=2).mean(axis=1)
        return float(rates @ expected_score) - mean_own_score

    if excess(MIN_SLOPE) >= 0:
        return MIN_SLOPE
    if excess(MAX_SLOPE) <= 0:
        return MAX_SLOPE
    return float(brentq(excess, MIN_SLOPE, MAX_SLOPE, rtol=1e-6))


def _model_scores(means: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """Return simulated scores that are normally distributed within each class.

    Args:
        means: [C, C]; column c has the means of the C scores in class c.
        covariance: [C, C], the covariance of the scores within a class, the same for all classes.
            It comes from noisy sums, so it may be asymmetric or have negative eigenvalues, which
            are replaced by 0.

    Returns:
        [C, 2 CLASS_DRAWS, C]: for each class, draws of the C scores.
    """
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    root = vectors * np.sqrt(np.maximum(values, 0))  # root @ root.T is the covariance
    normals = np.random.default_rng(1).standard_normal((CLASS_DRAWS, len(means)))
    normals = np.concatenate([normals, -normals])  # with their mirror images, the mean is 0
    class_means = means.T[:, None, :]  # [C, 1, C]: the same mean for all draws of a class
    return class_means + normals @ root.T
